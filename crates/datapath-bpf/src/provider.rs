// SPDX-License-Identifier: Apache-2.0
//! BPF as an offload provider of two tiers, XDP and tcx, which share one table of flows.
//!
//! A port that is at XDP is also at tcx, where the packets run that XDP leaves alone. A flow has
//! one slot with a bit for each hook, so that both tiers cost one installation.

use crate::BpfDatapath;
use crate::attachment::{Attachment, HookSet, Hooks, RxOwner, XdpMode};
use crate::backend::Backend;
use crate::fit::{self, Wish, XdpFacts};
use crate::peer;
use crate::probe::{KernelProber, Prober};
use crate::rx_ownership::{self, Move};
use datapath::offload::{
    Attached, Ends, HeldFlow, MissChannel, OffloadPort, OffloadProvider, PortSocket, ProviderSlot,
    Reason, Segmenter, SettingKey, TierState, TunnelHelper, TunnelHelperCounts, UpcallAccount,
};
use datapath::{
    Actions, AdoptedPort, BondTable, BucketBytes, DropReason, EgressQos, FlowStats, LookupStats,
    Megaflow, MeterConfig, MeterStats, MissOrigin, PortCounts, PortNo, Refusal, SequenceNumbers,
    Side, Tier, TierSet, TunnelEndpoint, Ufid, Verdict,
};
use netdev::{Endpoint, Kind};
use packet::{Mac, Packet};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Key of `options:bpf-object`: the path of the user's program for XDP.
const OBJECT: &str = "bpf-object";
/// Key of `other_config:xdp-mode`.
const MODE: &str = "xdp-mode";

/// Returns the place of BPF in a list of providers, while `other_config:bpf-offload` is false.
pub fn provider_slot() -> ProviderSlot {
    ProviderSlot {
        tiers: TierSet::XDP_AND_TCX,
        keys: &[
            SettingKey::Option(OBJECT),
            SettingKey::OtherConfig(MODE),
            SettingKey::OtherConfig(peer::SETTING),
        ],
        check: |settings| {
            fit::parse_mode(settings.get(MODE))?;
            peer::parse_setting(settings.get(peer::SETTING)).map(|_| ())
        },
        absent: disabled(),
        is_optional: false,
    }
}

/// Returns the reason of a switch whose `other_config:bpf-offload` is false.
pub fn disabled() -> Reason {
    Reason::new(Refusal::TierDisabled, "other_config:bpf-offload=false")
}

/// Returns lines for people about the user's program at `path` that a port has at XDP: its
/// capabilities, and where the flows run that it cannot run. `known` is the text of the
/// capabilities; `None` reads them from the file, without loading it.
pub fn about_object(path: &Path, known: Option<String>) -> Vec<String> {
    let mut lines = vec![format!("options:bpf-object is {}", path.display())];
    let about = match known {
        Some(about) => Ok(about),
        None => crate::object::examine_file(path).map(|about| about.to_string()),
    };
    match about {
        Ok(about) => {
            lines.extend(about.lines().map(|line| format!("  {line}")));
            lines.push(format!(
                "  flows that compare more ({}) or do more ({}) run at the next tier",
                Refusal::UnsupportedKey,
                Refusal::UnsupportedAction,
            ));
        }
        Err(error) => {
            lines.push(format!("  it cannot be used, all flows run at the next tier: {error}"));
        }
    }
    lines
}

#[inline]
fn hooks_of(tiers: TierSet) -> HookSet {
    let mut hooks = HookSet::empty();
    hooks.set(HookSet::XDP, tiers.has(Tier::Xdp));
    hooks.set(HookSet::TC, tiers.has(Tier::Tcx));
    hooks
}

#[inline]
fn tiers_of(hooks: HookSet) -> TierSet {
    let mut tiers = TierSet::NONE;
    if hooks.contains(HookSet::XDP) {
        tiers = tiers.with(Tier::Xdp);
    }
    if hooks.contains(HookSet::TC) {
        tiers = tiers.with(Tier::Tcx);
    }
    tiers
}

/// Largest MTU in bytes of a port whose misses can go up. A miss goes up with a header in front,
/// and the kernel lets programs add one to packets of up to 16,064 bytes with it (`SKB_MAX_ALLOC`,
/// with pages of 4 KiB). The difference is room for tags.
const LONGEST_MTU: u32 = 15_900;

/// The most ports whose other ends are looked at in one round of housekeeping, which takes less than
/// a millisecond.
const LOOKS_PER_ROUND: usize = 64;

/// Checks that misses of a port can go up, whatever their length.
fn fits_the_header(mtu: u32) -> Result<(), Reason> {
    if mtu <= LONGEST_MTU {
        return Ok(());
    }
    let detail = format!(
        "its MTU of {mtu} is above {LONGEST_MTU}: a packet of that length without a flow could not \
         be sent up"
    );
    Err(Reason::new(Refusal::DeviceKind, detail))
}

/// Returns true for devices that programs can be attached to.
fn is_kernels(kind: Kind) -> bool {
    matches!(kind, Kind::System | Kind::Internal | Kind::Tap)
}

fn not_yet() -> Reason {
    Reason::new(Refusal::PortNotHere, "not attached yet")
}

/// The refusals that decide where a port is, of all that is known of its device. Not every fact
/// counts: whether the other end of a veth pair can be examined changes as processes there come
/// and go.
type Judgement = [Option<Refusal>; 4];

/// A port's settings for BPF.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BpfSettings {
    wish: Wish,
    mode: XdpMode,
    object: Option<PathBuf>,
    /// Frames may enter the other end of a veth pair at once.
    enters_peer: bool,
    /// The host's stack has the device, too, and may shape what leaves by it.
    is_shared: bool,
    /// The QoS that packets to the port must meet.
    egress: EgressQos,
}

impl BpfSettings {
    fn of(port: &OffloadPort<'_>) -> BpfSettings {
        let settings = port.settings;
        let enters_peer = peer::parse_setting(settings.get(peer::SETTING)).unwrap_or(true);
        BpfSettings {
            wish: Wish::of(settings.tier),
            // A word that is none was refused when the port got its settings.
            mode: fit::parse_mode(settings.get(MODE)).unwrap_or(XdpMode::Driver),
            object: settings.get(OBJECT).map(PathBuf::from),
            enters_peer,
            is_shared: port.side == Side::Underlay,
            egress: port.egress,
        }
    }

    /// Returns the wish for XDP. A port with a user's program is to run the program.
    fn xdp_wish(&self) -> Wish {
        self.wish.with_object(self.object.is_some())
    }
}

/// The state of a port: its settings, the facts about its device, and its attachment.
#[derive(Debug)]
struct PortState {
    kind: Kind,
    ifindex: Option<u32>,
    settings: BpfSettings,
    facts: XdpFacts,
    judgement: Judgement,
    /// Tiers that take the port's packets.
    attached: TierSet,
    /// Index of the interface whose packets move from the socket to the programs; see
    /// [`OffloadProvider::complete_moves`].
    moving: Option<u32>,
    /// The port is in the table of ports, so flows may output to it.
    is_target: bool,
    /// XDP may redirect to the port; otherwise the reason why not.
    redirect: Result<(), Reason>,
    /// Frames for this address enter the other end of the veth pair at once, or why not.
    peer: Result<Mac, String>,
    /// Changes whenever facts, settings or attachment change.
    stamp: u64,
}

impl PortState {
    fn new(port: &OffloadPort<'_>) -> PortState {
        PortState {
            kind: port.kind,
            ifindex: port.ifindex,
            settings: BpfSettings::of(port),
            facts: XdpFacts::default(),
            judgement: Judgement::default(),
            attached: TierSet::NONE,
            moving: None,
            is_target: false,
            redirect: Err(not_yet()),
            peer: Err(not_yet().detail),
            stamp: 0,
        }
    }

    /// Takes over the present device and settings of the port.
    fn follow(&mut self, port: &OffloadPort<'_>) {
        (self.kind, self.ifindex) = (port.kind, port.ifindex);
        self.settings = BpfSettings::of(port);
    }

    fn judge(&self, mtu: u32) -> Judgement {
        let refusal = |fit: Result<(), Reason>| fit.err().map(|reason| reason.refusal);
        let BpfSettings { mode, .. } = self.settings;
        [
            refusal(fits_the_header(mtu)),
            refusal(fit::xdp_fit(&self.facts, self.settings.xdp_wish(), mode)),
            refusal(fit::redirect_fit(&self.facts, self.kind, false)),
            refusal(fit::redirect_fit(&self.facts, self.kind, true)),
        ]
    }

    /// Returns true when changes of other interfaces or of device settings affect the port. For a
    /// veth, the other end matters if this end is to be at XDP, or if some port is at XDP
    /// (`at_xdp`) and may redirect to it. For a card, its own settings matter (removal of VLAN
    /// tags).
    fn heeds_others(&self, at_xdp: bool) -> bool {
        let wants_xdp = match self.facts.link_kind.as_deref() {
            None => matches!(self.settings.wish, Wish::Auto | Wish::Xdp),
            Some("veth") => self.settings.xdp_wish() == Wish::Xdp || at_xdp,
            Some(_) => false,
        };
        self.kind == Kind::System && wants_xdp
    }

    /// Returns true when events at the device or at its other end decide whether frames enter there.
    fn may_enter_peer(&self) -> bool {
        self.kind == Kind::System
            && self.settings.enters_peer
            && !self.settings.is_shared
            && !self.settings.egress.is_on()
            && self.facts.link_kind.as_deref() == Some("veth")
    }

    /// Returns the index of the device and the other end, if events report nothing that keeps frames
    /// from entering there; otherwise the reason.
    fn peer_candidate(&self) -> Result<(u32, Endpoint), String> {
        let Some(ifindex) = self.ifindex.filter(|_| self.is_target) else {
            return Err(not_yet().detail);
        };
        if self.settings.is_shared {
            return Err("the host's stack has the device, too".into());
        }
        if self.settings.egress.is_on() {
            return Err("the port has QoS".into());
        }
        if !self.settings.enters_peer {
            return Err(format!("other_config:{}=false", peer::SETTING));
        }
        Ok((ifindex, peer::device_fit(&self.facts)?))
    }

    fn states(&self, tcx: Result<(), Reason>, xdp: Result<(), Reason>) -> Vec<TierState> {
        let not_there = || {
            let why = tcx.as_ref().err().cloned().unwrap_or_else(not_yet);
            Reason::new(Refusal::PortNotHere, why.to_string())
        };
        let output = |at_tier: Result<(), Reason>| match self.is_target {
            true => at_tier,
            false => Err(not_there()),
        };
        let by_skb = match self.settings.egress {
            EgressQos::None | EgressQos::Discipline => Ok(()),
            EgressQos::Sender => Err(Reason::new(Refusal::Qos, "userspace carries out its QoS")),
        };
        let (to_xdp, to_tcx) = (output(self.redirect.clone()), output(by_skb));
        vec![
            TierState {
                tier: Tier::Xdp,
                ingress: xdp,
                output: to_xdp,
                how: fit::how(self.settings.mode),
                is_expected: self.settings.xdp_wish() == Wish::Xdp,
            },
            TierState { tier: Tier::Tcx, ingress: tcx, output: to_tcx, how: "", is_expected: true },
        ]
    }
}

/// BPF as an offload provider. Any thread may call the methods; those that change ports take
/// milliseconds.
pub struct BpfProvider<B: Backend = BpfDatapath> {
    backend: Arc<B>,
    prober: Box<dyn Prober>,
    ports: Mutex<BTreeMap<PortNo, PortState>>,
    /// The next [`PortState::stamp`].
    stamps: AtomicU64,
    /// The port at which the next round of [`BpfProvider::look_at_peers`] begins.
    next_look: AtomicU32,
}

impl BpfProvider {
    /// Returns the provider of `bpf`. It asks the kernel about devices in the network namespace of
    /// the thread that calls a method.
    pub fn new(bpf: Arc<BpfDatapath>) -> BpfProvider {
        BpfProvider::over(bpf, Box::new(KernelProber::default()))
    }
}

impl<B: Backend> BpfProvider<B> {
    /// Returns a provider over another backend and source of facts, for tests.
    #[doc(hidden)]
    pub fn over(backend: Arc<B>, prober: Box<dyn Prober>) -> BpfProvider<B> {
        let (stamps, next_look) = (AtomicU64::new(1), AtomicU32::new(0));
        BpfProvider { backend, prober, ports: Mutex::default(), stamps, next_look }
    }

    /// Locks the states of ports. Each is consistent between two calls, also after a panic.
    fn ports(&self) -> MutexGuard<'_, BTreeMap<PortNo, PortState>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches a port, or makes it a target of outputs only if `tcx` is an error: its packets then
    /// stay with the socket, or return to it.
    fn attach_hooks(
        &self,
        port: &OffloadPort<'_>,
        ifindex: u32,
        state: &mut PortState,
        mut tcx: Result<(), Reason>,
        socket: &mut dyn PortSocket,
    ) -> Vec<TierState> {
        let (number, mode) = (port.number, state.settings.mode);
        let attach = |tiers: TierSet| {
            let hooks = Hooks {
                tc: tiers.has(Tier::Tcx),
                xdp: tiers.has(Tier::Xdp).then_some(mode),
                after_filters: tiers.has(Tier::Tcx) && port.is_after_filters,
            };
            let (side, mtu, up) = (port.side, port.mtu, port.is_up);
            self.backend.attach(number, &Attachment { ifindex, side, hooks, mtu, up })
        };
        if tcx.is_ok() {
            let attach = || attach(TierSet::TCX);
            let taken = rx_ownership::take_over(&*self.backend, port, ifindex, socket, attach);
            state.moving = (taken == Ok(Move::Begun)).then_some(ifindex);
            tcx = taken.map(|_| ());
        }
        let mut xdp = tcx.clone();
        if tcx.is_err() {
            state.is_target = attach(TierSet::NONE).is_ok();
        } else {
            (state.attached, state.is_target) = (TierSet::TCX, true);
            xdp = self.fits_xdp(port, state);
            if xdp.is_ok() {
                xdp = attach(TierSet::XDP_AND_TCX);
                if xdp.is_ok() {
                    state.attached = TierSet::XDP_AND_TCX;
                } else if let Err(reason) = attach(TierSet::TCX) {
                    // It may be gone altogether.
                    (state.attached, state.is_target) = (TierSet::NONE, false);
                    state.moving = None;
                    tcx = Err(reason);
                }
            }
        }
        if !state.attached.is_empty() {
            self.backend.set_policing(number, ifindex, port.policing);
        }
        self.set_redirects(port, state, &tcx);
        state.states(tcx, xdp)
    }

    fn fits_xdp(&self, port: &OffloadPort<'_>, state: &PortState) -> Result<(), Reason> {
        let BpfSettings { mode, object, .. } = &state.settings;
        if port.is_after_filters {
            let detail = "filters of traffic control see the packets first, after XDP";
            return Err(Reason::new(Refusal::TierSetting, detail));
        }
        if port.policing.is_on() {
            let detail = "the skb hook limits the packets, also those that XDP would pass on";
            return Err(Reason::new(Refusal::Policing, detail));
        }
        match port.side {
            Side::Device => fit::xdp_fit(&state.facts, state.settings.xdp_wish(), *mode)?,
            Side::Underlay => {
                let detail = "the host's stack has the device, too, and gets its packets after XDP";
                return Err(Reason::new(Refusal::DeviceKind, detail));
            }
            Side::Stack => {
                let detail = "packets of the host are no raw frames";
                return Err(Reason::new(Refusal::DeviceKind, detail));
            }
        }
        self.backend.use_object(port.number, object.as_deref())
    }

    /// Sets whether XDP may redirect to a port.
    fn set_redirects(
        &self,
        port: &OffloadPort<'_>,
        state: &mut PortState,
        tcx: &Result<(), Reason>,
    ) {
        let in_driver = state.attached.has(Tier::Xdp) && state.settings.mode == XdpMode::Driver;
        state.redirect = match state.is_target {
            true if port.egress.is_on() => {
                Err(Reason::new(Refusal::Qos, "XDP redirects past the QoS of the port"))
            }
            true => fit::redirect_fit(&state.facts, port.kind, in_driver).and_then(|()| {
                let takes_split = fit::takes_split_frames(&state.facts);
                self.backend.set_split_target(port.number, takes_split);
                self.backend.set_redirect_target(port.number, true)
            }),
            false => Err(tcx.as_ref().err().cloned().unwrap_or_else(not_yet)),
        };
        if state.is_target && state.redirect.is_err() {
            // It may have been a target; no flow uses it as such now.
            let _ = self.backend.set_redirect_target(port.number, false);
        }
    }

    /// Follows a change of a port's facts, settings or attachment: frames enter the other end of its
    /// veth pair again only after the next round of [`BpfProvider::look_at_peers`].
    fn leave_peer(&self, number: PortNo, state: &mut PortState) {
        state.stamp = self.stamps.fetch_add(1, Ordering::Relaxed);
        let why = state.peer_candidate().err().unwrap_or_else(|| "it changed just now".into());
        self.set_peer(number, state, Err(why));
    }

    /// Has frames for an address enter the other end of a port's pair; on an error all frames pass
    /// the port's device.
    fn set_peer(&self, number: PortNo, state: &mut PortState, to: Result<Mac, String>) {
        if to.as_ref().ok() != state.peer.as_ref().ok() {
            self.backend.set_peer(number, to.as_ref().ok().copied());
        }
        state.peer = to;
    }

    /// Decides for which ports frames enter the other end of the pair, by captures at all of them, and
    /// by the further facts at [`LOOKS_PER_ROUND`]. Nothing waits for the kernel under the lock: each
    /// query takes the kernel's lock of all interfaces.
    fn look_at_peers(&self) {
        let candidate = |(number, state): (&PortNo, &PortState)| {
            let (ifindex, end) = state.peer_candidate().ok()?;
            Some((*number, ifindex, end, state.stamp))
        };
        let candidates: Vec<_> = self.ports().iter().filter_map(candidate).collect();
        if candidates.is_empty() {
            return;
        }
        let interfaces = candidates.iter().map(|(_, ifindex, ..)| *ifindex).collect();
        let captures = self.prober.captures(&interfaces);
        let next = PortNo(self.next_look.load(Ordering::Relaxed));
        let first = candidates.partition_point(|(number, ..)| *number < next);
        let (before, after) = candidates.split_at(first);
        let mut left = after.iter().chain(before);
        let looks: BTreeMap<PortNo, peer::Look> = left
            .by_ref()
            .take(LOOKS_PER_ROUND)
            .filter(|(_, ifindex, ..)| !captures.has(*ifindex))
            .map(|(number, ifindex, end, _)| {
                let has_program = self.prober.has_egress_program(*ifindex);
                (*number, peer::Look { has_program, link: self.prober.peer_link(*end) })
            })
            .collect();
        self.next_look.store(left.next().map_or(0, |(number, ..)| number.0), Ordering::Relaxed);
        let mut ports = self.ports();
        for (number, ifindex, _, stamp) in &candidates {
            let is_same = |state: &&mut PortState| state.stamp == *stamp;
            let Some(state) = ports.get_mut(number).filter(is_same) else { continue };
            if captures.has(*ifindex) {
                self.set_peer(*number, state, Err(peer::CAPTURED.into()));
            } else if let Some(look) = looks.get(number) {
                state.facts.peer_link = look.link;
                let fit = peer::fit(&state.facts, look);
                self.set_peer(*number, state, fit);
            }
        }
    }

    fn check(port: &OffloadPort<'_>) -> Result<(), Reason> {
        if !is_kernels(port.kind) {
            let detail = format!("{} ports have no skb hook", port.kind);
            return Err(Reason::new(Refusal::DeviceKind, detail));
        }
        port.ingress.map_err(Reason::clone)?;
        fits_the_header(port.mtu)
    }

    /// Removes from `verdict` the tiers that a backend's answer excludes. A hook that `answer`
    /// leaves out cannot run the actions.
    #[inline]
    fn narrow(verdict: &mut Verdict, answer: Result<HookSet, Refusal>) {
        match answer {
            Ok(hooks) => {
                let lacking = verdict.tiers.minus(tiers_of(hooks));
                verdict.refuse(lacking, Refusal::UnsupportedAction);
            }
            Err(refusal) => verdict.refuse(verdict.tiers, refusal),
        }
    }

    /// Returns the verdict of the conditions that only XDP has.
    #[inline]
    fn at_xdp(&self, flow: &Megaflow, allowed: TierSet) -> Verdict {
        let mut verdict = Verdict::granted(allowed);
        if allowed.has(Tier::Xdp)
            && let Err(refusal) = self.backend.suits_xdp(flow)
        {
            verdict.refuse(TierSet::of(Tier::Xdp), refusal);
        }
        verdict
    }

    /// Returns the verdict on a flow: the conditions of XDP, then the answer of `put` for the hooks
    /// that are left.
    #[inline]
    fn put(
        &self,
        flow: &Megaflow,
        allowed: TierSet,
        put: impl FnOnce(HookSet) -> Result<HookSet, Refusal>,
    ) -> Verdict {
        let mut verdict = self.at_xdp(flow, allowed);
        if !verdict.tiers.is_empty() {
            let answer = put(hooks_of(verdict.tiers));
            Self::narrow(&mut verdict, answer);
        }
        verdict
    }
}

impl<B: Backend> OffloadProvider for BpfProvider<B> {
    fn tiers(&self) -> TierSet {
        TierSet::XDP_AND_TCX
    }

    fn keeps_policing(&self) -> bool {
        true
    }

    fn adopted_ports(&self) -> Vec<AdoptedPort> {
        self.backend.adopted_ports()
    }

    fn adopted_tunnels(&self) -> Vec<(PortNo, tunnel::PortConfig)> {
        self.backend.adopted_tunnels()
    }

    fn attach(&self, port: &OffloadPort<'_>, socket: &mut dyn PortSocket) -> Attached {
        let mut ports = self.ports();
        let was_at_xdp = is_at_xdp(&ports);
        let state = ports.entry(port.number).or_insert_with(|| PortState::new(port));
        state.follow(port);
        (state.attached, state.is_target, state.moving) = (TierSet::NONE, false, None);
        let tcx = Self::check(port);
        if let Some(filter) = self.backend.filter() {
            socket.install_filter(filter);
        }
        if tcx.is_err() {
            rx_ownership::give_back(&*self.backend, port, socket);
        }
        let tiers = match port.ifindex.filter(|_| is_kernels(port.kind)) {
            Some(ifindex) => self.attach_hooks(port, ifindex, state, tcx, socket),
            None => {
                self.backend.detach(port.number);
                state.redirect = Err(tcx.clone().err().unwrap_or_else(not_yet));
                state.states(tcx.clone(), tcx)
            }
        };
        state.peer = Err(not_yet().detail); // the attachment has ended it
        self.leave_peer(port.number, state);
        let (takes_receive, is_moving) = (!state.attached.is_empty(), state.moving.is_some());
        let affects_others = !was_at_xdp && is_at_xdp(&ports);
        Attached { tiers, takes_receive, is_moving, affects_others, needs_taker: false }
    }

    fn complete_moves(&self) {
        let mut ports = self.ports();
        let moving: Vec<(PortNo, u32)> = ports
            .iter_mut()
            .filter_map(|(number, state)| Some((*number, state.moving.take()?)))
            .collect();
        if moving.is_empty() {
            return;
        }
        self.backend.wait_for_packets();
        for (number, ifindex) in moving {
            if self.backend.owns_rx(number, ifindex) {
                // The interface is in the table, so there is room.
                let _ = self.backend.set_rx_owner(number, ifindex, RxOwner::ProgramsAlone);
            }
        }
    }

    fn release(&self, port: &OffloadPort<'_>, socket: &mut dyn PortSocket) {
        let mut ports = self.ports();
        let state = ports.entry(port.number).or_insert_with(|| PortState::new(port));
        state.follow(port);
        (state.attached, state.is_target, state.moving) = (TierSet::NONE, false, None);
        state.redirect = Err(port.ingress.err().cloned().unwrap_or_else(not_yet));
        if let Some(filter) = self.backend.filter() {
            socket.install_filter(filter);
        }
        rx_ownership::give_back(&*self.backend, port, socket);
        self.backend.detach(port.number);
        state.peer = Err(not_yet().detail); // so has that
        self.leave_peer(port.number, state);
    }

    fn remove_port(&self, port: PortNo) {
        self.ports().remove(&port);
        self.backend.detach_later(port);
        self.backend.forget_counts(port); // the next port of this number starts with none
    }

    fn add_tunnel(&self, port: PortNo, config: &tunnel::PortConfig) -> TierSet {
        if self.backend.add_tunnel(port, config) { self.tiers() } else { TierSet::NONE }
    }

    fn sequence_numbers(&self, port: PortNo) -> Option<Arc<dyn SequenceNumbers>> {
        self.backend.sequence(port)
    }

    fn finish_removal(&self) -> bool {
        self.backend.finish_detaching()
    }

    fn update_port(&self, port: PortNo, mtu: u32, is_up: bool) {
        if self.ports().get(&port).is_some_and(|state| state.is_target) {
            self.backend.set_port(port, mtu, is_up);
        }
    }

    fn examine(&self, port: &OffloadPort<'_>) -> bool {
        let mut ports = self.ports();
        let state = ports.entry(port.number).or_insert_with(|| PortState::new(port));
        let before = (state.ifindex, state.settings.clone(), state.facts.clone());
        state.follow(port);
        if is_kernels(port.kind) && port.ifindex.is_some() {
            state.facts = self.prober.xdp_facts(port.device);
        }
        if (&before.0, &before.1, &before.2) != (&state.ifindex, &state.settings, &state.facts) {
            self.leave_peer(port.number, state);
        }
        let now = state.judge(port.mtu);
        std::mem::replace(&mut state.judgement, now) != now
    }

    fn depends_on(&self, port: PortNo, ends: Ends<'_>) -> bool {
        let ports = self.ports();
        let at_xdp = is_at_xdp(&ports);
        let Some(state) = ports.get(&port) else { return false };
        let heeds_events = state.heeds_others(at_xdp) || state.may_enter_peer();
        match ends {
            Ends::These(ends) => {
                let own = state.ifindex.map(|index| Endpoint { namespace: None, index });
                let theirs = [own, state.facts.end];
                heeds_events && theirs.into_iter().flatten().any(|end| ends.contains(&end))
            }
            Ends::Lost => heeds_events,
            // Rounds of maintain() look at the others, without a thread for each.
            Ends::Poll => state.heeds_others(at_xdp),
        }
    }

    fn about_port(&self, port: PortNo) -> Vec<String> {
        let ports = self.ports();
        let Some(state) = ports.get(&port) else { return Vec::new() };
        let known = || self.backend.about_object(port);
        let object = state.settings.object.as_deref();
        let mut lines = object.map_or_else(Vec::new, |path| about_object(path, known()));
        if let Err(reason) = &state.redirect {
            lines.push(format!("others at XDP do not redirect to it: {reason}"));
        }
        if state.facts.link_kind.as_deref() == Some("veth") && state.is_target {
            lines.push(match &state.peer {
                Ok(mac) => format!("frames for {mac} enter the other end at once"),
                Err(why) => format!("frames pass its device on their way to the other end: {why}"),
            });
        }
        if state.attached != TierSet::NONE {
            lines.extend(self.backend.refused_programs());
        }
        lines
    }

    fn set_tunnel_endpoints(&self, endpoints: &[TunnelEndpoint]) {
        self.backend.set_tunnel_endpoints(endpoints);
    }

    fn set_tunnel_helper(&self, port: PortNo, helper: Option<&TunnelHelper>) -> Result<(), Reason> {
        self.backend.set_tunnel_helper(port, helper)
    }

    fn tunnel_helper_counts(&self, port: PortNo) -> Option<TunnelHelperCounts> {
        self.backend.tunnel_helper_counts(port)
    }

    fn set_segmenter(&self, segmenter: Option<&Segmenter>) -> Result<(), Reason> {
        self.backend.set_segmenter(segmenter)
    }

    fn port_counts(&self, port: PortNo) -> PortCounts {
        self.backend.port_counts(port)
    }

    fn follow_vlan_limit(&self) -> Result<(), Reason> {
        self.backend.follow_vlan_limit()
    }

    /// Users' programs were loaded for the old limit.
    fn must_reattach(&self, port: PortNo) -> bool {
        self.ports().get(&port).is_some_and(|state| state.settings.object.is_some())
    }

    fn suits(&self, flow: &Megaflow, allowed: TierSet) -> Verdict {
        self.put(flow, allowed, |hooks| self.backend.would_take(flow, hooks))
    }

    fn install(&self, flow: &Megaflow, allowed: TierSet) -> Verdict {
        self.put(flow, allowed, |hooks| self.backend.install(flow, hooks))
    }

    fn replace(&self, flow: &Megaflow, allowed: TierSet) -> Verdict {
        self.put(flow, allowed, |hooks| self.backend.replace(flow, hooks))
    }

    fn remove_many(&self, ufids: &[Ufid], each: &mut dyn FnMut(Ufid, FlowStats)) {
        self.backend.remove_many(ufids, each);
    }

    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        self.backend.sweep(each);
    }

    fn sweep_moved(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        self.backend.sweep_moved(each);
    }

    fn flow(&self, ufid: Ufid) -> Option<HeldFlow> {
        let held = self.backend.flow(ufid)?;
        Some(HeldFlow { matching: held.matching, tiers: tiers_of(held.hooks), stats: held.stats })
    }

    fn stats(&self, ufid: Ufid) -> Option<FlowStats> {
        self.backend.stats(ufid)
    }

    fn actions(&self, ufid: Ufid) -> Option<Actions> {
        self.backend.actions(ufid)
    }

    fn does(&self, ufid: Ufid, actions: &Actions) -> bool {
        self.backend.encodes_alike(ufid, actions)
    }

    fn len(&self) -> usize {
        self.backend.flow_count()
    }

    fn set_bond(&self, id: u32, table: &BondTable) -> Result<(), Refusal> {
        self.backend.set_bond(id, table)
    }

    fn remove_bond(&self, id: u32) {
        self.backend.remove_bond(id);
    }

    fn bond_bytes(&self, id: u32) -> Option<BucketBytes> {
        self.backend.bond_bytes(id)
    }

    fn adopted_bonds(&self) -> Vec<(u32, BondTable)> {
        self.backend.adopted_bonds()
    }

    fn set_meter(&self, id: u32, config: &MeterConfig) -> Result<(), Refusal> {
        self.backend.set_meter(id, config)
    }

    fn remove_meter(&self, id: u32) -> Option<MeterStats> {
        self.backend.remove_meter(id)
    }

    fn meter_stats(&self, id: u32) -> Option<MeterStats> {
        self.backend.meter_stats(id)
    }

    fn misses(&self) -> Option<&dyn MissChannel> {
        Some(self)
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.backend.drops(reason)
    }

    fn lookups(&self) -> LookupStats {
        self.backend.lookups()
    }

    fn maintain(&self) {
        self.backend.maintain();
        self.look_at_peers();
    }

    fn close(&self, cleanup: bool) {
        self.backend.close(cleanup);
    }
}

/// Returns true when some port is at XDP.
fn is_at_xdp(ports: &BTreeMap<PortNo, PortState>) -> bool {
    ports.values().any(|state| state.attached.has(Tier::Xdp))
}

impl<B: Backend> MissChannel for BpfProvider<B> {
    fn set_miss_device(&self, ifindex: u32) {
        self.backend.set_miss_device(ifindex);
    }

    fn unwrap(&self, packet: &mut Packet) -> Option<MissOrigin> {
        self.backend.unwrap(packet)
    }

    fn note_taken(&self, port: PortNo, count: u64) {
        self.backend.note_taken(port, count);
    }

    fn hold_back(&self, port: PortNo, account: UpcallAccount, until_nanos: u64) {
        self.backend.hold_back(port, account, until_nanos);
    }

    fn resync_taken(&self, lost: u64) {
        self.backend.resync_taken(lost);
    }

    fn is_on_its_way(&self, port: PortNo) -> bool {
        self.backend.is_on_its_way(port)
    }

    fn sent_up(&self) -> u64 {
        self.backend.sent_up()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_are_tiers() {
        for tiers in [TierSet::NONE, TierSet::TCX, TierSet::XDP_AND_TCX] {
            assert_eq!(tiers_of(hooks_of(tiers)), tiers);
        }
    }
}

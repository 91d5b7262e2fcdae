// SPDX-License-Identifier: Apache-2.0
//! The card as a provider of `placement`.

mod flows;
mod meters;
mod ports;
mod state;
#[cfg(test)]
mod tests;
mod tunnels;

use crate::client::Client;
use crate::filter::{Hook, Place, Policy, Shown};
use crate::kernel::TrafficControl;
use clock::Clock;
use datapath::offload::{
    Attached, Ends, HeldFlow, OffloadPort, OffloadProvider, PortSettings, PortSocket, ProviderSlot,
    Reason, SettingKey,
};
use datapath::{
    Actions, DropReason, FlowStats, LookupStats, Megaflow, MeterConfig, MeterStats, PortNo,
    Refusal, Tier, TierSet, Ufid, Verdict,
};
use meters::Metered;
use state::State;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The tier of cards.
pub const CARD: TierSet = TierSet::of(Tier::Tc);

/// The setting of an Interface that names the providers for its flows, as in Open vSwitch 3.7.
const OFFLOAD_PRIORITY: &str = "hw-offload-priority";

/// The high bits of the handles of all filters of this crate.
const HANDLE: u32 = 0x7360_0000;
/// The bits of a handle that number filters.
const NUMBER: u32 = 0x000f_ffff;
/// The priorities of all filters of this crate, one for each Ethernet type. The next one is that of
/// the filters of `datapath-bpf`, so that packets meet filters for cards first.
const PRIORITIES: std::ops::RangeInclusive<u16> = 0x7360..=0x736b;

/// True for the place of a filter that this crate has made. Other filters are left alone.
pub(crate) fn is_own(place: &Place) -> bool {
    PRIORITIES.contains(&place.priority) && place.handle & !NUMBER == HANDLE
}

/// Returns the place of cards in the list of providers. It is off unless the database asks for it.
pub fn provider_slot() -> ProviderSlot {
    ProviderSlot {
        tiers: CARD,
        keys: &[SettingKey::OtherConfig(OFFLOAD_PRIORITY)],
        check,
        absent: disabled(),
        is_optional: true,
    }
}

/// The reason while `other_config:hw-offload` is false.
pub fn disabled() -> Reason {
    Reason::new(Refusal::TierDisabled, "other_config:hw-offload=false")
}

fn check(settings: &PortSettings) -> Result<(), String> {
    let words = settings.get(OFFLOAD_PRIORITY).into_iter().flat_map(|list| list.split(','));
    for word in words.map(str::trim) {
        if !["tc", "dpdk", "none"].contains(&word) {
            return Err(format!(
                "other_config:{OFFLOAD_PRIORITY}: \"{word}\" is not one of tc, dpdk and none"
            ));
        }
    }
    Ok(())
}

/// Removes the filters that an earlier daemon left at any device of the calling thread's network
/// namespace: a card would go on forwarding by the rules of that daemon. Returns their number.
///
/// # Errors
///
/// Some filters may be left.
pub fn discard_all() -> io::Result<usize> {
    let mut client = Client::open()?;
    let mut removed = 0;
    for ifindex in client.devices()? {
        removed += discard(&mut client, ifindex)?;
    }
    Ok(removed)
}

/// Removes all filters of this crate at a device, and the qdisc when no filter is left. Returns
/// their number.
fn discard(kernel: &mut dyn TrafficControl, ifindex: u32) -> Result<usize, netlink::Error> {
    let mut own = Vec::new();
    for hook in Hook::ALL {
        let mut note = |shown: Shown| own.extend(Some(shown.place).filter(is_own));
        kernel.filters(ifindex, hook, &mut note)?;
    }
    for place in &own {
        kernel.remove(place)?;
    }
    if !own.is_empty() {
        remove_unused_qdisc(kernel, ifindex)?;
    }
    Ok(own.len())
}

/// Removes the qdisc of a device at which no filter is left: it has no effect then. One that another
/// program has made for egress alone stays, because it is of another kind or has filters.
fn remove_unused_qdisc(
    kernel: &mut dyn TrafficControl,
    ifindex: u32,
) -> Result<(), netlink::Error> {
    for hook in Hook::ALL {
        if kernel.count(ifindex, hook)? > 0 {
            return Ok(());
        }
    }
    // A qdisc of the kind "ingress" is somebody else's, and the kernel refuses this.
    let _ = kernel.remove_clsact(ifindex);
    Ok(())
}

/// Flows in cards, and of ports with `other_config:tier=tc` also in the kernel, by its traffic control.
/// Any thread may use it.
///
/// The lock of `kernel` is taken before that of `state`, and requests are sent without the latter.
pub struct CardProvider {
    clock: Clock,
    kernel: Mutex<Box<dyn TrafficControl>>,
    state: Mutex<State>,
}

impl CardProvider {
    /// Opens a provider in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// No socket can be opened.
    pub fn open(clock: Clock) -> io::Result<CardProvider> {
        Ok(CardProvider::new(Box::new(Client::open()?), clock))
    }

    pub(crate) fn new(kernel: Box<dyn TrafficControl>, clock: Clock) -> CardProvider {
        CardProvider { clock, kernel: Mutex::new(kernel), state: Mutex::default() }
    }

    /// Sets the places that run filters, by `other_config:tc-policy`. Afterwards ports are to be
    /// attached again.
    pub fn set_policy(&self, policy: Policy) {
        self.state().policy = policy;
    }

    fn kernel(&self) -> MutexGuard<'_, Box<dyn TrafficControl>> {
        self.kernel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the counts of all filters, unless that was done a moment ago: reading takes at most a
    /// tenth of the time.
    fn refresh(&self) {
        let mut kernel = self.kernel();
        let devices = {
            let state = self.state();
            let now = Instant::now();
            if state.flows.is_empty() || state.next_sweep.is_some_and(|next| now < next) {
                return;
            }
            state.devices()
        };
        let begin = Instant::now();
        let (mut seen, mut policers) = (Vec::new(), Vec::new());
        for ifindex in devices {
            let mut note = |shown: Shown| {
                if is_own(&shown.place) {
                    policers.extend(shown.policers);
                    seen.push((shown.place, shown.counts, shown.in_hw));
                }
            };
            if let Err(error) = kernel.filters(ifindex, Hook::Ingress, &mut note) {
                tracing::warn!(target: "dpif", "the filters of device {ifindex} cannot be read ({error})");
                return;
            }
        }
        let end = Instant::now();
        let mut state = self.state();
        state.note_sweep(&seen, self.clock.now());
        state.note_policers(&policers);
        state.next_sweep = end.checked_add(10 * end.duration_since(begin));
    }
}

impl OffloadProvider for CardProvider {
    fn tiers(&self) -> TierSet {
        CARD
    }

    fn attach(&self, port: &OffloadPort<'_>, _socket: &mut dyn PortSocket) -> Attached {
        let state = self.join(port);
        Attached {
            tiers: vec![state],
            takes_receive: false,
            is_moving: false,
            affects_others: false,
            needs_taker: self.is_in_kernel(port.number),
        }
    }

    fn release(&self, port: &OffloadPort<'_>, _socket: &mut dyn PortSocket) {
        self.leave(port.number);
    }

    fn remove_port(&self, port: PortNo) {
        self.leave(port);
        self.leave_tunnel(port);
    }

    fn add_tunnel(&self, port: PortNo, config: &tunnel::PortConfig) -> TierSet {
        self.join_tunnel(port, config)
    }

    fn follow_tunnel_device(&self, port: PortNo, device: Option<u32>) {
        self.set_tunnel_device(port, device);
    }

    fn update_port(&self, _port: PortNo, _mtu: u32, _is_up: bool) {
        // `examine` sees another MTU, and whether a device is up makes no difference to filters.
    }

    fn examine(&self, port: &OffloadPort<'_>) -> bool {
        self.has_changed(port)
    }

    fn depends_on(&self, port: PortNo, ends: Ends<'_>) -> bool {
        // No event reports that a feature of a driver was switched.
        matches!(ends, Ends::Poll | Ends::Lost) && self.is_examined(port)
    }

    fn about_port(&self, port: PortNo) -> Vec<String> {
        self.state().ports.get(&port).and_then(|port| port.about()).into_iter().collect()
    }

    fn installs_later(&self) -> bool {
        true
    }

    fn suits(&self, flow: &Megaflow, allowed: TierSet) -> Verdict {
        match self.state().encode(flow) {
            Ok(_) => Verdict::granted(allowed),
            Err(refused) => Verdict::refused(allowed, refused.refusal),
        }
    }

    fn install(&self, flow: &Megaflow, allowed: TierSet) -> Verdict {
        match self.add(flow) {
            Ok(()) => Verdict::granted(allowed),
            Err(refusal) => Verdict::refused(allowed, refusal),
        }
    }

    fn replace(&self, flow: &Megaflow, allowed: TierSet) -> Verdict {
        match self.change(flow) {
            Ok(()) => Verdict::granted(allowed),
            Err(refusal) => Verdict::refused(allowed, refusal),
        }
    }

    fn remove_many(&self, ufids: &[Ufid], each: &mut dyn FnMut(Ufid, FlowStats)) {
        // One after the other, so that callbacks may call this provider.
        for ufid in ufids {
            if let Some(stats) = self.remove(*ufid) {
                each(*ufid, stats);
            }
        }
    }

    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        self.refresh();
        let all: Vec<(Ufid, FlowStats)> = {
            let state = self.state();
            state.flows.iter().map(|(ufid, held)| (*ufid, held.stats())).collect()
        };
        all.into_iter().for_each(|(ufid, stats)| each(ufid, stats));
    }

    fn take_lost(&self) -> Vec<Ufid> {
        std::mem::take(&mut self.state().lost)
    }

    fn flow(&self, ufid: Ufid) -> Option<HeldFlow> {
        let state = self.state();
        let held = state.flows.get(&ufid)?;
        Some(HeldFlow { matching: held.flow.matching, tiers: CARD, stats: held.stats() })
    }

    fn stats(&self, ufid: Ufid) -> Option<FlowStats> {
        self.read(ufid)
    }

    fn actions(&self, ufid: Ufid) -> Option<Actions> {
        self.state().flows.get(&ufid).map(|held| held.flow.actions.clone())
    }

    fn is_in_hardware(&self, ufid: Ufid) -> bool {
        self.state().flows.get(&ufid).is_some_and(|held| held.is_in_card)
    }

    fn does(&self, ufid: Ufid, actions: &Actions) -> bool {
        let state = self.state();
        let held = state.flows.get(&ufid);
        held.is_some_and(|held| !held.is_lost && held.flow.actions == *actions)
    }

    fn len(&self) -> usize {
        self.state().flows.len()
    }

    fn explanations(&self) -> Vec<(String, u64)> {
        let state = self.state();
        state.explanations.iter().map(|(words, count)| (words.clone(), *count)).collect()
    }

    fn set_meter(&self, id: u32, config: &MeterConfig) -> Result<(), Refusal> {
        self.limit(id, config)
    }

    fn remove_meter(&self, id: u32) -> Option<MeterStats> {
        let last = self.meter_stats(id);
        self.end_limit(id);
        last
    }

    fn meter_stats(&self, id: u32) -> Option<MeterStats> {
        self.refresh();
        self.state().meters.get(&id).map(Metered::stats)
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.state().drops.get(&reason).copied().unwrap_or_default()
    }

    fn lookups(&self) -> LookupStats {
        let state = self.state();
        LookupStats { hits: state.hits, flows: state.flows.len(), ..LookupStats::default() }
    }

    fn maintain(&self) {
        self.remove_stuck();
    }

    fn close(&self, cleanup: bool) {
        if cleanup {
            let ports: Vec<PortNo> = self.state().ports.keys().copied().collect();
            ports.into_iter().for_each(|port| self.leave(port));
            let tunnels: Vec<PortNo> = self.state().tunnels.keys().copied().collect();
            tunnels.into_iter().for_each(|port| self.leave_tunnel(port));
        }
    }
}

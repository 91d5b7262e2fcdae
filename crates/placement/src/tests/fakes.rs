// SPDX-License-Identifier: Apache-2.0
//! Fakes: devices, a base, BPF's backend and its prober, and a bench that joins them.

use crate::table::in_port;
use crate::{Base, PlacedDatapath};
use clock::{Clock, Millis};
use datapath::TierSet;
use datapath::offload::{OffloadProvider, ProviderSlot, Reason, UpcallAccount};
use datapath::{
    Action, Actions, AdoptedPort, BOND_BUCKETS, BondTable, Bonds, BucketBytes, Counters, Datapath,
    DropReason, FlowDump, FlowStats, Flows, LookupStats, Megaflow, MeterConfig, MeterStats, Meters,
    MissOrigin, Packets, PortCounts, PortError, PortInfo, PortKind, PortNo, PortSpec, Ports,
    Refusal, SequenceNumbers, Tier, Ufid, UpcallFactory,
};
use datapath_bpf::fit::{PeerLink, XdpFacts};
use datapath_bpf::{Attachment, Backend, BpfProvider, Held, HookSet, Prober, RxOwner};
use datapath_model::Model;
use flow::{Field, Key, Match};
use netdev::{
    Captures, Device, DeviceStats, Endpoint, Kind, Policing, QosRequest, Reception, Status,
};
use packet::{Mac, Packet};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

/// A device; the interface index is the number in its name.
struct FakeDevice {
    name: String,
    kind: Kind,
    status: Status,
}

impl Device for FakeDevice {
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> Kind {
        self.kind
    }
    fn ifindex(&self) -> Option<u32> {
        self.status.ifindex
    }
    fn status(&self) -> io::Result<Status> {
        Ok(self.status.clone())
    }
    fn stats(&self) -> io::Result<DeviceStats> {
        Ok(DeviceStats { tx_packets: Some(0), ..DeviceStats::default() })
    }
    fn set_mtu(&self, _mtu: u32) -> io::Result<()> {
        Ok(())
    }
    fn set_mac(&self, _mac: [u8; 6]) -> io::Result<()> {
        Ok(())
    }
    fn set_admin_up(&self, _up: bool) -> io::Result<()> {
        Ok(())
    }
    fn set_policing(&self, _policing: Policing) -> io::Result<()> {
        Ok(())
    }
    fn set_qos(&self, _qos: Option<&QosRequest>) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }
    fn set_receiving(&self, _reception: Reception) -> io::Result<()> {
        Ok(())
    }
}

fn number_in(name: &str) -> Option<u32> {
    name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}

/// The model with devices.
pub(super) struct FakeBase {
    pub(super) model: Arc<Model>,
    pub(super) receiving: Mutex<Vec<(u32, Reception)>>,
    /// The list of [`FakeFast::steps`].
    steps: Arc<Mutex<Vec<Step>>>,
    pub(super) opens_muted: AtomicBool,
    pub(super) cannot_stop_receiving: AtomicBool,
    /// Number of calls of `maintain`.
    pub(super) maintained: AtomicUsize,
    /// Number of calls of `set_receiving` that failed by `cannot_stop_receiving`.
    pub(super) refused_changes: AtomicUsize,
    /// Devices are set down.
    pub(super) is_down: AtomicBool,
    /// Devices are gone.
    pub(super) is_gone: AtomicBool,
    /// The MTU of all devices.
    pub(super) mtu: AtomicUsize,
    /// Devices were made again, with indexes that are greater by this.
    pub(super) shift: AtomicUsize,
    /// Numbers of ports that were removed.
    given_back: Mutex<Vec<PortNo>>,
    /// Runs when the next sweep has read all counts.
    pub(super) after_sweep: Mutex<Option<Meanwhile>>,
    /// Tunnel ports whose sequence numbers another tier gives, in the order of the calls, with the next one.
    pub(super) shared_sequences: Mutex<Vec<(PortNo, u32)>>,
}

impl Base for FakeBase {
    fn set_receiving(&self, port: PortNo, reception: Reception) -> io::Result<()> {
        if self.cannot_stop_receiving.load(Ordering::Relaxed) {
            self.refused_changes.fetch_add(1, Ordering::Relaxed);
            return Err(io::ErrorKind::Unsupported.into());
        }
        lock(&self.receiving).push((port.0, reception));
        lock(&self.steps).push(Step::Receives(reception));
        Ok(())
    }
    fn set_filter(&self, _port: PortNo, _filter: BorrowedFd<'_>) -> io::Result<()> {
        lock(&self.steps).push(Step::Filter);
        Ok(())
    }
    fn free_number(&self, is_kept: &dyn Fn(PortNo) -> bool) -> Option<PortNo> {
        let taken: Vec<PortNo> = self.model.ports().into_iter().map(|p| p.number).collect();
        let late = lock(&self.given_back);
        let is_free = |n: &PortNo| !taken.contains(n) && !late.contains(n) && !is_kept(*n);
        (1..2048).map(PortNo).find(is_free)
    }
    fn opens_muted(&self) -> bool {
        self.opens_muted.load(Ordering::Relaxed)
    }
    fn ifindex(&self, name: &str) -> Option<u32> {
        number_in(name)
    }
    fn cleanup(&self) {
        self.model.shutdown();
    }
}

impl Ports for FakeBase {
    fn add_port(&self, spec: &PortSpec) -> Result<PortNo, PortError> {
        self.model.add_port(spec)
    }
    fn remove_port(&self, port: PortNo) -> Result<(), PortError> {
        lock(&self.given_back).push(port);
        self.model.remove_port(port)
    }
    fn ports(&self) -> Vec<PortInfo> {
        self.model.ports()
    }
    fn device(&self, port: PortNo) -> Option<Arc<dyn Device>> {
        let info = self.model.ports().into_iter().find(|p| p.number == port)?;
        let status = Status {
            ifindex: number_in(&info.name)
                .filter(|_| !self.is_gone.load(Ordering::Relaxed))
                .map(|index| index + self.shift.load(Ordering::Relaxed) as u32),
            mtu: self.mtu.load(Ordering::Relaxed) as u32,
            admin_up: !self.is_down.load(Ordering::Relaxed),
            current_name: info.name.clone(),
            ..Status::default()
        };
        let kind = info.kind.device()?;
        Some(Arc::new(FakeDevice { name: info.name, kind, status }))
    }
    fn share_sequence(&self, port: PortNo, numbers: Arc<dyn SequenceNumbers>) {
        lock(&self.shared_sequences).push((port, numbers.take(0)));
    }
    fn set_policing(&self, _port: PortNo, _policing: Policing) -> Result<(), PortError> {
        Ok(())
    }
}

impl Flows for FakeBase {
    fn install(&self, flow: &Megaflow) -> Result<(), Refusal> {
        self.model.install(flow)
    }
    fn modify(&self, ufid: Ufid, actions: &Actions) -> bool {
        self.model.modify(ufid, actions)
    }
    fn remove(&self, ufid: Ufid) -> Option<FlowStats> {
        Flows::remove(&*self.model, ufid)
    }
    fn flow(&self, ufid: Ufid) -> Option<FlowDump> {
        self.model.flow(ufid)
    }
    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        let mut flows = Vec::new();
        self.model.sweep(&mut |ufid, stats| flows.push((ufid, stats)));
        meanwhile(&self.after_sweep);
        flows.into_iter().for_each(|(ufid, stats)| each(ufid, stats));
    }
    fn sweep_moved(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        let mut flows = Vec::new();
        self.model.sweep_moved(&mut |ufid, stats| flows.push((ufid, stats)));
        meanwhile(&self.after_sweep);
        flows.into_iter().for_each(|(ufid, stats)| each(ufid, stats));
    }
    fn dump(&self) -> Vec<FlowDump> {
        self.model.dump()
    }
    fn flush(&self) {
        self.model.flush();
    }
}

impl Packets for FakeBase {
    fn set_upcall_factory(&self, factory: Arc<dyn UpcallFactory>) {
        self.model.set_upcall_factory(factory);
    }
    fn execute(&self, packet: Packet, key: &Key, actions: &[Action]) {
        self.model.execute(packet, key, actions);
    }
    fn inject(&self, packet: Packet, port: PortNo) {
        self.model.inject(packet, port);
    }
}

impl Counters for FakeBase {
    fn lookups(&self) -> LookupStats {
        self.model.lookups()
    }
    fn drops(&self, reason: DropReason) -> u64 {
        self.model.drops(reason)
    }
}

impl Datapath for FakeBase {
    fn name(&self) -> &str {
        self.model.name()
    }
    fn meters(&self) -> Option<&dyn Meters> {
        self.model.meters()
    }
    fn bonds(&self) -> Option<&dyn Bonds> {
        self.model.bonds()
    }
    fn connections(&self) -> Option<&dyn datapath::Connections> {
        None
    }

    fn supports(&self, action: &Action) -> bool {
        self.model.supports(action)
    }
    fn maintain(&self) {
        self.maintained.fetch_add(1, Ordering::Relaxed);
    }
    fn shutdown(&self) {
        self.model.shutdown();
    }
}

/// Numbers that stay at one.
struct Constant(u32);

impl SequenceNumbers for Constant {
    fn take(&self, _count: u32) -> u32 {
        self.0
    }
}

#[derive(Clone)]
pub(super) struct FakeFlow {
    pub(super) flow: Megaflow,
    pub(super) tiers: TierSet,
    pub(super) stats: FlowStats,
    /// The statistics that the last sweep of moved flows reported.
    pub(super) reported: Option<FlowStats>,
}

/// A step that changes which side takes a port's packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// The base's socket receives so from now on.
    Receives(Reception),
    /// The socket has the filter from its next change to [`Reception::On`] on.
    Filter,
    /// The skb hook is attached, or not.
    Hook(bool),
    Owner(RxOwner),
    /// Every packet that was between socket and hook has passed the hook.
    Wait,
}

/// The tiers that a port is attached to.
pub(super) fn tiers_at(attachment: &Attachment) -> TierSet {
    match (attachment.hooks.xdp, attachment.hooks.tc) {
        (Some(_), true) => TierSet::XDP_AND_TCX,
        (Some(_), false) => TierSet::of(Tier::Xdp),
        (None, true) => TierSet::TCX,
        (None, false) => TierSet::NONE,
    }
}

fn tiers_of(hooks: HookSet) -> TierSet {
    let bits = [(HookSet::XDP, Tier::Xdp), (HookSet::TC, Tier::Tcx)];
    let tiers = bits.into_iter().filter(|(hook, _)| hooks.contains(*hook));
    tiers.fold(TierSet::NONE, |tiers, (_, tier)| tiers.with(tier))
}

fn hooks_of(tiers: TierSet) -> HookSet {
    let bits = [(HookSet::XDP, Tier::Xdp), (HookSet::TC, Tier::Tcx)];
    bits.into_iter().filter(|(_, tier)| tiers.has(*tier)).map(|(hook, _)| hook).collect()
}

/// BPF's programs and tables. It records the calls.
#[derive(Default)]
pub(super) struct FakeFast {
    pub(super) flows: Mutex<BTreeMap<Ufid, FakeFlow>>,
    pub(super) ports: Mutex<BTreeMap<PortNo, Attachment>>,
    pub(super) targets: Mutex<BTreeMap<PortNo, bool>>,
    pub(super) adopted: Mutex<Vec<AdoptedPort>>,
    pub(super) adopted_tunnels: Mutex<Vec<(PortNo, tunnel::PortConfig)>>,
    /// Users' programs. "/broken" is refused; every other program runs one action and not more.
    pub(super) objects: Mutex<BTreeMap<PortNo, PathBuf>>,
    pub(super) log: Mutex<Vec<String>>,
    pub(super) limit: AtomicUsize,
    pub(super) meters: Mutex<BTreeMap<u32, MeterConfig>>,
    pub(super) max_meters: AtomicUsize,
    pub(super) bonds: Mutex<BTreeMap<u32, BondTable>>,
    /// Ports with packets on their way up.
    pub(super) on_their_way: Mutex<Vec<PortNo>>,
    /// Tiers to which no port can be attached, with the error.
    pub(super) attach_errors: Mutex<Vec<(Tier, Reason)>>,
    /// The refusal of every flow.
    pub(super) refuse: Mutex<Option<Refusal>>,
    pub(super) sets_are_full: Mutex<bool>,
    /// The programs that the kernel refused, in words for people.
    pub(super) refused_programs: Mutex<Vec<String>>,
    pub(super) closed: Mutex<Option<bool>>,
    /// The filter for sockets: any file will do.
    pub(super) filter: Option<File>,
    /// Ports whose counts were reset.
    pub(super) forgotten: Mutex<Vec<PortNo>>,
    pub(super) owners: Mutex<BTreeMap<(PortNo, u32), RxOwner>>,
    pub(super) steps: Arc<Mutex<Vec<Step>>>,
    /// Runs before the next flows are removed.
    pub(super) before_removal: Mutex<Option<Meanwhile>>,
    /// Runs when the next sweep has read all counts.
    pub(super) after_sweep: Mutex<Option<Meanwhile>>,
}

/// An act of another thread at a certain point, once.
pub(super) type Meanwhile = Box<dyn FnOnce() + Send>;

/// Runs the act if there is one, without the lock.
fn meanwhile(act: &Mutex<Option<Meanwhile>>) {
    let act = lock(act).take();
    if let Some(act) = act {
        act();
    }
}

impl FakeFast {
    fn step(&self, step: Step) {
        lock(&self.steps).push(step);
    }

    pub(super) fn log(&self, text: impl Into<String>) {
        lock(&self.log).push(text.into());
    }

    pub(super) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.log))
    }

    /// Counts packets that met a flow here.
    pub(super) fn count(&self, ufid: u128, packets: u64) {
        let mut flows = lock(&self.flows);
        let stats = &mut flows.get_mut(&Ufid(ufid)).unwrap().stats;
        stats.packets += packets;
        stats.bytes += 100 * packets;
        stats.used = Millis(7);
        stats.tcp_flags |= 2;
    }

    pub(super) fn has(&self, ufid: u128) -> bool {
        lock(&self.flows).contains_key(&Ufid(ufid))
    }

    pub(super) fn tiers_of(&self, port: u32) -> Option<TierSet> {
        lock(&self.ports).get(&PortNo(port)).map(tiers_at)
    }

    fn answer(&self, flow: &Megaflow, allowed: HookSet) -> Result<HookSet, Refusal> {
        self.tiers_for(flow, tiers_of(allowed)).map(hooks_of)
    }

    fn tiers_for(&self, flow: &Megaflow, allowed: TierSet) -> Result<TierSet, Refusal> {
        if let Some(refusal) = *lock(&self.refuse) {
            return Err(refusal);
        }
        // This XDP cannot push tags.
        let pushes = flow.actions.iter().any(|a| matches!(a, Action::PushVlan { .. }));
        Ok(if pushes { allowed.without(Tier::Xdp) } else { allowed })
    }
}

impl Backend for FakeFast {
    fn adopted_ports(&self) -> Vec<AdoptedPort> {
        lock(&self.adopted).clone()
    }
    fn adopted_tunnels(&self) -> Vec<(PortNo, tunnel::PortConfig)> {
        lock(&self.adopted_tunnels).clone()
    }
    /// The programs pop those that they had before, but not GTP-U.
    fn add_tunnel(&self, port: PortNo, config: &tunnel::PortConfig) -> bool {
        let is_popped = config.kind != tunnel::Kind::Gtpu;
        is_popped && lock(&self.adopted_tunnels).contains(&(port, *config))
    }
    fn sequence(&self, port: PortNo) -> Option<Arc<dyn SequenceNumbers>> {
        let is_known = lock(&self.adopted_tunnels).iter().any(|(known, _)| *known == port);
        is_known.then(|| Arc::new(Constant(port.0 * 10)) as _)
    }
    fn attach(&self, port: PortNo, attachment: &Attachment) -> Result<(), Reason> {
        for (tier, reason) in &*lock(&self.attach_errors) {
            if tiers_at(attachment).has(*tier) {
                return Err(reason.clone());
            }
        }
        lock(&self.ports).insert(port, *attachment);
        let key = (port, attachment.ifindex);
        let is_hooked = attachment.hooks.tc;
        if is_hooked && !lock(&self.owners).contains_key(&key) {
            lock(&self.owners).insert(key, RxOwner::ProgramsAlone);
            self.step(Step::Owner(RxOwner::ProgramsAlone));
        }
        self.step(Step::Hook(is_hooked));
        if !is_hooked {
            lock(&self.owners).remove(&key);
        }
        Ok(())
    }
    fn use_object(&self, port: PortNo, object: Option<&Path>) -> Result<(), Reason> {
        let at_xdp = lock(&self.ports).get(&port).is_some_and(|a| a.hooks.xdp.is_some());
        assert!(!at_xdp, "attached while it is changed");
        lock(&self.objects).remove(&port);
        let Some(path) = object else { return Ok(()) };
        if path == Path::new("/broken") {
            return Err(Reason::new(Refusal::UserObject, "R1 offset is outside of the packet"));
        }
        lock(&self.objects).insert(port, path.to_owned());
        Ok(())
    }
    fn refused_programs(&self) -> Vec<String> {
        lock(&self.refused_programs).clone()
    }
    fn suits_xdp(&self, flow: &Megaflow) -> Result<(), Refusal> {
        if *lock(&self.sets_are_full) && flow.actions.len() > 1 {
            return Err(Refusal::PortSetsFull);
        }
        let has_object = lock(&self.objects).contains_key(&in_port(flow));
        let suits = !has_object || flow.actions.len() < 2;
        if suits { Ok(()) } else { Err(Refusal::UnsupportedAction) }
    }
    fn filter(&self) -> Option<BorrowedFd<'_>> {
        self.filter.as_ref().map(AsFd::as_fd)
    }
    fn set_rx_owner(&self, port: PortNo, ifindex: u32, owner: RxOwner) -> Result<(), Reason> {
        lock(&self.owners).insert((port, ifindex), owner);
        self.step(Step::Owner(owner));
        Ok(())
    }
    fn owns_rx(&self, port: PortNo, ifindex: u32) -> bool {
        lock(&self.owners).get(&(port, ifindex)).is_some_and(|owner| *owner != RxOwner::Socket)
    }
    fn wait_for_packets(&self) {
        self.step(Step::Wait);
    }
    fn detach(&self, port: PortNo) {
        lock(&self.ports).remove(&port);
        lock(&self.targets).remove(&port);
        lock(&self.owners).retain(|(p, _), _| *p != port);
        self.step(Step::Hook(false));
    }
    fn set_port(&self, port: PortNo, mtu: u32, up: bool) {
        self.log(format!("set_port {port} {mtu} {up}"));
    }
    fn set_peer(&self, port: PortNo, mac: Option<Mac>) {
        let mac = mac.map_or_else(|| "none".to_owned(), |mac| mac.to_string());
        self.log(format!("set_peer {port} {mac}"));
    }
    fn set_redirect_target(&self, port: PortNo, is_target: bool) -> Result<(), Reason> {
        let xdp_flow_to_it = lock(&self.flows)
            .values()
            .any(|f| f.tiers.has(Tier::Xdp) && f.flow.actions.contains(&Action::Output(port)));
        assert!(is_target || !xdp_flow_to_it, "redirects to {port} would vanish");
        lock(&self.targets).insert(port, is_target);
        Ok(())
    }
    fn set_miss_device(&self, _ifindex: u32) {}
    fn unwrap(&self, _packet: &mut Packet) -> Option<MissOrigin> {
        None
    }
    fn note_taken(&self, _port: PortNo, _count: u64) {}
    fn hold_back(&self, _port: PortNo, _account: UpcallAccount, _until: u64) {}
    fn resync_taken(&self, lost: u64) {
        self.log(format!("resync_taken {lost}"));
    }
    fn is_on_its_way(&self, port: PortNo) -> bool {
        lock(&self.on_their_way).contains(&port)
    }
    fn would_take(&self, flow: &Megaflow, allowed: HookSet) -> Result<HookSet, Refusal> {
        self.answer(flow, allowed)
    }
    fn install(&self, flow: &Megaflow, allowed: HookSet) -> Result<HookSet, Refusal> {
        let hooks = self.answer(flow, allowed)?;
        let mut flows = lock(&self.flows);
        if flows.contains_key(&flow.ufid) {
            return Err(Refusal::Exists);
        }
        if flows.len() >= self.limit.load(Ordering::Relaxed) {
            return Err(Refusal::TableFull);
        }
        let stats = FlowStats::default();
        flows.insert(
            flow.ufid,
            FakeFlow { flow: flow.clone(), tiers: tiers_of(hooks), stats, reported: None },
        );
        self.log(format!("install {}", flow.ufid.0));
        Ok(hooks)
    }
    fn replace(&self, flow: &Megaflow, allowed: HookSet) -> Result<HookSet, Refusal> {
        let hooks = self.answer(flow, allowed)?;
        let mut flows = lock(&self.flows);
        let held = flows.get_mut(&flow.ufid).ok_or(Refusal::Exists)?;
        held.flow = flow.clone();
        held.tiers = tiers_of(hooks);
        self.log(format!("replace {}", flow.ufid.0));
        Ok(hooks)
    }
    fn remove_many(&self, ufids: &[Ufid], each: &mut dyn FnMut(Ufid, FlowStats)) {
        meanwhile(&self.before_removal);
        self.log(format!("remove {}", ufids.len()));
        for ufid in ufids {
            let removed = lock(&self.flows).remove(ufid);
            if let Some(held) = removed {
                each(*ufid, held.stats);
            }
        }
    }
    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        let flows = lock(&self.flows).clone();
        meanwhile(&self.after_sweep);
        for (ufid, held) in flows {
            each(ufid, held.stats);
        }
    }
    fn sweep_moved(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        let mut moved = Vec::new();
        for (ufid, held) in lock(&self.flows).iter_mut() {
            if held.reported.replace(held.stats) != Some(held.stats) {
                moved.push((*ufid, held.stats));
            }
        }
        meanwhile(&self.after_sweep);
        moved.into_iter().for_each(|(ufid, stats)| each(ufid, stats));
    }
    fn flow(&self, ufid: Ufid) -> Option<Held> {
        let flows = lock(&self.flows);
        let held = flows.get(&ufid)?;
        Some(Held { matching: held.flow.matching, hooks: hooks_of(held.tiers), stats: held.stats })
    }
    fn actions(&self, ufid: Ufid) -> Option<Actions> {
        lock(&self.flows).get(&ufid).map(|held| held.flow.actions.clone())
    }
    fn flow_count(&self) -> usize {
        lock(&self.flows).len()
    }
    fn encodes_alike(&self, ufid: Ufid, actions: &Actions) -> bool {
        lock(&self.flows).get(&ufid).is_some_and(|held| held.flow.actions == *actions)
    }
    fn drops(&self, reason: DropReason) -> u64 {
        if reason == DropReason::Malformed { 5 } else { 0 }
    }
    fn lookups(&self) -> LookupStats {
        LookupStats { hits: 1000, lost: 2, masks: 3, ..LookupStats::default() }
    }
    fn port_counts(&self, _port: PortNo) -> PortCounts {
        PortCounts { tx_packets: 4, tx_bytes: 400, ..PortCounts::default() }
    }
    fn forget_counts(&self, port: PortNo) {
        lock(&self.forgotten).push(port);
    }
    fn sent_up(&self) -> u64 {
        11
    }
    fn set_bond(&self, id: u32, table: &BondTable) -> Result<(), Refusal> {
        if id >= 100 {
            return Err(Refusal::Bond);
        }
        lock(&self.bonds).insert(id, table.clone());
        Ok(())
    }
    fn remove_bond(&self, id: u32) {
        lock(&self.bonds).remove(&id);
    }
    fn bond_bytes(&self, id: u32) -> Option<BucketBytes> {
        lock(&self.bonds).get(&id).map(|_| Box::new([3; BOND_BUCKETS]))
    }
    fn adopted_bonds(&self) -> Vec<(u32, BondTable)> {
        lock(&self.bonds).iter().map(|(id, table)| (*id, table.clone())).collect()
    }
    fn set_meter(&self, id: u32, config: &MeterConfig) -> Result<(), Refusal> {
        if id as usize >= self.max_meters.load(Ordering::Relaxed) {
            return Err(Refusal::TableFull);
        }
        lock(&self.meters).insert(id, config.clone());
        Ok(())
    }
    fn remove_meter(&self, id: u32) -> Option<MeterStats> {
        lock(&self.meters).remove(&id)?;
        Some(MeterStats { packets: 3, bytes: 300, bands: vec![(1, 100)], since: Millis(1) })
    }
    fn meter_stats(&self, id: u32) -> Option<MeterStats> {
        lock(&self.meters).get(&id)?;
        Some(MeterStats { packets: 3, bytes: 300, bands: vec![(1, 100)], since: Millis(1) })
    }
    fn maintain(&self) {}
    fn close(&self, cleanup: bool) {
        *lock(&self.closed) = Some(cleanup);
    }
}

/// A prober for which "eth…" are cards of a driver that redirects, "odd…" cards of an unknown
/// driver, and all other devices veths.
#[derive(Clone, Default)]
pub(super) struct FakeProber {
    /// The facts about every veth.
    pub(super) veth: Arc<Mutex<XdpFacts>>,
    /// Names of the devices that were examined.
    pub(super) asked: Arc<Mutex<Vec<String>>>,
    /// Interfaces at which other processes capture, and how often these were read.
    pub(super) captures: Arc<Mutex<(Vec<u32>, usize)>>,
    /// The other ends whose links were read.
    pub(super) ends: Arc<Mutex<Vec<Endpoint>>>,
}

impl Prober for FakeProber {
    fn ifindex(&self, name: &str) -> Option<u32> {
        number_in(name)
    }
    fn xdp_facts(&self, name: &str) -> XdpFacts {
        lock(&self.asked).push(name.to_owned());
        let card = |driver: &str| XdpFacts {
            driver: driver.to_owned(),
            takes_tags_off: Some(false),
            ..XdpFacts::default()
        };
        if name.starts_with("eth") {
            card("ice")
        } else if name.starts_with("odd") {
            card("odd")
        } else {
            XdpFacts { link_kind: Some("veth".to_owned()), ..lock(&self.veth).clone() }
        }
    }
    fn captures(&self, _interfaces: &BTreeSet<u32>) -> Captures {
        let mut captures = lock(&self.captures);
        captures.1 += 1;
        Captures::at(captures.0.iter().copied())
    }
    fn peer_link(&self, end: Endpoint) -> Option<PeerLink> {
        lock(&self.ends).push(end);
        lock(&self.veth).peer_link
    }
}

/// The tiers of BPF.
pub(super) const BPF: TierSet = TierSet::XDP_AND_TCX;

/// Placement over all the fakes.
pub(super) struct Bench {
    pub(super) base: Arc<FakeBase>,
    pub(super) fast: Arc<FakeFast>,
    pub(super) prober: FakeProber,
    pub(super) placed: Arc<PlacedDatapath>,
}

impl Bench {
    pub(super) fn new() -> Bench {
        Bench::with(FakeFast::default())
    }

    pub(super) fn with(fast: FakeFast) -> Bench {
        let b = Bench::late(fast);
        b.begin();
        b
    }

    /// Returns a bench where BPF has not begun yet.
    pub(super) fn late(fast: FakeFast) -> Bench {
        Bench::over(Vec::new(), fast)
    }

    /// Returns a bench where BPF has not begun yet, with the places of `list` and that of BPF in
    /// the order of speed.
    pub(super) fn over(mut list: Vec<ProviderSlot>, fast: FakeFast) -> Bench {
        fast.limit.store(1000, Ordering::Relaxed);
        fast.max_meters.store(8, Ordering::Relaxed);
        let fast = Arc::new(fast);
        let clock = Clock::new();
        clock.stop();
        let base = Arc::new(FakeBase {
            model: Model::new("netdev@ovs-netdev", clock, 100_000, 1),
            receiving: Mutex::default(),
            steps: fast.steps.clone(),
            opens_muted: AtomicBool::new(false),
            cannot_stop_receiving: AtomicBool::new(false),
            maintained: AtomicUsize::new(0),
            refused_changes: AtomicUsize::new(0),
            is_down: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            mtu: AtomicUsize::new(1500),
            shift: AtomicUsize::new(0),
            given_back: Mutex::default(),
            after_sweep: Mutex::default(),
            shared_sequences: Mutex::default(),
        });
        list.push(datapath_bpf::provider_slot());
        list.sort_by_key(|spec| spec.tiers.fastest());
        let placed = PlacedDatapath::new(base.clone(), list);
        Bench { base, fast, prober: FakeProber::default(), placed }
    }

    /// Makes BPF begin.
    pub(super) fn begin(&self) {
        let provider = BpfProvider::over(self.fast.clone(), Box::new(self.prober.clone()));
        self.begin_with(BPF, Arc::new(provider));
    }

    /// Makes a provider begin.
    pub(super) fn begin_with(&self, tiers: TierSet, provider: Arc<dyn OffloadProvider>) {
        self.placed.begin(tiers, Ok(provider));
        self.placed.open(tiers); // as `serve` does after it has made the device
    }

    /// Takes flows out of BPF.
    pub(super) fn withdraw(&self, flows: &[(Ufid, Refusal)]) {
        let slot = self.placed.slots.of(BPF).unwrap();
        self.placed.withdraw(slot, flows);
    }

    pub(super) fn set_enabled(&self, is_enabled: bool) {
        self.placed.set_blocked(BPF, (!is_enabled).then(datapath_bpf::disabled));
    }

    pub(super) fn add(&self, name: &str, kind: &str, tier: Option<&str>) -> u32 {
        self.placed.add_port(&spec(name, kind, tier)).unwrap().0
    }

    /// Ports 1 to `count`: veths.
    pub(super) fn veths(&self, count: u32) {
        for n in 1..=count {
            assert_eq!(self.add(&format!("veth{n}"), "system", None), n);
        }
    }

    pub(super) fn place(&self, ufid: u128) -> (Tier, Option<Refusal>) {
        let dump = self.placed.flow(Ufid(ufid)).unwrap();
        (dump.tier, dump.refusals.nearest())
    }

    pub(super) fn packets(&self, ufid: u128) -> u64 {
        self.placed.flow(Ufid(ufid)).unwrap().stats.packets
    }

    /// Returns the statistics of a flow that a sweep reports.
    pub(super) fn swept(&self, ufid: u128) -> Option<FlowStats> {
        self.swept_by(|each| self.placed.sweep(each), ufid)
    }

    /// Returns the statistics of a flow that a sweep of moved flows reports.
    pub(super) fn swept_as_moved(&self, ufid: u128) -> Option<FlowStats> {
        self.swept_by(|each| self.placed.sweep_moved(each), ufid)
    }

    fn swept_by(
        &self,
        sweep: impl FnOnce(&mut dyn FnMut(Ufid, FlowStats)),
        ufid: u128,
    ) -> Option<FlowStats> {
        let mut found = None;
        sweep(&mut |u, stats| {
            if u == Ufid(ufid) {
                assert_eq!(found, None, "twice in a sweep");
                found = Some(stats);
            }
        });
        found
    }

    /// Checks that sweeps and final counts report `packets` for each flow while another thread
    /// moves the flows. `install` adds a flow of port 1 to the places that count for it. `turn`,
    /// with the number of the turn, changes the places.
    pub(super) fn holds_statistics(
        self,
        packets: u64,
        install: impl Fn(&Bench, u128),
        turn: impl Fn(&Bench, u32) + Send + 'static,
    ) {
        const FLOWS: u128 = 40;
        const TURNS: u32 = 30;
        let bench = Arc::new(self);
        (1..=FLOWS).for_each(|ufid| install(&bench, ufid));
        let mover = {
            let bench = bench.clone();
            std::thread::spawn(move || {
                for n in 0..TURNS {
                    turn(&bench, n);
                    bench.placed.maintain();
                    bench.placed.maintain();
                }
            })
        };
        let mut moved = BTreeMap::new();
        let mut sweep_moved = || {
            bench.placed.sweep_moved(&mut |ufid, stats| {
                moved.insert(ufid, stats.packets);
                assert_eq!(stats.packets, packets);
            });
        };
        while !mover.is_finished() {
            bench.placed.sweep(&mut |_, stats| assert_eq!(stats.packets, packets));
            sweep_moved();
        }
        mover.join().unwrap();
        sweep_moved();
        assert_eq!(moved.len(), FLOWS as usize);
        for ufid in 1..=FLOWS {
            assert_eq!(Flows::remove(&*bench.placed, Ufid(ufid)).unwrap().packets, packets);
        }
    }
}

pub(super) fn spec(name: &str, kind: &str, tier: Option<&str>) -> PortSpec {
    let kind = PortKind::from_type(kind).unwrap();
    let mut spec = PortSpec { name: name.into(), kind, ..PortSpec::default() };
    if let Some(tier) = tier {
        spec.other_config.insert("tier".into(), tier.into());
    }
    spec
}

/// Returns a flow of port `in_port` that matches the Ethernet address `ufid`.
pub(super) fn flow(ufid: u128, in_port: u32, actions: &[Action]) -> Megaflow {
    let mut matching = Match::ANY;
    matching.set(Field::InPortOxm, u128::from(in_port));
    matching.set(Field::EthDst, ufid);
    Megaflow { ufid: Ufid(ufid), matching, actions: actions.into() }
}

pub(super) fn output(port: u32) -> Action {
    Action::Output(PortNo(port))
}

/// Returns a packet that meets flow `ufid`.
pub(super) fn packet_of(ufid: u128) -> Packet {
    let mac = (ufid as u64).to_be_bytes();
    packet::build::Frame::ethernet([mac[2], mac[3], mac[4], mac[5], mac[6], mac[7]], [2; 6])
        .ethertype(0x1234)
        .payload(&[0; 50])
        .packet()
}

// SPDX-License-Identifier: Apache-2.0
//! [`UserspaceDatapath`], which implements the contract of the `datapath` crate.

use crate::bond::Bond;
use crate::config::Config;
use crate::engine_pool::EnginePool;
use crate::flow_log;
use crate::load::INTERVAL;
use crate::meter::Meter;
use crate::miss_queue::{MissSource, MissSourceId};
use crate::ports::{self, Port, RxQueue};
use crate::rxq::{self, Assignment, ThreadInfo};
use crate::shared::Shared;
use crate::stats::PmdStats;
use crate::table::MOVED_AT_ONCE;
use crate::thread::PacketThread;
use crate::tracking::ConnectionTable;
use crate::underlay::SharedPorts;
use clock::Clock;
use datapath::offload::UpcallAccount;
use datapath::scratch::Scratch;
use datapath::{
    ACTION_DEPTH_LIMIT, Action, Actions, BondTable, Bonds, BucketBytes, Counters, Datapath,
    DropReason, FlowDump, FlowStats, Flows, LookupStats, Megaflow, MeterConfig, MeterStats, Meters,
    Packets, PortError, PortInfo, PortKind, PortNo, PortSpec, Ports, Refusal, SequenceNumbers,
    TunnelEndpoint, Ufid, UpcallFactory,
};
use flow::Key;
use netdev::{Device, Kind, Policing, Reception, dummy};
use packet::Packet;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of meters, and of bands of a meter, as in OVS's userspace datapath.
const MAX_METERS: u32 = 1 << 18;
const MAX_BANDS: u8 = 8;

/// Port numbers are reused in a cycle up to this one, since the tables of faster tiers have some
/// thousand entries, indexed by port number.
const PORT_NUMBER_CYCLE: u32 = 2048;

/// Maximum time that `remove_port` waits for the end of batches that use the device.
const RELEASE_WAIT: Duration = Duration::from_millis(100);

/// Reasons of drops that devices make and count themselves.
const BY_DEVICES: [DropReason; 2] = [DropReason::Policing, DropReason::Malformed];

/// The userspace datapath; see the documentation of the crate. Any thread may call any method.
pub struct UserspaceDatapath {
    name: String,
    shared: Arc<Shared>,
    engines: Arc<EnginePool>,
    /// The lock under which ports and threads change. Packet processing never takes it.
    control: Mutex<Control>,
    /// Memory for the statistics of a sweep.
    swept: Scratch<Vec<(Ufid, FlowStats)>>,
}

struct Control {
    config: Config,
    assignment: Assignment,
    miss_queues: BTreeMap<MissSourceId, Arc<RxQueue>>,
    /// The number with which the search for a free number begins.
    next_port: u32,
    shared_ports: SharedPorts,
}

impl Control {
    /// Returns a number that no port has. Numbers are reused as late as possible: the megaflows of
    /// a removed port remain until the next pass and must not match packets of another port.
    fn free_number(&mut self, is_taken: impl Fn(PortNo) -> bool) -> Option<PortNo> {
        let first = (self.next_port..=PORT_NUMBER_CYCLE).chain(1..self.next_port);
        let mut all = first.chain(PORT_NUMBER_CYCLE + 1..u32::MAX).map(PortNo);
        let number = all.find(|n| !is_taken(*n))?;
        self.next_port = number.0 % PORT_NUMBER_CYCLE + 1;
        Some(number)
    }

    /// Lets the search for a free number continue after `number`, which is free now.
    fn release_number(&mut self, number: PortNo) {
        if (self.next_port..=PORT_NUMBER_CYCLE).contains(&number.0) {
            self.next_port = number.0 % PORT_NUMBER_CYCLE + 1;
        }
    }
}

impl UserspaceDatapath {
    /// Creates a datapath without ports, called `name` in texts ("netdev@ovs-netdev"). Packet
    /// threads start with the first port that needs one, in the network namespace of the thread
    /// that adds it.
    /// Connections are tracked in memory of this process.
    pub fn new(name: impl Into<String>, clock: Clock, config: Config) -> Arc<UserspaceDatapath> {
        UserspaceDatapath::with_connections(name, clock, config, ConnectionTable::default())
    }

    /// Creates a datapath as [`UserspaceDatapath::new`] does, which tracks connections in a given
    /// table.
    pub fn with_connections(
        name: impl Into<String>,
        clock: Clock,
        config: Config,
        connections: ConnectionTable,
    ) -> Arc<UserspaceDatapath> {
        let datapath = UserspaceDatapath::without_connections(name, clock, config);
        datapath.begin_tracking(connections);
        datapath
    }

    /// Creates a datapath as [`UserspaceDatapath::new`] does, which has no connections until
    /// [`UserspaceDatapath::begin_tracking`].
    pub fn without_connections(
        name: impl Into<String>,
        clock: Clock,
        config: Config,
    ) -> Arc<UserspaceDatapath> {
        Arc::new(UserspaceDatapath {
            name: name.into(),
            shared: Arc::new(Shared::new(clock, &config)),
            engines: Arc::default(),
            control: Mutex::new(Control {
                config,
                assignment: Assignment::default(),
                miss_queues: BTreeMap::new(),
                next_port: 1,
                shared_ports: SharedPorts::default(),
            }),
            swept: Scratch::default(),
        })
    }

    /// Gives a datapath its table of connections, before the first port. Returns false when it has
    /// one, which stays.
    pub fn begin_tracking(&self, connections: ConnectionTable) -> bool {
        self.shared.begin_tracking(connections)
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner) // the next change repairs ports and threads
    }

    /// Applies a new configuration to the running datapath. When `cores` changed, packet threads
    /// are replaced; packets wait in their sockets meanwhile. When a rule of assignment changed, queues
    /// are assigned again. Changes of `max_flows`, `max_masks`,
    /// `cache_entries` and `seed` are ignored; `n_rxq` applies to ports added later.
    pub fn reconfigure(&self, config: Config) {
        self.shared.set_upcall_share(UpcallAccount::Misses, config.upcall_share);
        self.shared.set_upcall_share(UpcallAccount::Connections, config.ct_upcall_share);
        let threads = {
            let mut control = self.control();
            let moved = control.config.cores != config.cores;
            let rules = |config: &Config| (config.rxq_assign, config.rxq_isolate);
            let is_assigned_again = rules(&control.config) != rules(&config);
            control.config = config;
            if moved {
                control.assignment.take()
            } else {
                if is_assigned_again {
                    control.assignment.assign(&control.config);
                }
                Vec::new()
            }
        };
        self.end_threads(threads);
    }

    /// Ends packet threads, and gives their queues to others. The caller does not hold the control lock: a
    /// thread may be in an upcall that waits for it.
    fn end_threads(&self, threads: Vec<Arc<PacketThread>>) {
        let queues = rxq::join(threads, &self.shared);
        let mut control = self.control();
        let Control { config, assignment, .. } = &mut *control;
        for queue in queues {
            if let Err(e) = assignment.add(&self.shared, config, &queue) {
                tracing::error!(
                    target: "dpif_netdev",
                    "{}: no packet thread can serve queue {} ({e})", queue.port_name, queue.number,
                );
            }
        }
    }

    /// Assigns receive queues again to packet threads, by their load (`dpif-netdev/pmd-rxq-rebalance`).
    pub fn rebalance(&self) {
        let control = self.control();
        control.assignment.assign(&control.config);
    }

    /// Measures the load of receive queues, and adapts to it: without cores, the number of packet threads, else,
    /// where [`Config::auto_balance`] asks for it, the assignment of queues. It is to be called every five
    /// seconds; earlier it does nothing. The caller is no packet thread.
    pub fn adapt_threads(&self, now: Instant) {
        let mut control = self.control();
        let Control { config, assignment, .. } = &mut *control;
        let ended = assignment.adapt(&self.shared, config, now);
        drop(control);
        self.end_threads(ended.into_iter().collect());
    }

    /// Returns the packet threads, with the load of queues in the last `over`, rounded up to
    /// five seconds. If other threads processed packets (of dummy ports,
    /// packet-outs), the last entry, without core and queues, stands for them.
    pub fn threads(&self, over: Duration) -> Vec<ThreadInfo> {
        let control = self.control();
        let intervals = over.as_secs().div_ceil(INTERVAL.as_secs());
        let intervals = usize::try_from(intervals).unwrap_or(usize::MAX);
        let mut infos = control.assignment.infos(&control.config, intervals);
        let inline = self.shared.inline_stats.since_cleared();
        if infos.is_empty() || inline != PmdStats::default() {
            infos.push(ThreadInfo {
                core: None,
                stats: inline,
                is_isolated: false,
                queues: Vec::new(),
            });
        }
        infos
    }

    /// Returns the number of packets that were received from ports or from a faster tier, since the
    /// start. The headers of each are extracted once.
    pub fn received(&self) -> u64 {
        self.shared.totals().received
    }

    /// Restarts the counters of [`UserspaceDatapath::threads`] at zero
    /// (`dpif-netdev/pmd-stats-clear`).
    pub fn clear_thread_stats(&self) {
        for thread in self.control().assignment.threads() {
            thread.stats.clear();
        }
        self.shared.inline_stats.clear();
    }

    /// Serves the misses of a faster tier by a packet thread. If there is none yet, one is started
    /// in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// No thread can be started, the descriptor of `source` cannot be waited for, or the datapath
    /// was shut down. `source` is dropped.
    pub fn add_miss_source(&self, source: Box<dyn MissSource>) -> io::Result<MissSourceId> {
        let token = self.shared.tokens.fetch_add(1, Ordering::Relaxed);
        let queue = Arc::new(RxQueue::of_misses(token, source));
        let mut control = self.control();
        if self.shared.closed.load(Ordering::Relaxed) {
            return Err(io::Error::other("the datapath was shut down"));
        }
        let Control { config, assignment, miss_queues, .. } = &mut *control;
        assignment.add(&self.shared, config, &queue)?;
        let id = MissSourceId(token);
        miss_queues.insert(id, queue);
        Ok(id)
    }

    /// Stops the service of a miss source and drops it, as [`UserspaceDatapath::shutdown`] does
    /// with all of them. A packet thread may still process packets that it took from the source,
    /// and does not call `done` for them. Does nothing when the source is gone already.
    pub fn remove_miss_source(&self, id: MissSourceId) {
        let mut control = self.control();
        let queue = control.miss_queues.remove(&id);
        if let Some(queue) = &queue {
            control.assignment.remove(queue);
        }
        drop(control); // `recv` may be running, and the drop of the source may call back
        if let Some(queue) = queue {
            queue.close();
        }
    }

    /// Sets whether `port` receives by its own device, as a new port does, or a faster tier
    /// receives for it; see [`netdev::Device::set_receiving`].
    ///
    /// # Errors
    ///
    /// `NotFound` without such a port, `Unsupported` when its device cannot do this, or the
    /// kernel's error.
    pub fn set_receiving(&self, port: PortNo, reception: Reception) -> io::Result<()> {
        let shared = self.shared.ports().get(&port).cloned().ok_or(io::ErrorKind::NotFound)?;
        let device = shared.device().ok_or(io::ErrorKind::NotFound)?;
        if shared.info.kind != PortKind::Underlay {
            return device.set_receiving(reception);
        }
        // The stack must not answer a packet that the socket has received.
        if reception.is_on() {
            self.control().shared_ports.set_receiving(port, true);
        }
        let result = device.set_receiving(reception);
        if !reception.is_on() {
            self.control().shared_ports.set_receiving(port, false);
        }
        result
    }

    /// Sets the filter on packets that `port` receives by its own device, effective from the next
    /// [`UserspaceDatapath::set_receiving`]; see [`netdev::Device::set_filter`].
    ///
    /// # Errors
    ///
    /// `NotFound` without such a port, `Unsupported` when its device cannot do this, or the
    /// kernel's error.
    pub fn set_filter(&self, port: PortNo, filter: BorrowedFd<'_>) -> io::Result<()> {
        let device = self.device(port).ok_or(io::ErrorKind::NotFound)?;
        device.set_filter(filter)
    }

    /// Returns a number for a port to be added. No port has it or had it recently, since megaflows
    /// of that port may remain, and `is_reserved` returns false for it. `None`: all numbers are
    /// used.
    pub fn free_number(&self, is_reserved: impl Fn(PortNo) -> bool) -> Option<PortNo> {
        let mut control = self.control();
        let map = self.shared.ports();
        control.free_number(|n| map.contains_key(&n) || is_reserved(n))
    }

    /// Returns the present value of [`Config::open_muted`].
    pub fn opens_muted(&self) -> bool {
        self.control().config.open_muted
    }

    /// Shuts down as [`Datapath::shutdown`] and deletes the interfaces that this datapath created
    /// to outlive it ([`Config::persistent_internal`]).
    pub fn cleanup(&self) {
        self.end(true);
    }

    fn end(&self, is_cleanup: bool) {
        self.shared.closed.store(true, Ordering::Relaxed);
        let (threads, miss_queues, is_packet_thread, ports) = {
            let mut control = self.control();
            let is_packet_thread = control.assignment.is_caller_one();
            let ports = self.shared.ports();
            self.shared.publish_ports(BTreeMap::new());
            let miss_queues = std::mem::take(&mut control.miss_queues);
            (control.assignment.take(), miss_queues, is_packet_thread, ports)
        };
        drop(rxq::join(threads, &self.shared));
        if let Some(tracking) = self.shared.present_tracking() {
            tracking.cleaner.stop();
        }
        for queue in miss_queues.into_values() {
            queue.close();
        }
        let ports = Arc::try_unwrap(ports).unwrap_or_else(|shared| (*shared).clone());
        for port in ports.into_values() {
            if is_cleanup {
                make_interface_transient(&port);
            }
            self.close_port(port, is_packet_thread);
        }
        self.flush();
        self.shared.set_factory(None);
        self.engines.clear();
    }

    /// Adds the drops of a removed port's device to the datapath's counters.
    fn keep_drops(&self, port: &Port) {
        for reason in BY_DEVICES {
            self.shared.drops.add(reason, dropped_by_device(port, reason));
        }
    }

    /// Takes a port that is no longer in the map out of service. The caller must not hold the
    /// control lock: a batch in flight may be in an upcall that waits for it.
    fn close_port(&self, port: Arc<Port>, is_packet_thread: bool) {
        if port.device().is_some_and(|device| device.kind() == Kind::Dummy)
            && let Some(device) = dummy::lookup(&port.info.name)
        {
            device.on_receive(None);
        }
        for queue in &port.queues {
            queue.close();
        }
        // Batches in flight hold the old map for microseconds. After the wait for their end the
        // device is closed. An upcall on a packet thread must not wait for itself.
        if !is_packet_thread {
            let end = Instant::now() + RELEASE_WAIT;
            while Arc::strong_count(&port) > 1 && Instant::now() < end {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }
}

impl Drop for UserspaceDatapath {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Ports for UserspaceDatapath {
    fn add_port(&self, spec: &PortSpec) -> Result<PortNo, PortError> {
        let mut guard = self.control();
        let control = &mut *guard;
        let mut map = (*self.shared.ports()).clone();
        if map.values().any(|p| p.info.name == spec.name) {
            return Err(PortError::Exists(spec.name.clone()));
        }
        let number = match spec.wanted {
            Some(wanted) if wanted != PortNo::NONE && !map.contains_key(&wanted) => wanted,
            _ => control
                .free_number(|n| map.contains_key(&n))
                .ok_or_else(|| PortError::Full(spec.name.clone()))?,
        };
        if let Some(config) = ports::tunnel(spec) {
            let info = PortInfo { number, name: spec.name.clone(), kind: spec.kind };
            map.insert(number, Arc::new(Port::of_tunnel(info, config?)));
            self.shared.expect_tunnels();
            self.shared.publish_ports(map);
            return Ok(number);
        }
        let affinity = ports::affinity(spec)?;
        let (opened, kind) = ports::open(spec, &control.config)?;
        if spec.kind == PortKind::Underlay {
            let services = control.shared_ports.services();
            opened.device.set_services(&services).map_err(|e| PortError::Open {
                name: spec.name.clone(),
                cause: format!("setting the filter for packets of tunnels: {e}"),
            })?;
            control.shared_ports.set_receiving(number, !control.config.open_muted);
        }
        let info = PortInfo { number, name: spec.name.clone(), kind: spec.kind };
        let port = Arc::new(Port::new(info, opened, &affinity, &self.shared.tokens));
        map.insert(number, port.clone());
        self.shared.publish_ports(map.clone());
        for queue in &port.queues {
            if let Err(e) = control.assignment.add(&self.shared, &control.config, queue) {
                map.remove(&number);
                self.shared.publish_ports(map);
                for queue in &port.queues {
                    control.assignment.remove(queue);
                }
                control.shared_ports.set_receiving(number, false);
                make_interface_transient(&port);
                self.close_port(port, true); // nothing was in flight yet
                return Err(PortError::Open {
                    name: spec.name.clone(),
                    cause: format!("no packet thread can serve it: {e}"),
                });
            }
        }
        drop(guard); // packets that wait in a dummy are processed below, with their upcalls
        if kind == Kind::Dummy
            && let Some(device) = dummy::lookup(&spec.name)
        {
            // No other program can bring a dummy up. In OVS dummies are up from the start.
            if let Some(Err(e)) = port.device().map(|device| device.set_admin_up(true)) {
                tracing::warn!(target: "dpif_netdev", "{}: cannot be brought up: {e}", spec.name);
            }
            let shared = Arc::downgrade(&self.shared);
            let engines = Arc::clone(&self.engines);
            device.on_receive(Some(Arc::new(move |_queue, mut packets| {
                if let Some(shared) = shared.upgrade() {
                    // Each packet is a batch: all effects of one precede the next.
                    for packet in packets.drain(..) {
                        engines.with(&shared, |engine| {
                            engine.receive(&shared, number, &mut vec![packet])
                        });
                    }
                }
            })));
        }
        Ok(number)
    }

    fn remove_port(&self, port: PortNo) -> Result<(), PortError> {
        let mut control = self.control();
        let mut map = (*self.shared.ports()).clone();
        let removed = map.remove(&port).ok_or_else(|| PortError::NotFound(port.to_string()))?;
        self.shared.publish_ports(map);
        control.release_number(port);
        control.shared_ports.set_receiving(port, false);
        for queue in &removed.queues {
            control.assignment.remove(queue);
        }
        let is_packet_thread = control.assignment.is_caller_one();
        self.keep_drops(&removed);
        drop(control);
        make_interface_transient(&removed);
        self.close_port(removed, is_packet_thread);
        Ok(())
    }

    fn ports(&self) -> Vec<PortInfo> {
        self.shared.ports().values().map(|p| p.info.clone()).collect()
    }

    fn device(&self, port: PortNo) -> Option<Arc<dyn Device>> {
        self.shared.ports().get(&port).and_then(|p| p.device().cloned())
    }

    fn share_sequence(&self, port: PortNo, numbers: Arc<dyn SequenceNumbers>) {
        if let Some(tunnel) = self.shared.ports().get(&port).and_then(|port| port.tunnel()) {
            tunnel.share_sequence(numbers);
        }
    }

    fn set_tunnel_endpoints(&self, endpoints: &[TunnelEndpoint]) {
        let mut control = self.control();
        if !control.shared_ports.set_endpoints(endpoints) {
            return;
        }
        let services = control.shared_ports.services();
        let ports = self.shared.ports();
        for port in ports.values().filter(|port| port.info.kind == PortKind::Underlay) {
            let Some(Err(error)) = port.device().map(|device| device.set_services(&services))
            else {
                continue;
            };
            let name = &port.info.name;
            tracing::warn!(
                target: "dpif_netdev",
                "{name}: its socket does not follow the tunnels ({error})",
            );
        }
    }

    fn upcalls(&self, port: PortNo) -> Option<u64> {
        self.shared.ports().get(&port).map(|p| p.upcalls())
    }

    fn set_policing(&self, port: PortNo, policing: Policing) -> Result<(), PortError> {
        let port = self
            .shared
            .ports()
            .get(&port)
            .cloned()
            .ok_or_else(|| PortError::NotFound(port.to_string()))?;
        let set = match port.device() {
            Some(device) => device.set_policing(policing),
            None if !policing.is_on() => Ok(()),
            None => Err(io::ErrorKind::Unsupported.into()),
        };
        set.map_err(|e| PortError::Option {
            name: port.info.name.clone(),
            problem: format!(
                "ingress policing cannot be set on this {} device: {e}",
                port.info.kind
            ),
        })
    }
}

/// Makes an interface that would outlive the switch vanish with the port.
fn make_interface_transient(port: &Port) {
    let Some(device) = port.device() else { return };
    if !matches!(device.kind(), Kind::Internal | Kind::Tap) {
        return;
    }
    if let Err(e) = device.set_persistent(None) {
        tracing::warn!(
            target: "dpif_netdev",
            "{}: the interface stays ({e}): delete it with \"ip link del {}\"", port.info.name, port.info.name,
        );
    }
}

/// Returns the packets that a port's device dropped for one of [`BY_DEVICES`], also when the device
/// is gone.
fn dropped_by_device(port: &Port, reason: DropReason) -> u64 {
    let Some(drops) = port.device().map(|device| device.own_drops()) else { return 0 };
    match reason {
        DropReason::Policing => drops.policed,
        DropReason::Malformed => drops.malformed,
        _ => 0,
    }
}

/// Returns true when actions are nested no deeper than the contract allows.
fn is_shallow(actions: &[Action], left: usize) -> bool {
    actions.iter().all(|action| match action {
        Action::Sample { actions, .. } | Action::Clone(actions) => {
            left > 0 && is_shallow(actions, left - 1)
        }
        Action::CheckPktLen { greater, not_greater, .. } => {
            left > 0 && is_shallow(greater, left - 1) && is_shallow(not_greater, left - 1)
        }
        _ => true,
    })
}

impl Flows for UserspaceDatapath {
    fn install(&self, flow: &Megaflow) -> Result<(), Refusal> {
        if !is_shallow(&flow.actions, ACTION_DEPTH_LIMIT) {
            return Err(Refusal::UnsupportedAction);
        }
        self.shared.table_mut().insert(flow)?;
        flow_log::added(flow);
        Ok(())
    }

    fn prefetch(&self, flows: &[&Megaflow]) {
        self.shared.table().prefetch(flows);
    }

    fn modify(&self, ufid: Ufid, actions: &Actions) -> bool {
        if !is_shallow(actions, ACTION_DEPTH_LIMIT) {
            return false;
        }
        let flow = self.shared.table().get(ufid).cloned();
        flow.is_some_and(|f| f.modify(actions))
    }

    fn remove(&self, ufid: Ufid) -> Option<FlowStats> {
        let removed = self.shared.table_mut().remove(ufid);
        removed.map(|f| f.kill())
    }

    fn flow(&self, ufid: Ufid) -> Option<FlowDump> {
        let flow = self.shared.table().get(ufid).cloned();
        flow.and_then(|f| f.dump())
    }

    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        // `each` runs without the lock on the table: a packet thread may wait for it to install a
        // megaflow, and `each` may call back.
        self.swept.with(|swept| {
            self.shared.table().statistics(swept);
            swept.iter().for_each(|(ufid, stats)| each(*ufid, *stats));
        });
    }

    fn sweep_moved(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        self.swept.with(|swept| {
            for from in (0..).step_by(MOVED_AT_ONCE) {
                if !self.shared.table().moved_statistics(from, swept) {
                    return;
                }
                swept.drain(..).for_each(|(ufid, stats)| each(ufid, stats));
            }
        });
    }

    fn stats_of(&self, ufids: &[Ufid], each: &mut dyn FnMut(Ufid, FlowStats)) {
        self.swept.with(|swept| {
            self.shared.table().statistics_of(ufids, swept);
            swept.iter().for_each(|(ufid, stats)| each(*ufid, *stats));
        });
    }

    fn dump(&self) -> Vec<FlowDump> {
        let mut flows = self.shared.table().flows();
        flows.sort_unstable_by_key(|flow| flow.installed);
        flows.iter().filter_map(|f| f.dump()).collect()
    }

    fn flush(&self) {
        let flows = self.shared.table_mut().clear();
        for flow in flows {
            flow.kill();
        }
    }
}

impl Packets for UserspaceDatapath {
    fn set_upcall_factory(&self, factory: Arc<dyn UpcallFactory>) {
        self.shared.set_factory(Some(factory));
    }

    fn execute(&self, packet: Packet, key: &Key, actions: &[Action]) {
        if !is_shallow(actions, ACTION_DEPTH_LIMIT) {
            self.shared.drops.add(DropReason::UnsupportedAction, 1);
            return;
        }
        self.engines
            .with(&self.shared, |engine| engine.execute(&self.shared, packet, key, actions));
    }

    fn inject(&self, packet: Packet, port: PortNo) {
        self.engines
            .with(&self.shared, |engine| engine.receive(&self.shared, port, &mut vec![packet]));
    }

    fn megaflows_used(&self, port: PortNo, n: u64) {
        self.shared.refund_upcalls(port, n);
    }
}

impl Meters for UserspaceDatapath {
    fn limits(&self) -> (u32, u8) {
        (MAX_METERS, MAX_BANDS)
    }

    fn set(&self, id: u32, config: &MeterConfig) -> Result<(), Refusal> {
        if id >= MAX_METERS || config.bands.len() > usize::from(MAX_BANDS) {
            return Err(Refusal::TableFull);
        }
        let meter = Arc::new(Mutex::new(Meter::new(config, self.shared.clock.now())));
        self.shared.with_meters(|meters| meters.insert(id, meter));
        Ok(())
    }

    fn remove(&self, id: u32) -> Option<MeterStats> {
        let meter = self.shared.with_meters(|meters| meters.remove(&id));
        meter.map(|m| m.lock().unwrap_or_else(PoisonError::into_inner).stats())
    }

    fn stats(&self, id: u32) -> Option<MeterStats> {
        self.shared.meter(id).map(|m| m.lock().unwrap_or_else(PoisonError::into_inner).stats())
    }
}

impl Bonds for UserspaceDatapath {
    fn set(&self, id: u32, table: &BondTable) -> Result<(), Refusal> {
        self.shared.with_bonds(|bonds| {
            bonds.entry(id).or_insert_with(|| Arc::new(Bond::new(table))).set(table);
        });
        Ok(())
    }

    fn remove(&self, id: u32) {
        self.shared.with_bonds(|bonds| drop(bonds.remove(&id)));
    }

    fn table(&self, id: u32) -> Option<BondTable> {
        self.shared.bond(id).map(|bond| bond.table())
    }

    fn ids(&self) -> Vec<u32> {
        self.shared.with_bonds(|bonds| bonds.keys().copied().collect())
    }

    fn bytes(&self, id: u32) -> Option<BucketBytes> {
        self.shared.bond(id).map(|bond| bond.bytes())
    }
}

impl Counters for UserspaceDatapath {
    fn lookups(&self) -> LookupStats {
        let sum = self.shared.totals();
        let table = self.shared.table();
        LookupStats {
            hits: sum.cache_hits + sum.megaflow_hits,
            misses: sum.misses,
            lost: sum.lost,
            mask_hits: sum.masks_probed,
            cache_hits: sum.cache_hits,
            masks: table.subtables(),
            flows: table.len(),
        }
    }

    fn drops(&self, reason: DropReason) -> u64 {
        if reason == DropReason::FragmentsPurged {
            return self.shared.present_tracking().map_or(0, |tracking| tracking.purged());
        }
        if !BY_DEVICES.contains(&reason) {
            return self.shared.drops.of(reason);
        }
        // During the removal of a port its device's drops are in neither counter.
        let _control = self.control();
        let ports = self.shared.ports();
        let by_devices: u64 = ports.values().map(|port| dropped_by_device(port, reason)).sum();
        self.shared.drops.of(reason) + by_devices
    }

    fn tunnel_checks(&self) -> tunnel::Checks {
        self.shared.tunnel_checks.total()
    }
}

impl Datapath for UserspaceDatapath {
    fn name(&self) -> &str {
        &self.name
    }

    fn meters(&self) -> Option<&dyn Meters> {
        Some(self)
    }

    fn bonds(&self) -> Option<&dyn Bonds> {
        Some(self)
    }

    fn connections(&self) -> Option<&dyn datapath::Connections> {
        let tracking = self.shared.present_tracking()?;
        Some(&**tracking)
    }

    fn supports(&self, action: &Action) -> bool {
        is_shallow(std::slice::from_ref(action), ACTION_DEPTH_LIMIT)
    }

    fn maintain(&self) {
        self.shared.sample_idle_cpu();
    }

    fn shutdown(&self) {
        self.end(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datapath::PortKind;

    #[test]
    fn a_number_is_reused_late() {
        let dp = UserspaceDatapath::new("netdev@late", Clock::new(), Config::default());
        let add = |name: &str| {
            let spec = PortSpec { name: name.into(), kind: PortKind::Dummy, ..PortSpec::default() };
            dp.add_port(&spec).expect("dummies need nothing").0
        };
        assert_eq!([add("late-a"), add("late-b")], [1, 2]);
        dp.remove_port(PortNo(1)).expect("it is there");
        assert_eq!(add("late-c"), 3);
        for expected in 4..=PORT_NUMBER_CYCLE {
            assert_eq!(add("late-d"), expected);
            dp.remove_port(PortNo(expected)).expect("it is there");
        }
        assert_eq!([add("late-e"), add("late-f")], [1, 4]);
    }

    #[test]
    fn a_reserved_number_is_not_given() {
        let dp = UserspaceDatapath::new("netdev@kept", Clock::new(), Config::default());
        let add = |name: &str, wanted| {
            let spec = PortSpec { name: name.into(), kind: PortKind::Dummy, ..PortSpec::default() };
            dp.add_port(&PortSpec { wanted, ..spec }).expect("dummies need nothing")
        };
        let free = || dp.free_number(|n| n == PortNo(2));
        assert_eq!(free(), Some(PortNo(1)));
        assert_eq!(add("kept-a", Some(PortNo(5))), PortNo(5));
        assert_eq!([free(), free(), free()], [3, 4, 6].map(|n| Some(PortNo(n))));
        dp.remove_port(PortNo(5)).expect("it is there");
        assert_eq!(free(), Some(PortNo(7)), "5 is reused late");
    }
}

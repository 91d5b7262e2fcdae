// SPDX-License-Identifier: Apache-2.0
//! State that all threads of one datapath share.

use crate::bond::Bond;
use crate::config::{Config, UpcallShare};
use crate::meter::Meter;
use crate::moved::Moved;
use crate::ports::PortMap;
use crate::stats::{Drops, PmdStats, ThreadStats, TunnelChecks};
use crate::table::{Limits, Table};
use crate::tracking::{ConnectionTable, Tracking};
use crate::upcall_limiter::{ClosedPort, Refill, UpcallCost, UpcallLimiter};
use clock::{Clock, Millis, OncePer};
use datapath::offload::UpcallAccount;
use datapath::{DropReason, PortNo, UpcallFactory, Upcaller};
use netdev::SendReport;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::time::Duration;

/// Interval between two sorts of the subtables.
const SORT_INTERVAL: Duration = Duration::from_secs(1);

/// Shared state. Locks are held for one read or change, never during an upcall or a send, and never
/// two at a time unless a function says so.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) drops: Drops,
    pub(crate) tunnel_checks: TunnelChecks,
    /// There is, or was, a tunnel port.
    has_tunnels: AtomicBool,
    pub(crate) seed: u64,
    pub(crate) cache_entries: usize,
    /// The next token of a receive queue.
    pub(crate) tokens: AtomicU64,
    /// True after shutdown: engines make no upcalls.
    pub(crate) closed: AtomicBool,
    /// By account.
    upcall_limiters: [UpcallLimiter; UpcallAccount::ALL.len()],
    /// Empty until the daemon knows the table.
    tracking: OnceLock<Arc<Tracking>>,
    /// The table's megaflows that have counted since the last sweep of those.
    pub(crate) moved: Arc<Moved>,
    table: RwLock<Table>,
    ports: RwLock<Arc<PortMap>>,
    factory: RwLock<Option<Arc<dyn UpcallFactory>>>,
    meters: RwLock<BTreeMap<u32, Arc<Mutex<Meter>>>>,
    bonds: RwLock<BTreeMap<u32, Arc<Bond>>>,
    /// Counters of engines outside packet threads.
    pub(crate) inline_stats: Arc<ThreadStats>,
    counted: Mutex<Counted>,
    sort_limit: OncePer,
}

/// The parts of the sums over all threads.
#[derive(Default)]
struct Counted {
    live: Vec<Arc<ThreadStats>>,
    /// Counts of threads that have ended.
    retired: PmdStats,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // All of these locks guard values that are whole after every statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Charges a port the cost of its upcalls. Returns the port when it is closed.
fn charge(ports: &PortMap, cost: UpcallCost, refill: Refill) -> Option<ClosedPort> {
    let UpcallCost { port: number, account, .. } = cost;
    let port = ports.get(&number)?;
    let bucket = port.upcall_bucket(account);
    let until = bucket.charge(cost, refill)?;
    if bucket.log.is_due(refill.log_time()) {
        let (packets, option) = match account {
            UpcallAccount::Misses => ("misses", "upcall-cpu-percent"),
            UpcallAccount::Connections => ("packets to be tracked", "ct-upcall-cpu-percent"),
        };
        tracing::info!(
            target: "dpif_netdev",
            "{}: upcalls exceed their CPU time; further {packets} of the port are dropped \
             (counter datapath_drop_upcall_limit; other_config:{option})",
            port.info.name,
        );
    }
    Some(ClosedPort { port: number, account, until })
}

impl Shared {
    pub(crate) fn new(clock: Clock, config: &Config) -> Shared {
        let limits = Limits { flows: config.max_flows, masks: config.max_masks };
        let table = Table::new(limits);
        Shared {
            tracking: OnceLock::new(),
            clock,
            drops: Drops::default(),
            tunnel_checks: TunnelChecks::default(),
            has_tunnels: AtomicBool::new(false),
            seed: config.seed,
            cache_entries: config.cache_entries,
            tokens: AtomicU64::new(1),
            closed: AtomicBool::new(false),
            upcall_limiters: [config.upcall_share, config.ct_upcall_share].map(UpcallLimiter::new),
            moved: Arc::clone(table.moved()),
            table: RwLock::new(table),
            ports: RwLock::new(Arc::default()),
            factory: RwLock::new(None),
            meters: RwLock::new(BTreeMap::new()),
            bonds: RwLock::new(BTreeMap::new()),
            inline_stats: Arc::default(),
            counted: Mutex::default(),
            sort_limit: OncePer::new(SORT_INTERVAL),
        }
    }

    /// Returns true when packets may leave by a tunnel.
    pub(crate) fn has_tunnels(&self) -> bool {
        self.has_tunnels.load(Ordering::Relaxed)
    }

    /// Notes that there is a tunnel port.
    pub(crate) fn expect_tunnels(&self) {
        self.has_tunnels.store(true, Ordering::Relaxed);
    }

    /// Returns the connections for a packet. The first packet makes a table of this process when
    /// there is none.
    pub(crate) fn tracking(&self) -> &Arc<Tracking> {
        self.tracking.get_or_init(|| self.tracking_in(ConnectionTable::default()))
    }

    fn tracking_in(&self, connections: ConnectionTable) -> Arc<Tracking> {
        Arc::new(Tracking::new(self.clock.clone(), connections))
    }

    /// Returns the connections, if there is a table.
    pub(crate) fn present_tracking(&self) -> Option<&Arc<Tracking>> {
        self.tracking.get()
    }

    /// Gives the datapath its table. Returns false when it has one.
    pub(crate) fn begin_tracking(&self, connections: ConnectionTable) -> bool {
        let tracking = self.tracking_in(connections);
        if self.tracking.set(Arc::clone(&tracking)).is_err() {
            return false;
        }
        if tracking.is_in_use() {
            tracking.wake_cleaner();
        }
        true
    }

    pub(crate) fn table(&self) -> RwLockReadGuard<'_, Table> {
        read(&self.table)
    }

    pub(crate) fn table_mut(&self) -> RwLockWriteGuard<'_, Table> {
        write(&self.table)
    }

    pub(crate) fn ports(&self) -> Arc<PortMap> {
        read(&self.ports).clone()
    }

    /// Replaces the map of ports. The caller holds the lock under which ports change.
    pub(crate) fn publish_ports(&self, ports: PortMap) {
        let old = std::mem::replace(&mut *write(&self.ports), Arc::new(ports));
        drop(old);
    }

    /// Calls `f` with the meters, which it may change.
    pub(crate) fn with_meters<R>(
        &self,
        f: impl FnOnce(&mut BTreeMap<u32, Arc<Mutex<Meter>>>) -> R,
    ) -> R {
        f(&mut write(&self.meters))
    }

    pub(crate) fn meter(&self, id: u32) -> Option<Arc<Mutex<Meter>>> {
        read(&self.meters).get(&id).cloned()
    }

    /// Calls `f` with the bonds, which it may change.
    pub(crate) fn with_bonds<R>(&self, f: impl FnOnce(&mut BTreeMap<u32, Arc<Bond>>) -> R) -> R {
        f(&mut write(&self.bonds))
    }

    pub(crate) fn bond(&self, id: u32) -> Option<Arc<Bond>> {
        read(&self.bonds).get(&id).cloned()
    }

    pub(crate) fn set_factory(&self, factory: Option<Arc<dyn UpcallFactory>>) {
        let old = std::mem::replace(&mut *write(&self.factory), factory);
        drop(old);
    }

    /// Returns a new upcaller, if there is a factory and the datapath is not shut down.
    pub(crate) fn upcaller(&self) -> Option<Box<dyn Upcaller>> {
        let factory = read(&self.factory).clone();
        factory.filter(|_| !self.closed.load(Ordering::Relaxed)).map(|f| f.upcaller())
    }

    fn upcall_limiter(&self, account: UpcallAccount) -> &UpcallLimiter {
        let [misses, connections] = &self.upcall_limiters;
        match account {
            UpcallAccount::Misses => misses,
            UpcallAccount::Connections => connections,
        }
    }

    /// Sets the CPU time of an account. A change fills the buckets of all ports.
    pub(crate) fn set_upcall_share(&self, account: UpcallAccount, share: UpcallShare) {
        if self.upcall_limiter(account).set_share(share) {
            self.ports().values().for_each(|port| port.upcall_bucket(account).reset());
        }
    }

    /// Measures the idle CPU time since the last call.
    pub(crate) fn sample_idle_cpu(&self) {
        self.upcall_limiters.iter().for_each(UpcallLimiter::sample_idle_cpu);
    }

    fn refill(&self, ports: &PortMap, account: UpcallAccount) -> Option<Refill> {
        let buckets = ports.values().map(|port| port.upcall_bucket(account));
        self.upcall_limiter(account).refill(buckets)
    }

    /// Charges ports the cost of their upcalls. Returns the ports that are closed.
    pub(crate) fn charge_upcalls(&self, costs: &[UpcallCost]) -> Vec<ClosedPort> {
        if costs.is_empty() {
            return Vec::new();
        }
        let ports = self.ports();
        let mut closed = Vec::new();
        for account in UpcallAccount::ALL {
            let mut costs = costs.iter().filter(|cost| cost.account == account).peekable();
            if costs.peek().is_some()
                && let Some(refill) = self.refill(&ports, account)
            {
                closed.extend(costs.filter_map(|cost| charge(&ports, *cost, refill)));
            }
        }
        closed
    }

    /// Gives `port` back the cost of `n` upcalls whose megaflows have met packets.
    pub(crate) fn refund_upcalls(&self, port: PortNo, n: u64) {
        let ports = self.ports();
        if let Some(port) = ports.get(&port)
            && let Some(refill) = self.refill(&ports, UpcallAccount::Misses)
        {
            port.upcall_bucket(UpcallAccount::Misses).refund(n, refill);
        }
    }

    /// Counts the packets that a sender dropped.
    pub(crate) fn count_sent(&self, report: SendReport) {
        self.drops.add(DropReason::OutputQueueFull, report.dropped_full);
        self.drops.add(DropReason::OutputTooLong, report.dropped_too_long);
        self.drops.add(DropReason::OutputError, report.dropped_down + report.dropped_error);
        self.drops.add(DropReason::Malformed, report.dropped_malformed);
        self.drops.add(DropReason::Policing, report.dropped_policed);
    }

    /// Adds the counters of a packet thread to the sums.
    pub(crate) fn enlist(&self, stats: &Arc<ThreadStats>) {
        lock(&self.counted).live.push(stats.clone());
    }

    /// Keeps the counts of a packet thread that has ended.
    pub(crate) fn retire(&self, stats: &Arc<ThreadStats>) {
        let mut counted = lock(&self.counted);
        counted.live.retain(|s| !Arc::ptr_eq(s, stats));
        counted.retired.add(stats.total());
    }

    /// Returns the sums over all threads since the start.
    pub(crate) fn totals(&self) -> PmdStats {
        let counted = lock(&self.counted);
        let mut sum = counted.retired;
        for stats in counted.live.iter().chain([&self.inline_stats]) {
            sum.add(stats.total());
        }
        sum
    }

    /// Sorts the subtables by their recent hits, once a second.
    pub(crate) fn sort_table_sometimes(&self, now: Millis) {
        if !self.sort_limit.is_due(now) {
            return;
        }
        let unsorted = self.table().is_unsorted();
        if unsorted {
            self.table_mut().sort();
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What all threads of one datapath share.

use crate::budget::{self, Due, Nanos, UpcallShare};
use crate::config::Config;
use crate::engine::Engine;
use crate::meter::Meter;
use crate::ports::PortMap;
use crate::spare::Spare;
use crate::stats::{Drops, PmdStats, ThreadStats};
use crate::table::{Limits, Table};
use clock::{Clock, Millis};
use datapath::{DropReason, PortNo, UpcallFactory, Upcaller};
use netdev::SendReport;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Milliseconds between two looks at the order of subtables.
const SORT_INTERVAL: u64 = 1000;

/// Shared state. Locks are held for a look or a change, never during an upcall or a send, and
/// never two at a time but where a function says so.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) drops: Drops,
    pub(crate) seed: u64,
    pub(crate) cache_entries: usize,
    /// Numbers for receive queues.
    pub(crate) tokens: AtomicU64,
    /// After shutdown: engines make no upcalls.
    pub(crate) closed: AtomicBool,
    upcall_share: RwLock<UpcallShare>,
    spare: Spare,
    table: RwLock<Table>,
    ports: RwLock<Arc<PortMap>>,
    factory: RwLock<Option<Arc<dyn UpcallFactory>>>,
    meters: RwLock<BTreeMap<u32, Arc<Mutex<Meter>>>>,
    /// Engines for threads that are not packet threads; as many as ever ran at one time.
    idle_engines: Mutex<Vec<Engine>>,
    pub(crate) inline_stats: Arc<ThreadStats>,
    counted: Mutex<Counted>,
    last_sort: AtomicI64,
}

/// Where the sums over all threads come from.
#[derive(Default)]
struct Counted {
    live: Vec<Arc<ThreadStats>>,
    /// By threads that are gone.
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

impl Shared {
    pub(crate) fn new(clock: Clock, config: &Config) -> Shared {
        let limits = Limits { flows: config.max_flows, masks: config.max_masks };
        Shared {
            clock,
            drops: Drops::default(),
            seed: config.seed,
            cache_entries: config.cache_entries,
            tokens: AtomicU64::new(1),
            closed: AtomicBool::new(false),
            upcall_share: RwLock::new(config.upcall_share),
            spare: Spare::default(),
            table: RwLock::new(Table::new(limits)),
            ports: RwLock::new(Arc::default()),
            factory: RwLock::new(None),
            meters: RwLock::new(BTreeMap::new()),
            idle_engines: Mutex::new(Vec::new()),
            inline_stats: Arc::default(),
            counted: Mutex::default(),
            last_sort: AtomicI64::new(0),
        }
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

    /// Replaces the map of ports; the caller is the only one that changes ports at this time.
    pub(crate) fn publish_ports(&self, ports: PortMap) {
        let old = std::mem::replace(&mut *write(&self.ports), Arc::new(ports));
        drop(old);
    }

    /// Calls `f` with the meters, which `f` may change.
    pub(crate) fn with_meters<R>(
        &self,
        f: impl FnOnce(&mut BTreeMap<u32, Arc<Mutex<Meter>>>) -> R,
    ) -> R {
        f(&mut write(&self.meters))
    }

    pub(crate) fn meter(&self, id: u32) -> Option<Arc<Mutex<Meter>>> {
        read(&self.meters).get(&id).cloned()
    }

    pub(crate) fn set_factory(&self, factory: Option<Arc<dyn UpcallFactory>>) {
        let old = std::mem::replace(&mut *write(&self.factory), factory);
        drop(old);
    }

    /// A new upcaller, when somebody answers upcalls.
    pub(crate) fn upcaller(&self) -> Option<Box<dyn Upcaller>> {
        let factory = read(&self.factory).clone();
        factory.filter(|_| !self.closed.load(Ordering::Relaxed)).map(|f| f.upcaller())
    }

    /// Accounts begin anew when it is another share.
    pub(crate) fn set_upcall_share(&self, share: UpcallShare) {
        if std::mem::replace(&mut *write(&self.upcall_share), share) != share {
            self.ports().values().for_each(|port| port.account.reset());
        }
    }

    fn upcall_share(&self) -> UpcallShare {
        *read(&self.upcall_share)
    }

    /// Has ports pay for their upcalls; see [`budget::charge`].
    pub(crate) fn charge(&self, bill: &[Due]) -> Vec<(PortNo, Nanos)> {
        budget::charge(&self.ports(), bill, self.upcall_share(), &self.spare)
    }

    /// `n` megaflows that misses of `port` led to have met packets; see [`budget::refund`].
    pub(crate) fn refund(&self, port: PortNo, n: u64) {
        budget::refund(&self.ports(), port, n, self.upcall_share(), &self.spare);
    }

    /// Counts what a sender dropped.
    pub(crate) fn count_sent(&self, report: SendReport) {
        self.drops.add(DropReason::OutputQueueFull, report.dropped_full);
        self.drops.add(DropReason::OutputTooLong, report.dropped_too_long);
        self.drops.add(DropReason::OutputError, report.dropped_down + report.dropped_error);
        self.drops.add(DropReason::Malformed, report.dropped_malformed);
    }

    /// A packet thread starts to count.
    pub(crate) fn enlist(&self, stats: &Arc<ThreadStats>) {
        lock(&self.counted).live.push(stats.clone());
    }

    /// A packet thread has ended.
    pub(crate) fn retire(&self, stats: &Arc<ThreadStats>) {
        let mut counted = lock(&self.counted);
        counted.live.retain(|s| !Arc::ptr_eq(s, stats));
        counted.retired.add(stats.total());
    }

    /// What all threads ever counted.
    pub(crate) fn totals(&self) -> PmdStats {
        let counted = lock(&self.counted);
        let mut sum = counted.retired;
        for stats in counted.live.iter().chain([&self.inline_stats]) {
            sum.add(stats.total());
        }
        sum
    }

    /// Runs `f` with an engine that nobody else uses: calls may nest, as when an upcall sends a
    /// packet.
    pub(crate) fn with_engine<R>(&self, f: impl FnOnce(&mut Engine) -> R) -> R {
        let idle = lock(&self.idle_engines).pop();
        let mut engine = idle.unwrap_or_else(|| {
            Engine::new(self.inline_stats.clone(), self.cache_entries, self.seed)
        });
        let result = f(&mut engine);
        if !self.closed.load(Ordering::Relaxed) {
            lock(&self.idle_engines).push(engine);
        }
        result
    }

    /// Drops engines and so the upcallers they hold.
    pub(crate) fn drop_engines(&self) {
        let engines = std::mem::take(&mut *lock(&self.idle_engines));
        drop(engines);
    }

    /// Once a second: puts the subtables that are hit most first.
    pub(crate) fn sort_table_sometimes(&self, now: Millis) {
        let last = self.last_sort.load(Ordering::Relaxed);
        if now.since(Millis(last)) < SORT_INTERVAL
            || self
                .last_sort
                .compare_exchange(last, now.0, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        let unsorted = self.table().is_unsorted();
        if unsorted {
            self.table_mut().sort();
        }
    }
}

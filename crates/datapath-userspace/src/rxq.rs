// SPDX-License-Identifier: Apache-2.0
//! The packet threads, and the assignment of receive queues to them.

use crate::balance::{self, Candidate};
use crate::config::{AutoBalance, Config, RxqAssign};
use crate::load::{INTERVAL, KEPT};
use crate::ports::RxQueue;
use crate::shared::Shared;
use crate::stats::PmdStats;
use crate::thread::PacketThread;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// A packet thread, for `dpif-netdev/pmd-stats-show` and `pmd-rxq-show`.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadInfo {
    /// The core to which the thread is pinned. `None`: it runs on any core (OVS: "main thread").
    pub core: Option<usize>,
    /// Its counters since they were last cleared.
    pub stats: PmdStats,
    /// It serves only queues that are pinned to it.
    pub is_isolated: bool,
    /// The ports' queues that it serves, sorted by name.
    pub queues: Vec<QueueInfo>,
}

/// A receive queue of a port.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueInfo {
    /// The port's name.
    pub port: String,
    /// The number of the queue.
    pub number: usize,
    /// The share of its thread's time that it took, from 0 to 1. `None` before the first measurement.
    pub share: Option<f64>,
}

/// The packet threads of a datapath. They start with the first queue that needs one, so dummy mode
/// has none.
#[derive(Default)]
pub(crate) struct Assignment {
    threads: Vec<Arc<PacketThread>>,
    /// The number of the next thread.
    next_number: usize,
    measured: Option<Instant>,
    /// The last attempt of [`AutoBalance`].
    balanced: Option<Instant>,
}

impl Assignment {
    /// Assigns `queue` to the thread of its `wanted_core`, else to the thread with fewest queues.
    pub(crate) fn add(
        &mut self,
        shared: &Arc<Shared>,
        config: &Config,
        queue: &Arc<RxQueue>,
    ) -> io::Result<()> {
        if !queue.is_polled() {
            return Ok(());
        }
        if self.threads.is_empty() {
            match config.cores.as_slice() {
                [] => self.start(shared, None)?,
                cores => cores.iter().try_for_each(|core| self.start(shared, Some(*core)))?,
            }
        }
        let pinned = self.thread_of(queue);
        if pinned.is_none()
            && let Some(core) = queue.wanted_core
        {
            tracing::warn!(
                target: "dpif_netdev",
                "{}: pmd-rxq-affinity names core {core}, on which no packet thread runs: add it to pmd-cpu-mask",
                queue.port_name,
            );
        }
        let open = self.threads.iter().enumerate();
        let open = open.filter(|(_, thread)| !config.rxq_isolate || !is_isolated(thread));
        let fewest = |(_, thread): &(usize, &Arc<PacketThread>)| thread.queues().len();
        let place = pinned
            .or_else(|| open.min_by_key(fewest).map(|(place, _)| place))
            .or_else(|| self.threads.iter().enumerate().min_by_key(fewest).map(|(place, _)| place));
        match place.and_then(|place| self.threads.get(place)) {
            Some(thread) => thread.add(queue)?,
            None => return Ok(()),
        }
        if pinned.is_some() && config.rxq_isolate {
            // The thread is for this queue alone from now on.
            self.assign(config);
        }
        Ok(())
    }

    /// Returns the index of the thread to which a queue is pinned.
    fn thread_of(&self, queue: &RxQueue) -> Option<usize> {
        self.threads.iter().position(|t| t.core.is_some() && t.core == queue.wanted_core)
    }

    pub(crate) fn remove(&self, queue: &RxQueue) {
        for thread in &self.threads {
            thread.remove(queue);
        }
    }

    fn start(&mut self, shared: &Arc<Shared>, core: Option<usize>) -> io::Result<()> {
        let thread = PacketThread::start(shared, self.next_number, core)?;
        self.next_number += 1;
        shared.enlist(&thread.stats);
        self.threads.push(thread);
        Ok(())
    }

    /// Assigns all queues again, by their load in the last minute.
    pub(crate) fn assign(&self, config: &Config) {
        let queues = self.queues();
        let plan = self.plan(&queues, config.rxq_assign, config.rxq_isolate);
        self.follow(&queues, &plan);
    }

    /// Returns all queues with the indices of their threads, those of a port together.
    fn queues(&self) -> Vec<(usize, Arc<RxQueue>)> {
        let of = |(place, thread): (usize, &Arc<PacketThread>)| {
            thread.queues().into_iter().map(move |queue| (place, queue))
        };
        let mut queues: Vec<_> = self.threads.iter().enumerate().flat_map(of).collect();
        queues.sort_by(|(_, a), (_, b)| {
            (a.port, a.number, a.token).cmp(&(b.port, b.number, b.token))
        });
        queues
    }

    /// Returns the queues with their loads in the last `intervals`.
    fn candidates(&self, queues: &[(usize, Arc<RxQueue>)], intervals: usize) -> Vec<Candidate> {
        let of = |(_, queue): &(usize, Arc<RxQueue>)| Candidate {
            load: queue.load.share(intervals).unwrap_or(0.0),
            pinned: self.thread_of(queue),
        };
        queues.iter().map(of).collect()
    }

    fn plan(
        &self,
        queues: &[(usize, Arc<RxQueue>)],
        assign: RxqAssign,
        isolate: bool,
    ) -> Vec<usize> {
        match self.threads.len() {
            0 => Vec::new(),
            count => balance::plan(&self.candidates(queues, KEPT), count, assign, isolate),
        }
    }

    /// Moves queues to the threads of `plan`.
    fn follow(&self, queues: &[(usize, Arc<RxQueue>)], plan: &[usize]) {
        for ((now, queue), wanted) in queues.iter().zip(plan) {
            let (Some(from), Some(to)) = (self.threads.get(*now), self.threads.get(*wanted)) else {
                continue;
            };
            if now == wanted {
                continue;
            }
            from.remove(queue);
            let Err(error) = to.add(queue) else { continue };
            let again = from.add(queue);
            tracing::warn!(
                target: "dpif_netdev",
                "{}: queue {} cannot move to another packet thread ({error}); {}",
                queue.port_name,
                queue.number,
                if again.is_ok() { "it stays" } else { "its packets stop: add the port again" },
            );
        }
    }

    /// Measures the load when an interval is over, and adapts the threads to it. Returns a thread that has ended its
    /// work, for [`join`].
    pub(crate) fn adapt(
        &mut self,
        shared: &Arc<Shared>,
        config: &Config,
        now: Instant,
    ) -> Option<Arc<PacketThread>> {
        let before = *self.measured.get_or_insert(now);
        let elapsed = now.saturating_duration_since(before);
        if elapsed < INTERVAL || self.threads.is_empty() {
            return None;
        }
        self.measured = Some(now);
        for (_, queue) in self.queues() {
            queue.load.measure(elapsed);
        }
        if config.cores.is_empty() {
            return self.adapt_number(shared, config);
        }
        if let Some(auto) = config.auto_balance {
            self.auto_balance(config, auto, now);
        }
        None
    }

    /// Starts a thread that the load needs, or takes out one that it does not need.
    fn adapt_number(&mut self, shared: &Arc<Shared>, config: &Config) -> Option<Arc<PacketThread>> {
        let queues = self.queues();
        let count = self.threads.len();
        let newest = self.candidates(&queues, 1);
        let mut recent = vec![Vec::new(); count];
        for ((place, _), queue) in queues.iter().zip(&newest) {
            if let Some(loads) = recent.get_mut(*place) {
                loads.push(queue.load);
            }
        }
        let long = queues.iter().map(|(_, queue)| queue.load.long_share()).sum();
        let wanted = balance::wanted_threads(&recent, long, config.max_threads.max(1));
        if wanted == count {
            return None;
        }
        let is_busy = wanted > count;
        if is_busy && let Err(error) = self.start(shared, None) {
            tracing::warn!(target: "dpif_netdev", "cannot start another packet thread ({error})");
            return None;
        }
        // The load of the last interval calls for help, that of the last minute for none.
        let candidates = if is_busy { newest } else { self.candidates(&queues, KEPT) };
        let plan = balance::plan(&candidates, wanted.max(1), RxqAssign::Group, false);
        self.follow(&queues, &plan);
        if is_busy {
            tracing::info!(
                target: "dpif_netdev",
                "packet threads are busy: there are {wanted} now, and receive queues are divided among them",
            );
            return None;
        }
        tracing::info!(target: "dpif_netdev", "there are {wanted} packet threads now, as there is little load");
        self.threads.pop()
    }

    /// Assigns queues again when a thread is busy and the loads become more even by it.
    fn auto_balance(&mut self, config: &Config, auto: AutoBalance, now: Instant) {
        let since = now.saturating_duration_since(*self.balanced.get_or_insert(now));
        if since < auto.interval || self.threads.len() < 2 {
            return;
        }
        self.balanced = Some(now);
        let queues = self.queues();
        let candidates = self.candidates(&queues, KEPT);
        let present: Vec<usize> = queues.iter().map(|(place, _)| *place).collect();
        let plan = self.plan(&queues, config.rxq_assign, config.rxq_isolate);
        let [before, after] =
            [&present, &plan].map(|plan| balance::loads(&candidates, plan, self.threads.len()));
        let percent = |part: u8| f64::from(part) / 100.0;
        if !before.iter().any(|load| *load >= percent(auto.load)) {
            return;
        }
        let (before, after) = (balance::variance(&before), balance::variance(&after));
        if before > 0.0 && (before - after) / before >= percent(auto.improvement) {
            tracing::info!(target: "dpif_netdev", "PMD auto load balance: receive queues are assigned again");
            self.follow(&queues, &plan);
        }
    }

    /// Takes all threads out. The caller then calls [`join`] without the lock on `self`, because a
    /// thread may be in an upcall that waits for that lock.
    pub(crate) fn take(&mut self) -> Vec<Arc<PacketThread>> {
        std::mem::take(&mut self.threads)
    }

    pub(crate) fn threads(&self) -> &[Arc<PacketThread>] {
        &self.threads
    }

    /// Returns the threads and their queues, with the loads of the last `intervals`.
    pub(crate) fn infos(&self, config: &Config, intervals: usize) -> Vec<ThreadInfo> {
        let queue = |queue: &Arc<RxQueue>| QueueInfo {
            port: queue.port_name.clone(),
            number: queue.number,
            share: queue.load.share(intervals),
        };
        let info = |thread: &Arc<PacketThread>| ThreadInfo {
            core: thread.core,
            stats: thread.stats.since_cleared(),
            is_isolated: config.rxq_isolate && is_isolated(thread),
            queues: thread.queues().iter().filter(|q| !q.is_miss_queue()).map(queue).collect(),
        };
        self.threads.iter().map(info).collect()
    }

    /// Returns true when the caller is one of the packet threads.
    pub(crate) fn is_caller_one(&self) -> bool {
        let me = std::thread::current().id();
        self.threads.iter().any(|t| t.id() == Some(me))
    }
}

/// Returns true when a thread serves a queue that is pinned to it.
fn is_isolated(thread: &PacketThread) -> bool {
    thread.core.is_some() && thread.queues().iter().any(|queue| queue.wanted_core == thread.core)
}

/// Ends `threads` and returns the queues that they served. Their counts stay in the datapath's
/// sums.
pub(crate) fn join(threads: Vec<Arc<PacketThread>>, shared: &Shared) -> Vec<Arc<RxQueue>> {
    let mut queues = Vec::new();
    for thread in threads {
        for queue in thread.queues() {
            thread.remove(&queue);
            queues.push(queue);
        }
        thread.stop();
        shared.retire(&thread.stats);
    }
    queues
}

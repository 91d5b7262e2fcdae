// SPDX-License-Identifier: Apache-2.0
//! The assignment of receive queues to packet threads.

use crate::config::Config;
use crate::ports::RxQueue;
use crate::shared::Shared;
use crate::stats::PmdStats;
use crate::thread::PacketThread;
use std::io;
use std::sync::Arc;

/// A packet thread, for `dpif-netdev/pmd-stats-show` and `pmd-rxq-show`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadInfo {
    /// The core to which the thread is pinned. `None`: it runs on any core (OVS: "main thread").
    pub core: Option<usize>,
    /// Its counters since they were last cleared.
    pub stats: PmdStats,
    /// Port name and queue number of each queue that it serves, sorted by name.
    pub queues: Vec<(String, usize)>,
}

/// The packet threads of a datapath. They start with the first queue that needs one, so dummy mode
/// has none.
#[derive(Default)]
pub(crate) struct Assignment {
    threads: Vec<Arc<PacketThread>>,
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
            self.start(shared, config)?;
        }
        let wanted = self.threads.iter().find(|t| t.core.is_some() && t.core == queue.wanted_core);
        if wanted.is_none()
            && let Some(core) = queue.wanted_core
        {
            tracing::warn!(
                target: "dpif_netdev",
                "{}: pmd-rxq-affinity names core {core}, on which no packet thread runs: add it to pmd-cpu-mask",
                queue.port_name,
            );
        }
        let thread = wanted.or_else(|| self.threads.iter().min_by_key(|t| t.queues().len()));
        match thread {
            Some(thread) => thread.add(queue),
            None => Ok(()),
        }
    }

    pub(crate) fn remove(&self, queue: &RxQueue) {
        for thread in &self.threads {
            thread.remove(queue);
        }
    }

    fn start(&mut self, shared: &Arc<Shared>, config: &Config) -> io::Result<()> {
        let cores: Vec<Option<usize>> = match config.cores.as_slice() {
            [] => vec![None],
            cores => cores.iter().copied().map(Some).collect(),
        };
        for (number, core) in cores.into_iter().enumerate() {
            let thread = PacketThread::start(shared, number, core)?;
            shared.enlist(&thread.stats);
            self.threads.push(thread);
        }
        Ok(())
    }

    /// Takes all threads out. The caller then calls [`join`] without the lock on `self`, because a
    /// thread may be in an upcall that waits for that lock.
    pub(crate) fn take(&mut self) -> Vec<Arc<PacketThread>> {
        std::mem::take(&mut self.threads)
    }

    pub(crate) fn threads(&self) -> &[Arc<PacketThread>] {
        &self.threads
    }

    /// Returns true when the caller is one of the packet threads.
    pub(crate) fn is_caller_one(&self) -> bool {
        let me = std::thread::current().id();
        self.threads.iter().any(|t| t.id() == Some(me))
    }
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

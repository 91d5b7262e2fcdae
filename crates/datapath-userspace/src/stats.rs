// SPDX-License-Identifier: Apache-2.0
//! What packet threads and the datapath count.

use datapath::DropReason;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Counters of one packet thread, as `dpif-netdev/pmd-stats-show` names them. What this
/// datapath has not (PHWOL, MFEX, simple match, SMC) is always 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PmdStats {
    /// Packets received from ports, or given to `inject`.
    pub received: u64,
    /// Packets looked up again.
    pub recirculated: u64,
    /// Hits of the exact-match cache ("emc hits").
    pub cache_hits: u64,
    /// Hits of the table of megaflows.
    pub megaflow_hits: u64,
    /// Subtables probed in lookups that hit the table of megaflows.
    pub subtable_lookups: u64,
    /// Subtables probed in all lookups.
    pub masks_probed: u64,
    /// Packets that called up because no megaflow matched ("miss with success upcall").
    pub misses: u64,
    /// Packets dropped because the upcall could not be made ("miss with failed upcall").
    pub lost: u64,
    /// Packets handed to ports.
    pub sent_packets: u64,
    /// Batches they were in.
    pub sent_batches: u64,
}

impl PmdStats {
    /// Datapath passes of a packet, on average; 0 without packets.
    pub fn passes_per_packet(&self) -> f64 {
        ratio(self.received + self.recirculated, self.received)
    }

    /// Subtables probed per hit of the megaflow table, on average; 0 without hits.
    pub fn subtables_per_hit(&self) -> f64 {
        ratio(self.subtable_lookups, self.megaflow_hits)
    }

    /// Packets in a batch sent, on average; 0 when none was.
    pub fn packets_per_batch(&self) -> f64 {
        ratio(self.sent_packets, self.sent_batches)
    }

    fn fields(&mut self) -> [&mut u64; COUNTERS] {
        [
            &mut self.received,
            &mut self.recirculated,
            &mut self.cache_hits,
            &mut self.megaflow_hits,
            &mut self.subtable_lookups,
            &mut self.masks_probed,
            &mut self.misses,
            &mut self.lost,
            &mut self.sent_packets,
            &mut self.sent_batches,
        ]
    }

    /// Adds `other`.
    pub(crate) fn add(&mut self, mut other: PmdStats) {
        for (sum, n) in self.fields().into_iter().zip(other.fields()) {
            *sum += *n;
        }
    }

    fn subtract(&mut self, mut other: PmdStats) {
        for (sum, n) in self.fields().into_iter().zip(other.fields()) {
            *sum = sum.saturating_sub(*n);
        }
    }
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

const COUNTERS: usize = 10;

/// A [`PmdStats`] that one thread writes and all may read.
#[derive(Default)]
pub(crate) struct ThreadStats {
    counters: [AtomicU64; COUNTERS],
    /// What they were when `pmd-stats-clear` was asked for.
    cleared: Mutex<PmdStats>,
}

impl ThreadStats {
    /// Adds what a batch counted and zeroes it.
    pub(crate) fn add(&self, counted: &mut PmdStats) {
        for (counter, n) in self.counters.iter().zip(std::mem::take(counted).fields()) {
            if *n != 0 {
                counter.fetch_add(*n, Ordering::Relaxed);
            }
        }
    }

    /// Since the thread started.
    pub(crate) fn total(&self) -> PmdStats {
        let mut stats = PmdStats::default();
        for (n, counter) in stats.fields().into_iter().zip(&self.counters) {
            *n = counter.load(Ordering::Relaxed);
        }
        stats
    }

    /// Since it was last cleared.
    pub(crate) fn since_cleared(&self) -> PmdStats {
        let mut stats = self.total();
        stats.subtract(*self.cleared.lock().unwrap_or_else(PoisonError::into_inner));
        stats
    }

    pub(crate) fn clear(&self) {
        let now = self.total();
        *self.cleared.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }
}

/// One counter for each reason.
#[derive(Default)]
pub(crate) struct Drops([AtomicU64; DropReason::ALL.len()]);

impl Drops {
    pub(crate) fn add(&self, reason: DropReason, n: u64) {
        if n != 0
            && let Some(counter) = self.0.get(reason as usize)
        {
            counter.fetch_add(n, Ordering::Relaxed);
        }
    }

    pub(crate) fn of(&self, reason: DropReason) -> u64 {
        self.0.get(reason as usize).map_or(0, |c| c.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clearing_hides_what_was_before() {
        let stats = ThreadStats::default();
        stats.add(&mut PmdStats { received: 3, ..PmdStats::default() });
        stats.clear();
        stats.add(&mut PmdStats { received: 2, recirculated: 1, ..PmdStats::default() });
        assert_eq!(stats.since_cleared().received, 2);
        assert_eq!(stats.total().received, 5);
        assert_eq!(stats.since_cleared().passes_per_packet(), 1.5);
    }
}

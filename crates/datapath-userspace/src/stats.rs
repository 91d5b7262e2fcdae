// SPDX-License-Identifier: Apache-2.0
//! Counters of packet threads and of the datapath.

use datapath::DropReason;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tunnel::Checks;

/// Counters of one packet thread, as `dpif-netdev/pmd-stats-show` names them. Counters of features
/// that this datapath does not have (PHWOL, MFEX, simple match, SMC) are left out and shown as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PmdStats {
    /// Packets received from ports or passed to `inject`.
    pub received: u64,
    /// Packets looked up again by recirculation.
    pub recirculated: u64,
    /// Hits of the exact-match cache ("emc hits").
    pub cache_hits: u64,
    /// Hits of the table of megaflows.
    pub megaflow_hits: u64,
    /// Subtables probed in lookups that hit the table of megaflows.
    pub subtable_lookups: u64,
    /// Subtables probed in all lookups.
    pub masks_probed: u64,
    /// Upcalls for packets that matched no megaflow ("miss with success upcall").
    pub misses: u64,
    /// Packets that matched no megaflow and were dropped because no upcall was made ("miss with
    /// failed upcall").
    pub lost: u64,
    /// Packets sent to ports.
    pub sent_packets: u64,
    /// Batches in which those packets were sent.
    pub sent_batches: u64,
}

impl PmdStats {
    /// Returns the average number of datapath passes per packet; 0 without packets.
    pub fn passes_per_packet(&self) -> f64 {
        ratio(self.received + self.recirculated, self.received)
    }

    /// Returns the average number of subtables probed per hit of the megaflow table; 0 without
    /// hits.
    pub fn subtables_per_hit(&self) -> f64 {
        ratio(self.subtable_lookups, self.megaflow_hits)
    }

    /// Returns the average number of packets per batch sent; 0 without batches.
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

    /// Adds the counters of `other`.
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

/// A [`PmdStats`] that one thread writes and any thread may read.
#[derive(Default)]
pub(crate) struct ThreadStats {
    counters: [AtomicU64; COUNTERS],
    /// The counters at the last `pmd-stats-clear`.
    cleared: Mutex<PmdStats>,
}

impl ThreadStats {
    /// Adds the counts of a batch and resets them to zero.
    pub(crate) fn add(&self, counted: &mut PmdStats) {
        for (counter, n) in self.counters.iter().zip(std::mem::take(counted).fields()) {
            if *n != 0 {
                counter.fetch_add(*n, Ordering::Relaxed);
            }
        }
    }

    /// Returns the counters since the thread started.
    pub(crate) fn total(&self) -> PmdStats {
        let mut stats = PmdStats::default();
        for (n, counter) in stats.fields().into_iter().zip(&self.counters) {
            *n = counter.load(Ordering::Relaxed);
        }
        stats
    }

    /// Returns the counters since they were last cleared.
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

/// Counters of verified outer checksums.
#[derive(Default)]
pub(crate) struct TunnelChecks([AtomicU64; 4]);

impl TunnelChecks {
    fn fields(checks: &mut Checks) -> [&mut u64; 4] {
        let Checks { ip, wrong_ip, transport, wrong_transport } = checks;
        [ip, wrong_ip, transport, wrong_transport]
    }

    pub(crate) fn add(&self, mut checks: Checks) {
        for (counter, n) in self.0.iter().zip(TunnelChecks::fields(&mut checks)) {
            counter.fetch_add(*n, Ordering::Relaxed);
        }
    }

    pub(crate) fn total(&self) -> Checks {
        let mut checks = Checks::default();
        for (n, counter) in TunnelChecks::fields(&mut checks).into_iter().zip(&self.0) {
            *n = counter.load(Ordering::Relaxed);
        }
        checks
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

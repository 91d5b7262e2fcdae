// SPDX-License-Identifier: Apache-2.0
//! Counts and limits: of all connections, and of zones.

use crate::atomic::{AtomicU64, Ordering};
use crate::layout::{config, zone};
use crate::memory::Memory;

/// Why a connection may not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// The table has as many connections as it may.
    Total,
    /// The zone has as many connections as it may.
    Zone,
    /// The table has as many half-open connections as it may.
    HalfOpen,
    /// The zone has as many half-open connections as it may.
    ZoneHalfOpen,
}

/// The counts and limits in a table's memory.
#[derive(Clone, Copy, Debug)]
pub struct Counts<'a>(pub(crate) &'a dyn Memory);

/// Returns a count; zero for one that threads that were killed left below zero.
fn at_least_zero(count: u64) -> u64 {
    (count as i64).max(0) as u64
}

/// A zone without one of its own has the default limit.
pub type Limit = Option<u32>;

impl<'a> Counts<'a> {
    fn zone_word(&self, zone: u16, at: usize) -> Option<&'a AtomicU64> {
        self.0.zones().get(usize::from(zone) * zone::WORDS + at)
    }

    fn load_zone(&self, zone: u16, at: usize) -> u64 {
        self.zone_word(zone, at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn config(&self, at: usize) -> u64 {
        self.0.config().get(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn total(&self, shard: u8) -> Option<(&'a AtomicU64, &'a AtomicU64)> {
        let line = config::TOTALS + usize::from(shard) % config::SHARDS * config::LINE;
        Some((self.0.config().get(line)?, self.0.config().get(line + 1)?))
    }

    fn sum(&self, which: usize) -> i64 {
        // A shard alone may be "negative" for a moment.
        let shards = 0..config::SHARDS;
        shards
            .map(|shard| self.config(config::TOTALS + shard * config::LINE + which))
            .fold(0u64, u64::wrapping_add) as i64
    }

    /// Returns the sums of connections and of half-open ones. A thread that is killed may leave
    /// negative ones.
    pub(crate) fn totals(&self) -> (i64, i64) {
        (self.sum(0), self.sum(1))
    }

    /// Returns the counts of a zone, as [`Counts::totals`].
    pub(crate) fn of_zone(&self, zone: u16) -> (i64, i64) {
        let load = |at: usize| self.load_zone(zone, at) as i64;
        (load(zone::COUNT), load(zone::HALF_OPEN))
    }

    /// Returns the number of connections.
    pub fn conns(&self) -> u64 {
        at_least_zero(self.sum(0) as u64)
    }

    /// Returns the number of half-open connections.
    pub fn half_open(&self) -> u64 {
        at_least_zero(self.sum(1) as u64)
    }

    /// Returns the number of connections of a zone.
    pub fn zone(&self, zone: u16) -> u64 {
        at_least_zero(self.load_zone(zone, zone::COUNT))
    }

    /// Returns the number of half-open connections of a zone.
    pub fn zone_half_open(&self, zone: u16) -> u64 {
        at_least_zero(self.load_zone(zone, zone::HALF_OPEN))
    }

    /// Returns the largest number of connections.
    pub fn max(&self) -> u64 {
        self.config(config::MAX_CONNS)
    }

    /// Sets the largest number of connections. Connections above it stay.
    pub fn set_max(&self, max: u32) {
        self.set_config(config::MAX_CONNS, max.into());
    }

    /// Sets the largest share of half-open connections, in percent of the largest number of
    /// connections and of zones' limits.
    pub fn set_half_open_percent(&self, percent: u8) {
        self.set_config(config::HALF_OPEN_PERCENT, percent.min(100).into());
    }

    fn set_config(&self, at: usize, value: u64) {
        if let Some(word) = self.0.config().get(at) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Returns a zone's own limit.
    pub fn limit(&self, zone: u16) -> Limit {
        self.load_zone(zone, zone::LIMIT).checked_sub(1).and_then(|limit| u32::try_from(limit).ok())
    }

    /// Sets or removes a zone's own limit. Zero admits nothing.
    pub fn set_limit(&self, zone: u16, limit: Limit) {
        if let Some(word) = self.zone_word(zone, zone::LIMIT) {
            word.store(limit.map_or(0, |limit| u64::from(limit) + 1), Ordering::Relaxed);
        }
    }

    /// Returns the limit of zones without one of their own; zero is none.
    pub fn default_limit(&self) -> u32 {
        self.config(config::DEFAULT_LIMIT) as u32
    }

    /// Sets the limit of zones without one of their own; zero is none.
    pub fn set_default_limit(&self, limit: u32) {
        self.set_config(config::DEFAULT_LIMIT, limit.into());
    }

    /// Returns the limit that holds for a zone.
    pub fn limit_in_force(&self, zone: u16) -> Limit {
        self.limit(zone).or_else(|| Some(self.default_limit()).filter(|limit| *limit > 0))
    }

    /// Counts a connection that is about to be made, half-open.
    ///
    /// # Errors
    ///
    /// A limit is reached; nothing is counted.
    pub(crate) fn reserve(&self, zone: u16, shard: u8) -> Result<(), Exceeded> {
        let percent = self.config(config::HALF_OPEN_PERCENT);
        if self.conns() >= self.max() {
            return Err(Exceeded::Total);
        }
        if self.half_open() >= self.max().saturating_mul(percent) / 100 {
            return Err(Exceeded::HalfOpen);
        }
        let (Some(count), Some(halves), Some((total, total_halves))) = (
            self.zone_word(zone, zone::COUNT),
            self.zone_word(zone, zone::HALF_OPEN),
            self.total(shard),
        ) else {
            return Err(Exceeded::Total);
        };
        let before = at_least_zero(count.fetch_add(1, Ordering::Relaxed));
        let limit = self.limit_in_force(zone).map(u64::from);
        if limit.is_some_and(|limit| before >= limit) {
            count.fetch_sub(1, Ordering::Relaxed);
            return Err(Exceeded::Zone);
        }
        let before = at_least_zero(halves.fetch_add(1, Ordering::Relaxed));
        let cap = limit
            .filter(|limit| *limit >= zone::SMALL_LIMIT)
            .map(|limit| limit.saturating_mul(percent) / 100);
        if cap.is_some_and(|cap| before >= cap) {
            halves.fetch_sub(1, Ordering::Relaxed);
            count.fetch_sub(1, Ordering::Relaxed);
            return Err(Exceeded::ZoneHalfOpen);
        }
        total_halves.fetch_add(1, Ordering::Relaxed);
        total.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Takes a connection off the counts.
    pub(crate) fn release(&self, zone: u16, shard: u8) {
        if let Some(count) = self.zone_word(zone, zone::COUNT) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some((total, _)) = self.total(shard) {
            total.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes a connection off the counts of half-open ones.
    pub(crate) fn release_half_open(&self, zone: u16, shard: u8) {
        if let Some(halves) = self.zone_word(zone, zone::HALF_OPEN) {
            halves.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some((_, halves)) = self.total(shard) {
            halves.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes connections and half-open ones off a zone: those that ended without a count, because
    /// the thread that made or ended them was killed.
    pub(crate) fn correct_zone(&self, zone: u16, (conns, half_open): (i64, i64)) {
        if let Some(count) = self.zone_word(zone, zone::COUNT) {
            count.fetch_sub(conns as u64, Ordering::Relaxed);
        }
        if let Some(halves) = self.zone_word(zone, zone::HALF_OPEN) {
            halves.fetch_sub(half_open as u64, Ordering::Relaxed);
        }
    }

    /// Takes connections and half-open ones off the totals; see [`Counts::correct_zone`].
    pub(crate) fn correct_totals(&self, (conns, half_open): (i64, i64)) {
        if let Some((total, halves)) = self.total(0) {
            total.fetch_sub(conns as u64, Ordering::Relaxed);
            halves.fetch_sub(half_open as u64, Ordering::Relaxed);
        }
    }

    /// Returns true when packets of unknown connections in `zone` may be expected.
    pub fn has_expectations(&self, zone: u16) -> bool {
        self.load_zone(zone, zone::EXPECTATIONS) > 0
    }

    /// Sets the number of expectations of a zone.
    pub(crate) fn set_expectations(&self, zone: u16, count: u64) {
        if let Some(word) = self.zone_word(zone, zone::EXPECTATIONS) {
            word.store(count, Ordering::Relaxed);
        }
    }

    /// Sets the number of expectations of each zone to zero.
    pub(crate) fn forget_expectations(&self) {
        for zone in (0..=u16::MAX).filter(|zone| self.has_expectations(*zone)) {
            self.set_expectations(zone, 0);
        }
    }

    /// Returns the answer of `dpctl/ct-get-limits` for the zones `asked`, or, when none is asked
    /// for, for all that have a limit of their own. There is no newline at the end.
    pub fn limits_text(&self, asked: &[u16]) -> String {
        let own: Vec<u16>;
        let zones = if asked.is_empty() {
            own = (0..=u16::MAX).filter(|zone| self.limit(*zone).is_some()).collect();
            &own
        } else {
            asked
        };
        let mut text = format!("default limit={}", self.default_limit());
        for zone in zones {
            let limit = self.limit_in_force(*zone);
            let count = limit.map_or(0, |_| self.zone(*zone));
            text += &format!("\nzone={zone},limit={},count={count}", limit.unwrap_or(0));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use crate::creation::NewConn;
    use crate::creation::tests::{table, udp};
    use crate::memory::Sizes;
    use crate::ticks::Ticks;

    const SIZES: Sizes =
        Sizes { buckets: 256, max_buckets: 256, chunk_conns: 1024, chunks: 2, ring_slots: 256 };

    #[test]
    fn limits_are_listed_as_open_vswitch_does() {
        let (table, _sweeper) = table(SIZES);
        let counts = table.counts();
        assert_eq!(counts.limits_text(&[]), "default limit=0");
        let mut worker = table.worker();
        for port in 1..9 {
            let new = NewConn::new(udp(1, 2, port, 9), 100);
            let _ = table.create(&worker.pin(), &new, Ticks(1));
        }
        assert_eq!(
            counts.limits_text(&[1, 7]),
            "default limit=0\nzone=1,limit=0,count=0\nzone=7,limit=0,count=0"
        );
        counts.set_default_limit(10);
        counts.set_limit(1, Some(5));
        assert_eq!(counts.limits_text(&[]), "default limit=10\nzone=1,limit=5,count=8");
        assert_eq!(counts.limits_text(&[2]), "default limit=10\nzone=2,limit=10,count=0");
        let more = NewConn::new(udp(1, 2, 99, 9), 100);
        assert!(table.create(&worker.pin(), &more, Ticks(1)).is_err());
        counts.set_limit(1, None);
        assert!(table.create(&worker.pin(), &more, Ticks(1)).is_ok());
    }

    #[test]
    fn a_count_below_zero_does_not_close_a_zone() {
        let (table, _sweeper) = table(SIZES);
        table.counts().set_limit(1, Some(100));
        table.counts().correct_zone(1, (2, 2));
        assert_eq!((table.counts().zone(1), table.counts().zone_half_open(1)), (0, 0));
        let mut worker = table.worker();
        let pinned = worker.pin();
        for port in 1..4 {
            let new = NewConn::new(udp(1, 2, port, 9), 100);
            assert!(table.create(&pinned, &new, Ticks(1)).is_ok());
        }
        assert_eq!((table.counts().zone(1), table.counts().zone_half_open(1)), (1, 1));
    }

    #[test]
    fn half_open_connections_take_half_of_a_large_limit() {
        let (table, _sweeper) = table(SIZES);
        table.counts().set_limit(1, Some(100));
        let mut worker = table.worker();
        let pinned = worker.pin();
        for port in 1..200 {
            let _ = table.create(&pinned, &NewConn::new(udp(1, 2, port, 9), 100), Ticks(1));
        }
        assert_eq!((table.counts().zone(1), table.counts().zone_half_open(1)), (50, 50));
    }
}

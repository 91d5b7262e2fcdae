// SPDX-License-Identifier: Apache-2.0
//! Estimates how many keys of packets the caches need room for.
//!
//! One key for each flow is not always enough. A key has all bits that any flow matches, so a flow
//! that matches fewer bits has several keys. For example, a flow that matches addresses alone has a
//! key for each connection when another flow matches ports. These keys are not counted. But
//! programs count the keys that no cache had although there is a flow for them, and the keys that
//! they evict. When these counts exceed the number that it takes to fill the caches, there are more
//! keys than there is room for.
//!
//! Caches also fill when flows are new, and when another lookup program begins with empty ones.
//! That is no demand. Unneeded room puts the entries of the same keys in more lines of memory, and
//! lookups wait for those lines.

/// Divisor of the room: more misses than a quarter of the room between two checks are many.
const MANY: usize = 4;
/// Number of checks without pressure until less room is tried, at first: two minutes.
const PATIENCE: u32 = 240;
/// Largest number of checks without pressure until less room is tried: an hour.
const MOST_PATIENCE: u32 = 7200;
/// Number of checks after which a trial has succeeded: half a minute.
const TRIAL: u32 = 60;
/// Number of keys that always have room.
const FEW: usize = 1024;

/// Keys beyond those that flows are known to have.
#[derive(Debug)]
pub(crate) struct Demand {
    /// CPUs that count in the same place. Each has an exact-match cache of its own.
    sharers: u32,
    keys: usize,
    /// Misses by place; empty before the first check.
    misses: Vec<Misses>,
    /// Number of checks since there was pressure, or less room was tried.
    calm: u32,
    patience: u32,
    /// Less room was tried last.
    is_trial: bool,
}

/// Misses that programs count in one place.
#[derive(Clone, Copy, Debug)]
struct Misses {
    /// Total count as of the last check.
    counted: u64,
    /// Misses since checks have found many of them and the present caches began.
    pressure: u64,
}

impl Demand {
    /// Returns a demand without misses so far. `sharers` is the number of CPUs that count in one
    /// place.
    pub(crate) fn new(sharers: u32) -> Demand {
        let misses = Vec::new();
        Demand { sharers, keys: 0, misses, calm: 0, patience: PATIENCE, is_trial: false }
    }

    /// Forgets the misses of the earlier exact-match caches, when the caches start from scratch.
    pub(crate) fn clear_pressure(&mut self) {
        self.misses.iter_mut().for_each(|misses| misses.pressure = 0);
    }

    /// Reads the counts of misses, about twice a second. `missed` holds the total count of missed
    /// keys of each place. `room` is the number of keys that the exact-match cache of a CPU has
    /// room for. Returns the number of keys that there should be room for, if there are fewer
    /// flows.
    pub(crate) fn observe(&mut self, missed: impl Iterator<Item = u64>, room: usize) -> usize {
        let (most, mut is_calm, mut is_too_much) = (self.filling(room), true, false);
        for (place, counted) in missed.enumerate() {
            let Some(misses) = self.misses.get_mut(place) else {
                self.misses.push(Misses { counted, pressure: 0 });
                continue;
            };
            let fresh = counted.wrapping_sub(std::mem::replace(&mut misses.counted, counted));
            if fresh > (room / MANY) as u64 {
                is_calm = false;
                misses.pressure = misses.pressure.saturating_add(fresh);
                is_too_much |= misses.pressure > most;
            } else {
                misses.pressure = 0;
            }
        }
        if is_too_much {
            self.grow(room);
        } else if is_calm && self.keys > 0 {
            self.rest();
        }
        self.keys
    }

    /// Returns the most misses that caches have until they hold as many keys as they have room for.
    /// Each key is walked for once, and on each CPU may evict an entry that no key uses any more.
    fn filling(&self, room: usize) -> u64 {
        (u64::from(self.sharers) + 1).saturating_mul(room as u64)
    }

    fn grow(&mut self, room: usize) {
        if std::mem::take(&mut self.is_trial) {
            self.patience = self.patience.saturating_mul(2).min(MOST_PATIENCE);
        }
        self.keys = self.keys.max(room.saturating_mul(2));
        self.clear_pressure();
        self.calm = 0;
    }

    fn rest(&mut self) {
        self.calm += 1;
        self.is_trial &= self.calm < TRIAL;
        if self.calm < self.patience {
            return;
        }
        self.calm = 0;
        self.is_trial = true;
        self.keys /= 2;
        if self.keys < FEW {
            self.keys = 0;
            (self.patience, self.is_trial) = (PATIENCE, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More misses than it takes to fill the cache of one CPU with 3000 keys.
    const PRESSURE: u64 = 6001;

    /// Demand, and all misses of one place so far.
    struct Looks {
        demand: Demand,
        missed: u64,
    }

    impl Looks {
        fn new() -> Looks {
            let mut looks = Looks { demand: Demand::new(1), missed: 1_000_000 };
            assert_eq!(looks.after(0, 3000), 0, "of an earlier daemon");
            looks
        }

        fn after(&mut self, fresh: u64, room: usize) -> usize {
            self.missed += fresh;
            self.demand.observe([self.missed].into_iter(), room)
        }

        /// Returns the number of calm checks until the demand asks for less room.
        fn until_less(&mut self, room: usize) -> u32 {
            1 + (0..100_000).take_while(|_| self.after(0, room) == room).count() as u32
        }
    }

    #[test]
    fn many_misses_ask_for_twice_the_room() {
        let mut looks = Looks::new();
        assert_eq!(looks.after(PRESSURE, 3000), 6000);
        assert_eq!(looks.after(PRESSURE, 3000), 6000, "it takes a moment until there is room");
        assert_eq!(looks.after(2 * PRESSURE, 6000), 12_000);
        assert_eq!(looks.after(0, 12_000), 12_000);
        assert_eq!(looks.after(PRESSURE, 0), 12_000, "the cache is not asked");
    }

    #[test]
    fn caches_that_fill_ask_for_nothing() {
        let mut looks = Looks::new();
        // The fastest case: all keys are walked for, and evict entries that no key uses any more.
        assert_eq!(looks.after(6000, 3000), 0);
        // Another program begins: the same again.
        looks.demand.clear_pressure();
        assert_eq!(looks.after(6000, 3000), 0);
        // It was over: some flows later they fill once more.
        assert_eq!(looks.after(750, 3000), 0, "not many");
        assert_eq!([looks.after(2000, 3000), looks.after(4000, 3000)], [0, 0]);
        // But this is not how caches fill.
        assert_eq!(looks.after(751, 3000), 6000);
    }

    #[test]
    fn each_cpu_fills_a_cache_of_its_own() {
        let mut demand = Demand::new(1);
        demand.observe([0; 3].into_iter(), 3000);
        assert_eq!(demand.observe([6000; 3].into_iter(), 3000), 0);
        assert_eq!(demand.observe([6000, 6751, 6750].into_iter(), 3000), 6000);
        // Where two count together, these are the misses of both.
        let mut demand = Demand::new(2);
        demand.observe([0].into_iter(), 3000);
        assert_eq!(demand.observe([9000].into_iter(), 3000), 0);
        assert_eq!(demand.observe([9751].into_iter(), 3000), 6000);
    }

    #[test]
    fn less_room_is_tried_again_more_and_more_rarely() {
        let mut looks = Looks::new();
        let until_less = |looks: &mut Looks| {
            assert_eq!(looks.after(PRESSURE, 3000), 6000);
            looks.until_less(6000)
        };
        assert_eq!(until_less(&mut looks), PATIENCE);
        assert_eq!(until_less(&mut looks), 2 * PATIENCE);
        assert_eq!(until_less(&mut looks), 4 * PATIENCE);
        // A size that works for a while is no longer a trial.
        (0..TRIAL).for_each(|_| assert_eq!(looks.after(0, 3000), 3000));
        assert_eq!(until_less(&mut looks), 4 * PATIENCE);
    }

    #[test]
    fn what_nobody_needs_any_more_is_given_back() {
        let mut looks = Looks::new();
        looks.after(PRESSURE, 3000);
        let until_none = (0..10 * PATIENCE).take_while(|_| looks.after(0, 6000) > 0).count();
        assert!(until_none as u32 <= 4 * PATIENCE, "{until_none}");
    }
}

//! How many keys of packets the caches are to have room for.
//!
//! One for each flow is not always enough. A key has all bits that any flow looks at, so a flow
//! that looks at fewer has several: of each connection one, say, when it looks at addresses alone
//! and another flow looks at ports. Nobody counts these. But programs count keys that no cache had
//! though there is a flow for them, and keys that they evict: are these many, time and again, there
//! are more keys than there is room for.

/// Misses between two looks that are too many: more than a quarter of what there is room for.
const TOO_MANY: usize = 4;
/// Looks without pressure until less room is tried, at first (two minutes) and at most (an hour).
const PATIENCE: u32 = 240;
const MOST_PATIENCE: u32 = 7200;
/// Looks after which a trial has gone well.
const TRIAL: u32 = 60;
/// So few keys have room always.
const FEW: usize = 1024;

/// Keys beyond those that flows are known to have.
#[derive(Debug)]
pub struct Demand {
    keys: usize,
    /// Misses that were counted at the last look; `None` before the first.
    missed: Option<u64>,
    /// Looks since there was pressure, or less room was tried.
    calm: u32,
    patience: u32,
    /// Less room was tried last.
    is_trial: bool,
}

impl Default for Demand {
    fn default() -> Demand {
        Demand { keys: 0, missed: None, calm: 0, patience: PATIENCE, is_trial: false }
    }
}

impl Demand {
    /// A look, about twice a second: so many keys `missed` so far, while the exact-match cache has
    /// room for `room`. For how many there should be room, if flows have fewer.
    pub fn observe(&mut self, missed: u64, room: usize) -> usize {
        let fresh = missed.wrapping_sub(self.missed.replace(missed).unwrap_or(missed));
        if fresh > (room / TOO_MANY) as u64 {
            self.grow(room);
        } else if self.keys > 0 {
            self.rest();
        }
        self.keys
    }

    fn grow(&mut self, room: usize) {
        if std::mem::take(&mut self.is_trial) {
            self.patience = self.patience.saturating_mul(2).min(MOST_PATIENCE);
        }
        self.keys = self.keys.max(room.saturating_mul(2));
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
            *self = Demand { missed: self.missed, ..Demand::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_misses_ask_for_twice_the_room() {
        let mut demand = Demand::default();
        assert_eq!(demand.observe(1_000_000, 3000), 0, "of an earlier daemon");
        assert_eq!(demand.observe(1_000_750, 3000), 0, "not too many");
        assert_eq!(demand.observe(1_001_501, 3000), 6000);
        assert_eq!(demand.observe(1_009_000, 3000), 6000, "it takes a moment until there is room");
        assert_eq!(demand.observe(1_011_000, 6000), 12_000);
        assert_eq!(demand.observe(1_011_000, 12_000), 12_000);
        assert_eq!(demand.observe(1_011_000, 0), 12_000, "the cache is not asked");
    }

    #[test]
    fn less_room_is_tried_again_more_and_more_rarely() {
        let mut demand = Demand::default();
        let mut missed = 0;
        demand.observe(missed, 3000);
        let mut looks_until_less = |demand: &mut Demand| {
            missed += 6000;
            assert_eq!(demand.observe(missed, 3000), 6000);
            1 + (0..).take_while(|_| demand.observe(missed, 6000) == 6000).count() as u32
        };
        assert_eq!(looks_until_less(&mut demand), PATIENCE);
        assert_eq!(looks_until_less(&mut demand), 2 * PATIENCE);
        assert_eq!(looks_until_less(&mut demand), 4 * PATIENCE);
        // What goes well for a while was no trial.
        (0..TRIAL).for_each(|_| assert_eq!(demand.observe(missed + 1, 3000), 3000));
        assert_eq!(demand.observe(missed + 6000, 3000), 6000);
        let looks = (0..).take_while(|_| demand.observe(missed + 6000, 6000) == 6000).count();
        assert_eq!(looks as u32 + 1, 4 * PATIENCE);
    }

    #[test]
    fn what_nobody_needs_any_more_is_given_back() {
        let mut demand = Demand::default();
        demand.observe(0, 3000);
        demand.observe(6000, 3000);
        let looks = (0..10 * PATIENCE).take_while(|_| demand.observe(6000, 6000) > 0).count();
        assert!(looks as u32 <= 4 * PATIENCE, "{looks}");
    }
}

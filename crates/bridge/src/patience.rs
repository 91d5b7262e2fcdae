// SPDX-License-Identifier: Apache-2.0
//! How long the control thread waits for megaflows to follow the tables.
//!
//! Who changes a rule and then sends a packet expects the packet to meet the rule, so a barrier
//! waits. Who adds a hundred thousand rules, with a barrier behind each, must not pay for as many
//! passes over the megaflows that traffic has made meanwhile. So waiting is paid for from an
//! account that fills as time goes by: it may take a third of the time, and a burst that has
//! spent all goes on without.

use std::time::{Duration, Instant};

/// The most that is saved up, and so the longest wait.
pub(crate) const MOST: Duration = Duration::from_millis(50);
/// One part in so many of the time that was not waited is saved.
const SHARE: u32 = 2;

/// The account. Times are those of one thread.
#[derive(Debug)]
pub(crate) struct Patience {
    saved: Duration,
    /// Up to when it was filled.
    at: Instant,
}

impl Patience {
    /// A full one.
    pub fn new(now: Instant) -> Patience {
        Patience { saved: MOST, at: now }
    }

    /// How long may be waited for what takes `cost`; `None` when that would be in vain.
    pub fn left(&mut self, cost: Duration, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.at);
        self.saved = (self.saved + passed / SHARE).min(MOST);
        self.at = now;
        (self.saved >= cost.min(MOST)).then_some(self.saved)
    }

    /// It was waited since the last [`Patience::left`], until `now`.
    pub fn spend(&mut self, now: Instant) {
        self.saved = self.saved.saturating_sub(now.saturating_duration_since(self.at));
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    #[test]
    fn a_burst_waits_for_a_third_of_its_time() {
        let mut now = Instant::now();
        let begin = now;
        let mut patience = Patience::new(now);
        let mut waited = Duration::ZERO;
        for _ in 0..100_000 {
            now += us(30); // the rule itself
            if patience.left(us(1500), now).is_some() {
                now += us(1500);
                waited += us(1500);
                patience.spend(now);
            }
        }
        let all = now - begin;
        assert!(waited <= all / 3 + MOST && waited + MOST >= all / 3, "{waited:?} of {all:?}");
    }

    #[test]
    fn who_comes_now_and_then_is_waited_for_each_time() {
        let mut now = Instant::now();
        let mut patience = Patience::new(now);
        for _ in 0..100 {
            // More than it ever has is waited for as long as it has.
            assert_eq!(patience.left(Duration::from_secs(3), now), Some(MOST));
            now += MOST;
            patience.spend(now);
            assert_eq!(patience.left(us(1), now), None, "all is spent");
            now += MOST * SHARE;
        }
    }
}

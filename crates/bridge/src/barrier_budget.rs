// SPDX-License-Identifier: Apache-2.0
//! The time that the control thread may wait for megaflows to follow the tables.
//!
//! A controller that changes a rule, sends a barrier and then a packet expects the packet to meet
//! the rule, so a barrier waits. A client that adds 100,000 rules with a barrier after each must
//! not pay for 100,000 passes over the megaflows that traffic has made. So each wait is paid from a
//! budget that fills with time: waits take at most a third of the time, and a barrier that finds
//! the budget empty does not wait.

use std::time::{Duration, Instant};

/// The most that the budget holds, and so the longest wait. A peer takes a reply that comes after
/// 50 ms for prompt.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_millis(50);
/// Time without a wait that pays for one unit of waiting: two units, so that waits take a third.
const TIME_PER_WAIT: u32 = 2;

/// The budget of one thread.
#[derive(Debug)]
pub(crate) struct WaitBudget {
    saved: Duration,
    /// When `saved` was brought up to date.
    at: Instant,
}

impl WaitBudget {
    /// Returns a full budget.
    pub(crate) fn new(now: Instant) -> WaitBudget {
        WaitBudget { saved: LONGEST_WAIT, at: now }
    }

    /// Returns how long the caller may wait for something that takes `cost`; `None` when the budget
    /// does not cover it.
    pub(crate) fn available(&mut self, cost: Duration, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.at);
        self.saved = (self.saved + passed / TIME_PER_WAIT).min(LONGEST_WAIT);
        self.at = now;
        (self.saved >= cost.min(LONGEST_WAIT)).then_some(self.saved)
    }

    /// Takes the wait since the last [`WaitBudget::available`] until `now` from the budget.
    pub(crate) fn spend(&mut self, now: Instant) {
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
        let mut budget = WaitBudget::new(now);
        let mut waited = Duration::ZERO;
        for _ in 0..100_000 {
            now += us(30); // the rule itself
            if budget.available(us(1500), now).is_some() {
                now += us(1500);
                waited += us(1500);
                budget.spend(now);
            }
        }
        let all = now - begin;
        let third = all / 3;
        assert!(
            waited <= third + LONGEST_WAIT && waited + LONGEST_WAIT >= third,
            "{waited:?} of {all:?}"
        );
    }

    #[test]
    fn rare_barriers_wait_each_time() {
        let mut now = Instant::now();
        let mut budget = WaitBudget::new(now);
        for _ in 0..100 {
            // A cost above the budget's most is waited for as long as the budget lasts.
            assert_eq!(budget.available(Duration::from_secs(3), now), Some(LONGEST_WAIT));
            now += LONGEST_WAIT;
            budget.spend(now);
            assert_eq!(budget.available(us(1), now), None, "all is spent");
            now += LONGEST_WAIT * TIME_PER_WAIT;
        }
    }
}

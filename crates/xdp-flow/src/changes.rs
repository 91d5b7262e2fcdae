// SPDX-License-Identifier: Apache-2.0
//! Changes that the guard counts, and whether one is under way.
//!
//! The guard counts a change when it begins and when it ends. While both counts are equal, no change is
//! under way. Counts get lost:
//!
//! - A program of the guard does not run when it interrupts itself on a CPU.
//! - When any program begins or ends to trace a function of the kernel, calls that are in it at that
//!   moment end without their exit programs (`bpf_tramp_image_put` in kernel/bpf/trampoline.c). The
//!   start of another agent is enough.
//! - A call that began before the guard was attached is not counted at all.
//!
//! So [`Balance`] learns the difference of the counts at rest.

use std::time::Duration;

/// Changes since the guard was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Those that began.
    pub begun: u64,
    /// Those that ended.
    pub done: u64,
}

impl Changes {
    /// The number that XDP compares. Neither count falls, so an equal sum means equal counts.
    pub fn sum(self) -> u64 {
        self.begun.wrapping_add(self.done)
    }
}

/// No rule runs for this long after the guard was attached: changes that began before that have ended.
const START: Duration = Duration::from_secs(1);
/// A difference that was never gone for this long is one of lost ends,
const LOSS: Duration = Duration::from_secs(10);
/// if besides neither count moved for this long: a change that is under way takes milliseconds.
const STILL: Duration = Duration::from_millis(300);

/// The difference of begun and ended changes at rest.
///
/// A change that takes longer than ten seconds (`LOSS`) is taken for one whose end was lost, and one that is under way
/// when the beginning of another was lost is not waited for. Its end makes XDP pass
/// all packets, as each does, so a rule from before the change runs at most between the moment at which
/// the change has its effect and its end, and not after its event was read.
#[derive(Debug)]
pub struct Balance {
    /// The time at which the guard was attached.
    start: Duration,
    /// Begun minus ended changes while none is under way.
    at_rest: i64,
    /// Since when there was no moment of rest.
    busy_since: Option<Duration>,
    /// The latest counts, and the time at which they were first seen.
    latest: (Changes, Duration),
}

impl Balance {
    /// Begins at the time at which the guard was attached.
    pub fn new(start: Duration) -> Balance {
        Balance { start, at_rest: 0, busy_since: None, latest: (Changes::default(), start) }
    }

    /// Returns true when no change is under way. `changes` was read at `time`.
    pub fn is_at_rest(&mut self, changes: Changes, time: Duration) -> bool {
        if changes != self.latest.0 {
            self.latest = (changes, time);
        }
        if time < self.start + START {
            return false;
        }
        let difference = changes.begun.wrapping_sub(changes.done).cast_signed();
        // More ends than beginnings: one that was taken for lost, or one without a beginning.
        self.at_rest = self.at_rest.min(difference);
        if difference == self.at_rest {
            self.busy_since = None;
            return true;
        }
        let since = *self.busy_since.get_or_insert(time);
        let is_loss = time >= since + LOSS && time >= self.latest.1 + STILL;
        if is_loss {
            (self.at_rest, self.busy_since) = (difference, None);
        }
        is_loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn changes(begun: u64, done: u64) -> Changes {
        Changes { begun, done }
    }

    #[test]
    fn a_change_under_way_is_waited_for() {
        let mut balance = Balance::new(at(0));
        assert!(!balance.is_at_rest(changes(0, 0), at(999)), "others may be under way");
        assert!(balance.is_at_rest(changes(0, 0), at(1000)));
        for time in (1010..9000).step_by(10) {
            assert!(!balance.is_at_rest(changes(1, 0), at(time)), "{time}");
        }
        assert!(balance.is_at_rest(changes(1, 1), at(9000)));
    }

    #[test]
    fn a_lost_end_is_noticed_after_a_while() {
        let mut balance = Balance::new(at(0));
        assert!(balance.is_at_rest(changes(5, 5), at(2000)));
        // The end of the sixth is lost; others come and go.
        let mut begun = 6;
        let mut restored = None;
        for time in (2000..20_000).step_by(100) {
            if time % 1000 == 0 {
                begun += 1;
            }
            if balance.is_at_rest(changes(begun, begun - 1), at(time)) {
                restored = Some(time);
                break;
            }
        }
        assert!(restored.is_some_and(|time| (12_000..13_000).contains(&time)), "{restored:?}");
        // A change is waited for as before.
        assert!(!balance.is_at_rest(changes(begun + 1, begun - 1), at(13_000)));
        assert!(balance.is_at_rest(changes(begun + 1, begun), at(13_001)));
        // The end came after all.
        assert!(balance.is_at_rest(changes(begun + 1, begun + 1), at(14_000)));
        assert!(!balance.is_at_rest(changes(begun + 2, begun + 1), at(14_001)));
    }

    #[test]
    fn a_lost_beginning_is_noticed_at_once() {
        let mut balance = Balance::new(at(0));
        assert!(balance.is_at_rest(changes(5, 6), at(2000)));
        assert!(!balance.is_at_rest(changes(6, 6), at(2001)));
        assert!(balance.is_at_rest(changes(6, 7), at(2002)));
        assert_ne!(changes(5, 5).sum(), changes(5, 6).sum());
    }

    #[test]
    fn steady_changes_are_no_loss() {
        let mut balance = Balance::new(at(0));
        for step in 0..2000u64 {
            // One is always under way, and another begins every 100 ms.
            let changes = changes(1 + step / 10, step / 10);
            assert!(!balance.is_at_rest(changes, at(2000 + step * 10)));
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Time in the connection table.

use crate::layout::TICK_SHIFT;
use std::time::Duration;

/// A moment in ticks of 2^24 ns (16.8 ms) of `CLOCK_MONOTONIC`. It wraps after 833 days; moments
/// compare by their difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks(pub u32);

/// The longest timeout: moments that are further apart do not compare.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(400 * 86_400);

impl Ticks {
    /// Returns the moment at `since` after the clock's start.
    pub fn at(since: Duration) -> Ticks {
        Ticks((since.as_nanos() >> TICK_SHIFT) as u32)
    }

    /// Returns the moment `ticks` later.
    pub fn after(self, ticks: u32) -> Ticks {
        Ticks(self.0.wrapping_add(ticks))
    }

    /// Returns true when `deadline` has come.
    pub fn reached(self, deadline: Ticks) -> bool {
        self.since(deadline) >= 0
    }

    /// Returns the ticks from `earlier` to this moment; negative when `earlier` is later.
    pub fn since(self, earlier: Ticks) -> i32 {
        self.0.wrapping_sub(earlier.0) as i32
    }
}

/// Returns a timeout in ticks, rounded up, at most [`MAX_TIMEOUT`].
pub fn timeout(timeout: Duration) -> u32 {
    let nanos = timeout.min(MAX_TIMEOUT).as_nanos();
    nanos.div_ceil(1 << TICK_SHIFT) as u32
}

/// Returns the duration of `ticks`; zero for negative ones.
pub fn duration(ticks: i32) -> Duration {
    Duration::from_nanos((ticks.max(0) as u64) << TICK_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_compare_across_the_wrap() {
        let before = Ticks(u32::MAX - 1);
        let deadline = before.after(5);
        assert!(!before.reached(deadline));
        assert!(before.after(5).reached(deadline));
        assert!(before.after(timeout(MAX_TIMEOUT)).since(before) > 0);
        assert_eq!(duration(timeout(Duration::from_secs(86_400)) as i32).as_secs(), 86_400);
    }
}

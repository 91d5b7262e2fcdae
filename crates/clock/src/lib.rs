// SPDX-License-Identifier: Apache-2.0
//! The switch's clock: monotonic milliseconds that dummy mode can stop and warp.
//!
//! Every component that depends on the time gets a [`Clock`] (a cheap, shareable handle) or a
//! [`Millis`] argument. No other code reads the system's clock for decisions, except to measure CPU
//! time and short waits. All methods may be called from any thread.

mod rate_limit;

pub use rate_limit::OncePer;

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Instant;

/// A point on the switch's monotonic clock, in milliseconds since the clock was created.
///
/// Differences are in milliseconds too. Times before the creation of the clock are negative, so
/// `now - timeout` does not wrap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(pub i64);

impl Millis {
    /// Returns the milliseconds from `earlier` to `self`; 0 when `earlier` is later.
    pub fn since(self, earlier: Millis) -> u64 {
        self.0.saturating_sub(earlier.0).max(0) as u64
    }
}

impl Add<i64> for Millis {
    type Output = Millis;
    fn add(self, ms: i64) -> Millis {
        Millis(self.0.saturating_add(ms))
    }
}

impl Sub<i64> for Millis {
    type Output = Millis;
    fn sub(self, ms: i64) -> Millis {
        Millis(self.0.saturating_sub(ms))
    }
}

impl fmt::Debug for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

#[derive(Debug)]
struct State {
    start: Instant,
    stopped: AtomicBool,
    /// Milliseconds. While the clock runs: added to the elapsed time. While stopped: the time
    /// itself.
    offset: AtomicI64,
}

/// A handle on one clock. Clones return the same time.
#[derive(Clone, Debug)]
pub struct Clock(Arc<State>);

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// Creates a clock that runs with the system's monotonic clock and starts at 1 ms, so that
    /// `Millis(0)` can stand for "never".
    pub fn new() -> Clock {
        Clock(Arc::new(State {
            start: Instant::now(),
            stopped: AtomicBool::new(false),
            offset: AtomicI64::new(1),
        }))
    }

    fn elapsed(&self) -> i64 {
        i64::try_from(self.0.start.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// Returns the present time.
    pub fn now(&self) -> Millis {
        let offset = self.0.offset.load(Ordering::Acquire);
        if self.0.stopped.load(Ordering::Acquire) {
            Millis(offset)
        } else {
            Millis(self.elapsed() + offset)
        }
    }

    /// Freezes the clock (`ovs-appctl time/stop`). For the control thread only: two concurrent
    /// calls could freeze it at a wrong time.
    pub fn stop(&self) {
        if !self.is_stopped() {
            let now = self.now();
            self.0.offset.store(now.0, Ordering::Release);
            self.0.stopped.store(true, Ordering::Release);
        }
    }

    /// Returns true after a call of [`Clock::stop`].
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// Moves the clock forward by `ms` (`ovs-appctl time/warp`), stopped or not.
    pub fn advance(&self, ms: u64) {
        let ms = i64::try_from(ms).unwrap_or(i64::MAX);
        self.0.offset.fetch_add(ms, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_clock_moves_only_when_told() {
        let clock = Clock::new();
        clock.stop();
        let t = clock.now();
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(clock.now(), t);
        clock.advance(1000);
        assert_eq!(clock.now(), t + 1000);
        assert_eq!(clock.now().since(t), 1000);
        assert_eq!(t.since(clock.now()), 0);
    }

    #[test]
    fn clones_share_one_time() {
        let clock = Clock::new();
        let other = clock.clone();
        clock.stop();
        clock.advance(7);
        assert_eq!(clock.now(), other.now());
        assert!(other.is_stopped());
    }
}

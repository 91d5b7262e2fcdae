// SPDX-License-Identifier: Apache-2.0
//! What is done at most once in a while.

use crate::Millis;
use std::sync::atomic::{AtomicI64, Ordering};

/// Lets one caller through, and no other until the interval is over; for lines in the log that
/// would else come with every packet.
#[derive(Debug)]
pub struct Seldom {
    /// Milliseconds.
    interval: u64,
    /// When somebody was let through; zero: nobody was.
    last: AtomicI64,
}

impl Seldom {
    /// Once in `interval` milliseconds.
    pub const fn new(interval: u64) -> Seldom {
        Seldom { interval, last: AtomicI64::new(0) }
    }

    /// True for who is let through. All calls are by the same clock.
    pub fn is_time(&self, now: Millis) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        (last == 0 || now.since(Millis(last)) >= self.interval)
            && self
                .last
                .compare_exchange(last, now.0.max(1), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_in_the_interval() {
        let seldom = Seldom::new(100);
        assert!(seldom.is_time(Millis(0)), "the first time, whenever that is");
        assert!(!seldom.is_time(Millis(0)) && !seldom.is_time(Millis(100)));
        assert!(seldom.is_time(Millis(101)) && !seldom.is_time(Millis(200)));
        assert!(seldom.is_time(Millis(5000)));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A limit on how often something is done.

use crate::Millis;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// Admits one caller per interval, for example to a log line that would otherwise be written for
/// every packet. Any thread may use it; of several at the same moment it admits one.
#[derive(Debug)]
pub struct OncePer {
    interval_ms: u64,
    /// [`Millis`] of the last admission; zero when there was none.
    last: AtomicI64,
}

impl OncePer {
    /// Returns a limit of one admission per `interval`, which counts in whole milliseconds.
    pub const fn new(interval: Duration) -> OncePer {
        // 2^64 ms are longer than any uptime.
        OncePer { interval_ms: interval.as_millis() as u64, last: AtomicI64::new(0) }
    }

    /// Returns true when the interval since the last admission is over, and counts that as an
    /// admission. All calls must pass times of one clock.
    pub fn is_due(&self, now: Millis) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        (last == 0 || now.since(Millis(last)) >= self.interval_ms)
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
        let limit = OncePer::new(Duration::from_millis(100));
        assert!(limit.is_due(Millis(0)), "the first time, whenever that is");
        assert!(!limit.is_due(Millis(0)) && !limit.is_due(Millis(100)));
        assert!(limit.is_due(Millis(101)) && !limit.is_due(Millis(200)));
        assert!(limit.is_due(Millis(5000)));
    }
}

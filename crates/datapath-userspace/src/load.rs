// SPDX-License-Identifier: Apache-2.0
//! How much of a packet thread's time each receive queue takes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Shortest time between two measurements.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);
/// Number of measurements that are kept: a minute.
pub(crate) const KEPT: usize = 12;

/// The load of one queue. The thread that serves the queue adds time; the thread that configures
/// measures.
#[derive(Default)]
pub(crate) struct RxLoad {
    /// Nanoseconds in which a thread served the queue, since the queue was added.
    busy: AtomicU64,
    measured: Mutex<Measured>,
}

#[derive(Default)]
struct Measured {
    /// `busy` at the last measurement.
    busy: u64,
    /// The shares of the last [`KEPT`] intervals, the newest first.
    shares: VecDeque<f64>,
}

impl RxLoad {
    /// Adds the time of one batch.
    pub(crate) fn add(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.busy.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Ends an interval that had this length.
    pub(crate) fn measure(&self, elapsed: Duration) {
        let mut measured = self.measured();
        let busy = self.busy.load(Ordering::Relaxed);
        let share = busy.wrapping_sub(measured.busy) as f64 / elapsed.as_nanos().max(1) as f64;
        measured.busy = busy;
        measured.shares.truncate(KEPT - 1);
        measured.shares.push_front(share.min(1.0));
    }

    /// Returns the share of one thread's time, from 0 to 1, that the queue took in the last
    /// `intervals`. `None` before the first measurement.
    pub(crate) fn share(&self, intervals: usize) -> Option<f64> {
        let measured = self.measured();
        let count = intervals.clamp(1, KEPT).min(measured.shares.len());
        let sum: f64 = measured.shares.iter().take(count).sum();
        (count > 0).then(|| sum / count as f64)
    }

    /// Returns the share in the last minute; `None` in the first one.
    pub(crate) fn long_share(&self) -> Option<f64> {
        let is_full = self.measured().shares.len() == KEPT;
        is_full.then(|| self.share(KEPT)).flatten()
    }

    fn measured(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner) // whole after each operation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_last_intervals() {
        let load = RxLoad::default();
        assert_eq!(load.share(1), None);
        load.add(Duration::from_secs(1));
        load.measure(INTERVAL);
        load.measure(INTERVAL);
        assert_eq!(load.share(1), Some(0.0));
        assert_eq!(load.share(2), Some(0.1));
        assert_eq!(load.share(12), Some(0.1));
        for _ in 0..2 * KEPT {
            load.add(Duration::from_secs(9));
            load.measure(INTERVAL);
        }
        assert_eq!(load.share(KEPT), Some(1.0));
    }
}

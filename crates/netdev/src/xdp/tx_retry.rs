// SPDX-License-Identifier: Apache-2.0
//! Retries of frames for which a device had no room.
//!
//! In copy mode the kernel sends from a transmit ring during a system call. It stops when the
//! device's queue is full or too many frames are in flight, and does not signal when there is room
//! again. The next transmission of the socket also sends the frames that are left. If there is
//! none, a retry thread sends them. The thread runs only while frames are left, and [`LINGER`]
//! longer.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// Minimum pause before each round, however many senders are added: a sender may need the same CPU.
const PAUSE: Duration = Duration::from_millis(1);
/// Maximum pause. While no sender progresses the pause doubles, because the other end of a link may
/// block it for any time.
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// Time that the thread stays when no frames are left. Stalls recur soon, and the sending thread
/// would have to start a new one.
const LINGER: Duration = Duration::from_millis(100);

/// The result of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// No frames are left, or none that another retry could send.
    Done,
    /// Fewer frames are left than before.
    Progress,
    /// As many frames are left as before.
    Stuck,
}

/// A sender with frames left.
pub(super) trait Stalled: Send + Sync {
    /// Tries to send the frames. It is called until the outcome is [`Outcome::Done`].
    fn retry(&self) -> Outcome;
}

struct State {
    waiting: Vec<Weak<dyn Stalled>>,
    /// Pause before the next round.
    pause: Duration,
    /// The retry thread runs.
    is_running: bool,
}

/// The retry thread and the senders that it serves.
pub(super) struct TxRetry {
    state: Mutex<State>,
    added: Condvar,
}

impl TxRetry {
    pub(super) const fn new() -> TxRetry {
        let state = State { waiting: Vec::new(), pause: PAUSE, is_running: false };
        TxRetry { state: Mutex::new(state), added: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Entries move in and out whole, so a panicked holder does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Retries `stalled`, which is not in the list yet, until it is done or dropped. Returns false
    /// when no thread can be started.
    pub(super) fn add(&'static self, stalled: Weak<dyn Stalled>) -> bool {
        let mut state = self.state();
        if state.is_running {
            self.added.notify_one();
        } else {
            let thread = thread::Builder::new().name("xdp-tx-retry".to_owned());
            state.is_running = thread.spawn(move || self.run()).is_ok();
        }
        if state.is_running {
            state.waiting.push(stalled);
            state.pause = PAUSE;
        }
        state.is_running
    }

    fn run(&self) {
        let mut state = self.state();
        loop {
            // An addition ends this wait.
            let wait = match state.waiting.is_empty() {
                true => LINGER,
                false => state.pause.saturating_sub(PAUSE),
            };
            let waited = self.added.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.waiting.is_empty() {
                break;
            }
            drop(state);
            thread::sleep(PAUSE);
            let mut waiting = std::mem::take(&mut self.state().waiting);
            let mut progresses = false;
            waiting.retain(|stalled| {
                let outcome = stalled.upgrade().map_or(Outcome::Done, |l| l.retry());
                progresses |= outcome == Outcome::Progress;
                outcome != Outcome::Done
            });
            state = self.state();
            state.pause = if progresses { PAUSE } else { (state.pause * 2).min(MAX_PAUSE) };
            state.waiting.append(&mut waiting);
        }
        state.is_running = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    /// The number of retries that still fail.
    struct Busy(AtomicU32);

    impl Stalled for Busy {
        fn retry(&self) -> Outcome {
            let left = self.0.load(Ordering::Relaxed);
            self.0.store(left.saturating_sub(1), Ordering::Relaxed);
            match left {
                0 => Outcome::Done,
                _ if left.is_multiple_of(2) => Outcome::Stuck,
                _ => Outcome::Progress,
            }
        }
    }

    fn add(retry: &'static TxRetry, tries: u32) -> Arc<Busy> {
        let stalled = Arc::new(Busy(AtomicU32::new(tries)));
        let weak = Arc::downgrade(&stalled);
        assert!(retry.add(weak), "threads can be made");
        stalled
    }

    #[test]
    fn stalled_senders_retry_until_they_are_done_or_gone() {
        static RETRY: TxRetry = TxRetry::new();
        for _ in 0..2 {
            drop(add(&RETRY, u32::MAX));
            let some = [0, 1, 5].map(|tries| add(&RETRY, tries));
            let has_ended = || !RETRY.state().is_running;
            assert!(testing::wait_until(Duration::from_secs(5), has_ended), "there is none left");
            assert!(RETRY.state().waiting.is_empty());
            assert!(some.iter().all(|stalled| stalled.0.load(Ordering::Relaxed) == 0));
        }
    }

    #[test]
    fn rounds_are_no_closer_when_many_are_added() {
        static RETRY: TxRetry = TxRetry::new();
        let begun = Instant::now();
        let stuck = add(&RETRY, u32::MAX);
        for _ in 0..100 {
            drop(add(&RETRY, 0));
            thread::sleep(Duration::from_micros(100));
        }
        let rounds = u32::MAX - stuck.0.load(Ordering::Relaxed);
        assert!(PAUSE * rounds <= begun.elapsed(), "{rounds} in {:?}", begun.elapsed());
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Frames that a device had no room for when they were sent.
//!
//! In copy mode the kernel sends from a transmit ring while it is asked to, and stops where the
//! device's queue is full or too many frames are on their way; that there is room again it tells
//! nobody. Who sends next takes along what was left. For the case that nobody does a thread asks,
//! now and then, which is there only while something is left, and a moment longer.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// Before each round, at least, however many are added: who sends may be on the same CPU.
const PAUSE: Duration = Duration::from_millis(1);
/// The same while nobody gets on: a link may be held up for as long as its other end likes.
const LONGEST: Duration = Duration::from_millis(500);
/// For so long the thread stays when nothing is left: who was late is soon late again, and it is
/// who sends that makes a thread.
const LINGER: Duration = Duration::from_millis(100);

/// What came of another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing is left, or nothing that another try would send.
    Done,
    /// Less is left than before.
    Less,
    /// As much is left as before.
    Stuck,
}

/// Who has frames left.
pub(super) trait Stalled: Send + Sync {
    /// Tries again to send them. Until the outcome is [`Outcome::Done`] it is called again.
    fn try_again(&self) -> Outcome;
}

struct State {
    waiting: Vec<Weak<dyn Stalled>>,
    /// Until the next round.
    pause: Duration,
    /// There is a thread that goes round.
    is_running: bool,
}

/// Has stalled_senders try again.
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
        // Whole entries only: a panicked holder does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `stalled`, which is not among the others, try again until it is done, or gone. False
    /// when there is no thread to be had for that.
    pub(super) fn add(&'static self, stalled: Weak<dyn Stalled>) -> bool {
        let mut state = self.state();
        if state.is_running {
            self.added.notify_one();
        } else {
            let thread = thread::Builder::new().name("xdp-tx-retry".to_owned());
            state.is_running = thread.spawn(move || self.go_round()).is_ok();
        }
        if state.is_running {
            state.waiting.push(stalled);
            state.pause = PAUSE;
        }
        state.is_running
    }

    fn go_round(&self) {
        let mut state = self.state();
        loop {
            // Who is added ends this.
            let rest = match state.waiting.is_empty() {
                true => LINGER,
                false => state.pause.saturating_sub(PAUSE),
            };
            let waited = self.added.wait_timeout(state, rest);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.waiting.is_empty() {
                break;
            }
            drop(state);
            thread::sleep(PAUSE);
            let mut waiting = std::mem::take(&mut self.state().waiting);
            let mut gets_on = false;
            waiting.retain(|stalled| {
                let outcome = stalled.upgrade().map_or(Outcome::Done, |l| l.try_again());
                gets_on |= outcome == Outcome::Less;
                outcome != Outcome::Done
            });
            state = self.state();
            state.pause = if gets_on { PAUSE } else { (state.pause * 2).min(LONGEST) };
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

    /// So many tries are still in vain.
    struct Busy(AtomicU32);

    impl Stalled for Busy {
        fn try_again(&self) -> Outcome {
            let left = self.0.load(Ordering::Relaxed);
            self.0.store(left.saturating_sub(1), Ordering::Relaxed);
            match left {
                0 => Outcome::Done,
                _ if left.is_multiple_of(2) => Outcome::Stuck,
                _ => Outcome::Less,
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
    fn stalled_senders_try_until_they_are_done_or_gone() {
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

// SPDX-License-Identifier: Apache-2.0
//! The revalidator thread's sleep, and what ends it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lets any thread wake one sleeping thread, and wait for what that thread has done.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    state: Mutex<State>,
    changed: Condvar,
    done: Condvar,
    /// The present sleep is one that a nudge ends.
    is_sleep_long: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    pass_requested: bool,
    nudged: bool,
    stop: bool,
}

/// The reason why [`Wakeup::sleep`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The time was over.
    TimedOut,
    /// [`Wakeup::nudge`]: there is work again after a quiet time.
    Nudged,
    /// [`Wakeup::request_pass`].
    PassRequested,
    /// [`Wakeup::stop`]: the thread must end.
    Stop,
}

impl Wakeup {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // three flags
    }

    fn wake(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_one();
    }

    /// Ends the sleep and asks for a pass now.
    pub(crate) fn request_pass(&self) {
        self.wake(|s| s.pass_requested = true);
    }

    /// Ends a long sleep: from now on the thread has to look more often.
    pub(crate) fn nudge(&self) {
        self.wake(|s| s.nudged = true);
    }

    /// Returns true when a nudge would end the present sleep, but for a moment at its beginning.
    pub(crate) fn is_sleep_long(&self) -> bool {
        self.is_sleep_long.load(Ordering::Relaxed)
    }

    /// Ends the sleep and has the thread end.
    pub(crate) fn stop(&self) {
        self.wake(|s| s.stop = true);
    }

    /// Sleeps for `timeout`, or until there is a reason to wake. A nudge ends the sleep only if
    /// `is_long`; otherwise it is returned when the time is over.
    pub(crate) fn sleep(&self, timeout: Duration, is_long: bool) -> Woken {
        let sleeps = |s: &mut State| !(s.pass_requested || s.stop || s.nudged && is_long);
        self.is_sleep_long.store(is_long, Ordering::Relaxed);
        let waiting = self.changed.wait_timeout_while(self.lock(), timeout, sleeps);
        self.is_sleep_long.store(false, Ordering::Relaxed);
        let (mut state, _) = waiting.unwrap_or_else(PoisonError::into_inner);
        let nudged = std::mem::take(&mut state.nudged);
        match std::mem::take(&mut state.pass_requested) {
            _ if state.stop => Woken::Stop,
            true => Woken::PassRequested,
            false if nudged => Woken::Nudged,
            false => Woken::TimedOut,
        }
    }

    /// Makes threads in [`Wakeup::wait`] check again whether they are done.
    pub(crate) fn notify_done(&self) {
        drop(self.lock()); // a waiting thread has seen the change, or gets this notification
        self.done.notify_all();
    }

    /// Blocks until `is_done`, for at most `timeout`; checks after each [`Wakeup::notify_done`].
    pub(crate) fn wait(&self, timeout: Duration, is_done: impl Fn() -> bool) {
        let waiting = self.done.wait_timeout_while(self.lock(), timeout, |_| !is_done());
        drop(waiting.unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Duration = Duration::from_secs(3600);

    #[test]
    fn a_nudge_ends_a_long_sleep() {
        let wakeup = Wakeup::default();
        wakeup.nudge();
        assert_eq!(wakeup.sleep(NEVER, true), Woken::Nudged);
        assert_eq!(wakeup.sleep(Duration::ZERO, true), Woken::TimedOut, "returned once");
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| wakeup.sleep(NEVER, true));
            wakeup.nudge();
            assert_eq!(sleeper.join().unwrap(), Woken::Nudged);
        });
    }

    #[test]
    fn only_a_request_for_a_pass_cuts_a_short_sleep() {
        let wakeup = Wakeup::default();
        wakeup.nudge();
        let (begin, sleep) = (std::time::Instant::now(), Duration::from_millis(20));
        assert_eq!(wakeup.sleep(sleep, false), Woken::Nudged);
        assert!(begin.elapsed() >= sleep);
        wakeup.nudge();
        wakeup.request_pass();
        assert_eq!(wakeup.sleep(NEVER, false), Woken::PassRequested);
        wakeup.stop();
        wakeup.request_pass();
        assert_eq!(wakeup.sleep(NEVER, false), Woken::Stop);
    }
}

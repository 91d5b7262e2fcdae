// SPDX-License-Identifier: Apache-2.0
//! What the revalidator's thread sleeps on, and what wakes it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Rung by any thread for one that waits.
#[derive(Debug, Default)]
pub struct Bell {
    state: Mutex<State>,
    rung: Condvar,
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    wanted: bool,
    roused: bool,
    stop: bool,
}

/// What has woken the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The time that it wanted to sleep is over.
    Late,
    /// There is something to look after again: [`Bell::rouse`].
    Roused,
    /// A pass is wanted: [`Bell::ring`].
    Wanted,
    /// It shall end.
    Stop,
}

impl Bell {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // three flags
    }

    fn wake(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.rung.notify_one();
    }

    /// Asks for a pass now.
    pub(crate) fn ring(&self) {
        self.wake(|s| s.wanted = true);
    }

    /// Says that there is something to look after: who sleeps long has to sleep less.
    pub(crate) fn rouse(&self) {
        self.wake(|s| s.roused = true);
    }

    /// Has the thread end.
    pub(crate) fn stop(&self) {
        self.wake(|s| s.stop = true);
    }

    /// Sleeps for `sleep`, or until there is a reason to wake. To be roused is one only if
    /// `is_long`; else it is told of in the end.
    pub(crate) fn sleep(&self, sleep: Duration, is_long: bool) -> Woken {
        let sleeps = |s: &mut State| !(s.wanted || s.stop || s.roused && is_long);
        let waiting = self.rung.wait_timeout_while(self.lock(), sleep, sleeps);
        let (mut state, _) = waiting.unwrap_or_else(PoisonError::into_inner);
        let roused = std::mem::take(&mut state.roused);
        match std::mem::take(&mut state.wanted) {
            _ if state.stop => Woken::Stop,
            true => Woken::Wanted,
            false if roused => Woken::Roused,
            false => Woken::Late,
        }
    }

    /// Says to those in [`Bell::wait`] that something was done.
    pub(crate) fn tell(&self) {
        drop(self.lock()); // who waits has either seen it or hears this
        self.done.notify_all();
    }

    /// Waits until `is_done`, at most for `patience`; looks whenever something was done.
    pub(crate) fn wait(&self, patience: Duration, is_done: impl Fn() -> bool) {
        let waiting = self.done.wait_timeout_while(self.lock(), patience, |_| !is_done());
        drop(waiting.unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Duration = Duration::from_secs(3600);

    #[test]
    fn a_long_sleep_ends_when_there_is_something_to_look_after() {
        let bell = Bell::default();
        bell.rouse();
        assert_eq!(bell.sleep(NEVER, true), Woken::Roused);
        assert_eq!(bell.sleep(Duration::ZERO, true), Woken::Late, "told once");
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| bell.sleep(NEVER, true));
            bell.rouse();
            assert_eq!(sleeper.join().unwrap(), Woken::Roused);
        });
    }

    #[test]
    fn a_short_sleep_is_not_cut_shorter_but_for_a_pass() {
        let bell = Bell::default();
        bell.rouse();
        let (begin, sleep) = (std::time::Instant::now(), Duration::from_millis(20));
        assert_eq!(bell.sleep(sleep, false), Woken::Roused);
        assert!(begin.elapsed() >= sleep);
        bell.rouse();
        bell.ring();
        assert_eq!(bell.sleep(NEVER, false), Woken::Wanted);
        bell.stop();
        bell.ring();
        assert_eq!(bell.sleep(NEVER, false), Woken::Stop);
    }
}

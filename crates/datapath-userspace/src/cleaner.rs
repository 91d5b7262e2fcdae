// SPDX-License-Identifier: Apache-2.0
//! The thread "ct_clean", which runs the sweeper of the connection table and removes old fragments.
//!
//! The thread starts with the first connection or fragment. It sleeps without a timeout while there
//! are neither. A thread that makes a connection then wakes it ([`Tracking::note_made`]): the maker
//! stores the connection before it reads `is_asleep`, and the cleaner sets `is_asleep` before it
//! looks for connections, so one of them sees the other.

use crate::tracking::{Makers, Tracking};
use clock::Millis;
use conntrack::Sweeper;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between the starts of two passes, as in Open vSwitch.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(20);
/// Time between two removals of old fragments, as in Open vSwitch.
const PURGE_INTERVAL: Duration = Duration::from_secs(60);
/// Pause between two slices of a pass. A slice takes some 0.05 ms, so that a pass uses a twentieth
/// of a CPU.
const PAUSE: Duration = Duration::from_millis(1);
/// Longest sleep while the clock is stopped, because a stopped clock moves without notice.
const STOPPED_CLOCK_SLEEP: Duration = Duration::from_millis(10);
/// Number of new connections after which the sweeper refills the rings of free slots. The rings
/// hold at least 32,768. BPF programs send some packets up when half the rings are empty.
const REFILL: usize = 8_192;
/// Slices after which a wakeup ends, even if packet threads delay the change to a larger index.
const MOST_SLICES: usize = 1_000;
/// Passes after which a sweep ends, even if packet threads delay the release of slots.
const MOST_PASSES: usize = 3;

/// The state of the thread that others see.
pub(crate) struct Cleaner {
    state: Mutex<State>,
    condition: Condvar,
    /// The thread waits for a connection, or was not started.
    is_asleep: AtomicBool,
    /// Connections that were made, possibly, since the start.
    made: AtomicUsize,
}

struct State {
    /// The sweeper, until the thread takes it.
    sweeper: Option<Sweeper>,
    thread: Option<JoinHandle<()>>,
    interval: Duration,
    is_stopped: bool,
    /// The time of the first wakeup that the thread has not seen. Work counts from then on, however
    /// late the thread runs.
    woken_at: Option<Millis>,
}

/// The end of a wait.
enum Event {
    Stop,
    /// Connections were made.
    Wakeup,
    /// The time of a pass or of a removal of fragments has come.
    Time,
}

/// The times of a cleaner's work.
struct Times {
    last_pass: Millis,
    last_purge: Millis,
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Cleaner {
    pub(crate) fn new(sweeper: Sweeper) -> Cleaner {
        Cleaner {
            state: Mutex::new(State {
                sweeper: Some(sweeper),
                thread: None,
                interval: DEFAULT_INTERVAL,
                is_stopped: false,
                woken_at: None,
            }),
            condition: Condvar::new(),
            is_asleep: AtomicBool::new(true),
            made: AtomicUsize::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // whole after every statement
    }

    pub(crate) fn interval(&self) -> Duration {
        self.lock().interval
    }

    pub(crate) fn set_interval(&self, interval: Duration) {
        self.lock().interval = interval.max(Duration::from_millis(1));
        self.condition.notify_one();
    }

    /// Ends the thread and waits for its end. It does not start again.
    pub(crate) fn stop(&self) {
        let thread = {
            let mut state = self.lock();
            state.is_stopped = true;
            state.thread.take()
        };
        self.condition.notify_one();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!(target: "conntrack", "the thread ct_clean had panicked");
        }
    }
}

impl Tracking {
    /// Notes that connections may have been made, or fragments wait.
    pub(crate) fn note_made(self: &Arc<Self>, n: usize) {
        fence(Ordering::SeqCst);
        let before = self.cleaner.made.fetch_add(n, Ordering::Relaxed);
        let is_refill_due = before / REFILL != before.wrapping_add(n) / REFILL
            || (self.makers == Makers::Programs && self.tracker.table().is_low());
        if is_refill_due || self.cleaner.is_asleep.load(Ordering::Relaxed) {
            self.wake_cleaner();
        }
    }

    /// Wakes the thread, and starts it when it does not run.
    pub(crate) fn wake_cleaner(self: &Arc<Self>) {
        let mut state = self.cleaner.lock();
        if state.is_stopped {
            return;
        }
        self.cleaner.is_asleep.store(false, Ordering::SeqCst);
        state.woken_at.get_or_insert(self.clock.now());
        if state.thread.is_none() {
            let tracking = self.clone();
            let started =
                std::thread::Builder::new().name("ct_clean".into()).spawn(move || tracking.clean());
            match started {
                Ok(thread) => state.thread = Some(thread),
                Err(e) => {
                    self.cleaner.is_asleep.store(true, Ordering::SeqCst); // the next one tries again
                    tracing::error!(
                        target: "conntrack",
                        "the thread ct_clean cannot start ({e}): ended connections are not removed",
                    );
                }
            }
        }
        self.cleaner.condition.notify_one();
    }

    /// The thread's work.
    fn clean(&self) {
        let (sweeper, start) = {
            let mut state = self.cleaner.lock();
            (state.sweeper.take(), state.woken_at.unwrap_or_else(|| self.clock.now()))
        };
        let Some(mut sweeper) = sweeper else { return };
        let mut times = Times { last_pass: start, last_purge: start };
        let mut is_settled = true;
        loop {
            match self.wait(&mut times, is_settled) {
                Event::Stop => return,
                Event::Wakeup => is_settled = self.refill(&mut sweeper),
                Event::Time => {
                    let now = self.clock.now();
                    if now.since(times.last_purge) >= millis(PURGE_INTERVAL) as u64 {
                        times.last_purge = now;
                        self.fragments.purge(self.time(now));
                    }
                    times.last_pass = now;
                    is_settled = self.pass(&mut sweeper);
                }
            }
        }
    }

    /// Refills the rings of free slots, and makes a larger index when it is due. Returns false when
    /// some slots are not free yet.
    fn refill(&self, sweeper: &mut Sweeper) -> bool {
        for _ in 0..MOST_SLICES {
            let swept = sweeper.slice(self.ticks(self.clock.now()));
            let state = self.cleaner.lock();
            if !swept.is_growing || state.is_stopped {
                return swept.settled;
            }
            drop(self.cleaner.condition.wait_timeout(state, PAUSE));
        }
        false
    }

    /// Removes ended connections. Returns false when some slots are not free yet.
    fn pass(&self, sweeper: &mut Sweeper) -> bool {
        let mut passes = 0;
        let mut is_settled = false;
        // The first pass may have begun earlier, with a wakeup, and is not a whole one here.
        while !(is_settled && passes > 1) && passes < MOST_PASSES {
            let swept = sweeper.slice(self.ticks(self.clock.now()));
            passes += usize::from(swept.end_of_pass);
            is_settled = swept.settled;
            let state = self.cleaner.lock();
            if state.is_stopped {
                break;
            }
            drop(self.cleaner.condition.wait_timeout(state, PAUSE));
        }
        let now = self.ticks(self.clock.now());
        self.tracker.expectations().expire(self.tracker.table(), now);
        is_settled
    }

    fn wait(&self, times: &mut Times, is_settled: bool) -> Event {
        let mut state = self.cleaner.lock();
        loop {
            if state.is_stopped {
                return Event::Stop;
            }
            if state.woken_at.take().is_some() {
                return Event::Wakeup;
            }
            if is_settled && self.may_sleep() {
                state = match self.cleaner.condition.wait(state) {
                    Ok(state) => state,
                    Err(poisoned) => poisoned.into_inner(),
                };
                let start = state.woken_at.unwrap_or_else(|| self.clock.now());
                *times = Times { last_pass: start, last_purge: start };
                continue;
            }
            let now = self.clock.now();
            let mut due = times.last_pass + millis(state.interval);
            if !self.fragments.is_empty() {
                due = due.min(times.last_purge + millis(PURGE_INTERVAL));
            }
            let left = Duration::from_millis(due.since(now));
            if left.is_zero() {
                return Event::Time;
            }
            let sleep = if self.clock.is_stopped() { left.min(STOPPED_CLOCK_SLEEP) } else { left };
            state = match self.cleaner.condition.wait_timeout(state, sleep) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Returns true when nothing can expire, and lets the next maker of a connection wake the
    /// thread then.
    fn may_sleep(&self) -> bool {
        self.cleaner.is_asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let may = self.makers == Makers::Daemon
            && self.tracker.table().counts().conns() == 0
            && self.fragments.is_empty()
            && self.tracker.expectations().is_empty();
        if !may {
            self.cleaner.is_asleep.store(false, Ordering::SeqCst);
        }
        may
    }
}

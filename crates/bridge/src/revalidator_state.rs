// SPDX-License-Identifier: Apache-2.0
//! Settings and measurements of passes over the megaflows, and the pause between passes.

use clock::{Millis, OncePer};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// The longest time between two passes, unless the database asks for a longer one.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// The longest time between two passes while rules have timeouts, which count in seconds.
const LONGEST_PAUSE_WITH_TIMEOUTS: Duration = Duration::from_secs(2);
/// Pause after a pass, in multiples of the pass's length: passes take a 500th of the thread's time.
const PAUSE_PER_COST: u32 = 500;
/// Shortest time between two passes, whatever is requested: to wake up for each rule of a burst
/// would take longer than the passes.
pub(crate) const LEAST_REST: Duration = Duration::from_millis(1);
/// Time between two passes that are requested because a port is under upcall pressure.
const PRESSURE_INTERVAL: Duration = Duration::from_millis(250);
/// Value of `RevalidatorState::cost_ns` before the first full pass.
const UNKNOWN_COST: u64 = u64::MAX;

/// Settings (`Open_vSwitch:other_config`) and measurements of passes.
#[derive(Debug)]
pub struct RevalidatorState {
    /// `max-idle` in milliseconds: idle time after which a megaflow is removed.
    pub max_idle_ms: AtomicU64,
    /// `max-revalidator` in milliseconds: time between two passes. Less than 100 counts as 100.
    pub interval_ms: AtomicU64,
    /// The database sets `max-revalidator`: the interval between passes does not grow.
    pub is_interval_given: AtomicBool,
    /// `flow-limit`: highest number of megaflows, which passes may lower for a while.
    pub configured_limit: AtomicU64,
    /// Length of the last full pass in nanoseconds; [`UNKNOWN_COST`] before there was one.
    cost_ns: AtomicU64,
    /// Number of passes that have begun since the start.
    pub passes: AtomicU64,
    /// Highest number of megaflows at the start of a full pass.
    pub max_flows: AtomicU64,
    /// Running average of that number: each full pass counts as much as all earlier ones.
    pub average_flows: AtomicU64,
    /// Version of the snapshot that every megaflow was checked against.
    pub(crate) done_version: AtomicU64,
    /// Number of the last pass that looked at all megaflows.
    pub(crate) looked_at_all: AtomicU64,
    /// The next full pass must look at all megaflows.
    pub(crate) is_look_due: AtomicBool,
    /// Idle time, in milliseconds, after which megaflows are scheduled for a visit.
    pub(crate) scheduled_idle_ms: AtomicU64,
    /// A pass found packets or removed megaflows since the revalidator's thread last took the flag.
    pub(crate) is_stirred: AtomicBool,
    /// Passes are suspended (`revalidator/pause`).
    pub paused: AtomicBool,
    /// Some rules have timeouts: their last use must be credited in time.
    pub(crate) is_awaited: AtomicBool,
    /// Limits the rate of the passes that are requested because a port is under upcall pressure.
    pub(crate) pressed: OncePer,
    /// Start of the last finished pass, in milliseconds: everything that packets did earlier is
    /// credited.
    credited_ms: AtomicI64,
}

impl Default for RevalidatorState {
    fn default() -> Self {
        RevalidatorState {
            max_idle_ms: AtomicU64::new(10_000),
            interval_ms: AtomicU64::new(500),
            is_interval_given: AtomicBool::new(false),
            configured_limit: AtomicU64::new(200_000),
            cost_ns: AtomicU64::new(UNKNOWN_COST),
            passes: AtomicU64::new(0),
            max_flows: AtomicU64::new(0),
            average_flows: AtomicU64::new(0),
            done_version: AtomicU64::new(0),
            looked_at_all: AtomicU64::new(0),
            is_look_due: AtomicBool::new(true),
            scheduled_idle_ms: AtomicU64::new(0),
            is_stirred: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
            pressed: OncePer::new(PRESSURE_INTERVAL),
            credited_ms: AtomicI64::new(0),
        }
    }
}

impl RevalidatorState {
    /// Returns the length of the last full pass; `None` before there was one.
    pub fn last_pass(&self) -> Option<Duration> {
        let ns = self.cost_ns.load(Ordering::Relaxed);
        (ns != UNKNOWN_COST).then(|| Duration::from_nanos(ns))
    }

    /// Returns an upper estimate of the time until the thread has made a pass that is requested
    /// now: another pass may be under way, followed by its rest.
    pub(crate) fn until_passed(&self) -> Duration {
        let cost = self.last_pass().unwrap_or_default();
        cost.saturating_mul(2).saturating_add(cost.max(LEAST_REST))
    }

    /// Returns true when every megaflow was checked against snapshot `version`.
    pub(crate) fn is_done(&self, version: u64) -> bool {
        self.done_version.load(Ordering::Acquire) >= version
    }

    /// Returns the time up to which everything that packets did is credited.
    pub(crate) fn credited(&self) -> Millis {
        Millis(self.credited_ms.load(Ordering::Acquire))
    }

    /// Returns the configured time between two passes.
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms.load(Ordering::Relaxed).max(100))
    }

    /// Returns the time from a pass that took `cost` to the next one when nothing happens.
    /// `is_tight` means that there is hardly room for another megaflow. `still` is the number of
    /// passes in a row that found no packets: each doubles the time.
    pub(crate) fn pause(&self, cost: Duration, is_tight: bool, still: u32) -> Duration {
        let interval = self.interval();
        if is_tight || self.is_interval_given.load(Ordering::Relaxed) {
            return interval;
        }
        let is_awaited = self.is_awaited.load(Ordering::Relaxed);
        let longest = if is_awaited { LONGEST_PAUSE_WITH_TIMEOUTS } else { LONGEST_PAUSE };
        let by_cost = cost.saturating_mul(PAUSE_PER_COST);
        let by_rest = interval.saturating_mul(1 << still.min(8));
        by_cost.max(by_rest).clamp(interval, interval.max(longest))
    }

    /// Records a full pass over `flows` megaflows that took `cost`.
    pub(crate) fn record_pass(&self, cost: Duration, flows: u64) {
        let ns = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
        self.cost_ns.store(ns, Ordering::Relaxed);
        self.max_flows.fetch_max(flows, Ordering::Relaxed);
        let average = self.average_flows.load(Ordering::Relaxed);
        self.average_flows.store((average + flows) / 2, Ordering::Relaxed);
    }

    /// Records that everything that packets did up to `time` is credited.
    pub(crate) fn record_credited(&self, time: Millis) {
        self.credited_ms.store(time.0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dear_passes_are_rarer_unless_the_database_says_how_often() {
        let state = RevalidatorState::default();
        let ms = Duration::from_millis;
        let longest_timed = LONGEST_PAUSE_WITH_TIMEOUTS;
        assert_eq!(state.pause(ms(1), false, 0), ms(500));
        assert_eq!(state.pause(ms(1), false, 1), ms(1000), "no packets");
        assert_eq!(state.pause(ms(1), false, u32::MAX), LONGEST_PAUSE, "for long");
        assert_eq!(state.pause(ms(4), false, 0), ms(2000));
        assert_eq!(state.pause(ms(200), false, 0), LONGEST_PAUSE);
        assert_eq!(state.pause(ms(200), true, 9), ms(500), "there is no room");
        state.is_awaited.store(true, Ordering::Relaxed);
        assert_eq!(state.pause(ms(200), false, 0), longest_timed, "rules may time out");
        assert_eq!(state.pause(ms(1), false, 9), longest_timed);
        state.is_interval_given.store(true, Ordering::Relaxed);
        assert_eq!(state.pause(ms(200), false, 9), ms(500));
        state.interval_ms.store(10_000, Ordering::Relaxed);
        assert_eq!(state.pause(ms(1), false, 0), ms(10_000));
        state.is_interval_given.store(false, Ordering::Relaxed);
        assert_eq!(state.pause(ms(200), false, 9), ms(10_000));
    }
}

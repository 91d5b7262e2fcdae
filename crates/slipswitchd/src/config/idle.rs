// SPDX-License-Identifier: Apache-2.0
//! How long nothing is due by the clock, so that an idle daemon sleeps.

use super::Configuration;
use super::state::SwitchState;
use crate::args::DummyLevel;
use clock::Millis;
use std::time::Duration;

impl Configuration {
    /// Returns how long no periodic work is due, unless another event brings some: every such event
    /// rings [`super::Context::activity`] or publishes changes. `deadlines` are those of the switch
    /// and of OpenFlow connections. `None` when there is something to poll.
    pub fn time_until_next_deadline(
        &self,
        now: Millis,
        dummy: DummyLevel,
        deadlines: impl IntoIterator<Item = Millis>,
    ) -> Option<Duration> {
        let state = &self.state;
        let changes_by_itself = dummy != DummyLevel::Off || state.unwritten.get();
        let is_busy = !state.configured || state.restoring.is_some() || has_controllers(state);
        if changes_by_itself || is_busy {
            return None;
        }
        if !self.is_ready() {
            return None; // the log reports when that lasts
        }
        let interval = i64::try_from(state.tunables.stats_interval).unwrap_or(i64::MAX);
        let statistics = state.stats_written.map_or(now, |at| at + interval);
        let due = deadlines.into_iter().fold(statistics, Ord::min);
        // The clock counts whole milliseconds.
        Some(Duration::from_millis(due.since(now) + 1))
    }
}

/// Controllers come and go, and their columns in the database change with them.
fn has_controllers(state: &SwitchState) -> bool {
    state.bridges.values().any(|bridge| !bridge.controllers.is_empty())
}

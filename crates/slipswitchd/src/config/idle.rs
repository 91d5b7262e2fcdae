// SPDX-License-Identifier: Apache-2.0
//! How long nothing is due by the clock, so that an idle daemon sleeps.

use super::{is_ready, state::State};
use crate::args::DummyLevel;
use crate::daemon::Daemon;
use std::time::Duration;

/// How long neither [`Daemon::tick`] nor [`super::status_tick`] has anything to do, unless
/// somebody gives it to them; these then ring [`Daemon::activity`], as every
/// [`Daemon::settle`] does. `None` when there is something that has to be looked at again and
/// again.
pub fn time_until_next_deadline(d: &Daemon) -> Option<Duration> {
    let state = &d.configuration.state;
    let changes_by_itself = d.dummy != DummyLevel::Off || state.unwritten.get();
    if changes_by_itself || !state.configured || state.restoring.is_some() || has_controllers(state)
    {
        return None;
    }
    if !d.configuration.client.as_ref().is_some_and(|c| is_ready(c)) {
        return None; // a person is told when that lasts
    }
    let now = d.clock.now();
    let interval = i64::try_from(state.tunables.stats_interval).unwrap_or(i64::MAX);
    let statistics = state.stats_written.map_or(now, |at| at + interval);
    let due = [d.switch.deadline(), d.connections.deadline()].into_iter().flatten();
    let due = due.fold(statistics, Ord::min);
    // The clock counts whole milliseconds.
    Some(Duration::from_millis(due.since(now) + 1))
}

/// Controllers come and go, and what the database says of them with them.
fn has_controllers(state: &State) -> bool {
    state.bridges.values().any(|bridge| !bridge.controllers.is_empty())
}

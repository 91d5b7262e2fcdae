// SPDX-License-Identifier: Apache-2.0
//! The connections of a datapath: the tracker, reassembly, the clock of both.

use crate::cleaner::Cleaner;
use crate::ct::Waiting;
use clock::{Clock, Millis, OncePer};
use conntrack::{
    Barrier, Counter, Fragments, NoBarrier, Reassembly, Sweeper, Table, Ticks, Tracker,
};
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Interval between two warnings of the same kind: five a minute, as in Open vSwitch.
const LOG_INTERVAL: Duration = Duration::from_secs(12);

/// The threads that make connections in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Makers {
    /// Threads of this process only.
    Daemon,
    /// BPF programs too. The sweeper therefore runs at every interval.
    Programs,
}

/// The table in which a datapath tracks connections.
pub struct ConnectionTable {
    /// The table. The datapath has its only sweeper.
    pub table: Arc<Table>,
    /// Waits for the programs that use the table.
    pub barrier: Box<dyn Barrier>,
    /// The threads that make connections.
    pub makers: Makers,
}

impl fmt::Debug for ConnectionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionTable").field("makers", &self.makers).finish_non_exhaustive()
    }
}

impl Default for ConnectionTable {
    /// Returns a table in memory of this process.
    fn default() -> ConnectionTable {
        let mut rng = fastrand::Rng::new();
        ConnectionTable {
            table: Arc::new(Table::in_plain_memory([rng.u64(..), rng.u64(..)])),
            barrier: Box::new(NoBarrier),
            makers: Makers::Daemon,
        }
    }
}

/// The connections of one datapath. Any thread may use them.
pub(crate) struct Tracking {
    pub(crate) tracker: Tracker,
    pub(crate) fragments: Fragments<Waiting>,
    pub(crate) cleaner: Cleaner,
    pub(crate) makers: Makers,
    pub(crate) clock: Clock,
    /// `CLOCK_MONOTONIC` when `clock` was at zero. BPF programs use that clock.
    origin: Duration,
    exhausted: OncePer,
    invalid_ftp: OncePer,
    too_long: OncePer,
}

impl Tracking {
    pub(crate) fn new(clock: Clock, connections: ConnectionTable) -> Tracking {
        let ConnectionTable { table, barrier, makers } = connections;
        let sweeper = Sweeper::new(table.clone(), barrier);
        let time = clock_gettime(ClockId::Monotonic);
        let monotonic = Duration::try_from(time).unwrap_or_default();
        let origin = monotonic.saturating_sub(since_zero(clock.now()));
        Tracking {
            tracker: Tracker::new(table),
            fragments: Fragments::default(),
            cleaner: Cleaner::new(sweeper),
            makers,
            clock,
            origin,
            exhausted: OncePer::new(LOG_INTERVAL),
            invalid_ftp: OncePer::new(LOG_INTERVAL),
            too_long: OncePer::new(LOG_INTERVAL),
        }
    }

    /// Returns true when there may be connections already.
    pub(crate) fn is_in_use(&self) -> bool {
        self.makers == Makers::Programs || self.tracker.table().counts().conns() > 0
    }

    /// Returns a time of the clock as one of `CLOCK_MONOTONIC`.
    pub(crate) fn time(&self, now: Millis) -> Duration {
        self.origin + since_zero(now)
    }

    pub(crate) fn ticks(&self, now: Millis) -> Ticks {
        Ticks::at(self.time(now))
    }

    /// Logs the failure of a `ct` action that Open vSwitch logs.
    pub(crate) fn log_failure(&self, failure: Counter, now: Millis) {
        if failure == Counter::NatExhausted && self.exhausted.is_due(now) {
            tracing::warn!(
                target: "conntrack",
                "Unable to NAT due to tuple space exhaustion - if DoS attack, use firewalling \
                 and/or zone partitioning.",
            );
        } else if failure == Counter::InvalidFtp && self.invalid_ftp.is_due(now) {
            tracing::warn!(target: "conntrack", "Invalid FTP control packet format");
        }
    }

    pub(crate) fn log_too_long(&self, now: Millis) {
        if self.too_long.is_due(now) {
            tracing::warn!(
                target: "conntrack",
                "fragments of a packet of more than 65535 bytes are dropped \
                 (counter datapath_drop_fragments_too_long)",
            );
        }
    }

    /// Returns the number of fragments that were removed without being sent on.
    pub(crate) fn purged(&self) -> u64 {
        let families = [conntrack::Family::V4, conntrack::Family::V6];
        families.iter().map(|family| self.fragments.counters(*family).purged).sum()
    }
}

fn since_zero(now: Millis) -> Duration {
    Duration::from_millis(now.since(Millis(0)))
}

impl datapath::Connections for Tracking {
    fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    fn fragments(&self) -> &dyn Reassembly {
        &self.fragments
    }

    fn now(&self) -> Ticks {
        self.ticks(self.clock.now())
    }

    fn sweep_interval(&self) -> Duration {
        self.cleaner.interval()
    }

    fn set_sweep_interval(&self, interval: Duration) {
        self.cleaner.set_interval(interval);
    }
}

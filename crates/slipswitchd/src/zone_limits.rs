// SPDX-License-Identifier: Apache-2.0
//! Changes to the limits of connections in zones, by a command or by the database, with the lines
//! of Open vSwitch's log.

use conntrack::{Counts, Limit};

/// Sets or removes the limit of a zone.
pub(crate) fn set_zone_limit(counts: Counts<'_>, zone: u16, limit: Limit) {
    let before = counts.limit(zone);
    counts.set_limit(zone, limit);
    match (before, limit) {
        (None, Some(limit)) => {
            tracing::info!(target: "conntrack", "Created zone limit of {limit} for zone {zone}");
        }
        (Some(_), Some(limit)) => {
            tracing::info!(target: "conntrack", "Changed zone limit of {limit} for zone {zone}");
        }
        (Some(_), None) => {
            tracing::info!(target: "conntrack", "Deleted zone limit for zone {zone}");
        }
        (None, None) => {}
    }
}

/// Sets the limit of zones without one of their own; zero is none.
pub(crate) fn set_default_limit(counts: Counts<'_>, limit: u32) {
    counts.set_default_limit(limit);
    tracing::info!(target: "conntrack", "Set default zone limit to {limit}");
}

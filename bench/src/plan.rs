// SPDX-License-Identifier: Apache-2.0
//! How much is measured.

use std::time::Duration;

/// Rounds, and how long each is.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds of a measurement.
    pub rounds: u32,
    /// The number of rounds was given on the command line: long measurements take no fewer.
    pub is_exact: bool,
    /// Shorter rounds.
    pub quick: bool,
    /// All points.
    pub full: bool,
}

impl Plan {
    /// For measurements that are many or long: at most `rounds`, unless the number was given.
    pub fn at_most(self, rounds: u32) -> Plan {
        let rounds = if self.is_exact { self.rounds } else { self.rounds.min(rounds) };
        Plan { rounds, ..self }
    }

    /// How long traffic is observed in a round.
    pub fn window(&self) -> Duration {
        Duration::from_millis(if self.quick { 300 } else { 1000 })
    }
}

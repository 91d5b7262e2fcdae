// SPDX-License-Identifier: Apache-2.0
//! Counters of configuration for `coverage/show`, by the names of OVS.

use ovsdb::Outcome;
use std::cell::Cell;

/// Counters of events since the start. For the control thread only.
#[derive(Debug, Default)]
pub(super) struct Counts {
    reconfigured: Cell<u64>,
    success: Cell<u64>,
    unchanged: Cell<u64>,
    try_again: Cell<u64>,
    not_locked: Cell<u64>,
    error: Cell<u64>,
    /// The connection ended before the server answered.
    aborted: Cell<u64>,
}

fn add(counter: &Cell<u64>) {
    counter.set(counter.get().wrapping_add(1));
}

impl Counts {
    /// Counts a reconfiguration.
    pub fn reconfigured(&self) {
        add(&self.reconfigured);
    }

    /// Counts a transaction by its outcome.
    pub fn transaction<E>(&self, outcome: &Result<Outcome, E>) {
        add(match outcome {
            Ok(Outcome::Committed(_)) => &self.success,
            Ok(Outcome::Unchanged) => &self.unchanged,
            Ok(Outcome::TryAgain(_)) => &self.try_again,
            Ok(Outcome::NotLocked) => &self.not_locked,
            Ok(Outcome::Failed(_)) => &self.error,
            Err(_) => &self.aborted,
        });
    }

    /// Returns all counters in a fixed order.
    pub fn all(&self) -> [(&'static str, u64); 7] {
        [
            ("bridge_reconfigure", self.reconfigured.get()),
            ("txn_success", self.success.get()),
            ("txn_unchanged", self.unchanged.get()),
            ("txn_try_again", self.try_again.get()),
            ("txn_not_locked", self.not_locked.get()),
            ("txn_error", self.error.get()),
            ("txn_aborted", self.aborted.get()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_its_counter() {
        let counts = Counts::default();
        counts.reconfigured();
        counts.transaction::<()>(&Ok(Outcome::Unchanged));
        counts.transaction::<()>(&Ok(Outcome::NotLocked));
        counts.transaction(&Err(()));
        counts.transaction(&Err(()));
        assert_eq!(counts.all().map(|(_, n)| n), [1, 0, 1, 0, 1, 0, 2]);
    }
}

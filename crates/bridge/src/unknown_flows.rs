// SPDX-License-Identifier: Apache-2.0
//! Whether the datapath may have megaflows that the switch has no record of.

use std::sync::atomic::{AtomicU64, Ordering};

/// Whether the datapath may have megaflows that the switch has no record of.
#[derive(Debug)]
pub(crate) struct UnknownFlows {
    /// Number of times that there was a reason to expect such megaflows.
    expected: AtomicU64,
    /// Number of these reasons at the start of the last pass that has dealt with all the megaflows
    /// it found.
    met: AtomicU64,
}

impl Default for UnknownFlows {
    /// Expects such megaflows from the start: an earlier daemon may have left some.
    fn default() -> Self {
        UnknownFlows { expected: AtomicU64::new(1), met: AtomicU64::new(0) }
    }
}

impl UnknownFlows {
    /// Notes one more reason to expect such megaflows.
    pub(crate) fn expect(&self) {
        self.expected.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the number of reasons up to now, for [`UnknownFlows::met`].
    pub(crate) fn expected(&self) -> u64 {
        self.expected.load(Ordering::Acquire)
    }

    /// Notes that a pass which began when there were `expected` reasons has dealt with all unknown
    /// flows.
    pub(crate) fn met(&self, expected: u64) {
        self.met.fetch_max(expected, Ordering::AcqRel);
    }

    /// Returns true when a reason came after the start of the last such pass.
    pub(crate) fn may_be_there(&self) -> bool {
        self.met.load(Ordering::Acquire) != self.expected()
    }
}

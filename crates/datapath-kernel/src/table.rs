// SPDX-License-Identifier: Apache-2.0
//! The list of the megaflows that the kernel is to have.

use datapath::{FlowStats, Megaflow, Ufid};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A megaflow of the list.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) flow: Megaflow,
    /// The counts of kernel megaflows that other programs removed.
    pub(crate) earlier: FlowStats,
    /// The last total that was read.
    pub(crate) last: FlowStats,
    /// The number of the last sweep that found it in the kernel, or that it was installed in.
    pub(crate) seen: u64,
}

impl Held {
    /// Returns the total with these counts of the kernel. It never decreases.
    pub(crate) fn total(&mut self, kernel: FlowStats) -> FlowStats {
        let total = self.earlier.plus(kernel);
        self.last = FlowStats {
            packets: total.packets.max(self.last.packets),
            bytes: total.bytes.max(self.last.bytes),
            used: total.used.max(self.last.used),
            tcp_flags: total.tcp_flags | self.last.tcp_flags,
        };
        self.last
    }
}

/// The megaflows by identity. Its lock is held while the kernel takes or changes one of them, so
/// that list and kernel agree.
#[derive(Debug, Default)]
pub(crate) struct Table(Mutex<HashMap<Ufid, Held>>);

impl Table {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<Ufid, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

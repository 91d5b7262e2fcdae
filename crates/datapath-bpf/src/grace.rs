// SPDX-License-Identifier: Apache-2.0
//! Waiting until every program that runs now has ended.
//!
//! Programs run inside RCU read-side critical sections, so an RCU grace period of the kernel is
//! what is waited for. `membarrier(MEMBARRIER_CMD_GLOBAL)` is one (`kernel/sched/membarrier.c`
//! calls `synchronize_rcu` when more than one CPU is online; with one, no program is in the
//! midst of its run while a process runs). It is not there on a kernel with `nohz_full` CPUs;
//! then an array of maps is updated, which waits as well (`maybe_wait_bpf_programs` in
//! `kernel/bpf/syscall.c`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::sys;

/// How this kernel is made to wait.
pub enum Grace {
    /// membarrier(2).
    Barrier,
    /// An array of maps, and the map in it.
    Update(OwnedFd, OwnedFd),
    /// No programs run: tables without a kernel.
    Nobody,
}

impl Grace {
    /// Finds out what this kernel has.
    pub fn new() -> io::Result<Grace> {
        if sys::membarrier().is_ok() {
            return Ok(Grace::Barrier);
        }
        let (outer, inner) = sys::outer_map()?;
        let grace = Grace::Update(outer, inner);
        grace.wait()?;
        Ok(grace)
    }

    /// Returns when every program that ran when this was called has ended. Takes milliseconds.
    pub fn wait(&self) -> io::Result<()> {
        match self {
            Grace::Barrier => sys::membarrier(),
            Grace::Update(outer, inner) => sys::set(outer.as_fd(), 0, inner.as_raw_fd() as u32),
            Grace::Nobody => Ok(()),
        }
    }
}

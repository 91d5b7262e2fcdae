// SPDX-License-Identifier: Apache-2.0
//! Grace periods: waiting until every program that runs now has ended.
//!
//! Programs run inside RCU read-side critical sections, so an RCU grace period of the kernel is
//! what is waited for. `membarrier(MEMBARRIER_CMD_GLOBAL)` is one (`kernel/sched/membarrier.c`
//! calls `synchronize_rcu` when more than one CPU is online; with one, no program is in the
//! midst of its run while a process runs). It is not there on a kernel with `nohz_full` CPUs;
//! then an array of maps is updated, which waits as well (`maybe_wait_bpf_programs` in
//! `kernel/bpf/syscall.c`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use crate::sys;

/// Pause between attempts to wait for programs, when the kernel refuses. It allows few messages.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The means by which this kernel is made to wait. Any thread may use it.
pub enum Grace {
    /// membarrier(2) with `MEMBARRIER_CMD_GLOBAL`.
    Barrier,
    /// An update of an array of maps: the array, and the map in it.
    Update(OwnedFd, OwnedFd),
    /// No wait: no program uses the tables, which are private to this process.
    Nobody,
}

impl Grace {
    /// Finds a means that this kernel has.
    ///
    /// # Errors
    ///
    /// Fails when the kernel has neither, or the process may not use it.
    pub fn new() -> io::Result<Grace> {
        if sys::membarrier().is_ok() {
            return Ok(Grace::Barrier);
        }
        let (outer, inner) = sys::outer_map()?;
        let grace = Grace::Update(outer, inner);
        grace.wait()?;
        Ok(grace)
    }

    /// Blocks until every program that ran at the time of the call has ended. Takes milliseconds.
    ///
    /// # Errors
    ///
    /// Fails when the kernel refuses the call. Programs may then still run.
    pub fn wait(&self) -> io::Result<()> {
        match self {
            Grace::Barrier => sys::membarrier(),
            Grace::Update(outer, inner) => sys::set(outer.as_fd(), 0, inner.as_raw_fd() as u32),
            Grace::Nobody => Ok(()),
        }
    }
}

impl conntrack::Barrier for Grace {
    /// When the kernel refuses the call, programs may still run. Then this searches for another
    /// means until it finds one: the sweeper frees nothing meanwhile.
    fn wait(&mut self) {
        let mut is_reported = false;
        while let Err(e) = Grace::wait(self) {
            if !is_reported {
                tracing::warn!(
                    target: "dpif",
                    "waiting for BPF programs to end: {e}; ended connections keep their memory \
                     until that works"
                );
                is_reported = true;
            }
            std::thread::sleep(RETRY_PAUSE);
            if let Ok(grace) = Grace::new() {
                *self = grace;
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Threads that stay on one CPU.

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that measurements use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// For the generator and clients.
    pub traffic: usize,
    /// For daemons, servers, and reading counters.
    pub other: usize,
}

/// The last CPU that this process may use for traffic, the one before it for the rest.
///
/// # Errors
/// When there is only one.
pub fn cpus() -> Result<Cpus> {
    let allowed = sched_getaffinity(None).context("reading the CPU affinity")?;
    let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|c| allowed.is_set(*c)).collect();
    ensure!(usable.len() >= 2, "two CPUs are needed: one for traffic, one to read counters");
    Ok(Cpus { traffic: usable[usable.len() - 1], other: usable[usable.len() - 2] })
}

/// Keeps the calling thread, and threads and processes that it starts, on `cpu`.
pub fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("pinning a thread to CPU {cpu}"))
}

// SPDX-License-Identifier: Apache-2.0
//! CPU time as the scheduler counts it.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// CPU time of the threads that a process has now.
///
/// # Errors
/// When there is no such process, or the kernel does not count CPU time (`CONFIG_SCHED_INFO`).
pub fn of_process(pid: u32) -> Result<Duration> {
    let tasks = format!("/proc/{pid}/task");
    let mut sum = Duration::ZERO;
    for task in fs::read_dir(&tasks).with_context(|| format!("reading {tasks}"))? {
        let task = task?.path();
        match of_thread(&task) {
            // A thread may end in between.
            Err(_) if !task.exists() => {}
            time => sum += time?,
        }
    }
    Ok(sum)
}

/// Time of all CPUs since the machine started, as its ticks have sampled it.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    busy: u64,
    at: Instant,
}

/// Ticks of `/proc/stat` in a second, on every architecture.
const TICKS: f64 = 100.0;

impl Machine {
    /// Reads `/proc/stat`.
    ///
    /// # Errors
    /// When that is not possible.
    pub fn now() -> Result<Machine> {
        let text = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
        let line = text.lines().next().unwrap_or_default();
        // User, nice, system; idle and iowait; interrupts, softirqs. Stolen time is not used here.
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        let used = [0, 1, 2, 5, 6].map(|at| numbers.get(at).copied());
        let busy = used.into_iter().sum::<Option<u64>>();
        let busy = busy.with_context(|| format!("/proc/stat begins with {line:?}"))?;
        Ok(Machine { busy, at: Instant::now() })
    }

    /// The number of CPUs that were busy between an earlier reading and this one.
    pub fn cpus_since(self, earlier: Machine) -> f64 {
        let busy = self.busy.saturating_sub(earlier.busy) as f64 / TICKS;
        busy / (self.at - earlier.at).as_secs_f64()
    }
}

/// Everything that moves packets: a thread of this process, the kernel's ksoftirqd threads where
/// they are visible, and daemons.
#[derive(Clone, Debug)]
pub struct CpuUsers {
    threads: Vec<PathBuf>,
    daemons: Vec<u32>,
}

impl CpuUsers {
    /// The calling thread and ksoftirqd of `cpu`.
    pub fn here(cpu: usize) -> CpuUsers {
        let tid = rustix::thread::gettid().as_raw_nonzero();
        let mut threads = vec![PathBuf::from(format!("/proc/self/task/{tid}"))];
        threads.extend(ksoftirqd(cpu));
        CpuUsers { threads, daemons: Vec::new() }
    }

    /// With these processes and ksoftirqd of `cpu`, where they run.
    pub fn and(mut self, daemons: &[u32], cpu: usize) -> CpuUsers {
        if !daemons.is_empty() {
            self.threads.extend(ksoftirqd(cpu));
        }
        self.daemons.extend(daemons);
        self
    }

    /// The CPU time that they have used so far.
    ///
    /// # Errors
    /// When the kernel does not count CPU time, or a daemon has ended.
    pub fn time(&self) -> Result<Duration> {
        let threads: Duration =
            self.threads.iter().map(|path| of_thread(path)).sum::<Result<_>>()?;
        let daemons: Duration =
            self.daemons.iter().map(|pid| of_process(*pid)).sum::<Result<_>>()?;
        Ok(threads + daemons)
    }
}

fn ksoftirqd(cpu: usize) -> Option<PathBuf> {
    let name = format!("ksoftirqd/{cpu}");
    let is = |dir: &PathBuf| fs::read_to_string(dir.join("comm")).is_ok_and(|c| c.trim() == name);
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.map(|p| p.path()).find(is)
}

/// The first number of `schedstat`, nanoseconds.
fn of_thread(task: &Path) -> Result<Duration> {
    let path = task.join("schedstat");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let first = text.split(' ').next().and_then(|n| n.parse().ok());
    first.map(Duration::from_nanos).with_context(|| format!("schedstat says {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_increases() {
        let cpu_users = CpuUsers::here(0);
        let before = cpu_users.time().unwrap();
        let mut sum = 0u64;
        while cpu_users.time().unwrap() < before + Duration::from_millis(5) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(of_process(std::process::id()).unwrap() >= Duration::from_millis(5));
    }

    #[test]
    fn a_thread_that_works_makes_a_cpu_busy() {
        let before = Machine::now().unwrap();
        let begin = Instant::now();
        let mut sum = 0u64;
        while begin.elapsed() < Duration::from_millis(100) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(Machine::now().unwrap().cpus_since(before) > 0.0);
    }
}

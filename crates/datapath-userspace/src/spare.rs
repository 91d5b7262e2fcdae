// SPDX-License-Identifier: Apache-2.0
//! CPU time that nobody wants.
//!
//! Misses cost the CPU on which the packet thread runs, and the one on which their packets come
//! in: the kernel hands them to a tap there. Which that is depends on the sender. So it goes by the
//! CPU that is busiest: as long as none is used up nobody is harmed.

use crate::budget::Nanos;
use rustix::param::clock_ticks_per_second;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Nanoseconds between two looks: the kernel counts in hundredths of a second, and on a machine
/// with many CPUs takes a millisecond to tell.
const INTERVAL: Nanos = 500_000_000;

/// Where the kernel says how long CPUs were idle: proc_stat(5).
const STAT: &str = "/proc/stat";

/// What somebody takes is not idle any more. With so many nanoseconds for each that is idle four
/// fifths of what is there can be taken, and hardly more than without where others want it.
const FOR_EACH: Nanos = 4;

/// Counts what the busiest CPU had to spare. Any thread.
#[derive(Debug, Default)]
pub(crate) struct Spare(Mutex<State>);

/// How long each CPU was idle since the machine was started.
type Idle = BTreeMap<usize, Nanos>;

#[derive(Debug, Default)]
struct State {
    /// Of the last look.
    at: Option<Nanos>,
    idle: Idle,
    /// In all, since the first look.
    total: Nanos,
    /// It was told that nothing can be known.
    told: bool,
}

impl Spare {
    /// What there was to spare up to `now`, or up to a short while before: nanoseconds since
    /// somebody first asked, some for each that all CPUs were idle at least. It does not grow where
    /// the kernel does not say.
    pub(crate) fn by(&self, now: Nanos) -> Nanos {
        self.look(now, || idle_of(&std::fs::read_to_string(STAT).ok()?))
    }

    fn look(&self, now: Nanos, idle: impl FnOnce() -> Option<Idle>) -> Nanos {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.at.is_some_and(|at| now.saturating_sub(at) < INTERVAL) {
            return state.total;
        }
        state.at = Some(now);
        let idle = idle();
        if idle.is_none() && !std::mem::replace(&mut state.told, true) {
            tracing::warn!(
                target: "dpif_netdev",
                "{STAT} does not say how long CPUs are idle: misses of a port cost no more than \
                 other_config:upcall-cpu-percent also while nobody else wants the CPUs",
            );
        }
        let idle = idle.unwrap_or_default();
        let since =
            |(cpu, time): (&usize, &Nanos)| Some(time.saturating_sub(*state.idle.get(cpu)?));
        let least = idle.iter().filter_map(since).min().unwrap_or(0);
        state.total = state.total.saturating_add(least.saturating_mul(FOR_EACH));
        state.idle = idle;
        state.total
    }
}

/// The fourth number of each CPU's line, which is in ticks. `None` when there is no such line.
fn idle_of(stat: &str) -> Option<Idle> {
    let tick = 1_000_000_000 / clock_ticks_per_second().max(1);
    let of_line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let cpu: usize = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        let ticks: Nanos = words.nth(3)?.parse().ok()?;
        Some((cpu, ticks.saturating_mul(tick)))
    };
    let idle: Idle = stat.lines().filter_map(of_line).collect();
    (!idle.is_empty()).then_some(idle)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn idle(of_cpus: &[(usize, Nanos)]) -> Option<Idle> {
        Some(of_cpus.iter().map(|(cpu, ms)| (*cpu, ms * MS)).collect())
    }

    #[test]
    fn it_grows_by_what_is_idle_and_is_looked_at_seldom() {
        let spare = Spare::default();
        let at = |n: u64| 1000 * MS + n * INTERVAL;
        assert_eq!(spare.look(at(0), || idle(&[(0, 50), (1, 100)])), 0);
        assert_eq!(spare.look(at(1) - 1, || panic!("too soon")), 0);
        assert_eq!(spare.look(at(1), || idle(&[(0, 80), (1, 110)])), FOR_EACH * 10 * MS);
        assert_eq!(spare.look(at(2), || idle(&[(0, 90), (1, 110)])), FOR_EACH * 10 * MS);
        // One goes, another comes.
        assert_eq!(spare.look(at(3), || idle(&[(1, 113), (2, 9000)])), FOR_EACH * 13 * MS);
        assert_eq!(spare.look(at(4), || None), FOR_EACH * 13 * MS);
        assert_eq!(spare.look(at(5), || idle(&[(1, 500)])), FOR_EACH * 13 * MS);
        assert_eq!(spare.look(at(6), || idle(&[(1, 501)])), FOR_EACH * 14 * MS);
        assert_eq!(spare.look(at(7), || idle(&[(1, 0)])), FOR_EACH * 14 * MS);
    }

    #[test]
    fn the_kernel_says_how_long_cpus_were_idle() {
        let text =
            "cpu  9 9 9 9 9\ncpu0 1 2 3 40 5\ncpu3 1 2 3 50 5\nintr 1 2 3 4\ncpux 1 1 1 1\ncpu4 1";
        let tick = 1_000_000_000 / clock_ticks_per_second();
        assert_eq!(idle_of(text), Some(Idle::from([(0, 40 * tick), (3, 50 * tick)])));
        assert_eq!(idle_of("cpu 1 2 3 4\nintr 5 6 7 8"), None);
        let spare = Spare::default();
        spare.by(1);
        assert!(!spare.0.lock().unwrap().idle.is_empty(), "{STAT} is understood");
    }
}

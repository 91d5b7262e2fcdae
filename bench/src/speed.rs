// SPDX-License-Identifier: Apache-2.0
//! Times of the machine that no switch can avoid, for the page.
//!
//! With many flows, reads of memory are most of the cost of a packet. Waking a thread on an idle CPU
//! is the cost of each first packet for a daemon that does not poll, and of each answer for a tool
//! that waits: an idle CPU may poll for work for a while, or halt at once, and a halted CPU of a
//! virtual machine is woken by the host.

use crate::attempt::{Worker, on_thread};
use crate::measure::Series;
use crate::pin::{Cpus, pin};
use crate::report::scale::number;
use anyhow::{Result, ensure};
use std::hint::{black_box, spin_loop};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Memory in use, in MiB.
const SIZES: [usize; 5] = [1, 4, 8, 16, 64];
/// Words of a cache line.
const LINE: usize = 64 / size_of::<u32>();
/// Reads of one round.
const READS: u32 = 1 << 18;
/// Rounds; the median counts.
const ROUNDS: usize = 5;
/// Number of wakeups; the median counts.
const WAKEUPS: usize = 2000;
/// How long the thread has been asleep when it is woken.
const ASLEEP: Duration = Duration::from_micros(100);
/// A wakeup that takes longer has been lost.
const LOST: Duration = Duration::from_secs(5);

/// The time of a read for each size in words, as measured on `cpu`.
pub fn of_memory(cpu: usize) -> Result<String> {
    let words = |mib| format!("{} ns in {mib} MiB", number(nanoseconds(mib << 20)));
    on_thread(|| pin(cpu).map(|()| SIZES.map(words).join(", ")))
}

/// Nanoseconds of a read that depends on the previous one, at lines in random order in `bytes`.
fn nanoseconds(bytes: usize) -> f64 {
    let lines = cycle(bytes / size_of::<u32>() / LINE);
    let mut words = vec![0; lines.len() * LINE];
    for (word, next) in words.iter_mut().step_by(LINE).zip(&lines) {
        *word = next * LINE as u32;
    }
    let mut at = 0;
    let mut read = |times: u32| {
        let begin = Instant::now();
        for _ in 0..times {
            at = words.get(at as usize).copied().unwrap_or_default();
        }
        black_box(at);
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(times)
    };
    read(lines.len() as u32); // fills the caches
    Series((0..ROUNDS).map(|_| read(READS)).collect()).median()
}

/// A random cyclic order of `count` places (Sattolo's algorithm).
fn cycle(count: usize) -> Vec<u32> {
    let mut next: Vec<u32> = (0..).take(count).collect();
    let mut random = fastrand::Rng::with_seed(count as u64);
    for last in (1..count).rev() {
        next.swap(last, random.usize(..last));
    }
    next
}

/// The median wakeup in words, from the daemon's CPU to the CPU with traffic.
pub fn of_wakeups(cpus: Cpus) -> Result<String> {
    let [whole, sender] = on_thread(|| wakeups(cpus))?.map(|series| number(series.median()));
    let asleep = ASLEEP.as_micros();
    Ok(format!("{whole} µs, {sender} of them from the thread that wakes; asleep for {asleep} µs"))
}

/// Microseconds from the beginning of wakeups until the woken thread runs, and until the waking
/// thread continues.
fn wakeups(cpus: Cpus) -> Result<[Series; 2]> {
    let (mut to, mut from) = UnixStream::pair()?;
    let begin = Instant::now();
    let now = move || begin.elapsed().as_nanos() as u64;
    let awake = Arc::new(AtomicU64::new(0));
    let woken = Arc::clone(&awake);
    let sleeper = Worker::start(None, cpus.traffic, move |_| {
        // Ends when the stream is closed.
        while from.read(&mut [0])? > 0 {
            woken.store(now(), Ordering::Release);
        }
        Ok(())
    });
    pin(cpus.other)?;
    let mut series = [Series::default(), Series::default()];
    for _ in 0..WAKEUPS {
        let start = Instant::now();
        while start.elapsed() < ASLEEP {
            spin_loop();
        }
        awake.store(0, Ordering::Release);
        let (begin, start) = (now(), Instant::now());
        to.write_all(&[1])?;
        let sent = now();
        let ran = loop {
            match awake.load(Ordering::Acquire) {
                0 => ensure!(start.elapsed() < LOST, "a thread that was woken did not run"),
                ran => break ran,
            }
            spin_loop();
        };
        // Where idle CPUs poll for work the woken thread may be the first.
        for (series, end) in series.iter_mut().zip([ran, sent.min(ran)]) {
            series.0.push(end.saturating_sub(begin) as f64 / 1e3);
        }
    }
    drop(to);
    sleeper.stop()?;
    Ok(series)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pin::cpus;

    #[test]
    fn a_cycle_has_all_places() {
        let next = cycle(1000);
        let mut at = 0;
        let steps = (1..).find(|_| {
            at = next[at] as usize;
            at == 0
        });
        assert_eq!(steps, Some(1000));
    }

    #[test]
    fn each_size_has_its_time() {
        let words = of_memory(cpus().unwrap().traffic).unwrap();
        assert_eq!(words.split(", ").count(), SIZES.len());
        assert!(words.ends_with(" in 64 MiB") && !words.contains('?'), "{words}");
    }

    #[test]
    fn a_wakeup_takes_time_and_is_not_lost() {
        let cpus = cpus().unwrap();
        for series in on_thread(|| wakeups(cpus)).unwrap() {
            assert_eq!(series.0.len(), WAKEUPS);
            assert!(series.0.iter().all(|time| *time > 0.0));
        }
        let words = of_wakeups(cpus).unwrap();
        assert!(words.contains(" µs, ") && !words.contains('?'), "{words}");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! How long it takes to wake a thread on an idle CPU: what a daemon that does not poll pays for each
//! first packet, and a tool that waits for answers pays for each answer.
//!
//! It depends on the machine: an idle CPU may watch for work for a while, or halt at once; the CPU of
//! a virtual machine that has halted is woken by its host.

use crate::measure::Series;
use crate::pin::{Cpus, pin};
use crate::report::scale::number;
use anyhow::{Result, anyhow, ensure};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Times that it is woken; the median counts.
const TIMES: usize = 2000;
/// So long it has been asleep by then.
const ASLEEP: Duration = Duration::from_micros(100);
/// A wake that takes longer has been lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// What one wake takes, in microseconds.
struct Wake {
    /// Until the thread that wakes goes on.
    sender: f64,
    /// From its beginning until the other runs.
    whole: f64,
}

/// In words, as seen from a daemon's CPU that wakes the one with traffic.
///
/// # Errors
/// When threads cannot be kept on their CPUs, or do not wake.
pub fn in_words(cpus: Cpus) -> Result<String> {
    let measured = thread::spawn(move || wakes(cpus));
    let wakes = measured.join().map_err(|_| anyhow!("the thread that wakes others panicked"))??;
    let median = |of: fn(&Wake) -> f64| number(Series(wakes.iter().map(of).collect()).median());
    let (whole, sender) = (median(|wake| wake.whole), median(|wake| wake.sender));
    let asleep = ASLEEP.as_micros();
    Ok(format!("{whole} µs, {sender} of them from the thread that wakes; asleep for {asleep} µs"))
}

fn wakes(cpus: Cpus) -> Result<Vec<Wake>> {
    let (mut to, mut from) = UnixStream::pair()?;
    let begin = Instant::now();
    let now = || begin.elapsed().as_nanos() as u64;
    let awake = AtomicU64::new(0);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| -> Result<()> {
            pin(cpus.traffic)?;
            // Ends when nobody wakes it any more.
            while from.read(&mut [0])? > 0 {
                awake.store(now(), Ordering::Release);
            }
            Ok(())
        });
        let wakes = pin(cpus.other).and_then(|()| {
            (0..TIMES).map(|_| wake(&mut to, &awake, &now)).collect::<Result<Vec<Wake>>>()
        });
        drop(to);
        sleeper.join().map_err(|_| anyhow!("the thread that sleeps panicked"))??;
        wakes
    })
}

/// Lets the other thread fall asleep, wakes it, and waits awake for its time.
fn wake(to: &mut UnixStream, awake: &AtomicU64, now: &dyn Fn() -> u64) -> Result<Wake> {
    let start = Instant::now();
    while start.elapsed() < ASLEEP {
        std::hint::spin_loop();
    }
    awake.store(0, Ordering::Release);
    let begin = now();
    to.write_all(&[1])?;
    let sent = now();
    let start = Instant::now();
    loop {
        match awake.load(Ordering::Acquire) {
            0 => ensure!(start.elapsed() < PATIENCE, "a thread that was woken did not run"),
            ran => {
                let microseconds = |end: u64| end.saturating_sub(begin) as f64 / 1e3;
                // Where idle CPUs watch for work the other may be the first.
                return Ok(Wake { sender: microseconds(sent.min(ran)), whole: microseconds(ran) });
            }
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_takes_time_and_is_not_lost() {
        let wakes = wakes(crate::pin::cpus().unwrap()).unwrap();
        assert_eq!(wakes.len(), TIMES);
        assert!(wakes.iter().all(|wake| wake.whole > 0.0 && wake.sender > 0.0));
    }

    #[test]
    fn words_have_both_figures() {
        let words = in_words(crate::pin::cpus().unwrap()).unwrap();
        assert!(words.contains(" µs, ") && !words.contains('?'), "{words}");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! How long it takes to wake a thread on an idle CPU: the cost of each first packet for a daemon that
//! does not poll, and of each answer for a tool that waits.
//!
//! It depends on the machine: an idle CPU may poll for work for a while, or halt at once; a halted
//! CPU of a virtual machine is woken by the host.

use crate::attempt::on_thread;
use crate::measure::Series;
use crate::pin::{Cpus, pin};
use crate::report::scale::number;
use anyhow::{Result, anyhow, ensure};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Number of wakeups; the median counts.
const TIMES: usize = 2000;
/// How long the thread has been asleep when it is woken.
const ASLEEP: Duration = Duration::from_micros(100);
/// A wakeup that takes longer has been lost.
const LOST: Duration = Duration::from_secs(5);

/// One wakeup, in microseconds from its beginning.
struct Wake {
    /// Until the waking thread continues.
    sender: f64,
    /// Until the woken thread runs.
    whole: f64,
}

/// The median wakeup in words, from the daemon's CPU to the CPU with traffic.
pub fn in_words(cpus: Cpus) -> Result<String> {
    let wakes = on_thread(|| wakes(cpus))?;
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
            // Ends when the stream is closed.
            while from.read(&mut [0])? > 0 {
                awake.store(now(), Ordering::Release);
            }
            Ok(())
        });
        let wakes = pin(cpus.other).and_then(|()| {
            (0..TIMES).map(|_| wake(&mut to, &awake, &now)).collect::<Result<Vec<Wake>>>()
        });
        drop(to);
        sleeper.join().map_err(|_| anyhow!("the sleeping thread panicked"))??;
        wakes
    })
}

/// Lets the other thread fall asleep, wakes it, and polls for its time.
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
            0 => ensure!(start.elapsed() < LOST, "a thread that was woken did not run"),
            ran => {
                let microseconds = |end: u64| end.saturating_sub(begin) as f64 / 1e3;
                // Where idle CPUs poll for work the woken thread may be the first.
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

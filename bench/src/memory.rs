// SPDX-License-Identifier: Apache-2.0
//! How long memory takes, by how much of it is in use: what a look into a table of that size costs.
//!
//! With many flows that is most of what a packet takes, and it depends on the machine and on what
//! its neighbours leave of a cache that they share, not on the switch.

use crate::measure::Series;
use crate::pin::pin;
use crate::report::scale::number;
use anyhow::{Result, anyhow};
use std::hint::black_box;
use std::thread;
use std::time::Instant;

/// How much is in use, in MiB.
const SIZES: [usize; 5] = [1, 4, 8, 16, 64];
/// Words of a cache line.
const LINE: usize = 64 / size_of::<u32>();
/// Reads of one round.
const READS: u32 = 1 << 18;
/// Rounds; the median counts.
const ROUNDS: usize = 5;

/// In words, for each size, as seen from `cpu`.
///
/// # Errors
/// When the thread cannot be kept on that CPU.
pub fn in_words(cpu: usize) -> Result<String> {
    let measured = thread::spawn(move || {
        pin(cpu)?;
        Ok(SIZES
            .map(|mib| format!("{} ns in {mib} MiB", number(nanoseconds(mib << 20))))
            .join(", "))
    });
    measured.join().map_err(|_| anyhow!("the thread that reads memory panicked"))?
}

/// Nanoseconds of a read that waits for the one before it, at lines in random order all over `bytes`.
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
    read(lines.len() as u32); // so that caches have what they can hold
    Series((0..ROUNDS).map(|_| read(READS)).collect()).median()
}

/// A random order in which `count` places follow each other, all of them before the first comes again
/// (Sattolo's algorithm).
fn cycle(count: usize) -> Vec<u32> {
    let mut next: Vec<u32> = (0..).take(count).collect();
    let mut random = fastrand::Rng::with_seed(count as u64);
    for last in (1..count).rev() {
        next.swap(last, random.usize(..last));
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_comes_by_all_places() {
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
        let words = in_words(crate::pin::cpus().unwrap().traffic).unwrap();
        assert_eq!(words.split(", ").count(), SIZES.len());
        assert!(words.ends_with(" in 64 MiB") && !words.contains('?'), "{words}");
    }
}

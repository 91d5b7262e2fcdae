// SPDX-License-Identifier: Apache-2.0
//! How long a read of memory takes, by how much memory is in use.
//!
//! With many flows such reads are most of the cost of a packet. They depend on the machine and on
//! other users of a shared cache, not on the switch.

use crate::attempt::on_thread;
use crate::measure::Series;
use crate::pin::pin;
use crate::report::scale::number;
use anyhow::Result;
use std::hint::black_box;
use std::time::Instant;

/// Memory in use, in MiB.
const SIZES: [usize; 5] = [1, 4, 8, 16, 64];
/// Words of a cache line.
const LINE: usize = 64 / size_of::<u32>();
/// Reads of one round.
const READS: u32 = 1 << 18;
/// Rounds; the median counts.
const ROUNDS: usize = 5;

/// The time for each size in words, as measured on `cpu`.
pub fn in_words(cpu: usize) -> Result<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let words = in_words(crate::pin::cpus().unwrap().traffic).unwrap();
        assert_eq!(words.split(", ").count(), SIZES.len());
        assert!(words.ends_with(" in 64 MiB") && !words.contains('?'), "{words}");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Rules, and the megaflows that follow from them.

use super::cases::Case;
use crate::bed::Bed;
use crate::generator::{Live, Pace, Stream};
use anyhow::Result;
use std::thread;
use std::time::{Duration, Instant};

/// Frames a second while megaflows are made, the first time that each flow has one and later ones.
/// A daemon that cannot keep up loses first packets, so frames are sent again more slowly.
const PACES: [u32; 6] = [100_000, 60_000, 40_000, 30_000, 30_000, 30_000];
/// From here on one in [`GAIN`] of what is missing has to come with a cycle, or none will.
const SLOW: u32 = 30_000;
const GAIN: u64 = 10;
/// How often it is looked whether all flows have had a frame.
const STEP: Duration = Duration::from_millis(20);
/// How much longer than the pace says that may take.
const SLACK: u32 = 2;
/// How long frames flow as fast as possible before anything is measured.
const SETTLE: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(10)];

/// Puts in rules, and lets traffic flow until the peer has done what it does for new flows;
/// says what is not as it should be then.
///
/// # Errors
/// When the peer refuses the rules, or no frame arrives.
pub fn ready(bed: &mut Bed, case: &Case) -> Result<Option<String>> {
    bed.peer.install(case.rules)?;
    let missing = if case.rules.flows().is_some() { fill(bed, case.flows)? } else { None };
    let [least, most] = SETTLE;
    let steady = bed.traffic(Stream::flood(case.flows)).settle(least, most)?;
    let rising = || format!("the rate still rose after {} s of traffic", most.as_secs());
    Ok(missing.or_else(|| bed.peer.strays()).or_else(|| (!steady).then(rising)))
}

/// Gives every flow a frame until each has its megaflow, where there are any; says how many have
/// none.
fn fill(bed: &Bed, flows: u32) -> Result<Option<String>> {
    let begin = Instant::now();
    let missing = || bed.peer.megaflows().map_or(0, |there| u64::from(flows).saturating_sub(there));
    let mut left = missing();
    for pace in PACES {
        if left == 0 {
            return Ok(None);
        }
        let traffic = bed.traffic(Stream { pace: Pace::Even(pace), ..Stream::flood(flows) });
        let cycle = Duration::from_secs_f64(f64::from(flows) / f64::from(pace));
        traffic.run(cycle, |live| once_each(live, flows, SLACK * (cycle + STEP)))?;
        let before = left;
        left = missing();
        if pace <= SLOW && left > before - before / GAIN {
            break;
        }
    }
    let there = u64::from(flows) - left;
    let seconds = begin.elapsed().as_secs();
    Ok((left > 0).then(|| format!("only {there} of {flows} megaflows after {seconds} s")))
}

/// Waits until so many frames were sent, which take turns.
fn once_each(live: &Live<'_>, flows: u32, most: Duration) -> Result<()> {
    let begin = live.look()?;
    loop {
        thread::sleep(STEP);
        let span = live.look()?.since(&begin);
        if span.sent >= u64::from(flows) || span.seconds > most.as_secs_f64() {
            return Ok(());
        }
    }
}

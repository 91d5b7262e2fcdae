// SPDX-License-Identifier: Apache-2.0
//! Rules, and the megaflows that follow from them, before anything is measured.

use super::cases::Case;
use crate::generator::{Live, Pace, Stream, Traffic};
use crate::rules::Rules;
use crate::testbed::{Testbed, Way};
use anyhow::Result;
use std::thread;
use std::time::{Duration, Instant};

/// Frames a second while megaflows are made, in the first cycle through all flows and in later
/// ones. A daemon that cannot keep up loses first packets, so later cycles are slower.
const PACES: [u32; 6] = [100_000, 60_000, 40_000, 30_000, 30_000, 30_000];
/// From this pace on, a cycle has to add one in [`GAIN`] of the missing megaflows; otherwise the
/// rest will not come.
const SLOW: u32 = 30_000;
const GAIN: u64 = 10;
/// How often the generator's progress is read.
const STEP: Duration = Duration::from_millis(20);
/// How many times longer than its pace says a cycle may take.
const SLACK: u32 = 2;
/// How long frames flow as fast as possible before anything is measured, at least and at most.
const SETTLE: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(10)];

/// Installs rules, and lets traffic flow until the system has set up its flows; reports what is
/// not as it should be then.
pub fn warm_up(testbed: &mut Testbed, case: &Case) -> Result<Option<String>> {
    testbed.instance.install(case.rules)?;
    // One megaflow has all flows of a prefix.
    let missing = match case.rules {
        Rules::Prefix => None,
        _ => fill(testbed, case.flows)?,
    };
    let [least, most] = SETTLE;
    let steady = testbed.traffic(Stream::flood(case.flows)).run_until_steady(least, most)?;
    let rising = || format!("the rate still rose after {} s of traffic", most.as_secs());
    let misplaced = || testbed.instance.misplaced();
    Ok(missing.or_else(misplaced).or_else(|| (!steady).then(rising)))
}

/// Sends a frame of every flow until each has its megaflow, in systems that have megaflows;
/// reports how many have none.
fn fill(testbed: &Testbed, flows: u32) -> Result<Option<String>> {
    let begin = Instant::now();
    let missing = || {
        let megaflows = testbed.instance.megaflows();
        megaflows.map_or(0, |megaflows| u64::from(flows).saturating_sub(megaflows))
    };
    let mut left = missing();
    for pace in PACES {
        if left == 0 {
            return Ok(None);
        }
        cycle(|stream| Ok(testbed.traffic(stream)), flows, pace)?;
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

/// Sends a frame of every flow, this many a second.
pub fn cycle<'a>(way: impl Fn(Stream) -> Result<Traffic<'a>>, flows: u32, pace: u32) -> Result<()> {
    let traffic = way(Stream { pace: Pace::Even(pace), ..Stream::flood(flows) })?;
    let cycle = Duration::from_secs_f64(f64::from(flows) / f64::from(pace));
    traffic.run(cycle, |live| once_each(live, flows, SLACK * (cycle + STEP)))
}

/// Waits until a frame of each flow was sent.
fn once_each(live: &Live<'_>, flows: u32, most: Duration) -> Result<()> {
    let begin = live.read()?;
    loop {
        thread::sleep(STEP);
        let span = live.read()?.since(&begin);
        if span.sent >= u64::from(flows) || span.seconds > most.as_secs_f64() {
            return Ok(());
        }
    }
}

//! Rules, and the megaflows that follow from them.

use super::cases::Case;
use crate::bed::Bed;
use crate::generator::{Pace, Stream};
use crate::peer::Rules;
use anyhow::Result;
use std::thread;
use std::time::{Duration, Instant};

/// Frames a second while megaflows are made: no more than daemons can keep up with.
const PACE: u32 = 40_000;
/// Times that all flows may have a frame, beside the seconds that they may take in any case.
const CYCLES: u32 = 2;
const PATIENCE: Duration = Duration::from_secs(5);
/// How long frames flow as fast as possible before anything is measured.
const SETTLE: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(10)];

/// Puts in rules, and lets traffic flow until the peer has done what it does for new flows;
/// says what is not as it should be then.
///
/// # Errors
/// When the peer refuses the rules, or no frame arrives.
pub fn ready(bed: &mut Bed, case: &Case) -> Result<Option<String>> {
    bed.install(case.rules, case.flows)?;
    let each = matches!(case.rules, Rules::OneToOne(_) | Rules::Masks(..));
    let missing = if each { fill(bed, case)? } else { None };
    let [least, most] = SETTLE;
    let steady = bed.traffic(Stream::flood(case.flows)).settle(least, most)?;
    let rising = || format!("the rate still rose after {} s of traffic", most.as_secs());
    Ok(missing.or_else(|| bed.peer.strays()).or_else(|| (!steady).then(rising)))
}

/// Gives every flow a frame until each has its megaflow, where there are any.
fn fill(bed: &Bed, case: &Case) -> Result<Option<String>> {
    if bed.peer.megaflows().is_none() {
        return Ok(None);
    }
    let traffic = bed.traffic(Stream { pace: Pace::Even(PACE), ..Stream::flood(case.flows) });
    let cycle = Duration::from_secs_f64(f64::from(case.flows) / f64::from(PACE));
    let (begin, most) = (Instant::now(), PATIENCE + cycle * CYCLES);
    loop {
        traffic.run(cycle, |_| {
            thread::sleep(cycle);
            Ok(())
        })?;
        let there = bed.peer.megaflows().unwrap_or_default();
        if there >= u64::from(case.flows) {
            return Ok(None);
        }
        if begin.elapsed() > most {
            let (wanted, after) = (case.flows, begin.elapsed().as_secs());
            return Ok(Some(format!("only {there} of {wanted} megaflows after {after} s")));
        }
    }
}

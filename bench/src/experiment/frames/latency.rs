// SPDX-License-Identifier: Apache-2.0
//! How long frames are on their way when there are few.

use super::{Case, Figures, Reference};
use crate::generator::{Pace, Stream, Traffic};
use crate::measure::{Candidate, Outcome, Plan, Sample, Series, TURN, turns_in};
use crate::point::{Metric, Point, Subject};
use crate::report::results::GENERATOR;
use crate::testbed::{Testbed, Way};
use anyhow::Result;
use std::time::Duration;

/// Frames a second that are few for any system.
pub const FEW: u32 = 100_000;
/// Largest scatter of the median latency.
const MAX_SCATTER: f64 = 0.2;
/// Share of the frames by which the generator may fall short without a note.
const SHORTFALL: f64 = 0.05;
/// Percent of the frames that may be lost without a note.
const LOSS: f64 = 1.0;
/// Latencies that [`SHARES`] of the frames do not exceed, and the lost frames.
pub const METRICS: [Metric; 4] = [
    Metric::new("latency p50", "µs", MAX_SCATTER),
    Metric::new("latency p99", "µs", MAX_SCATTER),
    Metric::new("latency p99.9", "µs", MAX_SCATTER),
    Metric::new("loss at an even pace", "%", MAX_SCATTER).not_compared(),
];
const SHARES: [f64; 3] = [0.5, 0.99, 0.999];

/// The figures of [`METRICS`] during `window`, and the frames that the generator sent in a second.
fn sample(traffic: &Traffic<'_>, window: Duration) -> Result<Sample> {
    let (span, delays) = traffic.delays(window)?;
    let microseconds = |share| delays.quantile(share).unwrap_or(f64::NAN) / 1e3;
    let [p50, p99, p999] = SHARES.map(microseconds);
    Ok(vec![p50, p99, p999, span.loss(), span.sent as f64 / span.seconds])
}

/// Measures with `rate` frames a second at an even pace, or reports why that is not possible.
pub fn measure(
    testbed: &Testbed,
    reference: Option<Reference<'_>>,
    case: &Case,
    subject: &Subject,
    rate: u32,
    plan: Plan,
) -> Figures {
    let stream = Stream { pace: Pace::Even(rate), ..case.flood() };
    let round = Duration::from_millis(if plan.full { 500 } else { 300 });
    let (window, turns) = match reference {
        Some(_) => (TURN, turns_in(round)),
        None => (round, 1),
    };
    let other = reference.map(|(_, way)| way.traffic(stream));
    let through = testbed.traffic(stream);
    let candidate = |traffic| -> Candidate<'_> { Box::new(move || sample(traffic, window)) };
    let mut candidates: Vec<_> = other.iter().chain([&through]).map(candidate).collect();
    let name = reference.map(|(name, _)| name);
    match super::warm_turns(plan, turns, MAX_SCATTER, &mut candidates) {
        Ok(outcome) => figures(subject, rate, &outcome, name),
        Err(e) => {
            let why = format!("{e:#}");
            let [latencies @ .., _] = METRICS;
            let points = latencies.map(|metric| subject.absent(&metric, &why)).into();
            Figures { points, alone: Vec::new() }
        }
    }
}

fn figures(subject: &Subject, rate: u32, outcome: &Outcome, name: Option<&str>) -> Figures {
    let unsteady = outcome.scatter() > MAX_SCATTER;
    let median = |at: usize| outcome.own.get(at).map_or(f64::NAN, Series::median);
    let (loss, sent) = (median(METRICS.len() - 1), median(METRICS.len()));
    let slow = sent < f64::from(rate) * (1.0 - SHORTFALL);
    let slow = slow.then(|| format!("the generator sent only {sent:.0} frames a second"));
    let lost = (loss > LOSS).then(|| {
        format!("{loss:.0} % of the frames did not arrive: these are the delays of the others")
    });
    let note = slow.into_iter().chain(lost).reduce(|one, other| format!("{one}; {other}"));
    let points = subject.points(&METRICS, outcome, name);
    let marked = points.into_iter().map(|p| Point { unsteady, note: note.clone(), ..p }).collect();
    let alone = outcome.limit.iter().filter(|_| name == Some(GENERATOR)).flatten().cloned();
    let latencies = METRICS.into_iter().filter(|metric| metric.is_compared);
    Figures { points: marked, alone: latencies.zip(alone).collect() }
}

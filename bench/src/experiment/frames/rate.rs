// SPDX-License-Identifier: Apache-2.0
//! How many frames a system forwards when there are more than it can forward.

use super::{Alone, Case};
use crate::generator::Span;
use crate::measure::{Candidate, Sample, take_turns};
use crate::plan::Plan;
use crate::point::{Metric, Point, Subject};
use crate::report::results::GENERATOR;
use crate::testbed::{GeneratorOnly, Testbed};
use anyhow::Result;
use std::time::Duration;

const MAX_SCATTER: f64 = 0.05;

/// Frames that reach the sink in a second.
pub const RATE: Metric = metric("rate", "Mpps");
/// Frames that reach the sink in a second of CPU time.
pub const PER_CORE: Metric = metric("rate per core", "Mpps");
type Number = fn(&Span) -> f64;
/// Metrics without a comparison.
const OTHERS: [(Metric, Number); 3] = [
    (metric("throughput", "Gbit/s"), Span::gbits),
    (metric("CPU", "%"), |span| span.cores() * 100.0),
    (metric("loss", "%"), Span::loss),
];

const fn metric(name: &'static str, unit: &'static str) -> Metric {
    Metric { name, unit, max_scatter: MAX_SCATTER }
}

impl Sample for Span {
    fn value(&self) -> f64 {
        self.mpps()
    }
}

/// Lets the generator alone and the system take turns; the system's points, and the rates of the
/// generator alone.
pub fn measure(
    testbed: &Testbed,
    generator: &GeneratorOnly,
    case: &Case,
    subject: &Subject,
    plan: Plan,
) -> Result<(Vec<Point>, Alone)> {
    let stream = case.flood();
    let (alone, through) = (generator.traffic(stream), testbed.traffic(stream));
    let window = window(plan);
    let mut candidates: [Candidate<'_, Span>; 2] =
        [Box::new(|| alone.measure(window)), Box::new(|| through.measure(window))];
    let outcome = super::warm_turns(plan, 1, MAX_SCATTER, &mut candidates)?;
    let unsteady = outcome.scatter() > MAX_SCATTER;
    let mark = |point| Point { unsteady, ..point };
    let mut points = Vec::new();
    for (metric, number) in [(RATE, Span::mpps as Number), (PER_CORE, Span::per_core)] {
        points.push(mark(subject.of_outcome(&metric, &outcome, number, Some(GENERATOR))));
    }
    for (metric, number) in &OTHERS {
        points.push(mark(subject.of_outcome(metric, &outcome, number, None)));
    }
    let samples = outcome.limit(Span::mpps).unwrap_or_default();
    Ok((points, Alone { metric: RATE, samples }))
}

/// Measures the packets that the generator hands to its device: the rate, and the rate per core.
pub fn sent(
    generator: &GeneratorOnly,
    case: &Case,
    subject: &Subject,
    plan: Plan,
) -> Result<Vec<Point>> {
    let (traffic, window) = (generator.traffic(case.flood()), window(plan));
    let mut candidate: [Candidate<'_, Span>; 1] = [Box::new(|| traffic.measure(window))];
    let outcomes = take_turns(super::rounds_of(plan), 1, MAX_SCATTER, None, &mut candidate)?;
    let points = |outcome| {
        let rate = subject.of_outcome(&RATE, outcome, Span::mpps, None);
        [rate, subject.of_outcome(&PER_CORE, outcome, Span::per_core, None)]
    };
    Ok(outcomes.iter().flat_map(points).collect())
}

fn window(plan: Plan) -> Duration {
    Duration::from_millis(match plan {
        Plan { full: true, .. } => 200,
        Plan { quick: true, .. } => 50,
        _ => 100,
    })
}

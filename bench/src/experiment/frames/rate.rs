// SPDX-License-Identifier: Apache-2.0
//! How many frames a system forwards when there are more than it can forward.

use super::{Case, Figures, Reference};
use crate::generator::Traffic;
use crate::measure::{Candidate, Plan, Sample};
use crate::point::{Metric, Point, Subject};
use crate::report::results::GENERATOR;
use crate::testbed::{Testbed, Way};
use anyhow::Result;
use std::time::Duration;

const MAX_SCATTER: f64 = 0.05;
/// Frames that reach the sink in a second.
pub const RATE: Metric = Metric::new("rate", "Mpps", MAX_SCATTER);
/// Frames that reach the sink in a second of CPU time.
pub const PER_CORE: Metric = Metric::new("rate per core", "Mpps", MAX_SCATTER);
const METRICS: [Metric; 5] = [
    RATE,
    PER_CORE,
    Metric::new("throughput", "Gbit/s", MAX_SCATTER).not_compared(),
    Metric::new("CPU", "%", MAX_SCATTER).not_compared(),
    Metric::new("loss", "%", MAX_SCATTER).not_compared(),
];

/// The figures of [`METRICS`] during `window`.
pub fn sample(traffic: &Traffic<'_>, window: Duration) -> Result<Sample> {
    let span = traffic.measure(window)?;
    Ok(vec![span.mpps(), span.per_core(), span.gbits(), span.cores() * 100.0, span.loss()])
}

/// Turns of a round with a redirect: a ratio to that has to be more exact than one to the
/// generator.
const REDIRECT_TURNS: u32 = 3;

/// Lets the generator alone, or a redirect, and the system take turns.
pub fn measure(
    testbed: &Testbed,
    (name, other): Reference<'_>,
    case: &Case,
    subject: &Subject,
    plan: Plan,
) -> Result<Figures> {
    let stream = case.flood();
    let (alone, through) = (other.traffic(stream), testbed.traffic(stream));
    let is_alone = name == GENERATOR;
    let window = window(plan);
    let mut candidates: [Candidate<'_>; 2] =
        [Box::new(|| sample(&alone, window)), Box::new(|| sample(&through, window))];
    let turns = if is_alone { 1 } else { REDIRECT_TURNS };
    let outcome = super::warm_turns(plan, turns, MAX_SCATTER, &mut candidates)?;
    let unsteady = outcome.scatter() > MAX_SCATTER;
    let points = subject.points(&METRICS, &outcome, Some(name));
    let rates = outcome.limit.into_iter().flatten().take(usize::from(is_alone));
    Ok(Figures {
        points: points.into_iter().map(|point| Point { unsteady, ..point }).collect(),
        alone: rates.map(|rates| (RATE, rates)).collect(),
    })
}

/// How long a turn is.
pub fn window(plan: Plan) -> Duration {
    Duration::from_millis(match plan {
        Plan { full: true, .. } => 200,
        Plan { quick: true, .. } => 50,
        _ => 100,
    })
}

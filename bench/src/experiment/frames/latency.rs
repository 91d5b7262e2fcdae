// SPDX-License-Identifier: Apache-2.0
//! How long frames are on their way when there are few.

use super::{Alone, Case};
use crate::generator::{Pace, Span, Stream, Traffic};
use crate::histogram::Histogram;
use crate::measure::{Candidate, Outcome, Sample, TURN, turns_in};
use crate::plan::Plan;
use crate::point::{Metric, Point, Subject};
use crate::report::results::GENERATOR;
use crate::system::System;
use crate::testbed::{GeneratorOnly, Testbed};
use std::time::Duration;

/// Frames a second that are few for any system.
pub const FEW: u32 = 100_000;
/// Largest scatter of the median latency.
const MAX_SCATTER: f64 = 0.2;
/// Share of the frames by which the generator may fall short without a note.
const SHORTFALL: f64 = 0.05;
/// Percent of the frames that may be lost without a note.
const LOSS: f64 = 1.0;
/// The bare redirect that takes turns with other systems.
pub const REDIRECT: System = System::BareXdp;
/// Latencies that these shares of the frames do not exceed.
pub const METRICS: [Metric; 3] =
    [metric("latency p50"), metric("latency p99"), metric("latency p99.9")];
const SHARES: [f64; 3] = [0.5, 0.99, 0.999];

const fn metric(name: &'static str) -> Metric {
    Metric { name, unit: "µs", max_scatter: MAX_SCATTER }
}

/// The reference that takes turns with a system.
#[derive(Clone, Copy)]
pub enum Reference<'a> {
    /// The generator without a switch.
    Generator(&'a GeneratorOnly),
    /// A bare redirect between the same remote ends.
    Redirect(&'a Testbed),
}

impl<'a> Reference<'a> {
    fn name(self) -> &'static str {
        match self {
            Reference::Generator(_) => GENERATOR,
            Reference::Redirect(_) => REDIRECT.name(),
        }
    }

    fn traffic(self, stream: Stream) -> Traffic<'a> {
        match self {
            Reference::Generator(generator) => generator.traffic(stream),
            Reference::Redirect(testbed) => testbed.traffic(stream),
        }
    }
}

/// Traffic of an even pace.
#[derive(Clone)]
struct Delayed {
    span: Span,
    delays: Histogram,
}

impl Delayed {
    /// Microseconds that this share of the frames do not exceed.
    fn quantile(&self, share: f64) -> f64 {
        self.delays.quantile(share).unwrap_or(f64::NAN) / 1e3
    }
}

impl Sample for Delayed {
    fn value(&self) -> f64 {
        self.quantile(0.5)
    }
}

/// Measures with `rate` frames a second at an even pace, or reports why that is not possible; the
/// second value is what the generator did without a switch, if it was the reference.
pub fn measure(
    testbed: &Testbed,
    reference: Option<Reference<'_>>,
    case: &Case,
    subject: &Subject,
    rate: u32,
    plan: Plan,
) -> (Vec<Point>, Vec<Alone>) {
    let stream = Stream { flows: case.flows, size: case.size, pace: Pace::Even(rate) };
    let round = Duration::from_millis(if plan.full { 500 } else { 300 });
    let (window, turns) = match reference {
        Some(_) => (TURN, turns_in(round)),
        None => (round, 1),
    };
    let other = reference.map(|reference| reference.traffic(stream));
    let through = testbed.traffic(stream);
    let candidate = |traffic| -> Candidate<'_, Delayed> {
        Box::new(move || {
            let traffic: &Traffic<'_> = traffic;
            let (span, delays) = traffic.delays(window)?;
            Ok(Delayed { span, delays })
        })
    };
    let mut candidates: Vec<_> = other.iter().chain([&through]).map(candidate).collect();
    match super::warm_turns(plan, turns, MAX_SCATTER, &mut candidates) {
        Ok(outcome) => points(subject, rate, &outcome, reference),
        Err(e) => {
            let why = format!("{e:#}");
            (METRICS.map(|metric| subject.absent(&metric, &why)).into(), Vec::new())
        }
    }
}

fn points(
    subject: &Subject,
    rate: u32,
    outcome: &Outcome<Delayed>,
    reference: Option<Reference<'_>>,
) -> (Vec<Point>, Vec<Alone>) {
    let unsteady = outcome.scatter() > MAX_SCATTER;
    let loss = outcome.series(|sample| sample.span.loss()).median();
    let sent = outcome.series(|sample| sample.span.sent as f64 / sample.span.seconds).median();
    let slow = sent < f64::from(rate) * (1.0 - SHORTFALL);
    let slow = slow.then(|| format!("the generator sent only {sent:.0} frames a second"));
    let lost = (loss > LOSS).then(|| {
        format!("{loss:.0} % of the frames did not arrive: these are the delays of the others")
    });
    let note = slow.into_iter().chain(lost).reduce(|one, other| format!("{one}; {other}"));
    let mark = |point| Point { unsteady, note: note.clone(), ..point };
    let name = reference.map(Reference::name);
    let mut points = Vec::new();
    let mut alone = Vec::new();
    for (share, metric) in SHARES.into_iter().zip(METRICS) {
        let quantile = |sample: &Delayed| sample.quantile(share);
        points.push(mark(subject.of_outcome(&metric, outcome, quantile, name)));
        if let (Some(Reference::Generator(_)), Some(samples)) = (reference, outcome.limit(quantile))
        {
            alone.push(Alone { metric, samples });
        }
    }
    let metric = Metric { name: "loss at an even pace", unit: "%", max_scatter: MAX_SCATTER };
    points.push(mark(subject.of_outcome(&metric, outcome, |sample| sample.span.loss(), None)));
    (points, alone)
}

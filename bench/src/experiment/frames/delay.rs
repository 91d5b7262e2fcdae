// SPDX-License-Identifier: Apache-2.0
//! How long frames are on their way when there are few.

use super::alone::Alone;
use super::cases::Case;
use crate::args::Plan;
use crate::bed::{Bed, Ceiling};
use crate::generator::{Pace, Span, Stream, Traffic};
use crate::histogram::Histogram;
use crate::measure::{Contender, Sample, TURN, Turns, turns, turns_in};
use crate::peer::System;
use crate::point::{Point, Subject};
use crate::report::results::GENERATOR;
use anyhow::Result;
use std::time::Duration;

/// Frames a second that are few for any system.
pub const FEW: u32 = 100_000;
/// Scatter (MAD over median) of the median delay that is too wide.
const WIDE: f64 = 0.2;
/// Share of the frames that the generator may send less.
const SLOW: f64 = 0.05;
/// Percent of the frames that are too many to be lost without a word.
const MUCH: f64 = 1.0;
/// The bare redirect that others take turns with.
pub const REDIRECT: System = System::BareXdp;
/// Of delays.
pub const UNIT: &str = "µs";
/// Shares of the frames, and how they are called.
pub const QUANTILES: [(f64, &str); 3] =
    [(0.5, "latency p50"), (0.99, "latency p99"), (0.999, "latency p99.9")];

/// What takes turns with a system.
#[derive(Clone, Copy)]
pub enum Beside<'a> {
    /// The generator alone.
    Generator(&'a Ceiling),
    /// A bare redirect between the same ends.
    Redirect(&'a Bed),
}

impl<'a> Beside<'a> {
    fn name(self) -> &'static str {
        match self {
            Beside::Generator(_) => GENERATOR,
            Beside::Redirect(_) => REDIRECT.name(),
        }
    }

    fn traffic(self, stream: Stream) -> Traffic<'a> {
        match self {
            Beside::Generator(ceiling) => ceiling.traffic(stream),
            Beside::Redirect(bed) => bed.traffic(stream),
        }
    }
}

/// Traffic of an even pace.
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

/// Measures under so many frames a second at an even pace; or says why that could not be done. What
/// the generator alone did comes second, where it was `beside`.
pub fn measure(
    bed: &Bed,
    beside: Option<Beside<'_>>,
    case: &Case,
    subject: &Subject,
    rate: u32,
    plan: Plan,
) -> (Vec<Point>, Vec<Alone>) {
    let stream = Stream { flows: case.flows, size: case.size, pace: Pace::Even(rate) };
    let round = Duration::from_millis(if plan.full { 500 } else { 300 });
    let (window, of_a_round) = match beside {
        Some(_) => (TURN, turns_in(round)),
        None => (round, 1),
    };
    let through = bed.traffic(stream);
    let other = beside.map(|beside| beside.traffic(stream));
    let contender = |traffic| -> Contender<'_, Delayed> { Box::new(move || look(traffic, window)) };
    let mut contenders: Vec<_> = [&through].into_iter().chain(&other).map(contender).collect();
    match turns(super::rounds_of(plan), of_a_round, WIDE, &mut contenders) {
        Ok(turns) => points(subject, rate, &turns, beside),
        Err(e) => {
            let why = format!("{e:#}");
            (QUANTILES.map(|(_, metric)| subject.absent(metric, UNIT, &why)).into(), Vec::new())
        }
    }
}

fn look(traffic: &Traffic<'_>, window: Duration) -> Result<Delayed> {
    let (span, delays) = traffic.delays(window)?;
    Ok(Delayed { span, delays })
}

/// Of the first contender; and what the second did, where that is the generator alone.
fn points(
    subject: &Subject,
    rate: u32,
    turns: &Turns<Delayed>,
    beside: Option<Beside<'_>>,
) -> (Vec<Point>, Vec<Alone>) {
    let quantiles = |contender, share| turns.series(contender, |s: &Delayed| s.quantile(share));
    let loss = turns.series(0, |sample| sample.span.loss());
    let sent = turns.series(0, |sample| sample.span.sent as f64 / sample.span.seconds).median();
    let slow = sent < f64::from(rate) * (1.0 - SLOW);
    let slow = slow.then(|| format!("the generator sent only {sent:.0} frames a second"));
    let lost = (loss.median() > MUCH).then(|| {
        format!(
            "{:.0} % of the frames did not arrive: these are the delays of the others",
            loss.median()
        )
    });
    let note = slow.into_iter().chain(lost).reduce(|one, other| format!("{one}; {other}"));
    let mark =
        |point| Point { taken: turns.taken, unsteady: turns.unsteady, note: note.clone(), ..point };
    let mut points = Vec::new();
    let mut alone = Vec::new();
    for (share, metric) in QUANTILES {
        let point = subject.point(metric, UNIT, &quantiles(0, share));
        points.push(mark(match beside {
            Some(beside) => point.against(beside.name(), &quantiles(1, share)),
            None => point,
        }));
        if let Some(Beside::Generator(_)) = beside {
            alone.push(Alone { metric, unit: UNIT, samples: quantiles(1, share) });
        }
    }
    points.push(mark(subject.point("loss at an even pace", "%", &loss)));
    (points, alone)
}

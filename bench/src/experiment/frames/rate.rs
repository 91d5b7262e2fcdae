// SPDX-License-Identifier: Apache-2.0
//! How many frames a system moves when there are more than it can.

use super::alone::Alone;
use super::cases::Case;
use crate::args::Plan;
use crate::bed::{Bed, Ceiling};
use crate::generator::Span;
use crate::measure::{Sample, Series, Turns, turns};
use crate::point::{Point, Subject};
use crate::report::results::GENERATOR;
use anyhow::Result;
use std::time::Duration;

/// The main metric.
pub const METRIC: &str = "rate";
/// The same by CPU time.
pub const PER_CORE: &str = "rate per core";
/// Their unit.
pub const UNIT: &str = "Mpps";
/// Scatter (MAD over median) that is too wide.
pub const WIDE: f64 = 0.05;

impl Sample for Span {
    fn value(&self) -> f64 {
        self.mpps()
    }
}

/// Lets the generator alone and the system take turns; the system's points, and the rates of the
/// generator alone.
///
/// # Errors
/// When no frame gets through.
pub fn measure(
    bed: &Bed,
    ceiling: &Ceiling,
    case: &Case,
    subject: &Subject,
    plan: Plan,
) -> Result<(Vec<Point>, Alone)> {
    let stream = case.flood();
    let (alone, through) = (ceiling.traffic(stream), bed.traffic(stream));
    let window = window(plan);
    let turns = turns(
        super::rounds_of(plan),
        1,
        WIDE,
        &mut [Box::new(|| alone.measure(window)), Box::new(|| through.measure(window))],
    )?;
    let of = |number: fn(&Span) -> f64| -> Series { turns.series(1, number) };
    let limit = turns.series(0, Span::mpps);
    let limit_per_core = turns.series(0, Span::per_core);
    let points = [
        subject.point(METRIC, UNIT, &of(Span::mpps)).against(GENERATOR, &limit),
        subject.point("throughput", "Gbit/s", &of(Span::gbits)),
        subject.point(PER_CORE, UNIT, &of(Span::per_core)).against(GENERATOR, &limit_per_core),
        subject.point("CPU", "%", &of(|span| span.cores() * 100.0)),
        subject.point("loss", "%", &of(Span::loss)),
    ];
    let alone = Alone { metric: METRIC, unit: UNIT, samples: limit };
    Ok((points.map(|point| marked(&turns, point)).into(), alone))
}

/// What the generator sends, up to its device.
///
/// # Errors
/// When no frame gets there.
pub fn sent(ceiling: &Ceiling, case: &Case, subject: &Subject, plan: Plan) -> Result<[Point; 2]> {
    let (traffic, window) = (ceiling.traffic(case.flood()), window(plan));
    let turns =
        turns(super::rounds_of(plan), 1, WIDE, &mut [Box::new(|| traffic.measure(window))])?;
    let points = [
        subject.point(METRIC, UNIT, &turns.series(0, Span::mpps)),
        subject.point(PER_CORE, UNIT, &turns.series(0, Span::per_core)),
    ];
    Ok(points.map(|point| marked(&turns, point)))
}

fn window(plan: Plan) -> Duration {
    Duration::from_millis(match plan {
        Plan { full: true, .. } => 200,
        Plan { quick: true, .. } => 50,
        _ => 100,
    })
}

fn marked(turns: &Turns<Span>, point: Point) -> Point {
    Point { taken: turns.taken, unsteady: turns.unsteady, ..point }
}

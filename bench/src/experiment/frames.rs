// SPDX-License-Identifier: Apache-2.0
//! Frames of the generator through every system, one system after the other.
//!
//! Generator and sink are the same for all systems, and the generator without a switch is measured
//! in turn with every system, in the same rounds. The generator's CPU also runs the kernel's part
//! of receiving frames; daemons have the other CPU.
//!
//! The first experiment with frames starts each system once, and measures the cases of all
//! selected experiments, because a case may belong to several.

pub mod cases;
pub mod latency;
pub mod rate;
pub mod warm_up;

use super::Run;
use crate::attempt::attempt;
use crate::measure::{Candidate, Outcome, Plan, Series, take_turns};
use crate::point::{Metric, Point, Subject};
use crate::programs::Hook;
use crate::report::results::{GENERATOR, Role};
use crate::system::System;
use crate::testbed::{Counted, GeneratorOnly, Testbed, Way};
use crate::topology::Remote;
use anyhow::{Context, Result};
use cases::{Case, union};
use indexmap::IndexMap;

/// Figures of one case of one system.
#[derive(Default)]
pub struct Figures {
    pub points: Vec<Point>,
    /// Figures of the generator without the system, in the same rounds.
    pub alone: Vec<(Metric, Series)>,
}

/// The name of a way that takes turns with a system, and the way: the generator without a switch,
/// or a bare redirect between the same remote ends.
pub type Reference<'a> = (&'static str, &'a dyn Way);

/// The number of flows and the frame size, and a figure of the generator without a switch.
type Alone = ((u32, u32), Metric, Series);

/// Measures the cases of all selected experiments, and adds their points.
pub fn run(run: &mut Run) -> Result<()> {
    if run.has_frames {
        return Ok(());
    }
    let generator = GeneratorOnly::new(Counted::AtSink, run.cpus)?;
    // Without one systems are compared with the generator alone, which the points then say.
    let redirects = [(Remote::Card, System::BareXdp), (Remote::Container, System::BareTc)]
        .map(|(to, system)| (to, system, attempt(|| Testbed::new(system, to, run.cpus)).ok()));
    let full = run.plan.full;
    let all = union(run.selected.iter().flat_map(|experiment| (experiment.frames)(full)));
    let mut alone: Vec<Alone> = Vec::new();
    for system in in_turn(&run.systems) {
        for (receiver, redirect, way) in &redirects {
            let receiver = *receiver;
            let fits = |case: &&Case| case.receiver == receiver && case.suits(system);
            let cases: Vec<&Case> = all.iter().filter(fits).collect();
            if cases.is_empty() {
                continue;
            }
            run.progress.say(&format!("starting {}, to a {}", system.name(), receiver.name()));
            let testbed = match attempt(|| Testbed::new(system, receiver, run.cpus)) {
                Ok(testbed) => testbed,
                Err(why) => {
                    cases.into_iter().for_each(|case| absent(run, case, system, &why));
                    continue;
                }
            };
            run.describe(system, &*testbed.instance);
            let bare: Reference<'_> = (GENERATOR, &generator);
            let of_latency: Reference<'_> = match way {
                Some(way) if system != *redirect => (redirect.name(), way),
                _ => bare,
            };
            let of_rate = if receiver == Remote::Container { of_latency } else { bare };
            let plan = run.plan;
            let mut session = Session { plan, testbed, of_rate, of_latency, installed: None };
            for case in cases {
                match attempt(|| session.measure(case, &case.subject(system.name()))) {
                    Ok(figures) => {
                        add(run, case, &figures.points);
                        let traffic = case.traffic();
                        alone.extend(figures.alone.into_iter().map(|(m, s)| (traffic, m, s)));
                    }
                    Err(why) => absent(run, case, system, &why),
                }
            }
            run.end(system, session);
        }
    }
    for case in &all {
        let subject = case.subject(GENERATOR);
        let figures = of_generator(&alone, case);
        let points: Vec<Point> = figures.iter().map(|(m, s)| subject.point(m, s)).collect();
        add(run, case, &points);
    }
    run.has_frames = true;
    Ok(())
}

/// Adds the points of a case to each experiment that has it.
fn add(run: &mut Run, case: &Case, points: &[Point]) {
    points.iter().for_each(|point| run.progress.point(point));
    for (experiment, parameters) in &case.subjects {
        run.results.points.extend(points.iter().map(|point| Point {
            experiment: (*experiment).to_owned(),
            parameters: parameters.clone(),
            ..point.clone()
        }));
    }
}

fn absent(run: &mut Run, case: &Case, system: System, why: &anyhow::Error) {
    let point = case.subject(system.name()).absent(&rate::RATE, &format!("{why:#}"));
    add(run, case, &[point]);
}

/// All figures of the generator without a switch with the traffic of a case: a series a metric.
fn of_generator(alone: &[Alone], case: &Case) -> Vec<(Metric, Series)> {
    let mut all: IndexMap<&str, (Metric, Series)> = IndexMap::new();
    for (_, metric, samples) in alone.iter().filter(|(traffic, ..)| *traffic == case.traffic()) {
        let (_, series) = all.entry(metric.name).or_insert_with(|| (*metric, Series::default()));
        series.0.extend(&samples.0);
    }
    all.into_values().collect()
}

/// Systems in the order in which they are measured: Slipswitch directly after the limits of the
/// same hook, because the speed of a machine's memory may change in half an hour.
fn in_turn(systems: &[System]) -> Vec<System> {
    let mut systems = systems.to_vec();
    systems.sort_by_key(|s| (Role::of(s.name()) == Role::Peer, s.leaves_by() != Hook::Xdp));
    systems
}

/// A system under measurement.
struct Session<'a> {
    plan: Plan,
    testbed: Testbed,
    /// Takes turns with the system where rates are measured.
    of_rate: Reference<'a>,
    /// Likewise for the latency of one flow.
    of_latency: Reference<'a>,
    /// The case whose rules and megaflows the system has, and what is wrong with them.
    installed: Option<(Case, Option<String>)>,
}

impl Session<'_> {
    fn measure(&mut self, case: &Case, subject: &Subject) -> Result<Figures> {
        let note = match self.installed.take() {
            Some((old, note)) if (old.rules, old.flows) == (case.rules, case.flows) => note,
            _ => warm_up::warm_up(&mut self.testbed, case)?,
        };
        self.installed = Some((case.clone(), note.clone()));
        let mut figures = rate::measure(&self.testbed, self.of_rate, case, subject, self.plan)?;
        if case.latency {
            // Turns cancel out the changes of the machine's clock, and are as long as the system's.
            let reference = (case.flows == 1).then_some(self.of_latency);
            let latencies =
                latency::measure(&self.testbed, reference, case, subject, latency::FEW, self.plan);
            figures.points.extend(latencies.points);
            figures.alone.extend(latencies.alone);
        }
        for point in &mut figures.points {
            point.note = point.note.take().or_else(|| note.clone());
        }
        Ok(figures)
    }
}

/// Most rounds of one case: a full run has more than 500 figures of frames.
pub const ROUNDS: u32 = 3;

/// Lets candidates take turns after each has measured once without a result; the outcome of the
/// last, with the first as its limit if there are two.
fn warm_turns(
    plan: Plan,
    turns: u32,
    max_scatter: f64,
    candidates: &mut [Candidate<'_>],
) -> Result<Outcome> {
    for candidate in candidates.iter_mut() {
        candidate()?;
    }
    let limit = (candidates.len() > 1).then_some(0);
    let mut outcomes = take_turns(plan.at_most(ROUNDS), turns, max_scatter, limit, candidates)?;
    outcomes.pop().context("nothing was measured")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_without_a_switch_gives_one_series_a_metric() {
        let cases = (cases::GRID.frames)(true);
        let alone = |case: &Case, name, figure| {
            (case.traffic(), Metric::new(name, "µs", 0.1), Series(vec![figure; 2]))
        };
        let all = [
            alone(&cases[0], "p50", 1.0),
            alone(&cases[0], "p99", 3.0),
            alone(&cases[1], "p50", 9.0),
            alone(&cases[0], "p50", 2.0),
        ];
        let found: Vec<_> =
            of_generator(&all, &cases[0]).into_iter().map(|(m, s)| (m.name, s.0)).collect();
        assert_eq!(found, [("p50", vec![1.0, 1.0, 2.0, 2.0]), ("p99", vec![3.0, 3.0])]);
    }

    #[test]
    fn slipswitch_follows_its_limits() {
        let names: Vec<&str> = in_turn(&System::ALL).iter().map(|s| s.name()).collect();
        assert_eq!(names[..2], ["bare XDP redirect", "bare XDP lookup"]);
        assert_eq!(
            names[2..6],
            ["Slipswitch xdp", "bare tc redirect", "bare tc redirect_peer", "Slipswitch tcx"]
        );
        assert_eq!(names.len(), System::ALL.len());
    }
}

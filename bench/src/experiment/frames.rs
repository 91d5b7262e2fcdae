// SPDX-License-Identifier: Apache-2.0
//! Frames of the generator through every system, one system after the other.
//!
//! Generator and sink are the same for all systems, and the generator without a switch is measured
//! in turn with every system, in the same rounds. The generator's CPU also runs the kernel's part
//! of receiving frames; daemons have the other CPU.
//!
//! The first experiment with frames starts each system once, and measures the cases of all
//! selected experiments; each experiment then takes its points from these.

mod case;
pub mod latency;
pub mod rate;
pub mod warm_up;

use super::{Reason, Run};
use crate::attempt::attempt;
use crate::measure::{Candidate, Outcome, Sample, Series, take_turns};
use crate::plan::Plan;
use crate::point::{Metric, Point, Subject};
use crate::programs::Hook;
use crate::report::results::{GENERATOR, Role};
use crate::system::System;
use crate::testbed::{Counted, GeneratorOnly, Testbed};
use crate::topology::Remote;
use anyhow::{Context, Result};
use indexmap::IndexMap;
use latency::Reference;

pub use case::{Case, Layout};

/// One metric of the generator without a switch.
#[derive(Clone, Debug)]
pub struct Alone {
    pub metric: Metric,
    pub samples: Series,
}

/// One case of one system.
#[derive(Clone, Debug)]
pub struct Measured {
    pub system: System,
    pub receiver: Remote,
    pub case: Case,
    /// The figures, or why there are none.
    pub points: Result<Vec<Point>, String>,
    /// Results of the generator without the system, in the same rounds.
    pub alone: Vec<Alone>,
}

/// Adds the points of the present experiment's cases.
pub fn run(run: &mut Run) -> Result<()> {
    let measured = match run.frames.take() {
        Some(measured) => measured,
        None => measure_all(run)?,
    };
    let layouts = (run.experiment.frames)(run.plan.full);
    for system in in_turn(&run.systems) {
        for layout in &layouts {
            for case in layout.cases.iter().filter(|case| case.suits(system)) {
                let subject = run.subject(system, case.parameters.clone());
                match find(&measured, system, layout.receiver, case).map(|m| &m.points) {
                    Some(Ok(points)) => run.results.points.extend(moved(points, &subject)),
                    Some(Err(why)) => run.add(subject.absent(&rate::RATE, why)),
                    None => run.add(subject.absent(&rate::RATE, "it was not measured")),
                }
            }
        }
    }
    for case in layouts.iter().flat_map(|layout| &layout.cases) {
        let (experiment, system) = (run.experiment.name, GENERATOR.to_owned());
        let subject = Subject { experiment, system, parameters: case.parameters.clone() };
        for Alone { metric, samples } in alone(&measured, case) {
            run.add(subject.point(&metric, &samples));
        }
    }
    run.frames = Some(measured);
    Ok(())
}

/// Returns the measurement of a system with the traffic and the rules of a case.
pub fn find<'a>(
    measured: &'a [Measured],
    system: System,
    receiver: Remote,
    case: &Case,
) -> Option<&'a Measured> {
    let of_system = measured.iter().filter(|m| (m.system, m.receiver) == (system, receiver));
    of_system.into_iter().find(|m| m.case.stands_for(case))
}

/// Points as those of another subject.
fn moved(points: &[Point], subject: &Subject) -> Vec<Point> {
    let moved = |point: &Point| Point {
        experiment: subject.experiment.to_owned(),
        parameters: subject.parameters.clone(),
        ..point.clone()
    };
    points.iter().map(moved).collect()
}

/// All that the generator did without a switch, with the flows and the frame size of a case.
fn alone(measured: &[Measured], case: &Case) -> Vec<Alone> {
    let mut all: IndexMap<&str, Alone> = IndexMap::new();
    let alike = measured.iter().filter(|m| m.case.traffic() == case.traffic());
    for Alone { metric, samples } in alike.flat_map(|m| &m.alone) {
        let none = || Alone { metric: metric.clone(), samples: Series::default() };
        all.entry(metric.name).or_insert_with(none).samples.0.extend(&samples.0);
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

/// Measures the cases of all selected experiments.
fn measure_all(run: &mut Run) -> Result<Vec<Measured>> {
    let generator = GeneratorOnly::new(Counted::AtSink, run.cpus)?;
    // Without it latency is compared with the generator alone, which the points then say.
    let redirect = attempt(|| Testbed::new(latency::REDIRECT, Remote::Card, run.cpus)).ok();
    let full = run.plan.full;
    let layouts = case::union(run.selected.iter().flat_map(|e| (e.frames)(full)).collect());
    let mut measured = Vec::new();
    for system in in_turn(&run.systems) {
        for layout in &layouts {
            let receiver = layout.receiver;
            let cases = layout.cases.iter().filter(|case| case.suits(system)).cloned();
            let to = format!("{}, to a {}", system.name(), receiver.name());
            run.progress.say(&format!("starting {to}"));
            let (plan, generator) = (run.plan, &generator);
            let result = |case, result: Result<Figures>| {
                let result = result.map_err(|e| format!("{e:#}"));
                let (points, alone) = match result {
                    Ok(Figures { points, alone }) => (Ok(points), alone),
                    Err(why) => (Err(why), Vec::new()),
                };
                Measured { system, receiver, case, points, alone }
            };
            match attempt(|| Testbed::new(system, receiver, run.cpus)) {
                Ok(testbed) => {
                    run.describe(system, &*testbed.instance);
                    let is_comparable = system != latency::REDIRECT && receiver == Remote::Card;
                    let reference = match redirect.as_ref().filter(|_| is_comparable) {
                        Some(redirect) => Reference::Redirect(redirect),
                        None => Reference::Generator(generator),
                    };
                    let installed = None;
                    let mut session = Session { plan, testbed, generator, reference, installed };
                    for case in cases {
                        let subject = run.subject(system, case.parameters.clone());
                        let figures = attempt(|| session.measure(&case, &subject));
                        let figures = figures.inspect(|figures| {
                            figures.points.iter().for_each(|point| run.progress.point(point));
                        });
                        measured.push(result(case, figures));
                    }
                    run.end(system, session);
                }
                Err(e) => {
                    let why = format!("{e:#}");
                    let failed = |case| result(case, Err(anyhow::anyhow!("{why}")));
                    measured.extend(cases.map(failed));
                }
            }
        }
    }
    Ok(measured)
}

/// Results of one case.
struct Figures {
    points: Vec<Point>,
    alone: Vec<Alone>,
}

/// A system under measurement.
struct Session<'a> {
    plan: Plan,
    testbed: Testbed,
    generator: &'a GeneratorOnly,
    /// Takes turns with the system where the latency of one flow is measured.
    reference: Reference<'a>,
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
        let (mut points, rates) =
            rate::measure(&self.testbed, self.generator, case, subject, self.plan)?;
        let mut alone = vec![rates];
        if case.latency {
            // Turns cancel out the changes of the machine's clock, and are as long as the system's.
            let reference = (case.flows == 1).then_some(self.reference);
            let (latencies, generator) =
                latency::measure(&self.testbed, reference, case, subject, latency::FEW, self.plan);
            points.extend(latencies);
            alone.extend(generator);
        }
        for point in &mut points {
            point.note = point.note.take().or_else(|| note.clone());
        }
        Ok(Figures { points, alone })
    }
}

/// Rounds of one case: a full run has more than 500 figures of frames.
fn rounds_of(plan: Plan) -> Plan {
    plan.at_most(3)
}

/// Lets candidates take turns after each has measured once without a result; the outcome of the
/// last, with the first as its limit if there are two.
fn warm_turns<T: Sample>(
    plan: Plan,
    turns: u32,
    max_scatter: f64,
    candidates: &mut [Candidate<'_, T>],
) -> Result<Outcome<T>> {
    for candidate in candidates.iter_mut() {
        candidate()?;
    }
    let limit = (candidates.len() > 1).then_some(0);
    let mut outcomes = take_turns(rounds_of(plan), turns, max_scatter, limit, candidates)?;
    outcomes.pop().context("nothing was measured")
}

/// Why other switches may be ahead where frames come from the generator.
pub const FRAMES: &[Reason] = &[
    Reason {
        system: "Linux bridge",
        metrics: &[
            "rate",
            "throughput",
            "rate per core",
            "latency p50",
            "latency p99",
            "latency p99.9",
        ],
        most: None,
        words: "It forwards by destination address alone, without rules, flows and their \
                statistics. Its hook is after those of the bare redirects, so where these are \
                slower, too, the lookup is not the reason.",
    },
    Reason { system: "OVS AF_XDP", ..OWN_CPU },
    Reason { system: "OVS-DPDK", ..OWN_CPU },
];

/// The advantage of a thread that polls.
const OWN_CPU: Reason = Reason {
    system: "",
    metrics: &["rate", "throughput"],
    most: None,
    words: "Its polling thread has a CPU of its own; the rate per core accounts for that, the \
            plain rate does not.",
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{flows, grid, one_flow};
    use crate::point::tests::rate_point;

    const SYSTEM: System = System::LinuxBridge;

    fn first(layouts: fn(bool) -> Vec<Layout>) -> Case {
        layouts(false)[0].cases[0].clone()
    }

    fn measured(case: &Case, alone: &[(&'static str, f64)]) -> Measured {
        let points = Ok(vec![rate_point(SYSTEM.name(), case.parameters.clone(), 1.0)]);
        let alone = alone.iter().map(|(name, figure)| Alone {
            metric: Metric { name, unit: "µs", max_scatter: 0.1 },
            samples: Series(vec![*figure; 2]),
        });
        let (case, alone) = (case.clone(), alone.collect());
        Measured { system: SYSTEM, receiver: Remote::Card, case, points, alone }
    }

    #[test]
    fn one_flow_of_the_grid_is_that_of_other_experiments() {
        let all = [measured(&first(grid::GRID.frames), &[])];
        for layouts in [flows::FLOWS.frames, one_flow::ONE_FLOW.frames] {
            let case = first(layouts);
            let found = find(&all, SYSTEM, Remote::Card, &case).unwrap();
            let parameters = case.parameters.clone();
            let subject = Subject { experiment: "flows", system: "any".into(), parameters };
            let points = moved(found.points.as_ref().unwrap(), &subject);
            assert_eq!(points[0].median, Some(1.0));
            assert_eq!(
                (&points[0].experiment[..], &points[0].parameters),
                ("flows", &case.parameters)
            );
            assert!(find(&all, SYSTEM, Remote::Container, &case).is_none());
            assert!(find(&all, System::BareTc, Remote::Card, &case).is_none());
        }
    }

    #[test]
    fn a_case_without_latency_does_not_stand_for_one_with_it() {
        let case = first(flows::FLOWS.frames);
        assert!(!case.latency);
        let all = [measured(&case, &[])];
        assert!(find(&all, SYSTEM, Remote::Card, &first(one_flow::ONE_FLOW.frames)).is_none());
        assert!(find(&all, SYSTEM, Remote::Card, &case).is_some());
    }

    #[test]
    fn the_generator_without_a_switch_gives_one_series_a_metric() {
        let cases = (grid::GRID.frames)(true).remove(0).cases;
        let all = [
            measured(&cases[0], &[("p50", 1.0), ("p99", 3.0)]),
            measured(&cases[1], &[("p50", 9.0)]),
            measured(&cases[0], &[("p50", 2.0)]),
        ];
        let alone = alone(&all, &cases[0]);
        let found: Vec<_> = alone.iter().map(|a| (a.metric.name, a.samples.0.as_slice())).collect();
        assert_eq!(found, [("p50", &[1.0, 1.0, 2.0, 2.0][..]), ("p99", &[3.0, 3.0][..])]);
    }

    #[test]
    fn slipswitch_follows_its_limits() {
        let names: Vec<&str> = in_turn(&System::ALL).iter().map(|s| s.name()).collect();
        let ours = ["Slipswitch xdp", "bare tc redirect", "Slipswitch tcx", "Slipswitch userspace"];
        assert_eq!(names[..2], ["bare XDP redirect", "bare XDP lookup"]);
        assert_eq!(names[2..6], ours);
        assert_eq!(names.len(), System::ALL.len());
    }
}

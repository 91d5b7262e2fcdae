//! Frames of our own generator through every system, each by itself, one after the other.
//!
//! Generator and sink are the same for all, and the generator's own ceiling is measured in turn
//! with every system, in the same rounds. The generator's CPU also runs what the kernel does for
//! arriving frames; daemons have the other CPU.

mod cases;
mod delay;
mod half;
mod known;
mod rate;
mod ready;

use super::{Run, subject};
use crate::args::Plan;
use crate::bed::{Bed, Ceiling};
use crate::catalogue::Experiment;
use crate::measure::Series;
use crate::peer::System;
use crate::point::{Point, Subject};
use crate::topology::Far;
use anyhow::Result;
use cases::{Case, Layout};
use indexmap::IndexMap;

pub use half::half;
pub use known::Known;
use known::Measured;

/// (a): frame sizes by numbers of flows.
pub fn grid(run: &mut Run, experiment: &Experiment) -> Result<()> {
    sweep(run, experiment, &cases::grid(run.plan.full))
}

/// (b): numbers of flows.
pub fn flows(run: &mut Run, experiment: &Experiment) -> Result<()> {
    sweep(run, experiment, &cases::flows(run.plan.full))
}

/// (e): numbers of masks, for systems that have any.
pub fn masks(run: &mut Run, experiment: &Experiment) -> Result<()> {
    let all = run.systems.clone();
    run.systems.retain(|s| s.has_rules());
    let result = sweep(run, experiment, &cases::masks(run.plan.full));
    run.systems = all;
    result
}

/// (c): one flow, to a card and to a container.
pub fn one_flow(run: &mut Run, experiment: &Experiment) -> Result<()> {
    sweep(run, experiment, &cases::one_flow())
}

fn sweep(run: &mut Run, experiment: &Experiment, layouts: &[Layout]) -> Result<()> {
    let ceiling = Ceiling::new(run.cpus)?;
    let mut limits: IndexMap<Choice, Series> = IndexMap::new();
    for system in run.systems.clone() {
        for layout in layouts {
            let receiver = layout.receiver;
            let cases = repeat_known(run, experiment, system, layout, &mut limits);
            if cases.is_empty() {
                continue;
            }
            let layout = Layout { receiver, cases };
            let way = format!("{}, to a {}", system.name(), receiver.name());
            run.progress.say(&format!("starting {way}"));
            match crate::attempt(|| Bed::new(system, receiver, run.cpus)) {
                Ok(bed) => {
                    let name = system.name().to_owned();
                    run.results.systems.entry(name).or_insert_with(|| bed.peer.settings());
                    let mut session =
                        Session { experiment, system, plan: run.plan, bed, ceiling: &ceiling };
                    session.run(&layout, &mut limits, &mut |case, points, limit| {
                        keep(run, (system, receiver), case, points, limit);
                    });
                }
                Err(e) => {
                    for case in &layout.cases {
                        let subject = subject(experiment, system, case.parameters.clone());
                        run.add(subject.absent(rate::METRIC, rate::UNIT, &format!("{e:#}")));
                    }
                }
            }
        }
    }
    add_limits(run, experiment, layouts, &limits);
    Ok(())
}

/// Adds the points of cases that were measured already; the other cases.
fn repeat_known(
    run: &mut Run,
    experiment: &Experiment,
    system: System,
    layout: &Layout,
    limits: &mut IndexMap<Choice, Series>,
) -> Vec<Case> {
    let mut rest = Vec::new();
    for case in &layout.cases {
        match run.known.find(system, layout.receiver, case) {
            Some(measured) => {
                limits.entry(case.choice()).or_default().0.extend(&measured.limit.0);
                let points = measured.points_in(experiment.name, case);
                points.into_iter().for_each(|point| run.add(point));
            }
            None => rest.push(case.clone()),
        }
    }
    rest
}

/// Adds the points of a case, and keeps them for others when there is a limit, which says that it
/// could be measured.
fn keep(
    run: &mut Run,
    (system, receiver): (System, Far),
    case: &Case,
    points: Vec<Point>,
    limit: Option<Series>,
) {
    if let Some(limit) = limit {
        let (case, points) = (case.clone(), points.clone());
        run.known.keep(Measured { system, receiver, case, points, limit });
    }
    points.into_iter().for_each(|point| run.add(point));
}

/// What matters to the generator alone: flows and size.
type Choice = (u32, u32);

/// Adds what the generator alone did beside all systems, for each case.
fn add_limits(
    run: &mut Run,
    experiment: &Experiment,
    layouts: &[Layout],
    limits: &IndexMap<Choice, Series>,
) {
    for case in layouts.iter().flat_map(|layout| &layout.cases) {
        let Some(samples) = limits.get(&case.choice()) else { continue };
        let subject = Subject {
            experiment: experiment.name,
            system: rate::CEILING.to_owned(),
            parameters: case.parameters.clone(),
        };
        run.add(subject.point(rate::METRIC, rate::UNIT, samples));
    }
}

/// Takes what came of a case: points, and rates of the generator alone when it could be measured.
type Done<'a> = dyn FnMut(&Case, Vec<Point>, Option<Series>) + 'a;

/// A system under measurement.
struct Session<'a> {
    experiment: &'a Experiment,
    system: System,
    plan: Plan,
    bed: Bed,
    ceiling: &'a Ceiling,
}

impl Session<'_> {
    fn run(&mut self, layout: &Layout, limits: &mut IndexMap<Choice, Series>, done: &mut Done<'_>) {
        let mut installed = None;
        let mut note = None;
        for case in &layout.cases {
            let subject = subject(self.experiment, self.system, case.parameters.clone());
            let wanted = (case.rules, case.flows);
            let points = crate::attempt(|| {
                if installed != Some(wanted) {
                    installed = None;
                    self.ceiling.set_flows(case.flows)?;
                    note = ready::ready(&mut self.bed, case)?;
                    installed = Some(wanted);
                }
                self.measure(case, &subject)
            });
            match points {
                Ok((points, limit)) => {
                    limits.entry(case.choice()).or_default().0.extend(&limit.0);
                    let note = note.as_deref();
                    let points = points.into_iter().map(|p| with_note(p, note)).collect();
                    done(case, points, Some(limit));
                }
                Err(e) => {
                    let point = subject.absent(rate::METRIC, rate::UNIT, &format!("{e:#}"));
                    done(case, vec![point], None);
                }
            }
        }
    }

    /// The system's points, and the rates of the generator alone beside it.
    fn measure(&self, case: &Case, subject: &Subject) -> Result<(Vec<Point>, Series)> {
        let (mut points, limit) = rate::measure(&self.bed, self.ceiling, case, subject, self.plan)?;
        if case.delays {
            points.extend(delay::measure(&self.bed, case, subject, delay::FEW, self.plan));
        }
        Ok((points, limit))
    }
}

/// Rounds for one point: there are many points.
fn rounds_of(plan: Plan) -> Plan {
    Plan { repeat: plan.repeat.min(if plan.full { 5 } else { 3 }), ..plan }
}

fn with_note(mut point: Point, note: Option<&str>) -> Point {
    if point.note.is_none() {
        point.note = note.map(str::to_owned);
    }
    point
}

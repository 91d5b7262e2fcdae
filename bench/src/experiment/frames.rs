// SPDX-License-Identifier: Apache-2.0
//! Frames of our own generator through every system, each by itself, one after the other.
//!
//! Generator and sink are the same for all, and the generator's own ceiling is measured in turn
//! with every system, in the same rounds. The generator's CPU also runs what the kernel does for
//! arriving frames; daemons have the other CPU.

mod alone;
mod cases;
mod delay;
mod half;
mod known;
mod rate;
mod ready;

use super::{Run, subject};
use crate::args::Plan;
use crate::bed::{Bed, Ceiling, End};
use crate::catalogue::Experiment;
use crate::object::Hook;
use crate::peer::System;
use crate::point::{Point, Subject};
use crate::report::results::{GENERATOR, Role, SENDER};
use crate::topology::Far;
use alone::Alone;
use anyhow::Result;
use cases::{Case, Layout};
use delay::Beside;

pub use half::half;
pub use known::Known;
use known::Measured;

/// Measures all cases of an experiment: (a) frame sizes by numbers of flows, (b) numbers of flows,
/// (c) one flow to a card and to a container, (e) numbers of masks. Each system runs once for all
/// experiments that put it between the same ends: it gives the cases of those that come later, too,
/// which are kept for them.
pub fn sweep(run: &mut Run, experiment: &Experiment) -> Result<()> {
    let ceiling = Ceiling::new(End::Sink, run.cpus)?;
    // Without it latency is against the generator alone, which the points then say.
    let redirect = crate::attempt(|| Bed::new(delay::REDIRECT, Far::Card, run.cpus)).ok();
    let mut alone = alone::All::default();
    let layouts = cases::of(experiment.name, run.plan.full);
    for system in in_turn(&run.systems) {
        for layout in layouts.iter().filter(|layout| layout.suits(system)) {
            let receiver = layout.receiver;
            let own = repeat_known(run, experiment, system, layout, &mut alone);
            if own.is_empty() {
                continue;
            }
            let cases = [own.clone(), later(run, system, receiver, &own)].concat();
            let layout = Layout { cases: cases::in_order(cases), ..layout.clone() };
            let way = format!("{}, to a {}", system.name(), receiver.name());
            run.progress.say(&format!("starting {way}"));
            match crate::attempt(|| Bed::new(system, receiver, run.cpus)) {
                Ok(bed) => {
                    let name = system.name().to_owned();
                    run.results.systems.entry(name).or_insert_with(|| bed.peer.settings());
                    let is_same_way = system != delay::REDIRECT && receiver == Far::Card;
                    let beside = match redirect.as_ref().filter(|_| is_same_way) {
                        Some(redirect) => Beside::Redirect(redirect),
                        None => Beside::Generator(&ceiling),
                    };
                    let (plan, ceiling) = (run.plan, &ceiling);
                    let mut session = Session { experiment, system, plan, bed, ceiling, beside };
                    session.run(&layout, &mut |case, points, beside| {
                        let measured = beside.map(|alone| {
                            let (case, points) = (case.clone(), points.clone());
                            Measured { system, receiver, case, points, alone }
                        });
                        if !own.contains(case) {
                            let (name, rules, flows) =
                                (system.name(), case.rules.name(), case.flows);
                            let words = format!("{name}, rules {rules}, flows {flows}: for later");
                            run.progress.say(&words);
                        } else {
                            if let Some(measured) = &measured {
                                alone.add(case, &measured.alone);
                            }
                            points.into_iter().for_each(|point| run.add(point));
                        }
                        measured.into_iter().for_each(|measured| run.known.keep(measured));
                    });
                    run.end(system, session);
                }
                Err(e) => {
                    for case in &own {
                        let subject = subject(experiment, system, case.parameters.clone());
                        run.add(subject.absent(rate::METRIC, rate::UNIT, &format!("{e:#}")));
                    }
                }
            }
        }
    }
    add_alone(run, experiment, &layouts, &alone);
    Ok(())
}

/// (c): one flow to a card and to a container, and what the generator sends, whatever becomes of it.
pub fn one_flow(run: &mut Run, experiment: &Experiment) -> Result<()> {
    sweep(run, experiment)?;
    let ceiling = Ceiling::new(End::Device, run.cpus)?;
    let layouts = cases::of(experiment.name, run.plan.full);
    for case in layouts.iter().filter(|l| l.receiver == Far::Card).flat_map(|l| &l.cases) {
        run.progress.say(SENDER);
        let subject = no_switch(experiment, SENDER, case);
        let points = rate::sent(&ceiling, case, &subject, run.plan).unwrap_or_else(|e| {
            let why = format!("{e:#}");
            [rate::METRIC, rate::PER_CORE].map(|metric| subject.absent(metric, rate::UNIT, &why))
        });
        points.into_iter().for_each(|point| run.add(point));
    }
    Ok(())
}

/// Systems in the order in which they are measured: ours right behind the limits at their hook, as a
/// machine's memory may be another one half an hour later.
fn in_turn(systems: &[System]) -> Vec<System> {
    let mut systems = systems.to_vec();
    systems.sort_by_key(|s| (Role::of(s.name()) == Role::Peer, s.leaves_by() != Hook::Xdp));
    systems
}

/// Cases of all experiments that were asked for which a system can give between the same ends,
/// but those that are known and those of `own`.
fn later(run: &Run, system: System, receiver: Far, own: &[Case]) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let layouts = run.asked.iter().flat_map(|name| cases::of(name, run.plan.full));
    for case in layouts.filter(|l| l.receiver == receiver && l.suits(system)).flat_map(|l| l.cases)
    {
        let is_there = |other: &Case| other.stands_for(&case);
        let is_known = run.known.find(system, receiver, &case).is_some();
        if !is_known && !own.iter().chain(&cases).any(is_there) {
            cases.push(case);
        }
    }
    cases
}

/// Adds the points of cases that were measured already; the other cases.
fn repeat_known(
    run: &mut Run,
    experiment: &Experiment,
    system: System,
    layout: &Layout,
    alone: &mut alone::All,
) -> Vec<Case> {
    let mut rest = Vec::new();
    for case in &layout.cases {
        match run.known.find(system, layout.receiver, case) {
            Some(measured) => {
                alone.add(case, &measured.alone);
                let points = measured.points_in(experiment.name, case);
                points.into_iter().for_each(|point| run.add(point));
            }
            None => rest.push(case.clone()),
        }
    }
    rest
}

/// Adds what the generator alone did beside all systems, for each case.
fn add_alone(run: &mut Run, experiment: &Experiment, layouts: &[Layout], all: &alone::All) {
    for case in layouts.iter().flat_map(|layout| &layout.cases) {
        let subject = no_switch(experiment, GENERATOR, case);
        for Alone { metric, unit, samples } in all.of(case) {
            let unsteady = samples.scatter() > rate::WIDE;
            run.add(Point { unsteady, ..subject.point(metric, unit, samples) });
        }
    }
}

/// What stands in the place of a system.
fn no_switch(experiment: &Experiment, name: &str, case: &Case) -> Subject {
    Subject {
        experiment: experiment.name,
        system: name.to_owned(),
        parameters: case.parameters.clone(),
    }
}

/// Takes what came of a case: points, and what the generator alone did when it could be measured.
type Done<'a> = dyn FnMut(&Case, Vec<Point>, Option<Vec<Alone>>) + 'a;

/// A system under measurement.
struct Session<'a> {
    experiment: &'a Experiment,
    system: System,
    plan: Plan,
    bed: Bed,
    ceiling: &'a Ceiling,
    /// Takes turns with it where the latency of one flow is measured.
    beside: Beside<'a>,
}

impl Session<'_> {
    fn run(&mut self, layout: &Layout, done: &mut Done<'_>) {
        let mut installed = None;
        let mut note = None;
        for case in &layout.cases {
            let subject = subject(self.experiment, self.system, case.parameters.clone());
            let wanted = (case.rules, case.flows);
            let points = crate::attempt(|| {
                if installed != Some(wanted) {
                    installed = None;
                    note = ready::ready(&mut self.bed, case)?;
                    installed = Some(wanted);
                }
                self.measure(case, &subject)
            });
            match points {
                Ok((points, alone)) => {
                    let note = note.as_deref();
                    let points = points.into_iter().map(|p| with_note(p, note)).collect();
                    done(case, points, Some(alone));
                }
                Err(e) => {
                    let point = subject.absent(rate::METRIC, rate::UNIT, &format!("{e:#}"));
                    done(case, vec![point], None);
                }
            }
        }
    }

    /// The system's points, and what the generator alone did beside it.
    fn measure(&self, case: &Case, subject: &Subject) -> Result<(Vec<Point>, Vec<Alone>)> {
        let (mut points, rates) = rate::measure(&self.bed, self.ceiling, case, subject, self.plan)?;
        let mut alone = vec![rates];
        if case.delays {
            // It takes a clock that runs now slower, now faster out of the comparison, and as long
            // as the system's own turns.
            let beside = (case.flows == 1).then_some(self.beside);
            let (delays, generator) =
                delay::measure(&self.bed, beside, case, subject, delay::FEW, self.plan);
            points.extend(delays);
            alone.extend(generator);
        }
        Ok((points, alone))
    }
}

/// Rounds for one point: there are many points, in a full run more than 500.
fn rounds_of(plan: Plan) -> Plan {
    plan.at_most(3)
}

fn with_note(mut point: Point, note: Option<&str>) -> Point {
    if point.note.is_none() {
        point.note = note.map(str::to_owned);
    }
    point
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_follow_their_limits() {
        let names: Vec<&str> = in_turn(&System::ALL).iter().map(|s| s.name()).collect();
        let ours = ["Slipswitch xdp", "bare tc redirect", "Slipswitch tcx", "Slipswitch userspace"];
        assert_eq!(names[..2], ["bare XDP redirect", "bare XDP lookup"]);
        assert_eq!(names[2..6], ours);
        assert_eq!(names.len(), System::ALL.len());
    }
}

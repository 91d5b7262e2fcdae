// SPDX-License-Identifier: Apache-2.0
//! What experiments have in common: systems that take turns, and points that come of it.
//!
//! Systems whose threads poll cannot take turns with others, because they take a CPU all the
//! time. Each of those is measured alone, after the rest.

mod cpu;
mod flood;
mod frames;
mod hosts;
mod restart;
mod rules;
mod setup;
mod sweep;

pub use frames::Known;

use crate::args::Plan;
use crate::catalogue::{self, Experiment};
use crate::cpu_time::of_process;
use crate::measure::{Contender, Series, Stand, stands};
use crate::peer::{Rules, System};
use crate::pin::Cpus;
use crate::point::{Parameters, Point, Subject};
use crate::progress::Progress;
use crate::report::results::Results;
use crate::setting::Setting;
use anyhow::{Error, Result, anyhow};
use std::thread;
use std::time::Duration;

/// How long a daemon is looked at to see whether it polls.
const GLANCE: Duration = Duration::from_millis(300);

/// A run of experiments.
pub struct Run {
    /// How much is measured.
    pub plan: Plan,
    /// Where.
    pub cpus: Cpus,
    /// Systems that were asked for.
    pub systems: Vec<System>,
    /// Names of the experiments that were asked for.
    pub asked: Vec<&'static str>,
    /// Systems whose threads were seen to poll.
    pub pollers: Vec<System>,
    /// What came of it so far.
    pub results: Results,
    /// Frames that were measured so far, for experiments that have points in common.
    pub known: Known,
    /// For who waits.
    pub progress: Progress,
}

/// Does an experiment.
pub type Work = fn(&mut Run, &Experiment) -> Result<()>;

/// An experiment, how it is done, and about how many seconds a short and a full run take.
pub type Entry = (Experiment, Work, [u64; 2]);

/// All experiments, in the order of the page.
pub const ALL: [Entry; 13] = [
    (catalogue::GRID, frames::sweep, [420, 3600]),
    (catalogue::FLOWS, frames::sweep, [1, 1]),
    (catalogue::ONE_FLOW, frames::one_flow, [40, 90]),
    (catalogue::HALF, frames::half, [30, 60]),
    (catalogue::MASKS, frames::sweep, [1, 1]),
    (catalogue::ECHO, hosts::echo, [55, 180]),
    (catalogue::TCP, hosts::tcp, [200, 330]),
    (catalogue::FLOOD, flood::run, [230, 340]),
    (catalogue::SETUP, setup::run, [35, 100]),
    (catalogue::RULES, rules::run, [80, 240]),
    (catalogue::SWEEP, sweep::run, [35, 120]),
    (catalogue::CPU, cpu::run, [100, 200]),
    (catalogue::RESTART, restart::run, [75, 100]),
];

/// About how many minutes a short run takes.
pub fn minutes() -> u64 {
    let short = ALL.iter().filter(|(experiment, ..)| !experiment.long);
    short.map(|(.., [seconds, _])| seconds).sum::<u64>().div_ceil(60)
}

/// A figure that systems are asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Under which choice.
    pub parameters: Parameters,
    /// What is measured.
    pub metric: &'static str,
    /// In which unit.
    pub unit: &'static str,
    /// Scatter (MAD over median) that is too wide.
    pub wide: f64,
}

/// Measures a system once.
pub type Measure<'a> = Box<dyn Fn(&Setting) -> Result<f64> + 'a>;

/// A figure, and how a system gives it.
pub struct Task<'a> {
    /// The figure.
    pub asked: Asked,
    /// Rules that take the place of a system's for this figure and those behind it; systems that
    /// take none are not asked for it.
    pub rules: Option<Rules>,
    /// In a round systems take so many turns, 1 or more, and the mean is what the round says:
    /// where it takes but a moment to begin, short turns see the same machine, which may be
    /// twice as fast a second later.
    pub turns: u32,
    /// Measures once, which is a turn.
    pub work: Measure<'a>,
}

impl Task<'_> {
    fn suits(&self, system: System) -> bool {
        self.rules.is_none() || system.has_rules()
    }

    /// Measures once after the rules have been put in.
    fn first(&self, setting: &mut Setting) -> Result<f64> {
        if let Some(rules) = self.rules {
            setting.peer.install(rules)?;
        }
        (self.work)(setting)
    }
}

impl Run {
    /// Measures tasks on some systems, `limit` first when it is among them; each is set up by
    /// `make`.
    pub fn compare(
        &mut self,
        experiment: &Experiment,
        systems: &[System],
        limit: Option<System>,
        make: &dyn Fn(System) -> Result<Setting>,
        tasks: &[Task<'_>],
    ) {
        self.in_groups(systems, make, &mut |run, group| match group {
            Group::Ready(mut settings) => {
                run.take_turns(experiment, &mut settings, limit, tasks);
                settings.into_iter().for_each(|s| run.end(s.system, s));
            }
            Group::Failed(system, why) => {
                let suited = tasks.iter().filter(|task| task.suits(system));
                suited.for_each(|task| run.absent(experiment, system, &task.asked, &why));
            }
        });
    }

    /// Sets up systems, and gives them to `work` in groups: all that do not poll, and then one by
    /// one those that do.
    pub fn in_groups(
        &mut self,
        systems: &[System],
        make: &dyn Fn(System) -> Result<Setting>,
        work: &mut dyn FnMut(&mut Run, Group),
    ) {
        let mut together = Vec::new();
        let systems: Vec<System> =
            systems.iter().copied().filter(|s| self.systems.contains(s)).collect();
        for system in systems.iter().copied() {
            if self.pollers.contains(&system) {
                continue;
            }
            self.progress.say(&format!("starting {}", system.name()));
            match crate::attempt(|| make(system)) {
                Err(why) => work(self, Group::Failed(system, why)),
                // It starts again when the others have gone.
                Ok(setting) if polls(&setting) => {
                    self.pollers.push(system);
                    self.end(system, setting);
                }
                Ok(setting) => together.push(setting),
            }
        }
        work(self, Group::Ready(together));
        for system in systems.into_iter().filter(|s| self.pollers.contains(s)).collect::<Vec<_>>() {
            self.progress.say(&format!("{} alone, because it polls", system.name()));
            match crate::attempt(|| make(system)) {
                Err(why) => work(self, Group::Failed(system, why)),
                Ok(setting) => work(self, Group::Ready(vec![setting])),
            }
        }
    }

    fn take_turns(
        &mut self,
        experiment: &Experiment,
        settings: &mut [Setting],
        limit: Option<System>,
        tasks: &[Task<'_>],
    ) {
        for setting in settings.iter() {
            self.describe(setting);
        }
        for task in tasks {
            // Who cannot do it at all does not hold up the others.
            let mut able: Vec<&Setting> = Vec::new();
            for setting in settings.iter_mut().filter(|s| task.suits(s.system)) {
                match crate::attempt(|| task.first(setting)) {
                    Ok(_) => able.push(setting),
                    Err(e) => self.absent(experiment, setting.system, &task.asked, &e),
                }
            }
            match crate::attempt(|| turns(self.plan, experiment, &able, limit, task)) {
                Ok(points) => points.into_iter().for_each(|p| self.add(p)),
                Err(e) => {
                    able.iter().for_each(|s| self.absent(experiment, s.system, &task.asked, &e));
                }
            }
        }
    }

    /// Measures figures of one system after the other; `work` gives their samples in the order
    /// of `asked`.
    pub fn each(
        &mut self,
        experiment: &Experiment,
        systems: &[System],
        asked: &[Asked],
        work: &dyn Fn(&mut Run, System) -> Result<Vec<Series>>,
    ) {
        for system in
            systems.iter().filter(|s| self.systems.contains(s)).copied().collect::<Vec<_>>()
        {
            self.progress.say(&format!("starting {}", system.name()));
            match crate::attempt(|| work(self, system)) {
                Err(e) => asked.iter().for_each(|a| self.absent(experiment, system, a, &e)),
                Ok(series) => {
                    for (asked, series) in asked.iter().zip(series) {
                        let subject = subject(experiment, system, asked.parameters.clone());
                        let mut point = subject.point(asked.metric, asked.unit, &series);
                        point.unsteady = series.scatter() > asked.wide;
                        self.add(point);
                    }
                }
            }
        }
    }

    /// Ends a system. That its daemon has ended before is to be seen then, and holds up nobody else.
    pub fn end<T>(&mut self, system: System, running: T) {
        let ended = crate::attempt(|| {
            drop(running);
            Ok(())
        });
        if let Err(why) = ended {
            self.results.note(format!("{} did not end as it should: {why:#}", system.name()));
        }
    }

    /// Keeps a point, and shows it.
    pub fn add(&mut self, point: Point) {
        self.progress.point(&point);
        self.results.points.push(point);
    }

    /// Says why a system has no such figure.
    fn absent(&mut self, experiment: &Experiment, system: System, asked: &Asked, why: &Error) {
        let subject = subject(experiment, system, asked.parameters.clone());
        self.add(subject.absent(asked.metric, asked.unit, &format!("{why:#}")));
    }

    /// Keeps how a system was set.
    pub fn describe(&mut self, setting: &Setting) {
        let name = setting.system.name().to_owned();
        self.results.systems.entry(name).or_insert_with(|| setting.peer.settings());
    }
}

/// What comes of setting systems up.
pub enum Group {
    /// They run; to be measured together.
    Ready(Vec<Setting>),
    /// This one cannot be measured, and why.
    Failed(System, Error),
}

/// What the points of a system in an experiment have in common.
fn subject(experiment: &Experiment, system: System, parameters: Parameters) -> Subject {
    Subject { experiment: experiment.name, system: system.name().to_owned(), parameters }
}

/// Systems to which OpenFlow rules can be given.
fn with_rules() -> Vec<System> {
    System::ALL.into_iter().filter(|s| s.has_rules()).collect()
}

/// A parameter.
fn parameter(name: &str, value: u64) -> Parameters {
    [(name.to_owned(), value.into())].into_iter().collect()
}

fn turns(
    plan: Plan,
    experiment: &Experiment,
    settings: &[&Setting],
    limit: Option<System>,
    task: &Task<'_>,
) -> Result<Vec<Point>> {
    let mut contenders: Vec<Contender<'_>> =
        settings.iter().map(|setting| Box::new(|| (task.work)(setting)) as Contender<'_>).collect();
    if contenders.is_empty() {
        return Ok(Vec::new());
    }
    let at = limit.and_then(|l| Some((settings.iter().position(|s| s.system == l)?, l.name())));
    let stands = stands(plan, task.turns, task.asked.wide, at.map(|(at, _)| at), &mut contenders)?;
    let name = at.map(|(_, name)| name);
    let each = settings.iter().zip(&stands);
    Ok(each.map(|(setting, stand)| point(experiment, setting, &task.asked, stand, name)).collect())
}

/// The point of a contender, against the limit of that name.
fn point(
    experiment: &Experiment,
    setting: &Setting,
    asked: &Asked,
    stand: &Stand<f64>,
    limit: Option<&str>,
) -> Point {
    let subject = subject(experiment, setting.system, asked.parameters.clone());
    let mut point = of_stand(&subject, asked, stand, |sample| *sample, limit);
    point.note.clone_from(&setting.note);
    point
}

/// The point of a number in a contender's samples, against the limit of that name where it took turns
/// with one.
fn of_stand<T>(
    subject: &Subject,
    asked: &Asked,
    stand: &Stand<T>,
    number: impl Fn(&T) -> f64,
    limit: Option<&str>,
) -> Point {
    let series = stand.series(&number);
    let mut point = subject.point(asked.metric, asked.unit, &series);
    (point.taken, point.unsteady) = (stand.taken, series.scatter() > asked.wide);
    match (limit, stand.limit(&number)) {
        (Some(name), Some(series)) => point.against(name, &series),
        _ => point,
    }
}

/// True when a daemon uses much of a CPU although there is no traffic, as far as others leave it
/// one.
fn polls(setting: &Setting) -> bool {
    let used = || -> Result<Duration> { setting.peer.daemons().into_iter().map(of_process).sum() };
    let Ok(before) = used() else { return false };
    thread::sleep(GLANCE);
    used().is_ok_and(|after| after.saturating_sub(before) > GLANCE / 10)
}

/// Does an experiment on a thread of its own: what it pins is undone with it.
///
/// # Errors
/// Those of the experiment, a panic among them.
pub fn perform(run: &mut Run, experiment: &Experiment, work: Work) -> Result<()> {
    thread::scope(|scope| scope.spawn(move || crate::attempt(|| work(run, experiment))).join())
        .unwrap_or_else(|_| Err(anyhow!("a thread panicked")))
}

// SPDX-License-Identifier: Apache-2.0
//! Experiments: what each is, and what they have in common.
//!
//! Systems take turns. A system whose threads poll takes a CPU all the time, so it cannot take
//! turns with others: it is measured alone, after the rest.

mod cpu;
mod firewall;
mod flood;
pub mod frames;
mod half;
mod hosts;
mod million;
mod outlive;
mod overlay;
mod ports;
mod restart;
mod rules;
mod setup;
mod tracked;

use crate::attempt::{attempt, on_thread};
use crate::cpu_time::of_process;
use crate::host_testbed::HostTestbed;
use crate::measure::{Candidate, Plan, take_turns};
use crate::pin::Cpus;
use crate::point::{Metric, Parameters, Point, Subject};
use crate::progress::Progress;
use crate::report::results::Results;
use crate::rules::Rules;
use crate::system::{Instance, System};
use anyhow::{Error, Result};
use frames::cases::Case;
use std::thread;
use std::time::Duration;

/// All experiments, in the order of the page.
pub const ALL: [&Experiment; 21] = [
    &frames::cases::GRID,
    &frames::cases::FLOWS,
    &frames::cases::ONE_FLOW,
    &half::HALF,
    &frames::cases::MASKS,
    &hosts::ECHO,
    &hosts::TCP,
    &hosts::ONE_CPU,
    &firewall::FIREWALL,
    &tracked::TRACKED,
    &million::MILLION,
    &overlay::OVERLAY,
    &overlay::HEADERS,
    &flood::FLOOD,
    &setup::SETUP,
    &rules::RULES,
    &setup::SWEEP,
    &cpu::CPU,
    &ports::PORTS,
    &restart::RESTART,
    &outlive::OUTLIVE,
];

/// An experiment: its texts for the page and the command line, and how it is done.
#[derive(Debug)]
pub struct Experiment {
    /// As `--only` and points have it.
    pub name: &'static str,
    /// Heading of its section.
    pub title: &'static str,
    /// Describes the procedure and the counted quantity.
    pub about: &'static str,
    /// The paper whose table or figure it repeats.
    pub repeats: &'static str,
    /// Metrics that the page shows; the others are in the file of results only. Empty for all.
    pub shown: &'static [&'static str],
    /// Takes so long that a short run leaves it out unless it is selected by name.
    pub long: bool,
    /// The parameter that varies within a table.
    pub across: Option<&'static str>,
    /// Parts that only a full run has, apart from more and longer rounds. Empty if there are none.
    pub more: &'static str,
    /// About how many seconds a short and a full run take.
    pub seconds: [u64; 2],
    /// The generator's frames that it measures, for `full` or not. Cases that experiments have in
    /// common are measured once.
    pub frames: fn(full: bool) -> Vec<Case>,
    /// Measures, and adds points to the run.
    pub run: fn(&mut Run) -> Result<()>,
}

impl Experiment {
    /// Values for the fields that many experiments do not need.
    pub const BASE: Experiment = Experiment {
        name: "",
        title: "",
        about: "",
        repeats: "none of the papers' tables",
        shown: &[],
        long: false,
        across: None,
        more: "",
        seconds: [1, 1],
        frames: |_| Vec::new(),
        run: |_| Ok(()),
    };

    /// About how many seconds it takes.
    pub fn expected(&self, full: bool) -> u64 {
        self.seconds[usize::from(full)]
    }
}

/// About how many minutes a short run takes.
pub fn minutes() -> u64 {
    let short = ALL.iter().filter(|experiment| !experiment.long);
    short.map(|experiment| experiment.expected(false)).sum::<u64>().div_ceil(60)
}

/// A run of experiments.
pub struct Run {
    pub plan: Plan,
    pub cpus: Cpus,
    /// The systems that were selected.
    pub systems: Vec<System>,
    /// The experiments that were selected.
    pub selected: Vec<&'static Experiment>,
    /// The present experiment.
    pub experiment: &'static Experiment,
    /// Systems whose threads were seen to poll.
    pub pollers: Vec<System>,
    /// The frames of all selected experiments were measured.
    pub has_frames: bool,
    pub results: Results,
    pub progress: Progress,
}

/// Measures once.
pub type Work<'a> = Box<dyn Fn(&HostTestbed) -> Result<f64> + 'a>;

/// A figure that a system gives while it runs between two hosts.
pub struct Task<'a> {
    pub metric: Metric,
    pub parameters: Parameters,
    /// Rules that replace a system's rules for this figure and the following ones; systems
    /// without rules are not asked for it.
    pub rules: Option<Rules>,
    /// Turns of a round, whose mean is the round's sample; see [`crate::measure::TURN`].
    pub turns: u32,
    /// Measures once, which is a turn.
    pub work: Work<'a>,
}

impl Task<'_> {
    fn suits(&self, system: System) -> bool {
        self.rules.is_none() || system.has_rules()
    }
}

/// One of those that take turns, for the page.
pub struct Entry<'a> {
    pub subject: Subject,
    pub note: Option<String>,
    /// Its figures are compared with the limit.
    pub is_compared: bool,
    pub candidate: Candidate<'a>,
}

/// Systems that run between hosts and are to be measured together, or a system that cannot be
/// measured, and why.
pub type Group = Result<Vec<HostTestbed>, (System, Error)>;

impl Run {
    /// Does an experiment on a thread of its own.
    pub fn perform(&mut self, experiment: &'static Experiment) -> Result<()> {
        self.experiment = experiment;
        on_thread(|| (experiment.run)(self))
    }

    /// Those of `systems` that were selected.
    pub fn selected_of(&self, systems: &[System]) -> Vec<System> {
        systems.iter().copied().filter(|s| self.systems.contains(s)).collect()
    }

    /// Measures tasks on some systems, each of which `make` sets up between hosts; with ratios to
    /// the system `limit`, if it is among them.
    pub fn compare(
        &mut self,
        systems: &[System],
        limit: Option<System>,
        make: &dyn Fn(System) -> Result<HostTestbed>,
        tasks: &[Task<'_>],
    ) {
        self.in_groups(systems, make, &mut |run, group| match group {
            Ok(mut testbeds) => {
                tasks.iter().for_each(|task| run.task(&mut testbeds, limit, task));
                testbeds.into_iter().for_each(|testbed| run.end(testbed.system, testbed));
            }
            Err((system, why)) => {
                for task in tasks.iter().filter(|task| task.suits(system)) {
                    run.absent(system, &task.parameters, &[task.metric], &why);
                }
            }
        });
    }

    /// Sets up systems, and gives them to `work` in groups: all that do not poll, and then each
    /// one that does.
    pub fn in_groups(
        &mut self,
        systems: &[System],
        make: &dyn Fn(System) -> Result<HostTestbed>,
        work: &mut dyn FnMut(&mut Run, Group),
    ) {
        let mut together = Vec::new();
        let systems = self.selected_of(systems);
        for system in systems.iter().copied() {
            if self.pollers.contains(&system) {
                continue;
            }
            self.progress.say(&format!("starting {}", system.name()));
            match attempt(|| make(system)) {
                Err(why) => work(self, Err((system, why))),
                // It is started again when the others have ended.
                Ok(testbed) if polls(&testbed) => {
                    self.pollers.push(system);
                    self.end(system, testbed);
                }
                Ok(testbed) => together.push(testbed),
            }
        }
        together.iter().for_each(|testbed| self.describe(testbed.system, &*testbed.instance));
        work(self, Ok(together));
        for system in systems.into_iter().filter(|s| self.pollers.contains(s)).collect::<Vec<_>>() {
            self.progress.say(&format!("{} alone, because it polls", system.name()));
            let made = attempt(|| make(system)).map_err(|why| (system, why));
            made.iter().for_each(|testbed| self.describe(system, &*testbed.instance));
            work(self, made.map(|testbed| vec![testbed]));
        }
    }

    fn task(&mut self, testbeds: &mut [HostTestbed], limit: Option<System>, task: &Task<'_>) {
        // A system that cannot do it at all does not delay the others.
        let mut able: Vec<&HostTestbed> = Vec::new();
        for testbed in testbeds.iter_mut().filter(|t| task.suits(t.system)) {
            let first = attempt(|| {
                task.rules.map_or(Ok(()), |rules| testbed.instance.install(rules))?;
                (task.work)(testbed)
            });
            match first {
                Ok(_) => able.push(testbed),
                Err(e) => self.absent(testbed.system, &task.parameters, &[task.metric], &e),
            }
        }
        let limit = limit
            .and_then(|limit| Some((able.iter().position(|t| t.system == limit)?, limit.name())));
        let entries = able.into_iter().map(|testbed| Entry {
            subject: self.subject(testbed.system.name(), task.parameters.clone()),
            note: testbed.note.clone(),
            is_compared: true,
            candidate: Box::new(move || attempt(|| Ok(vec![(task.work)(testbed)?]))),
        });
        let entries = entries.collect();
        self.turns((self.plan, task.turns), limit, entries, &[task.metric]);
    }

    /// Lets entries that have each measured once take turns in rounds of this plan with this many
    /// turns each, and adds the points of all metrics. The first metric decides about repetitions.
    /// `limit`: the number of the entry that the others are compared with, and how the page calls
    /// it.
    pub fn turns(
        &mut self,
        (plan, turns): (Plan, u32),
        limit: Option<(usize, &str)>,
        entries: Vec<Entry<'_>>,
        metrics: &[Metric],
    ) {
        let (mut of_entries, mut candidates) = (Vec::new(), Vec::new());
        for Entry { subject, note, is_compared, candidate } in entries {
            of_entries.push((subject, note, is_compared));
            candidates.push(candidate);
        }
        let max_scatter = metrics.first().map_or(f64::INFINITY, |metric| metric.max_scatter);
        let at = limit.map(|(at, _)| at);
        let outcomes = attempt(|| take_turns(plan, turns, max_scatter, at, &mut candidates));
        for (number, (subject, note, is_compared)) in of_entries.into_iter().enumerate() {
            let points = match &outcomes {
                Ok(outcomes) => {
                    let limit = limit.filter(|_| is_compared).map(|(_, name)| name);
                    let outcome = outcomes.get(number);
                    outcome.map_or_else(Vec::new, |o| subject.points(metrics, o, limit))
                }
                Err(e) => metrics.iter().map(|m| subject.absent(m, &format!("{e:#}"))).collect(),
            };
            let noted = |point: Point| Point { note: point.note.or_else(|| note.clone()), ..point };
            points.into_iter().map(noted).for_each(|point| self.add(point));
        }
    }

    /// Ends a system. If its daemon has ended before, a note says so.
    pub fn end<T>(&mut self, system: System, running: T) {
        let ended = attempt(|| {
            drop(running);
            Ok(())
        });
        if let Err(why) = ended {
            self.results.add_note(format!("{} did not end as it should: {why:#}", system.name()));
        }
    }

    /// Keeps a point, and shows it.
    pub fn add(&mut self, point: Point) {
        self.progress.point(&point);
        self.results.points.push(point);
    }

    /// Adds points that say why a system has no such figures.
    pub fn absent(
        &mut self,
        system: System,
        parameters: &Parameters,
        metrics: &[Metric],
        why: &Error,
    ) {
        let (subject, why) = (self.subject(system.name(), parameters.clone()), format!("{why:#}"));
        metrics.iter().for_each(|metric| self.add(subject.absent(metric, &why)));
    }

    /// The subject of points of the system of this name in the present experiment.
    pub fn subject(&self, system: &str, parameters: Parameters) -> Subject {
        Subject { experiment: self.experiment.name, system: system.to_owned(), parameters }
    }

    /// Keeps the settings of a system for the page.
    pub fn describe(&mut self, system: System, instance: &dyn Instance) {
        let name = system.name().to_owned();
        self.results.systems.entry(name).or_insert_with(|| instance.settings());
    }
}

/// Systems to which OpenFlow rules can be given. Slipswitch over AF_XDP is measured with the
/// generator's frames only.
fn with_rules() -> Vec<System> {
    let is_one = |s: &System| s.has_rules() && *s != System::SlipswitchAfXdp;
    System::ALL.into_iter().filter(is_one).collect()
}

/// True when a daemon uses much of a CPU although there is no traffic.
fn polls(testbed: &HostTestbed) -> bool {
    const OBSERVED: Duration = Duration::from_millis(300);
    let used =
        || -> Result<Duration> { testbed.instance.daemons().into_iter().map(of_process).sum() };
    let Ok(before) = used() else { return false };
    thread::sleep(OBSERVED);
    used().is_ok_and(|after| after.saturating_sub(before) > OBSERVED / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_experiment_says_what_it_is() {
        for experiment in ALL {
            assert!(!experiment.about.is_empty() && !experiment.repeats.is_empty());
            assert!(experiment.name.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
        }
    }

    #[test]
    fn numbers_are_compared_with_the_limit_in_the_same_rounds() {
        let mut run = Run {
            plan: Plan { rounds: 2, is_exact: true, quick: true, full: false },
            cpus: Cpus { traffic: 1, other: 0 },
            systems: Vec::new(),
            selected: Vec::new(),
            experiment: &flood::FLOOD,
            pollers: Vec::new(),
            has_frames: false,
            results: Results::default(),
            progress: Progress::new(&[1]),
        };
        let subject = run.subject("Slipswitch tcx", Parameters::new());
        let entry = |gbits: f64, is_compared| Entry {
            subject: subject.clone(),
            note: None,
            is_compared,
            candidate: Box::new(move || Ok(vec![gbits, 1.0])),
        };
        let throughput = Metric::new("throughput", "Gbit/s", 0.1);
        let metrics = [throughput, Metric::new("CPU", "%", 0.1).not_compared()];
        let entries = vec![entry(10.0, false), entry(8.0, true), entry(4.0, true)];
        run.turns((run.plan, 1), Some((1, "the second")), entries, &metrics);
        let points = &run.results.points;
        assert_eq!(points.len(), 3 * metrics.len());
        let ratios: Vec<_> =
            points.iter().filter_map(|p| Some((p.metric.as_str(), p.ratio_to.as_ref()?))).collect();
        assert_eq!(ratios.len(), 1);
        assert_eq!((ratios[0].0, ratios[0].1.median), ("throughput", 0.5));
        assert_eq!(ratios[0].1.system, "the second");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Small packets at XDP: generator, switch and sink on one core.

use crate::args::Plan;
use crate::bed::{Ceiling, End};
use crate::generator::{Stream, Traffic};
use crate::measure::{Rounds, rounds};
use crate::netns::{Pair, veth};
use crate::object::{Hook, Load, Programs};
use crate::pin::Cpus;
use crate::report::{Figure, Goal, Relation, Report};
use crate::sink::Drain;
use crate::subject::{Subject, hooks};
use anyhow::Result;
use libbpf_rs::Link;
use slipswitch_tests::harness::Netns;

const GROUP: &str = "udp";
const MPPS: &str = "Mpps";
/// Flows, and the share of a bare redirect that is to be reached.
const POINTS: [(u32, &str, f64); 4] = [
    (1, "1 flow", 0.80),
    (1 << 10, "1K flows", 0.75),
    (1 << 16, "64K flows", 0.75),
    (1 << 18, "256K flows", 0.75),
];
/// Scatter (MAD over median) that is too wide.
const WIDE: f64 = 0.03;

/// Two pairs of veth: a generator in front of the first, a sink behind the second, and between
/// them whatever is measured.
struct Path {
    netns: Netns,
    programs: Programs,
    front: Pair,
    back: Pair,
    drain: Drain,
    _bare: Option<Link>,
}

impl Path {
    fn new(netns: &Netns, name: &str) -> Result<Path> {
        let front = veth(netns, &format!("{name}f"))?;
        let back = veth(netns, &format!("{name}b"))?;
        let programs = Programs::load(Load::at(Hook::Xdp))?;
        let drain = Drain::at(Hook::Xdp, back.far)?;
        Ok(Path { netns: netns.clone(), programs, front, back, drain, _bare: None })
    }

    /// Puts the bare redirect between.
    fn bare(mut self) -> Result<Path> {
        self._bare = Some(self.programs.attach_xdp("bare", self.front.far)?);
        self.programs.set_way(0, self.front.near)?;
        self.programs.set_way(1, self.back.near)?;
        Ok(self)
    }

    fn traffic(&self, flows: u32, cpus: Cpus) -> Traffic<'_> {
        Traffic {
            programs: &self.programs,
            program: "generate",
            netns: self.netns.clone(),
            ifindex: self.front.near,
            stream: Stream::flood(flows),
            sink: &self.drain.sink,
            daemons: Vec::new(),
            cpus,
        }
    }
}

/// The path with the switch between, and its datapath.
struct Switched {
    path: Path,
    subject: Subject,
}

impl Switched {
    fn new(netns: &Netns) -> Result<Switched> {
        let path = Path::new(netns, "s")?;
        let subject = Subject::open(path.front.far, path.back.near, hooks(true, true))?;
        path.programs.set_way(0, path.front.near)?;
        Ok(Switched { path, subject })
    }

    /// Gives the switch rules for the flows from `had` to `flows`.
    fn traffic(&self, had: u32, flows: u32, cpus: Cpus) -> Result<Traffic<'_>> {
        self.subject.install_exact(had..flows)?;
        self.subject.settle();
        Ok(self.path.traffic(flows, cpus))
    }
}

/// Measures; to be called in `netns`.
///
/// # Errors
/// When not even the limit can be measured.
pub fn run(report: &mut Report, plan: Plan, netns: &Netns, cpus: Cpus) -> Result<()> {
    report.note(
        "udp: generator (BPF_PROG_RUN over live frames), switch and sink share one core; the \
         rate is per second of CPU time that these got; flows take turns in random order.",
    );
    ceiling(report, plan, cpus)?;
    let bare = Path::new(netns, "l")?.bare()?;
    let switch = Switched::new(netns);
    let mut had = 0;
    for (flows, name, goal) in POINTS {
        eprintln!("udp: {name}");
        let limit = bare.traffic(flows, cpus);
        let switched = switch.as_ref().map_err(|e| format!("{e:#}"));
        let switched =
            switched.and_then(|s| s.traffic(had, flows, cpus).map_err(|e| format!("{e:#}")));
        had = flows;
        let result = match &switched {
            Ok(traffic) => against(plan, name, goal, &limit, traffic),
            Err(_) => alone(plan, format!("{name}, bare redirect"), &limit),
        };
        match result {
            Ok(figure) => report.add(figure),
            Err(e) => report.miss(format!("{GROUP} {name}"), format!("{e:#}")),
        }
        if let Err(why) = switched {
            report.miss(format!("{GROUP} {name}"), why);
        }
    }
    Ok(())
}

/// The switch beside the bare redirect.
fn against(
    plan: Plan,
    name: &str,
    goal: f64,
    limit: &Traffic<'_>,
    switched: &Traffic<'_>,
) -> Result<Figure> {
    let rounds =
        rounds(plan, WIDE, &mut [Box::new(|| limit.rate(plan)), Box::new(|| switched.rate(plan))])?;
    let bound = rounds.series.first().cloned().unwrap_or_default();
    Ok(Figure {
        limit: Some(("bare redirect".into(), bound, Relation::Share)),
        goal: Some(Goal::AtLeast(goal)),
        ..figure(name.to_owned(), &rounds)
    })
}

/// One path with nothing beside it.
fn alone(plan: Plan, name: String, traffic: &Traffic<'_>) -> Result<Figure> {
    Ok(figure(name, &rounds(plan, WIDE, &mut [Box::new(|| traffic.rate(plan))])?))
}

/// The last series of `rounds`.
fn figure(name: String, rounds: &Rounds) -> Figure {
    Figure {
        group: GROUP,
        name,
        unit: MPPS,
        measured: rounds.series.last().cloned().unwrap_or_default(),
        limit: None,
        goal: None,
        absolute: false,
        taken: rounds.taken,
        unsteady: rounds.unsteady,
    }
}

/// What the generator sends, and what of it arrives when the sink is right behind it.
fn ceiling(report: &mut Report, plan: Plan, cpus: Cpus) -> Result<()> {
    eprintln!("udp: generator's ceiling");
    for (name, end) in [
        ("what the generator sends, up to its device", End::Device),
        ("generator's ceiling (one veth pair, then the sink)", End::Sink),
    ] {
        let ceiling = Ceiling::new(end, cpus)?;
        report.add(alone(plan, name.into(), &ceiling.traffic(Stream::flood(1)))?);
    }
    Ok(())
}

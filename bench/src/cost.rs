// SPDX-License-Identifier: Apache-2.0
//! What the switch's programs cost over a bare redirect, by BPF_PROG_RUN.

use crate::args::Plan;
use crate::generator::{SIZES, frame};
use crate::measure::rounds;
use crate::netns::veth;
use crate::object::{Control, Hook, Load, Programs};
use crate::report::{Figure, Goal, Relation, Report};
use crate::subject::{Subject, hooks};
use anyhow::{Context, Result, ensure};
use slipswitch_tests::harness::Netns;
use std::os::fd::AsFd;

const GROUP: &str = "cost";
/// Scatter (MAD over median) that is too wide.
const WIDE: f64 = 0.05;
/// Runs until the caches know every flow, at least and at most.
const WARM: u32 = 4;
const WARM_AT_MOST: u32 = 20;

/// One line of the report.
struct Point {
    name: &'static str,
    flows: u32,
    rules: Rules,
    /// Nanoseconds over the bare redirect.
    goal: Option<f64>,
}

/// What the switch knows of a point's flows.
#[derive(Clone, Copy)]
enum Rules {
    /// Each has a rule.
    Exact,
    /// Each has a rule, under a mask that no other has.
    Masks,
    /// One rule is for all but one, which has a rule that tells them apart.
    Few,
}

const POINTS: [Point; 4] = [
    Point { name: "1 flow", flows: 1, rules: Rules::Exact, goal: Some(25.0) },
    Point {
        name: "64K flows in random order",
        flows: 1 << 16,
        rules: Rules::Exact,
        goal: Some(60.0),
    },
    Point { name: "128 flows under 128 masks", flows: 128, rules: Rules::Masks, goal: Some(35.0) },
    Point { name: "64K connections of 2 flows", flows: 1 << 16, rules: Rules::Few, goal: None },
];

/// Measures at both hooks; to be called in `netns`, on a pinned thread.
pub fn run(report: &mut Report, plan: Plan, netns: &Netns) {
    report.note(
        "cost: both sides are run through the same program, which makes the frame one of the \
         next flow and tail-calls the subject; the verdict is checked to be a redirect.",
    );
    for (number, hook) in [Hook::Xdp, Hook::Tc].into_iter().enumerate() {
        for (nth, point) in POINTS.into_iter().enumerate() {
            let name = format!("{}, {}", hook.name(), point.name);
            eprintln!("cost: {name}");
            let tag = format!("k{number}{nth}");
            match measure(plan, netns, &tag, hook, &point) {
                Ok(figure) => report.add(Figure { name, ..figure }),
                Err(e) => report.miss(format!("{GROUP} {name}"), format!("{e:#}")),
            }
        }
    }
}

fn measure(plan: Plan, netns: &Netns, tag: &str, hook: Hook, point: &Point) -> Result<Figure> {
    let runs = if plan.quick { 200_000 } else { 1_000_000 };
    let pair = veth(netns, tag)?;
    let subject = Subject::open(pair.far, pair.near, hooks(true, true))?;
    match point.rules {
        Rules::Exact => subject.install_exact(0..point.flows)?,
        Rules::Masks => subject.install_masks(0..point.flows)?,
        Rules::Few => subject.install_few()?,
    }
    subject.settle();
    let entry = Subject::entry(hook, pair.far)?;
    let switch = around(hook, point, pair.near, |p| p.set_subject(entry.as_fd()))?;
    let bare = around(hook, point, pair.near, |p| p.set_subject(p.program("bare")?.as_fd()))?;
    if hook == Hook::Xdp {
        bare.set_way(1, pair.near)?;
    }
    let frame = frame(SIZES[0]);
    let walked = || subject.datapath.counters().walked;
    for warm in 1..=WARM_AT_MOST {
        let before = walked();
        switch.cost(&frame, pair.far, runs.max(point.flows))?;
        subject.datapath.maintain();
        if warm >= WARM && (walked() - before) * 100 < runs.into() {
            break;
        }
    }
    let walked_before = walked();
    let rounds = rounds(
        plan,
        WIDE,
        &mut [
            Box::new(|| bare.cost(&frame, pair.far, runs)),
            Box::new(|| switch.cost(&frame, pair.far, runs)),
        ],
    )?;
    let walked = walked() - walked_before;
    let packets = u64::from(runs) * u64::from(plan.repeat + 1) * u64::from(rounds.taken);
    ensure!(
        walked * 100 < packets,
        "{walked} of {packets} lookups were not answered by the signature cache: no steady state"
    );
    let mut series = rounds.series.into_iter();
    let limit = series.next().unwrap_or_default();
    Ok(Figure {
        group: GROUP,
        name: String::new(),
        unit: "ns",
        measured: series.next().unwrap_or_default(),
        limit: Some(("bare redirect".into(), limit, Relation::Over)),
        goal: point.goal.map(Goal::AtMost),
        absolute: false,
        taken: rounds.taken,
        unsteady: rounds.unsteady,
    })
}

/// The program that touches the point's flows in random order, in front of a subject. Whether
/// programs of several buffers go into its table depends on how the subject was loaded.
fn around(
    hook: Hook,
    point: &Point,
    output: u32,
    fill: impl Fn(&Programs) -> Result<()>,
) -> Result<Programs> {
    let sorts: &[bool] = if hook == Hook::Xdp { &[true, false] } else { &[false] };
    let mut result = Err(anyhow::anyhow!("no way to load"));
    for frags in sorts {
        let load = Load { output, frags: *frags, ..Load::at(hook) };
        let programs = Programs::load(load)?;
        programs.control(Control { flows: point.flows, ..Control::default() })?;
        result = fill(&programs).map(|()| programs);
        if result.is_ok() {
            break;
        }
    }
    result.context("around the program that is measured")
}

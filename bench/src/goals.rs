// SPDX-License-Identifier: Apache-2.0
//! The goals of Slipswitch, against limits and other switches, and the generator's own.

use crate::report::goals::{Bound, Figure, Goal, Which};
use crate::report::results::{ANSWERER, SENDER};
use crate::system::{System, Tier};
use Bound::{AtLeast, AtMost};
use Figure::{Paired, Ratio, Value, Worst};

const XDP: &str = System::Slipswitch(Tier::Xdp).name();
const TCX: &str = System::Slipswitch(Tier::Tcx).name();
const BARE: &str = System::BareXdp.name();
/// The limit where there are many flows.
const LOOKUP: &str = System::BareLookup.name();
const BARE_TC: &str = System::BareTc.name();
const AF_PACKET: &str = System::OvsAfPacket.name();
const DPDK: &str = System::OvsDpdk.name();
/// The largest CPU in percent that is shown as 0.0.
const NOTHING: f64 = 0.05;

type Parameters = &'static [(&'static str, &'static str)];

const ONE: Parameters = &[("size", "64"), ("flows", "1")];
const MANY: Parameters = &[("size", "64"), ("flows", "65536")];
const MOST: Parameters = &[("size", "64"), ("flows", "262144")];
const RULES: Parameters = &[("rules", "262144")];

/// Words, figure, bound, limit.
const fn goal(
    words: &'static str,
    figure: Figure,
    bound: Bound,
    limit: Option<&'static str>,
) -> Goal {
    Goal { words, figure, bound, limit }
}

const fn which(
    experiment: &'static str,
    system: &'static str,
    metric: &'static str,
    parameters: Parameters,
) -> Which {
    Which { experiment, system, metric, parameters }
}

/// One system's figure divided by another's.
const fn ratio(
    experiment: &'static str,
    metric: &'static str,
    parameters: Parameters,
    ours: &'static str,
    theirs: &'static str,
) -> Figure {
    let of = which(experiment, ours, metric, parameters);
    Ratio(of, which(experiment, theirs, metric, parameters))
}

/// Slipswitch at XDP against a system, in one case of the grid.
const fn grid(
    words: &'static str,
    metric: &'static str,
    parameters: Parameters,
    other: &'static str,
    bound: Bound,
) -> Goal {
    goal(words, ratio("grid", metric, parameters, XDP, other), bound, Some(LOOKUP))
}

/// TCP during a flood of this kind, against TCP during a flood of packets that one megaflow drops.
const fn flood(words: &'static str, kind: Parameters) -> Goal {
    goal(words, Paired(which("flood", TCX, "throughput", kind)), AtLeast(0.9), None)
}

const fn cpu(system: &'static str, metric: &'static str) -> Figure {
    Value(which("cpu", system, metric, &[]))
}

/// All goals, in the order of the page.
pub const ALL: [Goal; 18] = [
    goal(
        "64 B frames that the generator sends on one core",
        Value(which("one-flow", SENDER, "rate per core", &[])),
        AtLeast(8.0),
        None,
    ),
    grid("64 B, 1 flow, rate against bare XDP", "rate", ONE, BARE, AtLeast(0.85)),
    grid("64 B, 64 K flows, rate against bare XDP", "rate", MANY, BARE, AtLeast(0.80)),
    grid("64 B, 256 K flows, rate against bare XDP", "rate", MOST, BARE, AtLeast(0.80)),
    grid(
        "64 B, 64 K flows, rate per core against OVS AF_XDP",
        "rate per core",
        MANY,
        System::OvsAfXdp.name(),
        AtLeast(8.0),
    ),
    grid(
        "64 B, 64 K flows, rate per core against OVS-DPDK",
        "rate per core",
        MANY,
        DPDK,
        AtLeast(20.0),
    ),
    grid("latency p50 of one flow against bare XDP", "latency p50", ONE, BARE, AtMost(1.1)),
    goal(
        "latency p50 at half of OVS-DPDK's rate, against OVS-DPDK",
        ratio("half", "latency p50", &[], XDP, DPDK),
        AtMost(0.4),
        Some(BARE),
    ),
    goal(
        "TCP throughput against a bare tc redirect",
        ratio("tcp", "throughput", &[], TCX, BARE_TC),
        AtLeast(0.95),
        Some(BARE_TC),
    ),
    flood("TCP during a flood of new flows", &[("flood", "new flows")]),
    flood("TCP during a flood of new masks", &[("flood", "new masks")]),
    goal(
        "new flows a second against OVS AF_PACKET",
        ratio("setup", "new flows", &[], TCX, AF_PACKET),
        AtLeast(5.0),
        Some(BARE_TC),
    ),
    goal(
        "time to add 256 K rules against OVS",
        ratio("rules", "time to add", RULES, TCX, AF_PACKET),
        AtMost(0.5),
        Some(ANSWERER),
    ),
    goal(
        "memory of 256 K rules against OVS",
        ratio("rules", "memory of a rule", RULES, TCX, AF_PACKET),
        AtMost(0.5),
        None,
    ),
    goal("CPU of the daemon at 10 K flows, tcx", cpu(TCX, "CPU, 10K flows"), AtMost(0.34), None),
    goal("CPU of the daemon at 10 K flows, xdp", cpu(XDP, "CPU, 10K flows"), AtMost(0.34), None),
    goal(
        "CPU of the daemon, idle (0, rounded to tenths)",
        cpu(TCX, "CPU, idle"),
        AtMost(NOTHING),
        None,
    ),
    goal(
        "packets lost over a restart, at worst",
        Worst(which("restart", TCX, "packets lost", &[])),
        AtMost(0.0),
        None,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment;

    #[test]
    fn goals_name_experiments_that_there_are() {
        for goal in ALL {
            for name in goal.figure.experiments() {
                assert!(experiment::ALL.iter().any(|e| e.name == name), "{}: {name}", goal.words);
            }
        }
    }
}

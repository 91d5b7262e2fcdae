// SPDX-License-Identifier: Apache-2.0
//! What Slipswitch is to reach against limits and peers, and the generator that tells, measured in
//! one run.

use crate::catalogue::{CPU, Experiment, FLOOD, GRID, HALF, ONE_FLOW, RESTART, RULES, SETUP, TCP};
use crate::report::goals::{Bound, Figure, Goal, Which};
use crate::report::results::{ANSWERER, SENDER};

const BARE: &str = "bare XDP redirect";
/// What a flow costs at least where there are many.
const LOOKUP: &str = "bare XDP lookup";
const BARE_TC: &str = "bare tc redirect";
/// CPU in percent that is shown as 0.0.
const NOTHING: f64 = 0.05;

const fn which(experiment: Experiment, system: &'static str, metric: &'static str) -> Which {
    Which { experiment: experiment.name, system, metric, parameters: &[] }
}

const fn with(which: Which, parameters: &'static [(&'static str, &'static str)]) -> Which {
    Which { parameters, ..which }
}

/// The smallest frames by number of flows.
const ONE: &[(&str, &str)] = &[("size", "64"), ("flows", "1")];
const MANY: &[(&str, &str)] = &[("size", "64"), ("flows", "65536")];
const MOST: &[(&str, &str)] = &[("size", "64"), ("flows", "262144")];

/// Slipswitch at XDP against a system, under one choice of the grid.
const fn grid(
    words: &'static str,
    metric: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    other: &'static str,
    bound: Bound,
) -> Goal {
    let ours = with(which(GRID, "Slipswitch xdp", metric), parameters);
    let theirs = with(which(GRID, other, metric), parameters);
    Goal { words, figure: Figure::Ratio(ours, theirs), bound, limit: Some(LOOKUP) }
}

/// Slipswitch's TCP beside a flood, against that beside the same packets that one flow drops, which
/// took turns with it.
const fn beside(words: &'static str, flood: &'static [(&'static str, &'static str)]) -> Goal {
    Goal {
        words,
        figure: Figure::Paired(with(which(FLOOD, "Slipswitch tcx", "throughput"), flood)),
        bound: Bound::AtLeast(0.9),
        limit: None,
    }
}

/// All goals, in the order of the page.
pub const ALL: [Goal; 18] = [
    Goal {
        words: "64 B frames that the generator sends on one core",
        figure: Figure::Value(which(ONE_FLOW, SENDER, "rate per core")),
        bound: Bound::AtLeast(8.0),
        limit: None,
    },
    grid("64 B, 1 flow, rate against bare XDP", "rate", ONE, BARE, Bound::AtLeast(0.85)),
    grid("64 B, 64 K flows, rate against bare XDP", "rate", MANY, BARE, Bound::AtLeast(0.80)),
    grid("64 B, 256 K flows, rate against bare XDP", "rate", MOST, BARE, Bound::AtLeast(0.80)),
    grid(
        "64 B, 64 K flows, rate per core against OVS AF_XDP",
        "rate per core",
        MANY,
        "OVS AF_XDP",
        Bound::AtLeast(8.0),
    ),
    grid(
        "64 B, 64 K flows, rate per core against OVS-DPDK",
        "rate per core",
        MANY,
        "OVS-DPDK",
        Bound::AtLeast(20.0),
    ),
    grid("latency p50 of one flow against bare XDP", "latency p50", ONE, BARE, Bound::AtMost(1.1)),
    Goal {
        words: "latency p50 at half of OVS-DPDK's rate, against OVS-DPDK",
        figure: Figure::Ratio(
            which(HALF, "Slipswitch xdp", "latency p50"),
            which(HALF, "OVS-DPDK", "latency p50"),
        ),
        bound: Bound::AtMost(0.4),
        limit: Some(BARE),
    },
    Goal {
        words: "TCP throughput against a bare tc redirect",
        figure: Figure::Ratio(
            which(TCP, "Slipswitch tcx", "throughput"),
            which(TCP, BARE_TC, "throughput"),
        ),
        bound: Bound::AtLeast(0.95),
        limit: Some(BARE_TC),
    },
    beside("TCP beside a flood of new flows", &[("flood", "new flows")]),
    beside("TCP beside a flood of new masks", &[("flood", "new masks")]),
    Goal {
        words: "new flows a second against OVS AF_PACKET",
        figure: Figure::Ratio(
            which(SETUP, "Slipswitch tcx", "new flows"),
            which(SETUP, "OVS AF_PACKET", "new flows"),
        ),
        bound: Bound::AtLeast(5.0),
        limit: Some(BARE_TC),
    },
    Goal {
        words: "time to add 256 K rules against OVS",
        figure: Figure::Ratio(
            with(which(RULES, "Slipswitch tcx", "time to add"), &[("rules", "262144")]),
            with(which(RULES, "OVS AF_PACKET", "time to add"), &[("rules", "262144")]),
        ),
        bound: Bound::AtMost(0.5),
        limit: Some(ANSWERER),
    },
    Goal {
        words: "memory of 256 K rules against OVS",
        figure: Figure::Ratio(
            with(which(RULES, "Slipswitch tcx", "memory of a rule"), &[("rules", "262144")]),
            with(which(RULES, "OVS AF_PACKET", "memory of a rule"), &[("rules", "262144")]),
        ),
        bound: Bound::AtMost(0.5),
        limit: None,
    },
    Goal {
        words: "CPU of the daemon at 10 K flows, tcx",
        figure: Figure::Value(which(CPU, "Slipswitch tcx", "CPU, 10K flows")),
        bound: Bound::AtMost(0.34),
        limit: None,
    },
    Goal {
        words: "CPU of the daemon at 10 K flows, xdp",
        figure: Figure::Value(which(CPU, "Slipswitch xdp", "CPU, 10K flows")),
        bound: Bound::AtMost(0.34),
        limit: None,
    },
    Goal {
        words: "CPU of the daemon, idle (0, rounded to tenths)",
        figure: Figure::Value(which(CPU, "Slipswitch tcx", "CPU, idle")),
        bound: Bound::AtMost(NOTHING),
        limit: None,
    },
    Goal {
        words: "packets lost over a restart, at worst",
        figure: Figure::Worst(which(RESTART, "Slipswitch tcx", "packets lost")),
        bound: Bound::AtMost(0.0),
        limit: None,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::System;

    #[test]
    fn goals_name_systems_that_there_are() {
        let mut names: Vec<&str> = System::ALL.iter().map(|s| s.name()).collect();
        names.push(SENDER);
        for goal in ALL {
            let figures = match goal.figure {
                Figure::Paired(which) | Figure::Value(which) | Figure::Worst(which) => vec![which],
                Figure::Ratio(of, to) => vec![of, to],
            };
            for which in figures {
                assert!(names.contains(&which.system), "{}: {}", goal.words, which.system);
            }
            if let Some(limit) = goal.limit.filter(|limit| *limit != ANSWERER) {
                assert!(names.contains(&limit), "{}: {limit}", goal.words);
            }
        }
    }
}

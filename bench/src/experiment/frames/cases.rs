// SPDX-License-Identifier: Apache-2.0
//! The experiments with frames, and their cases.

use super::{ROUNDS, rate};
use crate::experiment::{Entry, Experiment, Run};
use crate::generator::{SIZES, Stream};
use crate::point::{Parameters, Subject, parameters};
use crate::report::results::SENDER;
use crate::rules::Rules;
use crate::system::System;
use crate::testbed::{Counted, GeneratorOnly, Way};
use crate::topology::Remote;
use anyhow::Result;

/// Rate and latency by frame size and number of flows.
pub const GRID: Experiment = Experiment {
    name: "grid",
    title: "UDP by frame size and number of flows",
    about: "The generator's frames arrive on one port, a network card, and leave by another as \
            fast as the generator can send, with an OpenFlow rule for each flow (port and \
            5-tuple). Flows take turns in random order. The rate counts frames at the sink per \
            second; the rate per core, per second of CPU time of everything that moves packets, \
            the generator included. The generator and the kernel's part of receiving share one \
            CPU; daemons have the other. In turn with every system, the bare generator sends the \
            same frames into the sink without a switch. The bare XDP lookup is the limit of a \
            switch with flows: it finds 16 bytes of a flow by the flow's number and counts in \
            them. Each flow has its megaflow before measuring; a note says where some are missing. \
            Latency is that of 100,000 frames a second at an even pace. With one flow it takes \
            turns of 50 ms with the bare XDP redirect, and its ratio is to that: a shared machine \
            may be twice as fast a second later. Bytes include Ethernet's checksum.",
    repeats: "*Virtual Switch Acceleration with OVS-TC*, 8 frame sizes by 7 numbers of flows up to \
              256 K, rules 1:1",
    shown: &[
        "rate",
        "throughput",
        "rate per core",
        "loss",
        "latency p50",
        "latency p99",
        "latency p99.9",
    ],
    across: Some("flows"),
    more: "all 8 frame sizes by 7 numbers of flows, and the latency of each",
    seconds: [420, 3600],
    frames: grid,
    run: super::run,
    ..Experiment::BASE
};

/// Rate and CPU by the number of flows.
pub const FLOWS: Experiment = Experiment {
    name: "flows",
    title: "Rate and CPU by the number of flows",
    about: "The smallest frames, measured as above. CPU is that of everything that moves packets, \
            in percent of one CPU; the generator is never idle here.",
    repeats: "*OVS Kernel Datapath Offload at 100GbE* (Chelsio T6), packets a second and %CPU \
              against 1 to 10 K flows",
    shown: &["rate", "rate per core", "CPU"],
    across: Some("flows"),
    more: "7 numbers of flows, also with one rule for all of them",
    frames: flows,
    run: super::run,
    ..Experiment::BASE
};

/// One flow to a card and to a container.
pub const ONE_FLOW: Experiment = Experiment {
    name: "one-flow",
    title: "One UDP flow, from a network card to a card and to a container",
    about: "The smallest frames of one flow, measured as above. A container is at the other end of \
            a plain veth pair without any setting, and frames have the address of its device. \
            Each system takes turns with the bare tc redirect there, and its ratios are to that. \
            The bare redirect_peer is the limit: packets enter the container without passing the \
            device of the port. The frames of the generator up to its device \
            are counted where the device takes them, and end there; the bare generator's frames \
            reach the sink, which takes time of the same CPU.",
    repeats: "the single-flow figures of the papers on AF_XDP in Open vSwitch: physical to \
              physical and physical to container",
    shown: &["rate", "rate per core", "latency p50", "latency p99"],
    seconds: [80, 140],
    frames: one_flow,
    run: with_sender,
    ..Experiment::BASE
};

/// Rate by the number of megaflow masks.
pub const MASKS: Experiment = Experiment {
    name: "masks",
    title: "Rate by the number of masks",
    about: "The smallest frames of 16,384 flows, measured as above, with a megaflow for each flow \
            and this many different masks. Open vSwitch's exact-match cache holds fewer flows; its \
            signature match cache is enabled, so most packets do not search all masks. The exact- \
            match cache of Slipswitch's BPF datapath holds all flows.",
    repeats: "none of the papers' tables; *Faster OVS Datapath with XDP* has a hash table for \
              each mask",
    shown: &["rate", "rate per core"],
    across: Some("masks"),
    more: "9 numbers of masks",
    frames: masks,
    run: super::run,
    ..Experiment::BASE
};

/// One choice of traffic and rules. Frames come from a card.
#[derive(Clone, Debug)]
pub struct Case {
    /// The remote end of the second port.
    pub receiver: Remote,
    pub rules: Rules,
    /// Flows that take turns.
    pub flows: u32,
    /// Bytes of each frame, with Ethernet's checksum.
    pub size: u32,
    /// Latency is measured in addition to the rate.
    pub latency: bool,
    /// The experiments that have the case, with their parameters.
    pub subjects: Vec<(&'static str, Parameters)>,
}

impl Case {
    /// The rate of the smallest frames, to a card.
    pub fn new(subject: (&'static str, Parameters), flows: u32, rules: Rules) -> Case {
        let (receiver, subjects) = (Remote::Card, vec![subject]);
        Case { receiver, rules, flows, size: SIZES[0], latency: false, subjects }
    }

    fn is_like(&self, other: &Case) -> bool {
        (self.receiver, self.rules, self.traffic())
            == (other.receiver, other.rules, other.traffic())
    }

    /// True when a system is measured in it: masks come from rules, and two systems are there for
    /// one goal each.
    pub fn suits(&self, system: System) -> bool {
        match system {
            System::BareTcPeer => self.receiver == Remote::Container,
            System::SlipswitchAfXdp => (self.flows, self.receiver) == (1, Remote::Card),
            _ => !matches!(self.rules, Rules::Masks(..)) || system.has_rules(),
        }
    }

    /// Its frames as fast as possible.
    pub fn flood(&self) -> Stream {
        Stream { size: self.size, ..Stream::flood(self.flows) }
    }

    /// Returns the generator's traffic: the number of flows and the frame size.
    pub fn traffic(&self) -> (u32, u32) {
        (self.flows, self.size)
    }

    /// The subject of a system's points in the first experiment that has the case.
    pub fn subject(&self, system: &str) -> Subject {
        let (experiment, parameters) = self.subjects.first().cloned().unwrap_or_default();
        Subject { experiment, system: system.to_owned(), parameters }
    }
}

/// Each case once, in an order in which installed rules and megaflows can stay: more and more flows
/// with a rule each, then the rest.
pub fn union(cases: impl IntoIterator<Item = Case>) -> Vec<Case> {
    let mut all: Vec<Case> = Vec::new();
    for case in cases {
        match all.iter_mut().find(|known| known.is_like(&case)) {
            Some(known) => {
                known.latency |= case.latency;
                known.subjects.extend(case.subjects);
            }
            None => all.push(case),
        }
    }
    all.sort_by_key(|case| match case.rules {
        Rules::OneToOne(flows) => flows,
        _ => u32::MAX,
    });
    all
}

fn grid(full: bool) -> Vec<Case> {
    const ALL_SIZES: [u32; 8] = [SIZES[0], 128, 256, 512, 768, 1024, 1280, SIZES[1]];
    let flows: &[u32] = match full {
        true => &[1, 16, 256, 1 << 10, 1 << 14, 1 << 16, 1 << 18],
        false => &[1, 1 << 16, 1 << 18],
    };
    let sizes = |flows: u32| -> &[u32] {
        match (full, flows) {
            (true, _) => &ALL_SIZES,
            (false, 1) => &SIZES,
            (false, _) => &SIZES[..1],
        }
    };
    let case = |flows: u32, size: u32| {
        let parameters = parameters([("size", size.into()), ("flows", flows.into())]);
        let latency = full || size == SIZES[0];
        let case = Case::new((GRID.name, parameters), flows, Rules::OneToOne(flows));
        Case { size, latency, ..case }
    };
    flows.iter().flat_map(|flows| sizes(*flows).iter().map(|size| case(*flows, *size))).collect()
}

/// A rule for each flow; a full run also has one rule for all flows.
fn flows(full: bool) -> Vec<Case> {
    let numbers: &[u32] =
        if full { &[1, 10, 100, 300, 1000, 3000, 10_000] } else { &[1, 100, 10_000] };
    let case = |flows: u32, name: &str, rules: Rules| {
        let parameters = parameters([("rules", name.into()), ("flows", flows.into())]);
        Case::new((FLOWS.name, parameters), flows, rules)
    };
    let exact = numbers.iter().map(|n| case(*n, "1:1", Rules::OneToOne(*n)));
    let prefix = numbers.iter().filter(|_| full).map(|n| case(*n, "prefix", Rules::Prefix));
    exact.chain(prefix).collect()
}

fn one_flow(_: bool) -> Vec<Case> {
    let case = |receiver: Remote| {
        let case = Case::new((ONE_FLOW.name, way(receiver)), 1, Rules::OneToOne(1));
        Case { receiver, latency: true, ..case }
    };
    [Remote::Card, Remote::Container].map(case).into()
}

fn way(receiver: Remote) -> Parameters {
    let way = format!("{} to {}", Remote::Card.name(), receiver.name());
    parameters([("way", way.as_str().into())])
}

/// The systems, and what the generator alone hands to its device.
fn with_sender(run: &mut Run) -> Result<()> {
    super::run(run)?;
    let generator = GeneratorOnly::new(Counted::AtDevice, run.cpus)?;
    run.progress.say(SENDER);
    let (traffic, window) = (generator.traffic(Stream::flood(1)), rate::window(run.plan));
    let entry = Entry {
        subject: run.subject(SENDER, way(Remote::Card)),
        note: None,
        is_compared: false,
        candidate: Box::new(move || rate::sample(&traffic, window)),
    };
    run.turns((run.plan.at_most(ROUNDS), 1), None, vec![entry], &[rate::RATE, rate::PER_CORE]);
    Ok(())
}

fn masks(full: bool) -> Vec<Case> {
    /// Flows that are spread over the masks: more than Open vSwitch's exact-match cache holds.
    const FLOWS: u32 = 1 << 14;
    let numbers: &[u32] = if full { &[1, 2, 4, 8, 16, 32, 64, 128, 256] } else { &[1, 16, 256] };
    let case = |masks: &u32| {
        let parameters = parameters([("masks", (*masks).into())]);
        Case::new((MASKS.name, parameters), FLOWS, Rules::Masks(FLOWS, *masks))
    };
    numbers.iter().map(case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::ALL;

    #[test]
    fn installed_rules_can_stay() {
        let cases: Vec<Case> = ALL.iter().flat_map(|e| (e.frames)(true)).collect();
        let count = cases.len();
        let all = union(cases);
        // One flow to a card is in three experiments.
        assert_eq!(all.len(), count - 2);
        let to_card = all.iter().filter(|case| case.receiver == Remote::Card);
        let ordered: Vec<&Case> = to_card.collect();
        let exact = ordered.iter().take_while(|c| matches!(c.rules, Rules::OneToOne(_)));
        let flows: Vec<u32> = exact.map(|c| c.flows).collect();
        assert!(flows.is_sorted() && flows.len() > 50, "{flows:?}");
        let mut rest = ordered.iter().skip(flows.len()).peekable();
        assert!(rest.peek().is_some());
        assert!(rest.all(|c| !matches!(c.rules, Rules::OneToOne(_))));
    }

    #[test]
    fn one_flow_of_the_grid_is_that_of_other_experiments() {
        let all = union([flows(false), one_flow(false), grid(false)].concat());
        let of = |receiver| all.iter().find(|c| c.receiver == receiver && c.traffic() == (1, 64));
        let card = of(Remote::Card).unwrap();
        let names: Vec<&str> = card.subjects.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["flows", "one-flow", "grid"]);
        assert!(!flows(false)[0].latency && card.latency);
        assert_eq!(of(Remote::Container).unwrap().subjects.len(), 1);
    }

    #[test]
    fn the_whole_grid_has_56_points_and_a_short_run_some_of_them() {
        let cells =
            |full| -> Vec<_> { grid(full).iter().map(|case| (case.flows, case.size)).collect() };
        let (all, some) = (cells(true), cells(false));
        assert_eq!(all.len(), 56);
        assert!(some.iter().all(|cell| all.contains(cell)));
        // Goals are about these.
        for flows in [1, 1 << 16, 1 << 18] {
            assert!(some.contains(&(flows, 64)));
        }
    }
}

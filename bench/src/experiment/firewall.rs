// SPDX-License-Identifier: Apache-2.0
//! TCP between two hosts through a stateful firewall, against the same without connection tracking.

use super::{Entry, Experiment, Run};
use crate::attempt::attempt;
use crate::endpoints::Endpoints;
use crate::endpoints::tcp::{bulk, connections, requests};
use crate::host_testbed::HostTestbed;
use crate::measure::{TURN, turns_in};
use crate::point::{Metric, Parameters, parameters};
use crate::rules::Rules;
use crate::system::{System, Tier};
use anyhow::{Error, Result};
use std::time::Duration;

/// The experiment.
pub const FIREWALL: Experiment = Experiment {
    name: "firewall",
    title: "TCP through a stateful firewall",
    about: "One container may open connections to another, which may only answer: rules with the \
            action ct and matches on ct_state. The Linux bridge hands packets to nftables, where the \
            kernel tracks connections. Throughput is that of one connection, requests and \
            answers have one byte, and connections are made, used for one request and closed, one \
            at a time. Two switches of the same kind take turns of 50 ms: one with these rules, \
            and one with rules that forward everything. The ratio in brackets is to the latter.",
    repeats: "none of the papers' tables: no switch of the papers tracks connections in a fast \
              path",
    across: Some("rules"),
    seconds: [60, 120],
    run,
    ..Experiment::BASE
};

/// Systems that track connections on plain veth pairs without polling.
const SYSTEMS: [System; 4] = [
    System::LinuxBridge,
    System::OvsAfPacket,
    System::Slipswitch(Tier::Tcx),
    System::Slipswitch(Tier::Userspace),
];

/// A figure, and the function that measures it for a time.
type Figure = (Metric, fn(&Endpoints, Duration) -> Result<f64>);

const FIGURES: [Figure; 3] = [
    (Metric::new("throughput", "Gbit/s", 0.05), bulk),
    (Metric::new("requests", "/s", 0.05), requests),
    (Metric::new("connections", "/s", 0.05), connections),
];

/// The reference first.
const RULES: [Rules; 2] = [Rules::Normal, Rules::Firewall];
/// Returns the label of a system's reference, in place of a system's name. Each system has its own: by a
/// reference in common, two systems would be compared with each other.
fn reference(system: System) -> String {
    format!("{} without connection tracking", system.name())
}

fn run(run: &mut Run) -> Result<()> {
    for system in run.selected_of(&SYSTEMS) {
        run.progress.say(&format!("starting {} twice", system.name()));
        let cpus = run.cpus;
        let make = |rules| attempt(|| HostTestbed::new(system, cpus, rules)?.with_tcp());
        match RULES.map(make).into_iter().collect::<Result<Vec<_>>>() {
            Ok(testbeds) => {
                run.describe(system, &*testbeds[0].instance);
                for figure in &FIGURES {
                    measure(run, &testbeds, figure);
                }
                testbeds.into_iter().for_each(|testbed| run.end(system, testbed));
            }
            Err(why) => absent(run, system, &why),
        }
    }
    Ok(())
}

fn absent(run: &mut Run, system: System, why: &Error) {
    for rules in RULES {
        for (metric, _) in FIGURES {
            run.absent(system, &named(rules), &[metric], why);
        }
    }
}

/// Lets the two switches take turns.
fn measure(run: &mut Run, testbeds: &[HostTestbed], (metric, work): &Figure) {
    for (testbed, rules) in testbeds.iter().zip(RULES) {
        // Without a figure of each there is none to compare.
        if let Err(why) = attempt(|| work(&testbed.endpoints, TURN)) {
            return run.absent(testbed.system, &named(rules), &[*metric], &why);
        }
    }
    let entries = testbeds.iter().zip(RULES).map(|(testbed, rules)| Entry {
        subject: run.subject(testbed.system.name(), named(rules)),
        note: testbed.note.clone(),
        is_compared: rules != RULES[0],
        candidate: Box::new(move || attempt(|| Ok(vec![work(&testbed.endpoints, TURN)?]))),
    });
    let entries = entries.collect();
    let turns = turns_in(run.plan.window());
    let reference = testbeds.first().map(|testbed| reference(testbed.system));
    run.turns((run.plan, turns), reference.as_deref().map(|name| (0, name)), entries, &[*metric]);
}

fn named(rules: Rules) -> Parameters {
    parameters([("rules", if rules == Rules::Firewall { "firewall" } else { "all" }.into())])
}

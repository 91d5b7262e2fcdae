// SPDX-License-Identifier: Apache-2.0
//! Frames of established connections, against the same frames without connection tracking.

use super::frames::rate::{PER_CORE, RATE, sample, window};
use super::frames::{ROUNDS, warm_up};
use super::{Entry, Experiment, Run};
use crate::attempt::attempt;
use crate::generator::Stream;
use crate::pin::Cpus;
use crate::point::{Metric, Parameters, parameters};
use crate::rules::{NEW_COOKIE, Rules};
use crate::system::vswitch::{BRIDGE, number_after};
use crate::system::{System, Tier};
use crate::testbed::{Testbed, Way};
use crate::topology::Remote;
use anyhow::{Context, Result, bail, ensure};

/// The experiment.
pub const TRACKED: Experiment = Experiment {
    name: "tracked",
    title: "UDP of established connections",
    about: "The smallest frames of one direction of connections that had a reply. Connections take \
            turns in random order. Three switches of the same kind take turns: one forwards \
            everything by one lookup, one tracks each connection in one zone, and one does what a \
            virtual network does: it tracks the connection and looks the packet up again four \
            times, in the zone of the sender's port, twice in that of a router, and in the zone of \
            the receiver's port. The ratio in brackets is to the first switch.",
    repeats: "none of the papers' tables: no switch of the papers tracks connections in a fast \
              path",
    shown: &["rate", "rate per core"],
    across: Some("connections"),
    seconds: [75, 120],
    run,
    ..Experiment::BASE
};

const SYSTEMS: [System; 3] =
    [System::OvsAfPacket, System::Slipswitch(Tier::Xdp), System::Slipswitch(Tier::Tcx)];
const CONNECTIONS: [u32; 2] = [1, 1 << 16];
/// The reference first.
const RULES: [Rules; 3] = [Rules::Normal, Rules::Tracked, Rules::Zones];
/// Label of the reference, in place of a system's name.
pub const AGAINST: &str = "the same without connection tracking";
/// Turns of a round: a ratio has to be more exact than a rate.
pub const TURNS: u32 = 3;
pub const METRICS: [Metric; 2] = [RATE, PER_CORE];
/// Packets a second while connections are made. A daemon loses some first packets, so there are
/// several cycles through all connections.
const PACE: u32 = 200_000;
const CYCLES: u32 = 20;
/// Seconds until a connection ends without packets: longer than it takes to make a million.
const TIMEOUT: u32 = 3600;

fn run(run: &mut Run) -> Result<()> {
    for system in run.selected_of(&SYSTEMS) {
        run.progress.say(&format!("starting {} three times", system.name()));
        let cpus = run.cpus;
        let make = |rules| attempt(|| testbed(system, cpus, rules));
        match RULES.map(make).into_iter().collect::<Result<Vec<_>>>() {
            Ok(testbeds) => {
                run.describe(system, &*testbeds[0].instance);
                for connections in CONNECTIONS {
                    measure(run, system, &testbeds, connections);
                }
                testbeds.into_iter().for_each(|testbed| run.end(system, testbed));
            }
            Err(why) => {
                for connections in CONNECTIONS {
                    absent(run, system, connections, &why);
                }
            }
        }
    }
    Ok(())
}

fn absent(run: &mut Run, system: System, connections: u32, why: &anyhow::Error) {
    RULES.iter().for_each(|rules| run.absent(system, &named(*rules, connections), &METRICS, why));
}

/// Lets the switches take turns with frames of this many connections.
fn measure(run: &mut Run, system: System, testbeds: &[Testbed], connections: u32) {
    run.progress.say(&format!("{}: making {connections} connections", system.name()));
    let ready = || {
        let mut tracking = testbeds.iter().zip(RULES).filter(|(_, rules)| *rules != RULES[0]);
        tracking.try_for_each(|(testbed, rules)| establish(testbed, rules, connections))
    };
    if let Err(why) = attempt(ready) {
        return absent(run, system, connections, &why);
    }
    let span = window(run.plan);
    let entries = testbeds.iter().zip(RULES).map(|(testbed, rules)| Entry {
        subject: run.subject(system.name(), named(rules, connections)),
        note: testbed.instance.misplaced(),
        is_compared: rules != RULES[0],
        candidate: Box::new(move || {
            attempt(|| sample(&testbed.traffic(Stream::flood(connections)), span))
        }),
    });
    let entries = entries.collect();
    run.turns((run.plan.at_most(ROUNDS), TURNS), Some((0, AGAINST)), entries, &METRICS);
}

fn named(rules: Rules, connections: u32) -> Parameters {
    let name = match rules {
        Rules::Tracked => "one zone",
        Rules::Zones => "three zones, four lookups more",
        _ => "one lookup",
    };
    parameters([("rules", name.into()), ("connections", connections.into())])
}

/// Starts a system with these rules, whose connections do not end during the measurement.
pub fn testbed(system: System, cpus: Cpus, rules: Rules) -> Result<Testbed> {
    let mut testbed = Testbed::new(system, Remote::Card, cpus)?.with_replies(system)?;
    testbed.instance.install(rules)?;
    if rules == RULES[0] {
        return Ok(testbed);
    }
    let switch = testbed.instance.switch().context("this system has no daemon")?;
    switch.vsctl("set Open_vSwitch . other_config:upcall-cpu-percent=100");
    switch.vsctl(
        "-- --id=@d create Datapath datapath_version=0 \
         -- set Open_vSwitch . datapaths:netdev=@d",
    );
    for zone in 1..=zones(rules) {
        switch.vsctl(&format!(
            "add-zone-tp netdev zone={zone} udp_first={TIMEOUT} udp_single={TIMEOUT} \
             udp_multiple={TIMEOUT}"
        ));
    }
    Ok(testbed)
}

/// How many zones the rules track each connection in.
fn zones(rules: Rules) -> u32 {
    if rules == Rules::Zones { 3 } else { 1 }
}

/// Makes connections and lets each have a reply.
///
/// # Errors
/// When some are not established after several packets of both directions.
pub fn establish(testbed: &Testbed, rules: Rules, connections: u32) -> Result<()> {
    let switch = testbed.instance.switch().context("this system has no daemon")?;
    // Packets that were tracked as new so far.
    let news = || {
        switch.revalidate();
        let text = switch.ofctl(&format!("dump-aggregate {BRIDGE} cookie={NEW_COOKIE}/-1"));
        number_after(&text, "packet_count=").with_context(|| format!("no count in: {text}"))
    };
    let wanted = connections * zones(rules);
    let mut made = 0;
    for _ in 0..CYCLES {
        warm_up::cycle(|stream| Ok(testbed.traffic(stream)), connections, PACE)?;
        let text = switch.appctl("dpctl/ct-get-nconns");
        made = text.trim().parse().with_context(|| format!("no number: {text}"))?;
        if made >= wanted {
            break;
        }
    }
    ensure!(made >= wanted, "only {made} of {wanted} connections were made");
    for _ in 0..CYCLES {
        warm_up::cycle(|stream| testbed.replies(stream), connections, PACE)?;
        let before = news()?;
        warm_up::cycle(|stream| Ok(testbed.traffic(stream)), connections, PACE)?;
        if news()? == before {
            return Ok(());
        }
    }
    bail!("not all connections are established")
}

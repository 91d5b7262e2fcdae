// SPDX-License-Identifier: Apache-2.0
//! TCP between two ports while a third floods the switch.
//!
//! Sending the flood takes CPU from the TCP endpoints, whatever the switch does. So each flood is
//! compared with the same packets while one megaflow drops them.

use super::setup::purge;
use super::{Entry, Experiment, Run};
use crate::attempt::attempt;
use crate::cpu_time::of_process;
use crate::endpoints::tcp::bulk;
use crate::flooder::{Flooder, Kind};
use crate::host_testbed::HostTestbed;
use crate::measure::Sample;
use crate::point::{Metric, Parameters, parameters};
use crate::rules::{Flood, Rules};
use crate::system::{System, Tier};
use anyhow::{Context, Result};
use std::cell::RefCell;
use std::thread;
use std::time::{Duration, Instant};

/// The experiment.
pub const FLOOD: Experiment = Experiment {
    name: "flood",
    title: "TCP while another port floods the switch",
    about: "One TCP connection between two containers, while a third sends the smallest UDP \
            packets as fast as one thread can; the switch drops all of them: by one megaflow, or \
            by a rule that reads the random addresses and ports (each packet is a new flow), or by \
            rules of many prefixes (flows have many masks). Or it sends the first segments of TCP \
            connections from random sources to one port; the switch tracks each as a new \
            connection before it is dropped, and the two containers have a stateful firewall \
            between them. The third container shares a CPU with \
            the TCP sender; the receiver and the daemon have the other. So the cost of new flows \
            and masks is the ratio, in brackets, to the throughput while one megaflow drops the \
            packets. Measuring begins four seconds after the flood, when a port has spent its \
            saved-up budget for new flows. CPU is that of the daemon, in percent of one CPU.",
    repeats: "none of the papers' tables; it shows what a hostile container can do to its \
              neighbours",
    shown: &["throughput", "CPU of the daemon"],
    long: true,
    across: Some("flood"),
    seconds: [230, 340],
    run,
    ..Experiment::BASE
};

/// Systems whose ports are plain veth pairs and whose daemon does not poll: a polling thread would
/// take the receiver's CPU.
const SYSTEMS: [System; 3] =
    [System::OvsAfPacket, System::Slipswitch(Tier::Tcx), System::Slipswitch(Tier::Userspace)];
/// Traffic of the third port; `None` means no traffic. Other floods are compared with the second.
const FLOODS: [Option<Flood>; 5] =
    [None, Some(Flood::Dropped), Some(Flood::NewFlows), Some(Flood::NewMasks), Some(Flood::Syns)];
/// Label of the reference for throughput, in place of a system's name.
const AGAINST: &str = "the same with dropped packets";
/// From the start of a flood until a port has spent its saved-up budget for new flows.
const ONSET: Duration = Duration::from_secs(4);

const METRICS: [Metric; 4] = [
    Metric::new("throughput", "Gbit/s", 0.15),
    Metric::new("CPU of the daemon", "%", 0.15).not_compared(),
    Metric::new("packets of the flood", "Mpps", 0.15).not_compared(),
    Metric::new("megaflows", "megaflows", 0.15).not_compared(),
];

fn run(run: &mut Run) -> Result<()> {
    for system in run.selected_of(&SYSTEMS) {
        run.progress.say(&format!("starting {}", system.name()));
        let made =
            attempt(|| HostTestbed::new(system, run.cpus, Rules::Normal)?.with_tcp()?.with_third());
        match made {
            Ok(testbed) => floods(run, testbed),
            Err(e) => FLOODS.map(named).iter().for_each(|of| run.absent(system, of, &METRICS, &e)),
        }
    }
    Ok(())
}

/// All floods in turn through one system.
fn floods(run: &mut Run, testbed: HostTestbed) {
    run.describe(testbed.system, &*testbed.instance);
    let (system, note, window) = (testbed.system, testbed.note.clone(), run.plan.window());
    let testbed = RefCell::new(testbed);
    let once = |flood| attempt(|| measure(&mut testbed.borrow_mut(), flood, window));
    // A flood that silences the connection does not delay the others.
    let mut able = Vec::new();
    for flood in FLOODS {
        match once(flood) {
            Ok(_) => able.push(flood),
            Err(e) => run.absent(system, &named(flood), &METRICS, &e),
        }
    }
    let once = &once;
    let entry = |flood: &Option<Flood>| {
        let flood = *flood;
        Entry {
            subject: run.subject(system.name(), named(flood)),
            note: note.clone(),
            is_compared: flood.is_some(),
            candidate: Box::new(move || once(flood)),
        }
    };
    let dropped = able.iter().position(|flood| *flood == FLOODS[1]);
    let entries = able.iter().map(entry).collect();
    run.turns((run.plan, 1), dropped.map(|at| (at, AGAINST)), entries, &METRICS);
}

fn named(flood: Option<Flood>) -> Parameters {
    parameters([("flood", flood.map_or("none", Flood::name).into())])
}

/// Measures TCP during one flood: the figures of [`METRICS`].
fn measure(testbed: &mut HostTestbed, flood: Option<Flood>, window: Duration) -> Result<Sample> {
    testbed.instance.install(flood.map_or(Rules::Normal, Rules::Third))?;
    purge(testbed)?;
    let cpu = testbed.endpoints.cpus.traffic;
    let kind = if flood == Some(Flood::Syns) { Kind::Syns } else { Kind::Udp };
    let flooder = flood.map(|_| Flooder::start(testbed.third()?, cpu, kind)).transpose()?;
    if flooder.is_some() {
        thread::sleep(ONSET);
    }
    let sent = || flooder.as_ref().map_or(0, Flooder::sent);
    let pid = *testbed.instance.daemons().first().context("no daemon")?;
    let (begin, sent_before, used_before) = (Instant::now(), sent(), of_process(pid)?);
    let gbits = bulk(&testbed.endpoints, window)?;
    let seconds = begin.elapsed().as_secs_f64();
    let (packets, used) = (sent() - sent_before, of_process(pid)?.saturating_sub(used_before));
    let megaflows = testbed.instance.megaflows().context("the daemon counts no megaflows")?;
    flooder.map_or(Ok(()), Flooder::stop)?;
    let cpu = used.as_secs_f64() / seconds * 100.0;
    Ok(vec![gbits, cpu, packets as f64 / seconds / 1e6, megaflows as f64])
}

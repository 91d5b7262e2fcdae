// SPDX-License-Identifier: Apache-2.0
//! TCP between two ports while a third floods the switch.
//!
//! Sending the flood takes CPU from the TCP endpoints, whatever the switch does. So each flood is
//! compared with the same packets while one megaflow drops them.

use super::setup::purge;
use super::{Entry, Experiment, NO_FRAMES, Number, Run};
use crate::attempt::attempt;
use crate::cpu_time::of_process;
use crate::endpoints::tcp::bulk;
use crate::flooder::Flooder;
use crate::host_testbed::HostTestbed;
use crate::measure::{Candidate, Sample};
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
            packets as fast as one thread can; the switch drops all of them. They are dropped by \
            one megaflow, or by a rule that reads addresses and ports (these are random, so each \
            packet is a new flow), or by rules of many prefixes (so that flows have many masks). \
            Sending the packets takes CPU from the TCP sender, which shares a CPU with the third \
            container; the receiver and the daemon have the other. So the cost of new flows and \
            masks is the ratio, in brackets, to the throughput while one megaflow drops the \
            packets. Measuring begins four seconds after the flood, when a port has spent its \
            saved-up budget for new flows. CPU is that of the daemon, in percent of one CPU. The \
            numbers of packets and megaflows are in the file of results.",
    repeats: "none of the papers' tables; it shows what a hostile container can do to its \
              neighbours",
    shown: &["throughput", "CPU of the daemon"],
    long: true,
    across: Some("flood"),
    more: "",
    why: &[],
    seconds: [230, 340],
    frames: NO_FRAMES,
    run,
};

/// Systems whose ports are plain veth pairs and whose daemon does not poll: a polling thread would
/// take the receiver's CPU.
const SYSTEMS: [System; 3] =
    [System::OvsAfPacket, System::Slipswitch(Tier::Tcx), System::Slipswitch(Tier::Userspace)];
/// Traffic of the third port; `None` means no traffic. Other floods are compared with the second.
const FLOODS: [Option<Flood>; 4] =
    [None, Some(Flood::Dropped), Some(Flood::NewFlows), Some(Flood::NewMasks)];
/// Label of the reference for throughput, in place of a system's name.
const AGAINST: &str = "the same with dropped packets";
/// From the start of a flood until a port has spent its saved-up budget for new flows.
const ONSET: Duration = Duration::from_secs(4);

const NUMBERS: [Number<Sampled>; 4] = [
    number("throughput", "Gbit/s", |s| Some(s.gbits), true),
    number("CPU of the daemon", "%", |s| Some(s.cpu), false),
    number("packets of the flood", "Mpps", |s| Some(s.mpps), false),
    number("megaflows", "megaflows", |s| Some(s.megaflows), false),
];

const fn number(
    name: &'static str,
    unit: &'static str,
    of: fn(&Sampled) -> Option<f64>,
    is_compared: bool,
) -> Number<Sampled> {
    Number { metric: Metric { name, unit, max_scatter: 0.15 }, of, is_compared }
}

#[derive(Clone, Debug)]
struct Sampled {
    gbits: f64,
    cpu: f64,
    mpps: f64,
    megaflows: f64,
}

impl Sample for Sampled {
    fn value(&self) -> f64 {
        self.gbits
    }
}

fn run(run: &mut Run) -> Result<()> {
    for system in run.selected_of(&SYSTEMS) {
        run.progress.say(&format!("starting {}", system.name()));
        let made =
            attempt(|| HostTestbed::new(system, run.cpus, Rules::Normal)?.with_tcp()?.with_third());
        match made {
            Ok(testbed) => floods(run, testbed),
            Err(e) => FLOODS.into_iter().for_each(|flood| absent(run, system, flood, &e)),
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
            Err(e) => absent(run, system, flood, &e),
        }
    }
    let once = &once;
    let entry = |flood: &Option<Flood>| {
        let flood = *flood;
        let candidate: Candidate<'_, Sampled> = Box::new(move || once(flood));
        let system = system.name().to_owned();
        let (parameters, note, is_compared) = (named(flood), note.clone(), flood.is_some());
        Entry { system, parameters, note, is_compared, candidate }
    };
    let dropped = able.iter().position(|flood| *flood == FLOODS[1]);
    let entries = able.iter().map(entry).collect();
    run.turns((run.plan, 1), dropped.map(|at| (at, AGAINST)), entries, &NUMBERS);
}

fn absent(run: &mut Run, system: System, flood: Option<Flood>, why: &anyhow::Error) {
    run.absent(system, &named(flood), NUMBERS.iter().map(|number| &number.metric), why);
}

fn named(flood: Option<Flood>) -> Parameters {
    parameters([("flood", flood.map_or("none", Flood::name).into())])
}

/// Measures TCP during one flood.
fn measure(testbed: &mut HostTestbed, flood: Option<Flood>, window: Duration) -> Result<Sampled> {
    testbed.instance.install(flood.map_or(Rules::Normal, Rules::Third))?;
    purge(testbed)?;
    let cpu = testbed.endpoints.cpus.traffic;
    let flooder = flood.map(|_| Flooder::start(testbed.third()?, cpu)).transpose()?;
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
    Ok(Sampled {
        gbits,
        cpu: used.as_secs_f64() / seconds * 100.0,
        mpps: packets as f64 / seconds / 1e6,
        megaflows: megaflows as f64,
    })
}

// SPDX-License-Identifier: Apache-2.0
//! Flow set-up: new flows a second, and how long a first packet takes. How long a pass over all
//! megaflows takes.

use super::{Experiment, Run, Task, with_rules};
use crate::cpu_time::of_process;
use crate::endpoints::udp::{NewFlows, begin_flows};
use crate::host_testbed::HostTestbed;
use crate::measure::Series;
use crate::netns::run as sh;
use crate::point::{Metric, Parameters, parameters};
use crate::rules::{DESTINATIONS, Rules};
use crate::system::vswitch::number_after;
use crate::system::{System, Tier};
use anyhow::{Context, Result, bail, ensure};
use slipswitch_tests::harness::wait_until;
use std::thread;
use std::time::Duration;

/// The experiment.
pub const SETUP: Experiment = Experiment {
    name: "setup",
    title: "Flow set-up",
    about: "UDP datagrams to destination addresses without a megaflow, with an OpenFlow rule for \
            each. Up to 64 are in flight, and with each that arrives another is sent: new flows a \
            second, and the CPU time of all threads of the daemon for each. Then one at a time: \
            how long the first packet of a flow takes, and a later one, from before it is sent \
            until it is received. One thread sends and receives. Each flow must have a megaflow \
            when it has begun; for flows of one packet Slipswitch makes this many only with \
            `other_config:upcall-cpu-percent=100`, which is set here. The limit is a redirect, for \
            which no flow is new: most of its time is that of the sockets, which all systems have \
            in common. On some machines it begins only twice as many flows as Open vSwitch, so a \
            goal above that says nothing about a switch.",
    repeats: "none of the papers' tables; *Faster OVS Datapath with XDP* gives flow set-up as the \
              reason not to compile programs for each flow",
    more: "65,536 flows in place of 16,384",
    seconds: [35, 100],
    run,
    ..Experiment::BASE
};

/// How long a pass over all megaflows takes.
pub const SWEEP: Experiment = Experiment {
    name: "sweep",
    title: "Collecting statistics",
    about: "The duration of one pass over all megaflows, which reads their statistics, credits \
            the rules and checks that each megaflow is still valid: the dump duration of \
            `ovs-appctl upcall/show`, in whole milliseconds. Megaflows are made as above. After \
            one packet each, all of them have statistics to read in the measured pass. Idle ones \
            have had no packet for some passes, and the measured pass is one that the daemon \
            begins by itself.",
    across: Some("megaflows"),
    more: "16,384 megaflows, too",
    seconds: [75, 180],
    run: run_sweep,
    ..Experiment::BASE
};

/// Most datagrams that are in flight.
const IN_FLIGHT: u32 = 64;
/// Flows that begin one at a time in a round.
const SINGLE: u32 = 500;
/// Lets Slipswitch make a megaflow for each flow of one packet: by default it stops when a port
/// has had many of these. Open vSwitch does not know the setting.
const ALL_MISSES: &str = "set Open_vSwitch . other_config:upcall-cpu-percent=100";
/// Idle megaflows, and the systems that have them: making them takes long.
const IDLE_FLOWS: u32 = 1 << 18;
const IDLE_SYSTEMS: [System; 2] = [System::OvsAfPacket, System::Slipswitch(Tier::Tcx)];
/// From the last packet until a daemon has begun and ended a pass over idle megaflows.
const IDLE: Duration = Duration::from_secs(3);
/// Percent of the flows that need a megaflow when all have begun.
const ENOUGH: u64 = 98;
/// Until a daemon has counted its megaflows.
const COUNT_TIMEOUT: Duration = Duration::from_secs(1);

/// The limit is a redirect, for which no flow is new.
fn run(run: &mut Run) -> Result<()> {
    type Work = fn(&HostTestbed, u32) -> Result<f64>;
    let flows = if run.plan.full { 1 << 16 } else { 1 << 14 };
    let task = |name, unit, work: Work| Task {
        metric: Metric::new(name, unit, 0.10),
        parameters: Parameters::new(),
        rules: None,
        turns: 1,
        work: Box::new(move |testbed| work(testbed, flows)),
    };
    let tasks = [
        task("new flows", "/s", rate),
        task("CPU of the daemon for a new flow", "µs", cost),
        task("first packet", "µs", |testbed, _| {
            purge(testbed)?;
            Ok(Series(begin(testbed, SINGLE, 1)?.delays).median())
        }),
        task("later packet", "µs", |t, _| Ok(Series(begin(t, SINGLE, 1)?.delays).median())),
    ];
    let cpus = run.cpus;
    let make = move |system| prepared(HostTestbed::new(system, cpus, Rules::Destinations(flows))?);
    let systems = [vec![System::BareTc], with_rules()].concat();
    run.compare(&systems, Some(System::BareTc), &make, &tasks);
    Ok(())
}

fn run_sweep(run: &mut Run) -> Result<()> {
    let numbers: &[u32] = if run.plan.full { &[1 << 14, 1 << 16] } else { &[1 << 16] };
    for flows in numbers.iter().copied() {
        sweep(run, &with_rules(), (flows, "a packet each"), pass);
    }
    sweep(run, &IDLE_SYSTEMS, (IDLE_FLOWS, "none"), idle_pass);
    Ok(())
}

/// Measures passes over megaflows that have had this traffic.
fn sweep(
    run: &mut Run,
    systems: &[System],
    (flows, traffic): (u32, &str),
    work: fn(&HostTestbed, u32) -> Result<f64>,
) {
    let cpus = run.cpus;
    let task = Task {
        metric: Metric::new("a pass over all megaflows", "ms", 0.15),
        parameters: parameters([("traffic", traffic.into()), ("megaflows", flows.into())]),
        rules: None,
        turns: 1,
        work: Box::new(move |testbed| work(testbed, flows)),
    };
    let make = move |system| prepared(HostTestbed::new(system, cpus, Rules::Destinations(flows))?);
    run.compare(systems, None, &make, &[task]);
}

/// Milliseconds of a pass in which each megaflow has statistics to credit.
fn pass(testbed: &HostTestbed, flows: u32) -> Result<f64> {
    begin(testbed, flows, IN_FLIGHT / 2)?;
    ensure_megaflows(testbed, flows)?;
    testbed.switch()?.appctl("revalidator/wait");
    last_pass(testbed)
}

/// Milliseconds of a pass that the daemon begins by itself while all megaflows are idle.
fn idle_pass(testbed: &HostTestbed, flows: u32) -> Result<f64> {
    if ensure_megaflows(testbed, flows).is_err() {
        pass(testbed, flows)?;
    }
    thread::sleep(IDLE);
    last_pass(testbed)
}

fn last_pass(testbed: &HostTestbed) -> Result<f64> {
    let text = testbed.switch()?.appctl("upcall/show");
    let duration = number_after(&text, "dump duration :");
    Ok(duration.context("upcall/show has no dump duration")? as f64)
}

/// Flows that begin in a second.
fn rate(testbed: &HostTestbed, flows: u32) -> Result<f64> {
    purge(testbed)?;
    let begun = begin(testbed, flows, IN_FLIGHT)?;
    ensure_megaflows(testbed, flows)?;
    Ok(begun.delays.len() as f64 / begun.time.as_secs_f64())
}

/// CPU time of all threads of the daemon for each flow, in microseconds.
fn cost(testbed: &HostTestbed, flows: u32) -> Result<f64> {
    let pid = *testbed.instance.daemons().first().context("there is no daemon")?;
    purge(testbed)?;
    let before = of_process(pid)?;
    let begun = begin(testbed, flows, IN_FLIGHT)?;
    let used = of_process(pid)?.saturating_sub(before);
    ensure_megaflows(testbed, flows)?;
    Ok(used.as_secs_f64() * 1e6 / begun.delays.len() as f64)
}

/// Fails when too many flows have no megaflow, in systems that have megaflows: packets that pass
/// without one do not show how long it takes to make them.
fn ensure_megaflows(testbed: &HostTestbed, flows: u32) -> Result<()> {
    let mut megaflows = testbed.instance.megaflows();
    let are_few = |megaflows: u64| megaflows * 100 < u64::from(flows) * ENOUGH;
    wait_until(COUNT_TIMEOUT, || {
        megaflows = testbed.instance.megaflows();
        !megaflows.is_some_and(are_few)
    });
    match megaflows {
        Some(megaflows) if are_few(megaflows) => {
            bail!("only {megaflows} of {flows} flows have a megaflow when all have begun")
        }
        _ => Ok(()),
    }
}

/// Routes all destinations to the server, and lets the switch make a megaflow for each flow.
pub fn prepared(testbed: HostTestbed) -> Result<HostTestbed> {
    let testbed = testbed.with_tcp()?;
    if let Some(switch) = testbed.instance.switch() {
        switch.vsctl(ALL_MISSES);
    }
    let server = testbed.endpoints.address;
    sh(&testbed.endpoints.client, &format!("ip route add {DESTINATIONS} via {server}"))?;
    sh(&testbed.endpoints.server, &format!("ip route add local {DESTINATIONS} dev lo"))?;
    // Resolves the neighbour, and lets the switch learn both ways.
    begin(&testbed, 1, 1)?;
    Ok(testbed)
}

/// Removes all megaflows, in systems that have megaflows.
pub fn purge(testbed: &HostTestbed) -> Result<()> {
    let Some(switch) = testbed.instance.switch() else { return Ok(()) };
    let output = switch.sh("ovs-appctl revalidator/purge");
    ensure!(output.ok(), "revalidator/purge: {}", output.text().trim());
    Ok(())
}

/// Sends one datagram of each of the first `flows` flows, with at most `in_flight` on their way.
fn begin(testbed: &HostTestbed, flows: u32, in_flight: u32) -> Result<NewFlows> {
    begin_flows(&testbed.endpoints, flows, in_flight)
}

// SPDX-License-Identifier: Apache-2.0
//! TCP between two hosts: an echo of messages, and rates.

use super::{Experiment, Run, Task, with_rules};
use crate::endpoints::Endpoints;
use crate::endpoints::tcp::{bulk, connections, echo, requests};
use crate::host_testbed::HostTestbed;
use crate::measure::{Plan, TURN, turns_in};
use crate::pin::Cpus;
use crate::point::{Metric, Parameters, parameters};
use crate::rules::Rules;
use crate::system::{System, Tier};
use anyhow::Result;
use std::time::Duration;

/// Echo of messages by TCP.
pub const ECHO: Experiment = Experiment {
    name: "echo",
    title: "Echo through the switch, 16 B to 16 MiB",
    about: "A client sends a message by TCP, the server returns it when it is complete, and the \
            client compares it. Each endpoint has one thread. The time is from before the message \
            is sent until all of it is back: a mean over up to 50 exchanges on one connection, \
            fewer of large messages in the short run. Ports are plain veth pairs to two \
            namespaces. Slipswitch tcx is offload on, Slipswitch userspace is offload off.",
    repeats: "*Open vSwitch in NVIDIA BlueField SmartNIC*, echo test with OVS offload on and off",
    across: Some("bytes"),
    more: "sizes by factors of 4, and 50 exchanges of large messages",
    seconds: [55, 180],
    run: run_echo,
    ..Experiment::BASE
};

/// Rates of TCP between two containers.
pub const TCP: Experiment = Experiment {
    name: "tcp",
    title: "TCP between two containers",
    about: "Throughput is that of one connection. Requests and their answers have one byte and \
            come one at a time. Connections are made, used for one request and closed, one at a \
            time: with rules that do not match TCP's ports, and with rules that do, so that each \
            connection needs two new megaflows. Hosts use CUBIC, Linux's default: an algorithm \
            that paces would measure its timers. Systems take turns of 50 ms, because a shared \
            machine may be twice as fast a second later; a round is the mean over the turns that \
            fill its time.",
    repeats: "none of the papers' tables; the AF_XDP figures of *Faster OVS Datapath with XDP* \
              are without TCP",
    seconds: [200, 330],
    run: run_tcp,
    ..Experiment::BASE
};

/// Rates of TCP where client and server share a CPU.
pub const ONE_CPU: Experiment = Experiment {
    name: "one-cpu",
    title: "TCP between two containers on one CPU",
    about: "Throughput and requests as above, but client and server share a CPU with the kernel's \
            part of the switch; daemons have the other. No packet waits until a CPU is awake, so \
            the figures show the work for a packet. The bare redirect_peer is the limit: packets \
            enter a container without passing the device of its port.",
    seconds: [60, 100],
    run: run_one_cpu,
    ..Experiment::BASE
};

/// Systems whose ports are plain veth pairs, and which do not poll.
const PLAIN: [System; 6] = [
    System::BareTc,
    System::BareTcPeer,
    System::LinuxBridge,
    System::OvsAfPacket,
    System::Slipswitch(Tier::Tcx),
    System::Slipswitch(Tier::Userspace),
];

/// Exchanges of a size, at most: the BlueField page has 50.
const EXCHANGES: u32 = 50;

fn run_echo(run: &mut Run) -> Result<()> {
    let cpus = run.cpus;
    let full = run.plan.full;
    // From 16 B to 16 MiB by factors of 32; of 4 in a full run.
    let sizes = (4..=24).step_by(if full { 2 } else { 5 }).map(|bits| 1usize << bits);
    // A short run begins no exchange of a size after this time; a full run begins all.
    let limit = Duration::from_millis(if full { 60_000 } else { 200 });
    let task = |size: usize| Task {
        metric: Metric::new("time of an echo", "µs", 0.05),
        parameters: parameters([("bytes", (size as u64).into())]),
        rules: None,
        turns: 1,
        work: Box::new(move |t: &HostTestbed| echo(&t.endpoints, size, EXCHANGES, limit)),
    };
    compare(run, &all(), cpus, &sizes.map(task).collect::<Vec<_>>());
    Ok(())
}

fn run_tcp(run: &mut Run) -> Result<()> {
    let (plan, cpus) = (run.plan, run.cpus);
    let task = |name, rules| rate(plan, name, "/s", rules, connections);
    let tasks = [
        rate(plan, "throughput", "Gbit/s", None, bulk),
        rate(plan, "requests", "/s", None, requests),
        task("connections", None),
        task("connections, megaflows for each", Some(Rules::PerConnection)),
    ];
    compare(run, &all(), cpus, &tasks);
    Ok(())
}

fn run_one_cpu(run: &mut Run) -> Result<()> {
    let plan = run.plan;
    let tasks = [
        rate(plan, "throughput", "Gbit/s", None, bulk),
        rate(plan, "requests", "/s", None, requests),
    ];
    let cpus = Cpus { other: run.cpus.traffic, ..run.cpus };
    compare(run, &PLAIN, cpus, &tasks);
    Ok(())
}

/// A rate of TCP, in turns of [`TURN`].
fn rate(
    plan: Plan,
    name: &'static str,
    unit: &'static str,
    rules: Option<Rules>,
    work: fn(&Endpoints, Duration) -> Result<f64>,
) -> Task<'static> {
    Task {
        metric: Metric::new(name, unit, 0.05),
        parameters: Parameters::new(),
        rules,
        turns: turns_in(plan.window()),
        work: Box::new(move |t: &HostTestbed| work(&t.endpoints, TURN)),
    }
}

/// Systems that forward what hosts send over any device.
fn all() -> Vec<System> {
    [vec![System::BareXdp, System::BareTc, System::LinuxBridge], with_rules()].concat()
}

/// Measures tasks on systems between hosts on these CPUs.
fn compare(run: &mut Run, systems: &[System], ends: Cpus, tasks: &[Task<'_>]) {
    let cpus = run.cpus;
    let make = move |system| {
        let mut testbed = HostTestbed::new(system, cpus, Rules::Normal)?.with_tcp()?;
        testbed.endpoints.cpus = ends;
        Ok(testbed)
    };
    run.compare(systems, Some(System::BareTc), &make, tasks);
}

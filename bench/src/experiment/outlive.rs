// SPDX-License-Identifier: Apache-2.0
//! TCP connections that the end of the daemon costs.

use super::{Experiment, Run};
use crate::attempt::attempt;
use crate::endpoints::held::Held;
use crate::host_testbed::HostTestbed;
use crate::measure::Series;
use crate::netns::run as sh;
use crate::pin::Cpus;
use crate::point::{Metric, Parameters, parameters};
use crate::rules::{NAT_ADDRESSES, Rules};
use crate::system::{System, Tier};
use anyhow::{Context, Result, ensure};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use slipswitch_tests::harness::{Switch, wait_until};
use std::thread;
use std::time::Duration;

/// The experiment.
pub const OUTLIVE: Experiment = Experiment {
    name: "outlive",
    title: "Connections and the end of the daemon",
    about: "10,000 TCP connections from one container to another pass the switch, which translates \
            their source to one of 32 addresses. They are used in turn, each for one byte there and \
            back, while the daemon is killed (`kill -9`), or replaced by one that cannot read its \
            flows (an upgrade; Open vSwitch's ends and starts again), is started with \
            `flow-restore-wait` and gets its rules back. Connections that do not answer afterwards \
            are lost. The pause is the longest that an answer takes. Segments that TCP sends again \
            distinguish packets that were lost or waited for the daemon from a pause of the processes \
            themselves, which share two CPUs with the daemon that starts.",
    repeats: "none of the papers' tables",
    across: Some("end"),
    seconds: [60, 90],
    run,
    ..Experiment::BASE
};

/// Systems that track connections on plain veth pairs.
const SYSTEMS: [System; 2] = [System::OvsAfPacket, System::Slipswitch(Tier::Tcx)];
const CONNECTIONS: usize = 10_000;
/// Traffic before and after the end of a daemon.
const QUIET: Duration = Duration::from_secs(1);
/// Until the next daemon listens.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(20);
/// The version of the layout in the map `config`.
const VERSION: std::ops::Range<usize> = 8..12;
/// A version that no daemon has.
const OTHER_VERSION: u32 = 999;

/// The way in which a daemon ends.
#[derive(Clone, Copy)]
enum End {
    Killed,
    Upgraded,
}

const ENDS: [End; 2] = [End::Killed, End::Upgraded];

/// Losses are counted, and a pause is one event, so their scatter is a result and no fault.
const METRICS: [Metric; 3] = [
    Metric::new("connections lost", "connections", f64::INFINITY),
    Metric::new("pause", "ms", f64::INFINITY),
    Metric::new("segments sent again", "segments", f64::INFINITY),
];

fn run(run: &mut Run) -> Result<()> {
    for system in run.selected_of(&SYSTEMS) {
        for end in ENDS {
            run.progress.say(&format!("starting {}", system.name()));
            match attempt(|| measure(run, system, end)) {
                Err(e) => run.absent(system, &named(end), &METRICS, &e),
                Ok(series) => {
                    let subject = run.subject(system.name(), named(end));
                    METRICS.iter().zip(&series).for_each(|(m, s)| run.add(subject.point(m, s)));
                }
            }
        }
    }
    Ok(())
}

fn named(end: End) -> Parameters {
    let text = match end {
        End::Killed => "killed",
        End::Upgraded => "upgraded",
    };
    parameters([("end", text.into())])
}

/// The figures of [`METRICS`], of each end of a daemon.
fn measure(run: &mut Run, system: System, end: End) -> Result<[Series; 3]> {
    let mut testbed = prepared(system, run.cpus)?;
    run.describe(system, &*testbed.instance);
    let [mut lost, mut pause, mut again] = [const { Series(Vec::new()) }; 3];
    for _ in 0..run.plan.at_most(if run.plan.full { 3 } else { 2 }).rounds {
        // Each time all connections are there at first.
        let mut held = Held::open(&testbed.endpoints, testbed.switch()?.sandbox(), CONNECTIONS)?;
        let fate = held.observe(|| {
            let before = resent(&testbed)?;
            thread::sleep(QUIET);
            replace(&mut testbed, end)?;
            thread::sleep(QUIET);
            again.0.push((resent(&testbed)? - before) as f64);
            Ok(())
        })?;
        lost.0.push(fate.lost as f64);
        pause.0.push(fate.pause.as_secs_f64() * 1e3);
    }
    Ok([lost, pause, again])
}

/// Segments that both hosts have sent again so far.
fn resent(testbed: &HostTestbed) -> Result<u64> {
    let hosts = [&testbed.endpoints.client, &testbed.endpoints.server];
    hosts.into_iter().map(|host| tcp_count(&sh(host, "cat /proc/net/snmp")?, "RetransSegs")).sum()
}

/// A count of TCP in the text of `/proc/net/snmp`: a line with names, and one with numbers.
fn tcp_count(text: &str, name: &str) -> Result<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, numbers) = lines.next().zip(lines.next()).context("TCP has no counts")?;
    let mut all = names.split_whitespace().zip(numbers.split_whitespace());
    let (_, number) = all.find(|(of, _)| *of == name).with_context(|| format!("no {name}"))?;
    Ok(number.parse()?)
}

/// A system that translates. The server sends to the translated addresses by the client.
fn prepared(system: System, cpus: Cpus) -> Result<HostTestbed> {
    let mut testbed = HostTestbed::new(system, cpus, Rules::Normal)?.with_tcp()?;
    let route = format!("ip route add {NAT_ADDRESSES} via 10.0.0.1 dev eth0");
    sh(&testbed.endpoints.server, &route)?;
    testbed.instance.install(Rules::Nat)?;
    Ok(testbed)
}

/// Ends the daemon, and starts another one as Open vSwitch's own scripts do.
fn replace(testbed: &mut HostTestbed, end: End) -> Result<()> {
    let system = testbed.system;
    let switch = testbed.instance.switch_mut().context("this system has no daemon")?;
    switch.vsctl("set Open_vSwitch . other_config:flow-restore-wait=true");
    match end {
        End::Killed => switch.kill_daemon(),
        End::Upgraded => {
            switch.appctl("exit");
            ensure!(switch.wait_for_end() == Some(0), "the daemon does not end as it should");
        }
    }
    if let (End::Upgraded, System::Slipswitch(_)) = (end, system) {
        change_layout(switch)?;
    }
    switch.start_daemon();
    let listens = wait_until(LISTEN_TIMEOUT, || switch.sh("ovs-ofctl show br0").ok());
    ensure!(listens, "the daemon does not listen");
    testbed.instance.restore(Rules::Nat)?;
    testbed.switch()?.vsctl("--no-wait remove Open_vSwitch . other_config flow-restore-wait");
    Ok(())
}

/// Makes the pinned flows those of another version.
fn change_layout(switch: &Switch) -> Result<()> {
    let config = MapHandle::from_pinned_path(switch.sandbox().pins().join("config"))?;
    let key = 0u32.to_ne_bytes();
    let mut value = config.lookup(&key, MapFlags::ANY)?.context("the map of settings is empty")?;
    let version = value.get_mut(VERSION).context("the settings are too short")?;
    version.copy_from_slice(&OTHER_VERSION.to_ne_bytes());
    Ok(config.update(&key, &value, MapFlags::ANY)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_by_their_names() {
        let text =
            "Ip: A\nIp: 7\nTcp: InSegs RetransSegs InErrs\nTcp: 12 3 0\nUdp: InSegs\nUdp: 9\n";
        assert_eq!(tcp_count(text, "RetransSegs").unwrap(), 3);
        assert_eq!(tcp_count(text, "InSegs").unwrap(), 12);
        assert!(tcp_count(text, "Other").is_err() && tcp_count("Tcp: A\n", "A").is_err());
    }
}

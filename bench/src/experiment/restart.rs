// SPDX-License-Identifier: Apache-2.0
//! Packets that a restart of the daemon costs.

use super::{Experiment, NO_FRAMES, Reason, Run, with_rules};
use crate::attempt::attempt;
use crate::endpoints::udp::numbered;
use crate::host_testbed::HostTestbed;
use crate::measure::Series;
use crate::point::{Metric, Parameters};
use crate::rules::Rules;
use crate::system::System;
use anyhow::{Context, Result, ensure};
use slipswitch_tests::harness::wait_until;
use std::thread;
use std::time::Duration;

/// The experiment.
pub const RESTART: Experiment = Experiment {
    name: "restart",
    title: "A restart under load",
    about: "10,000 numbered datagrams a second pass the switch while its daemon is stopped \
            (`ovs-appctl exit`), is started again with `flow-restore-wait`, gets its rules back, \
            and continues. Datagrams that do not arrive are lost; the delay is that of the \
            slowest datagram. The goal is judged by the worst restart; the table has the median.",
    repeats: "none of the papers' tables; the BlueField page notes that rules are gone after a \
              restart",
    shown: &[],
    long: false,
    across: None,
    more: "",
    why: &[
        Reason { system: "Linux bridge", ..LOST_INSTEAD },
        Reason { system: "OVS", ..LOST_INSTEAD },
    ],
    seconds: [75, 100],
    frames: NO_FRAMES,
    run,
};

/// Lost packets have no delay.
const LOST_INSTEAD: Reason = Reason {
    system: "",
    metrics: &["longest delay"],
    most: None,
    words: "It loses the packets of that time, as the table above shows, and lost packets have no \
            delay.",
};

/// Traffic before and after a restart.
const QUIET: Duration = Duration::from_secs(1);
/// How often a second without a restart is tried.
const TRIES: u32 = 3;
/// Until the daemon listens again.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(20);
/// Losses are counted, so their scatter is a result and no fault.
const METRICS: [Metric; 2] = [
    Metric { name: "packets lost", unit: "packets", max_scatter: f64::INFINITY },
    Metric { name: "longest delay", unit: "ms", max_scatter: f64::INFINITY },
];

fn run(run: &mut Run) -> Result<()> {
    for system in run.selected_of(&with_rules()) {
        run.progress.say(&format!("starting {}", system.name()));
        match attempt(|| restarts(run, system)) {
            Err(e) => run.absent(system, &Parameters::new(), &METRICS, &e),
            Ok(series) => {
                let subject = run.subject(system, Parameters::new());
                METRICS.iter().zip(&series).for_each(|(m, s)| run.add(subject.point(m, s)));
            }
        }
    }
    Ok(())
}

/// Lost packets, and the longest delay in milliseconds, of each restart.
fn restarts(run: &mut Run, system: System) -> Result<[Series; 2]> {
    let mut testbed = HostTestbed::new(system, run.cpus, Rules::Normal)?.with_tcp()?;
    run.describe(system, &*testbed.instance);
    let [mut lost, mut delay] = [Series::default(), Series::default()];
    restart(&mut testbed)?; // table sizes take effect at a start
    let disturbed = lost_without_restart(&testbed)?;
    ensure!(disturbed == 0, "{disturbed} are lost in a second without a restart");
    for _ in 0..run.plan.at_most(if run.plan.full { 3 } else { 2 }).rounds {
        let endpoints = testbed.endpoints.clone();
        let delivery = numbered(&endpoints, || {
            thread::sleep(QUIET);
            restart(&mut testbed)?;
            thread::sleep(QUIET);
            Ok(())
        })?;
        lost.0.push(delivery.lost as f64);
        delay.0.push(delivery.delay.as_secs_f64() * 1e3);
    }
    Ok([lost, delay])
}

/// Packets lost in a quiet second, the fewest of some tries. Unless there are none, losses during
/// a restart would not be the restart's.
fn lost_without_restart(testbed: &HostTestbed) -> Result<u64> {
    let mut least = u64::MAX;
    for _ in 0..TRIES {
        let delivery = numbered(&testbed.endpoints, || {
            thread::sleep(QUIET);
            Ok(())
        })?;
        least = least.min(delivery.lost);
        if least == 0 {
            break;
        }
    }
    Ok(least)
}

/// Restarts the daemon as Open vSwitch's own scripts do.
fn restart(testbed: &mut HostTestbed) -> Result<()> {
    let switch = testbed.instance.switch_mut().context("this system has no daemon")?;
    switch.vsctl("set Open_vSwitch . other_config:flow-restore-wait=true");
    switch.appctl("exit");
    ensure!(switch.wait_for_end() == Some(0), "the daemon does not end as it should");
    switch.start_daemon();
    let listens = wait_until(LISTEN_TIMEOUT, || switch.sh("ovs-ofctl show br0").ok());
    ensure!(listens, "the daemon does not listen after its restart");
    testbed.instance.restore(Rules::Normal)?;
    testbed.switch()?.vsctl("--no-wait remove Open_vSwitch . other_config flow-restore-wait");
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0
//! Packets that a restart of the daemon costs.

use super::{Experiment, Run, with_rules};
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
    about: "10,000 numbered datagrams a second pass the switch while its daemon is stopped (`ovs- \
            appctl exit`), is started again with `flow-restore-wait`, gets its rules back, and \
            continues. Datagrams that do not arrive are lost; the delay is that of the slowest \
            that arrives. The goal is judged by the worst restart; the table has the median.",
    repeats: "none of the papers' tables; the BlueField page notes that rules are gone after a \
              restart",
    seconds: [75, 100],
    run,
    ..Experiment::BASE
};

/// Traffic before and after a restart.
const QUIET: Duration = Duration::from_secs(1);
/// How often a second without a restart is tried.
const TRIES: u32 = 3;
/// Until the daemon listens again.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(20);
/// Losses are counted, so their scatter is a result and no fault.
const METRICS: [Metric; 2] = [
    Metric::new("packets lost", "packets", f64::INFINITY),
    Metric::new("longest delay", "ms", f64::INFINITY),
];

fn run(run: &mut Run) -> Result<()> {
    for system in run.selected_of(&with_rules()) {
        run.progress.say(&format!("starting {}", system.name()));
        match attempt(|| restarts(run, system)) {
            Err(e) => run.absent(system, &Parameters::new(), &METRICS, &e),
            Ok(series) => {
                let subject = run.subject(system.name(), Parameters::new());
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

/// Packets lost in the last of some quiet seconds, of which one without losses is enough. Otherwise
/// losses during a restart would not be the restart's.
fn lost_without_restart(testbed: &HostTestbed) -> Result<u64> {
    let mut lost = 0;
    for _ in 0..TRIES {
        let quiet = || {
            thread::sleep(QUIET);
            Ok(())
        };
        lost = numbered(&testbed.endpoints, quiet)?.lost;
        if lost == 0 {
            break;
        }
    }
    Ok(lost)
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

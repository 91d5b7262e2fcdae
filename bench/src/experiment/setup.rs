// SPDX-License-Identifier: Apache-2.0
//! Flow set-up: new flows a second, and what a first packet takes.

use super::{Asked, Measure, Run, Task, with_rules};
use crate::catalogue::Experiment;
use crate::cpu_time::of_process;
use crate::ends::{Misses, Taken, misses};
use crate::measure::Series;
use crate::netns::run as sh;
use crate::peer::{DESTINATIONS, Rules, System, destination};
use crate::point::Parameters;
use crate::setting::Setting;
use anyhow::{Context, Result, bail, ensure};
use slipswitch_tests::harness::wait_until;
use std::time::Duration;

/// Scatter (MAD over median) that is too wide.
const WIDE: f64 = 0.10;
/// Most datagrams that are on their way.
const WINDOW: u32 = 64;
/// Flows that begin one at a time in a round.
const SINGLE: u32 = 500;
/// Slipswitch makes no megaflow for a flow of one packet where its port has had many of these, unless
/// misses may take all of a CPU. Others do not know the word.
const ALL_MISSES: &str = "set Open_vSwitch . other_config:upcall-cpu-percent=100";
/// Of a hundred flows so many are to have a megaflow when they have begun.
const MOST: u64 = 98;
/// Until a daemon has counted its megaflows.
const COUNTED: Duration = Duration::from_secs(1);

/// Measures. The limit is a redirect, to which no flow is new.
pub fn run(run: &mut Run, experiment: &Experiment) -> Result<()> {
    let flows = if run.plan.full { 1 << 16 } else { 1 << 14 };
    let task = |metric, unit, work: Measure<'static>| Task {
        asked: Asked { parameters: Parameters::new(), metric, unit, wide: WIDE },
        rules: None,
        turns: 1,
        work,
    };
    let tasks = [
        task("new flows", "/s", Box::new(move |s| rate(s, flows))),
        task("CPU of the daemon for a new flow", "µs", Box::new(move |s| cost(s, flows))),
        task(
            "first packet",
            "µs",
            Box::new(|s| {
                forget(s)?;
                Ok(Series(begin(s, SINGLE, 1)?.delays).median())
            }),
        ),
        task("later packet", "µs", Box::new(|s| Ok(Series(begin(s, SINGLE, 1)?.delays).median()))),
    ];
    let cpus = run.cpus;
    let make = move |system| prepared(Setting::make(system, cpus, Rules::Destinations(flows))?);
    let systems = [vec![System::BareTc], with_rules()].concat();
    run.compare(experiment, &systems, Some(System::BareTc), &make, &tasks);
    Ok(())
}

/// Flows that begin in a second.
fn rate(setting: &Setting, flows: u32) -> Result<f64> {
    forget(setting)?;
    let taken = begin(setting, flows, WINDOW)?;
    are_there(setting, flows)?;
    Ok(taken.delays.len() as f64 / taken.time.as_secs_f64())
}

/// CPU time of all threads of the daemon for each flow, in microseconds.
fn cost(setting: &Setting, flows: u32) -> Result<f64> {
    let pid = *setting.peer.daemons().first().context("there is no daemon")?;
    forget(setting)?;
    let before = of_process(pid)?;
    let taken = begin(setting, flows, WINDOW)?;
    let used = of_process(pid)?.saturating_sub(before);
    are_there(setting, flows)?;
    Ok(used.as_secs_f64() * 1e6 / taken.delays.len() as f64)
}

/// Sees to it that flows have megaflows, where there are any: packets that pass without say nothing of
/// how long it takes to make them.
///
/// # Errors
/// When too many have none.
pub fn are_there(setting: &Setting, flows: u32) -> Result<()> {
    let mut there = setting.peer.megaflows();
    wait_until(COUNTED, || {
        there = setting.peer.megaflows();
        there.is_none_or(|there| there * 100 >= u64::from(flows) * MOST)
    });
    match there {
        Some(there) if there * 100 < u64::from(flows) * MOST => {
            bail!("only {there} of {flows} flows have a megaflow when all have begun")
        }
        _ => Ok(()),
    }
}

/// The server takes what is for any of the destinations, each flow is to have a megaflow, and
/// checksums pass.
pub fn prepared(setting: Setting) -> Result<Setting> {
    let setting = setting.with_tcp()?;
    if let Some(switch) = setting.peer.switch() {
        switch.vsctl(ALL_MISSES);
    }
    let server = setting.ends.address;
    sh(&setting.ends.client, &format!("ip route add {DESTINATIONS} via {server}"))?;
    sh(&setting.ends.server, &format!("ip route add local {DESTINATIONS} dev lo"))?;
    // The neighbour is known, and the switch knows both ways.
    begin(&setting, 1, 1)?;
    Ok(setting)
}

/// Removes all megaflows, where there are any.
///
/// # Errors
/// When the daemon refuses.
pub fn forget(setting: &Setting) -> Result<()> {
    let Some(switch) = setting.peer.switch() else { return Ok(()) };
    let output = switch.sh("ovs-appctl revalidator/purge");
    ensure!(output.ok(), "revalidator/purge: {}", output.text().trim());
    Ok(())
}

/// Sends one datagram of each of the first so many flows.
///
/// # Errors
/// When too many are lost.
pub fn begin(setting: &Setting, flows: u32, window: u32) -> Result<Taken> {
    misses(&setting.ends, Misses { first: destination(0), flows, window })
}

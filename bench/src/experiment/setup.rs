//! Flow set-up: new flows a second, and what a first packet takes.

use super::{Asked, Measure, Run, Task, with_rules};
use crate::catalogue::Experiment;
use crate::ends::{Misses, Taken, misses};
use crate::measure::Series;
use crate::netns::run as sh;
use crate::peer::{DESTINATIONS, Rules, destination};
use crate::point::Parameters;
use crate::setting::Setting;
use anyhow::{Result, ensure};

/// Scatter (MAD over median) that is too wide.
const WIDE: f64 = 0.10;
/// Flows that begin together.
const BURST: u32 = 32;
/// Flows that begin one at a time in a round.
const SINGLE: u32 = 500;

/// Measures.
pub fn run(run: &mut Run, experiment: &Experiment) -> Result<()> {
    let flows = if run.plan.full { 1 << 16 } else { 1 << 14 };
    let task = |metric, unit, work: Measure<'static>| Task {
        asked: Asked { parameters: Parameters::new(), metric, unit, wide: WIDE },
        work,
    };
    let tasks = [
        task(
            "new flows",
            "/s",
            Box::new(move |s| {
                forget(s)?;
                let taken = begin(s, flows, BURST)?;
                let began = taken.bursts.len() as f64 * f64::from(BURST);
                Ok(began / taken.time.as_secs_f64())
            }),
        ),
        task(
            "first packet",
            "µs",
            Box::new(|s| {
                forget(s)?;
                Ok(Series(begin(s, SINGLE, 1)?.bursts).median())
            }),
        ),
        task("later packet", "µs", Box::new(|s| Ok(Series(begin(s, SINGLE, 1)?.bursts).median()))),
    ];
    let cpus = run.cpus;
    let make = move |system| prepared(Setting::make(system, cpus, Rules::Destinations(flows))?);
    run.compare(experiment, &with_rules(), None, &make, &tasks);
    Ok(())
}

/// The server takes what is for any of the destinations, and checksums pass.
pub fn prepared(setting: Setting) -> Result<Setting> {
    let setting = setting.with_tcp()?;
    let server = setting.ends.address;
    sh(&setting.ends.client, &format!("ip route add {DESTINATIONS} via {server}"))?;
    sh(&setting.ends.server, &format!("ip route add local {DESTINATIONS} dev lo"))?;
    // The neighbour is known, and the switch knows both ways.
    begin(&setting, 1, 1)?;
    Ok(setting)
}

/// Removes all megaflows.
///
/// # Errors
/// When the system has no daemon, or that refuses.
pub fn forget(setting: &Setting) -> Result<()> {
    let switch = setting.switch()?;
    let output = switch.sh("ovs-appctl revalidator/purge");
    ensure!(output.ok(), "revalidator/purge: {}", output.text().trim());
    Ok(())
}

/// Sends one datagram of each of the first so many flows.
///
/// # Errors
/// When too many are lost.
pub fn begin(setting: &Setting, flows: u32, burst: u32) -> Result<Taken> {
    misses(&setting.ends, Misses { first: destination(0), flows, burst })
}

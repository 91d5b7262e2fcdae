// SPDX-License-Identifier: Apache-2.0
//! Packets that a restart of the daemon costs.

use super::{Asked, Run, with_rules};
use crate::catalogue::Experiment;
use crate::ends::{Flood, paced};
use crate::measure::Series;
use crate::peer::{Rules, System};
use crate::point::Parameters;
use crate::setting::Setting;
use anyhow::{Context, Result, ensure};
use slipswitch_tests::harness::wait_until;
use std::thread;
use std::time::Duration;

/// Datagrams in a millisecond.
const BURST: u64 = 10;
/// Traffic before and after.
const QUIET: Duration = Duration::from_secs(1);
/// Times that a second without a restart is looked at.
const TRIES: u32 = 3;
/// Until the daemon listens again.
const PATIENCE: Duration = Duration::from_secs(20);

/// Measures.
pub fn run(run: &mut Run, experiment: &Experiment) -> Result<()> {
    // Losses are counted, so how far they scatter is a result and no fault.
    let wide = f64::INFINITY;
    let asked = |metric, unit| Asked { parameters: Parameters::new(), metric, unit, wide };
    let asked = [asked("packets lost", "packets"), asked("longest delay", "ms")];
    run.each(experiment, &with_rules(), &asked, &restarts);
    Ok(())
}

/// Packets lost, and the milliseconds that the slowest was on its way, of each restart.
fn restarts(run: &mut Run, system: System) -> Result<Vec<Series>> {
    let mut setting = Setting::make(system, run.cpus, Rules::Normal)?.with_tcp()?;
    run.describe(&setting);
    let mut series = vec![Series::default(); 2];
    restart(&mut setting)?; // settings of table sizes take effect at a start
    let lost = undisturbed(&setting)?;
    ensure!(lost == 0, "{lost} are lost in a second without a restart");
    for _ in 0..run.plan.at_most(if run.plan.full { 3 } else { 2 }).repeat {
        let ends = setting.ends.clone();
        let (outcome, ()) = paced(&ends, Flood { burst: BURST }, || {
            thread::sleep(QUIET);
            restart(&mut setting)?;
            thread::sleep(QUIET);
            Ok(())
        })?;
        let delay = outcome.delay.as_secs_f64() * 1e3;
        series.iter_mut().zip([outcome.lost as f64, delay]).for_each(|(s, f)| s.0.push(f));
    }
    Ok(series)
}

/// What is lost in a second without a restart, at least: if that is not 0, the figure would not
/// be the restart's.
fn undisturbed(setting: &Setting) -> Result<u64> {
    let mut least = u64::MAX;
    for _ in 0..TRIES {
        let flood = Flood { burst: BURST };
        let (outcome, ()) = paced(&setting.ends, flood, || {
            thread::sleep(QUIET);
            Ok(())
        })?;
        least = least.min(outcome.lost);
        if least == 0 {
            break;
        }
    }
    Ok(least)
}

/// As Open vSwitch's own scripts do it.
fn restart(setting: &mut Setting) -> Result<()> {
    let switch = setting.peer.switch_mut().context("this system has no daemon")?;
    switch.vsctl("set Open_vSwitch . other_config:flow-restore-wait=true");
    switch.appctl("exit");
    ensure!(switch.wait_for_end() == Some(0), "the daemon does not end as it should");
    switch.start_daemon();
    let listens = wait_until(PATIENCE, || switch.sh("ovs-ofctl show br0").ok());
    ensure!(listens, "the daemon does not listen after its restart");
    setting.peer.restore(Rules::Normal)?;
    setting.switch()?.vsctl("--no-wait remove Open_vSwitch . other_config flow-restore-wait");
    Ok(())
}

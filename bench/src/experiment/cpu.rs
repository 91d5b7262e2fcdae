// SPDX-License-Identifier: Apache-2.0
//! CPU that a daemon uses, without traffic and under traffic of many flows.

use super::setup::prepared;
use super::{Asked, Group, Run, subject, with_rules};
use crate::catalogue::Experiment;
use crate::cpu_time::of_process;
use crate::ends::steady;
use crate::measure::Series;
use crate::peer::{Rules, destination};
use crate::point::Parameters;
use crate::setting::Setting;
use anyhow::{Context, Result, anyhow};
use std::slice;
use std::thread;
use std::time::{Duration, Instant};

/// Flows, with a rule each.
const FLOWS: u32 = 10_000;
/// Datagrams in a millisecond.
const BURST: u32 = 20;
/// After the last change, until the daemon has done what it puts off.
const QUIET: Duration = Duration::from_secs(3);
/// After the last packet, until megaflows are gone (10 s) and the daemon has acted on that.
const IDLE: Duration = Duration::from_secs(18);
/// Megaflows that nobody meets go as soon as they do by default: as long as there are any, daemons
/// have to look at them.
const GO: &str = "set Open_vSwitch . other_config:max-idle=10000";
/// Daemons tell the database of statistics as often.
const SPAN: Duration = Duration::from_secs(5);

/// What is measured.
const METRICS: [&str; 2] = ["CPU, idle", "CPU, 10K flows"];
const UNIT: &str = "%";

/// Measures.
pub fn run(run: &mut Run, experiment: &Experiment) -> Result<()> {
    let cpus = run.cpus;
    let make = move |system| {
        let setting = prepared(Setting::make(system, cpus, Rules::Destinations(FLOWS))?)?;
        setting.switch()?.vsctl(GO);
        Ok(setting)
    };
    run.in_groups(&with_rules(), &make, &mut |run, group| match group {
        Group::Ready(settings) => all(run, experiment, &settings),
        Group::Failed(system, why) => METRICS.into_iter().for_each(|metric| {
            // A daemon does its work now and then, so short looks at it scatter.
            let wide = f64::INFINITY;
            let asked = Asked { parameters: Parameters::new(), metric, unit: UNIT, wide };
            run.absent(experiment, system, &asked, &why);
        }),
    });
    Ok(())
}

/// Looks at daemons: together while they have nothing to do, one after the other under traffic.
fn all(run: &mut Run, experiment: &Experiment, settings: &[Setting]) {
    settings.iter().for_each(|setting| run.describe(setting));
    // What a thread that polls has to do beside is nothing.
    let polls = settings.iter().any(|setting| run.pollers.contains(&setting.system));
    thread::sleep(if polls { QUIET } else { IDLE });
    // One look is too few to judge by: what a daemon does now and then falls into it or not.
    let samples = run.plan.at_most(3).repeat;
    let mut idle = look(settings, samples).map(Vec::into_iter);
    for setting in settings {
        let idle = match &mut idle {
            Ok(series) => series.next().context("a daemon that was not looked at"),
            Err(e) => Err(anyhow!("{e:#}")),
        };
        run.progress.say(&format!("{} under traffic", setting.system.name()));
        let busy = crate::attempt(|| under_traffic(setting, samples));
        for (metric, series) in METRICS.into_iter().zip([idle, busy]) {
            let subject = subject(experiment, setting.system, Parameters::new());
            run.add(match series {
                Ok(series) => subject.point(metric, UNIT, &series),
                Err(e) => subject.absent(metric, UNIT, &format!("{e:#}")),
            });
        }
    }
}

fn under_traffic(setting: &Setting, samples: u32) -> Result<Series> {
    steady(&setting.ends, destination(0), FLOWS, BURST, || {
        thread::sleep(QUIET);
        look(slice::from_ref(setting), samples)?.pop().context("no daemon")
    })
}

/// Percent of one CPU that all threads of each daemon use during [`SPAN`], several times.
fn look(settings: &[Setting], samples: u32) -> Result<Vec<Series>> {
    let daemon = |setting: &Setting| setting.peer.daemons().first().copied().context("no daemon");
    let daemons: Vec<u32> = settings.iter().map(daemon).collect::<Result<_>>()?;
    let used = || -> Result<Vec<(Instant, Duration)>> {
        daemons.iter().map(|pid| Ok((Instant::now(), of_process(*pid)?))).collect()
    };
    let mut series = vec![Series::default(); daemons.len()];
    for _ in 0..samples {
        let before = used()?;
        thread::sleep(SPAN);
        for ((series, before), after) in series.iter_mut().zip(before).zip(used()?) {
            let share = after.1.saturating_sub(before.1).as_secs_f64();
            series.0.push(share / (after.0 - before.0).as_secs_f64() * 100.0);
        }
    }
    Ok(series)
}

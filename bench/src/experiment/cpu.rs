// SPDX-License-Identifier: Apache-2.0
//! CPU that a daemon uses, without traffic and with traffic of many flows.

use super::setup::prepared;
use super::{Experiment, Run, with_rules};
use crate::attempt::attempt;
use crate::cpu_time::of_process;
use crate::endpoints::udp::steady;
use crate::host_testbed::HostTestbed;
use crate::measure::Series;
use crate::point::{Metric, Parameters};
use crate::rules::Rules;
use anyhow::{Context, Result, anyhow};
use std::slice;
use std::thread;
use std::time::{Duration, Instant};

/// The experiment.
pub const CPU: Experiment = Experiment {
    name: "cpu",
    title: "CPU that the daemon uses",
    about: "CPU time of all threads of the daemon, as the scheduler counts it, in percent of one \
            CPU: idle, and with traffic of 10,000 flows with a rule each. Idle megaflows are \
            removed after 10 s, the default. Daemons that do not poll are idle at the same time, \
            and have traffic one after the other.",
    repeats: "*OVS Kernel Datapath Offload at 100GbE* (Chelsio T6), %CPU against the number of \
              flows: 0.34 % at 10k",
    seconds: [100, 200],
    run,
    ..Experiment::BASE
};

/// Flows, with a rule each.
const FLOWS: u32 = 10_000;
/// Datagrams in a millisecond.
const BURST: u32 = 20;
/// After the last change, until the daemon has done the work that it delays.
const QUIET: Duration = Duration::from_secs(3);
/// After the last packet, until idle megaflows are removed (10 s) and the daemon has acted on that.
const IDLE: Duration = Duration::from_secs(18);
/// The default: as long as there are megaflows, daemons have to check them.
const MAX_IDLE: &str = "set Open_vSwitch . other_config:max-idle=10000";
/// The interval at which daemons write statistics to the database.
const SPAN: Duration = Duration::from_secs(5);
/// A daemon works now and then, so short spans scatter without meaning.
const METRICS: [Metric; 2] = [
    Metric::new("CPU, idle", "%", f64::INFINITY),
    Metric::new("CPU, 10K flows", "%", f64::INFINITY),
];

fn run(run: &mut Run) -> Result<()> {
    let cpus = run.cpus;
    let make = move |system| {
        let testbed = prepared(HostTestbed::new(system, cpus, Rules::Destinations(FLOWS))?)?;
        testbed.switch()?.vsctl(MAX_IDLE);
        Ok(testbed)
    };
    run.in_groups(&with_rules(), &make, &mut |run, group| match group {
        Ok(testbeds) => all(run, &testbeds),
        Err((system, why)) => run.absent(system, &Parameters::new(), &METRICS, &why),
    });
    Ok(())
}

/// Observes daemons: together while they are idle, one after the other under traffic.
fn all(run: &mut Run, testbeds: &[HostTestbed]) {
    // A thread that polls is never idle.
    let polls = testbeds.iter().any(|testbed| run.pollers.contains(&testbed.system));
    thread::sleep(if polls { QUIET } else { IDLE });
    let samples = run.plan.at_most(3).rounds;
    let idle = observe(testbeds, samples);
    for (number, testbed) in testbeds.iter().enumerate() {
        let idle = idle.as_ref().map(|all| all[number].clone()).map_err(|e| anyhow!("{e:#}"));
        run.progress.say(&format!("{} under traffic", testbed.system.name()));
        let busy = attempt(|| under_traffic(testbed, samples));
        let subject = run.subject(testbed.system.name(), Parameters::new());
        for (metric, series) in METRICS.iter().zip([idle, busy]) {
            run.add(match series {
                Ok(series) => subject.point(metric, &series),
                Err(e) => subject.absent(metric, &format!("{e:#}")),
            });
        }
    }
}

fn under_traffic(testbed: &HostTestbed, samples: u32) -> Result<Series> {
    steady(&testbed.endpoints, FLOWS, BURST, || {
        thread::sleep(QUIET);
        observe(slice::from_ref(testbed), samples)?.pop().context("no daemon")
    })
}

/// Percent of one CPU that all threads of each daemon use during [`SPAN`], several times.
fn observe(testbeds: &[HostTestbed], samples: u32) -> Result<Vec<Series>> {
    let daemon = |testbed: &HostTestbed| testbed.instance.daemons().first().copied();
    let daemons: Option<Vec<u32>> = testbeds.iter().map(daemon).collect();
    let daemons = daemons.context("no daemon")?;
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

//! CPU that a daemon uses, without traffic and under traffic of many flows.

use super::setup::prepared;
use super::{Asked, Run, with_rules};
use crate::catalogue::Experiment;
use crate::cpu_time::of_process;
use crate::ends::steady;
use crate::measure::Series;
use crate::peer::{Rules, System, destination};
use crate::point::Parameters;
use crate::setting::Setting;
use anyhow::{Context, Result};
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
/// Daemons tell the database of statistics as often.
const SPAN: Duration = Duration::from_secs(5);

/// Measures.
pub fn run(run: &mut Run, experiment: &Experiment) -> Result<()> {
    // A daemon does its work now and then, so short looks at it scatter.
    let wide = f64::INFINITY;
    let asked = |metric| Asked { parameters: Parameters::new(), metric, unit: "%", wide };
    run.each(experiment, &with_rules(), &[asked("CPU, idle"), asked("CPU, 10K flows")], &both);
    Ok(())
}

fn both(run: &mut Run, system: System) -> Result<Vec<Series>> {
    let setting = prepared(Setting::make(system, run.cpus, Rules::Destinations(FLOWS))?)?;
    run.describe(&setting);
    let look = look(run, &setting)?;
    thread::sleep(IDLE);
    let idle = look()?;
    let busy = steady(&setting.ends, destination(0), FLOWS, BURST, || {
        thread::sleep(QUIET);
        look()
    })?;
    Ok(vec![idle, busy])
}

/// Looks at the daemon's CPU time, several times.
fn look(run: &Run, setting: &Setting) -> Result<impl Fn() -> Result<Series> + use<>> {
    let pid = *setting.peer.daemons().first().context("no daemon")?;
    let samples = run.plan.repeat.min(if run.plan.full { 3 } else { 1 });
    Ok(move || {
        let series: Result<Vec<f64>> = (0..samples).map(|_| usage(pid, SPAN)).collect();
        Ok(Series(series?))
    })
}

/// Percent of one CPU that all threads of a process use during `span`.
fn usage(pid: u32, span: Duration) -> Result<f64> {
    let (begin, before) = (Instant::now(), of_process(pid)?);
    thread::sleep(span);
    let used = of_process(pid)?.saturating_sub(before);
    Ok(used.as_secs_f64() / begin.elapsed().as_secs_f64() * 100.0)
}

// SPDX-License-Identifier: Apache-2.0
//! Two containers that talk by TCP.

use super::{Asked, Run, Task, parameter};
use crate::catalogue::Experiment;
use crate::ends::{bulk, connections, echo as exchange, echo_rounds, requests};
use crate::measure::{TURN, turns_in};
use crate::peer::{Rules, System};
use crate::point::Parameters;
use crate::setting::Setting;
use anyhow::Result;
use std::time::Duration;

/// Scatter (MAD over median) that is too wide.
const WIDE: f64 = 0.05;
/// Exchanges of a size that begin later than this are left out in the short run.
const SHORT: Duration = Duration::from_millis(200);
/// In the full run all fifty begin.
const LONG: Duration = Duration::from_secs(60);

fn between_hosts() -> Vec<System> {
    System::ALL.into_iter().filter(|s| s.serves_hosts()).collect()
}

/// (d): echo.
pub fn echo(run: &mut Run, experiment: &Experiment) -> Result<()> {
    let full = run.plan.full;
    // 16 B to 16 MiB: factors of 4 in the full run, of 32 else.
    let step = if full { 2 } else { 5 };
    let sizes = (4..=24).step_by(step).map(|bits| 1usize << bits);
    let limit = if full { LONG } else { SHORT };
    let task = |size: usize| Task {
        asked: Asked {
            parameters: parameter("bytes", size as u64),
            metric: "time of an echo",
            unit: "µs",
            wide: WIDE,
        },
        rules: None,
        turns: 1,
        work: Box::new(move |s: &Setting| exchange(&s.ends, size, echo_rounds(), limit)),
    };
    let tasks: Vec<Task<'_>> = sizes.map(task).collect();
    let cpus = run.cpus;
    let make = move |system| Setting::make(system, cpus, Rules::Normal)?.with_tcp();
    run.compare(experiment, &between_hosts(), Some(System::BareTc), &make, &tasks);
    Ok(())
}

/// Throughput, requests, connections.
pub fn tcp(run: &mut Run, experiment: &Experiment) -> Result<()> {
    let turns = turns_in(run.plan.window());
    let cpus = run.cpus;
    let task = |metric, unit, rules, work: fn(&Setting, Duration) -> Result<f64>| Task {
        asked: Asked { parameters: Parameters::new(), metric, unit, wide: WIDE },
        rules,
        turns,
        work: Box::new(move |s: &Setting| work(s, TURN)),
    };
    let by_connection = Some(Rules::PerConnection);
    let tasks = [
        task("throughput", "Gbit/s", None, |s, window| bulk(&s.ends, window)),
        task("requests", "/s", None, |s, window| requests(&s.ends, window)),
        task("connections", "/s", None, |s, window| connections(&s.ends, window)),
        task("connections, megaflows for each", "/s", by_connection, |s, window| {
            connections(&s.ends, window)
        }),
    ];
    let make = move |system| Setting::make(system, cpus, Rules::Normal)?.with_tcp();
    run.compare(experiment, &between_hosts(), Some(System::BareTc), &make, &tasks);
    Ok(())
}

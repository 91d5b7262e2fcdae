// SPDX-License-Identifier: Apache-2.0
//! How long a pass over all megaflows takes.

use super::setup::{begin, ensure_megaflows, prepared};
use super::{Experiment, NO_FRAMES, Run, Task, with_rules};
use crate::host_testbed::HostTestbed;
use crate::point::{Metric, parameters};
use crate::rules::Rules;
use crate::system::vswitch::number_after;
use anyhow::{Context, Result};

/// The experiment.
pub const SWEEP: Experiment = Experiment {
    name: "sweep",
    title: "Collecting statistics",
    about: "The duration of one pass over all megaflows, which reads their statistics, credits \
            the rules and checks that each megaflow is still valid: the dump duration of \
            `ovs-appctl upcall/show`, in whole milliseconds. Megaflows are made as above.",
    repeats: "none of the papers' tables",
    shown: &[],
    long: false,
    across: Some("megaflows"),
    more: "16,384 megaflows, too",
    why: &[],
    seconds: [35, 120],
    frames: NO_FRAMES,
    run,
};

const ALL: [u32; 2] = [1 << 14, 1 << 16];
const SOME: [u32; 1] = [1 << 16];
/// Most datagrams that are in flight.
const IN_FLIGHT: u32 = 32;

fn run(run: &mut Run) -> Result<()> {
    let numbers: &[u32] = if run.plan.full { &ALL } else { &SOME };
    let cpus = run.cpus;
    for flows in numbers.iter().copied() {
        let task = Task {
            metric: Metric { name: "a pass over all megaflows", unit: "ms", max_scatter: 0.15 },
            parameters: parameters([("megaflows", flows.into())]),
            rules: None,
            turns: 1,
            work: Box::new(move |testbed: &HostTestbed| pass(testbed, flows)),
        };
        let make =
            move |system| prepared(HostTestbed::new(system, cpus, Rules::Destinations(flows))?);
        run.compare(&with_rules(), None, &make, &[task]);
    }
    Ok(())
}

/// Milliseconds of the last pass, when all megaflows are there.
fn pass(testbed: &HostTestbed, flows: u32) -> Result<f64> {
    let switch = testbed.switch()?;
    // Gives each megaflow statistics to credit.
    begin(testbed, flows, IN_FLIGHT)?;
    ensure_megaflows(testbed, flows)?;
    switch.appctl("revalidator/wait");
    let text = switch.appctl("upcall/show");
    let duration = number_after(&text, "dump duration :");
    Ok(duration.context("upcall/show has no dump duration")? as f64)
}

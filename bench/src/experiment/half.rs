// SPDX-License-Identifier: Apache-2.0
//! Latency at half of OVS-DPDK's rate.

use super::frames::cases::Case;
use super::frames::{latency, warm_up};
use super::{Experiment, Run};
use crate::attempt::attempt;
use crate::generator::Stream;
use crate::measure::Series;
use crate::pin::Cpus;
use crate::point::Parameters;
use crate::rules::Rules;
use crate::system::System;
use crate::testbed::{Testbed, Way};
use crate::topology::Remote;
use anyhow::{Context, Result, anyhow};
use std::time::Duration;

/// The experiment.
pub const HALF: Experiment = Experiment {
    name: "half",
    title: "Latency at half of OVS-DPDK's rate",
    about: "The smallest frames of one flow between cards, at an even pace: half of the rate that \
            OVS-DPDK reaches in this run. The notes below have the number of frames, if it is \
            known.",
    repeats: "*Virtual Switch Acceleration with OVS-TC*, 2.5 times lower latency than OVS-DPDK",
    shown: &["latency p50", "latency p99"],
    seconds: [33, 65],
    run,
    ..Experiment::BASE
};

/// The system whose rate is halved.
const REFERENCE: System = System::OvsDpdk;
/// The number of windows whose median rate counts.
const WINDOWS: u32 = 3;
const WINDOW: Duration = Duration::from_millis(300);

fn run(run: &mut Run) -> Result<()> {
    let subject = (HALF.name, Parameters::new());
    let case = Case { latency: true, ..Case::new(subject, 1, Rules::OneToOne(1)) };
    run.progress.say(&format!("the rate of {}", REFERENCE.name()));
    let rate = attempt(|| half_of_reference(&case, run.cpus));
    for system in run.systems.clone().into_iter().filter(|system| case.suits(*system)) {
        run.progress.say(&format!("starting {}", system.name()));
        let subject = case.subject(system.name());
        let points = attempt(|| {
            let rate = rate.as_ref().map_err(|e| anyhow!("{e:#}"))?;
            let testbed = warm(system, &case, run.cpus)?;
            run.describe(system, &*testbed.instance);
            Ok(latency::measure(&testbed, None, &case, &subject, *rate, run.plan).points)
        });
        match points {
            Ok(points) => points.into_iter().for_each(|point| run.add(point)),
            Err(e) => run.absent(system, &subject.parameters, &latency::METRICS[..3], &e),
        }
    }
    if let Ok(rate) = rate {
        run.results.add_note(format!("{}: {rate} frames a second.", run.experiment.title));
    }
    Ok(())
}

/// Half of the reference's rate, in frames a second.
fn half_of_reference(case: &Case, cpus: Cpus) -> Result<u32> {
    let why = || format!("the rate of {} is not known", REFERENCE.name());
    let testbed = warm(REFERENCE, case, cpus).with_context(why)?;
    let traffic = testbed.traffic(Stream::flood(case.flows));
    let rates: Result<Vec<f64>> =
        (0..WINDOWS).map(|_| Ok(traffic.measure(WINDOW)?.mpps())).collect();
    Ok((Series(rates.with_context(why)?).median() * 1e6 / 2.0) as u32)
}

/// A system that has the case's megaflows.
fn warm(system: System, case: &Case, cpus: Cpus) -> Result<Testbed> {
    let mut testbed = Testbed::new(system, Remote::Card, cpus)?;
    warm_up::warm_up(&mut testbed, case)?;
    Ok(testbed)
}

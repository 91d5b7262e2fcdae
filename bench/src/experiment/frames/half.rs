// SPDX-License-Identifier: Apache-2.0
//! Latency where OVS-DPDK has half of what it can do.

use super::cases::{self, Case, Layout};
use super::{delay, ready};
use crate::bed::Bed;
use crate::catalogue::Experiment;
use crate::experiment::{Run, subject};
use crate::generator::Stream;
use crate::measure::Series;
use crate::peer::System;
use crate::pin::Cpus;
use crate::topology::Far;
use anyhow::{Context, Result};
use std::time::Duration;

/// Whose rate is halved.
const REFERENCE: System = System::OvsDpdk;
/// Its rate is the median of so many looks.
const LOOKS: u32 = 3;
const WINDOW: Duration = Duration::from_millis(300);

/// (c): latency at half of OVS-DPDK's rate.
pub fn half(run: &mut Run, experiment: &Experiment) -> Result<()> {
    let layout = cases::half();
    let Some(case) = layout.cases.first() else { return Ok(()) };
    run.progress.say(&format!("the rate of {}", REFERENCE.name()));
    let rate = match known(run, case) {
        Some(rate) => Ok(rate),
        None => crate::attempt(|| best(&layout, case, run.cpus)),
    };
    for system in run.systems.clone() {
        run.progress.say(&format!("starting {}", system.name()));
        let subject = subject(experiment, system, case.parameters.clone());
        let points = crate::attempt(|| {
            let rate = rate.as_ref().map_err(|e| anyhow::anyhow!("{e:#}"))?;
            let bed = met(system, &layout, case, run.cpus)?;
            run.results
                .systems
                .entry(system.name().to_owned())
                .or_insert_with(|| bed.peer.settings());
            Ok(delay::measure(&bed, None, case, &subject, *rate, run.plan).0)
        });
        match points {
            Ok(points) => points.into_iter().for_each(|point| run.add(point)),
            Err(e) => {
                for (_, metric) in delay::QUANTILES {
                    run.add(subject.absent(metric, delay::UNIT, &format!("{e:#}")));
                }
            }
        }
    }
    if let Ok(rate) = rate {
        let title = experiment.title;
        run.results.note(format!("{title}: {rate} frames a second."));
    }
    Ok(())
}

/// The same when it was measured already.
fn known(run: &Run, case: &Case) -> Option<u32> {
    let measured = run.known.find(REFERENCE, Far::Card, case)?;
    let rate = measured.points.iter().find(|p| p.metric == super::rate::METRIC)?.median?;
    Some((rate * 1e6 / 2.0) as u32)
}

/// Half of the frames a second that the reference moves.
fn best(layout: &Layout, case: &Case, cpus: Cpus) -> Result<u32> {
    let why = || format!("the rate of {} is not known", REFERENCE.name());
    let bed = met(REFERENCE, layout, case, cpus).with_context(why)?;
    let traffic = bed.traffic(Stream::flood(case.flows));
    let looks: Result<Vec<f64>> = (0..LOOKS).map(|_| Ok(traffic.measure(WINDOW)?.mpps())).collect();
    Ok((Series(looks.with_context(why)?).median() * 1e6 / 2.0) as u32)
}

/// A system that has met the case's flows.
fn met(system: System, layout: &Layout, case: &Case, cpus: Cpus) -> Result<Bed> {
    let mut bed = Bed::new(system, layout.receiver, cpus)?;
    ready::ready(&mut bed, case)?;
    Ok(bed)
}

// SPDX-License-Identifier: Apache-2.0
//! TCP between two ports while a third floods the switch.
//!
//! What the flood costs by being sent is not the switch's doing: it takes CPU from the two that
//! talk, too. So each flood is compared with the same packets while one flow drops them.

use super::setup::forget;
use super::{Asked, Run, subject};
use crate::catalogue::Experiment;
use crate::cpu_time::of_process;
use crate::ends::bulk;
use crate::flooder::Flooder;
use crate::measure::{Contender, Sample, Stand, stands};
use crate::peer::{Rules, System, Third, Tier};
use crate::point::{Parameters, Point};
use crate::setting::Setting;
use anyhow::{Context, Result};
use std::cell::RefCell;
use std::thread;
use std::time::{Duration, Instant};

/// Systems whose ports are plain veth pairs and whose daemon does not poll: it would take the
/// receiver's CPU.
const SYSTEMS: [System; 3] =
    [System::OvsAfPacket, System::Slipswitch(Tier::Tcx), System::Slipswitch(Tier::Userspace)];
/// What comes from the third port; `None` for nothing.
const FLOODS: [Option<Third>; 4] =
    [None, Some(Third::Dropped), Some(Third::Flows), Some(Third::Masks)];
/// Scatter (MAD over median) that is too wide.
const WIDE: f64 = 0.15;
/// From the beginning of a flood until what a port has saved up is spent.
const ONSET: Duration = Duration::from_secs(4);

/// A metric: its name, its unit, and its number in a sample.
type Metric = (&'static str, &'static str, fn(&Beside) -> f64);

const METRICS: [Metric; 4] = [
    ("throughput", "Gbit/s", |s| s.gbits),
    ("CPU of the daemon", "%", |s| s.cpu),
    ("packets of the flood", "Mpps", |s| s.mpps),
    ("megaflows", "megaflows", |s| s.megaflows),
];

/// What one measurement gave.
#[derive(Clone, Debug)]
struct Beside {
    gbits: f64,
    cpu: f64,
    mpps: f64,
    megaflows: f64,
}

impl Sample for Beside {
    fn value(&self) -> f64 {
        self.gbits
    }
}

/// Measures.
pub fn run(run: &mut Run, experiment: &Experiment) -> Result<()> {
    let systems: Vec<System> = SYSTEMS.into_iter().filter(|s| run.systems.contains(s)).collect();
    for system in systems {
        run.progress.say(&format!("starting {}", system.name()));
        let made = crate::attempt(|| {
            let make = Setting::make(system, run.cpus, Rules::Normal);
            make?.with_tcp()?.with_third()
        });
        let result = made.and_then(|setting| floods(run, experiment, setting));
        if let Err(e) = result {
            FLOODS.into_iter().for_each(|flood| absent(run, experiment, system, flood, &e));
        }
    }
    Ok(())
}

/// All floods in turn through one system.
fn floods(run: &mut Run, experiment: &Experiment, setting: Setting) -> Result<()> {
    run.describe(&setting);
    let (system, note, window) = (setting.system, setting.note.clone(), run.plan.window());
    let setting = RefCell::new(setting);
    let once = |flood| crate::attempt(|| beside(&mut setting.borrow_mut(), flood, window));
    // A flood that silences the connection does not hold up the others.
    let mut able = Vec::new();
    for flood in FLOODS {
        match once(flood) {
            Ok(_) => able.push(flood),
            Err(e) => absent(run, experiment, system, flood, &e),
        }
    }
    let once = &once;
    let mut contenders: Vec<Contender<'_, Beside>> = Vec::new();
    for flood in able.iter().copied() {
        contenders.push(Box::new(move || once(flood)));
    }
    let dropped = able.iter().position(|f| *f == Some(Third::Dropped));
    match stands(run.plan, 1, WIDE, dropped, &mut contenders) {
        Ok(stands) => {
            for mut point in points(experiment, system, &able, &stands) {
                point.note.clone_from(&note);
                run.add(point);
            }
        }
        Err(e) => able.iter().for_each(|flood| absent(run, experiment, system, *flood, &e)),
    }
    Ok(())
}

/// The points of floods that took turns.
fn points(
    experiment: &Experiment,
    system: System,
    floods: &[Option<Third>],
    stands: &[Stand<Beside>],
) -> Vec<Point> {
    let mut points = Vec::new();
    for (flood, stand) in floods.iter().zip(stands) {
        let subject = subject(experiment, system, parameters(*flood));
        let unsteady = stand.series(Sample::value).scatter() > WIDE;
        for (metric, unit, figure) in METRICS {
            let point = subject.point(metric, unit, &stand.series(figure));
            let point = Point { taken: stand.taken, unsteady, ..point };
            // Only for the throughput is there more or less than beside dropped packets.
            let is_other = metric == METRICS[0].0 && flood.is_some();
            points.push(match stand.limit(figure).filter(|_| is_other) {
                Some(dropped) => point.against(AGAINST, &dropped),
                None => point,
            });
        }
    }
    points
}

/// What throughput is compared with, in place of a system's name.
const AGAINST: &str = "that beside dropped packets";

fn absent(
    run: &mut Run,
    experiment: &Experiment,
    system: System,
    flood: Option<Third>,
    why: &anyhow::Error,
) {
    for (metric, unit, _) in METRICS {
        let asked = Asked { parameters: parameters(flood), metric, unit, wide: WIDE };
        run.absent(experiment, system, &asked, why);
    }
}

fn parameters(flood: Option<Third>) -> Parameters {
    let name = flood.map_or("none", Third::name);
    [("flood".to_owned(), name.into())].into_iter().collect()
}

/// Measures beside one flood.
fn beside(setting: &mut Setting, flood: Option<Third>, window: Duration) -> Result<Beside> {
    setting.peer.install(flood.map_or(Rules::Normal, Rules::Third))?;
    forget(setting)?;
    let cpu = setting.ends.cpus.traffic;
    let flooder = match flood {
        Some(_) => {
            let flooder = Flooder::start(setting.third()?, cpu)?;
            thread::sleep(ONSET);
            Some(flooder)
        }
        None => None,
    };
    let sent = || flooder.as_ref().map_or(0, Flooder::sent);
    let pid = *setting.peer.daemons().first().context("no daemon")?;
    let (begin, sent_before, used_before) = (Instant::now(), sent(), of_process(pid)?);
    let gbits = bulk(&setting.ends, window)?;
    let seconds = begin.elapsed().as_secs_f64();
    let (packets, used) = (sent() - sent_before, of_process(pid)?.saturating_sub(used_before));
    let megaflows = setting.peer.megaflows().context("the daemon does not count its megaflows")?;
    flooder.map_or(Ok(()), Flooder::end)?;
    Ok(Beside {
        gbits,
        cpu: used.as_secs_f64() / seconds * 100.0,
        mpps: packets as f64 / seconds / 1e6,
        megaflows: megaflows as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floods_are_compared_with_dropped_packets_of_the_same_rounds() {
        let sample = |gbits| Beside { gbits, cpu: 1.0, mpps: 1.0, megaflows: 2.0 };
        let stand = |gbits, dropped: Option<f64>| Stand {
            own: vec![sample(gbits)],
            limit: dropped.map(|gbits| vec![sample(gbits)]),
            turns: 1,
            taken: 1,
        };
        let stands = [stand(10.0, Some(8.0)), stand(8.0, None), stand(4.0, Some(8.0))];
        let system = System::Slipswitch(Tier::Tcx);
        let points = points(&crate::catalogue::FLOOD, system, &FLOODS[..3], &stands);
        assert_eq!(points.len(), 3 * METRICS.len());
        let ratios: Vec<_> =
            points.iter().filter_map(|p| Some((p.metric.as_str(), p.ratio_to.as_ref()?))).collect();
        assert_eq!(ratios.len(), 1);
        assert_eq!((ratios[0].0, ratios[0].1.median), ("throughput", 0.5));
    }
}

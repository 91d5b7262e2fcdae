// SPDX-License-Identifier: Apache-2.0
//! What OpenFlow rules cost: time to add, memory to keep.

mod answerer;

use super::{Asked, Run, of_stand, parameter};
use crate::catalogue::Experiment;
use crate::measure::{Contender, Sample, Stand, stands};
use crate::peer::{Between, Rules, System, Tier, rules_text};
use crate::pin::Cpus;
use crate::point::{Point, Subject};
use crate::report::results::ANSWERER;
use answerer::Answerer;
use anyhow::{Context, Result, ensure};
use slipswitch_tests::harness::{Place, Switch};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

const FEW: u32 = 1 << 16;
const MANY: u32 = 1 << 18;
/// One system of each daemon: where packets run has no part in this.
const DAEMONS: [System; 2] = [System::OvsAfPacket, System::Slipswitch(Tier::Tcx)];
/// How long the tool may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// After the tool has returned, until what it sent has been freed.
const QUIET: Duration = Duration::from_secs(1);
/// Scatter (MAD over median) that is too wide.
const WIDE: f64 = 0.10;
/// A file in a switch's directory.
const FILE: &str = "many.txt";

/// What adding rules once gives.
#[derive(Clone, Copy)]
struct Added {
    seconds: f64,
    /// Bytes for each rule; `None` of who keeps none.
    memory: Option<f64>,
}

impl Sample for Added {
    fn value(&self) -> f64 {
        self.seconds
    }
}

/// Measures. The limit keeps no rules.
pub fn run(run: &mut Run, experiment: &Experiment) -> Result<()> {
    let numbers: &[u32] = if run.plan.full { &[FEW, MANY] } else { &[MANY] };
    let plan = run.plan.at_most(if run.plan.full { 5 } else { 2 });
    for number in numbers.iter().copied() {
        let mut able = Vec::new();
        for system in DAEMONS.into_iter().filter(|s| run.systems.contains(s)).collect::<Vec<_>>() {
            // Who cannot do it at all does not hold up the others.
            match crate::attempt(|| by_daemon(system, run.cpus, 1)) {
                Ok(_) => able.push(system),
                Err(why) => {
                    for asked in asked(number) {
                        run.absent(experiment, system, &asked, &why);
                    }
                }
            }
        }
        let (progress, cpus) = (&run.progress, run.cpus);
        let mut contenders: Vec<Contender<'_, Added>> = vec![Box::new(|| {
            progress.say(&format!("{number} rules: {ANSWERER}"));
            crate::attempt(|| by_nobody(cpus, number))
        })];
        contenders.extend(able.iter().map(|system| {
            Box::new(move || {
                progress.say(&format!("{number} rules: {}", system.name()));
                crate::attempt(|| by_daemon(*system, cpus, number))
            }) as Contender<'_, Added>
        }));
        let stands = stands(plan, 1, WIDE, Some(0), &mut contenders)?;
        drop(contenders);
        let names = [ANSWERER].into_iter().chain(able.iter().map(|system| system.name()));
        for (name, stand) in names.zip(&stands) {
            let parameters = parameter("rules", number.into());
            let subject =
                Subject { experiment: experiment.name, system: name.to_owned(), parameters };
            points(&subject, number, stand).into_iter().for_each(|point| run.add(point));
        }
    }
    Ok(())
}

/// Time and memory.
fn asked(rules: u32) -> [Asked; 2] {
    [("time to add", "s"), ("memory of a rule", "bytes")].map(|(metric, unit)| Asked {
        parameters: parameter("rules", rules.into()),
        metric,
        unit,
        wide: WIDE,
    })
}

/// Who keeps no rules has no memory of them.
fn points(subject: &Subject, rules: u32, stand: &Stand<Added>) -> Vec<Point> {
    let [time, memory] = asked(rules);
    let mut points = vec![of_stand(subject, &time, stand, Sample::value, Some(ANSWERER))];
    let bytes: Option<Vec<f64>> = stand.own.iter().map(|added| added.memory).collect();
    if let Some(own) = bytes {
        let stand = Stand { own, limit: None, turns: 1, taken: stand.taken };
        points.push(of_stand(subject, &memory, &stand, |bytes| *bytes, None));
    }
    points
}

/// By a new daemon: memory that was freed would be used again.
fn by_daemon(system: System, cpus: Cpus, rules: u32) -> Result<Added> {
    let peer = system.start(cpus, Between::Frames)?;
    let switch = peer.switch().context("this system has no daemon")?;
    let pid = *peer.daemons().first().context("no daemon")?;
    let before = resident(pid)?;
    let seconds = add(switch.place(), cpus, "br0", rules)?;
    ensure_rules(switch, rules)?;
    thread::sleep(QUIET);
    let bytes = resident(pid)?.saturating_sub(before);
    Ok(Added { seconds, memory: Some(bytes as f64 / f64::from(rules)) })
}

/// By who keeps nothing.
fn by_nobody(cpus: Cpus, rules: u32) -> Result<Added> {
    let place = Place::new();
    let socket = place.file("answerer.mgmt");
    let _server = Answerer::start(&socket, cpus.other)?;
    let seconds = add(&place, cpus, &format!("unix:{}", socket.display()), rules)?;
    Ok(Added { seconds, memory: None })
}

/// How long the tool takes, in seconds. It has the CPU that daemons do not have.
fn add(place: &Place, cpus: Cpus, target: &str, rules: u32) -> Result<f64> {
    place.write(FILE, rules_text(Rules::OneToOne(rules)));
    let (cpu, patience) = (cpus.traffic, PATIENCE.as_secs());
    let begin = Instant::now();
    let output = place
        .sh(&format!("taskset -c {cpu} ovs-ofctl --timeout={patience} add-flows {target} {FILE}"));
    let time = begin.elapsed();
    // Before its last words the tool tells of itself.
    let words = output.text();
    ensure!(output.ok(), "ovs-ofctl: {}", words.lines().last().unwrap_or_default());
    Ok(time.as_secs_f64())
}

fn ensure_rules(switch: &Switch, rules: u32) -> Result<()> {
    let text = switch.ofctl("dump-aggregate br0");
    ensure!(text.contains(&format!("flow_count={rules}")), "not all rules are there: {text}");
    Ok(())
}

/// Bytes of memory that a process has.
fn resident(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib = line.split_whitespace().next().and_then(|n| n.parse::<u64>().ok());
    Ok(kib.context("VmRSS is no number")? << 10)
}

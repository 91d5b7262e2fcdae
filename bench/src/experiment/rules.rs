//! What OpenFlow rules cost: time to add, memory to keep.

use super::{Asked, Run, parameter};
use crate::catalogue::Experiment;
use crate::measure::Series;
use crate::peer::{Rules, System, Tier, rules_text};
use anyhow::{Context, Result, ensure};
use slipswitch_tests::harness::Switch;
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

/// Measures.
pub fn run(run: &mut Run, experiment: &Experiment) -> Result<()> {
    let numbers: &[u32] = if run.plan.full { &[FEW, MANY] } else { &[MANY] };
    let rounds = run.plan.repeat.min(if run.plan.full { 5 } else { 2 });
    for number in numbers.iter().copied() {
        let asked = |metric, unit| Asked {
            parameters: parameter("rules", number.into()),
            metric,
            unit,
            wide: WIDE,
        };
        let asked = [asked("time to add", "s"), asked("memory of a rule", "bytes")];
        run.each(experiment, &DAEMONS, &asked, &|run, system| {
            let mut series = vec![Series::default(); asked.len()];
            for _ in 0..rounds {
                // A new daemon each time: memory that was freed would be used again.
                let figures = add(system, run, number)?;
                series.iter_mut().zip(figures).for_each(|(s, figure)| s.0.push(figure));
            }
            Ok(series)
        });
    }
    Ok(())
}

/// Seconds, and bytes for each rule.
fn add(system: System, run: &Run, rules: u32) -> Result<[f64; 2]> {
    let peer = system.start(run.cpus)?;
    let switch = peer.switch().context("this system has no daemon")?;
    switch.place().write("many.txt", rules_text(Rules::OneToOne(rules)));
    let pid = *peer.daemons().first().context("no daemon")?;
    let before = resident(pid)?;
    let begin = Instant::now();
    let seconds = PATIENCE.as_secs();
    let output = switch.sh(&format!("ovs-ofctl --timeout={seconds} add-flows br0 many.txt"));
    let time = begin.elapsed().as_secs_f64();
    // Before its last words the tool tells of itself.
    let words = output.text();
    ensure!(output.ok(), "ovs-ofctl: {}", words.lines().last().unwrap_or_default());
    ensure_rules(switch, rules)?;
    thread::sleep(QUIET);
    let bytes = resident(pid)?.saturating_sub(before);
    Ok([time, bytes as f64 / f64::from(rules)])
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

// SPDX-License-Identifier: Apache-2.0
//! Cost of OpenFlow rules: time to add, memory to keep.

mod answerer;

use super::{Entry, Experiment, Run};
use crate::attempt::attempt;
use crate::measure::Sample;
use crate::pin::Cpus;
use crate::point::{Metric, parameters};
use crate::report::results::ANSWERER;
use crate::rules::Rules;
use crate::system::vswitch::{BRIDGE, last_line};
use crate::system::{Between, System, Tier};
use anyhow::{Context, Result, ensure};
use slipswitch_tests::harness::Sandbox;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// The experiment.
pub const RULES: Experiment = Experiment {
    name: "rules",
    title: "Adding OpenFlow rules",
    about: "`ovs-ofctl add-flows` of rules that are exact in port and 5-tuple, into an empty \
            table, until the tool returns; it waits for a barrier after each rule. Tool and daemon \
            have a CPU each. The tool's own time is included: the limit, in turn with every \
            switch, is a server that polls, answers barriers and keeps nothing. The tool sleeps \
            until it has an answer, and waking an idle CPU is most of a switch's time, unless the \
            answer comes before the CPU has halted. Each rule is in the table when its barrier is \
            answered. With `--bundle` the tool sends all rules at once, waits only for the answer \
            to the commit, and a daemon without rules adds all or none; more than half of Open \
            vSwitch's time is then the tool's own. Memory is the daemon's additional \
            resident memory, divided by the number of rules. Open vSwitch keeps rules in the same \
            way with every datapath, so one stands for all.",
    repeats: "none of the papers' tables; 256 K rules are the largest point of *Virtual Switch \
              Acceleration with OVS-TC*",
    across: Some("rules"),
    more: "65,536 rules, too",
    seconds: [80, 260],
    run,
    ..Experiment::BASE
};

/// One system of each daemon: the datapath does not matter here.
const DAEMONS: [System; 2] = [System::OvsAfPacket, System::Slipswitch(Tier::Tcx)];
const TOOL_TIMEOUT: Duration = Duration::from_secs(120);
/// After the tool has returned, until the daemon has freed what the tool sent.
const QUIET: Duration = Duration::from_secs(1);
/// A file in a switch's directory.
const FILE: &str = "many.txt";

const METRICS: [Metric; 3] = [
    Metric::new("time to add", "s", 0.10),
    Metric::new("time to add in a bundle", "s", 0.10),
    Metric::new("memory of a rule", "bytes", 0.10).not_compared(),
];
/// Further arguments of the tool for a bundle.
const BUNDLE: &str = "--bundle -O OpenFlow14";

/// The limit keeps no rules.
fn run(run: &mut Run) -> Result<()> {
    let numbers: &[u32] = if run.plan.full { &[1 << 16, 1 << 18] } else { &[1 << 18] };
    let plan = run.plan.at_most(if run.plan.full { 5 } else { 2 });
    let cpus = run.cpus;
    for rules in numbers.iter().copied() {
        let parameters = parameters([("rules", rules.into())]);
        let entry = |run: &Run, name: &str, work: Box<dyn Fn() -> Result<Sample>>| Entry {
            subject: run.subject(name, parameters.clone()),
            note: None,
            is_compared: true,
            candidate: Box::new(move || attempt(&work)),
        };
        let mut entries = vec![entry(run, ANSWERER, Box::new(move || by_answerer(cpus, rules)))];
        for system in run.selected_of(&DAEMONS) {
            // A daemon that cannot do it at all does not delay the others.
            match attempt(|| by_daemon(system, cpus, 1)) {
                Ok(_) => {
                    let work = Box::new(move || by_daemon(system, cpus, rules));
                    entries.push(entry(run, system.name(), work));
                }
                Err(why) => run.absent(system, &parameters, &METRICS, &why),
            }
        }
        run.progress.say(&format!("{rules} rules, {} systems in turn", entries.len()));
        run.turns((plan, 1), Some((0, ANSWERER)), entries, &METRICS);
    }
    Ok(())
}

/// The figures of [`METRICS`] of a daemon.
fn by_daemon(system: System, cpus: Cpus, rules: u32) -> Result<Sample> {
    let (seconds, bytes) = by_new_daemon(system, cpus, rules, "")?;
    let (in_bundle, _) = by_new_daemon(system, cpus, rules, BUNDLE)?;
    Ok(vec![seconds, in_bundle, bytes])
}

/// Adds rules to a new daemon, because an old one would use freed memory again: the seconds, and
/// the bytes of memory for each rule.
fn by_new_daemon(system: System, cpus: Cpus, rules: u32, arguments: &str) -> Result<(f64, f64)> {
    let instance = system.start(cpus, Between::Frames)?;
    let switch = instance.switch().context("this system has no daemon")?;
    let pid = *instance.daemons().first().context("no daemon")?;
    let before = resident(pid)?;
    let seconds = add(switch.sandbox(), cpus, arguments, BRIDGE, rules)?;
    let text = switch.ofctl(&format!("dump-aggregate {BRIDGE}"));
    ensure!(text.contains(&format!("flow_count={rules}")), "not all rules are there: {text}");
    thread::sleep(QUIET);
    let bytes = resident(pid)?.saturating_sub(before);
    Ok((seconds, bytes as f64 / f64::from(rules)))
}

fn by_answerer(cpus: Cpus, rules: u32) -> Result<Sample> {
    let sandbox = Sandbox::new();
    let socket = sandbox.file("answerer.mgmt");
    let _server = answerer::start(&socket, cpus.other)?;
    let target = format!("unix:{}", socket.display());
    let mut sample = Sample::new();
    for arguments in ["", BUNDLE] {
        sample.push(add(&sandbox, cpus, arguments, &target, rules)?);
    }
    sample.push(f64::NAN); // keeps no rules
    Ok(sample)
}

/// Seconds that the tool takes, on the CPU that daemons do not have.
fn add(sandbox: &Sandbox, cpus: Cpus, arguments: &str, target: &str, rules: u32) -> Result<f64> {
    sandbox.write(FILE, Rules::OneToOne(rules).text());
    let (cpu, timeout) = (cpus.traffic, TOOL_TIMEOUT.as_secs());
    // The tool does not ask for the names of tables and ports, which the limit cannot answer.
    let tool = format!("ovs-ofctl --no-names --timeout={timeout} {arguments}");
    let begin = Instant::now();
    let output = sandbox.sh(&format!("taskset -c {cpu} {tool} add-flows {target} {FILE}"));
    let time = begin.elapsed();
    ensure!(output.ok(), "ovs-ofctl: {}", last_line(&output.text()));
    Ok(time.as_secs_f64())
}

/// Bytes of memory that a process has.
fn resident(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib = line.split_whitespace().next().and_then(|n| n.parse::<u64>().ok());
    Ok(kib.context("VmRSS is no number")? << 10)
}

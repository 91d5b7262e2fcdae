// SPDX-License-Identifier: Apache-2.0
//! A million connections: what they cost in memory, packets and pauses.

use super::frames::ROUNDS;
use super::frames::rate::{sample, window};
use super::tracked::{AGAINST, METRICS, TURNS, establish, testbed};
use super::{Entry, Experiment, Run};
use crate::attempt::attempt;
use crate::generator::{Pace, Stream};
use crate::measure::Series;
use crate::pin::pin;
use crate::point::{Metric, Parameters, parameters};
use crate::rules::Rules;
use crate::system::{System, Tier};
use crate::testbed::{Testbed, Way};
use anyhow::{Context, Result, ensure};
use slipswitch_tests::harness::Switch;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

/// The experiment.
pub const MILLION: Experiment = Experiment {
    name: "million",
    title: "A million connections",
    about: "1,048,576 established UDP connections in one zone. Memory is that of the daemon and of \
            the maps that it shares with its programs, per connection. The rate is that of the \
            smallest frames in random order; in brackets, its ratio to a switch of the same kind \
            that forwards everything. The daemon then sweeps the connections over and over. \
            Meanwhile requests to its control thread come one after the other, and the longest \
            one counts; and 50,000 frames a second pass, which in userspace are sent by a thread \
            of the daemon.",
    repeats: "none of the papers' tables",
    long: true,
    seconds: [300, 350],
    run,
    ..Experiment::BASE
};

const SYSTEMS: [System; 2] = [System::Slipswitch(Tier::Xdp), System::Slipswitch(Tier::Userspace)];
const CONNECTIONS: u32 = 1 << 20;
const RULES: [Rules; 2] = [Rules::Normal, Rules::Tracked];

const MEMORY: Metric = Metric::new("memory of a connection", "bytes", f64::INFINITY);
/// The worst case is a result, and its scatter no fault.
const CONTROL: Metric = Metric::new("longest request, sweeping", "ms", f64::INFINITY);
const DELAY: Metric = Metric::new("delay p99.9, sweeping", "ms", f64::INFINITY);
/// Between two sweeps, in milliseconds.
const INTERVAL: u32 = 10;
/// How long requests and frames are observed.
const OBSERVED: Duration = Duration::from_secs(2);
/// Frames a second while delays are measured.
const PACE: u32 = 50_000;
/// Waits for the answer to a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

fn run(run: &mut Run) -> Result<()> {
    for system in run.selected_of(&SYSTEMS) {
        run.progress.say(&format!("starting {} twice", system.name()));
        if let Err(why) = attempt(|| measure(run, system)) {
            let metrics = [&METRICS[..], &[MEMORY, CONTROL, DELAY]].concat();
            run.absent(system, &named(RULES[1]), &metrics, &why);
        }
    }
    Ok(())
}

fn measure(run: &mut Run, system: System) -> Result<()> {
    let [without, tracking] = {
        let made: Result<Vec<_>> =
            RULES.map(|r| testbed(system, run.cpus, r)).into_iter().collect();
        <[Testbed; 2]>::try_from(made?).ok().context("two switches")?
    };
    run.describe(system, &*tracking.instance);
    let pid = *tracking.instance.daemons().first().context("no daemon")?;
    let before = memory(pid)?;
    run.progress.say(&format!("making {CONNECTIONS} connections"));
    establish(&tracking, RULES[1], CONNECTIONS)?;
    let grown = memory(pid)?.saturating_sub(before);
    let subject = run.subject(system.name(), named(RULES[1]));
    let bytes = Series(vec![grown as f64 / f64::from(CONNECTIONS)]);
    run.add(subject.point(&MEMORY, &bytes));

    let span = window(run.plan);
    let entry = |testbed| {
        let traffic = Testbed::traffic(testbed, Stream::flood(CONNECTIONS));
        Box::new(move || attempt(|| sample(&traffic, span)))
    };
    let entries = [&without, &tracking].into_iter().zip(RULES).map(|(testbed, rules)| Entry {
        subject: run.subject(system.name(), named(rules)),
        note: testbed.instance.misplaced(),
        is_compared: rules != RULES[0],
        candidate: entry(testbed),
    });
    let entries = entries.collect();
    run.turns((run.plan.at_most(ROUNDS), TURNS), Some((0, AGAINST)), entries, &METRICS);

    let switch = tracking.instance.switch().context("no daemon")?;
    switch.appctl(&format!("dpctl/ct-set-sweep-interval {INTERVAL}"));
    let [mut control, mut delays] = [Series::default(), Series::default()];
    for _ in 0..run.plan.at_most(ROUNDS).rounds {
        control.0.push(longest_request(switch, run.cpus.traffic)?.as_secs_f64() * 1e3);
        let stream = Stream { pace: Pace::Even(PACE), ..Stream::flood(CONNECTIONS) };
        let (_, histogram) = tracking.traffic(stream).delays(OBSERVED)?;
        delays.0.push(histogram.quantile(0.999).context("no frames")? / 1e6);
    }
    run.add(subject.point(&CONTROL, &control));
    run.add(subject.point(&DELAY, &delays));
    for testbed in [without, tracking] {
        run.end(system, testbed);
    }
    Ok(())
}

fn named(rules: Rules) -> Parameters {
    let name = if rules == RULES[0] { "one lookup" } else { "one zone" };
    parameters([("rules", name.into())])
}

/// Bytes of the maps that a process has mapped, and of its own memory.
fn memory(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let (mut bytes, mut is_map) = (0, false);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let number = |word: Option<&str>| word.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        match words.next() {
            Some("Size:") if is_map => bytes += number(words.next()) << 10,
            Some("Anonymous:") if !is_map => bytes += number(words.next()) << 10,
            Some(first) if !first.ends_with(':') => is_map = line.ends_with("bpf-map"),
            _ => {}
        }
    }
    Ok(bytes)
}

/// The longest of the requests to the daemon's control thread that are made one after the other.
fn longest_request(switch: &Switch, cpu: usize) -> Result<Duration> {
    let pid = switch.sandbox().read("ovs-vswitchd.pid");
    let path = switch.sandbox().file(&format!("ovs-vswitchd.{}.ctl", pid.trim()));
    let ask = move || -> Result<Duration> {
        pin(cpu)?;
        let mut socket = UnixStream::connect(&path)?;
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let begin = Instant::now();
        let mut longest = Duration::ZERO;
        while begin.elapsed() < OBSERVED {
            let asked = Instant::now();
            request(&mut socket)?;
            longest = longest.max(asked.elapsed());
        }
        Ok(longest)
    };
    thread::scope(|scope| scope.spawn(ask).join())
        .map_err(|_| anyhow::anyhow!("a thread panicked"))?
}

/// Sends one request, and waits for its answer: a JSON object.
fn request(socket: &mut UnixStream) -> Result<()> {
    socket.write_all(br#"{"id":0,"method":"version","params":[]}"#)?;
    let mut answer = Vec::new();
    loop {
        let mut part = [0; 4096];
        let bytes = socket.read(&mut part)?;
        ensure!(bytes > 0, "the daemon ended the connection");
        answer.extend_from_slice(&part[..bytes]);
        if serde_json::from_slice::<serde_json::Value>(&answer).is_ok() {
            return Ok(());
        }
    }
}

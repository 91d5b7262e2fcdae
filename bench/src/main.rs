//! Measures Slipswitch against the limits of the machine it runs on. A program, not a test: see
//! `--help`.
//!
//! Unsafe code is in `link` only, for a call that `libbpf-rs` lacks. The benchmark is no part of
//! the switch.
#![deny(unsafe_code)]

mod args;
mod cost;
mod cpu_time;
mod generator;
mod idle;
#[allow(unsafe_code)]
mod link;
mod measure;
mod netns;
mod object;
mod peer;
mod pin;
mod point;
mod report;
mod subject;
mod table;
mod tcp;
mod topology;
mod udp;

use anyhow::{Context, Result, anyhow};
use args::{Args, Group, Plan};
use clap::Parser;
use pin::Cpus;
use report::Report;
use slipswitch_tests::harness::{Netns, without_privilege};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::thread;

/// A load that leaves measurements alone.
const BUSY: f64 = 0.7;

fn main() -> ExitCode {
    let args = Args::parse();
    if without_privilege() {
        eprintln!("slipswitch-bench: nothing was measured; run it as root");
        return ExitCode::from(2);
    }
    match run(&args) {
        Ok(report) if !report.absent.is_empty() => ExitCode::from(2),
        Ok(report) if report.missed() => ExitCode::from(1),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slipswitch-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<Report> {
    let plan = args.plan();
    let cpus = pin::cpus()?;
    let mut report = Report { facts: facts(plan, cpus), ..Report::default() };
    if load() > BUSY {
        report.note(
            "The machine was busy with other things when this began: TCP's figures lean towards \
             each other, and caches were shared. Measure again when it is quiet.",
        );
    }
    for group in [Group::Cost, Group::Udp, Group::Tcp, Group::Table, Group::Idle] {
        if args.wants(group) {
            measure(&mut report, group, plan, cpus);
        }
    }
    print!("{}", report.text());
    if let Some(path) = &args.json {
        let text = format!("{:#}\n", report.json());
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(report)
}

/// Measures a group.
type Work = fn(&mut Report, Plan, Cpus) -> Result<()>;

/// Measures a group on a thread of its own: what it pins is undone with it.
fn measure(report: &mut Report, group: Group, plan: Plan, cpus: Cpus) {
    let (name, work): (_, Work) = match group {
        Group::Cost => ("cost", |report, plan, cpus| {
            inside(report, cpus, move |report, netns| {
                pin::ahead()?;
                cost::run(report, plan, netns);
                Ok(())
            })
        }),
        Group::Udp => ("udp", |report, plan, cpus| {
            inside(report, cpus, move |report, netns| udp::run(report, plan, netns, cpus))
        }),
        Group::Tcp => ("tcp", tcp::run),
        Group::Table => ("table", |report, plan, cpus| {
            inside(report, cpus, move |report, netns| {
                pin::ahead()?;
                table::run(report, plan, netns)
            })
        }),
        Group::Idle => ("idle", idle::run),
        Group::All => return,
    };
    eprintln!("{name}:");
    let result = thread::scope(|scope| {
        let report = &mut *report;
        scope.spawn(move || attempt(|| work(report, plan, cpus))).join()
    });
    let result = result.unwrap_or_else(|_| Err(anyhow!("a thread panicked")));
    if let Err(error) = result {
        report.miss(name, format!("{error:#}"));
    }
}

/// Runs `work` on a thread that is pinned to the CPU for traffic, in a new namespace.
fn inside(
    report: &mut Report,
    cpus: Cpus,
    work: impl FnOnce(&mut Report, &Netns) -> Result<()> + Send + 'static,
) -> Result<()> {
    let netns = Netns::new();
    let mut inner = std::mem::take(report);
    let (inner, result) = {
        let netns_there = netns.clone();
        netns.with(move || {
            let result = attempt(|| {
                pin::pin(cpus.traffic)?;
                work(&mut inner, &netns_there)
            });
            (inner, result)
        })
    };
    *report = inner;
    result
}

/// Makes an error of a panic: the harness of the tests, which is used here too, panics where
/// a test would end.
fn attempt<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(anyhow!(text.unwrap_or_else(|| "panicked".into())))
    })
}

/// Processes that wanted to run, averaged over the last minute.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0)
}

fn facts(plan: Plan, cpus: Cpus) -> Vec<(&'static str, String)> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let model = read("/proc/cpuinfo")
        .lines()
        .find_map(|l| l.strip_prefix("model name")?.split(": ").nth(1).map(str::to_owned));
    let mitigations: Vec<String> = ["spectre_v2", "retbleed", "spec_rstack_overflow"]
        .iter()
        .map(|name| {
            format!("{name}: {}", read(&format!("/sys/devices/system/cpu/vulnerabilities/{name}")))
        })
        .collect();
    let mut facts = vec![
        ("kernel", read("/proc/sys/kernel/osrelease")),
        (
            "cpu",
            format!(
                "{}; traffic on CPU {}, the rest on CPU {}",
                model.unwrap_or_else(|| "unknown".into()),
                cpus.traffic,
                cpus.other
            ),
        ),
        ("mitigations", mitigations.join("; ")),
        ("load before", read("/proc/loadavg")),
        (
            "rounds",
            format!(
                "{} of {} ms where there is traffic, limits and switch in turn",
                plan.repeat,
                plan.window().as_millis()
            ),
        ),
    ];
    if cfg!(debug_assertions) {
        facts.push(("build", "not optimised: use cargo run --release".into()));
    }
    facts
}

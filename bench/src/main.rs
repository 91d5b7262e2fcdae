// SPDX-License-Identifier: Apache-2.0
//! Measures Slipswitch against the limits of the machine it runs on. A program, not a test: see
//! `--help`.
//!
//! Unsafe code is in `link` and `live` only, for calls that `libbpf-rs` lacks and to interrupt one.
//! The benchmark is no part of the switch.
#![deny(unsafe_code)]

mod args;
mod bed;
mod catalogue;
mod cost;
mod cpu_time;
mod ends;
mod experiment;
mod flooder;
mod generator;
mod goals;
mod histogram;
#[allow(unsafe_code)]
mod link;
#[allow(unsafe_code)]
mod live;
mod measure;
mod memory;
mod netns;
mod object;
mod peer;
mod pin;
mod point;
mod progress;
mod report;
mod setting;
mod sink;
mod subject;
mod table;
mod topology;
mod udp;
mod waking;

use anyhow::{Context, Result, anyhow};
use args::{Args, Group, Plan};
use clap::Parser;
use experiment::Run;
use peer::System;
use pin::Cpus;
use progress::{Progress, clock};
use report::Report;
use report::markdown::{Layout, Page, page};
use report::results::{ALL_POINTS, ANSWERER, GENERATOR, POINTS, Results, SENDER};
use slipswitch_tests::harness::{Netns, daemon_program, without_privilege};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::{fs, thread};

/// A load that leaves measurements alone.
const BUSY: f64 = 0.7;

fn main() -> ExitCode {
    let args = Args::parse();
    // The harness panics where a test would end; what comes of it is an error here.
    std::panic::set_hook(Box::new(|_| {}));
    if args.list {
        list();
        return ExitCode::SUCCESS;
    }
    if args.render.is_none() && without_privilege() {
        eprintln!("slipswitch-bench: nothing was measured; run it as root");
        return ExitCode::from(2);
    }
    let result = match &args.render {
        Some(results) => render(&args, results),
        None if args.groups.is_empty() => compare(&args),
        None => groups(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("slipswitch-bench: {error:#}");
        ExitCode::from(2)
    })
}

fn list() {
    println!("experiments:");
    for (experiment, ..) in experiment::ALL {
        let long = if experiment.long { " (not part of a short run)" } else { "" };
        println!("  {:10} {}{long}", experiment.name, experiment.title);
    }
    println!("systems:");
    for system in System::ALL {
        println!("  {}", args::short(system));
    }
}

/// Runs experiments and makes the page.
fn compare(args: &Args) -> Result<ExitCode> {
    let (plan, cpus, entries) = (args.plan(), pin::cpus()?, args.experiments());
    if args.systems().iter().any(|system| matches!(system, System::Slipswitch(_))) {
        // Built now, if it has to be: an hour later the source may be another one.
        attempt(|| Ok(daemon_program()))?;
    }
    let seconds = |times: [u64; 2]| if plan.full { times[1] } else { times[0] };
    let expected: Vec<u64> = entries.iter().map(|(.., times)| seconds(*times)).collect();
    let mut run = Run {
        plan,
        cpus,
        systems: args.systems(),
        asked: entries.iter().map(|(experiment, ..)| experiment.name).collect(),
        pollers: Vec::new(),
        known: experiment::Known::default(),
        results: Results { machine: report::machine::facts(), ..Results::default() },
        progress: Progress::new(&expected),
    };
    for note in args.note.as_deref().into_iter().chain(busy()) {
        run.results.note(note);
    }
    run.results.machine.extend(now(cpus, "before"));
    let mut failed = false;
    for (over, (experiment, work, times)) in entries.iter().enumerate() {
        if over > 0 && args.page.is_some() {
            // A run that is cut off leaves what it has.
            let so_far = format!("after {over} of {} experiments", entries.len());
            run.results.run = how(plan, cpus, &run.progress);
            run.results.run.insert("cut off".to_owned(), so_far);
            publish(args, &run.results)?;
        }
        run.progress.next(experiment.title, seconds(*times));
        if let Err(e) = experiment::perform(&mut run, experiment, *work) {
            failed = true;
            eprintln!("  {} could not be run: {e:#}", experiment.name);
            run.results.note(format!("{} could not be run: {e:#}", experiment.title));
        }
    }
    run.results.run = how(plan, cpus, &run.progress);
    run.results.run.extend(now(cpus, "after"));
    publish(args, &run.results)?;
    Ok(if failed { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

/// How a run was made, for the page.
fn how(plan: Plan, cpus: Cpus, progress: &Progress) -> report::machine::Facts {
    let facts = [
        ("command", std::env::args().skip(1).collect::<Vec<_>>().join(" ")),
        ("took", clock(progress.elapsed())),
        (POINTS, if plan.full { ALL_POINTS } else { "a choice" }.to_owned()),
        (
            "rounds",
            format!(
                "{} of {} ms; of frames {}, which are shorter; 2 to 5 of rules, CPU and restarts",
                plan.repeat,
                plan.window().as_millis(),
                plan.at_most(3).repeat
            ),
        ),
        ("CPUs", format!("traffic on {}, daemons and servers on {}", cpus.traffic, cpus.other)),
        ("load after", load().to_string()),
    ];
    facts.into_iter().map(|(name, fact)| (name.to_owned(), fact)).collect()
}

/// What the machine takes at least, as it is `when` this is asked: for a look into a table of many
/// flows, and for a daemon or a tool that sleeps until it is needed.
fn now(cpus: Cpus, when: &str) -> [(String, String); 2] {
    [
        ("reading memory", memory::in_words(cpus.traffic)),
        ("waking an idle CPU", waking::in_words(cpus)),
    ]
    .map(|(name, words)| {
        let words = words.unwrap_or_else(|error| format!("unknown: {error:#}"));
        (format!("{name}, {when}"), words)
    })
}

/// Makes the page from a file of results.
fn render(args: &Args, file: &Path) -> Result<ExitCode> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let mut results: Results =
        serde_json::from_str(&text).with_context(|| format!("{}", file.display()))?;
    if let Some(note) = &args.note {
        results.note(note.clone());
    }
    publish(args, &results)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes results and page to where they were asked for; without a page's name, the page goes to
/// the standard output.
fn publish(args: &Args, results: &Results) -> Result<()> {
    let json = format!("{}\n", serde_json::to_string_pretty(results)?);
    if let Some(file) = &args.json {
        write(file, &json)?;
    }
    let folder = args.page.as_ref().and_then(|page| page.file_stem()).unwrap_or_default();
    let experiments: Vec<_> = experiment::ALL.into_iter().map(|(e, ..)| e).collect();
    let mut systems = vec![SENDER, GENERATOR, ANSWERER];
    systems.extend(System::ALL.map(System::name));
    let layout = Layout {
        experiments: &experiments,
        systems: &systems,
        goals: &goals::ALL,
        minutes: experiment::minutes(),
    };
    let Page { text, plots } = page(results, &layout, &folder.to_string_lossy());
    let Some(page) = &args.page else {
        print!("{text}");
        return Ok(());
    };
    let folder = page.with_extension("");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    // Plots of a run before would belong to no figure of the page.
    for old in fs::read_dir(&folder)?.flatten().map(|e| e.path()) {
        if old.extension().is_some_and(|e| e == "svg") {
            fs::remove_file(&old).with_context(|| format!("removing {}", old.display()))?;
        }
    }
    for (name, svg) in &plots {
        write(&folder.join(name), svg)?;
    }
    write(&folder.join("results.json"), &json)?;
    write(page, &text)?;
    eprintln!("{} is written, with {} plots", page.display(), plots.len());
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// What a reader has to know when something else ran at the beginning.
fn busy() -> Option<&'static str> {
    (load() > BUSY).then_some(
        "The machine was busy with other things when this began: TCP's figures lean towards \
         each other, and caches were shared. Measure again when it is quiet.",
    )
}

/// Measures groups and shows their figures.
fn groups(args: &Args) -> Result<ExitCode> {
    let plan = args.plan();
    let cpus = pin::cpus()?;
    let mut report = Report { facts: facts(plan, cpus), ..Report::default() };
    if let Some(note) = busy() {
        report.note(note);
    }
    for group in &args.groups {
        measure(&mut report, *group, plan, cpus);
    }
    print!("{}", report.text());
    if let Some(path) = &args.json {
        write(path, &format!("{:#}\n", report.json()))?;
    }
    Ok(match report {
        report if !report.absent.is_empty() => ExitCode::from(2),
        report if report.missed() => ExitCode::from(1),
        _ => ExitCode::SUCCESS,
    })
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
        Group::Table => ("table", |report, plan, cpus| {
            inside(report, cpus, move |report, netns| {
                pin::ahead()?;
                table::run(report, plan, netns)
            })
        }),
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

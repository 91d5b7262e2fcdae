// SPDX-License-Identifier: Apache-2.0
//! Measures Slipswitch against other switches and against the limits of the machine that it runs
//! on. A program, not a test: see `--help`.
//!
//! # Parts
//! - [`experiment`]: the experiments, and the turns that systems take. [`goals`]: their goals.
//! - [`system`]: the systems that are compared, and [`rules`] that they are given.
//! - [`testbed`]: a system between the [`generator`] and a [`sink`]; [`host_testbed`]: a system
//!   between two hosts, whose traffic is in [`endpoints`]; [`topology`]: the devices of both.
//! - [`overlay`]: two systems that a tunnel joins; [`overlay_frames`]: a generator and a sink there.
//! - [`report`]: the page, its tables and plots, from the file of results.
//!
//! A new experiment is a constant of [`experiment::Experiment`] in a file `experiment/NAME.rs` and
//! in [`experiment::ALL`]. A figure of hosts is an [`experiment::Task`] for
//! [`experiment::Run::compare`] (see `experiment/hosts.rs`); a figure of the generator's frames is
//! a case in `experiment/frames/cases.rs`; others take turns by [`experiment::Run::turns`].
//!
//! An error is the reason for a missing figure and is shown on the page, so functions have an
//! `# Errors` section only where the reason is not that a system call or a command failed.
//!
//! Unsafe code is in `live` only, for calls that `libbpf-rs` lacks and to interrupt one.
#![deny(unsafe_code)]

mod args;
mod attempt;
mod cpu_time;
mod endpoints;
mod experiment;
mod flooder;
mod generator;
mod goals;
mod histogram;
mod host_testbed;
#[allow(unsafe_code)]
mod live;
mod measure;
mod netns;
mod overlay;
mod overlay_frames;
mod pin;
mod point;
mod programs;
mod progress;
mod report;
mod rules;
mod sink;
mod system;
mod testbed;
mod topology;

use anyhow::{Context, Error, Result};
use args::Args;
use attempt::attempt;
use clap::Parser;
use experiment::{ALL, Run};
use measure::Plan;
use pin::Cpus;
use progress::{Progress, clock};
use report::machine::Facts;
use report::markdown::{Layout, Page, page};
use report::results::{ALL_POINTS, ANSWERER, GENERATOR, POINTS, Results, SENDER};
use slipswitch_tests::harness::{daemon_program, without_privilege};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use system::System;

/// The load average up to which measurements are not disturbed.
const QUIET_LOAD: f64 = 0.7;

fn main() -> ExitCode {
    let args = Args::parse();
    // Panics of the test harness are reported as errors.
    std::panic::set_hook(Box::new(|_| {}));
    if args.list {
        list();
        return ExitCode::SUCCESS;
    }
    if let Some(address) = args.echo_server {
        let served = endpoints::held::serve(address);
        return served.map_or_else(fail, |()| ExitCode::SUCCESS);
    }
    if args.render.is_none() && without_privilege() {
        eprintln!("slipswitch-bench: nothing was measured; run it as root");
        return ExitCode::from(2);
    }
    let result = args.render.as_ref().map_or_else(|| run(&args), |file| render(&args, file));
    result.unwrap_or_else(fail)
}

fn fail(error: Error) -> ExitCode {
    eprintln!("slipswitch-bench: {error:#}");
    ExitCode::from(2)
}

fn list() {
    println!("experiments:");
    for experiment in ALL {
        let long = if experiment.long { " (not part of a short run)" } else { "" };
        println!("  {:10} {}{long}", experiment.name, experiment.title);
    }
    println!("systems:");
    System::ALL.into_iter().for_each(|system| println!("  {}", args::short(system)));
}

/// Runs experiments and makes the page.
fn run(args: &Args) -> Result<ExitCode> {
    let (plan, cpus, experiments) = (args.plan(), pin::cpus()?, args.experiments());
    if args.systems().iter().any(|system| matches!(system, System::Slipswitch(_))) {
        // Builds the daemon now if necessary: the source may have changed an hour later.
        attempt(|| Ok(daemon_program()))?;
    }
    let expected: Vec<u64> = experiments.iter().map(|e| e.expected(plan.full)).collect();
    let mut run = Run {
        plan,
        cpus,
        systems: args.systems(),
        selected: experiments.clone(),
        experiment: ALL[0],
        pollers: Vec::new(),
        has_frames: false,
        results: Results { machine: report::machine::facts(), ..Results::default() },
        progress: Progress::new(&expected),
    };
    for note in args.note.as_deref().into_iter().chain(busy()) {
        run.results.add_note(note);
    }
    let mut exit = ExitCode::SUCCESS;
    for (over, experiment) in experiments.iter().enumerate() {
        if over > 0 && args.page.is_some() {
            let so_far = format!("after {over} of {} experiments", experiments.len());
            run.results.run = how(plan, cpus, &run.progress);
            run.results.run.insert("cut off".to_owned(), so_far);
            publish(args, &run.results)?;
        }
        run.progress.next(experiment.title, experiment.expected(plan.full));
        if let Err(e) = run.perform(experiment) {
            exit = ExitCode::from(2);
            eprintln!("  {} could not be run: {e:#}", experiment.name);
            run.results.add_note(format!("{} could not be run: {e:#}", experiment.title));
        }
    }
    run.results.run = how(plan, cpus, &run.progress);
    publish(args, &run.results)?;
    Ok(exit)
}

/// How a run was made, for the page.
fn how(plan: Plan, cpus: Cpus, progress: &Progress) -> Facts {
    let window = plan.window().as_millis();
    let (rounds, of_frames) = (plan.rounds, plan.at_most(3).rounds);
    let shorter = "which are shorter; 2 to 5 of rules, CPU and restarts";
    let facts = [
        ("command", std::env::args().skip(1).collect::<Vec<_>>().join(" ")),
        ("took", clock(progress.elapsed())),
        (POINTS, if plan.full { ALL_POINTS } else { "a choice" }.to_owned()),
        ("rounds", format!("{rounds} of {window} ms; of frames {of_frames}, {shorter}")),
        ("CPUs", format!("traffic on {}, daemons and servers on {}", cpus.traffic, cpus.other)),
        ("load after", load().to_string()),
    ];
    facts.map(|(name, fact)| (name.to_owned(), fact)).into_iter().collect()
}

/// Makes the page from a file of results.
fn render(args: &Args, file: &Path) -> Result<ExitCode> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let mut results: Results =
        serde_json::from_str(&text).with_context(|| format!("{}", file.display()))?;
    if let Some(note) = &args.note {
        results.add_note(note.clone());
    }
    publish(args, &results)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes results and page to the requested files; without `--page`, the page goes to the standard
/// output.
fn publish(args: &Args, results: &Results) -> Result<()> {
    let json = results.json()?;
    if let Some(file) = &args.json {
        write(file, &json)?;
    }
    let folder = args.page.as_ref().and_then(|page| page.file_stem()).unwrap_or_default();
    let mut systems = vec![SENDER, GENERATOR, ANSWERER];
    systems.extend(System::ALL.map(System::name));
    let layout = Layout {
        experiments: &ALL,
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
    // Plots of an earlier run may not be on this page.
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

/// A note for readers if other programs ran at the beginning.
fn busy() -> Option<&'static str> {
    (load() > QUIET_LOAD).then_some(
        "Other programs ran when this began: differences between TCP's figures are smaller \
         than on a quiet machine, and caches were shared. Measure again on a quiet machine.",
    )
}

/// The load average of the last minute.
fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0)
}

// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask vm`: tests on other kernels.

mod apt;
mod args;
mod build;
mod card;
mod console;
mod cpio;
mod host;
mod initramfs;
mod job;
mod kernel;
mod modules;
mod plan;
mod qemu;
mod release;
mod report;
mod status;
pub(crate) mod workspace;

pub use args::Args;

use anyhow::{Context, Result, bail};
use job::{Job, Step};
use kernel::{Kernel, Store};
use qemu::{Clock, Files};
use report::Report;
use status::Event;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use workspace::Workspace;

/// Programs that end-to-end tests start: the variable with the path of each, and its package.
const PROGRAMS: [(&str, &str); 2] = [("SLIPSWITCHD", "slipswitchd"), ("SLIPSWITCH", "slipswitch")];
/// The package with those tests.
const END_TO_END: &str = "slipswitch-tests";
/// Factor for the tests' deadlines unless the user sets it: emulation is slow.
const PATIENCE: (&str, &str) = ("SLIPSWITCH_TEST_PATIENCE", "5");
/// Name of the directory with programs as they are when the command starts.
const PROGRAMS_KEPT: &str = "programs";
/// Seconds that a guest may take in addition to its steps.
const MARGIN: u64 = 900;

/// Runs the command. Returns the exit status.
pub fn run(args: &Args) -> Result<u8> {
    host::check()?;
    let workspace = Workspace::load()?;
    let store = Store::new(&workspace.target.join("vm"));
    if args.list {
        return list(&store).map(|()| 0);
    }
    let mut job = job(&workspace, args)?;
    sweep(store.dir());
    let programs = RunDir::new(store.dir(), PROGRAMS_KEPT)?;
    job.keep_programs(&programs.dir)?;
    let clock = if args.count_instructions { Clock::Instructions } else { Clock::Host };
    let mut reports = Vec::new();
    for series in args.series() {
        let kernel = store.obtain(series, args.update)?;
        if job.needs_card {
            card::build(&store, &kernel, &workspace.root.join("tests/card"))?;
        }
        let report = run_on(&kernel, &job, &store, clock)?;
        let failed = report.code != 0;
        reports.push(report);
        if failed && args.fail_fast {
            break;
        }
    }
    Ok(conclude(&reports))
}

fn list(store: &Store) -> Result<()> {
    let apt = apt::Apt::system();
    let known = release::newest_of_each(apt.kernels()?.into_iter().chain(store.cached()));
    let sizes = apt.sizes(&known)?;
    let cached = store.cached();
    for release in known {
        let supported = args::SUPPORTED.contains(&release.series());
        let size = sizes.get(&release.package()).map(|s| format!("{} MB", s / 1_000_000));
        println!(
            "{:8} {:28} {:>8}  {}{}",
            release.series(),
            release.name(),
            size.unwrap_or_default(),
            if cached.contains(&release) { "cached " } else { "" },
            if supported { "in all" } else { "" },
        );
    }
    Ok(())
}

fn job(workspace: &Workspace, args: &Args) -> Result<Job> {
    let mut job = Job {
        directories: vec![workspace.root.clone(), workspace.target.clone()],
        fail_fast: args.fail_fast,
        limit: args.timeout,
        ..Job::default()
    };
    job.inherit_environment();
    if job.variables.iter().all(|(name, _)| name != PATIENCE.0) {
        job.variables.push((PATIENCE.0.into(), PATIENCE.1.into()));
    }
    if let Some(line) = &args.run {
        let words = ["/bin/sh", "-c", line].map(str::to_owned).to_vec();
        let dir = std::env::current_dir().context("the working directory is gone")?;
        job.directories.push(dir.clone());
        job.steps.push(Step { label: "--run".into(), dir, words });
        return Ok(job);
    }
    let choices = plan::choose(workspace, args)?;
    job.needs_card = choices.iter().flat_map(|c| &c.targets).any(|t| t.name() == card::SUITE);
    if job.needs_card {
        let cards = card::directory(&Store::new(&workspace.target.join("vm")));
        job.variables.push((card::VARIABLE.into(), cards.display().to_string()));
    }
    job.steps = build::steps(&choices, args)?;
    if job.steps.is_empty() {
        bail!("no test has such a name");
    }
    if choices.iter().any(|c| c.package.name == END_TO_END) {
        let programs = build::programs(&PROGRAMS.map(|(_, package)| package))?;
        for ((variable, _), program) in PROGRAMS.iter().zip(programs) {
            job.variables.retain(|(name, _)| name != variable);
            job.variables.push(((*variable).into(), program.display().to_string()));
        }
    }
    Ok(job)
}

fn run_on(kernel: &Kernel, job: &Job, store: &Store, clock: Clock) -> Result<Report> {
    let name = kernel.release.name();
    let dir = RunDir::new(store.dir(), name)?;
    let files = dir.files();
    std::fs::write(&files.initramfs, initramfs::build(kernel, job)?)
        .with_context(|| format!("cannot write {}", files.initramfs.display()))?;
    eprintln!("vm: starting {name}");
    let start = Instant::now();
    let timeout = Duration::from_secs(MARGIN + job.limit.saturating_mul(job.steps.len() as u64));
    let run = qemu::run(kernel, &files, clock, job.steps.len(), timeout, &mut |event| {
        tell(name, job, event);
    })?;
    let console = std::fs::read(&files.console).unwrap_or_default();
    let console = String::from_utf8_lossy(&console);
    let report = Report::new(name, job, &run, &console, start.elapsed());
    if report.code != 0 {
        eprintln!("vm: the end of the console of {name}, whole in {}:", files.console.display());
        console::last(&console).iter().for_each(|line| eprintln!("  {line}"));
        dir.keep();
    }
    Ok(report)
}

fn tell(kernel: &str, job: &Job, event: &Event) {
    let label = |step: &usize| job.steps.get(*step).map_or("?", |s| s.label.as_str());
    match event {
        Event::Missing(module) => eprintln!("vm: {kernel} has no module {module}"),
        Event::Ready(at) => eprintln!("vm: {kernel} is up after {at:.1} s"),
        Event::Begin(step, _) => eprintln!("vm: {kernel}: {}", label(step)),
        Event::End(step, _, 0) => eprintln!("vm: {kernel}: {}: ok", label(step)),
        Event::End(step, _, code) => eprintln!("vm: {kernel}: {}: failed, {code}", label(step)),
        Event::Done => {}
    }
}

/// Prints the results on each kernel. Returns the exit status.
fn conclude(reports: &[Report]) -> u8 {
    for report in reports {
        eprintln!("\n{}: {}", report.kernel, if report.code == 0 { "ok" } else { "FAILED" });
        report.lines.iter().for_each(|line| eprintln!("  {line}"));
    }
    reports.iter().map(|r| r.code).find(|code| *code != 0).unwrap_or(0)
}

/// Removes the programs that killed commands have left.
fn sweep(below: &Path) {
    for entry in std::fs::read_dir(below.join("runs")).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|n| n.strip_prefix(PROGRAMS_KEPT)?.strip_prefix('.'));
        if process.is_some_and(|id| !Path::new("/proc").join(id).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// The directory of one run. It is removed at the end unless it is kept.
#[derive(Debug)]
struct RunDir {
    dir: PathBuf,
    kept: bool,
}

impl RunDir {
    fn new(below: &Path, kernel: &str) -> Result<RunDir> {
        let dir = below.join("runs").join(format!("{kernel}.{}", std::process::id()));
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(RunDir { dir, kept: false })
    }

    fn files(&self) -> Files {
        Files {
            initramfs: self.dir.join("initramfs.cpio"),
            console: self.dir.join("console"),
            status: self.dir.join("status"),
        }
    }

    fn keep(mut self) {
        let _ = std::fs::remove_file(self.files().initramfs);
        self.kept = true;
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_commands_that_are_gone_are_removed() {
        let store = testing::directory();
        let mine = RunDir::new(store.path(), PROGRAMS_KEPT).expect("made");
        let runs = store.path().join("runs");
        let (gone, console) = (runs.join("programs.999999999"), runs.join("6.1.0-9.999999999"));
        for dir in [&gone, &console] {
            std::fs::create_dir(dir).expect("made");
        }
        sweep(store.path());
        assert_eq!((mine.dir.exists(), gone.exists(), console.exists()), (true, false, true));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Running a target.

use super::build::Binaries;
use super::stats::Stats;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Seconds after which an input counts as hanging, and megabytes that a run may take.
const PATIENCE: u32 = 25;
const MEMORY: u32 = 2048;

/// A target and how to run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// The longest input to try, in bytes.
    pub longest: usize,
}

impl Plan {
    /// Reads the output of `corpus unpack`: for each target a line with its name and longest input.
    pub fn parse_all(text: &str) -> Result<Vec<Plan>> {
        let plan = |line: &str| {
            let (name, longest) = line.split_once(' ')?;
            Some(Plan { name: name.to_owned(), longest: longest.parse().ok()? })
        };
        let plans: Option<Vec<Plan>> = text.lines().map(plan).collect();
        plans.with_context(|| format!("the corpus program said {text:?}"))
    }
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The target.
    pub name: String,
    /// Its program, for running an input again.
    pub program: PathBuf,
    /// Counts of libFuzzer.
    pub stats: Stats,
    /// File with the output of libFuzzer.
    pub log: PathBuf,
    /// Inputs that failed.
    pub artifacts: Vec<PathBuf>,
    /// libFuzzer ended by itself and with success.
    pub ended_well: bool,
}

/// Runs a target for `minutes`.
pub fn fuzz(binaries: &Binaries, plan: &Plan, minutes: u64) -> Result<Outcome> {
    let program = binaries.program(&plan.name);
    let corpora = binaries.corpora();
    let artifacts = binaries.dir.join("artifacts").join(&plan.name);
    fs::create_dir_all(&artifacts)?;
    let before = files(&artifacts)?;
    let log = binaries.dir.join(format!("{}.log", plan.name));
    let mut command = limited(&program, plan);
    command
        // With 0 it has no limit.
        .arg(format!("-max_total_time={}", (minutes * 60).max(1)))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg("-print_final_stats=1");
    let words = corpora.join(format!("{}.dict", plan.name));
    if fs::metadata(&words).is_ok_and(|m| m.len() > 0) {
        command.arg(format!("-dict={}", words.display()));
    }
    let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let status = command
        .arg(corpora.join(&plan.name))
        .stdout(output.try_clone()?)
        .stderr(output)
        .status()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let text = fs::read(&log)?;
    let mut failed = files(&artifacts)?;
    // A slow input is no failure. Failures of earlier runs were reported then.
    failed.retain(|f| !before.contains(f) && !f.to_string_lossy().contains("slow-unit-"));
    Ok(Outcome {
        name: plan.name.clone(),
        program,
        stats: Stats::parse(&String::from_utf8_lossy(&text)),
        log,
        artifacts: failed,
        ended_well: status.success(),
    })
}

/// Leaves as few and as short inputs in a target's corpus as give the same coverage.
pub fn minimise(binaries: &Binaries, plan: &Plan) -> Result<()> {
    let corpus = binaries.corpora().join(&plan.name);
    let least = binaries.corpora().join(format!("{}.least", plan.name));
    let _ = fs::remove_dir_all(&least); // of a run that was stopped
    fs::create_dir_all(&least)?;
    let log = binaries.dir.join(format!("{}.merge.log", plan.name));
    let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let status = limited(&binaries.program(&plan.name), plan)
        .arg("-merge=1")
        .args([&least, &corpus])
        .stdout(output.try_clone()?)
        .stderr(output)
        .status()?;
    if !status.success() {
        bail!("{}: merging failed: see {}", plan.name, log.display());
    }
    fs::remove_dir_all(&corpus)?;
    fs::rename(&least, &corpus)?;
    Ok(())
}

fn limited(program: &Path, plan: &Plan) -> Command {
    let mut command = Command::new(program);
    command
        .arg(format!("-timeout={PATIENCE}"))
        .arg(format!("-rss_limit_mb={MEMORY}"))
        .arg(format!("-max_len={}", plan.longest));
    command
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        files.push(entry?.path());
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read() {
        let plan = |name: &str, longest| Plan { name: name.into(), longest };
        let plans = Plan::parse_all("packet 2048\nopenflow 4096\n").unwrap();
        assert_eq!(plans, [plan("packet", 2048), plan("openflow", 4096)]);
        assert!(Plan::parse_all("packet\n").is_err());
        assert!(Plan::parse_all("packet many\n").is_err());
    }
}

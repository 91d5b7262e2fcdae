// SPDX-License-Identifier: Apache-2.0
//! Test programs, built by Cargo.

use super::args::Args;
use super::job::Step;
use super::plan::Choice;
use super::workspace::{Target, cargo};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds the programs of all choices. Returns a step for each that has a test to run.
pub fn steps(choices: &[Choice], args: &Args) -> Result<Vec<Step>> {
    // In one call: each selection of packages has its own features, and would rebuild everything.
    let mut command = cargo();
    command.args(["test", "--no-run"]).args(selection(choices));
    let made = artifacts(&mut command)?;
    let steps = choices.iter().map(|choice| steps_of(choice, &made, args));
    Ok(steps.collect::<Result<Vec<_>>>()?.concat())
}

/// Returns the arguments for Cargo: packages and targets, each once.
fn selection(choices: &[Choice]) -> Vec<&str> {
    let packages = choices.iter().map(|c| vec!["--package", c.package.name.as_str()]);
    let targets = choices.iter().flat_map(|c| &c.targets).map(Target::cargo_args);
    let mut all: Vec<Vec<&str>> = Vec::new();
    for words in packages.chain(targets) {
        if !all.contains(&words) {
            all.push(words);
        }
    }
    all.concat()
}

fn steps_of(choice: &Choice, made: &[Value], args: &Args) -> Result<Vec<Step>> {
    let is_ours = |artifact: &&Value| {
        let manifest = artifact["manifest_path"].as_str().map(Path::new);
        manifest.and_then(Path::parent) == Some(&choice.package.dir)
    };
    let mut programs: Vec<_> = made.iter().filter(is_ours).filter_map(test_program).collect();
    programs.retain(|(target, _)| choice.targets.contains(target));
    programs.sort_by_key(|(target, _)| choice.targets.iter().position(|t| t == target));
    if choice.strict {
        every_word_is_used(choice, &programs)?;
    }
    let mut steps = Vec::new();
    for (target, program) in programs {
        let words = args.program_args(&choice.filter);
        let Some(count) = count(&program, &choice.package.dir, &words) else { continue };
        let label = format!("{} {}", choice.package.name, target.name());
        eprintln!("vm: {label}: {count} tests");
        let words = [program.display().to_string()].into_iter().chain(words).collect();
        steps.push(Step { label, dir: choice.package.dir.clone(), words });
    }
    if steps.is_empty() {
        eprintln!("vm: {}: no test has such a name", choice.package.name);
    }
    Ok(steps)
}

/// A word of the filter that is in no test's name is an error, as is a program without any test
/// to run: the tests were renamed, and would silently not be run any more.
fn every_word_is_used(choice: &Choice, programs: &[(Target, PathBuf)]) -> Result<()> {
    let dir = &choice.package.dir;
    let package = &choice.package.name;
    let is_used = |word: &str| {
        programs.iter().any(|(_, program)| count(program, dir, &[word.to_owned()]).is_some())
    };
    if let Some(word) = choice.filter.iter().find(|w| !is_used(w)) {
        bail!("{package} has no test called {word}, which the table of tests names");
    }
    if let Some((target, _)) =
        programs.iter().find(|(_, program)| count(program, dir, &choice.filter).is_none())
    {
        bail!("the table of tests names none in {package} {}", target.name());
    }
    Ok(())
}

/// Builds programs of the workspace, each with the name of its package. Returns their files.
pub fn programs(names: &[&str]) -> Result<Vec<PathBuf>> {
    let mut command = cargo();
    command.arg("build");
    for name in names {
        command.args(["--package", name, "--bin", name]);
    }
    let made = artifacts(&mut command)?;
    let file = |name: &&str| {
        let file = made.iter().filter(|a| a["target"]["name"] == *name).find_map(executable);
        file.with_context(|| format!("cargo made no program {name}"))
    };
    names.iter().map(file).collect()
}

/// Runs Cargo and returns its message for each artifact.
fn artifacts(command: &mut Command) -> Result<Vec<Value>> {
    command.arg("--message-format=json-render-diagnostics").stdin(Stdio::null());
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo: {}", output.status);
    }
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

fn parse(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact")
        .collect()
}

fn executable(artifact: &Value) -> Option<PathBuf> {
    artifact["executable"].as_str().map(PathBuf::from)
}

fn test_program(artifact: &Value) -> Option<(Target, PathBuf)> {
    let tests = artifact["profile"]["test"].as_bool()?;
    let target = Target::parse(&artifact["target"])?;
    tests.then_some((target, executable(artifact)?))
}

/// Returns the number of tests that the program would run, listed on the host; `None` for 0.
fn count(program: &Path, dir: &Path, words: &[String]) -> Option<usize> {
    let mut command = Command::new(program);
    command.current_dir(dir).args(words).args(["--list", "--format", "terse"]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let count = text.lines().filter(|line| line.ends_with(": test")).count();
    (count > 0).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::super::workspace::Package;
    use super::*;
    use serde_json::json;

    #[test]
    fn only_test_programs_are_taken() {
        let artifact = |test: bool, executable: Value| {
            json!({ "reason": "compiler-artifact", "executable": executable,
                    "profile": { "test": test },
                    "target": { "name": "x", "kind": ["test"] } })
        };
        let lines = [
            artifact(true, json!("/t/x")),
            artifact(false, json!("/t/y")),
            artifact(true, json!(null)),
            json!({ "reason": "build-finished", "success": true }),
        ];
        let text: String = lines.iter().map(|l| format!("{l}\n")).collect();
        let programs: Vec<_> =
            parse(&(text + "not a message\n")).iter().filter_map(test_program).collect();
        assert_eq!(programs, [(Target::Test("x".into()), PathBuf::from("/t/x"))]);
    }

    #[test]
    fn everything_is_selected_once() {
        let choice = |name: &str, targets: Vec<Target>| Choice {
            package: Package { name: name.into(), dir: "/".into(), targets: targets.clone() },
            targets,
            filter: Vec::new(),
            strict: true,
        };
        let choices = [
            choice("a", vec![Target::Lib]),
            choice("b", vec![Target::Lib, Target::Test("t".into())]),
            choice("b", vec![Target::Test("u".into())]),
        ];
        let expected = "--package a --package b --lib --test t --test u";
        assert_eq!(selection(&choices).join(" "), expected);
    }

    #[test]
    fn tests_are_counted_by_filter() {
        let this = std::env::current_exe().expect("Linux has /proc/self/exe");
        let words = ["tests_are_counted_by_filter".to_owned()];
        assert_eq!(count(&this, Path::new("/"), &words), Some(1));
        assert_eq!(count(&this, Path::new("/"), &["no such test".to_owned()]), None);
    }
}

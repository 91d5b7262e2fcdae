// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask test`: all tests of the workspace.
//!
//! Tests that run daemons and send packets share the machine with each other and with other work: one
//! of two thousand may miss a deadline although nothing is wrong. A few failed tests run once more,
//! one after the other. A test that then passes is reported as unsteady, so that it can be mended. A
//! test that fails again has failed, and so has a program that ended in another way.

use crate::tally::Tallies;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Write};
use std::process::Command;

/// More failures than this have a reason beyond the moment.
const FEW: usize = 3;

/// Runs all tests of the workspace, and a few failed ones once more, by themselves
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Arguments for `cargo test`, in addition to `--workspace --no-fail-fast`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

/// Runs the command. Returns the exit status: 1 when a test failed.
pub fn run(args: &Args) -> Result<u8> {
    let mut all = testing::cargo();
    all.args(["test", "--workspace", "--no-fail-fast"]).args(&args.arguments);
    let first = Outcome::of(&mut all)?;
    if first.passed {
        return Ok(0);
    }
    let Some(few) = first.few() else { return Ok(1) };
    for failed in few {
        let (program, names) = (failed.program.join(" "), failed.tests.join(" "));
        eprintln!("\ntest: {program}: once more: {names}");
        let mut again = testing::cargo();
        again.arg("test").args(&failed.program).args(["--", "--exact", "--test-threads=1"]);
        let again = Outcome::of(again.args(&failed.tests))?;
        if !again.passed || again.tests != failed.tests.len() as u64 {
            return Ok(1);
        }
    }
    eprintln!(
        "\ntest: passed, but UNSTEADY: these failed among the others and passed by themselves:"
    );
    for failed in few {
        eprintln!("test:   {}: {}", failed.program.join(" "), failed.tests.join(" "));
    }
    Ok(0)
}

/// A test program with tests that failed.
#[derive(Clone, Debug, PartialEq)]
struct Failed {
    /// Arguments that select the program for `cargo test`.
    program: Vec<String>,
    /// Names of the failed tests; "?" where a name was lost.
    tests: Vec<String>,
}

/// The result of `cargo test`.
#[derive(Debug, PartialEq)]
struct Outcome {
    passed: bool,
    /// Tests that passed.
    tests: u64,
    failed: Vec<Failed>,
}

impl Outcome {
    /// Runs `cargo` and shows its output.
    fn of(cargo: &mut Command) -> Result<Outcome> {
        let (output, input) = std::io::pipe()?;
        cargo.stdout(input.try_clone()?).stderr(input);
        let mut child = cargo.spawn().context("cannot run cargo")?;
        cargo.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut reading = Reading::default();
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line)? > 0 {
            std::io::stdout().write_all(&line)?;
            reading.line(String::from_utf8_lossy(&line).trim_end());
            line.clear();
        }
        Ok(reading.end(child.wait()?.success()))
    }

    /// Returns the failed tests, if they are few and each has a name.
    fn few(&self) -> Option<&[Failed]> {
        let named =
            |failed: &Failed| !failed.tests.is_empty() && !failed.tests.contains(&"?".into());
        let tests: usize = self.failed.iter().map(|failed| failed.tests.len()).sum();
        let is_it = (1..=FEW).contains(&tests) && self.failed.iter().all(named);
        is_it.then_some(&self.failed)
    }
}

/// The output of `cargo test`, read up to some line.
#[derive(Debug)]
struct Reading {
    tallies: Tallies,
    failed: Vec<Failed>,
}

impl Default for Reading {
    fn default() -> Reading {
        Reading { tallies: Tallies::new("     Running "), failed: Vec::new() }
    }
}

impl Reading {
    fn line(&mut self, line: &str) {
        self.tallies.line(line);
        // "error: test failed, to rerun pass `-p PACKAGE --test NAME`", after each program that failed.
        let failed = line.strip_prefix("error: ").and_then(|l| l.split_once(", to rerun pass `"));
        if let Some((_, program)) = failed {
            let program = program.trim_end_matches('`').split(' ').map(str::to_owned).collect();
            let tests = self.tallies.steps.last().map_or(Vec::new(), |step| step.failed.clone());
            self.failed.push(Failed { program, tests });
        }
    }

    fn end(self, passed: bool) -> Outcome {
        Outcome { passed, tests: self.tallies.total().passed, failed: self.failed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Outcome {
        let mut reading = Reading::default();
        text.lines().for_each(|line| reading.line(line));
        reading.end(false)
    }

    fn program(name: &str, failed: &[&str]) -> String {
        let mut text = format!("     Running tests/{name}.rs (target/debug/deps/{name}-1)\n\n");
        for test in ["one", "two", "three", "four"] {
            let word = if failed.contains(&test) { "FAILED" } else { "ok" };
            text += &format!("test {test} ... {word}\n");
        }
        if failed.is_empty() {
            return text + "\ntest result: ok. 4 passed; 0 failed; 0 ignored\n";
        }
        text += "\nfailures:\n\n---- one stdout ----\n    0: of a backtrace\n\nfailures:\n";
        failed.iter().for_each(|test| text += &format!("    {test}\n"));
        let (failed, passed) = (failed.len(), 4 - failed.len());
        text += &format!("\ntest result: FAILED. {passed} passed; {failed} failed; 0 ignored\n");
        text + &format!("\nerror: test failed, to rerun pass `-p p --test {name}`\n")
    }

    #[test]
    fn a_few_that_fail_run_again() {
        let outcome =
            read(&[program("a", &[]), program("b", &["two"]), program("c", &["one"])].concat());
        let failed = |name: &str, test: &str| Failed {
            program: ["-p", "p", "--test", name].map(str::to_owned).to_vec(),
            tests: vec![test.to_owned()],
        };
        assert_eq!(outcome.few(), Some(&[failed("b", "two"), failed("c", "one")][..]));
        assert_eq!(outcome.tests, 10);
    }

    #[test]
    fn many_that_fail_do_not() {
        let all = program("a", &["one", "two", "three", "four"]);
        assert_eq!(read(&all).few(), None);
        assert_eq!(
            read(&[program("a", &["one", "two"]), program("b", &["one", "two"])].concat()).few(),
            None
        );
    }

    #[test]
    fn a_program_that_crashed_or_was_not_made_does_not() {
        let crashed = "     Running tests/a.rs (a)\ntest one ... ok\n\
                       error: test failed, to rerun pass `-p p --test a`\n";
        assert_eq!(read(crashed).few(), None);
        assert_eq!(read(&(program("b", &["one"]) + crashed)).few(), None);
        assert_eq!(read("error: could not compile `p` (lib)\n").few(), None);
        let nameless = "     Running a\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n\
                        error: test failed, to rerun pass `-p p --test a`\n";
        assert_eq!(read(nameless).few(), None);
    }
}

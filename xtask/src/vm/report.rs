// SPDX-License-Identifier: Apache-2.0
//! The report at the end, and the exit status.

use super::console;
use super::job::Job;
use super::qemu::Run;
use super::status::Outcome;
use crate::tally::Tally;
use std::collections::BTreeMap;
use std::time::Duration;

/// The exit status when a guest was ended because its time was over, as `timeout` has it.
const TIMED_OUT: u8 = 124;
/// The exit status for a fault outside the tests.
const FAILED: u8 = 1;

/// The results on one kernel.
#[derive(Debug)]
pub struct Report {
    /// The kernel.
    pub kernel: String,
    /// The exit status that it asks for; 0 when all is well.
    pub code: u8,
    /// Lines to show.
    pub lines: Vec<String>,
}

impl Report {
    /// Sums up a run.
    pub fn new(kernel: &str, job: &Job, run: &Run, console: &str, took: Duration) -> Report {
        let mut lines = Vec::new();
        // Only steps that have begun have a tally.
        let tallies = run.tallies.steps.iter().map(Some).chain(std::iter::repeat(None));
        for ((step, outcome), tally) in job.steps.iter().zip(&run.status.steps).zip(tallies) {
            let told = tally.map_or(String::new(), |tally| format!(": {}", counts(tally)));
            lines.push(format!("{:32} {}{told}", step.label, describe(*outcome)));
            let Some(tally) = tally else { continue };
            lines.extend(tally.failed.iter().map(|test| format!("  failed: {test}")));
            lines.extend(reasons(tally));
        }
        let total = counts(&run.tallies.total());
        lines.push(format!("in all: {total}, in {:.0} s", took.as_secs_f64()));
        if !run.status.missing.is_empty() {
            lines.push(format!("  modules that are missing: {}", run.status.missing.join(", ")));
        }
        let complaints = console::complaints(console);
        lines.extend(complaints.iter().map(|line| format!("  kernel: {line}")));
        if run.timed_out {
            lines.push("  ended: its time was over".into());
        } else if !run.status.done {
            lines.push("  the guest died".into());
        }
        let code = code(run, !complaints.is_empty());
        Report { kernel: kernel.to_owned(), code, lines }
    }
}

fn counts(tally: &Tally) -> String {
    let (failed, skipped) = (tally.failed.len(), tally.skipped.len());
    // A skipped test ends with success.
    let passed = tally.passed.saturating_sub(skipped as u64);
    let ignored = match tally.ignored {
        0 => String::new(),
        ignored => format!(", {ignored} ignored"),
    };
    format!("{passed} passed, {failed} failed, {skipped} skipped{ignored}")
}

/// Returns the reasons for which tests did not run, each once: the text after a test's name.
fn reasons(tally: &Tally) -> impl Iterator<Item = String> {
    let mut tests: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for said in &tally.skipped {
        let (test, reason) = said.split_once(": ").unwrap_or(("", said));
        tests.entry(reason).or_default().push(test);
    }
    tests.into_iter().map(|(reason, tests)| match tests.as_slice() {
        [""] => format!("  skipped: {reason}"),
        [test] => format!("  skipped: {test}: {reason}"),
        tests => format!("  skipped: {} tests: {reason}", tests.len()),
    })
}

fn describe(outcome: Outcome) -> String {
    match outcome {
        Outcome::NotRun => "not run".into(),
        Outcome::Cut => "cut off".into(),
        Outcome::Ended(0, seconds) => format!("ok in {seconds:.0} s"),
        Outcome::Ended(TIMED_OUT, seconds) => format!("ENDED, it took longer than {seconds:.0} s"),
        Outcome::Ended(code, seconds) => format!("FAILED with {code} in {seconds:.0} s"),
    }
}

fn code(run: &Run, complaints: bool) -> u8 {
    let failed = run.status.steps.iter().find_map(|outcome| match outcome {
        Outcome::Ended(code, _) if *code != 0 => Some(*code),
        _ => None,
    });
    let well = run.status.done && !complaints;
    match failed {
        Some(code) => code,
        None if run.timed_out => TIMED_OUT,
        None if well => 0,
        None => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::Step;
    use super::super::qemu::STEP;
    use super::super::status::Status;
    use super::*;
    use crate::tally::Tallies;

    fn report(outcomes: &[Outcome], done: bool, timed_out: bool, console: &str) -> Report {
        let step = Step { label: "p t".into(), dir: "/".into(), words: Vec::new() };
        let job = Job { steps: vec![step; outcomes.len()], ..Job::default() };
        let mut status = Status::new(0);
        status.steps = outcomes.to_vec();
        status.done = done;
        let run = Run { status, tallies: Tallies::new(STEP), timed_out };
        Report::new("6.1", &job, &run, console, Duration::from_secs(5))
    }

    #[test]
    fn the_first_failure_is_the_exit_status() {
        let (ok, failed) = (Outcome::Ended(0, 1.0), Outcome::Ended(101, 2.0));
        assert_eq!(report(&[ok, ok], true, false, "").code, 0);
        assert_eq!(report(&[ok, failed, Outcome::Ended(3, 1.0)], true, false, "").code, 101);
        assert_eq!(report(&[ok, Outcome::Cut], false, true, "").code, 124);
        assert_eq!(report(&[ok, Outcome::Cut], false, false, "").code, 1);
    }

    #[test]
    fn a_kernel_that_warns_is_a_failure() {
        let report = report(&[Outcome::Ended(0, 1.0)], true, false, "[ 1.0] BUG: bad\n");
        assert_eq!(report.code, 1);
        assert_eq!(report.lines.last().map(String::as_str), Some("  kernel: [ 1.0] BUG: bad"));
    }

    #[test]
    fn reasons_are_reported_once() {
        let skipped = ["a: no card", "b: no card", "c: no disk", "odd"].map(str::to_owned).to_vec();
        let tally = Tally { passed: 9, skipped, ..Tally::default() };
        assert_eq!(counts(&tally), "5 passed, 0 failed, 4 skipped");
        let expected = ["  skipped: 2 tests: no card", "  skipped: c: no disk", "  skipped: odd"];
        assert_eq!(reasons(&tally).collect::<Vec<_>>(), expected);
    }
}

//! What is said at the end, and the exit status.

use super::console;
use super::job::Job;
use super::qemu::Run;
use super::status::Outcome;

/// The exit status when a guest was ended because its time was over, as `timeout` has it.
const TIMED_OUT: u8 = 124;
/// The exit status for what is wrong outside the tests.
const FAILED: u8 = 1;

/// What became of one kernel.
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
    pub fn new(kernel: &str, job: &Job, run: &Run, console: &str) -> Report {
        let mut lines = Vec::new();
        for (step, outcome) in job.steps.iter().zip(&run.status.steps) {
            lines.push(format!("{:32} {}", step.label, describe(*outcome)));
        }
        lines.extend(run.tally.failed.iter().map(|test| format!("  failed: {test}")));
        lines.extend(run.tally.skipped.iter().map(|test| format!("  skipped: {test}")));
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

fn describe(outcome: Outcome) -> String {
    match outcome {
        Outcome::NotRun => "not run".into(),
        Outcome::Cut => "cut off".into(),
        Outcome::Ended(0, seconds) => format!("ok in {seconds:.0} s"),
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
    use super::super::status::Status;
    use super::super::tally::Tally;
    use super::*;

    fn report(outcomes: &[Outcome], done: bool, timed_out: bool, console: &str) -> Report {
        let step = Step { label: "p t".into(), dir: "/".into(), words: Vec::new() };
        let job = Job { steps: vec![step; outcomes.len()], ..Job::default() };
        let mut status = Status::new(0);
        status.steps = outcomes.to_vec();
        status.done = done;
        Report::new("6.1", &job, &Run { status, tally: Tally::default(), timed_out }, console)
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
}

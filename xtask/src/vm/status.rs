// SPDX-License-Identifier: Apache-2.0
//! Results of steps, as the guest reports them; the format is in `run.sh`.

/// A line of the status port.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A module that the kernel does not have.
    Missing(String),
    /// The guest is up. Seconds since the start.
    Ready(f64),
    /// A step has begun. Its number, and seconds since the start.
    Begin(usize, f64),
    /// A step has ended. Its number, seconds since the start, and the exit status.
    End(usize, f64, u8),
    /// The guest is about to end.
    Done,
}

impl Event {
    /// Reads a line.
    pub fn parse(line: &str) -> Option<Event> {
        let words: Vec<&str> = line.split_whitespace().collect();
        Some(match words.as_slice() {
            ["missing", module] => Event::Missing((*module).to_owned()),
            ["ready", at] => Event::Ready(at.parse().ok()?),
            ["begin", step, at] => Event::Begin(step.parse().ok()?, at.parse().ok()?),
            ["end", step, at, code] => {
                Event::End(step.parse().ok()?, at.parse().ok()?, code.parse().ok()?)
            }
            ["done"] => Event::Done,
            _ => return None,
        })
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// It was not reached.
    NotRun,
    /// It had begun when the guest ended.
    Cut,
    /// It ended. The exit status, and how many seconds it took.
    Ended(u8, f64),
}

/// Everything that a guest has reported.
#[derive(Clone, Debug)]
pub struct Status {
    /// The result of each step.
    pub steps: Vec<Outcome>,
    /// Modules that the kernel does not have.
    pub missing: Vec<String>,
    /// Seconds until the first step.
    pub ready: Option<f64>,
    /// The guest ended by itself.
    pub done: bool,
    begun: f64,
}

impl Status {
    /// Creates the status before the start of a job with `steps` steps.
    pub fn new(steps: usize) -> Status {
        Status {
            steps: vec![Outcome::NotRun; steps],
            missing: Vec::new(),
            ready: None,
            done: false,
            begun: 0.0,
        }
    }

    /// Takes an event. One about a step that the job does not have is ignored.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Missing(module) => self.missing.push(module.clone()),
            Event::Ready(at) => self.ready = Some(*at),
            Event::Begin(step, at) => {
                self.begun = *at;
                self.set(*step, Outcome::Cut);
            }
            Event::End(step, at, code) => self.set(*step, Outcome::Ended(*code, at - self.begun)),
            Event::Done => self.done = true,
        }
    }

    fn set(&mut self, step: usize, outcome: Outcome) {
        if let Some(slot) = self.steps.get_mut(step) {
            *slot = outcome;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(steps: usize, text: &str) -> Status {
        let mut status = Status::new(steps);
        for event in text.lines().filter_map(Event::parse) {
            status.take(&event);
        }
        status
    }

    #[test]
    fn steps_end_or_are_cut_or_not_reached() {
        let status = status(3, "missing x\nready 2.5\nbegin 0 3\nend 0 4.5 101\nbegin 1 5\n");
        assert_eq!(status.steps, [Outcome::Ended(101, 1.5), Outcome::Cut, Outcome::NotRun]);
        assert_eq!((status.missing.len(), status.ready, status.done), (1, Some(2.5), false));
    }

    #[test]
    fn what_is_not_understood_is_ignored() {
        let status = status(1, "begin 7 1\nend 0 x 1\nend 0 1 999\nbegin\n\ndone now\n");
        assert_eq!(status.steps, [Outcome::NotRun]);
        assert!(!status.done);
    }
}

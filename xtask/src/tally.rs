// SPDX-License-Identifier: Apache-2.0
//! Counts of tests, from the output of test programs.

/// Counts of one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that run only on request (`#[ignore]`).
    pub ignored: u64,
    /// Names of the tests that failed.
    pub failed: Vec<String>,
    /// Messages of tests that do not run here, with the reason.
    pub skipped: Vec<String>,
}

/// Counts over an output, by step.
#[derive(Clone, Debug)]
pub struct Tallies {
    /// One for each step.
    pub steps: Vec<Tally>,
    /// A line with this prefix begins a step.
    step: &'static str,
    rest: Vec<u8>,
    /// Tests that the current program lists as failed; `None` outside such a list.
    listed: Option<Vec<String>>,
}

impl Tallies {
    /// Creates empty counts. A line that begins with `step` begins a step.
    pub fn new(step: &'static str) -> Tallies {
        Tallies { steps: Vec::new(), step, rest: Vec::new(), listed: None }
    }

    /// Takes the next piece of output.
    pub fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            self.line(String::from_utf8_lossy(&line).trim_end());
        }
    }

    /// Returns the sum over all steps.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        for step in &self.steps {
            total.passed += step.passed;
            total.ignored += step.ignored;
            total.failed.extend(step.failed.iter().cloned());
            total.skipped.extend(step.skipped.iter().cloned());
        }
        total
    }

    /// Takes the next line, without its line end.
    pub fn line(&mut self, line: &str) {
        if line.starts_with(self.step) {
            self.steps.push(Tally::default());
            self.listed = None;
        }
        let Some(tally) = self.steps.last_mut() else { return };
        if let Some((_, said)) = line.split_once("SKIPPED: ") {
            tally.skipped.push(said.to_owned());
        }
        // A program ends with two such lists: the output of failed tests, and their names.
        if line == "failures:" {
            self.listed = Some(Vec::new());
        } else if let Some(result) = line.strip_prefix("test result: ") {
            let mut listed = self.listed.take().unwrap_or_default();
            // Names may be lost in the output of others.
            listed.resize(count(result, " failed") as usize, "?".to_owned()); // of one program
            tally.failed.append(&mut listed);
            tally.passed += count(result, " passed");
            tally.ignored += count(result, " ignored");
        } else if let (Some(name), Some(listed)) = (line.strip_prefix("    "), &mut self.listed)
            && !name.is_empty()
            && !name.contains(' ')
        {
            listed.push(name.to_owned());
        }
    }
}

/// Returns the number before `word`, or 0.
fn count(text: &str, word: &str) -> u64 {
    let before = text.split(word).next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest() -> Tallies {
        Tallies::new("=== step ")
    }

    #[test]
    fn results_are_counted_over_pieces_and_by_step() {
        let text = "=== step 1 of 2: a\nrunning 3 tests\ntest a::b ... ok\nSKIPPED: c: no card\n\
                    test c ... ok\ntest d ... said something\nFAILED\n\nfailures:\n\n---- d stdout\n\
                    \u{20}   indented\n    two words\n\nfailures:\n    d\n\n\
                    test result: FAILED. 2 passed; 1 failed; 0 ignored;\n\
                    === step 2 of 2: b\ntest result: ok. 40 passed; 0 failed; 3 ignored\n";
        let mut tallies = guest();
        for piece in text.as_bytes().chunks(7) {
            tallies.take(piece);
        }
        let [first, second] = tallies.steps.as_slice() else { panic!("{tallies:?}") };
        assert_eq!((first.passed, second.passed, second.ignored), (2, 40, 3));
        assert_eq!(first.failed, ["d"]);
        assert_eq!(first.skipped, ["c: no card"]);
        assert_eq!(tallies.total().passed, 42);
        assert_eq!(second.failed, [""; 0]);
    }

    #[test]
    fn programs_of_one_step_add_up() {
        let mut tallies = guest();
        let failed = "failures:\n    x::y\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n";
        let text =
            format!("=== step 1 of 1: a\n{failed}test result: ok. 3 passed; 0 failed\n{failed}");
        tallies.take(text.as_bytes());
        assert_eq!(tallies.total().failed, ["x::y", "x::y"]);
        assert_eq!(tallies.total().passed, 5);
    }

    #[test]
    fn failures_without_names_are_counted() {
        let mut tallies = guest();
        tallies.take(b"=== step 1 of 1: a\ntest result: FAILED. 0 passed; 2 failed; 0 ignored\n");
        assert_eq!(tallies.total().failed, ["?", "?"]);
    }

    #[test]
    fn other_text_is_not_counted() {
        let mut tallies = guest();
        tallies.take(b"test result: nothing\n=== step 1\n\xff\xfe\ntests ... FAILED\n");
        assert_eq!(tallies.total(), Tally::default());
    }
}

//! What test programs print, counted.

/// Counts over every program of one guest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// The names of those that failed.
    pub failed: Vec<String>,
    /// Lines in which a test says that it does not run here, and why.
    pub skipped: Vec<String>,
    rest: Vec<u8>,
}

impl Tally {
    /// Takes the next piece of output.
    pub fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            self.line(String::from_utf8_lossy(&line).trim_end());
        }
    }

    fn line(&mut self, line: &str) {
        if let Some(at) = line.find("SKIPPED: ") {
            self.skipped.push(line[at + "SKIPPED: ".len()..].to_owned());
        }
        let Some(test) = line.strip_prefix("test ") else { return };
        if let Some(result) = test.strip_prefix("result: ") {
            self.passed += count(result, " passed");
        } else if let Some(name) = test.strip_suffix(" ... FAILED") {
            self.failed.push(name.to_owned());
        }
    }
}

/// The number before `word`.
fn count(text: &str, word: &str) -> u64 {
    let before = text.split(word).next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted_over_pieces() {
        let text = "running 3 tests\ntest a::b ... ok\nSKIPPED: c: no card\ntest c ... ok\n\
                    test d ... FAILED\n\ntest result: FAILED. 2 passed; 1 failed; 0 ignored;\n\
                    test result: ok. 40 passed; 0 failed\n";
        let mut tally = Tally::default();
        for piece in text.as_bytes().chunks(7) {
            tally.take(piece);
        }
        assert_eq!(tally.passed, 42);
        assert_eq!(tally.failed, ["d"]);
        assert_eq!(tally.skipped, ["c: no card"]);
    }

    #[test]
    fn other_text_is_not_counted() {
        let mut tally = Tally::default();
        tally.take(b"test result: nothing\n\xff\xfe\ntests ... FAILED\n");
        assert_eq!(tally, Tally::default());
    }
}

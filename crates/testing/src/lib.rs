//! For tests: what they owe to the machine that they run on.

#![forbid(unsafe_code)]

use std::io::Write;
use std::time::Duration;

/// What deadlines are multiplied by.
const PATIENCE: &str = "SLIPSWITCH_TEST_PATIENCE";

/// Says on standard error that the calling thread's test does not run, and why: a sentence that
/// names what is missing.
///
/// The test runner keeps what a test prints to itself when the test passes, and a test that does not
/// run passes. What is said here goes past it. `cargo xtask vm` counts it.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test");
    // In one write, so that no other test's words are in it.
    let _ = std::io::stderr().write_all(format!("SKIPPED: {test}: {reason}\n").as_bytes());
}

/// A deadline as this machine needs it: `timeout`, times `SLIPSWITCH_TEST_PATIENCE` where that is
/// set. Only for what ends as soon as what is waited for is there.
///
/// # Panics
/// When the variable is no number from 1 to 1000.
pub fn patient(timeout: Duration) -> Duration {
    let Ok(text) = std::env::var(PATIENCE) else { return timeout };
    match factor(&text) {
        Some(factor) => timeout * factor,
        None => panic!("{PATIENCE}={text}: a number from 1 to 1000 is wanted"),
    }
}

fn factor(text: &str) -> Option<u32> {
    text.parse().ok().filter(|n| (1..=1000).contains(n))
}

#[cfg(test)]
mod tests {
    use super::factor;

    #[test]
    fn the_factor_is_a_number_that_makes_sense() {
        assert_eq!(factor("5"), Some(5));
        for text in ["", "0", "-1", "1001", "two"] {
            assert_eq!(factor(text), None, "{text}");
        }
    }
}

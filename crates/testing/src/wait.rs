// SPDX-License-Identifier: Apache-2.0
//! Waiting for something that happens soon.

use std::thread;
use std::time::{Duration, Instant};

/// The environment variable with the factor by which deadlines are multiplied.
const PATIENCE: &str = "SLIPSWITCH_TEST_PATIENCE";

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

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

/// Looks until `condition` holds; false when it still does not after `timeout`, of [`patient`].
pub fn wait_until(timeout: Duration, mut condition: impl FnMut() -> bool) -> bool {
    wait_for(timeout, || condition().then_some(())).is_some()
}

/// Looks until there is something to see; `None` when there still is not after `timeout`, of
/// [`patient`].
pub fn wait_for<T>(timeout: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + patient(timeout);
    loop {
        if let Some(seen) = look() {
            return Some(seen);
        }
        if Instant::now() >= end {
            return None;
        }
        thread::sleep(PAUSE);
    }
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

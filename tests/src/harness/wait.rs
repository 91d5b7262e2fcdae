//! Waiting for something that happens soon.

pub use testing::patient;

use std::thread;
use std::time::{Duration, Instant};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

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

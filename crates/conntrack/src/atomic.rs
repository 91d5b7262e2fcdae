// SPDX-License-Identifier: Apache-2.0
//! The atomic words of the table. In tests of interleavings each access may let another thread run.

#[cfg(not(test))]
pub use std::sync::atomic::AtomicU64;
pub use std::sync::atomic::{Ordering, fence};

#[cfg(test)]
pub use scheduled::{AtomicU64, set_scheduled};

#[cfg(test)]
mod scheduled {
    use super::Ordering;
    use std::cell::Cell;
    use std::time::Duration;

    thread_local! {
        static IS_SCHEDULED: Cell<bool> = const { Cell::new(false) };
    }

    /// Sets whether shuttle runs the threads of this thread's scene.
    pub fn set_scheduled(on: bool) {
        IS_SCHEDULED.set(on);
    }

    /// Lets another thread run, if shuttle chooses so.
    fn point() {
        if IS_SCHEDULED.get() && !std::thread::panicking() {
            shuttle::thread::sleep(Duration::ZERO); // no more than a choice: shuttle has no time
        }
    }

    /// A word like the standard library's.
    #[derive(Debug, Default)]
    pub struct AtomicU64(std::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub const fn new(value: u64) -> AtomicU64 {
            AtomicU64(std::sync::atomic::AtomicU64::new(value))
        }

        pub fn load(&self, order: Ordering) -> u64 {
            point();
            self.0.load(order)
        }

        pub fn store(&self, value: u64, order: Ordering) {
            point();
            self.0.store(value, order);
        }

        pub fn compare_exchange(
            &self,
            old: u64,
            new: u64,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            point();
            self.0.compare_exchange(old, new, success, failure)
        }

        pub fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
            point();
            self.0.fetch_add(value, order)
        }

        pub fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
            point();
            self.0.fetch_sub(value, order)
        }

        pub fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
            point();
            self.0.fetch_and(value, order)
        }

        pub fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
            point();
            self.0.fetch_or(value, order)
        }
    }
}

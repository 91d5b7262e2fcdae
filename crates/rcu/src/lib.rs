// SPDX-License-Identifier: Apache-2.0
//! Publication of immutable state to packet threads.
//!
//! One writer publishes a new `Arc<T>` now and then; many packet threads read the newest one with
//! every batch. A [`Reader`] keeps the last `Arc` that it saw and compares one version number (a
//! single acquire load, no shared write) to find out whether there is a newer one. Only then does
//! it take the lock and clone. The lock is held for a clone or a swap of an `Arc`, so no reader
//! waits for the writer to make a snapshot. A reader that stalls only keeps its old snapshot alive:
//! nothing waits for the reader, so a stalled packet thread cannot block the control plane, and
//! there are no grace periods.
//!
//! Consistency: a reader may act on a snapshot that was replaced a moment ago (the
//! revalidator repairs what that installs), never on an incomplete one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug)]
struct Shared<T> {
    version: AtomicU64,
    newest: Mutex<Arc<T>>,
}

/// The writing end. Clones publish to the same readers; the last publication wins.
#[derive(Debug)]
pub struct Publisher<T>(Arc<Shared<T>>);

impl<T> Clone for Publisher<T> {
    fn clone(&self) -> Self {
        Publisher(Arc::clone(&self.0))
    }
}

impl<T> Publisher<T> {
    /// Returns a publisher of `first`, which is version 1.
    pub fn new(first: Arc<T>) -> Self {
        Publisher(Arc::new(Shared { version: AtomicU64::new(1), newest: Mutex::new(first) }))
    }

    /// Replaces what readers see. Returns the version of `next`.
    pub fn publish(&self, next: Arc<T>) -> u64 {
        let mut newest = self.0.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *newest, next);
        let version = self.0.version.fetch_add(1, Ordering::Release) + 1;
        drop(newest);
        drop(old); // may be the last reference to a large snapshot: not under the lock
        version
    }

    /// Returns the newest snapshot.
    pub fn newest(&self) -> Arc<T> {
        Arc::clone(&self.0.newest.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the version of the newest snapshot; each publication increments it.
    pub fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    /// Returns a new reading end, for one thread.
    pub fn reader(&self) -> Reader<T> {
        let newest = self.0.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.0.version.load(Ordering::Acquire);
        Reader { shared: Arc::clone(&self.0), seen: Arc::clone(&newest), version }
    }
}

/// The reading end of one thread; see the module's text for its cost.
#[derive(Debug)]
pub struct Reader<T> {
    shared: Arc<Shared<T>>,
    seen: Arc<T>,
    version: u64,
}

impl<T> Clone for Reader<T> {
    fn clone(&self) -> Self {
        Reader {
            shared: Arc::clone(&self.shared),
            seen: Arc::clone(&self.seen),
            version: self.version,
        }
    }
}

impl<T> Reader<T> {
    /// Returns the newest snapshot, at the cost of one load when nothing was published.
    pub fn read(&mut self) -> &Arc<T> {
        if self.shared.version.load(Ordering::Acquire) != self.version {
            let newest = self.shared.newest.lock().unwrap_or_else(PoisonError::into_inner);
            self.version = self.shared.version.load(Ordering::Acquire);
            let old = std::mem::replace(&mut self.seen, Arc::clone(&newest));
            drop(newest);
            drop(old);
        }
        &self.seen
    }

    /// Returns the version of the snapshot that the last [`Reader::read`] returned.
    pub fn version(&self) -> u64 {
        self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_the_newest_publication() {
        let p = Publisher::new(Arc::new(1));
        let mut r = p.reader();
        assert_eq!(**r.read(), 1);
        assert_eq!(p.publish(Arc::new(2)), 2);
        assert_eq!(**r.read(), 2);
        assert_eq!(r.version(), 2);
    }

    #[test]
    fn version_and_value_never_disagree() {
        // The value is its own version: a torn pair would show as a difference.
        let p = Publisher::new(Arc::new(1u64));
        let writer = p.clone();
        let t = std::thread::spawn(move || {
            for v in 2..=20_000u64 {
                assert_eq!(writer.publish(Arc::new(v)), v);
            }
        });
        let mut r = p.reader();
        let mut last = 0;
        while last < 20_000 {
            let v = **r.read();
            assert_eq!(v, r.version());
            assert!(v >= last);
            last = v;
        }
        t.join().unwrap();
    }

    #[test]
    fn an_old_snapshot_lives_only_as_long_as_its_readers() {
        let first = Arc::new(());
        let weak = Arc::downgrade(&first);
        let p = Publisher::new(first);
        let mut r = p.reader();
        p.publish(Arc::new(()));
        assert!(weak.upgrade().is_some());
        r.read();
        assert!(weak.upgrade().is_none());
    }
}

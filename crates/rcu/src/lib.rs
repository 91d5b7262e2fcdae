// SPDX-License-Identifier: Apache-2.0
//! Publication of immutable state to packet threads.
//!
//! One writer publishes a new `Arc<T>` now and then; many packet threads look at the newest
//! one on every batch. A [`Reader`] keeps the last `Arc` it saw and compares one version
//! number (a single acquire load, no shared write) to learn whether there is a newer one;
//! only then does it take the lock and clone. A reader that never comes back merely keeps
//! its old snapshot alive: nothing waits for it, so a stalled packet thread cannot block
//! the control plane, and no grace period has to be reasoned about.
//!
//! What errs on which side: a reader may act on a snapshot that was replaced a moment ago
//! (the revalidator repairs what that installs), never on a half-made one.
//!
//! A publication can be announced ([`Publisher::announce`]): somebody is told that a change holds
//! while it is still being made. Who reads after that waits for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
struct Shared<T> {
    /// Of the newest publication, also when it is only announced.
    version: AtomicU64,
    published: Mutex<Published<T>>,
    /// What was announced is published, or will not be.
    is_there: Condvar,
}

#[derive(Debug)]
struct Published<T> {
    last: Arc<T>,
    /// Of `last`: lower than that of readers when the next one is announced.
    version: u64,
}

impl<T> Shared<T> {
    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Published<T>> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is published, once that has come which is announced by now.
    fn settled(&self) -> MutexGuard<'_, Published<T>> {
        let (published, wanted) = (self.lock(), self.version());
        self.is_there
            .wait_while(published, |p| p.version < wanted)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What was announced, or the next if nothing was, is there. Returns its version.
    fn arrived(&self, published: &mut Published<T>) -> u64 {
        self.announce(published);
        published.version = self.version();
        self.is_there.notify_all();
        published.version
    }

    fn announce(&self, published: &mut Published<T>) {
        if published.version == self.version() {
            self.version.fetch_add(1, Ordering::Release);
        }
    }
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
    /// Starts with `first` as version 1.
    pub fn new(first: Arc<T>) -> Self {
        Publisher(Arc::new(Shared {
            version: AtomicU64::new(1),
            published: Mutex::new(Published { last: first, version: 1 }),
            is_there: Condvar::new(),
        }))
    }

    /// Replaces what readers see. Returns the version that `next` got.
    pub fn publish(&self, next: Arc<T>) -> u64 {
        let mut published = self.0.lock();
        let old = std::mem::replace(&mut published.last, next);
        let version = self.0.arrived(&mut published);
        drop(published);
        drop(old); // may be the last reference to a large snapshot: not under the lock
        version
    }

    /// From now on readers wait for the next [`Publisher::publish`], which is to follow at once, or
    /// [`Publisher::withdraw`]. What the caller reads until then is [`Publisher::last`]: it would
    /// wait for itself.
    pub fn announce(&self) {
        self.0.announce(&mut self.0.lock());
    }

    /// Nothing will follow that was announced, if it was: readers go on with what is there, as
    /// if it had been published again.
    pub fn withdraw(&self) {
        let mut published = self.0.lock();
        if published.version < self.version() {
            self.0.arrived(&mut published);
        }
    }

    /// The newest snapshot; waits for one that is announced.
    pub fn newest(&self) -> Arc<T> {
        Arc::clone(&self.0.settled().last)
    }

    /// What was published last, though more may be announced: for those who publish.
    pub fn last(&self) -> Arc<T> {
        Arc::clone(&self.0.lock().last)
    }

    /// The number of the newest snapshot, also when it is only announced; grows by one with each
    /// publication.
    pub fn version(&self) -> u64 {
        self.0.version()
    }

    /// A new reading end, for one thread.
    pub fn reader(&self) -> Reader<T> {
        let published = self.0.settled();
        let (seen, version) = (Arc::clone(&published.last), published.version);
        Reader { shared: Arc::clone(&self.0), seen, version }
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
    /// The newest snapshot, at the cost of one load when nothing was published. Waits for one that is
    /// announced.
    pub fn read(&mut self) -> &Arc<T> {
        if self.shared.version() != self.version {
            let published = self.shared.settled();
            self.version = published.version;
            let old = std::mem::replace(&mut self.seen, Arc::clone(&published.last));
            drop(published);
            drop(old);
        }
        &self.seen
    }

    /// The version that the last [`Reader::read`] gave.
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

    #[test]
    fn readers_wait_for_what_is_announced() {
        let p = Publisher::new(Arc::new(1));
        let mut r = p.reader();
        p.announce();
        p.announce(); // once more is no other
        assert_eq!((p.version(), *p.last()), (2, 1));
        let other = p.clone();
        let (read, newest) = (
            std::thread::spawn(move || (**r.read(), r.version())),
            std::thread::spawn(move || *other.newest()),
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!read.is_finished() && !newest.is_finished());
        assert_eq!(p.publish(Arc::new(2)), 2);
        assert_eq!(read.join().unwrap(), (2, 2));
        assert_eq!(newest.join().unwrap(), 2);
        assert_eq!(p.publish(Arc::new(3)), 3, "that was not announced");
    }

    #[test]
    fn readers_are_not_kept_waiting_by_one_announcement_after_the_other() {
        let p = Publisher::new(Arc::new(1u64));
        let writer = p.clone();
        let t = std::thread::spawn(move || {
            for v in 2..=20_000u64 {
                writer.announce();
                assert_eq!(*writer.last(), v - 1);
                assert_eq!(writer.publish(Arc::new(v)), v);
            }
        });
        let mut r = p.reader();
        let mut last = 0;
        while last < 20_000 {
            let (before, v) = (p.version(), **r.read());
            assert_eq!(v, r.version());
            assert!(v >= before && v >= last, "{v} is no answer after {before}, {last}");
            last = v;
        }
        t.join().unwrap();
    }

    #[test]
    fn what_is_withdrawn_is_not_waited_for() {
        let p = Publisher::new(Arc::new(1));
        let mut r = p.reader();
        p.withdraw(); // of nothing
        assert_eq!(p.version(), 1);
        p.announce();
        let read = std::thread::spawn(move || (**r.read(), r.version()));
        p.withdraw();
        assert_eq!(read.join().unwrap(), (1, 2));
        assert_eq!(p.publish(Arc::new(3)), 3);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Grace: when no thread can still hold the number of a slot that it read earlier.
//!
//! A packet thread pins its epoch while it processes a batch. The epoch is odd then. Grace has
//! passed once each epoch that was odd at its start has changed.

use crate::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

/// An epoch on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Epoch(AtomicU64);

/// The epochs of all packet threads of this process.
#[derive(Debug, Default)]
pub struct Epochs(Mutex<Vec<Arc<Epoch>>>);

/// The entrance of one packet thread to the connection table.
#[derive(Debug)]
pub struct Worker {
    epoch: Arc<Epoch>,
    /// The ring from which the thread takes free slots first, and its shard of the totals.
    number: usize,
}

/// Slots that its thread reads from the table stay what they are while this value lives. It lives
/// as long as a batch: the sweeper frees no slot meanwhile.
#[derive(Debug)]
pub struct Pinned<'w> {
    worker: &'w Worker,
}

/// The state of all epochs at one moment.
#[derive(Debug)]
pub struct Grace(Vec<(Arc<Epoch>, u64)>);

impl Epochs {
    /// Adds a packet thread. It counts until the worker is dropped.
    pub fn worker(&self) -> Worker {
        let epoch = Arc::new(Epoch::default());
        let mut epochs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        epochs.push(epoch.clone());
        Worker { epoch, number: epochs.len() - 1 }
    }

    /// Begins a grace period. Threads that end their batches end it.
    pub fn begin(&self) -> Grace {
        fence(Ordering::SeqCst);
        let mut epochs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        epochs.retain(|epoch| Arc::strong_count(epoch) > 1);
        let busy = |epoch: &Arc<Epoch>| {
            let value = epoch.0.load(Ordering::SeqCst);
            (value % 2 == 1).then(|| (epoch.clone(), value))
        };
        Grace(epochs.iter().filter_map(busy).collect())
    }
}

impl Grace {
    /// Returns true when the grace period is over.
    pub fn has_passed(&mut self) -> bool {
        self.0.retain(|(epoch, value)| epoch.0.load(Ordering::SeqCst) == *value);
        self.0.is_empty()
    }
}

impl Worker {
    /// Pins the thread's epoch for a batch.
    pub fn pin(&mut self) -> Pinned<'_> {
        self.epoch.0.fetch_add(1, Ordering::SeqCst);
        // The epoch is odd before the first word of the table is read.
        fence(Ordering::SeqCst);
        Pinned { worker: self }
    }
}

impl Pinned<'_> {
    /// Returns the number of the worker.
    pub(crate) fn number(&self) -> usize {
        self.worker.number
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.worker.epoch.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_waits_for_batches_that_began_before_it() {
        let epochs = Epochs::default();
        let (mut a, mut b) = (epochs.worker(), epochs.worker());
        let pinned = a.pin();
        let mut grace = epochs.begin();
        assert!(!grace.has_passed());
        let later = b.pin();
        drop(pinned);
        assert!(grace.has_passed()); // b began after it
        let mut grace = epochs.begin();
        let _next = a.pin();
        assert!(!grace.has_passed());
        drop(later);
        assert!(grace.has_passed());
    }
}

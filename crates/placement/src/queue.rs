// SPDX-License-Identifier: Apache-2.0
//! Flows on their way to the providers.
//!
//! A flow is installed while userspace processes its first packet. If a provider got the flow at
//! once, the next packet could overtake the first. So a flow that is installed within a batch from
//! a miss device waits until that batch is processed and sent. While more packets of its port are
//! on their way up, it waits for some more batches.

use datapath::{PortNo, Ufid};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Largest number of batches for which a flow waits while packets of its port are on their way up.
/// In a flood there always are such packets. A batch takes some tens of microseconds.
const MOST_BATCHES: u8 = 16;
/// Largest number of flows without a batch of their own that are taken at the end of a batch.
const STRAYS_AT_ONCE: usize = 32;

/// The number, from 1, of the miss device that a batch comes from; 0 stands for any.
pub(crate) type BatchSource = u32;

thread_local! {
    /// The source of the batch that this thread is processing.
    static BATCH: Cell<BatchSource> = const { Cell::new(0) };
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    ufid: Ufid,
    in_port: PortNo,
    source: BatchSource,
    /// Batches for which the flow still waits, at most.
    batches_left: u8,
    /// [`Queue::overdue`] was called since the flow was queued.
    old: bool,
}

/// The queue of flows that wait for the end of a batch. All threads share it.
#[derive(Debug, Default)]
pub(crate) struct Queue(Mutex<VecDeque<Waiting>>);

/// Returns the source of the batch that this thread is processing; `None` outside a batch.
pub(crate) fn present_batch() -> Option<BatchSource> {
    Some(BATCH.get()).filter(|source| *source != 0)
}

/// Notes that this thread begins to process a batch of `source`.
pub(crate) fn begin_batch(source: BatchSource) {
    BATCH.set(source);
}

/// Notes that this thread has processed its batch and sent the packets.
pub(crate) fn end_batch() {
    BATCH.set(0);
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a flow that waits for the end of a batch of `source`, or of any batch when `source` is
    /// 0.
    pub(crate) fn push(&self, ufid: Ufid, in_port: PortNo, source: BatchSource) {
        self.lock().push_back(Waiting {
            ufid,
            in_port,
            source,
            batches_left: MOST_BATCHES,
            old: false,
        });
    }

    /// Removes and returns the flows that wait no longer at the end of a batch of `source`.
    /// `is_on_its_way` returns true for ports that have packets on their way up.
    pub(crate) fn ready(
        &self,
        source: BatchSource,
        mut is_on_its_way: impl FnMut(PortNo) -> bool,
    ) -> Vec<Ufid> {
        let mut queue = self.lock();
        let mut ready = Vec::new();
        let mut strays = STRAYS_AT_ONCE;
        queue.retain_mut(|waiting| {
            let is_stray = waiting.source == 0;
            if !is_stray && waiting.source != source || is_stray && strays == 0 {
                return true;
            }
            waiting.batches_left = waiting.batches_left.saturating_sub(1);
            if waiting.batches_left > 0 && is_on_its_way(waiting.in_port) {
                return true;
            }
            strays -= usize::from(is_stray);
            ready.push(waiting.ufid);
            false
        });
        ready
    }

    /// Removes and returns the flows that have waited since before the last call. No batch ended
    /// that would have taken them.
    pub(crate) fn overdue(&self) -> Vec<Ufid> {
        let mut overdue = Vec::new();
        self.lock().retain_mut(|waiting| {
            if waiting.old {
                overdue.push(waiting.ufid);
            }
            !std::mem::replace(&mut waiting.old, true)
        });
        overdue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_waits_for_its_batch_and_its_port() {
        let queue = Queue::default();
        queue.push(Ufid(1), PortNo(1), 1);
        queue.push(Ufid(2), PortNo(2), 2);
        queue.push(Ufid(3), PortNo(3), 1);
        assert_eq!(queue.ready(1, |port| port == PortNo(1)), [Ufid(3)]);
        assert_eq!(queue.ready(1, |_| false), [Ufid(1)]);
        assert_eq!(queue.ready(1, |_| false), []);
        assert_eq!(queue.ready(2, |_| false), [Ufid(2)]);
    }

    #[test]
    fn a_flood_does_not_keep_a_flow_out_for_ever() {
        let queue = Queue::default();
        queue.push(Ufid(1), PortNo(1), 1);
        let turns = (1..100).find(|_| !queue.ready(1, |_| true).is_empty());
        assert_eq!(turns, Some(usize::from(MOST_BATCHES)));
    }

    #[test]
    fn strays_go_with_any_batch_or_when_overdue() {
        let queue = Queue::default();
        for n in 0..40 {
            queue.push(Ufid(n), PortNo(1), 0);
        }
        assert_eq!(queue.ready(7, |_| false).len(), STRAYS_AT_ONCE);
        assert_eq!(queue.overdue().len(), 0);
        assert_eq!(queue.overdue().len(), 8);
        assert_eq!(queue.overdue().len(), 0);
    }
}

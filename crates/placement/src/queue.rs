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
/// Largest number of flows without a batch of their own that are checked at the end of a batch. A
/// review may queue hundreds of thousands of them.
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

#[derive(Debug, Default)]
struct Lists {
    /// Flows that wait for a batch of their source.
    of_batches: VecDeque<Waiting>,
    /// Flows that go with any batch.
    strays: VecDeque<Waiting>,
}

/// The queue of flows that wait for the end of a batch. All threads share it.
#[derive(Debug, Default)]
pub(crate) struct Queue(Mutex<Lists>);

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
    fn lock(&self) -> MutexGuard<'_, Lists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a flow that waits for the end of a batch of `source`, or of any batch when `source` is
    /// 0.
    pub(crate) fn push(&self, ufid: Ufid, in_port: PortNo, source: BatchSource) {
        let waiting = Waiting { ufid, in_port, source, batches_left: MOST_BATCHES, old: false };
        let mut lists = self.lock();
        let list = if source == 0 { &mut lists.strays } else { &mut lists.of_batches };
        list.push_back(waiting);
    }

    /// Removes and returns the flows that wait no longer at the end of a batch of `source`.
    /// `is_on_its_way` returns true for ports that have packets on their way up.
    pub(crate) fn ready(
        &self,
        source: BatchSource,
        mut is_on_its_way: impl FnMut(PortNo) -> bool,
    ) -> Vec<Ufid> {
        let mut waits_on = |waiting: &mut Waiting| {
            waiting.batches_left = waiting.batches_left.saturating_sub(1);
            waiting.batches_left > 0 && is_on_its_way(waiting.in_port)
        };
        let mut ready = Vec::new();
        let mut lists = self.lock();
        lists.of_batches.retain_mut(|waiting| {
            let stays = waiting.source != source || waits_on(waiting);
            if !stays {
                ready.push(waiting.ufid);
            }
            stays
        });
        for _ in 0..lists.strays.len().min(STRAYS_AT_ONCE) {
            let Some(mut stray) = lists.strays.pop_front() else { break };
            if waits_on(&mut stray) {
                lists.strays.push_back(stray);
            } else {
                ready.push(stray.ufid);
            }
        }
        ready
    }

    /// Removes and returns the flows that have waited since before the last call. No batch ended
    /// that would have taken them.
    pub(crate) fn overdue(&self) -> Vec<Ufid> {
        let mut overdue = Vec::new();
        let Lists { of_batches, strays } = &mut *self.lock();
        for list in [of_batches, strays] {
            list.retain_mut(|waiting| {
                if waiting.old {
                    overdue.push(waiting.ufid);
                }
                !std::mem::replace(&mut waiting.old, true)
            });
        }
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

    #[test]
    fn the_end_of_a_batch_checks_few_strays() {
        let queue = Queue::default();
        for n in 0..1000 {
            queue.push(Ufid(n), PortNo(1), 0);
        }
        queue.push(Ufid(1000), PortNo(2), 7);
        let mut checked = 0;
        let ready = queue.ready(7, |port| {
            checked += 1;
            port == PortNo(1)
        });
        assert_eq!((ready, checked), (vec![Ufid(1000)], STRAYS_AT_ONCE + 1));
        // The strays that wait on let the others go first.
        assert_eq!(queue.ready(7, |_| false)[0], Ufid(STRAYS_AT_ONCE as u128));
        let left: usize = (0..31).map(|_| queue.ready(7, |_| false).len()).sum();
        assert_eq!(left, 1000 - STRAYS_AT_ONCE);
    }
}

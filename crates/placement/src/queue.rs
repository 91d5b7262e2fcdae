// SPDX-License-Identifier: Apache-2.0
//! Flows on their way to the fast path.
//!
//! A flow is installed while its first packet is being processed in userspace. Were it put into
//! the fast path at once, the next packet could overtake the first. So a flow that is installed
//! in the midst of a batch from the miss device waits until that batch is processed and sent,
//! and, while more packets of its port are on their way up, for some more batches.

use datapath::{PortNo, Ufid};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Batches that a flow waits for packets of its port that are still on their way up. In a flood
/// there always are some; a batch takes some tens of microseconds.
const PATIENCE: u8 = 16;
/// Flows that wait for no batch in particular, taken at the end of one.
const STRAYS_AT_ONCE: usize = 32;

/// Who hands batches over: a number from 1; 0 is nobody in particular.
pub(crate) type Giver = u32;

thread_local! {
    /// The giver of the batch that this thread is processing.
    static BATCH: Cell<Giver> = const { Cell::new(0) };
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    ufid: Ufid,
    in_port: PortNo,
    giver: Giver,
    patience: u8,
    /// [`Queue::overdue`] went by once.
    old: bool,
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Queue(Mutex<VecDeque<Waiting>>);

/// The giver of the batch that this thread is processing, if it is.
pub(crate) fn present_batch() -> Option<Giver> {
    Some(BATCH.get()).filter(|giver| *giver != 0)
}

/// This thread begins to process a batch of `giver`.
pub(crate) fn begin_batch(giver: Giver) {
    BATCH.set(giver);
}

/// This thread has processed its batch and sent what was to be sent.
pub(crate) fn end_batch() {
    BATCH.set(0);
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A flow waits for the end of `giver`'s batch, or of any, when that is 0.
    pub(crate) fn push(&self, ufid: Ufid, in_port: PortNo, giver: Giver) {
        self.lock().push_back(Waiting { ufid, in_port, giver, patience: PATIENCE, old: false });
    }

    /// The flows that wait no longer at the end of a batch of `giver`. `is_on_its_way` tells of
    /// ports that have packets on their way up.
    pub(crate) fn ready(
        &self,
        giver: Giver,
        mut is_on_its_way: impl FnMut(PortNo) -> bool,
    ) -> Vec<Ufid> {
        let mut queue = self.lock();
        let mut ready = Vec::new();
        let mut strays = STRAYS_AT_ONCE;
        queue.retain_mut(|waiting| {
            let is_stray = waiting.giver == 0;
            if !is_stray && waiting.giver != giver || is_stray && strays == 0 {
                return true;
            }
            waiting.patience = waiting.patience.saturating_sub(1);
            if waiting.patience > 0 && is_on_its_way(waiting.in_port) {
                return true;
            }
            strays -= usize::from(is_stray);
            ready.push(waiting.ufid);
            false
        });
        ready
    }

    /// The flows that waited since the last call: no batch ended that they could wait for.
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
        assert_eq!(turns, Some(usize::from(PATIENCE)));
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

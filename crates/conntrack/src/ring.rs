// SPDX-License-Identifier: Apache-2.0
//! A ring of free slots: many takers, one giver.

use crate::atomic::{AtomicU64, Ordering};
use crate::layout::ring::{CELLS, HEAD, TAIL};

/// Tries of a taker before it gives up the ring: each failure means that another taker succeeded.
const TRIES: usize = 64;

/// A view of a ring's words.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a> {
    head: &'a AtomicU64,
    tail: &'a AtomicU64,
    cells: &'a [AtomicU64],
}

impl<'a> Ring<'a> {
    /// Returns a view. `None`: the words are too few for a ring.
    pub fn new(words: &'a [AtomicU64]) -> Option<Ring<'a>> {
        let cells = words.get(CELLS..).filter(|cells| !cells.is_empty())?;
        Some(Ring { head: words.get(HEAD)?, tail: words.get(TAIL)?, cells })
    }

    /// Returns the number of slots that the ring can hold.
    pub fn capacity(&self) -> usize {
        self.cells.len() * 2
    }

    /// Returns the number of slots in the ring.
    pub fn len(&self) -> usize {
        let head = self.head.load(Ordering::Acquire);
        let len = self.tail.load(Ordering::Acquire).wrapping_sub(head) as usize;
        len.min(self.capacity())
    }

    /// Returns true when the ring does not claim to hold more than it can.
    pub fn is_plausible(&self) -> bool {
        let head = self.head.load(Ordering::Acquire);
        self.tail.load(Ordering::Acquire).wrapping_sub(head) <= self.capacity() as u64
    }

    fn slot(&self, position: u64) -> u32 {
        let at = (position % self.capacity() as u64) as usize;
        let cell = self.cells.get(at / 2).map_or(0, |cell| cell.load(Ordering::Acquire));
        (cell >> (at % 2 * 32)) as u32
    }

    /// Takes a slot. `None`: the ring is empty, or other takers were faster each time.
    pub fn take(&self) -> Option<u32> {
        for _ in 0..TRIES {
            let head = self.head.load(Ordering::Acquire);
            if head == self.tail.load(Ordering::Acquire) {
                return None;
            }
            let slot = self.slot(head);
            if self
                .head
                .compare_exchange(head, head.wrapping_add(1), Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
            {
                return Some(slot);
            }
        }
        None
    }

    /// Puts a slot in; only the sweeper may. Returns false when the ring is full.
    pub fn put(&self, slot: u32) -> bool {
        let tail = self.tail.load(Ordering::Acquire);
        if self.len() >= self.capacity() {
            return false;
        }
        let at = (tail % self.capacity() as u64) as usize;
        let Some(cell) = self.cells.get(at / 2) else {
            return false;
        };
        // Takers read the other half at this moment; the value of that half stays the same.
        let shift = at % 2 * 32;
        let other = cell.load(Ordering::Relaxed) & !(0xffff_ffff << shift);
        cell.store(other | u64::from(slot) << shift, Ordering::Release);
        self.tail.store(tail.wrapping_add(1), Ordering::SeqCst);
        true
    }

    /// Calls `each` with all slots that are in the ring at this moment.
    pub fn each(&self, mut each: impl FnMut(u32)) {
        let head = self.head.load(Ordering::Acquire);
        for ahead in 0..self.len() {
            each(self.slot(head.wrapping_add(ahead as u64)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_out_in_order_and_the_ring_fills() {
        let words: Vec<_> = (0..CELLS + 2).map(|_| AtomicU64::new(0)).collect();
        let ring = Ring::new(&words).unwrap();
        for round in 0..10 {
            for slot in 0..4 {
                assert!(ring.put(round * 4 + slot));
            }
            assert!(!ring.put(99));
            let mut seen = Vec::new();
            ring.each(|slot| seen.push(slot));
            for slot in 0..4 {
                assert_eq!(ring.take(), Some(round * 4 + slot));
                assert_eq!(seen[slot as usize], round * 4 + slot);
            }
            assert_eq!(ring.take(), None);
        }
    }
}

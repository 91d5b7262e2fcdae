// SPDX-License-Identifier: Apache-2.0
//! The set of megaflows that have counted packets since a sweep last asked.
//!
//! Each megaflow of the table has a slot, and here a bit. A thread that counts packets of a megaflow
//! sets the bit; a sweep takes the bits and reads the megaflows that they stand for. Both do so in
//! this order with the megaflow's lock: a thread counts and sets the bit while it holds the lock,
//! and a sweep takes the bit before it takes the lock. So a sweep that takes the bit reads
//! the count, and a count after that reading sets the bit again.

use std::sync::atomic::{AtomicU64, Ordering};

/// A bit for each slot of the table.
pub(crate) struct Moved(Box<[AtomicU64]>);

/// Number of slots in one word.
pub(crate) const SLOTS_OF_WORD: usize = u64::BITS as usize;

impl Moved {
    /// Returns a set for slots below `slots`, without any.
    pub(crate) fn new(slots: usize) -> Moved {
        Moved((0..slots.div_ceil(SLOTS_OF_WORD)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Adds a slot. The caller holds the lock of the slot's megaflow, or is the only one that has
    /// it. Most often the slot is there already, which other threads do not notice.
    #[inline]
    pub(crate) fn add(&self, slot: u32) {
        let (word, bit) = (slot as usize / SLOTS_OF_WORD, 1 << (slot as usize % SLOTS_OF_WORD));
        if let Some(word) = self.0.get(word)
            && word.load(Ordering::Relaxed) & bit == 0
        {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Takes the slots of word `n` out of the set and returns them, a bit for each.
    #[inline]
    pub(crate) fn take(&self, n: usize) -> u64 {
        let Some(word) = self.0.get(n) else { return 0 };
        // A plain load: words without a bit stay in the caches of other CPUs.
        if word.load(Ordering::Relaxed) == 0 { 0 } else { word.swap(0, Ordering::Relaxed) }
    }
}

/// Returns the positions of the bits of a word.
pub(crate) fn positions(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            at
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_taken_once() {
        let moved = Moved::new(130);
        [0, 63, 64, 129, 63].into_iter().for_each(|slot| moved.add(slot));
        moved.add(1000); // no such slot
        let take = || -> Vec<usize> {
            let of_word = |n: usize| positions(moved.take(n)).map(move |at| n * 64 + at);
            (0..4).flat_map(of_word).collect()
        };
        assert_eq!(take(), [0, 63, 64, 129]);
        assert_eq!(take(), []);
    }
}

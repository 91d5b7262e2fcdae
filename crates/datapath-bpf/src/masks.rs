// SPDX-License-Identifier: Apache-2.0
//! The masks of flows, in the array that programs search in order.
//!
//! The place of a mask is written while no search compares under it. A mask that lost its last flow
//! is first marked [`MASK_VACANT`]; one grace period later its place is free for another mask.
//! Vacant masks at the end are cut off, so that searches become short again.

use std::mem::offset_of;

use hashbrown::HashMap;

use crate::keys;
use crate::layout::{MASK_VACANT, MaskEntry, WORDS};
use crate::shared::Shared;

/// Bookkeeping over the shared array.
pub(crate) struct Masks {
    numbers: HashMap<[u64; WORDS], u16, foldhash::fast::RandomState>,
    /// Number of flows of each mask, up to the end of the masks.
    flows: Vec<u32>,
    /// Masks that were marked vacant, but searches may still compare under them.
    leaving: Vec<u16>,
    /// Places that may be written.
    vacant: Vec<u16>,
}

impl Masks {
    /// Returns a table without masks.
    pub(crate) fn new() -> Masks {
        Masks {
            numbers: HashMap::default(),
            flows: Vec::new(),
            leaving: Vec::new(),
            vacant: Vec::new(),
        }
    }

    /// Returns the number of masks that are in use.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the masks in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u64; WORDS]> {
        self.numbers.keys()
    }

    /// Returns the number of the mask `words` and counts one more flow there. A new mask gets a new
    /// number. `None`: there is no room.
    pub(crate) fn acquire(
        &mut self,
        shared: &Shared<MaskEntry>,
        words: &[u64; WORDS],
    ) -> Option<u16> {
        if let Some(number) = self.numbers.get(words) {
            let number = *number;
            self.count(shared, number, 1);
            return Some(number);
        }
        let number = match self.vacant.pop() {
            Some(number) => number,
            None if self.flows.len() < shared.len() => {
                let number = u16::try_from(self.flows.len()).ok()?;
                self.flows.push(0);
                number
            }
            None => return None,
        };
        self.put(shared, number, words);
        Some(number)
    }

    /// Writes a mask: first its words, then `needs`, which includes the mask in searches.
    fn put(&mut self, shared: &Shared<MaskEntry>, number: u16, words: &[u64; WORDS]) {
        let at = usize::from(number);
        let old = MaskEntry { words: *words, ..shared.read(at) };
        shared.write(at, &old);
        self.numbers.insert(*words, number);
        self.count(shared, number, 1);
        shared.store(at, offset_of!(MaskEntry, needs), keys::needs(words));
    }

    fn count(&mut self, shared: &Shared<MaskEntry>, number: u16, by: i32) {
        let at = usize::from(number);
        if let Some(flows) = self.flows.get_mut(at) {
            *flows = flows.saturating_add_signed(by);
            shared.store_half(at, offset_of!(MaskEntry, flows), *flows);
        }
    }

    /// Counts one flow less. A mask without flows stays until [`Masks::retire`].
    pub(crate) fn release(&mut self, shared: &Shared<MaskEntry>, number: u16) {
        self.count(shared, number, -1);
    }

    /// Marks masks without flows as vacant. Returns true when there were any: the caller then calls
    /// [`Masks::free`] after a grace period.
    pub(crate) fn retire(&mut self, shared: &Shared<MaskEntry>) -> bool {
        let flows = &self.flows;
        let idle = |number: u16| flows.get(usize::from(number)) == Some(&0);
        let leaving = &mut self.leaving;
        self.numbers.retain(|_, number| {
            let keep = !idle(*number);
            if !keep {
                shared.store(usize::from(*number), offset_of!(MaskEntry, needs), MASK_VACANT);
                leaving.push(*number);
            }
            keep
        });
        !self.leaving.is_empty()
    }

    /// Frees the places of vacant masks, a grace period after [`Masks::retire`].
    pub(crate) fn free(&mut self, shared: &Shared<MaskEntry>) {
        for number in self.leaving.drain(..) {
            let at = usize::from(number);
            let vacant = MaskEntry { words: [0; WORDS], needs: MASK_VACANT, flows: 0, pad: 0 };
            shared.write(at, &vacant);
            self.vacant.push(number);
        }
        // Low numbers are taken first, so that searches become shorter.
        self.vacant.sort_unstable_by(|a, b| b.cmp(a));
        while let Some(last) = self.flows.len().checked_sub(1) {
            if self.vacant.first().map(|v| usize::from(*v)) != Some(last) {
                break;
            }
            self.vacant.remove(0);
            self.flows.pop();
            shared.store(last, offset_of!(MaskEntry, needs), 0);
        }
    }

    /// Takes over the masks in the array, up to the first unused one. A duplicate becomes vacant,
    /// as does a mask that declares wrong needs. [`Masks::adopt_flow`] counts their flows
    /// afterwards.
    pub(crate) fn adopt(shared: &Shared<MaskEntry>) -> Masks {
        let mut masks = Masks::new();
        for at in 0..shared.len().min(usize::from(u16::MAX)) {
            let entry = shared.read(at);
            if entry.needs == 0 {
                break;
            }
            masks.flows.push(0);
            let number = at as u16; // bounded above
            let whole = entry.needs == keys::needs(&entry.words);
            if !whole || masks.numbers.contains_key(&entry.words) {
                shared.store(at, offset_of!(MaskEntry, needs), MASK_VACANT);
                masks.leaving.push(number);
            } else {
                masks.numbers.insert(entry.words, number);
            }
        }
        masks
    }

    /// Counts a flow found in adopted tables; `None` when there is no such mask.
    pub(crate) fn adopt_flow(
        &mut self,
        shared: &Shared<MaskEntry>,
        number: u16,
    ) -> Option<[u64; WORDS]> {
        let words = shared.read(usize::from(number).min(shared.len() - 1)).words;
        (self.numbers.get(&words) == Some(&number)).then(|| {
            self.count(shared, number, 1);
            words
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(n: u64) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[1] = n;
        words
    }

    #[test]
    fn masks_are_shared_counted_and_their_places_used_again() {
        let shared = Shared::private(3);
        let mut masks = Masks::new();
        assert_eq!(masks.acquire(&shared, &words(1)), Some(0));
        assert_eq!(masks.acquire(&shared, &words(1)), Some(0));
        assert_eq!(masks.acquire(&shared, &words(2)), Some(1));
        assert_eq!(masks.acquire(&shared, &words(3)), Some(2));
        assert_eq!(masks.acquire(&shared, &words(4)), None);
        assert_eq!((shared.read(0).flows, shared.read(0).needs), (2, 2));
        masks.release(&shared, 1);
        assert_eq!(masks.acquire(&shared, &words(4)), None, "not before a grace period");
        assert!(masks.retire(&shared));
        assert_eq!(shared.read(1).needs, MASK_VACANT);
        assert_eq!(masks.acquire(&shared, &words(4)), None);
        masks.free(&shared);
        assert_eq!(masks.acquire(&shared, &words(4)), Some(1));
        assert_eq!(shared.read(1).words, words(4));
        assert_eq!(masks.len(), 3);
    }

    #[test]
    fn searches_get_shorter_at_their_end() {
        let shared = Shared::private(4);
        let mut masks = Masks::new();
        for n in 1..=4 {
            masks.acquire(&shared, &words(n));
        }
        for number in [1, 2, 3] {
            masks.release(&shared, number);
        }
        masks.retire(&shared);
        masks.free(&shared);
        let needs: Vec<u64> = (0..4).map(|i| shared.read(i).needs).collect();
        assert_eq!(needs, [2, 0, 0, 0]);
        assert_eq!(masks.acquire(&shared, &words(9)), Some(1));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Buckets of hints: from a hash to slot numbers.
//!
//! An entry is a hint only. A reader decides by the connection in the slot. Each hash has two
//! buckets; an entry is in one of them.

use crate::atomic::{AtomicU64, Ordering};
use crate::layout::{BUCKET_PLACES, FIRST_ENOUGH};

/// The secret of the hash. Without it no sender can aim at a bucket.
#[derive(Clone, Copy, Debug)]
pub struct HashKey {
    /// Start value.
    pub seed: u64,
    /// Multiplier, odd.
    pub multiplier: u64,
}

impl HashKey {
    /// Returns the hash of a key's words. The third word is zero exactly in keys that have two.
    pub fn hash(&self, words: &[u64; crate::layout::KEY_WORDS]) -> u32 {
        let is_v6 = words[0] & u64::from(crate::layout::key_kind::V6) != 0;
        let used = if is_v6 { words.as_slice() } else { &words[..2] };
        let mut state = self.seed;
        for word in used {
            state = (state ^ word).wrapping_mul(self.multiplier);
            state ^= state >> 32;
        }
        (state.wrapping_mul(self.multiplier) >> 32) as u32
    }
}

/// Returns the entry for a slot.
pub fn entry(hash: u32, slot: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(slot.wrapping_add(1))
}

/// Returns the slot of an entry.
pub fn slot_of(entry: u64) -> Option<u32> {
    (entry as u32).checked_sub(1)
}

/// One index.
#[derive(Clone, Copy, Debug)]
pub struct Index<'a> {
    places: &'a [AtomicU64],
    mask: usize,
}

impl<'a> Index<'a> {
    /// Returns a view of the buckets. `None`: there is not even one bucket.
    pub fn new(places: &'a [AtomicU64]) -> Option<Index<'a>> {
        let buckets = places.len() / BUCKET_PLACES;
        let mask = buckets.checked_next_power_of_two()?;
        let mask = if mask == buckets { mask } else { mask / 2 };
        Some(Index { places, mask: mask.checked_sub(1)? })
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> usize {
        self.mask + 1
    }

    fn bucket(&self, number: usize) -> &'a [AtomicU64] {
        let at = (number & self.mask) * BUCKET_PLACES;
        self.places.get(at..at + BUCKET_PLACES).unwrap_or_default()
    }

    /// Returns the two buckets of `hash`; the second one is empty when both are the same.
    fn pair(&self, hash: u32) -> [&'a [AtomicU64]; 2] {
        let (first, second) = (hash as usize, second(hash) as usize);
        let same = first & self.mask == second & self.mask;
        [self.bucket(first), if same { &[] } else { self.bucket(second) }]
    }

    /// Calls `each` for the entries with `hash` until it returns a value.
    pub fn find<T>(&self, hash: u32, mut each: impl FnMut(u32) -> Option<T>) -> Option<T> {
        for bucket in self.pair(hash) {
            for place in bucket {
                let entry = place.load(Ordering::Acquire);
                if entry >> 32 == u64::from(hash)
                    && let Some(slot) = slot_of(entry)
                    && let Some(found) = each(slot)
                {
                    return Some(found);
                }
            }
        }
        None
    }

    /// Calls `each` for all entries of the two buckets of `hash`.
    pub fn neighbours(&self, hash: u32, mut each: impl FnMut(u32)) {
        for place in self.pair(hash).into_iter().flatten() {
            if let Some(slot) = slot_of(place.load(Ordering::Acquire)) {
                each(slot);
            }
        }
    }

    /// Puts an entry into a free place, or else into the place of an entry whose connection
    /// `is_dead`. Returns false when there is none.
    pub fn insert(&self, entry: u64, is_dead: impl Fn(u32) -> bool) -> bool {
        let mut pair = self.pair((entry >> 32) as u32);
        let used = |bucket: &[AtomicU64]| {
            bucket.iter().filter(|place| place.load(Ordering::Relaxed) != 0).count()
        };
        let first = used(pair[0]);
        if first >= FIRST_ENOUGH && !pair[1].is_empty() && used(pair[1]) < first {
            pair.swap(0, 1);
        }
        let swap = |place: &AtomicU64, old| {
            place.compare_exchange(old, entry, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        };
        if pair
            .into_iter()
            .flatten()
            .any(|place| place.load(Ordering::Relaxed) == 0 && swap(place, 0))
        {
            return true;
        }
        pair.into_iter().flatten().any(|place| {
            let old = place.load(Ordering::Acquire);
            slot_of(old).is_some_and(&is_dead) && swap(place, old)
        })
    }

    /// Returns true when the entry is there.
    pub fn contains(&self, entry: u64) -> bool {
        let hash = (entry >> 32) as u32;
        self.pair(hash).into_iter().flatten().any(|place| place.load(Ordering::Acquire) == entry)
    }

    /// Takes an entry out, wherever it is.
    pub fn remove(&self, entry: u64) {
        for place in self.pair((entry >> 32) as u32).into_iter().flatten() {
            if place.load(Ordering::Relaxed) == entry {
                let _ = place.compare_exchange(entry, 0, Ordering::SeqCst, Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of entries in each bucket.
    #[cfg(test)]
    pub fn lengths(&self) -> impl Iterator<Item = usize> + 'a {
        self.places
            .chunks(BUCKET_PLACES)
            .map(|bucket| bucket.iter().filter(|place| place.load(Ordering::Relaxed) != 0).count())
    }
}

/// Returns the hash that selects the second bucket.
fn second(hash: u32) -> u32 {
    hash.wrapping_mul(0x9e37_79b1) >> 13 ^ hash << 19
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(buckets: usize) -> Vec<AtomicU64> {
        (0..buckets * BUCKET_PLACES).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn entries_are_found_and_removed() {
        let places = places(16);
        let index = Index::new(&places).unwrap();
        for slot in 0..60u32 {
            let hash = slot.wrapping_mul(0x1234_5677);
            assert!(index.insert(entry(hash, slot), |_| false));
            assert_eq!(index.find(hash, Some), Some(slot));
            assert!(index.contains(entry(hash, slot)));
        }
        for slot in 0..60u32 {
            index.remove(entry(slot.wrapping_mul(0x1234_5677), slot));
        }
        assert_eq!(index.lengths().sum::<usize>(), 0);
    }

    #[test]
    fn full_buckets_take_places_of_dead_connections() {
        let places = places(1);
        let index = Index::new(&places).unwrap();
        for slot in 0..8 {
            assert!(index.insert(entry(1, slot), |_| false));
        }
        assert!(!index.insert(entry(2, 8), |_| false));
        assert!(index.insert(entry(2, 8), |slot| slot == 5));
        assert!(!index.contains(entry(1, 5)) && index.contains(entry(2, 8)));
    }

    #[test]
    fn two_choices_fill_well() {
        let places = places(1024);
        let index = Index::new(&places).unwrap();
        let key = HashKey { seed: 3, multiplier: 0x9e37_79b9_7f4a_7c15 };
        for slot in 0..8192u32 * 6 / 10 {
            let hash = key.hash(&[u64::from(slot) << 16, u64::from(slot), 0, 0, 0]);
            assert!(index.insert(entry(hash, slot), |_| false), "full at {slot}");
        }
    }
}

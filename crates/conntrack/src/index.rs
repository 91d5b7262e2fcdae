// SPDX-License-Identifier: Apache-2.0
//! Buckets of hints: from a hash to slot numbers.
//!
//! An entry is a hint only. A reader decides by the connection in the slot. Each hash has two
//! buckets; an entry is in one of them.

use crate::atomic::{AtomicU64, Ordering};
use crate::layout::{BUCKET_PLACES, FIRST_ENOUGH, KEY_WORDS};

/// The secret of the hash. Without it no sender can aim at a bucket.
#[derive(Clone, Copy, Debug)]
pub struct HashKey {
    /// Start value.
    pub seed: u64,
    /// Odd factors: of each word of a key, and of its high half.
    pub factors: [[u64; 2]; KEY_WORDS],
}

impl HashKey {
    /// Returns the key that two random numbers stand for: a start and a step of the generator
    /// SplitMix64.
    pub fn new([start, step]: [u64; 2]) -> HashKey {
        let mut state = start;
        let mut next = || {
            state = state.wrapping_add(step | 1);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        };
        HashKey { seed: next(), factors: [(); KEY_WORDS].map(|()| [next() | 1, next() | 1]) }
    }

    /// Returns the hash of a key's words.
    ///
    /// Each half of a word has a secret of its own. With fewer secrets there are keys with equal hashes
    /// whatever the secrets are, because the high bits of a word reach the high bits of a product alone.
    pub fn hash(&self, words: &[u64; KEY_WORDS]) -> u32 {
        let pairs = words.iter().zip(&self.factors);
        let sum = pairs.fold(self.seed, |sum, (word, [whole, half])| {
            let weighed = word.wrapping_mul(*whole).wrapping_add((word >> 32).wrapping_mul(*half));
            sum.wrapping_add(weighed)
        });
        ((sum ^ sum >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
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

    /// Calls `each` for the first entries of `count` buckets after the first bucket of `hash`.
    pub fn following(&self, hash: u32, count: usize, mut each: impl FnMut(u32)) {
        let first = hash as usize;
        for number in (1..=count).map(|step| first.wrapping_add(step)) {
            let place = self.bucket(number).first();
            if let Some(slot) = place.and_then(|place| slot_of(place.load(Ordering::Acquire))) {
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
    use crate::tuple::{Canonical, Ports, Tuple};
    use std::net::Ipv4Addr;

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
        let key = HashKey::new([3, 0x9e37_79b9_7f4a_7c15]);
        for slot in 0..8192u32 * 6 / 10 {
            let hash = key.hash(&[u64::from(slot) << 16, u64::from(slot), 0, 0, 0]);
            assert!(index.insert(entry(hash, slot), |_| false), "full at {slot}");
        }
    }

    /// Returns the number of different hashes of `keys`.
    fn different(keys: &[[u64; KEY_WORDS]], secret: [u64; 2]) -> usize {
        let key = HashKey::new(secret);
        let hashes: std::collections::HashSet<u32> = keys.iter().map(|k| key.hash(k)).collect();
        hashes.len()
    }

    /// Secrets of several kinds.
    fn secrets() -> impl Iterator<Item = [u64; 2]> {
        let mut random = fastrand::Rng::with_seed(9);
        let some = std::iter::repeat_with(move || [random.u64(..), random.u64(..)]);
        [[0, 0], [1, 3], [u64::MAX, 1 << 63]].into_iter().chain(some.take(20))
    }

    /// A product with an odd number keeps a difference in its highest bit. A hash that multiplies a
    /// state and folds it once for each word can take that difference back by the next word.
    #[test]
    fn tuples_that_differ_in_the_highest_bits_collide_for_no_secret() {
        let udp = |low: u32, high: u32, src, dst| {
            let [src_address, dst_address] =
                [low, high].map(|bits| Ipv4Addr::from_bits(bits).into());
            let ports = Ports::Pair { src, dst };
            Tuple { src: src_address, dst: dst_address, ports, proto: 17, zone: 1 }
        };
        let one = udp(0x0a00_0001, 0x0a00_0002, 0x1234, 53);
        let other = udp(0x8a00_0001, 0x8a00_0002, 0x9234, 53);
        let keys = [one, other].map(|tuple| tuple.canonical().unwrap().words);
        for secret in secrets() {
            assert_eq!(different(&keys, secret), 2, "{secret:x?}");
        }
    }

    #[test]
    fn tuples_of_ipv6_that_differ_in_the_highest_bits_collide_for_no_secret() {
        const TOP: u64 = 1 << 63;
        let words = |bits: u64| {
            let mut words = [
                0x1234_0035_0001_1101,
                0x2001_0db8_0000_0001,
                0x0000_0000_0000_0001,
                0x3fff_0db8_0000_0001,
                0x0000_0000_0000_0002,
            ];
            for at in (0..4).filter(|at| bits >> at & 1 != 0) {
                words[at] ^= TOP;
                words[at + 1] ^= TOP | TOP >> 32;
            }
            words
        };
        let is_tuple = |words: &[u64; KEY_WORDS]| {
            let tuple = Canonical { words: *words, high: false }.tuple().unwrap();
            tuple.canonical().is_some_and(|key| key.words == *words)
        };
        let keys: Vec<_> = (0..16).map(words).filter(is_tuple).collect();
        assert_eq!(keys.len(), 12);
        for secret in secrets() {
            assert_eq!(different(&keys, secret), keys.len(), "{secret:x?}");
        }
    }

    #[test]
    fn no_place_of_a_word_makes_keys_collide_under_all_secrets() {
        for (a, b) in [(0, 1), (1, 2), (1, 4), (3, 4)] {
            for shift in [0, 8, 27, 31, 32, 48, 59] {
                let key = |n: u64| {
                    let mut words = [0x0123_4567_89ab_cdef; KEY_WORDS];
                    words[a] ^= (n & 31) << shift;
                    words[b] ^= (n >> 5) << shift;
                    words
                };
                let keys: Vec<_> = (0..1024).map(key).collect();
                // Of 1,024 random numbers of 32 bits hardly two are equal.
                let hashes = different(&keys, [7, 11]);
                assert!(hashes >= keys.len() - 2, "words {a}, {b} at {shift}: {hashes} hashes");
            }
        }
    }

    /// Neither the ports of one host nor its neighbours fill few buckets.
    #[test]
    fn steps_of_a_port_or_an_address_spread_over_the_buckets() {
        for secret in secrets() {
            let key = HashKey::new(secret);
            for shift in [0, 32, 48] {
                let mut hit = vec![0u32; 1 << 12];
                for n in 0..1u64 << 13 {
                    let hash = key.hash(&[1, n << shift, 0, 0, 0]);
                    hit[hash as usize % (1 << 12)] += 1;
                }
                let most = hit.iter().max().copied();
                assert!(most < Some(16), "{secret:x?} at {shift}: {most:?} in one bucket");
            }
        }
    }
}

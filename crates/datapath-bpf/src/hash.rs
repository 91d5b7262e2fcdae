// SPDX-License-Identifier: Apache-2.0
//! The hash of a key under a mask: as `bpf/settings.h` and `bpf/lookup.h` compute it.
//!
//! A sender of packets chooses keys. It must not be able to choose keys with equal hashes, because
//! an index has few places for each hash. So the hash depends on random factors, which are never
//! exposed. Two keys have the same hash only for a small share of all factors (for two given keys,
//! about one choice in 2^32).

use crate::layout::{FACTORS, WORDS};
use rustix::rand::{GetRandomFlags, getrandom};

/// Odd random factors, as `FACTORS` in `bpf/layout.h` orders them: one a word, one for the mask's
/// number, one for the high half of each word; then those of the exact-match cache, which only
/// programs use.
pub type Factors = [u64; FACTORS];

/// Position of the first factor of high halves.
const HALVES: usize = WORDS + 1;

/// Returns new random factors, for new tables.
pub fn factors() -> Factors {
    std::array::from_fn(|_| random() | 1)
}

/// Returns a random number from the kernel. A filter of system calls may forbid that; then the
/// number comes from the generator that seeds the standard library's tables.
fn random() -> u64 {
    let mut bytes = [0; 8];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0),
    }
}

/// Returns the hash of a flow in the index. `words` is its key under its mask, `mask` the number of
/// that mask.
pub fn of_flow(words: &[u64; WORDS], mask: u32, factors: &Factors) -> u32 {
    let (whole, halves) = factors.split_at(HALVES);
    let pairs = words.iter().zip(whole.iter().zip(halves));
    let sum = pairs.fold(0u64, |sum, (word, (factor, half))| {
        let word = word.wrapping_mul(*factor).wrapping_add((word >> 32).wrapping_mul(*half));
        sum.wrapping_add(word)
    });
    fold(sum.wrapping_add(u64::from(mask).wrapping_mul(factors[WORDS])))
}

fn fold(mut sum: u64) -> u32 {
    sum ^= sum >> 32;
    sum = sum.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (sum >> 32) as u32
}

/// Returns the two buckets of the index for a hash; `bucket_mask` is the number of buckets minus
/// one. (`index_first` and `index_second` of `bpf/flow_index.h`.)
pub fn buckets(hash: u32, bucket_mask: u32) -> [u32; 2] {
    [hash & bucket_mask, (hash.wrapping_mul(0x9e37_79b1) >> 13) & bucket_mask]
}

/// Returns an entry of the index or of the signature cache.
pub fn entry(hash: u32, slot: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(slot.wrapping_add(1))
}

/// Returns the slot that an entry names; `None`: the entry is free.
pub(crate) fn slot_of(entry: u64) -> Option<u32> {
    (entry as u32).checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_mask_numbers_count() {
        let factors = factors();
        let mut words = [0u64; WORDS];
        let zero = of_flow(&words, 0, &factors);
        assert_eq!(zero, 0);
        assert_ne!(of_flow(&words, 1, &factors), zero);
        for x in 0..WORDS {
            words[x] = 1 << x;
            assert_ne!(of_flow(&words, 0, &factors), zero, "word {x}");
            words[x] = 0;
        }
    }

    /// Different hashes of `keys`.
    fn different(keys: &[[u64; WORDS]], factors: &Factors) -> usize {
        let hashes: std::collections::HashSet<u32> =
            keys.iter().map(|words| of_flow(words, 0, factors)).collect();
        hashes.len()
    }

    /// All keys whose words differ in `bits` at `shift` of the words `a` and `b`.
    fn grid(a: usize, b: usize, shift: u32, bits: u32) -> Vec<[u64; WORDS]> {
        let mut keys = Vec::new();
        for high in 0..1u64 << bits {
            for low in 0..1u64 << bits {
                let mut words = [0x0123_4567_89ab_cdef; WORDS];
                words[a] ^= high << shift;
                words[b] ^= low << shift;
                keys.push(words);
            }
        }
        keys
    }

    #[test]
    fn no_place_of_a_word_makes_keys_collide_under_all_factors() {
        let factors = factors();
        for (a, b) in [(3, 4), (0, 3), (10, 13), (11, 18)] {
            for shift in [0, 8, 24, 31, 32, 48, 56] {
                let keys = grid(a, b, shift, 5);
                let hashes = different(&keys, &factors);
                // Of 1,024 random numbers of 32 bits hardly two are equal.
                assert!(hashes >= keys.len() - 2, "words {a}, {b} at {shift}: {hashes} hashes");
            }
            let keys = grid(a, b, 63, 1);
            assert_eq!(different(&keys, &factors), keys.len(), "words {a}, {b}: the highest bit");
        }
    }

    #[test]
    fn keys_that_collide_under_one_secret_do_not_under_another() {
        let mine = factors();
        let mut rng = fastrand::Rng::with_seed(3);
        // By the low bits, as in an index of 2^10 buckets: an attacker with the factors finds
        // these.
        let bucket = |words: &[u64; WORDS], factors: &Factors| of_flow(words, 0, factors) % 1024;
        let keys: Vec<[u64; WORDS]> = std::iter::repeat_with(|| {
            let mut words = [0; WORDS];
            words[3] = rng.u64(..);
            words[4] = rng.u64(..);
            words
        })
        .filter(|words| bucket(words, &mine) == 5)
        .take(64)
        .collect();
        let other = factors();
        let mut hit = [0u32; 1024];
        keys.iter().for_each(|words| hit[bucket(words, &other) as usize] += 1);
        assert!(hit.iter().all(|n| *n <= 6), "64 keys fall into few buckets again");
        assert_ne!(mine, other);
    }

    #[test]
    fn entries_round_trip() {
        assert_eq!(slot_of(0), None);
        assert_eq!(slot_of(entry(0xdead_beef, 0)), Some(0));
        assert_eq!(slot_of(entry(1, 77)), Some(77));
        assert_eq!(entry(0xdead_beef, 77) >> 32, 0xdead_beef);
    }
}

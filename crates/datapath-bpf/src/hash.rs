//! The hash of a key under a mask: as `bpf/lookup.h` computes it.

use crate::layout::WORDS;

/// Odd random factors, one a word; the last one is for the mask's number.
pub type Factors = [u64; WORDS + 1];

/// New factors.
pub fn factors() -> Factors {
    std::array::from_fn(|_| fastrand::u64(..) | 1)
}

/// The hash under which the index holds a flow with `words` (already under the mask with this
/// number).
pub fn of_flow(words: &[u64; WORDS], mask: u32, factors: &Factors) -> u32 {
    let sum = words
        .iter()
        .zip(factors)
        .fold(0u64, |sum, (word, factor)| sum.wrapping_add(word.wrapping_mul(*factor)));
    fold(sum.wrapping_add(u64::from(mask).wrapping_mul(factors[WORDS])))
}

fn fold(mut sum: u64) -> u32 {
    sum ^= sum >> 32;
    sum = sum.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (sum >> 32) as u32
}

/// The two buckets of the index where a hash may be.
pub fn buckets(hash: u32, bucket_mask: u32) -> [u32; 2] {
    [hash & bucket_mask, (hash.wrapping_mul(0x9e37_79b1) >> 13) & bucket_mask]
}

/// An entry of the index or of the cache.
pub fn entry(hash: u32, slot: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(slot.wrapping_add(1))
}

/// The slot that an entry names, `None` when it is free.
pub fn slot_of(entry: u64) -> Option<u32> {
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

    #[test]
    fn entries_round_trip() {
        assert_eq!(slot_of(0), None);
        assert_eq!(slot_of(entry(0xdead_beef, 0)), Some(0));
        assert_eq!(slot_of(entry(1, 77)), Some(77));
        assert_eq!(entry(0xdead_beef, 77) >> 32, 0xdead_beef);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Sparse masks and keys. Most masks have bits in a handful of the key's words. Megaflows store the
//! values of these words only and share the mask.

use flow::{Key, Mask, Match};
use foldhash::fast::RandomState;
use smallvec::SmallVec;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// The masked words of a key, one for each word that its mask has bits in.
pub(crate) type MiniKey = SmallVec<[u64; 8]>;

/// A mask, shared by the megaflows that have it.
pub(crate) struct MiniMask {
    mask: Mask,
    /// The index and the bits of each word that is not zero.
    words: Box<[(u8, u64)]>,
}

impl MiniMask {
    pub(crate) fn new(mask: &Mask) -> Arc<MiniMask> {
        let words = mask.words().iter().zip(0u8..);
        let words = words.filter(|(w, _)| **w != 0).map(|(w, i)| (i, *w)).collect();
        Arc::new(MiniMask { mask: *mask, words })
    }

    pub(crate) fn mask(&self) -> &Mask {
        &self.mask
    }

    /// Returns the words of `key` under the mask.
    fn masked<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = u64> + 'a {
        // The indices are those of a mask's words; a key has as many words.
        self.words.iter().map(|(i, m)| key.words().get(usize::from(*i)).map_or(0, |w| w & m))
    }

    pub(crate) fn mini_key(&self, key: &Key) -> MiniKey {
        self.masked(key).collect()
    }

    /// Returns true when `key` under the mask equals `values`.
    pub(crate) fn matches(&self, values: &MiniKey, key: &Key) -> bool {
        self.masked(key).eq(values.iter().copied())
    }

    /// Returns the hash of `key` under the mask.
    pub(crate) fn hash(&self, state: &RandomState, key: &Key) -> u64 {
        let mut hasher = state.build_hasher();
        self.masked(key).for_each(|word| hasher.write_u64(word));
        hasher.finish()
    }

    /// Returns the match of this mask with `values`.
    pub(crate) fn matching(&self, values: &MiniKey) -> Match {
        let mut key = Key::ZERO;
        for ((i, _), value) in self.words.iter().zip(values) {
            if let Some(word) = key.words_mut().get_mut(usize::from(*i)) {
                *word = *value;
            }
        }
        Match::new(&key, &self.mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn values_stand_for_the_match(
            key in proptest::collection::vec(any::<u8>(), size_of::<Key>()),
            mask in proptest::collection::vec(prop_oneof![4 => Just(0u8), 1 => any::<u8>()], size_of::<Key>()),
            other: bool,
            at in 0..size_of::<Key>(),
        ) {
            let (mut k, mut m) = (Key::ZERO, Mask::WILDCARD);
            k.bytes_mut().copy_from_slice(&key);
            m.0.bytes_mut().copy_from_slice(&mask);
            let (mask, matching) = (MiniMask::new(&m), Match::new(&k, &m));
            let values = mask.mini_key(&k);
            prop_assert_eq!(mask.matching(&values), matching);
            let mut probe = k;
            probe.bytes_mut()[at] ^= u8::from(other) << (at % 8);
            prop_assert_eq!(mask.matches(&values, &probe), matching.matches(&probe));
            let state = RandomState::default();
            if matching.matches(&probe) {
                prop_assert_eq!(mask.hash(&state, &probe), mask.hash(&state, matching.key()));
            }
        }
    }
}

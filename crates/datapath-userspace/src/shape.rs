// SPDX-License-Identifier: Apache-2.0
//! A mask as lookups use it: the words of a key that it has bits in, and only those. Most masks
//! touch a handful of the key's words, so megaflows keep the values of these and share the rest.

use flow::{Key, Mask, Match};
use foldhash::fast::RandomState;
use smallvec::SmallVec;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// The words of a key under a mask, as many as the mask has.
pub(crate) type Values = SmallVec<[u64; 8]>;

/// A mask, shared by the megaflows that have it.
pub(crate) struct Shape {
    mask: Mask,
    /// Which words the mask has bits in, and these.
    words: Box<[(u8, u64)]>,
}

impl Shape {
    pub(crate) fn new(mask: &Mask) -> Arc<Shape> {
        let words = mask.words().iter().zip(0u8..);
        let words = words.filter(|(w, _)| **w != 0).map(|(w, i)| (i, *w)).collect();
        Arc::new(Shape { mask: *mask, words })
    }

    pub(crate) fn mask(&self) -> &Mask {
        &self.mask
    }

    /// What of `key` is under the mask, word by word.
    fn masked<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = u64> + 'a {
        // Indexes come from a mask's words, which are a key's.
        self.words.iter().map(|(i, m)| key.words().get(usize::from(*i)).map_or(0, |w| w & m))
    }

    pub(crate) fn values(&self, key: &Key) -> Values {
        self.masked(key).collect()
    }

    /// True when `key` has these values under the mask.
    pub(crate) fn agrees(&self, values: &Values, key: &Key) -> bool {
        self.masked(key).eq(values.iter().copied())
    }

    /// Hash of `key` under the mask.
    pub(crate) fn hash(&self, state: &RandomState, key: &Key) -> u64 {
        let mut hasher = state.build_hasher();
        self.masked(key).for_each(|word| hasher.write_u64(word));
        hasher.finish()
    }

    /// The match that has these values under the mask.
    pub(crate) fn matching(&self, values: &Values) -> Match {
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
            let (shape, matching) = (Shape::new(&m), Match::new(&k, &m));
            let values = shape.values(&k);
            prop_assert_eq!(shape.matching(&values), matching);
            let mut probe = k;
            probe.bytes_mut()[at] ^= u8::from(other) << (at % 8);
            prop_assert_eq!(shape.agrees(&values, &probe), matching.matches(&probe));
            let state = RandomState::default();
            if matching.matches(&probe) {
                prop_assert_eq!(shape.hash(&state, &probe), shape.hash(&state, matching.key()));
            }
        }
    }
}

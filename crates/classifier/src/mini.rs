// SPDX-License-Identifier: Apache-2.0
//! Matches and masks without their zero words.

use flow::{Key, Mask, Match, WORDS};
use std::sync::Arc;

/// Extends a hash by `word`.
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    // A folded multiply: every bit of both inputs reaches every bit of the hash.
    let wide = u128::from(hash ^ word ^ 0x9e37_79b9_7f4a_7c15)
        * u128::from(0xd6e8_feb8_6659_fd93_u64 ^ hash.rotate_left(23));
    (wide as u64) ^ ((wide >> 64) as u64)
}

fn indices(map: u128) -> impl Iterator<Item = usize> {
    let mut left = map;
    std::iter::from_fn(move || {
        (left != 0).then(|| {
            let i = left.trailing_zeros() as usize;
            left &= left - 1;
            i
        })
    })
}

/// A mask's words that are not zero.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MiniMask {
    /// Bit i: word i is there.
    map: u128,
    /// Hash of the positions of the bits that are set. It is read for each change of a rule.
    hash: u64,
    words: Box<[u64]>,
}

impl MiniMask {
    /// Compresses `mask`.
    pub fn new(mask: &Mask) -> MiniMask {
        MiniMask {
            map: mask.word_map(),
            hash: MiniMask::hash_of(mask),
            words: mask.words().iter().copied().filter(|w| *w != 0).collect(),
        }
    }

    /// Expands to a full mask.
    pub fn expand(&self) -> Mask {
        let mut mask = Mask::WILDCARD;
        for (i, w) in self.iter() {
            if let Some(word) = mask.words_mut().get_mut(i) {
                *word = w;
            }
        }
        mask
    }

    /// Returns a hash of the positions of the bits that are set.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the hash of the compressed form of `mask`.
    pub(crate) fn hash_of(mask: &Mask) -> u64 {
        let map = mask.word_map();
        let words = indices(map).filter_map(|i| mask.words().get(i));
        let seed = map as u64 ^ (map >> 64) as u64;
        words.fold(seed, |hash, word| mix(hash, *word))
    }

    /// Returns true when this is the compressed form of `mask`.
    pub(crate) fn is(&self, mask: &Mask) -> bool {
        self.map == mask.word_map() && self.iter().all(|(i, m)| mask.words().get(i) == Some(&m))
    }

    /// Pairs of word index (below [`WORDS`]) and non-zero mask word, rising.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> {
        indices(self.map).zip(self.words.iter().copied())
    }

    /// True when every bit of `other` is in `self`.
    pub fn covers(&self, other: &MiniMask) -> bool {
        if other.map & !self.map != 0 {
            return false;
        }
        let mut mine = self.iter();
        other
            .iter()
            .all(|(i, o)| mine.by_ref().find(|(j, _)| *j == i).is_some_and(|(_, w)| o & !w == 0))
    }
}

/// A match's mask words that are not zero, with the values under them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MiniMatch {
    /// Rules of one subtable share theirs.
    mask: Arc<MiniMask>,
    values: Box<[u64]>,
}

impl MiniMatch {
    /// Compresses `matching`.
    pub fn new(matching: &Match) -> MiniMatch {
        MiniMatch::under(Arc::new(MiniMask::new(matching.mask())), matching)
    }

    /// Compresses `matching`, with the mask of `other` when that is the same: `None` when not.
    pub fn with_mask_of(other: &MiniMatch, matching: &Match) -> Option<MiniMatch> {
        let is_same = other.mask.is(matching.mask());
        is_same.then(|| MiniMatch::under(Arc::clone(&other.mask), matching))
    }

    /// Compresses `matching`, whose mask `mask` is.
    pub(crate) fn under(mask: Arc<MiniMask>, matching: &Match) -> MiniMatch {
        let key = matching.key().words();
        // The capacity is the exact length: a list that grows is moved.
        let mut values = Vec::with_capacity(mask.words.len());
        values.extend(indices(mask.map).map(|i| key.get(i).copied().unwrap_or(0)));
        MiniMatch { mask, values: values.into_boxed_slice() }
    }

    /// Returns this match with `mask`, which is equal to its own.
    pub(crate) fn with_equal_mask(self, mask: Arc<MiniMask>) -> MiniMatch {
        MiniMatch { mask, ..self }
    }

    pub(crate) fn shared_mask(&self) -> &Arc<MiniMask> {
        &self.mask
    }

    /// The values in their places, zero where wildcarded.
    pub(crate) fn key(&self) -> Key {
        let mut key = Key::ZERO;
        for (i, value) in self.values() {
            if let Some(word) = key.words_mut().get_mut(i) {
                *word = value;
            }
        }
        key
    }

    /// Expands to a full match.
    pub fn expand(&self) -> Match {
        Match::new(&self.key(), &self.mask.expand())
    }

    /// The mask.
    pub fn mini_mask(&self) -> &MiniMask {
        &self.mask
    }

    /// Pairs of word index and value.
    pub fn values(&self) -> impl Iterator<Item = (usize, u64)> {
        indices(self.mask.map).zip(self.values.iter().copied())
    }

    /// True when `key` matches.
    pub fn matches(&self, key: &Key) -> bool {
        self.agrees_with(key.words())
    }

    pub(crate) fn agrees_with(&self, words: &[u64; WORDS]) -> bool {
        self.mask
            .iter()
            .zip(self.values.iter())
            .all(|((i, m), v)| words.get(i).is_some_and(|w| w & m == *v))
    }

    /// True when every packet of `self` is one of `other`; see [`Match::is_within`].
    pub fn is_within(&self, other: &Match) -> bool {
        match other.asks_for_ethernet() {
            true => self.has_all_of(&other.beyond(&self.mask.expand())),
            false => self.has_all_of(other),
        }
    }

    /// Returns true when its bits alone require all that the bits of `other` require.
    pub(crate) fn has_all_of(&self, other: &Match) -> bool {
        let (mut mask, mut key) = ([0u64; WORDS], [0u64; WORDS]);
        for ((i, m), v) in self.mask.iter().zip(self.values.iter()) {
            if let (Some(mw), Some(kw)) = (mask.get_mut(i), key.get_mut(i)) {
                (*mw, *kw) = (m, *v);
            }
        }
        let wanted = other.mask().words().iter().zip(other.key().words());
        mask.iter()
            .zip(&key)
            .zip(wanted)
            .all(|((m, k), (om, ok))| om & !m == 0 && (k ^ ok) & om == 0)
    }
}

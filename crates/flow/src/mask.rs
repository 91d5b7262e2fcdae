// SPDX-License-Identifier: Apache-2.0
//! Which bits of a [`Key`] count.

use crate::{Key, WORDS};

/// The bits of a [`Key`] that are matched: set is exact, clear is a wildcard. Has a key's
/// layout, so that a key's field names say where each mask is.
///
/// In translation a mask is the record of what was looked at: bits may be set without need
/// (that costs megaflows), but a bit that was looked at must be set (that is soundness).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Mask(pub Key);

impl Mask {
    /// Matches every packet.
    pub const WILDCARD: Mask = Mask(Key::ZERO);

    /// Every bit counts.
    pub const EXACT: Mask = Mask(zerocopy::transmute!([u64::MAX; WORDS]));

    /// The mask as words.
    pub fn words(&self) -> &[u64; WORDS] {
        self.0.words()
    }

    /// The mask as writable words.
    pub fn words_mut(&mut self) -> &mut [u64; WORDS] {
        self.0.words_mut()
    }

    /// The bits that `other` does not have.
    pub fn minus(&self, other: &Mask) -> Mask {
        let mut out = *self;
        for (bits, gone) in out.words_mut().iter_mut().zip(other.words()) {
            *bits &= !gone;
        }
        out
    }

    /// True when no bit is set.
    pub fn is_wildcard(&self) -> bool {
        self.words().iter().all(|w| *w == 0)
    }

    /// Adds every bit of `other`.
    pub fn union(&mut self, other: &Mask) {
        for (w, o) in self.words_mut().iter_mut().zip(other.words()) {
            *w |= o;
        }
    }

    /// True when every bit of `other` is in `self`: `self` is at least as specific.
    pub fn covers(&self, other: &Mask) -> bool {
        self.words().iter().zip(other.words()).all(|(w, o)| o & !w == 0)
    }

    /// True when a bit is in both masks.
    pub fn intersects(&self, other: &Mask) -> bool {
        self.words().iter().zip(other.words()).any(|(w, o)| w & o != 0)
    }

    /// Number of the words that have a bit set, as a bitmap (bit 0 is word 0).
    pub fn word_map(&self) -> u128 {
        self.words().iter().enumerate().fold(0, |map, (i, w)| map | (u128::from(*w != 0) << i))
    }
}

impl Key {
    /// This key with only the bits of `mask`.
    pub fn masked(&self, mask: &Mask) -> Key {
        let mut out = *self;
        for (w, m) in out.words_mut().iter_mut().zip(mask.words()) {
            *w &= m;
        }
        out
    }

    /// True when `self` and `other` agree on every bit of `mask`.
    pub(crate) fn equal_under(&self, other: &Key, mask: &Mask) -> bool {
        self.words().iter().zip(other.words()).zip(mask.words()).all(|((a, b), m)| (a ^ b) & m == 0)
    }
}

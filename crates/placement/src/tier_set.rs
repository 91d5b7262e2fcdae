// SPDX-License-Identifier: Apache-2.0
//! Sets of tiers.

use datapath::Tier;
use std::fmt;

/// A set of tiers faster than the base.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TierSet(u8);

impl TierSet {
    /// No tier.
    pub const NONE: TierSet = TierSet(0);
    /// The skb hook.
    pub const TCX: TierSet = TierSet::of(Tier::Tcx);
    /// The driver hook and the skb hook.
    pub const XDP_AND_TCX: TierSet = TierSet::of(Tier::Xdp).with(Tier::Tcx);

    /// One tier.
    pub const fn of(tier: Tier) -> TierSet {
        TierSet(1 << tier as u8)
    }

    /// And `tier`.
    #[must_use]
    pub const fn with(self, tier: Tier) -> TierSet {
        TierSet(self.0 | 1 << tier as u8)
    }

    /// But not `tier`.
    #[must_use]
    pub const fn without(self, tier: Tier) -> TierSet {
        TierSet(self.0 & !(1 << tier as u8))
    }

    /// True when `tier` is in it.
    pub const fn has(self, tier: Tier) -> bool {
        self.0 & 1 << tier as u8 != 0
    }

    /// True when it is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True when all of `other` is in it.
    pub const fn covers(self, other: TierSet) -> bool {
        other.0 & !self.0 == 0
    }

    /// Its tiers, fastest first.
    pub fn tiers(self) -> impl Iterator<Item = Tier> {
        Tier::ALL.into_iter().filter(move |t| self.has(*t))
    }

    /// The fastest of its tiers.
    pub fn fastest(self) -> Option<Tier> {
        self.tiers().next()
    }
}

impl fmt::Debug for TierSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.tiers().map(Tier::name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_know_their_tiers() {
        let set = TierSet::of(Tier::Tcx).with(Tier::Xdp);
        assert_eq!(set, TierSet::XDP_AND_TCX);
        assert_eq!(set.tiers().collect::<Vec<_>>(), [Tier::Xdp, Tier::Tcx]);
        assert_eq!(set.without(Tier::Xdp).fastest(), Some(Tier::Tcx));
        assert!(set.covers(TierSet::TCX) && !TierSet::TCX.covers(set));
        assert!(TierSet::NONE.is_empty() && TierSet::NONE.fastest().is_none());
        assert_eq!(format!("{set:?}"), r#"{"xdp", "tcx"}"#);
    }
}

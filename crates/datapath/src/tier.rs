// SPDX-License-Identifier: Apache-2.0
//! Tiers: the places where a megaflow can run, sets of them, and why one does not take it.

use crate::Refusal;
use std::fmt;

/// Where a megaflow runs. The order of the variants is the order of speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// TC flower.
    Tc,
    /// BPF at the driver.
    Xdp,
    /// BPF at the skb hook.
    Tcx,
    /// openvswitch.ko.
    Kernel,
    /// The userspace datapath.
    Userspace,
}

impl Tier {
    /// All tiers, fastest first.
    pub const ALL: [Tier; 5] = [Tier::Tc, Tier::Xdp, Tier::Tcx, Tier::Kernel, Tier::Userspace];

    /// Returns the name in texts (`dp:NAME`).
    pub fn name(self) -> &'static str {
        match self {
            Tier::Tc => "tc",
            Tier::Xdp => "xdp",
            Tier::Tcx => "tcx",
            Tier::Kernel => "ovs",
            Tier::Userspace => "userspace",
        }
    }
}

/// Number of tiers that an [`crate::OffloadProvider`] may have: all but the userspace datapath.
const OFFLOAD_TIERS: usize = Tier::ALL.len() - 1;

const _: () = assert!(Tier::Userspace as usize == OFFLOAD_TIERS && Tier::ALL.len() <= 8);

/// A set of tiers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TierSet(u8);

impl TierSet {
    /// No tier.
    pub const NONE: TierSet = TierSet(0);
    /// The skb hook.
    pub const TCX: TierSet = TierSet::of(Tier::Tcx);
    /// The driver hook and the skb hook.
    pub const XDP_AND_TCX: TierSet = TierSet::of(Tier::Xdp).with(Tier::Tcx);

    /// Returns the set of one tier.
    pub const fn of(tier: Tier) -> TierSet {
        TierSet(1 << tier as u8)
    }

    /// Returns the set with `tier` added.
    #[must_use]
    pub const fn with(self, tier: Tier) -> TierSet {
        TierSet(self.0 | 1 << tier as u8)
    }

    /// Returns the set with `tier` taken out.
    #[must_use]
    pub const fn without(self, tier: Tier) -> TierSet {
        TierSet(self.0 & !(1 << tier as u8))
    }

    /// True when `tier` is in the set.
    pub const fn has(self, tier: Tier) -> bool {
        self.0 & 1 << tier as u8 != 0
    }

    /// True when the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True when all of `other` is in the set.
    pub const fn covers(self, other: TierSet) -> bool {
        other.0 & !self.0 == 0
    }

    /// True when a tier is in both sets.
    pub const fn meets(self, other: TierSet) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the tiers that are in either set.
    #[must_use]
    pub const fn union(self, other: TierSet) -> TierSet {
        TierSet(self.0 | other.0)
    }

    /// Returns the tiers that are in both sets.
    #[must_use]
    pub const fn intersection(self, other: TierSet) -> TierSet {
        TierSet(self.0 & other.0)
    }

    /// Returns the tiers that are not in `other`.
    #[must_use]
    pub const fn minus(self, other: TierSet) -> TierSet {
        TierSet(self.0 & !other.0)
    }

    /// Returns the tiers, fastest first.
    pub fn tiers(self) -> impl DoubleEndedIterator<Item = Tier> {
        Tier::ALL.into_iter().filter(move |t| self.has(*t))
    }

    /// Returns the fastest tier of the set.
    #[inline]
    pub fn fastest(self) -> Option<Tier> {
        Tier::ALL.get(self.0.trailing_zeros() as usize).copied()
    }
}

impl fmt::Debug for TierSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.tiers().map(Tier::name)).finish()
    }
}

/// For each tier but userspace, why it does not take a megaflow. One byte a tier.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct TierRefusals([Option<Refusal>; OFFLOAD_TIERS]);

impl TierRefusals {
    /// No tier refuses.
    pub const NONE: TierRefusals = TierRefusals([None; OFFLOAD_TIERS]);

    /// Returns the refusals where each of `tiers` refuses for the same reason.
    #[inline]
    pub fn by(tiers: TierSet, refusal: Refusal) -> TierRefusals {
        let mut refusals = TierRefusals::NONE;
        refusals.set(tiers, Some(refusal));
        refusals
    }

    /// Sets or clears the refusal of each of `tiers`.
    #[inline]
    pub fn set(&mut self, tiers: TierSet, refusal: Option<Refusal>) {
        if tiers.is_empty() {
            return;
        }
        for (tier, slot) in Tier::ALL.into_iter().zip(&mut self.0) {
            if tiers.has(tier) {
                *slot = refusal;
            }
        }
    }

    /// Copies the entries of `tiers` from `other`, also where it has no refusal.
    #[inline]
    pub fn set_from(&mut self, tiers: TierSet, other: TierRefusals) {
        if *self == other {
            return; // most often neither has any
        }
        for ((tier, slot), from) in Tier::ALL.into_iter().zip(&mut self.0).zip(other.0) {
            if tiers.has(tier) {
                *slot = from;
            }
        }
    }

    /// Returns the refusals of `tiers` alone.
    #[must_use]
    #[inline]
    pub fn of(self, tiers: TierSet) -> TierRefusals {
        let mut some = TierRefusals::NONE;
        some.set_from(tiers, self);
        some
    }

    /// Returns these refusals, and those of `other` for tiers that have none here.
    #[must_use]
    #[inline]
    pub fn or(mut self, other: TierRefusals) -> TierRefusals {
        if other.is_empty() {
            return self;
        }
        for (slot, from) in self.0.iter_mut().zip(other.0) {
            *slot = slot.or(from);
        }
        self
    }

    /// Returns why `tier` refuses.
    pub fn get(&self, tier: Tier) -> Option<Refusal> {
        self.0.get(tier as usize).copied().flatten()
    }

    /// True when no tier refuses.
    #[inline]
    pub fn is_empty(&self) -> bool {
        *self == TierRefusals::NONE
    }

    /// Returns the tiers that refuse.
    pub fn tiers(&self) -> TierSet {
        self.iter().fold(TierSet::NONE, |set, (tier, _)| set.with(tier))
    }

    /// Returns the tiers that refuse with their reasons, fastest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Tier, Refusal)> + '_ {
        self.0.iter().zip(Tier::ALL).filter_map(|(slot, tier)| slot.map(|refusal| (tier, refusal)))
    }

    /// Returns each reason once.
    pub fn distinct(self) -> impl Iterator<Item = Refusal> {
        (0..OFFLOAD_TIERS).filter_map(move |i| {
            let refusal = self.0[i]?;
            (!self.0[..i].contains(&Some(refusal))).then_some(refusal)
        })
    }

    /// Returns the reason of the slowest tier that refuses: why the megaflow is not one step
    /// faster.
    pub fn nearest(&self) -> Option<Refusal> {
        self.iter().next_back().map(|(_, refusal)| refusal)
    }
}

/// `REASON` when all tiers that refuse give the same; else `TIER=REASON`, with commas.
impl fmt::Display for TierRefusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.distinct().count() < 2 {
            return self.nearest().map_or(Ok(()), |refusal| f.write_str(refusal.name()));
        }
        for (n, (tier, refusal)) in self.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{}={refusal}", tier.name())?;
        }
        Ok(())
    }
}

impl fmt::Debug for TierRefusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(tier, refusal)| (tier.name(), refusal))).finish()
    }
}

/// Which of some tiers take a megaflow, and why the others do not. A tier that was not asked is in
/// neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Tiers that take it.
    pub tiers: TierSet,
    /// Why the others do not.
    pub refusals: TierRefusals,
}

impl Verdict {
    /// All of `tiers` take the megaflow.
    #[inline]
    pub fn granted(tiers: TierSet) -> Verdict {
        Verdict { tiers, refusals: TierRefusals::NONE }
    }

    /// None of `tiers` takes it, for this reason.
    #[inline]
    pub fn refused(tiers: TierSet, refusal: Refusal) -> Verdict {
        Verdict { tiers: TierSet::NONE, refusals: TierRefusals::by(tiers, refusal) }
    }

    /// Of the tiers that take the megaflow so far, those in `tiers` do not.
    #[inline]
    pub fn refuse(&mut self, tiers: TierSet, refusal: Refusal) {
        let lost = self.tiers.intersection(tiers);
        if lost.is_empty() {
            return;
        }
        self.tiers = self.tiers.minus(lost);
        self.refusals.set(lost, Some(refusal));
    }

    /// Adds the verdict of other tiers.
    #[must_use]
    #[inline]
    pub fn and(self, other: Verdict) -> Verdict {
        Verdict { tiers: self.tiers.union(other.tiers), refusals: self.refusals.or(other.refusals) }
    }

    /// Returns the fastest tier that takes the megaflow.
    ///
    /// # Errors
    ///
    /// The reason of the slowest tier that was asked, when none takes it.
    pub fn outcome(&self) -> Result<Tier, Refusal> {
        let why = || self.refusals.nearest().unwrap_or(Refusal::TierUnavailable);
        self.tiers.fastest().ok_or_else(why)
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
        for tier in Tier::ALL {
            assert_eq!(TierSet::of(tier).fastest(), Some(tier));
        }
        let card = TierSet::of(Tier::Tc);
        assert_eq!(set.union(card).minus(TierSet::TCX), card.with(Tier::Xdp));
        assert!(set.meets(TierSet::TCX) && !set.meets(card) && set.intersection(card).is_empty());
    }

    #[test]
    fn refusals_are_a_byte_a_tier() {
        assert_eq!(size_of::<TierRefusals>(), OFFLOAD_TIERS);
        let full = TierRefusals::by(TierSet::of(Tier::Tc), Refusal::TableFull);
        let both = full.or(TierRefusals::by(TierSet::XDP_AND_TCX, Refusal::Policing));
        assert_eq!((both.get(Tier::Tc), both.get(Tier::Kernel)), (Some(Refusal::TableFull), None));
        assert_eq!(both.nearest(), Some(Refusal::Policing));
        assert_eq!(both.distinct().collect::<Vec<_>>(), [Refusal::TableFull, Refusal::Policing]);
        assert_eq!(both.to_string(), "tc=table-full,xdp=policing,tcx=policing");
        assert_eq!(both.of(TierSet::XDP_AND_TCX).to_string(), "policing");
        assert_eq!(TierRefusals::NONE.to_string(), "");
        assert!(both.of(TierSet::NONE).is_empty() && TierRefusals::NONE.nearest().is_none());
    }

    #[test]
    fn a_verdict_names_the_fastest_tier_or_the_nearest_reason() {
        let mut verdict = Verdict::granted(TierSet::XDP_AND_TCX);
        verdict.refuse(TierSet::of(Tier::Xdp), Refusal::UnverifiedPeer);
        assert_eq!(verdict.outcome(), Ok(Tier::Tcx));
        verdict.refuse(TierSet::XDP_AND_TCX, Refusal::NeedsUserspace);
        assert_eq!(verdict.outcome(), Err(Refusal::NeedsUserspace));
        assert_eq!(verdict.refusals.get(Tier::Xdp), Some(Refusal::UnverifiedPeer), "the first");
        let card = Verdict::refused(TierSet::of(Tier::Tc), Refusal::TableFull);
        assert_eq!(card.and(verdict).refusals.distinct().count(), 3);
    }
}

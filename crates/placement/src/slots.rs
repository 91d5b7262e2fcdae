// SPDX-License-Identifier: Apache-2.0
//! The ordered list of offload providers.

use datapath::offload::{OffloadProvider, ProviderSlot, Reason};
use datapath::{Refusal, Tier, TierSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// A place in the list. Its provider is there from [`Slot::set`] on.
pub(crate) struct Slot {
    pub(crate) spec: ProviderSlot,
    provider: OnceLock<Result<Arc<dyn OffloadProvider>, Reason>>,
    /// The miss device failed, so no thread takes the packets that the provider sends up.
    pub(crate) lost_misses: AtomicBool,
}

impl Slot {
    /// Fills the place. Returns false, and changes nothing, when it was filled before.
    pub(crate) fn set(&self, provider: Result<Arc<dyn OffloadProvider>, Reason>) -> bool {
        self.provider.set(provider).is_ok()
    }

    /// Returns true after [`Slot::set`].
    pub(crate) fn is_begun(&self) -> bool {
        self.provider.get().is_some()
    }

    pub(crate) fn provider(&self) -> Option<&Arc<dyn OffloadProvider>> {
        self.provider.get()?.as_ref().ok()
    }

    /// Returns the reason for which there is no provider; `None` when it is there.
    pub(crate) fn absent(&self) -> Option<&Reason> {
        match self.provider.get() {
            None => Some(&self.spec.absent),
            Some(provider) => provider.as_ref().err(),
        }
    }

    /// Returns the reason for which the provider is absent, where flows and ports mention it. An
    /// optional provider is off in the ordinary case, which is not mentioned.
    pub(crate) fn shown_absence(&self) -> Option<&Reason> {
        let is_off =
            |reason: &&Reason| self.spec.is_optional && reason.refusal == Refusal::TierDisabled;
        self.absent().filter(|reason| !is_off(reason))
    }

    pub(crate) fn tiers(&self) -> TierSet {
        self.spec.tiers
    }

    /// Returns true when only housekeeping offers flows to the provider.
    pub(crate) fn installs_later(&self) -> bool {
        self.provider().is_some_and(|provider| provider.installs_later())
    }
}

/// All places, fastest first.
pub(crate) struct Slots(Box<[Slot]>);

impl Slots {
    /// Returns empty places for providers with these properties.
    ///
    /// # Panics
    ///
    /// When a tier is in two places, or places are not in the order of their tiers.
    pub(crate) fn new(specs: Vec<ProviderSlot>) -> Slots {
        let order: Vec<Tier> = specs.iter().flat_map(|spec| spec.tiers.tiers()).collect();
        assert!(order.is_sorted_by(|a, b| a < b), "the list of providers is {order:?}");
        let slot =
            |spec| Slot { spec, provider: OnceLock::new(), lost_misses: AtomicBool::new(false) };
        Slots(specs.into_iter().map(slot).collect())
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Slot> + ExactSizeIterator {
        self.0.iter()
    }

    /// Returns the place of exactly these tiers.
    pub(crate) fn of(&self, tiers: TierSet) -> Option<&Slot> {
        self.iter().find(|slot| slot.tiers() == tiers)
    }

    /// Returns the providers that are there with their places, fastest first.
    pub(crate) fn present(
        &self,
    ) -> impl DoubleEndedIterator<Item = (&Slot, &Arc<dyn OffloadProvider>)> {
        self.iter().filter_map(|slot| Some((slot, slot.provider()?)))
    }

    /// Returns true when no provider is there.
    pub(crate) fn are_empty(&self) -> bool {
        self.present().next().is_none()
    }

    /// Returns the tiers of the provider that has `fastest`, and those of all faster providers;
    /// all tiers of the list when `fastest` is `None`. A flow whose fastest tier this is would be
    /// faster, or whole at its provider, if these tiers took it.
    pub(crate) fn up_to(&self, fastest: Option<Tier>) -> TierSet {
        let Some(fastest) = fastest else { return self.tiers() };
        let slots = self.iter().filter(|slot| slot.tiers().fastest() <= Some(fastest));
        slots.fold(TierSet::NONE, |all, slot| all.union(slot.tiers()))
    }

    /// Returns all tiers of the list, also those whose provider is not there.
    pub(crate) fn tiers(&self) -> TierSet {
        self.iter().fold(TierSet::NONE, |all, slot| all.union(slot.tiers()))
    }
}

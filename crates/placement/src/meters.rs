// SPDX-License-Identifier: Apache-2.0
//! The contract's meters: in the base, and mirrored in each provider.

use crate::placed::PlacedDatapath;
use datapath::{MeterConfig, MeterStats, Meters, OffloadProvider, Refusal, TierSet};
use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

/// Adds the counts of a meter in a provider.
fn add(mut sum: MeterStats, other: Option<MeterStats>) -> MeterStats {
    if let Some(other) = other {
        sum.packets += other.packets;
        sum.bytes += other.bytes;
        for ((packets, bytes), (p, b)) in sum.bands.iter_mut().zip(other.bands) {
            *packets += p;
            *bytes += b;
        }
    }
    sum
}

impl PlacedDatapath {
    /// Returns the configurations of all meters. The lock is taken before every other lock of this
    /// crate but those of the ports and bonds.
    fn meter_configs(&self) -> MutexGuard<'_, BTreeMap<u32, MeterConfig>> {
        self.meters.lock().unwrap_or_else(PoisonError::into_inner) // an entry is whole
    }

    /// Gives a new provider, with these tiers, the meters that are there, and keeps flows with the
    /// meters that it refuses away from it. `fill` puts the provider into its place. No meter is
    /// changed meanwhile.
    pub(crate) fn mirror_meters(
        &self,
        tiers: TierSet,
        provider: &dyn OffloadProvider,
        fill: impl FnOnce(),
    ) {
        let meters = self.meter_configs();
        let is_refused =
            |(id, config): &(&u32, &MeterConfig)| provider.set_meter(**id, config).is_err();
        let refused: Vec<u32> = meters.iter().filter(is_refused).map(|(id, _)| *id).collect();
        if !refused.is_empty() {
            for id in &refused {
                provider.remove_meter(*id); // it may have one of an earlier daemon
            }
            self.change_eligibility(|eligibility| {
                for id in refused {
                    let lacking = eligibility.lacking_meters.entry(id).or_default();
                    *lacking = lacking.union(tiers);
                }
            });
        }
        fill();
    }

    /// Keeps flows with the meter away from the tiers in `lacking`, and allows them at all others.
    fn mark_meter(&self, id: u32, lacking: TierSet) {
        let before = self.eligibility().lacking_meters.get(&id).copied().unwrap_or_default();
        if before == lacking {
            return;
        }
        self.change_eligibility(|eligibility| {
            if lacking.is_empty() {
                eligibility.lacking_meters.remove(&id);
            } else {
                eligibility.lacking_meters.insert(id, lacking);
            }
        });
        if !before.covers(lacking) {
            self.review();
        }
    }
}

impl Meters for PlacedDatapath {
    fn limits(&self) -> (u32, u8) {
        self.base.meters().map_or((0, 0), Meters::limits)
    }

    fn set(&self, id: u32, config: &MeterConfig) -> Result<(), Refusal> {
        let base = self.base.meters().ok_or(Refusal::UnsupportedAction)?;
        let mut meters = self.meter_configs();
        base.set(id, config)?;
        meters.insert(id, config.clone());
        let mut lacking = TierSet::NONE;
        for (slot, provider) in self.slots.present() {
            if provider.set_meter(id, config).is_err() {
                lacking = lacking.union(slot.tiers());
            }
        }
        self.mark_meter(id, lacking);
        for (slot, provider) in self.slots.present() {
            if lacking.meets(slot.tiers()) {
                // It may have the previous configuration.
                provider.remove_meter(id);
            }
        }
        Ok(())
    }

    fn remove(&self, id: u32) -> Option<MeterStats> {
        let mut meters = self.meter_configs();
        let last = self.base.meters()?.remove(id)?;
        meters.remove(&id);
        let sum = self.slots.present().fold(last, |sum, (_, p)| add(sum, p.remove_meter(id)));
        // A meter that does not exist lets packets pass, at every tier.
        self.mark_meter(id, TierSet::NONE);
        Some(sum)
    }

    fn stats(&self, id: u32) -> Option<MeterStats> {
        let stats = self.base.meters()?.stats(id)?;
        Some(self.slots.present().fold(stats, |sum, (_, p)| add(sum, p.meter_stats(id))))
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The contract's meters: in the base, and mirrored in each provider.

use crate::placed::PlacedDatapath;
use datapath::{MeterConfig, MeterStats, Meters, Refusal, TierSet};

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
        base.set(id, config)?;
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
        let last = self.base.meters()?.remove(id)?;
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

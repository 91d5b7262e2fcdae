// SPDX-License-Identifier: Apache-2.0
//! The contract's meters: in the base, and mirrored in the fast path.

use crate::placed::PlacedDatapath;
use datapath::{MeterConfig, MeterStats, Meters, Refusal};

/// Adds what a meter counted in the fast path.
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
    /// Flows that use the meter may, or may not, go to the fast path.
    fn mark_meter(&self, id: u32, is_foreign: bool) {
        if self.gates().foreign_meters.contains(&id) == is_foreign {
            return;
        }
        self.change_gates(|gates| {
            if is_foreign {
                gates.foreign_meters.insert(id);
            } else {
                gates.foreign_meters.remove(&id);
            }
        });
        if is_foreign {
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
        if let Some(fast) = self.fast_path() {
            let mirrored = fast.set_meter(id, config).is_ok();
            self.mark_meter(id, !mirrored);
            if !mirrored {
                // It may have another configuration from before.
                fast.remove_meter(id);
            }
        }
        Ok(())
    }

    fn remove(&self, id: u32) -> Option<MeterStats> {
        let last = self.base.meters()?.remove(id)?;
        let in_fast = self.fast_path().and_then(|fast| fast.remove_meter(id));
        // A meter that is not there lets packets pass, in the fast path as well.
        self.mark_meter(id, false);
        Some(add(last, in_fast))
    }

    fn stats(&self, id: u32) -> Option<MeterStats> {
        let stats = self.base.meters()?.stats(id)?;
        Some(add(stats, self.fast_path().and_then(|fast| fast.meter_stats(id))))
    }
}

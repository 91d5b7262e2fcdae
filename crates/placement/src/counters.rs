// SPDX-License-Identifier: Apache-2.0
//! The contract's counters: sums over the base and all providers.

use crate::placed::PlacedDatapath;
use datapath::{Counters, DropReason, LookupStats};

impl Counters for PlacedDatapath {
    fn lookups(&self) -> LookupStats {
        let mut sum = self.base.lookups(); // only the base counts misses
        let adopted = self.table.tally.adopted();
        sum.flows += adopted;
        for (_, provider) in self.slots.present() {
            let fast = provider.lookups();
            sum.hits += fast.hits;
            sum.lost += fast.lost;
            sum.mask_hits += fast.mask_hits;
            sum.cache_hits += fast.cache_hits;
            // A provider keeps a mask for a while after the mask's last flow has gone.
            if adopted > 0 {
                sum.masks = sum.masks.max(fast.masks);
            }
        }
        sum
    }

    fn drops(&self, reason: DropReason) -> u64 {
        let fast: u64 = self.slots.present().map(|(_, provider)| provider.drops(reason)).sum();
        self.base.drops(reason) + fast
    }

    fn tunnel_checks(&self) -> tunnel::Checks {
        self.base.tunnel_checks()
    }
}

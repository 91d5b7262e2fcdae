// SPDX-License-Identifier: Apache-2.0
//! The contract's counters: sums.

use crate::placed::PlacedDatapath;
use datapath::{Counters, DropReason, LookupStats};

impl Counters for PlacedDatapath {
    fn lookups(&self) -> LookupStats {
        let base = self.base.lookups();
        let Some(fast) = self.fast_path() else { return base };
        let fast = fast.lookups();
        let adopted = self.table.tally.adopted();
        LookupStats {
            hits: base.hits + fast.hits,
            // What the fast path misses the base looks up.
            misses: base.misses,
            lost: base.lost + fast.lost,
            mask_hits: base.mask_hits + fast.mask_hits,
            cache_hits: base.cache_hits + fast.cache_hits,
            // The fast path keeps masks for a while that have lost their last flow.
            masks: if adopted == 0 { base.masks } else { base.masks.max(fast.masks) },
            flows: base.flows + adopted,
        }
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.base.drops(reason) + self.fast_path().map_or(0, |fast| fast.drops(reason))
    }
}

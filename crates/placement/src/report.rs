// SPDX-License-Identifier: Apache-2.0
//! What is where, in numbers (`dpctl/offload-stats-show`).

use crate::placed::PlacedDatapath;
use datapath::{Counters, Refusal, Tier};

/// A tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierStats {
    /// Which.
    pub tier: Tier,
    /// Flows whose fastest tier this is.
    pub flows: usize,
}

/// A reason why flows are not in a faster tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonStats {
    /// Which.
    pub reason: Refusal,
    /// Flows that are in userspace only, for this reason, now.
    pub flows: usize,
    /// Flows that are in a fast tier but not in the fastest of their ingress port, for this
    /// reason, now.
    pub partial: usize,
    /// Times that a flow was refused for this reason since start.
    pub refusals: u64,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffloadStats {
    /// Flows in all.
    pub flows: usize,
    /// Flows that an earlier daemon left and that are not looked at yet.
    pub adopted: usize,
    /// Tiers, fastest first, userspace last.
    pub tiers: Vec<TierStats>,
    /// Reasons that there were, in the order of [`Refusal::ALL`].
    pub reasons: Vec<ReasonStats>,
    /// Packets that flows in fast tiers took since start.
    pub fast_packets: u64,
    /// Packets that fast tiers sent up since start.
    pub sent_up: u64,
}

impl PlacedDatapath {
    /// Numbers of flows by tier and by reason.
    pub fn offload_stats(&self) -> OffloadStats {
        let tally = &self.table.tally;
        let flows = self.lookups().flows;
        let Some(fast) = self.fast_path() else {
            return self.stats_without_fast_path(flows);
        };
        let mut tiers: Vec<TierStats> =
            fast.tiers().tiers().map(|tier| TierStats { tier, flows: tally.on(tier) }).collect();
        let in_fast: usize = tiers.iter().map(|t| t.flows).sum();
        tiers.push(TierStats { tier: Tier::Userspace, flows: flows.saturating_sub(in_fast) });
        let reasons = Refusal::ALL.into_iter().map(|reason| ReasonStats {
            reason,
            flows: tally.refused(reason),
            partial: tally.lacking(reason),
            refusals: tally.refused_ever(reason),
        });
        OffloadStats {
            flows,
            adopted: tally.adopted(),
            tiers,
            reasons: reasons.filter(|r| r.flows > 0 || r.partial > 0 || r.refusals > 0).collect(),
            fast_packets: fast.lookups().hits,
            sent_up: fast.sent_up(),
        }
    }

    /// Times that a flow was refused for `reason` since start; see [`ReasonStats::refusals`].
    pub fn refusals(&self, reason: Refusal) -> u64 {
        self.table.tally.refused_ever(reason)
    }

    fn stats_without_fast_path(&self, flows: usize) -> OffloadStats {
        let reason = self.no_fast_path().map(|reason| ReasonStats {
            reason,
            flows,
            partial: 0,
            refusals: 0,
        });
        OffloadStats {
            flows,
            adopted: 0,
            tiers: vec![TierStats { tier: Tier::Userspace, flows }],
            reasons: reason.into_iter().collect(),
            fast_packets: 0,
            sent_up: 0,
        }
    }
}

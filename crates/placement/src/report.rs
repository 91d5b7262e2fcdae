// SPDX-License-Identifier: Apache-2.0
//! Numbers of flows by tier and by reason (`dpctl/offload-stats-show`).

use crate::placed::PlacedDatapath;
use datapath::{Counters, OffloadProvider, Refusal, Tier};

/// The number of flows of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierStats {
    /// The tier.
    pub tier: Tier,
    /// Number of flows whose fastest tier this is.
    pub flows: usize,
}

/// The numbers of flows that are not in a faster tier for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonStats {
    /// The reason.
    pub reason: Refusal,
    /// Number of flows that are in userspace only now, for this reason among others.
    pub flows: usize,
    /// Number of flows that are in a faster tier now but not in all tiers of their ingress port,
    /// for this reason among others.
    pub partial: usize,
    /// Number of refusals for this reason since the start. A flow that is offered again counts
    /// again.
    pub refusals: u64,
}

/// The numbers of flows by tier and by reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffloadStats {
    /// Number of all flows.
    pub flows: usize,
    /// Number of flows that an earlier daemon left and that are not checked yet.
    pub adopted: usize,
    /// Flows by tier, fastest first, userspace last.
    pub tiers: Vec<TierStats>,
    /// Reasons with a number above zero, in the order of [`Refusal::ALL`].
    pub reasons: Vec<ReasonStats>,
    /// Explanations of drivers and the kernel for refusals since the start, each with its count.
    pub explanations: Vec<(String, u64)>,
    /// Number of packets that met flows in faster tiers since the start.
    pub fast_packets: u64,
    /// Number of packets that faster tiers sent up to userspace since the start.
    pub sent_up: u64,
}

impl PlacedDatapath {
    /// Returns numbers of flows by tier and by reason.
    pub fn offload_stats(&self) -> OffloadStats {
        let tally = &self.table.tally;
        let flows = self.lookups().flows;
        let present = || self.slots.present();
        let tiers = present().flat_map(|(slot, _)| slot.tiers().tiers());
        let mut tiers: Vec<TierStats> =
            tiers.map(|tier| TierStats { tier, flows: tally.on(tier) }).collect();
        let in_fast: usize = tiers.iter().map(|t| t.flows).sum();
        tiers.push(TierStats { tier: Tier::Userspace, flows: flows.saturating_sub(in_fast) });
        let sent_up = |provider: &dyn OffloadProvider| provider.misses().map_or(0, |m| m.sent_up());
        OffloadStats {
            flows,
            adopted: tally.adopted(),
            tiers,
            reasons: self.reasons(flows),
            explanations: present().flat_map(|(_, provider)| provider.explanations()).collect(),
            fast_packets: present().map(|(_, provider)| provider.lookups().hits).sum(),
            sent_up: present().map(|(_, provider)| sent_up(&**provider)).sum(),
        }
    }

    fn reasons(&self, flows: usize) -> Vec<ReasonStats> {
        if self.slots.are_empty() {
            let absent = self.absent_refusals().distinct();
            let stats = |reason| ReasonStats { reason, flows, partial: 0, refusals: 0 };
            return absent.map(stats).collect();
        }
        let tally = &self.table.tally;
        let stats = Refusal::ALL.into_iter().map(|reason| ReasonStats {
            reason,
            flows: tally.refused(reason),
            partial: tally.lacking(reason),
            refusals: tally.refused_ever(reason),
        });
        stats.filter(|r| r.flows > 0 || r.partial > 0 || r.refusals > 0).collect()
    }

    /// Returns the number of refusals for `reason` since the start; see [`ReasonStats::refusals`].
    pub fn refusals(&self, reason: Refusal) -> u64 {
        self.table.tally.refused_ever(reason)
    }
}

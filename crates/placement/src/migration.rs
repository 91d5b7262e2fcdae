// SPDX-License-Identifier: Apache-2.0
//! Migration of flows: into providers, out of them, and back again.

use crate::flows::Departure;
use crate::placed::PlacedDatapath;
use crate::queue::BatchSource;
use crate::slots::Slot;
use crate::table::{Entry, FlowPlacement, PlacementState, in_port};
use datapath::{FlowDump, FlowStats, Megaflow, OffloadProvider, Refusal, TierSet, Ufid, Verdict};
use hashbrown::HashMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// Largest number of flows that one maintenance turn moves out of a full provider.
pub(crate) const EVICTIONS_AT_ONCE: usize = 1024;
/// Largest number of waiting flows that one maintenance turn offers to a provider.
const OFFERS_AT_ONCE: usize = 2048;

/// Reasons that pass by themselves: the provider gets room, or has lost the flow. Housekeeping
/// offers a flow with one of them again, the busiest flows first.
const WAITING: [Refusal; 6] = [
    Refusal::TableFull,
    Refusal::Evicted,
    Refusal::MasksFull,
    Refusal::ProgramsFull,
    Refusal::TunnelHeadersFull,
    Refusal::Lost,
];

/// The occasion on which a flow is offered to providers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Occasion {
    /// The flow's batch is sent. The calling thread may be a packet thread, so providers that
    /// install later are left out.
    Batch,
    /// Maintenance: all providers are asked.
    Housekeeping,
}

impl PlacedDatapath {
    /// Returns the tiers at which a flow would run if it were installed now, and the reasons of the
    /// others.
    pub fn would_run(&self, flow: &Megaflow) -> Verdict {
        let eligible = self.decide(flow);
        let mut would = Verdict { tiers: TierSet::NONE, refusals: eligible.refusals };
        for slot in self.slots.iter() {
            let allowed = eligible.tiers.intersection(slot.tiers());
            match (slot.provider(), slot.shown_absence()) {
                (Some(provider), _) if !allowed.is_empty() => {
                    would = would.and(provider.suits(flow, allowed));
                }
                (None, Some(reason)) => {
                    would.refusals.set(slot.tiers(), Some(reason.refusal));
                }
                _ => {}
            }
        }
        would
    }

    /// Offers a queued flow to the providers that do not hold it, the slowest first. Returns its
    /// new placement; `None` when the flow was not queued.
    fn offer(&self, ufid: Ufid, occasion: Occasion) -> Option<FlowPlacement> {
        let mut shard = self.table.shard(ufid);
        let mut place = shard.get(ufid)?;
        if place.state != PlacementState::Queued {
            return None;
        }
        // Its actions may have changed since it was queued.
        let Some(dump) = self.base.flow(ufid) else {
            shard.take(ufid);
            return None;
        };
        let eligible = self.decide(&dump.flow);
        place.state = PlacementState::Stable;
        for (slot, provider) in self.slots.present().rev() {
            if place.tiers.meets(slot.tiers()) {
                continue;
            }
            let allowed = eligible.tiers.intersection(slot.tiers());
            let mut verdict = Verdict { tiers: TierSet::NONE, refusals: eligible.refusals };
            if !allowed.is_empty() {
                let is_for_later = occasion == Occasion::Batch && provider.installs_later();
                verdict = verdict.and(match is_for_later {
                    true => Verdict::refused(allowed, Refusal::Unsettled),
                    false => exists_as_unsettled(provider.install(&dump.flow, allowed)),
                });
            }
            place.record_verdict(slot.tiers(), verdict);
        }
        shard.put(ufid, place);
        Some(place)
    }

    /// Offers a queued flow to the providers that install at once.
    pub(crate) fn offer_at_once(&self, ufid: Ufid) {
        self.offer(ufid, Occasion::Batch);
    }

    /// Offers the flows that waited for the batch of `source`, which is now processed and sent.
    pub(crate) fn offer_batch(&self, source: BatchSource) {
        let is_on_its_way = |port| {
            let mut channels = self.slots.present().filter_map(|(_, provider)| provider.misses());
            channels.any(|channel| channel.is_on_its_way(port))
        };
        for ufid in self.queue.ready(source, is_on_its_way) {
            self.offer_at_once(ufid);
        }
    }

    /// Returns the tiers of a provider at which a flow that it holds has to be, and brings the flow
    /// there. `tiers` are all tiers that hold the flow now. `is_alike` means that the flow has the
    /// effect of its present actions in the provider. Without that, or at other tiers, it is
    /// replaced.
    ///
    /// # Errors
    ///
    /// The reason for which the flow must leave the provider.
    pub(crate) fn refit(
        &self,
        slot: &Slot,
        provider: &dyn OffloadProvider,
        tiers: TierSet,
        flow: &Megaflow,
        is_alike: bool,
    ) -> Result<Verdict, Refusal> {
        let eligibility = self.eligibility();
        let eligible = eligibility.decide(in_port(flow), &flow.actions);
        let why = |verdict| eligibility.why_not(in_port(flow), slot.tiers(), verdict);
        let allowed = eligible.tiers.intersection(slot.tiers());
        if allowed.is_empty() {
            return Err(why(eligible));
        }
        let mut verdict = provider.suits(flow, allowed);
        if !is_alike || verdict.tiers != tiers.intersection(slot.tiers()) {
            verdict = provider.replace(flow, allowed);
            if verdict.tiers.is_empty() {
                return Err(why(verdict));
            }
        }
        Ok(Verdict { refusals: verdict.refusals.or(eligible.refusals), ..verdict })
    }

    /// Takes flows out of providers, the fastest provider first.
    pub(crate) fn depart(&self, leaving: &[Departure]) {
        if leaving.is_empty() {
            return;
        }
        for slot in self.slots.iter() {
            let theirs = leaving.iter().filter(|(tiers, ..)| *tiers == slot.tiers());
            let theirs: Vec<_> = theirs.map(|(_, ufid, refusal)| (*ufid, *refusal)).collect();
            if !theirs.is_empty() {
                self.withdraw(slot, &theirs);
            }
        }
    }

    /// Takes flows out of a provider, for these reasons; they continue to run in slower tiers.
    /// Waits until their counts are final, and the counts of flows that other threads withdraw at
    /// the same time. The caller must not hold a shard's lock.
    pub(crate) fn withdraw(&self, slot: &Slot, flows: &[(Ufid, Refusal)]) {
        let Some(provider) = slot.provider() else { return };
        let _one_at_a_time = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        let mut leaving = Vec::with_capacity(flows.len());
        for (ufid, reason) in flows {
            let mut shard = self.table.shard(*ufid);
            let Some(mut place) = shard.get(*ufid) else { continue };
            if place.is_held_by(slot.tiers()) {
                let held = place.tiers.intersection(slot.tiers());
                place.state = PlacementState::Leaving;
                place.tiers = place.tiers.minus(held);
                place.refusals.set(held, Some(*reason));
                shard.put(*ufid, place);
                leaving.push((*ufid, held, *reason));
            }
        }
        if leaving.is_empty() {
            return;
        }
        let mut last: HashMap<Ufid, FlowStats, foldhash::fast::RandomState> = HashMap::default();
        let ufids: Vec<Ufid> = leaving.iter().map(|(ufid, ..)| *ufid).collect();
        provider.remove_many(&ufids, &mut |ufid, stats| {
            last.insert(ufid, stats);
        });
        for (ufid, held, reason) in leaving {
            let mut shard = self.table.shard(ufid);
            let Some(mut place) = shard.get(ufid) else { continue };
            if place.state == PlacementState::Leaving {
                shard.carry(ufid, last.get(&ufid).copied().unwrap_or_default());
                place.state = PlacementState::Stable;
                if self.has_passed(slot, ufid, reason) {
                    place.refusals.set(held, Some(Refusal::Unsettled));
                }
                shard.put(ufid, place);
            }
        }
    }

    /// Checks whether a flow that leaves a provider for this reason could run there after all. The
    /// thread that found the reason has not held the shard's lock since, so another thread may have
    /// given the flow other actions. Nothing else would offer it again. (Housekeeping offers a flow
    /// with a reason of [`WAITING`] in any case.)
    fn has_passed(&self, slot: &Slot, ufid: Ufid, reason: Refusal) -> bool {
        let would_run = |dump: FlowDump| self.would_run(&dump.flow).tiers.meets(slot.tiers());
        !WAITING.contains(&reason) && self.base.flow(ufid).is_some_and(would_run)
    }

    /// Does housekeeping; the daemon calls it twice a second at most, from one thread.
    pub fn maintain(&self) {
        if self.slots.are_empty() {
            return;
        }
        for slot in self.slots.iter() {
            if slot.lost_misses.swap(false, Ordering::AcqRel) {
                self.leave_provider(slot);
            }
        }
        self.slots.present().for_each(|(_, provider)| provider.maintain());
        for ufid in self.queue.overdue() {
            self.offer_at_once(ufid);
        }
        if self.changed.swap(false, Ordering::AcqRel) {
            self.review();
        }
        let tally = &self.table.tally;
        let there_are = |reason| tally.refused(reason) > 0 || tally.lacking(reason) > 0;
        if there_are(Refusal::Unsettled) {
            self.requeue(|reason| reason == Some(Refusal::Unsettled));
        }
        let is_waiting = WAITING.into_iter().any(there_are);
        let is_unsettled = there_are(Refusal::Unsettled);
        for (slot, provider) in self.slots.present() {
            if is_waiting || is_unsettled && provider.installs_later() {
                self.fill_and_make_room(slot);
            }
        }
        if tally.lacking(Refusal::PortSetsFull) > 0 {
            self.offer_missing_tiers(Refusal::PortSetsFull);
        }
        self.release_numbers();
    }

    /// Gives flows that a provider holds, but for this reason not at all its tiers, the missing
    /// tiers if there is room now.
    fn offer_missing_tiers(&self, reason: Refusal) {
        for (slot, _) in self.slots.present() {
            let waiting = self.table.at(|place| {
                let lacks = place.refusals.of(slot.tiers()).distinct().any(|r| r == reason);
                lacks && place.is_held_by(slot.tiers())
            });
            for ufid in waiting {
                // A flow that is refused stays at its tiers.
                let _ = self.review_one(slot, ufid);
            }
        }
    }

    /// Has flows offered again, with the next batch, that providers refused for a reason that
    /// `may_have_passed`. Flows that the ports and settings refuse now get the new reason instead.
    /// A reason of `None` means that the flow's port was not on the tiers.
    pub(crate) fn requeue(&self, may_have_passed: impl Fn(Option<Refusal>) -> bool) {
        let may_have_passed = |slot: &Slot, place: FlowPlacement| {
            let refusals = place.refusals.of(slot.tiers());
            let of_port = refusals.is_empty().then_some(None);
            let mut reasons = refusals.distinct().map(Some).chain(of_port);
            !place.tiers.meets(slot.tiers()) && reasons.any(&may_have_passed)
        };
        let refused = self.table.at(|place| {
            let mut present = self.slots.present();
            place.state == PlacementState::Stable
                && present.any(|(slot, _)| may_have_passed(slot, place))
        });
        for ufid in refused {
            let mut shard = self.table.shard(ufid);
            let Some(before) = shard.get(ufid).filter(|p| p.state == PlacementState::Stable) else {
                continue;
            };
            let Some(dump) = self.base.flow(ufid) else { continue };
            let now = self.decide(&dump.flow);
            let mut place = before;
            for (slot, _) in self.slots.present() {
                if may_have_passed(slot, before) {
                    place.await_offer(slot, now);
                }
            }
            if place != before {
                shard.put(ufid, place);
            }
            if place.state == PlacementState::Queued {
                self.queue.push(ufid, in_port(&dump.flow), 0);
            }
        }
    }

    /// Brings every flow in line with the present ports and settings. When this returns, the ports
    /// and settings allow every flow of every provider.
    pub(crate) fn review(&self) {
        for slot in self.slots.iter() {
            let held = self.table.at(|place| place.is_held_by(slot.tiers()));
            let refused = |ufid| self.review_one(slot, ufid).err().map(|refusal| (ufid, refusal));
            // Even without flows to withdraw, this waits for flows that other threads withdraw.
            self.withdraw(slot, &held.into_iter().filter_map(refused).collect::<Vec<_>>());
        }
        self.requeue(|reason| {
            let stays = |reason| {
                WAITING.contains(&reason)
                    || matches!(reason, Refusal::UnsupportedKey | Refusal::NeedsUserspace)
            };
            !reason.is_some_and(stays)
        });
    }

    /// Brings a flow that a provider holds to the tiers of that provider at which it may be now.
    ///
    /// # Errors
    ///
    /// The reason for which it may be at none of them. The flow is still there then.
    fn review_one(&self, slot: &Slot, ufid: Ufid) -> Result<(), Refusal> {
        let Some(provider) = slot.provider() else { return Ok(()) };
        let mut shard = self.table.shard(ufid);
        let Some(mut place) = shard.get(ufid) else { return Ok(()) };
        if place.state == PlacementState::Leaving || !place.is_held_by(slot.tiers()) {
            return Ok(());
        }
        let Some(dump) = self.base.flow(ufid) else { return Ok(()) };
        let verdict = self.refit(slot, &**provider, place.tiers, &dump.flow, true)?;
        place.record_verdict(slot.tiers(), verdict);
        shard.put(ufid, place);
        Ok(())
    }

    /// Offers waiting flows to a provider, the busiest first. If the provider has no room, its
    /// coldest flows leave it where they are less than half as busy as waiting ones. The waiting
    /// flows find room in the next turn.
    fn fill_and_make_room(&self, slot: &Slot) {
        let ended = self.table.ended();
        let heat = |entry: &Entry| Some(entry.heat(ended)).filter(|n| *n != u32::MAX).unwrap_or(0);
        let waits = |reason: Refusal| {
            WAITING.contains(&reason) || reason == Refusal::Unsettled && slot.installs_later()
        };
        let mut waiting: Vec<(u32, Ufid)> = self.table.select(|ufid, entry| {
            let FlowPlacement { state, tiers, refusals } = entry.place;
            let waits = state == PlacementState::Stable
                && !tiers.meets(slot.tiers())
                && refusals.of(slot.tiers()).distinct().any(waits);
            waits.then(|| (heat(entry), ufid))
        });
        waiting.sort_unstable_by_key(|(heat, _)| std::cmp::Reverse(*heat));
        let mut offered = waiting.iter().take(OFFERS_AT_ONCE);
        // The removal of a flow seldom frees a mask or a list of actions, so only a full table of
        // flows counts.
        let is_full = offered.any(|(_, ufid)| self.is_full_for(slot, *ufid));
        if !is_full {
            return;
        }
        // Flows that still wait, the busiest first, are paired with flows that are there, the
        // coldest first. A flow that no sweep has met yet may be busy, and sorts last.
        let mut there: Vec<(u32, Ufid)> = self.table.select(|ufid, entry| {
            let is_there = entry.place.is_held_by(slot.tiers());
            is_there.then_some((entry.heat(ended), ufid))
        });
        if there.len() > EVICTIONS_AT_ONCE {
            there.select_nth_unstable(EVICTIONS_AT_ONCE);
            there.truncate(EVICTIONS_AT_ONCE);
        }
        there.sort_unstable();
        let is_out = |ufid: Ufid| {
            let place = self.table.shard(ufid).get(ufid);
            place.is_some_and(|p| p.state == PlacementState::Stable && !p.tiers.meets(slot.tiers()))
        };
        let waiting = waiting.into_iter().filter(|(_, ufid)| is_out(*ufid));
        let cold: Vec<(Ufid, Refusal)> = waiting
            .zip(there)
            .take_while(|((hot, _), (cold, _))| *hot > cold.saturating_mul(2))
            .map(|(_, (_, ufid))| (ufid, Refusal::Evicted))
            .collect();
        self.withdraw(slot, &cold);
    }

    /// Offers a waiting flow to the providers. Returns true when the table of this one is full.
    fn is_full_for(&self, slot: &Slot, ufid: Ufid) -> bool {
        {
            let mut shard = self.table.shard(ufid);
            let Some(mut place) = shard.get(ufid).filter(|p| p.state == PlacementState::Stable)
            else {
                return false;
            };
            place.state = PlacementState::Queued;
            shard.put(ufid, place);
        }
        let place = self.offer(ufid, Occasion::Housekeeping);
        place.is_some_and(|place| {
            let mut reasons = place.refusals.of(slot.tiers()).distinct();
            !place.tiers.meets(slot.tiers()) && reasons.any(|r| r == Refusal::TableFull)
        })
    }
}

impl FlowPlacement {
    /// Records that a provider, which does not hold the flow, is to be offered it at the tiers that
    /// `eligible` allows: with the next batch, or by housekeeping if the provider installs later.
    pub(crate) fn await_offer(&mut self, slot: &Slot, eligible: Verdict) {
        let may = eligible.tiers.intersection(slot.tiers());
        self.refusals.set_from(slot.tiers(), eligible.refusals);
        self.refusals.set(may, Some(Refusal::Unsettled));
        if !may.is_empty() && !slot.installs_later() {
            self.state = PlacementState::Queued;
        }
    }
}

/// Replaces [`Refusal::Exists`] by [`Refusal::Unsettled`]: a flow with the same identity is on its
/// way out of the provider, so a later offer succeeds.
fn exists_as_unsettled(mut verdict: Verdict) -> Verdict {
    if verdict.refusals.is_empty() {
        return verdict;
    }
    for tier in verdict.refusals.tiers().tiers() {
        if verdict.refusals.get(tier) == Some(Refusal::Exists) {
            verdict.refusals.set(TierSet::of(tier), Some(Refusal::Unsettled));
        }
    }
    verdict
}

// SPDX-License-Identifier: Apache-2.0
//! Flows change their place: into the fast path, out of it, and in again.

use crate::TierSet;
use crate::flows::in_port;
use crate::gates::Allowed;
use crate::placed::PlacedDatapath;
use crate::queue::Giver;
use crate::table::{Entry, Place};
use datapath::{FlowDump, FlowStats, Megaflow, Refusal, Tier, Ufid};
use hashbrown::HashMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// Flows that one maintenance turn moves out of a full fast path.
pub(crate) const EVICTIONS_AT_ONCE: usize = 1024;
/// Flows that one maintenance turn offers to a fast path that was full.
const OFFERS_AT_ONCE: usize = 2048;

/// The reasons for which a flow waits for room.
const FULL: [Refusal; 4] =
    [Refusal::TableFull, Refusal::Evicted, Refusal::MasksFull, Refusal::ProgramsFull];

/// Why a fast path that takes the tiers but not this flow in all of them does not.
pub(crate) fn lacks(taken: TierSet, allowed: Allowed) -> Option<Refusal> {
    if taken.covers(allowed.wanted) {
        return None;
    }
    // Of the tiers that ports allow, those that are missing cannot run the actions.
    Some(if taken.covers(allowed.tiers) {
        allowed.lacks.unwrap_or(Refusal::UnsupportedAction)
    } else {
        Refusal::UnsupportedAction
    })
}

impl PlacedDatapath {
    /// Where a flow is when the fast path answered so.
    pub(crate) fn place_of(&self, answer: Result<TierSet, Refusal>, allowed: Allowed) -> Place {
        match answer {
            Ok(tiers) => Place::Fast { tiers, lacks: lacks(tiers, allowed) },
            // The last one with this identity is on its way out.
            Err(Refusal::Exists) => Place::Base(Refusal::Unsettled),
            Err(refusal) => Place::Base(refusal),
        }
    }

    /// Where a flow may run: by ports and settings, and by the program that its ingress port has
    /// at XDP.
    pub(crate) fn decide(&self, flow: &Megaflow) -> Result<Allowed, Refusal> {
        let mut allowed = self.gates().decide(in_port(flow), &flow.actions)?;
        if allowed.tiers.has(Tier::Xdp)
            && let Some(fast) = self.fast_path()
            && let Err(refusal) = fast.suits_xdp(flow)
        {
            allowed.tiers = allowed.tiers.without(Tier::Xdp);
            allowed.lacks = Some(refusal);
            if allowed.tiers.is_empty() {
                return Err(refusal);
            }
        }
        Ok(allowed)
    }

    /// Takes a queued flow to the fast path. Its place then, when it was queued.
    fn offer(&self, ufid: Ufid) -> Option<Place> {
        let fast = self.fast_path()?;
        let mut shard = self.table.shard(ufid);
        if shard.get(ufid)? != Place::Queued {
            return None;
        }
        // Its actions may have changed since.
        let Some(dump) = self.base.flow(ufid) else {
            shard.take(ufid);
            return None;
        };
        let place = match self.decide(&dump.flow) {
            Ok(allowed) => self.place_of(fast.install(&dump.flow, allowed.tiers), allowed),
            Err(refusal) => Place::Base(refusal),
        };
        shard.put(ufid, place);
        Some(place)
    }

    pub(crate) fn settle(&self, ufid: Ufid) {
        self.offer(ufid);
    }

    /// `giver`'s batch is processed and sent; `drained`: when it was taken no more was there.
    pub(crate) fn settle_batch(&self, giver: Giver, drained: bool) {
        let Some(fast) = self.fast_path() else { return };
        let is_on_its_way = |port| fast.is_on_its_way(port).unwrap_or(!drained);
        for ufid in self.queue.ready(giver, is_on_its_way) {
            self.settle(ufid);
        }
    }

    /// Takes flows out of the fast path, for these reasons; they go on in the base. Waits until
    /// their counts are final, and until those are that others withdraw. Not to be called with a
    /// shard's lock.
    pub(crate) fn withdraw(&self, flows: &[(Ufid, Refusal)]) {
        let Some(fast) = self.fast_path() else { return };
        let _one_at_a_time = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        let mut leaving = Vec::with_capacity(flows.len());
        for (ufid, reason) in flows {
            let mut shard = self.table.shard(*ufid);
            if matches!(shard.get(*ufid), Some(Place::Fast { .. })) {
                shard.put(*ufid, Place::Leaving(*reason));
                leaving.push(*ufid);
            }
        }
        if leaving.is_empty() {
            return;
        }
        let mut last: HashMap<Ufid, FlowStats, foldhash::fast::RandomState> = HashMap::default();
        fast.remove_many(&leaving, &mut |ufid, stats| {
            last.insert(ufid, stats);
        });
        for ufid in leaving {
            let mut shard = self.table.shard(ufid);
            if let Some(Place::Leaving(reason)) = shard.get(ufid) {
                shard.carry(ufid, last.get(&ufid).copied().unwrap_or_default());
                let has_passed = self.has_passed(ufid, reason);
                let reason = if has_passed { Refusal::Unsettled } else { reason };
                shard.put(ufid, Place::Base(reason));
            }
        }
    }

    /// Whether a flow that leaves the fast path for this reason could run there after all. Who
    /// found the reason held no lock since: others may have given the flow other actions by then,
    /// and nothing would offer it again. (Where there was no room it is offered in any case.)
    fn has_passed(&self, ufid: Ufid, reason: Refusal) -> bool {
        let would_run = |dump: FlowDump| self.would_run(&dump.flow).is_ok();
        !FULL.contains(&reason) && self.base.flow(ufid).is_some_and(would_run)
    }

    /// Housekeeping; the daemon calls it about twice a second, from one thread.
    pub fn maintain(&self) {
        let Some(fast) = self.fast_path() else { return };
        if self.lost_misses.swap(false, Ordering::AcqRel) {
            self.leave_fast_path(&**fast);
        }
        fast.maintain();
        for ufid in self.queue.overdue() {
            self.settle(ufid);
        }
        if self.changed.swap(false, Ordering::AcqRel) {
            self.review();
        }
        if self.table.tally.refused(Refusal::Unsettled) > 0 {
            self.requeue(|reason| reason == Refusal::Unsettled);
        }
        if FULL.into_iter().any(|reason| self.table.tally.refused(reason) > 0) {
            self.fill_and_make_room();
        }
        if self.table.tally.lacking(Refusal::PortSetsFull) > 0 {
            self.offer_at_xdp();
        }
        self.release_numbers();
    }

    /// Flows that found no set of ports at XDP run at the skb hook, until a set is free.
    fn offer_at_xdp(&self) {
        let full = Some(Refusal::PortSetsFull);
        let waiting =
            self.table.at(|place| matches!(place, Place::Fast { lacks, .. } if lacks == full));
        for ufid in waiting {
            // On a refusal it stays where it is.
            let _ = self.review_fast(ufid);
        }
    }

    /// Flows that were refused for a reason that may have passed are offered again, with the
    /// next batch, unless ports or settings are known to say no.
    fn requeue(&self, may_have_passed: impl Fn(Refusal) -> bool) {
        let refused =
            self.table.at(|place| matches!(place, Place::Base(reason) if may_have_passed(reason)));
        for ufid in refused {
            let mut shard = self.table.shard(ufid);
            let Some(Place::Base(before)) = shard.get(ufid) else { continue };
            let Some(dump) = self.base.flow(ufid) else { continue };
            let port = in_port(&dump.flow);
            match self.gates().decide(port, &dump.flow.actions) {
                Ok(_) => {
                    shard.put(ufid, Place::Queued);
                    self.queue.push(ufid, port, 0);
                }
                Err(now) if now != before => shard.put(ufid, Place::Base(now)),
                Err(_) => {}
            }
        }
    }

    /// Brings every flow in line with the ports and settings of now. When this returns, no
    /// flow of the fast path does what they do not allow.
    pub(crate) fn review(&self) {
        let fast = self.table.at(|place| matches!(place, Place::Fast { .. }));
        let refused = |ufid| self.review_fast(ufid).err().map(|refusal| (ufid, refusal));
        // With none of its own to withdraw it still waits for those that others do.
        self.withdraw(&fast.into_iter().filter_map(refused).collect::<Vec<_>>());
        self.requeue(|reason| {
            !FULL.contains(&reason)
                && !matches!(reason, Refusal::UnsupportedKey | Refusal::NeedsUserspace)
        });
    }

    /// A flow of the fast path goes to the tiers that it may be in now; `Err` when to none.
    fn review_fast(&self, ufid: Ufid) -> Result<(), Refusal> {
        let Some(fast) = self.fast_path() else { return Ok(()) };
        let mut shard = self.table.shard(ufid);
        let Some(Place::Fast { tiers, .. }) = shard.get(ufid) else { return Ok(()) };
        let Some(dump) = self.base.flow(ufid) else { return Ok(()) };
        let allowed = self.decide(&dump.flow)?;
        let tiers =
            if allowed.tiers == tiers { tiers } else { fast.replace(&dump.flow, allowed.tiers)? };
        shard.put(ufid, self.place_of(Ok(tiers), allowed));
        Ok(())
    }

    /// Offers flows that found no room, the busiest first; when there is still none, the coldest
    /// flows of the fast path that are much colder leave, so that there is next time.
    fn fill_and_make_room(&self) {
        let heat = |entry: &Entry| if entry.recent == u32::MAX { 0 } else { entry.recent };
        let mut waiting: Vec<(u32, Ufid)> = self.table.select(|ufid, entry| {
            let Place::Base(reason) = entry.place else { return None };
            FULL.contains(&reason).then(|| (heat(entry), ufid))
        });
        waiting.sort_unstable_by_key(|(heat, _)| std::cmp::Reverse(*heat));
        let mut offered = waiting.iter().take(OFFERS_AT_ONCE);
        // One flow less is seldom one mask or one list of actions less.
        let is_full = offered.any(|(_, ufid)| self.offer_again(*ufid) == Some(Refusal::TableFull));
        if !is_full {
            return;
        }
        // What is still waiting, the busiest first, against what is there, the coldest first. A
        // flow that no sweep has seen yet may be busy.
        let mut there: Vec<(u32, Ufid)> = self.table.select(|ufid, entry| {
            matches!(entry.place, Place::Fast { .. }).then_some((entry.recent, ufid))
        });
        if there.len() > EVICTIONS_AT_ONCE {
            there.select_nth_unstable(EVICTIONS_AT_ONCE);
            there.truncate(EVICTIONS_AT_ONCE);
        }
        there.sort_unstable();
        let waiting = waiting
            .into_iter()
            .filter(|(_, ufid)| matches!(self.table.shard(*ufid).get(*ufid), Some(Place::Base(_))));
        let cold: Vec<(Ufid, Refusal)> = waiting
            .zip(there)
            .take_while(|((hot, _), (cold, _))| *hot > cold.saturating_mul(2))
            .map(|(_, (_, ufid))| (ufid, Refusal::Evicted))
            .collect();
        self.withdraw(&cold);
    }

    /// Offers a flow that found no room; why it found none now.
    fn offer_again(&self, ufid: Ufid) -> Option<Refusal> {
        {
            let mut shard = self.table.shard(ufid);
            if !matches!(shard.get(ufid), Some(Place::Base(_))) {
                return None;
            }
            shard.put(ufid, Place::Queued);
        }
        match self.offer(ufid)? {
            Place::Base(refusal) => Some(refusal),
            _ => None,
        }
    }
}

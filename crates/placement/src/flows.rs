// SPDX-License-Identifier: Apache-2.0
//! The contract's flows: the base's together with those of all providers.

use crate::placed::{InProviders, PlacedDatapath};
use crate::queue;
use crate::slots::Slot;
use crate::table::{Entry, FlowPlacement, PlacementState, Shard, in_port};
use datapath::shards::Groups;
use datapath::{
    Actions, FlowDump, FlowStats, Flows, Megaflow, OffloadProvider, Offloaded, PortNo, Refusal,
    Tier, TierRefusals, TierSet, Ufid, Verdict,
};
use hashbrown::{HashMap, HashSet};
use std::sync::PoisonError;

/// Number of flows that a sweep reads under one lock.
const TOGETHER: usize = 64;

/// The counts that one sweep found in one provider, for the flows in one part of the table. A map
/// of these few flows stays in the CPU's cache; a map of all flows would not.
struct Swept<'a> {
    slot: &'a Slot,
    tiers: TierSet,
    provider: &'a dyn OffloadProvider,
    stats: HashMap<Ufid, FlowStats, foldhash::fast::RandomState>,
}

/// A sweep of all providers.
struct Sweep<'a> {
    providers: Vec<Swept<'a>>,
    /// Its number. The sweep's counts do not hold for a flow that a provider got after the sweep
    /// began: they belong to an earlier stay.
    number: u32,
}

/// The flows that a sweep reports.
#[derive(Clone, Copy)]
enum Which {
    All,
    /// Those that have moved in some place.
    Moved,
}

/// Returns the counts of a flow in a provider, as of the provider's last sweep or later.
fn as_swept(provider: &dyn OffloadProvider, ufid: Ufid) -> Option<FlowStats> {
    provider.flow(ufid).map(|held| held.stats)
}

impl Sweep<'_> {
    /// Takes what each provider reported of part `n` of the table.
    fn take_part(&mut self, n: usize, in_providers: &InProviders) {
        for (swept, groups) in self.providers.iter_mut().zip(&in_providers.0) {
            swept.stats.clear();
            swept.stats.extend(groups.part(n).iter().copied());
        }
    }

    /// Returns the flow's total: `outside`, which is its counts outside the providers, and those in
    /// providers. Records how busy the flow is. The flow must not be on its way out of a provider.
    #[inline]
    fn total(&self, entry: &mut Entry, ufid: Ufid, outside: FlowStats) -> FlowStats {
        let mut total = outside;
        if !entry.place.tiers.is_empty() {
            let was_there = entry.is_since_before(self.number);
            for swept in &self.providers {
                if entry.place.is_held_by(swept.tiers) {
                    let known = swept.stats.get(&ufid).copied().filter(|_| was_there);
                    let stats = known.or_else(|| as_swept(swept.provider, ufid));
                    total = total.plus(stats.unwrap_or_default());
                }
            }
            if was_there {
                entry.stays(self.number);
            }
        }
        entry.count(total.packets, self.number);
        total
    }
}

/// A flow that is to leave a provider, by the provider's tiers, and why.
pub(crate) type Departure = (TierSet, Ufid, Refusal);

impl PlacedDatapath {
    /// Queues a flow in the state [`PlacementState::Queued`]. Outside a batch no packet of the flow
    /// is under way, so the flow is offered to the providers at once.
    fn send_off(&self, ufid: Ufid, in_port: PortNo) {
        match queue::present_batch() {
            Some(source) => self.queue.push(ufid, in_port, source),
            None => self.offer_at_once(ufid),
        }
    }

    /// Runs `act` with the shard of `ufid`, as soon as the flow is not on its way out of a
    /// provider.
    fn after_departure<T>(&self, ufid: Ufid, act: impl FnOnce(Shard<'_>) -> T) -> T {
        loop {
            let shard = self.table.shard(ufid);
            if shard.get(ufid).is_none_or(|place| place.state != PlacementState::Leaving) {
                return act(shard);
            }
            drop(shard);
            drop(self.leaving.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Takes a flow out of the base and of the table. Returns the tiers that still hold it, and its
    /// counts outside those providers; `None` when there is no such flow.
    fn take(&self, ufid: Ufid) -> Option<(TierSet, FlowStats)> {
        self.after_departure(ufid, |mut shard| {
            let in_base = self.base.remove(ufid);
            match shard.take(ufid) {
                Some((place, carried)) if !place.tiers.is_empty() => {
                    Some((place.tiers, in_base.unwrap_or_default().plus(carried)))
                }
                Some((_, carried)) => in_base.map(|stats| (TierSet::NONE, stats.plus(carried))),
                None => in_base.map(|stats| (TierSet::NONE, stats)),
            }
        })
    }

    /// Gives actions, and a place in the base, to a flow that an earlier daemon left. Returns false
    /// when the flow is gone or the base refuses it.
    fn adopt(
        &self,
        mut shard: Shard<'_>,
        ufid: Ufid,
        actions: &Actions,
        leaving: &mut Vec<Departure>,
    ) -> bool {
        let Some(held) = self.slots.present().find_map(|(_, provider)| provider.flow(ufid)) else {
            shard.take(ufid);
            return false;
        };
        let flow = Megaflow { ufid, matching: held.matching, actions: actions.clone() };
        if self.base.install(&flow).is_err() {
            return false;
        }
        let mut place = FlowPlacement::stable(Verdict::default());
        for (slot, provider) in self.slots.present() {
            // A user's program may have taken tiers away since the flow was enlisted.
            if let Some(held) = provider.flow(ufid) {
                place.tiers = place.tiers.union(held.tiers);
                self.bring_in_line(slot, &**provider, &mut place, &flow, leaving);
            }
        }
        self.put_and_offer(&mut shard, &flow, place);
        true
    }

    /// Gives a flow that a provider holds its present actions and tiers there. A flow that the
    /// provider refuses is added to `leaving`.
    fn bring_in_line(
        &self,
        slot: &Slot,
        provider: &dyn OffloadProvider,
        place: &mut FlowPlacement,
        flow: &Megaflow,
        leaving: &mut Vec<Departure>,
    ) {
        match self.refit(slot, provider, place.tiers, flow, provider.does(flow.ufid, &flow.actions))
        {
            Ok(verdict) => place.record_verdict(slot.tiers(), verdict),
            Err(refusal) => leaving.push((slot.tiers(), flow.ufid, refusal)),
        }
    }

    /// Records the place of a flow, and has it offered to the providers that do not hold it and may
    /// run it.
    fn put_and_offer(&self, shard: &mut Shard<'_>, flow: &Megaflow, mut place: FlowPlacement) {
        let port = in_port(flow);
        let verdict = self.decide(flow);
        for (slot, _) in self.slots.present() {
            if !place.tiers.meets(slot.tiers()) {
                place.await_offer(slot, verdict);
            }
        }
        shard.put(flow.ufid, place);
        if place.state == PlacementState::Queued {
            // It follows the packets that userspace processes now.
            self.queue.push(flow.ufid, port, 0);
        }
    }

    /// Gives a flow other actions. A flow that must leave a provider keeps the old actions there
    /// until then, and is added to `leaving`. Returns false when there is no such flow, or when the
    /// base refuses the actions.
    fn modify_one(&self, ufid: Ufid, actions: &Actions, leaving: &mut Vec<Departure>) -> bool {
        if self.slots.are_empty() {
            return self.base.modify(ufid, actions);
        }
        self.after_departure(ufid, |mut shard| {
            let Some(mut place) = shard.get(ufid) else { return self.base.modify(ufid, actions) };
            if place.state == PlacementState::Adopted {
                return self.adopt(shard, ufid, actions, leaving);
            }
            if !self.base.modify(ufid, actions) {
                return false;
            }
            let mut dump = None;
            let mut is_held_by_all = true;
            for (slot, provider) in self.slots.present() {
                if !place.tiers.meets(slot.tiers()) {
                    is_held_by_all = false;
                } else if !provider.does(ufid, actions) {
                    if dump.is_none() {
                        dump = self.base.flow(ufid);
                    }
                    let Some(dump) = &dump else { return false };
                    self.bring_in_line(slot, &**provider, &mut place, &dump.flow, leaving);
                }
            }
            if place.state == PlacementState::Queued || is_held_by_all {
                shard.put(ufid, place);
            } else if let Some(dump) = dump.or_else(|| self.base.flow(ufid)) {
                self.put_and_offer(&mut shard, &dump.flow, place);
            }
            true
        })
    }

    /// Returns the counts of a flow that the table does not have, as the base reported them. `None`
    /// when the flow was removed since: its last counts include those of providers, and are more.
    fn unplaced(&self, ufid: Ufid, in_base: FlowStats) -> Option<(Ufid, FlowStats)> {
        self.base.flow(ufid).map(|_| (ufid, in_base))
    }

    /// Reports the totals of flows in one part of the table.
    fn report_totals(
        &self,
        sweep: &Sweep<'_>,
        flows: &[(Ufid, FlowStats)],
        each: &mut dyn FnMut(Ufid, FlowStats),
    ) {
        let Some((first, _)) = flows.first() else { return };
        let (mut totals, mut leaving) = (Vec::with_capacity(flows.len()), Vec::new());
        let mut shard = self.table.shard(*first);
        shard.prefetch(flows.iter().map(|(ufid, _)| *ufid));
        for (ufid, in_base) in flows.iter().copied() {
            let outside = in_base.plus(shard.carried(ufid));
            match shard.entry(ufid) {
                Some(entry) if entry.place.state == PlacementState::Leaving => {
                    leaving.push((ufid, in_base));
                }
                Some(entry) => totals.push((ufid, sweep.total(entry, ufid, outside))),
                None => totals.extend(self.unplaced(ufid, in_base)),
            }
        }
        drop(shard);
        for (ufid, in_base) in leaving {
            totals.extend(self.after_departure(ufid, |mut shard| {
                let outside = in_base.plus(shard.carried(ufid));
                match shard.entry(ufid) {
                    Some(entry) => Some((ufid, sweep.total(entry, ufid, outside))),
                    None => self.unplaced(ufid, in_base),
                }
            }));
        }
        totals.into_iter().for_each(|(ufid, total)| each(ufid, total));
    }

    /// Reports the flows in one part of the table that are in providers only.
    fn report_adopted(&self, sweep: &Sweep<'_>, each: &mut dyn FnMut(Ufid, FlowStats)) {
        for (n, swept) in sweep.providers.iter().enumerate() {
            let (faster, rest) = sweep.providers.split_at(n);
            for ufid in swept.stats.keys() {
                let is_first = faster.iter().all(|swept| !swept.stats.contains_key(ufid));
                let place = self.table.shard(*ufid).get(*ufid);
                if is_first && place.is_some_and(|place| place.state == PlacementState::Adopted) {
                    let stats = rest.iter().filter_map(|swept| swept.stats.get(ufid).copied());
                    each(*ufid, stats.fold(FlowStats::default(), FlowStats::plus));
                }
            }
        }
    }

    /// Begins a sweep.
    fn begin_sweep(&self) -> Sweep<'_> {
        let number = self.table.begin_sweep();
        let present = self.slots.present().map(|(slot, provider)| Swept {
            slot,
            tiers: slot.tiers(),
            provider: &**provider,
            stats: HashMap::default(),
        });
        Sweep { providers: present.collect(), number }
    }

    /// Ends a sweep.
    fn end_sweep(&self, sweep: Sweep<'_>) {
        self.table.end_sweep(sweep.number);
        for swept in &sweep.providers {
            let lost = swept.provider.take_lost();
            if !lost.is_empty() {
                let lost: Vec<_> = lost.into_iter().map(|ufid| (ufid, Refusal::Lost)).collect();
                self.withdraw(swept.slot, &lost);
            }
        }
    }

    /// Sweeps all places for these flows. The caller lends `in_providers` and `in_base` empty.
    fn sweep_places(
        &self,
        which: Which,
        in_providers: &mut InProviders,
        in_base: &mut Groups<FlowStats>,
        each: &mut dyn FnMut(Ufid, FlowStats),
    ) {
        let mut sweep = self.begin_sweep();
        in_providers.0.resize_with(sweep.providers.len(), Groups::default);
        for (swept, groups) in sweep.providers.iter().zip(&mut in_providers.0) {
            let push = &mut |ufid, stats| groups.push(ufid, stats);
            match which {
                Which::All => swept.provider.sweep(push),
                Which::Moved => swept.provider.sweep_moved(push),
            }
        }
        let push = &mut |ufid, stats| in_base.push(ufid, stats);
        match which {
            Which::All => self.base.sweep(push),
            Which::Moved => self.base.sweep_moved(push),
        }
        for (n, in_base) in in_base.iter().enumerate() {
            sweep.take_part(n, in_providers);
            // Before the totals are read: counts that are carried later move in the next sweep.
            let elsewhere = match which {
                Which::All => Vec::new(),
                Which::Moved => self.moved_elsewhere(n, &sweep, in_base),
            };
            for some in in_base.chunks(TOGETHER).chain(elsewhere.chunks(TOGETHER)) {
                self.report_totals(&sweep, some, each);
            }
            if self.table.tally.adopted() > 0 {
                self.report_adopted(&sweep, each);
            }
        }
        self.end_sweep(sweep);
    }

    /// Returns the flows in part `n` of the table that have moved in a provider, or whose carried
    /// counts have changed, but that are not among those that moved in the base. Their counts are the
    /// base's.
    fn moved_elsewhere(
        &self,
        n: usize,
        sweep: &Sweep<'_>,
        in_base: &[(Ufid, FlowStats)],
    ) -> Vec<(Ufid, FlowStats)> {
        let mut rest = self.table.part(n).take_carried();
        rest.extend(sweep.providers.iter().flat_map(|swept| swept.stats.keys().copied()));
        let mut flows = Vec::new();
        if !rest.is_empty() {
            let known: HashSet<Ufid, foldhash::fast::RandomState> =
                in_base.iter().map(|(ufid, _)| *ufid).collect();
            rest.sort_unstable();
            rest.dedup();
            rest.retain(|ufid| !known.contains(ufid));
            self.base.stats_of(&rest, &mut |ufid, stats| flows.push((ufid, stats)));
        }
        flows
    }

    /// Returns the dump of a flow, wherever it is. `count` returns the counts of a flow in a provider.
    fn held(
        &self,
        ufid: Ufid,
        count: impl Fn(&dyn OffloadProvider, Ufid) -> Option<FlowStats>,
    ) -> Option<FlowDump> {
        match self.base.flow(ufid) {
            Some(dump) => Some(self.complete(dump, count)),
            None => self.adopted(ufid),
        }
    }

    /// Adds tiers, refusals and the providers' counts to the dump of a flow of the base. `count`
    /// returns the counts of a flow in a provider.
    fn complete(
        &self,
        mut dump: FlowDump,
        count: impl Fn(&dyn OffloadProvider, Ufid) -> Option<FlowStats>,
    ) -> FlowDump {
        if self.slots.are_empty() {
            dump.refusals = self.absent_refusals();
            return dump;
        }
        let ufid = dump.flow.ufid;
        self.after_departure(ufid, |shard| {
            let Some(place) = shard.get(ufid) else { return };
            dump.stats = dump.stats.plus(shard.carried(ufid));
            let eligibility = self.eligibility();
            let port = eligibility.ports.get(&in_port(&dump.flow));
            let of_port = port.map_or(TierRefusals::NONE, |port| port.refusals);
            let of_port = of_port.of(eligibility.all.minus(place.tiers));
            let shown_tiers = self.slots.up_to(place.tiers.fastest());
            dump.refusals = place.refusals.or(of_port).of(shown_tiers);
            for (slot, provider) in self.slots.present() {
                if place.is_held_by(slot.tiers()) {
                    dump.stats = dump.stats.plus(count(&**provider, ufid).unwrap_or_default());
                }
            }
            (dump.tier, dump.offloaded) = shown(place.tiers, place.refusals.of(shown_tiers));
            if dump.tier == Tier::Tc {
                let slot = self.slots.present().find(|(slot, _)| slot.tiers().has(Tier::Tc));
                if slot.is_some_and(|(_, provider)| !provider.is_in_hardware(ufid)) {
                    dump.offloaded = Offloaded::No;
                }
            }
        });
        dump
    }

    /// Returns the dump of a flow that is in providers only.
    fn adopted(&self, ufid: Ufid) -> Option<FlowDump> {
        let place = self.table.shard(ufid).get(ufid)?;
        if place.state != PlacementState::Adopted {
            return None;
        }
        let held = || {
            let held = self.slots.present().map(|(_, p)| (p, p.flow(ufid)));
            held.filter_map(|(provider, held)| Some((provider, held?)))
        };
        let (provider, first) = held().next()?;
        let flow = Megaflow { ufid, matching: first.matching, actions: provider.actions(ufid)? };
        let verdict = self.would_run(&flow);
        let shown_tiers = self.slots.up_to(place.tiers.fastest());
        let refusals = verdict.refusals.of(shown_tiers.minus(place.tiers));
        let (tier, offloaded) = shown(place.tiers, refusals);
        let stats = held().fold(FlowStats::default(), |sum, (_, held)| sum.plus(held.stats));
        Some(FlowDump { flow, stats, tier, refusals, offloaded })
    }
}

/// Returns the tier and the state of offload that a dump shows for a flow at these tiers.
/// `refusals` has none by providers slower than the flow's; see [`crate::slots::Slots::up_to`].
fn shown(tiers: TierSet, refusals: TierRefusals) -> (Tier, Offloaded) {
    match tiers.fastest() {
        None => (Tier::Userspace, Offloaded::No),
        Some(tier) if refusals.is_empty() => (tier, Offloaded::Yes),
        Some(tier) => (tier, Offloaded::Partial),
    }
}

impl Flows for PlacedDatapath {
    fn install(&self, flow: &Megaflow) -> Result<(), Refusal> {
        if self.slots.are_empty() {
            return self.base.install(flow);
        }
        let ufid = flow.ufid;
        let port = in_port(flow);
        let verdict = self.decide(flow);
        let is_queued = !verdict.tiers.is_empty();
        let place =
            if is_queued { FlowPlacement::queued(verdict) } else { FlowPlacement::stable(verdict) };
        self.after_departure(ufid, |mut shard| {
            if shard.get(ufid).is_some_and(|place| place.state == PlacementState::Adopted) {
                return Err(Refusal::Exists);
            }
            self.base.install(flow)?;
            shard.put(ufid, place);
            Ok(())
        })?;
        if is_queued {
            self.send_off(ufid, port);
        }
        Ok(())
    }

    fn prefetch(&self, flows: &[&Megaflow]) {
        if !self.slots.are_empty() {
            self.table.prefetch(flows);
        }
        self.base.prefetch(flows);
    }

    fn modify(&self, ufid: Ufid, actions: &Actions) -> bool {
        let mut is_refused = false;
        self.modify_many(&[(ufid, actions.clone())], &mut |_| is_refused = true);
        !is_refused
    }

    fn modify_many(&self, flows: &[(Ufid, Actions)], refused: &mut dyn FnMut(Ufid)) {
        let mut leaving = Vec::new();
        for (ufid, actions) in flows {
            if !self.modify_one(*ufid, actions, &mut leaving) {
                refused(*ufid);
            }
        }
        self.depart(&leaving);
    }

    fn remove(&self, ufid: Ufid) -> Option<FlowStats> {
        let mut removed = None;
        self.remove_many(&[ufid], &mut |_, stats| removed = Some(stats));
        removed
    }

    fn remove_many(&self, ufids: &[Ufid], each: &mut dyn FnMut(Ufid, FlowStats)) {
        let mut held = Vec::new();
        let mut sums: HashMap<Ufid, FlowStats, foldhash::fast::RandomState> = HashMap::default();
        for ufid in ufids {
            let Some((tiers, stats)) = self.take(*ufid) else { continue };
            if tiers.is_empty() {
                each(*ufid, stats);
            } else {
                held.push((*ufid, tiers));
                sums.insert(*ufid, stats);
            }
        }
        for (slot, provider) in self.slots.present() {
            let theirs = held.iter().filter(|(_, tiers)| tiers.meets(slot.tiers()));
            let theirs: Vec<Ufid> = theirs.map(|(ufid, _)| *ufid).collect();
            if theirs.is_empty() {
                continue;
            }
            provider.remove_many(&theirs, &mut |ufid, stats| {
                if let Some(sum) = sums.get_mut(&ufid) {
                    *sum = sum.plus(stats);
                }
            });
        }
        for (ufid, stats) in sums {
            each(ufid, stats);
        }
    }

    fn flow(&self, ufid: Ufid) -> Option<FlowDump> {
        self.held(ufid, |provider, ufid| provider.stats(ufid))
    }

    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        if self.slots.are_empty() {
            return self.base.sweep(each);
        }
        self.swept.with(|(in_providers, in_base)| {
            self.sweep_places(Which::All, in_providers, in_base, each);
        });
    }

    fn sweep_moved(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        if self.slots.are_empty() {
            return self.base.sweep_moved(each);
        }
        self.swept.with(|(in_providers, in_base)| {
            self.sweep_places(Which::Moved, in_providers, in_base, each);
        });
    }

    fn stats_of(&self, ufids: &[Ufid], each: &mut dyn FnMut(Ufid, FlowStats)) {
        // The providers' counts are as of the last sweep, or later. To read one flow exactly may
        // take milliseconds.
        for ufid in ufids {
            if let Some(dump) = self.held(*ufid, as_swept) {
                each(*ufid, dump.stats);
            }
        }
    }

    fn dump(&self) -> Vec<FlowDump> {
        // The flows' counts are as of the sweep, or later.
        self.slots.present().for_each(|(_, provider)| provider.sweep(&mut |_, _| {}));
        let flows = self.base.dump().into_iter();
        let mut flows: Vec<FlowDump> = flows.map(|dump| self.complete(dump, as_swept)).collect();
        if self.table.tally.adopted() > 0 {
            let adopted = self.table.at(|place| place.state == PlacementState::Adopted);
            flows.extend(adopted.into_iter().filter_map(|ufid| self.adopted(ufid)));
        }
        flows
    }

    fn flush(&self) {
        if self.slots.are_empty() {
            return self.base.flush();
        }
        let _nothing_leaves = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        self.table.clear(|| {
            for (_, provider) in self.slots.present() {
                let mut all = Vec::with_capacity(provider.len());
                provider.sweep(&mut |ufid, _| all.push(ufid));
                provider.remove_many(&all, &mut |_, _| {});
            }
            self.base.flush();
        });
    }
}

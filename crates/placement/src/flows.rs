// SPDX-License-Identifier: Apache-2.0
//! The contract's flows: the base's, joined with the fast path's.

use crate::fast_path::FastPath;
use crate::gates::Allowed;
use crate::moves::lacks;
use crate::placed::PlacedDatapath;
use crate::queue;
use crate::table::{Place, Shard, add};
use datapath::shards::Groups;
use datapath::{
    Actions, FlowDump, FlowStats, Flows, Megaflow, Offloaded, PortNo, Refusal, Tier, Ufid,
};
use hashbrown::HashMap;
use std::sync::PoisonError;

/// Flows that a sweep looks at under one lock.
const TOGETHER: usize = 64;

/// What the fast path counted, in one sweep of it, of the flows in one part of the table: a map
/// of few flows stays in the CPU's cache, one of all does not.
#[derive(Default)]
struct Swept {
    stats: HashMap<Ufid, FlowStats, foldhash::fast::RandomState>,
    /// Which sweep: counts of a flow that came to the fast path later are of an earlier stay there.
    number: u32,
}

/// What became of a flow that gets other actions.
enum Modified {
    Yes,
    /// It is not there, or its actions are too much for the base.
    No,
    /// In the base; in the fast path it has the old ones, and is to be withdrawn for this reason.
    Withdraw(Refusal),
}

/// The ingress port of a flow.
pub(crate) fn in_port(flow: &Megaflow) -> PortNo {
    PortNo(flow.matching.key().in_port.get())
}

impl PlacedDatapath {
    /// Queues a flow that was put down as such, or takes it to the fast path when its packets
    /// can be in no batch.
    fn send_off(&self, ufid: Ufid, in_port: PortNo) {
        match queue::present_batch() {
            Some(giver) => self.queue.push(ufid, in_port, giver),
            None => self.settle(ufid),
        }
    }

    /// Runs `act` with the shard of `ufid`, when the flow is not on its way out of the fast path.
    fn when_settled<T>(&self, ufid: Ufid, act: impl FnOnce(Shard<'_>) -> T) -> T {
        loop {
            let shard = self.table.shard(ufid);
            if !matches!(shard.get(ufid), Some(Place::Leaving(_))) {
                return act(shard);
            }
            drop(shard);
            drop(self.leaving.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Takes a flow out of the base and of the table. Its place and what it counted outside the
    /// fast path; `None` when it is not there.
    fn take(&self, ufid: Ufid) -> Option<(Place, FlowStats)> {
        self.when_settled(ufid, |mut shard| {
            let in_base = self.base.remove(ufid);
            match shard.take(ufid) {
                Some((place @ (Place::Fast { .. } | Place::Adopted(_)), carried)) => {
                    Some((place, add(in_base.unwrap_or_default(), carried)))
                }
                Some((place, carried)) => in_base.map(|stats| (place, add(stats, carried))),
                None => in_base.map(|stats| (Place::Base(Refusal::PortNotHere), stats)),
            }
        })
    }

    /// A flow that an earlier daemon left gets actions, and a place in the base.
    fn adopt(
        &self,
        fast: &dyn FastPath,
        mut shard: Shard<'_>,
        ufid: Ufid,
        actions: &Actions,
    ) -> Modified {
        let Some(held) = fast.flow(ufid) else {
            shard.take(ufid);
            return Modified::No;
        };
        let tiers = held.tiers; // a user's program may have made them less since
        let flow = Megaflow { ufid, matching: held.matching, actions: actions.clone() };
        if self.base.install(&flow).is_err() {
            return Modified::No;
        }
        let done = self.decide(&flow).and_then(|allowed| {
            if allowed.tiers != tiers || !fast.encodes_alike(ufid, actions) {
                return self.replace_in(fast, &mut shard, &flow, allowed);
            }
            shard.put(ufid, self.place_of(Ok(tiers), allowed));
            Ok(())
        });
        let Err(refusal) = done else { return Modified::Yes };
        shard.put(ufid, Place::Fast { tiers, lacks: None });
        Modified::Withdraw(refusal)
    }

    /// Gives a flow of the fast path other actions there.
    fn replace_in(
        &self,
        fast: &dyn FastPath,
        shard: &mut Shard<'_>,
        flow: &Megaflow,
        allowed: Allowed,
    ) -> Result<(), Refusal> {
        let tiers = fast.replace(flow, allowed.tiers)?;
        shard.put(flow.ufid, self.place_of(Ok(tiers), allowed));
        Ok(())
    }

    fn modify_fast(
        &self,
        fast: &dyn FastPath,
        mut shard: Shard<'_>,
        ufid: Ufid,
        actions: &Actions,
    ) -> Modified {
        if !self.base.modify(ufid, actions) {
            return Modified::No;
        }
        if fast.encodes_alike(ufid, actions) {
            return Modified::Yes;
        }
        let Some(dump) = self.base.flow(ufid) else { return Modified::No };
        let done = self
            .decide(&dump.flow)
            .and_then(|allowed| self.replace_in(fast, &mut shard, &dump.flow, allowed));
        done.map_or_else(Modified::Withdraw, |()| Modified::Yes)
    }

    fn modify_one(&self, ufid: Ufid, actions: &Actions) -> Modified {
        let base = |modified| if modified { Modified::Yes } else { Modified::No };
        let Some(fast) = self.fast_path() else { return base(self.base.modify(ufid, actions)) };
        self.when_settled(ufid, |mut shard| match shard.get(ufid) {
            Some(Place::Adopted(_)) => self.adopt(&**fast, shard, ufid, actions),
            Some(Place::Fast { .. }) => self.modify_fast(&**fast, shard, ufid, actions),
            Some(Place::Base(_)) => {
                let modified = self.base.modify(ufid, actions);
                if modified && let Some(dump) = self.base.flow(ufid) {
                    // Perhaps now; behind what is on its way in userspace.
                    shard.put(ufid, Place::Queued);
                    self.queue.push(ufid, in_port(&dump.flow), 0);
                }
                base(modified)
            }
            _ => base(self.base.modify(ufid, actions)),
        })
    }

    /// What the flow counted, all places together. Notes how busy it is. It is not on its way out
    /// of the fast path.
    fn total(
        &self,
        fast: &dyn FastPath,
        swept: &Swept,
        shard: &mut Shard<'_>,
        ufid: Ufid,
        in_base: FlowStats,
    ) -> FlowStats {
        let mut total = add(in_base, shard.carried(ufid));
        let Some(entry) = shard.entry(ufid) else { return total };
        if let Place::Fast { .. } = entry.place {
            let was_there = entry.came_before(swept.number);
            let known = swept.stats.get(&ufid).copied().filter(|_| was_there);
            total = add(total, known.or_else(|| fast.stats(ufid)).unwrap_or_default());
        }
        entry.note(total.packets);
        total
    }

    /// Totals of flows in one part of the table, and what the base counted.
    fn tell_totals(
        &self,
        fast: &dyn FastPath,
        swept: &Swept,
        flows: &[(Ufid, FlowStats)],
        each: &mut dyn FnMut(Ufid, FlowStats),
    ) {
        let Some((first, _)) = flows.first() else { return };
        let (mut told, mut leaving) = (Vec::with_capacity(flows.len()), Vec::new());
        let mut shard = self.table.shard(*first);
        shard.touch(flows.iter().map(|(ufid, _)| *ufid));
        for (ufid, in_base) in flows.iter().copied() {
            if matches!(shard.get(ufid), Some(Place::Leaving(_))) {
                leaving.push((ufid, in_base));
            } else {
                told.push((ufid, self.total(fast, swept, &mut shard, ufid, in_base)));
            }
        }
        drop(shard);
        for (ufid, in_base) in leaving {
            let total = |mut shard: Shard<'_>| self.total(fast, swept, &mut shard, ufid, in_base);
            told.push((ufid, self.when_settled(ufid, total)));
        }
        told.into_iter().for_each(|(ufid, total)| each(ufid, total));
    }

    /// A sweep of both; the lists are empty.
    fn sweep_both(
        &self,
        fast: &dyn FastPath,
        in_fast: &mut Groups<FlowStats>,
        in_base: &mut Groups<FlowStats>,
        each: &mut dyn FnMut(Ufid, FlowStats),
    ) {
        let mut swept = Swept { number: self.table.begin_sweep(), ..Swept::default() };
        fast.sweep(&mut |ufid, stats| in_fast.push(ufid, stats));
        self.base.sweep(&mut |ufid, stats| in_base.push(ufid, stats));
        for (in_fast, in_base) in in_fast.iter().zip(in_base.iter()) {
            swept.stats.clear();
            swept.stats.extend(in_fast.iter().copied());
            for some in in_base.chunks(TOGETHER) {
                self.tell_totals(fast, &swept, some, each);
            }
            if self.table.tally.adopted() > 0 {
                for (ufid, stats) in in_fast {
                    let place = self.table.shard(*ufid).get(*ufid);
                    if matches!(place, Some(Place::Adopted(_))) {
                        each(*ufid, *stats);
                    }
                }
            }
        }
    }

    /// Fills in what placement knows of a flow of the base.
    fn complete(&self, mut dump: FlowDump) -> FlowDump {
        let Some(fast) = self.fast_path() else {
            dump.refusal = self.no_fast_path();
            return dump;
        };
        let ufid = dump.flow.ufid;
        self.when_settled(ufid, |shard| {
            let Some(place) = shard.get(ufid) else { return };
            dump.stats = add(dump.stats, shard.carried(ufid));
            let port = in_port(&dump.flow);
            let denied = || self.gates().ports.get(&port).and_then(|gate| gate.denied);
            dump.refusal = place.refusal().or_else(denied);
            if let Place::Fast { tiers, lacks } = place {
                dump.stats = add(dump.stats, fast.stats(ufid).unwrap_or_default());
                dump.tier = tiers.fastest().unwrap_or(Tier::Userspace);
                dump.offloaded = if lacks.is_some() { Offloaded::Partial } else { Offloaded::Yes };
            }
        });
        dump
    }

    /// A flow that is in the fast path only, as it is there.
    fn adopted(&self, ufid: Ufid) -> Option<FlowDump> {
        let fast = self.fast_path()?;
        let place = self.table.shard(ufid).get(ufid)?;
        let Place::Adopted(tiers) = place else { return None };
        let held = fast.flow(ufid)?;
        let flow = Megaflow { ufid, matching: held.matching, actions: fast.actions(ufid)? };
        let refusal = self.decide(&flow).ok().and_then(|allowed| lacks(tiers, allowed));
        Some(FlowDump {
            flow,
            stats: held.stats,
            tier: tiers.fastest().unwrap_or(Tier::Userspace),
            refusal,
            offloaded: if refusal.is_some() { Offloaded::Partial } else { Offloaded::Yes },
        })
    }
}

impl Flows for PlacedDatapath {
    fn install(&self, flow: &Megaflow) -> Result<(), Refusal> {
        if self.fast_path().is_none() {
            return self.base.install(flow);
        }
        let ufid = flow.ufid;
        let port = in_port(flow);
        let place = match self.gates().decide(port, &flow.actions) {
            Ok(_) => Place::Queued,
            Err(refusal) => Place::Base(refusal),
        };
        self.when_settled(ufid, |mut shard| {
            if matches!(shard.get(ufid), Some(Place::Adopted(_))) {
                return Err(Refusal::Exists);
            }
            self.base.install(flow)?;
            shard.put(ufid, place);
            Ok(())
        })?;
        if place == Place::Queued {
            self.send_off(ufid, port);
        }
        Ok(())
    }

    fn prefetch(&self, flows: &[&Megaflow]) {
        if self.fast_path().is_some() {
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
            match self.modify_one(*ufid, actions) {
                Modified::Yes => {}
                Modified::No => refused(*ufid),
                Modified::Withdraw(refusal) => leaving.push((*ufid, refusal)),
            }
        }
        if !leaving.is_empty() {
            self.withdraw(&leaving);
        }
    }

    fn remove(&self, ufid: Ufid) -> Option<FlowStats> {
        let mut removed = None;
        self.remove_many(&[ufid], &mut |_, stats| removed = Some(stats));
        removed
    }

    fn remove_many(&self, ufids: &[Ufid], each: &mut dyn FnMut(Ufid, FlowStats)) {
        let mut in_fast = Vec::new();
        let mut sums: HashMap<Ufid, FlowStats, foldhash::fast::RandomState> = HashMap::default();
        for ufid in ufids {
            let Some((place, stats)) = self.take(*ufid) else { continue };
            if matches!(place, Place::Fast { .. } | Place::Adopted(_)) {
                in_fast.push(*ufid);
                sums.insert(*ufid, stats);
            } else {
                each(*ufid, stats);
            }
        }
        if let Some(fast) = self.fast_path()
            && !in_fast.is_empty()
        {
            fast.remove_many(&in_fast, &mut |ufid, stats| {
                if let Some(sum) = sums.get_mut(&ufid) {
                    *sum = add(*sum, stats);
                }
            });
        }
        for (ufid, stats) in sums {
            each(ufid, stats);
        }
    }

    fn flow(&self, ufid: Ufid) -> Option<FlowDump> {
        match self.base.flow(ufid) {
            Some(dump) => Some(self.complete(dump)),
            None => self.adopted(ufid),
        }
    }

    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        match self.fast_path() {
            Some(fast) => self.swept.with(|(in_fast, in_base)| {
                self.sweep_both(&**fast, in_fast, in_base, each);
            }),
            None => self.base.sweep(each),
        }
    }

    fn dump(&self) -> Vec<FlowDump> {
        let mut flows: Vec<FlowDump> =
            self.base.dump().into_iter().map(|dump| self.complete(dump)).collect();
        if self.table.tally.adopted() > 0 {
            let adopted = self.table.at(|place| matches!(place, Place::Adopted(_)));
            flows.extend(adopted.into_iter().filter_map(|ufid| self.adopted(ufid)));
        }
        flows
    }

    fn flush(&self) {
        let Some(fast) = self.fast_path() else { return self.base.flush() };
        let _nobody_leaves = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        self.table.clear(|| {
            let mut all = Vec::with_capacity(fast.len());
            fast.sweep(&mut |ufid, _| all.push(ufid));
            fast.remove_many(&all, &mut |_, _| {});
            self.base.flush();
        });
    }
}

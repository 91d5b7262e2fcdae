// SPDX-License-Identifier: Apache-2.0
//! The table of flows and their placements.
//!
//! Each flow has one small entry, in shards by identity. A shard's lock is held while a flow
//! changes its placement, so a reader of statistics that holds the lock counts no packet twice and
//! misses none.

use datapath::shards::{self, SHARDS, shard_of};
use datapath::{FlowStats, Megaflow, PortNo, Refusal, Tier, TierRefusals, TierSet, Ufid, Verdict};
use hashbrown::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const REFUSALS: usize = Refusal::ALL.len();

/// The change of placement that a flow waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlacementState {
    /// None: the flow stays until housekeeping or a change of a port moves it.
    Stable,
    /// The flow is to be offered to the providers that do not hold it.
    Queued,
    /// The flow is in providers only, where an earlier daemon left it. In every other state the
    /// flow is in the base, too.
    Adopted,
    /// The flow is on its way out of a provider. Readers of its statistics wait.
    Leaving,
}

/// The tiers that run a flow, and the change that the flow waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowPlacement {
    pub(crate) state: PlacementState,
    /// Tiers of providers that run the flow.
    pub(crate) tiers: TierSet,
    /// The reasons of other tiers of its ingress port.
    pub(crate) refusals: TierRefusals,
}

impl FlowPlacement {
    /// Returns the placement of a flow that the tiers of `verdict` run.
    pub(crate) fn stable(verdict: Verdict) -> FlowPlacement {
        FlowPlacement {
            state: PlacementState::Stable,
            tiers: verdict.tiers,
            refusals: verdict.refusals,
        }
    }

    /// Returns the placement of a flow in the base that is to be offered to the tiers of `verdict`.
    pub(crate) fn queued(verdict: Verdict) -> FlowPlacement {
        let mut refusals = verdict.refusals;
        refusals.set(verdict.tiers, Some(Refusal::Unsettled));
        FlowPlacement { state: PlacementState::Queued, tiers: TierSet::NONE, refusals }
    }

    /// Returns the placement of a flow that an earlier daemon left at these tiers.
    pub(crate) fn adopted(tiers: TierSet) -> FlowPlacement {
        FlowPlacement { state: PlacementState::Adopted, tiers, refusals: TierRefusals::NONE }
    }

    /// Returns true when both the base and a provider of these tiers hold the flow.
    pub(crate) fn is_held_by(self, tiers: TierSet) -> bool {
        self.state != PlacementState::Adopted && self.tiers.meets(tiers)
    }

    /// Records that the provider of the tiers `of` holds the flow at the tiers of `verdict`.
    pub(crate) fn record_verdict(&mut self, of: TierSet, verdict: Verdict) {
        self.tiers = self.tiers.minus(of).union(verdict.tiers.intersection(of));
        self.refusals.set_from(of, verdict.refusals);
    }
}

/// The table's record of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) place: FlowPlacement,
    /// The number, modulo 2^16, of the last sweep that had begun when a provider got or lost the
    /// flow.
    changed: u16,
    /// The low half of the number of packets at the last sweep.
    seen: u32,
    /// Packets between the last two sweeps that read the flow; `u32::MAX` before the first.
    pub(crate) recent: u32,
    /// The number of the last sweep that read the flow.
    read: u32,
}

impl Entry {
    /// Returns true when the same providers have held the flow since before this sweep began.
    /// Returns false, too, if 2^15 sweeps began without a call of [`Entry::stays`]; the caller then
    /// reads the flow's statistics once more.
    pub(crate) fn is_since_before(&self, sweep: u32) -> bool {
        let sweep = sweep as u16; // modulo 2^16
        sweep.wrapping_sub(self.changed).wrapping_sub(1) < u16::MAX / 2
    }

    /// Records that the same providers have held the flow since before this sweep began.
    pub(crate) fn stays(&mut self, sweep: u32) {
        self.changed = (sweep as u16).wrapping_sub(1); // modulo 2^16
    }

    /// Records how busy the flow is, from its number of packets at this sweep.
    pub(crate) fn count(&mut self, packets: u64, sweep: u32) {
        let low = packets as u32; // the low half suffices for differences
        self.recent = low.wrapping_sub(self.seen);
        self.seen = low;
        self.read = sweep;
    }

    /// Returns the number of packets between the last two sweeps, of which this was the last that
    /// ended; `u32::MAX` if no sweep has read the flow. A sweep that reads moved flows only leaves
    /// out those without packets.
    pub(crate) fn heat(&self, ended: u32) -> u32 {
        let is_left_out = ended.wrapping_sub(self.read) as i32 > 0; // modulo 2^32
        if is_left_out && self.recent != u32::MAX { 0 } else { self.recent }
    }
}

/// An identity in words of four bytes, so that an entry with its identity takes 36 bytes. One tier
/// more makes it 40.
type Id = [u32; 4];

fn id(ufid: Ufid) -> Id {
    let n = ufid.0;
    [(n >> 96) as u32, (n >> 64) as u32, (n >> 32) as u32, n as u32] // each 32 bits of it
}

fn ufid(id: Id) -> Ufid {
    Ufid(id.into_iter().fold(0, |n, word| n << 32 | u128::from(word)))
}

/// Numbers of flows by placement and reason. Every change of an entry updates them.
#[derive(Debug)]
pub(crate) struct Tally {
    /// By the fastest tier.
    tiers: [AtomicUsize; Tier::ALL.len()],
    adopted: AtomicUsize,
    /// By reason, for flows in the base only.
    refused: [AtomicUsize; REFUSALS],
    /// By reason, for flows in fewer tiers than their port.
    lacking: [AtomicUsize; REFUSALS],
    /// By reason, since the start.
    refused_ever: [AtomicU64; REFUSALS],
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            tiers: Default::default(),
            adopted: AtomicUsize::new(0),
            refused: std::array::from_fn(|_| AtomicUsize::new(0)),
            lacking: std::array::from_fn(|_| AtomicUsize::new(0)),
            refused_ever: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Tally {
    fn enter(&self, place: FlowPlacement) {
        self.change(place, |n| {
            n.fetch_add(1, Ordering::Relaxed);
        });
        if place.state == PlacementState::Stable && !place.refusals.is_empty() {
            for refusal in place.refusals.distinct() {
                if let Some(n) = self.refused_ever.get(refusal as usize) {
                    n.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn leave(&self, place: FlowPlacement) {
        self.change(place, |n| {
            n.fetch_sub(1, Ordering::Relaxed);
        });
    }

    fn change(&self, place: FlowPlacement, change: impl Fn(&AtomicUsize)) {
        if let Some(tier) = place.tiers.fastest() {
            self.tiers.get(tier as usize).into_iter().for_each(&change);
        }
        if place.state == PlacementState::Adopted {
            change(&self.adopted);
        }
        let of = if place.tiers.is_empty() { &self.refused } else { &self.lacking };
        if place.refusals.is_empty() {
            return; // most flows
        }
        for refusal in place.refusals.distinct() {
            of.get(refusal as usize).into_iter().for_each(&change);
        }
    }

    /// Returns the number of flows whose fastest tier this is.
    pub(crate) fn on(&self, tier: Tier) -> usize {
        self.tiers.get(tier as usize).map_or(0, |n| n.load(Ordering::Relaxed))
    }

    /// Returns the number of flows that an earlier daemon left and that are not checked yet.
    pub(crate) fn adopted(&self) -> usize {
        self.adopted.load(Ordering::Relaxed)
    }

    /// Returns the number of flows that are in the base only, for this reason among others.
    pub(crate) fn refused(&self, reason: Refusal) -> usize {
        self.refused.get(reason as usize).map_or(0, |n| n.load(Ordering::Relaxed))
    }

    /// Returns the number of flows that are in some tier of a provider, but in fewer than their
    /// port, for this reason among others.
    pub(crate) fn lacking(&self, reason: Refusal) -> usize {
        self.lacking.get(reason as usize).map_or(0, |n| n.load(Ordering::Relaxed))
    }

    /// Returns the number of refusals for this reason since the start.
    pub(crate) fn refused_ever(&self, reason: Refusal) -> u64 {
        self.refused_ever.get(reason as usize).map_or(0, |n| n.load(Ordering::Relaxed))
    }
}

/// A part of the table, locked.
pub(crate) struct Shard<'a> {
    flows: MutexGuard<'a, Flows>,
    table: &'a Table,
}

#[derive(Debug, Default)]
struct Flows {
    entries: HashMap<Id, Entry, foldhash::fast::RandomState>,
    /// Final counts of flows in providers that they have left.
    carried: HashMap<Id, FlowStats, foldhash::fast::RandomState>,
    /// Flows whose carried counts have changed since the last sweep of moved flows.
    carried_moved: HashSet<Id, foldhash::fast::RandomState>,
}

/// Returns the ingress port of a flow.
pub(crate) fn in_port(flow: &Megaflow) -> PortNo {
    PortNo(flow.matching.key().in_port.get())
}

impl Shard<'_> {
    pub(crate) fn get(&self, ufid: Ufid) -> Option<FlowPlacement> {
        self.flows.entries.get(&id(ufid)).map(|e| e.place)
    }

    pub(crate) fn entry(&mut self, ufid: Ufid) -> Option<&mut Entry> {
        self.flows.entries.get_mut(&id(ufid))
    }

    /// Reads the entries of some flows, so that later reads do not wait for memory. These reads do
    /// not wait for each other.
    pub(crate) fn prefetch(&self, ufids: impl Iterator<Item = Ufid>) {
        let read = |ufid| self.flows.entries.get(&id(ufid)).map_or(0, |entry| entry.seen);
        std::hint::black_box(ufids.map(read).fold(0, u32::wrapping_add));
    }

    /// Records `place` for a flow; adds the flow if it has no entry.
    pub(crate) fn put(&mut self, ufid: Ufid, place: FlowPlacement) {
        let sweep = self.table.sweeps.load(Ordering::Acquire) as u16; // modulo 2^16
        let holders =
            |place: FlowPlacement| self.table.groups.iter().map(move |g| g.meets(place.tiers));
        let entry = self.flows.entries.entry(id(ufid));
        match entry {
            hashbrown::hash_map::Entry::Occupied(mut there) => {
                let there = there.get_mut();
                self.table.tally.leave(there.place);
                if place.tiers != there.place.tiers && !holders(place).eq(holders(there.place)) {
                    there.changed = sweep;
                }
                there.place = place;
            }
            hashbrown::hash_map::Entry::Vacant(vacant) => {
                vacant.insert(Entry { place, changed: sweep, seen: 0, recent: u32::MAX, read: 0 });
            }
        }
        self.table.tally.enter(place);
    }

    /// Removes a flow's entry. Returns its placement and its final counts in providers that it has
    /// left.
    pub(crate) fn take(&mut self, ufid: Ufid) -> Option<(FlowPlacement, FlowStats)> {
        let entry = self.flows.entries.remove(&id(ufid))?;
        self.table.tally.leave(entry.place);
        self.flows.carried_moved.remove(&id(ufid));
        Some((entry.place, self.flows.carried.remove(&id(ufid)).unwrap_or_default()))
    }

    /// Returns a flow's final counts in providers that it has left.
    pub(crate) fn carried(&self, ufid: Ufid) -> FlowStats {
        self.flows.carried.get(&id(ufid)).copied().unwrap_or_default()
    }

    /// Keeps a flow's final counts in a provider that it leaves.
    pub(crate) fn carry(&mut self, ufid: Ufid, stats: FlowStats) {
        if stats != FlowStats::default() {
            let sum = self.flows.carried.entry(id(ufid)).or_default();
            *sum = sum.plus(stats);
            self.flows.carried_moved.insert(id(ufid));
        }
    }

    /// Takes the flows whose carried counts have changed since the last call.
    pub(crate) fn take_carried(&mut self) -> Vec<Ufid> {
        self.flows.carried_moved.drain().map(ufid).collect()
    }

    fn clear(&mut self) {
        for entry in self.flows.entries.values() {
            self.table.tally.leave(entry.place);
        }
        *self.flows = Flows::default();
    }
}

/// The table of all flows. Any thread may use it.
#[derive(Debug)]
pub(crate) struct Table {
    shards: Vec<Mutex<Flows>>,
    pub(crate) tally: Tally,
    /// Number of sweeps of the providers that have begun.
    sweeps: AtomicU32,
    /// The number of the last sweep that has ended.
    ended: AtomicU32,
    /// The tiers of each provider.
    groups: Vec<TierSet>,
}

impl Table {
    /// Returns an empty table for providers with these tiers.
    pub(crate) fn new(groups: Vec<TierSet>) -> Table {
        Table {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            tally: Tally::default(),
            sweeps: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            groups,
        }
    }

    fn locked<'a>(&'a self, flows: &'a Mutex<Flows>) -> Shard<'a> {
        // A thread that panics with the lock leaves whole entries.
        Shard { flows: flows.lock().unwrap_or_else(PoisonError::into_inner), table: self }
    }

    /// Begins a sweep of the providers and returns its number; see [`Entry::is_since_before`]. The
    /// entry of a flow that leaves a provider and returns during the sweep gets this number or a
    /// later one, so the sweep's counts of the flow are ignored.
    pub(crate) fn begin_sweep(&self) -> u32 {
        self.sweeps.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// Ends sweep `number`.
    pub(crate) fn end_sweep(&self, number: u32) {
        self.ended.store(number, Ordering::Release);
    }

    /// Returns the number of the last sweep that has ended, for [`Entry::heat`].
    pub(crate) fn ended(&self) -> u32 {
        self.ended.load(Ordering::Acquire)
    }

    /// Locks and returns part `n`.
    pub(crate) fn part(&self, n: usize) -> Shard<'_> {
        self.locked(&self.shards[n])
    }

    /// Locks and returns the part that `ufid` belongs to.
    pub(crate) fn shard(&self, ufid: Ufid) -> Shard<'_> {
        self.locked(&self.shards[shard_of(ufid)])
    }

    /// Reads the memory of the entries of flows that will be added; see [`shards::prefetch`].
    pub(crate) fn prefetch(&self, flows: &[&Megaflow]) {
        let lock = |n: usize| self.locked(&self.shards[n]);
        shards::prefetch(flows, lock, |shard, ufid| shard.get(ufid).is_some());
    }

    /// Removes all flows. Runs `act` while all shards are locked.
    pub(crate) fn clear(&self, act: impl FnOnce()) {
        let mut shards: Vec<Shard<'_>> = self.shards.iter().map(|s| self.locked(s)).collect();
        act();
        shards.iter_mut().for_each(Shard::clear);
    }

    /// Returns the results of `pick` for all entries, shard by shard.
    pub(crate) fn select<T>(&self, mut pick: impl FnMut(Ufid, &Entry) -> Option<T>) -> Vec<T> {
        let mut out = Vec::new();
        for shard in &self.shards {
            let shard = self.locked(shard);
            out.extend(shard.flows.entries.iter().filter_map(|(i, e)| pick(ufid(*i), e)));
        }
        out
    }

    /// Returns the flows for whose placement `wanted` returns true.
    pub(crate) fn at(&self, wanted: impl Fn(FlowPlacement) -> bool) -> Vec<Ufid> {
        self.select(|ufid, entry| wanted(entry.place).then_some(ufid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each tier adds a byte to the refusals of each flow.
    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<(Id, Entry)>(), 36);
        let n = Ufid(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        assert_eq!(ufid(id(n)), n);
    }

    fn table() -> Table {
        Table::new(vec![TierSet::of(Tier::Tc), TierSet::XDP_AND_TCX])
    }

    fn queued() -> FlowPlacement {
        FlowPlacement::queued(Verdict::granted(TierSet::TCX))
    }

    fn base(refusal: Refusal) -> FlowPlacement {
        FlowPlacement::stable(Verdict::refused(TierSet::TCX, refusal))
    }

    fn fast(tiers: TierSet, xdp: Option<Refusal>) -> FlowPlacement {
        let mut place = FlowPlacement::stable(Verdict::granted(tiers));
        place.refusals.set(TierSet::of(Tier::Xdp), xdp);
        place
    }

    #[test]
    fn the_tally_follows_every_change() {
        let table = table();
        let (a, b) = (Ufid(1), Ufid(65));
        table.shard(a).put(a, queued());
        assert_eq!(table.tally.refused(Refusal::Unsettled), 1);
        table.shard(a).put(a, base(Refusal::TableFull));
        table.shard(b).put(b, fast(TierSet::TCX, Some(Refusal::UnverifiedPeer)));
        assert_eq!(table.tally.refused(Refusal::Unsettled), 0);
        assert_eq!(table.tally.refused(Refusal::TableFull), 1);
        assert_eq!((table.tally.on(Tier::Tcx), table.tally.on(Tier::Xdp)), (1, 0));
        assert_eq!(table.tally.lacking(Refusal::UnverifiedPeer), 1);
        table.shard(a).take(a);
        assert_eq!(table.tally.refused(Refusal::TableFull), 0);
        assert_eq!(table.tally.refused_ever(Refusal::TableFull), 1);
        table.clear(|| {});
        assert_eq!(table.tally.on(Tier::Tcx), 0);
        assert!(table.shard(b).get(b).is_none());
    }

    #[test]
    fn a_stay_in_a_provider_is_older_than_the_sweeps_that_began_in_it() {
        let table = table();
        let a = Ufid(1);
        let before = |sweep| table.shard(a).entry(a).unwrap().is_since_before(sweep);
        let first = table.begin_sweep();
        table.shard(a).put(a, queued());
        table.shard(a).put(a, fast(TierSet::TCX, None));
        assert!(!before(first));
        let second = table.begin_sweep();
        assert!(before(second));
        table.shard(a).put(a, fast(TierSet::XDP_AND_TCX, None));
        table.shard(a).put(a, fast(TierSet::TCX, Some(Refusal::UnverifiedPeer)));
        assert!(before(second), "the same stay");
        table.shard(a).put(a, fast(TierSet::TCX.with(Tier::Tc), None));
        assert!(!before(second), "another provider holds it, too");
        let third = table.begin_sweep();
        assert!(before(third));
        table.shard(a).put(a, fast(TierSet::TCX, None));
        assert!(!before(third), "no more");
        table.shard(a).put(a, base(Refusal::Evicted));
        table.shard(a).put(a, fast(TierSet::TCX, None));
        assert!(!before(third));
        table.sweeps.store(u32::MAX, Ordering::Relaxed);
        table.shard(a).put(a, base(Refusal::Evicted));
        table.shard(a).put(a, fast(TierSet::TCX, None));
        assert!(before(table.begin_sweep()), "numbers start again");
    }

    #[test]
    fn a_stay_may_last_for_longer_than_numbers_do() {
        let table = table();
        let a = Ufid(1);
        table.shard(a).put(a, fast(TierSet::TCX, None));
        for _ in 0..200_000 {
            let sweep = table.begin_sweep();
            let mut shard = table.shard(a);
            let entry = shard.entry(a).unwrap();
            assert!(entry.is_since_before(sweep));
            entry.stays(sweep);
        }
    }

    #[test]
    fn busyness_is_between_two_sweeps() {
        let mut entry = Entry { place: queued(), changed: 0, seen: 0, recent: u32::MAX, read: 0 };
        assert_eq!(entry.heat(9), u32::MAX, "no sweep has read it");
        entry.count(7, 10);
        assert_eq!((entry.heat(9), entry.heat(10), entry.heat(11)), (7, 7, 0));
        entry.count(u64::from(u32::MAX) + 3, u32::MAX);
        entry.count(u64::from(u32::MAX) + 5, 0);
        assert_eq!((entry.heat(u32::MAX), entry.heat(0), entry.heat(1)), (2, 2, 0));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Where each flow is.
//!
//! One small entry a flow, sharded by identity; a shard's lock is held while a flow changes its
//! place, so that who reads statistics under it never sees a flow in two places or in none.

use crate::TierSet;
use datapath::shards::{self, SHARDS, shard_of};
use datapath::{FlowStats, Megaflow, Refusal, Tier, Ufid};
use hashbrown::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const REFUSALS: usize = Refusal::ALL.len();

/// Where a flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the base only, for this reason.
    Base(Refusal),
    /// In the base; on its way to the fast path.
    Queued,
    /// In the base and in the fast path.
    Fast {
        /// Tiers that run it.
        tiers: TierSet,
        /// Why these are not all tiers of its ingress port.
        lacks: Option<Refusal>,
    },
    /// In the fast path only: an earlier daemon left it there.
    Adopted(TierSet),
    /// On its way out of the fast path. Its statistics are nobody's to read now.
    Leaving(Refusal),
}

impl Place {
    /// Why it is not wholly in its port's fast tiers.
    pub(crate) fn refusal(self) -> Option<Refusal> {
        match self {
            Place::Base(refusal) | Place::Leaving(refusal) => Some(refusal),
            Place::Queued => Some(Refusal::Unsettled),
            Place::Fast { lacks, .. } => lacks,
            Place::Adopted(_) => None,
        }
    }

    /// Tiers that run it beside the base.
    pub(crate) fn tiers(self) -> TierSet {
        match self {
            Place::Fast { tiers, .. } | Place::Adopted(tiers) => tiers,
            _ => TierSet::NONE,
        }
    }
}

/// What is known of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    /// Packets at the last sweep, the low half.
    seen: u32,
    /// Packets between the last two sweeps; `u32::MAX` before it had any.
    pub(crate) recent: u32,
    /// The last sweep that had begun when the flow came to the fast path.
    came: u32,
}

impl Entry {
    /// True when the flow has been in the fast path since before this sweep began. (False, too, of
    /// one that was there for half of all numbers of sweeps: who asks then reads again.)
    pub(crate) fn came_before(&self, sweep: u32) -> bool {
        sweep.wrapping_sub(self.came).wrapping_sub(1) < u32::MAX / 2
    }

    /// Remembers how busy the flow is.
    pub(crate) fn note(&mut self, packets: u64) {
        let low = packets as u32; // the low half is meant: only differences count
        self.recent = low.wrapping_sub(self.seen);
        self.seen = low;
    }
}

/// An identity in four-byte words, so that an entry with its identity takes 32 bytes.
type Id = [u32; 4];

fn id(ufid: Ufid) -> Id {
    let n = ufid.0;
    [(n >> 96) as u32, (n >> 64) as u32, (n >> 32) as u32, n as u32] // each 32 bits of it
}

fn ufid(id: Id) -> Ufid {
    Ufid(id.into_iter().fold(0, |n, word| n << 32 | u128::from(word)))
}

/// How many flows are where, kept up to date by every change.
#[derive(Debug)]
pub(crate) struct Tally {
    tiers: [AtomicUsize; Tier::ALL.len()],
    adopted: AtomicUsize,
    refused: [AtomicUsize; REFUSALS],
    lacking: [AtomicUsize; REFUSALS],
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
    fn enter(&self, place: Place) {
        self.change(place, |n| {
            n.fetch_add(1, Ordering::Relaxed);
        });
        let refusal = match place {
            Place::Base(refusal) => Some(refusal),
            Place::Fast { lacks, .. } => lacks,
            _ => None,
        };
        if let Some(n) = refusal.and_then(|r| self.refused_ever.get(r as usize)) {
            n.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn leave(&self, place: Place) {
        self.change(place, |n| {
            n.fetch_sub(1, Ordering::Relaxed);
        });
    }

    fn change(&self, place: Place, change: impl Fn(&AtomicUsize)) {
        if let Some(tier) = place.tiers().fastest() {
            self.tiers.get(tier as usize).into_iter().for_each(&change);
        }
        let of = match place {
            Place::Adopted(_) => {
                change(&self.adopted);
                None
            }
            Place::Fast { .. } => place.refusal().and_then(|r| self.lacking.get(r as usize)),
            _ => place.refusal().and_then(|r| self.refused.get(r as usize)),
        };
        of.into_iter().for_each(&change);
    }

    /// Flows whose fastest tier this is.
    pub(crate) fn on(&self, tier: Tier) -> usize {
        self.tiers.get(tier as usize).map_or(0, |n| n.load(Ordering::Relaxed))
    }

    /// Flows that an earlier daemon left.
    pub(crate) fn adopted(&self) -> usize {
        self.adopted.load(Ordering::Relaxed)
    }

    /// Flows that are in the base only, for this reason.
    pub(crate) fn refused(&self, reason: Refusal) -> usize {
        self.refused.get(reason as usize).map_or(0, |n| n.load(Ordering::Relaxed))
    }

    /// Flows that are in fewer fast tiers than their port, for this reason.
    pub(crate) fn lacking(&self, reason: Refusal) -> usize {
        self.lacking.get(reason as usize).map_or(0, |n| n.load(Ordering::Relaxed))
    }

    /// How often a flow was refused for this reason.
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
    /// What flows counted in the fast path before they left it.
    carried: HashMap<Id, FlowStats, foldhash::fast::RandomState>,
}

/// Adds the counts of one place to those of another.
pub(crate) fn add(a: FlowStats, b: FlowStats) -> FlowStats {
    FlowStats {
        packets: a.packets.saturating_add(b.packets),
        bytes: a.bytes.saturating_add(b.bytes),
        used: a.used.max(b.used),
        tcp_flags: a.tcp_flags | b.tcp_flags,
    }
}

impl Shard<'_> {
    pub(crate) fn get(&self, ufid: Ufid) -> Option<Place> {
        self.flows.entries.get(&id(ufid)).map(|e| e.place)
    }

    pub(crate) fn entry(&mut self, ufid: Ufid) -> Option<&mut Entry> {
        self.flows.entries.get_mut(&id(ufid))
    }

    /// Reads what is known of some flows, so that looking at each of them then does not wait for
    /// memory: reads do not wait for each other.
    pub(crate) fn touch(&self, ufids: impl Iterator<Item = Ufid>) {
        let read = |ufid| self.flows.entries.get(&id(ufid)).map_or(0, |entry| entry.seen);
        std::hint::black_box(ufids.map(read).fold(0, u32::wrapping_add));
    }

    /// Puts a flow to `place`, one that is not there too.
    pub(crate) fn put(&mut self, ufid: Ufid, place: Place) {
        let sweep = self.table.sweeps.load(Ordering::Acquire);
        let is_fast = |place| matches!(place, Place::Fast { .. });
        let entry = self.flows.entries.entry(id(ufid));
        match entry {
            hashbrown::hash_map::Entry::Occupied(mut there) => {
                let there = there.get_mut();
                self.table.tally.leave(there.place);
                if is_fast(place) && !is_fast(there.place) {
                    there.came = sweep;
                }
                there.place = place;
            }
            hashbrown::hash_map::Entry::Vacant(vacant) => {
                vacant.insert(Entry { place, seen: 0, recent: u32::MAX, came: sweep });
            }
        }
        self.table.tally.enter(place);
    }

    /// Forgets a flow: where it was, and what it carried.
    pub(crate) fn take(&mut self, ufid: Ufid) -> Option<(Place, FlowStats)> {
        let entry = self.flows.entries.remove(&id(ufid))?;
        self.table.tally.leave(entry.place);
        Some((entry.place, self.flows.carried.remove(&id(ufid)).unwrap_or_default()))
    }

    pub(crate) fn carried(&self, ufid: Ufid) -> FlowStats {
        self.flows.carried.get(&id(ufid)).copied().unwrap_or_default()
    }

    /// Keeps what a flow counted in the fast path.
    pub(crate) fn carry(&mut self, ufid: Ufid, stats: FlowStats) {
        if stats != FlowStats::default() {
            let sum = self.flows.carried.entry(id(ufid)).or_default();
            *sum = add(*sum, stats);
        }
    }

    fn clear(&mut self) {
        for entry in self.flows.entries.values() {
            self.table.tally.leave(entry.place);
        }
        *self.flows = Flows::default();
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct Table {
    shards: Vec<Mutex<Flows>>,
    pub(crate) tally: Tally,
    /// Sweeps of the fast path that have begun.
    sweeps: AtomicU32,
}

impl Default for Table {
    fn default() -> Table {
        Table {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            tally: Tally::default(),
            sweeps: AtomicU32::new(0),
        }
    }
}

impl Table {
    fn locked<'a>(&'a self, flows: &'a Mutex<Flows>) -> Shard<'a> {
        // Whole entries only: a panicked holder does no harm.
        Shard { flows: flows.lock().unwrap_or_else(PoisonError::into_inner), table: self }
    }

    /// The number of a sweep of the fast path that begins now; see [`Entry::came_before`]. Who sees
    /// a flow in that sweep that left later sees this number when the flow comes again: it leaves
    /// and comes under the same locks of the fast path.
    pub(crate) fn begin_sweep(&self) -> u32 {
        self.sweeps.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// The part that has `ufid`.
    pub(crate) fn shard(&self, ufid: Ufid) -> Shard<'_> {
        self.locked(&self.shards[shard_of(ufid)])
    }

    /// Reads where some flows will be; see [`shards::prefetch`].
    pub(crate) fn prefetch(&self, flows: &[&Megaflow]) {
        let lock = |n: usize| self.locked(&self.shards[n]);
        shards::prefetch(flows, lock, |shard, ufid| shard.get(ufid).is_some());
    }

    /// Forgets all flows; `act` runs while nobody can change one.
    pub(crate) fn clear(&self, act: impl FnOnce()) {
        let mut shards: Vec<Shard<'_>> = self.shards.iter().map(|s| self.locked(s)).collect();
        act();
        shards.iter_mut().for_each(Shard::clear);
    }

    /// What `pick` makes of the entries, shard by shard.
    pub(crate) fn select<T>(&self, mut pick: impl FnMut(Ufid, &Entry) -> Option<T>) -> Vec<T> {
        let mut out = Vec::new();
        for shard in &self.shards {
            let shard = self.locked(shard);
            out.extend(shard.flows.entries.iter().filter_map(|(i, e)| pick(ufid(*i), e)));
        }
        out
    }

    /// The flows that `wanted` names.
    pub(crate) fn at(&self, wanted: impl Fn(Place) -> bool) -> Vec<Ufid> {
        self.select(|ufid, entry| wanted(entry.place).then_some(ufid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<(Id, Entry)>(), 32);
        let n = Ufid(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        assert_eq!(ufid(id(n)), n);
    }

    #[test]
    fn the_tally_follows_every_change() {
        let table = Table::default();
        let (a, b) = (Ufid(1), Ufid(65));
        table.shard(a).put(a, Place::Queued);
        assert_eq!(table.tally.refused(Refusal::Unsettled), 1);
        table.shard(a).put(a, Place::Base(Refusal::TableFull));
        let lacks = Some(Refusal::UnverifiedPeer);
        table.shard(b).put(b, Place::Fast { tiers: TierSet::TCX, lacks });
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
    fn a_stay_in_the_fast_path_is_older_than_the_sweeps_that_began_in_it() {
        let table = Table::default();
        let a = Ufid(1);
        let fast = |lacks| Place::Fast { tiers: TierSet::TCX, lacks };
        let came_before = |sweep| table.shard(a).entry(a).unwrap().came_before(sweep);
        let first = table.begin_sweep();
        table.shard(a).put(a, Place::Queued);
        table.shard(a).put(a, fast(None));
        assert!(!came_before(first));
        let second = table.begin_sweep();
        assert!(came_before(second));
        table.shard(a).put(a, fast(Some(Refusal::UnverifiedPeer)));
        assert!(came_before(second), "the same stay");
        table.shard(a).put(a, Place::Base(Refusal::Evicted));
        table.shard(a).put(a, fast(None));
        assert!(!came_before(second));
        table.sweeps.store(u32::MAX, Ordering::Relaxed);
        table.shard(a).put(a, Place::Base(Refusal::Evicted));
        table.shard(a).put(a, fast(None));
        assert!(came_before(table.begin_sweep()), "numbers begin anew");
    }

    #[test]
    fn busyness_is_between_two_sweeps() {
        let mut entry = Entry { place: Place::Queued, seen: 0, recent: u32::MAX, came: 0 };
        entry.note(7);
        assert_eq!(entry.recent, 7);
        entry.note(u64::from(u32::MAX) + 3);
        entry.note(u64::from(u32::MAX) + 5);
        assert_eq!(entry.recent, 2);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The table of megaflows: tuple space search.
//!
//! Megaflows with equal masks share a *subtable*: a hash table over the words of the key that the
//! mask has bits in, a handful for most masks. A lookup probes subtables, most used first, until
//! one has the packet's masked key. The contract says that overlapping megaflows have the same
//! effect on the packets they share. So the first hit is as good as any.

use crate::megaflow::Flow;
use crate::miniflow::MiniMask;
use crate::moved::{self, Moved, SLOTS_OF_WORD};
use datapath::{FlowStats, Megaflow, Refusal, Ufid};
use flow::{Key, Mask};
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A megaflow with its hash. A lookup reads the megaflow only when the hash is equal, and a growing
/// table reads none.
struct HashedFlow {
    hash: u64,
    flow: Arc<Flow>,
}

struct Subtable {
    mask: Arc<MiniMask>,
    flows: HashTable<HashedFlow>,
    /// Hits since the last sort; half of the hits before it count too.
    hits: AtomicU64,
}

impl Subtable {
    fn new(mask: &Mask) -> Subtable {
        Subtable { mask: MiniMask::new(mask), flows: HashTable::new(), hits: AtomicU64::new(0) }
    }

    fn find(&self, state: &RandomState, key: &Key) -> Option<&Arc<Flow>> {
        let hash = self.mask.hash(state, key);
        let is_match = |entry: &HashedFlow| entry.hash == hash && entry.flow.matches(key);
        Some(&self.flows.find(hash, is_match)?.flow)
    }

    fn insert(
        &mut self,
        state: &RandomState,
        megaflow: &Megaflow,
        slot: u32,
        installed: u64,
    ) -> Arc<Flow> {
        let hash = self.mask.hash(state, megaflow.matching.key());
        let flow = Arc::new(Flow::new(megaflow, &self.mask, slot, installed));
        let entry = HashedFlow { hash, flow: Arc::clone(&flow) };
        self.flows.insert_unique(hash, entry, |entry| entry.hash);
        flow
    }

    fn remove(&mut self, state: &RandomState, flow: &Arc<Flow>) {
        let hash = self.mask.hash(state, flow.matching().key());
        if let Ok(entry) = self.flows.find_entry(hash, |entry| Arc::ptr_eq(&entry.flow, flow)) {
            entry.remove();
        }
        if self.flows.capacity() > 64 && self.flows.len() < self.flows.capacity() / 8 {
            self.flows.shrink_to_fit(|entry| entry.hash);
        }
    }
}

/// The table. The owner locks it.
pub(crate) struct Table {
    subtables: Vec<Subtable>,
    ufids: HashMap<Ufid, Arc<Flow>, RandomState>,
    /// Megaflows by slot.
    slots: Vec<Option<Arc<Flow>>>,
    free_slots: Vec<u32>,
    /// Number of megaflows that were ever installed.
    installed: u64,
    moved: Arc<Moved>,
    state: RandomState,
    limits: Limits,
}

/// The limits of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) flows: usize,
    /// Subtables, each of which a lookup may have to probe. Above the limit there are only some for
    /// exact megaflows ([`EXACT_MASKS`]).
    pub(crate) masks: usize,
}

/// Subtables above the limit, for megaflows that match every field: with all masks in use, these
/// still forward every packet.
const EXACT_MASKS: usize = 64;

impl Table {
    /// Creates an empty table.
    pub(crate) fn new(limits: Limits) -> Table {
        let state = RandomState::default();
        Table {
            subtables: Vec::new(),
            ufids: HashMap::with_hasher(state.clone()),
            slots: Vec::new(),
            free_slots: Vec::new(),
            installed: 0,
            moved: Arc::new(Moved::new(limits.flows)),
            state,
            limits,
        }
    }

    /// Returns the set of megaflows that have counted since the last sweep of those.
    pub(crate) fn moved(&self) -> &Arc<Moved> {
        &self.moved
    }

    /// Returns true when the limits allow one more subtable, for `flow`.
    fn has_room_for_mask(&self, flow: &Megaflow) -> bool {
        let masks = self.subtables.len();
        masks < self.limits.masks
            || masks < self.limits.masks.saturating_add(EXACT_MASKS)
                && datapath::is_exact(&flow.matching)
    }

    /// Returns the index of the subtable with this mask.
    fn position(&self, mask: &Mask) -> Option<usize> {
        self.subtables.iter().position(|s| s.mask.mask() == mask)
    }

    /// Returns the megaflow that `key` matches and the number of subtables probed.
    pub(crate) fn lookup(&self, key: &Key) -> (Option<&Arc<Flow>>, u64) {
        let mut probed = 0;
        for subtable in &self.subtables {
            probed += 1;
            if let Some(flow) = subtable.find(&self.state, key) {
                subtable.hits.fetch_add(1, Ordering::Relaxed);
                return (Some(flow), probed);
            }
        }
        (None, probed)
    }

    /// Reads the memory where `flows` will be stored; see [`datapath::Flows::prefetch`].
    pub(crate) fn prefetch(&self, flows: &[&Megaflow]) {
        let is_there = |flow: &&&Megaflow| {
            let (mask, key) = (flow.matching.mask(), flow.matching.key());
            let subtable = self.position(mask).and_then(|at| self.subtables.get(at));
            let alike = subtable.is_some_and(|s| s.find(&self.state, key).is_some());
            alike | self.ufids.contains_key(&flow.ufid)
        };
        std::hint::black_box(flows.iter().filter(is_there).count());
    }

    pub(crate) fn insert(&mut self, flow: &Megaflow) -> Result<(), Refusal> {
        if self.ufids.contains_key(&flow.ufid) {
            return Err(Refusal::Exists);
        }
        if self.ufids.len() >= self.limits.flows {
            return Err(Refusal::TableFull);
        }
        let mask = flow.matching.mask();
        let at = match self.position(mask) {
            Some(at) => at,
            None if !self.has_room_for_mask(flow) => return Err(Refusal::MasksFull),
            None => {
                self.subtables.push(Subtable::new(mask));
                self.subtables.len() - 1
            }
        };
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32 // there is a limit
        });
        if let Some(subtable) = self.subtables.get_mut(at)
            && let Some(place) = self.slots.get_mut(slot as usize)
        {
            let flow = subtable.insert(&self.state, flow, slot, self.installed);
            self.installed += 1;
            *place = Some(Arc::clone(&flow));
            self.moved.add(slot); // no other thread has it yet
            self.ufids.insert(flow.ufid, flow);
        }
        Ok(())
    }

    pub(crate) fn get(&self, ufid: Ufid) -> Option<&Arc<Flow>> {
        self.ufids.get(&ufid)
    }

    pub(crate) fn remove(&mut self, ufid: Ufid) -> Option<Arc<Flow>> {
        let flow = self.ufids.remove(&ufid)?;
        if let Some(place) = self.slots.get_mut(flow.slot as usize) {
            *place = None;
            self.free_slots.push(flow.slot);
        }
        if let Some(at) = self.subtables.iter().position(|s| Arc::ptr_eq(&s.mask, &flow.mask))
            && let Some(subtable) = self.subtables.get_mut(at)
        {
            subtable.remove(&self.state, &flow);
            if subtable.flows.is_empty() {
                self.subtables.remove(at);
            }
        }
        Some(flow)
    }

    /// Removes all megaflows and returns them.
    pub(crate) fn clear(&mut self) -> Vec<Arc<Flow>> {
        self.subtables.clear();
        self.slots.clear();
        self.free_slots.clear();
        self.ufids.drain().map(|(_, flow)| flow).collect()
    }

    /// Returns all megaflows, in no order.
    pub(crate) fn flows(&self) -> Vec<Arc<Flow>> {
        self.ufids.values().cloned().collect()
    }

    /// Appends the statistics of all megaflows to `all`, in no order.
    pub(crate) fn statistics(&self, all: &mut Vec<(Ufid, FlowStats)>) {
        all.reserve(self.ufids.len());
        read_statistics(self.ufids.values().map(|flow| &**flow), all);
    }

    /// Appends the statistics of those of `ufids` that exist.
    pub(crate) fn statistics_of(&self, ufids: &[Ufid], all: &mut Vec<(Ufid, FlowStats)>) {
        read_statistics(ufids.iter().filter_map(|ufid| self.ufids.get(ufid)).map(|f| &**f), all);
    }

    /// Appends the statistics of the megaflows among slots `from..from + MOVED_AT_ONCE` that were
    /// installed, or have counted, since the last call for these. Returns false when there are no
    /// such slots.
    pub(crate) fn moved_statistics(&self, from: usize, all: &mut Vec<(Ufid, FlowStats)>) -> bool {
        let some = self.slots.get(from..).unwrap_or_default();
        let some = some.get(..MOVED_AT_ONCE).unwrap_or(some);
        let words = some.chunks(SLOTS_OF_WORD).zip(from / SLOTS_OF_WORD..);
        let flows = words.flat_map(|(slots, n)| {
            moved::positions(self.moved.take(n)).filter_map(|at| slots.get(at)?.as_deref())
        });
        read_statistics(flows, all);
        !some.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.ufids.len()
    }

    pub(crate) fn subtables(&self) -> usize {
        self.subtables.len()
    }

    /// Sorts the subtables by recent hits, most first, and halves the counts.
    pub(crate) fn sort(&mut self) {
        self.subtables.sort_by_key(|s| std::cmp::Reverse(s.hits.load(Ordering::Relaxed)));
        for s in &mut self.subtables {
            *s.hits.get_mut() /= 2;
        }
    }

    /// Returns true when [`Table::sort`] would change the order.
    pub(crate) fn is_unsorted(&self) -> bool {
        !self.subtables.is_sorted_by_key(|s| std::cmp::Reverse(s.hits.load(Ordering::Relaxed)))
    }
}

/// Number of slots that [`Table::moved_statistics`] looks at.
pub(crate) const MOVED_AT_ONCE: usize = 64 * SLOTS_OF_WORD;

/// Appends the statistics of `flows` to `all`. Megaflows lie all over memory, so 64 at a time are
/// prefetched before their locks are taken: plain reads do not wait for each other, locks do.
fn read_statistics<'a>(
    mut flows: impl Iterator<Item = &'a Flow>,
    all: &mut Vec<(Ufid, FlowStats)>,
) {
    let mut some: Vec<&Flow> = Vec::with_capacity(64);
    loop {
        some.clear();
        some.extend(flows.by_ref().take(64));
        if some.is_empty() {
            return;
        }
        std::hint::black_box(some.iter().map(|flow| flow.prefetch()).fold(0, u64::wrapping_add));
        all.extend(some.iter().map(|flow| (flow.ufid, flow.stats())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::{Field, Match};
    use proptest::prelude::*;

    fn megaflow(ufid: u128, fields: &[(Field, u128, u128)]) -> Megaflow {
        let mut matching = Match::ANY;
        for (field, value, mask) in fields {
            matching.set_masked(*field, *value, *mask);
        }
        Megaflow { ufid: Ufid(ufid), matching, actions: [].into() }
    }

    #[test]
    fn identity_and_room_are_checked() {
        let mut t = Table::new(limits(2));
        assert_eq!(t.insert(&megaflow(1, &[])), Ok(()));
        assert_eq!(t.insert(&megaflow(1, &[])), Err(Refusal::Exists));
        assert_eq!(t.insert(&megaflow(2, &[(Field::Ipv4Src, 1, 0xff)])), Ok(()));
        assert_eq!(t.insert(&megaflow(3, &[])), Err(Refusal::TableFull));
        assert_eq!((t.len(), t.subtables()), (2, 2));
        assert!(t.remove(Ufid(2)).is_some());
        assert!(t.remove(Ufid(2)).is_none());
        assert_eq!((t.len(), t.subtables()), (1, 1));
    }

    fn limits(flows: usize) -> Limits {
        Limits { flows, masks: 1000 }
    }

    #[test]
    fn masks_are_bounded_and_exact_megaflows_still_find_room() {
        let mut t = Table::new(Limits { flows: 1000, masks: 3 });
        for bits in 1..=3u128 {
            t.insert(&megaflow(bits, &[(Field::Ipv4Src, 1, bits)])).expect("room");
        }
        let one_more = megaflow(4, &[(Field::Ipv4Src, 1, 0xff)]);
        assert_eq!(t.insert(&one_more), Err(Refusal::MasksFull));
        assert_eq!(
            t.insert(&megaflow(5, &[(Field::Ipv4Src, 0, 1)])),
            Ok(()),
            "a mask that is there"
        );
        for port in 1..40 {
            let mut key = Key::ZERO;
            key.in_port.set(port);
            let matching = Match::new(&key, &datapath::exact_mask(&key));
            let exact =
                Megaflow { ufid: Ufid(100 + u128::from(port)), matching, actions: [].into() };
            assert_eq!(t.insert(&exact), Ok(()));
        }
        assert_eq!(t.subtables(), 4);
        assert_eq!(t.insert(&one_more), Err(Refusal::MasksFull));
        assert!(t.remove(Ufid(2)).is_some());
        assert_eq!(t.insert(&one_more), Err(Refusal::MasksFull), "exact ones take room, too");
        assert!(t.remove(Ufid(3)).is_some());
        assert_eq!(t.insert(&megaflow(4, &[(Field::Ipv4Src, 1, 0xff)])), Ok(()));
    }

    #[test]
    fn no_two_tables_have_the_same_hashes() {
        let f = megaflow(1, &[(Field::Ipv4Src, 1, 0xff)]);
        let hash = || {
            let mut t = Table::new(limits(10));
            t.insert(&f).expect("room");
            t.subtables[0].mask.hash(&t.state, f.matching.key())
        };
        assert_ne!(hash(), hash());
    }

    #[test]
    fn sorting_moves_the_busy_subtable_first() {
        let mut t = Table::new(limits(10));
        t.insert(&megaflow(1, &[(Field::Ipv4Src, 1, 0xff)])).expect("room");
        t.insert(&megaflow(2, &[(Field::Ipv4Dst, 1, 0xff)])).expect("room");
        let mut key = Key::ZERO;
        key.nw_dst.set(1);
        assert_eq!(t.lookup(&key).1, 2);
        assert!(t.is_unsorted());
        t.sort();
        assert_eq!(t.lookup(&key).1, 1);
    }

    proptest! {
        /// A lookup finds what a scan of all megaflows finds, after any inserts and removals.
        #[test]
        fn finds_what_a_list_finds(
            steps in proptest::collection::vec((any::<bool>(), 0u128..40, 0u128..4, 0usize..4), 1..120),
            probes in proptest::collection::vec((0u32..4, 0u32..4), 1..40),
        ) {
            let masks = [(0u128, 0u128), (3, 0), (0, 3), (3, 3)];
            let mut t = Table::new(limits(1000));
            let mut list: Vec<Megaflow> = Vec::new();
            for (add, ufid, value, mask) in steps {
                if add {
                    let (a, b) = masks[mask];
                    let f = megaflow(ufid, &[(Field::Ipv4Src, value & a, a), (Field::Ipv4Dst, value & b, b)]);
                    let known = list.iter().any(|f| f.ufid == Ufid(ufid));
                    prop_assert_eq!(t.insert(&f).is_ok(), !known);
                    if !known {
                        list.push(f);
                    }
                } else {
                    let at = list.iter().position(|f| f.ufid == Ufid(ufid));
                    prop_assert_eq!(t.remove(Ufid(ufid)).is_some(), at.is_some());
                    at.map(|at| list.remove(at));
                }
            }
            prop_assert_eq!(t.len(), list.len());
            for (src, dst) in probes {
                let mut key = Key::ZERO;
                key.nw_src.set(src);
                key.nw_dst.set(dst);
                let found = t.lookup(&key).0;
                match found {
                    Some(f) => prop_assert!(f.matches(&key)),
                    None => prop_assert!(!list.iter().any(|f| f.matching.matches(&key))),
                }
            }
        }
    }
}

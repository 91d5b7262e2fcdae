// SPDX-License-Identifier: Apache-2.0
//! The table of megaflows: tuple space search.
//!
//! Megaflows with equal masks share a *subtable*: a hash table over the words of the key that
//! the mask has bits in (and only those: most masks touch a handful of the key's words). A lookup
//! probes subtables, most used first, until one has the packet's masked key. Overlapping
//! megaflows do the same to the packets they share (the contract says so), hence the first hit
//! is as good as any.

use crate::megaflow::Flow;
use crate::shape::Shape;
use datapath::{FlowStats, Megaflow, Refusal, Ufid};
use flow::{Key, Mask};
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A megaflow with its hash: it is looked at only when the hash is right, and a table that grows
/// looks at none.
struct Held {
    hash: u64,
    flow: Arc<Flow>,
}

struct Subtable {
    shape: Arc<Shape>,
    flows: HashTable<Held>,
    /// Hits since the last sorting.
    hits: AtomicU64,
}

impl Subtable {
    fn new(mask: &Mask) -> Subtable {
        Subtable { shape: Shape::new(mask), flows: HashTable::new(), hits: AtomicU64::new(0) }
    }

    fn find(&self, state: &RandomState, key: &Key) -> Option<&Arc<Flow>> {
        let hash = self.shape.hash(state, key);
        let held = self.flows.find(hash, |held| held.hash == hash && held.flow.matches(key))?;
        Some(&held.flow)
    }

    fn insert(&mut self, state: &RandomState, megaflow: &Megaflow) -> Arc<Flow> {
        let hash = self.shape.hash(state, megaflow.matching.key());
        let flow = Arc::new(Flow::new(megaflow, &self.shape));
        let held = Held { hash, flow: Arc::clone(&flow) };
        self.flows.insert_unique(hash, held, |held| held.hash);
        flow
    }

    fn remove(&mut self, state: &RandomState, flow: &Arc<Flow>) {
        let hash = self.shape.hash(state, flow.matching().key());
        if let Ok(entry) = self.flows.find_entry(hash, |held| Arc::ptr_eq(&held.flow, flow)) {
            entry.remove();
        }
        if self.flows.capacity() > 64 && self.flows.len() < self.flows.capacity() / 8 {
            self.flows.shrink_to_fit(|held| held.hash);
        }
    }
}

/// The table; whoever shares it locks it.
pub(crate) struct Table {
    subtables: Vec<Subtable>,
    ufids: HashMap<Ufid, Arc<Flow>, RandomState>,
    state: RandomState,
    limits: Limits,
}

/// What a table holds at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) flows: usize,
    /// Subtables, each of which a lookup may have to probe; beyond them only some for exact
    /// megaflows ([`EXACT_MASKS`]).
    pub(crate) masks: usize,
}

/// Subtables kept for megaflows that match all there is: when masks are used up, everything can be
/// forwarded by such.
const EXACT_MASKS: usize = 64;

impl Table {
    /// An empty table.
    pub(crate) fn new(limits: Limits) -> Table {
        let state = RandomState::default();
        Table { subtables: Vec::new(), ufids: HashMap::with_hasher(state.clone()), state, limits }
    }

    /// True when there may be one more subtable, for `flow`.
    fn has_room_for_mask(&self, flow: &Megaflow) -> bool {
        let masks = self.subtables.len();
        masks < self.limits.masks
            || masks < self.limits.masks.saturating_add(EXACT_MASKS)
                && datapath::is_exact(&flow.matching)
    }

    /// The place of the subtable with this mask.
    fn position(&self, mask: &Mask) -> Option<usize> {
        self.subtables.iter().position(|s| s.shape.mask() == mask)
    }

    /// The megaflow that `key` matches, and how many subtables were probed.
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

    /// Reads where some megaflows will be; see [`datapath::Flows::foresee`].
    pub(crate) fn foresee(&self, flows: &[&Megaflow]) {
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
        if let Some(subtable) = self.subtables.get_mut(at) {
            self.ufids.insert(flow.ufid, subtable.insert(&self.state, flow));
        }
        Ok(())
    }

    pub(crate) fn get(&self, ufid: Ufid) -> Option<&Arc<Flow>> {
        self.ufids.get(&ufid)
    }

    pub(crate) fn remove(&mut self, ufid: Ufid) -> Option<Arc<Flow>> {
        let flow = self.ufids.remove(&ufid)?;
        if let Some(at) = self.subtables.iter().position(|s| Arc::ptr_eq(&s.shape, &flow.shape))
            && let Some(subtable) = self.subtables.get_mut(at)
        {
            subtable.remove(&self.state, &flow);
            if subtable.flows.is_empty() {
                self.subtables.remove(at);
            }
        }
        Some(flow)
    }

    /// Takes all megaflows out.
    pub(crate) fn clear(&mut self) -> Vec<Arc<Flow>> {
        self.subtables.clear();
        self.ufids.drain().map(|(_, flow)| flow).collect()
    }

    /// All megaflows, in no order.
    pub(crate) fn flows(&self) -> Vec<Arc<Flow>> {
        self.ufids.values().cloned().collect()
    }

    /// Adds what all megaflows counted to `all`, in no order. Some are read before their statistics
    /// are taken: they lie all over memory, and reads of them do not wait for each other, locks do.
    pub(crate) fn statistics(&self, all: &mut Vec<(Ufid, FlowStats)>) {
        all.reserve(self.ufids.len());
        let mut flows = self.ufids.values();
        let mut some: Vec<&Flow> = Vec::with_capacity(64);
        loop {
            some.clear();
            some.extend(flows.by_ref().take(64).map(|flow| &**flow));
            if some.is_empty() {
                return;
            }
            std::hint::black_box(some.iter().map(|flow| flow.touch()).fold(0, u64::wrapping_add));
            all.extend(some.iter().map(|flow| (flow.ufid, flow.stats())));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ufids.len()
    }

    pub(crate) fn subtables(&self) -> usize {
        self.subtables.len()
    }

    /// Puts the subtables that were hit most of late first, and lets old hits count half.
    pub(crate) fn sort(&mut self) {
        self.subtables.sort_by_key(|s| std::cmp::Reverse(s.hits.load(Ordering::Relaxed)));
        for s in &mut self.subtables {
            *s.hits.get_mut() /= 2;
        }
    }

    /// True when [`Table::sort`] would change the order.
    pub(crate) fn is_unsorted(&self) -> bool {
        !self.subtables.is_sorted_by_key(|s| std::cmp::Reverse(s.hits.load(Ordering::Relaxed)))
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
            t.subtables[0].shape.hash(&t.state, f.matching.key())
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
        /// The table finds what a walk over all megaflows finds, whatever came and went.
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

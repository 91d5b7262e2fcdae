// SPDX-License-Identifier: Apache-2.0
//! Persistent trees of values by their hashes: the storage of the rules of subtables.
//!
//! Made for tables of very many small values that are shared after nearly every change. Such a
//! change copies the path to its place, and counts one more reference to everything that the nodes
//! of this path lead to. With many values a change waits for memory. So nodes are few and each is
//! one piece of memory, a change walks the path once, and counts are read side by side before they
//! are written one after the other.
//!
//! A leaf keeps its values in the order of their hashes. When it has too many it is put below a
//! branch, and its values are dealt out by the next two bits of their hashes. So a leaf is mostly
//! at least a quarter full, as long as values are added and not removed. Bits that all hashes below
//! a place share need no branch there: hashes may begin with a part that very many values have in
//! common.
//!
//! The part that many values may share (the hash of a match that many rules have, each with a
//! priority of its own) takes the high bits of a hash. The part that distinguishes them takes the
//! low ones: no leaf grows with them.

use smallvec::SmallVec;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

/// Number of bits of a hash by which one branch chooses a way.
const BITS: u32 = 2;
/// Number of ways that lead from a branch.
const WAYS: usize = 1 << BITS;
/// Most values of a leaf, unless they all have the same hash. Few in tests, for many branches.
const LEAF: usize = if cfg!(test) { 4 } else { 24 };

/// Number of hashes that [`HashTree::prefetch`] has room for without an allocation.
pub(crate) const KEYS: usize = 32;

/// A value that a tree may hold.
pub(crate) trait Value: Clone {
    /// Reads the memory that a clone would write to. The result means nothing.
    fn prefetch(&self) -> usize;
}

impl<T> Value for Arc<T> {
    fn prefetch(&self) -> usize {
        Arc::strong_count(self)
    }
}

/// A value and its hash. The hash is in halves, which are aligned as most values are: there are no
/// gaps.
#[derive(Clone, Debug)]
pub(crate) struct Held<V> {
    hash: [u64; 2],
    pub value: V,
}

impl<V> Held<V> {
    fn new(hash: u128, value: V) -> Held<V> {
        Held { hash: halves(hash), value }
    }

    fn hash(&self) -> u128 {
        whole(self.hash)
    }
}

pub(crate) fn halves(whole: u128) -> [u64; 2] {
    [(whole >> 64) as u64, whole as u64]
}

pub(crate) fn whole([high, low]: [u64; 2]) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// At least one value, by rising hash.
#[derive(Debug)]
struct Leaf<V>(SmallVec<[Held<V>; LEAF]>);

/// At least two ways lead somewhere.
#[derive(Debug)]
struct Branch<V> {
    /// Its first `depth` bits are those of all hashes below.
    hash: [u64; 2],
    /// Number of bits of a hash before the bits by which this branch chooses.
    depth: u32,
    ways: [Link<V>; WAYS],
}

#[derive(Clone, Debug, Default)]
enum Link<V> {
    #[default]
    Empty,
    Leaf(Arc<Leaf<V>>),
    Branch(Arc<Branch<V>>),
}

impl<V> Link<V> {
    fn is_empty(&self) -> bool {
        matches!(self, Link::Empty)
    }

    /// As [`Value::prefetch`].
    fn prefetch(&self) -> usize {
        match self {
            Link::Empty => 0,
            Link::Leaf(leaf) => Arc::strong_count(leaf),
            Link::Branch(branch) => Arc::strong_count(branch),
        }
    }
}

impl<V: Value> Clone for Leaf<V> {
    fn clone(&self) -> Self {
        // Reads do not wait for each other, writes of counts do.
        black_box(self.0.iter().map(|held| held.value.prefetch()).fold(0, usize::wrapping_add));
        Leaf(self.0.clone())
    }
}

impl<V: Value> Clone for Branch<V> {
    fn clone(&self) -> Self {
        // As above.
        black_box(self.ways.iter().map(Link::prefetch).fold(0, usize::wrapping_add));
        Branch { hash: self.hash, depth: self.depth, ways: self.ways.clone() }
    }
}

/// The way to values with this hash, below [`WAYS`], from a branch at `depth` bits, which are not
/// all.
fn way(hash: u128, depth: u32) -> usize {
    (hash << depth >> (u128::BITS - BITS)) as usize
}

/// Returns the number of first bits that two hashes share, rounded down to whole steps of branches.
fn common(one: u128, other: u128) -> u32 {
    (one ^ other).leading_zeros() / BITS * BITS
}

/// Values by hash. Those with the same hash, its *run*, are in the order in which they came. A
/// clone is O(1) and shares all structure.
#[derive(Clone, Debug)]
pub(crate) struct HashTree<V> {
    root: Link<V>,
}

impl<V> Default for HashTree<V> {
    fn default() -> Self {
        HashTree { root: Link::Empty }
    }
}

/// Some values of a tree, by rising hash.
pub(crate) struct Values<'a, V> {
    /// Each has a value; the next one last.
    links: Vec<&'a Link<V>>,
    /// Before them.
    leaf: std::slice::Iter<'a, Held<V>>,
}

impl<V> Values<'_, V> {
    /// True when there is none (any more).
    pub fn is_empty(&self) -> bool {
        self.leaf.len() == 0 && self.links.is_empty()
    }
}

impl<'a, V> Iterator for Values<'a, V> {
    type Item = &'a V;

    fn next(&mut self) -> Option<&'a V> {
        loop {
            if let Some(held) = self.leaf.next() {
                return Some(&held.value);
            }
            match self.links.pop()? {
                Link::Empty => {}
                Link::Leaf(leaf) => self.leaf = leaf.0.iter(),
                Link::Branch(branch) => {
                    self.links.extend(branch.ways.iter().rev().filter(|link| !link.is_empty()));
                }
            }
        }
    }
}

impl<V> Leaf<V> {
    /// Returns the range of the hashes from `first` to `last`, or its place when there are none.
    /// Reads all hashes: a binary search would wait for memory at each step.
    fn place(&self, first: u128, last: u128) -> Range<usize> {
        let (mut start, mut end) = (0, 0);
        for held in &self.0 {
            let hash = held.hash();
            start += usize::from(hash < first);
            end += usize::from(hash <= last);
        }
        start..end
    }

    /// Returns the values whose hashes have the first `bits` bits of `hash`.
    fn alike(&self, hash: u128, bits: u32) -> &[Held<V>] {
        let low = u128::MAX.checked_shr(bits).unwrap_or(0);
        self.0.get(self.place(hash & !low, hash | low)).unwrap_or_default()
    }

    /// Returns the number of first bits that all hashes here share with `hash`.
    fn common(&self, hash: u128) -> u32 {
        let first = self.0.first().map_or(hash, Held::hash);
        let last = self.0.last().map_or(hash, Held::hash);
        common(first.min(hash), last.max(hash))
    }

    /// See [`HashTree::insert`].
    fn insert(&mut self, held: Held<V>, same: &impl Fn(&V, &V) -> bool) -> Option<V> {
        let run = self.place(held.hash(), held.hash());
        let end = run.end;
        let mut alike = self.0.get_mut(run).into_iter().flatten();
        if let Some(old) = alike.find(|old| same(&old.value, &held.value)) {
            return Some(std::mem::replace(&mut old.value, held.value));
        }
        self.0.insert(end, held);
        None
    }
}

impl<V> Branch<V> {
    /// Removes and returns the only way that leads somewhere; `None` when there is another one.
    fn only(&mut self) -> Option<Link<V>> {
        let mut open = self.ways.iter_mut().filter(|link| !link.is_empty());
        match (open.next(), open.next()) {
            (Some(only), None) => Some(std::mem::take(only)),
            _ => None,
        }
    }
}

impl<V> HashTree<V> {
    /// True when there is no value.
    pub fn is_empty(&self) -> bool {
        self.root.is_empty()
    }

    /// Returns the link that leads to all values with the first `bits` bits of `hash`, if there are
    /// any. A branch leads to no others; one hash suffices to check whether it leads to them.
    fn link(&self, hash: u128, bits: u32) -> &Link<V> {
        let mut link = &self.root;
        while let Link::Branch(branch) = link
            && branch.depth < bits
        {
            link = &branch.ways[way(hash, branch.depth)];
        }
        link
    }

    /// The run of `hash`: the values with the hash, in their order.
    pub fn run(&self, hash: u128) -> &[Held<V>] {
        match self.link(hash, u128::BITS) {
            Link::Leaf(leaf) => leaf.alike(hash, u128::BITS),
            Link::Branch(_) | Link::Empty => &[],
        }
    }

    /// The values whose hashes have the first `bits` bits of `hash`, by rising hash; `bits` is a
    /// multiple of [`BITS`].
    pub fn alike(&self, hash: u128, bits: u32) -> Values<'_, V> {
        let mut values = Values { links: Vec::new(), leaf: [].iter() };
        let link = self.link(hash, bits);
        match link {
            Link::Leaf(leaf) => values.leaf = leaf.alike(hash, bits).iter(),
            Link::Branch(branch) if common(whole(branch.hash), hash) >= bits => {
                values.links.push(link);
            }
            Link::Branch(_) | Link::Empty => {}
        }
        values
    }

    /// True when there are values in [`HashTree::alike`].
    pub fn has(&self, hash: u128, bits: u32) -> bool {
        match self.link(hash, bits) {
            Link::Leaf(leaf) => !leaf.alike(hash, bits).is_empty(),
            Link::Branch(branch) => common(whole(branch.hash), hash) >= bits,
            Link::Empty => false,
        }
    }

    /// Prefetches the path to the first value of each of [`HashTree::alike`], one node of every
    /// path before the next node of any: reads of memory wait for the previous one on their path,
    /// not for each other.
    pub fn prefetch(&self, hashes: impl Iterator<Item = u128>, bits: u32) -> SmallVec<[&V; KEYS]> {
        let mut ways: SmallVec<[(u128, &Link<V>); KEYS]> =
            hashes.map(|hash| (hash, &self.root)).collect();
        let mut leaves = SmallVec::<[(u128, &Arc<Leaf<V>>); KEYS]>::new();
        while !ways.is_empty() {
            ways.retain(|on_its_way| {
                let (hash, link) = *on_its_way;
                match link {
                    Link::Branch(branch) if branch.depth < bits => {
                        on_its_way.1 = &branch.ways[way(hash, branch.depth)];
                        true
                    }
                    Link::Leaf(leaf) => {
                        leaves.push((hash, leaf));
                        false
                    }
                    Link::Branch(_) | Link::Empty => false,
                }
            });
        }
        let firsts = leaves.into_iter().filter_map(|(hash, leaf)| leaf.alike(hash, bits).first());
        firsts.map(|held| &held.value).collect()
    }

    /// All values, by rising hash.
    pub fn values(&self) -> Values<'_, V> {
        let links = if self.is_empty() { Vec::new() } else { vec![&self.root] };
        Values { links, leaf: [].iter() }
    }
}

impl<V: Value> HashTree<V> {
    /// Puts `value` in the place of the first in the run of `hash` that is the `same`, which is
    /// returned; when there is none, at the end of the run.
    pub fn insert(&mut self, hash: u128, value: V, same: impl Fn(&V, &V) -> bool) -> Option<V> {
        insert(&mut self.root, Held::new(hash, value), &same)
    }

    /// Removes the first value in the run of `hash` that is `wanted`.
    pub fn remove(&mut self, hash: u128, wanted: impl Fn(&V) -> bool) -> Option<V> {
        remove(&mut self.root, hash, &wanted)
    }
}

fn insert<V: Value>(
    link: &mut Link<V>,
    held: Held<V>,
    same: &impl Fn(&V, &V) -> bool,
) -> Option<V> {
    let hash = held.hash();
    let depth = match link {
        Link::Empty => {
            let mut leaf = Leaf(SmallVec::new());
            leaf.0.push(held);
            *link = Link::Leaf(Arc::new(leaf));
            return None;
        }
        Link::Leaf(leaf) => {
            let depth = leaf.common(hash);
            if leaf.0.len() < LEAF || depth == u128::BITS {
                return Arc::make_mut(leaf).insert(held, same);
            }
            depth
        }
        Link::Branch(branch) => {
            let depth = common(whole(branch.hash), hash);
            if depth >= branch.depth {
                let branch = Arc::make_mut(branch);
                let way = way(hash, branch.depth);
                return insert(&mut branch.ways[way], held, same);
            }
            depth
        }
    };
    // Here not all go the same way at `depth`.
    let mut ways = match std::mem::take(link) {
        Link::Empty => Default::default(),
        Link::Leaf(leaf) => deal(Arc::unwrap_or_clone(leaf), depth),
        Link::Branch(branch) => {
            let way = way(whole(branch.hash), depth);
            let mut ways: [Link<V>; WAYS] = Default::default();
            ways[way] = Link::Branch(branch);
            ways
        }
    };
    let replaced = insert(&mut ways[way(hash, depth)], held, same);
    *link = Link::Branch(Arc::new(Branch { hash: halves(hash), depth, ways }));
    replaced
}

/// Deals the values of a leaf out to the ways of a branch at `depth` bits. Not in line: [`insert`]
/// calls itself, and need not have room for four leaves each time.
#[inline(never)]
fn deal<V>(leaf: Leaf<V>, depth: u32) -> [Link<V>; WAYS] {
    let mut leaves: [Leaf<V>; WAYS] = std::array::from_fn(|_| Leaf(SmallVec::new()));
    for held in leaf.0 {
        let way = way(held.hash(), depth);
        leaves[way].0.push(held);
    }
    leaves.map(|leaf| if leaf.0.is_empty() { Link::Empty } else { Link::Leaf(Arc::new(leaf)) })
}

fn remove<V: Value>(link: &mut Link<V>, hash: u128, wanted: &impl Fn(&V) -> bool) -> Option<V> {
    let (removed, rest) = match link {
        Link::Empty => return None,
        Link::Leaf(leaf) => {
            let run = leaf.place(hash, hash);
            let at = run.start + leaf.0.get(run)?.iter().position(|held| wanted(&held.value))?;
            let leaf = Arc::make_mut(leaf);
            let removed = leaf.0.remove(at).value;
            if !leaf.0.is_empty() {
                return Some(removed);
            }
            (removed, Link::Empty)
        }
        Link::Branch(branch) => {
            let branch = Arc::make_mut(branch);
            let way = way(hash, branch.depth);
            let removed = remove(&mut branch.ways[way], hash, wanted)?;
            let Some(only) = branch.only() else { return Some(removed) };
            (removed, only)
        }
    };
    *link = rest;
    Some(removed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Model = BTreeMap<u128, Vec<u32>>;

    impl Value for u32 {
        fn prefetch(&self) -> usize {
            0
        }
    }

    /// All hashes below, by rising hash. Panics where something is not as it should be.
    fn sound(link: &Link<u32>) -> Vec<u128> {
        match link {
            Link::Empty => Vec::new(),
            Link::Leaf(leaf) => {
                let all: Vec<u128> = leaf.0.iter().map(Held::hash).collect();
                assert!(!all.is_empty() && all.is_sorted(), "{all:x?}");
                assert!(all.len() <= LEAF || all.first() == all.last(), "{all:x?}");
                all
            }
            Link::Branch(branch) => {
                let open = branch.ways.iter().filter(|link| !link.is_empty()).count();
                assert!(open > 1 && branch.depth.is_multiple_of(BITS), "{open} ways");
                let mut all = Vec::new();
                for (number, link) in branch.ways.iter().enumerate() {
                    for hash in sound(link) {
                        assert_eq!(way(hash, branch.depth), number, "{hash:x}");
                        assert!(common(hash, whole(branch.hash)) >= branch.depth, "{hash:x}");
                        all.push(hash);
                    }
                }
                all
            }
        }
    }

    fn check(tree: &HashTree<u32>, model: &Model) {
        let hashes = model.iter().flat_map(|(hash, run)| run.iter().map(move |_| *hash));
        assert!(sound(&tree.root).into_iter().eq(hashes));
        for (hash, values) in model {
            assert!(tree.run(*hash).iter().all(|held| held.hash() == *hash));
            assert!(tree.run(*hash).iter().map(|held| held.value).eq(values.iter().copied()));
        }
        assert!(tree.values().eq(model.values().flatten()));
        assert_eq!(tree.is_empty(), model.is_empty());
        let bits = (0..=u128::BITS).step_by(BITS as usize).cycle();
        let others = [1, 1 << 64, 3 << 120, u128::MAX].into_iter().cycle();
        for ((hash, bits), other) in model.keys().zip(bits).zip(others) {
            for hash in [*hash, hash ^ other] {
                let alike = |other: u128| (hash ^ other).leading_zeros() >= bits;
                let expected: Vec<&u32> =
                    model.iter().filter(|(h, _)| alike(**h)).flat_map(|(_, run)| run).collect();
                let first = tree.prefetch([hash].into_iter(), bits);
                assert!(first.is_empty() || first[..] == expected[..1]);
                assert!(expected.is_empty() || bits < u128::BITS || !first.is_empty());
                assert_eq!(tree.has(hash, bits), !expected.is_empty(), "{bits} bits of {hash:x}");
                let found = tree.alike(hash, bits);
                assert_eq!(found.is_empty(), expected.is_empty());
                assert_eq!(found.collect::<Vec<_>>(), expected, "{bits} bits of {hash:x}");
            }
        }
    }

    /// Hashes that share bits at either end or between, and some that are equal.
    fn hash() -> impl Strategy<Value = u128> {
        prop_oneof![
            any::<u128>(),
            0u128..40,
            (0u128..40).prop_map(|n| n << 122),
            (0u128..40, 0u32..122).prop_map(|(n, by)| n << by),
            Just(u128::MAX),
        ]
    }

    proptest! {
        #[test]
        fn holds_what_a_map_holds(
            steps in prop::collection::vec((hash(), 0usize..4, 0u8..4, any::<bool>()), 1..600),
        ) {
            let mut tree = HashTree::<u32>::default();
            let mut model = Model::new();
            let mut kept = Vec::new();
            for (number, (hash, at, action, keep)) in (0u32..).zip(steps) {
                let run = model.entry(hash).or_default();
                let wanted = run.get(at).copied();
                match action {
                    0 => {
                        let expected = wanted.map(|_| run.remove(at));
                        let removed = tree.remove(hash, |value| Some(*value) == wanted);
                        prop_assert_eq!(removed, expected);
                    }
                    1 => {
                        let replaced = tree.insert(hash, number, |old, _| Some(*old) == wanted);
                        prop_assert_eq!(replaced, wanted);
                        match run.get_mut(at) {
                            Some(value) => *value = number,
                            None => run.push(number),
                        }
                    }
                    _ => {
                        prop_assert_eq!(tree.insert(hash, number, |old, new| old == new), None);
                        run.push(number);
                    }
                }
                if run.is_empty() {
                    model.remove(&hash);
                }
                if keep && kept.len() < 4 {
                    kept.push((tree.clone(), model.clone()));
                }
            }
            check(&tree, &model);
            // Later changes are not seen by clones.
            for (tree, model) in &kept {
                check(tree, model);
            }
            for (hash, run) in &model {
                for _ in run {
                    prop_assert!(tree.remove(*hash, |_| true).is_some());
                    sound(&tree.root);
                }
            }
            prop_assert!(tree.is_empty());
        }
    }

    /// Branches of the longest way.
    fn height(link: &Link<u32>) -> usize {
        match link {
            Link::Branch(branch) => 1 + branch.ways.iter().map(height).max().unwrap_or(0),
            Link::Leaf(_) | Link::Empty => 0,
        }
    }

    #[test]
    fn what_shares_high_bits_makes_no_leaf_wide_and_no_way_long() {
        let mut tree = HashTree::<u32>::default();
        for number in 0..5000u32 {
            tree.insert(0xabcd_ef01 << 32 | u128::from(number), number, |_, _| false);
        }
        sound(&tree.root);
        // 13 bits distinguish them.
        assert!(height(&tree.root) <= 7, "{}", height(&tree.root));
        assert!(tree.alike(0xabcd_ef01 << 32, 96).copied().eq(0..5000));
        assert!(tree.alike(0xabcd_ef02 << 32, 96).is_empty());
    }

    #[test]
    fn equal_hashes_stay_in_one_leaf() {
        let mut tree = HashTree::<u32>::default();
        for number in 0..200u32 {
            tree.insert(7, number, |_, _| false);
            tree.insert(7 + u128::from(number % 2), number + 1000, |_, _| false);
        }
        sound(&tree.root);
        assert_eq!(tree.run(7).len(), 300);
        assert_eq!(tree.run(8).len(), 100);
        assert_eq!(tree.run(7).last().map(|held| held.value), Some(199));
        assert!(tree.run(9).is_empty());
    }

    #[test]
    fn values_that_a_change_does_not_touch_are_shared() {
        let mut tree = HashTree::<Arc<u128>>::default();
        for number in 0..1000u128 {
            tree.insert(number.reverse_bits(), Arc::new(number), |_, _| false);
        }
        let kept = tree.clone();
        let replaced = tree.insert(0, Arc::new(7), |_, _| true);
        assert_eq!(replaced.as_deref(), Some(&0));
        assert!(tree.values().skip(1).eq(kept.values().skip(1)));
        // Both trees hold a reference, and no other owner does.
        assert!(tree.values().all(|value| Arc::strong_count(value) <= 2));
        drop(kept);
        drop(replaced);
        assert!(tree.values().all(|value| Arc::strong_count(value) == 1));
    }
}

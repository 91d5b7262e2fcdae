//! Persistent trees of values by their hashes: what subtables keep rules in.
//!
//! Made for tables of very many small values that are shared after nearly every change: nodes are
//! small, so that a change copies little, and well filled, so that a value costs little more than
//! itself. A leaf keeps its values in the order of their hashes. When it has too many it becomes
//! a branch, and its values are dealt out by the next two bits of their hashes; so a leaf is at
//! least a quarter full, as long as values come and do not go.
//!
//! What many values may share (the hash of a match that many rules have, each with a priority of
//! its own) takes the high bits of a hash, and what tells them apart the low ones: no leaf
//! grows with them.

use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// Bits of a hash that one branch goes by.
const BITS: u32 = 2;
/// Ways that lead from a branch.
const WAYS: usize = 1 << BITS;
/// Most values of a leaf, unless they all have the same hash.
const LEAF: usize = 32;
/// Places that a full leaf gets at least.
const STEP: usize = 4;

/// Hashes that [`HashTree::foresee`] has room for without an allocation.
pub(crate) const KEYS: usize = 32;

/// What values are kept by.
pub(crate) trait Hash: Copy + Ord {
    /// How many bits it has.
    const BITS: u32;

    /// The way to values with this hash, below [`WAYS`], from a branch at `depth` bits, which is
    /// less than [`Hash::BITS`].
    fn way(self, depth: u32) -> usize;

    /// The lowest and the highest hash that have the first `bits` bits of this one.
    fn range(self, bits: u32) -> (Self, Self);
}

macro_rules! hash {
    ($uint:ty) => {
        impl Hash for $uint {
            const BITS: u32 = <$uint>::BITS;

            fn way(self, depth: u32) -> usize {
                (self << depth >> (Self::BITS - BITS)) as usize
            }

            fn range(self, bits: u32) -> (Self, Self) {
                let low = <$uint>::MAX.checked_shr(bits).unwrap_or(0);
                (self & !low, self | low)
            }
        }
    };
}

hash!(u32);
hash!(u64);

type Entry<H, V> = (H, V);
type Link<H, V> = Option<Arc<Node<H, V>>>;

#[derive(Clone, Debug)]
enum Node<H, V> {
    /// Somewhere below is a value.
    Branch([Link<H, V>; WAYS]),
    /// At least one value, by rising hash.
    Leaf(Vec<Entry<H, V>>),
}

/// Values by hash. Those with the same hash, its *run*, have an order of their own. A clone is
/// O(1) and shares all structure.
#[derive(Clone, Debug)]
pub(crate) struct HashTree<H, V> {
    root: Link<H, V>,
}

impl<H, V> Default for HashTree<H, V> {
    fn default() -> Self {
        HashTree { root: None }
    }
}

/// Some values of a tree, by rising hash.
pub(crate) struct Values<'a, H, V> {
    /// Each has a value; the next one last.
    nodes: Vec<&'a Node<H, V>>,
    /// Before them.
    leaf: std::slice::Iter<'a, Entry<H, V>>,
}

impl<H, V> Values<'_, H, V> {
    /// True when there is none (any more).
    pub fn is_empty(&self) -> bool {
        self.leaf.len() == 0 && self.nodes.is_empty()
    }
}

impl<'a, H, V> Iterator for Values<'a, H, V> {
    type Item = &'a V;

    fn next(&mut self) -> Option<&'a V> {
        loop {
            if let Some((_, value)) = self.leaf.next() {
                return Some(value);
            }
            match self.nodes.pop()? {
                Node::Branch(children) => {
                    self.nodes.extend(children.iter().rev().filter_map(Option::as_deref));
                }
                Node::Leaf(entries) => self.leaf = entries.iter(),
            }
        }
    }
}

/// Where the hashes from `first` to `last` are, or would be.
fn place<H: Hash, V>(entries: &[Entry<H, V>], first: H, last: H) -> Range<usize> {
    let start = entries.partition_point(|e| e.0 < first);
    start..entries.partition_point(|e| e.0 <= last)
}

/// Where the run of `hash` is, or would be.
fn run<H: Hash, V>(entries: &[Entry<H, V>], hash: H) -> Range<usize> {
    place(entries, hash, hash)
}

impl<H: Hash, V> HashTree<H, V> {
    /// True when there is no value.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// The run of `hash`: the values with the hash, in their order.
    pub fn run(&self, hash: H) -> &[Entry<H, V>] {
        let (mut link, mut depth) = (&self.root, 0);
        while let Some(node) = link {
            match &**node {
                Node::Branch(children) => link = &children[hash.way(depth)],
                Node::Leaf(entries) => return entries.get(run(entries, hash)).unwrap_or_default(),
            }
            depth += BITS;
        }
        &[]
    }

    /// The values whose hashes have the first `bits` bits of `hash`, by rising hash; `bits` is a
    /// multiple of [`BITS`].
    pub fn alike(&self, hash: H, bits: u32) -> Values<'_, H, V> {
        let mut values = Values { nodes: Vec::new(), leaf: [].iter() };
        let (mut link, mut depth) = (&self.root, 0);
        while let Some(node) = link {
            match &**node {
                Node::Branch(children) if depth < bits => link = &children[hash.way(depth)],
                Node::Branch(_) => {
                    values.nodes.push(node);
                    break;
                }
                Node::Leaf(entries) => {
                    let (first, last) = hash.range(bits);
                    let range = place(entries, first, last);
                    values.leaf = entries.get(range).unwrap_or_default().iter();
                    break;
                }
            }
            depth += BITS;
        }
        values
    }

    /// Reads the way to the first value of each of [`HashTree::alike`], one node of all before the
    /// next node of any: reads of memory wait for the one before on their way, not for each other.
    pub fn foresee(&self, hashes: impl Iterator<Item = H>, bits: u32) -> SmallVec<[&V; KEYS]> {
        let mut ways: SmallVec<[(H, &Link<H, V>); KEYS]> =
            hashes.map(|h| (h, &self.root)).collect();
        let mut leaves = SmallVec::<[_; KEYS]>::new();
        let mut depth = 0;
        while !ways.is_empty() {
            ways.retain(|(hash, link)| {
                let node: Option<&Node<H, V>> = (*link).as_deref();
                match node {
                    Some(Node::Branch(children)) if depth < bits => {
                        *link = &children[hash.way(depth)];
                        true
                    }
                    Some(Node::Leaf(entries)) => {
                        leaves.push((*hash, entries));
                        false
                    }
                    Some(Node::Branch(_)) | None => false,
                }
            });
            depth += BITS;
        }
        let firsts = leaves.into_iter().filter_map(|(hash, entries)| {
            let (first, last) = hash.range(bits);
            entries.get(place(entries, first, last)).and_then(|run| run.first())
        });
        firsts.map(|(_, value)| value).collect()
    }

    /// All values, by rising hash.
    pub fn values(&self) -> Values<'_, H, V> {
        Values { nodes: self.root.as_deref().into_iter().collect(), leaf: [].iter() }
    }
}

impl<H: Hash, V: Clone> HashTree<H, V> {
    /// Adds a value at a place in the run of `hash`, or at its end when that is further.
    pub fn insert(&mut self, hash: H, at: usize, value: V) {
        insert(&mut self.root, 0, at, (hash, value));
    }

    /// The value at a place in the run of `hash`, to change it.
    pub fn get_mut(&mut self, hash: H, at: usize) -> Option<&mut V> {
        let (mut link, mut depth) = (&mut self.root, 0);
        loop {
            match Arc::make_mut(link.as_mut()?) {
                Node::Branch(children) => link = &mut children[hash.way(depth)],
                Node::Leaf(entries) => {
                    let run = run(entries, hash);
                    return entries.get_mut(run)?.get_mut(at).map(|e| &mut e.1);
                }
            }
            depth += BITS;
        }
    }

    /// Takes out the value at a place in the run of `hash`.
    pub fn remove(&mut self, hash: H, at: usize) -> Option<V> {
        remove(&mut self.root, 0, hash, at)
    }
}

fn insert<H: Hash, V: Clone>(link: &mut Link<H, V>, depth: u32, at: usize, entry: Entry<H, V>) {
    let Some(node) = link else {
        *link = Some(Arc::new(Node::Leaf(vec![entry])));
        return;
    };
    let node = Arc::make_mut(node);
    match node {
        Node::Branch(children) => {
            insert(&mut children[entry.0.way(depth)], depth + BITS, at, entry);
        }
        Node::Leaf(entries) => {
            let run = run(entries, entry.0);
            if entries.len() == entries.capacity() {
                entries.reserve_exact(STEP.max(entries.len() / 8));
            }
            entries.insert(run.start.saturating_add(at).min(run.end), entry);
            let differ = entries.first().map(|e| e.0) != entries.last().map(|e| e.0);
            if entries.len() > LEAF && differ && depth < H::BITS {
                *node = branch(std::mem::take(entries), depth);
            }
        }
    }
}

/// Deals the entries of a leaf at `depth` bits out.
fn branch<H: Hash, V>(mut entries: Vec<Entry<H, V>>, depth: u32) -> Node<H, V> {
    let mut children: [Link<H, V>; WAYS] = std::array::from_fn(|_| None);
    for (number, child) in children.iter_mut().enumerate().rev() {
        let mut part = entries.split_off(entries.partition_point(|e| e.0.way(depth) < number));
        if !part.is_empty() {
            part.shrink_to_fit();
            *child = Some(Arc::new(Node::Leaf(part)));
        }
    }
    Node::Branch(children)
}

fn remove<H: Hash, V: Clone>(link: &mut Link<H, V>, depth: u32, hash: H, at: usize) -> Option<V> {
    let (removed, is_empty) = match Arc::make_mut(link.as_mut()?) {
        Node::Branch(children) => {
            let removed = remove(&mut children[hash.way(depth)], depth + BITS, hash, at)?;
            (removed, children.iter().all(Option::is_none))
        }
        Node::Leaf(entries) => {
            let place = run(entries, hash).nth(at)?;
            let (_, removed) = entries.remove(place);
            if entries.capacity() > 2 * (entries.len() + STEP) {
                entries.shrink_to(entries.len() + STEP);
            }
            (removed, entries.is_empty())
        }
    };
    if is_empty {
        *link = None;
    }
    Some(removed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Model = BTreeMap<u32, Vec<u32>>;

    fn check(tree: &HashTree<u32, u32>, model: &Model) {
        for (hash, values) in model {
            assert!(tree.run(*hash).iter().all(|e| e.0 == *hash));
            assert_eq!(tree.run(*hash).iter().map(|e| e.1).collect::<Vec<_>>(), *values);
        }
        assert!(tree.values().eq(model.values().flatten()));
        assert_eq!(tree.is_empty(), model.is_empty());
        for (hash, bits) in model.keys().zip((0..=u32::BITS).step_by(BITS as usize).cycle()) {
            let alike = |other: u32| (hash ^ other).leading_zeros() >= bits;
            let expected: Vec<&u32> =
                model.iter().filter(|(h, _)| alike(**h)).flat_map(|(_, run)| run).collect();
            let first = tree.foresee([*hash].into_iter(), bits);
            assert!(expected.is_empty() || bits < u32::BITS || first[..] == expected[..1]);
            let found = tree.alike(*hash, bits);
            assert_eq!(found.is_empty(), expected.is_empty());
            assert_eq!(found.collect::<Vec<_>>(), expected, "{bits} bits of {hash:x}");
        }
    }

    /// Hashes that share bits at either end, and some that are equal.
    fn hash() -> impl Strategy<Value = u32> {
        prop_oneof![any::<u32>(), 0u32..40, (0u32..40).prop_map(|n| n << 27), Just(u32::MAX)]
    }

    proptest! {
        #[test]
        fn holds_what_a_map_holds(
            steps in prop::collection::vec((hash(), 0usize..4, 0u8..4, any::<bool>()), 1..600),
        ) {
            let mut tree = HashTree::default();
            let mut model = Model::new();
            let mut kept = Vec::new();
            for (number, (hash, at, action, keep)) in (0u32..).zip(steps) {
                let run = model.entry(hash).or_default();
                match action {
                    0 => {
                        let expected = (at < run.len()).then(|| run.remove(at));
                        prop_assert_eq!(tree.remove(hash, at), expected);
                    }
                    1 => {
                        if let Some(value) = tree.get_mut(hash, at) {
                            *value = number;
                        }
                        if let Some(value) = run.get_mut(at) {
                            *value = number;
                        }
                    }
                    _ => {
                        tree.insert(hash, at, number);
                        run.insert(at.min(run.len()), number);
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
                    prop_assert!(tree.remove(*hash, 0).is_some());
                }
            }
            prop_assert!(tree.is_empty());
        }
    }

    /// Values of the largest leaf.
    fn widest<H, V>(link: &Link<H, V>) -> usize {
        match link.as_deref() {
            None => 0,
            Some(Node::Leaf(entries)) => entries.len(),
            Some(Node::Branch(children)) => children.iter().map(widest).max().unwrap_or(0),
        }
    }

    #[test]
    fn what_shares_high_bits_makes_no_leaf_wide() {
        let mut tree = HashTree::<u64, u32>::default();
        for number in 0..5000u32 {
            tree.insert(0xabcd_ef01 << 32 | u64::from(number), 0, number);
        }
        assert!(widest(&tree.root) <= LEAF + 1, "{}", widest(&tree.root));
        assert!(tree.alike(0xabcd_ef01 << 32, 32).copied().eq(0..5000));
        assert!(tree.alike(0xabcd_ef02 << 32, 32).is_empty());
    }

    #[test]
    fn equal_hashes_stay_in_one_leaf() {
        let mut tree = HashTree::<u32, u32>::default();
        for number in 0..200u32 {
            tree.insert(7, usize::MAX, number);
            tree.insert(7 + number % 2, 0, number + 1000);
        }
        assert_eq!(tree.run(7).len(), 300);
        assert_eq!(tree.run(8).len(), 100);
        assert_eq!(tree.run(7).last().map(|e| e.1), Some(199));
        assert!(tree.run(9).is_empty());
    }
}

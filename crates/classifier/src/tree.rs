//! Persistent trees of values by their hashes: what subtables keep rules in.
//!
//! Made for tables of very many small values that are shared after nearly every change: nodes are
//! small, so that a change copies little, and well filled, so that a value costs little more than
//! itself. A leaf keeps its values in the order of their hashes. When it has too many it becomes
//! a branch, and its values are dealt out by the next two bits of their hashes; so a leaf is at
//! least a quarter full, as long as values come and do not go.

use std::ops::Range;
use std::sync::Arc;

/// Bits of a hash.
const HASH: u32 = u32::BITS;
/// Bits of a hash that one branch goes by.
const BITS: u32 = 2;
/// Ways that lead from a branch.
const WAYS: usize = 1 << BITS;
/// Most values of a leaf, unless they all have the same hash.
const LEAF: usize = 32;
/// Places that a full leaf gets at least.
const STEP: usize = 4;

type Entry<V> = (u32, V);
type Link<V> = Option<Arc<Node<V>>>;

#[derive(Clone, Debug)]
enum Node<V> {
    /// Somewhere below is a value.
    Branch([Link<V>; WAYS]),
    /// At least one value, by rising hash.
    Leaf(Vec<Entry<V>>),
}

/// Values by hash. Those with the same hash, its *run*, have an order of their own. A clone is
/// O(1) and shares all structure.
#[derive(Clone, Debug)]
pub(crate) struct HashTree<V> {
    root: Link<V>,
}

impl<V> Default for HashTree<V> {
    fn default() -> Self {
        HashTree { root: None }
    }
}

/// The way to values with this hash, below 2 to the power of [`BITS`], from a branch at `depth`
/// bits, which is less than [`HASH`].
fn way(hash: u32, depth: u32) -> usize {
    (hash << depth >> (HASH - BITS)) as usize
}

/// Where the run of `hash` is, or would be.
fn run<V>(entries: &[Entry<V>], hash: u32) -> Range<usize> {
    let start = entries.partition_point(|e| e.0 < hash);
    start..entries.partition_point(|e| e.0 <= hash)
}

impl<V> HashTree<V> {
    /// True when there is no value.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// The run of `hash`: the values with the hash, in their order.
    pub fn run(&self, hash: u32) -> &[Entry<V>] {
        let (mut link, mut depth) = (&self.root, 0);
        while let Some(node) = link {
            match &**node {
                Node::Branch(children) => link = &children[way(hash, depth)],
                Node::Leaf(entries) => return entries.get(run(entries, hash)).unwrap_or_default(),
            }
            depth += BITS;
        }
        &[]
    }

    /// All values, by rising hash.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        let mut nodes: Vec<&Node<V>> = self.root.as_deref().into_iter().collect();
        let mut leaf: std::slice::Iter<'_, Entry<V>> = [].iter();
        std::iter::from_fn(move || {
            loop {
                if let Some((_, value)) = leaf.next() {
                    return Some(value);
                }
                match nodes.pop()? {
                    Node::Branch(children) => {
                        nodes.extend(children.iter().rev().filter_map(Option::as_deref));
                    }
                    Node::Leaf(entries) => leaf = entries.iter(),
                }
            }
        })
    }
}

impl<V: Clone> HashTree<V> {
    /// Adds a value at a place in the run of `hash`, or at its end when that is further.
    pub fn insert(&mut self, hash: u32, at: usize, value: V) {
        insert(&mut self.root, 0, at, (hash, value));
    }

    /// The value at a place in the run of `hash`, to change it.
    pub fn get_mut(&mut self, hash: u32, at: usize) -> Option<&mut V> {
        let (mut link, mut depth) = (&mut self.root, 0);
        loop {
            match Arc::make_mut(link.as_mut()?) {
                Node::Branch(children) => link = &mut children[way(hash, depth)],
                Node::Leaf(entries) => {
                    let run = run(entries, hash);
                    return entries.get_mut(run)?.get_mut(at).map(|e| &mut e.1);
                }
            }
            depth += BITS;
        }
    }

    /// Takes out the value at a place in the run of `hash`.
    pub fn remove(&mut self, hash: u32, at: usize) -> Option<V> {
        remove(&mut self.root, 0, hash, at)
    }
}

fn insert<V: Clone>(link: &mut Link<V>, depth: u32, at: usize, entry: Entry<V>) {
    let Some(node) = link else {
        *link = Some(Arc::new(Node::Leaf(vec![entry])));
        return;
    };
    let node = Arc::make_mut(node);
    match node {
        Node::Branch(children) => {
            insert(&mut children[way(entry.0, depth)], depth + BITS, at, entry);
        }
        Node::Leaf(entries) => {
            let run = run(entries, entry.0);
            if entries.len() == entries.capacity() {
                entries.reserve_exact(STEP.max(entries.len() / 8));
            }
            entries.insert(run.start.saturating_add(at).min(run.end), entry);
            let differ = entries.first().map(|e| e.0) != entries.last().map(|e| e.0);
            if entries.len() > LEAF && differ && depth < HASH {
                *node = branch(std::mem::take(entries), depth);
            }
        }
    }
}

/// Deals the entries of a leaf at `depth` bits out.
fn branch<V>(mut entries: Vec<Entry<V>>, depth: u32) -> Node<V> {
    let mut children: [Link<V>; WAYS] = std::array::from_fn(|_| None);
    for (number, child) in children.iter_mut().enumerate().rev() {
        let mut part = entries.split_off(entries.partition_point(|e| way(e.0, depth) < number));
        if !part.is_empty() {
            part.shrink_to_fit();
            *child = Some(Arc::new(Node::Leaf(part)));
        }
    }
    Node::Branch(children)
}

fn remove<V: Clone>(link: &mut Link<V>, depth: u32, hash: u32, at: usize) -> Option<V> {
    let (removed, is_empty) = match Arc::make_mut(link.as_mut()?) {
        Node::Branch(children) => {
            let removed = remove(&mut children[way(hash, depth)], depth + BITS, hash, at)?;
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

    fn check(tree: &HashTree<u32>, model: &Model) {
        for (hash, values) in model {
            assert!(tree.run(*hash).iter().all(|e| e.0 == *hash));
            assert_eq!(tree.run(*hash).iter().map(|e| e.1).collect::<Vec<_>>(), *values);
        }
        assert!(tree.values().eq(model.values().flatten()));
        assert_eq!(tree.is_empty(), model.is_empty());
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

    #[test]
    fn equal_hashes_stay_in_one_leaf() {
        let mut tree = HashTree::default();
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

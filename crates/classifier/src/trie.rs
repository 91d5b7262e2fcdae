// SPDX-License-Identifier: Apache-2.0
//! Tries of the prefixes that rules have, one for each field with prefixes. Those of addresses are
//! the classifier's: one walk serves all subtables. Those of ports are each subtable's own: the
//! ports of other rules (of another protocol, perhaps) would only cost bits.
//!
//! A walk down a trie with a packet's field gives the lengths of the prefixes that hold for
//! the packet, and the number of leading bits that decide this: any other packet with the
//! same leading bits takes the same steps and gets the same lengths.
//!
//! A few prefixes need no trie: they lie side by side, and a walk compares each. This is so at the
//! ends of a trie, which are most of it, and for the prefixes that were added last (see
//! [`Prefixes`]).

use crate::tree::{halves, whole};
use flow::{Field, Key, Mask};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;
use std::sync::Arc;

/// Number of prefixes that need no trie. Fewer in tests, for many nodes.
const FEW: usize = if cfg!(test) { 3 } else { 16 };

/// Fields that get a trie. Every field lies in one stage of the key; a port's field stands
/// for all protocols (it is one place in the key).
pub(crate) const FIELDS: [Field; 6] =
    [Field::Ipv4Src, Field::Ipv4Dst, Field::Ipv6Src, Field::Ipv6Dst, Field::TcpSrc, Field::TcpDst];
/// Which of [`FIELDS`] are addresses.
pub(crate) const ADDRESSES: Range<usize> = 0..4;
/// Which are ports.
pub(crate) const PORTS: Range<usize> = ADDRESSES.end..FIELDS.len();

/// Bits as a node keeps them; everywhere else they are left-aligned in 128.
trait Bits: Copy {
    /// Keeps these bits. Bits beyond the node's width are zero.
    fn keep(bits: u128) -> Self;
    /// Returns the kept bits, left-aligned in 128.
    fn left(self) -> u128;
}

impl Bits for u32 {
    fn keep(bits: u128) -> u32 {
        (bits >> 96) as u32
    }

    fn left(self) -> u128 {
        u128::from(self) << 96
    }
}

impl Bits for [u64; 2] {
    fn keep(bits: u128) -> [u64; 2] {
        halves(bits)
    }

    fn left(self) -> u128 {
        whole(self)
    }
}

/// Some bits, and the number of rules whose prefix ends after them. Small, as there is one edge for
/// nearly every rule.
#[derive(Clone, Copy, Debug)]
struct Edge<B> {
    bits: B,
    /// Low 8 bits: the number of bits. The rest: the number of rules; at [`MANY`] it stays
    /// permanently. A prefix that no rule has any more costs bits and is no danger.
    len_rules: u32,
}

/// Highest number of rules that an edge can count.
const MANY: u32 = u32::MAX >> 8;

impl<B: Bits> Edge<B> {
    fn new(bits: u128, len: u32, rules: u32) -> Edge<B> {
        Edge { bits: B::keep(top(bits, len)), len_rules: rules << 8 | len }
    }

    fn bits(&self) -> u128 {
        self.bits.left()
    }

    fn len(&self) -> u32 {
        self.len_rules & 0xff
    }

    fn rules(&self) -> u32 {
        self.len_rules >> 8
    }

    /// Adds `more` to the number of rules.
    fn add_rules(&mut self, more: u32) {
        let rules = self.rules().saturating_add(more).min(MANY);
        self.len_rules = rules << 8 | self.len();
    }

    fn remove_rule(&mut self) {
        if (1..MANY).contains(&self.rules()) {
            self.len_rules -= 1 << 8;
        }
    }

    /// Returns the number of leading bits that belong to the prefix.
    fn common(&self, bits: u128, len: u32) -> u32 {
        (self.bits() ^ bits).leading_zeros().min(self.len()).min(len)
    }

    /// True when it is this prefix.
    fn is(&self, bits: u128, len: u32) -> bool {
        self.len() == len && self.common(bits, len) == len
    }
}

fn top(bits: u128, n: u32) -> u128 {
    if n == 0 { 0 } else { bits & (u128::MAX << (128 - n.min(128))) }
}

fn shl(bits: u128, n: u32) -> u128 {
    bits.checked_shl(n).unwrap_or(0)
}

fn first(bits: u128) -> usize {
    (bits >> 127) as usize
}

/// The part of the trie below a place. A child's bits begin with the bit that chose it.
#[derive(Clone, Debug, Default)]
enum Tree<B> {
    #[default]
    Empty,
    /// Prefixes that end here, and none that goes on.
    Leaf(Edge<B>),
    /// Two prefixes or more, at most [`FEW`], in no order.
    Few(Arc<Edges<B>>),
    /// Some bits, then a branch: two children, or one when some rule's prefix ends between.
    Node(Arc<Node<B>>),
}

type Edges<B> = SmallVec<[Edge<B>; FEW]>;

#[derive(Clone, Debug)]
struct Node<B> {
    edge: Edge<B>,
    children: [Tree<B>; 2],
}

impl<B: Bits> Tree<B> {
    /// Adds the prefix of `rules` more rules.
    fn insert(&mut self, bits: u128, len: u32, rules: u32) {
        match self {
            Tree::Empty => *self = Tree::Leaf(Edge::new(bits, len, rules)),
            Tree::Leaf(edge) if edge.is(bits, len) => edge.add_rules(rules),
            Tree::Leaf(edge) => {
                let edges: Edges<B> = smallvec![*edge, Edge::new(bits, len, rules)];
                *self = Tree::Few(Arc::new(edges));
            }
            Tree::Few(edges) => {
                let edges = Arc::make_mut(edges);
                if let Some(edge) = edges.iter_mut().find(|edge| edge.is(bits, len)) {
                    edge.add_rules(rules);
                    return;
                }
                edges.push(Edge::new(bits, len, rules));
                if edges.len() > FEW {
                    *self = Tree::Node(Arc::new(Node::of(edges)));
                }
            }
            Tree::Node(node) => Arc::make_mut(node).insert(bits, len, rules),
        }
    }

    /// Takes one rule's prefix out; false when it is not there.
    fn remove(&mut self, bits: u128, len: u32) -> bool {
        match self {
            Tree::Empty => false,
            Tree::Leaf(edge) => {
                let is_there = edge.is(bits, len);
                if is_there {
                    edge.remove_rule();
                    if edge.rules() == 0 {
                        *self = Tree::Empty;
                    }
                }
                is_there
            }
            Tree::Few(edges) => {
                let at = edges.iter().position(|edge| edge.is(bits, len));
                let Some(at) = at else { return false };
                let edges = Arc::make_mut(edges);
                if let Some(edge) = edges.get_mut(at) {
                    edge.remove_rule();
                }
                edges.retain(|edge| edge.rules() > 0);
                if let [only] = edges[..] {
                    *self = Tree::Leaf(only);
                }
                true
            }
            Tree::Node(node) => {
                let node = Arc::make_mut(node);
                let is_there = node.remove(bits, len);
                if let Some(simpler) = node.simpler() {
                    *self = simpler;
                }
                is_there
            }
        }
    }

    fn walk(&self, value: u128) -> Walk {
        let mut walk = Walk::default();
        let (mut tree, mut left, mut depth) = (self, value, 0u32);
        loop {
            let node = match tree {
                Tree::Empty => return walk,
                Tree::Leaf(edge) => {
                    walk.along(edge, left, depth);
                    return walk;
                }
                Tree::Few(edges) => {
                    for edge in edges.iter() {
                        walk.along(edge, left, depth);
                    }
                    return walk;
                }
                Tree::Node(node) => node,
            };
            if !walk.along(&node.edge, left, depth) {
                return walk;
            }
            depth += node.edge.len();
            left = shl(left, node.edge.len());
            tree = &node.children[first(left)];
            if matches!(tree, Tree::Empty) {
                walk.decisive = depth + 1; // the bit that chose the side with nothing on it
            }
        }
    }
}

impl<B: Bits> Node<B> {
    /// One of all that these have in common, and the rest below it.
    fn of(edges: &[Edge<B>]) -> Node<B> {
        let bits = edges.first().map_or(0, Edge::bits);
        let len = edges.iter().map(|edge| edge.common(bits, 128)).min().unwrap_or(0);
        let edge = Edge::new(bits, len, 0);
        let mut node = Node { edge, children: [Tree::Empty, Tree::Empty] };
        for edge in edges {
            node.insert(edge.bits(), edge.len(), edge.rules());
        }
        node
    }

    fn insert(&mut self, bits: u128, len: u32, rules: u32) {
        let common = self.edge.common(bits, len);
        if common < self.edge.len() {
            // Split: what is left of this node becomes a child.
            let (old, len) = (self.edge.bits(), self.edge.len());
            let edge = Edge::new(shl(old, common), len - common, self.edge.rules());
            let rest = match std::mem::take(&mut self.children) {
                [Tree::Empty, Tree::Empty] => Tree::Leaf(edge),
                children => Tree::Node(Arc::new(Node { edge, children })),
            };
            self.children[first(edge.bits())] = rest; // 0 or 1
            self.edge = Edge::new(old, common, 0);
        }
        if len == common {
            self.edge.add_rules(rules);
            return;
        }
        let (bits, len) = (shl(bits, common), len - common);
        self.children[first(bits)].insert(bits, len, rules);
    }

    fn remove(&mut self, bits: u128, len: u32) -> bool {
        if self.edge.common(bits, len) < self.edge.len() {
            return false; // was never inserted
        }
        if len == self.edge.len() {
            let is_there = self.edge.rules() > 0;
            self.edge.remove_rule();
            return is_there;
        }
        let (bits, len) = (shl(bits, self.edge.len()), len - self.edge.len());
        self.children[first(bits)].remove(bits, len)
    }

    /// The same without this node, when it is of no use any more. Leaves nothing of use here then.
    fn simpler(&mut self) -> Option<Tree<B>> {
        let has_rules = self.edge.rules() > 0;
        match &mut self.children {
            [Tree::Empty, Tree::Empty] if has_rules => Some(Tree::Leaf(self.edge)),
            [Tree::Empty, Tree::Empty] => Some(Tree::Empty),
            [only, Tree::Empty] | [Tree::Empty, only] if !has_rules => {
                let joined = |edge: &Edge<B>| {
                    let bits = edge.bits().checked_shr(self.edge.len()).unwrap_or(0);
                    let len = self.edge.len() + edge.len();
                    Edge::new(self.edge.bits() | bits, len, edge.rules())
                };
                Some(match std::mem::take(only) {
                    Tree::Empty => Tree::Empty,
                    Tree::Leaf(edge) => Tree::Leaf(joined(&edge)),
                    Tree::Few(edges) => Tree::Few(Arc::new(edges.iter().map(joined).collect())),
                    Tree::Node(node) => {
                        let node = Arc::unwrap_or_clone(node);
                        Tree::Node(Arc::new(Node { edge: joined(&node.edge), ..node }))
                    }
                })
            }
            _ => None,
        }
    }
}

/// Result of one walk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walk {
    /// Bit n: a prefix of n bits holds (n is 1 to 127).
    lengths: u128,
    /// A prefix of 128 bits holds.
    full: bool,
    /// Leading bits of the field that decide this.
    pub decisive: u32,
}

impl Walk {
    /// True when some rule has the packet's first `len` bits as its prefix.
    pub fn holds(&self, len: u32) -> bool {
        if len >= 128 { self.full } else { self.lengths >> len & 1 == 1 }
    }

    /// Follows an edge that begins after `depth` bits, with the remaining bits `left`. Returns
    /// false when the edge has other bits.
    fn along<B: Bits>(&mut self, edge: &Edge<B>, left: u128, depth: u32) -> bool {
        let same = (edge.bits() ^ left).leading_zeros();
        if same < edge.len() {
            self.decisive = self.decisive.max(depth + same + 1); // the bit that differs
            return false;
        }
        let depth = depth + edge.len();
        self.decisive = self.decisive.max(depth);
        if edge.rules() > 0 {
            if depth >= 128 {
                self.full = true;
            } else {
                self.lengths |= 1 << depth;
            }
        }
        true
    }
}

/// The prefixes of one field. Prefixes that are added one after the other often share most of their
/// path, and the path is copied when another clone has the trie, too. So the last few are kept
/// aside, and are added to the trie together.
#[derive(Clone, Debug, Default)]
struct Prefixes<B> {
    tree: Tree<B>,
    /// At most [`FEW`].
    recent: Tree<B>,
}

impl<B: Bits> Prefixes<B> {
    fn insert(&mut self, bits: u128, len: u32) {
        if let Tree::Few(edges) = &self.recent
            && edges.len() == FEW
        {
            for edge in edges.iter() {
                self.tree.insert(edge.bits(), edge.len(), edge.rules());
            }
            self.recent = Tree::Empty;
        }
        self.recent.insert(bits, len, 1);
    }

    /// Takes one rule's prefix out, if it is there.
    fn remove(&mut self, bits: u128, len: u32) {
        if !self.recent.remove(bits, len) {
            self.tree.remove(bits, len);
        }
    }

    fn walk(&self, value: u128) -> Walk {
        let (tree, recent) = (self.tree.walk(value), self.recent.walk(value));
        Walk {
            lengths: tree.lengths | recent.lengths,
            full: tree.full || recent.full,
            decisive: tree.decisive.max(recent.decisive),
        }
    }
}

/// The trie of one field.
#[derive(Clone, Debug)]
enum Trie {
    /// Of a field of up to 32 bits.
    Short(Prefixes<u32>),
    /// Of a longer one.
    Long(Prefixes<[u64; 2]>),
}

impl Trie {
    fn new(field: Field) -> Trie {
        if width(field) <= u32::BITS {
            Trie::Short(Prefixes::default())
        } else {
            Trie::Long(Prefixes::default())
        }
    }

    fn insert(&mut self, bits: u128, len: u32) {
        match self {
            Trie::Short(prefixes) => prefixes.insert(bits, len),
            Trie::Long(prefixes) => prefixes.insert(bits, len),
        }
    }

    fn remove(&mut self, bits: u128, len: u32) {
        match self {
            Trie::Short(prefixes) => prefixes.remove(bits, len),
            Trie::Long(prefixes) => prefixes.remove(bits, len),
        }
    }

    fn walk(&self, value: u128) -> Walk {
        match self {
            Trie::Short(prefixes) => prefixes.walk(value),
            Trie::Long(prefixes) => prefixes.walk(value),
        }
    }
}

/// Width of a field in bits.
fn width(field: Field) -> u32 {
    match field {
        Field::Ipv6Src | Field::Ipv6Dst => 128,
        Field::Ipv4Src | Field::Ipv4Dst => 32,
        _ => 16,
    }
}

/// The length of the CIDR prefix that `mask` has in `field`; `None` when it has none (no bit
/// set, or not a prefix).
pub(crate) fn prefix_len(field: Field, mask: &Mask) -> Option<u32> {
    let bits = field.load(&mask.0) << (128 - width(field));
    let len = bits.leading_ones();
    (bits != 0 && bits == top(u128::MAX, len)).then_some(len)
}

/// Tries by their place in [`FIELDS`]; its holder fills only a part of them.
#[derive(Clone, Debug)]
pub(crate) struct Tries([Trie; FIELDS.len()]);

impl Default for Tries {
    fn default() -> Self {
        Tries(FIELDS.map(Trie::new))
    }
}

impl Tries {
    fn act(&mut self, which: usize, key: &Key, act: impl FnOnce(&mut Trie, u128)) {
        if let (Some(trie), Some(field)) = (self.0.get_mut(which), FIELDS.get(which)) {
            act(trie, field.load(key) << (128 - width(*field)));
        }
    }

    /// Adds to the trie number `which` a rule's prefix of `len` bits, which `key` has.
    pub fn insert(&mut self, which: usize, len: u32, key: &Key) {
        self.act(which, key, |trie, bits| trie.insert(bits, len));
    }

    /// Removes a prefix that [`Tries::insert`] has added.
    pub fn remove(&mut self, which: usize, len: u32, key: &Key) {
        self.act(which, key, |trie, bits| trie.remove(bits, len));
    }

    /// Walks the trie number `which` with `key`.
    pub fn walk(&self, which: usize, key: &Key) -> Option<Walk> {
        let (trie, field) = (self.0.get(which)?, *FIELDS.get(which)?);
        Some(trie.walk(field.load(key) << (128 - width(field))))
    }
}

/// The walks made in one lookup; each trie is walked at most once.
#[derive(Default)]
pub(crate) struct Walks([Option<Walk>; FIELDS.len()]);

impl Walks {
    /// The walk of the trie number `which` for `key`.
    pub fn walk(&mut self, which: usize, tries: &Tries, key: &Key) -> Option<Walk> {
        let slot = self.0.get_mut(which)?;
        if slot.is_none() {
            *slot = tries.walk(which, key);
        }
        *slot
    }
}

/// Makes the first `n` bits of the field number `which` exact.
pub(crate) fn unwildcard_prefix(which: usize, n: u32, wc: &mut Mask) {
    if let Some(&field) = FIELDS.get(which) {
        let w = width(field);
        let n = n.min(w);
        let bits = top(u128::MAX, n) >> (128 - w);
        let old = field.load(&wc.0);
        field.store(&mut wc.0, old | bits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v4(a: u8, b: u8, c: u8, d: u8) -> u128 {
        u128::from(u32::from_be_bytes([a, b, c, d])) << 96
    }

    fn is_empty<B>(prefixes: &Prefixes<B>) -> bool {
        matches!((&prefixes.tree, &prefixes.recent), (Tree::Empty, Tree::Empty))
    }

    #[test]
    fn a_walk_looks_at_no_more_bits_than_it_needs() {
        let mut t = Prefixes::<u32>::default();
        t.insert(v4(10, 0, 0, 0), 8);
        assert_eq!(t.walk(v4(10, 1, 2, 3)).decisive, 8);
        assert!(t.walk(v4(10, 1, 2, 3)).holds(8));
        // 192 = 0b11000000 differs from 10 = 0b00001010 in the first bit.
        assert_eq!(t.walk(v4(192, 0, 0, 1)).decisive, 1);
        t.insert(v4(10, 1, 0, 0), 16);
        let w = t.walk(v4(10, 1, 9, 9));
        assert!(w.holds(8) && w.holds(16) && !w.holds(24));
        assert_eq!(w.decisive, 16);
        assert_eq!(t.walk(v4(10, 128, 0, 0)).decisive, 9);
    }

    #[test]
    fn removal_undoes_insertion() {
        let prefixes = [
            (v4(10, 0, 0, 0), 8),
            (v4(10, 1, 0, 0), 16),
            (v4(10, 1, 2, 3), 32),
            (v4(11, 0, 0, 0), 8),
        ];
        let mut t = Prefixes::<u32>::default();
        for (b, l) in prefixes {
            t.insert(b, l);
        }
        t.insert(v4(10, 1, 0, 0), 16);
        t.remove(v4(10, 1, 0, 0), 16);
        assert!(t.walk(v4(10, 1, 0, 0)).holds(16), "one of two equal prefixes is left");
        for (b, l) in prefixes {
            assert!(t.walk(b).holds(l));
            t.remove(b, l);
            assert!(!t.walk(b).holds(l));
        }
        assert!(is_empty(&t));
        assert_eq!(t.walk(v4(10, 0, 0, 0)).decisive, 0);
    }

    /// Returns the result of a walk, computed from the list of all prefixes.
    fn plain(prefixes: &[(u128, u32)], value: u128) -> (Vec<u32>, u32) {
        let common = |bits: u128| (bits ^ value).leading_zeros();
        let held = (0..=128).filter(|l| prefixes.iter().any(|(b, n)| n == l && common(*b) >= *l));
        let decisive = prefixes.iter().map(|(b, n)| (common(*b) + 1).min(*n)).max();
        (held.filter(|l| *l > 0).collect(), decisive.unwrap_or(0))
    }

    fn check<B: Bits + std::fmt::Debug + Default>(
        width: u32,
        steps: &[(u128, u32, bool)],
        values: &[u128],
    ) {
        let mut tree = Prefixes::<B>::default();
        let mut prefixes: Vec<(u128, u32)> = Vec::new();
        let mut kept = Vec::new();
        for (bits, len, add) in steps {
            let len = len % width + 1;
            let prefix = (top(*bits, len), len);
            if *add {
                tree.insert(prefix.0, len);
                prefixes.push(prefix);
            } else {
                tree.remove(prefix.0, len);
                let at = prefixes.iter().position(|p| *p == prefix);
                at.map(|at| prefixes.remove(at));
            }
            kept.push((tree.clone(), prefixes.clone()));
        }
        for (tree, prefixes) in &kept {
            for value in values {
                let walk = tree.walk(top(*value, width));
                let (held, decisive) = plain(prefixes, top(*value, width));
                let lengths: Vec<u32> = (1..=128).filter(|l| walk.holds(*l)).collect();
                assert_eq!((lengths, walk.decisive), (held, decisive), "{prefixes:x?} {value:x}");
            }
        }
        for (bits, len) in prefixes {
            tree.remove(bits, len);
        }
        assert!(is_empty(&tree), "{tree:?}");
    }

    /// Values that have long prefixes in common.
    fn value() -> impl Strategy<Value = u128> {
        prop_oneof![
            (0u128..8, 0u32..128).prop_map(|(n, by)| n << by),
            (0u128..8, 92u32..128).prop_map(|(n, by)| n << by),
            any::<u128>(),
        ]
    }

    proptest! {
        #[test]
        fn a_walk_finds_the_same_as_a_search_of_all_prefixes(
            steps in prop::collection::vec((value(), prop_oneof![0u32..128, 28u32..32], prop::bool::weighted(0.7)), 0..40),
            values in prop::collection::vec(value(), 8),
        ) {
            let values: Vec<u128> = values.into_iter().chain(steps.iter().map(|s| s.0)).collect();
            check::<u32>(32, &steps, &values);
            check::<[u64; 2]>(128, &steps, &values);
        }
    }

    #[test]
    fn a_prefix_of_more_rules_than_can_be_counted_stays() {
        let mut edge = Edge::<u32>::new(v4(10, 0, 0, 0), 8, MANY - 1);
        edge.add_rules(1);
        edge.add_rules(1);
        assert_eq!((edge.rules(), edge.len()), (MANY, 8));
        edge.remove_rule();
        assert_eq!((edge.rules(), edge.len(), edge.bits()), (MANY, 8, v4(10, 0, 0, 0)));
    }
}

//! Tries of the prefixes that rules have, one for each field with prefixes. Those of addresses are
//! the classifier's: one walk serves all subtables. Those of ports are each subtable's own: the
//! ports of other rules (of another protocol, perhaps) would only cost bits.
//!
//! A walk down a trie with a packet's field gives the lengths of the prefixes that hold for
//! the packet, and the number of leading bits that decide this: any other packet with the
//! same leading bits takes the same steps and gets the same lengths.

use crate::mini::MiniMatch;
use flow::{Field, Key, Mask};
use std::ops::Range;
use std::sync::Arc;

/// Fields that get a trie. Every field lies in one stage of the key; a port's field stands
/// for all protocols (it is one place in the key).
pub(crate) const FIELDS: [Field; 6] =
    [Field::Ipv4Src, Field::Ipv4Dst, Field::Ipv6Src, Field::Ipv6Dst, Field::TcpSrc, Field::TcpDst];
/// Which of [`FIELDS`] are addresses.
pub(crate) const ADDRESSES: Range<usize> = 0..4;
/// Which are ports.
pub(crate) const PORTS: Range<usize> = ADDRESSES.end..FIELDS.len();

/// A node: some bits, then a branch. `bits` are left-aligned in 128; a child's bits begin
/// with the bit that chose it.
#[derive(Clone, Debug)]
struct Node {
    bits: u128,
    len: u32,
    /// Rules whose prefix ends here.
    rules: u32,
    children: [Option<Arc<Node>>; 2],
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

impl Node {
    fn leaf(bits: u128, len: u32) -> Node {
        Node { bits: top(bits, len), len, rules: 1, children: [None, None] }
    }

    fn insert(&mut self, bits: u128, len: u32) {
        let common = (self.bits ^ bits).leading_zeros().min(self.len).min(len);
        if common < self.len {
            // Split: what is left of this node becomes a child.
            let rest = Node {
                bits: shl(self.bits, common),
                len: self.len - common,
                rules: self.rules,
                children: std::mem::take(&mut self.children),
            };
            self.bits = top(self.bits, common);
            self.len = common;
            self.rules = 0;
            let side = first(rest.bits);
            self.children[side] = Some(Arc::new(rest)); // side is 0 or 1
        }
        if len == common {
            self.rules += 1;
            return;
        }
        let (bits, len) = (shl(bits, common), len - common);
        match &mut self.children[first(bits)] {
            Some(child) => Arc::make_mut(child).insert(bits, len),
            none => *none = Some(Arc::new(Node::leaf(bits, len))),
        }
    }

    /// Takes one rule's prefix out; true when this node is then of no use.
    fn remove(&mut self, bits: u128, len: u32) -> bool {
        if len < self.len || (self.bits ^ bits).leading_zeros() < self.len {
            return false; // was never inserted
        }
        if len == self.len {
            self.rules = self.rules.saturating_sub(1);
        } else {
            let (bits, len) = (shl(bits, self.len), len - self.len);
            let slot = &mut self.children[first(bits)];
            if slot.as_mut().is_some_and(|child| Arc::make_mut(child).remove(bits, len)) {
                *slot = None;
            }
        }
        if self.rules > 0 {
            return false;
        }
        match &mut self.children {
            [None, None] => true,
            [Some(only), None] | [None, Some(only)] => {
                // A node with one child and no rule: join the two.
                let child = Arc::unwrap_or_clone(Arc::clone(only));
                self.bits |= child.bits.checked_shr(self.len).unwrap_or(0);
                self.len += child.len;
                self.rules = child.rules;
                self.children = child.children;
                false
            }
            _ => false,
        }
    }
}

/// What one walk found.
#[derive(Clone, Copy, Debug)]
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
}

/// The trie of one field.
#[derive(Clone, Debug, Default)]
struct Trie {
    root: Option<Arc<Node>>,
}

impl Trie {
    fn insert(&mut self, bits: u128, len: u32) {
        match &mut self.root {
            Some(root) => Arc::make_mut(root).insert(bits, len),
            none => *none = Some(Arc::new(Node::leaf(bits, len))),
        }
    }

    fn remove(&mut self, bits: u128, len: u32) {
        if self.root.as_mut().is_some_and(|root| Arc::make_mut(root).remove(bits, len)) {
            self.root = None;
        }
    }

    fn walk(&self, value: u128) -> Walk {
        let mut walk = Walk { lengths: 0, full: false, decisive: 0 };
        let (mut node, mut left, mut depth) = (self.root.as_deref(), value, 0u32);
        while let Some(n) = node {
            let same = (n.bits ^ left).leading_zeros();
            if same < n.len {
                walk.decisive = depth + same + 1; // the bit that differs
                return walk;
            }
            depth += n.len;
            walk.decisive = depth;
            left = shl(left, n.len);
            if n.rules > 0 {
                if depth >= 128 {
                    walk.full = true;
                } else {
                    walk.lengths |= 1 << depth;
                }
            }
            node = n.children[first(left)].as_deref();
            if node.is_none() && n.children.iter().any(Option::is_some) {
                walk.decisive = depth + 1; // the bit that chose the side with nothing on it
            }
        }
        walk
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
#[derive(Clone, Debug, Default)]
pub(crate) struct Tries([Trie; FIELDS.len()]);

impl Tries {
    fn each(
        &mut self,
        part: Range<usize>,
        matching: &MiniMatch,
        mut act: impl FnMut(&mut Trie, u128, u32),
    ) {
        let matching = matching.expand();
        let tries = self.0.iter_mut().zip(FIELDS).skip(part.start).take(part.len());
        for (trie, field) in tries {
            if let Some(len) = prefix_len(field, matching.mask()) {
                act(trie, field.load(matching.key()) << (128 - width(field)), len);
            }
        }
    }

    pub fn insert(&mut self, part: Range<usize>, matching: &MiniMatch) {
        self.each(part, matching, Trie::insert);
    }

    pub fn remove(&mut self, part: Range<usize>, matching: &MiniMatch) {
        self.each(part, matching, Trie::remove);
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

    fn v4(a: u8, b: u8, c: u8, d: u8) -> u128 {
        u128::from(u32::from_be_bytes([a, b, c, d])) << 96
    }

    #[test]
    fn a_walk_looks_at_no_more_bits_than_it_needs() {
        let mut t = Trie::default();
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
        let mut t = Trie::default();
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
        assert!(t.root.is_none());
        assert_eq!(t.walk(v4(10, 0, 0, 0)).decisive, 0);
    }
}

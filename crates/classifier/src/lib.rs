// SPDX-License-Identifier: Apache-2.0
//! Tuple space search with priorities, and the un-wildcarding that makes megaflows.
//!
//! A [`Classifier`] holds rules that may overlap; [`Classifier::lookup`] gives the one of
//! highest priority that matches a key, and sets in a mask every bit of the key that the
//! answer depends on. That mask is what a megaflow matches, so: **a set bit too many costs
//! speed, a set bit too few is a security hole.** Every shortcut below has its argument.
//!
//! # How it works
//! Rules with equal masks share a *subtable*, a tree by hashes of the masked words of the
//! key. Subtables are visited by falling highest priority, until no remaining one can beat the rule
//! that was found. Two devices keep masks narrow:
//!
//! - *Stages.* A subtable's words are split into metadata, L2, L3 and L4. Its tree branches by a
//!   hash of the words up to the end of the first stage, then of the second, and so on. So for each
//!   stage the tree shows whether some rule has a packet's words up to the stage's end. When none
//!   has, no rule of the subtable can match, and only the bits up to that stage were read.
//! - *Prefix tries.* For each address field, one trie holds all CIDR prefixes that any rule has;
//!   for each port field, one trie in each subtable holds the prefixes of its rules. One walk gives
//!   the prefix lengths that can match at all, and the number of leading bits of the field that
//!   decide this. A subtable whose prefix length cannot match is skipped at the price of those
//!   bits, or of as many as its prefixes have. Two packets with the same leading bits take the same
//!   walk, hence get the same answer.
//!
//! A trie is walked only after the stages before its field have matched. The rule's prerequisites
//! (Ethernet type, IP protocol) are then known to hold for the packet, so no bit of a header that
//! the packet does not have is ever read. IP protocol lies in the L3 stage, ports in L4.
//!
//! All this is about subtables that have no rule for the packet. The result of a subtable that has
//! a rule depends on its whole mask, and one lookup finds the rule. The reasons why the other
//! subtables miss are computed once the rule is found, and not for a subtable whose mask lies
//! within the bits that are exact by then.
//!
//! # Enemies
//! Rules may be made by packets (`learn`), and keys always are. So hashes begin with a random seed
//! of the classifier's own: a sender without the seed cannot fill one bucket. Hashes of masks have
//! no seed, as packets do not choose masks.
//!
//! # Snapshots
//! A clone is O(1) and shares everything: the tables are persistent structures. The control
//! thread changes its copy while packet threads read theirs.
//!
//! # Known limits
//! A packet that reaches the last stage of a subtable and fails there un-wildcards the whole
//! mask of the subtable. Non-CIDR masks get no help from tries.
#![forbid(unsafe_code)]

mod conjunction;
mod mini;
mod priorities;
mod subtable;
mod tree;
mod trie;

pub use conjunction::Conjunction;
pub use mini::{MiniMask, MiniMatch};

use flow::{Key, Mask, Match};
use imbl::Vector;
use smallvec::SmallVec;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use subtable::Subtable;
use trie::{Tries, Walks};

/// Number of rules from which CPU caches do not hold the rules for long, next to all else that a
/// packet needs.
const MANY_RULES: usize = 4096;
/// Number of subtables, of those that are searched first, that are prefetched before lookups.
const FORESEEN: usize = 4;

/// A rule of a classifier.
pub trait Entry {
    /// Returns the rule's match.
    fn matching(&self) -> &MiniMatch;
    /// Returns the rule's priority; the highest wins. Rules with equal match and priority have the
    /// same place in the classifier, so the later one replaces the earlier one.
    fn priority(&self) -> u32;
    /// Returns true when the rule is part of conjunctions: it matches only with their other
    /// clauses.
    fn is_conjunctive(&self) -> bool;
    /// Returns the rule's conjunctions; none for an ordinary rule.
    fn conjunctions(&self) -> impl Iterator<Item = Conjunction>;
}

/// A subtable's place in the order of subtables. The hash finds a subtable by its mask without a
/// read of the other subtables.
#[derive(Debug)]
struct Slot<R> {
    /// Hash of the subtable's mask.
    hash: u64,
    subtable: Arc<Subtable<R>>,
}

impl<R> Clone for Slot<R> {
    fn clone(&self) -> Self {
        Slot { hash: self.hash, subtable: Arc::clone(&self.subtable) }
    }
}

#[derive(Debug)]
struct Inner<R> {
    /// By falling [`Subtable::max_priority`].
    subtables: Vector<Slot<R>>,
    tries: Tries,
    len: usize,
    /// Seed of the hashes of rules and keys. Only this process has it, so no sender can choose
    /// packets, or rules that packets make, whose hashes are equal.
    seed: u64,
}

impl<R> Clone for Inner<R> {
    fn clone(&self) -> Self {
        Inner {
            subtables: self.subtables.clone(),
            tries: self.tries.clone(),
            len: self.len,
            seed: self.seed,
        }
    }
}

/// A set of rules, looked up by key. A clone is O(1) and shares all structure; a change to
/// one clone is not seen by another. Reads from any number of threads.
#[derive(Debug)]
pub struct Classifier<R>(Arc<Inner<R>>);

impl<R> Clone for Classifier<R> {
    fn clone(&self) -> Self {
        Classifier(Arc::clone(&self.0))
    }
}

impl<R> Default for Classifier<R> {
    fn default() -> Self {
        // The standard library's tables are seeded by the kernel's generator.
        let seed = RandomState::new().hash_one(0);
        let (subtables, tries) = (Vector::new(), Tries::default());
        Classifier(Arc::new(Inner { subtables, tries, len: 0, seed }))
    }
}

impl<R: Entry> Classifier<R> {
    /// An empty classifier.
    pub fn new() -> Self {
        Self::default()
    }

    /// The best match for `key`. Every bit that the answer depends on is set in `wc`; bits
    /// that were set stay. When a conjunctive match wins, `key.conj_id` is left at its id.
    pub fn lookup(&self, key: &mut Key, wc: &mut Mask) -> Option<&Arc<R>> {
        self.lookup_with(key, wc, |_| {})
    }

    /// Does the same as [`Classifier::lookup`]. When a conjunctive match wins, `member` gets each
    /// rule that matched as a part of it, in no particular order.
    pub fn lookup_with(
        &self,
        key: &mut Key,
        wc: &mut Mask,
        member: impl FnMut(&Arc<R>),
    ) -> Option<&Arc<R>> {
        let mut soft = Vec::new();
        let hard = self.search(key, wc, Some(&mut soft));
        let floor = hard.map(|r| r.priority());
        soft.retain(|r| floor.is_none_or(|f| r.priority() > f));
        if soft.is_empty() {
            return hard;
        }
        let before = key.conj_id;
        for (priority, id) in conjunction::satisfied(&soft) {
            key.conj_id = id.into();
            if let Some(rule) = self.search(key, wc, None) {
                let is_member =
                    |r: &&&Arc<R>| r.priority() == priority && r.conjunctions().any(|c| c.id == id);
                soft.iter().filter(is_member).copied().for_each(member);
                return Some(rule);
            }
        }
        key.conj_id = before;
        hard
    }

    /// Best rule without conjunctions; rules with conjunctions that match and rank above all
    /// ordinary rules seen so far are put into `soft`.
    fn search<'a>(
        &'a self,
        key: &Key,
        wc: &mut Mask,
        mut soft: Option<&mut Vec<&'a Arc<R>>>,
    ) -> Option<&'a Arc<R>> {
        let mut best: Option<&Arc<R>> = None;
        let mut missed: SmallVec<[&Subtable<R>; 16]> = SmallVec::new();
        for subtable in self.subtables() {
            let floor = best.map(|r| r.priority());
            if floor.is_some_and(|f| subtable.max_priority() <= f) {
                break;
            }
            if subtable.implies_ethernet() {
                wc.0.packet_type.set(u32::MAX);
                if key.packet_type.get() != 0 {
                    continue;
                }
            }
            let Some(rules) = subtable.find_for(key) else {
                missed.push(subtable);
                continue;
            };
            subtable.unwildcard(wc);
            for rule in rules {
                if floor.is_some_and(|f| rule.priority() <= f) {
                    break; // chains fall in priority
                }
                if !rule.is_conjunctive() {
                    best = Some(rule);
                    break;
                }
                if let Some(soft) = soft.as_deref_mut() {
                    soft.push(rule);
                }
            }
        }
        // After the search, so that bits that are exact already cost no further search.
        let mut walks = Walks::default();
        for subtable in missed {
            subtable.unwildcard_miss(key, wc, &self.0.tries, &mut walks);
        }
        best
    }

    /// Prefetches the memory that lookups of `keys` will read, side by side. Where there are many
    /// rules, the rules that packets find are in no cache, and a lookup waits for memory at each
    /// step. To be called before these lookups; where rules are few, or the subtables many, it does
    /// nothing or a part.
    pub fn prefetch(&self, keys: &[&Key]) {
        if self.len() >= MANY_RULES {
            let subtables = self.subtables().take(FORESEEN);
            std::hint::black_box(subtables.map(|s| s.prefetch(keys)).fold(0, u64::wrapping_add));
        }
    }

    fn subtables(&self) -> impl Iterator<Item = &Subtable<R>> {
        self.0.subtables.iter().map(|slot| &*slot.subtable)
    }

    fn with_mask(&self, mask: &Arc<MiniMask>) -> Option<&Subtable<R>> {
        let at = self.0.position(mask, mask.hash())?;
        self.0.subtables.get(at).map(|slot| &*slot.subtable)
    }

    /// Adds `rule`; returns the rule that had the same match and priority.
    pub fn insert(&mut self, rule: Arc<R>) -> Option<Arc<R>> {
        let inner = Arc::make_mut(&mut self.0);
        let mask = rule.matching().shared_mask();
        let hash = mask.hash();
        let at = inner.position(mask, hash).unwrap_or_else(|| {
            let subtable = Arc::new(Subtable::new(mask, inner.seed));
            inner.subtables.push_back(Slot { hash, subtable });
            inner.subtables.len() - 1
        });
        let key = rule.matching().key();
        let slot = inner.subtables.get_mut(at)?; // `at` is in bounds
        let subtable = Arc::make_mut(&mut slot.subtable);
        let replaced = subtable.insert(rule, &key);
        if replaced.is_none() {
            inner.len += 1;
            for (which, len) in subtable.prefixes(trie::ADDRESSES) {
                inner.tries.insert(which, len, &key);
            }
        }
        inner.restore_order(at);
        replaced
    }

    /// Removes and returns the rule with exactly this match and priority.
    pub fn remove(&mut self, matching: &MiniMatch, priority: u32) -> Option<Arc<R>> {
        let mask = matching.shared_mask();
        let at = self.0.position(mask, mask.hash())?;
        self.0.subtables.get(at)?.subtable.find(matching, priority)?;
        let inner = Arc::make_mut(&mut self.0);
        let key = matching.key();
        let subtable = Arc::make_mut(&mut inner.subtables.get_mut(at)?.subtable);
        let removed = subtable.remove(matching, &key, priority)?;
        for (which, len) in subtable.prefixes(trie::ADDRESSES) {
            inner.tries.remove(which, len, &key);
        }
        inner.len -= 1;
        if subtable.is_empty() {
            inner.subtables.remove(at);
        } else {
            inner.restore_order(at);
        }
        Some(removed)
    }

    /// Compresses `matching`, with the mask shared with the rules that are here already: a
    /// rule made of it takes less memory, and is found faster.
    pub fn compress(&self, matching: &Match) -> MiniMatch {
        let hash = MiniMask::hash_of(matching.mask());
        let mut alike = self.0.subtables.iter().filter(|slot| slot.hash == hash);
        match alike.find(|slot| slot.subtable.mask().is(matching.mask())) {
            Some(slot) => MiniMatch::under(Arc::clone(slot.subtable.mask()), matching),
            None => MiniMatch::new(matching),
        }
    }

    /// Returns `matching` with its mask shared as [`Classifier::compress`] does.
    pub fn share_mask(&self, matching: MiniMatch) -> MiniMatch {
        let mask = matching.shared_mask();
        match self.with_mask(mask) {
            Some(subtable) => matching.with_equal_mask(Arc::clone(subtable.mask())),
            None => matching,
        }
    }

    /// Returns the rule with exactly this match and priority.
    pub fn find(&self, matching: &MiniMatch, priority: u32) -> Option<&Arc<R>> {
        self.with_mask(matching.shared_mask())?.find(matching, priority)
    }

    /// All rules, in no order, and in another one in each run of the program.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<R>> {
        self.subtables().flat_map(|s| s.iter())
    }

    /// All rules whose match lies within `matching` (OpenFlow's loose matching), in no order.
    pub fn iter_within<'a>(&'a self, matching: &'a Match) -> impl Iterator<Item = &'a Arc<R>> {
        let any = matching.mask().is_wildcard();
        self.subtables().flat_map(move |s| {
            let wanted = matching.beyond(&s.mask().expand());
            let covers = s.mask().covers(&MiniMask::new(wanted.mask()));
            let rules = covers.then(|| s.iter()).into_iter().flatten();
            rules.filter(move |r| any || r.matching().has_all_of(&wanted))
        })
    }

    /// True when a rule of the same priority, other than one with the same match, has packets
    /// in common with `matching` (OFPFF_CHECK_OVERLAP).
    pub fn overlaps(&self, matching: &Match, priority: u32) -> bool {
        self.subtables().any(|s| {
            s.has_priority(priority)
                && s.iter().any(|r| {
                    r.priority() == priority && {
                        let other = r.matching().expand();
                        other != *matching && other.overlaps(matching)
                    }
                })
        })
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// True when there is no rule.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Number of subtables (distinct masks).
    pub fn masks(&self) -> usize {
        self.0.subtables.len()
    }
}

impl<R: Entry> Inner<R> {
    /// Returns the place of the subtable with `mask`, whose hash is `hash`.
    fn position(&self, mask: &Arc<MiniMask>, hash: u64) -> Option<usize> {
        // Masks that are one and the same are not read.
        self.subtables.iter().position(|s| s.hash == hash && s.subtable.mask() == mask)
    }

    /// Moves the subtable at `at`, whose highest priority may have changed, to its place.
    fn restore_order(&mut self, at: usize) {
        let p = |s: &Vector<Slot<R>>, i: usize| s.get(i).map(|s| s.subtable.max_priority());
        let mut at = at;
        while at > 0 && p(&self.subtables, at - 1) < p(&self.subtables, at) {
            self.subtables.swap(at - 1, at);
            at -= 1;
        }
        while at + 1 < self.subtables.len() && p(&self.subtables, at + 1) > p(&self.subtables, at) {
            self.subtables.swap(at, at + 1);
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: Apache-2.0
//! Rules that share a mask.
//!
//! A rule's place is its *rank*. The rank holds, for each stage of the mask, a hash of the rule's
//! words up to the stage's end, one after the other, and then the rule's priority, inverted. So
//! rules that begin with the same words are side by side, and rules with one match are in the order
//! of falling priority. One tree shows which rules there are, and with which first words there are
//! any.

use crate::Entry;
use crate::mini::{MiniMask, MiniMatch, mix};
use crate::priorities::Priorities;
use crate::tree::{HashTree, KEYS};
use crate::trie::{self, Tries, Walks};
use flow::{Key, Mask, WORDS};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

// With more, hashes and a priority are longer than a rank.
const _: () = assert!(flow::STAGE_STARTS.len() <= 4);

/// One stage of the mask.
#[derive(Debug)]
struct Stage {
    /// Tries to walk before this stage's words are read: index of the trie, and our prefix length.
    tries: SmallVec<[(usize, u32); 2]>,
    /// The words of this stage: index and mask.
    words: Box<[(usize, u64)]>,
}

#[derive(Debug)]
pub(crate) struct Subtable<R> {
    mask: Arc<MiniMask>,
    /// The rules match Ethernet packets only; see [`Mask::implies_ethernet`].
    implies_ethernet: bool,
    /// Seed of the hashes.
    seed: u64,
    stages: Arc<[Stage]>,
    /// Bits of a rank that each stage has.
    width: u32,
    /// Bits that all stages have.
    bits: u32,
    /// By rank.
    rules: HashTree<Arc<R>>,
    /// Prefixes of the rules' ports.
    ports: Tries,
    priorities: Priorities,
}

// By hand, as a derived one would ask for `R: Clone`.
impl<R> Clone for Subtable<R> {
    fn clone(&self) -> Self {
        Subtable {
            mask: Arc::clone(&self.mask),
            implies_ethernet: self.implies_ethernet,
            seed: self.seed,
            stages: Arc::clone(&self.stages),
            width: self.width,
            bits: self.bits,
            rules: self.rules.clone(),
            ports: self.ports.clone(),
            priorities: self.priorities.clone(),
        }
    }
}

impl Stage {
    fn hash(&self, from: u64, words: &[u64; WORDS]) -> u64 {
        self.words.iter().fold(from, |h, (i, m)| mix(h, words.get(*i).copied().unwrap_or(0) & m))
    }

    /// Makes this stage's bits exact.
    fn unwildcard(&self, wc: &mut Mask) {
        for (i, m) in &self.words {
            if let Some(w) = wc.words_mut().get_mut(*i) {
                *w |= m;
            }
        }
    }
}

impl<R: Entry> Subtable<R> {
    /// Returns an empty subtable, whose hashes begin with `seed`.
    pub fn new(mask: &Arc<MiniMask>, seed: u64) -> Subtable<R> {
        let full = mask.expand();
        let mut stages = Vec::new();
        let mut start = 0;
        for end in flow::STAGE_STARTS {
            let words: Box<[_]> = mask.iter().filter(|(i, _)| (start..end).contains(i)).collect();
            if !words.is_empty() {
                let tries = trie::FIELDS
                    .iter()
                    .enumerate()
                    .filter(|(_, f)| {
                        (start..end).contains(&(usize::from(f.def().position.offset) / 8))
                    })
                    .filter_map(|(which, f)| trie::prefix_len(*f, &full).map(|len| (which, len)))
                    .collect();
                stages.push(Stage { tries, words });
            }
            start = end;
        }
        // Room for a priority is left in any case.
        let width = match stages.len() {
            0..=2 => 48,
            3 => 32,
            _ => 24,
        };
        Subtable {
            mask: Arc::clone(mask),
            implies_ethernet: full.implies_ethernet(),
            seed,
            width,
            bits: stages.iter().map(|_| width).sum(),
            stages: stages.into(),
            rules: HashTree::default(),
            ports: Tries::default(),
            priorities: Priorities::default(),
        }
    }

    pub fn mask(&self) -> &Arc<MiniMask> {
        &self.mask
    }

    /// Returns true when the rules match Ethernet packets only, by their fields.
    pub fn implies_ethernet(&self) -> bool {
        self.implies_ethernet
    }

    pub fn max_priority(&self) -> u32 {
        self.priorities.max()
    }

    pub fn has_priority(&self, priority: u32) -> bool {
        self.priorities.has(priority)
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<R>> {
        self.rules.values()
    }

    /// Returns the rules that match `key`, by falling priority (they all have one and the same
    /// match); `None` when no rule has the words of `key` under the mask.
    pub fn find_for<'a>(&'a self, key: &Key) -> Option<impl Iterator<Item = &'a Arc<R>>> {
        let rules = self.rules.alike(self.rank(key), self.bits);
        (!rules.is_empty()).then(|| rules.filter(move |r| r.matching().matches(key)))
    }

    /// Prefetches the memory that [`Subtable::find_for`] will read, for all of `keys` side by side.
    /// The result means nothing.
    pub fn prefetch(&self, keys: &[&Key]) -> u64 {
        let ranks = keys.iter().map(|key| self.rank(key));
        let rules = self.rules.prefetch(ranks, self.bits);
        // Each step reads what the previous step has found for all keys.
        let matches: SmallVec<[&MiniMatch; KEYS]> = rules.iter().map(|r| r.matching()).collect();
        matches.iter().flat_map(|m| m.values().next()).fold(0, |sum, (_, v)| sum.wrapping_add(v))
    }

    /// The rank of a rule with the words of `key` and the highest priority there is.
    fn rank(&self, key: &Key) -> u128 {
        let (mut hash, mut rank, mut bits) = (self.seed, 0, 0);
        for stage in &*self.stages {
            hash = stage.hash(hash, key.words());
            bits += self.width;
            rank |= self.part(hash, bits);
        }
        rank
    }

    /// Returns a stage's part of a rank, which ends at `bits`: the bits of its hash that are kept.
    /// The matches distinguish rules that share these bits by chance. A packet that shares a rule's
    /// bits by chance may get more exact bits in its mask than it needs; with four stages, one
    /// packet of 16 million does for each rule.
    fn part(&self, hash: u64, bits: u32) -> u128 {
        u128::from(hash >> (u64::BITS - self.width)) << (u128::BITS - bits)
    }

    /// Sets in `wc` the whole mask.
    pub fn unwildcard(&self, wc: &mut Mask) {
        self.stages.iter().for_each(|stage| stage.unwildcard(wc));
    }

    /// Sets in `wc` the bits that the miss of `key` depends on: part of the mask.
    pub fn unwildcard_miss(&self, key: &Key, wc: &mut Mask, tries: &Tries, walks: &mut Walks) {
        let is_exact = |(i, m): &(usize, u64)| wc.words().get(*i).is_some_and(|w| m & !w == 0);
        if self.stages.iter().flat_map(|stage| &stage.words).all(is_exact) {
            return;
        }
        let (mut hash, mut rank, mut bits) = (self.seed, 0, 0);
        for stage in &*self.stages {
            for &(which, len) in &stage.tries {
                let walk = match trie::PORTS.contains(&which) {
                    true => self.ports.walk(which, key),
                    false => walks.walk(which, tries, key),
                };
                if let Some(walk) = walk.filter(|walk| !walk.holds(len)) {
                    // More bits than our prefixes have say nothing about these.
                    trie::unwildcard_prefix(which, walk.decisive.min(len), wc);
                    return;
                }
            }
            stage.unwildcard(wc);
            hash = stage.hash(hash, key.words());
            bits += self.width;
            rank |= self.part(hash, bits);
            if bits < self.bits && !self.rules.has(rank, bits) {
                return;
            }
        }
    }

    /// Returns the tries of `part` that have a prefix of each rule, and the prefix length in bits.
    pub fn prefixes(&self, part: Range<usize>) -> impl Iterator<Item = (usize, u32)> {
        prefixes(&self.stages, part)
    }

    /// Adds `rule`, whose values are `key`; returns the rule that had the same match and priority.
    pub fn insert(&mut self, rule: Arc<R>, key: &Key) -> Option<Arc<R>> {
        let priority = rule.priority();
        let rank = with_priority(self.rank(key), priority);
        let is_same = |old: &Arc<R>, new: &Arc<R>| old.matching() == new.matching();
        let replaced = self.rules.insert(rank, rule, is_same);
        if replaced.is_none() {
            for (which, len) in prefixes(&self.stages, trie::PORTS) {
                self.ports.insert(which, len, key);
            }
            self.priorities.add(priority);
        }
        replaced
    }

    pub fn find(&self, matching: &MiniMatch, priority: u32) -> Option<&Arc<R>> {
        let run = self.rules.run(with_priority(self.rank(&matching.key()), priority));
        run.iter().map(|held| &held.value).find(|rule| rule.matching() == matching)
    }

    /// Removes the rule with this match, whose values are `key`, and this priority.
    pub fn remove(&mut self, matching: &MiniMatch, key: &Key, priority: u32) -> Option<Arc<R>> {
        let rank = with_priority(self.rank(key), priority);
        let removed = self.rules.remove(rank, |rule| rule.matching() == matching)?;
        for (which, len) in prefixes(&self.stages, trie::PORTS) {
            self.ports.remove(which, len, key);
        }
        self.priorities.remove(priority);
        Some(removed)
    }
}

/// Returns `rank` with `priority`, inverted, in its low 32 bits: the highest priority comes first.
fn with_priority(rank: u128, priority: u32) -> u128 {
    rank | u128::from(!priority)
}

/// See [`Subtable::prefixes`].
fn prefixes(stages: &[Stage], part: Range<usize>) -> impl Iterator<Item = (usize, u32)> {
    let all = stages.iter().flat_map(|stage| &stage.tries).copied();
    all.filter(move |(which, _)| part.contains(which))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Classifier, Conjunction};
    use flow::{Field, Match};
    use std::collections::BTreeMap;

    struct Rule(MiniMatch);

    impl Entry for Rule {
        fn matching(&self) -> &MiniMatch {
            &self.0
        }
        fn priority(&self) -> u32 {
            1
        }
        fn is_conjunctive(&self) -> bool {
            false
        }
        fn conjunctions(&self) -> impl Iterator<Item = Conjunction> {
            std::iter::empty()
        }
    }

    /// Rules for IPv6 addresses whose hashes are all equal, where hashes begin with `seed`: the
    /// second half of an address makes the factor zero that the first half comes to.
    fn aimed(seed: u64, count: u64) -> Vec<Arc<Rule>> {
        let mut mask = Mask::WILDCARD;
        mask.set_exact(Field::Ipv6Dst);
        let places: Vec<usize> = MiniMask::new(&mask).iter().map(|(place, _)| place).collect();
        let [first, second] = places[..] else { panic!("an address has two words: {places:?}") };
        let rule = |number: u64| {
            let mut key = Key::ZERO;
            key.words_mut()[first] = number;
            key.words_mut()[second] = mix(seed, number) ^ 0x9e37_79b9_7f4a_7c15;
            Arc::new(Rule(MiniMatch::new(&Match::new(&key, &mask))))
        };
        (0..count).map(rule).collect()
    }

    /// How many of `rules` have the hash that most have.
    fn most_alike(subtable: &Subtable<Rule>, rules: &[Arc<Rule>]) -> usize {
        let mut counts = BTreeMap::new();
        for rule in rules {
            *counts.entry(subtable.rank(&rule.0.key())).or_insert(0) += 1;
        }
        counts.into_values().max().unwrap_or(0)
    }

    #[test]
    fn rules_that_are_aimed_at_one_bucket_miss_it() {
        const RULES: usize = 1000;
        for known in [0, 1, u64::MAX] {
            let rules = aimed(known, RULES as u64);
            let in_view = Subtable::new(rules[0].0.shared_mask(), known);
            assert_eq!(most_alike(&in_view, &rules), RULES, "the aim is good");
            let mut classifier = Classifier::new();
            for rule in &rules {
                classifier.insert(Arc::clone(rule));
            }
            let subtable = classifier.subtables().next().expect("there are rules");
            // Two of a thousand may have one hash of 48 bits by chance.
            assert!(most_alike(subtable, &rules) <= 2);
        }
    }

    #[test]
    fn rules_that_share_a_rank_are_distinct() {
        const RULES: usize = 100;
        let rules = aimed(7, 2 * RULES as u64);
        let (held, others) = rules.split_at(RULES);
        let mut subtable = Subtable::new(rules[0].0.shared_mask(), 7);
        for rule in held {
            assert!(subtable.insert(Arc::clone(rule), &rule.0.key()).is_none());
        }
        let found = |subtable: &Subtable<Rule>, rule: &Rule| {
            let matching = subtable.find_for(&rule.0.key()).map_or(0, Iterator::count);
            assert_eq!(subtable.find(&rule.0, 1).is_some(), matching == 1);
            matching
        };
        assert!(held.iter().all(|rule| found(&subtable, rule) == 1));
        assert!(others.iter().all(|rule| found(&subtable, rule) == 0));
        assert!(subtable.insert(Arc::clone(&held[9]), &held[9].0.key()).is_some());
        for rule in held {
            assert!(subtable.remove(&rule.0, &rule.0.key(), 1).is_some());
            assert_eq!(found(&subtable, rule), 0);
        }
        assert!(subtable.is_empty() && !subtable.has_priority(1));
    }

    #[test]
    fn no_two_classifiers_have_the_same_hashes() {
        let rules = aimed(0, 1);
        let hashes = || {
            let mut classifier = Classifier::new();
            classifier.insert(Arc::clone(&rules[0]));
            let clone = classifier.clone();
            let of = |c: &Classifier<Rule>| {
                c.subtables().map(|s| s.rank(&rules[0].0.key())).collect::<Vec<_>>()
            };
            assert_eq!(of(&classifier), of(&clone));
            of(&classifier)
        };
        assert_ne!(hashes(), hashes());
    }
}

//! Rules that share a mask.

use crate::Entry;
use crate::mini::{MiniMask, MiniMatch, mix};
use crate::tree::{HashTree, KEYS};
use crate::trie::{self, Tries, Walks};
use flow::{Key, Mask, WORDS};
use imbl::OrdMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// One stage of the mask.
#[derive(Debug)]
struct Stage {
    /// Tries to ask before this stage's words are looked at: which, and our prefix length.
    tries: SmallVec<[(usize, u32); 2]>,
    /// The words of this stage: index and mask.
    words: Box<[(usize, u64)]>,
}

#[derive(Debug)]
pub(crate) struct Subtable<R> {
    mask: Arc<MiniMask>,
    /// What hashes begin with.
    seed: u64,
    stages: Arc<[Stage]>,
    /// For each stage but the last, by the hash of all words up to its end, the number of rules
    /// that have them.
    indices: SmallVec<[HashTree<u32, u32>; 3]>,
    /// By [`rank`].
    rules: HashTree<u64, Arc<R>>,
    /// Prefixes of the rules' ports.
    ports: Tries,
    /// How many rules there are of each priority.
    priorities: OrdMap<u32, u32>,
}

// By hand, as a derived one would ask for `R: Clone`.
impl<R> Clone for Subtable<R> {
    fn clone(&self) -> Self {
        Subtable {
            mask: Arc::clone(&self.mask),
            seed: self.seed,
            stages: Arc::clone(&self.stages),
            indices: self.indices.clone(),
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
    /// An empty one, whose hashes begin with `seed`.
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
                        (start..end).contains(&(usize::from(f.def().place.offset) / 8))
                    })
                    .filter_map(|(which, f)| trie::prefix_len(*f, &full).map(|len| (which, len)))
                    .collect();
                stages.push(Stage { tries, words });
            }
            start = end;
        }
        let but_last = stages.len().saturating_sub(1);
        Subtable {
            mask: Arc::clone(mask),
            seed,
            stages: stages.into(),
            indices: (0..but_last).map(|_| HashTree::default()).collect(),
            rules: HashTree::default(),
            ports: Tries::default(),
            priorities: OrdMap::new(),
        }
    }

    pub fn mask(&self) -> &Arc<MiniMask> {
        &self.mask
    }

    pub fn max_priority(&self) -> u32 {
        self.priorities.get_max().map_or(0, |(p, _)| *p)
    }

    pub fn has_priority(&self, priority: u32) -> bool {
        self.priorities.contains_key(&priority)
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<R>> {
        self.rules.values()
    }

    /// The rules that match `key`, by falling priority (they all have one and the same
    /// match). `None`: no rule has the words of `key` under the mask.
    pub fn find_for<'a>(&'a self, key: &Key) -> Option<impl Iterator<Item = &'a Arc<R>>> {
        let rules = self.rules.alike(self.highest(key), u32::BITS);
        (!rules.is_empty()).then(|| rules.filter(move |r| r.matching().matches(key)))
    }

    /// Reads what [`Subtable::find_for`] will, for all of `keys` side by side. The result means nothing.
    pub fn foresee(&self, keys: &[&Key]) -> u64 {
        let ranks = keys.iter().map(|key| self.highest(key));
        let rules = self.rules.foresee(ranks, u32::BITS);
        // Each reads what the one before has found for all.
        let matches: SmallVec<[&MiniMatch; KEYS]> = rules.iter().map(|r| r.matching()).collect();
        matches.iter().flat_map(|m| m.values().next()).fold(0, |sum, (_, v)| sum.wrapping_add(v))
    }

    /// The rank of the rule for `key` that has the highest priority there is.
    fn highest(&self, key: &Key) -> u64 {
        let hash = self.stages.iter().fold(self.seed, |hash, stage| stage.hash(hash, key.words()));
        rank(short(hash), 0)
    }

    /// Sets in `wc` the whole mask.
    pub fn unwildcard(&self, wc: &mut Mask) {
        self.stages.iter().for_each(|stage| stage.unwildcard(wc));
    }

    /// Sets in `wc` what it depends on that no rule matches `key`: part of the mask.
    pub fn unwildcard_miss(&self, key: &Key, wc: &mut Mask, tries: &Tries, walks: &mut Walks) {
        let is_exact = |(i, m): &(usize, u64)| wc.words().get(*i).is_some_and(|w| m & !w == 0);
        if self.stages.iter().flat_map(|stage| &stage.words).all(is_exact) {
            return;
        }
        let words = key.words();
        let mut hash = self.seed;
        let mut indices = self.indices.iter();
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
            hash = stage.hash(hash, words);
            if indices.next().is_some_and(|index| index.run(short(hash)).is_empty()) {
                return;
            }
        }
    }

    /// True when rules have prefixes of ports.
    fn has_ports(&self) -> bool {
        self.stages.iter().flat_map(|s| &s.tries).any(|(which, _)| trie::PORTS.contains(which))
    }

    /// Hashes of a match's words up to each stage's end.
    fn hashes(&self, matching: &MiniMatch) -> SmallVec<[u32; 4]> {
        let mut words = [0u64; WORDS];
        for (i, v) in matching.values() {
            if let Some(w) = words.get_mut(i) {
                *w = v;
            }
        }
        let mut hash = self.seed;
        self.stages
            .iter()
            .map(|s| {
                hash = s.hash(hash, &words);
                short(hash)
            })
            .collect()
    }

    /// The hash of all words, of [`Subtable::hashes`]; a mask without words has none.
    fn whole(&self, hashes: &[u32]) -> u32 {
        hashes.last().copied().unwrap_or(short(self.seed))
    }

    pub fn insert(&mut self, rule: Arc<R>) -> Option<Arc<R>> {
        let hashes = self.hashes(rule.matching());
        let hash = self.whole(&hashes);
        let priority = rule.priority();
        let rank = rank(hash, priority);
        if let Some(at) = place(self.rules.run(rank), rule.matching()) {
            return self.rules.get_mut(rank, at).map(|old| std::mem::replace(old, rule));
        }
        if self.has_ports() {
            self.ports.insert(trie::PORTS, rule.matching());
        }
        self.rules.insert(rank, usize::MAX, rule);
        *self.priorities.entry(priority).or_default() += 1;
        for (index, hash) in self.indices.iter_mut().zip(hashes) {
            increment(index, hash);
        }
        None
    }

    pub fn find(&self, matching: &MiniMatch, priority: u32) -> Option<&Arc<R>> {
        let hash = self.whole(&self.hashes(matching));
        let run = self.rules.run(rank(hash, priority));
        run.get(place(run, matching)?).map(|(_, rule)| rule)
    }

    pub fn remove(&mut self, matching: &MiniMatch, priority: u32) -> Option<Arc<R>> {
        let hashes = self.hashes(matching);
        let rank = rank(self.whole(&hashes), priority);
        let at = place(self.rules.run(rank), matching)?;
        let removed = self.rules.remove(rank, at)?;
        if self.has_ports() {
            self.ports.remove(trie::PORTS, matching);
        }
        if let Some(count) = self.priorities.get_mut(&priority) {
            *count -= 1; // it counted the rule
            if *count == 0 {
                self.priorities.remove(&priority);
            }
        }
        for (index, hash) in self.indices.iter_mut().zip(hashes) {
            decrement(index, hash);
        }
        Some(removed)
    }
}

/// What rules are kept by: those that share a hash by falling priority.
fn rank(hash: u32, priority: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(!priority)
}

/// Where in the run of a rank the rule with exactly this match is.
fn place<R: Entry>(run: &[(u64, Arc<R>)], matching: &MiniMatch) -> Option<usize> {
    run.iter().position(|(_, r)| r.matching() == matching)
}

/// The bits of a hash that are kept. Rules that share them by chance are told apart by their
/// matches; in a stage's index they may cost a packet bits, once in billions of lookups for each
/// rule.
fn short(hash: u64) -> u32 {
    (hash >> 32) as u32
}

fn increment(index: &mut HashTree<u32, u32>, hash: u32) {
    if index.run(hash).is_empty() {
        index.insert(hash, 0, 1);
    } else if let Some(count) = index.get_mut(hash, 0) {
        *count += 1;
    }
}

fn decrement(index: &mut HashTree<u32, u32>, hash: u32) {
    match index.run(hash).first() {
        Some((_, 2..)) => {
            if let Some(count) = index.get_mut(hash, 0) {
                *count -= 1;
            }
        }
        _ => {
            index.remove(hash, 0);
        }
    }
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
            *counts.entry(subtable.hashes(&rule.0).last().copied()).or_insert(0) += 1;
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
            // Two of a thousand have one hash of 32 bits by chance now and then.
            assert!(most_alike(subtable, &rules) <= 2);
        }
    }

    #[test]
    fn no_two_classifiers_have_the_same_hashes() {
        let rules = aimed(0, 1);
        let hashes = || {
            let mut classifier = Classifier::new();
            classifier.insert(Arc::clone(&rules[0]));
            let clone = classifier.clone();
            let of = |c: &Classifier<Rule>| {
                c.subtables().map(|s| s.hashes(&rules[0].0)).collect::<Vec<_>>()
            };
            assert_eq!(of(&classifier), of(&clone));
            of(&classifier)
        };
        assert_ne!(hashes(), hashes());
    }
}

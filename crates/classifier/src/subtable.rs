//! Rules that share a mask.

use crate::Entry;
use crate::chain::Chain;
use crate::mini::{MiniMask, MiniMatch};
use crate::trie::{self, Tries, Walks};
use flow::{Key, Mask, WORDS};
use imbl::hashmap::Entry as Slot;
use imbl::{GenericHashMap, OrdMap};
use smallvec::SmallVec;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// A hasher for keys that are hashes already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prehashed(u64);

impl Hasher for Prehashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*b);
        }
    }

    fn write_u64(&mut self, v: u64) {
        self.0 = v;
    }
}

impl BuildHasher for Prehashed {
    type Hasher = Prehashed;

    fn build_hasher(&self) -> Prehashed {
        Prehashed(0)
    }
}

type HashMap<V> = GenericHashMap<u64, V, Prehashed, imbl::shared_ptr::DefaultSharedPtr>;

/// One stage of the mask: the words up to its end, and what rules have there.
#[derive(Clone, Debug)]
struct Stage {
    /// Tries to ask before this stage's words are looked at: which, and our prefix length.
    tries: SmallVec<[(usize, u32); 2]>,
    /// The words of this stage: index and mask.
    words: Box<[(usize, u64)]>,
    /// Hash of all words up to here to the number of rules that have them. `None` for the
    /// last stage, where the rules themselves are looked up.
    index: Option<HashMap<u32>>,
}

#[derive(Debug)]
pub(crate) struct Subtable<R> {
    mask: Arc<MiniMask>,
    stages: SmallVec<[Stage; 4]>,
    rules: HashMap<Chain<R>>,
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
            stages: self.stages.clone(),
            rules: self.rules.clone(),
            ports: self.ports.clone(),
            priorities: self.priorities.clone(),
        }
    }
}

fn mix(hash: u64, word: u64) -> u64 {
    // A folded multiply: every bit of both inputs reaches every bit of the hash.
    let wide = u128::from(hash ^ word ^ 0x9e37_79b9_7f4a_7c15)
        * u128::from(0xd6e8_feb8_6659_fd93_u64 ^ hash.rotate_left(23));
    (wide as u64) ^ ((wide >> 64) as u64)
}

impl Stage {
    fn hash(&self, from: u64, words: &[u64; WORDS]) -> u64 {
        self.words.iter().fold(from, |h, (i, m)| mix(h, words.get(*i).copied().unwrap_or(0) & m))
    }
}

impl<R: Entry> Subtable<R> {
    pub fn new(mask: &Arc<MiniMask>) -> Subtable<R> {
        let full = mask.expand();
        let mut stages: SmallVec<[Stage; 4]> = SmallVec::new();
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
                stages.push(Stage { tries, words, index: Some(HashMap::default()) });
            }
            start = end;
        }
        if let Some(last) = stages.last_mut() {
            last.index = None;
        }
        Subtable {
            mask: Arc::clone(mask),
            stages,
            rules: HashMap::default(),
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
        self.rules.values().flat_map(Chain::as_slice)
    }

    /// The rules that match `key`, by falling priority (they all have one and the same
    /// match). Sets in `wc` what that depends on.
    pub fn lookup<'a>(
        &'a self,
        key: &Key,
        wc: &mut Mask,
        tries: &Tries,
        walks: &mut Walks,
    ) -> impl Iterator<Item = &'a Arc<R>> {
        let chain = self.chain(key, wc, tries, walks);
        let key = *key;
        chain.into_iter().flat_map(Chain::as_slice).filter(move |r| r.matching().matches(&key))
    }

    fn chain<'a>(
        &'a self,
        key: &Key,
        wc: &mut Mask,
        tries: &Tries,
        walks: &mut Walks,
    ) -> Option<&'a Chain<R>> {
        let words = key.words();
        let mut hash = 0;
        for stage in &self.stages {
            for &(which, len) in &stage.tries {
                let walk = match trie::PORTS.contains(&which) {
                    true => self.ports.walk(which, key)?,
                    false => walks.walk(which, tries, key)?,
                };
                if !walk.holds(len) {
                    // More bits than our prefixes have say nothing about these.
                    trie::unwildcard_prefix(which, walk.decisive.min(len), wc);
                    return None;
                }
            }
            for (i, m) in &stage.words {
                if let Some(w) = wc.words_mut().get_mut(*i) {
                    *w |= m;
                }
            }
            hash = stage.hash(hash, words);
            if stage.index.as_ref().is_some_and(|index| !index.contains_key(&hash)) {
                return None;
            }
        }
        self.rules.get(&hash)
    }

    /// True when rules have prefixes of ports.
    fn has_ports(&self) -> bool {
        self.stages.iter().flat_map(|s| &s.tries).any(|(which, _)| trie::PORTS.contains(which))
    }

    /// Hashes of a match's words up to each stage's end.
    fn hashes(&self, matching: &MiniMatch) -> SmallVec<[u64; 4]> {
        let mut words = [0u64; WORDS];
        for (i, v) in matching.values() {
            if let Some(w) = words.get_mut(i) {
                *w = v;
            }
        }
        let mut hash = 0;
        self.stages
            .iter()
            .map(|s| {
                hash = s.hash(hash, &words);
                hash
            })
            .collect()
    }

    pub fn insert(&mut self, rule: Arc<R>) -> Option<Arc<R>> {
        let hashes = self.hashes(rule.matching());
        let priority = rule.priority();
        let ports = self.has_ports().then(|| rule.matching().clone());
        match self.rules.entry(hashes.last().copied().unwrap_or(0)) {
            Slot::Vacant(slot) => {
                slot.insert(Chain::One(rule));
            }
            Slot::Occupied(slot) => {
                let chain = slot.into_mut();
                let same = |r: &Arc<R>| r.matching() == rule.matching();
                let old =
                    chain.as_mut_slice().iter_mut().find(|r| r.priority() == priority && same(r));
                if let Some(old) = old {
                    return Some(std::mem::replace(old, rule));
                }
                let next = chain.as_slice().iter().position(|r| same(r) && r.priority() < priority);
                chain.insert(next.unwrap_or(usize::MAX), rule);
            }
        }
        if let Some(matching) = ports {
            self.ports.insert(trie::PORTS, &matching);
        }
        *self.priorities.entry(priority).or_default() += 1;
        for (stage, hash) in self.stages.iter_mut().zip(hashes) {
            if let Some(index) = &mut stage.index {
                *index.entry(hash).or_default() += 1;
            }
        }
        None
    }

    pub fn find(&self, matching: &MiniMatch, priority: u32) -> Option<&Arc<R>> {
        let hash = self.hashes(matching).last().copied().unwrap_or(0);
        self.rules
            .get(&hash)?
            .as_slice()
            .iter()
            .find(|r| r.priority() == priority && r.matching() == matching)
    }

    pub fn remove(&mut self, matching: &MiniMatch, priority: u32) -> Option<Arc<R>> {
        let hashes = self.hashes(matching);
        let hash = hashes.last().copied().unwrap_or(0);
        let chain = self.rules.get_mut(&hash)?;
        let at = chain
            .as_slice()
            .iter()
            .position(|r| r.priority() == priority && r.matching() == matching)?;
        let removed = match chain.remove(at) {
            Some(removed) => removed,
            None => self.rules.remove(&hash)?.as_slice().first().map(Arc::clone)?, // the only one
        };
        if self.has_ports() {
            self.ports.remove(trie::PORTS, matching);
        }
        decrement(self.priorities.get_mut(&priority)).then(|| self.priorities.remove(&priority));
        for (stage, hash) in self.stages.iter_mut().zip(hashes) {
            if let Some(index) = &mut stage.index {
                decrement(index.get_mut(&hash)).then(|| index.remove(&hash));
            }
        }
        Some(removed)
    }
}

/// Counts down; true when nothing is left.
fn decrement(count: Option<&mut u32>) -> bool {
    count.is_some_and(|n| {
        *n = n.saturating_sub(1);
        *n == 0
    })
}

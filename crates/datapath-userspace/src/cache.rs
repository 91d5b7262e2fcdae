// SPDX-License-Identifier: Apache-2.0
//! The exact-match (microflow) cache of one packet thread.
//!
//! It maps the hash of a whole key to the megaflow that a packet with that key matched last. An
//! entry is a hint: each use compares the megaflow's match with the key, so neither a hash
//! collision nor a changed table leads to a wrong result. A dead megaflow is removed when a lookup
//! finds it.

use crate::megaflow::Flow;
use flow::Key;
use foldhash::fast::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

const WAYS: usize = 2;

#[derive(Clone, Default)]
struct Entry {
    signature: u64,
    flow: Option<Arc<Flow>>,
}

/// A 2-way cache of fixed size.
pub(crate) struct Cache {
    sets: Vec<[Entry; WAYS]>,
    state: RandomState,
}

impl Cache {
    /// Creates a cache of at least `entries` entries; their number is a power of two.
    pub(crate) fn new(entries: usize) -> Cache {
        let sets = (entries.max(WAYS) / WAYS).next_power_of_two();
        Cache { sets: vec![Default::default(); sets], state: RandomState::default() }
    }

    /// Returns the hash of `key`, which leaves out the fields of a tunnel that is not there.
    pub(crate) fn signature(&self, key: &Key) -> u64 {
        let mut hasher = self.state.build_hasher();
        let [before, tunnel, after] = key.used_bytes();
        hasher.write(before);
        if !tunnel.is_empty() {
            hasher.write(tunnel);
        }
        hasher.write(after);
        hasher.finish()
    }

    fn set(&mut self, signature: u64) -> Option<&mut [Entry; WAYS]> {
        let at = signature as usize & (self.sets.len() - 1); // a power of two, at least 1
        self.sets.get_mut(at)
    }

    /// Returns the live megaflow that `key` matches, if it is in the cache.
    pub(crate) fn lookup(&mut self, signature: u64, key: &Key) -> Option<Arc<Flow>> {
        for entry in self.set(signature)? {
            if entry.signature != signature {
                continue;
            }
            let Some(flow) = &entry.flow else { continue };
            if flow.is_dead() {
                entry.flow = None;
            } else if flow.matches(key) {
                return Some(flow.clone());
            }
        }
        None
    }

    /// Inserts `flow` in place of an equal signature, a dead entry, or the older entry of the set.
    pub(crate) fn insert(&mut self, signature: u64, flow: &Arc<Flow>) {
        let Some([young, old]) = self.set(signature) else {
            return;
        };
        let is_free = |e: &Entry| e.flow.as_ref().is_none_or(|f| f.is_dead());
        if young.signature != signature && (old.signature == signature || !is_free(young)) {
            std::mem::swap(young, old);
        }
        *young = Entry { signature, flow: Some(flow.clone()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::miniflow::MiniMask;
    use datapath::{Megaflow, Ufid};
    use flow::{Field, Match};

    fn flow(src: u32) -> (Arc<Flow>, Key) {
        let mut matching = Match::ANY;
        matching.set(Field::Ipv4Src, src.into());
        let mut key = Key::ZERO;
        key.nw_src.set(src);
        let mask = MiniMask::new(matching.mask());
        let megaflow = Megaflow { ufid: Ufid(src.into()), matching, actions: [].into() };
        (Arc::new(Flow::new(&megaflow, &mask, 0, 0)), key)
    }

    #[test]
    fn a_hit_is_checked_against_the_megaflow() {
        let mut cache = Cache::new(2);
        let (f, key) = flow(1);
        let s = cache.signature(&key);
        cache.insert(s, &f);
        assert!(cache.lookup(s, &key).is_some_and(|g| Arc::ptr_eq(&f, &g)));
        let (_, other) = flow(2);
        assert!(cache.lookup(s, &other).is_none(), "a colliding signature must not match");
        f.kill();
        assert!(cache.lookup(s, &key).is_none(), "a dead megaflow must not match");
    }

    #[test]
    fn the_older_way_is_replaced() {
        let mut cache = Cache::new(2);
        let flows: Vec<_> = (1..=3).map(flow).collect();
        let signatures: Vec<_> = flows.iter().map(|(_, k)| cache.signature(k)).collect();
        for ((f, _), s) in flows.iter().zip(&signatures) {
            cache.insert(*s, f);
        }
        let hit: Vec<bool> = flows
            .iter()
            .zip(&signatures)
            .map(|((_, k), s)| cache.lookup(*s, k).is_some())
            .collect();
        assert_eq!(hit, [false, true, true]);
        cache.insert(signatures[1], &flows[1].0);
        assert!(
            cache.lookup(signatures[2], &flows[2].1).is_some(),
            "a renewed entry evicts nothing"
        );
    }

    #[test]
    fn no_two_caches_have_the_same_signatures() {
        let (_, key) = flow(1);
        let (one, other) = (Cache::new(2), Cache::new(2));
        assert_eq!(one.signature(&key), one.signature(&key));
        assert_ne!(one.signature(&key), other.signature(&key));
    }
}

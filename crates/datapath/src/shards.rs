// SPDX-License-Identifier: Apache-2.0
//! The common part of stores of megaflows. Such a store is divided into parts by the megaflows'
//! ids, each under a lock of its own, so that threads seldom wait for each other.

use crate::scratch::Recycle;
use crate::{Megaflow, Ufid};

/// Number of parts.
pub const SHARDS: usize = 64;

/// The part that a megaflow belongs to, below [`SHARDS`].
#[inline]
pub fn shard_of(ufid: Ufid) -> usize {
    (ufid.0 % SHARDS as u128) as usize
}

/// Megaflows, each with something, in groups: those of one group belong to one part.
#[derive(Debug)]
pub struct Groups<T>([Vec<(Ufid, T)>; SHARDS]);

impl<T> Default for Groups<T> {
    fn default() -> Groups<T> {
        Groups([const { Vec::new() }; SHARDS])
    }
}

impl<T> Recycle for Groups<T> {
    fn recycle(&mut self) {
        self.0.iter_mut().for_each(Recycle::recycle);
    }
}

impl<T> Groups<T> {
    /// Number of megaflows.
    pub fn len(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }

    /// Adds a megaflow to the end of its group.
    pub fn push(&mut self, ufid: Ufid, with: T) {
        self.0[shard_of(ufid)].push((ufid, with));
    }

    /// The group of part `n`, which is below [`SHARDS`].
    pub fn part(&self, n: usize) -> &[(Ufid, T)] {
        &self.0[n]
    }

    /// The groups in the order of the parts, empty ones too.
    pub fn iter(&self) -> impl Iterator<Item = &[(Ufid, T)]> {
        self.0.iter().map(Vec::as_slice)
    }
}

/// Looks some megaflows up only to bring their memory into the cache, so that adding each of them
/// next does not wait for memory. Reads do not wait for each other, but reads wait for locks, so
/// this function takes the locks first. `lock` locks the part of that number (called in rising
/// order, once for each part, and kept until the end); `has` looks into a part.
pub fn prefetch<G>(flows: &[&Megaflow], lock: impl Fn(usize) -> G, has: impl Fn(&G, Ufid) -> bool) {
    let mut shards: [Option<G>; SHARDS] = [const { None }; SHARDS];
    let wanted = flows.iter().fold(0u64, |wanted, flow| wanted | 1 << shard_of(flow.ufid));
    for (n, held) in shards.iter_mut().enumerate() {
        if wanted >> n & 1 != 0 {
            *held = Some(lock(n));
        }
    }
    let is_there = |flow: &&&Megaflow| {
        shards[shard_of(flow.ufid)].as_ref().is_some_and(|shard| has(shard, flow.ufid))
    };
    std::hint::black_box(flows.iter().filter(is_there).count());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Actions;
    use flow::Match;
    use std::cell::RefCell;

    #[test]
    fn locks_come_once_each_in_order_before_any_look() {
        let flow = |n| Megaflow { ufid: Ufid(n), matching: Match::ANY, actions: Actions::from([]) };
        let flows = [70, 3, 6, 67, 63].map(flow);
        let done = RefCell::new(Vec::new());
        let lock = |n| {
            done.borrow_mut().push(("lock", n as u128));
            n
        };
        let has = |shard: &usize, ufid: Ufid| {
            assert_eq!(*shard, shard_of(ufid));
            done.borrow_mut().push(("look", ufid.0));
            false
        };
        prefetch(&flows.each_ref(), lock, has);
        let locks = [3, 6, 63].map(|n| ("lock", n));
        let looks = [70, 3, 6, 67, 63].map(|n| ("look", n));
        assert_eq!(done.into_inner(), [&locks[..], &looks].concat());
    }

    #[test]
    fn a_group_is_of_one_part() {
        let mut groups = Groups::default();
        for n in [65, 0, 1, 64] {
            groups.push(Ufid(n), n);
        }
        let groups: Vec<Vec<u128>> =
            groups.iter().map(|group| group.iter().map(|(_, n)| *n).collect()).collect();
        assert_eq!(groups.len(), SHARDS);
        assert_eq!(groups[..2], [vec![0, 64], vec![65, 1]]);
        assert!(groups[2..].iter().all(Vec::is_empty));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Frozen pipelines: the state from which translation continues when a packet comes back to the
//! tables.
//!
//! Some actions cannot be translated to the end in one go: the headers under a popped MPLS stack,
//! or the hash that a datapath computes, are unknown at that time. Translation then *freezes*: it
//! stores the remaining steps as a [`FrozenState`], and emits [`datapath::Action::Recirc`] with the
//! state's id. The datapath extracts the packet's key again, sets `recirc_id` in it and looks it
//! up. The miss is translated from the frozen state.
//!
//! # Invariants
//! - Equal states have equal ids while one of them exists. So a megaflow that is translated again
//!   gets equal actions, and the revalidator finds no change.
//! - An id exists as long as there is a reference to it (`RecircRef`). Megaflows own the references
//!   to the recirculations that they contain. The last 1024 states without a reference (`RETIRED`)
//!   can still be looked up, for packets that are between the two lookups while their megaflow is
//!   removed.
//! - Ids are not reused until the 32-bit counter wraps. Where megaflows outlive the daemon, ids are
//!   derived from the states instead ([`RecircTable::derive_ids`]): the next daemon gives equal
//!   states equal ids, so the megaflows that it adopts lead on to each other, and an id never leads
//!   to the megaflows of another state.
//!
//! Any thread may call; each call takes one short lock.

use crate::mirror::MirrorSet;
use crate::snapshot::BridgeIndex;
use flow::Key;
use flow::tun_metadata::Wide;
use foldhash::quality::{FixedState, RandomState};
use openflow::action::Action;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// Ids from a derived one on that are tried. After that ids are counted: packets influence the
/// contents of states, and may aim at collisions.
const NEAR: u32 = 8;

/// Number of states without a reference that can still be looked up.
pub(crate) const RETIRED: usize = 1024;

/// Actions that remain to be run, with the parts of their rule that they need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FrozenStep {
    /// Table of the rule (`resubmit` without a table leads to it).
    pub table: u8,
    /// Cookie of the rule; all ones without a rule.
    pub cookie: u64,
    /// The remaining actions, in their order.
    pub actions: Vec<Action>,
}

/// Data of a packet-in that the packet's key does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FrozenPacketIn {
    /// Data of `controller(userdata=...)`.
    pub userdata: Arc<[u8]>,
    /// The rule is a table-miss rule, or there was no rule.
    pub table_miss: bool,
}

/// A frozen pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenState {
    /// Bridge in which translation continues.
    pub bridge: BridgeIndex,
    /// Table in which the pipeline froze.
    pub(crate) table: u8,
    /// Pipeline fields to restore: registers, metadata, OpenFlow in_port, actset_output. All other
    /// fields are zero.
    pub metadata: Key,
    /// The pipeline has set the tunnel fields, which `metadata` has, too. Otherwise they are those
    /// with which the packets come back.
    pub(crate) is_tunnel_set: bool,
    /// The stack of `push` and `pop`, bottom first.
    pub(crate) stack: Vec<StackEntry>,
    /// Actions in the action set.
    pub(crate) action_set: Vec<Action>,
    /// Steps that remain to be run, first to last.
    pub(crate) steps: Vec<FrozenStep>,
    /// The packet enters the bridge: `table` decides the actions, and there are no steps.
    pub(crate) enters: bool,
    /// The datapath has hashed the packets that come back: their `dp_hash` is valid.
    pub(crate) hashed: bool,
    /// The datapath has tracked the packets that come back: their fields `ct_*` are valid.
    /// Otherwise the pipeline reads zeros there.
    pub(crate) conntracked: bool,
    /// Mirrors of the bridge that the packets that come back have gone to.
    pub(crate) mirrored: MirrorSet,
    /// For states that only carry a packet-in's metadata.
    pub(crate) packet_in: Option<FrozenPacketIn>,
}

/// One entry of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StackEntry {
    /// Value that was pushed, right-aligned.
    pub value: Wide,
    /// Number of bits that were pushed.
    pub bits: u16,
}

impl FrozenState {
    /// Returns a digest of the state, whose bridge is named by `bridge`.
    fn digest(&self, seed: &impl BuildHasher, bridge: impl Hash) -> u64 {
        let mut h = seed.build_hasher();
        bridge.hash(&mut h);
        self.table.hash(&mut h);
        self.metadata.hash(&mut h);
        self.stack.hash(&mut h);
        self.action_set.len().hash(&mut h);
        for step in &self.steps {
            (step.table, step.cookie, step.actions.len()).hash(&mut h);
        }
        (self.enters, self.hashed, self.conntracked, self.is_tunnel_set).hash(&mut h);
        if self.mirrored != 0 {
            self.mirrored.hash(&mut h); // the ids of others are as without mirrors
        }
        self.packet_in.hash(&mut h);
        h.finish()
    }
}

#[derive(Debug)]
struct Node {
    id: u32,
    digest: u64,
    state: Arc<FrozenState>,
    table: Weak<Mutex<Inner>>,
}

impl Drop for Node {
    fn drop(&mut self) {
        let Some(table) = self.table.upgrade() else { return };
        lock(&table).retire(self.id, self.digest, Arc::clone(&self.state));
    }
}

/// A reference to a frozen state, which keeps its id valid. Each clone is one more reference.
#[derive(Clone, Debug)]
pub(crate) struct RecircRef(Arc<Node>);

impl RecircRef {
    /// Returns the id in [`datapath::Action::Recirc`] and in keys; never 0.
    pub(crate) fn id(&self) -> u32 {
        self.0.id
    }
}

impl PartialEq for RecircRef {
    fn eq(&self, other: &RecircRef) -> bool {
        self.id() == other.id()
    }
}

impl Eq for RecircRef {}

#[derive(Debug, Default)]
struct Inner {
    derives_ids: bool,
    /// The id that was counted last.
    last: u32,
    live: hashbrown::HashMap<u32, Weak<Node>>,
    by_digest: hashbrown::HashMap<u64, Vec<u32>>,
    retired: VecDeque<(u32, u64, Arc<FrozenState>)>,
}

impl Inner {
    fn retire(&mut self, id: u32, digest: u64, state: Arc<FrozenState>) {
        // The id may have a reference again: another thread found the state after the last
        // reference was dropped and before this lock was taken.
        if self.live.get(&id).is_some_and(|n| n.strong_count() > 0) {
            return;
        }
        self.live.remove(&id);
        if let Some(ids) = self.by_digest.get_mut(&digest) {
            ids.retain(|i| *i != id);
            if ids.is_empty() {
                self.by_digest.remove(&digest);
            }
        }
        self.retired.push_back((id, digest, state));
        while self.retired.len() > RETIRED {
            self.retired.pop_front();
        }
    }

    fn is_free(&self, id: u32) -> bool {
        id != 0 && !self.live.contains_key(&id) && !self.retired.iter().any(|(i, ..)| *i == id)
    }

    fn free_id(&mut self, state: &FrozenState, bridge: &str) -> u32 {
        if self.derives_ids {
            let derived = state.digest(&FixedState::default(), bridge) as u32;
            let near =
                (0..NEAR).map(|step| derived.wrapping_add(step)).find(|id| self.is_free(*id));
            if let Some(id) = near {
                return id;
            }
        }
        loop {
            self.last = self.last.wrapping_add(1);
            if self.is_free(self.last) {
                return self.last;
            }
        }
    }
}

/// All frozen pipelines of a datapath.
#[derive(Clone, Debug, Default)]
pub struct RecircTable {
    inner: Arc<Mutex<Inner>>,
    /// Seed of the digests. Packets influence the contents of states, and must not be able to aim
    /// at collisions.
    seed: RandomState,
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    // A panic elsewhere leaves the maps whole, as no change below can fail half-way.
    inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl RecircTable {
    /// Returns a table without states.
    pub fn new() -> RecircTable {
        RecircTable::default()
    }

    /// Derives the ids of further states from the states. Otherwise ids are counted from 1, as in
    /// Open vSwitch.
    pub fn derive_ids(&self) {
        lock(&self.inner).derives_ids = true;
    }

    /// Returns a reference to `state`. Its id is that of an equal state, if there is one with a
    /// reference or, where ids are derived, among the retired ones, else a new id. `bridge` is the name of the state's
    /// bridge. Derived ids contain it in place of the index, because the next daemon may make the
    /// bridges in another order.
    pub(crate) fn intern(&self, state: FrozenState, bridge: &str) -> RecircRef {
        let digest = state.digest(&self.seed, state.bridge);
        // These references are dropped after the lock is released, because the drop of the last one
        // takes the lock.
        let mut passing = Vec::new();
        let mut inner = lock(&self.inner);
        for id in inner.by_digest.get(&digest).cloned().unwrap_or_default() {
            if let Some(node) = inner.live.get(&id).and_then(Weak::upgrade) {
                if *node.state == state {
                    drop(inner);
                    return RecircRef(node);
                }
                passing.push(node);
            }
        }
        let retired = if inner.derives_ids { inner.retired.iter() } else { Default::default() };
        let back = retired.enumerate().find(|(_, (_, d, s))| *d == digest && **s == state);
        let back = back.map(|(i, _)| i);
        let (id, state) = match back.and_then(|i| inner.retired.remove(i)) {
            Some((id, _, state)) => (id, state),
            None => (inner.free_id(&state, bridge), Arc::new(state)),
        };
        let node = Arc::new(Node { id, digest, state, table: Arc::downgrade(&self.inner) });
        inner.live.insert(id, Arc::downgrade(&node));
        let ids = inner.by_digest.entry(digest).or_default();
        if !ids.contains(&id) {
            ids.push(id);
        }
        drop(inner);
        drop(passing);
        RecircRef(node)
    }

    /// Returns the state with this id; `None` when there is none, or it was retired long ago.
    pub fn state(&self, id: u32) -> Option<Arc<FrozenState>> {
        let inner = lock(&self.inner);
        let node = inner.live.get(&id).and_then(Weak::upgrade);
        let found = match &node {
            Some(node) => Some(Arc::clone(&node.state)),
            None => inner.retired.iter().find(|(i, ..)| *i == id).map(|(.., s)| Arc::clone(s)),
        };
        drop(inner); // before `node`, whose drop may take the lock
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of ids with a reference.
    fn live(table: &RecircTable) -> usize {
        lock(&table.inner).live.values().filter(|node| node.strong_count() > 0).count()
    }

    fn state(table: u8) -> FrozenState {
        FrozenState {
            bridge: BridgeIndex(0),
            table,
            metadata: Key::ZERO,
            is_tunnel_set: false,
            stack: Vec::new(),
            action_set: Vec::new(),
            steps: vec![FrozenStep { table, cookie: 0, actions: vec![Action::Exit] }],
            enters: false,
            hashed: false,
            conntracked: false,
            mirrored: 0,
            packet_in: None,
        }
    }

    #[test]
    fn no_two_tables_have_the_same_digests() {
        let digest = |table: &RecircTable| state(1).digest(&table.seed, "br0");
        let (one, other) = (RecircTable::new(), RecircTable::new());
        assert_eq!(digest(&one), digest(&one.clone()));
        assert_ne!(digest(&one), digest(&other));
    }

    #[test]
    fn derived_ids_are_those_of_the_daemon_before() {
        let tables = [(); 2].map(|()| {
            let t = RecircTable::new();
            t.derive_ids();
            t
        });
        let ids = |t: &RecircTable, order: &mut dyn Iterator<Item = u8>| {
            let refs: Vec<RecircRef> = order.map(|table| t.intern(state(table), "br0")).collect();
            let mut ids: Vec<(u8, u32)> = refs.iter().map(|r| (r.0.state.table, r.id())).collect();
            ids.sort_unstable();
            ids
        };
        let there = ids(&tables[0], &mut (0..200));
        assert_eq!(there, ids(&tables[1], &mut (0..200).rev()));
        assert!(there.iter().all(|(_, id)| *id != 0));
    }

    #[test]
    fn derived_ids_follow_the_name_of_a_bridge() {
        let ids = |bridges: [(usize, &str); 2]| {
            let t = RecircTable::new();
            t.derive_ids();
            let intern = |(index, name)| {
                t.intern(FrozenState { bridge: BridgeIndex(index), ..state(1) }, name)
            };
            let refs = bridges.map(intern);
            refs.map(|recirc| recirc.id())
        };
        let [one, other] = ids([(0, "br0"), (1, "br1")]);
        assert_ne!(one, other);
        // The next daemon makes them in another order.
        assert_eq!(ids([(0, "br1"), (1, "br0")]), [other, one]);
    }

    #[test]
    fn states_with_the_same_derived_id_get_others() {
        let t = RecircTable::new();
        t.derive_ids();
        // The number of actions is all of them that a digest has.
        let same = |n: u8| FrozenState {
            steps: vec![FrozenStep { table: 1, cookie: 0, actions: vec![Action::GotoTable(n)] }],
            ..state(1)
        };
        let refs: Vec<RecircRef> = (0..100).map(|n| t.intern(same(n), "br0")).collect();
        let mut ids: Vec<u32> = refs.iter().map(RecircRef::id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 100);
        for (n, held) in (0..100).zip(&refs) {
            assert_eq!(t.intern(same(n), "br0").id(), held.id());
        }
    }

    #[test]
    fn equal_states_share_an_id_and_ids_end_with_their_last_reference() {
        let t = RecircTable::new();
        let a = t.intern(state(1), "br0");
        let b = t.intern(state(1), "br0");
        let c = t.intern(state(2), "br0");
        assert_eq!(a.id(), b.id());
        assert_ne!(a.id(), c.id());
        assert_eq!(live(&t), 2);
        let id = a.id();
        drop(a);
        assert_eq!(live(&t), 2);
        drop(b);
        assert_eq!(live(&t), 1);
        // Packets on their way still find it. A new reference gets the next id, as in Open vSwitch.
        assert_eq!(t.state(id).map(|s| s.table), Some(1));
        assert_eq!(t.intern(state(1), "br0").id(), c.id() + 1);
        assert_eq!(t.state(c.id() + 100), None);
        // A derived id comes back.
        t.derive_ids();
        let id = t.intern(state(3), "br0").id();
        assert_eq!(live(&t), 1);
        assert_eq!(t.intern(state(3), "br0").id(), id);
    }

    #[test]
    fn retired_states_are_bounded() {
        let t = RecircTable::new();
        let first = t.intern(state(0), "br0");
        let id = first.id();
        drop(first);
        for i in 0..RETIRED as u64 {
            let mut s = state(1);
            s.metadata.metadata.set(i + 1);
            drop(t.intern(s, "br0"));
        }
        assert_eq!(t.state(id), None);
        assert_eq!(live(&t), 0);
    }
}

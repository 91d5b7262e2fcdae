// SPDX-License-Identifier: Apache-2.0
//! The switch's record of each megaflow that it installed (OVS: udpif keys).
//!
//! A datapath holds a megaflow's match and actions. The switch also holds the meaning of the
//! megaflow's packets ([`Effect`]s), the snapshot on which it was translated, and the number of its
//! packets that are credited already. The store is sharded by identity: packet threads insert, the
//! revalidator visits, and neither holds a lock for longer than one entry takes. Each shard has a
//! `Schedule` of the entries that the revalidator has to visit although no packets use them.

use crate::effect::Effect;
use crate::recirc::RecircRef;
use crate::rule::Rule;
use crate::schedule::{Schedule, Tick};
use crate::wakeup::Wakeup;
use classifier::MiniMatch;
use clock::Millis;
use datapath::shards::{self, Groups, SHARDS, shard_of};
use datapath::{Actions, FlowStats, Megaflow, PortNo, Ufid};
use flow::Match;
use hashbrown::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of megaflows that [`Megaflows::visit`] visits under one lock, when the lock is to be
/// short.
pub(crate) const SHORT_BATCH: usize = 1;
/// Number of megaflows under one lock when each takes well below a microsecond.
pub(crate) const LONG_BATCH: usize = 64;

/// One megaflow, as the switch sees it.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The datapath's number of the port.
    pub in_port: PortNo,
    /// The megaflow's match, with the datapath's `in_port` and `recirc_id`. Its key, zero where the
    /// mask is clear, stands for every packet of the megaflow: the key is translated again when the
    /// snapshot changes. Compressed, as a megaflow matches few of the key's 30 words and there may
    /// be 200,000 megaflows.
    pub matching: MiniMatch,
    /// Actions that the datapath runs on each packet of the megaflow.
    pub actions: Actions,
    /// Changes of the switch's state that follow from packets of the megaflow.
    pub effects: Vec<Effect>,
    /// Recirculation ids that the actions use.
    pub recirc: Vec<RecircRef>,
    /// Datapath statistics that were credited already: the next pass credits only the difference.
    pub credited: FlowStats,
    /// Time of installation.
    pub created: Millis,
    /// Version of the snapshot on which the megaflow was translated.
    pub version: u64,
    /// Number of the last pass to which the datapath reported the megaflow. For a new megaflow: of
    /// the last pass that had begun when it was added.
    pub seen: u64,
    /// The tick in which the shard's schedule has the megaflow.
    pub look: Tick,
}

impl Entry {
    /// Returns the time when a packet last used the megaflow; the time of installation, if none
    /// has.
    pub(crate) fn last_used(&self) -> Millis {
        self.credited.used.max(self.created)
    }

    fn rules(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.effects.iter().filter_map(|effect| match effect {
            Effect::Rule(rule) => Some(rule),
            _ => None,
        })
    }
}

/// Prefetches the memory that crediting these entries will read and write. Each step finds the
/// addresses that the next step reads, and the reads of one step do not wait for each other.
fn prefetch_credited(entries: &[&Entry]) {
    fn step(reads: impl Iterator<Item = u64>) {
        std::hint::black_box(reads.fold(0, u64::wrapping_add));
    }
    let rules = || entries.iter().flat_map(|entry| entry.rules());
    step(entries.iter().map(|e| e.seen ^ e.version ^ e.credited.packets ^ e.effects.len() as u64));
    step(rules().map(|rule| Arc::as_ptr(rule) as u64));
    step(rules().map(|rule| Arc::as_ptr(&rule.stats) as u64));
    step(rules().map(|rule| rule.stats.counts().0));
}

/// The result of a visit to a megaflow, and the time at which the next one to its entry is due;
/// `None`: as before.
pub(crate) type Looked<V> = (V, Option<Millis>);

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<Ufid, Entry>,
    schedule: Schedule,
}

impl Shard {
    /// Runs `look` on the entry `ufid`, if there is one, and notes when the next look is due.
    fn look<V>(&mut self, ufid: Ufid, look: impl FnOnce(Option<&mut Entry>) -> Looked<V>) -> V {
        let mut entry = self.entries.get_mut(&ufid);
        let (said, due) = look(entry.as_deref_mut());
        if let (Some(entry), Some(due)) = (entry, due.map(Tick::of))
            && due < entry.look
        {
            entry.look = due;
            self.schedule.add(due, ufid);
        }
        said
    }
}

/// All megaflows of one datapath, by identity.
#[derive(Debug)]
pub struct Megaflows {
    shards: Vec<Mutex<Shard>>,
    len: AtomicUsize,
    /// Number of megaflows of each port.
    of_ports: Mutex<HashMap<PortNo, usize>>,
    seed: foldhash::quality::RandomState,
    /// Nudged when the first megaflow comes.
    wakeup: Arc<Wakeup>,
}

impl Megaflows {
    /// Returns an empty set that nudges `wakeup` whenever the first megaflow comes.
    pub(crate) fn new(wakeup: Arc<Wakeup>) -> Megaflows {
        Megaflows {
            wakeup,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            len: AtomicUsize::new(0),
            of_ports: Mutex::default(),
            seed: foldhash::quality::RandomState::default(),
        }
    }

    /// Returns the identity of the megaflow that matches `matching`: the same for equal matches as
    /// long as the store exists. The hash is seeded, so that packets cannot aim at collisions.
    pub fn ufid(&self, matching: &Match) -> Ufid {
        let half = |salt: u64| {
            let mut h = self.seed.build_hasher();
            h.write_u64(salt);
            h.write(matching.key().bytes());
            h.write(matching.mask().0.bytes());
            h.finish()
        };
        Ufid(u128::from(half(1)) << 64 | u128::from(half(2)))
    }

    fn shard(&self, ufid: Ufid) -> MutexGuard<'_, Shard> {
        self.locked(shard_of(ufid))
    }

    /// Locks shard `n`, which is below [`SHARDS`].
    fn locked(&self, n: usize) -> MutexGuard<'_, Shard> {
        self.shards[n].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of megaflows.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    fn ports(&self) -> MutexGuard<'_, HashMap<PortNo, usize>> {
        self.of_ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of megaflows of packets from `port`.
    pub(crate) fn of_port(&self, port: PortNo) -> usize {
        self.ports().get(&port).copied().unwrap_or(0)
    }

    /// Returns true when there are no megaflows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Prefetches the places of megaflows that are about to be added; see [`shards::prefetch`].
    pub(crate) fn prefetch(&self, flows: &[&Megaflow]) {
        shards::prefetch(
            flows,
            |n| self.locked(n),
            |shard, ufid| shard.entries.contains_key(&ufid),
        );
    }

    /// Adds an entry; returns false (and drops `entry`) when the identity is there already.
    /// `passes` counts the passes that have begun. The next full pass looks at the megaflow.
    pub(crate) fn insert(&self, ufid: Ufid, mut entry: Entry, passes: &AtomicU64) -> bool {
        let mut shard = self.shard(ufid);
        if shard.entries.contains_key(&ufid) {
            return false;
        }
        // The lock orders this after the removal of an earlier entry of the same identity. If a
        // pass has swept that entry, the count read here includes the pass.
        entry.seen = passes.load(Ordering::Acquire);
        entry.look = Tick::of(entry.created);
        shard.schedule.add(entry.look, ufid);
        *self.ports().entry(entry.in_port).or_default() += 1;
        shard.entries.insert(ufid, entry);
        let is_first = self.len.fetch_add(1, Ordering::Relaxed) == 0;
        // A thread that reads the snapshot's version after this fence sees each version that was
        // published before its publisher found no megaflows (`SlowPath::may_be_stale`).
        fence(Ordering::SeqCst);
        drop(shard);
        if is_first || self.wakeup.is_sleep_long() {
            self.wakeup.nudge();
        }
        true
    }

    /// Returns the effects of the megaflow `ufid`; `None` when there is none.
    pub fn effects(&self, ufid: Ufid) -> Option<Vec<Effect>> {
        self.shard(ufid).entries.get(&ufid).map(|entry| entry.effects.clone())
    }

    /// Removes the megaflow `ufid` and returns its entry; `None` when there is none.
    pub(crate) fn remove(&self, ufid: Ufid) -> Option<Entry> {
        let removed = self.shard(ufid).entries.remove(&ufid);
        if let Some(entry) = &removed {
            self.len.fetch_sub(1, Ordering::Relaxed);
            let mut ports = self.ports();
            if let Some(count) = ports.get_mut(&entry.in_port) {
                *count -= 1;
                if *count == 0 {
                    ports.remove(&entry.in_port);
                }
            }
        }
        removed
    }

    /// Runs `look` on each of `flows`, with its entry when there is one, and on each entry for which
    /// a visit is `due` by then. Runs `act` without a lock on the result. `look` must not call back
    /// here. `together` entries are visited under one lock.
    ///
    /// A visit of many entries spends nearly all its time waiting for memory, as neither the
    /// entries nor the counters that they lead to lie together. So the visit goes by shards, and
    /// first reads the memory of a whole group that it will write: such reads do not wait for each
    /// other, the locked additions of counters would.
    pub(crate) fn visit<T, V>(
        &self,
        flows: &Groups<T>,
        due: Option<Millis>,
        together: usize,
        mut look: impl FnMut(Ufid, Option<&T>, Option<&mut Entry>) -> Looked<V>,
        mut act: impl FnMut(Ufid, V),
    ) {
        let together = together.max(1);
        let mut said = Vec::with_capacity(together);
        for (n, group) in flows.iter().enumerate() {
            for some in group.chunks(together) {
                let mut shard = self.locked(n);
                if some.len() > 1 {
                    let entries = some.iter().filter_map(|(ufid, _)| shard.entries.get(ufid));
                    prefetch_credited(&entries.collect::<Vec<_>>());
                }
                said.extend(some.iter().map(|(ufid, t)| {
                    (*ufid, shard.look(*ufid, |entry| look(*ufid, Some(t), entry)))
                }));
                drop(shard);
                said.drain(..).for_each(|(ufid, verdict)| act(ufid, verdict));
            }
            let looks = due.map(|now| self.locked(n).schedule.take(now)).unwrap_or_default();
            for (tick, ufids) in looks {
                for some in ufids.chunks(together) {
                    let mut shard = self.locked(n);
                    for ufid in some {
                        // Another entry of the identity, or the entry for another reason, may be
                        // in a later tick.
                        let entry = shard.entries.get_mut(ufid).filter(|e| e.look == tick);
                        let Some(entry) = entry else { continue };
                        entry.look = Tick::NEVER;
                        said.push((*ufid, shard.look(*ufid, |entry| look(*ufid, None, entry))));
                    }
                    drop(shard);
                    said.drain(..).for_each(|(ufid, verdict)| act(ufid, verdict));
                }
            }
        }
    }

    /// Returns the first tick in which a visit to some megaflow may be due.
    pub(crate) fn first_look(&self) -> Option<Tick> {
        (0..SHARDS).filter_map(|n| self.locked(n).schedule.first()).min()
    }

    /// Returns the identities of all megaflows for which `wanted` returns true.
    pub(crate) fn select(&self, mut wanted: impl FnMut(&Entry) -> bool) -> Vec<Ufid> {
        let mut out = Vec::new();
        for n in 0..SHARDS {
            let shard = self.locked(n);
            out.extend(shard.entries.iter().filter(|(_, e)| wanted(e)).map(|(u, _)| *u));
        }
        out
    }
}

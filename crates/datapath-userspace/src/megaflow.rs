// SPDX-License-Identifier: Apache-2.0
//! One megaflow of the datapath.

use crate::flow_log;
use crate::miniflow::{MiniKey, MiniMask};
use crate::moved::Moved;
use clock::Millis;
use datapath::{Actions, FlowDump, FlowStats, Megaflow, Tier, TierRefusals, Ufid};
use flow::{Key, Match};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A megaflow. The table, the caches of packet threads and batches in flight share it.
pub(crate) struct Flow {
    pub(crate) ufid: Ufid,
    pub(crate) mask: Arc<MiniMask>,
    /// Its slot in the table.
    pub(crate) slot: u32,
    /// The number of megaflows that were installed before it.
    pub(crate) installed: u64,
    key: MiniKey,
    /// True when `Counted::actions` is `None`. Caches read it without the lock.
    dead: AtomicBool,
    counted: Mutex<Counted>,
}

struct Counted {
    /// `None` after the removal.
    actions: Option<Actions>,
    stats: FlowStats,
}

impl Flow {
    /// Creates the datapath's form of `flow`, whose mask is `mask`, in this slot of the table, which
    /// has installed `installed` megaflows before it.
    pub(crate) fn new(flow: &Megaflow, mask: &Arc<MiniMask>, slot: u32, installed: u64) -> Flow {
        Flow {
            ufid: flow.ufid,
            mask: Arc::clone(mask),
            slot,
            installed,
            key: mask.mini_key(flow.matching.key()),
            dead: AtomicBool::new(false),
            counted: Mutex::new(Counted {
                actions: Some(flow.actions.clone()),
                stats: FlowStats::default(),
            }),
        }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        // Every change leaves whole values, so a panicked holder does no harm.
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true when packets with `key` belong to the megaflow.
    pub(crate) fn matches(&self, key: &Key) -> bool {
        self.mask.matches(&self.key, key)
    }

    /// Returns the match.
    pub(crate) fn matching(&self) -> Match {
        self.mask.matching(&self.key)
    }

    /// Returns true when the megaflow was removed. May lag by a moment; [`Flow::count`] does not.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Reads the memory that [`Flow::stats`] reads, so that it is in the CPU's cache. The result
    /// only keeps the reads from being optimised away.
    pub(crate) fn prefetch(&self) -> u64 {
        self.ufid.0 as u64 ^ u64::from(self.is_dead()) ^ u64::from(self.counted.is_poisoned())
    }

    /// Counts packets, notes that in `moved`, and returns the actions to run on them. Returns
    /// `None`, and counts nothing, when the megaflow was removed.
    pub(crate) fn count(
        &self,
        moved: &Moved,
        packets: u64,
        bytes: u64,
        tcp_flags: u16,
        now: Millis,
    ) -> Option<Actions> {
        let mut counted = self.counted();
        let actions = counted.actions.clone()?;
        let stats = &mut counted.stats;
        stats.packets += packets;
        stats.bytes += bytes;
        stats.tcp_flags |= tcp_flags;
        stats.used = stats.used.max(now);
        moved.add(self.slot); // under the lock
        Some(actions)
    }

    /// Replaces the actions. Returns false when the megaflow was removed.
    pub(crate) fn modify(&self, actions: &Actions) -> bool {
        let mut counted = self.counted();
        let Some(current) = &mut counted.actions else { return false };
        let old = std::mem::replace(current, actions.clone());
        drop(counted);
        flow_log::modified(self, &old, actions);
        true
    }

    /// Marks the megaflow dead and returns its final statistics.
    pub(crate) fn kill(&self) -> FlowStats {
        let mut counted = self.counted();
        let actions = counted.actions.take();
        self.dead.store(true, Ordering::Relaxed);
        let stats = counted.stats;
        drop(counted);
        if let Some(actions) = actions {
            flow_log::deleted(self, &actions);
        }
        stats
    }

    pub(crate) fn stats(&self) -> FlowStats {
        self.counted().stats
    }

    /// Returns `None` when the megaflow was removed.
    pub(crate) fn dump(&self) -> Option<FlowDump> {
        let counted = self.counted();
        Some(FlowDump {
            flow: Megaflow {
                ufid: self.ufid,
                matching: self.matching(),
                actions: counted.actions.clone()?,
            },
            stats: counted.stats,
            tier: Tier::Userspace,
            refusals: TierRefusals::NONE,
            offloaded: datapath::Offloaded::No,
        })
    }
}

// SPDX-License-Identifier: Apache-2.0
//! One megaflow as the datapath holds it.

use crate::shape::{Shape, Values};
use clock::Millis;
use datapath::{Actions, FlowDump, FlowStats, Megaflow, Tier, Ufid};
use flow::{Key, Match};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A megaflow. Shared by the table, the threads' caches and batches in flight.
pub(crate) struct Flow {
    pub(crate) ufid: Ufid,
    pub(crate) shape: Arc<Shape>,
    values: Values,
    /// A copy of "`State::actions` is `None`" that a cache reads without the lock.
    dead: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// `None` once removed.
    actions: Option<Actions>,
    stats: FlowStats,
}

impl Flow {
    /// `shape` is that of its mask.
    pub(crate) fn new(flow: &Megaflow, shape: &Arc<Shape>) -> Flow {
        Flow {
            ufid: flow.ufid,
            shape: Arc::clone(shape),
            values: shape.values(flow.matching.key()),
            dead: AtomicBool::new(false),
            state: Mutex::new(State {
                actions: Some(flow.actions.clone()),
                stats: FlowStats::default(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves whole values, so a panicked holder does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True when `key` is one of its packets'.
    pub(crate) fn matches(&self, key: &Key) -> bool {
        self.shape.agrees(&self.values, key)
    }

    /// What it matches.
    pub(crate) fn matching(&self) -> Match {
        self.shape.matching(&self.values)
    }

    /// True when the flow was removed; may lag by a moment, [`Flow::count`] does not.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Reads what [`Flow::stats`] will; the result means nothing.
    pub(crate) fn touch(&self) -> u64 {
        self.ufid.0 as u64 ^ u64::from(self.is_dead()) ^ u64::from(self.state.is_poisoned())
    }

    /// Counts packets and returns the actions to run on them; `None`, and nothing counted, when
    /// the flow was removed.
    pub(crate) fn count(
        &self,
        packets: u64,
        bytes: u64,
        tcp_flags: u16,
        now: Millis,
    ) -> Option<Actions> {
        let mut state = self.state();
        let actions = state.actions.clone()?;
        let stats = &mut state.stats;
        stats.packets += packets;
        stats.bytes += bytes;
        stats.tcp_flags |= tcp_flags;
        stats.used = stats.used.max(now);
        Some(actions)
    }

    /// Replaces the actions; false when the flow was removed.
    pub(crate) fn modify(&self, actions: &Actions) -> bool {
        let mut state = self.state();
        let alive = state.actions.is_some();
        if alive {
            state.actions = Some(actions.clone());
        }
        alive
    }

    /// Marks the flow dead and returns its final statistics.
    pub(crate) fn kill(&self) -> FlowStats {
        let mut state = self.state();
        state.actions = None;
        self.dead.store(true, Ordering::Relaxed);
        state.stats
    }

    pub(crate) fn stats(&self) -> FlowStats {
        self.state().stats
    }

    /// `None` when the flow was removed.
    pub(crate) fn dump(&self) -> Option<FlowDump> {
        let state = self.state();
        Some(FlowDump {
            flow: Megaflow {
                ufid: self.ufid,
                matching: self.matching(),
                actions: state.actions.clone()?,
            },
            stats: state.stats,
            tier: Tier::Userspace,
            refusal: None,
            offloaded: datapath::Offloaded::No,
        })
    }
}

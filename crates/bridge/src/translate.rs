// SPDX-License-Identifier: Apache-2.0
//! Translation: from a packet's key to the megaflow that it belongs to.
//!
//! # Task
//! [`translate`] runs the OpenFlow pipeline of a bridge (tables, groups, NORMAL, patch ports into
//! other bridges) on a key, symbolically: it neither changes nor sends a packet. Its result is the
//! datapath actions that do so, the bits of the key that the result depends on (the
//! [`Mask`](flow::Mask)), and the other consequences of such packets
//! ([`Effect`](crate::effect::Effect)s). It reads one immutable [`Snapshot`] and the MAC tables,
//! and changes nothing but the [`RecircTable`].
//!
//! # Soundness
//! For every key that agrees with `Request::key` under the mask, a translation with the same
//! snapshot and MAC tables gives equal actions. The rule by which the code keeps this: *a bit
//! of the key is made exact before a decision or an emitted value depends on it.* A bit that
//! is exact without need costs megaflows. A bit that was read and is not exact is a security hole
//! (CVE-2020-35498, CVE-2023-1668 and CVE-2023-5366 were such holes in OVS). Hence:
//!
//! - a field that is read, or written under a condition, makes its prerequisites exact
//!   (`Field::unwildcard`), whatever the packet's protocols are;
//! - the bits that an emitted set action changes are exact: the packet's old value decides whether
//!   the action is emitted;
//! - headers that move in the key (VLAN and MPLS push and pop) are exact before they move,
//!   also those that are absent;
//! - registers, metadata and the like never come from the packet; their mask bits are cleared
//!   at the end (`finish`).
//!
//! A value that a datapath passes through a frozen pipeline (`dp_hash`, the fields `ct_*`) is a field
//! like any other. Keys of packets from ports have zeros there.
//!
//! Revalidation translates a megaflow's key, which has zeros where the mask has zeros. This key is
//! one of the keys that agree under the mask, though it may be the key of no packet. So no decision
//! about the bits in the mask may use a bit outside the mask (a VLAN header without TPID, or a
//! hash of 0).
//!
//! # Parts
//! | module | contents |
//! |---|---|
//! | `context` | state of one translation; reports; tables and recursion |
//! | `actions` | list of actions, action set, clones, branches |
//! | `fields` | set, move, push, pop, TTLs, MPLS and VLAN headers |
//! | `commit` | datapath actions for what changed since the last output |
//! | `output` | ports, flooding, patch ports, controllers |
//! | `normal`, `vlan` | NORMAL |
//! | `multicast` | NORMAL with multicast snooping |
//! | `mirror` | mirrored packets |
//! | `export` | NetFlow and sFlow |
//! | `group` | groups |
//! | `learn` | `learn` |
//! | `ct` | `ct` and `ct_clear` |
//! | `tunnel` | tunnels |
//! | `mpls` | the MPLS label stack in a key |
//! | `hash` | hashes for groups, multipath, bundle |
//! | `freeze` | freezing and thawing |
//!
//! # Errors
//! Translation always gives a megaflow. After an error (a loop, too many resubmits) the megaflow
//! drops, and its mask is as sound as any, so that a faulty pipeline costs no CPU time.

// A new action, field or effect does not compile until each place has decided what it means.
#![deny(clippy::wildcard_enum_match_arm)]

mod actions;
mod commit;
mod context;
mod ct;
mod encap;
mod export;
mod fields;
mod finish;
mod freeze;
mod group;
mod hash;
mod in_band;
mod learn;
mod mirror;
mod mpls;
mod multicast;
mod normal;
mod output;
#[cfg(test)]
#[allow(clippy::wildcard_enum_match_arm)]
mod tests;
mod tunnel;
mod vlan;

pub use crate::translation::{Translation, TranslationError};
pub(crate) use context::miss_action;
pub use freeze::{LocateError, Located, locate};
pub(crate) use freeze::{controller_packet_in, of_packet_in};
pub(crate) use tunnel::{from_host, suppose_neighbours, without_vport};
pub(crate) use vlan::header_on;

use crate::recirc::{FrozenState, RecircTable};
use crate::snapshot::{BridgeIndex, Snapshot};
use crate::trace::Tracer;
use clock::Millis;
use flow::Key;
use openflow::action::Action;
use packet::Packet;
use std::sync::Arc;

/// Highest nesting of groups, branches and steps back: a step back leads to a table that does not
/// come after the present one (in another bridge, too). Steps forward do not count, as in OVS: a
/// pipeline may have as many tables as there are, one after the other.
pub const MAX_DEPTH: u32 = 64;
/// Highest number of table lookups by resubmit in one translation.
pub const MAX_RESUBMITS: u32 = MAX_DEPTH * MAX_DEPTH;
/// Highest number of buckets in the groups that one translation runs, each group counted as often
/// as it runs. Also the highest number of liveness checks of buckets.
pub const MAX_BUCKETS: u32 = 16 * MAX_RESUBMITS;
/// Highest number of datapath actions (nested ones included) that one translation may give.
pub const MAX_ACTIONS: usize = 4096;
/// Highest number of bytes that the stack may hold.
pub const MAX_STACK_BYTES: usize = 65_536;

/// Whether [`Translation::effects`] is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EffectsMode {
    /// Effects are collected: for an upcall's packet, and for revalidation.
    #[default]
    Collect,
    /// Effects are left out: for `ofproto/trace` of a flow, which has no packet that could be
    /// learned from or sent to controllers.
    Suppress,
}

/// Input of a translation.
pub struct Request<'a> {
    /// Snapshot of the switch to translate on.
    pub snapshot: &'a Snapshot,
    /// Bridge that has received the packet.
    pub bridge: BridgeIndex,
    /// The packet's key, with an OpenFlow port number in `in_port`.
    pub key: Key,
    /// The options of the packet's Geneve header are not valid: such packets are dropped.
    pub invalid_options: bool,
    /// The packet, when there is one. The result is the same without it, unless each packet needs an
    /// upcall.
    pub packet: Option<&'a Packet>,
    /// Time of the translation, by the switch's clock.
    pub now: Millis,
    /// Table of the frozen pipelines.
    pub recirc: &'a RecircTable,
    /// The frozen pipeline to continue: that of `key.recirc_id`.
    pub frozen: Option<Arc<FrozenState>>,
    /// Whether effects are collected.
    pub effects: EffectsMode,
    /// Receives the steps of the translation (`ofproto/trace`).
    pub tracer: Option<&'a mut Tracer>,
    /// Actions (of a packet-out) that run instead of the tables.
    pub actions: Option<&'a [Action]>,
}

impl<'a> Request<'a> {
    /// Returns a request for any packet with `key` that collects effects. The optional parts are
    /// left out.
    pub fn new(
        snapshot: &'a Snapshot,
        bridge: BridgeIndex,
        key: Key,
        recirc: &'a RecircTable,
        now: Millis,
    ) -> Request<'a> {
        Request {
            snapshot,
            bridge,
            key,
            invalid_options: false,
            packet: None,
            now,
            recirc,
            frozen: None,
            effects: EffectsMode::Collect,
            tracer: None,
            actions: None,
        }
    }
}

/// Translates a packet's key; see the module's text. Takes some microseconds, more with long
/// pipelines. Blocks only on short locks. Any thread may call.
pub fn translate(request: Request<'_>) -> Translation {
    context::Context::run(request)
}

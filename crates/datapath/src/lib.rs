// SPDX-License-Identifier: Apache-2.0
//! The contract between the switch and the places that forward packets.
//!
//! A *datapath* has ports, holds megaflows, runs their actions on packets, and calls up when no
//! megaflow matches. OVS has one structure of callbacks for these; here each noun has a trait:
//!
//! | trait | noun |
//! |---|---|
//! | [`Ports`] | devices that packets come from and go to |
//! | [`Flows`] | megaflows: install, modify, remove, statistics, dump |
//! | [`Packets`] | run actions on a packet; register the factory of upcall handlers |
//! | [`Meters`] | optional: rate limits that actions refer to |
//! | [`Bonds`] | optional: groups of ports, one of which sends a packet |
//! | [`Connections`] | optional: connections that the action `ct` tracks |
//! | [`Counters`] | lookups and drops |
//!
//! [`Datapath`] joins them. One behaviour suite (`tests/behaviour`) runs over every datapath;
//! a new one is right when it passes.
//!
//! # Threads
//! Every method may be called from any thread, also from within an upcall (a datapath holds
//! none of its locks while it calls up). Packet threads belong to the datapath.
//!
//! # Soundness
//! A datapath matches a packet's key against a megaflow as [`flow::Match::matches`] does, no
//! wider. Megaflows that a datapath holds at one time may overlap only when every packet of
//! the overlap gets equal actions; the datapath may then use either.
#![forbid(unsafe_code)]

pub mod action;
mod bond;
mod contract;
mod counters;
pub mod hash;
mod joined;
mod megaflow;
mod meter;
pub mod nsh;
pub mod offload;
mod port;
mod queue;
mod refusal;
pub mod scratch;
pub mod shards;
pub mod text;
mod tier;
mod upcall;

/// How often one packet may be looked up again; a recirculation beyond that drops it with
/// [`DropReason::RecirculationLimit`]. Actions that the upcall of an [`Action::Userspace`]
/// answers count as one recirculation, so that upcalls cannot loop either. The value is that of
/// Open vSwitch 3.1's userspace datapath, with which results are compared.
pub const RECIRCULATION_LIMIT: u32 = 6;

/// How deep [`Action::Sample`], [`Action::Clone`] and [`Action::CheckPktLen`] may nest; a
/// datapath refuses a megaflow that goes deeper with [`Refusal::UnsupportedAction`].
pub const ACTION_DEPTH_LIMIT: usize = text::MAX_DEPTH;

pub use action::{Action, Actions, Masked, SampleDirection, SampleOrigin, Set, Userdata};
pub use bond::{BOND_BUCKETS, BondTable, Bonds, BucketBytes};
pub use contract::{
    Connections, Counters, Datapath, Flows, Meters, Packets, Ports, SequenceNumbers,
};
pub use counters::{DropReason, LookupStats};
pub use joined::{AdoptedPort, MissOrigin, PortCounts, Side, Tracked};
pub use megaflow::{FlowDump, FlowStats, Megaflow, Offloaded, Ufid, exact_mask, is_exact};
pub use meter::{MeterBand, MeterConfig, MeterStats};
pub use nsh::PushedNsh;
pub use offload::OffloadProvider;
pub use port::{PortError, PortInfo, PortKind, PortNo, PortSpec, TunnelEndpoint, TunnelKind};
pub use queue::{EgressQos, QueueNumbering};
pub use refusal::Refusal;
pub use tier::{Tier, TierRefusals, TierSet, Verdict};
pub use upcall::{Upcall, UpcallFactory, UpcallKind, Upcaller};

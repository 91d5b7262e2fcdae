// SPDX-License-Identifier: Apache-2.0
//! Placement: which tier holds which flow, and why it is not a faster one.
//!
//! # What it is
//!
//! [`PlacedDatapath`] is a datapath made of two. The *base* (the userspace datapath) holds every
//! port and every flow and can run every action; nothing depends on anything else being there.
//! A [`FastPath`] (the BPF datapath at the XDP and the skb hook) holds those flows that it can
//! run, and hands over the packets that match none of them. The switch above sees one datapath.
//!
//! # Where a flow goes
//!
//! A port is attached to tiers by its kind of device, its settings, and what its driver can do
//! (`ports`, [`fit`]). A flow may go to the tiers of its ingress port, when its outputs and
//! actions agree (`gates`), and the fast path takes it when it can encode it and has room. Each
//! step that says no gives a [`datapath::Refusal`], which is kept with the flow, counted, and
//! shown ([`OffloadStats`], [`datapath::FlowDump::refusal`]).
//!
//! # Invariants
//!
//! - A flow of the fast path is also in the base, but for *adopted* ones, which an earlier
//!   daemon left; the switch above checks these and modifies (then they are in the base, too)
//!   or removes each.
//! - Statistics of a flow are the base's, the fast path's, and what it counted in the fast path
//!   before it left it. They never go back: a flow changes its place under its shard's lock, and
//!   while its counts are on their way out of the fast path, who wants them waits.
//! - A flow that is installed while its first packet is processed goes to the fast path when that
//!   packet is sent (`queue`), so that it is not overtaken.
//! - An XDP redirect that the kernel would drop without a word is never chosen: a port is a target
//!   only when that is known to work; other flows to it run at the skb hook.
//! - No lock of this crate is held during an upcall or a callback. One shard's lock is held
//!   while the base and the fast path take or change one flow (microseconds).
//!
//! # Which side it errs on
//!
//! A meter limits in each place by itself: while packets of a metered flow meet both the base
//! and the fast path, up to twice the rate passes. A full fast table is found out about by being
//! refused; the coldest flows then make room at the next [`PlacedDatapath::maintain`].
#![forbid(unsafe_code)]

mod base;
mod bpf;
mod control;
mod counters;
mod device;
mod fast_path;
pub mod fit;
mod flows;
mod gates;
mod handover;
mod meters;
mod miss;
mod moves;
mod placed;
mod ports;
mod probe;
mod queue;
mod report;
mod survey;
mod table;
#[cfg(test)]
mod tests;
mod tier_set;

pub use base::Base;
pub use bpf::{about_object, unavailable};
pub use control::TierState;
pub use datapath_bpf::{Taker, XdpMode};
pub use fast_path::{Attachment, FastPath, Held, Reason};
pub use miss::is_miss_device;
pub use placed::PlacedDatapath;
pub use probe::{KernelProber, Prober};
pub use report::{OffloadStats, ReasonStats, TierStats};
pub use survey::{Settings, TierReport, hears_other_ends, survey};
pub use tier_set::TierSet;

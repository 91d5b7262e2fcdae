// SPDX-License-Identifier: Apache-2.0
//! Placement: which tier holds which flow, and why it is not a faster one.
//!
//! # What it is
//!
//! [`PlacedDatapath`] is a datapath made of several. The *base* (the userspace datapath) holds
//! every port and every flow and can run every action; it depends on nothing else. Above it is an
//! ordered list of offload providers, fastest first, each with one or more tiers: see
//! [`datapath::offload`] for their contract. A provider holds those flows that it can run. The
//! switch above sees one datapath. Nothing here knows a tier by name: the list is made where the
//! daemon starts.
//!
//! # Where a flow goes
//!
//! Each provider attaches a port to those of its tiers that suit the device and the settings
//! (`ports`). A flow may go to the tiers of its ingress port, when its outputs and actions agree
//! (`eligibility`), and each provider takes it when it can and has room (`migration`). Each step
//! that refuses gives a [`datapath::Refusal`] for its tiers, which is kept with the flow, counted,
//! and shown ([`OffloadStats`], [`datapath::FlowDump::refusals`]). A flow may be in several
//! providers; its tier is the fastest.
//!
//! # Invariants
//!
//! - A flow of a provider is also in the base, except for *adopted* ones, which an earlier daemon
//!   left; the switch above checks these and modifies (then they are in the base, too) or removes
//!   each.
//! - Statistics of a flow are the base's, those of each provider that holds it, and what it
//!   counted in providers before it left them. They never go back: a flow changes its place under
//!   its shard's lock, and while its counts are on their way out of a provider, readers wait.
//! - A flow that is installed while its first packet is processed goes to the providers when that
//!   packet is sent (`queue`), so that the packet is not overtaken.
//! - No flow of a tier outputs to a port that the tier has not named as an output.
//! - No lock of this crate is held during an upcall or a callback. One shard's lock is held while
//!   the base and providers take or change one flow (microseconds, but for providers that install
//!   later, which are asked by housekeeping).
//!
//! # Which side it errs on
//!
//! A meter limits in each place by itself: while packets of a metered flow meet both the base
//! and a provider, up to twice the rate passes. A full table is noticed by a refusal; the coldest
//! flows then make room at the next [`PlacedDatapath::maintain`].
#![forbid(unsafe_code)]

mod base;
mod control;
mod counters;
mod device;
mod eligibility;
mod flows;
mod meters;
mod migration;
mod miss;
mod placed;
mod ports;
mod queue;
mod report;
mod slots;
mod socket;
mod table;
#[cfg(test)]
mod tests;

pub use base::Base;
pub use control::PortTier;
pub use miss::is_miss_device;
pub use placed::PlacedDatapath;
pub use report::{OffloadStats, ReasonStats, TierStats};

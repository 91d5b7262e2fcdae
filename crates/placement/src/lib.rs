// SPDX-License-Identifier: Apache-2.0
//! Placement: which tier holds which flow, and why it is not a faster one.
//!
//! # Parts
//!
//! [`PlacedDatapath`] is one datapath made of several. The *base* (the userspace datapath) holds
//! every port and every flow and can run every action; it depends on no provider. Above it is an
//! ordered list of offload providers, fastest first, each with one or more tiers
//! ([`datapath::offload`] has their contract). A provider holds the flows that it can run. The
//! switch above sees one datapath. This crate names no tier: the daemon makes the list.
//!
//! # Where a flow goes
//!
//! 1. Each provider attaches a port to those of its tiers that suit the device and the settings
//!    (`ports`).
//! 2. A flow may go to the tiers of its ingress port that allow its outputs and actions
//!    (`eligibility`).
//! 3. Each provider of these tiers takes the flow if it can run it and has room (`migration`).
//!
//! Each refusal is a [`datapath::Refusal`] for certain tiers. It is kept with the flow, counted,
//! and shown ([`OffloadStats`], [`datapath::FlowDump::refusals`]). A flow may be in several
//! providers; its tier is the fastest of them.
//!
//! # Invariants
//!
//! - A flow in a provider is also in the base. Exceptions are *adopted* flows, which an earlier
//!   daemon left. The switch above checks each adopted flow. It modifies the flow, which puts it
//!   into the base, or removes it.
//! - The statistics of a flow are the sum of the base's counts, the counts of each provider that
//!   holds it, and its final counts in providers that it has left. The sum never decreases: a flow
//!   changes its place under its shard's lock, and while a provider returns final counts, readers
//!   wait.
//! - A flow that is installed while its first packet is processed goes to the providers after that
//!   packet is sent (`queue`), so no later packet overtakes it.
//! - No flow of a tier outputs to a port that the tier has not named as an output.
//! - No lock of this crate is held during an upcall or a callback. One shard's lock is held while
//!   the base and the providers take or change one flow. That takes microseconds, except in
//!   providers that install later, which only housekeeping asks.
//!
//! # Which side it errs on
//!
//! Each place limits a meter by itself. While packets of a metered flow meet both the base and a
//! provider, up to twice the rate passes. A refusal shows that a table is full; the coldest flows
//! then make room at the next [`PlacedDatapath::maintain`].
#![forbid(unsafe_code)]

mod base;
mod bonds;
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
mod postponed;
mod queue;
mod report;
mod slots;
mod socket;
mod table;
#[cfg(test)]
mod tests;
mod tunnel_helper;

pub use base::Base;
pub use control::PortTier;
pub use miss::is_miss_device;
pub use placed::PlacedDatapath;
pub use report::{OffloadStats, ReasonStats, TierStats};

// SPDX-License-Identifier: Apache-2.0
//! Bridges: OpenFlow tables, groups, meters and learning; translation of packets into
//! megaflows; upcalls and revalidation. (OVS: ofproto and ofproto-dpif.)
//!
//! # Threads
//! One *control thread* owns all mutable state (`Switch`): tables, groups, ports, connections.
//! After each change it publishes an immutable `Snapshot`. *Packet threads* translate on the
//! newest snapshot in upcalls. One *revalidator thread* sweeps statistics and translates again
//! when the snapshot has changed. Packets change rule statistics, MAC tables, learned flows and
//! packet-ins; these changes go through atomics, short locks, or the channel of [`event`].
//! Packet threads wait for the control thread only where packets make flows (`learn`), and for a
//! short time.
//!
//! ```text
//! control thread:  Switch ── publish ──▶ Snapshot
//!                    ▲ events                │ read
//!                    └──── packet threads: Upcaller ── translate ──▶ Megaflow + effects
//!                          revalidator:    sweep ── effects, retranslate ──▶ keep/modify/remove
//! ```
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod aggregate;
mod barrier_budget;
pub mod bfd;
pub mod bond;
pub mod bridge;
pub mod cfm;
pub mod connection;
mod control_counters;
pub mod effect;
pub mod event;
pub mod export;
pub mod group;
mod ids;
pub mod in_band;
mod intern;
mod learned_flow;
pub mod lldp;
pub mod mac_table;
pub mod megaflows;
mod meter;
pub mod mirror;
pub mod multicast_table;
pub mod pipeline;
pub mod port;
pub mod protocol;
mod received;
pub mod recirc;
pub mod revalidator;
pub mod revalidator_state;
pub mod rule;
mod schedule;
pub mod slow_path;
pub mod snapshot;
pub mod spanning_tree;
pub mod switch;
#[cfg(test)]
pub(crate) mod testing;
pub mod trace;
pub mod translate;
pub mod translation;
pub mod tunnel;
mod unknown_flows;
mod upcall;
mod wakeup;

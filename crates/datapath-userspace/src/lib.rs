// SPDX-License-Identifier: Apache-2.0
//! The userspace datapath: the base that holds every flow and can run every action.
//!
//! # How a packet goes through
//!
//! A packet thread (`thread`) sleeps in `epoll` over the receive queues it has been
//! given. A ready queue gives at most [`BATCH`] packets a turn, and ready queues take turns, so
//! that one port cannot starve the others: what a port sends beyond that waits (and is lost) in its
//! own socket, and what its misses may cost is bounded (`budget`). The batch's keys are
//! extracted, looked up in the thread's own exact-match cache (`cache`) and then in the shared
//! table of megaflows (`table`, tuple space search), grouped by megaflow, and each group runs
//! its actions (`execute`). What they send is gathered per port and sent at the end of the
//! batch.
//!
//! A faster tier in front of this datapath passes on what it cannot deal with by a [`Handover`],
//! which a packet thread serves like a receive queue.
//!
//! # Invariants
//!
//! - No lock is held during an upcall or while sending.
//! - A packet is counted on a megaflow before that megaflow's actions run on it, under the
//!   megaflow's own lock; a removed megaflow is dead under that lock. So the statistics that
//!   `remove` returns are final and miss nothing, whatever caches still refer to it.
//! - A cache entry is a hint: it is compared with the packet's key under the megaflow's mask each
//!   time, and never used when the megaflow is dead.
//! - Packets of one megaflow that came in one queue, or by one handover, leave each port in the
//!   order they came.
//! - No thread spins: with nothing to do every packet thread blocks. In dummy mode there are no
//!   packet threads at all; packets run on the thread that delivers them, in order.
//!
//! # Which side it errs on
//!
//! Cache entries of removed megaflows keep their memory until overwritten (bounded by the cache's
//! size). Subtables are probed in the order of their recent hits, which is a guess about speed
//! only.
#![forbid(unsafe_code)]

mod assign;
mod budget;
mod cache;
mod config;
mod datapath;
mod edit;
mod engine;
mod execute;
mod handover;
mod megaflow;
mod meter;
mod ports;
mod shape;
mod shared;
mod spare;
mod stats;
mod table;
mod thread;

pub use assign::ThreadInfo;
pub use budget::UpcallShare;
pub use config::Config;
pub use datapath::UserspaceDatapath;
pub use handover::{Handover, HandoverId, Passed};
pub use stats::PmdStats;

/// Packets that a queue may deliver in one turn.
pub const BATCH: usize = 32;

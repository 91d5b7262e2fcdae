// SPDX-License-Identifier: Apache-2.0
//! The userspace datapath, which holds every megaflow and can run every action.
//!
//! # The way of a packet
//!
//! A packet thread (`thread`) sleeps in `epoll` over the receive queues that are assigned to it
//! (`rxq`). Ready queues take turns of at most [`BATCH`] packets, so one port cannot starve the
//! others. Packets that a port sends beyond that wait, and are lost, in its own socket. The CPU
//! time of a port's upcalls is limited (`upcall_limiter`). The keys of a batch are extracted and
//! looked up, first in the thread's own exact-match cache (`cache`), then in the shared table of
//! megaflows (`table`, tuple space search). Packets are grouped by megaflow, and each group runs
//! its actions (`execute`). Outputs are gathered per port and sent at the end of the batch.
//!
//! A faster tier in front of this datapath passes on the packets that it cannot process, as a
//! [`MissSource`], which a packet thread serves like a receive queue.
//!
//! # Invariants
//!
//! - No lock is held during an upcall or while sending.
//! - A packet is counted on a megaflow before that megaflow's actions run on it, under the
//!   megaflow's own lock. A removed megaflow is dead under that lock. So the statistics that
//!   `remove` returns are final and include every packet, even if caches still refer to the
//!   megaflow.
//! - A cache entry is a hint. Each use compares it with the packet's key under the megaflow's mask,
//!   and a dead megaflow is never used.
//! - Packets of one megaflow that arrived in one queue, or by one miss source, leave each port in
//!   the order of their arrival.
//! - No thread spins: with nothing to do every packet thread blocks. In dummy mode there are no
//!   packet threads; packets run on the thread that delivers them, in order.
//! - Packet threads read no files. The housekeeping thread measures idle CPU time for them
//!   (`idle_cpu`).
//!
//! # Which side it errs on
//!
//! Cache entries of removed megaflows keep their memory until they are overwritten; the size of the
//! cache bounds it. Subtables are probed in the order of their recent hits, which affects speed
//! only.
#![forbid(unsafe_code)]

mod balance;
mod bond;
mod cache;
mod cleaner;
mod config;
mod ct;
mod datapath;
mod edit;
mod engine;
mod engine_pool;
mod execute;
mod flow_log;
mod front;
mod idle_cpu;
mod load;
mod megaflow;
mod meter;
mod miniflow;
mod miss_queue;
mod moved;
mod ports;
mod rxq;
mod shared;
mod stats;
mod table;
mod thread;
mod too_long;
mod tracking;
mod tunnel;
mod underlay;
mod upcall_limiter;

pub use config::{AutoBalance, Config, RxqAssign, UpcallShare};
pub use datapath::UserspaceDatapath;
pub use miss_queue::{MissSource, MissSourceId, MissedPacket};
pub use rxq::{QueueInfo, ThreadInfo};
pub use stats::PmdStats;
pub use tracking::{ConnectionTable, Makers};

/// Maximum number of packets that a queue delivers in one turn.
pub const BATCH: usize = 32;

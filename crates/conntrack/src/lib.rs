// SPDX-License-Identifier: Apache-2.0
//! Connection tracking, by the rules of Open vSwitch.
//!
//! # The table
//!
//! [`Table`] keeps connections in arrays of 64-bit words ([`Memory`], [`layout`]), which BPF
//! programs and other processes may share. Lookup, creation and removal take no lock:
//!
//! - An *index* entry is a hint: a hash and a slot number. The connection in the slot decides.
//! - All that decides is one word, the *head*: phase, flags, generation and expiry. It changes by
//!   compare-and-swap of the whole word.
//! - A creator enters its tentative connection into the index before it searches for rivals, so of
//!   two creators with a common tuple at least one meets the other (`creation.rs`).
//! - A connection is ended with the head by which it was judged. A packet that refreshed it in
//!   between makes that fail.
//! - The [`Sweeper`] alone frees slots, after grace periods of all readers and creators.
//!
//! # Invariants
//!
//! 1. No two live, unexpired connections have a common tuple, in either direction, in one zone.
//! 2. No thread waits for another; the sweeper waits for packet threads without blocking.
//! 3. A thread or process that is killed at any point leaves nothing that is not found again.
//! 4. Any bytes in packets or in the table's memory give a result, never a panic or an endless
//! loop.
//!
//! # The side on which it errs
//!
//! When a connection cannot be made, the packet goes on as a packet of a new connection, and the
//! reason is counted. Established connections are never removed to make room.
//!
//! The crate has no I/O and no thread of its own. No other crate uses it yet.
#![forbid(unsafe_code)]

mod conn;
mod creation;
mod epoch;
mod extensions;
mod extract;
mod head;
mod index;
pub mod layout;
mod machine;
mod memory;
mod nat;
mod policy;
mod rewrite;
mod ring;
mod segment;
mod sweeper;
mod table;
mod tcp;
mod ticks;
mod tuple;
mod zones;

pub use conn::{Class, Conn, ConnId, Direction, Helper};
pub use creation::{CreateError, NewConn};
pub use epoch::{Pinned, Worker};
pub use extensions::Skew;
pub use extract::{Checksums, Extracted, Family, Inner, Untrackable, extract};
pub use head::{Head, Phase};
pub use memory::{Memory, OutOfMemory, PlainMemory, Sizes};
pub use nat::{Manip, Nat, NatError, NatRange, Selection};
pub use policy::{Policies, Policy, Timeout};
pub use rewrite::{ChecksumState, rewrite};
pub use segment::TcpSegment;
pub use sweeper::{Barrier, NoBarrier, Sweeper, Swept};
pub use table::{DEFAULT_HALF_OPEN_PERCENT, DEFAULT_MAX_CONNS, Found, Table, WrongLayout};
pub use tcp::{Peer, Scale, SequenceCheck, TcpConn, TcpState, TcpUpdate, Update};
pub use ticks::Ticks;
pub use tuple::{Canonical, Icmp, IcmpClass, Ports, Tuple};
pub use zones::{Counts, Exceeded, Limit};

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
//! # The `ct` action
//!
//! [`Tracker::process`] carries out a `ct` action on one packet: it finds or makes the connection,
//! moves its state ([`TcpConn`] for TCP), rewrites the packet for NAT, and fills in the
//! [`Metadata`], the fields `ct_*`. A datapath
//!
//! 1. registers each packet thread once ([`Table::worker`]) and pins it for each batch,
//! 2. submits fragments to [`Fragments`] first, and processes the packets that come out of it,
//! 3. keeps [`Metadata`] with the packet, and clears it for `ct_clear`,
//! 4. replaces the packet by [`Edit::apply`] when a helper changed the length of data,
//! 5. runs [`Sweeper::slice`] on a thread of its own, and [`Expectations::expire`] now and then.
//!
//! A tier that processes only packets of established connections itself does so on the table's
//! words, and leaves connections with the flag `layout::flags::DAEMON` to [`Tracker`].
//!
//! # Invariants
//!
//! 1. No two live, unexpired connections have a common tuple, in either direction, in one zone.
//! 2. No thread waits for another; the sweeper waits for packet threads without blocking.
//! 3. A thread or process that is killed at any point leaves nothing that is not found again.
//! 4. Any bytes in packets or in the table's memory give a result, never a panic or endless loop.
//!
//! # Differences from Open vSwitch's userspace tracker
//!
//! - No tuple is ever owned twice, also not by null bindings: a collision changes the source port.
//! - A zone counts all its connections, also those from before its limit.
//! - Half-open connections have a limit of their own ([`DEFAULT_HALF_OPEN_PERCENT`]).
//! - The ICMP identifier changes when NAT finds it taken.
//! - SCTP is tracked by ports, as in versions from 3.3 on.
//! - Expectations and fragments are bounded in number and bytes. Passive FTP works through
//!   destination NAT.
//!
//! # The side on which it errs
//!
//! When a connection cannot be made, the packet goes on as a packet of a new connection, and the
//! reason is counted. Established connections are never removed to make room.
//!
//! The crate has no I/O and no thread of its own.
#![forbid(unsafe_code)]

mod atomic;
mod conn;
mod counters;
mod creation;
mod dump;
mod epoch;
mod expectations;
mod extensions;
mod extract;
mod flush;
mod fragments;
mod ftp;
mod head;
mod helper;
mod index;
pub mod layout;
mod machine;
mod memory;
mod metadata;
mod nat;
mod policy;
mod reassembly;
mod rewrite;
mod ring;
mod segment;
mod statistics;
mod sweeper;
mod table;
mod tcp;
mod tftp;
mod ticks;
mod tracker;
mod tuple;
mod zones;

pub use conn::{Class, Conn, ConnId, Direction, Helper};
pub use counters::{Counter, Counters};
pub use creation::{CreateError, NewConn};
pub use dump::{Detail, Entry};
pub use epoch::{Pinned, Worker};
pub use expectations::{Expectation, Expectations, TooMany, Translation};
pub use extensions::Skew;
pub use extract::{Checksums, Extracted, Family, Inner, Untrackable, extract};
pub use flush::{Flush, NotFound, ParseError, TupleFilter};
pub use fragments::{
    BadFragment, FragmentCounters, Fragments, Held, LEAST_MIN_SIZE, MOST_FRAGMENTS, OutOfRange,
    PURGE_AFTER, Reassembled, Reassembly, StatusDetail, Submitted,
};
pub use head::{Head, Phase};
pub use helper::Edit;
pub use memory::{Memory, OutOfMemory, PlainMemory, Sizes, WrongLayout, check};
pub use nat::{Manip, Nat, NatError, NatRange, Selection};
pub use policy::{Policies, Policy, Timeout};
pub use rewrite::{ChecksumState, rewrite};
pub use segment::{MAX_WINDOW_SHIFT, TcpSegment};
pub use statistics::{Detailed, Statistics, buckets_text};
pub use sweeper::{Barrier, NoBarrier, Sweeper, Swept};
pub use table::{DEFAULT_HALF_OPEN_PERCENT, DEFAULT_MAX_CONNS, Found, Table};
pub use tcp::{Peer, Scale, SequenceCheck, TcpConn, TcpState, TcpUpdate, Update};
pub use ticks::Ticks;
pub use tracker::{Cached, Commit, Done, IpPacket, Metadata, Request, Tracker, ct_state};
pub use tuple::{Canonical, Icmp, IcmpClass, Ports, Tuple};
pub use zones::{Counts, Exceeded, Limit};

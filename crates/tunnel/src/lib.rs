// SPDX-License-Identifier: Apache-2.0
//! Tunnels: the kinds, decoding of outer headers, and headers to push.
//!
//! - A [`PortConfig`] is a tunnel port of a datapath: its [`Kind`], its UDP port, its extensions.
//! - [`decode()`] reads the outer headers of a frame that such a port receives. It returns the
//!   [`Metadata`] and the place of the payload, or the reason of the refusal.
//! - A [`Header`] has the bytes that all packets of a flow share, as translation decides them.
//!   [`Header::push`] puts it in front of a packet and fills in the bytes that differ: lengths,
//!   checksums, the UDP source port, sequence numbers.
//! - [`Header::from_bytes`] reads such a header back.
//! - [`Tlvs`] reads the options of a Geneve header.
//!
//! # Invariants
//!
//! - Decoding is total: any bytes give a value or an error. The payload is inside of the frame.
//! - A header that was pushed decodes to the metadata from which it was built.
//! - The outer length fields hold for the outer headers. Bytes after the outer packet stay at the end of
//!   the inner packet, whose own lengths leave them out.
//! - An outer checksum is right when an unfinished inner checksum is finished
//!   ([`packet::Offload::csum`]), and is verified the same way.
//!
//! # Errs on the side of
//!
//! Refusal: a frame that some receivers would accept, such as one with IP options, in fragments, or
//! with a reserved bit that Open vSwitch tests, is refused.
//!
//! No I/O. Nothing here panics on any bytes.
#![forbid(unsafe_code)]

mod checksum;
mod decode;
mod encode;
mod header;
mod key;
mod kind;
mod metadata;
mod options;
mod outer;
mod port;
mod push;
mod read;
#[cfg(test)]
mod tests;
mod too_big;

pub use decode::{DecodeError, Decoded, decode};
pub use header::{
    BuildError, Encapsulation, FlowLabel, Header, HeaderParts, OuterIp, Request, SourcePorts, Udp,
};
pub use kind::Kind;
pub use metadata::{Erspan, Extension, Gbp, Gtpu, Metadata, Payload, flags};
pub use options::{Options, Tlv, TlvError, Tlvs};
pub use outer::Checks;
pub use port::PortConfig;
pub use push::{PerPacket, PushError};
pub use read::Choice;
pub use too_big::too_big;

/// Ethernet type of Ethernet frames in a tunnel (IEEE 802: Transparent Ethernet Bridging).
pub const ETHERTYPE_TEB: u16 = 0x6558;

// SPDX-License-Identifier: Apache-2.0
//! Packets: owned buffers with headroom and offload state, checked header views, checksums,
//! builders.
//!
//! The header types are zerocopy views: `Ipv4Header::ref_from_prefix(bytes)` and `mut_from_prefix`
//! return an error when there are too few bytes and never panic. All accesses to a returned view
//! are in bounds. A view checks the length of the bytes only. Methods such as `checked_lengths`
//! check the values of length fields (IHL, total length, data offset).
//!
//! No I/O. Nothing here panics on any bytes.
#![forbid(unsafe_code)]

mod arp;
mod buffer;
pub mod build;
pub mod checksum;
mod ethernet;
pub mod fragment;
mod icmp;
mod ipv4;
mod ipv6;
mod mac;
mod nsh;
mod transport;

pub use arp::ArpHeader;
pub use buffer::{Gso, Offload, Packet};
pub use ethernet::{EthernetHeader, LlcSnapHeader, MplsEntry, VlanHeader, ethertype};
pub use icmp::{IcmpHeader, IgmpHeader, NdHeader, NdOption, NdOptions};
pub use ipv4::{Ipv4Header, ip_proto};
pub use ipv6::{Ipv6Extensions, Ipv6FragmentHeader, Ipv6Header};
pub use mac::{Mac, MacError};
pub use nsh::NshHeader;
pub use transport::{SctpHeader, TcpHeader, UdpHeader, tcp_flags};
pub use zerocopy::{FromBytes, IntoBytes};

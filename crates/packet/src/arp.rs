// SPDX-License-Identifier: Apache-2.0
//! ARP and RARP for IPv4 over Ethernet (RFC 826, RFC 903).

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// ARP packet for Ethernet and IPv4, 28 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ArpHeader {
    /// Hardware type: 1 is Ethernet.
    pub hardware: U16,
    /// Protocol type: an Ethernet type.
    pub protocol: U16,
    /// Length of a hardware address in bytes.
    pub hardware_len: u8,
    /// Length of a protocol address in bytes.
    pub protocol_len: u8,
    /// Operation: 1 request, 2 reply.
    pub op: U16,
    /// Sender hardware address.
    pub sha: [u8; 6],
    /// Sender protocol address.
    pub spa: U32,
    /// Target hardware address.
    pub tha: [u8; 6],
    /// Target protocol address.
    pub tpa: U32,
}

impl ArpHeader {
    /// Returns true when types and lengths are those of IPv4 over Ethernet, so the other fields are
    /// valid.
    pub fn is_ethernet_ipv4(&self) -> bool {
        self.hardware.get() == 1
            && self.protocol.get() == crate::ethertype::IPV4
            && self.hardware_len == 6
            && self.protocol_len == 4
    }
}

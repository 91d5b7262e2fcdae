// SPDX-License-Identifier: Apache-2.0
//! ICMP (RFC 792), ICMPv6 (RFC 4443), neighbour discovery (RFC 4861), IGMP (RFC 2236).

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first 8 bytes of any ICMP or ICMPv6 message.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct IcmpHeader {
    /// Message type.
    pub kind: u8,
    /// Code, whose meaning depends on the type.
    pub code: u8,
    /// Checksum (in ICMPv6 with the pseudo header).
    pub checksum: U16,
    /// The rest of the header: identifier and sequence number, MTU, ND flags, or unused.
    pub rest: U32,
}

impl IcmpHeader {
    /// ICMP: destination unreachable.
    pub const UNREACHABLE: u8 = 3;
    /// The code of it for a packet that would have to be fragmented, and may not be.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// ICMPv6: packet too big.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// ICMPv6 neighbour solicitation.
    pub const NEIGHBOUR_SOLICIT: u8 = 135;
    /// ICMPv6 neighbour advertisement.
    pub const NEIGHBOUR_ADVERT: u8 = 136;
}

/// IGMP message, 8 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct IgmpHeader {
    /// Message type.
    pub kind: u8,
    /// Code or maximum response time.
    pub code: u8,
    /// Checksum of the message.
    pub checksum: U16,
    /// Group address.
    pub group: U32,
}

/// Neighbour solicitation or advertisement without options, 24 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct NdHeader {
    /// ICMPv6 header; its `rest` holds the flags of an advertisement.
    pub icmp: IcmpHeader,
    /// Target address.
    pub target: [u8; 16],
}

/// One option of a neighbour message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdOption<'a> {
    /// Type: 1 source, 2 target link-layer address.
    pub kind: u8,
    /// Offset of the option from the start of the options, in bytes.
    pub at: usize,
    /// All bytes of the option, including type and length.
    pub bytes: &'a [u8],
}

impl NdOption<'_> {
    /// Source link-layer address.
    pub const SOURCE: u8 = 1;
    /// Target link-layer address.
    pub const TARGET: u8 = 2;

    /// Returns the Ethernet address of a link-layer address option of 8 bytes.
    pub fn ethernet_address(&self) -> Option<[u8; 6]> {
        if self.bytes.len() == 8 { self.bytes.get(2..8)?.try_into().ok() } else { None }
    }
}

/// Iterator over the options of a neighbour message. It ends at the first option that is cut off or
/// has length 0.
#[derive(Clone, Copy, Debug)]
pub struct NdOptions<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> NdOptions<'a> {
    /// Creates an iterator over the bytes after an [`NdHeader`].
    pub fn new(bytes: &'a [u8]) -> NdOptions<'a> {
        NdOptions { bytes, at: 0 }
    }
}

impl<'a> Iterator for NdOptions<'a> {
    type Item = NdOption<'a>;

    fn next(&mut self) -> Option<NdOption<'a>> {
        let rest = self.bytes.get(self.at..)?;
        let (&kind, &len) = (rest.first()?, rest.get(1)?);
        let bytes = rest.get(..usize::from(len) * 8)?;
        if bytes.is_empty() {
            return None;
        }
        let option = NdOption { kind, at: self.at, bytes };
        self.at += bytes.len();
        Some(option)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! IPv4 (RFC 791).

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// IP protocol numbers.
pub mod ip_proto {
    #![allow(missing_docs)] // the names are IANA's
    pub const HOP_BY_HOP: u8 = 0;
    pub const ICMP: u8 = 1;
    pub const IGMP: u8 = 2;
    pub const IPV4: u8 = 4;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const IPV6: u8 = 41;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const GRE: u8 = 47;
    pub const AH: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const DESTINATION: u8 = 60;
    pub const SCTP: u8 = 132;
}

/// IPv4 header without options, 20 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Ipv4Header {
    /// Version and header length in 32-bit words.
    pub version_ihl: u8,
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Bytes of header and payload.
    pub total_len: U16,
    /// Identification of the datagram, equal in all its fragments.
    pub id: U16,
    /// Flags and fragment offset.
    pub fragment: U16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload ([`ip_proto`]).
    pub proto: u8,
    /// Header checksum.
    pub checksum: U16,
    /// Source address.
    pub src: U32,
    /// Destination address.
    pub dst: U32,
}

impl Ipv4Header {
    /// The more-fragments flag.
    pub const MORE_FRAGMENTS: u16 = 0x2000;
    /// The don't-fragment flag.
    pub const DONT_FRAGMENT: u16 = 0x4000;
    /// The fragment offset, in units of 8 bytes.
    pub const OFFSET_MASK: u16 = 0x1fff;

    /// Returns the header length field in bytes, 0 to 60.
    pub fn header_len(&self) -> usize {
        usize::from(self.version_ihl & 0xf) * 4
    }

    /// Returns header bytes and total bytes if they are possible in `available` bytes from the
    /// header's start: the header has at least 20 bytes and is within the total, the total is
    /// within `available`, and at most 65,535 bytes of padding follow.
    pub fn checked_lengths(&self, available: usize) -> Option<(usize, usize)> {
        let (header, total) = (self.header_len(), usize::from(self.total_len.get()));
        let possible = header >= 20
            && header <= available
            && total >= header
            && total <= available
            && available - total <= usize::from(u16::MAX);
        possible.then_some((header, total))
    }

    /// Returns true for any fragment, including the first.
    pub fn is_fragment(&self) -> bool {
        self.fragment.get() & (Self::MORE_FRAGMENTS | Self::OFFSET_MASK) != 0
    }

    /// Returns true for fragments other than the first.
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.get() & Self::OFFSET_MASK != 0
    }

    /// Returns the sum of the pseudo header for a payload of `len` bytes (RFC 793, 3.1).
    pub fn pseudo_sum(&self, len: u32) -> crate::checksum::Sum {
        let mut sum = crate::checksum::Sum::default();
        sum.add_u32(self.src.get());
        sum.add_u32(self.dst.get());
        sum.add_u32(self.proto.into());
        sum.add_u32(len);
        sum
    }
}

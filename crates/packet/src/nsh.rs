// SPDX-License-Identifier: Apache-2.0
//! The Network Service Header (RFC 8300).

use crate::ethertype;
use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Base header and service path header, 8 bytes (RFC 8300, 2.2 and 2.3). Context headers follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct NshHeader {
    /// From the top: version (2 bits), flags (2 bits: O, unassigned), TTL (6 bits), length of the
    /// whole header in words of 4 bytes (6 bits).
    pub first: U16,
    /// Unassigned (4 bits), metadata type (4 bits).
    pub md_type: u8,
    /// Protocol of the payload: one of the constants of this type.
    pub next: u8,
    /// Service path identifier (24 bits), service index (8 bits).
    pub path: U32,
}

impl NshHeader {
    /// Metadata of fixed length: four context words.
    pub const MD_TYPE_1: u8 = 1;
    /// Metadata of variable length: context headers with class, type and length.
    pub const MD_TYPE_2: u8 = 2;
    /// [`NshHeader::next`] of an IPv4 packet.
    pub const NEXT_IPV4: u8 = 1;
    /// [`NshHeader::next`] of an IPv6 packet.
    pub const NEXT_IPV6: u8 = 2;
    /// [`NshHeader::next`] of an Ethernet frame.
    pub const NEXT_ETHERNET: u8 = 3;
    /// [`NshHeader::next`] of a packet with another NSH.
    pub const NEXT_NSH: u8 = 4;
    /// Bytes of a header with metadata of type 1.
    pub const MD_TYPE_1_BYTES: usize = 24;
    /// Most bytes of a header: its length has 6 bits, in words.
    pub const MAX_BYTES: usize = 63 * 4;

    const FLAGS: u16 = 0x3000;
    const TTL: u16 = 0x0fc0;

    /// Returns the version, 2 bits; only 0 exists.
    pub fn version(&self) -> u8 {
        (self.first.get() >> 14) as u8
    }

    /// Returns the flags, 2 bits: 2 is the O bit (operations packet), 1 is unassigned.
    pub fn flags(&self) -> u8 {
        (self.first.get() >> 12 & 3) as u8
    }

    /// Returns the time to live, 6 bits.
    pub fn ttl(&self) -> u8 {
        (self.first.get() >> 6 & 0x3f) as u8
    }

    /// Returns the length that the header states, in bytes, unchecked.
    pub fn bytes(&self) -> usize {
        usize::from(self.first.get() & 0x3f) * 4
    }

    /// Sets the flags to the low 2 bits of `flags`.
    pub fn set_flags(&mut self, flags: u8) {
        self.first.set(self.first.get() & !Self::FLAGS | u16::from(flags) << 12 & Self::FLAGS);
    }

    /// Sets the time to live to the low 6 bits of `ttl`.
    pub fn set_ttl(&mut self, ttl: u8) {
        self.first.set(self.first.get() & !Self::TTL | u16::from(ttl) << 6 & Self::TTL);
    }

    /// Returns the length of the whole header in bytes, if the header is possible: version 0, no
    /// longer than the `available` bytes that begin with it, and of a length that its metadata
    /// type allows.
    pub fn checked_len(&self, available: usize) -> Option<usize> {
        let bytes = self.bytes();
        let fits = match self.md_type {
            Self::MD_TYPE_1 => bytes == Self::MD_TYPE_1_BYTES,
            Self::MD_TYPE_2 => bytes >= size_of::<NshHeader>(),
            // Open vSwitch reads the base header of other types whatever their length is.
            _ => true,
        };
        (self.version() == 0 && bytes <= available && fits).then_some(bytes)
    }

    /// Returns the Ethernet type of the payload, or `None` inside of `Some` for an Ethernet frame.
    /// `None` for protocols that are not supported.
    pub fn payload_ethertype(next: u8) -> Option<Option<u16>> {
        match next {
            Self::NEXT_IPV4 => Some(Some(ethertype::IPV4)),
            Self::NEXT_IPV6 => Some(Some(ethertype::IPV6)),
            Self::NEXT_ETHERNET => Some(None),
            Self::NEXT_NSH => Some(Some(ethertype::NSH)),
            _ => None,
        }
    }

    /// Reverses [`NshHeader::payload_ethertype`].
    pub fn next_of(payload: Option<u16>) -> Option<u8> {
        match payload {
            Some(ethertype::IPV4) => Some(Self::NEXT_IPV4),
            Some(ethertype::IPV6) => Some(Self::NEXT_IPV6),
            None => Some(Self::NEXT_ETHERNET),
            Some(ethertype::NSH) => Some(Self::NEXT_NSH),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flags 2, TTL 63, 24 bytes, metadata type 1, Ethernet, path 0x123456, index 255.
    const HEADER: [u8; 8] = [0x2f, 0xc6, 1, 3, 0x12, 0x34, 0x56, 0xff];

    fn header(bytes: &[u8; 8]) -> NshHeader {
        NshHeader::read_from_bytes(bytes).unwrap()
    }

    #[test]
    fn bits_are_where_the_rfc_has_them() {
        let mut h = header(&HEADER);
        assert_eq!((h.version(), h.flags(), h.ttl(), h.bytes()), (0, 2, 63, 24));
        h.set_flags(0xfd); // the bits above the field are cut off
        h.set_ttl(0x41);
        assert_eq!((h.version(), h.flags(), h.ttl(), h.bytes()), (0, 1, 1, 24));
        assert_eq!(h.as_bytes()[..2], [0x10, 0x46]);
    }

    #[test]
    fn lengths_are_checked() {
        let h = header(&HEADER);
        assert_eq!(h.checked_len(24), Some(24));
        assert_eq!(h.checked_len(23), None);
        assert_eq!(header(&[0x0f, 0xc5, 1, 3, 0, 0, 0, 0]).checked_len(100), None);
        assert_eq!(header(&[0x4f, 0xc6, 1, 3, 0, 0, 0, 0]).checked_len(100), None);
        assert_eq!(header(&[0x0f, 0xc2, 2, 3, 0, 0, 0, 0]).checked_len(100), Some(8));
        assert_eq!(header(&[0x0f, 0xc1, 2, 3, 0, 0, 0, 0]).checked_len(100), None);
        assert_eq!(header(&[0x0f, 0xc0, 0, 3, 0, 0, 0, 0]).checked_len(100), Some(0));
    }

    #[test]
    fn next_protocols_are_reversible() {
        for next in 0..=u8::MAX {
            if let Some(payload) = NshHeader::payload_ethertype(next) {
                assert_eq!(NshHeader::next_of(payload), Some(next));
            }
        }
        assert_eq!(NshHeader::next_of(Some(ethertype::ARP)), None);
    }
}

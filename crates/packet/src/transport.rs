// SPDX-License-Identifier: Apache-2.0
//! TCP (RFC 9293), UDP (RFC 768) and SCTP (RFC 9260) headers.

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// TCP flags in the low 12 bits of [`TcpHeader::offset_flags`].
pub mod tcp_flags {
    #![allow(missing_docs)] // the names are the RFC's
    pub const FIN: u16 = 0x001;
    pub const SYN: u16 = 0x002;
    pub const RST: u16 = 0x004;
    pub const PSH: u16 = 0x008;
    pub const ACK: u16 = 0x010;
    pub const URG: u16 = 0x020;
    pub const ECE: u16 = 0x040;
    pub const CWR: u16 = 0x080;
    pub const NS: u16 = 0x100;
}

/// TCP header without options, 20 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct TcpHeader {
    /// Source port.
    pub src: U16,
    /// Destination port.
    pub dst: U16,
    /// Sequence number.
    pub seq: U32,
    /// Acknowledgement number.
    pub ack: U32,
    /// Header length in 32-bit words (4 bits), then 12 bits of flags.
    pub offset_flags: U16,
    /// Receive window, unscaled.
    pub window: U16,
    /// Checksum over pseudo header, header and data.
    pub checksum: U16,
    /// Urgent pointer.
    pub urgent: U16,
}

impl TcpHeader {
    /// Returns the 12 bits of flags.
    pub fn flags(&self) -> u16 {
        self.offset_flags.get() & 0xfff
    }

    /// Returns the header length field in bytes, 0 to 60.
    pub fn header_len(&self) -> usize {
        usize::from(self.offset_flags.get() >> 12) * 4
    }
}

/// UDP header, 8 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct UdpHeader {
    /// Source port.
    pub src: U16,
    /// Destination port.
    pub dst: U16,
    /// Length of header and data in bytes.
    pub len: U16,
    /// Checksum; 0 means none.
    pub checksum: U16,
}

/// SCTP common header, 12 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SctpHeader {
    /// Source port.
    pub src: U16,
    /// Destination port.
    pub dst: U16,
    /// Verification tag.
    pub tag: U32,
    /// CRC32c of header and data with this field zero, least significant byte first.
    pub checksum: [u8; 4],
}

// SPDX-License-Identifier: Apache-2.0
//! The layout of the memory that all processors of packets share. A BPF header mirrors this file.
//!
//! All cells are 64-bit words in host byte order. No cell is ever accessed by parts.

/// Version of this layout; memory of another version is not used.
pub const VERSION: u64 = 1;

/// Words of a tuple's canonical form.
///
/// Word 0: `port_low << 48 | port_high << 32 | zone << 16 | proto << 8 | kind`; ICMP has its
/// identifier and code in place of the ports. IPv4: word 1 is `address_low << 32 | address_high`,
/// the others are zero. IPv6: words 1 and 2 are the low endpoint's address, 3 and 4 the high one's.
pub const KEY_WORDS: usize = 5;

/// Bits of the kind, the lowest byte of a key.
pub mod key_kind {
    /// The addresses are IPv6.
    pub const V6: u8 = 1;
    /// Position of the ICMP class (`IcmpClass`), zero for other protocols.
    pub const CLASS_SHIFT: u8 = 1;
    /// The bits of the ICMP class, after the shift.
    pub const CLASS_MASK: u8 = 3;
    /// The high endpoint of an ICMP connection sends the requests.
    pub const HIGH_ASKS: u8 = 8;
}

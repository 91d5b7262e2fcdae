// SPDX-License-Identifier: Apache-2.0
//! Ethernet, VLAN (IEEE 802.1Q), LLC/SNAP (IEEE 802.2) and MPLS (RFC 3032) headers.

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Ethernet types (IEEE 802 numbers).
pub mod ethertype {
    /// IPv4 (RFC 894).
    pub const IPV4: u16 = 0x0800;
    /// ARP (RFC 826).
    pub const ARP: u16 = 0x0806;
    /// Reverse ARP.
    pub const RARP: u16 = 0x8035;
    /// 802.1Q customer VLAN tag.
    pub const VLAN: u16 = 0x8100;
    /// IPv6 (RFC 2464).
    pub const IPV6: u16 = 0x86dd;
    /// MPLS unicast.
    pub const MPLS: u16 = 0x8847;
    /// MPLS multicast.
    pub const MPLS_MULTICAST: u16 = 0x8848;
    /// 802.1ad service VLAN tag.
    pub const VLAN_SERVICE: u16 = 0x88a8;
    /// Network Service Header (RFC 8300).
    pub const NSH: u16 = 0x894f;
    /// The smallest value that is a type. A smaller value is an 802.3 length.
    pub const MIN: u16 = 0x0600;

    /// Returns true for the two VLAN tag types.
    pub const fn is_vlan(t: u16) -> bool {
        matches!(t, VLAN | VLAN_SERVICE)
    }

    /// Returns true for the two MPLS types.
    pub const fn is_mpls(t: u16) -> bool {
        matches!(t, MPLS | MPLS_MULTICAST)
    }
}

/// Ethernet header, 14 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct EthernetHeader {
    /// Destination address.
    pub dst: [u8; 6],
    /// Source address.
    pub src: [u8; 6],
    /// Type, or a length if below [`ethertype::MIN`].
    pub ethertype: U16,
}

/// VLAN tag after the addresses, 4 bytes. The inner type follows it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct VlanHeader {
    /// Tag protocol identifier.
    pub tpid: U16,
    /// Priority, DEI, VLAN id.
    pub tci: U16,
}

/// 802.2 LLC header with SNAP, 8 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LlcSnapHeader {
    /// DSAP, SSAP and control: aa aa 03 for SNAP.
    pub llc: [u8; 3],
    /// SNAP organisation: zero for Ethernet types.
    pub organisation: [u8; 3],
    /// SNAP type.
    pub ethertype: U16,
}

impl LlcSnapHeader {
    /// Returns true when [`LlcSnapHeader::ethertype`] is an Ethernet type (RFC 1042).
    pub fn is_ethernet(&self) -> bool {
        self.llc == [0xaa, 0xaa, 0x03]
            && self.organisation == [0; 3]
            && self.ethertype.get() >= ethertype::MIN
    }
}

/// MPLS label stack entry, 4 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct MplsEntry(pub U32);

impl MplsEntry {
    /// Creates an entry of label (20 bits), traffic class (3 bits), bottom of stack and TTL.
    pub fn new(label: u32, tc: u8, bottom: bool, ttl: u8) -> MplsEntry {
        let word = (label & 0xf_ffff) << 12
            | u32::from(tc & 7) << 9
            | u32::from(bottom) << 8
            | u32::from(ttl);
        MplsEntry(U32::new(word))
    }

    /// Returns the label, 20 bits.
    pub fn label(&self) -> u32 {
        self.0.get() >> 12
    }

    /// Returns the traffic class, 3 bits.
    pub fn tc(&self) -> u8 {
        (self.0.get() >> 9 & 7) as u8
    }

    /// Returns true for the last entry of a stack.
    pub fn is_bottom(&self) -> bool {
        self.0.get() & 0x100 != 0
    }

    /// Returns the time to live.
    pub fn ttl(&self) -> u8 {
        self.0.get() as u8
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The fields of a tunnel that belong to a packet, in place of its outer headers.

use crate::encode;
use crate::options::Options;
use std::net::{IpAddr, Ipv4Addr};

/// Bits of [`Metadata::flags`], with the numbers of Open vSwitch (`FLOW_TNL_F_*`).
pub mod flags {
    /// Geneve: a control packet (RFC 8926, 3.4).
    pub const OAM: u16 = 1;
    /// The outer IPv4 header has DF. Not set for received packets.
    pub const DONT_FRAGMENT: u16 = 2;
    /// The UDP or GRE header has a checksum.
    pub const CHECKSUM: u16 = 4;
    /// The header has a key, so that a `tun_id` of 0 is a value.
    pub const KEY: u16 = 8;
}

/// VXLAN group policy (draft-smith-vxlan-group-policy).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Gbp {
    /// Group policy id.
    pub id: u16,
    /// 0x40: do not learn; 0x08: policy was applied.
    pub flags: u8,
}

/// Fields of an ERSPAN header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Erspan {
    /// Type II.
    V1 {
        /// Port index, 20 bits.
        index: u32,
    },
    /// Type III.
    V2 {
        /// The mirrored packet was sent, not received.
        is_egress: bool,
        /// Hardware id, 6 bits.
        hardware_id: u8,
    },
}

impl Erspan {
    /// Returns the fields in the last 16 bits of a header of type III.
    pub(crate) fn v2_of(word: u16) -> Erspan {
        let hardware_id = (word >> 4 & 0x3f) as u8; // 6 bits
        Erspan::V2 { is_egress: word & encode::ERSPAN_EGRESS != 0, hardware_id }
    }
}

/// Fields of a GTP-U header (3GPP TS 29.281, 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gtpu {
    /// The first octet: version, protocol type and the bits E, S and PN.
    pub flags: u8,
    /// Message type; 255 carries user data.
    pub msgtype: u8,
}

/// Fields that only one kind of tunnel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Extension {
    /// None of them.
    #[default]
    None,
    /// VXLAN with group policy.
    Gbp(Gbp),
    /// ERSPAN.
    Erspan(Erspan),
    /// GTP-U.
    Gtpu(Gtpu),
}

/// The type of a tunnel's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Payload {
    /// An Ethernet frame.
    #[default]
    Ethernet,
    /// A packet without an Ethernet header, of this Ethernet type.
    Layer3(u16),
}

impl Payload {
    /// Returns the OpenFlow packet type: namespace (16 bits) and type; 0 for Ethernet (OpenFlow
    /// 1.5.1, 7.2.3.11).
    pub const fn packet_type(self) -> u32 {
        match self {
            Payload::Ethernet => 0,
            Payload::Layer3(ethertype) => 1 << 16 | ethertype as u32,
        }
    }

    /// Returns the payload with this packet type; `None` for namespaces other than Ethernet and
    /// Ethernet type.
    pub const fn from_packet_type(packet_type: u32) -> Option<Payload> {
        match packet_type >> 16 {
            0 if packet_type == 0 => Some(Payload::Ethernet),
            1 => Some(Payload::Layer3(packet_type as u16)),
            _ => None,
        }
    }
}

/// The tunnel fields of a packet. A received packet has those of the headers that were taken off. A
/// packet to send has those that its headers will have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Metadata {
    /// Key: VNI, GRE key, ERSPAN session or TEID. In NVGRE (RFC 7637) the VSID is in bits 8 to 31.
    pub tun_id: u64,
    /// Outer source address; unspecified when it is still to be chosen.
    pub src: IpAddr,
    /// Outer destination address.
    pub dst: IpAddr,
    /// Outer type of service or traffic class, with ECN.
    pub tos: u8,
    /// Outer time to live or hop limit.
    pub ttl: u8,
    /// UDP source port; 0 without UDP.
    pub tp_src: u16,
    /// UDP destination port; 0 without UDP.
    pub tp_dst: u16,
    /// Bits of [`flags`].
    pub flags: u16,
    /// Fields of one kind.
    pub extension: Extension,
    /// Options of a Geneve header, as they are in it.
    pub options: Options,
}

impl Default for Metadata {
    fn default() -> Metadata {
        Metadata {
            tun_id: 0,
            src: Ipv4Addr::UNSPECIFIED.into(),
            dst: Ipv4Addr::UNSPECIFIED.into(),
            tos: 0,
            ttl: 0,
            tp_src: 0,
            tp_dst: 0,
            flags: 0,
            extension: Extension::None,
            options: Options::EMPTY,
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The bytes of headers: constants, and encoding of [`HeaderParts`].

use crate::ETHERTYPE_TEB;
use crate::header::{Encapsulation, HeaderParts, OuterIp, Udp};
use crate::metadata::{Erspan, Payload};
use packet::{EthernetHeader, IntoBytes, Ipv4Header, Ipv6Header, UdpHeader, checksum, ethertype};
use zerocopy::network_endian::{U16, U32};

// Bits of the first word of a VXLAN header.
/// A VNI is there (RFC 7348, 5).
pub(crate) const VXLAN_VNI: u32 = 0x0800_0000;
/// The header has a group policy (draft-smith-vxlan-group-policy, 2.1).
pub(crate) const VXLAN_GROUP_POLICY: u32 = 0x8000_0000;
/// The last octet is the next protocol (draft-ietf-nvo3-vxlan-gpe, 3.1).
pub(crate) const VXLAN_GPE_PROTOCOL: u32 = 0x0400_0000;
/// A control packet of the generic protocol extension.
pub(crate) const VXLAN_GPE_OAM: u32 = 0x0100_0000;
/// The version of the generic protocol extension.
pub(crate) const VXLAN_GPE_VERSION: u32 = 0x3000_0000;
/// Bits of a group policy's second octet: do not learn, and policy was applied.
pub(crate) const GBP_FLAGS: u8 = 0x48;

/// Geneve: the bits O and C of the second octet (RFC 8926, 3.4).
pub(crate) const GENEVE_OAM: u8 = 0x80;
pub(crate) const GENEVE_CRITICAL: u8 = 0x40;

/// Bits of a GRE header's first 16 bits (RFC 2784, RFC 2890).
pub(crate) const GRE_CHECKSUM: u16 = 0x8000;
pub(crate) const GRE_KEY: u16 = 0x2000;
pub(crate) const GRE_SEQUENCE: u16 = 0x1000;

/// GRE protocols of ERSPAN types II and III (draft-foschiano-erspan-03, 4.1).
pub(crate) const ERSPAN_V1: u16 = 0x88be;
pub(crate) const ERSPAN_V2: u16 = 0x22eb;
/// The session in the first word of an ERSPAN header.
pub(crate) const ERSPAN_SESSION: u32 = 0x3ff;
/// The index in the second word of type II.
pub(crate) const ERSPAN_INDEX: u32 = 0xf_ffff;
/// Offset of the timestamp of type III, after the outer IP header.
pub(crate) const ERSPAN_TIMESTAMP_AT: usize = 12;
/// The direction in the last 16 bits of type III.
pub(crate) const ERSPAN_EGRESS: u16 = 0x0008;

/// GTP-U: the protocol type bit, the extension bit, the sequence bit, and all bits with which four optional octets
/// follow (3GPP TS 29.281, 5.1).
pub(crate) const GTPU_PROTOCOL_TYPE: u8 = 0x10;
pub(crate) const GTPU_EXTENSION: u8 = 0x04;
pub(crate) const GTPU_SEQUENCE: u8 = 0x02;
pub(crate) const GTPU_OPTIONAL: u8 = 0x07;
/// GTP-U: offset of the sequence number.
pub(crate) const GTPU_SEQUENCE_AT: usize = 8;
/// GTP-U: the message type of user data.
pub(crate) const GTPU_USER_DATA: u8 = 255;

/// Type of a segment routing header (RFC 8754, 2).
pub(crate) const SEGMENT_ROUTING: u8 = 4;

/// Offset of the IP header in the bytes of a header: there are no VLAN tags.
pub(crate) const L3: usize = size_of::<EthernetHeader>();

/// The payload that a next protocol of VXLAN-GPE stands for.
pub(crate) fn payload_of_gpe(protocol: u8) -> Option<Payload> {
    match protocol {
        1 => Some(Payload::Layer3(ethertype::IPV4)),
        2 => Some(Payload::Layer3(ethertype::IPV6)),
        3 => Some(Payload::Ethernet),
        4 => Some(Payload::Layer3(ethertype::NSH)),
        _ => None,
    }
}

/// The next protocol of VXLAN-GPE for a payload.
pub(crate) fn gpe_of_payload(payload: Payload) -> Option<u8> {
    (1..=4).find(|protocol| payload_of_gpe(*protocol) == Some(payload))
}

/// The GRE protocol of a payload.
pub(crate) fn gre_of_payload(payload: Payload) -> u16 {
    match payload {
        Payload::Ethernet => ETHERTYPE_TEB,
        Payload::Layer3(ethertype) => ethertype,
    }
}

/// Encodes headers. Lengths, checksums other than that of the IPv4 header, the UDP source port and
/// sequence numbers are zero; the IPv4 header's checksum is that of these bytes.
pub(crate) fn encode(parts: &HeaderParts) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    ip(&mut out, parts);
    match &parts.encapsulation {
        Encapsulation::Vxlan { udp, flags, vni } => {
            push_udp(&mut out, udp);
            out.extend_from_slice(&flags.to_be_bytes());
            out.extend_from_slice(&(vni << 8).to_be_bytes());
        }
        Encapsulation::Geneve { udp, is_oam, is_critical, vni, options } => {
            push_udp(&mut out, udp);
            let options = options.as_bytes();
            let oam = if *is_oam { GENEVE_OAM } else { 0 };
            let critical = if *is_critical { GENEVE_CRITICAL } else { 0 };
            out.extend_from_slice(&[(options.len() / 4) as u8, oam | critical]); // at most 63
            out.extend_from_slice(&ETHERTYPE_TEB.to_be_bytes());
            out.extend_from_slice(&(vni << 8).to_be_bytes());
            out.extend_from_slice(options);
        }
        Encapsulation::Gtpu { udp, flags, msgtype, teid } => {
            push_udp(&mut out, udp);
            out.extend_from_slice(&[*flags, *msgtype, 0, 0]);
            out.extend_from_slice(&teid.to_be_bytes());
            if flags & GTPU_OPTIONAL != 0 {
                out.extend_from_slice(&[0; 4]);
            }
        }
        Encapsulation::Bareudp { udp } => push_udp(&mut out, udp),
        Encapsulation::Gre { protocol, has_checksum, key, has_sequence } => {
            let bit = |is_set: bool, bit: u16| if is_set { bit } else { 0 };
            let bits = bit(*has_checksum, GRE_CHECKSUM)
                | bit(key.is_some(), GRE_KEY)
                | bit(*has_sequence, GRE_SEQUENCE);
            out.extend_from_slice(&bits.to_be_bytes());
            out.extend_from_slice(&protocol.to_be_bytes());
            if *has_checksum {
                out.extend_from_slice(&[0; 4]);
            }
            if let Some(key) = key {
                out.extend_from_slice(&key.to_be_bytes());
            }
            if *has_sequence {
                out.extend_from_slice(&[0; 4]);
            }
        }
        Encapsulation::Erspan { session, erspan } => {
            let (version, protocol) = match erspan {
                Erspan::V1 { .. } => (1u32, ERSPAN_V1),
                Erspan::V2 { .. } => (2, ERSPAN_V2),
            };
            out.extend_from_slice(&GRE_SEQUENCE.to_be_bytes());
            out.extend_from_slice(&protocol.to_be_bytes());
            out.extend_from_slice(&[0; 4]);
            let session = u32::from(*session) & ERSPAN_SESSION;
            out.extend_from_slice(&(version << 28 | session).to_be_bytes());
            match erspan {
                Erspan::V1 { index } => {
                    out.extend_from_slice(&(index & ERSPAN_INDEX).to_be_bytes());
                }
                Erspan::V2 { is_egress, hardware_id } => {
                    let direction = if *is_egress { ERSPAN_EGRESS } else { 0 };
                    let word = u16::from(hardware_id & 0x3f) << 4 | direction;
                    out.extend_from_slice(&[0; 6]); // timestamp, security group tag
                    out.extend_from_slice(&word.to_be_bytes());
                }
            }
        }
        Encapsulation::Srv6 { segments_left, segments, .. } => {
            let count = segments.len().min(127); // `Header::new` allows no more
            // Next header per packet; length in units of 8 octets after the first; last entry.
            let last = count.saturating_sub(1) as u8;
            out.extend_from_slice(&[0, (count * 2) as u8, SEGMENT_ROUTING, *segments_left]);
            out.extend_from_slice(&[last, 0, 0, 0]);
            for segment in segments.iter().take(count).rev() {
                out.extend_from_slice(&segment.octets());
            }
        }
    }
    out
}

fn ip(out: &mut Vec<u8>, parts: &HeaderParts) {
    let proto = parts.encapsulation.protocol();
    let kind = match parts.ip {
        OuterIp::V4 { .. } => ethertype::IPV4,
        OuterIp::V6 { .. } => ethertype::IPV6,
    };
    let ethernet =
        EthernetHeader { dst: parts.eth_dst, src: parts.eth_src, ethertype: U16::new(kind) };
    out.extend_from_slice(ethernet.as_bytes());
    match parts.ip {
        OuterIp::V4 { src, dst, tos, ttl, fragment } => {
            let mut ip = Ipv4Header {
                version_ihl: 0x45,
                tos,
                total_len: U16::ZERO,
                id: U16::ZERO,
                fragment: U16::new(fragment),
                ttl,
                proto,
                checksum: U16::ZERO,
                src: U32::new(src.to_bits()),
                dst: U32::new(dst.to_bits()),
            };
            ip.checksum.set(checksum::internet(ip.as_bytes()));
            out.extend_from_slice(ip.as_bytes());
        }
        OuterIp::V6 { src, dst, label, traffic_class, hop_limit } => {
            let mut ip = Ipv6Header {
                version_class_label: U32::new(6 << 28),
                payload_len: U16::ZERO,
                next: proto,
                hop_limit,
                src: src.octets(),
                dst: dst.octets(),
            };
            ip.set_traffic_class(traffic_class);
            ip.set_label(label);
            out.extend_from_slice(ip.as_bytes());
        }
    }
}

fn push_udp(out: &mut Vec<u8>, udp: &Udp) {
    let header =
        UdpHeader { src: U16::ZERO, dst: U16::new(udp.dst), len: U16::ZERO, checksum: U16::ZERO };
    out.extend_from_slice(header.as_bytes());
}

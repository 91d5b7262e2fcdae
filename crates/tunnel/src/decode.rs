// SPDX-License-Identifier: Apache-2.0
//! Decoding of outer headers.

use crate::metadata::{Erspan, Extension, Gbp, Gtpu, Metadata, Payload, flags};
use crate::options::Options;
use crate::outer::{Checks, Outer, OuterUdp};
use crate::port::PortConfig;
use crate::{ETHERTYPE_TEB, Kind, encode};
use packet::{EthernetHeader, Gso, Offload, Packet, ethertype, ip_proto};

/// Why a frame is no packet of a tunnel port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum DecodeError {
    /// The outer packet is neither IPv4 nor IPv6.
    #[error("the outer packet is not IP")]
    NotIp,
    /// A header ends after the packet, or a length field is impossible.
    #[error("a header or a length exceeds the packet")]
    Length,
    /// The outer IPv4 header has options.
    #[error("IP options are not supported on tunnel packets")]
    IpOptions,
    /// The outer packet is a fragment.
    #[error("the outer packet is a fragment")]
    Fragment,
    /// The checksum of the outer IPv4 header is wrong.
    #[error("the IP header has a wrong checksum")]
    IpChecksum,
    /// The IP protocol is another tunnel's.
    #[error("the IP protocol is not that of the tunnel")]
    Protocol,
    /// The checksum of UDP or GRE is wrong.
    #[error("the checksum is wrong")]
    Checksum,
    /// The header has an unknown version.
    #[error("unknown version of the tunnel's header")]
    Version,
    /// A flag is set that must not be, or one that must be is not.
    #[error("unexpected flags in the tunnel's header")]
    Flags,
    /// A reserved field is not zero.
    #[error("a reserved field is not zero")]
    Reserved,
    /// The payload is of a type that the tunnel cannot carry.
    #[error("unknown type of payload")]
    PayloadType,
    /// The packet of a segment route has not arrived at its last segment.
    #[error("there are segments left")]
    SegmentsLeft,
    /// No headers of this kind of tunnel are known here.
    #[error("there is no decoder for this kind of tunnel")]
    Unsupported,
}

/// A received packet of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The fields of the outer headers.
    pub metadata: Metadata,
    /// The type of the payload.
    pub payload: Payload,
    /// Offset of the payload in the frame. 0 for messages of GTP-U without user data, which stay
    /// whole, as in Open vSwitch: the receiver needs their headers.
    pub payload_at: usize,
    /// The end of the payload by the outer length fields. The bytes after it are a trailer, which
    /// stays with the inner packet.
    pub payload_end: usize,
}

impl Decoded {
    /// Takes the outer headers off the packet from which this was decoded. The inner packet's
    /// unfinished work stays; that of the outer headers is gone with them. A trailer of the outer
    /// packet becomes one of the inner packet, as in Open vSwitch: the lengths in the inner headers
    /// say where the inner packet ends.
    ///
    /// A packet that is to be segmented in an outer header
    /// ([`Decoded::is_segmented_outside`]) must be segmented before.
    pub fn strip(&self, packet: &mut Packet) {
        let is_outer = |(start, _): (u16, u16)| usize::from(start) < self.payload_at;
        if packet.offload.csum.is_some_and(is_outer) {
            packet.offload.csum = None;
            packet.offload.gso = None;
        }
        // The device may have verified the outer checksum only.
        packet.offload.csum_valid = false;
        packet.remove_at(0, self.payload_at);
    }

    /// Returns true when segmentation is left to do whose segments each have the outer headers, such
    /// as that of several tunnel packets that a device joined.
    pub fn is_segmented_outside(&self, offload: &Offload) -> bool {
        let is_inner = |(start, _): (u16, u16)| usize::from(start) >= self.payload_at;
        // A datagram that is still to be cut into fragments is whole.
        let is_joined = offload.gso.is_some_and(|(kind, _, _)| kind != Gso::UdpFragment);
        is_joined && !offload.csum.is_some_and(is_inner)
    }
}

/// Decodes the outer headers of `frame`, whose IP header is at `l3`, as a packet that `port`
/// receives. `offload` describes the work that the frame's sender left to devices.
///
/// The caller has found the port by the frame's protocol and UDP port: these are not compared.
///
/// # Errors
///
/// [`DecodeError`]; `checks` counts also what was verified before it.
pub fn decode(
    frame: &[u8],
    l3: usize,
    offload: &Offload,
    port: &PortConfig,
    checks: &mut Checks,
) -> Result<Decoded, DecodeError> {
    let outer = Outer::parse(frame, l3, offload, checks)?;
    let decoded = match port.kind {
        Kind::Vxlan => vxlan(&outer, &outer.udp(checks)?, port),
        Kind::Geneve => geneve(&outer, &outer.udp(checks)?),
        Kind::Gtpu => gtpu(&outer, &outer.udp(checks)?, frame.len()),
        Kind::Bareudp => bareudp(&outer, &outer.udp(checks)?, port),
        Kind::Gre | Kind::Ip6Gre => gre(&outer),
        Kind::Erspan | Kind::Ip6Erspan => erspan(&outer),
        Kind::Srv6 => srv6(&outer),
        Kind::Lisp | Kind::Stt => Err(DecodeError::Unsupported),
    }?;
    let least = match decoded.payload {
        Payload::Ethernet => size_of::<EthernetHeader>(),
        Payload::Layer3(_) => 1,
    };
    if decoded.payload_end.saturating_sub(decoded.payload_at) < least {
        return Err(DecodeError::Length);
    }
    Ok(decoded)
}

/// The metadata of the outer IP header.
fn of_ip(outer: &Outer<'_>) -> Metadata {
    Metadata {
        src: outer.src,
        dst: outer.dst,
        tos: outer.tos,
        ttl: outer.ttl,
        ..Metadata::default()
    }
}

fn of_udp(outer: &Outer<'_>, udp: &OuterUdp) -> Metadata {
    let flags = if udp.has_checksum { flags::CHECKSUM } else { 0 };
    Metadata { tp_src: udp.src, tp_dst: udp.dst, flags, ..of_ip(outer) }
}

/// RFC 7348, 5; draft-ietf-nvo3-vxlan-gpe, 3; draft-smith-vxlan-group-policy, 2.1.
fn vxlan(outer: &Outer<'_>, udp: &OuterUdp, port: &PortConfig) -> Result<Decoded, DecodeError> {
    let (payload_at, [flags, vni]) = words(outer, udp.data_at)?;
    let mut metadata = of_udp(outer, udp);
    let mut payload = Payload::Ethernet;
    let mut rest = flags;
    if port.has_group_policy {
        if flags & encode::VXLAN_GROUP_POLICY != 0 {
            let gbp = Gbp { id: flags as u16, flags: (flags >> 16) as u8 };
            if gbp.flags & !encode::GBP_FLAGS != 0 {
                return Err(DecodeError::Reserved);
            }
            metadata.extension = Extension::Gbp(gbp);
            rest &= !(encode::VXLAN_GROUP_POLICY | 0xff_ffff);
        }
    } else if flags & encode::VXLAN_GPE_PROTOCOL != 0 {
        if flags & encode::VXLAN_GPE_OAM != 0 {
            return Err(DecodeError::Flags);
        }
        if flags & encode::VXLAN_GPE_VERSION != 0 {
            return Err(DecodeError::Version);
        }
        payload = encode::payload_of_gpe(flags as u8).ok_or(DecodeError::PayloadType)?;
        rest &= !(encode::VXLAN_GPE_PROTOCOL | 0xff);
    }
    if rest & encode::VXLAN_VNI == 0 {
        return Err(DecodeError::Flags);
    }
    if rest != encode::VXLAN_VNI || vni & 0xff != 0 {
        return Err(DecodeError::Reserved);
    }
    metadata.tun_id = u64::from(vni >> 8);
    metadata.flags |= flags::KEY;
    Ok(Decoded { metadata, payload, payload_at, payload_end: udp.end })
}

/// RFC 8926, 3.4. Reserved bits are ignored on receipt. Options stay bytes: a bridge's table gives
/// them a meaning, and drops the packet when a critical one has none.
fn geneve(outer: &Outer<'_>, udp: &OuterUdp) -> Result<Decoded, DecodeError> {
    let (options_at, [first, vni]) = words(outer, udp.data_at)?;
    let [version_length, bits, ..] = first.to_be_bytes();
    if version_length >> 6 != 0 {
        return Err(DecodeError::Version);
    }
    if first as u16 != ETHERTYPE_TEB {
        return Err(DecodeError::PayloadType);
    }
    let payload_at = options_at + usize::from(version_length & 0x3f) * 4;
    if payload_at > udp.end {
        return Err(DecodeError::Length);
    }
    let options = Options::new(outer.range(options_at, payload_at)?).ok_or(DecodeError::Length)?;
    let mut metadata = of_udp(outer, udp);
    metadata.tun_id = u64::from(vni >> 8);
    metadata.flags |= flags::KEY;
    if bits & encode::GENEVE_OAM != 0 {
        metadata.flags |= flags::OAM;
    }
    metadata.options = options;
    Ok(Decoded { metadata, payload: Payload::Ethernet, payload_at, payload_end: udp.end })
}

/// 3GPP TS 29.281, 5.1 and 5.2.
fn gtpu(outer: &Outer<'_>, udp: &OuterUdp, whole: usize) -> Result<Decoded, DecodeError> {
    let (mut payload_at, [first, teid]) = words(outer, udp.data_at)?;
    let [gtpu_flags, msgtype, ..] = first.to_be_bytes();
    if gtpu_flags >> 5 != 1 {
        return Err(DecodeError::Version);
    }
    if gtpu_flags & encode::GTPU_PROTOCOL_TYPE == 0 {
        return Err(DecodeError::Flags); // GTP', for charging
    }
    let mut metadata = of_udp(outer, udp);
    metadata.tun_id = u64::from(teid);
    metadata.extension = Extension::Gtpu(Gtpu { flags: gtpu_flags, msgtype });
    if msgtype != encode::GTPU_USER_DATA {
        let payload = Payload::Ethernet;
        return Ok(Decoded { metadata, payload, payload_at: 0, payload_end: whole });
    }
    // The length counts the bytes after the first eight.
    let payload_end = payload_at + usize::from(first as u16);
    if payload_end > udp.end {
        return Err(DecodeError::Length);
    }
    if gtpu_flags & encode::GTPU_OPTIONAL != 0 {
        let [_, _, _, mut next] = *outer.bytes::<4>(payload_at)?;
        payload_at += 4;
        if gtpu_flags & encode::GTPU_EXTENSION == 0 {
            next = 0;
        }
        while next != 0 {
            let [units] = *outer.bytes::<1>(payload_at)?;
            let len = usize::from(units) * 4;
            if len == 0 || payload_at + len > payload_end {
                return Err(DecodeError::Length);
            }
            [next] = *outer.bytes::<1>(payload_at + len - 1)?;
            payload_at += len;
        }
    }
    if payload_at >= payload_end {
        return Err(DecodeError::Length);
    }
    let payload = ip_payload(outer, payload_at)?;
    Ok(Decoded { metadata, payload, payload_at, payload_end })
}

fn bareudp(outer: &Outer<'_>, udp: &OuterUdp, port: &PortConfig) -> Result<Decoded, DecodeError> {
    let payload_at = udp.data_at;
    if payload_at >= udp.end {
        return Err(DecodeError::Length);
    }
    let payload = match port.payload_type {
        ethertype::IPV4 | ethertype::IPV6 => ip_payload(outer, payload_at)?,
        other => Payload::Layer3(other),
    };
    Ok(Decoded { metadata: of_udp(outer, udp), payload, payload_at, payload_end: udp.end })
}

/// The payload at `at` by the version in its first byte.
fn ip_payload(outer: &Outer<'_>, at: usize) -> Result<Payload, DecodeError> {
    let [first] = *outer.bytes::<1>(at)?;
    match first >> 4 {
        4 => Ok(Payload::Layer3(ethertype::IPV4)),
        6 => Ok(Payload::Layer3(ethertype::IPV6)),
        _ => Err(DecodeError::PayloadType),
    }
}

/// RFC 2784, 2; RFC 2890, 2.
fn gre(outer: &Outer<'_>) -> Result<Decoded, DecodeError> {
    outer.expect(ip_proto::GRE)?;
    let [a, b, c, d] = *outer.bytes::<4>(outer.l4)?;
    let bits = u16::from_be_bytes([a, b]);
    if bits & !(encode::GRE_CHECKSUM | encode::GRE_KEY | encode::GRE_SEQUENCE) != 0 {
        return Err(DecodeError::Flags);
    }
    let mut metadata = of_ip(outer);
    let mut payload_at = outer.l4 + 4;
    if bits & encode::GRE_CHECKSUM != 0 {
        outer.bytes::<4>(payload_at)?;
        outer.verify_gre()?;
        metadata.flags |= flags::CHECKSUM;
        payload_at += 4;
    }
    if bits & encode::GRE_KEY != 0 {
        metadata.tun_id = u32::from_be_bytes(*outer.bytes(payload_at)?).into();
        metadata.flags |= flags::KEY;
        payload_at += 4;
    }
    if bits & encode::GRE_SEQUENCE != 0 {
        outer.bytes::<4>(payload_at)?;
        payload_at += 4;
    }
    let payload = match u16::from_be_bytes([c, d]) {
        ETHERTYPE_TEB => Payload::Ethernet,
        kind if kind >= ethertype::MIN => Payload::Layer3(kind),
        _ => return Err(DecodeError::PayloadType),
    };
    Ok(Decoded { metadata, payload, payload_at, payload_end: outer.end })
}

/// draft-foschiano-erspan-03, 4.2 and 4.3. A header without a sequence number is of type I, which
/// has no ERSPAN header.
fn erspan(outer: &Outer<'_>) -> Result<Decoded, DecodeError> {
    outer.expect(ip_proto::GRE)?;
    let [a, b, c, d, _, _, _, _] = *outer.bytes::<8>(outer.l4)?;
    if u16::from_be_bytes([a, b]) != encode::GRE_SEQUENCE {
        return Err(DecodeError::Flags);
    }
    let kind = u16::from_be_bytes([c, d]);
    if !matches!(kind, encode::ERSPAN_V1 | encode::ERSPAN_V2) {
        return Err(DecodeError::PayloadType);
    }
    let at = outer.l4 + 8;
    let first = u32::from_be_bytes(*outer.bytes(at)?);
    let mut metadata = of_ip(outer);
    metadata.tun_id = u64::from(first & encode::ERSPAN_SESSION);
    metadata.flags |= flags::KEY;
    let (erspan, len) = match (first >> 28, kind) {
        (1, encode::ERSPAN_V1) => {
            let index = u32::from_be_bytes(*outer.bytes(at + 4)?) & encode::ERSPAN_INDEX;
            (Erspan::V1 { index }, 8)
        }
        (2, encode::ERSPAN_V2) => {
            let word = u16::from_be_bytes(*outer.bytes(at + 10)?);
            (Erspan::v2_of(word), 12)
        }
        _ => return Err(DecodeError::Version),
    };
    metadata.extension = Extension::Erspan(erspan);
    let payload_at = at + len;
    Ok(Decoded { metadata, payload: Payload::Ethernet, payload_at, payload_end: outer.end })
}

/// RFC 8754, 2; RFC 8986, 4.
fn srv6(outer: &Outer<'_>) -> Result<Decoded, DecodeError> {
    let at = outer.routing_at.ok_or(DecodeError::Protocol)?;
    let [_, _, kind, segments_left] = *outer.bytes::<4>(at)?;
    if kind != encode::SEGMENT_ROUTING {
        return Err(DecodeError::Version);
    }
    if segments_left != 0 {
        return Err(DecodeError::SegmentsLeft);
    }
    let payload = match outer.proto {
        ip_proto::IPV4 => Payload::Layer3(ethertype::IPV4),
        ip_proto::IPV6 => Payload::Layer3(ethertype::IPV6),
        _ => return Err(DecodeError::PayloadType),
    };
    let (payload_at, payload_end) = (outer.l4, outer.end);
    Ok(Decoded { metadata: of_ip(outer), payload, payload_at, payload_end })
}

/// Reads the two words of the 8-byte headers over UDP, and returns the offset after them.
fn words(outer: &Outer<'_>, at: usize) -> Result<(usize, [u32; 2]), DecodeError> {
    let [a, b, c, d, e, f, g, h] = *outer.bytes::<8>(at)?;
    Ok((at + 8, [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]))
}

// SPDX-License-Identifier: Apache-2.0
//! The report to the sender of a packet that is too long for the path of a tunnel (RFC 792 with
//! RFC 1191, section 4; RFC 4443, section 3.2).

use packet::build::Frame;
use packet::{
    EthernetHeader, FromBytes, IcmpHeader, Ipv4Header, Ipv6Extensions, Ipv6Header, ethertype,
    ip_proto,
};
use std::net::{Ipv4Addr, Ipv6Addr};
use zerocopy::network_endian::{U16, U32};

/// Longest ICMP message with its IP header, in bytes (RFC 1812, section 4.3.2.3).
const LONGEST_IPV4: usize = 576;
/// Likewise for ICMPv6: the least MTU (RFC 4443, section 2.4 c).
const LONGEST_IPV6: usize = 1280;
/// Least MTUs, in bytes (RFC 791, section 3.2; RFC 8200, section 5).
const LEAST_IPV4: u16 = 68;
const LEAST_IPV6: u16 = 1280;
/// Internetwork control (RFC 1812, section 4.3.2.5), for IPv4 and IPv6.
const PRECEDENCE: u8 = 0xc0;
const TTL: u8 = 64;
/// ICMP types that report errors (RFC 1122, section 3.2.2).
const ERRORS: [u8; 5] = [IcmpHeader::UNREACHABLE, 4, 5, 11, 12];
/// ICMPv6: the first type that reports no error.
const INFORMATIONAL: u8 = 128;

/// Returns the report to the sender of `frame` that IP packets may have `mtu` bytes at most. It comes
/// from the destination of `frame`, by the same VLANs. `frame` may lack bytes at its end.
///
/// Returns `None` where no report is allowed or of use: the packet is of IPv4 and may be fragmented or
/// is a fragment, reports an error itself, or has addresses of more than one station; the MTU is
/// below the least one; or the frame has no IP packet.
pub fn too_big(frame: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let (ethernet, mut rest) = EthernetHeader::ref_from_prefix(frame).ok()?;
    if is_group(ethernet.dst) || is_group(ethernet.src) {
        return None;
    }
    let mut report = Frame::ethernet(ethernet.src, ethernet.dst);
    let mut kind = ethernet.ethertype.get();
    while ethertype::is_vlan(kind) {
        let [a, b, c, d] = *rest.first_chunk::<4>()?;
        report = report.vlan(kind, u16::from_be_bytes([a, b]));
        kind = u16::from_be_bytes([c, d]);
        rest = rest.get(4..)?;
    }
    match kind {
        ethertype::IPV4 => ipv4(report, rest, mtu),
        ethertype::IPV6 => ipv6(report, rest, mtu),
        _ => None,
    }
}

fn is_group([first, ..]: [u8; 6]) -> bool {
    first & 1 != 0
}

fn ipv4(report: Frame, packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let (ip, _) = Ipv4Header::ref_from_prefix(packet).ok()?;
    let (src, dst) = (Ipv4Addr::from_bits(ip.src.get()), Ipv4Addr::from_bits(ip.dst.get()));
    let is_station = |address: Ipv4Addr| {
        !address.is_multicast() && !address.is_broadcast() && address.octets()[0] != 0
    };
    let is_whole = ip.fragment.get() == Ipv4Header::DONT_FRAGMENT;
    if !is_whole || !is_station(src) || src.is_loopback() || !is_station(dst) || mtu < LEAST_IPV4 {
        return None;
    }
    let header_len = ip.header_len().max(size_of::<Ipv4Header>());
    let payload = packet.get(header_len..)?;
    if ip.proto == ip_proto::ICMP && ERRORS.contains(payload.first()?) {
        return None;
    }
    let quoted = LONGEST_IPV4 - size_of::<Ipv4Header>() - size_of::<IcmpHeader>();
    let header = Ipv4Header {
        version_ihl: 0x45,
        tos: PRECEDENCE,
        total_len: U16::ZERO,
        id: U16::ZERO,
        fragment: U16::new(Ipv4Header::DONT_FRAGMENT),
        ttl: TTL,
        proto: 0,
        checksum: U16::ZERO,
        src: ip.dst,
        dst: ip.src,
    };
    let report = report
        .ipv4_header(header)
        .icmp(IcmpHeader::UNREACHABLE, IcmpHeader::FRAGMENTATION_NEEDED, mtu.into())
        .payload(packet.get(..quoted).unwrap_or(packet));
    Some(report.finish())
}

fn ipv6(report: Frame, packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let (ip, payload) = Ipv6Header::ref_from_prefix(packet).ok()?;
    let (src, dst) = (Ipv6Addr::from(ip.src), Ipv6Addr::from(ip.dst));
    let is_station = |address: Ipv6Addr| !address.is_multicast() && !address.is_unspecified();
    if !is_station(src) || src.is_loopback() || !is_station(dst) || mtu < LEAST_IPV6 {
        return None;
    }
    let extensions = Ipv6Extensions::walk(ip.next, payload)?;
    if extensions.proto == ip_proto::ICMPV6 && *payload.get(extensions.len)? < INFORMATIONAL {
        return None;
    }
    let quoted = LONGEST_IPV6 - size_of::<Ipv6Header>() - size_of::<IcmpHeader>();
    let mut header = Ipv6Header {
        version_class_label: U32::new(6 << 28),
        payload_len: U16::ZERO,
        next: 0,
        hop_limit: TTL,
        src: ip.dst,
        dst: ip.src,
    };
    header.set_traffic_class(PRECEDENCE);
    let report = report
        .ipv6_header(header)
        .icmpv6(IcmpHeader::PACKET_TOO_BIG, 0, mtu.into())
        .payload(packet.get(..quoted).unwrap_or(packet));
    Some(report.finish())
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: Apache-2.0
//! From an IP packet to its [`Tuple`].
//!
//! Extraction is total: any bytes give a tuple or the reason for which there is none. A packet
//! without a tuple is invalid for connection tracking.

use crate::segment::TcpSegment;
use crate::tuple::{Icmp, IcmpClass, Ports, Tuple};
use packet::checksum::{Sum, internet, sctp};
use packet::{
    FromBytes, IcmpHeader, Ipv4Header, Ipv6Extensions, Ipv6Header, SctpHeader, UdpHeader, ip_proto,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The IP version of a packet, by its Ethernet type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4 (RFC 791).
    V4,
    /// IPv6 (RFC 8200).
    V6,
}

/// Which checksums the extraction verifies. A device that verified one, or a sender that leaves one
/// to the device, makes the verification needless or impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksums {
    /// Verify the header checksum of IPv4.
    pub ip: bool,
    /// Verify the checksum of TCP, UDP, SCTP, ICMP or ICMPv6.
    pub transport: bool,
}

impl Checksums {
    /// Verify all.
    pub const ALL: Checksums = Checksums { ip: true, transport: true };
    /// Verify none.
    pub const NONE: Checksums = Checksums { ip: false, transport: false };
}

/// The reason for which a packet has no tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Untrackable {
    /// The IP header or an extension header is cut off, or its lengths are impossible.
    IpHeader,
    /// The checksum of the IPv4 header is wrong.
    IpChecksum,
    /// The packet is a fragment; it takes a reassembly to track it.
    Fragment,
    /// The transport header is cut off, or its lengths are impossible.
    TransportHeader,
    /// The checksum of the transport header is wrong.
    TransportChecksum,
    /// A port is zero.
    PortZero,
    /// An ICMP message that is neither request, reply nor error, or a request or reply with a
    /// code.
    IcmpKind,
    /// An ICMP error whose inner packet has no tuple, or does not come from the receiver.
    InnerPacket,
}

/// The inner packet of an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inner {
    /// Offset of its IP header in the outer packet.
    pub l3: usize,
    /// Offset of its transport header in the outer packet.
    pub l4: usize,
    /// Its own tuple, as the receiver of the error sent it.
    pub tuple: Tuple,
}

/// The result of an extraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extracted {
    /// The tuple in the direction of the packet; of an ICMP error, the reverse of the inner
    /// packet's tuple.
    pub tuple: Tuple,
    /// Offset of the transport header from the IP header.
    pub l4: usize,
    /// Offset of the end of the IP packet; padding follows.
    pub end: usize,
    /// The TCP segment, when the packet is TCP and no ICMP error.
    pub segment: Option<TcpSegment>,
    /// The inner packet, when the packet is an ICMP error.
    pub inner: Option<Inner>,
}

/// Whether a packet is whole, or quoted by an ICMP error and therefore cut off.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    Quoted,
}

/// An IP header.
struct Network<'a> {
    src: IpAddr,
    dst: IpAddr,
    proto: u8,
    /// Offset of the transport header.
    l4: usize,
    end: usize,
    /// The bytes between `l4` and `end`, as far as they are there.
    payload: &'a [u8],
    fragment: bool,
    /// Sum of the pseudo header for the payload's length.
    pseudo: Sum,
}

/// Bytes of a transport header that an ICMP error has to quote (RFC 792).
const QUOTED_LEN: usize = 8;

/// Extracts the tuple of the packet `bytes`, which begins with its IP header, for `zone`.
///
/// # Errors
///
/// The packet cannot be tracked.
pub fn extract(
    bytes: &[u8],
    family: Family,
    zone: u16,
    verify: Checksums,
) -> Result<Extracted, Untrackable> {
    let network = network(bytes, family, Extent::Whole)?;
    if verify.ip
        && family == Family::V4
        && bytes.get(..network.l4).is_none_or(|header| internet(header) != 0)
    {
        return Err(Untrackable::IpChecksum);
    }
    if network.fragment {
        return Err(Untrackable::Fragment);
    }
    let tuple =
        |ports| Tuple { src: network.src, dst: network.dst, ports, proto: network.proto, zone };
    let extracted =
        |tuple| Extracted { tuple, l4: network.l4, end: network.end, segment: None, inner: None };
    let transport = transport(&network, family)?;
    if verify.transport {
        verify_transport(&network, family)?;
    }
    match (transport, network.proto) {
        (Transport::Ports(ports), ip_proto::TCP) => {
            let segment =
                TcpSegment::decode(network.payload).ok_or(Untrackable::TransportHeader)?;
            Ok(Extracted { segment: Some(segment), ..extracted(tuple(ports)) })
        }
        (Transport::Ports(ports), proto) => {
            if proto == ip_proto::SCTP && network.payload.len() < size_of::<SctpHeader>() {
                return Err(Untrackable::TransportHeader);
            }
            if proto == ip_proto::UDP {
                let (header, _) = UdpHeader::ref_from_prefix(network.payload)
                    .map_err(|_| Untrackable::TransportHeader)?;
                // Open vSwitch lets a datagram be shorter than its packet.
                let len = usize::from(header.len.get());
                if len < size_of::<UdpHeader>() || len > network.payload.len() {
                    return Err(Untrackable::TransportHeader);
                }
            }
            Ok(extracted(tuple(ports)))
        }
        (Transport::Error, _) => {
            let at = network.l4 + size_of::<IcmpHeader>();
            let inner = quoted(bytes, at, network.end, family, zone)
                .filter(|inner| inner.tuple.src == network.dst)
                .ok_or(Untrackable::InnerPacket)?;
            Ok(Extracted { inner: Some(inner), ..extracted(inner.tuple.reversed()) })
        }
    }
}

/// Returns the packet that an ICMP error quotes at `at`.
fn quoted(bytes: &[u8], at: usize, end: usize, family: Family, zone: u16) -> Option<Inner> {
    let network = network(bytes.get(at..end)?, family, Extent::Quoted).ok()?;
    if network.fragment || network.payload.len() < QUOTED_LEN {
        return None;
    }
    let Transport::Ports(ports) = transport(&network, family).ok()? else {
        return None; // an error about an error
    };
    let tuple = Tuple { src: network.src, dst: network.dst, ports, proto: network.proto, zone };
    Some(Inner { l3: at, l4: at + network.l4, tuple })
}

fn network(bytes: &[u8], family: Family, extent: Extent) -> Result<Network<'_>, Untrackable> {
    network_or_none(bytes, family, extent).ok_or(Untrackable::IpHeader)
}

fn network_or_none(bytes: &[u8], family: Family, extent: Extent) -> Option<Network<'_>> {
    match family {
        Family::V4 => {
            let (ip, _) = Ipv4Header::ref_from_prefix(bytes).ok()?;
            if ip.version_ihl >> 4 != 4 {
                return None;
            }
            let (header, end) = match extent {
                Extent::Whole => ip.checked_lengths(bytes.len())?,
                Extent::Quoted => {
                    let header = ip.header_len();
                    (header >= size_of::<Ipv4Header>()).then_some((header, bytes.len()))?
                }
            };
            let payload = bytes.get(header..end)?;
            Some(Network {
                src: IpAddr::V4(Ipv4Addr::from_bits(ip.src.get())),
                dst: IpAddr::V4(Ipv4Addr::from_bits(ip.dst.get())),
                proto: ip.proto,
                l4: header,
                end,
                payload,
                fragment: ip.is_fragment(),
                pseudo: ip.pseudo_sum(u32::try_from(payload.len()).ok()?),
            })
        }
        Family::V6 => {
            let (ip, rest) = Ipv6Header::ref_from_prefix(bytes).ok()?;
            if ip.version_class_label.get() >> 28 != 6 {
                return None;
            }
            let len = match extent {
                Extent::Whole => ip.checked_payload_len(bytes.len())?,
                Extent::Quoted => rest.len(),
            };
            let body = rest.get(..len)?;
            let extensions = Ipv6Extensions::walk(ip.next, body)?;
            let payload = body.get(extensions.len..)?;
            let l4 = size_of::<Ipv6Header>() + extensions.len;
            Some(Network {
                src: IpAddr::V6(Ipv6Addr::from(ip.src)),
                dst: IpAddr::V6(Ipv6Addr::from(ip.dst)),
                proto: extensions.proto,
                l4,
                end: l4 + payload.len(),
                payload,
                fragment: extensions.is_fragment,
                pseudo: ip.pseudo_sum(extensions.proto, u32::try_from(payload.len()).ok()?),
            })
        }
    }
}

enum Transport {
    Ports(Ports),
    /// An ICMP error, which quotes a packet.
    Error,
}

/// Decodes the transport header as far as a quoted packet has it.
fn transport(network: &Network<'_>, family: Family) -> Result<Transport, Untrackable> {
    match (network.proto, family) {
        (ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP, _) => {
            if network.proto == ip_proto::SCTP && network.payload.len() < QUOTED_LEN {
                return Err(Untrackable::TransportHeader);
            }
            // Ports are the first two fields of all three headers.
            let (header, _) = UdpHeader::ref_from_prefix(network.payload)
                .map_err(|_| Untrackable::TransportHeader)?;
            let (src, dst) = (header.src.get(), header.dst.get());
            if src == 0 || dst == 0 {
                return Err(Untrackable::PortZero);
            }
            Ok(Transport::Ports(Ports::Pair { src, dst }))
        }
        (ip_proto::ICMP, Family::V4) | (ip_proto::ICMPV6, Family::V6) => {
            let (header, _) = IcmpHeader::ref_from_prefix(network.payload)
                .map_err(|_| Untrackable::TransportHeader)?;
            let (class, error) = match family {
                Family::V4 => (
                    IcmpClass::of_icmp(header.kind),
                    // Unreachable, source quench, redirect, time exceeded, parameter problem.
                    matches!(header.kind, 3 | 4 | 5 | 11 | 12),
                ),
                // Unreachable, too big, time exceeded, parameter problem.
                Family::V6 => (IcmpClass::of_icmpv6(header.kind), matches!(header.kind, 1..=4)),
            };
            if error {
                return Ok(Transport::Error);
            }
            let (class, request) = class.ok_or(Untrackable::IcmpKind)?;
            if header.code != 0 {
                return Err(Untrackable::IcmpKind);
            }
            let id = (header.rest.get() >> 16) as u16;
            Ok(Transport::Ports(Ports::Icmp(Icmp { class, request, code: header.code, id })))
        }
        _ => Ok(Transport::Ports(Ports::Pair { src: 0, dst: 0 })),
    }
}

/// Verifies the checksum over a whole payload.
fn verify_transport(network: &Network<'_>, family: Family) -> Result<(), Untrackable> {
    let payload = network.payload;
    let with_pseudo = || {
        let mut sum = network.pseudo;
        sum.add(payload);
        sum.finish() == 0
    };
    let good = match (network.proto, family) {
        (ip_proto::TCP, _) | (ip_proto::ICMPV6, Family::V6) => with_pseudo(),
        (ip_proto::UDP, _) => {
            let (header, _) =
                UdpHeader::ref_from_prefix(payload).map_err(|_| Untrackable::TransportHeader)?;
            // A UDP datagram over IPv4 may have no checksum (RFC 768).
            (header.checksum.get() == 0 && family == Family::V4) || with_pseudo()
        }
        (ip_proto::ICMP, Family::V4) => internet(payload) == 0,
        (ip_proto::SCTP, _) => {
            let (header, _) =
                SctpHeader::ref_from_prefix(payload).map_err(|_| Untrackable::TransportHeader)?;
            sctp(payload) == Some(header.checksum)
        }
        _ => true,
    };
    if good { Ok(()) } else { Err(Untrackable::TransportChecksum) }
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: Apache-2.0
//! Header parsing for devices: the offsets of a frame's layers, and the Internet checksum. Total
//! over any bytes.

use std::net::Ipv4Addr;

/// Bytes of an Ethernet header without tags.
pub(crate) const ETH_HEADER: usize = 14;
/// Bytes of one VLAN tag.
pub(crate) const VLAN_TAG: usize = 4;

/// Maximum bytes of an IPv6 header with extensions that is found inside of a tunnel.
const MOST_IPV6_HEADERS: usize = 40 + 256;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_ARP: u16 = 0x0806;
const TYPE_IPV6: u16 = 0x86dd;

pub(crate) const PROTO_IPV4: u8 = 4;
pub(crate) const PROTO_TCP: u8 = 6;
pub(crate) const PROTO_UDP: u8 = 17;
pub(crate) const PROTO_IPV6: u8 = 41;
pub(crate) const PROTO_GRE: u8 = 47;
pub(crate) const PROTO_SCTP: u8 = 132;

/// Reads a 16-bit number, most significant byte first.
pub(crate) fn be16(data: &[u8], at: usize) -> Option<u16> {
    let b = data.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes(*b))
}

/// Reads a 32-bit number, most significant byte first.
pub(crate) fn be32(data: &[u8], at: usize) -> Option<u32> {
    let b = data.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*b))
}

/// Writes `bytes` at `at`. Returns `None` when they do not fit.
pub(crate) fn put(data: &mut [u8], at: usize, bytes: &[u8]) -> Option<()> {
    data.get_mut(at..at.checked_add(bytes.len())?)?.copy_from_slice(bytes);
    Some(())
}

/// Returns the outermost EtherType or length field; `None` for less than an Ethernet header.
pub(crate) fn ethertype(frame: &[u8]) -> Option<u16> {
    be16(frame, 12)
}

/// Returns true for the EtherTypes of VLAN tags.
pub(crate) fn is_vlan(kind: u16) -> bool {
    matches!(kind, 0x8100 | 0x88a8)
}

/// IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ip {
    V4,
    V6,
}

/// The offsets of a frame's layers, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layers {
    pub ip: Ip,
    /// Start of the IP header.
    pub l3: usize,
    /// Start of the transport header; at most the frame's length.
    pub l4: usize,
    /// Offset of the byte with the transport protocol.
    pub proto_at: usize,
    pub proto: u8,
    /// The packet is a fragment, first or later.
    pub fragment: bool,
    /// End of the IP packet; bytes after it are padding.
    pub end: usize,
}

/// Returns true when MPLS labels follow the Ethernet header and its VLAN tags.
pub(crate) fn is_labelled(frame: &[u8]) -> bool {
    let mut types = (12..).step_by(VLAN_TAG).map_while(|at| be16(frame, at));
    types.find(|kind| !is_vlan(*kind)).is_some_and(is_mpls)
}

fn is_mpls(kind: u16) -> bool {
    matches!(kind, 0x8847 | 0x8848)
}

/// Finds the layers of the outermost IP packet after VLAN tags and MPLS labels. Returns `None` when
/// the frame has no complete IP header.
pub(crate) fn layers(frame: &[u8]) -> Option<Layers> {
    let mut at = 12;
    let mut kind = be16(frame, at)?;
    at += 2;
    while is_vlan(kind) {
        kind = be16(frame, at + 2)?;
        at += VLAN_TAG;
    }
    if is_mpls(kind) {
        loop {
            let label = be32(frame, at)?;
            at += 4;
            if label & 0x100 != 0 {
                break; // bottom of stack
            }
        }
        kind = match frame.get(at)? >> 4 {
            4 => TYPE_IPV4,
            6 => TYPE_IPV6,
            _ => return None,
        };
    }
    match kind {
        TYPE_IPV4 => ipv4(frame, at),
        TYPE_IPV6 => ipv6(frame, at),
        _ => None,
    }
}

fn ipv4(frame: &[u8], l3: usize) -> Option<Layers> {
    let first = *frame.get(l3)?;
    let length = usize::from(first & 15) * 4;
    let l4 = l3 + length;
    if first >> 4 != 4 || length < 20 || l4 > frame.len() {
        return None;
    }
    let end = (l3 + usize::from(be16(frame, l3 + 2)?)).clamp(l4, frame.len());
    Some(Layers {
        ip: Ip::V4,
        l3,
        l4,
        proto_at: l3 + 9,
        proto: *frame.get(l3 + 9)?,
        fragment: be16(frame, l3 + 6)? & 0x3fff != 0,
        end,
    })
}

fn ipv6(frame: &[u8], l3: usize) -> Option<Layers> {
    if *frame.get(l3)? >> 4 != 6 {
        return None;
    }
    let end = l3 + 40 + usize::from(be16(frame, l3 + 4)?);
    let mut proto_at = l3 + 6;
    let mut l4 = l3 + 40;
    let mut fragment = false;
    if l4 > frame.len() {
        return None;
    }
    loop {
        let proto = *frame.get(proto_at)?;
        // Hop-by-hop, routing, destination options; fragment; authentication (RFC 8200).
        let length = match proto {
            0 | 43 | 60 => (usize::from(*frame.get(l4 + 1)?) + 1) * 8,
            44 => {
                fragment = true;
                8
            }
            51 => (usize::from(*frame.get(l4 + 1)?) + 2) * 4,
            _ => {
                let end = end.clamp(l4, frame.len());
                return Some(Layers { ip: Ip::V6, l3, l4, proto_at, proto, fragment, end });
            }
        };
        proto_at = l4;
        l4 += length;
        if l4 > frame.len() {
            return None;
        }
        if fragment && be16(frame, proto_at + 2)? & 0xfff8 != 0 {
            // Not the first fragment: no transport header follows.
            let proto = *frame.get(proto_at)?;
            let end = end.clamp(l4, frame.len());
            return Some(Layers { ip: Ip::V6, l3, l4, proto_at, proto, fragment, end });
        }
    }
}

/// Finds the IP packet inside of `outer` whose transport header is at `l4`, in any kind of tunnel:
/// its header ends there, and its length field ends the packet where the outer one ends. Returns
/// `None` when there is another packet between the two.
pub(crate) fn inner(frame: &[u8], outer: &Layers, l4: usize) -> Option<Layers> {
    let v4 = (20..=60).step_by(4);
    let v6 = (40..=MOST_IPV6_HEADERS).step_by(8);
    let starts = |length: usize| l4.checked_sub(length).filter(|l3| *l3 >= outer.l4);
    let mut all = v4.filter_map(starts).filter_map(|l3| ipv4_until(frame, l3, outer.end));
    let mut others = v6
        .filter_map(starts)
        .filter(|l3| is_ipv6_until(frame, *l3, outer.end))
        .filter_map(|l3| ipv6(frame, l3));
    let found = all.find(|l| l.l4 == l4).or_else(|| others.find(|l| l.l4 == l4))?;
    // The end of the smallest header of the tunnel. In IP, the inner packet begins at once.
    let tunnel = match outer.proto {
        PROTO_IPV4 | PROTO_IPV6 if found.l3 != outer.l4 => return None,
        PROTO_UDP => 8,
        PROTO_GRE => 4,
        _ => 0,
    };
    let mut between = outer.l4 + tunnel..found.l3;
    let is_nested = between.any(|l3| is_ip_before(frame, l3, found.l3, outer.end));
    (!is_nested).then_some(found)
}

/// Returns the IPv4 packet at `l3` if its header has the right checksum and its length ends it at
/// `end`.
fn ipv4_until(frame: &[u8], l3: usize, end: usize) -> Option<Layers> {
    let l = ipv4(frame, l3)?;
    let sum = add_sum(0, frame.get(l3..l.l4)?);
    let total = usize::from(be16(frame, l3 + 2)?);
    (fold(sum) == 0xffff && l3 + total == end).then_some(l)
}

/// Returns true when there may be an IPv6 packet at `l3` whose length ends it at `end`.
fn is_ipv6_until(frame: &[u8], l3: usize, end: usize) -> bool {
    let is_v6 = frame.get(l3).is_some_and(|first| first >> 4 == 6);
    is_v6 && be16(frame, l3 + 4).is_some_and(|length| l3 + 40 + usize::from(length) == end)
}

/// Returns true when an IP header at `l3`, all of it before `before`, has a length that ends its
/// packet at `end`.
fn is_ip_before(frame: &[u8], l3: usize, before: usize, end: usize) -> bool {
    ipv4_until(frame, l3, end).is_some_and(|l| l.l4 <= before)
        || (l3 + 40 <= before && is_ipv6_until(frame, l3, end))
}

/// Adds the one's complement sum of `data` (RFC 1071) to `sum`. An odd last byte is padded.
pub(crate) fn add_sum(sum: u64, data: &[u8]) -> u64 {
    let (words, rest) = data.as_chunks::<4>();
    let mut sum = sum;
    for w in words {
        sum += u64::from(u32::from_be_bytes(*w));
    }
    let mut last = [0; 4];
    for (l, r) in last.iter_mut().zip(rest) {
        *l = *r;
    }
    sum + u64::from(u32::from_be_bytes(last))
}

/// Folds a sum to 16 bits.
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16 // at most 0xffff
}

/// Returns the sum of the pseudo header (RFC 9293 3.1, RFC 8200 8.1) for a transport part of
/// `length` bytes.
pub(crate) fn pseudo_sum(frame: &[u8], layers: &Layers, length: usize) -> Option<u64> {
    let addresses = match layers.ip {
        Ip::V4 => frame.get(layers.l3 + 12..layers.l3 + 20)?,
        Ip::V6 => frame.get(layers.l3 + 8..layers.l3 + 40)?,
    };
    Some(add_sum(u64::from(layers.proto) + length as u64, addresses))
}

/// Returns the ARP reply (RFC 826) with `mac` to `frame` if that is a request for `ip`.
pub(crate) fn arp_reply(frame: &[u8], ip: Ipv4Addr, mac: [u8; 6]) -> Option<Vec<u8>> {
    // Ethernet, IPv4, 6- and 4-byte addresses, request.
    let request = [0, 1, 8, 0, 6, 4, 0, 1];
    let is_request = ethertype(frame)? == TYPE_ARP && *frame.get(14..22)? == request;
    if !is_request || *frame.get(38..42)? != ip.octets() {
        return None;
    }
    let asker = frame.get(22..32)?;
    let mut reply = Vec::with_capacity(42);
    reply.extend_from_slice(asker.get(..6)?);
    reply.extend_from_slice(&mac);
    reply.extend_from_slice(&TYPE_ARP.to_be_bytes());
    reply.extend_from_slice(&[0, 1, 8, 0, 6, 4, 0, 2]);
    reply.extend_from_slice(&mac);
    reply.extend_from_slice(&ip.octets());
    reply.extend_from_slice(asker);
    Some(reply)
}

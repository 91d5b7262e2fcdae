// SPDX-License-Identifier: Apache-2.0
//! Checksums and segmentation in software, for offload work that a sender left to a device.
//!
//! # Overview
//!
//! [`finish`] turns a packet with [`packet::Offload`] into the frames for the wire. It serves
//! senders whose device cannot process that metadata (`AF_XDP`, dummy) and packets whose metadata
//! the kernel refuses.
//!
//! # Invariants
//!
//! * The resulting frames have no offload work left, and valid IP and transport checksums.
//! * The transport payloads of the frames, concatenated, equal the payload of the packet.
//! * Metadata that contradicts the bytes is an error, never a wrong frame.
//!
//! # Tunnels
//!
//! The segmented packet may be inside of one tunnel over UDP, GRE or IP. The tunnel's headers get
//! their own lengths, identifications and checksums in each segment. The start of the segmented
//! packet's transport header shows where they end. A packet in more than one tunnel is refused
//! ([`FinishError::Encapsulated`]).

use crate::headers::{
    self, Ip, Layers, PROTO_GRE, PROTO_IPV4, PROTO_IPV6, PROTO_SCTP, PROTO_TCP, PROTO_UDP, be16,
    be32, fold, put,
};
use packet::{Gso, Packet, checksum};

/// Bits of a GRE header's first byte: the header has a checksum (RFC 2784), a route (RFC 1701), a
/// sequence number (RFC 2890).
const GRE_CHECKSUM: u8 = 0x80;
const GRE_ROUTING: u8 = 0x40;
const GRE_SEQUENCE: u8 = 0x10;
/// Bits of a GRE header's second byte: the version, 0 except for PPTP (RFC 2637).
const GRE_VERSION: u8 = 0x07;

/// Offset of the CRC32c in an SCTP packet, in bytes (RFC 9260, 3.1).
const SCTP_CRC: u16 = 8;

/// The reason why offload work cannot be finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FinishError {
    /// The checksum field lies outside of the frame.
    #[error("the unfinished checksum lies outside of the frame")]
    ChecksumOutside,
    /// The frame lacks headers that its segmentation type needs.
    #[error("the frame does not hold the headers that its segmentation type needs")]
    WrongHeaders,
    /// The segment size is 0.
    #[error("the segment size is 0, or too small for a fragment")]
    SegmentSize,
    /// The transport header belongs neither to the outermost IP packet nor to a packet in a tunnel
    /// whose headers each segment can have.
    #[error(
        "the packet to be segmented is inside of a tunnel that cannot be made for each segment"
    )]
    Encapsulated,
}

/// Returns true when no offload work is left.
pub fn is_finished(packet: &Packet) -> bool {
    packet.offload.csum.is_none() && packet.offload.gso.is_none()
}

/// Returns true for a packet that the kernel would accept, fail to segment, and drop: the kernel
/// segments after MPLS labels or inside of a tunnel only if it encapsulated the packet itself.
pub(crate) fn is_beyond_the_kernel(packet: &Packet) -> bool {
    let data = packet.data();
    packet.offload.gso.is_some()
        && (headers::is_labelled(data)
            || headers::layers(data).is_some_and(|outer| tunnelled_at(packet, &outer).is_some()))
}

/// Returns true for a packet in a tunnel, still to be segmented, whose segments [`finish`] can make
/// with the tunnel's headers.
pub fn can_segment_in_tunnel(packet: &Packet) -> bool {
    let data = packet.data();
    let Some(outer) = headers::layers(data) else { return false };
    let Some(l4) = tunnelled_at(packet, &outer) else { return false };
    matches!(packet.offload.gso, Some((Gso::TcpV4 | Gso::TcpV6 | Gso::UdpL4, size, _)) if size > 0)
        && can_be_repeated(data, &outer)
        && headers::inner(data, &outer, l4).is_some()
}

/// Returns the offset of the transport header of a packet in a tunnel.
fn tunnelled_at(packet: &Packet, outer: &Layers) -> Option<usize> {
    let (start, _) = packet.offload.csum?;
    Some(usize::from(start)).filter(|at| *at > outer.l4)
}

/// Finishes `packet`. Returns one frame, or one per segment.
///
/// # Errors
///
/// See [`FinishError`].
pub fn finish(packet: &Packet) -> Result<Vec<Packet>, FinishError> {
    match packet.offload.gso {
        None => {
            let mut p = packet.clone();
            finish_checksum(&mut p)?;
            Ok(vec![p])
        }
        Some((kind, size, _)) => segment(packet, kind, size),
    }
}

/// Finishes the checksum in place, if it is unfinished. Does not segment.
///
/// # Errors
///
/// [`FinishError::ChecksumOutside`]. The packet is then unchanged.
pub fn finish_checksum(packet: &mut Packet) -> Result<(), FinishError> {
    let Some((start, offset)) = packet.offload.csum else { return Ok(()) };
    let (start, at) = (usize::from(start), usize::from(start) + usize::from(offset));
    let data = packet.data_mut();
    let covered = data.get(start..).ok_or(FinishError::ChecksumOutside)?;
    // The field holds the pseudo header's sum, which is part of the checksum.
    let sum = nonzero(!fold(headers::add_sum(0, covered)));
    put(data, at, &sum.to_be_bytes()).ok_or(FinishError::ChecksumOutside)?;
    packet.offload.csum = None;
    Ok(())
}

/// Stores the CRC32c of an SCTP packet if it is unfinished. A receiver must do this at once: later
/// the packet's metadata cannot be distinguished from that of an Internet checksum.
pub fn finish_crc(packet: &mut Packet) {
    if let Some((start, SCTP_CRC)) = packet.offload.csum
        && let Some(l) = headers::layers(packet.data())
        && l.proto == PROTO_SCTP
        && !l.fragment
        && l.l4 == usize::from(start)
        && store_crc(packet.data_mut(), &l).is_some()
    {
        packet.offload.csum = None;
    }
}

/// Returns the CRC32c of a whole SCTP packet; `None` when the packet is cut off.
fn store_crc(data: &mut [u8], l: &Layers) -> Option<()> {
    let crc = checksum::sctp(data.get(l.l4..l.end)?)?;
    put(data, l.l4 + usize::from(SCTP_CRC), &crc)
}

/// Recognises a checksum that its sender left unfinished where a device lost the metadata
/// (`AF_XDP` on virtual interfaces), and sets `packet.offload`. Returns true if it did.
///
/// The field of such a TCP or UDP packet holds exactly the pseudo header's sum. A packet whose
/// *finished* checksum happens to have that value counts as unfinished too. Finishing it yields the
/// same value again, so nothing changes on the wire. The unfinished CRC of an SCTP packet is 0; it
/// is computed and stored at once.
pub fn recognise_unfinished(packet: &mut Packet) -> bool {
    let data = packet.data_mut();
    let found = headers::layers(data).filter(|l| !l.fragment).and_then(|l| {
        let offset = match l.proto {
            PROTO_TCP => 16,
            PROTO_UDP => 6,
            PROTO_SCTP if be32(data, l.l4 + usize::from(SCTP_CRC)) == Some(0) => {
                store_crc(data, &l)?;
                return None;
            }
            _ => return None,
        };
        let stored = be16(data, l.l4 + offset)?;
        if l.proto == PROTO_UDP && stored == 0 {
            return None; // no checksum
        }
        let pseudo = fold(headers::pseudo_sum(data, &l, l.end - l.l4)?);
        (stored == pseudo).then_some((u16::try_from(l.l4).ok()?, offset as u16))
    });
    if let Some(csum) = found {
        packet.offload.csum = Some(csum);
    }
    found.is_some()
}

/// Transport checksums are never sent as 0 (RFC 768; for TCP both zeros mean the same).
fn nonzero(sum: u16) -> u16 {
    if sum == 0 { 0xffff } else { sum }
}

/// Returns the bytes from the start of the frame to the payload that is cut into segments, the
/// third member of [`packet::Offload::gso`].
pub(crate) fn header_length(frame: &[u8], kind: Gso, transport: usize) -> Option<usize> {
    let length = match kind {
        Gso::TcpV4 | Gso::TcpV6 => {
            let doff = usize::from(*frame.get(transport + 12)? >> 4) * 4;
            if doff < 20 {
                return None;
            }
            transport + doff
        }
        Gso::UdpL4 | Gso::UdpFragment => transport + 8,
    };
    (length <= frame.len()).then_some(length)
}

fn segment(packet: &Packet, kind: Gso, size: u16) -> Result<Vec<Packet>, FinishError> {
    let data = packet.data();
    let outermost = headers::layers(data).ok_or(FinishError::WrongHeaders)?;
    let (outer, layers) = match tunnelled_at(packet, &outermost) {
        None => (None, outermost),
        Some(l4) => {
            let inner = headers::inner(data, &outermost, l4).ok_or(FinishError::Encapsulated)?;
            (Some(outermost), inner)
        }
    };
    if let Some((start, _)) = packet.offload.csum
        && usize::from(start) != layers.l4
    {
        return Err(FinishError::WrongHeaders);
    }
    let fits = match kind {
        Gso::TcpV4 => layers.ip == Ip::V4 && layers.proto == PROTO_TCP,
        Gso::TcpV6 => layers.ip == Ip::V6 && layers.proto == PROTO_TCP,
        Gso::UdpL4 | Gso::UdpFragment => layers.proto == PROTO_UDP,
    };
    if !fits || layers.fragment {
        return Err(FinishError::WrongHeaders);
    }
    if outer.is_some_and(|o| kind == Gso::UdpFragment || !can_be_repeated(data, &o)) {
        return Err(FinishError::Encapsulated);
    }
    if size == 0 {
        return Err(FinishError::SegmentSize);
    }
    let size = usize::from(size);
    // The IP length of a packet above 64 KiB (IPv6 jumbo) is 0: then the frame's end is the
    // packet's. There is no such packet in a tunnel, where it ends with the outer one.
    let is_jumbo = outer.is_none() && layers.end == layers.l4;
    let end = if is_jumbo { data.len() } else { layers.end };
    let headers_end = header_length(data, kind, layers.l4).ok_or(FinishError::WrongHeaders)?;
    if headers_end > end {
        return Err(FinishError::WrongHeaders);
    }
    let cut = match kind {
        Gso::UdpFragment => fragment_udp(packet, &layers, end, size),
        Gso::TcpV4 | Gso::TcpV6 | Gso::UdpL4 => {
            let head = data.get(..headers_end);
            let payload = data.get(headers_end..end);
            head.zip(payload).and_then(|(head, payload)| {
                segment_transport(head, payload, &layers, outer.as_ref(), size)
            })
        }
    };
    cut.ok_or(FinishError::WrongHeaders)
}

/// Returns true when each segment may have the headers of the tunnel.
fn can_be_repeated(data: &[u8], outer: &Layers) -> bool {
    let is_known = match outer.proto {
        PROTO_IPV4 | PROTO_IPV6 | PROTO_UDP => true,
        PROTO_GRE => is_plain_gre(data, outer.l4),
        _ => false,
    };
    is_known && !outer.fragment
}

/// Returns true for a GRE header without fields that differ between packets.
fn is_plain_gre(data: &[u8], at: usize) -> bool {
    let Some([flags, version]) = data.get(at..).and_then(|d| d.first_chunk::<2>()) else {
        return false;
    };
    flags & (GRE_SEQUENCE | GRE_ROUTING) == 0 && version & GRE_VERSION == 0
}

/// Cuts TCP or UDP payload into segments. Each segment has all of `head`, whose layers are
/// `layers`, after the headers of a tunnel if there is one.
fn segment_transport(
    head: &[u8],
    payload: &[u8],
    layers: &Layers,
    outer: Option<&Layers>,
    size: usize,
) -> Option<Vec<Packet>> {
    let count = payload.len().div_ceil(size).max(1);
    let mut out = Vec::with_capacity(count);
    for i in 0..count {
        let from = i * size;
        let part = payload.get(from..(from + size).min(payload.len()))?;
        let mut p = Packet::with_capacity(head.len() + part.len());
        p.extend(head);
        p.extend(part);
        let d = p.data_mut();
        finish_ip(d, layers, i)?;
        let (l4, length) = (layers.l4, d.len() - layers.l4);
        let sum_at = if layers.proto == PROTO_TCP {
            let sequence = be32(d, l4 + 4)?.wrapping_add(from as u32); // from < 2^32
            put(d, l4 + 4, &sequence.to_be_bytes())?;
            let flags = d.get_mut(l4 + 13)?;
            if i + 1 < count {
                *flags &= !0x09; // FIN and PSH belong to the last segment
            }
            if i > 0 {
                *flags &= !0x80; // CWR belongs to the first one (RFC 3168 6.1.2)
            }
            l4 + 16
        } else {
            put(d, l4 + 4, &u16::try_from(length).ok()?.to_be_bytes())?;
            l4 + 6
        };
        finish_transport(d, layers, sum_at)?;
        if let Some(outer) = outer {
            finish_tunnel(d, outer, i)?;
        }
        out.push(p);
    }
    Some(out)
}

/// Sets lengths, identification and checksums of a tunnel's headers. The bytes after them are
/// finished.
fn finish_tunnel(d: &mut [u8], outer: &Layers, number: usize) -> Option<()> {
    finish_ip(d, outer, number)?;
    let l4 = outer.l4;
    match outer.proto {
        PROTO_UDP => {
            let length = u16::try_from(d.len() - l4).ok()?;
            put(d, l4 + 4, &length.to_be_bytes())?;
            if be16(d, l4 + 6)? != 0 {
                finish_transport(d, outer, l4 + 6)?;
            }
        }
        PROTO_GRE if d.get(l4)? & GRE_CHECKSUM != 0 => {
            put(d, l4 + 4, &[0, 0])?;
            let sum = !fold(headers::add_sum(0, d.get(l4..)?));
            put(d, l4 + 4, &sum.to_be_bytes())?;
        }
        _ => {}
    }
    Some(())
}

/// Sets the IP length and, for IPv4, the identification (increased by `number`) and checksum.
fn finish_ip(d: &mut [u8], layers: &Layers, number: usize) -> Option<()> {
    let l3 = layers.l3;
    match layers.ip {
        Ip::V4 => {
            let total = u16::try_from(d.len() - l3).ok()?;
            put(d, l3 + 2, &total.to_be_bytes())?;
            let id = be16(d, l3 + 4)?.wrapping_add(number as u16); // wraps on purpose
            put(d, l3 + 4, &id.to_be_bytes())?;
            ipv4_checksum(d, layers)
        }
        Ip::V6 => {
            let length = u16::try_from(d.len() - l3 - 40).ok()?;
            put(d, l3 + 4, &length.to_be_bytes())
        }
    }
}

fn ipv4_checksum(d: &mut [u8], layers: &Layers) -> Option<()> {
    put(d, layers.l3 + 10, &[0, 0])?;
    let sum = !fold(headers::add_sum(0, d.get(layers.l3..layers.l4)?));
    put(d, layers.l3 + 10, &sum.to_be_bytes())
}

fn finish_transport(d: &mut [u8], layers: &Layers, sum_at: usize) -> Option<()> {
    put(d, sum_at, &[0, 0])?;
    let part = d.get(layers.l4..)?;
    let pseudo = headers::pseudo_sum(d, layers, part.len())?;
    let sum = nonzero(!fold(headers::add_sum(pseudo, part)));
    put(d, sum_at, &sum.to_be_bytes())
}

/// Fragments a UDP datagram: finishes its checksum, then fragments the IP packet (RFC 791 3.2,
/// RFC 8200 4.5) with `size` bytes of IP payload in each fragment but the last.
fn fragment_udp(packet: &Packet, layers: &Layers, end: usize, size: usize) -> Option<Vec<Packet>> {
    let size = size & !7;
    if size == 0 {
        return None;
    }
    let mut whole = packet.clone();
    whole.resize(end);
    if packet.offload.csum.is_some() {
        finish_transport(whole.data_mut(), layers, layers.l4 + 6)?;
    }
    let data = whole.data();
    let head = data.get(..layers.l4)?;
    let payload = data.get(layers.l4..)?;
    // Fragments of one datagram share an identification; the UDP checksum serves for IPv6.
    let id6 = u32::from(be16(payload, 6)?) << 16 | u32::from(be16(payload, 0)?);
    let count = payload.len().div_ceil(size).max(1);
    let mut out = Vec::with_capacity(count);
    for i in 0..count {
        let from = i * size;
        let part = payload.get(from..(from + size).min(payload.len()))?;
        let more = i + 1 < count;
        let mut p = Packet::with_capacity(head.len() + 8 + part.len());
        p.extend(head);
        match layers.ip {
            Ip::V4 => {
                p.extend(part);
                let d = p.data_mut();
                let field = u16::try_from(from / 8).ok()? | if more { 0x2000 } else { 0 };
                put(d, layers.l3 + 6, &field.to_be_bytes())?;
                finish_ip(d, layers, 0)?;
            }
            Ip::V6 => {
                let field = u16::try_from(from).ok()? | u16::from(more);
                p.extend(&[PROTO_UDP, 0]);
                p.extend(&field.to_be_bytes());
                p.extend(&id6.to_be_bytes());
                p.extend(part);
                let d = p.data_mut();
                put(d, layers.proto_at, &[44])?;
                finish_ip(d, layers, 0)?;
            }
        }
        out.push(p);
    }
    Some(out)
}

#[cfg(test)]
mod tests;

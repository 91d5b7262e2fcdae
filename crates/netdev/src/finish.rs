// SPDX-License-Identifier: Apache-2.0
//! Finishing in software what a sender left to a device: checksums and segmentation.
//!
//! # What it is
//!
//! [`finish`] turns a packet with [`packet::Offload`] into the frames that belong on a wire,
//! for senders whose device cannot take that metadata (`AF_XDP`, dummy) and for packets whose
//! metadata the kernel refuses.
//!
//! # Invariants
//!
//! * The frames that come out have no offload work left, and valid IP and transport checksums.
//! * The transport payloads of the frames, one after the other, are the payload that went in.
//! * Metadata that contradicts the bytes is an error, never a wrong frame.
//!
//! # Tunnels
//!
//! The packet that is segmented may be inside of one tunnel over UDP, GRE or IP, which gets
//! lengths, identifications and checksums of its own for each segment. How far its headers reach is
//! known by where the segmented packet's transport header starts. What is in more than one tunnel
//! is refused ([`FinishError::Encapsulated`]).

use crate::headers::{
    self, Ip, Layers, PROTO_GRE, PROTO_IPV4, PROTO_IPV6, PROTO_SCTP, PROTO_TCP, PROTO_UDP, be16,
    be32, fold, put,
};
use packet::{Gso, Packet, checksum};

/// Bits of a GRE header's first byte: it has a checksum (RFC 2784); a route (RFC 1701); a number
/// (RFC 2890).
const GRE_CHECKSUM: u8 = 0x80;
const GRE_ROUTING: u8 = 0x40;
const GRE_SEQUENCE: u8 = 0x10;
/// Bits of its second byte: the version, 0 but for PPTP (RFC 2637).
const GRE_VERSION: u8 = 0x07;

/// Where an SCTP packet has its CRC32c (RFC 9260, 3.1).
const SCTP_CRC: u16 = 8;

/// Why offload work cannot be finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FinishError {
    /// The checksum's place lies outside of the frame.
    #[error("the unfinished checksum lies outside of the frame")]
    ChecksumOutside,
    /// The frame does not hold the headers that its segmentation type needs.
    #[error("the frame does not hold the headers that its segmentation type needs")]
    WrongHeaders,
    /// A segment size of 0.
    #[error("the segment size is 0, or too small for a fragment")]
    SegmentSize,
    /// The transport header is neither that of the outermost IP packet nor that of one in a tunnel
    /// which can be given to each segment.
    #[error(
        "the packet to be segmented is inside of a tunnel that cannot be made for each segment"
    )]
    Encapsulated,
}

/// True when nothing is left to finish.
pub fn is_finished(packet: &Packet) -> bool {
    packet.offload.csum.is_none() && packet.offload.gso.is_none()
}

/// True for a packet that the kernel would take and then not segment: behind labels, or inside of a
/// tunnel, it does so only when it put the packet there itself. It drops the packet.
pub(crate) fn is_beyond_the_kernel(packet: &Packet) -> bool {
    let data = packet.data();
    packet.offload.gso.is_some()
        && (headers::is_labelled(data)
            || headers::layers(data).is_some_and(|outer| tunnelled_at(packet, &outer).is_some()))
}

/// Where the transport header of a packet in a tunnel starts.
fn tunnelled_at(packet: &Packet, outer: &Layers) -> Option<usize> {
    let (start, _) = packet.offload.csum?;
    Some(usize::from(start)).filter(|at| *at > outer.l4)
}

/// Finishes `packet`: one frame, or one for each segment.
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

/// Stores the unfinished checksum, if there is one, in place. Segmentation is left alone.
///
/// # Errors
///
/// [`FinishError::ChecksumOutside`]; the packet is unchanged then.
pub fn finish_checksum(packet: &mut Packet) -> Result<(), FinishError> {
    let Some((start, offset)) = packet.offload.csum else { return Ok(()) };
    let (start, at) = (usize::from(start), usize::from(start) + usize::from(offset));
    let data = packet.data_mut();
    let covered = data.get(start..).ok_or(FinishError::ChecksumOutside)?;
    // The field holds the pseudo header's sum, so that it is part of what is summed.
    let sum = nonzero(!fold(headers::add_sum(0, covered)));
    put(data, at, &sum.to_be_bytes()).ok_or(FinishError::ChecksumOutside)?;
    packet.offload.csum = None;
    Ok(())
}

/// Stores the CRC32c of an SCTP packet that was left to a device. To be done where the packet comes
/// in: what is left of its metadata later looks like an Internet checksum's.
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

/// Of a whole SCTP packet. `None` when it is cut off.
fn store_crc(data: &mut [u8], l: &Layers) -> Option<()> {
    let crc = checksum::sctp(data.get(l.l4..l.end)?)?;
    put(data, l.l4 + usize::from(SCTP_CRC), &crc)
}

/// Recognises a checksum that its sender left unfinished where a device lost the metadata
/// (`AF_XDP` on virtual interfaces), and notes it in `packet.offload`. Returns whether it did.
///
/// The field of such a TCP or UDP packet holds exactly the pseudo header's sum. A packet whose
/// *finished* checksum happens to be that value is taken for unfinished too; finishing it gives the
/// same value again, so nothing changes on the wire. The CRC of an SCTP packet is 0 then, and is
/// stored at once.
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

/// Bytes from the start of the frame to the payload that is cut into segments; what
/// [`packet::Offload::gso`] wants as its third member.
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
    // The IP length of a packet above 64 KiB (IPv6 jumbo) is 0: then the frame's end counts. In a
    // tunnel there is no such packet: it ends where the outer one says.
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

/// True when the headers of a tunnel may stand before each segment.
fn can_be_repeated(data: &[u8], outer: &Layers) -> bool {
    let is_known = match outer.proto {
        PROTO_IPV4 | PROTO_IPV6 | PROTO_UDP => true,
        PROTO_GRE => is_plain_gre(data, outer.l4),
        _ => false,
    };
    is_known && !outer.fragment
}

/// True for a GRE header that says nothing that is another thing for each packet.
fn is_plain_gre(data: &[u8], at: usize) -> bool {
    let Some([flags, version]) = data.get(at..).and_then(|d| d.first_chunk::<2>()) else {
        return false;
    };
    flags & (GRE_SEQUENCE | GRE_ROUTING) == 0 && version & GRE_VERSION == 0
}

/// TCP and UDP segmentation: each segment has all of `head`, which has `layers`, and before them
/// those of a tunnel.
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

/// Sets lengths, identification and checksums of a tunnel's headers, behind which all is finished.
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

/// Sets the IP length and, for IPv4, the identification (counted on by `number`) and checksum.
fn finish_ip(d: &mut [u8], layers: &Layers, number: usize) -> Option<()> {
    let l3 = layers.l3;
    match layers.ip {
        Ip::V4 => {
            let total = u16::try_from(d.len() - l3).ok()?;
            put(d, l3 + 2, &total.to_be_bytes())?;
            let id = be16(d, l3 + 4)?.wrapping_add(number as u16); // wraps as meant
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

/// UDP fragmentation: the datagram's checksum is finished, then the IP packet is fragmented
/// (RFC 791 3.2, RFC 8200 4.5) with `size` bytes of IP payload in each but the last.
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

// SPDX-License-Identifier: Apache-2.0
//! One fragment, and the packet of several: IPv4 (RFC 791, 3.2), IPv6 (RFC 8200, 4.5).

use crate::extract::Family;
use packet::checksum::{internet, update};
use packet::{FromBytes, Ipv4Header, Ipv6Extensions, Ipv6FragmentHeader, Ipv6Header};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The place of a fragment in its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub id: u32,
    pub proto: u8,
    /// Bytes of the IP header, with the extension headers to the fragment header's end.
    pub header: usize,
    /// Offset of the data in the packet's.
    pub offset: usize,
    /// Bytes of data.
    pub len: usize,
    /// More fragments follow.
    pub more: bool,
}

impl Part {
    /// Returns the offset of the end of the data.
    pub fn end(&self) -> usize {
        self.offset + self.len
    }
}

/// A fragment that waits, or waited, for the others.
#[derive(Debug)]
pub struct Held<T> {
    /// The fragment from its IP header on.
    pub bytes: Vec<u8>,
    /// The caller's value.
    pub token: T,
    pub(crate) family: Family,
    pub(crate) part: Part,
}

/// The lengths of a fragment are impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadHeader;

/// Decodes a fragment. `Ok(None)`: the packet is none.
pub(crate) fn parse(bytes: &[u8], family: Family) -> Result<Option<Part>, BadHeader> {
    let part = match family {
        Family::V4 => parse_v4(bytes)?,
        Family::V6 => parse_v6(bytes)?,
    };
    let Some(part) = part else {
        return Ok(None);
    };
    let is_possible = part.len > 0
        && part.end() <= usize::from(u16::MAX)
        && (!part.more || part.len.is_multiple_of(8));
    if is_possible { Ok(Some(part)) } else { Err(BadHeader) }
}

fn parse_v4(bytes: &[u8]) -> Result<Option<Part>, BadHeader> {
    let (ip, _) = Ipv4Header::ref_from_prefix(bytes).map_err(|_| BadHeader)?;
    if !ip.is_fragment() {
        return Ok(None);
    }
    let (header, total) = ip.checked_lengths(bytes.len()).ok_or(BadHeader)?;
    let fragment = ip.fragment.get();
    Ok(Some(Part {
        src: Ipv4Addr::from_bits(ip.src.get()).into(),
        dst: Ipv4Addr::from_bits(ip.dst.get()).into(),
        id: ip.id.get().into(),
        proto: ip.proto,
        header,
        offset: usize::from(fragment & Ipv4Header::OFFSET_MASK) * 8,
        len: total - header,
        more: fragment & Ipv4Header::MORE_FRAGMENTS != 0,
    }))
}

fn parse_v6(bytes: &[u8]) -> Result<Option<Part>, BadHeader> {
    let (ip, rest) = Ipv6Header::ref_from_prefix(bytes).map_err(|_| BadHeader)?;
    let len = ip.checked_payload_len(bytes.len()).ok_or(BadHeader)?;
    let body = rest.get(..len).ok_or(BadHeader)?;
    let extensions = Ipv6Extensions::walk(ip.next, body).ok_or(BadHeader)?;
    if !extensions.is_fragment {
        return Ok(None);
    }
    let at = extensions.fragment_at.ok_or(BadHeader)?;
    let fragment = body.get(at..).ok_or(BadHeader)?;
    let (header, data) = Ipv6FragmentHeader::ref_from_prefix(fragment).map_err(|_| BadHeader)?;
    Ok(Some(Part {
        src: Ipv6Addr::from(ip.src).into(),
        dst: Ipv6Addr::from(ip.dst).into(),
        id: header.id.get(),
        proto: header.next,
        header: bytes.len() - rest.len() + at + size_of::<Ipv6FragmentHeader>(),
        offset: usize::from(header.offset.get() & !7),
        len: data.len(),
        more: header.offset.get() & 1 != 0,
    }))
}

/// Returns the packet of fragments in order, without gaps. It has the first one's headers; a
/// fragment header of IPv6 stays, with offset 0 and no more fragments. `None`: it is too long.
pub(crate) fn merge<T>(held: &[Held<T>]) -> Option<Vec<u8>> {
    let first = held.first()?;
    let mut bytes = first.bytes.get(..first.part.header)?.to_vec();
    for held in held {
        let data = held.bytes.get(held.part.header..held.part.header + held.part.len)?;
        bytes.extend_from_slice(data);
    }
    match first.family {
        Family::V4 => {
            let len = u16::try_from(bytes.len()).ok()?;
            let (ip, _) = Ipv4Header::mut_from_prefix(&mut bytes).ok()?;
            ip.total_len.set(len);
            let flags = ip.fragment.get() & Ipv4Header::DONT_FRAGMENT;
            ip.fragment.set(flags);
            ip.checksum.set(0);
            let sum = internet(bytes.get(..first.part.header)?);
            bytes.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
        }
        Family::V6 => {
            let len = u16::try_from(bytes.len() - size_of::<Ipv6Header>()).ok()?;
            let (ip, _) = Ipv6Header::mut_from_prefix(&mut bytes).ok()?;
            ip.payload_len.set(len);
            let at = first.part.header - size_of::<Ipv6FragmentHeader>();
            let (fragment, _) = Ipv6FragmentHeader::mut_from_prefix(bytes.get_mut(at..)?).ok()?;
            fragment.offset.set(0);
        }
    }
    Some(bytes)
}

impl<T> Held<T> {
    /// Copies addresses and data from the packet of which this is a fragment.
    pub(crate) fn copy_from(&mut self, packet: &[u8]) {
        let range = match self.family {
            Family::V4 => 12..20,
            Family::V6 => 8..40,
        };
        if let (Some(to), Some(from)) = (self.bytes.get_mut(range.clone()), packet.get(range))
            && to != from
        {
            let old = to.to_vec();
            to.copy_from_slice(from);
            if self.family == Family::V4
                && let Some(&[high, low]) = self.bytes.get(10..12)
            {
                let sum = update(u16::from_be_bytes([high, low]), &old, from);
                if let Some(field) = self.bytes.get_mut(10..12) {
                    field.copy_from_slice(&sum.to_be_bytes());
                }
            }
        }
        // The headers of all fragments may differ in length from the first one's, the data does
        // not: it ends where the packet ends.
        let Part { header, offset, len, .. } = self.part;
        let data_at = packet_header(packet, self.family) + offset;
        if let (Some(to), Some(from)) =
            (self.bytes.get_mut(header..header + len), packet.get(data_at..data_at + len))
        {
            to.copy_from_slice(from);
        }
    }
}

/// Returns the bytes of headers of a reassembled packet.
fn packet_header(packet: &[u8], family: Family) -> usize {
    match family {
        Family::V4 => Ipv4Header::ref_from_prefix(packet).map_or(0, |(ip, _)| ip.header_len()),
        Family::V6 => {
            let Ok((ip, rest)) = Ipv6Header::ref_from_prefix(packet) else {
                return 0;
            };
            let at = Ipv6Extensions::walk(ip.next, rest).and_then(|found| found.fragment_at);
            size_of::<Ipv6Header>() + at.map_or(0, |at| at + size_of::<Ipv6FragmentHeader>())
        }
    }
}

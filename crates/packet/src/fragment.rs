// SPDX-License-Identifier: Apache-2.0
//! Fragmentation of IPv4 packets (RFC 791, 3.2).

use crate::checksum::internet;
use crate::{FromBytes, Ipv4Header, Packet};

/// Bytes of data in a fragment are a multiple of this, except in the last one.
const UNIT: usize = 8;
/// Options of one octet (RFC 791, 3.1): the end of the list, and no operation.
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
/// The bit of an option that every fragment has.
const COPIED: u8 = 0x80;

/// Cuts the IPv4 packet at offset `l3` of a frame into fragments of at most `mtu` bytes, each after a
/// copy of the bytes before the IP header. A packet that fits is returned whole. All checksums of the
/// frame must be finished. Bytes after the IP packet are left out.
///
/// Returns `None` for a packet that must not be fragmented or whose header is impossible, and when a
/// fragment has no room for data.
pub fn ipv4(frame: &[u8], l3: usize, mtu: usize) -> Option<Vec<Packet>> {
    let (before, ip) = frame.split_at_checked(l3)?;
    let (header, _) = Ipv4Header::ref_from_prefix(ip).ok()?;
    let (header_len, total) = header.checked_lengths(ip.len())?;
    if total <= mtu {
        return Some(vec![Packet::from_slice(frame.get(..l3 + total)?)]);
    }
    let field = header.fragment.get();
    if field & Ipv4Header::DONT_FRAGMENT != 0 {
        return None;
    }
    let first_header = ip.get(..header_len)?;
    let later_header = later_header(first_header)?;
    let mut data = ip.get(header_len..total)?;
    let mut offset = usize::from(field & Ipv4Header::OFFSET_MASK);
    let mut fragments = Vec::new();
    while !data.is_empty() {
        let header = if fragments.is_empty() { first_header } else { &later_header };
        let most = mtu.checked_sub(header.len())?;
        let len = if data.len() > most { most / UNIT * UNIT } else { data.len() };
        let (part, rest) = data.split_at_checked(len).filter(|_| len > 0)?;
        let more = if rest.is_empty() { field } else { Ipv4Header::MORE_FRAGMENTS };
        let place = u16::try_from(offset).ok().filter(|at| *at <= Ipv4Header::OFFSET_MASK)?;
        let mut packet = Packet::with_capacity(before.len() + header.len() + len);
        packet.extend(before);
        packet.extend(header);
        packet.extend(part);
        finish(packet.data_mut().get_mut(l3..)?, more & Ipv4Header::MORE_FRAGMENTS | place)?;
        fragments.push(packet);
        offset += len / UNIT;
        data = rest;
    }
    Some(fragments)
}

/// Sets length, fragment field and checksum of the packet in `ip`.
fn finish(ip: &mut [u8], fragment: u16) -> Option<()> {
    let total = u16::try_from(ip.len()).ok()?;
    let (header, _) = Ipv4Header::mut_from_prefix(ip).ok()?;
    header.total_len.set(total);
    header.fragment.set(fragment);
    header.checksum.set(0);
    let len = header.header_len();
    let sum = internet(ip.get(..len)?);
    let (header, _) = Ipv4Header::mut_from_prefix(ip).ok()?;
    header.checksum.set(sum);
    Some(())
}

/// Returns the header of fragments other than the first: only some options are repeated.
fn later_header(first: &[u8]) -> Option<Vec<u8>> {
    let (fixed, mut options) = first.split_at_checked(size_of::<Ipv4Header>())?;
    let mut header = fixed.to_vec();
    while let [kind, rest @ ..] = options {
        if *kind == END {
            break;
        }
        if *kind == NO_OPERATION {
            options = rest;
            continue;
        }
        let len = usize::from(*rest.first()?);
        let (option, rest) = options.split_at_checked(len).filter(|_| len >= 2)?;
        if kind & COPIED != 0 {
            header.extend_from_slice(option);
        }
        options = rest;
    }
    header.resize(header.len().next_multiple_of(4), END);
    let words = (header.len() / 4) as u8; // at most 15
    let version = header.first_mut()?;
    *version = *version & 0xf0 | words;
    Some(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::Frame;
    use std::net::Ipv4Addr;
    use zerocopy::IntoBytes;
    use zerocopy::network_endian::{U16, U32};

    const L3: usize = 14;

    fn header(fragment: u16) -> Ipv4Header {
        Ipv4Header {
            version_ihl: 0x45,
            tos: 0x10,
            total_len: U16::ZERO,
            id: U16::new(77),
            fragment: U16::new(fragment),
            ttl: 9,
            proto: 17,
            checksum: U16::ZERO,
            src: U32::new(Ipv4Addr::new(10, 0, 0, 1).to_bits()),
            dst: U32::new(Ipv4Addr::new(10, 0, 0, 2).to_bits()),
        }
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| i as u8).collect()
    }

    fn frame(fragment: u16, data: usize) -> Vec<u8> {
        let frame = Frame::ethernet([2; 6], [4; 6]).ipv4_header(header(fragment)).protocol(17);
        frame.payload(&pattern(data)).finish()
    }

    /// Checks each fragment, and returns offset, more flag and bytes of data of each.
    fn parts(fragments: &[Packet], mtu: usize) -> Vec<(usize, bool, Vec<u8>)> {
        let part = |packet: &Packet| {
            let ip = &packet.data()[L3..];
            let (header, _) = Ipv4Header::ref_from_prefix(ip).unwrap();
            let (len, total) = header.checked_lengths(ip.len()).expect("possible lengths");
            assert!(total <= mtu && total == ip.len());
            assert_eq!(internet(&ip[..len]), 0);
            assert_eq!((header.id.get(), header.ttl, header.tos), (77, 9, 0x10));
            let field = header.fragment.get();
            let offset = usize::from(field & Ipv4Header::OFFSET_MASK) * 8;
            (offset, field & Ipv4Header::MORE_FRAGMENTS != 0, ip[len..].to_vec())
        };
        fragments.iter().map(part).collect()
    }

    #[test]
    fn the_fragments_are_the_packet() {
        for (len, mtu) in [(1481, 1500), (3000, 1500), (3000, 552), (2960, 1500), (100, 28)] {
            let parts = parts(&ipv4(&frame(0, len), L3, mtu).expect("it may be cut"), mtu);
            let (mut expected, last) = (0, parts.len() - 1);
            for (number, (offset, more, data)) in parts.iter().enumerate() {
                assert_eq!((*offset, *more), (expected, number < last));
                expected += data.len();
            }
            let data: Vec<u8> = parts.into_iter().flat_map(|(_, _, data)| data).collect();
            assert!(data == pattern(len), "{len} bytes by {mtu}");
        }
    }

    #[test]
    fn a_packet_that_fits_is_whole_and_without_padding() {
        let mut padded = frame(Ipv4Header::DONT_FRAGMENT, 10);
        let whole = padded.clone();
        padded.resize(60, 0xee);
        let packets = ipv4(&padded, L3, 30).expect("it fits");
        assert_eq!(packets.len(), 1);
        assert_eq!(packets[0].data(), whole);
    }

    #[test]
    fn fragments_are_fragmented_again() {
        let middle = frame(Ipv4Header::MORE_FRAGMENTS | 10, 1000);
        let parts = parts(&ipv4(&middle, L3, 576).expect("it may be cut"), 576);
        assert_eq!(parts.iter().map(|p| (p.0, p.1)).collect::<Vec<_>>(), [(80, true), (632, true)]);
        let end = frame(Ipv4Header::OFFSET_MASK, 1000);
        assert_eq!(ipv4(&end, L3, 576), None, "the offset has no more bits");
    }

    #[test]
    fn some_options_are_in_each_fragment() {
        let mut header = header(0);
        header.version_ihl = 0x48;
        let mut frame = vec![0; L3];
        frame.extend_from_slice(header.as_bytes());
        // Record route, no operation, security (copied), end.
        frame.extend_from_slice(&[7, 3, 4, 1, 0x82, 5, 1, 2, 3, 0, 0, 0]);
        frame.extend_from_slice(&pattern(200));
        let total = frame.len() - L3;
        finish(&mut frame[L3..], 0).expect("a header");
        let packets = ipv4(&frame, L3, 130).expect("it may be cut");
        let lengths = packets.iter().map(|p| (usize::from(p.data()[L3] & 15) * 4, p.len() - L3));
        assert_eq!(lengths.collect::<Vec<_>>(), [(32, 128), (28, 124), (28, 28 + 8)]);
        assert_eq!(packets[1].data()[L3 + 20..L3 + 28], [0x82, 5, 1, 2, 3, 0, 0, 0]);
        assert_eq!(total, 232);
        frame[L3 + 21] = 0;
        assert_eq!(ipv4(&frame, L3, 130), None, "an option without a length");
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        assert_eq!(ipv4(&frame(Ipv4Header::DONT_FRAGMENT, 2000), L3, 1500), None);
        assert_eq!(ipv4(&frame(0, 2000), L3, 27), None);
        assert_eq!(ipv4(&frame(0, 2000), 15, 1500), None);
        assert_eq!(ipv4(&frame(0, 2000)[..1000], L3, 552), None);
        assert_eq!(ipv4(&[], L3, 552), None);
    }
}

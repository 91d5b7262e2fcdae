// SPDX-License-Identifier: Apache-2.0

use super::*;
use packet::{Gso, Offload, Packet};
use proptest::prelude::*;

const ETH: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

/// Returns a frame with IP and TCP or UDP header and offload metadata in the form of a host's
/// stack.
fn unfinished(v6: bool, proto: u8, tags: usize, payload: &[u8], gso: Option<(Gso, u16)>) -> Packet {
    let mut f = ETH.to_vec();
    for i in 0..tags {
        f.extend([0x81, 0, 0, i as u8 + 1]);
    }
    let l4_header = if proto == PROTO_TCP { 32 } else { 8 };
    let l4_length = l4_header + payload.len();
    if v6 {
        f.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        f.extend((l4_length as u16).to_be_bytes());
        f.extend([proto, 64]);
        f.extend([0x20; 16]);
        f.extend([0x21; 16]);
    } else {
        f.extend([8, 0, 0x45, 0]);
        f.extend((20 + l4_length as u16).to_be_bytes());
        f.extend([0x12, 0xff, 0x40, 0, 64, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    }
    let l4 = f.len();
    if proto == PROTO_TCP {
        f.extend([
            0x30, 0x39, 0, 80, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1, 0x80, 0x99, 1, 0, 0, 0, 0, 0,
        ]);
        f.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    } else {
        f.extend([0x30, 0x39, 0, 53]);
        f.extend((l4_length as u16).to_be_bytes());
        f.extend([0, 0]);
    }
    let header = f.len();
    f.extend(payload);
    let offset = if proto == PROTO_TCP { 16 } else { 6 };
    let layers = headers::layers(&f).expect("built above");
    assert_eq!(layers.l4, l4);
    if !v6 {
        ipv4_checksum(&mut f, &layers).expect("built above");
    }
    let pseudo = fold(headers::pseudo_sum(&f, &layers, l4_length).expect("built above"));
    put(&mut f, l4 + offset, &pseudo.to_be_bytes()).expect("built above");
    let mut p = Packet::from_slice(&f);
    p.offload = Offload {
        csum: Some((l4 as u16, offset as u16)),
        gso: gso.map(|(kind, size)| (kind, size, header as u16)),
        ..Offload::default()
    };
    p
}

/// The headers before a packet in a tunnel.
#[derive(Clone, Copy, Debug)]
enum Tunnel {
    /// VXLAN, with or without a checksum (RFC 7348).
    Vxlan(bool),
    /// GRE with an Ethernet frame, with or without a checksum.
    Gre(bool),
    /// IP in IP.
    Ip,
}

/// Returns a packet in a tunnel in the form of a host's stack: all headers describe the whole
/// packet.
fn tunnelled(v6: bool, tunnel: Tunnel, inner: &Packet) -> Packet {
    let frame = inner.data();
    let ip = &frame[headers::layers(frame).expect("it has layers").l3..];
    let (proto, mut behind) = match tunnel {
        Tunnel::Vxlan(_) => (PROTO_UDP, vec![0x30, 0x39, 0x12, 0xb5, 0, 0, 0, 0]),
        Tunnel::Gre(false) => (PROTO_GRE, vec![0, 0, 0x65, 0x58]),
        Tunnel::Gre(true) => (PROTO_GRE, vec![0x80, 0, 0x65, 0x58, 0, 0, 0, 0]),
        Tunnel::Ip if ip[0] >> 4 == 4 => (PROTO_IPV4, Vec::new()),
        Tunnel::Ip => (PROTO_IPV6, Vec::new()),
    };
    if let Tunnel::Vxlan(sums) = tunnel {
        behind.extend([8, 0, 0, 0, 0, 0, 7, 0]);
        let length = (behind.len() + frame.len()) as u16;
        put(&mut behind, 4, &length.to_be_bytes()).expect("built above");
        put(&mut behind, 6, &u16::from(sums).to_be_bytes()).expect("built above");
    }
    let content = if matches!(tunnel, Tunnel::Ip) { ip } else { frame };
    behind.extend(content);
    // As for any transport, except for the bytes that `unfinished` puts before its payload.
    let mut p = unfinished(v6, proto, 0, &behind[8..], None);
    let l4 = p.len() - behind.len();
    p.data_mut()[l4..].copy_from_slice(&behind);
    let moved = (p.len() - frame.len()) as u16;
    let gso = inner.offload.gso.map(|(kind, size, header)| (kind, size, header + moved));
    let csum = inner.offload.csum.map(|(start, offset)| (start + moved, offset));
    p.offload = Offload { csum, gso, ..Offload::default() };
    p
}

/// Returns true when IP and transport checksums and lengths of a whole frame are right.
fn is_valid(frame: &[u8]) -> bool {
    let Some(l) = headers::layers(frame) else { return false };
    let ip_ok = match l.ip {
        Ip::V4 => {
            fold(headers::add_sum(0, &frame[l.l3..l.l4])) == 0xffff
                && usize::from(be16(frame, l.l3 + 2).unwrap()) == frame.len() - l.l3
        }
        Ip::V6 => usize::from(be16(frame, l.l3 + 4).unwrap()) == frame.len() - l.l3 - 40,
    };
    let part = &frame[l.l4..];
    let sum = headers::add_sum(headers::pseudo_sum(frame, &l, part.len()).unwrap(), part);
    ip_ok && fold(sum) == 0xffff
}

/// Returns the segmentation type of a packet with TCP, or else UDP.
fn cut(v6: bool, tcp: bool) -> (u8, Gso) {
    match (tcp, v6) {
        (true, false) => (PROTO_TCP, Gso::TcpV4),
        (true, true) => (PROTO_TCP, Gso::TcpV6),
        (false, _) => (PROTO_UDP, Gso::UdpL4),
    }
}

proptest! {
    #[test]
    fn checksums_are_finished(
        v6: bool,
        tcp: bool,
        tags in 0..3usize,
        payload in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let proto = if tcp { PROTO_TCP } else { PROTO_UDP };
        let p = unfinished(v6, proto, tags, &payload, None);
        let frames = finish(&p).unwrap();
        prop_assert_eq!(frames.len(), 1);
        prop_assert!(is_finished(&frames[0]));
        prop_assert!(is_valid(frames[0].data()));
        // A packet that lost its metadata is recognised, and a second finish changes nothing.
        let mut bare = Packet::from_slice(p.data());
        prop_assert!(recognise_unfinished(&mut bare));
        prop_assert_eq!(bare.offload.csum, p.offload.csum);
        let mut done = frames[0].clone();
        if recognise_unfinished(&mut done) {
            finish_checksum(&mut done).unwrap();
            prop_assert_eq!(done.data(), frames[0].data());
        }
    }

    #[test]
    fn segments_are_whole_and_valid(
        v6: bool,
        tcp: bool,
        tags in 0..2usize,
        payload in proptest::collection::vec(any::<u8>(), 1..5000),
        size in 1..2000u16,
    ) {
        let (proto, kind) = cut(v6, tcp);
        let p = unfinished(v6, proto, tags, &payload, Some((kind, size)));
        let header = usize::from(p.offload.gso.unwrap().2);
        let frames = finish(&p).unwrap();
        prop_assert_eq!(frames.len(), payload.len().div_ceil(size.into()));
        let mut joined = Vec::new();
        for (i, f) in frames.iter().enumerate() {
            prop_assert!(is_finished(f));
            prop_assert!(is_valid(f.data()), "segment {} of {}", i, frames.len());
            let l = headers::layers(f.data()).unwrap();
            if tcp {
                let sequence = be32(f.data(), l.l4 + 4).unwrap();
                prop_assert_eq!(sequence, 0xffff_ff00u32.wrapping_add(joined.len() as u32));
                let flags = f.data()[l.l4 + 13];
                prop_assert_eq!(flags & 0x09 != 0, i + 1 == frames.len(), "FIN, PSH");
                prop_assert_eq!(flags & 0x80 != 0, i == 0, "CWR");
            }
            joined.extend_from_slice(&f.data()[header..]);
        }
        prop_assert_eq!(joined, payload);
    }

    #[test]
    fn segments_in_a_tunnel_have_all_of_its_headers(
        outer_v6: bool,
        v6: bool,
        tcp: bool,
        tunnel in prop::sample::select(vec![
            Tunnel::Vxlan(false),
            Tunnel::Vxlan(true),
            Tunnel::Gre(false),
            Tunnel::Gre(true),
            Tunnel::Ip,
        ]),
        payload in proptest::collection::vec(any::<u8>(), 1..5000),
        size in 1..2000u16,
    ) {
        let (proto, kind) = cut(v6, tcp);
        let inner = unfinished(v6, proto, 0, &payload, Some((kind, size)));
        let whole = tunnelled(outer_v6, tunnel, &inner);
        prop_assert!(is_beyond_the_kernel(&whole) && !is_beyond_the_kernel(&inner));
        let outer = headers::layers(whole.data()).unwrap();
        let eth = if matches!(tunnel, Tunnel::Ip) { 0 } else { 14 };
        let ip = usize::from(whole.offload.csum.unwrap().0) - if v6 { 40 } else { 20 };
        let frames = finish(&whole).unwrap();
        let alone = finish(&inner).unwrap();
        prop_assert_eq!(frames.len(), alone.len());
        for (i, (f, alone)) in frames.iter().zip(&alone).enumerate() {
            prop_assert!(is_finished(f));
            // The inner packet is the same as without a tunnel.
            prop_assert_eq!(&f.data()[ip - eth..], &alone.data()[14 - eth..]);
            // In the outer headers only lengths and checksums changed, and they are right.
            let l = headers::layers(f.data()).unwrap();
            prop_assert_eq!((l.l4, l.proto, l.end), (outer.l4, outer.proto, f.len()));
            let part = &f.data()[l.l4..];
            match tunnel {
                Tunnel::Vxlan(sums) => {
                    prop_assert_eq!(usize::from(be16(part, 4).unwrap()), part.len());
                    prop_assert_eq!(be16(part, 6).unwrap() != 0, sums);
                    prop_assert!(!sums || is_valid(f.data()), "segment {}", i);
                }
                Tunnel::Gre(true) => prop_assert_eq!(fold(headers::add_sum(0, part)), 0xffff),
                Tunnel::Gre(false) | Tunnel::Ip => {}
            }
            if !outer_v6 {
                prop_assert_eq!(fold(headers::add_sum(0, &f.data()[l.l3..l.l4])), 0xffff);
                prop_assert_eq!(be16(f.data(), l.l3 + 4).unwrap(), 0x12ff + i as u16);
            }
        }
    }

    #[test]
    fn fragments_are_whole(
        v6: bool,
        payload in proptest::collection::vec(any::<u8>(), 1..5000),
        size in 8..2000u16,
    ) {
        let p = unfinished(v6, PROTO_UDP, 0, &payload, Some((Gso::UdpFragment, size)));
        let expected = finish_whole(&p);
        let frames = finish(&p).unwrap();
        let mut joined = Vec::new();
        for (i, f) in frames.iter().enumerate() {
            let l = headers::layers(f.data()).unwrap();
            let (field, more) = if v6 {
                let field = be16(f.data(), l.l3 + 42).unwrap();
                (usize::from(field & 0xfff8), field & 1 != 0)
            } else {
                let field = be16(f.data(), l.l3 + 6).unwrap();
                (usize::from(field & 0x1fff) * 8, field & 0x2000 != 0)
            };
            prop_assert_eq!(field, joined.len());
            prop_assert_eq!(more, i + 1 < frames.len());
            joined.extend_from_slice(&f.data()[l.l4..l.end]);
        }
        let l = headers::layers(expected.data()).unwrap();
        prop_assert_eq!(&joined[..], &expected.data()[l.l4..]);
    }

    #[test]
    fn any_bytes_with_any_metadata_are_finished_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        csum in proptest::option::of((0..300u16, 0..300u16)),
        gso in proptest::option::of((0..4usize, any::<u16>(), any::<u16>())),
    ) {
        let kinds = [Gso::TcpV4, Gso::TcpV6, Gso::UdpL4, Gso::UdpFragment];
        let mut p = Packet::from_slice(&bytes);
        recognise_unfinished(&mut p);
        p.offload.csum = csum;
        p.offload.gso = gso.map(|(k, size, header)| (kinds[k], size, header));
        if let Ok(frames) = finish(&p) {
            prop_assert!(frames.iter().all(is_finished));
        }
    }

    #[test]
    fn mutated_frames_never_panic(
        v6: bool,
        inside: bool,
        cut in 0..120usize,
        at in 0..120usize,
        value: u8,
        kind in 0..4usize,
    ) {
        let kind = [Gso::TcpV4, Gso::TcpV6, Gso::UdpL4, Gso::UdpFragment][kind];
        let proto = if matches!(kind, Gso::TcpV4 | Gso::TcpV6) { PROTO_TCP } else { PROTO_UDP };
        let p = unfinished(v6, proto, 1, &[7; 40], Some((kind, 16)));
        let p = if inside { tunnelled(v6, Tunnel::Vxlan(v6), &p) } else { p };
        let mut bytes = p.data().to_vec();
        bytes.truncate(cut);
        if let Some(b) = bytes.get_mut(at) {
            *b = value;
        }
        let mut q = Packet::from_slice(&bytes);
        q.offload = p.offload;
        let _ = finish(&q);
    }
}

fn finish_whole(p: &Packet) -> Packet {
    let mut whole = p.clone();
    whole.offload.gso = None;
    finish_checksum(&mut whole).unwrap();
    whole
}

#[test]
fn contradictions_are_named() {
    let p = unfinished(false, PROTO_TCP, 0, &[1; 100], Some((Gso::TcpV4, 40)));
    let with = |change: &dyn Fn(&mut Packet)| {
        let mut q = p.clone();
        change(&mut q);
        finish(&q).err()
    };
    assert_eq!(with(&|_| {}), None);
    assert_eq!(
        with(&|q| q.offload.gso = Some((Gso::TcpV6, 40, 66))),
        Some(FinishError::WrongHeaders)
    );
    assert_eq!(
        with(&|q| q.offload.gso = Some((Gso::UdpL4, 40, 66))),
        Some(FinishError::WrongHeaders)
    );
    assert_eq!(
        with(&|q| q.offload.gso = Some((Gso::TcpV4, 0, 66))),
        Some(FinishError::SegmentSize)
    );
    assert_eq!(with(&|q| q.offload.csum = Some((84, 16))), Some(FinishError::Encapsulated));
    for (at, bit) in [(34, GRE_SEQUENCE), (34, GRE_ROUTING), (35, 1)] {
        let special = |q: &mut Packet| {
            *q = tunnelled(false, Tunnel::Gre(true), &p);
            q.data_mut()[at] |= bit;
        };
        assert_eq!(with(&special), Some(FinishError::Encapsulated), "{bit:#x} at {at}");
    }
    let without_transport = |q: &mut Packet| {
        *q = tunnelled(false, Tunnel::Vxlan(false), &p);
        // Both IP packets end where the transport header would be; padding follows.
        let inside = Layers { l3: 64, l4: 84, ..headers::layers(q.data()).unwrap() };
        let d = q.data_mut();
        put(d, 16, &70u16.to_be_bytes()).unwrap();
        put(d, 66, &20u16.to_be_bytes()).unwrap();
        ipv4_checksum(d, &inside).unwrap();
    };
    assert_eq!(with(&without_transport), Some(FinishError::WrongHeaders));
    let longer_inside = |q: &mut Packet| {
        *q = tunnelled(false, Tunnel::Vxlan(false), &p);
        let length = (q.len() - 14 - 1) as u16; // the outer packet ends before the inner one
        q.data_mut()[16..18].copy_from_slice(&length.to_be_bytes());
    };
    assert_eq!(with(&longer_inside), Some(FinishError::Encapsulated));
    let csum_only = |q: &mut Packet| {
        q.offload.gso = None;
        q.offload.csum = Some((160, 16));
    };
    assert_eq!(with(&csum_only), Some(FinishError::ChecksumOutside));
}

#[test]
fn what_is_in_two_tunnels_is_refused() {
    let tunnels = [
        Tunnel::Vxlan(false),
        Tunnel::Vxlan(true),
        Tunnel::Gre(false),
        Tunnel::Gre(true),
        Tunnel::Ip,
    ];
    for (outer, middle) in tunnels.into_iter().flat_map(|o| tunnels.map(|m| (o, m))) {
        for bits in 0..8 {
            let (v6, middle_v6, outer_v6) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
            let kind = if v6 { Gso::TcpV6 } else { Gso::TcpV4 };
            let inside = unfinished(v6, PROTO_TCP, 0, &[7; 100], Some((kind, 40)));
            let once = tunnelled(middle_v6, middle, &inside);
            assert_eq!(finish(&once).map(|frames| frames.len()), Ok(3), "{middle:?}, {bits:#b}");
            let twice = tunnelled(outer_v6, outer, &once);
            let error = finish(&twice).err();
            assert_eq!(error, Some(FinishError::Encapsulated), "{outer:?}, {middle:?}, {bits:#b}");
        }
    }
}

/// Returns an SCTP packet (an INIT without parameters) with an unfinished CRC.
fn sctp() -> Packet {
    let mut f = ETH.to_vec();
    f.extend([8, 0, 0x45, 0, 0, 52, 0, 0, 0x40, 0, 64, 132, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    f.extend([0x30, 0x39, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0]);
    f.extend([1, 0, 0, 20, 1, 2, 3, 4, 0, 1, 0, 0, 0, 10, 0, 10, 5, 6, 7, 8]);
    f.extend([0; 4]); // padding of the frame
    let mut p = Packet::from_slice(&f);
    p.offload.csum = Some((34, 8));
    p
}

#[test]
fn sctp_has_a_crc_and_no_internet_checksum() {
    let expected = checksum::sctp(&sctp().data()[34..66]).expect("long enough");
    let mut p = sctp();
    finish_crc(&mut p);
    assert_eq!((&p.data()[42..46], p.offload.csum), (&expected[..], None));
    let mut lost = sctp();
    lost.offload.csum = None;
    assert!(!recognise_unfinished(&mut lost));
    assert_eq!(lost.data(), p.data());
    // Neither another protocol nor SCTP in a tunnel is changed.
    let mut udp = unfinished(false, PROTO_UDP, 0, &[7; 20], None);
    udp.offload.csum = Some((34, 8));
    let before = udp.clone();
    finish_crc(&mut udp);
    assert_eq!((udp.data(), udp.offload.csum), (before.data(), Some((34, 8))));
    let mut inner = sctp();
    inner.offload.csum = Some((36, 8));
    finish_crc(&mut inner);
    assert_eq!(inner.offload.csum, Some((36, 8)));
}

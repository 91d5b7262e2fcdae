// SPDX-License-Identifier: Apache-2.0

use super::*;
use packet::build::Frame;
use proptest::prelude::*;
use std::net::Ipv6Addr;

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn frames() -> Vec<Vec<u8>> {
    let v6 = || Frame::ethernet(B, A).ipv6(Ipv6Addr::LOCALHOST, "fe80::2".parse().unwrap(), 255);
    let v4 = || Frame::ethernet(B, A).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 64);
    vec![
        v4().tcp(1, 2, 0x12).payload(b"abc").finish(),
        v4().udp(1, 2).finish(),
        v4().sctp(1, 2).finish(),
        v4().icmp(8, 0, 7).finish(),
        v4().igmp(0x16, 0, [224, 0, 0, 5].into()).finish(),
        v6().tcp(1, 2, 0x12).finish(),
        v6().ipv6_extension(0, &[])
            .ipv6_extension(43, &[0; 14])
            .ipv6_extension(60, &[])
            .ipv6_fragment(1, 0, 9)
            .udp(4, 5)
            .finish(),
        v6().ipv6_fragment(0x58, 59, 9).payload(b"xyz").finish(),
        v6().nd(135, 0, "fe80::3".parse().unwrap(), &[(1, A)]).finish(),
        v6().nd(136, 0x6000_0000, "fe80::3".parse().unwrap(), &[(2, B)]).finish(),
        Frame::ethernet(B, A)
            .arp(0x0806, 1, (A, [1, 2, 3, 4].into()), (B, [5, 6, 7, 8].into()))
            .finish(),
        Frame::ethernet(B, A)
            .vlan(0x88a8, 0xa005)
            .vlan(0x8100, 7)
            .ipv4([1; 4].into(), [2; 4].into(), 1)
            .udp(9, 8)
            .finish(),
        Frame::ethernet(B, A)
            .mpls(0x8847, MplsEntry::new(100, 1, false, 64))
            .mpls(0, MplsEntry::new(5, 2, true, 3))
            .payload(b"inner")
            .finish(),
        Frame::ethernet(B, A)
            .ethertype(20)
            .payload(&[0xaa, 0xaa, 3, 0, 0, 0, 0x12, 0x34, 1, 2])
            .finish(),
    ]
}

#[test]
fn tcp_over_ipv4() {
    let (k, l) = extract(&frames()[0], 3);
    assert_eq!((k.in_port.get(), k.dl_type.get(), k.nw_proto, k.nw_ttl), (3, 0x800, 6, 64));
    assert_eq!((k.dl_src, k.dl_dst), (A, B));
    assert_eq!((k.nw_src.get(), k.nw_dst.get()), (0x0a00_0001, 0x0a00_0002));
    assert_eq!((k.tp_src.get(), k.tp_dst.get(), k.tcp_flags.get()), (1, 2, 0x12));
    assert_eq!(l, Layers { l2_5: None, l3: Some(14), l4: Some(34), l2_pad: 0 });
}

#[test]
fn padding_does_not_count() {
    let mut f = frames()[1].clone();
    let k = key_of(&f, 1);
    f.resize(2000, 0xee);
    let (padded, l) = extract(&f, 1);
    assert_eq!(padded, k);
    assert_eq!(usize::from(l.l2_pad), 2000 - 42);
}

#[test]
fn header_chains() {
    let f = frames();
    let k = key_of(&f[6], 0);
    assert_eq!((k.nw_proto, k.nw_frag, k.tp_src.get(), k.tp_dst.get()), (17, FRAG_ANY, 4, 5));
    let k = key_of(&f[7], 0);
    assert_eq!((k.nw_proto, k.nw_frag, k.tp_src.get()), (44, FRAG_ANY | FRAG_LATER, 0));
    let k = key_of(&f[8], 0);
    assert_eq!((k.tp_src.get(), k.arp_sha, k.arp_tha, k.nd_options_type), (135, A, [0; 6], 1));
    assert_eq!(Ipv6Addr::from(k.nd_target), "fe80::3".parse::<Ipv6Addr>().unwrap());
    let k = key_of(&f[9], 0);
    assert_eq!((k.nd_reserved.get(), k.arp_tha, k.nd_options_type), (0x6000_0000, B, 2));
    let k = key_of(&f[10], 0);
    assert_eq!((k.nw_proto, k.arp_sha, k.arp_tha, k.nw_src.get()), (1, A, B, 0x0102_0304));
    let k = key_of(&f[11], 0);
    assert_eq!((k.vlans[0].tpid.get(), k.vlans[0].tci.get()), (0x88a8, 0xb005));
    assert_eq!(
        (k.vlans[1].tpid.get(), k.vlans[1].tci.get(), k.dl_type.get()),
        (0x8100, 0x1007, 0x800)
    );
    let (k, l) = extract(&f[12], 0);
    assert_eq!((k.mpls[0].get(), k.mpls[1].get(), k.mpls[2].get()), (0x0006_4240, 0x0000_5503, 0));
    assert_eq!((l.l2_5, l.l3), (Some(14), Some(22)));
    assert_eq!(key_of(&f[13], 0).dl_type.get(), 0x1234);
}

#[test]
fn malformed_headers_give_zeros() {
    let good = frames()[0].clone();
    let l3_zero = |f: &[u8]| {
        let k = key_of(f, 0);
        assert_eq!(k.dl_type.get(), 0x800);
        assert_eq!((k.nw_src.get(), k.nw_proto, k.tp_src.get(), k.tcp_flags.get()), (0, 0, 0, 0));
    };
    let mut f = good.clone();
    f[14] = 0x44; // header length below 20
    l3_zero(&f);
    f[14] = 0x4f;
    l3_zero(&f[..40]); // header beyond the frame
    let mut f = good.clone();
    f[16] = 0xff; // total length beyond the frame
    l3_zero(&f);
    let mut f = good.clone();
    (f[16], f[17]) = (0, 19); // total length below the header
    l3_zero(&f);
    let mut f = good.clone();
    (f[16], f[17]) = (0, 39); // the transport header is cut off by the total length
    let k = key_of(&f, 0);
    assert_eq!((k.nw_proto, k.tp_src.get(), k.tcp_flags.get()), (6, 0, 0));
    let mut f = good.clone();
    for offset in [0x40, 0x60] {
        f[46] = offset; // TCP data offset below the header, beyond the packet
        assert_eq!(key_of(&f, 0).tp_src.get(), 0);
    }
    let mut arp = frames()[10].clone();
    arp[20] = 1; // opcode 257
    let k = key_of(&arp, 0);
    assert_eq!((k.nw_proto, k.nw_src.get()), (0, 0x0102_0304));
    arp[18] = 8; // hardware address length
    assert_eq!(key_of(&arp, 0).nw_src.get(), 0);
    let v6 = |o: &[(u8, [u8; 6])]| {
        Frame::ethernet(B, A)
            .ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, 255)
            .nd(135, 0, "fe80::3".parse().unwrap(), o)
            .finish()
    };
    let k = key_of(&v6(&[(1, A), (1, B)]), 0);
    assert_eq!((k.nd_target, k.arp_sha, k.tp_src.get()), ([0; 16], [0; 6], 135));
    // A tag without room for the inner type is a type.
    let k = key_of(&[&B[..], &A[..], &[0x81, 0, 0, 5, 8]].concat(), 0);
    assert_eq!((k.vlans[0].tci.get(), k.dl_type.get()), (0, 0x8100));
    let k = key_of(&[&B[..], &A[..], &[0, 5, 1, 2, 3]].concat(), 0);
    assert_eq!(k.dl_type.get(), DL_TYPE_NONE);
}

#[test]
fn survives_truncation_at_every_byte() {
    for f in frames() {
        for n in 0..f.len() {
            let (k, l) = extract(&f[..n], 1);
            assert!(l.l3.is_none_or(|o| usize::from(o) <= n));
            assert!(l.l4.is_none_or(|o| usize::from(o) <= n));
            assert_eq!(k.in_port.get(), 1);
        }
    }
}

#[test]
fn survives_mutations() {
    // A small xorshift keeps the run reproducible.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % n
    };
    let frames = frames();
    for round in 0..100_000 {
        let mut f = frames[round % frames.len()].clone();
        for _ in 0..1 + random(4) {
            let at = random(f.len());
            f[at] = random(256) as u8;
        }
        f.truncate(1 + random(f.len()));
        let (k, l) = extract(&f, 1);
        assert!(l.l4.is_none_or(|o| usize::from(o) <= f.len()));
        assert!(l.l4.is_some() || k.tp_src.get() == 0);
        assert!(k.nw_frag & FRAG_LATER == 0 || k.tp_dst.get() == 0);
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = extract(&bytes, 0);
    }
}

#[test]
fn tags_beyond_the_limit_are_payload() {
    let f = &frames()[11];
    let (k, l) = extract_limited(f, 0, 1);
    assert_eq!((k.vlans[0].tci.get(), k.vlans[1].tci.get()), (0xb005, 0));
    assert_eq!((k.dl_type.get(), k.nw_src.get()), (0x8100, 0));
    assert_eq!((l.l3, l.l4), (Some(18), None));
}

#[test]
fn a_packet_without_an_ethernet_header_has_the_key_of_its_frame() {
    let frame = Frame::ethernet([1; 6], [2; 6])
        .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 64)
        .udp(5, 6)
        .payload(&[1])
        .finish();
    let (mut expected, layers) = extract(&frame, 7);
    (expected.dl_dst, expected.dl_src) = ([0; 6], [0; 6]);
    expected.packet_type.set(0x1_0800);
    let (key, bare) = extract_layer3(&frame[14..], 7, 0x0800);
    assert_eq!(key, expected);
    assert_eq!(bare.l4.map(|l4| l4 + 14), layers.l4);
    let (key, layers) = extract_layer3(&frame[14..20], 7, 0x0800);
    assert_eq!((key.nw_src.get(), key.dl_type.get(), layers.l3), (0, 0x0800, Some(0)));
}

#[test]
fn the_type_of_a_packet_decides_about_its_first_header() {
    let frame = Frame::ethernet([2; 6], [3; 6]).ipv4([1; 4].into(), [2; 4].into(), 9).finish();
    assert_eq!(key_of_type(&frame, 5, 0), key_of(&frame, 5));
    let bare = key_of_type(&frame[14..], 5, 0x1_0800);
    assert_eq!((bare.nw_ttl, bare.packet_type.get(), bare.dl_src), (9, 0x1_0800, [0; 6]));
    assert_eq!(bare.in_port.get(), 5);
}

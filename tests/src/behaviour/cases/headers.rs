// SPDX-License-Identifier: Apache-2.0
//! Actions that change headers, and the checksums that follow.

use crate::behaviour::frames::{
    A, B, has_right_checksums, ipv4, ipv6, pattern, tcp, udp, unfinished, v4, v6,
};
use crate::behaviour::{World, on};
use datapath::DropReason;
use flow::Field;
use flow::extract::{extract, key_of};
use packet::build::Frame;
use packet::{Gso, Ipv4Header, Ipv6Header, MplsEntry, Packet};
use std::net::Ipv6Addr;

const C: [u8; 6] = [0x02, 1, 2, 3, 4, 5];

pub fn vlan_push_pop_and_qinq(w: &World) {
    let plain = || Frame::ethernet(B, A);
    let ip = |f: Frame| f.ipv4(v4(1), v4(2), 64).udp(1, 2).payload(b"x").finish();
    for (actions, before, after) in [
        ("push_vlan(vid=5,pcp=3),2", plain(), plain().vlan(0x8100, 0x6005)),
        (
            "push_vlan(vid=5,pcp=3),push_vlan(tpid=0x88a8,vid=7,pcp=0),2",
            plain(),
            plain().vlan(0x88a8, 7).vlan(0x8100, 0x6005),
        ),
        ("pop_vlan,2", plain().vlan(0x8100, 0x6005), plain()),
        ("pop_vlan,2", plain().vlan(0x88a8, 7).vlan(0x8100, 0x6005), plain().vlan(0x8100, 0x6005)),
        ("pop_vlan,pop_vlan,2", plain().vlan(0x88a8, 7).vlan(0x8100, 0x6005), plain()),
        (
            "pop_vlan,push_vlan(vid=9,pcp=0),2",
            plain().vlan(0x8100, 0xf005),
            plain().vlan(0x8100, 9),
        ),
        (
            "push_vlan(tpid=0x88a8,vid=1,pcp=0),set(ipv4(dst=10.0.0.2)),2",
            plain().vlan(0x8100, 2),
            plain().vlan(0x88a8, 1).vlan(0x8100, 2),
        ),
    ] {
        assert_eq!(w.through(actions, Packet::from_slice(&ip(before))), [ip(after)], "{actions}");
    }
}

/// Two VLAN headers are looked through here. More of them that actions push hide nothing, and one
/// that was payload stays that.
pub fn vlan_headers_beyond_the_limit(w: &World) {
    let tagged = |tags: &[u16]| tags.iter().fold(Frame::ethernet(B, A), |f, t| f.vlan(0x8100, *t));
    let datagram =
        |f: Frame, to, port| f.ipv4(v4(1), v4(to), 64).udp(1, port).payload(b"x").finish();
    let push = |n: usize| "push_vlan(vid=9,pcp=0),".repeat(n);
    let label = "push_mpls(label=5,tc=0,ttl=64,bos=1,eth_type=0x8847)";
    let labelled = |tags: &[u16], payload: &[u8]| {
        let label = MplsEntry::new(5, 0, true, 64);
        tagged(tags).mpls(0x8847, label).payload(payload).finish()
    };
    let three = datagram(tagged(&[1, 2, 3]), 2, 2);
    let behind_two = three.get(22..).expect("three headers");
    for (actions, before, after) in [
        (push(1) + "set(ipv4(dst=10.0.0.9)),2", &[1, 2][..], datagram(tagged(&[9, 1, 2]), 9, 2)),
        (push(3) + "set(udp(dst=7)),2", &[1, 2], datagram(tagged(&[9, 9, 9, 1, 2]), 2, 7)),
        (push(2) + "pop_vlan,set(udp(dst=7)),2", &[1, 2], datagram(tagged(&[9, 1, 2]), 2, 7)),
        (push(1) + "pop_vlan,pop_vlan,set(udp(dst=7)),2", &[1, 2], datagram(tagged(&[2]), 2, 7)),
        (
            push(1) + label + ",2",
            &[1, 2],
            labelled(&[9, 1, 2], datagram(tagged(&[]), 2, 2).get(14..).expect("a header")),
        ),
        (push(1) + "2", &[1, 2, 3], datagram(tagged(&[9, 1, 2, 3]), 2, 2)),
        ("pop_vlan,".to_owned() + label + ",2", &[1, 2, 3], labelled(&[2], behind_two)),
        ("pop_vlan,pop_vlan,".to_owned() + label + ",2", &[1, 2, 3], labelled(&[], behind_two)),
        (
            "pop_vlan,pop_vlan,".to_owned() + label + "," + &push(1) + "2",
            &[1, 2, 3],
            labelled(&[9], behind_two),
        ),
        (
            "pop_vlan,pop_vlan,".to_owned() + &push(1) + "2",
            &[1, 2, 3],
            datagram(tagged(&[9, 3]), 2, 2),
        ),
    ] {
        let frame = Packet::from_slice(&datagram(tagged(before), 2, 2));
        assert_eq!(w.through(&actions, frame), [after], "{actions}");
    }
    for actions in ["pop_vlan,pop_vlan,pop_vlan,2", "pop_vlan,set(ipv4(ttl=3)),2"] {
        let before = w.drops(DropReason::Malformed);
        assert!(w.through(actions, Packet::from_slice(&three)).is_empty(), "{actions}");
        assert_eq!(w.drops(DropReason::Malformed), before + 1, "{actions}");
    }
    // A second lookup or a hash counts from zero again.
    let mut hidden = on(1);
    hidden.set(Field::RecircId, 1);
    hidden.set(Field::EthType, 0x8100);
    let pushed = datagram(tagged(&[9, 1, 2]), 2, 2);
    let hash = datapath::hash::five_tuple(&key_of(&pushed, 1), false, 0);
    hidden.set(Field::DpHash, hash.into());
    w.dp().flush();
    w.install(1, on(1), "push_vlan(vid=9,pcp=0),hash(l4(0)),recirc(0x1)");
    w.install(2, hidden, "pop_vlan,2");
    w.inject(1, &datagram(tagged(&[1, 2]), 2, 2));
    assert_eq!(w.out(2), [datagram(tagged(&[1, 2]), 2, 2)]);
}

pub fn pop_without_a_tag_is_malformed(w: &World) {
    for actions in ["pop_vlan,2", "pop_mpls(eth_type=0x800),2", "set(mpls(ttl=3)),2"] {
        let before = w.drops(DropReason::Malformed);
        assert!(w.through(actions, Packet::from_slice(&udp(1))).is_empty());
        assert_eq!(w.drops(DropReason::Malformed), before + 1, "{actions}");
    }
}

pub fn mpls_push_set_and_pop(w: &World) {
    let plain = || Frame::ethernet(B, A);
    let label = |n, bottom, ttl| MplsEntry::new(n, 0, bottom, ttl);
    let ip = |f: Frame| f.ipv4(v4(1), v4(2), 64).udp(1, 2).payload(b"x").finish();
    for (actions, before, after) in [
        (
            "push_mpls(label=5,tc=0,ttl=64,bos=1,eth_type=0x8847),2",
            ip(plain()),
            ip(plain().mpls(0x8847, label(5, true, 64))),
        ),
        (
            "push_mpls(label=6,tc=0,ttl=9,bos=0,eth_type=0x8848),2",
            ip(plain().vlan(0x8100, 3).mpls(0x8847, label(5, true, 64))),
            ip(plain()
                .vlan(0x8100, 3)
                .mpls(0x8848, label(6, false, 9))
                .mpls(0, label(5, true, 64))),
        ),
        (
            "set(mpls(label=7,tc=0,ttl=63,bos=1)),2",
            ip(plain().mpls(0x8847, label(5, true, 64))),
            ip(plain().mpls(0x8847, label(7, true, 63))),
        ),
        (
            "set(mpls(label=0/0x0,tc=0/0,ttl=63/0xff,bos=0/0)),2",
            ip(plain().mpls(0x8847, label(5, true, 64))),
            ip(plain().mpls(0x8847, label(5, true, 63))),
        ),
        ("pop_mpls(eth_type=0x800),2", ip(plain().mpls(0x8847, label(5, true, 64))), ip(plain())),
        (
            "pop_mpls(eth_type=0x800),set(ipv4(ttl=64)),2",
            ip(plain().vlan(0x88a8, 1).vlan(0x8100, 3).mpls(0x8847, label(5, true, 64))),
            ip(plain().vlan(0x88a8, 1).vlan(0x8100, 3)),
        ),
        (
            "pop_mpls(eth_type=0x8847),2",
            ip(plain().mpls(0x8847, label(6, false, 9)).mpls(0, label(5, true, 64))),
            ip(plain().mpls(0x8847, label(5, true, 64))),
        ),
    ] {
        // The builder names what is under a label nowhere; types in the frames are what they are.
        assert_eq!(w.through(actions, Packet::from_slice(&before)), [after], "{actions}");
    }
}

fn ipv4_with(tos: u8) -> Frame {
    Frame::ethernet(B, A).ipv4_header(Ipv4Header {
        version_ihl: 0x45,
        tos,
        total_len: 0.into(),
        id: 0x1234.into(),
        fragment: 0x4000.into(),
        ttl: 64,
        proto: 0,
        checksum: 0.into(),
        src: v4(1).to_bits().into(),
        dst: v4(2).to_bits().into(),
    })
}

fn ipv6_with(class_label: u32) -> Frame {
    Frame::ethernet(B, A).ipv6_header(Ipv6Header {
        version_class_label: (6 << 28 | class_label).into(),
        payload_len: 0.into(),
        next: 0,
        hop_limit: 64,
        src: v6(1).octets(),
        dst: v6(2).octets(),
    })
}

/// Target, a source option of 16 bytes, and one of 8 with `mac`.
fn nd_body(mac: [u8; 6]) -> Vec<u8> {
    let mut body = v6(2).octets().to_vec();
    body.extend_from_slice(&[1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
    body.extend_from_slice(&mac);
    body
}

pub fn every_field_can_be_set_with_right_checksums(w: &World) {
    let odd = pattern(33);
    let target: Ipv6Addr = v6(0x77);
    let nd = |f: Frame, target, mac| f.nd(135, 0, target, &[(1, mac)]).finish();
    let table: Vec<(&str, Vec<u8>, Vec<u8>)> = vec![
        (
            "set(eth(src=02:01:02:03:04:05,dst=02:00:00:00:00:0a)),2",
            udp(5),
            Frame::ethernet(A, C)
                .ipv4(v4(1), v4(2), 64)
                .udp(1000, 2000)
                .payload(&pattern(5))
                .finish(),
        ),
        (
            "set(ipv4(src=192.168.7.9,dst=172.16.254.1,tos=0xb8,ttl=17)),2",
            ipv4().tcp(1000, 2000, 0x18).payload(&odd).finish(),
            Frame::ethernet(B, A)
                .ipv4_header(Ipv4Header {
                    version_ihl: 0x45,
                    tos: 0xb8,
                    total_len: 0.into(),
                    id: 0.into(),
                    fragment: 0.into(),
                    ttl: 17,
                    proto: 0,
                    checksum: 0.into(),
                    src: u32::from_be_bytes([192, 168, 7, 9]).into(),
                    dst: u32::from_be_bytes([172, 16, 254, 1]).into(),
                })
                .tcp(1000, 2000, 0x18)
                .payload(&odd)
                .finish(),
        ),
        (
            "set(ipv4(dst=10.0.0.9)),2",
            ipv4().udp(5, 6).payload(&odd).finish(),
            Frame::ethernet(B, A).ipv4(v4(1), v4(9), 64).udp(5, 6).payload(&odd).finish(),
        ),
        (
            "set(ipv4(src=10.0.0.9)),2",
            ipv4().sctp(5, 6).payload(&odd).finish(),
            Frame::ethernet(B, A).ipv4(v4(9), v4(2), 64).sctp(5, 6).payload(&odd).finish(),
        ),
        (
            "set(ipv4(src=10.0.0.9)),2",
            ipv4().icmp(8, 0, 5).payload(&odd).finish(),
            Frame::ethernet(B, A).ipv4(v4(9), v4(2), 64).icmp(8, 0, 5).payload(&odd).finish(),
        ),
        (
            "set(ipv4(tos=0x4/0xfc)),2",
            ipv4_with(0xb3).udp(1, 2).finish(),
            ipv4_with(0x07).udp(1, 2).finish(),
        ),
        (
            "set(ipv6(src=fd00::9,dst=fd00::8,label=0x12345,tclass=0xb8,hlimit=3)),2",
            ipv6_with(0).tcp(1, 2, 2).payload(&odd).finish(),
            Frame::ethernet(B, A)
                .ipv6_header(Ipv6Header {
                    version_class_label: (6 << 28 | 0xb8 << 20 | 0x12345).into(),
                    payload_len: 0.into(),
                    next: 0,
                    hop_limit: 3,
                    src: v6(9).octets(),
                    dst: v6(8).octets(),
                })
                .tcp(1, 2, 2)
                .payload(&odd)
                .finish(),
        ),
        (
            "set(ipv6(label=0x5/0xf,tclass=0x4/0xfc)),2",
            ipv6_with(0xb3 << 20 | 0xabcde).udp(1, 2).finish(),
            ipv6_with(0x07 << 20 | 0xabcd5).udp(1, 2).finish(),
        ),
        (
            "set(ipv6(src=fd00::9)),2",
            ipv6().udp(1, 2).payload(&odd).finish(),
            Frame::ethernet(B, A).ipv6(v6(9), v6(2), 64).udp(1, 2).payload(&odd).finish(),
        ),
        (
            "set(ipv6(dst=fd00::9)),2",
            ipv6().icmpv6(128, 0, 5).payload(&odd).finish(),
            Frame::ethernet(B, A).ipv6(v6(1), v6(9), 64).icmpv6(128, 0, 5).payload(&odd).finish(),
        ),
        (
            "set(ipv6(dst=fd00::9)),2",
            ipv6()
                .ipv6_extension(0, &[1, 4, 0, 0, 0, 0])
                .ipv6_extension(60, &[])
                .tcp(1, 2, 2)
                .finish(),
            Frame::ethernet(B, A)
                .ipv6(v6(1), v6(9), 64)
                .ipv6_extension(0, &[1, 4, 0, 0, 0, 0])
                .ipv6_extension(60, &[])
                .tcp(1, 2, 2)
                .finish(),
        ),
        ("set(tcp(src=5,dst=60000)),2", tcp(2, 33), ipv4().tcp(5, 60000, 2).payload(&odd).finish()),
        (
            "set(tcp(dst=443)),2",
            ipv6().tcp(1000, 80, 2).payload(&odd).finish(),
            ipv6().tcp(1000, 443, 2).payload(&odd).finish(),
        ),
        ("set(udp(src=5,dst=60000)),2", udp(33), ipv4().udp(5, 60000).payload(&odd).finish()),
        (
            "set(udp(dst=53)),2",
            ipv6().udp(1000, 80).payload(&odd).finish(),
            ipv6().udp(1000, 53).payload(&odd).finish(),
        ),
        (
            "set(sctp(src=5,dst=60000)),2",
            ipv4().sctp(1, 2).payload(&odd).finish(),
            ipv4().sctp(5, 60000).payload(&odd).finish(),
        ),
        (
            "set(icmp(type=0,code=7)),2",
            ipv4().icmp(8, 0, 9).payload(&odd).finish(),
            ipv4().icmp(0, 7, 9).payload(&odd).finish(),
        ),
        (
            "set(icmpv6(type=129,code=0)),2",
            ipv6().icmpv6(128, 0, 9).payload(&odd).finish(),
            ipv6().icmpv6(129, 0, 9).payload(&odd).finish(),
        ),
        (
            "set(arp(sip=10.0.0.5,tip=10.0.0.6,op=2,sha=02:01:02:03:04:05,tha=02:00:00:00:00:0b)),2",
            Frame::ethernet([0xff; 6], A).arp(0x806, 1, (A, v4(1)), ([0; 6], v4(2))).finish(),
            Frame::ethernet([0xff; 6], A).arp(0x806, 2, (C, v4(5)), (B, v4(6))).finish(),
        ),
        (
            "set(nd(target=fd00::77,sll=02:01:02:03:04:05,tll=02:00:00:00:00:0b)),2",
            nd(ipv6(), v6(2), A),
            nd(ipv6(), target, C),
        ),
        (
            "set(nd(tll=02:01:02:03:04:05)),2",
            ipv6().nd(136, 0x6000_0000, v6(2), &[(2, B)]).finish(),
            ipv6().nd(136, 0x6000_0000, v6(2), &[(2, C)]).finish(),
        ),
        (
            "set(icmpv6(type=136,code=0)),set(nd(target=fd00::77)),2",
            ipv6().nd(135, 0, v6(2), &[(1, A)]).finish(),
            ipv6().nd(136, 0, v6(0x77), &[(1, A)]).finish(),
        ),
        (
            // An option of another length is no Ethernet address.
            "set(nd(sll=02:01:02:03:04:05)),2",
            ipv6().icmpv6(135, 0, 0).payload(&nd_body(A)).finish(),
            ipv6().icmpv6(135, 0, 0).payload(&nd_body(C)).finish(),
        ),
        (
            "set(nd_ext(nd_reserved=0x12345678,nd_options_type=2)),2",
            nd(ipv6(), v6(2), A),
            ipv6().nd(135, 0x1234_5678, v6(2), &[(2, A)]).finish(),
        ),
        (
            "set(nd_ext(nd_reserved=0x50000000/0x70000000)),set(nd(target=fd00::77)),2",
            ipv6().nd(136, 0xe000_0001, target, &[(2, A), (1, B)]).finish(),
            ipv6().nd(136, 0xd000_0001, target, &[(2, A), (1, B)]).finish(),
        ),
        (
            // The first option that is a link-layer address, and only that.
            "set(nd_ext(nd_options_type=2)),2",
            ipv6().icmpv6(135, 0, 7).payload(&nd_body(A)).finish(),
            {
                let mut body = nd_body(A);
                let at = body.len() - 8;
                body[at] = 2;
                ipv6().icmpv6(135, 0, 7).payload(&body).finish()
            },
        ),
        (
            // None: nothing is added.
            "set(nd_ext(nd_options_type=2)),2",
            ipv6().nd(135, 0, v6(2), &[]).finish(),
            ipv6().nd(135, 0, v6(2), &[]).finish(),
        ),
        (
            // The meaning of an ICMPv6 message follows its type at once.
            "set(icmpv6(type=135,code=0)),set(nd(target=fd00::77)),2",
            ipv6().icmpv6(128, 0, 0).payload(&v6(2).octets()).finish(),
            ipv6().nd(135, 0, v6(0x77), &[]).finish(),
        ),
    ];
    for (actions, before, after) in table {
        assert_eq!(w.through(actions, Packet::from_slice(&before)), [after], "{actions}");
    }
}

pub fn partial_masks_keep_the_other_bits(w: &World) {
    for (actions, after) in [
        (
            "set(eth(src=ff:00:00:00:00:ff/ff:00:00:00:00:f0)),2",
            Frame::ethernet(B, [0xff, 0, 0, 0, 0, 0xfa])
                .ipv4(v4(1), v4(2), 64)
                .udp(1000, 2000)
                .finish(),
        ),
        (
            "set(ipv4(src=192.168.0.0/255.255.0.0)),2",
            Frame::ethernet(B, A).ipv4([192, 168, 0, 1].into(), v4(2), 64).udp(1000, 2000).finish(),
        ),
        (
            "set(ipv4(ttl=0/0xf0)),2",
            Frame::ethernet(B, A).ipv4(v4(1), v4(2), 0).udp(1000, 2000).finish(),
        ),
        ("set(udp(src=0x100/0xff00)),2", ipv4().udp(0x1e8, 2000).finish()),
    ] {
        assert_eq!(w.through(actions, Packet::from_slice(&udp(0))), [after], "{actions}");
    }
}

pub fn a_wrong_checksum_stays_wrong(w: &World) {
    // By how much a stored sum is off, in one's complement.
    let off = |right: &[u8], wrong: &[u8], at: usize| {
        let word = |f: &[u8]| u32::from(u16::from_be_bytes([f[at], f[at + 1]]));
        (word(wrong) + 0xffff - word(right)) % 0xffff
    };
    for at in [24, 50] {
        let mut wrong = tcp(2, 10);
        wrong[at] ^= 0x21;
        let expected = off(&tcp(2, 10), &wrong, at);
        let out =
            w.through("set(ipv4(src=1.2.3.4,ttl=3)),set(tcp(dst=9)),2", Packet::from_slice(&wrong));
        let right = w.through(
            "set(ipv4(src=1.2.3.4,ttl=3)),set(tcp(dst=9)),2",
            Packet::from_slice(&tcp(2, 10)),
        );
        assert!(has_right_checksums(&right[0]));
        assert_eq!(off(&right[0], &out[0], at), expected);
    }
    let mut sctp = ipv4().sctp(1, 2).payload(b"abc").finish();
    sctp[42] ^= 1;
    let mut expected = ipv4().sctp(1, 9).payload(b"abc").finish();
    expected[42] ^= 1;
    assert_eq!(w.through("set(sctp(dst=9)),2", Packet::from_slice(&sctp)), [expected]);
}

pub fn a_missing_udp_checksum_stays_missing(w: &World) {
    let mut frame = udp(10);
    frame[40..42].fill(0);
    let out = w.through("set(ipv4(src=1.2.3.4)),set(udp(dst=9)),2", Packet::from_slice(&frame));
    assert_eq!(out[0][40..42], [0, 0]);
    assert_eq!(key_of(&out[0], 0).tp_dst.get(), 9);
}

pub fn a_udp_checksum_is_never_set_to_zero(w: &World) {
    let checksum = |frame: &[u8]| [frame[40], frame[41]];
    let with_port = |port| ipv4().udp(1000, port).payload(b"zero").finish();
    let port =
        (0..=u16::MAX).find(|p| checksum(&with_port(*p)) == [0xff; 2]).expect("one sum in 65,535");
    let out =
        w.through(&format!("set(udp(dst={port})),2"), Packet::from_slice(&with_port(port ^ 1)));
    assert_eq!(out, [with_port(port)]);
    let with_address = |n: u16| {
        Frame::ethernet(B, A)
            .ipv4((0x0a00_0000 + u32::from(n)).into(), v4(2), 64)
            .udp(1, 2)
            .finish()
    };
    let n = (0..=u16::MAX)
        .find(|n| checksum(&with_address(*n)) == [0xff; 2])
        .expect("one sum in 65,535");
    let actions = format!("set(ipv4(src=10.0.{}.{})),2", n >> 8, n & 0xff);
    assert_eq!(w.through(&actions, Packet::from_slice(&with_address(n ^ 1))), [with_address(n)]);
}

pub fn of_its_two_zeros_a_checksum_is_the_plain_one(w: &World) {
    // Sums that only zeros give, and so no packet that is right.
    let with = |at: usize, sum: [u8; 2], covered: usize, value: &[u8]| {
        let mut frame = tcp(2, 10);
        frame[at..at + 2].copy_from_slice(&sum);
        frame[covered..covered + value.len()].copy_from_slice(value);
        frame
    };
    let out =
        w.through("set(tcp(dst=0)),2", Packet::from_slice(&with(50, [0xff; 2], 36, &[0xff; 2])));
    assert_eq!(out, [with(50, [0; 2], 36, &[0; 2])]);
    let out = w
        .through("set(ipv4(tos=0xff,ttl=0)),2", Packet::from_slice(&with(24, [0xff; 2], 15, &[0])));
    let ttl = u16::from(tcp(2, 10)[22]) << 8;
    let mut changed =
        with(24, packet::checksum::update_u16(0, ttl, 0xff).to_be_bytes(), 15, &[0xff]);
    changed[22] = 0;
    assert_eq!(out, [changed]);
}

pub fn padding_is_left_alone(w: &World) {
    for (actions, before, after) in [
        ("set(sctp(dst=9)),2", ipv4().sctp(1, 2).finish(), ipv4().sctp(1, 9).finish()),
        ("set(tcp(dst=9)),2", ipv4().tcp(1, 2, 2).finish(), ipv4().tcp(1, 9, 2).finish()),
        ("set(ipv6(dst=fd00::9)),2", ipv6().udp(1, 2).finish(), {
            Frame::ethernet(B, A).ipv6(v6(1), v6(9), 64).udp(1, 2).finish()
        }),
    ] {
        let pad = |mut frame: Vec<u8>| {
            frame.extend_from_slice(&pattern(9));
            frame
        };
        assert_eq!(w.through(actions, Packet::from_slice(&pad(before))), [pad(after)], "{actions}");
    }
}

pub fn fragments_keep_their_payload(w: &World) {
    let fragment = |offset_flags: u16, dst: u8| {
        let header = Ipv4Header {
            version_ihl: 0x45,
            tos: 0,
            total_len: 0.into(),
            id: 7.into(),
            fragment: offset_flags.into(),
            ttl: 64,
            proto: 0,
            checksum: 0.into(),
            src: v4(1).to_bits().into(),
            dst: v4(dst).to_bits().into(),
        };
        Frame::ethernet(B, A).ipv4_header(header).protocol(17).payload(&pattern(24)).finish()
    };
    let later = w.through("set(ipv4(dst=10.0.0.9)),2", Packet::from_slice(&fragment(3, 2)));
    assert_eq!(later, [fragment(3, 9)], "no transport header is there");
    let first = w.through("set(ipv4(dst=10.0.0.9)),2", Packet::from_slice(&fragment(0x2000, 2)));
    let (sum, rest) = (first[0][40..42].to_vec(), first[0][42..].to_vec());
    assert_ne!(sum, pattern(24)[6..8], "the first fragment has the checksum of the whole datagram");
    assert_eq!(rest, pattern(24)[8..]);
    let before = w.drops(DropReason::Malformed);
    assert!(w.through("set(udp(dst=9)),2", Packet::from_slice(&fragment(3, 2))).is_empty());
    assert_eq!(w.drops(DropReason::Malformed), before + 1);
}

pub fn unfinished_checksums_are_finished_right(w: &World) {
    for frame in [
        tcp(0x18, 333),
        udp(333),
        ipv6().tcp(1000, 2000, 0x18).payload(&pattern(99)).finish(),
        ipv6().udp(1000, 2000).payload(&pattern(98)).finish(),
    ] {
        assert_eq!(w.through("2", unfinished(&frame)), std::slice::from_ref(&frame));
        let is_v4 = key_of(&frame, 0).dl_type.get() == 0x800;
        let is_tcp = key_of(&frame, 0).nw_proto == 6;
        let ip = if is_v4 {
            "ipv4(dst=7.7.7.7,ttl=2)"
        } else {
            "ipv6(src=fd00::7,dst=fd00::77,hlimit=2)"
        };
        let l4 = if is_tcp { "tcp" } else { "udp" };
        let actions = format!("push_vlan(vid=5,pcp=0),set({ip}),set({l4}(dst=9)),2");
        let with_offload = w.through(&actions, unfinished(&frame));
        let without = w.through(&actions, Packet::from_slice(&frame));
        assert_eq!(with_offload, without);
        assert!(has_right_checksums(&without[0]), "{actions}");
        assert_eq!(without[0].len(), frame.len() + 4);
    }
    // A packet that is cut is finished first.
    let cut = w.through("trunc(100),2", unfinished(&tcp(0x18, 333)));
    assert_eq!(cut, [tcp(0x18, 333)[..100].to_vec()]);
}

pub fn segmented_packets_keep_their_offload(w: &World) {
    for (frame, kind) in [
        (tcp(0x10, 4000), Gso::TcpV4),
        (ipv6().tcp(1000, 2000, 0x10).payload(&pattern(4000)).finish(), Gso::TcpV6),
    ] {
        let (key, layers) = extract(&frame, 0);
        let is_v4 = key.dl_type.get() == 0x800;
        let mut packet = unfinished(&frame);
        packet.offload.gso = Some((kind, 1000, layers.l4.expect("TCP") + 20));
        let set = if is_v4 { "ipv4(dst=7.7.7.7,ttl=9)" } else { "ipv6(dst=fd00::7,hlimit=9)" };
        let actions = format!("set({set}),set(tcp(src=77)),push_vlan(vid=5,pcp=0),2");
        let out = w.through(&actions, packet.clone());
        assert_eq!(out.len(), 4, "{kind:?}");
        let mut payload = Vec::new();
        for segment in &out {
            let (k, l) = extract(segment, 0);
            assert!(has_right_checksums(segment));
            assert_eq!((k.tp_src.get(), k.nw_ttl, k.vlans[0].tci.get()), (77, 9, 0x1005));
            payload.extend_from_slice(&segment[usize::from(l.l4.expect("TCP")) + 20..]);
        }
        assert_eq!(payload, pattern(4000));
        assert_eq!(w.stats(1).packets, 1);
        assert_eq!(w.stats(1).bytes, frame.len() as u64, "counted as it came");
        // The longest segment counts, not the whole.
        let header = frame.len() - 4000;
        let check = format!("check_pkt_len(size={},gt(drop),le(2))", header + 1000);
        assert_eq!(w.through(&check, packet.clone()).len(), 4);
        let check = format!("check_pkt_len(size={},gt(drop),le(2))", header + 999);
        assert!(w.through(&check, packet).is_empty());
    }
}

pub fn headers_that_are_not_there_drop(w: &World) {
    let arp = Frame::ethernet([0xff; 6], A).arp(0x806, 1, (A, v4(1)), ([0; 6], v4(2))).finish();
    let llc = Frame::ethernet(B, A).ethertype(40).payload(&pattern(40)).finish();
    for (actions, frame) in [
        ("set(ipv4(ttl=1)),2", arp.clone()),
        ("set(ipv4(ttl=1)),2", ipv6().udp(1, 2).finish()),
        ("set(ipv6(hlimit=1)),2", udp(1)),
        ("set(tcp(dst=1)),2", udp(1)),
        ("set(udp(dst=1)),2", tcp(2, 1)),
        ("set(sctp(dst=1)),2", tcp(2, 1)),
        ("set(icmp(type=1)),2", ipv6().icmpv6(128, 0, 1).finish()),
        ("set(icmpv6(type=1)),2", ipv4().icmp(8, 0, 1).finish()),
        ("set(arp(op=2)),2", udp(1)),
        ("set(nd(target=::1)),2", ipv6().icmpv6(128, 0, 1).payload(&[0; 30]).finish()),
        ("set(nd_ext(nd_reserved=0x1)),2", ipv6().icmpv6(128, 0, 1).payload(&[0; 30]).finish()),
        ("push_mpls(label=5,tc=0,ttl=64,bos=1,eth_type=0x8847),2", llc),
    ] {
        let before = w.drops(DropReason::Malformed);
        assert!(w.through(actions, Packet::from_slice(&frame)).is_empty(), "{actions}");
        assert_eq!(w.drops(DropReason::Malformed), before + 1, "{actions}");
    }
}

pub fn a_routing_header_keeps_the_final_destination_in_the_checksum(w: &World) {
    // Type 2 with one segment left: the checksum covers the address in the header.
    let mut body = vec![2, 1, 0, 0, 0, 0];
    body.extend_from_slice(&v6(0x55).octets());
    let frame = |dst: u16| {
        Frame::ethernet(B, A)
            .ipv6(v6(1), v6(dst), 64)
            .ipv6_extension(43, &body)
            .udp(1, 2)
            .payload(b"x")
            .finish()
    };
    let out = w.through("set(ipv6(dst=fd00::9)),2", Packet::from_slice(&frame(2)));
    let (_, layers) = extract(&frame(2), 0);
    let sum = usize::from(layers.l4.expect("UDP")) + 6;
    assert_eq!(out[0][sum..sum + 2], frame(2)[sum..sum + 2], "the destination is not in it");
    assert_eq!(key_of(&out[0], 0).ipv6_dst, v6(9).octets());
}

/// Longer than a page, where that can be: a driver has them in several buffers.
pub fn jumbo_frames_are_edited_whole(w: &World) {
    let odd = pattern(w.fixture().large_mtu() as usize - 999);
    let vlan = |f: Frame| f.vlan(0x8100, 5);
    // Port 1 takes them, and gives them back.
    for (actions, before, after) in [
        ("1", ipv4().udp(1, 2), ipv4().udp(1, 2)),
        (
            "set(ipv4(src=10.0.0.9,dst=10.0.0.8)),set(tcp(src=7,dst=8)),1",
            ipv4().tcp(1000, 2000, 0x18),
            Frame::ethernet(B, A).ipv4(v4(9), v4(8), 64).tcp(7, 8, 0x18),
        ),
        (
            "set(ipv6(src=fd00::9,dst=fd00::8,label=0,tclass=0,hlimit=64)),1",
            ipv6().tcp(1, 2, 2),
            Frame::ethernet(B, A).ipv6(v6(9), v6(8), 64).tcp(1, 2, 2),
        ),
        ("set(sctp(src=5,dst=6)),1", ipv4().sctp(1, 2), ipv4().sctp(5, 6)),
        (
            "push_vlan(vid=5,pcp=0),1",
            ipv4().udp(1, 2),
            vlan(Frame::ethernet(B, A)).ipv4(v4(1), v4(2), 64).udp(1, 2),
        ),
        (
            "pop_vlan,1",
            vlan(Frame::ethernet(B, A)).ipv4(v4(1), v4(2), 64).udp(1, 2),
            ipv4().udp(1, 2),
        ),
        ("hash(l4(0)),recirc(0x1)", ipv4().udp(1, 2), ipv4().udp(1, 2)),
    ] {
        w.dp().flush();
        w.install(1, on(1), actions);
        let mut again = on(1);
        again.set(Field::RecircId, 1);
        w.install(2, again, "1");
        let before = before.payload(&odd).finish();
        for _ in 0..2 {
            w.inject(1, &before);
        }
        let after = after.payload(&odd).finish();
        assert!(w.out(1) == [after.clone(), after], "{actions}");
        assert_eq!((w.stats(1).packets, w.stats(1).bytes), (2, 2 * before.len() as u64));
    }
    w.dp().flush();
    let cut = odd.len() * 3 / 4;
    w.install(1, on(1), &format!("trunc({cut}),1"));
    let frame = ipv4().udp(1, 2).payload(&odd).finish();
    w.inject(1, &frame);
    assert!(w.out(1) == [&frame[..cut]]);
}

pub fn frames_cut_anywhere_are_survived(w: &World) {
    let actions = "clone(set(ipv4(dst=7.7.7.7)),3),clone(set(ipv6(dst=::7)),3),clone(set(tcp(dst=7)),3),\
                   clone(pop_vlan,3),clone(pop_mpls(eth_type=0x800),3),clone(set(nd(target=::7)),3),\
                   clone(set(nd_ext(nd_reserved=0x7,nd_options_type=2)),3),\
                   clone(set(arp(op=7)),3),clone(push_vlan(vid=1,pcp=0),push_mpls(label=5,tc=0,ttl=64,bos=1,\
                   eth_type=0x8847),3),hash(l4(0)),2";
    for frame in frames_with_many_headers() {
        w.dp().flush();
        w.install(1, on(1), actions);
        let cut = (14..=frame.len()).map(|n| &frame[..n]).filter(|f| w.fixture().carries(f));
        let packets: Vec<_> = cut.map(Packet::from_slice).collect();
        let expected: Vec<_> = packets.iter().map(|p| p.data().to_vec()).collect();
        w.fixture().inject_all(datapath::PortNo(1), packets);
        assert_eq!(w.out(2), expected);
    }
}

fn frames_with_many_headers() -> [Vec<u8>; 5] {
    [
        tcp(0x10, 10),
        ipv6().ipv6_extension(0, &[]).nd(135, 0, v6(2), &[(1, A)]).finish(),
        Frame::ethernet(B, A).arp(0x806, 1, (A, v4(1)), ([0; 6], v4(2))).finish(),
        Frame::ethernet(B, A)
            .vlan(0x88a8, 7)
            .vlan(0x8100, 5)
            .ipv4(v4(1), v4(2), 64)
            .udp(1, 2)
            .finish(),
        Frame::ethernet(B, A)
            .mpls(0x8847, MplsEntry::new(5, 0, true, 64))
            .payload(&pattern(20))
            .finish(),
    ]
}

pub fn frames_cut_anywhere_are_edited_or_dropped(w: &World) {
    for edit in [
        "set(eth(src=02:01:02:03:04:05))",
        "set(ipv4(dst=7.7.7.7))",
        "set(ipv6(dst=::7))",
        "set(tcp(dst=7))",
        "set(udp(dst=7))",
        "pop_vlan",
        "push_vlan(vid=1,pcp=0)",
        "pop_mpls(eth_type=0x800)",
        "push_mpls(label=5,tc=0,ttl=64,bos=1,eth_type=0x8847)",
        "set(nd(target=::7))",
        "set(nd_ext(nd_reserved=0x7,nd_options_type=2))",
        "set(arp(op=7))",
        "hash(l4(0))",
    ] {
        for frame in frames_with_many_headers() {
            w.dp().flush();
            w.install(1, on(1), &format!("{edit},2"));
            // With a tag more or less they must not be too short for the wire.
            let shortest = if edit.contains("vlan") { 24 } else { 14 };
            let cut =
                (shortest..=frame.len()).map(|n| &frame[..n]).filter(|f| w.fixture().carries(f));
            let packets: Vec<_> = cut.map(Packet::from_slice).collect();
            let (sent, before) = (packets.len(), w.drops(DropReason::Malformed));
            w.fixture().inject_all(datapath::PortNo(1), packets);
            let dropped = w.drops(DropReason::Malformed) - before;
            assert_eq!(w.out(2).len() + dropped as usize, sent, "{edit}");
        }
    }
}

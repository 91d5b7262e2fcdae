// SPDX-License-Identifier: Apache-2.0
//! Network Service Headers that actions push, set and take off (RFC 8300).

use crate::behaviour::frames::{A, B, has_right_checksums, tcp, udp, unfinished};
use crate::behaviour::{World, on};
use datapath::DropReason;
use flow::extract::extract;
use flow::{Field, Match};
use packet::build::Frame;
use packet::{Gso, Packet};

/// An Ethernet header for what leaves a port.
const ETH: &str = "push_eth(src=02:00:00:00:00:0a,dst=02:00:00:00:00:0b)";
const PUSH: &str =
    "push_nsh(flags=2,ttl=63,mdtype=1,np=3,spi=0x123456,si=255,c1=0x11223344,c2=0x0,c3=0x0,c4=0x1)";
/// The bytes of [`PUSH`] in front of an Ethernet frame.
const HEADER: [u8; 24] = [
    0x2f, 0xc6, 1, 3, 0x12, 0x34, 0x56, 0xff, 0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 1,
];

/// A frame of NSH with this header and payload.
fn framed(header: &[u8], payload: &[u8]) -> Vec<u8> {
    Frame::ethernet(B, A).ethertype(0x894f).payload(header).payload(payload).finish()
}

pub fn nsh_comes_off_again(w: &World) {
    let frame = udp(33);
    let out = w.through(&format!("{PUSH},{ETH},2"), Packet::from_slice(&frame));
    assert_eq!(out[0][12..14], [0x89, 0x4f]);
    assert_eq!(out[0][14..38], HEADER);
    assert_eq!(out[0][38..], frame);
    // The header names the packet below it, whatever the text says.
    let out = w.through(&format!("pop_eth,{PUSH},{ETH},2"), Packet::from_slice(&frame));
    assert_eq!(out[0][17], 1);
    assert_eq!(out[0][38..], frame[14..]);
    let twice = w.through(&format!("{PUSH},{PUSH},{ETH},2"), Packet::from_slice(&frame));
    assert_eq!((twice[0][17], twice[0][14 + 24 + 3]), (4, 3));
    let out = w.through("pop_eth,pop_nsh(),2", Packet::from_slice(&framed(&HEADER, &frame)));
    assert_eq!(out.as_slice(), std::slice::from_ref(&frame));
    // A packet without an Ethernet header below it.
    let bare = framed(&[0x0f, 0xc2, 2, 1, 0, 0, 0, 0], &frame[14..]);
    let out = w.through(&format!("pop_eth,pop_nsh(),{ETH},2"), Packet::from_slice(&bare));
    assert_eq!(out[0][12..14], [8, 0]);
    assert_eq!(out[0][14..], frame[14..]);
    // A header may come off, and the packet below it may be looked up.
    w.dp().flush();
    w.install(1, on(1), "pop_eth,pop_nsh(),recirc(0x5)");
    let mut inner = on(1);
    inner.set(Field::RecircId, 5);
    inner.set(Field::EthType, 0x800);
    inner.set(Field::UdpDst, 2000);
    inner.set(Field::IpProto, 17);
    w.install(2, inner, "2");
    w.inject(1, &framed(&HEADER, &frame));
    assert_eq!(w.out(2), [frame]);
}

pub fn metadata_of_type_two_is_pushed(w: &World) {
    let frame = udp(33);
    let md2 = "push_nsh(flags=0,ttl=63,mdtype=2,np=3,spi=0x1,si=2,md2=0x10000a0412345678)";
    let out = w.through(&format!("{md2},{ETH},2"), Packet::from_slice(&frame));
    assert_eq!(out[0][14..18], [0x0f, 0xc4, 2, 3]);
    assert_eq!(out[0][22..30], [0x10, 0, 0x0a, 4, 0x12, 0x34, 0x56, 0x78]);
    assert_eq!(out[0][30..], frame);
}

pub fn several_nsh_come_off_in_one_list(w: &World) {
    let frame = udp(33);
    for (actions, packet) in [
        (format!("{PUSH},pop_nsh(),2"), frame.clone()),
        (format!("{PUSH},{PUSH},pop_nsh(),pop_nsh(),2"), frame.clone()),
        (
            "pop_eth,pop_nsh(),pop_nsh(),2".to_owned(),
            framed(&[&[0x0f, 0xc2, 2, 4, 0, 0, 0, 0], &HEADER[..]].concat(), &frame),
        ),
    ] {
        let out = w.through(&actions, Packet::from_slice(&packet));
        assert_eq!(out.as_slice(), std::slice::from_ref(&frame), "{actions}");
    }
}

pub fn nsh_fields_can_be_set(w: &World) {
    let frame = udp(20);
    for (actions, at, bytes) in [
        ("set(nsh(flags=1)),2", 14, &[0x1f, 0xc6][..]),
        ("set(nsh(flags=0x00/0x02)),2", 14, &[0x0f, 0xc6]),
        ("set(nsh(ttl=1)),2", 14, &[0x20, 0x46]),
        ("set(nsh(spi=0xabcdef)),2", 18, &[0xab, 0xcd, 0xef, 0xff]),
        ("set(nsh(si=254)),2", 18, &[0x12, 0x34, 0x56, 0xfe]),
        ("set(nsh(spi=0x100000/0x00f00000,si=0x01/0x0f)),2", 18, &[0x12, 0x34, 0x56, 0xf1]),
        ("set(nsh(c1=0x44332211,c4=0x10/0x000000ff)),2", 22, &[0x44, 0x33, 0x22, 0x11]),
    ] {
        let mut expected = framed(&HEADER, &frame);
        expected[at..at + bytes.len()].copy_from_slice(bytes);
        if actions.contains("c4") {
            expected[37] = 0x10;
        }
        let out = w.through(actions, Packet::from_slice(&framed(&HEADER, &frame)));
        assert_eq!(out, [expected], "{actions}");
    }
    // After tags, and first in the packet.
    let tagged = |index: u8| {
        let header = [&HEADER[..7], &[index], &HEADER[8..]].concat();
        Frame::ethernet(B, A).vlan(0x8100, 5).ethertype(0x894f).payload(&header).finish()
    };
    let out = w.through("set(nsh(si=7)),2", Packet::from_slice(&tagged(255)));
    assert_eq!(out, [tagged(7)]);
    let actions = format!("{PUSH},set(nsh(si=7)),{ETH},2");
    assert_eq!(w.through(&actions, Packet::from_slice(&frame))[0][21], 7);
}

pub fn nsh_suits_its_packets_only(w: &World) {
    let frame = udp(1);
    let arp = Frame::ethernet(B, A).arp(0x806, 1, (A, [1, 2, 3, 4].into()), (B, [1; 4].into()));
    let type_two = framed(&[0x0f, 0xc2, 2, 3, 0, 0, 0, 0], &frame);
    let unknown = framed(&[0x0f, 0xc2, 2, 5, 0, 0, 0, 0], &frame);
    for (actions, packet) in [
        ("pop_nsh(),2".to_owned(), frame.clone()),
        ("pop_nsh(),2".to_owned(), framed(&HEADER, &frame)), // below an Ethernet header
        ("set(nsh(si=7)),2".to_owned(), frame.clone()),
        ("set(nsh(c1=0x7)),2".to_owned(), type_two),
        ("pop_eth,pop_nsh(),2".to_owned(), unknown),
        ("pop_eth,pop_nsh(),2".to_owned(), framed(&HEADER[..20], &[])),
        ("pop_eth,pop_nsh(),2".to_owned(), framed(&[0x4f, 0xc2, 2, 3, 0, 0, 0, 0], &frame)),
        ("pop_eth,pop_nsh(),2".to_owned(), framed(&[0x0f, 0xc1, 0, 3, 0, 0, 0, 0], &frame)),
        (format!("pop_eth,{PUSH},{ETH},2"), arp.finish()),
        (format!("{PUSH},2"), frame.clone()), // no port takes it
    ] {
        let before = w.drops(DropReason::Malformed);
        assert!(w.through(&actions, Packet::from_slice(&packet)).is_empty(), "{actions}");
        assert_eq!(w.drops(DropReason::Malformed), before + 1, "{actions}");
    }
}

pub fn flows_match_the_fields_of_nsh(w: &World) {
    let matching = |fields: &[(Field, u128)]| {
        let mut m: Match = on(1);
        m.set(Field::EthType, 0x894f);
        fields.iter().for_each(|(field, value)| m.set(*field, *value));
        m
    };
    w.install(1, matching(&[(Field::NshSpi, 0x12_3456), (Field::NshMdtype, 1)]), "2");
    w.install(2, matching(&[(Field::NshSpi, 7), (Field::NshMdtype, 2)]), "3");
    let two = framed(&[0x0f, 0xc2, 2, 3, 0, 0, 7, 1], &[0; 40]);
    w.inject(1, &framed(&HEADER, &[0; 30]));
    w.inject(1, &two);
    assert_eq!(w.out(2), [framed(&HEADER, &[0; 30])]);
    assert_eq!(w.out(3), [two]);
    // Fields of a header that is not possible are zero.
    let (key, _) = extract(&framed(&[0x0f, 0xc5, 1, 3, 0, 0, 7, 1], &[0; 40]), 1);
    assert_eq!(key.nsh, flow::Nsh::default());
    // Packets that are to be segmented leave as segments.
    let mut packet = unfinished(&tcp(0x10, 3000));
    packet.offload.gso = Some((Gso::TcpV4, 1000, 54));
    let out = w.through(&format!("{PUSH},{ETH},2"), packet);
    assert_eq!(out.len(), 3);
    for frame in out {
        assert_eq!(frame[14..38], HEADER);
        assert!(has_right_checksums(&frame[38..]));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! MPLS labels in front of a whole packet (RFC 3032; RFC 4448 for frames).

use crate::behaviour::World;
use crate::behaviour::frames::{A, B, has_right_checksums, tcp, udp, unfinished};
use datapath::DropReason;
use packet::build::Frame;
use packet::{Gso, Packet};

/// An Ethernet header for a packet that leaves a port.
const ETH: &str = "push_eth(src=02:00:00:00:00:0a,dst=02:00:00:00:00:0b)";
const ADD: &str = "add_mpls(label=5,tc=3,ttl=64,bos=1,eth_type=0x8847)";
/// The bytes of [`ADD`].
const ENTRY: [u8; 4] = [0, 0, 0x57, 0x40];

/// A frame of MPLS with these entries and payload.
fn framed(entries: &[u8], payload: &[u8]) -> Vec<u8> {
    Frame::ethernet(B, A).ethertype(0x8847).payload(entries).payload(payload).finish()
}

pub fn labels_in_front_of_a_frame_come_off_again(w: &World) {
    let frame = udp(33);
    let out = w.through(&format!("{ADD},{ETH},2"), Packet::from_slice(&frame));
    assert_eq!(out, [framed(&ENTRY, &frame)]);
    // A second label of another type goes in front of the first, and the type with it.
    let second = "add_mpls(label=6,tc=0,ttl=9,bos=0,eth_type=0x8848)";
    let out = w.through(&format!("{ADD},{second},{ETH},2"), Packet::from_slice(&frame));
    assert_eq!(out[0][12..14], [0x88, 0x48]);
    assert_eq!(out[0][14..22], [0, 0, 0x60, 9, 0, 0, 0x57, 0x40]);
    assert_eq!(out[0][22..], frame);
    // `push_mpls` and sets work on labels that no Ethernet header precedes.
    let push = "push_mpls(label=6,tc=0,ttl=9,bos=0,eth_type=0x8847)";
    let set = "set(mpls(label=7,tc=0,ttl=8,bos=0))";
    let out = w.through(&format!("{ADD},{push},{set},{ETH},2"), Packet::from_slice(&frame));
    assert_eq!(out, [framed(&[0, 0, 0x70, 8, 0, 0, 0x57, 0x40], &frame)]);
    for (actions, packet, left) in [
        (format!("{ADD},pop_mpls(eth_type=0x6558),2"), frame.clone(), frame.clone()),
        (
            format!("{ADD},{second},pop_mpls(eth_type=0x8847),pop_mpls(eth_type=0x6558),2"),
            frame.clone(),
            frame.clone(),
        ),
        ("pop_eth,pop_mpls(eth_type=0x6558),2".to_owned(), framed(&ENTRY, &frame), frame.clone()),
        (
            format!("pop_eth,pop_mpls(eth_type=0x800),{ETH},2"),
            framed(&ENTRY, &frame[14..]),
            [&framed(&[], &[])[..12], &[8, 0], &frame[14..]].concat(),
        ),
        // A packet without an Ethernet header gets labels, too.
        (format!("pop_eth,{ADD},{ETH},2"), frame.clone(), framed(&ENTRY, &frame[14..])),
    ] {
        let out = w.through(&actions, Packet::from_slice(&packet));
        assert_eq!(out, [left], "{actions}");
    }
    // Packets that are to be segmented leave as segments.
    let mut packet = unfinished(&tcp(0x10, 3000));
    packet.offload.gso = Some((Gso::TcpV4, 1000, 54));
    let out = w.through(&format!("{ADD},{ETH},2"), packet);
    assert_eq!(out.len(), 3);
    for frame in out {
        assert_eq!(frame[14..18], ENTRY);
        assert!(has_right_checksums(&frame[18..]));
    }
}

pub fn labels_without_an_ethernet_header_suit_their_packets_only(w: &World) {
    let frame = udp(1);
    let push = "push_mpls(label=6,tc=0,ttl=9,bos=0,eth_type=0x8847)";
    for (actions, packet) in [
        (format!("{ADD},2"), frame.clone()), // no port takes it
        (format!("{ADD},push_vlan(vid=3,pcp=0),{ETH},2"), frame.clone()),
        (format!("pop_eth,pop_mpls(eth_type=0x800),{ETH},2"), frame.clone()),
        (format!("pop_eth,{push},{ETH},2"), frame.clone()),
        (format!("pop_eth,pop_mpls(eth_type=0x800),{ETH},2"), framed(&ENTRY[..3], &[])),
        ("add_mpls(label=5,tc=0,ttl=64,bos=1,eth_type=0x800),2".to_owned(), frame.clone()),
    ] {
        let before = w.drops(DropReason::Malformed);
        assert!(w.through(&actions, Packet::from_slice(&packet)).is_empty(), "{actions}");
        assert_eq!(w.drops(DropReason::Malformed), before + 1, "{actions}");
    }
}

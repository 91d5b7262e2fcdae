// SPDX-License-Identifier: Apache-2.0
//! Frames of every kind that is parsed, and what is made of them by cutting and flipping.

use fastrand::Rng;
use packet::build::Frame;
use packet::{MplsEntry, ethertype};

const PROTOCOLS: [u8; 9] = [0, 1, 2, 6, 17, 43, 44, 58, 132];

fn l2(rng: &mut Rng) -> Frame {
    let mut frame =
        Frame::ethernet(std::array::from_fn(|_| rng.u8(..)), [2, 0, 0, 0, 0, rng.u8(..)]);
    for _ in 0..rng.usize(..5).saturating_sub(1) {
        let tpid = if rng.bool() { ethertype::VLAN } else { ethertype::VLAN_SERVICE };
        frame = frame.vlan(tpid, rng.u16(..));
    }
    frame
}

fn l4(rng: &mut Rng, frame: Frame) -> Frame {
    let (a, b) = (rng.u16(..), rng.u16(..));
    match rng.u8(..8) {
        0 | 1 => frame.tcp(a, b, rng.u16(..) & 0xfff),
        2 => frame.udp(a, b),
        3 => frame.sctp(a, b),
        4 => frame.icmp(a as u8, b as u8, rng.u32(..)),
        5 => frame.igmp(a as u8, b as u8, rng.u32(..).into()),
        6 => frame.icmpv6(a as u8, b as u8, rng.u32(..)),
        _ => {
            let options: Vec<_> = (0..rng.usize(..4))
                .map(|_| (rng.u8(1..4), std::array::from_fn(|_| rng.u8(..2))))
                .collect();
            frame.nd(135 + (a & 1) as u8, rng.u32(..), rng.u128(..).into(), &options)
        }
    }
}

/// A Network Service Header in front of an Ethernet frame, or of bytes of another protocol.
fn nsh(rng: &mut Rng) -> Vec<u8> {
    let md_type = rng.u8(1..4);
    let words = if md_type == 1 { 6 } else { rng.u8(2..11) };
    let first = u16::from(rng.u8(..4)) << 12 | u16::from(rng.u8(..64)) << 6 | u16::from(words);
    let mut header = [&first.to_be_bytes()[..], &[md_type, rng.u8(1..6)]].concat();
    header.extend((0..words * 4 - 4).map(|_| rng.u8(..)));
    let frame = Frame::ethernet([2; 6], [4; 6]);
    [header, frame.ipv4([1; 4].into(), [2; 4].into(), 64).udp(1, 2).payload(&[7; 40]).finish()]
        .concat()
}

/// A frame as it should be.
pub fn sound(rng: &mut Rng) -> Vec<u8> {
    let frame = l2(rng);
    let frame = match rng.u8(..11) {
        0..=2 => {
            let frame = frame.ipv4(rng.u32(..).into(), rng.u32(..).into(), rng.u8(..));
            l4(rng, frame)
        }
        3..=5 => {
            let mut frame = frame.ipv6(rng.u128(..).into(), rng.u128(..).into(), rng.u8(..));
            for _ in 0..rng.usize(..5).saturating_sub(2) {
                frame = match rng.u8(..3) {
                    0 => frame.ipv6_extension(0, &[0; 6]),
                    1 => frame.ipv6_extension(60, &[0; 14]),
                    _ => frame.ipv6_fragment(rng.u16(..) & 0xfff9, 17, 1),
                };
            }
            l4(rng, frame)
        }
        6 => frame.arp(
            if rng.bool() { ethertype::ARP } else { ethertype::RARP },
            rng.u16(..300),
            ([1, 2, 3, 4, 5, 6], rng.u32(..).into()),
            (std::array::from_fn(|_| rng.u8(..)), rng.u32(..).into()),
        ),
        7 => {
            let mut frame = frame;
            let labels = rng.usize(1..6);
            for i in 0..labels {
                let entry = MplsEntry::new(rng.u32(..), 1, i + 1 == labels, 64);
                frame = frame.mpls(ethertype::MPLS, entry);
            }
            frame.payload(&[0x45; 40])
        }
        10 => frame.ethertype(ethertype::NSH).payload(&nsh(rng)),
        8 => frame.ethertype(rng.u16(..0x600)).payload(&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0, 0x45, 0]),
        _ => frame.ethertype(rng.u16(..)).payload(&[7; 60]),
    };
    let body: Vec<u8> = (0..rng.usize(..64)).map(|_| rng.u8(..)).collect();
    let mut frame = frame.payload(&body).finish();
    if rng.u8(..4) == 0 {
        frame.resize(frame.len() + rng.usize(..64), 0);
    }
    frame
}

/// The same with bytes changed, or cut.
pub fn mangled(rng: &mut Rng) -> Vec<u8> {
    let mut frame = sound(rng);
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(..frame.len().min(120));
        frame[at] = match rng.u8(..4) {
            0 => rng.u8(..),
            1 => frame[at] ^ 1 << rng.u8(..8),
            2 => rng.u8(..8),
            _ => PROTOCOLS[rng.usize(..PROTOCOLS.len())],
        };
    }
    if rng.bool() {
        frame.truncate(rng.usize(14..=frame.len().max(14)));
    }
    frame.resize(frame.len().max(14), 0);
    frame
}

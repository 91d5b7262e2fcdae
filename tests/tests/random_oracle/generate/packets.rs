// SPDX-License-Identifier: Apache-2.0
//! Random frames, well-formed and mangled. Values come from small sets, so that frames meet each
//! other's flows.

use super::Gen;
use packet::build::Frame;
use packet::{Ipv4Header, MplsEntry};
use std::net::{Ipv4Addr, Ipv6Addr};
use zerocopy::network_endian::{U16, U32};

/// The least that a dummy port takes.
const ETHERNET: usize = 14;

const MACS: [[u8; 6]; 9] = [
    [0x50, 0x54, 0, 0, 0, 1],
    [0x50, 0x54, 0, 0, 0, 2],
    [0x50, 0x54, 0, 0, 0, 3],
    [0x50, 0x54, 0, 0, 0, 4],
    [0xff; 6],
    [1, 0, 0x5e, 0, 0, 0x16],
    [0x33, 0x33, 0, 0, 0, 1],
    [1, 0x80, 0xc2, 0, 0, 0],
    [0; 6],
];
const TYPES: [u16; 9] = [0x0800, 0x0806, 0x86dd, 0x8847, 0x8100, 0x88a8, 0x88cc, 0x05ff, 0x0000];
/// IPv6's extension headers: hop-by-hop, routing, destination options, authentication, mobility,
/// host identity.
const EXTENSIONS: [u8; 6] = [0, 43, 60, 51, 135, 139];

/// A frame of at least an Ethernet header.
pub fn frame(g: &mut Gen) -> Vec<u8> {
    let mut frame = match g.below(24) {
        0 => random(g),
        1 => llc(g),
        _ => layered(g),
    };
    if g.one_in(3) {
        mangle(g, &mut frame);
    }
    if g.one_in(4) && frame.len() < 60 {
        frame.resize(60, 0);
    }
    if frame.len() < ETHERNET {
        frame.resize(ETHERNET, 0);
    }
    frame
}

/// A MAC address, mostly of a host.
pub fn mac(g: &mut Gen) -> [u8; 6] {
    if g.one_in(4) { g.pick(&MACS) } else { g.pick(&MACS[..4]) }
}

fn random(g: &mut Gen) -> Vec<u8> {
    let len = 14 + g.below(80);
    let mut out = g.bytes(len);
    out[12..14].copy_from_slice(&g.pick(&TYPES).to_be_bytes());
    out
}

/// IEEE 802.3 with a length, with or without SNAP.
fn llc(g: &mut Gen) -> Vec<u8> {
    let mut out = [mac(g), mac(g)].concat();
    let body = match g.below(3) {
        0 => vec![0x42, 0x42, 3, 0, 0, 0, 0],
        1 => {
            let ty = g.pick(&TYPES).to_be_bytes();
            [&[0xaa, 0xaa, 3, 0, 0, 0][..], &ty].concat()
        }
        _ => vec![0xaa, 0xaa, 3, 1, 2, 3, 8, 0],
    };
    let wrong = if g.one_in(4) { g.below(9) } else { 0 };
    out.extend_from_slice(&((body.len() + wrong) as u16).to_be_bytes());
    out.extend(body);
    let more = g.below(40);
    out.extend(g.bytes(more));
    out
}

fn layered(g: &mut Gen) -> Vec<u8> {
    let (to, from) = (mac(g), if g.one_in(12) { mac(g) } else { g.pick(&MACS[..4]) });
    let mut f = Frame::ethernet(to, from);
    let tags = match g.below(12) {
        0..=5 => 0,
        6..=8 => 1,
        9 | 10 => 2,
        _ => 3 + g.below(2),
    };
    for _ in 0..tags {
        let tpid = if g.one_in(20) { 0x9100 } else { g.pick(&[0x8100, 0x8100, 0x88a8]) };
        f = f.vlan(tpid, g.tci());
    }
    if g.one_in(10) {
        return mpls(g, f);
    }
    match g.below(16) {
        0 | 1 => arp(g, f),
        2 => {
            let ty = g.pick(&TYPES);
            let len = g.below(50);
            f.ethertype(ty).payload(&g.bytes(len)).finish()
        }
        3..=9 => {
            let f = ipv4(g, f);
            transport(g, f, false)
        }
        _ => {
            let f = ipv6(g, f);
            transport(g, f, true)
        }
    }
}

fn mpls(g: &mut Gen, mut f: Frame) -> Vec<u8> {
    let depth = 1 + g.below(4);
    let ty = g.pick(&[0x8847, 0x8847, 0x8848]);
    for n in 1..=depth {
        let bottom = if g.one_in(8) { g.bool() } else { n == depth };
        let entry =
            MplsEntry::new(g.pick(&[0, 3, 100, 0xfffff]), g.small(8) as u8, bottom, g.ttl());
        f = f.mpls(ty, entry);
    }
    if g.bool() {
        // The label stack names no type for its payload. It is an IP packet here.
        let inner = ipv4(g, Frame::ethernet([0; 6], [0; 6]));
        let inner = transport(g, inner, false);
        return f.payload(&inner[ETHERNET..]).finish();
    }
    let len = g.below(40);
    f.payload(&g.bytes(len)).finish()
}

fn arp(g: &mut Gen, f: Frame) -> Vec<u8> {
    let ty = if g.one_in(4) { 0x8035 } else { 0x0806 };
    let op = g.pick(&[1, 2, 1, 2, 3, 4, 0, 255, 256, 0xffff]);
    let (sender, target) = ((mac(g), v4(g)), (mac(g), v4(g)));
    let mut frame = f.arp(ty, op, sender, target).finish();
    if g.one_in(6) {
        // Hardware, protocol and their lengths.
        let start = frame.len() - 28;
        let at = start + g.below(6);
        frame[at] = g.byte();
    }
    frame
}

/// An IPv4 address.
pub fn v4(g: &mut Gen) -> Ipv4Addr {
    match g.below(16) {
        0 => Ipv4Addr::new(224, 0, 0, 5),
        1 => Ipv4Addr::new(239, 1, 2, 3),
        2 => Ipv4Addr::BROADCAST,
        _ => Ipv4Addr::new(10, 0, g.below(2) as u8, 1 + g.below(4) as u8),
    }
}

/// An IPv6 address.
pub fn v6(g: &mut Gen) -> Ipv6Addr {
    match g.below(8) {
        0 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1),
        1 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        2 => Ipv6Addr::UNSPECIFIED,
        _ => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1 + g.below(4) as u16),
    }
}

fn ipv4(g: &mut Gen, f: Frame) -> Frame {
    let fragment = match g.below(12) {
        0 => 0x2000,
        1 => 0x2000 | 1,
        2 => 185,
        3 => 0x4000,
        4 => 0x8000,
        _ => 0,
    };
    let words = if g.one_in(5) { 1 + g.below(10) } else { 0 };
    let ihl = if g.one_in(30) { g.small(16) as u8 } else { 5 + words as u8 };
    let version = if g.one_in(30) { g.small(16) as u8 } else { 4 };
    let header = Ipv4Header {
        version_ihl: version << 4 | ihl,
        tos: g.pick(&[0, 0, 1, 2, 3, 32, 0xb8, 0xff]),
        total_len: U16::ZERO,
        id: U16::new(7),
        fragment: U16::new(fragment),
        ttl: g.ttl(),
        proto: g.pick(&[0, 47, 50, 89, 255]),
        checksum: U16::ZERO,
        src: U32::new(v4(g).to_bits()),
        dst: U32::new(v4(g).to_bits()),
    };
    let options = g.bytes(4 * words);
    f.ipv4_header(header).payload(&options)
}

fn ipv6(g: &mut Gen, f: Frame) -> Frame {
    let class = u32::from(g.pick(&[0u8, 0, 1, 2, 3, 32, 0xb8, 0xff]));
    let label = g.pick(&[0u32, 0, 1, 0xfffff]);
    let version = if g.one_in(30) { g.small(16) } else { 6 };
    let mut f = f.ipv6_header(packet::Ipv6Header {
        version_class_label: U32::new(version << 28 | class << 20 | label),
        payload_len: U16::ZERO,
        next: g.pick(&[59, 47, 89, 255]),
        hop_limit: g.ttl(),
        src: v6(g).octets(),
        dst: v6(g).octets(),
    });
    if g.one_in(3) {
        for _ in 0..1 + g.below(4) {
            if g.one_in(3) {
                f = f.ipv6_fragment(g.pick(&[0, 1, 8, 9, 0xfff8]), 59, 1);
            } else {
                let len = g.below(20);
                f = f.ipv6_extension(g.pick(&EXTENSIONS), &g.bytes(len));
            }
        }
    }
    f
}

fn transport(g: &mut Gen, f: Frame, is_v6: bool) -> Vec<u8> {
    let (from, to) = (g.l4_port(), g.l4_port());
    let payload = match g.below(40) {
        0 => 1400 + g.below(200),
        1..=9 => 0,
        _ => g.below(60),
    };
    let bytes = g.bytes(payload);
    let f = match g.below(10) {
        0..=2 => {
            let flags = g.pick(&[2, 0x12, 0x10, 0x11, 4, 0, 0xfff]);
            f.tcp(from, to, flags)
        }
        3..=5 => f.udp(from, to),
        6 => f.sctp(from, to),
        7 | 8 if is_v6 => return icmpv6(g, f, &bytes),
        7 | 8 => return icmp(g, f, &bytes),
        _ => f,
    };
    let mut frame = f.payload(&bytes).finish();
    if g.one_in(24) {
        // A UDP checksum of zero, and others that are wrong.
        if let Some(at) = frame.len().checked_sub(payload + 2) {
            frame[at..at + 2].fill(0);
        }
    }
    frame
}

fn icmp(g: &mut Gen, f: Frame, bytes: &[u8]) -> Vec<u8> {
    match g.below(4) {
        0 => {
            let group = v4(g);
            f.igmp(g.pick(&[0x11, 0x12, 0x16, 0x17, 0x22, 0]), g.byte(), group)
                .payload(bytes)
                .finish()
        }
        1 => {
            // An error, about a packet.
            let inner = ipv4(g, Frame::ethernet([0; 6], [0; 6])).udp(1, 2).finish();
            f.icmp(g.pick(&[3, 11, 12]), g.small(16) as u8, 0).payload(&inner[ETHERNET..]).finish()
        }
        _ => f.icmp(g.pick(&[8, 0, 3, 13]), g.pick(&[0, 0, 1, 255]), 1).payload(bytes).finish(),
    }
}

fn icmpv6(g: &mut Gen, f: Frame, bytes: &[u8]) -> Vec<u8> {
    if g.one_in(3) {
        let (kind, code) = (g.pick(&[128, 129, 1, 133, 135, 136, 143]), g.pick(&[0, 0, 0, 1]));
        return f.icmpv6(kind, code, 0).payload(bytes).finish();
    }
    let mut options = Vec::new();
    for _ in 0..g.below(4) {
        options.push((g.pick(&[1, 2, 1, 2, 3, 14, 0]), mac(g)));
    }
    let target = v6(g);
    let rest = g.pick(&[0, 0x4000_0000, 0xe000_0000, 1]);
    let mut frame = f.nd(g.pick(&[135, 136]), rest, target, &options).finish();
    if g.one_in(6) && !options.is_empty() {
        // An option's length.
        let at = frame.len() - 7;
        frame[at] = g.pick(&[0, 2, 255]);
    }
    frame
}

/// Cuts a frame off, lengthens it, or changes bytes.
pub fn mangle(g: &mut Gen, frame: &mut Vec<u8>) {
    match g.below(7) {
        0 | 1 => frame.truncate(ETHERNET + g.below(frame.len().max(ETHERNET + 1) - ETHERNET)),
        2 => {
            let len = 1 + g.below(40);
            frame.extend(g.bytes(len));
        }
        3 => {
            let len = frame.len();
            frame.truncate(len.saturating_sub(1 + g.below(8)).max(ETHERNET));
        }
        _ => {
            for _ in 0..1 + g.below(3) {
                let at = g.below(frame.len());
                frame[at] = if g.bool() { g.byte() } else { frame[at] ^ 1 << g.below(8) };
            }
        }
    }
}

/// True for IEEE 802.3 with a length in place of a type, also after VLAN headers.
pub fn has_length(frame: &[u8]) -> bool {
    let mut at = 12;
    loop {
        let Some(word) = frame.get(at..at + 2) else { return true };
        let ty = u16::from_be_bytes([word[0], word[1]]);
        if !matches!(ty, 0x8100 | 0x88a8 | 0x9100) {
            return ty < 0x600;
        }
        at += 4;
    }
}

/// True for a stack of labels whose end is not in what a switch looks at.
pub fn has_endless_labels(frame: &[u8]) -> bool {
    let bottom = |lse: &U32| lse.get() & 0x100 != 0;
    (0..=2).any(|tags| {
        let key = flow::extract::extract_limited(frame, 1, tags).0;
        matches!(key.dl_type.get(), 0x8847 | 0x8848) && !key.mpls.iter().any(bottom)
    })
}

/// True for a frame of MPLS in which no label is whole, or all are zero.
pub fn is_without_label(frame: &[u8]) -> bool {
    (0..=2).any(|tags| {
        let key = flow::extract::extract_limited(frame, 1, tags).0;
        matches!(key.dl_type.get(), 0x8847 | 0x8848) && key.mpls.iter().all(|l| l.get() == 0)
    })
}

/// True for a fragment of IPv4 that is not the first.
pub fn is_later_fragment(frame: &[u8]) -> bool {
    (0..=2).any(|tags| {
        let key = flow::extract::extract_limited(frame, 1, tags).0;
        key.dl_type.get() == 0x0800 && key.nw_frag & flow::extract::FRAG_LATER != 0
    })
}

/// True for a fragment of IPv4 or IPv6.
pub fn is_fragment(frame: &[u8]) -> bool {
    (0..=2).any(|tags| flow::extract::extract_limited(frame, 1, tags).0.nw_frag != 0)
}

/// True for SCTP.
pub fn is_sctp(frame: &[u8]) -> bool {
    (0..=2).any(|tags| flow::extract::extract_limited(frame, 1, tags).0.nw_proto == 132)
}

/// True where the transport header, or a neighbour message, is not whole or impossible.
pub fn is_cut_off(frame: &[u8]) -> bool {
    (0..=2).any(|tags| {
        let (key, layers) = flow::extract::extract_limited(frame, 1, tags);
        let Some(at) = layers.l4.map(usize::from) else { return false };
        let left = frame.len() - usize::from(layers.l2_pad) - at;
        let no_ports = key.tp_src.get() == 0 && key.tp_dst.get() == 0;
        match key.nw_proto {
            6 | 17 | 132 => no_ports,
            1 => left < 8,
            58 if matches!(key.tp_src.get(), 135 | 136) => left < 24,
            58 => left < 8,
            _ => false,
        }
    })
}

/// True for a neighbour solicitation or advertisement.
pub fn is_neighbour_message(frame: &[u8]) -> bool {
    (0..=2).any(|tags| {
        let key = flow::extract::extract_limited(frame, 1, tags).0;
        key.nw_proto == 58 && matches!(key.tp_src.get(), 135 | 136)
    })
}

/// True for ARP and RARP of operation 255.
pub fn has_operation_255(frame: &[u8]) -> bool {
    (0..=2).any(|tags| {
        let key = flow::extract::extract_limited(frame, 1, tags).0;
        matches!(key.dl_type.get(), 0x0806 | 0x8035) && key.nw_proto == 255
    })
}

/// Number of VLAN headers that a switch sees that looks at `limit` of them.
pub fn tags(frame: &[u8], limit: usize) -> usize {
    let key = flow::extract::extract_limited(frame, 1, limit).0;
    key.vlans.iter().filter(|v| v.tci.get() & flow::VLAN_CFI != 0).count()
}

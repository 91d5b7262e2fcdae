// SPDX-License-Identifier: Apache-2.0
//! Frames for cases.

use packet::build::Frame;
use packet::{Packet, checksum, ip_proto};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Source address of most frames.
pub const A: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0a];
/// Destination address of most frames.
pub const B: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0b];

/// 10.0.0.`n`.
pub fn v4(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, n)
}

/// fd00::`n`.
pub fn v6(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n)
}

/// An IPv4 frame from 10.0.0.1 to 10.0.0.2 with TTL 64.
pub fn ipv4() -> Frame {
    Frame::ethernet(B, A).ipv4(v4(1), v4(2), 64)
}

/// An IPv6 frame from fd00::1 to fd00::2 with hop limit 64.
pub fn ipv6() -> Frame {
    Frame::ethernet(B, A).ipv6(v6(1), v6(2), 64)
}

/// A UDP datagram with `len` bytes of payload.
pub fn udp(len: usize) -> Vec<u8> {
    ipv4().udp(1000, 2000).payload(&pattern(len)).finish()
}

/// A TCP segment with `flags` and `len` bytes of payload.
pub fn tcp(flags: u16, len: usize) -> Vec<u8> {
    ipv4().tcp(1000, 2000, flags).payload(&pattern(len)).finish()
}

/// Bytes that differ from their neighbours.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

/// The frame with its TCP or UDP checksum left unfinished, as a sender with checksum offload
/// hands it over.
pub fn unfinished(frame: &[u8]) -> Packet {
    let mut packet = Packet::from_slice(frame);
    let (key, layers) = flow::extract::extract(frame, 0);
    let l3 = usize::from(layers.l3.expect("an IP packet"));
    let l4 = usize::from(layers.l4.expect("an IP packet"));
    let field = if key.nw_proto == ip_proto::TCP { 16 } else { 6 };
    let mut sum = checksum::Sum::default();
    let addresses = if key.dl_type.get() == 0x800 { l3 + 12..l3 + 20 } else { l3 + 8..l3 + 40 };
    sum.add(&frame[addresses]);
    sum.add_u32(key.nw_proto.into());
    sum.add_u32((frame.len() - l4 - usize::from(layers.l2_pad)) as u32);
    packet.data_mut()[l4 + field..l4 + field + 2].copy_from_slice(&sum.folded().to_be_bytes());
    packet.offload.csum = Some((l4 as u16, field as u16));
    packet
}

/// True when the IPv4 header's and the TCP or UDP checksum of `frame` are right.
pub fn has_right_checksums(frame: &[u8]) -> bool {
    let (key, layers) = flow::extract::extract(frame, 0);
    let (Some(l3), Some(l4)) = (layers.l3, layers.l4) else {
        return false;
    };
    let (l3, l4) = (usize::from(l3), usize::from(l4));
    let is_v4 = key.dl_type.get() == 0x800;
    if is_v4 && checksum::internet(&frame[l3..l3 + usize::from(frame[l3] & 15) * 4]) != 0 {
        return false;
    }
    let mut sum = checksum::Sum::default();
    sum.add(if is_v4 { &frame[l3 + 12..l3 + 20] } else { &frame[l3 + 8..l3 + 40] });
    let end = frame.len() - usize::from(layers.l2_pad);
    sum.add_u32(key.nw_proto.into());
    sum.add_u32((end - l4) as u32);
    sum.add(&frame[l4..end]);
    sum.finish() == 0
}

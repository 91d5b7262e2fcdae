// SPDX-License-Identifier: Apache-2.0
//! Headers of tunnels.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use datapath::{Action, PortNo, SequenceNumbers};
use datapath_bpf::layout::{Port, TunnelKind};
use datapath_bpf::maps::Maps;
use fastrand::Rng;
use packet::checksum;
use tunnel::{
    Encapsulation, Erspan, FlowLabel, Header, HeaderParts, Options, OuterIp, SourcePorts, Udp,
};

/// The number of the tunnel port.
pub const TUNNEL_PORT: u32 = 8;
/// The port that outer packets leave by, as the actions have it.
pub const UNDERLAY_PORT: u32 = 5;

fn encapsulation(rng: &mut Rng, has_checksum: bool) -> Encapsulation {
    let first = rng.u16(1..60_000);
    let sources = SourcePorts { first, last: rng.u16(first - 1..) };
    match rng.u8(..4) {
        3 if !has_checksum => {
            let erspan = if rng.bool() {
                Erspan::V1 { index: rng.u32(..1 << 20) }
            } else {
                Erspan::V2 { is_egress: rng.bool(), hardware_id: rng.u8(..64) }
            };
            Encapsulation::Erspan { session: rng.u16(..1024), erspan }
        }
        0 => {
            let udp = Udp { dst: 4789, has_checksum, sources };
            Encapsulation::Vxlan { udp, flags: 0x800_0000, vni: rng.u32(..1 << 24) }
        }
        1 => {
            let udp = Udp { dst: 6081, has_checksum, sources };
            let options: Vec<u8> = (0..4 * rng.usize(..30)).map(|_| rng.u8(..)).collect();
            let (is_oam, is_critical) = (rng.bool(), rng.bool());
            let options = Options::new(&options).unwrap();
            Encapsulation::Geneve { udp, is_oam, is_critical, vni: rng.u32(..1 << 24), options }
        }
        _ => {
            let key = rng.bool().then(|| rng.u32(..));
            Encapsulation::Gre { protocol: 0x6558, has_checksum, key, has_sequence: rng.bool() }
        }
    }
}

fn bare(rng: &mut Rng, has_checksum: bool) -> Encapsulation {
    let first = rng.u16(1..60_000);
    let sources = SourcePorts { first, last: rng.u16(first - 1..) };
    let udp = |dst| Udp { dst, has_checksum, sources };
    match rng.u8(..4) {
        3 if !has_checksum => {
            let segments: Vec<_> =
                (0..rng.usize(1..9)).map(|_| Ipv6Addr::from(rng.u128(..))).collect();
            let flow_label = [FlowLabel::Copy, FlowLabel::Zero, FlowLabel::Compute][rng.usize(..3)];
            let segments_left = rng.usize(..segments.len()) as u8;
            Encapsulation::Srv6 { segments_left, segments, flow_label }
        }
        0 => {
            let flags = 0xc00_0000 | rng.u32(1..3);
            Encapsulation::Vxlan { udp: udp(4790), flags, vni: rng.u32(..1 << 24) }
        }
        1 => Encapsulation::Bareudp { udp: udp(6635) },
        2 => {
            let key = rng.bool().then(|| rng.u32(..));
            Encapsulation::Gre { protocol: 0x800, has_checksum, key, has_sequence: rng.bool() }
        }
        _ => {
            let flags = 0x30 | [0, 1, 2, 3][rng.usize(..4)]; // no extension headers
            let (msgtype, teid) = (rng.u8(..), rng.u32(..));
            Encapsulation::Gtpu { udp: udp(2152), flags, msgtype, teid }
        }
    }
}

/// Any header of a packet without an Ethernet header that programs push.
pub fn bare_header(rng: &mut Rng, has_checksum: bool) -> Header {
    let encapsulation = bare(rng, has_checksum);
    header_of(rng, encapsulation)
}

/// Any header of an Ethernet frame that programs push.
pub fn header(rng: &mut Rng, has_checksum: bool) -> Header {
    let encapsulation = encapsulation(rng, has_checksum);
    header_of(rng, encapsulation)
}

fn header_of(rng: &mut Rng, encapsulation: Encapsulation) -> Header {
    let is_route = matches!(encapsulation, Encapsulation::Srv6 { .. });
    let ip = if rng.bool() && !is_route {
        OuterIp::V4 {
            src: Ipv4Addr::from(rng.u32(..)),
            dst: Ipv4Addr::from(rng.u32(..)),
            tos: rng.u8(..),
            ttl: rng.u8(..),
            fragment: if rng.u8(..4) == 0 { 0 } else { 0x4000 },
        }
    } else {
        OuterIp::V6 {
            src: Ipv6Addr::from(rng.u128(..)),
            dst: Ipv6Addr::from(rng.u128(..)),
            label: rng.u32(..1 << 20),
            traffic_class: rng.u8(..),
            hop_limit: rng.u8(..),
        }
    };
    Header::new(HeaderParts { eth_dst: [1; 6], eth_src: [2; 6], ip, encapsulation }).unwrap()
}

/// A header of GRE with a sequence number, over IPv4.
pub fn numbered_gre() -> Header {
    let encapsulation =
        Encapsulation::Gre { protocol: 0x6558, has_checksum: false, key: None, has_sequence: true };
    let local = Ipv4Addr::LOCALHOST;
    let ip = OuterIp::V4 { src: local, dst: local, tos: 0, ttl: 64, fragment: 0x4000 };
    Header::new(HeaderParts { eth_dst: [1; 6], eth_src: [2; 6], ip, encapsulation }).unwrap()
}

/// Makes the tunnel port one whose next packet has this sequence number.
pub fn put_port(maps: &Maps, next: u32) {
    let kind = TunnelKind::Pushed as u32;
    let port = Port { tunnel: kind, peer_mac: next.into(), ..Port::default() };
    maps.ports.write(TUNNEL_PORT as usize, &port);
}

/// The sequence number that a program has taken last.
pub struct LastNumbers(pub Arc<Maps>);

impl SequenceNumbers for LastNumbers {
    fn take(&self, _count: u32) -> u32 {
        let next = self.0.ports.read(TUNNEL_PORT as usize).peer_mac as u32;
        next.wrapping_sub(1)
    }
}

/// The action that pushes a header.
pub fn push(header: Header) -> Action {
    Action::TunnelPush {
        header: Arc::new(header),
        tunnel_port: PortNo(TUNNEL_PORT),
        out_port: PortNo(UNDERLAY_PORT),
    }
}

/// Gives a frame with an outer IPv4 header the identification of another one, and its timestamp.
pub fn take_identification(frame: &mut [u8], of: &[u8]) {
    take_timestamp(frame, of);
    if frame[12..14] != [8, 0] || of.len() < 34 {
        return;
    }
    frame[18..20].copy_from_slice(&of[18..20]);
    frame[24..26].fill(0);
    let sum = checksum::internet(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// Gives ERSPAN of version 2 the timestamp of another frame.
fn take_timestamp(frame: &mut [u8], of: &[u8]) {
    let (proto, l4) = if frame[12..14] == [8, 0] { (23, 34) } else { (20, 54) };
    if frame[proto] != 47 || frame[l4..l4 + 4] != [0x10, 0, 0x22, 0xeb] || of.len() < l4 + 20 {
        return;
    }
    let time = l4 + 12..l4 + 16;
    frame[time.clone()].copy_from_slice(&of[time]);
}

// SPDX-License-Identifier: Apache-2.0
//! Headers of tunnels.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use datapath::{Action, PortNo};
use fastrand::Rng;
use packet::checksum;
use tunnel::{Encapsulation, Header, HeaderParts, Options, OuterIp, SourcePorts, Udp};

/// The number of the tunnel port.
pub const TUNNEL_PORT: u32 = 8;
/// The port that outer packets leave by, as the actions have it.
pub const UNDERLAY_PORT: u32 = 5;

fn encapsulation(rng: &mut Rng, has_checksum: bool) -> Encapsulation {
    let first = rng.u16(1..60_000);
    let sources = SourcePorts { first, last: rng.u16(first - 1..) };
    match rng.u8(..3) {
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
            Encapsulation::Gre { protocol: 0x6558, has_checksum, key, has_sequence: false }
        }
    }
}

fn bare(rng: &mut Rng, has_checksum: bool) -> Encapsulation {
    let first = rng.u16(1..60_000);
    let sources = SourcePorts { first, last: rng.u16(first - 1..) };
    let udp = |dst| Udp { dst, has_checksum, sources };
    match rng.u8(..if has_checksum { 4 } else { 3 }) {
        0 => {
            let flags = 0xc00_0000 | rng.u32(1..3);
            Encapsulation::Vxlan { udp: udp(4790), flags, vni: rng.u32(..1 << 24) }
        }
        1 => Encapsulation::Bareudp { udp: udp(6635) },
        2 => {
            let key = rng.bool().then(|| rng.u32(..));
            Encapsulation::Gre { protocol: 0x800, has_checksum, key, has_sequence: false }
        }
        _ => {
            let (flags, msgtype, teid) = (0x30, rng.u8(..), rng.u32(..));
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
    let ip = if rng.bool() {
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

/// The action that pushes a header.
pub fn push(header: Header) -> Action {
    Action::TunnelPush {
        header: Arc::new(header),
        tunnel_port: PortNo(TUNNEL_PORT),
        out_port: PortNo(UNDERLAY_PORT),
    }
}

/// Gives a frame with an outer IPv4 header the identification of another one.
pub fn take_identification(frame: &mut [u8], of: &[u8]) {
    if frame[12..14] != [8, 0] || of.len() < 34 {
        return;
    }
    frame[18..20].copy_from_slice(&of[18..20]);
    frame[24..26].fill(0);
    let sum = checksum::internet(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

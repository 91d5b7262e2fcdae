// SPDX-License-Identifier: Apache-2.0
//! Packets and conversations for connection tracking.

use super::{frames, noise};
use packet::build::Frame;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Bytes of the Ethernet header of frames.
const ETHERNET: usize = 14;

/// Frames of IP, and ICMP errors about them, from their IP header on. True: IPv6.
fn packets() -> Vec<(bool, Vec<u8>)> {
    let mut packets = Vec::new();
    for frame in frames() {
        let Some((header, ip)) = frame.split_at_checked(ETHERNET) else { continue };
        match header[12..] {
            [0x08, 0x00] => {
                let (src, dst) = (Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 1));
                let error = Frame::ethernet([0; 6], [0; 6]).ipv4(src, dst, 64).icmp(3, 3, 0);
                packets.push((false, error.payload(ip).finish()[ETHERNET..].to_vec()));
                packets.push((false, ip.to_vec()));
            }
            [0x86, 0xdd] => {
                let [src, dst] = [2, 1].map(|n| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n));
                let error = Frame::ethernet([0; 6], [0; 6]).ipv6(src, dst, 64).icmpv6(1, 4, 0);
                packets.push((true, error.payload(ip).finish()[ETHERNET..].to_vec()));
                packets.push((true, ip.to_vec()));
            }
            _ => {}
        }
    }
    packets
}

/// Seeds of `tuple`: choices, two addresses, two ports, a packet.
pub fn tuples() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (is_v6, packet) in packets() {
        for choices in [0x04, 0x08, 0x10, 0x1c, 0x1e] {
            let addresses = [[192, 168, 1, 9, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]; 2];
            let ports = [0x12, 0x34, 0x56, 0x78];
            let head = [choices | u8::from(is_v6)];
            seeds.push([&head[..], addresses.as_flattened(), &ports, &packet].concat());
        }
    }
    seeds
}

/// Seeds of `fragments`: settings, three packets, and steps.
pub fn fragments() -> Vec<Vec<u8>> {
    // A limit; reassembly of IPv6 is on; two packets of IPv4 and one of IPv6, of 2,008 bytes each.
    let settings = [31, 1, 0, 7, 0xd0, 1, 7, 0xd0, 0, 7, 0xd0];
    // Kind, first eighth, eighths above 50, verify.
    let first = |kind| [kind, 0, 0, 100, 1];
    let last = |kind| [kind, 0, 150, 100, 1];
    let overlap = |kind| [kind, 0, 149, 100, 1];
    let later = [7, 0xff, 0xff].as_slice();
    let mut seeds = Vec::new();
    for kind in 0..3 {
        seeds.push([&settings[..], &first(kind), &last(kind)].concat());
        seeds.push([&settings[..], &last(kind), &first(kind)].concat());
        seeds.push([&settings[..], &last(kind), &overlap(kind), &first(kind)].concat());
        seeds.push([&settings[..], &last(kind), later, &first(kind), &last(kind)].concat());
        let mixed = [first(0), last(1), first(2), first(1), last(2), last(0)];
        seeds.push([&settings[..], mixed.as_flattened()].concat());
    }
    for (is_v6, packet) in packets() {
        let length = (packet.len() as u16).to_be_bytes(); // short ones
        seeds.push([&settings[..], &[6, u8::from(is_v6)], &length, &packet, &[0]].concat());
    }
    seeds.extend(noise(100, 300));
    seeds
}

/// A step of `tracking`: the request, one tick, and the packet.
fn step(choices: u8, tftp: bool, packet: &[u8]) -> Vec<u8> {
    [&[choices, u8::from(tftp), 1], packet].concat()
}

fn counted(head: &[u8], data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u16).to_be_bytes(); // short ones
    [head, &length, data].concat()
}

/// Seeds of `tracking`: conversations with helpers, replies, errors and translation.
pub fn trackings() -> Vec<Vec<u8>> {
    /// Make a connection; translate as it does; translate its source or destination; its helper.
    const COMMIT: u8 = 0x01;
    const EXISTING: u8 = 0x04;
    const SOURCE: u8 = 0x28;
    const DESTINATION: u8 = 0x2c;
    const HELPER: u8 = 0x10;
    let mut seeds = Vec::new();
    for (settings, port, passive) in [
        (0, &b"PORT 10,0,0,1,4,1\r\n"[..], &b"227 ok (10,0,0,2,4,1)\r\n"[..]),
        (0, b"EPRT |1|10.0.0.1|1025|\r\n", b"229 ok (|||1025|)\r\n"),
        (1, b"EPRT |2|fc00::1|1025|\r\n", b"229 ok (|||1025|)\r\n"),
        (2, b"PORT 10,0,0,9,4,1\r\n", b"227 ok (10,0,0,9,4,1)\r\n"),
    ] {
        for nat in [0, SOURCE, DESTINATION] {
            let existing = if nat == 0 { 0 } else { EXISTING };
            let client = |flags, data| counted(&[2, flags], data);
            let server = |flags, data| counted(&[3, flags], data);
            let open = [
                vec![settings],
                step(COMMIT | HELPER | nat, false, &client(0, b"")),
                step(existing, false, &server(0, b"")),
                step(existing, false, &client(1, b"")),
            ]
            .concat();
            let active = [
                step(existing, false, &client(2, port)),
                step(COMMIT | existing, false, &[6, 4, 1]),
                step(existing, false, &client(2, b"QUIT\r\n")),
            ]
            .concat();
            let passive = [
                step(existing, false, &client(2, b"PASV\r\n")),
                step(existing, false, &server(2, passive)),
                step(existing, false, &[5]),
            ]
            .concat();
            seeds.push([open.clone(), active].concat());
            seeds.push([open, passive].concat());
            let request = counted(&[4], b"\0\x01file\0octet\0");
            let answer = counted(&[6, 1, 0x12, 0x34], b"\0\x03\0\x01data");
            seeds.push(
                [
                    vec![settings],
                    step(COMMIT | HELPER | nat, true, &request),
                    step(COMMIT | existing, false, &answer),
                    step(existing, false, &[5]),
                    step(COMMIT | nat, false, &[7, 0, 9]),
                    step(existing, false, &[6]),
                ]
                .concat(),
            );
        }
    }
    for (is_v6, packet) in packets() {
        let whole = counted(&[u8::from(is_v6)], &packet);
        let steps = [step(COMMIT | SOURCE, false, &whole), step(EXISTING, false, &[5])];
        seeds.push([vec![u8::from(is_v6)], steps.concat()].concat());
    }
    seeds.extend(noise(100, 300));
    seeds
}

// SPDX-License-Identifier: Apache-2.0
//! Tuples of IP packets: their extraction from any bytes, and the change of a packet from one tuple
//! to another.
//!
//! The input is a byte of choices, new addresses and ports, and a packet from its IP header on.

use crate::input::Input;
use conntrack::{
    ChecksumState, Checksums, Extracted, Family, Icmp, Ports, Tuple, extract, rewrite,
};
use packet::ip_proto;
use std::net::{IpAddr, Ipv6Addr};

const ZONE: u16 = 7;

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let choices = input.byte();
    let family = if choices & 1 == 0 { Family::V4 } else { Family::V6 };
    let addresses: [[u8; 16]; 2] = [input.array(), input.array()];
    let ports = [input.short(), input.short()];
    let packet = input.rest();
    let Ok(found) = extract(packet, family, ZONE, Checksums::NONE) else {
        assert!(extract(packet, family, ZONE, Checksums::ALL).is_err(), "fewer checks find more");
        return;
    };
    is_inside(&found, packet);
    has_canonical_form(&found.tuple);
    let verified = extract(packet, family, ZONE, Checksums::ALL);
    assert!(verified.is_err() || verified == Ok(found));

    let to = changed(&found.tuple, choices, addresses, ports);
    let mut new = packet.to_vec();
    let state = if choices & 2 == 0 { ChecksumState::Finished } else { ChecksumState::Unfinished };
    rewrite(&mut new, family, &found, &to, state).expect("the tuples are of one kind");
    assert_eq!(new[found.end..], packet[found.end..], "padding changes");
    let again = extract(&new, family, ZONE, Checksums::NONE).expect("it still has a tuple");
    assert_eq!(again.tuple, to);
    let offsets = |e: &Extracted| (e.l4, e.end, e.inner.map(|inner| (inner.l3, inner.l4)));
    assert_eq!(offsets(&again), offsets(&found));
    if verified.is_ok() && state == ChecksumState::Finished {
        assert_eq!(extract(&new, family, ZONE, Checksums::ALL), Ok(again), "checksums are wrong");
    }
    rewrite(&mut new, family, &again, &found.tuple, state).expect("and back");
    let back = extract(&new, family, ZONE, Checksums::NONE).map(|back| back.tuple);
    assert_eq!(back, Ok(found.tuple));
}

fn is_inside(found: &Extracted, packet: &[u8]) {
    assert!(found.l4 <= found.end && found.end <= packet.len(), "{found:?}");
    if let Some(inner) = found.inner {
        assert!(found.l4 < inner.l3 && inner.l3 < inner.l4 && inner.l4 < found.end, "{found:?}");
        assert_eq!(inner.tuple.reversed(), found.tuple);
    }
    if let Some(segment) = found.segment {
        assert!(segment.data_len as usize <= found.end - found.l4, "{found:?}");
        assert_eq!(found.tuple.proto, ip_proto::TCP);
    }
}

fn has_canonical_form(tuple: &Tuple) {
    let canonical = tuple.canonical().expect("both addresses are of one family");
    assert_eq!(canonical.tuple(), Some(*tuple));
    assert_eq!(tuple.reversed().reversed(), *tuple);
    let reversed = tuple.reversed().canonical().expect("so are these");
    assert_eq!(reversed.words, canonical.words, "the directions differ in more than orientation");
}

/// Returns a tuple as NAT may make it of `tuple`.
fn changed(tuple: &Tuple, choices: u8, addresses: [[u8; 16]; 2], ports: [u16; 2]) -> Tuple {
    let mut to = *tuple;
    for (bit, address, bytes) in [(4, &mut to.src, addresses[0]), (8, &mut to.dst, addresses[1])] {
        if choices & bit != 0 {
            let [a, b, c, d, ..] = bytes;
            *address = match address {
                IpAddr::V4(_) => IpAddr::from([a, b, c, d]),
                IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(bytes)),
            };
        }
    }
    if choices & 16 != 0 {
        to.ports = match to.ports {
            Ports::Icmp(icmp) => Ports::Icmp(Icmp { id: ports[0], ..icmp }),
            // Other protocols have none. Zero is no port.
            Ports::Pair { src: 0, .. } => to.ports,
            Ports::Pair { .. } => Ports::Pair { src: ports[0].max(1), dst: ports[1].max(1) },
        };
    }
    to
}

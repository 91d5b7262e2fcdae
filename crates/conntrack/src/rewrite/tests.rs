// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::extract::{Checksums, extract};
use crate::tuple::Icmp;
use packet::build::Frame;
use packet::ip_proto::{SCTP, TCP, UDP};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn frame(family: Family, src: u16, dst: u16) -> Frame {
    let frame = Frame::ethernet([0; 6], [0; 6]);
    match family {
        Family::V4 => frame.ipv4(v4(src), v4(dst), 64),
        Family::V6 => frame.ipv6(v6(src), v6(dst), 64),
    }
}

fn v4(last: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 | u32::from(last))
}

fn v6(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 1, 2, 3, 4, 5, last, last)
}

fn address(family: Family, last: u16) -> IpAddr {
    match family {
        Family::V4 => v4(last).into(),
        Family::V6 => v6(last).into(),
    }
}

fn packet_of(family: Family, kind: u8, (src, dst): (u16, u16), (a, b): (u16, u16)) -> Vec<u8> {
    let frame = frame(family, src, dst);
    let data = b"some data.";
    let frame = match (kind, family) {
        (0, _) => frame.tcp(a, b, 0x18).payload(data),
        (1, _) => frame.udp(a, b).payload(data),
        (2, _) => frame.sctp(a, b).payload(data),
        (3, Family::V4) => frame.icmp(8, 0, u32::from(a) << 16 | 7).payload(data),
        (3, Family::V6) => frame.icmpv6(128, 0, u32::from(a) << 16 | 7).payload(data),
        _ => frame.protocol(47).payload(data),
    };
    frame.finish().split_off(14)
}

fn any_family() -> impl Strategy<Value = Family> {
    prop_oneof![Just(Family::V4), Just(Family::V6)]
}

fn with(tuple: &Tuple, family: Family, (src, dst): (u16, u16), (a, b): (u16, u16)) -> Tuple {
    let ports = match tuple.ports {
        Ports::Pair { .. } if matches!(tuple.proto, TCP | UDP | SCTP) => {
            Ports::Pair { src: a, dst: b }
        }
        Ports::Pair { .. } => tuple.ports,
        Ports::Icmp(icmp) => Ports::Icmp(Icmp { id: a, ..icmp }),
    };
    Tuple { src: address(family, src), dst: address(family, dst), ports, ..*tuple }
}

proptest! {
    #[test]
    fn a_rewritten_packet_has_the_tuple_and_right_checksums(
        family in any_family(),
        kind in 0u8..5,
        from in (1u16..5, 1u16..5, 1u16..5, 1u16..5),
        to in (1u16..9, 1u16..9, 1u16.., 1u16..),
    ) {
        let mut bytes = packet_of(family, kind, (from.0, from.1), (from.2, from.3));
        bytes.extend_from_slice(b"padding");
        let extracted = extract(&bytes, family, 0, Checksums::ALL).unwrap();
        let to = with(&extracted.tuple, family, (to.0, to.1), (to.2, to.3));
        rewrite(&mut bytes, family, &extracted, &to, ChecksumState::Finished).unwrap();
        let again = extract(&bytes, family, 0, Checksums::ALL);
        prop_assert_eq!(again.map(|again| again.tuple), Ok(to));
        prop_assert!(bytes.ends_with(b"some data.padding"));
    }

    #[test]
    fn errors_are_rewritten_inside_and_outside(
        family in any_family(),
        kind in 0u8..5,
        cut in 8usize..40,
        to in (1u16..9, 1u16..9, 1u16.., 1u16..),
    ) {
        // Host 1 sent to host 2. Router 7 answers with an error.
        let sent = packet_of(family, kind, (1, 2), (100, 200));
        let header = if family == Family::V4 { 20 } else { 40 };
        let quoted = &sent[..(header + cut).min(sent.len())];
        let error = frame(family, 7, 1);
        let error = match family {
            Family::V4 => error.icmp(3, 1, 0),
            Family::V6 => error.icmpv6(1, 4, 0),
        };
        let mut bytes = error.payload(quoted).finish().split_off(14);
        let extracted = extract(&bytes, family, 0, Checksums::ALL).unwrap();
        let to = with(&extracted.tuple, family, (to.0, to.1), (to.2, to.3));
        rewrite(&mut bytes, family, &extracted, &to, ChecksumState::Finished).unwrap();
        let again = extract(&bytes, family, 0, Checksums::ALL).unwrap();
        prop_assert_eq!(again.tuple, to);
        // The inner packet's own checksums are right, too, as far as it is quoted.
        let inner = &bytes[extracted.inner.unwrap().l3..];
        if family == Family::V4 {
            prop_assert_eq!(packet::checksum::internet(&inner[..20]), 0);
        }
        if quoted.len() == sent.len() && kind != 2 {
            let whole = extract(inner, family, 0, Checksums::ALL);
            prop_assert_eq!(whole.map(|whole| whole.tuple), Ok(to.reversed()));
        }
        // The router's address is translated only where the tuple's source is.
        let router = address(family, 7);
        let outer = Fields { family, l3: 0, l4: 0, proto: 0 };
        let at = if outer.family == Family::V4 { 12..16 } else { 8..24 };
        let (octets, len) = octets(if to.src == extracted.tuple.src { router } else { to.src });
        prop_assert_eq!(&bytes[at], &octets[..len]);
    }
}

#[test]
fn unfinished_checksums_follow_the_pseudo_header() {
    let mut bytes = packet_of(Family::V4, 0, (1, 2), (3, 4));
    let sum_of = |bytes: &[u8]| {
        let (ip, rest) = packet::Ipv4Header::ref_from_prefix(bytes).unwrap();
        ip.pseudo_sum(rest.len() as u32).folded()
    };
    let sum = sum_of(&bytes).to_be_bytes();
    bytes[36..38].copy_from_slice(&sum);
    let verify = Checksums { ip: true, transport: false };
    let extracted = extract(&bytes, Family::V4, 0, verify).unwrap();
    let to = with(&extracted.tuple, Family::V4, (5, 6), (7, 8));
    rewrite(&mut bytes, Family::V4, &extracted, &to, ChecksumState::Unfinished).unwrap();
    assert_eq!(bytes[36..38], sum_of(&bytes).to_be_bytes());
    assert_eq!(extract(&bytes, Family::V4, 0, verify).unwrap().tuple, to);
}

#[test]
fn udp_without_checksum_stays_without() {
    let mut bytes = packet_of(Family::V4, 1, (1, 2), (3, 4));
    bytes[26..28].fill(0);
    let extracted = extract(&bytes, Family::V4, 0, Checksums::ALL).unwrap();
    let to = with(&extracted.tuple, Family::V4, (5, 6), (7, 8));
    rewrite(&mut bytes, Family::V4, &extracted, &to, ChecksumState::Finished).unwrap();
    assert_eq!(bytes[26..28], [0, 0]);
}

// SPDX-License-Identifier: Apache-2.0
use super::*;
use packet::build::Frame;
use packet::tcp_flags;
use proptest::prelude::*;

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);

fn v6(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)
}

fn v4(src: Ipv4Addr, dst: Ipv4Addr) -> Frame {
    Frame::ethernet([0; 6], [0; 6]).ipv4(src, dst, 64)
}

fn ip_bytes(frame: Frame) -> Vec<u8> {
    frame.finish().split_off(14)
}

fn tuple_of(frame: Frame, family: Family) -> Result<Tuple, Untrackable> {
    extract(&ip_bytes(frame), family, 7, Checksums::ALL).map(|extracted| extracted.tuple)
}

fn pair(src: Ipv4Addr, dst: Ipv4Addr, proto: u8, sport: u16, dport: u16) -> Tuple {
    let ports = Ports::Pair { src: sport, dst: dport };
    Tuple { src: src.into(), dst: dst.into(), ports, proto, zone: 7 }
}

#[test]
fn ports_of_all_protocols() {
    let tcp = tuple_of(v4(A, B).tcp(1, 2, tcp_flags::SYN), Family::V4);
    assert_eq!(tcp, Ok(pair(A, B, ip_proto::TCP, 1, 2)));
    let udp = tuple_of(v4(A, B).udp(1, 2).payload(b"x"), Family::V4);
    assert_eq!(udp, Ok(pair(A, B, ip_proto::UDP, 1, 2)));
    let sctp = tuple_of(v4(A, B).sctp(1, 2).payload(b"abcd"), Family::V4);
    assert_eq!(sctp, Ok(pair(A, B, ip_proto::SCTP, 1, 2)));
    let gre = tuple_of(v4(A, B).protocol(47).payload(b"abcd"), Family::V4);
    assert_eq!(gre, Ok(pair(A, B, 47, 0, 0)));
}

#[test]
fn a_header_that_ends_before_the_checksum_is_none() {
    let of = |len: usize| {
        let header = [0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0];
        let bytes = ip_bytes(v4(A, B).protocol(ip_proto::SCTP).payload(&header[..len]));
        extract(&bytes, Family::V4, 7, Checksums::NONE).map(|extracted| extracted.tuple)
    };
    assert_eq!(of(12), Ok(pair(A, B, ip_proto::SCTP, 1, 2)));
    assert_eq!(of(11), Err(Untrackable::TransportHeader));
    assert_eq!(of(8), Err(Untrackable::TransportHeader));
}

#[test]
fn requests_and_replies_share_their_canonical_form() {
    let request = tuple_of(v4(A, B).icmp(8, 0, 0x0005_0001), Family::V4).unwrap();
    let reply = tuple_of(v4(B, A).icmp(0, 0, 0x0005_0009), Family::V4).unwrap();
    assert_eq!(request.reversed(), reply);
    assert_eq!(request.port_fields(), (8, 0));
    // The other side's own request with the same identifier is another connection.
    let other = tuple_of(v4(B, A).icmp(8, 0, 0x0005_0001), Family::V4).unwrap();
    assert_ne!(other.canonical().unwrap().words, request.canonical().unwrap().words);

    let eth = || Frame::ethernet([0; 6], [0; 6]);
    let request = eth().ipv6(v6(1), v6(2), 64).icmpv6(128, 0, 0x0005_0001);
    let reply = eth().ipv6(v6(2), v6(1), 64).icmpv6(129, 0, 0x0005_0001);
    let request = tuple_of(request, Family::V6).unwrap();
    assert_eq!(request.reversed(), tuple_of(reply, Family::V6).unwrap());
    let solicit = eth().ipv6(v6(1), v6(2), 64).nd(135, 0, v6(2), &[]);
    assert_eq!(tuple_of(solicit, Family::V6), Err(Untrackable::IcmpKind));
}

#[test]
fn errors_have_the_reverse_of_the_inner_tuple() {
    let sent = ip_bytes(v4(A, B).udp(1, 2).payload(b"data"));
    // A router quotes the header and 8 bytes.
    let error = ip_bytes(v4(ROUTER, A).icmp(3, 1, 0).payload(&sent[..28]));
    let extracted = extract(&error, Family::V4, 7, Checksums::ALL).unwrap();
    assert_eq!(extracted.tuple, pair(B, A, ip_proto::UDP, 2, 1));
    let inner = extracted.inner.unwrap();
    assert_eq!((inner.l3, inner.l4), (28, 48));
    assert_eq!(inner.tuple, pair(A, B, ip_proto::UDP, 1, 2));

    let cut = ip_bytes(v4(ROUTER, A).icmp(3, 1, 0).payload(&sent[..27]));
    assert_eq!(extract(&cut, Family::V4, 7, Checksums::ALL), Err(Untrackable::InnerPacket));
    // The error goes to a host that did not send the inner packet.
    let stray = ip_bytes(v4(ROUTER, B).icmp(3, 1, 0).payload(&sent[..28]));
    assert_eq!(extract(&stray, Family::V4, 7, Checksums::ALL), Err(Untrackable::InnerPacket));
    // An error about an error has no connection.
    let nested = ip_bytes(v4(ROUTER, ROUTER).icmp(3, 1, 0).payload(&error));
    assert_eq!(extract(&nested, Family::V4, 7, Checksums::ALL), Err(Untrackable::InnerPacket));
}

#[test]
fn icmpv6_errors_quote_after_extension_headers() {
    let eth = || Frame::ethernet([0; 6], [0; 6]);
    let sent = ip_bytes(eth().ipv6(v6(1), v6(2), 64).ipv6_extension(60, b"").tcp(1, 2, 2));
    let error = ip_bytes(eth().ipv6(v6(9), v6(1), 64).icmpv6(3, 0, 0).payload(&sent));
    let extracted = extract(&error, Family::V6, 0, Checksums::ALL).unwrap();
    assert_eq!(extracted.inner.unwrap().l4, 48 + 48);
    assert_eq!(extracted.tuple.ports, Ports::Pair { src: 2, dst: 1 });
    assert_eq!(extracted.segment, None);
}

#[test]
fn bad_packets_have_a_reason() {
    use Untrackable::*;
    assert_eq!(tuple_of(v4(A, B).tcp(0, 2, 2), Family::V4), Err(PortZero));
    assert_eq!(tuple_of(v4(A, B).protocol(6).payload(b"short"), Family::V4), Err(TransportHeader));
    // A UDP datagram may be shorter than its packet, but not longer.
    let datagram = |len: u8| v4(A, B).protocol(17).payload(&[0, 1, 0, 2, 0, len, 0, 0, 9, 9]);
    for (len, is_good) in [(7, false), (8, true), (10, true), (11, false)] {
        assert_eq!(tuple_of(datagram(len), Family::V4).is_ok(), is_good, "{len}");
    }
    assert_eq!(tuple_of(v4(A, B).icmp(9, 0, 0), Family::V4), Err(IcmpKind));
    assert_eq!(tuple_of(v4(A, B).icmp(8, 1, 0), Family::V4), Err(IcmpKind));

    let mut bytes = ip_bytes(v4(A, B).udp(1, 2).payload(b"abc"));
    let all = |bytes: &[u8]| extract(bytes, Family::V4, 0, Checksums::ALL).map(|_| ());
    bytes[30] ^= 1;
    assert_eq!(all(&bytes), Err(TransportChecksum));
    bytes[26] = 0;
    bytes[27] = 0;
    assert_eq!(all(&bytes), Ok(())); // no checksum
    bytes[8] ^= 1;
    assert_eq!(all(&bytes), Err(IpChecksum));
    assert!(extract(&bytes, Family::V4, 0, Checksums::NONE).is_ok());
    bytes[6] = 0x20; // more fragments
    assert_eq!(extract(&bytes, Family::V4, 0, Checksums::NONE), Err(Fragment));
    assert_eq!(all(&bytes[..19]), Err(IpHeader));
    assert_eq!(extract(&bytes, Family::V6, 0, Checksums::NONE), Err(IpHeader));

    let fragment = Frame::ethernet([0; 6], [0; 6]).ipv6(v6(1), v6(2), 64).ipv6_fragment(8, 17, 1);
    assert_eq!(tuple_of(fragment, Family::V6), Err(Fragment));
    // UDP over IPv6 must have a checksum (RFC 8200, 8.1).
    let mut bytes = ip_bytes(Frame::ethernet([0; 6], [0; 6]).ipv6(v6(1), v6(2), 64).udp(1, 2));
    bytes[46] = 0;
    bytes[47] = 0;
    assert_eq!(extract(&bytes, Family::V6, 0, Checksums::ALL), Err(TransportChecksum));
}

#[test]
fn data_length_excludes_padding() {
    let mut bytes = ip_bytes(v4(A, B).tcp(1, 2, tcp_flags::ACK).payload(b"12345"));
    bytes.extend_from_slice(&[0; 13]);
    let extracted = extract(&bytes, Family::V4, 0, Checksums::ALL).unwrap();
    assert_eq!(extracted.segment.unwrap().data_len, 5);
    assert_eq!((extracted.l4, extracted.end), (20, 45));
}

proptest! {
    #[test]
    fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), six in any::<bool>()) {
        let family = if six { Family::V6 } else { Family::V4 };
        let _ = extract(&bytes, family, 0, Checksums::ALL);
        // Most random bytes fail early; these have the right version and length.
        if let Some(first) = bytes.first_mut() {
            *first = if six { 0x60 } else { 0x45 };
        }
        let len = bytes.len();
        if six && len >= 40 {
            bytes[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
            bytes[6] = [6, 17, 58, 132, 0, 44, 60][usize::from(bytes[6] % 7)];
        } else if !six && len >= 20 {
            bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            bytes[6..8].fill(0);
            bytes[9] = [6, 17, 1, 132][usize::from(bytes[9] % 4)];
        }
        if let Ok(extracted) = extract(&bytes, family, 3, Checksums::NONE) {
            prop_assert!(extracted.l4 <= extracted.end && extracted.end <= bytes.len());
            prop_assert!(extracted.tuple.canonical().is_some());
            prop_assert_eq!(extracted.tuple.zone, 3);
            if let Some(inner) = extracted.inner {
                prop_assert!(inner.l3 < inner.l4 && inner.l4 < extracted.end);
            }
        }
    }

    #[test]
    fn truncated_packets(len in 0usize..60) {
        let bytes = ip_bytes(v4(A, B).tcp(1, 2, 2).payload(b"0123456789"));
        let result = extract(&bytes[..len.min(bytes.len())], Family::V4, 0, Checksums::ALL);
        prop_assert_eq!(result.is_ok(), len >= bytes.len());
    }
}

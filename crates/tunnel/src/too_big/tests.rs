// SPDX-License-Identifier: Apache-2.0

use super::*;
use packet::checksum::internet;
use packet::tcp_flags;
use proptest::prelude::*;

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn v4_header(fragment: u16) -> Ipv4Header {
    Ipv4Header {
        version_ihl: 0x45,
        tos: 0,
        total_len: U16::ZERO,
        id: U16::new(5),
        fragment: U16::new(fragment),
        ttl: 9,
        proto: 0,
        checksum: U16::ZERO,
        src: U32::new(Ipv4Addr::new(10, 0, 0, 1).to_bits()),
        dst: U32::new(Ipv4Addr::new(10, 0, 0, 2).to_bits()),
    }
}

fn v4() -> Frame {
    Frame::ethernet(B, A).ipv4_header(v4_header(Ipv4Header::DONT_FRAGMENT))
}

fn v6() -> Frame {
    let address = |last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
    Frame::ethernet(B, A).ipv6(address(1), address(2), 9)
}

#[test]
fn fragmentation_is_needed() {
    let frame = v4().tcp(1000, 2000, tcp_flags::ACK).payload(&[7; 1460]).finish();
    let report = too_big(&frame, 1450).expect("it has DF");
    assert_eq!(report[..14], [&A[..], &B[..], &[8, 0]].concat());
    let (ip, message) = Ipv4Header::ref_from_prefix(&report[14..]).unwrap();
    assert_eq!((ip.src.get(), ip.dst.get()), (0x0a00_0002, 0x0a00_0001));
    assert_eq!((ip.proto, ip.fragment.get()), (1, Ipv4Header::DONT_FRAGMENT));
    assert_eq!((usize::from(ip.total_len.get()), report.len()), (LONGEST_IPV4, 14 + LONGEST_IPV4));
    assert_eq!((internet(&report[14..34]), internet(message)), (0, 0));
    assert_eq!((&message[..2], &message[4..8]), (&[3, 4][..], &[0, 0, 5, 0xaa][..]));
    assert!(frame[14..].starts_with(&message[8..]));
}

#[test]
fn a_packet_is_too_big() {
    let frame = v6().tcp(1000, 2000, tcp_flags::ACK).payload(&[7; 1440]).finish();
    let report = too_big(&frame, 1430).expect("IPv6 is not fragmented on its way");
    assert_eq!(report.len(), 14 + LONGEST_IPV6);
    let (ip, message) = Ipv6Header::ref_from_prefix(&report[14..]).unwrap();
    assert_eq!(
        (ip.src, ip.dst),
        (frame[38..54].try_into().unwrap(), frame[22..38].try_into().unwrap())
    );
    assert_eq!((&message[..2], &message[4..8]), (&[2, 0][..], &[0, 0, 5, 0x96][..]));
    let mut sum = ip.pseudo_sum(ip_proto::ICMPV6, message.len() as u32);
    sum.add(message);
    assert_eq!(sum.finish(), 0);
    assert!(frame[14..].starts_with(&message[8..]));
    assert_eq!(too_big(&frame, 1279), None, "IPv6 has no shorter packets");
    // Its fragments are the sender's: they are reported.
    let fragment = v6().ipv6_fragment(1, ip_proto::UDP, 3).payload(&[7; 1440]).finish();
    assert!(too_big(&fragment, 1430).is_some());
}

#[test]
fn the_report_goes_back_by_the_same_vlans() {
    let header = v4_header(Ipv4Header::DONT_FRAGMENT);
    let tagged = Frame::ethernet(B, A).vlan(0x88a8, 7).vlan(0x8100, 0x6009);
    let report = too_big(&tagged.ipv4_header(header).udp(1, 2).payload(&[1; 99]).finish(), 68);
    let report = report.expect("it has DF");
    assert_eq!(report[12..22], [0x88, 0xa8, 0, 7, 0x81, 0, 0x60, 9, 8, 0]);
    assert_eq!(report.len(), 22 + 20 + 8 + 20 + 8 + 99);
}

#[test]
fn no_report_where_none_is_allowed() {
    let with = |header: Ipv4Header| Frame::ethernet(B, A).ipv4_header(header).udp(1, 2).finish();
    let df = Ipv4Header::DONT_FRAGMENT;
    assert!(too_big(&with(v4_header(df)), 1450).is_some());
    assert_eq!(too_big(&with(v4_header(0)), 1450), None);
    assert_eq!(too_big(&with(v4_header(df | Ipv4Header::MORE_FRAGMENTS)), 1450), None);
    assert_eq!(too_big(&with(v4_header(df)), 67), None);
    for address in ["224.0.0.1", "255.255.255.255", "0.0.0.0"] {
        let bits = U32::new(address.parse::<Ipv4Addr>().unwrap().to_bits());
        assert_eq!(too_big(&with(Ipv4Header { src: bits, ..v4_header(df) }), 1450), None);
        assert_eq!(too_big(&with(Ipv4Header { dst: bits, ..v4_header(df) }), 1450), None);
    }
    for (kind, is_reported) in [(8, true), (0, true), (3, false), (11, false), (12, false)] {
        assert_eq!(too_big(&v4().icmp(kind, 0, 0).finish(), 1450).is_some(), is_reported);
    }
    for (kind, is_reported) in [(128, true), (129, true), (1, false), (2, false)] {
        assert_eq!(too_big(&v6().icmpv6(kind, 0, 0).finish(), 1450).is_some(), is_reported);
    }
    let group = Frame::ethernet([1, 0, 0x5e, 0, 0, 1], A).ipv4_header(v4_header(df)).udp(1, 2);
    assert_eq!(too_big(&group.finish(), 1450), None);
    let multicast =
        Frame::ethernet(B, A).ipv6("fd00::1".parse().unwrap(), "ff02::1".parse().unwrap(), 9);
    assert_eq!(too_big(&multicast.udp(1, 2).finish(), 1450), None);
    assert_eq!(
        too_big(&Frame::ethernet(B, A).ethertype(0x88b5).payload(&[0; 60]).finish(), 1450),
        None
    );
}

proptest! {
    #[test]
    fn any_bytes_have_a_report_or_none(
        frame in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..5usize, mtu: u16
    ) {
        let mut frame = frame;
        let kinds: [&[u8]; 5] =
            [&[8, 0, 0x45], &[0x86, 0xdd, 0x60], &[0x81, 0], &[0x81, 0, 0, 1, 8, 0, 0x4f], &[]];
        if let Some(place) = frame.get_mut(12..12 + kinds[kind].len()) {
            place.copy_from_slice(kinds[kind]);
        }
        if let Some(report) = too_big(&frame, mtu) {
            prop_assert!(report.len() <= 14 + LONGEST_IPV6 + 4 * (frame.len() / 4));
            prop_assert_eq!(&report[..6], &frame[6..12]);
        }
    }
}

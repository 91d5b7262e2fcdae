// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::extract::extract;
use crate::rewrite::{ChecksumState, rewrite};
use crate::tuple::Tuple;
use packet::build::Frame;
use packet::{FromBytes, Ipv4Header};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const ALL: Checksums = Checksums::ALL;
const NOW: Duration = Duration::from_secs(100);

fn data(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
}

fn datagram(len: usize) -> Vec<u8> {
    let frame = Frame::ethernet([0; 6], [0; 6]).ipv4(A, B, 64);
    frame.udp(1, 2).payload(&data(len)).finish().split_off(14)
}

/// Cuts an IPv4 packet into fragments with `size` bytes of data, a multiple of 8.
fn cut(packet: &[u8], size: usize, id: u16) -> Vec<Vec<u8>> {
    let payload = &packet[20..];
    let mut fragments = Vec::new();
    for (number, chunk) in payload.chunks(size).enumerate() {
        let offset = number * size;
        let mut bytes = packet[..20].to_vec();
        bytes.extend_from_slice(chunk);
        let (header, _) = Ipv4Header::mut_from_prefix(&mut bytes).unwrap();
        header.total_len.set((20 + chunk.len()) as u16);
        header.id.set(id);
        let more = offset + chunk.len() < payload.len();
        header
            .fragment
            .set((offset / 8) as u16 | if more { Ipv4Header::MORE_FRAGMENTS } else { 0 });
        header.checksum.set(0);
        let sum = internet(&bytes[..20]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        fragments.push(bytes);
    }
    fragments
}

fn submit(fragments: &Fragments<usize>, bytes: Vec<u8>, token: usize) -> Submitted<usize> {
    fragments.submit(Family::V4, bytes, (9, 0), ALL, NOW, token)
}

#[test]
fn fragments_in_any_order_make_the_packet_and_go_on_translated() {
    let packet = datagram(4000);
    let parts = cut(&packet, 1480, 77);
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
        let fragments = Fragments::default();
        for at in &order[..2] {
            assert!(matches!(submit(&fragments, parts[*at].clone(), *at), Submitted::Held));
        }
        let last = order[2];
        let Submitted::Complete(mut whole) = submit(&fragments, parts[last].clone(), last) else {
            panic!("not complete");
        };
        assert_eq!(whole.bytes[20..], packet[20..]);
        let extracted = extract(&whole.bytes, Family::V4, 9, Checksums::ALL).unwrap();
        let to = Tuple { src: Ipv4Addr::new(10, 9, 9, 9).into(), ..extracted.tuple };
        let to = Tuple { ports: crate::tuple::Ports::Pair { src: 4711, dst: 2 }, ..to };
        let finished = ChecksumState::Finished;
        rewrite(&mut whole.bytes, Family::V4, &extracted, &to, finished).unwrap();
        let sent = whole.into_fragments();
        assert_eq!(sent.iter().map(|held| held.token).collect::<Vec<_>>(), [0, 1, 2]);
        // The receiver's reassembly gives the translated packet.
        let receiver = Fragments::default();
        let mut done = None;
        for held in sent {
            if let Submitted::Complete(whole) = submit(&receiver, held.bytes, 0) {
                done = Some(whole);
            }
        }
        let again = extract(&done.unwrap().bytes, Family::V4, 9, Checksums::ALL).unwrap();
        assert_eq!(again.tuple, to);
        assert_eq!(fragments.counters(Family::V4).completed, 3);
    }
}

#[test]
fn ipv6_packets_keep_an_empty_fragment_header() {
    let address = |last| Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, last);
    let frame = || Frame::ethernet([0; 6], [0; 6]).ipv6(address(1), address(2), 64);
    let packet = frame().udp(1, 2).payload(&data(2000)).finish().split_off(14);
    let payload = &packet[40..];
    let part = |range: std::ops::Range<usize>, more: u16| {
        let word = range.start as u16 | more;
        let frame = frame().ipv6_fragment(word, 17, 5).payload(&payload[range]);
        frame.finish().split_off(14)
    };
    let fragments = Fragments::default();
    let take = |bytes| fragments.submit(Family::V6, bytes, (0, 0), ALL, NOW, 0);
    assert!(matches!(take(part(1304..payload.len(), 0)), Submitted::Held));
    let Submitted::Complete(whole) = take(part(0..1304, 1)) else { panic!("not complete") };
    let extracted = extract(&whole.bytes, Family::V6, 0, Checksums::ALL).unwrap();
    assert_eq!((extracted.l4, extracted.tuple.port_fields()), (48, (1, 2)));
    assert_eq!(whole.into_fragments().len(), 2);
}

#[test]
fn small_and_overlapping_fragments_are_invalid() {
    let fragments = Fragments::default();
    let small = cut(&datagram(3000), 800, 1);
    assert!(matches!(
        submit(&fragments, small[0].clone(), 0),
        Submitted::Bad(BadFragment::TooSmall, ..)
    ));
    assert!(matches!(submit(&fragments, small[3].clone(), 0), Submitted::Held)); // the last one
    assert_eq!(fragments.set_min_size(Family::V4, 399), Err(OutOfRange));
    fragments.set_min_size(Family::V4, 400).unwrap();
    assert!(matches!(submit(&fragments, small[0].clone(), 0), Submitted::Held));
    for bytes in [small[0].clone(), cut(&datagram(3000), 600, 1)[1].clone()] {
        assert!(matches!(submit(&fragments, bytes, 0), Submitted::Bad(BadFragment::Overlaps, ..)));
    }
    // Another zone has fragments of its own.
    let other = fragments.submit(Family::V4, small[0].clone(), (8, 0), ALL, NOW, 0);
    assert!(matches!(other, Submitted::Held));
    let mut bad = small[1].clone();
    bad[8] ^= 1;
    assert!(matches!(submit(&fragments, bad, 0), Submitted::Bad(BadFragment::Checksum, ..)));
    let counters = fragments.counters(Family::V4);
    assert_eq!((counters.accepted, counters.too_small, counters.overlapped), (3, 1, 2));
}

#[test]
fn numbers_and_time_are_bounded() {
    let fragments = Fragments::default();
    assert_eq!(fragments.set_max_fragments(5001), Err(OutOfRange));
    fragments.set_max_fragments(2).unwrap();
    let first = |id| cut(&datagram(3000), 1480, id)[0].clone();
    assert!(matches!(submit(&fragments, first(1), 1), Submitted::Held));
    assert!(matches!(submit(&fragments, first(2), 2), Submitted::Held));
    assert!(matches!(submit(&fragments, first(3), 3), Submitted::Full(..)));
    let later = NOW + LIFETIME;
    assert!(fragments.expire(later - Duration::from_millis(1)).is_empty());
    let expired = fragments.expire(later);
    assert_eq!(expired.iter().map(|held| held.token).collect::<Vec<_>>(), [1]);
    assert_eq!(fragments.purge(later), 0);
    assert_eq!(fragments.purge(later + PURGE_AFTER), 1);
    let counters = fragments.counters(Family::V4);
    assert_eq!((counters.expired, counters.purged), (1, 1));
    assert!(matches!(submit(&fragments, first(3), 3), Submitted::Held));
    // An identification that is used again does not join fragments of another time.
    let rest = cut(&datagram(3000), 1480, 3)[1].clone();
    let much_later = NOW + Duration::from_secs(1000);
    let taken = fragments.submit(Family::V4, rest, (9, 0), ALL, much_later, 4);
    assert!(matches!(taken, Submitted::Held));
}

#[test]
fn complete_packets_leave_nothing() {
    let fragments = Fragments::default();
    let packet = datagram(2000);
    for id in 0..1000 {
        for part in cut(&packet, 1480, id) {
            submit(&fragments, part, 0);
        }
    }
    let state = fragments.lock();
    assert_eq!((state.fragments, state.bytes, state.lists.len()), (0, 0, 0));
    assert!(state.order.len() <= 65);
}

#[test]
fn whole_packets_and_disabled_families_pass() {
    let fragments = Fragments::default();
    assert!(matches!(submit(&fragments, datagram(10), 0), Submitted::Whole(..)));
    fragments.disable(Family::V4);
    let part = cut(&datagram(3000), 1480, 1)[0].clone();
    assert!(matches!(submit(&fragments, part, 0), Submitted::Whole(..)));
}

#[test]
fn packets_that_are_too_long_are_given_back() {
    let fragments = Fragments::default();
    let mut packet = datagram(1000);
    packet.resize(20 + 65_528, 0);
    let mut parts = cut(&packet, 1480, 1);
    let last = parts.pop().unwrap();
    for part in parts {
        assert!(matches!(submit(&fragments, part, 0), Submitted::Held));
    }
    assert!(matches!(submit(&fragments, last, 0), Submitted::TooBig(held) if held.len() == 45));
}

#[test]
fn the_status_is_that_of_open_vswitch() {
    let fragments = Fragments::default();
    let part = cut(&datagram(3000), 1480, 77)[0].clone();
    fragments.submit(Family::V4, part, (9, 3), ALL, NOW, 0);
    let text = fragments.status_text(StatusDetail::Lists);
    let expected = "        Fragmentation Module Status
        ---------------------------
        v4 enabled: 1
        v6 enabled: 1
        max num frags (v4/v6): 1000
        num frag: 1
        min v4 frag size: 1200
        v4 frags accepted: 1
        v4 frags completed: 0
        v4 frags expired: 0
        v4 frags too small: 0
        v4 frags overlapped: 0
        v4 frags purged: 0
        min v6 frag size: 1280
        v6 frags accepted: 0
        v6 frags completed: 0
        v6 frags expired: 0
        v6 frags too small: 0
        v6 frags overlapped: 0
        v6 frags purged: 0

        Fragment Lists:

(src=10.0.0.1,dst=10.0.0.2,recirc_id=3,ip_id=77,dl_type=0x800,zone=9,nw_proto=17,num_fragments=1,state=first frag)
";
    assert_eq!(text, expected);
    assert!(expected.starts_with(
        &fragments.status_text(StatusDetail::Counters).replace("num frag: 0", "num frag: 1")
    ));
}

proptest! {
    #[test]
    fn any_bytes(packets in proptest::collection::vec(
        (proptest::collection::vec(any::<u8>(), 0..90), any::<bool>()), 1..20))
    {
        let fragments = Fragments::default();
        fragments.set_min_size(Family::V4, 400).unwrap();
        for (mut bytes, six) in packets {
            let len = bytes.len();
            if six && len >= 48 {
                bytes[0] = 0x60;
                bytes[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
                bytes[6] = 44;
                bytes[8..40].fill(1);
            } else if !six && len >= 20 {
                bytes[0] = 0x45;
                bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
                bytes[6] &= 0x20;
                bytes[12..20].fill(1);
            }
            let family = if six { Family::V6 } else { Family::V4 };
            let copy = bytes.clone();
            match fragments.submit(family, bytes, (0, 0), Checksums::NONE, NOW, 0) {
                Submitted::Whole(bytes, _) | Submitted::Bad(_, bytes, _) | Submitted::Full(bytes, _) => {
                    prop_assert_eq!(bytes, copy);
                }
                Submitted::Complete(whole) => drop(whole.into_fragments()),
                Submitted::Held | Submitted::TooBig(_) => {}
            }
        }
    }
}

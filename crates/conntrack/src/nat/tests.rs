// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::creation::tests::{table, udp};
use crate::memory::Sizes;
use proptest::prelude::*;
use std::collections::HashSet;

const SIZES: Sizes =
    Sizes { buckets: 1024, max_buckets: 1024, chunk_conns: 4096, chunks: 4, ring_slots: 1024 };

fn address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 9, 9, last))
}

fn range(manip: Manip, addresses: Option<(u8, u8)>, ports: Option<(u16, u16)>) -> NatRange {
    NatRange {
        manip,
        addresses: addresses.map(|(low, high)| (address(low), address(high))),
        ports,
        selection: Selection::Hash,
        persistent: false,
    }
}

fn ports(tuple: &Tuple) -> (u16, u16) {
    let Ports::Pair { src, dst } = tuple.ports else { unreachable!() };
    (src, dst)
}

/// Makes connections of different clients until one fails. Returns their reply tuples.
fn fill(range: NatRange, clients: u32, error: NatError) -> Vec<Tuple> {
    let (table, mut sweeper) = table(SIZES);
    let mut worker = table.worker();
    let now = Ticks(1);
    let mut replies = Vec::new();
    for client in 0..clients {
        let new = NewConn::new(udp(100 + client, 2, 5000, 80), 1000);
        let pinned = worker.pin();
        match table.create_with_nat(&pinned, &new, &range, now) {
            Ok(found) => {
                let reply = found.conn.reply(found.head).unwrap();
                let back = table.lookup(&pinned, &reply, now).unwrap();
                assert_eq!(
                    (back.conn.slot(), back.direction),
                    (found.conn.slot(), Direction::Reply)
                );
                assert_eq!(back.translated(), Some(new.original.reversed()));
                assert_eq!(found.translated(), Some(reply.reversed()));
                replies.push(reply);
            }
            Err(other) => {
                assert_eq!(other, error);
                return replies;
            }
        }
        drop(pinned);
        sweeper.slice(now);
    }
    replies
}

#[test]
fn a_range_of_ports_is_used_up_and_no_more() {
    let range = range(Manip::Src, Some((1, 1)), Some((4000, 4009)));
    let replies = fill(range, 20, NatError::Exhausted);
    assert_eq!(replies.len(), 10);
    let used: HashSet<_> = replies.iter().map(|reply| ports(reply).1).collect();
    assert_eq!(used, (4000..=4009).collect());
    assert!(replies.iter().all(|reply| reply.dst == address(1)));
}

#[test]
fn source_ports_stay_if_they_can() {
    let replies = fill(range(Manip::Src, Some((1, 1)), None), 40, NatError::Exhausted);
    assert_eq!(replies.len(), 40);
    assert_eq!(ports(&replies[0]).1, 5000);
    assert!(replies[1..].iter().all(|reply| ports(reply).1 >= 1024));
}

#[test]
fn destinations_take_their_range_and_then_other_source_ports() {
    // Equal clients of different addresses do not collide at the destination.
    let range = range(Manip::Dst, Some((7, 7)), Some((8080, 8080)));
    let replies = fill(range, 5, NatError::Exhausted);
    assert!(replies.iter().all(|reply| reply.src == address(7) && ports(reply) == (8080, 5000)));

    let (table, _sweeper) = table(SIZES);
    let mut worker = table.worker();
    let pinned = worker.pin();
    // One client, two virtual addresses, one real server: the second gets another source port.
    let first = NewConn::new(udp(1, 20, 5000, 80), 1000);
    let second = NewConn::new(udp(1, 21, 5000, 80), 1000);
    let made = [first, second].map(|new| {
        let found = table.create_with_nat(&pinned, &new, &range, Ticks(1)).unwrap();
        ports(&found.conn.reply(found.head).unwrap())
    });
    assert_eq!(made[0], (8080, 5000));
    assert_eq!(made[1].0, 8080);
    assert_ne!(made[1].1, 5000);
}

#[test]
fn addresses_spread_over_the_range_and_persist() {
    let replies = fill(range(Manip::Src, Some((1, 4)), None), 64, NatError::Exhausted);
    let used: HashSet<_> = replies.iter().map(|reply| reply.dst).collect();
    assert_eq!(used.len(), 4);
    let persistent = NatRange { persistent: true, ..range(Manip::Src, Some((1, 4)), None) };
    let (table, _sweeper) = table(SIZES);
    let mut worker = table.worker();
    let pinned = worker.pin();
    let used: HashSet<_> = (1..20)
        .map(|port| {
            let new = NewConn::new(udp(1, 2, port, 80), 1000);
            let found = table.create_with_nat(&pinned, &new, &persistent, Ticks(1)).unwrap();
            found.conn.reply(found.head).unwrap().dst
        })
        .collect();
    assert_eq!(used.len(), 1);
}

#[test]
fn zero_keeps_the_address_and_null_nat_resolves_collisions() {
    let zero = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let all_zero = NatRange { addresses: Some((zero, zero)), ..range(Manip::Src, None, None) };
    let (table, _sweeper) = table(SIZES);
    let mut worker = table.worker();
    let pinned = worker.pin();
    let new = |client| NewConn::new(udp(client, 2, 5000, 80), 1000);
    let found = table.create_with_nat(&pinned, &new(1), &all_zero, Ticks(1)).unwrap();
    assert_eq!(found.translated(), Some(new(1).original));

    // A connection whose replies go to client 5, port 5000.
    let to = Ipv4Addr::from_bits(5).into();
    let taken = NatRange { addresses: Some((to, to)), ..range(Manip::Src, None, None) };
    table.create_with_nat(&pinned, &new(3), &taken, Ticks(1)).unwrap();
    let found = table.create_with_null_nat(&pinned, &new(5), Ticks(1)).unwrap();
    let reply = found.conn.reply(found.head).unwrap();
    assert_eq!(reply.dst, to);
    assert_ne!(ports(&reply).1, 5000);
    let plain = table.create_with_null_nat(&pinned, &new(6), Ticks(1)).unwrap();
    assert_eq!(plain.head.flags() & (flags::NAT_SRC | flags::NAT_DST), 0);
}

#[test]
fn icmp_identifiers_change_on_collision() {
    let (table, _sweeper) = table(SIZES);
    let mut worker = table.worker();
    let pinned = worker.pin();
    let icmp = Icmp { class: crate::tuple::IcmpClass::Echo, request: true, code: 0, id: 77 };
    let mut ids = HashSet::new();
    for client in 1..10 {
        let tuple =
            Tuple { ports: Ports::Icmp(icmp), proto: ip_proto::ICMP, ..udp(client, 99, 0, 0) };
        let range = range(Manip::Src, Some((1, 1)), None);
        let new = NewConn::new(tuple, 1000);
        let found = table.create_with_nat(&pinned, &new, &range, Ticks(1)).unwrap();
        let Ports::Icmp(icmp) = found.conn.reply(found.head).unwrap().ports else { unreachable!() };
        assert!(!icmp.request);
        ids.insert(icmp.id);
    }
    assert_eq!(ids.len(), 9);
}

#[test]
fn other_protocols_have_one_candidate() {
    let (table, _sweeper) = table(SIZES);
    let mut worker = table.worker();
    let pinned = worker.pin();
    let range = range(Manip::Src, Some((1, 1)), None);
    let gre = |client| NewConn::new(Tuple { proto: 47, ..udp(client, 2, 0, 0) }, 1000);
    assert!(table.create_with_nat(&pinned, &gre(1), &range, Ticks(1)).is_ok());
    let second = table.create_with_nat(&pinned, &gre(3), &range, Ticks(1));
    assert_eq!(second.unwrap_err(), NatError::Exhausted);
}

proptest! {
    #[test]
    fn searches_stay_in_the_range_and_end(first in any::<u16>(), a in any::<u16>(), b in any::<u16>()) {
        let (low, high) = (a.min(b), a.max(b));
        let mut tries = 0;
        let found: Option<()> = search(first, low, high, |port| {
            assert!((low..=high).contains(&port));
            tries += 1;
            None
        });
        prop_assert!(found.is_none() && tries <= 128 + 64 + 32 + 16);
        prop_assert!(tries >= (u32::from(high - low) + 1).min(128));
    }

    #[test]
    fn picked_addresses_are_in_the_range(a in any::<u128>(), b in any::<u128>(), hash in any::<u32>()) {
        let (low, high) = (Ipv6Addr::from_bits(a.min(b)), Ipv6Addr::from_bits(a.max(b)));
        let IpAddr::V6(picked) = pick(low.into(), high.into(), hash).unwrap() else { unreachable!() };
        prop_assert!((low..=high).contains(&picked));
        prop_assert_eq!(pick(high.into(), low.into(), hash).is_none(), low != high);
    }
}

#[test]
fn ipv6_connections_are_translated_with_all_bits() {
    let (table, _sweeper) = table(SIZES);
    let mut worker = table.worker();
    let pinned = worker.pin();
    let address = |last| Ipv6Addr::new(0xfc00, 0x1234, 0, 0xffff, 1, 2, 3, last);
    for (manip, client) in [(Manip::Src, 1), (Manip::Dst, 2)] {
        let original =
            Tuple { src: address(client).into(), dst: address(99).into(), ..udp(0, 0, 5000, 80) };
        let range = NatRange {
            addresses: Some((address(0x240).into(), address(0x24f).into())),
            ..range(manip, None, None)
        };
        let new = NewConn::new(original, 1000);
        let found = table.create_with_nat(&pinned, &new, &range, Ticks(1)).unwrap();
        let reply = found.conn.reply(found.head).unwrap();
        let (changed, kept, old) = match manip {
            Manip::Src => (reply.dst, reply.src, original.dst),
            Manip::Dst => (reply.src, reply.dst, original.src),
        };
        let IpAddr::V6(changed) = changed else { unreachable!() };
        assert!((address(0x240)..=address(0x24f)).contains(&changed));
        assert_eq!(kept, old);
        let back = table.lookup(&pinned, &reply, Ticks(1)).unwrap();
        assert_eq!((back.conn.slot(), back.direction), (found.conn.slot(), Direction::Reply));
    }
    // A range of the other family makes no connection.
    let v4 = range(Manip::Src, Some((1, 1)), None);
    let original = Tuple { src: address(7).into(), dst: address(99).into(), ..udp(0, 0, 5000, 80) };
    let made = table.create_with_nat(&pinned, &NewConn::new(original, 1000), &v4, Ticks(1));
    assert_eq!(made.unwrap_err(), NatError::Create(CreateError::BadTuple));
}

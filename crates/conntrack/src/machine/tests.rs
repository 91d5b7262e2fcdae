// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::conn::Class;
use crate::creation::NewConn;
use crate::creation::tests::{table, udp};
use crate::memory::Sizes;
use crate::ticks;
use crate::tuple::{Icmp, IcmpClass};
use Direction::{Original, Reply};

const SIZES: Sizes =
    Sizes { buckets: 64, max_buckets: 64, chunk_conns: 64, chunks: 1, ring_slots: 8 };

fn made(table: &Table, tuple: Tuple, now: Ticks) -> crate::table::Found<'_> {
    let start = begin(&tuple, None).unwrap();
    let class = Class { timeout: start.timeout as u8, ..Class::default() };
    let ticks = table.policies().ticks(0, start.timeout);
    let mut worker = table.worker();
    table.create(&worker.pin(), &NewConn { class, ..NewConn::new(tuple, ticks) }, now).unwrap()
}

fn seconds_left(conn: Conn<'_>, now: Ticks) -> u64 {
    ticks::duration(conn.head().expires().since(now)).as_secs()
}

#[test]
fn udp_is_established_by_a_reply() {
    let (table, _sweeper) = table(SIZES);
    let now = Ticks(100);
    let conn = made(&table, udp(1, 2, 3, 4), now).conn;
    assert_eq!(seconds_left(conn, now), 60);
    let step = |direction| {
        let moved = table.advance(conn, conn.head(), direction, None, now);
        (moved.update, seconds_left(conn, now))
    };
    assert_eq!(step(Original), (Update::StillNew, 60));
    assert!(conn.head().has(flags::MULTIPLE) && table.counts().half_open() == 1);
    assert_eq!(step(Reply), (Update::Established, 30));
    assert_eq!(step(Original), (Update::Established, 30));
    assert!(conn.head().has(flags::ASSURED) && table.counts().half_open() == 0);
    assert_eq!(conn.class().timeout, Timeout::UdpMultiple as u8);
}

#[test]
fn icmp_requests_stay_new_until_a_reply() {
    let (table, _sweeper) = table(SIZES);
    let now = Ticks(100);
    let icmp = Icmp { class: IcmpClass::Echo, request: true, code: 0, id: 7 };
    let tuple = Tuple { ports: Ports::Icmp(icmp), proto: ip_proto::ICMP, ..udp(1, 2, 0, 0) };
    assert_eq!(begin(&tuple.reversed(), None), None);
    let conn = made(&table, tuple, now).conn;
    let step = |direction| {
        let moved = table.advance(conn, conn.head(), direction, None, now);
        (moved.update, seconds_left(conn, now))
    };
    assert_eq!(step(Original), (Update::StillNew, 60));
    assert_eq!(step(Reply), (Update::Established, 30));
}

#[test]
fn expiry_moves_only_by_enough() {
    let (table, _sweeper) = table(SIZES);
    let conn = made(&table, udp(1, 2, 3, 4), Ticks(100)).conn;
    table.advance(conn, conn.head(), Reply, None, Ticks(100));
    let head = conn.head();
    table.advance(conn, head, Reply, None, Ticks(103));
    assert_eq!(conn.head(), head);
    table.advance(conn, head, Reply, None, Ticks(104));
    assert_ne!(conn.head(), head);
}

// SPDX-License-Identifier: Apache-2.0
//! A table of a million connections: a sweep, a dump and a removal take it in slices, so that no
//! other work waits long.

use conntrack::{
    CreateError, Detail, Flush, NewConn, NoBarrier, Ports, Sweeper, Table, Ticks, Tracker, Tuple,
};
use packet::ip_proto;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const CONNECTIONS: u32 = 1_000_000;
/// Connections of zone 2; the others are in zone 1.
const IN_ZONE_2: u32 = 250_000;
/// Connections that expire first.
const SHORT: u32 = 400_000;
/// Slots that a slice of a sweep, and one of a dump or a removal, may visit.
const SWEEP_SLICE: usize = 4_096;
const DUMP_SLICE: u64 = 1_024;
/// Slots that a slice of a sweep may set free: they wait for each other.
const FREED_AT_ONCE: usize = 65_536;

/// The secret of the hash.
const SECRET: [u64; 2] = [0x1234_5678_9abc_def0, 0x9e37_79b9_7f4a_7c15];
const NOW: Ticks = Ticks(1_000);

fn connection(n: u32) -> NewConn {
    let address = |bits| IpAddr::V4(Ipv4Addr::from_bits(bits));
    let tuple = Tuple {
        src: address(0x0a00_0000 | n >> 8),
        dst: address(0x0b00_0001),
        ports: Ports::Pair { src: 1024 + (n & 0xff) as u16, dst: 80 },
        proto: ip_proto::UDP,
        zone: if n < IN_ZONE_2 { 2 } else { 1 },
    };
    NewConn::new(tuple, if n < SHORT { 1_000 } else { 1_000_000 })
}

/// Makes all connections, with slices of the sweeper in between, as the thread ct_clean does them.
fn fill(table: &Table, sweeper: &mut Sweeper) {
    let mut worker = table.worker();
    let mut slices = 0;
    for n in 0..CONNECTIONS {
        if n % 8_192 == 0 {
            sweeper.slice(NOW);
        }
        loop {
            let made = table.create(&worker.pin(), &connection(n), NOW).map(drop);
            match made {
                Ok(()) => break,
                Err(CreateError::NoSlot | CreateError::BucketFull) => {
                    sweeper.slice(NOW);
                }
                Err(error) => panic!("connection {n}: {error:?}"),
            }
            slices += 1;
            assert!(slices < 20_000, "the table does not grow");
        }
    }
}

#[test]
fn a_million_connections_are_swept_dumped_and_removed_in_slices() {
    let table = Arc::new(Table::in_plain_memory(SECRET));
    let mut sweeper = Sweeper::new(table.clone(), Box::new(NoBarrier));
    fill(&table, &mut sweeper);
    assert_eq!(table.counts().conns(), CONNECTIONS.into());
    let tracker = Tracker::new(table.clone());

    // A dump of all, and one of a zone, which visits all slots as well.
    for (zone, expected) in [(None, CONNECTIONS), (Some(2), IN_ZONE_2)] {
        let (mut total, mut slices, mut cursor) = (0, 0, Some(0));
        while let Some(at) = cursor {
            let mut count = 0;
            cursor = table.dump(zone, at, NOW, |entry| {
                count += 1;
                assert!(count > 1 || entry.line(Detail::default()).starts_with("udp,orig="));
            });
            assert!(count <= DUMP_SLICE, "{count} connections in a slice");
            total += count;
            slices += 1;
        }
        assert_eq!(total, expected.into());
        assert!(slices >= u64::from(CONNECTIONS) / DUMP_SLICE, "{slices} slices");
    }

    // A sweep after which the first ones have expired.
    let later = NOW.after(2_000);
    let (mut expired, mut freed, mut slices) = (0, 0, 0);
    loop {
        let swept = sweeper.slice(later);
        assert!(swept.expired <= SWEEP_SLICE && swept.freed <= FREED_AT_ONCE, "{swept:?}");
        expired += swept.expired;
        freed += swept.freed;
        slices += 1;
        // A slice may be the last one of a pass that began before.
        if swept.settled && expired == SHORT as usize && freed >= expired {
            break;
        }
        assert!(slices < 20_000, "{expired} expired, {freed} freed");
    }
    assert!(slices >= CONNECTIONS as usize / SWEEP_SLICE, "{slices} slices");
    assert_eq!(table.counts().conns(), u64::from(CONNECTIONS - SHORT));

    // The removal of a zone without connections, of one with some, and of all.
    let mut worker = table.worker();
    let zones = [(Some(2), 0), (Some(1), CONNECTIONS - SHORT), (None, 0)];
    for (zone, expected) in zones {
        let wanted = Flush { zone, ..Flush::default() };
        let (mut total, mut slices, mut cursor) = (0, 0, Some(0));
        while let Some(at) = cursor {
            let before = table.counts().conns();
            cursor = tracker.flush(&worker.pin(), &wanted, at, later).expect("no whole tuple");
            let ended = before - table.counts().conns();
            assert!(ended <= DUMP_SLICE, "{ended} connections in a slice");
            total += ended;
            slices += 1;
        }
        assert_eq!(total, expected.into());
        assert!(slices >= u64::from(CONNECTIONS) / DUMP_SLICE, "{slices} slices");
    }
    assert_eq!(table.counts().conns(), 0);
}

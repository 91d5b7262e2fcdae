// SPDX-License-Identifier: Apache-2.0
//! The table against a plain model: a list of connections.

use super::*;
use crate::creation::tests::{table, udp};
use crate::memory::Sizes;
use crate::tuple::Ports;
use proptest::prelude::*;
use std::net::Ipv4Addr;

const SIZES: Sizes =
    Sizes { buckets: 64, max_buckets: 256, chunk_conns: 256, chunks: 4, ring_slots: 64 };

#[derive(Clone, Debug)]
enum Op {
    Create { client: u32, reverse: bool, nat_port: Option<u16>, timeout: u32 },
    Lookup { client: u32, reverse: bool },
    LookupPublic { port: u16 },
    Refresh { client: u32, timeout: u32 },
    Kill { client: u32 },
    Wait { ticks: u32 },
    Sweep,
}

fn any_op() -> impl Strategy<Value = Op> {
    let client = 0u32..4;
    prop_oneof![
        4 => (client.clone(), any::<bool>(), proptest::option::of(1u16..4), 1u32..40).prop_map(
            |(client, reverse, nat_port, timeout)| Op::Create { client, reverse, nat_port, timeout }
        ),
        4 => (client.clone(), any::<bool>())
            .prop_map(|(client, reverse)| Op::Lookup { client, reverse }),
        2 => (1u16..4).prop_map(|port| Op::LookupPublic { port }),
        1 => (client.clone(), 5u32..40)
            .prop_map(|(client, timeout)| Op::Refresh { client, timeout }),
        1 => client.prop_map(|client| Op::Kill { client }),
        2 => (1u32..20).prop_map(|ticks| Op::Wait { ticks }),
        1 => Just(Op::Sweep),
    ]
}

/// A connection of the model.
#[derive(Clone, Copy, Debug)]
struct Plain {
    original: Tuple,
    reply: Tuple,
    expires: u32,
}

impl Plain {
    fn has(&self, tuple: &Tuple) -> bool {
        self.original == *tuple || self.reply == *tuple
    }
}

fn tuple_of(client: u32, reverse: bool) -> Tuple {
    let tuple = udp(client + 1, 50, 10, 20);
    if reverse { tuple.reversed() } else { tuple }
}

/// The reply tuple to the public address 9.
fn public(original: &Tuple, port: u16) -> Tuple {
    let reply = original.reversed();
    let Ports::Pair { src, .. } = reply.ports else { unreachable!() };
    let ports = Ports::Pair { src, dst: port };
    Tuple { dst: Ipv4Addr::from_bits(9).into(), ports, ..reply }
}

proptest! {
    #[test]
    fn the_table_does_what_a_list_does(ops in proptest::collection::vec(any_op(), 1..120)) {
        let (table, mut sweeper) = table(SIZES);
        let mut worker = table.worker();
        let mut now = 1000u32;
        let mut model: Vec<Plain> = Vec::new();
        for op in ops {
            model.retain(|plain| plain.expires > now);
            let ticks = Ticks(now);
            match op {
                Op::Create { client, reverse, nat_port, timeout } => {
                    let original = tuple_of(client, reverse);
                    let mut new = NewConn::new(original, timeout);
                    if let Some(port) = nat_port {
                        new.reply = public(&original, port);
                        new.flags = flags::NAT_SRC;
                    }
                    let is_taken = model
                        .iter()
                        .any(|plain| plain.has(&new.original) || plain.has(&new.reply));
                    let made = table.create(&worker.pin(), &new, ticks);
                    prop_assert_eq!(made.as_ref().err(), is_taken.then_some(&CreateError::Clash));
                    if !is_taken {
                        let (original, reply) = (new.original, new.reply);
                        model.push(Plain { original, reply, expires: now + timeout });
                    }
                }
                Op::Lookup { client, reverse } => {
                    let tuple = tuple_of(client, reverse);
                    check(&table, &mut worker, &model, &tuple, ticks)?;
                }
                Op::LookupPublic { port } => {
                    for client in 0..4 {
                        let tuple = public(&tuple_of(client, false), port);
                        check(&table, &mut worker, &model, &tuple, ticks)?;
                    }
                }
                Op::Refresh { client, timeout } => {
                    let tuple = tuple_of(client, false);
                    let pinned = worker.pin();
                    if let Some(found) = table.lookup(&pinned, &tuple, ticks) {
                        let generation = found.head.generation();
                        table.refresh(found.conn, generation, 0, timeout, ticks);
                        let plain = model.iter_mut().find(|plain| plain.has(&tuple)).unwrap();
                        if plain.expires.abs_diff(now + timeout) >= REFRESH_TICKS as u32 {
                            plain.expires = now + timeout;
                        }
                    }
                }
                Op::Kill { client } => {
                    let tuple = tuple_of(client, false);
                    let pinned = worker.pin();
                    if let Some(found) = table.lookup(&pinned, &tuple, ticks) {
                        prop_assert!(table.kill(found.conn, found.head));
                        model.retain(|plain| !plain.has(&tuple));
                    }
                }
                Op::Wait { ticks } => now += ticks,
                Op::Sweep => {
                    sweeper.pass(ticks);
                    prop_assert_eq!(table.counts().conns(), model.len() as u64);
                    let slots = table.slots().count();
                    prop_assert_eq!(sweeper.free_slots(), slots - model.len());
                }
            }
        }
    }
}

fn check(
    table: &Table,
    worker: &mut Worker,
    model: &[Plain],
    tuple: &Tuple,
    now: Ticks,
) -> Result<(), TestCaseError> {
    let pinned = worker.pin();
    let found = table.lookup(&pinned, tuple, now);
    let expected = model.iter().find(|plain| plain.has(tuple));
    prop_assert_eq!(found.is_some(), expected.is_some(), "{:?}", tuple);
    if let (Some(found), Some(plain)) = (found, expected) {
        prop_assert_eq!(found.conn.original(found.head), Some(plain.original));
        prop_assert_eq!(found.conn.reply(found.head), Some(plain.reply));
        let direction =
            if plain.original == *tuple { Direction::Original } else { Direction::Reply };
        prop_assert_eq!(found.direction, direction);
    }
    Ok(())
}

#[test]
fn a_flood_in_a_limited_zone_ends_no_connection_of_another() {
    let (table, mut sweeper) = table(SIZES);
    table.counts().set_limit(1, Some(80));
    let mut worker = table.worker();
    let in_zone_2 = |port| Tuple { zone: 2, ..udp(5, 6, port, 80) };
    for port in 1..60 {
        let new = NewConn::new(in_zone_2(port), 1000);
        assert!(table.create(&worker.pin(), &new, Ticks(1)).is_ok());
        sweeper.pass(Ticks(1));
    }
    let mut made = 0;
    for port in 1..2000 {
        let new = NewConn::new(udp(1, 2, port, 80), 1000);
        made += u32::from(table.create(&worker.pin(), &new, Ticks(2)).is_ok());
        sweeper.pass(Ticks(2));
    }
    assert!(made > 40, "connections of the zone itself make room: {made}");
    assert_eq!(table.counts().zone_half_open(1), 40);
    assert_eq!(table.counts().zone_half_open(2), 59);
}

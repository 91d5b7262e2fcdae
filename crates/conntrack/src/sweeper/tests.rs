// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::creation::NewConn;
use crate::creation::tests::{table, udp};
use crate::memory::{Memory as _, PlainMemory, Sizes, WrongLayout, check};
use crate::table::Table;

const SIZES: Sizes =
    Sizes { buckets: 32, max_buckets: 512, chunk_conns: 256, chunks: 16, ring_slots: 64 };

#[test]
fn slots_are_freed_after_two_grace_periods() {
    let (table, mut sweeper) = table(SIZES);
    let free = sweeper.free_slots();
    let (mut worker, mut reader) = (table.worker(), table.worker());
    let new = NewConn::new(udp(1, 2, 3, 4), 10);
    let slot = table.create(&worker.pin(), &new, Ticks(0)).unwrap().conn.slot();
    let pinned = reader.pin();
    let swept = sweeper.slice(Ticks(10));
    assert_eq!((swept.expired, swept.freed), (1, 0));
    assert_eq!(sweeper.slice(Ticks(10)).freed, 0);
    drop(pinned);
    let pinned = reader.pin();
    // The first period is over. This reader began before the entries were removed.
    assert_eq!(sweeper.slice(Ticks(10)).freed, 0);
    drop(pinned);
    assert_eq!(sweeper.slice(Ticks(10)).freed, 1);
    assert_eq!(table.slot(slot).unwrap().head().phase(), Phase::Free);
    assert_eq!(sweeper.free_slots(), free);
    assert_eq!(table.counts().conns(), 0);
}

#[test]
fn a_slot_is_freed_once_when_a_pass_begins_again() {
    // Two chunks: the first slice does not end the pass.
    let (table, mut sweeper) = table(Sizes { ring_slots: 512, ..SIZES });
    let mut worker = table.worker();
    for n in 0..200 {
        table.create(&worker.pin(), &NewConn::new(udp(n, 2, 3, 4), 10), Ticks(0)).unwrap();
        sweeper.slice(Ticks(0));
    }
    let slots = table.slots().count();
    assert!(slots > 256);
    sweeper.slice(Ticks(10));
    sweeper.pass(Ticks(10));
    assert_eq!(sweeper.free_slots(), slots);
}

#[test]
fn the_index_grows_before_a_pass_ends() {
    let sizes = Sizes { buckets: 64, max_buckets: 256, chunk_conns: 2 * SLICE, ..SIZES };
    let (table, mut sweeper) = table(sizes);
    let mut worker = table.worker();
    for n in 0..300 {
        let _ = table.create(&worker.pin(), &NewConn::new(udp(n, 1000, 5, 7), 1000), Ticks(5));
    }
    assert!(table.counts().conns() > 64 * 8 * 55 / 100);
    let swept = sweeper.slice(Ticks(5));
    assert!(swept.is_growing && !swept.end_of_pass, "{swept:?}");
}

#[test]
fn rings_are_filled_when_half_of_them_are_empty() {
    let (table, mut sweeper) = table(SIZES);
    let free = sweeper.free_slots();
    assert!(!table.is_low());
    for number in 0..RINGS / 2 {
        assert!(!table.is_low());
        while table.ring(number).unwrap().take().is_some() {}
    }
    assert!(table.is_low() && sweeper.free_slots() >= free / 2);
    sweeper.slice(Ticks(5));
    assert!(!table.is_low());
}

#[test]
fn the_table_grows_and_keeps_its_connections() {
    let (table, mut sweeper) = table(SIZES);
    let mut worker = table.worker();
    let now = Ticks(5);
    let mut made = Vec::new();
    for n in 0..2000u32 {
        let tuple = udp(n / 50 + 1, 1000, (n % 50) as u16 + 1, 7);
        let new = NewConn::new(tuple, 10_000);
        let done = table.create(&worker.pin(), &new, now).is_ok();
        if done {
            made.push(tuple);
        }
        sweeper.slice(now);
        sweeper.slice(now);
        if n % 100 == 0 {
            let pinned = worker.pin();
            for tuple in &made {
                assert!(table.lookup(&pinned, tuple, now).is_some());
                assert!(table.lookup(&pinned, &tuple.reversed(), now).is_some());
            }
        }
    }
    assert_eq!(made.len(), 2000);
    assert!(table.indexes()[0].unwrap().buckets() >= 512);
    assert!(table.slots().count() >= 2000);
    sweeper.pass(now);
    sweeper.pass(now);
    assert!(table.indexes()[1].is_none());
    assert_eq!(sweeper.pass(now.after(10_000)), 2000);
    assert_eq!(table.indexes()[0].unwrap().lengths().sum::<usize>(), 0);
}

#[test]
fn another_sweeper_continues_where_one_was_killed() {
    let memory = std::sync::Arc::new(PlainMemory::new(SIZES));
    let table = std::sync::Arc::new(Table::open(memory.clone(), [1, 3]).unwrap());
    let sweeper = Sweeper::new(table.clone(), Box::new(NoBarrier));
    let free = sweeper.free_slots();
    let mut worker = table.worker();
    let tuple = udp(1, 2, 3, 4);
    table.create(&worker.pin(), &NewConn::new(tuple, 1000), Ticks(0)).unwrap();
    table.take_slot(0).unwrap(); // the taker was killed
    drop((sweeper, worker, table));

    let table = std::sync::Arc::new(Table::open(memory, [77, 99]).unwrap());
    let mut sweeper = Sweeper::new(table.clone(), Box::new(NoBarrier));
    assert_eq!(sweeper.free_slots(), free - 1);
    let mut worker = table.worker();
    assert!(table.lookup(&worker.pin(), &tuple, Ticks(1)).is_some());
    assert_eq!(table.counts().conns(), 1);
    assert_eq!(sweeper.pass(Ticks(1000)), 1);
    assert_eq!(sweeper.free_slots(), free);
}

#[test]
fn counts_that_killed_threads_left_are_corrected() {
    // A thread counts in the zone, and then in all. It may be killed between the two.
    let zone_word = |at: usize| crate::layout::zone::WORDS + at;
    let zones = [zone_word(crate::layout::zone::COUNT), zone_word(crate::layout::zone::HALF_OPEN)];
    let totals = [config::TOTALS + 2 * config::LINE, config::TOTALS + 5 * config::LINE + 1];
    /// Numbers that are added to the two counts of the zone, and to two words of the totals.
    type Damage = [i64; 4];
    let damages: [Damage; 5] =
        [[1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 1, 0], [0, 0, 0, 3], [-7, 0, 0, -9]];
    for damage in damages {
        let memory = std::sync::Arc::new(PlainMemory::new(SIZES));
        let table = std::sync::Arc::new(Table::open(memory.clone(), [1, 3]).unwrap());
        let mut sweeper = Sweeper::new(table.clone(), Box::new(NoBarrier));
        let mut worker = table.worker();
        for n in 1..4 {
            let new = NewConn::new(udp(n, 2, 3, 4), 1000);
            table.create(&worker.pin(), &new, Ticks(0)).unwrap();
        }
        let counts = || {
            let counts = table.counts();
            (counts.zone(1), counts.zone_half_open(1), counts.conns(), counts.half_open())
        };
        let [conns, halves, all, all_halves] = damage.map(|number| number as u64);
        for (at, number) in zones.into_iter().zip([conns, halves]) {
            memory.zones()[at].fetch_add(number, Ordering::Relaxed);
        }
        for (at, number) in totals.into_iter().zip([all, all_halves]) {
            memory.config_word(at).fetch_add(number, Ordering::Relaxed);
        }
        sweeper.pass(Ticks(1));
        assert_ne!(counts(), (3, 3, 3, 3), "one pass alone may be wrong");
        sweeper.pass(Ticks(1));
        sweeper.pass(Ticks(1));
        assert_eq!(counts(), (3, 3, 3, 3));
    }
}

#[test]
fn memory_of_another_layout_is_left_alone() {
    let memory = std::sync::Arc::new(PlainMemory::new(SIZES));
    memory.config_word(config::MAGIC).store(1, Ordering::Relaxed);
    assert!(Table::open(memory.clone(), [1, 3]).is_err());
    assert_eq!(memory.config_word(config::SEED).load(Ordering::Relaxed), 0);
}

#[test]
fn memory_with_impossible_values_is_refused() {
    let damages: [fn(&PlainMemory); 6] = [
        |memory| memory.config_word(config::FACTORS).store(2, Ordering::Relaxed),
        |memory| memory.config_word(config::TOTALS).store(1 << 40, Ordering::Relaxed),
        |memory| memory.config_word(config::INDEX).store(0xff07, Ordering::Relaxed),
        // The other index would be entered, or retired.
        |memory| memory.config_word(config::INDEX).store(0x0700, Ordering::Relaxed),
        |memory| memory.config_word(config::INDEX).store(0, Ordering::Relaxed),
        |memory| memory.ring(3)[crate::layout::ring::HEAD].store(1 << 40, Ordering::Relaxed),
    ];
    for damage in damages {
        let memory = std::sync::Arc::new(PlainMemory::new(SIZES));
        let table = std::sync::Arc::new(Table::open(memory.clone(), [1, 3]).unwrap());
        drop(Sweeper::new(table, Box::new(NoBarrier)));
        assert_eq!(check(&*memory), Ok(()));
        damage(&memory);
        assert!(matches!(check(&*memory), Err(WrongLayout::Damaged(_))));
        assert!(Table::open(memory, [1, 3]).is_err());
    }
}

#[test]
fn any_memory_is_harmless() {
    // Words of all kinds in all arrays: no panic, no endless loop.
    let mut seed = 1u64;
    for round in 0..6 {
        let memory = std::sync::Arc::new(PlainMemory::new(SIZES));
        let table = std::sync::Arc::new(Table::open(memory.clone(), [1, 3]).unwrap());
        drop(Sweeper::new(table, Box::new(NoBarrier)));
        memory.damage(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed ^ seed >> 29
        });
        let table = std::sync::Arc::new(Table::open(memory, [1, 3]).unwrap());
        let mut sweeper = Sweeper::new(table.clone(), Box::new(NoBarrier));
        let mut worker = table.worker();
        for n in 0..50 {
            let pinned = worker.pin();
            let tuple = udp(n, 2, 3, 4);
            let _ = table.create(&pinned, &NewConn::new(tuple, 10), Ticks(round * 1000));
            let _ = table.lookup(&pinned, &tuple, Ticks(round * 1000));
            drop(pinned);
            sweeper.slice(Ticks(round * 1000 + n));
        }
    }
}

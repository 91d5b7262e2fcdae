// SPDX-License-Identifier: Apache-2.0
//! A table of connections in shared memory that another daemon left, damaged anywhere.
//!
//! The input is connections that the other daemon had, what then happened to words of its arrays,
//! and the time of the daemon that continues.

use crate::input::Input;
use conntrack::layout::{
    CHUNKS, INDEX_GENERATIONS, POLICY_WORDS, REFRESH_TICKS, RINGS, config, extension, flags, ring,
    zone,
};
use conntrack::{
    Flush, Memory, NewConn, NoBarrier, PlainMemory, Ports, Sizes, Sweeper, Table, Ticks, Tracker,
    Tuple,
};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Small arrays, so that damage hits something.
const SIZES: Sizes =
    Sizes { buckets: 16, max_buckets: 64, chunk_conns: 64, chunks: 3, ring_slots: 32 };
const MAX_CONNS: usize = 100;
const MAX_DAMAGE: usize = 48;
/// Words of the arrays that are large for everybody, that damage may hit.
const HIT: usize = 6;
/// Slices within which a sweeper without packet threads comes to rest, from any memory: each chunk
/// is a slice, and the index grows twice.
const MOST_SLICES: usize = 64;
/// Attempts to make a connection: more than the rings can have bad numbers.
const TRIES: usize = 4 * MAX_DAMAGE;

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let memory = Arc::new(PlainMemory::new(SIZES));
    let before = Ticks(input.word());
    let made = fill(&mut input, memory.clone(), before);
    let mut is_damaged = false;
    for _ in 0..input.below(MAX_DAMAGE) {
        damage(&mut input, &*memory);
        is_damaged = true;
    }
    let Ok(table) = Table::open(memory, [5, 7]) else {
        assert!(is_damaged, "the table of an earlier daemon is refused");
        return;
    };
    let table = Arc::new(table);
    let mut sweeper = Sweeper::new(table.clone(), Box::new(NoBarrier));
    let mut worker = table.worker();
    if is_damaged {
        let now = Ticks(input.word());
        use_it(&mut input, &table, &mut sweeper, now);
    } else {
        let pinned = worker.pin();
        for new in &made {
            for tuple in [new.original, new.reply] {
                let found = table.lookup(&pinned, &tuple, before);
                let conn = found.expect("no connection is lost");
                assert_eq!(conn.conn.original(conn.head), Some(new.original));
            }
        }
        assert_eq!(table.counts().conns(), made.len() as u64);
    }
    end(&table, &mut sweeper, Ticks(input.word()));
}

/// Makes connections as an earlier daemon does, which then is killed.
fn fill(input: &mut Input<'_>, memory: Arc<PlainMemory>, now: Ticks) -> Vec<NewConn> {
    let table = Table::open(memory, [1, 3]).expect("fresh memory");
    let table = Arc::new(table);
    let mut sweeper = Sweeper::new(table.clone(), Box::new(NoBarrier));
    let mut worker = table.worker();
    let mut made = Vec::new();
    for _ in 0..input.below(MAX_CONNS) {
        let new = conn(input);
        if table.create(&worker.pin(), &new, now).is_ok() {
            made.push(new);
        }
        if input.flag() {
            sweeper.slice(now);
        }
    }
    // Half-open connections make room for others.
    let pinned = worker.pin();
    made.retain(|new: &NewConn| table.lookup(&pinned, &new.original, now).is_some());
    made
}

fn conn(input: &mut Input<'_>) -> NewConn {
    let address = |byte: u8| Ipv4Addr::new(10, 0, 0, byte & 15).into();
    let ports = Ports::Pair { src: 1 + u16::from(input.byte()), dst: 80 };
    let (src, dst) = (address(input.byte()), address(input.byte()));
    let zone = u16::from(input.byte() & 1);
    let original = Tuple { src, dst, ports, proto: input.choose(&[6, 17]), zone };
    let mut new = NewConn::new(original, 100 + u32::from(input.short()));
    if input.flag() {
        new.flags = flags::NAT_SRC;
        new.reply.dst = address(input.byte());
        new.reply.ports = Ports::Pair { src: 80, dst: 1 + u16::from(input.byte()) };
    }
    new
}

/// Changes a word.
fn damage(input: &mut Input<'_>, memory: &dyn Memory) {
    let number = input.byte();
    let small = |words: &[AtomicU64], size: usize| words.len().min(HIT * size);
    let (zones, policies, extensions) = (memory.zones(), memory.policies(), memory.extensions());
    let words = match input.below(8) {
        0 => memory.config().get(config::SEED..),
        1 => zones.get(..small(zones, zone::WORDS)),
        2 => policies.get(..small(policies, POLICY_WORDS)),
        3 => extensions.get(..small(extensions, extension::WORDS)),
        4 => Some(memory.ring(usize::from(number) % RINGS)),
        5 => memory.index(number % INDEX_GENERATIONS as u8).or_else(|| memory.index(0)),
        _ => memory.chunk(usize::from(number) % CHUNKS).or_else(|| memory.chunk(0)),
    };
    let words = words.unwrap_or_default();
    // Mostly what is in use: zeros say that nothing is there.
    let used: Vec<&AtomicU64> = words.iter().filter(|w| w.load(Ordering::Relaxed) != 0).collect();
    let at = usize::from(input.short());
    let word = match input.below(4) {
        0 => words.get(at % words.len().max(1)),
        _ => used.get(at % used.len().max(1)).copied(),
    };
    let Some(word) = word else { return };
    match input.below(5) {
        0 => word.store(input.byte().into(), Ordering::Relaxed),
        1 => word.store(input.long(), Ordering::Relaxed),
        2 => word.store(0, Ordering::Relaxed),
        3 => {
            // The tail or the head of a ring, or a count, is off by a little.
            word.fetch_add(u64::from(input.byte()) % (ring::CELLS as u64), Ordering::Relaxed);
        }
        _ => {
            word.fetch_xor(1 << (input.byte() & 63), Ordering::Relaxed);
        }
    }
}

/// Packets come, and commands.
fn use_it(input: &mut Input<'_>, table: &Arc<Table>, sweeper: &mut Sweeper, mut now: Ticks) {
    let mut worker = table.worker();
    for _ in 0..input.below(64) {
        let pinned = worker.pin();
        let new = conn(input);
        let made = table.create(&pinned, &new, now).map(|found| found.conn.id(found.head));
        let found = table.lookup(&pinned, &new.reply, now);
        if let Ok(id) = made {
            assert!(table.get(id, now).is_some() && found.is_some(), "it was just made");
        }
        if let Some(found) = found {
            table.refresh(found.conn, found.head.generation(), flags::ASSURED, 500, now);
        }
        drop(pinned);
        if input.flag() {
            sweeper.slice(now);
            now = now.after(REFRESH_TICKS as u32 * u32::from(input.byte()));
        }
    }
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        cursor = table.dump(None, from, now, |entry| drop(entry.line(Default::default())));
    }
}

/// Everything ends: the counts are right whatever they were, and the table can be used again.
fn end(table: &Arc<Table>, sweeper: &mut Sweeper, now: Ticks) {
    let mut worker = table.worker();
    let tracker = Tracker::new(table.clone());
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        let flushed = tracker.flush(&worker.pin(), &Flush::default(), from, now);
        cursor = flushed.expect("no filter, nothing that is not found");
    }
    // Two passes agree on a difference, and a third one begins after that.
    for _ in 0..4 {
        rest(sweeper, now);
    }
    let halves = table.counts().half_open();
    assert_eq!((table.counts().conns(), halves), (0, 0), "no connection is left");
    for zone in 0..HIT as u16 {
        let counts = (table.counts().zone(zone), table.counts().zone_half_open(zone));
        assert_eq!(counts, (0, 0), "zone {zone}");
    }
    // As the database sets them.
    table.counts().set_max(MAX_CONNS as u32);
    table.counts().set_half_open_percent(100);
    table.counts().set_default_limit(0);
    table.counts().set_limit(0, None);
    // Some places of the rings may hold no slot's number.
    let new = conn(&mut Input::new(&[]));
    let is_made = (0..TRIES).any(|_| {
        let is_made = table.create(&worker.pin(), &new, now).is_ok();
        sweeper.slice(now);
        is_made
    });
    assert!(is_made, "no connection can be made any more");
}

/// Sweeps until nothing is left to do.
fn rest(sweeper: &mut Sweeper, now: Ticks) {
    let settles = (0..MOST_SLICES).any(|_| sweeper.slice(now).settled);
    assert!(settles, "the sweeper does not come to rest");
}

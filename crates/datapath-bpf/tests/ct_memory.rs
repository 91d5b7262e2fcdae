// SPDX-License-Identifier: Apache-2.0
//! The memory of the table of connections outlives the daemon. Needs root.

#![allow(clippy::unwrap_used, missing_docs)]

use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clock::Clock;
use conntrack::layout::{self, CHUNKS, INDEX_GENERATIONS, RINGS, VERSION, config};
use conntrack::{Expectation, Memory as _, NewConn, Ports, Sweeper, Table, Ticks, Tracker, Tuple};
use datapath_bpf::ct_memory::{Adoption, BpfMemory};
use datapath_bpf::grace::Grace;
use datapath_bpf::{BpfDatapath, Config, Pins, Unavailable, discard, sys};
use proptest::prelude::*;
use testing::BpfFs;

use connections::{CHUNK, Programs, Shelf};

#[path = "support/connections.rs"]
mod connections;

fn udp(n: u16) -> Tuple {
    let address = |bits| Ipv4Addr::from_bits(bits).into();
    let ports = Ports::Pair { src: n + 1, dst: 80 };
    Tuple { src: address(1 + u32::from(n % 7)), dst: address(99), ports, proto: 17, zone: n % 3 }
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Opens the memory that is pinned in a directory.
fn open(directory: &Path) -> (BpfMemory, Adoption) {
    let pins = Arc::new(Pins::open(directory).unwrap());
    BpfMemory::open(Some(&pins), CHUNK).unwrap()
}

/// A file system with a directory for pins.
fn pins() -> Option<(BpfFs, std::path::PathBuf)> {
    if testing::without_root() {
        return None;
    }
    let bpffs = BpfFs::new().unwrap();
    let directory = bpffs.path().join("slipswitch/one");
    std::fs::create_dir_all(&directory).unwrap();
    Some((bpffs, directory))
}

#[test]
fn another_daemon_continues_with_the_connections() {
    let Some((_bpffs, directory)) = pins() else { return };
    let mut shelf = Shelf::open(Some(&directory));
    assert_eq!(shelf.adoption, Adoption::Nothing);
    let programs = Programs::load(&shelf.memory);
    let mut worker = shelf.table.worker();
    for n in 0..900 {
        shelf.table.create(&worker.pin(), &NewConn::new(udp(n), 10_000), Ticks(1)).unwrap();
    }
    for n in 900..1800 {
        assert_eq!(programs.create(&NewConn::new(udp(n), 10_000), Ticks(1)).result, 0);
        if n % 64 == 0 {
            shelf.sweeper.slice(Ticks(1));
        }
    }
    let slots = shelf.table.slots().count();
    assert!(slots > CHUNK, "several chunks are needed");
    // The daemon is killed: no destructor leaves a trace. Programs go on.
    drop((worker, shelf));
    for n in 1800..1900 {
        assert_eq!(programs.create(&NewConn::new(udp(n), 10_000), Ticks(2)).result, 0);
    }

    let (memory, adoption) = open(&directory);
    assert_eq!(adoption, Adoption::Done);
    let memory = Arc::new(memory);
    // Another secret than the first daemon's is of no effect.
    let table = Arc::new(Table::open(memory.clone(), [5, 7]).unwrap());
    let mut sweeper = Sweeper::new(table.clone(), Box::new(Grace::new().unwrap()));
    let shelf_again = |sweeper| Shelf { memory, table, sweeper, adoption };
    sweeper.slice(Ticks(2));
    let mut shelf = shelf_again(sweeper);
    for n in 0..1900 {
        assert!(shelf.compare(&programs, &udp(n), Ticks(3)), "{n} is lost");
        assert!(shelf.compare(&programs, &udp(n).reversed(), Ticks(3)), "{n} is lost");
    }
    assert_eq!(shelf.table.counts().conns(), 1900);
    shelf.sweeper.pass(Ticks(3));
    let slots = shelf.table.slots().count();
    assert_eq!(shelf.sweeper.free_slots(), slots - 1900, "the pool is not whole");
    assert_eq!(shelf.sweeper.pass(Ticks(20_000)), 1900);
    assert_eq!(shelf.sweeper.free_slots(), slots);
}

/// Programs send packets of new connections up while their zone has expectations.
#[test]
fn expectations_end_with_their_daemon() {
    let Some((_bpffs, directory)) = pins() else { return };
    const ZONE: u16 = 9;
    let expectations = |shelf: &Shelf| {
        let at = usize::from(ZONE) * layout::zone::WORDS + layout::zone::EXPECTATIONS;
        shelf.memory.zones()[at].load(Ordering::SeqCst)
    };
    let shelf = Shelf::open(Some(&directory));
    let tracker = Tracker::new(shelf.table.clone());
    let client = Tuple { proto: 6, zone: ZONE, ..udp(1) };
    let mut worker = shelf.table.worker();
    let made = shelf.table.create(&worker.pin(), &NewConn::new(client, 10_000), Ticks(1)).unwrap();
    let expectation = Expectation {
        tuple: client.reversed(),
        parent: made.conn.id(made.head),
        parent_tuple: client,
        mark: 0,
        label: 0,
        translation: None,
    };
    tracker.expectations().add(&shelf.table, expectation, Ticks(1)).unwrap();
    assert_eq!(expectations(&shelf), 1);
    drop((worker, tracker, shelf));
    let shelf = Shelf::open(Some(&directory));
    assert_eq!((&shelf.adoption, expectations(&shelf)), (&Adoption::Done, 1));
    let tracker = Tracker::new(shelf.table.clone());
    assert!(tracker.expectations().is_empty());
    assert_eq!(expectations(&shelf), 0);
    assert_eq!(shelf.table.counts().conns(), 1);
}

#[test]
fn a_larger_index_is_taken_over() {
    let Some((_bpffs, directory)) = pins() else { return };
    let mut shelf = Shelf::open(Some(&directory));
    let programs = Programs::load(&shelf.memory);
    let mut worker = shelf.table.worker();
    shelf.table.create(&worker.pin(), &NewConn::new(udp(1), 10_000), Ticks(1)).unwrap();
    // As the sweeper does it: the next index is searched, then entered.
    let index = &shelf.memory.config()[config::INDEX];
    shelf.memory.add_index(1).unwrap();
    index.store(0x0100, Ordering::SeqCst);
    assert!(shelf.compare(&programs, &udp(1), Ticks(2)));
    drop((worker, shelf));
    shelf = Shelf::open(Some(&directory));
    assert_eq!(shelf.adoption, Adoption::Done);
    assert!(shelf.compare(&programs, &udp(1), Ticks(2)));
    while !shelf.sweeper.slice(Ticks(2)).settled {}
    assert_eq!(shelf.memory.config()[config::INDEX].load(Ordering::SeqCst), 0xff01);
    assert!(shelf.compare(&programs, &udp(1), Ticks(2)));
    assert_eq!(programs.create(&NewConn::new(udp(2), 10_000), Ticks(2)).result, 0);
    let indexes = |names: Vec<String>| -> Vec<String> {
        names.into_iter().filter(|name| name.starts_with("ct_index_")).collect()
    };
    assert_eq!(indexes(names(&directory)), ["ct_index_1"]);
    // A daemon that was killed while it made the next one left that.
    shelf.memory.add_index(2).unwrap();
    assert_eq!(indexes(names(&directory)), ["ct_index_1", "ct_index_2"]);
    drop(shelf);
    let shelf = Shelf::open(Some(&directory));
    assert_eq!(indexes(names(&directory)), ["ct_index_1"]);
    assert!(shelf.compare(&programs, &udp(2), Ticks(2)));
}

#[test]
fn indexes_grow_to_the_largest_and_no_further() {
    if testing::without_root() {
        return;
    }
    let (memory, _) = BpfMemory::open(None, CHUNK).unwrap();
    let buckets: Vec<_> = (0..INDEX_GENERATIONS as u8)
        .map_while(|generation| {
            memory.add_index(generation).ok()?;
            Some(memory.index(generation).unwrap().len() / 8)
        })
        .collect();
    assert_eq!(buckets, [1 << 15, 1 << 17, 1 << 19, 1 << 20]);
    assert!(memory.add_chunk(CHUNKS).is_err());
}

#[test]
fn connections_that_cannot_be_read_are_dropped() {
    let Some((_bpffs, directory)) = pins() else { return };
    /// A part of the text, and the damage.
    type Break = (&'static str, fn(&BpfMemory, &Path));
    let breaks: [Break; 7] = [
        ("layout version", |memory, _| {
            memory.config()[0].store(config::MAGIC_VALUE | (VERSION + 1), Ordering::SeqCst);
        }),
        ("no connections of Slipswitch", |memory, _| {
            memory.config()[0].store(77, Ordering::SeqCst);
        }),
        ("not complete", |memory, _| memory.config()[0].store(0, Ordering::SeqCst)),
        ("ct_zones", |_, directory| std::fs::remove_file(directory.join("ct_zones")).unwrap()),
        ("ct_config names index 9", |memory, directory| {
            memory.config()[config::INDEX].store(0xff09, Ordering::SeqCst);
            std::fs::rename(directory.join("ct_index_0"), directory.join("ct_index_9")).unwrap();
        }),
        ("ct_chunk_0 has 65536 entries of 32 bytes", |_, directory| {
            std::fs::rename(directory.join("ct_zones"), directory.join("ct_chunk_0")).unwrap();
            let zones = BpfMemory::open(None, 1).unwrap().0.maps()["ct_zones"].try_clone_to_owned();
            sys::pin(zones.unwrap().as_fd(), &directory.join("ct_zones")).unwrap();
        }),
        ("configuration", |memory, _| {
            memory.config()[config::TOTALS].store(1 << 50, Ordering::SeqCst);
        }),
    ];
    for (word, damage) in breaks {
        drop(Shelf::open(Some(&directory)));
        let (memory, adoption) = open(&directory);
        assert_eq!(adoption, Adoption::Done);
        damage(&memory, &directory);
        drop(memory);
        let shelf = Shelf::open(Some(&directory));
        assert!(
            matches!(&shelf.adoption, Adoption::Dropped(why) if why.contains(word)),
            "{word}: {:?}",
            shelf.adoption
        );
        assert_eq!(shelf.table.counts().conns(), 0);
    }
}

#[test]
fn connections_that_cannot_be_taken_over_now_stay() {
    let Some((_bpffs, directory)) = pins() else { return };
    let shelf = Shelf::open(Some(&directory));
    let mut worker = shelf.table.worker();
    shelf.table.create(&worker.pin(), &NewConn::new(udp(1), 10_000), Ticks(1)).unwrap();
    drop((worker, shelf));
    // The kernel opens no directory as a pin: EACCES.
    for name in ["ct_zones", "ct_chunk_0", "ct_config"] {
        let (pin, aside) = (directory.join(name), directory.join("ct_aside"));
        std::fs::rename(&pin, &aside).unwrap();
        std::fs::create_dir(&pin).unwrap();
        let before = names(&directory);
        let shelf = Shelf::open(Some(&directory));
        assert!(
            matches!(&shelf.adoption, Adoption::Kept(why) if why.starts_with(name)),
            "{name}: {:?}",
            shelf.adoption
        );
        assert_eq!(shelf.table.counts().conns(), 0);
        assert_eq!(names(&directory), before);
        std::fs::remove_dir(&pin).unwrap();
        std::fs::rename(&aside, &pin).unwrap();
    }
    let shelf = Shelf::open(Some(&directory));
    assert_eq!((&shelf.adoption, shelf.table.counts().conns()), (&Adoption::Done, 1));
}

/// Stores random words into everything that is shared. Small numbers are plausible slots.
fn damage(memory: &BpfMemory, random: &mut fastrand::Rng, keep_config: bool) {
    let mut all: Vec<&[AtomicU64]> = vec![memory.zones(), memory.policies(), memory.extensions()];
    all.extend((0..RINGS).map(|number| memory.ring(number)));
    all.extend((0..INDEX_GENERATIONS as u8).filter_map(|generation| memory.index(generation)));
    all.extend((0..CHUNKS).filter_map(|number| memory.chunk(number)));
    for word in all.into_iter().flatten() {
        let value = match random.u8(0..4) {
            0 => random.u64(0..CHUNK as u64 * 2),
            _ => random.u64(..),
        };
        word.store(value, Ordering::Relaxed);
    }
    for ring in (0..RINGS).map(|number| memory.ring(number)).filter(|_| keep_config) {
        let head = ring[layout::ring::HEAD].load(Ordering::Relaxed);
        let len = random.u64(0..=layout::RING_SLOTS as u64);
        ring[layout::ring::TAIL].store(head.wrapping_add(len), Ordering::Relaxed);
    }
    for word in memory.config().iter().skip(1).filter(|_| !keep_config) {
        word.store(random.u64(..), Ordering::Relaxed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_harmless(seed in any::<u64>(), keep_config in any::<bool>()) {
        let Some((_bpffs, directory)) = pins() else { return Ok(()) };
        let mut random = fastrand::Rng::with_seed(seed);
        drop(Shelf::open(Some(&directory)));
        let (memory, _) = open(&directory);
        damage(&memory, &mut random, keep_config);
        drop(memory);
        let mut shelf = Shelf::open(Some(&directory));
        prop_assert_eq!(shelf.adoption == Adoption::Done, keep_config, "{:?}", shelf.adoption);
        let programs = Programs::load(&shelf.memory);
        let mut worker = shelf.table.worker();
        for n in 0..200 {
            let now = Ticks(random.u32(..));
            let new = NewConn::new(udp(n), random.u32(1..100));
            let _ = programs.create(&new, now);
            let _ = programs.find(&udp(n / 2), now);
            let pinned = worker.pin();
            let _ = shelf.table.create(&pinned, &NewConn::new(udp(n).reversed(), 10), now);
            let _ = shelf.table.lookup(&pinned, &udp(n), now);
            drop(pinned);
            if n % 8 == 0 {
                shelf.sweeper.slice(now);
            }
        }
    }
}

#[test]
fn flows_end_without_the_connections() {
    let Some((_bpffs, directory)) = pins() else { return };
    let config = || Config { max_flows: 1024, ..Config::default() };
    let open_in = |pins: &Arc<Pins>| {
        BpfDatapath::open_over(config(), Clock::new(), Some(pins.clone()), None).unwrap()
    };
    let open = || open_in(&Arc::new(Pins::open(&directory).unwrap()));
    // Connections alone are nothing that a former datapath left.
    drop(Shelf::open(Some(&directory)));
    let connections = names(&directory);
    assert!(!open().was_adopted());
    assert!(names(&directory).len() > connections.len());
    // Flows that cannot be taken over go.
    std::fs::remove_file(directory.join("slots")).unwrap();
    let pins = Arc::new(Pins::open(&directory).unwrap());
    let datapath = open_in(&pins);
    assert!(!datapath.was_adopted());
    assert!(matches!(BpfMemory::open(Some(&pins), CHUNK), Ok((_, Adoption::Done))));
    // A plain exit keeps both, another one neither.
    datapath.close(false);
    drop((datapath, pins));
    assert!(connections.iter().all(|name| names(&directory).contains(name)));
    let datapath = open();
    assert!(datapath.was_adopted());
    datapath.close(true);
    assert!(!directory.exists());
    drop(datapath);
}

#[test]
fn connections_that_nobody_continues_with_are_removed() {
    let Some((_bpffs, directory)) = pins() else { return };
    drop(Shelf::open(Some(&directory)));
    assert!(discard(&directory).unwrap());
    assert!(!directory.exists());
}

/// A daemon has the directory until its last thread has ended that uses the memory: the sweeper's may
/// be the last one.
#[test]
fn another_daemon_waits_for_the_memory_as_well_as_for_the_datapath() {
    let Some((_bpffs, directory)) = pins() else { return };
    drop(Shelf::open(Some(&directory)));
    let pins = Arc::new(Pins::open(&directory).unwrap());
    let (memory, _) = BpfMemory::open(Some(&pins), CHUNK).unwrap();
    let config = Config { max_flows: 1024, ..Config::default() };
    let datapath = BpfDatapath::open_over(config, Clock::new(), Some(pins), Some(&memory)).unwrap();
    drop(datapath);
    let before = names(&directory);
    assert!(matches!(Pins::open(&directory), Err(Unavailable::InUse(_))));
    assert_eq!(names(&directory), before, "nothing of another daemon is touched");
    drop(memory);
    assert_eq!(open(&directory).1, Adoption::Done);
}

#[test]
fn memory_may_be_pinned_while_it_is_in_use() {
    let Some((_bpffs, directory)) = pins() else { return };
    // Connections of another daemon, which the present one does not continue with.
    let mut other = Shelf::open(Some(&directory));
    let mut worker = other.table.worker();
    other.table.create(&worker.pin(), &NewConn::new(udp(7), 10_000), Ticks(1)).unwrap();
    other.sweeper.slice(Ticks(1));
    drop((worker, other));

    let mut shelf = Shelf::open(None);
    let mut worker = shelf.table.worker();
    let mut fill = |shelf: &mut Shelf, numbers: std::ops::Range<u16>| {
        for n in numbers {
            shelf.table.create(&worker.pin(), &NewConn::new(udp(n), 10_000), Ticks(1)).unwrap();
            shelf.sweeper.slice(Ticks(1));
        }
    };
    fill(&mut shelf, 1000..2500);
    let pins = Arc::new(Pins::open(&directory).unwrap());
    shelf.memory.pin(&pins).unwrap();
    fill(&mut shelf, 2500..4500);
    assert!(shelf.table.slots().count() > 4 * CHUNK, "chunks were added after that");
    drop((worker, shelf, pins));
    let shelf = Shelf::open(Some(&directory));
    assert_eq!(shelf.adoption, Adoption::Done);
    let mut worker = shelf.table.worker();
    let pinned = worker.pin();
    let is_there = |n: u16| shelf.table.lookup(&pinned, &udp(n), Ticks(2)).is_some();
    assert!((1000..4500).all(is_there) && !is_there(7));
}

/// The sweeper may need a chunk when the datapath has just removed everything.
#[test]
fn memory_that_grows_after_the_end_leaves_no_pin() {
    let Some((_bpffs, directory)) = pins() else { return };
    let pins = Arc::new(Pins::open(&directory).unwrap());
    let (memory, _) = BpfMemory::open(Some(&pins), CHUNK).unwrap();
    assert!(pins.discard());
    memory.add_chunk(0).unwrap();
    memory.add_index(1).unwrap();
    memory.retire_index(0);
    assert!(memory.chunk(0).is_some() && memory.index(1).is_some());
    assert!(!directory.exists());
}

// SPDX-License-Identifier: Apache-2.0
//! Interleavings of threads on the table, by shuttle: each access to a word of the table may let
//! another thread run. All accesses have one order here; weaker memory is for the hammer in
//! `creation/tests.rs`. Each rule of the protocol is also broken once, to check that the scenes find
//! the resulting error.

use super::*;
use crate::atomic::{AtomicU64, set_scheduled};
use crate::creation::tests::{natted, rivals, udp};
use crate::layout::{BUCKET_PLACES, ring, zone};
use crate::memory::{OutOfMemory, words};
use crate::nat::{Manip, NatError, NatRange, Selection};
use crate::sweeper::{NoBarrier, Sweeper};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Mutex, OnceLock};

/// Random orders of steps of each scene that must keep its assertions.
const RANDOM: usize = 1_000;
/// Orders with few preemptions.
const PCT: usize = 400;
/// Orders among which one must break an assertion, if a rule is broken.
const ENOUGH: usize = 20_000;

const SIZES: Sizes =
    Sizes { buckets: 1, max_buckets: 4, chunk_conns: 12, chunks: 1, ring_slots: 8 };

/// Memory with few zones and extensions, because the sweeper reads all of them.
#[derive(Debug)]
struct Small {
    sizes: Sizes,
    config: Box<[AtomicU64]>,
    zones: Box<[AtomicU64]>,
    rings: Vec<Box<[AtomicU64]>>,
    indexes: [OnceLock<Box<[AtomicU64]>>; 2],
    chunk: OnceLock<Box<[AtomicU64]>>,
}

impl Small {
    fn new(sizes: Sizes) -> Small {
        let index = words(sizes.buckets * BUCKET_PLACES);
        Small {
            sizes,
            config: words(config::WORDS),
            zones: words(2 * zone::WORDS),
            rings: (0..RINGS).map(|_| words(ring::CELLS + sizes.ring_slots / 2)).collect(),
            indexes: [index.into(), OnceLock::new()],
            chunk: OnceLock::new(),
        }
    }
}

impl Memory for Small {
    fn config(&self) -> &[AtomicU64] {
        &self.config
    }
    fn zones(&self) -> &[AtomicU64] {
        &self.zones
    }
    fn policies(&self) -> &[AtomicU64] {
        &[]
    }
    fn extensions(&self) -> &[AtomicU64] {
        &[]
    }
    fn ring(&self, number: usize) -> &[AtomicU64] {
        &self.rings[number]
    }
    fn index(&self, generation: u8) -> Option<&[AtomicU64]> {
        self.indexes.get(usize::from(generation))?.get().map(|index| &**index)
    }
    fn chunk(&self, number: usize) -> Option<&[AtomicU64]> {
        if number == 0 { self.chunk.get().map(|chunk| &**chunk) } else { None }
    }
    fn add_chunk(&self, number: usize) -> Result<(), OutOfMemory> {
        let chunk = || words(self.sizes.chunk_conns * conn::WORDS);
        if number > 0 {
            return Err(OutOfMemory);
        }
        self.chunk.get_or_init(chunk);
        Ok(())
    }
    fn add_index(&self, generation: u8) -> Result<(), OutOfMemory> {
        let index = self.indexes.get(usize::from(generation)).ok_or(OutOfMemory)?;
        let buckets = self.sizes.buckets_of(generation).ok_or(OutOfMemory)?;
        index.get_or_init(|| words(buckets * BUCKET_PLACES));
        Ok(())
    }
    fn retire_index(&self, _: u8) {}
}

fn table(sizes: Sizes) -> (Arc<Table>, Sweeper) {
    let memory = Arc::new(Small::new(sizes));
    let table = Arc::new(Table::open(memory, [3, 5]).unwrap());
    let sweeper = Sweeper::new(table.clone(), Box::new(NoBarrier));
    (table, sweeper)
}

type Thread = Box<dyn FnOnce() + Send>;

/// Runs the threads in an order that shuttle chooses.
fn race(threads: Vec<Thread>) {
    set_scheduled(true);
    let threads: Vec<_> = threads.into_iter().map(shuttle::thread::spawn).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    set_scheduled(false);
}

fn check(scene: impl Fn() + Send + Sync + Copy + 'static) {
    shuttle::check_random(scene, RANDOM);
    shuttle::check_pct(scene, PCT, 3);
}

/// Returns true when some order of steps breaks an assertion of `scene`.
fn goes_wrong(scene: impl Fn() + Send + Sync + Copy + 'static) -> bool {
    // Other tests of this process may panic meanwhile.
    static HOOK: Mutex<()> = Mutex::new(());
    let one_at_a_time = HOOK.lock();
    let hook = take_hook();
    set_hook(Box::new(|_| set_scheduled(false)));
    let tried = catch_unwind(AssertUnwindSafe(|| {
        shuttle::check_pct(scene, ENOUGH, 3);
        shuttle::check_random(scene, ENOUGH);
    }));
    set_hook(hook);
    drop(one_at_a_time);
    set_scheduled(false);
    tried.is_err()
}

/// The steps of a creation.
#[derive(Clone, Copy, PartialEq)]
enum Steps {
    /// As they are.
    Real,
    /// The search for rivals comes before the entry into the index.
    CheckFirst,
    /// There is no search for rivals.
    NoCheck,
    /// The thread is not pinned.
    Unpinned,
}

/// Makes a connection. Returns true when it did.
fn create(table: &Table, worker: &mut Worker, new: &NewConn, now: Ticks, steps: Steps) -> bool {
    if steps == Steps::Real {
        return table.create(&worker.pin(), new, now).is_ok();
    }
    let pinned = (steps != Steps::Unpinned).then(|| worker.pin());
    let Ok(mut creation) = Creation::begin(table, 0, new, now) else { return false };
    let done = match steps {
        Steps::CheckFirst => creation.check(now).and_then(|()| creation.place()),
        Steps::NoCheck => creation.place(),
        Steps::Real | Steps::Unpinned => creation.place().and_then(|()| creation.check(now)),
    };
    let made = done.and_then(|()| creation.publish()).is_ok();
    if !made {
        creation.abort();
    }
    drop(pinned);
    made
}

/// Returns the live connections with `tuple`.
fn owners<'t>(table: &'t Table, tuple: &Tuple, now: Ticks) -> Vec<Conn<'t>> {
    let key = tuple.canonical().unwrap();
    let conns = table.slots().filter_map(|slot| table.slot(slot));
    conns
        .filter(|conn| conn.head().is_live(now) && conn.direction_of(conn.head(), &key).is_some())
        .collect()
}

/// Checks what holds while no thread runs: one owner of each tuple, which is found, and counts.
/// Then lets all connections expire, and checks that nothing is lost.
fn end(table: &Table, mut sweeper: Sweeper, now: Ticks) {
    let live: Vec<_> = table.slots().filter_map(|slot| table.slot(slot)).collect();
    let live: Vec<_> = live.into_iter().filter(|conn| conn.head().phase() == Phase::Live).collect();
    assert_eq!(table.counts().conns(), live.len() as u64);
    assert_eq!(table.counts().zone(1), live.len() as u64);
    for conn in live.iter().filter(|conn| conn.head().is_live(now)) {
        let head = conn.head();
        for tuple in [conn.original(head), conn.reply(head)].into_iter().flatten() {
            assert_eq!(owners(table, &tuple, now).len(), 1, "owners of {tuple:?}");
            let found = table.find(&tuple.canonical().unwrap(), now).expect("it is found");
            assert_eq!(found.conn.slot(), conn.slot());
        }
    }
    for _ in 0..3 {
        sweeper.pass(now.after(1_000_000));
    }
    assert_eq!(sweeper.free_slots(), table.slots().count(), "slots are lost, or free twice");
    let [index, other] = table.indexes();
    assert!(other.is_none(), "growth has ended");
    assert_eq!(index.unwrap().lengths().sum::<usize>(), 0, "entries are left");
    assert_eq!((table.counts().conns(), table.counts().half_open()), (0, 0));
    assert_eq!((table.counts().zone(1), table.counts().zone_half_open(1)), (0, 0));
}

const NOW: Ticks = Ticks(100);

/// Two threads make connections of which only one may live, and a third looks them up.
fn creators(pair: usize, steps: Steps) {
    let (table, sweeper) = table(SIZES);
    let pair = rivals()[pair];
    let mut threads: Vec<Thread> = Vec::new();
    for new in pair {
        let (table, mut worker) = (table.clone(), table.worker());
        threads.push(Box::new(move || {
            create(&table, &mut worker, &new, NOW, steps);
        }));
    }
    let (reader, mut worker) = (table.clone(), table.worker());
    threads.push(Box::new(move || {
        for new in pair {
            let pinned = worker.pin();
            let Some(found) = reader.lookup(&pinned, &new.reply, NOW) else { continue };
            let tuples = [found.conn.original(found.head), found.conn.reply(found.head)];
            assert!(tuples.contains(&Some(new.reply)), "a wrong connection was found");
        }
    }));
    race(threads);
    end(&table, sweeper, NOW);
}

#[test]
fn of_two_creators_one_makes_the_connection() {
    for pair in 0..rivals().len() {
        check(move || creators(pair, Steps::Real));
        assert!(goes_wrong(move || creators(pair, Steps::CheckFirst)));
        assert!(goes_wrong(move || creators(pair, Steps::NoCheck)));
    }
}

/// How a thread ends a connection.
#[derive(Clone, Copy, PartialEq)]
enum Judged {
    /// With the state word by which it was judged.
    Same,
    /// With the word that it has by then.
    Fresh,
}

/// A thread refreshes a connection, another ends it when it has expired, a third one makes it again.
fn refreshed(judged: Judged) {
    let (table, sweeper) = table(SIZES);
    let new = NewConn::new(udp(1, 2, 10, 20), 10);
    let slot = table.create(&table.worker().pin(), &new, NOW).unwrap().conn.slot();
    let (before, after) = (NOW.after(9), NOW.after(10));
    let (a, b, c) = (table.clone(), table.clone(), table.clone());
    let (mut packet, mut maker) = (table.worker(), table.worker());
    race(vec![
        Box::new(move || {
            let pinned = packet.pin();
            if let Some(found) = a.lookup(&pinned, &new.original, before) {
                a.refresh(found.conn, found.head.generation(), flags::ASSURED, 1000, before);
            }
        }),
        Box::new(move || {
            let conn = b.slot(slot).unwrap();
            let head = conn.head();
            if after.reached(head.expires()) {
                b.kill(conn, if judged == Judged::Same { head } else { conn.head() });
            }
        }),
        Box::new(move || {
            create(&c, &mut maker, &new, after, Steps::Real);
        }),
    ]);
    let head = table.slot(slot).unwrap().head();
    assert!(head.phase() != Phase::Dead || head.expires() == after, "a refreshed one was ended");
    end(&table, sweeper, after);
}

#[test]
fn a_refreshed_connection_is_not_ended() {
    check(|| refreshed(Judged::Same));
    assert!(goes_wrong(|| refreshed(Judged::Fresh)));
}

/// Threads end a connection, and others make it again.
fn killed() {
    let (table, sweeper) = table(SIZES);
    let new = NewConn::new(udp(1, 2, 10, 20), 1000);
    table.create(&table.worker().pin(), &new, NOW).unwrap();
    let mut threads: Vec<Thread> = Vec::new();
    for n in 0..4 {
        let (table, mut worker) = (table.clone(), table.worker());
        threads.push(Box::new(move || {
            if n < 2 {
                let pinned = worker.pin();
                if let Some(found) = table.lookup(&pinned, &new.original, NOW) {
                    table.kill(found.conn, found.head);
                }
            } else {
                create(&table, &mut worker, &new, NOW, Steps::Real);
            }
        }));
    }
    race(threads);
    end(&table, sweeper, NOW);
}

#[test]
fn ended_connections_are_counted_once() {
    check(killed);
}

/// A packet holds a connection that it found, while the connection expires, its slot becomes free
/// and is taken again.
fn reused(is_pinned: bool) {
    let sizes = Sizes { chunk_conns: 2, ring_slots: 2, ..SIZES };
    let (table, mut sweeper) = table(sizes);
    let mut worker = table.worker();
    let first = NewConn::new(udp(1, 2, 10, 20), 10);
    table.create(&worker.pin(), &first, NOW).unwrap();
    table.create(&worker.pin(), &NewConn::new(udp(3, 4, 10, 20), 5000), NOW).unwrap();
    let after = NOW.after(10);
    let (a, b) = (table.clone(), table.clone());
    let (mut packet, mut maker) = (table.worker(), worker);
    let (give, take) = (Arc::new(Mutex::new(None)), NOW.after(9));
    let back = give.clone();
    race(vec![
        Box::new(move || {
            let pinned = packet.pin();
            let Some(found) = a.lookup(&pinned, &first.original, take) else { return };
            let pinned = is_pinned.then_some(pinned);
            for _ in 0..10 {
                let generation = found.conn.head().generation();
                assert_eq!(generation, found.head.generation(), "the slot has another user");
            }
            drop(pinned);
        }),
        Box::new(move || {
            for _ in 0..6 {
                sweeper.slice(after);
            }
            *back.lock().unwrap() = Some(sweeper);
        }),
        Box::new(move || {
            let new = NewConn::new(udp(5, 6, 10, 20), 1000);
            (0..4).any(|_| create(&b, &mut maker, &new, after, Steps::Real));
        }),
    ]);
    let sweeper = give.lock().unwrap().take().unwrap();
    end(&table, sweeper, after);
}

#[test]
fn the_slot_of_a_pinned_reader_has_no_other_user() {
    check(|| reused(true));
    assert!(goes_wrong(|| reused(false)));
}

/// The index grows while connections are made and looked up.
fn grown(steps: Steps) {
    let (table, mut sweeper) = table(SIZES);
    let mut worker = table.worker();
    let old: Vec<_> = (0..5).map(|n| NewConn::new(udp(10 + n, 2, 10, 20), 5000)).collect();
    for new in &old {
        table.create(&worker.pin(), new, NOW).unwrap();
    }
    let give = Arc::new(Mutex::new(None));
    let back = give.clone();
    let new = NewConn::new(udp(1, 2, 10, 20), 5000);
    let mut threads: Vec<Thread> = vec![Box::new(move || {
        for _ in 0..8 {
            sweeper.slice(NOW);
        }
        *back.lock().unwrap() = Some(sweeper);
    })];
    for _ in 0..2 {
        let (table, mut worker) = (table.clone(), table.worker());
        threads.push(Box::new(move || {
            create(&table, &mut worker, &new, NOW, steps);
        }));
    }
    let reader = table.clone();
    threads.push(Box::new(move || {
        for new in &old {
            let found = reader.lookup(&worker.pin(), &new.original, NOW).is_some();
            assert!(found, "a connection is not found while the index grows");
        }
    }));
    race(threads);
    let mut sweeper = give.lock().unwrap().take().unwrap();
    for _ in 0..3 {
        sweeper.pass(NOW);
    }
    assert_eq!(table.indexes()[0].unwrap().buckets(), 4, "it has grown");
    end(&table, sweeper, NOW);
}

#[test]
fn connections_are_found_while_the_index_grows() {
    check(|| grown(Steps::Real));
    assert!(goes_wrong(|| grown(Steps::Unpinned)));
}

/// How a port is chosen.
#[derive(Clone, Copy, PartialEq)]
enum Choice {
    /// By the creation.
    Real,
    /// By a lookup alone.
    Lookup,
}

/// Connections get ports of one address, of which one is taken until its connection expires.
fn translated(choice: Choice) {
    let (table, mut sweeper) = table(SIZES);
    let mut worker = table.worker();
    let old = NewConn { timeout: 10, ..natted(udp(7, 2, 10, 20), 5) };
    table.create(&worker.pin(), &old, NOW).unwrap();
    let after = NOW.after(10);
    let address = "0.0.0.9".parse().unwrap();
    let range = NatRange {
        manip: Manip::Src,
        addresses: Some((address, address)),
        ports: Some((5, 6)),
        selection: Selection::Default,
        persistent: false,
    };
    let (give, back) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(Vec::new())));
    let mut threads: Vec<Thread> = Vec::new();
    for n in 0..2 {
        let (table, mut worker, back) = (table.clone(), table.worker(), back.clone());
        threads.push(Box::new(move || {
            let original = udp(30 + n, 2, 10, 20);
            let new = NewConn::new(original, 1000);
            let done = match choice {
                Choice::Real => {
                    let made = table.create_with_nat(&worker.pin(), &new, &range, after);
                    made.map(drop)
                }
                Choice::Lookup => {
                    let is_free = |new: &NewConn| {
                        table.find(&new.reply.canonical().unwrap(), after).is_none()
                    };
                    let free = [5, 6].map(|port| natted(original, port)).into_iter().find(is_free);
                    if let Some(new) = free {
                        create(&table, &mut worker, &new, after, Steps::NoCheck);
                    }
                    Ok(())
                }
            };
            back.lock().unwrap().push(done);
        }));
    }
    let sweeps = give.clone();
    threads.push(Box::new(move || {
        for _ in 0..2 {
            sweeper.slice(after);
        }
        *sweeps.lock().unwrap() = Some(sweeper);
    }));
    race(threads);
    let results = std::mem::take(&mut *back.lock().unwrap());
    let overtaken = Err(NatError::Create(CreateError::Overtaken));
    assert!(
        results.iter().all(|result| *result == Ok(()) || *result == overtaken),
        "there is a port for each: {results:?}"
    );
    let sweeper = give.lock().unwrap().take().unwrap();
    end(&table, sweeper, after);
}

#[test]
fn no_port_is_given_twice() {
    check(|| translated(Choice::Real));
    assert!(goes_wrong(|| translated(Choice::Lookup)));
}

/// Two threads make an expired connection again, a packet refreshes it, and the sweeper ends it.
fn taken_over(steps: Steps) {
    let (table, mut sweeper) = table(SIZES);
    let new = NewConn::new(udp(1, 2, 10, 20), 10);
    let mut worker = table.worker();
    table.create(&worker.pin(), &new, NOW).unwrap();
    let (before, after) = (NOW.after(9), NOW.after(10));
    let (give, packet) = (Arc::new(Mutex::new(None)), table.clone());
    let back = give.clone();
    let mut threads: Vec<Thread> = vec![
        Box::new(move || {
            let pinned = worker.pin();
            if let Some(found) = packet.lookup(&pinned, &new.original, before) {
                packet.refresh(found.conn, found.head.generation(), 0, 1000, before);
            }
        }),
        Box::new(move || {
            for _ in 0..4 {
                sweeper.slice(after);
            }
            *back.lock().unwrap() = Some(sweeper);
        }),
    ];
    for _ in 0..2 {
        let (table, mut worker) = (table.clone(), table.worker());
        threads.push(Box::new(move || {
            create(&table, &mut worker, &new, after, steps);
        }));
    }
    race(threads);
    let sweeper = give.lock().unwrap().take().unwrap();
    end(&table, sweeper, after);
}

#[test]
fn an_expired_connection_is_taken_over_once() {
    check(|| taken_over(Steps::Real));
    assert!(goes_wrong(|| taken_over(Steps::NoCheck)));
}

// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::memory::{PlainMemory, Sizes};
use crate::sweeper::{NoBarrier, Sweeper};
use crate::table::Found;
use packet::ip_proto;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

const SIZES: Sizes =
    Sizes { buckets: 64, max_buckets: 1024, chunk_conns: 1024, chunks: 4, ring_slots: 64 };

pub(crate) fn table(sizes: Sizes) -> (Arc<Table>, Sweeper) {
    let secret = [0x1234_5678_9abc_def0, 0x9e37_79b9_7f4a_7c15];
    let table = Arc::new(Table::open(Arc::new(PlainMemory::new(sizes)), secret).unwrap());
    let sweeper = Sweeper::new(table.clone(), Box::new(NoBarrier));
    (table, sweeper)
}

pub(crate) fn udp(src: u32, dst: u32, sport: u16, dport: u16) -> Tuple {
    Tuple {
        src: Ipv4Addr::from_bits(src).into(),
        dst: Ipv4Addr::from_bits(dst).into(),
        ports: Ports::Pair { src: sport, dst: dport },
        proto: ip_proto::UDP,
        zone: 1,
    }
}

/// A connection whose source NAT gives the port `port` of the address 9.
pub(crate) fn natted(original: Tuple, port: u16) -> NewConn {
    let reply = original.reversed();
    let Ports::Pair { src, .. } = reply.ports else { unreachable!() };
    let reply = Tuple {
        dst: Ipv4Addr::from_bits(9).into(),
        ports: Ports::Pair { src, dst: port },
        ..reply
    };
    NewConn { reply, flags: flags::NAT_SRC, ..NewConn::new(original, 1000) }
}

#[derive(Clone, Copy, PartialEq)]
enum Check {
    Clashes,
    Nothing,
}

/// Runs the creations `new` step by step in the order of `schedule`. Returns the number of live
/// ones.
fn interleave(new: &[NewConn], schedule: &[usize], check: Check) -> usize {
    let (table, _sweeper) = table(SIZES);
    let now = Ticks(100);
    let mut creations: Vec<Option<Creation<'_>>> = new.iter().map(|_| None).collect();
    let mut steps = vec![0; new.len()];
    for &which in schedule {
        let step = steps[which];
        steps[which] += 1;
        let Some(creation) = &mut creations[which] else {
            if step == 0 {
                creations[which] = Creation::begin(&table, which, &new[which], now).ok();
            }
            continue;
        };
        let result = match step {
            1 => creation.place(),
            2 if check == Check::Clashes => creation.check(now),
            2 => Ok(()),
            _ => creation.publish().map(|_| ()),
        };
        if result.is_err() {
            creations[which].take().unwrap().abort();
        }
    }
    let live = creations.iter().flatten().count();
    assert_eq!(live as u64, table.counts().conns());
    live
}

/// All orders of `counts[n]` steps of each n.
fn schedules(counts: &mut [usize], order: &mut Vec<usize>, each: &mut impl FnMut(&[usize])) {
    if counts.iter().all(|count| *count == 0) {
        return each(order);
    }
    for which in 0..counts.len() {
        if counts[which] > 0 {
            counts[which] -= 1;
            order.push(which);
            schedules(counts, order, each);
            order.pop();
            counts[which] += 1;
        }
    }
}

/// Pairs of connections of which only one may live.
pub(crate) fn rivals() -> Vec<[NewConn; 2]> {
    let tuple = udp(1, 2, 10, 20);
    vec![
        [NewConn::new(tuple, 1000); 2],
        [NewConn::new(tuple, 1000), NewConn::new(tuple.reversed(), 1000)],
        [natted(tuple, 5), natted(udp(3, 2, 10, 20), 5)],
        // The reply tuple of one is the original tuple of the other.
        [natted(tuple, 5), NewConn::new(udp(2, 9, 20, 5), 1000)],
    ]
}

#[test]
fn at_most_one_owner_in_all_interleavings() {
    for new in rivals() {
        let mut run = 0;
        schedules(&mut [4, 4], &mut Vec::new(), &mut |order| {
            assert!(interleave(&new, order, Check::Clashes) <= 1, "{new:?} {order:?}");
            run += 1;
        });
        assert_eq!(run, 70);
    }
    let different = [natted(udp(1, 2, 10, 20), 5), natted(udp(3, 2, 10, 20), 6)];
    assert_eq!(interleave(&different, &[0, 1, 0, 1, 0, 1, 0, 1], Check::Clashes), 2);
}

#[test]
fn interleavings_catch_a_missing_check() {
    for new in rivals() {
        let mut twice = 0;
        schedules(&mut [4, 4], &mut Vec::new(), &mut |order| {
            twice += usize::from(interleave(&new, order, Check::Nothing) == 2);
        });
        assert!(twice > 0);
    }
}

#[test]
fn the_swapped_original_is_free_when_nat_replaced_the_reply() {
    let (table, _sweeper) = table(SIZES);
    let mut worker = table.worker();
    let pinned = worker.pin();
    let now = Ticks(1);
    let original = udp(1, 2, 10, 20);
    let made = table.create(&pinned, &natted(original, 5), now).unwrap();
    assert_eq!(made.conn.reply(made.head), Some(udp(2, 9, 20, 5)));
    let found = |tuple: Tuple| table.lookup(&pinned, &tuple, now).map(|found| found.direction);
    use crate::conn::Direction::{Original, Reply};
    assert_eq!(found(original), Some(Original));
    assert_eq!(found(udp(2, 9, 20, 5)), Some(Reply));
    assert_eq!(found(original.reversed()), None);
    assert_eq!(found(udp(9, 2, 5, 20)), None);
    assert!(table.create(&pinned, &natted(original.reversed(), 7), now).is_ok());
}

#[test]
fn expired_owners_do_not_clash() {
    let (table, _sweeper) = table(SIZES);
    let mut worker = table.worker();
    let pinned = worker.pin();
    let new = NewConn::new(udp(1, 2, 10, 20), 10);
    let first = table.create(&pinned, &new, Ticks(0)).unwrap();
    assert_eq!(table.create(&pinned, &new, Ticks(9)).unwrap_err(), CreateError::Clash);
    let second = table.create(&pinned, &new, Ticks(10)).unwrap();
    assert_ne!(first.conn.slot(), second.conn.slot());
    assert_eq!(first.conn.head().phase(), Phase::Dead);
    assert_eq!(table.counts().conns(), 1);
}

#[test]
fn half_open_connections_are_replaced_and_assured_ones_stay() {
    let sizes = Sizes { buckets: 1, max_buckets: 1, ..SIZES };
    let (table, _sweeper) = table(sizes);
    table.counts().set_max(8);
    let mut worker = table.worker();
    let pinned = worker.pin();
    let new = |n| NewConn::new(udp(1, 2, 10, n), 1000);
    let mut made = Vec::new();
    for n in 0..4 {
        made.push(table.create(&pinned, &new(n), Ticks(n.into())).unwrap());
    }
    // The fifth half-open connection takes the place of the oldest.
    table.create(&pinned, &new(4), Ticks(5)).unwrap();
    assert_eq!(made[0].conn.head().phase(), Phase::Dead);
    for found in &made[1..] {
        let generation = found.head.generation();
        table.refresh(found.conn, generation, flags::ASSURED, 1000, Ticks(6));
    }
    assert_eq!(table.counts().half_open(), 1);
    for n in 5..9 {
        let _ = table.create(&pinned, &new(n), Ticks(7));
    }
    assert!(made[1..].iter().all(|found| found.conn.head().phase() == Phase::Live));
    assert_eq!(table.counts().conns(), 7);
}

/// A table with at most `max` connections in a large index, and `assured` ones in it.
fn sparse(max: u32, assured: u32) -> (Arc<Table>, Sweeper) {
    let sizes =
        Sizes { buckets: 4096, max_buckets: 4096, chunk_conns: 4096, chunks: 1, ring_slots: 512 };
    let (table, sweeper) = table(sizes);
    table.counts().set_max(max);
    let mut worker = table.worker();
    let pinned = worker.pin();
    for n in 0..assured {
        let made = table.create(&pinned, &NewConn::new(udp(n, 2, 5, 53), 1000), Ticks(0)).unwrap();
        table.refresh(made.conn, made.head.generation(), flags::ASSURED, 1000, Ticks(0));
    }
    (table, sweeper)
}

/// Lets 2,000 half-open connections begin; how many were not made.
fn refused(table: &Table, sweeper: &mut Sweeper) -> usize {
    let mut worker = table.worker();
    let refused = (0..2000u16).filter(|&n| {
        let new = NewConn::new(udp(9, 2, n, 80), 1000);
        let made = table.create(&worker.pin(), &new, Ticks(n.into())).is_ok();
        if n % 100 == 0 {
            sweeper.pass(Ticks(1));
        }
        !made
    });
    refused.count()
}

#[test]
fn half_open_connections_make_room_wherever_they_are() {
    let (table, mut sweeper) = sparse(2000, 0);
    // 1,000 of them are in 4,096 buckets.
    let refused = refused(&table, &mut sweeper);
    assert!(refused < 20, "{refused}");
    assert!(table.counts().half_open() > 980);
}

#[test]
fn half_open_connections_make_room_when_the_table_is_full() {
    const ASSURED: u32 = 600;
    let (table, mut sweeper) = sparse(1000, ASSURED);
    let refused = refused(&table, &mut sweeper);
    assert!(refused < 400, "{refused}");
    let counts = table.counts();
    assert_eq!(counts.conns() - counts.half_open(), ASSURED.into());
    assert!(counts.conns() <= 1000);
}

/// The operations of one thread of the hammer.
struct Hammer {
    table: Arc<Table>,
    now: Arc<AtomicU32>,
    check: Check,
    clients: u32,
    ports: u16,
    seed: u64,
    made: Arc<AtomicU64>,
    duplicates: Arc<AtomicU64>,
}

impl Hammer {
    fn random(&mut self) -> u32 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 16) as u32
    }

    /// Counts other live owners of the tuple by which `found` was found.
    fn count_duplicates(&self, found: &Found<'_>, tuple: &Tuple, now: Ticks) {
        let key = tuple.canonical().unwrap();
        let hash = self.table.hash(&key);
        for index in self.table.indexes().into_iter().flatten() {
            index.neighbours(hash, |slot| {
                let Some(other) = self.table.slot(slot) else { return };
                let head = other.head();
                if slot == found.conn.slot()
                    || !head.is_live(now)
                    || other.direction_of(head, &key).is_none()
                {
                    return;
                }
                // Both were live at one moment: this one's generation before and after the other.
                let (mine, again) = (found.conn.head(), other.head());
                if mine.generation() == found.head.generation()
                    && mine.is_live(now)
                    && again.generation() == head.generation()
                    && again.is_live(now)
                    && again.expires() == head.expires()
                {
                    self.duplicates.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }

    fn step(&mut self, worker: &mut crate::epoch::Worker) {
        let table = self.table.clone();
        let pinned = worker.pin();
        for _ in 0..20 {
            let now = Ticks(self.now.load(Ordering::Relaxed));
            let client = 1 + self.random() % self.clients;
            let original = udp(100 + client, 2, 10, 20);
            let tuple = if self.random().is_multiple_of(2) { original } else { udp(50, 2, 10, 20) };
            if let Some(found) = table.lookup(&pinned, &tuple, now) {
                let owner = found.conn.original(found.head).map(|owner| owner.src);
                assert_eq!(owner, Some(tuple.src), "a wrong connection was found");
                self.count_duplicates(&found, &tuple, now);
                match self.random() % 8 {
                    0..2 => table.refresh(found.conn, found.head.generation(), 0, 9, now),
                    2 => drop(table.kill(found.conn, found.head)),
                    _ => {}
                }
                continue;
            }
            let mut new = NewConn::new(tuple, 5 + client % 8);
            if tuple == original {
                let port = 1 + (self.random() % u32::from(self.ports)) as u16;
                new = NewConn { timeout: new.timeout, ..natted(tuple, port) };
            }
            let Ok(mut creation) = Creation::begin(&table, pinned.number(), &new, now) else {
                continue;
            };
            // Now and then the maker dies after a step: its connection stays as it is.
            let dies_at = self.random() % 2048;
            let mut result = Ok(());
            for step in 0..3 {
                if dies_at == step {
                    break;
                }
                if dies_at % 4 == 3 {
                    std::thread::yield_now();
                }
                result = result.and_then(|()| match step {
                    0 => creation.place(),
                    1 if self.check == Check::Clashes => creation.check(now),
                    1 => Ok(()),
                    _ => creation.publish().map(|_| ()),
                });
            }
            if dies_at < 3 {
                continue;
            }
            match result {
                Ok(()) => drop(self.made.fetch_add(1, Ordering::Relaxed)),
                Err(_) => creation.abort(),
            }
        }
    }
}

/// Runs threads on few tuples until they have made `enough` connections, or duplicates were seen.
/// Returns the number of duplicates.
fn hammer(check: Check, enough: u64, clients: u32, sizes: Sizes) -> u64 {
    let (table, mut sweeper) = table(sizes);
    let (now, stop) = (Arc::new(AtomicU32::new(1000)), Arc::new(AtomicBool::new(false)));
    let (made, duplicates) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let threads: Vec<_> = (0..3u64)
        .map(|number| {
            let mut hammer = Hammer {
                table: table.clone(),
                now: now.clone(),
                check,
                clients,
                ports: 3,
                seed: 0x9e37_79b9 + number * 7919,
                made: made.clone(),
                duplicates: duplicates.clone(),
            };
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut worker = hammer.table.worker();
                while !stop.load(Ordering::Relaxed) {
                    hammer.step(&mut worker);
                }
            })
        })
        .collect();
    let start = Instant::now();
    while made.load(Ordering::Relaxed) < enough
        && (check == Check::Clashes || duplicates.load(Ordering::Relaxed) == 0)
    {
        assert!(start.elapsed() < Duration::from_secs(120), "the threads do not get on");
        let tick = now.fetch_add(1, Ordering::Relaxed);
        for _ in 0..4 {
            sweeper.slice(Ticks(tick));
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());

    // All expire, and everything comes home.
    let end = Ticks(now.load(Ordering::Relaxed)).after(1000);
    for _ in 0..6 {
        sweeper.pass(end);
    }
    let [index, other] = table.indexes();
    assert!(other.is_none());
    assert_eq!(index.unwrap().lengths().sum::<usize>(), 0, "places of the index are lost");
    let conns: Vec<_> = table.slots().filter_map(|slot| table.slot(slot)).collect();
    assert!(conns.iter().all(|conn| conn.head().phase() == Phase::Free));
    assert_eq!(sweeper.free_slots(), conns.len(), "slots are lost, or free twice");
    // Makers that died left their counts behind, which two passes agree on.
    assert_eq!((table.counts().conns(), table.counts().half_open()), (0, 0));
    assert_eq!((table.counts().zone(1), table.counts().zone_half_open(1)), (0, 0));
    duplicates.load(Ordering::Relaxed)
}

#[test]
fn threads_never_own_a_tuple_twice() {
    for clients in [2, 40] {
        assert_eq!(hammer(Check::Clashes, 20_000, clients, SIZES), 0);
    }
}

#[test]
fn threads_never_own_a_tuple_twice_while_the_index_grows() {
    // Steps from 8 to 512 buckets under way.
    let sizes = Sizes { buckets: 8, max_buckets: 512, ..SIZES };
    for _ in 0..4 {
        assert_eq!(hammer(Check::Clashes, 2_000, 400, sizes), 0);
    }
}

#[test]
fn the_hammer_catches_a_missing_check() {
    assert!(hammer(Check::Nothing, u64::MAX, 2, SIZES) > 0);
}

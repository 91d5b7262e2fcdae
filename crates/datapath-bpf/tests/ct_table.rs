// SPDX-License-Identifier: Apache-2.0
//! The table of connections in BPF (`bpf/ct_table.h`, `bpf/ct_creation.h`) against the one in Rust,
//! on the same memory. Needs root.

#![allow(clippy::unwrap_used, missing_docs)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use conntrack::layout::{CHUNK_CONNS, CHUNK_SHIFT, conn, flags};
use conntrack::{
    Class, CreateError, Direction, Exceeded, Helper, Icmp, IcmpClass, Memory as _, NewConn, Ports,
    Table, Ticks, Tuple, Worker,
};
use datapath_bpf::ct_memory::BpfMemory;
use datapath_bpf::sys;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use connections::{CHUNK, CNew, Op, Programs, Shelf, c_tuple};
use cpus::{pin_to, pin_to_one_cpu, two_cpus};

#[path = "support/connections.rs"]
mod connections;
#[path = "support/cpus.rs"]
mod cpus;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

fn v4(bits: u32) -> IpAddr {
    Ipv4Addr::from_bits(bits).into()
}

fn udp(src: u32, dst: u32, sport: u16, dport: u16) -> Tuple {
    let ports = Ports::Pair { src: sport, dst: dport };
    Tuple { src: v4(src), dst: v4(dst), ports, proto: UDP, zone: 1 }
}

/// Tuples of few addresses and ports, so that equal and reversed ones are common.
fn any_tuple() -> impl Strategy<Value = Tuple> {
    let address = prop_oneof![
        (0u32..3, 0u32..3)
            .prop_map(|(a, b)| (v4(0x0a00_0001 + (a << 24)), v4(0x0a00_0001 + (b << 24)))),
        (0u128..4, 0u128..4).prop_map(|(a, b)| {
            // They differ in one half alone, or in both.
            let of = |n: u128| Ipv6Addr::from_bits(0xfe80 << 112 | (n >> 1) << 64 | n & 1);
            (of(a).into(), of(b).into())
        }),
    ];
    (address, 0u8..7, 0u16..3, 0u16..3, any::<bool>(), 0u16..2).prop_map(
        |((src, dst), kind, a, b, request, zone)| {
            let is_v6 = src.is_ipv6();
            let icmp = |class| Ports::Icmp(Icmp { class, request, code: b as u8, id: a });
            let (proto, ports) = match kind {
                0 => (TCP, Ports::Pair { src: a, dst: b }),
                1 => (UDP, Ports::Pair { src: a << 15, dst: b << 15 }),
                2 => (132, Ports::Pair { src: a, dst: b }),
                3 => (47, Ports::Pair { src: 0, dst: 0 }),
                _ if is_v6 => (ICMPV6, icmp(IcmpClass::Echo)),
                4 => (ICMP, icmp(IcmpClass::Echo)),
                5 => (ICMP, icmp(IcmpClass::Timestamp)),
                _ => (ICMP, icmp(IcmpClass::Information)),
            };
            Tuple { src, dst, ports, proto, zone: zone * 0xffff }
        },
    )
}

/// A connection whose NAT, if any, puts in one of two addresses and of two ports.
fn any_new() -> impl Strategy<Value = NewConn> {
    (any_tuple(), 0u8..4, 0u128..2, 0u16..2, any::<[u64; 3]>(), any::<(u32, u128, u16)>(), 1u32..60)
        .prop_map(|(original, nat, address, port, tcp, (mark, label, policy), timeout)| {
            let mut new = NewConn::new(original, timeout);
            let address = match original.src {
                IpAddr::V4(_) => v4(0x0a00_0001 + ((address as u32) << 24)),
                IpAddr::V6(_) => Ipv6Addr::from_bits(0xfe80 << 112 | address << 64).into(),
            };
            let reply = new.reply;
            let ports = |to_src: bool| match reply.ports {
                Ports::Pair { dst, .. } if to_src => Ports::Pair { src: port, dst },
                Ports::Pair { src, .. } => Ports::Pair { src, dst: port },
                Ports::Icmp(icmp) => Ports::Icmp(Icmp { id: port, ..icmp }),
            };
            if nat == 1 {
                new.reply = Tuple { dst: address, ports: ports(false), ..reply };
                new.flags = flags::NAT_SRC;
            } else if nat == 2 {
                new.reply = Tuple { src: address, ports: ports(true), ..reply };
                new.flags = flags::NAT_DST;
            }
            let helper = [None, Some(Helper::Ftp), Some(Helper::Tftp)][usize::from(policy % 3)];
            new.class =
                Class { policy: policy >> 4, timeout: (policy & 0xf) as u8, shard: 0, helper };
            NewConn { tcp, mark, label, ..new }
        })
}

#[derive(Clone, Debug)]
enum Step {
    Create(NewConn),
    Find(Tuple),
    Refresh(Tuple, u16, u32),
    Kill(Tuple),
    Mark(Tuple, u32, u32),
    Limit(u16, u32),
    Max(u32),
    Wait(u32),
    Sweep,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => any_new().prop_map(Step::Create),
        8 => any_tuple().prop_map(Step::Find),
        3 => (any_tuple(), 0u16..8, 1u32..60).prop_map(|(t, set, timeout)| Step::Refresh(t, set, timeout)),
        2 => any_tuple().prop_map(Step::Kill),
        1 => (any_tuple(), any::<u32>(), any::<u32>()).prop_map(|(t, value, mask)| Step::Mark(t, value, mask)),
        1 => (0u16..2, 0u32..100).prop_map(|(zone, limit)| Step::Limit(zone * 0xffff, limit)),
        1 => (2u32..60).prop_map(Step::Max),
        2 => (1u32..30).prop_map(Step::Wait),
        2 => Just(Step::Sweep),
    ]
}

/// The number of a result in `enum ct_made`.
fn made(result: &Result<conntrack::Found<'_>, CreateError>) -> u32 {
    match result {
        Ok(_) => 0,
        Err(CreateError::Clash) => 1,
        Err(CreateError::Exceeded(Exceeded::Total)) => 2,
        Err(CreateError::Exceeded(Exceeded::Zone)) => 3,
        Err(CreateError::Exceeded(Exceeded::HalfOpen)) => 4,
        Err(CreateError::NoSlot) => 5,
        Err(CreateError::BucketFull) => 6,
        Err(CreateError::Overtaken) => 7,
        Err(CreateError::Exceeded(Exceeded::ZoneHalfOpen)) => 8,
        Err(CreateError::BadTuple) => 9,
    }
}

/// A packet thread with the number of a CPU, so that it takes slots as programs on that CPU do.
fn worker_like(table: &Table, cpu: usize) -> Worker {
    let mut others: Vec<_> = (0..cpu).map(|_| table.worker()).collect();
    let worker = table.worker();
    others.clear();
    worker
}

/// The words of the connection in a slot.
fn words(memory: &BpfMemory, slot: u32) -> [u64; conn::WORDS] {
    let chunk = memory.chunk((slot >> CHUNK_SHIFT) as usize).unwrap();
    let place = (slot & ((1 << CHUNK_SHIFT) - 1)) as usize;
    std::array::from_fn(|at| chunk[place * conn::WORDS + at].load(Ordering::Relaxed))
}

/// Two tables with one secret: the daemon works on the first, programs on the second.
struct Twins {
    here: Shelf,
    there: Shelf,
    worker: Worker,
    programs: Programs,
    now: u32,
}

impl Twins {
    fn new() -> Twins {
        let (here, there) = (Shelf::open(None), Shelf::open(None));
        let worker = worker_like(&here.table, pin_to_one_cpu());
        let programs = Programs::load(&there.memory);
        Twins { here, there, worker, programs, now: 1000 }
    }

    fn do_here(&mut self, step: &Step) -> (u32, Option<u32>) {
        let (table, now) = (&self.here.table, Ticks(self.now));
        let pinned = self.worker.pin();
        match step {
            Step::Create(new) => {
                let result = table.create(&pinned, new, now);
                (made(&result), result.ok().map(|found| found.conn.slot()))
            }
            Step::Find(tuple)
            | Step::Refresh(tuple, ..)
            | Step::Kill(tuple)
            | Step::Mark(tuple, ..) => {
                let Some(found) = table.lookup(&pinned, tuple, now) else { return (0, None) };
                match step {
                    Step::Refresh(_, set, timeout) => {
                        let generation = found.head.generation();
                        table.refresh(found.conn, generation, *set, *timeout, now);
                    }
                    Step::Kill(_) => assert!(table.kill(found.conn, found.head)),
                    Step::Mark(_, value, mask) => found.conn.set_mark(*value, *mask),
                    _ => {}
                }
                (1 + u32::from(found.direction == Direction::Reply), Some(found.conn.slot()))
            }
            _ => (0, None),
        }
    }

    fn do_there(&mut self, step: &Step) -> (u32, Option<u32>) {
        let now = Ticks(self.now);
        let of = |tuple: &Tuple| CNew { original: c_tuple(tuple), now: now.0, ..CNew::default() };
        let answer = match step {
            Step::Create(new) => {
                let answer = self.programs.create(new, now);
                let is_made = answer.result == 0;
                return (answer.result, is_made.then_some(answer.new.made.slot));
            }
            Step::Find(tuple) => self.programs.ask(Op::Find, 0, of(tuple)),
            Step::Refresh(tuple, set, timeout) => {
                let new = CNew { flags: (*set).into(), timeout: *timeout, ..of(tuple) };
                self.programs.ask(Op::Refresh, 0, new)
            }
            Step::Kill(tuple) => self.programs.ask(Op::Kill, 0, of(tuple)),
            Step::Mark(tuple, value, mask) => {
                self.programs.ask(Op::Mark, (*mask).into(), CNew { mark: *value, ..of(tuple) })
            }
            _ => return (0, None),
        };
        let found = answer.new.made;
        if answer.result == 1 { (1 + found.reply, Some(found.slot)) } else { (0, None) }
    }

    fn same(&self) -> Result<(), TestCaseError> {
        for slot in self.here.table.slots() {
            prop_assert_eq!(
                words(&self.here.memory, slot),
                words(&self.there.memory, slot),
                "slot {}",
                slot
            );
        }
        let counts = |shelf: &Shelf| {
            let counts = shelf.table.counts();
            let zones = [0, 0xffff].map(|zone| (counts.zone(zone), counts.zone_half_open(zone)));
            (counts.conns(), counts.half_open(), zones)
        };
        prop_assert_eq!(counts(&self.here), counts(&self.there));
        for generation in 0..2 {
            let words = |shelf: &Shelf| -> Option<Vec<u64>> {
                let index = shelf.memory.index(generation)?;
                Some(
                    index
                        .iter()
                        .map(|word| word.load(Ordering::Relaxed))
                        .filter(|w| *w != 0)
                        .collect(),
                )
            };
            prop_assert_eq!(words(&self.here), words(&self.there));
        }
        Ok(())
    }
}

#[test]
fn programs_do_what_the_daemon_does() {
    if testing::without_root() {
        return;
    }
    let config = ProptestConfig {
        cases: 10,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(steps in proptest::collection::vec(any_step(), 1..400))| {
        let mut twins = Twins::new();
        for step in steps {
            match step {
                Step::Limit(zone, limit) => {
                    let limit = (limit > 70).then_some(limit);
                    twins.here.table.counts().set_limit(zone, limit);
                    twins.there.table.counts().set_limit(zone, limit);
                }
                Step::Max(max) => {
                    twins.here.table.counts().set_max(max);
                    twins.there.table.counts().set_max(max);
                }
                Step::Wait(ticks) => twins.now += ticks,
                Step::Sweep => {
                    twins.here.sweeper.pass(Ticks(twins.now));
                    twins.there.sweeper.pass(Ticks(twins.now));
                }
                step => {
                    let (here, there) = (twins.do_here(&step), twins.do_there(&step));
                    prop_assert_eq!(here, there, "{:?}", step);
                }
            }
            twins.same()?;
        }
    });
}

/// The places of the index have hashes.
#[test]
fn hashes_are_the_same_in_c_and_in_rust() {
    if testing::without_root() {
        return;
    }
    let mut random = fastrand::Rng::with_seed(5);
    let mut twins = Twins::new();
    for n in 0..400 {
        let addresses = match n % 2 {
            0 => [(); 2].map(|()| v4(random.u32(..))),
            _ => [(); 2].map(|()| Ipv6Addr::from_bits(random.u128(..)).into()),
        };
        let ports = Ports::Pair { src: random.u16(..), dst: random.u16(..) };
        let [src, dst] = addresses;
        let tuple = Tuple { src, dst, ports, proto: UDP, zone: random.u16(..) };
        let step = Step::Create(NewConn::new(tuple, 60));
        assert_eq!(twins.do_here(&step).0, 0);
        assert_eq!(twins.do_there(&step).0, 0);
    }
    twins.same().unwrap();
}

#[test]
fn connections_of_either_side_are_found_by_both() {
    if testing::without_root() {
        return;
    }
    pin_to_one_cpu();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let shelf = Shelf::open(None);
    let programs = Programs::load(&shelf.memory);
    let mut worker = shelf.table.worker();
    let (mut by_daemon, mut by_programs) = (0, 0);
    for n in 0..600 {
        let new = any_new().new_tree(&mut runner).unwrap().current();
        let new = NewConn { timeout: 10_000, ..new };
        let is_made = if n % 2 == 0 {
            let is_made = shelf.table.create(&worker.pin(), &new, Ticks(1)).is_ok();
            by_daemon += u32::from(is_made);
            is_made
        } else {
            let is_made = programs.create(&new, Ticks(1)).result == 0;
            by_programs += u32::from(is_made);
            is_made
        };
        for tuple in [new.original, new.reply, new.original.reversed(), new.reply.reversed()] {
            shelf.compare(&programs, &tuple, Ticks(2));
        }
        if is_made {
            for (tuple, reply) in [(new.original, 0), (new.reply, 1)] {
                let found = programs.find(&tuple, Ticks(2)).unwrap();
                // A tuple may be its own reverse.
                assert!(found.reply == reply || new.original == new.reply, "{tuple:?}");
                let conn = shelf.table.slot(found.slot).unwrap();
                assert_eq!(conn.original(conn.head()), Some(new.original));
                assert_eq!(conn.reply(conn.head()), Some(new.reply));
            }
        }
    }
    assert!(by_daemon > 50 && by_programs > 50, "{by_daemon} and {by_programs} made");
}

#[test]
fn a_word_is_exchanged_when_it_is_unchanged() {
    if testing::without_root() {
        return;
    }
    let shelf = Shelf::open(None);
    let programs = Programs::load(&shelf.memory);
    let mut worker = shelf.table.worker();
    let new = NewConn { tcp: [1, 2, 7], ..NewConn::new(udp(1, 2, 3, 4), 100) };
    let slot = shelf.table.create(&worker.pin(), &new, Ticks(1)).unwrap().conn.slot();
    let exchange = |old: u64, control: u64| {
        let original = c_tuple(&new.original);
        let ask = CNew { original, control: old, now: 2, ..CNew::default() };
        programs.ask(Op::Exchange, control, ask).result
    };
    assert_eq!(exchange(6, 8), 0);
    assert_eq!(words(&shelf.memory, slot)[conn::CONTROL], 7);
    assert_eq!(exchange(7, 8), 1);
    assert_eq!(words(&shelf.memory, slot)[conn::CONTROL], 8);
}

/// `struct hammer`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
struct Blows {
    now: u32,
    clients: u32,
    ports: u32,
    pad: u32,
    made: u64,
    found: u64,
    wrong: u64,
    duplicates: u64,
}

/// One thread of the daemon in the hammer: what `strike` of ct_table.bpf.c does.
struct Smith {
    table: Arc<Table>,
    clients: u32,
    ports: u16,
    random: fastrand::Rng,
    made: u64,
    found: u64,
}

impl Smith {
    fn strike(&mut self, worker: &mut Worker, now: Ticks) {
        let table = self.table.clone();
        let pinned = worker.pin();
        let port = self.random.u16(1..=self.ports);
        let is_client = self.random.bool();
        let tuple = match is_client {
            true => udp(100 + self.random.u32(0..self.clients), 2, 10, 20),
            false => udp(9, 2, port, 20),
        };
        if let Some(found) = table.lookup(&pinned, &tuple, now) {
            self.found += 1;
            let has = match found.direction {
                Direction::Original => found.conn.original(found.head),
                Direction::Reply => found.conn.reply(found.head),
            };
            assert_eq!(has, Some(tuple), "a wrong connection was found");
            match self.random.u32(0..8) {
                0..2 => table.refresh(found.conn, found.head.generation(), 0, 9, now),
                2 => drop(table.kill(found.conn, found.head)),
                _ => {}
            }
            return;
        }
        let mut new = NewConn::new(tuple, 5 + self.random.u32(0..8));
        if is_client {
            new.reply.dst = v4(9);
            new.reply.ports = Ports::Pair { src: 20, dst: port };
            new.flags = flags::NAT_SRC;
        }
        self.made += u64::from(table.create(&pinned, &new, now).is_ok());
    }
}

/// The sums of a run of the hammer.
#[derive(Debug, Default)]
struct Struck {
    by_programs: u64,
    by_daemon: u64,
    found: u64,
    wrong: u64,
    duplicates: u64,
}

/// Runs programs on two CPUs, two threads and the sweeper over few tuples, until each has worked
/// `rounds` times, or, with `until_duplicates`, until a tuple had two owners.
fn hammer(shelf: Shelf, programs: Programs, rounds: u32, until_duplicates: bool) -> Struck {
    const CLIENTS: u32 = 6;
    const PORTS: u16 = 3;
    const BLOWS: u32 = 200;
    let now = AtomicU32::new(1000);
    let working = AtomicU32::new(4);
    let duplicates = AtomicU64::new(0);
    let is_over =
        |round: u32| round >= rounds || until_duplicates && duplicates.load(Ordering::Relaxed) > 0;
    let mut sum = Struck::default();
    let Shelf { memory, table, mut sweeper, .. } = shelf;
    std::thread::scope(|scope| {
        let in_kernel = two_cpus().map(|cpu| {
            let (programs, now, working, duplicates) = (&programs, &now, &working, &duplicates);
            scope.spawn(move || {
                pin_to(cpu);
                let mut sum = Blows { clients: CLIENTS, ports: PORTS.into(), ..Blows::default() };
                let mut round = 0;
                while !is_over(round) {
                    sum.now = now.load(Ordering::Relaxed);
                    let out =
                        sys::run(programs.hammer.as_fd(), sum.as_bytes(), &[], BLOWS).unwrap();
                    sum = Blows::read_from_bytes(&out.data).unwrap();
                    duplicates.fetch_max(sum.duplicates, Ordering::Relaxed);
                    round += 1;
                }
                working.fetch_sub(1, Ordering::Relaxed);
                sum
            })
        });
        let in_daemon = [1, 2].map(|seed| {
            let (table, now, working) = (&table, &now, &working);
            scope.spawn(move || {
                let random = fastrand::Rng::with_seed(seed);
                let (table, clients, ports) = (table.clone(), CLIENTS, PORTS);
                let mut smith = Smith { table, clients, ports, random, made: 0, found: 0 };
                let mut worker = smith.table.worker();
                let mut round = 0;
                while !is_over(round) {
                    for _ in 0..BLOWS {
                        smith.strike(&mut worker, Ticks(now.load(Ordering::Relaxed)));
                    }
                    round += 1;
                }
                working.fetch_sub(1, Ordering::Relaxed);
                (smith.made, smith.found)
            })
        });
        while working.load(Ordering::Relaxed) > 0 {
            let tick = now.fetch_add(1, Ordering::Relaxed);
            sweeper.slice(Ticks(tick));
        }
        for thread in in_kernel {
            let blows = thread.join().unwrap();
            sum.by_programs += blows.made;
            sum.found += blows.found;
            sum.wrong += blows.wrong;
            sum.duplicates += blows.duplicates;
        }
        for thread in in_daemon {
            let (made, found) = thread.join().unwrap();
            sum.by_daemon += made;
            sum.found += found;
        }
    });
    // All expire, and everything comes home.
    let end = Ticks(now.load(Ordering::Relaxed)).after(1000);
    for _ in 0..3 {
        sweeper.pass(end);
    }
    let used = memory.index(0).unwrap().iter().filter(|word| word.load(Ordering::Relaxed) != 0);
    assert_eq!(used.count(), 0, "places of the index are lost");
    assert_eq!(sweeper.free_slots(), table.slots().count(), "slots are lost, or free twice");
    assert_eq!((table.counts().conns(), table.counts().half_open()), (0, 0));
    assert_eq!((table.counts().zone(1), table.counts().zone_half_open(1)), (0, 0));
    sum
}

#[test]
fn no_tuple_is_ever_owned_twice() {
    if testing::without_root() {
        return;
    }
    let shelf = Shelf::of_chunks(None, 16 * CHUNK);
    let programs = Programs::load(&shelf.memory);
    let struck = hammer(shelf, programs, 1500, false);
    eprintln!("{struck:?}");
    assert_eq!((struck.duplicates, struck.wrong), (0, 0));
    assert!(struck.by_programs > 5_000 && struck.by_daemon > 2000, "{struck:?}");
}

#[test]
fn the_hammer_catches_a_missing_check() {
    if testing::without_root() {
        return;
    }
    let directory = testing::directory();
    let source = directory.path().join("ct_creation.h");
    let text = include_str!("../bpf/ct_creation.h");
    let check =
        "ct_clashes(&n->original, slot, n->now) ||\n\t\t       ct_clashes(&n->reply, slot, n->now)";
    assert!(text.contains(check));
    std::fs::write(&source, text.replace(check, "!slot")).unwrap();
    let object = directory.path().join("broken.o");
    let here = directory.path().to_str().unwrap();
    let status = std::process::Command::new(env!("CLANG"))
        .args(["-I", here])
        .args(env!("CLANG_FLAGS").split('\u{1f}'))
        .args(["-c", "tests/ct_table.bpf.c", "-o"])
        .arg(&object)
        .status()
        .unwrap();
    assert!(status.success());
    let shelf = Shelf::open(None);
    let programs = Programs::of(&object, &shelf.memory);
    let struck = hammer(shelf, programs, 20_000, true);
    assert!(struck.duplicates > 0, "{struck:?}");
}

#[test]
fn programs_find_connections_while_the_index_grows() {
    const CONNS: u32 = 150_000;
    if testing::without_root() {
        return;
    }
    let mut shelf = Shelf::of_chunks(None, CHUNK_CONNS);
    let programs = Programs::load(&shelf.memory);
    let mut worker = shelf.table.worker();
    shelf.table.counts().set_half_open_percent(100);
    let tuple = |n: u32| udp(n / 1000 + 1, 9, (n % 1000) as u16 + 1, 80);
    for n in 0..CONNS {
        if n % 8192 == 0 {
            shelf.sweeper.slice(Ticks(1));
        }
        let new = NewConn::new(tuple(n), 100_000);
        if n % 16 == 0 {
            assert_eq!(programs.create(&new, Ticks(1)).result, 0);
        } else {
            shelf.table.create(&worker.pin(), &new, Ticks(1)).unwrap();
        }
    }
    let mut random = fastrand::Rng::with_seed(7);
    let mut slices = 0;
    loop {
        let is_settled = shelf.sweeper.slice(Ticks(2)).settled;
        if is_settled && shelf.memory.index(1).is_some() {
            break;
        }
        slices += 1;
        assert!(slices < 1000, "the index does not grow");
        for _ in 0..50 {
            let tuple = tuple(random.u32(0..CONNS));
            assert!(programs.find(&tuple, Ticks(2)).is_some(), "after {slices} slices");
            assert!(programs.find(&tuple.reversed(), Ticks(2)).is_some());
        }
        let new = NewConn::new(udp(1, 10, slices as u16, 80), 100_000);
        assert_eq!(programs.create(&new, Ticks(2)).result, 0);
        assert!(shelf.compare(&programs, &new.original, Ticks(2)));
    }
    for n in (0..CONNS).step_by(17) {
        assert!(shelf.compare(&programs, &tuple(n), Ticks(2)), "{n} is lost");
    }
}

/// An ended connection's slot is not free before the daemon sweeps.
#[test]
fn no_connection_ends_for_want_of_a_slot() {
    if testing::without_root() {
        return;
    }
    let shelf = Shelf::open(None);
    let programs = Programs::load(&shelf.memory);
    let create = |n: u32| {
        let ports = Ports::Pair { src: n as u16, dst: 80 };
        let src = Ipv4Addr::from_bits(n).into();
        let dst = Ipv4Addr::from_bits(99).into();
        let tuple = Tuple { src, dst, ports, proto: 17, zone: 0 };
        programs.create(&NewConn::new(tuple, 1000), Ticks(1)).result
    };
    let made = (1..100_000).take_while(|n| create(*n) == 0).count() as u64;
    assert!(made > 100 && made < 99_000, "{made}");
    assert!((100_000..101_000).all(|n| create(n) == 5));
    assert_eq!(shelf.table.counts().conns(), made);
}

// SPDX-License-Identifier: Apache-2.0
//! The BPF programs run one packet at a time by `BPF_PROG_RUN`, at both hooks. Needs root.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[allow(dead_code)] // other tests use the rest
mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

use datapath::{Action, DropReason, PortNo};
use datapath_bpf::flows::FlowCount;
use datapath_bpf::keys;
use datapath_bpf::layout::*;
use datapath_bpf::load::Hook;
use datapath_bpf::slot::Slot;
use flow::Key;
use packet::build::Frame;
use support::*;
use testing::without_root;

const EXACT: [u64; WORDS] = [u64::MAX; WORDS];

/// All that the exact-match cache holds: flows under it are found there, those under [`EXACT`] in
/// the signature cache. The words of connections are zero in packets from ports.
fn memorable() -> [u64; WORDS] {
    let mut mask = keys::signature();
    mask[HOT_WORDS..PORT_WORDS].fill(0);
    mask
}

fn udp() -> Vec<u8> {
    let frame = Frame::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    frame
        .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 64)
        .udp(1000, 2000)
        .payload(&[1; 40])
        .finish()
}

fn vlan(tags: &[(u16, u16)], payload: usize) -> Vec<u8> {
    let mut frame = Frame::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    for (tpid, tci) in tags {
        frame = frame.vlan(*tpid, *tci);
    }
    frame.ethertype(0x9000).payload(&vec![3; payload]).finish()
}

/// UDP in a frame of `length` bytes, of which its packet takes 44.
fn padded(length: usize) -> Vec<u8> {
    let frame = Frame::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let addresses = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let mut frame = frame.ipv4(addresses.0, addresses.1, 64).udp(7, 8).payload(&[1; 2]).finish();
    frame.resize(length, 0xee);
    frame
}

/// Returns a TCP frame whose header length field is this many words.
fn tcp(words: u8) -> Vec<u8> {
    let frame = Frame::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let frame = frame.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 64).tcp(7, 8, 0x12);
    let mut frame = frame.payload(&[1; 8]).finish();
    frame[46] = words << 4;
    frame
}

/// Packets near the shape that most have, each to be forwarded and counted with every byte.
fn nearly_plain() -> Vec<Case> {
    let changed = |at: usize, to: u8| {
        let mut frame = udp();
        frame[at] = to;
        frame
    };
    let frames = [
        ("a packet as long as its frame", padded(44)),
        ("a shortest frame, padded", padded(60)),
        ("a shortest frame with its checksum", padded(64)),
        ("a byte of padding more", padded(65)),
        ("much padding", padded(300)),
        ("TCP", tcp(5)),
        ("TCP with options", tcp(7)),
        ("TCP with a header that is too short", tcp(4)),
        ("TCP with a header that is too long", tcp(8)),
        ("a packet that is longer than its frame", changed(17, 200)),
        ("a packet that is shorter than its headers", changed(17, 27)),
        ("a first fragment", changed(20, 0x20)),
        ("a later fragment", changed(21, 1)),
        ("not to be fragmented", changed(20, 0x40)),
        ("with options", changed(14, 0x46)),
        ("another version", changed(14, 0x65)),
        ("another protocol", changed(23, 47)),
        ("ICMP", changed(23, 1)),
        ("SCTP", changed(23, 132)),
    ];
    let case = |(sentence, frame)| Case {
        sentence,
        frame,
        actions: Vec::new(),
        flow: |f| f.output = OUT_PORT,
        verdict: REDIRECT,
        counted: [1; 2],
        drop: [None; 2],
    };
    frames.into_iter().map(case).collect()
}

fn key(frame: &[u8]) -> Key {
    flow::extract::key_of(frame, IN_PORT)
}

const DROP: [u32; 2] = [2 /* TC_ACT_SHOT */, 1 /* XDP_DROP */];
const REDIRECT: [u32; 2] = [7, 4];
/// As without us: TC_ACT_UNSPEC, XDP_PASS.
const NONE: [u32; 2] = [u32::MAX, 2];

struct Case {
    sentence: &'static str,
    frame: Vec<u8>,
    flow: fn(&mut Slot),
    /// Its program, if it is one.
    actions: Vec<Action>,
    /// At tc and at XDP.
    verdict: [u32; 2],
    /// Packets of the flow, at tc and at XDP.
    counted: [u64; 2],
    /// One more of these drops, at tc and at XDP.
    drop: [Option<usize>; 2],
}

fn cases() -> Vec<Case> {
    let case = |sentence, frame, flow, verdict, counted, drop| Case {
        sentence,
        frame,
        flow,
        actions: Vec::new(),
        verdict,
        counted,
        drop,
    };
    let listed = |sentence, actions: &[Action], verdict, counted, drop| Case {
        actions: actions.to_vec(),
        ..case(sentence, udp(), |_| {}, verdict, counted, drop)
    };
    let out = |port| Action::Output(PortNo(port));
    let hash = Action::Hash { symmetric: false, basis: 0 };
    let both = |d| [Some(d), Some(d)];
    vec![
        case(
            "one output is a redirect",
            udp(),
            |f| f.output = OUT_PORT,
            REDIRECT,
            [1; 2],
            [None; 2],
        ),
        case(
            "no actions drop and count the reason",
            udp(),
            |f| f.reason = 1,
            DROP,
            [1; 2],
            both(1),
        ),
        case(
            "a port that is gone drops",
            udp(),
            |f| f.output = NO_SUCH_PORT,
            DROP,
            [1; 2],
            both(4),
        ),
        case("a port that is down drops", udp(), |f| f.output = DOWN_PORT, DROP, [1; 2], both(7)),
        case(
            "a frame longer than the port's MTU drops",
            vlan(&[], 101),
            |f| f.output = SMALL_PORT,
            DROP,
            [1; 2],
            both(6),
        ),
        case(
            "a frame as long as the MTU goes",
            vlan(&[], 100),
            |f| f.output = SMALL_PORT,
            REDIRECT,
            [1; 2],
            [None; 2],
        ),
        case(
            "a packet longer than the port's MTU drops",
            padded(14 + 101),
            |f| f.output = SMALL_PORT,
            DROP,
            [1; 2],
            both(6),
        ),
        case(
            "one tag is free",
            vlan(&[(0x8100, 5)], 100),
            |f| f.output = SMALL_PORT,
            REDIRECT,
            [1; 2],
            [None; 2],
        ),
        case(
            "two tags are not",
            vlan(&[(0x88a8, 5), (0x8100, 6)], 97),
            |f| f.output = SMALL_PORT,
            DROP,
            [1; 2],
            both(6),
        ),
        case(
            "what XDP cannot send to is left to tc, which can",
            udp(),
            |f| f.output = STACK_PORT,
            [REDIRECT[0], NONE[1]],
            [1, 0],
            [None; 2],
        ),
        case(
            "a flow that only tc can run is left to it",
            udp(),
            |f| (f.output, f.hooks) = (OUT_PORT, HOOK_TC),
            [REDIRECT[0], NONE[1]],
            [1, 0],
            [None; 2],
        ),
        case(
            "a removed flow is not there; without a way up the packet drops at tc",
            udp(),
            |f| (f.output, f.dead) = (OUT_PORT, 1),
            [DROP[0], NONE[1]],
            [0; 2],
            [Some(8), None],
        ),
        case(
            "a flow of tracked packets is not for packets from ports",
            udp(),
            |f| {
                f.words[word::CT] = u64::MAX;
                (f.output, f.flags) = (OUT_PORT, FLOW_METADATA);
            },
            [DROP[0], NONE[1]],
            [0; 2],
            [Some(8), None],
        ),
        listed(
            "a port that is down gets no copy; XDP leaves that to tc",
            &[out(DOWN_PORT), out(OUT_PORT)],
            [REDIRECT[0], NONE[1]],
            [1, 0],
            [Some(7), None],
        ),
        listed(
            "what finds no flow when it is looked up again goes up, from XDP by tc",
            &[hash.clone(), Action::Recirc(3)],
            [DROP[0], NONE[1]],
            [1, 0],
            [Some(8), None],
        ),
        listed(
            "a list that drops in the end is counted also when it might have looked up again",
            &[Action::CheckPktLen {
                len: 9,
                greater: vec![hash, Action::Drop(DropReason::TranslationError)],
                not_greater: vec![Action::Recirc(3)],
            }],
            DROP,
            [1; 2],
            both(1),
        ),
        listed(
            "a popped tag that is not there is malformed, before copies and before a lookup",
            &[Action::PopVlan, out(OUT_PORT), out(OTHER_PORT)],
            DROP,
            [1; 2],
            both(10),
        ),
        listed("the same", &[Action::PopVlan, Action::Recirc(3)], DROP, [1; 2], both(10)),
    ]
}

fn run_cases(hook: Hook, at: usize) {
    let bed = Bed::new(hook);
    let cases: Vec<Case> = cases().into_iter().chain(nearly_plain()).collect();
    for (case, mask) in cases.iter().flat_map(|c| [(c, EXACT), (c, memorable())]) {
        let mut flow = bed.flow(&key(&case.frame), &mask);
        (case.flow)(&mut flow);
        if !case.actions.is_empty() {
            bed.put_program(&mut flow, &case.actions);
        }
        bed.install(&flow, &mask);
        // By the mask scan, the signature cache, the exact-match cache, and the last flow if it
        // can.
        for times in 1..=6 {
            let before = bed.counters();
            let outcome = bed.run(&case.frame);
            let words = format!("{hook:?}: {}, time {times}", case.sentence);
            assert_eq!(outcome.verdict, case.verdict[at], "{words}");
            assert_eq!(outcome.frame, case.frame, "{words}");
            let stats = bed.stats();
            let counted = case.counted[at] * times;
            assert_eq!(stats.packets, counted, "{words}");
            assert_eq!(stats.bytes, counted * case.frame.len() as u64, "{words}");
            let mut drops = before.drops;
            if let Some(reason) = case.drop[at] {
                drops[reason] += 1;
            }
            assert_eq!(bed.counters().drops, drops, "{words}");
        }
    }
}

#[test]
fn cases_at_tc() {
    if !without_root() {
        run_cases(Hook::Tc, 0);
    }
}

#[test]
fn cases_at_xdp() {
    if !without_root() {
        run_cases(Hook::Xdp, 1);
    }
}

#[test]
fn flows_count_exactly_when_an_entry_or_a_word_is_full() {
    if without_root() {
        return;
    }
    const MOST: (u64, u64) = ((1 << 12) - 1, (1 << 24) - 1);
    const WORD_MOST: u64 = (1 << 16) - 1;
    const TIMES: u64 = 8;
    let of = |packets: u64, bytes: u64| packets << EMC_PACKETS_SHIFT | bytes;
    let frame = tcp(5);
    let bytes = frame.len() as u64;
    let hooks = [(Hook::Tc, REDIRECT[0]), (Hook::Xdp, REDIRECT[1])];
    for ((hook, redirect), on_one_shard) in
        hooks.into_iter().flat_map(|hook| [false, true].map(|shared| (hook, shared)))
    {
        let bed = Bed::that_counts(hook, on_one_shard);
        // Packets and bytes of the entry, and after how many packets they are moved.
        for (packets, counted, moves) in [
            (MOST.0 - 3, 60, 4),
            (MOST.0, MOST.1, 1),
            (7, MOST.1 - 2 * bytes, 3),
            (0, MOST.1 - bytes, 2),
        ] {
            let mut flow = bed.flow(&key(&frame), &memorable());
            flow.output = OUT_PORT;
            bed.install(&flow, &memorable());
            // The first two count in the word, and put the flow into the caches.
            for _ in 0..3 {
                assert_eq!(bed.run(&frame).verdict, redirect);
            }
            assert_eq!(bed.maps.totals.read(0), Totals::default());
            let entry = bed.entry_count();
            let rest = entry.load(Ordering::Relaxed) >> EMC_SLOT_SHIFT;
            entry.store(rest << EMC_SLOT_SHIFT | of(packets, counted), Ordering::Relaxed);
            for times in 1..=TIMES {
                assert_eq!(bed.run(&frame).verdict, redirect);
                let stats = bed.stats();
                let words =
                    format!("{hook:?}, {on_one_shard}: {packets}, {counted}: {times}: {stats:?}");
                assert_eq!(stats.packets, 2 + packets + times, "{words}");
                assert_eq!(stats.bytes, counted + (2 + times) * bytes, "{words}");
                assert_eq!(stats.tcp_flags, 0x12, "{words}");
                let left = match times.checked_sub(moves) {
                    Some(after) => of(after, after * bytes),
                    None => of(packets + times, counted + times * bytes),
                };
                assert_eq!(entry.load(Ordering::Relaxed), rest << EMC_SLOT_SHIFT | left, "{words}");
                let totals = bed.maps.totals.read(0);
                let moved = u64::from(on_one_shard && times >= moves);
                assert_eq!((totals.begun, totals.ended), (moved, moved), "{words}");
                assert_eq!(totals.packets, moved * (2 + packets + moves), "{words}");
                assert_eq!(totals.bytes, moved * (counted + (2 + moves) * bytes), "{words}");
            }
            // The word becomes full by what is moved.
            let before = bed.maps.totals.read(0);
            let spilled = u64::from(on_one_shard) << RECENT_SPILLED_SHIFT;
            bed.set_recent(spilled | WORD_MOST << RECENT_PACKETS_SHIFT | 60);
            entry.store(rest << EMC_SLOT_SHIFT | of(MOST.0, 60), Ordering::Relaxed);
            assert_eq!(bed.run(&frame).verdict, redirect);
            let after = bed.maps.totals.read(0);
            assert_eq!(after.packets - before.packets, WORD_MOST + MOST.0 + 1);
            assert_eq!(after.bytes - before.bytes, 120 + bytes);
            assert_eq!(bed.stats().packets, after.packets);
            assert_eq!(entry.load(Ordering::Relaxed), rest << EMC_SLOT_SHIFT);
        }
    }
}

#[test]
fn a_packet_with_a_new_tcp_flag_is_noticed() {
    if without_root() {
        return;
    }
    let with = |flags: u8| {
        let mut frame = tcp(5);
        frame[14 + 20 + 13] = flags;
        frame
    };
    for hook in [Hook::Tc, Hook::Xdp] {
        let bed = Bed::new(hook);
        let mut flow = bed.flow(&key(&with(0)), &memorable());
        flow.output = OUT_PORT;
        bed.install(&flow, &memorable());
        let mut seen = 0;
        for flags in [0x02, 0x02, 0x10, 0x10, 0x18, 0x18, 0x10, 0x04, 0x11, 0x10] {
            bed.run(&with(flags));
            seen |= u16::from(flags);
            assert_eq!(bed.stats().tcp_flags, seen, "{hook:?}: {flags:#x}");
        }
        assert_eq!(bed.stats().packets, 10);
    }
}

/// While a thread reads, the counting threads stay on CPUs of their own where there are two.
#[test]
fn cpus_that_share_a_shard_lose_no_packet() {
    if without_root() {
        return;
    }
    const TIMES: u32 = 300_000;
    const ALL: u64 = 2 * TIMES as u64;
    let frame = tcp(5);
    for hook in [Hook::Tc, Hook::Xdp] {
        let bed = Bed::that_counts(hook, true);
        let mut flow = bed.flow(&key(&frame), &memorable());
        flow.output = OUT_PORT;
        bed.install(&flow, &memorable());
        let (maps, entry, running) = (&bed.maps, bed.entry(), AtomicUsize::new(2));
        let mut seen = FlowCount::default();
        std::thread::scope(|scope| {
            for cpu in two_cpus() {
                let (frame, running) = (&frame, &running);
                scope.spawn(move || {
                    pin_to(cpu);
                    let done = run_entry(entry, frame, TIMES, 0);
                    running.fetch_sub(1, Ordering::SeqCst);
                    done.unwrap();
                });
            }
            while running.load(Ordering::SeqCst) > 0 {
                seen = FlowCount::of_slot(maps, 0).at_least(&seen);
            }
        });
        let stats = bed.stats();
        assert_eq!((stats.packets, stats.bytes), (ALL, ALL * frame.len() as u64), "{hook:?}");
        assert_eq!(stats.tcp_flags, 0x12);
        assert_eq!(stats.at_least(&seen), stats, "{hook:?}: more was seen than there was");
        let totals = maps.totals.read(0);
        assert!(totals.begun >= ALL >> 17 && totals.begun == totals.ended, "{totals:?}");
    }
}

/// At tc copies are sent at once, by a device.
#[test]
fn copies_at_xdp() {
    if without_root() {
        return;
    }
    let bed = Bed::new(Hook::Xdp);
    for mask in [EXACT, memorable()] {
        let mut flow = bed.flow(&key(&udp()), &mask);
        let outputs = [OUT_PORT, OTHER_PORT].map(|port| Action::Output(PortNo(port)));
        bed.put_program(&mut flow, &outputs);
        bed.install(&flow, &mask);
        for times in 1..=4 {
            assert_eq!(bed.run(&udp()), Outcome { verdict: REDIRECT[1], frame: udp() });
            assert_eq!(bed.stats().packets, times);
            assert_eq!(bed.stats().bytes, times * udp().len() as u64);
        }
    }
    assert_eq!(bed.counters().drops, [0; DROPS]);
}

#[test]
fn a_device_that_is_no_port_is_left_alone() {
    if without_root() {
        return;
    }
    for (hook, verdict) in [(Hook::Tc, NONE[0]), (Hook::Xdp, NONE[1])] {
        let bed = Bed::new(hook);
        bed.clear_in_port();
        assert_eq!(bed.run(&udp()), Outcome { verdict, frame: udp() });
    }
}

#[test]
fn a_missed_packet_goes_up_behind_a_header_and_no_more_than_allowed() {
    if without_root() {
        return;
    }
    let bed = Bed::new(Hook::Tc);
    bed.set_miss_device(1);
    for _ in 0..4 {
        let outcome = bed.run(&udp());
        assert_eq!(outcome.verdict, REDIRECT[0]);
        let (header, frame) = outcome.frame.split_at(MISS_HEADER);
        let mut expected = [0; MISS_HEADER];
        expected[3] = IN_PORT as u8;
        expected[12..16].copy_from_slice(&[0x88, 0xb5, 0, VERSION as u8]);
        assert_eq!((header, frame), (&expected[..], &udp()[..]));
    }
    assert_eq!(bed.run(&udp()).verdict, DROP[0]);
    assert_eq!(bed.counters().drops[8], 1);
    assert_eq!(bed.counters().up, 4);
    let port: Port = bed.maps.ports.read(IN_PORT as usize);
    assert_eq!(port.sent_up, 4);
}

#[test]
fn a_port_whose_misses_are_not_wanted_loses_them_at_either_hook() {
    if without_root() {
        return;
    }
    for (at, hook) in [Hook::Tc, Hook::Xdp].into_iter().enumerate() {
        let bed = Bed::new(hook);
        bed.set_miss_device(1);
        let close = |until| {
            let port = bed.maps.ports.read(IN_PORT as usize);
            bed.maps.ports.write(IN_PORT as usize, &Port { closed_until: until, ..port });
        };
        let run = || (bed.run(&udp()).verdict, bed.counters().drops[8]);
        let goes_up = [REDIRECT[0], NONE[1]][at];
        close(u64::MAX);
        assert_eq!(run(), (DROP[at], 1));
        // A packet with a flow is not held back, even where the flow runs at the next hook only.
        let mut flow = bed.flow(&key(&udp()), &EXACT);
        flow.output = OUT_PORT;
        bed.install(&flow, &EXACT);
        assert_eq!(run(), (REDIRECT[at], 1));
        flow.hooks = HOOK_TC;
        bed.install(&flow, &EXACT);
        assert_eq!(run(), (goes_up, 1));
        bed.remove();
        close(1);
        assert_eq!(run(), (goes_up, 1));
    }
}

#[test]
fn ports_of_the_host_are_counted_here() {
    if without_root() {
        return;
    }
    let bed = Bed::new(Hook::Tc);
    bed.set_in_port(STACK_PORT);
    let frame = udp();
    let mut flow = bed.flow(&flow::extract::key_of(&frame, STACK_PORT), &EXACT);
    flow.output = STACK_PORT;
    bed.install(&flow, &EXACT);
    for n in 1..4 {
        assert_eq!(bed.run(&frame).verdict, REDIRECT[0]);
        let bytes = n * frame.len() as u64;
        let count = bed.port_count(STACK_PORT);
        let counted = [count.rx_packets, count.rx_bytes, count.tx_packets, count.tx_bytes];
        assert_eq!(counted, [n, bytes, n, bytes]);
    }
}

/// The exact-match cache has sums in place of keys.
#[test]
fn a_packet_that_differs_in_one_bit_or_two_is_not_taken_for_another() {
    if without_root() {
        return;
    }
    const HEADERS: usize = 14 + 20 + 8;
    let flipped = |frame: &mut Vec<u8>, bit: usize| frame[bit / 8] ^= 1 << (bit % 8);
    let mask = memorable();
    let under = |frame: &[u8]| {
        let words = keys::to_words(&key(frame));
        std::array::from_fn::<u64, WORDS, _>(|x| words[x] & mask[x])
    };
    for (at, hook) in [Hook::Tc, Hook::Xdp].into_iter().enumerate() {
        let bed = Bed::new(hook);
        let mut flow = bed.flow(&key(&udp()), &mask);
        flow.output = OUT_PORT;
        bed.install(&flow, &mask);
        for _ in 0..3 {
            assert_eq!(bed.run(&udp()).verdict, REDIRECT[at]);
        }
        let mut strangers = 0;
        // The highest bit of a byte may be that of a half word, which sums know the least of.
        let highest = (0..HEADERS).map(|byte| 8 * byte + 7);
        let pairs = highest.clone().flat_map(|a| highest.clone().map(move |b| [a, b]));
        let single = (0..8 * HEADERS).map(|bit| [bit, bit]);
        for [a, b] in single.chain(pairs.filter(|[a, b]| a < b)) {
            let mut frame = udp();
            flipped(&mut frame, a);
            if a != b {
                flipped(&mut frame, b);
            }
            let same = under(&frame) == under(&udp());
            strangers += u32::from(!same);
            let taken = bed.run(&frame).verdict == REDIRECT[at];
            assert_eq!(taken, same, "{hook:?}, bits {a} and {b}: {}", hex(&frame));
            assert_eq!(bed.run(&udp()).verdict, REDIRECT[at], "{hook:?}, behind bits {a} and {b}");
        }
        assert!(strangers > 800, "{strangers}");
    }
}

/// The key of the programs is the one of [`flow::extract`]: the walk's, read back, and the one
/// of the lookup, by which it finds a flow that matches every bit of it.
fn keys_agree(hook: Hook, frames: impl Iterator<Item = Vec<u8>>, given_up: usize) {
    let bed = Bed::new(hook);
    let (mut up, mut refused) = (0, 0);
    for frame in frames {
        bed.remove();
        let before = bed.counters().walked;
        if bed.repeat(&frame, 1).is_err() {
            refused += 1;
            continue;
        }
        if bed.counters().walked == before {
            up += 1;
            continue;
        }
        let expected = key(&frame);
        assert_eq!(bed.last_key(), expected, "{hook:?}: {}", hex(&frame));
        let mut flow = bed.flow(&expected, &EXACT);
        flow.output = OUT_PORT;
        bed.install(&flow, &EXACT);
        for walks in [1, 1] {
            assert_eq!(bed.run(&frame).verdict, REDIRECT[usize::from(hook == Hook::Xdp)]);
            assert_eq!(bed.counters().walked, before + 1 + walks, "{hook:?}: {}", hex(&frame));
        }
        assert_eq!(bed.stats().tcp_flags, expected.tcp_flags.get());
    }
    assert!(up <= given_up, "{up} frames were not parsed");
    assert!(refused < 2000, "{refused} frames were refused by the kernel");
    eprintln!("{hook:?}: {up} frames left to the daemon, {refused} refused by the kernel");
}

fn hex(frame: &[u8]) -> String {
    frame.iter().map(|b| format!("{b:02x}")).collect()
}

fn random(seed: u64, make: fn(&mut fastrand::Rng) -> Vec<u8>) -> impl Iterator<Item = Vec<u8>> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..10_000).map(move |_| make(&mut rng))
}

#[test]
fn keys_of_sound_frames_at_both_hooks() {
    if !without_root() {
        keys_agree(Hook::Tc, random(1, frames::sound), 5);
        keys_agree(Hook::Xdp, random(2, frames::sound), 5);
    }
}

#[test]
fn keys_of_mangled_frames_at_both_hooks() {
    if !without_root() {
        keys_agree(Hook::Tc, random(3, frames::mangled), 50);
        keys_agree(Hook::Xdp, random(4, frames::mangled), 50);
    }
}

#[test]
#[ignore = "a measurement"]
fn nanoseconds_of_one_flow() {
    for hook in [Hook::Tc, Hook::Xdp] {
        let bed = Bed::new(hook);
        let mut flow = bed.flow(&key(&udp()), &EXACT);
        flow.output = OUT_PORT;
        bed.install(&flow, &EXACT);
        let best = (0..7).map(|_| bed.repeat(&udp(), 1_000_000).unwrap().1).min();
        eprintln!("{hook:?}: {best:?} ns");
    }
}

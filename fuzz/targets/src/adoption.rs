// SPDX-License-Identifier: Apache-2.0
//! Tables in shared memory that another daemon left, damaged anywhere.
//!
//! The input is megaflows that the other daemon had, and what then happened to words of its
//! arrays.

use crate::input::Input;
use crate::rewrite;
use clock::Clock;
use datapath::{Megaflow, Refusal, Ufid};
use datapath_bpf::HookSet;
use datapath_bpf::flows::Flows;
use datapath_bpf::grace::Grace;
use datapath_bpf::hash::Factors;
use datapath_bpf::layout::Port;
use datapath_bpf::maps::{Maps, Sizes};
use flow::{Field, Match};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Small arrays, so that damage hits something.
const SIZES: Sizes = Sizes {
    flows: 64,
    masks: 16,
    buckets: 16,
    cache_lines: 32,
    shards: 2,
    programs: 16,
    emc_lines: 16,
    chains: 4,
    cpus: 2,
    shards_atomic: false,
};
const ARRAYS: usize = 11;
/// The first of them are what flows consist of.
const OF_FLOWS: usize = 6;
const PORTS: usize = 8;
const MAX_FLOWS: usize = 24;
const MAX_DAMAGE: usize = 32;

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let factors: Factors = std::array::from_fn(|i| 0x9e37_79b9_7f4a_7c15 ^ (i as u64) << 8);
    let before = Flows::new(arrays(&factors), Vec::new(), factors, Grace::Nobody, Clock::new());
    let megaflows: Vec<Megaflow> =
        (0..input.below(MAX_FLOWS)).map(|n| megaflow(&mut input, n as u128)).collect();
    for flow in &megaflows {
        let _ = before.install(flow, HookSet::all(), |_| {}); // what is refused is not there
    }
    let left = before.len();
    let maps = arrays(&factors);
    copy(before.maps(), &maps);
    let mut is_damaged = false;
    for _ in 0..input.below(MAX_DAMAGE) {
        is_damaged |= damage(&mut input, &maps);
    }
    let (flows, found) = Flows::adopt(maps, Vec::new(), factors, Grace::Nobody, Clock::new())
        .expect("nobody is waited for, so nothing can fail");
    assert_eq!(flows.len(), found.flows);
    assert!(is_damaged || (found.flows, found.refused) == (left, 0), "{found:?} of {left}");
    useful(&flows, &megaflows);
}

fn arrays(factors: &Factors) -> Maps {
    let maps = Maps::private(SIZES);
    for number in 1..PORTS {
        let port = Port { ifindex: number as u32, flags: 1, ..Port::default() }; // below PORTS
        maps.ports.write(number, &port);
    }
    maps.configure(factors);
    maps
}

/// Returns the words that flows consist of, then those that only lead to flows or count them.
fn words(maps: &Maps) -> [&[AtomicU64]; ARRAYS] {
    [
        maps.slots.all_words(),
        maps.details.all_words(),
        maps.masks.all_words(),
        maps.index.all_words(),
        maps.programs.all_words(),
        maps.port_sets.all_words(),
        maps.cache.all_words(),
        maps.recent.all_words(),
        maps.totals.all_words(),
        maps.emc.all_words(),
        maps.moves.all_words(),
    ]
}

fn copy(from: &Maps, to: &Maps) {
    for (from, to) in words(from).into_iter().zip(words(to)) {
        for (from, to) in from.iter().zip(to) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

fn megaflow(input: &mut Input<'_>, ufid: u128) -> Megaflow {
    let mut matching = Match::ANY;
    matching.set(Field::InPort, 1 + (input.byte() & 3) as u128);
    matching.set(Field::RecircId, (input.byte() & 3).into());
    matching.set(Field::EthType, 0x800);
    let mask = input.choose(&[u32::MAX, 0xffff_ff00, 0xffff_0000]);
    matching.set_masked(Field::Ipv4Dst, (input.word() & mask).into(), mask.into());
    let actions = rewrite::list(input, 0, 1);
    Megaflow { ufid: Ufid(ufid), matching, actions: actions.into() }
}

/// Changes a word; true when what flows consist of may be another now.
fn damage(input: &mut Input<'_>, maps: &Maps) -> bool {
    let array = input.below(ARRAYS);
    let words = words(maps)[array];
    // Mostly what is in use: zeros say that nothing is there.
    let used: Vec<&AtomicU64> = words.iter().filter(|w| w.load(Ordering::Relaxed) != 0).collect();
    let at = usize::from(input.short());
    let word = match input.below(4) {
        0 => words.get(at % words.len()),
        _ => used.get(at % used.len().max(1)).copied(),
    };
    let Some(word) = word else { return false };
    match input.below(4) {
        0 => word.store(input.byte().into(), Ordering::Relaxed),
        1 => word.store(input.long(), Ordering::Relaxed),
        2 => word.store(0, Ordering::Relaxed),
        _ => {
            word.fetch_xor(1 << (input.byte() & 63), Ordering::Relaxed);
        }
    }
    array < OF_FLOWS
}

/// The tables are as good as new ones once their flows are gone.
fn useful(flows: &Flows, megaflows: &[Megaflow]) {
    flows.sweep(&mut |_, _| {});
    let ufids: BTreeSet<Ufid> = flows.dump().into_iter().map(|(ufid, _)| ufid).collect();
    assert_eq!(ufids.len(), flows.len(), "each flow is dumped once");
    for flow in megaflows {
        let there = ufids.contains(&flow.ufid);
        let done = flows.install(flow, HookSet::all(), |_| {});
        assert!(!there || done.is_err(), "{:?} is there twice", flow.ufid);
    }
    let ufids: Vec<Ufid> = flows.dump().into_iter().map(|(ufid, _)| ufid).collect();
    let mut gone = 0;
    flows.remove_many(&ufids, &mut |_, _| gone += 1);
    assert_eq!(gone, ufids.len());
    assert!(flows.is_empty());
    flows.reclaim();
    flows.reclaim();
    assert_eq!(flows.masks(), 0, "masks go with their flows");
    for n in 0..SIZES.flows {
        let mut matching = Match::ANY;
        matching.set(Field::InPort, 1);
        matching.set(Field::RecircId, 0);
        matching.set(Field::EthType, 0x800);
        matching.set(Field::Ipv4Dst, n.into());
        let actions = [datapath::Action::Output(datapath::PortNo(2))];
        let flow =
            Megaflow { ufid: Ufid((1 << 64) + u128::from(n)), matching, actions: actions.into() };
        let done = flows.install(&flow, HookSet::all(), |_| {});
        assert!(matches!(done, Ok(_) | Err(Refusal::TableFull)), "{done:?}");
        assert!(done.is_ok() || n >= SIZES.flows / 2, "full with {n} flows");
    }
}

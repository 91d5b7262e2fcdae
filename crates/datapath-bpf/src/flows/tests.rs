// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::attachment::Config;
use crate::layout::{
    ConfigEntry, EMC_PACKETS_SHIFT, EMC_SLOT_SHIFT, EMC_SLOTS, EmcEntry, FACTORS, FLOW_PRECHECK,
    Moves, PORT_SETS, Port, PortSet, RECENT_PACKETS_SHIFT, RECENT_SPILLED_SHIFT, Recent,
    SlotDetail, Totals,
};
use crate::maps::Sizes;
use datapath::Actions;
use flow::{Field, Match};
use proptest::prelude::*;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PROGRAM_WORDS: usize = size_of::<Program>() / 8;
const SET_WORDS: usize = size_of::<PortSet>() / 8;

pub(super) fn maps(max_flows: u32) -> Maps {
    let config = Config { max_flows, max_masks: 64, max_programs: 64, ..Config::default() };
    let maps = Maps::private(Sizes::new(&config, 2));
    for port in 1..8 {
        maps.ports.write(port, &Port { ifindex: port as u32, flags: 1, ..Port::default() });
    }
    maps
}

pub(super) fn table(max_flows: u32) -> Flows {
    let maps = maps(max_flows);
    let factors = hash::factors();
    maps.configure(&factors);
    Flows::new(maps, Vec::new(), factors, Grace::Nobody, Clock::new())
}

pub(super) fn megaflow(id: u32, actions: &[Action]) -> Megaflow {
    let mut matching = Match::ANY;
    matching.set(Field::InPort, 1);
    matching.set(Field::RecircId, 0);
    matching.set(Field::EthType, 0x800);
    matching.set(Field::Ipv4Dst, u128::from(id));
    Megaflow { ufid: Ufid(u128::from(id) + 1), matching, actions: Actions::from(actions) }
}

fn out(port: u32) -> Action {
    Action::Output(PortNo(port))
}

/// Looks up a key as a program does.
fn lookup(flows: &Flows, key: &flow::Key) -> Option<u32> {
    let words = keys::to_words(key);
    let maps = &flows.maps;
    for number in 0..maps.masks.len() {
        let mask = maps.masks.read(number);
        if mask.needs == 0 {
            break;
        }
        let under: [u64; WORDS] = std::array::from_fn(|x| words[x] & mask.words[x]);
        let hash = hash::of_flow(&under, number as u32, &flows.factors);
        let found = index::slots_with(&maps.index, hash).find(|slot| {
            let slot = Slot::read(maps, *slot as usize);
            slot.dead == 0 && usize::from(slot.mask) == number && slot.words == under
        });
        if found.is_some() {
            return found;
        }
    }
    None
}

fn packet(flows: &Flows, flow: &Megaflow) -> Option<u32> {
    let slot = lookup(flows, flow.matching.key())?;
    let word = flows.maps.recent.word(slot as usize, 0);
    word.fetch_add(1 << RECENT_PACKETS_SHIFT, Ordering::Relaxed);
    Some(Slot::read(&flows.maps, slot as usize).output)
}

pub(super) fn install(flows: &Flows, flow: &Megaflow) -> Result<HookSet, Refusal> {
    flows.install(flow, HookSet::all(), |_| {})
}

pub(super) fn remove(flows: &Flows, ufid: Ufid) -> Option<FlowStats> {
    let mut got = None;
    flows.remove_many(&[ufid], &mut |_, stats| got = Some(stats));
    got
}

#[test]
fn flows_are_found_counted_and_removed() {
    let flows = table(1024);
    let flow = megaflow(7, &[out(2)]);
    assert_eq!(install(&flows, &flow), Ok(HookSet::all()));
    assert_eq!(install(&flows, &flow), Err(Refusal::Exists));
    let alias = Megaflow { ufid: Ufid(99), ..flow.clone() };
    assert_eq!(install(&flows, &alias), Err(Refusal::Exists), "the same match");
    assert_eq!(packet(&flows, &flow), Some(2));
    let held = flows.flow(flow.ufid).unwrap();
    assert_eq!((held.matching, held.stats.packets), (flow.matching, 1));
    assert!(flows.encodes_alike(flow.ufid, &[out(2)]));
    assert!(!flows.encodes_alike(flow.ufid, &[out(3)]));
    assert_eq!(remove(&flows, flow.ufid).unwrap().packets, 1);
    assert_eq!(remove(&flows, flow.ufid), None);
    assert_eq!(packet(&flows, &flow), None);
    assert_eq!(flows.len(), 0);
}

#[test]
fn refusals() {
    let flows = table(1024);
    assert_eq!(install(&flows, &megaflow(1, &[out(9)])), Err(Refusal::PortNotHere));
    let mut flow = megaflow(1, &[out(2)]);
    flow.matching.set(Field::InPort, 9);
    assert_eq!(install(&flows, &flow), Err(Refusal::PortNotHere));
    flow.matching.set(Field::Reg0, 1);
    assert_eq!(install(&flows, &flow), Err(Refusal::UnsupportedKey));
    let both = megaflow(1, &[out(2), Action::PopVlan, out(3)]);
    let refused = flows.install(&both, HookSet::XDP, |_| {});
    assert_eq!(refused, Err(Refusal::UnsupportedAction));
    assert_eq!((flows.len(), flows.masks()), (0, 0));
}

#[test]
fn a_replacement_keeps_statistics_and_is_never_absent() {
    let flows = table(1024);
    let flow = megaflow(7, &[out(2)]);
    install(&flows, &flow).unwrap();
    packet(&flows, &flow);
    let changed = megaflow(7, &[out(3), Action::PopVlan, out(4)]);
    let hooks = flows.replace(&changed, HookSet::all(), |_| {}).unwrap();
    assert_eq!(hooks, HookSet::TC);
    packet(&flows, &flow);
    assert_eq!(flows.flow(flow.ufid).unwrap().stats.packets, 2);
    flows.reclaim();
    assert_eq!(flows.flow(flow.ufid).unwrap().stats.packets, 2);
    assert_eq!(flows.replace(&flow, HookSet::all(), |_| {}), Ok(HookSet::all()));
    assert_eq!(remove(&flows, flow.ufid).unwrap().packets, 2);
    flows.reclaim();
    flows.reclaim();
    assert_eq!(flows.masks(), 0);
    let inner = flows.lock();
    assert_eq!((inner.programs.len(), inner.programmed, inner.earlier.len()), (0, 0, 0));
    assert_eq!(inner.free.len(), inner.records.len());
}

fn sets_in_use(flows: &Flows) -> usize {
    (0..PORT_SETS as usize).filter(|set| flows.maps.port_sets.read(*set).count != 0).count()
}

#[test]
fn copies_at_xdp_take_a_set_of_ports() {
    let flows = table(1024);
    let flood = |id, port: u32| {
        let others: Vec<Action> = (1..8).filter(|p| *p != port).map(out).collect();
        let mut flow = megaflow(id, &others);
        flow.matching.set(Field::InPort, port.into());
        flow
    };
    for port in 1..8 {
        assert_eq!(install(&flows, &flood(port, port)), Ok(HookSet::all()));
    }
    assert_eq!(sets_in_use(&flows), 1, "ports of a bridge share one");
    let set = flows.maps.port_sets.read(0);
    assert_eq!((set.count, &set.ports[..8]), (7, &[1, 2, 3, 4, 5, 6, 7, 0][..]));
    let slot = flows.lock().by_ufid[&Ufid(3)];
    let slot = Slot::read(&flows.maps, slot as usize);
    assert_eq!(slot.flags & FLOW_PRECHECK, FLOW_PRECHECK);
    let program = flows.maps.programs.read(slot.program as usize);
    assert_eq!((program.set, program.exclude, program.again), (1, 1, 0));
    // As many other sets as there is room for: pairs and triples of ports.
    let mut id = 100;
    let mut tcx = None;
    'sets: for a in 2..8 {
        for b in a + 1..8 {
            for c in b..8 {
                id += 1;
                let mut list = vec![out(a), out(b)];
                list.extend((c != b).then(|| out(c)));
                let flow = megaflow(id, &list);
                let suits = flows.suits_xdp(&flow);
                match install(&flows, &flow).unwrap() {
                    hooks if hooks == HookSet::all() => assert_eq!(suits, Ok(())),
                    hooks => {
                        assert_eq!((hooks, suits), (HookSet::TC, Err(Refusal::PortSetsFull)));
                        tcx = Some(flow);
                        break 'sets;
                    }
                }
            }
        }
    }
    let tcx = tcx.expect("sets run out");
    assert_eq!(sets_in_use(&flows), PORT_SETS as usize);
    assert_eq!(flows.replace(&tcx, HookSet::XDP, |_| {}), Err(Refusal::PortSetsFull));
    // A set is free when its flows are gone and no packet runs them.
    remove(&flows, Ufid(u128::from(id)));
    assert_eq!(flows.suits_xdp(&tcx), Err(Refusal::PortSetsFull));
    flows.reclaim();
    assert_eq!(flows.suits_xdp(&tcx), Ok(()));
    assert_eq!(flows.replace(&tcx, HookSet::all(), |_| {}), Ok(HookSet::all()));
}

#[test]
fn sets_of_ports_are_adopted_with_their_flows() {
    let flows = table(1024);
    let copies = megaflow(1, &[out(2), out(3)]);
    let again = megaflow(2, &[Action::PopVlan, Action::Recirc(1)]);
    install(&flows, &copies).unwrap();
    install(&flows, &again).unwrap();
    let Flows { maps, factors, .. } = flows;
    let (flows, found) =
        Flows::adopt(maps, Vec::new(), factors, Grace::Nobody, Clock::new()).unwrap();
    assert_eq!((found.flows, found.refused), (2, 0));
    assert!(flows.encodes_alike(copies.ufid, &copies.actions));
    // Another set under its number: the flow would send to other ports.
    let Flows { maps, factors, .. } = flows;
    let mut set = maps.port_sets.read(0);
    set.ports[1] = 7;
    maps.port_sets.write(0, &set);
    let (flows, found) =
        Flows::adopt(maps, Vec::new(), factors, Grace::Nobody, Clock::new()).unwrap();
    assert_eq!((found.flows, found.refused), (1, 1));
    assert!(flows.flow(again.ufid).is_some());
}

#[test]
fn a_full_table_has_room_after_removals() {
    let flows = table(1024);
    for id in 0..1024 {
        install(&flows, &megaflow(id, &[out(2)])).unwrap();
    }
    assert_eq!(install(&flows, &megaflow(5000, &[out(2)])), Err(Refusal::TableFull));
    let ufids: Vec<Ufid> = (0..512).map(|id| Ufid(id + 1)).collect();
    flows.remove_many(&ufids, &mut |_, _| {});
    install(&flows, &megaflow(5000, &[out(2)])).unwrap();
    assert_eq!(packet(&flows, &megaflow(5000, &[])), Some(2));
    assert_eq!(flows.len(), 513);
}

#[test]
fn what_there_is_no_room_for_is_said() {
    let flows = table(1024);
    let masked = |id: u32| {
        let mut flow = megaflow(id, &[out(2)]);
        flow.matching.set_masked(Field::EthSrc, 0, u128::from(id) << 1);
        flow
    };
    for id in 0..64 {
        install(&flows, &masked(id)).unwrap();
    }
    assert_eq!(install(&flows, &masked(64)), Err(Refusal::MasksFull));
    let programmed = |id: u32| {
        let set = Action::Set(datapath::Set::Priority(id));
        megaflow(1000 + id, &[set, out(2)])
    };
    for id in 0..64 {
        install(&flows, &programmed(id)).unwrap();
    }
    assert_eq!(install(&flows, &programmed(64)), Err(Refusal::ProgramsFull));
    assert_eq!(flows.len(), 128);
}

#[test]
fn sweeps_say_when_a_flow_was_used() {
    let flows = table(1024);
    flows.clock.stop();
    let flow = megaflow(7, &[out(2)]);
    install(&flows, &flow).unwrap();
    let sweep = || {
        let mut got = Vec::new();
        flows.sweep(&mut |_, stats| got.push((stats.packets, stats.used)));
        got
    };
    assert_eq!(sweep(), [(0, Millis(0))]);
    packet(&flows, &flow);
    flows.clock.advance(100);
    let then = flows.clock.now();
    assert_eq!(sweep(), [(1, then)]);
    flows.clock.advance(100);
    assert_eq!(sweep(), [(1, then)]);
    assert_eq!(flows.hits(), 1);
}

/// A program that moves counts and is held up in it leaves less to see for that long.
#[test]
fn statistics_never_go_back() {
    let flows = table(1024);
    let flow = megaflow(7, &[out(2)]);
    install(&flows, &flow).unwrap();
    let full = Recent { word: 65_536 << RECENT_PACKETS_SHIFT | 6_000_000 };
    flows.maps.recent.write(0, &full);
    let seen = flows.flow(flow.ufid).unwrap().stats;
    assert_eq!((seen.packets, seen.bytes), (65_536, 6_000_000));
    // Taken, and not yet added to the totals.
    let word = flows.maps.recent.word(0, 0);
    flows.maps.totals.write(0, &Totals { begun: 1, ..Totals::default() });
    word.store(1 << RECENT_SPILLED_SHIFT, Ordering::Relaxed);
    packet(&flows, &flow);
    let mut swept = Vec::new();
    flows.sweep(&mut |_, stats| swept.push((stats.packets, stats.bytes)));
    assert_eq!(swept, [(65_536, 6_000_000)]);
    assert_eq!((flows.flow(flow.ufid).unwrap().stats, flows.hits()), (seen, 65_536));
    let totals = Totals { packets: 65_536, bytes: 6_000_000, begun: 1, ended: 1 };
    flows.maps.totals.write(0, &totals);
    assert_eq!(flows.flow(flow.ufid).unwrap().stats.packets, 65_537);
    assert_eq!(flows.hits(), 65_537);
    assert_eq!(remove(&flows, flow.ufid).unwrap().packets, 65_537);
    flows.reclaim();
    assert_eq!((word.load(Ordering::Relaxed), flows.maps.totals.read(0)), Default::default());
}

/// The word `count` of an entry of the exact-match cache of CPU 1.
fn entry(flows: &Flows, way: usize) -> &AtomicU64 {
    flows.maps.moves.write(1, &Moves { turn: 2, pad: [0; 7] });
    let at = way * size_of::<EmcEntry>() + offset_of!(EmcEntry, count);
    flows.maps.emc.word(flows.maps.sizes.emc_lines as usize + 5, at)
}

/// Counts a packet of 60 bytes in an entry, as a program does.
fn count(flows: &Flows, way: usize, slot: u32) {
    let packet = entry(flows, way).load(Ordering::Relaxed) + (1 << EMC_PACKETS_SHIFT | 60);
    entry(flows, way).store(u64::from(slot) << EMC_SLOT_SHIFT | packet, Ordering::Relaxed);
}

/// Puts a flow into an entry, as a program does: the counts of the present one move to its word.
fn evict(flows: &Flows, way: usize, by: u32) {
    let had = entry(flows, way).swap(u64::from(by) << EMC_SLOT_SHIFT, Ordering::Relaxed);
    let slot = (had >> EMC_SLOT_SHIFT) as usize & (EMC_SLOTS as usize - 1);
    let (packets, bytes) = (
        (had & ((1 << EMC_SLOT_SHIFT) - 1)) >> EMC_PACKETS_SHIFT,
        had & ((1 << EMC_PACKETS_SHIFT) - 1),
    );
    let word = flows.maps.recent.word(flows.maps.sizes.flows as usize + slot, 0);
    word.fetch_add(packets << RECENT_PACKETS_SHIFT | bytes, Ordering::Relaxed);
}

#[test]
fn packets_in_entries_count_once() {
    let flows = table(1024);
    flows.clock.stop();
    let flow = megaflow(7, &[out(2)]);
    install(&flows, &flow).unwrap();
    let seen = || {
        let one = flows.flow(flow.ufid).unwrap().stats;
        let mut swept = Vec::new();
        flows.sweep(&mut |_, stats| swept.push(stats));
        assert_eq!(swept, [one]);
        assert_eq!(flows.dump()[0].1.stats, one);
        (one.packets, one.bytes, one.used)
    };
    let then = flows.clock.now();
    (0..2).for_each(|_| count(&flows, 0, 0)); // two keys of the flow
    count(&flows, 3, 0);
    assert_eq!(flows.flow_as_swept(flow.ufid).unwrap().stats.packets, 0);
    assert_eq!(seen(), (3, 180, then));
    assert_eq!(flows.flow_as_swept(flow.ufid).unwrap().stats.packets, 3);
    flows.clock.advance(100);
    evict(&flows, 0, 9);
    assert_eq!(seen(), (3, 180, then), "they came no later than they were seen");
    assert_eq!(flows.hits(), 3);
    // The replacement goes on with the counts of the old slot, wherever they are.
    let changed = Megaflow { actions: Actions::from([out(3)].as_slice()), ..flow.clone() };
    flows.replace(&changed, HookSet::all(), |_| {}).unwrap();
    count(&flows, 3, 0); // by a program that runs
    assert_eq!(seen().0, 4);
    count(&flows, 1, 1);
    assert_eq!(seen().0, 5);
    flows.reclaim();
    assert_eq!(seen().0, 5);
    count(&flows, 1, 1);
    assert_eq!(remove(&flows, flow.ufid).unwrap().packets, 6);
    let again = Megaflow { ufid: Ufid(99), ..flow.clone() };
    install(&flows, &again).unwrap();
    flows.replace(&Megaflow { ufid: Ufid(99), ..changed }, HookSet::all(), |_| {}).unwrap();
    count(&flows, 2, 2);
    assert_eq!(remove(&flows, Ufid(99)).unwrap().packets, 1, "of the slot that was replaced");
}

/// The next flow in a slot counts from zero, although an entry still names the slot.
#[test]
fn counts_in_entries_are_of_one_flow() {
    let flows = table(1024);
    let flow = megaflow(7, &[out(2)]);
    install(&flows, &flow).unwrap();
    count(&flows, 2, 0);
    assert_eq!(remove(&flows, flow.ufid).unwrap().packets, 1);
    flows.reclaim();
    let next = megaflow(8, &[out(2)]);
    install(&flows, &next).unwrap();
    assert_eq!(lookup(&flows, next.matching.key()), Some(0));
    let packets = || flows.flow(next.ufid).unwrap().stats.packets;
    assert_eq!(packets(), 0);
    evict(&flows, 2, 5);
    assert_eq!(packets(), 0);
    count(&flows, 1, 0);
    assert_eq!(packets(), 1);
}

/// Entries of a former daemon's programs keep their counts.
#[test]
fn counts_in_entries_outlive_the_daemon() {
    let flows = table(1024);
    let [gone, stays] = [7, 8].map(|id| megaflow(id, &[out(2)]));
    for (slot, flow) in [&gone, &stays].into_iter().enumerate() {
        install(&flows, flow).unwrap();
        count(&flows, slot, slot as u32);
    }
    flows.remove_many(&[gone.ufid], &mut |_, _| {});
    count(&flows, 0, 0); // as if the daemon had ended before it took the counts
    let Flows { maps, factors, clock, .. } = flows;
    let (flows, _) = Flows::adopt(maps, Vec::new(), factors, Grace::Nobody, clock).unwrap();
    assert_eq!(flows.flow_as_swept(stays.ufid).unwrap().stats.packets, 1);
    count(&flows, 1, 1);
    assert_eq!(flows.flow(stays.ufid).unwrap().stats.packets, 2);
    install(&flows, &gone).unwrap();
    assert_eq!(lookup(&flows, gone.matching.key()), Some(0));
    assert_eq!(flows.flow(gone.ufid).unwrap().stats.packets, 0);
    assert_eq!(remove(&flows, stays.ufid).unwrap().packets, 2);
}

#[test]
fn lines_that_are_no_longer_used_keep_their_counts() {
    let flows = table(1 << 16);
    let flow = megaflow(7, &[out(2)]);
    install(&flows, &flow).unwrap();
    assert!(flows.maps.fit_emc(40_000));
    flows.maps.moves.write(0, &Moves { turn: 2, pad: [0; 7] });
    let last = flows.maps.emc_used() as usize - 1;
    let word = flows.maps.emc.word(last, offset_of!(EmcEntry, count));
    word.store(1 << EMC_PACKETS_SHIFT | 60, Ordering::Relaxed);
    assert!(flows.maps.fit_emc(10));
    assert_eq!(flows.flow(flow.ufid).unwrap().stats.packets, 1);
}

#[test]
fn removed_slots_leave_the_cache() {
    let flows = table(1024);
    for id in 0..3 {
        install(&flows, &megaflow(id, &[out(2)])).unwrap();
    }
    let cache = flows.maps.cache.all_words();
    for (place, slot) in [(0, 0), (1, 1), (9, 0), (10, 70_000)] {
        cache[place].store(hash::entry(5, slot), Ordering::Relaxed);
    }
    remove(&flows, Ufid(1)).unwrap();
    flows.reclaim();
    let left: Vec<u64> = [0, 1, 9, 10].map(|p| cache[p].load(Ordering::Relaxed)).into();
    assert_eq!(left, [0, hash::entry(5, 1), 0, 0]);
}

fn adopt(maps: Arc<Maps>) -> (Flows, adopt::Adopted) {
    let factors = maps.config.read(0).factors;
    Flows::adopt(maps, Vec::new(), factors, Grace::Nobody, Clock::new()).unwrap()
}

#[test]
fn tables_are_taken_over_with_their_statistics() {
    let flows = table(1024);
    for id in 0..100 {
        let actions = if id % 2 == 0 { vec![out(2)] } else { vec![out(2), out(3)] };
        install(&flows, &megaflow(id, &actions)).unwrap();
    }
    packet(&flows, &megaflow(3, &[]));
    remove(&flows, Ufid(1)).unwrap();
    // One flow's slot is damaged.
    let damaged = flows.lock().by_ufid[&Ufid(2)];
    flows.maps.details.store_half(damaged as usize, offset_of!(SlotDetail, needs), 1);
    let (flows, found) = adopt(flows.maps);
    assert_eq!(found, adopt::Adopted { flows: 98, refused: 1 });
    assert_eq!(flows.flow(Ufid(4)).unwrap().stats.packets, 1);
    assert_eq!(flows.flow(Ufid(4)).unwrap().matching, megaflow(3, &[]).matching);
    assert!(flows.encodes_alike(Ufid(4), &[out(2), out(3)]));
    assert_eq!(packet(&flows, &megaflow(3, &[])), Some(crate::layout::NO_PORT));
    assert_eq!(install(&flows, &megaflow(3, &[out(2)])), Err(Refusal::Exists));
    for id in 1000..1000 + 926 {
        install(&flows, &megaflow(id, &[out(2)])).unwrap();
    }
    assert_eq!(flows.len(), 1024);
}

fn fill_with<T>(array: &crate::shared::Shared<T>, bytes: &[u64], any: u64)
where
    T: zerocopy::FromBytes + zerocopy::IntoBytes + zerocopy::Immutable + zerocopy::KnownLayout,
{
    for (i, word) in array.all_words().iter().enumerate() {
        if let Some(value) = bytes.get((i.wrapping_mul(31) ^ any as usize) % bytes.len().max(1)) {
            word.store(*value, Ordering::Relaxed);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_bytes_can_be_taken_over(
        words in proptest::collection::vec(prop_oneof![0..300u64, any::<u64>()], 1..50),
        seed: u64,
    ) {
        let maps = maps(1024);
        fill_with(&maps.slots, &words, seed);
        fill_with(&maps.masks, &words, seed >> 8);
        fill_with(&maps.index, &words, seed >> 16);
        fill_with(&maps.cache, &words, seed >> 24);
        fill_with(&maps.programs, &words, seed >> 32);
        maps.configure(&hash::factors());
        let (flows, _) = adopt(Arc::new(maps));
        for id in 0..50 {
            let _ = install(&flows, &megaflow(id, &[out(2), out(3)]));
        }
        flows.reclaim();
        flows.dump();
    }

    #[test]
    fn one_damaged_word_does_no_harm(array in 0..4usize, at: usize, value: u64, bit in 0..64u32, flip: bool) {
        let flows = table(1024);
        for id in 0..20 {
            install(&flows, &megaflow(id, &[out(2), out(3 + id % 3)])).unwrap();
        }
        let arrays = [
            &flows.maps.slots.all_words()[..20 * 32],
            &flows.maps.masks.all_words()[..42],
            flows.maps.index.all_words(),
            &flows.maps.programs.all_words()[..3 * PROGRAM_WORDS],
            &flows.maps.port_sets.all_words()[..3 * SET_WORDS],
        ];
        let words = arrays[array];
        let word = &words[at % words.len()];
        word.store(
            if flip { word.load(Ordering::Relaxed) ^ 1 << bit } else { value },
            Ordering::Relaxed,
        );
        let (flows, found) = adopt(flows.maps);
        prop_assert!(found.flows <= 20);
        flows.sweep(&mut |_, _| {});
        let ufids: Vec<Ufid> = flows.dump().into_iter().map(|(ufid, _)| ufid).collect();
        prop_assert_eq!(ufids.len(), found.flows);
        flows.remove_many(&ufids, &mut |_, _| {});
        flows.reclaim();
        flows.reclaim();
        for id in 0..1024 {
            install(&flows, &megaflow(id, &[out(2)])).unwrap();
        }
    }
}

#[test]
fn configurations_are_compared() {
    let maps = maps(1024);
    assert!(maps.configured().is_err(), "zero");
    maps.configure(&hash::factors());
    let good: ConfigEntry = maps.configured().unwrap();
    for change in [
        ConfigEntry { magic: 1, ..good },
        ConfigEntry { version: good.version + 1, ..good },
        ConfigEntry { max_flows: 2048, ..good },
        ConfigEntry { factors: [2; FACTORS], ..good },
    ] {
        maps.config.write(0, &change);
        assert!(maps.configured().is_err());
    }
}

#[test]
fn packet_threads_and_the_sweeper_at_one_time() {
    let flows = Arc::new(table(32_768));
    std::thread::scope(|scope| {
        for thread in 0..3u32 {
            let flows = flows.clone();
            scope.spawn(move || {
                for round in 0..20u32 {
                    let base = thread * 1000;
                    for id in base..base + 300 {
                        install(&flows, &megaflow(id, &[out(2), out(3 + round % 3)])).unwrap();
                    }
                    let ufids: Vec<Ufid> =
                        (base..base + 300).map(|id| Ufid(u128::from(id) + 1)).collect();
                    let mut removed = 0;
                    flows.remove_many(&ufids, &mut |_, _| removed += 1);
                    assert_eq!(removed, 300);
                }
            });
        }
        for _ in 0..50 {
            flows.reclaim();
            flows.sweep(&mut |_, _| {});
        }
    });
    flows.reclaim();
    flows.reclaim();
    assert_eq!((flows.len(), flows.masks()), (0, 0));
}

/// A program that compares everything but L4, and sends to one port.
fn narrow() -> Capabilities {
    use crate::layout::{Op, VERSION};
    let needs = crate::settings::ALL_WORDS & !(1 << word::TP);
    Capabilities { version: VERSION, pad: 0, needs, ops: 1 << Op::Output as u32 }
}

fn hooks(flows: &Flows, flow: &Megaflow) -> Option<HookSet> {
    flows.flow(flow.ufid).map(|held| held.hooks)
}

#[test]
fn a_limit_keeps_flows_from_xdp() {
    let flows = table(1024);
    flows.limit(PortNo(1), Some(narrow())).unwrap();
    let within = megaflow(1, &[out(2)]);
    assert_eq!(install(&flows, &within), Ok(HookSet::all()));
    assert_eq!(flows.suits_xdp(&within), Ok(()));
    let dropping = megaflow(2, &[]);
    assert_eq!(install(&flows, &dropping), Ok(HookSet::TC));
    assert_eq!(flows.suits_xdp(&dropping), Err(Refusal::UnsupportedAction));
    let mut deep = megaflow(3, &[out(2)]);
    deep.matching.set(Field::IpProto, 17);
    deep.matching.set(Field::UdpDst, 53);
    assert_eq!(install(&flows, &deep), Ok(HookSet::TC));
    assert_eq!(flows.suits_xdp(&deep), Err(Refusal::UnsupportedKey));
    let only_xdp = |flow: &Megaflow| flows.install(flow, HookSet::XDP, |_| {});
    assert_eq!(only_xdp(&megaflow(4, &[])), Err(Refusal::UnsupportedAction));
    // New actions are looked at as well.
    let more = megaflow(1, &[out(2), out(3)]);
    assert_eq!(flows.replace(&more, HookSet::all(), |_| {}), Ok(HookSet::TC));
    flows.limit(PortNo(1), None).unwrap();
    assert_eq!(flows.replace(&dropping, HookSet::all(), |_| {}), Ok(HookSet::all()));
}

#[test]
fn flows_that_are_there_leave_xdp_and_go_on_counting() {
    let flows = table(1024);
    let (within, dropping) = (megaflow(1, &[out(2)]), megaflow(2, &[]));
    let mut other_port = megaflow(3, &[]);
    other_port.matching.set(Field::InPort, 4);
    let vlan = Action::PushVlan { tpid: 0x8100, tci: 5 };
    let listed = megaflow(5, &[vlan, out(2)]);
    for flow in [&within, &dropping, &other_port, &listed] {
        assert_eq!(install(&flows, flow), Ok(HookSet::all()));
        packet(&flows, flow).unwrap();
    }
    flows.limit(PortNo(1), Some(narrow())).unwrap();
    assert_eq!(hooks(&flows, &within), Some(HookSet::all()));
    assert_eq!(hooks(&flows, &other_port), Some(HookSet::all()));
    for flow in [&dropping, &listed] {
        assert_eq!(hooks(&flows, flow), Some(HookSet::TC));
        assert!(flows.encodes_alike(flow.ufid, &flow.actions));
        packet(&flows, flow).unwrap();
        flows.reclaim();
        packet(&flows, flow).unwrap();
        assert_eq!(remove(&flows, flow.ufid).unwrap().packets, 3);
    }
    flows.reclaim();
    // Masks and programs have no users left that are not there.
    for flow in [&within, &other_port] {
        assert_eq!(remove(&flows, flow.ufid).unwrap().packets, 1);
    }
    flows.reclaim();
    flows.reclaim(); // masks go after their slots
    assert_eq!((flows.masks(), flows.lock().programs.len()), (0, 0));
}

#[derive(Clone, Debug)]
enum Event {
    Install(u32),
    Remove(u32),
    Replace(u32, u32),
    /// A packet that meets the flow now.
    Packet(u32),
    /// A packet that is counted on the slot that the flow had before it was replaced.
    LatePacket(u32),
    /// A program moves the recent counts of a flow to the totals.
    Spill(u32),
    Reclaim,
    Sweep,
}

fn event() -> impl Strategy<Value = Event> {
    let id = || 0u32..5;
    prop_oneof![
        3 => id().prop_map(Event::Install),
        1 => id().prop_map(Event::Remove),
        2 => (id(), 2u32..6).prop_map(|(id, port)| Event::Replace(id, port)),
        5 => id().prop_map(Event::Packet),
        2 => id().prop_map(Event::LatePacket),
        1 => id().prop_map(Event::Spill),
        1 => Just(Event::Reclaim),
        4 => Just(Event::Sweep),
    ]
}

proptest! {
    /// After a sweep of moved flows, what such sweeps have reported last are the counts of all flows.
    #[test]
    fn sweeps_of_moved_flows_leave_out_none_that_counted(
        events in proptest::collection::vec(event(), 1..120),
    ) {
        let flows = table(1024);
        let mut late = HashMap::new();
        let mut reported = HashMap::new();
        let slot_of = |id: u32| flows.lock().by_ufid.get(&Ufid(u128::from(id) + 1)).copied();
        let count = |slot: u32| {
            let word = flows.maps.recent.word(slot as usize, 0);
            word.fetch_add(1 << RECENT_PACKETS_SHIFT | 60, Ordering::Relaxed);
        };
        for event in events {
            match event {
                Event::Install(id) => {
                    let _ = install(&flows, &megaflow(id, &[out(2)])); // it may be there
                }
                Event::Remove(id) => {
                    remove(&flows, Ufid(u128::from(id) + 1));
                    reported.remove(&Ufid(u128::from(id) + 1));
                    late.remove(&id);
                }
                Event::Replace(id, port) => {
                    let Some(old) = slot_of(id) else { continue };
                    let flow = megaflow(id, &[out(port)]);
                    flows.replace(&flow, HookSet::all(), |_| {}).unwrap();
                    if slot_of(id) != Some(old) {
                        late.insert(id, old);
                    }
                }
                Event::Packet(id) => slot_of(id).into_iter().for_each(count),
                Event::LatePacket(id) => late.get(&id).copied().into_iter().for_each(count),
                Event::Spill(id) => {
                    let Some(slot) = slot_of(id) else { continue };
                    let word = flows.maps.recent.word(slot as usize, 0);
                    let (recent, _) = stats::recent(&flows.maps, slot, Ordering::Relaxed);
                    let mut totals = flows.maps.totals.read(slot as usize);
                    totals.packets += recent.packets;
                    totals.bytes += recent.bytes;
                    totals.begun += 1;
                    totals.ended += 1;
                    flows.maps.totals.write(slot as usize, &totals);
                    word.store(1 << RECENT_SPILLED_SHIFT, Ordering::Relaxed);
                }
                Event::Reclaim => {
                    flows.reclaim();
                    late.clear(); // no program has these slots any more
                }
                Event::Sweep => {
                    flows.sweep_moved(&mut |ufid, stats| {
                        reported.insert(ufid, (stats.packets, stats.bytes));
                    });
                    for (ufid, held) in flows.dump() {
                        let counts = (held.stats.packets, held.stats.bytes);
                        prop_assert_eq!(reported.get(&ufid), Some(&counts));
                    }
                }
            }
        }
    }
}

#[test]
fn a_flow_that_does_not_count_does_not_move() {
    let flows = table(1024);
    let (one, two) = (megaflow(1, &[out(2)]), megaflow(2, &[out(2)]));
    install(&flows, &one).unwrap();
    install(&flows, &two).unwrap();
    let moved = || {
        let mut moved = Vec::new();
        flows.sweep_moved(&mut |ufid, stats| moved.push((ufid, stats.packets)));
        moved
    };
    assert_eq!(moved(), [(one.ufid, 0), (two.ufid, 0)], "they are new");
    assert_eq!(moved(), []);
    packet(&flows, &two);
    flows.sweep(&mut |_, _| {});
    assert_eq!(moved(), [(two.ufid, 1)], "another sweep hides nothing");
    assert_eq!(moved(), []);
}

// SPDX-License-Identifier: Apache-2.0
//! A model of how slots are published, removed and used again (`src/flows.rs`), run under
//! shuttle: programs on two CPUs, one daemon, and every order of their steps that a random
//! scheduler finds. Each rule is also left out once, to see that the model finds what then goes
//! wrong.

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use shuttle::thread;

#[path = "support/model.rs"]
mod model;

use model::goes_wrong;

const SLOTS: usize = 2;
const READERS: usize = 2;
/// Two flows; the action of each is known from its key.
const KEYS: [u32; 2] = [1, 2];

fn action_of(key: u32) -> u32 {
    key * 10
}

/// The daemon's steps between taking a flow's number out of the index and using its slot.
#[derive(Clone, Copy)]
struct Rules {
    wait_for_index: bool,
    scrub: bool,
    wait_for_cache: bool,
    /// Raises the slot's epoch.
    raise: bool,
    /// Programs read the epoch before they check whether the slot is dead.
    epoch_first: bool,
}

const ALL: Rules = Rules {
    wait_for_index: true,
    scrub: true,
    wait_for_cache: true,
    raise: true,
    epoch_first: true,
};

#[derive(Default)]
struct Slot {
    key: AtomicU32,
    action: AtomicU32,
    dead: AtomicU32,
    packets: AtomicU32,
    epoch: AtomicU32,
    /// How often a flow in it was removed or replaced.
    removals: AtomicUsize,
}

/// An entry of a CPU's exact-match cache; no other CPU has it.
#[derive(Clone, Copy)]
struct Exact {
    key: u32,
    number: usize,
    action: u32,
    epoch: u32,
    /// Removals from the slot until then.
    since: usize,
}

#[derive(Default)]
struct Tables {
    slots: [Slot; SLOTS],
    /// Slot number + 1, for each key.
    index: [AtomicUsize; 2],
    /// One entry that both keys fall on.
    cache: AtomicUsize,
    /// Odd: a program runs.
    running: [AtomicUsize; READERS],
    /// Packets that each flow took, by the forwarding thread.
    forwarded: [AtomicU32; 2],
    /// Packets in final statistics.
    counted: [AtomicU32; 2],
}

impl Tables {
    /// A program: the comparisons in the order that is worst.
    fn packet(&self, cpu: usize, which: usize, exact: &mut Option<Exact>, rules: Rules) {
        self.running[cpu].fetch_add(1, SeqCst);
        if !self.try_exact(*exact, which) {
            let cached = self.cache.load(SeqCst);
            *exact = self.try_slot(cached, which, rules);
            if exact.is_none() {
                let indexed = self.index[which].load(SeqCst);
                *exact = self.try_slot(indexed, which, rules);
                if exact.is_some() {
                    self.cache.store(indexed, SeqCst);
                }
            }
        }
        self.running[cpu].fetch_add(1, SeqCst);
    }

    fn try_exact(&self, exact: Option<Exact>, which: usize) -> bool {
        let Some(exact) = exact.filter(|exact| exact.key == KEYS[which]) else { return false };
        let slot = &self.slots[exact.number];
        let began = slot.removals.load(SeqCst);
        if slot.epoch.load(SeqCst) != exact.epoch {
            return false;
        }
        assert!(exact.since >= began, "a flow that was removed before the packet came");
        slot.packets.fetch_add(1, SeqCst);
        self.forwarded[which].fetch_add(1, SeqCst);
        assert_eq!(exact.action, action_of(exact.key), "another flow's action");
        true
    }

    /// Takes the flow of `entry` when it is the packet's; what the exact-match cache is then given.
    fn try_slot(&self, entry: usize, which: usize, rules: Rules) -> Option<Exact> {
        let (key, number) = (KEYS[which], entry.checked_sub(1)?);
        let slot = &self.slots[number];
        let since = slot.removals.load(SeqCst);
        let before = slot.epoch.load(SeqCst);
        if slot.key.load(SeqCst) != key || slot.dead.load(SeqCst) != 0 {
            return None;
        }
        slot.packets.fetch_add(1, SeqCst);
        self.forwarded[which].fetch_add(1, SeqCst);
        let action = slot.action.load(SeqCst);
        assert_eq!(action, action_of(key), "another flow's action");
        let epoch = if rules.epoch_first { before } else { slot.epoch.load(SeqCst) };
        Some(Exact { key, number, action, epoch, since })
    }

    /// Marks a slot dead.
    fn kill(&self, number: usize, rules: Rules) {
        let slot = &self.slots[number];
        slot.dead.store(1, SeqCst);
        if rules.raise {
            slot.epoch.fetch_add(1, SeqCst);
        }
        slot.removals.fetch_add(1, SeqCst);
    }

    /// Every program that runs now has ended.
    fn grace(&self) {
        for cpu in &self.running {
            let now = cpu.load(SeqCst);
            while now % 2 == 1 && cpu.load(SeqCst) == now {
                thread::yield_now();
            }
        }
    }

    fn install(&self, number: usize, which: usize) {
        let slot = &self.slots[number];
        slot.key.store(KEYS[which], SeqCst);
        slot.action.store(action_of(KEYS[which]), SeqCst);
        slot.dead.store(0, SeqCst);
        self.index[which].store(number + 1, SeqCst);
    }

    fn remove(&self, number: usize, which: usize, rules: Rules) {
        let slot = &self.slots[number];
        self.index[which].store(0, SeqCst);
        self.kill(number, rules);
        if rules.wait_for_index {
            self.grace();
        }
        self.counted[which].fetch_add(slot.packets.load(SeqCst), SeqCst);
        if rules.scrub {
            let _ = self.cache.compare_exchange(number + 1, 0, SeqCst, SeqCst);
        }
        if rules.wait_for_cache {
            self.grace();
        }
        slot.packets.store(0, SeqCst);
    }

    /// A new slot takes over the index entry; what the old one counted is added.
    fn replace(&self, old: usize, new: usize, which: usize, rules: Rules) {
        self.install(new, which);
        self.kill(old, rules);
        if rules.wait_for_index {
            self.grace();
        }
        let late = self.slots[old].packets.load(SeqCst);
        self.counted[which].fetch_add(late, SeqCst);
        if rules.scrub {
            let _ = self.cache.compare_exchange(old + 1, 0, SeqCst, SeqCst);
        }
        if rules.wait_for_cache {
            self.grace();
        }
        self.slots[old].packets.store(0, SeqCst);
    }
}

fn scene(rules: Rules, replace: bool) {
    let tables = Arc::new(Tables::default());
    tables.slots.iter().for_each(|slot| slot.dead.store(1, SeqCst));
    let readers: Vec<_> = (0..READERS)
        .map(|cpu| {
            let tables = tables.clone();
            thread::spawn(move || {
                let mut exact = [None; 2];
                (0..8).for_each(|i| {
                    let which = (cpu + i) % 2;
                    tables.packet(cpu, which, &mut exact[which], rules);
                });
            })
        })
        .collect();
    // The same slots serve one flow after the other.
    for which in [0, 1, 0] {
        tables.install(0, which);
        if replace {
            tables.replace(0, 1, which, rules);
            tables.replace(1, 0, which, rules);
        }
        tables.remove(0, which, rules);
    }
    for reader in readers {
        reader.join().unwrap();
    }
    for which in 0..2 {
        let forwarded = tables.forwarded[which].load(SeqCst);
        assert_eq!(tables.counted[which].load(SeqCst), forwarded, "statistics were not final");
    }
}

fn found_wrong(rules: Rules) -> bool {
    goes_wrong(50_000, move || scene(rules, false))
}

#[test]
fn no_packet_meets_a_half_written_or_recycled_flow_and_statistics_are_final() {
    shuttle::check_random(|| scene(ALL, true), 5_000);
    shuttle::check_random(|| scene(ALL, false), 20_000);
    shuttle::check_pct(|| scene(ALL, true), 2_000, 3);
    // Without any one of the rules the model shows what goes wrong.
    assert!(found_wrong(Rules { wait_for_index: false, ..ALL }));
    assert!(found_wrong(Rules { scrub: false, ..ALL }));
    assert!(found_wrong(Rules { wait_for_cache: false, ..ALL }));
    assert!(found_wrong(Rules { raise: false, ..ALL }));
    assert!(found_wrong(Rules { epoch_first: false, ..ALL }));
}

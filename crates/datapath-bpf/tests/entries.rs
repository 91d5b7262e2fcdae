// SPDX-License-Identifier: Apache-2.0
//! A model of how counts go from a CPU's exact-match cache to their flows' words (`bpf/emc.h`) while
//! a thread reads both, and takes the last counts of a flow (`src/flows/entries.rs`), run under
//! shuttle. Each rule is also left out once, to check that the model finds the resulting error.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};
use shuttle::thread;

#[path = "support/model.rs"]
mod model;

use model::goes_wrong;

/// In an entry, its flow is above its count.
const FLOW: u32 = 8;
const COUNT: u64 = (1 << FLOW) - 1;

#[derive(Clone, Copy)]
struct Rules {
    /// A program empties an entry before it adds the counts to the word,
    entry_first: bool,
    /// by an exchange.
    exchange: bool,
    /// A reader reads words before entries.
    words_first: bool,
    /// The daemon takes the last counts out of the entry,
    take: bool,
    /// by compare and swap,
    swap: bool,
    /// and waits until the program that moves counts has ended that.
    wait: bool,
}

const ALL: Rules = Rules {
    entry_first: true,
    exchange: true,
    words_first: true,
    take: true,
    swap: true,
    wait: true,
};

/// A CPU whose cache has one entry, which two flows want.
#[derive(Default)]
struct Cpu {
    entry: AtomicU64,
    turn: AtomicU64,
    words: [AtomicU64; 2],
    /// Flow 0 is dead.
    dead: AtomicU64,
    /// Odd: a program runs.
    running: AtomicU64,
    /// Packets that came to flows that were alive, and those that are counted.
    came: [AtomicU64; 2],
    counted: [AtomicU64; 2],
}

fn add(to: &AtomicU64, amount: u64) {
    to.store(to.load(SeqCst) + amount, SeqCst);
}

impl Cpu {
    fn packet(&self, flow: usize, rules: Rules) {
        self.running.fetch_add(1, SeqCst);
        if flow == 1 || self.dead.load(SeqCst) == 0 {
            self.came[flow].fetch_add(1, SeqCst);
            if self.entry.load(SeqCst) >> FLOW == flow as u64 {
                add(&self.entry, 1);
            } else {
                self.evict(flow, rules);
                add(&self.words[flow], 1);
            }
            self.counted[flow].fetch_add(1, SeqCst);
        }
        self.running.fetch_add(1, SeqCst);
    }

    fn evict(&self, by: usize, rules: Rules) {
        let to = (by as u64) << FLOW;
        add(&self.turn, 1);
        let mut had = self.entry.load(SeqCst);
        if !rules.entry_first {
            add(&self.words[(had >> FLOW) as usize], had & COUNT);
        }
        if rules.exchange {
            had = self.entry.swap(to, SeqCst);
        } else {
            self.entry.store(to, SeqCst);
        }
        if rules.entry_first {
            add(&self.words[(had >> FLOW) as usize], had & COUNT);
        }
        add(&self.turn, 1);
    }

    /// Packets in the entry of a flow.
    fn in_entry(&self, flow: usize) -> u64 {
        let entry = self.entry.load(SeqCst);
        if entry >> FLOW == flow as u64 { entry & COUNT } else { 0 }
    }

    fn read(&self, flow: usize, rules: Rules) -> u64 {
        if rules.words_first {
            let word = self.words[flow].load(SeqCst);
            word + self.in_entry(flow)
        } else {
            let entry = self.in_entry(flow);
            entry + self.words[flow].load(SeqCst)
        }
    }

    /// Takes the counts of flow 0 out of its entry.
    fn take(&self, rules: Rules) -> u64 {
        let entry = self.entry.load(SeqCst);
        let is_taken = entry >> FLOW == 0
            && if rules.swap {
                self.entry.compare_exchange(entry, 0, SeqCst, SeqCst).is_ok()
            } else {
                self.entry.store(0, SeqCst);
                true
            };
        if rules.wait {
            let begun = self.turn.load(SeqCst);
            while begun % 2 == 1 && self.turn.load(SeqCst) == begun {
                thread::yield_now();
            }
        }
        if is_taken { entry & COUNT } else { 0 }
    }

    /// Every program that runs now has ended.
    fn grace(&self) {
        let now = self.running.load(SeqCst);
        while now % 2 == 1 && self.running.load(SeqCst) == now {
            thread::yield_now();
        }
    }
}

fn scene(rules: Rules) {
    let cpu = Arc::new(Cpu::default());
    let writer = {
        let cpu = cpu.clone();
        thread::spawn(move || [0, 0, 1, 1, 0, 0, 1, 1].map(|flow| cpu.packet(flow, rules)))
    };
    for flow in [0, 1, 0, 1, 0, 1] {
        let packets = cpu.read(flow, rules);
        assert!(packets <= cpu.came[flow].load(SeqCst), "more than came");
    }
    cpu.dead.store(1, SeqCst);
    cpu.grace();
    let taken = if rules.take { cpu.take(rules) } else { cpu.in_entry(0) };
    let last = taken + cpu.words[0].load(SeqCst);
    assert_eq!(last, cpu.came[0].load(SeqCst), "the last counts");
    // The next flow in the slot.
    cpu.grace();
    cpu.words[0].store(0, SeqCst);
    writer.join().unwrap();
    cpu.evict(1, rules);
    assert_eq!(cpu.words[0].load(SeqCst), 0, "the next flow has the last one's packets");
    assert_eq!(cpu.read(1, rules), cpu.counted[1].load(SeqCst));
}

fn found_wrong(rules: Rules) -> bool {
    goes_wrong(100_000, move || scene(rules))
}

#[test]
fn packets_count_once_wherever_they_are() {
    shuttle::check_random(|| scene(ALL), 20_000);
    shuttle::check_pct(|| scene(ALL), 5_000, 3);
    assert!(found_wrong(Rules { entry_first: false, ..ALL }));
    assert!(found_wrong(Rules { exchange: false, ..ALL }));
    assert!(found_wrong(Rules { words_first: false, ..ALL }));
    assert!(found_wrong(Rules { take: false, ..ALL }));
    assert!(found_wrong(Rules { swap: false, ..ALL }));
    assert!(found_wrong(Rules { wait: false, ..ALL }));
}

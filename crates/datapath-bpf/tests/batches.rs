// SPDX-License-Identifier: Apache-2.0
//! A model of how packets go from a CPU's batch to their flows' words (`bpf/flow_count.h`) while a
//! thread reads both and uses a slot again (`src/flows/batches.rs`), run under shuttle. Each rule
//! is also left out once, to check that the model finds the resulting error.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};
use shuttle::thread;

#[path = "support/model.rs"]
mod model;

use model::goes_wrong;

const BATCH: usize = 2;
const FLOWS: usize = 2;
/// In an entry, above its flow's number: it is a packet, and the bit of its batch.
const PACKET: u64 = 1 << 8;
const TURN: u32 = 9;
const READS: usize = 3;

#[derive(Clone, Copy)]
struct Rules {
    /// A CPU marks the begin of its addition of a batch before it,
    begin: bool,
    /// and marks the end after it.
    end_last: bool,
    /// Entries say which batch they are of.
    bit: bool,
    /// A reader of a flow checks again whether its packets wait.
    again: bool,
    /// A slot that the batch names is not used again.
    linger: bool,
}

const ALL: Rules = Rules { begin: true, end_last: true, bit: true, again: true, linger: true };

#[derive(Default)]
struct Cpu {
    turn: AtomicU64,
    entries: [AtomicU64; BATCH],
    words: [AtomicU64; FLOWS],
    /// Packets that came, and that are noted.
    came: [AtomicU64; FLOWS],
    noted: [AtomicU64; FLOWS],
}

/// The waiting packets of one flow.
struct Batched {
    turn: u64,
    packets: u64,
}

impl Cpu {
    fn packet(&self, cursor: &mut usize, flow: usize, rules: Rules) {
        self.came[flow].fetch_add(1, SeqCst);
        let bit = if rules.bit { self.turn.load(SeqCst) >> 1 & 1 } else { 0 };
        self.entries[*cursor % BATCH].store(flow as u64 | PACKET | bit << TURN, SeqCst);
        *cursor += 1;
        if cursor.is_multiple_of(BATCH) {
            self.add_batch(rules);
        }
        self.noted[flow].fetch_add(1, SeqCst);
    }

    fn add_batch(&self, rules: Rules) {
        let turn = self.turn.load(SeqCst);
        if rules.begin {
            self.turn.store(turn + 1, SeqCst);
        }
        if !rules.end_last {
            self.turn.store(turn + 2, SeqCst);
        }
        for entry in &self.entries {
            let word = &self.words[(entry.load(SeqCst) & 0xff) as usize];
            word.store(word.load(SeqCst) + 1, SeqCst);
        }
        self.turn.store(turn + 2, SeqCst);
    }

    /// Entries that are overwritten meanwhile were added.
    fn batched(&self, flow: usize, rules: Rules) -> Batched {
        let turn = self.turn.load(SeqCst);
        let bit = if rules.bit { turn >> 1 & 1 } else { 0 };
        let wanted = flow as u64 | PACKET | bit << TURN;
        let packets = self.entries.iter().filter(|e| e.load(SeqCst) == wanted).count() as u64;
        Batched { turn: turn & !1, packets }
    }

    /// `None`: a program is adding them.
    fn waiting(&self, batched: &Batched) -> Option<u64> {
        match self.turn.load(SeqCst) - batched.turn {
            0 => Some(batched.packets),
            1 => None,
            _ => Some(0),
        }
    }

    /// Packets of a flow, and whether these are all.
    fn read(&self, flow: usize, rules: Rules) -> (u64, bool) {
        let batched = self.batched(flow, rules);
        let mut sum = 0;
        for _ in 0..READS {
            let before = self.waiting(&batched);
            sum = self.words[flow].load(SeqCst);
            let after = if rules.again { self.waiting(&batched) } else { before };
            sum += after.unwrap_or(0);
            if before.is_some() && before == after {
                return (sum, true);
            }
        }
        (sum, false)
    }
}

fn scene(rules: Rules) {
    let cpu = Arc::new(Cpu::default());
    let writer = {
        let cpu = cpu.clone();
        thread::spawn(move || {
            let mut cursor = 0;
            // Flow 0 ends with a packet that waits, which flow 1's packets take along.
            for flow in [0, 1, 0, 0, 0] {
                cpu.packet(&mut cursor, flow, rules);
            }
            thread::yield_now();
            for flow in [1, 1, 1] {
                cpu.packet(&mut cursor, flow, rules);
            }
        })
    };
    let mut all = 0;
    for _ in 0..3 {
        for flow in 0..FLOWS {
            let noted = cpu.noted[flow].load(SeqCst);
            let (packets, is_all) = cpu.read(flow, rules);
            assert!(packets <= cpu.came[flow].load(SeqCst), "more than came");
            assert!(!is_all || packets >= noted, "less than was noted");
        }
        all = cpu.noted[0].load(SeqCst);
    }
    // A grace period: flow 0 is removed, and no program that runs notes packets of it.
    if all == 4 {
        let may_name = cpu.batched(0, rules).packets > 0;
        if !may_name || !rules.linger {
            cpu.words[0].store(0, SeqCst);
            writer.join().unwrap();
            assert_eq!(cpu.words[0].load(SeqCst), 0, "the next flow has the last one's packets");
            return;
        }
    }
    writer.join().unwrap();
    assert_eq!([0, 1].map(|flow| cpu.read(flow, rules)), [(4, true), (4, true)]);
}

fn found_wrong(rules: Rules) -> bool {
    goes_wrong(100_000, move || scene(rules))
}

#[test]
fn packets_count_once_wherever_they_are() {
    shuttle::check_random(|| scene(ALL), 20_000);
    shuttle::check_pct(|| scene(ALL), 5_000, 3);
    assert!(found_wrong(Rules { begin: false, ..ALL }));
    assert!(found_wrong(Rules { end_last: false, ..ALL }));
    assert!(found_wrong(Rules { bit: false, ..ALL }));
    assert!(found_wrong(Rules { again: false, ..ALL }));
    assert!(found_wrong(Rules { linger: false, ..ALL }));
}

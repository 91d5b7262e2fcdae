// SPDX-License-Identifier: Apache-2.0
//! A model of how recent counts of flows are moved to their totals (`bpf/flow_count.h`) while a
//! thread reads both (`src/flows/stats.rs`), run under shuttle. Each rule is also left out once, to
//! check that the model finds the resulting error.

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};
use shuttle::thread;

#[path = "support/model.rs"]
mod model;

use model::goes_wrong;

/// A word: packets, the top bit of their count, a bit that says spilled, a flag of each writer.
const PACKETS: u64 = 0xff;
const FULL: u64 = 2;
const SPILLED: u64 = 1 << 8;
const FLAGS: [u64; 2] = [1 << 9, 1 << 10];
const EACH: u64 = 4;

#[derive(Clone, Copy)]
struct Rules {
    /// The CPU that spills a shared word exchanges it.
    exchange: bool,
    /// That CPU puts flags back that others have set.
    put_back: bool,
    /// A word is taken before the totals have what was in it.
    word_first: bool,
    /// A reader checks whether a CPU spilled meanwhile,
    compare: bool,
    /// by the spills that had ended before and had begun after.
    ended_first: bool,
    /// It reads totals before words.
    totals_first: bool,
}

const ALL: Rules = Rules {
    exchange: true,
    put_back: true,
    word_first: true,
    compare: true,
    ended_first: true,
    totals_first: true,
};

#[derive(Default)]
struct Flow {
    words: [AtomicU64; 2],
    packets: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
    /// Packets that came, and that are counted.
    came: AtomicU64,
    counted: AtomicU64,
}

impl Flow {
    fn packet(&self, word: &AtomicU64, is_shared: bool, flag: u64, rules: Rules) {
        self.came.fetch_add(1, SeqCst);
        let mut now = if is_shared { word.fetch_add(1, SeqCst) } else { word.load(SeqCst) } + 1;
        if !is_shared {
            word.store(now | flag, SeqCst);
        } else if flag & !now != 0 {
            word.fetch_or(flag, SeqCst);
        }
        now &= PACKETS;
        self.counted.fetch_add(1, SeqCst);
        if now >= FULL {
            self.spill(word, is_shared, rules);
        }
    }

    fn spill(&self, word: &AtomicU64, is_shared: bool, rules: Rules) {
        self.begun.fetch_add(1, SeqCst);
        let mut had = word.load(SeqCst);
        if !rules.word_first {
            self.packets.fetch_add(had & PACKETS, SeqCst);
        }
        let flags = FLAGS[0] | FLAGS[1];
        let left = had & flags | SPILLED;
        if is_shared && rules.exchange {
            had = word.swap(left, SeqCst);
            if rules.put_back {
                word.fetch_or(had & flags, SeqCst);
            }
        } else {
            word.store(left, SeqCst);
        }
        if rules.word_first {
            self.packets.fetch_add(had & PACKETS, SeqCst);
        }
        self.ended.fetch_add(1, SeqCst);
    }

    fn words(&self) -> (u64, u64) {
        let words = self.words.each_ref().map(|word| word.load(SeqCst));
        (words.iter().map(|word| word & PACKETS).sum(), words[0] | words[1])
    }

    /// Returns packets and flags, and whether no CPU spilled meanwhile.
    fn read(&self, rules: Rules) -> (u64, u64, bool) {
        let (mut packets, mut rest) = self.words();
        if rest & SPILLED == 0 {
            return (packets, rest, true);
        }
        for _ in 0..2 {
            let (first, last) = match rules.ended_first {
                true => (&self.ended, &self.begun),
                false => (&self.begun, &self.ended),
            };
            let first = first.load(SeqCst);
            let before = self.packets.load(SeqCst);
            (packets, rest) = self.words();
            packets += if rules.totals_first { before } else { self.packets.load(SeqCst) };
            if !rules.compare || last.load(SeqCst) == first {
                return (packets, rest, true);
            }
        }
        (packets, rest, false)
    }
}

fn scene(rules: Rules, is_shared: bool) {
    let flow = Arc::new(Flow::default());
    let writers = [0, 1].map(|writer| {
        let flow = flow.clone();
        thread::spawn(move || {
            let word = &flow.words[if is_shared { 0 } else { writer }];
            (1..EACH).for_each(|_| flow.packet(word, is_shared, 0, rules));
            flow.packet(word, is_shared, FLAGS[writer], rules); // no other sets it again
        })
    });
    for _ in 0..3 {
        let counted = flow.counted.load(SeqCst);
        let (packets, _, is_exact) = flow.read(rules);
        assert!(packets <= flow.came.load(SeqCst), "more than came");
        assert!(!is_exact || packets >= counted, "less than was counted");
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let (packets, rest, is_exact) = flow.read(rules);
    assert_eq!((packets, is_exact), (2 * EACH, true));
    assert_eq!(rest & (FLAGS[0] | FLAGS[1]), FLAGS[0] | FLAGS[1]);
}

fn found_wrong(rules: Rules, is_shared: bool) -> bool {
    goes_wrong(100_000, move || scene(rules, is_shared))
}

#[test]
fn nothing_is_lost_nor_read_twice_while_counts_are_moved() {
    for is_shared in [false, true] {
        shuttle::check_random(move || scene(ALL, is_shared), 20_000);
        shuttle::check_pct(move || scene(ALL, is_shared), 5_000, 3);
        assert!(found_wrong(Rules { word_first: false, ..ALL }, is_shared));
        assert!(found_wrong(Rules { compare: false, ..ALL }, is_shared));
        assert!(found_wrong(Rules { ended_first: false, ..ALL }, is_shared));
        assert!(found_wrong(Rules { totals_first: false, ..ALL }, is_shared));
    }
    assert!(found_wrong(Rules { exchange: false, ..ALL }, true));
    assert!(found_wrong(Rules { put_back: false, ..ALL }, true));
}

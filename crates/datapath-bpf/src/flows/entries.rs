// SPDX-License-Identifier: Apache-2.0
//! Counts in entries of the exact-match caches. `bpf/layout.h` has their form, and the order in
//! which programs move them to the words and totals of their flows.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use hashbrown::HashMap;

use super::count::FlowCount;
use super::stats::Reads;
use crate::layout::{EMC_PACKETS_SHIFT, EMC_SLOT_SHIFT, EMC_SLOTS, EmcEntry, Moves};
use crate::maps::Maps;

/// Bits of the counts in an entry.
const COUNTS: u64 = (1 << EMC_SLOT_SHIFT) - 1;
/// Number of checks whether a program has moved counts. A move takes some 100 ns, and longer when
/// it is interrupted.
const CHECKS: u32 = 1 << 16;

/// Numbers of some slots.
#[derive(Clone, Debug)]
pub(super) struct SlotSet(Vec<u64>);

impl SlotSet {
    /// Returns the set of these of `len` slots.
    pub(super) fn new(slots: impl IntoIterator<Item = u32>, len: usize) -> SlotSet {
        let mut set = SlotSet(vec![0; len.div_ceil(64)]);
        slots.into_iter().for_each(|slot| set.insert(slot));
        set
    }

    /// Adds a slot, which must be below the set's length.
    pub(super) fn insert(&mut self, slot: u32) {
        if let Some(bits) = self.0.get_mut(slot as usize / 64) {
            *bits |= 1 << (slot % 64);
        }
    }

    /// Takes a slot out.
    pub(super) fn remove(&mut self, slot: u32) {
        if let Some(bits) = self.0.get_mut(slot as usize / 64) {
            *bits &= !(1 << (slot % 64));
        }
    }

    /// Returns whether a slot is in the set; `None`: there is no such slot.
    pub(super) fn has(&self, slot: u32) -> Option<bool> {
        self.0.get(slot as usize / 64).map(|bits| bits >> (slot % 64) & 1 != 0)
    }
}

/// Counts by slot.
pub(super) type Counts = HashMap<u32, FlowCount, foldhash::fast::RandomState>;

fn slot_of(word: u64) -> u32 {
    (word >> EMC_SLOT_SHIFT) as u32 & (EMC_SLOTS - 1)
}

fn count_of(word: u64) -> FlowCount {
    let packets = (word & COUNTS) >> EMC_PACKETS_SHIFT;
    FlowCount { packets, bytes: word & ((1 << EMC_PACKETS_SHIFT) - 1), tcp_flags: 0 }
}

fn turn(maps: &Maps, cpu: usize) -> &AtomicU64 {
    maps.moves.word(cpu, offset_of!(Moves, turn))
}

/// Calls `each` with the word of each entry that has counts, and with its present value.
fn each_word(maps: &Maps, mut each: impl FnMut(&AtomicU64, u64)) {
    const WORDS: usize = size_of::<EmcEntry>() / 8;
    let lines = maps.sizes.emc_lines as usize;
    let reach = maps.emc_reach().min(maps.sizes.emc_lines) as usize;
    for cpu in 0..maps.sizes.cpus as usize {
        if turn(maps, cpu).load(Ordering::Relaxed) == 0 {
            continue;
        }
        for line in cpu * lines..cpu * lines + reach {
            let words = maps.emc.words(line).iter();
            for word in words.skip(offset_of!(EmcEntry, count) / 8).step_by(WORDS) {
                let value = word.load(Ordering::Relaxed);
                if value & COUNTS != 0 {
                    each(word, value);
                }
            }
        }
    }
}

/// The counts of slots that [`read`] fills in.
trait Places {
    /// Returns the place of a slot's counts; `None`: they are not wanted.
    fn place(&mut self, slot: u32) -> Option<&mut FlowCount>;
}

impl Places for [FlowCount] {
    fn place(&mut self, slot: u32) -> Option<&mut FlowCount> {
        self.get_mut(slot as usize)
    }
}

impl Places for Counts {
    fn place(&mut self, slot: u32) -> Option<&mut FlowCount> {
        self.get_mut(&slot)
    }
}

/// Reads the counts of `slots`: first their words and totals, then the entries of all CPUs, which
/// takes milliseconds, and then the words and totals again. Counts that a program has moved in
/// between are in neither of the first two. (Where one CPU moved and another did not, a part is missing
/// until the next read.)
fn read(
    maps: &Maps,
    slots: impl Iterator<Item = u32> + Clone,
    counts: &mut (impl Places + ?Sized),
) {
    let added = |slot| FlowCount::added(maps, slot, Reads::Some);
    for slot in slots.clone() {
        if let Some(count) = counts.place(slot) {
            *count = added(slot);
        }
    }
    fence(Ordering::Acquire);
    each_word(maps, |_, value| {
        if let Some(count) = counts.place(slot_of(value)) {
            count.add(&count_of(value));
        }
    });
    for slot in slots {
        if let Some(count) = counts.place(slot) {
            *count = count.at_least(&added(slot));
        }
    }
}

/// Reads the counts of all slots, of which those not `in_use` have none. See [`read`].
pub(super) fn read_all(maps: &Maps, in_use: &SlotSet, counts: &mut [FlowCount]) {
    let slots = 0..counts.len() as u32; // there are at most EMC_SLOTS
    read(maps, slots.filter(|slot| in_use.has(*slot) == Some(true)), counts);
}

/// Reads the counts of some slots. See [`read`].
pub(super) fn read_some(maps: &Maps, slots: &[u32]) -> Counts {
    let mut counts: Counts = slots.iter().map(|slot| (*slot, FlowCount::default())).collect();
    read(maps, slots.iter().copied(), &mut counts);
    counts
}

/// Takes the counts out of all entries of some slots, on which no program counts any more, and
/// returns them. Programs that were moving counts of these slots have ended that.
pub(super) fn take(maps: &Maps, slots: &[u32]) -> Counts {
    let mut taken = Counts::default();
    let some = SlotSet::new(slots.iter().copied(), maps.slots.len());
    each_word(maps, |word, value| {
        if some.has(slot_of(value)) == Some(true) {
            let left = value & !COUNTS;
            // Otherwise a program has moved them meanwhile.
            if word.compare_exchange(value, left, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                taken.entry(slot_of(value)).or_default().add(&count_of(value));
            }
        }
    });
    fence(Ordering::SeqCst);
    (0..maps.sizes.cpus as usize).for_each(|cpu| wait_for_move(maps, cpu));
    taken
}

/// Waits until a CPU has ended the move that it has begun.
fn wait_for_move(maps: &Maps, cpu: usize) {
    let begun = turn(maps, cpu).load(Ordering::Acquire);
    let is_under_way = || begun % 2 == 1 && turn(maps, cpu).load(Ordering::Acquire) == begun;
    for _ in 0..CHECKS {
        if !is_under_way() {
            return;
        }
        std::thread::yield_now();
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Packets that are not in their flows' words yet: the contents of the CPUs' batches.
//! `bpf/layout.h` has the form of a batch, and the order in which programs write it.
//!
//! Batches are for many flows, whose words are in no cache. With 256 K flows at XDP a CPU forwards
//! 11 to 19 % more packets with them than when it counts each packet at once, with 64 K about as
//! many (measured on a reduced copy of the lookup). With 16 K or fewer it forwards 1 to 2 % less,
//! so then it counts at once.

use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::count::FlowCount;
use crate::layout::{BATCH_BYTES_SHIFT, BATCH_TURN_SHIFT, Batch, EMC_SLOTS, TCP_FLAGS_SHIFT};
use crate::maps::Maps;

/// Packets of one slot in the batch of one CPU.
#[derive(Clone, Copy, Debug)]
struct Share {
    slot: u32,
    cpu: u32,
    /// The batch's `turn` until it is added.
    turn: u64,
    count: FlowCount,
}

/// Contents of the batches of all CPUs, by slot.
#[derive(Debug)]
pub(crate) struct Batches(Vec<Share>);

impl Batches {
    /// Reads the present contents of the batches.
    pub(crate) fn read(maps: &Maps) -> Batches {
        let mut shares = Vec::new();
        (0..maps.sizes.cpus).for_each(|cpu| read_one(maps, cpu, &mut shares));
        shares.sort_unstable_by_key(|share| share.slot);
        Batches(shares)
    }

    /// Returns the packets of all slots.
    pub(crate) fn all(&self) -> Batched<'_> {
        Batched(&self.0)
    }

    /// Returns true when packets of a slot may still be added to its words, provided that no
    /// program notes more of them.
    pub(crate) fn may_name(&self, slot: u32) -> bool {
        !self.all().of(slot).is_empty()
    }
}

/// Packets of some slots that were in batches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Batched<'a>(&'a [Share]);

impl<'a> Batched<'a> {
    /// Returns the packets of these slots.
    pub(crate) fn within(self, slots: Range<u32>) -> Batched<'a> {
        let from = |slot| self.0.partition_point(|share| share.slot < slot);
        Batched(self.0.get(from(slots.start)..from(slots.end)).unwrap_or_default())
    }

    /// Returns the packets of one slot.
    #[inline]
    pub(crate) fn of(self, slot: u32) -> Batched<'a> {
        if self.is_empty() { self } else { self.within(slot..slot.saturating_add(1)) }
    }

    /// Returns true when there are no packets.
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Returns the counts that still wait, and the number of waiting packets. The number is `None`
    /// while a program is adding a batch, because the state of its packets is uncertain.
    pub(crate) fn waiting(self, maps: &Maps) -> (FlowCount, Option<u64>) {
        let (mut sum, mut is_sure) = (FlowCount::default(), true);
        for share in self.0 {
            match turn(maps, share.cpu).load(Ordering::Acquire).wrapping_sub(share.turn) {
                0 => sum.add(&share.count),
                1 => is_sure = false,
                _ => {} // it was added
            }
        }
        (sum, is_sure.then_some(sum.packets))
    }
}

fn turn(maps: &Maps, cpu: u32) -> &AtomicU64 {
    maps.batches.word(cpu as usize, offset_of!(Batch, turn))
}

/// Adds the contents of the batch of `cpu`. An entry that is overwritten meanwhile was added to its
/// flow's words before.
fn read_one(maps: &Maps, cpu: u32, shares: &mut Vec<Share>) {
    if maps.batches.word(cpu as usize, offset_of!(Batch, cursor)).load(Ordering::Relaxed) == 0 {
        return;
    }
    let now = turn(maps, cpu).load(Ordering::Acquire);
    let entries = &maps.batches.words(cpu as usize)[offset_of!(Batch, entries) / 8..];
    for entry in entries {
        let entry = entry.load(Ordering::Acquire);
        let is_of_turn = entry >> BATCH_TURN_SHIFT & 1 == now >> 1 & 1;
        if entry != 0 && is_of_turn {
            let (slot, count) = taken_apart(entry);
            shares.push(Share { slot, cpu, turn: now & !1, count });
        }
    }
}

fn taken_apart(entry: u64) -> (u32, FlowCount) {
    const BYTES: u64 = (1 << (BATCH_TURN_SHIFT - BATCH_BYTES_SHIFT)) - 1;
    let slot = entry as u32 & (EMC_SLOTS - 1);
    let bytes = entry >> BATCH_BYTES_SHIFT & BYTES;
    (slot, FlowCount { packets: 1, bytes, tcp_flags: (entry >> TCP_FLAGS_SHIFT) as u16 })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::attachment::Config;
    use crate::layout::BATCH;
    use crate::maps::Sizes;

    pub(in super::super) fn maps() -> Maps {
        Maps::private(Sizes::new(&Config { max_flows: 1024, ..Config::default() }, 2))
    }

    /// Returns an entry as programs make it.
    pub(in super::super) fn entry(slot: u64, bytes: u64, flags: u64, batch: u64) -> u64 {
        slot | bytes << BATCH_BYTES_SHIFT
            | (batch & 1) << BATCH_TURN_SHIFT
            | flags << TCP_FLAGS_SHIFT
    }

    /// Returns a batch that holds `some` entries.
    pub(in super::super) fn batch(turn: u64, some: &[u64]) -> Batch {
        let mut entries = [0; BATCH];
        entries.iter_mut().zip(some).for_each(|(to, from)| *to = *from);
        Batch { cursor: some.len() as u64, turn, entries, ..Batch::default() }
    }

    #[test]
    fn slots_are_found_by_their_numbers() {
        let maps = maps();
        maps.batches.write(0, &batch(0, &[9, 3, 5, 3].map(|slot| entry(slot, 60, 0, 0))));
        maps.batches.write(1, &batch(0, &[entry(3, 60, 0, 0)]));
        let batches = Batches::read(&maps);
        let count = |some: Batched<'_>| some.waiting(&maps).0.packets;
        assert_eq!(count(batches.all()), 5);
        assert_eq!([2, 3, 4, 5, 9].map(|slot| count(batches.all().of(slot))), [0, 3, 0, 1, 1]);
        assert_eq!(count(batches.all().within(4..9)), 1);
        assert!(batches.all().within(6..9).is_empty());
    }
}

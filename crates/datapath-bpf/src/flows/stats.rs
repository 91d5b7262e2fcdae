// SPDX-License-Identifier: Apache-2.0
//! Statistics of slots, over the shards of CPUs. `bpf/layout.h` has their form, and the order in
//! which programs write them.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use super::count::FlowCount;
use super::entries;
use crate::layout::{RECENT_PACKETS_SHIFT, RECENT_SPILLED_SHIFT, TCP_FLAGS_SHIFT, Totals};
use crate::maps::Maps;

/// The number of reads of counts that a program is moving. A move takes some 100 ns, and
/// longer when it is interrupted. If the last read is uncertain too, its
/// counts are too low.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reads {
    /// A later read of the flow will correct the counts.
    Some = 16,
    /// No later read of the flow follows.
    Last = 1 << 14,
}

impl Reads {
    /// Returns the first count for which `read` reports that no counts were moved meanwhile, else
    /// the last count.
    fn until_sure(self, read: impl Fn() -> (FlowCount, bool)) -> FlowCount {
        let mut last = FlowCount::default();
        for _ in 0..self as usize {
            let (count, is_sure) = read();
            last = count;
            if is_sure {
                break;
            }
            std::hint::spin_loop();
        }
        last
    }
}

impl FlowCount {
    /// Returns the counts of a slot. While a program takes long to move counts, the result may be
    /// too low, but never too high.
    pub fn of_slot(maps: &Maps, slot: u32) -> FlowCount {
        entries::read_some(maps, &[slot]).remove(&slot).unwrap_or_default()
    }

    /// Returns the counts in a slot's words and totals. Those in entries of the exact-match caches
    /// are missing.
    #[inline]
    pub(super) fn added(maps: &Maps, slot: u32, reads: Reads) -> FlowCount {
        // Any order will do: while no word is marked as spilled, each has all counts of its shard.
        let (count, is_spilled) = recent(maps, slot, Ordering::Relaxed);
        if is_spilled { FlowCount::with_totals(maps, slot, reads) } else { count }
    }

    #[cold]
    fn with_totals(maps: &Maps, slot: u32, reads: Reads) -> FlowCount {
        let totals = |offset| maps.totals.word(slot as usize, offset).load(Ordering::Acquire);
        reads.until_sure(|| {
            // Each load is done before the next one.
            let ended = totals(offset_of!(Totals, ended));
            let mut sum = FlowCount {
                packets: totals(offset_of!(Totals, packets)),
                bytes: totals(offset_of!(Totals, bytes)),
                tcp_flags: 0,
            };
            sum.add(&recent(maps, slot, Ordering::Acquire).0);
            (sum, totals(offset_of!(Totals, begun)) == ended)
        })
    }
}

/// Returns the words of a slot, one for each shard.
#[inline]
fn words(maps: &Maps, slot: u32) -> impl Iterator<Item = &AtomicU64> {
    let (words, flows) = (maps.recent.all_words(), maps.sizes.flows as usize);
    let mut at = slot as usize;
    std::iter::from_fn(move || {
        let word = words.get(at)?;
        at += flows;
        Some(word)
    })
}

/// Returns the sum of the counts in the words, and whether one of the words was spilled.
#[inline]
fn sum(words: impl Iterator<Item = u64>) -> (FlowCount, bool) {
    const PACKETS: u64 = (1 << (RECENT_SPILLED_SHIFT - RECENT_PACKETS_SHIFT)) - 1;
    const BYTES: u64 = (1 << RECENT_PACKETS_SHIFT) - 1;
    let (mut packets, mut bytes, mut bits) = (0, 0, 0);
    for word in words {
        packets += word >> RECENT_PACKETS_SHIFT & PACKETS; // there are at most 2^16
        bytes += word & BYTES;
        bits |= word;
    }
    let tcp_flags = (bits >> TCP_FLAGS_SHIFT) as u16; // 12 bits
    (FlowCount { packets, bytes, tcp_flags }, bits >> RECENT_SPILLED_SHIFT & 1 != 0)
}

/// Returns the recent counts of a slot, and whether one of its words was spilled.
#[inline]
pub(super) fn recent(maps: &Maps, slot: u32, order: Ordering) -> (FlowCount, bool) {
    sum(words(maps, slot).map(|word| word.load(order)))
}

/// Sets the statistics of a slot to zero. No program counts on the slot.
pub(crate) fn clear(maps: &Maps, slot: u32) {
    words(maps, slot).for_each(|word| word.store(0, Ordering::Relaxed));
    maps.totals.zero(slot as usize);
}

#[cfg(test)]
mod tests {
    use super::super::tests::maps;
    use super::*;
    use crate::layout::Recent;

    const PACKET: u64 = 1 << RECENT_PACKETS_SHIFT;
    const SPILLED: u64 = 1 << RECENT_SPILLED_SHIFT;

    fn count(packets: u64, bytes: u64, tcp_flags: u16) -> FlowCount {
        FlowCount { packets, bytes, tcp_flags }
    }

    #[test]
    fn a_word_has_flags_packets_and_bytes() {
        let of = |word| sum([word].into_iter());
        assert_eq!(of(0), (count(0, 0, 0), false));
        assert_eq!(of(3 * PACKET + 180), (count(3, 180, 0), false));
        assert_eq!(of(PACKET - 1), (count(0, (1 << 34) - 1, 0), false));
        assert_eq!(of(SPILLED - PACKET), (count((1 << 17) - 1, 0, 0), false));
        assert_eq!(of(SPILLED), (count(0, 0, 0), true));
        assert_eq!(of(0x012 << TCP_FLAGS_SHIFT), (count(0, 0, 0x012), false));
        assert_eq!(of(u64::MAX), (count((1 << 17) - 1, (1 << 34) - 1, 0xfff), true));
    }

    #[test]
    fn totals_count_when_some_shard_says_so() {
        let maps = maps(1024);
        assert_eq!(maps.sizes.shards, 2);
        maps.totals.write(5, &Totals { packets: 70_000, bytes: 9_000_000, begun: 2, ended: 2 });
        let set = |shard: usize, word| maps.recent.write(shard * 1024 + 5, &Recent { word });
        set(0, (2 * PACKET + 120) | (0x002 << TCP_FLAGS_SHIFT));
        assert_eq!(FlowCount::of_slot(&maps, 5), count(2, 120, 0x002));
        set(1, (SPILLED + PACKET + 60) | (0x010 << TCP_FLAGS_SHIFT));
        assert_eq!(FlowCount::of_slot(&maps, 5), count(70_003, 9_000_180, 0x012));
        // Somebody began and does not end: this takes an end all the same.
        maps.totals.write(5, &Totals { packets: 70_000, bytes: 9_000_000, begun: 3, ended: 2 });
        assert_eq!(FlowCount::of_slot(&maps, 5), count(70_003, 9_000_180, 0x012));
        clear(&maps, 5);
        assert_eq!(FlowCount::of_slot(&maps, 5), FlowCount::default());
        assert_eq!(maps.totals.read(5), Totals::default());
    }
}

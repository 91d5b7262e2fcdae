//! Statistics of slots, over the shards of CPUs. `bpf/layout.h` has their form, and the order in which
//! programs write them.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use clock::Millis;
use datapath::FlowStats;

use crate::layout::{RECENT_PACKETS_SHIFT, RECENT_SPILLED_SHIFT, Recent, TCP_FLAGS_SHIFT, Totals};
use crate::maps::Maps;

/// How often a flow is read whose counts are just moved, which takes a program some 100 ns. What was
/// read the last time is too little then.
const READS: usize = 16;

/// What flows counted, over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCount {
    /// Packets.
    pub packets: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Their TCP flags, ORed.
    pub tcp_flags: u16,
}

impl From<Recent> for FlowCount {
    fn from(Recent { word }: Recent) -> FlowCount {
        let packets = RECENT_SPILLED_SHIFT - RECENT_PACKETS_SHIFT;
        FlowCount {
            packets: word >> RECENT_PACKETS_SHIFT & ((1 << packets) - 1),
            bytes: word & ((1 << RECENT_PACKETS_SHIFT) - 1),
            tcp_flags: (word >> TCP_FLAGS_SHIFT) as u16, // 12 bits
        }
    }
}

impl Recent {
    /// The slot's totals are not zero.
    fn is_spilled(self) -> bool {
        self.word >> RECENT_SPILLED_SHIFT & 1 != 0
    }
}

impl FlowCount {
    /// What a slot counted. While a program moves counts to the totals, and goes on with it for long,
    /// it may be less, but never more.
    pub fn of_slot(maps: &Maps, slot: u32) -> FlowCount {
        let (recent, is_spilled) = of_late(maps, slot);
        if !is_spilled {
            return recent; // nothing was ever moved, as of each word
        }
        let totals = |offset| maps.totals.word(slot as usize, offset).load(Ordering::Acquire);
        let mut sum = FlowCount::default();
        for _ in 0..READS {
            // Each load is done before the next one.
            let ended = totals(offset_of!(Totals, ended));
            sum = FlowCount {
                packets: totals(offset_of!(Totals, packets)),
                bytes: totals(offset_of!(Totals, bytes)),
                tcp_flags: 0,
            };
            sum.add(&of_late(maps, slot).0);
            if totals(offset_of!(Totals, begun)) == ended {
                break;
            }
            std::hint::spin_loop();
        }
        sum
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &FlowCount) {
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.tcp_flags |= other.tcp_flags;
    }

    /// The same, but nothing is less than in `other`.
    pub fn at_least(&self, other: &FlowCount) -> FlowCount {
        FlowCount {
            packets: self.packets.max(other.packets),
            bytes: self.bytes.max(other.bytes),
            tcp_flags: self.tcp_flags | other.tcp_flags,
        }
    }

    /// As a datapath tells it.
    pub fn told(&self, used: Millis) -> FlowStats {
        FlowStats { packets: self.packets, bytes: self.bytes, used, tcp_flags: self.tcp_flags }
    }
}

/// The places of a slot's words.
fn places(maps: &Maps, slot: u32) -> impl Iterator<Item = usize> + use<> {
    let flows = maps.sizes.flows as usize;
    (0..maps.sizes.shards as usize).map(move |shard| shard * flows + slot as usize)
}

/// What a slot's words have, and whether some of them was spilled.
fn of_late(maps: &Maps, slot: u32) -> (FlowCount, bool) {
    let (mut sum, mut is_spilled) = (FlowCount::default(), false);
    for at in places(maps, slot) {
        let recent = Recent { word: maps.recent.word(at, 0).load(Ordering::Acquire) };
        sum.add(&recent.into());
        is_spilled |= recent.is_spilled();
    }
    (sum, is_spilled)
}

/// Makes a slot's statistics zero; no program counts on it.
pub fn clear(maps: &Maps, slot: u32) {
    places(maps, slot).for_each(|at| maps.recent.zero(at));
    maps.totals.zero(slot as usize);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::Config;
    use crate::maps::Sizes;

    const PACKET: u64 = 1 << RECENT_PACKETS_SHIFT;
    const SPILLED: u64 = 1 << RECENT_SPILLED_SHIFT;

    fn maps() -> Maps {
        Maps::private(Sizes::new(&Config { max_flows: 1024, ..Config::default() }, 2))
    }

    fn count(packets: u64, bytes: u64, tcp_flags: u16) -> FlowCount {
        FlowCount { packets, bytes, tcp_flags }
    }

    #[test]
    fn a_word_has_flags_packets_and_bytes() {
        let of = |word| (FlowCount::from(Recent { word }), Recent { word }.is_spilled());
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
        let maps = maps();
        assert_eq!(maps.sizes.shards, 2);
        maps.totals.write(5, &Totals { packets: 70_000, bytes: 9_000_000, begun: 2, ended: 2 });
        let set = |shard: usize, word| maps.recent.write(shard * 1024 + 5, &Recent { word });
        set(0, 2 * PACKET + 120 | 0x002 << TCP_FLAGS_SHIFT);
        assert_eq!(FlowCount::of_slot(&maps, 5), count(2, 120, 0x002));
        set(1, SPILLED + PACKET + 60 | 0x010 << TCP_FLAGS_SHIFT);
        assert_eq!(FlowCount::of_slot(&maps, 5), count(70_003, 9_000_180, 0x012));
        // Somebody began and does not end: this takes an end all the same.
        maps.totals.write(5, &Totals { packets: 70_000, bytes: 9_000_000, begun: 3, ended: 2 });
        assert_eq!(FlowCount::of_slot(&maps, 5), count(70_003, 9_000_180, 0x012));
        clear(&maps, 5);
        assert_eq!(FlowCount::of_slot(&maps, 5), FlowCount::default());
        assert_eq!(maps.totals.read(5), Totals::default());
    }
}

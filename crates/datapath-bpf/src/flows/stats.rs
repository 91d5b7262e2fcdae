//! Statistics of slots, over the shards of CPUs.

use std::sync::atomic::Ordering;

use clock::Millis;
use datapath::FlowStats;

use crate::layout::{FlowStatsEntry, TCP_FLAGS_SHIFT};
use crate::maps::Maps;

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

impl From<FlowStatsEntry> for FlowCount {
    fn from(entry: FlowStatsEntry) -> FlowCount {
        FlowCount {
            packets: entry.packets & ((1 << TCP_FLAGS_SHIFT) - 1),
            bytes: entry.bytes,
            tcp_flags: (entry.packets >> TCP_FLAGS_SHIFT) as u16, // 12 bits
        }
    }
}

/// The places of a slot's statistics.
fn places(maps: &Maps, slot: u32) -> impl Iterator<Item = usize> + use<> {
    let flows = maps.sizes.flows as usize;
    (0..maps.sizes.shards as usize).map(move |shard| shard * flows + slot as usize)
}

/// What a slot counted.
pub fn of_slot(maps: &Maps, slot: u32) -> FlowCount {
    let mut sum = FlowCount::default();
    for at in places(maps, slot) {
        if let [packets, bytes] = maps.stats.words(at) {
            let [packets, bytes] = [packets, bytes].map(|word| word.load(Ordering::Relaxed));
            add(&mut sum, &FlowStatsEntry { packets, bytes }.into());
        }
    }
    sum
}

/// Makes a slot's statistics zero; no program counts on it.
pub fn clear(maps: &Maps, slot: u32) {
    places(maps, slot).for_each(|at| maps.stats.zero(at));
}

/// Adds `other` to `sum`.
pub fn add(sum: &mut FlowCount, other: &FlowCount) {
    sum.packets = sum.packets.wrapping_add(other.packets);
    sum.bytes = sum.bytes.wrapping_add(other.bytes);
    sum.tcp_flags |= other.tcp_flags;
}

/// As a datapath tells them.
pub fn flow_stats(count: &FlowCount, used: Millis) -> FlowStats {
    FlowStats { packets: count.packets, bytes: count.bytes, used, tcp_flags: count.tcp_flags }
}

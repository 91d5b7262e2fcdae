//! Statistics of slots, over the shards of CPUs.

use std::sync::atomic::Ordering;

use clock::Millis;
use datapath::FlowStats;

use crate::layout::FlowCount;
use crate::maps::Maps;

/// The places of a slot's statistics.
fn places(maps: &Maps, slot: u32) -> impl Iterator<Item = usize> + use<> {
    let flows = maps.sizes.flows as usize;
    (0..maps.sizes.shards as usize).map(move |shard| shard * flows + slot as usize)
}

/// What a slot counted.
pub fn of_slot(maps: &Maps, slot: u32) -> FlowCount {
    let mut sum = FlowCount::default();
    for at in places(maps, slot) {
        if let [packets, bytes, tcp_flags, ..] = maps.stats.words(at) {
            sum.packets = sum.packets.wrapping_add(packets.load(Ordering::Relaxed));
            sum.bytes = sum.bytes.wrapping_add(bytes.load(Ordering::Relaxed));
            sum.tcp_flags |= tcp_flags.load(Ordering::Relaxed);
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
    FlowStats {
        packets: count.packets,
        bytes: count.bytes,
        used,
        tcp_flags: (count.tcp_flags & 0xfff) as u16,
    }
}

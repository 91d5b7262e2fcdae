// SPDX-License-Identifier: Apache-2.0
//! Policers, which do the work of meters.

use crate::encode::{Refused, no_action};
use datapath::MeterConfig;
use netdev::police::TICKS;
use netlink::attribute::{array, find};

pub use netdev::police::{Policer, Rate};

/// Counts of a policer, as the kernel shows them with each of its filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PolicerCounts {
    /// Packets that met it.
    pub packets: u64,
    /// Their bytes, as the driver counts them.
    pub bytes: u64,
    /// Packets that it dropped.
    pub drops: u64,
    /// Filters that share it.
    pub filters: u32,
}

/// Returns the policer for a meter.
///
/// # Errors
///
/// No policer limits as the meter does.
pub fn of(index: u32, config: &MeterConfig) -> Result<Policer, Refused> {
    let [band] = &config.bands[..] else {
        return Err(no_action("a policer of TC has one rate, and the meter has not one band"));
    };
    let burst = if band.burst == 0 { band.rate } else { band.burst };
    let ticks = (u64::from(burst) * TICKS).checked_div(band.rate.into());
    let burst = ticks.ok_or_else(|| no_action("a policer of TC has no rate of zero"))?;
    if config.packets {
        return Ok(Policer { index, rate: Rate::Packets(band.rate.into()), burst });
    }
    if burst > u32::MAX.into() {
        return Err(no_action("a policer of TC has a burst of 274 seconds at most"));
    }
    // Kilobits.
    Ok(Policer { index, rate: Rate::Bytes(u64::from(band.rate) * 125), burst })
}

/// `TCA_STATS_QUEUE` in the statistics of an action: the third word has the drops.
const QUEUE: u16 = 3;

/// Reads index and counts of a policer: the options of the action and its statistics.
pub(crate) fn counts(options: &[u8], stats: &[u8]) -> Option<(u32, PolicerCounts)> {
    let (index, filters) = Policer::uses(options)?;
    let drops = find(stats, QUEUE).and_then(|value| value.get(8..)).and_then(array);
    let all = crate::filter::counts_of(stats);
    let counts = PolicerCounts {
        packets: all.packets,
        bytes: all.bytes,
        drops: drops.map_or(0, u32::from_ne_bytes).into(),
        filters,
    };
    Some((index, counts))
}

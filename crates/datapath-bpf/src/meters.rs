// SPDX-License-Identifier: Apache-2.0
//! Meters in the shared array. `struct meter` has a rate as the time that a bit or a packet
//! takes, and a burst as the time that a full bucket lasts.

use datapath::{MeterBand, MeterConfig, MeterStats, Refusal};

use crate::layout::{self, METER_BANDS, Meter};
use crate::shared::Shared;

/// Picoseconds in a second.
const SECOND: u64 = 1_000_000_000_000;

/// Returns a band's time for one unit (picoseconds) and burst (nanoseconds). `None` for the rate 0:
/// its bucket is never full again, and no time expresses that.
fn band(config: &MeterBand, per_packet: bool) -> Option<(u64, u64)> {
    let units = if per_packet { 1 } else { 1000 };
    let burst = if config.burst == 0 { config.rate } else { config.burst };
    bucket(u64::from(config.rate) * units, u64::from(burst) * units)
}

/// Returns the time for one unit (picoseconds) and for the whole burst (nanoseconds) of a bucket, by its
/// rate in units per second and its burst in units. `None` for the rate 0.
pub(crate) fn bucket(rate: u64, burst: u64) -> Option<(u64, u64)> {
    let cost = SECOND.checked_div(rate)?.max(1);
    let burst = u128::from(burst) * u128::from(cost) / 1000;
    Some((cost, u64::try_from(burst).unwrap_or(u64::MAX >> 1).min(u64::MAX >> 1)))
}

/// Sets a meter, with statistics from zero.
///
/// # Errors
///
/// Refuses a number or a list of bands that is too large, and a rate of zero. The meter is then as
/// it was.
pub(crate) fn set(meters: &Shared<Meter>, id: u32, config: &MeterConfig) -> Result<(), Refusal> {
    if id as usize >= meters.len() || config.bands.len() > METER_BANDS {
        return Err(Refusal::UnsupportedAction);
    }
    let at = id as usize;
    let mut meter = Meter { in_use: 1, per_packet: config.packets.into(), ..Meter::default() };
    for (to, from) in meter.bands.iter_mut().zip(&config.bands) {
        let (cost, depth) = band(from, config.packets).ok_or(Refusal::UnsupportedAction)?;
        *to = layout::MeterBand { cost, depth, ..layout::MeterBand::default() };
    }
    // Not in use while it is written: its first word is written last.
    meters.store_half(at, 0, 0);
    meters.write(at, &meter);
    Ok(())
}

/// Removes a meter. Packets of flows that name it pass.
pub(crate) fn remove(meters: &Shared<Meter>, id: u32) {
    if (id as usize) < meters.len() {
        meters.store_half(id as usize, 0, 0);
    }
}

/// Returns the counters of a meter and of its first `bands` bands. `None`: it is not set.
pub(crate) fn stats(meters: &Shared<Meter>, id: u32, bands: usize) -> Option<MeterStats> {
    if id as usize >= meters.len() {
        return None;
    }
    let meter = meters.read(id as usize);
    (meter.in_use != 0).then(|| MeterStats {
        packets: meter.packets,
        bytes: meter.bytes,
        bands: meter.bands.iter().take(bands).map(|b| (b.packets, b.bytes)).collect(),
        ..MeterStats::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_times() {
        let of = |rate, burst, packets| band(&MeterBand { rate, burst }, packets);
        assert_eq!(of(1000, 0, false), Some((1_000_000, 1_000_000_000)));
        assert_eq!(of(8, 16, false), Some((125_000_000, 2_000_000_000)));
        assert_eq!(of(10, 3, true), Some((100_000_000_000, 300_000_000)));
        assert_eq!(of(0, 5, true), None);
        assert_eq!(of(u32::MAX, 0, false).map(|(cost, _)| cost), Some(1));
    }

    #[test]
    fn meters_come_and_go() {
        let meters = Shared::private(4);
        let config = MeterConfig { packets: true, bands: vec![MeterBand { rate: 1, burst: 2 }] };
        assert_eq!(set(&meters, 4, &config), Err(Refusal::UnsupportedAction));
        let stuck = MeterConfig { packets: true, bands: vec![MeterBand { rate: 0, burst: 2 }] };
        assert_eq!(set(&meters, 3, &stuck), Err(Refusal::UnsupportedAction));
        assert_eq!(stats(&meters, 3, 1), None);
        set(&meters, 3, &config).unwrap();
        assert_eq!(stats(&meters, 3, 1).unwrap().bands, [(0, 0)]);
        remove(&meters, 3);
        assert_eq!(stats(&meters, 3, 1), None);
    }
}

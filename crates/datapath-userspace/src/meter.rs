// SPDX-License-Identifier: Apache-2.0
//! Meters: token buckets on the datapath's clock, as [`datapath::MeterConfig`] defines them.

use clock::Millis;
use datapath::{MeterBand, MeterConfig, MeterStats};

/// Tokens are counted in thousandths of a bit or of a packet. So `rate` tokens per second are
/// `rate` thousandths per millisecond, and no fraction is lost.
const SCALE: u64 = 1000;

struct Bucket {
    band: MeterBand,
    /// Tokens per second.
    rate: u64,
    /// Thousandths of tokens in the bucket.
    full: u64,
    level: u64,
}

/// One meter.
pub(crate) struct Meter {
    packets: bool,
    buckets: Vec<Bucket>,
    filled: Millis,
    stats: MeterStats,
}

impl Meter {
    pub(crate) fn new(config: &MeterConfig, now: Millis) -> Meter {
        // Rates and bursts are in kilobits or packets.
        let unit = if config.packets { 1 } else { 1000 };
        let buckets = config.bands.iter().map(|band| {
            let burst = if band.burst == 0 { band.rate } else { band.burst };
            let full = u64::from(burst) * unit * SCALE;
            Bucket { band: *band, rate: u64::from(band.rate) * unit, full, level: full }
        });
        Meter {
            packets: config.packets,
            buckets: buckets.collect(),
            filled: now,
            stats: MeterStats {
                bands: vec![(0, 0); config.bands.len()],
                since: now,
                ..MeterStats::default()
            },
        }
    }

    /// Returns true when a packet of `bytes` bytes may pass at `now`.
    pub(crate) fn pass(&mut self, bytes: usize, now: Millis) -> bool {
        let bytes = bytes as u64;
        let elapsed = now.since(self.filled);
        self.filled = self.filled.max(now);
        self.stats.packets += 1;
        self.stats.bytes += bytes;
        let cost = if self.packets { SCALE } else { bytes * 8 * SCALE };
        let mut exceeded: Option<(u32, usize)> = None;
        for (i, bucket) in self.buckets.iter_mut().enumerate() {
            let gain = bucket.rate.saturating_mul(elapsed);
            bucket.level = bucket.level.saturating_add(gain).min(bucket.full);
            if bucket.level >= cost {
                bucket.level -= cost;
            } else if exceeded.is_none_or(|(rate, _)| bucket.band.rate > rate) {
                exceeded = Some((bucket.band.rate, i));
            }
        }
        let Some((_, band)) = exceeded else {
            return true;
        };
        if let Some((packets, dropped)) = self.stats.bands.get_mut(band) {
            *packets += 1;
            *dropped += bytes;
        }
        false
    }

    pub(crate) fn stats(&self) -> MeterStats {
        self.stats.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_a_second_with_a_burst() {
        let config = MeterConfig { packets: true, bands: vec![MeterBand { rate: 2, burst: 3 }] };
        let mut m = Meter::new(&config, Millis(1));
        let passed = |m: &mut Meter, now| (0..5).filter(|_| m.pass(118, Millis(now))).count();
        assert_eq!(passed(&mut m, 1), 3);
        assert_eq!(passed(&mut m, 601), 1);
        assert_eq!(passed(&mut m, 1001), 1);
        assert_eq!(passed(&mut m, 100_000), 3);
        assert_eq!(m.stats().bands, [(12, 12 * 118)]);
        assert_eq!((m.stats().packets, m.stats().bytes), (20, 20 * 118));
    }

    #[test]
    fn the_highest_exceeded_band_counts() {
        let bands = vec![MeterBand { rate: 1, burst: 1 }, MeterBand { rate: 2, burst: 2 }];
        let mut m = Meter::new(&MeterConfig { packets: true, bands }, Millis(1));
        assert!(m.pass(1, Millis(1)));
        assert!(!m.pass(1, Millis(1)));
        assert!(!m.pass(1, Millis(1)));
        assert_eq!(m.stats().bands, [(1, 1), (1, 1)]);
    }

    #[test]
    fn kilobits() {
        let config = MeterConfig { packets: false, bands: vec![MeterBand { rate: 8, burst: 0 }] };
        let mut m = Meter::new(&config, Millis(1));
        assert!(m.pass(500, Millis(1)));
        assert!(m.pass(500, Millis(1)));
        assert!(!m.pass(1, Millis(1)));
        assert!(m.pass(1, Millis(2)));
        assert!(!m.pass(2000, Millis(1_000_000)), "longer than the burst never passes");
    }
}

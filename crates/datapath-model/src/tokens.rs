// SPDX-License-Identifier: Apache-2.0
//! Meters, written from the text of [`datapath::MeterConfig`]: levels are recomputed in exact
//! integers from milliseconds.

use clock::Millis;
use datapath::{MeterConfig, MeterStats};

pub(crate) struct ModelMeter {
    config: MeterConfig,
    /// Thousandths of bits or packets, one for each band.
    levels: Vec<u128>,
    last: Millis,
    pub(crate) stats: MeterStats,
}

impl ModelMeter {
    pub(crate) fn new(config: &MeterConfig, now: Millis) -> ModelMeter {
        let mut meter = ModelMeter {
            levels: vec![0; config.bands.len()],
            config: config.clone(),
            last: now,
            stats: MeterStats {
                bands: vec![(0, 0); config.bands.len()],
                since: now,
                ..MeterStats::default()
            },
        };
        for i in 0..meter.levels.len() {
            meter.levels[i] = meter.capacity(i);
        }
        meter
    }

    /// Bits or packets in one unit of rates and bursts.
    fn unit(&self) -> u128 {
        if self.config.packets { 1 } else { 1000 }
    }

    fn capacity(&self, band: usize) -> u128 {
        let band = self.config.bands[band];
        let burst = if band.burst == 0 { band.rate } else { band.burst };
        u128::from(burst) * self.unit() * 1000
    }

    pub(crate) fn pass(&mut self, bytes: usize, now: Millis) -> bool {
        let elapsed = u128::from(now.since(self.last));
        self.last = self.last.max(now);
        self.stats.packets += 1;
        self.stats.bytes += bytes as u64;
        let cost = if self.config.packets { 1000 } else { bytes as u128 * 8 * 1000 };
        let mut worst = None;
        for i in 0..self.levels.len() {
            let rate = self.config.bands[i].rate;
            let filled = self.levels[i] + u128::from(rate) * self.unit() * elapsed;
            self.levels[i] = filled.min(self.capacity(i));
            if self.levels[i] >= cost {
                self.levels[i] -= cost;
            } else if worst.is_none_or(|w: usize| rate > self.config.bands[w].rate) {
                worst = Some(i);
            }
        }
        if let Some(i) = worst {
            self.stats.bands[i].0 += 1;
            self.stats.bands[i].1 += bytes as u64;
        }
        worst.is_none()
    }
}

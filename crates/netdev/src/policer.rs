// SPDX-License-Identifier: Apache-2.0
//! Ingress policing: a token bucket in front of the receive queues.

use crate::pool::PacketPool;
use packet::Packet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Default burst in bits, as in `ovs-vswitchd.conf.db(5)`: 8,000 kilobits.
const DEFAULT_BURST_BITS: u64 = 8_000_000;
/// Minimum burst in bits. A smaller bucket would never admit a 64 KiB segmentation packet.
const LEAST_BURST_BITS: u64 = 66_000 * 8;

/// A token bucket that a device's queues share. It is off at first, and then costs one load per
/// batch.
#[derive(Debug)]
pub(crate) struct Policer {
    on: AtomicBool,
    bucket: Mutex<Bucket>,
    dropped: AtomicU64,
    start: Instant,
}

#[derive(Debug, Default)]
struct Bucket {
    bits_per_second: u64,
    burst_bits: u64,
    /// Bits times 10^9, so short intervals are not rounded to zero.
    level: u128,
    /// Nanoseconds since the policer's start.
    filled_at: u64,
}

const SCALE: u128 = 1_000_000_000;

impl Bucket {
    fn new(rate_kbps: u64, burst_kb: u64, now_ns: u64) -> Bucket {
        let burst = match burst_kb {
            0 => DEFAULT_BURST_BITS,
            kb => kb.saturating_mul(1_000).max(LEAST_BURST_BITS),
        };
        Bucket {
            bits_per_second: rate_kbps.saturating_mul(1_000),
            burst_bits: burst,
            level: u128::from(burst) * SCALE,
            filled_at: now_ns,
        }
    }

    fn admit(&mut self, now_ns: u64, bytes: usize) -> bool {
        let passed = now_ns.saturating_sub(self.filled_at);
        self.filled_at = now_ns.max(self.filled_at);
        let gained = u128::from(passed) * u128::from(self.bits_per_second);
        self.level = (self.level + gained).min(u128::from(self.burst_bits) * SCALE);
        let cost = bytes as u128 * 8 * SCALE;
        let enough = self.level >= cost;
        if enough {
            self.level -= cost;
        }
        enough
    }
}

impl Policer {
    pub(crate) fn new() -> Policer {
        Policer {
            on: AtomicBool::new(false),
            bucket: Mutex::default(),
            dropped: AtomicU64::new(0),
            start: Instant::now(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// See [`crate::Device::set_policing`].
    pub(crate) fn set(&self, rate_kbps: u64, burst_kb: u64) {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        *bucket = Bucket::new(rate_kbps, burst_kb, self.now());
        self.on.store(rate_kbps != 0, Ordering::Relaxed);
    }

    /// Returns the number of packets dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Drops the packets of `packets[from..]` that exceed the limit.
    pub(crate) fn apply(&self, packets: &mut Vec<Packet>, from: usize, pool: &mut PacketPool) {
        if !self.on.load(Ordering::Relaxed) || from >= packets.len() {
            return;
        }
        let now = self.now();
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let mut i = from;
        while let Some(p) = packets.get(i) {
            if bucket.admit(now, p.len()) {
                i += 1;
            } else {
                pool.give(packets.remove(i));
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_over_time() {
        // 8 Mbit/s = 1,000 bytes per millisecond; burst 1,000 kbit = 125,000 bytes.
        let mut b = Bucket::new(8_000, 1_000, 0);
        let burst = (0..1_000).filter(|_| b.admit(0, 1_000)).count();
        assert_eq!(burst, 125);
        let later = (1..=1_000u64).filter(|ms| b.admit(ms * 1_000_000, 1_000)).count();
        assert_eq!(later, 1_000);
        let twice = (2_001..=3_000u64)
            .filter(|i| b.admit(1_000_000_000 + (i - 2_000) * 500_000, 1_000))
            .count();
        assert_eq!(twice, 500);
    }

    #[test]
    fn off_lets_everything_pass() {
        let p = Policer::new();
        let mut packets = vec![Packet::from_slice(&[0; 100]); 3];
        p.apply(&mut packets, 0, &mut PacketPool::default());
        assert_eq!(packets.len(), 3);
        p.set(1, 0);
        let mut packets = vec![Packet::from_slice(&[0; 60_000]); 40];
        p.apply(&mut packets, 1, &mut PacketPool::default());
        // 8,000 kbit hold 16 packets of 480 kbit; the first one was received before.
        assert_eq!(packets.len(), 17);
        assert_eq!(p.dropped(), 23);
    }
}

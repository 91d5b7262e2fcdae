// SPDX-License-Identifier: Apache-2.0
//! Policing: token buckets in front of the receive queues and of the sender of a device.

use crate::device::{SendReport, Sender};
use crate::pool::PacketPool;
use packet::Packet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Default burst in bits, as in `ovs-vswitchd.conf.db(5)`: 8,000 kilobits.
const DEFAULT_BURST_BITS: u64 = 8_000_000;
/// Default burst in packets, as there: 16 kilopackets.
const DEFAULT_BURST_PACKETS: u64 = 16_000;
/// Minimum burst in bits. A smaller bucket would never admit a 64 KiB segmentation packet.
const LEAST_BURST_BITS: u64 = 66_000 * 8;
/// Bytes of an Ethernet header, which [`EgressLimit`] does not count.
const ETHERNET: usize = 14;

/// Limits of the packets that a port receives: `Interface:ingress_policing_*` in
/// `ovs-vswitchd.conf.db(5)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policing {
    /// Rate in 1,000 bits per second; 0 means no limit.
    pub rate_kbps: u32,
    /// Burst in 1,000 bits; 0 means 8,000.
    pub burst_kb: u32,
    /// Rate in 1,000 packets per second; 0 means no limit.
    pub rate_kpkts: u32,
    /// Burst in 1,000 packets; 0 means 16.
    pub burst_kpkts: u32,
}

impl Policing {
    /// Returns true when there is a limit.
    pub fn is_on(self) -> bool {
        self.rate_kbps != 0 || self.rate_kpkts != 0
    }

    /// Returns the rate in bits per second and the burst in bits. `None`: no limit.
    pub fn bits(self) -> Option<(u64, u64)> {
        let burst = kilo_or(self.burst_kb, DEFAULT_BURST_BITS).max(LEAST_BURST_BITS);
        (self.rate_kbps != 0).then(|| (kilo(self.rate_kbps), burst))
    }

    /// Returns the rate in packets per second and the burst in packets. `None`: no limit.
    pub fn packets(self) -> Option<(u64, u64)> {
        let burst = kilo_or(self.burst_kpkts, DEFAULT_BURST_PACKETS);
        (self.rate_kpkts != 0).then(|| (kilo(self.rate_kpkts), burst))
    }
}

fn kilo(number: u32) -> u64 {
    u64::from(number) * 1_000
}

fn kilo_or(number: u32, default: u64) -> u64 {
    if number == 0 { default } else { kilo(number) }
}

/// A limit of the packets that a port sends (`egress-policer` of the table QoS): a single rate with
/// two colors (RFC 2697 without an excess burst), in bytes after the Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EgressLimit {
    /// `cir`: bytes per second.
    pub(crate) rate: u64,
    /// `cbs`: bytes.
    pub(crate) burst: u64,
}

/// A token bucket.
#[derive(Debug, Default)]
struct Bucket {
    per_second: u64,
    burst: u64,
    /// Tokens times 10^9, so short intervals are not rounded to zero. Below zero: a packet has taken
    /// tokens in advance.
    level: i128,
    /// Nanoseconds since the start of the policer.
    filled_at: u64,
}

const SCALE: i128 = 1_000_000_000;

impl Bucket {
    /// Returns a full bucket.
    fn new(per_second: u64, burst: u64, now_ns: u64) -> Bucket {
        Bucket { per_second, burst, level: i128::from(burst) * SCALE, filled_at: now_ns }
    }

    /// Fills the bucket up to now, and returns true when it has `cost` tokens.
    fn has(&mut self, now_ns: u64, cost: u64) -> bool {
        let passed = now_ns.saturating_sub(self.filled_at);
        self.filled_at = now_ns.max(self.filled_at);
        let gained = i128::from(passed).saturating_mul(i128::from(self.per_second));
        let full = i128::from(self.burst) * SCALE;
        self.level = self.level.saturating_add(gained).min(full);
        self.level >= i128::from(cost) * SCALE
    }

    fn take(&mut self, cost: u64) {
        self.level -= i128::from(cost) * SCALE;
    }
}

/// The buckets of bits and of packets; `None`: no limit.
#[derive(Debug, Default)]
struct Buckets {
    bits: Option<Bucket>,
    packets: Option<Bucket>,
}

impl Buckets {
    fn new(policing: Policing, now_ns: u64) -> Buckets {
        let bucket = |(rate, burst)| Bucket::new(rate, burst, now_ns);
        Buckets { bits: policing.bits().map(bucket), packets: policing.packets().map(bucket) }
    }

    /// Takes the tokens of a packet. Returns false, and takes none, when a bucket lacks them.
    fn admit(&mut self, now_ns: u64, bytes: usize, packets: u64) -> bool {
        let costs = [(&mut self.bits, bytes as u64 * 8), (&mut self.packets, packets)];
        let mut limits = costs.map(|(bucket, cost)| (bucket.as_mut(), cost));
        let has = |(bucket, cost): &mut (Option<&mut Bucket>, u64)| {
            // A full bucket admits a packet of any size, and those after it wait until it is paid for.
            bucket.as_mut().is_none_or(|bucket| bucket.has(now_ns, (*cost).min(bucket.burst)))
        };
        let [bits, packets] = &mut limits;
        // Both buckets are filled also when the first one lacks tokens.
        let is_admitted = has(bits) & has(packets);
        if is_admitted {
            for (bucket, cost) in limits {
                if let Some(bucket) = bucket {
                    bucket.take(cost);
                }
            }
        }
        is_admitted
    }
}

/// Returns the number of packets into which a segmentation packet is cut.
fn segments(p: &Packet) -> u64 {
    match p.offload.gso {
        Some((_, size, header)) if size > 0 => {
            let payload = p.len().saturating_sub(usize::from(header));
            payload.div_ceil(usize::from(size)).max(1) as u64
        }
        _ => 1,
    }
}

/// Returns the bytes of all packets into which a segmentation packet is cut.
fn wire_bytes(p: &Packet) -> usize {
    let header = p.offload.gso.map_or(0, |(_, _, header)| usize::from(header));
    let others = usize::try_from(segments(p) - 1).unwrap_or(usize::MAX);
    p.len().saturating_add(header.saturating_mul(others))
}

fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The limit that a device's queues share. It is off at first, and then costs one load per batch.
#[derive(Debug)]
pub(crate) struct Policer {
    on: AtomicBool,
    buckets: Mutex<Buckets>,
    dropped: AtomicU64,
    start: Instant,
}

impl Policer {
    pub(crate) fn new() -> Policer {
        Policer {
            on: AtomicBool::new(false),
            buckets: Mutex::default(),
            dropped: AtomicU64::new(0),
            start: Instant::now(),
        }
    }

    /// See [`crate::Device::set_policing`].
    pub(crate) fn set(&self, policing: Policing) {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        *buckets = Buckets::new(policing, nanoseconds(self.start));
        self.on.store(policing.is_on(), Ordering::Relaxed);
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
        let now = nanoseconds(self.start);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut i = from;
        while let Some(p) = packets.get(i) {
            if buckets.admit(now, wire_bytes(p), segments(p)) {
                i += 1;
            } else {
                pool.give(packets.remove(i));
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The limit of a device's sender. Any thread may use it.
#[derive(Debug)]
pub(crate) struct EgressPolicer {
    on: AtomicBool,
    bucket: Mutex<Bucket>,
    start: Instant,
}

impl Default for EgressPolicer {
    fn default() -> EgressPolicer {
        let (on, bucket) = (AtomicBool::new(false), Mutex::default());
        EgressPolicer { on, bucket, start: Instant::now() }
    }
}

impl EgressPolicer {
    /// Sets the limit; `None`: there is none.
    pub(crate) fn set(&self, limit: Option<EgressLimit>) {
        if let Some(EgressLimit { rate, burst }) = limit {
            let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
            *bucket = Bucket::new(rate, burst, nanoseconds(self.start));
        }
        self.on.store(limit.is_some(), Ordering::Relaxed);
    }

    /// Returns a sender that drops the packets above the limit.
    pub(crate) fn limit(self: Arc<Self>, sender: Arc<dyn Sender>) -> Arc<dyn Sender> {
        Arc::new(PolicedSender { sender, policer: self })
    }
}

struct PolicedSender {
    sender: Arc<dyn Sender>,
    policer: Arc<EgressPolicer>,
}

impl Sender for PolicedSender {
    fn send(&self, packets: &[Packet]) -> SendReport {
        if !self.policer.on.load(Ordering::Relaxed) {
            return self.sender.send(packets);
        }
        let now = nanoseconds(self.policer.start);
        let admitted: Vec<bool> = {
            let mut bucket = self.policer.bucket.lock().unwrap_or_else(PoisonError::into_inner);
            let admit = |p: &Packet| {
                let cost = p.len().saturating_sub(ETHERNET) as u64;
                // A segmentation packet may be larger than any bucket that suits its segments: a
                // full bucket admits it, and those after it wait until it is paid for.
                let need = if segments(p) > 1 { cost.min(bucket.burst) } else { cost };
                let is_admitted = bucket.has(now, need);
                if is_admitted {
                    bucket.take(cost);
                }
                is_admitted
            };
            packets.iter().map(admit).collect()
        };
        let mut report = SendReport::default();
        let mut rest = packets;
        for run in admitted.chunk_by(|a, b| a == b) {
            let (these, others) = rest.split_at(run.len().min(rest.len()));
            rest = others;
            match run.first() {
                Some(true) => report += self.sender.send(these),
                _ => report.dropped_policed += these.len() as u64,
            }
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::Gso;

    fn kbps(rate_kbps: u32, burst_kb: u32) -> Policing {
        Policing { rate_kbps, burst_kb, ..Policing::default() }
    }

    #[test]
    fn the_rate_holds_over_time() {
        // 8 Mbit/s = 1,000 bytes per millisecond; burst 1,000 kbit = 125,000 bytes.
        let mut b = Buckets::new(kbps(8_000, 1_000), 0);
        let burst = (0..1_000).filter(|_| b.admit(0, 1_000, 1)).count();
        assert_eq!(burst, 125);
        let later = (1..=1_000u64).filter(|ms| b.admit(ms * 1_000_000, 1_000, 1)).count();
        assert_eq!(later, 1_000);
        let twice = (2_001..=3_000u64)
            .filter(|i| b.admit(1_000_000_000 + (i - 2_000) * 500_000, 1_000, 1))
            .count();
        assert_eq!(twice, 500);
    }

    #[test]
    fn the_rate_of_packets_holds_and_counts_segments() {
        let policing = Policing { rate_kpkts: 1, burst_kpkts: 2, ..Policing::default() };
        let mut b = Buckets::new(policing, 0);
        assert_eq!((0..5_000).filter(|_| b.admit(0, 60_000, 1)).count(), 2_000);
        assert_eq!((1..=100u64).filter(|ms| b.admit(ms * 1_000_000, 60_000, 1)).count(), 100);
        let mut p = Packet::from_slice(&[0; 54 + 2_900]);
        assert_eq!(segments(&p), 1);
        p.offload.gso = Some((Gso::TcpV4, 1_448, 54));
        assert_eq!(segments(&p), 3);
        assert_eq!(wire_bytes(&p), 2_900 + 3 * 54);
        let default = Policing { rate_kpkts: 1, ..Policing::default() };
        let mut b = Buckets::new(default, 0);
        assert_eq!((0..50_000).filter(|_| b.admit(0, 60, 1)).count(), 16_000);
    }

    #[test]
    fn a_packet_that_one_bucket_refuses_costs_nothing() {
        let policing = Policing { rate_kbps: 1, burst_kb: 528, rate_kpkts: 1, burst_kpkts: 1 };
        let mut b = Buckets::new(policing, 0);
        assert!(b.admit(0, 66_000, 1) && !b.admit(0, 66_000, 1));
        assert_eq!((0..2_000).filter(|_| b.admit(0, 0, 1)).count(), 999);
    }

    #[test]
    fn a_full_bucket_admits_more_than_it_holds_and_is_paid_for() {
        let mut b = Buckets::new(kbps(8_000, 1), 0);
        assert!(b.admit(0, 132_000, 1) && !b.admit(0, 60, 1));
        // 8 Mbit/s pay for 66,000 bytes in 66 ms; the bucket holds the other half.
        assert!(!b.admit(66_000_000, 60, 1));
        assert!(b.admit(66_060_000, 60, 1));
    }

    #[test]
    fn off_lets_everything_pass() {
        let p = Policer::new();
        let mut packets = vec![Packet::from_slice(&[0; 100]); 3];
        p.apply(&mut packets, 0, &mut PacketPool::default());
        assert_eq!(packets.len(), 3);
        p.set(kbps(1, 0));
        let mut packets = vec![Packet::from_slice(&[0; 60_000]); 40];
        p.apply(&mut packets, 1, &mut PacketPool::default());
        // 8,000 kbit hold 16 packets of 480 kbit; the first one was received before.
        assert_eq!(packets.len(), 17);
        assert_eq!(p.dropped(), 23);
    }

    /// Counts all packets as sent.
    struct Sink;

    impl Sender for Sink {
        fn send(&self, packets: &[Packet]) -> SendReport {
            SendReport { sent: packets.len() as u64, ..SendReport::default() }
        }
    }

    #[test]
    fn a_segmentation_packet_passes_a_small_full_bucket_and_is_paid_for() {
        let policer = Arc::new(EgressPolicer::default());
        policer.set(Some(EgressLimit { rate: 1, burst: 2_048 }));
        let sender = policer.limit(Arc::new(Sink));
        let mut large = Packet::from_slice(&[0; 60_000]);
        large.offload.gso = Some((Gso::TcpV4, 1_448, 54));
        let small = Packet::from_slice(&[0; 60]);
        let report = sender.send(&[large.clone(), small, large]);
        assert_eq!((report.sent, report.dropped_policed), (1, 2));
    }

    #[test]
    fn a_policed_sender_drops_what_exceeds_the_burst() {
        let policer = Arc::new(EgressPolicer::default());
        let sender = Arc::clone(&policer).limit(Arc::new(Sink));
        let packets = vec![Packet::from_slice(&[0; 1_014]); 10];
        assert_eq!(sender.send(&packets).sent, 10);
        policer.set(Some(EgressLimit { rate: 1, burst: 3_500 }));
        let report = sender.send(&packets);
        assert_eq!((report.sent, report.dropped_policed, report.dropped()), (3, 7, 7));
        policer.set(None);
        assert_eq!(sender.send(&packets).sent, 10);
    }
}

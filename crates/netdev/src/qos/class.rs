// SPDX-License-Identifier: Apache-2.0
//! Classes of HTB and HFSC, one for each queue.

use super::LinkLimits;
use super::options::Options;
use netlink::attribute::put;

/// Nanoseconds in one tick of the kernel's packet scheduler (`PSCHED_SHIFT`,
/// include/net/pkt_sched.h).
const TICK: u128 = 64;
const NANOSECONDS: u128 = 1_000_000_000;

// include/uapi/linux/pkt_sched.h
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const TCA_HFSC_RSC: u16 = 1;
const TCA_HFSC_FSC: u16 = 2;
const TCA_HFSC_USC: u16 = 3;
/// `TC_LINKLAYER_ETHERNET`: lengths of frames count as they are.
const LINKLAYER_ETHERNET: u8 = 1;

/// Room for the headers of a frame in a burst, in bytes, as in Open vSwitch.
const HEADERS: u64 = 64;

/// The limits of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class {
    /// Guaranteed rate in bytes per second.
    pub(super) min: u64,
    /// Highest rate in bytes per second.
    pub(super) max: u64,
    /// Bytes that may be sent at once above the rate.
    pub(super) burst: u64,
    /// Order among the classes that borrow; 0 comes first. HTB alone has it.
    pub(super) priority: u32,
}

impl Class {
    /// The class of which all others are children.
    pub(super) fn root(max: u64) -> Class {
        Class { min: max, max, burst: 0, priority: 0 }
    }

    /// Parses the options of an HTB class below a root of `most` bytes per second. A class that has
    /// less than one frame a second would never send.
    pub(super) fn htb(options: &mut Options<'_>, most: u64, link: LinkLimits) -> Class {
        let mtu = u64::from(link.mtu);
        let min = (options.number("min-rate").unwrap_or(0) / 8).max(mtu).min(most);
        let max = options.number("max-rate").map_or(most, |bits| bits / 8).max(min).min(most);
        let burst = (options.number("burst").unwrap_or(0) / 8).max(mtu + HEADERS);
        Class { min, max, burst, priority: options.word("priority", 0) }
    }

    /// Parses the options of an HFSC class below a root of `most` bytes per second.
    pub(super) fn hfsc(options: &mut Options<'_>, most: u64) -> Class {
        let min = (options.number("min-rate").unwrap_or(0) / 8).max(1).min(most);
        let max = options.number("max-rate").map_or(most, |bits| bits / 8).max(min).min(most);
        Class { min, max, burst: 0, priority: 0 }
    }

    /// Returns the attributes of `TCA_OPTIONS` for HTB (`struct tc_htb_opt`).
    pub(super) fn encode_htb(&self, link: LinkLimits) -> Vec<u8> {
        let mut opt = Vec::with_capacity(44);
        for rate in [self.min, self.max] {
            // struct tc_ratespec: cell_log, linklayer, overhead(2), cell_align(2), mpu(2), rate(4)
            opt.extend_from_slice(&[0, LINKLAYER_ETHERNET, 0, 0, 0, 0, 0, 0]);
            opt.extend_from_slice(&word(rate).to_ne_bytes());
        }
        for rate in [self.min, self.max] {
            opt.extend_from_slice(&burst_ticks(rate, link.mtu, self.burst).to_ne_bytes());
        }
        // quantum and level: the kernel derives both
        opt.extend_from_slice(&[0; 8]);
        opt.extend_from_slice(&self.priority.to_ne_bytes());
        let mut bytes = Vec::new();
        put(&mut bytes, TCA_HTB_PARMS, &opt);
        for (kind, rate) in [(TCA_HTB_RATE64, self.min), (TCA_HTB_CEIL64, self.max)] {
            if rate > u64::from(u32::MAX) {
                put(&mut bytes, kind, &rate.to_ne_bytes());
            }
        }
        bytes
    }

    /// Returns the attributes of `TCA_OPTIONS` for HFSC (`struct tc_service_curve`).
    pub(super) fn encode_hfsc(&self) -> Vec<u8> {
        let curve = |rate: u64| {
            let rate = word(rate).to_ne_bytes();
            [rate, [0; 4], rate].concat() // m1, d, m2
        };
        let mut bytes = Vec::new();
        put(&mut bytes, TCA_HFSC_RSC, &curve(self.min));
        put(&mut bytes, TCA_HFSC_FSC, &curve(self.min));
        put(&mut bytes, TCA_HFSC_USC, &curve(self.max));
        bytes
    }
}

/// Returns the lower 32 bits of a rate that has room there, else the largest number, next to which the
/// kernel expects the whole rate.
fn word(rate: u64) -> u32 {
    u32::try_from(rate).unwrap_or(u32::MAX)
}

/// Returns the time in ticks that `bytes` take at `rate` bytes per second.
fn ticks(rate: u64, bytes: u64) -> u32 {
    let nanoseconds = u128::from(bytes) * NANOSECONDS / u128::from(rate.max(1));
    u32::try_from(nanoseconds / TICK).unwrap_or(u32::MAX)
}

/// Returns a burst in ticks: at least the bytes of a frame and those of one tick of the clock, which
/// has a resolution of a nanosecond.
fn burst_ticks(rate: u64, mtu: u32, burst: u64) -> u32 {
    ticks(rate, burst.max(rate / 1_000_000_000 + u64::from(mtu)))
}

/// Returns a time of `microseconds` in ticks.
pub(super) fn microsecond_ticks(microseconds: u64) -> u32 {
    let ticks = u128::from(microseconds) * 1_000 / TICK;
    u32::try_from(ticks).unwrap_or(u32::MAX)
}

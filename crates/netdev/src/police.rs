// SPDX-License-Identifier: Apache-2.0
//! Policers of TC, token buckets that drop what exceeds them (include/uapi/linux/pkt_cls.h,
//! `struct tc_police`). Filters that name the same index share a policer, which lives while one of them
//! does.

use ::netlink::attribute::{array, find, put};

/// Attributes of the action (`TCA_POLICE_*`).
const PARAMETERS: u16 = 1;
const RATE_TABLE: u16 = 2;
const AVERAGE: u16 = 4;
const RESULT: u16 = 5;
const BYTE_RATE: u16 = 8;
const PEAK_RATE: u16 = 9;
const PACKET_RATE: u16 = 10;
const PACKET_BURST: u16 = 11;
/// Bytes of `struct tc_police`.
const SIZE: usize = 56;
/// Bytes of a table of rates (`TC_RTAB_SIZE`). The kernel demands one, and uses none of its values.
const TABLE: usize = 1024;
/// `TC_LINKLAYER_ETHERNET`
const ETHERNET: u8 = 1;
/// The longest packet in bytes that conforms.
const MTU: u32 = 0xffff;
/// `TC_ACT_SHOT`
const SHOT: u32 = 2;
/// Ticks in a second, in which the kernel has the size of a bucket: 64 nanoseconds each.
pub const TICKS: u64 = 15_625_000;

/// The way of packets that a policer lets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onward {
    /// To the filter's next action (`TC_ACT_PIPE`).
    Action,
    /// To the next filter (`TC_ACT_UNSPEC`).
    Filter,
}

impl Onward {
    const fn number(self) -> u32 {
        match self {
            Onward::Action => 3,
            Onward::Filter => u32::MAX,
        }
    }
}

/// Units that a policer lets pass in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Bytes of packets, not zero.
    Bytes(u64),
    /// Packets of any length, not zero.
    Packets(u64),
}

/// A token bucket. Packets that exceed it are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// Its number among the policers of the network namespace.
    pub index: u32,
    /// The rate; not zero.
    pub rate: Rate,
    /// The size of the bucket: the time in which it fills, in units of 64 nanoseconds. At most
    /// `u32::MAX` for bytes.
    pub burst: u64,
}

impl Policer {
    /// Returns the index of a policer and the number of its filters, from the attributes of the
    /// action. Total.
    pub fn uses(options: &[u8]) -> Option<(u32, u32)> {
        let parameters = find(options, PARAMETERS)?;
        let word = |at: usize| parameters.get(at..).and_then(array).map(u32::from_ne_bytes);
        Some((word(0)?, word(48)?))
    }

    /// Appends the attributes of the action.
    pub fn write(&self, bytes: &mut Vec<u8>, onward: Onward) {
        // Index, action, limit, burst, MTU; the rate (cell size, link layer, overhead, alignment,
        // minimum, bytes a second) and a peak rate; references, bindings, capabilities.
        let (byte_rate, burst) = match self.rate {
            Rate::Bytes(rate) => (rate, self.burst as u32), // bounded above
            Rate::Packets(_) => (0, 0),
        };
        let mut parameters = Vec::with_capacity(SIZE);
        for word in [self.index, SHOT, 0, burst, MTU] {
            parameters.extend(word.to_ne_bytes());
        }
        if byte_rate > 0 {
            parameters.extend([1, ETHERNET, 0, 0, 0, 0, 0, 0]);
            parameters.extend(u32::try_from(byte_rate).unwrap_or(u32::MAX).to_ne_bytes());
        }
        parameters.resize(SIZE, 0);
        put(bytes, PARAMETERS, &parameters);
        match self.rate {
            Rate::Bytes(rate) => {
                put(bytes, RATE_TABLE, &[0; TABLE]);
                if rate > u32::MAX.into() {
                    put(bytes, BYTE_RATE, &rate.to_ne_bytes());
                }
            }
            Rate::Packets(rate) => {
                put(bytes, PACKET_RATE, &rate.to_ne_bytes());
                put(bytes, PACKET_BURST, &self.burst.to_ne_bytes());
            }
        }
        put(bytes, RESULT, &onward.number().to_ne_bytes());
    }

    /// Reads the attributes of an action with [`Onward::Action`]. `None` when they are of a form that
    /// [`Policer::write`] does not make. Total.
    pub fn read(options: &[u8]) -> Option<Policer> {
        let parameters = find(options, PARAMETERS)?;
        let word = |at: usize| parameters.get(at..).and_then(array).map(u32::from_ne_bytes);
        let long = |kind| find(options, kind).and_then(array).map(u64::from_ne_bytes);
        let result = find(options, RESULT).and_then(array).map(u32::from_ne_bytes);
        let has_others = [AVERAGE, PEAK_RATE].iter().any(|kind| find(options, *kind).is_some());
        if word(4)? != SHOT
            || word(16)? != MTU
            || result != Some(Onward::Action.number())
            || has_others
        {
            return None;
        }
        // Overhead, and the peak rate.
        if parameters.get(22..24)? != [0; 2] || word(40)? != 0 {
            return None;
        }
        let (index, burst, rate) = (word(0)?, word(12)?, word(28)?);
        match (rate, long(PACKET_RATE)) {
            (0, Some(packets)) => {
                let burst = long(PACKET_BURST)?;
                Some(Policer { index, rate: Rate::Packets(packets), burst })
            }
            (0, None) | (_, Some(_)) => None,
            (rate, None) => {
                let rate = long(BYTE_RATE).unwrap_or_default().max(rate.into());
                Some(Policer { index, rate: Rate::Bytes(rate), burst: burst.into() })
            }
        }
    }
}

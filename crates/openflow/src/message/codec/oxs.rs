// SPDX-License-Identifier: Apache-2.0
//! OXS: statistics of flows as a list of fields (OpenFlow 1.5 section 7.2.4).
//!
//! A list has a header of its own (4 bytes: reserved, length) and is padded to 8 bytes; the
//! length is without the padding. Each field is class, number, length, value.

use super::*;
use crate::wire::{Put, Reader, Result};
use std::time::Duration;

/// OFPXSC_OPENFLOW_BASIC.
const BASIC: u16 = 0x8002;
/// Fields (OFPXST_OFB_*).
const DURATION: u8 = 0;
const IDLE_TIME: u8 = 1;
const FLOW_COUNT: u8 = 3;
const PACKET_COUNT: u8 = 4;
const BYTE_COUNT: u8 = 5;

/// The statistics in an OXS list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stats {
    pub(super) duration: Option<Duration>,
    pub(super) idle: Option<Duration>,
    pub(super) packet_count: Option<u64>,
    pub(super) byte_count: Option<u64>,
    pub(super) flow_count: Option<u32>,
}

pub(super) fn decode(r: &mut Reader<'_>) -> Result<Stats> {
    let mut s = Stats::default();
    r.skip(2)?;
    let len = usize::from(r.u16()?);
    let list_len = len.checked_sub(4).ok_or(OfError::OFPBRC_BAD_LEN)?;
    let mut list = r.sub(list_len)?;
    r.skip(len.next_multiple_of(8) - len)?;
    while !list.is_empty() {
        let class = list.u16()?;
        let number = list.u8()?;
        let size = list.u8()?;
        let mut v = list.sub(usize::from(size))?;
        if class != BASIC {
            continue;
        }
        // The lowest bit is reserved.
        match number >> 1 {
            DURATION => s.duration = Some(v.duration()?),
            IDLE_TIME => s.idle = Some(v.duration()?),
            FLOW_COUNT => s.flow_count = Some(v.u32()?),
            PACKET_COUNT => s.packet_count = Some(v.u64()?),
            BYTE_COUNT => s.byte_count = Some(v.u64()?),
            _ => continue,
        }
        v.expect(0, 0)?;
    }
    Ok(s)
}

fn field(number: u8, size: u8, out: &mut Vec<u8>) {
    out.put_u16(BASIC);
    out.put_u8(number << 1);
    out.put_u8(size);
}

pub(super) fn encode(s: &Stats, out: &mut Vec<u8>) {
    let at = out.len();
    out.put_zeros(4);
    for (number, time) in [(DURATION, s.duration), (IDLE_TIME, s.idle)] {
        if let Some(time) = time {
            field(number, 8, out);
            out.put_duration(time);
        }
    }
    for (number, count) in [(PACKET_COUNT, s.packet_count), (BYTE_COUNT, s.byte_count)] {
        if let Some(count) = count {
            field(number, 8, out);
            out.put_u64(count);
        }
    }
    if let Some(count) = s.flow_count {
        field(FLOW_COUNT, 4, out);
        out.put_u32(count);
    }
    let len = out.len() - at;
    out.set_u16(at + 2, len as u16); // 60 bytes at most
    out.pad8(at);
}

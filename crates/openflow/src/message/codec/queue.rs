// SPDX-License-Identifier: Apache-2.0
//! Queue configuration and statistics.

use super::header::{Encoded, Later, begin_later, finish};
use super::property::{self, Kind};
use super::*;
use crate::PortNo;
use crate::wire::{Put, Reader, Result};

/// Queue properties: rates in tenths of a percent (OFPQT_*, OFPQDPT_*).
const MIN_RATE: u16 = 1;
const MAX_RATE: u16 = 2;
/// Rates above 1000 are "disabled".
const DISABLED: u16 = 0xffff;

pub(super) fn decode_config_request(mut r: Reader<'_>, version: Version) -> Result<PortNo> {
    if version == Version::V10 { r.port10() } else { r.port11() }
}

pub(super) fn encode_config_request(
    port: PortNo,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin_later(out, version, Later::QueueGetConfigRequest, xid)?;
    out.put_port(port, version);
    out.put_zeros(if version == Version::V10 { 2 } else { 4 });
    finish(out, at, "OFPT_QUEUE_GET_CONFIG_REQUEST")
}

pub(super) fn decode_config_reply(
    mut r: Reader<'_>,
    version: Version,
) -> Result<(PortNo, Vec<QueueConfig>)> {
    let port = if version == Version::V10 { r.port10()? } else { r.port11()? };
    r.skip(if version == Version::V10 { 6 } else { 4 })?;
    let mut queues = Vec::new();
    let size = if version < Version::V12 { 8 } else { 16 };
    while !r.is_empty() {
        let queue = r.u32()?;
        let port = if version >= Version::V12 { r.port11()? } else { port };
        let len = r.u16()?;
        let mut body = r.record(len, size - if version < Version::V12 { 2 } else { 6 }, size)?;
        body.skip(if version < Version::V12 { 2 } else { 6 })?;
        let mut q = QueueConfig { port, queue, min_rate: None, max_rate: None };
        while !body.is_empty() {
            let ty = body.u16()?;
            let len = body.u16()?;
            let mut prop = body.record(len, 4, 8)?;
            prop.skip(4)?;
            let rate = match ty {
                MIN_RATE | MAX_RATE if prop.len() >= 2 => Some(prop.u16()?).filter(|r| *r <= 1000),
                _ => None,
            };
            match ty {
                MIN_RATE => q.min_rate = rate,
                MAX_RATE => q.max_rate = rate,
                _ => {}
            }
        }
        queues.push(q);
    }
    Ok((port, queues))
}

pub(super) fn encode_config_reply(
    port: PortNo,
    queues: &[QueueConfig],
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin_later(out, version, Later::QueueGetConfigReply, xid)?;
    out.put_port(port, version);
    out.put_zeros(if version == Version::V10 { 6 } else { 4 });
    for q in queues {
        let start = out.len();
        out.put_u32(q.queue);
        if version >= Version::V12 {
            out.put_u32(q.port.0);
        }
        let len_at = out.len();
        out.put_zeros(if version < Version::V12 { 4 } else { 8 });
        for (ty, rate) in [(MIN_RATE, q.min_rate), (MAX_RATE, q.max_rate)] {
            if let Some(rate) = rate {
                out.put_u16(ty);
                out.put_u16(16);
                out.put_zeros(4);
                out.put_u16(if rate <= 1000 { rate } else { DISABLED });
                out.put_zeros(6);
            }
        }
        let len = out.len() - start;
        out.set_u16(len_at, len as u16); // 48 bytes at most
    }
    finish(out, at, "OFPT_QUEUE_GET_CONFIG_REPLY")
}

/// OFPST_QUEUE and OFPMP_QUEUE_DESC.
pub(super) fn decode_request(r: &mut Reader<'_>, version: Version) -> Result<QueueRequest> {
    let port = if version == Version::V10 {
        let port = r.port10()?;
        r.skip(2)?;
        if port == PortNo::ALL { PortNo::NONE } else { port }
    } else {
        r.port11()?
    };
    Ok(QueueRequest { port, queue: r.u32()? })
}

pub(super) fn encode_request(q: &QueueRequest, version: Version, out: &mut Vec<u8>) {
    if version == Version::V10 {
        out.put_port10(if q.port == PortNo::NONE { PortNo::ALL } else { q.port });
        out.put_zeros(2);
    } else {
        out.put_u32(q.port.0);
    }
    out.put_u32(q.queue);
}

pub(super) fn decode_stats(r: &mut Reader<'_>, version: Version) -> Result<QueueStats> {
    let mut r = if version >= Version::V14 {
        let len = r.u16()?;
        let mut record = r.record(len, 2, 48)?;
        record.skip(6)?;
        record
    } else {
        r.sub(if version == Version::V13 { 40 } else { 32 })?
    };
    let port = if version == Version::V10 {
        let port = r.port10()?;
        r.skip(2)?;
        port
    } else {
        r.port11()?
    };
    let queue = r.u32()?;
    let (tx_bytes, tx_packets, tx_errors) = (r.u64()?, r.u64()?, r.u64()?);
    let duration = if version >= Version::V13 { r.maybe_duration()? } else { None };
    Ok(QueueStats { port, queue, tx_bytes, tx_packets, tx_errors, duration })
}

pub(super) fn encode_stats(q: &QueueStats, version: Version, out: &mut Vec<u8>) {
    if version >= Version::V14 {
        out.put_u16(48);
        out.put_zeros(6);
    }
    out.put_port(q.port, version);
    if version == Version::V10 {
        out.put_zeros(2);
    }
    out.put_u32(q.queue);
    out.put_u64(q.tx_bytes);
    out.put_u64(q.tx_packets);
    out.put_u64(q.tx_errors);
    if version >= Version::V13 {
        out.put_maybe_duration(q.duration);
    }
}

/// One queue of OFPMP_QUEUE_DESC.
pub(super) fn decode_desc(r: &mut Reader<'_>) -> Result<QueueConfig> {
    let port = r.port11()?;
    let queue = r.u32()?;
    let len = r.u16()?;
    let mut body = r.record(len, 10, 16)?;
    body.skip(6)?;
    let mut q = QueueConfig { port, queue, min_rate: None, max_rate: None };
    while !body.is_empty() {
        let prop = property::next(&mut body)?;
        let rate = || Ok::<_, OfError>(Some(prop.u16()?).filter(|r| *r <= 1000));
        match prop.kind {
            Kind::Standard(MIN_RATE) => q.min_rate = rate()?,
            Kind::Standard(MAX_RATE) => q.max_rate = rate()?,
            Kind::Experimenter(..) => {}
            _ => return Err(prop.unknown()),
        }
    }
    Ok(q)
}

pub(super) fn encode_desc(q: &QueueConfig, out: &mut Vec<u8>) {
    let at = out.len();
    out.put_u32(q.port.0);
    out.put_u32(q.queue);
    out.put_zeros(8);
    for (ty, rate) in [(MIN_RATE, q.min_rate), (MAX_RATE, q.max_rate)] {
        if let Some(rate) = rate {
            let rate = if rate <= 1000 { rate } else { DISABLED };
            property::put_small(out, ty, &rate.to_be_bytes());
        }
    }
    let len = out.len() - at;
    out.set_u16(at + 8, len as u16); // 32 bytes at most
}

// SPDX-License-Identifier: Apache-2.0
//! Flow and aggregate statistics.

use super::actions::{
    decode_instructions, decode_match, decode_nx_match, decode_nx_match_cookie,
    encode_instructions, encode_match_list, encoder,
};
use super::flow::{decode_flags, encode_flags, unknown_to_zero};
use super::oxs;
use super::*;
use crate::nxm::{self, Strictness};
use crate::wire::{Put, Reader, Result};
use ::flow::Match;
use std::time::Duration;

pub(super) fn decode_request(r: &mut Reader<'_>, version: Version) -> Result<FlowStatsRequest> {
    if version == Version::V10 {
        let matching = decode_match(r, version)?;
        let table_id = r.u8()?;
        r.skip(1)?;
        let out_port = r.port10()?;
        return Ok(FlowStatsRequest {
            matching,
            cookie: 0,
            cookie_mask: 0,
            out_port,
            out_group: GROUP_ANY,
            table_id,
            nicira: false,
        });
    }
    let table_id = r.u8()?;
    r.skip(3)?;
    let out_port = r.port11()?;
    let out_group = r.u32()?;
    r.skip(4)?;
    let (cookie, cookie_mask) = (r.u64()?, r.u64()?);
    let matching = decode_match(r, version)?;
    Ok(FlowStatsRequest {
        matching,
        cookie,
        cookie_mask,
        out_port,
        out_group,
        table_id,
        nicira: false,
    })
}

pub(super) fn decode_nx_request(r: &mut Reader<'_>) -> Result<FlowStatsRequest> {
    let out_port = r.port10()?;
    let match_len = r.u16()?;
    let table_id = r.u8()?;
    r.skip(3)?;
    let (matching, cookie, cookie_mask) = decode_nx_match_cookie(r, match_len)?;
    if !r.is_empty() {
        return Err(OfError::OFPBRC_BAD_LEN);
    }
    let out_group = GROUP_ANY;
    Ok(FlowStatsRequest {
        matching,
        cookie,
        cookie_mask,
        out_port,
        out_group,
        table_id,
        nicira: true,
    })
}

pub(super) fn encode_request(q: &FlowStatsRequest, version: Version, out: &mut Vec<u8>) {
    if q.nicira {
        out.put_port10(q.out_port);
        let match_len = out.len();
        out.put_u16(0);
        out.put_u8(q.table_id);
        out.put_zeros(3);
        let len = nxm::encode_nx_match(&q.matching, q.cookie, q.cookie_mask, out);
        out.set_u16(match_len, len as u16); // all fields together are some hundred bytes
    } else if version == Version::V10 {
        nxm::encode_match(version, &q.matching, out);
        out.put_u8(q.table_id);
        out.put_zeros(1);
        out.put_port10(q.out_port);
    } else {
        out.put_u8(q.table_id);
        out.put_zeros(3);
        out.put_u32(q.out_port.0);
        out.put_u32(q.out_group);
        out.put_zeros(4);
        out.put_u64(q.cookie);
        out.put_u64(q.cookie_mask);
        nxm::encode_match(version, &q.matching, out);
    }
}

/// One flow of a reply.
pub(super) fn decode_flow(r: &mut Reader<'_>, version: Version, nicira: bool) -> Result<FlowStats> {
    let v10 = version == Version::V10 && !nicira;
    if version == Version::V15 && !nicira {
        return decode_flow15(r);
    }
    let length = r.u16()?;
    let mut r = r.record(length, 2, if v10 { 88 } else { 48 })?;
    let table_id = r.u8()?;
    r.skip(1)?;
    let mut matching = Match::ANY;
    if v10 {
        matching = decode_match(&mut r, version)?;
    }
    let duration = r.duration()?;
    let (priority, idle_timeout, hard_timeout) = (r.u16()?, r.u16()?, r.u16()?);
    let (mut idle_age, mut hard_age) = (None, None);
    let (mut flags, mut importance, mut match_len) = (FlowFlags::empty(), 0, 0);
    if nicira {
        match_len = r.u16()?;
        idle_age = r.u16()?.checked_sub(1);
        hard_age = r.u16()?.checked_sub(1);
    } else {
        let (raw_flags, raw_importance) = (r.u16()?, r.u16()?);
        r.skip(2)?;
        if version >= Version::V13 {
            flags = decode_flags(raw_flags, version)?;
        }
        if version >= Version::V14 {
            importance = raw_importance;
        }
    }
    let cookie = r.u64()?;
    let (packet_count, byte_count) = (r.u64()?, r.u64()?);
    let actions = if nicira {
        matching = decode_nx_match(&mut r, match_len, Strictness::Strict)?;
        decode_instructions(r, version)?
    } else {
        if !v10 {
            matching = decode_match(&mut r, version)?;
        }
        decode_instructions(r, version)?
    };
    Ok(FlowStats {
        table_id,
        matching,
        priority,
        cookie,
        duration,
        idle_timeout,
        hard_timeout,
        idle_age,
        hard_age,
        importance,
        flags,
        packet_count,
        byte_count,
        actions: actions.into(),
    })
}

/// One flow of a reply.
pub(super) fn encode_flow(f: &FlowStats, version: Version, nicira: bool, out: &mut Vec<u8>) {
    if version == Version::V15 && !nicira {
        return encode_flow15(f, out);
    }
    let at = out.len();
    let v10 = version == Version::V10 && !nicira;
    out.put_u16(0);
    out.put_u8(f.table_id);
    out.put_zeros(1);
    if v10 {
        nxm::encode_match(version, &f.matching, out);
    }
    out.put_duration(f.duration);
    out.put_u16(f.priority);
    out.put_u16(f.idle_timeout);
    out.put_u16(f.hard_timeout);
    let mut match_len = None;
    if nicira {
        match_len = Some(out.len());
        out.put_u16(0);
        out.put_u16(f.idle_age.map_or(0, |age| age.saturating_add(1)));
        out.put_u16(f.hard_age.map_or(0, |age| age.saturating_add(1)));
    } else {
        out.put_u16(if version >= Version::V13 { encode_flags(f.flags, version) } else { 0 });
        out.put_u16(if version >= Version::V14 { f.importance } else { 0 });
        out.put_zeros(2);
    }
    out.put_u64(f.cookie);
    out.put_u64(if v10 { unknown_to_zero(f.packet_count) } else { f.packet_count });
    out.put_u64(if v10 { unknown_to_zero(f.byte_count) } else { f.byte_count });
    if let Some(match_len) = match_len {
        let len = nxm::encode_nx_match(&f.matching, 0, 0, out);
        out.set_u16(match_len, len as u16); // all fields together are some hundred bytes
        encode_instructions(&f.actions, encoder(version, &f.matching), out);
    } else {
        if version == Version::V11 {
            // OVS writes the flows of OpenFlow 1.1 with OXM fields too: the 1.1 structure cannot
            // express every match.
            encode_match_list(version, &f.matching, out);
        } else if !v10 {
            nxm::encode_match(version, &f.matching, out);
        }
        encode_instructions(&f.actions, encoder(version, &f.matching), out);
    }
    // A flow that is too long is found when its message is finished.
    let len = out.len() - at;
    out.set_u16(at, u16::try_from(len).unwrap_or(u16::MAX));
}

/// OpenFlow 1.5's struct ofp_flow_desc.
fn decode_flow15(r: &mut Reader<'_>) -> Result<FlowStats> {
    let length = r.u16()?;
    let mut r = r.record(length, 2, 24)?;
    r.skip(2)?;
    let table_id = r.u8()?;
    r.skip(1)?;
    let (priority, idle_timeout, hard_timeout) = (r.u16()?, r.u16()?, r.u16()?);
    let flags = decode_flags(r.u16()?, Version::V15)?;
    let importance = r.u16()?;
    let cookie = r.u64()?;
    let matching = decode_match(&mut r, Version::V15)?;
    let stats = oxs::decode(&mut r)?;
    Ok(FlowStats {
        table_id,
        matching,
        priority,
        cookie,
        duration: stats.duration.unwrap_or_default(),
        idle_timeout,
        hard_timeout,
        idle_age: stats.idle.map(|idle| u16::try_from(idle.as_secs()).unwrap_or(u16::MAX)),
        hard_age: None,
        importance,
        flags,
        packet_count: stats.packet_count.unwrap_or(u64::MAX),
        byte_count: stats.byte_count.unwrap_or(u64::MAX),
        actions: decode_instructions(r, Version::V15)?.into(),
    })
}

fn encode_flow15(f: &FlowStats, out: &mut Vec<u8>) {
    let at = out.len();
    out.put_zeros(4);
    out.put_u8(f.table_id);
    out.put_zeros(1);
    out.put_u16(f.priority);
    out.put_u16(f.idle_timeout);
    out.put_u16(f.hard_timeout);
    out.put_u16(encode_flags(f.flags, Version::V15));
    out.put_u16(f.importance);
    out.put_u64(f.cookie);
    nxm::encode_match(Version::V15, &f.matching, out);
    let stats = oxs::Stats {
        duration: Some(f.duration),
        idle: f.idle_age.map(|age| Duration::from_secs(u64::from(age))),
        packet_count: Some(f.packet_count).filter(|n| *n != u64::MAX),
        byte_count: Some(f.byte_count).filter(|n| *n != u64::MAX),
        flow_count: None,
    };
    oxs::encode(&stats, out);
    encode_instructions(&f.actions, encoder(Version::V15, &f.matching), out);
    // A flow that is too long is found when its message is finished.
    let len = out.len() - at;
    out.set_u16(at, u16::try_from(len).unwrap_or(u16::MAX));
}

pub(super) fn decode_aggregate(r: &mut Reader<'_>, version: Version) -> Result<AggregateStats> {
    if version == Version::V15 {
        let stats = oxs::decode(r)?;
        return Ok(AggregateStats {
            packet_count: stats.packet_count.unwrap_or(u64::MAX),
            byte_count: stats.byte_count.unwrap_or(u64::MAX),
            flow_count: stats.flow_count.unwrap_or(0),
        });
    }
    let (packet_count, byte_count) = (r.u64()?, r.u64()?);
    let flow_count = r.u32()?;
    r.skip(4)?;
    Ok(AggregateStats { packet_count, byte_count, flow_count })
}

pub(super) fn encode_aggregate(
    s: &AggregateStats,
    version: Version,
    nicira: bool,
    out: &mut Vec<u8>,
) {
    if version == Version::V15 {
        let stats = oxs::Stats {
            duration: None,
            idle: None,
            packet_count: Some(s.packet_count).filter(|n| *n != u64::MAX),
            byte_count: Some(s.byte_count).filter(|n| *n != u64::MAX),
            flow_count: Some(s.flow_count),
        };
        return oxs::encode(&stats, out);
    }
    let known = |count| {
        if version == Version::V10 && !nicira { unknown_to_zero(count) } else { count }
    };
    out.put_u64(known(s.packet_count));
    out.put_u64(known(s.byte_count));
    out.put_u32(s.flow_count);
    out.put_zeros(4);
}

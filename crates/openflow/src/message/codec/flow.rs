// SPDX-License-Identifier: Apache-2.0
//! Flow mods and removed flows.

use super::actions::{
    decode_instructions, decode_match, decode_nx_match, decode_nx_match_cookie,
    encode_instructions, encoder,
};
use super::header::{Encoded, begin, begin_nicira, finish, nxt, ofpt};
use super::oxs;
use super::*;
use crate::nxm::{self, Strictness};
use crate::wire::{Put, Reader, Result};
use ::flow::{Field, Match};
use ::packet::ethertype;
use std::time::Duration;

/// Bits of flags on the wire, and the first version that has each.
const FLAGS: [(FlowFlags, u16, Version); 5] = [
    (FlowFlags::SEND_FLOW_REM, 1 << 0, Version::V10),
    (FlowFlags::CHECK_OVERLAP, 1 << 1, Version::V10),
    (FlowFlags::RESET_COUNTS, 1 << 2, Version::V12),
    (FlowFlags::NO_PACKET_COUNTS, 1 << 3, Version::V13),
    (FlowFlags::NO_BYTE_COUNTS, 1 << 4, Version::V13),
];
/// OFPFF10_EMERG.
const EMERGENCY10: u16 = 1 << 2;

/// The flags of `version`; bits that it does not have are OFPFMFC_BAD_FLAGS.
pub(super) fn decode_flags(mut bits: u16, version: Version) -> Result<FlowFlags> {
    let mut flags = FlowFlags::empty();
    for (flag, bit, since) in FLAGS {
        if version >= since && bits & bit != 0 {
            flags |= flag;
            bits &= !bit;
        }
    }
    if version == Version::V10 && bits & EMERGENCY10 != 0 {
        flags |= FlowFlags::EMERGENCY;
        bits &= !EMERGENCY10;
    }
    if bits == 0 { Ok(flags) } else { Err(OfError::OFPFMFC_BAD_FLAGS) }
}

pub(super) fn encode_flags(flags: FlowFlags, version: Version) -> u16 {
    let mut bits = FLAGS
        .iter()
        .filter(|(flag, _, since)| version >= *since && flags.contains(*flag))
        .fold(0, |bits, (_, bit, _)| bits | bit);
    if version == Version::V10 && flags.contains(FlowFlags::EMERGENCY) {
        bits |= EMERGENCY10;
    }
    bits
}

/// Flags of a flow mod: in OpenFlow 1.0 and 1.1 an add always resets counters, and emergency
/// flows find their (absent) table full.
fn decode_mod_flags(bits: u16, command: FlowModCommand, version: Version) -> Result<FlowFlags> {
    let mut flags = decode_flags(bits, version)?;
    if flags.contains(FlowFlags::EMERGENCY) {
        return Err(OfError::OFPFMFC_TABLE_FULL);
    }
    if command == FlowModCommand::Add && version < Version::V12 {
        flags |= FlowFlags::RESET_COUNTS;
    }
    Ok(flags)
}

fn decode_command(n: u16) -> Result<FlowModCommand> {
    Ok(match n {
        0 => FlowModCommand::Add,
        1 => FlowModCommand::Modify,
        2 => FlowModCommand::ModifyStrict,
        3 => FlowModCommand::Delete,
        4 => FlowModCommand::DeleteStrict,
        _ => return Err(OfError::OFPFMFC_BAD_COMMAND),
    })
}

/// Table and command of OpenFlow 1.0, where they may share a number.
fn decode_command10(n: u16, p: &Protocol) -> Result<(FlowModCommand, u8)> {
    if p.flow_mod_table_id {
        Ok((decode_command(n & 0xff)?, (n >> 8) as u8))
    } else {
        Ok((decode_command(n)?, TABLE_ALL))
    }
}

fn encode_command10(m: &FlowMod, p: &Protocol) -> u16 {
    let table = if p.flow_mod_table_id { u16::from(m.table_id) << 8 } else { 0 };
    table | m.command as u16
}

/// Checks that a match with addresses of a connection has their Ethernet type. As in OVS, a
/// deletion needs the type, too.
fn check_tuple_type(matching: &Match) -> Result<()> {
    let names = |fields: [Field; 2]| fields.into_iter().any(|f| !matching.is_any(f));
    let dl_type = matching.key().dl_type.get();
    let is_v4 = dl_type == ethertype::IPV4;
    let is_v6 = dl_type == ethertype::IPV6;
    let fits = (is_v4 || !names([Field::CtNwSrc, Field::CtNwDst]))
        && (is_v6 || !names([Field::CtIpv6Src, Field::CtIpv6Dst]));
    if fits { Ok(()) } else { Err(OfError::OFPBAC_MATCH_INCONSISTENT) }
}

fn buffer(id: u32) -> Option<u32> {
    (id != NO_BUFFER).then_some(id)
}

pub(super) fn decode_flow_mod10(mut r: Reader<'_>, p: &Protocol) -> Result<FlowMod> {
    let mut start = r;
    let wildcards = start.u32()?;
    let matching = nxm::normalize(&decode_match(&mut r, Version::V10)?);
    let new_cookie = r.u64()?;
    let (command, table_id) = decode_command10(r.u16()?, p)?;
    let (idle_timeout, hard_timeout, priority) = (r.u16()?, r.u16()?, r.u16()?);
    let buffer_id = buffer(r.u32()?);
    let out_port = r.port10()?;
    let flags = r.u16()?;
    let actions = decode_instructions(r, Version::V10)?.into();
    Ok(FlowMod {
        command,
        matching,
        // An exact match has the highest priority there is (OpenFlow 1.0 section 3.4).
        priority: if wildcards & OFPFW10_ALL != 0 { priority } else { u16::MAX },
        cookie: 0,
        cookie_mask: 0,
        new_cookie,
        modify_cookie: new_cookie != u64::MAX,
        table_id,
        idle_timeout,
        hard_timeout,
        importance: 0,
        buffer_id,
        out_port,
        out_group: GROUP_ANY,
        flags: decode_mod_flags(flags, command, Version::V10)?,
        actions,
    })
}

/// All bits of wildcards that mean something (OFPFW10_ALL).
const OFPFW10_ALL: u32 = (1 << 22) - 1;

pub(super) fn decode_nx_flow_mod(mut r: Reader<'_>, p: &Protocol) -> Result<FlowMod> {
    let new_cookie = r.u64()?;
    let command = r.u16()?;
    let (idle_timeout, hard_timeout, priority) = (r.u16()?, r.u16()?, r.u16()?);
    let buffer_id = buffer(r.u32()?);
    let out_port = r.port10()?;
    let flags = r.u16()?;
    let match_len = r.u16()?;
    r.skip(6)?;
    let (matching, cookie, cookie_mask) = decode_nx_match_cookie(&mut r, match_len)?;
    let (command, table_id) = decode_command10(command, p)?;
    if command == FlowModCommand::Add && cookie_mask != 0 {
        // There is no old cookie to match.
        return Err(OfError::NXBRC_NXM_INVALID);
    }
    check_tuple_type(&matching)?;
    let actions = decode_instructions(r, p.version)?.into();
    Ok(FlowMod {
        command,
        matching,
        priority,
        cookie,
        cookie_mask,
        new_cookie,
        modify_cookie: new_cookie != u64::MAX,
        table_id,
        idle_timeout,
        hard_timeout,
        importance: 0,
        buffer_id,
        out_port,
        out_group: GROUP_ANY,
        flags: decode_mod_flags(flags, command, p.version)?,
        actions,
    })
}

pub(super) fn decode_flow_mod11(mut r: Reader<'_>, version: Version) -> Result<FlowMod> {
    let (cookie, cookie_mask) = (r.u64()?, r.u64()?);
    let (table_id, command) = (r.u8()?, r.u8()?);
    let (idle_timeout, hard_timeout, priority) = (r.u16()?, r.u16()?, r.u16()?);
    let buffer_id = buffer(r.u32()?);
    let (out_port, out_group) = (r.u32()?, r.u32()?);
    let flags = r.u16()?;
    let importance = if version >= Version::V14 { r.u16()? } else { r.skip(2).map(|()| 0)? };
    // When several parts are wrong, the order of checks decides which error is reported. As in OVS,
    // the fields before the actions come first, then the actions, then the flags.
    let matching = decode_match(&mut r, version)?;
    let command = decode_command(u16::from(command))?;
    let deletes = matches!(command, FlowModCommand::Delete | FlowModCommand::DeleteStrict);
    if table_id == TABLE_ALL && !deletes {
        return Err(OfError::OFPFMFC_BAD_TABLE_ID);
    }
    let out_port = Reader::message(&out_port.to_be_bytes()).port11()?;
    check_tuple_type(&matching)?;
    let actions = decode_instructions(r, version)?.into();
    // In OpenFlow 1.1 a modify that names no cookie adds the flow when there is none, so that
    // its cookie is the new one.
    let adds = match command {
        FlowModCommand::Add => true,
        FlowModCommand::Modify | FlowModCommand::ModifyStrict => {
            version == Version::V11 && cookie_mask == 0
        }
        _ => false,
    };
    let (cookie, cookie_mask, new_cookie) =
        if adds { (0, 0, cookie) } else { (cookie, cookie_mask, u64::MAX) };
    Ok(FlowMod {
        command,
        matching,
        priority,
        cookie,
        cookie_mask,
        new_cookie,
        modify_cookie: false,
        table_id,
        idle_timeout,
        hard_timeout,
        importance,
        buffer_id,
        out_port,
        out_group: if deletes { out_group } else { GROUP_ANY },
        flags: decode_mod_flags(flags, command, version)?,
        actions,
    })
}

pub(super) fn encode_flow_mod(m: &FlowMod, p: &Protocol, xid: u32, out: &mut Vec<u8>) -> Encoded {
    let version = p.version;
    let buffer_id = m.buffer_id.unwrap_or(NO_BUFFER);
    let at = if version >= Version::V11 {
        let at = begin(out, version, ofpt::FLOW_MOD, xid);
        let deletes = matches!(m.command, FlowModCommand::Delete | FlowModCommand::DeleteStrict);
        let adds = match m.command {
            FlowModCommand::Add => true,
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => {
                version == Version::V11 && m.cookie_mask == 0
            }
            _ => false,
        };
        out.put_u64(if adds { m.new_cookie } else { m.cookie });
        out.put_u64(if adds { 0 } else { m.cookie_mask });
        // "Choose a table" has no number here; OVS chooses table 0.
        out.put_u8(if m.table_id == TABLE_ALL && !deletes { 0 } else { m.table_id });
        out.put_u8(m.command as u8);
        out.put_u16(m.idle_timeout);
        out.put_u16(m.hard_timeout);
        out.put_u16(m.priority);
        out.put_u32(buffer_id);
        out.put_u32(m.out_port.0);
        out.put_u32(m.out_group);
        out.put_u16(encode_flags(m.flags, version));
        out.put_u16(if version >= Version::V14 { m.importance } else { 0 });
        nxm::encode_match(version, &m.matching, out);
        encode_instructions(&m.actions, encoder(version, &m.matching), out);
        at
    } else if p.flow_format == FlowFormat::Nxm {
        let at = begin_nicira(out, version, nxt::FLOW_MOD, xid);
        out.put_u64(m.new_cookie);
        out.put_u16(encode_command10(m, p));
        out.put_u16(m.idle_timeout);
        out.put_u16(m.hard_timeout);
        out.put_u16(m.priority);
        out.put_u32(buffer_id);
        out.put_port10(m.out_port);
        out.put_u16(encode_flags(m.flags, version));
        let match_len = out.len();
        out.put_zeros(8);
        let len = nxm::encode_nx_match(&m.matching, m.cookie, m.cookie_mask, out);
        out.set_u16(match_len, len as u16); // all fields together are some hundred bytes
        encode_instructions(&m.actions, encoder(version, &m.matching), out);
        at
    } else {
        let at = begin(out, version, ofpt::FLOW_MOD, xid);
        nxm::encode_match(version, &m.matching, out);
        out.put_u64(m.new_cookie);
        out.put_u16(encode_command10(m, p));
        out.put_u16(m.idle_timeout);
        out.put_u16(m.hard_timeout);
        out.put_u16(m.priority);
        out.put_u32(buffer_id);
        out.put_port10(m.out_port);
        out.put_u16(encode_flags(m.flags, version));
        encode_instructions(&m.actions, encoder(version, &m.matching), out);
        at
    };
    finish(out, at, "OFPT_FLOW_MOD")
}

pub(super) fn decode_reason(n: u8) -> Result<FlowRemovedReason> {
    Ok(match n {
        0 => FlowRemovedReason::IdleTimeout,
        1 => FlowRemovedReason::HardTimeout,
        2 => FlowRemovedReason::Delete,
        3 => FlowRemovedReason::GroupDelete,
        4 => FlowRemovedReason::MeterDelete,
        5 => FlowRemovedReason::Eviction,
        _ => return Err(OfError::NXBRC_BAD_REASON),
    })
}

pub(super) fn reason_number(reason: FlowRemovedReason, version: Version) -> u8 {
    match reason {
        FlowRemovedReason::MeterDelete | FlowRemovedReason::Eviction if version < Version::V14 => {
            FlowRemovedReason::Delete as u8
        }
        reason => reason as u8,
    }
}

/// Counters where "unknown" has no number of its own.
pub(super) fn unknown_to_zero(count: u64) -> u64 {
    if count == u64::MAX { 0 } else { count }
}

pub(super) fn decode_flow_removed10(mut r: Reader<'_>) -> Result<FlowRemoved> {
    let matching = decode_match(&mut r, Version::V10)?;
    let cookie = r.u64()?;
    let priority = r.u16()?;
    let reason = decode_reason(r.u8()?)?;
    r.skip(1)?;
    let duration: Duration = r.duration()?;
    let idle_timeout = r.u16()?;
    r.skip(2)?;
    Ok(FlowRemoved {
        matching,
        priority,
        cookie,
        reason,
        table_id: None,
        duration,
        idle_timeout,
        hard_timeout: 0,
        packet_count: r.u64()?,
        byte_count: r.u64()?,
    })
}

pub(super) fn decode_flow_removed11(mut r: Reader<'_>, version: Version) -> Result<FlowRemoved> {
    let cookie = r.u64()?;
    let priority = r.u16()?;
    let reason = decode_reason(r.u8()?)?;
    let table_id = Some(r.u8()?);
    let duration = r.duration()?;
    let (idle_timeout, hard_timeout) = (r.u16()?, r.u16()?);
    let (packet_count, byte_count) = (r.u64()?, r.u64()?);
    let matching = decode_match(&mut r, version)?;
    Ok(FlowRemoved {
        matching,
        priority,
        cookie,
        reason,
        table_id,
        duration,
        idle_timeout,
        hard_timeout,
        packet_count,
        byte_count,
    })
}

pub(super) fn decode_flow_removed15(mut r: Reader<'_>) -> Result<FlowRemoved> {
    let table_id = Some(r.u8()?);
    let reason = decode_reason(r.u8()?)?;
    let (priority, idle_timeout, hard_timeout) = (r.u16()?, r.u16()?, r.u16()?);
    let cookie = r.u64()?;
    let matching = decode_match(&mut r, Version::V15)?;
    let stats = oxs::decode(&mut r)?;
    Ok(FlowRemoved {
        matching,
        priority,
        cookie,
        reason,
        table_id,
        duration: stats.duration.unwrap_or_default(),
        idle_timeout,
        hard_timeout,
        packet_count: stats.packet_count.unwrap_or(u64::MAX),
        byte_count: stats.byte_count.unwrap_or(u64::MAX),
    })
}

pub(super) fn decode_nx_flow_removed(mut r: Reader<'_>) -> Result<FlowRemoved> {
    let cookie = r.u64()?;
    let priority = r.u16()?;
    let reason = decode_reason(r.u8()?)?;
    let table_id = r.u8()?.checked_sub(1);
    let duration = r.duration()?;
    let idle_timeout = r.u16()?;
    let match_len = r.u16()?;
    let (packet_count, byte_count) = (r.u64()?, r.u64()?);
    let matching = decode_nx_match(&mut r, match_len, Strictness::Strict)?;
    if !r.is_empty() {
        return Err(OfError::OFPBRC_BAD_LEN);
    }
    Ok(FlowRemoved {
        matching,
        priority,
        cookie,
        reason,
        table_id,
        duration,
        idle_timeout,
        hard_timeout: 0,
        packet_count,
        byte_count,
    })
}

pub(super) fn encode_flow_removed(
    f: &FlowRemoved,
    p: &Protocol,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let version = p.version;
    let reason = reason_number(f.reason, version);
    let at = if version == Version::V15 {
        let at = begin(out, version, ofpt::FLOW_REMOVED, xid);
        out.put_u8(f.table_id.unwrap_or(0));
        out.put_u8(reason);
        out.put_u16(f.priority);
        out.put_u16(f.idle_timeout);
        out.put_u16(f.hard_timeout);
        out.put_u64(f.cookie);
        nxm::encode_match(version, &f.matching, out);
        let stats = oxs::Stats {
            duration: Some(f.duration),
            idle: None,
            packet_count: Some(f.packet_count).filter(|n| *n != u64::MAX),
            byte_count: Some(f.byte_count).filter(|n| *n != u64::MAX),
            flow_count: None,
        };
        oxs::encode(&stats, out);
        at
    } else if version >= Version::V11 {
        let at = begin(out, version, ofpt::FLOW_REMOVED, xid);
        out.put_u64(f.cookie);
        out.put_u16(f.priority);
        out.put_u8(reason);
        out.put_u8(f.table_id.unwrap_or(0));
        out.put_duration(f.duration);
        out.put_u16(f.idle_timeout);
        out.put_u16(f.hard_timeout);
        out.put_u64(f.packet_count);
        out.put_u64(f.byte_count);
        nxm::encode_match(version, &f.matching, out);
        at
    } else if p.flow_format == FlowFormat::Nxm {
        let at = begin_nicira(out, version, nxt::FLOW_REMOVED, xid);
        out.put_u64(f.cookie);
        out.put_u16(f.priority);
        out.put_u8(reason);
        out.put_u8(f.table_id.map_or(0, |t| t.saturating_add(1)));
        out.put_duration(f.duration);
        out.put_u16(f.idle_timeout);
        let match_len = out.len();
        out.put_u16(0);
        out.put_u64(f.packet_count);
        out.put_u64(f.byte_count);
        let len = nxm::encode_nx_match(&f.matching, 0, 0, out);
        out.set_u16(match_len, len as u16); // all fields together are some hundred bytes
        at
    } else {
        let at = begin(out, version, ofpt::FLOW_REMOVED, xid);
        nxm::encode_match(version, &f.matching, out);
        out.put_u64(f.cookie);
        out.put_u16(f.priority);
        out.put_u8(reason);
        out.put_zeros(1);
        out.put_duration(f.duration);
        out.put_u16(f.idle_timeout);
        out.put_zeros(2);
        out.put_u64(unknown_to_zero(f.packet_count));
        out.put_u64(unknown_to_zero(f.byte_count));
        at
    };
    finish(out, at, "OFPT_FLOW_REMOVED")
}

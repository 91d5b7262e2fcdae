// SPDX-License-Identifier: Apache-2.0
//! Flow monitors.

use super::actions::{
    decode_instructions, decode_match, decode_nx_match, encode_instructions, encoder,
};
use super::flow::{decode_reason, reason_number};
use super::*;
use crate::nxm::{self, Strictness};
use crate::wire::{Put, Reader, Result};

/// Events on the wire: Nicira's numbers (NXFME_*) and OpenFlow 1.4's (OFPFME_*).
mod event {
    pub(super) const NX_ADDED: u16 = 0;
    pub(super) const NX_DELETED: u16 = 1;
    pub(super) const NX_MODIFIED: u16 = 2;
    pub(super) const NX_ABBREV: u16 = 3;
    pub(super) const INITIAL: u16 = 0;
    pub(super) const ADDED: u16 = 1;
    pub(super) const REMOVED: u16 = 2;
    pub(super) const MODIFIED: u16 = 3;
    pub(super) const ABBREV: u16 = 4;
    pub(super) const PAUSED: u16 = 5;
    pub(super) const RESUMED: u16 = 6;
}

/// One monitor of a request.
pub(super) fn decode_request(
    r: &mut Reader<'_>,
    version: Version,
    nicira: bool,
) -> Result<FlowMonitorRequest> {
    let id = r.u32()?;
    let events = MonitorFlags::ADD | MonitorFlags::DELETE | MonitorFlags::MODIFY;
    if nicira {
        let bits = r.u16()?;
        let flags = MonitorFlags::from_bits(bits)
            .filter(|f| !f.contains(MonitorFlags::ONLY_OWN) && f.intersects(events))
            .ok_or(OfError::OFPMOFC_BAD_FLAGS)?;
        let out_port = r.port10()?;
        let match_len = r.u16()?;
        let table_id = r.u8()?;
        if r.bytes(5)? != [0; 5] {
            return Err(OfError::NXBRC_MUST_BE_ZERO);
        }
        let matching = decode_nx_match(r, match_len, Strictness::Strict)?;
        return Ok(FlowMonitorRequest {
            id,
            command: MonitorCommand::Add,
            flags,
            out_port,
            out_group: GROUP_ANY,
            table_id,
            matching,
        });
    }
    let out_port = r.port11()?;
    let out_group = r.u32()?;
    let bits = r.u16()?;
    let table_id = r.u8()?;
    let command = match r.u8()? {
        0 => MonitorCommand::Add,
        1 => MonitorCommand::Modify,
        2 => MonitorCommand::Delete,
        _ => return Err(OfError::OFPMOFC_BAD_COMMAND),
    };
    let flags = if command == MonitorCommand::Delete {
        MonitorFlags::from_bits_truncate(bits)
    } else {
        MonitorFlags::from_bits(bits)
            .filter(|f| f.intersects(events))
            .ok_or(OfError::OFPMOFC_BAD_FLAGS)?
    };
    let matching = decode_match(r, version)?;
    Ok(FlowMonitorRequest { id, command, flags, out_port, out_group, table_id, matching })
}

pub(super) fn encode_request(
    q: &FlowMonitorRequest,
    version: Version,
    nicira: bool,
    out: &mut Vec<u8>,
) {
    out.put_u32(q.id);
    if nicira {
        out.put_u16((q.flags - MonitorFlags::ONLY_OWN).bits());
        out.put_port10(q.out_port);
        let match_len = out.len();
        out.put_u16(0);
        out.put_u8(q.table_id);
        out.put_zeros(5);
        let len = nxm::encode_nx_match(&q.matching, 0, 0, out);
        out.set_u16(match_len, len as u16); // all fields together are some hundred bytes
    } else {
        out.put_u32(q.out_port.0);
        out.put_u32(q.out_group);
        out.put_u16(q.flags.bits());
        out.put_u8(q.table_id);
        out.put_u8(q.command as u8);
        nxm::encode_match(version, &q.matching, out);
    }
}

/// One event of a reply.
pub(super) fn decode_update(
    r: &mut Reader<'_>,
    version: Version,
    nicira: bool,
) -> Result<FlowUpdate> {
    let length = r.u16()?;
    if length % 8 != 0 {
        return Err(OfError::OFPBRC_BAD_LEN);
    }
    let mut r = r.record(length, 2, 8)?;
    let number = r.u16()?;
    // `None` is "deleted", whose reason comes later.
    let event = if nicira {
        match number {
            event::NX_ADDED => Some(FlowUpdateEvent::Added),
            event::NX_DELETED => None,
            event::NX_MODIFIED => Some(FlowUpdateEvent::Modified),
            event::NX_ABBREV => return Ok(FlowUpdate::Abbrev { xid: r.u32()? }),
            _ => return Err(OfError::NXBRC_FM_BAD_EVENT),
        }
    } else {
        match number {
            event::INITIAL => Some(FlowUpdateEvent::Initial),
            event::ADDED => Some(FlowUpdateEvent::Added),
            event::REMOVED => None,
            event::MODIFIED => Some(FlowUpdateEvent::Modified),
            event::ABBREV => return Ok(FlowUpdate::Abbrev { xid: r.u32()? }),
            event::PAUSED => return Ok(FlowUpdate::Paused),
            event::RESUMED => return Ok(FlowUpdate::Resumed),
            _ => return Err(OfError::NXBRC_FM_BAD_EVENT),
        }
    };
    let (reason, priority, idle_timeout, hard_timeout, table_id, cookie, matching, actions);
    if nicira {
        reason = u8::try_from(r.u16()?).unwrap_or(u8::MAX);
        (priority, idle_timeout, hard_timeout) = (r.u16()?, r.u16()?, r.u16()?);
        let match_len = r.u16()?;
        table_id = r.u8()?;
        r.skip(1)?;
        cookie = r.u64()?;
        matching = decode_nx_match(&mut r, match_len, Strictness::Strict)?;
        actions = decode_instructions(r, version)?;
    } else {
        table_id = r.u8()?;
        reason = r.u8()?;
        (idle_timeout, hard_timeout, priority) = (r.u16()?, r.u16()?, r.u16()?);
        r.skip(4)?;
        cookie = r.u64()?;
        matching = decode_match(&mut r, version)?;
        actions = decode_instructions(r, version)?;
    }
    let event = match event {
        Some(event) => event,
        None => FlowUpdateEvent::Deleted(decode_reason(reason)?),
    };
    Ok(FlowUpdate::Full(Box::new(FlowUpdateFull {
        event,
        table_id,
        priority,
        cookie,
        idle_timeout,
        hard_timeout,
        matching,
        actions: actions.into(),
    })))
}

pub(super) fn encode_update(u: &FlowUpdate, version: Version, nicira: bool, out: &mut Vec<u8>) {
    let at = out.len();
    out.put_u16(8);
    let full = match u {
        FlowUpdate::Abbrev { xid } => {
            out.put_u16(if nicira { event::NX_ABBREV } else { event::ABBREV });
            out.put_u32(*xid);
            return;
        }
        // Nicira's form has messages of their own for these; they are no events there.
        FlowUpdate::Paused | FlowUpdate::Resumed if nicira => {
            out.truncate(at);
            return;
        }
        FlowUpdate::Paused | FlowUpdate::Resumed => {
            out.put_u16(if *u == FlowUpdate::Paused { event::PAUSED } else { event::RESUMED });
            out.put_zeros(4);
            return;
        }
        FlowUpdate::Full(full) => full,
    };
    let (number, reason) = match full.event {
        FlowUpdateEvent::Initial => (if nicira { event::NX_ADDED } else { event::INITIAL }, 0),
        FlowUpdateEvent::Added => (if nicira { event::NX_ADDED } else { event::ADDED }, 0),
        FlowUpdateEvent::Modified => (if nicira { event::NX_MODIFIED } else { event::MODIFIED }, 0),
        FlowUpdateEvent::Deleted(reason) => (
            if nicira { event::NX_DELETED } else { event::REMOVED },
            reason_number(reason, version),
        ),
    };
    out.put_u16(number);
    if nicira {
        out.put_u16(u16::from(reason));
        out.put_u16(full.priority);
        out.put_u16(full.idle_timeout);
        out.put_u16(full.hard_timeout);
        let match_len = out.len();
        out.put_u16(0);
        out.put_u8(full.table_id);
        out.put_zeros(1);
        out.put_u64(full.cookie);
        let len = nxm::encode_nx_match(&full.matching, 0, 0, out);
        out.set_u16(match_len, len as u16); // all fields together are some hundred bytes
        encode_instructions(&full.actions, encoder(version, &full.matching), out);
    } else {
        out.put_u8(full.table_id);
        out.put_u8(reason);
        out.put_u16(full.idle_timeout);
        out.put_u16(full.hard_timeout);
        out.put_u16(full.priority);
        out.put_zeros(4);
        out.put_u64(full.cookie);
        nxm::encode_match(version, &full.matching, out);
        encode_instructions(&full.actions, encoder(version, &full.matching), out);
    }
    // An event that is too long is found when its message is finished.
    let len = out.len() - at;
    out.set_u16(at, u16::try_from(len).unwrap_or(u16::MAX));
}

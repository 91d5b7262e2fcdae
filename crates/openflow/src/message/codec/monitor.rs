// SPDX-License-Identifier: Apache-2.0
//! Flow monitors.

use super::actions::{
    decode_instructions, decode_match, decode_nx_match, decode_unchecked_actions, encode_actions,
    encode_instructions, encoder,
};
use super::flow::{decode_reason, reason_number};
use super::header::{Encoded, begin_nicira, begin_onf, finish};
use super::*;
use crate::nxm::{self, Strictness};
use crate::wire::{Put, Reader, Result};
use ::flow::Match;

/// Form of the messages of flow monitors. The version of OpenFlow decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// OpenFlow 1.0 to 1.2: NXST_FLOW_MONITOR, NXT_FLOW_MONITOR_*.
    Nicira,
    /// OpenFlow 1.3: the ONF's extension 187, ONFST_FLOW_MONITOR, ONFT_FLOW_MONITOR_*. Its events
    /// have Nicira's numbers, and the version's own matches and instructions.
    Onf,
    /// OpenFlow 1.4 and later: OFPMP_FLOW_MONITOR.
    Standard,
}

impl Form {
    /// The form in `version`.
    pub(super) fn of(version: Version) -> Form {
        match version {
            Version::V10 | Version::V11 | Version::V12 => Form::Nicira,
            Version::V13 => Form::Onf,
            Version::V14 | Version::V15 => Form::Standard,
        }
    }
}

/// Starts one of the messages of monitors that stand alone: its number is `nicira` in Nicira's
/// form, and `onf` in the ONF's.
///
/// # Errors
/// OpenFlow 1.4 and later have no such messages.
pub(super) fn encode_small(
    (nicira, onf): (u32, u32),
    body: &[u8],
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = match Form::of(version) {
        Form::Nicira => begin_nicira(out, version, nicira, xid),
        Form::Onf => begin_onf(out, version, onf, xid),
        Form::Standard => {
            return Err(EncodeError::Unsupported { what: "a message of flow monitors", version });
        }
    };
    out.put_bytes(body);
    finish(out, at, "message of flow monitors")
}

/// Events on the wire: Nicira's numbers (NXFME_*), which are the ONF's, and OpenFlow 1.4's
/// (OFPFME_*).
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
pub(super) fn decode_request(r: &mut Reader<'_>, version: Version) -> Result<FlowMonitorRequest> {
    let form = Form::of(version);
    let id = r.u32()?;
    let events = MonitorFlags::ADD | MonitorFlags::DELETE | MonitorFlags::MODIFY;
    if form != Form::Standard {
        let bits = r.u16()?;
        let flags = MonitorFlags::from_bits(bits)
            .filter(|f| !f.contains(MonitorFlags::ONLY_OWN) && f.intersects(events))
            .ok_or(OfError::OFPMOFC_BAD_FLAGS)?;
        let (out_port, table_id, matching);
        if form == Form::Nicira {
            out_port = r.port10()?;
            let match_len = r.u16()?;
            table_id = r.u8()?;
            if r.bytes(5)? != [0; 5] {
                return Err(OfError::NXBRC_MUST_BE_ZERO);
            }
            matching = decode_nx_match(r, match_len, Strictness::Strict)?;
        } else {
            r.skip(2)?; // the length of the match, which the match contains too
            out_port = r.port11()?;
            table_id = r.u8()?;
            if r.bytes(3)? != [0; 3] {
                return Err(OfError::NXBRC_MUST_BE_ZERO);
            }
            matching = decode_match(r, version)?;
        }
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

pub(super) fn encode_request(q: &FlowMonitorRequest, version: Version, out: &mut Vec<u8>) {
    let form = Form::of(version);
    out.put_u32(q.id);
    if form == Form::Onf {
        out.put_u16((q.flags - MonitorFlags::ONLY_OWN).bits());
        let match_len = out.len();
        out.put_u16(0);
        out.put_u32(q.out_port.0);
        out.put_u8(q.table_id);
        out.put_zeros(3);
        let len = put_match(version, &q.matching, out);
        out.set_u16(match_len, len);
    } else if form == Form::Nicira {
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

/// Writes a match of `version` with its padding; returns its length without the padding.
fn put_match(version: Version, matching: &Match, out: &mut Vec<u8>) -> u16 {
    let at = out.len();
    nxm::encode_match(version, matching, out);
    match out.get(at + 2..at + 4) {
        Some(&[high, low]) => u16::from_be_bytes([high, low]),
        _ => 0,
    }
}

/// One event of a reply.
pub(super) fn decode_update(r: &mut Reader<'_>, version: Version) -> Result<FlowUpdate> {
    let form = Form::of(version);
    let length = r.u16()?;
    if length % 8 != 0 {
        return Err(OfError::OFPBRC_BAD_LEN);
    }
    let mut r = r.record(length, 2, 8)?;
    let number = r.u16()?;
    // `None` is "deleted", whose reason comes later.
    let event = if form != Form::Standard {
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
    if form != Form::Standard {
        reason = u8::try_from(r.u16()?).unwrap_or(u8::MAX);
        (priority, idle_timeout, hard_timeout) = (r.u16()?, r.u16()?, r.u16()?);
        let match_len = r.u16()?;
        table_id = r.u8()?;
        r.skip(1)?;
        cookie = r.u64()?;
        (matching, actions) = if form == Form::Nicira {
            let matching = decode_nx_match(&mut r, match_len, Strictness::Strict)?;
            (matching, decode_unchecked_actions(r, version)?)
        } else {
            let matching = decode_match(&mut r, version)?;
            (matching, decode_instructions(r, version)?)
        };
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

pub(super) fn encode_update(u: &FlowUpdate, version: Version, out: &mut Vec<u8>) {
    let form = Form::of(version);
    let old = form != Form::Standard;
    let at = out.len();
    out.put_u16(8);
    let full = match u {
        FlowUpdate::Abbrev { xid } => {
            out.put_u16(if old { event::NX_ABBREV } else { event::ABBREV });
            out.put_u32(*xid);
            return;
        }
        // The older forms have messages of their own for these; they are no events there.
        FlowUpdate::Paused | FlowUpdate::Resumed if old => {
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
        FlowUpdateEvent::Initial => (if old { event::NX_ADDED } else { event::INITIAL }, 0),
        FlowUpdateEvent::Added => (if old { event::NX_ADDED } else { event::ADDED }, 0),
        FlowUpdateEvent::Modified => (if old { event::NX_MODIFIED } else { event::MODIFIED }, 0),
        FlowUpdateEvent::Deleted(reason) => {
            (if old { event::NX_DELETED } else { event::REMOVED }, reason_number(reason, version))
        }
    };
    out.put_u16(number);
    if old {
        out.put_u16(u16::from(reason));
        out.put_u16(full.priority);
        out.put_u16(full.idle_timeout);
        out.put_u16(full.hard_timeout);
        let match_len = out.len();
        out.put_u16(0);
        out.put_u8(full.table_id);
        out.put_zeros(1);
        out.put_u64(full.cookie);
        if form == Form::Nicira {
            let len = nxm::encode_nx_match(&full.matching, 0, 0, out);
            out.set_u16(match_len, len as u16); // all fields together are some hundred bytes
            encode_actions(&full.actions, encoder(version, &full.matching), out);
        } else {
            let len = put_match(version, &full.matching, out);
            out.set_u16(match_len, len);
            encode_instructions(&full.actions, encoder(version, &full.matching), out);
        }
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

// SPDX-License-Identifier: Apache-2.0
//! Instructions of OpenFlow 1.1+ (OFPIT_*), kept in one list with the actions.

use super::decode::decode_list;
use super::encode::{Encoder, encode_list};
use super::traits::Instruction;
use super::{Action, verify};
use crate::wire::{Put, Reader};
use crate::{OfError, Version};

const GOTO_TABLE: u16 = 1;
const WRITE_METADATA: u16 = 2;
const WRITE_ACTIONS: u16 = 3;
const APPLY_ACTIONS: u16 = 4;
const CLEAR_ACTIONS: u16 = 5;
const METER: u16 = 6;
const EXPERIMENTER: u16 = 0xffff;

/// Highest meter number (OFPM13_MAX).
const METER_MAX: u32 = 0xffff_0000;

/// Reads the instructions of a flow mod, to the end of `bytes`; for [`Version::V10`], its
/// actions. Nicira's write_metadata may be the last of the actions to apply: it is the
/// instruction, then.
///
/// # Errors
/// OFPBIC_BAD_LEN for lengths that are no multiple of 8 or not the instruction's;
/// OFPBIC_UNKNOWN_INST, OFPBIC_BAD_EXPERIMENTER, OFPBIC_DUP_INST; OFPMMFC_INVALID_METER;
/// OFPBAC_BAD_TYPE for an action that an action set cannot hold; OFPBAC_UNSUPPORTED_ORDER for a
/// second write_metadata, or actions after one; those of [`super::decode::decode_actions`].
pub fn decode_instructions(bytes: &[u8], version: Version) -> Result<Vec<Action>, OfError> {
    if version == Version::V10 {
        let actions = decode_list(version, bytes)?;
        verify::list(&actions, version, true).map_err(|p| p.error())?;
        return Ok(actions);
    }
    let bad_len = OfError::OFPBIC_BAD_LEN;
    if !bytes.len().is_multiple_of(8) {
        return Err(bad_len);
    }
    // First what is there, then what is in it: a duplicate is found before a bad action.
    let mut bodies: [Option<&[u8]>; 7] = [None; 7];
    let mut rest = bytes;
    while !rest.is_empty() {
        let mut r = Reader::new(rest, bad_len);
        let (ty, len) = (r.u16()?, usize::from(r.u16()?));
        let body = rest.get(4..len).ok_or(bad_len)?;
        let fits = match ty {
            EXPERIMENTER => return Err(OfError::OFPBIC_BAD_EXPERIMENTER),
            METER if version >= Version::V15 => return Err(OfError::OFPBIC_UNKNOWN_INST),
            GOTO_TABLE | CLEAR_ACTIONS | METER => len == 8,
            WRITE_METADATA => len == 24,
            WRITE_ACTIONS | APPLY_ACTIONS => len >= 8 && len.is_multiple_of(8),
            _ if !len.is_multiple_of(8) => false,
            _ => return Err(OfError::OFPBIC_UNKNOWN_INST),
        };
        if !fits {
            return Err(bad_len);
        }
        match bodies.get_mut(usize::from(ty)) {
            Some(Some(_)) => return Err(OfError::OFPBIC_DUP_INST),
            Some(slot) => *slot = Some(body),
            None => return Err(OfError::OFPBIC_UNKNOWN_INST),
        }
        rest = rest.get(len..).unwrap_or_default();
    }

    let body =
        |ty: u16| bodies.get(usize::from(ty)).copied().flatten().map(|b| Reader::new(b, bad_len));
    let mut out = Vec::new();
    if let Some(mut r) = body(METER) {
        let id = r.u32()?;
        if id == 0 || id > METER_MAX {
            return Err(OfError::OFPMMFC_INVALID_METER);
        }
        out.push(Action::Meter(id));
    }
    if let Some(mut r) = body(APPLY_ACTIONS) {
        r.skip(4)?;
        out.extend(decode_list(version, r.peek())?);
    }
    if body(CLEAR_ACTIONS).is_some() {
        out.push(Action::ClearActions);
    }
    if let Some(mut r) = body(WRITE_ACTIONS) {
        r.skip(4)?;
        out.push(Action::WriteActions(decode_action_set(r.peek(), version)?));
    }
    if let Some(mut r) = body(WRITE_METADATA) {
        r.skip(4)?;
        out.push(Action::WriteMetadata { value: r.u64()?, mask: r.u64()? });
    }
    if let Some(mut r) = body(GOTO_TABLE) {
        out.push(Action::GotoTable(r.u8()?));
    }
    verify::list(&out, version, true).map_err(|p| p.error())?;
    Ok(out)
}

/// Reads actions for an action set, as Write-Actions and OpenFlow 1.1's buckets have them.
///
/// # Errors
/// OFPBAC_BAD_TYPE for an action that an action set cannot hold; those of
/// [`super::decode::decode_actions`].
pub fn decode_action_set(bytes: &[u8], version: Version) -> Result<Vec<Action>, OfError> {
    let actions = decode_list(version, bytes)?;
    if actions.iter().all(|a| a.action_set_slot().is_some()) {
        Ok(actions)
    } else {
        Err(OfError::OFPBAC_BAD_TYPE)
    }
}

/// Appends the actions of a flow as the instructions of `encoder`'s version; for OpenFlow 1.0,
/// as its actions, where clear_actions and write_actions have no form and are left out.
/// `encoder` is an [`Encoder`] or, when the match is not known, a [`Version`].
pub fn encode_instructions(actions: &[Action], encoder: impl Into<Encoder>, out: &mut Vec<u8>) {
    let mut encoder = encoder.into();
    let version = encoder.version();
    if version == Version::V10 {
        encode_list(actions, &mut encoder, out);
        return;
    }
    let mut rest = actions;
    while let Some((first, tail)) = rest.split_first() {
        let kind = Instruction::of(first, version);
        let start = out.len();
        if kind == Instruction::ApplyActions {
            let n = rest
                .iter()
                .take_while(|a| Instruction::of(a, version) == Instruction::ApplyActions)
                .count();
            let (apply, tail) = rest.split_at(n);
            rest = tail;
            open(APPLY_ACTIONS, out);
            encode_list(apply, &mut encoder, out);
            close(start, out);
            continue;
        }
        rest = tail;
        match first {
            Action::Meter(_) if version < Version::V13 => {}
            Action::Meter(id) => {
                out.put_u16(METER);
                out.put_u16(8);
                out.put_u32(*id);
            }
            Action::ClearActions => {
                open(CLEAR_ACTIONS, out);
                close(start, out);
            }
            // As OVS: nothing to write needs no instruction.
            Action::WriteActions(set) if set.is_empty() => {}
            Action::WriteActions(set) => {
                open(WRITE_ACTIONS, out);
                encode_list(set, &mut encoder, out);
                close(start, out);
            }
            Action::WriteMetadata { value, mask } => {
                open(WRITE_METADATA, out);
                out.put_u64(*value);
                out.put_u64(*mask);
                close(start, out);
            }
            Action::GotoTable(table) => {
                out.put_u16(GOTO_TABLE);
                out.put_u16(8);
                out.put_u8(*table);
                out.put_zeros(3);
            }
            _ => {} // Instruction::of() has no other
        }
    }
}

/// Type, length to be filled in, and four bytes of padding.
fn open(ty: u16, out: &mut Vec<u8>) {
    out.put_u16(ty);
    out.put_zeros(6);
}

/// Fills in the length of the structure that starts at `start`.
fn close(start: usize, out: &mut Vec<u8>) {
    let len = out.len() - start;
    out.set_u16(start + 2, u16::try_from(len).unwrap_or(u16::MAX));
}

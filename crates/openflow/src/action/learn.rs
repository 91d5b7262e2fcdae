// SPDX-License-Identifier: Apache-2.0
//! NXAST_LEARN and NXAST_LEARN2.
//!
//! A list of specifications follows a fixed part. Each has a 16-bit head: bit 13 distinguishes an
//! immediate value from a field as source, bits 11 and 12 hold the target (0 match, 1 load, 2
//! output), bits 0 to 9 the width. A zero head, or the end, ends the list.

use super::operand::{low_bits, old_header, subfield, writable};
use super::{Learn, LearnSource, LearnSpec, LearnTarget};
use crate::OfError;
use crate::nxm::{encode_header, pull_header};
use crate::wire::{Put, Reader};
use flow::Subfield;

const SEND_FLOW_REM: u16 = 1;
const DELETE_LEARNED: u16 = 2;
/// LEARN2 only: a result field follows.
const WRITE_RESULT: u16 = 4;

const SRC_IMMEDIATE: u16 = 1 << 13;
const DST_MASK: u16 = 3 << 11;
const DST_MATCH: u16 = 0;
const DST_LOAD: u16 = 1 << 11;
const DST_OUTPUT: u16 = 2 << 11;
const BITS_MASK: u16 = 0x3ff;

/// Reads the action from its idle_timeout on.
pub(super) fn decode(r: &mut Reader, learn2: bool) -> Result<Learn, OfError> {
    let bad = OfError::OFPBAC_BAD_ARGUMENT;
    let (idle_timeout, hard_timeout, priority) = (r.u16()?, r.u16()?, r.u16()?);
    let cookie = r.u64()?;
    let (flags, table, pad) = (r.u16()?, r.u8()?, r.u8()?);
    let allowed = SEND_FLOW_REM | DELETE_LEARNED | if learn2 { WRITE_RESULT } else { 0 };
    if flags & !allowed != 0 || table == u8::MAX || pad != 0 {
        return Err(bad);
    }
    let mut out = Learn {
        idle_timeout,
        hard_timeout,
        priority,
        cookie,
        send_flow_removed: flags & SEND_FLOW_REM != 0,
        delete_learned: flags & DELETE_LEARNED != 0,
        table,
        fin_idle_timeout: r.u16()?,
        fin_hard_timeout: r.u16()?,
        limit: 0,
        result_dst: None,
        specs: Vec::new(),
    };
    if learn2 {
        out.limit = r.u32()?;
        let start = r.u16()?;
        r.zeros(2, OfError::NXBAC_MUST_BE_ZERO)?;
        if flags & WRITE_RESULT != 0 {
            out.result_dst = Some(writable(subfield(pull_header(r)?, start, 1)?)?);
        } else if start != 0 {
            return Err(bad);
        }
    }
    while r.len() >= 2 {
        let head = r.u16()?;
        if head == 0 {
            break;
        }
        out.specs.push(spec(head, r)?);
    }
    r.zero_rest(bad)?;
    Ok(out)
}

fn spec(head: u16, r: &mut Reader) -> Result<LearnSpec, OfError> {
    let bits = head & BITS_MASK;
    let target = head & DST_MASK;
    let immediate = head & SRC_IMMEDIATE != 0;
    if target == DST_MASK || (target == DST_OUTPUT && immediate) {
        return Err(OfError::OFPBAC_BAD_ARGUMENT);
    }
    let field_len = 6;
    let source_len = if immediate { value_len(bits) } else { field_len };
    let target_len = if target == DST_OUTPUT { 0 } else { field_len };
    if r.len() < source_len + target_len {
        return Err(OfError::OFPBAC_BAD_LEN);
    }
    let src = if immediate {
        // More than 128 bits fit no field; the target's check refuses them.
        let bytes = r.bytes(value_len(bits))?;
        let value = bytes.iter().fold(0u128, |v, b| v << 8 | u128::from(*b));
        LearnSource::Value(low_bits(value, bits.next_multiple_of(8)))
    } else {
        LearnSource::Field(part(bits, r)?)
    };
    let dst = match target {
        DST_MATCH => LearnTarget::Match(part(bits, r)?),
        DST_LOAD => LearnTarget::Load(part(bits, r)?),
        _ => LearnTarget::Output,
    };
    Ok(LearnSpec { bits, src, dst })
}

/// Bytes of an immediate value: whole 16-bit units.
fn value_len(bits: u16) -> usize {
    2 * usize::from(bits.div_ceil(16))
}

/// Reads a part of a field; the part may exceed the field. As in Open vSwitch, that error is
/// reported after other errors of the earlier specifications.
fn part(bits: u16, r: &mut Reader) -> Result<Subfield, OfError> {
    let field = old_header(r)?;
    let start = r.u16()?;
    Ok(Subfield { field, start, bits })
}

/// True when only NXAST_LEARN2 can express the action.
pub(super) fn needs_learn2(learn: &Learn) -> bool {
    learn.limit != 0 || learn.result_dst.is_some()
}

/// Appends the action from its idle_timeout on, without the padding at its end.
pub(super) fn encode(learn: &Learn, out: &mut Vec<u8>) {
    out.put_u16(learn.idle_timeout);
    out.put_u16(learn.hard_timeout);
    out.put_u16(learn.priority);
    out.put_u64(learn.cookie);
    let mut flags = 0;
    for (set, flag) in [
        (learn.send_flow_removed, SEND_FLOW_REM),
        (learn.delete_learned, DELETE_LEARNED),
        (learn.result_dst.is_some(), WRITE_RESULT),
    ] {
        flags |= if set { flag } else { 0 };
    }
    out.put_u16(flags);
    out.put_u8(learn.table);
    out.put_u8(0);
    out.put_u16(learn.fin_idle_timeout);
    out.put_u16(learn.fin_hard_timeout);
    if needs_learn2(learn) {
        out.put_u32(learn.limit);
        out.put_u16(learn.result_dst.map_or(0, |dst| dst.start));
        out.put_u16(0);
        if let Some(dst) = learn.result_dst {
            encode_header(dst.field, false, 0, out);
        }
    }
    for spec in &learn.specs {
        let (source, target) = (
            if matches!(spec.src, LearnSource::Value(_)) { SRC_IMMEDIATE } else { 0 },
            match spec.dst {
                LearnTarget::Match(_) => DST_MATCH,
                LearnTarget::Load(_) => DST_LOAD,
                LearnTarget::Output => DST_OUTPUT,
            },
        );
        out.put_u16(source | target | spec.bits & BITS_MASK);
        match &spec.src {
            LearnSource::Field(part) => put_part(*part, out),
            LearnSource::Value(value) => out.put_uint(*value, value_len(spec.bits)),
        }
        match &spec.dst {
            LearnTarget::Match(part) | LearnTarget::Load(part) => put_part(*part, out),
            LearnTarget::Output => {}
        }
    }
}

fn put_part(part: Subfield, out: &mut Vec<u8>) {
    encode_header(part.field, false, 0, out);
    out.put_u16(part.start);
}

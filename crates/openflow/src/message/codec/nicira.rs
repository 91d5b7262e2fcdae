// SPDX-License-Identifier: Apache-2.0
//! Nicira's messages without counterpart in OpenFlow.

use super::header::{Encoded, begin_nicira, finish, nxt};
use super::property::{self, Kind};
use super::*;
use crate::wire::{Put, Reader, Result};

fn decode_tlv_maps(mut r: Reader<'_>) -> Result<Vec<TlvMap>> {
    let mut maps = Vec::new();
    while !r.is_empty() {
        maps.push(TlvMap { class: r.u16()?, kind: r.u8()?, len: r.u8()?, index: r.u16()? });
        r.skip(2)?;
    }
    Ok(maps)
}

fn encode_tlv_maps(maps: &[TlvMap], out: &mut Vec<u8>) {
    for m in maps {
        out.put_u16(m.class);
        out.put_u8(m.kind);
        out.put_u8(m.len);
        out.put_u16(m.index);
        out.put_zeros(2);
    }
}

pub(super) fn decode_tlv_table_mod(mut r: Reader<'_>) -> Result<TlvTableMod> {
    let command = match r.u16()? {
        0 => TlvTableCommand::Add,
        1 => TlvTableCommand::Delete,
        2 => TlvTableCommand::Clear,
        _ => return Err(OfError::NXTTMFC_BAD_COMMAND),
    };
    r.skip(6)?;
    let mappings = decode_tlv_maps(r)?;
    for m in &mappings {
        if m.len % 4 != 0 || m.len > 124 {
            return Err(OfError::NXTTMFC_BAD_OPT_LEN);
        }
        if m.index >= 64 {
            return Err(OfError::NXTTMFC_BAD_FIELD_IDX);
        }
    }
    Ok(TlvTableMod { command, mappings })
}

pub(super) fn encode_tlv_table_mod(
    m: &TlvTableMod,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin_nicira(out, version, nxt::TLV_TABLE_MOD, xid);
    out.put_u16(m.command as u16);
    out.put_zeros(6);
    encode_tlv_maps(&m.mappings, out);
    finish(out, at, "NXT_TLV_TABLE_MOD")
}

pub(super) fn decode_tlv_table_reply(mut r: Reader<'_>) -> Result<TlvTableReply> {
    let (max_option_space, max_fields) = (r.u32()?, r.u16()?);
    r.skip(10)?;
    Ok(TlvTableReply { max_option_space, max_fields, mappings: decode_tlv_maps(r)? })
}

pub(super) fn encode_tlv_table_reply(
    t: &TlvTableReply,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin_nicira(out, version, nxt::TLV_TABLE_REPLY, xid);
    out.put_u32(t.max_option_space);
    out.put_u16(t.max_fields);
    out.put_zeros(10);
    encode_tlv_maps(&t.mappings, out);
    finish(out, at, "NXT_TLV_TABLE_REPLY")
}

/// Properties of NXT_CT_FLUSH (NXT_CT_*).
const ORIGINAL: u16 = 0;
const REPLY: u16 = 1;
const ZONE: u16 = 2;
const MARK: u16 = 3;
const MARK_MASK: u16 = 4;
const LABEL: u16 = 5;
const LABEL_MASK: u16 = 6;
/// Properties of a tuple (NXT_CT_TUPLE_*).
const SRC: u16 = 0;
const DST: u16 = 1;
const SRC_PORT: u16 = 2;
const DST_PORT: u16 = 3;
const ICMP_ID: u16 = 4;
const ICMP_TYPE: u16 = 5;
const ICMP_CODE: u16 = 6;

fn is_v4_mapped(address: &[u8; 16]) -> bool {
    address.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff])
}

/// Reads a tuple; `v4` is the family of the addresses so far.
fn decode_tuple(mut r: Reader<'_>, v4: &mut Option<bool>) -> Result<CtTuple> {
    let mut t = CtTuple::default();
    while !r.is_empty() {
        let prop = property::next(&mut r)?;
        let Kind::Standard(ty) = prop.kind else {
            return Err(prop.unknown());
        };
        match ty {
            SRC | DST => {
                let address: [u8; 16] = prop.exactly(16)?.array()?;
                let known = (address != [0; 16]).then_some(address);
                if let Some(address) = &known {
                    let is_v4 = is_v4_mapped(address);
                    if v4.is_some_and(|v4| v4 != is_v4) {
                        return Err(OfError::OFPBPC_BAD_VALUE);
                    }
                    *v4 = Some(is_v4);
                }
                *(if ty == SRC { &mut t.src } else { &mut t.dst }) = known;
            }
            SRC_PORT => t.src_port = Some(prop.u16()?),
            DST_PORT => t.dst_port = Some(prop.u16()?),
            ICMP_ID => t.icmp_id = Some(prop.u16()?),
            ICMP_TYPE => t.icmp_type = Some(prop.u8()?),
            ICMP_CODE => t.icmp_code = Some(prop.u8()?),
            _ => return Err(prop.unknown()),
        }
    }
    Ok(t)
}

pub(super) fn decode_ct_flush(mut r: Reader<'_>) -> Result<CtFlush> {
    let ip_proto = r.u8()?;
    if r.bytes(7)? != [0; 7] {
        return Err(OfError::NXBRC_MUST_BE_ZERO);
    }
    let mut f = CtFlush { ip_proto, ..CtFlush::default() };
    let mut v4 = None;
    let (mut mark, mut label) = ((None, None), (None, None));
    while !r.is_empty() {
        let prop = property::next(&mut r)?;
        match prop.kind {
            Kind::Standard(ORIGINAL) => f.original = decode_tuple(prop.aligned()?, &mut v4)?,
            Kind::Standard(REPLY) => f.reply = decode_tuple(prop.aligned()?, &mut v4)?,
            Kind::Standard(ZONE) => f.zone = Some(prop.u16()?),
            Kind::Standard(MARK) => mark.0 = Some(prop.u32()?),
            Kind::Standard(MARK_MASK) => mark.1 = Some(prop.u32()?),
            Kind::Standard(LABEL) => label.0 = Some(prop.u128()?),
            Kind::Standard(LABEL_MASK) => label.1 = Some(prop.u128()?),
            _ => return Err(prop.unknown()),
        }
    }
    // A value without a mask is exact. A mask of zeros matches anything.
    let or_ones = |mask: Option<u32>| mask.unwrap_or(u32::MAX);
    f.mark = pair(mark).map(|(value, mask)| (value, or_ones(mask))).filter(|(_, mask)| *mask != 0);
    let or_ones = |mask: Option<u128>| mask.unwrap_or(u128::MAX);
    f.label =
        pair(label).map(|(value, mask)| (value, or_ones(mask))).filter(|(_, mask)| *mask != 0);
    Ok(f)
}

/// Returns a value and its mask, when either is given. A mask alone is one of the value 0.
fn pair<T: Default>((value, mask): (Option<T>, Option<T>)) -> Option<(T, Option<T>)> {
    (value.is_some() || mask.is_some()).then(|| (value.unwrap_or_default(), mask))
}

fn put_tuple(t: &CtTuple, ty: u16, out: &mut Vec<u8>) {
    if *t == CtTuple::default() {
        return;
    }
    let at = property::start(out, ty);
    out.put_zeros(4);
    for (ty, address) in [(SRC, t.src), (DST, t.dst)] {
        if let Some(address) = address {
            property::put(out, ty, &address);
        }
    }
    for (ty, n) in [(SRC_PORT, t.src_port), (DST_PORT, t.dst_port), (ICMP_ID, t.icmp_id)] {
        if let Some(n) = n {
            property::put_small(out, ty, &n.to_be_bytes());
        }
    }
    for (ty, n) in [(ICMP_TYPE, t.icmp_type), (ICMP_CODE, t.icmp_code)] {
        if let Some(n) = n {
            property::put(out, ty, &[n]);
        }
    }
    property::end(out, at);
}

pub(super) fn encode_ct_flush(
    f: &CtFlush,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin_nicira(out, version, nxt::CT_FLUSH, xid);
    out.put_u8(f.ip_proto);
    out.put_zeros(7);
    put_tuple(&f.original, ORIGINAL, out);
    put_tuple(&f.reply, REPLY, out);
    if let Some(zone) = f.zone {
        property::put_small(out, ZONE, &zone.to_be_bytes());
    }
    if let Some((value, mask)) = f.mark {
        if mask != u32::MAX {
            property::put_small(out, MARK_MASK, &mask.to_be_bytes());
        }
        property::put_small(out, MARK, &value.to_be_bytes());
    }
    if let Some((value, mask)) = f.label {
        if mask != u128::MAX {
            property::put(out, LABEL_MASK, &mask.to_be_bytes());
        }
        property::put(out, LABEL, &value.to_be_bytes());
    }
    finish(out, at, "NXT_CT_FLUSH")
}

pub(super) fn decode_ct_flush_zone(mut r: Reader<'_>) -> Result<u16> {
    if r.bytes(6)? != [0; 6] {
        return Err(OfError::NXBRC_MUST_BE_ZERO);
    }
    r.u16()
}

pub(super) fn decode_flow_format(mut r: Reader<'_>) -> Result<FlowFormat> {
    match r.u32()? {
        0 => Ok(FlowFormat::OpenFlow10),
        2 => Ok(FlowFormat::Nxm),
        _ => Err(OfError::OFPBRC_EPERM),
    }
}

pub(super) fn decode_packet_in_format(mut r: Reader<'_>) -> Result<PacketInFormat> {
    match r.u32()? {
        0 => Ok(PacketInFormat::Standard),
        1 => Ok(PacketInFormat::Nxt),
        2 => Ok(PacketInFormat::Nxt2),
        _ => Err(OfError::OFPBRC_EPERM),
    }
}

/// Messages whose body is one number, or nothing.
pub(super) fn encode_small(
    subtype: u32,
    body: &[u8],
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin_nicira(out, version, subtype, xid);
    out.put_bytes(body);
    finish(out, at, "Nicira message")
}

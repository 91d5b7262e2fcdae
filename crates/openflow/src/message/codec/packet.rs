// SPDX-License-Identifier: Apache-2.0
//! Packet-in and packet-out.

use super::actions::{
    decode_match_loose, decode_nx_match, decode_unchecked_actions, encode_actions,
};
use super::continuation;
use super::header::{Encoded, begin, begin_nicira, finish, nxt, ofpt};
use super::property::{self, Kind};
use super::*;
use crate::PortNo;
use crate::nxm::{self, Strictness};
use crate::wire::{Put, Reader, Result};
use ::flow::{Field, Match};

/// Properties of NXT_PACKET_IN2 (NXPINT_*).
mod nxpint {
    pub(super) const PACKET: u16 = 0;
    pub(super) const FULL_LEN: u16 = 1;
    pub(super) const BUFFER_ID: u16 = 2;
    pub(super) const TABLE_ID: u16 = 3;
    pub(super) const COOKIE: u16 = 4;
    pub(super) const REASON: u16 = 5;
    pub(super) const METADATA: u16 = 6;
    pub(super) const USERDATA: u16 = 7;
    pub(super) const CONTINUATION: u16 = 8;
}

fn from_port(port: PortNo) -> Match {
    let mut metadata = Match::ANY;
    metadata.set(Field::InPortOxm, u128::from(port.0));
    metadata
}

fn decode_reason(n: u8) -> Result<PacketInReason> {
    PacketInReason::from_number(n)
        .filter(|r| *r <= PacketInReason::PacketOut)
        .ok_or(OfError::NXBRC_BAD_REASON)
}

pub(super) fn decode_packet_in(mut r: Reader<'_>, version: Version) -> Result<PacketIn> {
    r.skip(4)?; // buffer id: we have no buffers
    let (total_len, in_port, reason);
    let (mut table_id, mut cookie) = (0, u64::MAX);
    match version {
        Version::V10 => {
            total_len = r.u16()?;
            in_port = r.port10()?;
            reason = decode_reason(r.u8()?)?;
            r.skip(1)?;
        }
        Version::V11 => {
            in_port = r.port11()?;
            r.skip(4)?;
            total_len = r.u16()?;
            reason = decode_reason(r.u8()?)?;
            table_id = r.u8()?;
        }
        _ => {
            total_len = r.u16()?;
            reason = decode_reason(r.u8()?)?;
            table_id = r.u8()?;
            if version >= Version::V13 {
                cookie = r.u64()?;
            }
            let metadata = decode_match_loose(&mut r, version)?;
            r.skip(2)?;
            return Ok(packet_in(
                reason,
                u32::from(total_len),
                table_id,
                cookie,
                metadata,
                r.rest(),
            ));
        }
    }
    Ok(packet_in(reason, u32::from(total_len), table_id, cookie, from_port(in_port), r.rest()))
}

fn packet_in(
    reason: PacketInReason,
    total_len: u32,
    table_id: u8,
    cookie: u64,
    metadata: Match,
    data: &[u8],
) -> PacketIn {
    PacketIn {
        reason,
        data: data.to_vec(),
        total_len,
        cookie,
        table_id,
        metadata,
        userdata: Vec::new(),
        continuation: None,
    }
}

pub(super) fn decode_nx_packet_in(mut r: Reader<'_>) -> Result<PacketIn> {
    r.skip(4)?;
    let total_len = r.u16()?;
    let reason = decode_reason(r.u8()?)?;
    let table_id = r.u8()?;
    let cookie = r.u64()?;
    let match_len = r.u16()?;
    r.skip(6)?;
    let metadata = decode_nx_match(&mut r, match_len, Strictness::Loose)?;
    r.skip(2)?;
    Ok(packet_in(reason, u32::from(total_len), table_id, cookie, metadata, r.rest()))
}

/// NXT_PACKET_IN2, and NXT_RESUME, where unknown properties are refused.
pub(super) fn decode_nx_packet_in2(
    mut r: Reader<'_>,
    version: Version,
    loose: bool,
) -> Result<PacketIn> {
    let mut p = packet_in(PacketInReason::NoMatch, 0, 0, u64::MAX, Match::ANY, &[]);
    let strictness = if loose { Strictness::Loose } else { Strictness::Strict };
    while !r.is_empty() {
        let prop = property::next(&mut r)?;
        let Kind::Standard(ty) = prop.kind else {
            if loose {
                continue;
            }
            return Err(prop.unknown());
        };
        match ty {
            nxpint::PACKET => p.data = prop.value.peek().to_vec(),
            nxpint::FULL_LEN => p.total_len = prop.u32()?,
            nxpint::BUFFER_ID => {
                prop.u32()?;
            }
            nxpint::TABLE_ID => p.table_id = prop.u8()?,
            nxpint::COOKIE => p.cookie = prop.u64()?,
            nxpint::REASON => p.reason = decode_reason(prop.u8()?)?,
            nxpint::METADATA => {
                // OXM and NXM headers are both understood; no header and no padding inside.
                let value = prop.value.peek();
                p.metadata = decode_oxm_list(value, strictness)?;
            }
            nxpint::USERDATA => p.userdata = prop.value.peek().to_vec(),
            nxpint::CONTINUATION => {
                p.continuation = Some(Box::new(continuation::decode(prop.aligned()?, version)?));
            }
            _ if loose => {}
            _ => return Err(prop.unknown()),
        }
    }
    let included = u32::try_from(p.data.len()).unwrap_or(u32::MAX);
    if included == 0 || (p.total_len != 0 && p.total_len < included) {
        return Err(OfError::OFPBRC_BAD_LEN);
    }
    if p.total_len == 0 {
        p.total_len = included;
    }
    Ok(p)
}

/// A list of OXM fields that ends where the bytes end.
pub(super) fn decode_oxm_list(bytes: &[u8], strictness: Strictness) -> Result<Match> {
    let mut padded = bytes.to_vec();
    padded.pad8(0);
    Ok(nxm::decode_nx_match(&padded, bytes.len(), strictness, false)?.0.matching)
}

/// Writes the properties that NXT_PACKET_IN2 and NXT_RESUME share.
fn put_properties(p: &PacketIn, version: Version, out: &mut Vec<u8>) {
    property::put(out, nxpint::PACKET, &p.data);
    if p.total_len as usize != p.data.len() {
        property::put(out, nxpint::FULL_LEN, &p.total_len.to_be_bytes());
    }
    property::put(out, nxpint::TABLE_ID, &[p.table_id]);
    if p.cookie != u64::MAX {
        property::put_u64(out, nxpint::COOKIE, p.cookie);
    }
    property::put(out, nxpint::REASON, &[p.reason.wire(version)]);
    let at = property::start(out, nxpint::METADATA);
    nxm::encode_oxm_list(version, &p.metadata, out);
    property::end(out, at);
    if let Some(c) = &p.continuation {
        let at = property::start(out, nxpint::CONTINUATION);
        out.put_zeros(4);
        continuation::encode(c, version, out);
        if out.len() == at + 8 {
            out.truncate(at); // nothing in it
        } else {
            property::end(out, at);
        }
    }
}

pub(super) fn encode_resume(
    p: &PacketIn,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin_nicira(out, version, nxt::RESUME, xid);
    put_properties(p, version, out);
    finish(out, at, "NXT_RESUME")
}

pub(super) fn encode_packet_in(
    p: &PacketIn,
    protocol: &Protocol,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let version = protocol.version;
    let total_len = u16::try_from(p.total_len).unwrap_or(u16::MAX);
    let reason = p.reason.wire(version);
    let in_port = p.in_port();
    let at = match protocol.packet_in_format {
        PacketInFormat::Nxt2 => {
            let at = begin_nicira(out, version, nxt::PACKET_IN2, xid);
            put_properties(p, version, out);
            if !p.userdata.is_empty() {
                property::put(out, nxpint::USERDATA, &p.userdata);
            }
            return finish(out, at, "NXT_PACKET_IN2");
        }
        PacketInFormat::Nxt => {
            let at = begin_nicira(out, version, nxt::PACKET_IN, xid);
            out.put_u32(NO_BUFFER);
            out.put_u16(total_len);
            out.put_u8(reason);
            out.put_u8(p.table_id);
            out.put_u64(p.cookie);
            let match_len = out.len();
            out.put_zeros(8);
            let len = nxm::encode_nx_match(&p.metadata, 0, 0, out);
            out.set_u16(match_len, len as u16); // all fields together are some hundred bytes
            out.put_zeros(2);
            at
        }
        PacketInFormat::Standard => {
            let at = begin(out, version, ofpt::PACKET_IN, xid);
            out.put_u32(NO_BUFFER);
            match version {
                Version::V10 => {
                    out.put_u16(total_len);
                    out.put_port10(in_port);
                    out.put_u8(reason);
                    out.put_zeros(1);
                }
                Version::V11 => {
                    out.put_u32(in_port.0);
                    out.put_u32(in_port.0);
                    out.put_u16(total_len);
                    out.put_u8(reason);
                    out.put_u8(p.table_id);
                }
                _ => {
                    out.put_u16(total_len);
                    out.put_u8(reason);
                    out.put_u8(p.table_id);
                    if version >= Version::V13 {
                        out.put_u64(p.cookie);
                    }
                    nxm::encode_match(version, &p.metadata, out);
                    out.put_zeros(2);
                }
            }
            at
        }
    };
    out.put_bytes(&p.data);
    finish(out, at, "OFPT_PACKET_IN")
}

pub(super) fn decode_packet_out(mut r: Reader<'_>, version: Version) -> Result<PacketOut> {
    let buffer_id = r.u32()?;
    let (actions_len, metadata);
    match version {
        Version::V10 => {
            metadata = from_port(r.port10()?);
            actions_len = r.u16()?;
        }
        Version::V15 => {
            actions_len = r.u16()?;
            r.skip(2)?;
            metadata = decode_match_loose(&mut r, version)?;
            if metadata.mask().0.in_port.get() == 0 {
                return Err(OfError::OFPBRC_BAD_PORT);
            }
        }
        _ => {
            metadata = from_port(r.port11()?);
            actions_len = r.u16()?;
            r.skip(6)?;
        }
    }
    let in_port = PortNo(metadata.key().in_port.get());
    let from = in_port.0 < PortNo::MAX.0
        || matches!(in_port, PortNo::LOCAL | PortNo::NONE | PortNo::CONTROLLER);
    let actions = r.sub(usize::from(actions_len)).map_err(|_| OfError::OFPBRC_BAD_LEN)?;
    let actions = decode_unchecked_actions(actions, version)?.into();
    if !from {
        return Err(OfError::OFPBRC_BAD_PORT);
    }
    let (buffer_id, data) = if buffer_id == NO_BUFFER {
        (None, r.rest().to_vec())
    } else {
        (Some(buffer_id), Vec::new())
    };
    Ok(PacketOut { buffer_id, data, metadata, actions })
}

pub(super) fn encode_packet_out(
    p: &PacketOut,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin(out, version, ofpt::PACKET_OUT, xid);
    out.put_u32(p.buffer_id.unwrap_or(NO_BUFFER));
    let actions_len;
    match version {
        Version::V10 => {
            out.put_port10(p.in_port());
            actions_len = out.len();
            out.put_zeros(2);
        }
        Version::V15 => {
            actions_len = out.len();
            out.put_zeros(4);
            nxm::encode_match(version, &p.metadata, out);
        }
        _ => {
            out.put_u32(p.in_port().0);
            actions_len = out.len();
            out.put_zeros(8);
        }
    }
    let start = out.len();
    encode_actions(&p.actions, version, out);
    let size = out.len() - start;
    let len = u16::try_from(size)
        .map_err(|_| EncodeError::TooLong { what: "actions of OFPT_PACKET_OUT", size })?;
    out.set_u16(actions_len, len);
    if p.buffer_id.is_none() {
        out.put_bytes(&p.data);
    }
    finish(out, at, "OFPT_PACKET_OUT")
}

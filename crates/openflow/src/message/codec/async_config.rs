// SPDX-License-Identifier: Apache-2.0
//! Configuration of asynchronous messages.

use super::header::{Encoded, Later, begin_later, begin_nicira, finish, nxt};
use super::property::{self, Kind};
use super::*;
use crate::wire::{Put, Reader, Result};

/// The kinds that OpenFlow 1.3 and NXT_SET_ASYNC_CONFIG carry, in the order of the message.
const LEGACY: [AsyncKind; 3] = [AsyncKind::PacketIn, AsyncKind::PortStatus, AsyncKind::FlowRemoved];

const MISS: u32 = 1 << PacketInReason::NoMatch as u32;
const EXPLICIT_MISS: u32 = 1 << PacketInReason::ExplicitMiss as u32;
const IMPLICIT_MISS: u32 = 1 << PacketInReason::ImplicitMiss as u32;

/// The reasons that may be named in `version`.
fn allowed(kind: AsyncKind, version: Version) -> u32 {
    let modern = version >= Version::V14;
    match kind {
        AsyncKind::PacketIn => {
            if modern {
                0x3f
            } else {
                0x07
            }
        }
        AsyncKind::PortStatus => 0x07,
        AsyncKind::FlowRemoved => {
            if modern {
                0x3f
            } else {
                0x0f
            }
        }
        AsyncKind::RoleStatus => 0x07,
        AsyncKind::TableStatus => 0x18,
        AsyncKind::RequestForward => 0x03,
    }
}

/// The reasons of the wire as ours: "no match" stands for misses with a table-miss flow, and
/// before OpenFlow 1.3 for those without.
fn reasons_from_wire(bits: u32, kind: AsyncKind, version: Version) -> u32 {
    let mut reasons = bits & allowed(kind, version);
    if kind == AsyncKind::PacketIn && reasons & MISS != 0 {
        reasons |= EXPLICIT_MISS;
        if version < Version::V13 {
            reasons |= IMPLICIT_MISS;
        }
    }
    reasons
}

fn reasons_to_wire(reasons: u32, kind: AsyncKind, version: Version) -> u32 {
    let miss = kind == AsyncKind::PacketIn && reasons & EXPLICIT_MISS != 0;
    (reasons | if miss { MISS } else { 0 }) & allowed(kind, version)
}

/// OFPT_SET_ASYNC and OFPT_GET_ASYNC_REPLY of OpenFlow 1.3, and NXT_SET_ASYNC_CONFIG.
pub(super) fn decode_legacy(mut r: Reader<'_>, version: Version) -> Result<SetAsync> {
    let mut changes = Vec::new();
    for kind in LEGACY {
        for primary in [true, false] {
            let reasons = reasons_from_wire(r.u32()?, kind, version);
            changes.push(AsyncChange { kind, primary, reasons });
        }
    }
    Ok(SetAsync { changes })
}

/// The properties of OpenFlow 1.4, and NXT_SET_ASYNC_CONFIG2. With `loose`, what is not known
/// is ignored.
pub(super) fn decode_properties(
    mut r: Reader<'_>,
    version: Version,
    loose: bool,
) -> Result<SetAsync> {
    let mut changes = Vec::new();
    while !r.is_empty() {
        let prop = property::next(&mut r)?;
        let kind = match prop.kind {
            Kind::Standard(ty) => AsyncKind::ALL.get(usize::from(ty / 2)).map(|kind| (*kind, ty)),
            Kind::Experimenter(..) => None,
        };
        let Some((kind, ty)) = kind else {
            if loose {
                continue;
            }
            return Err(OfError::OFPACFC_UNSUPPORTED);
        };
        let bits = prop.u32()?;
        // NXT_SET_ASYNC_CONFIG2 brings OpenFlow 1.4's reasons to earlier versions.
        let named = version.max(Version::V14);
        if bits & !allowed(kind, named) != 0 && !loose {
            return Err(OfError::OFPACFC_INVALID);
        }
        let mut reasons = bits & allowed(kind, named);
        if kind == AsyncKind::PacketIn && reasons & MISS != 0 {
            reasons |= EXPLICIT_MISS;
            if version < Version::V13 {
                reasons |= IMPLICIT_MISS;
            }
        }
        changes.push(AsyncChange { kind, primary: ty & 1 == 1, reasons });
    }
    Ok(SetAsync { changes })
}

fn put_legacy(config: &AsyncConfig, version: Version, out: &mut Vec<u8>) {
    for kind in LEGACY {
        for role in [Role::Primary, Role::Secondary] {
            out.put_u32(reasons_to_wire(config.reasons(kind, role), kind, version));
        }
    }
}

pub(super) fn encode_reply(
    config: &AsyncConfig,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin_later(out, version, Later::GetAsyncReply, xid)?;
    if version < Version::V14 {
        put_legacy(config, version, out);
    } else {
        for kind in AsyncKind::ALL {
            for (bit, role) in [(0, Role::Secondary), (1, Role::Primary)] {
                let reasons = reasons_to_wire(config.reasons(kind, role), kind, version);
                property::put(out, kind as u16 * 2 + bit, &reasons.to_be_bytes());
            }
        }
    }
    finish(out, at, "OFPT_GET_ASYNC_REPLY")
}

pub(super) fn encode_set(set: &SetAsync, version: Version, xid: u32, out: &mut Vec<u8>) -> Encoded {
    let at = if version >= Version::V14 {
        begin_later(out, version, Later::SetAsync, xid)?
    } else {
        begin_nicira(out, version, nxt::SET_ASYNC_CONFIG2, xid)
    };
    let named = version.max(Version::V14);
    for change in &set.changes {
        let ty = change.kind as u16 * 2 + u16::from(change.primary);
        let reasons = reasons_to_wire(change.reasons, change.kind, named);
        property::put(out, ty, &reasons.to_be_bytes());
    }
    finish(out, at, "OFPT_SET_ASYNC")
}

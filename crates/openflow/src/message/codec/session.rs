// SPDX-License-Identifier: Apache-2.0
//! Hello, errors, features, configuration, roles.

use super::header::{Encoded, Later, begin, begin_later, begin_nicira, finish, nxt, ofpt};
use super::port::{decode_port, encode_port};
use super::*;
use crate::wire::{Put, Reader, Result};

/// Element of a hello: version bitmap (OFPHET_VERSIONBITMAP).
const VERSION_BITMAP: u16 = 1;

pub(super) fn decode_hello(mut r: Reader<'_>, version: u8) -> Result<Hello> {
    // OpenFlow 1.3.1 section 7.5.1: unknown elements are ignored.
    while r.len() >= 4 {
        let whole = r.peek();
        let (ty, len) = (r.u16()?, usize::from(r.u16()?));
        let Some(value) = whole.get(4..len) else {
            break;
        };
        if ty == VERSION_BITMAP {
            let bits = Reader::message(value).u32().unwrap_or(0);
            if bits != 0 {
                return Ok(Hello { versions: Versions(bits & !1) });
            }
        }
        if r.skip(len.next_multiple_of(8) - 4).is_err() {
            break;
        }
    }
    Ok(Hello { versions: Versions::up_to(version) })
}

pub(super) fn encode_hello(hello: &Hello, xid: u32, out: &mut Vec<u8>) -> Encoded {
    // The header holds the newest version; the bitmap is left out where the header is enough.
    let newest = hello.versions.newest().unwrap_or(Version::V10);
    let at = begin(out, newest, ofpt::HELLO, xid);
    if hello.versions != Versions::up_to(newest.wire()) {
        out.put_u16(VERSION_BITMAP);
        out.put_u16(8);
        out.put_u32(hello.versions.0);
    }
    finish(out, at, "OFPT_HELLO")
}

pub(super) fn decode_error(mut r: Reader<'_>, version: Version) -> Result<ErrorMessage> {
    if let Some((error, size)) = OfError::decode(version, r.peek()) {
        r.skip(size)?;
        return Ok(ErrorMessage { error: ErrorCode::Known(error), data: r.rest().to_vec() });
    }
    let (mut kind, mut code) = (r.u16()?, r.u16()?);
    let mut vendor = 0;
    if version >= Version::V12 && kind == 0xffff {
        (vendor, kind) = (r.u32()?, code);
        code = 0;
    } else if version < Version::V12 && (kind, code) == (0xb0c2, 0) {
        (vendor, kind, code) = (r.u32()?, r.u16()?, r.u16()?);
    }
    Ok(ErrorMessage { error: ErrorCode::Unknown { vendor, kind, code }, data: r.rest().to_vec() })
}

pub(super) fn encode_error(
    error: &ErrorMessage,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin(out, version, ofpt::ERROR, xid);
    match error.error {
        ErrorCode::Known(error) => out.put_bytes(&error.encode(version)),
        ErrorCode::Unknown { vendor: 0, kind, code } => {
            out.put_u16(kind);
            out.put_u16(code);
        }
        ErrorCode::Unknown { vendor, kind, code } if version < Version::V12 => {
            out.put_u16(0xb0c2);
            out.put_u16(0);
            out.put_u32(vendor);
            out.put_u16(kind);
            out.put_u16(code);
        }
        ErrorCode::Unknown { vendor, kind, .. } => {
            out.put_u16(0xffff);
            out.put_u16(kind);
            out.put_u32(vendor);
        }
    }
    out.put_bytes(&error.data);
    finish(out, at, "OFPT_ERROR")
}

/// Bits that all versions number alike, and those of each version of its own.
fn capability_bits(version: Version) -> &'static [(Capabilities, u32)] {
    const COMMON: [(Capabilities, u32); 5] = [
        (Capabilities::FLOW_STATS, 1 << 0),
        (Capabilities::TABLE_STATS, 1 << 1),
        (Capabilities::PORT_STATS, 1 << 2),
        (Capabilities::IP_REASM, 1 << 5),
        (Capabilities::QUEUE_STATS, 1 << 6),
    ];
    const fn with<const N: usize, const M: usize>(
        more: [(Capabilities, u32); N],
    ) -> [(Capabilities, u32); M] {
        let mut all = [COMMON[0]; M];
        let mut i = 0;
        while i < M {
            all[i] = if i < 5 { COMMON[i] } else { more[i - 5] };
            i += 1;
        }
        all
    }
    static V10: [(Capabilities, u32); 7] =
        with([(Capabilities::STP, 1 << 3), (Capabilities::ARP_MATCH_IP, 1 << 7)]);
    static V11: [(Capabilities, u32); 7] =
        with([(Capabilities::GROUP_STATS, 1 << 3), (Capabilities::ARP_MATCH_IP, 1 << 7)]);
    static V12: [(Capabilities, u32); 7] =
        with([(Capabilities::GROUP_STATS, 1 << 3), (Capabilities::PORT_BLOCKED, 1 << 8)]);
    static V14: [(Capabilities, u32); 9] = with([
        (Capabilities::GROUP_STATS, 1 << 3),
        (Capabilities::PORT_BLOCKED, 1 << 8),
        (Capabilities::BUNDLES, 1 << 9),
        (Capabilities::FLOW_MONITORING, 1 << 10),
    ]);
    match version {
        Version::V10 => &V10,
        Version::V11 => &V11,
        Version::V12 | Version::V13 => &V12,
        Version::V14 | Version::V15 => &V14,
    }
}

pub(super) fn decode_features(mut r: Reader<'_>, version: Version) -> Result<SwitchFeatures> {
    let datapath_id = r.u64()?;
    let n_buffers = r.u32()?;
    let n_tables = r.u8()?;
    let auxiliary_id = r.u8()?;
    r.skip(2)?;
    let bits = r.u32()?;
    let actions = r.u32()?;
    let capabilities = capability_bits(version)
        .iter()
        .filter(|(_, bit)| bits & bit != 0)
        .fold(Capabilities::empty(), |all, (c, _)| all | *c);
    let mut ports = Vec::new();
    if version >= Version::V13 {
        r.expect(0, 0)?;
    } else {
        while !r.is_empty() {
            ports.push(decode_port(&mut r, version)?);
        }
    }
    Ok(SwitchFeatures {
        datapath_id,
        n_buffers,
        n_tables,
        auxiliary_id: if version >= Version::V13 { auxiliary_id } else { 0 },
        capabilities,
        actions: if version == Version::V10 { actions } else { 0 },
        ports,
    })
}

pub(super) fn encode_features(
    f: &SwitchFeatures,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin(out, version, ofpt::FEATURES_REPLY, xid);
    out.put_u64(f.datapath_id);
    out.put_u32(f.n_buffers);
    out.put_u8(f.n_tables);
    out.put_u8(if version >= Version::V13 { f.auxiliary_id } else { 0 });
    out.put_zeros(2);
    out.put_u32(
        capability_bits(version)
            .iter()
            .filter(|(c, _)| f.capabilities.contains(*c))
            .fold(0, |all, (_, bit)| all | bit),
    );
    out.put_u32(if version == Version::V10 { f.actions } else { 0 });
    if version < Version::V13 {
        for port in &f.ports {
            // As in OVS, ports that exceed the message are left out; the port description request
            // lists all ports.
            if out.len() - at + 64 > usize::from(u16::MAX) {
                break;
            }
            encode_port(port, version, out);
        }
    }
    finish(out, at, "OFPT_FEATURES_REPLY")
}

/// OFPC_INVALID_TTL_TO_CONTROLLER: before 1.3 (where the table-miss flow decides).
const INVALID_TTL: u16 = 1 << 2;

pub(super) fn decode_config(mut r: Reader<'_>, version: Version) -> Result<SwitchConfig> {
    let flags = r.u16()?;
    let miss_send_len = r.u16()?;
    let has_ttl = version < Version::V13;
    let known = 3 | if has_ttl { INVALID_TTL } else { 0 };
    if flags & !known != 0 {
        return Err(OfError::OFPSCFC_BAD_FLAGS);
    }
    let fragments = match flags & 3 {
        0 => FragmentHandling::Normal,
        1 => FragmentHandling::Drop,
        2 => FragmentHandling::Reassemble,
        _ => FragmentHandling::NxMatch,
    };
    let invalid_ttl_to_controller = has_ttl.then_some(flags & INVALID_TTL != 0);
    Ok(SwitchConfig { fragments, invalid_ttl_to_controller, miss_send_len })
}

pub(super) fn encode_config(
    c: &SwitchConfig,
    reply: bool,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let ty = if reply { ofpt::GET_CONFIG_REPLY } else { ofpt::SET_CONFIG };
    let at = begin(out, version, ty, xid);
    let mut flags = match c.fragments {
        FragmentHandling::Normal => 0,
        FragmentHandling::Drop => 1,
        FragmentHandling::Reassemble => 2,
        FragmentHandling::NxMatch => 3,
    };
    if version < Version::V13 && c.invalid_ttl_to_controller == Some(true) {
        flags |= INVALID_TTL;
    }
    out.put_u16(flags);
    out.put_u16(c.miss_send_len);
    finish(out, at, "switch configuration")
}

fn decode_role_number(n: u32) -> Result<Role> {
    Ok(match n {
        0 => Role::NoChange,
        1 => Role::Equal,
        2 => Role::Primary,
        3 => Role::Secondary,
        _ => return Err(OfError::OFPRRFC_BAD_ROLE),
    })
}

fn role_number(role: Role) -> u32 {
    match role {
        Role::NoChange => 0,
        Role::Equal => 1,
        Role::Primary => 2,
        Role::Secondary => 3,
    }
}

pub(super) fn decode_role(mut r: Reader<'_>) -> Result<RoleRequest> {
    let role = decode_role_number(r.u32()?)?;
    r.skip(4)?;
    let generation = r.u64()?;
    // A reply without a known generation bears all ones.
    let matters = matches!(role, Role::Primary | Role::Secondary) || generation != u64::MAX;
    let generation_id = matters.then_some(generation);
    Ok(RoleRequest { role, generation_id, nicira: false })
}

pub(super) fn decode_nx_role(mut r: Reader<'_>) -> Result<RoleRequest> {
    let role = match r.u32()? {
        0 => Role::Equal,
        1 => Role::Primary,
        2 => Role::Secondary,
        _ => return Err(OfError::OFPRRFC_BAD_ROLE),
    };
    Ok(RoleRequest { role, generation_id: None, nicira: true })
}

pub(super) fn encode_role(
    role: &RoleRequest,
    reply: bool,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = if role.nicira {
        let subtype = if reply { nxt::ROLE_REPLY } else { nxt::ROLE_REQUEST };
        let at = begin_nicira(out, version, subtype, xid);
        out.put_u32(match role.role {
            Role::Equal => 0,
            Role::Primary => 1,
            Role::Secondary => 2,
            Role::NoChange => {
                return Err(EncodeError::Unsupported {
                    what: "role \"no change\" in Nicira's form",
                    version,
                });
            }
        });
        at
    } else {
        let message = if reply { Later::RoleReply } else { Later::RoleRequest };
        let at = begin_later(out, version, message, xid)?;
        out.put_u32(role_number(role.role));
        out.put_zeros(4);
        out.put_u64(role.generation_id.unwrap_or(u64::MAX));
        at
    };
    finish(out, at, "role")
}

pub(super) fn decode_role_status(mut r: Reader<'_>) -> Result<RoleStatus> {
    let role = match decode_role_number(r.u32()?)? {
        Role::NoChange => return Err(OfError::OFPRRFC_BAD_ROLE),
        role => role,
    };
    let reason = match r.u8()? {
        0 => RoleReason::PrimaryRequest,
        1 => RoleReason::Config,
        2 => RoleReason::Experimenter,
        _ => return Err(OfError::OFPRRFC_BAD_ROLE),
    };
    r.skip(3)?;
    Ok(RoleStatus { role, reason, generation_id: r.u64()? })
}

pub(super) fn encode_role_status(
    s: &RoleStatus,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin_later(out, version, Later::RoleStatus, xid)?;
    out.put_u32(role_number(s.role));
    out.put_u8(s.reason as u8);
    out.put_zeros(3);
    out.put_u64(s.generation_id);
    finish(out, at, "OFPT_ROLE_STATUS")
}

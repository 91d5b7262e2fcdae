// SPDX-License-Identifier: Apache-2.0
//! Groups.
//!
//! OpenFlow 1.0 has none; Nicira's messages for it (NXT_GROUP_MOD, NXST_GROUP*) have the form of
//! OpenFlow 1.5, and actions as in OpenFlow 1.0.

use super::actions::{decode_actions, encode_actions};
use super::header::{Encoded, Later, begin_later, finish};
use super::property::{self, Kind, NTR_OLD_VENDOR, NTR_VENDOR};
use super::*;
use crate::wire::{Put, Reader, Result};
use crate::{PortNo, nxm};
use ::flow::{Field, FieldValue};

/// OFPGC11_ADD_OR_MOD, OVS's own.
const ADD_OR_MODIFY: u16 = 0x8000;
/// Bucket properties of OpenFlow 1.5 (OFPGBPT15_*).
const WEIGHT: u16 = 0;
const WATCH_PORT: u16 = 1;
const WATCH_GROUP: u16 = 2;
/// NTR's group property: selection method.
const SELECTION_METHOD: u32 = 1;
/// Bytes of a selection method's name, with its zero byte.
const METHOD_SPACE: usize = 16;

/// True for versions whose groups have the form of OpenFlow 1.5.
pub(super) fn has_form15(version: Version) -> bool {
    version == Version::V10 || version >= Version::V15
}

fn decode_kind(n: u8) -> Result<GroupKind> {
    Ok(match n {
        0 => GroupKind::All,
        1 => GroupKind::Select,
        2 => GroupKind::Indirect,
        3 => GroupKind::FastFailover,
        _ => return Err(OfError::OFPGMFC_BAD_TYPE),
    })
}

fn decode_command(n: u16, version: Version) -> Result<GroupCommand> {
    Ok(match n {
        0 => GroupCommand::Add,
        1 => GroupCommand::Modify,
        2 => GroupCommand::Delete,
        3 if has_form15(version) => GroupCommand::InsertBucket,
        5 if has_form15(version) => GroupCommand::RemoveBucket,
        ADD_OR_MODIFY => GroupCommand::AddOrModify,
        _ => return Err(OfError::OFPGMFC_BAD_COMMAND),
    })
}

fn command_number(
    command: GroupCommand,
    version: Version,
) -> std::result::Result<u16, EncodeError> {
    Ok(match command {
        GroupCommand::Add => 0,
        GroupCommand::Modify => 1,
        GroupCommand::Delete => 2,
        GroupCommand::AddOrModify => ADD_OR_MODIFY,
        GroupCommand::InsertBucket if has_form15(version) => 3,
        GroupCommand::RemoveBucket if has_form15(version) => 5,
        _ => {
            return Err(EncodeError::Unsupported {
                what: "group command on single buckets",
                version,
            });
        }
    })
}

fn watch_port(n: u32) -> Result<PortNo> {
    Reader::message(&n.to_be_bytes()).port11().map_err(|_| OfError::OFPGMFC_BAD_WATCH)
}

fn decode_buckets11(mut r: Reader<'_>, version: Version) -> Result<Vec<Bucket>> {
    let mut buckets = Vec::new();
    let bad = |_| OfError::OFPGMFC_BAD_BUCKET;
    while !r.is_empty() {
        let len = r.u16().map_err(bad)?;
        let mut b = r.record(len, 2, 16).map_err(bad)?;
        let weight = b.u16()?;
        let port = b.u32()?;
        let group = b.u32()?;
        b.skip(4)?;
        buckets.push(Bucket {
            id: buckets.len() as u32, // fewer than 65,536 / 16
            weight,
            watch_port: watch_port(port)?,
            watch_group: group,
            actions: decode_actions(b, version)?.into(),
        });
    }
    Ok(buckets)
}

fn decode_buckets15(mut r: Reader<'_>, version: Version, kind: GroupKind) -> Result<Vec<Bucket>> {
    let mut buckets: Vec<Bucket> = Vec::new();
    let bad = |_| OfError::OFPGMFC_BAD_BUCKET;
    while !r.is_empty() {
        let len = r.u16().map_err(bad)?;
        let mut b = r.record(len, 2, 8).map_err(bad)?;
        let actions_len = usize::from(b.u16()?);
        let id = b.u32()?;
        let actions = decode_actions(b.sub(actions_len).map_err(bad)?, version)?;
        let weight = u16::from(kind == GroupKind::Select);
        let mut bucket = Bucket { weight, ..Bucket::new(id, actions) };
        while !b.is_empty() {
            let prop = property::next(&mut b)?;
            match prop.kind {
                Kind::Standard(WEIGHT) => bucket.weight = prop.u16()?,
                Kind::Standard(WATCH_PORT) => bucket.watch_port = watch_port(prop.u32()?)?,
                Kind::Standard(WATCH_GROUP) => bucket.watch_group = prop.u32()?,
                _ => return Err(prop.unknown()),
            }
        }
        if id > bucket::MAX {
            return Err(OfError::OFPGMFC_BAD_BUCKET);
        }
        buckets.push(bucket);
    }
    let mut ids: Vec<u32> = buckets.iter().map(|b| b.id).collect();
    ids.sort_unstable();
    if ids.windows(2).any(|pair| pair.first() == pair.last()) {
        return Err(OfError::OFPGMFC_BAD_BUCKET);
    }
    Ok(buckets)
}

fn encode_bucket(b: &Bucket, kind: GroupKind, version: Version, out: &mut Vec<u8>) {
    let at = out.len();
    out.put_u16(0);
    if !has_form15(version) {
        out.put_u16(b.weight);
        out.put_u32(b.watch_port.0);
        out.put_u32(b.watch_group);
        out.put_zeros(4);
        encode_actions(&b.actions, version, out);
    } else {
        out.put_u16(0);
        out.put_u32(b.id);
        let start = out.len();
        encode_actions(&b.actions, version, out);
        let len = out.len() - start;
        // Too long a list is found when the message is finished.
        out.set_u16(at + 2, u16::try_from(len).unwrap_or(u16::MAX));
        if kind == GroupKind::Select || b.weight != 0 {
            property::put_small(out, WEIGHT, &b.weight.to_be_bytes());
        }
        if b.watch_port != PortNo::NONE {
            property::put(out, WATCH_PORT, &b.watch_port.0.to_be_bytes());
        }
        if b.watch_group != GROUP_ANY {
            property::put(out, WATCH_GROUP, &b.watch_group.to_be_bytes());
        }
    }
    let len = out.len() - at;
    out.set_u16(at, u16::try_from(len).unwrap_or(u16::MAX));
}

/// Group properties; `may_select` is false where a selection method makes no sense.
fn decode_properties(mut r: Reader<'_>, may_select: bool) -> Result<GroupProperties> {
    let mut properties = GroupProperties::default();
    while !r.is_empty() {
        let prop = property::next(&mut r)?;
        match prop.kind {
            Kind::Experimenter(NTR_VENDOR | NTR_OLD_VENDOR, SELECTION_METHOD) => {
                if !may_select {
                    return Err(OfError::OFPBPC_BAD_VALUE);
                }
                properties = decode_selection_method(prop.aligned()?)?;
            }
            _ => return Err(prop.unknown()),
        }
    }
    Ok(properties)
}

fn decode_selection_method(mut v: Reader<'_>) -> Result<GroupProperties> {
    if v.len() < METHOD_SPACE + 8 {
        return Err(OfError::OFPBPC_BAD_LEN);
    }
    let selection_method = v.text(METHOD_SPACE)?;
    if !matches!(selection_method.as_str(), "hash" | "dp_hash") {
        return Err(OfError::OFPBPC_BAD_VALUE);
    }
    let selection_param = v.u64()?;
    let mut fields: Vec<(Field, FieldValue)> = Vec::new();
    while !v.is_empty() {
        let (header, len) = nxm::decode_header(v.peek()).map_err(|_| OfError::OFPBPC_BAD_VALUE)?;
        v.skip(len)?;
        // A hash of fields of any length is not possible.
        let is_option = header.field.option().is_some();
        if header.has_mask || is_option || fields.iter().any(|(f, _)| *f == header.field) {
            return Err(OfError::OFPBPC_BAD_VALUE);
        }
        let mask = v
            .bytes(usize::from(header.field.oxm_bytes()))
            .map_err(|_| OfError::OFPBPC_BAD_LEN)?
            .iter()
            .fold(0, |mask, b| mask << 8 | FieldValue::from(*b));
        fields.push((header.field, mask));
    }
    Ok(GroupProperties { selection_method, selection_param, fields })
}

fn encode_properties(p: &GroupProperties, version: Version, out: &mut Vec<u8>) {
    if p.selection_method.is_empty() {
        return;
    }
    let at = property::start_experimenter(out, NTR_VENDOR, SELECTION_METHOD);
    out.put_zeros(4);
    out.put_text(&p.selection_method, METHOD_SPACE);
    out.put_u64(p.selection_param);
    for (field, mask) in &p.fields {
        if nxm::encode_header(*field, false, version.wire(), out) {
            let width = usize::from(field.oxm_bytes());
            out.put_bytes(
                mask.to_be_bytes().get(16usize.saturating_sub(width)..).unwrap_or_default(),
            );
        }
    }
    property::end(out, at);
}

pub(super) fn decode_group_mod(mut r: Reader<'_>, version: Version) -> Result<GroupMod> {
    let command = r.u16()?;
    // As in OVS, errors of the command and the buckets are reported before an error of the type.
    let kind = decode_kind(r.u8()?);
    r.skip(1)?;
    let group_id = r.u32()?;
    let mut command_bucket_id = bucket::ALL;
    let (buckets, properties);
    let command = decode_command(command, version)?;
    if !has_form15(version) {
        buckets = decode_buckets11(r, version)?;
        properties = GroupProperties::default();
    } else {
        let buckets_len = usize::from(r.u16()?);
        r.skip(2)?;
        command_bucket_id = r.u32()?;
        let good = match command {
            GroupCommand::InsertBucket => {
                command_bucket_id <= bucket::MAX
                    || matches!(command_bucket_id, bucket::FIRST | bucket::LAST)
            }
            GroupCommand::RemoveBucket => {
                command_bucket_id <= bucket::MAX
                    || matches!(command_bucket_id, bucket::FIRST | bucket::LAST | bucket::ALL)
            }
            _ => command_bucket_id == bucket::ALL,
        };
        if !good {
            return Err(OfError::OFPGMFC_BAD_BUCKET);
        }
        let select = matches!(kind, Ok(GroupKind::Select));
        let of_kind = if select { GroupKind::Select } else { GroupKind::All };
        buckets = decode_buckets15(r.sub(buckets_len)?, version, of_kind)?;
        let changes =
            matches!(command, GroupCommand::Add | GroupCommand::Modify | GroupCommand::AddOrModify);
        properties = decode_properties(r, select && changes)?;
    }
    let m = GroupMod { command, kind: kind?, group_id, command_bucket_id, buckets, properties };
    check(&m, version)?;
    Ok(m)
}

/// Checks the rules for a group mod that do not depend on the existing groups.
fn check(m: &GroupMod, version: Version) -> Result<()> {
    let adds = matches!(m.command, GroupCommand::Add | GroupCommand::AddOrModify);
    match m.command {
        GroupCommand::RemoveBucket if !m.buckets.is_empty() => {
            return Err(OfError::OFPGMFC_BAD_BUCKET);
        }
        GroupCommand::Delete if !m.buckets.is_empty() && version >= Version::V13 => {
            return Err(OfError::OFPGMFC_INVALID_GROUP);
        }
        _ => {}
    }
    if adds && m.group_id > GROUP_MAX {
        return Err(OfError::OFPGMFC_INVALID_GROUP);
    }
    if m.kind == GroupKind::Indirect
        && (adds || m.command == GroupCommand::Modify)
        && m.buckets.len() != 1
    {
        return Err(OfError::OFPGMFC_INVALID_GROUP);
    }
    for b in &m.buckets {
        let watches = b.watch_port != PortNo::NONE || b.watch_group != GROUP_ANY;
        let insert = m.command == GroupCommand::InsertBucket; // whose kind says nothing
        if b.weight != 0 && m.kind != GroupKind::Select && !insert {
            return Err(OfError::OFPGMFC_INVALID_GROUP);
        }
        match m.kind {
            GroupKind::All | GroupKind::Indirect if watches => {
                return Err(OfError::OFPGMFC_WATCH_UNSUPPORTED);
            }
            GroupKind::FastFailover if !watches => return Err(OfError::OFPGMFC_INVALID_GROUP),
            _ => {}
        }
    }
    Ok(())
}

/// Writes the body of OFPT_GROUP_MOD, after the header.
pub(super) fn encode_group_mod_body(m: &GroupMod, version: Version, out: &mut Vec<u8>) -> Encoded {
    out.put_u16(command_number(m.command, version)?);
    out.put_u8(m.kind as u8);
    out.put_zeros(1);
    out.put_u32(m.group_id);
    let len_at = out.len();
    if has_form15(version) {
        out.put_zeros(4);
        out.put_u32(m.command_bucket_id);
    }
    let start = out.len();
    m.buckets.iter().for_each(|b| encode_bucket(b, m.kind, version, out));
    if has_form15(version) {
        let size = out.len() - start;
        let len =
            u16::try_from(size).map_err(|_| EncodeError::TooLong { what: "buckets", size })?;
        out.set_u16(len_at, len);
        encode_properties(&m.properties, version, out);
    }
    Ok(())
}

pub(super) fn encode_group_mod(
    m: &GroupMod,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin_later(out, version, Later::GroupMod, xid)?;
    encode_group_mod_body(m, version, out)?;
    finish(out, at, "OFPT_GROUP_MOD")
}

/// One group of OFPMP_GROUP_DESC.
pub(super) fn decode_desc(r: &mut Reader<'_>, version: Version) -> Result<GroupDesc> {
    let length = r.u16()?;
    let mut r = r.record(length, 2, if has_form15(version) { 16 } else { 8 })?;
    let kind = decode_kind(r.u8()?)?;
    r.skip(1)?;
    let group_id = r.u32()?;
    let (buckets, properties);
    if !has_form15(version) {
        buckets = decode_buckets11(r, version)?;
        properties = GroupProperties::default();
    } else {
        let buckets_len = usize::from(r.u16()?);
        r.skip(6)?;
        buckets = decode_buckets15(r.sub(buckets_len)?, version, kind)?;
        properties = decode_properties(r, true)?;
    }
    Ok(GroupDesc { group_id, kind, buckets, properties })
}

pub(super) fn encode_desc(g: &GroupDesc, version: Version, out: &mut Vec<u8>) {
    let at = out.len();
    out.put_u16(0);
    out.put_u8(g.kind as u8);
    out.put_zeros(1);
    out.put_u32(g.group_id);
    if has_form15(version) {
        out.put_zeros(8);
    }
    let start = out.len();
    g.buckets.iter().for_each(|b| encode_bucket(b, g.kind, version, out));
    if has_form15(version) {
        let len = out.len() - start;
        out.set_u16(at + 8, u16::try_from(len).unwrap_or(u16::MAX));
        encode_properties(&g.properties, version, out);
    }
    // A group that is too long is found when its message is finished.
    let len = out.len() - at;
    out.set_u16(at, u16::try_from(len).unwrap_or(u16::MAX));
}

/// One group of OFPMP_GROUP.
pub(super) fn decode_stats(r: &mut Reader<'_>, version: Version) -> Result<GroupStats> {
    let has_duration = version == Version::V10 || version >= Version::V13;
    let fixed = if has_duration { 40 } else { 32 };
    let length = r.u16()?;
    let mut r = r.record(length, 2, fixed)?;
    r.skip(2)?;
    let (group_id, ref_count) = (r.u32()?, r.u32()?);
    r.skip(4)?;
    let (packet_count, byte_count) = (r.u64()?, r.u64()?);
    let duration = if has_duration { r.duration()? } else { Default::default() };
    let mut buckets = Vec::new();
    while !r.is_empty() {
        buckets.push((r.u64()?, r.u64()?));
    }
    Ok(GroupStats { group_id, ref_count, packet_count, byte_count, duration, buckets })
}

pub(super) fn encode_stats(s: &GroupStats, version: Version, out: &mut Vec<u8>) {
    let at = out.len();
    out.put_zeros(4);
    out.put_u32(s.group_id);
    out.put_u32(s.ref_count);
    out.put_zeros(4);
    out.put_u64(s.packet_count);
    out.put_u64(s.byte_count);
    if version == Version::V10 || version >= Version::V13 {
        out.put_duration(s.duration);
    }
    for (packets, bytes) in &s.buckets {
        out.put_u64(*packets);
        out.put_u64(*bytes);
    }
    // A group that is too long is found when its message is finished.
    let len = out.len() - at;
    out.set_u16(at, u16::try_from(len).unwrap_or(u16::MAX));
}

/// Number of each action of OpenFlow 1.0 that is a bit of [`GroupFeatures::actions`], with the bits
/// of the later actions that do the same (SET_FIELD sets every field).
const ACTIONS10: [(u32, u32); 12] = [
    (0, 1 << 0),             // OUTPUT
    (1, 1 << 1 | 1 << 25),   // SET_VLAN_VID
    (2, 1 << 2 | 1 << 25),   // SET_VLAN_PCP
    (3, 1 << 18),            // STRIP_VLAN: POP_VLAN
    (4, 1 << 3 | 1 << 25),   // SET_DL_SRC
    (5, 1 << 4 | 1 << 25),   // SET_DL_DST
    (6, 1 << 5 | 1 << 25),   // SET_NW_SRC
    (7, 1 << 6 | 1 << 25),   // SET_NW_DST
    (8, 1 << 7 | 1 << 25),   // SET_NW_TOS
    (9, 1 << 9 | 1 << 25),   // SET_TP_SRC
    (10, 1 << 10 | 1 << 25), // SET_TP_DST
    (11, 1 << 21),           // ENQUEUE: SET_QUEUE
];

/// The bits of `actions` (OpenFlow 1.1 and later) as OpenFlow 1.0 numbers them.
fn actions10(actions: u32) -> u32 {
    ACTIONS10.iter().filter(|(_, same)| actions & same != 0).fold(0, |bits, (n, _)| bits | 1 << n)
}

/// Bit of SET_FIELD in [`GroupFeatures::actions`].
const SET_FIELD: u32 = 1 << 25;
/// Bits of the actions of OpenFlow 1.1 that SET_FIELD replaces in later versions: SET_VLAN_VID to
/// SET_TP_DST, SET_MPLS_LABEL, SET_MPLS_TC.
const SET_ACTIONS11: u32 = 0x7fe | 1 << 13 | 1 << 14;

/// The bits of `actions` (OpenFlow 1.2 and later) as OpenFlow 1.1 has them.
fn actions11(actions: u32) -> u32 {
    if actions & SET_FIELD == 0 { actions } else { actions & !SET_FIELD | SET_ACTIONS11 }
}

pub(super) fn decode_features(r: &mut Reader<'_>) -> Result<GroupFeatures> {
    let (kinds, capabilities) = (r.u32()?, r.u32()?);
    let mut f = GroupFeatures { kinds, capabilities, max_groups: [0; 4], actions: [0; 4] };
    for n in f.max_groups.iter_mut().chain(f.actions.iter_mut()) {
        *n = r.u32()?;
    }
    Ok(f)
}

pub(super) fn encode_features(f: &GroupFeatures, version: Version, out: &mut Vec<u8>) {
    out.put_u32(f.kinds);
    out.put_u32(f.capabilities);
    f.max_groups.iter().for_each(|n| out.put_u32(*n));
    let of_version = |bits: u32| match version {
        Version::V10 => actions10(bits),
        Version::V11 => actions11(bits),
        _ => bits,
    };
    f.actions.iter().for_each(|n| out.put_u32(of_version(*n)));
}

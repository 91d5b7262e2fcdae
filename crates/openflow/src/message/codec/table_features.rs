// SPDX-License-Identifier: Apache-2.0
//! Features of tables: OFPMP_TABLE_FEATURES, and the bitmaps in table statistics up to 1.2.

use super::property::{self, Kind};
use super::table::{decode_miss, encode_miss};
use super::*;
use crate::nxm;
use crate::wire::{Put, Reader, Result};
use ::flow::Field;
use std::collections::BTreeSet;

/// Properties (OFPTFPT13_*). Those of the table-miss flow have the next higher number.
mod prop {
    pub(super) const INSTRUCTIONS: u16 = 0;
    pub(super) const NEXT_TABLES: u16 = 2;
    pub(super) const WRITE_ACTIONS: u16 = 4;
    pub(super) const APPLY_ACTIONS: u16 = 6;
    pub(super) const MATCH: u16 = 8;
    pub(super) const WILDCARDS: u16 = 10;
    pub(super) const WRITE_SETFIELD: u16 = 12;
    pub(super) const APPLY_SETFIELD: u16 = 14;
    /// Those that a table has when it has any, as bits.
    pub(super) const REQUIRED: u32 = 0x5555;
}

/// Commands of 1.5 (OFPTFC15_*), by number.
const COMMANDS: [TableFeaturesCommand; 4] = [
    TableFeaturesCommand::Replace,
    TableFeaturesCommand::Modify,
    TableFeaturesCommand::Enable,
    TableFeaturesCommand::Disable,
];

/// Capabilities of a table in 1.4+ (as in table configuration).
const EVICTION: u32 = 1 << 2;
const VACANCY_EVENTS: u32 = 1 << 3;

impl TableFeatures {
    /// A table that can do nothing.
    pub fn empty(table_id: u8) -> TableFeatures {
        TableFeatures {
            table_id,
            name: String::new(),
            metadata_match: 0,
            metadata_write: 0,
            miss_config: TableMiss::Default,
            supports_eviction: false,
            supports_vacancy_events: false,
            max_entries: 0,
            nonmiss: InstructionFeatures::default(),
            miss: InstructionFeatures::default(),
            matches: BTreeSet::new(),
            masks: BTreeSet::new(),
            wildcards: BTreeSet::new(),
        }
    }

    /// A table with every feature of this program, one of `n_tables`: the switch reports it for a
    /// table that has no configuration.
    pub fn full(table_id: u8, n_tables: u8) -> TableFeatures {
        let matches: BTreeSet<Field> =
            Field::ALL.into_iter().filter(|f| f.oxm(Version::V15.wire()).is_some()).collect();
        let masks: BTreeSet<Field> = matches.iter().copied().filter(|f| f.maskable()).collect();
        let set_fields: BTreeSet<Field> =
            matches.iter().copied().filter(|f| f.writable()).collect();
        // As in OVS, the meter action of OpenFlow 1.5 is not in the reported list.
        let actions =
            ActionFeatures { actions: ActionKinds::all() - ActionKinds::METER, set_fields };
        let instructions = InstructionFeatures {
            next: (table_id.saturating_add(1)..n_tables).collect(),
            instructions: InstructionKinds::all(),
            write: actions.clone(),
            apply: actions,
        };
        TableFeatures {
            table_id,
            name: String::new(),
            metadata_match: u64::MAX,
            metadata_write: u64::MAX,
            miss_config: TableMiss::Default,
            supports_eviction: false,
            supports_vacancy_events: false,
            max_entries: 1_000_000,
            nonmiss: instructions.clone(),
            miss: instructions,
            masks,
            wildcards: matches.clone(),
            matches,
        }
    }
}

/// The fields of OpenFlow 1.0's wildcard bits.
const OF10: [(u32, Field); 12] = [
    (1 << 0, Field::InPort),
    (1 << 1, Field::DlVlan),
    (1 << 2, Field::EthSrc),
    (1 << 3, Field::EthDst),
    (1 << 4, Field::EthType),
    (1 << 5, Field::IpProto),
    (1 << 6, Field::TcpSrc),
    (1 << 7, Field::TcpDst),
    (63 << 8, Field::Ipv4Src),
    (63 << 14, Field::Ipv4Dst),
    (1 << 20, Field::DlVlanPcp),
    (1 << 21, Field::IpDscp),
];

pub(super) fn fields_from_of10(bits: u32) -> BTreeSet<Field> {
    OF10.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, field)| *field).collect()
}

/// Fields that are the same thing under names of several versions.
fn has(fields: &BTreeSet<Field>, field: Field) -> bool {
    let same: &[Field] = match field {
        Field::InPort => &[Field::InPortOxm],
        Field::DlVlan => &[Field::VlanVid, Field::VlanTci],
        Field::DlVlanPcp => &[Field::VlanPcp, Field::VlanTci],
        Field::IpDscp => &[Field::IpDscpShifted],
        _ => &[],
    };
    fields.contains(&field) || same.iter().any(|f| fields.contains(f))
}

/// OpenFlow 1.0 gives each of the two addresses six bits, of which 32 stands for "all".
pub(super) fn fields_to_of10(fields: &BTreeSet<Field>) -> u32 {
    OF10.iter().filter(|(_, field)| has(fields, *field)).fold(0, |bits, (bit, _)| bits | bit)
}

/// The fields of OpenFlow 1.1's match and wildcard bits (OFPFMF11_*).
const OF11: [(u32, Field); 14] = [
    (1 << 0, Field::InPort),
    (1 << 1, Field::DlVlan),
    (1 << 2, Field::DlVlanPcp),
    (1 << 3, Field::EthType),
    (1 << 4, Field::IpDscp),
    (1 << 5, Field::IpProto),
    (1 << 6, Field::TcpSrc),
    (1 << 7, Field::TcpDst),
    (1 << 8, Field::MplsLabel),
    (1 << 9, Field::MplsTc),
    (1 << 11, Field::EthSrc),
    (1 << 12, Field::EthDst),
    (1 << 13, Field::Ipv4Src),
    (1 << 14, Field::Ipv4Dst),
];
/// OFPFMF11_TYPE and OFPFMF11_METADATA.
const OF11_METADATA: u32 = 1 << 15;

fn fields_from_of11(bits: u32) -> BTreeSet<Field> {
    let mut fields: BTreeSet<Field> =
        OF11.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, field)| *field).collect();
    if bits & OF11_METADATA != 0 {
        fields.insert(Field::Metadata);
    }
    fields
}

fn fields_to_of11(fields: &BTreeSet<Field>) -> u32 {
    let bits =
        OF11.iter().filter(|(_, field)| has(fields, *field)).fold(0, |bits, (bit, _)| bits | bit);
    bits | if fields.contains(&Field::Metadata) { OF11_METADATA } else { 0 }
}

/// OFPXMC_OPENFLOW_BASIC.
const OXM_BASIC: u16 = 0x8000;

fn fields_from_of12(bits: u64) -> BTreeSet<Field> {
    (0..64)
        .filter(|n| bits & (1 << n) != 0)
        .filter_map(|n| Field::from_oxm(OXM_BASIC, n, None))
        .map(|(field, _)| field)
        .collect()
}

/// A field's bit is its number in OpenFlow's own class, if that is what 1.2 would send.
fn fields_to_of12(fields: &BTreeSet<Field>) -> u64 {
    fields
        .iter()
        .filter_map(|f| f.oxm(Version::V12.wire()))
        .filter(|n| n.class == OXM_BASIC && n.number < 64)
        .fold(0, |bits, n| bits | 1 << n.number)
}

/// The actions that a version has.
fn known_actions(version: Version) -> ActionKinds {
    let of11 = ActionKinds::SET_VLAN_VID
        | ActionKinds::SET_VLAN_PCP
        | ActionKinds::SET_DL_SRC
        | ActionKinds::SET_DL_DST
        | ActionKinds::SET_NW_SRC
        | ActionKinds::SET_NW_DST
        | ActionKinds::SET_NW_TOS
        | ActionKinds::SET_NW_ECN
        | ActionKinds::SET_TP_SRC
        | ActionKinds::SET_TP_DST
        | ActionKinds::SET_MPLS_LABEL
        | ActionKinds::SET_MPLS_TC;
    match version {
        Version::V10 | Version::V11 => {
            ActionKinds::all() - ActionKinds::SET_FIELD - ActionKinds::METER
        }
        Version::V15 => ActionKinds::all() - of11,
        _ => ActionKinds::all() - of11 - ActionKinds::METER,
    }
}

/// The instructions that a version has.
fn known_instructions(version: Version) -> InstructionKinds {
    match version {
        Version::V13 | Version::V14 => InstructionKinds::all(),
        _ => InstructionKinds::all() - InstructionKinds::METER,
    }
}

/// The middle of OpenFlow 1.1's and 1.2's table statistics, between name and counters.
pub(super) fn decode_bitmaps(
    r: &mut Reader<'_>,
    version: Version,
    f: &mut TableFeatures,
) -> Result<()> {
    let config;
    if version == Version::V11 {
        f.wildcards = fields_from_of11(r.u32()?);
        f.matches = fields_from_of11(r.u32()?);
        f.nonmiss.instructions = InstructionKinds::from_bits_truncate(r.u32()?);
        f.nonmiss.write.actions = ActionKinds::from_bits_truncate(r.u32()?);
        f.nonmiss.apply.actions = ActionKinds::from_bits_truncate(r.u32()?);
        config = r.u32()?;
    } else {
        f.matches = fields_from_of12(r.u64()?);
        f.wildcards = fields_from_of12(r.u64()?);
        f.nonmiss.write.actions = ActionKinds::from_bits_truncate(r.u32()?);
        f.nonmiss.apply.actions = ActionKinds::from_bits_truncate(r.u32()?);
        f.nonmiss.write.set_fields = fields_from_of12(r.u64()?);
        f.nonmiss.apply.set_fields = fields_from_of12(r.u64()?);
        f.metadata_match = r.u64()?;
        f.metadata_write = r.u64()?;
        f.nonmiss.instructions = InstructionKinds::from_bits_truncate(r.u32()?);
        config = r.u32()?;
    }
    f.masks = f.wildcards.clone();
    f.miss_config = decode_miss(config, version)?;
    f.miss = f.nonmiss.clone();
    f.max_entries = r.u32()?;
    Ok(())
}

/// See [`decode_bitmaps`].
pub(super) fn encode_bitmaps(f: &TableFeatures, version: Version, out: &mut Vec<u8>) {
    let actions = |a: &ActionFeatures| (a.actions & known_actions(version)).bits();
    let instructions = (f.nonmiss.instructions & known_instructions(version)).bits();
    if version == Version::V11 {
        out.put_u32(fields_to_of11(&f.wildcards));
        out.put_u32(fields_to_of11(&f.matches));
        out.put_u32(instructions);
        out.put_u32(actions(&f.nonmiss.write));
        out.put_u32(actions(&f.nonmiss.apply));
    } else {
        out.put_u64(fields_to_of12(&f.matches));
        out.put_u64(fields_to_of12(&f.wildcards));
        out.put_u32(actions(&f.nonmiss.write));
        out.put_u32(actions(&f.nonmiss.apply));
        out.put_u64(fields_to_of12(&f.nonmiss.write.set_fields));
        out.put_u64(fields_to_of12(&f.nonmiss.apply.set_fields));
        out.put_u64(f.metadata_match);
        out.put_u64(f.metadata_write);
        out.put_u32(instructions);
    }
    out.put_u32(encode_miss(f.miss_config, version));
    out.put_u32(f.max_entries);
}

/// The numbers of a list of (type, length) headers, as bits. Numbers from 32 on are left out.
fn decode_numbers(mut v: Reader<'_>) -> Result<u32> {
    let mut bits = 0;
    while !v.is_empty() {
        let ty = v.u16().map_err(|_| OfError::OFPBPC_BAD_LEN)?;
        let len = v.u16().map_err(|_| OfError::OFPBPC_BAD_LEN)?;
        // Experimenters' entries are longer; none is known.
        v.record(len, 4, 4).map_err(|_| OfError::OFPBPC_BAD_LEN)?;
        bits |= if ty < 32 { 1 << ty } else { 0 };
    }
    Ok(bits)
}

fn put_numbers(ty: u16, bits: u32, out: &mut Vec<u8>) {
    let at = property::start(out, ty);
    for number in (0..32).filter(|n| bits & (1 << n) != 0) {
        out.put_u16(number);
        out.put_u16(4);
    }
    property::end(out, at);
}

/// Fields, and those of them whose header has a mask. Unknown fields are left out unless `is_strict`.
fn decode_fields(v: Reader<'_>, is_strict: bool) -> Result<(BTreeSet<Field>, BTreeSet<Field>)> {
    let headers = nxm::decode_header_list(v.peek(), !is_strict)?;
    let fields = headers.iter().map(|h| h.field).collect();
    let masked = headers.iter().filter(|h| h.has_mask).map(|h| h.field).collect();
    Ok((fields, masked))
}

/// Fields of a list whose headers have no masks.
fn decode_whole_fields(v: Reader<'_>, is_strict: bool) -> Result<BTreeSet<Field>> {
    let (fields, masked) = decode_fields(v, is_strict)?;
    if is_strict && !masked.is_empty() {
        return Err(OfError::OFPBMC_BAD_MASK);
    }
    Ok(fields)
}

fn put_fields(
    ty: u16,
    fields: &BTreeSet<Field>,
    masks: Option<&BTreeSet<Field>>,
    version: Version,
    out: &mut Vec<u8>,
) {
    let at = property::start(out, ty);
    for field in fields {
        let masked = masks.is_some_and(|m| m.contains(field));
        nxm::encode_header(*field, masked, version.wire(), out);
    }
    property::end(out, at);
}

/// One table of a reply. Unknown properties and fields are left out.
pub(super) fn decode(r: &mut Reader<'_>, version: Version) -> Result<TableFeatures> {
    decode_table(r, version, false).map(|(features, _)| features)
}

/// A request, or a part of one.
///
/// # Errors
/// Those of OpenFlow 1.5.1, 7.3.5.18, and NXTFFC_DUP_TABLE; as in OVS a request may have no
/// unknown property or field.
pub(super) fn decode_request(
    mut r: Reader<'_>,
    version: Version,
    more: bool,
) -> Result<TableFeaturesRequest> {
    let mut request = TableFeaturesRequest { more, ..TableFeaturesRequest::default() };
    while !r.is_empty() {
        let (features, command) = decode_table(&mut r, version, true)?;
        request.command.get_or_insert(command);
        if request.tables.iter().any(|table| table.table_id == features.table_id) {
            return Err(OfError::NXTFFC_DUP_TABLE);
        }
        request.tables.push(features);
    }
    Ok(request)
}

fn decode_table(
    r: &mut Reader<'_>,
    version: Version,
    is_strict: bool,
) -> Result<(TableFeatures, TableFeaturesCommand)> {
    let length = r.u16().map_err(|_| OfError::OFPBPC_BAD_LEN)?;
    let mut r = r.record(length, 2, 64).map_err(|_| OfError::OFPBPC_BAD_LEN)?;
    if is_strict && !length.is_multiple_of(8) {
        return Err(OfError::OFPBPC_BAD_LEN);
    }
    let mut f = TableFeatures::empty(r.u8()?);
    let number = if version >= Version::V15 { r.u8()? } else { r.skip(1).map(|()| 0)? };
    let command = COMMANDS.get(usize::from(number)).copied();
    if is_strict && f.table_id == TABLE_ALL {
        return Err(OfError::OFPTFFC_BAD_TABLE);
    }
    let command = match command {
        Some(command) => command,
        None if is_strict => return Err(OfError::OFPTFFC_BAD_COMMAND),
        None => TableFeaturesCommand::Replace,
    };
    r.skip(4)?;
    f.name = r.text(32)?;
    f.metadata_match = r.u64()?;
    f.metadata_write = r.u64()?;
    let capabilities = r.u32()?;
    if version >= Version::V14 {
        f.supports_eviction = capabilities & EVICTION != 0;
        f.supports_vacancy_events = capabilities & VACANCY_EVENTS != 0;
    } else if !is_strict {
        f.miss_config = decode_miss(capabilities, version)?;
    }
    f.max_entries = r.u32()?;
    let mut seen = 0u32;
    while !r.is_empty() {
        let p = property::next(&mut r)?;
        let ty = match p.kind {
            Kind::Standard(ty) => ty,
            Kind::Experimenter(..) if is_strict => return Err(p.unknown()),
            Kind::Experimenter(..) => continue,
        };
        let bit = 1u32.checked_shl(u32::from(ty)).ok_or_else(|| p.unknown())?;
        if seen & bit != 0 {
            return Err(OfError::OFPTFFC_BAD_FEATURES);
        }
        seen |= bit;
        let side = if ty & 1 == 1 { &mut f.miss } else { &mut f.nonmiss };
        match ty & !1 {
            prop::INSTRUCTIONS => {
                side.instructions = InstructionKinds::from_bits_truncate(decode_numbers(p.value)?);
            }
            prop::NEXT_TABLES => side.next = p.value.peek().iter().copied().collect(),
            prop::WRITE_ACTIONS => {
                side.write.actions = ActionKinds::from_bits_truncate(decode_numbers(p.value)?);
            }
            prop::APPLY_ACTIONS => {
                side.apply.actions = ActionKinds::from_bits_truncate(decode_numbers(p.value)?);
            }
            prop::MATCH if ty == prop::MATCH => {
                (f.matches, f.masks) = decode_fields(p.value, is_strict)?;
            }
            prop::WILDCARDS if ty == prop::WILDCARDS => {
                f.wildcards = decode_whole_fields(p.value, is_strict)?;
            }
            prop::WRITE_SETFIELD => {
                side.write.set_fields = decode_whole_fields(p.value, is_strict)?;
            }
            prop::APPLY_SETFIELD => {
                side.apply.set_fields = decode_whole_fields(p.value, is_strict)?;
            }
            _ => return Err(p.unknown()),
        }
    }
    // 1.3 and 1.4 require properties; 1.5 requires all or none.
    let is_incomplete = seen & prop::REQUIRED != prop::REQUIRED;
    if is_strict && is_incomplete && (seen != 0 || version < Version::V15) {
        return Err(OfError::OFPTFFC_BAD_FEATURES);
    }
    // Properties without a form for misses count for them, too.
    copy_to_miss(&mut f, seen);
    Ok((f, command))
}

/// Gives the table-miss flow the features of other flows whose property of its own is not in `seen`.
fn copy_to_miss(f: &mut TableFeatures, seen: u32) {
    let is_own = |property: u16| seen & 1 << (property + 1) != 0;
    let (own, all) = (&mut f.miss, &f.nonmiss);
    if !is_own(prop::INSTRUCTIONS) {
        own.instructions = all.instructions;
    }
    if !is_own(prop::NEXT_TABLES) {
        own.next.clone_from(&all.next);
    }
    if !is_own(prop::WRITE_ACTIONS) {
        own.write.actions = all.write.actions;
    }
    if !is_own(prop::APPLY_ACTIONS) {
        own.apply.actions = all.apply.actions;
    }
    if !is_own(prop::WRITE_SETFIELD) {
        own.write.set_fields.clone_from(&all.write.set_fields);
    }
    if !is_own(prop::APPLY_SETFIELD) {
        own.apply.set_fields.clone_from(&all.apply.set_fields);
    }
}

fn put_side(side: &InstructionFeatures, miss: u16, version: Version, out: &mut Vec<u8>) {
    put_numbers(
        prop::INSTRUCTIONS + miss,
        (side.instructions & known_instructions(version)).bits(),
        out,
    );
    let next: Vec<u8> = side.next.iter().collect();
    property::put(out, prop::NEXT_TABLES + miss, &next);
    let known = known_actions(version);
    put_numbers(prop::WRITE_ACTIONS + miss, (side.write.actions & known).bits(), out);
    put_fields(prop::WRITE_SETFIELD + miss, &side.write.set_fields, None, version, out);
    put_numbers(prop::APPLY_ACTIONS + miss, (side.apply.actions & known).bits(), out);
    put_fields(prop::APPLY_SETFIELD + miss, &side.apply.set_fields, None, version, out);
}

/// See [`decode_request`].
pub(super) fn encode_request(part: &TableFeaturesRequest, version: Version, out: &mut Vec<u8>) {
    for table in &part.tables {
        encode_table(table, part.command, version, out);
    }
}

/// One table of a reply, properties in OVS's order.
pub(super) fn encode(f: &TableFeatures, version: Version, out: &mut Vec<u8>) {
    encode_table(f, None, version, out);
}

fn encode_table(
    f: &TableFeatures,
    command: Option<TableFeaturesCommand>,
    version: Version,
    out: &mut Vec<u8>,
) {
    let at = out.len();
    out.put_u16(0);
    out.put_u8(f.table_id);
    out.put_u8(match command {
        Some(command) if version >= Version::V15 => command as u8,
        _ => 0,
    });
    out.put_zeros(4);
    out.put_text(&f.name, 32);
    out.put_u64(f.metadata_match);
    out.put_u64(f.metadata_write);
    let mut capabilities = encode_miss(f.miss_config, version);
    if version >= Version::V14 {
        capabilities |= if f.supports_eviction { EVICTION } else { 0 };
        capabilities |= if f.supports_vacancy_events { VACANCY_EVENTS } else { 0 };
    }
    out.put_u32(capabilities);
    out.put_u32(f.max_entries);
    put_side(&f.nonmiss, 0, version, out);
    put_side(&f.miss, 1, version, out);
    put_fields(prop::MATCH, &f.matches, Some(&f.masks), version, out);
    put_fields(prop::WILDCARDS, &f.wildcards, None, version, out);
    // Some thousand bytes at most: names and numbers of fields are limited.
    let len = out.len() - at;
    out.set_u16(at, u16::try_from(len).unwrap_or(u16::MAX));
}

// SPDX-License-Identifier: Apache-2.0
//! Table configuration, status and statistics.

use super::header::{Encoded, Later, begin_later, finish};
use super::property::{self, Kind};
use super::table_features;
use super::*;
use crate::wire::{Put, Reader, Result};

/// Table configuration bits: what happens on a miss (1.1, 1.2), eviction, vacancy events (1.4).
const MISS_MASK: u32 = 3;
const EVICTION: u32 = 1 << 2;
const VACANCY_EVENTS: u32 = 1 << 3;
/// Table mod properties (OFPTMPT14_*).
const PROP_EVICTION: u16 = 2;
const PROP_VACANCY: u16 = 3;

pub(super) fn decode_miss(config: u32, version: Version) -> Result<TableMiss> {
    if version >= Version::V13 {
        return Ok(TableMiss::Default);
    }
    Ok(match config & MISS_MASK {
        0 => TableMiss::Controller,
        1 => TableMiss::Continue,
        2 => TableMiss::Drop,
        _ => return Err(OfError::OFPTMFC_BAD_CONFIG),
    })
}

pub(super) fn encode_miss(miss: TableMiss, version: Version) -> u32 {
    match miss {
        _ if version >= Version::V13 => 0,
        TableMiss::Default | TableMiss::Controller => 0,
        TableMiss::Continue => 1,
        TableMiss::Drop => 2,
    }
}

fn decode_eviction(prop: &property::Property<'_>) -> Result<EvictionFlags> {
    EvictionFlags::from_bits(prop.u32()?).ok_or(OfError::OFPBPC_BAD_VALUE)
}

fn decode_vacancy(prop: &property::Property<'_>) -> Result<Vacancy> {
    let mut v = prop.exactly(4)?;
    let vacancy = Vacancy { down: v.u8()?, up: v.u8()?, current: v.u8()? };
    if vacancy.up > 100 || vacancy.down > vacancy.up {
        return Err(OfError::OFPBPC_BAD_VALUE);
    }
    Ok(vacancy)
}

fn put_eviction(flags: EvictionFlags, out: &mut Vec<u8>) {
    property::put(out, PROP_EVICTION, &flags.bits().to_be_bytes());
}

fn put_vacancy(v: &Vacancy, out: &mut Vec<u8>) {
    property::put_small(out, PROP_VACANCY, &[v.down, v.up, v.current]);
}

pub(super) fn decode_table_mod(mut r: Reader<'_>, version: Version) -> Result<TableMod> {
    let table_id = r.u8()?;
    r.skip(3)?;
    let config = r.u32()?;
    let mut m = TableMod {
        table_id,
        miss: decode_miss(config, version)?,
        eviction: None,
        eviction_flags: None,
        vacancy_events: None,
        vacancy: None,
    };
    if version >= Version::V14 {
        m.eviction = Some(config & EVICTION != 0);
        m.vacancy_events = Some(config & VACANCY_EVENTS != 0);
        while !r.is_empty() {
            let prop = property::next(&mut r)?;
            match prop.kind {
                Kind::Standard(PROP_EVICTION) => m.eviction_flags = Some(decode_eviction(&prop)?),
                Kind::Standard(PROP_VACANCY) => {
                    let vacancy = decode_vacancy(&prop)?;
                    if vacancy.current != 0 {
                        return Err(OfError::OFPBPC_BAD_VALUE);
                    }
                    m.vacancy = Some(vacancy);
                }
                _ => return Err(prop.unknown()),
            }
        }
    }
    Ok(m)
}

pub(super) fn encode_table_mod(
    m: &TableMod,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin_later(out, version, Later::TableMod, xid)?;
    out.put_u8(m.table_id);
    out.put_zeros(3);
    let mut config = encode_miss(m.miss, version);
    if version >= Version::V14 {
        config |= if m.eviction == Some(true) { EVICTION } else { 0 };
        config |= if m.vacancy_events == Some(true) { VACANCY_EVENTS } else { 0 };
    }
    out.put_u32(config);
    if version >= Version::V14 {
        if let Some(flags) = m.eviction_flags {
            put_eviction(flags, out);
        }
        if let Some(vacancy) = &m.vacancy {
            put_vacancy(vacancy, out);
        }
    }
    finish(out, at, "OFPT_TABLE_MOD")
}

pub(super) fn decode_desc(r: &mut Reader<'_>) -> Result<TableDesc> {
    let length = r.u16()?;
    let mut r = r.record(length, 2, 8)?;
    let table_id = r.u8()?;
    r.skip(1)?;
    let config = r.u32()?;
    let mut t = TableDesc {
        table_id,
        eviction: config & EVICTION != 0,
        eviction_flags: EvictionFlags::empty(),
        vacancy: None,
    };
    while !r.is_empty() {
        let prop = property::next(&mut r)?;
        match prop.kind {
            Kind::Standard(PROP_EVICTION) => t.eviction_flags = decode_eviction(&prop)?,
            Kind::Standard(PROP_VACANCY) => t.vacancy = Some(decode_vacancy(&prop)?),
            Kind::Experimenter(..) => {}
            _ => return Err(prop.unknown()),
        }
    }
    Ok(t)
}

pub(super) fn encode_desc(t: &TableDesc, out: &mut Vec<u8>) {
    let at = out.len();
    out.put_u16(0);
    out.put_u8(t.table_id);
    out.put_zeros(1);
    let eviction = if t.eviction { EVICTION } else { 0 };
    out.put_u32(eviction | if t.vacancy.is_some() { VACANCY_EVENTS } else { 0 });
    put_eviction(t.eviction_flags, out);
    if let Some(vacancy) = &t.vacancy {
        put_vacancy(vacancy, out);
    }
    let len = out.len() - at;
    out.set_u16(at, len as u16); // 24 bytes at most
}

pub(super) fn decode_status(mut r: Reader<'_>) -> Result<TableStatus> {
    let reason = match r.u8()? {
        3 => TableStatusReason::VacancyDown,
        4 => TableStatusReason::VacancyUp,
        _ => return Err(OfError::OFPBPC_BAD_VALUE),
    };
    r.skip(7)?;
    let table = decode_desc(&mut r)?;
    Ok(TableStatus { reason, table })
}

pub(super) fn encode_status(
    s: &TableStatus,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin_later(out, version, Later::TableStatus, xid)?;
    out.put_u8(s.reason as u8);
    out.put_zeros(7);
    encode_desc(&s.table, out);
    finish(out, at, "OFPT_TABLE_STATUS")
}

/// Reads one table of OFPST_TABLE. Earlier versions also carry the table's features; the decoder
/// keeps those that have a place in [`TableFeatures`].
pub(super) fn decode_stats(r: &mut Reader<'_>, version: Version) -> Result<TableStats> {
    let table_id = r.u8()?;
    let mut features = None;
    match version {
        Version::V10 => {
            r.skip(3)?;
            let mut f = TableFeatures::empty(table_id);
            f.name = r.text(32)?;
            f.matches = table_features::fields_from_of10(r.u32()?);
            f.wildcards = f.matches.clone();
            f.max_entries = r.u32()?;
            features = Some(f);
        }
        Version::V11 | Version::V12 => {
            r.skip(7)?;
            let mut f = TableFeatures::empty(table_id);
            f.name = r.text(32)?;
            table_features::decode_bitmaps(r, version, &mut f)?;
            features = Some(f);
        }
        _ => r.skip(3)?,
    }
    let active_count = r.u32()?;
    let (lookup_count, matched_count) = (r.u64()?, r.u64()?);
    let features = features.map(std::sync::Arc::new);
    Ok(TableStats { table_id, active_count, lookup_count, matched_count, features })
}

pub(super) fn encode_stats(s: &TableStats, version: Version, out: &mut Vec<u8>) -> Encoded {
    let features = || {
        s.features.as_ref().ok_or(EncodeError::Unsupported {
            what: "table statistics without the table's features",
            version,
        })
    };
    out.put_u8(s.table_id);
    match version {
        Version::V10 => {
            let f = features()?;
            out.put_zeros(3);
            out.put_text(&f.name, 32);
            out.put_u32(table_features::fields_to_of10(&f.wildcards));
            out.put_u32(f.max_entries);
        }
        Version::V11 | Version::V12 => {
            let f = features()?;
            out.put_zeros(7);
            out.put_text(&f.name, 32);
            table_features::encode_bitmaps(f, version, out);
        }
        _ => out.put_zeros(3),
    }
    out.put_u32(s.active_count);
    out.put_u64(s.lookup_count);
    out.put_u64(s.matched_count);
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0
//! Codec of meter messages: meter mods, their bands, statistics, configuration and features.

use super::header::{Encoded, Later, begin_later, finish};
use super::*;
use crate::wire::{Put, Reader, Result};

/// Band types (OFPMBT13_*).
const DROP: u16 = 1;
const DSCP_REMARK: u16 = 2;
/// Bytes of a band, whatever its type.
const BAND_SIZE: u16 = 16;

fn decode_bands(mut r: Reader<'_>) -> Result<Vec<MeterBand>> {
    let mut bands = Vec::new();
    while !r.is_empty() {
        let ty = r.u16()?;
        if r.u16()? != BAND_SIZE {
            return Err(OfError::OFPBRC_BAD_LEN);
        }
        let (rate, burst_size) = (r.u32()?, r.u32()?);
        let prec_level = r.u8()?;
        r.skip(3)?;
        let kind = match ty {
            DROP => MeterBandKind::Drop,
            DSCP_REMARK => MeterBandKind::DscpRemark { prec_level },
            _ => return Err(OfError::OFPMMFC_BAD_BAND),
        };
        bands.push(MeterBand { kind, rate, burst_size });
    }
    Ok(bands)
}

fn encode_bands(bands: &[MeterBand], out: &mut Vec<u8>) {
    for band in bands {
        let (ty, prec_level) = match band.kind {
            MeterBandKind::Drop => (DROP, 0),
            MeterBandKind::DscpRemark { prec_level } => (DSCP_REMARK, prec_level),
        };
        out.put_u16(ty);
        out.put_u16(BAND_SIZE);
        out.put_u32(band.rate);
        out.put_u32(band.burst_size);
        out.put_u8(prec_level);
        out.put_zeros(3);
    }
}

pub(super) fn decode_meter_mod(mut r: Reader<'_>) -> Result<MeterMod> {
    let command = match r.u16()? {
        0 => MeterCommand::Add,
        1 => MeterCommand::Modify,
        2 => MeterCommand::Delete,
        _ => return Err(OfError::OFPMMFC_BAD_COMMAND),
    };
    let bits = r.u16()?;
    let meter_id = r.u32()?;
    if command == MeterCommand::Delete {
        // Flags and bands of a delete mean nothing.
        let meter = MeterConfig { meter_id, flags: MeterFlags::empty(), bands: Vec::new() };
        return Ok(MeterMod { command, meter });
    }
    let flags = MeterFlags::from_bits(bits).ok_or(OfError::OFPMMFC_BAD_FLAGS)?;
    if flags.contains(MeterFlags::KBPS | MeterFlags::PKTPS) {
        return Err(OfError::OFPMMFC_BAD_FLAGS);
    }
    Ok(MeterMod { command, meter: MeterConfig { meter_id, flags, bands: decode_bands(r)? } })
}

/// Writes the body of OFPT_METER_MOD, after the header.
pub(super) fn encode_meter_mod_body(m: &MeterMod, out: &mut Vec<u8>) {
    out.put_u16(m.command as u16);
    out.put_u16(m.meter.flags.bits());
    out.put_u32(m.meter.meter_id);
    encode_bands(&m.meter.bands, out);
}

pub(super) fn encode_meter_mod(
    m: &MeterMod,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin_later(out, version, Later::MeterMod, xid)?;
    encode_meter_mod_body(m, out);
    finish(out, at, "OFPT_METER_MOD")
}

/// One meter of OFPMP_METER.
pub(super) fn decode_stats(r: &mut Reader<'_>) -> Result<MeterStats> {
    let meter_id = r.u32()?;
    let len = r.u16()?;
    let mut r = r.record(len, 6, 40)?;
    r.skip(6)?;
    let flow_count = r.u32()?;
    let (packet_in_count, byte_in_count) = (r.u64()?, r.u64()?);
    let duration = r.duration()?;
    let mut bands = Vec::new();
    while !r.is_empty() {
        bands.push((r.u64()?, r.u64()?));
    }
    Ok(MeterStats { meter_id, flow_count, packet_in_count, byte_in_count, duration, bands })
}

pub(super) fn encode_stats(s: &MeterStats, out: &mut Vec<u8>) {
    let at = out.len();
    out.put_u32(s.meter_id);
    out.put_zeros(8);
    out.put_u32(s.flow_count);
    out.put_u64(s.packet_in_count);
    out.put_u64(s.byte_in_count);
    out.put_duration(s.duration);
    for (packets, bytes) in &s.bands {
        out.put_u64(*packets);
        out.put_u64(*bytes);
    }
    // A meter that is too long is found when its message is finished.
    let len = out.len() - at;
    out.set_u16(at + 4, u16::try_from(len).unwrap_or(u16::MAX));
}

/// One meter of OFPMP_METER_CONFIG.
pub(super) fn decode_config(r: &mut Reader<'_>) -> Result<MeterConfig> {
    let length = r.u16()?;
    let mut r = r.record(length, 2, 8)?;
    let flags = MeterFlags::from_bits_truncate(r.u16()?);
    let meter_id = r.u32()?;
    Ok(MeterConfig { meter_id, flags, bands: decode_bands(r)? })
}

pub(super) fn encode_config(m: &MeterConfig, out: &mut Vec<u8>) {
    let at = out.len();
    out.put_u16(0);
    out.put_u16(m.flags.bits());
    out.put_u32(m.meter_id);
    encode_bands(&m.bands, out);
    // A meter that is too long is found when its message is finished.
    let len = out.len() - at;
    out.set_u16(at, u16::try_from(len).unwrap_or(u16::MAX));
}

pub(super) fn decode_features(r: &mut Reader<'_>) -> Result<MeterFeatures> {
    let f = MeterFeatures {
        max_meters: r.u32()?,
        band_types: r.u32()?,
        capabilities: r.u32()?,
        max_bands: r.u8()?,
        max_color: r.u8()?,
    };
    r.skip(2)?;
    Ok(f)
}

pub(super) fn encode_features(f: &MeterFeatures, out: &mut Vec<u8>) {
    out.put_u32(f.max_meters);
    out.put_u32(f.band_types);
    out.put_u32(f.capabilities);
    out.put_u8(f.max_bands);
    out.put_u8(f.max_color);
    out.put_zeros(2);
}

// SPDX-License-Identifier: Apache-2.0
//! Ports: description, status, changes.

use super::header::{Encoded, Later, begin, begin_later, finish, ofpt};
use super::property::{self, Kind};
use super::*;
use crate::wire::{Put, Reader, Result};

/// Property of port descriptions and port mods: Ethernet.
const ETHERNET: u16 = 0;

/// Features in OpenFlow 1.0 have fewer rates: bits 7 to 11 are copper and so on.
fn features_from_wire(bits: u32, version: Version) -> PortFeatures {
    PortFeatures::from_bits_truncate(if version == Version::V10 {
        bits & 0x7f | (bits & 0xf80) << 4
    } else {
        bits
    })
}

fn features_to_wire(features: PortFeatures, version: Version) -> u32 {
    let bits = features.bits();
    if version == Version::V10 { bits & 0x7f | (bits & 0xf800) >> 4 } else { bits }
}

/// Configuration bits that a version has.
fn known_config(version: Version) -> PortConfig {
    if version == Version::V10 {
        PortConfig::all()
    } else {
        PortConfig::PORT_DOWN | PortConfig::NO_RECV | PortConfig::NO_FWD | PortConfig::NO_PACKET_IN
    }
}

fn state_from_wire(bits: u32, version: Version) -> PortState {
    if version == Version::V10 {
        let stp = match bits >> 8 & 3 {
            0 => PortState::STP_LISTEN,
            1 => PortState::STP_LEARN,
            2 => PortState::STP_FORWARD,
            _ => PortState::STP_BLOCK,
        };
        // "Listen" has no bit set, so it cannot be distinguished from "no spanning tree".
        let stp = if stp == PortState::STP_LISTEN { PortState::empty() } else { stp };
        PortState::from_bits_truncate(bits) & PortState::LINK_DOWN | stp
    } else {
        PortState::from_bits_truncate(bits)
            & (PortState::LINK_DOWN | PortState::BLOCKED | PortState::LIVE)
    }
}

fn state_to_wire(state: PortState, version: Version) -> u32 {
    if version == Version::V10 {
        let stp = if state.contains(PortState::STP_BLOCK) {
            3
        } else if state.contains(PortState::STP_FORWARD) {
            2
        } else if state.contains(PortState::STP_LEARN) {
            1
        } else {
            0
        };
        (state & PortState::LINK_DOWN).bits() | stp << 8
    } else {
        (state & (PortState::LINK_DOWN | PortState::BLOCKED | PortState::LIVE)).bits()
    }
}

/// Bytes of a port without properties.
pub(super) fn port_size(version: Version) -> usize {
    match version {
        Version::V10 => 48,
        Version::V11 | Version::V12 | Version::V13 => 64,
        Version::V14 | Version::V15 => 40,
    }
}

pub(super) fn decode_port(r: &mut Reader<'_>, version: Version) -> Result<PortDesc> {
    let v10 = version == Version::V10;
    let v14 = version >= Version::V14;
    let port_no = if v10 { r.port10()? } else { r.port11()? };
    let mut props = Reader::message(&[]);
    let mut body = *r;
    if v14 {
        let length = r.u16()?;
        let mut record = r.record(length, 6, 40)?;
        body = record;
        record.skip(34)?;
        props = record;
        body.skip(2)?;
    } else if !v10 {
        body.skip(4)?;
    }
    let hw_addr = body.array()?;
    if !v10 {
        body.skip(2)?;
    }
    let name = body.text(16)?;
    let config = PortConfig::from_bits_truncate(body.u32()?) & known_config(version);
    let state = state_from_wire(body.u32()?, version);
    let mut port = PortDesc {
        port_no,
        hw_addr,
        name,
        config,
        state,
        curr: PortFeatures::empty(),
        advertised: PortFeatures::empty(),
        supported: PortFeatures::empty(),
        peer: PortFeatures::empty(),
        curr_speed: 0,
        max_speed: 0,
    };
    if v14 {
        while !props.is_empty() {
            let prop = property::next(&mut props)?;
            match prop.kind {
                Kind::Standard(ETHERNET) => {
                    let mut v = prop.exactly(28)?;
                    v.skip(4)?;
                    decode_features(&mut v, version, &mut port)?;
                }
                Kind::Experimenter(..) => {}
                _ => return Err(prop.unknown()),
            }
        }
    } else {
        decode_features(&mut body, version, &mut port)?;
        *r = body;
    }
    Ok(port)
}

fn decode_features(v: &mut Reader<'_>, version: Version, port: &mut PortDesc) -> Result<()> {
    port.curr = features_from_wire(v.u32()?, version);
    port.advertised = features_from_wire(v.u32()?, version);
    port.supported = features_from_wire(v.u32()?, version);
    port.peer = features_from_wire(v.u32()?, version);
    if version != Version::V10 {
        port.curr_speed = v.u32()?;
        port.max_speed = v.u32()?;
    }
    Ok(())
}

pub(super) fn encode_port(port: &PortDesc, version: Version, out: &mut Vec<u8>) {
    let v10 = version == Version::V10;
    let v14 = version >= Version::V14;
    let at = out.len();
    if v10 {
        out.put_port10(port.port_no);
    } else {
        out.put_u32(port.port_no.0);
        out.put_zeros(4);
    }
    out.put_bytes(&port.hw_addr);
    if !v10 {
        out.put_zeros(2);
    }
    out.put_text(&port.name, 16);
    out.put_u32((port.config & known_config(version)).bits());
    out.put_u32(state_to_wire(port.state, version));
    let features = [port.curr, port.advertised, port.supported, port.peer];
    if v14 {
        let prop = property::start(out, ETHERNET);
        out.put_zeros(4);
        features.iter().for_each(|f| out.put_u32(features_to_wire(*f, version)));
        out.put_u32(port.curr_speed);
        out.put_u32(port.max_speed);
        property::end(out, prop);
        let length = out.len() - at;
        out.set_u16(at + 4, length as u16); // 72 bytes
    } else {
        features.iter().for_each(|f| out.put_u32(features_to_wire(*f, version)));
        if !v10 {
            out.put_u32(port.curr_speed);
            out.put_u32(port.max_speed);
        }
    }
}

pub(super) fn decode_port_status(mut r: Reader<'_>, version: Version) -> Result<PortStatus> {
    let reason = match r.u8()? {
        0 => PortStatusReason::Add,
        1 => PortStatusReason::Delete,
        2 => PortStatusReason::Modify,
        _ => return Err(OfError::NXBRC_BAD_REASON),
    };
    r.skip(7)?;
    Ok(PortStatus { reason, port: decode_port(&mut r, version)? })
}

pub(super) fn encode_port_status(
    s: &PortStatus,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin(out, version, ofpt::PORT_STATUS, xid);
    out.put_u8(s.reason as u8);
    out.put_zeros(7);
    encode_port(&s.port, version, out);
    finish(out, at, "OFPT_PORT_STATUS")
}

pub(super) fn decode_port_mod(mut r: Reader<'_>, version: Version) -> Result<PortMod> {
    let v10 = version == Version::V10;
    let port_no = if v10 { r.port10()? } else { r.port11()? };
    if !v10 {
        r.skip(4)?;
    }
    let hw_addr = r.array()?;
    if !v10 {
        r.skip(2)?;
    }
    let config = PortConfig::from_bits_truncate(r.u32()?) & known_config(version);
    let mask = PortConfig::from_bits_truncate(r.u32()?) & known_config(version);
    let mut advertise = PortFeatures::empty();
    if version >= Version::V14 {
        while !r.is_empty() {
            let prop = property::next(&mut r)?;
            match prop.kind {
                Kind::Standard(ETHERNET) => advertise = features_from_wire(prop.u32()?, version),
                _ => return Err(prop.unknown()),
            }
        }
    } else {
        advertise = features_from_wire(r.u32()?, version);
    }
    Ok(PortMod { port_no, hw_addr, config: config & mask, mask, advertise })
}

pub(super) fn encode_port_mod(
    m: &PortMod,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin_later(out, version, Later::PortMod, xid)?;
    let v10 = version == Version::V10;
    if v10 {
        out.put_port10(m.port_no);
    } else {
        out.put_u32(m.port_no.0);
        out.put_zeros(4);
    }
    out.put_bytes(&m.hw_addr);
    if !v10 {
        out.put_zeros(2);
    }
    out.put_u32((m.config & known_config(version)).bits());
    out.put_u32((m.mask & known_config(version)).bits());
    let advertise = features_to_wire(m.advertise, version);
    if version < Version::V14 {
        out.put_u32(advertise);
        out.put_zeros(4);
    } else if advertise != 0 {
        property::put(out, ETHERNET, &advertise.to_be_bytes());
    }
    finish(out, at, "OFPT_PORT_MOD")
}

// SPDX-License-Identifier: Apache-2.0
//! Port statistics.

use super::property::{self, INTEL_VENDOR, Kind};
use super::*;
use crate::wire::{Put, Reader, Result};

/// OFPPSPT14_ETHERNET.
const ETHERNET: u16 = 0;
/// INTEL_PORT_STATS_RFC2819.
const RFC2819: u32 = 1;
/// INTEL_PORT_STATS_CUSTOM.
const CUSTOM: u32 = 2;

/// Bytes that custom counters may take.
const CUSTOM_SPACE: usize = 32_768;

pub(super) fn decode(r: &mut Reader<'_>, version: Version) -> Result<PortStats> {
    if version >= Version::V14 {
        return decode14(r);
    }
    let port_no = if version == Version::V10 {
        let port = r.port10()?;
        r.skip(6)?;
        port
    } else {
        let port = r.port11()?;
        r.skip(4)?;
        port
    };
    let mut s = PortStats::unknown(port_no);
    for counter in common(&mut s) {
        *counter = r.u64()?;
    }
    for counter in ethernet(&mut s) {
        *counter = r.u64()?;
    }
    if version == Version::V13 {
        s.duration = r.maybe_duration()?;
    }
    Ok(s)
}

fn decode14(r: &mut Reader<'_>) -> Result<PortStats> {
    let length = r.u16()?;
    let mut r = r.record(length, 2, 80)?;
    r.skip(2)?;
    let mut s = PortStats::unknown(r.port11()?);
    s.duration = r.maybe_duration()?;
    for counter in common(&mut s) {
        *counter = r.u64()?;
    }
    while !r.is_empty() {
        let prop = property::next(&mut r)?;
        match prop.kind {
            Kind::Standard(ETHERNET) => {
                let mut v = prop.exactly(36)?;
                v.skip(4)?;
                for counter in ethernet(&mut s) {
                    *counter = v.u64()?;
                }
            }
            Kind::Experimenter(INTEL_VENDOR, RFC2819) => {
                let mut v = prop.exactly(4 + 21 * 8)?;
                v.skip(4)?;
                let mut more = Rfc2819Stats::default();
                for counter in rfc2819(&mut more) {
                    *counter = v.u64()?;
                }
                s.rfc2819 = Some(Box::new(more));
            }
            Kind::Experimenter(INTEL_VENDOR, CUSTOM) => {
                let mut v = prop.value;
                v.skip(2)?;
                for _ in 0..v.u16()? {
                    let len = usize::from(v.u8()?);
                    let name = v.text(len)?;
                    s.custom.push((name, v.u64()?));
                }
            }
            Kind::Experimenter(..) => {}
            _ => return Err(prop.unknown()),
        }
    }
    Ok(s)
}

pub(super) fn encode(s: &PortStats, version: Version, out: &mut Vec<u8>) {
    let mut s = s.clone();
    if version >= Version::V14 {
        let at = out.len();
        out.put_zeros(4);
        out.put_u32(s.port_no.0);
        out.put_maybe_duration(s.duration);
        common(&mut s).into_iter().for_each(|n| out.put_u64(*n));
        let prop = property::start(out, ETHERNET);
        out.put_zeros(4);
        ethernet(&mut s).into_iter().for_each(|n| out.put_u64(*n));
        property::end(out, prop);
        // OVS always sends these, unknown or not.
        let mut more = s.rfc2819.as_deref().copied().unwrap_or_default();
        let prop = property::start_experimenter(out, INTEL_VENDOR, RFC2819);
        out.put_zeros(4);
        rfc2819(&mut more).into_iter().for_each(|n| out.put_u64(*n));
        property::end(out, prop);
        if !s.custom.is_empty() {
            let prop = property::start_experimenter(out, INTEL_VENDOR, CUSTOM);
            out.put_zeros(4);
            let mut n = 0u16;
            for (name, value) in &s.custom {
                // Name bytes after the 255th are cut; counters without room in the property are
                // left out.
                let name = name.as_bytes();
                let name = name.get(..usize::from(u8::MAX)).unwrap_or(name);
                if out.len() - prop + 1 + name.len() + 8 > CUSTOM_SPACE {
                    break;
                }
                out.put_u8(name.len() as u8); // at most 255, see above
                out.put_bytes(name);
                out.put_u64(*value);
                n += 1;
            }
            out.set_u16(prop + 14, n);
            property::end(out, prop);
        }
        let len = out.len() - at;
        out.set_u16(at, len as u16); // 304 bytes and at most CUSTOM_SPACE and padding
        return;
    }
    if version == Version::V10 {
        out.put_port10(s.port_no);
        out.put_zeros(6);
    } else {
        out.put_u32(s.port_no.0);
        out.put_zeros(4);
    }
    common(&mut s).into_iter().for_each(|n| out.put_u64(*n));
    ethernet(&mut s).into_iter().for_each(|n| out.put_u64(*n));
    if version == Version::V13 {
        out.put_maybe_duration(s.duration);
    }
}

/// The counters that every version begins with, in their order.
fn common(s: &mut PortStats) -> [&mut u64; 8] {
    [
        &mut s.rx_packets,
        &mut s.tx_packets,
        &mut s.rx_bytes,
        &mut s.tx_bytes,
        &mut s.rx_dropped,
        &mut s.tx_dropped,
        &mut s.rx_errors,
        &mut s.tx_errors,
    ]
}

/// The counters of Ethernet ports, in their order.
fn ethernet(s: &mut PortStats) -> [&mut u64; 4] {
    [&mut s.rx_frame_err, &mut s.rx_over_err, &mut s.rx_crc_err, &mut s.collisions]
}

/// The counters of [`RFC2819`], in their order.
fn rfc2819(s: &mut Rfc2819Stats) -> Vec<&mut u64> {
    let mut all: Vec<&mut u64> = s.rx_sizes.iter_mut().chain(&mut s.tx_sizes).collect();
    all.extend([
        &mut s.tx_multicast,
        &mut s.rx_broadcast,
        &mut s.tx_broadcast,
        &mut s.rx_undersized,
        &mut s.rx_oversize,
        &mut s.rx_fragmented,
        &mut s.rx_jabber,
    ]);
    all
}

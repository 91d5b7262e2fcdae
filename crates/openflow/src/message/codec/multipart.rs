// SPDX-License-Identifier: Apache-2.0
//! Multipart requests and replies.

use super::header::{Encoded, Later, begin_later, finish};
use super::monitor::Form;
use super::port_stats;
use super::*;
use super::{flow_stats, group, ipfix, meter, monitor, queue, table, table_features};
use crate::PortNo;
use crate::error::{NX_VENDOR, ONF_VENDOR};
use crate::wire::{Put, Reader, Result};

/// Numbers of multipart messages (OFPMP_*, OFPST_*).
mod ofpmp {
    pub(super) const DESC: u16 = 0;
    pub(super) const FLOW: u16 = 1;
    pub(super) const AGGREGATE: u16 = 2;
    pub(super) const TABLE: u16 = 3;
    pub(super) const PORT: u16 = 4;
    pub(super) const QUEUE: u16 = 5;
    pub(super) const GROUP: u16 = 6;
    pub(super) const GROUP_DESC: u16 = 7;
    pub(super) const GROUP_FEATURES: u16 = 8;
    pub(super) const METER: u16 = 9;
    pub(super) const METER_CONFIG: u16 = 10;
    pub(super) const METER_FEATURES: u16 = 11;
    pub(super) const TABLE_FEATURES: u16 = 12;
    pub(super) const PORT_DESC: u16 = 13;
    pub(super) const TABLE_DESC: u16 = 14;
    pub(super) const QUEUE_DESC: u16 = 15;
    pub(super) const FLOW_MONITOR: u16 = 16;
    pub(super) const VENDOR: u16 = 0xffff;
}

/// Numbers of Nicira's multipart messages (NXST_*).
mod nxst {
    pub(super) const FLOW: u32 = 0;
    pub(super) const AGGREGATE: u32 = 1;
    pub(super) const FLOW_MONITOR: u32 = 2;
    pub(super) const IPFIX_BRIDGE: u32 = 3;
    pub(super) const IPFIX_FLOW: u32 = 4;
    pub(super) const GROUP: u32 = 7;
    pub(super) const GROUP_DESC: u32 = 8;
    pub(super) const GROUP_FEATURES: u32 = 9;
}

/// Numbers of the ONF's multipart messages (ONFST_*).
mod onfst {
    pub(super) const FLOW_MONITOR: u32 = 1870;
}

/// OFPMPF_REQ_MORE and OFPMPF_REPLY_MORE.
const MORE: u16 = 1;

/// Which multipart message: a standard one, Nicira's, or the ONF's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Standard(u16),
    Nicira(u32),
    Onf(u32),
}

/// The first version that has a standard multipart message.
fn since(number: u16) -> Option<Version> {
    Some(match number {
        ofpmp::DESC..=ofpmp::QUEUE | ofpmp::PORT_DESC => Version::V10,
        ofpmp::GROUP | ofpmp::GROUP_DESC => Version::V11,
        ofpmp::GROUP_FEATURES => Version::V12,
        ofpmp::METER..=ofpmp::TABLE_FEATURES => Version::V13,
        ofpmp::TABLE_DESC | ofpmp::QUEUE_DESC | ofpmp::FLOW_MONITOR => Version::V14,
        _ => return None,
    })
}

/// Returns true when `version` has a multipart message of Nicira's. Most stand in for a standard
/// message that comes in a later version.
fn has_nicira(subtype: u32, version: Version) -> bool {
    match subtype {
        nxst::FLOW | nxst::AGGREGATE | nxst::GROUP | nxst::GROUP_DESC => version == Version::V10,
        nxst::FLOW_MONITOR => Form::of(version) == Form::Nicira,
        nxst::GROUP_FEATURES => version < Version::V12,
        nxst::IPFIX_BRIDGE | nxst::IPFIX_FLOW => true,
        _ => false,
    }
}

/// Returns true when `version` has a multipart message of the ONF's.
fn has_onf(subtype: u32, version: Version) -> bool {
    subtype == onfst::FLOW_MONITOR && Form::of(version) == Form::Onf
}

/// Reads the header after OpenFlow's: which message, and its flags.
fn decode_header(r: &mut Reader<'_>, version: Version) -> Result<(Kind, u16)> {
    let number = r.u16()?;
    let flags = r.u16()?;
    if version != Version::V10 {
        r.skip(4)?;
    }
    if number != ofpmp::VENDOR {
        return match since(number) {
            Some(v) if v <= version => Ok((Kind::Standard(number), flags)),
            _ => Err(OfError::OFPBRC_BAD_STAT),
        };
    }
    let vendor = r.u32()?;
    match vendor {
        NX_VENDOR => {
            let subtype = r.u32()?;
            if version == Version::V10 {
                r.skip(4)?;
            }
            if has_nicira(subtype, version) {
                Ok((Kind::Nicira(subtype), flags))
            } else {
                Err(OfError::OFPBRC_BAD_SUBTYPE)
            }
        }
        ONF_VENDOR => {
            let subtype = r.u32()?;
            if has_onf(subtype, version) {
                Ok((Kind::Onf(subtype), flags))
            } else {
                Err(OfError::OFPBRC_BAD_SUBTYPE)
            }
        }
        _ => Err(OfError::OFPBRC_BAD_VENDOR),
    }
}

fn header_bytes(kind: Kind, flags: u16, version: Version, out: &mut Vec<u8>) -> Encoded {
    let old = version == Version::V10;
    let number = match kind {
        Kind::Standard(number) => number,
        Kind::Nicira(_) | Kind::Onf(_) => ofpmp::VENDOR,
    };
    let known = match kind {
        Kind::Standard(number) => since(number).is_some_and(|v| v <= version),
        Kind::Nicira(subtype) => has_nicira(subtype, version),
        Kind::Onf(subtype) => has_onf(subtype, version),
    };
    if !known {
        return Err(EncodeError::Unsupported { what: "this multipart message", version });
    }
    out.put_u16(number);
    out.put_u16(flags);
    if !old {
        out.put_zeros(4);
    }
    if let Kind::Nicira(subtype) = kind {
        out.put_u32(NX_VENDOR);
        out.put_u32(subtype);
        if old {
            out.put_zeros(4);
        }
    }
    if let Kind::Onf(subtype) = kind {
        out.put_u32(ONF_VENDOR);
        out.put_u32(subtype);
    }
    Ok(())
}

pub(super) fn decode_request(mut r: Reader<'_>, version: Version) -> Result<MultipartRequest> {
    let (kind, flags) = decode_header(&mut r, version)?;
    let v10 = version == Version::V10;
    let v15 = version == Version::V15;
    // Lengths first, as OVS does: fixed part and unit of the rest.
    let (fixed, unit) = match kind {
        Kind::Standard(ofpmp::FLOW | ofpmp::AGGREGATE) => {
            if v10 {
                (44, 0)
            } else {
                (32, 8)
            }
        }
        Kind::Standard(
            ofpmp::PORT
            | ofpmp::QUEUE
            | ofpmp::GROUP
            | ofpmp::METER
            | ofpmp::METER_CONFIG
            | ofpmp::QUEUE_DESC,
        ) => (8, 0),
        Kind::Standard(ofpmp::GROUP_DESC | ofpmp::PORT_DESC) if v15 => (8, 0),
        Kind::Nicira(nxst::GROUP | nxst::GROUP_DESC) => (8, 0),
        Kind::Standard(ofpmp::FLOW_MONITOR)
        | Kind::Nicira(nxst::FLOW_MONITOR)
        | Kind::Onf(onfst::FLOW_MONITOR) => (0, 8),
        Kind::Nicira(nxst::FLOW | nxst::AGGREGATE) => (8, 8),
        Kind::Standard(ofpmp::TABLE_FEATURES) => (0, 1),
        _ => (0, 0),
    };
    r.expect(fixed, unit)?;
    let more = flags & MORE != 0 && version >= Version::V13;
    if more && kind != Kind::Standard(ofpmp::TABLE_FEATURES) {
        // No other request is longer than one message.
        return Err(OfError::OFPBRC_MULTIPART_BUFFER_OVERFLOW);
    }
    Ok(match kind {
        Kind::Standard(number) => match number {
            ofpmp::DESC => MultipartRequest::Desc,
            ofpmp::FLOW => {
                MultipartRequest::Flow(Box::new(flow_stats::decode_request(&mut r, version)?))
            }
            ofpmp::AGGREGATE => {
                MultipartRequest::Aggregate(Box::new(flow_stats::decode_request(&mut r, version)?))
            }
            ofpmp::TABLE => MultipartRequest::Table,
            ofpmp::PORT => MultipartRequest::Port(if v10 { r.port10()? } else { r.port11()? }),
            ofpmp::QUEUE => MultipartRequest::Queue(queue::decode_request(&mut r, version)?),
            ofpmp::GROUP => MultipartRequest::Group(r.u32()?),
            ofpmp::GROUP_DESC => {
                MultipartRequest::GroupDesc(if v15 { r.u32()? } else { GROUP_ALL })
            }
            ofpmp::GROUP_FEATURES => MultipartRequest::GroupFeatures,
            ofpmp::METER => MultipartRequest::Meter(r.u32()?),
            ofpmp::METER_CONFIG => MultipartRequest::MeterConfig(r.u32()?),
            ofpmp::METER_FEATURES => MultipartRequest::MeterFeatures,
            ofpmp::TABLE_FEATURES => {
                MultipartRequest::TableFeatures(table_features::decode_request(r, version, more)?)
            }
            ofpmp::PORT_DESC => {
                MultipartRequest::PortDesc(if v15 { r.port11()? } else { PortNo::NONE })
            }
            ofpmp::TABLE_DESC => MultipartRequest::TableDesc,
            ofpmp::QUEUE_DESC => {
                MultipartRequest::QueueDesc(queue::decode_request(&mut r, version)?)
            }
            ofpmp::FLOW_MONITOR => MultipartRequest::FlowMonitor(monitors(r, version)?),
            _ => return Err(OfError::OFPBRC_BAD_STAT),
        },
        Kind::Nicira(subtype) => match subtype {
            nxst::FLOW => MultipartRequest::Flow(Box::new(flow_stats::decode_nx_request(&mut r)?)),
            nxst::AGGREGATE => {
                MultipartRequest::Aggregate(Box::new(flow_stats::decode_nx_request(&mut r)?))
            }
            nxst::FLOW_MONITOR => MultipartRequest::FlowMonitor(monitors(r, version)?),
            nxst::GROUP => MultipartRequest::Group(r.u32()?),
            nxst::GROUP_DESC => MultipartRequest::GroupDesc(r.u32()?),
            nxst::GROUP_FEATURES => MultipartRequest::GroupFeatures,
            nxst::IPFIX_BRIDGE => MultipartRequest::IpfixBridge,
            nxst::IPFIX_FLOW => MultipartRequest::IpfixFlow,
            _ => return Err(OfError::OFPBRC_BAD_SUBTYPE),
        },
        // The only one that the header lets through.
        Kind::Onf(_) => MultipartRequest::FlowMonitor(monitors(r, version)?),
    })
}

fn monitors(mut r: Reader<'_>, version: Version) -> Result<Vec<FlowMonitorRequest>> {
    all(&mut r, |r| monitor::decode_request(r, version))
}

/// The multipart message of flow monitors in `version`.
fn monitor_kind(version: Version) -> Kind {
    match Form::of(version) {
        Form::Nicira => Kind::Nicira(nxst::FLOW_MONITOR),
        Form::Onf => Kind::Onf(onfst::FLOW_MONITOR),
        Form::Standard => Kind::Standard(ofpmp::FLOW_MONITOR),
    }
}

/// Records until nothing is left. Each takes at least a byte, so that this ends.
fn all<'a, T>(
    r: &mut Reader<'a>,
    mut one: impl FnMut(&mut Reader<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut out = Vec::new();
    while !r.is_empty() {
        out.push(one(r)?);
    }
    Ok(out)
}

fn request_kind(q: &MultipartRequest, version: Version) -> Kind {
    let v10 = version == Version::V10;
    Kind::Standard(match q {
        MultipartRequest::Group(_) if v10 => return Kind::Nicira(nxst::GROUP),
        MultipartRequest::GroupDesc(_) if v10 => return Kind::Nicira(nxst::GROUP_DESC),
        MultipartRequest::GroupFeatures if version < Version::V12 => {
            return Kind::Nicira(nxst::GROUP_FEATURES);
        }
        MultipartRequest::Desc => ofpmp::DESC,
        MultipartRequest::Flow(f) if f.nicira => return Kind::Nicira(nxst::FLOW),
        MultipartRequest::Flow(_) => ofpmp::FLOW,
        MultipartRequest::Aggregate(f) if f.nicira => return Kind::Nicira(nxst::AGGREGATE),
        MultipartRequest::Aggregate(_) => ofpmp::AGGREGATE,
        MultipartRequest::Table => ofpmp::TABLE,
        MultipartRequest::Port(_) => ofpmp::PORT,
        MultipartRequest::Queue(_) => ofpmp::QUEUE,
        MultipartRequest::Group(_) => ofpmp::GROUP,
        MultipartRequest::GroupDesc(_) => ofpmp::GROUP_DESC,
        MultipartRequest::GroupFeatures => ofpmp::GROUP_FEATURES,
        MultipartRequest::Meter(_) => ofpmp::METER,
        MultipartRequest::MeterConfig(_) => ofpmp::METER_CONFIG,
        MultipartRequest::MeterFeatures => ofpmp::METER_FEATURES,
        MultipartRequest::TableFeatures(_) => ofpmp::TABLE_FEATURES,
        MultipartRequest::PortDesc(_) => ofpmp::PORT_DESC,
        MultipartRequest::TableDesc => ofpmp::TABLE_DESC,
        MultipartRequest::QueueDesc(_) => ofpmp::QUEUE_DESC,
        MultipartRequest::FlowMonitor(_) => return monitor_kind(version),
        MultipartRequest::IpfixBridge => return Kind::Nicira(nxst::IPFIX_BRIDGE),
        MultipartRequest::IpfixFlow => return Kind::Nicira(nxst::IPFIX_FLOW),
    })
}

pub(super) fn encode_request(
    q: &MultipartRequest,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let at = begin_later(out, version, Later::MultipartRequest, xid)?;
    let more = matches!(q, MultipartRequest::TableFeatures(part) if part.more);
    header_bytes(request_kind(q, version), if more { MORE } else { 0 }, version, out)?;
    let id = |n: u32, out: &mut Vec<u8>| {
        out.put_u32(n);
        out.put_zeros(4);
    };
    match q {
        MultipartRequest::Flow(f) | MultipartRequest::Aggregate(f) => {
            flow_stats::encode_request(f, version, out);
        }
        MultipartRequest::Port(port) if version == Version::V10 => {
            out.put_port10(*port);
            out.put_zeros(6);
        }
        MultipartRequest::Port(port) => id(port.0, out),
        MultipartRequest::Queue(q) | MultipartRequest::QueueDesc(q) => {
            queue::encode_request(q, version, out);
        }
        MultipartRequest::Group(n)
        | MultipartRequest::Meter(n)
        | MultipartRequest::MeterConfig(n) => {
            id(*n, out);
        }
        MultipartRequest::GroupDesc(n) if group::has_form15(version) => id(*n, out),
        MultipartRequest::PortDesc(port) if version == Version::V15 => id(port.0, out),
        MultipartRequest::TableFeatures(part) => table_features::encode_request(part, version, out),
        MultipartRequest::FlowMonitor(monitors) => {
            monitors.iter().for_each(|m| monitor::encode_request(m, version, out));
        }
        _ => {}
    }
    finish(out, at, "OFPT_MULTIPART_REQUEST")
}

pub(super) fn decode_reply(mut r: Reader<'_>, version: Version) -> Result<(bool, MultipartReply)> {
    let (kind, flags) = decode_header(&mut r, version)?;
    let more = flags & MORE != 0;
    let r = &mut r;
    let reply = match kind {
        Kind::Standard(number) => match number {
            ofpmp::DESC => MultipartReply::Desc(Box::new(SwitchDesc {
                manufacturer: r.text(256)?,
                hardware: r.text(256)?,
                software: r.text(256)?,
                serial_number: r.text(32)?,
                datapath: r.text(256)?,
            })),
            ofpmp::FLOW => MultipartReply::Flow {
                flows: all(r, |r| flow_stats::decode_flow(r, version, false))?,
                nicira: false,
            },
            ofpmp::AGGREGATE => MultipartReply::Aggregate {
                stats: flow_stats::decode_aggregate(r, version)?,
                nicira: false,
            },
            ofpmp::TABLE => MultipartReply::Table(all(r, |r| table::decode_stats(r, version))?),
            ofpmp::PORT => MultipartReply::Port(all(r, |r| port_stats::decode(r, version))?),
            ofpmp::QUEUE => MultipartReply::Queue(all(r, |r| queue::decode_stats(r, version))?),
            ofpmp::GROUP => MultipartReply::Group(all(r, |r| group::decode_stats(r, version))?),
            ofpmp::GROUP_DESC => {
                MultipartReply::GroupDesc(all(r, |r| group::decode_desc(r, version))?)
            }
            ofpmp::GROUP_FEATURES => MultipartReply::GroupFeatures(group::decode_features(r)?),
            ofpmp::METER => MultipartReply::Meter(all(r, meter::decode_stats)?),
            ofpmp::METER_CONFIG => MultipartReply::MeterConfig(all(r, meter::decode_config)?),
            ofpmp::METER_FEATURES => MultipartReply::MeterFeatures(meter::decode_features(r)?),
            ofpmp::TABLE_FEATURES => {
                MultipartReply::TableFeatures(all(r, |r| table_features::decode(r, version))?)
            }
            ofpmp::PORT_DESC => {
                MultipartReply::PortDesc(all(r, |r| port::decode_port(r, version))?)
            }
            ofpmp::TABLE_DESC => MultipartReply::TableDesc(all(r, table::decode_desc)?),
            ofpmp::QUEUE_DESC => MultipartReply::QueueDesc(all(r, queue::decode_desc)?),
            ofpmp::FLOW_MONITOR => MultipartReply::FlowMonitor(updates(r, version)?),
            _ => return Err(OfError::OFPBRC_BAD_STAT),
        },
        Kind::Nicira(subtype) => match subtype {
            nxst::FLOW => MultipartReply::Flow {
                flows: all(r, |r| flow_stats::decode_flow(r, version, true))?,
                nicira: true,
            },
            nxst::AGGREGATE => MultipartReply::Aggregate {
                stats: flow_stats::decode_aggregate(r, version)?,
                nicira: true,
            },
            nxst::GROUP => MultipartReply::Group(all(r, |r| group::decode_stats(r, version))?),
            nxst::GROUP_DESC => {
                MultipartReply::GroupDesc(all(r, |r| group::decode_desc(r, version))?)
            }
            nxst::GROUP_FEATURES => MultipartReply::GroupFeatures(group::decode_features(r)?),
            nxst::FLOW_MONITOR => MultipartReply::FlowMonitor(updates(r, version)?),
            nxst::IPFIX_BRIDGE => MultipartReply::IpfixBridge(ipfix::decode(r)?),
            nxst::IPFIX_FLOW => MultipartReply::IpfixFlow(all(r, ipfix::decode)?),
            _ => return Err(OfError::OFPBRC_BAD_SUBTYPE),
        },
        Kind::Onf(_) => MultipartReply::FlowMonitor(updates(r, version)?),
    };
    r.expect(0, 0)?;
    Ok((more, reply))
}

fn updates(r: &mut Reader<'_>, version: Version) -> Result<Vec<FlowUpdate>> {
    all(r, |r| monitor::decode_update(r, version))
}

/// Messages of one reply while they are written: starts a new one where the present one would
/// become longer than 65,535 bytes.
struct Parts<'a> {
    out: &'a mut Vec<u8>,
    /// Start of the present message.
    at: usize,
    /// Headers of a message with more to follow, length not filled in.
    head: Vec<u8>,
}

/// Where the flags of a multipart message are.
const FLAGS_AT: usize = 10;

impl<'a> Parts<'a> {
    fn new(
        out: &'a mut Vec<u8>,
        kind: Kind,
        version: Version,
        xid: u32,
    ) -> std::result::Result<Parts<'a>, EncodeError> {
        let mut head = Vec::new();
        begin_later(&mut head, version, Later::MultipartReply, xid)?;
        header_bytes(kind, MORE, version, &mut head)?;
        let at = out.len();
        out.put_bytes(&head);
        Ok(Parts { out, at, head })
    }

    /// Writes one record, which stays whole.
    fn put(&mut self, record: impl FnOnce(&mut Vec<u8>) -> Encoded) -> Encoded {
        let start = self.out.len();
        record(self.out)?;
        if self.out.len() - self.at > usize::from(u16::MAX) {
            let size = self.out.len() - start + self.head.len();
            if size > usize::from(u16::MAX) {
                return Err(EncodeError::TooLong { what: "one record of a multipart reply", size });
            }
            let length = start - self.at;
            self.out.set_u16(self.at + 2, length as u16); // checked by the record before
            self.out.splice(start..start, self.head.iter().copied());
            self.at = start;
        }
        Ok(())
    }

    fn finish(self, more: bool) -> Encoded {
        if !more {
            self.out.set_u16(self.at + FLAGS_AT, 0);
        }
        finish(self.out, self.at, "OFPT_MULTIPART_REPLY")
    }
}

fn reply_kind(reply: &MultipartReply, version: Version) -> Kind {
    let v10 = version == Version::V10;
    Kind::Standard(match reply {
        MultipartReply::Group(_) if v10 => return Kind::Nicira(nxst::GROUP),
        MultipartReply::GroupDesc(_) if v10 => return Kind::Nicira(nxst::GROUP_DESC),
        MultipartReply::GroupFeatures(_) if version < Version::V12 => {
            return Kind::Nicira(nxst::GROUP_FEATURES);
        }
        MultipartReply::Desc(_) => ofpmp::DESC,
        MultipartReply::Flow { nicira: true, .. } => return Kind::Nicira(nxst::FLOW),
        MultipartReply::Flow { .. } => ofpmp::FLOW,
        MultipartReply::Aggregate { nicira: true, .. } => return Kind::Nicira(nxst::AGGREGATE),
        MultipartReply::Aggregate { .. } => ofpmp::AGGREGATE,
        MultipartReply::Table(_) => ofpmp::TABLE,
        MultipartReply::Port(_) => ofpmp::PORT,
        MultipartReply::Queue(_) => ofpmp::QUEUE,
        MultipartReply::Group(_) => ofpmp::GROUP,
        MultipartReply::GroupDesc(_) => ofpmp::GROUP_DESC,
        MultipartReply::GroupFeatures(_) => ofpmp::GROUP_FEATURES,
        MultipartReply::Meter(_) => ofpmp::METER,
        MultipartReply::MeterConfig(_) => ofpmp::METER_CONFIG,
        MultipartReply::MeterFeatures(_) => ofpmp::METER_FEATURES,
        MultipartReply::TableFeatures(_) => ofpmp::TABLE_FEATURES,
        MultipartReply::PortDesc(_) => ofpmp::PORT_DESC,
        MultipartReply::TableDesc(_) => ofpmp::TABLE_DESC,
        MultipartReply::QueueDesc(_) => ofpmp::QUEUE_DESC,
        MultipartReply::FlowMonitor(_) => return monitor_kind(version),
        MultipartReply::IpfixBridge(_) => return Kind::Nicira(nxst::IPFIX_BRIDGE),
        MultipartReply::IpfixFlow(_) => return Kind::Nicira(nxst::IPFIX_FLOW),
    })
}

/// `record` for what cannot fail.
macro_rules! put_each {
    ($parts:ident, $records:expr, |$record:ident, $out:ident| $body:expr) => {
        for $record in $records {
            $parts.put(|$out| {
                $body;
                Ok(())
            })?;
        }
    };
}

pub(super) fn encode_reply(
    reply: &MultipartReply,
    more: bool,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Encoded {
    let mut parts = Parts::new(out, reply_kind(reply, version), version, xid)?;
    match reply {
        MultipartReply::Desc(d) => parts.put(|out| {
            out.put_text(&d.manufacturer, 256);
            out.put_text(&d.hardware, 256);
            out.put_text(&d.software, 256);
            out.put_text(&d.serial_number, 32);
            out.put_text(&d.datapath, 256);
            Ok(())
        })?,
        MultipartReply::Flow { flows, nicira } => {
            put_each!(parts, flows, |f, out| flow_stats::encode_flow(f, version, *nicira, out));
        }
        MultipartReply::Aggregate { stats, nicira } => parts.put(|out| {
            flow_stats::encode_aggregate(stats, version, *nicira, out);
            Ok(())
        })?,
        MultipartReply::Table(tables) => {
            for t in tables {
                parts.put(|out| table::encode_stats(t, version, out))?;
            }
        }
        MultipartReply::Port(ports) => {
            put_each!(parts, ports, |p, out| port_stats::encode(p, version, out));
        }
        MultipartReply::Queue(queues) => {
            put_each!(parts, queues, |q, out| queue::encode_stats(q, version, out));
        }
        MultipartReply::Group(groups) => {
            put_each!(parts, groups, |g, out| group::encode_stats(g, version, out));
        }
        MultipartReply::GroupDesc(groups) => {
            put_each!(parts, groups, |g, out| group::encode_desc(g, version, out));
        }
        MultipartReply::GroupFeatures(f) => parts.put(|out| {
            group::encode_features(f, version, out);
            Ok(())
        })?,
        MultipartReply::Meter(meters) => {
            put_each!(parts, meters, |m, out| meter::encode_stats(m, out));
        }
        MultipartReply::MeterConfig(meters) => {
            put_each!(parts, meters, |m, out| meter::encode_config(m, out));
        }
        MultipartReply::MeterFeatures(f) => parts.put(|out| {
            meter::encode_features(f, out);
            Ok(())
        })?,
        MultipartReply::TableFeatures(tables) => {
            put_each!(parts, tables, |t, out| table_features::encode(t, version, out));
        }
        MultipartReply::PortDesc(ports) => {
            put_each!(parts, ports, |p, out| port::encode_port(p, version, out));
        }
        MultipartReply::TableDesc(tables) => {
            put_each!(parts, tables, |t, out| table::encode_desc(t, out));
        }
        MultipartReply::QueueDesc(queues) => {
            put_each!(parts, queues, |q, out| queue::encode_desc(q, out));
        }
        MultipartReply::FlowMonitor(updates) => {
            put_each!(parts, updates, |u, out| monitor::encode_update(u, version, out));
        }
        MultipartReply::IpfixBridge(stats) => parts.put(|out| {
            ipfix::encode(stats, out);
            Ok(())
        })?,
        MultipartReply::IpfixFlow(sets) => {
            put_each!(parts, sets, |stats, out| ipfix::encode(stats, out));
        }
    }
    parts.finish(more)
}

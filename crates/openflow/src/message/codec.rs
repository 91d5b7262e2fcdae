// SPDX-License-Identifier: Apache-2.0
//! The codec between [`Message`] and bytes, in all versions.
//!
//! A message is looked up by version, type and (multipart, experimenter) subtype; then its
//! length is checked against that form, as OVS does, before anything else of it is read.
//! Every decoder reads through [`Reader`], which cannot read past its end.

mod actions;
mod async_config;
mod bundle;
mod continuation;
mod flow;
mod flow_stats;
mod group;
mod header;
mod ipfix;
mod meter;
mod monitor;
mod multipart;
mod nicira;
mod oxs;
mod packet;
mod port;
mod port_stats;
mod property;
mod queue;
mod session;
mod table;
mod table_features;

#[cfg(test)]
mod tests;

use super::*;
use crate::OfError;
use crate::error::{NX_VENDOR, ONF_VENDOR};
use crate::wire::{Put, Reader, Result};
use header::{Encoded, Later, begin, begin_later, finish, nxt, ofpt, onft};
use monitor::Form;
use std::fmt;

/// The properties of a connection that change how messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// OpenFlow's version.
    pub version: Version,
    /// NXT_SET_FLOW_FORMAT: how OpenFlow 1.0 flow mods and removals are written. Later versions
    /// do not look at it.
    pub flow_format: FlowFormat,
    /// NXT_FLOW_MOD_TABLE_ID: the upper byte of a command in OpenFlow 1.0 is a table.
    pub flow_mod_table_id: bool,
    /// NXT_SET_PACKET_IN_FORMAT.
    pub packet_in_format: PacketInFormat,
}

impl Protocol {
    /// As a connection starts after the hellos.
    pub fn new(version: Version) -> Protocol {
        Protocol {
            version,
            flow_format: FlowFormat::OpenFlow10,
            flow_mod_table_id: false,
            packet_in_format: PacketInFormat::Standard,
        }
    }
}

/// The reason why bytes are not a message, with the error to send to the sender.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} (xid 0x{xid:08x}): {error}")]
pub struct DecodeError {
    /// The error to send.
    pub error: OfError,
    /// Transaction id of the message.
    pub xid: u32,
    /// First byte of the message: its version, known or not.
    pub version: u8,
    /// Which kind of message it was, as far as that was found out: "OFPT_FLOW_MOD".
    pub what: String,
    /// The message, or its beginning, to go back in the error message ([`ErrorMessage::kept`]).
    pub data: Vec<u8>,
}

impl DecodeError {
    /// The OFPT_ERROR that answers the message.
    pub fn reply(&self) -> Message {
        let error = ErrorMessage { error: ErrorCode::Known(self.error), data: self.data.clone() };
        Message { xid: self.xid, body: Body::Error(error) }
    }
}

/// Kind of a message, for [`DecodeError::what`]. Text is made of it only for an error: most messages
/// are decoded without one.
#[derive(Clone, Copy, Debug)]
enum What {
    /// A known kind.
    Name(&'static str),
    /// A type without a name in this version.
    Type(u8),
    /// A message of this unknown vendor.
    Vendor(u32),
    /// A message of the ONF with this subtype.
    Onf(u32),
    /// A message of Nicira's with this subtype.
    Nicira(u32),
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Name(name) => f.write_str(name),
            What::Type(ty) => write!(f, "OFPT type {ty}"),
            What::Vendor(vendor) => write!(f, "message of vendor 0x{vendor:08x}"),
            What::Onf(subtype) => write!(f, "ONFT type {subtype}"),
            What::Nicira(subtype) => write!(f, "NXT type {subtype}"),
        }
    }
}

/// Why a message cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The version has no such message, or no form for this part of it.
    #[error("{version} cannot express {what}")]
    Unsupported {
        /// The part that the version cannot express.
        what: &'static str,
        /// The version that lacks it.
        version: Version,
    },
    /// One indivisible part is larger than a message (65,535 bytes) can be.
    #[error("{what} does not fit an OpenFlow message: {size} bytes")]
    TooLong {
        /// Which part.
        what: &'static str,
        /// Its size, bytes.
        size: usize,
    },
}

impl Message {
    /// Reads one whole message (as [`crate::frame`] cuts them off).
    ///
    /// Hellos, errors and echoes are read in any version; other messages must be of
    /// `protocol`'s.
    ///
    /// # Errors
    /// [`DecodeError`], with the error message to send back. Its error is the one that OVS
    /// sends: OFPBRC_BAD_VERSION, OFPBRC_BAD_TYPE, OFPBRC_BAD_STAT, OFPBRC_BAD_VENDOR,
    /// OFPBRC_BAD_SUBTYPE, OFPBRC_BAD_LEN, or one about a part of the message.
    pub fn decode(bytes: &[u8], protocol: &Protocol) -> std::result::Result<Message, DecodeError> {
        let mut what = What::Name("OpenFlow header");
        let xid = crate::frame::xid(bytes);
        match decode_body(bytes, xid, protocol, &mut what) {
            Ok(body) => Ok(Message { xid, body }),
            Err(error) => Err(DecodeError {
                error,
                xid,
                version: bytes.first().copied().unwrap_or_default(),
                what: what.to_string(),
                data: ErrorMessage::kept(bytes).to_vec(),
            }),
        }
    }

    /// Writes the message: one OpenFlow message, or (multipart replies) as many as are needed,
    /// one after the other. [`crate::frame::split`] finds them again.
    ///
    /// # Errors
    /// [`EncodeError::Unsupported`] when `protocol`'s version cannot express the message, and
    /// [`EncodeError::TooLong`].
    pub fn encode(&self, protocol: &Protocol) -> std::result::Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        self.encode_to(protocol, &mut out)?;
        Ok(out)
    }

    /// As [`Message::encode`], but appends to `out`; after an error `out` is unchanged.
    pub fn encode_to(
        &self,
        protocol: &Protocol,
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), EncodeError> {
        let start = out.len();
        let done = encode_body(self, protocol, out);
        if done.is_err() {
            out.truncate(start);
        }
        done
    }
}

/// Lengths that a body can have: this many bytes, and then any multiple of a unit (0: none).
type Shape = (usize, usize);

fn checked<'a>(r: Reader<'a>, shape: Shape) -> Result<Reader<'a>> {
    r.expect(shape.0, shape.1)?;
    Ok(r)
}

fn decode_body(bytes: &[u8], xid: u32, p: &Protocol, what: &mut What) -> Result<Body> {
    let mut r = Reader::message(bytes);
    let wire_version = r.u8()?;
    let ty = r.u8()?;
    let length = r.u16()?;
    r.skip(4)?;
    if usize::from(length) != bytes.len() {
        return Err(OfError::OFPBRC_BAD_LEN);
    }
    // The messages that every version has, known or not.
    match ty {
        ofpt::HELLO => {
            *what = What::Name("OFPT_HELLO");
            return Ok(Body::Hello(session::decode_hello(r, wire_version)?));
        }
        ofpt::ERROR => {
            *what = What::Name("OFPT_ERROR");
            let version = Version::from_wire(wire_version).unwrap_or(p.version);
            return Ok(Body::Error(session::decode_error(checked(r, (4, 1))?, version)?));
        }
        ofpt::ECHO_REQUEST => return Ok(Body::EchoRequest(r.rest().to_vec())),
        ofpt::ECHO_REPLY => return Ok(Body::EchoReply(r.rest().to_vec())),
        _ => {}
    }
    let version = p.version;
    if wire_version != version.wire() {
        return Err(OfError::OFPBRC_BAD_VERSION);
    }
    if ty == ofpt::VENDOR {
        return decode_vendor(r, xid, p, what);
    }
    let v10 = version == Version::V10;
    let v14 = version >= Version::V14;
    let named = |name: &'static str, what: &mut What| *what = What::Name(name);
    Ok(match ty {
        ofpt::FEATURES_REQUEST => {
            named("OFPT_FEATURES_REQUEST", what);
            checked(r, (0, 0))?;
            Body::FeaturesRequest
        }
        ofpt::FEATURES_REPLY => {
            named("OFPT_FEATURES_REPLY", what);
            let ports = if version >= Version::V13 { 0 } else { port::port_size(version) };
            Body::FeaturesReply(session::decode_features(checked(r, (24, ports))?, version)?)
        }
        ofpt::GET_CONFIG_REQUEST => {
            named("OFPT_GET_CONFIG_REQUEST", what);
            checked(r, (0, 0))?;
            Body::GetConfigRequest
        }
        ofpt::GET_CONFIG_REPLY => {
            named("OFPT_GET_CONFIG_REPLY", what);
            Body::GetConfigReply(session::decode_config(checked(r, (4, 0))?, version)?)
        }
        ofpt::SET_CONFIG => {
            named("OFPT_SET_CONFIG", what);
            Body::SetConfig(session::decode_config(checked(r, (4, 0))?, version)?)
        }
        ofpt::PACKET_IN => {
            named("OFPT_PACKET_IN", what);
            let fixed = match version {
                Version::V10 => 10,
                Version::V12 => 8,
                _ => 16,
            };
            Body::PacketIn(Box::new(packet::decode_packet_in(checked(r, (fixed, 1))?, version)?))
        }
        ofpt::FLOW_REMOVED => {
            named("OFPT_FLOW_REMOVED", what);
            Body::FlowRemoved(Box::new(match version {
                Version::V10 => flow::decode_flow_removed10(checked(r, (80, 0))?)?,
                Version::V15 => flow::decode_flow_removed15(checked(r, (16, 8))?)?,
                _ => flow::decode_flow_removed11(checked(r, (40, 8))?, version)?,
            }))
        }
        ofpt::PORT_STATUS => {
            named("OFPT_PORT_STATUS", what);
            let shape = (8 + port::port_size(version), if v14 { 8 } else { 0 });
            Body::PortStatus(port::decode_port_status(checked(r, shape)?, version)?)
        }
        ofpt::PACKET_OUT => {
            named("OFPT_PACKET_OUT", what);
            let fixed = if v10 || version == Version::V15 { 8 } else { 16 };
            Body::PacketOut(Box::new(packet::decode_packet_out(checked(r, (fixed, 1))?, version)?))
        }
        ofpt::FLOW_MOD => {
            named("OFPT_FLOW_MOD", what);
            Body::FlowMod(Box::new(if v10 {
                flow::decode_flow_mod10(checked(r, (64, 8))?, p)?
            } else {
                flow::decode_flow_mod11(checked(r, (40, 8))?, version)?
            }))
        }
        _ => {
            let Some(message) = Later::from_number(ty, version) else {
                *what = What::Type(ty);
                return Err(OfError::OFPBRC_BAD_TYPE);
            };
            *what = What::Name(message.name());
            return decode_later(r, message, xid, p);
        }
    })
}

fn decode_later(r: Reader<'_>, message: Later, xid: u32, p: &Protocol) -> Result<Body> {
    let version = p.version;
    let v10 = version == Version::V10;
    let v14 = version >= Version::V14;
    let v15 = version == Version::V15;
    Ok(match message {
        Later::GroupMod => {
            let r = checked(r, (if v15 { 16 } else { 8 }, 8))?;
            Body::GroupMod(group::decode_group_mod(r, version)?)
        }
        Later::PortMod => {
            let shape = if v10 || v14 { 24 } else { 32 };
            let r = checked(r, (shape, if v14 { 8 } else { 0 }))?;
            Body::PortMod(port::decode_port_mod(r, version)?)
        }
        Later::TableMod => {
            let r = checked(r, (8, if v14 { 8 } else { 0 }))?;
            Body::TableMod(table::decode_table_mod(r, version)?)
        }
        Later::MultipartRequest => Body::MultipartRequest(multipart::decode_request(r, version)?),
        Later::MultipartReply => {
            let (more, reply) = multipart::decode_reply(r, version)?;
            Body::MultipartReply { more, reply }
        }
        Later::BarrierRequest => {
            checked(r, (0, 0))?;
            Body::BarrierRequest
        }
        Later::BarrierReply => {
            checked(r, (0, 0))?;
            Body::BarrierReply
        }
        Later::QueueGetConfigRequest => {
            let r = checked(r, (if v10 { 4 } else { 8 }, 0))?;
            Body::QueueGetConfigRequest { port: queue::decode_config_request(r, version)? }
        }
        Later::QueueGetConfigReply => {
            let (port, queues) = queue::decode_config_reply(checked(r, (8, 8))?, version)?;
            Body::QueueGetConfigReply { port, queues }
        }
        Later::RoleRequest => Body::RoleRequest(session::decode_role(checked(r, (16, 0))?)?),
        Later::RoleReply => Body::RoleReply(session::decode_role(checked(r, (16, 0))?)?),
        Later::GetAsyncRequest => {
            checked(r, (0, 0))?;
            Body::GetAsyncRequest
        }
        Later::GetAsyncReply => {
            let set = if v14 {
                async_config::decode_properties(checked(r, (0, 8))?, version, true)?
            } else {
                async_config::decode_legacy(checked(r, (24, 0))?, version)?
            };
            let mut config = AsyncConfig { primary: [0; 6], secondary: [0; 6] };
            config.apply(&set);
            Body::GetAsyncReply(config)
        }
        Later::SetAsync => Body::SetAsync(if v14 {
            async_config::decode_properties(checked(r, (0, 8))?, version, false)?
        } else {
            async_config::decode_legacy(checked(r, (24, 0))?, version)?
        }),
        Later::MeterMod => Body::MeterMod(meter::decode_meter_mod(checked(r, (8, 8))?)?),
        Later::RoleStatus => Body::RoleStatus(session::decode_role_status(checked(r, (16, 8))?)?),
        Later::TableStatus => Body::TableStatus(table::decode_status(checked(r, (16, 8))?)?),
        Later::RequestForward => {
            let r = checked(r, (8, 8))?;
            Body::RequestForward(Box::new(bundle::decode_request_forward(r, p)?))
        }
        Later::BundleControl => Body::BundleControl(bundle::decode_control(checked(r, (8, 8))?)?),
        Later::BundleAdd => {
            Body::BundleAdd(Box::new(bundle::decode_add(checked(r, (8, 1))?, xid, p)?))
        }
    })
}

/// True for the messages of vendors that [`decode_vendor`] knows, in whatever version.
fn is_known_vendor_message(vendor: u32, subtype: u32) -> bool {
    match vendor {
        NX_VENDOR => {
            matches!(subtype, nxt::ROLE_REQUEST..=nxt::CT_FLUSH | nxt::REQUEST_FORWARD)
        }
        ONF_VENDOR => matches!(
            subtype,
            onft::FLOW_MONITOR_CANCEL
                ..=onft::FLOW_MONITOR_RESUMED
                    | onft::ROLE_STATUS
                    | onft::BUNDLE_CONTROL
                    | onft::BUNDLE_ADD
                    | onft::REQUEST_FORWARD
        ),
        _ => false,
    }
}

/// The ONF's extensions, all of OpenFlow 1.3.
fn decode_onf(subtype: u32, r: Reader<'_>, xid: u32, p: &Protocol) -> Result<Body> {
    if p.version != Version::V13 {
        return Err(OfError::OFPBRC_BAD_SUBTYPE);
    }
    Ok(match subtype {
        onft::FLOW_MONITOR_CANCEL => Body::FlowMonitorCancel(checked(r, (4, 0))?.u32()?),
        onft::FLOW_MONITOR_PAUSED => {
            checked(r, (0, 0))?;
            Body::FlowMonitorPaused
        }
        onft::FLOW_MONITOR_RESUMED => {
            checked(r, (0, 0))?;
            Body::FlowMonitorResumed
        }
        onft::ROLE_STATUS => Body::RoleStatus(session::decode_role_status(checked(r, (16, 8))?)?),
        onft::BUNDLE_CONTROL => Body::BundleControl(bundle::decode_control(checked(r, (8, 8))?)?),
        onft::BUNDLE_ADD => {
            Body::BundleAdd(Box::new(bundle::decode_add(checked(r, (8, 1))?, xid, p)?))
        }
        onft::REQUEST_FORWARD => {
            let r = checked(r, (8, 8))?;
            Body::RequestForward(Box::new(bundle::decode_request_forward(r, p)?))
        }
        _ => return Err(OfError::OFPBRC_BAD_SUBTYPE),
    })
}

fn decode_vendor(mut r: Reader<'_>, xid: u32, p: &Protocol, what: &mut What) -> Result<Body> {
    let version = p.version;
    let vendor = r.u32()?;
    let subtype = match vendor {
        NX_VENDOR | ONF_VENDOR => r.u32()?,
        _ => {
            *what = What::Vendor(vendor);
            return Err(OfError::OFPBRC_BAD_VENDOR);
        }
    };
    if vendor == ONF_VENDOR {
        *what = What::Onf(subtype);
        return decode_onf(subtype, r, xid, p);
    }
    *what = What::Nicira(subtype);
    Ok(match subtype {
        nxt::ROLE_REQUEST => Body::RoleRequest(session::decode_nx_role(checked(r, (4, 0))?)?),
        nxt::ROLE_REPLY => Body::RoleReply(session::decode_nx_role(checked(r, (4, 0))?)?),
        nxt::SET_FLOW_FORMAT if version == Version::V10 => {
            Body::SetFlowFormat(nicira::decode_flow_format(checked(r, (4, 0))?)?)
        }
        nxt::FLOW_MOD => {
            Body::FlowMod(Box::new(flow::decode_nx_flow_mod(checked(r, (32, 8))?, p)?))
        }
        nxt::FLOW_REMOVED => {
            Body::FlowRemoved(Box::new(flow::decode_nx_flow_removed(checked(r, (40, 8))?)?))
        }
        nxt::FLOW_MOD_TABLE_ID => {
            let mut r = checked(r, (8, 0))?;
            Body::FlowModTableId(r.u8()? != 0)
        }
        nxt::SET_PACKET_IN_FORMAT => {
            Body::SetPacketInFormat(nicira::decode_packet_in_format(checked(r, (4, 0))?)?)
        }
        nxt::PACKET_IN => {
            Body::PacketIn(Box::new(packet::decode_nx_packet_in(checked(r, (24, 1))?)?))
        }
        nxt::FLOW_AGE => {
            checked(r, (0, 0))?;
            Body::FlowAge
        }
        nxt::SET_ASYNC_CONFIG => {
            Body::SetAsync(async_config::decode_legacy(checked(r, (24, 0))?, version)?)
        }
        nxt::SET_CONTROLLER_ID => {
            let mut r = checked(r, (8, 0))?;
            if r.bytes(6)? != [0; 6] {
                return Err(OfError::NXBRC_MUST_BE_ZERO);
            }
            Body::SetControllerId(r.u16()?)
        }
        nxt::FLOW_MONITOR_CANCEL..=nxt::FLOW_MONITOR_RESUMED
            if Form::of(version) != Form::Nicira =>
        {
            return Err(OfError::OFPBRC_BAD_SUBTYPE);
        }
        nxt::FLOW_MONITOR_CANCEL => Body::FlowMonitorCancel(checked(r, (4, 0))?.u32()?),
        nxt::FLOW_MONITOR_PAUSED => {
            checked(r, (0, 0))?;
            Body::FlowMonitorPaused
        }
        nxt::FLOW_MONITOR_RESUMED => {
            checked(r, (0, 0))?;
            Body::FlowMonitorResumed
        }
        nxt::TLV_TABLE_MOD => Body::TlvTableMod(nicira::decode_tlv_table_mod(checked(r, (8, 8))?)?),
        nxt::TLV_TABLE_REQUEST => {
            checked(r, (0, 0))?;
            Body::TlvTableRequest
        }
        nxt::TLV_TABLE_REPLY => {
            Body::TlvTableReply(nicira::decode_tlv_table_reply(checked(r, (16, 8))?)?)
        }
        nxt::SET_ASYNC_CONFIG2 if version < Version::V14 => {
            Body::SetAsync(async_config::decode_properties(checked(r, (0, 8))?, version, false)?)
        }
        nxt::RESUME => Body::Resume(Box::new(packet::decode_nx_packet_in2(
            checked(r, (0, 8))?,
            version,
            false,
        )?)),
        nxt::CT_FLUSH_ZONE => Body::CtFlushZone(nicira::decode_ct_flush_zone(checked(r, (8, 0))?)?),
        nxt::PACKET_IN2 => Body::PacketIn(Box::new(packet::decode_nx_packet_in2(
            checked(r, (0, 8))?,
            version,
            true,
        )?)),
        nxt::GROUP_MOD if version == Version::V10 => {
            Body::GroupMod(group::decode_group_mod(checked(r, (16, 8))?, version)?)
        }
        nxt::REQUEST_FORWARD if version < Version::V13 => {
            let r = checked(r, (8, 8))?;
            Body::RequestForward(Box::new(bundle::decode_request_forward(r, p)?))
        }
        nxt::CT_FLUSH => Body::CtFlush(nicira::decode_ct_flush(checked(r, (8, 8))?)?),
        _ => return Err(OfError::OFPBRC_BAD_SUBTYPE),
    })
}

/// A message without body.
fn put_empty(at: usize, out: &mut Vec<u8>) -> Encoded {
    finish(out, at, "message without body")
}

/// A message whose body is opaque bytes.
fn put_bytes(ty: u8, body: &[u8], version: Version, xid: u32, out: &mut Vec<u8>) -> Encoded {
    let at = begin(out, version, ty, xid);
    out.put_bytes(body);
    finish(out, at, "echo")
}

fn encode_body(message: &Message, p: &Protocol, out: &mut Vec<u8>) -> Encoded {
    let version = p.version;
    let xid = message.xid;
    let small = nicira::encode_small;
    match &message.body {
        Body::Hello(hello) => session::encode_hello(hello, xid, out),
        Body::Error(error) => session::encode_error(error, version, xid, out),
        Body::EchoRequest(data) => put_bytes(ofpt::ECHO_REQUEST, data, version, xid, out),
        Body::EchoReply(data) => put_bytes(ofpt::ECHO_REPLY, data, version, xid, out),
        Body::FeaturesRequest => put_empty(begin(out, version, ofpt::FEATURES_REQUEST, xid), out),
        Body::FeaturesReply(f) => session::encode_features(f, version, xid, out),
        Body::GetConfigRequest => {
            put_empty(begin(out, version, ofpt::GET_CONFIG_REQUEST, xid), out)
        }
        Body::GetConfigReply(c) => session::encode_config(c, true, version, xid, out),
        Body::SetConfig(c) => session::encode_config(c, false, version, xid, out),
        Body::PacketIn(packet) => packet::encode_packet_in(packet, p, xid, out),
        Body::FlowRemoved(f) => flow::encode_flow_removed(f, p, xid, out),
        Body::PortStatus(s) => port::encode_port_status(s, version, xid, out),
        Body::PacketOut(packet) => packet::encode_packet_out(packet, version, xid, out),
        Body::FlowMod(m) => flow::encode_flow_mod(m, p, xid, out),
        Body::GroupMod(m) => group::encode_group_mod(m, version, xid, out),
        Body::PortMod(m) => port::encode_port_mod(m, version, xid, out),
        Body::TableMod(m) => table::encode_table_mod(m, version, xid, out),
        Body::MeterMod(m) => meter::encode_meter_mod(m, version, xid, out),
        Body::BarrierRequest => {
            put_empty(begin_later(out, version, Later::BarrierRequest, xid)?, out)
        }
        Body::BarrierReply => put_empty(begin_later(out, version, Later::BarrierReply, xid)?, out),
        Body::QueueGetConfigRequest { port } => {
            queue::encode_config_request(*port, version, xid, out)
        }
        Body::QueueGetConfigReply { port, queues } => {
            queue::encode_config_reply(*port, queues, version, xid, out)
        }
        Body::RoleRequest(role) => session::encode_role(role, false, version, xid, out),
        Body::RoleReply(role) => session::encode_role(role, true, version, xid, out),
        Body::RoleStatus(s) => session::encode_role_status(s, version, xid, out),
        Body::GetAsyncRequest => {
            put_empty(begin_later(out, version, Later::GetAsyncRequest, xid)?, out)
        }
        Body::GetAsyncReply(config) => async_config::encode_reply(config, version, xid, out),
        Body::SetAsync(set) => async_config::encode_set(set, version, xid, out),
        Body::TableStatus(s) => table::encode_status(s, version, xid, out),
        Body::RequestForward(f) => bundle::encode_request_forward(f, version, xid, out),
        Body::BundleControl(c) => bundle::encode_control(c, version, xid, out),
        Body::BundleAdd(b) => bundle::encode_add(b, p, xid, out),
        Body::MultipartRequest(q) => multipart::encode_request(q, version, xid, out),
        Body::MultipartReply { more, reply } => {
            multipart::encode_reply(reply, *more, version, xid, out)
        }
        Body::FlowModTableId(set) => {
            small(nxt::FLOW_MOD_TABLE_ID, &[u8::from(*set), 0, 0, 0, 0, 0, 0, 0], version, xid, out)
        }
        Body::SetFlowFormat(format) => {
            let number: u32 = if *format == FlowFormat::Nxm { 2 } else { 0 };
            small(nxt::SET_FLOW_FORMAT, &number.to_be_bytes(), version, xid, out)
        }
        Body::SetPacketInFormat(format) => {
            let number = *format as u32;
            small(nxt::SET_PACKET_IN_FORMAT, &number.to_be_bytes(), version, xid, out)
        }
        Body::FlowAge => small(nxt::FLOW_AGE, &[], version, xid, out),
        Body::SetControllerId(id) => {
            small(nxt::SET_CONTROLLER_ID, &u64::from(*id).to_be_bytes(), version, xid, out)
        }
        Body::FlowMonitorCancel(id) => {
            let numbers = (nxt::FLOW_MONITOR_CANCEL, onft::FLOW_MONITOR_CANCEL);
            monitor::encode_small(numbers, &id.to_be_bytes(), version, xid, out)
        }
        Body::FlowMonitorPaused => {
            let numbers = (nxt::FLOW_MONITOR_PAUSED, onft::FLOW_MONITOR_PAUSED);
            monitor::encode_small(numbers, &[], version, xid, out)
        }
        Body::FlowMonitorResumed => {
            let numbers = (nxt::FLOW_MONITOR_RESUMED, onft::FLOW_MONITOR_RESUMED);
            monitor::encode_small(numbers, &[], version, xid, out)
        }
        Body::TlvTableMod(m) => nicira::encode_tlv_table_mod(m, version, xid, out),
        Body::TlvTableRequest => small(nxt::TLV_TABLE_REQUEST, &[], version, xid, out),
        Body::TlvTableReply(t) => nicira::encode_tlv_table_reply(t, version, xid, out),
        Body::Resume(packet) => packet::encode_resume(packet, version, xid, out),
        Body::CtFlushZone(zone) => {
            small(nxt::CT_FLUSH_ZONE, &u64::from(*zone).to_be_bytes(), version, xid, out)
        }
        Body::CtFlush(f) => nicira::encode_ct_flush(f, version, xid, out),
    }
}

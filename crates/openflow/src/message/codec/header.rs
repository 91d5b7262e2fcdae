// SPDX-License-Identifier: Apache-2.0
//! Message headers: numbers of messages in each version, vendor messages, lengths.

use super::{EncodeError, Version};
use crate::error::{NX_VENDOR, ONF_VENDOR};
use crate::wire::Put;

/// Result of an encoder.
pub(super) type Encoded = Result<(), EncodeError>;

/// Numbers of messages that every version shares (OFPT_*).
pub(super) mod ofpt {
    pub(in super::super) const HELLO: u8 = 0;
    pub(in super::super) const ERROR: u8 = 1;
    pub(in super::super) const ECHO_REQUEST: u8 = 2;
    pub(in super::super) const ECHO_REPLY: u8 = 3;
    pub(in super::super) const VENDOR: u8 = 4;
    pub(in super::super) const FEATURES_REQUEST: u8 = 5;
    pub(in super::super) const FEATURES_REPLY: u8 = 6;
    pub(in super::super) const GET_CONFIG_REQUEST: u8 = 7;
    pub(in super::super) const GET_CONFIG_REPLY: u8 = 8;
    pub(in super::super) const SET_CONFIG: u8 = 9;
    pub(in super::super) const PACKET_IN: u8 = 10;
    pub(in super::super) const FLOW_REMOVED: u8 = 11;
    pub(in super::super) const PORT_STATUS: u8 = 12;
    pub(in super::super) const PACKET_OUT: u8 = 13;
    pub(in super::super) const FLOW_MOD: u8 = 14;
}

/// Messages whose number or existence depends on the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Later {
    GroupMod,
    PortMod,
    TableMod,
    MultipartRequest,
    MultipartReply,
    BarrierRequest,
    BarrierReply,
    QueueGetConfigRequest,
    QueueGetConfigReply,
    RoleRequest,
    RoleReply,
    GetAsyncRequest,
    GetAsyncReply,
    SetAsync,
    MeterMod,
    RoleStatus,
    TableStatus,
    RequestForward,
    BundleControl,
    BundleAdd,
}

/// Message, number in 1.0 (none: 0xff), number in 1.1+, first and last version from 1.1 on.
type LaterRow = (Later, u8, u8, Version, Version);

/// The messages with their numbers.
const LATER: [LaterRow; 20] = {
    use Version::{V11, V12, V13, V14, V15};
    const NONE: u8 = 0xff;
    [
        (Later::GroupMod, NONE, 15, V11, V15),
        (Later::PortMod, 15, 16, V11, V15),
        (Later::TableMod, NONE, 17, V11, V15),
        (Later::MultipartRequest, 16, 18, V11, V15),
        (Later::MultipartReply, 17, 19, V11, V15),
        (Later::BarrierRequest, 18, 20, V11, V15),
        (Later::BarrierReply, 19, 21, V11, V15),
        (Later::QueueGetConfigRequest, 20, 22, V11, V13),
        (Later::QueueGetConfigReply, 21, 23, V11, V13),
        (Later::RoleRequest, NONE, 24, V12, V15),
        (Later::RoleReply, NONE, 25, V12, V15),
        (Later::GetAsyncRequest, NONE, 26, V13, V15),
        (Later::GetAsyncReply, NONE, 27, V13, V15),
        (Later::SetAsync, NONE, 28, V13, V15),
        (Later::MeterMod, NONE, 29, V13, V15),
        (Later::RoleStatus, NONE, 30, V14, V15),
        (Later::TableStatus, NONE, 31, V14, V15),
        (Later::RequestForward, NONE, 32, V14, V15),
        (Later::BundleControl, NONE, 33, V14, V15),
        (Later::BundleAdd, NONE, 34, V14, V15),
    ]
};

/// Returns the number of a row's message in `version`.
fn number_in(row: &LaterRow, version: Version) -> Option<u8> {
    match version {
        Version::V10 => (row.1 != 0xff).then_some(row.1),
        v => (row.3 <= v && v <= row.4).then_some(row.2),
    }
}

impl Later {
    /// The message that this number stands for.
    pub(super) fn from_number(number: u8, version: Version) -> Option<Later> {
        LATER.iter().find(|row| number_in(row, version) == Some(number)).map(|row| row.0)
    }

    /// Its number.
    pub(super) fn number(self, version: Version) -> Option<u8> {
        number_in(LATER.iter().find(|row| row.0 == self)?, version)
    }

    /// The vendor's message that stands for it in a version without it: vendor and subtype.
    fn extension(self, version: Version) -> Option<(u32, u32)> {
        use Version::{V10, V11, V12, V13};
        Some(match (self, version) {
            (Later::GroupMod, V10) => (NX_VENDOR, nxt::GROUP_MOD),
            (Later::RequestForward, V10 | V11 | V12) => (NX_VENDOR, nxt::REQUEST_FORWARD),
            (Later::RequestForward, V13) => (ONF_VENDOR, onft::REQUEST_FORWARD),
            (Later::RoleStatus, V13) => (ONF_VENDOR, onft::ROLE_STATUS),
            (Later::BundleControl, V13) => (ONF_VENDOR, onft::BUNDLE_CONTROL),
            (Later::BundleAdd, V13) => (ONF_VENDOR, onft::BUNDLE_ADD),
            _ => return None,
        })
    }

    /// OpenFlow's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Later::GroupMod => "OFPT_GROUP_MOD",
            Later::PortMod => "OFPT_PORT_MOD",
            Later::TableMod => "OFPT_TABLE_MOD",
            Later::MultipartRequest => "OFPT_MULTIPART_REQUEST",
            Later::MultipartReply => "OFPT_MULTIPART_REPLY",
            Later::BarrierRequest => "OFPT_BARRIER_REQUEST",
            Later::BarrierReply => "OFPT_BARRIER_REPLY",
            Later::QueueGetConfigRequest => "OFPT_QUEUE_GET_CONFIG_REQUEST",
            Later::QueueGetConfigReply => "OFPT_QUEUE_GET_CONFIG_REPLY",
            Later::RoleRequest => "OFPT_ROLE_REQUEST",
            Later::RoleReply => "OFPT_ROLE_REPLY",
            Later::GetAsyncRequest => "OFPT_GET_ASYNC_REQUEST",
            Later::GetAsyncReply => "OFPT_GET_ASYNC_REPLY",
            Later::SetAsync => "OFPT_SET_ASYNC",
            Later::MeterMod => "OFPT_METER_MOD",
            Later::RoleStatus => "OFPT_ROLE_STATUS",
            Later::TableStatus => "OFPT_TABLE_STATUS",
            Later::RequestForward => "OFPT_REQUESTFORWARD",
            Later::BundleControl => "OFPT_BUNDLE_CONTROL",
            Later::BundleAdd => "OFPT_BUNDLE_ADD_MESSAGE",
        }
    }
}

/// Numbers of Nicira's messages (NXT_*).
pub(super) mod nxt {
    pub(in super::super) const ROLE_REQUEST: u32 = 10;
    pub(in super::super) const ROLE_REPLY: u32 = 11;
    pub(in super::super) const SET_FLOW_FORMAT: u32 = 12;
    pub(in super::super) const FLOW_MOD: u32 = 13;
    pub(in super::super) const FLOW_REMOVED: u32 = 14;
    pub(in super::super) const FLOW_MOD_TABLE_ID: u32 = 15;
    pub(in super::super) const SET_PACKET_IN_FORMAT: u32 = 16;
    pub(in super::super) const PACKET_IN: u32 = 17;
    pub(in super::super) const FLOW_AGE: u32 = 18;
    pub(in super::super) const SET_ASYNC_CONFIG: u32 = 19;
    pub(in super::super) const SET_CONTROLLER_ID: u32 = 20;
    pub(in super::super) const FLOW_MONITOR_CANCEL: u32 = 21;
    pub(in super::super) const FLOW_MONITOR_PAUSED: u32 = 22;
    pub(in super::super) const FLOW_MONITOR_RESUMED: u32 = 23;
    pub(in super::super) const TLV_TABLE_MOD: u32 = 24;
    pub(in super::super) const TLV_TABLE_REQUEST: u32 = 25;
    pub(in super::super) const TLV_TABLE_REPLY: u32 = 26;
    pub(in super::super) const SET_ASYNC_CONFIG2: u32 = 27;
    pub(in super::super) const RESUME: u32 = 28;
    pub(in super::super) const CT_FLUSH_ZONE: u32 = 29;
    pub(in super::super) const PACKET_IN2: u32 = 30;
    /// OFPT_GROUP_MOD for OpenFlow 1.0, in the form of OpenFlow 1.5.
    pub(in super::super) const GROUP_MOD: u32 = 31;
    pub(in super::super) const CT_FLUSH: u32 = 32;
    /// OFPT_REQUESTFORWARD for OpenFlow 1.0 to 1.2.
    pub(in super::super) const REQUEST_FORWARD: u32 = 132;
}

/// Numbers of the ONF's messages for OpenFlow 1.3 (ONFT_*).
pub(super) mod onft {
    pub(in super::super) const FLOW_MONITOR_CANCEL: u32 = 1870;
    pub(in super::super) const FLOW_MONITOR_PAUSED: u32 = 1871;
    pub(in super::super) const FLOW_MONITOR_RESUMED: u32 = 1872;
    pub(in super::super) const ROLE_STATUS: u32 = 1911;
    pub(in super::super) const BUNDLE_CONTROL: u32 = 2300;
    pub(in super::super) const BUNDLE_ADD: u32 = 2301;
    pub(in super::super) const REQUEST_FORWARD: u32 = 2350;
}

/// Starts a message; gives its place.
pub(super) fn begin(out: &mut Vec<u8>, version: Version, ty: u8, xid: u32) -> usize {
    let at = out.len();
    out.put_u8(version.wire());
    out.put_u8(ty);
    out.put_u16(0);
    out.put_u32(xid);
    at
}

/// Starts a message whose number depends on the version, or that of a vendor that stands for it.
pub(super) fn begin_later(
    out: &mut Vec<u8>,
    version: Version,
    message: Later,
    xid: u32,
) -> Result<usize, EncodeError> {
    if let Some((vendor, subtype)) = message.extension(version) {
        return Ok(begin_vendor(out, version, vendor, subtype, xid));
    }
    let ty = message
        .number(version)
        .ok_or(EncodeError::Unsupported { what: message.name(), version })?;
    Ok(begin(out, version, ty, xid))
}

/// Starts one of Nicira's messages.
pub(super) fn begin_nicira(out: &mut Vec<u8>, version: Version, subtype: u32, xid: u32) -> usize {
    begin_vendor(out, version, NX_VENDOR, subtype, xid)
}

/// Starts one of the ONF's messages.
pub(super) fn begin_onf(out: &mut Vec<u8>, version: Version, subtype: u32, xid: u32) -> usize {
    begin_vendor(out, version, ONF_VENDOR, subtype, xid)
}

fn begin_vendor(out: &mut Vec<u8>, version: Version, vendor: u32, subtype: u32, xid: u32) -> usize {
    let at = begin(out, version, ofpt::VENDOR, xid);
    out.put_u32(vendor);
    out.put_u32(subtype);
    at
}

/// Fills in the length of the message at `at`.
pub(super) fn finish(out: &mut Vec<u8>, at: usize, what: &'static str) -> Encoded {
    let size = out.len() - at;
    let length = u16::try_from(size).map_err(|_| EncodeError::TooLong { what, size })?;
    out.set_u16(at + 2, length);
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0
//! OpenFlow messages as values that are independent of the version.
//!
//! A [`Message`] holds the meaning; the codec writes it as OpenFlow 1.0, 1.1, ..., 1.5, the Nicira
//! extensions (NXT, NXST) or the ONF extensions (ONFT). Code that handles a message need not check
//! its version. The few exceptions are fields of their own, such as
//! [`flow::FlowStatsRequest::nicira`]: a reply takes the form of its request.
//!
//! Invariants:
//! - [`Message::decode`] is total: any bytes give a message or a [`DecodeError`] that holds
//!   the OFPT_ERROR to send back; nothing here ends a connection (framing errors do, see
//!   [`crate::frame`]).
//! - A decoded message has passed every check that a switch without state can make; the receiver
//!   checks whether a table, port, group or meter exists.
//! - Encoding fails only for a message that the version cannot express ([`EncodeError`]).
//!
//! The decoder errs on the side of refusing: it refuses unknown flags, property types and reserved
//! values with the specified error where the specification requires a switch to refuse them.

pub mod async_config;
pub mod bundle;
pub mod flow;
pub mod group;
pub mod meter;
pub mod monitor;
pub mod multipart;
pub mod nicira;
pub mod packet;
pub mod port;
pub mod queue;
pub mod session;
pub mod table;

mod codec;

pub use async_config::*;
pub use bundle::*;
pub use codec::{DecodeError, EncodeError, Protocol};
pub use flow::*;
pub use group::*;
pub use meter::*;
pub use monitor::*;
pub use multipart::*;
pub use nicira::*;
pub use packet::*;
pub use port::*;
pub use queue::*;
pub use session::*;
pub use table::*;

pub use crate::Version;

/// A message with its transaction id.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Transaction id; replies carry that of their request, asynchronous messages 0.
    pub xid: u32,
    /// The content, by kind of message.
    pub body: Body,
}

impl Message {
    /// A message.
    pub fn new(xid: u32, body: Body) -> Message {
        Message { xid, body }
    }

    /// A multipart reply without further parts.
    pub fn reply(xid: u32, reply: MultipartReply) -> Message {
        Message { xid, body: Body::MultipartReply { more: false, reply } }
    }
}

/// The content of a message, by kind. Large parts are boxed.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// OFPT_HELLO.
    Hello(Hello),
    /// OFPT_ERROR.
    Error(ErrorMessage),
    /// OFPT_ECHO_REQUEST, with its payload.
    EchoRequest(Vec<u8>),
    /// OFPT_ECHO_REPLY, with the request's payload.
    EchoReply(Vec<u8>),
    /// OFPT_FEATURES_REQUEST.
    FeaturesRequest,
    /// OFPT_FEATURES_REPLY.
    FeaturesReply(SwitchFeatures),
    /// OFPT_GET_CONFIG_REQUEST.
    GetConfigRequest,
    /// OFPT_GET_CONFIG_REPLY.
    GetConfigReply(SwitchConfig),
    /// OFPT_SET_CONFIG.
    SetConfig(SwitchConfig),
    /// OFPT_PACKET_IN, NXT_PACKET_IN, NXT_PACKET_IN2.
    PacketIn(Box<PacketIn>),
    /// OFPT_FLOW_REMOVED, NXT_FLOW_REMOVED.
    FlowRemoved(Box<FlowRemoved>),
    /// OFPT_PORT_STATUS.
    PortStatus(PortStatus),
    /// OFPT_PACKET_OUT.
    PacketOut(Box<PacketOut>),
    /// OFPT_FLOW_MOD, NXT_FLOW_MOD.
    FlowMod(Box<FlowMod>),
    /// OFPT_GROUP_MOD.
    GroupMod(GroupMod),
    /// OFPT_PORT_MOD.
    PortMod(PortMod),
    /// OFPT_TABLE_MOD.
    TableMod(TableMod),
    /// OFPT_METER_MOD.
    MeterMod(MeterMod),
    /// OFPT_BARRIER_REQUEST.
    BarrierRequest,
    /// OFPT_BARRIER_REPLY.
    BarrierReply,
    /// OFPT_QUEUE_GET_CONFIG_REQUEST (1.0 to 1.3; later it is a multipart request).
    QueueGetConfigRequest {
        /// The port; [`crate::PortNo::NONE`] for all.
        port: crate::PortNo,
    },
    /// OFPT_QUEUE_GET_CONFIG_REPLY.
    QueueGetConfigReply {
        /// The port asked for.
        port: crate::PortNo,
        /// Its queues.
        queues: Vec<QueueConfig>,
    },
    /// OFPT_ROLE_REQUEST, NXT_ROLE_REQUEST.
    RoleRequest(RoleRequest),
    /// OFPT_ROLE_REPLY, NXT_ROLE_REPLY.
    RoleReply(RoleRequest),
    /// OFPT_ROLE_STATUS (1.4+), ONFT_ROLE_STATUS (1.3).
    RoleStatus(RoleStatus),
    /// OFPT_GET_ASYNC_REQUEST (1.3+).
    GetAsyncRequest,
    /// OFPT_GET_ASYNC_REPLY.
    GetAsyncReply(AsyncConfig),
    /// OFPT_SET_ASYNC, NXT_SET_ASYNC_CONFIG, NXT_SET_ASYNC_CONFIG2.
    SetAsync(SetAsync),
    /// OFPT_TABLE_STATUS (1.4+).
    TableStatus(TableStatus),
    /// OFPT_REQUESTFORWARD (1.4+), ONFT_REQUESTFORWARD (1.3), NXT_REQUESTFORWARD: another controller's group or meter change.
    RequestForward(Box<RequestForward>),
    /// OFPT_BUNDLE_CONTROL, ONFT_BUNDLE_CONTROL.
    BundleControl(BundleControl),
    /// OFPT_BUNDLE_ADD_MESSAGE, ONFT_BUNDLE_ADD_MESSAGE.
    BundleAdd(Box<BundleAdd>),
    /// OFPT_STATS_REQUEST, OFPT_MULTIPART_REQUEST.
    MultipartRequest(MultipartRequest),
    /// OFPT_STATS_REPLY, OFPT_MULTIPART_REPLY. A reply that is too long for one message is encoded
    /// as several.
    MultipartReply {
        /// Further parts of the same reply follow (OFPMPF_REPLY_MORE).
        more: bool,
        /// This part.
        reply: MultipartReply,
    },
    /// NXT_FLOW_MOD_TABLE_ID: the upper byte of OpenFlow 1.0 commands is a table.
    FlowModTableId(bool),
    /// NXT_SET_FLOW_FORMAT.
    SetFlowFormat(FlowFormat),
    /// NXT_SET_PACKET_IN_FORMAT.
    SetPacketInFormat(PacketInFormat),
    /// NXT_FLOW_AGE: flow dumps of OpenFlow 1.0 contain idle and hard age.
    FlowAge,
    /// NXT_SET_CONTROLLER_ID.
    SetControllerId(u16),
    /// NXT_FLOW_MONITOR_CANCEL, ONFT_FLOW_MONITOR_CANCEL (1.3), with the monitor's id.
    FlowMonitorCancel(u32),
    /// NXT_FLOW_MONITOR_PAUSED, ONFT_FLOW_MONITOR_PAUSED (1.3).
    FlowMonitorPaused,
    /// NXT_FLOW_MONITOR_RESUMED, ONFT_FLOW_MONITOR_RESUMED (1.3).
    FlowMonitorResumed,
    /// NXT_TLV_TABLE_MOD.
    TlvTableMod(TlvTableMod),
    /// NXT_TLV_TABLE_REQUEST.
    TlvTableRequest,
    /// NXT_TLV_TABLE_REPLY.
    TlvTableReply(TlvTableReply),
    /// NXT_RESUME: a packet-in with its continuation comes back.
    Resume(Box<PacketIn>),
    /// NXT_CT_FLUSH_ZONE.
    CtFlushZone(u16),
    /// NXT_CT_FLUSH.
    CtFlush(CtFlush),
}

// SPDX-License-Identifier: Apache-2.0
//! Origin of messages: connection, purpose and circumstances.

use super::ConnectionId;
use crate::snapshot::BridgeIndex;
use clock::Millis;
use openflow::Version;

/// Number of tables that controllers see: 0 to 253. As in OVS there is one more table, 254, which
/// is hidden from them.
pub(super) const VISIBLE_TABLES: u8 = 254;

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `BRIDGE.mgmt` and passive controller connections. Gets no asynchronous messages until it
    /// asks for them with a nonzero miss_send_len.
    Service,
    /// An active connection to a controller.
    Primary,
    /// `BRIDGE.snoop`: gets a copy of each message that controllers send and receive.
    Snoop,
}

/// A message's connection and circumstances.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin<'a> {
    pub(super) id: ConnectionId,
    pub(super) bridge: BridgeIndex,
    /// Version of OpenFlow that the connection speaks.
    pub(super) version: Version,
    /// Transaction id of the message.
    pub(super) xid: u32,
    /// The whole message, for errors.
    pub(super) bytes: &'a [u8],
    /// Time at which the message is carried out.
    pub(super) now: Millis,
}

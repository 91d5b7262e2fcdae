// SPDX-License-Identifier: Apache-2.0
//! Admission: whether a controller has taken control of the switch. (OVS: rconn and fail-open.)
//!
//! A controller inspects a switch before it decides to control it: it asks for features, the
//! configuration, groups and tables. A controller that refuses the switch then closes the
//! connection. So a connection counts as admitted only after one of two events: a message that
//! controllers send only to switches under their control, or any message [`SETTLED_MS`] after the
//! handshake. Until then a bridge in the fail mode `standalone` forwards by itself.

use super::origin::Kind;
use super::{Connections, Session};
use crate::event;
use crate::snapshot::BridgeIndex;
use crate::switch::Switch;
use clock::Millis;
use flow::{Field, Match};
use openflow::PortNo;
use openflow::message::{Body, MultipartRequest, PacketInReason};
use packet::Packet;
use std::sync::Arc;

/// Milliseconds after the handshake from which any message admits the switch. A controller that
/// refuses a switch does so sooner.
const SETTLED_MS: u64 = 30_000;

/// Returns true for messages that show control over the switch, rather than inspection of it.
fn admits(body: &Body) -> bool {
    !matches!(
        body,
        Body::Hello(_)
            | Body::Error(_)
            | Body::EchoRequest(_)
            | Body::EchoReply(_)
            | Body::FeaturesRequest
            | Body::FeaturesReply(_)
            | Body::GetConfigRequest
            | Body::GetConfigReply(_)
            | Body::SetConfig(_)
            | Body::QueueGetConfigRequest { .. }
            | Body::QueueGetConfigReply { .. }
            | Body::GetAsyncRequest
            | Body::GetAsyncReply(_)
            | Body::MultipartRequest(
                MultipartRequest::Group(_)
                    | MultipartRequest::GroupDesc(_)
                    | MultipartRequest::GroupFeatures
                    | MultipartRequest::TableFeatures(_)
                    | MultipartRequest::TableDesc
            )
    )
}

impl Session {
    /// Records a message received at `now`; `None` is a message that cannot be decoded.
    pub(super) fn note_message(&mut self, body: Option<&Body>, now: Millis) {
        let is_settled = self.connected_at.is_some_and(|at| now.since(at) >= SETTLED_MS);
        self.is_admitted |= is_settled || body.is_some_and(admits);
    }

    /// Returns true while this is an admitted connection of a controller. Its transport may have to
    /// be closed, but still exists.
    pub(super) fn is_admitted(&self) -> bool {
        self.kind() == Kind::Primary && self.is_admitted
    }
}

impl Connections {
    /// Returns true while some controller of `bridge` is connected and has admitted the switch.
    pub fn is_admitted(&self, bridge: BridgeIndex) -> bool {
        self.sessions.values().any(|s| s.bridge == bridge && s.is_admitted())
    }

    /// Returns the time of the last message of a controller of `bridge` that had admitted the
    /// switch: `now` while one is connected, `None` when none ever was. As in OVS the time without
    /// a controller counts from its last message, also where silent peers are not probed.
    pub fn last_admitted(&self, bridge: BridgeIndex, now: Millis) -> Option<Millis> {
        if self.is_admitted(bridge) {
            return Some(now);
        }
        self.bridges.get(&bridge)?.last_admitted
    }

    /// Sends a packet-in with an artificial packet to all connected controllers of `bridge`. A
    /// bridge that forwards by itself sends them no packets, so a controller that acts only on
    /// packets would never admit the switch.
    pub fn probe_admission(&mut self, bridge: BridgeIndex, switch: &Switch, now: Millis) {
        let mut metadata = Match::ANY;
        metadata.set(Field::InPortOxm, PortNo::LOCAL.0.into());
        let probe = event::PacketIn {
            bridge,
            packet: Packet::from_slice(&probe_frame()),
            metadata,
            reason: PacketInReason::NoMatch as u8,
            table: 0,
            cookie: u64::MAX,
            max_len: u16::MAX,
            controller_id: 0,
            userdata: Arc::from([]),
            table_miss: false,
            continuation: None,
        };
        self.packet_in(&probe, switch, now);
    }
}

/// Returns a frame that no host accepts as its own: IEEE 802.2 SNAP with Nicira's OUI, from a
/// locally administered address to a group address of Nicira's.
fn probe_frame() -> Vec<u8> {
    const TEXT: &[u8] = b"Slipswitch controller probe";
    const HEADER: [u8; 22] = [
        0x01, 0x23, 0x20, 0x00, 0x00, 0x01, // destination
        0x02, 0x23, 0x20, 0x00, 0x00, 0x01, // source
        0x00, 0x23, // length of what follows: 8 bytes of LLC and SNAP, 27 of text
        0xaa, 0xaa, 0x03, 0x00, 0x23, 0x20, 0xa0, 0x33, // LLC, SNAP
    ];
    let mut frame = [&HEADER, TEXT].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

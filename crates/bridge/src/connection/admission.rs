// SPDX-License-Identifier: Apache-2.0
//! Admission: whether a controller has taken control of the switch. (OVS: rconn and fail-open.)
//!
//! A controller looks at a switch before it decides to control it: it asks for features, the
//! configuration, groups and tables. One that refuses the switch closes the connection then. So a
//! connection counts as admitted only after the controller has sent a message that it sends to
//! switches that it controls, or any message [`SETTLED`] after the handshake. A bridge in the fail mode
//! `standalone` forwards by itself until then.

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

/// Milliseconds after the handshake from which any message admits the switch: a controller that
/// refuses a switch does so sooner.
const SETTLED: u64 = 30_000;

/// Returns true for messages by which a controller shows that it controls the switch, rather than
/// looks at it.
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
                    | MultipartRequest::TableFeatures
                    | MultipartRequest::TableDesc
            )
    )
}

impl Session {
    /// Takes account of a message that came at `now`; `None` is one that cannot be decoded.
    pub(super) fn note_message(&mut self, body: Option<&Body>, now: Millis) {
        let is_settled = self.connected_at.is_some_and(|at| now.since(at) >= SETTLED);
        self.is_admitted |= is_settled || body.is_some_and(admits);
    }

    /// True while this is a controller's connection that was admitted. Its transport may have to be
    /// closed, but is still there.
    pub(super) fn is_admitted(&self) -> bool {
        self.kind() == Kind::Primary && self.is_admitted
    }

    /// When the connection, which ends at `now`, was last known to be alive: when its peer sent
    /// something, where a silent peer would have been probed.
    pub(super) fn last_alive(&self, now: Millis) -> Millis {
        if self.is_probed() { self.heard } else { now }
    }
}

impl Connections {
    /// True while some controller of `bridge` is connected and has admitted the switch.
    pub fn is_admitted(&self, bridge: BridgeIndex) -> bool {
        self.sessions.values().any(|s| s.bridge == bridge && s.is_admitted())
    }

    /// Returns when a controller of `bridge` that had admitted the switch was last known to be alive:
    /// `now` while one is connected; `None` when none ever was.
    pub fn last_admitted(&self, bridge: BridgeIndex, now: Millis) -> Option<Millis> {
        if self.is_admitted(bridge) {
            return Some(now);
        }
        self.bridges.get(&bridge)?.last_admitted
    }

    /// Sends a packet-in with a made-up packet to all controllers of `bridge` that are connected. A
    /// bridge that forwards by itself sends them no packets, so a controller that acts on packets
    /// only would never admit the switch.
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

/// A frame that no host takes for its own: IEEE 802.2 SNAP with Nicira's OUI, from a locally
/// administered address to a group of Nicira's.
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

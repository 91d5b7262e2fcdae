// SPDX-License-Identifier: Apache-2.0
//! Roles of controllers (OpenFlow 1.5 section 6.3.6).

use super::{ConnectionId, Connections};
use openflow::OfError;
use openflow::Version;
use openflow::message::{Body, Message, Role, RoleReason, RoleRequest, RoleStatus};

impl Connections {
    /// Carries out a role request. A new primary makes the old one secondary, and the old one is
    /// notified.
    pub(super) fn role_request(
        &mut self,
        id: ConnectionId,
        request: &RoleRequest,
    ) -> Result<RoleRequest, OfError> {
        let Some(session) = self.sessions.get(&id) else { return Err(OfError::OFPBRC_EPERM) };
        let (bridge, old) = (session.bridge, session.role);
        let state = self.bridges.entry(bridge).or_default();
        if matches!(request.role, Role::Primary | Role::Secondary)
            && let Some(new) = request.generation_id
        {
            // Serial number arithmetic: a later number is less than half the circle ahead.
            if state.generation_id.is_some_and(|last| (new.wrapping_sub(last) as i64) < 0) {
                return Err(OfError::OFPRRFC_STALE);
            }
            state.generation_id = Some(new);
        }
        let generation_id = state.generation_id;
        if request.role != Role::NoChange {
            if request.role == Role::Primary && old != Role::Primary {
                self.demote_primaries(id, generation_id);
            }
            if let Some(session) = self.sessions.get_mut(&id) {
                session.role = request.role;
            }
        }
        let role = if request.role == Role::NoChange { old } else { request.role };
        Ok(RoleRequest { role, generation_id, nicira: request.nicira })
    }

    fn demote_primaries(&mut self, winner: ConnectionId, generation_id: Option<u64>) {
        let Some(bridge) = self.sessions.get(&winner).map(|s| s.bridge) else { return };
        let losers: Vec<ConnectionId> = self
            .sessions
            .iter()
            .filter(|(id, s)| **id != winner && s.bridge == bridge && s.role == Role::Primary)
            .map(|(id, _)| *id)
            .collect();
        for id in losers {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            session.role = Role::Secondary;
            let told = session.version().is_some_and(|v| v >= Version::V13);
            if told && session.has_async_room() {
                let status = RoleStatus {
                    role: Role::Secondary,
                    reason: RoleReason::PrimaryRequest,
                    generation_id: generation_id.unwrap_or(u64::MAX),
                };
                self.send(id, &Message::new(0, Body::RoleStatus(status)));
            }
        }
    }
}

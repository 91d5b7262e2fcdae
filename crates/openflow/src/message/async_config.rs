// SPDX-License-Identifier: Apache-2.0
//! Which asynchronous messages a controller gets.

use super::{PacketInReason, Role};

/// A kind of asynchronous message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum AsyncKind {
    /// Packet-in; reasons are [`PacketInReason`] numbers.
    PacketIn = 0,
    /// Port status; reasons are [`super::PortStatusReason`] numbers.
    PortStatus = 1,
    /// Flow removed; reasons are [`super::FlowRemovedReason`] numbers.
    FlowRemoved = 2,
    /// Role status; reasons are [`super::RoleReason`] numbers.
    RoleStatus = 3,
    /// Table status; reasons are [`super::TableStatusReason`] numbers.
    TableStatus = 4,
    /// Request forward; reasons are numbers of [`super::RequestForwardReason`].
    RequestForward = 5,
}

impl AsyncKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [AsyncKind; 6] = [
        AsyncKind::PacketIn,
        AsyncKind::PortStatus,
        AsyncKind::FlowRemoved,
        AsyncKind::RoleStatus,
        AsyncKind::TableStatus,
        AsyncKind::RequestForward,
    ];
}

/// For each kind of message and each role, the reasons that are reported, as a bitmap (bit N:
/// reason N).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncConfig {
    /// As primary or equal, indexed by [`AsyncKind`].
    pub primary: [u32; 6],
    /// As secondary, indexed by [`AsyncKind`].
    pub secondary: [u32; 6],
}

impl AsyncConfig {
    /// The initial configuration of OVS: a primary gets packets (except those with an invalid TTL),
    /// port status and removed flows; a secondary gets port status only. From OpenFlow 1.3 on, no
    /// controller gets packets that no flow matched.
    pub fn initial(version: super::Version) -> AsyncConfig {
        let modern = version >= super::Version::V14;
        let mut packet_in = 0b11 | 1 << PacketInReason::ExplicitMiss as u32;
        if modern {
            packet_in |= 0b111 << PacketInReason::ActionSet as u32;
        }
        if version < super::Version::V13 {
            packet_in |= 1 << PacketInReason::ImplicitMiss as u32;
        }
        let removed = if modern { 0x3f } else { 0x0f };
        AsyncConfig {
            primary: [packet_in, 0b111, removed, 0, 0, 0],
            secondary: [0, 0b111, 0, 0, 0, 0],
        }
    }

    /// The reasons of `kind` that are reported to a controller of this role.
    pub fn reasons(&self, kind: AsyncKind, role: Role) -> u32 {
        match role {
            Role::Secondary => self.secondary[kind as usize],
            _ => self.primary[kind as usize],
        }
    }

    /// True when a controller of this role gets `kind` with the reason of this number.
    pub fn wants(&self, kind: AsyncKind, role: Role, reason: u8) -> bool {
        reason < 32 && self.reasons(kind, role) & (1 << reason) != 0
    }

    /// True when a controller of this role and version gets packets for `reason`. Versions that do
    /// not distinguish action sets, groups and packet-outs from actions do not select them
    /// separately either.
    pub fn wants_packet_in(
        &self,
        reason: PacketInReason,
        role: Role,
        version: super::Version,
    ) -> bool {
        let reason = match reason {
            PacketInReason::ActionSet | PacketInReason::Group | PacketInReason::PacketOut
                if version < super::Version::V14 =>
            {
                PacketInReason::Action
            }
            reason => reason,
        };
        self.wants(AsyncKind::PacketIn, role, reason as u8)
    }

    /// Carries out OFPT_SET_ASYNC.
    pub fn apply(&mut self, set: &SetAsync) {
        for change in &set.changes {
            let place = if change.primary { &mut self.primary } else { &mut self.secondary };
            place[change.kind as usize] = change.reasons;
        }
    }
}

/// One bitmap of OFPT_SET_ASYNC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncChange {
    /// Which messages.
    pub kind: AsyncKind,
    /// For the role primary or equal, rather than secondary.
    pub primary: bool,
    /// The reasons that are reported from now on, as a bitmap (bit N: reason N).
    pub reasons: u32,
}

/// OFPT_SET_ASYNC and Nicira's forms: the settings to change; all others stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAsync {
    /// The changes.
    pub changes: Vec<AsyncChange>,
}

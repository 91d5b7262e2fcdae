// SPDX-License-Identifier: Apache-2.0
//! Packets that go to controllers and come from them.

use crate::action::Actions;
use crate::{Action, PortNo};
use flow::Match;

/// Why a packet goes to a controller: OpenFlow 1.4+'s reasons, and OVS's split of "no match"
/// by which the codec picks the number that each version wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum PacketInReason {
    /// OFPR_NO_MATCH, OFPR_TABLE_MISS: as decoded, or by an explicit `controller(reason=)`.
    NoMatch = 0,
    /// An action said so (OFPR_ACTION, OFPR_APPLY_ACTION).
    Action = 1,
    /// The TTL ran out.
    InvalidTtl = 2,
    /// From the action set (1.4+; earlier Action).
    ActionSet = 3,
    /// From a group bucket (1.4+; earlier Action).
    Group = 4,
    /// From a packet-out (1.4+; earlier Action).
    PacketOut = 5,
    /// The table-miss flow's own action (1.3+: NoMatch; earlier: Action).
    ExplicitMiss = 6,
    /// No flow at all matched (NoMatch in every version).
    ImplicitMiss = 7,
}

impl PacketInReason {
    /// Reasons in the order of their numbers.
    pub const ALL: [PacketInReason; 8] = [
        PacketInReason::NoMatch,
        PacketInReason::Action,
        PacketInReason::InvalidTtl,
        PacketInReason::ActionSet,
        PacketInReason::Group,
        PacketInReason::PacketOut,
        PacketInReason::ExplicitMiss,
        PacketInReason::ImplicitMiss,
    ];

    /// The reason with this number (OFPR_*).
    pub fn from_number(n: u8) -> Option<PacketInReason> {
        Self::ALL.into_iter().find(|r| *r as u8 == n)
    }

    /// The number that `version` gives it on the wire.
    pub fn wire(self, version: super::Version) -> u8 {
        use super::Version;
        match self {
            PacketInReason::NoMatch | PacketInReason::Action | PacketInReason::InvalidTtl => {
                self as u8
            }
            PacketInReason::ActionSet | PacketInReason::Group | PacketInReason::PacketOut => {
                if version < Version::V14 {
                    PacketInReason::Action as u8
                } else {
                    self as u8
                }
            }
            PacketInReason::ExplicitMiss => {
                if version < Version::V13 {
                    PacketInReason::Action as u8
                } else {
                    PacketInReason::NoMatch as u8
                }
            }
            PacketInReason::ImplicitMiss => PacketInReason::NoMatch as u8,
        }
    }
}

/// The state that a frozen packet needs to resume, in addition to its metadata. Only the switch
/// that wrote it reads it; controllers return it unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Continuation {
    /// Which bridge it belongs to.
    pub bridge: [u8; 16],
    /// The stack of `push` and `pop`, bottom first: values of 1 to 128 bytes, big-endian.
    pub stack: Vec<Vec<u8>>,
    /// Mirrors it went to already.
    pub mirrors: u32,
    /// It went through conntrack.
    pub conntracked: bool,
    /// The remaining actions of each resubmit level, innermost first.
    pub frames: Vec<ContinuationFrame>,
    /// The action set, to be run at the end.
    pub action_set: Vec<Action>,
    /// Datapath port that the packet came from.
    pub odp_port: Option<u32>,
}

/// Actions of one flow that were not carried out when the packet was frozen: the flow with the
/// pausing action first, then those that resubmitted to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContinuationFrame {
    /// Table of the flow.
    pub table_id: u8,
    /// Cookie of the flow.
    pub cookie: u64,
    /// The actions.
    pub actions: Vec<Action>,
}

/// OFPT_PACKET_IN, NXT_PACKET_IN, NXT_PACKET_IN2, and the same in NXT_RESUME.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketIn {
    /// The reason for the packet-in (OFPR_*).
    pub reason: PacketInReason,
    /// The packet, or its beginning, from the Ethernet header on.
    pub data: Vec<u8>,
    /// Bytes of the whole packet.
    pub total_len: u32,
    /// Cookie of the flow that sent it; `u64::MAX` when none did.
    pub cookie: u64,
    /// The table it was in.
    pub table_id: u8,
    /// Metadata of the packet: in_port, registers, metadata and so on, all bits exact.
    pub metadata: Match,
    /// From `controller(userdata=)`.
    pub userdata: Vec<u8>,
    /// There when the packet is frozen (`controller(pause)`).
    pub continuation: Option<Box<Continuation>>,
}

impl PacketIn {
    /// The ingress port from `metadata`.
    pub fn in_port(&self) -> PortNo {
        PortNo(self.metadata.key().in_port.get())
    }
}

/// How packets are sent to this controller (NXT_SET_PACKET_IN_FORMAT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketInFormat {
    /// The version's own OFPT_PACKET_IN (0).
    #[default]
    Standard,
    /// NXT_PACKET_IN (1).
    Nxt,
    /// NXT_PACKET_IN2 (2).
    Nxt2,
}

/// OFPT_PACKET_OUT.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketOut {
    /// Buffered packet; `None`: `data` is the packet.
    pub buffer_id: Option<u32>,
    /// The packet, from the Ethernet header on.
    pub data: Vec<u8>,
    /// Metadata to start with; holds `in_port`, and in 1.5 whatever the match said.
    pub metadata: Match,
    /// The actions to run on the packet.
    pub actions: Actions,
}

impl PacketOut {
    /// The ingress port from `metadata`.
    pub fn in_port(&self) -> PortNo {
        PortNo(self.metadata.key().in_port.get())
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Flow table changes, removals and statistics.

use crate::PortNo;
use crate::action::Actions;
use flow::Match;
use std::time::Duration;

/// How a flow mod changes the table (OFPFC_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FlowModCommand {
    /// New flow, in the place of one with equal match and priority.
    Add = 0,
    /// Change the actions of all flows within the match.
    Modify = 1,
    /// Change the actions of the flow with equal match and priority.
    ModifyStrict = 2,
    /// Remove all flows within the match.
    Delete = 3,
    /// Remove the flow with equal match and priority.
    DeleteStrict = 4,
}

bitflags::bitflags! {
    /// Flags of a flow and of a flow mod, as OpenFlow 1.3 numbers them (OFPFF_*).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FlowFlags: u16 {
        /// Send OFPT_FLOW_REMOVED when the flow goes.
        const SEND_FLOW_REM = 1 << 0;
        /// Refuse to add a flow that overlaps another of the same priority. The flag is a request
        /// to the switch, but it stays with the flow and is part of the flow's description (1.3+).
        const CHECK_OVERLAP = 1 << 1;
        /// Reset counters (1.2+). Stays with the flow as [`FlowFlags::CHECK_OVERLAP`] does.
        const RESET_COUNTS = 1 << 2;
        /// No packet counts needed (1.3+).
        const NO_PACKET_COUNTS = 1 << 3;
        /// No byte counts needed (1.3+).
        const NO_BYTE_COUNTS = 1 << 4;
        /// OpenFlow 1.0's emergency flows, which no table holds (OFPFF10_EMERG).
        const EMERGENCY = 1 << 5;
    }
}

impl FlowFlags {
    /// The flags that stay with a flow.
    pub const STATE: FlowFlags = FlowFlags::SEND_FLOW_REM
        .union(FlowFlags::CHECK_OVERLAP)
        .union(FlowFlags::RESET_COUNTS)
        .union(FlowFlags::NO_PACKET_COUNTS)
        .union(FlowFlags::NO_BYTE_COUNTS);
}

/// Table number that means every table, or (on Add) the switch's choice.
pub const TABLE_ALL: u8 = 0xff;
/// Group number that means any group.
pub const GROUP_ANY: u32 = 0xffff_ffff;
/// Group number that means all groups.
pub const GROUP_ALL: u32 = 0xffff_fffc;
/// Highest number of a group.
pub const GROUP_MAX: u32 = 0xffff_ff00;
/// "No buffer".
pub(crate) const NO_BUFFER: u32 = 0xffff_ffff;

/// OFPT_FLOW_MOD, NXT_FLOW_MOD.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowMod {
    /// The change to make: add, modify or delete.
    pub command: FlowModCommand,
    /// Which packets, or which flows.
    pub matching: Match,
    /// Higher wins. 0 for commands that are not strict and not Add.
    pub priority: u16,
    /// Modify and Delete touch only flows whose cookie agrees with this one on the bits of
    /// `cookie_mask`.
    pub cookie: u64,
    /// See `cookie`; 0 restricts nothing.
    pub cookie_mask: u64,
    /// Cookie of the new flow; on Modify the flow's next cookie when `modify_cookie`.
    /// `u64::MAX` with `modify_cookie` false where a modify leaves cookies alone.
    pub new_cookie: u64,
    /// Modify writes `new_cookie` into the flows it touches (1.0, 1.1 without cookie mask).
    pub modify_cookie: bool,
    /// The table; [`TABLE_ALL`] for all, or for "choose one" on Add.
    pub table_id: u8,
    /// Seconds without packets; 0 is never.
    pub idle_timeout: u16,
    /// Seconds; 0 is never.
    pub hard_timeout: u16,
    /// For eviction (1.4+).
    pub importance: u16,
    /// Buffered packet to run through the new flow; `None` for none.
    pub buffer_id: Option<u32>,
    /// Delete only flows that output to this port; [`PortNo::NONE`] restricts nothing.
    pub out_port: PortNo,
    /// Delete only flows that use this group; [`GROUP_ANY`] restricts nothing.
    pub out_group: u32,
    /// Flags of the flow and of this request (OFPFF_*).
    pub flags: FlowFlags,
    /// Actions and instructions.
    pub actions: Actions,
}

impl FlowMod {
    /// Adds a flow without cookie, timeouts and flags to table 0.
    pub fn add(priority: u16, matching: Match, actions: &[crate::Action]) -> FlowMod {
        FlowMod {
            command: FlowModCommand::Add,
            matching,
            priority,
            cookie: 0,
            cookie_mask: 0,
            new_cookie: 0,
            modify_cookie: false,
            table_id: 0,
            idle_timeout: 0,
            hard_timeout: 0,
            importance: 0,
            buffer_id: None,
            out_port: PortNo::NONE,
            out_group: GROUP_ANY,
            flags: FlowFlags::empty(),
            actions: actions.into(),
        }
    }
}

/// Why a flow went (OFPRR_*), as 1.4 numbers them; OVS's own reason last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FlowRemovedReason {
    /// Idle timeout.
    IdleTimeout = 0,
    /// Hard timeout.
    HardTimeout = 1,
    /// Deleted by a flow mod.
    Delete = 2,
    /// Its group was removed.
    GroupDelete = 3,
    /// Its meter was removed (1.4+; earlier versions report Delete).
    MeterDelete = 4,
    /// Evicted for another flow (1.4+; earlier versions report Delete).
    Eviction = 5,
}

/// OFPT_FLOW_REMOVED, NXT_FLOW_REMOVED.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRemoved {
    /// The flow's match.
    pub matching: Match,
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: u64,
    /// Why it went.
    pub reason: FlowRemovedReason,
    /// Its table; `None` where the form has no table (OpenFlow 1.0).
    pub table_id: Option<u8>,
    /// How long it was there.
    pub duration: Duration,
    /// Idle timeout in seconds; 0 is none.
    pub idle_timeout: u16,
    /// Hard timeout in seconds; 0 is none.
    pub hard_timeout: u16,
    /// Packets, `u64::MAX` when unknown.
    pub packet_count: u64,
    /// Bytes, `u64::MAX` when unknown.
    pub byte_count: u64,
}

/// OFPST_FLOW, OFPST_AGGREGATE, NXST_FLOW, NXST_AGGREGATE: which flows are asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowStatsRequest {
    /// Flows within this match.
    pub matching: Match,
    /// Flows whose cookie agrees with this one on `cookie_mask`.
    pub cookie: u64,
    /// See `cookie`; 0 restricts nothing.
    pub cookie_mask: u64,
    /// Flows that output there; [`PortNo::NONE`] restricts nothing.
    pub out_port: PortNo,
    /// Flows that use this group; [`GROUP_ANY`] restricts nothing.
    pub out_group: u32,
    /// The table; [`TABLE_ALL`] for all.
    pub table_id: u8,
    /// Nicira's form (NXST_*): the reply takes it too.
    pub nicira: bool,
}

impl FlowStatsRequest {
    /// Asks for all flows of all tables, in OpenFlow's own form.
    pub fn all() -> FlowStatsRequest {
        FlowStatsRequest {
            matching: Match::ANY,
            cookie: 0,
            cookie_mask: 0,
            out_port: PortNo::NONE,
            out_group: GROUP_ANY,
            table_id: TABLE_ALL,
            nicira: false,
        }
    }
}

/// One flow of a flow statistics reply.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowStats {
    /// Its table.
    pub table_id: u8,
    /// Its match.
    pub matching: Match,
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: u64,
    /// How long it has been there.
    pub duration: Duration,
    /// Seconds; 0 is never.
    pub idle_timeout: u16,
    /// Seconds; 0 is never.
    pub hard_timeout: u16,
    /// Seconds since the last packet; `None` when unknown. Sent in NXST_FLOW only, after
    /// NXT_FLOW_AGE was asked for.
    pub idle_age: Option<u16>,
    /// Seconds since it was last changed; as `idle_age`.
    pub hard_age: Option<u16>,
    /// For eviction (1.4+).
    pub importance: u16,
    /// [`FlowFlags::STATE`] ones; sent in 1.3+.
    pub flags: FlowFlags,
    /// Packets, `u64::MAX` when unknown.
    pub packet_count: u64,
    /// Bytes, `u64::MAX` when unknown.
    pub byte_count: u64,
    /// Actions and instructions.
    pub actions: Actions,
}

/// Totals of the flows asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AggregateStats {
    /// Packets, `u64::MAX` when unknown.
    pub packet_count: u64,
    /// Bytes, `u64::MAX` when unknown.
    pub byte_count: u64,
    /// Number of flows.
    pub flow_count: u32,
}

/// Form of flows in OpenFlow 1.0 (NXT_SET_FLOW_FORMAT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowFormat {
    /// OpenFlow 1.0's struct ofp_match (0, NXFF_OPENFLOW10).
    #[default]
    OpenFlow10,
    /// Nicira extended match (2, NXFF_NXM).
    Nxm,
}

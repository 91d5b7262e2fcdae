// SPDX-License-Identifier: Apache-2.0
//! Flow monitors (NXST_FLOW_MONITOR in OpenFlow 1.0 to 1.2, ONFST_FLOW_MONITOR in 1.3,
//! OFPMP_FLOW_MONITOR in 1.4 and later).

use crate::PortNo;
use crate::action::Actions;
use flow::Match;

bitflags::bitflags! {
    /// The events that a flow monitor reports, numbered as in Nicira's NXFMF_* and OpenFlow 1.4's
    /// OFPFMF_*.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct MonitorFlags: u16 {
        /// The flows that exist when the monitor starts.
        const INITIAL = 1 << 0;
        /// New flows.
        const ADD = 1 << 1;
        /// Flows that go.
        const DELETE = 1 << 2;
        /// Flows that change.
        const MODIFY = 1 << 3;
        /// Include actions (1.4: instructions).
        const ACTIONS = 1 << 4;
        /// Report this controller's own changes in full, rather than by transaction id only.
        const OWN = 1 << 5;
        /// 1.4+: report this controller's own changes only.
        const ONLY_OWN = 1 << 6;
    }
}

/// Commands of OFPMP_FLOW_MONITOR (OFPFMC_*).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum MonitorCommand {
    /// New monitor.
    #[default]
    Add = 0,
    /// Other contents for a monitor.
    Modify = 1,
    /// End a monitor.
    Delete = 2,
}

/// One monitor of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowMonitorRequest {
    /// The controller's number for it.
    pub id: u32,
    /// The change to the monitor (always Add before OpenFlow 1.4).
    pub command: MonitorCommand,
    /// The events to report.
    pub flags: MonitorFlags,
    /// Flows that output there; [`PortNo::NONE`] restricts nothing.
    pub out_port: PortNo,
    /// Flows that use this group; [`super::GROUP_ANY`] restricts nothing.
    pub out_group: u32,
    /// The table; 0xff for all.
    pub table_id: u8,
    /// Flows within this match.
    pub matching: Match,
}

/// Kind of change to a flow (NXFME_*, OFPFME_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowUpdateEvent {
    /// It was there when the monitor started.
    Initial,
    /// It is new.
    Added,
    /// It went.
    Deleted(super::FlowRemovedReason),
    /// It changed.
    Modified,
}

/// One event of a flow monitor.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowUpdate {
    /// A change to a flow, in full.
    Full(Box<FlowUpdateFull>),
    /// This controller's own change, by transaction id.
    Abbrev {
        /// Of the flow mod.
        xid: u32,
    },
    /// The switch paused its reports, because the controller does not keep up (1.4+).
    Paused,
    /// The switch resumes its reports, after it has reported the missed changes (1.4+).
    Resumed,
}

/// See [`FlowUpdate::Full`].
#[derive(Clone, Debug, PartialEq)]
pub struct FlowUpdateFull {
    /// Kind of change.
    pub event: FlowUpdateEvent,
    /// Its table.
    pub table_id: u8,
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: u64,
    /// Idle timeout in seconds; 0 is none.
    pub idle_timeout: u16,
    /// Hard timeout in seconds; 0 is none.
    pub hard_timeout: u16,
    /// Its match.
    pub matching: Match,
    /// Its actions; empty when the monitor did not ask.
    pub actions: Actions,
}

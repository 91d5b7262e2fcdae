// SPDX-License-Identifier: Apache-2.0
//! Flow monitors (NXST_FLOW_MONITOR, ONFST_FLOW_MONITOR, OFPMP_FLOW_MONITOR; OpenFlow 1.5 section 7.3.5.18).
//!
//! A controller that reads slower than flows change does not receive every change: its monitors
//! *pause*. The session then keeps the tables in the state that the controller has received (a
//! clone, which shares all unchanged parts). Once the controller has read everything, the session
//! sends the difference between the present tables and the clone, and reports that the monitors
//! resume. The same mechanism reports the existing flows when a monitor starts. So the memory for a
//! monitor does not grow with the amount of unread data.

use super::{ConnectionId, Connections};
use crate::pipeline::{Change, Filter, Pipeline, as_added};
use crate::rule::Rule;
use crate::snapshot::BridgeIndex;
use crate::switch::Switch;
use classifier::Entry;
use openflow::message::{
    Body, FlowMonitorRequest, FlowRemovedReason, FlowUpdate, FlowUpdateEvent, FlowUpdateFull,
    GROUP_ANY, Message, MonitorCommand, MonitorFlags, MultipartReply, TABLE_ALL,
};
use openflow::{OfError, PortNo, Version};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Flow updates in one message; some dozen kilobytes.
const STEP: usize = 256;
/// Most monitors of one connection.
const MAX_MONITORS: usize = 4096;

/// Flags with which the controller's own changes are reported in full. OVS gives this meaning to
/// OpenFlow 1.4's ONLY_OWN, too (`ovs-ofctl monitor watch:` sends it): the flag does not suppress
/// changes of other controllers.
const OWN: MonitorFlags = MonitorFlags::OWN.union(MonitorFlags::ONLY_OWN);

/// The monitors of one connection.
#[derive(Debug, Default)]
pub(super) struct Monitors {
    by_id: BTreeMap<u32, FlowMonitorRequest>,
    behind: Option<Behind>,
}

/// Changes that the controller has not received yet.
#[derive(Debug)]
struct Behind {
    /// The tables in the state that the controller has after it has received `backlog`.
    known: Pipeline,
    /// Updates to send, first to last.
    backlog: VecDeque<(FlowUpdateEvent, Arc<Rule>)>,
    /// `backlog` is the reply to the request with this transaction id.
    reply: Option<u32>,
    /// The controller has received the message that its monitors pause.
    announced: bool,
}

impl Monitors {
    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Returns true when updates wait until the controller reads. Its requests wait, too.
    pub(super) fn is_behind(&self) -> bool {
        self.behind.is_some()
    }

    /// Returns the flags of the monitors that the event at this rule concerns; empty when there are
    /// none.
    fn flags(&self, event: FlowUpdateEvent, rule: &Rule, old: Option<&Rule>) -> MonitorFlags {
        let wanted = match event {
            FlowUpdateEvent::Initial => MonitorFlags::INITIAL,
            FlowUpdateEvent::Added => MonitorFlags::ADD,
            FlowUpdateEvent::Deleted(_) => MonitorFlags::DELETE,
            FlowUpdateEvent::Modified => MonitorFlags::MODIFY,
        };
        self.by_id
            .values()
            .filter(|m| m.flags.contains(wanted) && concerns(m, rule, old))
            .fold(MonitorFlags::empty(), |flags, m| flags | m.flags)
    }
}

/// Returns true when `rule`, or its earlier version `old`, is in the scope of the monitor.
fn concerns(monitor: &FlowMonitorRequest, rule: &Rule, old: Option<&Rule>) -> bool {
    let either = |test: &dyn Fn(&Rule) -> bool| test(rule) || old.is_some_and(test);
    (monitor.table_id == TABLE_ALL || monitor.table_id == rule.table)
        && (monitor.out_port == PortNo::NONE || either(&|r| r.outputs_to(monitor.out_port)))
        && (monitor.out_group == GROUP_ANY || rule.uses_group(monitor.out_group))
        && rule.matching.is_within(&monitor.matching)
}

fn update(event: FlowUpdateEvent, rule: &Rule, flags: MonitorFlags) -> FlowUpdate {
    let actions = if flags.contains(MonitorFlags::ACTIONS) {
        Arc::clone(&rule.actions)
    } else {
        Arc::new([])
    };
    FlowUpdate::Full(Box::new(FlowUpdateFull {
        event,
        table_id: rule.table,
        priority: rule.openflow_priority(),
        cookie: rule.cookie,
        idle_timeout: rule.timeouts.idle(),
        hard_timeout: rule.timeouts.hard(),
        matching: rule.matching.expand(),
        actions,
    }))
}

/// Returns the updates that lead from the tables `known` to `now`: removed flows first, then new
/// and modified flows.
fn difference(known: &Pipeline, now: &Pipeline) -> VecDeque<(FlowUpdateEvent, Arc<Rule>)> {
    let mut out = VecDeque::new();
    let find = |pipeline: &Pipeline, rule: &Rule| {
        pipeline
            .table(rule.table)
            .and_then(|t| t.rules().find(&rule.matching, rule.priority()))
            .map(Arc::clone)
    };
    let visible = |pipeline: &Pipeline| -> Vec<Arc<Rule>> {
        pipeline
            .tables()
            .flat_map(|(_, t)| as_added(t.rules().iter().filter(|r| !r.hidden)))
            .collect()
    };
    for rule in visible(known) {
        if find(now, &rule).is_none() {
            out.push_back((FlowUpdateEvent::Deleted(FlowRemovedReason::Delete), rule));
        }
    }
    for rule in visible(now) {
        match find(known, &rule) {
            None => out.push_back((FlowUpdateEvent::Added, rule)),
            Some(old) if old.id != rule.id => out.push_back((FlowUpdateEvent::Modified, rule)),
            Some(_) => {}
        }
    }
    out
}

/// A change, and the transaction id of the message that made it.
pub(super) type Cause = (Change, u32);

fn event(change: &Change) -> Option<(FlowUpdateEvent, &Arc<Rule>, Option<&Rule>)> {
    match change {
        Change::Added(rule) => Some((FlowUpdateEvent::Added, rule, None)),
        Change::Modified { old, new, is_added: true } => {
            Some((FlowUpdateEvent::Added, new, Some(old)))
        }
        // The change is not visible to a monitor.
        Change::Modified { old, new, .. } if is_alike(old, new) => None,
        Change::Modified { old, new, .. } => Some((FlowUpdateEvent::Modified, new, Some(old))),
        Change::Removed { rule, reason } => Some((FlowUpdateEvent::Deleted(*reason), rule, None)),
    }
}

fn is_alike(a: &Rule, b: &Rule) -> bool {
    a.actions == b.actions && a.cookie == b.cookie
}

impl Connections {
    /// Carries out a monitor request. On an error no monitor has changed.
    pub(super) fn flow_monitor(
        &mut self,
        id: ConnectionId,
        xid: u32,
        requests: Vec<FlowMonitorRequest>,
        switch: &Switch,
    ) -> Result<(), OfError> {
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        let bridge = switch.bridge(session.bridge).ok_or(OfError::OFPBRC_EPERM)?;
        let mut by_id = session.monitors.by_id.clone();
        let mut fresh = Monitors::default();
        for request in requests {
            let known = by_id.contains_key(&request.id);
            match request.command {
                MonitorCommand::Add if known => return Err(OfError::OFPMOFC_MONITOR_EXISTS),
                MonitorCommand::Add if by_id.len() >= MAX_MONITORS => {
                    return Err(OfError::OFPMOFC_UNKNOWN);
                }
                MonitorCommand::Modify | MonitorCommand::Delete if !known => {
                    return Err(OfError::OFPMOFC_UNKNOWN_MONITOR);
                }
                MonitorCommand::Add | MonitorCommand::Modify => {
                    fresh.by_id.insert(request.id, request.clone());
                    by_id.insert(request.id, request);
                }
                MonitorCommand::Delete => {
                    fresh.by_id.remove(&request.id);
                    by_id.remove(&request.id);
                }
            }
        }
        let wants_initial = fresh.by_id.values().any(|m| m.flags.contains(MonitorFlags::INITIAL));
        let rules =
            if wants_initial { bridge.pipeline.select(&Filter::default()) } else { Vec::new() };
        let backlog = rules
            .into_iter()
            .filter(|r| !fresh.flags(FlowUpdateEvent::Initial, r, None).is_empty())
            .map(|r| (FlowUpdateEvent::Initial, r))
            .collect();
        session.monitors.by_id = by_id;
        session.monitors.behind = Some(Behind {
            known: bridge.pipeline.clone(),
            backlog,
            reply: Some(xid),
            announced: false,
        });
        self.resume_monitors(id, switch);
        Ok(())
    }

    pub(super) fn cancel_monitor(&mut self, id: ConnectionId, monitor: u32) -> Result<(), OfError> {
        let session = self.sessions.get_mut(&id).ok_or(OfError::OFPMOFC_UNKNOWN_MONITOR)?;
        session.monitors.by_id.remove(&monitor).map(|_| ()).ok_or(OfError::OFPMOFC_UNKNOWN_MONITOR)
    }

    /// Sends changes of rules to the monitors of `bridge`. `source` made the changes.
    pub(super) fn tell_monitors(
        &mut self,
        bridge: BridgeIndex,
        causes: &[Cause],
        source: Option<ConnectionId>,
        switch: &Switch,
    ) {
        let listeners: Vec<ConnectionId> = self
            .sessions
            .iter()
            .filter(|(_, s)| s.bridge == bridge && s.is_connected() && !s.monitors.is_empty())
            .map(|(id, _)| *id)
            .collect();
        for id in listeners {
            self.tell_monitor(id, causes, source == Some(id), switch);
        }
    }

    fn tell_monitor(&mut self, id: ConnectionId, causes: &[Cause], own: bool, switch: &Switch) {
        let mut updates = Vec::new();
        let mut abbreviated = None;
        for (at, (change, xid)) in causes.iter().enumerate() {
            let Some(session) = self.sessions.get_mut(&id) else { return };
            if session.monitors.is_behind() {
                return; // the difference will have it
            }
            if session.output.is_full_for_monitors() {
                self.pause_monitors(id, causes.get(at..).unwrap_or_default(), switch);
                return;
            }
            let Some((event, rule, old)) = event(change) else { continue };
            let flags = session.monitors.flags(event, rule, old);
            if flags.is_empty() || rule.hidden {
                continue;
            }
            if !own || flags.intersects(OWN) {
                updates.push(update(event, rule, flags));
            } else if abbreviated != Some(*xid) {
                abbreviated = Some(*xid);
                updates.push(FlowUpdate::Abbrev { xid: *xid });
            }
            if updates.len() >= STEP {
                self.send_updates(id, 0, false, std::mem::take(&mut updates));
            }
        }
        if !updates.is_empty() {
            self.send_updates(id, 0, false, updates);
        }
        if self
            .sessions
            .get(&id)
            .is_some_and(|s| s.output.is_full_for_monitors() && !s.monitors.is_behind())
        {
            self.pause_monitors(id, &[], switch);
        }
    }

    fn send_updates(&mut self, id: ConnectionId, xid: u32, more: bool, updates: Vec<FlowUpdate>) {
        let reply = MultipartReply::FlowMonitor(updates);
        self.send(id, &Message { xid, body: Body::MultipartReply { more, reply } });
    }

    /// Pauses the monitors of a peer that does not read: reports the pause, and keeps the tables in
    /// the state that the peer has received.
    fn pause_monitors(&mut self, id: ConnectionId, untold: &[Cause], switch: &Switch) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some(bridge) = switch.bridge(session.bridge) else { return };
        let backlog = untold
            .iter()
            .filter_map(|(change, _)| {
                let (event, rule, _) = event(change)?;
                Some((event, Arc::clone(rule)))
            })
            .collect();
        session.monitors.behind =
            Some(Behind { known: bridge.pipeline.clone(), backlog, reply: None, announced: true });
        self.send_state(id, true);
    }

    /// Reports a pause or its end: OpenFlow 1.4 has an event for it, earlier
    /// versions a message.
    fn send_state(&mut self, id: ConnectionId, paused: bool) {
        let Some(version) = self.sessions.get(&id).and_then(super::Session::version) else {
            return;
        };
        if version >= Version::V14 {
            self.send_updates(
                id,
                0,
                false,
                vec![if paused { FlowUpdate::Paused } else { FlowUpdate::Resumed }],
            );
        } else {
            let body = if paused { Body::FlowMonitorPaused } else { Body::FlowMonitorResumed };
            self.send(id, &Message::new(0, body));
        }
    }

    /// Sends the updates that the peer has missed, as far as it reads.
    pub(super) fn resume_monitors(&mut self, id: ConnectionId, switch: &Switch) {
        let (mut current, mut started) = (false, false);
        while let Some(session) = self.sessions.get_mut(&id) {
            let Some(mut behind) = session.monitors.behind.take() else { return };
            let Some(bridge) = switch.bridge(session.bridge) else { return };
            // A pause lasts until the peer has read everything, as in OVS.
            let wait = if behind.announced && !started {
                !session.output.is_empty()
            } else {
                session.output.is_full_for_requests()
            };
            if wait || session.closing.is_some() {
                session.monitors.behind = Some(behind);
                return;
            }
            started = true;
            let n = behind.backlog.len().min(STEP);
            let updates: Vec<FlowUpdate> = behind
                .backlog
                .drain(..n)
                .filter_map(|(event, rule)| {
                    let flags = session.monitors.flags(event, &rule, None);
                    (!flags.is_empty() && !rule.hidden).then(|| update(event, &rule, flags))
                })
                .collect();
            let more = !behind.backlog.is_empty();
            let reply = behind.reply;
            let announced = behind.announced;
            if !more {
                behind.reply = None;
                if reply.is_none() && !current {
                    // The backlog is sent. The next backlog holds the changes made meanwhile.
                    behind.backlog = difference(&behind.known, &bridge.pipeline);
                    behind.known = bridge.pipeline.clone();
                    current = true;
                }
            }
            // Complete when the last comparison found no further changes.
            let done =
                behind.backlog.is_empty() && behind.reply.is_none() && (current || reply.is_none());
            if !done {
                session.monitors.behind = Some(behind);
            }
            if reply.is_some() || !updates.is_empty() {
                self.send_updates(id, reply.unwrap_or(0), more && reply.is_some(), updates);
            }
            if done {
                if announced {
                    self.send_state(id, false);
                }
                return;
            }
        }
    }
}

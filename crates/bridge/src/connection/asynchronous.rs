// SPDX-License-Identifier: Apache-2.0
//! Asynchronous messages to controllers: packets, removed flows, ports, tables.

use super::monitor::Cause;
use super::{ConnectionId, Connections};
use crate::event;
use crate::pipeline::{Change, Table};
use crate::recirc::FrozenState;
use crate::rule::Rule;
use crate::snapshot::{BridgeIndex, TableMiss};
use crate::switch::Switch;
use clock::Millis;
use flow::tun_metadata::MAX_BYTES;
use openflow::message::{
    AsyncKind, Body, Continuation, ContinuationFrame, FlowFlags, FlowRemoved, FlowRemovedReason,
    Message, PacketIn, PacketInReason, PortDesc, PortStatus, PortStatusReason, TableDesc,
    TableStatus, TableStatusReason, Vacancy,
};
use openflow::{PortNo, Version};
use std::sync::Arc;
use std::time::Duration;

/// A removed rule whose controllers have yet to be notified with final counters.
#[derive(Debug)]
pub(super) struct Removed {
    rule: Arc<Rule>,
    reason: FlowRemovedReason,
    at: Millis,
}

/// An event at a port.
#[derive(Clone, Copy, Debug)]
pub enum PortEvent<'a> {
    /// The port is new.
    Added(&'a PortDesc),
    /// The port is gone.
    Deleted(&'a PortDesc),
    /// The port changed.
    Modified {
        /// The port before the change.
        before: &'a PortDesc,
        /// The port now.
        after: &'a PortDesc,
    },
}

impl Connections {
    /// Sends a packet to the controllers of its bridge that want it. As in OVS the whole packet is
    /// sent: packets are not buffered, so a part of one would be of no use.
    pub fn packet_in(&mut self, packet_in: &event::PacketIn, switch: &Switch, now: Millis) {
        let index = packet_in.bridge;
        let Some(bridge) = switch.bridge(index) else { return };
        let reason = reason(packet_in);
        // OpenFlow 1.3 and later drop misses, unless the table is configured otherwise.
        let miss_config =
            bridge.pipeline.table(packet_in.table).map(|t| t.miss).unwrap_or_default();
        let dropped = |version: Version| {
            reason == PacketInReason::ImplicitMiss
                && version >= Version::V13
                && miss_config == TableMiss::Default
        };
        let takers: Vec<ConnectionId> = self
            .sessions
            .iter()
            .filter(|(_, s)| {
                s.bridge == index
                    && s.controller_id == packet_in.controller_id
                    && s.wants_packet_in(reason)
                    && s.version().is_some_and(|v| !dropped(v))
            })
            .map(|(id, _)| *id)
            .collect();
        if takers.is_empty() {
            return;
        }
        let mut packet = packet_in.packet.clone();
        // A controller cannot finish a checksum that a local sender left to its device.
        let _ = netdev::finish::finish_checksum(&mut packet); // malformed ones go as they are
        let data = packet.data().to_vec();
        let message = Message::new(
            0,
            Body::PacketIn(Box::new(PacketIn {
                reason,
                total_len: u32::try_from(data.len()).unwrap_or(u32::MAX),
                data,
                cookie: packet_in.cookie,
                table_id: packet_in.table,
                metadata: packet_in.metadata,
                userdata: packet_in.userdata.to_vec(),
                continuation: continuation(packet_in, switch).map(Box::new),
            })),
        );
        let port = PortNo(packet_in.metadata.key().in_port.get());
        let miss = matches!(
            reason,
            PacketInReason::NoMatch | PacketInReason::ExplicitMiss | PacketInReason::ImplicitMiss
        );
        for id in takers {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            let primary = session.kind() == super::Kind::Primary;
            if let Some(bytes) = session.offer_packet(&message, port, miss, now)
                && primary
            {
                self.snoop(index, &bytes);
            }
        }
    }

    /// Sends packets that were held back by a rate limit.
    pub(super) fn send_queued_packets(&mut self, id: ConnectionId, now: Millis) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let bridge = session.bridge;
        let bytes = session.send_ready_packets(now);
        if session.kind() == super::Kind::Primary {
            self.snoop(bridge, &bytes);
        }
    }

    /// Notifies controllers of rules that changed without a controller's message: expired, learned,
    /// evicted, or deleted by the switch. The caller calls it right after the change, before any
    /// other change to rules of the bridge.
    pub fn rules_changed(
        &mut self,
        bridge: BridgeIndex,
        changes: Vec<Change>,
        switch: &mut Switch,
        now: Millis,
    ) {
        let causes: Vec<Cause> = changes.into_iter().map(|c| (c, 0)).collect();
        self.changed(bridge, &causes, None, switch, now);
        self.flush_removed(switch);
    }

    /// Does the same as [`Connections::rules_changed`] for changes that `source` made. The next
    /// [`Connections::flush_removed`] reports removals.
    pub(super) fn changed(
        &mut self,
        bridge: BridgeIndex,
        causes: &[Cause],
        source: Option<ConnectionId>,
        switch: &mut Switch,
        now: Millis,
    ) {
        if causes.is_empty() {
            return;
        }
        for (change, _) in causes {
            let Change::Removed { rule, reason } = change else { continue };
            if rule.flags.contains(FlowFlags::SEND_FLOW_REM)
                && !rule.hidden
                && !self.takers(bridge, AsyncKind::FlowRemoved, *reason as u8, None).is_empty()
                && let Some(state) = self.bridges.get_mut(&bridge)
            {
                state.removed.push(Removed { rule: Arc::clone(rule), reason: *reason, at: now });
            }
        }
        self.tell_monitors(bridge, causes, source, switch);
        self.check_vacancy(bridge, switch);
    }

    /// Sends OFPT_FLOW_REMOVED for removed rules, with exact counters: one request to the datapath
    /// covers all of them.
    pub(super) fn flush_removed(&mut self, switch: &mut Switch) {
        let bridges: Vec<BridgeIndex> =
            self.bridges.iter().filter(|(_, b)| !b.removed.is_empty()).map(|(i, _)| *i).collect();
        if bridges.is_empty() {
            return;
        }
        // Covers earlier packets, whose megaflows still credit the old rules.
        switch.collect_statistics();
        for bridge in bridges {
            let Some(state) = self.bridges.get_mut(&bridge) else { continue };
            for removed in std::mem::take(&mut state.removed) {
                self.send_removed(bridge, &removed);
            }
        }
    }

    fn send_removed(&mut self, bridge: BridgeIndex, removed: &Removed) {
        let rule = &removed.rule;
        let takers = self.takers(bridge, AsyncKind::FlowRemoved, removed.reason as u8, None);
        if takers.is_empty() {
            return;
        }
        let (packet_count, byte_count) = rule.stats.counts();
        let message = Message::new(
            0,
            Body::FlowRemoved(Box::new(FlowRemoved {
                matching: rule.matching.expand(),
                priority: rule.openflow_priority(),
                cookie: rule.cookie,
                reason: removed.reason,
                table_id: Some(rule.table),
                duration: Duration::from_millis(removed.at.since(rule.created)),
                idle_timeout: rule.timeouts.idle(),
                hard_timeout: rule.timeouts.hard(),
                packet_count,
                byte_count,
            })),
        );
        self.tell(&takers, &message);
    }

    /// Sends OFPT_PORT_STATUS for an event at a port. As in OVS, a change is sent only to
    /// controllers whose version of OpenFlow can show it.
    pub fn port_status(&mut self, bridge: BridgeIndex, event: PortEvent<'_>) {
        self.send_port_status(bridge, event, None);
    }

    /// Does the same as [`Connections::port_status`] for an event that `source` requested. Before
    /// OpenFlow 1.5 `source` gets no message.
    pub(super) fn send_port_status(
        &mut self,
        bridge: BridgeIndex,
        event: PortEvent<'_>,
        source: Option<ConnectionId>,
    ) {
        let silent = source.filter(|id| {
            self.sessions
                .get(id)
                .and_then(super::Session::version)
                .is_some_and(|v| v < Version::V15)
        });
        let (reason, port, before) = match event {
            PortEvent::Added(port) => (PortStatusReason::Add, port, None),
            PortEvent::Deleted(port) => (PortStatusReason::Delete, port, None),
            PortEvent::Modified { before, after } => {
                (PortStatusReason::Modify, after, Some(before))
            }
        };
        let mut takers = self.takers(bridge, AsyncKind::PortStatus, reason as u8, silent);
        if takers.is_empty() {
            return;
        }
        let message = |port: &PortDesc| {
            Message::new(0, Body::PortStatus(PortStatus { reason, port: port.clone() }))
        };
        let now = message(port);
        if let Some(before) = before.map(message) {
            takers.retain(|id| {
                let protocol = self.sessions.get(id).and_then(super::Session::protocol);
                protocol.is_some_and(|p| before.encode(&p).ok() != now.encode(&p).ok())
            });
        }
        self.tell(&takers, &now);
    }

    /// Returns the connections to `bridge` that want such messages, without `except`.
    pub(super) fn takers(
        &self,
        bridge: BridgeIndex,
        kind: AsyncKind,
        reason: u8,
        except: Option<ConnectionId>,
    ) -> Vec<ConnectionId> {
        self.sessions
            .iter()
            .filter(|(id, s)| s.bridge == bridge && Some(**id) != except && s.wants(kind, reason))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Sends an asynchronous message to those of `takers` that have room for it.
    pub(super) fn tell(&mut self, takers: &[ConnectionId], message: &Message) {
        for id in takers {
            if self.sessions.get_mut(id).is_some_and(|s| s.has_async_room()) {
                self.send(*id, message);
            }
        }
    }

    /// Starts or stops to watch the vacancy of a table. `event` is the first event to report.
    pub(super) fn watch_vacancy(
        &mut self,
        bridge: BridgeIndex,
        table: u8,
        event: Option<TableStatusReason>,
    ) {
        let Some(state) = self.bridges.get_mut(&bridge) else { return };
        match event {
            Some(event) => state.vacancy.insert(table, event),
            None => state.vacancy.remove(&table),
        };
    }

    /// Reports tables whose vacancy has crossed a threshold in either direction.
    fn check_vacancy(&mut self, index: BridgeIndex, switch: &Switch) {
        let Some(state) = self.bridges.get_mut(&index) else { return };
        if state.vacancy.is_empty() {
            return;
        }
        let Some(bridge) = switch.bridge(index) else { return };
        let mut told = Vec::new();
        for (id, next) in &mut state.vacancy {
            let Some(table) = bridge.pipeline.table(*id) else { continue };
            let Some(thresholds) = table.vacancy else { continue };
            let reason = match next {
                TableStatusReason::VacancyDown if vacancy(table) < thresholds.down => *next,
                TableStatusReason::VacancyUp if vacancy(table) > thresholds.up => *next,
                _ => continue,
            };
            *next = match reason {
                TableStatusReason::VacancyDown => TableStatusReason::VacancyUp,
                TableStatusReason::VacancyUp => TableStatusReason::VacancyDown,
            };
            told.push(TableStatus { reason, table: table_desc(*id, table) });
        }
        for status in told {
            let takers = self.takers(index, AsyncKind::TableStatus, status.reason as u8, None);
            self.tell(&takers, &Message::new(0, Body::TableStatus(status)));
        }
    }
}

/// Returns the free places of a table in percent; 100 for a table without a limit.
pub(super) fn vacancy(table: &Table) -> u8 {
    let Some(limit) = table.eviction.limit.filter(|l| *l > 0) else { return 100 };
    let free = u64::from(limit).saturating_sub(table.visible_rules() as u64);
    u8::try_from(free * 100 / u64::from(limit)).unwrap_or(100)
}

/// Returns a table as OFPMP_TABLE_DESC and OFPT_TABLE_STATUS describe it.
pub(super) fn table_desc(id: u8, table: &Table) -> TableDesc {
    TableDesc {
        table_id: id,
        eviction: table.eviction.is_on(),
        // As in OVS all are in force, and none can be changed.
        eviction_flags: openflow::message::EvictionFlags::all(),
        vacancy: table.vacancy.map(|v| Vacancy { current: vacancy(table), ..v }),
    }
}

fn reason(packet_in: &event::PacketIn) -> PacketInReason {
    let told = PacketInReason::from_number(packet_in.reason).unwrap_or(PacketInReason::Action);
    match told {
        PacketInReason::Action if packet_in.table_miss => PacketInReason::ExplicitMiss,
        told => told,
    }
}

/// Returns the frozen pipeline of a paused packet, which the controller hands back.
fn continuation(packet_in: &event::PacketIn, switch: &Switch) -> Option<Continuation> {
    let id: [u8; 4] = packet_in.continuation.as_ref()?.get(..4)?.try_into().ok()?;
    let state = switch.slow_path().recirc.state(u32::from_be_bytes(id))?;
    Some(from_frozen(&state))
}

/// Returns the name of a bridge in continuations.
pub(super) fn bridge_tag(bridge: BridgeIndex) -> [u8; 16] {
    (bridge.0 as u128 + 1).to_be_bytes()
}

fn from_frozen(state: &FrozenState) -> Continuation {
    let stack = state
        .stack
        .iter()
        .map(|entry| {
            let n = usize::from(entry.bits.div_ceil(8)).clamp(1, MAX_BYTES);
            entry.value.bytes(n).to_vec()
        })
        .collect();
    let frames = state
        .steps
        .iter()
        .map(|s| ContinuationFrame {
            table_id: s.table,
            cookie: s.cookie,
            actions: s.actions.clone(),
        })
        .collect();
    Continuation {
        bridge: bridge_tag(state.bridge),
        stack,
        mirrors: state.mirrored,
        conntracked: state.conntracked,
        frames,
        action_set: state.action_set.clone(),
        odp_port: None,
    }
}

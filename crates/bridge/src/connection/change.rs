// SPDX-License-Identifier: Apache-2.0
//! Messages that change the switch, and packet-outs.

use super::Connections;
use super::asynchronous::{PortEvent, bridge_tag, vacancy};
use super::monitor::Cause;
use super::origin::{Origin, VISIBLE_TABLES};
use super::reply::Reply;
use crate::bridge::Bridge;
use crate::effect;
use crate::pipeline::{self, Change};
use crate::recirc::{FrozenState, FrozenStep, StackEntry};
use crate::rule::any_action;
use crate::snapshot::{BridgeIndex, Snapshot, TABLES, TableMiss};
use crate::switch::{Switch, TranslatedOut};
use crate::translate::Request;
use clock::Millis;
use datapath::FlowStats;
use flow::extract::key_of_type;
use flow::tun_metadata::{MAX_BYTES, Wide};
use flow::{Field, Key, Match};
use openflow::action::{CheckContext, check};
use openflow::message::{
    self as of, AsyncKind, Body, EvictionFlags, FlowMod, FlowModCommand, ForwardedChange, GroupMod,
    Message, MeterMod, PacketIn, PacketOut, PortConfig, PortDesc, PortMod, PortState,
    RequestForward, RequestForwardReason, TABLE_ALL, TableMod, TableStatusReason,
};
use openflow::{Action, OfError, PortNo, Version};
use packet::Packet;
use std::sync::Arc;

impl Connections {
    pub(super) fn flow_mod(
        &mut self,
        origin: Origin<'_>,
        fm: &FlowMod,
        switch: &mut Switch,
    ) -> Result<Reply, OfError> {
        check_flow_mod(fm, origin.version)?;
        let changes = switch.flow_mod(origin.bridge, fm)?;
        self.made(origin, changes, switch);
        Ok(Reply::None)
    }

    /// Reports the changes to rules that the message of `origin` made.
    fn made(&mut self, origin: Origin<'_>, changes: Vec<Change>, switch: &mut Switch) {
        let causes: Vec<Cause> = changes.into_iter().map(|c| (c, origin.xid)).collect();
        self.changed(origin.bridge, &causes, Some(origin.id), switch, origin.now);
    }

    pub(super) fn group_mod(
        &mut self,
        origin: Origin<'_>,
        gm: GroupMod,
        switch: &mut Switch,
    ) -> Result<Reply, OfError> {
        let bridge = switch.bridge_rules_mut(origin.bridge).ok_or(OfError::OFPBRC_EPERM)?;
        let changes = bridge.pipeline.group_mod(&gm, origin.now)?;
        self.made(origin, changes, switch);
        self.forward(origin, RequestForwardReason::GroupMod, origin.xid, || {
            ForwardedChange::Group(gm)
        });
        Ok(Reply::None)
    }

    pub(super) fn meter_mod(
        &mut self,
        origin: Origin<'_>,
        mm: MeterMod,
        switch: &mut Switch,
    ) -> Result<Reply, OfError> {
        let changes = switch.meter_mod(origin.bridge, &mm)?;
        self.made(origin, changes, switch);
        self.forward(origin, RequestForwardReason::MeterMod, origin.xid, || {
            ForwardedChange::Meter(mm)
        });
        Ok(Reply::None)
    }

    /// Forwards a group or meter mod to the other controllers that asked for such messages.
    pub(super) fn forward(
        &mut self,
        origin: Origin<'_>,
        reason: RequestForwardReason,
        xid: u32,
        change: impl FnOnce() -> ForwardedChange,
    ) {
        let mut takers =
            self.takers(origin.bridge, AsyncKind::RequestForward, reason as u8, Some(origin.id));
        // Meters have messages from OpenFlow 1.3 on.
        let first = match reason {
            RequestForwardReason::GroupMod => Version::V10,
            RequestForwardReason::MeterMod => Version::V13,
        };
        takers.retain(|id| {
            self.sessions.get(id).and_then(super::Session::version).is_some_and(|v| v >= first)
        });
        if takers.is_empty() {
            return;
        }
        let forward = RequestForward { xid, change: change() };
        self.tell(&takers, &Message::new(0, Body::RequestForward(Box::new(forward))));
    }

    pub(super) fn port_mod(
        &mut self,
        origin: Origin<'_>,
        pm: &PortMod,
        switch: &mut Switch,
    ) -> Result<Reply, OfError> {
        let bridge = switch.bridge(origin.bridge).ok_or(OfError::OFPBRC_EPERM)?;
        check_port_mod(pm, bridge)?;
        self.modify_port(pm, origin, switch);
        Ok(Reply::None)
    }

    /// Carries out a checked port mod, and reports the change to controllers.
    pub(super) fn modify_port(&mut self, pm: &PortMod, origin: Origin<'_>, switch: &mut Switch) {
        if let Some((before, after)) = modify_port(pm, origin, switch) {
            let configured = configured(&before, &after);
            let event = PortEvent::Modified { before: &before, after: &configured };
            self.send_port_status(origin.bridge, event, Some(origin.id));
            let event = PortEvent::Modified { before: &configured, after: &after };
            self.send_port_status(origin.bridge, event, None);
        }
    }

    pub(super) fn table_mod(
        &mut self,
        origin: Origin<'_>,
        tm: &TableMod,
        switch: &mut Switch,
    ) -> Result<Reply, OfError> {
        if tm.table_id != TABLE_ALL && usize::from(tm.table_id) >= TABLES {
            return Err(OfError::OFPTMFC_BAD_TABLE);
        }
        if tm.eviction_flags.is_some_and(|f| f != EvictionFlags::all()) {
            return Err(OfError::OFPTMFC_BAD_CONFIG);
        }
        if tm.vacancy.is_some_and(|v| v.down > v.up || v.up > 100) {
            return Err(OfError::OFPTMFC_BAD_CONFIG);
        }
        let bridge = switch.bridge_rules_mut(origin.bridge).ok_or(OfError::OFPBRC_EPERM)?;
        let ids = if tm.table_id == TABLE_ALL {
            0..=VISIBLE_TABLES - 1
        } else {
            tm.table_id..=tm.table_id
        };
        for id in ids {
            let Some(table) = bridge.pipeline.table_mut(id) else { continue };
            match tm.miss {
                TableMiss::Default => {} // not specified
                miss => table.miss = miss,
            }
            if let Some(on) = tm.eviction {
                table.eviction.evict_by_openflow = on;
            }
            match (tm.vacancy_events, tm.vacancy) {
                (Some(true), thresholds) => {
                    let new = thresholds.or(table.vacancy).unwrap_or_default();
                    table.vacancy = Some(of::Vacancy { current: 0, ..new });
                    let event = if vacancy(table) < new.up {
                        TableStatusReason::VacancyUp
                    } else {
                        TableStatusReason::VacancyDown
                    };
                    self.watch_vacancy(origin.bridge, id, Some(event));
                }
                (Some(false), _) => {
                    table.vacancy = None;
                    self.watch_vacancy(origin.bridge, id, None);
                }
                (None, _) => {}
            }
        }
        Ok(Reply::None)
    }

    pub(super) fn packet_out(
        &mut self,
        origin: Origin<'_>,
        po: &PacketOut,
        switch: &mut Switch,
    ) -> Result<Reply, OfError> {
        switch.counters.packet_outs += 1;
        let bridge = switch.bridge(origin.bridge).ok_or(OfError::OFPBRC_EPERM)?;
        check_packet_out(po, bridge, origin.version)?;
        let packet = Packet::from_slice(&po.data);
        let learned =
            switch.packet_out(origin.bridge, packet, &metadata(po), po.in_port(), &po.actions)?;
        self.learned(learned, switch, origin.now);
        Ok(Reply::None)
    }

    /// Reports the changes to rules that flows learned from a controller's packet made.
    pub(super) fn learned(
        &mut self,
        learned: Vec<(BridgeIndex, Vec<Change>)>,
        switch: &mut Switch,
        now: Millis,
    ) {
        for (bridge, changes) in learned {
            self.rules_changed(bridge, changes, switch, now);
        }
    }

    /// Carries out NXT_RESUME: continues the pipeline of a paused packet with the packet and
    /// metadata that the controller returned.
    pub(super) fn resume(
        &mut self,
        origin: Origin<'_>,
        packet_in: &PacketIn,
        switch: &mut Switch,
    ) -> Result<Reply, OfError> {
        let continuation = packet_in.continuation.as_deref().ok_or(OfError::OFPBRC_EPERM)?;
        if continuation.bridge != bridge_tag(origin.bridge) {
            return Err(OfError::OFPBRC_EPERM); // of another bridge, or of another run
        }
        let mut metadata = Key::ZERO;
        let told = packet_in.metadata.key();
        metadata.regs = told.regs;
        metadata.metadata = told.metadata;
        metadata.actset_output = told.actset_output;
        metadata.tunnel = told.tunnel;
        metadata.in_port = told.in_port;
        let state = FrozenState {
            bridge: origin.bridge,
            table: packet_in.table_id,
            metadata,
            is_tunnel_set: told.tunnel != flow::Tunnel::NONE,
            stack: continuation.stack.iter().map(|bytes| stack_entry(bytes)).collect(),
            action_set: continuation.action_set.clone(),
            steps: continuation
                .frames
                .iter()
                .map(|f| FrozenStep {
                    table: f.table_id,
                    cookie: f.cookie,
                    actions: f.actions.clone(),
                })
                .collect(),
            // The controller does not return the hash.
            enters: false,
            hashed: false,
            conntracked: continuation.conntracked,
            mirrored: continuation.mirrors,
            packet_in: None,
        };
        switch.publish();
        let slow = Arc::clone(switch.slow_path());
        let snapshot = slow.published.newest();
        let bridge = snapshot.bridge(origin.bridge).ok_or(OfError::OFPBRC_EPERM)?;
        let packet = Packet::from_slice(&packet_in.data);
        let dp_in = bridge.origin_of(packet_in.in_port());
        let packet_type = told.packet_type.get();
        let mut key = key_of_type(packet.data(), packet_in.in_port().0, packet_type);
        key.pkt_mark = told.pkt_mark;
        key.set_connection(told);
        let translation = slow.translate_counted(Request {
            packet: Some(&packet),
            frozen: Some(Arc::new(state)),
            ..Request::new(&snapshot, origin.bridge, key, &slow.recirc, origin.now)
        });
        // As in OVS the pipeline continues without the flows when they cannot be added.
        let learned = switch.learn_all(&translation.effects, origin.now).unwrap_or_else(|error| {
            tracing::debug!(target: "ofproto", "learned flows were not added ({error})");
            Vec::new()
        });
        switch.publish();
        let (bytes, tcp_flags) = (packet.len() as u64, key.tcp_flags.get());
        let seen = FlowStats { packets: 1, bytes, used: origin.now, tcp_flags };
        effect::apply_but_learning(&translation.effects, &seen, &slow.events);
        let dp_key = Key { in_port: dp_in.0.into(), ..key };
        switch.datapath().execute(packet, &dp_key, &translation.actions);
        self.learned(learned, switch, origin.now);
        Ok(Reply::None)
    }
}

fn stack_entry(bytes: &[u8]) -> StackEntry {
    let bits = (bytes.len().min(MAX_BYTES) * 8) as u16; // at most 992
    StackEntry { value: Wide::from_bytes(bytes), bits }
}

/// Checks the parts of a flow mod that do not depend on tables.
pub(super) fn check_flow_mod(fm: &FlowMod, version: Version) -> Result<(), OfError> {
    // A deletion carries neither actions nor a packet.
    if matches!(fm.command, FlowModCommand::Delete | FlowModCommand::DeleteStrict) {
        return Ok(());
    }
    let table_id = match fm.table_id {
        TABLE_ALL if fm.command == FlowModCommand::Add => Some(0),
        TABLE_ALL => None,
        id => Some(id),
    };
    check(&fm.actions, &fm.matching, &context(version, table_id))?;
    pipeline::permit(fm)?;
    match fm.buffer_id {
        Some(_) => Err(OfError::OFPBRC_BUFFER_UNKNOWN), // packets are not buffered
        None => Ok(()),
    }
}

fn context(version: Version, table_id: Option<u8>) -> CheckContext {
    CheckContext { version, max_ports: PortNo::MAX, table_id, n_tables: Some(TABLES as u8) }
}

pub(super) fn check_packet_out(
    po: &PacketOut,
    bridge: &Bridge,
    version: Version,
) -> Result<(), OfError> {
    if po.buffer_id.is_some() {
        return Err(OfError::OFPBRC_BUFFER_UNKNOWN);
    }
    let in_port = po.in_port();
    let key = key_of_type(&po.data, in_port.0, po.metadata.key().packet_type.get());
    let matching = Match::new(&key, &flow::text::packet_mask(&key));
    check(&po.actions, &matching, &context(version, None))?;
    let groups = bridge.pipeline.groups();
    if any_action(&po.actions, &|a| matches!(a, Action::Group(id) if !groups.contains_key(id))) {
        return Err(OfError::OFPBAC_BAD_OUT_GROUP);
    }
    if any_action(&po.actions, &|a| matches!(a, Action::Meter(id) if !bridge.meters.contains(*id)))
    {
        return Err(OfError::OFPMMFC_INVALID_METER);
    }
    Ok(())
}

/// Translates a checked packet-out by `snapshot`. Fails when it could not be sent.
pub(super) fn translate_packet_out(
    po: &PacketOut,
    origin: Origin<'_>,
    snapshot: &Snapshot,
    switch: &mut Switch,
) -> Result<TranslatedOut, OfError> {
    let packet = Packet::from_slice(&po.data);
    let (metadata, in_port) = (metadata(po), po.in_port());
    let out =
        switch.translate_out(snapshot, origin.bridge, packet, &metadata, in_port, &po.actions)?;
    switch.dry_run_learning(out.effects(), origin.now)?;
    Ok(out)
}

/// Returns the metadata of a packet-out without the input port, which is a separate argument.
fn metadata(po: &PacketOut) -> Match {
    let mut metadata = po.metadata;
    metadata.clear(Field::InPortOxm);
    metadata
}

pub(super) fn check_port_mod(pm: &PortMod, bridge: &Bridge) -> Result<(), OfError> {
    let port = bridge.ports.get(&pm.port_no).ok_or(OfError::OFPPMFC_BAD_PORT)?;
    if port.status.mac != pm.hw_addr {
        return Err(OfError::OFPPMFC_BAD_HW_ADDR);
    }
    Ok(())
}

/// Returns a port as Open vSwitch describes it between a port mod and the change of the link that
/// follows from it: with the new configuration, and the link as it was.
fn configured(before: &PortDesc, after: &PortDesc) -> PortDesc {
    let mut desc = after.clone();
    if (before.config ^ after.config).contains(PortConfig::PORT_DOWN) {
        desc.state = before.state - PortState::LIVE;
    }
    desc
}

/// Carries out a checked port mod. Returns the port before and after, when they differ.
fn modify_port(
    pm: &PortMod,
    origin: Origin<'_>,
    switch: &mut Switch,
) -> Option<(PortDesc, PortDesc)> {
    let before = switch.bridge(origin.bridge)?.ports.get(&pm.port_no)?.desc();
    let mut toggle = (before.config ^ pm.config) & pm.mask;
    if toggle.is_empty() {
        return None;
    }
    let port = switch.bridge_mut(origin.bridge)?.ports.get_mut(&pm.port_no)?;
    if toggle.contains(PortConfig::PORT_DOWN) {
        // The device holds its administrative state; the port keeps no copy.
        toggle.remove(PortConfig::PORT_DOWN);
        port.config.remove(PortConfig::PORT_DOWN);
        let up = !pm.config.contains(PortConfig::PORT_DOWN);
        if let Some(device) = &port.device {
            match device.set_admin_up(up) {
                Ok(()) => {
                    port.refresh();
                }
                Err(e) => tracing::warn!(
                    target: "ofproto",
                    "could not set {} {} ({e})",
                    port.name,
                    if up { "up" } else { "down" }
                ),
            }
        }
    }
    port.config ^= toggle;
    let after = port.desc();
    (after != before).then_some((before, after))
}

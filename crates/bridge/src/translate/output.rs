// SPDX-License-Identifier: Apache-2.0
//! Output of packets: ports, flooding, patch ports, controllers.

use super::context::{Context, Freeze, OnMiss, Tuple};
use crate::effect::{Direction, Effect};
use crate::export::port_number;
use crate::recirc::FrozenState;
use crate::snapshot::{BridgeIndex, BridgeView, PortView};
use crate::spanning_tree::is_bpdu;
use crate::trace::Kind;
use crate::translate::TranslationError;
use crate::tunnel::PacketTypeMode;
use ::export::netflow::Output;
use datapath::{Action as DpAction, Userdata};
use flow::{Field, Key, Tunnel};
use openflow::PortNo;
use openflow::action::Controller;
use openflow::message::{PacketInReason, PortConfig, meter_id};
use std::sync::Arc;
use zerocopy::network_endian::U64;

/// NX_CTLR_NO_METER: `controller` names no meter. Its packet-ins use the meter of all controllers
/// ("controller"), where there is one (OpenFlow 1.5.1, 6.2.1).
const NO_METER: u32 = u32::MAX;

impl<'a> Context<'a> {
    /// Outputs to any port, reserved ones included. `max_len` applies to CONTROLLER. With
    /// `packet_in` a table miss after TABLE may go to controllers.
    pub(super) fn output(&mut self, port: PortNo, max_len: u16, packet_in: bool, last: bool) {
        let in_port = self.in_port();
        let before = std::mem::take(&mut self.netflow_output);
        match port {
            PortNo::IN_PORT => self.output_port(in_port, None),
            PortNo::TABLE => {
                let on_miss = if packet_in { OnMiss::AsConfigured } else { OnMiss::OtherTables };
                self.table_action(Tuple::Present, in_port, 0, on_miss, false, last);
            }
            PortNo::NORMAL => self.normal(),
            PortNo::FLOOD => self.flood(false),
            PortNo::ALL => self.flood(true),
            PortNo::CONTROLLER => {
                let reason = if self.in_packet_out {
                    PacketInReason::PacketOut
                } else if self.in_group {
                    PacketInReason::Group
                } else if self.in_action_set {
                    PacketInReason::ActionSet
                } else {
                    PacketInReason::Action
                };
                self.send_to_controller(max_len, reason as u8, 0, &[], NO_METER);
            }
            PortNo::NONE => {}
            _ if port == in_port => {
                self.report(Kind::Warning, || "skipping output to input port".to_string());
            }
            _ => self.output_port(port, None),
        }
        self.netflow_output = before.and(self.netflow_output);
    }

    /// Runs `output(port=PORT,max_len=BYTES)`.
    pub(super) fn output_truncated(&mut self, port: PortNo, max_len: u32) {
        let in_port = self.in_port();
        let target = if port == PortNo::IN_PORT { in_port } else { port };
        match port {
            PortNo::TABLE
            | PortNo::NORMAL
            | PortNo::FLOOD
            | PortNo::ALL
            | PortNo::CONTROLLER
            | PortNo::NONE => {
                self.report(Kind::Warning, || {
                    format!("output_trunc does not support port: {port}")
                });
            }
            _ if port == in_port => {
                self.report(Kind::Warning, || "skipping output to input port".to_string());
            }
            _ if self.port(target).is_none_or(|p| p.dp_port.is_none()) => {
                self.report(Kind::Error, || {
                    format!("output_trunc does not support patch port {port}")
                });
            }
            _ => self.output_port(target, Some(max_len)),
        }
    }

    /// Outputs to every port except the input port; without `all`, only to ports without NO_FLOOD.
    fn flood(&mut self, all: bool) {
        let in_port = self.in_port();
        let bridge = self.bridge;
        let mut ports: Vec<&PortView> = bridge.ports.values().collect();
        ports.sort_unstable_by_key(|p| p.number);
        for p in ports {
            if p.number != in_port && (all || !p.config.contains(PortConfig::NO_FLOOD)) {
                match all {
                    // As in OVS, ALL is past the spanning tree.
                    true => self.output_past_tree(p.number),
                    false => self.output_port(p.number, None),
                }
            }
        }
        self.netflow_output = Output::Flood;
    }

    /// Outputs to one port of the present bridge.
    pub(super) fn output_port(&mut self, number: PortNo, truncate: Option<u32>) {
        if let Some(port) = self.allowed_output(number)
            && self.passes_tree(port)
        {
            self.output_allowed(port, truncate);
        }
    }

    /// Outputs to one port of the present bridge, whatever the spanning tree says.
    fn output_past_tree(&mut self, number: PortNo) {
        if let Some(port) = self.allowed_output(number) {
            self.output_allowed(port, None);
        }
    }

    /// Returns the port with this number, when its settings allow the output.
    fn allowed_output(&mut self, number: PortNo) -> Option<&'a PortView> {
        let bridge = self.bridge;
        let Some(port) = bridge.ports.get(&number) else {
            self.report(Kind::Warning, || "Nonexistent output port".to_string());
            return None;
        };
        if port.config.contains(PortConfig::NO_FWD) {
            self.report(Kind::Detail, || "OFPPC_NO_FWD set, skipping output".to_string());
            return None;
        }
        if self.mirror_snaplen.is_some() && port.is_patch {
            self.report(Kind::Warning, || {
                "Mirror truncate to ODPP_NONE, skipping output".to_string()
            });
            return None;
        }
        if self.is_protected(self.port(self.in_port())) && self.is_protected(Some(port)) {
            self.report(Kind::Warning, || {
                "Flow is between protected ports, skipping output.".to_string()
            });
            return None;
        }
        Some(port)
    }

    /// Returns true when the spanning tree lets the packet leave by the port. BPDUs leave also where
    /// nothing else does, and so do packets of protocols that watch the path.
    fn passes_tree(&mut self, port: &PortView) -> bool {
        if port.forwards() {
            return true;
        }
        self.mask.set_exact(Field::EthDst);
        let is_bpdu = is_bpdu(&self.base);
        let may_leave = match is_bpdu {
            true => port.sends_bpdus(),
            false => {
                let mut watching = port.protocols.iter().filter(|p| p.watches_path());
                watching.any(|p| p.claims(&self.key, &mut self.mask))
            }
        };
        if may_leave {
            return true;
        }
        let name = self.bridge.config.tree_name();
        self.report(Kind::Warning, || match is_bpdu {
            true => format!("{name} not in listening state, skipping bpdu output"),
            false => format!("{name} not in forwarding state, skipping output"),
        });
        false
    }

    /// Outputs to a port that allows it.
    fn output_allowed(&mut self, port: &'a PortView, truncate: Option<u32>) {
        // Devices take Ethernet packets only; other bridges take all.
        let mode = port.tunnel.as_ref().map_or(PacketTypeMode::LegacyL2, |config| config.mode);
        let is_legacy = mode == PacketTypeMode::LegacyL2 && !port.is_patch;
        if is_legacy && self.key.packet_type.get() != 0 {
            self.report(Kind::Warning, || {
                "Trying to send non-Ethernet packet through legacy L2 port. Dropping packet."
                    .to_string()
            });
            return;
        }
        if port.is_patch {
            if let Some((peer_bridge, peer_port)) = port.peer {
                self.output_patch(port, peer_bridge, peer_port);
            }
            return;
        }
        let truncate = truncate.or(self.mirror_snaplen.map(u32::from));
        let nw_tos = self.key.nw_tos;
        self.mark_by_queue(port);
        self.output_marked(port, truncate);
        self.key.nw_tos = nw_tos;
    }

    /// Gives the packet the DSCP of its queue (`Queue:dscp`) at the port.
    fn mark_by_queue(&mut self, port: &PortView) {
        if port.queue_dscp.is_empty() {
            return;
        }
        self.mask.0.skb_priority.set(u32::MAX);
        let (queues, priority) = (self.snapshot.queues, self.key.skb_priority.get());
        let is_packets = |queue: u32| queues.priority(queue) == Some(priority);
        let marked = port.queue_dscp.iter().find(|(queue, _)| is_packets(**queue));
        if let Some((_, dscp)) = marked
            && self.has(Field::IpDscpShifted)
        {
            self.mask.set_exact(Field::IpDscpShifted);
            Field::IpDscpShifted.store(&mut self.key, u128::from(*dscp));
        }
    }

    /// Outputs to a port that is no patch port.
    fn output_marked(&mut self, port: &'a PortView, truncate: Option<u32>) {
        let number = port.number;
        if let Some(config) = &port.tunnel {
            self.output_tunnel(port, config, truncate);
            self.netflow_output = Output::Port(port_number(number));
            self.outputs.add(port.ifindex);
            self.mirror_output(number);
            return;
        }
        let Some(dp_port) = port.dp_port else { return };
        self.commit();
        self.netflow_output = Output::Port(port_number(number));
        self.outputs.add(port.ifindex);
        if let Some(backing) = self.terminate(port) {
            self.emit(DpAction::TunnelPop(backing));
            return;
        }
        self.sample_output(dp_port);
        if let Some(max_len) = truncate {
            self.needs_feature(self.snapshot.withheld.trunc);
            self.emit(DpAction::Trunc(max_len));
        }
        let bond = self.bond_output.take();
        self.emit(bond.map_or(DpAction::Output(dp_port), DpAction::LbOutput));
        self.mirror_output(number);
    }

    fn is_protected(&self, port: Option<&PortView>) -> bool {
        let bundle = port.and_then(|p| p.bundle).and_then(|i| self.bridge.bundles.get(i));
        bundle.is_some_and(|b| b.protected)
    }

    /// Outputs through a patch port: the peer's bridge runs its pipeline on the packet, from fresh
    /// metadata. Its changes to the packet are undone afterwards.
    fn output_patch(&mut self, port: &PortView, peer_bridge: BridgeIndex, peer_port: PortNo) {
        let Some(bridge) = self.snapshot.bridge(peer_bridge) else { return };
        let Some(peer) = bridge.ports.get(&peer_port) else { return };
        self.effect(|| Effect::VirtualPort(Arc::clone(&port.virtual_stats), Direction::Tx));
        self.effect(|| Effect::VirtualPort(Arc::clone(&peer.virtual_stats), Direction::Rx));
        self.in_bridge(peer_bridge, bridge, peer_port);
    }

    /// Runs the pipeline of a bridge on the packet as if `port` had received it, from fresh
    /// metadata. Its changes to the packet are undone afterwards.
    pub(super) fn in_bridge(&mut self, index: BridgeIndex, bridge: &'a BridgeView, port: PortNo) {
        let key = self.key;
        // Tunnel fields do not go from one bridge to another.
        let tunnel_mask = self.mask.0.tunnel;
        self.key.tunnel = Tunnel::NONE;
        let is_tunnel_replaced = self.is_tunnel_replaced;
        self.is_tunnel_replaced = self.received.is_some();
        // The peer's bridge does not see what this one has tracked.
        let conntracked = std::mem::take(&mut self.conntracked);
        self.key.set_connection(&Key::ZERO);
        let was_mpls = self.was_mpls;
        // Each bridge mirrors for itself.
        let mirrored = self.mirrored;
        if index != self.bridge_index {
            self.mirrored = 0;
        }
        let stack = std::mem::take(&mut self.stack);
        let action_set = std::mem::take(&mut self.action_set);
        let rule = self.rule.take();
        let flags = (self.cookie, self.table);
        let place = (self.bridge_index, self.bridge);
        let freeze = self.freeze.take();

        self.enter(Kind::Bridge, || format!("bridge(\"{}\")", bridge.name));
        (self.bridge_index, self.bridge) = (index, bridge);
        self.key.regs = Key::ZERO.regs;
        self.key.metadata = U64::ZERO;
        self.key.actset_output.set(PortNo::UNSET.0);
        self.key.in_port.set(port.0);
        if !self.is_claimed(port) && self.may_receive(port) {
            self.isolated_by_tree(port, |ctx| {
                if ctx.was_mpls {
                    // The peer's rules may match fields under the stack.
                    ctx.table = 0;
                    ctx.start_freezing(Freeze { enters: true, ..Freeze::default() });
                } else {
                    ctx.table_action(Tuple::Present, port, 0, OnMiss::AsConfigured, true, false);
                }
                if ctx.error.is_none() {
                    ctx.finish_level();
                }
            });
        }
        self.leave();

        self.key = key;
        self.mask.0.tunnel = tunnel_mask;
        self.is_tunnel_replaced = is_tunnel_replaced;
        self.conntracked = conntracked;
        if index != place.0 {
            self.mirrored = mirrored;
        }
        self.was_mpls = was_mpls;
        self.stack = stack;
        self.action_set = action_set;
        self.rule = rule;
        (self.cookie, self.table) = flags;
        (self.bridge_index, self.bridge) = place;
        self.freeze = freeze;
        // A stop in the other bridge does not stop this one, as in OVS, unless part of the actions
        // is missing.
        self.exit = false;
        self.error = self.error.filter(|e| *e == TranslationError::TooManyActions);
    }

    /// Runs `inside` as [`Context::isolated`] does. Where the spanning tree does not let `port` forward
    /// yet, only its effects remain.
    fn isolated_by_tree(&mut self, port: PortNo, inside: impl FnOnce(&mut Self)) {
        if self.port(port).is_none_or(PortView::forwards) {
            return self.isolated(inside);
        }
        self.is_tree_drop = true;
        let (base, conntracked, mirrored) = (self.base, self.conntracked, self.mirrored);
        let (irreversible, ids) = (self.irreversible, self.recirc_ids.len());
        self.nested(inside);
        (self.base, self.conntracked, self.mirrored) = (base, conntracked, mirrored);
        self.irreversible = irreversible;
        self.recirc_ids.truncate(ids);
    }

    /// Runs a `controller(...)` that does not pause.
    pub(super) fn controller(&mut self, c: &Controller) {
        self.send_to_controller(c.max_len, c.reason, c.controller_id, &c.userdata, c.meter_id);
    }

    /// Sends a packet whose TTL ran out in dec_ttl to the controllers.
    pub(super) fn invalid_ttl(&mut self, controller_id: u16) {
        let reason = PacketInReason::InvalidTtl as u8;
        self.send_to_controller(u16::MAX, reason, controller_id, &[], NO_METER);
    }

    fn send_to_controller(
        &mut self,
        max_len: u16,
        reason: u8,
        controller_id: u16,
        userdata: &[u8],
        meter: u32,
    ) {
        self.commit();
        let (metadata, is_tunnel_set) = self.frozen_fields();
        let state = FrozenState {
            bridge: self.bridge_index,
            table: self.table,
            metadata,
            is_tunnel_set,
            stack: Vec::new(),
            action_set: Vec::new(),
            steps: Vec::new(),
            enters: false,
            hashed: false,
            conntracked: self.conntracked,
            mirrored: self.mirrored,
            packet_in: Some(self.frozen_packet_in(userdata, reason)),
        };
        let recirc = self.recirc.intern(state, &self.bridge.name);
        // OpenFlow has no number for the `controller` of a table-miss flow; packet-ins say
        // `Action`.
        let is_action = reason == PacketInReason::Action as u8;
        let reason = match is_action && self.in_miss_rule() {
            true => PacketInReason::ExplicitMiss as u8,
            false => reason,
        };
        let send = DpAction::Userspace(Userdata::Controller {
            reason,
            max_len,
            controller_id,
            recirc_id: recirc.id(),
            rule_cookie: self.cookie,
            continuation: false,
        });
        self.recirc_ids.push(recirc);
        let meters = &self.bridge.meters;
        let meter = if meter == NO_METER { meter_id::CONTROLLER } else { meter };
        match meters.get(&meter) {
            Some(meter) => self.emit(DpAction::Clone(vec![DpAction::Meter(*meter), send])),
            None => self.emit(send),
        }
    }
}

/// Returns the fields of `key` that belong to the pipeline and not to the packet; all others are
/// zero.
pub(super) fn pipeline_fields(key: &Key) -> Key {
    let mut out = Key::ZERO;
    out.regs = key.regs;
    out.metadata = key.metadata;
    out.in_port = key.in_port;
    out.actset_output = key.actset_output;
    out
}

// SPDX-License-Identifier: Apache-2.0
//! Freezing a pipeline, thawing it when the packet comes back, and packet-ins.

use super::context::{Context, Freeze};
use super::tunnel::outer_of;
use crate::event::PacketIn;
use crate::recirc::{FrozenState, FrozenStep, RecircTable};
use crate::snapshot::{BridgeIndex, Snapshot};
use crate::trace::{Kind, actions_text};
use datapath::{Action as DpAction, Userdata};
use flow::field::Prerequisite;
use flow::{Field, Key, Match, Tunnel};
use openflow::action::{Action, SetSpelling};
use openflow::message::PacketInReason;
use packet::{Packet, ethertype};
use std::sync::Arc;

impl Context<'_> {
    /// Ends the lists of actions here. The remaining steps run when the packet comes back.
    pub(super) fn start_freezing(&mut self, freeze: Freeze) {
        self.exit = true;
        self.freeze = Some(freeze);
    }

    /// Stores the rest of a list of actions. Called for the innermost list first.
    pub(super) fn freeze_rest(&mut self, rest: &[Action]) {
        let (table, cookie) = (self.table, self.cookie);
        if let Some(freeze) = &mut self.freeze {
            freeze.stored = true;
            let actions: Vec<Action> = rest.iter().filter_map(stored).collect();
            if !actions.is_empty() {
                freeze.steps.push(FrozenStep { table, cookie, actions });
            }
        }
    }

    /// Emits the recirculation (or the packet for the controller that resumes). The lists that
    /// froze stay ended: the caller that runs one of several lists decides whether the others
    /// continue.
    pub(super) fn finish_freezing(&mut self) {
        let Some(freeze) = self.freeze.take() else { return };
        if self.error.is_some() {
            return;
        }
        let packet_in = freeze.pause.as_ref().map(|c| self.frozen_packet_in(&c.userdata, c.reason));
        // A packet that comes back without its labels, with no steps and no action set left, is
        // looked up again from table 0, as in OVS.
        let from_start = freeze.for_mpls && freeze.steps.is_empty() && self.action_set.is_empty();
        let (metadata, is_tunnel_set) = self.frozen_fields();
        let state = FrozenState {
            bridge: self.bridge_index,
            table: if from_start { 0 } else { self.table },
            metadata,
            is_tunnel_set,
            stack: std::mem::take(&mut self.stack),
            action_set: std::mem::take(&mut self.action_set),
            steps: freeze.steps,
            enters: freeze.enters || from_start,
            hashed: freeze.pause.is_none() && (self.hashed || freeze.hash.is_some()),
            conntracked: self.conntracked,
            mirrored: self.mirrored,
            packet_in,
        };
        self.commit();
        match freeze.pause {
            Some(controller) => {
                // A trace of a flow has no packet that could be resumed.
                if !self.collect {
                    return;
                }
                let recirc = self.recirc.intern(state, &self.bridge.name);
                self.emit(DpAction::Userspace(Userdata::Controller {
                    reason: controller.reason,
                    max_len: controller.max_len,
                    controller_id: controller.controller_id,
                    recirc_id: recirc.id(),
                    rule_cookie: self.cookie,
                    continuation: true,
                }));
                self.recirc_ids.push(recirc);
            }
            None => {
                if let Some((symmetric, basis)) = freeze.hash {
                    self.emit(DpAction::Hash { symmetric, basis });
                }
                let recirc = self.recirc.intern(state, &self.bridge.name);
                self.emit(DpAction::Recirc(recirc.id()));
                self.recirc_ids.push(recirc);
            }
        }
    }

    /// Continues where `state` stopped.
    pub(super) fn thaw(&mut self, state: &FrozenState) {
        let metadata = &state.metadata;
        self.key.regs = metadata.regs;
        self.key.metadata = metadata.metadata;
        self.key.in_port = metadata.in_port;
        self.key.actset_output = metadata.actset_output;
        // The pipeline's input port is no change to the packet: the datapath does not set it.
        self.base.in_port = metadata.in_port;
        if state.is_tunnel_set {
            self.key.tunnel = metadata.tunnel;
            self.is_tunnel_replaced = true;
        }
        self.stack = state.stack.clone();
        self.action_set = state.action_set.clone();
        self.hashed = state.hashed;
        self.conntracked = state.conntracked;
        self.mirrored = state.mirrored;
        if !state.conntracked {
            self.key.set_connection(&Key::ZERO);
        }
        self.table = state.table;
        let parts = segments(&state.steps);
        self.enter(Kind::Thaw, || "thaw".to_string());
        self.report(Kind::Thaw, || format!("Resuming from table {}", state.table));
        if !parts.is_empty() {
            let names = self.names();
            self.report(Kind::Thaw, || {
                let texts = parts.iter().map(|p| match p.restores {
                    true => format!("{},{}", unroll_text(p), actions_text(p.actions, names)),
                    false => actions_text(p.actions, names),
                });
                format!("Restoring actions: {}", texts.collect::<Vec<_>>().join(","))
            });
        }
        self.leave();
        if state.enters {
            return self.first_table(state.table);
        }
        let in_port = self.in_port();
        if self.decapsulate_ecn() && self.may_receive(in_port) {
            self.do_segments(&parts);
            self.finish_or_discard(in_port);
        }
    }

    /// Runs parts of a list one after the other, up to one that ends them all.
    pub(super) fn do_segments(&mut self, parts: &[Segment]) {
        for (i, part) in parts.iter().enumerate() {
            if part.restores {
                self.report(Kind::Action, || unroll_text(part));
                self.report(Kind::Action, || {
                    format!("restored state: table={}, cookie={:#x}", part.table, part.cookie)
                        .replace("=0x0", "=0")
                });
                self.table = part.table;
                self.cookie = part.cookie;
            }
            let behind = parts.get(i + 1..).unwrap_or_default();
            let has_run = self.do_list(part.actions, behind.is_empty(), behind);
            if has_run || self.exit || self.error.is_some() {
                // Frozen again: the parts that follow are still to be run, if they are not stored
                // already.
                if let Some(freeze) = self.freeze.as_mut().filter(|_| !has_run) {
                    freeze.steps.extend(behind.iter().map(|p| FrozenStep {
                        table: p.table,
                        cookie: p.cookie,
                        actions: p.actions.to_vec(),
                    }));
                }
                break;
            }
        }
    }

    /// Freezes when `action` may need the headers below a popped MPLS stack.
    pub(super) fn freeze_for_mpls(&mut self, action: &Action) {
        if self.was_mpls && !self.exit && action.needs_payload() {
            self.start_freezing(Freeze { for_mpls: true, ..Freeze::default() });
        }
    }

    /// Does the same as [`Context::freeze_for_mpls`] for an action that has begun already: it will
    /// be run again. Returns false, and does nothing, when no MPLS stack was popped.
    pub(super) fn freeze_again_for_mpls(&mut self) -> bool {
        if self.was_mpls {
            self.start_freezing(Freeze { for_mpls: true, again: true, ..Freeze::default() });
        }
        self.was_mpls
    }
}

/// Returns the form in which a frozen pipeline stores an action; `None` for an action without
/// effect.
///
/// A frozen list has actions only, no instructions. So as in OVS a stored `goto_table` does nothing
/// on a table miss.
fn stored(action: &Action) -> Option<Action> {
    if action.is_inert() {
        return None;
    }
    if let Action::GotoTable(table) = action {
        return Some(Action::Resubmit { port: None, table: Some(*table), original_tuple: false });
    }
    if let Action::WriteMetadata { value, mask } = action {
        return Some(Action::SetField {
            field: Field::Metadata,
            value: (*value).into(),
            mask: (*mask).into(),
            spelled: SetSpelling::SetField,
        });
    }
    Some(action.clone())
}

/// A part of a list of actions that was put together from several lists. Steps are divided further
/// only for the texts of a trace.
#[derive(Clone, Copy)]
pub(super) struct Segment<'a> {
    pub table: u8,
    pub cookie: u64,
    pub actions: &'a [Action],
    /// `ofproto/trace` reports before this part that table and cookie change.
    pub restores: bool,
}

/// Splits the steps where OVS restores table and cookie: before the first action of each step that
/// uses them.
fn segments(steps: &[FrozenStep]) -> Vec<Segment<'_>> {
    let mut out = Vec::new();
    let mut now = None;
    for step in steps {
        let state = Some((step.table, step.cookie));
        let at = if now == state { None } else { step.actions.iter().position(Action::uses_rule) };
        let (before, behind) = step.actions.split_at(at.unwrap_or(step.actions.len()));
        let (table, cookie) = (step.table, step.cookie);
        if !before.is_empty() {
            out.push(Segment { table, cookie, actions: before, restores: false });
        }
        if !behind.is_empty() {
            now = state;
            out.push(Segment { table, cookie, actions: behind, restores: true });
        }
    }
    out
}

fn unroll_text(part: &Segment) -> String {
    format!("unroll_xlate(table={}, cookie={})", part.table, part.cookie)
}

/// Reason why a datapath's key cannot be located.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocateError {
    /// The ingress port is of no bridge (it was just removed, or was never added).
    #[error("datapath port {0} is not a port of any bridge")]
    UnknownPort(u32),
    /// The packet came out of a tunnel, and is no vport's.
    #[error("no OpenFlow tunnel port for this packet")]
    NoTunnelPort,
    /// The recirculation id is of no frozen pipeline.
    #[error("no recirculation context for id {0:#x}")]
    UnknownRecirculation(u32),
}

/// Starting point of the translation of a datapath's packet.
#[derive(Clone, Debug)]
pub struct Located {
    /// Bridge in which translation starts.
    pub bridge: BridgeIndex,
    /// The key with the OpenFlow in_port.
    pub key: Key,
    /// The pipeline to continue, for a recirculated packet; `None` for any other.
    pub frozen: Option<Arc<FrozenState>>,
    /// The options of the packet's Geneve header are not valid.
    pub invalid_options: bool,
}

/// Finds bridge, OpenFlow port and frozen pipeline for a key that a datapath extracted.
///
/// # Errors
///
/// Fails when no bridge has the key's port, or no frozen pipeline has its recirculation id.
pub fn locate(
    snapshot: &Snapshot,
    key: &Key,
    recirc: &RecircTable,
) -> Result<Located, LocateError> {
    let mut key = *key;
    let id = key.recirc_id.get();
    if id != 0 {
        let frozen = recirc.state(id).ok_or(LocateError::UnknownRecirculation(id))?;
        key.in_port = frozen.metadata.in_port;
        decode_known_options(snapshot, frozen.bridge, &mut key);
        let bridge = frozen.bridge;
        return Ok(Located { bridge, key, frozen: Some(frozen), invalid_options: false });
    }
    let dp_port = datapath::PortNo(key.in_port.get());
    let (bridge, port) = match outer_of(&key) {
        Some(outer) => {
            let vport = snapshot.tunnels.vports.receive(&outer).ok_or(LocateError::NoTunnelPort)?;
            (vport.bridge, vport.port)
        }
        None => {
            let found = snapshot.ports.get(&dp_port).copied();
            found.ok_or(LocateError::UnknownPort(dp_port.0))?
        }
    };
    key.in_port.set(port.0);
    let invalid_options = !decode_options(snapshot, bridge, &mut key);
    Ok(Located { bridge, key, frozen: None, invalid_options })
}

/// Returns an upcall's key in the form of the bridge that sends a packet-in for it.
pub(crate) fn of_packet_in(
    snapshot: &Snapshot,
    key: &Key,
    userdata: &Userdata,
    recirc: &RecircTable,
) -> Key {
    let mut key = *key;
    if let Userdata::Controller { recirc_id, .. } = userdata
        && let Some(state) = recirc.state(*recirc_id)
    {
        decode_known_options(snapshot, state.bridge, &mut key);
    }
    key
}

/// Gives the tunnel's options the form of a bridge's key. The bridge of the vport has found them to
/// be valid; the bridge of a frozen pipeline may be another one, behind a patch port.
fn decode_known_options(snapshot: &Snapshot, bridge: BridgeIndex, key: &mut Key) {
    if key.tunnel.options_len > 0
        && let Some(bridge) = snapshot.bridge(bridge)
    {
        key.tunnel = bridge.tlv_table.decode_known(&key.tunnel);
    }
}

/// Gives the tunnel's options the form of a bridge's key. Returns false when they are not valid.
fn decode_options(snapshot: &Snapshot, bridge: BridgeIndex, key: &mut Key) -> bool {
    if key.tunnel.options_len == 0 {
        return true;
    }
    let decoded = snapshot.bridge(bridge).map(|b| b.tlv_table.decode(&key.tunnel));
    match decoded {
        Some(Ok(tunnel)) => key.tunnel = tunnel,
        Some(Err(_)) => {
            key.tunnel.options = flow::Tunnel::NONE.options;
            key.tunnel.options_len = 0;
            return false;
        }
        None => {}
    }
    true
}

/// Returns the packet-in for an action upcall with [`Userdata::Controller`]; `key` is the upcall's
/// key. Returns `None` when `userdata` is of another kind, or its frozen state is gone (the
/// megaflow was removed long ago).
///
/// A paused pipeline's [`PacketIn::continuation`] is the recirculation id in 4 bytes, big-endian.
/// It is valid as long as the megaflow exists, and for some time afterwards
/// ([`RecircTable::state`]). To resume, translate with the state of that id as
/// [`super::Request::frozen`].
pub(crate) fn controller_packet_in(
    key: &Key,
    userdata: &Userdata,
    packet: &Packet,
    recirc: &RecircTable,
) -> Option<PacketIn> {
    let Userdata::Controller {
        reason,
        max_len,
        controller_id,
        recirc_id,
        rule_cookie,
        continuation,
    } = userdata
    else {
        return None;
    };
    let state = recirc.state(*recirc_id)?;
    let info = state.packet_in.as_ref()?;
    Some(PacketIn {
        bridge: state.bridge,
        packet: packet.clone(),
        metadata: packet_in_metadata(key, &state),
        reason: match PacketInReason::from_number(*reason) {
            Some(PacketInReason::ExplicitMiss) => PacketInReason::Action as u8,
            _ => *reason,
        },
        table: state.table,
        cookie: *rule_cookie,
        max_len: *max_len,
        controller_id: *controller_id,
        userdata: Arc::clone(&info.userdata),
        table_miss: info.table_miss,
        continuation: continuation.then(|| Arc::new(recirc_id.to_be_bytes().to_vec())),
    })
}

/// Returns the metadata of a packet-in: in_port, and the other fields that are not zero.
fn packet_in_metadata(packet: &Key, state: &FrozenState) -> Match {
    let pipeline = &state.metadata;
    let mut m = Match::ANY;
    if state.conntracked {
        set_connection(&mut m, packet);
    }
    let mut tunnel = if state.is_tunnel_set { pipeline.tunnel } else { packet.tunnel };
    tunnel.flags.set(tunnel.flags.get() & Tunnel::OPENFLOW_FLAGS);
    set_tunnel(&mut m, &tunnel);
    m.set(Field::InPortOxm, pipeline.in_port.get().into());
    for n in 0..flow::REGISTERS {
        if let Some(f) = Field::register(n) {
            let value = f.load(pipeline);
            if value != 0 {
                m.set(f, value);
            }
        }
    }
    for (field, key) in [
        (Field::Metadata, pipeline),
        (Field::PktMark, packet),
        (Field::DpHash, packet),
        (Field::PacketType, packet),
    ] {
        let value = field.load(key);
        if value != 0 {
            m.set(field, value);
        }
    }
    m
}

/// Sets the fields of a tunnel that OpenFlow knows and that are not zero, and the options that are
/// there.
fn set_tunnel(m: &mut Match, tunnel: &Tunnel) {
    if *tunnel == Tunnel::NONE {
        return;
    }
    let mut key = Key::ZERO;
    key.tunnel = *tunnel;
    for field in Field::ALL.into_iter().filter(|f| f.is_of_tunnel() && f.oxm(0).is_some()) {
        let is_there = match field.option() {
            Some(n) => tunnel.has_option(n),
            None => field.load(&key) != 0,
        };
        if is_there {
            m.set_wide(field, &field.load_wide(&key), &field.all_ones_wide());
        }
    }
}

/// Sets the fields of the packet's connection that are not zero.
fn set_connection(m: &mut Match, packet: &Key) {
    let mut set = |field: Field| m.set(field, field.load(packet));
    if packet.ct_state != 0 {
        set(Field::CtState);
        // The tuple means nothing without the type of its addresses.
        set(Field::EthType);
        if Prerequisite::Ct.holds(packet) && packet.ct_nw_proto != 0 {
            let addresses = match packet.dl_type.get() {
                ethertype::IPV4 => Some([Field::CtNwSrc, Field::CtNwDst]),
                ethertype::IPV6 => Some([Field::CtIpv6Src, Field::CtIpv6Dst]),
                _ => None,
            };
            if let Some(addresses) = addresses {
                addresses.into_iter().for_each(&mut set);
                [Field::CtNwProto, Field::CtTpSrc, Field::CtTpDst].into_iter().for_each(&mut set);
            }
        }
    }
    for field in [Field::CtZone, Field::CtMark, Field::CtLabel] {
        if field.load(packet) != 0 {
            set(field);
        }
    }
}

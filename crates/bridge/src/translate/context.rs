// SPDX-License-Identifier: Apache-2.0
//! The state of one translation, tables, and recursion.

use super::encap::Pending;
use super::export::{Outputs, SflowSample, ends_sampled, mark_dropped};
use super::finish::{final_mask, initial_mask, is_mpls, without_last_clone};
use super::tunnel::ReceivedOuter;
use super::{EffectsMode, MAX_ACTIONS, MAX_DEPTH, MAX_RESUBMITS, MAX_STACK_BYTES};
use super::{Request, Translation, TranslationError};
use crate::effect::Effect;
use crate::mirror::MirrorSet;
use crate::protocol::Claim;
use crate::recirc::{FrozenPacketIn, FrozenStep, RecircRef, RecircTable, StackEntry};
use crate::rule::Rule;
use crate::snapshot::{BridgeIndex, BridgeView, INTERNAL_TABLE, PortView, Snapshot, TableMiss};
use crate::spanning_tree::is_bpdu;
use crate::trace::{Kind, PortNames, Tracer};
use ::export::netflow::Output;
use clock::Millis;
use datapath::{Action as DpAction, DropReason};
use flow::extract::FRAG_ANY;
use flow::field::Prerequisite;
use flow::{Key, Mask, VLANS, Vlan};
use openflow::PortNo;
use openflow::action::{Action, Actions, Controller};
use openflow::message::{PacketInReason, PortConfig};
use packet::Packet;
use std::sync::Arc;

/// Bytes of stack that must be free for a table: enough for the nesting of its rule up to the next
/// table, in a build without optimisation.
const STACK_LEFT: usize = 1 << 20;
/// Size in bytes of a new piece of stack, where fewer than [`STACK_LEFT`] are free.
const STACK_MORE: usize = 4 << 20;

/// OFPC_FRAG_DROP of OpenFlow: the tables drop fragments.
const FRAG_DROP: u16 = 1;
/// OFPC_FRAG_NX_MATCH (Nicira extension): the tables match fragments by `nw_frag`.
const FRAG_NX_MATCH: u16 = 3;
/// Cookie where there is no rule.
pub(super) const NO_COOKIE: u64 = u64::MAX;
/// Reason that datapaths show for the slow path of actions, as in OVS.
pub(super) const ACTION: &str = "action";

/// Reason for a freeze, and the state of the lists that froze.
#[derive(Clone, Debug, Default)]
pub(super) struct Freeze {
    /// The datapath hashes the packet before it recirculates: whether symmetrically, and the basis.
    pub hash: Option<(bool, u32)>,
    /// The packet goes to a controller, which resumes the pipeline.
    pub pause: Option<Box<Controller>>,
    /// The pipeline needs the headers below a popped MPLS stack.
    pub for_mpls: bool,
    /// The action that froze is to be run again.
    pub again: bool,
    /// The list of that action is in `steps` already.
    pub stored: bool,
    /// The packet has just entered the bridge: no table has been looked up yet.
    pub enters: bool,
    /// Steps that remain to be run.
    pub steps: Vec<FrozenStep>,
}

/// Result of a table lookup for a packet.
enum LookupResult {
    Rule(Arc<Rule>),
    Miss { table: u8, to_controller: bool },
    FragmentDropped { table: u8 },
}

/// One translation.
pub(super) struct Context<'a> {
    pub snapshot: &'a Snapshot,
    pub recirc: &'a RecircTable,
    pub now: Millis,
    pub collect: bool,
    pub tracer: Option<&'a mut Tracer>,

    pub bridge_index: BridgeIndex,
    pub bridge: &'a BridgeView,
    /// The packet's key as OpenFlow sees it now.
    pub key: Key,
    /// The packet's key as the datapath has it after the actions emitted so far.
    pub base: Key,
    /// Bits of the key that the translation depends on so far.
    pub mask: Mask,
    /// VLAN headers of the packet as received.
    pub original_vlans: [Vlan; VLANS],
    /// Packet type of the packet.
    pub original_packet_type: u32,
    /// Depth of the MPLS stack of the packet as received.
    pub original_mpls: usize,
    /// The key does not hold the end of that stack.
    pub is_mpls_endless: bool,
    /// The outer header of the packet as received; `None` when it came out of no tunnel.
    pub received: Option<ReceivedOuter>,
    /// The tunnel fields are those of another bridge's pipeline, or of a frozen one, not those with
    /// which the packet came.
    pub is_tunnel_replaced: bool,
    /// The packet has got the congestion mark of its outer header.
    pub is_congestion_marked: bool,
    /// Tunnel fields of the datapath's packet.
    pub original_tunnel: flow::Tunnel,
    /// `skb_priority` of the packet as received.
    pub original_priority: u32,

    /// Actions emitted so far (of the innermost nested list).
    pub out: Vec<DpAction>,
    emitted: usize,
    pub effects: Vec<Effect>,
    /// Reason why each packet needs a translation of its own.
    pub slow_path: Option<&'static str>,
    /// The packet, when there is one: only effects may depend on it.
    pub packet: Option<&'a Packet>,
    /// Control protocols that take the packet.
    pub claims: Vec<Claim>,
    pub recirc_ids: Vec<RecircRef>,

    /// Table whose rule runs.
    pub table: u8,
    /// Rule whose actions run.
    pub rule: Option<Arc<Rule>>,
    /// Rules of the conjunction that the last lookup has found, for a trace.
    conjunction: Vec<Arc<Rule>>,
    /// Cookie of that rule. It is kept apart because a thawed pipeline has a cookie and no rule.
    pub cookie: u64,
    pub depth: u32,
    resubmits: u32,
    /// Buckets of the groups that have run; each group counts as one more.
    pub buckets: u32,
    /// Number of liveness checks of buckets.
    pub asked_buckets: u32,
    pub stack: Vec<StackEntry>,
    pub action_set: Vec<Action>,
    pub in_group: bool,
    pub in_action_set: bool,
    pub in_packet_out: bool,
    /// The header that the next commit puts on or takes off.
    pub pending: Option<Pending>,
    /// The MPLS stack was popped, and the key does not have the headers below it yet.
    pub was_mpls: bool,
    /// The emitted actions include one that further actions cannot undo.
    pub irreversible: bool,
    /// The packet's `dp_hash` is valid: the datapath has hashed the packet.
    pub hashed: bool,
    /// The datapath's packet has a state of a connection that the pipeline may see; see `ct.rs`.
    pub conntracked: bool,
    /// Mirrors of the present bridge that the packet has gone to.
    pub mirrored: MirrorSet,
    /// Bytes after which the output of a mirrored packet is cut off.
    pub mirror_snaplen: Option<u16>,
    /// Where the packet has gone so far, for NetFlow.
    pub netflow_output: Output,
    /// The next output to a port goes to the datapath's bond with this id.
    pub bond_output: Option<u32>,
    /// The packet has just come in from a port.
    pub is_received: bool,
    /// Outputs so far, for sFlow.
    pub outputs: Outputs,
    /// The sFlow sample of the packet.
    pub sflow: Option<SflowSample>,
    /// The actions have a sample for IPFIX.
    pub has_ipfix: bool,
    /// The spanning tree drops the packet, unless it goes anywhere all the same.
    pub is_tree_drop: bool,
    /// The spanning tree drops the packet, wherever the rules have sent it.
    pub is_discarded: bool,
    /// No more actions run: after `exit`, or because the pipeline is frozen.
    pub exit: bool,
    pub freeze: Option<Freeze>,
    pub error: Option<TranslationError>,
}

/// Handling of a packet that a table has no rule for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OnMiss {
    /// The lookup ends without a rule.
    Nothing,
    /// The next table is looked up where the table's configuration says so; no controller.
    OtherTables,
    /// The table's configuration decides.
    AsConfigured,
}

/// Addresses, IP protocol and ports that a table lookup reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tuple {
    /// Those of the packet.
    Present,
    /// Those of the first packet of the packet's connection.
    Original,
}

impl<'a> Context<'a> {
    pub(super) fn run(request: Request<'a>) -> Translation {
        let original = request.key;
        let bridge_index = request.frozen.as_ref().map_or(request.bridge, |f| f.bridge);
        let Some(bridge) = request.snapshot.bridge(bridge_index) else {
            return Translation {
                mask: final_mask(initial_mask(&original), &original),
                error: Some(TranslationError::BridgeNotFound),
                ..Translation::default()
            };
        };
        let mut ctx = Context {
            snapshot: request.snapshot,
            recirc: request.recirc,
            now: request.now,
            collect: request.effects == EffectsMode::Collect,
            tracer: request.tracer,
            bridge_index,
            bridge,
            key: original,
            // The datapath sends without a tunnel unless actions set one.
            base: Key { tunnel: flow::Tunnel::NONE, ..original },
            mask: initial_mask(&original),
            original_vlans: original.vlans,
            original_packet_type: original.packet_type.get(),
            original_mpls: super::mpls::mpls_entries(&original),
            is_mpls_endless: is_mpls(&original) && !super::mpls::mpls_complete(&original),
            received: ReceivedOuter::of(&original),
            is_tunnel_replaced: false,
            is_congestion_marked: false,
            // Those of a packet-out are set, too: the datapath's packet comes out of no tunnel.
            original_tunnel: match request.actions {
                Some(_) => flow::Tunnel::NONE,
                None => original.tunnel,
            },
            original_priority: original.skb_priority.get(),
            out: Vec::new(),
            emitted: 0,
            effects: Vec::new(),
            slow_path: None,
            packet: request.packet,
            claims: Vec::new(),
            recirc_ids: Vec::new(),
            table: 0,
            rule: None,
            conjunction: Vec::new(),
            cookie: NO_COOKIE,
            depth: 0,
            resubmits: 0,
            buckets: 0,
            asked_buckets: 0,
            stack: Vec::new(),
            action_set: Vec::new(),
            in_group: false,
            in_action_set: false,
            in_packet_out: request.actions.is_some(),
            pending: None,
            was_mpls: false,
            irreversible: false,
            hashed: false,
            conntracked: original.ct_state != 0,
            mirrored: 0,
            mirror_snaplen: None,
            netflow_output: Output::Drop,
            bond_output: None,
            is_received: false,
            outputs: Outputs::default(),
            sflow: None,
            has_ipfix: false,
            is_tree_drop: false,
            is_discarded: false,
            exit: false,
            freeze: None,
            error: None,
        };
        ctx.key.actset_output.set(PortNo::UNSET.0);
        if let Some(t) = ctx.tracer.as_deref_mut() {
            t.begin(&ctx.mask);
        }
        // As in OVS the first line names the bridge that was asked for, also when the pipeline goes
        // on in another.
        let asked = request.snapshot.bridge(request.bridge).unwrap_or(bridge);
        ctx.enter(Kind::Bridge, || format!("bridge(\"{}\")", asked.name));
        match (&request.frozen, request.actions) {
            _ if request.invalid_options => {
                ctx.report(Kind::Error, || "Invalid Geneve tunnel metadata".to_string());
                ctx.error = Some(TranslationError::InvalidTunnelMetadata);
            }
            (Some(frozen), _) => ctx.thaw(frozen),
            (None, _) if original.recirc_id.get() != 0 => {
                let id = original.recirc_id.get();
                ctx.report(Kind::Error, || {
                    format!("Recirculation context not found for ID {id:x}")
                });
                ctx.error = Some(TranslationError::NoRecirculationContext);
            }
            (None, Some(actions)) => {
                let in_port = ctx.in_port();
                let is_reserved = ctx.is_input_reserved();
                if !is_reserved {
                    ctx.begin_sflow();
                    ctx.sample_input();
                }
                if !is_reserved && ctx.may_receive(in_port) {
                    ctx.mirror_input();
                    ctx.do_actions(actions, true);
                    ctx.finish_or_discard(in_port);
                }
            }
            (None, None) => {
                ctx.credit_vport();
                ctx.enter_layer3();
                ctx.is_received = true;
                ctx.first_table(0);
            }
        }
        // A packet that comes back from the datapath has been looked at before.
        if ctx.error.is_none() && original.recirc_id.get() == 0 {
            ctx.output_dhcp_reply(&original);
        }
        ctx.leave();
        if request.frozen.is_none() {
            ctx.account_netflow(bridge, &original);
            ctx.finish_sflow();
        }
        if ctx.error.is_some() || ctx.is_discarded {
            ctx.out.clear();
            ctx.recirc_ids.clear();
        }
        if ctx.has_ipfix {
            mark_dropped(&mut ctx.out);
        }
        if ctx.snapshot.has_sampled_drops && ends_sampled(&ctx.out) {
            ctx.out.push(DpAction::Drop(DropReason::Flow));
        }
        if ctx.error.is_none() && ctx.is_tree_drop && ctx.out.is_empty() {
            ctx.out.push(DpAction::Drop(DropReason::ForwardingDisabled));
        }
        if let Some(t) = ctx.tracer.as_deref_mut() {
            t.finish(&ctx.key, !ctx.collect);
        }
        Translation {
            actions: without_last_clone(ctx.out),
            mask: final_mask(ctx.mask, &original),
            effects: ctx.effects,
            slow_path: ctx.slow_path,
            claims: ctx.claims,
            error: ctx.error,
            recirc_ids: ctx.recirc_ids,
        }
    }

    /// Runs the pipeline from table `first` on for a packet from a port, unless the port's settings
    /// forbid it.
    pub(super) fn first_table(&mut self, first: u8) {
        let in_port = PortNo(self.key.in_port.get());
        let may_receive = self.may_receive(in_port);
        let found = self.lookup_by(Tuple::Present, in_port, first, OnMiss::AsConfigured);
        let allowed = may_receive && self.decapsulate_ecn();
        let names = self.names();
        self.enter(Kind::Table, || found.text(found.table(), names));
        self.report_conjunction();
        let is_reserved = self.is_input_reserved();
        let is_claimed = self.is_claimed(in_port);
        // Sampled once, where the packet comes in, and mirrored also for a protocol, as in OVS.
        if std::mem::take(&mut self.is_received) && !is_reserved && !is_claimed {
            self.begin_sflow();
            self.sample_input();
        }
        let allowed = !is_claimed && !is_reserved && allowed;
        if is_claimed || allowed {
            self.mirror_input();
        }
        self.run_found(&found, false, true, allowed);
        if allowed {
            // The action set belongs to the packet's first rule, whichever rule wrote to it.
            if let LookupResult::Rule(rule) = &found {
                self.cookie = rule.cookie;
            }
            self.finish_or_discard(in_port);
        }
        self.leave();
    }

    /// Ends the pipeline of a packet from `port`. Where the spanning tree does not let the port
    /// forward yet, the packet ends here: NORMAL has learned from it.
    pub(super) fn finish_or_discard(&mut self, port: PortNo) {
        if self.error.is_none() && self.port(port).is_some_and(|port| !port.forwards()) {
            self.freeze = None;
            (self.is_tree_drop, self.is_discarded) = (true, true);
        } else {
            self.finish_level();
        }
    }

    /// Ends a pipeline: runs the action set, or completes the freeze.
    pub(super) fn finish_level(&mut self) {
        if self.freeze.is_none() {
            self.run_action_set();
        }
        if self.freeze.is_some() {
            self.finish_freezing();
        }
    }

    /// Returns false when OFPPC_NO_RECV or NO_RECV_STP of `port`, or its state in the spanning tree,
    /// forbids the packet. As in OVS all hold for the port of a packet-out, too. Rules see packets
    /// from a port that learns and does not forward yet: NORMAL has addresses to learn.
    pub(super) fn may_receive(&mut self, port: PortNo) -> bool {
        let Some(view) = self.port(port) else { return true };
        let is_allowed = self.may_receive_by_config(view.config);
        self.is_tree_drop |= !view.learns();
        is_allowed && view.learns()
    }

    fn may_receive_by_config(&mut self, config: PortConfig) -> bool {
        let both = PortConfig::NO_RECV | PortConfig::NO_RECV_STP;
        if !config.intersects(both) {
            return true;
        }
        if config.contains(both) {
            return false; // for any destination
        }
        self.mask.set_exact(flow::Field::EthDst);
        let is_stp = is_bpdu(&self.key);
        !config.contains(if is_stp { PortConfig::NO_RECV_STP } else { PortConfig::NO_RECV })
    }

    /// Returns true when a control protocol of `port` takes the packet: then no rule handles it.
    pub(super) fn is_claimed(&mut self, port: PortNo) -> bool {
        let protocols = self.port(port).map_or(&[][..], |p| &p.protocols);
        for protocol in protocols {
            if protocol.claims(&self.key, &mut self.mask) {
                self.claims.push(Claim { protocol: Arc::clone(protocol), port });
                return true;
            }
        }
        false
    }

    /// Returns the port of the present bridge with this number.
    pub(super) fn port(&self, number: PortNo) -> Option<&'a PortView> {
        self.bridge.ports.get(&number)
    }

    /// Returns the packet's OpenFlow input port.
    pub(super) fn in_port(&self) -> PortNo {
        PortNo(self.key.in_port.get())
    }

    pub(super) fn effect(&mut self, effect: impl FnOnce() -> Effect) {
        if self.collect {
            self.effects.push(effect());
        }
    }

    /// Adds a datapath action.
    pub(super) fn emit(&mut self, action: DpAction) {
        self.emitted += 1;
        if self.emitted > MAX_ACTIONS {
            if self.error.is_none() {
                self.fail(TranslationError::TooManyActions, || {
                    format!("over {MAX_ACTIONS} datapath actions")
                });
            }
            return;
        }
        self.irreversible |= matches!(
            action,
            DpAction::Meter(_) | DpAction::AddMpls { .. } | DpAction::PushNsh(_) | DpAction::PopNsh
        );
        self.out.push(action);
    }

    /// Runs `inside`, whose changes to the packet are undone afterwards: by further actions, or in
    /// a datapath clone when `inside` made a change that cannot be undone.
    pub(super) fn isolated(&mut self, inside: impl FnOnce(&mut Self)) {
        if self.pending.is_some() {
            self.commit(); // else the copy and the packet would each get the header
        }
        let (base, conntracked) = (self.base, self.conntracked);
        let outer = std::mem::take(&mut self.irreversible);
        let inner = self.nested(inside);
        self.pending = None;
        if std::mem::replace(&mut self.irreversible, outer) {
            self.base = base;
            self.conntracked = conntracked;
            self.emit_copy(inner);
        } else {
            self.out.extend(inner);
        }
    }

    /// Runs `inside`, whose changes to the packet are those of a datapath clone, if it emits any
    /// action.
    pub(super) fn copied(&mut self, inside: impl FnOnce(&mut Self)) {
        self.commit();
        let (base, conntracked) = (self.base, self.conntracked);
        let irreversible = self.irreversible;
        let inner = self.nested(inside);
        self.pending = None;
        self.base = base;
        self.conntracked = conntracked;
        self.irreversible = irreversible;
        if !inner.is_empty() {
            self.emit_copy(inner);
        }
    }

    /// Adds the datapath action that runs a list on a copy of the packet.
    fn emit_copy(&mut self, actions: Vec<DpAction>) {
        match self.snapshot.withheld.copy(actions) {
            Some(action) => self.emit(action),
            None => {
                self.report(Kind::Error, || "Failed to compose clone action".to_string());
            }
        }
    }

    /// Records that each packet needs an upcall when a feature is withheld from translation.
    pub(super) fn needs_feature(&mut self, is_withheld: bool) {
        if is_withheld {
            self.slow_path = Some(ACTION);
        }
    }

    /// Runs `inside` with an empty list of datapath actions and returns what it emitted.
    pub(super) fn nested(&mut self, inside: impl FnOnce(&mut Self)) -> Vec<DpAction> {
        let outer = std::mem::take(&mut self.out);
        inside(self);
        std::mem::replace(&mut self.out, outer)
    }

    /// Ends the translation with an error.
    pub(super) fn fail(&mut self, error: TranslationError, text: impl FnOnce() -> String) {
        self.report(Kind::Error, text);
        self.error = Some(error);
    }

    /// Returns the names of the present bridge's ports, when the trace shows names.
    pub(super) fn names(&self) -> PortNames<'a> {
        self.tracer.as_deref().map_or_else(PortNames::default, |t| t.names(Some(self.bridge)))
    }

    pub(super) fn report(&mut self, kind: Kind, text: impl FnOnce() -> String) {
        if let Some(t) = self.tracer.as_deref_mut() {
            t.add(kind, text());
        }
    }

    /// Reports a line. Later reports are placed below it until [`Context::leave`].
    pub(super) fn enter(&mut self, kind: Kind, text: impl FnOnce() -> String) {
        if let Some(t) = self.tracer.as_deref_mut() {
            t.enter(kind, text());
            t.looked(&self.mask);
        }
    }

    pub(super) fn leave(&mut self) {
        if let Some(t) = self.tracer.as_deref_mut() {
            t.looked(&self.mask);
            t.leave();
        }
    }

    /// Returns true when one more level may be entered, else ends the translation with an error.
    pub(super) fn may_recurse(&mut self) -> bool {
        if self.error.is_some() {
            return false;
        }
        let stack_bytes: usize = self.stack.iter().map(|e| usize::from(e.bits).div_ceil(8)).sum();
        if self.depth >= MAX_DEPTH {
            self.fail(TranslationError::RecursionTooDeep, || {
                format!("over max translation depth {MAX_DEPTH}")
            });
        } else if self.resubmits >= MAX_RESUBMITS {
            self.fail(TranslationError::TooManyResubmits, || {
                format!("over {MAX_RESUBMITS} resubmit actions")
            });
        } else if stack_bytes >= MAX_STACK_BYTES {
            self.fail(TranslationError::StackTooDeep, || {
                "resubmits yielded over 64 kB of stack".to_string()
            });
        } else {
            return true;
        }
        false
    }

    /// Looks the packet up in `table` as if its input port were `in_port`, and runs the rule. With
    /// `cloned` the changes that the rule makes are undone afterwards.
    pub(super) fn table_action(
        &mut self,
        tuple: Tuple,
        in_port: PortNo,
        table: u8,
        on_miss: OnMiss,
        cloned: bool,
        last: bool,
    ) {
        if self.freeze_again_for_mpls() || !self.may_recurse() {
            return;
        }
        if tuple == Tuple::Original && !self.has_original_tuple() {
            self.report(Kind::Error, || {
                "resubmit(ct) with non-tracked or non-IP packet!".to_string()
            });
            return;
        }
        self.resubmits += 1;
        let deeper = u32::from(table <= self.table);
        self.depth += deeper;
        self.run_table(tuple, in_port, table, on_miss, cloned, last);
        self.depth -= deeper;
    }

    /// Returns true when the packet has the tuple of a connection's first packet. IP protocol 0
    /// means none, as in OVS. The protocol decides, so it becomes exact: the state alone does not
    /// rule out a connection of protocol 0. The Ethernet type is exact in every megaflow.
    fn has_original_tuple(&mut self) -> bool {
        if !Prerequisite::IpAny.holds(&self.key) {
            return false;
        }
        self.mask.0.ct_nw_proto = u8::MAX;
        self.key.ct_nw_proto != 0
    }

    /// Does the same as [`Context::table_action`] without counting towards a limit: a packet that
    /// comes back starts like one from a port.
    pub(super) fn run_table(
        &mut self,
        tuple: Tuple,
        in_port: PortNo,
        table: u8,
        on_miss: OnMiss,
        cloned: bool,
        last: bool,
    ) {
        let old_table = self.table;
        let found = self.lookup_by(tuple, in_port, table, on_miss);
        let names = self.names();
        // As in OVS the trace shows the table of the first lookup. For a packet from a port it
        // shows that of the last (`first_table`).
        self.enter(Kind::Table, || found.text(table, names));
        self.report_conjunction();
        on_stack(|| self.run_found(&found, cloned, last, true));
        self.leave();
        self.table = old_table;
    }

    /// Reports the rules of the conjunction that the last lookup has found.
    pub(super) fn report_conjunction(&mut self) {
        let names = self.names();
        for rule in std::mem::take(&mut self.conjunction) {
            self.report(Kind::Detail, || crate::trace::conjunction_text(&rule, names));
        }
    }

    /// Looks `tuple` of the packet up. A swapped tuple needs a swapped mask: the bits that the
    /// lookup reads are those of the connection's first packet.
    fn lookup_by(
        &mut self,
        tuple: Tuple,
        in_port: PortNo,
        first: u8,
        on_miss: OnMiss,
    ) -> LookupResult {
        if let Some(t) = self.tracer.as_deref_mut() {
            t.looked(&self.mask); // bits that the rule before this lookup has read
        }
        let mut key = self.key;
        key.in_port.set(in_port.0);
        match tuple {
            Tuple::Present => self.lookup(key, in_port, first, on_miss),
            Tuple::Original => {
                let dl_type = key.dl_type.get();
                key.swap_tuple(dl_type);
                self.mask.0.swap_tuple(dl_type);
                let found = self.lookup(key, in_port, first, on_miss);
                self.mask.0.swap_tuple(dl_type);
                found
            }
        }
    }

    fn lookup(
        &mut self,
        mut key: Key,
        in_port: PortNo,
        first: u8,
        on_miss: OnMiss,
    ) -> LookupResult {
        let config = &self.bridge.config;
        if key.nw_frag & FRAG_ANY != 0 && config.frag_handling != FRAG_NX_MATCH {
            if config.frag_handling == FRAG_DROP {
                self.table = first;
                return LookupResult::FragmentDropped { table: first };
            }
            // OpenFlow 1.0: fragments have no transport ports.
            key.tp_src.set(0);
            key.tp_dst.set(0);
        }
        let mut table = first;
        loop {
            self.table = table;
            let view = self.bridge.tables.get(usize::from(table));
            let members = &mut self.conjunction;
            members.clear();
            let is_traced = self.tracer.is_some();
            let member = |rule: &Arc<Rule>| {
                if is_traced {
                    members.push(Arc::clone(rule));
                }
            };
            let rule = view.and_then(|v| v.rules.lookup_with(&mut key, &mut self.mask, member));
            key.conj_id.set(0);
            if let Some(view) = view {
                let stats = Arc::clone(&view.stats);
                self.effect(|| Effect::Table { stats, matched: rule.is_some() });
            }
            if let Some(rule) = rule {
                return LookupResult::Rule(Arc::clone(rule));
            }
            let miss = view.map_or(TableMiss::Drop, |v| v.miss);
            let next = table.saturating_add(1);
            let has_next = next != INTERNAL_TABLE && usize::from(next) < self.bridge.tables.len();
            let to_controller = match miss {
                TableMiss::Continue if has_next && on_miss != OnMiss::Nothing => {
                    table = next;
                    continue;
                }
                _ if on_miss != OnMiss::AsConfigured => false,
                // After the last table only the controller can take the packet.
                TableMiss::Controller | TableMiss::Continue => self.port(in_port).is_some(),
                TableMiss::Default => config.miss_to_controller,
                TableMiss::Drop => false,
            };
            let quiet =
                self.port(in_port).is_some_and(|p| p.config.contains(PortConfig::NO_PACKET_IN));
            return LookupResult::Miss { table, to_controller: to_controller && !quiet };
        }
    }

    fn run_found(&mut self, found: &LookupResult, cloned: bool, last: bool, run: bool) {
        let (rule, actions): (Option<Arc<Rule>>, Actions) = match found {
            LookupResult::Rule(rule) => (Some(Arc::clone(rule)), Arc::clone(&rule.actions)),
            LookupResult::Miss { to_controller: true, .. } => (None, Arc::from([miss_action()])),
            LookupResult::Miss { .. } | LookupResult::FragmentDropped { .. } => {
                (None, Arc::from([]))
            }
        };
        let counted = rule.clone().or_else(|| self.internal_rule(found));
        if let Some(rule) = counted {
            self.effect(|| Effect::Rule(rule));
        }
        if run {
            let cookie = rule.as_ref().map_or(0, |r| r.cookie);
            let old_cookie = std::mem::replace(&mut self.cookie, cookie);
            let old_rule = std::mem::replace(&mut self.rule, rule);
            // The rule's actions do not belong to a bucket.
            let in_group = std::mem::replace(&mut self.in_group, false);
            if cloned {
                self.clone_actions(&actions, last);
            } else {
                self.do_actions(&actions, last);
            }
            self.in_group = in_group;
            self.rule = old_rule;
            self.cookie = old_cookie;
        }
    }

    /// Returns the rule of [`INTERNAL_TABLE`] that counts a packet without a matching rule.
    fn internal_rule(&self, found: &LookupResult) -> Option<Arc<Rule>> {
        let why = match found {
            LookupResult::Rule(_) => return None,
            _ if !self.collect => return None,
            LookupResult::Miss { to_controller: true, .. } => 1,
            LookupResult::Miss { .. } => 2,
            LookupResult::FragmentDropped { .. } => 3,
        };
        let mut key = Key::ZERO;
        key.recirc_id.set(u32::MAX); // a resubmitted packet has 0
        key.regs[0].set(why);
        let table = self.bridge.tables.get(usize::from(INTERNAL_TABLE))?;
        table.rules.lookup(&mut key, &mut Mask::WILDCARD.clone()).map(Arc::clone)
    }

    /// Returns the data that a packet-in from here carries in addition to the packet.
    pub(super) fn frozen_packet_in(&self, userdata: &[u8], reason: u8) -> FrozenPacketIn {
        let missed = matches!(
            PacketInReason::from_number(reason),
            Some(PacketInReason::NoMatch | PacketInReason::ImplicitMiss)
        );
        FrozenPacketIn { userdata: Arc::from(userdata), table_miss: missed || self.in_miss_rule() }
    }

    /// Returns true when the present rule is its table's table-miss flow (OpenFlow 1.5.1, 5.4).
    pub(super) fn in_miss_rule(&self) -> bool {
        self.rule.as_ref().is_some_and(|r| {
            r.priority == 0 && !r.hidden && r.matching.expand().mask().is_wildcard()
        })
    }
}

/// Returns the action that a table miss runs when it goes to the controllers.
pub(crate) fn miss_action() -> Action {
    Action::Controller(Box::new(Controller {
        max_len: u16::MAX,
        controller_id: 0,
        reason: PacketInReason::ImplicitMiss as u8,
        userdata: Vec::new(),
        pause: false,
        meter_id: u32::MAX,
    }))
}

impl LookupResult {
    /// Returns the table where the lookup ended. It differs from the first one where a table miss
    /// continues with the next table.
    fn table(&self) -> u8 {
        match self {
            LookupResult::Rule(rule) => rule.table,
            LookupResult::Miss { table, .. } | LookupResult::FragmentDropped { table } => *table,
        }
    }

    /// Returns the line of `ofproto/trace`, with `table` as the number of the table.
    fn text(&self, table: u8, names: PortNames<'_>) -> String {
        match self {
            LookupResult::Rule(rule) => crate::trace::rule_text(rule, table, names),
            LookupResult::Miss { to_controller: true, .. } => {
                format!("{table:2}. No match, and a \"packet-in\" is called for.")
            }
            LookupResult::Miss { .. } => format!("{table:2}. No match."),
            LookupResult::FragmentDropped { .. } => {
                format!(
                    "{table:2}. Packets are IP fragments and the fragment handling mode is \"drop\"."
                )
            }
        }
    }
}

/// Runs a closure that may nest deeply, on a new piece of stack where little of the old is left.
pub(super) fn on_stack<T>(run: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK_LEFT, STACK_MORE, run)
}

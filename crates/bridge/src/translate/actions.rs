// SPDX-License-Identifier: Apache-2.0
//! Lists of actions: one after the other, the action set, clones, branches on length.

use super::context::{ACTION, Context, Freeze, OnMiss, Tuple, on_stack};
use super::fields::mac_value;
use super::freeze::Segment;
use super::hash::{choose_link, hash_fields, score};
use crate::effect::Effect;
use crate::trace::{Kind, PortNames, action_text, actions_text};
use datapath::Action as DpAction;
use flow::Field;
use openflow::PortNo;
use openflow::action::{Action, ActionSetSlot, Bundle, BundleAlgorithm, Multipath};
use std::sync::Arc;

/// Effect of an action on the rest of its list.
enum ListProgress {
    Continue,
    /// The rest of this list is not run (an invalid TTL).
    Stop,
}

impl Context<'_> {
    /// Runs a list of actions. `last` means that only the action set follows in the whole pipeline.
    pub(super) fn do_actions(&mut self, actions: &[Action], last: bool) {
        self.do_list(actions, last, &[]);
    }

    /// Does the same as [`Context::do_actions`] for a list that the parts `behind` follow. Returns
    /// true when an action has run these parts, too.
    pub(super) fn do_list(&mut self, actions: &[Action], last: bool, behind: &[Segment]) -> bool {
        if actions.is_empty() {
            self.report(Kind::Action, || "drop".to_string());
        }
        for (i, action) in actions.iter().enumerate() {
            if self.error.is_some() {
                return false;
            }
            let rest = actions.get(i + 1..).unwrap_or_default();
            self.freeze_for_mpls(action);
            if self.exit {
                // `exit`, or frozen: then this and the rest are to be done later.
                self.freeze_rest(actions.get(i..).unwrap_or_default());
                return false;
            }
            let names = self.names();
            self.report(Kind::Action, || action_text(action, names));
            // An action that runs the rest of the list itself.
            if let Action::CheckPktLarger { len, dst } = action {
                self.check_packet_length(*len, dst, rest, behind);
                return true;
            }
            match self.do_action(action, last && rest.is_empty()) {
                ListProgress::Continue => {}
                ListProgress::Stop => return false,
            }
            // This action froze the pipeline, and not an action of a list that it ran.
            if let Some(freeze) = &self.freeze
                && !freeze.stored
            {
                let from = if freeze.again { i } else { i + 1 };
                self.freeze_rest(actions.get(from..).unwrap_or_default());
                return false;
            }
        }
        false
    }

    fn do_action(&mut self, action: &Action, last: bool) -> ListProgress {
        match action {
            Action::Output { port, max_len } => self.output(*port, *max_len, true, last),
            Action::OutputReg { src, max_len } => {
                let value = src.load(&self.key);
                src.set_exact(&mut self.mask);
                match u16::try_from(value) {
                    Ok(port) => {
                        self.report(Kind::Detail, || format!("output port is {port}"));
                        self.output(PortNo::from_u16(port), *max_len, false, last);
                    }
                    Err(_) => self
                        .report(Kind::Warning, || format!("output port {value} is out of range")),
                }
            }
            Action::OutputTrunc { port, max_len } => self.output_truncated(*port, *max_len),
            Action::Controller(c) if c.pause => {
                self.start_freezing(Freeze { pause: Some(c.clone()), ..Freeze::default() });
            }
            Action::Controller(c) => self.controller(c),
            Action::Enqueue { port, queue } => self.enqueue(*port, *queue),
            Action::Bundle(b) => self.bundle_action(b, last),
            Action::Group(id) => self.group(*id, last),
            Action::Ct(ct) => self.ct(ct),
            // Only in a `ct`, which runs it.
            Action::Nat(_) => {}
            Action::CtClear => self.ct_clear(),
            Action::DebugSlow => self.slow_path = Some(ACTION),
            Action::DebugRecirc => self.start_freezing(Freeze::default()),
            Action::Meter(id) => {
                if let Some(meter) = self.bridge.meters.get(id).copied() {
                    self.commit();
                    self.emit(DpAction::Meter(meter));
                }
            }
            Action::SetQueue(queue) => {
                // The packet's own priority decides whether the priority is set.
                self.mask.0.skb_priority.set(u32::MAX);
                // As in OVS, a queue that cannot exist changes nothing.
                if let Some(priority) = self.snapshot.queues.priority(*queue) {
                    self.key.skb_priority.set(priority);
                }
            }
            Action::PopQueue => {
                let priority = self.original_priority;
                self.mask.0.skb_priority.set(u32::MAX);
                if self.key.skb_priority.get() != priority {
                    self.key.skb_priority.set(priority);
                    let text = || format!("queue = {priority:#x}").replace("0x0", "0");
                    self.report(Kind::Detail, text);
                }
            }
            Action::FinTimeout { idle, hard } => {
                self.mask.0.nw_proto = u8::MAX;
                // The TCP flags of the packet as received decide, whatever the actions have changed
                // since. A packet that is not TCP has none.
                if let Some(rule) = self.rule.clone() {
                    self.effect(|| Effect::FinTimeout { rule, idle: *idle, hard: *hard });
                }
            }
            Action::Resubmit { port, table, original_tuple } => {
                let port = match port {
                    Some(p) if *p != PortNo::IN_PORT => *p,
                    _ => self.in_port(),
                };
                // 255 is "this table" on the wire.
                let table = table.filter(|t| *t != 255).unwrap_or(self.table);
                let tuple = if *original_tuple { Tuple::Original } else { Tuple::Present };
                self.table_action(tuple, port, table, OnMiss::Nothing, false, last);
            }
            Action::GotoTable(table) => {
                let port = self.in_port();
                self.table_action(Tuple::Present, port, *table, OnMiss::AsConfigured, false, last);
            }
            Action::Learn(learn) => self.learn(learn),
            Action::Multipath(m) => self.multipath(m),
            // Inert.
            Action::Conjunction { .. } | Action::Note(_) => {}
            Action::Exit => self.exit = true,
            Action::Sample {
                probability,
                collector_set,
                obs_domain,
                obs_point,
                sampling_port,
                direction,
            } => {
                let ids = [*obs_domain, *obs_point];
                self.sample(*probability, *collector_set, ids, *sampling_port, *direction);
            }
            Action::Clone(actions) => self.clone_actions(actions, last),
            Action::ClearActions => {
                let old = std::mem::take(&mut self.action_set);
                self.key.actset_output.set(PortNo::UNSET.0);
                let names = self.names();
                self.report(Kind::Detail, || action_set_text("was", &old, names));
            }
            Action::WriteActions(actions) => self.write_actions(actions),
            Action::WriteMetadata { value, mask } => {
                let old = self.key.metadata.get();
                self.key.metadata.set(old & !mask | value & mask);
            }
            Action::DecTtl { controllers } => {
                if self.dec_ttl(controllers) {
                    return ListProgress::Stop;
                }
            }
            Action::DecMplsTtl => {
                if self.dec_mpls_ttl() {
                    return ListProgress::Stop;
                }
            }
            Action::Encap(encap) => self.encap(encap),
            Action::Decap { packet_type } => self.decap(*packet_type),
            Action::DecNshTtl => {
                if self.dec_nsh_ttl() {
                    return ListProgress::Stop;
                }
            }
            // The caller runs it, with the rest of the list.
            Action::CheckPktLarger { .. } => {}
            Action::SetField { field, value, mask, .. } => self.set_field(*field, *value, *mask),
            Action::SetOption(set) => self.set_option(set.field, &set.value, &set.mask),
            Action::DeleteField(field) => self.delete_option(*field),
            Action::SetTunnel { id, .. } => self.set_whole(Field::TunId, (*id).into()),
            Action::Move { src, dst } => self.move_field(src, dst),
            Action::StackPush(src) => self.push(src),
            Action::StackPop(dst) => self.pop(dst),
            Action::SetVlanVid { vid, push_if_missing } => {
                self.set_vlan(0x0fff, *vid & 0x0fff, *push_if_missing)
            }
            Action::SetVlanPcp { pcp, push_if_missing } => {
                self.set_vlan(0xe000, u16::from(*pcp & 7) << 13, *push_if_missing);
            }
            Action::PopVlan { .. } => self.pop_vlan(),
            Action::PushVlan { tpid } => self.push_vlan(*tpid),
            Action::SetEthSrc(mac) => self.set_whole(Field::EthSrc, mac_value(mac)),
            Action::SetEthDst(mac) => self.set_whole(Field::EthDst, mac_value(mac)),
            Action::SetIpv4Src(a) => self.set_whole(Field::Ipv4Src, (*a).into()),
            Action::SetIpv4Dst(a) => self.set_whole(Field::Ipv4Dst, (*a).into()),
            Action::SetIpDscp(v) => self.set_whole(Field::IpDscp, (*v & 0xfc).into()),
            Action::SetIpEcn(v) => self.set_whole(Field::IpEcn, (*v & 3).into()),
            Action::SetIpTtl(v) => self.set_whole(Field::IpTtl, (*v).into()),
            Action::SetL4Src(v) => self.set_port(true, *v),
            Action::SetL4Dst(v) => self.set_port(false, *v),
            Action::PushMpls { ethertype } => self.push_mpls(*ethertype),
            Action::PopMpls { ethertype } => self.pop_mpls(*ethertype),
            Action::SetMplsLabel(v) => self.set_whole(Field::MplsLabel, (*v).into()),
            Action::SetMplsTc(v) => self.set_whole(Field::MplsTc, (*v).into()),
            Action::SetMplsTtl(v) => self.set_whole(Field::MplsTtl, (*v).into()),
        }
        ListProgress::Continue
    }

    /// Runs `enqueue:PORT:QUEUE`. As in OVS, a queue that cannot exist leaves an ordinary output.
    fn enqueue(&mut self, port: PortNo, queue: u32) {
        let Some(priority) = self.snapshot.queues.priority(queue) else {
            return self.output(port, 0, false, false);
        };
        let in_port = self.in_port();
        let target = match port {
            PortNo::IN_PORT => in_port,
            p if p == in_port => return,
            p => p,
        };
        let old = self.key.skb_priority;
        self.mask.0.skb_priority.set(u32::MAX);
        self.key.skb_priority.set(priority);
        self.output_port(target, None);
        self.key.skb_priority = old;
    }

    /// Runs `write_actions(...)`.
    fn write_actions(&mut self, actions: &[Action]) {
        for a in actions {
            if let Action::Group(_) = a {
                self.key.actset_output.set(PortNo::UNSET.0);
            }
            if let Action::Output { port, .. } = a
                && !self.action_set.iter().any(|a| matches!(a, Action::Group(_)))
            {
                self.key.actset_output.set(port.0);
            }
            self.action_set.push(a.clone());
        }
        let names = self.names();
        let set = &self.action_set;
        if let Some(t) = self.tracer.as_deref_mut() {
            t.add(Kind::Detail, action_set_text("is", set, names));
        }
    }

    /// Runs the action set and empties it. After `exit` it does nothing, as in OVS, whose manual
    /// says otherwise.
    pub(super) fn run_action_set(&mut self) {
        let set = std::mem::take(&mut self.action_set);
        let list = ordered_set(&set);
        if list.is_empty() {
            return;
        }
        self.in_action_set = true;
        self.enter(Kind::Table, || "--. Executing action set:".to_string());
        self.do_actions(&list, true);
        self.leave();
        self.in_action_set = false;
    }

    /// Runs `clone(...)`, and rules reached through patch ports: the changes of the actions are
    /// undone afterwards. A datapath clone is emitted only when the actions contain a change that
    /// further actions cannot undo. The decoder bounds the nesting of lists.
    ///
    /// As in OVS, an action that ends the list (`exit`, a packet that comes back) ends the list
    /// that contains the clone, too. Labels that were taken off without a datapath clone count as
    /// popped after the clone.
    pub(super) fn clone_actions(&mut self, actions: &[Action], last: bool) {
        let in_group = std::mem::replace(&mut self.in_group, false);
        let key = self.key;
        let was_mpls = self.was_mpls;
        let stack = self.stack.clone();
        let action_set = self.action_set.clone();
        if actions.iter().all(Action::is_reversible) || (last && self.action_set.is_empty()) {
            self.isolated(|ctx| {
                ctx.do_actions(actions, last);
                ctx.finish_level();
            });
        } else {
            self.copied(|ctx| {
                ctx.do_actions(actions, true);
                ctx.finish_level();
            });
            self.was_mpls = was_mpls;
        }
        self.in_group = in_group;
        self.key = key;
        self.stack = stack;
        self.action_set = action_set;
    }

    /// Runs `check_pkt_larger(LEN)->DST`: the rest of the list runs in both branches. An end of the
    /// first branch also ends the lists that follow both branches, as in OVS.
    fn check_packet_length(
        &mut self,
        len: u16,
        dst: &flow::Subfield,
        rest: &[Action],
        behind: &[Segment],
    ) {
        if self.error.is_some() {
            return;
        }
        let rest =
            Segment { table: self.table, cookie: self.cookie, actions: rest, restores: false };
        // An empty list drops the packet; other lists may follow.
        let is_part = !rest.actions.is_empty() || behind.is_empty();
        let parts: Vec<Segment> =
            is_part.then_some(rest).into_iter().chain(behind.iter().copied()).collect();
        self.commit();
        let there = self.has(dst.field);
        dst.set_exact(&mut self.mask);
        let key = self.key;
        let (base, conntracked) = (self.base, self.conntracked);
        let was_mpls = self.was_mpls;
        let stack = self.stack.clone();
        let action_set = self.action_set.clone();
        let branch = |ctx: &mut Self, larger: u128| {
            if there {
                dst.store(&mut ctx.key, larger);
                ctx.normalize_vlan();
            }
            let run = |ctx: &mut Self| {
                ctx.do_segments(&parts);
                ctx.finish_level();
            };
            let actions = on_stack(|| ctx.nested(run));
            ctx.key = key;
            ctx.pending = None;
            (ctx.base, ctx.conntracked) = (base, conntracked);
            ctx.was_mpls = was_mpls;
            ctx.stack.clone_from(&stack);
            ctx.action_set.clone_from(&action_set);
            (actions, std::mem::take(&mut ctx.exit))
        };
        if self.snapshot.withheld.check_pkt_len {
            // Each packet comes here; without a packet, as in a trace of a flow, none is longer.
            self.slow_path = Some(ACTION);
            let longest = self.packet.map_or(0, |packet| packet.len());
            let (actions, exit) = branch(self, u128::from(longest > usize::from(len)));
            self.exit = exit;
            self.action_set.clear();
            self.out.extend(actions);
            return;
        }
        let (greater, exit) = branch(self, 1);
        let (not_greater, _) = branch(self, 0);
        self.exit = exit;
        // The action set ran in both branches.
        self.action_set.clear();
        self.emit(DpAction::CheckPktLen { len, greater, not_greater });
    }

    fn multipath(&mut self, m: &Multipath) {
        let hash = hash_fields(m.fields, m.basis.into(), &self.key, &mut self.mask);
        let link = choose_link(m.algorithm, hash, m.max_link, m.arg);
        self.write_subfield(&m.dst, link.into());
    }

    /// Runs `bundle(...)` and `bundle_load(...)`.
    fn bundle_action(&mut self, b: &Bundle, last: bool) {
        // A reserved port number, which names no single port, counts as live.
        let live = |ctx: &Self, p: PortNo| match p {
            PortNo::IN_PORT
            | PortNo::TABLE
            | PortNo::NORMAL
            | PortNo::FLOOD
            | PortNo::ALL
            | PortNo::NONE => true,
            p => ctx.port(p).is_some_and(|p| p.live),
        };
        let chosen = match b.algorithm {
            BundleAlgorithm::ActiveBackup => b.members.iter().copied().find(|p| live(self, *p)),
            BundleAlgorithm::Hrw => {
                let hash = hash_fields(b.fields, b.basis.into(), &self.key, &mut self.mask);
                let members = b.members.iter().zip(0u32..).filter(|(p, _)| live(self, **p));
                members.max_by_key(|(_, i)| score(hash, *i)).map(|(p, _)| *p)
            }
        };
        let port = chosen.unwrap_or(PortNo::NONE);
        match &b.dst {
            // The number in 16 bits, as in OpenFlow 1.0.
            Some(dst) => self.write_subfield(dst, port.to_u16().unwrap_or(0xffff).into()),
            None => self.output(port, 0, false, last),
        }
    }

    pub(super) fn group(&mut self, id: u32, last: bool) {
        let Some(group) = self.bridge.groups.get(&id).map(Arc::clone) else {
            self.report(Kind::Warning, || format!("output to nonexistent group {id}"));
            return;
        };
        self.run_group(&group, last);
    }
}

/// Returns the trace's text for an action set: the actions of the set that would run.
fn action_set_text(verb: &str, set: &[Action], names: PortNames<'_>) -> String {
    let list = ordered_set(set);
    match list.is_empty() {
        true => format!("action set {verb} empty"),
        false => format!("action set {verb}: {}", actions_text(&list, names)),
    }
}

/// Returns the actions of an action set in the order in which OpenFlow runs them; see
/// [`ActionSetSlot`]. A set without output, group or resubmit gives no actions. As in OVS a set has
/// no place for meters.
pub(super) fn ordered_set(set: &[Action]) -> Vec<Action> {
    let last = |slot| set.iter().rev().find(|a| a.action_set_slot() == Some(slot)).cloned();
    let Some(end) = ActionSetSlot::ENDS.into_iter().find_map(last) else { return Vec::new() };
    let is_set = |a: &&Action| a.action_set_slot() == Some(ActionSetSlot::Set);
    ActionSetSlot::BEFORE_SETS
        .into_iter()
        .filter_map(last)
        .chain(set.iter().filter(is_set).cloned())
        .chain([end])
        .collect()
}

// SPDX-License-Identifier: Apache-2.0
//! Execution of actions on a batch of packets.

use crate::ct::Resumed;
use crate::edit;
use crate::engine::{Engine, Work};
use crate::shared::Shared;
use datapath::{Action, DropReason, PortNo, RECIRCULATION_LIMIT, Set, UpcallKind, Userdata};
use packet::{MplsEntry, ethertype};
use tunnel::{ETHERTYPE_TEB, Payload};

impl Engine {
    /// Runs a whole action list. An empty list is a drop.
    pub(crate) fn run_all(
        &mut self,
        shared: &Shared,
        batch: Vec<Work>,
        actions: &[Action],
        depth: u32,
    ) {
        if actions.is_empty() {
            shared.drops.add(DropReason::Flow, batch.len() as u64);
        }
        self.run(shared, batch, actions, depth);
    }

    /// Runs `actions` on each packet of `batch`, in order. The last action may consume the packets;
    /// an earlier one that needs packets of its own copies them.
    fn run(&mut self, shared: &Shared, mut batch: Vec<Work>, actions: &[Action], depth: u32) {
        let mut rest = actions;
        while let Some((action, tail)) = rest.split_first() {
            rest = tail;
            if batch.is_empty() {
                return;
            }
            let last = tail.is_empty();
            match action {
                Action::Output(port) => self.output_batch(shared, &mut batch, *port, last),
                Action::LbOutput(id) => self.lb_output(shared, &mut batch, *id, last),
                Action::Drop(reason) => {
                    shared.drops.add(*reason, batch.len() as u64);
                    break;
                }
                Action::Userspace(data) => self.userspace(shared, &mut batch, data, last, depth),
                Action::Recirc(id) => {
                    if depth >= RECIRCULATION_LIMIT {
                        shared.drops.add(DropReason::RecirculationLimit, batch.len() as u64);
                        continue;
                    }
                    let mut again = self.own(&mut batch, last);
                    for work in &mut again {
                        work.refresh();
                        work.key.recirc_id.set(*id);
                        work.cut = None;
                    }
                    self.counted.recirculated += again.len() as u64;
                    self.process(shared, again, depth + 1);
                }
                Action::Hash { symmetric, basis } => {
                    for work in &mut batch {
                        work.refresh();
                        let hash = datapath::hash::five_tuple(&work.key, *symmetric, *basis);
                        work.key.dp_hash.set(hash);
                    }
                }
                Action::Trunc(len) => {
                    for work in &mut batch {
                        work.cut = Some(*len);
                    }
                }
                Action::Set(Set::Priority(value)) => {
                    for work in &mut batch {
                        work.key.skb_priority.set(*value);
                    }
                }
                Action::Set(Set::Mark(mark)) => {
                    for work in &mut batch {
                        let old = work.key.pkt_mark.get();
                        work.key.pkt_mark.set(old & !mark.mask | mark.value & mark.mask);
                    }
                }
                Action::TunnelPush { header, tunnel_port, out_port } => {
                    self.tunnel_push(shared, &mut batch, header, *tunnel_port, *out_port);
                }
                Action::TunnelPop(port) => {
                    let own = self.own(&mut batch, last);
                    batch.iter_mut().for_each(|work| work.cut = None); // the copy has it
                    self.tunnel_pop(shared, own, *port, depth);
                }
                Action::SetTunnel(tunnel) => {
                    batch.iter_mut().for_each(|work| work.key.tunnel = **tunnel);
                }
                Action::PushNsh(nsh) => self.push_nsh(shared, &mut batch, nsh),
                Action::AddMpls { lse, ethertype } => {
                    self.add_mpls(shared, &mut batch, *lse, *ethertype);
                }
                Action::PopNsh => self.pop_nsh(shared, &mut batch),
                Action::PushEth { .. }
                | Action::PopEth
                | Action::Set(_)
                | Action::PushVlan { .. }
                | Action::PopVlan
                | Action::PushMpls { .. }
                | Action::PopMpls { .. } => self.edit(shared, &mut batch, action),
                Action::Sample { probability, actions } => {
                    if last && *probability == u32::MAX {
                        let own = self.own(&mut batch, true);
                        self.run(shared, own, actions, depth);
                        continue;
                    }
                    let mut chosen = Vec::new();
                    for work in &batch {
                        if *probability == u32::MAX || self.rng.u32(..) < *probability {
                            chosen.push(self.copy(work));
                        }
                    }
                    self.run(shared, chosen, actions, depth);
                }
                Action::Clone(actions) => {
                    let own = self.own(&mut batch, last);
                    self.run(shared, own, actions, depth);
                }
                Action::Meter(id) => self.meter(shared, &mut batch, *id),
                Action::Ct(request) => {
                    let resumed = self.ct(shared, &mut batch, request, tail, depth);
                    if resumed.is_empty() {
                        continue;
                    }
                    self.run(shared, batch, tail, depth);
                    for Resumed { works, actions, depth } in resumed {
                        self.run(shared, works, &actions, depth);
                    }
                    return;
                }
                Action::CtClear => batch.iter_mut().for_each(Work::clear_ct),
                Action::CheckPktLen { len, greater, not_greater } => {
                    let (mut long, mut short) = (Vec::new(), Vec::new());
                    for work in self.own(&mut batch, last) {
                        let has_ethernet = work.layer3().is_none();
                        let checked = edit::checked_len(&work.packet, has_ethernet);
                        let is_long = checked > usize::from(*len);
                        if is_long { long.push(work) } else { short.push(work) }
                    }
                    self.run(shared, long, greater, depth);
                    self.run(shared, short, not_greater, depth);
                }
            }
        }
        for work in batch {
            self.pool.give(work.packet);
        }
    }

    /// Returns the packets themselves when no action follows, else copies.
    pub(crate) fn own(&mut self, batch: &mut Vec<Work>, last: bool) -> Vec<Work> {
        if last { std::mem::take(batch) } else { batch.iter().map(|w| self.copy(w)).collect() }
    }

    pub(crate) fn output_batch(
        &mut self,
        shared: &Shared,
        batch: &mut Vec<Work>,
        port: PortNo,
        last: bool,
    ) {
        let bare = batch.iter().filter(|work| work.layer3().is_some()).count();
        if bare > 0 {
            // No device takes a packet without an Ethernet header. It stays for other actions.
            shared.drops.add(DropReason::Malformed, bare as u64);
            let framed = batch.iter().filter(|work| work.layer3().is_none());
            let mut framed: Vec<Work> = framed.map(|work| self.copy(work)).collect();
            batch.iter_mut().for_each(|work| work.cut = None);
            return self.output_batch(shared, &mut framed, port, true);
        }
        if last {
            for work in batch.drain(..) {
                let mut packet = work.packet;
                packet.priority = work.key.skb_priority.get();
                self.output(port, packet, work.cut);
            }
            return;
        }
        for work in batch {
            let mut copy = self.copy_packet(&work.packet);
            copy.priority = work.key.skb_priority.get();
            self.output(port, copy, work.cut.take());
        }
    }

    fn userspace(
        &mut self,
        shared: &Shared,
        batch: &mut Vec<Work>,
        data: &Userdata,
        last: bool,
        depth: u32,
    ) {
        let mut sent = self.own(batch, last);
        for work in batch.iter_mut() {
            work.cut = None; // the copy has it
        }
        for work in &mut sent {
            if let Some(len) = work.cut.take() {
                edit::truncate(&mut work.packet, len);
                work.moved = true;
            }
            work.refresh();
        }
        for work in sent {
            match self.upcall(shared, UpcallKind::Action(data), &work) {
                Some(actions) if actions.is_empty() => self.pool.give(work.packet),
                Some(_) if depth >= RECIRCULATION_LIMIT => {
                    shared.drops.add(DropReason::RecirculationLimit, 1);
                    self.pool.give(work.packet);
                }
                Some(actions) => self.run(shared, vec![work], &actions, depth + 1),
                None => {
                    self.counted.lost += 1;
                    shared.drops.add(DropReason::UpcallLimit, 1);
                    self.pool.give(work.packet);
                }
            }
        }
    }

    /// Keeps the packets for which `keep` returns true, and returns the others.
    pub(crate) fn retain(
        &mut self,
        batch: &mut Vec<Work>,
        mut keep: impl FnMut(&mut Work) -> bool,
    ) {
        let dropped = batch.extract_if(.., |work| !keep(work));
        for work in dropped {
            self.pool.give(work.packet);
        }
    }

    fn edit(&mut self, shared: &Shared, batch: &mut Vec<Work>, action: &Action) {
        self.retain(batch, |work| {
            if let Some(ethertype) = work.layer3() {
                match edit_layer3(work, ethertype, action) {
                    Layer3::Edited => return true,
                    Layer3::SameAsFrame => {}
                    Layer3::Malformed => {
                        shared.drops.add(DropReason::Malformed, 1);
                        return false;
                    }
                }
            }
            let (packet, parsed) = work.parsed();
            let edited = match action {
                Action::PopEth => return pop_eth(shared, work),
                Action::Set(set) => edit::set(packet, &parsed, set),
                Action::PushVlan { tpid, tci } => edit::push_vlan(packet, *tpid, *tci),
                Action::PopVlan => edit::pop_vlan(packet, &parsed),
                Action::PushMpls { lse, ethertype } => {
                    edit::push_mpls(packet, &parsed, *lse, *ethertype)
                }
                Action::PopMpls { ethertype } => edit::pop_mpls(packet, &parsed, *ethertype),
                // There is an Ethernet header already.
                Action::PushEth { .. } => Err(DropReason::Malformed),
                _ => Err(DropReason::UnsupportedAction),
            };
            work.changed = true;
            if matches!(action, Action::Set(set) if is_of_connection(set)) {
                work.ct.cached = None;
            }
            work.tags = match action {
                Action::PushVlan { .. } => work.tags.saturating_add(1),
                Action::PopVlan => work.tags.saturating_sub(1),
                _ => work.tags,
            };
            // An ICMP type determines the headers that follow, as pushed and popped headers do.
            work.moved = !matches!(action, Action::Set(set) if !matches!(set, Set::Icmp { .. }));
            match edited {
                Ok(()) => true,
                Err(reason) => {
                    shared.drops.add(reason, 1);
                    false
                }
            }
        });
    }

    fn meter(&mut self, shared: &Shared, batch: &mut Vec<Work>, id: u32) {
        let Some(meter) = shared.meter(id) else {
            return;
        };
        let now = self.now;
        let mut dropped = 0;
        {
            let mut meter = meter.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            self.retain(batch, |work| {
                let pass = meter.pass(work.packet.len(), now);
                dropped += u64::from(!pass);
                pass
            });
        }
        shared.drops.add(DropReason::Meter, dropped);
    }
}

/// The result of [`edit_layer3`].
enum Layer3 {
    /// The action has run.
    Edited,
    /// The action edits the packet as it edits a frame.
    SameAsFrame,
    /// The packet lacks the header that the action needs.
    Malformed,
}

/// Runs the actions that do something else with a packet without an Ethernet header, of this Ethernet
/// type, than with a frame.
fn edit_layer3(work: &mut Work, ethertype: u16, action: &Action) -> Layer3 {
    let packet_type = match action {
        Action::PushEth { src, dst } => {
            edit::push_eth(&mut work.packet, *src, *dst, ethertype);
            Payload::Ethernet
        }
        Action::PushMpls { lse, ethertype: kind } if has_bare_label(work, ethertype) => {
            edit::push_front(&mut work.packet, &lse.to_be_bytes());
            Payload::Layer3(*kind)
        }
        Action::PopMpls { ethertype: below } if has_bare_label(work, ethertype) => {
            work.packet.remove_at(0, size_of::<MplsEntry>());
            match *below {
                ETHERTYPE_TEB => Payload::Ethernet,
                below => Payload::Layer3(below),
            }
        }
        Action::Set(set) if !matches!(set, Set::Ethernet { .. }) => return Layer3::SameAsFrame,
        _ => return Layer3::Malformed, // VLAN headers are after an Ethernet header
    };
    work.set_payload(packet_type);
    Layer3::Edited
}

/// Returns true when a packet without an Ethernet header, of this Ethernet type, begins with a label.
fn has_bare_label(work: &Work, ethertype: u16) -> bool {
    ethertype::is_mpls(ethertype) && work.packet.len() >= size_of::<MplsEntry>()
}

/// Takes off the Ethernet header. Returns false when the packet was dropped.
fn pop_eth(shared: &Shared, work: &mut Work) -> bool {
    let (packet, _) = work.parsed();
    let Some(ethertype) = edit::pop_eth(packet) else {
        shared.drops.add(DropReason::Malformed, 1);
        return false;
    };
    work.set_payload(Payload::Layer3(ethertype));
    true
}

/// Returns true when `set` may change addresses or ports, and so the packet's connection.
fn is_of_connection(set: &Set) -> bool {
    match set {
        Set::Ipv4 { .. }
        | Set::Ipv6 { .. }
        | Set::Tcp { .. }
        | Set::Udp { .. }
        | Set::Sctp { .. }
        | Set::Icmp { .. } => true,
        Set::Ethernet { .. }
        | Set::Arp { .. }
        | Set::Nd { .. }
        | Set::NdExtensions { .. }
        | Set::Nsh { .. }
        | Set::Mpls(_)
        | Set::Priority(_)
        | Set::Mark(_) => false,
    }
}

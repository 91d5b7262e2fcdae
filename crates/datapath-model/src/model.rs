// SPDX-License-Identifier: Apache-2.0
//! The model datapath.

use crate::connections::{self, Cached, Connections};
use crate::edit::{self, Malformed};
use crate::tokens::ModelMeter;
use crate::too_long::{self, Fit};
use clock::Clock;
use datapath::{
    ACTION_DEPTH_LIMIT, Action, Actions, BOND_BUCKETS, BondTable, Bonds, BucketBytes, Counters,
    Datapath, DropReason, FlowDump, FlowStats, Flows, LookupStats, Megaflow, MeterConfig,
    MeterStats, Meters, Packets, PortError, PortInfo, PortKind, PortNo, PortSpec, Ports,
    RECIRCULATION_LIMIT, Refusal, SequenceNumbers, Set, Tier, TierRefusals, Ufid, Upcall,
    UpcallFactory, UpcallKind, Upcaller, hash,
};
use flow::Key;
use flow::extract::{extract, extract_layer3, key_of, vlan_limit};
use netdev::{Device, Policing};
use packet::Packet;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tunnel::{Checks, Header, Payload, PerPacket, PortConfig};

/// Offset of the IP header of an outer frame, in bytes.
const OUTER_IP: usize = 14;

/// A datapath that is slow, plain and obviously right. Any type of port can be added; none has a
/// device.
pub struct Model {
    name: String,
    clock: Clock,
    state: Mutex<State>,
    factory: Mutex<Option<Arc<dyn UpcallFactory>>>,
    /// Upcallers that are not in an upcall.
    upcallers: Mutex<Vec<Box<dyn Upcaller>>>,
}

struct State {
    ports: BTreeMap<PortNo, ModelPort>,
    flows: Vec<(Megaflow, FlowStats)>,
    /// Statistics that the last sweep of moved megaflows reported.
    reported: BTreeMap<Ufid, FlowStats>,
    limit: usize,
    meters: BTreeMap<u32, ModelMeter>,
    /// Bonds with the bytes of their buckets.
    bonds: BTreeMap<u32, (BondTable, BucketBytes)>,
    connections: Connections,
    lookups: LookupStats,
    drops: BTreeMap<DropReason, u64>,
    checks: Checks,
    /// Number of megaflows that were reported as used, by the port of their upcalls.
    used: BTreeMap<PortNo, u64>,
    rng: fastrand::Rng,
}

struct ModelPort {
    info: PortInfo,
    /// Bytes of a frame without Ethernet header and one VLAN tag.
    mtu: usize,
    sent: Vec<Packet>,
    /// Configuration of a tunnel port, and the number of its next packet.
    tunnel: Option<(PortConfig, u32)>,
    /// Where the sequence numbers of a tunnel port come from, if another tier gives some of them.
    numbers: Option<Arc<dyn SequenceNumbers>>,
}

/// A packet with its metadata and the state of its processing.
#[derive(Clone)]
struct InFlight {
    packet: Packet,
    /// Metadata counts; the rest is read from the packet where it is needed.
    key: Key,
    /// Largest number of VLAN headers that edits skip.
    tags: usize,
    cut: Option<u32>,
    passes: u32,
    /// The connection of the last `ct` action.
    cached: Cached,
    /// The frame before all actions, of a packet that came in by a port.
    arrived: Option<Vec<u8>>,
}

impl InFlight {
    fn new(packet: Packet, key: Key) -> InFlight {
        InFlight {
            packet,
            key,
            tags: vlan_limit(),
            cut: None,
            passes: 0,
            cached: Cached::default(),
            arrived: None,
        }
    }

    /// The key of a packet that comes in as this one is now; edits go by that from then on.
    fn fresh_key(&mut self) -> Key {
        self.tags = vlan_limit();
        let old = &self.key;
        let (data, port) = (self.packet.data(), old.in_port.get());
        let mut key = match self.layer3() {
            None => key_of(data, port),
            Some(ethertype) => extract_layer3(data, port, ethertype).0,
        };
        key.set_metadata(old);
        key
    }

    /// The Ethernet type of a packet without an Ethernet header.
    fn layer3(&self) -> Option<u16> {
        match Payload::from_packet_type(self.key.packet_type.get()) {
            Some(Payload::Layer3(ethertype)) => Some(ethertype),
            Some(Payload::Ethernet) | None => None,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Model {
    /// Returns a model without ports that holds at most `limit` megaflows. `seed` is for `sample`.
    pub fn new(name: impl Into<String>, clock: Clock, limit: usize, seed: u64) -> Arc<Model> {
        Arc::new(Model {
            name: name.into(),
            clock,
            state: Mutex::new(State {
                ports: BTreeMap::new(),
                flows: Vec::new(),
                reported: BTreeMap::new(),
                limit,
                meters: BTreeMap::new(),
                bonds: BTreeMap::new(),
                connections: Connections::default(),
                lookups: LookupStats::default(),
                drops: BTreeMap::new(),
                checks: Checks::default(),
                used: BTreeMap::new(),
                rng: fastrand::Rng::with_seed(seed),
            }),
            factory: Mutex::new(None),
            upcallers: Mutex::new(Vec::new()),
        })
    }

    /// Returns the number of megaflows that were reported as used, of those that upcalls from
    /// `port` led to.
    pub fn used(&self, port: PortNo) -> u64 {
        lock(&self.state).used.get(&port).copied().unwrap_or(0)
    }

    /// Takes the frames that were sent to `port` since the previous call, in order, with offload
    /// work finished. Empty when there is no such port.
    pub fn take_sent(&self, port: PortNo) -> Vec<Packet> {
        lock(&self.state)
            .ports
            .get_mut(&port)
            .map(|p| std::mem::take(&mut p.sent))
            .unwrap_or_default()
    }

    fn drop_packet(&self, reason: DropReason) {
        *lock(&self.state).drops.entry(reason).or_default() += 1;
    }

    /// Makes an upcall. `None` when there is no upcall handler.
    fn upcall(&self, kind: UpcallKind<'_>, packet: &Packet, key: &Key) -> Option<Actions> {
        let idle = lock(&self.upcallers).pop();
        let mut upcaller = match idle {
            Some(upcaller) => upcaller,
            None => {
                let factory = lock(&self.factory).clone()?;
                factory.upcaller()
            }
        };
        let actions = upcaller.upcall(&Upcall {
            kind,
            packet,
            key,
            in_port: PortNo(key.in_port.get()),
            pressed: false,
        });
        lock(&self.upcallers).push(upcaller);
        Some(actions)
    }

    /// Looks up a packet, updates the statistics and runs the actions.
    fn forward(&self, mut p: InFlight) {
        p.key = p.fresh_key();
        let found = {
            let mut state = lock(&self.state);
            let now = self.clock.now();
            let found = state.flows.iter_mut().find(|(flow, _)| flow.matching.matches(&p.key));
            let actions = found.map(|(flow, stats)| {
                stats.packets += 1;
                stats.bytes += p.packet.len() as u64;
                stats.used = now;
                stats.tcp_flags |= p.key.tcp_flags.get();
                flow.actions.clone()
            });
            if actions.is_some() {
                state.lookups.hits += 1;
            }
            actions
        };
        let actions = match found {
            Some(actions) => actions,
            None => match self.upcall(UpcallKind::Miss, &p.packet, &p.key) {
                Some(actions) => {
                    lock(&self.state).lookups.misses += 1;
                    actions
                }
                None => {
                    lock(&self.state).lookups.lost += 1;
                    return self.drop_packet(DropReason::UpcallLimit);
                }
            },
        };
        self.run_all(p, &actions);
    }

    fn run_all(&self, p: InFlight, actions: &[Action]) {
        if actions.is_empty() {
            self.drop_packet(DropReason::Flow);
        }
        self.run(p, actions);
    }

    fn run(&self, mut p: InFlight, actions: &[Action]) {
        for (i, action) in actions.iter().enumerate() {
            if let Action::TunnelPush { header, tunnel_port, out_port } = action {
                let rest = actions.get(i + 1..).unwrap_or_default();
                return match self.tunnel_push(p, header, *tunnel_port, *out_port) {
                    Ok(pushed) => pushed.into_iter().for_each(|p| self.run(p, rest)),
                    Err(reason) => self.drop_packet(reason),
                };
            }
            if let Action::PushNsh(_) | Action::AddMpls { .. } = action {
                let rest = actions.get(i + 1..).unwrap_or_default();
                let pushed = match action {
                    Action::PushNsh(nsh) => push_nsh(p, nsh),
                    Action::AddMpls { lse, ethertype } => add_mpls(p, *lse, *ethertype),
                    _ => None,
                };
                return match pushed {
                    Some(pushed) => pushed.into_iter().for_each(|p| self.run(p, rest)),
                    None => self.drop_packet(DropReason::Malformed),
                };
            }
            if let Err(reason) = self.run_action(&mut p, action) {
                return self.drop_packet(reason);
            }
        }
    }

    /// Runs one action; `Err` ends the packet.
    fn run_action(&self, p: &mut InFlight, action: &Action) -> Result<(), DropReason> {
        let malformed = |_: Malformed| DropReason::Malformed;
        match action {
            Action::Output(_) if p.layer3().is_some() => {
                p.cut = None;
                self.drop_packet(DropReason::Malformed);
            }
            Action::Output(port) => {
                let mut copy = p.packet.clone();
                if let Some(len) = p.cut.take() {
                    edit::truncate(&mut copy, len);
                }
                self.send(*port, copy);
            }
            Action::LbOutput(id) => self.lb_output(p, *id),
            // `run` carries them out, as they may make several packets.
            Action::TunnelPush { .. } | Action::PushNsh(_) | Action::AddMpls { .. } => {
                return Err(DropReason::UnsupportedAction);
            }
            Action::TunnelPop(port) => {
                let mut copy = p.clone();
                p.cut = None;
                if let Some(len) = copy.cut.take() {
                    edit::truncate(&mut copy.packet, len);
                }
                match self.tunnel_pop(copy, *port) {
                    Ok(popped) => popped.into_iter().for_each(|p| self.forward(p)),
                    Err(reason) => self.drop_packet(reason),
                }
            }
            Action::SetTunnel(tunnel) => p.key.tunnel = **tunnel,
            Action::PushEth { src, dst } => {
                let ethertype = p.layer3().ok_or(DropReason::Malformed)?;
                push_eth(&mut p.packet, *src, *dst, ethertype);
                p.key.packet_type.set(0);
                p.tags = vlan_limit();
            }
            Action::PopEth => {
                let kind = match (p.layer3(), p.packet.data().get(12..14)) {
                    (None, Some([a, b])) => u16::from_be_bytes([*a, *b]),
                    _ => return Err(DropReason::Malformed),
                };
                if kind < 0x600 || matches!(kind, 0x8100 | 0x88a8) {
                    return Err(DropReason::Malformed);
                }
                p.packet.remove_at(0, 14);
                p.key.packet_type.set(Payload::Layer3(kind).packet_type());
            }
            Action::PopNsh => {
                let data = p.packet.data();
                let (Some(0x894f), Some(first)) = (p.layer3(), data.first_chunk::<8>()) else {
                    return Err(DropReason::Malformed);
                };
                let bytes = usize::from(first[1] & 0x3f) * 4;
                let is_possible = first[0] >> 6 == 0 && (8..=data.len()).contains(&bytes);
                if !is_possible || first[2] == 1 && bytes != 24 {
                    return Err(DropReason::Malformed);
                }
                let packet_type = match first[3] {
                    1 => 0x1_0800,
                    2 => 0x1_86dd,
                    3 => 0,
                    4 => 0x1_894f,
                    _ => return Err(DropReason::Malformed),
                };
                p.packet.remove_at(0, bytes);
                p.key.packet_type.set(packet_type);
                p.tags = vlan_limit();
            }
            Action::PushVlan { .. } | Action::PopVlan | Action::Set(Set::Ethernet { .. })
                if p.layer3().is_some() =>
            {
                return Err(DropReason::Malformed);
            }
            Action::PushMpls { ethertype, .. } | Action::PopMpls { ethertype }
                if p.layer3().is_some() =>
            {
                let (Some(0x8847 | 0x8848), [_, _, _, _, ..]) = (p.layer3(), p.packet.data())
                else {
                    return Err(DropReason::Malformed);
                };
                if let Action::PushMpls { lse, .. } = action {
                    p.packet.insert_at(0, 4);
                    p.packet.data_mut()[..4].copy_from_slice(&lse.to_be_bytes());
                } else {
                    p.packet.remove_at(0, 4);
                }
                let is_frame = matches!((action, ethertype), (Action::PopMpls { .. }, 0x6558));
                let packet_type = if is_frame { 0 } else { 0x1_0000 | u32::from(*ethertype) };
                p.key.packet_type.set(packet_type);
                p.tags = vlan_limit();
            }
            Action::Drop(reason) => return Err(*reason),
            Action::Userspace(data) => {
                let mut copy = p.clone();
                p.cut = None;
                if let Some(len) = copy.cut.take() {
                    edit::truncate(&mut copy.packet, len);
                }
                copy.key = copy.fresh_key();
                match self.upcall(UpcallKind::Action(data), &copy.packet, &copy.key) {
                    Some(actions) if actions.is_empty() => {}
                    Some(_) if copy.passes >= RECIRCULATION_LIMIT => {
                        self.drop_packet(DropReason::RecirculationLimit);
                    }
                    Some(actions) => {
                        copy.passes += 1;
                        self.run(copy, &actions);
                    }
                    None => {
                        lock(&self.state).lookups.lost += 1;
                        self.drop_packet(DropReason::UpcallLimit);
                    }
                }
            }
            Action::Recirc(id) => {
                if p.passes >= RECIRCULATION_LIMIT {
                    self.drop_packet(DropReason::RecirculationLimit);
                    return Ok(());
                }
                let mut copy = p.clone();
                copy.key.recirc_id.set(*id);
                copy.cut = None;
                copy.passes += 1;
                self.forward(copy);
            }
            Action::Hash { symmetric, basis } => {
                let key = p.fresh_key();
                p.key.dp_hash.set(hash::five_tuple(&key, *symmetric, *basis));
            }
            Action::Trunc(len) => p.cut = Some(*len),
            Action::PushVlan { tpid, tci } => {
                edit::push_vlan(&mut p.packet, &mut p.tags, *tpid, *tci).map_err(malformed)?
            }
            Action::PopVlan => edit::pop_vlan(&mut p.packet, &mut p.tags).map_err(malformed)?,
            Action::PushMpls { lse, ethertype } => {
                edit::push_mpls(&mut p.packet, p.tags, *lse, *ethertype).map_err(malformed)?;
            }
            Action::PopMpls { ethertype } => {
                edit::pop_mpls(&mut p.packet, p.tags, *ethertype).map_err(malformed)?
            }
            Action::Set(Set::Priority(value)) => p.key.skb_priority.set(*value),
            Action::Set(Set::Mark(m)) => {
                let old = p.key.pkt_mark.get();
                p.key.pkt_mark.set(old & !m.mask | m.value & m.mask);
            }
            Action::Set(set) => {
                p.cached = Cached::default();
                with_ethernet(p, |p| edit::set(&mut p.packet, p.tags, set)).map_err(malformed)?;
            }
            Action::Sample { probability, actions } => {
                if *probability == u32::MAX || lock(&self.state).rng.u32(..) < *probability {
                    self.run(p.clone(), actions);
                }
            }
            Action::Clone(actions) => self.run(p.clone(), actions),
            Action::Meter(id) => {
                let now = self.clock.now();
                let bytes = p.packet.len();
                let pass = lock(&self.state).meters.get_mut(id).is_none_or(|m| m.pass(bytes, now));
                if !pass {
                    return Err(DropReason::Meter);
                }
            }
            Action::Ct(request) if request.helper.is_some() || request.policy != 0 => {
                return Err(DropReason::UnsupportedAction);
            }
            Action::Ct(request) => {
                let now = self.clock.now();
                let connections = &mut lock(&self.state).connections;
                with_ethernet(p, |p| {
                    connections.ct(&mut p.packet, p.tags, &mut p.key, &mut p.cached, request, now);
                });
            }
            Action::CtClear => {
                connections::clear(&mut p.key);
                p.cached = Cached::default();
            }
            Action::CheckPktLen { len, greater, not_greater } => {
                let checked = with_ethernet(p, |p| edit::checked_len(&p.packet));
                let checked = checked - if p.layer3().is_some() { 14 } else { 0 };
                let is_longer = checked > usize::from(*len);
                self.run(p.clone(), if is_longer { greater } else { not_greater });
            }
        }
        Ok(())
    }

    /// Sends a copy of the packet to a member of a bond.
    fn lb_output(&self, p: &mut InFlight, id: u32) {
        let (key, bytes) = (p.fresh_key(), p.packet.len() as u64);
        let member = {
            let bonds = &mut lock(&self.state).bonds;
            bonds.get_mut(&id).and_then(|(table, sent)| {
                let bucket = BondTable::bucket(table.basis, &key);
                let member = table.member(bucket)?;
                if let Some(sent) = sent.get_mut(usize::from(bucket)) {
                    *sent += bytes;
                }
                Some(member)
            })
        };
        let output = member.map(|member| self.run_action(p, &Action::Output(member)));
        if output.is_none() {
            p.cut = None;
            self.drop_packet(DropReason::InvalidBond);
        }
    }

    /// Pushes a header onto the packet, or onto each segment of it.
    fn tunnel_push(
        &self,
        mut p: InFlight,
        header: &Header,
        tunnel_port: PortNo,
        out_port: PortNo,
    ) -> Result<Vec<InFlight>, DropReason> {
        let is_tunnel = |port: &ModelPort| port.tunnel.is_some();
        if !lock(&self.state).ports.get(&tunnel_port).is_some_and(is_tunnel) {
            return Err(DropReason::InvalidTunnelPort);
        }
        if let Some(len) = p.cut.take() {
            edit::truncate(&mut p.packet, len);
        }
        let key = p.fresh_key();
        let payload = Payload::from_packet_type(key.packet_type.get());
        let payload = payload.ok_or(DropReason::TunnelPush)?;
        let bare = p.layer3();
        let l3 = match bare {
            Some(_) => Some(0),
            None => extract(p.packet.data(), 0).1.l3.map(usize::from),
        };
        let fit = too_long::fit(&p.packet, &key, l3, header);
        if let Fit::Report(mtu) = fit {
            self.report(&p, mtu);
            return Err(DropReason::OutputTooLong);
        }
        if let Some(ethertype) = bare {
            push_eth(&mut p.packet, [0; 6], [0; 6], ethertype);
        }
        let frames = netdev::finish::finish(&p.packet).map_err(|_| DropReason::TunnelPush)?;
        let now = Duration::from_millis(self.clock.now().0.unsigned_abs());
        let mut state = lock(&self.state);
        let port = state.ports.get_mut(&tunnel_port).ok_or(DropReason::InvalidTunnelPort)?;
        let numbers = port.numbers.clone().filter(|_| header.has_sequence());
        let (_, next) = port.tunnel.as_mut().ok_or(DropReason::InvalidTunnelPort)?;
        let mut pushed = Vec::new();
        let mut packets = frames;
        if bare.is_some() {
            packets.iter_mut().for_each(|frame| frame.remove_at(0, 14));
        }
        if let Fit::Inner(mtu) = fit {
            let fragments = too_long::fragments(packets, l3.unwrap_or(0), mtu);
            packets = fragments.ok_or(DropReason::OutputTooLong)?;
        }
        for mut frame in packets {
            let hash = hash::five_tuple(&key, false, 0);
            let sequence = numbers.as_ref().map_or(*next, |numbers| numbers.take(1));
            let each = PerPacket { payload, hash, sequence, id: *next as u16, now };
            *next += 1;
            header.push(&mut frame, &each).map_err(|_| DropReason::TunnelPush)?;
            let mut outer = Key::ZERO;
            outer.in_port.set(out_port.0);
            let frames = match fit {
                Fit::Outer(mtu) => too_long::fragments(vec![frame], OUTER_IP, mtu),
                Fit::Whole | Fit::Inner(_) | Fit::Report(_) => Some(vec![frame]),
            };
            for frame in frames.ok_or(DropReason::TunnelPush)? {
                pushed.push(InFlight { passes: p.passes, ..InFlight::new(frame, outer) });
            }
        }
        Ok(pushed)
    }

    /// Reports to the sender of a packet that IP packets may have `mtu` bytes.
    fn report(&self, p: &InFlight, mtu: usize) {
        let port = PortNo(p.key.in_port.get());
        let is_device = |port: &ModelPort| port.tunnel.is_none();
        let has_device = lock(&self.state).ports.get(&port).is_some_and(is_device);
        let now = p.layer3().is_none().then(|| p.packet.data());
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        let report = p.arrived.as_deref().or(now).and_then(|frame| tunnel::too_big(frame, mtu));
        if let Some(report) = report.filter(|_| has_device) {
            self.send(port, Packet::from_slice(&report));
        }
    }

    /// Takes the outer headers off the packet, or off each segment of it.
    fn tunnel_pop(&self, p: InFlight, port: PortNo) -> Result<Vec<InFlight>, DropReason> {
        let tunnel = lock(&self.state).ports.get(&port).and_then(|port| port.tunnel);
        let (config, _) = tunnel.ok_or(DropReason::InvalidTunnelPort)?;
        if p.passes >= RECIRCULATION_LIMIT {
            return Err(DropReason::RecirculationLimit);
        }
        let l3 = match p.layer3() {
            Some(_) => Some(0),
            None => extract(p.packet.data(), 0).1.l3.map(usize::from),
        };
        let l3 = l3.ok_or(DropReason::TunnelPop)?;
        let frames = netdev::finish::finish(&p.packet).map_err(|_| DropReason::TunnelPop)?;
        let mut popped = Vec::new();
        for mut frame in frames {
            let checks = &mut lock(&self.state).checks;
            let decoded = tunnel::decode(frame.data(), l3, &frame.offload, &config, checks)
                .map_err(|_| DropReason::TunnelPop)?;
            decoded.strip(&mut frame);
            let mut key = Key::ZERO;
            key.in_port.set(port.0);
            key.packet_type.set(decoded.payload.packet_type());
            decoded.metadata.write_to(&mut key);
            popped.push(InFlight { passes: p.passes + 1, ..InFlight::new(frame, key) });
        }
        Ok(popped)
    }

    /// Finishes the work that is left to a device and puts the frames on the port's list: either
    /// all of them, or none, with the reason.
    fn send(&self, port: PortNo, packet: Packet) {
        let mut state = lock(&self.state);
        let reason = match (state.ports.get_mut(&port), netdev::finish::finish(&packet)) {
            (None, _) => Some(DropReason::OutputPortGone),
            (Some(port), _) if port.tunnel.is_some() => Some(DropReason::UnknownPort),
            (Some(_), Err(_)) => Some(DropReason::Malformed),
            (Some(_), Ok(frames)) if frames.iter().any(|f| f.len() < 14) => {
                Some(DropReason::Malformed)
            }
            (Some(port), Ok(frames)) if frames.iter().any(|f| f.len() > port.longest(f)) => {
                Some(DropReason::OutputTooLong)
            }
            (Some(port), Ok(frames)) => {
                port.sent.extend(frames);
                None
            }
        };
        drop(state);
        if let Some(reason) = reason {
            self.drop_packet(reason);
        }
    }
}

/// Calls `work` with a packet that has an Ethernet header, from which headers are found. A packet
/// without one loses it again.
fn with_ethernet<R>(p: &mut InFlight, work: impl FnOnce(&mut InFlight) -> R) -> R {
    let bare = p.layer3();
    if let Some(ethertype) = bare {
        push_eth(&mut p.packet, [0; 6], [0; 6], ethertype);
    }
    let result = work(p);
    if bare.is_some() {
        p.packet.remove_at(0, 14);
    }
    result
}

/// Puts a Network Service Header in front of the packet, or of each segment of it.
fn push_nsh(mut p: InFlight, nsh: &datapath::PushedNsh) -> Option<Vec<InFlight>> {
    let bare = p.layer3();
    let next = match bare {
        Some(0x0800) => 1,
        Some(0x86dd) => 2,
        None if p.key.packet_type.get() == 0 => 3,
        Some(0x894f) => 4,
        _ => return None,
    };
    let flow::Nsh { flags, ttl, mdtype, path, context, .. } = nsh.fields;
    let mut contexts = Vec::new();
    match mdtype {
        1 => context.iter().for_each(|word| contexts.extend(word.get().to_be_bytes())),
        2 => contexts.clone_from(&nsh.metadata),
        _ => {}
    }
    if contexts.len() > 244 || !contexts.len().is_multiple_of(4) {
        return None;
    }
    let words = 2 + contexts.len() / 4;
    let first = u16::from(flags & 3) << 12 | u16::from(ttl & 63) << 6 | words as u16;
    let mut header = [&first.to_be_bytes()[..], &[mdtype, next]].concat();
    header.extend(path.get().to_be_bytes());
    header.extend(contexts);
    if let Some(ethertype) = bare {
        push_eth(&mut p.packet, [0; 6], [0; 6], ethertype);
    }
    begin_with(p, bare.is_some(), &header, 0x894f)
}

/// Puts a label stack entry in front of the packet, or of each segment of it.
fn add_mpls(mut p: InFlight, lse: u32, kind: u16) -> Option<Vec<InFlight>> {
    let bare = p.layer3();
    if !matches!(kind, 0x8847 | 0x8848) || bare.is_none() && p.key.packet_type.get() != 0 {
        return None;
    }
    if let Some(ethertype) = bare {
        push_eth(&mut p.packet, [0; 6], [0; 6], ethertype);
    }
    begin_with(p, bare.is_some(), &lse.to_be_bytes(), kind)
}

/// Puts `header`, of this Ethernet type, in front of the packet, or of each segment of it. The Ethernet
/// header of a packet that had none comes off first.
fn begin_with(p: InFlight, had_none: bool, header: &[u8], kind: u16) -> Option<Vec<InFlight>> {
    let frames = netdev::finish::finish(&p.packet).ok()?;
    let pushed = frames.into_iter().map(|mut packet| {
        if had_none {
            packet.remove_at(0, 14);
        }
        packet.insert_at(0, header.len());
        packet.data_mut()[..header.len()].copy_from_slice(header);
        let mut each = InFlight { packet, ..p.clone() };
        each.key.packet_type.set(0x1_0000 | u32::from(kind));
        each
    });
    Some(pushed.collect())
}

/// Puts an Ethernet header in front of a packet.
fn push_eth(packet: &mut Packet, src: [u8; 6], dst: [u8; 6], ethertype: u16) {
    packet.insert_at(0, 14);
    let header = [&dst[..], &src, &ethertype.to_be_bytes()].concat();
    packet.data_mut()[..14].copy_from_slice(&header);
}

impl ModelPort {
    /// Returns the largest size in bytes that a frame like `frame` may have here.
    fn longest(&self, frame: &Packet) -> usize {
        let tagged = matches!(frame.data().get(12..14), Some([0x81, 0x00] | [0x88, 0xa8]));
        self.mtu + 14 + if tagged { 4 } else { 0 }
    }
}

fn nesting(actions: &[Action]) -> usize {
    let of = |action: &Action| match action {
        Action::Sample { actions, .. } | Action::Clone(actions) => 1 + nesting(actions),
        Action::CheckPktLen { greater, not_greater, .. } => {
            1 + nesting(greater).max(nesting(not_greater))
        }
        _ => 0,
    };
    actions.iter().map(of).max().unwrap_or(0)
}

impl Ports for Model {
    fn add_port(&self, spec: &PortSpec) -> Result<PortNo, PortError> {
        let mut state = lock(&self.state);
        if state.ports.values().any(|p| p.info.name == spec.name) {
            return Err(PortError::Exists(spec.name.clone()));
        }
        let wanted = spec.wanted.filter(|n| *n != PortNo::NONE && !state.ports.contains_key(n));
        let number = wanted
            .or_else(|| (1..u32::MAX).map(PortNo).find(|n| !state.ports.contains_key(n)))
            .ok_or_else(|| PortError::Full(spec.name.clone()))?;
        let info = PortInfo { number, name: spec.name.clone(), kind: spec.kind };
        let option = |name: &str| spec.options.get(name).map(String::as_str);
        let tunnel = match spec.kind {
            PortKind::Tunnel(kind) => {
                let error = |problem| PortError::Option { name: spec.name.clone(), problem };
                Some((PortConfig::from_options(kind, option).map_err(error)?, 0))
            }
            _ => None,
        };
        let mtu = spec.mtu.unwrap_or(1500) as usize;
        let port = ModelPort { info, mtu, sent: Vec::new(), tunnel, numbers: None };
        state.ports.insert(number, port);
        Ok(number)
    }

    fn remove_port(&self, port: PortNo) -> Result<(), PortError> {
        let removed = lock(&self.state).ports.remove(&port);
        removed.map(|_| ()).ok_or_else(|| PortError::NotFound(port.to_string()))
    }

    fn ports(&self) -> Vec<PortInfo> {
        lock(&self.state).ports.values().map(|p| p.info.clone()).collect()
    }

    fn device(&self, _port: PortNo) -> Option<Arc<dyn Device>> {
        None
    }

    fn share_sequence(&self, port: PortNo, numbers: Arc<dyn SequenceNumbers>) {
        if let Some(port) = lock(&self.state).ports.get_mut(&port) {
            port.numbers.get_or_insert(numbers);
        }
    }

    fn set_policing(&self, port: PortNo, policing: Policing) -> Result<(), PortError> {
        match lock(&self.state).ports.get(&port) {
            None => Err(PortError::NotFound(port.to_string())),
            Some(_) if !policing.is_on() => Ok(()),
            Some(p) => Err(PortError::Option {
                name: p.info.name.clone(),
                problem: "the model has no ingress policing".to_owned(),
            }),
        }
    }
}

impl Flows for Model {
    fn install(&self, flow: &Megaflow) -> Result<(), Refusal> {
        let mut state = lock(&self.state);
        if nesting(&flow.actions) > ACTION_DEPTH_LIMIT {
            return Err(Refusal::UnsupportedAction);
        }
        if state.flows.iter().any(|(f, _)| f.ufid == flow.ufid) {
            return Err(Refusal::Exists);
        }
        if state.flows.len() >= state.limit {
            return Err(Refusal::TableFull);
        }
        state.flows.push((flow.clone(), FlowStats::default()));
        state.reported.remove(&flow.ufid);
        Ok(())
    }

    fn modify(&self, ufid: Ufid, actions: &Actions) -> bool {
        let mut state = lock(&self.state);
        let found = state
            .flows
            .iter_mut()
            .find(|(f, _)| f.ufid == ufid && nesting(actions) <= ACTION_DEPTH_LIMIT);
        found.map(|(f, _)| f.actions = actions.clone()).is_some()
    }

    fn remove(&self, ufid: Ufid) -> Option<FlowStats> {
        let mut state = lock(&self.state);
        let at = state.flows.iter().position(|(f, _)| f.ufid == ufid)?;
        Some(state.flows.remove(at).1)
    }

    fn flow(&self, ufid: Ufid) -> Option<FlowDump> {
        self.dump().into_iter().find(|d| d.flow.ufid == ufid)
    }

    fn sweep(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        for dump in self.dump() {
            each(dump.flow.ufid, dump.stats);
        }
    }

    fn sweep_moved(&self, each: &mut dyn FnMut(Ufid, FlowStats)) {
        let mut moved = Vec::new();
        {
            let State { flows, reported, .. } = &mut *lock(&self.state);
            for (flow, stats) in flows {
                if reported.insert(flow.ufid, *stats) != Some(*stats) {
                    moved.push((flow.ufid, *stats));
                }
            }
        }
        moved.into_iter().for_each(|(ufid, stats)| each(ufid, stats));
    }

    fn dump(&self) -> Vec<FlowDump> {
        let state = lock(&self.state);
        let dump = |(flow, stats): &(Megaflow, FlowStats)| FlowDump {
            flow: flow.clone(),
            stats: *stats,
            tier: Tier::Userspace,
            refusals: TierRefusals::NONE,
            offloaded: datapath::Offloaded::No,
        };
        state.flows.iter().map(dump).collect()
    }

    fn flush(&self) {
        lock(&self.state).flows.clear();
    }
}

impl Packets for Model {
    fn set_upcall_factory(&self, factory: Arc<dyn UpcallFactory>) {
        *lock(&self.factory) = Some(factory);
    }

    fn execute(&self, packet: Packet, key: &Key, actions: &[Action]) {
        if nesting(actions) > ACTION_DEPTH_LIMIT {
            return self.drop_packet(DropReason::UnsupportedAction);
        }
        self.run_all(InFlight::new(packet, *key), actions);
    }

    fn inject(&self, packet: Packet, port: PortNo) {
        let mut key = Key::ZERO;
        key.in_port.set(port.0);
        let arrived = Some(packet.data().to_vec());
        self.forward(InFlight { arrived, ..InFlight::new(packet, key) });
    }

    fn megaflows_used(&self, port: PortNo, n: u64) {
        *lock(&self.state).used.entry(port).or_default() += n;
    }
}

impl Meters for Model {
    fn limits(&self) -> (u32, u8) {
        (1 << 18, 8)
    }

    fn set(&self, id: u32, config: &MeterConfig) -> Result<(), Refusal> {
        if id >= 1 << 18 || config.bands.len() > 8 {
            return Err(Refusal::TableFull);
        }
        let meter = ModelMeter::new(config, self.clock.now());
        lock(&self.state).meters.insert(id, meter);
        Ok(())
    }

    fn remove(&self, id: u32) -> Option<MeterStats> {
        lock(&self.state).meters.remove(&id).map(|m| m.stats)
    }

    fn stats(&self, id: u32) -> Option<MeterStats> {
        lock(&self.state).meters.get(&id).map(|m| m.stats.clone())
    }
}

impl Bonds for Model {
    fn set(&self, id: u32, table: &BondTable) -> Result<(), Refusal> {
        let bonds = &mut lock(&self.state).bonds;
        let (_, bytes) = bonds.remove(&id).unwrap_or((table.clone(), Box::new([0; BOND_BUCKETS])));
        bonds.insert(id, (table.clone(), bytes));
        Ok(())
    }

    fn remove(&self, id: u32) {
        lock(&self.state).bonds.remove(&id);
    }

    fn table(&self, id: u32) -> Option<BondTable> {
        lock(&self.state).bonds.get(&id).map(|(table, _)| table.clone())
    }

    fn ids(&self) -> Vec<u32> {
        lock(&self.state).bonds.keys().copied().collect()
    }

    fn bytes(&self, id: u32) -> Option<BucketBytes> {
        lock(&self.state).bonds.get(&id).map(|(_, bytes)| bytes.clone())
    }
}

impl Counters for Model {
    fn lookups(&self) -> LookupStats {
        let state = lock(&self.state);
        let mut masks: Vec<_> = state.flows.iter().map(|(f, _)| *f.matching.mask()).collect();
        masks.sort_by_key(|m| *m.words());
        masks.dedup();
        LookupStats { masks: masks.len(), flows: state.flows.len(), ..state.lookups }
    }

    fn drops(&self, reason: DropReason) -> u64 {
        lock(&self.state).drops.get(&reason).copied().unwrap_or(0)
    }

    fn tunnel_checks(&self) -> Checks {
        lock(&self.state).checks
    }
}

impl Datapath for Model {
    fn name(&self) -> &str {
        &self.name
    }

    fn meters(&self) -> Option<&dyn Meters> {
        Some(self)
    }

    fn bonds(&self) -> Option<&dyn Bonds> {
        Some(self)
    }

    fn connections(&self) -> Option<&dyn datapath::Connections> {
        None
    }

    fn supports(&self, action: &Action) -> bool {
        nesting(std::slice::from_ref(action)) <= ACTION_DEPTH_LIMIT
    }

    fn shutdown(&self) {
        let mut state = lock(&self.state);
        state.ports.clear();
        state.flows.clear();
        drop(state);
        *lock(&self.factory) = None;
        let upcallers = std::mem::take(&mut *lock(&self.upcallers));
        drop(upcallers);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The provider's tables.

use super::meters::Metered;
use super::tunnels::{Device, TunnelPort};
use super::{HANDLE, NUMBER, PRIORITIES};
use crate::encode::{self, Encoded, Refused, Target, TunnelDevice};
use crate::filter::{Counts, Filter, Hook, Place, Policy};
use crate::kernel::Facts;
use crate::policer::Policer;
use clock::Millis;
use datapath::{Action, DropReason, FlowStats, Megaflow, PortNo, Refusal, Ufid};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

/// Different explanations that are kept. Drivers have a few dozens.
const MOST_EXPLANATIONS: usize = 100;

/// The places that have filters for the packets of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The card whose port it is.
    Card,
    /// The kernel, and the card where it takes a filter.
    Both,
    /// The kernel.
    Kernel,
    /// None. The kernel's filters at other ports may send to it.
    Target,
}

/// A port of a card, or one that filters in the kernel are for.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub ifindex: u32,
    /// As of the attachment.
    pub facts: Facts,
    pub role: Role,
    /// Bytes after the Ethernet header.
    pub mtu: u32,
    /// Its packets may meet filters. When not, other ports' flows may output to it.
    pub takes_packets: bool,
    /// This provider has made the qdisc.
    pub has_made_qdisc: bool,
    /// A device of the host, which carries outer packets of tunnels.
    pub is_underlay: bool,
}

impl Port {
    /// Returns a port whose packets meet no filters.
    pub fn target(ifindex: u32, mtu: u32) -> Port {
        Port {
            ifindex,
            facts: Facts::none(),
            role: Role::Target,
            mtu,
            takes_packets: false,
            has_made_qdisc: false,
            is_underlay: false,
        }
    }

    /// True for a port of a card that may get filters.
    pub fn has_card(&self) -> bool {
        matches!(self.role, Role::Card | Role::Both)
    }

    /// True when the kernel runs filters for its packets.
    pub fn is_in_kernel(&self) -> bool {
        matches!(self.role, Role::Both | Role::Kernel)
    }

    /// Returns a line for people.
    pub fn about(&self) -> Option<String> {
        if !self.has_card() {
            let words = "flower in the kernel, before the programs of BPF".to_owned();
            return (self.role == Role::Kernel).then_some(words);
        }
        let switch: String = self.facts.switch.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(match switch.is_empty() {
            true => "card: no switch id, so flows to other ports stay on the host".to_owned(),
            false => format!("card: switch id {switch}"),
        })
    }
}

/// Bytes of an Ethernet header, and of a VLAN header. The kernel takes them off a received packet
/// before it counts the bytes that a filter meets.
const ETHERNET_BYTES: u64 = 14;
const VLAN_BYTES: u64 = 4;
/// `ETH_P_8021Q`, `ETH_P_8021AD`
const VLAN_TYPES: [u16; 2] = [0x8100, 0x88a8];

/// A flow that has a filter.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub flow: Megaflow,
    pub place: Place,
    /// The flow is lost when no card has the filter.
    pub needs_card: bool,
    /// A card has the filter, as last read.
    pub is_in_card: bool,
    /// The counts of filters that this one has replaced.
    pub earlier: Counts,
    /// Its own counts, as last read.
    pub counts: Counts,
    /// When the counts grew last.
    pub used: Millis,
    /// The card, or another program, has removed it.
    pub is_lost: bool,
}

impl Held {
    /// Returns a flow without packets.
    pub fn new(flow: &Megaflow, place: Place, needs_card: bool, is_in_card: bool) -> Held {
        Held {
            flow: flow.clone(),
            place,
            needs_card,
            is_in_card,
            earlier: Counts::default(),
            counts: Counts::default(),
            used: Millis(0),
            is_lost: false,
        }
    }

    pub fn stats(&self) -> FlowStats {
        FlowStats {
            packets: self.earlier.packets + self.counts.packets,
            bytes: self.bytes(self.earlier) + self.bytes(self.counts),
            used: self.used,
            tcp_flags: 0, // cards do not report them
        }
    }

    /// Returns the bytes of packets with their link headers. A card counts these, the kernel does not.
    fn bytes(&self, counts: Counts) -> u64 {
        let tag = if VLAN_TYPES.contains(&self.place.protocol) { VLAN_BYTES } else { 0 };
        let packets = counts.packets.saturating_sub(counts.card_packets);
        let off = if self.needs_card { 0 } else { ETHERNET_BYTES + tag };
        counts.bytes + packets * off
    }

    /// Notes counts that were read, and returns the number of new packets. Counts never decrease: a
    /// smaller number is that of a card which was reset.
    fn note(&mut self, counts: Counts, now: Millis) -> u64 {
        let new = counts.packets.saturating_sub(self.counts.packets);
        self.counts.packets = self.counts.packets.max(counts.packets);
        self.counts.bytes = self.counts.bytes.max(counts.bytes);
        self.counts.card_packets = self.counts.card_packets.max(counts.card_packets);
        if new > 0 {
            self.used = now;
        }
        new
    }

    /// Ends the counts of one filter: the next one counts from zero.
    pub fn begin_again(&mut self) {
        let counts = std::mem::take(&mut self.counts);
        self.earlier.packets += counts.packets;
        self.earlier.bytes += counts.bytes;
        self.earlier.card_packets += counts.card_packets;
    }

    /// Returns the reason for which its packets are dropped; `None` when they go on.
    fn drop_reason(&self) -> Option<DropReason> {
        match self.flow.actions.last() {
            None => Some(DropReason::Flow),
            Some(Action::Drop(reason)) => Some(*reason),
            Some(_) => None,
        }
    }
}

/// The provider's tables.
#[derive(Default)]
pub(super) struct State {
    pub ports: BTreeMap<PortNo, Port>,
    pub tunnels: BTreeMap<PortNo, TunnelPort>,
    pub flows: HashMap<Ufid, Held>,
    /// The flow of each handle in use.
    handles: HashMap<u32, Ufid>,
    /// The last handle that was given out.
    last_handle: u32,
    /// The Ethernet type of each priority in use.
    priorities: BTreeMap<u16, u16>,
    /// Devices whose `hw-tc-offload` this provider has enabled once.
    pub enabled: BTreeSet<u32>,
    /// `other_config:tc-policy`.
    pub policy: Policy,
    pub lost: Vec<Ufid>,
    /// Filters that the kernel did not remove, to be tried again.
    pub stuck: Vec<Place>,
    /// The earliest time at which counts are read again.
    pub next_sweep: Option<Instant>,
    /// Explanations of refusals, with counts.
    pub explanations: BTreeMap<String, u64>,
    /// By number.
    pub meters: BTreeMap<u32, Metered>,
    /// The number of the last policer.
    pub last_policer: u32,
    pub hits: u64,
    pub drops: BTreeMap<DropReason, u64>,
}

/// The switch as the flows of one ingress see it.
struct View<'s> {
    state: &'s State,
    /// The kernel runs their filters, if no card does.
    is_in_kernel: bool,
}

impl encode::Switch for View<'_> {
    fn target(&self, port: PortNo) -> Option<Target> {
        let port = self.state.ports.get(&port).filter(|port| !port.is_underlay);
        port.map(|port| Target::Device(port.ifindex))
    }

    fn tunnel(&self, port: PortNo) -> Option<TunnelDevice> {
        let port = self.state.tunnels.get(&port)?;
        let device = port.device.filter(|device| device.takes_filters)?;
        Some(TunnelDevice { ifindex: device.ifindex, udp_port: port.udp_port })
    }

    fn is_underlay(&self, port: PortNo) -> bool {
        self.state.ports.get(&port).is_some_and(|port| port.is_underlay)
    }

    fn chain(&self, recirc_id: u32) -> Option<u32> {
        // A packet that misses in the middle of chains would come up in its changed form, without
        // the number of the chain: the kernels of Debian lack TC_SKB_EXT.
        (recirc_id == 0).then_some(0)
    }

    fn policer(&self, meter: u32) -> Option<Policer> {
        // BPF limits exactly, the kernel's policer does not count the first packet.
        let metered = self.state.meters.get(&meter).filter(|_| !self.is_in_kernel);
        metered.map(|metered| metered.policer)
    }

    fn tracks_by_kernel(&self) -> bool {
        false
    }

    fn runs_in_kernel(&self) -> bool {
        self.is_in_kernel
    }
}

/// Where packets of a port meet filters.
struct Ingress<'s> {
    ifindex: u32,
    /// The card, which all other ports of a flow must belong to; empty when the driver gives none.
    switch: &'s Vec<u8>,
    /// A tunnel's device has no driver that could be asked for the card alone.
    policy: Policy,
    /// A filter that no card has is of no use.
    needs_card: bool,
    /// Longest packet that comes in there; `None` where a card decides about lengths.
    mtu: Option<u32>,
}

fn in_port(flow: &Megaflow) -> PortNo {
    PortNo(flow.matching.key().in_port.get())
}

impl State {
    /// Encodes a flow for the card of its ingress port.
    pub fn encode(&self, flow: &Megaflow) -> Result<Encoded, Refused> {
        let absent = Refused {
            refusal: Refusal::PortNotHere,
            words: "the flow's ingress port is not a port of a card",
        };
        let from = self.ingress(in_port(flow)).ok_or(absent)?;
        if from.needs_card && !self.sends_to(&flow.actions, &from) {
            let words = "a card sends to its own ports";
            return Err(Refused { refusal: Refusal::OtherSwitch, words });
        }
        if from.mtu.is_some_and(|mtu| !self.has_room(&flow.actions, mtu)) {
            return Err(encode::no_action("filters send packets that are longer than an MTU"));
        }
        encode::encode(flow, &View { state: self, is_in_kernel: !from.needs_card })
    }

    /// Returns where packets of a port meet filters; `None` when they meet none.
    fn ingress(&self, port: PortNo) -> Option<Ingress<'_>> {
        if let Some(tunnel) = self.tunnels.get(&port) {
            let Device { ifindex, .. } = tunnel.device.filter(|device| device.takes_filters)?;
            // Outer packets that a port of a bridge receives have met its rules first.
            let mut underlay = self.ports.values().filter(|port| port.is_underlay);
            let switch = &underlay.find(|port| !port.facts.switch.is_empty())?.facts.switch;
            let policy = Policy::Both;
            return Some(Ingress { ifindex, switch, policy, needs_card: true, mtu: None });
        }
        let port = self.ports.get(&port).filter(|port| port.takes_packets)?;
        let (ifindex, switch) = (port.ifindex, &port.facts.switch);
        let policy = match port.role {
            Role::Both | Role::Kernel => self.policy,
            Role::Card | Role::Target => Policy::SkipSoftware,
        };
        let is_in_kernel = port.is_in_kernel();
        let mtu = is_in_kernel.then_some(port.mtu);
        Some(Ingress { ifindex, switch, policy, needs_card: !is_in_kernel, mtu })
    }

    /// True when no packet of this length is too long for a port that actions send to. Filters do not
    /// compare lengths.
    fn has_room(&self, actions: &[Action], mtu: u32) -> bool {
        actions.iter().all(|action| match action {
            Action::Clone(actions) => self.has_room(actions, mtu),
            Action::Output(to) => self.ports.get(to).is_none_or(|to| mtu <= to.mtu),
            _ => true,
        })
    }

    /// True when the filter of a flow is of no use unless a card has it.
    pub fn needs_card(&self, flow: &Megaflow) -> bool {
        self.ingress(in_port(flow)).is_none_or(|from| from.needs_card)
    }

    /// True when all ports that actions send to are of the card of the ingress.
    fn sends_to(&self, actions: &[Action], from: &Ingress<'_>) -> bool {
        actions.iter().all(|action| match action {
            Action::Clone(actions) => self.sends_to(actions, from),
            Action::Output(to) => self.ports.get(to).is_none_or(|to| {
                to.ifindex == from.ifindex
                    || !from.switch.is_empty() && *from.switch == to.facts.switch
            }),
            _ => true,
        })
    }

    /// Returns the filter of a flow, at a place that is the flow's until [`State::release`].
    pub fn filter(&mut self, flow: &Megaflow) -> Result<Filter, Refused> {
        let encoded = self.encode(flow)?;
        let priority = self.priority(encoded.protocol).ok_or(Refused {
            refusal: Refusal::UnsupportedKey,
            words: "there are filters of twelve other Ethernet types",
        })?;
        let (ifindex, policy) = match self.ingress(in_port(flow)) {
            Some(ingress) => (ingress.ifindex, ingress.policy),
            None => (0, Policy::SkipSoftware),
        };
        let handle = self
            .handle()
            .ok_or(Refused { refusal: Refusal::TableFull, words: "there are a million filters" })?;
        self.handles.insert(handle, flow.ufid);
        let place = Place {
            ifindex,
            hook: Hook::Ingress,
            chain: encoded.chain,
            priority,
            protocol: encoded.protocol,
            handle,
        };
        Ok(filter(flow, place, encoded, policy))
    }

    /// Returns the filter of a flow at the place that it has.
    pub fn filter_at(&self, flow: &Megaflow, place: Place) -> Result<Filter, Refused> {
        let encoded = self.encode(flow)?;
        let policy = self.ingress(in_port(flow)).map_or(Policy::SkipSoftware, |from| from.policy);
        Ok(filter(flow, place, encoded, policy))
    }

    /// Frees the place of a filter that does not exist.
    pub fn release(&mut self, place: &Place) {
        self.handles.remove(&place.handle);
    }

    fn handle(&mut self) -> Option<u32> {
        let next = (1..=NUMBER).find_map(|step| {
            let number = self.last_handle.wrapping_add(step) & NUMBER;
            let handle = HANDLE | number;
            (number != 0 && !self.handles.contains_key(&handle)).then_some(handle)
        })?;
        self.last_handle = next & NUMBER;
        Some(next)
    }

    /// Returns the priority for filters of an Ethernet type. A priority has one type while one of its
    /// filters exists.
    fn priority(&mut self, protocol: u16) -> Option<u16> {
        if let Some((priority, _)) = self.priorities.iter().find(|(_, of)| **of == protocol) {
            return Some(*priority);
        }
        let free = PRIORITIES.clone().find(|priority| !self.priorities.contains_key(priority));
        let unused = || {
            let of_flows = self.flows.values().map(|held| held.place.priority);
            let of_stuck = self.stuck.iter().map(|place| place.priority);
            let used: BTreeSet<u16> = of_flows.chain(of_stuck).collect();
            PRIORITIES.clone().find(|priority| !used.contains(priority))
        };
        let priority = free.or_else(unused)?;
        self.priorities.insert(priority, protocol);
        Some(priority)
    }

    /// Returns the devices with filters.
    pub fn devices(&self) -> BTreeSet<u32> {
        self.flows.values().map(|held| held.place.ifindex).collect()
    }

    /// Notes the counts of filters. Flows whose filter is not among them, or not in the card that it is
    /// for, are lost.
    pub fn note_sweep(&mut self, seen: &[(Place, Counts, bool)], now: Millis) {
        let mut there: BTreeSet<Place> = BTreeSet::new();
        for (place, counts, in_hw) in seen {
            let Some(ufid) = self.handles.get(&place.handle).copied() else { continue };
            self.note_counts(ufid, *counts, now);
            let Some(held) = self.flows.get_mut(&ufid) else { continue };
            held.is_in_card = *in_hw;
            if *in_hw || !held.needs_card {
                there.insert(*place);
            }
        }
        let State { flows, lost, .. } = self;
        for (ufid, held) in flows {
            if !held.is_lost && !there.contains(&held.place) {
                held.is_lost = true;
                lost.push(*ufid);
            }
        }
    }

    /// Notes that the flows with filters at a device have these no more.
    pub fn lose_all_at(&mut self, ifindex: u32) {
        let State { flows, lost, .. } = self;
        for (ufid, held) in flows {
            if held.place.ifindex == ifindex && !held.is_lost {
                held.is_lost = true;
                lost.push(*ufid);
            }
        }
    }

    /// Notes the counts of a flow's filter.
    pub fn note_counts(&mut self, ufid: Ufid, counts: Counts, now: Millis) {
        let Some(held) = self.flows.get_mut(&ufid) else { return };
        let new = held.note(counts, now);
        self.hits += new;
        if let Some(reason) = held.drop_reason() {
            *self.drops.entry(reason).or_default() += new;
        }
    }

    /// Counts an explanation of a refusal.
    pub fn note_explanation(&mut self, words: &str) {
        let is_known = self.explanations.contains_key(words);
        let has_room = self.explanations.len() < MOST_EXPLANATIONS;
        let words = if is_known || has_room { words } else { "other explanations" };
        *self.explanations.entry(words.to_owned()).or_default() += 1;
    }
}

fn filter(flow: &Megaflow, place: Place, encoded: Encoded, policy: Policy) -> Filter {
    Filter {
        place,
        keys: encoded.keys,
        acts: encoded.acts,
        cookie: flow.ufid.0.to_be_bytes(),
        policy,
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Effects of packets other than output to a port.
//!
//! Translation returns datapath actions and a list of [`Effect`]s: the rules, tables and groups
//! that the megaflow's packets are credited to, the learned MAC addresses, and the learned flows.
//! The upcall applies the effects once for its packet. The revalidator applies them again for the
//! packets that the datapath has counted since. So rules' counters, MAC ages and learned flows'
//! idle times follow the traffic that the slow path never sees. Nothing here blocks: work for the
//! control thread goes through [`Sender`] as an [`Event`].

use crate::bond::Buckets;
use crate::event::{Event, Sender};
use crate::export::NetFlow;
use crate::group::{Count, Group};
use crate::ids::BridgeIndex;
use crate::learned_flow::LearnedFlow;
use crate::rule::Rule;
use crate::snapshot::{Snapshot, TableStats};
use ::export::netflow::{Flow as NetFlowKey, Output as NetFlowOutput};
use clock::Millis;
use datapath::FlowStats;
use openflow::PortNo;
use packet::{Mac, Packet};
use std::net::IpAddr;
use std::sync::Arc;
use underlay::Underlay;

/// One consequence of a megaflow's packets.
#[derive(Clone, Debug)]
pub enum Effect {
    /// A rule matched.
    Rule(Arc<Rule>),
    /// A table was looked up, with or without a match.
    Table {
        /// Counters of the table.
        stats: Arc<TableStats>,
        /// Whether the lookup found a rule.
        matched: bool,
    },
    /// A group and one of its buckets (an index into [`Group::buckets`]) were used.
    Bucket {
        /// The group.
        group: Arc<Group>,
        /// Index of the bucket.
        bucket: usize,
    },
    /// A group of kind "all" or "indirect" was used: all its buckets got a copy.
    AllBuckets(Arc<Group>),
    /// Packets through one side of a patch or tunnel port.
    VirtualPort(Arc<[Count; 2]>, Direction),
    /// A bucket of a bond's hash chose the member.
    Bond(Arc<Buckets>, u8),
    /// A mirror got a copy.
    Mirror(Arc<Count>),
    /// NetFlow accounts the packets to a flow.
    NetFlow {
        /// Records of the bridge.
        netflow: Arc<NetFlow>,
        /// The flow.
        flow: NetFlowKey,
        /// Where its packets go.
        output: NetFlowOutput,
    },
    /// NORMAL learned the location of a MAC address.
    Learn {
        /// The MAC table that learns.
        macs: Arc<crate::mac_table::MacTable>,
        /// VLAN of the packet; 0 for none.
        vlan: u16,
        /// Source address of the packet.
        mac: [u8; 6],
        /// Port on which it was seen.
        port: PortNo,
        /// The packet was a gratuitous ARP (moves entries of locked bonds).
        gratuitous_arp: bool,
    },
    /// The packet is an IGMP or MLD message. Only for the packet that was translated: each message
    /// has its own translation.
    LearnGroups {
        /// The table of the bridge that snoops.
        table: Arc<crate::multicast_table::MulticastTable>,
        /// VLAN of the packet; 0 for none.
        vlan: u16,
        /// Port by which it came; the first of a bond.
        port: PortNo,
        /// Role of that port.
        role: crate::multicast_table::SnoopingRole,
        /// Consequences of the message.
        messages: Arc<[protocols::membership::Membership]>,
    },
    /// `learn` action: the flow to add or refresh.
    LearnFlow {
        /// Bridge of the flow.
        bridge: BridgeIndex,
        /// The flow.
        flow: Arc<LearnedFlow>,
    },
    /// `fin_timeout`: lowers the rule's timeouts when FIN or RST is seen.
    FinTimeout {
        /// The rule.
        rule: Arc<Rule>,
        /// Idle timeout to lower to, in seconds; 0 leaves it unchanged.
        idle: u16,
        /// Hard timeout to lower to, in seconds; 0 leaves it unchanged.
        hard: u16,
    },
    /// Packets went on with outer headers of a tunnel.
    Encapsulated {
        /// Bytes that the headers added to each packet.
        added: u64,
        /// Consequences of the packets with these headers.
        effects: Vec<Effect>,
    },
    /// A neighbour of the underlay was used.
    UseNeighbour {
        /// Table of the neighbours.
        underlay: Arc<Underlay>,
        /// Device at which the neighbour is.
        device: Arc<str>,
        /// Its address.
        address: IpAddr,
    },
    /// A packet showed a neighbour of the underlay.
    LearnNeighbour {
        /// Table of the neighbours.
        underlay: Arc<Underlay>,
        /// Device at which the neighbour is.
        device: Arc<str>,
        /// Its address.
        address: IpAddr,
        /// Its Ethernet address.
        mac: Mac,
        /// All packets of the megaflow show it; else it may have packets of others, too, and the
        /// effect is for the packet that was translated alone.
        is_lasting: bool,
    },
    /// A neighbour of the underlay is not known: the packet asks for it.
    Solicit {
        /// Bridge of the device.
        bridge: BridgeIndex,
        /// Port of the device.
        port: PortNo,
        /// The packet that asks.
        packet: Arc<Packet>,
        /// Table of the neighbours, which decides whether it is time to ask.
        underlay: Arc<Underlay>,
        /// Device at which the neighbour is.
        device: Arc<str>,
        /// Address of the neighbour.
        address: IpAddr,
    },
    /// A neighbour at a device of the host is not known: the kernel asks for it.
    ResolveNeighbour {
        /// Name of the device.
        device: Arc<str>,
        /// Address of the neighbour.
        address: IpAddr,
    },
}

/// Direction of packets through a patch or tunnel port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Into the bridge.
    Rx,
    /// Out of the bridge.
    Tx,
}

/// Refreshes the flows that `effects` learn, in place of the control thread. Returns false, and
/// does nothing, when there are no such flows or when `snapshot` lacks one of them in its present
/// form. The control thread must then process the effects in their order.
pub(crate) fn refresh_learned(effects: &[Effect], used: Millis, snapshot: &Snapshot) -> bool {
    let mut rules = Vec::new();
    for effect in effects {
        let Effect::LearnFlow { bridge, flow } = effect else { continue };
        let there = snapshot.bridge(*bridge).and_then(|bridge| flow.rule_in(bridge));
        match there {
            Some(rule) if !flow.is_reserved() => rules.push(rule),
            _ => return false,
        }
    }
    rules.iter().for_each(|rule| rule.modified.record(used));
    !rules.is_empty()
}

/// Applies `effects` for the packets that `seen` counts.
pub fn apply(effects: &[Effect], seen: &FlowStats, events: &Sender) {
    let FlowStats { packets, bytes, used, tcp_flags } = *seen;
    for effect in effects {
        match effect {
            Effect::Rule(rule) => rule.stats.credit(packets, bytes, used),
            Effect::Table { stats, matched } => stats.credit(*matched, packets),
            Effect::Bucket { group, bucket } => {
                group.stats.credit(packets, bytes);
                if let Some(bucket) = group.buckets.get(*bucket) {
                    bucket.stats.credit(packets, bytes);
                }
            }
            Effect::AllBuckets(group) => {
                group.stats.credit(packets, bytes);
                for bucket in &group.buckets {
                    bucket.stats.credit(packets, bytes);
                }
            }
            Effect::VirtualPort(counts, direction) => {
                let [rx, tx] = &**counts;
                let count = if *direction == Direction::Rx { rx } else { tx };
                count.credit(packets, bytes);
            }
            Effect::Mirror(count) => count.credit(packets, bytes),
            Effect::Bond(buckets, bucket) => buckets.credit(*bucket, bytes),
            Effect::NetFlow { netflow, flow, output } => netflow.credit(*flow, *output, seen),
            Effect::Encapsulated { added, effects } => {
                let bytes = bytes.saturating_add(added.saturating_mul(packets));
                // The outer frame is no TCP.
                apply(effects, &FlowStats { bytes, tcp_flags: 0, ..*seen }, events);
            }
            Effect::Learn { .. }
            | Effect::LearnGroups { .. }
            | Effect::LearnFlow { .. }
            | Effect::FinTimeout { .. }
            | Effect::UseNeighbour { .. }
            | Effect::LearnNeighbour { .. }
            | Effect::Solicit { .. }
            | Effect::ResolveNeighbour { .. } => {
                apply_one(effect, packets, tcp_flags, used, events);
            }
        }
    }
}

/// Ends the accounts of a megaflow with `effects`. It has no packets from `now` on.
pub(crate) fn end(effects: &[Effect], now: Millis) {
    for effect in effects {
        match effect {
            Effect::NetFlow { netflow, flow, .. } => netflow.end(flow, now),
            Effect::Encapsulated { effects, .. } => end(effects, now),
            _ => {}
        }
    }
}

/// Applies `effects` as [`apply`] does, except learned flows, which already exist.
pub(crate) fn apply_but_learning(effects: &[Effect], seen: &FlowStats, events: &Sender) {
    for others in effects.split(learns) {
        apply(others, seen, events);
    }
}

/// Removes the effects that only the translated packet has, from those of its megaflow.
pub(crate) fn keep_lasting(effects: &mut Vec<Effect>) {
    effects.retain_mut(|effect| match effect {
        Effect::LearnNeighbour { is_lasting, .. } => *is_lasting,
        Effect::LearnGroups { .. } => false,
        Effect::Encapsulated { effects, .. } => {
            keep_lasting(effects);
            !effects.is_empty()
        }
        _ => true,
    });
}

/// Returns true for an effect that learns a flow.
pub(crate) fn learns(effect: &Effect) -> bool {
    matches!(effect, Effect::LearnFlow { .. })
}

/// Applies `effects` without counters, for one traced packet. Addresses and flows are learned and
/// timeouts are lowered, but no counter includes a packet that was never received.
pub fn apply_uncounted(effects: &[Effect], tcp_flags: u16, used: Millis, events: &Sender) {
    for effect in effects {
        apply_one(effect, 1, tcp_flags, used, events);
    }
}

/// Applies the part of an effect that is not a counter.
fn apply_one(effect: &Effect, packets: u64, tcp_flags: u16, used: Millis, events: &Sender) {
    const FIN_OR_RST: u16 = 0x05;
    match effect {
        Effect::Learn { macs, vlan, mac, port, gratuitous_arp } => {
            let moved = packets > 0 && macs.learn(*vlan, *mac, *port, *gratuitous_arp, used);
            if moved {
                events.send(Event::MacTableChanged(macs.bridge()));
            }
        }
        Effect::LearnGroups { table, vlan, port, role, messages } => {
            let is_new = packets > 0 && table.learn(*vlan, *port, *role, messages, used);
            if is_new {
                events.send(Event::MacTableChanged(table.bridge()));
            }
        }
        Effect::LearnFlow { bridge, flow } if packets > 0 => {
            events.send(Event::LearnFlow { bridge: *bridge, flow: Arc::clone(flow), used });
        }
        Effect::Encapsulated { effects, .. } => {
            for effect in effects {
                apply_one(effect, packets, 0, used, events);
            }
        }
        Effect::UseNeighbour { underlay, device, address } if packets > 0 => {
            let _ = underlay.neighbour(device, *address); // its time starts again
        }
        Effect::LearnNeighbour { underlay, device, address, mac, .. } if packets > 0 => {
            underlay.learn(device, *address, *mac);
        }
        Effect::Solicit { bridge, port, packet, underlay, device, address }
            if packets > 0 && underlay.may_solicit(device, *address) =>
        {
            events.send(Event::Solicit {
                bridge: *bridge,
                port: *port,
                packet: Arc::clone(packet),
            });
        }
        Effect::ResolveNeighbour { device, address } if packets > 0 => {
            events.send(Event::ResolveNeighbour { device: Arc::clone(device), address: *address });
        }
        Effect::FinTimeout { rule, idle, hard } if tcp_flags & FIN_OR_RST != 0 => {
            rule.timeouts.reduce(*idle, *hard);
        }
        _ => {}
    }
}

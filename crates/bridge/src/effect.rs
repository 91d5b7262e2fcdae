// SPDX-License-Identifier: Apache-2.0
//! What packets change beside leaving by a port.
//!
//! Translation gives, beside datapath actions, a list of [`Effect`]s: who is credited with
//! the packets of the megaflow, which MAC addresses were learned, which flows. They are
//! applied once in the upcall for its packet and again by the revalidator for the packets
//! that the datapath has counted since (so that rules' counters, MAC ages and learned flows'
//! idle times follow the traffic that the slow path never sees). Nothing here blocks: what
//! the control thread must do goes through [`Sender`] as an [`Event`].

use crate::event::{Event, Sender};
use crate::group::{Count, Group};
use crate::rule::{Rule, matches_frozen};
use crate::snapshot::{BridgeIndex, BridgeView, INTERNAL_TABLE, Snapshot, TableStats};
use classifier::MiniMatch;
use clock::Millis;
use datapath::FlowStats;
use openflow::PortNo;
use openflow::message::FlowFlags;
use std::sync::Arc;

/// One consequence of a megaflow's packets.
#[derive(Clone, Debug)]
pub enum Effect {
    /// A rule matched.
    Rule(Arc<Rule>),
    /// A table was looked up, with or without a match.
    Table {
        /// Whose counters.
        stats: Arc<TableStats>,
        /// A rule was found.
        matched: bool,
    },
    /// A group and one of its buckets (place in [`Group::buckets`]) were used.
    Bucket {
        /// The group.
        group: Arc<Group>,
        /// The bucket.
        bucket: usize,
    },
    /// A group of kind "all" or "indirect" was used: all its buckets got a copy.
    AllBuckets(Arc<Group>),
    /// Packets through one side of a patch port.
    Patch(Arc<[Count; 2]>, Direction),
    /// NORMAL learned where a MAC address is.
    Learn {
        /// Whose table.
        macs: Arc<crate::mac_table::MacTable>,
        /// VLAN.
        vlan: u16,
        /// Address.
        mac: [u8; 6],
        /// Where it was seen.
        port: PortNo,
        /// The packet was a gratuitous ARP (moves entries of locked bonds).
        gratuitous_arp: bool,
    },
    /// `learn` action: the flow to add or refresh.
    LearnFlow {
        /// Which bridge.
        bridge: BridgeIndex,
        /// The flow.
        flow: Arc<LearnedFlow>,
    },
    /// `fin_timeout`: lower the rule's timeouts when FIN or RST is seen.
    FinTimeout {
        /// The rule.
        rule: Arc<Rule>,
        /// Seconds.
        idle: u16,
        /// Seconds.
        hard: u16,
    },
}

/// Receive or send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Into the bridge.
    Rx,
    /// Out of the bridge.
    Tx,
}

/// A flow made by a `learn` action, ready to be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedFlow {
    /// Table.
    pub table: u8,
    /// Priority.
    pub priority: u16,
    /// What it matches.
    pub matching: flow::Match,
    /// What it does.
    pub actions: openflow::action::Actions,
    /// Cookie.
    pub cookie: u64,
    /// Seconds.
    pub idle_timeout: u16,
    /// Seconds.
    pub hard_timeout: u16,
    /// `send_flow_rem`.
    pub send_flow_removed: bool,
    /// Deleted together with the rule that learned it: that rule's cookie and table.
    pub delete_with: Option<(u64, u8)>,
    /// At most so many flows with this cookie in this table; 0 is no limit.
    pub limit: u32,
}

impl LearnedFlow {
    /// True when only the switch itself may have such a flow: it is not learned (OFPBRC_EPERM).
    pub(crate) fn is_the_switchs_own(&self) -> bool {
        self.table == INTERNAL_TABLE || matches_frozen(&self.matching)
    }

    /// Flags that the rule keeps.
    pub(crate) fn flags(&self) -> FlowFlags {
        match self.send_flow_removed {
            true => FlowFlags::SEND_FLOW_REM,
            false => FlowFlags::empty(),
        }
    }

    /// True when packets of `bridge`, which is the one that it is for, see it as it is.
    pub(crate) fn is_in(&self, bridge: &BridgeView) -> bool {
        self.rule_in(bridge).is_some()
    }

    /// The rule that it is in `bridge`, which is the one that it is for.
    fn rule_in<'a>(&self, bridge: &'a BridgeView) -> Option<&'a Arc<Rule>> {
        let exact = MiniMatch::new(&self.matching);
        let table = bridge.tables.get(usize::from(self.table))?;
        table.rules.find(&exact, self.priority.into()).filter(|rule| self.is(rule))
    }

    /// True when `rule`, which matches the same, has its actions and cookie. Another is modified,
    /// where the limit allows it; timeouts and flags are those that it has, as in OVS.
    pub(crate) fn is(&self, rule: &Rule) -> bool {
        rule.actions == self.actions && rule.cookie == self.cookie
    }
}

/// Refreshes the flows that `effects` learn, as the control thread would, where there are any and
/// `snapshot` has all of them as they are. False, and nothing is done, where that thread must come
/// to them, in their order.
pub(crate) fn refresh_learned(effects: &[Effect], used: Millis, snapshot: &Snapshot) -> bool {
    let mut rules = Vec::new();
    for effect in effects {
        let Effect::LearnFlow { bridge, flow } = effect else { continue };
        let there = snapshot.bridge(*bridge).and_then(|bridge| flow.rule_in(bridge));
        match there {
            Some(rule) if !flow.is_the_switchs_own() => rules.push(rule),
            _ => return false,
        }
    }
    rules.iter().for_each(|rule| rule.modified.note(used));
    !rules.is_empty()
}

/// Applies `effects` for the packets that `seen` tells of.
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
            Effect::Patch(counts, direction) => {
                let [rx, tx] = &**counts;
                let count = if *direction == Direction::Rx { rx } else { tx };
                count.credit(packets, bytes);
            }
            Effect::Learn { .. } | Effect::LearnFlow { .. } | Effect::FinTimeout { .. } => {
                apply_one(effect, packets, tcp_flags, used, events);
            }
        }
    }
}

/// [`apply`] for all of `effects` but flows that are learned, as these are there already.
pub(crate) fn apply_but_learning(effects: &[Effect], seen: &FlowStats, events: &Sender) {
    for others in effects.split(learns) {
        apply(others, seen, events);
    }
}

/// True when packets make a flow.
pub(crate) fn learns(effect: &Effect) -> bool {
    matches!(effect, Effect::LearnFlow { .. })
}

/// Applies what `effects` say beside counters, for one packet that is only traced: addresses
/// and flows are learned and timeouts lowered, but nothing counts a packet that never came.
pub fn apply_uncounted(effects: &[Effect], tcp_flags: u16, used: Millis, events: &Sender) {
    for effect in effects {
        apply_one(effect, 1, tcp_flags, used, events);
    }
}

/// The part of an effect that is no counter.
fn apply_one(effect: &Effect, packets: u64, tcp_flags: u16, used: Millis, events: &Sender) {
    const FIN_OR_RST: u16 = 0x05;
    match effect {
        Effect::Learn { macs, vlan, mac, port, gratuitous_arp } => {
            let moved = packets > 0 && macs.learn(*vlan, *mac, *port, *gratuitous_arp, used);
            if moved {
                events.send(Event::MacTableChanged(macs.bridge()));
            }
        }
        Effect::LearnFlow { bridge, flow } if packets > 0 => {
            events.send(Event::LearnFlow { bridge: *bridge, flow: Arc::clone(flow), used });
        }
        Effect::FinTimeout { rule, idle, hard } if tcp_flags & FIN_OR_RST != 0 => {
            rule.timeouts.reduce(*idle, *hard);
        }
        _ => {}
    }
}

// SPDX-License-Identifier: Apache-2.0
//! NORMAL for multicast packets of a bridge that snoops (RFC 4541, 2.1 and 3).
//!
//! IGMP and MLD messages change the table of groups, so each of them needs a translation of its own:
//! their megaflow sends them to the slow path. Other packets go to the members of their group, and
//! to routers.

use super::context::{ACTION, Context};
use super::normal::Input;
use super::vlan::Vlans;
use crate::effect::Effect;
use crate::multicast_table::{MulticastTable, SnoopingRole};
use crate::trace::Kind;
use openflow::PortNo;
use packet::{ethertype, ip_proto};
use protocols::membership::{self, Membership, MembershipError, igmp_type, mld_type};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// ff02::1, which all nodes listen to.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Texts of the trace for one group of targets.
struct Texts {
    forwarding: &'static str,
    unknown: &'static str,
    is_input: &'static str,
}

const REPORTS: Texts = Texts {
    forwarding: "forwarding report to mcast flagged port",
    unknown: "mcast port is unknown, dropping the report",
    is_input: "mcast port is input port, dropping the Report",
};
const ROUTER: Texts = Texts {
    forwarding: "forwarding to mcast router port",
    unknown: "mcast router port is unknown, dropping",
    is_input: "mcast router port is input port, dropping",
};
const FLOOD: Texts = Texts {
    forwarding: "forwarding to mcast flood port",
    unknown: "mcast flood port is unknown, dropping",
    is_input: "mcast flood port is input port, dropping",
};
const GROUP: Texts = Texts {
    forwarding: "forwarding to mcast group port",
    unknown: "mcast group port is unknown, dropping",
    is_input: "mcast group port is input port, dropping",
};

impl Context<'_> {
    /// Returns true for a packet that snooping forwards. NORMAL has made the destination address
    /// exact, and the Ethernet type always is.
    pub(super) fn is_snooped(&self) -> bool {
        let [first, ..] = self.key.dl_dst;
        self.bridge.multicast.is_some()
            && first & 1 != 0
            && self.key.dl_dst != [0xff; 6]
            && matches!(self.key.dl_type.get(), ethertype::IPV4 | ethertype::IPV6)
    }

    /// Forwards a packet for which [`Context::is_snooped`] holds.
    pub(super) fn snoop(&mut self, input: &Input<'_>, vlans: &Vlans) {
        let Some(table) = self.bridge.multicast.clone() else { return };
        let m = &mut self.mask.0;
        m.nw_proto = u8::MAX;
        let kind = u8::try_from(self.key.tp_src.get()).unwrap_or(0);
        let is_v4 = self.key.dl_type.get() == ethertype::IPV4;
        if is_v4 && self.key.nw_proto == ip_proto::IGMP {
            // The slow path reads the type, so the megaflow need not be of one type.
            self.slow_path = Some(ACTION);
            self.learn_groups(&table, input, vlans, kind);
            if is_igmp_membership(kind) {
                self.output_report(&table, input, vlans);
            } else {
                self.report(Kind::Detail, || "multicast traffic, flooding".to_string());
                self.flood_bundles(input, vlans);
            }
            return;
        }
        if !is_v4 && self.key.nw_proto == ip_proto::ICMPV6 {
            m.tp_src.set(u16::MAX);
            if is_mld(kind) {
                self.slow_path = Some(ACTION);
                self.learn_groups(&table, input, vlans, kind);
                if kind == mld_type::QUERY {
                    self.report(Kind::Detail, || "MLD query, flooding".to_string());
                    self.flood_bundles(input, vlans);
                } else {
                    self.output_report(&table, input, vlans);
                }
                return;
            }
        }
        let group = self.multicast_group();
        // Hosts do not always report that they listen to these (RFC 4541, 2.1.2 and 3).
        let is_local = match group.to_ipv4_mapped() {
            Some(v4) => matches!(v4.octets(), [224, 0, 0, _]),
            None => group == ALL_NODES,
        };
        if is_local {
            self.report(Kind::Detail, || "RFC4541: section 2.1.2, item 2, flooding".to_string());
            self.flood_bundles(input, vlans);
            return;
        }
        let mut sent = Vec::new();
        match table.members(vlans.vid(), group) {
            Some(members) => {
                for port in members {
                    self.output_snooped(Some(port), &GROUP, input, vlans, &mut sent);
                }
                self.output_flagged(|role| role.floods, &FLOOD, input, vlans, &mut sent);
                self.output_routers(&table, input, vlans, &mut sent);
            }
            None if !self.bridge.config.unregistered_to_routers => {
                self.report(Kind::Detail, || "unregistered multicast, flooding".to_string());
                self.flood_bundles(input, vlans);
            }
            None => {
                self.output_routers(&table, input, vlans, &mut sent);
                self.output_flagged(|role| role.floods, &FLOOD, input, vlans, &mut sent);
            }
        }
    }

    /// Returns the packet's destination, IPv4 in the mapped form, and makes it exact.
    fn multicast_group(&mut self) -> Ipv6Addr {
        let m = &mut self.mask.0;
        if self.key.dl_type.get() == ethertype::IPV4 {
            m.nw_dst.set(u32::MAX);
            Ipv4Addr::from_bits(self.key.nw_dst.get()).to_ipv6_mapped()
        } else {
            m.ipv6_dst = [0xff; 16];
            Ipv6Addr::from(self.key.ipv6_dst)
        }
    }

    /// A report goes to routers, and to the ports that ask for all reports: other hosts would not
    /// send their own reports if they saw it (RFC 4541, 2.1.1).
    fn output_report(&mut self, table: &MulticastTable, input: &Input<'_>, vlans: &Vlans) {
        let mut sent = Vec::new();
        self.output_routers(table, input, vlans, &mut sent);
        self.output_flagged(|role| role.gets_reports, &REPORTS, input, vlans, &mut sent);
    }

    fn output_routers(
        &mut self,
        table: &MulticastTable,
        input: &Input<'_>,
        vlans: &Vlans,
        sent: &mut Vec<usize>,
    ) {
        for (port, vlan) in table.routers() {
            if vlan == vlans.vid() {
                self.output_snooped(Some(port), &ROUTER, input, vlans, sent);
            } else {
                self.report(Kind::Detail, || {
                    "mcast router is on another vlan, dropping".to_string()
                });
            }
        }
    }

    fn output_flagged(
        &mut self,
        wanted: impl Fn(SnoopingRole) -> bool,
        texts: &Texts,
        input: &Input<'_>,
        vlans: &Vlans,
        sent: &mut Vec<usize>,
    ) {
        let bridge = self.bridge;
        for bundle in bridge.bundles.iter().filter(|b| wanted(b.snooping)) {
            self.output_snooped(bundle.members.first().copied(), texts, input, vlans, sent);
        }
    }

    /// Outputs to the bundle of a port, once for each packet, and not to the input.
    fn output_snooped(
        &mut self,
        port: Option<PortNo>,
        texts: &Texts,
        input: &Input<'_>,
        vlans: &Vlans,
        sent: &mut Vec<usize>,
    ) {
        let bridge = self.bridge;
        let index = port.and_then(|port| bridge.ports.get(&port)).and_then(|port| port.bundle);
        let bundle = index.and_then(|i| Some((i, bridge.bundles.get(i)?)));
        match bundle {
            None => self.report(Kind::Warning, || texts.unknown.to_string()),
            Some((i, _)) if matches!(input, Input::Bundle(own, _) if *own == i) => {
                self.report(Kind::Detail, || texts.is_input.to_string());
            }
            Some((i, bundle)) if !vlans.included_in(bundle) || bridge.mirrors.reserves(i) => {
                self.report(Kind::Detail, || "mcast port is on another vlan, dropping".to_string());
            }
            Some((i, bundle)) => {
                self.report(Kind::Detail, || texts.forwarding.to_string());
                if !sent.contains(&i) {
                    sent.push(i);
                    self.output_bundle(bundle, vlans);
                }
            }
        }
    }

    /// Learns from an IGMP or MLD message of the type `kind`.
    fn learn_groups(
        &mut self,
        table: &Arc<MulticastTable>,
        input: &Input<'_>,
        vlans: &Vlans,
        kind: u8,
    ) {
        let (Input::Bundle(_, bundle), Some(packet)) = (input, self.packet) else { return };
        let Some(port) = bundle.members.first().copied().filter(|_| self.collect) else { return };
        let vlan = vlans.vid();
        let is_v4 = self.key.dl_type.get() == ethertype::IPV4;
        let decoded = match self.message(packet.data()) {
            Some(message) if is_v4 => membership::decode_igmp(message),
            Some(message) => {
                membership::decode_mld(message, &self.key.ipv6_src, &self.key.ipv6_dst)
            }
            None => Err(MembershipError::Short),
        };
        let name = &bundle.name;
        let Ok(mut messages) = decoded else {
            let protocol = if is_v4 { "IGMP" } else { "MLD" };
            self.report(Kind::Detail, || {
                format!(
                    "multicast snooping received bad {protocol} checksum on port {name} in VLAN {vlan}"
                )
            });
            return;
        };
        // A host without an address is no router.
        let has_source = match is_v4 {
            true => self.key.nw_src.get() != 0,
            false => self.key.ipv6_src != [0; 16],
        };
        messages.retain(|message| *message != Membership::Query || has_source);
        let news = match self.tracer {
            Some(_) => table.count_news(vlan, port, bundle.snooping, &messages),
            None => 0,
        };
        if news > 0 {
            let text = self.membership_text(kind, &messages, news, &bundle.name, vlan);
            self.report(Kind::Detail, || text);
        }
        let (table, role) = (Arc::clone(table), bundle.snooping);
        let messages: Arc<[Membership]> = messages.into();
        self.effect(|| Effect::LearnGroups { table, vlan, port, role, messages });
    }

    /// Returns the bytes after the IP header, without padding.
    fn message<'p>(&self, frame: &'p [u8]) -> Option<&'p [u8]> {
        let (_, layers) = flow::extract::extract(frame, 0);
        let end = frame.len().checked_sub(layers.l2_pad.into())?;
        frame.get(usize::from(layers.l4?)..end)
    }

    fn membership_text(
        &self,
        kind: u8,
        messages: &[Membership],
        news: usize,
        port: &str,
        vlan: u16,
    ) -> String {
        let place = format!("on port {port} in VLAN {vlan}");
        let v4 = |group: &Ipv6Addr| group.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED);
        match (self.key.dl_type.get(), messages) {
            (ethertype::IPV4, [Membership::Query]) => {
                let source = Ipv4Addr::from_bits(self.key.nw_src.get());
                format!("multicast snooping query from {source} is {place}")
            }
            (ethertype::IPV4, [Membership::Join(group, _)]) if kind != igmp_type::V3_REPORT => {
                format!("multicast snooping learned that {} is {place}", v4(group))
            }
            (ethertype::IPV4, [Membership::Leave(group)]) if kind != igmp_type::V3_REPORT => {
                format!("multicast snooping leaving {} is {place}", v4(group))
            }
            (_, [Membership::Query]) => format!("multicast snooping query {place}"),
            _ => format!("multicast snooping processed {news} addresses {place}"),
        }
    }
}

fn is_igmp_membership(kind: u8) -> bool {
    use igmp_type::{LEAVE, V1_REPORT, V2_REPORT, V3_REPORT};
    matches!(kind, V1_REPORT | V2_REPORT | LEAVE | V3_REPORT)
}

fn is_mld(kind: u8) -> bool {
    matches!(kind, mld_type::QUERY | mld_type::REPORT | mld_type::DONE | mld_type::V2_REPORT)
}

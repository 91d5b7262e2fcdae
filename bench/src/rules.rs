// SPDX-License-Identifier: Apache-2.0
//! The OpenFlow rules that systems are given.

use crate::generator::{PORTS, SOURCES, TARGET, source};
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::ops::Range;

/// How a system is to forward from its first port to its second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// A rule for each of this many flows of the generator, exact in ingress port and 5-tuple.
    OneToOne(u32),
    /// A rule for each of the generator's flows, as many as the first number, whose megaflows have
    /// as many different masks as the second number; flows are spread over the masks.
    Masks(u32, u32),
    /// One rule for all of the generator's flows, by a prefix of the source address.
    Prefix,
    /// Everything both ways, for hosts.
    Normal,
    /// Everything both ways; megaflows match TCP's ports, so that each connection has its own.
    PerConnection,
    /// The first port may open connections to the second, which may only answer. ARP passes.
    Firewall,
    /// The same; the source of connections becomes one of [`NAT_ADDRESSES`].
    Nat,
    /// Like [`Rules::Normal`] for IPv4, with each connection tracked in a zone.
    Tracked,
    /// The same with the lookups of a virtual network: in the zone of the sender's port, in that of
    /// a router with and without `nat`, and in the zone of the receiver's port.
    Zones,
    /// Like [`Rules::Normal`]; in addition packets from a third port are dropped in this way.
    Third(Flood),
    /// From the first port, ARP, and a rule for each of this many addresses of [`DESTINATIONS`];
    /// everything from the second.
    Destinations(u32),
}

/// How UDP from a third port is dropped, or TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// By one megaflow.
    Dropped,
    /// By a megaflow for each choice of addresses and ports.
    NewFlows,
    /// By rules of many prefixes of both addresses, so that megaflows have many masks.
    NewMasks,
    /// After each packet, the first segment of a TCP connection, was made a connection. The other
    /// ports have a firewall between them.
    Syns,
}

impl Flood {
    /// Name on the page.
    pub fn name(self) -> &'static str {
        match self {
            Flood::Dropped => "dropped by one flow",
            Flood::NewFlows => "new flows",
            Flood::NewMasks => "new masks",
            Flood::Syns => "new connections",
        }
    }
}

/// Addresses that are routed to the server.
pub const DESTINATIONS: &str = "10.64.0.0/12";

/// Addresses that stand for the client's.
pub const NAT_ADDRESSES: &str = "10.0.1.64/27";
/// [`NAT_ADDRESSES`] as a range.
const NAT_RANGE: &str = "10.0.1.64-10.0.1.95";

/// An address of [`DESTINATIONS`].
pub fn destination(flow: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a40_0000 | flow)
}

/// Cookie of the rules for packets of connections that are not established.
pub const NEW_COOKIE: u32 = 1;
const NEW: &str = "cookie=1";

/// Bits of an address that prefixes are taken from.
const BITS: u32 = 0x55aa_55aa;

impl Rules {
    /// The rules as `ovs-ofctl add-flows` takes them.
    pub fn text(self) -> String {
        match self {
            Rules::OneToOne(flows) => one_to_one(0..flows),
            Rules::Masks(flows, masks) => by_masks(flows, masks),
            Rules::Prefix => {
                format!("priority=10,in_port=1,ip,nw_src={SOURCES} actions=output:2\n")
            }
            Rules::Normal => "in_port=1 actions=output:2\nin_port=2 actions=output:1\n".into(),
            // A megaflow matches the fields that actions read.
            Rules::PerConnection => lines([(1, 2), (2, 1)], |(from, to)| {
                format!(
                    "priority=10,in_port={from},tcp \
                     actions=move:NXM_OF_TCP_SRC[]->NXM_NX_REG0[0..15],\
                     move:NXM_OF_TCP_DST[]->NXM_NX_REG0[16..31],output:{to}\n\
                     priority=1,in_port={from} actions=output:{to}"
                )
            }),
            Rules::Firewall => "priority=10,arp,in_port=1 actions=output:2\n\
                 priority=10,arp,in_port=2 actions=output:1\n\
                 priority=10,ip actions=ct(table=1)\n\
                 table=1,priority=10,ip,in_port=1,ct_state=+trk+new actions=ct(commit),output:2\n\
                 table=1,priority=10,ip,in_port=1,ct_state=+trk+est actions=output:2\n\
                 table=1,priority=10,ip,in_port=2,ct_state=+trk+est actions=output:1\n"
                .into(),
            Rules::Nat => Rules::Firewall
                .text()
                .replace("actions=ct(table=1)", "actions=ct(table=1,nat)")
                .replace("ct(commit)", &format!("ct(commit,nat(src={NAT_RANGE}))")),
            Rules::Tracked => format!(
                "ip actions=ct(zone=1,table=1)\n\
                 {NEW},table=1,in_port=1,ip,ct_state=+trk+new actions=ct(commit,zone=1),output:2\n\
                 table=1,in_port=1,ip,ct_state=+trk+est actions=output:2\n\
                 table=1,in_port=2,ip,ct_state=+trk+est actions=output:1\n"
            ),
            Rules::Zones => {
                let steps = [(1, 1, "zone=2,nat"), (2, 2, "zone=2"), (3, 2, "zone=3")];
                let step = |(table, zone, next): (u32, u32, &str)| {
                    let after = table + 1;
                    format!(
                        "{NEW},table={table},ip,ct_state=+trk+new \
                         actions=ct(commit,zone={zone}),ct({next},table={after})\n\
                         table={table},ip,ct_state=+trk+est actions=ct({next},table={after})"
                    )
                };
                format!(
                    "ip actions=ct(zone=1,table=1)\n{}\
                     {NEW},table=4,in_port=1,ip,ct_state=+trk+new \
                     actions=ct(commit,zone=3),output:2\n\
                     table=4,in_port=1,ip,ct_state=+trk+est actions=output:2\n\
                     table=4,in_port=2,ip,ct_state=+trk+est actions=output:1\n",
                    lines(steps, step)
                )
            }
            Rules::Third(flood @ Flood::Syns) => Rules::Firewall.text() + &from_third(flood),
            Rules::Third(flood) => Rules::Normal.text() + &from_third(flood),
            Rules::Destinations(flows) => {
                "in_port=1,arp actions=output:2\nin_port=2 actions=output:1\n\
                 in_port=1,ip,nw_dst=10.0.0.2 actions=output:2\n"
                    .to_owned()
                    + &lines((0..flows).map(destination), |address| {
                        format!("priority=10,in_port=1,udp,nw_dst={address} actions=output:2")
                    })
            }
        }
    }

    /// The flows whose rules are missing, if the installed rules can stay.
    pub fn missing(self, installed: Option<Rules>) -> Option<Range<u32>> {
        match (installed, self) {
            (Some(Rules::OneToOne(had)), Rules::OneToOne(wanted)) if had <= wanted => {
                Some(had..wanted)
            }
            _ => None,
        }
    }
}

fn lines<T>(of: impl IntoIterator<Item = T>, line: impl Fn(T) -> String) -> String {
    let mut text = String::new();
    for item in of {
        let _ = writeln!(text, "{}", line(item));
    }
    text
}

/// A rule for each of these flows of the generator.
pub fn one_to_one(flows: Range<u32>) -> String {
    let (from, to) = PORTS;
    lines(flows, |flow| {
        let source = source(flow);
        format!(
            "priority=10,in_port=1,udp,nw_src={source},nw_dst={TARGET},tp_src={from},tp_dst={to} \
             actions=output:2"
        )
    })
}

/// The subtables of the second table match a register, which is no part of a megaflow, before they
/// match the address.
fn by_masks(flows: u32, masks: u32) -> String {
    let of_flow = |flow| {
        let (source, mask) = (source(flow), flow % masks + 1);
        format!(
            "priority=10,in_port=1,ip,nw_src={source} \
             actions=load:{mask}->NXM_NX_REG0[],resubmit(,1)"
        )
    };
    let of_mask = |mask: u32| {
        let (register, high, low) = (mask + 1, 255 - mask / 256, mask % 256);
        format!(
            "table=1,priority=10,ip,reg0={register},nw_dst={TARGET}/255.255.{high}.{low} \
             actions=output:2"
        )
    };
    lines(0..flows, of_flow) + &lines(0..masks, of_mask)
}

fn from_third(flood: Flood) -> String {
    match flood {
        Flood::Dropped => "priority=10,in_port=3,udp actions=drop\n".into(),
        // A megaflow matches the fields that actions read.
        Flood::NewFlows => "priority=10,in_port=3,udp \
             actions=multipath(symmetric_l4,1,hrw,16,0,NXM_NX_REG0[])\n"
            .into(),
        // The rules of the firewall lead here, and forward nothing from this port.
        Flood::Syns => {
            "table=1,priority=10,in_port=3,tcp,ct_state=+trk+new actions=ct(commit)\n".into()
        }
        Flood::NewMasks => {
            let address = Ipv4Addr::from_bits(BITS);
            let prefixes = [("nw_src", 1000), ("nw_dst", 2000)]
                .into_iter()
                .flat_map(|(field, base)| (1..=32).map(move |length| (field, base, length)));
            let rule = |(field, base, length): (&str, u32, u32)| {
                let priority = base + length;
                format!(
                    "priority={priority},in_port=3,udp,{field}={address}/{length},tp_src=7,\
                     tp_dst={length} actions=drop"
                )
            };
            "priority=2,in_port=3,udp actions=drop\n".to_owned() + &lines(prefixes, rule)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn nothing_from_the_third_port_is_forwarded() {
        for (flood, rules) in [(Flood::Dropped, 1), (Flood::NewFlows, 1), (Flood::NewMasks, 65)] {
            let text = Rules::Third(flood).text();
            let all: Vec<&str> = text.lines().filter(|l| l.contains("in_port=3,udp")).collect();
            assert_eq!(all.len(), rules);
            assert!(all.iter().all(|line| !line.contains("output")), "{text}");
            assert!(text.starts_with(&Rules::Normal.text()));
        }
        let text = Rules::Third(Flood::Syns).text();
        let all: Vec<&str> = text.lines().filter(|l| l.contains("in_port=3")).collect();
        assert!(matches!(*all, [line] if line.ends_with("actions=ct(commit)")), "{text}");
        let outputs = text.lines().filter(|l| l.contains("output"));
        assert!(outputs.clone().count() > 0, "{text}");
        let of_others = |l: &str| l.contains("in_port=1") || l.contains("in_port=2");
        assert!(outputs.into_iter().all(of_others), "{text}");
    }

    #[test]
    fn translation_is_a_firewall_too() {
        let (firewall, nat) = (Rules::Firewall.text(), Rules::Nat.text());
        assert_eq!(firewall.lines().count(), nat.lines().count());
        assert!(nat.contains("actions=ct(table=1,nat)"), "{nat}");
        assert!(nat.contains("ct(commit,nat(src=10.0.1.64-10.0.1.95)),output:2"), "{nat}");
    }

    #[test]
    fn rules_that_match_ports_take_precedence() {
        let text = Rules::PerConnection.text();
        let of = |words: &str| {
            let line = text.lines().find(|l| l.contains(words)).unwrap();
            let number = line.strip_prefix("priority=").and_then(|l| l.split(',').next());
            number.unwrap().parse::<u32>().unwrap()
        };
        assert!(of("in_port=2,tcp actions=move:") > of("in_port=2 actions=output:1"), "{text}");
        assert!(of("in_port=1,tcp actions=move:") > of("in_port=1 actions=output:2"), "{text}");
    }

    #[test]
    fn flows_are_spread_over_masks() {
        let text = Rules::Masks(64, 8).text();
        assert_eq!(text.lines().filter(|l| l.contains("resubmit(,1)")).count(), 64);
        assert_eq!(text.lines().filter(|l| l.contains("load:8->")).count(), 8);
        let masks: HashSet<&str> = text
            .lines()
            .filter(|l| l.starts_with("table=1,"))
            .filter_map(|l| l.split("nw_dst=").nth(1)?.split(' ').next())
            .collect();
        assert_eq!(masks.len(), 8);
    }

    #[test]
    fn rules_that_stay_are_not_added_again() {
        let had = |flows| Some(Rules::OneToOne(flows));
        assert_eq!(Rules::OneToOne(5).missing(had(2)), Some(2..5));
        assert_eq!(Rules::OneToOne(5).missing(had(5)), Some(5..5));
        assert_eq!(Rules::OneToOne(2).missing(had(5)), None);
        assert_eq!(Rules::Prefix.missing(had(5)), None);
        assert_eq!(Rules::OneToOne(5).missing(None), None);
        let both = [Rules::OneToOne(2).text(), one_to_one(2..5)].concat();
        assert_eq!(both, Rules::OneToOne(5).text());
    }

    #[test]
    fn each_flow_has_a_rule() {
        let text = Rules::OneToOne(1 << 10).text();
        assert_eq!(text.lines().count(), 1 << 10);
        assert!(text.lines().last().unwrap().contains("nw_src=10.0.3.255,"), "{text}");
        assert_eq!(Rules::Prefix.text().lines().count(), 1);
    }
}

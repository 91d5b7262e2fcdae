// SPDX-License-Identifier: Apache-2.0
//! Rules that connect the switch with its controllers over its own ports ("in-band control").
//!
//! A host whose only card is a port of the bridge reaches its controller through the bridge, by the
//! bridge's own port. Without rules of its own, a bridge whose tables are empty would never get the
//! connection over which its rules come. These rules forward by NORMAL, above every rule of a
//! controller. They are those of Open vSwitch ("In-Band Control" in its design document), as are
//! their priorities. `slipswitchd` keeps them equal to the controllers, routes and neighbours.

use crate::rule::IN_BAND;
use flow::{Field, Match};
use packet::{Mac, ethertype, ip_proto};
use std::net::SocketAddrV4;

const ARP_REQUEST: u128 = 1;
const ARP_REPLY: u128 = 2;
/// UDP port of DHCP servers (RFC 2131, section 4.1).
pub(crate) const DHCP_SERVER: u16 = 67;
/// UDP port of DHCP clients (RFC 2131, section 4.1).
pub(crate) const DHCP_CLIENT: u16 = 68;

/// A controller or manager that is reached through the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remote {
    /// Its address and TCP port.
    pub address: SocketAddrV4,
    /// The Ethernet address of the next hop to it; `None` while that is unknown.
    pub next_hop: Option<Mac>,
}

/// A rule: its priority and its match. Its action is NORMAL.
pub type InBandRule = (u32, Match);

/// Returns the rules for `remotes`, each once. `local` is the Ethernet address of the bridge's own
/// port; `None` if that is unknown. Without remotes there are no rules.
pub fn rules(local: Option<Mac>, remotes: &[Remote]) -> Vec<InBandRule> {
    let mut all = Vec::new();
    let mut add = |offset: u32, fields: &[(Field, u128)]| {
        let mut matching = Match::ANY;
        for (field, value) in fields {
            matching.set(*field, *value);
        }
        let rule = (IN_BAND + offset, matching);
        if !all.contains(&rule) {
            all.push(rule);
        }
    };
    let number = |mac: Mac| mac.0.iter().fold(0, |n, byte| n << 8 | u128::from(*byte));
    let arp = |operation, field, value| {
        [(Field::EthType, ethertype::ARP.into()), (Field::ArpOp, operation), (field, value)]
    };
    if let (Some(local), false) = (local.map(number), remotes.is_empty()) {
        let dhcp_request = [
            (Field::InPort, u128::from(openflow::PortNo::LOCAL.0)),
            (Field::EthType, ethertype::IPV4.into()),
            (Field::EthSrc, local),
            (Field::IpProto, ip_proto::UDP.into()),
            (Field::UdpSrc, DHCP_CLIENT.into()),
            (Field::UdpDst, DHCP_SERVER.into()),
        ];
        add(0, &dhcp_request);
        add(1, &arp(ARP_REPLY, Field::EthDst, local));
        add(2, &arp(ARP_REQUEST, Field::EthSrc, local));
    }
    for next_hop in remotes.iter().filter_map(|r| r.next_hop).map(number) {
        add(3, &arp(ARP_REPLY, Field::EthDst, next_hop));
        add(4, &arp(ARP_REQUEST, Field::EthSrc, next_hop));
    }
    for remote in remotes {
        let (ip, port) = (u128::from(remote.address.ip().to_bits()), remote.address.port().into());
        add(5, &arp(ARP_REPLY, Field::ArpTpa, ip));
        add(6, &arp(ARP_REQUEST, Field::ArpSpa, ip));
        let tcp = |address, tp| {
            [
                (Field::EthType, ethertype::IPV4.into()),
                (Field::IpProto, ip_proto::TCP.into()),
                (address, ip),
                (tp, port),
            ]
        };
        add(7, &tcp(Field::Ipv4Dst, Field::TcpDst));
        add(8, &tcp(Field::Ipv4Src, Field::TcpSrc));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{Remote, rules};
    use flow::text::{format_match, no_names};
    use packet::Mac;

    fn texts(local: Option<Mac>, remotes: &[Remote]) -> Vec<String> {
        let text = |(priority, m)| format!("{priority} {}", format_match(&m, &no_names));
        rules(local, remotes).into_iter().map(text).collect()
    }

    #[test]
    fn rules_are_those_of_open_vswitch() {
        let local = Some(Mac([2, 0, 0, 0, 0, 1]));
        let address = "10.0.0.9:6653".parse().unwrap();
        let known = Remote { address, next_hop: Some(Mac([2, 0, 0, 0, 0, 9])) };
        let expected = [
            "180000 udp,in_port=LOCAL,dl_src=02:00:00:00:00:01,tp_src=68,tp_dst=67",
            "180001 arp,dl_dst=02:00:00:00:00:01,arp_op=2",
            "180002 arp,dl_src=02:00:00:00:00:01,arp_op=1",
            "180003 arp,dl_dst=02:00:00:00:00:09,arp_op=2",
            "180004 arp,dl_src=02:00:00:00:00:09,arp_op=1",
            "180005 arp,arp_tpa=10.0.0.9,arp_op=2",
            "180006 arp,arp_spa=10.0.0.9,arp_op=1",
            "180007 tcp,nw_dst=10.0.0.9,tp_dst=6653",
            "180008 tcp,nw_src=10.0.0.9,tp_src=6653",
        ];
        assert_eq!(texts(local, &[known]), expected);
        // A second port of the same host adds only what is its own.
        let second = Remote { address: "10.0.0.9:6654".parse().unwrap(), ..known };
        assert_eq!(
            texts(local, &[known, second])[9..],
            ["180007 tcp,nw_dst=10.0.0.9,tp_dst=6654", "180008 tcp,nw_src=10.0.0.9,tp_src=6654",]
        );
        assert_eq!(texts(local, &[Remote { next_hop: None, ..known }]).len(), 7);
        assert_eq!(texts(None, &[known]).len(), 6);
        assert!(texts(local, &[]).is_empty());
    }
}

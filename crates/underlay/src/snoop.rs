// SPDX-License-Identifier: Apache-2.0
//! Neighbours in packets: answers to solicitations, and announcements.
//!
//! As in Open vSwitch, a neighbour is learned from a packet of the bridge that has the address, when
//! no tunnel takes the packet. The outer source addresses of a packet that a tunnel takes are
//! learned as well; nothing here is needed for that.

use crate::solicitation::solicited_node;
use flow::Key;
use packet::{Mac, ethertype, ip_proto};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// ARP reply (RFC 826).
const ARP_REPLY: u8 = 2;
/// ICMPv6 type of a neighbour advertisement (RFC 4861, section 4.4).
const NEIGHBOUR_ADVERTISEMENT: u16 = 136;

/// Returns the neighbour that the packet with `key` announces to a bridge whose addresses are `own`:
///
/// - the sender of an ARP reply to one of `own`;
/// - the sender of a gratuitous ARP request or reply, whose two IP addresses are equal;
/// - the target of a neighbour advertisement with the target's Ethernet address, to one of `own` or
///   to the solicited-node group of one.
///
/// The result depends on `dl_type`; of ARP, on `nw_proto`, `nw_src`, `nw_dst` and `arp_sha`; of
/// ICMPv6, on `nw_proto`, `tp_src`, `tp_dst`, `ipv6_dst`, `nd_target` and `arp_tha`.
pub fn announced(key: &Key, own: impl IntoIterator<Item = IpAddr>) -> Option<(IpAddr, Mac)> {
    match key.dl_type.get() {
        ethertype::ARP => arp(key, own),
        ethertype::IPV6 => advertisement(key, own),
        _ => None,
    }
}

/// Returns true for an Ethernet address that one station can have.
fn is_station(mac: Mac) -> bool {
    mac.is_unicast() && mac != Mac::default()
}

fn arp(key: &Key, own: impl IntoIterator<Item = IpAddr>) -> Option<(IpAddr, Mac)> {
    let (source, mac) = (Ipv4Addr::from_bits(key.nw_src.get()), Mac(key.arp_sha));
    let target = IpAddr::V4(Ipv4Addr::from_bits(key.nw_dst.get()));
    let is_gratuitous = key.nw_src == key.nw_dst;
    let is_for_us = || key.nw_proto == ARP_REPLY && own.into_iter().any(|a| a == target);
    let is_believable = is_station(mac) && !source.is_unspecified() && !source.is_multicast();
    (is_believable && (is_gratuitous || is_for_us())).then_some((source.into(), mac))
}

fn advertisement(key: &Key, own: impl IntoIterator<Item = IpAddr>) -> Option<(IpAddr, Mac)> {
    let is_advertisement = key.nw_proto == ip_proto::ICMPV6
        && key.tp_src.get() == NEIGHBOUR_ADVERTISEMENT
        && key.tp_dst.get() == 0;
    let (target, mac) = (Ipv6Addr::from(key.nd_target), Mac(key.arp_tha));
    if !is_advertisement || !is_station(mac) || target.is_unspecified() || target.is_multicast() {
        return None;
    }
    let destination = Ipv6Addr::from(key.ipv6_dst);
    let is_meant = |own: IpAddr| match own {
        IpAddr::V6(own) => destination == own || destination == solicited_node(own),
        IpAddr::V4(_) => false,
    };
    own.into_iter().any(is_meant).then_some((target.into(), mac))
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::build::Frame;

    const MAC: [u8; 6] = [0x50, 0x54, 0, 0, 0, 9];
    const OWN: [u8; 6] = [0x50, 0x54, 0, 0, 0, 1];

    fn found(frame: Frame, own: &str) -> Option<String> {
        let key = flow::extract::key_of(&frame.finish(), 1);
        let (address, mac) = announced(&key, [own.parse().unwrap()])?;
        Some(format!("{address} {mac}"))
    }

    fn arp(op: u16, sender: [u8; 6], source: [u8; 4], target: [u8; 4]) -> Frame {
        let frame = Frame::ethernet(OWN, MAC);
        frame.arp(ethertype::ARP, op, (sender, source.into()), (OWN, target.into()))
    }

    #[test]
    fn replies_to_us_and_announcements() {
        let (us, them) = ([10, 0, 0, 1], [10, 0, 0, 9]);
        let expected = Some("10.0.0.9 50:54:00:00:00:09".to_owned());
        assert_eq!(found(arp(2, MAC, them, us), "10.0.0.1"), expected);
        assert_eq!(found(arp(2, MAC, them, us), "10.0.0.2"), None, "for another host");
        assert_eq!(found(arp(1, MAC, them, us), "10.0.0.1"), None, "a question");
        assert_eq!(found(arp(1, MAC, them, them), "10.0.0.1"), expected, "gratuitous request");
        assert_eq!(found(arp(2, MAC, them, them), "10.0.0.1"), expected, "gratuitous reply");
        assert_eq!(found(arp(2, [0; 6], them, us), "10.0.0.1"), None, "no address");
        assert_eq!(found(arp(2, [0xff; 6], them, us), "10.0.0.1"), None, "no station");
        assert_eq!(found(arp(1, MAC, [0; 4], [0; 4]), "10.0.0.1"), None, "a probe");
    }

    fn na(destination: &str, kind: u8, options: &[(u8, [u8; 6])]) -> Frame {
        let source = "2001:db8::9".parse().unwrap();
        let frame = Frame::ethernet(OWN, MAC).ipv6(source, destination.parse().unwrap(), 255);
        frame.nd(kind, 0x6000_0000, source, options)
    }

    #[test]
    fn advertisements_with_an_ethernet_address() {
        let (us, options) = ("2001:db8::1", [(2, MAC)]);
        let expected = Some("2001:db8::9 50:54:00:00:00:09".to_owned());
        assert_eq!(found(na(us, 136, &options), us), expected);
        assert_eq!(found(na("ff02::1:ff00:1", 136, &options), us), expected);
        assert_eq!(found(na("ff02::1:ff00:2", 136, &options), us), None, "another group");
        assert_eq!(found(na("2001:db8::2", 136, &options), us), None, "for another host");
        assert_eq!(found(na(us, 135, &options), us), None, "a question");
        assert_eq!(found(na(us, 136, &[]), us), None, "no address");
    }
}

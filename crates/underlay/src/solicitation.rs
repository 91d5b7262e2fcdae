// SPDX-License-Identifier: Apache-2.0
//! The packet that asks for a neighbour's Ethernet address.

use packet::build::Frame;
use packet::{Mac, Packet, ethertype};
use std::net::{IpAddr, Ipv6Addr};

/// ARP request (RFC 826).
const ARP_REQUEST: u16 = 1;
/// ICMPv6 type of a neighbour solicitation (RFC 4861, section 4.3).
const NEIGHBOUR_SOLICITATION: u8 = 135;
/// Option with the sender's link-layer address (RFC 4861, section 4.6.1).
const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;
/// Hop limit of neighbour discovery (RFC 4861, section 4.3).
const HOP_LIMIT: u8 = 255;

/// Returns the packet with which `source` at `mac` asks for `target`: an ARP request to all, or a
/// neighbour solicitation to the target's solicited-node address. `None` when the addresses are of
/// two families.
pub fn solicitation(mac: Mac, source: IpAddr, target: IpAddr) -> Option<Packet> {
    match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            let frame = Frame::ethernet([0xff; 6], mac.0);
            let arp = frame.arp(ethertype::ARP, ARP_REQUEST, (mac.0, source), ([0; 6], target));
            Some(arp.packet())
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            let group = solicited_node(target);
            let options = [(SOURCE_LINK_LAYER_ADDRESS, mac.0)];
            let frame = Frame::ethernet(multicast(group).0, mac.0).ipv6(source, group, HOP_LIMIT);
            Some(frame.nd(NEIGHBOUR_SOLICITATION, 0, target, &options).packet())
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
    }
}

/// The solicited-node multicast address (RFC 4291, section 2.7.1).
pub(crate) fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    const GROUP: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
    Ipv6Addr::from_bits(GROUP | target.to_bits() & 0xff_ffff)
}

/// The Ethernet address of an IPv6 multicast group (RFC 2464, section 7).
fn multicast(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    Mac([0x33, 0x33, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([0xaa, 0x55, 0xaa, 0x55, 0, 0]);

    fn hex(source: &str, target: &str) -> String {
        let packet = solicitation(MAC, source.parse().unwrap(), target.parse().unwrap()).unwrap();
        packet.data().iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn arp_request() {
        let expected = "ffffffffffffaa55aa550000080600010800060400\
                        01aa55aa550000010102580000000000000101025c";
        assert_eq!(hex("1.1.2.88", "1.1.2.92"), expected);
    }

    #[test]
    fn neighbour_solicitation() {
        let expected = "3333ff000092aa55aa55000086dd\
                        6000000000203aff\
                        2001cafe000000000000000000000088\
                        ff0200000000000000000001ff000092\
                        8700d95e00000000\
                        2001cafe000000000000000000000092\
                        0101aa55aa550000";
        let found = hex("2001:cafe::88", "2001:cafe::92");
        // The checksum makes the sum of the pseudo header and the message zero.
        let bytes = |hex: &str| -> Vec<u8> {
            (0..hex.len() / 2)
                .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
                .collect()
        };
        let (found, expected) = (bytes(&found), bytes(expected));
        assert_eq!(found.len(), 86);
        assert_eq!((&found[..56], &found[58..]), (&expected[..56], &expected[58..]));
        let mut sum = packet::checksum::Sum::default();
        sum.add(&found[22..54]);
        sum.add_u32(32);
        sum.add_u32(58);
        sum.add(&found[54..]);
        assert_eq!(sum.finish(), 0);
    }

    #[test]
    fn families_do_not_mix() {
        assert!(solicitation(MAC, "1.1.1.1".parse().unwrap(), "::1".parse().unwrap()).is_none());
    }
}

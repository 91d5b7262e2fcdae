// SPDX-License-Identifier: Apache-2.0
//! The condition under which a field of a packet has a meaning.

use super::Field;
use crate::key::FRAG_LATER;
use crate::{Key, Mask, VLAN_CFI, ct_state};
use packet::ethertype::{self, ARP, IPV4, IPV6, NSH, RARP};
use packet::{IcmpHeader, ip_proto};

/// A field's prerequisite (ovs-fields(7), "Prerequisites"; OpenFlow 1.5.1 table 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Prerequisite {
    /// Every packet meets it.
    None,
    /// An Ethernet packet.
    Ethernet,
    /// ARP or RARP.
    Arp,
    /// A VLAN header (VLAN_CFI set in the first tag).
    Vlan,
    /// An IPv4 header, by Ethernet type 0x0800.
    Ipv4,
    /// An IPv6 header, by Ethernet type 0x86dd.
    Ipv6,
    /// IPv4 or IPv6.
    IpAny,
    /// An MPLS header.
    Mpls,
    /// A Network Service Header.
    Nsh,
    /// TCP, no later fragment.
    Tcp,
    /// UDP, no later fragment.
    Udp,
    /// SCTP, no later fragment.
    Sctp,
    /// ICMP, no later fragment.
    Icmpv4,
    /// ICMPv6, no later fragment.
    Icmpv6,
    /// IPv6 neighbour solicitation or advertisement.
    Nd,
    /// IPv6 neighbour solicitation.
    NdSolicit,
    /// IPv6 neighbour advertisement.
    NdAdvert,
    /// A packet that belongs to a connection: tracked, and not invalid.
    Ct,
}

/// Bits of which a packet that belongs to a connection has one.
const OF_CONNECTION: u8 = ct_state::NEW | ct_state::EST | ct_state::RPL;

impl Prerequisite {
    /// True for the conditions that only Ethernet packets meet, unless the packet type names the
    /// header itself.
    pub fn is_of_ethernet(self) -> bool {
        !matches!(self, Prerequisite::None | Prerequisite::Ct)
    }

    /// True when it holds for the packet (or match, see [`Prerequisite::holds_for_match`])
    /// with this key.
    pub fn holds(self, key: &Key) -> bool {
        use Prerequisite::*;
        let dl_type = key.ethertype();
        let ip = matches!(dl_type, IPV4 | IPV6);
        let l4 = |ip: bool, proto: u8| ip && key.nw_proto == proto && key.nw_frag & FRAG_LATER == 0;
        let nd = |types: &[u8]| {
            let kind = key.tp_src.get();
            l4(dl_type == IPV6, ip_proto::ICMPV6)
                && key.tp_dst.get() == 0
                && types.iter().any(|t| u16::from(*t) == kind)
        };
        match self {
            None => true,
            Ethernet => key.packet_type.get() == 0,
            Arp => matches!(dl_type, ARP | RARP),
            Vlan => key.vlans[0].tci.get() & VLAN_CFI != 0,
            Ipv4 => dl_type == IPV4,
            Ipv6 => dl_type == IPV6,
            IpAny => ip,
            Mpls => ethertype::is_mpls(dl_type),
            Nsh => dl_type == NSH,
            Tcp => l4(ip, ip_proto::TCP),
            Udp => l4(ip, ip_proto::UDP),
            Sctp => l4(ip, ip_proto::SCTP),
            Icmpv4 => l4(dl_type == IPV4, ip_proto::ICMP),
            Icmpv6 => l4(dl_type == IPV6, ip_proto::ICMPV6),
            Nd => nd(&[IcmpHeader::NEIGHBOUR_SOLICIT, IcmpHeader::NEIGHBOUR_ADVERT]),
            NdSolicit => nd(&[IcmpHeader::NEIGHBOUR_SOLICIT]),
            NdAdvert => nd(&[IcmpHeader::NEIGHBOUR_ADVERT]),
            Ct => key.ct_state & OF_CONNECTION != 0,
        }
    }

    /// Makes exact every field that [`Prerequisite::holds`] looks at.
    pub fn unwildcard(self, mask: &mut Mask) {
        use Prerequisite::*;
        let m = &mut mask.0;
        match self {
            None => {}
            Ethernet => m.packet_type.set(u32::MAX),
            Vlan => {
                let tci = m.vlans[0].tci.get();
                m.vlans[0].tci.set(tci | VLAN_CFI);
            }
            Ct => m.ct_state |= OF_CONNECTION,
            Arp | Ipv4 | Ipv6 | IpAny | Mpls | Nsh => m.dl_type.set(u16::MAX),
            Tcp | Udp | Sctp | Icmpv4 | Icmpv6 | Nd | NdSolicit | NdAdvert => {
                m.dl_type.set(u16::MAX);
                m.nw_proto = u8::MAX;
                m.nw_frag |= FRAG_LATER;
                if matches!(self, Nd | NdSolicit | NdAdvert) {
                    m.tp_src.set(u16::MAX);
                    m.tp_dst.set(u16::MAX);
                }
            }
        }
    }
}

impl Field {
    /// Makes the field and all its prerequisites exact in `mask`: what translation must record
    /// before it looks at (or conditionally writes) the field.
    pub fn unwildcard(self, mask: &mut Mask) {
        self.fill(&mut mask.0);
        self.prerequisite().unwildcard(mask);
    }
}

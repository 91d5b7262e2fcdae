// SPDX-License-Identifier: Apache-2.0
//! Templates: the elements of records, in their order (RFC 7011, 3.4; elements: IANA's registry "IP
//! Flow Information Export (IPFIX) Entities").
//!
//! There is one template for each combination of layers, so a record has no unused element.

/// An information element: its number, its length in bytes (0: variable), and its enterprise.
#[derive(Clone, Copy, Debug)]
struct Element {
    id: u16,
    length: u16,
    enterprise: u32,
}

const fn standard(id: u16, length: u16) -> Element {
    Element { id, length, enterprise: 0 }
}

/// Returns one of the elements that Open vSwitch has in the number space of VMware.
const fn vmware(id: u16, length: u16) -> Element {
    Element { id, length, enterprise: 6876 }
}

const INTERFACE_NAME: Element = standard(82, 0);
const INTERFACE_DESCRIPTION: Element = standard(83, 0);

/// observationPointId, flowDirection, addresses, ethernetType, ethernetHeaderLength,
/// ingressInterface and its type, name and description.
const COMMON: [Element; 10] = [
    standard(138, 4),
    standard(61, 1),
    standard(56, 6),
    standard(80, 6),
    standard(256, 2),
    standard(240, 1),
    standard(10, 4),
    standard(368, 4),
    INTERFACE_NAME,
    INTERFACE_DESCRIPTION,
];
/// egressInterface and its type, name and description.
const EGRESS: [Element; 4] =
    [standard(14, 4), standard(369, 4), INTERFACE_NAME, INTERFACE_DESCRIPTION];
/// vlanId, dot1qVlanId, dot1qPriority.
const VLAN: [Element; 3] = [standard(58, 2), standard(243, 2), standard(244, 1)];
/// ipVersion, ipTTL, protocolIdentifier, ipDiffServCodePoint, ipPrecedence, ipClassOfService.
const IP: [Element; 6] = [
    standard(60, 1),
    standard(192, 1),
    standard(4, 1),
    standard(195, 1),
    standard(196, 1),
    standard(5, 1),
];
/// sourceIPv4Address, destinationIPv4Address.
const IPV4: [Element; 2] = [standard(8, 4), standard(12, 4)];
/// sourceIPv6Address, destinationIPv6Address, flowLabelIPv6.
const IPV6: [Element; 3] = [standard(27, 16), standard(28, 16), standard(31, 4)];
/// sourceTransportPort, destinationTransportPort.
const PORTS: [Element; 2] = [standard(7, 2), standard(11, 2)];
/// icmpTypeIPv4, icmpCodeIPv4.
const ICMP_V4: [Element; 2] = [standard(176, 1), standard(177, 1)];
/// icmpTypeIPv6, icmpCodeIPv6.
const ICMP_V6: [Element; 2] = [standard(178, 1), standard(179, 1)];
/// tunnelSourceIPv4Address, tunnelDestinationIPv4Address, tunnelProtocolIdentifier,
/// tunnelSourceTransportPort, tunnelDestinationTransportPort, tunnelType, tunnelKey.
const TUNNEL: [Element; 7] = [
    vmware(893, 4),
    vmware(894, 4),
    vmware(895, 1),
    vmware(896, 2),
    vmware(897, 2),
    vmware(891, 1),
    vmware(892, 0),
];
/// virtualObsID, which identifies the exporter among those of a collector.
const VIRTUAL_OBS_ID: [Element; 1] = [vmware(898, 0)];
/// The counts of a record; see `record.rs` for their order.
const COUNTS: [Element; 16] = [
    standard(158, 4), // flowStartDeltaMicroseconds
    standard(159, 4), // flowEndDeltaMicroseconds
    standard(133, 8), // droppedPacketDeltaCount
    standard(135, 8), // droppedPacketTotalCount
    standard(2, 8),   // packetDeltaCount
    standard(86, 8),  // packetTotalCount
    standard(354, 8), // ingressUnicastPacketTotalCount
    standard(355, 8), // ingressMulticastPacketTotalCount
    standard(356, 8), // ingressBroadcastPacketTotalCount
    standard(357, 8), // egressUnicastPacketTotalCount
    standard(358, 8), // egressBroadcastPacketTotalCount
    standard(19, 8),  // postMCastPacketDeltaCount
    standard(174, 8), // postMCastPacketTotalCount
    standard(352, 8), // layer2OctetDeltaCount
    standard(353, 8), // layer2OctetTotalCount
    standard(136, 1), // flowEndReason
];
/// The counts of a record of IP.
const IP_COUNTS: [Element; 10] = [
    standard(132, 8), // droppedOctetDeltaCount
    standard(134, 8), // droppedOctetTotalCount
    standard(1, 8),   // octetDeltaCount
    standard(85, 8),  // octetTotalCount
    standard(198, 8), // octetDeltaSumOfSquares
    standard(199, 8), // octetTotalSumOfSquares
    standard(25, 8),  // minimumIpTotalLength
    standard(26, 8),  // maximumIpTotalLength
    standard(20, 8),  // postMCastOctetDeltaCount
    standard(175, 8), // postMCastOctetTotalCount
];
/// The counts of a record of TCP: tcp{Ack,Fin,Psh,Rst,Syn,Urg}TotalCount.
const TCP_COUNTS: [Element; 6] = [
    standard(222, 8),
    standard(219, 8),
    standard(221, 8),
    standard(220, 8),
    standard(218, 8),
    standard(223, 8),
];
/// exportingProcessId (the scope), notSentPacketTotalCount.
const STATISTICS: [Element; 2] = [standard(144, 4), standard(167, 8)];

/// Set of templates (RFC 7011, 3.3.2).
const SET_TEMPLATES: u16 = 2;
/// Set of options templates.
const SET_OPTIONS_TEMPLATES: u16 = 3;
/// Lowest number of a template.
const FIRST: u16 = 256;
/// Number of the options template with the statistics of the exporter: the first after all others.
pub(super) const STATISTICS_TEMPLATE: u16 = 462;
/// Length in bytes from which on a message takes no further template.
const FULL: usize = 1024;

/// Network layer of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Network {
    Other,
    V4,
    V6,
}

/// Transport layer of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Transport {
    Other,
    Tcp,
    Udp,
    Sctp,
    Icmp,
}

/// The layers of the packets of a flow, which choose its template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Template {
    pub has_vlan: bool,
    pub network: Network,
    pub transport: Transport,
    pub has_tunnel: bool,
    pub is_egress: bool,
}

impl Template {
    /// Returns the number of the template, which is that of Open vSwitch.
    pub(super) fn id(self) -> u16 {
        const NETWORKS: u16 = 3;
        const TRANSPORTS: u16 = 5;
        let layers = u16::from(self.has_vlan) * NETWORKS + self.network as u16;
        let layers = layers * TRANSPORTS + self.transport as u16;
        FIRST + (layers * 2 + u16::from(self.has_tunnel)) * 2 + u16::from(self.is_egress)
    }

    /// Returns all templates in the order of their numbers.
    fn all() -> impl Iterator<Item = Template> {
        let networks = [Network::Other, Network::V4, Network::V6];
        let transports =
            [Transport::Other, Transport::Tcp, Transport::Udp, Transport::Sctp, Transport::Icmp];
        let flags = [false, true];
        let vlans = flags.into_iter();
        let layers = vlans.flat_map(move |v| networks.into_iter().map(move |n| (v, n)));
        let layers = layers.flat_map(move |(v, n)| transports.into_iter().map(move |t| (v, n, t)));
        let is_possible =
            |(_, n, t): &(bool, Network, Transport)| *n != Network::Other || *t == Transport::Other;
        layers.filter(is_possible).flat_map(move |(has_vlan, network, transport)| {
            [(false, false), (false, true), (true, false), (true, true)].into_iter().map(
                move |(has_tunnel, is_egress)| Template {
                    has_vlan,
                    network,
                    transport,
                    has_tunnel,
                    is_egress,
                },
            )
        })
    }

    fn elements(self, with_virtual_obs_id: bool) -> Vec<Element> {
        let mut out = COMMON.to_vec();
        let mut part = |is_there: bool, elements: &[Element]| {
            if is_there {
                out.extend(elements);
            }
        };
        let is_ip = self.network != Network::Other;
        let is_v4 = self.network == Network::V4;
        let is_v6 = self.network == Network::V6;
        let is_icmp = self.transport == Transport::Icmp;
        part(self.is_egress, &EGRESS);
        part(self.has_vlan, &VLAN);
        part(is_ip, &IP);
        part(is_v4, &IPV4);
        part(is_v6, &IPV6);
        part(!is_icmp && self.transport != Transport::Other, &PORTS);
        part(is_icmp && is_v4, &ICMP_V4);
        part(is_icmp && is_v6, &ICMP_V6);
        part(self.has_tunnel, &TUNNEL);
        part(with_virtual_obs_id, &VIRTUAL_OBS_ID);
        part(true, &COUNTS);
        part(is_ip, &IP_COUNTS);
        part(self.transport == Transport::Tcp, &TCP_COUNTS);
        out
    }
}

/// Returns the sets of all templates, each for one message.
pub(super) fn template_sets(with_virtual_obs_id: bool, header_bytes: usize) -> Vec<Vec<u8>> {
    let mut sets = Vec::new();
    let mut body = Vec::new();
    for template in Template::all() {
        if header_bytes + SET_HEADER_BYTES + body.len() >= FULL {
            sets.push(set(SET_TEMPLATES, &std::mem::take(&mut body)));
        }
        let elements = template.elements(with_virtual_obs_id);
        body.extend(template.id().to_be_bytes());
        body.extend((elements.len() as u16).to_be_bytes()); // fewer than 100
        elements.iter().for_each(|element| put_element(&mut body, element));
    }
    sets.push(set(SET_TEMPLATES, &body));
    sets
}

/// Returns the set with the options template of the exporter's statistics (RFC 7011, 4.3).
pub(super) fn options_template_set() -> Vec<u8> {
    let mut body = STATISTICS_TEMPLATE.to_be_bytes().to_vec();
    body.extend((STATISTICS.len() as u16).to_be_bytes());
    body.extend(1u16.to_be_bytes()); // one scope
    STATISTICS.iter().for_each(|element| put_element(&mut body, element));
    set(SET_OPTIONS_TEMPLATES, &body)
}

/// Bytes of the header of a set.
const SET_HEADER_BYTES: usize = 4;

/// Returns a set with its header (RFC 7011, 3.3.2).
pub(super) fn set(id: u16, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(SET_HEADER_BYTES + body.len());
    out.extend(id.to_be_bytes());
    out.extend(((SET_HEADER_BYTES + body.len()) as u16).to_be_bytes()); // sets fit into a frame
    out.extend(body);
    out
}

fn put_element(out: &mut Vec<u8>, element: &Element) {
    const ENTERPRISE: u16 = 0x8000;
    const VARIABLE: u16 = 0xffff;
    let is_ours = element.enterprise != 0;
    out.extend((element.id | if is_ours { ENTERPRISE } else { 0 }).to_be_bytes());
    out.extend(if element.length == 0 { VARIABLE } else { element.length }.to_be_bytes());
    if is_ours {
        out.extend(element.enterprise.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_open_vswitch() {
        let all: Vec<u16> = Template::all().map(Template::id).collect();
        assert_eq!(all.len(), 2 * (1 + 5 + 5) * 4);
        assert!(all.is_sorted() && all.iter().all(|id| (FIRST..STATISTICS_TEMPLATE).contains(id)));
        let tcp = Template {
            has_vlan: true,
            network: Network::V4,
            transport: Transport::Tcp,
            has_tunnel: false,
            is_egress: true,
        };
        assert_eq!(tcp.id(), 256 + ((3 + 1) * 5 + 1) * 4 + 1);
    }

    #[test]
    fn template_messages_fit_into_frames() {
        let sets = template_sets(true, 16);
        assert!(sets.len() > 5);
        assert!(sets.iter().all(|set| (FULL - 300..1450).contains(&set.len()) || set.len() < FULL));
        let options = options_template_set();
        assert_eq!(options, [0, 3, 0, 18, 1, 0xce, 0, 2, 0, 1, 0, 144, 0, 4, 0, 167, 0, 8]);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Packets in the text form that `netdev-dummy/receive` and `ofproto/trace` take.

/// Ethernet source and destination used where they do not matter.
pub const ETH: &str = "eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02)";

/// An IPv4 packet of protocol 99, which has no further header.
pub fn ip(source: &str, destination: &str) -> String {
    format!(
        "{ETH},eth_type(0x0800),ipv4(src={source},dst={destination},proto=99,tos=0,ttl=64,frag=no)"
    )
}

/// A TCP segment.
pub fn tcp(source: &str, destination: &str, from: u16, to: u16) -> String {
    format!(
        "{ETH},eth_type(0x0800),ipv4(src={source},dst={destination},proto=6,tos=0,ttl=64,frag=no),\
         tcp(src={from},dst={to}),tcp_flags(ack)"
    )
}

/// A UDP datagram.
pub fn udp(source: &str, destination: &str, from: u16, to: u16) -> String {
    format!(
        "{ETH},eth_type(0x0800),ipv4(src={source},dst={destination},proto=17,tos=0,ttl=64,frag=no),\
         udp(src={from},dst={to})"
    )
}

/// An ARP packet between two stations.
pub fn arp(source: &str, destination: &str) -> String {
    format!(
        "eth(src={source},dst={destination}),eth_type(0x0806),\
         arp(sip=10.0.0.1,tip=10.0.0.2,op=1,sha={source},tha=00:00:00:00:00:00)"
    )
}

/// The same with an 802.1Q tag.
pub fn tagged_arp(source: &str, destination: &str, vlan: u16) -> String {
    format!(
        "eth(src={source},dst={destination}),eth_type(0x8100),vlan(vid={vlan},pcp=0),\
         encap(eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.0.2,op=1,sha={source},tha=00:00:00:00:00:00))"
    )
}

// SPDX-License-Identifier: Apache-2.0
//! Packets as texts, and many of them at once.

use slipswitch_tests::harness::Switch;

/// Packets that may arrive at once: a dummy of the oracle holds no more than 100.
const QUEUE: usize = 50;

/// Station `n`.
pub fn mac(n: u32) -> String {
    format!("50:54:00:00:00:{n:02x}")
}

/// Ethernet addresses of two stations.
pub fn eth(from: u32, to: u32) -> String {
    format!("eth(src={},dst={})", mac(from), mac(to))
}

/// IPv4 of protocol 99 without more.
pub fn ip(eth: &str, from: &str, to: &str, ttl: u8) -> String {
    format!("{eth},eth_type(0x0800),ipv4(src={from},dst={to},proto=99,tos=0,ttl={ttl},frag=no)")
}

/// TCP between two ports.
pub fn tcp(eth: &str, from: &str, to: &str, ports: (u16, u16)) -> String {
    let (source, destination) = ports;
    format!(
        "{eth},eth_type(0x0800),ipv4(src={from},dst={to},proto=6,tos=0,ttl=64,frag=no),\
         tcp(src={source},dst={destination}),tcp_flags(ack)"
    )
}

/// UDP between two ports.
pub fn udp(eth: &str, from: &str, to: &str, ports: (u16, u16)) -> String {
    tcp(eth, from, to, ports)
        .replace("proto=6", "proto=17")
        .replace(",tcp_flags(ack)", "")
        .replace(",tcp(", ",udp(")
}

/// An ARP request.
pub fn arp(eth: &str) -> String {
    format!(
        "{eth},eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.0.2,op=1,sha=50:54:00:00:00:01,tha=00:00:00:00:00:00)"
    )
}

/// `packet`, which is ARP, with an 802.1Q tag.
pub fn tagged(packet: &str, vid: u16, pcp: u8) -> String {
    let tag = format!("eth_type(0x8100),vlan(vid={vid},pcp={pcp}),encap(eth_type(0x0806)");
    format!("{})", packet.replace("eth_type(0x0806)", &tag))
}

/// Lets packets arrive on a port; learning is done when this returns.
#[track_caller]
pub fn receive(switch: &Switch, port: &str, packets: impl IntoIterator<Item = String>) {
    let quoted: Vec<String> = packets.into_iter().map(|p| format!("'{p}'")).collect();
    for some in quoted.chunks(QUEUE) {
        switch.appctl(&format!("netdev-dummy/receive {port} {}", some.join(" ")));
    }
    switch.revalidate();
}

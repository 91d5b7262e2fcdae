// SPDX-License-Identifier: Apache-2.0
//! Multicast snooping on br0: settings, messages of IGMP and MLD, and packets for groups.
//!
//! Members are at p1 to p3, and a router, or a port that gets everything, at p4: where a port is both,
//! OVS sends each packet twice to it (docs/promises.md).

use super::{Gen, packets};
use packet::build::Frame;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Groups of IPv4; a switch does not snoop the last one.
const GROUPS: [[u8; 4]; 4] = [[239, 1, 2, 3], [224, 55, 55, 55], [239, 129, 2, 3], [224, 0, 0, 5]];
/// The last 16 bits of groups of IPv6.
const GROUPS6: [u16; 2] = [7, 8];

/// The arguments of `ovs-vsctl` that turn it on; p4 may get everything, and then has no VLAN.
pub fn settings(g: &mut Gen) -> Vec<String> {
    let mut out = vec!["set bridge br0 mcast_snooping_enable=true".to_owned()];
    for option in ["disable-flood-unregistered=true", "aging-time=17"] {
        if g.one_in(4) {
            out.push(format!("set bridge br0 other_config:mcast-snooping-{option}"));
        }
    }
    g.snoops = true;
    g.has_router = g.bool();
    if !g.has_router && g.bool() {
        let which = g.pick(&["flood", "flood-reports"]);
        out.push(format!("set port p4 other_config:mcast-snooping-{which}=true"));
    }
    out
}

/// A packet, and the port where it arrives.
pub fn packet(g: &mut Gen) -> (&'static str, Vec<u8>) {
    let is_query = g.has_router && g.one_in(5);
    let port = if is_query { "p4" } else { g.pick(&["p1", "p2", "p3"]) };
    let mut frame = if g.one_in(3) { of_mld(g, is_query) } else { of_igmp(g, is_query) };
    if g.one_in(12) {
        packets::mangle(g, &mut frame);
    }
    (port, frame)
}

fn of_igmp(g: &mut Gen, is_query: bool) -> Vec<u8> {
    let group = Ipv4Addr::from(g.pick(&GROUPS));
    let source = Ipv4Addr::new(10, 0, 0, g.pick(&[1, 2, 3]));
    let to = |g: &mut Gen, to: Ipv4Addr| head(g, source.into(), to.into());
    if is_query {
        let asked = if g.bool() { group } else { Ipv4Addr::UNSPECIFIED };
        let to_all = to(g, Ipv4Addr::new(224, 0, 0, 1));
        return to_all.igmp(0x11, 100, asked).finish();
    }
    match g.below(8) {
        0 => to(g, group).igmp(0x12, 0, group).finish(),
        1 | 2 => to(g, group).igmp(0x16, 0, group).finish(),
        3 => to(g, Ipv4Addr::new(224, 0, 0, 2)).igmp(0x17, 0, group).finish(),
        4 => {
            let records = records(g, |g| Ipv4Addr::from(g.pick(&GROUPS)).octets().to_vec(), 4);
            let count = Ipv4Addr::new(0, 0, 0, records.len() as u8);
            let to_routers = to(g, Ipv4Addr::new(224, 0, 0, 22));
            to_routers.igmp(0x22, 0, count).payload(&records.concat()).finish()
        }
        _ => to(g, group).udp(5000, 5001).payload(b"data").finish(),
    }
}

fn of_mld(g: &mut Gen, is_query: bool) -> Vec<u8> {
    let group = v6(g);
    let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1 + g.below(3) as u16);
    let to = |g: &mut Gen, to: Ipv6Addr| head(g, source.into(), to.into());
    let all = |last: u16| Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, last);
    if is_query {
        let asked = if g.bool() { group } else { Ipv6Addr::UNSPECIFIED };
        return to(g, all(1)).icmpv6(130, 0, 0).payload(&asked.octets()).finish();
    }
    match g.below(6) {
        0 | 1 => to(g, group).icmpv6(131, 0, 0).payload(&group.octets()).finish(),
        2 => to(g, all(2)).icmpv6(132, 0, 0).payload(&group.octets()).finish(),
        3 => {
            let records = records(g, |g| v6(g).octets().to_vec(), 16);
            let count = records.len() as u32;
            to(g, all(22)).icmpv6(143, 0, count).payload(&records.concat()).finish()
        }
        _ => to(g, group).udp(5000, 5001).payload(b"data").finish(),
    }
}

fn v6(g: &mut Gen) -> Ipv6Addr {
    Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, g.pick(&GROUPS6))
}

/// Records of a report of version 3 of IGMP, or 2 of MLD, about groups with sources of that many bytes.
fn records(g: &mut Gen, group: impl Fn(&mut Gen) -> Vec<u8>, bytes: usize) -> Vec<Vec<u8>> {
    let count = 1 + g.below(2);
    let one = |_| {
        let sources = g.below(2);
        let kind = 1 + g.small(6) as u8;
        [vec![kind, 0, 0, sources as u8], group(g), vec![1; bytes * sources]].concat()
    };
    (0..count).map(one).collect()
}

/// Ethernet and IP headers, perhaps in a VLAN.
fn head(g: &mut Gen, from: IpAddr, to: IpAddr) -> Frame {
    let to_mac = match to {
        IpAddr::V4(to) => {
            let [_, b, c, d] = to.octets();
            [1, 0, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(to) => {
            let [.., a, b, c, d] = to.octets();
            [0x33, 0x33, a, b, c, d]
        }
    };
    let mut frame = Frame::ethernet(to_mac, [0x50, 0x54, 0, 0, 0, 1 + g.small(3) as u8]);
    if g.one_in(4) {
        frame = frame.vlan(0x8100, g.pick(&[5, 10]));
    }
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => frame.ipv4(from, to, 1),
        (IpAddr::V6(from), IpAddr::V6(to)) => frame.ipv6(from, to, 1),
        _ => unreachable!("both are of one family"),
    }
}

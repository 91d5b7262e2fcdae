// SPDX-License-Identifier: Apache-2.0
//! Random bridges and ports, in addition to those that every case starts with.

use super::{Gen, VLANS};
use crate::case::Step;

/// Adds the arguments of `ovs-vsctl` that make them, before other steps than those.
pub fn add(g: &mut Gen, steps: &mut Vec<Step>) {
    let mut out = Vec::new();
    let has_tunnels = !steps.is_empty();
    let joins = !has_tunnels && g.one_in(3);
    if joins {
        let mode = g.pick(&["secure", "secure", "standalone"]);
        out.extend(second(mode));
        for (bridge, name, peer, number) in [("br0", "pa", "pb", 10), ("br1", "pb", "pa", 3)] {
            out.push(format!(
                "add-port {bridge} {name} -- set interface {name} type=patch \
                 options:peer={peer} ofport_request={number}"
            ));
        }
    }
    if g.one_in(3) {
        let mode = g.pick(&["standalone", "secure"]);
        out.push(format!("set bridge br0 fail_mode={mode}"));
    }
    if g.one_in(4) {
        out.push(format!("set open_vswitch . other_config:vlan-limit={}", g.pick(&[0, 1, 2])));
    }
    for setting in
        ["other_config:mac-aging-time=15", "other_config:forward-bpdu=true", "flood_vlans=10"]
    {
        if g.one_in(8) {
            out.push(format!("set bridge br0 {setting}"));
        }
    }
    let mut ports = vec!["p1", "p2", "p3", "p4"];
    if joins {
        ports.extend(["p5", "p6", "pa", "pb"]);
    }
    if has_tunnels {
        ports.extend(["t1", "t2", "t3", "t4"]);
    }
    // OVS chooses the members of other modes by hash functions of its own, and the first active one in
    // the order of a hash table, unless it is the primary.
    g.bonds = !has_tunnels && g.one_in(super::BONDING);
    if g.bonds {
        out.push(
            "add-bond br0 bond0 q1 q2 bond_mode=active-backup other_config:bond-primary=q1 \
             -- set interface q1 type=dummy ofport_request=21 options:tx_pcap=q1-tx.pcap \
             -- set interface q2 type=dummy ofport_request=22 options:tx_pcap=q2-tx.pcap"
                .to_owned(),
        );
        ports.push("bond0");
    }
    // With tunnels a report that asks for a neighbour does so twice here, once in OVS.
    if !has_tunnels && g.one_in(super::SNOOPING) {
        out.extend(super::multicast::settings(g));
        if !g.has_router {
            ports.retain(|name| *name != "p4");
        }
    }
    let plain = g.one_in(3);
    for name in ports {
        if !plain && g.bool() {
            out.push(port(g, name));
        }
    }
    let making = steps.iter().take_while(|step| step.making().is_some()).count();
    steps.splice(making..making, out.into_iter().map(Step::Configure));
}

/// The bridge br1, with the ports p5 and p6.
pub fn second(mode: &str) -> Vec<String> {
    let bridge = format!(
        "add-br br1 -- set bridge br1 datapath_type=dummy fail_mode={mode} \
         other_config:datapath-id=fedcba9876543211 other_config:hwaddr=aa:55:aa:55:00:00"
    );
    let port = |(name, number)| {
        format!(
            "add-port br1 {name} -- set interface {name} type=dummy ofport_request={number} \
             options:tx_pcap={name}-tx.pcap"
        )
    };
    [bridge].into_iter().chain([("p5", 1), ("p6", 2)].map(port)).collect()
}

/// A mirror of br0, whose id is not shown. It mirrors what comes in, and has a port for it: where copies
/// are made for ports of a flood, they come in the order of a hash table.
pub fn mirror(g: &mut Gen) -> Step {
    let ports = ["p1", "p2", "p3", "p4"];
    let (from, also, to) = (g.pick(&ports), g.pick(&ports), g.pick(&ports));
    let mut columns = "select_src_port=@from,@also output_port=@to".to_owned();
    if g.one_in(3) {
        columns += &format!(" select_vlan={},{}", g.pick(&VLANS[1..3]), g.pick(&VLANS[3..5]));
    }
    if g.one_in(4) {
        columns += &format!(" snaplen={}", g.pick(&[14, 40, 100]));
    }
    Step::Configure(format!(
        "-- --id=@from get port {from} -- --id=@also get port {also} -- --id=@to get port {to} \
         -- --id=@m create mirror name=m {columns} -- set bridge br0 mirrors=@m >/dev/null"
    ))
}

fn vlan(g: &mut Gen) -> u16 {
    g.pick(&VLANS)
}

/// VLAN settings of a port.
fn port(g: &mut Gen, name: &str) -> String {
    let mut words = vec![format!("set port {name}")];
    let modes = ["access", "trunk", "native-tagged", "native-untagged", "dot1q-tunnel"];
    if g.bool() {
        words.push(format!("vlan_mode={}", g.pick(&modes)));
    }
    if g.below(4) != 0 {
        words.push(format!("tag={}", vlan(g)));
    }
    if g.one_in(3) {
        words.push(format!("trunks={},{}", vlan(g), 7));
    }
    if g.one_in(4) {
        words.push(format!("cvlans={},{}", vlan(g), 7));
    }
    if g.one_in(3) {
        words.push(format!("other_config:qinq-ethtype={}", g.pick(&["802.1q", "802.1ad"])));
    }
    if g.one_in(3) {
        let when = g.pick(&["always", "if-nonzero", "never"]);
        words.push(format!("other_config:priority-tags={when}"));
    }
    if g.one_in(8) {
        words.push("protected=true".to_owned());
    }
    if words.len() == 1 {
        words.push("vlan_mode=trunk".to_owned());
    }
    words.join(" ")
}

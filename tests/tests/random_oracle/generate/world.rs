// SPDX-License-Identifier: Apache-2.0
//! Random bridges and ports, in addition to those that every case starts with.

use super::{Gen, VLANS};
use crate::case::Step;

/// The arguments of `ovs-vsctl` that make them.
pub fn steps(g: &mut Gen) -> Vec<Step> {
    let mut out = Vec::new();
    let second = g.one_in(3);
    if second {
        let mode = g.pick(&["secure", "secure", "standalone"]);
        out.push(format!(
            "add-br br1 -- set bridge br1 datapath_type=dummy fail_mode={mode} \
             other_config:datapath-id=fedcba9876543211 other_config:hwaddr=aa:55:aa:55:00:00"
        ));
        for (name, number) in [("p5", 1), ("p6", 2)] {
            out.push(format!(
                "add-port br1 {name} -- set interface {name} type=dummy ofport_request={number} \
                 options:tx_pcap={name}-tx.pcap"
            ));
        }
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
    if second {
        ports.extend(["p5", "p6", "pa", "pb"]);
    }
    let plain = g.one_in(3);
    for name in ports {
        if !plain && g.bool() {
            out.push(port(g, name));
        }
    }
    out.into_iter().map(Step::Configure).collect()
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

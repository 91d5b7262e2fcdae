// SPDX-License-Identifier: Apache-2.0
//! VLAN modes of ports.

use slipswitch_tests::harness::Switch;

const FLOW: &str = "dl_src=50:54:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff";

/// br0 with NORMAL: p1 and p2 access ports of VLAN 10, p3 a trunk, p4 as the test says.
fn switch(p4: &str) -> Switch {
    let switch = Switch::dummy(4);
    switch.flows("br0", "actions=NORMAL");
    switch.vsctl(&format!("set port p1 tag=10 -- set port p2 tag=10 -- set port p3 trunks=10,20 -- set port br0 tag=99 -- set port p4 {p4}"));
    switch
}

fn traced(switch: &Switch, port: u32, tag: Option<u32>) -> Vec<String> {
    let tag = tag.map_or_else(String::new, |vid| format!(",dl_vlan={vid}"));
    switch.traced_outputs(&format!("br0 in_port={port}{tag},{FLOW}"))
}

#[test]
fn an_access_port_reaches_its_vlan_and_trunks_with_a_tag() {
    let switch = switch("tag=20");
    assert_eq!(traced(&switch, 1, None), ["2", "push_vlan(vid=10,pcp=0):3"]);
}

#[test]
fn an_access_port_takes_no_tag() {
    let switch = switch("tag=20");
    assert_eq!(traced(&switch, 1, Some(10)), ["drop"]);
}

#[test]
fn a_trunk_carries_its_vlans_only() {
    let switch = switch("tag=20");
    assert_eq!(traced(&switch, 3, Some(20)), ["4", "pop_vlan"]);
    assert_eq!(traced(&switch, 3, Some(30)), ["drop"]);
    assert_eq!(traced(&switch, 3, None), ["drop"], "VLAN 0 is not in trunks");
}

#[test]
fn native_untagged_takes_and_gives_its_own_vlan_without_tag() {
    let switch = switch("vlan_mode=native-untagged tag=10 trunks=20");
    assert_eq!(traced(&switch, 1, None), ["2", "4", "push_vlan(vid=10,pcp=0):3"]);
    assert_eq!(traced(&switch, 4, None), ["1", "2", "push_vlan(vid=10,pcp=0):3"]);
    assert_eq!(traced(&switch, 4, Some(20)), ["3"]);
}

#[test]
fn native_tagged_takes_untagged_and_gives_tagged() {
    let switch = switch("vlan_mode=native-tagged tag=10 trunks=20");
    assert_eq!(
        traced(&switch, 1, None),
        ["2", "push_vlan(vid=10,pcp=0):3", "push_vlan(vid=10,pcp=0):4"]
    );
    assert_eq!(traced(&switch, 4, None), ["1", "2", "push_vlan(vid=10,pcp=0):3"]);
}

#[test]
fn dot1q_tunnel_wraps_what_it_takes() {
    let switch = switch("vlan_mode=dot1q-tunnel tag=10");
    assert_eq!(traced(&switch, 4, Some(5)), ["push_vlan(tpid=0x88a8,vid=10,pcp=0):3"]);
    assert_eq!(traced(&switch, 4, None), ["1", "2", "push_vlan(tpid=0x88a8,vid=10,pcp=0):3"]);
}

#[test]
fn addresses_are_learnt_per_vlan() {
    let switch = switch("tag=20");
    switch.receive("p1", &crate::packets::arp("50:54:00:00:00:01", "ff:ff:ff:ff:ff:ff"));
    switch.receive("p3", &crate::packets::tagged_arp("50:54:00:00:00:02", "ff:ff:ff:ff:ff:ff", 20));
    let text = switch.appctl("fdb/show br0");
    assert!(text.contains("    1    10  50:54:00:00:00:01"), "{text}");
    assert!(text.contains("    3    20  50:54:00:00:00:02"), "{text}");
}

#[test]
fn tags_come_and_go_on_the_wire() {
    let switch = switch("tag=20");
    switch.receive("p1", &crate::packets::arp("50:54:00:00:00:01", "ff:ff:ff:ff:ff:ff"));
    let plain = switch.sent_hex("p2");
    let tagged = switch.sent_hex("p3");
    assert_eq!(plain.len(), 1);
    assert_eq!(tagged.len(), 1);
    let (addresses, rest) = plain[0].split_at(24);
    assert_eq!(tagged[0], format!("{addresses}8100000a{rest}"));
}

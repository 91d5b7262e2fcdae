// SPDX-License-Identifier: Apache-2.0
//! The NORMAL action: learning, flooding, the MAC table.

use crate::packets::{arp, tagged_arp};
use slipswitch_tests::harness::Switch;

const A: &str = "50:54:00:00:00:01";
const B: &str = "50:54:00:00:00:02";
const ALL: &str = "ff:ff:ff:ff:ff:ff";

fn counts(switch: &Switch) -> [usize; 3] {
    [1, 2, 3].map(|p| switch.sent(&format!("p{p}")).len())
}

#[test]
fn an_unknown_destination_is_flooded_and_a_known_one_is_not() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "actions=NORMAL");
    switch.receive("p1", &arp(A, ALL));
    assert_eq!(counts(&switch), [0, 1, 1]);
    switch.receive("p2", &arp(B, A));
    assert_eq!(counts(&switch), [1, 1, 1]);
    switch.receive("p1", &arp(A, B));
    assert_eq!(counts(&switch), [1, 2, 1]);
}

#[test]
fn fdb_show_lists_port_vlan_address_and_age() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "actions=NORMAL");
    switch.receive("p3", &arp(A, ALL));
    assert_eq!(
        switch.appctl("fdb/show br0"),
        format!(" port  VLAN  MAC                Age\n    3     0  {A}    0\n")
    );
    switch.appctl("time/warp 5000");
    assert_eq!(
        switch.appctl("fdb/show br0"),
        format!(" port  VLAN  MAC                Age\n    3     0  {A}    5\n")
    );
}

#[test]
fn a_station_that_moves_is_followed() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "actions=NORMAL");
    switch.receive("p1", &arp(A, ALL));
    switch.receive("p2", &arp(B, A));
    switch.receive("p3", &arp(A, ALL));
    switch.revalidate();
    switch.receive("p2", &arp(B, A));
    let [first, _, third] = counts(&switch);
    assert_eq!((first, third), (2, 2), "p1: unicast, broadcast; p3: broadcast, unicast");
    assert!(switch.appctl("fdb/show br0").contains(&format!("    3     0  {A}")));
}

#[test]
fn fdb_flush_forgets() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "actions=NORMAL");
    switch.receive("p1", &arp(A, ALL));
    assert_eq!(switch.appctl("fdb/flush br0"), "table successfully flushed\n");
    assert_eq!(switch.appctl("fdb/show br0"), " port  VLAN  MAC                Age\n");
}

#[test]
fn fdb_add_and_del_keep_a_static_entry() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "actions=NORMAL");
    switch.appctl(&format!("fdb/add br0 p2 0 {B}"));
    assert!(switch.appctl("fdb/show br0").contains("static"));
    assert_eq!(switch.traced(&format!("br0 in_port=1,dl_src={A},dl_dst={B}")), "2");
    switch.appctl("time/warp 600000 100000");
    assert!(switch.appctl("fdb/show br0").contains(B));
    switch.appctl(&format!("fdb/del br0 0 {B}"));
    assert_eq!(switch.appctl("fdb/show br0"), " port  VLAN  MAC                Age\n");
}

#[test]
fn fdb_stats_show_counts() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "actions=NORMAL");
    switch.receive("p1", &arp(A, ALL));
    let text = switch.appctl("fdb/stats-show br0");
    assert!(
        text.starts_with(
            "Statistics for bridge \"br0\":\n  Current/maximum MAC entries in the table: 1/8192\n"
        ),
        "{text}"
    );
    assert!(text.contains("Total number of learned MAC entries     : 1"), "{text}");
}

#[test]
fn a_full_mac_table_forgets_the_oldest() {
    let switch = Switch::dummy(3);
    switch.vsctl("set bridge br0 other_config:mac-table-size=10");
    switch.flows("br0", "actions=NORMAL");
    for i in 0..20 {
        switch.receive("p1", &arp(&format!("50:54:00:00:01:{i:02x}"), ALL));
    }
    let text = switch.appctl("fdb/show br0");
    assert_eq!(text.lines().count(), 11, "{text}");
    assert!(text.contains("50:54:00:00:01:13"), "{text}");
}

#[test]
fn reserved_multicast_is_dropped_unless_asked_for() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "actions=NORMAL");
    assert_eq!(
        switch.traced(&format!("br0 in_port=1,dl_src={A},dl_dst=01:80:c2:00:00:05")),
        "drop"
    );
    switch.vsctl("set bridge br0 other_config:forward-bpdu=true");
    assert_eq!(
        switch.traced_outputs(&format!("br0 in_port=1,dl_src={A},dl_dst=01:80:c2:00:00:05")),
        ["100", "2", "3"]
    );
}

#[test]
fn a_mirror_gets_a_copy() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "actions=NORMAL");
    switch.vsctl(
        "-- --id=@p3 get port p3 -- --id=@m create mirror name=m select_all=true output_port=@p3 -- set bridge br0 mirrors=@m",
    );
    let actions = switch.traced_outputs(&format!("br0 in_port=1,dl_src={A},dl_dst={B}"));
    assert_eq!(actions, ["100", "2", "3"]);
}

#[test]
fn a_protected_port_does_not_talk_to_another() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "actions=NORMAL");
    switch.vsctl("set port p1 protected=true -- set port p2 protected=true");
    assert_eq!(
        switch.traced_outputs(&format!("br0 in_port=1,dl_src={A},dl_dst={B}")),
        ["100", "3"]
    );
}

#[test]
fn standalone_has_the_normal_flow_and_secure_has_none() {
    let switch = Switch::dummy(1);
    switch.vsctl("add-br br1 -- set bridge br1 datapath_type=dummy");
    assert_eq!(switch.dump("br1"), ["priority=0 actions=NORMAL"]);
    assert_eq!(switch.dump("br0"), Vec::<String>::new());
}

#[test]
fn a_bond_shows_the_other_end_where_hosts_are_when_another_member_takes_over() {
    let switch = Switch::dummy(1);
    switch.vsctl(
        "add-bond br0 bond0 q1 q2 bond_mode=active-backup other_config:bond-primary=q1 \
         -- set interface q1 type=dummy options:tx_pcap=q1-tx.pcap \
         -- set interface q2 type=dummy options:tx_pcap=q2-tx.pcap",
    );
    switch.appctl("time/warp 1000");
    switch.flows("br0", "actions=NORMAL");
    switch.receive("p1", &arp(A, ALL));
    switch.receive("p1", &tagged_arp(B, ALL, 7));
    switch.revalidate();
    let reverse_arp = |host: &str, tag: &str| {
        let mac = host.replace(':', "");
        format!("ffffffffffff{mac}{tag}80350001080006040003{mac}00000000{mac}00000000")
    };
    let both = [reverse_arp(A, ""), reverse_arp(B, "81000007")];
    switch.appctl("netdev-dummy/set-admin-state q1 down");
    switch.appctl("time/warp 1000");
    assert_eq!(switch.sent_hex("q2"), both);
    let before = switch.sent("q1").len();
    switch.appctl("netdev-dummy/set-admin-state q1 up");
    switch.appctl("time/warp 1000");
    assert_eq!(switch.sent_hex("q1")[before..], both, "back to the primary member");
}

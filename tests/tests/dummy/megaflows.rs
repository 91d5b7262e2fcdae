// SPDX-License-Identifier: Apache-2.0
//! Megaflows: as wide as they may be, and gone when they no longer hold.

use crate::packets::{ip, tcp};
use slipswitch_tests::harness::Switch;

#[test]
fn a_megaflow_names_only_what_the_tables_asked() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "in_port=1,actions=2");
    switch.receive("p1", &tcp("10.0.0.1", "10.0.0.2", 1000, 80));
    let flows = switch.megaflows();
    assert_eq!(
        flows,
        [
            "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(frag=no), actions:2"
        ]
    );
    for port in 0..10 {
        switch.receive("p1", &tcp("10.0.0.9", "10.0.0.8", 2000 + port, 80));
    }
    assert_eq!(switch.megaflows().len(), 1);
}

#[test]
fn counts_are_in_the_dump() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "in_port=1,actions=2");
    for _ in 0..4 {
        switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    }
    let text = switch.appctl("dpctl/dump-flows");
    // The first packet made the megaflow and is not counted in it.
    assert!(text.contains("packets:3, bytes:"), "{text}");
    assert!(text.contains("used:0.0") && text.contains(", actions:2"), "{text}");
    let text = switch.appctl("dpctl/dump-flows -m");
    assert!(text.starts_with("ufid:") || text.contains("\nufid:"), "{text}");
    assert!(text.contains("in_port(p1)"), "{text}");
    assert!(text.contains("dp:"), "{text}");
}

#[test]
fn a_thousand_rules_on_nw_dst_give_strangers_few_megaflows() {
    let switch = Switch::dummy(2);
    let mut flows = String::new();
    for i in 0..1000 {
        flows += &format!("ip,nw_dst=10.{}.{}.1,actions=2\n", i / 250, i % 250);
    }
    switch.flows("br0", &flows);
    for i in 0..100 {
        switch.receive("p1", &ip("10.0.0.1", &format!("192.{i}.7.9")));
    }
    let count = switch.megaflows().len();
    assert!(count <= 4, "{count} megaflows for packets that match no rule");
}

#[test]
fn ports_are_not_matched_where_addresses_decide() {
    let switch = Switch::dummy(2);
    switch.flows(
        "br0",
        "priority=10,tcp,nw_dst=10.0.0.9,tp_dst=80,actions=2\npriority=1,ip,actions=drop",
    );
    for port in 0..20 {
        switch.receive("p1", &tcp("10.0.0.1", "11.0.0.2", 1000, 7000 + port));
    }
    assert_eq!(switch.megaflows().len(), 1, "{:?}", switch.megaflows());
}

#[test]
fn a_changed_rule_changes_installed_megaflows() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "in_port=1,actions=2");
    switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    switch.ofctl("add-flow br0 in_port=1,actions=3");
    switch.revalidate();
    switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    assert_eq!((switch.sent("p2").len(), switch.sent("p3").len()), (1, 1));
    let flows = switch.megaflows();
    assert!(flows.len() == 1 && flows[0].ends_with("actions:3"), "{flows:?}");
}

#[test]
fn a_more_specific_rule_splits_a_wide_megaflow() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "priority=1,actions=2");
    switch.receive("p1", &tcp("10.0.0.1", "10.0.0.2", 1, 80));
    switch.ofctl("add-flow br0 priority=2,tcp,tp_dst=80,actions=3");
    switch.revalidate();
    switch.receive("p1", &tcp("10.0.0.1", "10.0.0.2", 1, 80));
    switch.receive("p1", &tcp("10.0.0.1", "10.0.0.2", 1, 81));
    assert_eq!((switch.sent("p2").len(), switch.sent("p3").len()), (2, 1));
}

#[test]
fn a_removed_port_takes_its_megaflows_along() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "in_port=1,actions=2,3");
    switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    switch.vsctl("del-port p3");
    switch.revalidate();
    assert!(
        switch.megaflows().iter().all(|f| f.ends_with("actions:2")),
        "{:?}",
        switch.megaflows()
    );
}

#[test]
fn purge_removes_all_megaflows_and_loses_no_count() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "actions=2");
    for _ in 0..3 {
        switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    }
    switch.appctl("revalidator/purge");
    assert_eq!(switch.megaflows(), Vec::<String>::new());
    assert_eq!(switch.counts("br0").0, 3);
}

#[test]
fn the_flow_limit_bounds_megaflows_and_packets_go_on() {
    let switch = Switch::dummy(2);
    switch.vsctl("set open_vswitch . other_config:flow-limit=10");
    let mut flows = String::new();
    for i in 0..60 {
        flows += &format!("ip,nw_dst=10.0.0.{i},actions=2\n");
    }
    switch.flows("br0", &flows);
    for i in 0..60 {
        switch.receive("p1", &ip("10.0.1.1", &format!("10.0.0.{i}")));
    }
    assert_eq!(switch.sent("p2").len(), 60);
    let text = switch.appctl("upcall/show");
    assert!(text.contains("flows") && text.contains("limit"), "{text}");
    switch.appctl("time/warp 3000 500");
    switch.revalidate();
    let left = switch.megaflows().len();
    assert!(left <= 60, "{left}");
    switch.revalidate();
    let text = switch.ofctl("dump-aggregate br0");
    assert!(text.contains("packet_count=60"), "{text}");
}

#[test]
fn dpctl_adds_shows_and_deletes_flows() {
    let switch = Switch::dummy(2);
    switch.appctl("dpctl/add-flow dummy@ovs-dummy 'in_port(1),eth(),eth_type(0x1234)' 2");
    let flows = switch.megaflows();
    assert!(
        flows.len() == 1
            && flows[0].contains("eth_type(0x1234)")
            && flows[0].ends_with("actions:2"),
        "{flows:?}"
    );
    switch.appctl("dpctl/del-flows dummy@ovs-dummy");
    assert_eq!(switch.megaflows(), Vec::<String>::new());
}

#[test]
fn upcall_show_counts_flows() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "actions=2");
    switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    switch.revalidate();
    let text = switch.appctl("upcall/show");
    assert!(text.starts_with("dummy@ovs-dummy:\n  flows         : (current "), "{text}");
}

#[test]
fn dpctl_show_and_dump_dps_name_the_datapath() {
    let switch = Switch::dummy(2);
    assert_eq!(switch.appctl("dpctl/dump-dps"), "dummy@ovs-dummy\n");
    let text = switch.appctl("dpctl/show");
    assert!(
        text.starts_with("dummy@ovs-dummy:\n  lookups: hit:0 missed:0 lost:0\n  flows: 0\n"),
        "{text}"
    );
    assert!(text.contains("  port 1: p1 (dummy"), "{text}");
}

#[test]
fn without_megaflows_every_flow_is_exact() {
    let switch = Switch::dummy(2);
    switch.appctl("upcall/disable-megaflows");
    switch.flows("br0", "actions=2");
    for port in 0..5 {
        switch.receive("p1", &tcp("10.0.0.1", "10.0.0.2", 1000 + port, 80));
    }
    assert_eq!(switch.megaflows().len(), 5);
    switch.appctl("upcall/enable-megaflows");
}

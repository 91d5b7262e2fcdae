// SPDX-License-Identifier: Apache-2.0
//! Flow tables: what `ovs-ofctl` writes into them comes out again, and no more.

use crate::packets::{ip, tcp};
use slipswitch_tests::harness::Switch;

#[test]
fn a_flow_comes_back_as_it_was_given() {
    let switch = Switch::dummy(2);
    let flows = [
        "cookie=0x1, table=3, priority=7,tcp,in_port=1,vlan_tci=0x1000/0x1000,nw_dst=10.0.0.0/8,tp_dst=0x50/0xfff0 actions=output:2,CONTROLLER:128",
        "cookie=0x2, idle_timeout=10, hard_timeout=20, priority=1,arp actions=NORMAL",
        "priority=0 actions=drop",
    ];
    for flow in flows {
        switch.ofctl(&format!("add-flow br0 '{flow}'"));
    }
    let dumped = switch.ofctl("dump-flows --no-names --no-stats br0");
    assert!(dumped.contains("cookie=0x1, table=3, priority=7,tcp,in_port=1,vlan_tci=0x1000/0x1000,nw_dst=10.0.0.0/8,tp_dst=0x50/0xfff0 actions=output:2,CONTROLLER:128"), "{dumped}");
    assert!(
        dumped.contains(
            "cookie=0x2, idle_timeout=10, hard_timeout=20, priority=1,arp actions=NORMAL"
        ),
        "{dumped}"
    );
    assert!(dumped.contains(" priority=0 actions=drop"), "{dumped}");
}

#[test]
fn counts_are_exact_after_packets() {
    let switch = Switch::dummy(2);
    switch
        .flows("br0", "tcp,tp_dst=80,actions=2\ntcp,tp_dst=443,actions=2\npriority=1,actions=drop");
    for (port, times) in [(80, 3), (443, 2), (22, 1)] {
        for _ in 0..times {
            switch.receive("p1", &tcp("10.0.0.1", "10.0.0.2", 1000, port));
        }
    }
    assert_eq!(switch.counts("br0 tcp,tp_dst=80").0, 3);
    assert_eq!(switch.counts("br0 tcp,tp_dst=443").0, 2);
    let text = switch.ofctl("dump-flows br0");
    assert!(
        text.lines().any(|l| l.contains("n_packets=1,") && l.contains("priority=1 ")),
        "{text}"
    );
    assert_eq!(switch.sent("p2").len(), 5);
    let bytes: usize = switch.sent("p2").iter().take(3).map(Vec::len).sum();
    assert_eq!(switch.counts("br0 tcp,tp_dst=80").1, bytes as u64);
}

#[test]
fn the_flow_of_highest_priority_wins() {
    let switch = Switch::dummy(4);
    switch.flows("br0", "priority=1,ip,actions=1\npriority=65535,ip,nw_src=10.0.0.1,actions=2\npriority=100,ip,nw_src=10.0.0.0/8,actions=3");
    assert_eq!(switch.traced("br0 in_port=4,ip,nw_src=10.0.0.1"), "2");
    assert_eq!(switch.traced("br0 in_port=4,ip,nw_src=10.0.0.2"), "3");
    assert_eq!(switch.traced("br0 in_port=4,ip,nw_src=11.0.0.1"), "1");
}

#[test]
fn del_flows_loose_takes_all_that_are_more_specific() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "ip,nw_src=10.0.0.1,actions=1\nip,nw_src=10.0.0.2,actions=1\ntcp,nw_src=10.0.0.1,tp_dst=80,actions=1\narp,actions=1");
    switch.ofctl("del-flows br0 ip,nw_src=10.0.0.1");
    assert_eq!(
        switch.dump("--no-names br0"),
        ["arp actions=output:1", "ip,nw_src=10.0.0.2 actions=output:1"]
    );
}

#[test]
fn del_flows_strict_takes_the_one_with_the_same_match_and_priority() {
    let switch = Switch::dummy(2);
    switch.flows(
        "br0",
        "priority=5,ip,actions=1\npriority=6,ip,actions=1\npriority=5,ip,nw_src=10.0.0.1,actions=1",
    );
    switch.ofctl("--strict del-flows br0 priority=5,ip");
    assert_eq!(
        switch.dump("--no-names br0"),
        ["priority=5,ip,nw_src=10.0.0.1 actions=output:1", "priority=6,ip actions=output:1"]
    );
}

#[test]
fn del_flows_keeps_to_its_table() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "table=0,ip,actions=1\ntable=1,ip,actions=1");
    switch.ofctl("del-flows br0 table=1");
    assert_eq!(switch.dump("--no-names br0"), ["ip actions=output:1"]);
}

#[test]
fn cookies_select_under_their_mask() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "cookie=0x11,ip,nw_src=1.0.0.1,actions=1\ncookie=0x12,ip,nw_src=1.0.0.2,actions=1\ncookie=0x21,ip,nw_src=1.0.0.3,actions=1");
    assert_eq!(switch.dump("--no-names br0 cookie=0x10/0xf0").len(), 2);
    switch.ofctl("mod-flows br0 cookie=0x12/-1,actions=2");
    assert_eq!(
        switch.dump("--no-names br0 cookie=0x12/-1"),
        ["cookie=0x12, ip,nw_src=1.0.0.2 actions=output:2"]
    );
    switch.ofctl("del-flows br0 cookie=0x1/0xf");
    assert_eq!(switch.dump("--no-names br0"), ["cookie=0x12, ip,nw_src=1.0.0.2 actions=output:2"]);
}

#[test]
fn out_port_selects_by_action() {
    let switch = Switch::dummy(3);
    switch.flows(
        "br0",
        "ip,nw_src=1.0.0.1,actions=1\nip,nw_src=1.0.0.2,actions=2,3\nip,nw_src=1.0.0.3,actions=3",
    );
    assert_eq!(switch.dump("--no-names br0 out_port=3").len(), 2);
    switch.ofctl("del-flows br0 out_port=2");
    assert_eq!(switch.dump("--no-names br0 ").len(), 2);
}

#[test]
fn out_group_selects_by_action() {
    let switch = Switch::dummy(3);
    switch.ofctl("-O OpenFlow13 add-group br0 group_id=7,type=all,bucket=output:1");
    switch.ofctl("-O OpenFlow13 add-flow br0 ip,actions=group:7");
    switch.ofctl("-O OpenFlow13 add-flow br0 arp,actions=output:1");
    switch.ofctl("-O OpenFlow13 del-flows br0 out_group=7");
    assert_eq!(switch.dump("-O OpenFlow13 --no-names br0"), ["arp actions=output:1"]);
}

#[test]
fn mod_flows_changes_actions_and_keeps_counts() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "ip,nw_src=10.0.0.1,actions=2\nip,nw_src=10.0.0.9,actions=2");
    switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    switch.revalidate();
    switch.ofctl("mod-flows br0 ip,actions=3");
    switch.revalidate();
    switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    assert_eq!(switch.counts("br0 ip,nw_src=10.0.0.1").0, 2);
    assert_eq!((switch.sent("p2").len(), switch.sent("p3").len()), (1, 1));
    assert_eq!(
        switch.dump("--no-names br0"),
        ["ip,nw_src=10.0.0.1 actions=output:3", "ip,nw_src=10.0.0.9 actions=output:3"]
    );
}

#[test]
fn mod_flows_strict_changes_one_and_adds_none() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "priority=5,ip,actions=1\npriority=6,ip,actions=1");
    switch.ofctl("--strict mod-flows br0 priority=6,ip,actions=2");
    switch.ofctl("--strict mod-flows br0 priority=7,ip,actions=2");
    assert_eq!(
        switch.dump("--no-names br0").len(),
        3,
        "OpenFlow 1.0: a modify without a match adds"
    );
    switch.ofctl("-O OpenFlow13 --strict mod-flows br0 priority=8,ip,actions=2");
    assert_eq!(switch.dump("--no-names br0").len(), 3, "OpenFlow 1.1 and later: it does not");
}

#[test]
fn the_same_flow_again_replaces_it_and_clears_its_counts() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "ip,actions=2");
    switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    assert_eq!(switch.counts("br0").0, 1);
    switch.ofctl("add-flow br0 cookie=5,ip,actions=1");
    assert_eq!(switch.counts("br0"), (0, 0));
    assert_eq!(switch.dump("--no-names br0"), ["cookie=0x5, ip actions=output:1"]);
}

#[test]
fn reset_counts_clears_them() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "ip,actions=2");
    switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    assert_eq!(switch.counts("br0").0, 1);
    switch.ofctl("-O OpenFlow13 mod-flows br0 reset_counts,ip,actions=2");
    assert_eq!(switch.counts("br0"), (0, 0));
}

#[test]
fn check_overlap_refuses_a_flow_that_overlaps() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "ip,nw_src=10.0.0.0/8,actions=1");
    let text = switch.fails("ovs-ofctl add-flow br0 check_overlap,ip,nw_dst=10.0.0.0/8,actions=1");
    assert!(text.contains("OFPFMFC_OVERLAP"), "{text}");
    switch.ofctl("add-flow br0 check_overlap,ip,nw_src=11.0.0.0/8,actions=1");
    assert_eq!(switch.dump("br0").len(), 2);
}

#[test]
fn dump_aggregate_adds_up() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "ip,actions=2\narp,actions=2");
    for _ in 0..3 {
        switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    }
    switch.revalidate();
    let text = switch.ofctl("dump-aggregate br0");
    assert!(text.contains("packet_count=3 ") && text.contains("flow_count=2"), "{text}");
    assert!(
        switch.ofctl("dump-aggregate br0 arp").contains("packet_count=0 byte_count=0 flow_count=1")
    );
}

#[test]
fn replace_flows_and_diff_flows_agree() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "cookie=0x1,ip,actions=1\narp,actions=1");
    switch.sandbox().write("new.txt", "cookie=0x1,ip,actions=2\nipv6,actions=3\n");
    let differs = switch.sh("ovs-ofctl --no-names diff-flows br0 new.txt");
    assert_eq!(differs.code, Some(2), "{}", differs.text());
    let mut lines: Vec<&str> = differs.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "+ip cookie=0x1 actions=output:2",
            "+ipv6 actions=output:3",
            "-arp actions=output:1",
            "-ip cookie=0x1 actions=output:1"
        ],
        "{}",
        differs.text()
    );
    switch.ofctl("replace-flows br0 new.txt");
    assert_eq!(
        switch.dump("--no-names br0"),
        ["cookie=0x1, ip actions=output:2", "ipv6 actions=output:3"]
    );
    assert!(switch.sh("ovs-ofctl diff-flows br0 new.txt").ok());
}

#[test]
fn a_bundle_with_a_bad_flow_changes_nothing() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "ip,actions=1");
    switch.sandbox().write("bad.txt", "delete\nadd arp,actions=1\nadd ipv6,actions=group:77\n");
    let text = switch.fails("ovs-ofctl --bundle add-flows br0 bad.txt");
    assert!(text.contains("OFPBAC_BAD_OUT_GROUP") || text.contains("OFPBFC_MSG_FAILED"), "{text}");
    assert_eq!(switch.dump("--no-names br0"), ["ip actions=output:1"]);
}

#[test]
fn a_bundle_applies_all_in_order() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "ip,actions=1");
    switch.sandbox().write("good.txt", "delete\nadd arp,actions=1\nmodify arp,actions=2\nadd ipv6,actions=1\ndelete_strict priority=32768,ipv6\n");
    switch.ofctl("--bundle add-flows br0 good.txt");
    assert_eq!(switch.dump("--no-names br0"), ["arp actions=output:2"]);
}

#[test]
fn a_bundle_takes_groups_and_flows_together() {
    let switch = Switch::dummy(2);
    switch.sandbox().write(
        "both.txt",
        "group group_id=1,type=all,bucket=output:1\nflow add ip,actions=group:1\n",
    );
    switch.ofctl("-O OpenFlow14 bundle br0 both.txt");
    assert_eq!(switch.traced("br0 in_port=2,ip"), "1");
}

#[test]
fn a_full_table_refuses_and_keeps_what_it_has() {
    let switch = Switch::dummy(2);
    switch.vsctl("-- --id=@t create Flow_Table flow_limit=2 -- set bridge br0 flow_tables:0=@t");
    switch.flows("br0", "ip,nw_src=1.0.0.1,actions=1\nip,nw_src=1.0.0.2,actions=1");
    let text = switch.fails("ovs-ofctl add-flow br0 ip,nw_src=1.0.0.3,actions=1");
    assert!(text.contains("OFPFMFC_TABLE_FULL"), "{text}");
    assert_eq!(switch.dump("br0").len(), 2);
}

#[test]
fn a_full_table_with_eviction_gives_up_the_flow_that_ends_first() {
    let switch = Switch::dummy(2);
    switch.vsctl(
        "-- --id=@t create Flow_Table flow_limit=2 overflow_policy=evict -- set bridge br0 flow_tables:0=@t",
    );
    switch.flows(
        "br0",
        "idle_timeout=10,ip,nw_src=1.0.0.1,actions=1\nidle_timeout=20,ip,nw_src=1.0.0.2,actions=1",
    );
    switch.ofctl("add-flow br0 ip,nw_src=1.0.0.3,actions=1");
    assert_eq!(
        switch.dump("--no-names br0"),
        [
            "idle_timeout=20, ip,nw_src=1.0.0.2 actions=output:1",
            "ip,nw_src=1.0.0.3 actions=output:1"
        ]
    );
}

#[test]
fn conjunctions_match_when_every_dimension_does() {
    let switch = Switch::dummy(4);
    switch.flows(
        "br0",
        "conj_id=1,ip,actions=4
         ip,nw_src=10.0.0.1,actions=conjunction(1,1/2)
         ip,nw_src=10.0.0.2,actions=conjunction(1,1/2)
         ip,nw_dst=10.0.1.1,actions=conjunction(1,2/2)
         ip,nw_dst=10.0.1.2,actions=conjunction(1,2/2)
         priority=1,ip,actions=drop",
    );
    for (source, destination, expected) in [
        ("10.0.0.1", "10.0.1.2", "4"),
        ("10.0.0.2", "10.0.1.1", "4"),
        ("10.0.0.3", "10.0.1.1", "drop"),
        ("10.0.0.1", "10.0.1.3", "drop"),
    ] {
        let flow = format!("br0 in_port=1,ip,nw_src={source},nw_dst={destination}");
        assert_eq!(switch.traced(&flow), expected, "{flow}");
    }
}

#[test]
fn ten_thousand_flows_load_and_come_back() {
    let switch = Switch::dummy(2);
    let mut text = String::new();
    for i in 0..10_000 {
        text +=
            &format!("priority={},ip,nw_dst=10.{}.{}.1,actions=2\n", i % 7 + 1, i / 250, i % 250);
    }
    switch.flows("br0", &text);
    assert_eq!(switch.dump("br0").len(), 10_000);
    switch.ofctl("del-flows br0 priority=3 || true");
    switch.ofctl("del-flows br0");
    assert_eq!(switch.dump("br0").len(), 0);
}

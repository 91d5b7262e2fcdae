// SPDX-License-Identifier: Apache-2.0
//! Bridges and ports from the database.

use slipswitch_tests::harness::{Switch, wait_until};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(5);

#[test]
fn add_br_and_add_port_write_their_status_back() {
    let switch = Switch::dummy(2);
    assert_eq!(switch.vsctl("get interface p1 ofport"), "1\n");
    assert_eq!(switch.vsctl("get interface p2 ofport"), "2\n");
    assert_eq!(switch.vsctl("get interface br0 ofport"), "65534\n");
    assert_eq!(switch.vsctl("get bridge br0 datapath_id"), "fedcba9876543210\n");
    assert_eq!(switch.vsctl("get interface br0 mac_in_use"), "\"aa:55:aa:55:00:00\"\n");
    assert_eq!(switch.vsctl("get interface p1 error"), "[]\n");
    assert_eq!(switch.vsctl("get interface p1 admin_state"), "up\n");
    assert_eq!(
        switch.vsctl("get open_vswitch . cur_cfg"),
        switch.vsctl("get open_vswitch . next_cfg")
    );
}

#[test]
fn an_error_does_not_repeat_all_that_is_wrong() {
    let switch = Switch::dummy(1);
    let kind = "x".repeat(60_000);
    switch.sh(&format!("ovs-vsctl add-port br0 bad -- set interface bad type={kind}"));
    let error = switch.vsctl("get interface bad error");
    assert!(error.contains("could not open network device bad") && error.len() < 1200, "{error}");
    assert!(error.contains(" bytes ...]"), "{error}");
}

#[test]
fn ofproto_list_and_dpif_show_name_bridges_and_ports() {
    let switch = Switch::dummy(2);
    assert_eq!(switch.appctl("ofproto/list"), "br0\n");
    let text = switch.appctl("dpif/show");
    assert!(text.contains("  br0:\n    br0 65534/100: (dummy-internal)\n"), "{text}");
    assert!(text.contains("    p1 1/1: (dummy"), "{text}");
    assert!(text.contains("    p2 2/2: (dummy"), "{text}");
}

#[test]
fn del_port_and_del_br_take_them_away() {
    let switch = Switch::dummy(2);
    switch.vsctl("del-port br0 p1");
    let text = switch.ofctl("show br0");
    assert!(!text.contains("(p1)") && text.contains("2(p2)"), "{text}");
    switch.vsctl("del-br br0");
    assert_eq!(switch.appctl("ofproto/list"), "");
    assert!(!switch.sandbox().file("br0.mgmt").exists());
    assert_eq!(switch.appctl("dpif/show").trim(), "");
}

#[test]
fn bridges_exist_side_by_side_and_do_not_mix() {
    let switch = Switch::dummy(2);
    switch.vsctl("add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=secure -- add-port br1 q1 -- set interface q1 type=dummy ofport_request=1");
    switch.flows("br0", "in_port=1,actions=2");
    assert_eq!(switch.dump("br1"), Vec::<String>::new());
    switch.receive("q1", &crate::packets::ip("10.0.0.1", "10.0.0.2"));
    assert_eq!(switch.counts("br0"), (0, 0));
    assert_eq!(switch.sent("p2").len(), 0);
}

#[test]
fn the_same_database_change_twice_changes_nothing() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "in_port=1,actions=2");
    switch.vsctl("set interface p1 ofport_request=1");
    switch.vsctl("set bridge br0 fail_mode=secure");
    assert_eq!(switch.dump("--no-names br0"), ["in_port=1 actions=output:2"]);
}

#[test]
fn a_number_that_is_asked_for_is_taken_from_a_port_that_does_not_ask() {
    let switch = Switch::dummy(0);
    switch.vsctl("add-port br0 q1 -- set interface q1 type=dummy -- add-port br0 q2 -- set interface q2 type=dummy");
    let number =
        |port: &str| switch.vsctl(&format!("get interface {port} ofport")).trim().to_owned();
    let (first, second) = (number("q1"), number("q2"));
    switch.vsctl(&format!("set interface q2 ofport_request={first}"));
    assert_eq!(number("q2"), first);
    assert_ne!(number("q1"), first);
    // In one step they change places.
    switch.vsctl(&format!(
        "set interface q1 ofport_request={first} -- set interface q2 ofport_request={second}"
    ));
    assert_eq!((number("q1"), number("q2")), (first.clone(), second));
    // A port that also requests this number comes later than its holder.
    switch.vsctl(&format!("set interface q2 ofport_request={first}"));
    assert_eq!(number("q1"), first);
}

#[test]
fn flows_and_port_numbers_survive_changes_of_other_ports() {
    let switch = Switch::dummy(4);
    switch.flows("br0", "in_port=1,actions=3");
    switch.vsctl("del-port p2 -- del-port p4");
    switch.vsctl("add-port br0 p5 -- set interface p5 type=dummy");
    assert_eq!(switch.vsctl("get interface p1 ofport"), "1\n");
    assert_eq!(switch.vsctl("get interface p3 ofport"), "3\n");
    switch.receive("p1", &crate::packets::ip("10.0.0.1", "10.0.0.2"));
    assert_eq!(switch.counts("br0").0, 1);
    assert_eq!(switch.sent("p3").len(), 1);
}

#[test]
fn patch_ports_join_two_bridges() {
    let switch = Switch::dummy(1);
    switch.vsctl(
        "add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=secure \
         -- add-port br0 pa -- set interface pa type=patch options:peer=pb ofport_request=10 \
         -- add-port br1 pb -- set interface pb type=patch options:peer=pa ofport_request=11 \
         -- add-port br1 q1 -- set interface q1 type=dummy ofport_request=1 options:tx_pcap=q1-tx.pcap",
    );
    switch.ofctl("add-flow br0 in_port=1,actions=10");
    switch.ofctl("add-flow br1 in_port=11,actions=mod_nw_tos:4,1");
    switch.receive("p1", &crate::packets::ip("10.0.0.1", "10.0.0.2"));
    assert_eq!(switch.counts("br0"), (1, 34.max(switch.counts("br1").1)));
    assert_eq!(switch.counts("br1").0, 1);
    assert_eq!(switch.sent("q1").len(), 1);
    // Patch ports count as well.
    assert_eq!(switch.port_counts("br0", "pa").1, 1);
    assert_eq!(switch.port_counts("br1", "pb").0, 1);
}

#[test]
fn a_patch_port_without_a_peer_drops() {
    let switch = Switch::dummy(1);
    switch.vsctl(
        "add-port br0 pa -- set interface pa type=patch options:peer=nowhere ofport_request=10",
    );
    switch.flows("br0", "in_port=1,actions=10");
    assert_eq!(switch.traced("br0 in_port=1,ip"), "drop");
}

#[test]
fn mod_port_takes_a_port_down_and_up() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "actions=ALL");
    switch.ofctl("mod-port br0 p2 down");
    assert!(switch.ofctl("show br0").contains("PORT_DOWN"));
    switch.ofctl("mod-port br0 p2 up");
    assert!(!switch.ofctl("show br0").contains("PORT_DOWN"));
    assert_eq!(switch.traced_outputs("br0 in_port=1,ip"), ["100", "2", "3"]);
    switch.ofctl("mod-port br0 p3 no-forward");
    assert_eq!(switch.traced_outputs("br0 in_port=1,ip"), ["100", "2"]);
}

#[test]
fn no_flood_and_no_receive_hold() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "actions=FLOOD");
    switch.ofctl("mod-port br0 p2 no-flood");
    assert_eq!(switch.traced_outputs("br0 in_port=1,ip"), ["100", "3"]);
    switch.ofctl("mod-port br0 p1 no-receive");
    assert_eq!(switch.traced("br0 in_port=1,ip"), "drop");
}

#[test]
fn port_counters_are_exact() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "in_port=1,actions=2");
    let packet = crate::packets::tcp("10.0.0.1", "10.0.0.2", 1000, 80);
    for _ in 0..5 {
        switch.receive("p1", &packet);
    }
    assert_eq!(switch.port_counts("br0", "p1"), (5, 0));
    assert_eq!(switch.port_counts("br0", "p2"), (0, 5));
    assert_eq!(switch.counts("br0").0, 5);
    assert_eq!(switch.sent("p2").len(), 5);
}

#[test]
fn statistics_reach_the_database() {
    let switch = Switch::dummy(2);
    switch.vsctl("set open_vswitch . other_config:stats-update-interval=5000");
    switch.flows("br0", "in_port=1,actions=2");
    switch.receive("p1", &crate::packets::ip("10.0.0.1", "10.0.0.2"));
    let there = wait_until(SOON, || {
        switch.appctl("time/warp 5000");
        switch.vsctl("--if-exists get interface p1 statistics").contains("rx_packets=1")
    });
    assert!(there, "{}", switch.vsctl("list interface p1"));
}

#[test]
fn the_mtu_and_its_request_are_kept() {
    let switch = Switch::dummy(1);
    assert_eq!(switch.vsctl("get interface p1 mtu"), "1500\n");
    switch.vsctl("set interface p1 mtu_request=9000");
    assert_eq!(switch.vsctl("get interface p1 mtu"), "9000\n");
}

#[test]
fn what_the_daemon_can_do_is_in_the_database() {
    let switch = Switch::dummy(1);
    let types = switch.vsctl("get open_vswitch . iface_types");
    for wanted in ["internal", "patch", "system", "tap", "dummy"] {
        assert!(types.contains(wanted), "{types}");
    }
    let types = switch.vsctl("get open_vswitch . datapath_types");
    assert!(types.contains("netdev") && types.contains("dummy"), "{types}");
    assert!(!switch.vsctl("get open_vswitch . ovs_version").is_empty());
}

#[test]
fn a_new_datapath_id_takes_effect_at_once() {
    let switch = Switch::dummy(1);
    switch.vsctl("set bridge br0 other_config:datapath-id=00000000000000aa");
    assert!(switch.ofctl("show br0").contains("dpid:00000000000000aa"));
    assert_eq!(switch.vsctl("get bridge br0 datapath_id"), "\"00000000000000aa\"\n");
}

#[test]
fn a_normal_run_logs_no_warning() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "actions=NORMAL");
    switch.receive("p1", &crate::packets::arp("50:54:00:00:00:01", "ff:ff:ff:ff:ff:ff"));
    switch.vsctl("del-port p2");
    switch.vsctl("del-br br0");
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn statistics_are_written_as_time_passes() {
    let switch = Switch::dummy(1);
    let count = || switch.vsctl("get interface p1 statistics:rx_packets");
    switch.appctl("time/warp 6000 1000");
    assert_eq!(count().trim(), "0");
    switch.run(
        "ovs-appctl netdev-dummy/receive p1 'in_port(1),eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a),eth_type(0x1234)'",
    );
    switch.appctl("time/warp 11000 1000");
    assert_eq!(count().trim(), "1");
}

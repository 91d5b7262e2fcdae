// SPDX-License-Identifier: Apache-2.0
//! Spanning trees: bridges joined by two patches, one of which must not forward.

use crate::packets::arp;
use slipswitch_tests::harness::{Kind, Switch, wait_until};
use std::time::Duration;

const A: &str = "50:54:00:00:00:01";
const B: &str = "50:54:00:00:00:02";

/// `br0` with p1 and p2, and `br1` with b1, joined by the patches a0-b0 and a1-b1. `br0` is the root.
fn two_bridges(protocol: &str) -> Switch {
    let switch = Switch::dummy(2);
    let mut line = String::from(
        "add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=secure \
         other_config:hwaddr=aa:66:aa:66:00:00",
    );
    for n in 0..2 {
        for (bridge, end, peer) in [("br0", "a", "b"), ("br1", "b", "a")] {
            line += &format!(
                " -- add-port {bridge} {end}{n} -- set interface {end}{n} type=patch \
                 options:peer={peer}{n} ofport_request=1{n} \
                 -- set port {end}{n} other_config:{protocol}-port-num=1{n}"
            );
        }
    }
    line += &format!(
        " -- add-port br1 q1 -- set interface q1 type=dummy ofport_request=1 options:tx_pcap=q1-tx.pcap \
         -- set port p1 other_config:{protocol}-port-num=1 -- set port q1 other_config:{protocol}-port-num=1 \
         -- set port p2 other_config:{protocol}-enable=false"
    );
    switch.vsctl(&line);
    switch.appctl("time/stop");
    switch.flows("br0", "actions=NORMAL");
    switch.flows("br1", "actions=NORMAL");
    switch.vsctl(&format!(
        "set bridge br0 {protocol}_enable=true -- set bridge br1 {protocol}_enable=true"
    ));
    switch
}

fn warp(switch: &Switch, seconds: u32) {
    switch.appctl(&format!("time/warp {} 1000", seconds * 1000));
}

/// Returns the lines of ports in `stp/show`: those that end with a priority and a number.
fn ports(switch: &Switch, command: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = switch.appctl(command);
    let is_port = |line: &String| line.contains('.') && !line.contains("Pri.Nbr");
    let mut lines: Vec<String> = text.lines().map(words).filter(is_port).collect();
    lines.sort();
    lines
}

/// Returns the number of addresses that `br0` has learned.
fn learned(switch: &Switch) -> usize {
    switch.appctl("version"); // a received packet is processed before the next command is answered
    switch.appctl("fdb/show br0").lines().count() - 1
}

#[test]
fn one_of_two_links_is_cut() {
    let switch = two_bridges("stp");
    warp(&switch, 6);
    assert_eq!(
        ports(&switch, "stp/show br1"),
        [
            "b0 root listening 2 128.10",
            "b1 alternate blocking 2 128.11",
            "q1 designated listening 2 128.1"
        ]
    );
    switch.ofctl("add-flow br0 priority=40000,in_port=2,actions=output:10");
    let trace = switch.appctl(&format!("ofproto/trace br0 in_port=2,dl_src={A},dl_dst={B}"));
    assert!(trace.contains(" >> STP not in forwarding state, skipping output"), "{trace}");
    switch.ofctl("--strict del-flows br0 priority=40000,in_port=2");
    // Nothing is learned from a port that listens, and nothing leaves by it.
    switch.receive("p1", &arp(A, B));
    assert_eq!(learned(&switch), 0);
    assert_eq!(switch.sent("p2").len(), 0);
    warp(&switch, 15);
    assert!(ports(&switch, "stp/show br0").contains(&"p1 designated learning 2 128.1".to_owned()));
    switch.receive("p1", &arp(A, B));
    assert_eq!(learned(&switch), 1);
    assert_eq!(switch.sent("p2").len(), 0, "and dropped");
    warp(&switch, 20);
    assert_eq!(
        ports(&switch, "stp/show"),
        [
            "a0 designated forwarding 2 128.10",
            "a1 designated forwarding 2 128.11",
            "b0 root forwarding 2 128.10",
            "b1 alternate blocking 2 128.11",
            "p1 designated forwarding 2 128.1",
            "q1 designated forwarding 2 128.1"
        ],
        "of all bridges"
    );
}

#[test]
fn packets_pass_once_and_the_other_link_takes_over() {
    let switch = two_bridges("stp");
    warp(&switch, 40);
    let counts = || {
        (switch.sent("p2").len(), switch.sent("q1").iter().filter(|f| f[12..14] == [8, 6]).count())
    };
    switch.receive("p1", &arp(A, "ff:ff:ff:ff:ff:ff"));
    assert_eq!(counts(), (1, 1), "one copy each");
    switch.vsctl("del-port a0 -- del-port b0");
    warp(&switch, 45);
    assert_eq!(
        ports(&switch, "stp/show br1"),
        ["b1 root forwarding 2 128.11", "q1 designated forwarding 2 128.1"]
    );
    switch.receive("p1", &arp(A, "ff:ff:ff:ff:ff:ff"));
    assert_eq!(counts(), (2, 2));
}

#[test]
fn the_state_is_shown() {
    let switch = two_bridges("stp");
    warp(&switch, 40);
    let text = switch.appctl("stp/show br1");
    let head = "---- br1 ----\nRoot ID:\n  stp-priority  32768\n  stp-system-id   aa:55:aa:55:00:00\n  \
                stp-hello-time  2s\n  stp-max-age     20s\n  stp-fwd-delay   15s\n  \
                root-port       b0\n  root-path-cost  2\n\nBridge ID:\n  stp-priority  32768\n  \
                stp-system-id   aa:66:aa:66:00:00\n  stp-hello-time  2s\n  stp-max-age     20s\n  \
                stp-fwd-delay   15s\n\n  \
                Interface  Role       State      Cost  Pri.Nbr \n  \
                ---------- ---------- ---------- ----- -------\n";
    assert!(text.starts_with(head), "{text}");
    assert!(switch.appctl("stp/show br0").contains("  This bridge is the root\n"));
    assert!(switch.fails("ovs-appctl stp/show nobody").contains("no such stp object"));
    assert!(switch.fails("ovs-appctl stp/tcn nobody").contains("no such stp object"));
    assert_eq!(switch.appctl("stp/tcn"), "OK\n");
    let description = switch.ofctl("dump-ports-desc br1");
    let state = |port: &str| {
        let mut lines = description.lines().skip_while(|line| !line.contains(&format!("({port})")));
        lines.find(|line| line.contains("state:")).unwrap_or_default().trim().to_owned()
    };
    assert_eq!(state("b0"), "state:      STP_FORWARD");
    assert_eq!(state("b1"), "state:      STP_BLOCK");
    let get = |what: &str| switch.vsctl(&format!("get {what}")).trim().to_owned();
    assert_eq!(
        get("bridge br1 status"),
        "{stp_bridge_id=\"8000.aa66aa660000\", stp_designated_root=\"8000.aa55aa550000\", stp_root_path_cost=\"2\"}"
    );
    assert_eq!(get("port b1 status:stp_state"), "blocking");
    assert_eq!(get("port b1 status:stp_role"), "alternate");
    assert_eq!(get("port b0 status:stp_port_id"), "\"32778\"");
    switch.vsctl("set bridge br1 stp_enable=false");
    assert_eq!(get("bridge br1 status"), "{}");
    assert_eq!(get("port b1 status"), "{}");
    assert!(switch.ofctl("dump-ports-desc br1").lines().all(|line| !line.contains("STP_")));
    assert!(switch.fails("ovs-appctl stp/show br1").contains("no such stp object"));
}

#[test]
fn a_change_of_the_topology_flushes() {
    let switch = two_bridges("stp");
    switch.vsctl("set bridge br0 mcast_snooping_enable=true");
    warp(&switch, 90);
    switch.receive("p1", &arp(A, B));
    assert_eq!(learned(&switch), 1);
    // A query: there is a router. Open vSwitch takes it some time after the packet.
    let query =
        "01005e00000150540000000308004500001c000000000102cfdc0a000003e00000011100eeff00000000";
    switch.receive("p1", query);
    let groups = || switch.appctl("mdb/show br0").lines().count() - 1;
    assert!(wait_until(Duration::from_secs(10), || groups() == 1));
    assert_eq!(learned(&switch), 2);
    switch.appctl("stp/tcn br0");
    warp(&switch, 1);
    assert_eq!((learned(&switch), groups()), (0, 0));
}

/// Open vSwitch aborts where RSTP goes through a patch; so this is for Slipswitch alone.
#[test]
fn rapid_bridges_need_no_time() {
    if Kind::under_test() == Kind::RealOvs {
        return;
    }
    let switch = two_bridges("rstp");
    switch.appctl("time/warp 100 100");
    assert_eq!(
        ports(&switch, "rstp/show br1"),
        [
            "b0 Root Forwarding 2000 128.10",
            "b1 Alternate Discarding 2000 128.11",
            "q1 Designated Discarding 2000 128.1"
        ]
    );
    warp(&switch, 5);
    assert!(
        ports(&switch, "rstp/show br1").contains(&"q1 Designated Forwarding 2000 128.1".to_owned())
    );
    let counts = || {
        let q1 = switch.sent("q1");
        (switch.sent("p2").len(), q1.iter().filter(|f| f[12..14] == [8, 6]).count())
    };
    switch.receive("p1", &arp(A, "ff:ff:ff:ff:ff:ff"));
    assert_eq!(counts(), (1, 1), "one copy each");
    let get = |what: &str| switch.vsctl(&format!("get {what}")).trim().to_owned();
    assert_eq!(get("bridge br1 rstp_status:rstp_root_id"), "\"8.000.aa55aa550000\"");
    assert_eq!(get("bridge br1 rstp_status:rstp_root_path_cost"), "\"2000\"");
    assert_eq!(get("port b1 rstp_status:rstp_port_role"), "Alternate");
    assert_eq!(get("port b0 rstp_status:rstp_port_id"), "\"800a\"");
    switch.vsctl("del-port a0 -- del-port b0");
    assert_eq!(
        ports(&switch, "rstp/show br1"),
        ["b1 Root Forwarding 2000 128.11", "q1 Designated Forwarding 2000 128.1"]
    );
    switch.receive("p1", &arp(A, "ff:ff:ff:ff:ff:ff"));
    assert_eq!(counts(), (2, 2));
    switch.vsctl("set bridge br1 rstp_enable=false");
    assert_eq!(get("bridge br1 rstp_status"), "{}");
    assert_eq!(get("port b1 rstp_status"), "{}");
}

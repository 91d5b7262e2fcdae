// SPDX-License-Identifier: Apache-2.0
//! Controllers: packets to them, monitors, connections.

use crate::packets::{ip, tcp};
use slipswitch_tests::harness::{Switch, free_port, wait_until};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(5);

/// Starts `ovs-ofctl monitor br0 ARGUMENTS` in the background, and waits until it is connected.
fn monitor(switch: &Switch, arguments: &str) {
    switch.run(&format!(
        "ovs-ofctl -vconsole:off monitor br0 {arguments} --detach --no-chdir --pidfile=monitor.pid --unixctl=monitor.ctl >monitor.txt 2>&1"
    ));
}

/// The controller's output, once it contains `text`.
fn monitored(switch: &Switch, text: &str) -> String {
    let seen = wait_until(SOON, || switch.sandbox().read("monitor.txt").contains(text));
    let all = switch.sandbox().read("monitor.txt");
    assert!(seen, "{text} is not in: {all}");
    all
}

#[test]
fn a_packet_to_the_controller_arrives_with_its_bytes() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "cookie=0x99,tcp,actions=CONTROLLER:65535");
    monitor(&switch, "65534 -P standard");
    switch.receive("p1", &tcp("10.0.0.1", "10.0.0.2", 1000, 80));
    let text = monitored(&switch, "tcp,");
    assert!(text.contains("in_port=1 (via action)"), "{text}");
    assert!(
        text.contains("nw_src=10.0.0.1,nw_dst=10.0.0.2") && text.contains("tp_src=1000,tp_dst=80"),
        "{text}"
    );
}

#[test]
fn a_nicira_packet_in_says_which_flow_sent_it() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "table=0,actions=resubmit(,7)\ntable=7,cookie=0x99,ip,actions=load:5->NXM_NX_REG3[],controller(reason=action,max_len=20)");
    monitor(&switch, "65534 -P nxt_packet_in");
    switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    let text = monitored(&switch, "NXT_PACKET_IN");
    assert!(text.contains("table_id=7 cookie=0x99 total_len="), "{text}");
    assert!(text.contains("reg3=0x5,in_port=1"), "{text}");
}

#[test]
fn packets_of_an_installed_flow_reach_the_controller_each() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "ip,actions=CONTROLLER");
    monitor(&switch, "65534");
    for _ in 0..5 {
        switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    }
    let all =
        wait_until(SOON, || switch.sandbox().read("monitor.txt").matches("PACKET_IN").count() == 5);
    assert!(all, "{}", switch.sandbox().read("monitor.txt"));
    assert_eq!(switch.counts("br0").0, 5);
}

#[test]
fn a_flow_monitor_sees_flows_come_change_and_go() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "cookie=0x1,ip,actions=1");
    monitor(&switch, "watch:");
    monitored(&switch, "event=ADDED table=0 cookie=0x1 ip");
    switch.ofctl("add-flow br0 cookie=0x2,arp,actions=2");
    monitored(&switch, "event=ADDED table=0 cookie=0x2 arp actions=output:2");
    switch.ofctl("mod-flows br0 cookie=0,arp,actions=1");
    monitored(&switch, "event=MODIFIED table=0 cookie=0 arp actions=output:1");
    switch.ofctl("del-flows br0 arp");
    monitored(&switch, "event=DELETED reason=delete table=0 cookie=0 arp");
}

#[test]
fn flow_removed_is_sent_when_asked_for() {
    let switch = Switch::dummy(2);
    monitor(&switch, "65534");
    switch.ofctl("add-flow br0 send_flow_rem,idle_timeout=5,cookie=0x7,ip,actions=2");
    switch.ofctl("add-flow br0 idle_timeout=5,arp,actions=2");
    switch.appctl("time/warp 8000 1000");
    let text = monitored(&switch, "OFPT_FLOW_REMOVED");
    assert!(
        text.contains("ip reason=idle cookie:0x7 duration") && !text.contains(" arp reason"),
        "{text}"
    );
}

#[test]
fn port_status_is_sent_on_changes() {
    let switch = Switch::dummy(1);
    monitor(&switch, "65534");
    switch.vsctl("add-port br0 p9 -- set interface p9 type=dummy ofport_request=9");
    monitored(&switch, "OFPT_PORT_STATUS");
    monitored(&switch, "ADD: 9(p9)");
    switch.vsctl("del-port p9");
    monitored(&switch, "DEL: 9(p9)");
}

/// A new port is not live at first, and live then: versions that show it get a message for each.
#[test]
fn a_new_port_becomes_live() {
    let switch = Switch::dummy(1);
    monitor(&switch, "65534 -O OpenFlow13");
    switch.vsctl("add-port br0 p9 -- set interface p9 type=dummy ofport_request=9");
    let text = monitored(&switch, "MOD: 9(p9)");
    let states: Vec<&str> = text
        .split("OFPT_PORT_STATUS")
        .filter(|message| message.contains("9(p9)"))
        .flat_map(|message| message.lines().filter(|line| line.contains("state:")))
        .map(|line| line.trim().trim_start_matches("state:").trim())
        .collect();
    assert_eq!(states, ["0", "LIVE"], "{text}");
    // OpenFlow 1.0 cannot show it.
    let switch = Switch::dummy(1);
    monitor(&switch, "65534");
    switch.vsctl("add-port br0 p9 -- set interface p9 type=dummy ofport_request=9");
    switch.vsctl("del-port p9");
    let text = monitored(&switch, "DEL: 9(p9)");
    assert!(text.contains("ADD: 9(p9)") && !text.contains("MOD: 9(p9)"), "{text}");
}

/// Starts a learning controller.
fn start_controller(switch: &Switch) {
    switch.run("ovs-testcontroller --detach --no-chdir --pidfile=controller.pid --unixctl=controller.ctl --log-file=controller.log -vconsole:off punix:controller.sock");
}

/// Waits until the bridge is connected to its controller.
fn wait_connected(switch: &Switch) {
    let up = wait_until(SOON, || {
        switch.appctl("time/warp 1000");
        switch.vsctl("get controller br0 is_connected") == "true\n"
    });
    assert!(up, "{}\n{}", switch.vsctl("list controller"), switch.story());
}

#[test]
fn an_active_controller_is_connected_and_shown() {
    let switch = Switch::dummy(2);
    start_controller(&switch);
    switch.vsctl("set-controller br0 unix:controller.sock");
    wait_connected(&switch);
    // The learning controller answers packet-ins with flows.
    switch.receive("p1", &crate::packets::arp("50:54:00:00:00:01", "ff:ff:ff:ff:ff:ff"));
    let flooded = wait_until(SOON, || switch.sent("p2").len() == 1);
    assert!(flooded, "{}", switch.story());
    assert_eq!(switch.vsctl("get controller br0 role"), "other\n");
}

#[test]
fn a_controller_that_is_away_is_tried_again() {
    let switch = Switch::dummy(1);
    switch.vsctl("set-controller br0 unix:controller.sock -- set controller br0 max_backoff=1000");
    assert_eq!(switch.vsctl("get controller br0 is_connected"), "false\n");
    start_controller(&switch);
    wait_connected(&switch);
}

#[test]
fn a_passive_controller_takes_several_connections() {
    let switch = Switch::dummy(1);
    switch.vsctl("set-controller br0 punix:$OVS_RUNDIR/br0.passive");
    let listens = wait_until(SOON, || switch.sh("ovs-ofctl show unix:br0.passive").ok());
    assert!(listens, "{}", switch.story());
    switch.run("for i in 1 2 3; do ovs-ofctl probe unix:br0.passive & done; wait");
}

/// How often the log says that the controller was connected to.
fn times_connected(switch: &Switch) -> usize {
    switch.log().matches("controller.sock: connected").count()
}

/// A learning controller that the bridge is connected to.
fn with_controller(switch: &Switch, settings: &str) {
    start_controller(switch);
    switch.vsctl(&format!(
        "set-controller br0 unix:controller.sock -- set controller br0 {settings}"
    ));
    wait_connected(switch);
}

#[test]
fn tuning_a_controller_keeps_its_connection() {
    let switch = Switch::dummy(1);
    with_controller(&switch, "max_backoff=2000");
    assert_eq!(times_connected(&switch), 1);
    switch.vsctl("set controller br0 max_backoff=3000 inactivity_probe=30000 controller_rate_limit=200 controller_burst_limit=50 enable_async_messages=false");
    switch.appctl("time/warp 2000 500");
    assert_eq!(switch.vsctl("get controller br0 is_connected"), "true\n");
    assert_eq!(times_connected(&switch), 1, "{}", switch.story());
    assert!(!switch.log().contains("removed primary controller"), "{}", switch.story());
}

#[test]
fn a_listener_is_there_after_every_change() {
    let switch = Switch::dummy(1);
    let port = free_port();
    switch.vsctl(&format!("set-controller br0 ptcp:{port}:127.0.0.1"));
    let listens = |version: &str| {
        wait_until(SOON, || {
            switch.sh(&format!("ovs-ofctl -O {version} show tcp:127.0.0.1:{port}")).ok()
        })
    };
    assert!(listens("OpenFlow10"), "{}", switch.story());
    switch.vsctl("set controller br0 inactivity_probe=10000");
    assert!(listens("OpenFlow10"), "{}", switch.story());
    switch.vsctl("set bridge br0 protocols=OpenFlow13");
    assert!(listens("OpenFlow13"), "{}", switch.story());
    assert!(!switch.sh(&format!("ovs-ofctl -O OpenFlow10 show tcp:127.0.0.1:{port}")).ok());
    switch
        .vsctl(&format!("clear bridge br0 protocols -- set-controller br0 ptcp:{port}:127.0.0.1"));
    assert!(listens("OpenFlow10"), "{}", switch.story());
}

/// Has a silent controller of a standalone bridge connect again after `silence` milliseconds.
/// Returns true when the bridge has failed open in between.
fn fails_open_meanwhile(switch: &Switch, probe: u32, silence: u32) -> bool {
    let opened = || switch.log().matches("failing open").count();
    let closed = || switch.log().matches("no longer in fail-open mode").count();
    switch.vsctl("set bridge br0 fail_mode=standalone");
    with_controller(switch, &format!("inactivity_probe={probe} max_backoff=1000"));
    switch.appctl(&format!("time/warp {silence} 1000"));
    assert!(wait_until(SOON, || opened() == closed()), "{}", switch.story());
    let opened_before = opened();
    let before = times_connected(switch);
    switch.appctl("bridge/reconnect br0");
    let again = wait_until(SOON, || {
        switch.appctl("time/warp 100 100");
        times_connected(switch) > before
    });
    assert!(again, "{}", switch.story());
    opened() > opened_before
}

#[test]
fn a_controller_that_reconnects_was_here_a_moment_ago() {
    let switch = Switch::dummy(2);
    assert!(!fails_open_meanwhile(&switch, 30_000, 20_000), "{}", switch.story());
}

#[test]
fn without_probes_a_bridge_fails_open_as_soon_as_its_controller_is_gone() {
    let switch = Switch::dummy(2);
    assert!(fails_open_meanwhile(&switch, 0, 60_000), "{}", switch.story());
}

#[test]
fn fail_mode_standalone_adds_the_normal_flow_when_the_controller_stays_away() {
    let switch = Switch::dummy(2);
    switch.vsctl("set bridge br0 fail_mode=standalone");
    switch.vsctl("set-controller br0 unix:nobody.sock");
    switch.appctl("time/warp 60000 1000");
    let text = switch.appctl("bridge/dump-flows br0");
    assert!(text.contains("NORMAL"), "{text}");
}

#[test]
fn ofproto_trace_shows_each_table() {
    let switch = Switch::dummy(2);
    switch.flows(
        "br0",
        "table=0,ip,actions=resubmit(,3)\ntable=3,priority=7,ip,nw_dst=10.0.0.0/8,actions=2",
    );
    let text = switch.appctl("ofproto/trace br0 in_port=1,ip,nw_dst=10.1.1.1");
    let expected = "\
Flow: ip,in_port=1,vlan_tci=0x0000,dl_src=00:00:00:00:00:00,dl_dst=00:00:00:00:00:00,nw_src=0.0.0.0,nw_dst=10.1.1.1,nw_proto=0,nw_tos=0,nw_ecn=0,nw_ttl=0,nw_frag=no

bridge(\"br0\")
-------------
 0. ip, priority 32768
    resubmit(,3)
 3. ip,nw_dst=10.0.0.0/8, priority 7
    output:2

Final flow: unchanged
Megaflow: recirc_id=0,eth,ip,in_port=1,nw_dst=10.0.0.0/8,nw_frag=no
Datapath actions: 2
";
    assert_eq!(text, expected);
}

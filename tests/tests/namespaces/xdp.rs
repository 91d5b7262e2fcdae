// SPDX-License-Identifier: Apache-2.0
//! XDP at veth pairs whose other ends are prepared for it, with frames longer than a page.

use crate::tools::{Numbered, SOON, bursts_of_new_flows, pair, sees, switch, tcp, warm};
use slipswitch_tests::harness::{
    Capture, Host, Switch, acquainted, skip, wait_until, without_tool,
};

/// Bytes after the Ethernet header.
const JUMBO: u32 = 9000;

/// Hosts at ports that are at XDP.
struct Jumbo {
    switch: Switch,
    hosts: Vec<Host>,
    /// A process in each host: by it the switch finds the other end of its port.
    _processes: Vec<Capture>,
}

/// Returns whether all ports are at XDP, and the tier report of each.
fn tiers(switch: &Switch, ports: &[&str]) -> (bool, Vec<String>) {
    let told: Vec<String> =
        ports.iter().map(|port| switch.appctl(&format!("slipswitch/tiers {port}"))).collect();
    let is_at_xdp = |text: &String| {
        text.lines().any(|line| line.trim_start().starts_with("xdp") && line.contains("yes"))
    };
    (told.iter().all(is_at_xdp), told)
}

/// Waits until all ports are at XDP.
#[track_caller]
pub fn at_xdp(switch: &Switch, ports: &[&str]) {
    let all = wait_until(SOON, || tiers(switch, ports).0);
    assert!(all, "not at XDP: {:?}", tiers(switch, ports).1);
}

/// Offloads that hosts leave to their devices, which XDP cannot carry out.
const WHOLE: &str = "tx off tso off gso off txvlan off tx-vlan-stag-hw-insert off";

/// Prepares the other ends of ports for XDP, and moves some of the ports there. The result has to
/// be kept: by processes in the hosts the switch finds the other ends.
pub fn prepare(switch: &Switch, hosts: &[&Host], ports: &[&str]) -> Vec<Capture> {
    let processes = hosts.iter().map(|host| {
        host.netns.sh(&format!("ethtool -K eth0 {WHOLE} gro on"));
        let name = format!("{}-process", host.name());
        Capture::start(&host.netns, switch.sandbox(), &name, "eth0", "tcp port 1")
    });
    let processes = processes.collect();
    for port in ports {
        switch.vsctl(&format!("set interface {port} other_config:tier=xdp"));
    }
    at_xdp(switch, ports);
    processes
}

/// A switch with two hosts whose ends are prepared for XDP, and processes there: by them the switch
/// finds the other ends of its ports. `None`, after saying so, where that cannot be.
pub fn prepared() -> Option<(Switch, Host, Host, Vec<Capture>)> {
    if without_tool(&["ethtool"]) {
        return None;
    }
    let (switch, a, b) = pair()?;
    let processes = prepare(&switch, &[&a, &b], &[]);
    warm(&a, "10.0.0.2");
    acquainted(&a, &b);
    Some((switch, a, b, processes))
}

/// Sets up this many hosts with jumbo frames. Prints the reason and returns `None` if it cannot.
fn jumbo(hosts: usize) -> Option<Jumbo> {
    if without_tool(&["ethtool"]) {
        return None;
    }
    let switch = switch()?;
    let hosts: Vec<Host> = (1..=hosts)
        .map(|i| switch.host_on("br0", &format!("h{i}"), &format!("10.0.0.{i}/24")))
        .collect();
    // Packets for the host itself do not run at XDP.
    switch.ofctl("mod-port br0 br0 no-flood");
    let process = |host: &Host| {
        let name = format!("{}-process", host.name());
        Capture::start(&host.netns, switch.sandbox(), &name, "eth0", "tcp port 1")
    };
    let processes: Vec<Capture> = hosts.iter().map(process).collect();
    let mut ports = Vec::new();
    for (i, host) in (1..).zip(&hosts) {
        host.netns.sh(&format!("ethtool -K eth0 {WHOLE} gro on; ip link set eth0 mtu {JUMBO}"));
        switch.netns().sh(&format!("ip link set h{i} mtu {JUMBO}"));
        switch.vsctl(&format!("set interface h{i} other_config:tier=xdp"));
        ports.push(format!("h{i}"));
    }
    let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
    if !wait_until(SOON, || tiers(&switch, &ports).0) {
        let (_, told) = tiers(&switch, &ports);
        // An older kernel refuses XDP at this MTU, and the switch says so.
        assert!(!datapath_bpf::load::have_frags(), "not at XDP: {told:?}");
        assert!(told.iter().all(|text| text.contains("driver-lacks-support")), "{told:?}");
        skip("this kernel does not redirect frames in several buffers");
        return None;
    }
    Some(Jumbo { switch, hosts, _processes: processes })
}

#[test]
fn jumbo_frames_go_by_xdp() {
    let Some(Jumbo { switch, hosts, _processes }) = jumbo(2) else { return };
    warm(&hosts[0], "10.0.0.2");
    assert_eq!(hosts[0].ping_whole("10.0.0.2", 20, 8900), 20);
    sees(&switch, &["in_port(h1)", "eth_type(0x0800)", "offloaded:yes, dp:xdp"]);
    tcp(&hosts[0], &hosts[1], 20_000_000);
    tcp(&hosts[1], &hosts[0], 20_000_000);
    // Receivers compute the sums of what was rewritten.
    let rewritten =
        "priority=9,ip,in_port=h1,actions=mod_nw_tos:32,dec_ttl,h2\npriority=1,actions=NORMAL";
    switch.flows("br0", rewritten);
    assert_eq!(hosts[0].ping_whole("10.0.0.2", 20, 8900), 20);
    tcp(&hosts[0], &hosts[1], 20_000_000);
    sees(&switch, &["in_port(h1)", "set(ipv4(", "offloaded:yes, dp:xdp"]);
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn the_first_packet_of_a_flow_is_neither_lost_nor_overtaken_at_xdp() {
    let Some((switch, a, b, _processes)) = prepared() else { return };
    for port in ["h1", "h2"] {
        switch.vsctl(&format!("set interface {port} other_config:tier=xdp"));
    }
    at_xdp(&switch, &["h1", "h2"]);
    warm(&a, "10.0.0.2");
    bursts_of_new_flows(&switch, &a, &b);
    sees(&switch, &["in_port(h1)", "udp(", "offloaded:yes, dp:xdp"]);
}

#[test]
fn a_flood_reaches_all_ports_from_xdp() {
    let Some(Jumbo { switch, hosts, _processes }) = jumbo(4) else { return };
    switch.flows("br0", "priority=1,actions=FLOOD");
    warm(&hosts[0], "10.0.0.2");
    sees(&switch, &["in_port(h1)", "eth_type(0x0800)", "offloaded:yes, dp:xdp"]);
    let captures: Vec<_> = hosts
        .iter()
        .skip(1)
        .map(|h| h.capture(switch.sandbox(), "eth0", "icmp[icmptype] == icmp-echo"))
        .collect();
    assert_eq!(hosts[0].ping("10.0.0.2", 20), 20);
    for capture in captures {
        assert_eq!(capture.finish(20, SOON).len(), 20);
    }
    // Copies of frames in several buffers are made at the skb hook.
    assert_eq!(hosts[0].ping_whole("10.0.0.2", 10, 8900), 10);
    // A port that is down takes no copy; the others do.
    switch.netns().sh("ip link set h3 down");
    assert_eq!(hosts[0].ping("10.0.0.2", 20), 20);
    switch.netns().sh("ip link set h3 up");
    assert!(hosts[0].reaches("10.0.0.3", SOON));
}

#[test]
fn an_other_end_that_gives_up_gro_is_left_at_once() {
    let Some((switch, a, b, _processes)) = prepared() else { return };
    switch.vsctl("set interface h1 other_config:tier=xdp");
    at_xdp(&switch, &["h1"]);
    let stream = Numbered::start(&a, &b);
    for _ in 0..3 {
        sees(&switch, &["in_port(h1)", "eth_type(0x0800)", "offloaded:yes, dp:xdp"]);
        b.netns.sh("ethtool -K eth0 gro off");
        sees(&switch, &["in_port(h1)", "eth_type(0x0800)", "dp:tcx", "unverified-peer"]);
        b.netns.sh("ethtool -K eth0 gro on");
    }
    sees(&switch, &["in_port(h1)", "eth_type(0x0800)", "offloaded:yes, dp:xdp"]);
    let counts = stream.finish();
    println!("{counts:?}");
    // Looking there now and then would cost some thousand.
    assert!(counts.lost <= 1000 && counts.twice == 0, "{counts:?}\n{}", switch.story());
}

/// The kernel's report on XDP at a device of the switch: "xdp" or "xdpgeneric", or nothing.
fn attached(switch: &Switch, device: &str) -> Option<&'static str> {
    let text = switch.netns().sh(&format!("ip -d link show {device}"));
    let words: Vec<&str> = text.split([' ', '/']).collect();
    ["xdpgeneric", "xdp"].into_iter().find(|mode| words.contains(mode))
}

#[test]
fn generic_xdp_is_used_where_it_is_asked_for() {
    let Some((mut switch, a, b, _processes)) = prepared() else { return };
    let ask = |switch: &Switch, mode: &str| {
        let setting = format!("other_config:tier=xdp other_config:xdp-mode={mode}");
        switch.vsctl(&format!("set interface h1 {setting}"));
    };
    let tiers = |switch: &Switch| switch.appctl("slipswitch/tiers h1");
    let says = |switch: &Switch, words: &str| {
        let said = wait_until(SOON, || tiers(switch).contains(words));
        assert!(said, "not {words:?} in {}", tiers(switch));
    };
    ask(&switch, "generic");
    says(&switch, "(other_config:xdp-mode=generic)");
    assert_eq!(attached(&switch, "h1"), Some("xdpgeneric"));
    warm(&a, "10.0.0.2");
    sees(&switch, &["in_port(h1)", "eth_type(0x0800)", "offloaded:yes, dp:xdp"]);
    assert_eq!(a.ping("10.0.0.2", 20), 20);
    tcp(&a, &b, 5_000_000);
    tcp(&b, &a, 5_000_000);
    sees(&switch, &["in_port(h1)", "eth_type(0x0800)", "offloaded:yes, dp:xdp"]);
    ask(&switch, "native");
    assert!(wait_until(SOON, || attached(&switch, "h1") == Some("xdp")), "{}", tiers(&switch));
    assert!(!tiers(&switch).contains("xdp-mode=generic"), "{}", tiers(&switch));
    // The next daemon does not keep a program that was attached in the other mode.
    switch.kill_daemon();
    switch.vsctl("--no-wait set interface h1 other_config:xdp-mode=generic");
    switch.start_daemon();
    let is_generic = || attached(&switch, "h1") == Some("xdpgeneric");
    assert!(wait_until(SOON, is_generic), "{}", switch.story());
    // It is attached before the other port and the rules are there.
    warm(&a, "10.0.0.2");
    assert_eq!(a.ping("10.0.0.2", 20), 20);
    // Packets that the kernel has put together would be too long for any port.
    switch.netns().sh("ethtool -K h1 gro on");
    says(&switch, "do ethtool -K DEVICE gro off");
    switch.netns().sh("ethtool -K h1 gro off");
    says(&switch, "(other_config:xdp-mode=generic)");
    ask(&switch, "fast");
    let error = || switch.vsctl("get interface h1 error");
    assert!(wait_until(SOON, || error().contains("native and generic")), "{}", error());
}

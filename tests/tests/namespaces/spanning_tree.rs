// SPDX-License-Identifier: Apache-2.0
//! Spanning trees of bridges in a ring, over veth pairs: no storm, and fail-over.

use crate::connectivity::linked;
use crate::tools::{SOON, switch};
use slipswitch_tests::harness::{Host, Switch, wait_until};
use std::time::Duration;

/// Time in which STP forwards again with the shortest delays.
const LATER: Duration = Duration::from_secs(40);

fn link(switch: &Switch, a: &str, b: &str) {
    switch.netns().sh(&format!("ip link add {a} type veth peer name {b}"));
    switch.netns().sh(&format!("ip link set {a} up && ip link set {b} up"));
}

/// Returns the number of ports of a bridge in a state.
fn count(switch: &Switch, bridge: &str, protocol: &str, state: &str) -> usize {
    switch.appctl(&format!("{protocol}/show {bridge}")).matches(state).count()
}

/// A broadcast comes back to nobody: each of ten ARP requests is seen once.
fn sees_no_storm(switch: &Switch, from: &Host, to: &Host) {
    let capture = to.capture(switch.sandbox(), "eth0", "arp and dst host 10.0.0.77");
    from.netns.sh("ip neigh flush all; ping -c 10 -i 0.1 -W 1 10.0.0.77 || true");
    let seen = capture.frames().len();
    assert!(seen <= 20, "{seen} copies of few requests");
}

#[test]
fn rapid_bridges_in_a_ring_lose_little_with_a_link() {
    let Some(switch) = switch() else { return };
    switch.vsctl("add-br br1 -- set bridge br1 datapath_type=netdev");
    switch.vsctl("add-br br2 -- set bridge br2 datapath_type=netdev");
    for bridge in ["br0", "br1", "br2"] {
        switch.vsctl(&format!("set bridge {bridge} rstp_enable=true"));
    }
    switch.vsctl("set bridge br0 other_config:rstp-priority=4096");
    for (n, (a, b)) in [("br0", "br1"), ("br1", "br2"), ("br2", "br0")].iter().enumerate() {
        link(&switch, &format!("v{n}"), &format!("w{n}"));
        switch.vsctl(&format!("add-port {a} v{n} -- add-port {b} w{n}"));
    }
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    let b = switch.host_on("br2", "h2", "10.0.0.2/24");
    let is_cut = || {
        let blocked = ["br1", "br2"].map(|bridge| count(&switch, bridge, "rstp", "Alternate"));
        blocked.iter().sum::<usize>() == 1
    };
    assert!(wait_until(SOON, is_cut), "{}", switch.appctl("rstp/show"));
    assert!(a.reaches("10.0.0.2", SOON));
    sees_no_storm(&switch, &a, &b);
    let pinging = a.pinging("10.0.0.2", 4);
    std::thread::sleep(Duration::from_secs(1));
    switch.netns().sh("ip link set v2 down");
    let echoes = pinging.join().expect("fping ran");
    let state = ["rstp/show", "fdb/show br0", "fdb/show br1", "fdb/show br2"];
    let state = state.map(|command| switch.appctl(command)).concat();
    assert!(echoes.lost() <= 10, "{} lost: {}\n{state}", echoes.lost(), echoes.said);
    assert!(
        count(&switch, "br2", "rstp", "Root       Forwarding") == 1,
        "{}",
        switch.appctl("rstp/show")
    );
    switch.netns().sh("ip link set v2 up");
    assert!(wait_until(SOON, is_cut), "{}", switch.appctl("rstp/show"));
    assert!(a.reaches("10.0.0.2", SOON));
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn a_ring_with_the_kernels_bridge() {
    let Some(switch) = switch() else { return };
    let made = switch.netns().sh(
        "ip link add kbr type bridge stp_state 1 forward_delay 400 max_age 600 hello_time 100 \
         && ip link set kbr up && echo made || true",
    );
    if !made.contains("made") {
        eprintln!("skipped: this kernel has no bridges");
        return;
    }
    switch.vsctl("add-br br1 -- set bridge br1 datapath_type=netdev");
    for bridge in ["br0", "br1"] {
        switch.vsctl(&format!(
            "set bridge {bridge} stp_enable=true other_config:stp-forward-delay=4 \
             other_config:stp-max-age=6 other_config:stp-hello-time=1"
        ));
    }
    switch.vsctl("set bridge br0 other_config:stp-priority=0x1000");
    for (n, (a, b)) in [("br0", "br1"), ("br1", "kbr"), ("kbr", "br0")].iter().enumerate() {
        link(&switch, &format!("v{n}"), &format!("w{n}"));
        for (bridge, port) in [(a, format!("v{n}")), (b, format!("w{n}"))] {
            match *bridge {
                "kbr" => _ = switch.netns().sh(&format!("ip link set {port} master kbr")),
                ours => _ = switch.vsctl(&format!("add-port {ours} {port}")),
            }
        }
    }
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    let b = switch.host_on("br1", "h2", "10.0.0.2/24");
    let root = switch.vsctl("get bridge br0 status:stp_bridge_id").trim().replace('"', "");
    // The kernel's bridge reaches the root by its own link; `ip` of some versions prints another root.
    let kernel = || switch.netns().sh("ip -d link show kbr");
    let is_root = || kernel().contains("root_path_cost 2 ");
    assert!(wait_until(LATER, is_root), "{} {root}", kernel());
    assert!(a.reaches("10.0.0.2", LATER), "{}", switch.appctl("stp/show"));
    let is_settled = || count(&switch, "br0", "stp", "forwarding") == 3;
    assert!(wait_until(LATER, is_settled), "{}", switch.appctl("stp/show"));
    sees_no_storm(&switch, &a, &b);
    // The direct link fails: the way by the kernel's bridge opens.
    switch.netns().sh("ip link set v0 down");
    assert!(a.reaches("10.0.0.2", LATER), "{}", switch.appctl("stp/show"));
    assert_eq!(
        switch.vsctl("get bridge br1 status:stp_designated_root").trim().replace('"', ""),
        root
    );
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

/// Slipswitch and Open vSwitch with two links between them agree on the root and on the link that is
/// cut, whichever of them is the root, and the other link takes over.
fn beside_open_vswitch(protocol: &str, settings: &str) {
    let Some((ours, real)) = linked() else { return };
    let a = ours.host_on("br0", "h1", "10.0.0.1/24");
    let b = real.host_on("br0", "h2", "10.0.0.2/24");
    for (switch, priority) in [(&ours, 32768), (&real, 4096)] {
        switch.vsctl(&format!(
            "set bridge br0 {protocol}_enable=true other_config:{protocol}-priority={priority} {settings}"
        ));
    }
    let other = real.netns().path().display().to_string();
    ours.netns()
        .sh(&format!("ip link add v2 type veth peer name w2 netns {other}; ip link set v2 up"));
    real.netns().sh("ip link set w2 up");
    ours.vsctl("add-port br0 v2");
    real.vsctl("add-port br0 w2");
    let show = |switch: &Switch| switch.appctl(&format!("{protocol}/show br0"));
    let both = || format!("{}{}", show(&ours), show(&real));
    let agrees = |root: &Switch, leaf: &Switch| {
        let (root, leaf) = (show(root).to_lowercase(), show(leaf).to_lowercase());
        root.contains("this bridge is the root")
            && root.matches("designated forwarding").count() == 3
            && leaf.matches("root       forwarding").count() == 1
            && leaf.matches("designated forwarding").count() == 1
            && leaf.matches("alternate").count() == 1
    };
    assert!(wait_until(LATER, || agrees(&real, &ours)), "{}", both());
    assert!(a.reaches("10.0.0.2", LATER), "{}", both());
    sees_no_storm(&ours, &a, &b);
    ours.vsctl(&format!("set bridge br0 other_config:{protocol}-priority=0"));
    assert!(wait_until(LATER, || agrees(&ours, &real)), "{}", both());
    assert!(a.reaches("10.0.0.2", LATER), "{}", both());
    sees_no_storm(&ours, &a, &b);
    // Open vSwitch's root port loses its link.
    let text = show(&real);
    let root_port = if text.contains("root-port       w2") { "v2" } else { "v" };
    ours.netns().sh(&format!("ip link set {root_port} down"));
    assert!(a.reaches("10.0.0.2", LATER), "{}", both());
    assert_eq!(ours.warnings(), Vec::<String>::new());
}

#[test]
fn stp_beside_open_vswitch() {
    beside_open_vswitch("stp", "other_config:stp-forward-delay=4 other_config:stp-max-age=6");
}

#[test]
fn rstp_beside_open_vswitch() {
    beside_open_vswitch("rstp", "");
}

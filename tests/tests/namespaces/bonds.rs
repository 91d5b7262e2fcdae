// SPDX-License-Identifier: Apache-2.0
//! Bonds between two bridges, over veth pairs: LACP, spreading, fail-over.

use crate::tools::{SOON, switch};
use slipswitch_tests::harness::{Host, Switch, wait_until};
use std::time::Duration;

/// A switch with bridges br0 and br1, a bond of two links between these, and a host on each bridge.
/// `settings` are those of both bonds' rows.
fn bonded(settings: &str) -> Option<(Switch, Host, Host)> {
    let switch = switch()?;
    for n in [0, 1] {
        switch.netns().sh(&format!("ip link add v{n} type veth peer name w{n}"));
        switch.netns().sh(&format!("ip link set v{n} up && ip link set w{n} up"));
    }
    switch.vsctl("add-br br1 -- set bridge br1 datapath_type=netdev");
    switch.vsctl(&format!(
        "add-bond br0 bond0 v0 v1 {settings} -- add-bond br1 bond1 w0 w1 {settings}"
    ));
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    let b = switch.host_on("br1", "h2", "10.0.0.2/24");
    Some((switch, a, b))
}

/// Waits until a text of a bond holds `part` this often.
#[track_caller]
fn shows(switch: &Switch, command: &str, part: &str, count: usize) {
    let is_so = wait_until(SOON, || switch.appctl(command).matches(part).count() == count);
    assert!(is_so, "not {count} times {part:?}:\n{}", switch.appctl(command));
}

#[test]
fn lacp_joins_two_switches_and_a_lost_link_loses_little() {
    let settings = "lacp=active bond_mode=balance-tcp other_config:lacp-time=fast";
    let Some((switch, a, _b)) = bonded(settings) else { return };
    for bond in ["bond0", "bond1"] {
        shows(&switch, &format!("lacp/show {bond}"), "current attached", 2);
        shows(&switch, &format!("bond/show {bond}"), ": enabled", 2);
    }
    let current = || switch.vsctl("get interface v0 lacp_current").trim() == "true";
    assert!(wait_until(SOON, current), "{}", switch.vsctl("list interface v0"));
    assert!(a.reaches("10.0.0.2", SOON));
    let pinging = a.pinging("10.0.0.2", 4);
    std::thread::sleep(Duration::from_secs(1));
    switch.netns().sh("ip link set v0 down");
    shows(&switch, "bond/show bond0", "v0: disabled", 1);
    let echoes = pinging.join().expect("fping ran");
    assert!(echoes.lost() <= 5, "{} lost: {}", echoes.lost(), echoes.said);
    switch.netns().sh("ip link set v0 up");
    shows(&switch, "lacp/show bond0", "current attached", 2);
    shows(&switch, "bond/show bond1", ": enabled", 2);
    assert_eq!(a.ping("10.0.0.2", 20), 20);
    let stats = switch.appctl("lacp/show-stats bond0");
    assert_eq!(stats.matches("RX Bad PDUs: 0\n").count(), 2, "{stats}");
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn an_slb_bond_loses_little_with_a_link() {
    let Some((switch, a, _b)) = bonded("bond_mode=balance-slb") else { return };
    shows(&switch, "bond/show bond0", ": enabled", 2);
    assert!(a.reaches("10.0.0.2", SOON));
    assert_eq!(a.ping("10.0.0.2", 20), 20, "no packet is sent back");
    let pinging = a.pinging("10.0.0.2", 4);
    for link in ["v0", "v1"] {
        std::thread::sleep(Duration::from_secs(1));
        switch.netns().sh(&format!("ip link set {link} down"));
        shows(&switch, "bond/show bond0", &format!("{link}: disabled"), 1);
        switch.netns().sh(&format!("ip link set {link} up"));
        shows(&switch, "bond/show bond0", ": enabled", 2);
    }
    let echoes = pinging.join().expect("fping ran");
    assert!(echoes.lost() <= 10, "{} lost: {}", echoes.lost(), echoes.said);
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

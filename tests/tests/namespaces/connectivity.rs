// SPDX-License-Identifier: Apache-2.0
//! Connectivity fault management between this switch and Open vSwitch, over a veth pair.

use crate::tools::{SOON, switch};
use slipswitch_tests::harness::{Capture, Kind, Mode, Switch, wait_until};

/// A switch with a port `v`, and Open vSwitch with a port `w`, which are two ends of a veth pair.
pub fn linked() -> Option<(Switch, Switch)> {
    let ours = switch()?;
    let real = Switch::start(Kind::RealOvs, Mode::Real);
    real.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
    let other = real.netns().path().display().to_string();
    ours.netns()
        .sh(&format!("ip link add v type veth peer name w netns {other}; ip link set v up"));
    real.netns().sh("ip link set w up");
    ours.vsctl("add-port br0 v");
    real.vsctl("add-port br0 w");
    Some((ours, real))
}

/// Waits until columns of an interface have these values.
#[track_caller]
fn has(switch: &Switch, columns: &str, values: &str) {
    let now = || switch.vsctl(&format!("get interface {columns}"));
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_so = wait_until(SOON, || words(&now()) == values);
    assert!(is_so, "{columns} is not {values}: {}", now());
}

#[test]
fn both_switches_find_each_other_and_the_loss() {
    let Some((ours, real)) = linked() else { return };
    let capture = Capture::start(ours.netns(), ours.sandbox(), "v", "v", "ether proto 0x8902");
    ours.vsctl("set interface v cfm_mpid=1 other_config:cfm_interval=100");
    real.vsctl("set interface w cfm_mpid=2 other_config:cfm_interval=100");
    let columns = "cfm_fault cfm_remote_mpids";
    has(&ours, &format!("v {columns}"), "false [2]");
    has(&real, &format!("w {columns}"), "false [1]");
    // Another program reads the messages.
    let parts =
        ["CFMv0 Continuity Check Message", "MA-End-Point-ID 0x0001", "MA-End-Point-ID 0x0002"];
    let is_read = wait_until(SOON, || parts.iter().all(|part| capture.text().contains(part)));
    assert!(is_read && !capture.text().contains("invalid"), "{}", capture.text());
    drop(capture);
    // The extension, with an interval that has no code.
    for (switch, interface) in [(&ours, "v"), (&real, "w")] {
        switch.vsctl(&format!(
            "set interface {interface} other_config:cfm_extended=true other_config:cfm_interval=150"
        ));
    }
    let columns = "cfm_fault cfm_remote_mpids cfm_remote_opstate";
    has(&ours, &format!("v {columns}"), "false [2] up");
    has(&real, &format!("w {columns}"), "false [1] up");
    ours.vsctl("set interface v other_config:cfm_opstate=down");
    has(&real, "w cfm_remote_opstate", "down");
    real.vsctl("clear interface w cfm_mpid");
    has(&ours, "v cfm_fault cfm_fault_status", "true [recv]");
}

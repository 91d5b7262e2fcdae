// SPDX-License-Identifier: Apache-2.0
//! BFD and LACP while rules are loaded and another port floods the switch.

use crate::tools::{MICROFLOWS, SOON, Scene};
use slipswitch_tests::harness::{Flood, stranger, wait_until};
use std::fmt::Write as _;
use std::time::Duration;

/// Rules that are loaded.
const RULES: u32 = 256 * 1024;

#[test]
fn sessions_stay_up_while_rules_are_loaded_and_a_port_floods() {
    let Some(scene) = Scene::new(MICROFLOWS) else { return };
    let switch = &scene.switch;
    for n in 0..3 {
        switch.netns().sh(&format!("ip link add v{n} type veth peer name w{n}"));
        switch.netns().sh(&format!("ip link set v{n} up && ip link set w{n} up"));
    }
    switch.vsctl(
        "add-br br1 -- set bridge br1 datapath_type=netdev \
         -- add-port br0 v0 -- add-port br1 w0 \
         -- set interface v0 bfd:enable=true bfd:min_rx=100 bfd:min_tx=100 \
         -- set interface w0 bfd:enable=true bfd:min_rx=100 bfd:min_tx=100",
    );
    for (bridge, bond, end) in [("br0", "bond0", "v"), ("br1", "bond1", "w")] {
        switch.vsctl(&format!(
            "add-bond {bridge} {bond} {end}1 {end}2 bond_mode=balance-slb lacp=active \
             other_config:lacp-time=fast"
        ));
    }
    let ends = ["v0", "w0"];
    let state = || {
        let sessions = ends.map(|end| switch.vsctl(&format!("get interface {end} bfd_status")));
        let bonds =
            ["bond0", "bond1"].map(|bond| switch.appctl(&format!("lacp/show-stats {bond}")));
        (sessions.concat(), bonds.concat())
    };
    let is_up = || {
        let lacp = ["bond0", "bond1"].map(|bond| switch.appctl(&format!("lacp/show {bond}")));
        state().0.matches("forwarding=\"true\"").count() == 2
            && lacp.concat().matches("current attached").count() == 4
    };
    assert!(wait_until(SOON, is_up), "{}{}", state().0, switch.appctl("lacp/show"));

    let path = switch.sandbox().file("rules");
    let mut rules = String::new();
    for n in 0..RULES {
        let [_, b, c, d] = n.to_be_bytes();
        writeln!(rules, "table=9,priority=10,ip,nw_dst=77.{b}.{c}.{d},actions=drop")
            .expect("a string takes all");
    }
    std::fs::write(&path, rules).expect("the sandbox is writable");
    let flood = Flood::start(&scene.attacker, 7, stranger);
    let before = counts(&state());
    let load = format!("ovs-ofctl add-flows br0 {}", path.display());
    switch.sh_limited(&load, Duration::from_secs(120));
    std::thread::sleep(Duration::from_secs(2));
    let sent = flood.sent();
    drop(flood);
    let rules = switch.ofctl("dump-aggregate br0 table=9");
    assert!(rules.contains(&format!("flow_count={RULES}")), "{rules}");
    let after = state();
    assert_eq!(counts(&after), before, "{sent} packets of the flood:\n{}{}", after.0, after.1);
    assert!(is_up());
}

/// The counts that a flap would change: those of sessions, and those of links in bonds.
fn counts((sessions, bonds): &(String, String)) -> Vec<String> {
    let flaps = sessions.split(['{', ',', '}']).filter(|pair| pair.contains("flap_count"));
    let expired =
        bonds.lines().filter(|line| line.contains("Expired") || line.contains("Defaulted"));
    flaps.chain(expired).map(|text| text.trim().to_owned()).collect()
}

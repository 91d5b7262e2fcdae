// SPDX-License-Identifier: Apache-2.0
//! Time: the clock stands until a test moves it.

use crate::packets::ip;
use slipswitch_tests::harness::Switch;

#[test]
fn a_hard_timeout_ends_a_flow() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "hard_timeout=10,ip,actions=2\narp,actions=2");
    switch.appctl("time/warp 9000");
    assert_eq!(switch.dump("br0").len(), 2);
    switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    switch.appctl("time/warp 2500");
    assert_eq!(switch.dump("--no-names br0"), ["arp actions=output:2"]);
}

#[test]
fn an_idle_timeout_counts_from_the_last_packet() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "idle_timeout=10,ip,actions=2\nidle_timeout=10,arp,actions=2");
    switch.appctl("time/warp 6000");
    switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    switch.appctl("time/warp 6000 1000");
    assert_eq!(switch.dump("--no-names br0"), ["idle_timeout=10, ip actions=output:2"]);
    switch.appctl("time/warp 10000 1000");
    assert_eq!(switch.dump("br0"), Vec::<String>::new());
}

#[test]
fn packets_on_an_installed_megaflow_keep_its_flow_alive() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "idle_timeout=3,ip,actions=2");
    for _ in 0..6 {
        switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
        switch.appctl("time/warp 2000 500");
    }
    assert_eq!(switch.counts("br0").0, 6);
}

#[test]
fn duration_follows_the_clock() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "ip,actions=2");
    switch.appctl("time/warp 7000");
    let text = switch.ofctl("dump-flows br0");
    assert!(text.contains("duration=7"), "{text}");
}

#[test]
fn a_mac_address_ages_out() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "actions=NORMAL");
    switch.vsctl("set bridge br0 other_config:mac-aging-time=15");
    switch.receive("p1", &crate::packets::arp("50:54:00:00:00:01", "ff:ff:ff:ff:ff:ff"));
    assert!(switch.appctl("fdb/show br0").contains("50:54:00:00:00:01"));
    switch.appctl("time/warp 20000 1000");
    assert_eq!(switch.appctl("fdb/show br0"), " port  VLAN  MAC                Age\n");
}

#[test]
fn an_unused_megaflow_goes_after_its_idle_time() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "ip,actions=2");
    switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    assert_eq!(switch.megaflows().len(), 1);
    switch.appctl("time/warp 12000 1000");
    switch.revalidate();
    assert_eq!(switch.megaflows().len(), 0);
}

#[test]
fn counts_outlive_their_megaflow() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "ip,actions=2");
    for _ in 0..4 {
        switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    }
    switch.appctl("time/warp 12000 1000");
    switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    switch.appctl("revalidator/purge");
    assert_eq!(switch.counts("br0").0, 5);
}

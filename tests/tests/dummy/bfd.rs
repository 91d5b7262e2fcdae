// SPDX-License-Identifier: Apache-2.0
//! BFD between two bridges that patch ports join.

use slipswitch_tests::harness::{Switch, wait_until};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);
/// A packet that is no control packet.
const DATA: &str = "90e2ba01475000101856b2e8080600010800060400010010\
                    1856b2e80202020300000000000002020202";

/// A switch whose port p9 of br0 leads to q9 of br1, with these settings of BFD.
fn joined(p9: &str, q9: &str) -> Switch {
    let switch = Switch::dummy(1);
    switch.vsctl(&format!(
        "add-br br1 -- set bridge br1 datapath_type=dummy \
         -- add-port br1 q9 -- set interface q9 type=patch options:peer=p9 ofport_request=2 {q9} \
         -- add-port br0 p9 -- set interface p9 type=patch options:peer=q9 ofport_request=9 {p9} \
         -- set open_vswitch . other_config:stats-update-interval=50000000"
    ));
    switch
}

/// The value of a line of `bfd/show`.
#[track_caller]
fn shown(switch: &Switch, port: &str, name: &str) -> String {
    let text = switch.appctl(&format!("bfd/show {port}"));
    let value = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
    value.unwrap_or_else(|| panic!("no {name}:\n{text}")).to_owned()
}

/// Lets time pass while packets arrive at p9.
fn receive_for(switch: &Switch, tenths: u32) {
    for _ in 0..tenths {
        switch.appctl("time/warp 100");
        switch.ofctl(&format!("packet-out br1 'in_port=LOCAL packet={DATA} actions=2'"));
    }
}

#[track_caller]
fn flaps(switch: &Switch, port: &str, count: &str) {
    let get = || switch.vsctl(&format!("get interface {port} bfd_status:flap_count"));
    let want = format!("\"{count}\"\n");
    assert!(wait_until(SOON, || get() == want), "{} is not {want}", get());
}

const FAST: &str = "bfd:enable=true bfd:min_tx=100 bfd:min_rx=100";

#[test]
fn flaps_are_counted_unless_forwarding_is_forced() {
    let switch = joined(FAST, FAST);
    let turn = |on: bool| {
        switch.vsctl(&format!("set interface q9 bfd:enable={on}"));
        switch.appctl("time/warp 5000 100");
    };
    switch.appctl("time/warp 10100 100");
    flaps(&switch, "p9", "1");
    flaps(&switch, "q9", "1");
    turn(false);
    assert_eq!(shown(&switch, "p9", "Local Diagnostic"), "Control Detection Time Expired");
    flaps(&switch, "p9", "2");
    turn(true);
    flaps(&switch, "p9", "3");
    flaps(&switch, "q9", "1");
    assert_eq!(switch.appctl("bfd/set-forwarding p9 true"), "OK\n");
    turn(false);
    assert_eq!(shown(&switch, "p9", "Forwarding"), "true");
    turn(true);
    flaps(&switch, "p9", "3");
    switch.appctl("bfd/set-forwarding p9 normal");
    turn(false);
    turn(true);
    flaps(&switch, "p9", "5");
}

#[test]
fn received_packets_keep_a_port_forwarding_for_a_while() {
    let switch = joined(&format!("{FAST} bfd:forwarding_if_rx=true"), FAST);
    switch.appctl("time/warp 5000 100");
    switch.vsctl("set interface q9 bfd:enable=false");
    receive_for(&switch, 40);
    assert_eq!(shown(&switch, "p9", "Local Session State"), "down");
    assert_eq!(shown(&switch, "p9", "Forwarding"), "true");
    flaps(&switch, "p9", "1");
    // No control packet within 100 intervals.
    switch.appctl("time/warp 12100 100");
    assert_eq!(shown(&switch, "p9", "Forwarding"), "false");
    receive_for(&switch, 20);
    assert_eq!(shown(&switch, "p9", "Forwarding"), "false");
    flaps(&switch, "p9", "2");
}

#[test]
fn an_idle_port_asks_for_fewer_packets() {
    let switch = joined(
        "bfd:enable=true bfd:min_tx=300 bfd:min_rx=300",
        "bfd:enable=true bfd:min_tx=500 bfd:min_rx=500",
    );
    switch.appctl("time/warp 10000 500");
    assert_eq!(shown(&switch, "p9", "RX Interval"), "Approx 500ms");
    switch.vsctl("set interface p9 bfd:decay_min_rx=3000");
    switch.appctl("time/warp 2000 500");
    assert_eq!(shown(&switch, "p9", "RX Interval"), "Approx 500ms");
    switch.appctl("time/warp 5000 500");
    assert_eq!(shown(&switch, "p9", "RX Interval"), "Approx 3000ms");
    receive_for(&switch, 50);
    assert_eq!(shown(&switch, "p9", "RX Interval"), "Approx 500ms");
    switch.vsctl("set interface p9 bfd:decay_min_rx=1000");
    switch.appctl("time/warp 10000 500");
    assert_eq!(shown(&switch, "p9", "RX Interval"), "Approx 1000ms");
    assert_eq!(shown(&switch, "p9", "Local Flags"), "none");
    flaps(&switch, "p9", "1");
}

#[test]
fn frames_have_the_addresses_of_the_settings_and_pass_no_table() {
    let switch = Switch::dummy(1);
    switch.flows("br0", "actions=drop");
    switch.vsctl("set interface p1 bfd:enable=true bfd:bfd_local_dst_mac=02:00:00:00:00:77");
    switch.appctl("time/warp 2000 100");
    let frames = switch.sent("p1");
    // One each second, and up to a quarter sooner.
    assert!((2..=4).contains(&frames.len()), "{frames:?}");
    for frame in &frames {
        assert_eq!(frame[..6], [2, 0, 0, 0, 0, 0x77]);
        assert_eq!(frame[12..16], [8, 0, 0x45, 0xc0]);
        assert_eq!((frame[22], &frame[26..34]), (255, &[169, 254, 1, 1, 169, 254, 1, 0][..]));
        assert_eq!(frame[36..38], [0x0e, 0xc8]);
    }
}

#[test]
fn a_port_is_not_live_until_the_other_end_answers() {
    let switch = joined(FAST, "");
    let live = || {
        let text = switch.ofctl("-O OpenFlow15 dump-ports-desc br0 p9");
        text.lines().any(|line| line.trim().starts_with("state:") && line.contains("LIVE"))
    };
    switch.appctl("time/warp 3000 100");
    assert!(!live());
    switch.vsctl(&format!("set interface q9 {FAST}"));
    switch.appctl("time/warp 3000 100");
    assert!(live());
    switch.vsctl("set interface q9 bfd:enable=false");
    switch.appctl("time/warp 1000 100");
    assert!(!live());
    // A port without BFD is live.
    switch.vsctl("clear interface p9 bfd");
    switch.appctl("time/warp 100 100");
    assert!(live());
}

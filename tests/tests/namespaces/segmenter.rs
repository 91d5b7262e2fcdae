// SPDX-License-Identifier: Apache-2.0
//! Devices that segment packets for tunnels whose headers have a checksum.

use crate::overlay::{Site, drops_nothing, inner, outer, sites, talk};
use crate::tools::{SOON, packets, sees, switch, tcp, udp_segments};
use slipswitch_tests::behaviour::frames::has_right_checksums;
use slipswitch_tests::harness::{Capture, Kind, Switch, skip, wait_until, without_tool};

const GENEVE: &str = "type=geneve options:key=100 options:csum=true";
const KINDS: [&str; 3] = [
    GENEVE,
    "type=vxlan options:key=100 options:csum=true",
    "type=gre options:key=100 options:csum=true",
];
/// Parts of the text of the megaflow that pushes headers.
const PUSHES: [&str; 4] = ["in_port(h1)", "eth_type(0x0800)", "tnl_push(tnl_port(", "dp:tcx"];

/// Returns the line about the devices; empty: no tunnel needs them.
fn line(switch: &Switch) -> String {
    let text = switch.appctl("slipswitch/tunnel-helpers");
    let found =
        text.lines().find_map(|line| line.strip_prefix("large packets that are segmented first: "));
    found.unwrap_or_default().to_owned()
}

/// Returns false, after saying so, when the switch makes no such devices on this kernel.
fn has_segmenter(switch: &Switch) -> bool {
    let text = line(switch);
    if text.contains("no module") {
        skip(&text);
        return false;
    }
    assert_eq!(text, "slipseg0, segments them");
    true
}

/// Returns the number of segments that the devices have made.
fn segments(switch: &Switch) -> u64 {
    let sent = switch.netns().sh("awk '$1 == \"slipseg0m:\" { print $11 }' /proc/net/dev");
    sent.trim().parse().expect("a number")
}

/// Two sites with a tunnel, whose flows run in the kernel; `None`, after saying so, where there can be none.
fn acquainted_sites(tunnel: &str) -> Option<[Site; 2]> {
    let [a, b] = sites([Kind::under_test(), Kind::under_test()], tunnel)?;
    if !has_segmenter(&a.switch) {
        return None;
    }
    talk(&a.host, &b.host);
    sees(&a.switch, &PUSHES);
    Some([a, b])
}

#[test]
fn large_packets_of_tunnels_with_checksums_stay_in_the_kernel() {
    for tunnel in KINDS {
        let Some([a, b]) = acquainted_sites(tunnel) else { return };
        let (made, pushed) = (segments(&a.switch), packets(&a.switch, &PUSHES));
        tcp(&a.host, &b.host, 20_000_000);
        assert!(segments(&a.switch) - made > 10_000, "{tunnel}: {}", segments(&a.switch) - made);
        // The flow counts packets as they arrived.
        let pushed = packets(&a.switch, &PUSHES) - pushed;
        assert!((200..10_000).contains(&pushed), "{tunnel}: {pushed}");
        assert_ne!(udp_segments(&a.host.netns, &b.host.netns, &inner(2)), Some(false), "{tunnel}");
        [&a, &b].into_iter().for_each(|site| drops_nothing(&site.switch));
        assert_eq!(a.switch.warnings(), [""; 0], "{tunnel}");
    }
}

/// Bytes of the outer headers.
const OUTER: usize = 50;

#[test]
fn segments_have_checksums_of_their_own() {
    if without_tool(&["ethtool"]) {
        return;
    }
    let Some([a, b]) = acquainted_sites(GENEVE) else { return };
    // A capture would show unfinished checksums.
    a.switch.netns().sh("ethtool -K u0 tx off");
    let made = segments(&a.switch);
    let filter = format!("udp port 6081 and src host {} and greater 1000", outer(1));
    let (netns, sandbox) = (a.switch.netns(), a.switch.sandbox());
    let capture = Capture::start(netns, sandbox, "outer", "u0", &filter);
    tcp(&a.host, &b.host, 4_000_000);
    let frames = capture.finish(1000, SOON);
    assert!(frames.len() >= 1000, "{}", frames.len());
    assert!(segments(&a.switch) - made > 2_000);
    for frame in &frames {
        assert!(frame.len() <= 1464, "{}", frame.len());
        assert!(has_right_checksums(frame) && frame[40..42] != [0, 0], "{frame:02x?}");
        assert!(has_right_checksums(&frame[OUTER..]), "{frame:02x?}");
    }
}

#[test]
fn the_devices_live_with_tunnels_that_have_checksums() {
    let Some(mut switch) = switch() else { return };
    switch.vsctl("add-port br0 t1 -- set interface t1 type=vxlan options:remote_ip=192.0.2.1");
    assert_eq!(line(&switch), "");
    switch.vsctl("set interface t1 options:csum=true");
    if !has_segmenter(&switch) {
        return;
    }
    let is_there = |switch: &Switch| switch.netns().run("ip link show slipseg0m").ok();
    switch.kill_daemon();
    assert!(is_there(&switch), "flows go on");
    switch.start_daemon();
    assert!(has_segmenter(&switch), "the next daemon goes on with it");
    switch.vsctl("set Open_vSwitch . other_config:tunnel-helper=false");
    assert_eq!((line(&switch), is_there(&switch)), (String::new(), false));
    switch.vsctl("remove Open_vSwitch . other_config tunnel-helper");
    assert!(has_segmenter(&switch));
    switch.netns().sh("ip link del slipseg0m");
    assert!(wait_until(SOON, || is_there(&switch)), "somebody has deleted it");
    switch.kill_daemon();
    switch.vsctl("--no-wait remove interface t1 options csum");
    switch.start_daemon();
    assert!(wait_until(SOON, || !is_there(&switch)), "no tunnel needs it");
    switch.vsctl("set interface t1 options:csum=true");
    assert!(has_segmenter(&switch));
    switch.appctl("exit --cleanup");
    assert_eq!(switch.wait_for_end(), Some(0));
    assert!(!is_there(&switch));
    assert_eq!(switch.warnings(), [""; 0]);
}

#[test]
fn flows_segment_while_the_daemon_is_away() {
    let Some([mut a, b]) = acquainted_sites(GENEVE) else { return };
    a.switch.kill_daemon();
    let made = segments(&a.switch);
    tcp(&a.host, &b.host, 4_000_000);
    assert!(segments(&a.switch) - made > 2_000);
}

// SPDX-License-Identifier: Apache-2.0
//! A port changes its tier in the midst of traffic: no packet arrives twice, hardly one is lost.

use crate::tools::{Numbered, SOON, pair, warm};
use crate::xdp::{at_xdp, prepared};
use slipswitch_tests::harness::{Host, Switch, acquainted};
use std::time::Duration;

/// Between two changes: some hundred packets, each way.
const PAUSE: Duration = Duration::from_millis(150);

/// Largest number of lost packets, of some 20,000. With tcx links none is lost. In an emulated
/// machine with clsact filters (Linux 6.1) 20 of 41,000 were lost, and 57 when the machine had
/// little CPU time.
const LOST: u64 = 100;

/// The fate of numbered packets in both directions during repeated runs of `change`.
#[track_caller]
fn through(switch: &Switch, a: &Host, b: &Host, turns: usize, change: impl Fn(usize)) -> u64 {
    let streams = [Numbered::start(a, b), Numbered::start(b, a)];
    for turn in 0..turns {
        std::thread::sleep(PAUSE);
        change(turn);
    }
    std::thread::sleep(PAUSE);
    let mut lost = 0;
    for stream in streams {
        let counts = stream.finish();
        println!("{counts:?}");
        assert_eq!(counts.twice, 0, "{counts:?}\n{}", switch.story());
        assert!(counts.sent > 200 * turns as u64 / 10, "{counts:?}");
        lost += counts.lost;
    }
    lost
}

#[test]
fn between_the_skb_hook_and_userspace_each_packet_arrives_once() {
    let Some((switch, a, b)) = pair() else { return };
    warm(&a, "10.0.0.2");
    acquainted(&a, &b);
    let lost = through(&switch, &a, &b, 40, |turn| {
        let tier = ["userspace", "tcx"][turn % 2];
        switch.vsctl(&format!("set interface h1 other_config:tier={tier}"));
    });
    assert!(lost <= LOST, "{lost} lost\n{}", switch.story());
    let lost = through(&switch, &a, &b, 10, |turn| {
        switch.vsctl(&format!("set Open_vSwitch . other_config:bpf-offload={}", turn % 2 == 1));
    });
    assert!(lost <= LOST, "{lost} lost\n{}", switch.story());
}

#[test]
fn a_daemon_that_comes_back_to_another_setting_takes_nothing_twice() {
    let Some((mut switch, a, b)) = pair() else { return };
    warm(&a, "10.0.0.2");
    acquainted(&a, &b);
    for tier in ["userspace", "tcx"] {
        let streams = [Numbered::start(&a, &b), Numbered::start(&b, &a)];
        std::thread::sleep(PAUSE);
        switch.kill_daemon();
        switch.vsctl(&format!("--no-wait set interface h1 other_config:tier={tier}"));
        switch.start_daemon();
        assert!(a.reaches("10.0.0.2", SOON));
        for stream in streams {
            let counts = stream.finish();
            assert_eq!(counts.twice, 0, "{tier}: {counts:?}\n{}", switch.story());
        }
    }
}

#[test]
fn to_and_from_xdp_each_packet_arrives_once() {
    let Some((switch, a, b, prepared)) = prepared() else { return };
    switch.vsctl("set interface h2 other_config:tier=xdp");
    at_xdp(&switch, &["h2"]);
    let lost = through(&switch, &a, &b, 30, |turn| {
        let tier = ["xdp", "tcx", "xdp", "userspace"][turn % 4];
        switch.vsctl(&format!("set interface h1 other_config:tier={tier}"));
    });
    // A veth's driver throws away what waits in its ring when a program comes or goes: 256 frames
    // at most, of each of 8 times.
    assert!(lost <= 100, "{lost} lost\n{}", switch.story());
    drop(prepared);
}

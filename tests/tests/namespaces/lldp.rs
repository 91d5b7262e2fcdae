// SPDX-License-Identifier: Apache-2.0
//! LLDP between this switch and Open vSwitch, over a veth pair, as another program reads it.

use crate::connectivity::linked;
use slipswitch_tests::harness::{Capture, Switch, wait_until};
use std::time::Duration;

/// How long an announcement may take: several intervals of five seconds, which Open vSwitch begins again
/// with each change of its configuration.
const ANNOUNCED: Duration = Duration::from_secs(40);

/// Waits until the neighbours of a switch hold all of `parts`.
#[track_caller]
fn has_neighbour(switch: &Switch, parts: &[&str]) {
    let status = || switch.appctl("autoattach/status");
    let is_so = wait_until(ANNOUNCED, || parts.iter().all(|part| status().contains(part)));
    assert!(is_so, "no neighbour with {parts:?}:\n{}", status());
}

#[test]
fn both_switches_announce_themselves_to_each_other() {
    let Some((ours, real)) = linked() else { return };
    let capture = Capture::start(ours.netns(), ours.sandbox(), "v", "v", "ether proto 0x88cc");
    for (switch, interface, name) in [(&ours, "v", "ours"), (&real, "w", "real")] {
        switch.vsctl(&format!("set interface {interface} lldp:enable=true"));
        switch.vsctl(&format!(
            "-- --id=@aa create AutoAttach system_name={name} system_description=is-{name} \
             mappings:100=10 -- set bridge br0 auto_attach=@aa"
        ));
    }
    has_neighbour(&ours, &["LLDP: v", "Descr: is-real"]);
    has_neighbour(&real, &["LLDP: w", "Descr: is-ours"]);
    for (switch, interface) in [(&ours, "v"), (&real, "w")] {
        let trunks = || switch.vsctl(&format!("get port {interface} trunks"));
        assert!(wait_until(ANNOUNCED, || trunks().trim() == "[10]"), "{}", trunks());
    }
    // Another program reads both alike.
    let of =
        |name: &str| capture.text().contains(&format!("System Name TLV (5), length 4: {name}"));
    assert!(wait_until(ANNOUNCED, || of("ours") && of("real")), "{}", capture.text());
    let text = capture.text();
    let parts = ["Subtype MAC address (4)", "Subtype Interface Name (5)", "TTL 120s"];
    for part in parts {
        let sent = text.matches("System Name TLV").count();
        assert_eq!(text.matches(part).count(), sent, "{part}: {text}");
    }
    assert!(!text.contains("malformed") && !text.contains("[|lldp]"), "{text}");
}

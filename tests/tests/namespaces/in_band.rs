// SPDX-License-Identifier: Apache-2.0
//! In-band control: a controller that is reached through the bridge that it controls.

use crate::tools::{SOON, switch};
use slipswitch_tests::harness::wait_until;
use std::net::TcpListener;
use std::time::Duration;

#[test]
fn a_controller_is_reached_through_a_bridge_without_rules() {
    let Some(switch) = switch() else { return };
    switch.vsctl("set-fail-mode br0 secure");
    let host = switch.host_on("br0", "h1", "10.0.0.9/24");
    switch.netns().sh("ip addr add 10.0.0.1/24 dev br0; ip link set br0 up");
    let listener =
        host.netns.with(|| TcpListener::bind("10.0.0.9:6653")).expect("an address of the host");
    listener.set_nonblocking(true).expect("a socket");
    let connects = |time| wait_until(time, || listener.accept().is_ok());
    let rules = || switch.appctl("bridge/dump-flows br0");
    let in_band = || rules().lines().filter(|line| line.contains("priority=18000")).count();

    switch.vsctl(
        "set-controller br0 tcp:10.0.0.9 -- \
         set controller br0 connection_mode=out-of-band max_backoff=1000",
    );
    assert!(!connects(Duration::from_secs(2)), "nothing lets packets through: {}", rules());
    assert_eq!(in_band(), 0);

    switch.vsctl("set controller br0 connection_mode=in-band");
    assert!(connects(SOON), "{}", rules());
    // Those of the next hop come once its address is known.
    assert!(wait_until(SOON, || in_band() == 9), "{}", rules());
    assert_eq!(host.ping("10.0.0.1", 2), 0, "only the controller's packets get through");
    switch.ofctl("del-flows br0");
    assert_eq!(in_band(), 9, "controllers do not remove them");
    assert!(!switch.ofctl("dump-flows br0").contains("priority=18000"), "and do not see them");

    switch.vsctl("set bridge br0 other_config:disable-in-band=true");
    assert!(wait_until(SOON, || in_band() == 0), "{}", rules());
    switch.vsctl("remove bridge br0 other_config disable-in-band");
    assert!(wait_until(SOON, || in_band() == 9), "{}", rules());
    // A manager is a remote, too.
    switch.vsctl("del-controller br0 -- set-manager tcp:10.0.0.9:6641");
    assert!(wait_until(SOON, || rules().contains("tp_dst=6641")), "{}", rules());
    assert!(!rules().contains("tp_dst=6653"), "{}", rules());
}

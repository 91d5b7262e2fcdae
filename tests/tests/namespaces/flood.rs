// SPDX-License-Identifier: Apache-2.0
//! One port that floods the switch with flows it has never seen, and its neighbours.

use crate::tools::{SOON, pair};
use slipswitch_tests::harness::{Flood, stranger, wait_until};
use std::time::Duration;

#[test]
fn two_ports_keep_pinging_while_a_third_floods_random_flows() {
    let Some((switch, a, b)) = pair() else { return };
    let c = switch.host_on("br0", "h3", "10.0.0.3/24");
    // Every packet of the flood is a flow of its own: its bucket hangs on all five of the tuple.
    switch.flows(
        "br0",
        "priority=10,udp,in_port=h3,actions=multipath(symmetric_l4,1,hrw,16,0,NXM_NX_REG0[])
         priority=1,actions=NORMAL",
    );
    assert!(a.reaches("10.0.0.2", SOON));
    let flood = Flood::start(&c, 7, stranger);
    std::thread::sleep(Duration::from_millis(500));
    let (there, back) = std::thread::scope(|scope| {
        let there = scope.spawn(|| a.ping("10.0.0.2", 150));
        let back = scope.spawn(|| b.ping("10.0.0.1", 150));
        // The two hosts need new flows now, and packet threads serve their misses in turn.
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(500));
            switch.appctl("revalidator/purge");
        }
        (there.join().expect("ping runs"), back.join().expect("ping runs"))
    });
    let flows = switch.appctl("upcall/show");
    wait_until(SOON, || flood.sent() > 5_000);
    let sent = flood.sent();
    drop(flood);
    assert!(sent > 5_000, "only {sent} packets of the flood");
    assert!(
        there >= 145 && back >= 145,
        "{there} and {back} of 150 answered during {sent} packets of the flood:\n{flows}"
    );
    // The switch recovers.
    assert_eq!(a.ping("10.0.0.2", 20), 20);
    assert!(switch.ofctl("dump-flows br0").contains("multipath"), "{}", switch.story());
}

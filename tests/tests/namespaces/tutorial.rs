// SPDX-License-Identifier: Apache-2.0
//! The walk-through of "Open vSwitch in NVIDIA BlueField SmartNIC".

use crate::tools::{SOON, switch, tcp};

#[test]
fn the_bluefield_tutorial_runs_as_printed() {
    let Some(switch) = switch() else { return };
    switch.vsctl("del-br br0");
    switch.vsctl("add-br ovsbr1");
    let a = switch.host_on("ovsbr1", "pf0hpf", "10.1.1.1/24");
    let b = switch.host_on("ovsbr1", "p0", "10.1.1.2/24");
    let shown = switch.vsctl("show");
    for text in ["Bridge ovsbr1", "Port pf0hpf", "Port p0"] {
        assert!(shown.contains(text), "{shown}");
    }

    let flows = switch.ofctl("dump-flows ovsbr1");
    assert!(flows.contains("priority=0 actions=NORMAL"), "{flows}");
    assert!(b.reaches("10.1.1.1", SOON));
    assert_eq!(b.ping("10.1.1.1", 5), 5);

    switch.ofctl("del-flows ovsbr1");
    assert!(!switch.ofctl("dump-flows ovsbr1").contains("cookie="));
    assert_eq!(b.ping("10.1.1.1", 3), 0);

    switch.ofctl("add-flow ovsbr1 ip,in_port=pf0hpf,actions=output:p0");
    switch.ofctl("add-flow ovsbr1 ip,in_port=p0,ip_dst=10.1.1.1,actions=output:pf0hpf");
    switch.ofctl("add-flow ovsbr1 arp,actions=FLOOD");
    for host in [&a, &b] {
        host.netns.sh("ip neigh flush all");
    }
    assert_eq!(b.ping("10.1.1.1", 5), 5);
    switch.revalidate();
    let flows = switch.ofctl("dump-flows ovsbr1");
    assert_eq!(flows.matches("n_packets=5, n_bytes=490,").count(), 2, "{flows}");
    let megaflows = switch.appctl("dpctl/dump-flows -m");
    assert!(
        megaflows.contains("in_port(p0)")
            && megaflows.contains("dp:")
            && megaflows.contains("actions:pf0hpf"),
        "{megaflows}"
    );
    tcp(&b, &a, 1_000_000);
}

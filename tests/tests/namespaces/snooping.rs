// SPDX-License-Identifier: Apache-2.0
//! Multicast snooping with hosts of the kernel, which send real reports.

use crate::tools::{SOON, megaflows, packets, sees, switch};
use slipswitch_tests::harness::{Host, Switch, wait_until};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

/// Returns a socket of a host, bound to a port, with the group joined by its address.
fn joined(host: &Host) -> UdpSocket {
    let address: Ipv4Addr = host.address().parse().expect("an IPv4 address");
    host.netns.with(move || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 5000)).expect("the port is free");
        socket.join_multicast_v4(&GROUP, &address).expect("it joins");
        socket.set_read_timeout(Some(SOON)).expect("not zero");
        socket
    })
}

/// Sends datagrams to the group.
fn send(from: &Host, count: usize) {
    let address: Ipv4Addr = from.address().parse().expect("an IPv4 address");
    from.netns.with(move || {
        let socket = UdpSocket::bind((address, 0)).expect("a free port");
        socket.connect((GROUP, 5000)).expect("there is a route");
        for _ in 0..count {
            socket.send(b"data").expect("it is sent");
        }
    });
}

/// Sends datagrams until their megaflow holds all of `parts`: the first ones teach the switch the
/// address of the host, after which earlier megaflows are replaced.
#[track_caller]
fn sends_until(switch: &Switch, from: &Host, parts: &[&str]) {
    let all = [&["in_port(h1)", "dst=239.1.2.3"], parts].concat();
    let is_there = wait_until(SOON, || {
        send(from, 1);
        !megaflows(switch, &all).is_empty()
    });
    assert!(is_there, "no megaflow with {all:?}:\n{}", megaflows(switch, &[]).join("\n"));
}

fn has_group(switch: &Switch) -> bool {
    switch.appctl("mdb/show br0").contains(&GROUP.to_string())
}

#[test]
fn datagrams_go_to_members_only_and_stay_in_the_kernel() {
    let Some(switch) = switch() else { return };
    switch.vsctl("set bridge br0 mcast_snooping_enable=true");
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    let b = switch.host_on("br0", "h2", "10.0.0.2/24");
    let c = switch.host_on("br0", "h3", "10.0.0.3/24");
    for host in [&a, &b, &c] {
        host.netns.sh("ip route add 239.0.0.0/8 dev eth0");
    }
    let member = joined(&b);
    assert!(wait_until(SOON, || has_group(&switch)), "{}", switch.appctl("mdb/show br0"));
    // A report is never a flow of a fast tier.
    sees(&switch, &["proto=2", "dp:userspace", "slow_path(action)"]);
    let capture = c.capture(switch.sandbox(), "eth0", "udp port 5000");
    sends_until(&switch, &a, &["dp:tcx", "actions:h2"]);
    let mut data = [0; 16];
    member.set_nonblocking(true).expect("it can be");
    while member.recv(&mut data).is_ok() {}
    member.set_nonblocking(false).expect("it can be");
    let in_userspace = packets(&switch, &["dst=239.1.2.3", "dp:userspace"]);
    send(&a, 20);
    for _ in 0..20 {
        assert_eq!(member.recv(&mut data).expect("it arrives"), 4);
    }
    assert_eq!(packets(&switch, &["dst=239.1.2.3", "dp:userspace"]), in_userspace);
    assert!(capture.finish(1, Duration::from_millis(300)).is_empty(), "no member");
    // Megaflows follow when the member leaves.
    drop(member);
    assert!(wait_until(SOON, || !has_group(&switch)), "{}", switch.appctl("mdb/show br0"));
    sends_until(&switch, &a, &["h3"]);
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

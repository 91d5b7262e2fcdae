// SPDX-License-Identifier: Apache-2.0
//! Mirrors: copies run where the packets run, are counted, and `ovs-tcpdump` shows them.

use crate::tools::{SOON, in_kernel, packets, sees, switch, warm};
use slipswitch_tests::harness::{Host, Switch, wait_until, without_tool};
use std::time::Duration;

/// Bytes of an Ethernet header, of an IPv4 one without options, and of an ICMP one.
const HEADERS: u32 = 14 + 20 + 8;

/// A switch with hosts a and b, and one that a mirror sends to.
fn watched() -> Option<(Switch, Host, Host, Host)> {
    let switch = switch()?;
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    let b = switch.host_on("br0", "h2", "10.0.0.2/24");
    let c = switch.host_on("br0", "h3", "10.0.0.3/24");
    Some((switch, a, b, c))
}

/// A number of the mirror's statistics.
fn statistic(switch: &Switch, key: &str) -> u64 {
    switch
        .sh(&format!("ovs-vsctl get mirror m statistics:{key}"))
        .stdout
        .trim()
        .parse()
        .unwrap_or(0)
}

#[test]
fn copies_are_made_in_the_kernel_and_counted() {
    let Some((switch, a, _b, c)) = watched() else { return };
    switch.vsctl("set open_vswitch . other_config:stats-update-interval=5000");
    switch.vsctl(
        "-- --id=@h1 get port h1 -- --id=@h3 get port h3 \
         -- --id=@m create mirror name=m select_src_port=@h1 select_dst_port=@h1 output_port=@h3 \
         -- set bridge br0 mirrors=@m",
    );
    warm(&a, "10.0.0.2");
    in_kernel(&switch, ["h1", "h2"]);
    sees(&switch, &["in_port(h1)", "eth_type(0x0800)", "offloaded:yes, dp:tcx", "actions:h3,h2"]);
    let capture = c.capture(switch.sandbox(), "eth0", "icmp");
    let in_userspace = packets(&switch, &["eth_type(0x0800)", "dp:userspace"]);
    assert_eq!(a.ping("10.0.0.2", 20), 20);
    let frames = capture.finish(40, SOON);
    assert_eq!(frames.len(), 40, "requests and replies, each once");
    assert_eq!(packets(&switch, &["eth_type(0x0800)", "dp:userspace"]), in_userspace);
    let is_counted = || statistic(&switch, "tx_packets") >= 40;
    assert!(wait_until(Duration::from_secs(30), is_counted), "the mirror's packets are counted");
    assert!(statistic(&switch, "tx_bytes") >= 40 * 98);
    // The port is reserved: what the host sends there is discarded.
    assert_eq!(c.ping("10.0.0.2", 2), 0);
    switch.vsctl("clear bridge br0 mirrors");
    assert!(c.reaches("10.0.0.2", SOON), "the port is one like others again");
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn copies_are_cut_off() {
    let Some((switch, a, _b, c)) = watched() else { return };
    switch.vsctl(
        "-- --id=@h1 get port h1 -- --id=@h3 get port h3 \
         -- --id=@m create mirror name=m select_src_port=@h1 output_port=@h3 snaplen=100 \
         -- set bridge br0 mirrors=@m",
    );
    warm(&a, "10.0.0.2");
    let capture = c.capture(switch.sandbox(), "eth0", "icmp and greater 100");
    assert_eq!(a.ping_whole("10.0.0.2", 10, 1000), 10, "the packets themselves are whole");
    let frames = capture.finish(10, SOON);
    assert_eq!(frames.len(), 10);
    for frame in frames {
        assert_eq!(frame.len(), 100);
        let length = u32::from(u16::from_be_bytes([frame[16], frame[17]]));
        assert_eq!(length, 1000 + HEADERS - 14, "its header has the length of the whole packet");
    }
}

#[test]
fn ovs_tcpdump_shows_the_packets_of_a_port() {
    let Some((switch, a, _b, _c)) = watched() else { return };
    if without_tool(&["ovs-tcpdump"]) {
        return;
    }
    warm(&a, "10.0.0.2");
    let before = switch.vsctl("list-ports br0");
    let socket = switch.sandbox().file("db.sock");
    let pings = a.pinging("10.0.0.2", 8);
    let shown = switch.sh_limited(
        &format!("ovs-tcpdump --db-sock unix:{} -i h1 -n -c 6 icmp", socket.display()),
        Duration::from_secs(20),
    );
    let _ = pings.join();
    let text = shown.text();
    assert!(text.matches("ICMP echo request").count() >= 2, "{text}");
    assert!(text.matches("ICMP echo reply").count() >= 2, "{text}");
    // The tool takes away what it has made.
    assert!(wait_until(SOON, || switch.vsctl("list-ports br0") == before));
    assert_eq!(switch.vsctl("get bridge br0 mirrors").trim(), "[]");
}

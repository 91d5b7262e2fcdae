// SPDX-License-Identifier: Apache-2.0
//! Quality of service: queues of the kernel's disciplines, with packets from each tier.

use crate::tools::{SOON, pair, sees, tcp, warm};
use crate::xdp;
use slipswitch_tests::harness::{Capture, Host, Process, Switch, skip, wait_until, without_tool};
use std::time::{Duration, Instant};

/// Bytes of a stream, and the rate of its queue in bits per second: 0.8 seconds.
const BYTES: usize = 2_000_000;
const RATE: u64 = 20_000_000;

/// Gives `h2` a queue with the number 1 and the rate [`RATE`]. False, after saying so, where the kernel
/// cannot.
fn has_queue(switch: &Switch) -> bool {
    switch.vsctl(&format!(
        "set port h2 qos=@q -- --id=@q create qos type=linux-htb other-config:max-rate=100000000 \
         queues:1=@one -- --id=@one create queue other-config:max-rate={RATE}"
    ));
    let error = switch.vsctl("get interface h2 error");
    if error.contains("module sch_htb") {
        skip(&error);
        return false;
    }
    assert_eq!(error.trim(), "[]");
    true
}

/// Packets and bytes that a queue of `h2` has sent.
fn sent(switch: &Switch, queue: u32) -> (u64, u64) {
    let text = switch.ofctl(&format!("queue-stats br0 h2 {queue}"));
    let number = |key: &str| -> u64 {
        let rest = text.split(key).nth(1).unwrap_or_default();
        rest.split(',').next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    (number("pkts="), number("bytes="))
}

/// Sends streams through the queue and past it. `tier` is where the flow to the queue has to run.
fn limits(switch: &Switch, a: &Host, b: &Host, tier: &str) {
    warm(a, "10.0.0.2");
    if !has_queue(switch) {
        return;
    }
    let started = Instant::now();
    tcp(a, b, BYTES);
    let free = started.elapsed();
    assert_eq!(sent(switch, 1), (0, 0));

    switch
        .flows("br0", "priority=9,ip,in_port=h1,actions=set_queue:1,h2\npriority=1,actions=NORMAL");
    a.ping("10.0.0.2", 5);
    sees(switch, &["in_port(h1)", "set(skb_priority(0x10002))", tier]);
    let before = sent(switch, 1).1;
    let started = Instant::now();
    tcp(a, b, BYTES);
    let limited = started.elapsed();
    // No stream is faster than its queue, on any machine; the burst is a packet.
    let least = Duration::from_secs_f64(BYTES as f64 * 8.0 / RATE as f64 * 0.95);
    assert!(limited >= least, "{limited:?}, and without the queue {free:?}");
    assert!(limited < least * 5, "{limited:?}, and without the queue {free:?}");
    let bytes = sent(switch, 1).1 - before;
    assert!(bytes > BYTES as u64, "{bytes}");

    // `pop_queue` and `enqueue`.
    switch.flows(
        "br0",
        "priority=9,ip,in_port=h1,actions=set_queue:1,pop_queue,h2\npriority=1,actions=NORMAL",
    );
    let before = (sent(switch, 0).0, sent(switch, 1).0);
    a.ping("10.0.0.2", 5);
    let after = (sent(switch, 0).0, sent(switch, 1).0);
    assert!(after.0 >= before.0 + 5 && after.1 == before.1, "{before:?} {after:?}");
    switch.flows("br0", "priority=9,ip,in_port=h1,actions=enqueue:h2:1\npriority=1,actions=NORMAL");
    a.ping("10.0.0.2", 5);
    assert!(sent(switch, 1).0 >= after.1 + 5);

    // Without QoS nothing remains.
    switch.vsctl("clear port h2 qos");
    assert!(!switch.netns().sh("tc qdisc show dev h2").contains("htb"));
    assert_eq!(switch.appctl("qos/show h2"), "QoS not configured on h2\n");
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn a_queue_limits_streams_from_the_skb_hook() {
    let Some((switch, a, b)) = pair() else { return };
    limits(&switch, &a, &b, "dp:tcx");
}

#[test]
fn a_queue_limits_streams_from_userspace() {
    let Some((switch, a, b)) = pair() else { return };
    switch.vsctl("set interface h1 other_config:tier=userspace");
    limits(&switch, &a, &b, "dp:userspace");
}

/// XDP would send past the queue. So the flow runs at the next tier, and says why.
#[test]
fn xdp_leaves_ports_with_queues_to_the_skb_hook() {
    let Some((switch, a, b, _processes)) = xdp::prepared() else { return };
    for port in ["h1", "h2"] {
        switch.vsctl(&format!("set interface {port} other_config:tier=xdp"));
    }
    xdp::at_xdp(&switch, &["h1", "h2"]);
    warm(&a, "10.0.0.2");
    sees(&switch, &["in_port(h1)", "eth_type(0x0800)", "dp:xdp"]);
    limits(&switch, &a, &b, "dp:tcx, reason:qos");
    // Without QoS the port is a target of XDP again.
    switch.flows("br0", "actions=NORMAL");
    warm(&a, "10.0.0.2");
    sees(&switch, &["in_port(h1)", "eth_type(0x0800)", "dp:xdp"]);
}

#[test]
fn a_queue_marks_its_packets() {
    let Some((switch, a, b)) = pair() else { return };
    warm(&a, "10.0.0.2");
    if !has_queue(&switch) {
        return;
    }
    switch.vsctl("set queue . dscp=12");
    switch.flows(
        "br0",
        "priority=9,icmp,in_port=h1,actions=set_queue:1,h2\npriority=1,actions=NORMAL",
    );
    let capture =
        Capture::start(&b.netns, switch.sandbox(), "marked", "eth0", "icmp and ip[1] = 48");
    a.ping("10.0.0.2", 5);
    assert!(!capture.finish(4, SOON).is_empty());
    let text = switch.traced("br0 in_port=h1,icmp");
    assert!(text.contains("set(ipv4(tos=0x30/0xfc))"), "{text}");
    assert!(text.contains("set(skb_priority(0x10002))"), "{text}");
}

#[test]
fn a_type_that_the_kernel_lacks_is_an_error_of_the_interface() {
    let Some((switch, _a, _b)) = pair() else { return };
    switch.vsctl("set port h2 qos=@q -- --id=@q create qos type=linux-nonsense");
    let error = switch.vsctl("get interface h2 error");
    assert!(error.contains("there is no type") && error.contains("linux-nonsense"), "{error}");
    assert_eq!(switch.warnings().len(), 1, "{:?}", switch.warnings());
    switch.vsctl("clear port h2 qos");
    assert_eq!(switch.vsctl("get interface h2 error").trim(), "[]");
}

/// A limit of the packets that the switch sends, which no tier of the kernel can keep.
#[test]
fn an_egress_policer_drops_in_userspace() {
    let Some((switch, a, _b)) = pair() else { return };
    warm(&a, "10.0.0.2");
    switch.vsctl(
        "set port h2 qos=@q -- --id=@q create qos type=egress-policer other-config:cir=1 \
         other-config:cbs=1000",
    );
    assert_eq!(switch.appctl("qos/show h2"), "QoS: h2 egress-policer\ncir: 1\ncbs: 1000\n");
    // An echo request has 84 bytes after its Ethernet header.
    let answered = a.ping("10.0.0.2", 30);
    assert!((5..=11).contains(&answered), "{answered}");
    assert!(switch.counter("datapath_drop_policing") >= 15);
    sees(&switch, &["in_port(h1)", "eth_type(0x0800)", "dp:userspace, reason:qos"]);
    switch.vsctl("clear port h2 qos");
    assert!(a.reaches("10.0.0.2", SOON));
}

/// Bits per second that arrive of a stream through `iperf3`, without its first two seconds.
fn stream(switch: &Switch, a: &Host, b: &Host, options: &str) -> f64 {
    let arguments = ["-s", "-1"];
    let _server = Process::start(switch.sandbox(), Some(&b.netns), "iperf3", "iperf3", &arguments);
    let listens = || b.netns.run("cat /proc/net/tcp6").stdout.contains(":1451 0000");
    assert!(wait_until(SOON, listens), "iperf3 does not listen");
    let text = a.netns.run(&format!("iperf3 -J -c 10.0.0.2 -O 2 -t 5 {options}")).stdout;
    let report: serde_json::Value = serde_json::from_str(&text).expect("it writes JSON");
    let sum = &report["end"]["sum_received"];
    sum["bits_per_second"].as_f64().unwrap_or_else(|| panic!("{text}"))
}

/// The limit of a port's packets, for datagrams and for the aggregates of TCP. `tier` is where the flow has
/// to run.
fn polices(switch: &Switch, a: &Host, b: &Host, tier: &str) {
    if without_tool(&["iperf3"]) {
        return;
    }
    switch.vsctl("set interface h1 ingress_policing_rate=50000 ingress_policing_burst=40000");
    warm(a, "10.0.0.2");
    sees(switch, &["in_port(h1)", "eth_type(0x0800)", tier]);
    let before = switch.counter("datapath_drop_policing");
    let udp = stream(switch, a, b, "-u -b 150M -l 1200");
    // Headers of Ethernet, IP and UDP are 42 bytes. A busy receiver loses some datagrams.
    let wire = udp * 1_242.0 / 1_200.0;
    assert!((45e6..53e6).contains(&wire), "{tier}: {wire} bits per second of UDP");
    assert!(switch.counter("datapath_drop_policing") > before + 1_000);
    let tcp = stream(switch, a, b, "") * 1_514.0 / 1_448.0;
    assert!((47e6..53e6).contains(&tcp), "{tier}: {tcp} bits per second of TCP");

    switch.vsctl("set interface h1 ingress_policing_rate=0");
    let before = switch.counter("datapath_drop_policing");
    let free = stream(switch, a, b, "-u -b 150M -l 1200");
    assert!(free > 100e6, "{free}");
    assert_eq!(switch.counter("datapath_drop_policing"), before);
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn ingress_policing_limits_streams_at_the_skb_hook() {
    let Some((switch, a, b)) = pair() else { return };
    polices(&switch, &a, &b, "dp:tcx");
}

#[test]
fn ingress_policing_limits_streams_in_userspace() {
    let Some((switch, a, b)) = pair() else { return };
    switch.vsctl("set interface h1 other_config:tier=userspace");
    polices(&switch, &a, &b, "dp:userspace");
}

/// XDP leaves the packets of a port with a limit to the skb hook, which counts each of them once.
#[test]
fn xdp_leaves_ports_with_limits_to_the_skb_hook() {
    let Some((switch, a, b, _processes)) = xdp::prepared() else { return };
    for port in ["h1", "h2"] {
        switch.vsctl(&format!("set interface {port} other_config:tier=xdp"));
    }
    xdp::at_xdp(&switch, &["h1", "h2"]);
    polices(&switch, &a, &b, "dp:tcx, reason:policing");
    warm(&a, "10.0.0.2");
    sees(&switch, &["in_port(h1)", "eth_type(0x0800)", "dp:xdp"]);
}

#[test]
fn ingress_policing_limits_packets() {
    let Some((switch, a, _b)) = pair() else { return };
    warm(&a, "10.0.0.2");
    if without_tool(&["fping"]) {
        return;
    }
    switch.vsctl("set interface h1 ingress_policing_kpkts_rate=1 ingress_policing_kpkts_burst=1");
    // A flood of more than 1,000 packets a second.
    let is_policed = || {
        let _ = a.netns.run("ping -f -c 5000 -w 2 -i 0.0001 10.0.0.2");
        switch.counter("datapath_drop_policing") > 100
    };
    assert!(wait_until(SOON, is_policed));
    switch.vsctl("set interface h1 ingress_policing_kpkts_rate=0");
    let before = switch.counter("datapath_drop_policing");
    assert_eq!(a.ping("10.0.0.2", 20), 20);
    assert_eq!(switch.counter("datapath_drop_policing"), before);
}

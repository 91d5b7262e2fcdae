// SPDX-License-Identifier: Apache-2.0
//! Traffic through the switch.

use crate::tools::{SOON, Stream, pair, sees, switch, tcp, tcp_to, udp};
use slipswitch_tests::harness::{Capture, skip, wait_until};
use std::time::Duration;

#[test]
fn ping_goes_both_ways() {
    let Some((_switch, a, b)) = pair() else { return };
    assert!(a.reaches("10.0.0.2", SOON));
    assert_eq!(a.ping("10.0.0.2", 20), 20);
    assert_eq!(b.ping("10.0.0.1", 20), 20);
}

#[test]
fn tcp_carries_bulk_data_unchanged() {
    let Some((switch, a, b)) = pair() else { return };
    tcp(&a, &b, 20_000_000);
    tcp(&b, &a, 20_000_000);
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn udp_of_every_length_arrives_fragments_too() {
    let Some((_switch, a, b)) = pair() else { return };
    assert!(a.reaches("10.0.0.2", SOON));
    assert_eq!(
        udp(&a, &b, &[0, 1, 17, 18, 1000, 1471, 1472, 1473, 5000, 20_000, 60_000]),
        [true; 11]
    );
}

#[test]
fn ipv6_works() {
    let Some(switch) = switch() else { return };
    let a = switch.host_on("br0", "h1", "fd00:1::1/64");
    let b = switch.host_on("br0", "h2", "fd00:1::2/64");
    assert!(a.reaches("fd00:1::2", SOON));
    tcp(&a, &b, 3_000_000);
    assert_eq!(udp(&b, &a, &[10, 1400, 4000]), [true; 3]);
    for port in ["h1", "h2"] {
        sees(&switch, &[&format!("in_port({port})"), "eth_type(0x86dd)", "offloaded:yes, dp:tcx"]);
    }
}

#[test]
fn hosts_on_one_vlan_talk_and_those_on_another_do_not() {
    let Some((switch, a, b)) = pair() else { return };
    let c = switch.host_on("br0", "h3", "10.0.0.3/24");
    switch.vsctl("set port h1 tag=10 -- set port h2 tag=10 -- set port h3 tag=20");
    assert!(a.reaches("10.0.0.2", SOON));
    tcp(&a, &b, 1_000_000);
    assert_eq!(a.ping("10.0.0.3", 2), 0);
    assert_eq!(c.ping("10.0.0.1", 2), 0);
}

#[test]
fn tagged_frames_cross_a_trunk_between_two_bridges() {
    let Some(switch) = switch() else { return };
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    let c = switch.host_on("br0", "h3", "10.0.0.3/24");
    switch.vsctl("add-br br1 -- set bridge br1 datapath_type=netdev");
    let b = switch.host_on("br1", "h2", "10.0.0.2/24");
    switch
        .netns()
        .sh("ip link add t0 type veth peer name t1; ip link set t0 up; ip link set t1 up");
    switch.vsctl("add-port br0 t0 -- add-port br1 t1 -- set port h1 tag=10 -- set port h2 tag=10 -- set port h3 tag=20");
    let capture = Capture::start(switch.netns(), switch.sandbox(), "trunk", "t1", "vlan 10");
    assert!(a.reaches("10.0.0.2", SOON));
    tcp(&a, &b, 5_000_000);
    tcp(&b, &a, 5_000_000);
    assert_eq!(udp(&a, &b, &[1, 1468, 1472, 9000]), [true; 4]);
    assert!(!capture.frames().is_empty(), "they carried the tag");
    sees(&switch, &["in_port(h1)", "push_vlan(vid=10", "offloaded:yes, dp:tcx"]);
    sees(&switch, &["in_port(t1)", "pop_vlan", "offloaded:yes, dp:tcx"]);
    assert_eq!(c.ping("10.0.0.2", 2), 0);
}

#[test]
fn labelled_frames_cross_a_trunk_between_two_bridges() {
    let Some(switch) = switch() else { return };
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    switch.vsctl("add-br br1 -- set bridge br1 datapath_type=netdev");
    let b = switch.host_on("br1", "h2", "10.0.0.2/24");
    switch.netns().sh("ip link add t0 mtu 1504 type veth peer name t1 mtu 1504
         ip link set t0 up; ip link set t1 up");
    switch.vsctl("add-port br0 t0 -- add-port br1 t1");
    for (bridge, host, trunk) in [("br0", "h1", "t0"), ("br1", "h2", "t1")] {
        let flows = format!(
            "priority=9,ip,in_port={host},actions=push_mpls:0x8847,set_field:77->mpls_label,{trunk}
             priority=9,mpls,in_port={trunk},actions=pop_mpls:0x0800,{host}
             priority=1,arp,actions=NORMAL"
        );
        switch.flows_by("OpenFlow13", bridge, &flows);
    }
    let capture = Capture::start(switch.netns(), switch.sandbox(), "trunk", "t1", "mpls 77");
    assert!(a.reaches("10.0.0.2", SOON));
    // Packets that are still to be segmented, too.
    tcp(&a, &b, 5_000_000);
    tcp(&b, &a, 5_000_000);
    assert_eq!(udp(&a, &b, &[1, 1472, 9000]), [true; 3]);
    assert!(!capture.frames().is_empty(), "they carried the label");
}

#[test]
fn a_vlan_device_of_a_host_reaches_an_access_port() {
    let Some((switch, a, b)) = pair() else { return };
    switch.vsctl("set port h1 tag=10");
    if !b.netns.run("ip link add link eth0 name eth0.10 type vlan id 10").ok() {
        return slipswitch_tests::harness::skip("this kernel has no VLAN devices");
    }
    b.netns
        .sh("ip addr flush dev eth0; ip link set eth0.10 up; ip addr add 10.0.0.2/24 dev eth0.10");
    assert!(a.reaches("10.0.0.2", SOON));
    tcp(&a, &b, 5_000_000);
    tcp(&b, &a, 5_000_000);
}

#[test]
fn an_internal_port_is_a_device_of_the_host() {
    let Some(switch) = switch() else { return };
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    switch.netns().sh("ip addr add 10.0.0.9/24 dev br0; ip link set br0 up");
    assert!(a.reaches("10.0.0.9", SOON));
    assert_eq!(a.ping("10.0.0.9", 5), 5);
    switch.vsctl("add-port br0 int0 -- set interface int0 type=internal");
    assert_eq!(switch.vsctl("get interface int0 error"), "[]\n");
    switch.netns().sh("ip link show int0");
}

#[test]
fn an_internal_port_carries_tcp_to_a_host() {
    let Some(switch) = switch() else { return };
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    switch.netns().sh("ip addr add 10.0.0.9/24 dev br0; ip link set br0 up");
    assert!(a.reaches("10.0.0.9", SOON));
    tcp_to(&a.netns, switch.netns(), "10.0.0.9", 5_000_000);
}

#[test]
fn patch_ports_join_two_bridges() {
    let Some((switch, a, _b)) = pair() else { return };
    switch.vsctl(
        "add-br br1 -- set bridge br1 datapath_type=netdev \
         -- add-port br0 pa -- set interface pa type=patch options:peer=pb \
         -- add-port br1 pb -- set interface pb type=patch options:peer=pa",
    );
    let c = switch.host_on("br1", "h3", "10.0.0.3/24");
    assert!(a.reaches("10.0.0.3", SOON));
    tcp(&a, &c, 3_000_000);
}

#[test]
fn two_bridges_are_apart() {
    let Some((switch, a, _b)) = pair() else { return };
    switch.vsctl("add-br br1 -- set bridge br1 datapath_type=netdev");
    let _c = switch.host_on("br1", "h3", "10.0.0.3/24");
    assert!(a.reaches("10.0.0.2", SOON));
    assert_eq!(a.ping("10.0.0.3", 2), 0);
}

#[test]
fn a_broadcast_reaches_every_port_once() {
    let Some(switch) = switch() else { return };
    let hosts: Vec<_> = (1..=6)
        .map(|i| switch.host_on("br0", &format!("h{i}"), &format!("10.0.0.{i}/24")))
        .collect();
    let [sender, receivers @ ..] = hosts.as_slice() else { unreachable!("six were made") };
    assert!(sender.reaches("10.0.0.6", SOON));
    let captures: Vec<Capture> =
        receivers.iter().map(|h| h.capture(switch.sandbox(), "eth0", "udp port 9")).collect();
    sender.netns.with(|| {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
        socket.set_broadcast(true).expect("allowed");
        for _ in 0..10 {
            socket.send_to(b"hello, everyone", "10.0.0.255:9").expect("sent");
        }
    });
    for capture in captures {
        assert_eq!(capture.finish(10, Duration::from_secs(3)).len(), 10);
    }
}

#[test]
fn checksums_are_whole_where_afxdp_hands_packets_out() {
    let Some(switch) = switch() else { return };
    if !switch.vsctl("get open_vswitch . iface_types").contains("afxdp") {
        return slipswitch_tests::harness::skip("this daemon has no afxdp ports");
    }
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    let b = switch.host("h2", "10.0.0.2/24");
    switch.vsctl("add-port br0 h2 -- set interface h2 type=afxdp");
    assert_eq!(switch.vsctl("get interface h2 error"), "[]\n");
    assert!(a.reaches("10.0.0.2", SOON), "{}", switch.story());
    let capture = b.capture(switch.sandbox(), "eth0", "src host 10.0.0.1");
    tcp(&a, &b, 2_000_000);
    assert_eq!(udp(&a, &b, &[1, 100, 1472]), [true; 3]);
    assert!(wait_until(SOON, || capture.frames().len() > 5));
    let text = capture.text();
    assert!(
        !text.contains("incorrect") && !text.contains("bad udp cksum"),
        "{}",
        text.lines()
            .filter(|l| l.contains("incorrect") || l.contains("bad"))
            .take(5)
            .collect::<Vec<_>>()
            .join("\n")
    );
}

#[test]
fn checksums_are_whole_at_the_receiver() {
    let Some((switch, a, b)) = pair() else { return };
    if slipswitch_tests::harness::without_tool(&["ethtool"]) {
        return;
    }
    // The sender's stack leaves checksums and segmentation to the devices. The last device before the
    // receiver does not offer them, so the kernel does that work by the offload data that the switch
    // set, and the capture has the frames of a wire. Later the sender's device does not offer them
    // either, and the switch has to correct finished checksums for the address that it rewrites.
    switch.netns().sh("ethtool -K h2 tx off");
    let address = a.netns.mac("eth0");
    b.netns.sh(&format!("ip neigh replace 10.0.0.77 lladdr {address} dev eth0"));
    let rewrite = "priority=10,ip,in_port=h1,nw_dst=10.0.0.2,actions=mod_nw_src:10.0.0.77,output:h2
         priority=10,ip,in_port=h2,nw_dst=10.0.0.77,actions=mod_nw_dst:10.0.0.1,output:h1
         priority=1,actions=NORMAL";
    for (name, flows, unfinished) in [
        ("plain", "actions=NORMAL", true),
        ("rewritten", rewrite, true),
        ("plain finished", "actions=NORMAL", false),
        ("rewritten finished", rewrite, false),
    ] {
        switch.ofctl("del-flows br0");
        switch.flows("br0", flows);
        a.netns.sh(&format!("ethtool -K eth0 tx {}", if unfinished { "on" } else { "off" }));
        assert!(a.reaches("10.0.0.2", SOON), "{name}: {}", switch.story());
        let source = if name.starts_with("plain") { "10.0.0.1" } else { "10.0.0.77" };
        let file = name.replace(' ', "-");
        let capture = Capture::start(
            &b.netns,
            switch.sandbox(),
            &file,
            "eth0",
            &format!("src host {source}"),
        );
        tcp(&a, &b, 300_000);
        assert_eq!(udp(&a, &b, &[1, 100, 1471, 1472]), [true; 4], "{name}");
        let of = |text: &str, part: &str| text.lines().filter(|l| l.contains(part)).count();
        assert!(
            wait_until(SOON, || of(&capture.text(), "udp sum ok") >= 4),
            "{name}: {}",
            capture.text()
        );
        let text = capture.text();
        let wrong: Vec<&str> = text
            .lines()
            .filter(|l| ["(incorrect", " bad ", "[bad "].iter().any(|word| l.contains(word)))
            .take(5)
            .collect();
        assert!(wrong.is_empty(), "{name}: {wrong:#?}");
        assert!(of(&text, "(correct)") > 5, "{name}: TCP was captured: {text}");
    }
}

#[test]
fn segments_in_a_tunnel_reach_a_device_that_takes_none() {
    let Some((switch, a, b)) = pair() else { return };
    if slipswitch_tests::harness::without_tool(&["ethtool"]) {
        return;
    }
    // In userspace a large segment does not know any more that it is in a tunnel, and the kernel
    // would not cut it for a device that takes none, but drop it.
    for port in ["h1", "h2"] {
        switch.vsctl(&format!("set interface {port} other_config:tier=userspace"));
        switch.netns().sh(&format!("ethtool -K {port} tx off"));
    }
    let retransmitted = || a.netns.snmp("Tcp", "RetransSegs");
    for sums in ["noudpcsum", "udpcsum"] {
        for (host, net, peer) in [(&a, 1, 2), (&b, 2, 1)] {
            let device = format!(
                "ip link add vx0 type vxlan id 7 dev eth0 local 10.0.0.{net} remote 10.0.0.{peer} dstport 4789 {sums}"
            );
            if !host.netns.run(&device).ok() {
                skip("this kernel has no VXLAN");
                return;
            }
            host.netns.sh(&format!("ip addr add 10.9.0.{net}/24 dev vx0; ip link set vx0 up"));
        }
        assert!(a.reaches("10.9.0.2", SOON), "{sums}: {}", switch.story());
        let before = retransmitted();
        tcp_to(&a.netns, &b.netns, "10.9.0.2", 3_000_000);
        let again = retransmitted() - before;
        // A loaded host loses some; without the segmentation it is most of them.
        assert!(again < 150, "{sums}: {again} segments of 2,200 were sent again");
        a.netns.sh("ip link del vx0");
        b.netns.sh("ip link del vx0");
    }
}

#[test]
fn rewritten_addresses_work_for_tcp() {
    let Some((switch, a, b)) = pair() else { return };
    // 10.0.0.1 sees 10.0.0.2 as 10.0.0.50.
    let address = b.netns.mac("eth0");
    a.netns.sh(&format!("ip neigh replace 10.0.0.50 lladdr {address} dev eth0"));
    switch.flows(
        "br0",
        "priority=10,ip,in_port=h1,nw_dst=10.0.0.50,actions=mod_nw_dst:10.0.0.2,output:h2
         priority=10,ip,in_port=h2,nw_dst=10.0.0.1,actions=mod_nw_src:10.0.0.50,output:h1
         priority=1,actions=NORMAL",
    );
    assert!(a.reaches("10.0.0.50", SOON));
    let mut stream = Stream::new(&a, &b, "10.0.0.2:7000", "10.0.0.50:7000");
    stream.write(3_000_000);
    assert_eq!(stream.finish(), 3_000_000);
}

#[test]
fn the_port_counters_agree_with_the_kernel() {
    let Some((switch, a, _b)) = pair() else { return };
    assert!(a.reaches("10.0.0.2", SOON));
    let (before, _) = switch.port_counts("br0", "h1");
    assert_eq!(a.ping("10.0.0.2", 50), 50);
    let (after, _) = switch.port_counts("br0", "h1");
    assert!(after - before >= 50 && after - before < 60, "{before} {after}");
}

#[test]
fn upcalls_are_counted_for_each_interface() {
    let Some((switch, a, _b)) = pair() else { return };
    assert!(a.reaches("10.0.0.2", SOON));
    let counted = |port: &str| {
        let text = switch.vsctl(&format!("get interface {port} statistics"));
        let (_, rest) = text.split_once("upcall_packets=").unwrap_or_default();
        rest.split([',', '}']).next().and_then(|digits| digits.parse::<u64>().ok())
    };
    let is_counted =
        wait_until(SOON, || ["h1", "h2"].iter().all(|port| counted(port).is_some_and(|n| n > 0)));
    assert!(is_counted, "{:?}, {:?}", counted("h1"), counted("h2"));
}

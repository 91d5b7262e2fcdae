// SPDX-License-Identifier: Apache-2.0
//! Where flows run: the fast tiers take what they can, and say why not otherwise.

use crate::tools::{
    SOON, Stream, bursts_of_new_flows, megaflows, packets, pair, sees, switch, tcp, tcp_to, udp,
    warm,
};
use packet::build::Frame;
use slipswitch_tests::harness::{Host, Switch, wait_until};
use std::net::Ipv4Addr;

/// Packets that are none of the test's: hosts ask for their neighbours again after some seconds,
/// which a slow machine takes.
const FEW: u64 = 6;

/// Packets that packet threads have received so far.
fn in_userspace(switch: &Switch) -> u64 {
    let text = switch.appctl("dpif-netdev/pmd-stats-show");
    text.lines()
        .filter_map(|l| l.trim().strip_prefix("packets received: "))
        .filter_map(|n| n.parse::<u64>().ok())
        .sum()
}

#[test]
fn what_was_seen_once_is_forwarded_in_the_kernel() {
    let Some((switch, a, b)) = pair() else { return };
    warm(&a, "10.0.0.2");
    sees(&switch, &["in_port(h1)", "eth_type(0x0800)", "offloaded:yes, dp:tcx"]);
    sees(&switch, &["in_port(h2)", "eth_type(0x0800)", "offloaded:yes, dp:tcx"]);
    let before = in_userspace(&switch);
    assert_eq!(a.ping("10.0.0.2", 50), 50);
    assert!(in_userspace(&switch) < before + FEW, "packets went through userspace");
    tcp(&a, &b, 20_000_000);
    tcp(&b, &a, 20_000_000);
    let counted = packets(&switch, &["in_port(h1)", "dp:tcx"]);
    assert!(counted >= 51, "{counted} packets counted");
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn the_first_packet_of_a_flow_is_neither_lost_nor_overtaken() {
    let Some((switch, a, b)) = pair() else { return };
    warm(&a, "10.0.0.2");
    bursts_of_new_flows(&switch, &a, &b);
    sees(&switch, &["in_port(h1)", "udp(", "offloaded:yes, dp:tcx"]);
}

#[test]
fn established_connections_stay_in_the_kernel() {
    let Some((switch, a, b)) = pair() else { return };
    switch.flows(
        "br0",
        "priority=10,ip,ct_state=-trk,actions=ct(table=1)
         priority=1,actions=NORMAL
         table=1,priority=10,ip,ct_state=+trk+new,in_port=h1,actions=ct(commit),h2
         table=1,priority=10,ip,ct_state=+trk+est,actions=NORMAL",
    );
    warm(&a, "10.0.0.2");
    sees(&switch, &["in_port(h1)", "recirc_id(0)", "ct", "offloaded:yes, dp:tcx"]);
    tcp(&a, &b, 1_000_000);
    let before = in_userspace(&switch);
    tcp(&a, &b, 40_000_000);
    let up = in_userspace(&switch) - before;
    assert!(up < 40, "{up} packets went through userspace");
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn rules_count_what_the_kernel_forwards() {
    let Some((switch, a, _b)) = pair() else { return };
    switch.flows("br0", "priority=10,icmp,in_port=h1,actions=h2\npriority=1,actions=NORMAL");
    warm(&a, "10.0.0.2");
    let (before, _) = switch.counts("br0 icmp");
    assert_eq!(a.ping("10.0.0.2", 30), 30);
    let mut last = (0, 0);
    let exact = wait_until(SOON, || {
        last = switch.counts("br0 icmp");
        last.0 == before + 30
    });
    assert!(exact, "{last:?} after {before}");
    assert_eq!(last.1, (before + 30) * 98);
}

#[test]
fn a_flow_that_needs_the_daemon_says_so() {
    let Some((switch, a, _b)) = pair() else { return };
    switch.flows(
        "br0",
        "priority=10,icmp,in_port=h1,actions=controller,h2\npriority=1,actions=NORMAL",
    );
    warm(&a, "10.0.0.2");
    sees(&switch, &["in_port(h1)", "offloaded:no, dp:userspace", "needs-userspace"]);
    sees(&switch, &["in_port(h2)", "offloaded:yes, dp:tcx"]);
    let fast = switch.appctl("dpctl/dump-flows -m type=xdp,tcx");
    assert!(fast.contains("dp:tcx") && !fast.contains("dp:userspace"), "{fast}");
    let rest = switch.appctl("dpctl/dump-flows -m type=userspace");
    assert!(rest.contains("dp:userspace") && !rest.contains("dp:tcx"), "{rest}");
    // BPF is the datapath in the kernel, not a card's hardware.
    for own in ["ovs", "non-offloaded"] {
        let own = switch.appctl(&format!("dpctl/dump-flows -m type={own}"));
        assert!(own.contains("dp:userspace") && own.contains("dp:tcx"), "{own}");
    }
    assert_eq!(switch.appctl("dpctl/dump-flows -m type=offloaded"), "");
    let stats = switch.appctl("dpctl/offload-stats-show");
    assert!(stats.contains("tcx") && stats.contains("needs-userspace"), "{stats}");
    assert!(switch.counter("dpif_flow_offload_needs_userspace") >= 1);
}

#[test]
fn offload_is_switched_off_and_on_while_packets_flow() {
    let Some((switch, a, _b)) = pair() else { return };
    warm(&a, "10.0.0.2");
    sees(&switch, &["in_port(h1)", "dp:tcx"]);
    let load = a.pinging("10.0.0.2", 4);
    switch.vsctl("set open_vswitch . other_config:bpf-offload=false");
    sees(&switch, &["in_port(h1)", "offloaded:no, dp:userspace", "tier-disabled"]);
    assert!(megaflows(&switch, &["dp:tcx"]).is_empty());
    switch.vsctl("set open_vswitch . other_config:bpf-offload=true");
    sees(&switch, &["in_port(h1)", "dp:tcx"]);
    let echoes = load.join().expect("fping runs");
    // Clsact filters (before Linux 6.6) lose one or another.
    let lost = if switch.log().contains("no tcx links") { 5 } else { 0 };
    assert!(echoes.lost() <= lost, "{}", echoes.said);
}

#[test]
fn without_the_miss_device_packets_go_on_in_userspace() {
    let Some((switch, a, b)) = pair() else { return };
    warm(&a, "10.0.0.2");
    sees(&switch, &["in_port(h1)", "dp:tcx"]);
    switch.netns().sh("ip link del $(ip -o link | grep -o 'slipmiss[0-9]*' | head -n 1)");
    sees(&switch, &["in_port(h1)", "offloaded:no, dp:userspace", "tier-unavailable"]);
    assert!(a.reaches("10.0.0.2", SOON), "{}", switch.story());
    tcp(&a, &b, 1_000_000); // which is a new flow
    assert!(switch.log().contains("the device for packets without a flow is gone"));
}

#[test]
fn an_interface_can_be_kept_in_userspace() {
    let Some((switch, a, b)) = pair() else { return };
    switch.vsctl("set interface h1 other_config:tier=userspace");
    warm(&a, "10.0.0.2");
    sees(&switch, &["in_port(h1)", "offloaded:no, dp:userspace", "tier-setting"]);
    sees(&switch, &["in_port(h2)", "dp:tcx"]);
    tcp(&a, &b, 1_000_000);
    switch.vsctl("remove interface h1 other_config tier");
    warm(&a, "10.0.0.2");
    sees(&switch, &["in_port(h1)", "dp:tcx"]);
    switch.vsctl("set interface h1 other_config:tier=fast");
    let error = || switch.vsctl("get interface h1 error");
    assert!(
        wait_until(SOON, || error().contains("auto, tc, xdp, tcx and userspace")),
        "{}",
        error()
    );
}

#[test]
fn xdp_is_never_chosen_where_the_kernel_would_drop_the_redirect() {
    let Some((switch, a, b)) = pair() else { return };
    switch
        .vsctl("set interface h1 other_config:tier=xdp -- set interface h2 other_config:tier=xdp");
    warm(&a, "10.0.0.2");
    assert_eq!(a.ping("10.0.0.2", 20), 20);
    tcp(&a, &b, 5_000_000);
    tcp(&b, &a, 5_000_000);
    sees(&switch, &["in_port(h1)", "dp:tcx", "unverified-peer"]);
}

#[test]
fn the_hosts_own_stack_is_reached_without_the_tap() {
    let Some(switch) = switch() else { return };
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    switch.netns().sh("ip addr add 10.0.0.9/24 dev br0; ip link set br0 up");
    warm(&a, "10.0.0.9");
    sees(&switch, &["in_port(h1)", "eth_type(0x0800)", "offloaded:yes, dp:tcx"]);
    sees(&switch, &["in_port(br0)", "eth_type(0x0800)", "offloaded:yes, dp:tcx"]);
    let before = in_userspace(&switch);
    assert_eq!(a.ping("10.0.0.9", 30), 30);
    assert!(in_userspace(&switch) < before + FEW, "packets went through the tap");
    tcp_to(&a.netns, switch.netns(), "10.0.0.9", 10_000_000);
    tcp_to(switch.netns(), &a.netns, "10.0.0.1", 10_000_000);
    let (rx, tx) = switch.port_counts("br0", "LOCAL");
    assert!(rx >= 31 && tx >= 31, "the port counts: rx {rx}, tx {tx}");
}

#[test]
fn a_flood_reaches_five_ports_from_the_kernel() {
    let Some(switch) = switch() else { return };
    let hosts: Vec<Host> = (1..=6)
        .map(|i| switch.host_on("br0", &format!("h{i}"), &format!("10.0.0.{i}/24")))
        .collect();
    switch.flows("br0", "priority=1,actions=FLOOD");
    warm(&hosts[0], "10.0.0.2");
    let captures: Vec<_> = hosts
        .iter()
        .skip(1)
        .map(|h| h.capture(switch.sandbox(), "eth0", "icmp[icmptype] == icmp-echo"))
        .collect();
    let before = in_userspace(&switch);
    assert_eq!(hosts[0].ping("10.0.0.2", 20), 20);
    for capture in captures {
        assert_eq!(capture.finish(20, SOON).len(), 20);
    }
    assert!(in_userspace(&switch) < before + FEW, "copies were made in userspace");
    sees(&switch, &["in_port(h1)", "offloaded:yes, dp:tcx"]);
}

/// Checks the checksums of a captured IPv4 frame: the header's, and that of TCP or UDP, which
/// may still be unfinished (the sum of its pseudo header).
fn checksums_are_right(frame: &[u8]) -> bool {
    let Some(ip) = frame.get(14..) else { return false };
    let sum = |bytes: &[u8], start: u32| {
        let words =
            bytes.chunks(2).map(|c| u32::from(c[0]) << 8 | c.get(1).map_or(0, |b| u32::from(*b)));
        let mut sum = words.fold(start, |a, b| a + b);
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum
    };
    let header = usize::from(ip[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    if sum(&ip[..header], 0) != 0xffff {
        return false;
    }
    let segment = &ip[header..total];
    let pseudo = sum(&ip[12..20], u32::from(ip[9]) + segment.len() as u32);
    let at = if ip[9] == 6 { 16 } else { 6 };
    let field = u32::from(u16::from_be_bytes([segment[at], segment[at + 1]]));
    sum(segment, pseudo) == 0xffff || field == pseudo
}

#[test]
fn rewritten_packets_have_right_checksums_at_the_receiver() {
    let Some((switch, a, b)) = pair() else { return };
    // 10.0.0.9:8000 is 10.0.0.2:7000, both ways; TTL and ToS change too.
    let (mac_a, mac_b) = (a.netns.mac("eth0"), b.netns.mac("eth0"));
    switch.flows(
        "br0",
        &format!(
            "priority=20,ip,in_port=h1,nw_dst=10.0.0.9,tcp,tcp_dst=8000,actions=mod_dl_dst:{mac_b},mod_nw_dst:10.0.0.2,mod_tp_dst:7000,mod_nw_tos:32,dec_ttl,h2
             priority=20,ip,in_port=h2,tcp,tcp_src=7000,actions=mod_dl_dst:{mac_a},mod_nw_src:10.0.0.9,mod_tp_src:8000,h1
             priority=1,actions=NORMAL"
        ),
    );
    a.netns.sh(&format!("ip neigh replace 10.0.0.9 lladdr {mac_b} dev eth0"));
    warm(&a, "10.0.0.2");
    let capture = b.capture(switch.sandbox(), "eth0", "tcp port 7000");
    let back = a.capture(switch.sandbox(), "eth0", "tcp port 8000");
    let mut stream = Stream::new(&a, &b, "10.0.0.2:7000", "10.0.0.9:8000");
    stream.write(3_000_000);
    assert_eq!(stream.finish(), 3_000_000);
    sees(&switch, &["in_port(h1)", "dst=10.0.0.9", "offloaded:yes, dp:tcx"]);
    let frames: Vec<Vec<u8>> = [capture.finish(10, SOON), back.finish(10, SOON)].concat();
    assert!(frames.len() > 20);
    // GSO frames are captured whole.
    let wrong: Vec<&Vec<u8>> = frames.iter().filter(|f| !checksums_are_right(f)).collect();
    assert!(wrong.is_empty(), "{} of {} frames, first {:x?}", wrong.len(), frames.len(), wrong[0]);
}

#[test]
fn fragments_and_all_lengths_go_through_the_kernel() {
    let Some((_switch, a, b)) = pair() else { return };
    warm(&a, "10.0.0.2");
    let lengths = [0, 1, 17, 18, 1000, 1471, 1472, 1473, 5000, 20_000, 60_000];
    assert_eq!(udp(&a, &b, &lengths), [true; 11]);
    assert_eq!(udp(&b, &a, &lengths), [true; 11]);
}

#[test]
fn a_frame_longer_than_the_mtu_is_dropped_and_counted() {
    let Some((switch, a, b)) = pair() else { return };
    warm(&a, "10.0.0.2");
    // The sender's end takes more than the receiver's.
    a.netns.sh("ip link set eth0 mtu 4000");
    switch.netns().sh("ip link set h1 mtu 4000");
    let dropped = || switch.counter("datapath_drop_output_too_long");
    let before = dropped();
    let frame = Frame::ethernet([2, 0, 0, 0, 0, 1], [0xff; 6])
        .ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 64)
        .udp(1, 2)
        .payload(&[0; 3000])
        .finish();
    a.netns.with(move || {
        let device =
            netdev::open(&netdev::OpenSpec::new("eth0", netdev::Kind::System)).expect("its device");
        for _ in 0..20 {
            assert_eq!(device.sender.send(&[packet::Packet::from_slice(&frame)]).sent, 1);
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    });
    assert!(wait_until(SOON, || dropped() >= before + 20), "{} of 20", dropped() - before);
    assert_eq!(b.ping("10.0.0.1", 3), 3);
}

#[test]
fn the_kernel_counts_as_many_tags_as_translation_does() {
    let Some((switch, a, b)) = pair() else { return };
    // By default (other_config:vlan-limit) only one tag is parsed. After it, a second tag is no IP
    // packet.
    switch.flows("br0", "priority=10,in_port=h1,dl_vlan=10,ip,actions=h2\npriority=0,actions=drop");
    let tagged = |tags: &[u16]| {
        let mut frame = Frame::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        for tag in tags {
            frame = frame.vlan(0x8100, *tag);
        }
        let frame = frame
            .ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 64)
            .udp(1, 2)
            .payload(&[0; 50]);
        packet::Packet::from_slice(&frame.finish())
    };
    let (one, two) = (tagged(&[10]), tagged(&[10, 20]));
    let send = |packet: &packet::Packet, count: usize| {
        let packet = packet.clone();
        a.netns.with(move || {
            let device = netdev::open(&netdev::OpenSpec::new("eth0", netdev::Kind::System))
                .expect("its device");
            for _ in 0..count {
                assert_eq!(device.sender.send(std::slice::from_ref(&packet)).sent, 1);
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
    };
    send(&one, 10);
    sees(&switch, &["in_port(h1)", "vlan(vid=10", "eth_type(0x0800)", "offloaded:yes, dp:tcx"]);
    let capture = b.capture(switch.sandbox(), "eth0", "vlan");
    send(&two, 20);
    send(&one, 5);
    let frames = capture.finish(5, SOON);
    let inner = |f: &Vec<u8>| f.get(16..18).map(<[u8]>::to_vec);
    assert_eq!(frames.len(), 5, "{frames:x?}");
    assert!(frames.iter().all(|f| inner(f) == Some(vec![8, 0])), "{frames:x?}");
    // With a limit of two, IPv4 after two tags is IPv4, at once and in the kernel, too.
    switch.vsctl("set open_vswitch . other_config:vlan-limit=2");
    let capture = b.capture(switch.sandbox(), "eth0", "vlan");
    send(&two, 20);
    assert_eq!(capture.finish(20, SOON).len(), 20);
    sees(&switch, &["in_port(h1)", "vlan(vid=10", "eth_type(0x0800)", "offloaded:yes, dp:tcx"]);
    // And back.
    switch.vsctl("remove open_vswitch . other_config vlan-limit");
    let capture = b.capture(switch.sandbox(), "eth0", "vlan");
    send(&two, 20);
    send(&one, 10);
    assert_eq!(capture.finish(10, SOON).len(), 10);
    sees(&switch, &["in_port(h1)", "vlan(vid=10", "eth_type(0x0800)", "offloaded:yes, dp:tcx"]);
    assert_eq!(switch.warnings(), [""; 0]);
}

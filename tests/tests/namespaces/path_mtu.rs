// SPDX-License-Identifier: Apache-2.0
//! Packets that do not fit the underlay with their outer headers, with an MTU of 1,500 bytes on all
//! devices.

use crate::overlay::{Site, has_device, inner, outer, sites, vxlan};
use crate::tools::{SOON, is_possible, tcp, tcp_to, udp};
use slipswitch_tests::harness::{Capture, Host, Kind, Netns, patient, wait_until};
use std::time::Duration;

/// Two sites whose hosts send IP packets of 1,500 bytes.
fn wide(tunnel: &str) -> Option<[Site; 2]> {
    let sites = sites([Kind::under_test(), Kind::under_test()], tunnel)?;
    for site in &sites {
        site.host.netns.sh("ip link set eth0 mtu 1500");
    }
    assert!(sites[0].host.reaches(&inner(2), SOON), "the tunnel carries nothing");
    Some(sites)
}

/// The output of `ping` with one echo of this many bytes of payload that must not be fragmented.
fn ping_whole(from: &Host, to: &str, bytes: u32) -> String {
    let wait = patient(Duration::from_secs(1)).as_secs();
    from.netns.run(&format!("ping -n -c 1 -W {wait} -M do -s {bytes} {to}")).text()
}

/// Waits until an echo of this many bytes is answered by a report of this MTU.
#[track_caller]
fn is_told(from: &Host, to: &str, bytes: u32, mtu: u32) {
    let wanted = [format!("mtu = {mtu}"), format!("mtu={mtu}"), format!("mtu: {mtu}")];
    let mut said = String::new();
    let told = wait_until(SOON, || {
        said = ping_whole(from, to, bytes);
        wanted.iter().any(|text| said.contains(text))
    });
    assert!(told, "no MTU of {mtu}: {said}");
}

#[test]
fn the_sender_of_a_long_packet_is_told_what_fits() {
    for (tunnel, overhead) in [
        ("type=vxlan options:key=100", 50),
        ("type=geneve options:key=100 options:csum=true", 50),
        ("type=gre options:key=100", 42),
        ("type=gre options:key=100 options:seq=true", 46),
    ] {
        let Some([a, b]) = wide(tunnel) else { return };
        // Both offer segments for a link of 1,500 bytes.
        tcp(&b.host, &a.host, 1_000_000);
        let route = b.host.netns.sh(&format!("ip route get {}", inner(1)));
        assert!(route.contains(&format!("mtu {}", 1500 - overhead)), "{tunnel}: {route}");
        let said = ping_whole(&a.host, &inner(2), 1472);
        let report = format!("From {} icmp_seq=1 Frag needed and DF set", inner(2));
        assert!(said.contains(&report), "{tunnel}: {said}");
        is_told(&a.host, &inner(2), 1472, 1500 - overhead);
        let fits = 1500 - overhead - 28;
        assert!(ping_whole(&a.host, &inner(2), fits).contains("1 received"), "{tunnel}");
        tcp(&a.host, &b.host, 1_000_000);
        assert_ne!(a.switch.counter("datapath_drop_output_too_long"), 0, "{tunnel}");
    }
}

#[test]
fn the_sender_of_a_long_ipv6_packet_is_told_what_fits() {
    let Some([a, b]) = wide("type=vxlan options:key=100") else { return };
    for (site, address) in [(&a, "fd00::1"), (&b, "fd00::2")] {
        site.host.netns.sh("echo 0 >/proc/sys/net/ipv6/conf/all/disable_ipv6");
        site.host.netns.sh(&format!("ip -6 addr add {address}/64 dev eth0 nodad"));
    }
    assert!(a.host.reaches("fd00::2", SOON), "the tunnel carries no IPv6");
    tcp_to(&b.host.netns, &a.host.netns, "fd00::1", 1_000_000);
    let route = b.host.netns.sh("ip -6 route get fd00::1");
    assert!(route.contains("mtu 1450"), "{route}");
    is_told(&a.host, "fd00::2", 1452, 1450);
    // The sender's own fragments become shorter.
    b.host.netns.sh("ip -6 route flush cache");
    let wait = patient(SOON).as_secs();
    let answered = || b.host.netns.run(&format!("ping -n -c 2 -W {wait} -s 3200 fd00::1")).ok();
    assert!(wait_until(SOON, answered), "fragments do not arrive");
}

#[test]
fn packets_that_may_be_fragmented_arrive_without_a_report() {
    let Some([a, b]) = wide("type=vxlan options:key=100") else { return };
    assert_eq!(udp(&a.host, &b.host, &[1422, 1423, 1472, 3200, 20_000]), [true; 5]);
    let route = a.host.netns.sh(&format!("ip route get {}", inner(2)));
    // Datagrams of up to 1,472 bytes have DF.
    assert!(route.contains("mtu 1450"), "{route}");
    let without_df = "ping -n -c 3 -i 0.2 -M dont -s 1472";
    b.host.netns.sh(&format!("{without_df} -W 10 {}", inner(1)));
    let route = b.host.netns.sh(&format!("ip route get {}", inner(1)));
    assert!(!route.contains("mtu"), "no report was needed: {route}");
}

/// A site and a namespace with the kernel's VXLAN device `vx0`, whose underlay device is `u0`.
fn with_kernel(tunnel: &str, outer_address: &str) -> Option<(Site, Netns)> {
    if !is_possible() {
        return None;
    }
    let kernel = Netns::new();
    let site = Site::new(Kind::under_test(), 1, tunnel);
    site.host.netns.sh("ip link set eth0 mtu 1500");
    site.switch.vsctl(&format!("set interface t1 options:remote_ip={outer_address}"));
    has_device(&kernel, "vx0", &vxlan(outer_address), 1500).then_some((site, kernel))
}

#[test]
fn outer_packets_without_df_are_fragmented() {
    let tunnel = "type=vxlan options:key=100 options:df_default=false";
    let Some((site, kernel)) = with_kernel(tunnel, &outer(2)) else { return };
    site.connect(&kernel);
    kernel.sh(&format!("ip addr add {}/24 dev u0; ip link set u0 up", outer(2)));
    assert!(site.host.reaches(&inner(2), SOON), "the tunnel carries nothing");
    let capture =
        Capture::start(&kernel, site.switch.sandbox(), "outer", "u0", "ip[6:2] & 0x3fff != 0");
    // The kernel's answers would be fragments, too, which the switch does not receive.
    kernel.sh("ip link set vx0 mtu 1450");
    for _ in 0..3 {
        site.host.netns.run(&format!("ping -n -c 1 -W 0.2 -M do -s 1472 {}", inner(2)));
    }
    let fragments = capture.finish(6, SOON);
    assert!(fragments.len() >= 6, "{} fragments", fragments.len());
    assert!(fragments.iter().all(|frame| frame.len() <= 1514));
    assert_eq!(kernel.snmp("Ip", "ReasmOKs"), 3, "packets reassembled");
    let route = site.host.netns.sh(&format!("ip route get {}", inner(2)));
    assert!(!route.contains("mtu"), "no report was needed: {route}");
}

#[test]
fn a_router_of_the_underlay_reports_its_mtu() {
    let there = "10.10.0.2";
    let Some((site, kernel)) = with_kernel("type=vxlan options:key=100", there) else { return };
    let router = Netns::new();
    site.connect(&router);
    router.sh(&format!(
        "ip addr add 10.9.0.254/24 dev u0; ip link set u0 up; \
         ip link add far type veth peer name near netns {}; ip link set far mtu 1400 up; \
         ip addr add 10.10.0.254/24 dev far; echo 1 >/proc/sys/net/ipv4/ip_forward",
        kernel.path().display()
    ));
    kernel.sh(&format!(
        "ip addr add {there}/24 dev near; ip link set near mtu 1400 up; \
         ip route add 10.9.0.0/24 via 10.10.0.254; ip link set vx0 mtu 1350"
    ));
    site.switch.netns().sh("ip route add 10.10.0.0/24 via 10.9.0.254");
    assert!(site.host.reaches(&inner(2), SOON), "the tunnel carries nothing");
    // An outer packet of 1,500 bytes leaves, and the router refuses it.
    is_told(&site.host, &inner(2), 1422, 1350);
    assert!(ping_whole(&site.host, &inner(2), 1322).contains("1 received"));
    tcp_to(&site.host.netns, &kernel, &inner(2), 1_000_000);
}

// SPDX-License-Identifier: Apache-2.0
//! Tunnels over the host's own NIC, which is a port of no bridge. Each site is a namespace with a
//! switch and a veth end `eth0` that has the address.

use crate::overlay::{Site, TUNNELS, VXLAN, has_device, inner, outer, talk, vxlan};
use crate::tools::{SOON, is_possible, tcp, tcp_to};
use slipswitch_tests::harness::{Kind, Netns, wait_until, without_tool};
use std::net::UdpSocket;
use std::time::Duration;

/// The address of the second NIC, `eth1`, by the number of the site.
fn second(site: u8) -> String {
    format!("10.8.0.{site}")
}

/// Ties two namespaces by a veth pair of this name.
fn cable(a: &Netns, b: &Netns, name: &str, addresses: [String; 2]) {
    let there = b.path();
    a.sh(&format!("ip link add {name} type veth peer name {name} netns {}", there.display()));
    for (netns, address) in [a, b].into_iter().zip(addresses) {
        netns.sh(&format!("ip addr add {address}/24 dev {name}; ip link set {name} up"));
    }
}

/// A site whose tunnel goes over a NIC.
fn site(number: u8, tunnel: &str) -> Site {
    Site::without_underlay(Kind::under_test(), number, tunnel)
}

/// Waits until a line is in `dpctl/show`, or is not: that of the port of a device, hidden or not.
#[track_caller]
fn awaits(site: &Site, line: &str, is_there: bool) {
    let shown = || site.switch.appctl("dpctl/show");
    assert!(wait_until(SOON, || shown().contains(line) == is_there), "{line}: {}", shown());
}

/// Two sites that a tunnel joins over their NICs; `None`, after saying so, where there can be none.
fn sites(tunnel: &str) -> Option<[Site; 2]> {
    is_possible().then(|| {
        let sites = [1, 2].map(|number| site(number, tunnel));
        let [a, b] = &sites;
        cable(a.switch.netns(), b.switch.netns(), "eth0", [1, 2].map(outer));
        sites
    })
}

#[test]
fn hosts_of_two_switches_talk_over_the_nics_of_their_hosts() {
    for tunnel in TUNNELS {
        let Some(sites) = sites(tunnel) else { return };
        let [a, b] = &sites;
        talk(&a.host, &b.host);
        for site in &sites {
            awaits(site, "eth0 (underlay)", true);
            assert!(!site.switch.appctl("dpif/show").contains("eth0"));
            let drops = site.switch.appctl("coverage/show");
            assert!(!drops.contains("datapath_drop_tunnel"), "{tunnel}: {drops}");
            assert_eq!(site.switch.counter("datapath_drop_no_tunnel"), 0, "{tunnel}");
        }
        let expected = "tunnel_egress_iface=eth0, tunnel_egress_iface_carrier=up";
        let status = || a.switch.vsctl("get interface t1 status");
        assert!(wait_until(SOON, || status().contains(expected)), "{}", status());
        a.switch.vsctl("del-port t1");
        awaits(a, "eth0 (underlay)", false);
    }
}

#[test]
fn without_bpf_the_stack_stays_quiet() {
    for tunnel in [VXLAN, "type=gre options:key=100"] {
        let Some(sites) = sites(tunnel) else { return };
        for site in &sites {
            site.switch.vsctl("set Open_vSwitch . other_config:bpf-offload=false");
        }
        let [a, b] = &sites;
        talk(&a.host, &b.host);
        let before =
            sites.each_ref().map(|site| site.switch.netns().snmp("Icmp", "OutDestUnreachs"));
        assert_eq!(a.host.ping(&inner(2), 10), 10);
        tcp(&a.host, &b.host, 1_000_000);
        let after =
            sites.each_ref().map(|site| site.switch.netns().snmp("Icmp", "OutDestUnreachs"));
        assert_eq!(before, after, "the stack answered packets of the tunnel");
    }
}

#[test]
fn the_other_traffic_of_the_host_is_untouched() {
    for offload in ["true", "false"] {
        let Some(sites) = sites(VXLAN) else { return };
        for site in &sites {
            site.switch.vsctl(&format!("set Open_vSwitch . other_config:bpf-offload={offload}"));
        }
        let [a, b] = &sites;
        talk(&a.host, &b.host);
        let [here, there] = [a, b].map(|site| site.switch.netns());
        tcp_to(here, there, &outer(2), 1_000_000);
        tcp_to(there, here, &outer(1), 1_000_000);
        here.sh(&format!("ping -c 3 -i 0.2 -W 5 {}", outer(2)));
        here.sh(&format!("ping -c 3 -i 0.2 -W 5 -s 4000 {}", outer(2)));
        // Datagrams to the tunnel's port at another address, in fragments, and to other ports.
        there.sh("ip addr add 127.1.0.1/8 dev lo; ip link set lo up");
        let address = outer(2);
        let socket = there.with(|| UdpSocket::bind((address.as_str(), 4788)).expect("its address"));
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("not zero");
        let sender = here.with(|| UdpSocket::bind("0.0.0.0:0").expect("a socket"));
        let mut buffer = vec![0; 8192];
        for length in [1, 1400, 4000] {
            sender.send_to(&vec![7; length], (address.as_str(), 4788)).expect("sent");
            assert_eq!(socket.recv(&mut buffer).expect("it arrives"), length);
        }
        for site in &sites {
            assert_eq!(site.switch.counter("datapath_drop_no_tunnel"), 0);
        }
        assert_eq!(a.host.ping(&inner(2), 3), 3);
    }
}

#[test]
fn hosts_talk_with_a_device_of_the_kernel() {
    if !is_possible() {
        return;
    }
    let kernel = Netns::new();
    let site = site(1, VXLAN);
    cable(site.switch.netns(), &kernel, "eth0", [1, 2].map(outer));
    if !has_device(&kernel, "vx0", &vxlan(&outer(2)), 1400) {
        return;
    }
    assert!(site.host.reaches(&inner(2), SOON), "the tunnel carries nothing");
    assert_eq!(site.host.ping(&inner(2), 10), 10);
    tcp_to(&site.host.netns, &kernel, &inner(2), 1_000_000);
    tcp_to(&kernel, &site.host.netns, &inner(1), 1_000_000);
}

#[test]
fn hosts_talk_with_those_of_open_vswitch() {
    if !is_possible() || without_tool(&["ethtool"]) {
        return;
    }
    for tunnel in [VXLAN, "type=geneve options:key=100"] {
        let site = site(1, tunnel);
        let other = Site::new(Kind::RealOvs, 2, tunnel);
        let path = other.switch.netns().path();
        site.switch.netns().sh(&format!(
            "ip link add eth0 type veth peer name u0 netns {}; ip addr add {}/24 dev eth0; \
             ip link set eth0 up",
            path.display(),
            outer(1)
        ));
        other.switch.netns().sh("ip link set u0 up");
        other.switch.vsctl("add-port phy u0");
        // Open vSwitch's userspace datapath does not finish checksums that are left to a device.
        for site in [&site, &other] {
            site.host.netns.sh("ethtool -K eth0 tx off");
        }
        site.switch.netns().sh("ethtool -K eth0 tx off");
        talk(&site.host, &other.host);
    }
}

/// Waits until host 1 reaches host 2, or does not any more.
#[track_caller]
fn reaches(site: &Site, expected: bool) {
    let is_so = || (site.host.ping(&inner(2), 1) == 1) == expected;
    assert!(wait_until(SOON, is_so), "reached: {}", !expected);
}

#[test]
fn changes_of_neighbours_routes_and_addresses_are_followed() {
    let Some(sites) = sites(VXLAN) else { return };
    let [a, b] = &sites;
    talk(&a.host, &b.host);
    let [here, there] = [a, b].map(|site| site.switch.netns());
    // The other NIC gets another Ethernet address, and the kernel learns it.
    there.sh("ip link set eth0 address 02:00:00:00:09:09");
    here.sh(&format!("ip neigh replace {} lladdr 02:00:00:00:09:09 dev eth0", outer(2)));
    there.sh(&format!("ping -c 1 -W 5 {}", outer(1)));
    reaches(a, true);
    // The route moves to another NIC.
    cable(here, there, "eth1", [1, 2].map(second));
    let (to, via, from) = (outer(2), second(2), outer(1));
    here.sh(&format!("ip route add {to}/32 via {via} dev eth1 src {from}"));
    awaits(a, "eth1 (underlay)", true);
    awaits(b, "eth1 (underlay)", true);
    reaches(a, true);
    let sent = |device: &str| -> u64 {
        let count = format!("awk '$1 == \"{device}:\" {{ print $11 }}' /proc/net/dev");
        here.sh(&count).trim().parse().expect("a number")
    };
    // The old way still works, so the first echoes may go there.
    let goes_new_way = || {
        let before = sent("eth1");
        a.host.ping(&inner(2), 3) == 3 && sent("eth1") >= before + 3
    };
    assert!(wait_until(SOON, goes_new_way), "they go the old way");
    here.sh(&format!("ip route del {}/32", outer(2)));
    reaches(a, true);
    // The address of the tunnel's end goes and comes back.
    there.sh(&format!("ip addr del {}/24 dev eth0", outer(2)));
    reaches(a, false);
    there.sh(&format!("ip addr add {}/24 dev eth0", outer(2)));
    reaches(a, true);
}

#[test]
fn a_nic_that_is_made_again_is_used_again() {
    let Some(sites) = sites(VXLAN) else { return };
    let [a, b] = &sites;
    talk(&a.host, &b.host);
    let [here, there] = [a, b].map(|site| site.switch.netns());
    here.sh("ip link del eth0");
    awaits(a, "eth0 (underlay)", false);
    awaits(b, "eth0 (underlay)", false);
    cable(here, there, "eth0", [1, 2].map(outer));
    reaches(a, true);
    talk(&a.host, &b.host);
    // The NIC becomes a port of a bridge, which has the address, and is the host's own again.
    a.switch.vsctl("add-br phy -- set bridge phy datapath_type=netdev -- add-port phy eth0");
    here.sh(&format!(
        "ip addr flush dev eth0; ip addr add {}/24 dev phy; ip link set phy up",
        outer(1)
    ));
    awaits(a, "eth0 (underlay)", false);
    reaches(a, true);
    a.switch.vsctl("del-br phy");
    here.sh(&format!("ip addr add {}/24 dev eth0", outer(1)));
    awaits(a, "eth0 (underlay)", true);
    reaches(a, true);
}

#[test]
fn a_killed_daemon_is_replaced() {
    let Some(mut sites) = sites(VXLAN) else { return };
    let [a, b] = &mut sites;
    talk(&a.host, &b.host);
    a.switch.kill_daemon();
    let [here, there] = [&*a, &*b].map(|site| site.switch.netns());
    tcp_to(here, there, &outer(2), 100_000);
    tcp_to(there, here, &outer(1), 100_000);
    a.switch.start_daemon();
    talk(&a.host, &b.host);
    a.switch.appctl("exit --cleanup");
    assert_eq!(a.switch.wait_for_end(), Some(0));
    let programs = a.switch.netns().run("bpftool net show dev eth0").text();
    assert!(!programs.contains("entry_tc_underlay"), "{programs}");
    tcp_to(a.switch.netns(), b.switch.netns(), &outer(2), 100_000);
}

// SPDX-License-Identifier: Apache-2.0
//! Tunnels over the host's own NIC, which is a port of no bridge. Each site is a namespace with a
//! switch and a veth end `eth0` that has the address.

use crate::tools::{SOON, tcp, tcp_to, udp};
use slipswitch_tests::harness::{
    Host, Kind, Mode, Netns, Switch, skip, wait_until, without_privilege, without_tool,
};
use std::net::UdpSocket;
use std::time::Duration;

/// A switch with a host on its bridge `br0`, and a NIC of its namespace.
struct Site {
    switch: Switch,
    host: Host,
}

/// Addresses of the NICs `eth0` and `eth1` and of the hosts, by the number of the site.
fn outer(site: u8) -> String {
    format!("10.9.0.{site}")
}

fn second(site: u8) -> String {
    format!("10.8.0.{site}")
}

fn inner(site: u8) -> String {
    format!("10.1.0.{site}")
}

/// Ties two namespaces by a veth pair of this name.
fn cable(a: &Netns, b: &Netns, name: &str, addresses: [String; 2]) {
    let there = b.path();
    a.sh(&format!("ip link add {name} type veth peer name {name} netns {}", there.display()));
    for (netns, address) in [a, b].into_iter().zip(addresses) {
        netns.sh(&format!("ip addr add {address}/24 dev {name}; ip link set {name} up"));
    }
}

impl Site {
    fn new(number: u8, tunnel: &str) -> Site {
        let switch = Switch::start(Kind::under_test(), Mode::Real);
        switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
        let host = switch.host_on("br0", "h1", &format!("{}/24", inner(number)));
        host.netns.sh("ip link set eth0 mtu 1400");
        let other = outer(3 - number);
        switch.vsctl(&format!(
            "add-port br0 t1 -- set interface t1 {tunnel} options:remote_ip={other}"
        ));
        Site { switch, host }
    }

    /// The datapath port of the device, hidden or not, as `dpctl/show` has it.
    fn shows(&self, line: &str) -> bool {
        self.switch.appctl("dpctl/show").contains(line)
    }

    #[track_caller]
    fn awaits(&self, line: &str, is_there: bool) {
        let seen = wait_until(SOON, || self.shows(line) == is_there);
        assert!(seen, "{line}: {}", self.switch.appctl("dpctl/show"));
    }

    fn counter(&self, name: &str) -> u64 {
        let text = self.switch.appctl(&format!("coverage/read-counter {name}"));
        text.trim().parse().unwrap_or(0)
    }
}

fn is_possible() -> bool {
    !without_privilege() && !without_tool(&["ip", "ping", "fping", "tcpdump", "nsenter"])
}

/// Two sites that a tunnel joins over their NICs; `None`, after saying so, where there can be none.
fn sites(tunnel: &str) -> Option<[Site; 2]> {
    is_possible().then(|| {
        let sites = [1, 2].map(|number| Site::new(number, tunnel));
        let [a, b] = &sites;
        cable(a.switch.netns(), b.switch.netns(), "eth0", [1, 2].map(outer));
        sites
    })
}

/// Ping, long UDP datagrams and TCP, both ways.
#[track_caller]
fn talk(a: &Host, b: &Host) {
    assert!(a.reaches(&inner(2), SOON), "the tunnel carries nothing");
    assert_eq!(a.ping(&inner(2), 10), 10);
    assert_eq!(udp(a, b, &[1, 1372, 1373, 3200]), [true; 4]);
    tcp(a, b, 1_000_000);
    tcp(b, a, 1_000_000);
}

const VXLAN: &str = "type=vxlan options:key=100";
const TUNNELS: [&str; 4] = [
    VXLAN,
    "type=geneve options:key=100 options:csum=true",
    "type=gre options:key=100",
    "type=erspan options:key=100 options:erspan_ver=2",
];

#[test]
fn hosts_of_two_switches_talk_over_the_nics_of_their_hosts() {
    for tunnel in TUNNELS {
        let Some(sites) = sites(tunnel) else { return };
        let [a, b] = &sites;
        talk(&a.host, &b.host);
        for site in &sites {
            site.awaits("eth0 (underlay)", true);
            assert!(!site.switch.appctl("dpif/show").contains("eth0"));
            let drops = site.switch.appctl("coverage/show");
            assert!(!drops.contains("datapath_drop_tunnel"), "{tunnel}: {drops}");
            assert_eq!(site.counter("datapath_drop_no_tunnel"), 0, "{tunnel}");
        }
        let expected = "tunnel_egress_iface=eth0, tunnel_egress_iface_carrier=up";
        let status = || a.switch.vsctl("get interface t1 status");
        assert!(wait_until(SOON, || status().contains(expected)), "{}", status());
        a.switch.vsctl("del-port t1");
        a.awaits("eth0 (underlay)", false);
    }
}

/// The number of times that the stack of a namespace has answered "unreachable".
fn errors_sent(netns: &Netns) -> u64 {
    let text = netns.sh("grep ^Icmp: /proc/net/snmp");
    let mut lines = text.lines().map(str::split_whitespace);
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let found = names.zip(values).find(|(name, _)| *name == "OutDestUnreachs");
    found.and_then(|(_, value)| value.parse().ok()).expect("a counter")
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
        let before = sites.each_ref().map(|site| errors_sent(site.switch.netns()));
        assert_eq!(a.host.ping(&inner(2), 10), 10);
        tcp(&a.host, &b.host, 1_000_000);
        let after = sites.each_ref().map(|site| errors_sent(site.switch.netns()));
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
            assert_eq!(site.counter("datapath_drop_no_tunnel"), 0);
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
    let site = Site::new(1, VXLAN);
    cable(site.switch.netns(), &kernel, "eth0", [1, 2].map(outer));
    let made = kernel.run(&format!(
        "ip link add vx0 type vxlan id 100 remote {} local {} dstport 4789",
        outer(1),
        outer(2)
    ));
    if made.code != Some(0) {
        return skip("the kernel has no vxlan devices");
    }
    kernel.sh(&format!("ip link set vx0 mtu 1400 up; ip addr add {}/24 dev vx0", inner(2)));
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
        let site = Site::new(1, tunnel);
        let other = Switch::start(Kind::RealOvs, Mode::Real);
        other.vsctl("add-br phy -- set bridge phy datapath_type=netdev");
        other.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
        other.netns().sh(&format!("ip addr add {}/24 dev phy; ip link set phy up", outer(2)));
        let host = other.host_on("br0", "h1", &format!("{}/24", inner(2)));
        let path = other.netns().path();
        site.switch.netns().sh(&format!(
            "ip link add eth0 type veth peer name u0 netns {}; ip addr add {}/24 dev eth0; \
             ip link set eth0 up",
            path.display(),
            outer(1)
        ));
        other.netns().sh("ip link set u0 up");
        other.vsctl("add-port phy u0");
        other.vsctl(&format!(
            "add-port br0 t1 -- set interface t1 {tunnel} options:remote_ip={}",
            outer(1)
        ));
        // Open vSwitch's userspace datapath does not finish checksums that are left to a device.
        for host in [&site.host, &host] {
            host.netns.sh("ip link set eth0 mtu 1400; ethtool -K eth0 tx off");
        }
        site.switch.netns().sh("ethtool -K eth0 tx off");
        talk(&site.host, &host);
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
    a.awaits("eth1 (underlay)", true);
    b.awaits("eth1 (underlay)", true);
    reaches(a, true);
    let sent = |device: &str| -> u64 {
        let count = format!("awk '$1 == \"{device}:\" {{ print $11 }}' /proc/net/dev");
        here.sh(&count).trim().parse().expect("a number")
    };
    let before = sent("eth1");
    assert_eq!(a.host.ping(&inner(2), 10), 10);
    assert!(sent("eth1") >= before + 10, "they went the old way");
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
    a.awaits("eth0 (underlay)", false);
    b.awaits("eth0 (underlay)", false);
    cable(here, there, "eth0", [1, 2].map(outer));
    reaches(a, true);
    talk(&a.host, &b.host);
    // The NIC becomes a port of a bridge, which has the address, and is the host's own again.
    a.switch.vsctl("add-br phy -- set bridge phy datapath_type=netdev -- add-port phy eth0");
    here.sh(&format!(
        "ip addr flush dev eth0; ip addr add {}/24 dev phy; ip link set phy up",
        outer(1)
    ));
    a.awaits("eth0 (underlay)", false);
    reaches(a, true);
    a.switch.vsctl("del-br phy");
    here.sh(&format!("ip addr add {}/24 dev eth0", outer(1)));
    a.awaits("eth0 (underlay)", true);
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

// SPDX-License-Identifier: Apache-2.0
//! Hosts on two switches that a tunnel joins. The underlay is a bridge of each switch with the
//! switch's address, and a veth pair between them.

use crate::tools::{SOON, tcp, tcp_to, udp};
use slipswitch_tests::harness::{
    Host, Kind, Mode, Netns, Switch, skip, without_privilege, without_tool,
};

/// A switch with a host on its bridge `br0`, and an underlay bridge `phy` with one port, `u0`.
pub struct Site {
    pub switch: Switch,
    /// Its address is that of [`inner`].
    pub host: Host,
}

/// Addresses of the underlay and of the hosts, by the number of the site.
pub fn outer(site: u8) -> String {
    format!("10.9.0.{site}")
}

pub fn inner(site: u8) -> String {
    format!("10.1.0.{site}")
}

impl Site {
    /// Makes a site whose tunnel `t1` leads to the other site's address.
    pub fn new(kind: Kind, number: u8, tunnel: &str) -> Site {
        let switch = Switch::start(kind, Mode::Real);
        switch.vsctl("add-br phy -- set bridge phy datapath_type=netdev");
        switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
        let address = outer(number);
        switch.netns().sh(&format!("ip addr add {address}/24 dev phy; ip link set phy up"));
        let host = switch.host_on("br0", "h1", &format!("{}/24", inner(number)));
        host.netns.sh("ip link set eth0 mtu 1400");
        let other = outer(3 - number);
        switch.vsctl(&format!(
            "add-port br0 t1 -- set interface t1 {tunnel} options:remote_ip={other}"
        ));
        Site { switch, host }
    }

    /// Puts one end of a veth pair on the underlay bridge, and the other into a namespace.
    pub fn connect(&self, there: &Netns) {
        let path = there.path();
        self.switch.netns().sh(&format!(
            "ip link add u0 type veth peer name u0 netns {}; ip link set u0 up",
            path.display()
        ));
        self.switch.vsctl("add-port phy u0");
    }
}

/// Two sites of these kinds that a tunnel joins; `None`, after saying so, where there can be none.
pub fn sites(kinds: [Kind; 2], tunnel: &str) -> Option<[Site; 2]> {
    if without_privilege() || without_tool(&["ip", "ping", "fping", "tcpdump", "nsenter"]) {
        return None;
    }
    let [a, b] = kinds;
    let (a, b) = (Site::new(a, 1, tunnel), Site::new(b, 2, tunnel));
    a.connect(b.switch.netns());
    b.switch.netns().sh("ip link set u0 up");
    b.switch.vsctl("add-port phy u0");
    Some([a, b])
}

/// Ping, long UDP datagrams and TCP, both ways.
fn talk(a: &Host, b: &Host) {
    assert!(a.reaches(&inner(2), SOON), "the tunnel carries nothing");
    assert_eq!(a.ping(&inner(2), 10), 10);
    assert_eq!(udp(a, b, &[1, 1372, 1373, 3200]), [true; 4]);
    tcp(a, b, 1_000_000);
    tcp(b, a, 1_000_000);
}

const TUNNELS: [&str; 4] = [
    "type=vxlan options:key=100",
    "type=geneve options:key=100 options:csum=true",
    "type=gre options:key=100",
    "type=erspan options:key=100 options:erspan_ver=2",
];

#[test]
fn hosts_of_two_switches_talk_over_a_tunnel() {
    for tunnel in TUNNELS {
        let Some([a, b]) = sites([Kind::under_test(), Kind::under_test()], tunnel) else { return };
        talk(&a.host, &b.host);
        let drops = a.switch.appctl("coverage/show");
        assert!(!drops.contains("datapath_drop_tunnel"), "{tunnel}: {drops}");
    }
}

#[test]
fn hosts_talk_with_those_of_open_vswitch() {
    if without_tool(&["ethtool"]) {
        return;
    }
    for tunnel in ["type=vxlan options:key=100", "type=geneve options:key=100"] {
        let Some([a, b]) = sites([Kind::under_test(), Kind::RealOvs], tunnel) else { return };
        // Open vSwitch's userspace datapath does not finish checksums that are left to a device.
        for site in [&a, &b] {
            site.host.netns.sh("ethtool -K eth0 tx off");
        }
        talk(&a.host, &b.host);
    }
}

#[test]
fn hosts_talk_with_a_device_of_the_kernel() {
    if without_privilege() || without_tool(&["ip", "ping", "fping", "tcpdump", "nsenter"]) {
        return;
    }
    let kernel = Netns::new();
    let site = Site::new(Kind::under_test(), 1, "type=vxlan options:key=100");
    site.connect(&kernel);
    let made = kernel.run(&format!(
        "ip addr add {}/24 dev u0; ip link set u0 up; \
         ip link add vx0 type vxlan id 100 remote {} local {} dstport 4789",
        outer(2),
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

// SPDX-License-Identifier: Apache-2.0
//! Userspace pushes and pops the headers of a tunnel whose other end is a device of the kernel.

use crate::tools::tcp_to;
use clock::Clock;
use datapath::{
    Counters, Datapath, DropReason, Flows, Megaflow, PortKind, PortNo, PortSpec, Ports, TunnelKind,
    Ufid, text,
};
use datapath_userspace::{Config, UserspaceDatapath};
use flow::{Field, Match};
use slipswitch_tests::harness::{Netns, skip, without_privilege, without_tool};
use std::sync::Arc;

/// The number of the tunnel port.
const TUNNEL: u32 = 4789;

/// A host on a port of the datapath, and a host with a tunnel device of the kernel.
struct Peers {
    datapath: Arc<UserspaceDatapath>,
    /// 10.1.0.1.
    host: Netns,
    /// 10.1.0.2 on the tunnel device; the outer address is 10.9.0.2.
    kernel: Netns,
    /// The namespace of the datapath.
    _switch: Netns,
}

/// Makes the peers; `None`, after saying so, where tests cannot. `options` are of the kernel's
/// device, `csum` is in the text of the pushed UDP header.
fn peers(options: &str, csum: &str) -> Option<Peers> {
    if without_privilege() || without_tool(&["ip", "ping", "nsenter"]) {
        return None;
    }
    let (switch, host, kernel) = (Netns::new(), Netns::new(), Netns::new());
    for (port, device, netns) in [("u0", "k0", &kernel), ("h0", "eth0", &host)] {
        let path = netns.path();
        switch.sh(&format!(
            "ip link add {port} type veth peer name {device} netns {} && ip link set {port} up",
            path.display()
        ));
    }
    host.sh("ip link set eth0 mtu 1450 up; ip addr add 10.1.0.1/24 dev eth0");
    kernel.sh("ip link set k0 address 02:00:00:00:00:0b; ip link set k0 up; \
         ip addr add 10.9.0.2/24 dev k0; ip neigh add 10.9.0.1 lladdr 02:00:00:00:00:0a dev k0");
    let added = kernel.run(&format!(
        "ip link add vx0 type vxlan id 123 remote 10.9.0.1 local 10.9.0.2 dstport 4789 {options}"
    ));
    if !added.ok() {
        skip(&format!("the kernel makes no vxlan device: {}", added.text()));
        return None;
    }
    // Outer fragments are refused.
    kernel.sh("ip link set vx0 mtu 1450 up; ip addr add 10.1.0.2/24 dev vx0");
    let datapath = switch.with(|| {
        let datapath = UserspaceDatapath::new("netdev@tunnels", Clock::new(), Config::default());
        for (name, kind, number) in [
            ("u0", PortKind::System, 1),
            ("h0", PortKind::System, 2),
            ("vxlan_sys_4789", PortKind::Tunnel(TunnelKind::Vxlan), TUNNEL),
        ] {
            let wanted = Some(PortNo(number));
            let spec = PortSpec { name: name.into(), kind, wanted, ..PortSpec::default() };
            assert_eq!(datapath.add_port(&spec).expect("it can be opened"), PortNo(number));
        }
        datapath
    });
    let push = format!(
        "tnl_push(tnl_port({TUNNEL}),header(size=50,type=4,eth(dst=02:00:00:00:00:0b,\
         src=02:00:00:00:00:0a,dl_type=0x0800),ipv4(src=10.9.0.1,dst=10.9.0.2,proto=17,tos=0,\
         ttl=64,frag=0x4000),udp(src=0,dst=4789,csum={csum}),vxlan(flags=0x8000000,vni=0x7b)),\
         out_port(1)),1"
    );
    let mut outer = of_port(1);
    outer.set(Field::EthType, 0x0800);
    outer.set(Field::IpProto, 17);
    outer.set(Field::UdpDst, 4789);
    install(&datapath, 1, outer, &format!("tnl_pop({TUNNEL})"));
    install(&datapath, 2, of_port(2), &push);
    install(&datapath, 3, of_port(TUNNEL), "2");
    Some(Peers { datapath, host, kernel, _switch: switch })
}

fn of_port(port: u32) -> Match {
    let mut matching = Match::ANY;
    matching.set(Field::InPortOxm, port.into());
    matching
}

fn install(datapath: &UserspaceDatapath, id: u128, matching: Match, actions: &str) {
    let actions = text::parse(actions, &|_| None).expect("the text is right").into();
    datapath.install(&Megaflow { ufid: Ufid(id), matching, actions }).expect("there is room");
}

impl Peers {
    /// Echoes, fragments, and TCP in both directions, without a drop.
    fn exchange(&self) {
        self.host.sh("ping -c 3 -i 0.2 -W 5 10.1.0.2");
        self.host.sh("ping -c 3 -i 0.2 -W 5 -s 3200 10.1.0.2");
        self.kernel.sh("ping -c 3 -i 0.2 -W 5 -s 3200 10.1.0.1");
        tcp_to(&self.host, &self.kernel, "10.1.0.2", 4 << 20);
        tcp_to(&self.kernel, &self.host, "10.1.0.1", 4 << 20);
        for reason in [
            DropReason::TunnelPop,
            DropReason::TunnelPush,
            DropReason::InvalidTunnelPort,
            DropReason::OutputTooLong,
            DropReason::OutputError,
            DropReason::Malformed,
        ] {
            assert_eq!(self.datapath.drops(reason), 0, "{}", reason.name());
        }
        let packets = |id| self.datapath.flow(Ufid(id)).expect("it is there").stats.packets;
        assert_eq!(packets(1), packets(3), "each outer packet has one inner packet");
        assert!(packets(1) > 20 && packets(2) > 20);
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.datapath.shutdown();
    }
}

#[test]
fn a_vxlan_device_of_the_kernel_understands_userspace() {
    let Some(peers) = peers("", "0x0") else { return };
    peers.exchange();
    let checks = peers.datapath.tunnel_checks();
    assert!(checks.ip > 20 && checks.wrong_ip == 0, "{checks:?}");
}

#[test]
fn outer_checksums_are_right_for_the_kernel_and_from_it() {
    let Some(peers) = peers("udpcsum", "0xffff") else { return };
    peers.exchange();
    // The kernel drops datagrams with a wrong checksum, and counts them.
    assert_eq!(peers.kernel.snmp("Udp", "InCsumErrors"), 0);
    // Its own device must check what no device verified.
    peers.kernel.sh("ethtool -K k0 rx off tx off >/dev/null 2>&1 || true");
    peers.exchange();
}

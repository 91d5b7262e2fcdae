// SPDX-License-Identifier: Apache-2.0
//! Hosts on two switches that a tunnel joins. The underlay is a bridge of each switch with the
//! switch's address, and a veth pair between them.

use crate::tools::{SOON, is_possible, megaflows, packets, sees, tcp, tcp_to, udp};
use slipswitch_tests::behaviour::frames::has_right_checksums;
use slipswitch_tests::harness::{
    Capture, Host, Kind, Mode, Netns, Switch, acquainted, skip, wait_until, without_tool,
};

/// A switch with a host on its bridge `br0`, and an underlay bridge `phy` with one port, `u0`, or none.
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
        let site = Site::without_underlay(kind, number, tunnel);
        let address = outer(number);
        site.switch.vsctl("add-br phy -- set bridge phy datapath_type=netdev");
        site.switch.netns().sh(&format!("ip addr add {address}/24 dev phy; ip link set phy up"));
        site
    }

    /// The same, and nothing that leads to the other site.
    pub fn without_underlay(kind: Kind, number: u8, tunnel: &str) -> Site {
        let switch = Switch::start(kind, Mode::Real);
        switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
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
    if !is_possible() {
        return None;
    }
    let [a, b] = kinds;
    let (a, b) = (Site::new(a, 1, tunnel), Site::new(b, 2, tunnel));
    a.connect(b.switch.netns());
    b.switch.netns().sh("ip link set u0 up");
    b.switch.vsctl("add-port phy u0");
    Some([a, b])
}

/// The kernel's VXLAN device at `local` for [`Site`] 1, as `ip link add` has it.
pub fn vxlan(local: &str) -> String {
    format!("vxlan id 100 remote {} local {local} dstport 4789", outer(1))
}

/// Makes a tunnel device of the kernel. Returns false, after saying so, where the kernel makes none.
pub fn is_made(kernel: &Netns, name: &str, device: &str) -> bool {
    let made = kernel.run(&format!("ip link add {name} type {device}"));
    if !made.ok() {
        skip(&format!("the kernel makes no device `{device}`: {}", made.text().trim()));
    }
    made.ok()
}

/// The same, and the device gets host 2's address.
pub fn has_device(kernel: &Netns, name: &str, device: &str, mtu: u32) -> bool {
    if !is_made(kernel, name, device) {
        return false;
    }
    kernel.sh(&format!("ip link set {name} mtu {mtu} up; ip addr add {}/24 dev {name}", inner(2)));
    true
}

/// Ping, long UDP datagrams and TCP, both ways.
#[track_caller]
pub fn talk(a: &Host, b: &Host) {
    assert!(a.reaches(&inner(2), SOON), "the tunnel carries nothing");
    assert_eq!(a.ping(&inner(2), 10), 10);
    assert_eq!(udp(a, b, &[1, 1372, 1373, 3200]), [true; 4]);
    tcp(a, b, 1_000_000);
    tcp(b, a, 1_000_000);
}

pub const VXLAN: &str = "type=vxlan options:key=100";
pub const TUNNELS: [&str; 4] = [
    VXLAN,
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

/// Waits until the packets of a tunnel run at tcx on a switch: both the flow that takes the headers off
/// and the flow of the packets in them.
fn runs_at_tcx(site: &Site, ping: impl Fn()) {
    for _ in 0..SOON.as_secs() {
        ping();
        let is_there = |part| !megaflows(&site.switch, &[part, "dp:tcx"]).is_empty();
        if ["actions:tnl_pop(", "tunnel(tun_id=0x64"].into_iter().all(is_there) {
            return;
        }
    }
    let flows = megaflows(&site.switch, &[]).join("\n");
    panic!("the packets of the tunnel are not at tcx: {flows}");
}

#[test]
fn packets_of_tunnels_run_at_tcx() {
    for tunnel in [
        VXLAN,
        "type=geneve options:key=100",
        "type=geneve options:key=100 options:csum=true",
        "type=gre options:key=100",
        "type=gre options:key=100 options:seq=true",
        "type=erspan options:key=100 options:erspan_ver=1 options:erspan_idx=3",
        "type=erspan options:key=100 options:erspan_ver=2 options:erspan_hwid=4",
    ] {
        let Some([a, b]) = sites([Kind::under_test(), Kind::under_test()], tunnel) else { return };
        assert!(a.host.reaches(&inner(2), SOON), "the tunnel carries nothing");
        runs_at_tcx(&b, || {
            a.host.ping(&inner(2), 3);
        });
        assert_eq!(a.host.ping(&inner(2), 10), 10);
        let drops = b.switch.appctl("coverage/show");
        assert!(!drops.contains("datapath_drop_tunnel"), "{tunnel}: {drops}");
    }
}

/// Flows out of a tunnel name its port by a number, which the next daemon gives to the same tunnel.
#[test]
fn the_next_daemon_takes_over_flows_out_of_tunnels() {
    for tunnel in ["type=geneve options:key=100", "type=gre options:key=100"] {
        let Some([mut a, b]) = sites([Kind::under_test(), Kind::under_test()], tunnel) else {
            return;
        };
        assert!(a.host.reaches(&inner(2), SOON), "the tunnel carries nothing");
        acquainted(&a.host, &b.host);
        runs_at_tcx(&a, || {
            a.host.ping(&inner(2), 3);
        });
        let flows: [&[&str]; 2] = [
            &["actions:tnl_pop(", "dp:tcx"],
            &["tunnel(tun_id=0x64", "eth_type(0x0800)", "dp:tcx"],
        ];
        let before = flows.map(|flow| packets(&a.switch, flow));
        a.switch.kill_daemon();
        assert_eq!(a.host.ping(&inner(2), 60), 60, "while there is no daemon");
        a.switch.start_daemon();
        // The packets that the first daemon counted in userspace are gone.
        let mut after = [0; 2];
        let go_on = wait_until(SOON, || {
            after = flows.map(|flow| packets(&a.switch, flow));
            (0..2).all(|at| after[at] >= before[at] + 40)
        });
        let flows = megaflows(&a.switch, &[]).join("\n");
        assert!(go_on, "{tunnel}: {after:?} after {before:?}: {flows}");
    }
}

/// A new daemon has learned no neighbour of the underlay, and the flow that takes the neighbour's answers
/// to the host runs in the kernel. The flows that the daemon adopts push the address that the one before
/// had learned, and go on while the neighbour is asked.
#[test]
fn a_restart_loses_no_packet_in_a_tunnel() {
    let Some([mut a, b]) = sites([Kind::under_test(), Kind::under_test()], VXLAN) else { return };
    assert!(a.host.reaches(&inner(2), SOON), "the tunnel carries nothing");
    acquainted(&a.host, &b.host);
    runs_at_tcx(&a, || {
        a.host.ping(&inner(2), 3);
    });
    sees(&a.switch, &PUSHES);
    // Longer than an address is supposed to be right.
    let ping = a.host.pinging(&inner(2), 14);
    a.switch.kill_daemon();
    a.switch.netns().sh("ip neigh flush dev phy");
    a.switch.start_daemon();
    let echoes = ping.join().expect("fping runs");
    assert_eq!(echoes.lost(), 0, "{}\n{}", echoes.said, a.switch.story());
    let known = a.switch.appctl("tnl/neigh/show") + &a.switch.netns().sh("ip neigh show dev phy");
    assert!(known.contains(&outer(2)), "{known}");
    sees(&a.switch, &PUSHES);
    // The host forgets neighbours.
    let ping = a.host.pinging(&inner(2), 2);
    for _ in 0..5 {
        a.switch.netns().sh("ip neigh flush dev phy");
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    let echoes = ping.join().expect("fping runs");
    assert_eq!(echoes.lost(), 0, "{}\n{}", echoes.said, a.switch.story());
}

/// Programs and each daemon number the packets of a tunnel by one counter. Receivers may drop packets whose numbers
/// are lower than those before.
#[test]
fn sequence_numbers_go_on_after_a_restart() {
    let tunnel = "type=gre options:key=100 options:seq=true";
    let Some([mut a, b]) = sites([Kind::under_test(), Kind::under_test()], tunnel) else { return };
    let filter = format!("ip proto 47 and src host {}", outer(1));
    let (netns, sandbox) = (b.switch.netns(), b.switch.sandbox());
    let capture = Capture::start(netns, sandbox, "outer", "u0", &filter);
    assert!(a.host.reaches(&inner(2), SOON), "the tunnel carries nothing");
    acquainted(&a.host, &b.host);
    runs_at_tcx(&b, || {
        a.host.ping(&inner(2), 3);
    });
    sees(&a.switch, &PUSHES);
    assert_eq!(a.host.ping(&inner(2), 20), 20);
    a.switch.kill_daemon();
    assert_eq!(a.host.ping(&inner(2), 20), 20, "while there is no daemon");
    a.switch.start_daemon();
    assert_eq!(a.host.ping(&inner(2), 20), 20);
    a.switch.vsctl("set open_vswitch . other_config:bpf-offload=false");
    assert_eq!(a.host.ping(&inner(2), 20), 20, "the daemon alone");
    let frames = capture.finish(80, SOON);
    let numbers: Vec<u32> = frames
        .iter()
        .map(|frame| frame[42..46].try_into().map(u32::from_be_bytes).expect("four bytes"))
        .collect();
    let wanted: Vec<u32> = (0..).take(numbers.len()).collect();
    assert_eq!(numbers, wanted);
}

#[test]
fn hosts_talk_with_those_of_open_vswitch() {
    if without_tool(&["ethtool"]) {
        return;
    }
    for tunnel in [VXLAN, "type=geneve options:key=100"] {
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
    if !is_possible() {
        return;
    }
    let kernel = Netns::new();
    let site = Site::new(Kind::under_test(), 1, VXLAN);
    site.connect(&kernel);
    if !has_device(&kernel, "vx0", &vxlan(&outer(2)), 1400) {
        return;
    }
    kernel.sh(&format!("ip addr add {}/24 dev u0; ip link set u0 up", outer(2)));
    assert!(site.host.reaches(&inner(2), SOON), "the tunnel carries nothing");
    assert_eq!(site.host.ping(&inner(2), 10), 10);
    runs_at_tcx(&site, || {
        site.host.ping(&inner(2), 3);
    });
    tcp_to(&site.host.netns, &kernel, &inner(2), 1_000_000);
    tcp_to(&kernel, &site.host.netns, &inner(1), 1_000_000);
}

/// Parts of the text of a megaflow that pushes headers in the kernel.
pub const PUSHES: [&str; 4] = ["in_port(h1)", "eth_type(0x0800)", "tnl_push(tnl_port(", "dp:tcx"];

/// Asserts that no packet was dropped because of a tunnel.
pub fn drops_nothing(switch: &Switch) {
    let counters = switch.appctl("coverage/show");
    for reason in
        ["datapath_drop_tunnel", "datapath_drop_invalid_tnl", "datapath_drop_output_too_long"]
    {
        assert!(!counters.contains(reason), "{counters}");
    }
}

#[test]
fn headers_are_pushed_in_the_kernel() {
    let tunnels = [
        VXLAN,
        "type=geneve options:key=100",
        "type=gre options:key=100 options:csum=true",
        "type=gre options:key=100",
        "type=gre options:key=100 options:csum=true options:seq=true",
        "type=erspan options:key=100 options:erspan_ver=2",
    ];
    for tunnel in tunnels {
        let Some([a, b]) = sites([Kind::under_test(), Kind::under_test()], tunnel) else { return };
        talk(&a.host, &b.host);
        for site in [&a, &b] {
            sees(&site.switch, &PUSHES);
        }
        // Large segments of TCP stay whole, or are segmented before; without the devices for that, the daemon
        // does it.
        let before = packets(&a.switch, &PUSHES);
        tcp(&a.host, &b.host, 20_000_000);
        let pushed = packets(&a.switch, &PUSHES) - before;
        let is_segmented = ["csum", "erspan"].into_iter().any(|word| tunnel.contains(word));
        assert!(is_segmented || pushed > 200, "{tunnel}: {pushed}");
        [&a, &b].into_iter().for_each(|site| drops_nothing(&site.switch));
        assert_eq!(a.switch.warnings(), Vec::<String>::new(), "{tunnel}");
    }
}

#[test]
fn a_device_of_the_kernel_takes_off_headers_that_the_kernel_pushed() {
    if !is_possible() {
        return;
    }
    let kernel = Netns::new();
    let site = Site::new(Kind::under_test(), 1, "type=vxlan options:key=100 options:csum=true");
    site.connect(&kernel);
    if !has_device(&kernel, "vx0", &(vxlan(&outer(2)) + " udpcsum"), 1400) {
        return;
    }
    kernel.sh(&format!("ip addr add {}/24 dev u0; ip link set u0 up", outer(2)));
    // The device verifies checksums, and the host sends finished ones and no large segments.
    kernel.sh("ethtool -K u0 rx off >/dev/null 2>&1 || true");
    site.host.netns.sh("ethtool -K eth0 tx off");
    assert!(site.host.reaches(&inner(2), SOON), "the tunnel carries nothing");
    assert_eq!(site.host.ping(&inner(2), 20), 20);
    sees(&site.switch, &PUSHES);
    tcp_to(&site.host.netns, &kernel, &inner(2), 4_000_000);
    assert!(packets(&site.switch, &PUSHES) > 1000);
    assert_eq!(kernel.snmp("Udp", "InCsumErrors"), 0);
}

#[test]
fn every_checksum_of_a_packet_in_a_tunnel_is_right() {
    if without_tool(&["ethtool"]) {
        return;
    }
    let tunnel = "type=geneve options:key=100 options:csum=true";
    let Some([a, b]) = sites([Kind::under_test(), Kind::under_test()], tunnel) else { return };
    // A capture would show unfinished checksums.
    a.host.netns.sh("ethtool -K eth0 tx off");
    assert!(a.host.reaches(&inner(2), SOON), "the tunnel carries nothing");
    assert_eq!(a.host.ping(&inner(2), 20), 20);
    sees(&a.switch, &PUSHES);
    let filter = format!("udp port 6081 and src host {}", outer(1));
    let (netns, sandbox) = (a.switch.netns(), a.switch.sandbox());
    let capture = Capture::start(netns, sandbox, "outer", "u0", &filter);
    talk(&a.host, &b.host);
    let frames = capture.finish(500, SOON);
    assert!(frames.len() >= 500, "{}", frames.len());
    /// Bytes of the outer headers.
    const OUTER: usize = 50;
    let mut tcp_segments = 0;
    for frame in &frames {
        assert!(has_right_checksums(frame) && frame[40..42] != [0, 0], "{frame:02x?}");
        let inner = &frame[OUTER..];
        if inner.get(23) == Some(&6) && inner[12..14] == [8, 0] {
            assert!(has_right_checksums(inner), "{frame:02x?}");
            tcp_segments += 1;
        }
    }
    assert!(tcp_segments > 400, "{tcp_segments}");
}

#[test]
fn a_copy_in_a_tunnel_is_sent_last() {
    let Some([a, b]) = sites([Kind::under_test(), Kind::under_test()], VXLAN) else {
        return;
    };
    let near = a.switch.host_on("br0", "h2", "10.1.0.9/24");
    assert!(a.host.reaches(&inner(2), SOON), "the tunnel carries nothing");
    a.switch.flows("br0", "priority=10,ip,in_port=h1,actions=t1,h2\npriority=1,actions=NORMAL");
    let capture = near.capture(a.switch.sandbox(), "eth0", "icmp[icmptype] == icmp-echo");
    assert_eq!(a.host.ping(&inner(2), 20), 20);
    sees(&a.switch, &PUSHES);
    assert_eq!(a.host.ping(&inner(2), 20), 20);
    assert!(capture.finish(40, SOON).len() >= 40, "each packet has a copy");
    drop(b);
}

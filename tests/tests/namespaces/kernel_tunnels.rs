// SPDX-License-Identifier: Apache-2.0
//! Tunnels whose other end is a device of the kernel. Kernels without a kind of device skip its
//! test: most run in the guests alone.

mod gtp;

use crate::overlay::{PUSHES, Site, drops_nothing, inner, is_made, outer, sites, talk};
use crate::tools::{SOON, is_possible, sees, tcp_to, udp_segments};
use packet::checksum::{Sum, internet};
use packet::{Offload, ip_proto};
use slipswitch_tests::harness::{
    Capture, Kind as Daemon, Netns, patient, wait_until, without_tool,
};
use tunnel::{Checks, Kind, Payload, PortConfig};

/// MTU of the inner devices, in bytes: all headers fit.
const MTU: u32 = 1400;
/// UDP port of bareudp.
const BAREUDP: u16 = 6635;
/// Bytes of a TCP transfer.
const LONG: usize = 1_000_000;

/// The family of the outer addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    V4,
    V6,
}

/// The way in which the kernel's device knows the other end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// The device has its address.
    Device,
    /// A route has its address and the key.
    Route,
    /// A context of GTP has them.
    Context,
}

/// A tunnel, as both ends describe it.
struct Tunnel {
    kind: Kind,
    /// Options of the interface, without the other end's address.
    interface: &'static str,
    /// The kernel's device in `ip link add k0 type`; `OURS` and `THEIRS` are the outer addresses of
    /// the switch and the kernel.
    device: &'static str,
    over: Over,
    peer: Peer,
    /// Packets have no Ethernet header.
    is_layer3: bool,
    has_group_policy: bool,
}

impl Tunnel {
    const fn new(kind: Kind, interface: &'static str, device: &'static str) -> Tunnel {
        Tunnel {
            kind,
            interface,
            device,
            over: Over::V4,
            peer: Peer::Device,
            is_layer3: false,
            has_group_policy: false,
        }
    }

    const fn over_ipv6(self) -> Tunnel {
        Tunnel { over: Over::V6, ..self }
    }

    const fn layer3(self) -> Tunnel {
        Tunnel { is_layer3: true, ..self }
    }

    const fn by_route(self) -> Tunnel {
        Tunnel { peer: Peer::Route, ..self }
    }

    const fn by_context(self) -> Tunnel {
        Tunnel { peer: Peer::Context, ..self }
    }

    const fn group_policy(self) -> Tunnel {
        Tunnel { has_group_policy: true, ..self }
    }

    /// The outer address of a site.
    fn address(&self, site: u8) -> String {
        match self.over {
            Over::V4 => outer(site),
            Over::V6 => format!("fd09::{site}"),
        }
    }
}

/// A site and a namespace with the kernel's device `k0`, whose underlay device is `u0`.
struct Ends {
    site: Site,
    kernel: Netns,
}

impl Ends {
    /// Makes both ends; `None`, after saying so, where the kernel has no such device.
    fn new(tunnel: &Tunnel) -> Option<Ends> {
        if !is_possible() || without_tool(&["ethtool"]) {
            return None;
        }
        let kernel = Netns::new();
        let ip_v6 =
            "for d in all default; do echo 0 >/proc/sys/net/ipv6/conf/$d/disable_ipv6; done";
        if tunnel.over == Over::V6 {
            kernel.sh(ip_v6);
        }
        let (ours, theirs) = (tunnel.address(1), tunnel.address(2));
        let device = tunnel.device.replace("OURS", &ours).replace("THEIRS", &theirs);
        if !is_made(&kernel, "k0", &device) {
            return None;
        }
        let site = Site::new(Daemon::under_test(), 1, tunnel.interface);
        site.connect(&kernel);
        let prefix = if tunnel.over == Over::V6 { "64 nodad" } else { "24" };
        if tunnel.over == Over::V6 {
            site.switch.netns().sh(&format!(
                "for d in all phy; do echo 0 >/proc/sys/net/ipv6/conf/$d/disable_ipv6; done; \
                 ip addr add {ours}/{prefix} dev phy"
            ));
            site.switch.vsctl(&format!("set interface t1 options:remote_ip={theirs}"));
        }
        assert_eq!(site.switch.vsctl("get interface t1 error"), "[]\n", "{}", tunnel.interface);
        kernel.sh(&format!("ip addr add {theirs}/{prefix} dev u0; ip link set u0 up"));
        kernel.sh(&format!("ip link set k0 mtu {MTU} up; ip addr add {}/32 dev k0", inner(2)));
        let by = match (tunnel.peer, tunnel.over) {
            (Peer::Device | Peer::Context, _) => String::new(),
            (Peer::Route, Over::V4) => format!("encap ip id 100 dst {ours}"),
            (Peer::Route, Over::V6) => format!("encap ip6 id 100 dst {ours}"),
        };
        kernel.sh(&format!("ip route add {}/32 {by} dev k0 src {}", inner(1), inner(2)));
        if tunnel.peer == Peer::Context {
            let address = |text: String| text.parse().expect("an IPv4 address");
            gtp::add_context(&kernel, address(ours), address(inner(1)), 100);
        }
        if tunnel.is_layer3 {
            enter_layer3(&site, &inner(2));
        }
        Some(Ends { site, kernel })
    }

    /// Echoes, fragments, TCP and segmented UDP in both directions, without a drop or an error.
    fn talk(&self) {
        let Ends { site, kernel } = self;
        let (a, b) = (inner(1), inner(2));
        assert!(site.host.reaches(&b, SOON), "the tunnel carries nothing: {}", self.story());
        assert_eq!(site.host.ping(&b, 10), 10, "{}", self.story());
        let wait = patient(SOON).as_secs();
        let fragments = format!("ping -n -c 3 -i 0.2 -W {wait} -s 3200");
        site.host.netns.sh(&format!("{fragments} {b}"));
        kernel.sh(&format!("{fragments} {a}"));
        tcp_to(&site.host.netns, kernel, &b, LONG);
        tcp_to(kernel, &site.host.netns, &a, LONG);
        assert_eq!(udp_segments(&site.host.netns, kernel, &b), Some(true), "{}", self.story());
        // Kernels before 6.11 refuse it where the device computes no checksums.
        assert_ne!(udp_segments(kernel, &site.host.netns, &a), Some(false), "{}", self.story());
        let counters = site.switch.appctl("coverage/show");
        for counter in ["drop_tunnel", "drop_invalid_tnl", "drop_output_too_long", "drop_malformed"]
        {
            assert!(!counters.contains(&format!("datapath_{counter}")), "{counters}");
        }
        let errors = kernel.sh("awk '$1 == \"k0:\" { print $4 }' /proc/net/dev");
        assert_eq!(errors, "0\n", "errors of k0");
        assert_eq!(kernel.snmp("Udp", "InCsumErrors"), 0, "wrong checksums of UDP");
    }

    /// Records packets in both directions, all of whose checksums are finished, and checks them.
    fn have_right_checksums(&self, tunnel: &Tunnel) {
        let Ends { site, kernel } = self;
        site.host.netns.sh("ethtool -K eth0 tx off");
        kernel.sh("for d in k0 u0; do ethtool -K $d tx off || true; done");
        let capture = Capture::start(kernel, site.switch.sandbox(), "outer", "u0", "ip or ip6");
        tcp_to(&site.host.netns, kernel, &inner(2), 20_000);
        tcp_to(kernel, &site.host.netns, &inner(1), 20_000);
        site.host.netns.sh(&format!("ping -n -c 2 -i 0.2 -s 3000 {}", inner(2)));
        let mut seen = [0, 0];
        let own = site.switch.netns().mac("phy");
        // The program writes what it has seen a little later.
        assert!(wait_until(SOON, || capture.frames().len() > 20));
        for frame in capture.frames() {
            let Some(from_kernel) = checked(tunnel, &frame, &own) else { continue };
            seen[usize::from(from_kernel)] += 1;
        }
        assert!(seen.iter().all(|n| *n > 10), "{seen:?} packets of the tunnel");
        let text = capture.text();
        for complaint in ["bad cksum", "bad udp cksum", "incorrect", "wrong icmp cksum"] {
            let line = text.lines().find(|line| line.contains(complaint));
            assert_eq!(line, None, "{complaint}");
        }
    }

    fn story(&self) -> String {
        format!(
            "{}\n{}\n{}",
            self.site.switch.appctl("dpctl/dump-flows -m"),
            self.site.switch.appctl("coverage/show"),
            self.kernel.sh("ip -s link show k0; ip neigh; ip route")
        )
    }
}

/// Gives the bridge flows that address packets from a layer-3 tunnel to the host, and send the
/// host's IPv4 packets for `there` into it.
fn enter_layer3(site: &Site, there: &str) {
    let mac = site.host.netns.mac("eth0");
    site.switch.flows(
        "br0",
        &format!(
            "in_port=t1,ip,actions=mod_dl_dst:{mac},mod_dl_src:02:00:00:00:00:99,output:h1\n\
             in_port=h1,ip,actions=output:t1"
        ),
    );
    site.host.netns.sh(&format!("ip neigh add {there} lladdr 02:00:00:00:00:99 dev eth0"));
}

/// Checks the checksums of a packet of the tunnel, outer and inner. Returns true for one that the
/// kernel sent; `None` for another packet.
#[track_caller]
fn checked(tunnel: &Tunnel, frame: &[u8], own: &str) -> Option<bool> {
    let mut port = PortConfig::new(tunnel.kind);
    port.has_group_policy = tunnel.has_group_policy;
    if tunnel.kind == Kind::Bareudp {
        port.udp_port = BAREUDP;
    }
    let (key, layers) = flow::extract::extract(frame, 0);
    let is_tunnel = match port.udp_port {
        0 => key.nw_proto == 47,
        number => key.nw_proto == ip_proto::UDP && key.tp_dst.get() == number,
    };
    if !is_tunnel {
        return None;
    }
    let l3 = usize::from(layers.l3?);
    let decoded = tunnel::decode(frame, l3, &Offload::default(), &port, &mut Checks::default())
        .unwrap_or_else(|error| panic!("{error}: {frame:02x?}"));
    let payload = &frame[decoded.payload_at..decoded.payload_end];
    let (key, layers) = match decoded.payload {
        Payload::Ethernet => flow::extract::extract(payload, 0),
        Payload::Layer3(ethertype) => flow::extract::extract_layer3(payload, 0, ethertype),
    };
    if key.dl_type.get() == packet::ethertype::IPV4 {
        let (l3, l4) = (usize::from(layers.l3?), usize::from(layers.l4?));
        assert_eq!(internet(&payload[l3..l4]), 0, "the inner IPv4 header: {payload:02x?}");
        let end = payload.len() - usize::from(layers.l2_pad);
        let mut sum = Sum::default();
        sum.add(&payload[l4..end]);
        if key.nw_proto != ip_proto::ICMP {
            sum.add(&payload[l3 + 12..l3 + 20]);
            sum.add_u32(key.nw_proto.into());
            sum.add_u32((end - l4) as u32);
        }
        if key.nw_frag == 0 {
            assert_eq!(sum.finish(), 0, "the inner checksum: {payload:02x?}");
        }
    }
    let sender: Vec<String> = frame[6..12].iter().map(|byte| format!("{byte:02x}")).collect();
    Some(sender.join(":") != own)
}

/// Parts of the text of a megaflow that pushes headers of a layer-3 tunnel in the kernel.
const BARE_PUSHES: [&str; 5] =
    ["in_port(h1)", "eth_type(0x0800)", "pop_eth", "tnl_push(", "dp:tcx"];

/// The programs push the headers of layer-3 tunnels, and the other switch's daemon takes them off.
#[test]
fn layer_3_tunnels_between_two_switches() {
    for tunnel in [
        "type=gre options:key=100 options:packet_type=legacy_l3",
        "type=gre options:key=100 options:csum=true options:packet_type=legacy_l3",
        "type=vxlan options:key=100 options:exts=gpe options:packet_type=legacy_l3",
        "type=bareudp options:dst_port=6635 options:payload_type=ip",
        "type=gtpu options:key=100",
    ] {
        let kinds = [Daemon::under_test(), Daemon::under_test()];
        let Some([a, b]) = sites(kinds, tunnel) else { return };
        enter_layer3(&a, &inner(2));
        enter_layer3(&b, &inner(1));
        talk(&a.host, &b.host);
        for site in [&a, &b] {
            sees(&site.switch, &BARE_PUSHES);
            drops_nothing(&site.switch);
            assert_eq!(site.switch.warnings(), Vec::<String>::new(), "{tunnel}");
        }
    }
}

/// The same of a segment route, over IPv6.
#[test]
fn segment_routes_between_two_switches() {
    let kinds = [Daemon::under_test(), Daemon::under_test()];
    let Some(both) = sites(kinds, "type=gre options:key=100") else { return };
    for (site, number, other) in [(&both[0], 1, 2), (&both[1], 2, 1)] {
        site.switch.netns().sh(&format!(
            "for d in all phy; do echo 0 >/proc/sys/net/ipv6/conf/$d/disable_ipv6; done; \
             ip addr add fd09::{number}/64 nodad dev phy"
        ));
        site.switch.vsctl("del-port t1");
        site.switch.vsctl(&format!(
            "add-port br0 t1 -- set interface t1 type=srv6 options:remote_ip=fd09::{other}"
        ));
        assert_eq!(site.switch.vsctl("get interface t1 error"), "[]\n");
        enter_layer3(site, &inner(other));
    }
    let [a, b] = both;
    talk(&a.host, &b.host);
    for site in [&a, &b] {
        sees(&site.switch, &BARE_PUSHES);
        drops_nothing(&site.switch);
    }
}

/// Runs a tunnel's test.
fn meets(tunnel: &Tunnel) {
    let Some(ends) = Ends::new(tunnel) else { return };
    ends.talk();
    let pushes: &[&str] = if tunnel.is_layer3 { &BARE_PUSHES } else { &PUSHES };
    sees(&ends.site.switch, pushes);
    ends.have_right_checksums(tunnel);
}

/// Makes a test for each tunnel.
macro_rules! tunnels {
    ($($name:ident: $tunnel:expr;)*) => {
        $(
            #[test]
            fn $name() {
                meets(&$tunnel);
            }
        )*
    };
}

tunnels! {
    vxlan: Tunnel::new(
        Kind::Vxlan,
        "type=vxlan options:key=100",
        "vxlan id 100 local THEIRS remote OURS dstport 4789",
    );
    vxlan_with_checksums_over_ipv6: Tunnel::new(
        Kind::Vxlan,
        "type=vxlan options:key=100",
        "vxlan id 100 local THEIRS remote OURS dstport 4789",
    ).over_ipv6();
    vxlan_with_group_policy: Tunnel::new(
        Kind::Vxlan,
        "type=vxlan options:key=100 options:exts=gbp",
        "vxlan id 100 local THEIRS remote OURS dstport 4789 gbp udpcsum",
    ).group_policy();
    vxlan_with_generic_protocol: Tunnel::new(
        Kind::Vxlan,
        "type=vxlan options:key=100 options:exts=gpe options:packet_type=legacy_l3",
        "vxlan external gpe dstport 4789",
    ).layer3().by_route();
    geneve: Tunnel::new(
        Kind::Geneve,
        "type=geneve options:key=100",
        "geneve id 100 remote OURS dstport 6081",
    );
    geneve_with_checksums: Tunnel::new(
        Kind::Geneve,
        "type=geneve options:key=100 options:csum=true",
        "geneve id 100 remote OURS dstport 6081 udpcsum",
    );
    geneve_over_ipv6: Tunnel::new(
        Kind::Geneve,
        "type=geneve options:key=100",
        "geneve id 100 remote OURS dstport 6081 udp6zerocsumrx",
    ).over_ipv6();
    gretap: Tunnel::new(
        Kind::Gre,
        "type=gre options:key=100",
        "gretap local THEIRS remote OURS key 100",
    );
    gretap_with_checksums: Tunnel::new(
        Kind::Gre,
        "type=gre options:key=100 options:csum=true",
        "gretap local THEIRS remote OURS key 100 csum",
    );
    gretap_with_sequence_numbers: Tunnel::new(
        Kind::Gre,
        "type=gre options:key=100 options:seq=true",
        "gretap local THEIRS remote OURS key 100 seq",
    );
    gre: Tunnel::new(
        Kind::Gre,
        "type=gre options:key=100 options:packet_type=legacy_l3",
        "gre local THEIRS remote OURS key 100",
    ).layer3();
    ip6gretap: Tunnel::new(
        Kind::Ip6Gre,
        "type=ip6gre options:key=100",
        "ip6gretap local THEIRS remote OURS key 100",
    ).over_ipv6();
    ip6gre: Tunnel::new(
        Kind::Ip6Gre,
        "type=gre options:key=100 options:packet_type=legacy_l3",
        "ip6gre local THEIRS remote OURS key 100",
    ).over_ipv6().layer3();
    erspan_version_1: Tunnel::new(
        Kind::Erspan,
        "type=erspan options:key=100 options:erspan_ver=1 options:erspan_idx=3",
        "erspan local THEIRS remote OURS seq key 100 erspan_ver 1 erspan 3",
    );
    erspan_version_2: Tunnel::new(
        Kind::Erspan,
        "type=erspan options:key=100 options:erspan_ver=2 options:erspan_dir=1 \
         options:erspan_hwid=4",
        "erspan local THEIRS remote OURS seq key 100 erspan_ver 2 erspan_dir egress erspan_hwid 7",
    );
    ip6erspan_version_1: Tunnel::new(
        Kind::Ip6Erspan,
        "type=ip6erspan options:key=100 options:erspan_ver=1 options:erspan_idx=3",
        "ip6erspan local THEIRS remote OURS seq key 100 erspan_ver 1 erspan 3 encaplimit none",
    ).over_ipv6();
    ip6erspan_version_2: Tunnel::new(
        Kind::Ip6Erspan,
        "type=ip6erspan options:key=100 options:erspan_ver=2 options:erspan_dir=0 \
         options:erspan_hwid=4",
        "ip6erspan local THEIRS remote OURS seq key 100 erspan_ver 2 erspan_dir ingress \
         erspan_hwid 7 encaplimit none",
    ).over_ipv6();
    gtpu: Tunnel::new(Kind::Gtpu, "type=gtpu options:key=100", "gtp role ggsn")
        .layer3()
        .by_context();
    bareudp: Tunnel::new(
        Kind::Bareudp,
        "type=bareudp options:dst_port=6635 options:payload_type=ip",
        "bareudp dstport 6635 ethertype ipv4",
    ).layer3().by_route();
}

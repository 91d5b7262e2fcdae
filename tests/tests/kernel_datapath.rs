// SPDX-License-Identifier: Apache-2.0
//! Bridges on `openvswitch.ko` (`other_config:system-datapath=kernel`). Needs root, and for most
//! tests the module: the guests of `cargo xtask vm` have it.

use slipswitch_tests::harness::{
    Host, Kind, Mode, Options, Switch, patient, skip, wait_until, without_root,
};
use std::time::Duration;

/// Time for a change to take effect, of `patient`.
const SOON: Duration = Duration::from_secs(10);

/// A switch that asks for the kernel's datapath, with a bridge `br0`; `None`: it said why not.
fn switch() -> Option<Switch> {
    if without_root() {
        return None;
    }
    let options = Options { kernel_datapath: true, ..Options::new(Kind::Slipswitch, Mode::Real) };
    let switch = Switch::with(options);
    // Loads the module where there is one.
    if !switch.netns().run("ovs-dpctl dump-dps").ok() || !has_module() {
        skip("the kernel has no openvswitch.ko");
        return None;
    }
    switch.vsctl("set open_vswitch . other_config:system-datapath=kernel -- add-br br0");
    Some(switch)
}

fn has_module() -> bool {
    std::path::Path::new("/sys/module/openvswitch").exists()
}

/// Two hosts on `br0`.
fn pair() -> Option<(Switch, Host, Host)> {
    let switch = switch()?;
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    let b = switch.host_on("br0", "h2", "10.0.0.2/24");
    assert_eq!(switch.vsctl("get interface h1 error"), "[]\n", "{}", switch.story());
    Some((switch, a, b))
}

/// The kernel's megaflows, as Open vSwitch's own tool shows them.
fn kernel_flows(switch: &Switch) -> String {
    switch.netns().sh("ovs-dpctl dump-flows -m system@ovs-system")
}

#[test]
fn without_the_module_the_interface_says_so_and_others_work() {
    if without_root() {
        return;
    }
    if has_module() {
        skip("the kernel has openvswitch.ko");
        return;
    }
    let options = Options { kernel_datapath: true, ..Options::new(Kind::Slipswitch, Mode::Real) };
    let switch = Switch::with(options);
    switch.vsctl("set open_vswitch . other_config:system-datapath=kernel -- add-br br0");
    let error = switch.vsctl("get interface br0 error");
    assert!(error.contains("openvswitch.ko is not loaded: run"), "{error}");
    switch.vsctl("add-br br1 -- set bridge br1 datapath_type=netdev");
    assert_eq!(switch.vsctl("get interface br1 error"), "[]\n");
    let a = switch.host_on("br1", "h1", "10.0.0.1/24");
    let _b = switch.host_on("br1", "h2", "10.0.0.2/24");
    assert!(a.reaches("10.0.0.2", patient(SOON)), "{}", switch.story());
    switch.vsctl("remove open_vswitch . other_config system-datapath");
    assert_eq!(switch.vsctl("get interface br0 error"), "[]\n");
}

#[test]
fn packets_go_through_the_kernel() {
    let Some((switch, a, _b)) = pair() else { return };
    assert!(a.reaches("10.0.0.2", patient(SOON)), "{}", switch.story());
    assert_eq!(a.ping("10.0.0.2", 5), 5, "{}", switch.story());
    let flows = kernel_flows(&switch);
    assert!(flows.contains("in_port(h1)") && flows.contains("actions:h2"), "{flows}");
    let own = switch.appctl("dpctl/dump-flows system@ovs-system");
    assert!(own.contains("eth_type(0x0800)"), "{own}");
    assert_eq!(switch.appctl("dpctl/dump-flows netdev@ovs-netdev"), "");
    assert!(switch.appctl("dpctl/show system@ovs-system").contains(": h1\n"));
    assert!(switch.appctl("dpctl/show system@ovs-system").contains(": br0 (internal)\n"));
    let shown = switch.netns().sh("ovs-dpctl show");
    assert!(shown.contains("port 1:") && shown.contains("br0 (internal)"), "{shown}");
    // The bridge's own port is the kernel's device.
    let here = switch.netns();
    here.sh("ip addr add 10.0.0.9/24 dev br0 && ip link set br0 up");
    assert!(a.reaches("10.0.0.9", patient(SOON)), "{}", switch.story());
    assert_eq!(a.ping("10.0.0.9", 3), 3);
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn rules_change_what_the_kernel_does() {
    let Some((switch, a, _b)) = pair() else { return };
    assert!(a.reaches("10.0.0.2", patient(SOON)), "{}", switch.story());
    switch.flows("br0", "priority=5,icmp actions=drop\npriority=1 actions=normal\n");
    assert_eq!(a.ping("10.0.0.2", 2), 0, "all are lost: {}", kernel_flows(&switch));
    let stats = switch.ofctl("dump-flows br0 icmp");
    assert!(stats.contains("n_packets=2"), "{stats}");
    switch.flows(
        "br0",
        "priority=9,arp actions=normal\n\
         priority=5,ct_state=-trk,ip actions=ct(table=0)\n\
         priority=5,ct_state=+trk+new,ip,in_port=h1 actions=ct(commit),normal\n\
         priority=5,ct_state=+trk+est,ip actions=normal\n\
         priority=1 actions=drop\n",
    );
    assert_eq!(a.ping("10.0.0.2", 3), 3, "{}\n{}", kernel_flows(&switch), switch.story());
    let flows = kernel_flows(&switch);
    assert!(flows.contains("recirc(0x") && flows.contains("ct"), "{flows}");
    // Packets of a controller's.
    switch
        .ofctl("packet-out br0 in_port=controller,packet=ffffffffffff0200000000011234,actions=h2");
}

#[test]
fn rules_that_leave_vlan_headers_open_have_megaflows() {
    let Some((switch, a, _b)) = pair() else { return };
    assert!(a.reaches("10.0.0.2", patient(SOON)), "{}", switch.story());
    switch.flows("br0", "in_port=h1 actions=h2\nin_port=h2 actions=h1\n");
    let misses = || {
        let show = switch.appctl("dpctl/show system@ovs-system");
        let word = show.split_whitespace().find_map(|word| word.strip_prefix("missed:"));
        word.and_then(|n| n.parse::<u32>().ok()).unwrap_or_else(|| panic!("{show}"))
    };
    assert_eq!(a.ping("10.0.0.2", 1), 1);
    let before = misses();
    assert_eq!(a.ping("10.0.0.2", 10), 10);
    // ARP may make one in each direction.
    assert!(misses() - before <= 4, "{before}, {}: {}", misses(), kernel_flows(&switch));
}

#[test]
fn megaflows_outlive_the_daemon_and_are_adopted() {
    let Some((mut switch, a, _b)) = pair() else { return };
    assert!(a.reaches("10.0.0.2", patient(SOON)), "{}", switch.story());
    assert_eq!(a.ping("10.0.0.2", 2), 2);
    switch.kill_daemon();
    assert_eq!(a.ping("10.0.0.2", 3), 3, "the kernel goes on: {}", kernel_flows(&switch));
    switch.start_daemon();
    assert_eq!(a.ping("10.0.0.2", 3), 3, "{}", switch.story());
    let ports = switch.netns().sh("ovs-dpctl show");
    assert!(ports.contains("port 1:"), "{ports}");
    switch.vsctl("del-port br0 h2");
    let is_gone = wait_until(patient(SOON), || !switch.netns().sh("ovs-dpctl show").contains("h2"));
    assert!(is_gone, "{}", switch.netns().sh("ovs-dpctl show"));
    switch.appctl("exit --cleanup");
    switch.wait_for_end();
    assert_eq!(switch.netns().run("ovs-dpctl dump-dps").stdout, "");
}

#[test]
fn open_vswitch_takes_the_datapath_over_and_gives_it_back() {
    let Some((mut switch, a, _b)) = pair() else { return };
    if testing::without_tool(&["ovs-vswitchd"]) {
        return;
    }
    let ports = |switch: &Switch| -> Vec<String> {
        let shown = switch.netns().sh("ovs-dpctl show");
        let lines = shown.lines().map(str::trim).filter(|line| line.starts_with("port "));
        lines.map(str::to_owned).collect()
    };
    assert!(a.reaches("10.0.0.2", patient(SOON)), "{}", switch.story());
    let before = ports(&switch);
    for kind in [Kind::RealOvs, Kind::Slipswitch] {
        switch.appctl("exit");
        switch.wait_for_end();
        let flows = kernel_flows(&switch);
        assert!(flows.contains("in_port(h1)"), "they are left: {flows}");
        assert_eq!(a.ping("10.0.0.2", 3), 3, "no daemon runs: {flows}");
        switch.set_kind(kind);
        switch.start_daemon();
        let program = switch.run("readlink /proc/$(cat ovs-vswitchd.pid)/exe");
        assert_eq!(program.contains("slipswitchd"), kind == Kind::Slipswitch, "{program}");
        assert!(a.reaches("10.0.0.2", patient(SOON)), "{}", switch.story());
        assert_eq!(a.ping("10.0.0.2", 3), 3, "{}", switch.story());
        assert_eq!(ports(&switch), before, "{}", switch.story());
        assert_eq!(switch.vsctl("get interface h1 error"), "[]\n", "{}", switch.story());
    }
    // The rules of this daemon are those that count.
    switch.flows("br0", "priority=5,icmp actions=drop\npriority=1 actions=normal\n");
    assert_eq!(a.ping("10.0.0.2", 2), 0, "all are lost: {}", kernel_flows(&switch));
}

#[test]
fn what_others_delete_comes_back() {
    let Some((switch, a, _b)) = pair() else { return };
    assert!(a.reaches("10.0.0.2", patient(SOON)), "{}", switch.story());
    let here = switch.netns();
    for deletion in ["del-if system@ovs-system h2", "del-dp system@ovs-system"] {
        here.sh(&format!("ovs-dpctl {deletion}"));
        assert!(a.reaches("10.0.0.2", patient(SOON)), "{deletion}: {}", switch.story());
        assert_eq!(a.ping("10.0.0.2", 3), 3, "{deletion}: {}", switch.story());
    }
    here.sh("ip addr add 10.0.0.9/24 dev br0 && ip link set br0 up");
    assert!(a.reaches("10.0.0.9", patient(SOON)), "{}", switch.story());
    let warnings = switch.warnings();
    for words in ["has removed port h2", "has deleted the datapath"] {
        assert!(warnings.iter().any(|line| line.contains(words)), "{words}: {warnings:#?}");
    }
    // The bridge may look for its own port while there is no datapath.
    let is_of_these = |line: &String| {
        line.contains("another program has") || line.contains("could not open network device br0")
    };
    assert!(warnings.iter().all(is_of_these), "{warnings:#?}");
}

#[test]
fn a_bridge_moves_between_the_datapaths() {
    let Some((switch, a, _b)) = pair() else { return };
    assert!(a.reaches("10.0.0.2", patient(SOON)), "{}", switch.story());
    switch.vsctl("set bridge br0 datapath_type=netdev");
    assert!(a.reaches("10.0.0.2", patient(SOON)), "{}", switch.story());
    assert!(!switch.netns().sh("ovs-dpctl show").contains("h1"));
    switch.vsctl("set bridge br0 datapath_type=system");
    assert!(a.reaches("10.0.0.2", patient(SOON)), "{}", switch.story());
    assert!(switch.netns().sh("ovs-dpctl show").contains("h1"));
    switch.vsctl(
        "--no-wait add-port br0 t0 -- set interface t0 type=gtpu options:remote_ip=10.9.9.9",
    );
    let error = || switch.vsctl("get interface t0 error");
    assert!(wait_until(patient(SOON), || error().contains("not made on openvswitch.ko")));
}

/// A tunnel between `br0` and a device of another host: the interface's type and options, the
/// device's, and the name of the kernel's port.
struct Tunnel {
    interface: &'static str,
    device: &'static str,
    port: &'static str,
}

const TUNNELS: [Tunnel; 3] = [
    Tunnel {
        interface: "type=vxlan options:key=7",
        device: "vxlan id 7 remote 192.168.9.1 dstport 4789",
        port: "vxlan_sys_4789",
    },
    Tunnel {
        interface: "type=geneve options:key=9 options:csum=true",
        device: "geneve id 9 remote 192.168.9.1 udpcsum",
        port: "genev_sys_6081",
    },
    Tunnel {
        interface: "type=gre options:key=5",
        device: "gretap key 5 local 192.168.9.2 remote 192.168.9.1",
        port: "gre_sys",
    },
];

#[test]
fn tunnels_of_the_kernel_reach_another_host() {
    let Some((mut switch, a, _b)) = pair() else { return };
    let far = Host::new(switch.netns(), "up0", "192.168.9.2/24");
    switch.netns().sh("ip addr add 192.168.9.1/24 dev up0");
    for Tunnel { interface, device, port } in TUNNELS {
        switch.vsctl(&format!(
            "add-port br0 t0 -- set interface t0 {interface} options:remote_ip=192.168.9.2"
        ));
        assert_eq!(switch.vsctl("get interface t0 error"), "[]\n", "{}", switch.story());
        far.netns.sh(&format!("ip link add k0 type {device}"));
        far.netns.sh("ip addr add 10.0.0.3/24 dev k0 && ip link set k0 mtu 1400 up");
        assert!(a.reaches("10.0.0.3", patient(SOON)), "{port}: {}", switch.story());
        assert_eq!(a.ping("10.0.0.3", 5), 5, "{port}: {}", kernel_flows(&switch));
        let flows = kernel_flows(&switch);
        assert!(flows.contains("actions:set(tunnel(tun_id="), "{flows}");
        assert!(flows.contains(&format!("in_port({port})")), "{flows}");
        let shown = switch.appctl("dpctl/show system@ovs-system");
        assert!(shown.contains(&format!(": {port} (")), "{shown}");
        // The host's own stack is not asked about the outer packets: no hidden port, no helper.
        assert_eq!(switch.appctl("slipswitch/tunnel-helpers").matches("slip").count(), 0);

        switch.kill_daemon();
        assert_eq!(a.ping("10.0.0.3", 3), 3, "{port}: {}", kernel_flows(&switch));
        switch.start_daemon();
        assert_eq!(a.ping("10.0.0.3", 3), 3, "{port}: {}", switch.story());

        switch.vsctl("del-port t0");
        let is_gone = || !switch.netns().run(&format!("ip link show {port}")).ok();
        assert!(wait_until(patient(SOON), is_gone), "{port} stays");
        far.netns.sh("ip link del k0");
    }
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn a_tunnel_moves_with_its_bridge_between_the_datapaths() {
    let Some((switch, a, _b)) = pair() else { return };
    let far = Host::new(switch.netns(), "up0", "192.168.9.2/24");
    switch.netns().sh("ip addr add 192.168.9.1/24 dev up0");
    let [Tunnel { interface, device, port }, ..] = TUNNELS;
    switch.vsctl(&format!(
        "add-port br0 t0 -- set interface t0 {interface} options:remote_ip=192.168.9.2"
    ));
    far.netns.sh(&format!("ip link add k0 type {device}"));
    far.netns.sh("ip addr add 10.0.0.3/24 dev k0 && ip link set k0 mtu 1400 up");
    let has_device = || switch.netns().run(&format!("ip link show {port}")).ok();
    for (kind, is_kernel) in [("system", true), ("netdev", false), ("system", true)] {
        switch.vsctl(&format!("set bridge br0 datapath_type={kind}"));
        assert!(a.reaches("10.0.0.3", patient(SOON)), "{kind}: {}", switch.story());
        assert_eq!(has_device(), is_kernel, "{kind}");
        assert_eq!(switch.vsctl("get interface t0 error"), "[]\n", "{}", switch.story());
    }
    switch.appctl("exit --cleanup");
    assert!(wait_until(patient(SOON), || !has_device()));
}

#[test]
fn packets_beyond_the_limit_of_an_interface_are_dropped() {
    let Some((switch, a, _b)) = pair() else { return };
    assert!(a.reaches("10.0.0.2", patient(SOON)), "{}", switch.story());
    let filters = || switch.netns().sh("tc filter show dev h1 ingress");
    // A bucket of 34 KB that hardly fills.
    switch.vsctl("set interface h1 ingress_policing_rate=1");
    assert!(filters().contains("police"), "{}", switch.story());
    let burst = a.netns.run("ping -q -c 60 -s 1400 -i 0.01 -W 1 10.0.0.2").stdout;
    let received = |text: &str| {
        let part = text.split(", ").find_map(|part| part.strip_suffix(" received"));
        part.and_then(|n| n.parse::<u32>().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    assert!((10..35).contains(&received(&burst)), "{burst}\n{}", filters());
    switch.vsctl("set interface h1 ingress_policing_rate=0");
    assert_eq!(filters(), "");
    assert_eq!(a.ping("10.0.0.2", 5), 5, "{}", switch.story());
    // One in packets next to a filter of another program.
    switch.netns().sh("tc qdisc add dev h1 clsact");
    switch.netns().sh("tc filter add dev h1 ingress prio 9 matchall action pass");
    switch.vsctl("set interface h1 ingress_policing_kpkts_rate=1");
    assert!(filters().contains("pkts_rate 1000"), "{}", filters());
    switch.vsctl("set interface h1 ingress_policing_kpkts_rate=0");
    assert!(filters().contains("pref 9") && !filters().contains("police"), "{}", filters());
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn zones_of_the_kernel_have_the_limits_of_the_switch() {
    let Some((mut switch, a, _b)) = pair() else { return };
    assert!(a.reaches("10.0.0.2", patient(SOON)), "{}", switch.story());
    let limits = |switch: &Switch| switch.appctl("dpctl/ct-get-limits system@ovs-system");
    switch.appctl("dpctl/ct-set-limits default=100 zone=5,limit=2 zone=6,limit=7");
    assert_eq!(
        limits(&switch),
        "default limit=100\nzone=5,limit=2,count=0\nzone=6,limit=7,count=0\n"
    );
    switch.flows(
        "br0",
        "priority=9,arp actions=normal\n\
         priority=5,ct_state=-trk,ip actions=ct(table=0,zone=5)\n\
         priority=5,ct_state=+trk+new,ip,in_port=h1 actions=ct(commit,zone=5),normal\n\
         priority=5,ct_state=+trk+est,ip actions=normal\n\
         priority=1 actions=drop\n",
    );
    // Each ping is a connection: the third one is beyond the limit.
    assert_eq!((0..3).map(|_| a.ping("10.0.0.2", 1)).collect::<Vec<_>>(), [1, 1, 0]);
    let shown = switch.appctl("dpctl/ct-get-limits system@ovs-system zone=5");
    assert!(shown.contains("zone=5,limit=2,count=2"), "{shown}");
    switch.appctl("dpctl/ct-del-limits zone=5");
    assert_eq!(a.ping("10.0.0.2", 1), 1, "{}", switch.story());
    assert_eq!(limits(&switch), "default limit=100\nzone=6,limit=7,count=0\n");
    // Limits of commands end with the daemon.
    switch.kill_daemon();
    switch.start_daemon();
    assert_eq!(limits(&switch), "default limit=0\n");
}

#[test]
fn connections_of_the_kernel_are_shown_and_flushed() {
    let Some((switch, a, _b)) = pair() else { return };
    assert!(a.reaches("10.0.0.2", patient(SOON)), "{}", switch.story());
    switch.flows(
        "br0",
        "priority=9,arp actions=normal\n\
         priority=5,ct_state=-trk,ip actions=ct(table=0,zone=5)\n\
         priority=5,ct_state=+trk+new,ip,in_port=h1 actions=ct(commit,zone=5,exec(load:3->NXM_NX_CT_MARK[])),normal\n\
         priority=5,ct_state=+trk+est,ip actions=normal\n\
         priority=1 actions=drop\n",
    );
    assert_eq!(a.ping("10.0.0.2", 1), 1, "{}", switch.story());
    let dump = || switch.appctl("dpctl/dump-conntrack system@ovs-system zone=5");
    let shown = dump();
    assert!(shown.contains("icmp,orig=(src=10.0.0.1,dst=10.0.0.2,id="), "{shown}");
    assert!(shown.contains(",zone=5,mark=3"), "{shown}");
    assert_eq!(switch.appctl("dpctl/dump-conntrack netdev@ovs-netdev"), "");
    switch.appctl("dpctl/flush-conntrack system@ovs-system zone=6");
    assert_eq!(dump().lines().count(), 1, "of another zone");
    switch.appctl("dpctl/flush-conntrack system@ovs-system ct_nw_src=10.0.0.1,ct_nw_proto=1");
    assert_eq!(dump(), "");
    assert_eq!(a.ping("10.0.0.2", 1), 1, "{}", switch.story());
    // As OVN does.
    switch.ofctl("ct-flush-zone br0 5");
    assert!(wait_until(patient(SOON), || dump().is_empty()), "{}", dump());
}

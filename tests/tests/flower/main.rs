// SPDX-License-Identifier: Apache-2.0
//! Flows of ports with `other_config:tier=tc` in filters that the kernel runs: the daemon over veth
//! pairs, with no card. The kernels of the guests have `cls_flower`: `cargo xtask vm --test flower`.

use slipswitch_tests::harness::{
    Host, Kind, Mode, Switch, skip, wait_until, without_root, without_tool,
};
use std::process::Command;
use std::time::Duration;

/// How long something may take that should be there at once.
const SOON: Duration = Duration::from_secs(10);

/// The rules of most tests.
const TWO_WAY: &str = "priority=10,icmp,in_port=p1,actions=p2
                       priority=10,icmp,in_port=p2,actions=p1
                       priority=1,actions=NORMAL";

/// A switch with a bridge `br0`, and the hosts 10.0.0.1 and 10.0.0.2 at its ports.
struct Site {
    switch: Switch,
    a: Host,
    b: Host,
}

impl Site {
    /// Starts a switch whose ports ask for filters in the kernel.
    fn new() -> Option<Site> {
        if without_root() || without_tool(&["ip", "tc", "ping", "fping", "ovs-vsctl"]) {
            return None;
        }
        let modules =
            "modprobe -a cls_flower sch_ingress act_mirred act_vlan act_gact act_pedit act_csum";
        let is_there = Command::new("sh").args(["-c", modules]).status();
        if !is_there.is_ok_and(|status| status.success()) {
            skip("this kernel has no cls_flower: `cargo xtask vm` has kernels with it");
            return None;
        }
        let switch = Switch::start(Kind::under_test(), Mode::Real);
        switch.vsctl("set Open_vSwitch . other_config:hw-offload=true");
        switch.vsctl("add-br br0");
        let host = |n: u32| {
            let name = format!("p{n}");
            let host = Host::new(switch.netns(), &name, &format!("10.0.0.{n}/24"));
            switch.vsctl(&format!(
                "add-port br0 {name} -- set Interface {name} other_config:tier=tc"
            ));
            host
        };
        let (a, b) = (host(1), host(2));
        Some(Site { switch, a, b })
    }

    fn filters(&self, port: &str) -> String {
        self.switch.netns().sh(&format!("tc -s filter show dev {port} ingress || true"))
    }

    /// The verbose lines of the megaflows of a kind that hold all of `parts`.
    fn megaflows_of(&self, kind: &str, parts: &[&str]) -> Vec<String> {
        let text = self.switch.appctl(&format!("dpctl/dump-flows -m type={kind}"));
        let lines = text.lines().map(|line| format!("{line},"));
        lines.filter(|line| parts.iter().all(|part| line.contains(part))).collect()
    }

    fn megaflows(&self, parts: &[&str]) -> Vec<String> {
        self.megaflows_of("all", parts)
    }

    /// Sends packets until a megaflow's line holds all of `parts`: megaflows without packets end.
    #[track_caller]
    fn sees(&self, parts: &[&str]) {
        let seen = wait_until(SOON, || {
            self.a.ping("10.0.0.2", 2);
            !self.megaflows(parts).is_empty()
        });
        assert!(
            seen,
            "no megaflow with {parts:?}:\n{}\n{}\n{}\n{}",
            self.megaflows(&[]).join("\n"),
            self.filters("p1"),
            self.switch.appctl("dpctl/offload-stats-show"),
            self.switch.story(),
        );
    }

    /// Sees both directions in filters.
    #[track_caller]
    fn warm(&self) {
        assert!(self.a.reaches("10.0.0.2", SOON), "{}", self.switch.story());
        self.sees(&["in_port(p1)", "icmp", "dp:tc,"]);
        self.sees(&["in_port(p2)", "icmp", "dp:tc,"]);
    }
}

/// Returns the echo requests that a host has received, by its kernel's count.
fn requests(host: &Host) -> u64 {
    host.netns.snmp("Icmp", "InEchos")
}

#[test]
fn flows_run_in_filters_of_the_kernel_and_are_counted_exactly() {
    let Some(site) = Site::new() else { return };
    site.switch.flows("br0", TWO_WAY);
    site.warm();
    let filters = site.filters("p1");
    assert!(filters.contains("not_in_hw") && !filters.contains("skip_sw"), "{filters}");
    let received = requests(&site.b);
    assert_eq!(site.a.ping("10.0.0.2", 20), 20);
    let requests = requests(&site.b);
    assert_eq!(requests - received, 20, "each request comes once");
    let counts = || site.switch.counts("br0 icmp,in_port=p1");
    // 14 bytes of Ethernet, 20 of IPv4, 8 of ICMP and 56 of payload.
    let wanted = (requests, requests * 98);
    assert!(wait_until(SOON, || counts() == wanted), "{:?} and not {wanted:?}", counts());
    assert!(!site.megaflows_of("tc", &["offloaded:no, dp:tc,"]).is_empty());
    assert!(!site.megaflows_of("non-offloaded", &["dp:tc,"]).is_empty());
    for kind in ["offloaded", "ovs"] {
        assert!(site.megaflows_of(kind, &["dp:tc,"]).is_empty(), "{kind}");
    }

    /// Returns the echo requests that a host has received, by its kernel's count.
    fn requests(host: &Host) -> u64 {
        host.netns.snmp("Icmp", "InEchos")
    }
    let tiers = site.switch.appctl("slipswitch/tiers");
    assert!(tiers.contains("in the kernel"), "{tiers}");
    assert_eq!(site.switch.warnings(), Vec::<String>::new());
}

#[test]
fn a_miss_of_the_filters_reaches_userspace_once() {
    let Some(site) = Site::new() else { return };
    // Each address has a rule and a megaflow of its own.
    site.b.netns.sh("for n in $(seq 10 39); do ip addr add 10.0.0.$n/24 dev eth0; done");
    let rules: String =
        (10..40).map(|n| format!("priority=10,icmp,nw_dst=10.0.0.{n},actions=p2\n")).collect();
    site.switch.flows("br0", &format!("{rules}priority=1,actions=NORMAL"));
    assert!(site.a.reaches("10.0.0.2", SOON), "{}", site.switch.story());
    let received = requests(&site.b);
    for n in 10..40 {
        assert_eq!(site.a.ping(&format!("10.0.0.{n}"), 1), 1);
    }
    assert_eq!(requests(&site.b) - received, 30, "each request comes once");
}

#[test]
fn rules_change_under_traffic_without_loss() {
    let Some(site) = Site::new() else { return };
    site.switch.flows("br0", TWO_WAY);
    site.warm();
    let load = site.a.pinging("10.0.0.2", 2);
    for _ in 0..3 {
        site.switch.ofctl("add-flow br0 priority=20,icmp,in_port=p1,actions=mod_nw_tos:32,p2");
        site.sees(&["in_port(p1)", "icmp", "dp:tc,", "tos="]);
        site.switch.ofctl("--strict del-flows br0 priority=20,icmp,in_port=p1");
        site.sees(&["in_port(p1)", "icmp", "dp:tc,", "actions:p2"]);
    }
    let echoes = load.join().expect("fping runs");
    assert_eq!(echoes.lost(), 0, "{}", echoes.said);
}

#[test]
fn policies_decide_who_runs_filters() {
    let Some(site) = Site::new() else { return };
    site.switch.flows("br0", TWO_WAY);
    site.warm();
    site.switch.vsctl("set Open_vSwitch . other_config:tc-policy=skip_hw");
    let skips = wait_until(SOON, || {
        site.a.ping("10.0.0.2", 2);
        site.filters("p1").contains("skip_hw")
    });
    assert!(skips, "{}", site.filters("p1"));
    assert_eq!(site.a.ping("10.0.0.2", 10), 10);
    site.switch.vsctl("set Open_vSwitch . other_config:tc-policy=skip_sw");
    site.sees(&["in_port(p1)", "icmp", "dp:tcx", "device-kind"]);
    assert!(!site.filters("p1").contains("flower"), "{}", site.filters("p1"));
    site.switch.vsctl("remove Open_vSwitch . other_config tc-policy");
    site.warm();
    site.switch.vsctl("remove Interface p1 other_config tier");
    site.sees(&["in_port(p1)", "icmp", "dp:tcx"]);
    site.sees(&["in_port(p2)", "icmp", "dp:tc,"]);
    assert!(!site.filters("p1").contains("flower"), "{}", site.filters("p1"));
    site.switch.vsctl("set Open_vSwitch . other_config:hw-offload=false");
    site.sees(&["in_port(p2)", "icmp", "dp:tcx", "tier-disabled"]);
    assert!(!site.filters("p2").contains("flower"), "{}", site.filters("p2"));
}

#[test]
fn without_bpf_no_filter_takes_what_the_socket_has() {
    let Some(site) = Site::new() else { return };
    site.switch.flows("br0", TWO_WAY);
    site.warm();
    site.switch.vsctl("set Open_vSwitch . other_config:bpf-offload=false");
    site.sees(&["in_port(p1)", "icmp", "dp:userspace", "tier-unavailable"]);
    assert!(!site.filters("p1").contains("flower"), "{}", site.filters("p1"));
    let received = requests(&site.b);
    assert_eq!(site.a.ping("10.0.0.2", 10), 10);
    assert_eq!(requests(&site.b) - received, 10, "each request comes once");
    site.switch.vsctl("set Open_vSwitch . other_config:bpf-offload=true");
    site.warm();
    let received = requests(&site.b);
    assert_eq!(site.a.ping("10.0.0.2", 10), 10);
    assert_eq!(requests(&site.b) - received, 10, "each request comes once");
}

#[test]
fn filters_of_a_killed_daemon_forward_and_the_next_one_replaces_them() {
    let Some(mut site) = Site::new() else { return };
    site.switch.flows("br0", TWO_WAY);
    site.warm();
    site.switch.netns().sh("tc filter add dev p1 ingress prio 7 protocol ip flower \
                            dst_ip 1.2.3.4 action drop");
    site.switch.kill_daemon();
    assert!(site.filters("p1").contains("not_in_hw"), "{}", site.filters("p1"));
    assert_eq!(site.a.ping("10.0.0.2", 5), 5, "the kernel goes on");
    site.switch.start_daemon();
    assert!(site.switch.log().contains("filters that an earlier daemon left"));
    site.switch.flows("br0", TWO_WAY);
    site.warm();
    assert!(site.filters("p1").contains("1.2.3.4"), "the filter of another program stays");
    let received = requests(&site.b);
    assert_eq!(site.a.ping("10.0.0.2", 10), 10);
    assert_eq!(requests(&site.b) - received, 10, "each request comes once");
    site.switch.vsctl("del-port br0 p1");
    let gone = wait_until(SOON, || !site.filters("p1").contains("icmp"));
    assert!(gone, "{}", site.filters("p1"));
}

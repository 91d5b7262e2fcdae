// SPDX-License-Identifier: Apache-2.0
//! `slipswitch xdp-flow` with real filters of `tc`, which need a kernel with the classifier flower:
//! `cargo xtask vm --test xdp_flow`.

use serde_json::Value;
use slipswitch_tests::harness::{
    Host, Netns, Process, Resident, Sandbox, skip, tool_program, wait_until, without_root,
    without_tool,
};
use std::process::Command;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

/// Two hosts whose cables end in one namespace. Filters there are all that forwards between them.
struct Site {
    sandbox: Sandbox,
    netns: Netns,
    a: Host,
    b: Host,
    /// A process in each host: by it the agent finds the other end of a cable.
    _residents: [Resident; 2],
}

impl Site {
    /// `None`, after saying so, where the kernel has no flower.
    fn new() -> Option<Site> {
        if without_root() || without_tool(&["ip", "tc", "ethtool", "fping", "modprobe", "python3"])
        {
            return None;
        }
        let modules = ["-q", "-a", "cls_flower", "act_mirred", "act_vlan", "act_gact", "act_pedit"];
        // cls_u32 and act_csum are loaded by `tc`.
        if !Command::new("modprobe").args(modules).status().is_ok_and(|status| status.success()) {
            skip("this kernel has no classifier flower");
            return None;
        }
        let netns = Netns::new();
        let host = |name: &str, address: &str| {
            let host = Host::new(&netns, name, address);
            // As a network delivers frames, and so that the ends receive what XDP redirects.
            host.netns
                .sh("ethtool -K eth0 tx off tso off gro on txvlan off tx-vlan-stag-hw-insert off");
            netns.sh(&format!("ethtool -K {name} gro on && tc qdisc add dev {name} clsact"));
            host
        };
        let (a, b) = (host("pa", "10.0.0.1/24"), host("pb", "10.0.0.2/24"));
        let resident = |host: &Host| Resident::of(&host.netns).expect("util-linux is installed");
        let residents = [resident(&a), resident(&b)];
        Some(Site { sandbox: Sandbox::new(), netns, a, b, _residents: residents })
    }

    /// Filters that forward IPv4 and ARP both ways.
    fn forward(&self) {
        for (from, to) in [("pa", "pb"), ("pb", "pa")] {
            for (pref, protocol) in [(10, "ip"), (11, "arp")] {
                self.tc(&format!(
                    "add dev {from} ingress pref {pref} protocol {protocol} flower \
                     action mirred egress redirect dev {to}"
                ));
            }
        }
    }

    #[track_caller]
    fn tc(&self, line: &str) {
        self.netns.sh(&format!("tc filter {line}"));
    }

    fn agent(&self, arguments: &str) -> Process {
        self.start("agent", &format!("xdp-flow {arguments}"))
    }

    fn start(&self, name: &str, arguments: &str) -> Process {
        let tool = tool_program().display().to_string();
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        Process::start(&self.sandbox, Some(&self.netns), name, &tool, &arguments)
    }

    /// The agent's report on a device; null when none answers.
    fn report(&self, device: &str) -> Value {
        let tool = tool_program();
        let out = self.sandbox.sh(&format!("{} xdp-flow show -j {device}", tool.display()));
        let report: Value = serde_json::from_str(&out.stdout).unwrap_or_default();
        report["devices"][0].clone()
    }

    /// Waits until this many filters of `pa` and of `pb` run at XDP.
    #[track_caller]
    fn serves(&self, count: usize) {
        let at_xdp = |device: &str| {
            let report = self.report(device);
            let filters = report["filters"].as_array().cloned().unwrap_or_default();
            filters.iter().filter(|filter| filter["at_xdp"] == true).count()
        };
        let ready = wait_until(SOON, || at_xdp("pa") == count && at_xdp("pb") == count);
        assert!(ready, "{:#}\n{:#}\n{}", self.report("pa"), self.report("pb"), self.log());
    }

    /// Sends until the first filter of each device has run `count` packets of one `send` at XDP, and none
    /// in tc. Filters that change in another namespace make XDP pass packets until the agent has looked.
    #[track_caller]
    fn runs_all(&self, devices: &[&str], count: u64, send: impl Fn()) {
        let counts = |by: &str| -> Vec<u64> {
            let of = |device: &&str| self.report(device)["filters"][0][by]["packets"].as_u64();
            devices.iter().map(|device| of(device).unwrap_or_default()).collect()
        };
        let all_run = || {
            let (xdp, tc) = (counts("xdp"), counts("tc"));
            send();
            let ran =
                counts("xdp").iter().zip(&xdp).all(|(after, before)| *after >= before + count);
            ran && counts("tc") == tc
        };
        let reports =
            || devices.iter().map(|d| format!("{:#}", self.report(d))).collect::<String>();
        assert!(wait_until(SOON, all_run), "{}", reports());
    }

    fn log(&self) -> String {
        self.sandbox.read("agent.err")
    }

    /// Packets of `pa` that ran at XDP.
    fn ran(&self) -> u64 {
        self.report("pa")["packets"]["ran"].as_u64().unwrap_or_default()
    }
}

#[test]
fn filters_of_tc_run_at_xdp_and_are_counted_there() {
    let Some(site) = Site::new() else { return };
    site.forward();
    let _agent = site.agent("--refresh 0 pa pb");
    site.serves(2);
    let first = || site.report("pa")["filters"][0].clone();
    let ip = first();
    assert_eq!((ip["pref"].as_u64(), ip["kind"].as_str()), (Some(10), Some("flower")));
    let send = || assert_eq!(site.a.ping("10.0.0.2", 20), 20, "{:#}", site.report("pa"));
    site.runs_all(&["pa"], 20, send);
    // A filter in front that XDP does not run takes its packets out.
    let line = "u32 match u32 0 0 action mirred egress redirect dev pb";
    site.tc(&format!("add dev pa ingress pref 5 protocol ip {line}"));
    let ran = site.ran();
    assert_eq!(site.a.ping("10.0.0.2", 5), 5);
    assert_eq!(site.ran(), ran, "{:#}", site.report("pa"));
    let reason = site.report("pa")["filters"][0]["reason"].to_string();
    assert!(reason.contains("u32"), "{reason}");
}

#[test]
fn tags_and_addresses_are_rewritten_as_by_tc() {
    let Some(site) = Site::new() else { return };
    for host in [&site.a, &site.b] {
        host.netns.sh("ip link add link eth0 name eth0.5 type vlan id 5");
    }
    // The host at `pb` has VLAN 5 and another address.
    site.b
        .netns
        .sh("ip addr flush dev eth0; ip addr add 10.0.0.9/24 dev eth0.5; ip link set eth0.5 up");
    let mac = site.b.netns.mac("eth0");
    site.a.netns.sh(&format!("ip neigh replace 10.0.0.2 lladdr {mac} dev eth0"));
    let mac = site.a.netns.mac("eth0");
    site.b.netns.sh(&format!("ip neigh replace 10.0.0.1 lladdr {mac} dev eth0.5"));
    site.tc("add dev pa ingress pref 1 protocol ip flower dst_ip 10.0.0.2 ip_proto icmp \
             action pedit ex munge ip dst set 10.0.0.9 pipe csum ip4h icmp pipe \
             vlan push id 5 pipe mirred egress redirect dev pb");
    site.tc("add dev pb ingress pref 1 protocol 802.1Q flower vlan_id 5 vlan_ethtype ip \
             src_ip 10.0.0.9 ip_proto icmp action vlan pop pipe \
             mirred egress redirect dev pa");
    site.tc("add dev pa ingress pref 2 protocol ip flower skip_hw ip_proto udp action drop");
    let _agent = site.agent("--refresh 0 pa pb");
    let ready = wait_until(SOON, || {
        let of = |d: &str| site.report(d)["filters"][0]["at_xdp"] == true;
        of("pa") && of("pb")
    });
    assert!(ready, "{:#} {:#}", site.report("pa"), site.report("pb"));
    // The answers come from another address, which `ping` does not take: they are counted at `pb`.
    site.runs_all(&["pa", "pb"], 10, || _ = site.a.ping("10.0.0.2", 10));
}

#[test]
fn a_changed_filter_never_runs_as_it_was() {
    let Some(site) = Site::new() else { return };
    site.forward();
    let _agent = site.agent("pa pb");
    site.serves(2);
    assert_eq!(site.a.ping("10.0.0.2", 5), 5);
    let before = site.ran();
    for _ in 0..10 {
        // When `tc` returns, no packet may pass, and then each.
        site.tc("add dev pa ingress pref 1 protocol ip flower ip_proto icmp action drop");
        assert_eq!(site.a.ping("10.0.0.2", 2), 0, "{:#}", site.report("pa"));
        site.tc("del dev pa ingress pref 1");
        assert_eq!(site.a.ping("10.0.0.2", 2), 2, "{:#}", site.report("pa"));
    }
    // A chain that is not there yet, the qdisc, and an action that filters share.
    site.tc("add dev pa ingress pref 1 protocol ip flower ip_proto icmp action goto chain 7");
    assert_eq!(site.a.ping("10.0.0.2", 2), 0);
    site.tc(
        "add dev pa ingress chain 7 pref 1 protocol ip flower action mirred egress redirect dev pb",
    );
    assert_eq!(site.a.ping("10.0.0.2", 2), 2);
    site.serves_both_later();
    site.netns.sh("tc qdisc del dev pa clsact");
    assert_eq!(site.a.ping("10.0.0.2", 2), 0);
    assert!(site.ran() > before);
}

impl Site {
    /// Waits until the agent has read that the first filter of `pa` is of this classifier.
    #[track_caller]
    fn serves_only(&self, kind: &str) {
        let is_read = wait_until(SOON, || self.report("pa")["filters"][0]["kind"] == kind);
        assert!(is_read, "{:#}", self.report("pa"));
    }

    /// Waits until packets of `pa` run at XDP.
    #[track_caller]
    fn serves_both_later(&self) {
        let before = self.ran();
        let runs = wait_until(SOON, || {
            self.a.ping("10.0.0.2", 3);
            self.ran() > before
        });
        assert!(runs, "{:#}", self.report("pa"));
    }
}

#[test]
fn tc_goes_on_alone_when_the_agent_hangs_or_dies() {
    let Some(site) = Site::new() else { return };
    site.forward();
    let mut agent = site.agent("--refresh 0 pa pb");
    site.serves(2);
    let load = site.a.pinging("10.0.0.2", 3);
    agent.signal("STOP");
    std::thread::sleep(Duration::from_millis(1500));
    // The agent cannot read it, and XDP runs nothing any more.
    site.tc("add dev pa ingress pref 1 protocol ip flower dst_ip 10.0.0.77 action drop");
    let counted = |pref: u32| {
        let text = site.netns.sh(&format!("tc -s -j filter show dev pa ingress pref {pref}"));
        let shown: Value = serde_json::from_str(&text).unwrap_or_default();
        let actions = shown
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|f| f["options"]["actions"][0]["stats"]["packets"].as_u64());
        actions.sum::<u64>()
    };
    let before = counted(10);
    assert!(wait_until(SOON, || counted(10) > before), "tc forwards");
    agent.signal("CONT");
    site.serves_both_later();
    agent.kill();
    let echoes = load.join().expect("fping runs");
    assert_eq!(echoes.lost(), 0, "{}", echoes.said);
    assert_eq!(site.a.ping("10.0.0.2", 5), 5, "tc forwards alone");
    assert!(!site.netns.sh("ip link show dev pa").contains("xdp"));
}

/// An agent that begins or ends to trace the kernel's functions makes changes that are under way end
/// without a trace for the others.
#[test]
fn another_agent_may_start_and_end_while_filters_change() {
    let Some(site) = Site::new() else { return };
    site.forward();
    site.netns.sh("ip link add spare type veth peer name other");
    let _agent = site.agent("--refresh 0 pa pb");
    site.serves(2);
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            site.netns.sh(
                "for n in $(seq 100); do \
                 tc filter replace dev other ingress pref 1 handle 1 protocol ip flower action drop \
                 2>/dev/null || tc qdisc replace dev other clsact; done",
            );
        });
        let own = site.sandbox.dir().join("other");
        while !changes.is_finished() {
            let mut other = site.start("other", &format!("--dir {} xdp-flow spare", own.display()));
            let socket = own.join("slipswitch-xdp-flow.ctl");
            assert!(wait_until(SOON, || socket.exists() || other.ended().is_some()));
            other.signal("TERM");
            assert!(other.wait(SOON).is_some());
        }
        changes.join().expect("filters change");
    });
    // A lost end is known after ten seconds.
    let before = site.ran();
    let runs = wait_until(3 * SOON, || {
        site.a.ping("10.0.0.2", 3);
        site.ran() > before
    });
    assert!(runs, "{:#}", site.report("pa"));
    // And a change is waited for as before.
    site.tc("add dev pa ingress pref 1 protocol ip flower ip_proto icmp action drop");
    assert_eq!(site.a.ping("10.0.0.2", 2), 0, "{:#}", site.report("pa"));
}

/// The kernel copies packets for generic XDP, and traffic control must still forward what it passes.
#[test]
fn after_the_driver_packets_run_at_xdp_or_in_tc() {
    let Some(site) = Site::new() else { return };
    site.netns.sh("ethtool -K pa gro off; ethtool -K pb gro off");
    site.forward();
    let _agent = site.agent("--generic --refresh 0 pa pb");
    site.serves(2);
    assert_eq!(site.a.ping("10.0.0.2", 5), 5, "{:#}", site.report("pa"));
    let line = "u32 match u32 0 0 action mirred egress redirect dev pb";
    site.tc(&format!("add dev pa ingress pref 5 protocol ip {line}"));
    site.serves_only("u32");
    let ran = site.ran();
    assert_eq!(site.a.ping("10.0.0.2", 5), 5, "{:#}", site.report("pa"));
    assert_eq!(site.ran(), ran, "{:#}", site.report("pa"));
}

/// `act_csum` drops a packet that is shorter than its IP header says.
#[test]
fn a_packet_with_a_wrong_length_meets_the_action_of_tc() {
    let Some(site) = Site::new() else { return };
    site.tc("add dev pa ingress pref 1 protocol ip flower dst_ip 10.0.0.2 ip_proto udp \
             action pedit ex munge ip dst set 10.0.0.9 pipe csum ip4h udp pipe \
             mirred egress redirect dev pb");
    let _agent = site.agent("--refresh 0 pa pb");
    let ready = wait_until(SOON, || site.report("pa")["filters"][0]["at_xdp"] == true);
    assert!(ready, "{:#}", site.report("pa"));
    // The length of IP is 48, and 36 bytes are there.
    let frame = "020000000001 020000000002 0800 4500003000010000401126ba0a0000010a000002 \
                 0007000900100000 7061796c6f616421";
    let send = format!(
        "import socket\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
         s.bind(('eth0', 0))\ns.send(bytes.fromhex('{frame}'))\n"
    );
    let program = site.sandbox.write("send.py", send);
    let passed = || site.report("pa")["packets"]["wrong-length"].as_u64();
    site.a.netns.sh(&format!("python3 {}", program.display()));
    assert!(wait_until(SOON, || passed() == Some(1)), "{:#}", site.report("pa"));
    let filter = &site.report("pa")["filters"][0];
    assert_eq!((&filter["xdp"]["packets"], &filter["tc"]["packets"]), (&0.into(), &1.into()));
}

#[test]
fn what_cannot_be_served_is_explained() {
    let Some(site) = Site::new() else { return };
    let mut agent = site.agent("nonesuch");
    assert!(agent.wait(SOON).is_some_and(|status| !status.success()));
    assert!(site.log().contains("there is no device nonesuch"), "{}", site.log());
    site.forward();
    site.a.netns.sh("ethtool -K eth0 tx on");
    let _agent = site.agent("pa pb");
    let explained = wait_until(SOON, || {
        site.report("pa")["problem"].as_str().is_some_and(|words| words.contains("tx off"))
    });
    assert!(explained, "{:#} {}", site.report("pa"), site.log());
    assert_eq!(site.a.ping("10.0.0.2", 5), 5);
    let mut second = site.agent("pb");
    assert!(second.wait(SOON).is_some_and(|status| !status.success()));
    assert!(site.log().contains("an agent runs already"), "{}", site.log());
}

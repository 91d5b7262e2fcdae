// SPDX-License-Identifier: Apache-2.0
//! Frames that enter the other end of a veth pair at once (`bpf_redirect_peer`), and each thing for
//! which they pass the port's device as ever.

use crate::tools::{SOON, in_kernel, pair, tcp, warm};
use slipswitch_tests::harness::{Capture, Host, Netns, Switch, skip, wait_until, without_tool};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The line of `slipswitch/tiers` about a port's other end.
const ENTERS: &str = "enter the other end at once";

/// A switch whose port `h2` enters host b at once, with flows in both directions.
fn entering() -> Option<(Switch, Host, Host)> {
    let (switch, a, b) = pair()?;
    warm(&a, "10.0.0.2");
    in_kernel(&switch, ["h1", "h2"]);
    reports(&switch, ENTERS);
    Some((switch, a, b))
}

/// Waits until the report about `h2` contains `part`.
#[track_caller]
fn reports(switch: &Switch, part: &str) {
    let tiers = || switch.appctl("slipswitch/tiers h2");
    let is_so = wait_until(SOON, || tiers().contains(part));
    assert!(is_so, "no {part:?} in\n{}", tiers());
}

/// Packets that the device `h2` itself has sent.
fn device_sent(switch: &Switch) -> u64 {
    counter(switch, "awk '/^ *h2:/ { print $11 }' /proc/net/dev")
}

fn counter(switch: &Switch, line: &str) -> u64 {
    switch.netns().sh(line).trim().parse().expect("a number")
}

/// Exchanges 20 echoes with b. All of them are answered, and the device sends all (`true`) or none.
#[track_caller]
fn exchanges(switch: &Switch, a: &Host, through_device: bool) {
    // Flows leave the hook while a port is attached again.
    in_kernel(switch, ["h1", "h2"]);
    let before = device_sent(switch);
    assert_eq!(a.ping("10.0.0.2", 20), 20);
    let sent = device_sent(switch) - before;
    // Neighbour solicitations and router solicitations are multicast, and pass the device.
    match through_device {
        true => assert!(sent >= 20, "the device sent {sent}"),
        false => assert!(sent < 20, "the device sent {sent}"),
    }
}

#[test]
fn frames_enter_the_other_end_and_are_counted() {
    let Some((switch, a, b)) = entering() else { return };
    let counted = || -> u64 {
        let text = switch.vsctl("get interface h2 statistics:tx_packets");
        text.trim().parse().expect("a number")
    };
    let before = counted();
    exchanges(&switch, &a, false);
    let is_counted = wait_until(SOON, || counted() >= before + 20);
    assert!(is_counted, "{before} before, {} after", counted());
    let (_, sent) = switch.port_counts("br0", "h2");
    assert!(sent >= before + 20, "{sent}");
    tcp(&a, &b, 20_000_000);
    tcp(&b, &a, 20_000_000);
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

/// The kernel takes every frame that enters at once for the host's own.
#[test]
fn a_frame_for_another_address_is_not_accepted() {
    let Some((switch, a, b)) = entering() else { return };
    switch.flows("br0", "in_port=h1,actions=h2\nin_port=h2,actions=h1");
    warm(&a, "10.0.0.2");
    exchanges(&switch, &a, false);
    let before = device_sent(&switch);
    a.netns.sh("ip neigh replace 10.0.0.2 lladdr 02:00:00:00:99:99 dev eth0 nud permanent");
    assert_eq!(a.ping("10.0.0.2", 10), 0);
    assert!(device_sent(&switch) >= before + 10);
    // The other end has that address now, and is followed.
    b.netns.sh("ip link set eth0 address 02:00:00:00:99:99");
    reports(&switch, "02:00:00:00:99:99 enter the other end");
    assert!(a.reaches("10.0.0.2", SOON));
    exchanges(&switch, &a, false);
}

#[test]
fn settings_of_a_port_and_of_all_switch_it_off() {
    let Some((switch, a, _b)) = entering() else { return };
    let off = "other_config:tcx-peer=false";
    switch.vsctl("set interface h2 other_config:tcx-peer=false");
    reports(&switch, off);
    exchanges(&switch, &a, true);
    switch.vsctl("set interface h2 other_config:tcx-peer=true");
    switch.vsctl("set open_vswitch . other_config:tcx-peer=false");
    reports(&switch, ENTERS);
    exchanges(&switch, &a, false);
    switch.vsctl("remove interface h2 other_config tcx-peer");
    reports(&switch, off);
    let explained = switch.appctl("slipswitch/explain br0 in_port=h1,ip,nw_dst=10.0.0.2");
    assert!(explained.contains("output to h2") && explained.contains(off), "{explained}");
    switch.vsctl("set interface h2 other_config:tcx-peer=perhaps");
    let error = switch.vsctl("get interface h2 error");
    assert!(error.contains("not one of true and false"), "{error}");
}

/// On its way through the device a frame's checksum would be finished.
#[test]
fn a_device_that_finishes_checksums_is_not_passed_over() {
    let Some((switch, a, _b)) = entering() else { return };
    if without_tool(&["ethtool"]) {
        return;
    }
    switch.netns().sh("ethtool -K h2 tx off");
    reports(&switch, "its device finishes checksums");
    exchanges(&switch, &a, true);
    switch.netns().sh("ethtool -K h2 tx on tso on");
    reports(&switch, ENTERS);
    exchanges(&switch, &a, false);
}

/// The kernel drops frames that would stay in the namespace.
#[test]
fn an_end_in_the_switchs_own_namespace_is_not_entered() {
    let Some((switch, a, _b)) = entering() else { return };
    switch
        .netns()
        .sh("ip link add near type veth peer name far; ip link set near up; ip link set far up; \
         ip addr add 10.0.0.9/24 dev far");
    switch.vsctl("add-port br0 near");
    assert!(a.reaches("10.0.0.9", SOON), "{}", switch.story());
    assert_eq!(a.ping("10.0.0.9", 20), 20);
    let tiers = switch.appctl("slipswitch/tiers near");
    assert!(tiers.contains("the switch's own network namespace"), "{tiers}");
    // It moves away and comes back.
    let other = Netns::new();
    let path = other.path();
    switch.netns().sh(&format!("ip link set far netns {}", path.display()));
    let moved = || switch.appctl("slipswitch/tiers near").contains(ENTERS);
    other.sh("ip addr add 10.0.0.9/24 dev far; ip link set far up");
    assert!(wait_until(SOON, moved), "{}", switch.appctl("slipswitch/tiers near"));
    assert!(a.reaches("10.0.0.9", SOON), "{}", switch.story());
    let home = switch.netns().path();
    other.sh(&format!("ip link set far netns {}", home.display()));
    switch.netns().sh("ip addr add 10.0.0.9/24 dev far; ip link set far up");
    assert!(a.reaches("10.0.0.9", SOON), "{}", switch.story());
    assert!(!moved());
}

#[test]
fn a_queueing_discipline_is_not_passed_over() {
    let Some((switch, a, _b)) = entering() else { return };
    if without_tool(&["tc"]) {
        return;
    }
    switch.netns().sh("tc qdisc add dev h2 root pfifo");
    reports(&switch, "queueing discipline, pfifo");
    exchanges(&switch, &a, true);
    let text = switch.netns().sh("tc -s qdisc show dev h2");
    let sent = text.split(" bytes ").nth(1).and_then(|t| t.split(' ').next()?.parse::<u64>().ok());
    assert!(sent.is_some_and(|sent| sent >= 20), "{text}");
    switch.netns().sh("tc qdisc del dev h2 root");
    reports(&switch, ENTERS);
    exchanges(&switch, &a, false);
}

#[test]
fn a_tc_filter_at_egress_is_not_passed_over() {
    let Some((switch, a, _b)) = entering() else { return };
    if without_tool(&["tc"]) {
        return;
    }
    switch.netns().sh("tc qdisc replace dev h2 clsact");
    let added = ["matchall action pass", "u32 match u32 0 0 action pass"].iter().any(|filter| {
        switch.netns().run(&format!("tc filter add dev h2 egress protocol all {filter}")).ok()
    });
    if !added {
        return skip("this kernel has neither the tc filter matchall nor u32");
    }
    reports(&switch, "a tc filter is at the egress");
    exchanges(&switch, &a, true);
    switch.netns().sh("tc filter del dev h2 egress");
    reports(&switch, ENTERS);
    exchanges(&switch, &a, false);
}

/// Events about a filter of a shared block name no device.
#[test]
fn a_tc_filter_in_a_shared_block_is_not_passed_over() {
    let Some((switch, a, _b)) = entering() else { return };
    if without_tool(&["tc"]) {
        return;
    }
    switch.netns().sh("tc qdisc replace dev h2 egress_block 7 clsact");
    exchanges(&switch, &a, false);
    let added = ["matchall action pass", "u32 match u32 0 0 action pass"].iter().any(|filter| {
        switch.netns().run(&format!("tc filter add block 7 protocol all {filter}")).ok()
    });
    if !added {
        return skip("this kernel has neither the tc filter matchall nor u32");
    }
    reports(&switch, "a tc filter is at the egress");
    exchanges(&switch, &a, true);
    switch.netns().sh("tc filter del block 7");
    reports(&switch, ENTERS);
    exchanges(&switch, &a, false);
}

#[test]
fn a_program_at_the_tcx_egress_is_not_passed_over() {
    let Some((switch, a, _b)) = entering() else { return };
    let next = -1; // TC_ACT_UNSPEC
    let place = libbpf_sys::BPF_TCX_EGRESS;
    let kind = libbpf_sys::BPF_PROG_TYPE_SCHED_CLS;
    let Some(link) = attach(switch.netns(), "h2", kind, next, place, 0) else {
        return skip("this kernel has no tcx");
    };
    reports(&switch, "a BPF program is at the tcx egress");
    exchanges(&switch, &a, true);
    drop(link);
    reports(&switch, ENTERS);
    exchanges(&switch, &a, false);
}

#[test]
fn a_program_at_xdp_of_the_other_end_is_not_passed_over() {
    let Some((switch, a, b)) = entering() else { return };
    let pass = 2; // XDP_PASS
    let kind = libbpf_sys::BPF_PROG_TYPE_XDP;
    // No event reports a program that runs after the driver. One in the driver also changes the
    // features of the port's device.
    for (mode, why) in [
        (libbpf_sys::XDP_FLAGS_DRV_MODE, "frames pass its device"),
        (libbpf_sys::XDP_FLAGS_SKB_MODE, "an XDP program is attached at the other end"),
    ] {
        let link = attach(&b.netns, "eth0", kind, pass, libbpf_sys::BPF_XDP, mode);
        let link = link.expect("veth has XDP");
        reports(&switch, why);
        exchanges(&switch, &a, true);
        drop(link);
        reports(&switch, ENTERS);
        exchanges(&switch, &a, false);
    }
}

#[test]
fn a_capture_at_the_port_sees_every_packet() {
    let Some((switch, a, _b)) = entering() else { return };
    let capture = Capture::start(
        switch.netns(),
        switch.sandbox(),
        "port-h2",
        "h2",
        "icmp[icmptype] == icmp-echo",
    );
    reports(&switch, "a packet socket captures");
    assert_eq!(a.ping("10.0.0.2", 20), 20);
    let seen = capture.finish(20, SOON).len();
    assert!(seen >= 20, "{seen} of 20 were captured");
    reports(&switch, ENTERS);
    exchanges(&switch, &a, false);
}

/// The kernel passes over chains at a device's egress for whatever a tc program has redirected, so
/// such a chain sees no more where frames pass the device.
#[test]
fn a_chain_of_nftables_sees_no_redirected_frame_anyway() {
    let Some((switch, a, _b)) = entering() else { return };
    if without_tool(&["nft"]) {
        return;
    }
    let nft = |text: &str| switch.netns().run(&format!("nft '{text}'")).ok();
    let chain = "chain netdev wall out { type filter hook egress device h2 priority 0; }";
    if !nft("add table netdev wall") || !nft(&format!("add {chain}")) {
        return skip("this kernel has no nftables at the egress of devices");
    }
    assert!(nft("add rule netdev wall out icmp type echo-request counter"));
    let seen = || {
        let line = "nft list chain netdev wall out | sed -n 's/.* packets \\([0-9]*\\) .*/\\1/p'";
        counter(&switch, line)
    };
    exchanges(&switch, &a, false);
    assert_eq!(seen(), 0);
    switch.vsctl("set interface h2 other_config:tcx-peer=false");
    reports(&switch, "other_config:tcx-peer=false");
    exchanges(&switch, &a, true);
    assert!(seen() < 20, "{}", seen());
    // It does see what the daemon sends.
    switch.vsctl("set interface h1 other_config:tier=userspace");
    let sees = || a.ping("10.0.0.2", 20) == 20 && seen() >= 20;
    assert!(wait_until(SOON, sees), "{}", seen());
}

/// The helper works at ingress only: what the host's own stack sends comes from an egress hook.
#[test]
fn packets_of_the_hosts_own_stack_arrive() {
    let Some((switch, a, _b)) = entering() else { return };
    switch.netns().sh("ip addr add 10.0.0.8/24 dev br0; ip link set br0 up");
    assert!(a.reaches("10.0.0.8", SOON), "{}", switch.story());
    let text = switch.netns().sh("ping -n -c 20 -i 0.02 10.0.0.2");
    assert!(text.contains(" 20 received"), "{text}");
}

/// On the way through the device the mark would be reset.
#[test]
fn a_mark_does_not_enter_with_the_packet() {
    let Some((switch, a, b)) = entering() else { return };
    b.netns.sh("ip rule add pref 10 fwmark 5 prohibit");
    switch
        .flows("br0", "priority=9,in_port=h1,actions=load:5->NXM_NX_PKT_MARK[],h2\nactions=NORMAL");
    warm(&a, "10.0.0.2");
    exchanges(&switch, &a, false);
}

/// Attaches a program that only returns `result` to a device; `None` when the kernel refuses.
fn attach(
    netns: &Netns,
    device: &str,
    kind: u32,
    result: i32,
    place: u32,
    flags: u32,
) -> Option<OwnedFd> {
    let index = netns.sh(&format!("ip -o link show {device} | cut -d: -f1"));
    let index: i32 = index.trim().parse().expect("a number");
    netns.with(|| {
        let code = [
            // r0 = result; exit
            libbpf_sys::bpf_insn { code: 0xb7, imm: result, ..Default::default() },
            libbpf_sys::bpf_insn { code: 0x95, ..Default::default() },
        ];
        // SAFETY: strings that end with NUL, and as many instructions as stated.
        let program = unsafe {
            libbpf_sys::bpf_prog_load(
                kind,
                c"passes".as_ptr(),
                c"Dual BSD/GPL".as_ptr(),
                code.as_ptr(),
                code.len() as _,
                std::ptr::null_mut(),
            )
        };
        let owned = |fd: i32| {
            // SAFETY: the call just made this descriptor, and no other code has it.
            (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
        };
        let program = owned(program)?;
        let options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
            flags,
            // SAFETY: integers and pointers only; zero is valid.
            ..unsafe { std::mem::zeroed() }
        };
        // SAFETY: the options are of the size that they state.
        owned(unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), index, place, &options) })
    })
}

// SPDX-License-Identifier: Apache-2.0
//! Flows outlive the daemon: what it pinned goes on forwarding, and a new daemon takes it over.

use crate::tools::{SOON, Stream, in_kernel, megaflows, packets, pair, sees, switch, warm};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use slipswitch_tests::harness::{Echoes, Switch, acquainted, patient, remember, wait_until};
use std::thread::JoinHandle;
use std::time::Duration;

#[track_caller]
fn nothing_lost(ping: JoinHandle<Echoes>, switch: &Switch) {
    let echoes = ping.join().expect("fping runs");
    assert_eq!(echoes.lost(), 0, "{}\n{}", echoes.said, switch.story());
}

/// Waits until both directions between h1 and h2 run in the kernel.
#[track_caller]
fn wait_until_offloaded(switch: &Switch) {
    in_kernel(switch, ["h1", "h2"]);
}

#[test]
fn established_flows_lose_nothing_while_the_daemon_is_dead() {
    let Some((mut switch, a, b)) = pair() else { return };
    warm(&a, "10.0.0.2");
    acquainted(&a, &b);
    wait_until_offloaded(&switch);
    let ping = a.pinging("10.0.0.2", 4);
    let mut stream = Stream::new(&a, &b, "10.0.0.2:7000", "10.0.0.2:7000");
    stream.write(1_000_000);
    switch.kill_daemon();
    // A second without anybody.
    for _ in 0..50 {
        stream.write(20_000);
        std::thread::sleep(Duration::from_millis(20));
    }
    switch.start_daemon();
    for _ in 0..50 {
        stream.write(20_000);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(stream.finish(), 3_000_000);
    nothing_lost(ping, &switch);
    assert!(switch.log().contains("adopted"), "{}", switch.log());
    wait_until_offloaded(&switch);
}

#[test]
fn a_plain_exit_leaves_flows_and_one_with_cleanup_does_not() {
    let Some((mut switch, a, b)) = pair() else { return };
    warm(&a, "10.0.0.2");
    acquainted(&a, &b);
    wait_until_offloaded(&switch);
    let pins = switch.sandbox().pins();
    assert!(pins.exists(), "{} is not there", pins.display());
    let ping = a.pinging("10.0.0.2", 3);
    switch.appctl("exit");
    assert_eq!(switch.wait_for_end(), Some(0));
    assert!(pins.exists());
    std::thread::sleep(Duration::from_millis(500));
    switch.start_daemon();
    nothing_lost(ping, &switch);
    switch.appctl("exit --cleanup");
    assert_eq!(switch.wait_for_end(), Some(0));
    assert!(!pins.exists(), "{} is still there", pins.display());
    assert_eq!(a.ping("10.0.0.2", 1), 0, "nobody forwards any more");
}

#[test]
fn the_hosts_own_port_survives_too() {
    let Some(mut switch) = switch() else { return };
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    switch.netns().sh("ip addr add 10.0.0.9/24 dev br0; ip link set br0 up");
    warm(&a, "10.0.0.9");
    remember(&a.netns, "10.0.0.9", "eth0");
    remember(switch.netns(), "10.0.0.1", "br0");
    in_kernel(&switch, ["h1", "br0"]);
    let ping = a.pinging("10.0.0.9", 3);
    switch.kill_daemon();
    std::thread::sleep(Duration::from_secs(1));
    switch.start_daemon();
    nothing_lost(ping, &switch);
    assert!(switch.netns().sh("ip addr show br0").contains("10.0.0.9"), "the address stays");
}

#[test]
fn an_internal_port_that_nobody_wants_any_more_goes_with_the_next_daemon() {
    let Some(mut switch) = switch() else { return };
    switch.vsctl("add-port br0 keep -- set interface keep type=internal");
    switch.vsctl("add-port br0 drop -- set interface drop type=internal");
    let there =
        |switch: &Switch, name: &str| switch.netns().run(&format!("ip link show {name}")).ok();
    assert!(wait_until(SOON, || there(&switch, "keep") && there(&switch, "drop")));
    // Of another switch, which is away, and of nobody.
    switch
        .netns()
        .sh("ip tuntap add other mode tap; ip link set other alias 'slipswitch /run/other'");
    switch.netns().sh("ip tuntap add his mode tap");
    switch.kill_daemon();
    switch.vsctl("--no-wait del-port drop");
    assert!(there(&switch, "drop"), "it outlives the daemon");
    switch.start_daemon();
    assert!(wait_until(SOON, || !there(&switch, "drop")), "{}", switch.story());
    for name in ["br0", "keep", "other", "his"] {
        assert!(there(&switch, name), "{name} is gone: {}", switch.story());
    }
    // The log says so afterwards.
    let says_so = || switch.log().contains("drop: removed");
    assert!(wait_until(SOON, says_so), "{}", switch.story());
}

#[test]
fn counters_of_adopted_flows_go_on() {
    let Some((mut switch, a, b)) = pair() else { return };
    switch.flows("br0", "priority=1,actions=NORMAL");
    warm(&a, "10.0.0.2");
    acquainted(&a, &b);
    wait_until_offloaded(&switch);
    assert_eq!(a.ping("10.0.0.2", 40), 40);
    let count = |switch: &Switch| packets(switch, &["in_port(h1)", "eth_type(0x0800)"]);
    let before = count(&switch);
    assert!(before >= 40, "{before}");
    switch.kill_daemon();
    assert_eq!(a.ping("10.0.0.2", 20), 20);
    switch.start_daemon();
    let mut after = 0;
    let more = wait_until(SOON, || {
        after = count(&switch);
        after >= before + 20
    });
    assert!(more, "{after} after {before}: {}", megaflows(&switch, &[]).join("\n"));
}

#[test]
fn flow_restore_wait_keeps_adopted_flows_until_the_tables_are_back() {
    let Some((mut switch, a, b)) = pair() else { return };
    switch.vsctl("set bridge br0 fail_mode=secure");
    switch.ofctl("add-flow br0 actions=NORMAL");
    warm(&a, "10.0.0.2");
    acquainted(&a, &b);
    wait_until_offloaded(&switch);
    let ping = a.pinging("10.0.0.2", 4);
    switch.vsctl("set open_vswitch . other_config:flow-restore-wait=true");
    switch.kill_daemon();
    switch.start_daemon();
    // Flows that are not checked yet are shown as they are.
    sees(&switch, &["in_port(h1)", "eth_type(0x0800)", "actions:h2, offloaded:yes, dp:tcx"]);
    let stats = switch.appctl("dpctl/offload-stats-show");
    assert!(stats.contains("adopted and not yet checked"), "{stats}");
    // The tables are empty for a second: without the wait all would be dropped.
    std::thread::sleep(Duration::from_secs(1));
    assert!(wait_until(SOON, || switch.sh("ovs-ofctl show br0").ok()), "{}", switch.story());
    switch.ofctl("add-flow br0 actions=NORMAL");
    switch.vsctl("--no-wait remove open_vswitch . other_config flow-restore-wait");
    nothing_lost(ping, &switch);
}

#[test]
fn flow_restore_wait_has_an_end() {
    let Some((mut switch, a, b)) = pair() else { return };
    switch.vsctl("set bridge br0 fail_mode=secure");
    switch.ofctl("add-flow br0 actions=NORMAL");
    warm(&a, "10.0.0.2");
    acquainted(&a, &b);
    wait_until_offloaded(&switch);
    // It begins before the programs are loaded.
    let deadline = patient(Duration::from_secs(4)).as_secs();
    switch.vsctl(&format!(
        "set open_vswitch . other_config:flow-restore-wait=true \
         other_config:flow-restore-deadline={deadline}"
    ));
    switch.kill_daemon();
    switch.start_daemon();
    assert_eq!(a.ping("10.0.0.2", 5), 5, "the wait has not ended yet");
    // The tables stay empty: in the end that is what counts.
    let told = wait_until(SOON, || switch.log().contains("flow-restore-wait has lasted"));
    assert!(told, "{}", switch.story());
    let ended = wait_until(SOON, || a.ping("10.0.0.2", 1) == 0);
    assert!(ended, "{}", switch.story());
}

#[test]
fn flows_that_no_rule_explains_are_swept() {
    let Some((mut switch, a, b)) = pair() else { return };
    switch.vsctl("set bridge br0 fail_mode=secure");
    switch.ofctl("add-flow br0 actions=NORMAL");
    warm(&a, "10.0.0.2");
    acquainted(&a, &b);
    wait_until_offloaded(&switch);
    switch.kill_daemon();
    switch.start_daemon(); // its tables are empty
    let swept = wait_until(SOON, || a.ping("10.0.0.2", 1) == 0);
    assert!(swept, "{}", megaflows(&switch, &[]).join("\n"));
}

/// Tables of another build that this one cannot read: the log says so once, and none of them stays
/// in use next to the new tables.
#[test]
fn tables_of_another_layout_are_replaced_and_logged() {
    let Some((mut switch, a, b)) = pair() else { return };
    warm(&a, "10.0.0.2");
    acquainted(&a, &b);
    wait_until_offloaded(&switch);
    let pins = switch.sandbox().pins();
    let links = || {
        let names = std::fs::read_dir(&pins).expect("pins are there").flatten();
        names.filter(|e| e.file_name().to_string_lossy().starts_with("link_")).count()
    };
    let before = links();
    switch.kill_daemon();
    let config = MapHandle::from_pinned_path(pins.join("config")).expect("it is pinned");
    let key = 0u32.to_ne_bytes();
    let mut value = config.lookup(&key, MapFlags::ANY).expect("an array").expect("one element");
    value[8..12].copy_from_slice(&99u32.to_ne_bytes()); // magic, then version: layout.h
    config.update(&key, &value, MapFlags::ANY).expect("it is an array");
    // Its tables may be of other sizes, too.
    switch.vsctl("--no-wait set open_vswitch . other_config:bpf-max-flows=2048");
    switch.start_daemon();
    let told = |switch: &Switch| -> Vec<String> {
        let of = |line: &&str| line.contains("not taken over");
        switch.log().lines().filter(of).map(str::to_owned).collect()
    };
    assert!(wait_until(SOON, || !told(&switch).is_empty()), "{}", switch.story());
    let lines = told(&switch);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("|WARN|") && lines[0].contains("layout version 99"), "{lines:?}");
    // Until the programs are loaded, the earlier tables carry packets.
    let log = |words: &str| switch.log().matches(words).count();
    assert!(wait_until(SOON, || log("Datapath supports recirculation") == 2), "{}", switch.story());
    // No packet goes twice, and the new tables serve.
    let asked = b.capture(switch.sandbox(), "eth0", "icmp[icmptype] == icmp-echo");
    let answered = a.capture(switch.sandbox(), "eth0", "icmp[icmptype] == icmp-echoreply");
    assert!(a.reaches("10.0.0.2", SOON), "{}", switch.story());
    assert_eq!(a.ping("10.0.0.2", 20), 20);
    wait_until_offloaded(&switch);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(asked.finish(21, SOON).len(), answered.finish(21, SOON).len());
    assert_eq!(links(), before);
    switch.flows("br0", "actions=drop");
    assert_eq!(a.ping("10.0.0.2", 3), 0);
}

#[test]
fn what_a_daemon_left_in_bpf_ends_with_a_new_one_that_does_without() {
    let Some((mut switch, a, b)) = pair() else { return };
    warm(&a, "10.0.0.2");
    wait_until_offloaded(&switch);
    switch.kill_daemon();
    switch.vsctl("--no-wait set open_vswitch . other_config:bpf-offload=false");
    switch.start_daemon();
    let pins = switch.sandbox().pins();
    assert!(wait_until(SOON, || !pins.exists()), "{} is still there", pins.display());
    // No packet is forwarded twice, by the old flows and by the new ones.
    let asked = b.capture(switch.sandbox(), "eth0", "icmp[icmptype] == icmp-echo");
    let answered = a.capture(switch.sandbox(), "eth0", "icmp[icmptype] == icmp-echoreply");
    assert!(a.reaches("10.0.0.2", SOON), "{}", switch.story());
    assert_eq!(a.ping("10.0.0.2", 20), 20);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(asked.finish(21, SOON).len(), answered.finish(21, SOON).len());
    // And none when no rule lets it.
    switch.flows("br0", "actions=drop");
    assert_eq!(a.ping("10.0.0.2", 3), 0);
    // Switched on, it works as ever.
    switch.flows("br0", "actions=NORMAL");
    switch.vsctl("remove open_vswitch . other_config bpf-offload");
    warm(&a, "10.0.0.2");
    wait_until_offloaded(&switch);
}

#[test]
fn removing_the_bridge_leaves_nothing_on_the_devices() {
    let Some((switch, a, _b)) = pair() else { return };
    warm(&a, "10.0.0.2");
    switch.vsctl("del-br br0");
    let pins = switch.sandbox().pins();
    let links = |part: &str| {
        std::fs::read_dir(&pins).map_or(0, |dir| {
            dir.flatten().filter(|e| e.file_name().to_string_lossy().contains(part)).count()
        })
    };
    assert!(wait_until(SOON, || links("link") == 0), "links stay pinned in {}", pins.display());
    let text = switch.netns().sh("ip -d link show h1; tc qdisc show dev h1 2>/dev/null || true");
    assert!(!text.contains("xdp") && !text.contains("clsact"), "{text}");
}

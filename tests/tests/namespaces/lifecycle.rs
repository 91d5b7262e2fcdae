// SPDX-License-Identifier: Apache-2.0
//! Things that come and go under traffic.

use crate::tools::{SOON, pair, sees, switch, tcp, tcp_to, warm};
use slipswitch_tests::harness::{Netns, Process, patient, wait_until};
use std::time::Duration;

#[test]
fn a_port_is_removed_and_added_under_load() {
    let Some((switch, a, _b)) = pair() else { return };
    let c = switch.host_on("br0", "h3", "10.0.0.3/24");
    assert!(a.reaches("10.0.0.2", SOON));
    let load = a.pinging("10.0.0.2", 3);
    for _ in 0..5 {
        switch.vsctl("del-port br0 h3");
        switch.vsctl("add-port br0 h3");
    }
    let echoes = load.join().expect("fping runs");
    assert_eq!(echoes.lost(), 0, "{}", echoes.said);
    assert!(c.reaches("10.0.0.1", SOON));
}

#[test]
fn the_status_of_a_veth_names_its_other_end() {
    let Some((switch, _a, _b)) = pair() else { return };
    let link = switch.sh_limited("ip -o link show h1", Duration::from_secs(10)).stdout;
    let peer = link.split_once("@if").and_then(|(_, rest)| rest.split_once(':')).map(|(n, _)| n);
    let peer = peer.expect("a veth pair");
    assert_eq!(
        switch.vsctl("get interface h1 status:peer_ifindex").trim().trim_matches('"'),
        peer,
        "{link}"
    );
    let offload = switch.vsctl("get interface h1 status:tx_tcp_seg_offload");
    assert!(["\"true\"", "\"false\""].contains(&offload.trim()), "{offload}");
}

#[test]
fn a_killed_daemon_comes_back_with_its_ports() {
    let Some((mut switch, a, b)) = pair() else { return };
    assert!(a.reaches("10.0.0.2", SOON));
    switch.kill_daemon();
    switch.start_daemon();
    assert!(a.reaches("10.0.0.2", SOON), "{}", switch.story());
    tcp(&a, &b, 1_000_000);
    assert_eq!(switch.vsctl("get interface h1 error"), "[]\n");
}

/// How often the threads of a process went to sleep.
fn sleeps(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let of = |text: String| {
        let line = text.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|n| n.trim().parse::<u64>().ok()).expect("the kernel counts")
    };
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok())
        .map(of)
        .sum()
}

#[test]
fn a_daemon_with_nothing_to_do_hardly_wakes() {
    let Some(switch) = switch() else { return };
    switch.vsctl("set bridge br0 fail_mode=secure");
    for port in ["p1", "p2"] {
        switch.vsctl(&format!("add-port br0 {port} -- set interface {port} type=internal"));
    }
    let pid = switch.daemon().expect("it runs").pid();
    std::thread::sleep(Duration::from_secs(4)); // what it puts off
    let before = sleeps(pid);
    std::thread::sleep(Duration::from_secs(10));
    let woken = sleeps(pid) - before;
    // Two rounds of statistics, of coverage, of probes of the database, of the revalidator. To look
    // twice a second for something to do takes twice as many.
    assert!(woken <= 40, "{woken} times in 10 s");
}

#[test]
fn packets_flow_while_the_database_restarts() {
    let Some((mut switch, a, _b)) = pair() else { return };
    assert!(a.reaches("10.0.0.2", SOON));
    let load = a.pinging("10.0.0.2", 3);
    switch.kill_database();
    std::thread::sleep(Duration::from_millis(500));
    switch.start_database();
    let echoes = load.join().expect("fping runs");
    assert_eq!(echoes.lost(), 0, "{}", echoes.said);
    let back = wait_until(Duration::from_secs(20), || {
        switch.sh("ovs-vsctl --timeout=2 set bridge br0 external_ids:a=b").ok()
    });
    assert!(back, "{}", switch.story());
    let c = switch.host_on("br0", "h3", "10.0.0.3/24");
    assert!(c.reaches("10.0.0.1", SOON));
}

#[test]
fn a_device_that_is_deleted_and_made_again_works_again() {
    let Some((switch, a, b)) = pair() else { return };
    assert!(a.reaches("10.0.0.2", SOON));
    b.netns.sh("ip link del eth0");
    let seen = wait_until(SOON, || {
        switch.vsctl("get interface h2 ofport") == "-1\n"
            || switch.vsctl("get interface h2 link_state") != "up\n"
    });
    assert!(seen, "{}", switch.vsctl("list interface h2"));
    b.tie(switch.netns());
    // The new device has an address of its own.
    a.netns.sh("ip neigh flush all");
    assert!(a.reaches("10.0.0.2", SOON), "{}", switch.story());
    assert_eq!(switch.vsctl("get interface h2 error"), "[]\n");
}

#[test]
fn a_link_that_goes_down_is_seen() {
    let Some((switch, _a, b)) = pair() else { return };
    assert!(wait_until(SOON, || switch.vsctl("get interface h2 link_state") == "up\n"));
    b.netns.sh("ip link set eth0 down");
    assert!(
        wait_until(SOON, || switch.vsctl("get interface h2 link_state") == "down\n"),
        "{}",
        switch.story()
    );
    assert!(switch.ofctl("show br0").contains("LINK_DOWN"));
}

#[test]
fn the_mtu_of_an_internal_port_follows_its_request() {
    let Some(switch) = switch() else { return };
    switch.vsctl("add-port br0 int0 -- set interface int0 type=internal mtu_request=1400");
    assert!(wait_until(SOON, || switch.netns().sh("ip link show int0").contains("mtu 1400")));
    assert!(wait_until(SOON, || switch.vsctl("get interface int0 mtu") == "1400\n"));
}

#[test]
fn internal_ports_have_the_lowest_mtu_of_the_others() {
    let Some(switch) = switch() else { return };
    let mtu_is = |name: &str, mtu: u32| {
        let wanted = format!("mtu {mtu} ");
        let seen = wait_until(SOON, || {
            switch.netns().sh(&format!("ip link show {name}")).contains(&wanted)
        });
        assert!(seen, "{name} is to have {mtu}: {}", switch.netns().sh("ip link"));
    };
    let jumbo = "ip link add e0 type veth peer name e1 && ip link set e0 mtu 9000 && ip link set e1 mtu 9000";
    switch.netns().sh(jumbo);
    switch.vsctl("add-port br0 e0");
    mtu_is("br0", 9000);
    switch.vsctl("add-port br0 in0 -- set interface in0 type=internal");
    mtu_is("in0", 9000);
    switch.netns().sh("ip link set e0 mtu 3000");
    mtu_is("br0", 3000);
    mtu_is("in0", 3000);
    switch.vsctl("set interface in0 mtu_request=2000");
    mtu_is("in0", 2000);
    mtu_is("br0", 2000);
    switch.vsctl("del-port in0 -- del-port e0");
    mtu_is("br0", 1500);
    switch.vsctl("add-port br0 e0");
    mtu_is("br0", 3000);
}

#[test]
fn link_resets_count_from_when_a_port_was_added() {
    let Some(switch) = switch() else { return };
    let resets = || switch.vsctl("get interface e0 link_resets");
    switch.netns().sh("ip link add e0 type veth peer name e1 && ip link set e0 up");
    for _ in 0..3 {
        switch.netns().sh("ip link set e1 up; ip link set e1 down");
    }
    switch.netns().sh("ip link set e1 up");
    switch.vsctl("add-port br0 e0");
    assert_eq!(resets(), "0\n");
    switch.netns().sh("ip link set e1 down");
    assert!(wait_until(SOON, || resets() == "1\n"), "{}", resets());
}

/// Moves a device between namespaces.
fn move_device(device: &str, from: &Netns, to: &Netns) {
    let to = to.enter();
    let to = to.get(1).and_then(|o| o.strip_prefix("--net=")).expect("nsenter's option");
    from.sh(&format!("ip link set {device} netns {to}"));
}

#[test]
fn an_internal_port_may_be_moved_into_another_namespace() {
    const IPV4: &str = "eth_type(0x0800)";
    let Some(switch) = switch() else { return };
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    switch.vsctl("add-port br0 int0 -- set interface int0 type=internal");
    switch.netns().sh("ip addr add 10.0.0.9/24 dev int0; ip link set int0 up");
    warm(&a, "10.0.0.9");
    sees(&switch, &["in_port(h1)", IPV4, "actions:int0", "dp:tcx"]);
    let container = Netns::new();
    move_device("int0", switch.netns(), &container);
    container.sh("ip addr add 10.0.0.9/24 dev int0; ip link set int0 up");
    warm(&a, "10.0.0.9");
    tcp_to(&a.netns, &container, "10.0.0.9", 2_000_000);
    tcp_to(&container, &a.netns, "10.0.0.1", 2_000_000);
    for port in ["in_port(h1)", "in_port(int0)"] {
        sees(&switch, &[port, IPV4, "dp:userspace", "port-not-here"]);
    }
    let tiers = switch.appctl("slipswitch/tiers int0");
    assert!(tiers.contains("another network namespace"), "{tiers}");
    assert_eq!(switch.vsctl("get interface int0 error"), "[]\n");
    // It comes home.
    move_device("int0", &container, switch.netns());
    switch.netns().sh("ip addr add 10.0.0.9/24 dev int0; ip link set int0 up");
    warm(&a, "10.0.0.9");
    sees(&switch, &["in_port(h1)", IPV4, "actions:int0", "dp:tcx"]);
    // The device ends with its namespace, and the switch makes it again.
    move_device("int0", switch.netns(), &container);
    container.sh("ip link set int0 up");
    let is_here = || switch.netns().run("ip link show int0").ok();
    assert!(!is_here());
    drop(container);
    assert!(wait_until(2 * SOON, is_here), "{}", switch.story());
}

#[test]
fn a_killed_daemon_finds_an_internal_port_in_another_namespace() {
    let Some(mut switch) = switch() else { return };
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    switch.vsctl("add-port br0 int0 -- set interface int0 type=internal");
    let container = Netns::new();
    // By it others find the way there.
    let _process = Process::start(switch.sandbox(), Some(&container), "inmate", "sleep", &["600"]);
    assert!(wait_until(SOON, || switch.netns().run("ip link show int0").ok()));
    move_device("int0", switch.netns(), &container);
    container
        .sh("ip link set int0 name eth0; ip addr add 10.0.0.9/24 dev eth0; ip link set eth0 up");
    warm(&a, "10.0.0.9");
    let address = || container.sh("ip -o link show eth0 | grep -o 'link/ether [0-9a-f:]*'");
    let before = address();
    switch.kill_daemon();
    switch.start_daemon();
    assert!(a.reaches("10.0.0.9", SOON), "{}", switch.story());
    tcp_to(&a.netns, &container, "10.0.0.9", 1_000_000);
    assert!(!switch.netns().run("ip link show int0").ok(), "there is a second one");
    assert_eq!(switch.vsctl("get interface int0 error"), "[]\n");
    let tiers = switch.appctl("slipswitch/tiers int0");
    assert!(tiers.contains("another network namespace"), "{tiers}");
    assert!(switch.log().contains("in another network namespace, as eth0"), "{}", switch.log());
    assert_eq!(address(), before);
    // It is the switch's as ever.
    switch.vsctl("del-port br0 int0");
    assert!(wait_until(SOON, || !container.run("ip link show eth0").ok()), "{}", switch.story());
}

#[test]
fn exit_with_cleanup_leaves_no_device() {
    let Some((mut switch, a, _b)) = pair() else { return };
    assert!(a.reaches("10.0.0.2", SOON));
    switch.vsctl("add-port br0 int0 -- set interface int0 type=internal");
    switch.netns().sh("ip link show int0");
    switch.appctl("exit --cleanup");
    assert_eq!(switch.wait_for_end(), Some(0));
    let links = switch.netns().sh("ip -o link");
    assert!(!links.contains("br0") && !links.contains("int0"), "{links}");
    assert!(links.contains("h1") && links.contains("h2"), "devices of others stay: {links}");
}

#[test]
fn sigterm_under_traffic_ends_it_cleanly() {
    let Some((mut switch, a, _b)) = pair() else { return };
    let netns = a.netns.clone();
    let load = netns.spawn({
        let netns = netns.clone();
        move || netns.run("ping -n -q -f -w 2 10.0.0.2").stdout
    });
    std::thread::sleep(Duration::from_millis(500));
    switch.daemon().expect("it runs").signal("TERM");
    let start = std::time::Instant::now();
    switch.wait_for_end();
    assert!(start.elapsed() < patient(Duration::from_secs(5)));
    assert!(!switch.sandbox().file("ovs-vswitchd.pid").exists());
    let _ = load.join();
}

#[test]
fn an_idle_switch_sleeps() {
    let Some((switch, a, _b)) = pair() else { return };
    assert!(a.reaches("10.0.0.2", SOON));
    let pid = switch.daemon().expect("it runs").pid();
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        let after = stat.rsplit_once(") ").expect("the name is in parentheses").1.to_owned();
        let fields: Vec<u64> = after.split(' ').map(|f| f.parse().unwrap_or(0)).collect();
        fields.get(11).copied().unwrap_or(0) + fields.get(12).copied().unwrap_or(0)
    };
    // At first it fits its programs to the flows, and the machine runs other tests.
    let used: Vec<u64> = std::iter::repeat_with(|| {
        let before = ticks();
        std::thread::sleep(Duration::from_secs(2));
        ticks() - before
    })
    .take(5)
    .collect();
    let little = patient(Duration::from_millis(20)).as_millis() as u64 / 10; // a few
    assert!(
        used.iter().any(|used| *used <= little),
        "{used:?} hundredths of a second in two seconds"
    );
}

// SPDX-License-Identifier: Apache-2.0
//! Bonds between two bridges, over veth pairs: LACP, spreading, fail-over.

use crate::tools::{SOON, megaflows, switch, warm};
use slipswitch_tests::harness::{Host, Switch, acquainted, wait_until};
use std::time::Duration;

/// A switch with bridges br0 and br1, a bond of two links between these, and a host on each bridge.
/// `settings` are those of both bonds' rows.
fn bonded(settings: &str) -> Option<(Switch, Host, Host)> {
    let switch = switch()?;
    for n in [0, 1] {
        switch.netns().sh(&format!("ip link add v{n} type veth peer name w{n}"));
        switch.netns().sh(&format!("ip link set v{n} up && ip link set w{n} up"));
    }
    switch.vsctl("add-br br1 -- set bridge br1 datapath_type=netdev");
    switch.vsctl(&format!(
        "add-bond br0 bond0 v0 v1 {settings} -- add-bond br1 bond1 w0 w1 {settings}"
    ));
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    let b = switch.host_on("br1", "h2", "10.0.0.2/24");
    Some((switch, a, b))
}

/// Waits until a text of a bond holds `part` this often.
#[track_caller]
fn shows(switch: &Switch, command: &str, part: &str, count: usize) {
    let is_so = wait_until(SOON, || switch.appctl(command).matches(part).count() == count);
    assert!(is_so, "not {count} times {part:?}:\n{}", switch.appctl(command));
}

#[test]
fn lacp_joins_two_switches_and_a_lost_link_loses_little() {
    let Some((switch, a, _b)) = bonded(BY_TUPLE) else { return };
    for bond in ["bond0", "bond1"] {
        shows(&switch, &format!("lacp/show {bond}"), "current attached", 2);
        shows(&switch, &format!("bond/show {bond}"), ": enabled\n", 2);
    }
    let current = || switch.vsctl("get interface v0 lacp_current").trim() == "true";
    assert!(wait_until(SOON, current), "{}", switch.vsctl("list interface v0"));
    assert!(a.reaches("10.0.0.2", SOON));
    let pinging = a.pinging("10.0.0.2", 4);
    std::thread::sleep(Duration::from_secs(1));
    switch.netns().sh("ip link set v0 down");
    shows(&switch, "bond/show bond0", "v0: disabled", 1);
    let echoes = pinging.join().expect("fping ran");
    assert!(echoes.lost() <= 5, "{} lost: {}", echoes.lost(), echoes.said);
    switch.netns().sh("ip link set v0 up");
    shows(&switch, "lacp/show bond0", "current attached", 2);
    shows(&switch, "bond/show bond1", ": enabled\n", 2);
    assert_eq!(a.ping("10.0.0.2", 20), 20);
    let stats = switch.appctl("lacp/show-stats bond0");
    assert_eq!(stats.matches("RX Bad PDUs: 0\n").count(), 2, "{stats}");
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

/// The drivers of veth devices have no registers, and are asked themselves.
#[test]
fn a_bond_follows_the_links_that_it_polls() {
    let polled = "bond_mode=active-backup other_config:bond-detect-mode=miimon \
                  other_config:bond-miimon-interval=50 other_config:bond-primary=v0";
    let Some((switch, a, _b)) = bonded(polled) else { return };
    shows(&switch, "bond/show bond0", ": enabled\n", 2);
    assert!(a.reaches("10.0.0.2", SOON));
    switch.netns().sh("ip link set w0 down");
    shows(&switch, "bond/show bond0", "v0: disabled", 1);
    shows(&switch, "bond/show bond0", "active member mac", 1);
    assert_eq!(switch.vsctl("get interface v0 link_state").trim(), "down");
    switch.netns().sh("ip link set w0 up");
    shows(&switch, "bond/show bond0", ": enabled\n", 2);
    switch.vsctl("remove port bond0 other_config bond-detect-mode");
    switch.netns().sh("ip link set w0 down");
    shows(&switch, "bond/show bond0", "v0: disabled", 1);
}

/// Packets that left by a device of the switch's namespace.
fn sent(switch: &Switch, device: &str) -> u64 {
    let count = format!("awk '$1 == \"{device}:\" {{print $11}}' /proc/net/dev");
    switch.netns().sh(&count).trim().parse().expect("a number")
}

/// Sends a datagram to each of 100 ports of 10.0.0.2, and returns the packets that left by each link.
fn spread(switch: &Switch, from: &Host, first_port: u16) -> [u64; 2] {
    let count = || ["v0", "v1"].map(|device| sent(switch, device));
    let before = count();
    let ports = format!("{{{first_port}..{}}}", first_port + 99);
    let each = format!("for p in {ports}; do echo > /dev/udp/10.0.0.2/$p; done");
    from.netns.sh(&format!("bash -c '{each}'"));
    let after = count();
    std::array::from_fn(|link| after[link] - before[link])
}

/// Returns the id of bond0 in the datapath.
fn id(switch: &Switch) -> String {
    let text = switch.appctl("bond/show bond0");
    let (_, id) = text.split_once("bond-id: ").expect("a line with it");
    id.lines().next().expect("an id").to_owned()
}

/// Returns the members of the datapath's buckets.
#[track_caller]
fn buckets(switch: &Switch, id: &str) -> Vec<String> {
    let all = switch.appctl("dpif-netdev/bond-show");
    let bond = all.split_once(&format!("bond-id {id}:\n"));
    let (_, of) = bond.unwrap_or_else(|| panic!("no bond {id}:\n{all}"));
    let lines = of.lines().take(256);
    lines.map(|line| line.rsplit(' ').next().expect("a port").to_owned()).collect()
}

/// Returns the number of buckets with the member of the first one.
#[track_caller]
fn like_the_first(switch: &Switch, id: &str) -> usize {
    let buckets = buckets(switch, id);
    buckets.iter().filter(|member| *member == &buckets[0]).count()
}

const BY_TUPLE: &str = "lacp=active bond_mode=balance-tcp other_config:lacp-time=fast";

/// A switch as of [`bonded`], where datapaths choose members, and both links carry traffic.
fn by_tuple() -> Option<(Switch, Host, Host)> {
    let (switch, a, b) = bonded(BY_TUPLE)?;
    for bond in ["bond0", "bond1"] {
        shows(&switch, &format!("bond/show {bond}"), ": enabled\n", 2);
        shows(&switch, &format!("bond/show {bond}"), "lb_output action: enabled", 1);
    }
    assert!(a.reaches("10.0.0.2", SOON));
    Some((switch, a, b))
}

#[test]
fn connections_through_one_megaflow_spread_over_a_bond() {
    let Some((switch, a, _b)) = by_tuple() else { return };
    let id = id(&switch);
    assert!((90..167).contains(&like_the_first(&switch, &id)), "{:?}", buckets(&switch, &id));
    let both = spread(&switch, &a, 9001);
    assert!(both.iter().all(|n| *n >= 20) && both.iter().sum::<u64>() >= 100, "{both:?}");
    let flows = switch.appctl("dpctl/dump-flows");
    let to_bond = flows.matches(&format!("lb_output({id})")).count();
    assert!((1..6).contains(&to_bond), "{flows}");
    assert!(!flows.contains("udp(dst=90"), "no megaflow of a connection: {flows}");
    // A lost member gives its buckets away, and the megaflows stay.
    switch.netns().sh("ip link set v0 down");
    shows(&switch, "bond/show bond0", "v0: disabled", 1);
    assert_eq!(like_the_first(&switch, &id), 256);
    let [lost, other] = spread(&switch, &a, 9001);
    assert!(lost < 5 && other >= 100, "{lost} {other}");
    // Not wanted, the bond goes when no megaflow names it.
    switch.vsctl("set port bond0 other_config:lb-output-action=false");
    shows(&switch, "bond/show bond0", "lb_output action: disabled, bond-id: -1", 1);
    shows(&switch, "dpif-netdev/bond-show", &format!("bond-id {id}:"), 0);
    assert!(!switch.appctl("dpctl/dump-flows").contains(&format!("lb_output({id})")));
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

#[test]
fn a_bond_spreads_new_connections_while_the_daemon_is_dead() {
    let Some((mut switch, a, b)) = by_tuple() else { return };
    warm(&a, "10.0.0.2");
    acquainted(&a, &b);
    let is_there = || !megaflows(&switch, &["in_port(h1)", "lb_output", "dp:tcx"]).is_empty();
    assert!(wait_until(SOON, is_there), "{}", megaflows(&switch, &[]).join("\n"));
    let id = id(&switch);
    switch.kill_daemon();
    let both = spread(&switch, &a, 9001);
    assert!(both.iter().all(|n| *n >= 20) && both.iter().sum::<u64>() >= 100, "{both:?}");
    // The next daemon finds another state of the links.
    switch.netns().sh("ip link set v0 down");
    switch.start_daemon();
    assert!(wait_until(SOON, || switch.log().contains("adopted")), "{}", switch.log());
    shows(&switch, "bond/show bond0", "v0: disabled", 1);
    shows(&switch, "bond/show bond0", &format!("lb_output action: enabled, bond-id: {id}"), 1);
    assert_eq!(like_the_first(&switch, &id), 256);
    assert!(a.reaches("10.0.0.2", SOON));
    let [lost, other] = spread(&switch, &a, 9101);
    assert!(lost < 5 && other >= 100, "{lost} {other}");
    switch.netns().sh("ip link set v0 up");
    shows(&switch, "bond/show bond0", ": enabled\n", 2);
    assert!(wait_until(SOON, || like_the_first(&switch, &id) < 200), "idle buckets are shared");
}

/// Returns the number of buckets with a load of each member, as `bond/show` lists them.
fn loaded(switch: &Switch) -> [usize; 2] {
    let text = switch.appctl("bond/show bond0");
    let (_, members) = text.split_once("member v0:").expect("the first member");
    let (first, second) = members.split_once("member v1:").expect("the other member");
    [first, second].map(|member| member.matches("kB load").count())
}

#[test]
fn loads_are_balanced_by_the_bytes_that_the_datapath_counts() {
    let Some((switch, a, b)) = by_tuple() else { return };
    switch.vsctl("set port bond0 other_config:bond-rebalance-interval=5000");
    warm(&a, "10.0.0.2");
    acquainted(&a, &b);
    switch.netns().sh("ip link set v0 down");
    shows(&switch, "bond/show bond0", "v0: disabled", 1);
    // 43 kB in each of 100 connections; errors of closed ports are not of interest.
    let each = "for p in {9001..9100}; do exec 3>/dev/udp/10.0.0.2/$p; \
                for i in {1..30}; do printf %01400d 0 >&3; done; done 2>/dev/null; true";
    a.netns.sh(&format!("bash -c '{each}'"));
    switch.netns().sh("ip link set v0 up");
    shows(&switch, "bond/show bond0", ": enabled\n", 2);
    // Without a move v0 has no bucket with a load.
    let is_balanced = || loaded(&switch).into_iter().all(|buckets| buckets > 15);
    assert!(wait_until(SOON, is_balanced), "{}", switch.appctl("bond/show bond0"));
}

#[test]
fn an_slb_bond_loses_little_with_a_link() {
    let Some((switch, a, _b)) = bonded("bond_mode=balance-slb") else { return };
    shows(&switch, "bond/show bond0", ": enabled\n", 2);
    assert!(a.reaches("10.0.0.2", SOON));
    assert_eq!(a.ping("10.0.0.2", 20), 20, "no packet is sent back");
    let pinging = a.pinging("10.0.0.2", 4);
    for link in ["v0", "v1"] {
        std::thread::sleep(Duration::from_secs(1));
        switch.netns().sh(&format!("ip link set {link} down"));
        shows(&switch, "bond/show bond0", &format!("{link}: disabled"), 1);
        switch.netns().sh(&format!("ip link set {link} up"));
        shows(&switch, "bond/show bond0", ": enabled\n", 2);
    }
    let echoes = pinging.join().expect("fping ran");
    assert!(echoes.lost() <= 10, "{} lost: {}", echoes.lost(), echoes.said);
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

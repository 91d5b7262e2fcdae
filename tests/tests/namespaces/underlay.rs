// SPDX-License-Identifier: Apache-2.0
//! Routes of the kernel in the tables of the running daemon.

use crate::tools::SOON;
use slipswitch_tests::harness::{Kind, Mode, Options, Switch, wait_until, without_root};

/// A switch with a bridge `br0` that has the address 10.0.0.1/24.
fn with_addresses(arguments: &[&str]) -> Option<Switch> {
    if without_root() {
        return None;
    }
    let mut options = Options::new(Kind::Slipswitch, Mode::Real);
    options.arguments = arguments.iter().map(|a| (*a).to_owned()).collect();
    let switch = Switch::with(options);
    switch.vsctl("add-br br0");
    switch.netns().sh("ip addr add 10.0.0.1/24 dev br0; ip link set br0 up");
    Some(switch)
}

/// Waits until `ovs/route/show` has a line, or has it no longer.
#[track_caller]
fn shows(switch: &Switch, line: &str, expected: bool) {
    let has = || switch.appctl("ovs/route/show").lines().any(|l| l == line);
    assert!(wait_until(SOON, || has() == expected), "{line}: {}", switch.appctl("ovs/route/show"));
}

#[test]
fn routes_of_the_kernel_are_followed() {
    let Some(switch) = with_addresses(&[]) else { return };
    let kernel = |line: &str| switch.netns().sh(line);
    kernel("for d in all br0; do echo 0 >/proc/sys/net/ipv6/conf/$d/disable_ipv6; done");
    shows(&switch, "Cached: 10.0.0.0/24 dev br0 SRC 10.0.0.1", true);
    shows(&switch, "Cached: 10.0.0.1/32 dev br0 SRC 10.0.0.1 local", true);
    kernel("ip route add 10.9.0.0/16 via 10.0.0.9");
    shows(&switch, "Cached: 10.9.0.0/16 dev br0 GW 10.0.0.9 SRC 10.0.0.1", true);
    assert_eq!(
        switch.appctl("ovs/route/lookup 10.9.1.1"),
        "src 10.0.0.1\ngateway 10.0.0.9\ndev br0\n"
    );
    kernel("ip route replace 10.9.0.0/16 via 10.0.0.8");
    shows(&switch, "Cached: 10.9.0.0/16 dev br0 GW 10.0.0.8 SRC 10.0.0.1", true);
    kernel(
        "ip -6 addr add 2001:db8::1/64 dev br0 nodad; ip -6 route add 2001:db9::/32 via 2001:db8::9",
    );
    shows(&switch, "Cached: 2001:db9::/32 dev br0 GW 2001:db8::9 SRC 2001:db8::1", true);
    switch.appctl("ovs/route/add 10.9.1.0/24 br0 10.0.0.7");
    kernel("ip addr del 10.0.0.1/24 dev br0");
    shows(&switch, "Cached: 10.0.0.0/24 dev br0 SRC 10.0.0.1", false);
    shows(&switch, "Cached: 10.0.0.1/32 dev br0 SRC 10.0.0.1 local", false);
    shows(&switch, "User: 10.9.1.0/24 dev br0 GW 10.0.0.7 SRC 10.0.0.1", true);
}

#[test]
fn rules_and_tables_of_the_kernel_are_followed() {
    let Some(switch) = with_addresses(&[]) else { return };
    let kernel = |line: &str| switch.netns().sh(line);
    kernel(
        "ip route add 10.8.0.0/16 via 10.0.0.7 table 100; ip route add 10.8.0.0/16 via 10.0.0.8",
    );
    kernel("ip rule add from 10.0.0.1 lookup 100 prio 50");
    let gateway =
        |source: &str| switch.sh(&format!("ovs-appctl ovs/route/lookup 10.8.0.1 {source}")).stdout;
    let is = |source, hop: &str| {
        let expected = format!("src 10.0.0.1\ngateway {hop}\ndev br0\n");
        assert!(wait_until(SOON, || gateway(source) == expected), "{}", gateway(source));
    };
    is("src=10.0.0.1", "10.0.0.7");
    is("", "10.0.0.8");
    let rules = switch.appctl("ovs/route/rule/show");
    assert!(rules.contains("Cached: 50: from 10.0.0.1 lookup 100\n"), "{rules}");
    let table = switch.appctl("ovs/route/show table=100");
    let line = "Cached: 10.8.0.0/16 dev br0 GW 10.0.0.7 SRC 10.0.0.1\n";
    assert_eq!(table, format!("Route Table #100:\n{line}"));
    kernel("ip rule del prio 50");
    is("src=10.0.0.1", "10.0.0.8");
}

#[test]
fn system_routes_can_be_left_alone() {
    let Some(switch) = with_addresses(&["--disable-system-route"]) else { return };
    assert_eq!(switch.appctl("ovs/route/show"), "Route Table:\n");
    switch.netns().sh("ip route add 10.9.0.0/16 via 10.0.0.9");
    assert!(!wait_until(std::time::Duration::from_millis(300), || {
        switch.appctl("ovs/route/show") != "Route Table:\n"
    }));
}

#[test]
fn a_flood_of_route_changes_ends_in_the_right_table() {
    let Some(switch) = with_addresses(&[]) else { return };
    let line = |verb: &str, n: u32, via: &str| {
        format!("route {verb} 10.{}.{}.{}/32{via}\n", 100 + n / 62_500, n / 250 % 250, n % 250)
    };
    let batch: String = (0..20_000)
        .map(|n| line("add", n, " via 10.0.0.9"))
        .chain((0..19_990).map(|n| line("del", n, "")))
        .collect();
    switch.sandbox().write("routes", &batch);
    // The daemon does not run meanwhile, so that events are lost.
    let daemon = switch.daemon().expect("it runs").pid();
    switch.run(&format!("kill -STOP {daemon}"));
    let file = switch.sandbox().file("routes");
    switch.netns().sh(&format!("ip -batch {}", file.display()));
    switch.run(&format!("kill -CONT {daemon}"));
    let routes = || -> Vec<String> {
        let text = switch.appctl("ovs/route/show");
        text.lines().filter(|l| l.contains(" GW 10.0.0.9 ")).map(str::to_owned).collect()
    };
    assert!(wait_until(SOON, || routes().len() == 10), "{:?}", routes().len());
    assert!(routes().iter().any(|l| l.starts_with("Cached: 10.100.79.249/32 ")), "{:?}", routes());
    assert_ne!(switch.counter("netlink_overflow"), 0, "no event was lost");
    assert!(switch.warnings().is_empty(), "{:?}", switch.warnings());
}

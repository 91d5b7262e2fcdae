// SPDX-License-Identifier: Apache-2.0
//! Switches and looks at them for these tests.

use slipswitch_tests::harness::{
    Host, Kind, Mode, Options, Switch, wait_until, without_privilege, without_tool,
};
use std::time::Duration;

/// How long something may take that should be there at once.
pub const SOON: Duration = Duration::from_secs(10);

/// How long a reconnection may take: the longest pause between two attempts, and some.
pub const BACKOFF: Duration = Duration::from_secs(20);

/// True, after saying so, where switches with devices cannot be made.
pub fn without_namespaces() -> bool {
    without_privilege() || without_tool(&["ip", "ping", "fping", "nsenter", "ss"])
}

/// Options of a switch of `mode` whose daemon is started by `before`.
pub fn started_by(mode: Mode, before: &[&str]) -> Options {
    let before = before.iter().map(|word| (*word).to_owned()).collect();
    Options { before, ..Options::new(Kind::under_test(), mode) }
}

/// A bridge `br0` with the hosts 10.0.0.1 on port h1 and 10.0.0.2 on port h2.
pub fn two_hosts(switch: &Switch) -> (Host, Host) {
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    let b = switch.host_on("br0", "h2", "10.0.0.2/24");
    (a, b)
}

/// A switch with [`two_hosts`].
pub fn pair() -> (Switch, Host, Host) {
    let switch = Switch::start(Kind::under_test(), Mode::Real);
    let (a, b) = two_hosts(&switch);
    (switch, a, b)
}

/// Waits until flows between a host and an address are stable: the first packets teach the switch
/// addresses, and earlier megaflows are replaced.
#[track_caller]
pub fn warm(switch: &Switch, from: &Host, to: &str) {
    assert!(from.reaches(to, SOON), "{to} does not answer: {}", switch.story());
    from.ping(to, 15);
}

/// Waits until both directions between h1 and h2 run in the kernel.
#[track_caller]
pub fn wait_until_offloaded(switch: &Switch) {
    let mut text = String::new();
    let both = wait_until(SOON, || {
        text = switch.appctl("dpctl/dump-flows -m");
        ["in_port(h1)", "in_port(h2)"].iter().all(|port| {
            let is_it = |l: &str| {
                l.contains(port) && l.contains("eth_type(0x0800)") && l.contains("dp:tcx")
            };
            text.lines().any(is_it)
        })
    });
    assert!(both, "{text}\n{}", switch.story());
}

/// Waits until a column of an Interface row holds a value.
#[track_caller]
pub fn interface(switch: &Switch, name: &str, column: &str, wanted: &str) {
    let mut value = String::new();
    let there = wait_until(SOON, || {
        value = switch.vsctl(&format!("get interface {name} {column}"));
        value.trim() == wanted
    });
    assert!(there, "{column} of {name} is {value}, not {wanted}: {}", switch.story());
}

/// Kilobytes of memory that the daemon holds.
pub fn memory(switch: &Switch) -> u64 {
    let pid = switch.sandbox().read("ovs-vswitchd.pid");
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.trim()));
    let status = status.expect("the daemon runs");
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).expect("Linux has it");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("kilobytes")
}

/// Descriptors that the daemon holds.
pub fn descriptors(switch: &Switch) -> usize {
    let pid = switch.sandbox().read("ovs-vswitchd.pid");
    let all = std::fs::read_dir(format!("/proc/{}/fd", pid.trim()));
    all.expect("the daemon runs").count()
}

/// The daemon's warnings and errors that hold `part`.
pub fn warnings_with(switch: &Switch, part: &str) -> Vec<String> {
    switch.warnings().into_iter().filter(|line| line.contains(part)).collect()
}

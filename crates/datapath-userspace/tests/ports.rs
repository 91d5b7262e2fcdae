// SPDX-License-Identifier: Apache-2.0
//! Ports on real interfaces. Each test runs in its own network namespace. Needs root.

use clock::Clock;
use datapath::{Counters, Datapath, DropReason, PortKind, PortNo, PortSpec, Ports};
use datapath_userspace::{Config, UserspaceDatapath};
use netdev::{Policing, Reception};
use std::net::UdpSocket;
use std::process::Command;
use std::sync::Arc;
use testing::in_namespace;

/// Runs `ip`, which must succeed.
fn ip(arguments: &str) {
    let out =
        Command::new("ip").args(arguments.split(' ')).output().expect("iproute2 is installed");
    assert!(out.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&out.stderr));
}

/// The owner of interfaces that outlive their datapath.
const OWNER: &str = "/run/test";

fn datapath(persistent_internal: bool) -> Arc<UserspaceDatapath> {
    let persistent_internal = persistent_internal.then(|| OWNER.into());
    let config = Config { persistent_internal, ..Config::default() };
    UserspaceDatapath::new("netdev@test", Clock::new(), config)
}

fn add(dp: &UserspaceDatapath, name: &str, kind: PortKind) -> PortNo {
    let spec = PortSpec { name: name.into(), kind, ..PortSpec::default() };
    dp.add_port(&spec).unwrap_or_else(|e| panic!("{e}"))
}

fn is_gone(name: &str) -> bool {
    // A child process that is being started may hold a copy of a descriptor for a moment.
    (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(2));
        !netdev::link::exists(name)
    })
}

#[test]
fn persistent_internal_ports_outlive_shutdown_but_not_removal_or_cleanup() {
    in_namespace(|| {
        let dp = datapath(true);
        let a = add(&dp, "int-a", PortKind::Internal);
        add(&dp, "int-b", PortKind::Internal);
        add(&dp, "tap-c", PortKind::Tap);
        ip("addr add 10.0.0.1/24 dev int-b");
        dp.set_receiving(a, Reception::Off).expect("nothing to do");
        dp.remove_port(a).expect("it is there");
        assert!(is_gone("int-a"));
        dp.shutdown();
        assert!(is_gone("tap-c"), "only internal ports are kept");
        assert!(netdev::link::exists("int-b"));
        drop(dp);
        assert_eq!(netdev::persistent_interfaces(OWNER).expect("netlink"), ["int-b"]);

        let dp = datapath(true);
        assert_eq!(add(&dp, "int-b", PortKind::Internal), PortNo(1));
        let out = Command::new("ip").args(["addr", "show", "int-b"]).output().expect("installed");
        assert!(String::from_utf8_lossy(&out.stdout).contains("10.0.0.1/24"));
        dp.cleanup();
        assert!(is_gone("int-b"));

        // Without the setting the interface vanishes, even if an earlier run made it persistent.
        let dp = datapath(true);
        add(&dp, "int-d", PortKind::Internal);
        dp.shutdown();
        let dp = datapath(false);
        add(&dp, "int-d", PortKind::Internal);
        dp.shutdown();
        assert!(is_gone("int-d"));
    });
}

#[test]
fn receiving_is_passed_to_the_device() {
    in_namespace(|| {
        ip("link add v0 type veth peer name p0");
        let dp = datapath(false);
        let port = add(&dp, "p0", PortKind::System);
        let hooks = || {
            let text = std::fs::read_to_string("/proc/thread-self/net/ptype").expect("proc");
            text.lines().filter(|l| l.starts_with("ALL") && l.contains("p0")).count()
        };
        ip("link set v0 up");
        ip("link set p0 up");
        assert_eq!(hooks(), 1);
        dp.set_receiving(port, Reception::Off).expect("a system port can");
        assert_eq!(hooks(), 0);
        dp.set_receiving(port, Reception::On).expect("a system port can");
        assert_eq!(hooks(), 1);
        dp.shutdown();
    });
}

#[test]
fn what_a_device_dropped_is_still_counted_when_its_port_is_gone() {
    in_namespace(|| {
        ip("link add va type veth peer name vb");
        ip("link set va up");
        ip("link set vb up");
        ip("addr add 10.0.0.1/24 dev vb");
        ip("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev vb");
        let dp = datapath(false);
        let port = add(&dp, "va", PortKind::System);
        dp.set_policing(port, Policing { rate_kbps: 1, burst_kb: 1, ..Policing::default() })
            .expect("it can be policed");
        let socket = UdpSocket::bind("10.0.0.1:0").expect("the address is there");
        let dropped = || dp.drops(DropReason::Policing);
        let drops = (0..2000).any(|_| {
            socket.send_to(&[0; 1000], "10.0.0.2:9").expect("its neighbour is known");
            std::thread::sleep(std::time::Duration::from_millis(2));
            dropped() > 0
        });
        assert!(drops, "nothing was above the limit");
        let before = dropped();
        dp.remove_port(port).expect("it is there");
        assert!(dropped() >= before, "{} instead of {before}", dropped());
    });
}

// SPDX-License-Identifier: Apache-2.0
//! BFD between this switch and Open vSwitch, over a path whose loss no device sees.

use crate::tools::{SOON, switch};
use slipswitch_tests::harness::{Kind, Mode, Switch, wait_until};

/// A switch whose bridge br0 has port `v`, and Open vSwitch with port `w`. Bridge br1 lies between them:
/// when it drops all packets, `v` and `w` keep their carrier.
fn apart() -> Option<(Switch, Switch)> {
    let ours = switch()?;
    let real = Switch::start(Kind::RealOvs, Mode::Real);
    real.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
    let other = real.netns().path().display().to_string();
    ours.netns().sh(&format!(
        "ip link add v type veth peer name v1 && ip link add w1 type veth peer name w netns {other} \
         && ip link set v up && ip link set v1 up && ip link set w1 up"
    ));
    real.netns().sh("ip link set w up");
    ours.vsctl("add-br br1 -- set bridge br1 datapath_type=netdev");
    ours.vsctl("add-port br0 v -- add-port br1 v1 -- add-port br1 w1");
    real.vsctl("add-port br0 w");
    Some((ours, real))
}

/// Waits until a key of an interface's `bfd_status` has a value.
#[track_caller]
fn has(switch: &Switch, interface: &str, key: &str, value: &str) {
    let column = format!("get interface {interface} bfd_status:{key}");
    let is_so =
        wait_until(SOON, || switch.sh(&format!("ovs-vsctl {column}")).stdout.contains(value));
    assert!(is_so, "{key} is not {value}:\n{}", switch.appctl("bfd/show"));
}

#[test]
fn both_switches_find_the_path_and_its_loss() {
    let Some((ours, real)) = apart() else { return };
    let settings = "bfd:enable=true bfd:min_rx=100 bfd:min_tx=100";
    ours.vsctl(&format!("set interface v {settings}"));
    real.vsctl(&format!("set interface w {settings}"));
    for (switch, interface) in [(&ours, "v"), (&real, "w")] {
        has(switch, interface, "forwarding", "true");
        has(switch, interface, "state", "up");
        has(switch, interface, "remote_state", "up");
    }
    ours.ofctl("add-flow br1 priority=100,actions=drop");
    for (switch, interface) in [(&ours, "v"), (&real, "w")] {
        has(switch, interface, "state", "down");
        has(switch, interface, "forwarding", "false");
        has(switch, interface, "diagnostic", "Control Detection Time Expired");
    }

    ours.ofctl("del-flows --strict br1 priority=100");
    for (switch, interface) in [(&ours, "v"), (&real, "w")] {
        has(switch, interface, "state", "up");
        has(switch, interface, "flap_count", "3");
    }

    // One side ends its session: the other learns it.
    real.vsctl("set interface w bfd:enable=false");
    has(&ours, "v", "forwarding", "false");
    assert_eq!(ours.warnings(), Vec::<String>::new());
}

#[test]
fn a_bond_leaves_a_member_whose_path_is_lost() {
    let Some(switch) = switch() else { return };
    for n in [0, 1] {
        for pair in ["v", "w"] {
            switch.netns().sh(&format!(
                "ip link add {pair}{n} type veth peer name {pair}{n}m \
                 && ip link set {pair}{n} up && ip link set {pair}{n}m up"
            ));
        }
        switch.vsctl(&format!(
            "add-br mid{n} -- set bridge mid{n} datapath_type=netdev \
             -- add-port mid{n} v{n}m -- add-port mid{n} w{n}m"
        ));
    }
    switch.vsctl("add-br br1 -- set bridge br1 datapath_type=netdev");
    for (bridge, bond, end) in [("br0", "bond0", "v"), ("br1", "bond1", "w")] {
        let bfd = [0, 1].map(|n| {
            format!(" -- set interface {end}{n} bfd:enable=true bfd:min_rx=100 bfd:min_tx=100")
        });
        switch.vsctl(&format!(
            "add-bond {bridge} {bond} {end}0 {end}1 bond_mode=active-backup other_config:bond-primary={end}0{}",
            bfd.concat()
        ));
    }
    let a = switch.host_on("br0", "h1", "10.0.0.1/24");
    let _b = switch.host_on("br1", "h2", "10.0.0.2/24");
    let is_active = |bond: &str, member: &str| {
        let show = switch.appctl(&format!("bond/show {bond}"));
        show.contains(&format!("active-backup primary: {}\n", &format!("{}0", &member[..1])))
            && show.contains(&format!("member {member}: enabled\n  active member"))
    };
    let both =
        |n: u32| is_active("bond0", &format!("v{n}")) && is_active("bond1", &format!("w{n}"));
    assert!(wait_until(SOON, || both(0)), "{}", switch.appctl("bond/show"));
    assert!(a.reaches("10.0.0.2", SOON));
    switch.ofctl("add-flow mid0 priority=100,actions=drop");
    assert!(wait_until(SOON, || both(1)), "{}", switch.appctl("bond/show"));
    assert!(a.reaches("10.0.0.2", SOON), "{}", switch.appctl("bond/show"));
    switch.ofctl("del-flows --strict mid0 priority=100");
    assert!(wait_until(SOON, || both(0)), "{}", switch.appctl("bond/show"));
    assert!(a.reaches("10.0.0.2", SOON), "{}", switch.appctl("bond/show"));
    assert_eq!(switch.warnings(), Vec::<String>::new());
}

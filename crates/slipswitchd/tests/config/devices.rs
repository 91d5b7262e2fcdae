// SPDX-License-Identifier: Apache-2.0
//! With real devices, in a network namespace.

use crate::rig::{Rig, until, words};

fn veth(rig: &Rig, name: &str) {
    rig.ip(&format!("link add {name} type veth peer name {name}-peer"));
    for end in [name, &format!("{name}-peer")] {
        rig.ip(&format!("link set {end} up"));
    }
}

#[test]
fn devices_vanish_and_return() {
    let Some(rig) = Rig::in_namespace() else { return };
    veth(&rig, "v0");
    let _ = rig.vsctl(&words("add-br br0 -- add-port br0 absent -- add-port br0 v0 -- add-port br0 in0 -- set interface in0 type=internal"));
    assert_eq!(rig.interface("absent", "ofport"), "-1");
    assert_eq!(
        rig.interface("absent", "error"),
        "\"could not open network device absent (No such device)\""
    );
    let number = rig.interface("v0", "ofport");
    until("the link is up", || rig.interface("v0", "link_state") == "up");
    let counters = ["ofproto_reinit_ports", "netlink_received", "netlink_sent"];
    let before = counters.map(|name| rig.counter(name));
    rig.ip("link set v0 mtu 1400");
    until("the MTU is seen", || rig.interface("v0", "mtu") == "1400");
    for (name, before) in counters.into_iter().zip(before) {
        assert!(rig.counter(name) > before, "{name} was {before}");
    }
    until("internal ports follow", || rig.interface("in0", "mtu") == "1400");
    rig.ip("link set v0 down");
    until("the device is down", || rig.interface("v0", "admin_state") == "down");
    rig.ip("link del v0");
    until("the device is gone", || rig.interface("v0", "ofport") == "-1");
    assert_eq!(
        rig.interface("v0", "error"),
        "\"could not open network device v0 (No such device)\""
    );
    assert_eq!(rig.interface("v0", "statistics"), "{}");
    veth(&rig, "v0");
    until("the device is back", || rig.interface("v0", "ofport") == number);
    assert_eq!(rig.interface("v0", "error"), "[]");
    veth(&rig, "absent");
    until("the absent one has come", || rig.interface("absent", "error") == "[]");
    assert_eq!(rig.log().matches("added interface in0 on").count(), 1, "{}", rig.log());
}

#[test]
fn a_bridge_has_the_lowest_address_of_its_devices() {
    let Some(rig) = Rig::in_namespace() else { return };
    for (name, mac) in [("v0", "00:16:3e:00:00:09"), ("v1", "00:16:3e:00:00:03")] {
        veth(&rig, name);
        rig.ip(&format!("link set {name} address {mac}"));
    }
    rig.vsctl_ok(&words("add-br br0 -- add-port br0 v0"));
    assert_eq!(rig.interface("br0", "mac_in_use"), "\"00:16:3e:00:00:09\"");
    rig.vsctl_ok(&words("add-port br0 v1"));
    assert_eq!(rig.interface("br0", "mac_in_use"), "\"00:16:3e:00:00:03\"");
    assert_eq!(rig.vsctl_ok(&["get", "bridge", "br0", "datapath_id"]), "\"000000163e000003\"");
    assert!(rig.ip("link show br0").contains("00:16:3e:00:00:03"));
}

#[test]
fn internal_ports_are_interfaces_that_keep_their_address() {
    let Some(mut rig) = Rig::in_namespace() else { return };
    rig.vsctl_ok(&words("add-br br0 -- set bridge br0 datapath_type=system -- add-port br0 in0 -- set interface in0 type=internal"));
    assert!(
        rig.log().contains("bridges of datapath_type system run on Slipswitch's own datapath"),
        "{}",
        rig.log()
    );
    let macs = |rig: &Rig| ["br0", "in0"].map(|i| rig.interface(i, "mac_in_use"));
    let before = macs(&rig);
    assert!(rig.ip("link show in0").contains(before[1].trim_matches('"')));
    rig.daemon = None;
    rig.start_daemon();
    until("the bridge is there", || rig.path("br0.mgmt").exists());
    assert_eq!(macs(&rig), before);
    rig.vsctl_ok(&[
        "set",
        "interface",
        "in0",
        "ingress_policing_rate=1000",
        "ingress_policing_burst=100",
    ]);
    rig.vsctl_ok(&["del-br", "br0"]);
    let left = rig.ip("-br link");
    assert!(!left.contains("br0") && !left.contains("in0"), "{left}");
    assert!(!rig.log().contains("|WARN|bridge|"), "{}", rig.log());
}

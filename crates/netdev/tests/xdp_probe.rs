// SPDX-License-Identifier: Apache-2.0
//! The properties of an interface that matter to XDP.

mod support;

use netdev::{Kind, Peer, Reception, XdpProbe, XdpProber};
use std::process::Command;
use support::*;
use testing::{Netns, Resident};

/// Sets the offload `feature` of `name` to `to`, in the thread's namespace.
fn switch(name: &str, feature: &str, to: &str) {
    let status = Command::new("ethtool").args(["-K", name, feature, to]).status();
    assert!(status.expect("ethtool is installed").success(), "ethtool -K {name} {feature} {to}");
}

fn probe(name: &str) -> XdpProbe {
    XdpProber::default().probe(name).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn peer(probe: &XdpProbe) -> (Option<i32>, &netdev::Interface) {
    match &probe.peer {
        Peer::Known { namespace, interface } => (*namespace, interface),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_plain_pair_takes_no_redirects_and_leaves_work_to_the_other_end() {
    in_namespace(|| {
        veth("v0", "p");
        ip("link add br0 type bridge");
        ip("link set p master br0");
        let s = probe("p");
        assert_eq!(s.interface.kind.as_deref(), Some("veth"));
        assert_eq!(s.interface.driver.as_ref().map(|d| d.name.as_str()), Some("veth"));
        assert!(s.interface.master.is_some() && s.interface.xdp.is_empty());
        let (namespace, v0) = peer(&s);
        assert_eq!((namespace, v0.name.as_str(), v0.master), (None, "v0", None));
        assert_eq!(v0.runs_napi(), Some(false));
        let on = v0.offloads.as_ref().expect("readable");
        assert!(on.leaves_checksums() && on.leaves_tags() && on.leaves_segmentation(), "{on:?}");
        switch("v0", "tx", "off");
        switch("v0", "txvlan", "off");
        switch("v0", "tx-vlan-stag-hw-insert", "off");
        switch("v0", "gro", "on");
        let s = probe("p");
        let (_, v0) = peer(&s);
        assert_eq!(v0.runs_napi(), Some(true), "GRO runs it");
        let on = v0.offloads.as_ref().expect("readable");
        assert!(!on.leaves_checksums() && !on.leaves_tags() && !on.leaves_segmentation(), "{on:?}");
        ip("link set v0 down");
        assert_eq!(peer(&probe("p")).1.runs_napi(), Some(false));
        assert_eq!(probe("br0").peer, Peer::None);
    });
}

/// A device without a peer is asked, too; and filters of the qdisc `ingress` are not at the egress.
#[test]
fn filters_at_the_egress_of_any_device_are_seen() {
    in_namespace(|| {
        ip("link add name br0 type bridge");
        let tc = |line: &str| {
            let status = Command::new("tc").args(line.split(' ')).status();
            assert!(status.expect("iproute2 is installed").success(), "tc {line}");
        };
        assert_eq!(probe("br0").has_egress_filter, Some(false));
        tc("qdisc add dev br0 clsact");
        assert_eq!(probe("br0").has_egress_filter, Some(false));
        tc("filter add dev br0 egress protocol all u32 match u32 0 0");
        assert_eq!(probe("br0").has_egress_filter, Some(true));
        tc("qdisc del dev br0 clsact");
        tc("qdisc add dev br0 ingress");
        tc("filter add dev br0 ingress protocol all u32 match u32 0 0");
        assert_eq!(probe("br0").has_egress_filter, Some(false));
    });
}

#[test]
fn programs_at_the_other_end_are_seen() {
    in_namespace(|| {
        veth("v0", "p");
        let mut s = spec("v0", Kind::AfXdp);
        s.options.insert("xdp-mode".into(), "native".into());
        let Ok(held) = netdev::open(&s) else {
            testing::skip("no AF_XDP here");
            return;
        };
        let found = probe("p");
        let (_, v0) = peer(&found);
        assert!(v0.xdp.driver.is_some() && v0.xdp.generic.is_none(), "{v0:?}");
        assert_eq!(v0.runs_napi(), Some(true));
        assert!(found.interface.xdp.is_empty());
        assert_eq!(probe("v0").interface.xdp, v0.xdp);
        drop(held);
        s.options.insert("xdp-mode".into(), "generic".into());
        let held = opened(&s);
        let found = probe("p");
        let (_, v0) = peer(&found);
        assert!(v0.xdp.generic.is_some() && v0.xdp.driver.is_none());
        let e = held.device.set_receiving(Reception::Off).err().map(|e| e.kind());
        assert_eq!(e, Some(std::io::ErrorKind::Unsupported));
    });
}

#[test]
fn a_peer_in_another_namespace_is_found() {
    in_namespace(|| {
        let far = Netns::new();
        let _resident = Resident::of(&far).expect("util-linux is installed");
        ip(&format!("link add p type veth peer name eth0 netns {}", far.path().display()));
        ip("link set p up");
        far.sh("ip link set eth0 up");
        let prober = XdpProber::default();
        let s = prober.probe("p").expect("it is there");
        let (namespace, eth0) = peer(&s);
        assert!(namespace.is_some());
        assert_eq!((eth0.name.as_str(), eth0.kind.as_deref()), ("eth0", Some("veth")));
        assert_eq!(eth0.driver.as_ref().map(|d| d.name.as_str()), Some("veth"));
        assert_eq!(eth0.runs_napi(), Some(false));
        assert!(eth0.offloads.as_ref().is_some_and(netdev::Offloads::leaves_checksums));
        // The path of the namespace is remembered, its contents are not. A path may become invalid.
        far.with(|| switch("eth0", "gro", "on"));
        let s = prober.probe("p").expect("it is there");
        assert_eq!(peer(&s).1.runs_napi(), Some(true));
        let other = Netns::new();
        let _other_resident = Resident::of(&other).expect("util-linux is installed");
        far.sh(&format!("ip link set eth0 netns {}", other.path().display()));
        other.sh("ip link set eth0 up; ethtool -K eth0 gro off");
        let s = prober.probe("p").expect("it is there");
        assert_eq!(peer(&s).1.runs_napi(), Some(false));
    });
}

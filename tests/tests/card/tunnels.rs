// SPDX-License-Identifier: Apache-2.0
//! Flows into and out of tunnels in the card. The host has the address of the tunnels at a port of the
//! card that is on no bridge, and the other end is a device of the kernel.

use crate::tools::{SOON, Site, sees};
use slipswitch_tests::harness::wait_until;

/// Addresses of the underlay: the switch's and the other end's.
const HERE: &str = "10.1.0.1";
const THERE: &str = "10.1.0.2";

/// Moves the second host to the other end of a VXLAN tunnel: its address is at a tunnel's device, and the cable
/// carries outer packets.
fn behind_tunnel(site: &Site) {
    let b = &site.b.netns;
    b.sh(&format!(
        "ip addr flush dev eth0; ip addr add {THERE}/24 dev eth0
         ip link add vx type vxlan id 7 remote {HERE} local {THERE} dstport 4789
         ip addr add 10.0.0.2/24 dev vx; ip link set vx up"
    ));
    site.switch.vsctl("del-port br0 card1");
    site.switch.netns().sh(&format!("ip addr add {HERE}/24 dev card1; ip link set card1 up"));
    site.switch.vsctl(&format!(
        "add-port br0 t1 -- set interface t1 type=vxlan options:key=7 options:remote_ip={THERE}"
    ));
    site.switch.flows(
        "br0",
        "priority=10,icmp,in_port=card0,actions=t1
         priority=10,icmp,in_port=t1,actions=card0
         priority=1,actions=NORMAL",
    );
}

#[test]
fn the_card_pushes_and_pops_headers_of_a_tunnel() {
    let Some(site) = Site::new("") else { return };
    behind_tunnel(&site);
    site.warm();
    let port = "in_port(vxlan_sys_4789)";
    sees(&site, &[port, "icmp", "offloaded:yes, dp:tc,", "actions:card0"]);
    sees(&site, &["in_port(card0)", "icmp", "offloaded:yes, dp:tc,", "tnl_push"]);
    let out = site.filters("card0");
    for part in ["tunnel_key  set", "dst_ip 10.1.0.2", "key_id 7", "skip_sw", "in_hw_count 1"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let back = site.filters("slipvxlan4789");
    for part in ["enc_dst_ip 10.1.0.1", "enc_key_id 7", "tunnel_key  unset", "in_hw_count 1"] {
        assert!(back.contains(part), "{part}: {back}");
    }
    let hits = site.debug("hits");
    assert_eq!(site.a.ping("10.0.0.2", 20), 20);
    assert_eq!(site.debug("hits") - hits, 40, "both directions");
    let counted = wait_until(SOON, || site.switch.counts("br0 icmp,in_port=t1").0 >= 20);
    assert!(counted, "{:?}", site.switch.counts("br0 icmp,in_port=t1"));
    // The flows end with the tunnel, and so do the filters.
    site.switch.vsctl("del-port br0 t1");
    let gone = wait_until(SOON, || site.debug("rules") == 0);
    assert!(gone, "{}", site.megaflows(&[]).join("\n"));
    // Before Linux 6.6 the programs of BPF are filters, too.
    assert_eq!(site.filters("card0").matches("flower").count(), 0, "{}", site.filters("card0"));
}

#[test]
fn a_tunnel_whose_actions_the_card_lacks_stays_on_the_host() {
    // FLOW_ACTION_TUNNEL_ENCAP and FLOW_ACTION_TUNNEL_DECAP (include/net/flow_offload.h).
    let Some(site) = Site::new("refuse=0x1800") else { return };
    behind_tunnel(&site);
    site.warm();
    sees(&site, &["in_port(vxlan_sys_4789)", "icmp", "offloaded:partial", "card-refused"]);
    sees(&site, &["in_port(card0)", "icmp", "offloaded:partial", "card-refused"]);
    let stats = site.switch.appctl("dpctl/offload-stats-show");
    assert!(stats.contains("swcard: the card lacks an action"), "{stats}");
    assert_eq!(site.filters("slipvxlan4789").matches("flower").count(), 0, "none is left");
    assert_eq!(site.a.ping("10.0.0.2", 10), 10);
}

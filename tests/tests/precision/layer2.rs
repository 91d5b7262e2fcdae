// SPDX-License-Identifier: Apache-2.0
//! NORMAL: what learning and VLANs look at.

use crate::masks::assert_masks;
use crate::packets::{arp, eth, receive, tagged, tcp};
use slipswitch_tests::harness::Switch;

const BROADCAST: &str = "ff:ff:ff:ff:ff:ff";

fn broadcast(from: u32) -> String {
    eth(from, 0).replace("dst=50:54:00:00:00:00", &format!("dst={BROADCAST}"))
}

#[test]
fn learning() {
    let switch = Switch::dummy(4);
    switch.flows("br0", "actions=NORMAL");
    // Unknown: flooded. Then each answers, and is known.
    receive(&switch, "p1", (1..=8).map(|n| arp(&broadcast(n))));
    receive(&switch, "p2", (11..=18).map(|n| arp(&eth(n, n - 10))));
    let talk = |port: u16| {
        (1..=8u32).map(move |n| tcp(&eth(n, n + 10), "10.0.0.1", "10.0.0.2", (1000 + port, 80)))
    };
    receive(&switch, "p1", (0..4).flat_map(talk));
    receive(&switch, "p3", (1..=4).map(|n| tcp(&eth(30, 40 + n), "10.0.0.3", "10.0.0.4", (1, 80))));
    assert_masks(
        &switch,
        "28 megaflows, 3 masks
         8 eth(src,dst),arp(sip,tip,op)
         8 eth(src,dst),eth_type()
         12 eth(src,dst),ipv4(frag)",
    );
}

#[test]
fn vlans() {
    let switch = Switch::dummy(4);
    switch.vsctl("set port p1 tag=10 -- set port p2 tag=20 -- set port p4 trunks=10");
    switch.flows("br0", "actions=NORMAL");
    receive(&switch, "p1", (1..=4).map(|n| arp(&broadcast(n))));
    receive(&switch, "p2", (11..=14).map(|n| arp(&broadcast(n))));
    let trunk =
        |vid: u16| (0..8).map(move |pcp| tagged(&arp(&eth(21, u32::from(vid / 10))), vid, pcp));
    receive(&switch, "p3", [10, 20, 30].into_iter().flat_map(trunk));
    receive(&switch, "p4", [10, 20].into_iter().flat_map(trunk));
    receive(&switch, "p1", (0..4).map(|n| arp(&eth(1, 21 + n))));
    assert_masks(
        &switch,
        "38 megaflows, 4 masks
         8 eth(src,dst),arp(sip,tip,op)
         4 eth(src,dst),eth_type()
         2 eth(src,dst),vlan(vid),encap(eth_type())
         24 eth(src,dst),vlan(vid,pcp),encap(eth_type())",
    );
}

#[test]
fn patched_bridges() {
    let switch = Switch::dummy(3);
    switch.vsctl(
        "add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=secure \
         -- add-br br2 -- set bridge br2 datapath_type=dummy fail_mode=secure \
         -- add-port br0 a0 -- set interface a0 type=patch options:peer=a1 ofport_request=10 \
         -- add-port br1 a1 -- set interface a1 type=patch options:peer=a0 ofport_request=10 \
         -- add-port br1 b1 -- set interface b1 type=patch options:peer=b2 ofport_request=11 \
         -- add-port br2 b2 -- set interface b2 type=patch options:peer=b1 ofport_request=10 \
         -- add-port br2 q1 -- set interface q1 type=dummy ofport_request=1 \
         -- add-port br2 q2 -- set interface q2 type=dummy ofport_request=2",
    );
    switch.flows("br0", "in_port=10,actions=NORMAL\npriority=1,actions=10");
    switch.flows(
        "br1",
        "ip,nw_dst=10.1.0.0/16,in_port=10,actions=11\nin_port=11,actions=10\npriority=1,actions=drop",
    );
    switch.flows(
        "br2",
        "ip,nw_dst=10.1.1.1,actions=mod_dl_dst:50:54:00:00:00:63,1\npriority=1,actions=2",
    );
    let to =
        |n: u32| tcp(&eth(1, 2), "10.0.0.1", &format!("10.{}.1.{}", n % 3, n % 4), (n as u16, 80));
    receive(&switch, "p1", (0..24).map(to));
    receive(&switch, "p2", (0..24).map(to));
    receive(&switch, "q1", (0..4).map(to));
    assert_masks(
        &switch,
        "13 megaflows, 5 masks
         3 eth(dst),ipv4(dst,frag)
         2 ipv4(dst,frag)
         3 ipv4(dst/255.254.0.0,frag)
         3 ipv4(dst/255.255.0.0,frag)
         2 ipv4(dst/255.255.255.254,frag)",
    );
}

// SPDX-License-Identifier: Apache-2.0
//! Rules on addresses and ports.

use crate::masks::assert_masks;
use crate::packets::{arp, eth, ip, receive, tcp, udp};
use slipswitch_tests::harness::Switch;

#[test]
fn a_thousand_hosts() {
    let switch = Switch::dummy(2);
    let rules: Vec<String> =
        (0..1000).map(|n| format!("ip,nw_dst=10.0.{}.{},actions=2", n / 250, n % 250)).collect();
    switch.flows("br0", &rules.join("\n"));
    let known = (0..50).map(|n| format!("10.0.{}.{}", n % 4, n * 5));
    let near = (0..50).map(|n| format!("10.0.{}.{}", 4 + n, n));
    let far = (0..100).map(|n| format!("{}.{n}.7.9", 11 + 2 * n));
    let all = known.chain(near).chain(far);
    receive(&switch, "p1", all.map(|to| ip(&eth(1, 2), "10.9.9.9", &to, 64)));
    assert_masks(
        &switch,
        "60 megaflows, 11 masks
         50 ipv4(dst,frag)
         1 ipv4(dst/128.0.0.0,frag)
         1 ipv4(dst/192.0.0.0,frag)
         1 ipv4(dst/224.0.0.0,frag)
         1 ipv4(dst/240.0.0.0,frag)
         1 ipv4(dst/252.0.0.0,frag)
         1 ipv4(dst/255.0.0.0,frag)
         1 ipv4(dst/255.255.224.0,frag)
         1 ipv4(dst/255.255.240.0,frag)
         1 ipv4(dst/255.255.248.0,frag)
         1 ipv4(dst/255.255.252.0,frag)",
    );
}

#[test]
fn prefixes_of_several_lengths() {
    let switch = Switch::dummy(2);
    let routes = [
        (8, "10.0.0.0"),
        (16, "10.1.0.0"),
        (24, "10.1.1.0"),
        (25, "10.1.1.128"),
        (32, "10.1.1.129"),
        (16, "192.168.0.0"),
        (12, "172.16.0.0"),
    ];
    let rules: Vec<String> = routes
        .iter()
        .map(|(bits, net)| format!("priority={bits},ip,nw_dst={net}/{bits},actions=2"))
        .collect();
    switch.flows("br0", &format!("{}\npriority=0,actions=drop", rules.join("\n")));
    let to = [
        "10.2.0.1",
        "10.200.0.1",
        "10.1.2.1",
        "10.1.128.1",
        "10.1.1.1",
        "10.1.1.127",
        "10.1.1.128",
        "10.1.1.129",
        "10.1.1.130",
        "10.1.1.200",
        "192.168.1.1",
        "192.168.200.1",
        "192.169.0.1",
        "172.16.0.1",
        "172.31.0.1",
        "172.32.0.1",
        "8.8.8.8",
        "1.1.1.1",
        "200.0.0.1",
        "224.0.0.1",
    ];
    let packets = to
        .iter()
        .flat_map(|to| (0..3).map(move |n| tcp(&eth(1, 2), &format!("10.9.9.{n}"), to, (n, 80))));
    receive(&switch, "p1", packets);
    assert_masks(
        &switch,
        "17 megaflows, 14 masks
         2 ipv4(dst,frag)
         1 ipv4(dst/224.0.0.0,frag)
         2 ipv4(dst/248.0.0.0,frag)
         1 ipv4(dst/254.0.0.0,frag)
         1 ipv4(dst/255.128.0.0,frag)
         1 ipv4(dst/255.224.0.0,frag)
         1 ipv4(dst/255.240.0.0,frag)
         1 ipv4(dst/255.254.0.0,frag)
         2 ipv4(dst/255.255.0.0,frag)
         1 ipv4(dst/255.255.128.0,frag)
         1 ipv4(dst/255.255.254.0,frag)
         1 ipv4(dst/255.255.255.128,frag)
         1 ipv4(dst/255.255.255.192,frag)
         1 ipv4(dst/255.255.255.254,frag)",
    );
}

#[test]
fn access_list() {
    let switch = Switch::dummy(2);
    // 1000-1999 and 80, from one network; DNS to one host.
    switch.flows(
        "br0",
        "priority=100,tcp,nw_src=10.0.0.0/16,tp_dst=0x03e8/0xfff8,actions=2
         priority=100,tcp,nw_src=10.0.0.0/16,tp_dst=0x03f0/0xfff0,actions=2
         priority=100,tcp,nw_src=10.0.0.0/16,tp_dst=0x0400/0xfe00,actions=2
         priority=100,tcp,nw_src=10.0.0.0/16,tp_dst=0x0600/0xff00,actions=2
         priority=100,tcp,nw_src=10.0.0.0/16,tp_dst=0x0700/0xff80,actions=2
         priority=100,tcp,nw_src=10.0.0.0/16,tp_dst=0x0780/0xffc0,actions=2
         priority=100,tcp,nw_src=10.0.0.0/16,tp_dst=0x07c0/0xfff0,actions=2
         priority=90,tcp,nw_src=10.0.0.0/16,tp_dst=80,actions=2
         priority=80,udp,nw_dst=10.0.0.53,tp_dst=53,actions=2
         priority=70,arp,actions=2
         priority=1,actions=drop",
    );
    let list = |n: u16| {
        let port = n * 37;
        [
            tcp(&eth(1, 2), "10.0.3.4", "10.0.0.9", (n, port)),
            tcp(&eth(1, 2), "11.0.3.4", "10.0.0.9", (n, port)),
            udp(&eth(1, 2), "10.0.3.4", "10.0.0.53", (n, port)),
            udp(&eth(1, 2), "10.0.3.4", "10.0.0.54", (n, port)),
        ]
    };
    receive(&switch, "p1", (0..60).flat_map(list));
    receive(&switch, "p1", [arp(&eth(1, 2)), ip(&eth(1, 2), "10.0.3.4", "10.0.0.9", 64)]);
    assert_masks(
        &switch,
        "29 megaflows, 24 masks
         1 eth_type()
         1 ipv4(src/255.0.0.0,dst/255.255.255.224,frag)
         1 ipv4(src/255.255.0.0,dst,proto,frag),udp(dst/0xf800)
         1 ipv4(src/255.255.0.0,dst,proto,frag),udp(dst/0xfc00)
         1 ipv4(src/255.255.0.0,dst,proto,frag),udp(dst/0xfe00)
         1 ipv4(src/255.255.0.0,dst,proto,frag),udp(dst/0xff00)
         1 ipv4(src/255.255.0.0,dst,proto,frag),udp(dst/0xff80)
         1 ipv4(src/255.255.0.0,dst,proto,frag),udp(dst/0xffc0)
         1 ipv4(src/255.255.0.0,dst,proto,frag),udp(dst/0xffe0)
         1 ipv4(src/255.255.0.0,dst,proto,frag),udp(dst/0xfff0)
         1 ipv4(src/255.255.0.0,dst/255.255.255.224,proto,frag)
         1 ipv4(src/255.255.0.0,dst/255.255.255.224,proto,frag),tcp(dst/0xf800)
         2 ipv4(src/255.255.0.0,dst/255.255.255.224,proto,frag),tcp(dst/0xff00)
         2 ipv4(src/255.255.0.0,dst/255.255.255.224,proto,frag),tcp(dst/0xff80)
         2 ipv4(src/255.255.0.0,dst/255.255.255.224,proto,frag),tcp(dst/0xffc0)
         3 ipv4(src/255.255.0.0,dst/255.255.255.224,proto,frag),tcp(dst/0xffe0)
         1 ipv4(src/255.255.0.0,dst/255.255.255.224,proto,frag),tcp(dst/0xfff0)
         1 ipv4(src/255.255.0.0,dst/255.255.255.224,proto,frag),tcp(dst/0xfff8)
         1 ipv4(src/255.255.0.0,dst/255.255.255.254,proto,frag)
         1 ipv4(src/255.255.0.0,proto,frag),tcp(dst/0xfe00)
         1 ipv4(src/255.255.0.0,proto,frag),tcp(dst/0xff00)
         1 ipv4(src/255.255.0.0,proto,frag),tcp(dst/0xff80)
         1 ipv4(src/255.255.0.0,proto,frag),tcp(dst/0xffc0)
         1 ipv4(src/255.255.0.0,proto,frag),tcp(dst/0xfff0)",
    );
}

#[test]
fn router() {
    let switch = Switch::dummy(3);
    switch.flows(
        "br0",
        "table=0,priority=20,arp,actions=CONTROLLER
         table=0,priority=10,ip,dl_dst=50:54:00:00:00:fe,actions=resubmit(,1)
         table=0,priority=0,actions=drop
         table=1,priority=24,ip,nw_dst=10.0.1.0/24,actions=load:1->NXM_NX_REG0[],resubmit(,2)
         table=1,priority=24,ip,nw_dst=10.0.2.0/24,actions=load:2->NXM_NX_REG0[],resubmit(,2)
         table=1,priority=0,ip,actions=load:3->NXM_NX_REG0[],resubmit(,2)
         table=2,priority=1,ip,actions=dec_ttl,mod_dl_src:50:54:00:00:00:fe,resubmit(,3)
         table=3,reg0=1,ip,nw_dst=10.0.1.1,actions=mod_dl_dst:50:54:00:00:01:01,2
         table=3,reg0=1,ip,nw_dst=10.0.1.2,actions=mod_dl_dst:50:54:00:00:01:02,2
         table=3,reg0=2,priority=1,actions=mod_dl_dst:50:54:00:00:02:01,3
         table=3,reg0=3,actions=mod_dl_dst:50:54:00:00:03:01,IN_PORT",
    );
    let routed = |n: u32| {
        let to = format!("10.0.{}.{}", n % 4, n / 4 % 4);
        [64, 63].map(|ttl| ip(&eth(n % 5, 0xfe), &format!("10.0.9.{n}"), &to, ttl))
    };
    receive(&switch, "p1", (0..40).flat_map(routed));
    receive(&switch, "p1", (0..10).map(|n| ip(&eth(1, n), "10.0.9.1", "10.0.1.1", 64)));
    receive(&switch, "p1", [ip(&eth(1, 0xfe), "10.0.9.1", "10.0.1.1", 1)]);
    assert_masks(
        &switch,
        "61 megaflows, 4 masks
         1 eth(dst),ipv4(dst/255.255.255.0,proto,ttl,frag)
         10 eth(dst),ipv4(frag)
         20 eth(src,dst),ipv4(dst,proto,ttl,frag)
         30 eth(src,dst),ipv4(dst/255.255.255.0,proto,ttl,frag)",
    );
}

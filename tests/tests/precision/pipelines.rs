// SPDX-License-Identifier: Apache-2.0
//! Conjunctions, groups, registers.

use crate::masks::assert_masks;
use crate::packets::{eth, receive, tcp};
use slipswitch_tests::harness::Switch;

#[test]
fn conjunction() {
    let switch = Switch::dummy(2);
    let mut rules = String::new();
    for n in 1..=8 {
        rules += &format!("priority=10,ip,nw_src=10.0.{n}.0/24,actions=conjunction(7,1/2)\n");
    }
    for port in [80, 443, 8080] {
        rules += &format!("priority=10,tcp,tp_dst={port},actions=conjunction(7,2/2)\n");
    }
    switch.flows(
        "br0",
        &format!("{rules}priority=10,conj_id=7,ip,actions=2\npriority=1,actions=drop"),
    );
    let both = |n: u16| {
        [80, 81, 443, 1000 + n]
            .map(|port| tcp(&eth(1, 2), &format!("10.0.{}.{n}", n % 12), "10.0.9.9", (n, port)))
    };
    receive(&switch, "p1", (0..48).flat_map(both));
    assert_masks(
        &switch,
        "55 megaflows, 6 masks
         3 ipv4(src/255.255.254.0,proto,frag),tcp(dst)
         1 ipv4(src/255.255.254.0,proto,frag),tcp(dst/0xfc00)
         1 ipv4(src/255.255.254.0,proto,frag),tcp(dst/0xfe00)
         30 ipv4(src/255.255.255.0,proto,frag),tcp(dst)
         10 ipv4(src/255.255.255.0,proto,frag),tcp(dst/0xfc00)
         10 ipv4(src/255.255.255.0,proto,frag),tcp(dst/0xfe00)",
    );
}

fn from_many(switch: &Switch) {
    let packet = |n: u16| tcp(&eth(1, 2), &format!("10.0.0.{n}"), "10.0.9.9", (1000 + n, 80));
    receive(switch, "p1", (0..64).map(packet));
}

#[test]
fn group_by_a_hash_of_fields() {
    let switch = Switch::dummy(3);
    switch.ofctl(
        "-O OpenFlow15 add-group br0 'group_id=1,type=select,selection_method=hash,fields(ip_src),bucket=bucket_id:0,weight:1,actions=output:2,bucket=bucket_id:1,weight:1,actions=output:3'",
    );
    switch.flows_by("OpenFlow15", "br0", "actions=group:1");
    from_many(&switch);
    assert_masks(
        &switch,
        "64 megaflows, 1 masks
         64 ipv4(src,frag)",
    );
}

#[test]
fn group_by_the_hash_of_the_datapath() {
    let switch = Switch::dummy(3);
    switch.ofctl(
        "-O OpenFlow15 add-group br0 'group_id=1,type=select,bucket=bucket_id:0,weight:1,actions=output:2,bucket=bucket_id:1,weight:1,actions=output:3'",
    );
    switch.flows_by("OpenFlow15", "br0", "actions=group:1");
    from_many(&switch);
    assert_masks(
        &switch,
        "17 megaflows, 2 masks
         1 ipv4(frag)
         16 recirc_id(),dp_hash(/0xf),in_port(),packet_type(ns,id),ipv4(frag)",
    );
}

#[test]
fn registers_and_metadata() {
    let switch = Switch::dummy(4);
    switch.flows_by(
        "OpenFlow13",
        "br0",
        "table=0,in_port=1,actions=write_metadata:1,goto_table:1
         table=0,in_port=2,actions=write_metadata:2,goto_table:1
         table=0,priority=1,actions=write_metadata:3,goto_table:1
         table=1,metadata=1,actions=set_field:1->reg0,goto_table:2
         table=1,metadata=2,ip,nw_src=10.0.0.0/24,actions=set_field:2->reg0,goto_table:2
         table=1,priority=1,actions=goto_table:2
         table=2,reg0=1,dl_dst=50:54:00:00:00:02,actions=4
         table=2,reg0=2,tcp,tp_dst=80,actions=4
         table=2,priority=1,actions=3",
    );
    for port in ["p1", "p2", "p4"] {
        let packet = |n: u16| {
            tcp(
                &eth(1, 2 + u32::from(n % 2)),
                &format!("10.0.{}.1", n % 3),
                "10.0.9.9",
                (n, 80 + n % 4),
            )
        };
        receive(&switch, port, (0..24).map(packet));
    }
    assert_masks(
        &switch,
        "8 megaflows, 6 masks
         2 eth(dst),ipv4(frag)
         1 ipv4(frag)
         1 ipv4(src/255.255.254.0,frag)
         1 ipv4(src/255.255.255.0,frag)
         2 ipv4(src/255.255.255.0,proto,frag),tcp(dst)
         1 ipv4(src/255.255.255.0,proto,frag),tcp(dst/0xfffe)",
    );
}

// SPDX-License-Identifier: Apache-2.0
//! Expected texts are those of the real `ofproto/trace` (Open vSwitch 3.1) for the same tables and
//! packets, letter for letter after the `Flow:` line. Ports 1 to 5; no LOCAL port.

use crate::group::{GroupKind, Selection};
use crate::snapshot::{BridgeIndex, VlanMode};
use crate::testing::{World, key, make_rule, out, set};
use crate::trace::Tracer;
use crate::translate::EffectsMode;
use flow::Field;
use flow::text::no_numbers;
use openflow::{PortNo, Version};
use std::sync::Arc;

const TCP: &str = "in_port=1,tcp,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,tp_src=1000,tp_dst=80";

/// A world with these flows, in ovs-ofctl's syntax, on bridge 0.
fn world(flows: &[&str]) -> World {
    let mut w = World::new(5);
    add(&mut w, BridgeIndex(0), flows);
    w
}

fn add(w: &mut World, bridge: BridgeIndex, flows: &[&str]) {
    for text in flows {
        let f = openflow::text::parse_flow(text, Version::V15, &no_numbers).unwrap(); // the texts are right
        let table = f.table.unwrap_or(0);
        let actions = f.actions.unwrap_or_default();
        let rule = make_rule(table, f.priority, f.cookie.unwrap_or(0), &f.matching, actions);
        w.bridge(bridge).tables[usize::from(table)].rules.insert(Arc::new(rule));
    }
}

fn check(w: &World, flow: &str, expected: &str) {
    assert_eq!(w.trace(flow).trim_start_matches('\n'), expected.trim_start_matches('\n'));
}

#[test]
fn one_rule() {
    check(
        &world(&["cookie=5,in_port=1,priority=100,actions=output:2"]),
        TCP,
        r#"
bridge("br0")
-------------
 0. in_port=1, priority 100, cookie 0x5
    output:2

Final flow: unchanged
Megaflow: recirc_id=0,eth,ip,in_port=1,nw_frag=no
Datapath actions: 2
"#,
    );
    check(
        &world(&["in_port=2,actions=output:3"]),
        TCP,
        r#"
bridge("br0")
-------------
 0. No match.
    drop

Final flow: unchanged
Megaflow: recirc_id=0,eth,ip,in_port=1,nw_frag=no
Datapath actions: drop
"#,
    );
}

#[test]
fn resubmits_nest_but_the_last() {
    check(
        &world(&[
            "priority=1,actions=resubmit(,1),resubmit(,2),resubmit(,1)",
            "table=1,reg0=0,actions=set_field:1->reg0,output:2",
            "table=1,reg0=1,actions=output:3",
            "table=2,priority=9,tcp,tcp_dst=80,actions=resubmit(,3),output:5",
            "table=3,actions=output:4",
        ]),
        TCP,
        r#"
bridge("br0")
-------------
 0. priority 1
    resubmit(,1)
     1. reg0=0, priority 32768
            set_field:0x1->reg0
            output:2
    resubmit(,2)
     2. tcp,tp_dst=80, priority 9
            resubmit(,3)
             3. priority 32768
                    output:4
            output:5
    resubmit(,1)
 1. reg0=0x1, priority 32768
    output:3

Final flow: tcp,reg0=0x1,in_port=1,vlan_tci=0x0000,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_tos=0,nw_ecn=0,nw_ttl=64,nw_frag=no,tp_src=1000,tp_dst=80,tcp_flags=0
Megaflow: recirc_id=0,eth,tcp,in_port=1,nw_frag=no,tp_dst=80
Datapath actions: 2,4,5,3
"#,
    );
}

#[test]
fn action_sets_and_clones() {
    check(
        &world(&[
            "ip,actions=write_actions(set_field:1.1.1.1->ip_dst,output:3),goto_table:1",
            "table=1,ip,actions=clone(set_field:2.2.2.2->ip_src,output:2),note:01.02.00.00.00.00,write_metadata:0x5",
        ]),
        TCP,
        r#"
bridge("br0")
-------------
 0. ip, priority 32768
    write_actions(set_field:1.1.1.1->ip_dst,output:3)
     -> action set is: set_field:1.1.1.1->ip_dst,output:3
    goto_table:1
     1. ip, priority 32768
            clone(set_field:2.2.2.2->ip_src,output:2)
            set_field:2.2.2.2->ip_src
            output:2
            --. Executing action set:
                    set_field:1.1.1.1->ip_dst
                    output:3
            note:01.02.00.00.00.00
            write_metadata:0x5
--. Executing action set:
    set_field:1.1.1.1->ip_dst
    output:3

Final flow: tcp,metadata=0x5,in_port=1,vlan_tci=0x0000,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,nw_src=10.0.0.1,nw_dst=1.1.1.1,nw_tos=0,nw_ecn=0,nw_ttl=64,nw_frag=no,tp_src=1000,tp_dst=80,tcp_flags=0
Megaflow: recirc_id=0,eth,tcp,in_port=1,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_frag=no
Datapath actions: set(ipv4(src=2.2.2.2)),2,set(ipv4(dst=1.1.1.1)),3,set(ipv4(src=10.0.0.1)),3
"#,
    );
}

#[test]
fn values_stack_and_warnings() {
    check(
        &world(&[
            "ip,actions=push:NXM_NX_REG0[],pop:NXM_NX_REG1[],output:NXM_NX_REG1[],pop:NXM_NX_REG0[],move:NXM_OF_IP_SRC[0..7]->NXM_OF_IP_DST[8..15],output:2,output:1",
        ]),
        TCP,
        r#"
bridge("br0")
-------------
 0. ip, priority 32768
    push:NXM_NX_REG0[]
    pop:NXM_NX_REG1[]
     -> NXM_NX_REG1[] is now 0
    output:NXM_NX_REG1[]
     -> output port is 0
     >> Nonexistent output port
    pop:NXM_NX_REG0[]
     >>>> stack underflow <<<<
    move:NXM_OF_IP_SRC[0..7]->NXM_OF_IP_DST[8..15]
     -> NXM_OF_IP_DST[8..15] is now 0x1
    output:2
    output:1
     >> skipping output to input port

Final flow: tcp,in_port=1,vlan_tci=0x0000,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,nw_src=10.0.0.1,nw_dst=10.0.1.2,nw_tos=0,nw_ecn=0,nw_ttl=64,nw_frag=no,tp_src=1000,tp_dst=80,tcp_flags=0
Megaflow: recirc_id=0,eth,tcp,in_port=1,nw_src=0.0.0.1/0.0.0.255,nw_dst=0.0.0.0/0.0.255.0,nw_frag=no
Datapath actions: set(ipv4(dst=0.0.1.0/0.0.255.0)),2
"#,
    );
}

#[test]
fn groups() {
    let mut w = world(&["actions=group:2"]);
    let any = PortNo::NONE;
    let buckets =
        vec![(0, any, vec![set(Field::Ipv4Src, 0x0101_0101), out(2)]), (0, any, vec![out(3)])];
    w.group(2, GroupKind::All, Selection::Default, buckets);
    w.group(3, GroupKind::FastFailover, Selection::Default, vec![(0, PortNo(2), vec![out(2)])]);
    w.group(
        6,
        GroupKind::Select,
        Selection::DpHash { basis: 0, algorithm: 0 },
        vec![(1, any, vec![out(2)])],
    );
    check(
        &w,
        TCP,
        r#"
bridge("br0")
-------------
 0. priority 32768
    group:2
    bucket 0
            set_field:1.1.1.1->ip_src
            output:2
    bucket 1
            output:3

Final flow: unchanged
Megaflow: recirc_id=0,eth,tcp,in_port=1,nw_src=10.0.0.1,nw_frag=no
Datapath actions: set(ipv4(src=1.1.1.1)),2,set(ipv4(src=10.0.0.1)),3
"#,
    );
    add(&mut w, BridgeIndex(0), &["actions=group:3"]);
    check(
        &w,
        TCP,
        r#"
bridge("br0")
-------------
 0. priority 32768
    group:3
     -> using bucket 0
    bucket 0
            output:2

Final flow: unchanged
Megaflow: recirc_id=0,eth,ip,in_port=1,nw_frag=no
Datapath actions: 2
"#,
    );
    add(&mut w, BridgeIndex(0), &["actions=group:6"]);
    check(
        &w,
        TCP,
        r#"
bridge("br0")
-------------
 0. priority 32768
    group:6
     -> no live bucket

Final flow: unchanged
Megaflow: recirc_id=0,eth,ip,in_port=1,nw_frag=no
Datapath actions: hash(l4(0)),recirc(0x1)
"#,
    );
}

#[test]
fn normal() {
    let mut w = world(&["actions=normal"]);
    w.bundle(1, |b| (b.mode, b.tag) = (VlanMode::Access, 10));
    w.bundle(2, |b| (b.mode, b.tag) = (VlanMode::Access, 10));
    w.bundle(3, |b| (b.mode, b.tag) = (VlanMode::Access, 20));
    check(
        &w,
        &format!("{TCP},dl_vlan=10"),
        r#"
bridge("br0")
-------------
 0. priority 32768
    NORMAL
     >>>> dropping VLAN 10 tagged packet received on port p1 configured as VLAN 10 access port <<<<
     >> disallowed VLAN VID for this input port, dropping

Final flow: unchanged
Megaflow: recirc_id=0,eth,ip,in_port=1,dl_vlan=10,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,nw_frag=no
Datapath actions: drop
"#,
    );
    w.br0().macs.add_static(10, [0x50, 0x54, 0, 0, 0, 7], PortNo(2));
    assert_eq!(
        w.trace_with(TCP, EffectsMode::Collect),
        r#"
bridge("br0")
-------------
 0. priority 32768
    NORMAL
     -> learned that 50:54:00:00:00:05 is on port p1 in VLAN 10
     -> forwarding to learned port

Final flow: unchanged
Megaflow: recirc_id=0,eth,ip,in_port=1,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,nw_frag=no
Datapath actions: 2
"#
    );
}

#[test]
fn patch_ports() {
    let mut w = world(&["in_port=1,actions=output:5", "in_port=5,actions=output:2,output:5"]);
    let br1 = w.add_bridge(2);
    w.patch((BridgeIndex(0), 5), (br1, 2));
    add(&mut w, br1, &["actions=in_port,output:2,output:1"]);
    check(
        &w,
        TCP,
        r#"
bridge("br0")
-------------
 0. in_port=1, priority 32768
    output:5

bridge("br1")
-------------
 0. priority 32768
    IN_PORT

    bridge("br0")
    -------------
         0. in_port=5, priority 32768
            output:2
            output:5
             >> skipping output to input port
    output:2
     >> skipping output to input port
    output:1

Final flow: unchanged
Megaflow: recirc_id=0,eth,ip,in_port=1,nw_frag=no
Datapath actions: 2,101
"#,
    );
}

#[test]
fn errors_and_controllers() {
    let text = world(&["actions=resubmit(,0)"]).trace(TCP);
    let end = r#" 0. priority 32768
    resubmit(,0)
     >>>> over max translation depth 64 <<<<

Final flow: unchanged
Megaflow: recirc_id=0,eth,ip,in_port=1,nw_frag=no
Datapath actions: drop
Translation failed (Recursion too deep), packet is dropped.
"#;
    assert!(text.ends_with(end), "{text}");
    check(
        &world(&["ip,actions=dec_ttl,output:2"]),
        &TCP.replace("nw_ttl=64", "nw_ttl=1"),
        r#"
bridge("br0")
-------------
 0. ip, priority 32768
    dec_ttl
     >> IPv4 decrement TTL exception

Final flow: unchanged
Megaflow: recirc_id=0,eth,tcp,in_port=1,nw_ttl=1,nw_frag=no
Datapath actions: userspace(pid=0,controller(reason=2,dont_send=1,continuation=0,recirc_id=1,rule_cookie=0,controller_id=0,max_len=65535))
"#,
    );
}

#[test]
fn recirculation() {
    let w = world(&[
        "mpls,actions=set_field:7->reg1,push:NXM_NX_REG1[],pop_mpls:0x0800,resubmit(,1),output:4",
        "table=1,actions=output:3",
    ]);
    let mut tracer = Tracer::new();
    let labelled = key("in_port=1,mpls,mpls_label=100,mpls_ttl=63,mpls_bos=1");
    let first = w.run(&labelled, EffectsMode::Collect, None, None);
    assert_eq!(
        datapath::text::format_plain(&first.actions),
        "pop_mpls(eth_type=0x800),recirc(0x1)"
    );
    let k = key("recirc_id=1,in_port=1,tcp,nw_src=1.2.3.4");
    let t = w.run(&k, EffectsMode::Suppress, Some(&mut tracer), None);
    assert_eq!(
        tracer
            .render(&k, &t, &w.snapshot, BridgeIndex(0))
            .replace("recirc_id=0x1,eth,tcp", "recirc_id=0x1,tcp"),
        r#"
bridge("br0")
-------------
    thaw
            Resuming from table 0
        Restoring actions: resubmit(,1),unroll_xlate(table=0, cookie=0),output:4
    resubmit(,1)
     1. priority 32768
            output:3
    unroll_xlate(table=0, cookie=0)
    restored state: table=0, cookie=0
    output:4

Final flow: recirc_id=0x1,tcp,reg1=0x7,in_port=1,vlan_tci=0x0000,dl_src=00:00:00:00:00:00,dl_dst=00:00:00:00:00:00,nw_src=1.2.3.4,nw_dst=0.0.0.0,nw_tos=0,nw_ecn=0,nw_ttl=0,nw_frag=no,tp_src=0,tp_dst=0,tcp_flags=0
Megaflow: recirc_id=0x1,eth,ip,in_port=1,nw_frag=no
Datapath actions: 3,4
"#
    );
    // Without side effects there is no frozen state with which to continue.
    let k = key("recirc_id=9,in_port=1,tcp");
    check(
        &w,
        "recirc_id=9,in_port=1,tcp",
        r#"
bridge("br0")
-------------
     >>>> Recirculation context not found for ID 9 <<<<

Final flow: unchanged
Megaflow: recirc_id=0x9,eth,ip,in_port=1,nw_frag=no
Datapath actions: drop
Translation failed (No recirculation context), packet is dropped.
"#,
    );
    assert!(w.translate_dp(&k).is_none());
}

#[test]
fn ports_by_name() {
    let w = world(&[
        "in_port=1,tcp,actions=output:2,LOCAL,resubmit(3,1),learn(table=5,NXM_OF_IN_PORT[],output:NXM_OF_IN_PORT[])",
        "table=1,in_port=3,actions=set_field:4->in_port,output:77",
    ]);
    let k = key(TCP);
    let mut tracer = Tracer::with_names();
    let t = w.run(&k, EffectsMode::Collect, Some(&mut tracer), None);
    let text = tracer.render(&k, &t, &w.snapshot, BridgeIndex(0));
    let name =
        |number| w.snapshot.bridge(BridgeIndex(0)).unwrap().ports[&PortNo(number)].name.clone();
    for line in [
        format!(" 0. tcp,in_port={}, priority 32768", name(1)),
        format!("    output:{}", name(2)),
        format!("    resubmit({},1)", name(3)),
        format!("in_port={}, priority 32768", name(3)),
        format!("set_field:{}->in_port", name(4)),
        "output:77".to_owned(),
        // By number, as in OVS.
        " -> table=5 in_port=4 priority=32768 actions=output:4".to_owned(),
        format!("Final flow: tcp,in_port={},", name(4)),
        format!("Megaflow: recirc_id=0,eth,tcp,in_port={},nw_frag=no", name(1)),
        format!("Datapath actions: {}", name(2)),
    ] {
        assert!(text.contains(&line), "{line}: {text}");
    }
}

#[test]
fn names_that_are_no_words_are_quoted() {
    let mut w = world(&[]);
    w.port(1, |p| p.name = "eth0.1-a_b".to_owned());
    w.port(2, |p| p.name = "1st".to_owned());
    w.port(3, |p| p.name = "a b".to_owned());
    let tracer = Tracer::with_names();
    let names = tracer.names(w.snapshot.bridge(BridgeIndex(0)).map(|b| &**b));
    let shown: Vec<_> = (1..=3).map(|n| names.name(n).unwrap()).collect();
    assert_eq!(shown, ["eth0.1-a_b", "\"1st\"", "\"a b\""]);
    assert_eq!(names.name(99), None);
    assert_eq!(Tracer::new().names(w.snapshot.bridge(BridgeIndex(0)).map(|b| &**b)).name(1), None);
}

#[test]
fn every_bit_of_the_mask_has_a_rule_that_looked_at_it() {
    let w = world(&[
        "priority=5,tcp,nw_dst=10.0.0.0/8,actions=resubmit(,1)",
        "table=1,tcp,tcp_dst=80,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],output:2",
    ]);
    let k = key(TCP);
    let mut tracer = Tracer::new();
    let t = w.run(&k, EffectsMode::Suppress, Some(&mut tracer), None);
    let reasons = tracer.mask_reasons(&t.mask);
    let mut all = flow::Mask::WILDCARD;
    for reason in &reasons {
        assert!(reason.mask.minus(&all) == reason.mask, "{reason:?} says a bit twice");
        all.union(&reason.mask);
    }
    assert_eq!(all, t.mask);
    let by = |field: Field| {
        let mut wanted = flow::Mask::WILDCARD;
        wanted.set_exact(field);
        let looked = |l: &&super::MaskReason| !wanted.minus(&wanted.minus(&l.mask)).is_wildcard();
        reasons.iter().find(looked).map(|l| l.by.as_str())
    };
    assert_eq!(by(Field::InPortOxm), Some("every megaflow"));
    assert_eq!(by(Field::Ipv4Dst), Some("0. tcp,nw_dst=10.0.0.0/8, priority 5"));
    let second = Some("1. tcp,tp_dst=80, priority 32768");
    assert_eq!(by(Field::TcpDst), second);
    assert_eq!(by(Field::Ipv4Src), second);
    assert_eq!(by(Field::EthDst), None);
}

// SPDX-License-Identifier: Apache-2.0
//! Connection tracking: `ct`, what comes back after it, `ct_clear`.

use super::*;
use flow::ct_state::{EST, NEW, TRK};
use flow::{Key, Match};
use packet::Packet;
use std::collections::HashMap;

/// The key of a packet that comes back to the pipeline in `id`.
fn tracked(flow: &str, id: u32, state: u8) -> Key {
    let mut k = key(flow);
    k.recirc_id.set(id);
    k.ct_state = state;
    k
}

fn dp(w: &World, k: &Key) -> String {
    datapath::text::format_plain(&w.translate(k).actions)
}

fn mega(w: &World, k: &Key) -> String {
    let mask = w.translate(k).mask;
    flow::text::format_megaflow(&Match::new(k, &mask), &flow::text::no_names)
}

#[test]
fn a_copy_comes_back_tracked_and_the_list_goes_on_without() {
    let mut w = World::new(5);
    w.rule("ip", actions("set_field:10.9.9.9->ip_dst,set_field:7->reg1,ct(zone=5,table=1),2"));
    w.rule("table=1,priority=2,tcp,ct_state=+trk+new", actions("ct(commit,zone=5),ct_clear,3"));
    w.rule("table=1,priority=2,tcp,ct_state=+trk+est", actions("ct_clear,ct_clear,2"));
    w.rule("table=1,priority=1,reg1=7", [out(4)]);
    assert_eq!(dp(&w, &key(TCP)), "set(ipv4(dst=10.9.9.9)),ct(zone=5),recirc(0x1),2");
    let new = tracked(TCP, 1, TRK | NEW);
    assert_eq!(dp(&w, &new), "ct(commit,zone=5),3");
    assert_eq!(mega(&w, &new), "recirc_id=0x1,ct_state=+new+trk,eth,tcp,in_port=1,nw_frag=no");
    let established = tracked(TCP, 1, TRK | EST);
    assert_eq!(dp(&w, &established), "ct_clear,2", "the second one finds nothing to clear");
    assert_eq!(dp(&w, &tracked(TCP, 1, TRK)), "4", "registers come back");
}

#[test]
fn only_the_copy_sees_the_state() {
    let mut w = World::new(5);
    w.rule("ip", actions("ct(table=1),resubmit(,1)"));
    w.rule("table=1,priority=2,ct_state=+trk", actions("ct(zone=3),resubmit(,2)"));
    w.rule("table=1,priority=1", [out(2)]);
    w.rule("table=2,priority=2,ct_state=+trk", [out(3)]);
    w.rule("table=2,priority=1", [out(4)]);
    assert_eq!(dp(&w, &key(TCP)), "ct,recirc(0x1),2");
    assert_eq!(dp(&w, &tracked(TCP, 1, TRK)), "ct(zone=3),4", "a ct hides the state of the last");
}

#[test]
fn a_pipeline_that_froze_for_another_reason_reads_zeros() {
    let mut w = World::new(5);
    w.group(1, GroupKind::Select, Selection::Default, vec![(1, PortNo::NONE, vec![resubmit(1)])]);
    w.rule("in_port=1", actions("ct,group:1"));
    w.rule("in_port=2", actions("ct(table=2)"));
    w.rule("table=2", [Action::Group(1)]);
    w.rule("table=1,priority=2,ct_state=+trk", [out(3)]);
    w.rule("table=1,priority=1", [out(4)]);
    assert_eq!(dp(&w, &key(TCP)), "ct,hash(sym_l4(0)),recirc(0x1)");
    assert_eq!(dp(&w, &tracked(TCP, 1, TRK)), "4");
    let second = TCP.replace("in_port=1", "in_port=2");
    assert_eq!(dp(&w, &key(&second)), "ct,recirc(0x2)");
    assert_eq!(dp(&w, &tracked(&second, 2, TRK)), "hash(sym_l4(0)),recirc(0x3)");
    assert_eq!(dp(&w, &tracked(&second, 3, TRK)), "3", "the state is still that of the ct");
}

#[test]
fn the_arguments_of_ct() {
    let mut w = World::new(5);
    let mut is = |flow: &str, text: &str, expected: &str| {
        w.clear_rules();
        w.rule("", actions(text));
        assert_eq!(dp(&w, &key(flow)), expected, "{text}");
    };
    is(
        TCP,
        "ct(commit,zone=NXM_NX_REG1[0..15],exec(load:0x17->NXM_NX_CT_MARK[0..7],set_field:0x55->ct_label,\
         move:NXM_OF_IN_PORT[]->NXM_NX_CT_MARK[16..31]),nat(src=1.2.3.4-1.2.3.9:10-20,random,persistent),alg=ftp),3",
        "ct(commit,mark=0x10017/0xffff00ff,label=0x55,helper=ftp,nat(src=1.2.3.4-1.2.3.9:10-20,persistent,random)),3",
    );
    is(TCP, "set_field:9->reg1,ct(zone=NXM_NX_REG1[0..15]),3", "ct(zone=9),3");
    is(TCP, "ct(commit,force,nat(dst=1.1.1.1))", "ct(force_commit,nat(dst=1.1.1.1))");
    is(TCP, "ct(nat)", "ct(nat)");
    is(TCP, "ct(commit,nat(src))", "ct(commit,nat(src))");
    is(TCP, "ct(commit,exec(set_field:0/5->ct_label))", "ct(commit,label=0/0x5)");
    is(TCP, "ct(commit,exec(set_field:0->ct_label))", "ct(commit,label=0)");
    is("in_port=1,udp", "ct(commit,alg=tftp)", "ct(commit,helper=tftp)");
    is("in_port=1,udp6", "ct(commit,nat(src=[fe80::1]:5))", "ct(commit,nat(src=[fe80::1]:5))");
    is(
        TCP,
        "ct(commit,exec(set_field:5->ct_mark)),ct(commit),2",
        "ct(commit,mark=0x5/0xffffffff),ct(commit),2",
    );
}

#[test]
fn what_a_mark_is_made_of_is_exact() {
    let mut w = World::new(5);
    w.rule("", actions("ct(table=1)"));
    w.rule("table=1", actions("ct(commit,exec(move:NXM_NX_CT_MARK[0..7]->NXM_NX_CT_MARK[8..15]))"));
    assert_eq!(dp(&w, &key(TCP)), "ct,recirc(0x1)");
    let mut k = tracked(TCP, 1, TRK);
    k.ct_mark.set(0x305);
    assert_eq!(dp(&w, &k), "ct(commit,mark=0x500/0xff00)");
    assert_eq!(w.translate(&k).mask.0.ct_mark.get(), 0xff);
    w.clear_rules();
    w.rule(
        "",
        actions(
            "ct(commit,exec(set_field:5->ct_mark,move:NXM_OF_TCP_DST[]->NXM_NX_CT_MARK[16..31]))",
        ),
    );
    let t = w.translate(&key(TCP));
    assert_eq!(t.mask.0.ct_mark.get(), 0, "what is set was not read");
    assert_eq!(t.mask.0.tp_dst.get(), u16::MAX);
}

#[test]
fn zones_name_their_timeout_policy_where_connections_are_made() {
    let mut w = World::new(5);
    w.snapshot.timeout_policies = Arc::new([(5, 7)].into_iter().collect());
    w.rule("", actions("ct(zone=5),ct(commit,zone=5),ct(commit,force,zone=5),ct(commit,zone=6)"));
    assert_eq!(
        w.dp(TCP),
        "ct(zone=5),ct(commit,zone=5,timeout=7),ct(force_commit,zone=5,timeout=7),ct(commit,zone=6)"
    );
}

#[test]
fn the_peer_of_a_patch_port_sees_no_state() {
    let mut w = World::new(3);
    let br1 = w.add_bridge(3);
    w.patch((BridgeIndex(0), 3), (br1, 3));
    w.rule_on(br1, "priority=2,ct_state=+trk", []);
    w.rule_on(br1, "priority=1", actions("ct_clear,1"));
    w.rule("", actions("ct(table=1)"));
    w.rule("table=1", actions("3,ct_clear,3,2"));
    assert_eq!(dp(&w, &key(TCP)), "ct,recirc(0x1)");
    let there = dp(&w, &tracked(TCP, 1, TRK | NEW));
    let outputs: Vec<&str> = there.split(',').collect();
    let [first, "ct_clear", second, "2"] = outputs[..] else { panic!("{there}") };
    assert_eq!(first, second);
}

#[test]
fn a_clone_keeps_its_ct_to_itself() {
    let mut w = World::new(5);
    w.rule("", actions("clone(ct(table=1)),ct(table=1)"));
    w.rule("table=1", actions("clone(ct(commit),2),ct_clear,3"));
    assert_eq!(dp(&w, &key(TCP)), "clone(ct,recirc(0x1)),ct,recirc(0x1)");
    assert_eq!(dp(&w, &tracked(TCP, 1, TRK | NEW)), "clone(ct(commit),2),ct_clear,3");
}

#[test]
fn the_action_set_and_the_stack_go_with_the_copy_and_stay() {
    let mut w = World::new(5);
    w.rule(
        "",
        actions("push:NXM_OF_IN_PORT[],ct(table=1),pop:NXM_NX_REG0[0..15],output:NXM_NX_REG0[]"),
    );
    w.rule(
        "table=1",
        actions("pop:NXM_NX_REG1[0..15],move:NXM_NX_REG1[0..15]->NXM_OF_IP_SRC[0..15],2"),
    );
    assert_eq!(dp(&w, &key(TCP)), "ct,recirc(0x1)", "the input port is no output");
    assert_eq!(dp(&w, &tracked(TCP, 1, TRK)), "2", "0.1 is what was there");
    w.clear_rules();
    w.rule(
        "",
        [
            Action::WriteActions(actions("set_field:9.9.9.9->ip_dst,2")),
            actions("ct(table=1)").remove(0),
        ],
    );
    w.rule("table=1", []);
    assert_eq!(dp(&w, &key(TCP)), "ct,recirc(0x2),set(ipv4(dst=9.9.9.9)),2");
    assert_eq!(dp(&w, &tracked(TCP, 2, TRK)), "set(ipv4(dst=9.9.9.9)),2");
}

/// The fields of connections in the packet-in of a packet with `k`.
fn told(w: &World, k: &Key) -> HashMap<&'static str, u128> {
    let t = w.translate(k);
    let [.., datapath::Action::Userspace(u)] = &t.actions[..] else { panic!("{:?}", t.actions) };
    let packet = Packet::from_slice(&[0; 14]);
    let sent = controller_packet_in(k, u, &packet, &w.recirc).unwrap();
    Field::ALL
        .into_iter()
        .filter(|f| f.is_of_connection() && !sent.metadata.is_any(*f))
        .map(|f| (f.name(), sent.metadata.value(f)))
        .collect()
}

#[test]
fn controllers_are_told_the_connection_of_a_tracked_packet() {
    let mut w = World::new(5);
    w.rule("", actions("ct(table=1)"));
    w.rule("table=1,priority=2,tcp", [to(PortNo::CONTROLLER)]);
    w.rule("table=1,priority=1", actions("ct,controller"));
    w.dp(TCP);
    let mut k = tracked(TCP, 1, TRK | EST);
    k.ct_zone.set(3);
    k.ct_nw_proto = 6;
    k.ct_nw_src.set(0x0a00_0001);
    k.ct_tp_dst.set(80);
    let all = [
        ("ct_state", 0x22),
        ("ct_zone", 3),
        ("ct_nw_src", 0x0a00_0001),
        ("ct_nw_dst", 0),
        ("ct_nw_proto", 6),
        ("ct_tp_src", 0),
        ("ct_tp_dst", 80),
    ];
    assert_eq!(told(&w, &k), HashMap::from(all));
    let mut invalid = tracked(TCP, 1, TRK);
    invalid.ct_nw_proto = 6;
    assert_eq!(told(&w, &invalid), HashMap::from([("ct_state", 0x20)]));
    let untracked = tracked("in_port=1,udp", 1, TRK | EST);
    assert_eq!(told(&w, &untracked), HashMap::new());
}

/// A reply in a TCP connection from 10.0.0.1:1000 to 10.0.0.2:80.
fn reply(id: u32) -> Key {
    let flow = "in_port=1,tcp,nw_src=10.0.0.2,nw_dst=10.0.0.1,tp_src=80,tp_dst=1000";
    let mut k = tracked(flow, id, TRK | EST);
    k.ct_nw_proto = 6;
    k.ct_nw_src.set(0x0a00_0001);
    k.ct_nw_dst.set(0x0a00_0002);
    k.ct_tp_src.set(1000);
    k.ct_tp_dst.set(80);
    k
}

#[test]
fn resubmit_with_ct_looks_the_first_packet_up() {
    let mut w = World::new(5);
    w.rule("ip", actions("ct(table=1)"));
    w.rule("table=1,ip,ct_state=+trk+est", actions("resubmit(,2,ct),resubmit(,2)"));
    w.rule("table=2,priority=2,tcp,nw_src=10.0.0.1,tp_dst=80", actions("2,resubmit(,3)"));
    w.rule("table=2,priority=1,tcp,nw_dst=10.0.0.1", [out(3)]);
    w.rule("table=3,nw_dst=10.0.0.1,tcp,tp_src=80", [out(4)]);
    w.dp(TCP);
    assert_eq!(dp(&w, &reply(1)), "2,4,3", "the rule's own lookup has the packet's addresses");
    w.rule("table=2,priority=1,tcp,nw_dst=10.0.0.2", [out(5)]);
    let mut other = reply(1);
    other.ct_tp_dst.set(81);
    assert_eq!(dp(&w, &other), "5,3", "the connection's port");
}

#[test]
fn resubmit_with_ct_reads_the_fields_of_the_connection() {
    let mut w = World::new(5);
    w.rule("ip", actions("ct(table=1)"));
    w.rule("table=1,ct_state=+trk+est", actions("resubmit(,2,ct)"));
    w.rule("table=2,ip,nw_dst=10.0.0.0/24", [out(2)]);
    w.rule("table=2,ipv6,ipv6_dst=fe80::1", [out(3)]);
    w.dp(TCP);
    let mask = w.translate(&reply(1)).mask.0;
    assert_eq!((mask.ct_nw_dst.get(), mask.nw_dst.get()), (0xffff_ff00, 0));
    assert_eq!((mask.ct_nw_proto, mask.nw_proto), (u8::MAX, 0));

    let mut v6 = tracked("in_port=1,tcp6,ipv6_dst=fe80::9", 1, TRK | EST);
    v6.ct_nw_proto = 6;
    v6.ct_ipv6_dst = std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).octets();
    assert_eq!(dp(&w, &v6), "3");
    let mask = w.translate(&v6).mask.0;
    assert_eq!((mask.ct_ipv6_dst, mask.ipv6_dst), ([u8::MAX; 16], [0; 16]));
}

#[test]
fn resubmit_with_ct_needs_the_tuple_of_a_connection() {
    let mut w = World::new(5);
    w.rule("", actions("resubmit(,2,ct),2"));
    w.rule("table=2", [out(3)]);
    let mask = w.translate(&key(TCP)).mask.0;
    assert_eq!((w.dp(TCP), mask.ct_nw_proto), ("2".to_string(), u8::MAX));
    let arp = w.translate(&key("in_port=1,arp"));
    assert_eq!(datapath::text::format_plain(&arp.actions), "2");
    assert_eq!(arp.mask.0.ct_nw_proto, 0, "the type of the packet decides");
}

#[test]
fn a_frozen_resubmit_keeps_its_ct() {
    let mut w = World::new(5);
    w.group(1, GroupKind::Select, Selection::Default, vec![(1, PortNo::NONE, vec![out(4)])]);
    w.rule("ip", actions("ct(table=1)"));
    w.rule("table=1,ip,ct_state=+trk+est", actions("group:1,resubmit(,2,ct)"));
    w.rule("table=2,tcp,nw_src=10.0.0.1", [out(2)]);
    w.rule("table=2,tcp,nw_src=10.0.0.2", [out(3)]);
    w.dp(TCP);
    assert_eq!(dp(&w, &reply(1)), "hash(sym_l4(0)),recirc(0x2)");
    assert_eq!(dp(&w, &reply(2)), "4,2");
}

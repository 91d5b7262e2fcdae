// SPDX-License-Identifier: Apache-2.0
//! Actions, seen in what leaves and in the datapath's actions.

use crate::packets::{ip, tcp, udp};
use slipswitch_tests::harness::Switch;

/// The datapath actions of one flow's actions for a UDP packet from port 1.
fn acts(switch: &Switch, actions: &str) -> String {
    switch.flows("br0", &format!("udp,actions={actions}"));
    switch.traced("br0 in_port=1,udp,dl_src=50:54:00:00:00:01,dl_dst=50:54:00:00:00:02,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,udp_src=5,udp_dst=6")
}

/// Floods are in the order of a hash table.
fn sorted(actions: &str) -> Vec<&str> {
    let mut list: Vec<&str> = actions.split(',').collect();
    list.sort_unstable();
    list
}

#[test]
fn outputs_go_where_they_say() {
    let switch = Switch::dummy(3);
    for (actions, expected) in [
        ("2,3", "2,3"),
        ("1", "drop"),
        ("IN_PORT", "1"),
        ("LOCAL", "100"),
        ("ALL", "100,2,3"),
        ("FLOOD", "100,2,3"),
        ("drop", "drop"),
        ("output:9", "drop"),
        ("load:3->NXM_NX_REG0[],output:NXM_NX_REG0[]", "3"),
        ("enqueue:2:0", "2"),
        ("output(port=2,max_len=100)", "trunc(100),2"),
    ] {
        let got = acts(&switch, actions);
        assert_eq!(sorted(&got), sorted(expected), "{actions}");
    }
}

#[test]
fn fields_are_set_together_and_only_when_needed() {
    let switch = Switch::dummy(3);
    for (actions, expected) in [
        ("mod_dl_src:02:00:00:00:00:01,2", "set(eth(src=02:00:00:00:00:01)),2"),
        (
            "mod_dl_dst:02:00:00:00:00:01,mod_dl_src:02:00:00:00:00:02,2",
            "set(eth(src=02:00:00:00:00:02,dst=02:00:00:00:00:01)),2",
        ),
        ("mod_nw_src:1.1.1.1,mod_nw_dst:2.2.2.2,2", "set(ipv4(src=1.1.1.1,dst=2.2.2.2)),2"),
        ("mod_tp_src:7,mod_tp_dst:8,2", "set(udp(src=7,dst=8)),2"),
        ("mod_nw_tos:32,2", "set(ipv4(tos=0x20/0xfc)),2"),
        ("dec_ttl,2", "set(ipv4(ttl=63)),2"),
        ("mod_tp_src:7", "drop"),
        ("2,mod_tp_src:7,3", "2,set(udp(src=7)),3"),
        ("mod_tp_src:5,2", "2"),
        ("set_field:0x2->ip_ecn,2", "set(ipv4(tos=0x2/0x3)),2"),
    ] {
        assert_eq!(acts(&switch, actions), expected, "{actions}");
    }
}

#[test]
fn move_and_load_work_on_parts_of_fields() {
    let switch = Switch::dummy(3);
    assert_eq!(acts(&switch, "move:NXM_OF_UDP_SRC[]->NXM_OF_UDP_DST[],2"), "set(udp(dst=5)),2");
    assert_eq!(
        acts(&switch, "load:0xff->NXM_OF_IP_DST[0..7],2"),
        "set(ipv4(dst=0.0.0.255/0.0.0.255)),2"
    );
    assert_eq!(
        acts(&switch, "set_field:0.0.0.9/0.0.0.255->ip_dst,2"),
        "set(ipv4(dst=0.0.0.9/0.0.0.255)),2"
    );
}

#[test]
fn registers_metadata_and_the_stack_carry_values() {
    let switch = Switch::dummy(3);
    switch.flows(
        "br0",
        "table=0,actions=load:0x1234->NXM_NX_REG15[],set_field:0x55->metadata,push:NXM_NX_REG15[],load:0->NXM_NX_REG15[],pop:NXM_NX_REG1[],resubmit(,1)
         table=1,reg1=0x1234,reg15=0,metadata=0x55,actions=2
         table=1,priority=1,actions=3",
    );
    assert_eq!(switch.traced("br0 in_port=1,ip"), "2");
}

#[test]
fn xregs_and_xxregs_are_views_of_registers() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "table=0,actions=set_field:0x1122334455667788->xreg0,resubmit(,1)\ntable=1,reg0=0x11223344,reg1=0x55667788,xxreg0=0x11223344556677880000000000000000,actions=2");
    assert_eq!(switch.traced("br0 in_port=1,ip"), "2");
}

#[test]
fn resubmit_comes_back_and_goto_does_not() {
    let switch = Switch::dummy(4);
    switch.flows("br0", "table=0,actions=resubmit(,1),3\ntable=1,actions=2");
    assert_eq!(switch.traced("br0 in_port=1,ip"), "2,3");
    switch.flows("br0", "table=0,in_port=1,actions=resubmit:4,3\ntable=0,in_port=4,actions=2");
    assert_eq!(switch.traced("br0 in_port=1,ip"), "2,3");
    switch.ofctl("del-flows br0");
    switch.ofctl("-O OpenFlow13 add-flow br0 table=0,actions=3,goto_table:5");
    switch.ofctl("-O OpenFlow13 add-flow br0 table=5,actions=2");
    assert_eq!(switch.traced("br0 in_port=1,ip"), "3,2");
}

#[test]
fn write_actions_run_at_the_end_and_clear_actions_drops_them() {
    let switch = Switch::dummy(3);
    switch.ofctl("-O OpenFlow13 add-flow br0 'table=0,udp,actions=write_actions(output:2,set_field:9->udp_dst),goto_table:1'");
    switch.ofctl("-O OpenFlow13 add-flow br0 'table=1,in_port=1,actions=output:3'");
    switch.ofctl("-O OpenFlow13 add-flow br0 'table=1,in_port=3,actions=clear_actions'");
    assert_eq!(switch.traced("br0 in_port=1,udp,nw_ttl=9,udp_dst=1"), "3,set(udp(dst=9)),2");
    assert_eq!(switch.traced("br0 in_port=3,udp,nw_ttl=9,udp_dst=1"), "drop");
}

#[test]
fn write_metadata_keeps_what_its_mask_leaves() {
    let switch = Switch::dummy(3);
    switch.ofctl(
        "-O OpenFlow13 add-flow br0 'table=0,actions=write_metadata:0xff00/0xff00,goto_table:1'",
    );
    switch.ofctl("-O OpenFlow13 add-flow br0 'table=1,metadata=0xff01,actions=output:2'");
    assert_eq!(switch.traced("br0 in_port=1,ip,metadata=0x1"), "2");
}

#[test]
fn an_endless_resubmit_is_cut_off() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "actions=2,resubmit(,0)");
    let text = switch.appctl("ofproto/trace br0 in_port=1,ip");
    assert!(text.contains("over max translation depth") || text.contains("resubmit"), "{text}");
    switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    assert_eq!(switch.counts("br0").0 > 0, switch.appctl("version").contains("vswitchd"));
}

#[test]
fn clone_keeps_its_changes_to_itself() {
    let switch = Switch::dummy(3);
    let actions = acts(&switch, "clone(mod_tp_dst:9,2),3");
    assert!(
        ["clone(set(udp(dst=9)),2),3", "set(udp(dst=9)),2,set(udp(dst=6)),3"]
            .contains(&actions.as_str()),
        "{actions}"
    );
    switch.receive("p1", &udp("10.0.0.1", "10.0.0.2", 5, 6));
    assert!(
        switch.sent_hex("p2")[0].contains("00050009")
            && switch.sent_hex("p3")[0].contains("00050006")
    );
}

#[test]
fn exit_ends_the_pipeline() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "table=0,actions=resubmit(,1),3\ntable=1,actions=2,exit,3");
    assert_eq!(switch.traced("br0 in_port=1,ip"), "2");
}

#[test]
fn learn_makes_a_flow_from_a_packet() {
    let switch = Switch::dummy(3);
    switch.flows(
        "br0",
        "table=0,priority=1,actions=learn(table=1,idle_timeout=60,cookie=0x9,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),resubmit(,1)
         table=1,priority=0,actions=FLOOD",
    );
    switch.receive("p3", &crate::packets::arp("50:54:00:00:00:07", "ff:ff:ff:ff:ff:ff"));
    switch.revalidate();
    assert_eq!(
        switch.dump("--no-names br0 cookie=0x9/-1"),
        ["cookie=0x9, table=1, idle_timeout=60, dl_dst=50:54:00:00:00:07 actions=output:3"]
    );
    assert_eq!(switch.traced("br0 in_port=1,dl_dst=50:54:00:00:00:07"), "3");
}

#[test]
fn multipath_and_bundle_choose_by_hash() {
    let switch = Switch::dummy(3);
    let text = acts(
        &switch,
        "multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG0[]),load:2->NXM_NX_REG1[],output:NXM_NX_REG1[]",
    );
    assert_eq!(text, "2");
    let text = acts(&switch, "bundle(eth_src,0,hrw,ofport,members:2,3)");
    assert!(text == "2" || text == "3", "{text}");
}

#[test]
fn a_note_does_nothing_and_comes_back() {
    let switch = Switch::dummy(3);
    assert_eq!(acts(&switch, "note:11.22.33,2"), "2");
    assert!(switch.ofctl("dump-flows br0").contains("note:11.22.33"));
}

#[test]
fn check_pkt_larger_splits_by_length() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "table=0,actions=check_pkt_larger(150)->NXM_NX_REG0[0],resubmit(,1)\ntable=1,reg0=1,actions=2\ntable=1,reg0=0,actions=3");
    switch.receive("p1", &udp("10.0.0.1", "10.0.0.2", 1, 2));
    assert_eq!((switch.sent("p2").len(), switch.sent("p3").len()), (0, 1));
    switch.appctl(&format!(
        "netdev-dummy/receive p1 '{}' --len 200",
        udp("10.0.0.1", "10.0.0.2", 1, 2)
    ));
    assert_eq!((switch.sent("p2").len(), switch.sent("p3").len()), (1, 1));
}

#[test]
fn vlan_tags_are_pushed_popped_and_set() {
    let switch = Switch::dummy(3);
    for (actions, expected) in [
        ("mod_vlan_vid:5,2", "push_vlan(vid=5,pcp=0),2"),
        ("push_vlan:0x8100,set_field:4101->vlan_vid,2", "push_vlan(vid=5,pcp=0),2"),
        ("mod_vlan_pcp:3,2", "push_vlan(vid=0,pcp=3),2"),
        ("mod_vlan_vid:5,strip_vlan,2", "2"),
        ("mod_vlan_vid:5,2,strip_vlan,3", "push_vlan(vid=5,pcp=0),2,pop_vlan,3"),
    ] {
        assert_eq!(acts(&switch, actions), expected, "{actions}");
    }
}

#[test]
fn two_vlan_tags_are_handled_one_by_one() {
    let switch = Switch::dummy(3);
    switch.vsctl("set open_vswitch . other_config:vlan-limit=2");
    switch.flows_by("OpenFlow13", "br0", "in_port=1,actions=push_vlan:0x8100,set_field:4106->vlan_vid,push_vlan:0x88a8,set_field:4116->vlan_vid,2\nin_port=3,dl_vlan=20,actions=pop_vlan,2");
    switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    let sent = switch.sent_hex("p2");
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].get(24..44), Some("88a800148100000a0800"), "{sent:?}");
    switch.receive("p3", &sent[0]);
    let sent = switch.sent_hex("p2");
    assert_eq!(sent[1].get(24..36), Some("8100000a0800"), "{sent:?}");
}

#[test]
fn mpls_labels_are_pushed_and_popped() {
    let switch = Switch::dummy(3);
    switch.flows("br0", "in_port=1,ip,actions=push_mpls:0x8847,set_field:100->mpls_label,set_field:3->mpls_tc,2\nin_port=3,mpls,mpls_label=100,actions=pop_mpls:0x0800,1");
    switch.receive("p1", &ip("10.0.0.1", "10.0.0.2"));
    let sent = switch.sent_hex("p2");
    assert_eq!(sent.len(), 1);
    assert_eq!(
        sent[0].get(24..36),
        Some("884700064740"),
        "label 100, class 3, bottom, TTL of the packet: {sent:?}"
    );
    switch.receive("p3", &sent[0]);
    let popped = switch.sent_hex("p1");
    assert_eq!(popped.len(), 1);
    assert_eq!(popped[0].get(24..30), Some("080045"), "{popped:?}");
}

#[test]
fn checksums_follow_what_is_set() {
    let switch = Switch::dummy(2);
    switch
        .flows("br0", "tcp,actions=mod_nw_src:1.2.3.4,mod_nw_dst:5.6.7.8,mod_tp_dst:81,dec_ttl,2");
    switch.receive("p1", &tcp("10.0.0.1", "10.0.0.2", 1000, 80));
    let sent = switch.sent("p2");
    assert_eq!(sent.len(), 1);
    let ip = &sent[0][14..];
    assert_eq!(sum(&ip[..20]), 0xffff, "the IPv4 header's checksum holds");
    let length = u16::from_be_bytes([ip[2], ip[3]]);
    let mut pseudo = ip[12..20].to_vec();
    pseudo.extend([0, ip[9]]);
    pseudo.extend((length - 20).to_be_bytes());
    pseudo.extend(&ip[20..usize::from(length)]);
    assert_eq!(sum(&pseudo), 0xffff, "the TCP checksum holds");
}

/// The Internet checksum's sum (RFC 1071): 0xffff over data whose checksum holds.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|c| u32::from(u16::from_be_bytes([c[0], c.get(1).copied().unwrap_or(0)])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded")
}

#[test]
fn dec_ttl_of_one_goes_to_the_controller_and_no_further() {
    let switch = Switch::dummy(2);
    switch.flows("br0", "ip,actions=dec_ttl,2");
    let actions = switch.traced("br0 in_port=1,udp,nw_ttl=1");
    assert!(
        actions == "drop" || actions.starts_with("userspace(pid=0,controller(reason=2,"),
        "{actions}"
    );
    assert!(!actions.ends_with(",2"), "{actions}");
    assert_eq!(switch.traced("br0 in_port=1,udp,nw_ttl=2"), "set(ipv4(ttl=1)),2");
}

#[test]
fn conntrack_is_refused_by_its_name_or_runs() {
    let switch = Switch::dummy(2);
    let output = switch.sh("ovs-ofctl add-flow br0 'ip,actions=ct(commit),2'");
    assert!(output.ok() || output.stderr.contains("OFPBAC_BAD_VENDOR_TYPE"), "{}", output.text());
    assert!(switch.sh("ovs-appctl version").ok());
}

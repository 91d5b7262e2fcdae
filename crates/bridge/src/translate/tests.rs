// SPDX-License-Identifier: Apache-2.0
//! Translations of pipelines. The expected datapath actions and megaflows of the cases here were
//! printed by the real program (`ofproto/trace`) for the same tables and packet.

mod connections;
mod controllers;
mod encap;
mod export;
mod fragments;
mod headers;
mod mirrors;
mod multicast;
mod normal_forwarding;
mod registers;
mod revalidated;
mod soundness;
mod spanning_tree;
mod tunnels;
mod withheld;
mod writable;

use super::*;
use crate::effect::{Effect, apply};
use crate::group::{GroupKind, Selection};
use crate::snapshot::{BridgeIndex, PriorityTags, TableMiss, VlanMode};
use crate::testing::{World, key, out, resubmit, set, sub, to};
use datapath::Userdata;
use flow::Field;
use openflow::action::{
    Bundle, BundleAlgorithm, Controller, HashFields, Learn, LearnSource, LearnSpec, LearnTarget,
    Multipath, MultipathAlgorithm, PopSpelling,
};
use openflow::message::PortConfig;
use openflow::{PortNo, Version};

const POP_VLAN: Action = Action::PopVlan { spelled: PopSpelling::PopVlan };

const TCP: &str = "in_port=1,tcp,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,tp_src=1000,tp_dst=80";

fn actions(text: &str) -> Vec<Action> {
    openflow::text::parse_actions(text, Version::V15, &|_| None).unwrap() // texts in tests are right
}

fn normal() -> Vec<Action> {
    vec![to(PortNo::NORMAL)]
}

#[test]
fn output_needs_nothing_but_the_port() {
    let mut w = World::new(5);
    w.rule("in_port=1,priority=100", [out(2)]);
    assert_eq!(w.dp(TCP), "2");
    assert_eq!(w.mega(TCP), "recirc_id=0,eth,ip,in_port=1,nw_frag=no");
    assert_eq!(w.dp("in_port=2"), "drop");
}

#[test]
fn sets_are_committed_before_outputs() {
    let mut w = World::new(5);
    w.rule(
        "ip",
        [
            Action::SetEthSrc([0, 0x11, 0x22, 0x33, 0x44, 0x55]),
            set(Field::Ipv4Dst, 0x0102_0304),
            Action::DecTtl { controllers: vec![0] },
            out(2),
            resubmit(1),
        ],
    );
    w.rule(
        "table=1,priority=5,ip,nw_dst=1.2.3.4/24",
        [set(Field::Reg0, 7), Action::PushVlan { tpid: 0x8100 }, set(Field::VlanVid, 4106), out(3)],
    );
    assert_eq!(
        w.dp(TCP),
        "set(eth(src=00:11:22:33:44:55)),set(ipv4(dst=1.2.3.4,ttl=63)),2,push_vlan(vid=10,pcp=0),3"
    );
    let k = key(TCP);
    let m = w.translate(&k).mask;
    assert_eq!(m.0.nw_ttl, 0xff);
    assert_eq!(m.0.nw_tos, 0);
    assert_eq!(m.0.dl_dst, [0; 6]);
}

#[test]
fn masked_and_partial_sets() {
    let mut w = World::new(5);
    w.rule("tcp", [set(Field::TcpDst, 99), set(Field::IpDscpShifted, 8), out(2)]);
    assert_eq!(w.dp(TCP), "set(ipv4(tos=0x20/0xfc)),set(tcp(dst=99)),2");
    assert_eq!(w.mega(TCP), "recirc_id=0,eth,tcp,in_port=1,nw_tos=0,nw_frag=no,tp_dst=80");

    w.clear_rules();
    w.rule(
        "tcp",
        [set(Field::IpDscpShifted, 8), set(Field::IpEcn, 1), Action::SetIpTtl(5), out(2)],
    );
    assert_eq!(w.dp(TCP), "set(ipv4(tos=0x21,ttl=5)),2");

    // A set to what is there is no action, but its bits count.
    w.clear_rules();
    w.rule("tcp", [set(Field::TcpDst, 80), set(Field::Ipv4Src, 0x0a00_0001), out(2)]);
    assert_eq!(w.dp(TCP), "2");
    assert_eq!(w.mega(TCP), "recirc_id=0,eth,tcp,in_port=1,nw_src=10.0.0.1,nw_frag=no,tp_dst=80");

    w.clear_rules();
    w.rule(
        "ip",
        [
            Action::Move { src: sub("NXM_OF_IP_SRC[0..7]"), dst: sub("NXM_OF_IP_DST[8..15]") },
            out(2),
        ],
    );
    assert_eq!(w.dp(TCP), "set(ipv4(dst=0.0.1.0/0.0.255.0)),2");
    assert_eq!(
        w.mega(TCP),
        "recirc_id=0,eth,tcp,in_port=1,nw_src=0.0.0.1/0.0.0.255,nw_dst=0.0.0.0/0.0.255.0,nw_frag=no"
    );
}

#[test]
fn sets_without_prerequisites_do_nothing() {
    let mut w = World::new(3);
    w.rule("", [set(Field::TcpDst, 9), set(Field::ArpOp, 1), set(Field::MplsLabel, 4), out(2)]);
    assert_eq!(w.dp("in_port=1,dl_type=0x1234"), "2");
    assert_eq!(w.dp("in_port=1,udp"), "2");
}

#[test]
fn arp_and_neighbour_fields() {
    let mut w = World::new(3);
    w.rule(
        "arp",
        [
            set(Field::ArpOp, 2),
            set(Field::ArpSpa, 0x0102_0304),
            Action::Move { src: sub("NXM_NX_ARP_SHA[]"), dst: sub("NXM_NX_ARP_THA[]") },
            to(PortNo::IN_PORT),
        ],
    );
    assert_eq!(w.dp("in_port=1,arp,arp_op=1"), "set(arp(sip=1.2.3.4,op=2)),1");
    assert_eq!(
        w.mega("in_port=1,arp,arp_op=1"),
        "recirc_id=0,eth,arp,in_port=1,arp_spa=0.0.0.0,arp_op=1,arp_sha=00:00:00:00:00:00,arp_tha=00:00:00:00:00:00"
    );
}

#[test]
fn input_port_is_skipped_but_by_name() {
    let mut w = World::new(5);
    w.rule("", [out(1), to(PortNo::IN_PORT), to(PortNo::FLOOD), to(PortNo::ALL), out(9)]);
    assert_eq!(w.dp(TCP), "1,2,3,4,5,2,3,4,5");
}

#[test]
fn port_settings() {
    let mut w = World::new(5);
    w.port(3, |p| p.config = PortConfig::NO_FLOOD);
    w.port(4, |p| p.config = PortConfig::NO_FWD);
    w.port(5, |p| p.config = PortConfig::NO_RECV);
    w.rule("", [to(PortNo::FLOOD), out(3), out(4), out(5), to(PortNo::ALL)]);
    assert_eq!(w.dp(TCP), "2,5,3,5,2,3,5");
    assert_eq!(w.dp("in_port=5,dl_type=0x1234"), "drop");
    // NO_RECV looks at the destination, as STP has a setting of its own.
    assert_eq!(w.translate(&key("in_port=5,dl_type=0x1234")).mask.0.dl_dst, [0xff; 6]);
    assert_ne!(w.dp("in_port=5,dl_dst=01:80:c2:00:00:00,dl_type=0x05ff"), "drop");
}

/// Texts of the real `ofproto/trace` (3.1) for the same flows.
#[test]
fn icmp_and_neighbour_fields() {
    let mut w = World::new(3);
    let nd = "in_port=1,icmp6,icmpv6_type=136,icmpv6_code=0,nd_target=";
    w.rule("icmp,icmp_type=8", [set(Field::Icmpv4Type, 0), out(2)]);
    assert_eq!(w.dp("in_port=1,icmp,icmp_type=8"), "set(icmp(type=0,code=0)),2");
    assert_eq!(
        w.mega("in_port=1,icmp,icmp_type=8"),
        "recirc_id=0,eth,icmp,in_port=1,nw_frag=no,icmp_type=0x8/0xff,icmp_code=0x0/0xff"
    );
    w.clear_rules();
    let reserved = |v| set(Field::NdReserved, v);
    let target = set(Field::NdTarget, 9);
    w.rule(
        "icmp6,icmp_type=136,icmp_code=0,nd_target=::5",
        [reserved(0x1234_5678), set(Field::NdOptionsType, 2), out(2)],
    );
    w.rule("icmp6,icmp_type=136,nd_target=::7", [reserved(0x1234_5678), target.clone(), out(2)]);
    w.rule(
        "icmp6,icmp_type=136,nd_target=::8",
        [reserved(1), out(2), reserved(2), out(3), set(Field::Icmpv6Type, 1), out(1)],
    );
    assert_eq!(
        w.dp(&format!("{nd}::5")),
        "set(nd_ext(nd_reserved=0x12345678,nd_options_type=2)),2"
    );
    assert_eq!(
        w.dp(&format!("{nd}::7")),
        "set(nd_ext(nd_reserved=0x12345678)),set(nd(target=::9)),2"
    );
    assert_eq!(w.dp(&format!("{nd}::7,nd_reserved=0x12345678")), "set(nd(target=::9)),2");
    assert_eq!(
        w.dp(&format!("{nd}::8").replace("in_port=1", "in_port=4")),
        "set(nd_ext(nd_reserved=0x1)),2,set(nd_ext(nd_reserved=0x2)),3,set(icmpv6(type=1,code=0)),1"
    );
    // A neighbour message that becomes another gets its fields first; another becomes one first.
    w.clear_rules();
    w.rule("icmp6,icmp_type=136", [target, reserved(7), set(Field::Icmpv6Type, 1), out(2)]);
    assert_eq!(
        w.dp(&format!("{nd}::5")),
        "set(nd_ext(nd_reserved=0x7)),set(nd(target=::9)),set(icmpv6(type=1,code=0)),2"
    );
}

#[test]
fn table_miss() {
    let mut w = World::new(2);
    assert_eq!(w.dp(TCP), "drop");
    w.br0().config.miss_to_controller = true;
    let t = w.translate(&key(TCP));
    let [datapath::Action::Userspace(userdata)] = t.actions.as_slice() else {
        panic!("{:?}", t.actions)
    };
    let packet = Packet::from_slice(&[0; 60]);
    let pin = controller_packet_in(&key(TCP), userdata, &packet, &w.recirc).unwrap();
    assert_eq!((pin.reason, pin.table, pin.cookie, pin.table_miss), (7, 0, 0, true));
    assert!(matches!(userdata, Userdata::Controller { reason: 7, .. }), "{userdata:?}");
    w.br0().tables[0].miss = TableMiss::Continue;
    w.rule("table=1", [out(2)]);
    assert_eq!(w.dp(TCP), "2");
    w.br0().tables[0].miss = TableMiss::Drop;
    assert_eq!(w.dp(TCP), "drop");
    w.port(1, |p| p.config = PortConfig::NO_PACKET_IN);
    w.br0().tables[0].miss = TableMiss::Controller;
    assert_eq!(w.dp(TCP), "drop");
    // A resubmit's miss does nothing.
    w.port(1, |p| p.config = PortConfig::empty());
    w.rule("", [resubmit(7), out(2)]);
    assert_eq!(w.dp(TCP), "2");
}

#[test]
fn a_miss_goes_on_to_the_last_table_that_may_have_rules() {
    let mut w = World::new(2);
    w.rule("", [Action::GotoTable(252)]);
    for table in [252, 253] {
        w.br0().tables[table].miss = TableMiss::Continue;
    }
    w.rule("table=254", [out(2)]);
    let t = w.translate(&key(TCP));
    assert!(
        matches!(t.actions.as_slice(), [datapath::Action::Userspace(_)]),
        "only the controller is left: {:?}",
        t.actions
    );
    w.port(1, |p| p.config = PortConfig::NO_PACKET_IN); // no-packet-in
    assert_eq!(w.dp(TCP), "drop");
    // From no port nothing is sent up, unless controllers want all misses.
    w.clear_rules();
    w.br0().tables[0].miss = TableMiss::Controller;
    let table = [to(PortNo::TABLE)];
    let sent = |w: &World| {
        let k = key(&TCP.replace("in_port=1", "in_port=controller"));
        w.run(&k, EffectsMode::Collect, None, Some(&table)).actions.len()
    };
    assert_eq!(sent(&w), 0);
    w.br0().tables[0].miss = TableMiss::Default;
    assert_eq!(sent(&w), 0);
    w.br0().config.miss_to_controller = true;
    assert_eq!(sent(&w), 1);
}

#[test]
fn a_table_that_a_register_names_may_ask_the_next_one_but_no_controller() {
    let mut w = World::new(2);
    let to_table = || Action::OutputReg { src: sub("reg0[0..15]"), max_len: 0 };
    w.rule("priority=2,reg0=0", [set(Field::Reg0, 0xfff9), to_table()]);
    w.rule("table=1,reg0=0xfff9", [out(2)]);
    w.br0().tables[0].miss = TableMiss::Continue;
    assert_eq!(w.dp(TCP), "2");
    w.br0().tables[0].miss = TableMiss::Controller;
    assert_eq!(w.dp(TCP), "drop");
}

#[test]
fn fragments() {
    let mut w = World::new(3);
    w.rule("priority=2,tcp,tp_dst=80", [out(2)]);
    w.rule("priority=1,ip", [out(3)]);
    let later = format!("{TCP},ip_frag=later").replace(",tp_src=1000,tp_dst=80", "");
    let first = format!("{TCP},ip_frag=first");
    assert_eq!((w.dp(TCP), w.dp(&later), w.dp(&first)), ("2".into(), "3".into(), "3".into()));
    w.br0().config.frag_handling = 3;
    assert_eq!((w.dp(&later), w.dp(&first)), ("3".into(), "2".into()));
    w.br0().config.frag_handling = 1;
    assert_eq!((w.dp(TCP), w.dp(&later), w.dp(&first)), ("2".into(), "drop".into(), "drop".into()));
}

#[test]
fn all_tables_may_be_one_behind_the_other() {
    let mut w = World::new(2);
    for step in [resubmit, Action::GotoTable] {
        w.clear_rules();
        for i in 0..253 {
            w.rule(&format!("table={i}"), [step(i + 1)]);
        }
        w.rule("table=253", [out(2)]);
        assert_eq!(w.dp(TCP), "2");
    }
    // With steps back, as often as tables may be looked up: the stack is large enough for all.
    w.rule("table=253", [resubmit(0)]);
    assert_eq!(w.translate(&key(TCP)).error, Some(TranslationError::TooManyResubmits));
}

#[test]
fn loops_end() {
    let mut w = World::new(2);
    w.rule("", [resubmit(0)]);
    let t = w.translate(&key(TCP));
    assert_eq!(t.error, Some(TranslationError::RecursionTooDeep));
    assert!(t.actions.is_empty());
    w.clear_rules();
    // 2^n lookups.
    for i in 0..30 {
        w.rule(&format!("table={i}"), [resubmit(i + 1), resubmit(i + 1), out(2)]);
    }
    assert_eq!(w.translate(&key(TCP)).error, Some(TranslationError::TooManyResubmits));
    w.clear_rules();
    for i in 0..10 {
        w.rule(
            &format!("table={i}"),
            (0..8).flat_map(|_| [resubmit(i + 1), out(2)]).collect::<Vec<_>>(),
        );
    }
    let t = w.translate(&key(TCP));
    assert!(matches!(
        t.error,
        Some(TranslationError::TooManyActions | TranslationError::TooManyResubmits)
    ));
}

#[test]
fn clones_action_sets_and_goto() {
    let mut w = World::new(5);
    w.rule(
        "ip",
        [
            Action::WriteActions(vec![out(3), set(Field::Ipv4Dst, 0x0101_0101)]),
            Action::GotoTable(1),
        ],
    );
    w.rule("table=1,ip", [Action::Clone(vec![set(Field::Ipv4Src, 0x0202_0202), out(2)])]);
    // The clone has a copy of the action set, and runs it.
    assert_eq!(
        w.dp(TCP),
        "set(ipv4(src=2.2.2.2)),2,set(ipv4(dst=1.1.1.1)),3,set(ipv4(src=10.0.0.1)),3"
    );
    w.clear_rules();
    w.rule(
        "",
        [Action::Clone(vec![Action::OutputTrunc { port: PortNo(2), max_len: 100 }]), out(3)],
    );
    assert_eq!(w.dp(TCP), "clone(trunc(100),2),3");
    w.clear_rules();
    // A clone is not needed where no datapath action follows it, though other actions do.
    w.rule(
        "",
        [
            Action::Clone(vec![Action::OutputTrunc { port: PortNo(2), max_len: 100 }]),
            set(Field::Reg0, 1),
        ],
    );
    assert_eq!(w.dp(TCP), "trunc(100),2");
    w.clear_rules();
    w.rule("", [Action::Clone(vec![out(2)]), out(3), Action::Exit, out(4)]);
    assert_eq!(w.dp(TCP), "2,3");
    // An action that ends a clone ends the list that contains the clone, and its action set.
    w.clear_rules();
    w.rule("", [Action::Clone(vec![out(2), Action::Exit]), out(3)]);
    assert_eq!(w.dp(TCP), "2");
    w.clear_rules();
    w.rule("", [Action::WriteActions(vec![out(3)]), Action::GotoTable(1)]);
    w.rule("table=1", [out(2), Action::Exit]);
    assert_eq!(w.dp(TCP), "2");
    // Order within the set is OpenFlow's, and a group wins over an output.
    w.clear_rules();
    w.group(1, GroupKind::Indirect, Selection::Default, vec![(0, PortNo::NONE, vec![out(4)])]);
    w.rule(
        "ip",
        [Action::WriteActions(vec![
            out(3),
            Action::Group(1),
            Action::DecTtl { controllers: vec![0] },
            Action::PushVlan { tpid: 0x8100 },
        ])],
    );
    assert_eq!(w.dp(TCP), "set(ipv4(ttl=63)),push_vlan(vid=0,pcp=0),4");
    w.clear_rules();
    w.rule(
        "ip",
        [
            Action::WriteActions(vec![out(3)]),
            Action::ClearActions,
            Action::WriteActions(vec![set(Field::Ipv4Src, 1)]),
        ],
    );
    assert_eq!(w.dp(TCP), "drop");
}

#[test]
fn queues_meters_truncation_and_length() {
    let mut w = World::new(5);
    w.rule(
        "",
        [
            Action::Enqueue { port: PortNo(2), queue: 1 },
            Action::SetQueue(5),
            out(3),
            Action::PopQueue,
            out(4),
        ],
    );
    assert_eq!(
        w.dp(TCP),
        "set(skb_priority(0x1)),2,set(skb_priority(0x5)),3,set(skb_priority(0)),4"
    );
    w.clear_rules();
    w.rule(
        "",
        [
            Action::Meter(1),
            Action::Meter(9),
            Action::OutputTrunc { port: PortNo(2), max_len: 100 },
            out(4),
        ],
    );
    assert_eq!(w.dp(TCP), "meter(0),trunc(100),2,4");
    w.clear_rules();
    w.rule("", [Action::CheckPktLarger { len: 100, dst: sub("reg0[0]") }, resubmit(1)]);
    w.rule("table=1,reg0=1", [out(2)]);
    w.rule("table=1,priority=1", [out(3)]);
    assert_eq!(w.dp(TCP), "check_pkt_len(size=100,gt(2),le(3))");
    w.clear_rules();
    w.rule(
        "",
        [
            Action::Sample {
                probability: 1000,
                collector_set: 1,
                obs_domain: openflow::action::ObservationId::Number(2),
                obs_point: openflow::action::ObservationId::Number(3),
                sampling_port: PortNo::NONE,
                direction: openflow::action::SampleDirection::Default,
            },
            out(2),
        ],
    );
    assert_eq!(w.dp(TCP), "2");
    w.br0().exports.ipfix = Some(Default::default());
    assert!(matches!(
        w.translate(&key(TCP)).actions.as_slice(),
        [datapath::Action::Sample { .. }, _]
    ));
}

#[test]
fn queues_are_classes_of_the_kernel_where_it_has_them() {
    let mut w = World::new(5);
    w.snapshot.queues = datapath::QueueNumbering::Classes;
    let queue = 0xf000;
    w.rule("", [Action::Enqueue { port: PortNo(2), queue: 1 }, Action::SetQueue(5), out(3)]);
    assert_eq!(w.dp(TCP), "set(skb_priority(0x10002)),2,set(skb_priority(0x10006)),3");
    w.clear_rules();
    w.rule("", [Action::SetQueue(queue), out(3), Action::Enqueue { port: PortNo(2), queue }]);
    assert_eq!(w.dp(TCP), "3,2", "there is no such queue");
}

#[test]
fn a_queue_marks_the_packets_of_its_port() {
    let mut w = World::new(5);
    let ports = Arc::make_mut(&mut w.br0().ports);
    ports.get_mut(&PortNo(2)).unwrap().queue_dscp = Arc::new([(1, 12)].into());
    w.rule("", [Action::SetQueue(1), out(3), out(2), out(4)]);
    assert_eq!(
        w.dp(TCP),
        "set(skb_priority(0x1)),3,set(ipv4(tos=0x30/0xfc)),2,set(ipv4(tos=0/0xfc)),4"
    );
    assert_eq!(w.dp("arp"), "set(skb_priority(0x1)),3,2,4");
    w.clear_rules();
    w.rule("", [out(2)]);
    assert_eq!(w.dp(TCP), "2");
    // Another priority might be marked.
    assert!(w.mega(TCP).contains("skb_priority=0"), "{}", w.mega(TCP));
}

#[test]
fn groups() {
    let mut w = World::new(5);
    let any = PortNo::NONE;
    w.group(
        1,
        GroupKind::Select,
        Selection::Default,
        vec![(100, any, vec![out(2)]), (100, any, vec![out(3)])],
    );
    w.group(
        2,
        GroupKind::All,
        Selection::Default,
        vec![(0, any, vec![set(Field::Ipv4Src, 0x0101_0101), out(2)]), (0, any, vec![out(3)])],
    );
    w.group(
        3,
        GroupKind::FastFailover,
        Selection::Default,
        vec![(0, PortNo(2), vec![out(2)]), (0, PortNo(3), vec![out(3)])],
    );
    let hash = Selection::Hash {
        basis: 0,
        fields: vec![(Field::Ipv4Src, u32::MAX.into()), (Field::Ipv4Dst, u32::MAX.into())],
    };
    w.group(5, GroupKind::Select, hash, vec![(100, any, vec![out(2)]), (100, any, vec![out(3)])]);
    w.group(
        6,
        GroupKind::Select,
        Selection::DpHash { basis: 7, algorithm: 0 },
        vec![(1, any, vec![out(2)]), (1, any, vec![out(3)])],
    );

    w.rule("", [Action::Group(2)]);
    assert_eq!(w.dp(TCP), "set(ipv4(src=1.1.1.1)),2,set(ipv4(src=10.0.0.1)),3");
    assert_eq!(w.mega(TCP), "recirc_id=0,eth,tcp,in_port=1,nw_src=10.0.0.1,nw_frag=no");

    w.rule("", [Action::Group(3)]);
    assert_eq!(w.dp(TCP), "2");
    w.port(2, |p| p.live = false);
    assert_eq!(w.dp(TCP), "3");
    w.port(3, |p| p.live = false);
    assert_eq!(w.dp(TCP), "drop");

    w.rule("", [Action::Group(5), out(4)]);
    assert!(["2,4", "3,4"].contains(&w.dp(TCP).as_str()));
    assert_eq!(
        w.mega(TCP),
        "recirc_id=0,eth,ip,in_port=1,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_frag=no"
    );

    // The datapath hashes; then 4 bits of the hash decide.
    w.rule("", [Action::Group(1), out(4)]);
    assert_eq!(w.dp(TCP), "hash(sym_l4(0)),recirc(0x1)");
    let mut used = std::collections::BTreeMap::new();
    let keep = w.translate(&key(TCP)).recirc_ids;
    let id = keep[0].id();
    for hash in 1..=64u32 {
        let mut k = key(TCP);
        k.recirc_id.set(id);
        k.dp_hash.set(hash);
        let t = w.translate(&k);
        assert_eq!(t.mask.0.dp_hash.get(), 15);
        *used.entry(datapath::text::format_plain(&t.actions)).or_insert(0) += 1;
    }
    assert_eq!(used, [("2,4".to_string(), 32), ("3,4".to_string(), 32)].into());
    w.rule("", [Action::Group(6)]);
    assert!(w.dp(TCP).starts_with("hash(l4(7)),recirc("));
    w.rule("", [Action::Group(77), out(2)]);
    assert_eq!(w.dp(TCP), "2");
}

#[test]
fn groups_that_contain_themselves_end() {
    let mut w = World::new(2);
    w.group(
        1,
        GroupKind::Indirect,
        Selection::Default,
        vec![(0, PortNo::NONE, vec![Action::Group(1)])],
    );
    w.rule("", [Action::Group(1)]);
    assert_eq!(w.translate(&key(TCP)).error, Some(TranslationError::RecursionTooDeep));
}

#[test]
fn groups_that_multiply_end() {
    let mut w = World::new(2);
    for id in 1..=9 {
        let buckets = vec![(0, PortNo::NONE, vec![Action::Group(id + 1)]); 20];
        w.group(id, GroupKind::All, Selection::Default, buckets);
    }
    w.group(10, GroupKind::All, Selection::Default, Vec::new());
    w.rule("", [Action::Group(1)]);
    let t = w.translate(&key(TCP));
    assert_eq!(t.error, Some(TranslationError::TooManyResubmits));
    assert!(t.effects.len() < MAX_BUCKETS as usize);
    // Fewer of them are no matter.
    w.rule("", [Action::Group(7), out(2)]);
    assert_eq!(w.dp(TCP), "2");
}

#[test]
fn groups_that_watch_each_other_end() {
    let mut w = World::new(3);
    let bucket = |watched: u32, port: u32| (0, PortNo(watched), vec![out(port)]);
    let kind = GroupKind::FastFailover;
    let (any, none) = (PortNo::NONE.0, Selection::Default);
    w.group(1, kind, none.clone(), vec![bucket(any, 2), bucket(any, 2), bucket(3, 3)]);
    w.watch_groups(1, &[2, 2]);
    w.group(2, kind, none.clone(), vec![bucket(any, 2), bucket(any, 2)]);
    w.watch_groups(2, &[2, 2]);
    w.rule("", [Action::Group(1)]);
    assert_eq!(w.dp(TCP), "3");
    w.port(3, |p| p.live = false);
    assert_eq!(w.dp(TCP), "drop");
    // One that is live in itself keeps those alive that watch it.
    w.group(2, kind, none, vec![bucket(any, 2), bucket(2, 2)]);
    w.watch_groups(2, &[2]);
    assert_eq!(w.dp(TCP), "2");
}

#[test]
fn a_hash_of_no_fields_is_one_of_the_whole_packet() {
    let mut w = World::new(3);
    let hash = Selection::Hash { basis: 0, fields: Vec::new() };
    let any = PortNo::NONE;
    w.group(1, GroupKind::Select, hash, vec![(1, any, vec![out(2)]), (1, any, vec![out(3)])]);
    w.rule("", [Action::Group(1)]);
    let sent = |port: u32| w.dp(&TCP.replace("tp_src=1000", &format!("tp_src={port}")));
    let used: std::collections::BTreeSet<String> = (1..=64).map(sent).collect();
    assert_eq!(used, ["2".to_string(), "3".to_string()].into());
    assert_eq!(w.translate(&key(TCP)).mask.0.tp_src.get(), u16::MAX);
}

#[test]
fn where_no_live_bucket_has_a_weight_the_last_one_is_used() {
    let mut w = World::new(4);
    let bucket = |weight: u16, port: u32| (weight, PortNo(port), vec![out(port)]);
    let buckets = |weight: u16| vec![bucket(0, 2), bucket(weight, 3), bucket(0, 4)];
    w.group(1, GroupKind::Select, Selection::Default, buckets(0));
    w.rule("", [Action::Group(1)]);
    assert_eq!(w.dp(TCP), "4");
    w.port(4, |p| p.live = false);
    assert_eq!(w.dp(TCP), "3");
    w.port(4, |p| p.live = true);
    let hash = Selection::Hash { basis: 0, fields: vec![(Field::Ipv4Src, u32::MAX.into())] };
    w.group(1, GroupKind::Select, hash, buckets(5));
    assert_eq!(w.dp(TCP), "3", "the only one with a weight");
    w.port(3, |p| p.live = false);
    assert_eq!(w.dp(TCP), "4");
}

#[test]
fn hashing_actions() {
    let mut w = World::new(4);
    let multipath = Multipath {
        fields: HashFields::SymmetricL4,
        basis: 50,
        algorithm: MultipathAlgorithm::ModuloN,
        max_link: 3,
        arg: 0,
        dst: sub("NXM_NX_REG0[0..1]"),
    };
    w.rule("", [Action::Multipath(Box::new(multipath)), out(2)]);
    assert_eq!(
        w.mega(TCP),
        "recirc_id=0,eth,tcp,in_port=1,vlan_tci=0x0000/0x1fff,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_frag=no,tp_src=1000,tp_dst=80"
    );
    let bundle = |algorithm, dst| {
        Action::Bundle(Box::new(Bundle {
            fields: HashFields::EthSrc,
            basis: 0,
            algorithm,
            members: vec![PortNo(2), PortNo(3)],
            dst,
        }))
    };
    w.rule("", [bundle(BundleAlgorithm::ActiveBackup, None)]);
    assert_eq!(w.dp(TCP), "2");
    w.port(2, |p| p.live = false);
    assert_eq!(w.dp(TCP), "3");
    w.rule(
        "",
        [
            bundle(BundleAlgorithm::Hrw, Some(sub("reg0[0..15]"))),
            Action::OutputReg { src: sub("reg0[0..15]"), max_len: 0 },
        ],
    );
    assert_eq!(w.dp(TCP), "3");
    w.port(3, |p| p.live = false);
    assert_eq!(w.dp(TCP), "drop");
}

#[test]
fn conjunctions() {
    let mut w = World::new(3);
    w.rule("conj_id=1,ip", [out(2)]);
    w.rule("ip,nw_src=10.0.0.1", [Action::Conjunction { id: 1, clause: 0, clauses: 2 }]);
    w.rule("tcp,tp_dst=80", [Action::Conjunction { id: 1, clause: 1, clauses: 2 }]);
    assert_eq!(w.dp(TCP), "2");
    assert_eq!(w.dp(&TCP.replace("tp_dst=80", "tp_dst=81")), "drop");
}

#[test]
fn learned_flows() {
    let mut w = World::new(3);
    let learn = Learn {
        idle_timeout: 10,
        hard_timeout: 0,
        priority: 100,
        cookie: 9,
        send_flow_removed: false,
        delete_learned: true,
        table: 5,
        fin_idle_timeout: 0,
        fin_hard_timeout: 3,
        limit: 1,
        result_dst: Some(sub("reg3[0]")),
        specs: vec![
            LearnSpec {
                bits: 48,
                src: LearnSource::Field(sub("eth_src")),
                dst: LearnTarget::Match(sub("eth_dst")),
            },
            LearnSpec {
                bits: 16,
                src: LearnSource::Value(0x800),
                dst: LearnTarget::Match(sub("eth_type")),
            },
            LearnSpec {
                bits: 16,
                src: LearnSource::Field(sub("NXM_OF_IN_PORT[]")),
                dst: LearnTarget::Load(sub("reg0[0..15]")),
            },
            LearnSpec {
                bits: 16,
                src: LearnSource::Field(sub("NXM_OF_IN_PORT[]")),
                dst: LearnTarget::Output,
            },
        ],
    };
    w.rule(
        "cookie=77",
        [
            Action::Learn(Box::new(learn)),
            Action::OutputReg { src: sub("reg3"), max_len: 0 },
            out(2),
        ],
    );
    let k = key(&TCP.replace("in_port=1", "in_port=3"));
    let t = w.translate(&k);
    assert_eq!(datapath::text::format_plain(&t.actions), "1,2");
    let flow = t.effects.iter().find_map(|e| match e {
        Effect::LearnFlow { flow, .. } => Some(flow),
        _ => None,
    });
    let flow = flow.unwrap();
    assert_eq!(
        flow::text::format_match(&flow.matching, &flow::text::no_names),
        "ip,dl_dst=50:54:00:00:00:05"
    );
    assert!(matches!(
        flow.actions.as_ref(),
        [
            Action::FinTimeout { idle: 0, hard: 3 },
            Action::SetField { field: Field::Reg0, value: 3, mask: 0xffff, .. },
            Action::Output { port: PortNo(3), .. }
        ]
    ));
    assert_eq!((flow.delete_with, flow.limit, flow.cookie), (Some((77, 0)), 1, 9));
    // At the limit: no flow, and the result says so. One that matches the same may not be changed
    // either, the flow itself may be refreshed.
    let learned = flow.actions.to_vec();
    w.rule("table=5,cookie=9,dl_dst=00:00:00:00:00:01", [out(2)]);
    let t = w.translate(&k);
    assert_eq!(datapath::text::format_plain(&t.actions), "2");
    assert!(!t.effects.iter().any(|e| matches!(e, Effect::LearnFlow { .. })));
    w.rule("table=5,cookie=9,priority=100,ip,dl_dst=50:54:00:00:00:05", [out(3)]);
    assert_eq!(datapath::text::format_plain(&w.translate(&k).actions), "2");
    let same = w.rule("table=5,cookie=9,priority=100,ip,dl_dst=50:54:00:00:00:05", learned);
    same.timeouts.reduce(10, 0);
    assert_eq!(datapath::text::format_plain(&w.translate(&k).actions), "1,2");
}

#[test]
fn a_port_that_none_can_have_is_learned_as_none() {
    let mut w = World::new(3);
    let learn = Learn {
        idle_timeout: 0,
        hard_timeout: 0,
        priority: 1,
        cookie: 0,
        send_flow_removed: false,
        delete_learned: false,
        table: 5,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        limit: 0,
        result_dst: None,
        specs: vec![LearnSpec {
            bits: 32,
            src: LearnSource::Value(0x1905_a74d),
            dst: LearnTarget::Match(sub("in_port_oxm[]")),
        }],
    };
    w.rule("", [Action::Learn(Box::new(learn))]);
    let effects = w.translate(&key(TCP)).effects;
    let [.., Effect::LearnFlow { flow, .. }] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(flow.matching.value(Field::InPortOxm), PortNo::NONE.0.into());
}

#[test]
fn a_long_list_of_branches_ends() {
    let mut w = World::new(3);
    let branch = |len| Action::CheckPktLarger { len, dst: sub("reg0[0]") };
    w.rule("", (0..4000).map(branch).chain([out(2)]).collect::<Vec<_>>());
    assert_eq!(w.translate(&key(TCP)).error, Some(TranslationError::TooManyActions));
}

#[test]
fn patch_ports() {
    let mut w = World::new(3);
    let br1 = w.add_bridge(3);
    let br0 = BridgeIndex(0);
    w.patch((br0, 3), (br1, 3));
    w.rule("", [set(Field::Reg0, 5), set(Field::EthSrc, 1), out(3), out(2)]);
    w.rule_on(br1, "priority=2,reg0=5", [out(1)]);
    w.rule_on(br1, "priority=1,in_port=3", [set(Field::EthDst, 2), out(2), Action::Exit]);
    let f = "in_port=1,dl_type=0x1234";
    assert_eq!(
        w.dp(f),
        "set(eth(src=00:00:00:00:00:01,dst=00:00:00:00:00:02)),102,set(eth(dst=00:00:00:00:00:00)),2"
    );
    let t = w.translate(&key(f));
    let patches = t.effects.iter().filter(|e| matches!(e, Effect::VirtualPort(..))).count();
    assert_eq!(patches, 2);
    // A loop of patches ends; what comes behind it in the first bridge is done.
    w.rule_on(br1, "priority=9", [to(PortNo::IN_PORT)]);
    w.rule("priority=40000,in_port=3", [to(PortNo::IN_PORT)]);
    let t = w.translate(&key(f));
    assert_eq!(t.error, None);
    assert_eq!(datapath::text::format_plain(&t.actions), "set(eth(src=00:00:00:00:00:01)),2");
    // Located by the datapath port of the other bridge.
    let mut k = key("dl_type=0x1234,in_port=101");
    k.in_port.set(101);
    let found = locate(&w.snapshot, &k, &w.recirc).unwrap();
    assert_eq!((found.bridge, found.key.in_port.get()), (br1, 1));
    k.in_port.set(999);
    assert_eq!(locate(&w.snapshot, &k, &w.recirc).unwrap_err(), LocateError::UnknownPort(999));
}

#[test]
fn controllers() {
    let mut w = World::new(3);
    let c = |pause| {
        Action::Controller(Box::new(Controller {
            max_len: 77,
            controller_id: 5,
            reason: 1,
            userdata: vec![1, 2],
            pause,
            meter_id: u32::MAX,
        }))
    };
    w.rule("cookie=9,table=0", [set(Field::Reg4, 44), set(Field::Metadata, 3), c(false), out(2)]);
    let t = w.translate(&key(TCP));
    let [datapath::Action::Userspace(userdata), _] = t.actions.as_slice() else {
        panic!("{:?}", t.actions)
    };
    let packet = Packet::from_slice(&[7; 60]);
    let mut dp_key = key(TCP);
    dp_key.in_port.set(1);
    let pin = controller_packet_in(&dp_key, userdata, &packet, &w.recirc).unwrap();
    assert_eq!(
        flow::text::format_match(&pin.metadata, &flow::text::no_names),
        "reg4=0x2c,metadata=0x3,in_port=1"
    );
    assert_eq!(
        (pin.reason, pin.table, pin.cookie, pin.max_len, pin.controller_id, pin.table_miss),
        (1, 0, 9, 77, 5, false)
    );
    assert_eq!(&*pin.userdata, [1, 2]);
    assert_eq!(pin.packet, packet);
    assert!(pin.continuation.is_none());
    let unknown = Userdata::SlowPath { reason: "x" };
    assert!(controller_packet_in(&dp_key, &unknown, &packet, &w.recirc).is_none());

    w.clear_rules();
    w.rule("", [set(Field::Reg4, 2), c(true), Action::OutputReg { src: sub("reg4"), max_len: 0 }]);
    let t = w.translate(&key(TCP));
    let [datapath::Action::Userspace(userdata)] = t.actions.as_slice() else {
        panic!("{:?}", t.actions)
    };
    let pin = controller_packet_in(&dp_key, userdata, &packet, &w.recirc).unwrap();
    let id = u32::from_be_bytes(pin.continuation.unwrap().as_slice().try_into().unwrap());
    let resumed = translate(Request {
        snapshot: &w.snapshot,
        bridge: BridgeIndex(0),
        key: key(TCP),
        packet: None,
        now: Millis(1),
        recirc: &w.recirc,
        frozen: w.recirc.state(id),
        invalid_options: false,
        effects: EffectsMode::Collect,
        tracer: None,
        actions: None,
    });
    assert_eq!(datapath::text::format_plain(&resumed.actions), "2");
    // TTL that runs out ends the list, not the pipeline.
    w.clear_rules();
    w.rule("", [resubmit(1), out(3)]);
    w.rule("table=1", [Action::DecTtl { controllers: vec![] }, out(2)]);
    let t = w.translate(&key(&TCP.replace("nw_ttl=64", "nw_ttl=1")));
    assert!(matches!(
        t.actions.as_slice(),
        [
            datapath::Action::Userspace(Userdata::Controller { reason: 2, .. }),
            datapath::Action::Output(datapath::PortNo(3))
        ]
    ));
}

#[test]
fn packet_out() {
    let mut w = World::new(3);
    w.rule("in_port=1", [out(2)]);
    let list = [resubmit(0), to(PortNo::TABLE), out(3), to(PortNo::CONTROLLER)];
    let t = w.run(&key(TCP), EffectsMode::Collect, None, Some(&list));
    assert!(matches!(
        t.actions.as_slice(),
        [
            datapath::Action::Output(datapath::PortNo(2)),
            datapath::Action::Output(datapath::PortNo(2)),
            datapath::Action::Output(datapath::PortNo(3)),
            datapath::Action::Userspace(Userdata::Controller { reason: 5, .. })
        ]
    ));
    // Nothing comes by a port that is to receive nothing.
    w.port(1, |p| p.config = PortConfig::NO_RECV);
    let t = w.run(&key(TCP), EffectsMode::Collect, None, Some(&list));
    assert_eq!((t.actions.len(), t.error), (0, None));
}

#[test]
fn counters_follow_packets() {
    let mut w = World::new(3);
    let first = w.rule("", [resubmit(1)]);
    let second = w.rule("table=1", [Action::FinTimeout { idle: 5, hard: 0 }, out(2)]);
    let t = w.translate(&key(TCP));
    let events = crate::event::Sender::new(|_| true);
    let seen = datapath::FlowStats { packets: 3, bytes: 180, used: Millis(50), tcp_flags: 1 };
    apply(&t.effects, &seen, &events);
    assert_eq!(first.stats.counts(), (3, 180));
    assert_eq!(second.stats.counts(), (3, 180));
    assert_eq!(second.stats.used(), Millis(50));
    assert_eq!(second.timeouts.idle(), 5);
    assert_eq!(w.br0().tables[1].stats.matched.load(std::sync::atomic::Ordering::Relaxed), 3);
    let t = w.run(&key(TCP), EffectsMode::Suppress, None, None);
    assert!(t.effects.is_empty());
}

/// Classes of holes that OVS had; see the text of [`super`].
#[test]
fn malformed_packets_have_megaflows_of_their_own() {
    let mut w = World::new(3);
    // CVE-2023-1668: a cut-off IP header (protocol 0) must not stand for all protocols.
    w.rule("ip", [set(Field::Ipv4Dst, 1), Action::DecTtl { controllers: vec![] }, out(2)]);
    let t = w.translate(&key("in_port=1,ip,nw_ttl=64"));
    assert_eq!(t.mask.0.nw_proto, 0xff);
    assert_eq!(datapath::text::format_plain(&t.actions), "2");
    let t = w.translate(&key("in_port=1,udp,nw_ttl=64"));
    assert_eq!(t.mask.0.nw_proto, 0xff);
    assert_eq!(datapath::text::format_plain(&t.actions), "set(ipv4(dst=0.0.0.1,ttl=63)),2");
    // CVE-2023-5366: a neighbour message without the option must not stand for those with it.
    w.clear_rules();
    w.rule("priority=2,icmp6,icmp_type=136,icmp_code=0,nd_tll=00:00:00:00:00:01", [out(2)]);
    w.rule("priority=1", [out(3)]);
    let t = w.translate(&key("in_port=1,icmp6,icmpv6_type=136,icmpv6_code=0"));
    let m = &t.mask.0;
    assert_eq!((m.arp_tha, m.nw_proto, m.tp_src.get()), ([0xff; 6], 0xff, 0xff));
    // A field that is not there is looked at by name only: its prerequisites are exact.
    w.clear_rules();
    w.rule("", [set(Field::NdTll, 1), set(Field::TcpDst, 1), out(3)]);
    let m = w.translate(&key("in_port=1,ip,nw_ttl=1")).mask.0;
    assert_eq!((m.nw_proto, m.nw_frag & 2, m.dl_type.get()), (0xff, 2, 0xffff));
    // Later fragments: no ports, also not as zeros of a first fragment.
    w.clear_rules();
    w.rule("priority=2,tcp,tp_dst=0", [out(2)]);
    let t = w.translate(&key("in_port=1,tcp,ip_frag=later"));
    assert_eq!((t.mask.0.nw_frag, t.mask.0.tp_dst.get()), (3, 0));
}

#[test]
fn a_frozen_bucket_leaves_the_action_set_alone() {
    let mut w = World::new(4);
    let pop =
        vec![Action::PopMpls { ethertype: 0x800 }, Action::DecTtl { controllers: vec![] }, out(2)];
    w.group(1, GroupKind::All, Selection::Default, vec![(0, PortNo::NONE, pop)]);
    w.rule("mpls", [Action::WriteActions(vec![out(3)]), Action::Group(1)]);
    let labelled = key("in_port=1,mpls,mpls_label=5,mpls_ttl=3,mpls_bos=1");
    let t = w.translate(&labelled);
    // Only the datapath has the headers below the label; the label itself comes back.
    assert_eq!(
        datapath::text::format_plain(&t.actions),
        "pop_mpls(eth_type=0x800),recirc(0x1),push_mpls(label=5,tc=0,ttl=3,bos=1,eth_type=0x8847),3"
    );
    let mut back = key(TCP);
    back.recirc_id.set(t.recirc_ids[0].id());
    assert_eq!(datapath::text::format_plain(&w.translate(&back).actions), "set(ipv4(ttl=63)),2");
    // With more labels than a key holds it cannot come back: the bucket gets a copy.
    let deep = key("in_port=1,mpls,mpls_label=5,mpls_ttl=3,mpls_bos=0");
    assert_eq!(
        datapath::text::format_plain(&w.translate(&deep).actions),
        "clone(pop_mpls(eth_type=0x800),recirc(0x1)),3"
    );
}

#[test]
fn a_write_that_the_packet_cannot_have_looks_at_no_more_than_its_type() {
    let mut w = World::new(2);
    w.rule("", [Action::SetL4Dst(5), Action::SetIpv4Dst(0x0101_0101), out(2)]);
    for (flow, mega) in [
        ("in_port=1,dl_type=0x1234", "recirc_id=0,eth,in_port=1,dl_type=0x1234"),
        ("in_port=1,arp", "recirc_id=0,eth,arp,in_port=1"),
        ("in_port=1,ipv6,nw_proto=6,nw_frag=later", "recirc_id=0,eth,ipv6,in_port=1,nw_frag=later"),
        ("in_port=1,tcp6", "recirc_id=0,eth,tcp6,in_port=1,nw_frag=no,tp_dst=0"),
        ("in_port=1,tcp", "recirc_id=0,eth,tcp,in_port=1,nw_dst=0.0.0.0,nw_frag=no,tp_dst=0"),
    ] {
        assert_eq!(w.mega(flow), mega, "{flow}");
    }
}

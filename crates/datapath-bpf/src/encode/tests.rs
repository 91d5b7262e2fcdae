// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::layout::{FLOW_CHAIN, FLOW_CHAIN_END, PUSH_OF_BARE};
use datapath::{Masked, Userdata};
use proptest::prelude::*;
use std::sync::Arc;

const TWO: Action = Action::Output(PortNo(2));
const THREE: Action = Action::Output(PortNo(3));

fn program(actions: &[Action]) -> (Vec<u64>, HookSet) {
    let encoded = encode(actions).unwrap();
    let Effect::Program(cells) = encoded.effect else { panic!("{encoded:?}") };
    assert!(is_program(&cells), "{cells:x?}");
    let used = cells.iter().rposition(|c| *c != 0).map_or(0, |i| i + 1);
    (cells[..used].to_vec(), encoded.hooks)
}

fn cell(op: Op, length: u64, a: u64, b: u64) -> u64 {
    op as u64 | length << 8 | a << 16 | b << 32
}

fn refused(actions: &[Action]) {
    assert_eq!(encode(actions), Err(Refusal::UnsupportedAction), "{actions:?}");
}

#[test]
fn one_output_and_drops_need_no_program() {
    let e = encode(&[TWO]).unwrap();
    assert_eq!((e.effect, e.hooks), (Effect::Output(PortNo(2)), HookSet::all()));
    assert_eq!(encode(&[]).unwrap().effect, Effect::Drop(DropReason::Flow));
    let unknown = [Action::Drop(DropReason::UnknownPort)];
    assert_eq!(encode(&unknown).unwrap().effect, Effect::Drop(DropReason::UnknownPort));
    assert_eq!(encode(&[Action::Output(PortNo(4096))]), Err(Refusal::PortNotHere));
}

#[test]
fn lists_that_may_be_in_a_chain_are_marked() {
    let ct = |request| Action::Ct(Box::new(request));
    let plain = || ct(conntrack::Request { zone: 5, ..Default::default() });
    let marks = || ct(conntrack::Request { mark: Some((1, 1)), ..Default::default() });
    let force =
        || ct(conntrack::Request { commit: conntrack::Commit::Force, ..Default::default() });
    let eth = || {
        let keep = Masked { value: [0; 6], mask: [0; 6] };
        Action::Set(Set::Ethernet { src: Masked { value: [2; 6], mask: [0xff; 6] }, dst: keep })
    };
    let part = |list: &[Action]| encode(list).unwrap().flags & (FLOW_CHAIN | FLOW_CHAIN_END);
    assert_eq!(part(&[eth(), plain(), eth(), Action::Recirc(1)]), FLOW_CHAIN);
    assert_eq!(part(&[eth(), TWO]), FLOW_CHAIN_END);
    assert_eq!(part(&[vxlan(7, "0x0")]), FLOW_CHAIN_END);
    assert_eq!(part(&[eth(), vxlan(7, "0xffff")]), FLOW_CHAIN_END);
    assert_eq!(part(&[Action::CtClear, eth(), TWO]), FLOW_CHAIN_END);
    assert_eq!(part(&[Action::CtClear, plain(), Action::Recirc(1)]), FLOW_CHAIN);
    for none in [
        vec![plain(), plain(), Action::Recirc(1)],
        vec![marks(), Action::Recirc(1)],
        vec![force(), Action::Recirc(1)],
        vec![eth(), Action::Recirc(1)],
        vec![plain(), TWO],
        vec![plain(), vxlan(7, "0x0")],
        vec![THREE, TWO],
        vec![Action::Hash { symmetric: true, basis: 0 }, plain(), Action::Recirc(1)],
        vec![Action::PushVlan { tpid: 0x8100, tci: 0 }, TWO],
    ] {
        assert_eq!(part(&none), 0, "{none:?}");
    }
}

#[test]
fn connections_are_tracked_at_both_hooks_but_not_in_copies() {
    let ct = |request| Action::Ct(Box::new(request));
    let plain = || ct(conntrack::Request { zone: 5, policy: 2, ..Default::default() });
    let list = [plain(), Action::Recirc(3)];
    let (cells, hooks) = program(&list);
    let expected = [cell(Op::Ct, 1, 0, 0x2_0005), cell(Op::Recirc, 1, 0, 3)];
    assert_eq!((&cells[..], hooks), (&expected[..], HookSet::all()));
    let encoded = encode(&list).unwrap();
    assert_eq!((encoded.flags, encoded.instructions), (FLOW_PRECHECK | FLOW_CHAIN, 4));
    assert!(encoded.traits.tracks);
    // A packet that leaves XDP would pass the meter twice.
    assert_eq!(program(&[Action::Meter(1), plain(), TWO]).1, HookSet::TC);
    let helper = Some(conntrack::Helper::Ftp);
    let helped = ct(conntrack::Request { helper, ..Default::default() });
    assert_eq!(encode(&[helped, TWO]), Err(Refusal::CtHelper));
    // The daemon would not find the IP header of such a packet again.
    let tagged = [Action::PushVlan { tpid: 0x8100, tci: 0x1005 }, plain(), TWO];
    assert_eq!(encode(&tagged), Err(Refusal::CtPlace));
    for copied in [plain(), Action::CtClear] {
        let nested = || vec![copied.clone(), THREE];
        assert_eq!(program(&[Action::Clone(nested())]).1, HookSet::all(), "not a copy");
        for place in [
            Action::Clone(nested()),
            Action::Clone(vec![Action::Clone(nested())]),
            Action::Sample { probability: 9, actions: nested() },
            Action::Sample { probability: u32::MAX, actions: nested() },
            Action::CheckPktLen { len: 9, greater: nested(), not_greater: vec![] },
        ] {
            assert_eq!(encode(&[place, TWO]), Err(Refusal::CtPlace));
        }
    }
}

#[test]
fn copies_at_xdp_are_of_the_packet_in_the_end() {
    let copies = |actions: &[Action]| encode(actions).unwrap().traits.copies;
    let (cells, hooks) = program(&[TWO, THREE]);
    let expected =
        [cell(Op::Copies, 1, 0, 0), cell(Op::Output, 1, 0, 2), cell(Op::Output, 1, 1, 3)];
    assert_eq!((&cells[..], hooks), (&expected[..], HookSet::all()));
    assert_eq!(copies(&[Action::PopVlan, THREE, TWO]), Some(vec![2, 3]));
    assert_eq!(encode(&[THREE, TWO]).unwrap().flags, FLOW_PRECHECK);
    // Different copies, or two for one port.
    for list in [&[TWO, Action::PopVlan, THREE][..], &[TWO, TWO], &[TWO, THREE, TWO]] {
        let (cells, hooks) = program(list);
        assert_eq!((copies(list), hooks), (None, HookSet::TC), "{list:?}");
        assert!(cells.iter().all(|cell| cell & 0xff != Op::Copies as u64));
    }
    // Actions between lists of outputs do not matter, and neither do actions that never run.
    let never = Action::Sample { probability: 0, actions: vec![Action::PopVlan] };
    let nested = [TWO, Action::Clone(vec![THREE, Action::Output(PortNo(4))]), never];
    assert_eq!(copies(&nested), Some(vec![2, 3, 4]));
    assert_eq!(program(&nested).1, HookSet::all());
    // One set of ports for a program.
    let check = |greater: &[Action]| {
        let (greater, not_greater) = (greater.to_vec(), vec![Action::PopVlan, THREE, TWO]);
        Action::CheckPktLen { len: 9, greater, not_greater }
    };
    assert_eq!(program(&[check(&[TWO, THREE])]).1, HookSet::all());
    assert_eq!(copies(&[check(&[TWO, THREE])]), Some(vec![2, 3]));
    let four = Action::Output(PortNo(4));
    assert_eq!(program(&[check(&[TWO, four])]).1, HookSet::TC);
    let push = Action::PushVlan { tpid: 0x8100, tci: 7 };
    let traits = encode(&[push.clone(), push, TWO, THREE]).unwrap().traits;
    assert_eq!((traits.growth, traits.again, traits.cuts), (8, false, false));
    let cut = encode(&[Action::Trunc(64), TWO]).unwrap();
    assert!(cut.traits.cuts && cut.flags & FLOW_PRECHECK != 0 && cut.hooks == HookSet::XDP);
}

#[test]
fn what_is_looked_up_again_at_xdp_can_be_undone() {
    let again = |mut actions: Vec<Action>| {
        actions.push(Action::Recirc(3));
        let encoded = encode(&actions).unwrap();
        assert_eq!((encoded.traits.again, encoded.flags & FLOW_PRECHECK), (true, FLOW_PRECHECK));
        encoded.hooks
    };
    assert_eq!(again(vec![]), HookSet::all());
    let hash = Action::Hash { symmetric: false, basis: 0 };
    assert_eq!(again(vec![Action::PopVlan, hash]), HookSet::all());
    assert_eq!(again(vec![TWO]), HookSet::TC);
    assert_eq!(again(vec![Action::Meter(1)]), HookSet::TC);
    let nd = Set::Nd { target: Masked::default(), sll: Masked::default(), tll: Masked::default() };
    assert_eq!(again(vec![Action::Set(nd)]), HookSet::TC);
    let sample = |actions| vec![Action::Sample { probability: 7, actions }];
    assert_eq!(encode(&sample(vec![Action::Recirc(1)])).unwrap().hooks, HookSet::TC);
    // They do no harm in a list that ends here.
    assert_eq!(program(&[Action::Meter(1), TWO]).1, HookSet::all());
}

#[test]
fn what_needs_an_skb() {
    let (cells, hooks) = program(&[Action::PopVlan, THREE]);
    assert_eq!(cells, [cell(Op::PopVlan, 1, 0, 0), cell(Op::Output, 1, 1, 3)]);
    assert_eq!(hooks, HookSet::all());
    let (_, hooks) = program(&[Action::Set(Set::Priority(3)), THREE]);
    assert_eq!(hooks, HookSet::TC);
}

#[test]
fn operands_are_as_in_a_key() {
    let src = Masked { value: [1, 2, 3, 4, 5, 6], mask: [0xff; 6] };
    let dst = Masked { value: [7, 8, 9, 10, 11, 12], mask: [0xff; 6] };
    let (cells, _) = program(&[Action::Set(Set::Ethernet { src, dst }), TWO]);
    assert_eq!(cells[0], cell(Op::SetEth, 5, 0, 0));
    assert_eq!(cells[1].to_ne_bytes(), [7, 8, 9, 10, 11, 12, 1, 2]);
    assert_eq!(cells[2].to_ne_bytes(), [3, 4, 5, 6, 0, 0, 0, 0]);
    assert_eq!(cells[3], u64::MAX);
    assert_eq!(cells[4].to_ne_bytes(), [255, 255, 255, 255, 0, 0, 0, 0]);
    let port = Masked { value: 0x1234, mask: 0xffff };
    let (cells, _) = program(&[Action::Set(Set::Udp { src: port, dst: Masked::default() }), TWO]);
    assert_eq!(cells[1].to_ne_bytes(), [0x12, 0x34, 0xff, 0xff, 0, 0, 0, 0]);
    let (cells, _) = program(&[Action::PushVlan { tpid: 0x8100, tci: 0x3007 }, TWO]);
    assert_eq!(cells[0], cell(Op::PushVlan, 1, 0x8100, 0x2007));
}

#[test]
fn nested_lists_stand_last_or_are_outputs() {
    let sample = |p, actions: &[Action]| Action::Sample { probability: p, actions: actions.into() };
    assert_eq!(program(&[Action::Clone(vec![TWO]), THREE]), program(&[TWO, THREE]));
    assert_eq!(program(&[sample(u32::MAX, &[TWO]), THREE]), program(&[TWO, THREE]));
    assert_eq!(program(&[TWO, Action::Clone(vec![Action::PopVlan, THREE])]), {
        program(&[TWO, Action::PopVlan, THREE])
    });
    refused(&[Action::Clone(vec![Action::PopVlan, TWO]), THREE]);
    let (cells, hooks) = program(&[sample(7, &[TWO]), THREE]);
    let expected =
        [cell(Op::Sample, 1, 1, 7), cell(Op::Output, 1, 0, 2), cell(Op::Output, 1, 1, 3)];
    assert_eq!((&cells[..], hooks), (&expected[..], HookSet::TC));
    refused(&[sample(7, &[Action::PopVlan, TWO]), THREE]);
    let (cells, _) = program(&[sample(7, &[Action::PopVlan, TWO])]);
    assert_eq!(
        cells,
        [
            cell(Op::Sample, 1, 2, 7),
            cell(Op::PopVlan, 1, 0, 0),
            cell(Op::Output, 1, 1, 2),
            cell(Op::End, 1, 0, 0)
        ]
    );
    let check =
        Action::CheckPktLen { len: 1500, greater: vec![THREE], not_greater: vec![TWO, THREE] };
    let (cells, _) = program(std::slice::from_ref(&check));
    assert_eq!(
        cells,
        [
            cell(Op::CheckLen, 1, 3, 1500),
            cell(Op::Copies, 1, 0, 0),
            cell(Op::Output, 1, 0, 2),
            cell(Op::Output, 1, 1, 3),
            cell(Op::Output, 1, 1, 3)
        ]
    );
    refused(&[check, TWO]);
}

#[test]
fn samples_run_at_tc_and_have_numbers() {
    let sflow = |output| Userdata::Sflow { vlan_tci: 0, output };
    let some = |output, probability| Action::Sample {
        probability,
        actions: vec![Action::Userspace(sflow(output))],
    };
    let all = [some(1, 9), Action::Userspace(sflow(2)), some(3, u32::MAX), TWO];
    let encoded = encode(&all).unwrap();
    assert_eq!(encoded.hooks, HookSet::TC);
    assert_eq!(encoded.samples, [sflow(1), sflow(2), sflow(3)]);
    let Effect::Program(cells) = &encoded.effect else { panic!("{encoded:?}") };
    assert!(is_program(cells));
    let at = |cell| crate::decode::sample_at(cells, cell);
    assert_eq!(
        (0..7).map(at).collect::<Vec<_>>(),
        [None, Some(0), Some(1), Some(2), None, None, None]
    );
    // Programs do not have the contents.
    let decoded = crate::decode::actions(cells, &|_| None);
    assert_eq!(decoded, [Action::Sample { probability: 9, actions: vec![] }, TWO]);
}

#[test]
fn what_cannot_run_here() {
    refused(&[Action::Userspace(Userdata::SlowPath { reason: "cfm" })]);
    refused(&[TWO, Action::Userspace(Userdata::SlowPath { reason: "cfm" })]);
    refused(&[Action::Recirc(1), TWO]);
    refused(&[TWO, Action::Drop(DropReason::Flow), TWO]);
    refused(&[Action::Meter(1024), TWO]);
    refused(&[Action::Trunc(64), TWO, THREE]);
    refused(&vec![TWO; 21]);
    program(&vec![TWO; 20]);
    assert_eq!(encode(&vec![TWO; 20]).unwrap().instructions, 20);
    assert_eq!(program(&[Action::Trunc(64), TWO]).1, HookSet::XDP);
    let mut deep = vec![TWO];
    for _ in 0..ACTION_DEPTH_LIMIT + 2 {
        deep = vec![Action::Clone(deep)];
    }
    refused(&deep);
    refused(&[Action::PushVlan { tpid: 0x9100, tci: 0x1001 }, TWO]);
    let push = Action::PushVlan { tpid: 0x8100, tci: 0x1001 };
    let label = Action::PushMpls { lse: 1, ethertype: 0x8847 };
    program(&[push.clone(), push.clone(), label.clone(), TWO]);
    refused(&[push.clone(), push.clone(), push, label, TWO]);
}

/// `clone(tnl_push(...),2)` with the text of what follows the UDP or GRE port.
fn tunnelled(size: u32, kind: u32, proto: u8, rest: &str) -> Action {
    let text = format!(
        "clone(tnl_push(tnl_port(8),header(size={size},type={kind},eth(dst=aa:55:00:00:00:01,\
         src=aa:55:00:00:00:02,dl_type=0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto={proto},\
         tos=0x0,ttl=64,frag=0x4000),{rest}),out_port(9)),2)"
    );
    datapath::text::parse(&text, &|_| None).unwrap().pop().unwrap()
}

fn vxlan(vni: u32, csum: &str) -> Action {
    let rest = format!("udp(src=0,dst=4789,csum={csum}),vxlan(flags=0x8000000,vni=0x{vni:x})");
    tunnelled(50, 4, 17, &rest)
}

#[test]
fn an_ethernet_header_comes_off_with_the_push_of_a_header_without_one_inside() {
    let gre = |protocol| {
        let rest = format!("gre((flags=0x0,proto=0x{protocol:x}))");
        tunnelled(38, 3, 47, &rest)
    };
    let bare = |list: &[Action]| [&[Action::PopEth], list].concat();
    let push = |number| [cell(Op::TunPush, 2, 38, number), 8 | 9 << 32];
    let [first, ports] = push(0);
    let (cells, hooks) = program(&bare(&[gre(0x800)]));
    assert_eq!((cells, hooks), (vec![first, ports, cell(Op::Output, 1, 1, 2)], HookSet::all()));
    let e = encode(&bare(&[gre(0x800)])).unwrap();
    let Effect::Program(cells) = &e.effect else { panic!() };
    let header_of = |number: u32| e.headers.get(number as usize).copied();
    assert_eq!(crate::decode::actions(cells, &header_of), bare(&[gre(0x800)]));
    refused(&[gre(0x800)]);
    refused(&bare(&[gre(0x6558)]));
    // Without a push right after it, it comes off by itself.
    let header = |op: HeaderOp| cell(Op::Header, 1, op as u64, 0);
    let (cells, hooks) = program(&bare(&[TWO]));
    assert_eq!(
        (cells, hooks),
        (vec![header(HeaderOp::PopEth), cell(Op::Output, 1, 1, 2)], HookSet::all())
    );
    let [_, ports] = push(0);
    let apart = bare(&[Action::Set(Set::Priority(7)), gre(0x800)]);
    assert_eq!(program(&apart).0[3], ports | u64::from(PUSH_OF_BARE));
    let e = encode(&apart).unwrap();
    let Effect::Program(cells) = &e.effect else { panic!() };
    let header_of = |number: u32| e.headers.get(number as usize).copied();
    assert_eq!(crate::decode::actions(cells, &header_of), apart);
    // A packet that has none does not lose one.
    let of_bare = encode_from(&[gre(0x800)], Front::Bare).unwrap();
    let Effect::Program(cells) = &of_bare.effect else { panic!() };
    assert_eq!(cells[1], ports | u64::from(PUSH_OF_BARE));
    assert_eq!(encode_from(&[gre(0x6558)], Front::Bare), Err(Refusal::UnsupportedAction));
}

#[test]
fn headers_come_in_front_of_packets_and_come_off_again() {
    let parse = |text: &str| datapath::text::parse(text, &|_| None).unwrap();
    let push = "push_nsh(flags=2,ttl=63,mdtype=1,np=3,spi=0x1,si=2,c1=0x1,c2=0x2,c3=0x3,c4=0x4)";
    let eth = "push_eth(src=02:00:00:00:00:0a,dst=02:00:00:00:00:0b)";
    for text in [
        format!("{push},{eth},2"),
        format!(
            "push_nsh(flags=0,ttl=63,mdtype=2,np=3,spi=0x1,si=2,md2=0x10000a0412345678),{eth},2"
        ),
        "pop_eth,pop_nsh(),recirc(0x5)".to_owned(),
        "add_mpls(label=7,tc=0,ttl=64,bos=1,eth_type=0x8847),2".to_owned(),
    ] {
        let actions = parse(&text);
        let e = encode(&actions).unwrap();
        let Effect::Program(cells) = &e.effect else { panic!() };
        assert_eq!(crate::decode::actions(cells, &|_| None), actions);
        assert!(is_program(cells), "{text}");
        assert_eq!(e.hooks, HookSet::all(), "{text}");
    }
    let long =
        format!("push_nsh(flags=0,ttl=1,mdtype=2,np=3,spi=0x1,si=2,md2=0x{}),2", "00".repeat(60));
    refused(&parse(&long));
    // The layers below a header that came off are known after a new lookup.
    refused(&parse("pop_eth,pop_nsh(),set(ipv4(ttl=9)),2"));
    let flags = |text: &str| encode(&parse(text)).unwrap().flags & FLOW_NO_GSO;
    assert_eq!((flags(&format!("{push},{eth},2")), flags("pop_eth,pop_nsh(),2")), (FLOW_NO_GSO, 0));
    // A packet that cannot have its header, or lose it, leaves XDP as it arrived.
    let again = |text: &str| encode(&parse(text)).unwrap().traits.again;
    for text in [
        "pop_eth,pop_nsh(),2",
        "add_mpls(label=7,tc=0,ttl=64,bos=1,eth_type=0x8847),2",
        "pop_eth,pop_mpls(eth_type=0x6558),2",
        &format!("{push},{eth},2"),
    ] {
        assert!(again(text), "{text}");
    }
    assert!(!again(&format!("pop_eth,{eth},2")) && !again("pop_mpls(eth_type=0x800),2"));
}

#[test]
fn a_copy_in_a_tunnel_is_last() {
    let push = |number| [cell(Op::TunPush, 2, 50, number), 8 | 9 << 32];
    let copy = || vxlan(7, "0x0");
    let (cells, hooks) = program(&[copy()]);
    let [first, ports] = push(0);
    assert_eq!(cells, [first, ports, cell(Op::Output, 1, 1, 2)]);
    assert_eq!(hooks, HookSet::all());
    let (cells, hooks) = program(&[copy(), THREE]);
    assert_eq!(cells, [cell(Op::Output, 1, 0, 3), first, ports, cell(Op::Output, 1, 1, 2)]);
    assert_eq!(hooks, HookSet::TC, "another copy");
    assert_eq!(program(&[THREE, copy()]).0, cells);
    let place = Err(Refusal::TunnelPlace);
    assert_eq!(encode(&[copy(), vxlan(8, "0x0")]), place);
    assert_eq!(encode(&[copy(), Action::PopVlan, THREE]), place);
    // One tunnel in another has both headers, and one header is there once.
    let Action::Clone(mut nested) = copy() else { panic!() };
    nested.pop();
    nested.extend([vxlan(8, "0x0")]);
    assert_eq!(encode(&[Action::Clone(nested)]).unwrap().headers.len(), 2);
    let branch = Action::CheckPktLen { len: 9, greater: vec![copy()], not_greater: vec![copy()] };
    assert_eq!(encode(&[branch]).unwrap().headers.len(), 1);
}

#[test]
fn lists_that_change_a_packet_before_a_tunnel_begin_with_a_check_of_its_length() {
    let limited = |path_mtu| {
        let Action::Clone(nested) = vxlan(7, "0x0") else { panic!() };
        let with_limit = |action: &Action| match action {
            Action::TunnelPush { header, tunnel_port, out_port } => Action::TunnelPush {
                header: Arc::new((**header).clone().with_path_mtu(path_mtu)),
                tunnel_port: *tunnel_port,
                out_port: *out_port,
            },
            other => other.clone(),
        };
        nested.iter().map(with_limit).collect::<Vec<Action>>()
    };
    let first = |actions: &[Action]| program(actions).0[0];
    let room = |most| cell(Op::TunRoom, 1, 0, most);
    let mac = Masked { value: [2; 6], mask: [0xff; 6] };
    let set = || Action::Set(Set::Ethernet { src: mac, dst: mac });
    let tag = Action::PushVlan { tpid: 0x8100, tci: 0x1007 };
    // 36 bytes follow the outer Ethernet header, before the inner one.
    let edited = |edits: &[Action], path_mtu| [edits, &limited(path_mtu)].concat();
    assert_eq!(first(&edited(&[set()], Some(1500))), room(1464));
    assert_eq!(first(&edited(&[set(), tag], Some(1500))), room(1460));
    assert_eq!(first(&edited(&[Action::PopVlan], Some(1500))), room(1468));
    assert_eq!(first(&edited(&[set()], Some(20))), room(0));
    // The shortest path counts.
    let check = Action::CheckPktLen {
        len: 900,
        greater: limited(Some(1400)),
        not_greater: edited(&[Action::PopVlan], Some(1500)),
    };
    assert_eq!(first(&[set(), check]), room(1364));
    // Nothing is changed, or there is no limit.
    for other in [limited(Some(1500)), edited(&[Action::Set(Set::Priority(1))], Some(1500))] {
        assert!(program(&other).0.iter().all(|cell| cell & 0xff != Op::TunRoom as u64));
    }
    assert_eq!(first(&edited(&[set()], None)) & 0xff, Op::SetEth as u64);
}

#[test]
fn large_segments_reach_the_push() {
    let flags = |action| encode(&[action]).unwrap().flags & FLOW_NO_GSO;
    assert_eq!((flags(vxlan(7, "0x0")), flags(vxlan(7, "0xffff"))), (0, 0));
    let gre = |text| tunnelled(42, 3, 47, text);
    assert_eq!(flags(gre("gre((flags=0x2000,proto=0x6558),key=0x1)")), 0);
    assert_eq!(flags(gre("gre((flags=0x8000,proto=0x6558),csum=0x0)")), 0);
    assert_eq!(flags(gre("gre((flags=0x1000,proto=0x6558),seq=0x0)")), 0);
}

#[test]
fn what_is_below_a_popped_label_is_not_touched() {
    let pop = |ethertype| Action::PopMpls { ethertype };
    let port = Masked { value: 1, mask: 0xffff };
    for after in [
        Action::Set(Set::Udp { src: port, dst: port }),
        Action::Hash { symmetric: false, basis: 0 },
        Action::PopVlan,
        Action::PushVlan { tpid: 0x8100, tci: 0x1001 },
        Action::PushMpls { lse: 1, ethertype: 0x8847 },
        pop(0x800),
    ] {
        refused(&[pop(0x8847), after.clone(), TWO]);
        refused(&[pop(0x800), TWO, Action::Clone(vec![after.clone(), TWO])]);
        refused(&[pop(0x800), after]);
    }
    let any = Masked { value: [1; 6], mask: [0xff; 6] };
    program(&[pop(0x800), TWO, Action::Recirc(1)]);
    program(&[pop(0x800), TWO, Action::Drop(DropReason::Flow)]);
    program(&[pop(0x800), Action::Set(Set::Ethernet { src: any, dst: any }), TWO]);
    // One branch pops, the other does not.
    program(&[Action::CheckPktLen {
        len: 9,
        greater: vec![Action::PopVlan, TWO],
        not_greater: vec![pop(0x800), TWO],
    }]);
    refused(&[Action::PushMpls { lse: 1, ethertype: 0x0800 }, TWO]);
    let pop = encode(&[Action::TunnelPop(PortNo(2))]).unwrap();
    assert_eq!((&pop.effect, pop.flags), (&Effect::Pop(PortNo(2)), FLOW_POP));
    assert_eq!((pop.hooks, pop.effect_in_slot()), (HookSet::all(), (NO_PORT, 0, 2)));
    refused(&[Action::TunnelPop(PortNo(2)), Action::Output(PortNo(1))]);
    refused(&[Action::PopVlan, Action::TunnelPop(PortNo(2))]);
    assert_eq!(encode(&[Action::TunnelPop(PortNo(MAX_PORTS))]), Err(Refusal::PortNotHere));
    program(&[TWO, Action::Drop(DropReason::TunnelPop)]);
}

proptest! {
    #[test]
    fn any_cells_are_judged(cells in proptest::array::uniform32(any::<u64>()), small: bool) {
        let mut all = [0u64; CELLS_TOTAL];
        for (to, from) in all.iter_mut().zip(cells) {
            *to = if small { from & 0x0000_0001_0007_0f1f } else { from };
        }
        is_program(&all);
    }
}

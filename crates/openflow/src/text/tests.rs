// SPDX-License-Identifier: Apache-2.0
//! Texts with port names, whole flows, and invalid texts. The output and the refusals of ovs-ofctl
//! are in `tests/vectors.rs`.

use super::*;
use crate::action::{Action, SetSpelling};
use crate::{PortNo, Version};
use flow::{Field, Match};
use proptest::prelude::*;

fn names(n: u32) -> Option<String> {
    (n == 1).then(|| "p1".to_string())
}

fn numbers(name: &str) -> Option<u32> {
    (name == "p1").then_some(1)
}

#[test]
fn port_names_both_ways() {
    let text = "output:p1,output:2,LOCAL,enqueue:p1:3,resubmit(p1,4),output(port=p1,max_len=64),\
                bundle(eth_src,0,hrw,ofport,members:p1,2)";
    let actions = parse_actions(text, Version::V13, &numbers).unwrap();
    assert_eq!(format_actions(&actions, &names), text);
    assert_eq!(parse_actions("p1", Version::V13, &numbers).unwrap(), actions[..1]);
    assert!(parse_actions("p2", Version::V13, &numbers).is_err());
}

#[test]
fn long_loads_have_parts() {
    let load = |field, value, mask| {
        let spelled = SetSpelling::Load;
        format_actions(&[Action::SetField { field, value, mask, spelled }], &names)
    };
    let value = 0x0123_4567_89ab_cdef_0000_0000_ffff_ffff;
    assert_eq!(
        load(Field::Xxreg0, value, u128::MAX),
        "load:0xffffffff->NXM_NX_XXREG0[0..63],load:0x123456789abcdef->NXM_NX_XXREG0[64..127]"
    );
    assert_eq!(load(Field::Reg0, 0x500, 0xf00), "load:0x5->NXM_NX_REG0[8..11]");
    assert_eq!(load(Field::Reg31, 0x500, 0xf00), "load:0x5->NXOXM_ET_REG31[8..11]");
    assert_eq!(
        load(Field::Xxreg7, value, u128::MAX),
        "load:0xffffffff->NXOXM_ET_XXREG7[0..63],load:0x123456789abcdef->NXOXM_ET_XXREG7[64..127]"
    );
}

#[test]
fn nothing_is_drop() {
    for text in ["", "drop", " , ", "DROP"] {
        assert_eq!(parse_actions(text, Version::V10, &numbers), Ok(vec![]), "{text}");
    }
    assert_eq!(format_actions(&[], &names), "drop");
}

#[test]
fn a_whole_flow() {
    let text = "table=3, priority=10,cookie=0x1/0xff,idle_timeout=5,hard_timeout=6,importance=7,\
                send_flow_rem,in_port=p1,tcp,tp_dst=80 actions=output:2,goto_table:4";
    let flow = parse_flow(text, Version::V14, &numbers).unwrap();
    let mut want = Match::ANY;
    want.set(Field::EthType, 0x0800);
    want.set(Field::IpProto, 6);
    want.set(Field::InPortOxm, 1);
    want.set(Field::TcpDst, 80);
    assert_eq!(flow.matching, want);
    assert_eq!((flow.table, flow.priority), (Some(3), 10));
    assert_eq!((flow.cookie, flow.cookie_mask), (Some(1), Some(0xff)));
    assert_eq!((flow.idle_timeout, flow.hard_timeout, flow.importance), (5, 6, 7));
    assert!(flow.send_flow_removed && !flow.check_overlap);
    assert_eq!(format_actions(&flow.actions.unwrap(), &names), "output:2,goto_table:4");
}

#[test]
fn what_dump_flows_prints_is_read() {
    let text = " cookie=0x0, duration=3.2s, table=0, n_packets=5, n_bytes=490, idle_age=1, \
                priority=1,icmp,in_port=1,vlan_tci=0x0000/0x1fff actions=LOCAL";
    let flow = parse_flow(text, Version::V10, &numbers).unwrap();
    assert_eq!(flow.priority, 1);
    assert_eq!(
        flow::text::format_match(&flow.matching, &names),
        "icmp,in_port=p1,vlan_tci=0x0000/0x1fff"
    );
    assert_eq!(flow.actions.unwrap().len(), 1);
}

#[test]
fn flows_that_are_none() {
    for (text, want) in [
        ("foo=1,actions=drop", "unknown field foo"),
        ("priority=70000,actions=drop", "invalid priority \"70000\""),
        ("table=256,actions=drop", "unknown table \"256\""),
        ("tcp_dst=80,actions=drop", "prerequisites not met for setting tcp_dst"),
        ("action", "must specify an action"),
        ("out_port=foo", "foo is not a valid OpenFlow port"),
    ] {
        let error = parse_flow(text, Version::V13, &numbers).unwrap_err();
        assert_eq!(error.to_string(), want, "{text}");
    }
    assert_eq!(parse_flow("ip", Version::V13, &numbers).unwrap().actions, None);
    let out_port = parse_flow("out_port=LOCAL", Version::V13, &numbers).unwrap().out_port;
    assert_eq!(out_port, Some(PortNo::LOCAL));
}

#[test]
fn nesting_is_bounded() {
    let deep = "clone(".repeat(10_000);
    let error = parse_actions(&deep, Version::V13, &numbers).unwrap_err();
    assert_eq!(error.to_string(), "actions nested too deeply");
}

proptest! {
    #[test]
    fn any_text_gives_a_result(text in ".{0,80}") {
        let _ = parse_actions(&text, Version::V13, &numbers);
        let _ = parse_flow(&text, Version::V10, &numbers);
    }

    #[test]
    fn cut_texts_give_a_result(row in 0usize..10_000, cut in 0usize..200, with in ".{0,3}") {
        let rows: Vec<&str> = include_str!("../../tests/vectors/actions.txt").lines().collect();
        let text = rows[row % rows.len()].split(" | ").nth(2).unwrap_or("");
        let head: String = text.chars().take(cut).collect();
        let _ = parse_actions(&(head + &with), Version::V13, &numbers);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The 32 registers, which exist in bridges only. Open vSwitch has those from `reg16` on since 3.7, so
//! these tests stand where others compare with Debian's version.

use super::*;
use flow::{Key, REGISTERS};
use packet::Packet;

/// No register is in the megaflow, nor is one in the key of a datapath.
fn dp(w: &World, k: &Key) -> String {
    let t = w.translate(k);
    assert_eq!(t.mask.0.regs, Key::ZERO.regs);
    datapath::text::format_plain(&t.actions)
}

#[test]
fn every_register_carries_a_value() {
    for n in 0..REGISTERS {
        let mut w = World::new(4);
        w.rule("ip", actions(&format!("set_field:{n}/0xff->reg{n},resubmit(,1)")));
        w.rule(&format!("table=1,reg{n}={n}"), [out(2)]);
        w.rule("table=1,priority=1", [out(3)]);
        assert_eq!(dp(&w, &key(TCP)), "2", "reg{n}");
        w.rule(&format!("table=1,priority=40000,reg{n}=0x100/0x100"), [out(4)]);
        assert_eq!(dp(&w, &key(TCP)), "2", "reg{n}");
    }
}

#[test]
fn wider_registers_are_views() {
    let mut w = World::new(4);
    w.rule(
        "ip",
        actions(
            "set_field:0x100000002->xreg8,set_field:0x300000004->xreg15,\
             set_field:0x5->xxreg5,resubmit(,1)",
        ),
    );
    w.rule("table=1,reg16=1,reg17=2,reg30=3,reg31=4,reg20=0,reg23=5", [out(2)]);
    w.rule("table=1,priority=1", [out(3)]);
    assert_eq!(dp(&w, &key(TCP)), "2");
    w.rule("table=1,priority=40000,xxreg7=0x300000004,xreg11=5", [out(4)]);
    assert_eq!(dp(&w, &key(TCP)), "4");
}

#[test]
fn registers_move_load_and_stack() {
    let mut w = World::new(4);
    w.rule(
        "ip",
        actions(
            "load:0x1234->NXOXM_ET_REG16[0..15],move:NXOXM_ET_REG16[0..7]->NXOXM_ET_REG31[24..31],\
             push:NXOXM_ET_REG16[],load:0->NXOXM_ET_REG16[],pop:NXOXM_ET_XXREG6[96..127],\
             move:NXM_OF_IN_PORT[]->OXM_OF_PKT_REG9[0..15],resubmit(,1)",
        ),
    );
    w.rule(
        "table=1,reg16=0,reg31=0x34000000,reg24=0x1234,reg19=1",
        actions("load:2->NXOXM_ET_REG20[],output:NXOXM_ET_REG20[]"),
    );
    assert_eq!(dp(&w, &key(TCP)), "2");
}

#[test]
fn registers_come_back_after_recirculation() {
    let mut w = World::new(4);
    w.rule(
        "ip",
        actions("set_field:7->reg16,set_field:8->reg31,ct(zone=NXOXM_ET_REG16[0..15],table=1)"),
    );
    w.rule("table=1,reg16=7,reg31=8,xreg9=0", [out(2)]);
    w.rule("table=1,priority=1", [out(3)]);
    assert_eq!(dp(&w, &key(TCP)), "ct(zone=7),recirc(0x1)");
    let mut back = key(TCP);
    back.recirc_id.set(1);
    back.ct_state = flow::ct_state::TRK;
    assert_eq!(dp(&w, &back), "2");
    // Another value leads to another id.
    w.rule("priority=40000,udp", actions("set_field:9->reg31,ct(zone=7,table=1)"));
    assert_eq!(dp(&w, &key(&TCP.replace("tcp", "udp"))), "ct(zone=7),recirc(0x2)");
}

#[test]
fn a_packet_in_has_the_registers() {
    let mut w = World::new(3);
    w.rule("ip", actions("set_field:5->reg16,set_field:6->xxreg7,controller(reason=action),2"));
    let t = w.translate(&key(TCP));
    let [datapath::Action::Userspace(userdata), _] = t.actions.as_slice() else {
        panic!("{:?}", t.actions)
    };
    let packet = Packet::from_slice(&[7; 60]);
    let sent = controller_packet_in(&key(TCP), userdata, &packet, &w.recirc).unwrap();
    assert_eq!(
        flow::text::format_match(&sent.metadata, &flow::text::no_names),
        "reg16=0x5,reg31=0x6,in_port=1"
    );
}

#[test]
fn learned_flows_have_the_registers() {
    let mut w = World::new(3);
    w.rule(
        "ip",
        actions(
            "set_field:9->reg17,learn(table=5,NXOXM_ET_REG17[],load:NXM_OF_IN_PORT[]->NXOXM_ET_REG31[0..15]),\
             output:2",
        ),
    );
    let t = w.translate(&key(TCP));
    let flow = t.effects.iter().find_map(|e| match e {
        Effect::LearnFlow { flow, .. } => Some(flow),
        _ => None,
    });
    let flow = flow.unwrap();
    assert_eq!(flow::text::format_match(&flow.matching, &flow::text::no_names), "reg17=0x9");
    assert!(matches!(
        flow.actions.as_ref(),
        [Action::SetField { field: Field::Reg31, value: 1, mask: 0xffff, .. }]
    ));
}

#[test]
fn the_next_bridge_reads_zeros() {
    let mut w = World::new(3);
    let br1 = w.add_bridge(3);
    w.patch((BridgeIndex(0), 3), (br1, 3));
    w.rule("", actions("set_field:5->reg31,output:3"));
    w.rule_on(br1, "priority=2,reg31=5", [out(1)]);
    w.rule_on(br1, "priority=1,reg31=0", [out(2)]);
    assert_eq!(dp(&w, &key(TCP)), "102");
}

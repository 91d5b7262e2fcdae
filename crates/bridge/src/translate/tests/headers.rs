// SPDX-License-Identifier: Apache-2.0
//! Push and pop of VLAN headers and MPLS labels.

use super::*;

#[test]
fn vlan_headers() {
    let mut w = World::new(5);
    let push = |v: u16| Action::SetVlanVid { vid: v, push_if_missing: true };
    w.rule("", [push(7), out(2), Action::SetVlanPcp { pcp: 3, push_if_missing: true }, out(3)]);
    assert_eq!(
        w.dp("in_port=1,dl_type=0x1234"),
        "push_vlan(vid=7,pcp=0),2,pop_vlan,push_vlan(vid=7,pcp=3),3"
    );
    assert_eq!(
        w.dp("in_port=1,dl_vlan=5,dl_type=0x1234"),
        "pop_vlan,push_vlan(vid=7,pcp=0),2,pop_vlan,push_vlan(vid=7,pcp=3),3"
    );
    w.clear_rules();
    w.rule("", [POP_VLAN, out(2), POP_VLAN, out(3)]);
    assert_eq!(w.dp("in_port=1,dl_type=0x1234"), "2,3");
    assert_eq!(w.dp("in_port=1,dl_vlan=5,dl_type=0x1234"), "pop_vlan,2,3");
    w.clear_rules();
    w.rule(
        "",
        [
            Action::PushVlan { tpid: 0x88a8 },
            set(Field::VlanVid, 4103),
            out(2),
            POP_VLAN,
            POP_VLAN,
            out(3),
        ],
    );
    assert_eq!(
        w.dp("in_port=1,dl_vlan=5,dl_type=0x1234"),
        "push_vlan(tpid=0x88a8,vid=7,pcp=0),2,pop_vlan,pop_vlan,3"
    );
    // A third header: the innermost of two is payload then.
    let mut two = key("in_port=1,dl_vlan=5,dl_type=0x1234");
    two.vlans[1] = flow::Vlan { tpid: 0x8100.into(), tci: 0x1006.into() };
    let text = |k: &Key| datapath::text::format_plain(&w.translate(k).actions);
    assert_eq!(
        text(&two),
        "push_vlan(tpid=0x88a8,vid=0,pcp=0),pop_vlan,push_vlan(tpid=0x88a8,vid=7,pcp=0),2,pop_vlan,pop_vlan,3"
    );
}

#[test]
fn a_third_vlan_header_is_undone_with_those_above_it() {
    let push = Action::PushVlan { tpid: 0x8100 };
    let mut w = World::new(3);
    w.rule("", [Action::Clone(vec![push.clone(), push, out(2)]), out(3)]);
    assert_eq!(
        w.dp("in_port=1,dl_vlan=5,dl_type=0x1234"),
        "clone(push_vlan(vid=0,pcp=0),push_vlan(vid=0,pcp=0),2),3"
    );
}

#[test]
fn what_is_below_the_last_label_may_be_called_mpls() {
    let mut w = World::new(2);
    w.rule("mpls", [Action::PopMpls { ethertype: 0x8847 }, out(2)]);
    let t = w.translate(&key("in_port=1,mpls,mpls_label=5,mpls_ttl=3,mpls_bos=1"));
    assert_eq!(datapath::text::format_plain(&t.actions), "pop_mpls(eth_type=0x8847),2");
}

#[test]
fn a_stack_without_labels() {
    let pop = |ethertype| Action::PopMpls { ethertype };
    let label = "in_port=1,mpls,mpls_label=5,mpls_ttl=3,mpls_bos=1";
    let mut w = World::new(5);
    w.rule("mpls", [Action::Clone(vec![pop(0x8848), out(2)]), out(3)]);
    assert_eq!(
        w.dp(label),
        "pop_mpls(eth_type=0x8848),2,push_mpls(label=5,tc=0,ttl=3,bos=1,eth_type=0x8847),3"
    );
    // There is nothing more to take off; what is put on is the only one.
    let push = Action::PushMpls { ethertype: 0x8848 };
    w.rule("mpls", [pop(0x8847), pop(0x800), out(2), push.clone(), out(3)]);
    assert_eq!(
        w.dp(label),
        "pop_mpls(eth_type=0x8847),2,push_mpls(label=0,tc=0,ttl=64,bos=1,eth_type=0x8848),3"
    );
    // A packet that had no label gets its type back.
    w.rule("ip", [Action::Clone(vec![push, out(2), pop(0x8847), out(3)]), out(4)]);
    assert_eq!(
        w.dp(TCP),
        "push_mpls(label=0,tc=0,ttl=64,bos=1,eth_type=0x8848),2,pop_mpls(eth_type=0x8847),3,\
         push_mpls(label=0,tc=0,ttl=0,bos=1,eth_type=0x8847),pop_mpls(eth_type=0x800),4"
    );
}

#[test]
fn mpls_labels() {
    let mut w = World::new(5);
    w.rule(
        "",
        [
            Action::PushMpls { ethertype: 0x8847 },
            Action::SetMplsLabel(10),
            out(2),
            Action::PopMpls { ethertype: 0x800 },
            out(3),
            Action::DecTtl { controllers: vec![0] },
            out(4),
        ],
    );
    assert_eq!(
        w.dp(TCP),
        "push_mpls(label=10,tc=0,ttl=64,bos=1,eth_type=0x8847),2,pop_mpls(eth_type=0x800),3,recirc(0x1)"
    );
    let t = w.translate(&key(TCP));
    let mut back = key(TCP);
    back.recirc_id.set(t.recirc_ids[0].id());
    assert_eq!(datapath::text::format_plain(&w.translate(&back).actions), "set(ipv4(ttl=63)),4");

    w.clear_rules();
    let label = "in_port=1,mpls,mpls_label=5,mpls_ttl=3,mpls_bos=1";
    w.rule(
        "mpls",
        [
            set(Field::MplsLabel, 7),
            out(2),
            Action::DecMplsTtl,
            out(3),
            Action::PushMpls { ethertype: 0x8847 },
            set(Field::MplsTc, 3),
            out(4),
        ],
    );
    assert_eq!(
        w.dp(label),
        "set(mpls(label=7,tc=0,ttl=3,bos=1)),2,set(mpls(label=7,tc=0,ttl=2,bos=1)),3,push_mpls(label=7,tc=3,ttl=2,bos=0,eth_type=0x8847),4"
    );
    w.clear_rules();
    w.rule("mpls", [Action::DecMplsTtl, out(3)]);
    let t = w.translate(&key("in_port=1,mpls,mpls_label=5,mpls_ttl=1,mpls_bos=1"));
    assert!(matches!(
        t.actions.as_slice(),
        [datapath::Action::Userspace(Userdata::Controller { reason: 2, .. })]
    ));
}

#[test]
fn a_frozen_pipeline_keeps_all_levels() {
    let mut w = World::new(5);
    w.rule("mpls", [set(Field::Reg1, 5), resubmit(1), out(4)]);
    w.rule(
        "table=1,mpls",
        [Action::StackPush(sub("reg1")), Action::PopMpls { ethertype: 0x800 }, resubmit(3), out(2)],
    );
    w.rule(
        "table=3,ip,reg1=5",
        [
            set(Field::Reg1, 0),
            Action::StackPop(sub("reg2")),
            Action::OutputReg { src: sub("reg2"), max_len: 0 },
        ],
    );
    let t = w.translate(&key("in_port=1,mpls,mpls_label=5,mpls_ttl=3,mpls_bos=1"));
    assert_eq!(datapath::text::format_plain(&t.actions), "pop_mpls(eth_type=0x800),recirc(0x1)");
    let mut back = key(TCP);
    back.recirc_id.set(1);
    let t = w.translate(&back);
    assert_eq!(datapath::text::format_plain(&t.actions), "5,2,4");
    // Without a state the packet is dropped, and the megaflow is its id's only.
    back.recirc_id.set(77);
    let t = w.translate(&back);
    assert_eq!(t.error, Some(TranslationError::NoRecirculationContext));
    assert_eq!(t.mask.0.recirc_id.get(), u32::MAX);
    assert!(locate(&w.snapshot, &back, &w.recirc).is_err());
}

/// The rules of the other bridge may match fields below the labels.
#[test]
fn a_popped_stack_and_a_patch_port() {
    let mut w = World::new(3);
    let br1 = w.add_bridge(3);
    w.patch((BridgeIndex(0), 3), (br1, 3));
    w.rule("mpls", [Action::PopMpls { ethertype: 0x800 }, out(3), out(2)]);
    w.rule_on(br1, "ip,nw_dst=0.0.0.0", [out(1)]);
    w.rule_on(br1, "ip,nw_dst=10.0.0.2", [out(2)]);
    let t = w.translate(&key("in_port=1,mpls,mpls_label=5,mpls_ttl=3,mpls_bos=1"));
    let text = datapath::text::format_plain(&t.actions);
    assert_eq!(text, "pop_mpls(eth_type=0x800),recirc(0x1),2");
    let mut back = key("in_port=1,ip,nw_dst=10.0.0.2");
    back.recirc_id.set(1);
    let t = w.translate(&back);
    assert_eq!(datapath::text::format_plain(&t.actions), "102");
    // The other bridge's miss is one.
    back.nw_dst = std::net::Ipv4Addr::new(10, 0, 0, 3).to_bits().into();
    let t = w.translate(&back);
    assert!(t.effects.iter().any(|e| matches!(e, Effect::Table { matched: false, .. })));
}

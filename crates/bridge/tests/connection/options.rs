// SPDX-License-Identifier: Apache-2.0
//! The table of tunnel options. The places of options are those of the process, so each test has
//! fields of its own.

use super::*;
use openflow::message::{GroupCommand, TlvMap, TlvTableCommand, TlvTableMod, TlvTableReply};
use openflow::text::parse_actions;

fn map(kind: u8, len: u8, index: u16) -> TlvMap {
    TlvMap { class: 0xffff, kind, len, index }
}

fn modify(command: TlvTableCommand, mappings: &[TlvMap]) -> Body {
    Body::TlvTableMod(TlvTableMod { command, mappings: mappings.to_vec() })
}

fn add(mappings: &[TlvMap]) -> Body {
    modify(TlvTableCommand::Add, mappings)
}

fn delete(mappings: &[TlvMap]) -> Body {
    modify(TlvTableCommand::Delete, mappings)
}

impl Bench {
    fn mappings(&mut self, p: Peer) -> Vec<TlvMap> {
        let Body::TlvTableReply(reply) = self.one(p, Body::TlvTableRequest) else { panic!() };
        let TlvTableReply { max_option_space, max_fields, mappings } = reply;
        assert_eq!((max_option_space, max_fields), (256, 64));
        mappings
    }
}

fn with(matching: &str, actions: &str) -> Body {
    let matching = flow::text::parse_match(matching, &flow::text::no_numbers).unwrap();
    let actions = parse_actions(actions, Version::V13, &flow::text::no_numbers).unwrap();
    Body::FlowMod(Box::new(FlowMod::add(5, matching, &actions)))
}

#[test]
fn mappings_are_added_shown_and_removed() {
    let mut b = Bench::new(0);
    let p = b.connect(Kind::Service, Version::V13);
    assert_eq!(b.mappings(p), []);
    let (first, second) = (map(1, 4, 10), map(2, 8, 11));
    assert!(b.ask(p, 1, add(&[second, first])).is_empty());
    assert_eq!(b.mappings(p), [first, second]);
    for (body, error) in [
        (add(&[map(3, 4, 10)]), OfError::NXTTMFC_ALREADY_MAPPED),
        (add(&[map(3, 4, 12), map(1, 4, 13)]), OfError::NXTTMFC_DUP_ENTRY),
        (add(&[map(3, 124, 12), map(4, 124, 13)]), OfError::NXTTMFC_TABLE_FULL),
        (add(&[map(3, 3, 12)]), OfError::NXTTMFC_BAD_OPT_LEN),
        (add(&[map(3, 4, 64)]), OfError::NXTTMFC_BAD_FIELD_IDX),
    ] {
        assert_eq!(b.error(p, body), error);
        assert_eq!(b.mappings(p), [first, second], "all or nothing");
    }
    // A mapping that is not there can be removed.
    assert!(b.ask(p, 1, delete(&[first, map(9, 4, 12)])).is_empty());
    assert_eq!(b.mappings(p), [second]);
    assert!(b.ask(p, 1, modify(TlvTableCommand::Clear, &[])).is_empty());
    assert_eq!(b.mappings(p), []);
}

#[test]
fn fields_must_be_mapped_and_stay_so_while_they_are_used() {
    let mut b = Bench::new(2);
    let p = b.connect(Kind::Service, Version::V13);
    let used = map(7, 4, 20);
    for body in [
        with("tun_metadata20=1", "drop"),
        with("tun_metadata20", "drop"),
        with("", "set_field:1->tun_metadata20"),
        with("", "move:NXM_NX_REG0[]->NXM_NX_TUN_METADATA20[]"),
        with("", "push:NXM_NX_TUN_METADATA20[]"),
        with("", "learn(table=1,NXM_NX_TUN_METADATA20[],output:NXM_OF_IN_PORT[])"),
        with("", "clone(set_field:1->tun_metadata20,output:1)"),
    ] {
        assert_eq!(b.error(p, body.clone()), OfError::NXFMFC_INVALID_TLV_FIELD, "{body:?}");
        assert!(b.ask(p, 1, add(&[used])).is_empty());
        assert!(b.ask(p, 1, body.clone()).is_empty(), "{body:?}");
        assert_eq!(b.error(p, delete(&[used])), OfError::NXTTMFC_INVALID_TLV_DEL, "{body:?}");
        let clear = modify(TlvTableCommand::Clear, &[]);
        assert_eq!(b.error(p, clear.clone()), OfError::NXTTMFC_INVALID_TLV_DEL);
        assert!(b.ask(p, 1, Body::FlowMod(Box::new(delete_all()))).is_empty());
        assert!(b.ask(p, 1, clear).is_empty());
    }
    let actions =
        parse_actions("set_field:1->tun_metadata20", Version::V13, &flow::text::no_numbers);
    let group = Body::GroupMod(flows::group_mod(GroupCommand::Add, 1, &actions.unwrap()));
    assert_eq!(b.error(p, group.clone()), OfError::NXFMFC_INVALID_TLV_FIELD);
    assert!(b.ask(p, 1, add(&[used])).is_empty());
    assert!(b.ask(p, 1, group).is_empty());
    assert_eq!(b.error(p, delete(&[used])), OfError::NXTTMFC_INVALID_TLV_DEL);
}

#[test]
fn matches_and_sets_have_the_length_of_the_option() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V13);
    assert!(b.ask(p, 1, add(&[map(5, 24, 30), map(6, 8, 31)])).is_empty());
    let matching = "tun_metadata30=0x1122334455667788/0xffffffffffffffff0000000000000000ffffffffffffffff,tun_metadata31=0x99";
    let matching =
        matching.replace("0x1122334455667788/", "0xaabb0000000000000000000000001122334455667788/");
    let set = "set_field:0x112233445566778899aabbccddeeff001122334455667788->tun_metadata30";
    let got = b.ask(p, 1, with(&matching, set));
    assert!(got.is_empty(), "{got:?}");
    let flows = b.flows(p);
    let [found] = &flows[..] else { panic!("{flows:?}") };
    let shown = flow::text::format_match(&found.matching, &flow::text::no_names);
    assert_eq!(
        shown,
        "tun_metadata30=0xaabb0000000000000000000000001122334455667788/0xffffffffffffffff0000000000000000ffffffffffffffff,tun_metadata31=0x99"
    );
    assert_eq!(openflow::text::format_actions(&found.actions, &flow::text::no_names), set);
    // A value that does not fit is none of the field's.
    let wide = flow::tun_metadata::Wide::ones(9);
    let set = Action::SetOption(Box::new(openflow::action::SetOption {
        field: Field::TunMetadata31,
        value: wide,
        mask: wide,
    }));
    let error = b.error(p, Body::FlowMod(Box::new(FlowMod::add(5, Match::ANY, &[set]))));
    assert_eq!(error, OfError::NXFMFC_INVALID_TLV_FIELD);
}

#[test]
fn a_strict_deletion_finds_its_flow_when_another_bridge_has_a_longer_option() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V13);
    assert!(b.ask(p, 1, add(&[map(8, 4, 40)])).is_empty());
    let flow = with("tun_metadata40=5", "drop");
    assert!(b.ask(p, 1, flow.clone()).is_empty());
    let mut of_other_bridge = flow::TlvTable::default();
    let longer = flow::TlvMapping { class: 1, kind: 1, bytes: 8 };
    of_other_bridge.add(40, longer).unwrap();
    let Body::FlowMod(mut deletion) = with("tun_metadata40=5", "drop") else { panic!() };
    deletion.command = openflow::message::FlowModCommand::DeleteStrict;
    assert!(b.ask(p, 1, Body::FlowMod(deletion)).is_empty());
    assert_eq!(b.flows(p).len(), 0);
    // A value that only the other bridge's option holds is none of this one's.
    let error = b.error(p, with("tun_metadata40=0x500000000", "drop"));
    assert_eq!(error, OfError::NXFMFC_INVALID_TLV_FIELD);
}

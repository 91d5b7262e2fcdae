// SPDX-License-Identifier: Apache-2.0
//! The masks of a switch's megaflows.

use slipswitch_tests::harness::Switch;
use std::collections::BTreeMap;

/// Asserts which masks the megaflows have, and how many of each there are.
#[track_caller]
pub fn assert_masks(switch: &Switch, expected: &str) {
    switch.revalidate();
    let mut masks: BTreeMap<String, usize> = BTreeMap::new();
    let flows = switch.megaflows();
    for flow in &flows {
        *masks.entry(mask_of(flow)).or_default() += 1;
    }
    let mut actual = format!("{} megaflows, {} masks\n", flows.len(), masks.len());
    masks.iter().for_each(|(mask, n)| actual += &format!("{n} {mask}\n"));
    let expected: String = expected.lines().map(|l| format!("{}\n", l.trim())).collect();
    assert_eq!(actual.trim(), expected.trim(), "\n{actual}\n{flows:#?}");
}

/// The fields of a megaflow without their values, with the masks of those that are not exact.
/// Fields that every megaflow has are left out.
fn mask_of(flow: &str) -> String {
    let matching = flow.split(", actions:").next().unwrap_or_default();
    let mut out = String::new();
    for piece in matching.split_inclusive(['(', ')', ',']) {
        let (token, end) = piece.split_at(piece.trim_end_matches(['(', ')', ',']).len());
        let (name, value) = match token.split_once('=') {
            Some((name, value)) => (name, value),
            None if end == "(" => (token, ""),
            None => ("", token),
        };
        let mask = value.split_once('/').map(|(_, mask)| format!("/{mask}")).unwrap_or_default();
        out += &format!("{name}{mask}{end}");
    }
    out.replace("recirc_id(),in_port(),packet_type(ns,id),", "").replace("eth_type(),", "")
}

#[test]
fn a_mask_is_what_is_left_without_values() {
    let flow = "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:01),eth_type(0x0800),ipv4(dst=10.0.0.0/255.0.0.0,frag=no),tcp(dst=0x50/0xfff0), actions:2";
    assert_eq!(mask_of(flow), "eth(src),ipv4(dst/255.0.0.0,frag),tcp(dst/0xfff0)");
    let tagged = "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x8100),vlan(vid=5),encap(eth_type(0x0806)), actions:2";
    assert_eq!(mask_of(tagged), "vlan(vid),encap(eth_type())");
}

// SPDX-License-Identifier: Apache-2.0
//! Texts in the syntax of `ovs-ofctl`: matches, flows, actions, subfields.
//!
//! The first byte is the version, the rest text.

use crate::input::Input;
use flow::Field;
use flow::text::{no_names, no_numbers};
use openflow::action::codec::{decode_instructions, encode_instructions};
use openflow::text::{format_actions, parse_actions, parse_flow};
use openflow::{Action, Version};

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let version = input.version();
    let text = String::from_utf8_lossy(input.rest());
    match_text(&text);
    let _ = flow::text::parse_exact_flow(&text, &no_numbers).map(exact_key);
    if let Ok(actions) = parse_actions(&text, version, &no_numbers) {
        action_list(&actions, version);
    }
    if let Ok(flow) = parse_flow(&text, version, &no_numbers) {
        printed_match(&flow.matching);
        action_list(&flow.actions.unwrap_or_default(), version);
    }
    subfield(&text);
}

fn match_text(text: &str) {
    let Ok(m) = flow::text::parse_match(text, &no_numbers) else { return };
    printed_match(&m);
    flow::text::format_megaflow(&m, &no_names);
    flow::text::odp::format(m.key(), m.mask(), Default::default(), &no_names);
}

/// Checks that the text of a match reads back as the same match.
fn printed_match(m: &flow::Match) {
    // A dump shows what a table holds, and a table holds no field without its prerequisites.
    let mut m = *m;
    m.normalize();
    // Texts omit the packet type of Ethernet.
    if m.is_exact(Field::PacketType) && m.value(Field::PacketType) == 0 {
        m.clear(Field::PacketType);
    }
    // As in OVS, texts of these have no masks, other names, or other numbers.
    for field in [
        Field::TunTos,
        Field::TunGbpFlags,
        Field::TunErspanIdx,
        Field::TunErspanVer,
        Field::TunErspanDir,
        Field::TunErspanHwid,
        Field::TunGtpuFlags,
        Field::TunGtpuMsgtype,
    ] {
        m.clear(field);
    }
    let text = flow::text::format_match(&m, &no_names);
    let again = flow::text::parse_match(&text, &no_numbers);
    assert_eq!(again.as_ref(), Ok(&m), "{text}");
}

fn exact_key(key: flow::Key) {
    flow::text::format_key(&key, &no_names);
    flow::compose(&key, &flow::PAYLOAD);
}

/// Checks that the text of actions reads back as actions with the same text; that their bytes decode,
/// and that the decoded actions encode to bytes that decode to the same.
fn action_list(actions: &[Action], version: Version) {
    let text = format_actions(actions, &no_names);
    match parse_actions(&text, version, &no_numbers) {
        Ok(again) => assert_eq!(format_actions(&again, &no_names), text),
        Err(e) => panic!("{text}: {e}"),
    }
    let mut bytes = Vec::new();
    encode_instructions(actions, version, &mut bytes);
    if bytes.len() > usize::from(u16::MAX) {
        return;
    }
    if let Ok(decoded) = decode_instructions(&bytes, version) {
        let mut again = Vec::new();
        encode_instructions(&decoded, version, &mut again);
        assert_eq!(decode_instructions(&again, version).as_ref(), Ok(&decoded), "{text}");
    }
}

fn subfield(text: &str) {
    let _ = flow::Subfield::parse_prefix(text);
    let Ok(part) = text.parse::<flow::Subfield>() else { return };
    let all = u128::MAX >> (128 - u32::from(part.bits));
    let mut key = flow::Key::ZERO;
    part.store(&mut key, u128::MAX);
    assert!(part.load(&key) <= all, "{part}");
    assert_eq!(part.to_string().parse::<flow::Subfield>().as_ref(), Ok(&part));
}

// SPDX-License-Identifier: Apache-2.0
//! The codec and the texts against what Open vSwitch's ovs-ofctl sends and prints; the vectors
//! were recorded from its version 3.1.

use flow::Match;
use flow::text::{format_match, no_names, no_numbers};
use openflow::action::codec::{Encoder, decode_actions, decode_instructions, encode_instructions};
use openflow::action::{CheckContext, check};
use openflow::nxm::{self, Strictness};
use openflow::text::{format_actions, parse_actions, parse_flow};
use openflow::{PortNo, Version};

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn rows(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty())
        .map(|l| l.split(" | ").map(str::trim).collect())
}

fn version(text: &str) -> Version {
    Version::from_wire(text.parse().unwrap()).unwrap()
}

/// Collects what is wrong, so that one run shows all of it.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn same(&mut self, what: &str, got: &str, want: &str) {
        if got != want {
            self.0.push(format!("{what}\n   got {got}\n  want {want}"));
        }
    }
}

impl Drop for Wrong {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.0.is_empty(), "{} wrong:\n{}", self.0.len(), self.0.join("\n"));
        }
    }
}

const ACTIONS: &str = include_str!("vectors/actions.txt");

/// Where ovs-ofctl 3.1 sends what loses part of the text: set-fields of a masked field in
/// OpenFlow 1.0 and 1.1.
fn loses_mask(version: Version, given: &str) -> bool {
    version <= Version::V11 && given.starts_with("set_field") && given.contains('/')
}

#[test]
fn bytes_to_text() {
    let mut wrong = Wrong::default();
    for row in rows(ACTIONS) {
        let [v, _, given, bytes, printed] = row[..] else { panic!("{row:?}") };
        let got = match decode_instructions(&unhex(bytes), version(v)) {
            Ok(actions) => format_actions(&actions, &no_names),
            Err(e) => e.to_string(),
        };
        wrong.same(&format!("{v} {given} {bytes}"), &got, printed);
    }
}

#[test]
fn bytes_to_the_same_bytes() {
    let mut wrong = Wrong::default();
    for row in rows(ACTIONS) {
        let [v, matching, given, bytes, _] = row[..] else { panic!("{row:?}") };
        let v = version(v);
        let Ok(actions) = decode_instructions(&unhex(bytes), v) else { continue };
        let m = parse_flow(matching, v, &no_numbers).unwrap().matching;
        let mut out = Vec::new();
        encode_instructions(&actions, Encoder::for_match(v, &m), &mut out);
        // A load in OpenFlow 1.5 stays one when set-field could not say it.
        if v == Version::V15 && given.starts_with("load") {
            continue;
        }
        wrong.same(&format!("{v} {given}"), &hex(&out), bytes);
    }
}

#[test]
fn text_to_bytes() {
    let mut wrong = Wrong::default();
    for row in rows(ACTIONS) {
        let [v, matching, given, bytes, _] = row[..] else { panic!("{row:?}") };
        let v = version(v);
        if loses_mask(v, given)
            || given.contains("->in_port_oxm")
            || given.contains("->OXM_OF_IN_PORT")
        {
            continue;
        }
        let m = parse_flow(matching, v, &no_numbers).unwrap().matching;
        let got = match parse_actions(given, v, &no_numbers) {
            Ok(actions) => {
                let mut out = Vec::new();
                encode_instructions(&actions, Encoder::for_match(v, &m), &mut out);
                hex(&out)
            }
            Err(e) => e.to_string(),
        };
        wrong.same(&format!("{v} {given}"), &got, bytes);
    }
}

#[test]
fn printed_text_parses_to_the_same() {
    let mut wrong = Wrong::default();
    for row in rows(ACTIONS) {
        let [v, _, _, bytes, printed] = row[..] else { panic!("{row:?}") };
        let v = version(v);
        let Ok(actions) = decode_instructions(&unhex(bytes), v) else { continue };
        let text = format_actions(&actions, &no_names);
        match parse_actions(&text, v, &no_numbers) {
            Ok(back) if back == actions => {}
            // max_len counts for the controller only and is not printed for others
            Ok(back) => wrong.same(printed, &format_actions(&back, &no_names), &text),
            Err(e) => wrong.same(printed, &e.to_string(), &text),
        }
    }
}

#[test]
fn bad_bytes() {
    let mut wrong = Wrong::default();
    for row in rows(include_str!("vectors/wire.txt")) {
        let [kind, v, bytes, want] = row[..] else { panic!("{row:?}") };
        let v = version(v);
        let raw = unhex(bytes);
        let result = match kind {
            "a" => decode_actions(&raw, v),
            _ => decode_instructions(&raw, v),
        };
        let context = CheckContext {
            version: v,
            max_ports: PortNo::MAX,
            table_id: Some(0),
            n_tables: Some(255),
        };
        let got = match result {
            Ok(a) => match check(&a, &Match::ANY, &context) {
                Err(e) if kind == "i" && e.name == "OFPBIC_BAD_TABLE_ID" => e.to_string(),
                _ => format!("actions={}", format_actions(&a, &no_names)),
            },
            Err(e) => e.to_string(),
        };
        wrong.same(&format!("{kind} {v} {bytes}"), &got, want);
    }
}

#[test]
fn bad_texts() {
    let mut wrong = Wrong::default();
    for row in rows(include_str!("vectors/bad_text.txt")) {
        let [given, want] = row[..] else { panic!("{row:?}") };
        let got = match parse_actions(given, Version::V13, &no_numbers) {
            Ok(a) => format_actions(&a, &no_names),
            Err(e) => e.to_string(),
        };
        wrong.same(given, &got, want);
    }
}

#[test]
fn matches() {
    let mut wrong = Wrong::default();
    for row in rows(include_str!("vectors/matches.txt")) {
        let [form, v, given, bytes, printed] = row[..] else { panic!("{row:?}") };
        let v = version(v);
        let raw = unhex(bytes);
        let what = format!("{form} {v} {given} {bytes}");
        let decoded = match form {
            "nxm" => {
                let mut padded = raw.clone();
                padded.resize(raw.len().next_multiple_of(8), 0);
                nxm::decode_nx_match(&padded, raw.len(), Strictness::Strict, true)
                    .map(|(m, _)| m.matching)
            }
            "oxm" => {
                let mut padded = vec![0, 1, 0, (raw.len() + 4) as u8];
                padded.extend_from_slice(&raw);
                padded.resize(padded.len().next_multiple_of(8), 0);
                nxm::decode_match(v, &padded, Strictness::Strict).map(|(m, _)| m)
            }
            _ => nxm::decode_match(v, &raw, Strictness::Strict).map(|(m, _)| m),
        };
        let m = match decoded {
            Ok(m) => m,
            Err(e) => {
                wrong.same(&what, e.name, printed);
                continue;
            }
        };
        wrong.same(&what, &format_match(&m, &no_names), printed);
        let mut out = Vec::new();
        match form {
            "nxm" => {
                let len = nxm::encode_nx_match(&m, 0, 0, &mut out);
                out.truncate(len);
            }
            "oxm" => {
                nxm::encode_match(v, &m, &mut out);
                out = out[4..4 + raw.len().min(out.len() - 4)].to_vec();
            }
            _ => nxm::encode_match(v, &m, &mut out),
        }
        wrong.same(&format!("{what} again"), &hex(&out), bytes);
    }
}

#[test]
fn oxm_lists() {
    let mut wrong = Wrong::default();
    for row in rows(include_str!("vectors/oxm.txt")) {
        let [v, bytes, want] = row[..] else { panic!("{row:?}") };
        let raw = unhex(bytes);
        let mut padded = vec![0, 1, 0, (raw.len() + 4) as u8];
        padded.extend_from_slice(&raw);
        padded.resize(padded.len().next_multiple_of(8), 0);
        let got = match nxm::decode_match(version(v), &padded, Strictness::Strict) {
            Ok((m, len)) => {
                assert_eq!(len, padded.len());
                format!("match={}", format_match(&m, &no_names)).trim().to_string()
            }
            Err(e) => e.to_string(),
        };
        wrong.same(&format!("{v} {bytes}"), &got, want);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Messages that Open vSwitch 3.1's switch sent (`replies.txt`: version, name, bytes), and
//! requests with the errors that it answered (`requests.txt`: version, name, bytes, "ok" or
//! the body of OFPT_ERROR), and what ovs-ofctl 3.1 and the switch said to each other
//! (`ofctl.txt`: version, "request" or "reply", bytes).

use super::*;
use crate::hex::{hex, unhex};

pub(super) const REPLIES: &str = include_str!("replies.txt");
pub(super) const REQUESTS: &str = include_str!("requests.txt");
pub(super) const OFCTL: &str = include_str!("ofctl.txt");

pub(super) struct Line {
    pub(super) protocol: Protocol,
    pub(super) name: &'static str,
    pub(super) bytes: Vec<u8>,
    pub(super) error: Option<Vec<u8>>,
}

pub(super) fn lines(text: &'static str) -> impl Iterator<Item = Line> {
    text.lines().map(|line| {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("each line has three words");
        let version =
            word().parse().ok().and_then(Version::from_wire).expect("versions are 1 to 6");
        let name = word();
        let bytes = unhex(word());
        let error = words.next().filter(|w| *w != "ok").map(unhex);
        let mut protocol = Protocol::new(version);
        if name == "async1" || name == "async2" {
            protocol.flow_format = FlowFormat::Nxm;
            protocol.packet_in_format =
                if name == "async1" { PacketInFormat::Nxt } else { PacketInFormat::Nxt2 };
        }
        Line { protocol, name, bytes, error }
    })
}

#[test]
fn replies_decode_and_encode_to_the_same_bytes() {
    let mut bad = Vec::new();
    for line in lines(REPLIES) {
        let what = format!("{} {}", line.protocol.version, line.name);
        let mut protocol = line.protocol;
        if let Some(v) = Version::from_wire(line.bytes[0]) {
            protocol.version = v;
        }
        match Message::decode(&line.bytes, &protocol) {
            Err(e) => bad.push(format!("{what}: {e}")),
            Ok(message) => match message.encode(&protocol) {
                Ok(back) if back == line.bytes => {}
                Ok(back) => {
                    bad.push(format!("{what}:\n  was {}\n  is  {}", hex(&line.bytes), hex(&back)))
                }
                Err(e) => bad.push(format!("{what}: {e}")),
            },
        }
    }
    assert!(bad.is_empty(), "{} failed:\n{}", bad.len(), bad.join("\n"));
}

/// Where we mean to differ, or where not the decoder but the switch answers.
const NOT_AS_OVS: &[&str] = &[
    // A message of the wrong direction is the switch's to refuse.
    "pin-to-switch",
    // OVS 3.1 answers with a broken error message (version 1.0, transaction 0).
    "fm-nx-flags0",
    "fm-nx-zeros",
    "fm-flags0",
    "fm-cmd9",
    // OVS waits a second for the rest, then reports that it did not come.
    "more",
    // OVS ignores unknown flags (and finds another mistake in this one).
    "meter-bad-flags2",
    // OVS answers with uninitialised numbers.
    "bundle-bad-type",
];

#[test]
fn requests_get_the_errors_that_ovs_answers() {
    let mut bad = Vec::new();
    for line in lines(REQUESTS) {
        if NOT_AS_OVS.contains(&line.name) {
            continue;
        }
        let what = format!("{} {}", line.protocol.version, line.name);
        let is = Message::decode(&line.bytes, &line.protocol);
        match (&is, &line.error) {
            (Ok(_), None) => {}
            (Err(e), Some(error)) => {
                let reply = e.reply().encode(&line.protocol).expect("errors can be encoded");
                // OVS echoes more of an assembled multipart request than 64 bytes.
                if !error.starts_with(&reply[8..]) {
                    bad.push(format!("{what}: {e}: {} not {}", hex(&reply[8..]), hex(error)));
                }
            }
            (Ok(_), Some(error)) => bad.push(format!("{what}: good, not {}", hex(error))),
            (Err(e), None) => bad.push(format!("{what}: {e}, not good")),
        }
    }
    assert!(bad.is_empty(), "{} failed:\n{}", bad.len(), bad.join("\n"));
}

/// Every state of a connection of this version.
fn protocols(version: Version) -> impl Iterator<Item = Protocol> {
    let formats = [PacketInFormat::Standard, PacketInFormat::Nxt, PacketInFormat::Nxt2];
    formats.into_iter().flat_map(move |packet_in_format| {
        [FlowFormat::OpenFlow10, FlowFormat::Nxm].into_iter().flat_map(move |flow_format| {
            [true, false].into_iter().map(move |flow_mod_table_id| Protocol {
                version,
                flow_format,
                flow_mod_table_id,
                packet_in_format,
            })
        })
    })
}

#[test]
fn what_ovs_ofctl_sends_decodes_and_encodes_to_the_same_bytes() {
    let mut bad = Vec::new();
    for line in lines(OFCTL) {
        let version = line.protocol.version;
        let what = format!("{version} {} {}", line.name, hex(&line.bytes));
        let mut tries = Vec::new();
        let same = protocols(version).any(|protocol| {
            let back = Message::decode(&line.bytes, &protocol)
                .map_err(|e| e.to_string())
                .and_then(|m| m.encode(&protocol).map_err(|e| e.to_string()));
            let same = back.as_ref() == Ok(&line.bytes);
            tries.push(back.map(|b| hex(&b)));
            same
        });
        if !same {
            tries.dedup();
            bad.push(format!("{what}\n    {tries:?}"));
        }
    }
    assert!(bad.is_empty(), "{} failed:\n{}", bad.len(), bad.join("\n"));
}

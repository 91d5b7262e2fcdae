// SPDX-License-Identifier: Apache-2.0
//! Messages of every version.
//!
//! The first byte says what the connection has agreed on; then comes one message, whose second
//! byte is made its version's and whose length is made true.

use crate::difference::same;
use crate::input::{Input, with_true_length};
use flow::Field;
use flow::text::{no_names, no_numbers};
use openflow::action::{CheckContext, check};
use openflow::frame::{self, Frames};
use openflow::message::{
    Body, ErrorCode, FlowFormat, Message, MultipartReply, PacketInFormat, Protocol, Versions,
};
use openflow::{Action, OfError, PortNo, Version};
use std::sync::Arc;

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let settings = input.byte();
    let raw = input.rest();
    stream(raw);
    let mut bytes = with_true_length(raw);
    let Some(protocol) = protocol(&mut bytes, settings) else { return };
    match Message::decode(&bytes, &protocol) {
        Ok(message) => written_again(&message, &protocol, &bytes),
        Err(error) => {
            assert!(bytes.starts_with(&error.data), "an error holds the start of its message");
            reads_back(&error.reply(), error.error, &protocol);
        }
    }
}

/// Cutting a stream gives the stream, in whatever portions it came.
fn stream(bytes: &[u8]) {
    let mut frames = Frames::new();
    let mut cut = Vec::new();
    for part in bytes.chunks(37) {
        frames.push(part);
        loop {
            match frames.next_message() {
                Ok(Some(message)) => cut.extend_from_slice(message),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    assert_eq!(cut, bytes[..bytes.len() - frames.pending()]);
    frame::negotiate(Versions::KNOWN, bytes);
}

fn protocol(bytes: &mut [u8], settings: u8) -> Option<Protocol> {
    let version =
        Version::from_wire(*bytes.first()?).unwrap_or(Version::ALL[usize::from(settings) % 6]);
    let mut protocol = Protocol::new(version);
    protocol.flow_mod_table_id = settings & 1 == 1;
    if settings & 2 != 0 {
        protocol.flow_format = FlowFormat::Nxm;
    }
    if settings & 4 != 0 {
        protocol.packet_in_format = PacketInFormat::Nxt2;
    }
    Some(protocol)
}

/// Checks that a decoded message can be encoded, and that the bytes decode to the same message.
fn written_again(message: &Message, protocol: &Protocol, bytes: &[u8]) {
    texts(message, protocol);
    let written = match message.encode(protocol) {
        Ok(written) => written,
        Err(error) => {
            assert!(may_be_unwritable(message, protocol), "{error}: {message:?}");
            return;
        }
    };
    let parts: Vec<&[u8]> = frame::split(&written).collect();
    assert_eq!(parts.concat(), written, "whole messages only");
    // Replies are cut where they are too long, and what says the same may take more room.
    let [one] = parts[..] else {
        assert!(matches!(message.body, Body::MultipartReply { .. }), "{message:?}");
        return;
    };
    assert!(one.len() <= usize::from(u16::MAX));
    if contradicts_itself(message) {
        return;
    }
    let again = match Message::decode(one, protocol) {
        Ok(again) => again,
        Err(error) => panic!("{error}: {message:?}\n of {bytes:02x?}\n as {one:02x?}"),
    };
    assert_eq!(again.xid, message.xid);
    let twice = again.encode(protocol).expect("what was written can be written again");
    assert_eq!(twice, written, "{message:?}\nthen {again:?}");
    // In OpenFlow 1.0 the connection's settings choose between forms, and only the same form says
    // the same.
    let same_form = one.get(1) == bytes.get(1);
    if same_form && is_for_switches(&message.body) {
        let seen = || {
            format!(
                "of {bytes:02x?}
 as {written:02x?}"
            )
        };
        same(&meant(&again), &meant(message), &seen);
    }
}

/// Forms that are read but never written.
fn may_be_unwritable(_message: &Message, _protocol: &Protocol) -> bool {
    false
}

/// Whether a message violates the specification, or is decoded for the log only.
fn contradicts_itself(message: &Message) -> bool {
    match &message.body {
        Body::Hello(hello) => hello.versions.newest().is_none(),
        Body::PacketIn(pin) => pin.data.is_empty() || (pin.total_len as usize) < pin.data.len(),
        Body::Error(error) => matches!(error.error, ErrorCode::Unknown { vendor: 0, .. }),
        // Of OpenFlow 1.0 the numbers of actions are read as they are there.
        Body::MultipartReply { reply: MultipartReply::GroupFeatures(_), .. } => true,
        _ => false,
    }
}

/// Whether a message is for switches. Such a message must not change on the way. In messages from
/// switches, names may be cut, and a number that a version lacks may become the nearest one.
fn is_for_switches(body: &Body) -> bool {
    matches!(
        body,
        Body::FlowMod(_)
            | Body::GroupMod(_)
            | Body::MeterMod(_)
            | Body::PortMod(_)
            | Body::TableMod(_)
            | Body::PacketOut(_)
            | Body::BundleControl(_)
            | Body::BundleAdd(_)
            | Body::RoleRequest(_)
            | Body::SetAsync(_)
            | Body::SetConfig(_)
            | Body::TlvTableMod(_)
            | Body::CtFlush(_)
            | Body::QueueGetConfigRequest { .. }
            | Body::MultipartRequest(_)
            | Body::FlowMonitorCancel(_)
    )
}

/// "No VLAN header" is a tag's whole word in matches of fixed size, and 13 bits of it in lists.
fn without_vlan(m: &mut flow::Match) {
    let (tci, mask) = (m.value(Field::VlanTci), m.mask_of(Field::VlanTci));
    let presence = u128::from(flow::VLAN_CFI);
    if mask & presence != 0 && tci & presence == 0 {
        m.set_masked(Field::VlanTci, tci, presence);
    }
}

/// The message without what has several spellings: old actions are written as new ones, and a
/// bundled message is kept as it came, too.
fn meant(message: &Message) -> Message {
    let mut message = message.clone();
    match &mut message.body {
        Body::FlowMod(fm) => {
            fm.actions = Arc::default();
            without_vlan(&mut fm.matching);
        }
        Body::PacketOut(po) => po.actions = Arc::default(),
        Body::GroupMod(gm) => gm.buckets.iter_mut().for_each(|b| b.actions = Arc::default()),
        Body::BundleAdd(add) => {
            add.raw.clear();
            add.message = meant(&add.message);
        }
        _ => {}
    }
    message
}

/// An error reply is a message of the version, and says what it was about.
fn reads_back(reply: &Message, error: OfError, protocol: &Protocol) {
    let written = reply.encode(protocol).expect("every error can be encoded");
    let Ok(Message { xid, body: Body::Error(read) }) = Message::decode(&written, protocol) else {
        panic!("an error reply does not read back: {written:02x?}")
    };
    assert_eq!(xid, reply.xid);
    let expected =
        if error.is_encodable(protocol.version) { error } else { OfError::NXBRC_UNENCODABLE_ERROR };
    let ErrorCode::Known(read) = read.error else { panic!("{error} reads as {read:?}") };
    // Two errors may have one place.
    assert_eq!(read.encode(protocol.version), expected.encode(protocol.version));
}

/// Makes the texts for dumps and logs.
fn texts(message: &Message, protocol: &Protocol) {
    match &message.body {
        Body::FlowMod(fm) => {
            shown(&fm.actions, protocol.version);
            matches_read_back(&fm.matching);
        }
        Body::PacketOut(po) => shown(&po.actions, protocol.version),
        Body::FlowRemoved(fr) => matches_read_back(&fr.matching),
        Body::GroupMod(gm) => {
            for bucket in &gm.buckets {
                shown(&bucket.actions, protocol.version);
            }
        }
        Body::MultipartReply { reply: MultipartReply::Flow { flows, .. }, .. } => {
            for flow in flows {
                shown(&flow.actions, protocol.version);
                matches_read_back(&flow.matching);
            }
        }
        _ => {}
    }
}

fn shown(actions: &[Action], version: Version) {
    let context =
        CheckContext { version, max_ports: PortNo::MAX, table_id: Some(0), n_tables: Some(255) };
    let _ = check(actions, &flow::Match::ANY, &context); // inconsistent ones are refused here
    openflow::text::format_actions(actions, &no_names);
}

fn matches_read_back(m: &flow::Match) {
    let text = flow::text::format_match(m, &no_names);
    let _ = flow::text::parse_match(&text, &no_numbers);
}

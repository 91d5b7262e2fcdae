// SPDX-License-Identifier: Apache-2.0
//! Recorded OpenFlow messages.

use super::text::CT_ACTIONS;
use crate::pack::unhex;
use flow::text::no_numbers;
use openflow::Version;
use openflow::message::{
    Body, BundleAdd, BundleControl, BundleControlKind, BundleFlags, FlowMod, Message, Protocol,
};
use openflow::text::parse_actions;
use openflow::{Action, PortNo};

const RECORDED: [&str; 4] = [
    include_str!("../../../../crates/openflow/src/message/codec/tests/requests.txt"),
    include_str!("../../../../crates/openflow/src/message/codec/tests/replies.txt"),
    include_str!("../../../../crates/openflow/src/message/codec/tests/ofctl.txt"),
    include_str!("../../../../crates/openflow/src/message/codec/tests/printed.txt"),
];
/// Longer messages are left out: they are lists of what shorter ones have once.
const LONGEST: usize = 1024;

/// Messages that ovs-ofctl and the switch sent, in all versions.
pub fn recorded() -> impl Iterator<Item = Vec<u8>> {
    let lines = RECORDED.iter().flat_map(|text| text.lines()).filter(|l| !l.starts_with('#'));
    let bytes = lines.filter_map(|l| unhex(l.split(' ').nth(2)?));
    bytes.filter(|b| (8..=LONGEST).contains(&b.len()))
}

/// Flow mods with actions on connections, in all versions.
fn of_connections() -> impl Iterator<Item = Vec<u8>> {
    let encoded = |(version, text): (Version, &str)| {
        let actions = parse_actions(text, version, &no_numbers).expect("an action on connections");
        let fm = FlowMod::add(5, flow::Match::ANY, &actions);
        let message = Message::new(5, Body::FlowMod(Box::new(fm)));
        message.encode(&Protocol::new(version)).expect("every version has it")
    };
    let versions = Version::ALL.into_iter();
    versions.flat_map(|version| CT_ACTIONS.iter().map(move |text| (version, *text))).map(encoded)
}

/// Seeds of `openflow`.
pub fn messages() -> Vec<Vec<u8>> {
    recorded().chain(of_connections()).map(|m| [vec![0], m].concat()).collect()
}

/// Seeds of `session`: recorded messages of one version, some at a time, and bundles.
pub fn sessions() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (n, version) in (0..).zip(Version::ALL) {
        let of_version = recorded().filter(|m| m.first() == Some(&version.wire()));
        let steps: Vec<Vec<u8>> = of_version.map(|m| step(&m)).collect();
        for some in steps.chunks(6) {
            seeds.push([vec![n, 7], some.concat()].concat());
        }
        seeds.extend(bundles(version).map(|steps| [vec![n, 7], steps].concat()));
        let hello = openflow::frame::hello(openflow::message::Versions::NONE.with(version), 1);
        seeds.push([vec![n, 0], hello].concat());
    }
    seeds
}

/// A step that sends a message.
fn step(message: &[u8]) -> Vec<u8> {
    let length = (message.len() as u16).to_be_bytes(); // at most LONGEST
    [&[9], &length[..], message].concat()
}

/// Bundles that succeed, that fail in their last message, and that are given up.
fn bundles(version: Version) -> impl Iterator<Item = Vec<u8>> {
    use BundleControlKind as Do;
    let protocol = Protocol::new(version);
    let encoded = move |body: Body| {
        // OpenFlow 1.0 to 1.2 have no bundles.
        Message::new(5, body).encode(&protocol).map(|m| step(&m)).unwrap_or_default()
    };
    let control = move |kind| {
        encoded(Body::BundleControl(BundleControl {
            bundle_id: 1,
            kind,
            flags: BundleFlags::ATOMIC,
        }))
    };
    let add = move |priority, port: u32| {
        let actions = [Action::Output { port: PortNo(port), max_len: 0 }];
        let fm = FlowMod::add(priority, flow::Match::ANY, &actions);
        let message = Message::new(5, Body::FlowMod(Box::new(fm)));
        encoded(Body::BundleAdd(Box::new(BundleAdd {
            bundle_id: 1,
            flags: BundleFlags::ATOMIC,
            message,
            raw: Vec::new(),
        })))
    };
    let bad = move || {
        let fm = FlowMod { table_id: 254, ..FlowMod::add(1, flow::Match::ANY, &[]) };
        let message = Message::new(5, Body::FlowMod(Box::new(fm)));
        encoded(Body::BundleAdd(Box::new(BundleAdd {
            bundle_id: 1,
            flags: BundleFlags::ATOMIC,
            message,
            raw: Vec::new(),
        })))
    };
    [
        [control(Do::OpenRequest), add(1, 1), add(2, 2), control(Do::CommitRequest)].concat(),
        [control(Do::OpenRequest), add(1, 1), bad(), control(Do::CommitRequest)].concat(),
        [control(Do::OpenRequest), add(1, 1), control(Do::DiscardRequest)].concat(),
        [
            control(Do::OpenRequest),
            add(7, 1),
            control(Do::CloseRequest),
            control(Do::CommitRequest),
        ]
        .concat(),
    ]
    .into_iter()
}

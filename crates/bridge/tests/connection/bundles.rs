// SPDX-License-Identifier: Apache-2.0
//! Atomicity, limits, timeouts and errors of OpenFlow bundles.

use super::*;
use openflow::message::{
    BundleAdd, BundleControl, BundleControlKind as Do, BundleFlags, PacketOut, PortConfig,
    PortFeatures, PortMod,
};

const ATOMIC: BundleFlags = BundleFlags::ATOMIC;

fn control(bundle_id: u32, kind: Do) -> Body {
    Body::BundleControl(BundleControl { bundle_id, kind, flags: ATOMIC })
}

fn add(bundle_id: u32, xid: u32, body: Body) -> Body {
    let message = Message { xid, body };
    Body::BundleAdd(Box::new(BundleAdd { bundle_id, flags: ATOMIC, message, raw: Vec::new() }))
}

impl Bench {
    /// Adds messages to bundle 1; the transaction ids of both messages are from 100 on.
    fn fill(&mut self, p: Peer, messages: Vec<Body>) {
        for (xid, body) in (100..).zip(messages) {
            let got = self.ask(p, xid, add(1, xid, body));
            assert!(got.is_empty(), "{got:?}");
        }
    }

    fn done(&mut self, p: Peer, kind: Do) -> Do {
        match self.one(p, control(1, kind)) {
            Body::BundleControl(c) => c.kind,
            other => panic!("{other:?}"),
        }
    }

    /// Commits bundle 1, which fails. Returns the transaction id of the failed message, and its
    /// error.
    fn blame(&mut self, p: Peer) -> (u32, OfError) {
        let got = self.ask(p, 7, control(1, Do::CommitRequest));
        let [
            Message { xid, body: Body::Error(first) },
            Message { xid: 7, body: Body::Error(second) },
        ] = &got[..]
        else {
            panic!("{got:?}")
        };
        assert_eq!(known(&second.error), OfError::OFPBFC_MSG_FAILED);
        (*xid, known(&first.error))
    }
}

/// A packet-out through the tables.
fn to_tables() -> Body {
    let mut metadata = Match::ANY;
    metadata.set(Field::InPortOxm, PortNo::CONTROLLER.0.into());
    Body::PacketOut(Box::new(PacketOut {
        buffer_id: None,
        data: udp(1, 2).data().to_vec(),
        metadata,
        actions: [output(PortNo::TABLE.0)].into(),
    }))
}

fn fm(priority: u16, n: u32, actions: &[Action]) -> Body {
    Body::FlowMod(Box::new(flow(priority, ip(n), actions)))
}

#[test]
fn a_bundle_happens_at_its_commit() {
    for version in [Version::V13, Version::V14, Version::V15] {
        let mut b = Bench::new(2);
        let p = b.connect(Kind::Service, version);
        b.add(p, flow(1, ip(9), &[output(1)]));
        assert_eq!(b.done(p, Do::OpenRequest), Do::OpenReply);
        let delete = || Body::FlowMod(Box::new(delete_all()));
        let there = || fm(5, 0x0a00_0002, &[output(2)]);
        // A packet goes by the tables that the messages before it make.
        b.fill(p, vec![to_tables(), delete(), to_tables(), there(), to_tables()]);
        b.fill(p, vec![delete(), to_tables(), there(), fm(5, 2, &[])]);
        assert_eq!(b.rule_count(), 1, "nothing happened yet");
        assert_eq!(b.done(p, Do::CloseRequest), Do::CloseReply);
        assert_eq!(b.done(p, Do::CommitRequest), Do::CommitReply);
        assert_eq!(b.rule_count(), 2);
        assert_eq!(b.sent(2), 1, "one packet met the rule");
        assert_eq!(b.error(p, control(1, Do::CommitRequest)), OfError::OFPBFC_BAD_ID);
    }
}

#[test]
fn a_failing_message_undoes_the_bundle_and_is_named() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V14);
    b.add(p, flow(1, ip(9), &[output(1)]));
    let before = b.flows(p);
    b.done(p, Do::OpenRequest);
    let delete = Body::FlowMod(Box::new(delete_all()));
    // The group does not exist, which only the commit finds out.
    b.fill(p, vec![delete, fm(5, 1, &[output(1)]), fm(5, 2, &[Action::Group(8)]), fm(5, 3, &[])]);
    let got = b.ask(p, 7, control(1, Do::CommitRequest));
    let [
        Message { xid: 102, body: Body::Error(first) },
        Message { xid: 7, body: Body::Error(second) },
    ] = &got[..]
    else {
        panic!("{got:?}")
    };
    assert_eq!(known(&first.error), OfError::OFPBAC_BAD_OUT_GROUP);
    assert_eq!(first.data[..2], [5, 14], "the flow mod, not its envelope");
    assert_eq!(known(&second.error), OfError::OFPBFC_MSG_FAILED);
    let after = b.flows(p);
    assert_eq!(before, after);
}

#[test]
fn a_port_mod_that_fails_undoes_the_bundle_and_is_named() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V14);
    let good = PortMod {
        port_no: PortNo(1),
        hw_addr: [0; 6],
        config: PortConfig::NO_FWD,
        mask: PortConfig::NO_FWD,
        advertise: PortFeatures::empty(),
    };
    let is_changed = |b: &Bench| {
        let port = &b.switch.bridge(b.bridge).unwrap().ports[&PortNo(1)];
        (b.rule_count(), port.config.contains(PortConfig::NO_FWD))
    };
    for (bad, error) in [
        (PortMod { port_no: PortNo(9), ..good }, OfError::OFPPMFC_BAD_PORT),
        (PortMod { hw_addr: [1; 6], ..good }, OfError::OFPPMFC_BAD_HW_ADDR),
    ] {
        b.done(p, Do::OpenRequest);
        let mods = [good, bad].map(Body::PortMod);
        b.fill(p, [fm(5, 1, &[])].into_iter().chain(mods).collect());
        assert_eq!(b.blame(p), (102, error));
        assert_eq!(is_changed(&b), (0, false));
    }
    b.done(p, Do::OpenRequest);
    b.fill(p, vec![fm(5, 1, &[]), Body::PortMod(good)]);
    assert_eq!(b.done(p, Do::CommitRequest), Do::CommitReply);
    assert_eq!(is_changed(&b), (1, true));
}

#[test]
fn a_packet_out_whose_actions_have_no_end_undoes_the_bundle() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V14);
    b.done(p, Do::OpenRequest);
    let round = [Action::Resubmit { port: None, table: Some(0), original_tuple: false }];
    b.fill(p, vec![fm(5, 0x0a00_0002, &round), to_tables(), fm(5, 3, &[])]);
    assert_eq!(b.blame(p), (101, OfError::OFPFMFC_UNKNOWN));
    assert_eq!(b.rule_count(), 0);
}

#[test]
fn a_packet_out_that_cannot_learn_undoes_the_bundle() {
    let mut b = Bench::new(2);
    let p = b.connect(Kind::Service, Version::V14);
    let learn = "learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]),output:2";
    let learn = openflow::text::parse_actions(learn, Version::V14, &|_| None).unwrap();
    let set_limit = |b: &mut Bench, limit: u32| {
        let pipeline = &mut b.switch.bridge_mut(b.bridge).unwrap().pipeline;
        pipeline.table_mut(1).unwrap().eviction.limit = Some(limit);
    };
    set_limit(&mut b, 0);
    b.done(p, Do::OpenRequest);
    b.fill(p, vec![fm(5, 0x0a00_0002, &learn), to_tables()]);
    assert_eq!(b.blame(p), (101, OfError::OFPFMFC_TABLE_FULL));
    assert_eq!((b.rule_count(), b.sent(2)), (0, 0));
    set_limit(&mut b, 1);
    b.done(p, Do::OpenRequest);
    b.fill(p, vec![fm(5, 0x0a00_0002, &learn), to_tables()]);
    assert_eq!(b.done(p, Do::CommitRequest), Do::CommitReply);
    assert_eq!((b.rule_count(), b.sent(2)), (2, 1), "learned once");
}

#[test]
fn packets_see_all_of_a_bundle_or_nothing() {
    let mut b = Bench::new(3);
    let p = b.connect(Kind::Service, Version::V14);
    b.add(p, flow(1, ip(0x0a00_0002), &[output(2)]));
    b.one(p, Body::BarrierRequest);
    b.receive(1, &udp(1, 2));
    b.done(p, Do::OpenRequest);
    b.fill(p, vec![Body::FlowMod(Box::new(delete_all())), fm(5, 1, &[Action::Group(8)])]);
    assert_eq!(b.ask(p, 7, control(1, Do::CommitRequest)).len(), 2);
    b.receive(1, &udp(1, 2));
    assert_eq!((b.sent(2), b.sent(3)), (2, 0));
    b.fill(p, vec![Body::FlowMod(Box::new(delete_all())), fm(5, 0x0a00_0002, &[output(3)])]);
    b.done(p, Do::CommitRequest);
    b.receive(1, &udp(1, 2));
    assert_eq!((b.sent(2), b.sent(3)), (0, 1));
}

#[test]
fn bundles_out_of_turn_are_refused() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V14);
    for kind in [Do::CloseRequest, Do::CommitRequest, Do::DiscardRequest] {
        assert_eq!(b.error(p, control(1, kind)), OfError::OFPBFC_BAD_ID);
    }
    assert_eq!(b.error(p, control(1, Do::OpenReply)), OfError::OFPBFC_BAD_TYPE);
    b.done(p, Do::OpenRequest);
    assert_eq!(b.error(p, control(1, Do::OpenRequest)), OfError::OFPBFC_BAD_ID);
    b.done(p, Do::OpenRequest);
    b.done(p, Do::CloseRequest);
    assert_eq!(b.error(p, add(1, 77, fm(5, 1, &[]))), OfError::OFPBFC_BUNDLE_CLOSED);
    b.done(p, Do::OpenRequest);
    let other =
        BundleControl { bundle_id: 1, kind: Do::CommitRequest, flags: BundleFlags::ORDERED };
    assert_eq!(b.error(p, Body::BundleControl(other)), OfError::OFPBFC_BAD_FLAGS);
    b.done(p, Do::OpenRequest);
    assert_eq!(b.done(p, Do::DiscardRequest), Do::DiscardReply);
    // An echo request in a bundle: the inner message's version is at 16, its type at 17.
    let mut echo = Message::new(77, add(1, 77, fm(5, 1, &[]))).encode(&p.protocol).unwrap();
    echo[17] = 2;
    b.bytes(p, &echo);
    let got = b.output(p);
    let [Message { xid: 77, body: Body::Error(e) }] = &got[..] else { panic!("{got:?}") };
    assert_eq!(known(&e.error), OfError::OFPBFC_MSG_UNSUP);
    assert_eq!(b.error(p, add(1, 78, fm(5, 1, &[]))), OfError::OFPBFC_MSG_BAD_XID);
    let bad = FlowMod { buffer_id: Some(1), ..flow(5, ip(1), &[]) };
    assert_eq!(
        b.error(p, add(1, 77, Body::FlowMod(Box::new(bad)))),
        OfError::OFPBRC_BUFFER_UNKNOWN
    );
    for id in 10..138 {
        b.one(p, control(id, Do::OpenRequest));
    }
    assert_eq!(b.error(p, control(500, Do::OpenRequest)), OfError::OFPBFC_OUT_OF_BUNDLES);
}

#[test]
fn a_forgotten_bundle_times_out() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V14);
    b.done(p, Do::OpenRequest);
    b.tick(6000);
    b.fill(p, vec![fm(5, 1, &[])]);
    b.tick(6000);
    assert!(b.output(p).is_empty());
    assert_eq!(b.connections.deadline(), Some(b.clock.now() + 4000));
    b.tick(4000);
    let got = b.output(p);
    let [Message { xid: 77, body: Body::Error(e) }] = &got[..] else { panic!("{got:?}") };
    assert_eq!(known(&e.error), OfError::OFPBFC_TIMEOUT);
    assert_eq!(b.error(p, control(1, Do::CommitRequest)), OfError::OFPBFC_BAD_ID);
}

#[test]
fn bundles_of_all_connections_share_a_limit_of_memory() {
    let mut b = Bench::new(1);
    let message = Message { xid: 1, body: add(1, 1, fm(5, 1, &[])) };
    let size = message.encode(&Protocol::new(Version::V14)).expect("it can be encoded").len();
    b.connections = Connections::with_bundle_memory(5 * size);
    let (p, q) = (b.connect(Kind::Service, Version::V14), b.connect(Kind::Service, Version::V14));
    b.done(p, Do::OpenRequest);
    b.done(q, Do::OpenRequest);
    b.fill(p, vec![fm(5, 1, &[]), fm(5, 2, &[]), fm(5, 3, &[])]);
    b.fill(q, vec![fm(5, 4, &[]), fm(5, 5, &[])]);
    let got = b.ask(q, 102, add(1, 102, fm(5, 6, &[])));
    let [Message { xid: 102, body: Body::Error(e) }] = &got[..] else { panic!("{got:?}") };
    assert_eq!(known(&e.error), OfError::OFPBFC_MSG_TOO_MANY);
    // The other's bundle is unchanged, and there is room again.
    assert_eq!(b.done(p, Do::CommitRequest), Do::CommitReply);
    assert_eq!(b.rule_count(), 3);
    b.done(q, Do::OpenRequest);
    b.fill(q, (0..5).map(|n| fm(6, n, &[])).collect());
    assert_eq!(b.done(q, Do::CommitRequest), Do::CommitReply);
    assert_eq!(b.rule_count(), 8);
}

/// The rules after a bundle of `messages`, and the replies to its commit, where all bundles together may
/// hold `memory` bytes.
fn committed(version: Version, memory: usize, messages: &[Body]) -> (Vec<FlowStats>, Vec<Message>) {
    let mut b = Bench::new(2);
    b.connections = Connections::with_bundle_memory(memory);
    let p = b.connect(Kind::Service, version);
    b.add(p, flow(5, ip(1), &[output(1)]));
    b.done(p, Do::OpenRequest);
    b.fill(p, messages.to_vec());
    let replies = b.ask(p, 7, control(1, Do::CommitRequest));
    (b.flows(p), replies)
}

#[test]
fn prepared_messages_do_what_decoded_ones_do() {
    let add = |fm: FlowMod| Body::FlowMod(Box::new(fm));
    let overlap = FlowMod { flags: FlowFlags::CHECK_OVERLAP, ..flow(5, ip(2), &[output(1)]) };
    let timed = FlowMod { idle_timeout: 7, hard_timeout: 9, ..flow(6, ip(2), &[output(1)]) };
    let cookie = FlowMod { new_cookie: 3, table_id: 4, ..flow(6, Match::ANY, &[]) };
    let delete = FlowMod { command: FlowModCommand::Delete, ..flow(0, ip(3), &[]) };
    // Larger than the messages that are prepared.
    let long: Vec<Action> = [output(1), output(2)].into_iter().cycle().take(12).collect();
    let good = [
        fm(5, 1, &[output(2)]), // replaces a rule
        fm(5, 3, &[output(2)]),
        fm(6, 3, &long),
        add(delete),
        add(timed),
        fm(5, 3, &long),
        add(cookie),
        add(overlap),
        fm(7, 3, &[output(2)]),
    ];
    let wide = flow(5, Match::ANY, &[]);
    let overlapping = FlowMod { flags: FlowFlags::CHECK_OVERLAP, ..wide };
    let bad = [fm(9, 1, &[Action::Group(8)]), fm(9, 1, &[Action::Meter(8)]), add(overlapping)];
    for version in [Version::V13, Version::V14, Version::V15] {
        for last in [None].into_iter().chain(bad.iter().map(Some)) {
            if version == Version::V15 && last == Some(&bad[1]) {
                continue; // encoded as another action
            }
            let messages: Vec<Body> = good.iter().chain(last).cloned().collect();
            let prepared = committed(version, 1 << 20, &messages);
            assert_eq!(prepared.0.len(), if last.is_some() { 1 } else { 6 }, "{prepared:?}");
            assert_eq!(prepared.1.len(), if last.is_some() { 2 } else { 1 }, "{prepared:?}");
            // Room for some, and room for none.
            for memory in [3 << 11, (1 << 11) - 1] {
                assert_eq!(committed(version, memory, &messages), prepared, "{version} {memory}");
            }
        }
    }
}

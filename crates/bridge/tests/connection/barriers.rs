// SPDX-License-Identifier: Apache-2.0
//! Barriers: guarantees to a peer once a barrier is answered.

use super::*;
use bridge::pipeline::Pipeline;
use bridge::snapshot::Snapshot;

impl Bench {
    /// Sends messages in one piece, numbered from 1. Returns all replies.
    fn ask_together(&mut self, peer: Peer, bodies: Vec<Body>) -> Vec<(u32, Body)> {
        let numbered = (1u32..).zip(bodies).map(|(xid, body)| Message { xid, body });
        let bytes: Vec<u8> =
            numbered.flat_map(|m| m.encode(&peer.protocol).expect("the version has it")).collect();
        self.bytes(peer, &bytes);
        self.output(peer).into_iter().map(|m| (m.xid, m.body)).collect()
    }

    fn add_to(&mut self, change: impl FnOnce(&mut Pipeline)) {
        change(&mut self.switch.bridge_rules_mut(self.bridge).expect("it is there").pipeline);
        self.switch.publish();
    }
}

fn rules(snapshot: &Snapshot, bridge: BridgeIndex) -> usize {
    snapshot.bridge(bridge).expect("it is there").tables.get(0).expect("so is that").rules.len()
}

fn add(fm: FlowMod) -> Body {
    Body::FlowMod(Box::new(fm))
}

fn simple() -> Body {
    add(flow(1, ip(1), &[output(1)]))
}

#[test]
fn a_flow_mod_is_published_before_its_barrier_is_answered() {
    for version in [Version::V10, Version::V13] {
        let mut b = Bench::new(1);
        let p = b.connect(Kind::Service, version);
        let mut reader = b.switch.slow_path().published.reader();
        assert_eq!(rules(reader.read(), b.bridge), 0);
        b.send(p, 1, simple());
        b.send(p, 2, Body::BarrierRequest);
        assert!(b.connections.has_output(p.id), "the barrier is answered");
        assert_eq!(rules(reader.read(), b.bridge), 1, "nothing remains to be published");
        assert_eq!(b.output(p), [Message::new(2, Body::BarrierReply)]);
    }
}

#[test]
fn a_request_after_a_barrier_meets_the_rule() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V13);
    let all = Body::MultipartRequest(MultipartRequest::Flow(Box::new(FlowStatsRequest::all())));
    let second = add(flow(2, ip(2), &[output(1)]));
    let asked = vec![simple(), Body::BarrierRequest, all.clone(), second, all];
    let counts: Vec<_> = b
        .ask_together(p, asked)
        .into_iter()
        .filter_map(|(xid, body)| match body {
            Body::MultipartReply { reply: MultipartReply::Flow { flows, .. }, .. } => {
                Some((xid, flows.len()))
            }
            Body::BarrierReply => None,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(counts, [(3, 1), (5, 2)]);
}

#[test]
fn removals_and_errors_come_before_the_answer() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Primary, Version::V13);
    let told = FlowMod { flags: FlowFlags::SEND_FLOW_REM, ..flow(1, ip(1), &[output(1)]) };
    let strict = FlowMod { command: FlowModCommand::DeleteStrict, ..flow(1, ip(1), &[]) };
    let other = || add(flow(2, ip(2), &[output(1)]));
    for behind in [vec![], vec![other()]] {
        b.add(p, told.clone());
        let delete = std::iter::once(add(strict.clone()));
        let sent: Vec<Body> = delete.chain(behind).chain([Body::BarrierRequest]).collect();
        let got = b.ask_together(p, sent);
        assert!(matches!(got[..], [(_, Body::FlowRemoved(_)), (_, Body::BarrierReply)]), "{got:?}");
    }
    let modify = FlowMod { command: FlowModCommand::Modify, ..flow(2, ip(2), &[Action::Group(7)]) };
    let got = b.ask_together(p, vec![add(modify), Body::BarrierRequest]);
    assert!(matches!(got[..], [(1, Body::Error(_)), (2, Body::BarrierReply)]), "{got:?}");
}

#[test]
fn an_error_comes_before_the_answer_of_the_barrier() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V13);
    b.add(p, flow(1, ip(1), &[output(1)]));
    let overlapping = FlowMod { flags: FlowFlags::CHECK_OVERLAP, ..flow(1, Match::ANY, &[]) };
    let bad = [
        (overlapping, OfError::OFPFMFC_OVERLAP),
        (flow(1, ip(1), &[Action::Group(7)]), OfError::OFPBAC_BAD_OUT_GROUP),
        (flow(1, ip(1), &[Action::Meter(7)]), OfError::OFPMMFC_INVALID_METER),
        (FlowMod { table_id: INTERNAL_TABLE, ..flow(1, ip(1), &[]) }, OfError::OFPBRC_EPERM),
        (FlowMod { buffer_id: Some(1), ..flow(1, ip(1), &[]) }, OfError::OFPBRC_BUFFER_UNKNOWN),
    ];
    for (fm, error) in bad {
        let got = b.ask_together(p, vec![add(fm), Body::BarrierRequest]);
        let [(1, Body::Error(e)), (2, Body::BarrierReply)] = &got[..] else { panic!("{got:?}") };
        assert_eq!(known(&e.error), error);
    }
    // A table that is full after the first of two rules.
    b.add_to(|pipeline| pipeline.table_mut(0).expect("it is there").eviction.limit = Some(2));
    let two = vec![add(flow(2, ip(2), &[])), add(flow(3, ip(3), &[])), Body::BarrierRequest];
    let got = b.ask_together(p, two);
    let [(2, Body::Error(e)), (3, Body::BarrierReply)] = &got[..] else { panic!("{got:?}") };
    assert_eq!(known(&e.error), OfError::OFPFMFC_TABLE_FULL);
}

#[test]
fn flow_monitor_updates_come_before_the_answer_of_the_barrier() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V14);
    let monitor = monitors::monitor(1, monitors::EVENTS);
    let request = MultipartRequest::FlowMonitor(vec![monitor]);
    b.ask(p, 8, Body::MultipartRequest(request));
    let got = b.ask_together(p, vec![simple(), Body::BarrierRequest]);
    assert!(
        matches!(
            &got[..],
            [
                (_, Body::MultipartReply { reply: MultipartReply::FlowMonitor { .. }, .. }),
                (2, Body::BarrierReply)
            ]
        ),
        "{got:?}"
    );
}

#[test]
fn with_megaflows_a_barrier_is_answered_when_they_follow() {
    let mut b = Bench::new(2);
    let p = b.connect(Kind::Service, Version::V13);
    b.add(p, flow(0, Match::ANY, &[output(2)]));
    b.switch.publish();
    b.receive(1, &udp(1, 2));
    assert_eq!(b.sent(2), 1);
    let drop = add(flow(1, Match::ANY, &[]));
    let got = b.ask_together(p, vec![drop, Body::BarrierRequest]);
    b.receive(1, &udp(1, 2));
    assert_eq!(b.sent(2), 0, "the megaflow follows");
    assert!(matches!(got[..], [(2, Body::BarrierReply)]), "{got:?}");
}

#[test]
fn removal_of_learned_flows_is_sent_before_the_answer_of_the_barrier() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Primary, Version::V13);
    let learn = openflow::action::Learn {
        idle_timeout: 0,
        hard_timeout: 0,
        priority: 1,
        cookie: 5,
        send_flow_removed: true,
        delete_learned: true,
        table: 1,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        limit: 0,
        result_dst: None,
        specs: Vec::new(),
    };
    b.add(p, flow(1, ip(1), &[Action::Learn(Box::new(learn))]));
    let learned = FlowMod {
        table_id: 1,
        new_cookie: 5,
        flags: FlowFlags::SEND_FLOW_REM,
        ..flow(1, ip(1), &[])
    };
    b.add(p, learned);
    let got = b.ask_together(p, vec![simple(), Body::BarrierRequest]);
    assert!(matches!(&got[..], [(_, Body::FlowRemoved(_)), (2, Body::BarrierReply)]), "{got:?}");
}

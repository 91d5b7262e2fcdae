// SPDX-License-Identifier: Apache-2.0
//! Barriers, and flow mods that are carried out behind the answer of one.

use super::*;
use bridge::pipeline::Pipeline;
use bridge::snapshot::Snapshot;

/// What `write` was given, each time up to how many bytes of it that took.
type Writes = Vec<Vec<u8>>;

impl Bench {
    /// Sends messages at once; the peer takes up to `room` bytes of output before it asks for it.
    fn at_once(&mut self, peer: Peer, bodies: Vec<Body>, room: usize) -> Writes {
        let numbered = (1u32..).zip(bodies).map(|(xid, body)| Message { xid, body });
        let bytes: Vec<u8> =
            numbered.flat_map(|m| m.encode(&peer.protocol).expect("it can be said")).collect();
        let mut writes = Writes::new();
        let now = self.clock.now();
        let mut write = |output: &[u8]| {
            writes.push(output.to_vec());
            output.len().min(room)
        };
        self.connections.receive_and_write(peer.id, &bytes, &mut self.switch, now, &mut write);
        writes
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

fn bodies(messages: Vec<Message>) -> Vec<(u32, Body)> {
    messages.into_iter().map(|m| (m.xid, m.body)).collect()
}

const ALL: usize = usize::MAX;

#[test]
fn a_rule_that_is_sure_is_added_behind_the_answer_and_packets_wait_for_it() {
    for version in [Version::V10, Version::V13] {
        let mut b = Bench::new(1);
        let p = b.connect(Kind::Service, version);
        let bridge = b.bridge;
        let (slow, mut reader) =
            (Arc::clone(b.switch.slow_path()), b.switch.slow_path().published.reader());
        assert_eq!(rules(reader.read(), bridge), 0);
        let mut looks = Vec::new();
        let message = |xid, body| Message { xid, body }.encode(&p.protocol).expect("said");
        let bytes = [message(1, simple()), message(2, Body::BarrierRequest)].concat();
        let now = b.clock.now();
        let mut write = |answer: &[u8]| {
            let answer = Message::decode(answer, &p.protocol).expect("whole");
            assert!(matches!(answer, Message { xid: 2, body: Body::BarrierReply }), "{answer:?}");
            assert_eq!(rules(&slow.published.last(), bridge), 0, "it is not there yet");
            let (mut reader, slow) = (reader.clone(), Arc::clone(&slow));
            looks.push(std::thread::spawn(move || {
                (rules(reader.read(), bridge), rules(&slow.published.newest(), bridge))
            }));
            8
        };
        b.connections.receive_and_write(p.id, &bytes, &mut b.switch, now, &mut write);
        let looks: Vec<_> = looks.into_iter().map(|look| look.join().expect("it ends")).collect();
        assert_eq!(looks, [(1, 1)], "who looks after the answer sees the rule");
        assert_eq!(b.rule_count(), 1);
        assert!(b.output(p).is_empty(), "it was all written");
    }
}

#[test]
fn what_the_peer_does_not_take_at_once_it_gets_later() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V13);
    let writes = b.at_once(p, vec![simple(), Body::BarrierRequest], 3);
    let rest = b.connections.take_output(p.id);
    assert_eq!(writes.len(), 1);
    assert_eq!(writes[0][3..], rest);
    assert!(b.connections.take_output(p.id).is_empty());
}

#[test]
fn what_comes_behind_meets_the_rule() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V13);
    let all = Body::MultipartRequest(MultipartRequest::Flow(Box::new(FlowStatsRequest::all())));
    let second = add(flow(2, ip(2), &[output(1)]));
    let asked = vec![simple(), Body::BarrierRequest, all.clone(), second, all];
    assert!(b.at_once(p, asked, ALL).is_empty(), "the last one is in no hurry");
    let counts: Vec<_> = b
        .output(p)
        .into_iter()
        .filter_map(|m| match m.body {
            Body::MultipartReply { reply: MultipartReply::Flow { flows, .. }, .. } => {
                Some((m.xid, flows.len()))
            }
            Body::BarrierReply => None,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(counts, [(3, 1), (5, 2)]);
}

#[test]
fn what_may_fail_or_take_rules_away_is_carried_out_before_the_answer() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Primary, Version::V13);
    let told = FlowMod { flags: FlowFlags::SEND_FLOW_REM, ..flow(1, ip(1), &[output(1)]) };
    let strict = FlowMod { command: FlowModCommand::DeleteStrict, ..flow(1, ip(1), &[]) };
    let other = || add(flow(2, ip(2), &[output(1)]));
    for behind in [vec![], vec![other()]] {
        b.add(p, told.clone());
        let delete = std::iter::once(add(strict.clone()));
        let sent = delete.chain(behind).chain([Body::BarrierRequest]).collect();
        assert!(b.at_once(p, sent, ALL).is_empty());
        let got = bodies(b.output(p));
        assert!(matches!(got[..], [(_, Body::FlowRemoved(_)), (_, Body::BarrierReply)]), "{got:?}");
    }
    let modify = FlowMod { command: FlowModCommand::Modify, ..flow(2, ip(2), &[Action::Group(7)]) };
    assert!(b.at_once(p, vec![add(modify), Body::BarrierRequest], ALL).is_empty());
    let got = bodies(b.output(p));
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
        assert!(b.at_once(p, vec![add(fm), Body::BarrierRequest], ALL).is_empty(), "{error}");
        let got = bodies(b.output(p));
        let [(1, Body::Error(e)), (2, Body::BarrierReply)] = &got[..] else { panic!("{got:?}") };
        assert_eq!(known(&e.error), error);
    }
    // A table that is full with the first of two.
    b.add_to(|pipeline| pipeline.table_mut(0).expect("it is there").eviction.limit = Some(2));
    let two = vec![add(flow(2, ip(2), &[])), add(flow(3, ip(3), &[])), Body::BarrierRequest];
    assert!(b.at_once(p, two, ALL).is_empty());
    let got = bodies(b.output(p));
    let [(2, Body::Error(e)), (3, Body::BarrierReply)] = &got[..] else { panic!("{got:?}") };
    assert_eq!(known(&e.error), OfError::OFPFMFC_TABLE_FULL);
}

#[test]
fn what_a_peer_is_told_of_a_rule_comes_before_the_answer_of_the_barrier() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V14);
    let monitor = monitors::monitor(1, monitors::EVENTS);
    let request = MultipartRequest::FlowMonitor { monitors: vec![monitor], nicira: false };
    b.ask(p, 8, Body::MultipartRequest(request));
    assert!(b.at_once(p, vec![simple(), Body::BarrierRequest], ALL).is_empty());
    let got = bodies(b.output(p));
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
    assert!(b.at_once(p, vec![drop, Body::BarrierRequest], ALL).is_empty());
    b.receive(1, &udp(1, 2));
    assert_eq!(b.sent(2), 0, "the megaflow follows");
    assert!(matches!(bodies(b.output(p))[..], [(2, Body::BarrierReply)]));
}

#[test]
fn flows_that_go_with_a_rule_are_told_of_before_the_answer_of_the_barrier() {
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
    assert!(b.at_once(p, vec![simple(), Body::BarrierRequest], ALL).is_empty());
    let got = bodies(b.output(p));
    assert!(matches!(&got[..], [(_, Body::FlowRemoved(_)), (2, Body::BarrierReply)]), "{got:?}");
}

// SPDX-License-Identifier: Apache-2.0
//! Flow monitors: reports, pauses and resumption.

use super::*;
use openflow::message::{
    FlowMonitorRequest, FlowRemovedReason, FlowUpdate, FlowUpdateEvent as Event, MonitorCommand,
    MonitorFlags,
};
use std::collections::BTreeMap;

pub(super) fn monitor(id: u32, flags: MonitorFlags) -> FlowMonitorRequest {
    FlowMonitorRequest {
        id,
        command: MonitorCommand::Add,
        flags,
        out_port: PortNo::NONE,
        out_group: GROUP_ANY,
        table_id: TABLE_ALL,
        matching: Match::ANY,
    }
}

fn request(monitors: Vec<FlowMonitorRequest>) -> Body {
    Body::MultipartRequest(MultipartRequest::FlowMonitor(monitors))
}

fn updates(messages: Vec<Message>) -> Vec<FlowUpdate> {
    messages
        .into_iter()
        .flat_map(|m| match m.body {
            Body::MultipartReply { reply: MultipartReply::FlowMonitor(updates), .. } => updates,
            Body::FlowMonitorPaused => vec![FlowUpdate::Paused],
            Body::FlowMonitorResumed => vec![FlowUpdate::Resumed],
            other => panic!("{other:?}"),
        })
        .collect()
}

fn full(update: &FlowUpdate) -> (Event, u16, usize) {
    match update {
        FlowUpdate::Full(f) => (f.event, f.priority, f.actions.len()),
        other => panic!("{other:?}"),
    }
}

pub(super) const EVENTS: MonitorFlags =
    MonitorFlags::ADD.union(MonitorFlags::DELETE).union(MonitorFlags::MODIFY);

#[test]
fn a_monitor_tells_what_is_there_and_what_changes() {
    for version in Version::ALL {
        let mut b = Bench::new(1);
        let (p, q) = (b.connect(Kind::Service, version), b.connect(Kind::Service, Version::V13));
        b.add(q, flow(1, ip(1), &[output(1)]));
        let flags = EVENTS | MonitorFlags::INITIAL | MonitorFlags::ACTIONS;
        let got = b.ask(p, 8, request(vec![monitor(1, flags)]));
        assert_eq!(got[0].xid, 8);
        let initial = if version < Version::V14 { Event::Added } else { Event::Initial };
        let got = updates(got);
        assert_eq!(got.iter().map(full).collect::<Vec<_>>(), [(initial, 1, 1)]);
        b.add(q, flow(2, ip(2), &[output(1)]));
        let modify = FlowMod {
            command: FlowModCommand::ModifyStrict,
            ..flow(2, ip(2), &[output(1), output(1)])
        };
        b.add(q, modify.clone());
        b.add(q, modify); // nothing new
        b.add(q, flow(2, ip(2), &[output(1), output(1)]));
        b.add(q, FlowMod { command: FlowModCommand::DeleteStrict, ..flow(2, ip(2), &[]) });
        let got = updates(b.output(p));
        let deleted = Event::Deleted(FlowRemovedReason::Delete);
        assert_eq!(
            got.iter().map(full).collect::<Vec<_>>(),
            [(Event::Added, 2, 1), (Event::Modified, 2, 2), (Event::Added, 2, 2), (deleted, 2, 2)]
        );
        // The peer's own changes are reported by transaction id.
        b.send(p, 55, Body::FlowMod(Box::new(flow(3, ip(3), &[]))));
        assert_eq!(updates(b.output(p)), [FlowUpdate::Abbrev { xid: 55 }]);
        if version < Version::V14 {
            assert!(b.ask(p, 9, Body::FlowMonitorCancel(1)).is_empty());
        } else {
            let delete =
                FlowMonitorRequest { command: MonitorCommand::Delete, ..monitor(1, flags) };
            assert!(updates(b.ask(p, 9, request(vec![delete]))).is_empty());
        }
        b.add(q, flow(4, ip(4), &[]));
        assert!(b.output(p).is_empty());
    }
}

#[test]
fn monitors_have_filters_and_numbers() {
    let mut b = Bench::new(3);
    let (p, q) = (b.connect(Kind::Service, Version::V14), b.connect(Kind::Service, Version::V13));
    let by_port = FlowMonitorRequest { out_port: PortNo(2), ..monitor(1, EVENTS) };
    let by_match = FlowMonitorRequest { matching: ip(7), ..monitor(2, EVENTS | MonitorFlags::OWN) };
    assert!(updates(b.ask(p, 1, request(vec![by_port.clone(), by_match]))).is_empty());
    assert_eq!(b.error(p, request(vec![by_port])), OfError::OFPMOFC_MONITOR_EXISTS);
    let unknown = FlowMonitorRequest { command: MonitorCommand::Delete, ..monitor(5, EVENTS) };
    assert_eq!(
        b.error(p, request(vec![monitor(6, EVENTS), unknown])),
        OfError::OFPMOFC_UNKNOWN_MONITOR
    );
    b.add(q, flow(1, ip(1), &[output(1)]));
    assert!(b.output(p).is_empty(), "monitor 6 was not made");
    b.add(q, flow(1, ip(1), &[output(2)]));
    b.add(q, flow(1, ip(1), &[output(3)]));
    b.add(q, flow(1, ip(1), &[output(1)]));
    b.send(p, 1, Body::FlowMod(Box::new(flow(2, ip(7), &[]))));
    let events: Vec<_> = updates(b.output(p)).iter().map(full).map(|(e, p, _)| (e, p)).collect();
    // Modifications to output to port 2 and away from it both concern the monitor.
    assert_eq!(events, [(Event::Added, 1), (Event::Added, 1), (Event::Added, 2)]);
    // As in OVS, ONLY_OWN reports the peer's own changes in full, and those of others.
    let own = FlowMonitorRequest { matching: ip(8), ..monitor(9, EVENTS | MonitorFlags::ONLY_OWN) };
    b.ask(p, 1, request(vec![own]));
    b.add(q, flow(2, ip(8), &[]));
    b.send(p, 1, Body::FlowMod(Box::new(flow(3, ip(8), &[]))));
    let events: Vec<_> = updates(b.output(p)).iter().map(full).map(|(e, p, _)| (e, p)).collect();
    assert_eq!(events, [(Event::Added, 2), (Event::Added, 3)]);
}

/// Applies updates to a peer's view of the flows. Returns the numbers of pauses and resumptions.
fn learn(known: &mut BTreeMap<(u16, u128), u64>, updates: Vec<FlowUpdate>) -> (u32, u32) {
    let (mut paused, mut resumed) = (0, 0);
    for update in updates {
        match update {
            FlowUpdate::Full(f) => {
                let key = (f.priority, f.matching.value(Field::Ipv4Dst));
                match f.event {
                    Event::Deleted(_) => {
                        assert!(known.remove(&key).is_some(), "{key:?} was not there")
                    }
                    Event::Modified => {
                        assert!(known.insert(key, f.cookie).is_some(), "{key:?} was not there")
                    }
                    Event::Initial => {
                        assert!(known.insert(key, f.cookie).is_none(), "{key:?} was there")
                    }
                    // The flow may replace another.
                    Event::Added => {
                        known.insert(key, f.cookie);
                    }
                }
            }
            FlowUpdate::Paused => paused += 1,
            FlowUpdate::Resumed => resumed += 1,
            FlowUpdate::Abbrev { .. } => panic!(),
        }
    }
    (paused, resumed)
}

#[test]
fn a_stalled_peer_pauses_costs_no_memory_and_catches_up() {
    for version in [Version::V10, Version::V14] {
        let mut b = Bench::new(1);
        let p = b.connect(Kind::Service, version);
        for n in 0..8000 {
            b.switch.flow_mod(b.bridge, &flow(1, ip(n), &[])).unwrap();
        }
        // The peer reads only half a megabyte of its first reply.
        b.send(p, 8, request(vec![monitor(1, EVENTS | MonitorFlags::INITIAL)]));
        let mut known = BTreeMap::new();
        let change = |b: &mut Bench, fm: FlowMod| {
            let changes = b.switch.flow_mod(b.bridge, &fm).unwrap();
            b.connections.rules_changed(b.bridge, changes, &mut b.switch, b.clock.now());
        };
        for n in 0..3000 {
            change(
                &mut b,
                FlowMod { command: FlowModCommand::DeleteStrict, ..flow(1, ip(n), &[]) },
            );
            change(&mut b, flow(2, ip(n), &[]));
        }
        let told = updates(b.output(p));
        assert_eq!(learn(&mut known, told), (0, 0), "the beginning is no pause");
        // All flows change several times while the peer does not read.
        for round in 1..4 {
            for n in 0..8000 {
                let priority = if n < 3000 { 2 } else { 1 };
                change(&mut b, FlowMod { new_cookie: round, ..flow(priority, ip(n), &[]) });
            }
        }
        for n in 7000..8000 {
            change(
                &mut b,
                FlowMod { command: FlowModCommand::DeleteStrict, ..flow(1, ip(n), &[]) },
            );
        }
        let first = b.connections.take_output(p.id);
        assert!(first.len() < 700 << 10, "{} bytes", first.len());
        let mut pauses = (0, 0);
        let mut count = |(a, b): (u32, u32)| pauses = (pauses.0 + a, pauses.1 + b);
        let decode = |bytes: &[u8]| {
            frame::split(bytes).map(|m| Message::decode(m, &p.protocol).unwrap()).collect()
        };
        count(learn(&mut known, updates(decode(&first))));
        b.tick(0);
        let told = updates(b.output(p));
        count(learn(&mut known, told));
        assert_eq!(pauses, (1, 1));
        let truth: BTreeMap<(u16, u128), u64> = b
            .flows(p)
            .into_iter()
            .map(|f| ((f.priority, f.matching.value(Field::Ipv4Dst)), f.cookie))
            .collect();
        assert_eq!(truth.len(), 7000);
        assert_eq!(known, truth);
    }
}

#[test]
fn the_beginning_of_a_monitor_comes_before_later_replies() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V14);
    for n in 0..20_000 {
        b.switch.flow_mod(b.bridge, &flow(1, ip(n), &[])).unwrap();
    }
    let monitor = Message::new(8, request(vec![monitor(1, EVENTS | MonitorFlags::INITIAL)]));
    let barrier = Message::new(9, Body::BarrierRequest);
    let bytes = [monitor, barrier].map(|m| m.encode(&p.protocol).unwrap()).concat();
    b.bytes(p, &bytes);
    assert!(!b.connections.wants_input(p.id));
    let mut got = b.output(p);
    assert_eq!(got.pop(), Some(Message::new(9, Body::BarrierReply)));
    let last = got.len() - 1;
    for (n, m) in got.iter().enumerate() {
        let Body::MultipartReply { more, .. } = m.body else { panic!("{m:?}") };
        assert_eq!((m.xid, more), (8, n != last));
    }
    assert_eq!(updates(got).len(), 20_000);
}

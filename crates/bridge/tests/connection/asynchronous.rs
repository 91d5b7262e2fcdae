// SPDX-License-Identifier: Apache-2.0
//! Asynchronous messages to controllers, and the cases in which none is sent.

use super::*;
use bridge::connection::{PortEvent, RateLimit};
use openflow::action::Controller;
use openflow::message::{
    AsyncChange, AsyncKind, FlowRemovedReason, ForwardedChange, GroupCommand, GroupKind, GroupMod,
    GroupProperties, PacketInFormat, PacketInReason, PortConfig, PortDesc, PortState, Role,
    RoleRequest, SetAsync, SwitchConfig, TableMod, TableStatusReason, Vacancy, group::bucket,
};

fn packet_ins(messages: Vec<Message>) -> Vec<openflow::message::PacketIn> {
    messages
        .into_iter()
        .map(|m| match m.body {
            Body::PacketIn(p) => *p,
            other => panic!("{other:?}"),
        })
        .collect()
}

fn ask_for_packets() -> Body {
    Body::SetConfig(SwitchConfig {
        fragments: Default::default(),
        invalid_ttl_to_controller: Some(false),
        miss_send_len: 64,
    })
}

#[test]
fn packets_go_whole_to_who_asked_in_the_format_asked() {
    for version in Version::ALL {
        let mut b = Bench::new(1);
        let c = b.connect(Kind::Primary, version);
        let (s, deaf) = (b.connect(Kind::Service, version), b.connect(Kind::Service, version));
        b.send(s, 1, ask_for_packets());
        b.send(s, 1, Body::SetPacketInFormat(PacketInFormat::Nxt2));
        b.add(c, FlowMod { new_cookie: 9, ..flow(5, Match::ANY, &[to_controller()]) });
        b.one(c, Body::BarrierRequest);
        let packet = udp(1, 2);
        b.receive(1, &packet);
        assert!(b.output(deaf).is_empty());
        for p in [c, s] {
            let got = packet_ins(b.output(p));
            assert_eq!(got.len(), 1, "{version}");
            assert_eq!(got[0].data, packet.data());
            assert_eq!((got[0].total_len as usize, got[0].in_port()), (packet.len(), PortNo(1)));
            assert_eq!(got[0].reason, PacketInReason::Action);
        }
    }
}

#[test]
fn misses_go_to_old_versions_only() {
    let mut b = Bench::new(1);
    let new = b.connect(Kind::Primary, Version::V13);
    b.receive(1, &udp(1, 2));
    assert!(b.output(new).is_empty());
    let old = b.connect(Kind::Primary, Version::V10);
    b.switch.publish();
    b.receive(1, &udp(1, 2));
    let got = packet_ins(b.output(old));
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].reason, PacketInReason::NoMatch);
    assert!(b.output(new).is_empty());
}

#[test]
fn filters_roles_and_controller_ids_are_obeyed() {
    let mut b = Bench::new(1);
    let (c, d) = (b.connect(Kind::Primary, Version::V13), b.connect(Kind::Primary, Version::V13));
    b.send(d, 1, Body::SetControllerId(7));
    let seven = Action::Controller(Box::new(Controller {
        max_len: 0xffff,
        controller_id: 7,
        reason: 1,
        userdata: Vec::new(),
        pause: false,
        meter_id: u32::MAX,
    }));
    b.add(c, flow(5, ip(0x0a00_0002), &[to_controller()]));
    b.add(c, flow(5, ip(0x0a00_0003), &[seven]));
    b.one(c, Body::BarrierRequest);
    b.receive(1, &udp(1, 2));
    assert_eq!((b.output(c).len(), b.output(d).len()), (1, 0));
    b.receive(1, &udp(1, 3));
    assert_eq!((b.output(c).len(), b.output(d).len()), (0, 1));
    let none = SetAsync {
        changes: vec![AsyncChange { kind: AsyncKind::PacketIn, primary: true, reasons: 0 }],
    };
    b.send(c, 1, Body::SetAsync(none));
    let Body::GetAsyncReply(config) = b.one(c, Body::GetAsyncRequest) else { panic!() };
    assert_eq!(config.primary[0], 0);
    b.receive(1, &udp(1, 2));
    assert!(b.output(c).is_empty());
    let secondary = RoleRequest { role: Role::Secondary, generation_id: Some(1), nicira: false };
    b.one(d, Body::RoleRequest(secondary));
    b.receive(1, &udp(1, 3));
    assert!(b.output(d).is_empty(), "secondaries hear of ports only");
    let desc = b.switch.bridge(b.bridge).unwrap().ports[&PortNo(1)].desc();
    b.connections.port_status(b.bridge, PortEvent::Added(&desc));
    let got = b.output(d);
    assert!(
        matches!(&got[..], [Message { xid: 0, body: Body::PortStatus(s) }] if s.port == desc),
        "{got:?}"
    );
}

#[test]
fn a_change_of_a_port_reaches_controllers_whose_version_shows_it() {
    let versions = [Version::V10, Version::V11, Version::V13, Version::V14, Version::V15];
    let mut b = Bench::new(1);
    let peers = versions.map(|v| b.connect(Kind::Primary, v));
    let before = b.switch.bridge(b.bridge).unwrap().ports[&PortNo(1)].desc();
    let told = |b: &mut Bench, after: &PortDesc| {
        b.connections.port_status(b.bridge, PortEvent::Modified { before: &before, after });
        peers.map(|p| b.output(p).len())
    };
    let down = PortDesc { config: before.config ^ PortConfig::PORT_DOWN, ..before.clone() };
    assert_eq!(told(&mut b, &down), [1; 5]);
    // OpenFlow 1.0 has no speeds, and no state "live".
    let faster = PortDesc { curr_speed: before.curr_speed + 1, ..before.clone() };
    assert_eq!(told(&mut b, &faster), [0, 1, 1, 1, 1]);
    let live = PortDesc { state: before.state ^ PortState::LIVE, ..before.clone() };
    assert_eq!(told(&mut b, &live), [0, 1, 1, 1, 1]);
    // Later versions have no NO_FLOOD.
    let no_flood = PortDesc { config: before.config | PortConfig::NO_FLOOD, ..before.clone() };
    assert_eq!(told(&mut b, &no_flood), [1, 0, 0, 0, 0]);
    assert_eq!(told(&mut b, &before), [0; 5], "nothing changed");
    // An event is not a change, and is always sent.
    b.connections.port_status(b.bridge, PortEvent::Deleted(&before));
    assert_eq!(peers.map(|p| b.output(p).len()), [1; 5]);
}

#[test]
fn removed_flows_are_told_with_final_counters() {
    let mut b = Bench::new(2);
    let (c, other) =
        (b.connect(Kind::Primary, Version::V13), b.connect(Kind::Service, Version::V10));
    let told = |fm: FlowMod| FlowMod { flags: FlowFlags::SEND_FLOW_REM, ..fm };
    b.add(c, told(flow(5, ip(0x0a00_0002), &[output(2)])));
    b.add(c, told(FlowMod { idle_timeout: 2, ..flow(6, ip(0x0a00_0003), &[output(2)]) }));
    b.add(c, flow(7, ip(4), &[]));
    b.one(c, Body::BarrierRequest);
    for _ in 0..3 {
        b.receive(1, &udp(1, 2));
    }
    b.tick(2500);
    let got = b.output(c);
    let [Message { body: Body::FlowRemoved(f), .. }] = &got[..] else { panic!("{got:?}") };
    assert_eq!((f.priority, f.reason, f.packet_count), (6, FlowRemovedReason::IdleTimeout, 0));
    // The final counters include packets that only the datapath has counted yet.
    b.receive(1, &udp(1, 2));
    b.add(other, delete_all());
    let got = b.output(c);
    let [Message { body: Body::FlowRemoved(f), .. }] = &got[..] else { panic!("{got:?}") };
    assert_eq!((f.priority, f.reason, f.packet_count), (5, FlowRemovedReason::Delete, 4));
    assert_eq!((f.duration.as_millis(), f.byte_count), (2500, 4 * udp(1, 2).len() as u64));
}

#[test]
fn group_mods_are_forwarded_to_who_asked() {
    let mut b = Bench::new(1);
    let (c, d) = (b.connect(Kind::Primary, Version::V14), b.connect(Kind::Primary, Version::V14));
    let all = AsyncChange { kind: AsyncKind::RequestForward, primary: true, reasons: 3 };
    b.send(c, 1, Body::SetAsync(SetAsync { changes: vec![all] }));
    let gm = GroupMod {
        command: GroupCommand::Add,
        kind: GroupKind::All,
        group_id: 3,
        command_bucket_id: bucket::ALL,
        buckets: Vec::new(),
        properties: GroupProperties::default(),
    };
    assert!(b.ask(d, 44, Body::GroupMod(gm.clone())).is_empty());
    let got = b.output(c);
    let [Message { body: Body::RequestForward(f), .. }] = &got[..] else { panic!("{got:?}") };
    assert_eq!((f.xid, &f.change), (44, &ForwardedChange::Group(gm)));
}

#[test]
fn tables_tell_when_they_fill_and_empty() {
    let mut b = Bench::new(1);
    let c = b.connect(Kind::Primary, Version::V14);
    let all = AsyncChange { kind: AsyncKind::TableStatus, primary: true, reasons: 0x18 };
    b.send(c, 1, Body::SetAsync(SetAsync { changes: vec![all] }));
    b.switch.bridge_mut(b.bridge).unwrap().pipeline.table_mut(0).unwrap().eviction.limit = Some(10);
    let tm = TableMod {
        table_id: 0,
        miss: Default::default(),
        eviction: None,
        eviction_flags: None,
        vacancy_events: Some(true),
        vacancy: Some(Vacancy { down: 30, up: 60, current: 0 }),
    };
    assert!(b.ask(c, 1, Body::TableMod(tm)).is_empty());
    let mut events = Vec::new();
    for n in 0..9 {
        b.send(c, 1, Body::FlowMod(Box::new(flow(5, ip(n), &[]))));
        for m in b.output(c) {
            let Body::TableStatus(s) = m.body else { panic!("{m:?}") };
            events.push((n, s.reason, s.table.vacancy.unwrap().current));
        }
    }
    assert_eq!(events, [(7, TableStatusReason::VacancyDown, 20)]);
    let got = b.ask(c, 1, Body::FlowMod(Box::new(delete_all())));
    let [Message { body: Body::TableStatus(s), .. }] = &got[..] else { panic!("{got:?}") };
    assert_eq!((s.reason, s.table.vacancy.unwrap().current), (TableStatusReason::VacancyUp, 100));
}

#[test]
fn a_rate_limit_holds_packets_back() {
    let mut b = Bench::new(1);
    let limit = Some(RateLimit { rate: 100, burst: 10 });
    let options =
        Options { packet_in_limit: limit, ..Options::new(Kind::Primary, "tcp:c", Versions::KNOWN) };
    let c = b.connect_with(options, Version::V13);
    b.add(c, flow(5, Match::ANY, &[to_controller()]));
    b.one(c, Body::BarrierRequest);
    for _ in 0..30 {
        b.receive(1, &udp(1, 2));
    }
    assert_eq!(b.output(c).len(), 10);
    let stats = b.connections.status(c.id).unwrap().actions;
    assert_eq!((stats.bypassed, stats.queued, stats.dropped, stats.backlog), (10, 20, 10, 10));
    b.tick(50);
    assert_eq!(b.output(c).len(), 5);
}

#[test]
fn a_controller_that_does_not_read_loses_packets_and_keeps_replies() {
    let mut b = Bench::new(1);
    let c = b.connect(Kind::Primary, Version::V13);
    b.add(c, flow(5, Match::ANY, &[to_controller()]));
    b.one(c, Body::BarrierRequest);
    for _ in 0..20_000 {
        b.receive(1, &udp(1, 2));
    }
    let status = b.connections.status(c.id).unwrap();
    assert!(status.counters.dropped > 0);
    assert!(!b.connections.wants_input(c.id));
    b.send(c, 3, Body::BarrierRequest); // waits
    let got = b.output(c);
    assert_eq!(got.last(), Some(&Message::new(3, Body::BarrierReply)));
    assert_eq!(got.len() as u64 - 1 + status.counters.dropped, 20_000);
    assert!(b.connections.wants_input(c.id));
    assert_eq!(b.connections.counters().dropped, status.counters.dropped);
}

#[test]
fn a_limited_number_of_packets_waits_for_a_controller_that_does_not_read() {
    let mut b = Bench::new(1);
    let options =
        Options { waiting_packets: 3, ..Options::new(Kind::Primary, "tcp:c", Versions::KNOWN) };
    let c = b.connect_with(options.clone(), Version::V13);
    b.add(c, flow(5, Match::ANY, &[to_controller()]));
    b.one(c, Body::BarrierRequest);
    let receive = |b: &mut Bench, n: u8| (0..n).for_each(|port| b.receive(1, &udp(1, port)));
    let dropped = |b: &Bench| b.connections.status(c.id).unwrap().counters.dropped;
    // While nothing waits, a turn may have more packets.
    receive(&mut b, 5);
    assert_eq!(dropped(&b), 0);
    // The bytes that were taken have not left yet.
    assert!(!b.connections.take_output(c.id).is_empty());
    receive(&mut b, 10);
    assert_eq!(dropped(&b), 7);
    assert_eq!(packet_ins(b.output(c)).len(), 3);
    // They have: the controller reads again.
    receive(&mut b, 10);
    assert_eq!((packet_ins(b.output(c)).len(), dropped(&b)), (10, 7));
    b.connections.reconfigure(c.id, &Options { waiting_packets: 1, ..options });
    receive(&mut b, 1);
    assert!(!b.connections.take_output(c.id).is_empty());
    receive(&mut b, 4);
    assert_eq!(dropped(&b), 10);
}

#[test]
fn messages_are_counted_beyond_the_end_of_their_connection() {
    let mut b = Bench::new(1);
    let c = b.connect(Kind::Primary, Version::V13);
    let snoop = b.connect(Kind::Snoop, Version::V13);
    let before = b.connections.counters();
    assert_eq!((before.received, before.sent), (2, 2), "hellos");
    b.one(c, Body::BarrierRequest);
    let after = b.connections.counters();
    // The snooper gets a copy of the request and of the reply.
    assert_eq!((after.received, after.sent), (3, 2 + 1 + 2));
    assert_eq!(b.switch.counters.openflow_messages, 1);
    for peer in [c, snoop] {
        b.connections.closed(peer.id);
    }
    assert_eq!(b.connections.counters(), after);
}

#[test]
fn a_paused_packet_goes_on_when_the_controller_says_so() {
    let mut b = Bench::new(2);
    let c = b.connect(Kind::Primary, Version::V13);
    b.send(c, 1, Body::SetPacketInFormat(PacketInFormat::Nxt2));
    let pause = Action::Controller(Box::new(Controller {
        max_len: 0xffff,
        controller_id: 0,
        reason: 1,
        userdata: vec![1, 2],
        pause: true,
        meter_id: u32::MAX,
    }));
    b.add(c, flow(5, Match::ANY, &[pause, output(2)]));
    b.one(c, Body::BarrierRequest);
    b.receive(1, &udp(1, 2));
    assert_eq!(b.sent(2), 0);
    let packet_in = packet_ins(b.output(c)).remove(0);
    assert!(packet_in.continuation.is_some());
    assert_eq!(packet_in.userdata, [1, 2]);
    let got = b.ask(c, 2, Body::Resume(Box::new(packet_in.clone())));
    assert!(got.is_empty(), "{got:?}");
    assert_eq!(b.sent(2), 1);
    let mut foreign = packet_in;
    foreign.continuation.as_mut().unwrap().bridge = [9; 16];
    assert_eq!(b.error(c, Body::Resume(Box::new(foreign))), OfError::OFPBRC_EPERM);
}

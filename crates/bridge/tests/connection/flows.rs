// SPDX-License-Identifier: Apache-2.0
//! Flow, group, meter, port and table messages, packet-outs, and the requests for their state.

use super::*;
use bridge::connection::format_flows;
use flow::ct_state::EST;
use openflow::message::{
    Bucket, GROUP_ALL, GroupCommand, GroupKind, GroupMod, GroupProperties, MeterBand,
    MeterBandKind, MeterCommand, MeterConfig, MeterFlags, MeterMod, PacketOut, PortConfig,
    PortFeatures, PortMod, QueueRequest, TableFeaturesRequest, TableMiss, TableMod, group::bucket,
};

pub(super) fn group_mod(command: GroupCommand, group_id: u32, actions: &[Action]) -> GroupMod {
    let bucket = Bucket::new(0, actions);
    GroupMod {
        command,
        kind: GroupKind::All,
        group_id,
        command_bucket_id: bucket::ALL,
        buckets: if command == GroupCommand::Delete { Vec::new() } else { vec![bucket] },
        properties: GroupProperties::default(),
    }
}

#[test]
fn a_flow_forwards_after_a_barrier_and_its_counters_are_exact() {
    for version in Version::ALL {
        let mut b = Bench::new(2);
        let p = b.connect(Kind::Service, version);
        let mut m = Match::ANY;
        m.set(Field::InPortOxm, 1);
        b.add(p, flow(5, m, &[output(2)]));
        assert_eq!(b.one(p, Body::BarrierRequest), Body::BarrierReply);
        b.tick(3000);
        for _ in 0..5 {
            b.receive(1, &udp(1, 2));
        }
        assert_eq!(b.sent(2), 5, "{version}");
        let flows = b.flows(p);
        assert_eq!(flows.len(), 1);
        assert_eq!((flows[0].packet_count, flows[0].duration.as_secs()), (5, 3), "{version}");
        assert_eq!(flows[0].actions[..], [output(2)]);
        let request = MultipartRequest::Aggregate(Box::new(FlowStatsRequest::all()));
        let MultipartReply::Aggregate { stats, .. } = b.multipart(p, request) else { panic!() };
        assert_eq!((stats.flow_count, stats.packet_count), (1, 5));
        let MultipartReply::Table(tables) = b.multipart_parts(p, MultipartRequest::Table) else {
            panic!()
        };
        assert_eq!(tables.len(), 254);
        assert_eq!(
            (tables[0].active_count, tables[0].lookup_count, tables[0].matched_count),
            (1, 5, 5)
        );
    }
}

impl Bench {
    /// Returns a multipart reply of several messages as one.
    fn multipart_parts(&mut self, p: Peer, request: MultipartRequest) -> MultipartReply {
        let mut tables = Vec::new();
        for message in self.ask(p, 3, Body::MultipartRequest(request)) {
            match message.body {
                Body::MultipartReply { reply: MultipartReply::Table(part), .. } => {
                    tables.extend(part)
                }
                other => panic!("{other:?}"),
            }
        }
        MultipartReply::Table(tables)
    }
}

#[test]
fn dumps_are_complete_ordered_and_bounded_while_the_peer_does_not_read() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V13);
    const N: u32 = 20_000;
    for n in 0..N {
        b.switch.flow_mod(b.bridge, &flow(5, ip(n), &[output(1)])).unwrap();
    }
    let request = Message::new(
        9,
        Body::MultipartRequest(MultipartRequest::Flow(Box::new(FlowStatsRequest::all()))),
    );
    let request = request.encode(&p.protocol).unwrap();
    let barrier = Message::new(10, Body::BarrierRequest).encode(&p.protocol).unwrap();
    b.bytes(p, &[request, barrier].concat());
    assert!(!b.connections.wants_input(p.id));
    // The memory does not grow with the duration of the wait.
    for _ in 0..10 {
        b.tick(100);
    }
    let mut most = 0;
    let mut seen = 0;
    let mut barrier_at = None;
    loop {
        let bytes = b.connections.take_output(p.id);
        if bytes.is_empty() {
            break;
        }
        most = most.max(bytes.len());
        for message in frame::split(&bytes) {
            match Message::decode(message, &p.protocol).unwrap().body {
                Body::MultipartReply { reply: MultipartReply::Flow { flows, .. }, more } => {
                    for f in flows {
                        assert_eq!(f.matching, ip(seen), "in the order in which they were added");
                        seen += 1;
                    }
                    assert_eq!(more, seen < N);
                }
                Body::BarrierReply => barrier_at = Some(seen),
                other => panic!("{other:?}"),
            }
        }
        b.tick(0);
    }
    assert_eq!((seen, barrier_at), (N, Some(N)));
    assert!(most < 700 << 10, "{most} bytes");
    assert!(b.connections.wants_input(p.id));
}

#[test]
fn bad_flow_mods_get_the_right_error_and_change_nothing() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V13);
    let good = flow(5, ip(1), &[output(1)]);
    let set_port = Action::SetField {
        field: Field::TcpDst,
        value: 80,
        mask: 0xffff,
        spelled: openflow::action::SetSpelling::SetField,
    };
    let mut of_connection = Match::ANY;
    of_connection.set_masked(Field::CtState, EST.into(), EST.into());
    of_connection.set(Field::CtNwSrc, 0x0a00_0001);
    let deleted = FlowMod {
        command: FlowModCommand::DeleteStrict,
        matching: of_connection,
        ..flow(5, Match::ANY, &[])
    };
    for (fm, error) in [
        // Addresses of a connection need their Ethernet type, also to delete a flow.
        (flow(5, of_connection, &[]), OfError::OFPBAC_MATCH_INCONSISTENT),
        (deleted, OfError::OFPBAC_MATCH_INCONSISTENT),
        (FlowMod { buffer_id: Some(7), ..good.clone() }, OfError::OFPBRC_BUFFER_UNKNOWN),
        (FlowMod { buffer_id: Some(7), table_id: 254, ..good.clone() }, OfError::OFPBRC_EPERM),
        (flow(5, ip(1), &[Action::Group(9)]), OfError::OFPBAC_BAD_OUT_GROUP),
        (flow(5, ip(1), &[Action::Meter(9)]), OfError::OFPMMFC_INVALID_METER),
        (flow(5, ip(1), &[set_port]), OfError::OFPBAC_MATCH_INCONSISTENT),
        (
            FlowMod { table_id: 4, ..flow(5, ip(1), &[Action::GotoTable(3)]) },
            OfError::OFPBIC_BAD_TABLE_ID,
        ),
    ] {
        assert_eq!(b.error(p, Body::FlowMod(Box::new(fm.clone()))), error, "{fm:?}");
    }
    assert_eq!(b.rule_count(), 0);
    b.add(p, good.clone());
    let overlap = FlowMod { flags: FlowFlags::CHECK_OVERLAP, ..flow(5, Match::ANY, &[]) };
    assert_eq!(b.error(p, Body::FlowMod(Box::new(overlap))), OfError::OFPFMFC_OVERLAP);
    assert_eq!(b.rule_count(), 1);
}

#[test]
fn groups_and_meters_are_made_described_and_removed_with_their_rules() {
    let mut b = Bench::new(2);
    let p = b.connect(Kind::Service, Version::V13);
    assert!(b.ask(p, 1, Body::GroupMod(group_mod(GroupCommand::Add, 7, &[output(2)]))).is_empty());
    assert_eq!(
        b.error(p, Body::GroupMod(group_mod(GroupCommand::Add, 7, &[output(2)]))),
        OfError::OFPGMFC_GROUP_EXISTS
    );
    let meter = MeterConfig {
        meter_id: 3,
        flags: MeterFlags::KBPS | MeterFlags::STATS,
        bands: vec![MeterBand { kind: MeterBandKind::Drop, rate: 1000, burst_size: 0 }],
    };
    let add = MeterMod { command: MeterCommand::Add, meter: meter.clone() };
    assert!(b.ask(p, 1, Body::MeterMod(add)).is_empty());
    b.add(p, flow(5, ip(0x0a00_0002), &[Action::Meter(3), Action::Group(7)]));
    b.one(p, Body::BarrierRequest);
    b.receive(1, &udp(1, 2));
    let MultipartReply::Group(groups) = b.multipart(p, MultipartRequest::Group(GROUP_ALL)) else {
        panic!()
    };
    assert_eq!((groups[0].group_id, groups[0].ref_count, groups[0].packet_count), (7, 1, 1));
    assert_eq!(groups[0].buckets[0].0, 1);
    let MultipartReply::GroupDesc(descs) = b.multipart(p, MultipartRequest::GroupDesc(GROUP_ALL))
    else {
        panic!()
    };
    assert_eq!(descs[0].buckets[0].actions[..], [output(2)]);
    let MultipartReply::Meter(meters) = b.multipart(p, MultipartRequest::Meter(3)) else {
        panic!()
    };
    assert_eq!((meters[0].flow_count, meters[0].packet_in_count), (1, 1));
    let MultipartReply::MeterConfig(configs) = b.multipart(p, MultipartRequest::MeterConfig(3))
    else {
        panic!()
    };
    assert_eq!(configs[..], [meter]);
    assert_eq!(
        b.error(p, Body::MultipartRequest(MultipartRequest::Meter(4))),
        OfError::OFPMMFC_UNKNOWN_METER
    );
    let MultipartReply::GroupFeatures(f) = b.multipart(p, MultipartRequest::GroupFeatures) else {
        panic!()
    };
    assert_eq!((f.kinds, f.capabilities, f.max_groups), (0xf, 7, [0xffff_ff00; 4]));
    assert!(b.ask(p, 1, Body::GroupMod(group_mod(GroupCommand::Delete, 7, &[]))).is_empty());
    assert_eq!(b.rule_count(), 0);
}

#[test]
fn port_mods_check_the_address_and_keep_their_bits() {
    let mut b = Bench::new(2);
    let p = b.connect(Kind::Service, Version::V13);
    let pm = PortMod {
        port_no: PortNo(1),
        hw_addr: [0; 6],
        config: PortConfig::NO_FWD | PortConfig::NO_RECV,
        mask: PortConfig::NO_FWD,
        advertise: PortFeatures::empty(),
    };
    assert_eq!(
        b.error(p, Body::PortMod(PortMod { port_no: PortNo(9), ..pm })),
        OfError::OFPPMFC_BAD_PORT
    );
    assert_eq!(
        b.error(p, Body::PortMod(PortMod { hw_addr: [1; 6], ..pm })),
        OfError::OFPPMFC_BAD_HW_ADDR
    );
    assert!(b.ask(p, 1, Body::PortMod(pm)).is_empty());
    let MultipartReply::PortDesc(ports) = b.multipart(p, MultipartRequest::PortDesc(PortNo::NONE))
    else {
        panic!()
    };
    assert_eq!(ports.len(), 2);
    assert!(
        ports[0].config.contains(PortConfig::NO_FWD)
            && !ports[0].config.contains(PortConfig::NO_RECV)
    );
    let MultipartReply::Port(stats) = b.multipart(p, MultipartRequest::Port(PortNo(2))) else {
        panic!()
    };
    assert_eq!((stats.len(), stats[0].port_no), (1, PortNo(2)));
    let MultipartReply::Port(none) = b.multipart(p, MultipartRequest::Port(PortNo(9))) else {
        panic!()
    };
    assert!(none.is_empty());
}

#[test]
fn queues_are_none_and_asking_for_one_is_an_error() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V13);
    let ask = |port, queue| MultipartRequest::Queue(QueueRequest { port: PortNo(port), queue });
    let MultipartReply::Queue(none) = b.multipart(p, ask(1, QueueRequest::ALL)) else { panic!() };
    assert!(none.is_empty());
    assert_eq!(b.error(p, Body::MultipartRequest(ask(1, 3))), OfError::OFPQOFC_BAD_QUEUE);
    assert_eq!(b.error(p, Body::MultipartRequest(ask(9, 3))), OfError::OFPQOFC_BAD_PORT);
    let Body::QueueGetConfigReply { queues, .. } =
        b.one(p, Body::QueueGetConfigRequest { port: PortNo(1) })
    else {
        panic!()
    };
    assert!(queues.is_empty());
}

#[test]
fn table_mods_are_per_table_and_features_say_what_ovs_says() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V14);
    let tm = TableMod {
        table_id: 2,
        miss: TableMiss::Default,
        eviction: Some(true),
        eviction_flags: None,
        vacancy_events: None,
        vacancy: None,
    };
    assert!(b.ask(p, 1, Body::TableMod(tm)).is_empty());
    let MultipartReply::TableDesc(tables) = b.multipart(p, MultipartRequest::TableDesc) else {
        panic!()
    };
    assert_eq!(tables.len(), 254);
    assert!(tables[2].eviction && !tables[1].eviction);
    let mut features = Vec::new();
    for message in
        b.ask(p, 3, Body::MultipartRequest(MultipartRequest::TableFeatures(Default::default())))
    {
        let Body::MultipartReply { reply: MultipartReply::TableFeatures(part), .. } = message.body
        else {
            panic!("{message:?}")
        };
        features.extend(part);
    }
    assert_eq!(features.len(), 254);
    assert_eq!(features[0].nonmiss.next.iter().count(), 253);
    assert!(features[253].nonmiss.next.is_empty());
    assert_eq!(features[5].max_entries, 1_000_000);
    let q = b.connect(Kind::Service, Version::V11);
    let drop = TableMod { table_id: 255, miss: TableMiss::Controller, eviction: None, ..tm };
    assert!(b.ask(q, 1, Body::TableMod(drop)).is_empty());
    let table = b.switch.bridge(b.bridge).unwrap().pipeline.table(9).unwrap().miss;
    assert_eq!(table, bridge::snapshot::TableMiss::Controller);
}

#[test]
fn packet_outs_go_out_or_through_the_tables() {
    let mut b = Bench::new(3);
    let p = b.connect(Kind::Service, Version::V10);
    let mut metadata = Match::ANY;
    metadata.set(Field::InPortOxm, PortNo::NONE.0.into());
    let po = PacketOut {
        buffer_id: None,
        data: udp(1, 2).data().to_vec(),
        metadata,
        actions: [output(2), output(3)].into(),
    };
    assert!(b.ask(p, 1, Body::PacketOut(Box::new(po.clone()))).is_empty());
    assert_eq!((b.sent(2), b.sent(3)), (1, 1));
    b.add(p, flow(5, Match::ANY, &[output(3)]));
    let mut from_1 = Match::ANY;
    from_1.set(Field::InPortOxm, 1);
    let table =
        PacketOut { metadata: from_1, actions: [output(PortNo::TABLE.0)].into(), ..po.clone() };
    assert!(b.ask(p, 1, Body::PacketOut(Box::new(table))).is_empty());
    assert_eq!((b.sent(2), b.sent(3)), (0, 1));
    // A packet-out may name an ingress port that does not exist.
    let mut from_9 = Match::ANY;
    from_9.set(Field::InPortOxm, 9);
    let before = b.sent(2);
    let from_9 = PacketOut { metadata: from_9, actions: [output(2)].into(), ..po.clone() };
    assert!(b.ask(p, 1, Body::PacketOut(Box::new(from_9))).is_empty());
    assert_eq!(b.sent(2), before + 1);
    let buffered = PacketOut { buffer_id: Some(1), data: Vec::new(), ..po.clone() };
    assert_eq!(b.error(p, Body::PacketOut(Box::new(buffered))), OfError::OFPBRC_BUFFER_UNKNOWN);
}

/// A packet-out of a packet from port 1.
fn from_1(actions: &[Action]) -> Body {
    let mut metadata = Match::ANY;
    metadata.set(Field::InPortOxm, 1);
    let data = udp(1, 2).data().to_vec();
    Body::PacketOut(Box::new(PacketOut {
        buffer_id: None,
        data,
        metadata,
        actions: actions.into(),
    }))
}

#[test]
fn a_packet_out_whose_actions_have_no_end_is_an_error_and_counts_nowhere() {
    let mut b = Bench::new(2);
    let p = b.connect(Kind::Service, Version::V13);
    let round = Action::Resubmit { port: None, table: Some(0), original_tuple: false };
    b.add(p, flow(5, Match::ANY, &[output(2), round]));
    let lost = from_1(&[output(2), output(PortNo::TABLE.0)]);
    assert_eq!(b.error(p, lost), OfError::OFPFMFC_UNKNOWN);
    assert_eq!((b.sent(2), b.flows(p)[0].packet_count), (0, 0));
}

fn actions(text: &str) -> Vec<Action> {
    openflow::text::parse_actions(text, Version::V13, &|_| None).unwrap()
}

#[test]
fn what_a_packet_out_learns_is_there_for_the_next_message() {
    let mut b = Bench::new(2);
    let p = b.connect(Kind::Service, Version::V13);
    let learn = actions("learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]),output:2");
    assert!(b.ask(p, 1, from_1(&learn)).is_empty());
    assert_eq!((b.rule_count(), b.sent(2)), (1, 1));
    assert!(b.events.lock().unwrap().is_empty(), "it would be learned once more, later");
    // Two messages in direct succession.
    let delete = Body::FlowMod(Box::new(delete_all()));
    let messages = [from_1(&learn), delete].map(|body| Message { xid: 1, body });
    let bytes = messages.map(|message| message.encode(&p.protocol).unwrap());
    b.bytes(p, &bytes.concat());
    assert!(b.output(p).is_empty());
    assert_eq!((b.rule_count(), b.sent(2)), (0, 1));
}

#[test]
fn what_a_packet_out_learns_is_told_together() {
    let mut b = Bench::new(2);
    let learn = actions(
        "learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]),\
         learn(table=2,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])",
    );
    let bridge = b.bridge;
    let told = b.switch.packet_out(bridge, udp(1, 2), &Match::ANY, PortNo(1), &learn).unwrap();
    // Monitors that pause between two reports would miss the second.
    let [(of, changes)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((*of, changes.len()), (bridge, 2));
}

#[test]
fn a_packet_out_that_cannot_learn_all_learns_nothing_and_is_not_sent() {
    let mut b = Bench::new(2);
    let p = b.connect(Kind::Service, Version::V13);
    let pipeline = &mut b.switch.bridge_mut(b.bridge).unwrap().pipeline;
    pipeline.table_mut(1).unwrap().eviction.limit = Some(1);
    let learn = actions(
        "learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]),\
         learn(table=1,NXM_OF_ETH_SRC[]=NXM_OF_ETH_DST[]),output:2",
    );
    assert_eq!(b.error(p, from_1(&learn)), OfError::OFPFMFC_TABLE_FULL);
    assert_eq!((b.rule_count(), b.sent(2)), (0, 0));
}

#[test]
fn text_of_rules_is_ovs_s() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V10);
    b.add(p, flow(32768, Match::ANY, &[output(PortNo::NORMAL.0)]));
    b.add(p, flow(0, ip(0x0a00_0001), &[output(1)]));
    b.switch.flow_mod(b.bridge, &FlowMod { table_id: 3, ..flow(5, Match::ANY, &[]) }).unwrap();
    b.tick(2500);
    let text = format_flows(b.switch.bridge(b.bridge).unwrap(), b.clock.now());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "duration=2s, n_packets=0, n_bytes=0, ,actions=NORMAL",
            "duration=2s, n_packets=0, n_bytes=0, priority=0,ip,nw_dst=10.0.0.1,actions=output:1",
            "table_id=3, duration=2s, n_packets=0, n_bytes=0, priority=5,actions=drop",
            "table_id=254, duration=2s, n_packets=0, n_bytes=0, priority=2,recirc_id=0,actions=drop",
            "table_id=254, duration=2s, n_packets=0, n_bytes=0, priority=0,reg0=0x1,actions=controller(reason=)",
            "table_id=254, duration=2s, n_packets=0, n_bytes=0, priority=0,reg0=0x2,actions=drop",
            "table_id=254, duration=2s, n_packets=0, n_bytes=0, priority=0,reg0=0x3,actions=drop",
        ]
    );
}

#[test]
fn a_request_whose_next_part_does_not_come_is_given_up() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Service, Version::V15);
    let part = || {
        let request = TableFeaturesRequest { more: true, ..TableFeaturesRequest::default() };
        Body::MultipartRequest(MultipartRequest::TableFeatures(request))
    };
    assert!(b.ask(p, 7, part()).is_empty());
    // There is one such request at a time.
    assert_eq!(b.error(p, part()), OfError::OFPBRC_MULTIPART_BUFFER_OVERFLOW);
    b.tick(600);
    assert!(b.ask(p, 7, part()).is_empty());
    b.tick(600);
    assert!(b.output(p).is_empty());
    assert_eq!(b.connections.deadline(), Some(b.clock.now() + 400));
    b.tick(400);
    let got = b.output(p);
    let [Message { xid: 7, body: Body::Error(e) }] = &got[..] else { panic!("{got:?}") };
    assert_eq!(known(&e.error), OfError::OFPBRC_MULTIPART_REQUEST_TIMEOUT);
}

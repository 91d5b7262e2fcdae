// SPDX-License-Identifier: Apache-2.0
//! Encoded messages decode to the same value, for values of all kinds in all versions.

use super::*;
use crate::PortNo;
use crate::action::{Action, LearnTarget};
use crate::hex::unhex;
use ::flow::{Field, Match};
use proptest::prelude::*;
use std::time::Duration;

fn back(body: Body, protocol: &Protocol) -> Body {
    let message = Message { xid: 0x0102_0304, body };
    let bytes = message.encode(protocol).expect("the version can say it");
    let got = Message::decode(&bytes, protocol).expect("what we write can be read");
    assert_eq!(got.xid, message.xid);
    got.body
}

fn version(since: Version) -> impl Strategy<Value = Version> {
    proptest::sample::select(Version::ALL.into_iter().filter(|v| *v >= since).collect::<Vec<_>>())
}

fn port() -> impl Strategy<Value = PortNo> {
    prop_oneof![
        (1u32..0xff00).prop_map(PortNo),
        proptest::sample::select(vec![PortNo::LOCAL, PortNo::NONE, PortNo::CONTROLLER]),
    ]
}

fn name() -> impl Strategy<Value = String> {
    "[a-z0-9_-]{0,15}"
}

/// A match that every version can express.
fn matching() -> impl Strategy<Value = Match> {
    (port(), any::<u64>(), 0u8..3, any::<u16>(), any::<u32>(), 0u32..33).prop_map(
        |(in_port, mac, kind, l4, ip, prefix)| {
            let mut m = Match::ANY;
            m.set(Field::InPort, u128::from(in_port.to_u16().unwrap_or(1)));
            m.set(Field::EthDst, u128::from(mac & 0xffff_ffff_ffff));
            if kind > 0 {
                m.set(Field::EthType, 0x0800);
                m.set(Field::IpProto, if kind == 1 { 6 } else { 17 });
                let field = if kind == 1 { Field::TcpDst } else { Field::UdpDst };
                m.set(field, u128::from(l4));
                let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
                m.set_masked(Field::Ipv4Src, u128::from(ip), u128::from(mask));
            }
            m
        },
    )
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    proptest::collection::vec(
        prop_oneof![
            (1u32..0xff00).prop_map(|n| Action::Output { port: PortNo(n), max_len: 0 }),
            Just(Action::Output { port: PortNo::FLOOD, max_len: 0 }),
            Just(Action::Exit),
            any::<u32>().prop_map(Action::SetQueue),
        ],
        0..5,
    )
}

fn command() -> impl Strategy<Value = FlowModCommand> {
    proptest::sample::select(vec![
        FlowModCommand::Add,
        FlowModCommand::Modify,
        FlowModCommand::ModifyStrict,
        FlowModCommand::Delete,
        FlowModCommand::DeleteStrict,
    ])
}

/// A flow mod that `protocol` can express.
fn flow_mod() -> impl Strategy<Value = (Protocol, FlowMod)> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u16>(), any::<u16>(), any::<u16>(), 0u8..255);
    let rest = (any::<bool>(), any::<bool>(), port(), any::<u32>(), 0u16..0x20);
    (version(Version::V10), command(), matching(), actions(), numbers, rest).prop_map(
        |(version, command, matching, actions, numbers, rest)| {
            let (cookie, cookie_mask, idle_timeout, hard_timeout, priority, table_id) = numbers;
            let (nxm, tid, out_port, out_group, flags) = rest;
            let mut protocol = Protocol::new(version);
            protocol.flow_mod_table_id = tid;
            if nxm {
                protocol.flow_format = FlowFormat::Nxm;
            }
            let v10 = version == Version::V10;
            let adds = command == FlowModCommand::Add;
            let deletes = matches!(command, FlowModCommand::Delete | FlowModCommand::DeleteStrict);
            let new = adds || v10;
            let mask = if adds || (v10 && !nxm) { 0 } else { cookie_mask | 1 };
            let known = flow::encode_flags(FlowFlags::from_bits_truncate(flags), version);
            let mut flags = flow::decode_flags(known, version).expect("known flags");
            flags.remove(FlowFlags::EMERGENCY);
            if version < Version::V12 && adds {
                flags |= FlowFlags::RESET_COUNTS;
            }
            let m = FlowMod {
                command,
                matching,
                priority,
                cookie: if v10 {
                    cookie & mask
                } else if mask == 0 {
                    0
                } else {
                    cookie
                },
                cookie_mask: mask,
                new_cookie: if new { cookie } else { u64::MAX },
                modify_cookie: v10 && cookie != u64::MAX,
                table_id: if v10 && !tid { TABLE_ALL } else { table_id },
                idle_timeout,
                hard_timeout,
                importance: if version >= Version::V14 { hard_timeout } else { 0 },
                buffer_id: None,
                out_port: if v10 {
                    PortNo::from_u16(out_port.to_u16().unwrap_or(1))
                } else {
                    out_port
                },
                out_group: if v10 || !deletes { GROUP_ANY } else { out_group },
                flags,
                actions: actions.into(),
            };
            (protocol, m)
        },
    )
}

fn port_desc() -> impl Strategy<Value = PortDesc> {
    (port(), any::<[u8; 6]>(), name(), any::<u32>(), any::<[u32; 4]>(), any::<u32>()).prop_map(
        |(port_no, hw_addr, name, bits, features, speed)| {
            let [curr, advertised, supported, peer] =
                features.map(PortFeatures::from_bits_truncate);
            PortDesc {
                port_no,
                hw_addr,
                name,
                config: PortConfig::from_bits_truncate(bits)
                    & (PortConfig::PORT_DOWN | PortConfig::NO_RECV | PortConfig::NO_FWD),
                state: PortState::from_bits_truncate(bits) & PortState::LINK_DOWN,
                curr,
                advertised,
                supported,
                peer,
                curr_speed: speed,
                max_speed: speed / 2,
            }
        },
    )
}

fn buckets(weights: bool) -> impl Strategy<Value = Vec<Bucket>> {
    proptest::collection::vec((any::<u16>(), actions()), 0..6).prop_map(move |all| {
        let bucket = |(id, (weight, actions)): (usize, (u16, Vec<Action>))| Bucket {
            weight: if weights { weight } else { 0 },
            ..Bucket::new(id as u32, actions)
        };
        all.into_iter().enumerate().map(bucket).collect()
    })
}

fn duration() -> impl Strategy<Value = Duration> {
    (any::<u32>(), 0u32..1_000_000_000).prop_map(|(s, n)| Duration::new(u64::from(s), n))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn flow_mods((protocol, m) in flow_mod()) {
        let expected = Body::FlowMod(Box::new(m));
        prop_assert_eq!(back(expected.clone(), &protocol), expected);
    }

    #[test]
    fn bundled_flow_mods((protocol, m) in flow_mod(), flags in 0u16..4) {
        prop_assume!(protocol.version >= Version::V13);
        let message = Message { xid: 0x0102_0304, body: Body::FlowMod(Box::new(m)) };
        let raw = message.encode(&protocol).expect("encodes");
        let add = BundleAdd {
            bundle_id: 7,
            flags: BundleFlags::from_bits_truncate(flags),
            message,
            raw: raw[..raw.len().min(64)].to_vec(),
        };
        let expected = Body::BundleAdd(Box::new(add));
        prop_assert_eq!(back(expected.clone(), &protocol), expected);
    }

    #[test]
    fn flow_statistics(
        version in version(Version::V10),
        matching in matching(),
        actions in actions(),
        duration in duration(),
        counts in any::<[u32; 2]>(),
        times in any::<[u16; 4]>(),
        nicira in any::<bool>(),
    ) {
        let nicira = nicira && version == Version::V10;
        let flow = FlowStats {
            table_id: if nicira { 3 } else { 254 },
            matching,
            priority: times[0],
            cookie: u64::from(counts[0]) << 32,
            duration,
            idle_timeout: times[1],
            hard_timeout: times[2],
            idle_age: (nicira || version == Version::V15).then_some(times[3] / 2),
            hard_age: nicira.then_some(times[3] / 3),
            importance: if version >= Version::V14 { times[0] } else { 0 },
            flags: if version >= Version::V13 { FlowFlags::SEND_FLOW_REM } else { FlowFlags::empty() },
            packet_count: u64::from(counts[0]),
            byte_count: u64::from(counts[1]),
            actions: actions.into(),
        };
        let reply = MultipartReply::Flow { flows: vec![flow.clone(), flow], nicira };
        let expected = Body::MultipartReply { more: false, reply };
        prop_assert_eq!(back(expected.clone(), &Protocol::new(version)), expected);
    }

    #[test]
    fn ports(version in version(Version::V10), mut port in port_desc(), reason in 0u8..3) {
        if version == Version::V10 {
            let no = PortFeatures::FD_40GB | PortFeatures::FD_100GB | PortFeatures::FD_1TB | PortFeatures::OTHER;
            for f in [&mut port.curr, &mut port.advertised, &mut port.supported, &mut port.peer] {
                f.remove(no);
            }
            (port.curr_speed, port.max_speed) = (0, 0);
        }
        let reason = [PortStatusReason::Add, PortStatusReason::Delete, PortStatusReason::Modify][usize::from(reason)];
        let protocol = Protocol::new(version);
        let expected = Body::PortStatus(PortStatus { reason, port: port.clone() });
        prop_assert_eq!(back(expected.clone(), &protocol), expected);
        let reply = MultipartReply::PortDesc(vec![port.clone(), port]);
        let expected = Body::MultipartReply { more: true, reply };
        prop_assert_eq!(back(expected.clone(), &protocol), expected);
    }

    #[test]
    fn groups(version in version(Version::V10), buckets in buckets(true), id in 0u32..GROUP_MAX) {
        let kind = GroupKind::Select;
        let mut properties = GroupProperties::default();
        if version == Version::V10 || version == Version::V15 {
            properties.selection_method = "hash".into();
            properties.selection_param = u64::from(id);
            properties.fields = vec![(Field::Ipv4Src, 0xffff_ff00), (Field::EthDst, 0xff)];
        }
        let m = GroupMod {
            command: GroupCommand::Add,
            kind,
            group_id: id,
            command_bucket_id: bucket::ALL,
            buckets: buckets.clone(),
            properties: properties.clone(),
        };
        let protocol = Protocol::new(version);
        let expected = Body::GroupMod(m);
        prop_assert_eq!(back(expected.clone(), &protocol), expected);
        let desc = GroupDesc { group_id: id, kind, buckets, properties };
        let expected = Body::MultipartReply { more: false, reply: MultipartReply::GroupDesc(vec![desc]) };
        prop_assert_eq!(back(expected.clone(), &protocol), expected);
    }

    #[test]
    fn packet_ins(
        version in version(Version::V10),
        port in 1u32..0xff00,
        data in proptest::collection::vec(any::<u8>(), 1..200),
        userdata in proptest::collection::vec(any::<u8>(), 0..20),
        cookie in any::<u64>(),
        format in 0..3,
    ) {
        let mut protocol = Protocol::new(version);
        protocol.packet_in_format =
            [PacketInFormat::Standard, PacketInFormat::Nxt, PacketInFormat::Nxt2][format as usize];
        let mut metadata = Match::ANY;
        metadata.set(Field::InPortOxm, u128::from(port));
        let full = protocol.packet_in_format == PacketInFormat::Nxt2;
        let old = protocol.packet_in_format == PacketInFormat::Standard;
        let total_len = data.len() as u32 + 5;
        let p = PacketIn {
            reason: PacketInReason::Action,
            data,
            total_len,
            cookie: if old && version < Version::V13 { u64::MAX } else { cookie },
            table_id: if old && version == Version::V10 { 0 } else { 9 },
            metadata,
            userdata: if full { userdata } else { Vec::new() },
            continuation: full.then(|| Box::new(Continuation {
                bridge: [9; 16],
                stack: vec![vec![1], vec![2, 3]],
                mirrors: 5,
                conntracked: true,
                frames: vec![ContinuationFrame {
                    table_id: 4,
                    cookie,
                    actions: vec![Action::Output { port: PortNo(2), max_len: 0 }],
                }],
                action_set: vec![Action::Output { port: PortNo(3), max_len: 0 }],
                odp_port: Some(3),
            })),
        };
        let expected = Body::PacketIn(Box::new(p));
        prop_assert_eq!(back(expected.clone(), &protocol), expected);
    }

    #[test]
    fn meters(version in version(Version::V13), id in any::<u32>(), rates in proptest::collection::vec(any::<(u32, u32, u8)>(), 0..5)) {
        let bands = rates.iter().map(|(rate, burst_size, prec_level)| MeterBand {
            kind: if prec_level & 1 == 0 { MeterBandKind::Drop } else { MeterBandKind::DscpRemark { prec_level: *prec_level } },
            rate: *rate,
            burst_size: *burst_size,
        });
        let meter = MeterConfig { meter_id: id, flags: MeterFlags::PKTPS | MeterFlags::STATS, bands: bands.collect() };
        let protocol = Protocol::new(version);
        let expected = Body::MeterMod(MeterMod { command: MeterCommand::Modify, meter: meter.clone() });
        prop_assert_eq!(back(expected.clone(), &protocol), expected);
        let reply = MultipartReply::MeterConfig(vec![meter]);
        let expected = Body::MultipartReply { more: false, reply };
        prop_assert_eq!(back(expected.clone(), &protocol), expected);
    }
}

#[test]
fn long_replies_are_split_between_records() {
    for version in Version::ALL {
        let flow = FlowStats {
            table_id: 1,
            matching: Match::ANY,
            priority: 5,
            cookie: 0,
            duration: Duration::from_secs(1),
            idle_timeout: 0,
            hard_timeout: 0,
            idle_age: None,
            hard_age: None,
            importance: 0,
            flags: FlowFlags::empty(),
            packet_count: 1,
            byte_count: 2,
            actions: vec![Action::Output { port: PortNo(7), max_len: 0 }].into(),
        };
        let mut flows = vec![flow; 3000];
        for (i, flow) in flows.iter_mut().enumerate() {
            flow.cookie = i as u64;
        }
        let protocol = Protocol::new(version);
        let message =
            Message::reply(77, MultipartReply::Flow { flows: flows.clone(), nicira: false });
        let bytes = message.encode(&protocol).expect("flows fit");
        let mut got = Vec::new();
        let mut ended = false;
        let mut parts = 0;
        for part in crate::frame::split(&bytes) {
            assert!(!ended, "nothing follows the last part");
            parts += 1;
            let part = Message::decode(part, &protocol).expect("each part is a message");
            assert_eq!(part.xid, 77);
            let Body::MultipartReply { more, reply: MultipartReply::Flow { flows, .. } } =
                part.body
            else {
                panic!("a flow reply")
            };
            ended = !more;
            got.extend(flows);
        }
        assert!(ended && parts > 3, "{parts} parts");
        assert!(got == flows, "{version}");
    }
}

#[test]
fn a_record_that_is_too_long_is_refused() {
    let actions = vec![Action::Output { port: PortNo(7), max_len: 0 }; 9000];
    let group = GroupDesc {
        group_id: 1,
        kind: GroupKind::All,
        buckets: vec![Bucket::new(0, actions)],
        properties: GroupProperties::default(),
    };
    let message = Message::reply(1, MultipartReply::GroupDesc(vec![group]));
    let mut out = vec![1, 2, 3];
    let done = message.encode_to(&Protocol::new(Version::V13), &mut out);
    assert!(matches!(done, Err(EncodeError::TooLong { .. })), "{done:?}");
    assert_eq!(out, [1, 2, 3]);
}

#[test]
fn what_a_version_cannot_say() {
    let m = MeterMod {
        command: MeterCommand::Add,
        meter: MeterConfig { meter_id: 1, flags: MeterFlags::KBPS, bands: Vec::new() },
    };
    let message = Message::new(1, Body::MeterMod(m));
    assert_eq!(
        message.encode(&Protocol::new(Version::V10)),
        Err(EncodeError::Unsupported { what: "OFPT_METER_MOD", version: Version::V10 })
    );
}

#[test]
fn a_part_beyond_its_field_is_refused_where_nothing_checks_actions() {
    let text = "learn(table=2,NXM_OF_ICMP_TYPE[]=NXM_OF_ICMP_TYPE[])";
    let mut actions =
        crate::text::parse_actions(text, Version::V13, &::flow::text::no_numbers).unwrap();
    if let [Action::Learn(learn)] = actions.as_mut_slice()
        && let LearnTarget::Match(part) = &mut learn.specs[0].dst
    {
        part.start = 125;
    }
    let bucket = Bucket::new(0, actions);
    let group = GroupMod {
        command: GroupCommand::Add,
        kind: GroupKind::All,
        group_id: 1,
        command_bucket_id: bucket::ALL,
        buckets: vec![bucket],
        properties: GroupProperties::default(),
    };
    for version in [Version::V13, Version::V15] {
        let protocol = Protocol::new(version);
        let message = Message::new(1, Body::GroupMod(group.clone()));
        let error = Message::decode(&message.encode(&protocol).unwrap(), &protocol).unwrap_err();
        assert_eq!(error.error, OfError::OFPBAC_BAD_SET_LEN);
    }
}

#[test]
fn a_wrong_version_is_refused_but_for_the_messages_of_all() {
    let bytes = [4, 5, 0, 8, 0, 0, 0, 9];
    let error = Message::decode(&bytes, &Protocol::new(Version::V15)).unwrap_err();
    assert_eq!((error.error, error.xid), (OfError::OFPBRC_BAD_VERSION, 9));
    let echo = Message::decode(&[9, 2, 0, 8, 0, 0, 0, 9], &Protocol::new(Version::V10));
    assert_eq!(echo.map(|m| m.body), Ok(Body::EchoRequest(Vec::new())));
}

#[test]
fn table_features_read_back() {
    for version in [Version::V13, Version::V14, Version::V15] {
        let mut f = TableFeatures::full(3, 254);
        f.name = "table3".into();
        f.supports_eviction = version >= Version::V14;
        let reply = MultipartReply::TableFeatures(vec![f.clone()]);
        let Body::MultipartReply { reply: MultipartReply::TableFeatures(got), .. } =
            back(Body::MultipartReply { more: false, reply }, &Protocol::new(version))
        else {
            panic!("table features")
        };
        assert_eq!(got[0].matches, f.matches, "{version}");
        assert_eq!(got[0].masks, f.masks);
        assert_eq!(got[0].wildcards, f.wildcards);
        assert_eq!(got[0].nonmiss.next, f.nonmiss.next);
        assert_eq!(got[0].miss.apply.set_fields, f.miss.apply.set_fields);
        assert_eq!(got[0].name, "table3");
        assert_eq!(got[0].supports_eviction, f.supports_eviction);
    }
}

/// OVS's tables can do what ours can, but that OVS 3.1 has only the first half of the registers.
#[test]
fn full_table_features_are_those_of_ovs() {
    let is_older = |field: &Field| {
        let is_new = field.is_register()
            && field.def().position.offset >= Field::Reg16.def().position.offset;
        !is_new
    };
    for line in super::vectors::lines(include_str!("table_features.txt")) {
        let message = Message::decode(&line.bytes, &line.protocol).expect("OVS's table features");
        let Body::MultipartReply { reply: MultipartReply::TableFeatures(got), .. } = message.body
        else {
            panic!("table features")
        };
        let full = TableFeatures::full(0, 254);
        let reply = MultipartReply::TableFeatures(vec![full]);
        let Body::MultipartReply { reply: MultipartReply::TableFeatures(mut ours), .. } =
            back(Body::MultipartReply { more: false, reply }, &line.protocol)
        else {
            panic!("table features")
        };
        for table in &mut ours {
            assert!(table.masks.contains(&Field::Reg31) && table.masks.contains(&Field::Xxreg7));
            assert!(table.nonmiss.apply.set_fields.contains(&Field::Xreg15));
            let lists = [&mut table.nonmiss, &mut table.miss];
            let actions = lists.into_iter().flat_map(|list| [&mut list.write, &mut list.apply]);
            actions.for_each(|list| list.set_fields.retain(is_older));
            for fields in [&mut table.matches, &mut table.masks, &mut table.wildcards] {
                fields.retain(is_older);
            }
        }
        assert_eq!(ours, got, "{}", line.protocol.version);
    }
}

#[test]
fn errors_hold_the_whole_request_and_fit_the_longest() {
    for version in Version::ALL {
        let protocol = Protocol::new(version);
        for (len, kept) in [(200, 200), (usize::from(u16::MAX), ErrorMessage::MAX_DATA)] {
            let request = vec![7; len];
            // One of OpenFlow's own errors, and one that is Nicira's in some version.
            for error in [OfError::OFPBRC_BAD_LEN, OfError::NXTTMFC_BAD_FIELD_IDX] {
                let Body::Error(got) =
                    back(Body::Error(ErrorMessage::about(error, &request)), &protocol)
                else {
                    panic!("not an error any more")
                };
                assert_eq!(got.data, request[..kept], "{version:?} {error}");
            }
        }
    }
}

#[test]
fn group_features_of_early_versions_name_their_actions() {
    let features = |actions| GroupFeatures {
        kinds: 0xf,
        capabilities: 7,
        max_groups: [9; 4],
        actions: [actions; 4],
    };
    let told_by = |version, actions| {
        let reply = MultipartReply::GroupFeatures(features(actions));
        match back(Body::MultipartReply { more: false, reply }, &Protocol::new(version)) {
            Body::MultipartReply { reply: MultipartReply::GroupFeatures(f), .. } => f.actions[0],
            other => panic!("{other:?}"),
        }
    };
    let told = |actions| told_by(Version::V10, actions);
    assert_eq!(told(0), 0);
    assert_eq!(told(1 << 0 | 1 << 18 | 1 << 21), 1 << 0 | 1 << 3 | 1 << 11);
    assert_eq!(told(1 << 25), 0b111_1111_0110); // all SET_* but not enqueue
    assert_eq!(told(u32::MAX), 0xfff);
    let told = |actions| told_by(Version::V11, actions);
    assert_eq!(told(1 << 0 | 1 << 18 | 1 << 21), 1 << 0 | 1 << 18 | 1 << 21);
    assert_eq!(told(1 << 25), 0x67fe); // all SET_*, and no SET_FIELD
}

proptest! {
    #[test]
    fn ct_flush_goes_round(
        version in version(Version::V10),
        ip_proto in any::<u8>(),
        zone in proptest::option::of(any::<u16>()),
        mark in proptest::option::of((any::<u32>(), 1..=u32::MAX)),
        label in proptest::option::of((any::<u128>(), 1..=u128::MAX)),
        port in proptest::option::of(any::<u16>()),
    ) {
        let reply = CtTuple { dst_port: port, ..CtTuple::default() };
        let expected =
            Body::CtFlush(CtFlush { zone, ip_proto, mark, label, reply, ..CtFlush::default() });
        prop_assert_eq!(back(expected.clone(), &Protocol::new(version)), expected);
    }
}

/// Properties that only Open vSwitch 3.5 sends, in its form: a mask before its value, none where
/// it is all ones.
#[test]
fn marks_and_labels_of_ct_flush() {
    let decode = |properties: &str| {
        let body = format!("00002320000000200000000000000000{properties}");
        let bytes = unhex(&format!("0104{:04x}00000002{body}", body.len() / 2 + 8));
        Message::decode(&bytes, &Protocol::new(Version::V10)).map(|m| (m.body, bytes))
    };
    for (properties, mark, label) in [
        ("0003000800000011", Some((0x11, u32::MAX)), None),
        ("00040008000000ff0003000800000011", Some((0x11, 0xff)), None),
        ("000500140000000000000000000000000000002200000000", None, Some((0x22, u128::MAX))),
    ] {
        let Ok((body, bytes)) = decode(properties) else { panic!("{properties}") };
        assert_eq!(body, Body::CtFlush(CtFlush { mark, label, ..CtFlush::default() }));
        assert_eq!(Message::new(2, body).encode(&Protocol::new(Version::V10)).unwrap(), bytes);
    }
    // Padding may stand between a label's header and its value.
    let (body, _) = decode("000500180000000000000000000000000000000000000022").unwrap();
    let label = Some((0x22, u128::MAX));
    assert_eq!(body, Body::CtFlush(CtFlush { label, ..CtFlush::default() }));
    // Masks of zeros match anything; a label of 8 bytes is none.
    let (body, _) = decode("00040008000000000003000800000011").unwrap();
    assert_eq!(body, Body::CtFlush(CtFlush::default()));
    let error = decode("0005000c000000000000000000000000").unwrap_err().error;
    assert_eq!(error, OfError::OFPBPC_BAD_LEN);
}

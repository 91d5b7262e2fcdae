// SPDX-License-Identifier: Apache-2.0
//! Messages that the switch above did not happen to send, each checked by hand with
//! `ovs-ofctl ofp-print` of Open vSwitch 3.1 (`printed.txt` quotes its words).

use super::*;
use crate::action::Action;
use crate::hex::{hex, unhex};
use crate::{OfError, PortNo};
use ::flow::{Field, Match};
use std::time::Duration;

fn check(version: Version, body: Body, expected: &str) {
    let protocol = Protocol::new(version);
    let message = Message { xid: 1, body };
    let bytes = message.encode(&protocol).expect("the version can say it");
    assert_eq!(hex(&bytes), expected);
    assert_eq!(Message::decode(&unhex(expected), &protocol), Ok(message));
}

fn reply(reply: MultipartReply) -> Body {
    Body::MultipartReply { more: false, reply }
}

fn flow_update(event: FlowUpdateEvent) -> FlowUpdate {
    let mut matching = Match::ANY;
    matching.set(Field::EthType, 0x0800);
    FlowUpdate::Full(Box::new(FlowUpdateFull {
        event,
        table_id: 3,
        priority: 100,
        cookie: 0x1234,
        idle_timeout: 5,
        hard_timeout: 6,
        matching,
        actions: vec![Action::Output { port: PortNo(2), max_len: 0 }].into(),
    }))
}

fn meter_mod() -> MeterMod {
    let band =
        MeterBand { kind: MeterBandKind::DscpRemark { prec_level: 1 }, rate: 200, burst_size: 8 };
    let flags = MeterFlags::KBPS | MeterFlags::BURST;
    MeterMod {
        command: MeterCommand::Add,
        meter: MeterConfig { meter_id: 5, flags, bands: vec![band] },
    }
}

/// `id` is the bucket's number, which versions before 1.5 do not carry.
fn group_forward(id: u32) -> RequestForward {
    RequestForward {
        xid: 9,
        change: ForwardedChange::Group(GroupMod {
            command: GroupCommand::Add,
            kind: GroupKind::All,
            group_id: 7,
            command_bucket_id: bucket::ALL,
            buckets: vec![Bucket::new(id, vec![Action::Output { port: PortNo(2), max_len: 0 }])],
            properties: GroupProperties::default(),
        }),
    }
}

fn ipfix_stats(collector_set: u32) -> IpfixStats {
    IpfixStats {
        total_flows: 1,
        current_flows: 2,
        packets: 3,
        ipv4_packets: 4,
        ipv6_packets: 5,
        error_packets: 6,
        ipv4_error_packets: 7,
        ipv6_error_packets: 8,
        sent: 9,
        unsent: 10,
        collector_set,
    }
}

fn table() -> TableDesc {
    TableDesc {
        table_id: 1,
        eviction: true,
        eviction_flags: EvictionFlags::OTHER | EvictionFlags::LIFETIME,
        vacancy: Some(Vacancy { down: 20, up: 80, current: 50 }),
    }
}

fn all() -> Vec<(&'static str, Version, Body)> {
    let queue =
        QueueConfig { port: PortNo(1), queue: 7, min_rate: Some(100), max_rate: Some(1000) };
    let queue_stats = QueueStats {
        port: PortNo(1),
        queue: 7,
        tx_bytes: 1,
        tx_packets: 2,
        tx_errors: 3,
        duration: Some(Duration::from_millis(4500)),
    };
    let updates = vec![
        flow_update(FlowUpdateEvent::Added),
        flow_update(FlowUpdateEvent::Deleted(FlowRemovedReason::HardTimeout)),
        flow_update(FlowUpdateEvent::Modified),
        FlowUpdate::Abbrev { xid: 0x77 },
    ];
    let mut updates14 = updates.clone();
    updates14.extend([FlowUpdate::Paused, FlowUpdate::Resumed]);
    let meter_stats = MeterStats {
        meter_id: 5,
        flow_count: 2,
        packet_in_count: 10,
        byte_in_count: 1000,
        duration: Duration::from_millis(1500),
        bands: vec![(3, 300)],
    };
    let group_stats = GroupStats {
        group_id: 4,
        ref_count: 1,
        packet_count: 10,
        byte_count: 1000,
        duration: Duration::from_millis(1500),
        buckets: vec![(3, 300), (7, 700)],
    };
    let role =
        RoleStatus { role: Role::Secondary, reason: RoleReason::PrimaryRequest, generation_id: 9 };
    let tlv = TlvMap { class: 0xffff, kind: 1, len: 4, index: 2 };
    let mut v = vec![
        ("role status", Version::V14, Body::RoleStatus(role)),
        ("onf role status", Version::V13, Body::RoleStatus(role)),
        (
            "table status",
            Version::V14,
            Body::TableStatus(TableStatus {
                reason: TableStatusReason::VacancyDown,
                table: table(),
            }),
        ),
        (
            "request forward",
            Version::V15,
            Body::RequestForward(Box::new(RequestForward {
                xid: 9,
                change: ForwardedChange::Meter(meter_mod()),
            })),
        ),
        (
            "onf request forward",
            Version::V13,
            Body::RequestForward(Box::new(RequestForward {
                xid: 9,
                change: ForwardedChange::Meter(meter_mod()),
            })),
        ),
        ("nx request forward", Version::V10, Body::RequestForward(Box::new(group_forward(3)))),
        ("nx request forward", Version::V12, Body::RequestForward(Box::new(group_forward(0)))),
        ("table desc", Version::V15, reply(MultipartReply::TableDesc(vec![table()]))),
        ("queue desc", Version::V14, reply(MultipartReply::QueueDesc(vec![queue]))),
        (
            "queue config",
            Version::V10,
            Body::QueueGetConfigReply { port: PortNo(1), queues: vec![queue] },
        ),
        (
            "queue config",
            Version::V13,
            Body::QueueGetConfigReply { port: PortNo(1), queues: vec![queue] },
        ),
        ("ipfix of the bridge", Version::V10, reply(MultipartReply::IpfixBridge(ipfix_stats(0)))),
        (
            "ipfix of collector sets",
            Version::V13,
            reply(MultipartReply::IpfixFlow(vec![ipfix_stats(1), ipfix_stats(7)])),
        ),
        ("meters", Version::V13, reply(MultipartReply::Meter(vec![meter_stats]))),
        ("meter mod", Version::V15, Body::MeterMod(meter_mod())),
        ("nx monitor", Version::V10, reply(MultipartReply::FlowMonitor(updates.clone()))),
        ("nx monitor", Version::V12, reply(MultipartReply::FlowMonitor(updates.clone()))),
        ("onf monitor", Version::V13, reply(MultipartReply::FlowMonitor(updates))),
        ("monitor", Version::V14, reply(MultipartReply::FlowMonitor(updates14))),
        (
            "groups",
            Version::V11,
            reply(MultipartReply::Group(vec![GroupStats {
                duration: Duration::ZERO,
                ..group_stats.clone()
            }])),
        ),
        ("groups", Version::V15, reply(MultipartReply::Group(vec![group_stats]))),
        (
            "tlv table",
            Version::V13,
            Body::TlvTableReply(TlvTableReply {
                max_option_space: 256,
                max_fields: 64,
                mappings: vec![tlv],
            }),
        ),
        (
            "bundle reply",
            Version::V13,
            Body::BundleControl(BundleControl {
                bundle_id: 3,
                kind: BundleControlKind::CommitReply,
                flags: BundleFlags::ATOMIC | BundleFlags::ORDERED,
            }),
        ),
        ("paused", Version::V10, Body::FlowMonitorPaused),
        ("resumed", Version::V10, Body::FlowMonitorResumed),
        ("onf paused", Version::V13, Body::FlowMonitorPaused),
        ("onf resumed", Version::V13, Body::FlowMonitorResumed),
        (
            "role",
            Version::V13,
            Body::RoleReply(RoleRequest {
                role: Role::Primary,
                generation_id: Some(5),
                nicira: false,
            }),
        ),
        (
            "error",
            Version::V13,
            Body::Error(ErrorMessage::about(OfError::OFPBRC_BAD_TYPE, &[4, 99, 0, 8, 0, 0, 0, 1])),
        ),
        (
            "error",
            Version::V10,
            Body::Error(ErrorMessage::about(OfError::OFPBRC_BAD_PORT, &[1, 5, 0, 8, 0, 0, 0, 1])),
        ),
        (
            "config",
            Version::V10,
            Body::GetConfigReply(SwitchConfig {
                fragments: FragmentHandling::NxMatch,
                invalid_ttl_to_controller: Some(true),
                miss_send_len: 128,
            }),
        ),
    ];
    for version in [Version::V10, Version::V12, Version::V13, Version::V14] {
        let mut q = queue_stats;
        if version < Version::V13 {
            q.duration = None;
        }
        v.push(("queues", version, reply(MultipartReply::Queue(vec![q]))));
    }
    v
}

#[test]
fn bytes_are_those_that_ofp_print_was_shown() {
    let expected: Vec<&str> =
        include_str!("printed.txt").lines().filter(|line| !line.starts_with('#')).collect();
    let all = all();
    assert_eq!(all.len(), expected.len());
    for ((name, version, body), line) in all.into_iter().zip(expected) {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[..2], [(version as u8).to_string(), name.replace(' ', "-")]);
        check(version, body, words[2]);
    }
}

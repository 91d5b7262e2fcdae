// SPDX-License-Identifier: Apache-2.0
//! Messages are read back by their own templates.

use super::*;
use flow::{Key, VLAN_CFI, Vlan};

const SETTINGS: Settings = Settings {
    active_timeout_seconds: 60,
    max_flows: 100,
    template_seconds: 600,
    statistics_seconds: 600,
    virtual_obs_id: None,
};
const WALL: WallTime = WallTime { seconds: 1_000_000, nanoseconds: 250_000_000 };

/// A message: sequence number, domain, number of its set, and the set.
struct Message {
    sequence: u32,
    domain: u32,
    set: u16,
    body: Vec<u8>,
}

fn parse(bytes: &[u8]) -> Message {
    let half = |at: usize| u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap());
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!((half(0), usize::from(half(2))), (10, bytes.len()));
    assert!(bytes.len() <= 1472, "{} bytes", bytes.len());
    assert_eq!(usize::from(half(18)), bytes.len() - HEADER_BYTES);
    let body = bytes[20..].to_vec();
    Message { sequence: word(8), domain: word(12), set: half(16), body }
}

/// Elements of the templates: number with the enterprise's bit, and length.
type Templates = std::collections::BTreeMap<u16, Vec<(u16, u16)>>;

fn templates(messages: &[Message]) -> Templates {
    let mut out = Templates::new();
    for message in messages.iter().filter(|m| m.set == 2) {
        let mut rest = &message.body[..];
        let mut half = || {
            let (head, tail) = rest.split_at(2);
            rest = tail;
            u16::from_be_bytes(head.try_into().unwrap())
        };
        let mut left = message.body.len();
        while left > 0 {
            let (id, count) = (half(), half());
            left -= 4;
            let elements = (0..count).map(|_| {
                let element = (half(), half());
                left -= 4;
                if element.0 & 0x8000 != 0 {
                    assert_eq!((half(), half()), (0, 6876));
                    left -= 4;
                }
                element
            });
            let elements = elements.collect();
            assert!(out.insert(id, elements).is_none());
        }
    }
    out
}

/// Values of a record by the number of the element. The record must end where its set does.
fn values(templates: &Templates, message: &Message) -> Vec<(u16, Vec<u8>)> {
    let mut rest = &message.body[..];
    let mut out = Vec::new();
    for (id, length) in &templates[&message.set] {
        let length = match length {
            0xffff => {
                let (length, tail) = rest.split_first().unwrap();
                rest = tail;
                usize::from(*length)
            }
            n => usize::from(*n),
        };
        let (value, tail) = rest.split_at(length);
        rest = tail;
        out.push((*id, value.to_vec()));
    }
    assert!(rest.is_empty(), "{} bytes are left", rest.len());
    out
}

fn value(record: &[(u16, Vec<u8>)], id: u16) -> u64 {
    let (_, bytes) = record.iter().find(|(found, _)| *found == id).expect("the element is there");
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn key(dl_type: u16, nw_proto: u8) -> Key {
    let mut key = Key::ZERO;
    (key.dl_src, key.dl_dst) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    key.dl_type.set(dl_type);
    (key.nw_proto, key.nw_ttl, key.nw_tos) = (nw_proto, 64, 0xb8);
    key.nw_src.set(0x0a00_0001);
    key.nw_dst.set(0x0a00_0002);
    key.tp_src.set(1000);
    key.tp_dst.set(80);
    key.tcp_flags.set(0x12);
    key
}

fn packet<'a>(key: &'a Key, port: Interface<'a>) -> Packet<'a> {
    Packet {
        key,
        size: 114,
        packets: 10,
        input: port,
        output: port,
        direction: Direction::Ingress,
        tunnel: None,
        obs_domain: 7,
        obs_point: 9,
        is_dropped: false,
    }
}

fn port() -> Interface<'static> {
    Interface { index: 3, name: "p1" }
}

#[test]
fn packets_of_a_flow_become_one_record_at_the_active_timeout() {
    let mut exporter = Exporter::new(SETTINGS, 5);
    let (port, mut key) = (port(), key(ethertype::IPV4, ip_proto::TCP));
    key.vlans[0] = Vlan { tpid: 0x8100.into(), tci: (VLAN_CFI | 0x6005).into() };
    exporter.sample(&packet(&key, port), Millis(1_000));
    exporter.sample(&Packet { is_dropped: true, ..packet(&key, port) }, Millis(3_000));
    assert_eq!(exporter.deadline(), Some(Millis(61_000)));
    assert!(exporter.run(Millis(60_999), WALL).is_empty());
    let sent = exporter.run(Millis(61_000), WALL);
    let messages: Vec<Message> = sent.iter().map(|m| parse(m)).collect();
    let [.., options, statistics, data] = &messages[..] else { panic!("{}", messages.len()) };
    assert_eq!((options.set, options.domain, options.sequence), (3, 0, 1));
    assert_eq!((statistics.set, statistics.domain, statistics.sequence), (462, 0, 1));
    assert_eq!(statistics.body, [0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((data.domain, data.sequence), (7, 2));
    assert!(messages.iter().filter(|m| m.set == 2).all(|m| m.domain == 7));
    let templates = templates(&messages);
    let record = values(&templates, data);
    let expected = [
        (138, 9),
        (61, 0),
        (56, 0x0200_0000_0001),
        (80, 0x0200_0000_0002),
        (256, 0x0800),
        (240, 18),
        (10, 3),
        (368, 0),
        (82, 0x7031),
        (83, 0),
        (58, 5),
        (243, 5),
        (244, 3),
        (60, 4),
        (192, 64),
        (4, 6),
        (195, 0x2e),
        (196, 5),
        (5, 0xb8),
        (8, 0x0a00_0001),
        (12, 0x0a00_0002),
        (7, 1000),
        (11, 80),
        // The message is of 1,000,001 s: 750 ms later.
        (158, 60_750_000),
        (159, 58_750_000),
        (133, 10),
        (135, 10),
        (2, 20),
        (86, 20),
        (354, 20),
        (352, 2280),
        (136, 2),
        (132, 960),
        (1, 1920),
        (198, 96 * 1920),
        (25, 96),
        (26, 96),
        (222, 20),
        (218, 20),
        (219, 0),
    ];
    for (id, number) in expected {
        assert_eq!(value(&record, id), number, "element {id}");
    }
    // The next flow has the same templates.
    exporter.sample(&packet(&key, port), Millis(62_000));
    let again = exporter.run(Millis(122_000), WALL);
    assert_eq!(again.len(), 1);
    let again = parse(&again[0]);
    assert_eq!(again.sequence, 3);
    let record = values(&templates, &again);
    assert_eq!((value(&record, 2), value(&record, 86)), (10, 30));
    assert_eq!(exporter.deadline(), None);
}

#[test]
fn records_have_the_elements_of_their_template() {
    let settings =
        Settings { active_timeout_seconds: 0, virtual_obs_id: Some("abc".to_owned()), ..SETTINGS };
    let mut exporter = Exporter::new(settings, 1);
    let port = port();
    let tunnel = flow::Tunnel {
        id: 0x0001_0203_0405_0607.into(),
        src: 0x0101_0101.into(),
        dst: 0x0202_0202.into(),
        tp_dst: 4789.into(),
        ..flow::Tunnel::NONE
    };
    let tunnels = [None, Some(TunnelType::Gre), Some(TunnelType::Stt), Some(TunnelType::Geneve)];
    for dl_type in [ethertype::IPV4, ethertype::IPV6, ethertype::ARP] {
        for proto in [ip_proto::TCP, ip_proto::UDP, ip_proto::SCTP, ip_proto::ICMP, 58, 47] {
            for tci in [0, VLAN_CFI | 7] {
                for kind in tunnels {
                    for direction in [Direction::Ingress, Direction::Egress] {
                        let mut key = key(dl_type, proto);
                        key.vlans[0].tci.set(tci);
                        let tunnel = kind.map(|kind| (kind, &tunnel));
                        let packet = Packet { direction, tunnel, ..packet(&key, port) };
                        exporter.sample(&packet, Millis(0));
                    }
                }
            }
        }
    }
    let sent = exporter.run(Millis(0), WALL);
    let messages: Vec<Message> = sent.iter().map(|m| parse(m)).collect();
    let templates = templates(&messages);
    assert_eq!(templates.len(), 88);
    let mut seen = std::collections::BTreeSet::new();
    for message in messages.iter().filter(|m| m.set >= 256 && m.set != 462) {
        let record = values(&templates, message);
        assert_eq!(value(&record, 0x8000 | 898), 0x61_6263);
        if let Some((_, key)) = record.iter().find(|(id, _)| *id == 0x8000 | 892) {
            let end = [0, 1, 2, 3, 4, 5, 6, 7];
            assert_eq!(key[..], end[8 - key.len()..]);
        }
        seen.insert(message.set);
    }
    assert_eq!(seen.len(), 88, "each template has a record");
}

#[test]
fn a_full_cache_ends_its_oldest_flows() {
    let mut exporter = Exporter::new(Settings { max_flows: 2, ..SETTINGS }, 1);
    let port = port();
    for n in 0..5u16 {
        let mut key = key(ethertype::IPV4, ip_proto::UDP);
        key.tp_src.set(n);
        exporter.sample(&packet(&key, port), Millis(n.into()));
    }
    assert_eq!(exporter.statistics().current_flows, 2);
    let sent = exporter.run(Millis(5), WALL);
    let messages: Vec<Message> = sent.iter().map(|m| parse(m)).collect();
    let templates = templates(&messages);
    let records: Vec<_> = messages
        .iter()
        .filter(|m| templates.contains_key(&m.set))
        .map(|m| values(&templates, m))
        .map(|record| (value(&record, 7), value(&record, 136)))
        .collect();
    assert_eq!(records, [(0, 5), (1, 5), (2, 5)]);
    let last = exporter.finish(Millis(6), WALL);
    let reasons: Vec<u64> =
        last.iter().map(|m| value(&values(&templates, &parse(m)), 136)).collect();
    assert_eq!(reasons, [4, 4]);
}

#[test]
fn each_domain_gets_templates_again_after_the_interval() {
    let settings = Settings { active_timeout_seconds: 0, ..SETTINGS };
    let mut exporter = Exporter::new(settings, 1);
    let (port, key) = (port(), key(ethertype::IPV4, ip_proto::UDP));
    let mut sent = |domain, seconds| {
        exporter.sample(&Packet { obs_domain: domain, ..packet(&key, port) }, Millis(0));
        let wall = WallTime { seconds, nanoseconds: 0 };
        let messages = exporter.run(Millis(0), wall);
        let messages = messages.iter().map(|m| parse(m)).filter(|m| m.set == 2);
        messages.map(|m| m.domain).collect::<std::collections::BTreeSet<_>>()
    };
    let none = Default::default();
    assert_eq!(sent(1, 1000), [1].into());
    assert_eq!(sent(1, 1001), none);
    assert_eq!(sent(2, 1001), [2].into());
    assert_eq!(sent(1, 1599), none);
    assert_eq!(sent(1, 1600), [1].into());
    assert_eq!(sent(2, 1600), none);
}

#[test]
fn memory_is_bounded() {
    let settings = Settings { max_flows: u32::MAX, ..SETTINGS };
    let mut exporter = Exporter::new(settings, 1);
    let port = port();
    let mut key = key(ethertype::IPV4, ip_proto::UDP);
    let flows = MAX_FLOWS + MAX_READY + 10;
    for n in 0..flows as u32 {
        key.nw_src.set(n);
        exporter.sample(&Packet { obs_domain: n, ..packet(&key, port) }, Millis(0));
    }
    assert_eq!(exporter.statistics().current_flows, MAX_FLOWS as u64);
    assert_eq!((exporter.ready.len(), exporter.without_room()), (MAX_READY, 10));
    exporter.run(Millis(0), WALL);
    assert!(exporter.domains.len() <= MAX_DOMAINS);
}

#[test]
fn controllers_get_counts() {
    let mut exporter = Exporter::new(SETTINGS, 1);
    let port = port();
    for (dl_type, proto) in [
        (ethertype::IPV4, ip_proto::UDP),
        (ethertype::IPV4, ip_proto::UDP),
        (ethertype::IPV4, 47),
        (ethertype::IPV6, ip_proto::ICMPV6),
        (ethertype::IPV6, ip_proto::ICMP),
        (ethertype::ARP, 1),
    ] {
        exporter.sample(&packet(&key(dl_type, proto), port), Millis(0));
    }
    exporter.add_sent(3, 2);
    let expected = Statistics {
        total_flows: 5,
        current_flows: 5,
        packets: 6,
        ipv4_packets: 2,
        ipv6_packets: 1,
        error_packets: 2,
        ipv4_error_packets: 1,
        ipv6_error_packets: 1,
        sent: 3,
        unsent: 2,
    };
    assert_eq!(exporter.statistics(), expected);
}

// SPDX-License-Identifier: Apache-2.0
//! Real inputs to start from: recorded messages and texts, frames, and for targets that read
//! settings from their input, those settings in front.

mod connections;
mod openflow;
mod text;

pub use connections::{fragments, trackings, tuples};
pub use openflow::{messages, recorded, sessions};
pub use text::{
    ACTIONS, ENDPOINTS, FLOWS, LOG_SPECS, MATCHES, ODP_ACTIONS, ODP_FLOWS, SUBFIELDS, action_texts,
    flow_texts, match_texts, odp_lines, odp_texts, option_lines, options, rows,
};

use crate::database;
use packet::MplsEntry;
use packet::build::Frame;
use serde_json::json;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Runs of bytes from a seeded generator, as seeds for targets that read structure from them.
fn noise(n: u64, longest: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..n).map(move |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let length = rng.usize(1..=longest);
        // Small numbers mean more than large ones where a byte is a choice.
        (0..length).map(|_| if rng.bool() { rng.u8(..) } else { rng.u8(..16) }).collect()
    })
}

/// Frames of every protocol.
pub fn frames() -> Vec<Vec<u8>> {
    const A: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0a];
    const B: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0b];
    let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let (a6, b6) =
        (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));
    let ether = || Frame::ethernet(B, A);
    let (v4, v6) = (|| ether().ipv4(a, b, 64), || ether().ipv6(a6, b6, 64));
    let label = |bottom| MplsEntry::new(1000, 3, bottom, 64);
    vec![
        ether().ethertype(0x88cc).payload(&[1; 46]).finish(),
        [&B[..], &A, &[0, 8, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0]].concat(),
        v4().tcp(1, 2, 0x12).payload(b"data").finish(),
        v4().udp(53, 54).payload(b"data").finish(),
        v4().sctp(3, 4).payload(b"data").finish(),
        v4().icmp(8, 0, 1).payload(b"data").finish(),
        v4().igmp(0x16, 0, Ipv4Addr::new(224, 0, 0, 5)).finish(),
        v4().protocol(47).payload(&[0; 8]).finish(),
        ether().vlan(0x8100, 0x6005).ipv4(a, b, 1).udp(1, 2).finish(),
        ether().vlan(0x88a8, 7).vlan(0x8100, 8).ipv4(a, b, 1).tcp(1, 2, 2).finish(),
        ether().mpls(0x8847, label(true)).payload(&[0x45; 20]).finish(),
        ether()
            .mpls(0x8847, label(false))
            .mpls(0x8847, label(false))
            .mpls(0x8847, label(true))
            .finish(),
        ether().arp(0x0806, 1, (A, a), ([0; 6], b)).finish(),
        v6().tcp(1, 2, 0x10).finish(),
        v6().udp(1, 2).payload(b"data").finish(),
        v6().icmpv6(128, 0, 5).payload(b"data").finish(),
        v6().nd(135, 0, b6, &[(1, A)]).finish(),
        v6().nd(136, 0xe000_0000, b6, &[(2, A), (1, B)]).finish(),
        v6().ipv6_extension(0, &[0; 6]).ipv6_extension(60, &[0; 14]).udp(1, 2).finish(),
        v6().ipv6_extension(43, &[0; 6]).ipv6_fragment(1, 17, 9).payload(&[0; 16]).finish(),
        v6().ipv6_fragment(0x50, 17, 9).payload(&[0; 16]).finish(),
    ]
}

/// Seeds of `packet`.
pub fn packets() -> Vec<Vec<u8>> {
    frames().into_iter().map(|frame| [vec![2, 34], frame].concat()).collect()
}

/// Seeds of `rewrite`: actions by a generator, before a frame.
pub fn rewrites() -> Vec<Vec<u8>> {
    let frames = frames();
    noise(200, 160).zip(frames.iter().cycle()).map(|(n, f)| [n, f.clone()].concat()).collect()
}

/// Seeds of `tunnel`: for each kind, frames in the headers of that kind, and headers by a generator.
pub fn tunnels() -> Vec<Vec<u8>> {
    let kinds = 0..tunnel::Kind::ALL.len() as u8;
    let received = kinds.clone().flat_map(|kind| {
        let packets = tunnel_frames().into_iter();
        packets.flat_map(move |frame| {
            [vec![kind, 0], vec![kind, 35]].map(|head| [head, frame.clone()].concat())
        })
    });
    let built =
        kinds.flat_map(|kind| noise(20, 120).map(move |bytes| [vec![kind, 4], bytes].concat()));
    received.chain(built).collect()
}

/// Frames in the headers of each kind of tunnel over IPv4.
pub fn tunnel_frames() -> Vec<Vec<u8>> {
    use tunnel::*;
    let addresses = |n: u8| std::net::Ipv4Addr::new(10, 0, 0, n).into();
    let options = Options::new(&[1, 2, 3, 1, 4, 5, 6, 7]).unwrap_or_default();
    let of = |kind: Kind| {
        let extension = match kind {
            Kind::Erspan => Extension::Erspan(Erspan::V1 { index: 1 }),
            _ => Extension::None,
        };
        let metadata = Metadata {
            tun_id: 5,
            src: addresses(1),
            dst: addresses(2),
            ttl: 64,
            tp_dst: kind.udp_port().unwrap_or(0),
            flags: flags::KEY | flags::CHECKSUM,
            extension,
            options,
            ..Metadata::default()
        };
        let payload = match kind {
            Kind::Gtpu | Kind::Bareudp => Payload::Layer3(0x800),
            _ => Payload::Ethernet,
        };
        let header = Header::build(&Request {
            kind,
            eth_dst: [2; 6],
            eth_src: [4; 6],
            metadata: &metadata,
            payload,
            is_generic_protocol: false,
            has_sequence: true,
            segments: &[],
            flow_label: FlowLabel::Copy,
            sources: SourcePorts::default(),
        });
        let mut packet = packet::Packet::from_slice(&[0x45; 40]);
        header.ok()?.push(&mut packet, &PerPacket { payload, ..PerPacket::default() }).ok()?;
        Some(packet.data().to_vec())
    };
    Kind::ALL.into_iter().filter_map(of).collect()
}

/// Seeds of `translation`.
pub fn pipelines() -> Vec<Vec<u8>> {
    let frames = frames();
    noise(300, 700).zip(frames.iter().cycle()).map(|(n, f)| [n, f.clone()].concat()).collect()
}

/// Seeds of `adoption`: megaflows and damage by a generator.
pub fn adoptions() -> Vec<Vec<u8>> {
    noise(200, 600).collect()
}

/// Seeds of `connection_adoption`: connections, damage and packets by a generator.
pub fn connection_adoptions() -> Vec<Vec<u8>> {
    noise(60, 1600).collect()
}

/// Seeds of `ovsdb`: what a server says, in the order in which a session asks.
pub fn conversations() -> Vec<Vec<u8>> {
    let id = |n: u32| format!("00000000-0000-0000-0000-{n:012x}");
    let uuid = |n: u32| json!(["uuid", id(n)]);
    let schema = json!({"id": 1, "error": null, "result": database::schema()}).to_string();
    let rows = json!({
        "Open_vSwitch": {(id(1)): {"initial": {
            "bridges": uuid(2), "ssl": uuid(9), "next_cfg": 3,
            "other_config": ["map", [["flow-limit", "100"], ["vlan-limit", "2"], ["max-idle", "x"]]]}}},
        "SSL": {(id(9)): {"initial": {"private_key": "/k", "certificate": "/c", "ca_cert": "/a"}}},
        "Bridge": {(id(2)): {"initial": {
            "name": "br0", "ports": ["set", [uuid(3), uuid(4)]], "controller": uuid(7),
            "protocols": ["set", ["OpenFlow10", "OpenFlow13"]], "fail_mode": "secure",
            "flood_vlans": ["set", [1, 2, 4096]], "flow_tables": ["map", [[0, uuid(8)]]],
            "other_config": ["map", [["hwaddr", "00:11:22:33:44:55"], ["mac-aging-time", "5"]]]}}},
        "Port": {
            (id(3)): {"initial": {"name": "br0", "interfaces": uuid(5)}},
            (id(4)): {"initial": {"name": "p1", "interfaces": uuid(6), "tag": 5,
                "vlan_mode": "native-tagged", "trunks": ["set", [1, 5]]}}},
        "Interface": {
            (id(5)): {"initial": {"name": "br0", "type": "internal", "ofport": 65534}},
            (id(6)): {"initial": {"name": "p1", "type": "patch", "options": ["map", [["peer", "p2"]]],
                "mac": "02:00:00:00:00:01", "mtu_request": 9000, "ingress_policing_rate": 100}}},
        "Controller": {(id(7)): {"initial": {"target": "tcp:127.0.0.1:6653",
            "max_backoff": 100, "controller_rate_limit": 1000, "type": "service"}}},
        "Flow_Table": {(id(8)): {"initial": {"name": "t", "flow_limit": 10,
            "overflow_policy": "evict", "groups": "NXM_OF_IN_PORT[]"}}},
    });
    let since = json!({"id": 2, "error": null, "result": [false, id(77), rows]}).to_string();
    let cond = json!({"id": 3, "error": null, "result": rows}).to_string();
    let unknown = json!({"id": 2, "error": "unknown method", "result": null}).to_string();
    let update = |row: serde_json::Value| {
        let rows = json!({"Bridge": {(id(2)): row}});
        json!({"id": null, "method": "update3", "params": [["monid", "Open_vSwitch"], id(78), rows]})
            .to_string()
    };
    let modify = update(json!({"modify": {"fail_mode": "standalone", "ports": uuid(3)}}));
    let delete = update(json!({"delete": null}));
    let echo = json!({"id": "echo", "method": "echo", "params": []}).to_string();
    let locked = json!({"id": null, "method": "locked", "params": ["ovs_vswitchd"]}).to_string();
    [
        (1, vec![&since, &modify, &echo, &locked, &delete]),
        (1, vec![&unknown, &cond]),
        (0x81, vec![&since, &delete, &modify]),
        (0, vec![&schema, &since]),
    ]
    .into_iter()
    .map(|(settings, parts)| {
        let text: String = parts.into_iter().map(String::as_str).collect();
        [vec![settings], text.into_bytes()].concat()
    })
    .collect()
}

/// Requests to a control socket.
pub const REQUESTS: &[&str] = &[
    r#"{"method":"version","params":[],"id":0}"#,
    r#"{"id":{"a":1.5},"method":"list-commands","params":[]}{"method":"echo","params":["a","\u00e4\\\""],"id":7}"#,
    r#" {"method":"no-such","params":["x"],"id":null,"id":[]} "#,
    r#"{"method":"pair","params":["a","b"],"id":"x"}{"method":"pair","params":[1],"id":"y"}"#,
    r#"{"method":"echo","params":[],"id":1,"error":null,"result":null}"#,
];

/// Seeds of `unixctl`.
pub fn requests() -> Vec<Vec<u8>> {
    let cut = |text: &&str| [0, 0x40, 0xff].map(|at| [&[at], text.as_bytes()].concat());
    REQUESTS.iter().flat_map(cut).collect()
}

/// Seeds of `netlink`: messages as include/uapi/linux/if_link.h and pkt_cls.h say.
pub fn datagrams() -> Vec<Vec<u8>> {
    let interface = [0, 0, 1, 0, 5, 0, 0, 0, 0x43, 0, 1, 0, 0, 0, 0, 0];
    let message = |kind: u16, attributes: &[Vec<u8>]| message(kind, &interface, attributes);
    let one = [1, 0, 0, 0];
    let all = [
        attribute(3, b"veth0\0"),
        attribute(1, &[2, 0, 0, 0, 0, 1]),
        attribute(4, &1500u32.to_ne_bytes()),
        attribute(5, &7u32.to_ne_bytes()),
        attribute(10, &3u32.to_ne_bytes()),
        attribute(18, &attribute(1, b"veth\0")),
        attribute(20, b"alias\0"),
        attribute(23, &[1; 200]),
        attribute(30, &one),
        attribute(31, &one),
        attribute(32, &one),
        attribute(35, &one),
        attribute(37, &one),
        attribute(43, &[attribute(2, &[1]), attribute(4, &one), attribute(5, &one)].concat()),
        attribute(50, &68u32.to_ne_bytes()),
        attribute(51, &9000u32.to_ne_bytes()),
    ];
    let whole = message(16, &all);
    let gone = message(17, &all[..2]);
    let mut all = vec![whole.clone(), gone.clone(), [whole, gone, message(3, &[])].concat()];
    all.extend(routing());
    all.push(filter());
    all
}

/// A filter with keys and an action of each kind.
fn filter() -> Vec<u8> {
    use datapath_tc::act::{Act, Direction};
    use datapath_tc::filter::{Filter, Hook, Place, Policy};
    use datapath_tc::keys::{Key, Keys};
    use datapath_tc::policer::{Policer, Rate};
    let mut keys = Keys::default();
    keys.exact(Key::EthType, [8, 0]);
    keys.add(Key::Ipv4Dst, [10, 0, 0, 0], [255, 0, 0, 0]);
    keys.exact(Key::IpProto, [6]);
    let place = Place {
        ifindex: 5,
        hook: Hook::Ingress,
        chain: 0,
        priority: 0x7360,
        protocol: 0x0800,
        handle: 0x7360_0001,
    };
    let acts = vec![
        Act::PopVlan,
        Act::PushVlan { tpid: 0x8100, vid: 5, priority: 3 },
        Act::PushMpls { ethertype: 0x8847, entry: 0x1234_5fff },
        Act::Checksum(9),
        Act::ReleaseTunnel,
        Act::Ct(Box::default()),
        Act::Police(Policer { index: 1, rate: Rate::Bytes(125_000), burst: 15_625_000 }),
        Act::ToHost,
        Act::Send { ifindex: 3, direction: Direction::Egress, last: true },
    ];
    let policy = Policy::SkipSoftware;
    let filter = Filter { place, keys, acts, cookie: [7; 16], policy };
    ::netlink::Request::new(44, 0, &filter.message()).finish(0)
}

/// Seeds of `kernel_datapath`: an upcall of each kind and a megaflow, as
/// include/uapi/linux/openvswitch.h says.
pub fn kernel_messages() -> Vec<Vec<u8>> {
    let number = |n: u32| n.to_ne_bytes();
    let frame = Frame::ethernet([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1])
        .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 64)
        .udp(1, 53)
        .finish();
    let metadata = [attribute(3, &number(1)), attribute(20, &number(0))].concat();
    let mut cookie = vec![0; 48];
    cookie[0] = 5;
    let upcall = |command: u8, cookie: &[u8]| {
        let parts = [attribute(1, &frame), attribute(2, &metadata), attribute(4, cookie)];
        [vec![command, 1, 0, 0, 9, 0, 0, 0], parts.concat()].concat()
    };
    let ethernet = attribute(4, &[2; 12]);
    let ipv4 = attribute(7, &[10, 0, 0, 1, 10, 0, 0, 2, 17, 0, 64, 0]);
    let key = [metadata.clone(), ethernet, attribute(6, &[8, 0]), ipv4].concat();
    let every = |kind, length| attribute(kind, &vec![0xff; length]);
    let mask = [every(3, 4), every(20, 4), attribute(4, &[0; 12]), every(6, 2), every(7, 12)];
    let actions = [attribute(1, &number(2)), attribute(7, &number(5)), attribute(16, &[])];
    let megaflow = [
        attribute(9, &[7; 16]),
        attribute(1, &key),
        attribute(7, &mask.concat()),
        attribute(2, &actions.concat()),
        attribute(3, &[1; 16]),
        attribute(5, &[1; 8]),
    ];
    let megaflow = [vec![1, 1, 0, 0, 9, 0, 0, 0], megaflow.concat()].concat();
    vec![upcall(1, &[]), upcall(2, &cookie), megaflow]
}

/// An attribute of a netlink message.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec(); // short ones
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A netlink message with a fixed part and attributes.
fn message(kind: u16, fixed: &[u8], attributes: &[Vec<u8>]) -> Vec<u8> {
    let body = [fixed, &attributes.concat()].concat();
    let mut bytes = ((16 + body.len()) as u32).to_ne_bytes().to_vec(); // short ones
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&[0; 10]);
    [bytes, body].concat()
}

/// Messages about routing, as include/uapi/linux/rtnetlink.h, fib_rules.h and neighbour.h say.
fn routing() -> Vec<Vec<u8>> {
    let number = |n: u32| n.to_ne_bytes();
    let (here, there) = ([10, 0, 0, 1], [10, 0, 0, 9]);
    let hop = [vec![16, 0, 0, 0, 2, 0, 0, 0], attribute(5, &there)].concat();
    let via = [&[10, 0][..], &[0xfe; 16]].concat();
    let route = [2, 24, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
    let metrics = attribute(8, &attribute(2, &number(1400)));
    vec![
        message(20, &[2, 24, 0, 0, 2, 0, 0, 0], &[attribute(1, &here), attribute(2, &here)]),
        message(
            20,
            &[10, 64, 0, 0, 2, 0, 0, 0],
            &[attribute(1, &[0xfe; 16]), attribute(8, &number(0x80))],
        ),
        message(
            24,
            &route,
            &[attribute(1, &there), attribute(4, &number(2)), attribute(5, &there), metrics],
        ),
        message(24, &route, &[attribute(1, &there), attribute(9, &[hop.clone(), hop].concat())]),
        message(
            25,
            &route,
            &[attribute(4, &number(2)), attribute(18, &via), attribute(15, &number(1000))],
        ),
        message(
            32,
            &[2, 0, 24, 0, 254, 0, 0, 1, 0, 0, 0, 0],
            &[
                attribute(2, &here),
                attribute(6, &number(50)),
                attribute(10, &number(7)),
                attribute(15, &number(100)),
            ],
        ),
        message(
            28,
            &[2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 1],
            &[attribute(1, &there), attribute(2, &[2, 0, 0, 0, 0, 9])],
        ),
    ]
}

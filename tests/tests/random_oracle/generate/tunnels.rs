// SPDX-License-Identifier: Apache-2.0
//! Tunnels: ports of br0 that lead into them, br1 as their underlay with p5 and p6, rules about
//! their fields, and packets that arrive in them.
//!
//! Each port has a key of its own, so that no change from one case to the next makes two ports with
//! equal configurations, whichever is changed first. The first may take its key from the flow.
//!
//! In no case are there ports with the flow's key and ports with the flow's destination: where OVS
//! does not tunnel to its own address, the packet loses its key for later ports of a flood, which have
//! the order of a hash table.
//!
//! None has a group policy (options:exts=gbp), as OVS 3.1 has none in userspace.
//!
//! No port has a source address: OVS looks for a local route to it, and dummies have none.

use super::{Gen, actions, matches, packets};
use crate::case::Step;
use flow::{Field, FieldValue, Match, Subfield};
use openflow::action::{SetSpelling, TunnelSpelling};
use openflow::message::{FlowMod, TlvMap, TlvTableCommand, TlvTableMod};
use openflow::{Action, PortNo, Version};
use packet::build::Frame;
use packet::{Ipv4Header, Ipv6Header, checksum};
use std::net::{Ipv4Addr, Ipv6Addr};
use zerocopy::network_endian::{U16, U32};

/// Tunnel ports are this number and the following ones.
const FIRST: u32 = 11;
const NAMES: [&str; 4] = ["t1", "t2", "t3", "t4"];
/// The address of br1, and those of its neighbours. There is no neighbour for the last number.
const HERE: u8 = 1;
const NEIGHBOURS: [u8; 2] = [2, 3];
const NOBODY: u8 = 9;
/// The Ethernet address of br1.
const MAC: [u8; 6] = [0xaa, 0x55, 0xaa, 0x55, 0, 0];
/// Longest inner frame: with its headers it fits the underlay.
const LONGEST: usize = 1300;
/// UDP's ports of VXLAN, of other ports with VXLAN, and of Geneve.
pub const UDP_PORTS: [u16; 3] = [4789, 8472, 6081];
const GRE: u8 = 47;
const UDP: u8 = 17;

/// The fields that rules are about.
const FIELDS: [Field; 7] = [
    Field::TunId,
    Field::TunSrc,
    Field::TunDst,
    Field::TunIpv6Src,
    Field::TunIpv6Dst,
    Field::TunGbpId,
    Field::TunGbpFlags,
];

/// Options of Geneve that have fields, by the fields' numbers.
const OPTIONS: [TlvMap; 3] = [
    TlvMap { class: 0xffff, kind: 0, len: 4, index: 0 },
    TlvMap { class: 0x0102, kind: 0x80, len: 8, index: 1 },
    TlvMap { class: 0xffff, kind: 1, len: 4, index: 5 },
];
const OPTION_FIELDS: [Field; 3] = [Field::TunMetadata0, Field::TunMetadata1, Field::TunMetadata5];

/// The kind of a tunnel port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Vxlan,
    /// At another port.
    Vxlan8472,
    Geneve,
    Gre,
}

/// A tunnel port of br0.
#[derive(Clone, Debug)]
pub struct Port {
    kind: Kind,
    /// The other end is reached by IPv6.
    is_v6: bool,
    /// The key; `None`: it is the flow's.
    key: Option<u32>,
}

/// Bridges, ports and addresses.
pub fn steps(g: &mut Gen) -> Vec<Step> {
    let mode = g.pick(&["secure", "secure", "standalone"]);
    let mut out = super::world::second(mode);
    let key_of_flow = g.bool();
    for (n, name) in NAMES.into_iter().enumerate() {
        let (port, options) = port(g, n as u32, key_of_flow);
        let number = FIRST + n as u32;
        out.push(format!(
            "add-port br0 {name} -- set interface {name} ofport_request={number} {options}"
        ));
        g.tunnels.push(port);
    }
    let commands = [
        "netdev-dummy/ip4addr br1 172.31.1.1/24".to_owned(),
        "netdev-dummy/ip6addr br1 2001:db8:1::1/64".to_owned(),
        // Those of the previous case are of a bridge that may be gone.
        "ovs/route/del 172.31.1.0/24".to_owned(),
        "ovs/route/del 2001:db8:1::/64".to_owned(),
        "ovs/route/add 172.31.1.0/24 br1".to_owned(),
        "ovs/route/add 2001:db8:1::/64 br1".to_owned(),
        "tnl/neigh/flush".to_owned(),
    ];
    let neighbours = NEIGHBOURS.into_iter().flat_map(|n| {
        [v4(n).to_string(), v6(n).to_string()]
            .map(|address| format!("tnl/neigh/set br1 {address} f8:bc:12:44:34:{n:02x}"))
    });
    let underlay = Step::Underlay(commands.into_iter().chain(neighbours).collect());
    out.into_iter().map(Step::Configure).chain([underlay]).collect()
}

/// A port, and its options. Keys are of the flow, or destinations.
fn port(g: &mut Gen, n: u32, key_of_flow: bool) -> (Port, String) {
    let kind = g.pick(&[Kind::Vxlan, Kind::Vxlan8472, Kind::Geneve, Kind::Geneve, Kind::Gre]);
    let is_v6 = g.one_in(3);
    let key = if n == 0 && key_of_flow { None } else { Some(n) };
    let mut words = vec![match kind {
        Kind::Vxlan => "type=vxlan".to_owned(),
        Kind::Vxlan8472 => "type=vxlan options:dst_port=8472".to_owned(),
        Kind::Geneve => "type=geneve".to_owned(),
        Kind::Gre => "type=gre".to_owned(),
    }];
    let text = key.map_or_else(|| "flow".to_owned(), |key| key.to_string());
    match g.below(6) {
        0 if key_of_flow => {
            words.push(format!("options:in_key={text} options:out_key=flow"));
        }
        0 | 1 => words.push(format!("options:in_key={text} options:out_key=77")),
        // No key is 0.
        2 if key == Some(0) => {}
        _ => words.push(format!("options:key={text}")),
    }
    let is_of_flow = !key_of_flow && g.one_in(3);
    let address = |n: u8| if is_v6 { v6(n).to_string() } else { v4(n).to_string() };
    let remote = match g.below(10) {
        0 => NOBODY,
        _ => g.pick(&NEIGHBOURS),
    };
    match is_of_flow {
        true => words.push("options:remote_ip=flow".to_owned()),
        false => words.push(format!("options:remote_ip={}", address(remote))),
    }
    let has_sequence = kind == Kind::Gre && g.one_in(4);
    if has_sequence {
        words.push("options:seq=true".to_owned());
    }
    for (option, values) in [
        ("csum", &["true", "false"][..]),
        ("tos", &["inherit", "0x20", "0xff"]),
        ("ttl", &["inherit", "7", "255"]),
        ("df_default", &["false", "true"]),
    ] {
        // OVS leaves the sequence number out of GRE's checksum.
        if g.one_in(3) && !(has_sequence && option == "csum") {
            words.push(format!("options:{option}={}", g.pick(values)));
        }
    }
    (Port { kind, is_v6, key }, words.join(" "))
}

fn v4(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(172, 31, 1, n)
}

fn v6(n: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, n.into())
}

/// Mappings of options, and rules of both bridges that carry what goes into tunnels and comes out.
pub fn tables(g: &mut Gen, version: Version) -> Vec<Step> {
    let change = TlvTableMod { command: TlvTableCommand::Add, mappings: OPTIONS.to_vec() };
    let mapping = match version {
        Version::V10 => Version::V13,
        version => version,
    };
    let mut out = vec![Step::Options { bridge: "br0", version: mapping, change }];
    let flow = |bridge, change| Step::Flow { bridge, version, change: Box::new(change) };
    let between = [(PortNo::LOCAL, PortNo(1)), (PortNo(1), PortNo::LOCAL)];
    if g.one_in(4) {
        let to = Action::Output { port: PortNo::NORMAL, max_len: 0 };
        out.push(flow("br1", FlowMod::add(g.priority(), Match::ANY, &[to])));
    }
    for (n, (from, to)) in (0..).zip(between) {
        let mut matching = Match::ANY;
        matching.set(Field::InPort, from.0.into());
        let to = Action::Output { port: to, max_len: 0 };
        out.push(flow("br1", FlowMod::add(65_000 + n, matching, &[to])));
    }
    for _ in 0..6 + g.below(10) {
        let change = flow_mod(g);
        out.push(flow("br0", change));
    }
    out
}

/// One of the numbers of tunnel ports.
pub fn number(g: &mut Gen) -> PortNo {
    PortNo(FIRST + g.small(NAMES.len() as u32))
}

/// A value that packets have in such a field.
fn value(g: &mut Gen, field: Field) -> FieldValue {
    let host = if g.one_in(8) { NOBODY } else { g.pick(&[HERE, 2, 2, 3]) };
    match field {
        Field::TunSrc | Field::TunDst => v4(host).to_bits().into(),
        Field::TunIpv6Src | Field::TunIpv6Dst => v6(host).to_bits(),
        Field::TunGbpFlags => g.pick(&[0, 8, 0x40, 0x48]),
        Field::TunId => g.pick(&[0, 1, 2, 3, 4, 77, 1 << 24]),
        _ => g.pick(&[0, 1, 2, 5, 0x1234]),
    }
}

fn field(g: &mut Gen) -> Field {
    if g.one_in(3) { g.pick(&OPTION_FIELDS) } else { g.pick(&FIELDS) }
}

/// The bits of such a field that a packet can have.
fn all_of(field: Field) -> FieldValue {
    match field {
        Field::TunMetadata0 | Field::TunMetadata5 => 0xffff_ffff,
        Field::TunMetadata1 => u64::MAX.into(),
        field => field.all_ones(),
    }
}

/// Some of these bits.
fn part_of(g: &mut Gen, all: FieldValue) -> FieldValue {
    let part = match g.bool() {
        true => g.rng.u128(..) & all,
        false => all << g.small(16) & all,
    };
    if part == 0 { all } else { part }
}

/// A flow of br0 about tunnels.
fn flow_mod(g: &mut Gen) -> FlowMod {
    let table = g.pick(&[0, 0, 0, 1, 2]);
    let mut matching = Match::ANY;
    match g.below(4) {
        0 => matching = matches::matching(g, false),
        1 => matching.set(Field::InPort, 1 + FieldValue::from(g.small(4))),
        _ => {
            if g.bool() {
                matching.set(Field::InPort, number(g).0.into());
            }
            for _ in 0..g.below(3) {
                let field = field(g);
                let all = all_of(field);
                let mask = if field.maskable() && g.one_in(3) { part_of(g, all) } else { all };
                let value = value(g, field);
                matching.set_masked(field, value & mask, mask);
            }
        }
    }
    let mut list = Vec::new();
    for _ in 0..g.below(5) {
        list.push(action(g));
    }
    if g.one_in(3) {
        list.extend(actions::applied(g, table, 0, false));
    }
    list.push(match g.below(8) {
        0 => Action::Output { port: PortNo::NORMAL, max_len: 0 },
        1 => Action::Resubmit { port: None, table: Some(table + 1), original_tuple: false },
        2 | 3 => Action::Output { port: PortNo(1 + g.small(4)), max_len: 0 },
        _ => Action::Output { port: number(g), max_len: 0 },
    });
    let mut change = FlowMod::add(g.priority(), matching, &list);
    change.table_id = table;
    change
}

/// An action about tunnels.
fn action(g: &mut Gen) -> Action {
    let field = field(g);
    let bits = 128 - all_of(field).leading_zeros() as u16;
    let whole = Subfield { field, start: 0, bits };
    let register = match bits {
        65.. => Field::Xxreg1,
        33..=64 => Field::Xreg3,
        _ => Field::Reg0,
    };
    let register = Subfield { field: register, start: 0, bits };
    match g.below(8) {
        0 => Action::Move { src: whole, dst: register },
        1 => Action::Move { src: register, dst: whole },
        2 => {
            Action::SetTunnel { id: g.pick(&[0, 1, 2, 3, 77]), spelled: TunnelSpelling::SetTunnel }
        }
        3 => Action::DeleteField(g.pick(&OPTION_FIELDS)),
        4 => Action::Output { port: number(g), max_len: 0 },
        _ => {
            let (value, all) = (value(g, field), field.all_ones());
            let spelled = SetSpelling::SetField;
            // Of an option that a packet does not have OVS takes whatever was in its memory.
            match field.maskable() && field.option().is_none() && g.one_in(4) {
                true => {
                    let mask = part_of(g, all_of(field));
                    Action::SetField { field, value: value & mask, mask, spelled }
                }
                false => Action::SetField { field, value, mask: all, spelled },
            }
        }
    }
}

/// A frame for the underlay: mostly a packet in a tunnel, at times a damaged one.
pub fn packet(g: &mut Gen) -> (&'static str, Vec<u8>) {
    let at = if g.one_in(12) { "p6" } else { "p5" };
    let n = g.below(g.tunnels.len());
    let Some(port) = g.tunnels.get(n).cloned() else { return (at, vec![0; 14]) };
    let mut inner = if g.bool() { g.known_frame().1 } else { packets::frame(g) };
    inner.truncate(LONGEST);
    let key = match port.key {
        Some(key) if !g.one_in(8) => key,
        _ => g.pick(&[0, 1, 2, 3, 4, 0xff_ffff]),
    };
    let is_v6 = if g.one_in(16) { !port.is_v6 } else { port.is_v6 };
    let mut frame = match port.kind {
        Kind::Gre => {
            let body = gre(g, key, &inner);
            outer(g, is_v6, GRE).payload(&body).finish()
        }
        kind => {
            let body = [headers_of_udp(g, kind, key), inner].concat();
            let source = g.pick(&[40_000, 51_283, 4789]);
            let [vxlan, other, geneve] = UDP_PORTS;
            let to = match kind {
                Kind::Vxlan | Kind::Gre => vxlan,
                Kind::Vxlan8472 => other,
                Kind::Geneve => geneve,
            };
            let mut frame = outer(g, is_v6, UDP).udp(source, to).payload(&body).finish();
            let sum = frame.len() - body.len() - 2;
            match g.below(16) {
                0 => frame[sum] ^= 1,
                1..=6 => frame[sum..sum + 2].fill(0),
                _ => {}
            }
            frame
        }
    };
    if g.one_in(6) {
        packets::mangle(g, &mut frame);
    }
    (at, frame)
}

/// Ethernet and IP headers from a neighbour to br1.
fn outer(g: &mut Gen, is_v6: bool, protocol: u8) -> Frame {
    let from = if g.one_in(12) { NOBODY } else { g.pick(&NEIGHBOURS) };
    let to = if g.one_in(24) { 4 } else { HERE };
    let mac = if g.one_in(24) { [0x50, 0x54, 0, 0, 0, 2] } else { MAC };
    let mut frame = Frame::ethernet(mac, [0xf8, 0xbc, 0x12, 0x44, 0x34, from]);
    if g.one_in(40) {
        frame = frame.vlan(0x8100, g.tci());
    }
    let tos = g.pick(&[0, 0, 1, 2, 3, 0x20, 0xff]);
    let ttl = g.ttl();
    if is_v6 {
        return frame.ipv6_header(Ipv6Header {
            version_class_label: U32::new(6 << 28 | u32::from(tos) << 20),
            payload_len: U16::ZERO,
            next: protocol,
            hop_limit: ttl,
            src: v6(from).octets(),
            dst: v6(to).octets(),
        });
    }
    let words = if g.one_in(16) { 1 + g.below(3) } else { 0 };
    let options = g.bytes(4 * words);
    let header = Ipv4Header {
        version_ihl: 4 << 4 | (5 + words as u8),
        tos,
        total_len: U16::ZERO,
        id: U16::new(9),
        fragment: U16::new(if g.one_in(24) { g.pick(&[0x2000, 100]) } else { 0x4000 }),
        ttl,
        proto: protocol,
        checksum: U16::ZERO,
        src: U32::new(v4(from).to_bits()),
        dst: U32::new(v4(to).to_bits()),
    };
    frame.ipv4_header(header).payload(&options)
}

/// The header after UDP's.
fn headers_of_udp(g: &mut Gen, kind: Kind, key: u32) -> Vec<u8> {
    let vni = (key << 8).to_be_bytes();
    if kind != Kind::Geneve {
        return [vec![8, 0, 0, 0], vni.to_vec()].concat();
    }
    let mut options = Vec::new();
    for _ in 0..g.below(4) {
        let unknown = TlvMap { class: 7, kind: g.pick(&[0, 0x81]), len: 4, index: 0 };
        let option = if g.one_in(4) { unknown } else { g.pick(&OPTIONS) };
        // Mostly of the length that its field has.
        let words = if g.one_in(12) { g.small(4) as u8 } else { option.len / 4 };
        options.extend(option.class.to_be_bytes());
        options.extend([option.kind, words]);
        for n in 0..words {
            options.extend(if n + 1 == words { [0, 0, 0, g.pick(&[0, 1, 2, 5])] } else { [0; 4] });
        }
    }
    let flags = g.pick(&[0, 0, 0, 0x40, 0x80]);
    let kind = if g.one_in(24) { 0x0800_u16 } else { 0x6558 };
    let mut out = vec![options.len() as u8 / 4, flags];
    out.extend(kind.to_be_bytes());
    out.extend(vni);
    out.extend(options);
    out
}

/// GRE's header and the packet after it.
fn gre(g: &mut Gen, key: u32, inner: &[u8]) -> Vec<u8> {
    const CHECKSUM: u16 = 0x8000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    let mut flags = if key == 0 && g.bool() { 0 } else { KEY };
    for flag in [CHECKSUM, SEQUENCE] {
        if g.one_in(4) {
            flags |= flag;
        }
    }
    if g.one_in(40) {
        flags |= g.pick(&[1, 0x4000, 0x80]);
    }
    let mut out = flags.to_be_bytes().to_vec();
    out.extend(if g.one_in(24) { [8, 0] } else { [0x65, 0x58] });
    for (flag, word) in [(CHECKSUM, 0), (KEY, key), (SEQUENCE, 5)] {
        if flags & flag != 0 {
            out.extend(word.to_be_bytes());
        }
    }
    out.extend(inner);
    if flags & CHECKSUM != 0 {
        let wrong = u16::from(g.one_in(8));
        let sum = checksum::internet(&out) ^ wrong;
        out[4..6].copy_from_slice(&sum.to_be_bytes());
    }
    out
}

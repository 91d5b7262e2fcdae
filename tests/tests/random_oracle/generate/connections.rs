// SPDX-License-Identifier: Apache-2.0
//! Connections: tables that track them, and packets of both their ends.
//!
//! Each conversation has a port or identifier of its own, and each of its ends one address that it is
//! called by, so that no two tuples are equal, however they are translated: here NAT gives an ICMP
//! packet another identifier in place of a taken one, OVS 3.1 gives up.
//!
//! A case either translates addresses or forces commits: OVS 3.1 takes the reply of a translated
//! connection for no reply where a commit is forced, and may abort.

use super::{Gen, actions};
use flow::{Field, Match, Subfield};
use openflow::Action;
use openflow::action::{Ct, CtZone, Nat, NatAddresses, NatSide, SetSpelling};
use openflow::message::FlowMod;
use packet::TcpHeader;
use packet::build::Frame;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use zerocopy::network_endian::{U16, U32};

/// Hosts are 1 to this; a client is among the first half.
const HOSTS: u16 = 4;
/// The addresses that clients are translated to, and that stand for servers.
const OUTSIDE: u16 = 240;
const SERVICE: u16 = 64;
/// Ports of servers.
const SERVICES: [u16; 3] = [53, 80, 443];
/// Ethernet and IPv4 headers.
const ETHERNET: usize = 14;

/// The protocol of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tcp,
    Udp,
    Icmp,
}

/// The two ends of a connection, and how far it is.
#[derive(Clone, Debug)]
pub struct Conversation {
    kind: Kind,
    is_v6: bool,
    client: u16,
    server: u16,
    /// The numbers by which they are called by the other.
    called: [u16; 2],
    /// The client's port, or the identifier of echo requests.
    id: u16,
    service: u16,
    /// The next sequence numbers, of client and server.
    next: [u32; 2],
    /// The number of packets so far.
    count: usize,
    last: Vec<u8>,
}

/// Makes some conversations.
pub fn conversations(g: &mut Gen) -> Vec<Conversation> {
    let one = |n: u16| {
        let client = 1 + g.small(u32::from(HOSTS / 2)) as u16;
        let server = 1 + HOSTS / 2 + g.small(u32::from(HOSTS / 2)) as u16;
        Conversation {
            kind: g.pick(&[Kind::Tcp, Kind::Tcp, Kind::Udp, Kind::Icmp]),
            is_v6: g.one_in(4),
            client,
            server,
            called: [
                if g.one_in(3) { OUTSIDE } else { client },
                if g.one_in(4) { SERVICE } else { server },
            ],
            id: 6000 + n,
            service: g.pick(&SERVICES),
            next: [1000, 50_000],
            count: 0,
            last: Vec::new(),
        }
    };
    (0..6).map(one).collect()
}

/// The next packet of a conversation, and the number of the port where it arrives.
pub fn packet(g: &mut Gen, c: &mut Conversation) -> (u32, Vec<u8>) {
    // Mostly in turn.
    let side = if g.one_in(4) { usize::from(g.bool()) } else { c.count % 2 };
    let (from, to) = match side {
        0 => (c.client, c.called[1]),
        _ => (c.server, c.called[0]),
    };
    let (from, to) = (c.address(from), c.address(to));
    let port = u32::from(if side == 0 { c.client } else { c.server });
    // OVS 3.1 corrects a checksum twice in an ICMPv6 error about a translated reply.
    let may_err = !(c.is_v6 && g.translates && side == 0);
    if !c.last.is_empty() && may_err && g.one_in(10) {
        return (port, error(g, from, to, &c.last));
    }
    let (sport, dport) = if side == 0 { (c.id, c.service) } else { (c.service, c.id) };
    let head = between(g, from, to);
    let frame = match c.kind {
        Kind::Udp => {
            let len = g.below(20);
            head.udp(sport, dport).payload(&vec![7; len]).finish()
        }
        Kind::Icmp => {
            let rest = u32::from(c.id) << 16 | 1;
            match (c.is_v6, side) {
                (false, 0) => head.icmp(8, 0, rest).payload(b"ping").finish(),
                (false, _) => head.icmp(0, 0, rest).payload(b"ping").finish(),
                (true, 0) => head.icmpv6(128, 0, rest).payload(b"ping").finish(),
                (true, _) => head.icmpv6(129, 0, rest).payload(b"ping").finish(),
            }
        }
        Kind::Tcp => segment(g, c, side, head, sport, dport),
    };
    c.count += 1;
    c.last.clone_from(&frame);
    (port, frame)
}

fn segment(
    g: &mut Gen,
    c: &mut Conversation,
    side: usize,
    head: Frame,
    sport: u16,
    dport: u16,
) -> Vec<u8> {
    const FIN: u16 = 1;
    const SYN: u16 = 2;
    const RST: u16 = 4;
    const PSH: u16 = 8;
    const ACK: u16 = 16;
    let flags = match c.count {
        // A connection that starts again gets another port in OVS 3.1: its own is still taken.
        _ if g.one_in(16) && g.translates => g.pick(&[RST, RST | ACK, FIN, 0, SYN | FIN, PSH]),
        _ if g.one_in(16) => g.pick(&[SYN, SYN | ACK, RST, RST | ACK, FIN, 0, SYN | FIN, PSH]),
        0 => SYN,
        1 => SYN | ACK,
        2 => ACK,
        _ => g.pick(&[ACK, ACK | PSH, ACK | PSH, ACK | FIN]),
    };
    let data = if flags & PSH != 0 { 1 + g.below(30) } else { 0 };
    let far = if g.one_in(12) { g.pick(&[1, 100_000, 0x4000_0000]) } else { 0 };
    let seq = c.next[side].wrapping_add(far);
    let header = TcpHeader {
        src: U16::new(sport),
        dst: U16::new(dport),
        seq: U32::new(seq),
        ack: U32::new(if flags & ACK != 0 { c.next[1 - side] } else { 0 }),
        offset_flags: U16::new(5 << 12 | flags),
        window: U16::new(g.pick(&[8192, 8192, 100, 0])),
        checksum: U16::ZERO,
        urgent: U16::ZERO,
    };
    if far == 0 {
        let more = data as u32 + u32::from(flags & (SYN | FIN) != 0);
        c.next[side] = seq.wrapping_add(more);
    }
    head.tcp_header(header).payload(&vec![7; data]).finish()
}

/// An ICMP error about a packet, from its receiver or from somebody on the way.
fn error(g: &mut Gen, from: IpAddr, to: IpAddr, about: &[u8]) -> Vec<u8> {
    let quoted = about.get(ETHERNET..).unwrap_or_default();
    let head = between(g, from, to);
    match from {
        IpAddr::V4(_) => {
            head.icmp(g.pick(&[3, 3, 11, 12]), g.pick(&[0, 1, 3]), 0).payload(quoted).finish()
        }
        IpAddr::V6(_) => head.icmpv6(g.pick(&[1, 2, 3]), 0, 0).payload(quoted).finish(),
    }
}

fn between(g: &mut Gen, from: IpAddr, to: IpAddr) -> Frame {
    let mac = |address: IpAddr| [0x50, 0x54, 0, 0, 0, last_byte(address)];
    let frame = Frame::ethernet(mac(to), mac(from));
    let frame = if g.one_in(8) { frame.vlan(0x8100, 10) } else { frame };
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => frame.ipv4(from, to, 64),
        (IpAddr::V6(from), IpAddr::V6(to)) => frame.ipv6(from, to, 64),
        _ => unreachable!("both ends are of one family"),
    }
}

fn last_byte(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(a) => a.octets()[3],
        IpAddr::V6(a) => a.octets()[15],
    }
}

impl Conversation {
    fn address(&self, host: u16) -> IpAddr {
        match self.is_v6 {
            true => v6(host).into(),
            false => v4(host).into(),
        }
    }
}

fn v4(host: u16) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host as u8)
}

fn v6(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, host)
}

/// A flow of a table that tracks connections.
pub fn flow_mod(g: &mut Gen) -> FlowMod {
    let table = g.pick(&[0, 0, 1, 1, 1, 2, 2, 3]);
    let is_v6 = g.one_in(4);
    let mut m = Match::ANY;
    m.set(Field::EthType, if is_v6 { 0x86dd } else { 0x0800 });
    if g.one_in(3) {
        m.set(Field::InPort, u128::from(1 + g.small(u32::from(HOSTS))));
    }
    if g.one_in(6) {
        m.set(Field::IpProto, g.pick(&[6, 17, if is_v6 { 58 } else { 1 }]));
    }
    if table > 0 {
        state(g, &mut m, is_v6);
    }
    let actions = list(g, table, is_v6);
    let mut f = FlowMod::add(g.priority(), m, &actions);
    f.table_id = table;
    f
}

/// Adds what packets have behind `ct` to a match.
fn state(g: &mut Gen, m: &mut Match, is_v6: bool) {
    use flow::ct_state::*;
    let bits = [NEW, EST, REL, RPL, INV, SNAT, DNAT];
    let (mut value, mut mask) = (u128::from(TRK), u128::from(TRK));
    for _ in 0..g.below(3) {
        let bit = u128::from(g.pick(&bits));
        mask |= bit;
        value = if g.bool() { value | bit } else { value & !bit };
    }
    m.set_masked(Field::CtState, value, mask);
    if g.one_in(6) {
        m.set(Field::CtZone, u128::from(g.small(3)));
    }
    if g.one_in(5) {
        let mask = g.pick(&[0xff, 1, 0xffff_ffff]);
        m.set_masked(Field::CtMark, u128::from(g.small(4)) & mask, mask);
    }
    if g.one_in(6) {
        let mask = g.pick(&[0xff, 1 << 64, u128::MAX]);
        m.set_masked(Field::CtLabel, g.pick(&[0, 1, 1 << 64]) & mask, mask);
    }
    if g.one_in(5) {
        let host = 1 + g.small(u32::from(HOSTS)) as u16;
        let to_client = g.bool();
        let (value, field) = match (is_v6, to_client) {
            (true, true) => (v6(host).to_bits(), Field::CtIpv6Dst),
            (true, false) => (v6(host).to_bits(), Field::CtIpv6Src),
            (false, true) => (v4(host).to_bits().into(), Field::CtNwDst),
            (false, false) => (v4(host).to_bits().into(), Field::CtNwSrc),
        };
        m.set(field, value);
        if g.bool() {
            m.set(Field::CtNwProto, g.pick(&[6, 17]));
            if g.bool() {
                m.set(Field::CtTpDst, g.pick(&SERVICES).into());
            } else {
                m.set(Field::CtTpSrc, u128::from(6000 + g.small(6)));
            }
        }
    }
}

fn list(g: &mut Gen, table: u8, is_v6: bool) -> Vec<Action> {
    let mut out = Vec::new();
    if table == 0 && g.below(6) != 0 {
        out.push(look(g, table));
        return out;
    }
    for _ in 0..1 + g.below(2) {
        match g.below(8) {
            0 | 1 => out.push(ct(g, table, is_v6)),
            2 => out.push(Action::CtClear),
            3 => {
                let whole = |field: Field| Subfield { field, start: 0, bits: 32 };
                out.push(Action::Move { src: whole(Field::CtMark), dst: whole(Field::Reg1) });
            }
            4 => out.push(Action::Clone(vec![ct(g, table, is_v6)])),
            5 if table < 3 => out.push(look(g, table)),
            6 => out.extend(actions::applied(g, table, 1, false)),
            _ => {}
        }
    }
    if g.below(4) != 0 {
        let port = openflow::PortNo(1 + g.small(u32::from(HOSTS)));
        out.push(Action::Output { port, max_len: 0 });
    }
    out
}

/// A lookup that goes on in a later table.
fn look(g: &mut Gen, table: u8) -> Action {
    let actions =
        if g.bool() { vec![Action::Nat(nat(None, NatAddresses::Any, None))] } else { vec![] };
    Action::Ct(Box::new(Ct {
        commit: false,
        force: false,
        zone: zone(g),
        table: Some(table + 1),
        alg: 0,
        actions,
    }))
}

fn zone(g: &mut Gen) -> CtZone {
    match g.one_in(10) {
        true => CtZone::Field(Subfield { field: Field::Reg0, start: 0, bits: 16 }),
        false => CtZone::Number(g.pick(&[0, 1, 1, 1, 2])),
    }
}

fn nat(side: Option<NatSide>, addresses: NatAddresses, ports: Option<(u16, u16)>) -> Nat {
    Nat { side, addresses, ports, persistent: false, hash: false, random: false }
}

/// A `ct` of any kind for a flow that matches on the family.
///
/// Without a helper: what those do is for `tests/tests/oracle`.
pub fn ct(g: &mut Gen, table: u8, is_v6: bool) -> Action {
    let commit = g.below(4) != 0;
    let mut actions = Vec::new();
    if g.translates && g.bool() {
        let one = |host| match is_v6 {
            true => NatAddresses::V6(v6(host), v6(host)),
            false => NatAddresses::V4(v4(host), v4(host)),
        };
        let server = 1 + HOSTS / 2 + g.small(u32::from(HOSTS / 2)) as u16;
        let mut nat = match g.below(5) {
            0 | 1 if commit => nat(Some(NatSide::Source), one(OUTSIDE), None),
            2 if commit => nat(Some(NatSide::Destination), one(server), None),
            3 if commit => nat(Some(NatSide::Destination), one(server), Some((80, 80))),
            // Not with `commit`: OVS 3.1 then translates to the address 0.0.0.0.
            _ if commit => return ct(g, table, is_v6),
            _ => nat(None, NatAddresses::Any, None),
        };
        if nat.side.is_some() {
            match g.below(6) {
                0 => nat.random = true,
                1 => nat.hash = true,
                2 => nat.persistent = true,
                _ => {}
            }
        }
        actions.push(Action::Nat(nat));
    }
    if commit && g.bool() {
        let mask = g.pick(&[0xff, 1, 0xffff_ffff]);
        let value = u128::from(g.small(4)) & mask;
        let (field, spelled) = (Field::CtMark, SetSpelling::SetField);
        actions.push(Action::SetField { field, value, mask, spelled });
    }
    if commit && g.one_in(4) {
        let mask = g.pick(&[0xff, 1 << 64, u128::MAX]);
        let value = g.pick(&[0, 1, 1 << 64]) & mask;
        let (field, spelled) = (Field::CtLabel, SetSpelling::SetField);
        actions.push(Action::SetField { field, value, mask, spelled });
    }
    if commit && g.one_in(8) {
        let src = Subfield { field: Field::Reg0, start: 0, bits: 8 };
        let dst = Subfield { field: Field::CtMark, start: 8, bits: 8 };
        actions.push(Action::Move { src, dst });
    }
    let table = (table < 3 && g.one_in(3)).then_some(table + 1);
    Action::Ct(Box::new(Ct {
        commit,
        force: commit && !g.translates && g.one_in(4),
        zone: zone(g),
        table,
        alg: 0,
        actions,
    }))
}

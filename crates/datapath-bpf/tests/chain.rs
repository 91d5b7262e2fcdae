// SPDX-License-Identifier: Apache-2.0
//! Results of chains (`bpf/chain.h`): packets of random connections through two `ct`, by programs
//! that keep results and by programs whose results are removed before each packet. Connections and
//! flows change in between. Chains begin and end in tunnels, too. Needs root.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[allow(dead_code)] // other tests use the rest
mod support;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use conntrack::{
    ChecksumState, Checksums, Commit, Entry, Family, IpPacket, Manip, Metadata, Nat, NatRange,
    Request, Selection, Sweeper, Table, Ticks, Tracker,
};
use datapath::{Action, Masked, PortNo, Set};
use datapath_bpf::ct_memory::BpfMemory;
use datapath_bpf::grace::Grace;
use datapath_bpf::layout::*;
use datapath_bpf::load::Hook;
use datapath_bpf::slot::Slot;
use datapath_bpf::{flows::FlowCount, keys};
use fastrand::Rng;
use flow::{Key, ct_state};
use packet::TcpHeader;
use packet::build::Frame;
use support::*;
use testing::without_root;
use tunnel::{Encapsulation, Header, HeaderParts, OuterIp, SourcePorts, Udp};

const SECRET: [u64; 2] = [0x1234_5678_9abc_def0, 0x9e37_79b9_7f4a_7c15];
/// Slots that hold flows: two lookups, in turn one of the next two for the output, and one for outer
/// packets.
const SLOTS: u32 = 5;
const OUTER: u32 = 4;
/// The port of the tunnel that packets come out of.
const FROM_PORT: u32 = 9;
const MARK: u32 = 5;

const FIN: u16 = 1;
const SYN: u16 = 2;
const RST: u16 = 4;
const ACK: u16 = 0x10;

fn now() -> Ticks {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Ticks::at(Duration::try_from(time).unwrap())
}

/// The source that connections get.
const TRANSLATED: Ipv4Addr = Ipv4Addr::new(10, 0, 7, 7);

fn translation() -> Nat {
    Nat::Range(NatRange {
        manip: Manip::Src,
        addresses: Some((TRANSLATED.into(), TRANSLATED.into())),
        ports: None,
        selection: Selection::Default,
        persistent: false,
    })
}

fn set_ttl(value: u8) -> Action {
    let address = Masked { value: [0; 4], mask: [0; 4] };
    let tos = Masked { value: 0, mask: 0 };
    let ttl = Masked { value, mask: 0xff };
    Action::Set(Set::Ipv4 { src: address, dst: address, tos, ttl })
}

fn set_address() -> Action {
    let src = Masked { value: [2, 0, 0, 0, 0, 9], mask: [0xff; 6] };
    Action::Set(Set::Ethernet { src, dst: Masked { value: [0; 6], mask: [0; 6] } })
}

fn ct(zone: u16) -> Request {
    Request { zone, ..Request::default() }
}

/// The work of a chain.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Of the first `ct` and of the second.
    zones: [u16; 2],
    /// Connections get another source.
    nat: bool,
    /// Flows change headers.
    edits: bool,
    /// Packets come out of a tunnel.
    out_of: bool,
    /// Packets go into a tunnel, whose header has a checksum or none.
    into: Option<bool>,
}

const PLAIN: Plan = Plan { zones: [1, 2], nat: false, edits: false, out_of: false, into: None };

/// A header whose path is too short for the longest frames.
fn header(has_checksum: bool) -> Header {
    let ip = OuterIp::V4 {
        src: Ipv4Addr::new(192, 0, 2, 1),
        dst: Ipv4Addr::new(192, 0, 2, 2),
        tos: 0,
        ttl: 64,
        fragment: 0x4000,
    };
    let udp = Udp { dst: 4789, has_checksum, sources: SourcePorts { first: 1000, last: 60_000 } };
    let encapsulation = Encapsulation::Vxlan { udp, flags: 0x800_0000, vni: 5 };
    let parts = HeaderParts { eth_dst: [1; 6], eth_src: [2; 6], ip, encapsulation };
    Header::new(parts).unwrap().with_path_mtu(Some(36 + 90))
}

/// A packet of VXLAN with this frame.
fn wrapped(inner: &[u8], vni: u8) -> Vec<u8> {
    let vxlan = [&[8, 0, 0, 0, 0, 0, vni, 0][..], inner].concat();
    let mut frame = Frame::ethernet([2, 0, 0, 0, 0, 7], [2, 0, 0, 0, 0, 8])
        .ipv4([192, 0, 2, 2].into(), [192, 0, 2, 1].into(), 64)
        .udp(5555, 4789)
        .payload(&vxlan)
        .finish();
    frame[40..42].fill(0); // no checksum: some inner packets are damaged
    frame
}

/// Programs with a table of connections, which a tracker shares.
struct Side {
    plan: Plan,
    bed: Bed,
    daemon: Tracker,
    /// The slot of the flow that sends.
    last: u32,
}

impl Side {
    fn new(hook: Hook, plan: Plan) -> Side {
        let (memory, _) = BpfMemory::open(None, 4096).unwrap();
        let memory = Arc::new(memory);
        let table = Arc::new(Table::open(memory.clone(), SECRET).unwrap());
        Sweeper::new(table.clone(), Box::new(Grace::new().unwrap())).slice(now());
        let bed = Bed::that_tracks(hook, &memory.maps());
        let mut side = Side { plan, bed, daemon: Tracker::new(table), last: 2 };
        side.take_out_of_tunnel();
        let header = TunnelHeader::new(&header(plan.into == Some(true))).unwrap();
        side.bed.maps.tunnel_headers.write(0, &header);
        side.look_up_again(0);
        side.look_up_again(1);
        side.replace_last(OUT_PORT);
        side
    }

    /// Makes the tunnel's port, and the flow whose packets are of it.
    fn take_out_of_tunnel(&self) {
        let port = Port { tunnel: TunnelKind::Vxlan as u32, upcall_limit: 4, ..Port::default() };
        self.bed.maps.ports.write(FROM_PORT as usize, &port);
        let (mut key, mut mask) = (Key::ZERO, Key::ZERO);
        key.in_port.set(IN_PORT);
        mask.in_port.set(u32::MAX);
        mask.recirc_id.set(u32::MAX);
        let mask = keys::to_words(&mask);
        let flow = self.bed.flow(&key, &mask);
        if self.plan.out_of {
            let pop = Slot { flags: FLOW_POP, tunnel: FROM_PORT, ..flow };
            self.bed.put(OUTER, &pop, &mask);
        }
    }

    /// Puts a flow that matches on the metadata of the lookups before it. Those of packets out of tunnels
    /// match on half of the tunnels.
    fn flow(&self, recirc: u32) -> (Slot, [u64; WORDS]) {
        let (mut key, mut mask) = (Key::ZERO, Key::ZERO);
        key.in_port.set(if self.plan.out_of { FROM_PORT } else { IN_PORT });
        mask.in_port.set(u32::MAX);
        key.recirc_id.set(recirc);
        mask.recirc_id.set(u32::MAX);
        if self.plan.out_of {
            key.tunnel.id.set(2);
            mask.tunnel.id.set(u64::MAX - 1);
        }
        if recirc > 0 {
            key.ct_state = ct_state::TRK | ct_state::EST;
            mask.ct_state = key.ct_state;
        }
        if recirc == 2 {
            key.ct_mark.set(MARK);
            mask.ct_mark.set(0xff);
        }
        let mask = keys::to_words(&mask);
        (self.bed.flow(&key, &mask), mask)
    }

    /// Makes one of the first two slots track, and look the packet up again.
    fn look_up_again(&self, slot: u32) {
        let (mut flow, mask) = self.flow(slot);
        let request = ct(self.plan.zones[slot as usize]);
        let request = Request { nat: Some(Nat::Existing), ..request };
        let mut actions = vec![Action::Ct(Box::new(request)), Action::Recirc(slot + 1)];
        if self.plan.edits {
            actions.insert(slot as usize ^ 1, set_ttl(60 + slot as u8));
            actions.insert(1, set_address());
        }
        if self.plan.edits && !self.plan.nat && slot == 1 {
            actions.insert(0, Action::CtClear);
        }
        self.bed.put_program_at(slot, &mut flow, &actions);
        assert_eq!(flow.flags & (FLOW_CHAIN | FLOW_CHAIN_END), FLOW_CHAIN, "{actions:?}");
        self.bed.put(slot, &flow, &mask);
    }

    /// Makes another slot send.
    fn replace_last(&mut self, port: u32) {
        let next = 5 - self.last;
        self.bed.kill(self.last);
        let (mut flow, mask) = self.flow(2);
        let mut actions = vec![Action::Output(PortNo(port))];
        if let Some(has_checksum) = self.plan.into {
            actions.insert(0, tunnels::push(header(has_checksum)));
        }
        if self.plan.edits {
            actions.insert(0, set_ttl(50));
            actions.insert(0, Action::CtClear);
        }
        if actions.len() > 1 {
            self.bed.put_program_at(next, &mut flow, &actions);
            assert_eq!(flow.flags & (FLOW_CHAIN | FLOW_CHAIN_END), FLOW_CHAIN_END);
        } else {
            flow.output = port;
        }
        self.bed.put(self.last, &Slot { dead: 1, ..flow }, &mask); // its mask stays in use
        self.bed.kill(self.last);
        self.bed.put(next, &flow, &mask);
        self.last = next;
    }

    /// Has the tracker process a packet in both zones.
    fn track(&self, frame: &[u8], commit: Commit, mark: Option<(u32, u32)>) {
        let mut worker = self.daemon.table().worker();
        let mut bytes = frame[14..].to_vec();
        let mut meta = Metadata::default();
        let nat = if self.plan.nat { translation() } else { Nat::Existing };
        for zone in self.plan.zones {
            let mut packet = IpPacket {
                bytes: &mut bytes,
                family: Family::V4,
                verify: Checksums::ALL,
                checksum: ChecksumState::Finished,
            };
            let nat = Some(if commit == Commit::Yes { nat } else { Nat::Existing });
            let request = Request { commit, mark, nat, ..ct(zone) };
            self.daemon.process(&worker.pin(), &mut packet, &mut meta, &request, now());
        }
    }

    /// Sends a frame, in the tunnel with this number if there is one; true when a result of a chain sent it.
    fn send(&self, frame: &[u8], vni: u8) -> (Outcome, Vec<FlowCount>, bool) {
        self.bed.clear("states");
        let frame = if self.plan.out_of { wrapped(frame, vni) } else { frame.to_vec() };
        let outcome = self.bed.run(&frame);
        let is_parsed = self.bed.state().key[word::ETH0] != 0;
        (outcome, self.bed.counts(SLOTS), !is_parsed)
    }

    fn entries(&self) -> Vec<Entry> {
        let mut all = Vec::new();
        let mut cursor = Some(0);
        while let Some(at) = cursor {
            cursor = self.daemon.table().dump(None, at, now(), |entry| all.push(*entry));
        }
        all.sort_by_key(|entry| entry.original);
        all
    }
}

struct Talk {
    plan: Plan,
    number: u8,
    tcp: bool,
    sequence: [u32; 2],
}

impl Talk {
    fn frame(&mut self, side: usize, flags: u16, length: usize, skew: u32) -> Vec<u8> {
        let mut hosts = [Ipv4Addr::new(10, 0, 0, self.number), Ipv4Addr::new(10, 0, 1, 1)];
        let ports = [1000 + u16::from(self.number), 80];
        if side == 1 && self.plan.nat {
            hosts[0] = TRANSLATED;
        }
        let frame = Frame::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let frame = frame.ipv4(hosts[side], hosts[1 - side], 64);
        let payload = vec![0x5a; length];
        if !self.tcp {
            return frame.udp(ports[side], ports[1 - side]).payload(&payload).finish();
        }
        let ack = if flags & ACK == 0 { 0 } else { self.sequence[1 - side] };
        let seq = self.sequence[side].wrapping_add(skew);
        self.sequence[side] =
            self.sequence[side].wrapping_add(length as u32 + u32::from(flags & SYN != 0));
        frame
            .tcp_header(TcpHeader {
                src: ports[side].into(),
                dst: ports[1 - side].into(),
                seq: seq.into(),
                ack: ack.into(),
                offset_flags: (5 << 12 | flags).into(),
                window: 4000.into(),
                checksum: 0.into(),
                urgent: 0.into(),
            })
            .payload(&payload)
            .finish()
    }

    /// Packets after which the connection is established.
    fn opening(&mut self) -> [Vec<u8>; 3] {
        [(0, SYN), (1, SYN | ACK), (0, ACK)].map(|(side, flags)| self.frame(side, flags, 0, 0))
    }

    /// A packet that is mostly one of many.
    fn next(&mut self, rng: &mut Rng) -> Vec<u8> {
        let odd = if rng.u8(..8) == 0 { rng.u8(1..) } else { 0 };
        let flags = match odd {
            1..20 => FIN | ACK,
            20..40 => RST,
            40..50 => SYN,
            50..60 => 0,
            _ => ACK,
        };
        let skew = if (60..100).contains(&odd) { rng.u32(..) } else { 0 };
        let before = self.sequence;
        let mut frame = self.frame(rng.usize(..2), flags, rng.usize(..40), skew);
        if flags != ACK || skew != 0 {
            self.sequence = before;
        }
        match odd {
            100..130 => frame[22] = 63,    // TTL, without the checksum
            130..150 => frame[20] ^= 0x20, // more fragments
            150..170 => frame[39] ^= 1,    // length of UDP, sequence number of TCP
            170..190 => frame[12] = 0x81,
            _ => {}
        }
        frame
    }
}

/// Changes flows or connections between two packets, on both sides.
fn change(sides: &mut [Side; 2], talk: &mut Talk, rng: &mut Rng) {
    match rng.u8(..4) {
        0 => {
            let port = [OUT_PORT, OTHER_PORT, DOWN_PORT][rng.usize(..3)];
            sides.iter_mut().for_each(|side| side.replace_last(port));
        }
        1 => {
            // The mark of one that is established; most often the one that flows match on.
            let mark = if rng.u8(..4) == 0 { rng.u32(..) } else { MARK };
            let frame = talk.frame(0, ACK, 0, 0);
            sides.iter().for_each(|s| s.track(&frame, Commit::Yes, Some((mark, u32::MAX))));
        }
        2 => {
            let frame = talk.frame(0, RST | ACK, 0, 0);
            sides.iter().for_each(|side| side.track(&frame, Commit::No, None));
            open(sides, talk);
        }
        _ => open(sides, talk),
    }
}

fn open(sides: &[Side; 2], talk: &mut Talk) {
    for frame in talk.opening() {
        sides.iter().for_each(|s| s.track(&frame, Commit::Yes, Some((MARK, u32::MAX))));
    }
}

/// Sends random packets through both sides, and returns how many of them results sent at the first.
fn packets(hook: Hook, plan: Plan, mut sides: [Side; 2]) -> u32 {
    let mut rng = Rng::with_seed(0x32);
    let talk = |number| Talk { plan, number, tcp: number % 2 == 0, sequence: [100, 900] };
    let mut talks: Vec<Talk> = (1..7).map(talk).collect();
    talks.iter_mut().for_each(|talk| open(&sides, talk));
    let (mut kept, mut counted) = (0, 0);
    for _ in 0..6000 {
        // Often the same, so that caches know its flow.
        let at = if rng.u8(..3) == 0 { rng.usize(..talks.len()) } else { 0 };
        if rng.u8(..40) == 0 {
            change(&mut sides, &mut talks[at], &mut rng);
        }
        let frame = talks[at].next(&mut rng);
        // Two that the flows match on, and one that they do not.
        let vni = 2 + [0, 0, 0, 0, 1, 1, 2][rng.usize(..7)];
        let [one, other] = &sides;
        other.bed.clear("chains");
        let (here, counts, is_kept) = one.send(&frame, vni);
        let (there, expected, is_not) = other.send(&frame, vni);
        assert_eq!((here, &counts), (there, &expected), "{hook:?} {plan:?}: {frame:02x?}");
        assert!(!is_not, "{hook:?} {plan:?}: there is no result");
        kept += u32::from(is_kept);
        counted = counts.iter().map(|count| count.packets).sum();
    }
    let [one, other] = sides.map(|side| side.entries());
    assert_eq!(one.len(), other.len());
    for (one, other) in one.iter().zip(&other) {
        // A tick or so passed between the two.
        assert!(one.timeout.abs_diff(other.timeout) < Duration::from_secs(1), "{one:?} {other:?}");
        let without = |entry: &Entry| Entry { timeout: Duration::ZERO, ..*entry };
        assert_eq!(without(one), without(other));
    }
    eprintln!("{hook:?} {plan:?}: {kept} of 6000 by results, {counted} counted");
    kept
}

fn results_change_nothing(hook: Hook) {
    for plan in PLANS.into_iter().chain(TUNNELS) {
        let kept = packets(hook, plan, [(); 2].map(|()| Side::new(hook, plan)));
        assert!(kept > 1500, "{hook:?} {plan:?}: {kept}");
    }
}

const NAT: Plan = Plan { zones: [1, 1], nat: true, ..PLAIN };

/// Chains with and without changes of the packets.
const PLANS: [Plan; 4] = [PLAIN, Plan { edits: true, ..PLAIN }, NAT, Plan { edits: true, ..NAT }];

/// Chains that begin in a tunnel, end in one, or both.
const TUNNELS: [Plan; 7] = [
    Plan { out_of: true, ..PLAIN },
    Plan { out_of: true, edits: true, ..NAT },
    Plan { into: Some(false), ..PLAIN },
    Plan { into: Some(false), edits: true, ..PLAIN },
    Plan { into: Some(true), edits: true, ..NAT },
    Plan { out_of: true, into: Some(false), ..PLAIN },
    Plan { out_of: true, into: Some(true), edits: true, ..NAT },
];

#[test]
fn results_change_nothing_at_tc() {
    if !without_root() {
        results_change_nothing(Hook::Tc);
    }
}

#[test]
fn results_change_nothing_at_xdp() {
    if !without_root() {
        results_change_nothing(Hook::Xdp);
    }
}

/// As on a kernel that refuses the program of chains.
#[test]
fn flows_of_chains_run_without_their_program() {
    if without_root() {
        return;
    }
    for hook in [Hook::Tc, Hook::Xdp] {
        for plan in PLANS {
            let sides = [(); 2].map(|()| Side::new(hook, plan));
            sides[0].bed.take_out(Tail::Chain);
            assert_eq!(packets(hook, plan, sides), 0, "{hook:?}");
        }
        for plan in TUNNELS {
            let sides = [(); 2].map(|()| Side::new(hook, plan));
            sides[0].bed.take_out(Tail::TunChain);
            assert_eq!(packets(hook, plan, sides), 0, "{hook:?}");
        }
    }
}

/// Sends a frame until a result sends it, and returns whether the next one is sent so after
/// `change`.
fn holds(side: &mut Side, frame: &[u8], change: impl FnOnce(&mut Side)) -> bool {
    let sent = (0..50).any(|_| side.send(frame, 2).2);
    assert!(sent, "no result");
    change(side);
    side.send(frame, 2).2
}

#[test]
fn a_result_ends_with_what_it_was_made_of() {
    if without_root() {
        return;
    }
    let both = Plan { out_of: true, into: Some(true), ..PLAIN };
    for (hook, plan) in [Hook::Tc, Hook::Xdp].into_iter().flat_map(|h| [(h, PLAIN), (h, both)]) {
        let mut side = Side::new(hook, plan);
        let mut talk = Talk { plan, number: 9, tcp: false, sequence: [0; 2] };
        let opening = talk.opening();
        let open = |side: &Side| {
            opening.iter().for_each(|f| side.track(f, Commit::Yes, Some((MARK, u32::MAX))));
        };
        open(&side);
        let frame = talk.frame(0, 0, 8, 0);
        let reply = talk.frame(1, 0, 8, 0);
        let set = |mark| move |s: &mut Side| s.track(&reply, Commit::Yes, Some((mark, u32::MAX)));
        let flush = |side: &mut Side| {
            let table = side.daemon.table();
            let mut live = table.slots().filter_map(|slot| table.slot(slot));
            let conn = live.find(|conn| conn.head().is_live(now())).unwrap();
            assert!(table.kill(conn, conn.head()));
        };
        assert!(holds(&mut side, &frame, |_| ()));
        assert!(!holds(&mut side, &frame, |s| s.replace_last(OTHER_PORT)));
        assert!(!holds(&mut side, &frame, |s| {
            s.bed.kill(1);
            s.look_up_again(1);
        }));
        assert!(!holds(&mut side, &frame, set(MARK | 0x100)), "also where the flow matches");
        assert!(!holds(&mut side, &frame, flush));
        // Nobody makes the connection again here.
        assert!((0..10).all(|_| !side.send(&frame, 2).2));
        open(&side);
        assert!(holds(&mut side, &frame, |_| ()));
    }
}

#[test]
#[ignore = "a measurement"]
fn nanoseconds_of_a_packet_of_a_chain() {
    for hook in [Hook::Tc, Hook::Xdp] {
        for plan in PLANS.into_iter().chain(TUNNELS) {
            let side = Side::new(hook, plan);
            let mut talk = Talk { plan, number: 9, tcp: false, sequence: [0; 2] };
            for frame in talk.opening() {
                side.track(&frame, Commit::Yes, Some((MARK, u32::MAX)));
            }
            let frame = talk.frame(0, 0, 18, 0);
            let frame = if plan.out_of { wrapped(&frame, 2) } else { frame };
            let best =
                || (0..2000).map(|_| side.bed.repeat(&frame, 1).unwrap().1).min().unwrap_or(0);
            let with = best();
            side.bed.take_out(Tail::TunChain);
            side.bed.take_out(Tail::Chain);
            eprintln!("{hook:?} {plan:?}: {with} ns, by all lookups {} ns", best());
        }
    }
}

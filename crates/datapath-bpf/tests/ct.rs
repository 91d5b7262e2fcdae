// SPDX-License-Identifier: Apache-2.0
//! `ct` in the programs against the tracker: random conversations through both, over tables of
//! their own. A packet that the programs leave goes on in the tracker, on the programs' table. Needs
//! root.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[allow(dead_code)] // other tests use the rest
mod support;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use conntrack::{
    ChecksumState, Checksums, Commit, Counter, Entry, Family, Helper, IpPacket, Manip, Metadata,
    Nat, NatRange, NoBarrier, PlainMemory, Request, Selection, Sizes, Sweeper, Table, Ticks,
    Tracker,
};
use datapath::{Action, PortNo};
use datapath_bpf::ct_memory::BpfMemory;
use datapath_bpf::grace::Grace;
use datapath_bpf::keys;
use datapath_bpf::layout::*;
use datapath_bpf::load::Hook;
use fastrand::Rng;
use flow::Key;
use flow::ct_state::{DNAT, EST, INV, NEW, REL, RPL, SNAT, TRK};
use packet::build::Frame;
use packet::{FromBytes as _, TcpHeader, ethertype};
use support::*;
use testing::without_root;

/// The secret of both tables: the choices of NAT depend on it.
const SECRET: [u64; 2] = [0x1234_5678_9abc_def0, 0x9e37_79b9_7f4a_7c15];

/// The mask of a flow that matches on the port alone.
fn of_port() -> [u64; WORDS] {
    let mut key = Key::ZERO;
    key.in_port.set(u32::MAX);
    keys::to_words(&key)
}

fn now() -> Ticks {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Ticks::at(std::time::Duration::try_from(time).unwrap())
}

/// Carries out `ct` actions on a frame.
fn track(tracker: &Tracker, frame: &mut [u8], meta: &mut Metadata, requests: &[Request]) {
    let mut worker = tracker.table().worker();
    for request in requests {
        let family = match u16::from_be_bytes([frame[12], frame[13]]) {
            ethertype::IPV4 => Family::V4,
            ethertype::IPV6 => Family::V6,
            _ => {
                tracker.process_untrackable(meta, request.zone);
                continue;
            }
        };
        let mut packet = IpPacket {
            bytes: &mut frame[14..],
            family,
            verify: Checksums::ALL,
            checksum: ChecksumState::Finished,
        };
        tracker.process(&worker.pin(), &mut packet, meta, request, now());
    }
}

fn words_of(meta: &Metadata) -> [u64; WORDS] {
    let mut key = Key::ZERO;
    meta.write_to(&mut key);
    keys::to_words(&key)
}

/// Everything in a table but the timeouts.
fn entries(table: &Table) -> Vec<Entry> {
    let mut all = Vec::new();
    let mut cursor = Some(0);
    while let Some(at) = cursor {
        cursor = table.dump(None, at, now(), |entry| {
            all.push(Entry { timeout: std::time::Duration::ZERO, ..*entry });
        });
    }
    all.sort_by_key(|entry| entry.original);
    all
}

/// The programs with their table, and the tracker alone.
struct Twins {
    bed: Bed,
    hook: Hook,
    /// The tracker on the programs' table.
    daemon: Tracker,
    alone: Tracker,
    sweepers: [Sweeper; 2],
    /// Packets that programs tracked to the end.
    here: u64,
    /// Those among them that were translated.
    translated: u64,
}

impl Twins {
    fn new(hook: Hook) -> Twins {
        let (memory, _) = BpfMemory::open(None, 4096).unwrap();
        let memory = Arc::new(memory);
        let shared = Arc::new(Table::open(memory.clone(), SECRET).unwrap());
        let sweeper = Sweeper::new(shared.clone(), Box::new(Grace::new().unwrap()));
        let bed = Bed::that_tracks(hook, &memory.maps());
        let plain = Arc::new(PlainMemory::new(Sizes::default()));
        let alone = Arc::new(Table::open(plain, SECRET).unwrap());
        let sweepers = [sweeper, Sweeper::new(alone.clone(), Box::new(NoBarrier))];
        let (daemon, alone) = (Tracker::new(shared), Tracker::new(alone));
        Twins { bed, hook, daemon, alone, sweepers, here: 0, translated: 0 }
    }

    /// Sends a frame through `requests` on both sides, and returns what leaves and the metadata.
    fn send(&mut self, frame: &[u8], requests: &[Request]) -> (Vec<u8>, Metadata) {
        let (mut expected, mut meta) = (frame.to_vec(), Metadata::default());
        track(&self.alone, &mut expected, &mut meta, requests);
        let (left, words, tracked) = self.send_here(frame, requests);
        let shown = || format!("{:?}: {requests:?} on {frame:02x?}", self.hook);
        assert_eq!(left, expected, "{}", shown());
        assert_eq!(words[PORT_WORDS..], words_of(&meta)[PORT_WORDS..], "{meta:?}, {}", shown());
        if tracked {
            self.here += 1;
            self.translated += u64::from(meta.state & (SNAT | DNAT) != 0);
        }
        (left, meta)
    }

    fn send_here(&self, frame: &[u8], requests: &[Request]) -> (Vec<u8>, [u64; WORDS], bool) {
        let mut actions: Vec<Action> =
            requests.iter().map(|request| Action::Ct(Box::new(*request))).collect();
        actions.push(Action::Output(PortNo(OUT_PORT)));
        let key = flow::extract::key_of(frame, IN_PORT);
        let mut flow = self.bed.flow(&key, &of_port());
        self.bed.put_program(&mut flow, &actions);
        self.bed.install(&flow, &of_port());
        let ran = self.bed.run(frame);
        let (redirect, passed) = match self.hook {
            Hook::Tc => (7, 2), // dropped: there is no way up
            Hook::Xdp => (4, 2),
        };
        let state = self.bed.state();
        let mut words = [0; WORDS];
        if state.tracked {
            words[PORT_WORDS..].copy_from_slice(&state.key[PORT_WORDS..]);
        }
        if ran.verdict == redirect {
            return (ran.frame, words, state.tracked);
        }
        assert_eq!(ran.verdict, passed);
        let mut left = ran.frame;
        let (mut meta, mut done) = (Metadata::default(), 0);
        if self.hook == Hook::Xdp {
            assert_eq!(left, frame, "XDP leaves the frame as it came");
        } else {
            // The daemon goes on where the programs left.
            let cells = self.bed.cells();
            let mut cell = 0;
            while cell < state.pc as usize {
                cell += (cells[cell] >> 8 & 0xff) as usize;
                done += 1;
            }
            meta = Metadata::of_key(&with_type(&words, &left), 0);
        }
        track(&self.daemon, &mut left, &mut meta, &requests[done..]);
        (left, words_of(&meta), false)
    }

    fn compare(&mut self) {
        for sweeper in &mut self.sweepers {
            sweeper.pass(now());
        }
        let (daemon, alone) = (self.daemon.table(), self.alone.table());
        assert_eq!(entries(daemon), entries(alone));
        for zone in [0, 1, 9] {
            let of =
                |table: &Table| (table.counts().zone(zone), table.counts().zone_half_open(zone));
            assert_eq!(of(daemon), of(alone), "zone {zone}");
        }
        for counter in Counter::ALL {
            // Programs verify no checksums of packets that move no state.
            let is_verified =
                matches!(counter, Counter::IpChecksumChecked | Counter::TransportChecksumChecked);
            let (here, there) =
                (self.daemon.counters().get(*counter), self.alone.counters().get(*counter));
            assert!(here == there || is_verified && here < there, "{counter:?} {here} {there}");
        }
    }
}

fn with_type(words: &[u64; WORDS], frame: &[u8]) -> Key {
    let mut key = keys::from_words(words);
    key.dl_type.set(u16::from_be_bytes([frame[12], frame[13]]));
    key
}

/// Two hosts that talk. The second one sees the first as its translation shows it.
struct Talk {
    proto: u8,
    v6: bool,
    zone: u16,
    nat: Option<Nat>,
    /// Address and port, as each side's packets come in: first the source of side 0, then its
    /// destination, then the same for side 1.
    ends: [[(IpAddr, u16); 2]; 2],
    sequence: [u32; 2],
    steps: u32,
    /// The step at which TCP closes, and the side that begins.
    close: (u32, usize),
}

const FIN: u16 = 1;
const SYN: u16 = 2;
const RST: u16 = 4;
const ACK: u16 = 0x10;

fn address(v6: bool, n: u8) -> IpAddr {
    if v6 {
        Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, n.into()).into()
    } else {
        Ipv4Addr::new(10, 0, 0, n).into()
    }
}

impl Talk {
    fn new(rng: &mut Rng, number: u16) -> Talk {
        let v6 = rng.u8(..3) == 0;
        let proto = [6, 6, 17, 1, 132, 47][rng.usize(..6)];
        let host = |n| address(v6, n);
        let (a, b) = (host(rng.u8(1..4)), host(rng.u8(1..4)));
        let ports = if proto == 47 { (0, 0) } else { (1000 + number, 80) };
        let range = |manip, addresses, ports, persistent| {
            let selection = Selection::Default;
            Some(Nat::Range(NatRange { manip, addresses, ports, selection, persistent }))
        };
        // Few ports for many talks, so that many candidates are taken.
        let few = |low: u16, more: u16| matches!(proto, 6 | 17).then_some((low, low + more));
        let addresses = |low, high| Some((host(low), host(high)));
        let nat = match rng.u8(..9) {
            0 => range(Manip::Src, addresses(77, 79), few(2000 + number % 4, rng.u16(..30)), false),
            1 => range(Manip::Src, addresses(77, 77), few(2000, 2), rng.bool()),
            2 => range(Manip::Src, addresses(66, 70), None, true),
            3 => range(Manip::Src, None, few(600, rng.u16(..400)), false),
            4 => range(Manip::Dst, addresses(78, 78), few(8080, rng.u16(..3)), false),
            5 => range(Manip::Dst, addresses(78, 90), None, rng.bool()),
            6 => Some(Nat::Existing),
            _ => None,
        };
        Talk {
            proto,
            v6,
            zone: rng.u16(..2),
            nat,
            ends: [[(a, ports.0), (b, ports.1)], [(b, ports.1), (a, ports.0)]],
            sequence: [rng.u32(..), rng.u32(..)],
            steps: 0,
            close: (rng.u32(6..40), rng.usize(..2)),
        }
    }

    /// The side that sends next, and the segment's flags when TCP opens or closes.
    fn turn(&mut self, rng: &mut Rng) -> (usize, Option<u16>) {
        if self.proto == 6 && self.steps >= self.close.0 {
            let (step, first) = (self.steps - self.close.0, self.close.1);
            match step {
                0 => return (first, Some(FIN | ACK)),
                1 => return (1 - first, Some(ACK)),
                2 => return (1 - first, Some(FIN | ACK)),
                3 => return (first, Some(ACK)),
                _ => {
                    // The same ports again.
                    self.sequence = [rng.u32(..), rng.u32(..)];
                    (self.steps, self.close) = (0, (rng.u32(6..40), rng.usize(..2)));
                }
            }
        }
        match self.steps {
            0 => (0, Some(SYN)),
            1 => (1, Some(SYN | ACK)),
            2 => (0, Some(ACK)),
            _ => (rng.usize(..2), None),
        }
    }

    fn frame(&mut self, rng: &mut Rng, side: usize, flags: Option<u16>) -> Vec<u8> {
        let [(src, sport), (dst, dport)] = self.ends[side];
        let frame = Frame::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let frame = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => frame.ipv4(src, dst, 64),
            (IpAddr::V6(src), IpAddr::V6(dst)) => frame.ipv6(src, dst, 64),
            _ => panic!("one family"),
        };
        let id = u32::from(self.ends[0][0].1) << 16 | self.steps;
        let length = rng.usize(..40);
        let frame = match (self.proto, self.v6) {
            (6, _) => return self.segment(rng, side, flags, frame, length),
            (17, _) => frame.udp(sport, dport),
            (132, _) => frame.sctp(sport, dport),
            (1, false) => frame.icmp(if side == 0 { 8 } else { 0 }, 0, self.icmp_id(side, id)),
            (1, true) => frame.icmpv6(128 + side as u8, 0, self.icmp_id(side, id)),
            (proto, _) => frame.protocol(proto),
        };
        frame.payload(&vec![0x5a; length]).finish()
    }

    fn icmp_id(&self, side: usize, id: u32) -> u32 {
        u32::from(self.ends[side][side].1) << 16 | (id & 0xffff)
    }

    fn segment(
        &mut self,
        rng: &mut Rng,
        side: usize,
        flags: Option<u16>,
        frame: Frame,
        mut length: usize,
    ) -> Vec<u8> {
        let mut flags = flags.unwrap_or_else(|| {
            let any = [FIN | ACK, RST, RST | ACK, SYN, SYN | ACK, 0, 0x3f, FIN];
            if rng.u8(..60) == 0 { any[rng.usize(..8)] } else { ACK | [0, 8][rng.usize(..2)] }
        });
        if rng.u8(..50) == 0 {
            flags = [SYN, ACK, RST, SYN | ACK][rng.usize(..4)];
        }
        if flags & !(ACK | 8) != 0 && rng.u8(..4) > 0 {
            length = 0;
        }
        let mut options: Vec<u8> = Vec::new();
        if flags & SYN != 0 {
            for _ in 0..rng.u8(..4) {
                match rng.u8(..6) {
                    0 => options.extend([1, 3, 3, rng.u8(..)]),
                    1 => options.extend([3, 3, rng.u8(..9), 1]),
                    2 => options.extend([2, 4, 5, 180]),
                    3 => options.extend([1, 1, 3, rng.u8(..5)]),
                    4 => options.extend([8, rng.u8(..12), rng.u8(..), rng.u8(..)]),
                    _ => options.extend([0, 3, 3, 7]),
                }
            }
            if options.is_empty() && rng.bool() {
                options.extend([1, 3, 3, 7]);
            }
        }
        let mut seq = self.sequence[side];
        if rng.u8(..30) == 0 {
            seq = seq.wrapping_add(rng.u32(..) & [0xff, 0xffff, u32::MAX][rng.usize(..3)]);
        }
        let ack = if flags & ACK == 0 { 0 } else { self.sequence[1 - side] };
        let numbers = length as u32 + u32::from(flags & (SYN | FIN) != 0);
        self.sequence[side] = self.sequence[side].wrapping_add(numbers);
        let [(_, sport), (_, dport)] = self.ends[side];
        let words = 5 + options.len() as u16 / 4;
        options.extend(vec![0xa5; length]);
        frame
            .tcp_header(TcpHeader {
                src: sport.into(),
                dst: dport.into(),
                seq: seq.into(),
                ack: ack.into(),
                offset_flags: (words << 12 | flags).into(),
                window: rng.u16(..6000).into(),
                checksum: 0.into(),
                urgent: 0.into(),
            })
            .payload(&options)
            .finish()
    }

    /// The next packet, what is done to it, and its side.
    fn next(&mut self, rng: &mut Rng) -> (Vec<u8>, Vec<Request>, usize) {
        let (side, flags) = self.turn(rng);
        let mut frame = self.frame(rng, side, flags);
        if self.steps == 0 && rng.u8(..20) == 0 {
            // A wrong checksum, of most protocols.
            let last = frame.len() - 1;
            frame[last] ^= 1;
        }
        let commit = match rng.u8(..40) {
            0 => Commit::Force,
            1..10 => Commit::Yes,
            10..12 => Commit::No,
            _ if self.steps == 0 => Commit::Yes,
            _ => Commit::No,
        };
        let commits = commit != Commit::No;
        let first = Request {
            zone: self.zone,
            commit,
            mark: (commits && rng.bool()).then(|| (rng.u32(..), 0xff00 << rng.u8(..8))),
            label: (commits && rng.bool()).then(|| (rng.u128(..), u128::MAX << rng.u8(..128))),
            nat: self.nat.map(|nat| if commits { nat } else { Nat::Existing }),
            policy: rng.u16(..3),
            ..Request::default()
        };
        let mut requests = vec![first];
        match rng.u8(..6) {
            // The same zone again.
            0 => requests.push(Request {
                commit: Commit::Yes,
                mark: Some((rng.u32(..), 3)),
                ..first
            }),
            // Another zone, where all is committed.
            1 => requests.push(Request { zone: 9, commit: Commit::Yes, ..Request::default() }),
            2 => requests.insert(0, Request { zone: 9, commit: Commit::Yes, ..Request::default() }),
            _ => {}
        }
        self.steps += 1;
        (frame, requests, side)
    }

    /// The action on an error about a packet.
    fn look(&self, rng: &mut Rng) -> Request {
        Request {
            zone: self.zone,
            commit: [Commit::No, Commit::No, Commit::Yes, Commit::Force][rng.usize(..4)],
            mark: rng.bool().then(|| (rng.u32(..), 0xf0)),
            nat: rng.bool().then_some(Nat::Existing),
            ..Request::default()
        }
    }

    /// Side 1 answers what came out at its end.
    fn arrived(&mut self, side: usize, frame: &[u8]) {
        if side == 1 || self.steps != 1 {
            return;
        }
        let key = flow::extract::key_of(frame, IN_PORT);
        let (src, dst) = if self.v6 {
            (IpAddr::from(key.ipv6_src), IpAddr::from(key.ipv6_dst))
        } else {
            (
                Ipv4Addr::from_bits(key.nw_src.get()).into(),
                Ipv4Addr::from_bits(key.nw_dst.get()).into(),
            )
        };
        let ports = match self.proto {
            1 => {
                let at = if self.v6 { 14 + 40 + 4 } else { 14 + 20 + 4 };
                let id = u16::from_be_bytes([frame[at], frame[at + 1]]);
                (id, id)
            }
            47 => (0, 0),
            _ => (key.tp_src.get(), key.tp_dst.get()),
        };
        self.ends[1] = [(dst, ports.1), (src, ports.0)];
    }
}

/// An ICMP error that a host or a router on the way sends.
fn error_about(rng: &mut Rng, left: &[u8]) -> Vec<u8> {
    let key = flow::extract::key_of(left, IN_PORT);
    let mut quoted = left[14..left.len().min(14 + rng.usize(20..120))].to_vec();
    if rng.u8(..10) == 0 {
        let at = rng.usize(..quoted.len());
        quoted[at] = rng.u8(..);
    }
    let frame = Frame::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let router = rng.u8(100..103);
    let frame = if key.dl_type.get() == ethertype::IPV6 {
        let IpAddr::V6(router) = address(true, router) else { panic!("IPv6") };
        frame.ipv6(router, Ipv6Addr::from(key.ipv6_src), 64).icmpv6(rng.u8(1..5), 0, 0)
    } else {
        let IpAddr::V4(router) = address(false, router) else { panic!("IPv4") };
        let kind = [3, 3, 4, 5, 11, 12][rng.usize(..6)];
        frame.ipv4(router, Ipv4Addr::from_bits(key.nw_src.get()), 64).icmp(kind, rng.u8(..4), 0)
    };
    frame.payload(&quoted).finish()
}

fn conversations(hook: Hook) {
    let mut rng = Rng::with_seed(0x637);
    let mut twins = Twins::new(hook);
    for round in 0..8 {
        let mut talks: Vec<Talk> = (0..24).map(|n| Talk::new(&mut rng, round * 24 + n)).collect();
        for _ in 0..1200 {
            let at = rng.usize(..talks.len());
            let talk = &mut talks[at];
            let (frame, requests, side) = talk.next(&mut rng);
            let (left, _) = twins.send(&frame, &requests);
            talk.arrived(side, &left);
            if rng.u8(..10) == 0 {
                let (error, request) = (error_about(&mut rng, &left), talk.look(&mut rng));
                twins.send(&error, &[request]);
            }
        }
        twins.compare();
    }
    let arp = ([2, 0, 0, 0, 0, 1], Ipv4Addr::new(10, 0, 0, 1));
    let arp =
        Frame::ethernet([2, 0, 0, 0, 0, 1], [0xff; 6]).arp(ethertype::ARP, 1, arp, arp).finish();
    let before = twins.here;
    twins.send(&arp, &[Request { zone: 3, ..Request::default() }]);
    assert_eq!(twins.here, before + 1, "nothing but IP has connections");
    eprintln!("{hook:?}: {} of 10560 in BPF, {} translated", twins.here, twins.translated);
    let (here, translated) = match hook {
        Hook::Tc => (8500, 3000),
        Hook::Xdp => (3000, 800),
    };
    assert!(
        twins.here > here && twins.translated > translated,
        "{} {}",
        twins.here,
        twins.translated
    );
}

#[test]
fn conversations_at_tc() {
    if !without_root() {
        conversations(Hook::Tc);
    }
}

#[test]
fn conversations_at_xdp() {
    if !without_root() {
        conversations(Hook::Xdp);
    }
}

/// A segment of TCP over IPv4, without options and data.
fn tcp(src: (u32, u16), dst: (u32, u16), numbers: (u32, u32), flags: u16) -> Vec<u8> {
    Frame::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4(Ipv4Addr::from_bits(src.0), Ipv4Addr::from_bits(dst.0), 64)
        .tcp_header(TcpHeader {
            src: src.1.into(),
            dst: dst.1.into(),
            seq: numbers.0.into(),
            ack: numbers.1.into(),
            offset_flags: (5 << 12 | flags).into(),
            window: 4000.into(),
            checksum: 0.into(),
            urgent: 0.into(),
        })
        .finish()
}

const SERVER: (u32, u16) = (0x0a00_0001, 80);

/// Opens a connection of a client, all of it in the programs.
fn open(twins: &Twins, client: (u32, u16), request: &[Request]) {
    for (frame, state) in [
        (tcp(client, SERVER, (100, 0), SYN), NEW | TRK),
        (tcp(SERVER, client, (500, 101), SYN | ACK), EST | RPL | TRK),
        (tcp(client, SERVER, (101, 501), ACK), EST | TRK),
    ] {
        let (_, words, here) = twins.send_here(&frame, request);
        assert_eq!((keys::from_words(&words).ct_state, here), (state, true));
    }
}

#[test]
fn a_flood_ends_no_established_connection() {
    if without_root() {
        return;
    }
    const MAX: u32 = 2000;
    const ESTABLISHED: u16 = 300;
    let mut rng = Rng::with_seed(0x5f);
    let mut twins = Twins::new(Hook::Tc);
    let commit = [Request { zone: 4, commit: Commit::Yes, ..Request::default() }];
    let other = [Request { zone: 5, ..commit[0] }];
    let table = twins.daemon.table().clone();
    table.counts().set_max(MAX);
    table.counts().set_limit(5, Some(200));
    let clients = (1..=ESTABLISHED).map(|n| (0x0a00_0100 + u32::from(n) % 7, 1000 + n));
    clients.clone().for_each(|client| open(&twins, client, &commit));
    let slots = table.slots().count();
    for n in 0..30_000 {
        let source = (rng.u32(0x0b00_0000..0x0c00_0000), rng.u16(1..));
        let request = if n % 3 == 0 { &other } else { &commit };
        let (_, words, _) = twins.send_here(&tcp(source, SERVER, (rng.u32(..), 0), SYN), request);
        assert_eq!(keys::from_words(&words).ct_state, NEW | TRK);
        if n % 256 == 0 {
            twins.sweepers[0].slice(now());
        }
    }
    let counts = table.counts();
    let half_open = counts.half_open();
    assert!(half_open > 0 && half_open <= u64::from(MAX / 2), "{half_open}");
    assert_eq!(counts.conns(), half_open + u64::from(ESTABLISHED));
    assert!(counts.zone_half_open(5) <= 100, "{}", counts.zone_half_open(5));
    assert_eq!(table.slots().count(), slots, "memory does not grow");
    let count = |counter| twins.daemon.counters().get(counter);
    // For most connections outside the limited zone another one makes room.
    let refused = count(Counter::HalfOpenFull);
    assert!((5_000..18_000).contains(&refused), "{refused}");
    for client in clients {
        let frame = tcp(client, SERVER, (101, 501), ACK);
        let (_, words, here) = twins.send_here(&frame, &commit);
        assert_eq!((keys::from_words(&words).ct_state, here), (EST | TRK, true));
    }
}

#[test]
fn a_flood_in_a_limited_zone_ends_no_half_open_connection_of_another() {
    if without_root() {
        return;
    }
    const VICTIMS: u16 = 500;
    let mut rng = Rng::with_seed(0x5e);
    let mut twins = Twins::new(Hook::Tc);
    let commit = [Request { zone: 4, commit: Commit::Yes, ..Request::default() }];
    let limited = [Request { zone: 5, ..commit[0] }];
    let table = twins.daemon.table().clone();
    table.counts().set_limit(5, Some(200));
    for n in 1..=VICTIMS {
        twins.send_here(&tcp((0x0a00_0100, n), SERVER, (100, 0), SYN), &commit);
    }
    let victims = table.counts().zone_half_open(4);
    assert_eq!(victims, u64::from(VICTIMS));
    // Of 65,536 buckets those of the victims hold about one in a hundred.
    for n in 0..20_000 {
        let source = (rng.u32(0x0b00_0000..0x0c00_0000), rng.u16(1..));
        twins.send_here(&tcp(source, SERVER, (rng.u32(..), 0), SYN), &limited);
        if n % 256 == 0 {
            twins.sweepers[0].slice(now());
        }
    }
    assert_eq!(table.counts().zone_half_open(4), victims);
    assert!(table.counts().zone_half_open(5) <= 100);
}

#[test]
fn packets_to_be_tracked_have_an_account_of_their_own() {
    if without_root() {
        return;
    }
    const REDIRECT: u32 = 7;
    const DROP: u32 = 2;
    let twins = Twins::new(Hook::Tc);
    let bed = &twins.bed;
    bed.set_miss_device(1);
    let a = Ipv4Addr::new(10, 0, 0, 1);
    let frame = Frame::ethernet([2; 6], [2; 6]).ipv4(a, a, 64);
    let frame = frame.protocol(132).payload(&[1; 40]).finish(); // its checksum is not verified here
    let close = |misses, connections| {
        let port: Port = bed.maps.ports.read(IN_PORT as usize);
        let port = Port { closed_until: misses, ct_closed_until: connections, ..port };
        bed.maps.ports.write(IN_PORT as usize, &port);
    };
    let verdict = || bed.run(&frame).verdict;
    close(0, u64::MAX);
    assert_eq!(verdict(), REDIRECT, "a miss");
    close(u64::MAX, 0);
    assert_eq!(verdict(), DROP);
    let mut flow = bed.flow(&flow::extract::key_of(&frame, IN_PORT), &of_port());
    let ct = Action::Ct(Box::default());
    bed.put_program(&mut flow, &[ct, Action::Output(PortNo(OUT_PORT))]);
    bed.install(&flow, &of_port());
    assert_eq!(verdict(), REDIRECT, "a packet at its ct");
    close(0, u64::MAX);
    assert_eq!(verdict(), DROP);
    close(0, 0);
    assert_eq!(verdict(), DROP, "half of four are on their way, the other half is for misses");
    let counters = bed.counters();
    assert_eq!((counters.drops[8], counters.up), (3, 2));
}

#[test]
fn a_wrong_header_checksum_is_invalid_here() {
    if without_root() {
        return;
    }
    let mut twins = Twins::new(Hook::Tc);
    let commit = Request { zone: 9, commit: Commit::Yes, ..Request::default() };
    let mut frame = tcp((0x0a00_0002, 1000), SERVER, (100, 0), SYN);
    frame[24] ^= 1;
    let (_, meta) = twins.send(&frame, &[commit]);
    assert_eq!((meta.state, twins.here), (INV | TRK, 1));
    twins.compare();
    for tracker in [&twins.daemon, &twins.alone] {
        assert_eq!(tracker.counters().get(Counter::IpChecksumError), 1);
    }
}

/// A client's FTP command has the server open a connection. All of it but the first packet stays in
/// the programs, and its metadata has the tuple of the control connection.
#[test]
fn an_expected_connection_is_tracked_here() {
    if without_root() {
        return;
    }
    let mut twins = Twins::new(Hook::Tc);
    let client = (0x0a00_0002, 1000);
    let control = (SERVER.0, 21);
    let look = Request { zone: 3, ..Request::default() };
    let commit = Request { commit: Commit::Yes, mark: Some((7, 7)), ..look };
    let helped = Request { helper: Some(Helper::Ftp), ..commit };
    let command = b"PORT 10,0,0,2,4,1\r\n";
    let mut port = tcp(client, control, (101, 501), ACK);
    let header = port.split_off(34);
    let frame = Frame::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4(Ipv4Addr::from_bits(client.0), Ipv4Addr::from_bits(control.0), 64)
        .tcp_header(TcpHeader {
            checksum: 0.into(),
            ..TcpHeader::read_from_bytes(&header).unwrap()
        })
        .payload(command)
        .finish();
    for (frame, request) in [
        (tcp(client, control, (100, 0), SYN), helped),
        (tcp(control, client, (500, 101), SYN | ACK), look),
        (frame, look),
    ] {
        for tracker in [&twins.daemon, &twins.alone] {
            track(tracker, &mut frame.clone(), &mut Metadata::default(), &[request]);
        }
    }
    assert_eq!(twins.daemon.expectations().len(), 1);
    let data = ((SERVER.0, 20), (client.0, 4 << 8 | 1));
    for (n, (frame, request)) in [
        (tcp(data.0, data.1, (900, 0), SYN), commit),
        (tcp(data.1, data.0, (300, 901), SYN | ACK), look),
        (tcp(data.0, data.1, (901, 301), ACK), look),
        (tcp(data.0, data.1, (901, 301), ACK), commit),
        (tcp(data.0, data.1, (901, 301), FIN | ACK), look),
    ]
    .into_iter()
    .enumerate()
    {
        let before = twins.here;
        let (_, meta) = twins.send(&frame, &[request]);
        assert_eq!(meta.original.unwrap().port_fields(), (1000, 21));
        assert_eq!((meta.state & REL, twins.here - before), (REL, u64::from(n > 0)));
    }
    twins.compare();
}

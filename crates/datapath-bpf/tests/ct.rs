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
    ChecksumState, Checksums, Commit, Entry, Family, IpPacket, Manip, Metadata, Nat, NatRange,
    NoBarrier, PlainMemory, Request, Selection, Sizes, Sweeper, Table, Ticks, Tracker,
};
use datapath::{Action, PortNo};
use datapath_bpf::ct_memory::BpfMemory;
use datapath_bpf::grace::Grace;
use datapath_bpf::keys;
use datapath_bpf::layout::*;
use datapath_bpf::load::Hook;
use fastrand::Rng;
use flow::Key;
use flow::ct_state::{DNAT, SNAT};
use packet::build::Frame;
use packet::{TcpHeader, ethertype};
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
        Sweeper::new(shared.clone(), Box::new(Grace::new().unwrap())).slice(now());
        let bed = Bed::that_tracks(hook, &memory.maps());
        let plain = Arc::new(PlainMemory::new(Sizes::default()));
        let alone = Arc::new(Table::open(plain, SECRET).unwrap());
        Sweeper::new(alone.clone(), Box::new(NoBarrier)).slice(now());
        let (daemon, alone) = (Tracker::new(shared), Tracker::new(alone));
        Twins { bed, hook, daemon, alone, here: 0, translated: 0 }
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

    fn compare(&self) {
        assert_eq!(entries(self.daemon.table()), entries(self.alone.table()));
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
}

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
        let range = |manip, to, ports| {
            let addresses = Some((host(to), host(to)));
            let selection = Selection::Default;
            Some(Nat::Range(NatRange { manip, addresses, ports, selection, persistent: false }))
        };
        let has_ports = matches!(proto, 6 | 17);
        let port = has_ports.then_some((2000 + number, 2000 + number));
        let nat = match rng.u8(..5) {
            0 => range(Manip::Src, 77, port),
            1 => range(Manip::Dst, 78, has_ports.then_some((8080, 8080))),
            2 => Some(Nat::Existing),
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
        }
    }

    fn frame(&mut self, rng: &mut Rng, side: usize) -> Vec<u8> {
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
            (6, _) => return self.segment(rng, side, frame, length),
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

    fn segment(&mut self, rng: &mut Rng, side: usize, frame: Frame, length: usize) -> Vec<u8> {
        const FIN: u16 = 1;
        const SYN: u16 = 2;
        const RST: u16 = 4;
        const ACK: u16 = 0x10;
        let (mut flags, mut length) = match self.steps {
            0 => (SYN, 0),
            1 => (SYN | ACK, 0),
            2 => (ACK, 0),
            _ => (ACK | if rng.bool() { 8 } else { 0 }, length),
        };
        if self.steps > 3 && rng.u8(..60) == 0 {
            flags = [FIN | ACK, RST, SYN, 0, 0x3f, FIN][rng.usize(..6)];
            length = 0;
        }
        let mut seq = self.sequence[side];
        if rng.u8(..30) == 0 {
            seq = seq.wrapping_add(rng.u32(..) & [0xff, 0xffff, u32::MAX][rng.usize(..3)]);
        }
        let ack = if self.steps == 0 { 0 } else { self.sequence[1 - side] };
        self.sequence[side] = self.sequence[side].wrapping_add(length as u32);
        if flags & (SYN | FIN) != 0 && self.steps < 2 {
            self.sequence[side] = self.sequence[side].wrapping_add(1);
        }
        let [(_, sport), (_, dport)] = self.ends[side];
        frame
            .tcp_header(TcpHeader {
                src: sport.into(),
                dst: dport.into(),
                seq: seq.into(),
                ack: ack.into(),
                offset_flags: (5 << 12 | flags).into(),
                window: rng.u16(500..6000).into(),
                checksum: 0.into(),
                urgent: 0.into(),
            })
            .payload(&vec![0xa5; length])
            .finish()
    }

    /// The next packet, what is done to it, and its side.
    fn next(&mut self, rng: &mut Rng) -> (Vec<u8>, Vec<Request>, usize) {
        let side = match self.steps {
            0 | 2 => 0,
            1 => 1,
            _ => rng.usize(..2),
        };
        let frame = self.frame(rng, side);
        let commit = self.steps == 0 || rng.u8(..4) == 0;
        let first = Request {
            zone: self.zone,
            commit: if commit { Commit::Yes } else { Commit::No },
            mark: (commit && rng.bool()).then(|| (rng.u32(..), 0xff00 << rng.u8(..8))),
            label: (commit && rng.bool()).then(|| (rng.u128(..), u128::MAX << rng.u8(..128))),
            nat: self.nat.map(|nat| if commit { nat } else { Nat::Existing }),
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
        }
        twins.compare();
    }
    let arp = ([2, 0, 0, 0, 0, 1], Ipv4Addr::new(10, 0, 0, 1));
    let arp =
        Frame::ethernet([2, 0, 0, 0, 0, 1], [0xff; 6]).arp(ethertype::ARP, 1, arp, arp).finish();
    let before = twins.here;
    twins.send(&arp, &[Request { zone: 3, ..Request::default() }]);
    assert_eq!(twins.here, before + 1, "nothing but IP has connections");
    eprintln!("{hook:?}: {} of 9600 in BPF, {} translated", twins.here, twins.translated);
    assert!(twins.here > 4000 && twins.translated > 1000, "{} {}", twins.here, twins.translated);
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

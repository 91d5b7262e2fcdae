// SPDX-License-Identifier: Apache-2.0
//! Random packets of few hosts through random `ct` lists: the userspace datapath and the model,
//! which track connections by code of their own, agree on the fields `ct_*` and on all outputs.

use datapath::PortNo;
use flow::Key;
use packet::build::Frame;
use packet::{Packet, TcpHeader};
use proptest::prelude::*;
use slipswitch_tests::behaviour::frames::{A, B, v4, v6};
use slipswitch_tests::behaviour::{ModelFixture, UserspaceDummy, World, on};

/// A step of a run.
#[derive(Clone, Debug)]
enum Step {
    /// A packet with this place in the list of action lists.
    Packet(Sent, usize),
    /// An ICMP error from a host about one of the packets that went out.
    Error { from: u8, about: prop::sample::Index, list: usize },
    /// A packet that answers one of the packets that went out.
    Answer { about: prop::sample::Index, flags: u16, list: usize },
    /// Seconds pass, and 137 ms: no sum of those is near a timeout.
    Wait(u64),
}

#[derive(Clone, Debug)]
struct Sent {
    proto: u8,
    is_v6: bool,
    hosts: (u8, u8),
    ports: (u16, u16),
    flags: u16,
    numbers: (u32, u32),
    data: usize,
}

const FLAGS: [u16; 9] = [0x02, 0x12, 0x10, 0x18, 0x11, 0x04, 0x14, 0x03, 0x00];

fn sent() -> impl Strategy<Value = Sent> {
    let proto =
        prop_oneof![4 => Just(6u8), 3 => Just(17), 2 => Just(1), 1 => Just(132), 1 => Just(47)];
    let host = || prop_oneof![1u8..4, Just(9)];
    let port = || prop_oneof![Just(1500u16), Just(1501), Just(80), Just(0)];
    let flags = prop::sample::select(&FLAGS[..]);
    // Numbers near each other, near the wrap, and far off.
    let number = || prop_oneof![6 => 100u32..104, 1 => Just(u32::MAX), 1 => any::<u32>()];
    (
        proto,
        prop::bool::weighted(0.2),
        (host(), host()),
        (port(), port()),
        flags,
        (number(), number()),
        0usize..3,
    )
        .prop_map(|(proto, is_v6, hosts, ports, flags, numbers, data)| Sent {
            proto,
            is_v6,
            hosts,
            ports,
            flags,
            numbers,
            data,
        })
}

impl Sent {
    fn frame(&self) -> Vec<u8> {
        let (a, b) = self.hosts;
        let frame = Frame::ethernet(B, A);
        let frame = if self.is_v6 {
            frame.ipv6(v6(a.into()), v6(b.into()), 64)
        } else {
            frame.ipv4(v4(a), v4(b), 64)
        };
        let id = u32::from(self.ports.0) << 16 | 1;
        let kind = self.flags as u8 & 1;
        let frame = match (self.proto, self.is_v6) {
            (6, _) => frame.tcp_header(TcpHeader {
                src: self.ports.0.into(),
                dst: self.ports.1.into(),
                seq: self.numbers.0.into(),
                ack: self.numbers.1.into(),
                offset_flags: (5 << 12 | self.flags).into(),
                window: 1000.into(),
                checksum: 0.into(),
                urgent: 0.into(),
            }),
            (17, _) => frame.udp(self.ports.0, self.ports.1),
            (132, _) => frame.sctp(self.ports.0, self.ports.1),
            (1, false) => frame.icmp(if kind == 0 { 8 } else { 0 }, 0, id),
            (1, true) => frame.icmpv6(128 + kind, 0, id),
            (proto, _) => frame.protocol(proto),
        };
        frame.payload(&[0x55; 3][..self.data]).finish()
    }
}

/// An ICMP error about `frame`, which is of IPv4, to its sender.
fn error(from: u8, frame: &[u8]) -> Option<Vec<u8>> {
    if frame.get(12..14)? != [8, 0] {
        return None;
    }
    let to = std::net::Ipv4Addr::from(<[u8; 4]>::try_from(frame.get(26..30)?).ok()?);
    let quoted = frame.get(14..frame.len().min(14 + 28))?;
    Some(Frame::ethernet(B, A).ipv4(v4(from), to, 64).icmp(3, 1, 0).payload(quoted).finish())
}

/// The answer to `frame`: addresses, ports and TCP's numbers change sides.
fn answer(frame: &[u8], flags: u16) -> Option<Vec<u8>> {
    let octets = |at: usize| -> Option<[u8; 4]> { frame.get(at..at + 4)?.try_into().ok() };
    let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    if frame.get(12..14)? != [8, 0] {
        return None;
    }
    let reply = Frame::ethernet(B, A).ipv4(octets(30)?.into(), octets(26)?.into(), 64);
    Some(match *frame.get(23)? {
        6 => {
            let ack = u32::from_be_bytes(octets(38)?).wrapping_add(1);
            reply
                .tcp_header(TcpHeader {
                    src: word(36)?.into(),
                    dst: word(34)?.into(),
                    seq: u32::from_be_bytes(octets(42)?).into(),
                    ack: ack.into(),
                    offset_flags: (5 << 12 | flags).into(),
                    window: 1000.into(),
                    checksum: 0.into(),
                    urgent: 0.into(),
                })
                .finish()
        }
        17 => reply.udp(word(36)?, word(34)?).finish(),
        132 => reply.sctp(word(36)?, word(34)?).finish(),
        1 => reply.icmp(0, 0, u32::from_be_bytes(octets(38)?)).finish(),
        proto => reply.protocol(proto).finish(),
    })
}

/// A `ct` action's text.
fn ct() -> impl Strategy<Value = String> {
    let commit = prop_oneof![Just(""), Just("commit,"), Just("commit,"), Just("force_commit,")];
    let nat = prop_oneof![
        4 => Just(""),
        2 => Just("nat,"),
        1 => Just("nat(src=10.0.0.9),"),
        1 => Just("nat(src=10.0.0.9:1600),"),
        1 => Just("nat(dst=10.0.0.3),"),
        1 => Just("nat(dst=10.0.0.3:81),"),
    ];
    let mark = prop_oneof![Just(""), Just("mark=0x10/0xf0,"), Just("label=0x3/0x3,")];
    (commit, 0u8..2, nat, mark).prop_map(|(commit, zone, nat, mark)| {
        // A translation, mark and label are given to commits only.
        let (nat, mark) = match (commit, nat) {
            ("", "" | "nat,") => (nat, ""),
            ("", _) => ("nat,", ""),
            _ => (nat, mark),
        };
        format!("ct({commit}zone={zone},{nat}{mark})")
    })
}

fn list() -> impl Strategy<Value = String> {
    let part = prop_oneof![8 => ct(), 1 => Just("ct_clear".to_owned())];
    prop::collection::vec(part, 1..4).prop_map(|parts| parts.join(","))
}

fn step() -> impl Strategy<Value = Step> {
    let list = || 0usize..4;
    prop_oneof![
        6 => (sent(), list()).prop_map(|(sent, list)| Step::Packet(sent, list)),
        2 => (prop::sample::select(vec![1u8, 2, 3, 9]), any::<prop::sample::Index>(), list())
            .prop_map(|(from, about, list)| Step::Error { from, about, list }),
        6 => (any::<prop::sample::Index>(), prop::sample::select(&FLAGS[..]), list())
            .prop_map(|(about, flags, list)| Step::Answer { about, flags, list }),
        1 => prop::sample::select(vec![1u64, 20, 29, 31, 61, 901]).prop_map(Step::Wait),
    ]
}

/// The effects of a packet: the key with which it was looked up again, and the frames that left.
fn effects(w: &World, list: &str, frame: &[u8]) -> (Option<Key>, Vec<Vec<u8>>) {
    w.dp().flush();
    w.upcalls();
    w.install(1, on(1), &format!("{list},recirc(0x1)"));
    w.fixture().inject(PortNo(1), Packet::from_slice(frame));
    (w.upcalls().pop().map(|seen| seen.key), w.out(2))
}

proptest! {
    #[test]
    fn the_model_and_userspace_agree(
        lists in prop::collection::vec(list(), 4),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let worlds = [World::new(ModelFixture::new()), World::new(UserspaceDummy::new())];
        for world in &worlds {
            world.fixture().clock().stop();
            world.answer(|_| World::actions("2"));
        }
        let mut waits = 0;
        let mut gone: Vec<Vec<u8>> = Vec::new();
        for step in &steps {
            let (frame, list) = match step {
                Step::Wait(seconds) => {
                    // More of them might add up to a timeout.
                    waits += 1;
                    if waits <= 20 {
                        worlds.iter().for_each(|w| w.fixture().pass(seconds * 1000 + 137));
                    }
                    continue;
                }
                Step::Packet(sent, list) => (Some(sent.frame()), list),
                Step::Error { .. } | Step::Answer { .. } if gone.is_empty() => continue,
                Step::Error { from, about, list } => (error(*from, &gone[about.index(gone.len())]), list),
                Step::Answer { about, flags, list } => (answer(&gone[about.index(gone.len())], *flags), list),
            };
            let Some(frame) = frame else { continue };
            let list = &lists[*list];
            let [model, userspace] = [0, 1].map(|at| effects(&worlds[at], list, &frame));
            let states = [&model, &userspace].map(|(key, _)| key.map(|key| key.ct_state));
            prop_assert_eq!(states[0], states[1], "{} for {:02x?}", list, frame);
            prop_assert_eq!(&model, &userspace, "{} for {:02x?}", list, frame);
            gone.extend(model.1);
        }
    }
}

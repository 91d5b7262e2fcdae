// SPDX-License-Identifier: Apache-2.0
//! Random megaflows, actions and packets.

use datapath::{Action, Masked, Megaflow, PortNo, PushedNsh, Set, Ufid, Userdata};
use flow::extract::key_of;
use flow::{Field, Match, Nsh};
use packet::build::Frame;
use packet::{Gso, Ipv4Header, MplsEntry, Packet};
use proptest::collection::vec;
use proptest::prelude::*;
use slipswitch_tests::behaviour::frames::{A, B, pattern, unfinished, v4, v6};
use slipswitch_tests::behaviour::{PORTS, on};

fn masked<T: Arbitrary + Copy + std::fmt::Debug>(
    and: impl Fn(T, T) -> T + 'static,
    masks: impl Strategy<Value = T>,
) -> impl Strategy<Value = Masked<T>> {
    (any::<T>(), masks).prop_map(move |(value, mask)| Masked { value: and(value, mask), mask })
}

fn bytes<const N: usize>() -> impl Strategy<Value = Masked<[u8; N]>>
where
    [u8; N]: Arbitrary,
{
    let masks = prop_oneof![Just([0; N]), Just([0xff; N]), any::<[u8; N]>()];
    masked(
        |v: [u8; N], m: [u8; N]| {
            let mut out = v;
            out.iter_mut().zip(m).for_each(|(o, m)| *o &= m);
            out
        },
        masks,
    )
}

fn byte() -> impl Strategy<Value = Masked<u8>> {
    masked(|v, m| v & m, prop_oneof![Just(0u8), Just(0xff), any::<u8>()])
}

fn short() -> impl Strategy<Value = Masked<u16>> {
    masked(|v, m| v & m, prop_oneof![Just(0u16), Just(0xffff), any::<u16>()])
}

fn word() -> impl Strategy<Value = Masked<u32>> {
    masked(|v, m| v & m, prop_oneof![Just(0u32), Just(u32::MAX), any::<u32>()])
}

fn set() -> impl Strategy<Value = Set> {
    prop_oneof![
        (bytes(), bytes()).prop_map(|(src, dst)| Set::Ethernet { src, dst }),
        (bytes(), bytes(), byte(), byte()).prop_map(|(src, dst, tos, ttl)| Set::Ipv4 {
            src,
            dst,
            tos,
            ttl
        }),
        (bytes(), bytes(), word(), byte(), byte()).prop_map(|(src, dst, label, tclass, hlimit)| {
            let label = Masked { value: label.value & 0xf_ffff, mask: label.mask & 0xf_ffff };
            Set::Ipv6 { src, dst, label, tclass, hlimit }
        }),
        (short(), short()).prop_map(|(src, dst)| Set::Tcp { src, dst }),
        (short(), short()).prop_map(|(src, dst)| Set::Udp { src, dst }),
        (short(), short()).prop_map(|(src, dst)| Set::Sctp { src, dst }),
        (byte(), byte(), any::<bool>()).prop_map(|(kind, code, v6)| Set::Icmp { kind, code, v6 }),
        (short(), bytes(), bytes(), bytes(), bytes())
            .prop_map(|(op, spa, tpa, sha, tha)| { Set::Arp { op, spa, tpa, sha, tha } }),
        (bytes(), bytes(), bytes()).prop_map(|(target, sll, tll)| Set::Nd { target, sll, tll }),
        (word(), byte())
            .prop_map(|(reserved, options_type)| Set::NdExtensions { reserved, options_type }),
        word().prop_map(Set::Mpls),
        any::<u32>().prop_map(Set::Priority),
        word().prop_map(Set::Mark),
    ]
}

pub fn leaf() -> impl Strategy<Value = Action> {
    let tpid = prop_oneof![Just(0x8100u16), Just(0x88a8u16)];
    let mpls = prop_oneof![Just(0x8847u16), Just(0x8848u16)];
    let under = prop_oneof![Just(0x0800u16), Just(0x86ddu16), Just(0x8847u16)];
    prop_oneof![
        4 => (1..=PORTS as u32 + 1).prop_map(|p| Action::Output(PortNo(p))),
        2 => prop_oneof![9 => Just(2u32), 1 => Just(9u32)].prop_map(Action::LbOutput),
        8 => set().prop_map(Action::Set),
        1 => (tpid, any::<u16>()).prop_map(|(tpid, tci)| Action::PushVlan { tpid, tci }),
        1 => Just(Action::PopVlan),
        1 => (any::<u32>(), mpls).prop_map(|(lse, ethertype)| Action::PushMpls { lse, ethertype }),
        1 => under.prop_map(|ethertype| Action::PopMpls { ethertype }),
        1 => (0u32..3).prop_map(Action::Recirc),
        1 => (any::<bool>(), 0u32..3).prop_map(|(symmetric, basis)| Action::Hash { symmetric, basis }),
        1 => (14u32..200).prop_map(Action::Trunc),
        1 => (0u32..3).prop_map(Action::Meter),
        1 => Just(Action::Userspace(Userdata::SlowPath { reason: "action" })),
    ]
}

/// Headers in front of the whole packet. No program in the kernel knows them.
fn outermost() -> impl Strategy<Value = Vec<Action>> {
    let words = || any::<[u32; 4]>().prop_map(|words| words.map(Into::into));
    let fields = (any::<u8>(), any::<u8>(), 0..4u8, any::<u32>(), words()).prop_map(
        |(flags, ttl, mdtype, path, context)| Nsh {
            flags,
            ttl,
            mdtype,
            np: 3,
            path: path.into(),
            context,
        },
    );
    let push = (fields, vec(any::<[u8; 4]>(), 0..64)).prop_map(|(fields, metadata)| {
        Action::PushNsh(Box::new(PushedNsh { fields, metadata: metadata.concat() }))
    });
    let label = (any::<u32>(), 0u16..3)
        .prop_map(|(lse, kind)| Action::AddMpls { lse, ethertype: 0x8847 + kind });
    let change = prop_oneof![
        2 => push,
        2 => nsh().prop_map(Action::Set),
        1 => Just(Action::PopNsh),
        2 => label,
        1 => (any::<u32>(), 0x8847u16..0x8849)
            .prop_map(|(lse, ethertype)| Action::PushMpls { lse, ethertype }),
        2 => prop_oneof![Just(0x6558u16), Just(0x0800), Just(0x8847)]
            .prop_map(|ethertype| Action::PopMpls { ethertype }),
        1 => word().prop_map(|lse| Action::Set(Set::Mpls(lse))),
        1 => Just(Action::PopEth),
    ];
    vec(change, 1..5).prop_map(|mut actions| {
        actions.push(Action::PushEth { src: A, dst: B });
        actions
    })
}

fn nsh() -> impl Strategy<Value = Set> {
    let context =
        prop_oneof![Just([Masked::default(); 4]).boxed(), [word(), word(), word(), word()].boxed()];
    (byte(), byte(), word(), context).prop_map(|(flags, ttl, path, context)| Set::Nsh {
        flags,
        ttl,
        path,
        context,
    })
}

pub fn actions() -> impl Strategy<Value = Vec<Action>> {
    let nested = leaf().prop_recursive(2, 12, 4, |inner| {
        let list = || vec(inner.clone(), 0..4);
        prop_oneof![
            list().prop_map(Action::Clone),
            (list(), any::<bool>()).prop_map(|(actions, always)| Action::Sample {
                probability: if always { u32::MAX } else { 0 },
                actions
            }),
            (0u16..300, list(), list()).prop_map(|(len, greater, not_greater)| {
                Action::CheckPktLen { len, greater, not_greater }
            }),
        ]
    });
    let outermost = prop_oneof![9 => Just(Vec::new()), 1 => outermost()];
    (vec(nested, 0..7), outermost, 1..=PORTS as u32).prop_map(|(mut actions, outermost, port)| {
        actions.extend(outermost);
        actions.push(Action::Output(PortNo(port)));
        actions
    })
}

fn link() -> impl Strategy<Value = Frame> {
    let tags = vec((any::<bool>(), any::<u16>()), 0..4);
    let labels = vec((any::<u32>(), any::<bool>()), 0..4);
    (tags, prop_oneof![6 => Just(Vec::new()), 1 => labels]).prop_map(|(tags, labels)| {
        let mut f = Frame::ethernet(B, A);
        for (service, tci) in tags {
            f = f.vlan(if service { 0x88a8 } else { 0x8100 }, tci);
        }
        for (label, bottom) in labels {
            f = f.mpls(0x8847, MplsEntry::new(label >> 12, 1, bottom, label as u8));
        }
        f
    })
}

fn network(f: Frame, kind: u8, fragment: u16) -> Frame {
    match kind {
        0 => f.ipv4(v4(1), v4(2), 64),
        1 => f.ipv4_header(Ipv4Header {
            version_ihl: 0x45,
            tos: 0x55,
            total_len: 0.into(),
            id: 9.into(),
            fragment: fragment.into(),
            ttl: 1,
            proto: 0,
            checksum: 0.into(),
            src: v4(3).to_bits().into(),
            dst: v4(4).to_bits().into(),
        }),
        2 => f.ipv6(v6(1), v6(2), 64),
        _ => f
            .ipv6(v6(1), v6(2), 64)
            .ipv6_extension(0, &[1, 2, 3])
            .ipv6_extension(43, &[0, (fragment & 1) as u8]),
    }
}

fn transport(f: Frame, kind: u8, ports: (u16, u16), payload: usize) -> Vec<u8> {
    let data = pattern(payload);
    match kind {
        0 | 1 => f.tcp(ports.0, ports.1, 0x12).payload(&data),
        2 | 3 => f.udp(ports.0, ports.1).payload(&data),
        4 => f.sctp(ports.0, ports.1).payload(&data),
        5 => f.icmp(8, 0, 1).payload(&data),
        6 => f.icmpv6(128, 0, 1).payload(&data),
        7 => f.nd(135 + (ports.0 & 1) as u8, 0, v6(9), &[(1, A), (2, B)]),
        8 => {
            // Options of any length, perhaps none of them whole.
            let [length, other] = ports.1.to_be_bytes();
            let option = [1 + (other & 1), length % 3, 1, 2, 3, 4, 5, 6];
            let mut body = v6(7).octets().to_vec();
            body.extend_from_slice(&option);
            body.extend_from_slice(&[1, 1, 9, 9, 9, 9, 9, 9]);
            body.extend_from_slice(&option);
            f.icmpv6(135, 0, 5).payload(&body)
        }
        _ => f.payload(&data),
    }
    .finish()
}

/// A packet: mostly sound, sometimes damaged, sometimes with work left for a device.
pub fn packet() -> impl Strategy<Value = Packet> {
    let padding = prop_oneof![3 => Just(Vec::new()), 1 => vec(any::<u8>(), 0..9)];
    let fragment = prop_oneof![2 => Just(0x4000u16), 1 => any::<u16>()];
    let sound = (link(), 0u8..5, 0u8..10, fragment, any::<(u16, u16)>(), (0usize..120, padding))
        .prop_map(|(f, l3, l4, fragment, ports, (payload, padding))| {
            let mut frame = match l3 {
                4 => f.arp(0x806, fragment, (A, v4(1)), (B, v4(2))).finish(),
                _ => transport(network(f, l3, fragment), l4, ports, payload),
            };
            frame.extend_from_slice(&padding);
            frame
        });
    let damaged = (
        sound,
        vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        any::<prop::sample::Index>(),
        0..4,
    );
    prop_oneof![
        6 => damaged.prop_map(|(mut frame, flips, cut, how)| {
            if how == 0 {
                for (at, bits) in flips {
                    let at = at.index(frame.len());
                    frame[at] ^= bits;
                }
            }
            if how == 1 {
                frame.truncate(14 + cut.index(frame.len() - 13));
            }
            Packet::from_slice(&frame)
        }),
        1 => (0u8..4, any::<(u16, u16)>(), 0usize..200).prop_map(|(l4, ports, payload)| {
            unfinished(&transport(network(Frame::ethernet(B, A), l4 & 2, 0), l4, ports, payload))
        }),
        1 => (any::<bool>(), 1usize..3000).prop_map(|(is_v6, payload)| {
            let f = network(Frame::ethernet(B, A), if is_v6 { 2 } else { 0 }, 0);
            let mut packet = unfinished(&transport(f, 0, (5, 6), payload));
            let header = (packet.len() - payload) as u16;
            packet.offload.gso = Some((if is_v6 { Gso::TcpV6 } else { Gso::TcpV4 }, 700, header));
            packet
        }),
    ]
}

pub fn matching() -> impl Strategy<Value = Match> {
    (1..=2u32, 0..3u32, prop::option::of(0..3u8)).prop_map(|(port, recirc, extra)| {
        let mut m = on(port);
        m.set(Field::RecircId, recirc.into());
        match extra {
            Some(0) => m.set(Field::EthType, 0x800),
            Some(1) => m.set_masked(Field::Ipv4Dst, 2, 0xff),
            Some(_) => m.set_masked(Field::EthSrc, 0, 1),
            None => {}
        }
        m
    })
}

/// An action that a program in the kernel may be able to run amid others.
fn simple() -> impl Strategy<Value = Action> {
    prop_oneof![
        2 => (1..=PORTS as u32).prop_map(|p| Action::Output(PortNo(p))),
        9 => leaf().prop_filter("no output, runs once", |a| {
            !matches!(
                a,
                Action::Output(_) | Action::Recirc(_) | Action::Trunc(_) | Action::Userspace(_)
            )
        }),
    ]
}

fn last() -> impl Strategy<Value = Vec<Action>> {
    let output = || (1..=PORTS as u32).prop_map(|p| Action::Output(PortNo(p)));
    let list = || {
        (vec(simple(), 0..3), output()).prop_map(|(mut list, last)| {
            list.push(last);
            list
        })
    };
    prop_oneof![
        5 => output().prop_map(|a| vec![a]),
        2 => Just(vec![Action::LbOutput(2)]),
        3 => prop::sample::subsequence((1..=PORTS as u32).collect::<Vec<_>>(), 2..=PORTS)
            .prop_map(|ports| ports.into_iter().map(|p| Action::Output(PortNo(p))).collect()),
        3 => (0u32..3).prop_map(|id| vec![Action::Recirc(id)]),
        1 => (14u32..200, output()).prop_map(|(len, a)| vec![Action::Trunc(len), a]),
        1 => list().prop_map(|list| vec![Action::Clone(list)]),
        1 => (list(), any::<bool>()).prop_map(|(actions, always)| {
            vec![Action::Sample { probability: if always { u32::MAX } else { 0 }, actions }]
        }),
        2 => (0u16..300, list(), list()).prop_map(|(len, greater, not_greater)| {
            vec![Action::CheckPktLen { len, greater, not_greater }]
        }),
    ]
}

/// Mostly lists without a copy but for outputs: BPF can run many of them.
pub fn kernel_actions() -> impl Strategy<Value = Vec<Action>> {
    let straight = (vec(simple(), 0..4), last()).prop_map(|(mut list, last)| {
        list.extend(last);
        list
    });
    prop_oneof![6 => straight, 1 => actions()]
}

/// The match of a megaflow: as [`matching`], or fields of one of the packets as they are.
#[derive(Clone, Debug)]
pub enum About {
    /// Exactly this match.
    Match(Box<Match>),
    /// Fields of the packet with this index.
    Packet { packet: prop::sample::Index, recirc_id: u32, fields: Vec<Field> },
}

impl About {
    /// The match, given the packets and their ports.
    pub fn matching(&self, packets: &[(u32, Packet)]) -> Match {
        match self {
            About::Match(matching) => **matching,
            About::Packet { packet, recirc_id, fields } => {
                let (port, packet) = packet.get(packets);
                let mut mask = *on(*port).mask();
                fields.iter().for_each(|field| mask.set_exact(*field));
                let mut key = key_of(packet.data(), *port);
                key.recirc_id.set(*recirc_id);
                Match::new(&key, &mask)
            }
        }
    }
}

/// `actions` looks packets up again only under ids higher than `id`: no packet is looked up more
/// often than there are ids. (Userspace does not know how often BPF looked up a packet that it
/// hands over, so each has a limit of its own.)
pub fn forward(actions: Vec<Action>, id: u32) -> Vec<Action> {
    let nested = |list| forward(list, id);
    let each = actions.into_iter().map(|action| match action {
        Action::Recirc(next) => Action::Recirc(next.max(id + 1)),
        Action::Clone(list) => Action::Clone(nested(list)),
        Action::Sample { probability, actions } => {
            Action::Sample { probability, actions: nested(actions) }
        }
        Action::CheckPktLen { len, greater, not_greater } => {
            Action::CheckPktLen { len, greater: nested(greater), not_greater: nested(not_greater) }
        }
        other => other,
    });
    each.collect()
}

pub fn about() -> impl Strategy<Value = About> {
    let headers = Field::ALL.into_iter().filter(|f| *f as usize >= Field::EthSrc as usize);
    let field = prop::sample::select(headers.collect::<Vec<_>>());
    let of_packet = (
        any::<prop::sample::Index>(),
        prop_oneof![3 => Just(0u32), 1 => 1..3u32],
        vec(field, 0..4),
    );
    prop_oneof![
        1 => matching().prop_map(|m| About::Match(Box::new(m))),
        2 => of_packet.prop_map(|(packet, recirc_id, fields)| {
            About::Packet { packet, recirc_id, fields }
        }),
    ]
}

/// Megaflows of which no two overlap, so that it does not matter which is found first.
pub fn disjoint(flows: Vec<(Match, Vec<Action>)>) -> Vec<Megaflow> {
    let mut kept: Vec<Megaflow> = Vec::new();
    for (matching, actions) in flows {
        if kept.iter().all(|k| !k.matching.overlaps(&matching)) {
            let ufid = Ufid(kept.len() as u128);
            kept.push(Megaflow { ufid, matching, actions: actions.into() });
        }
    }
    kept
}

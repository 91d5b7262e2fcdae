//! Random megaflows, actions and packets: the userspace datapath does what the model does, byte
//! for byte, count for count.

use datapath::{Action, DropReason, Masked, Megaflow, PortNo, Set, Ufid, Userdata};
use flow::{Field, Match};
use packet::build::Frame;
use packet::{Gso, Ipv4Header, MplsEntry, Packet};
use proptest::collection::vec;
use proptest::prelude::*;
use slipswitch_tests::behaviour::frames::{A, B, pattern, unfinished, v4, v6};
use slipswitch_tests::behaviour::{Fixture, ModelFixture, PORTS, UserspaceDummy, World, on};

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

fn leaf() -> impl Strategy<Value = Action> {
    let tpid = prop_oneof![Just(0x8100u16), Just(0x88a8u16)];
    let mpls = prop_oneof![Just(0x8847u16), Just(0x8848u16)];
    let under = prop_oneof![Just(0x0800u16), Just(0x86ddu16), Just(0x8847u16)];
    prop_oneof![
        4 => (1..=PORTS as u32 + 1).prop_map(|p| Action::Output(PortNo(p))),
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

fn actions() -> impl Strategy<Value = Vec<Action>> {
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
    (vec(nested, 0..7), 1..=PORTS as u32).prop_map(|(mut actions, port)| {
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
fn packet() -> impl Strategy<Value = Packet> {
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

fn matching() -> impl Strategy<Value = Match> {
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

/// All that can be seen of one run.
#[derive(Debug, PartialEq)]
struct Outcome {
    sent: Vec<Vec<Vec<u8>>>,
    upcalls: Vec<slipswitch_tests::behaviour::Seen>,
    stats: Vec<(Ufid, u64, u64, u16)>,
    drops: Vec<(DropReason, u64)>,
    lookups: (u64, u64, u64),
    meters: Vec<Option<datapath::MeterStats>>,
}

fn run(
    fixture: impl Fixture + 'static,
    flows: &[Megaflow],
    answer: &[Action],
    packets: &[(u32, Packet)],
) -> Outcome {
    fixture.clock().stop();
    let w = World::new(fixture);
    let answer = answer.to_vec();
    w.answer(move |_| answer.clone());
    let meters = w.dp().meters().expect("both have meters");
    let bands =
        vec![datapath::MeterBand { rate: 2, burst: 3 }, datapath::MeterBand { rate: 1, burst: 0 }];
    meters.set(1, &datapath::MeterConfig { packets: true, bands: bands.clone() }).expect("room");
    meters.set(2, &datapath::MeterConfig { packets: false, bands }).expect("room");
    for flow in flows {
        w.dp().install(flow).expect("identities differ");
    }
    for (port, packet) in packets {
        w.fixture().inject(PortNo(*port), packet.clone());
    }
    let mut stats = Vec::new();
    w.dp().sweep(&mut |ufid, s| stats.push((ufid, s.packets, s.bytes, s.tcp_flags)));
    stats.sort();
    let l = w.dp().lookups();
    let since = datapath::MeterStats::default().since;
    Outcome {
        sent: (1..=PORTS as u32).map(|p| w.out(p)).collect(),
        upcalls: w.upcalls(),
        stats,
        drops: DropReason::ALL.iter().map(|r| (*r, w.drops(*r))).collect(),
        lookups: (l.hits, l.misses, l.lost),
        meters: (0..3)
            .map(|id| meters.stats(id).map(|s| datapath::MeterStats { since, ..s }))
            .collect(),
    }
}

/// Megaflows of which no two overlap, so that it does not matter which is found first.
fn disjoint(flows: Vec<(Match, Vec<Action>)>) -> Vec<Megaflow> {
    let mut kept: Vec<Megaflow> = Vec::new();
    for (matching, actions) in flows {
        if kept.iter().all(|k| !k.matching.overlaps(&matching)) {
            let ufid = Ufid(kept.len() as u128);
            kept.push(Megaflow { ufid, matching, actions: actions.into() });
        }
    }
    kept
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_userspace_datapath_does_what_the_model_does(
        flows in vec((matching(), actions()), 1..8),
        answer in vec(leaf(), 0..3),
        packets in vec((1..=2u32, packet()), 1..12),
    ) {
        let flows = disjoint(flows);
        let expected = run(ModelFixture::new(), &flows, &answer, &packets);
        let actual = run(UserspaceDummy::new(), &flows, &answer, &packets);
        prop_assert_eq!(actual, expected);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Random megaflows, actions and packets: each datapath does what the model does, byte for byte,
//! count for count.

mod generate;

use datapath::{
    Action, BondTable, Datapath, DropReason, Megaflow, MeterBand, MeterConfig, MeterStats, PortNo,
};
use datapath::{Tier, Ufid};
use generate::{about, actions, disjoint, forward, kernel_actions, leaf, matching, packet};
use packet::Packet;
use packet::build::Frame;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use slipswitch_tests::behaviour::frames::{A, B, unfinished, v4};
use slipswitch_tests::behaviour::{
    Fixture, ModelFixture, PORTS, Seen, UserspaceDummy, Veth, World, on,
};

/// All that can be seen of one run.
#[derive(Debug, PartialEq)]
struct Outcome {
    sent: Vec<Vec<Vec<u8>>>,
    upcalls: Vec<Seen>,
    stats: Vec<(Ufid, u64, u64, u16)>,
    drops: Vec<(DropReason, u64)>,
    lookups: (u64, u64, u64),
    meters: Vec<Option<MeterStats>>,
}

/// The events of a run.
struct Script {
    meters: [MeterConfig; 2],
    flows: Vec<Megaflow>,
    answer: Vec<Action>,
    packets: Vec<(u32, Packet)>,
}

/// Meters that are exceeded by the second packet or so, whatever a packet's length.
fn meters() -> [MeterConfig; 2] {
    let bands = vec![MeterBand { rate: 2, burst: 3 }, MeterBand { rate: 1, burst: 0 }];
    [MeterConfig { packets: true, bands: bands.clone() }, MeterConfig { packets: false, bands }]
}

/// Meters that no run exceeds: BPF and userspace have a bucket each, and the kernel's clock cannot
/// be stopped.
fn wide_meters() -> [MeterConfig; 2] {
    let meter =
        |packets| MeterConfig { packets, bands: vec![MeterBand { rate: 1, burst: 10_000 }] };
    [meter(true), meter(false)]
}

/// A bond whose buckets have two members, or none.
fn bond() -> BondTable {
    let members = [PortNo(2), PortNo(3)];
    BondTable::new(5, members, |bucket| members.get(usize::from(bucket % 9) / 4).copied())
}

fn lookups(dp: &dyn Datapath) -> (u64, u64, u64) {
    let l = dp.lookups();
    (l.hits, l.misses, l.lost)
}

fn drops(dp: &dyn Datapath) -> Vec<u64> {
    DropReason::ALL.iter().map(|reason| dp.drops(*reason)).collect()
}

/// Plays `script` in a world without megaflows.
fn play(w: &World, script: &Script) -> Outcome {
    let dp = &**w.dp();
    let answer = script.answer.clone();
    w.answer(move |_| answer.clone());
    let meters = dp.meters().expect("all have meters");
    for (id, config) in (1..).zip(&script.meters) {
        meters.set(id, config).expect("room");
    }
    dp.bonds().expect("all have bonds").set(2, &bond()).expect("room");
    let before = (lookups(dp), drops(dp));
    for flow in &script.flows {
        dp.install(flow).expect("identities differ");
    }
    for (port, packet) in &script.packets {
        w.fixture().inject(PortNo(*port), packet.clone());
    }
    let mut stats = Vec::new();
    dp.sweep(&mut |ufid, s| stats.push((ufid, s.packets, s.bytes, s.tcp_flags)));
    stats.sort();
    let (hits, misses, lost) = lookups(dp);
    let dropped = drops(dp).into_iter().zip(before.1).map(|(now, then)| now - then);
    let since = MeterStats::default().since;
    Outcome {
        sent: (1..=PORTS as u32).map(|p| w.out(p)).collect(),
        upcalls: w.upcalls(),
        stats,
        drops: DropReason::ALL.into_iter().zip(dropped).collect(),
        lookups: (hits - before.0.0, misses - before.0.1, lost - before.0.2),
        meters: (0..3).map(|id| meters.stats(id).map(|s| MeterStats { since, ..s })).collect(),
    }
}

fn play_in_new(fixture: impl Fixture + 'static, script: &Script) -> Outcome {
    fixture.clock().stop();
    play(&World::new(fixture), script)
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_userspace_datapath_does_what_the_model_does(
        flows in vec((matching(), actions()), 1..8),
        answer in vec(leaf(), 0..3),
        packets in vec((1..=2u32, packet()), 1..12),
    ) {
        let script = Script { meters: meters(), flows: disjoint(flows), answer, packets };
        let expected = play_in_new(ModelFixture::new(), &script);
        let actual = play_in_new(UserspaceDummy::new(), &script);
        prop_assert_eq!(actual, expected);
    }
}

/// Rounds at each BPF tier.
const ROUNDS: u32 = 128;
/// Rounds between two runs of housekeeping, which fits the programs to the present megaflows.
const ROUNDS_TO_MAINTENANCE: u32 = 8;
/// The packet at a tier's hook when `packet` is sent. XDP gets whole frames; for the kernel a
/// packet of one segment is not to be segmented.
fn arriving(tier: Tier, mut packet: Packet) -> Vec<Packet> {
    let whole = netdev::finish::finish(&packet).unwrap_or_default();
    if tier == Tier::Xdp {
        return whole.iter().map(|p| Packet::from_slice(p.data())).collect();
    }
    if whole.len() == 1 {
        packet.offload.gso = None;
    }
    vec![packet]
}

fn the_tier_does_what_the_model_does(tier: Tier) {
    Veth::run(tier, move |fixture| {
        fixture.clock().stop();
        let w = World::new(fixture);
        let config = ProptestConfig {
            cases: ROUNDS,
            max_shrink_iters: 150,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let script = (
            vec((about(), kernel_actions()), 1..8),
            vec(leaf(), 0..3),
            vec((1..=2u32, packet()), 1..12),
        );
        let rounds = std::cell::Cell::new(0u32);
        let result = TestRunner::new(config).run(&script, |(flows, answer, packets)| {
            rounds.set(rounds.get() + 1);
            let packets: Vec<(u32, Packet)> = packets
                .into_iter()
                .flat_map(|(port, p)| arriving(tier, p).into_iter().map(move |p| (port, p)))
                .filter(|(_, p)| w.fixture().carries(p.data()))
                .collect();
            if packets.is_empty() {
                return Ok(());
            }
            let flows = flows.into_iter().map(|(about, list)| {
                let matching = about.matching(&packets);
                (matching, forward(list, matching.key().recirc_id.get()))
            });
            let flows = disjoint(flows.collect());
            // No flow has the id. Answers that call up again have a limit of their own as well.
            let mut answer = forward(answer, 9);
            answer.retain(|action| !matches!(action, Action::Userspace(_)));
            let script = Script { meters: wide_meters(), flows, answer, packets };
            let narrow = rounds.get().is_multiple_of(ROUNDS_TO_MAINTENANCE);
            if is_refused_by_devices(&script) {
                return Ok(());
            }
            compare(&w, &script, narrow)
        });
        if let Err(e) = result {
            panic!("{e}");
        }
        let ran = w.fixture().ran().expect("there is BPF");
        eprintln!("{}: {ran:?}", tier.name());
        assert!(ran.hits > ran.sent / 8, "{ran:?}");
        assert!(tier == Tier::Tcx || ran.at_xdp > ran.sent / 16, "{ran:?}");
    });
}

/// A packet with a label that is still to be segmented: no device takes it. The model calls it
/// malformed, an `AF_PACKET` port a full queue.
fn is_refused_by_devices(script: &Script) -> bool {
    let is_segmented = script.packets.iter().any(|(_, p)| p.offload.gso.is_some());
    let lists = script.flows.iter().map(|flow| &*flow.actions).chain([&*script.answer]);
    is_segmented && lists.into_iter().any(|list| format!("{list:?}").contains("PushMpls"))
}

fn compare(w: &World, script: &Script, narrow: bool) -> Result<(), TestCaseError> {
    let mut expected = play_in_new(ModelFixture::new(), script);
    if narrow {
        // With the flows of this round there, so that programs are fitted to them.
        script.flows.iter().for_each(|flow| w.dp().install(flow).expect("identities differ"));
        w.fixture().maintain();
        w.dp().flush();
    }
    let mut actual = play(w, script);
    // The other end's kernel drops such frames, too, but not on every way to it.
    for sent in [&mut expected.sent, &mut actual.sent] {
        sent.iter_mut().for_each(|sent| sent.retain(|frame| w.fixture().carries(frame)));
    }
    w.dp().flush();
    // Where no flow looks beyond Ethernet, programs do not look for TCP flags either.
    for (seen, wanted) in actual.stats.iter().zip(&mut expected.stats) {
        if seen.3 == 0 {
            wanted.3 = 0;
        }
    }
    prop_assert_eq!(actual, expected);
    Ok(())
}

/// A kernel finishes the checksum of what has a label before the packet is handed over.
#[test]
fn an_unfinished_checksum_below_a_label_that_tcx_pushed() {
    Veth::run(Tier::Tcx, |fixture| {
        fixture.clock().stop();
        let w = World::new(fixture);
        let frame = Frame::ethernet(B, A).ipv4(v4(1), v4(2), 64).tcp(7, 0, 0x12).payload(&[0, 1]);
        let label = Action::PushMpls { lse: 0, ethertype: 0x8847 };
        let labelled = |last| disjoint(vec![(on(1), vec![label.clone(), last])]);
        for last in [Action::Recirc(1), Action::Output(PortNo(2))] {
            let script = Script {
                meters: wide_meters(),
                flows: labelled(last),
                answer: Vec::new(),
                packets: vec![(1, unfinished(&frame.clone().finish()))],
            };
            compare(&w, &script, false).unwrap_or_else(|e| panic!("{e}"));
        }
    });
}

#[test]
fn tcx_does_what_the_model_does() {
    the_tier_does_what_the_model_does(Tier::Tcx);
}

#[test]
fn xdp_does_what_the_model_does() {
    the_tier_does_what_the_model_does(Tier::Xdp);
}

// SPDX-License-Identifier: Apache-2.0
//! The property over each datapath: megaflows are installed as upcalls would, mutants come in, and
//! those that hit leave as a fresh translation says; the others, and only they, call up.

use crate::arrival::Arrival;
use crate::frames;
use crate::mutants;
use crate::pipeline::{Pipeline, pipeline};
use crate::run::run;
use crate::switch::{Fresh, World};
use datapath::{Megaflow, Tier};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use slipswitch_tests::behaviour::{
    Fixture, ModelFixture, PORTS, Seen, UserspaceDummy, Veth, Why, World as Tables,
};
use std::cell::RefCell;
use std::time::Instant;

/// Packets that come in at once.
const BATCH: usize = 16;

/// Frames of the port that all packets of a case come in on; the first is the one that changes.
type Input = (Pipeline, u32, Vec<frames::Spec>, u64);

fn input() -> impl Strategy<Value = Input> {
    (pipeline(), 1..=PORTS as u32, vec(frames::spec(), 1..8), any::<u64>())
}

/// The counts of a run.
#[derive(Debug, Default)]
struct Figures {
    cases: u64,
    megaflows: u64,
    packets: u64,
    hits: u64,
}

/// The observations of one packet.
#[derive(Debug, PartialEq)]
struct Outcome {
    sent: Vec<Vec<Vec<u8>>>,
    upcalls: Vec<Seen>,
}

fn outcome(tables: &Tables) -> Outcome {
    let sent = (1..=PORTS as u32).map(|port| tables.out(port)).collect();
    Outcome { sent, upcalls: tables.upcalls() }
}

/// Plays one case on `tables`, which has no megaflows, with at most `limit` packets.
fn play(
    tables: &Tables,
    (mut pipeline, in_port, specs, seed): Input,
    limit: usize,
    figures: &mut Figures,
) -> Result<(), TestCaseError> {
    // The result of `ct` depends on earlier packets, whose order is not the plan's.
    pipeline.track_nothing();
    let world = World::new(&pipeline);
    let mut rng = fastrand::Rng::with_seed(seed);
    let carried =
        |frame: &Vec<u8>| (14..1500).contains(&frame.len()) && tables.fixture().carries(frame);
    let frames: Vec<Vec<u8>> = specs.iter().map(frames::Spec::frame).filter(carried).collect();
    let arrivals: Vec<Arrival> =
        frames.iter().map(|frame| Arrival::new(frame.clone(), in_port)).collect();
    let fresh: Vec<Fresh> = arrivals.iter().filter_map(|a| world.translate(&a.key())).collect();
    let mut flows: Vec<&Megaflow> = Vec::new();
    for Fresh { megaflow, .. } in &fresh {
        if flows.iter().all(|other| other.ufid != megaflow.ufid) {
            tables.dp().install(megaflow).expect("there is room");
            flows.push(megaflow);
        }
    }
    figures.cases += 1;
    figures.megaflows += flows.len() as u64;
    let (Some(first), Some(flow)) = (arrivals.first(), fresh.first()) else { return Ok(()) };
    let mut packets = arrivals.clone();
    mutants::of(first, &flow.megaflow.matching, &frames, 30, &mut rng, &mut |mutant| {
        if (mutant.mark, mutant.priority) == (0, 0) && carried(&mutant.frame) {
            packets.push(mutant.clone());
        }
    });
    rng.shuffle(&mut packets);
    packets.truncate(limit);
    let plain = Tables::new(ModelFixture::new());
    let mut together = Vec::new();
    for packet in packets {
        figures.packets += 1;
        let planned = plan(&plain, &world, &flows, packet);
        figures.hits += u64::from(planned.hit);
        if planned.alone {
            compare(tables, in_port, &[planned])?;
        } else {
            together.push(planned);
        }
    }
    together.chunks(BATCH).try_for_each(|batch| compare(tables, in_port, batch))?;
    tables.dp().flush();
    Ok(())
}

/// A packet, and what is to be seen of it.
struct Planned {
    frame: Vec<u8>,
    expected: Outcome,
    hit: bool,
    /// It is looked up more than once, or called up with: it does not come with others.
    alone: bool,
    actions: String,
}

impl Planned {
    fn text(&self) -> String {
        let hex: String = self.frame.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{hex} {} {}", if self.hit { "hits" } else { "misses" }, self.actions)
    }
}

fn plan(plain: &Tables, world: &World, flows: &[&Megaflow], arrival: Arrival) -> Planned {
    let key = arrival.key();
    let hit = flows.iter().any(|flow| flow.matching.matches(&key));
    let fresh = world.translate(&key).expect("ports are there");
    let expected = if hit {
        let packet = packet::Packet::from_slice(&arrival.frame);
        plain.dp().execute(packet, &key, &fresh.megaflow.actions);
        outcome(plain)
    } else {
        let (frame, in_port) = (arrival.frame.clone(), datapath::PortNo(arrival.in_port));
        let miss = Seen { why: Why::Miss, frame, key, in_port };
        Outcome { sent: vec![Vec::new(); PORTS], upcalls: vec![miss] }
    };
    let actions = datapath::text::format_plain(&fresh.megaflow.actions);
    Planned { frame: arrival.frame, alone: !expected.upcalls.is_empty(), expected, hit, actions }
}

/// Lets the packets come in at once. Those that run in different tiers may overtake each other.
fn compare(tables: &Tables, in_port: u32, batch: &[Planned]) -> Result<(), TestCaseError> {
    let packets = batch.iter().map(|p| packet::Packet::from_slice(&p.frame)).collect();
    tables.fixture().inject_all(datapath::PortNo(in_port), packets);
    let mut actual = outcome(tables);
    let mut expected = Outcome { sent: vec![Vec::new(); PORTS], upcalls: Vec::new() };
    for Planned { expected: one, .. } in batch {
        expected.sent.iter_mut().zip(&one.sent).for_each(|(all, one)| all.extend_from_slice(one));
        expected.upcalls.extend_from_slice(&one.upcalls);
    }
    // The other end's kernel drops such frames, too, but not on every way to it.
    for sent in expected.sent.iter_mut().chain(&mut actual.sent) {
        sent.retain(|frame| tables.fixture().carries(frame));
        sent.sort();
    }
    prop_assert_eq!(actual, expected, "{:#?}", batch.iter().map(Planned::text).collect::<Vec<_>>());
    Ok(())
}

fn report(name: &str, figures: &Figures, start: Instant) {
    eprintln!("{name}: {figures:?} in {:?}", start.elapsed());
    assert!(figures.hits > figures.packets / 4, "{figures:?}");
}

fn in_memory<F: Fixture + 'static>(name: &str, fixture: fn() -> F) {
    let figures = RefCell::new(Figures::default());
    let start = Instant::now();
    run(input(), 300, 10, |input| {
        play(&Tables::new(fixture()), input, 300, &mut figures.borrow_mut())
    });
    report(name, &figures.into_inner(), start);
}

#[test]
fn the_model_forwards_hits_as_a_fresh_translation() {
    in_memory("model", ModelFixture::new);
}

#[test]
fn the_userspace_datapath_forwards_hits_as_a_fresh_translation() {
    in_memory("userspace", UserspaceDummy::new);
}

fn at_tier(tier: Tier) {
    Veth::run(tier, move |fixture| {
        fixture.clock().stop();
        let tables = Tables::new(fixture);
        let figures = RefCell::new(Figures::default());
        let start = Instant::now();
        run(input(), 20, 2, |input| {
            tables.dp().flush();
            outcome(&tables); // what is left of a failed case
            play(&tables, input, 100, &mut figures.borrow_mut())
        });
        eprintln!("{:?}", tables.fixture().ran());
        report(tier.name(), &figures.into_inner(), start);
    });
}

#[test]
fn the_skb_hook_forwards_hits_as_a_fresh_translation() {
    at_tier(Tier::Tcx);
}

#[test]
fn xdp_forwards_hits_as_a_fresh_translation() {
    at_tier(Tier::Xdp);
}

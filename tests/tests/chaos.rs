// SPDX-License-Identifier: Apache-2.0
//! A datapath that fails on purpose. Its caller loses nothing beyond the fault itself.

use datapath::{
    Flows, Megaflow, Packets, PortError, PortKind, PortNo, PortSpec, Ports, Refusal, Ufid,
};
use datapath_model::chaos::SYNTHETIC;
use datapath_model::{Chaos, Rates};
use flow::{Field, Key};
use packet::Packet;
use slipswitch_tests::behaviour::frames::{A, B, v4};
use slipswitch_tests::behaviour::{Fixture, ModelFixture, UserspaceDummy, World, on};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The switch under test, and its results so far.
#[derive(Default)]
struct Tally {
    refused: u64,
    installed: u64,
}

/// A small slow path: each destination address gets a megaflow by an upcall; meanwhile megaflows
/// are modified, removed, and packets are executed.
fn drive(fixture: impl Fixture + 'static, rates: Rates, seed: u64) {
    let w = World::new(fixture);
    let chaos = Chaos::new(w.dp().clone(), rates, seed);
    let tally = Arc::new(Mutex::new(Tally::default()));
    let (driven, counted) = (Arc::downgrade(&chaos), tally.clone());
    w.answer(move |seen| {
        let actions = World::actions("2");
        let mut matching = on(1);
        matching.set(Field::Ipv4Dst, seen.key.nw_dst.get().into());
        let ufid = Ufid(seen.key.nw_dst.get().into());
        let flow = Megaflow { ufid, matching, actions: actions.clone().into() };
        let mut tally = counted.lock().expect("no holder panics");
        match driven.upgrade().expect("it is there").install(&flow) {
            Ok(()) => tally.installed += 1,
            Err(Refusal::Synthetic) => tally.refused += 1,
            Err(other) => panic!("a real refusal: {other}"),
        }
        actions
    });

    let packets = 400;
    let mut counted = 0;
    let mut reports: BTreeMap<bool, u64> = BTreeMap::new();
    let mut gone = 0;
    for i in 0..packets {
        let frame = packet::build::Frame::ethernet(B, A)
            .ipv4(v4(1), v4((i % 20) as u8), 64)
            .udp(1, 2)
            .finish();
        w.inject(1, &frame);
        let ufid = Ufid(u128::from(v4((i % 7) as u8).to_bits()));
        if i % 3 == 0 {
            let before = chaos.flow(ufid);
            let modified = chaos.modify(ufid, &World::actions("2").into());
            assert_eq!(modified, chaos.flow(ufid).is_some(), "false means that it is not there");
            if before.is_some() && !modified {
                gone += before.map_or(0, |d| d.stats.packets);
            }
            *reports.entry(modified).or_default() += 1;
        }
        if i % 5 == 0 {
            let before = chaos.flow(ufid);
            let removed = Flows::remove(&*chaos, ufid);
            assert!(chaos.flow(ufid).is_none(), "after a removal nothing is there");
            match removed {
                Some(stats) => counted += stats.packets,
                None => gone += before.map_or(0, |d| d.stats.packets),
            }
        }
    }
    assert_eq!(w.out(2).len(), packets, "a fault in the control path costs no packet");
    chaos.sweep(&mut |_, stats| counted += stats.packets);
    let upcalls = w.upcalls().len() as u64;
    assert_eq!(
        counted + gone + upcalls,
        packets as u64,
        "each packet is counted once, or lost with its megaflow"
    );
    {
        let tally = tally.lock().expect("no holder panics");
        assert_eq!(tally.installed + tally.refused, upcalls);
        assert_eq!(tally.refused > 0, rates.install > 0);
    }

    let mut executed = 0;
    for _ in 0..200 {
        let faults = chaos.faults();
        let frame = packet::build::Frame::ethernet(B, A).ipv4(v4(1), v4(2), 64).udp(1, 2).packet();
        chaos.execute(frame, &Key::ZERO, &World::actions("3"));
        executed += u64::from(chaos.faults() == faults);
    }
    assert_eq!(w.out(3).len() as u64, executed);
    assert_eq!(executed < 200, rates.execute > 0);

    let before = chaos.ports();
    let mut failed = 0;
    for i in 0..50 {
        let spec = PortSpec {
            name: format!("c{seed}-{i}-{}", rates.add_port),
            kind: PortKind::Dummy,
            ..PortSpec::default()
        };
        match chaos.add_port(&spec) {
            Ok(number) => chaos.remove_port(number).expect("it was just added"),
            Err(PortError::Open { cause, .. }) if cause == SYNTHETIC => failed += 1,
            Err(other) => panic!("a real error: {other}"),
        }
        assert_eq!(chaos.ports(), before, "an error changes nothing");
    }
    assert_eq!(failed > 0, rates.add_port > 0);
    chaos.inject(Packet::from_slice(&[0; 60]), PortNo(4));
    assert_eq!(chaos.faults() > 0, rates != Rates::default());
}

#[test]
fn faults_cost_only_what_they_take() {
    let table = [
        Rates::default(),
        Rates { install: 300, ..Rates::default() },
        Rates { install: 1000, ..Rates::default() },
        Rates { modify: 300, ..Rates::default() },
        Rates { remove: 300, ..Rates::default() },
        Rates { execute: 300, ..Rates::default() },
        Rates { add_port: 300, ..Rates::default() },
        Rates {
            install: 200,
            modify: 200,
            remove: 200,
            execute: 200,
            add_port: 200,
            ..Rates::default()
        },
    ];
    for (i, rates) in table.into_iter().enumerate() {
        drive(ModelFixture::new(), rates, i as u64);
        drive(UserspaceDummy::new(), rates, i as u64);
    }
}

#[test]
fn one_seed_makes_the_same_faults_again() {
    let faults = |seed| {
        let fixture = ModelFixture::new();
        let chaos = Chaos::new(
            fixture.datapath().clone(),
            Rates { install: 500, ..Rates::default() },
            seed,
        );
        (0..64u128)
            .map(|i| {
                let mut matching = on(1);
                matching.set(Field::Ipv4Dst, i);
                chaos.install(&Megaflow { ufid: Ufid(i), matching, actions: [].into() }).is_err()
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(faults(1), faults(1));
    assert_ne!(faults(1), faults(2));
}

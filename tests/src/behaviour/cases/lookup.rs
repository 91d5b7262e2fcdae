// SPDX-License-Identifier: Apache-2.0
//! Megaflows: which one a packet finds, and what is counted on it.

use crate::behaviour::frames::{A, B, ipv4, tcp, udp, v4};
use crate::behaviour::{FLOW_LIMIT, World, on};
use clock::Millis;
use datapath::{ACTION_DEPTH_LIMIT, Action, DropReason, Megaflow, PortNo, Refusal, Ufid};
use flow::Field;
use packet::Packet;
use packet::build::Frame;

pub fn a_hit_runs_the_actions_and_counts(w: &World) {
    w.install(1, on(1), "2");
    w.inject(1, &udp(20));
    assert_eq!(w.out(2), [udp(20)]);
    assert!(w.out(1).is_empty() && w.out(3).is_empty());
    assert!(w.upcalls().is_empty());
    let lookups = w.dp().lookups();
    assert_eq!((lookups.hits, lookups.misses, lookups.lost), (1, 0, 0));
    assert_eq!((lookups.flows, lookups.masks), (1, 1));
}

pub fn statistics_are_exact(w: &World) {
    let clock = w.fixture().clock();
    clock.stop();
    w.install(1, on(1), "2");
    let fresh = w.stats(1);
    assert_eq!((fresh.packets, fresh.bytes, fresh.used, fresh.tcp_flags), (0, 0, Millis(0), 0));
    let frames = [tcp(0x002, 0), tcp(0x010, 1000), tcp(0x011, 7), udp(100)];
    for frame in &frames {
        clock.advance(10);
        w.inject(1, frame);
    }
    let stats = w.stats(1);
    assert_eq!(stats.packets, 4);
    assert_eq!(stats.bytes, frames.iter().map(|f| f.len() as u64).sum::<u64>());
    assert_eq!(stats.tcp_flags, 0x013);
    assert_eq!(stats.used, clock.now());
}

pub fn masks_of_many_shapes_find_their_packets(w: &World) {
    let field = |port: u32, field: Field, value: u128, mask: u128| {
        let mut m = on(port);
        m.set_masked(field, value, mask);
        m
    };
    let dst = u128::from(v4(2).to_bits());
    w.install(1, field(1, Field::Ipv4Dst, dst, 0xffff_ffff), "2");
    w.install(2, field(1, Field::Ipv4Dst, u128::from(v4(64).to_bits()), 0xffff_ffc0), "3");
    w.install(3, field(1, Field::EthType, 0x806, 0xffff), "4");
    w.install(4, field(3, Field::TcpDst, 2000, 0xff00), "2");
    w.install(5, field(3, Field::EthDst, 1 << 40, 1 << 40), "4");
    let to = |n| Frame::ethernet(B, A).ipv4(v4(1), v4(n), 64).udp(1, 2).finish();
    // An ARP target is where an IPv4 destination is in the key: this one is nobody's.
    let arp = Frame::ethernet(B, A).arp(0x806, 1, (A, v4(1)), ([0; 6], v4(200))).finish();
    for (port, frame, way) in [
        (1, to(2), Some(2)),
        (1, to(3), None),
        (1, to(64), Some(3)),
        (1, to(127), Some(3)),
        (1, to(128), None),
        (1, arp.clone(), Some(4)),
        (2, to(2), None),
        (3, tcp(0, 1), Some(2)),
        (3, Frame::ethernet([0xff; 6], A).ipv4(v4(1), v4(2), 64).tcp(1, 99, 0).finish(), Some(4)),
        (3, ipv4().tcp(1, 99, 0).finish(), None),
    ] {
        w.inject(port, &frame);
        for out in 1..=4 {
            let expected: &[Vec<u8>] =
                if way == Some(out) { std::slice::from_ref(&frame) } else { &[] };
            assert_eq!(w.out(out), expected, "from {port} to {out}");
        }
        assert_eq!(w.upcalls().len(), usize::from(way.is_none()));
    }
}

pub fn overlapping_megaflows_agree(w: &World) {
    let mut narrow = on(1);
    narrow.set(Field::Ipv4Dst, v4(2).to_bits().into());
    w.install(1, on(1), "2");
    w.install(2, narrow, "2");
    for _ in 0..3 {
        w.inject(1, &udp(1));
    }
    assert_eq!(w.out(2).len(), 3);
    assert_eq!(w.stats(1).packets + w.stats(2).packets, 3);
    assert!(w.dp().remove(Ufid(1)).is_some());
    w.inject(1, &udp(1));
    assert_eq!(w.out(2).len(), 1, "the other megaflow is still there");
    assert_eq!(w.dp().lookups().masks, 1);
}

pub fn modify_replaces_actions_and_keeps_statistics(w: &World) {
    w.install(1, on(1), "2");
    w.inject(1, &udp(1));
    assert!(w.dp().modify(Ufid(1), &World::actions("3").into()));
    w.inject(1, &udp(1));
    assert_eq!((w.out(2).len(), w.out(3).len()), (1, 1));
    assert_eq!(w.stats(1).packets, 2);
    assert!(!w.dp().modify(Ufid(2), &World::actions("3").into()));
}

pub fn remove_returns_final_statistics(w: &World) {
    w.install(1, on(1), "2");
    for _ in 0..5 {
        w.inject(1, &udp(1));
    }
    let stats = w.dp().remove(Ufid(1)).expect("it is there");
    assert_eq!(stats.packets, 5);
    assert_eq!(w.dp().remove(Ufid(1)), None);
    assert!(w.dp().flow(Ufid(1)).is_none());
    w.inject(1, &udp(1));
    assert_eq!(w.upcalls().len(), 1, "no cache may still know it");
    assert_eq!(w.out(2).len(), 5);
    w.install(1, on(1), "3");
    assert_eq!(w.stats(1).packets, 0, "a new megaflow starts at zero");
    w.inject(1, &udp(1));
    assert_eq!(w.out(3).len(), 1);
}

pub fn an_identity_is_taken_once(w: &World) {
    w.install(1, on(1), "2");
    assert_eq!(w.try_install(1, on(2), "3"), Err(Refusal::Exists));
    w.inject(1, &udp(1));
    assert_eq!(w.out(2).len(), 1);
}

pub fn a_full_table_refuses(w: &World) {
    for i in 0..FLOW_LIMIT {
        let mut m = on(1);
        m.set(Field::Ipv4Dst, i as u128);
        w.install(i as u128, m, "2");
    }
    assert_eq!(w.try_install(9999, on(2), "2"), Err(Refusal::TableFull));
    assert_eq!(w.dp().dump().len(), FLOW_LIMIT);
    assert!(w.dp().remove(Ufid(0)).is_some());
    w.install(9999, on(2), "3");
    w.inject(2, &udp(1));
    assert_eq!(w.out(3).len(), 1);
}

pub fn deep_nesting_is_refused(w: &World) {
    let nested =
        |n: usize| (0..n).fold(Action::Output(PortNo(2)), |inner, _| Action::Clone(vec![inner]));
    let flow = |n: usize| Megaflow {
        ufid: Ufid(n as u128),
        matching: on(1),
        actions: vec![nested(n)].into(),
    };
    assert_eq!(w.dp().install(&flow(ACTION_DEPTH_LIMIT + 1)), Err(Refusal::UnsupportedAction));
    assert!(!w.dp().supports(&nested(ACTION_DEPTH_LIMIT + 1)));
    assert_eq!(w.dp().install(&flow(ACTION_DEPTH_LIMIT)), Ok(()));
    assert!(w.dp().supports(&nested(ACTION_DEPTH_LIMIT)));
    w.inject(1, &udp(1));
    assert_eq!(w.out(2).len(), 1);
}

pub fn flush_and_dump(w: &World) {
    w.install(1, on(1), "set(ipv4(ttl=63)),2");
    w.install(2, on(2), "drop");
    w.inject(1, &udp(1));
    let mut dump = w.dp().dump();
    dump.sort_by_key(|d| d.flow.ufid);
    assert_eq!(dump.iter().map(|d| d.flow.ufid).collect::<Vec<_>>(), [Ufid(1), Ufid(2)]);
    assert_eq!(dump[0].flow.matching, on(1));
    assert_eq!(*dump[0].flow.actions, *World::actions("set(ipv4(ttl=63)),2"));
    assert_eq!((dump[0].stats.packets, dump[1].stats.packets), (1, 0));
    w.dp().flush();
    assert!(w.dp().dump().is_empty());
    assert_eq!(w.dp().lookups().flows, 0);
    w.inject(1, &udp(1));
    assert_eq!(w.upcalls().len(), 1);
}

pub fn sweep_may_call_back(w: &World) {
    for i in 1..=10u32 {
        let mut m = on(1);
        m.set(Field::Ipv4Dst, i.into());
        w.install(i.into(), m, "2");
    }
    let mut seen = Vec::new();
    w.dp().sweep(&mut |ufid, stats| {
        assert_eq!(stats.packets, 0);
        seen.push(ufid);
        if ufid.0.is_multiple_of(2) {
            assert!(w.dp().remove(ufid).is_some());
        }
    });
    assert_eq!(seen.len(), 10);
    assert_eq!(w.dp().dump().len(), 5);
}

pub fn packets_stay_in_order(w: &World) {
    w.install(1, on(1), "2");
    let frame = |i: usize| ipv4().udp(i as u16, 7).payload(&[i as u8; 50]).finish();
    let frames: Vec<_> = (0..100).map(frame).collect();
    w.fixture().inject_all(PortNo(1), frames.iter().map(|f| Packet::from_slice(f)).collect());
    assert_eq!(w.out(2), frames);
    assert_eq!(w.stats(1).packets, 100);
    assert!(DropReason::ALL.iter().all(|r| w.drops(*r) == 0));
}

// SPDX-License-Identifier: Apache-2.0
//! Migration of flows: full tables, ports that come and go, and statistics meanwhile.

use super::fakes::*;
use crate::migration::EVICTIONS_AT_ONCE;
use datapath::{Datapath, FlowStats, Flows, Packets, PortNo, Ports, Refusal, Tier, Ufid};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

fn full_bench(limit: usize) -> Bench {
    let b = Bench::new();
    b.fast.limit.store(limit, Ordering::Relaxed);
    b.veths(2);
    b
}

#[test]
fn cold_flows_make_room_for_busy_ones() {
    let b = full_bench(3);
    for ufid in 1..=4 {
        b.placed.install(&flow(ufid, 1, &[output(2)])).unwrap();
    }
    assert_eq!(b.place(4), (Tier::Userspace, Some(Refusal::TableFull)));
    b.fast.count(1, 50);
    b.fast.count(2, 3);
    b.fast.count(3, 60);
    for _ in 0..20 {
        b.placed.inject(packet_of(4), PortNo(1));
    }
    b.placed.sweep(&mut |_, _| {});
    b.placed.maintain();
    assert_eq!(b.place(2), (Tier::Userspace, Some(Refusal::Evicted)));
    assert_eq!(b.packets(2), 3, "what it counted there is kept");
    b.placed.maintain();
    assert_eq!(b.place(4), (Tier::Tcx, None));
    assert_eq!(b.packets(4), 20);
    // The flow that left is not busier, so it stays out.
    b.placed.sweep(&mut |_, _| {});
    b.placed.maintain();
    assert!(!b.fast.has(2));
    // It returns when there is room again.
    b.placed.remove(Ufid(3)).unwrap();
    b.placed.maintain();
    assert_eq!(b.place(2), (Tier::Tcx, None));
    b.fast.count(2, 1);
    assert_eq!(b.swept(2).unwrap().packets, 4);
}

#[test]
fn flows_of_like_heat_do_not_change_places() {
    let b = full_bench(1);
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    b.placed.install(&flow(2, 1, &[output(2)])).unwrap();
    b.fast.count(1, 10);
    for _ in 0..15 {
        b.placed.inject(packet_of(2), PortNo(1));
    }
    b.placed.sweep(&mut |_, _| {});
    b.placed.maintain();
    assert!(b.fast.has(1));
}

#[test]
fn a_flow_that_no_sweep_has_seen_is_not_cold() {
    let b = full_bench(1);
    b.placed.install(&flow(2, 1, &[output(9)])).unwrap();
    for _ in 0..15 {
        b.placed.inject(packet_of(2), PortNo(1));
    }
    b.placed.sweep(&mut |_, _| {});
    b.placed.modify(Ufid(2), &[output(2)].into());
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    b.placed.maintain();
    b.placed.maintain();
    assert_eq!(b.place(2), (Tier::Userspace, Some(Refusal::TableFull)));
    assert!(b.fast.has(1));
    b.placed.sweep(&mut |_, _| {});
    for _ in 0..15 {
        b.placed.inject(packet_of(2), PortNo(1));
    }
    b.placed.sweep(&mut |_, _| {});
    b.placed.maintain();
    b.placed.maintain();
    assert!(b.fast.has(2) && !b.fast.has(1));
}

#[test]
fn one_turn_moves_a_bounded_number() {
    let extra = 50;
    let count = EVICTIONS_AT_ONCE + extra;
    let b = full_bench(count);
    for ufid in 0..count as u128 {
        b.placed.install(&flow(1 + ufid, 1, &[output(2)])).unwrap();
    }
    let late = 1_000_000;
    for ufid in late..late + count as u128 {
        b.placed.install(&flow(ufid, 1, &[output(2)])).unwrap();
    }
    b.placed.sweep(&mut |_, _| {});
    // Each late flow was busy.
    for ufid in late..late + count as u128 {
        b.placed.table.shard(Ufid(ufid)).entry(Ufid(ufid)).unwrap().recent = 9;
    }
    b.placed.maintain();
    let stats = b.placed.offload_stats();
    let evicted = stats.reasons.iter().find(|r| r.reason == Refusal::Evicted).unwrap();
    assert_eq!(evicted.flows, EVICTIONS_AT_ONCE);
    // The other old flows leave in the next turn. Then all late flows are there.
    b.placed.maintain();
    assert_eq!(b.placed.offload_stats().tiers[1].flows, EVICTIONS_AT_ONCE);
    b.placed.maintain();
    assert_eq!(b.placed.offload_stats().tiers[1].flows, count);
    assert!((late..late + count as u128).all(|ufid| b.fast.has(ufid)));
}

#[test]
fn flows_come_when_their_port_does() {
    let b = Bench::new();
    b.veths(1);
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    assert_eq!(b.place(1), (Tier::Userspace, Some(Refusal::PortNotHere)));
    assert_eq!(b.add("veth2", "system", None), 2);
    for _ in 0..3 {
        b.placed.maintain();
    }
    assert_eq!(b.place(1), (Tier::Tcx, None));
    // The flow leaves with its output port. The base then drops and counts the packets.
    b.placed.remove_port(PortNo(2)).unwrap();
    b.placed.maintain();
    assert_eq!(b.place(1), (Tier::Userspace, Some(Refusal::PortNotHere)));
}

#[test]
fn an_identity_on_its_way_out_is_taken_later() {
    let b = Bench::new();
    b.veths(2);
    *b.fast.refuse.lock().unwrap() = Some(Refusal::Exists);
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    assert_eq!(b.place(1), (Tier::Userspace, Some(Refusal::Unsettled)));
    *b.fast.refuse.lock().unwrap() = None;
    for _ in 0..3 {
        b.placed.maintain();
    }
    assert_eq!(b.place(1), (Tier::Tcx, None));
}

type Sweep = fn(&Bench, u128) -> Option<FlowStats>;

/// A sweep of all flows, and one of moved flows.
const SWEEPS: [Sweep; 2] = [Bench::swept, Bench::swept_as_moved];

/// Returns the packets of flow 1 that a sweep reports. The sweep begins when `leave` is about to
/// take the flow out of the fast path, reads the flow's counts there, and continues when `come` has
/// brought the flow back.
fn swept_between(
    b: &Arc<Bench>,
    sweep: Sweep,
    leave: impl FnOnce(),
    come: impl FnOnce(),
) -> Option<u64> {
    let (has_read, wait_for_read) = mpsc::channel();
    let (go_on, wait_to_go_on) = mpsc::channel::<()>();
    let (say, said) = mpsc::channel();
    *b.fast.after_sweep.lock().unwrap() = Some(Box::new(move || {
        has_read.send(()).unwrap();
        wait_to_go_on.recv().unwrap();
    }));
    let sweeper = b.clone();
    *b.fast.before_removal.lock().unwrap() = Some(Box::new(move || {
        std::thread::spawn(move || {
            say.send(sweep(&sweeper, 1).map(|stats| stats.packets)).unwrap();
        });
        wait_for_read.recv().unwrap();
    }));
    leave();
    come();
    go_on.send(()).unwrap();
    said.recv().unwrap()
}

#[test]
fn a_flow_that_leaves_and_comes_back_during_a_sweep_is_counted_once() {
    for sweep in SWEEPS {
        let b = Arc::new(full_bench(1000));
        b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
        b.fast.count(1, 10);
        let leave = || b.withdraw(&[(Ufid(1), Refusal::TableFull)]);
        let come = || {
            b.placed.maintain();
            assert_eq!(b.place(1), (Tier::Tcx, None));
            b.fast.count(1, 2);
        };
        assert_eq!(swept_between(&b, sweep, leave, come), Some(12));
        assert_eq!(b.packets(1), 12);
    }
}

#[test]
fn a_flow_does_not_inherit_the_counts_of_one_of_its_name() {
    for sweep in SWEEPS {
        let b = Arc::new(full_bench(1000));
        b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
        b.fast.count(1, 10);
        let leave = || assert_eq!(b.placed.remove(Ufid(1)).unwrap().packets, 10);
        let come = || {
            b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
            b.fast.count(1, 2);
        };
        assert_eq!(swept_between(&b, sweep, leave, come), Some(2));
    }
}

#[test]
fn a_sweep_does_not_report_fewer_packets_for_a_flow_that_is_removed_meanwhile() {
    for sweep in SWEEPS {
        let b = Arc::new(full_bench(1000));
        b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
        b.fast.count(1, 10);
        let remover = b.clone();
        *b.base.after_sweep.lock().unwrap() = Some(Box::new(move || {
            assert_eq!(remover.placed.remove(Ufid(1)).unwrap().packets, 10);
        }));
        assert_eq!(sweep(&b, 1), None);
    }
}

#[test]
fn a_review_waits_for_flows_that_another_thread_takes_out() {
    let b = Arc::new(full_bench(1000));
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    let (say, said) = mpsc::channel();
    let reviewer = b.clone();
    *b.fast.before_removal.lock().unwrap() = Some(Box::new(move || {
        std::thread::spawn(move || {
            reviewer.placed.review();
            say.send(reviewer.fast.has(1)).unwrap();
        });
        // A review that does not wait ends within this time.
        std::thread::sleep(std::time::Duration::from_millis(100));
    }));
    b.withdraw(&[(Ufid(1), Refusal::TierDisabled)]);
    assert!(!said.recv().unwrap(), "it was still there when the review had ended");
}

/// One thread finds a reason to take the flow out of the fast path. Before the flow leaves, another
/// thread gives it actions that the fast path runs.
#[test]
fn a_flow_that_left_for_a_reason_that_has_passed_comes_back() {
    let b = full_bench(1000);
    for ufid in [1, 2] {
        b.placed.install(&flow(ufid, 1, &[output(2)])).unwrap();
        b.fast.count(ufid, 10);
    }
    assert!(b.base.modify(Ufid(2), &[output(9)].into()), "it is still to leave");
    let reasons = [(Ufid(1), Refusal::NeedsUserspace), (Ufid(2), Refusal::PortNotHere)];
    b.withdraw(&reasons);
    assert!(!b.fast.has(1) && !b.fast.has(2));
    assert_eq!(b.place(1), (Tier::Userspace, Some(Refusal::Unsettled)));
    for _ in 0..3 {
        b.placed.maintain();
    }
    assert_eq!((b.place(1), b.packets(1)), ((Tier::Tcx, None), 10));
    assert_eq!(b.place(2), (Tier::Userspace, Some(Refusal::PortNotHere)));
}

#[test]
fn statistics_hold_while_flows_move() {
    let install = |b: &Bench, ufid| {
        b.placed.install(&flow(ufid, 1, &[output(2)])).unwrap();
        b.fast.count(ufid, 10);
    };
    full_bench(1000).holds_statistics(10, install, |b, turn| b.set_enabled(turn % 2 == 1));
}

#[test]
fn housekeeping_reaches_the_base_datapath() {
    let b = Bench::new();
    Datapath::maintain(&*b.placed);
    assert_eq!(b.base.maintained.load(Ordering::Relaxed), 1);
}

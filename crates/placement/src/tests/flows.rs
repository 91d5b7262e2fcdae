// SPDX-License-Identifier: Apache-2.0
//! A flow in two places is one flow: statistics, refusals, batches, changes of many.

use super::fakes::*;
use crate::queue;
use datapath::{
    Action, Counters, Datapath, DropReason, FlowStats, Flows, Offloaded, Packets, PortNo, Refusal,
    Tier, Ufid, Userdata,
};

#[test]
fn statistics_are_the_sum_and_never_go_back() {
    let b = Bench::new();
    b.veths(2);
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    assert!(b.fast.has(1));
    b.placed.inject(packet_of(1), PortNo(1));
    b.fast.count(1, 4);
    let stats = b.swept(1).unwrap();
    assert_eq!((stats.packets, stats.tcp_flags), (5, 2));
    assert_eq!(b.packets(1), 5);
    // The flow changes to actions that the fast path does not run, and back.
    let up: Action = Action::Userspace(Userdata::SlowPath { reason: "cfm" });
    assert!(b.placed.modify(Ufid(1), &[up].into()));
    assert_eq!(b.place(1), (Tier::Userspace, Some(Refusal::NeedsUserspace)));
    assert_eq!(b.swept(1).unwrap().packets, 5);
    assert!(b.placed.modify(Ufid(1), &[output(1)].into()));
    b.placed.maintain();
    b.placed.maintain();
    assert_eq!(b.place(1), (Tier::Tcx, None));
    b.fast.count(1, 2);
    assert_eq!(b.swept(1).unwrap().packets, 7);
    let last = b.placed.remove(Ufid(1)).unwrap();
    assert_eq!((last.packets, last.bytes), (7, 600 + packet_of(1).len() as u64));
    assert!(b.placed.flow(Ufid(1)).is_none() && b.swept(1).is_none() && !b.fast.has(1));
    assert!(b.placed.remove(Ufid(1)).is_none());
}

#[test]
fn every_refusal_is_kept_and_counted() {
    let b = Bench::new();
    b.veths(2);
    let mut ufid = 0;
    for refusal in Refusal::ALL {
        if refusal == Refusal::Exists {
            continue; // not the flow's own, see below
        }
        ufid += 1;
        *b.fast.refuse.lock().unwrap() = Some(refusal);
        b.placed.install(&flow(ufid, 1, &[output(2)])).unwrap();
        assert_eq!(b.place(ufid), (Tier::Userspace, Some(refusal)));
        let stats = b.placed.offload_stats();
        let of = stats.reasons.iter().find(|r| r.reason == refusal).unwrap();
        assert_eq!((of.flows, of.refusals), (1, 1), "{refusal}");
    }
    assert_eq!(b.placed.offload_stats().tiers.last().unwrap().flows, ufid as usize);
    *b.fast.refuse.lock().unwrap() = None;
    for flow in b.placed.dump() {
        assert_eq!(flow.offloaded, Offloaded::No);
        b.placed.remove(flow.flow.ufid).unwrap();
    }
    assert!(b.placed.offload_stats().reasons.iter().all(|r| r.flows == 0 && r.refusals == 1));
}

#[test]
fn what_the_base_refuses_is_refused() {
    let b = Bench::new();
    b.veths(1);
    b.placed.install(&flow(1, 1, &[])).unwrap();
    assert_eq!(b.placed.install(&flow(1, 1, &[])), Err(Refusal::Exists));
    assert_eq!(b.placed.offload_stats().flows, 1);
    assert!(!b.placed.modify(Ufid(2), &[].into()));
}

#[test]
fn a_flow_may_run_at_some_hooks_only() {
    let b = Bench::new();
    b.add("eth1", "system", None);
    b.add("eth2", "system", None);
    let push = Action::PushVlan { tpid: 0x8100, tci: 0x1001 };
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    b.placed.install(&flow(2, 1, &[push, output(2)])).unwrap();
    let offloaded = |ufid| b.placed.flow(Ufid(ufid)).unwrap().offloaded;
    assert_eq!((b.place(1), offloaded(1)), ((Tier::Xdp, None), Offloaded::Yes));
    let partly = (Tier::Tcx, Some(Refusal::UnsupportedAction));
    assert_eq!((b.place(2), offloaded(2)), (partly, Offloaded::Partial));
    let stats = b.placed.offload_stats();
    let counts: Vec<_> = stats.tiers.iter().map(|t| (t.tier, t.flows)).collect();
    assert_eq!(counts, [(Tier::Xdp, 1), (Tier::Tcx, 1), (Tier::Userspace, 0)]);
    assert_eq!((stats.reasons[0].partial, stats.reasons[0].flows), (1, 0));
    assert_eq!((stats.fast_packets, stats.sent_up), (1000, 11));
}

#[test]
fn a_flow_that_found_no_set_of_ports_goes_to_xdp_when_there_is_one() {
    let b = Bench::new();
    b.add("eth1", "system", None);
    b.add("eth2", "system", None);
    *b.fast.sets_are_full.lock().unwrap() = true;
    b.placed.install(&flow(1, 1, &[output(2), output(1)])).unwrap();
    let partly = (Tier::Tcx, Some(Refusal::PortSetsFull));
    assert_eq!(b.place(1), partly);
    b.placed.maintain();
    assert_eq!(b.place(1), partly);
    *b.fast.sets_are_full.lock().unwrap() = false;
    b.placed.maintain();
    assert_eq!(b.place(1), (Tier::Xdp, None));
}

#[test]
fn a_flow_waits_until_its_batch_is_sent() {
    let b = Bench::new();
    b.veths(2);
    queue::begin_batch(7);
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    assert_eq!(b.place(1), (Tier::Userspace, Some(Refusal::Unsettled)));
    b.placed.offer_batch(6); // another thread's batch
    assert!(!b.fast.has(1));
    // Packets of the port are still on their way.
    b.fast.on_their_way.lock().unwrap().push(PortNo(1));
    b.placed.offer_batch(7);
    assert!(!b.fast.has(1));
    b.fast.on_their_way.lock().unwrap().clear();
    queue::end_batch();
    b.placed.offer_batch(7);
    assert_eq!(b.place(1), (Tier::Tcx, None));
}

#[test]
fn what_becomes_of_a_flow_while_it_waits_counts() {
    let b = Bench::new();
    b.veths(3);
    queue::begin_batch(7);
    for ufid in [1, 2, 3] {
        b.placed.install(&flow(ufid, 1, &[output(2)])).unwrap();
    }
    assert!(b.placed.modify(Ufid(1), &[output(3)].into()));
    assert!(b.placed.remove(Ufid(2)).is_some());
    let up = Action::Userspace(Userdata::SlowPath { reason: "lacp" });
    assert!(b.placed.modify(Ufid(3), &[up].into()));
    queue::end_batch();
    b.placed.offer_batch(7);
    assert_eq!(*b.fast.flows.lock().unwrap()[&Ufid(1)].flow.actions, [output(3)]);
    assert!(!b.fast.has(2));
    assert_eq!(b.place(3), (Tier::Userspace, Some(Refusal::NeedsUserspace)));
}

#[test]
fn a_flow_that_nobody_settles_is_settled_by_maintenance() {
    let b = Bench::new();
    b.veths(2);
    queue::begin_batch(7);
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    queue::end_batch();
    b.placed.maintain();
    assert!(!b.fast.has(1));
    b.placed.maintain();
    assert!(b.fast.has(1));
}

#[test]
fn equal_actions_touch_nothing() {
    let b = Bench::new();
    b.veths(2);
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    b.fast.take_log();
    assert!(b.placed.modify(Ufid(1), &[output(2)].into()));
    assert!(b.fast.take_log().is_empty());
    b.fast.count(1, 2);
    assert!(b.placed.modify(Ufid(1), &[output(1)].into()));
    assert_eq!(b.fast.take_log(), ["replace 1"]);
    assert_eq!(b.packets(1), 2);
}

/// Flows 1 to 5 are in the fast path, and each has counted as many packets there.
fn five_flows() -> Bench {
    let b = Bench::new();
    b.veths(2);
    for ufid in 1..=5 {
        b.placed.install(&flow(ufid, 1, &[output(2)])).unwrap();
        b.fast.count(ufid, ufid as u64);
    }
    b.fast.take_log();
    b
}

#[test]
fn many_are_modified_in_the_time_of_one() {
    let b = five_flows();
    let up: Action = Action::Userspace(Userdata::SlowPath { reason: "cfm" });
    let to_all = |actions: Action| (2..=6).map(|n| (Ufid(n), [actions.clone()].into())).collect();
    let mut refused = Vec::new();
    let flows: Vec<_> = to_all(up);
    b.placed.modify_many(&flows, &mut |ufid| refused.push(ufid));
    assert_eq!(b.fast.take_log(), ["remove 4"]);
    assert_eq!(refused, [Ufid(6)], "it is not there");
    for ufid in 2..=5 {
        assert_eq!(b.place(ufid), (Tier::Userspace, Some(Refusal::NeedsUserspace)));
        assert_eq!(b.packets(ufid), ufid as u64);
    }
    assert_eq!(b.place(1), (Tier::Tcx, None));
}

#[test]
fn many_are_removed_in_the_time_of_one() {
    let b = five_flows();
    b.placed.install(&flow(6, 1, &[output(99)])).unwrap();
    let mut removed: Vec<(u128, FlowStats)> = Vec::new();
    let ufids: Vec<Ufid> = (2..=7).map(Ufid).collect();
    b.placed.remove_many(&ufids, &mut |ufid, stats| removed.push((ufid.0, stats)));
    removed.sort_by_key(|(ufid, _)| *ufid);
    let packets: Vec<_> = removed.iter().map(|(ufid, stats)| (*ufid, stats.packets)).collect();
    assert_eq!(packets, [(2, 2), (3, 3), (4, 4), (5, 5), (6, 0)]);
    assert_eq!(b.fast.take_log(), ["remove 4"]);
    assert_eq!(b.placed.dump().len(), 1);
}

#[test]
fn flush_empties_both() {
    let b = Bench::new();
    b.veths(2);
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    b.placed.install(&flow(2, 1, &[output(99)])).unwrap();
    b.placed.flush();
    assert!(b.placed.dump().is_empty() && b.fast.flows.lock().unwrap().is_empty());
    let stats = b.placed.offload_stats();
    assert!(stats.tiers.iter().all(|t| t.flows == 0) && stats.reasons.iter().all(|r| r.flows == 0));
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    assert_eq!(b.packets(1), 0);
}

#[test]
fn counters_are_sums() {
    let b = Bench::new();
    b.veths(1);
    b.placed.inject(packet_of(9), PortNo(1));
    let lookups = b.placed.lookups();
    // Masks are the base's, which holds every flow.
    assert_eq!((lookups.hits, lookups.lost, lookups.masks), (1000, 3, 0));
    assert_eq!(b.placed.drops(DropReason::Malformed), 5);
    b.placed.shutdown();
    assert_eq!(*b.fast.closed.lock().unwrap(), Some(false));
    b.placed.cleanup();
    assert_eq!(*b.fast.closed.lock().unwrap(), Some(true));
}

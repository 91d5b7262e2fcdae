// SPDX-License-Identifier: Apache-2.0
//! Adoption of the flows and port numbers that an earlier daemon left.

use super::fakes::*;
use datapath::{
    Action, AdoptedPort, FlowStats, Flows, PortNo, PortSpec, Ports, Refusal, Tier, TierSet, Ufid,
    Userdata,
};

/// Returns a fast path as an earlier daemon left it. Port 5 is interface 2, port 6 is interface 3.
/// Flows 1 and 2 go from port 5 to port 6. Flow 3 comes from port 1, whose interface 99 is gone.
fn earlier_fast_path() -> FakeFast {
    let fast = FakeFast::default();
    *fast.adopted.lock().unwrap() = vec![
        AdoptedPort { number: PortNo(5), ifindex: 2 },
        AdoptedPort { number: PortNo(6), ifindex: 3 },
        AdoptedPort { number: PortNo(1), ifindex: 99 },
    ];
    let stats = FlowStats { packets: 7, bytes: 700, ..FlowStats::default() };
    for (ufid, in_port) in [(1, 5), (2, 5), (3, 1)] {
        let held = FakeFlow {
            flow: flow(ufid, in_port, &[output(6)]),
            tiers: TierSet::TCX,
            stats,
            reported: None,
        };
        fast.flows.lock().unwrap().insert(Ufid(ufid), held);
    }
    fast
}

fn bench() -> Bench {
    let b = Bench::with(earlier_fast_path());
    assert_eq!(b.add("veth3", "system", None), 6, "the number that it had");
    assert_eq!(b.add("veth2", "system", None), 5);
    b
}

#[test]
fn devices_keep_their_numbers() {
    let b = bench();
    // 1 is reserved for interface 99.
    assert_eq!(b.add("veth4", "system", None), 2);
    let wants_1 = PortSpec { wanted: Some(PortNo(1)), ..spec("veth7", "system", None) };
    assert_eq!(b.placed.add_port(&wants_1).unwrap(), PortNo(3));
    let local = PortSpec { wanted: Some(PortNo(0)), ..spec("br8", "internal", None) };
    assert_eq!(b.placed.add_port(&local).unwrap(), PortNo(0));
}

/// Their programs forward already, and a socket would take the same packets.
#[test]
fn adopted_ports_are_attached_at_once() {
    let b = Bench::with(earlier_fast_path());
    b.placed.attach_at_once(0);
    for name in ["veth3", "veth2", "veth4"] {
        b.add(name, "system", None);
    }
    assert_eq!(b.fast.tiers_of(6), Some(TierSet::TCX));
    assert_eq!(b.fast.tiers_of(5), Some(TierSet::TCX));
    assert_eq!(b.fast.tiers_of(2), None, "a new one");
}

#[test]
fn a_number_is_given_again_late_while_others_are_kept() {
    let b = bench();
    assert_eq!(b.add("veth4", "system", None), 2);
    b.placed.remove_port(PortNo(2)).unwrap();
    assert_eq!(b.add("veth8", "system", None), 3, "flows of 2 may still be there");
    // Port 6 has a number that adopted flows use.
    b.placed.remove_port(PortNo(6)).unwrap();
    assert_eq!(b.add("veth9", "system", None), 4);
    assert_eq!(b.add("veth10", "system", None), 7);
}

#[test]
fn adopted_flows_are_there_with_what_they_counted() {
    let b = bench();
    assert_eq!(b.swept(1).unwrap().packets, 7);
    let dump = b.placed.flow(Ufid(1)).unwrap();
    assert_eq!(dump.flow, flow(1, 5, &[output(6)]), "its dump has its actions");
    assert_eq!((dump.tier, dump.stats.packets), (Tier::Tcx, 7));
    assert_eq!(b.placed.dump().len(), 3);
    let stats = b.placed.offload_stats();
    assert_eq!((stats.flows, stats.adopted, stats.tiers[1].flows), (3, 3, 3));
    assert_eq!(b.placed.install(&flow(1, 5, &[])), Err(Refusal::Exists));
}

#[test]
fn a_flow_that_still_holds_is_left_alone() {
    let b = bench();
    assert!(b.placed.modify(Ufid(1), &[output(6)].into()));
    assert_eq!(b.fast.take_log(), [] as [&str; 0]);
    assert_eq!(b.place(1), (Tier::Tcx, None));
    assert_eq!(b.swept(1).unwrap().packets, 7);
    b.fast.count(1, 1);
    assert_eq!(b.placed.remove(Ufid(1)).unwrap().packets, 8);
    assert!(!b.fast.has(1));
}

#[test]
fn a_flow_that_holds_no_more_gets_new_actions() {
    let b = bench();
    assert!(b.placed.modify(Ufid(1), &[output(5)].into()));
    assert_eq!(b.fast.take_log(), ["replace 1"]);
    assert_eq!((b.place(1), b.packets(1)), ((Tier::Tcx, None), 7));
    let up = Action::Userspace(Userdata::SlowPath { reason: "cfm" });
    assert!(b.placed.modify(Ufid(2), &[up].into()));
    assert_eq!(b.place(2), (Tier::Userspace, Some(Refusal::NeedsUserspace)));
    assert_eq!((b.packets(2), b.fast.has(2)), (7, false));
}

#[test]
fn an_unexplained_flow_is_removed_with_its_counts() {
    let b = bench();
    assert_eq!(b.placed.remove(Ufid(1)).unwrap().packets, 7);
    assert!(b.swept(1).is_none() && !b.fast.has(1));
}

#[test]
fn the_end_of_adoption_lets_go_of_what_is_gone() {
    let b = bench();
    b.placed.finish_adoption();
    assert!(!b.fast.has(3) && b.fast.has(1));
    // Number 1 is free when no flow refers to it any more.
    assert_eq!(b.add("veth4", "system", None), 2);
    for ufid in [1, 2] {
        b.placed.modify(Ufid(ufid), &[output(6)].into());
    }
    b.placed.maintain();
    assert_eq!(b.add("veth8", "system", None), 1);
}

#[test]
fn flows_that_know_ports_by_other_numbers_are_not_adopted() {
    let b = Bench::late(earlier_fast_path());
    assert_eq!(b.add("veth2", "system", None), 1, "5 for those flows");
    b.placed.install(&flow(7, 1, &[output(1)])).unwrap();
    assert_eq!(b.place(7), (Tier::Userspace, Some(Refusal::TierDisabled)));
    b.begin();
    assert!(!b.fast.has(1) && b.placed.offload_stats().adopted == 0);
    // The flow that was there before goes to the fast path.
    for _ in 0..3 {
        b.placed.maintain();
    }
    assert_eq!(b.place(7), (Tier::Tcx, None));
    assert_eq!(b.placed.would_run(&flow(8, 1, &[output(1)])).outcome(), Ok(Tier::Tcx));
    assert_eq!(b.placed.would_run(&flow(8, 1, &[output(9)])).outcome(), Err(Refusal::PortNotHere));
}

/// A tunnel port has no device: its number is that of its kind and UDP port.
#[test]
fn tunnels_keep_their_numbers() {
    let fast = earlier_fast_path();
    let geneve =
        |udp_port| tunnel::PortConfig { udp_port, ..tunnel::PortConfig::new(tunnel::Kind::Geneve) };
    *fast.adopted_tunnels.lock().unwrap() = vec![(PortNo(2), geneve(6081)), (PortNo(3), geneve(7))];
    for (ufid, in_port) in [(4, 2), (5, 3)] {
        let held = FakeFlow {
            flow: flow(ufid, in_port, &[output(6)]),
            tiers: TierSet::TCX,
            stats: FlowStats::default(),
            reported: None,
        };
        fast.flows.lock().unwrap().insert(Ufid(ufid), held);
    }
    let b = Bench::with(fast);
    assert_eq!(b.add("veth4", "system", None), 4, "1, 2 and 3 are reserved");
    assert_eq!(b.add("vxlan_sys_4789", "vxlan", None), 7, "no such tunnel was there");
    assert_eq!(b.add("genev_sys_6081", "geneve", None), 2);
    b.placed.finish_adoption();
    assert!(b.fast.has(4) && !b.fast.has(5), "the other tunnel is gone");
}

/// Sequence numbers go on, also those of a tunnel that programs do not pop.
#[test]
fn tunnels_keep_their_sequence_numbers() {
    let fast = earlier_fast_path();
    let [gre, gtpu] = [tunnel::Kind::Gre, tunnel::Kind::Gtpu].map(tunnel::PortConfig::new);
    *fast.adopted_tunnels.lock().unwrap() = vec![(PortNo(2), gre), (PortNo(3), gtpu)];
    let held = FakeFlow {
        flow: flow(4, 3, &[output(6)]),
        tiers: TierSet::TCX,
        stats: FlowStats::default(),
        reported: None,
    };
    fast.flows.lock().unwrap().insert(Ufid(4), held);
    let b = Bench::with(fast);
    assert_eq!(b.add("gtpu_sys_2152", "gtpu", None), 3);
    assert_eq!(b.add("gre_sys", "gre", None), 2);
    b.add("vxlan_sys_4789", "vxlan", None);
    assert_eq!(*b.base.shared_sequences.lock().unwrap(), [(PortNo(3), 30), (PortNo(2), 20)]);
    b.placed.finish_adoption();
    assert!(b.fast.has(4), "the port of GTP-U is there");
}

#[test]
fn flows_of_tunnels_are_not_adopted_next_to_other_tunnels() {
    let fast = earlier_fast_path();
    let config = tunnel::PortConfig::new(tunnel::Kind::Geneve);
    *fast.adopted_tunnels.lock().unwrap() = vec![(PortNo(7), config)];
    let b = Bench::late(fast);
    b.add("genev_sys_6081", "geneve", None);
    b.begin();
    assert!(!b.fast.has(1) && b.placed.offload_stats().adopted == 0);
}

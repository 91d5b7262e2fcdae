// SPDX-License-Identifier: Apache-2.0
//! A card above BPF: where flows go with several providers, and why not to the fastest.

use super::fakes::*;
use clock::Clock;
use datapath::offload::{ProviderSlot, Reason, TunnelHelper};
use datapath::{
    Action, Flows, MeterConfig, Meters, Offloaded, PortNo, Ports, Refusal, Tier, TierSet, Ufid,
    Userdata,
};
use datapath_model::Card;
use std::sync::Arc;

const CARD: TierSet = TierSet::of(Tier::Tc);

fn card_slot() -> ProviderSlot {
    ProviderSlot {
        tiers: CARD,
        keys: &[],
        check: |_| Ok(()),
        absent: Reason::new(Refusal::TierDisabled, "no card yet"),
        is_optional: false,
    }
}

fn card() -> Arc<Card> {
    let clock = Clock::new();
    clock.stop();
    Card::new(Tier::Tc, clock, 1000)
}

/// Returns a bench with the ports 1 and 2. Both are in the card, and at XDP and tcx, because their
/// driver redirects.
fn bench() -> (Bench, Arc<Card>) {
    let b = Bench::over(vec![card_slot()], FakeFast::default());
    let card = card();
    b.begin_with(CARD, card.clone());
    b.begin();
    for n in 1..=2 {
        assert_eq!(b.add(&format!("eth{n}"), "system", None), n);
    }
    (b, card)
}

fn reasons(b: &Bench, ufid: u128) -> String {
    b.placed.flow(Ufid(ufid)).unwrap().refusals.to_string()
}

fn tier(b: &Bench, ufid: u128) -> Tier {
    b.placed.flow(Ufid(ufid)).unwrap().tier
}

fn turns(b: &Bench) {
    (0..4).for_each(|_| b.placed.maintain());
}

#[test]
fn a_flow_goes_to_the_card_and_to_what_is_under_it() {
    let (b, card) = bench();
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    assert!(card.has(Ufid(1)) && b.fast.has(1));
    let dump = b.placed.flow(Ufid(1)).unwrap();
    assert_eq!((dump.tier, dump.offloaded), (Tier::Tc, Offloaded::Yes));
    assert!(dump.refusals.is_empty());
    card.count(Ufid(1), 5);
    b.fast.count(1, 2);
    assert_eq!((b.packets(1), b.swept(1).unwrap().packets), (7, 7));
    let stats = b.placed.offload_stats();
    let counts: Vec<_> = stats.tiers.iter().map(|t| (t.tier, t.flows)).collect();
    assert_eq!(counts, [(Tier::Tc, 1), (Tier::Xdp, 0), (Tier::Tcx, 0), (Tier::Userspace, 0)]);
    let tiers: Vec<Tier> = b.placed.tiers(PortNo(1)).unwrap().iter().map(|t| t.tier).collect();
    assert_eq!(tiers, [Tier::Tc, Tier::Xdp, Tier::Tcx, Tier::Userspace]);
    assert_eq!(Flows::remove(&*b.placed, Ufid(1)).unwrap().packets, 7);
    assert!(!card.has(Ufid(1)) && !b.fast.has(1));
}

#[test]
fn a_refusal_shows_and_the_next_tier_runs_the_flow() {
    let (b, card) = bench();
    card.refuse(|flow| (flow.actions.len() > 1).then_some(Refusal::UnsupportedAction));
    let flow = flow(1, 1, &[output(2), output(1)]);
    assert_eq!(b.placed.would_run(&flow).outcome(), Ok(Tier::Xdp));
    b.placed.install(&flow).unwrap();
    assert_eq!((tier(&b, 1), reasons(&b, 1)), (Tier::Xdp, "unsupported-action".into()));
    *b.fast.refuse.lock().unwrap() = Some(Refusal::MasksFull);
    b.placed.install(&super::fakes::flow(2, 1, &[output(2), output(1)])).unwrap();
    assert_eq!(tier(&b, 2), Tier::Userspace);
    assert_eq!(reasons(&b, 2), "tc=unsupported-action,xdp=masks-full,tcx=masks-full");
    let stats = b.placed.offload_stats();
    let of = |reason| stats.reasons.iter().find(|r| r.reason == reason).unwrap();
    let unsupported = of(Refusal::UnsupportedAction);
    assert_eq!((unsupported.flows, unsupported.partial, unsupported.refusals), (1, 1, 2));
    assert_eq!((of(Refusal::MasksFull).flows, of(Refusal::MasksFull).refusals), (1, 1));
    // A flow that changes to actions that the card takes is offered again.
    b.fast.refuse.lock().unwrap().take();
    assert!(b.placed.modify(Ufid(1), &[output(2)].into()));
    turns(&b);
    assert_eq!((tier(&b, 1), reasons(&b, 1)), (Tier::Tc, String::new()));
    // And one that changes to others leaves the card, and BPF goes on.
    card.count(Ufid(1), 3);
    b.fast.count(1, 4);
    assert!(b.placed.modify(Ufid(1), &[output(2), output(1)].into()));
    assert!(!card.has(Ufid(1)));
    assert_eq!((tier(&b, 1), b.packets(1)), (Tier::Xdp, 7));
    assert_eq!(b.fast.flows.lock().unwrap()[&Ufid(1)].flow.actions.len(), 2);
}

#[test]
fn refusals_by_slower_providers_do_not_make_a_flow_partial() {
    let kernel = TierSet::of(Tier::Kernel);
    let b = Bench::over(vec![ProviderSlot { tiers: kernel, ..card_slot() }], FakeFast::default());
    let slow = Card::new(Tier::Kernel, Clock::new(), 1000);
    slow.refuse(|_| Some(Refusal::UnsupportedKey));
    b.begin_with(kernel, slow);
    b.begin();
    for n in 1..=2 {
        b.add(&format!("eth{n}"), "system", None);
    }
    let push = Action::PushVlan { tpid: 0x8100, tci: 0x1001 };
    let up = Action::Userspace(Userdata::SlowPath { reason: "cfm" });
    for (ufid, actions, expected) in [
        (1, vec![output(2)], (Tier::Xdp, Offloaded::Yes, "")),
        (2, vec![push, output(2)], (Tier::Tcx, Offloaded::Partial, "unsupported-action")),
        (3, vec![up], (Tier::Userspace, Offloaded::No, "needs-userspace")),
    ] {
        b.placed.install(&flow(ufid, 1, &actions)).unwrap();
        let dump = b.placed.flow(Ufid(ufid)).unwrap();
        let shown = (dump.tier, dump.offloaded, dump.refusals.to_string());
        assert_eq!(shown, (expected.0, expected.1, expected.2.into()), "flow {ufid}");
    }
    *b.fast.refuse.lock().unwrap() = Some(Refusal::MasksFull);
    b.placed.install(&flow(4, 1, &[output(2)])).unwrap();
    assert_eq!(tier(&b, 4), Tier::Userspace);
    assert_eq!(reasons(&b, 4), "xdp=masks-full,tcx=masks-full,ovs=unsupported-key");
    // The same for a card, whose flows BPF refuses.
    let (b, _card) = bench();
    *b.fast.refuse.lock().unwrap() = Some(Refusal::MasksFull);
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    let dump = b.placed.flow(Ufid(1)).unwrap();
    assert_eq!((dump.tier, dump.offloaded), (Tier::Tc, Offloaded::Yes));
    assert!(dump.refusals.is_empty());
}

#[test]
fn an_action_for_userspace_leaves_all_providers() {
    let (b, card) = bench();
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    card.count(Ufid(1), 3);
    b.fast.count(1, 4);
    let up = Action::Userspace(Userdata::SlowPath { reason: "cfm" });
    assert!(b.placed.modify(Ufid(1), &[up].into()));
    assert_eq!((tier(&b, 1), reasons(&b, 1)), (Tier::Userspace, "needs-userspace".into()));
    assert!(!card.has(Ufid(1)) && !b.fast.has(1));
    assert_eq!((b.packets(1), b.swept(1).unwrap().packets), (7, 7));
}

#[test]
fn a_full_card_leaves_flows_to_the_next_tier_and_cold_ones_make_room() {
    let (b, card) = bench();
    card.set_capacity(2);
    for ufid in 1..=3 {
        b.placed.install(&flow(ufid, 1, &[output(2)])).unwrap();
    }
    assert_eq!((tier(&b, 3), reasons(&b, 3)), (Tier::Xdp, "table-full".into()));
    card.count(Ufid(1), 50);
    card.count(Ufid(2), 1);
    b.fast.count(3, 20);
    b.placed.sweep(&mut |_, _| {});
    b.placed.maintain();
    assert_eq!((tier(&b, 2), reasons(&b, 2)), (Tier::Xdp, "evicted".into()));
    assert_eq!(b.packets(2), 1, "credited once");
    b.placed.maintain();
    assert_eq!((tier(&b, 3), b.packets(3)), (Tier::Tc, 20));
    card.count(Ufid(3), 2);
    assert_eq!((b.packets(3), b.swept(3).unwrap().packets), (22, 22));
    assert!(b.fast.has(1) && b.fast.has(2) && b.fast.has(3), "BPF holds them all the same");
}

#[test]
fn a_lost_flow_is_noticed_by_the_sweep() {
    let (b, card) = bench();
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    card.count(Ufid(1), 5);
    card.lose(Ufid(1));
    assert_eq!(b.swept(1).unwrap().packets, 5);
    assert_eq!((tier(&b, 1), reasons(&b, 1)), (Tier::Xdp, "lost".into()));
    assert_eq!((b.packets(1), b.swept(1).unwrap().packets), (5, 5), "credited once");
    assert_eq!(b.placed.refusals(Refusal::Lost), 1);
    turns(&b);
    assert_eq!(tier(&b, 1), Tier::Tc, "it is offered again");
    card.count(Ufid(1), 1);
    assert_eq!((b.packets(1), b.swept(1).unwrap().packets), (6, 6));
}

#[test]
fn flows_leave_the_card_with_their_port() {
    let (b, card) = bench();
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    b.placed.install(&flow(2, 2, &[output(2)])).unwrap();
    card.count(Ufid(1), 5);
    card.exclude("eth2");
    let tcx = spec("eth2", "system", Some("tcx"));
    b.placed.retier(PortNo(2), &tcx).unwrap();
    turns(&b);
    assert_eq!(card.ports(), [PortNo(1)]);
    assert!(!card.has(Ufid(1)) && !card.has(Ufid(2)));
    assert_eq!((tier(&b, 1), b.packets(1)), (Tier::Tcx, 5));
    assert_eq!(reasons(&b, 1), "tc=device-kind,xdp=unverified-peer", "of its output");
    assert_eq!(tier(&b, 2), Tier::Tcx);
    b.placed.remove_port(PortNo(1)).unwrap();
    assert!(card.ports().is_empty());
}

#[test]
fn the_setting_names_the_fastest_tier() {
    let (b, card) = bench();
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    b.placed.retier(PortNo(1), &spec("eth1", "system", Some("xdp"))).unwrap();
    turns(&b);
    assert_eq!((card.ports(), tier(&b, 1)), (vec![PortNo(2)], Tier::Xdp));
    assert_eq!(reasons(&b, 1), "tier-setting");
    b.placed.retier(PortNo(1), &spec("eth1", "system", Some("tc"))).unwrap();
    turns(&b);
    assert_eq!(tier(&b, 1), Tier::Tc);
}

#[test]
fn each_provider_is_switched_off_by_itself() {
    let (b, card) = bench();
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    card.count(Ufid(1), 2);
    b.fast.count(1, 3);
    b.set_enabled(false);
    assert!(card.has(Ufid(1)) && !b.fast.has(1));
    assert_eq!((tier(&b, 1), b.packets(1)), (Tier::Tc, 5));
    b.set_enabled(true);
    turns(&b);
    assert!(b.fast.has(1));
    let off = Reason::new(Refusal::TierDisabled, "other_config:hw-offload=false");
    b.placed.set_blocked(CARD, Some(off));
    assert!(!card.has(Ufid(1)) && card.ports().is_empty());
    assert_eq!((tier(&b, 1), reasons(&b, 1)), (Tier::Xdp, "tier-disabled".into()));
    b.placed.set_blocked(CARD, None);
    turns(&b);
    assert_eq!((tier(&b, 1), b.packets(1)), (Tier::Tc, 5));
}

#[test]
fn flows_of_tunnels_follow_the_providers() {
    let fast = FakeFast::default();
    let config = tunnel::PortConfig::new(tunnel::Kind::Vxlan);
    // The programs pop what they had before.
    *fast.adopted_tunnels.lock().unwrap() = vec![(PortNo(2), config)];
    let b = Bench::over(vec![card_slot()], fast);
    b.begin();
    assert_eq!(b.add("eth1", "system", None), 1);
    assert_eq!(b.add("vxlan_sys_4789", "vxlan", None), 2);
    b.placed.install(&flow(1, 2, &[output(1)])).unwrap();
    assert_eq!(tier(&b, 1), Tier::Xdp);
    // A card that comes later.
    let card = card();
    card.pop_tunnels();
    b.begin_with(CARD, card.clone());
    assert_eq!(card.tunnels(), [(PortNo(2), None)]);
    turns(&b);
    assert_eq!(tier(&b, 1), Tier::Tc);
    // Each is switched off and on.
    b.set_enabled(false);
    assert!(card.has(Ufid(1)) && !b.fast.has(1));
    b.set_enabled(true);
    turns(&b);
    assert!(b.fast.has(1), "programs pop packets of the tunnel again");
    let off = Reason::new(Refusal::TierDisabled, "other_config:hw-offload=false");
    b.placed.set_blocked(CARD, Some(off));
    assert!(!card.has(Ufid(1)));
    assert_eq!((tier(&b, 1), reasons(&b, 1)), (Tier::Xdp, "tier-disabled".into()));
    b.placed.set_blocked(CARD, None);
    turns(&b);
    assert_eq!((tier(&b, 1), reasons(&b, 1)), (Tier::Tc, String::new()));
    // The device of the kernel.
    let helper = TunnelHelper { device: 9, entrance: None };
    assert_eq!(b.placed.set_tunnel_helper(PortNo(2), Some(&helper)), Ok(()));
    assert_eq!(card.tunnels(), [(PortNo(2), Some(9))]);
    b.placed.set_tunnel_helper(PortNo(2), None).unwrap();
    assert_eq!(card.tunnels(), [(PortNo(2), None)]);
    b.placed.remove_port(PortNo(2)).unwrap();
    assert_eq!(card.tunnels(), []);
}

#[test]
fn flows_that_miss_a_tunnels_device_are_offered_when_it_comes() {
    let b = Bench::over(vec![card_slot()], FakeFast::default());
    let card = card();
    card.pop_tunnels();
    b.begin_with(CARD, card.clone());
    b.begin();
    assert_eq!(b.add("eth1", "system", None), 1);
    assert_eq!(b.add("vxlan_sys_4789", "vxlan", None), 2);
    card.refuse(|_| Some(Refusal::PortNotHere));
    b.placed.install(&flow(1, 2, &[output(1)])).unwrap();
    turns(&b);
    assert_eq!(tier(&b, 1), Tier::Userspace);
    card.refuse(|_| None);
    let helper = TunnelHelper { device: 9, entrance: None };
    b.placed.set_tunnel_helper(PortNo(2), Some(&helper)).unwrap();
    turns(&b);
    assert_eq!(tier(&b, 1), Tier::Tc);
}

#[test]
fn a_card_does_not_pass_for_bpf() {
    let b = Bench::over(vec![card_slot()], FakeFast::default());
    let present = || [CARD, BPF].map(|tiers| b.placed.has_provider(tiers));
    assert_eq!(present(), [false, false]);
    b.begin_with(CARD, card());
    assert_eq!(present(), [true, false]);
    b.placed.begin(BPF, Err(Reason::new(Refusal::TierUnavailable, "no BPF")));
    assert_eq!((present(), b.placed.is_begun(BPF)), ([true, false], true));
}

#[test]
fn a_card_that_comes_later_gets_the_flows_that_are_there() {
    let b = Bench::over(vec![card_slot()], FakeFast::default());
    b.begin();
    b.add("eth1", "system", None);
    b.placed.install(&flow(1, 1, &[output(1)])).unwrap();
    assert_eq!((tier(&b, 1), reasons(&b, 1)), (Tier::Xdp, "tier-disabled".into()));
    let card = card();
    b.begin_with(CARD, card.clone());
    turns(&b);
    assert_eq!((tier(&b, 1), reasons(&b, 1)), (Tier::Tc, String::new()));
    assert!(card.has(Ufid(1)));
}

#[test]
fn an_optional_card_that_is_off_is_not_mentioned() {
    let slot = ProviderSlot { is_optional: true, ..card_slot() };
    let b = Bench::over(vec![slot], FakeFast::default());
    b.begin();
    for n in 1..=2 {
        b.add(&format!("eth{n}"), "system", None);
    }
    let tiers = |b: &Bench| -> Vec<Tier> {
        b.placed.tiers(PortNo(1)).unwrap().iter().map(|t| t.tier).collect()
    };
    let whole = |b: &Bench| {
        let dump = b.placed.flow(Ufid(1)).unwrap();
        assert_eq!((dump.tier, dump.offloaded), (Tier::Xdp, Offloaded::Yes));
        assert!(dump.refusals.is_empty(), "{}", dump.refusals);
        assert!(b.placed.would_run(&flow(1, 1, &[output(2)])).refusals.is_empty());
        assert_eq!(tiers(b), [Tier::Xdp, Tier::Tcx, Tier::Userspace]);
    };
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    whole(&b);
    let card = card();
    b.begin_with(CARD, card.clone());
    turns(&b);
    assert!(card.has(Ufid(1)));
    assert_eq!(tiers(&b), [Tier::Tc, Tier::Xdp, Tier::Tcx, Tier::Userspace]);
    let off = Reason::new(Refusal::TierDisabled, "other_config:hw-offload=false");
    b.placed.set_blocked(CARD, Some(off));
    turns(&b);
    assert!(!card.has(Ufid(1)));
    whole(&b);
}

#[test]
fn a_slow_card_gets_flows_by_housekeeping_the_busiest_first() {
    let (b, card) = bench();
    card.set_slow(true);
    card.set_capacity(1);
    for ufid in 1..=2 {
        b.placed.install(&flow(ufid, 1, &[output(2)])).unwrap();
        assert_eq!((tier(&b, ufid), reasons(&b, ufid)), (Tier::Xdp, "unsettled".into()));
    }
    b.fast.count(2, 9);
    b.placed.sweep(&mut |_, _| {});
    b.placed.maintain();
    assert_eq!((tier(&b, 2), tier(&b, 1)), (Tier::Tc, Tier::Xdp));
    assert_eq!(reasons(&b, 1), "table-full");
}

#[test]
fn a_meter_that_the_card_lacks_keeps_flows_from_it_alone() {
    let (b, card) = bench();
    let config = MeterConfig {
        bands: vec![datapath::MeterBand { rate: 1, burst: 1 }],
        ..MeterConfig::default()
    };
    Meters::set(&*b.placed, 1, &config).unwrap();
    b.placed.install(&flow(1, 1, &[Action::Meter(1), output(2)])).unwrap();
    assert_eq!((tier(&b, 1), reasons(&b, 1)), (Tier::Xdp, "unsupported-action".into()));
    assert!(!card.has(Ufid(1)));
    assert_eq!(Meters::stats(&*b.placed, 1).unwrap().packets, 3);
}

#[test]
fn a_restart_adopts_what_the_card_has() {
    let (first, old) = bench();
    for ufid in 1..=3 {
        first.placed.install(&flow(ufid, 1, &[output(2)])).unwrap();
        old.count(Ufid(ufid), 10);
    }
    let b = Bench::over(vec![card_slot()], FakeFast::default());
    let card = old.restarted();
    b.begin_with(CARD, card.clone());
    b.begin();
    assert_eq!(b.add("eth2", "system", None), 2, "the number that it had");
    assert_eq!(b.add("eth1", "system", None), 1);
    b.placed.finish_adoption();
    let dump = b.placed.flow(Ufid(1)).unwrap();
    assert_eq!(dump.flow, flow(1, 1, &[output(2)]));
    assert_eq!((dump.tier, dump.stats.packets, b.swept(1).unwrap().packets), (Tier::Tc, 10, 10));
    assert_eq!(b.placed.offload_stats().adopted, 3);
    // One still holds, one changes, one is not explained.
    assert!(b.placed.modify(Ufid(1), &[output(2)].into()));
    assert!(b.placed.modify(Ufid(2), &[output(1)].into()));
    assert_eq!(Flows::remove(&*b.placed, Ufid(3)).unwrap().packets, 10);
    turns(&b);
    for ufid in [1, 2] {
        assert_eq!((tier(&b, ufid), b.packets(ufid)), (Tier::Tc, 10));
        assert!(b.fast.has(ufid), "BPF has it, too");
    }
    assert!(!card.has(Ufid(3)));
    b.fast.count(1, 1);
    card.count(Ufid(1), 1);
    assert_eq!((b.packets(1), b.swept(1).unwrap().packets), (12, 12));
}

#[test]
fn a_flow_that_both_were_left_with_is_one() {
    let stats = datapath::FlowStats { packets: 7, ..Default::default() };
    let fast = FakeFast::default();
    let held = FakeFlow {
        flow: flow(1, 1, &[output(1)]),
        tiers: TierSet::XDP_AND_TCX,
        stats,
        reported: None,
    };
    fast.flows.lock().unwrap().insert(Ufid(1), held);
    let port = datapath::AdoptedPort { number: PortNo(1), ifindex: 1 };
    fast.adopted.lock().unwrap().push(port);
    let (first, old) = bench();
    first.placed.install(&flow(1, 1, &[output(1)])).unwrap();
    old.count(Ufid(1), 5);
    old.set_gone(true); // port 2 is not there
    first.placed.remove_port(PortNo(2)).unwrap();
    let b = Bench::over(vec![card_slot()], fast);
    let card = old.restarted();
    b.begin_with(CARD, card.clone());
    b.begin();
    assert_eq!(b.add("eth1", "system", None), 1);
    assert_eq!(b.placed.dump().len(), 1);
    assert_eq!((b.packets(1), b.swept(1).unwrap().packets), (12, 12));
    assert!(b.placed.modify(Ufid(1), &[output(1)].into()));
    assert_eq!((tier(&b, 1), b.packets(1), b.swept(1).unwrap().packets), (Tier::Tc, 12, 12));
    assert_eq!(Flows::remove(&*b.placed, Ufid(1)).unwrap().packets, 12);
    assert!(!card.has(Ufid(1)) && !b.fast.has(1));
}

#[test]
fn statistics_hold_while_flows_move_between_providers() {
    let (b, card) = bench();
    let counting = card.clone();
    let install = move |b: &Bench, ufid| {
        b.placed.install(&flow(ufid, 1, &[output(2)])).unwrap();
        counting.count(Ufid(ufid), 6);
        b.fast.count(ufid, 4);
    };
    b.holds_statistics(10, install, move |b, turn| {
        b.set_enabled(turn % 3 != 0);
        let off = Reason::new(Refusal::TierDisabled, "off");
        b.placed.set_blocked(CARD, (turn % 2 == 0).then_some(off));
        (1..=40).for_each(|ufid| card.lose(Ufid(ufid)));
    });
}

#[test]
fn a_flow_that_leaves_one_provider_is_offered_to_the_other() {
    let (b, card) = bench();
    turns(&b); // no change of a port is left that has all flows offered again
    card.refuse(|flow| (flow.actions.len() > 1).then_some(Refusal::UnsupportedAction));
    b.placed.install(&flow(1, 1, &[output(2), output(1)])).unwrap();
    assert_eq!((tier(&b, 1), reasons(&b, 1)), (Tier::Xdp, "unsupported-action".into()));
    b.fast.count(1, 3);
    *b.fast.refuse.lock().unwrap() = Some(Refusal::UnsupportedKey);
    assert!(b.placed.modify(Ufid(1), &[output(2)].into()));
    assert!(!b.fast.has(1));
    turns(&b);
    assert!(card.has(Ufid(1)), "the card refused the old actions only");
    assert_eq!((tier(&b, 1), b.packets(1)), (Tier::Tc, 3));
    let place = b.placed.table.shard(Ufid(1)).get(Ufid(1)).unwrap();
    assert_eq!(place.refusals.to_string(), "unsupported-key");
}

#[test]
fn a_card_that_comes_later_gets_the_meters_that_are_there() {
    let b = Bench::over(vec![card_slot()], FakeFast::default());
    let config = MeterConfig {
        bands: vec![datapath::MeterBand { rate: 1, burst: 1 }],
        ..MeterConfig::default()
    };
    for id in [1, 2] {
        Meters::set(&*b.placed, id, &config).unwrap();
    }
    assert!(Meters::remove(&*b.placed, 2).is_some());
    b.begin();
    assert_eq!(b.fast.meters.lock().unwrap().keys().copied().collect::<Vec<_>>(), [1]);
    let card = card(); // it has no meters
    b.begin_with(CARD, card.clone());
    b.add("eth1", "system", None);
    b.placed.install(&flow(1, 1, &[Action::Meter(1), output(1)])).unwrap();
    assert!(!card.has(Ufid(1)) && b.fast.has(1));
    assert_eq!((tier(&b, 1), reasons(&b, 1)), (Tier::Xdp, "unsupported-action".into()));
}

/// A tier that takes packets after the socket saw them has them only while BPF takes the others, after
/// it.
#[test]
fn filters_of_a_port_need_a_taker_of_the_packets_that_they_leave() {
    let b = Bench::over(vec![card_slot()], FakeFast::default());
    let card = card();
    card.need_taker();
    b.begin_with(CARD, card.clone());
    assert_eq!(b.add("eth1", "system", None), 1);
    assert_eq!(b.add("eth2", "system", None), 2);
    let state = |tier| {
        let tiers = b.placed.tiers(PortNo(1)).unwrap();
        let state = tiers.into_iter().find(|t| t.tier == tier).unwrap().state;
        state.map_err(|reason| reason.refusal)
    };
    let hooks = || b.fast.ports.lock().unwrap()[&PortNo(1)].hooks;
    assert_eq!(state(Tier::Tc), Err(Refusal::TierUnavailable), "BPF has not begun");
    b.begin();
    assert_eq!((state(Tier::Tc), state(Tier::Tcx)), (Ok(()), Ok(())));
    assert_eq!(state(Tier::Xdp), Err(Refusal::TierSetting), "XDP comes before filters");
    assert_eq!((hooks().after_filters, hooks().xdp), (true, None));
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    turns(&b);
    assert!(card.has(Ufid(1)) && b.fast.has(1));
    // Without BPF the socket receives each packet, so the card may have no flow.
    b.set_enabled(false);
    assert_eq!(state(Tier::Tc), Err(Refusal::TierUnavailable));
    assert!(!card.has(Ufid(1)));
    b.set_enabled(true);
    turns(&b);
    assert_eq!((state(Tier::Tc), tier(&b, 1)), (Ok(()), Tier::Tc));
    // Without filters BPF goes back to its faster place.
    b.placed.set_blocked(CARD, Some(Reason::new(Refusal::TierDisabled, "off")));
    assert!(!hooks().after_filters && hooks().xdp.is_some());
    assert_eq!(state(Tier::Xdp), Ok(()));
    b.placed.set_blocked(CARD, None);
    assert_eq!((hooks().after_filters, hooks().xdp), (true, None));
}

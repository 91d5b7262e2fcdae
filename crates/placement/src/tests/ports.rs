// SPDX-License-Identifier: Apache-2.0
//! The tiers that ports get.

use super::fakes::*;
use crate::miss::MissListener;
use datapath::offload::Reason;
use datapath::{
    Action, BondTable, Datapath, Flows, MeterConfig, Meters, PortError, PortNo, PortSpec, Ports,
    Refusal, Side, Tier, TierSet,
};
use datapath_bpf::fit::{PeerFacts, XdpFacts};
use netdev::Reception::{Briefly, Muted, Off, On};
use netdev::{Policing, QosRequest};
use std::sync::atomic::Ordering;

/// Returns the refusals at XDP and at tcx.
fn states(b: &Bench, port: u32) -> (Option<Refusal>, Option<Refusal>) {
    let tiers = b.placed.tiers(PortNo(port)).unwrap();
    let refusal = |i: usize| tiers[i].state.as_ref().err().map(|r| r.refusal);
    assert_eq!(tiers[2].tier, Tier::Userspace);
    (refusal(0), refusal(1))
}

#[test]
fn kinds_of_devices_get_their_hooks() {
    let b = Bench::new();
    let nic = b.add("eth1", "system", None);
    let veth = b.add("veth2", "", None);
    let host = b.add("br3", "internal", None);
    let tap = b.add("tap4", "tap", None);
    let afxdp = b.add("eth5", "afxdp", None);
    let dummy = b.add("p6", "dummy", None);
    assert_eq!(states(&b, nic), (None, None));
    assert_eq!(states(&b, veth), (Some(Refusal::DeviceKind), None));
    assert_eq!(states(&b, host), (Some(Refusal::DeviceKind), None));
    assert_eq!(states(&b, tap), (Some(Refusal::DeviceKind), None));
    assert_eq!(states(&b, afxdp), (Some(Refusal::DeviceKind), Some(Refusal::DeviceKind)));
    assert_eq!(states(&b, dummy), (Some(Refusal::DeviceKind), Some(Refusal::DeviceKind)));
    let ports = b.fast.ports.lock().unwrap().clone();
    assert_eq!(ports.len(), 4);
    assert_eq!(tiers_at(&ports[&PortNo(nic)]), TierSet::XDP_AND_TCX);
    assert_eq!((ports[&PortNo(nic)].side, ports[&PortNo(nic)].mtu), (Side::Device, 1500));
    assert_eq!((ports[&PortNo(host)].side, ports[&PortNo(host)].ifindex), (Side::Stack, 3));
    assert_eq!(ports[&PortNo(tap)].side, Side::Stack);
    // Only sockets stop. The descriptor of a tap stays open: the programs see packets before it.
    assert_eq!(
        *b.base.receiving.lock().unwrap(),
        [(nic, Muted), (nic, Off), (veth, Muted), (veth, Off)]
    );
    assert_eq!(b.placed.tiers(PortNo(77)), None);
}

#[test]
fn ports_in_bpf_report_the_programs_that_the_kernel_refused() {
    let b = Bench::new();
    let line = "without the program chain_tc packets are slower".to_owned();
    b.fast.refused_programs.lock().unwrap().push(line.clone());
    let veth = b.add("veth1", "", None);
    let dummy = b.add("p2", "dummy", None);
    assert!(b.placed.about_port(PortNo(veth)).contains(&line));
    assert!(!b.placed.about_port(PortNo(dummy)).contains(&line));
}

/// Ports are attached in the order of their numbers, one in each part of the work. Flows to and from
/// the others run in userspace meanwhile.
#[test]
fn the_attachment_of_many_ports_is_postponed() {
    let b = Bench::new();
    b.base.opens_muted.store(true, Ordering::Relaxed);
    b.placed.attach_at_once(2);
    b.veths(4);
    let at_tcx = || (1..=4).filter(|n| states(&b, *n).1.is_none()).collect::<Vec<u32>>();
    assert_eq!(at_tcx(), [1, 2]);
    assert_eq!(states(&b, 3).1, Some(Refusal::PortNotHere));
    b.placed.install(&flow(1, 3, &[output(1)])).unwrap();
    b.placed.install(&flow(2, 1, &[output(4)])).unwrap();
    assert_eq!((b.place(1).0, b.place(2).0), (Tier::Userspace, Tier::Userspace));
    assert_eq!(*b.base.receiving.lock().unwrap(), [(3, Briefly), (4, Briefly)]);
    assert!(b.placed.work_off());
    assert_eq!(at_tcx(), [1, 2, 3]);
    b.placed.remove_port(PortNo(4)).unwrap();
    while b.placed.work_off() {}
    assert_eq!(b.base.receiving.lock().unwrap().last(), Some(&(3, Off)));
    for _ in 0..4 {
        b.placed.maintain();
    }
    assert_eq!(b.place(1), (Tier::Tcx, None));
    assert!(!b.placed.work_off());
    // The next transaction has a number of its own, and a port that stays in userspace needs none.
    b.placed.attach_at_once(1);
    let user = b.add("veth5", "system", Some("userspace"));
    assert_eq!(states(&b, user).1, Some(Refusal::TierSetting));
    let (next, last) = (b.add("veth6", "system", None), b.add("veth7", "system", None));
    assert_eq!((states(&b, next).1, states(&b, last).1), (None, Some(Refusal::PortNotHere)));
    // A change of a port's tier attaches it.
    b.placed.retier(PortNo(last), &spec("veth7", "system", Some("tcx"))).unwrap();
    assert_eq!(states(&b, last).1, None);
}

/// A change of a socket's reception costs a grace period of the kernel.
#[test]
fn a_socket_that_opens_without_packets_stays_so_at_a_tier() {
    let b = Bench::new();
    b.base.opens_muted.store(true, Ordering::Relaxed);
    b.add("veth1", "system", None);
    assert_eq!(*b.base.receiving.lock().unwrap(), []);
    b.add("veth2", "system", Some("userspace"));
    assert_eq!(*b.base.receiving.lock().unwrap(), [(2, On)]);
}

#[test]
fn the_setting_chooses_and_unknown_words_are_errors() {
    let b = Bench::new();
    let error = b.placed.add_port(&spec("eth1", "system", Some("fast"))).unwrap_err();
    assert!(
        matches!(&error, PortError::Option { problem, .. } if problem.contains("userspace")),
        "{error}"
    );
    assert!(b.placed.ports().is_empty());
    let port = b.add("eth1", "system", Some("tcx"));
    assert_eq!(states(&b, port), (Some(Refusal::TierSetting), None));
    assert_eq!(b.fast.tiers_of(port), Some(TierSet::TCX));
    b.placed.retier(PortNo(port), &spec("eth1", "system", Some("userspace"))).unwrap();
    assert_eq!(states(&b, port).1, Some(Refusal::TierSetting));
    // Other ports may still output to it.
    assert_eq!(b.fast.tiers_of(port), Some(TierSet::NONE));
    b.placed.retier(PortNo(port), &spec("eth1", "system", None)).unwrap();
    assert_eq!(states(&b, port), (None, None));
    assert!(b.placed.retier(PortNo(port), &spec("eth1", "system", Some("?"))).is_err());
    assert_eq!(states(&b, port), (None, None));
    assert!(b.placed.retier(PortNo(9), &spec("eth1", "system", None)).is_err());
    assert_eq!(
        *b.base.receiving.lock().unwrap(),
        [(1, Muted), (1, Off), (1, Muted), (1, On), (1, Muted), (1, Off)]
    );
}

#[test]
fn a_failed_attachment_leaves_a_reason_and_a_port() {
    let b = Bench::new();
    let busy = Reason::new(Refusal::HookBusy, "another program");
    *b.fast.attach_errors.lock().unwrap() = vec![(Tier::Xdp, busy.clone())];
    let port = b.add("eth1", "system", None);
    assert_eq!(states(&b, port), (Some(Refusal::HookBusy), None));
    assert_eq!(b.fast.tiers_of(port), Some(TierSet::TCX));
    *b.fast.attach_errors.lock().unwrap() = vec![(Tier::Tcx, busy)];
    let port = b.add("eth2", "system", None);
    assert_eq!(states(&b, port), (Some(Refusal::HookBusy), Some(Refusal::HookBusy)));
    assert_eq!(b.fast.tiers_of(port), Some(TierSet::NONE));
    assert_eq!(*b.base.receiving.lock().unwrap(), [(1, Muted), (1, Off)]);
}

#[test]
fn packets_are_never_received_twice() {
    let b = Bench::new();
    b.base.cannot_stop_receiving.store(true, Ordering::Relaxed);
    let port = b.add("eth1", "system", None);
    assert_eq!(states(&b, port).1, Some(Refusal::TierUnavailable));
    assert_eq!(b.fast.tiers_of(port), Some(TierSet::NONE));
}

#[test]
fn qos_keeps_the_packets_of_the_host_in_userspace() {
    let b = Bench::new();
    b.veths(2);
    let local = b.add("br0", "internal", None);
    assert_eq!(states(&b, local).1, None);
    let qos = QosRequest { kind: "linux-htb".to_owned(), ..QosRequest::default() };
    b.placed.set_qos(PortNo(local), Some(&qos)).unwrap();
    assert_eq!(states(&b, local).1, Some(Refusal::Qos));
    b.placed.set_qos(PortNo(1), Some(&qos)).unwrap();
    assert_eq!(states(&b, 1).1, None, "packets that come in by a port pass no discipline");
    b.placed.set_qos(PortNo(local), None).unwrap();
    assert_eq!(states(&b, local).1, None);
}

#[test]
fn policing_is_done_at_the_skb_hook() {
    let b = Bench::new();
    b.veths(2);
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    b.placed.install(&flow(2, 2, &[output(1)])).unwrap();
    b.fast.count(1, 5);
    let policing = Policing { rate_kpkts: 1000, ..Policing::default() };
    b.placed.set_policing(PortNo(1), policing).unwrap();
    assert_eq!(b.packets(1), 5);
    assert_eq!(states(&b, 1).1, None);
    // The flows left for a moment, because the port was attached again.
    b.placed.maintain();
    b.placed.maintain();
    b.placed.maintain();
    assert_eq!(b.place(1), (Tier::Tcx, None));
    assert_eq!(b.place(2), (Tier::Tcx, None));
    b.placed.set_policing(PortNo(1), Policing::default()).unwrap();
    for _ in 0..4 {
        b.placed.maintain();
    }
    assert_eq!(b.place(1), (Tier::Tcx, None));
    assert_eq!(b.packets(1), 5);
}

#[test]
fn redirects_go_only_where_they_are_known_to_arrive() {
    let b = Bench::new();
    let (a, c) = (b.add("eth1", "system", None), b.add("eth2", "system", None));
    let (odd, veth) = (b.add("odd3", "system", None), b.add("veth4", "system", None));
    let host = b.add("br5", "internal", None);
    for (ufid, port, place) in [
        (1, c, (Tier::Xdp, None)),
        (2, odd, (Tier::Tcx, Some(Refusal::UnverifiedPeer))),
        (3, veth, (Tier::Tcx, Some(Refusal::UnverifiedPeer))),
        (4, host, (Tier::Tcx, Some(Refusal::DeviceKind))),
    ] {
        b.placed.install(&flow(ufid, a, &[output(port)])).unwrap();
        assert_eq!(b.place(ufid), place);
    }
    assert_eq!(b.fast.targets.lock().unwrap().get(&PortNo(veth)), Some(&false));
    // The veth's other end gets GRO, so redirected packets arrive now.
    let peer = PeerFacts { receives_redirects: Some(true), sends_whole_frames: None };
    *b.prober.veth.lock().unwrap() = XdpFacts { peer: Some(peer), ..XdpFacts::default() };
    b.placed.refresh(PortNo(veth));
    for _ in 0..4 {
        b.placed.maintain();
    }
    assert_eq!(b.place(3), (Tier::Xdp, None));
    // The other end loses GRO. (The fake asserts that no flow redirects to a port that is no
    // target.)
    *b.prober.veth.lock().unwrap() = XdpFacts::default();
    b.placed.refresh(PortNo(veth));
    for _ in 0..4 {
        b.placed.maintain();
    }
    assert_eq!(b.place(3), (Tier::Tcx, Some(Refusal::UnverifiedPeer)));
}

#[test]
fn other_ends_are_examined_only_where_xdp_depends_on_them() {
    let b = Bench::new();
    let asked = || std::mem::take(&mut *b.prober.asked.lock().unwrap());
    b.veths(3);
    b.add("br4", "internal", None);
    b.add("eth5", "system", Some("tcx"));
    asked();
    b.placed.look_at_peers();
    assert_eq!(asked(), [""; 0], "no port is at XDP, and no setting asks for it");
    // Facts that were not read for a while must be read again when XDP begins.
    let peer = PeerFacts { receives_redirects: Some(true), sends_whole_frames: None };
    b.prober.veth.lock().unwrap().peer = Some(peer);
    let card = b.add("eth6", "system", None);
    assert_eq!(asked(), ["eth6", "veth1", "veth2", "veth3", "eth6"]);
    assert_eq!(b.placed.output_state(PortNo(2), Tier::Xdp), Some(Ok(())));
    b.prober.veth.lock().unwrap().peer = None;
    b.placed.look_at_peers();
    assert_eq!(asked(), ["veth1", "veth2", "veth3", "eth6"]);
    assert!(b.placed.output_state(PortNo(2), Tier::Xdp).unwrap().is_err());
    b.placed.retier(PortNo(card), &spec("eth6", "system", Some("tcx"))).unwrap();
    b.placed.retier(PortNo(1), &spec("veth1", "system", Some("xdp"))).unwrap();
    asked();
    b.placed.look_at_peers();
    assert_eq!(asked(), ["veth1"], "it waits for its other end to be prepared");
}

#[test]
fn facts_are_read_again_when_a_change_at_another_end_begins_xdp() {
    let b = Bench::new();
    let peer = |receives, sends| PeerFacts {
        receives_redirects: Some(receives),
        sends_whole_frames: Some(sends),
    };
    b.prober.veth.lock().unwrap().peer = Some(peer(true, false));
    b.veths(1);
    b.add("veth2", "system", Some("xdp"));
    assert_eq!(states(&b, 2).0, Some(Refusal::UnverifiedPeer));
    assert_eq!(b.placed.output_state(PortNo(1), Tier::Xdp), Some(Ok(())));
    // Redirects to port 1 would be lost now. It is not examined while no port is at XDP.
    b.prober.veth.lock().unwrap().peer = Some(peer(false, true));
    b.placed.look_at_peers();
    assert_eq!(states(&b, 2).0, None);
    assert!(b.placed.output_state(PortNo(1), Tier::Xdp).unwrap().is_err());
}

#[test]
fn the_socket_of_a_device_that_is_gone_is_left_alone() {
    let b = Bench::new();
    b.veths(1);
    b.base.is_gone.store(true, Ordering::Relaxed);
    b.base.cannot_stop_receiving.store(true, Ordering::Relaxed);
    b.placed.refresh(PortNo(1));
    assert_eq!(b.base.refused_changes.load(Ordering::Relaxed), 0);
    assert_eq!(states(&b, 1).1, Some(Refusal::PortNotHere));
}

#[test]
fn a_prepared_veth_takes_xdp_when_asked() {
    let b = Bench::new();
    let peer = PeerFacts { receives_redirects: Some(true), sends_whole_frames: Some(true) };
    *b.prober.veth.lock().unwrap() = XdpFacts { peer: Some(peer), ..XdpFacts::default() };
    b.add("veth1", "system", Some("xdp"));
    b.add("veth2", "system", None);
    assert_eq!(states(&b, 1), (None, None));
    assert_eq!(states(&b, 2), (Some(Refusal::DeviceKind), None));
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    assert_eq!(b.place(1), (Tier::Xdp, None));
}

#[test]
fn the_whole_can_be_switched_off_and_on() {
    let b = Bench::new();
    b.veths(2);
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    b.fast.count(1, 3);
    b.set_enabled(false);
    assert_eq!(b.place(1), (Tier::Userspace, Some(Refusal::TierDisabled)));
    assert!(b.fast.ports.lock().unwrap().is_empty() && !b.fast.has(1));
    let late = b.add("veth3", "system", None);
    assert_eq!(states(&b, late).1, Some(Refusal::TierDisabled));
    b.set_enabled(true);
    for _ in 0..3 {
        b.placed.maintain();
    }
    assert_eq!(b.place(1), (Tier::Tcx, None));
    assert_eq!((b.packets(1), states(&b, late).1), (3, None));
}

#[test]
fn without_the_miss_device_everything_goes_on_in_userspace() {
    let b = Bench::new();
    b.veths(2);
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    b.fast.count(1, 3);
    b.placed.device_lost(BPF);
    b.placed.maintain();
    let in_userspace = (Tier::Userspace, Some(Refusal::TierUnavailable));
    assert_eq!(b.place(1), in_userspace);
    assert!(b.fast.ports.lock().unwrap().is_empty() && !b.fast.has(1));
    assert_eq!(states(&b, 1).1, Some(Refusal::TierUnavailable));
    assert_eq!(b.base.receiving.lock().unwrap().last(), Some(&(2, On)));
    // No setting brings the device back.
    b.set_enabled(false);
    b.set_enabled(true);
    (0..3).for_each(|_| b.placed.maintain());
    assert_eq!((b.place(1), b.packets(1)), (in_userspace, 3));
}

#[test]
fn the_next_port_of_a_number_begins_without_counts() {
    let b = Bench::new();
    b.veths(2);
    b.base.is_gone.store(true, Ordering::Relaxed);
    b.placed.refresh(PortNo(1));
    assert!(b.fast.forgotten.lock().unwrap().is_empty(), "only its device is gone");
    b.placed.remove_port(PortNo(1)).unwrap();
    assert_eq!(*b.fast.forgotten.lock().unwrap(), [PortNo(1)]);
}

#[test]
fn without_a_fast_path_everything_has_its_reason() {
    let reason = Reason::new(Refusal::NoPermission, "no CAP_BPF");
    let b = Bench::late(FakeFast::default());
    b.veths(1);
    assert_eq!(states(&b, 1).0, Some(Refusal::TierDisabled));
    b.placed.begin(BPF, Err(reason));
    assert_eq!(b.add("veth2", "system", None), 2);
    assert_eq!(states(&b, 2), (Some(Refusal::NoPermission), Some(Refusal::NoPermission)));
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    assert_eq!(b.place(1), (Tier::Userspace, Some(Refusal::NoPermission)));
    assert_eq!(states(&b, 1), (Some(Refusal::NoPermission), Some(Refusal::NoPermission)));
    let stats = b.placed.offload_stats();
    assert_eq!((stats.flows, stats.reasons.len()), (1, 1));
    assert_eq!((stats.reasons[0].reason, stats.reasons[0].flows), (Refusal::NoPermission, 1));
    assert!(b.placed.modify(datapath::Ufid(1), &[].into()));
    assert!(Flows::remove(&*b.placed, datapath::Ufid(1)).is_some());
    b.placed.maintain();
}

#[test]
fn a_change_of_a_device_reaches_the_provider() {
    let b = Bench::new();
    b.veths(1);
    b.base.mtu.store(9000, Ordering::Relaxed);
    b.placed.refresh(PortNo(1));
    b.placed.refresh(PortNo(1));
    assert_eq!(b.fast.take_log(), ["set_port 1 9000 true"]);
    b.placed.remove_port(PortNo(1)).unwrap();
    assert!(b.fast.ports.lock().unwrap().is_empty());
    assert!(b.placed.remove_port(PortNo(1)).is_err());
}

#[test]
fn a_port_is_in_userspace_while_its_packets_are_too_long_for_misses() {
    let b = Bench::new();
    b.veths(2);
    b.placed.install(&flow(1, 1, &[output(2)])).unwrap();
    assert_eq!(b.place(1), (Tier::Tcx, None));
    b.base.mtu.store(15_901, Ordering::Relaxed);
    b.placed.refresh(PortNo(1));
    assert_eq!(b.place(1), (Tier::Userspace, Some(Refusal::DeviceKind)));
    assert_eq!(b.fast.tiers_of(1), Some(TierSet::NONE));
    let tiers = b.placed.tiers(PortNo(1)).unwrap();
    let reason = tiers[1].state.as_ref().unwrap_err();
    assert!(reason.to_string().contains("15901"), "{reason}");
    b.base.mtu.store(15_900, Ordering::Relaxed);
    b.placed.refresh(PortNo(1));
    for _ in 0..3 {
        b.placed.maintain();
    }
    assert_eq!(b.place(1), (Tier::Tcx, None));
}

#[test]
fn a_device_that_changed_between_two_reads_is_read_again() {
    let b = Bench::new();
    b.base.is_down.store(true, Ordering::Relaxed);
    b.veths(1);
    // It comes up before the switch above reads it for the first time, so the switch sees no
    // change.
    b.base.is_down.store(false, Ordering::Relaxed);
    let status = b.placed.device(PortNo(1)).unwrap().status().unwrap();
    b.placed.compare(PortNo(1), &status);
    assert_eq!(b.fast.take_log(), ["set_port 1 1500 true"]);
    b.prober.asked.lock().unwrap().clear();
    b.placed.compare(PortNo(1), &status);
    assert_eq!(b.fast.take_log(), [""; 0]);
    assert_eq!(*b.prober.asked.lock().unwrap(), [""; 0]);
}

#[test]
fn bonds_are_mirrored_or_refused() {
    let b = Bench::new();
    b.veths(3);
    let bonds = b.placed.bonds().unwrap();
    let table = |members: &[u32]| {
        let first = PortNo(members[0]);
        BondTable::new(0, members.iter().copied().map(PortNo), |_| Some(first))
    };
    bonds.set(2, &table(&[2, 3])).unwrap();
    assert_eq!((bonds.ids(), bonds.table(2)), (vec![2], Some(table(&[2, 3]))));
    assert_eq!(bonds.bytes(2).unwrap()[9], 3, "those of the fast path");
    b.placed.install(&flow(1, 1, &[Action::LbOutput(2)])).unwrap();
    assert_eq!(b.place(1), (Tier::Tcx, None));
    // A member that the fast path cannot send to: the flow leaves before the table has it.
    bonds.set(2, &table(&[2, 99])).unwrap();
    assert_eq!(b.place(1), (Tier::Userspace, Some(Refusal::PortNotHere)));
    assert_eq!(bonds.set(100, &table(&[2])), Err(Refusal::Bond), "the fast path has no room");
    assert_eq!(bonds.ids(), [2]);
    bonds.remove(2);
    assert_eq!((bonds.ids(), bonds.table(2), bonds.bytes(2)), (vec![], None, None));
    assert!(b.fast.bonds.lock().unwrap().is_empty());
}

#[test]
fn meters_are_mirrored_or_keep_flows_away() {
    let b = Bench::new();
    b.veths(2);
    let meters = b.placed.meters().unwrap();
    let config = MeterConfig {
        bands: vec![datapath::MeterBand { rate: 1, burst: 1 }],
        ..MeterConfig::default()
    };
    meters.set(1, &config).unwrap();
    meters.set(100, &config).unwrap();
    let metered = |id| [Action::Meter(id), output(2)];
    b.placed.install(&flow(1, 1, &metered(1))).unwrap();
    b.placed.install(&flow(2, 1, &metered(100))).unwrap();
    assert_eq!(b.place(1), (Tier::Tcx, None));
    assert_eq!(b.place(2), (Tier::Userspace, Some(Refusal::UnsupportedAction)));
    assert_eq!(meters.stats(1).unwrap().packets, 3);
    assert_eq!(meters.stats(100).unwrap().packets, 0);
    // The fast path has no room for the new configuration, so the meter's flows must leave it.
    b.fast.max_meters.store(0, Ordering::Relaxed);
    meters.set(1, &config).unwrap();
    assert_eq!(b.place(1), (Tier::Userspace, Some(Refusal::UnsupportedAction)));
    assert!(b.fast.meters.lock().unwrap().is_empty());
    assert!(Meters::remove(&*b.placed, 1).is_some());
    assert!(meters.stats(1).is_none());
}

fn own(name: &str, object: Option<&str>, tier: Option<&str>) -> PortSpec {
    let mut spec = spec(name, "system", tier);
    if let Some(object) = object {
        spec.options.insert("bpf-object".into(), object.into());
    }
    spec
}

#[test]
fn a_port_may_have_a_program_of_its_own() {
    let b = Bench::new();
    let port = b.placed.add_port(&own("eth1", Some("/mine"), None)).unwrap();
    assert_eq!(b.add("eth2", "system", None), 2);
    assert_eq!(states(&b, port.0), (None, None));
    assert_eq!(b.fast.objects.lock().unwrap().len(), 1);
    let one = flow(1, 1, &[output(2)]);
    let two = flow(2, 1, &[output(2), output(2)]);
    let other = flow(3, 2, &[output(1), output(1)]);
    for flow in [&one, &two, &other] {
        b.placed.install(flow).unwrap();
    }
    assert_eq!(b.place(1), (Tier::Xdp, None));
    assert_eq!(b.place(2), (Tier::Tcx, Some(Refusal::UnsupportedAction)));
    assert_eq!(b.place(3), (Tier::Xdp, None));
    assert_eq!(b.placed.would_run(&two).outcome(), Ok(Tier::Tcx));
    // Without it, our program runs all flows.
    b.placed.retier(port, &own("eth1", None, None)).unwrap();
    assert!(b.fast.objects.lock().unwrap().is_empty());
    (0..3).for_each(|_| b.placed.maintain());
    assert_eq!(b.place(2), (Tier::Xdp, None));
    // A program that is refused leaves the port at the skb hook, with the reason.
    b.placed.retier(port, &own("eth1", Some("/broken"), None)).unwrap();
    assert_eq!(states(&b, port.0), (Some(Refusal::UserObject), None));
    let reason = b.placed.tiers(port).unwrap()[0].state.clone().unwrap_err();
    assert!(reason.detail.contains("outside of the packet"), "{reason}");
    (0..3).for_each(|_| b.placed.maintain());
    assert_eq!(b.place(1), (Tier::Tcx, Some(Refusal::UserObject)));
    b.placed.retier(port, &own("eth1", Some("/mine"), None)).unwrap();
    assert_eq!(states(&b, port.0), (None, None));
    b.placed.retier(port, &own("eth1", Some("/mine"), Some("tcx"))).unwrap();
    assert_eq!(states(&b, port.0), (Some(Refusal::TierSetting), None));
}

#[test]
fn a_users_program_asks_for_xdp_at_a_veth() {
    let b = Bench::new();
    let port = b.placed.add_port(&own("veth1", Some("/mine"), None)).unwrap();
    assert_eq!(states(&b, port.0), (Some(Refusal::UnverifiedPeer), None));
    let peer = PeerFacts { sends_whole_frames: Some(true), receives_redirects: Some(true) };
    b.prober.veth.lock().unwrap().peer = Some(peer);
    b.placed.refresh(port);
    assert_eq!(states(&b, port.0), (None, None));
    assert_eq!(b.fast.tiers_of(port.0), Some(TierSet::XDP_AND_TCX));
}

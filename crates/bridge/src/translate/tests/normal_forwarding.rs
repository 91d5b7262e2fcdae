// SPDX-License-Identifier: Apache-2.0
//! NORMAL: learning, gratuitous ARP and the VLAN modes of ports.

use super::*;
use crate::bond::{BondView, LacpStatus, Mode};

#[test]
fn normal_learns_and_forwards() {
    let mut w = World::new(4);
    w.rule("", normal());
    assert_eq!(w.dp(TCP), "2,3,4");
    let t = w.translate(&key(TCP));
    let events = crate::event::Sender::new(|_| true);
    let seen = datapath::FlowStats { packets: 1, bytes: 60, used: Millis(5), tcp_flags: 0 };
    apply(&t.effects, &seen, &events);
    let back = "in_port=3,tcp,dl_src=50:54:00:00:00:07,dl_dst=50:54:00:00:00:05";
    assert_eq!(w.dp(back), "1");
    // From the port that it is behind: dropped.
    assert_eq!(w.dp(&back.replace("in_port=3", "in_port=1")), "drop");
    assert_eq!(w.dp("in_port=1,dl_dst=01:80:c2:00:00:0e"), "drop");
    assert_eq!(w.dp("in_port=1,dl_dst=01:80:c2:00:00:10"), "2,3,4");
    w.br0().config.forward_bpdu = true;
    assert_eq!(w.dp("in_port=1,dl_dst=01:80:c2:00:00:0e"), "2,3,4");
    w.bundle(2, |b| b.floodable = false);
    w.bundle(1, |b| b.protected = true);
    w.bundle(4, |b| b.protected = true);
    assert_eq!(w.dp("in_port=1,dl_src=00:00:00:00:00:01"), "3");
    // An address that the packet itself shows to be behind its own port.
    assert_eq!(w.dp("in_port=1"), "drop");
    // Two members: the active one carries all, and none is sent back to the other.
    w.bundle(3, |b| {
        b.members = vec![PortNo(3), PortNo(2)];
        b.bond = Some(Arc::new(bond(Mode::ActiveBackup, LacpStatus::Off, 2, &[2, 3])));
    });
    w.port(2, |p| p.bundle = Some(2));
    assert_eq!(w.dp("in_port=1,dl_src=00:00:00:00:00:01"), "2");
    assert_eq!(w.dp("in_port=2,dl_src=00:00:00:00:00:01"), "1,4");
    assert_eq!(w.dp("in_port=controller"), "1,2,2,4".replace("2,2", "2"));
}

#[test]
fn a_bond_takes_packets_by_its_active_member_only() {
    let mut w = World::new(4);
    w.rule("", normal());
    w.bundle(2, |b| b.members = vec![PortNo(2), PortNo(3)]);
    w.bundle(3, |b| b.floodable = false);
    w.port(3, |p| p.bundle = Some(1));
    let set = |w: &mut World, view: BondView| w.bundle(2, |b| b.bond = Some(Arc::new(view)));
    set(&mut w, bond(Mode::ActiveBackup, LacpStatus::Off, 2, &[2, 3]));
    let reflected = "in_port=3,dl_src=00:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff";
    let t = w.translate(&key(reflected));
    assert!(t.actions.is_empty(), "{:?}", t.actions);
    assert!(!t.effects.iter().any(|e| matches!(e, Effect::Learn { .. })), "it is not there");
    assert_eq!(w.dp(&reflected.replace("in_port=3", "in_port=2")), "1,4");
    set(&mut w, bond(Mode::ActiveBackup, LacpStatus::Off, 3, &[2, 3]));
    assert_eq!(w.dp(reflected), "1,4");
    assert_eq!(w.dp(&reflected.replace("in_port=3", "in_port=2")), "drop");
    // No member is enabled: neither in nor out.
    set(&mut w, BondView { active: None, ..bond(Mode::ActiveBackup, LacpStatus::Off, 3, &[]) });
    assert_eq!(w.dp(reflected), "drop");
    assert_eq!(w.dp("in_port=4,dl_src=00:00:00:00:00:02,dl_dst=ff:ff:ff:ff:ff:ff"), "1");
}

/// Returns a bond with this active member and these enabled ones.
fn bond(mode: Mode, lacp: LacpStatus, active: u32, enabled: &[u32]) -> BondView {
    let enabled: Vec<PortNo> = enabled.iter().map(|n| PortNo(*n)).collect();
    let view = BondView {
        mode,
        lacp,
        active: Some(PortNo(active)),
        usable: enabled.clone(),
        enabled: enabled.clone(),
        ..BondView::default()
    };
    enabled.into_iter().for_each(|member| view.buckets.enable(member));
    view
}

/// Returns a world of 4 ports where ports 2 and 3 are a bond. All packets are forwarded by NORMAL.
fn bonded(view: BondView) -> World {
    let mut w = World::new(4);
    w.rule("", normal());
    w.bundle(2, |b| {
        b.members = vec![PortNo(2), PortNo(3)];
        b.bond = Some(Arc::new(view));
    });
    w.bundle(3, |b| b.floodable = false);
    w.port(3, |p| p.bundle = Some(1));
    w
}

#[test]
fn an_slb_bond_spreads_by_the_source_address() {
    let w = bonded(bond(Mode::BalanceSlb, LacpStatus::Off, 2, &[2, 3]));
    let from = |host: u32| format!("in_port=1,tcp,dl_src=00:00:00:00:00:{host:02x}");
    let first = w.dp(&from(1));
    let mut seen: Vec<String> = (1..40).map(|host| w.dp(&from(host))).collect();
    assert_eq!(seen.first(), Some(&first), "the bucket keeps its member");
    assert_eq!(w.dp(&format!("{},tp_src=7,tp_dst=8", from(1))), first, "ports do not matter");
    seen.sort();
    seen.dedup();
    assert_eq!(seen, ["2,4", "3,4"]);
    let t = w.translate(&key(&from(1)));
    assert_eq!(t.mask.0.dl_src, [0xff; 6]);
    assert!(t.effects.iter().any(|e| matches!(e, Effect::Bond(..))), "its bytes are counted");
}

#[test]
fn an_slb_bond_drops_what_the_other_end_sends_back() {
    let w = bonded(bond(Mode::BalanceSlb, LacpStatus::Off, 2, &[2, 3]));
    let learned = w.translate(&key("in_port=1,dl_src=00:00:00:00:00:01"));
    let events = crate::event::Sender::new(|_| true);
    let seen = datapath::FlowStats { packets: 1, bytes: 60, used: Millis(5), tcp_flags: 0 };
    apply(&learned.effects, &seen, &events);
    let back = "in_port=2,dl_src=00:00:00:00:00:01,dl_dst=00:00:00:00:00:09";
    assert_eq!(w.dp(back), "drop");
    assert_eq!(w.dp(&back.replace("src=00:00:00:00:00:01", "src=00:00:00:00:00:02")), "1,4");
    let broadcast = back.replace("dl_dst=00:00:00:00:00:09", "dl_dst=ff:ff:ff:ff:ff:ff");
    let other = broadcast.replace("src=00:00:00:00:00:01", "src=00:00:00:00:00:03");
    assert_eq!(w.dp(&other), "1,4");
    assert_eq!(w.dp(&other.replace("in_port=2", "in_port=3")), "drop", "not the active member");
}

#[test]
fn the_datapath_chooses_the_member_of_a_tcp_bond() {
    let flow =
        "in_port=1,tcp,dl_src=00:00:00:00:00:01,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=7,tp_dst=80";
    let output = |mode, lacp, enabled: &[u32]| {
        let view = BondView { output: Some(7), ..bond(mode, lacp, 2, enabled) };
        bonded(view)
    };
    let w = output(Mode::BalanceTcp, LacpStatus::Negotiated, &[2, 3]);
    assert_eq!(w.dp(flow), "lb_output(7),4", "the output after it goes to a port");
    let t = w.translate(&key(flow));
    let m = &t.mask.0;
    assert_eq!((m.tp_src.get(), m.nw_src.get(), m.nw_proto), (0, 0, 0), "one for all connections");
    assert!(!t.effects.iter().any(|e| matches!(e, Effect::Bond(..))), "the datapath counts");
    let none = output(Mode::BalanceTcp, LacpStatus::Negotiated, &[]);
    assert_eq!(none.dp(flow), "4");
    let without = output(Mode::BalanceTcp, LacpStatus::Configured, &[2, 3]);
    assert_eq!(without.dp(flow), "4");
    let slb = output(Mode::BalanceSlb, LacpStatus::Off, &[2, 3]);
    assert!(["2,4", "3,4"].contains(&&*slb.dp(flow)));
}

#[test]
fn a_tcp_bond_needs_lacp_and_spreads_by_the_5_tuple() {
    let flow = |port: u32| {
        format!(
            "in_port=1,tcp,dl_src=00:00:00:00:00:01,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src={port},tp_dst=80"
        )
    };
    for (lacp, out) in [(LacpStatus::Off, "4"), (LacpStatus::Configured, "4")] {
        let w = bonded(bond(Mode::BalanceTcp, lacp, 2, &[2, 3]));
        assert_eq!(w.dp(&flow(1)), out, "{lacp}");
        assert_eq!(w.dp("in_port=2,dl_src=00:00:00:00:00:01"), "drop", "{lacp}");
    }
    let w = bonded(bond(Mode::BalanceTcp, LacpStatus::Negotiated, 2, &[2, 3]));
    let mut seen: Vec<String> = (1..40).map(|port| w.dp(&flow(port))).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen, ["2,4", "3,4"]);
    let mask = w.translate(&key(&flow(1))).mask;
    assert_eq!((mask.0.tp_src.get(), mask.0.nw_dst.get()), (u16::MAX, u32::MAX));
    assert_eq!(w.dp("in_port=3,dl_src=00:00:00:00:00:09,dl_dst=ff:ff:ff:ff:ff:ff"), "1,4");
    let falls_back =
        BondView { falls_back: true, ..bond(Mode::BalanceTcp, LacpStatus::Configured, 3, &[2, 3]) };
    let w = bonded(falls_back);
    assert_eq!(w.dp(&flow(1)), "3,4", "active-backup without a partner");
}

#[test]
fn gratuitous_arp_is_seen() {
    let mut w = World::new(2);
    w.rule("", normal());
    let arp = |op: u8| {
        format!(
            "in_port=1,arp,dl_src=00:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff,arp_spa=1.1.1.1,arp_tpa=1.1.1.1,arp_op={op}"
        )
    };
    let learned = |w: &World, f: &str| {
        w.translate(&key(f))
            .effects
            .iter()
            .any(|e| matches!(e, Effect::Learn { gratuitous_arp: true, .. }))
    };
    assert!(learned(&w, &arp(1)));
    assert!(learned(&w, &arp(2)));
    assert!(!learned(&w, &arp(1).replace("arp_tpa=1.1.1.1", "arp_tpa=1.1.1.2")));
    assert_eq!(w.translate(&key(&arp(1))).mask.0.nw_src.get(), u32::MAX);
}

#[test]
fn vlan_modes() {
    let mut w = World::new(5);
    w.rule("", normal());
    w.bundle(1, |b| (b.mode, b.tag) = (VlanMode::Access, 10));
    w.bundle(2, |b| (b.mode, b.tag) = (VlanMode::Access, 10));
    w.bundle(3, |b| (b.mode, b.tag) = (VlanMode::Access, 20));
    assert_eq!(w.dp(TCP), "2,push_vlan(vid=10,pcp=0),4,5");
    let tagged = format!("{TCP},dl_vlan=10");
    assert_eq!(w.dp(&tagged), "drop");
    let from = |port: u32, f: &str| f.replace("in_port=1", &format!("in_port={port}"));
    assert_eq!(w.dp(&from(4, &tagged)), "5,pop_vlan,1,2");
    w.bundle(4, |b| b.trunks = Arc::from([11, 12]));
    assert_eq!(w.dp(&from(4, &tagged)), "drop");
    assert_eq!(w.dp(&from(4, TCP)), "drop");
    w.bundle(4, |b| (b.mode, b.tag) = (VlanMode::NativeUntagged, 10));
    assert_eq!(w.dp(&from(4, TCP)), "1,2,push_vlan(vid=10,pcp=0),5");
    assert_eq!(w.dp(&from(5, &tagged)), "pop_vlan,1,2,4");
    w.bundle(4, |b| b.mode = VlanMode::NativeTagged);
    assert_eq!(w.dp(&from(5, &tagged)), "4,pop_vlan,1,2");
    // QinQ: port 3 is a tunnel for customers' VLANs 10 and none.
    w.bundle(3, |b| (b.mode, b.tag, b.cvlans) = (VlanMode::Dot1qTunnel, 100, Arc::from([0, 10])));
    assert_eq!(w.dp(&from(3, &tagged)), "push_vlan(tpid=0x88a8,vid=100,pcp=0),5");
    assert_eq!(w.dp(&from(3, &format!("{TCP},dl_vlan=11"))), "drop");
    let mut qinq = key(&from(5, &tagged));
    qinq.vlans = [
        flow::Vlan { tpid: 0x88a8.into(), tci: 0x1064.into() },
        flow::Vlan { tpid: 0x8100.into(), tci: 0x100a.into() },
    ];
    assert_eq!(datapath::text::format_plain(&w.translate(&qinq).actions), "pop_vlan,3");
    // A customer's own two headers stay inside the tunnel's header.
    qinq.in_port.set(3);
    qinq.vlans.swap(0, 1);
    let wrapped = "push_vlan(tpid=0x88a8,vid=100,pcp=0),5";
    assert_eq!(datapath::text::format_plain(&w.translate(&qinq).actions), wrapped);
    w.bundle(4, |b| (b.mode, b.tag) = (VlanMode::Dot1qTunnel, 100));
    let both = format!("4,{wrapped}");
    assert_eq!(datapath::text::format_plain(&w.translate(&qinq).actions), both);
    w.bundle(4, |b| (b.mode, b.tag, b.trunks) = (VlanMode::Trunk, 0, Arc::from([])));
    let twice = format!("clone({}),{wrapped}", wrapped.replace('5', "4"));
    assert_eq!(datapath::text::format_plain(&w.translate(&qinq).actions), twice);
    w.bundle(4, |b| b.trunks = Arc::from([11, 12]));
    // Priority tags.
    let prio = "in_port=5,dl_src=00:00:00:00:00:01,dl_vlan=0,dl_vlan_pcp=3,dl_type=0x1234";
    w.bundle(3, |b| (b.mode, b.tag) = (VlanMode::Access, 0));
    assert_eq!(w.dp(prio), "pop_vlan,3");
    w.bundle(3, |b| b.priority_tags = PriorityTags::IfNonzero);
    assert_eq!(w.dp(prio), "3");
    assert_eq!(w.dp(&prio.replace("pcp=3", "pcp=0")), "pop_vlan,3");
    w.bundle(3, |b| b.priority_tags = PriorityTags::Always);
    let zero = prio.replace("pcp=3", "pcp=0");
    assert_eq!(w.dp(prio), "3");
    assert_eq!(w.dp(&zero), "pop_vlan,3", "an access port takes the header off");
    w.bundle(3, |b| b.mode = VlanMode::Trunk);
    assert_eq!(w.dp(&zero), "3", "a trunk keeps it");
    assert_eq!(w.dp("in_port=5,dl_src=00:00:00:00:00:01,dl_type=0x1234"), "3", "there is none");
}

#[test]
fn in_band_control_brings_dhcp_replies_to_the_bridges_own_port() {
    const REPLY: &str = "in_port=1,udp,tp_src=67,tp_dst=68";
    let output = |port: u32| Action::Output { port: PortNo(port), max_len: 0 };
    let local = PortNo::LOCAL.0;
    let mut w = World::new(3);
    w.add_port(BridgeIndex(0), local);
    w.rule("", [output(2)]);
    assert_eq!(w.dp(REPLY), "2");
    w.br0().config.in_band = true;
    assert_eq!(w.dp(REPLY), format!("2,{local}"));
    // The mask has one bit of a port that differs.
    let other = w.translate(&key("in_port=1,udp,tp_src=53,tp_dst=68"));
    assert_eq!((other.mask.0.tp_src.get(), other.mask.0.tp_dst.get()), (0x40, 0));
    let other = w.translate(&key("in_port=1,udp,tp_src=67,tp_dst=1068"));
    assert_eq!((other.mask.0.tp_src.get(), other.mask.0.tp_dst.get()), (0xffff, 0x400));
    assert_eq!(w.dp("in_port=1,tcp,tp_src=67,tp_dst=68"), "2");
    // It is not sent there twice.
    w.rule("priority=40000", [output(2), output(local)]);
    assert_eq!(w.dp(REPLY), format!("2,{local}"));
}

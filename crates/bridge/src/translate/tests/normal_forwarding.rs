// SPDX-License-Identifier: Apache-2.0
//! NORMAL: learning, gratuitous ARP and the VLAN modes of ports.

use super::*;

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
    // Two members: the first that is up carries all, and none is sent back to the other.
    w.bundle(3, |b| b.members = vec![PortNo(3), PortNo(2)]);
    w.port(2, |p| p.bundle = Some(2));
    w.port(3, |p| p.up = false);
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
    let reflected = "in_port=3,dl_src=00:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff";
    let t = w.translate(&key(reflected));
    assert!(t.actions.is_empty(), "{:?}", t.actions);
    assert!(!t.effects.iter().any(|e| matches!(e, Effect::Learn { .. })), "it is not there");
    assert_eq!(w.dp(&reflected.replace("in_port=3", "in_port=2")), "1,4");
    w.port(3, |p| p.is_active = true);
    assert_eq!(w.dp(reflected), "1,4", "not the first that is up");
    w.port(3, |p| p.is_active = false);
    w.port(2, |p| p.up = false);
    assert_eq!(w.dp(reflected), "1,4");
    assert_eq!(w.dp(&reflected.replace("in_port=3", "in_port=2")), "drop");
    w.port(3, |p| p.up = false);
    assert_eq!(w.dp(reflected), "drop");
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

// SPDX-License-Identifier: Apache-2.0
//! Ports in a spanning tree. The drops and the order of ports were compared with the real program.

use super::*;
use crate::bfd::Monitor;
use crate::protocol::Protocol;
use crate::received::Received;
use crate::spanning_tree::PortState::{
    self, Blocking, Discarding, Forwarding, Learning, Listening,
};
use clock::Millis;
use datapath::{Action as DpAction, DropReason};

const BPDU: &str = "in_port=1,dl_dst=01:80:c2:00:00:00,dl_type=0x05ff";

fn with(state: PortState, port: u32) -> World {
    let mut w = World::new(3);
    w.port(port, |p| p.tree_state = Some(state));
    w.bundle(port, |b| b.floodable = state.forwards());
    w
}

fn learns(w: &World, text: &str) -> bool {
    w.translate(&key(text)).effects.iter().any(|e| matches!(e, Effect::Learn { .. }))
}

#[test]
fn rules_see_packets_of_ports_that_learn() {
    for (state, is_seen, leaves) in [
        (PortState::Disabled, false, "drop"),
        (Blocking, false, "drop"),
        (Listening, false, "drop"),
        (Discarding, false, "drop"),
        (Learning, true, "drop"),
        (Forwarding, true, "2,3"),
    ] {
        let mut w = with(state, 1);
        w.rule("", normal());
        assert_eq!(w.dp(TCP), leaves, "{state:?}");
        assert_eq!(learns(&w, TCP), is_seen, "{state:?}");
        let t = w.translate(&key(TCP));
        let dropped = [DpAction::Drop(DropReason::ForwardingDisabled)];
        assert_eq!(t.actions == dropped, !state.forwards(), "{:?}", t.actions);
        assert!(t.error.is_none());
    }
}

#[test]
fn a_discarded_packet_leaves_no_recirculation() {
    let mut w = with(Learning, 1);
    w.rule("", actions("output:2,ct(table=1),output:3"));
    let t = w.translate(&key(TCP));
    assert_eq!(t.actions, [DpAction::Drop(DropReason::ForwardingDisabled)]);
    assert!(t.recirc_ids.is_empty());
}

#[test]
fn a_packet_that_comes_back_meets_the_present_state() {
    let mut w = World::new(3);
    w.rule("ip", actions("ct(table=1)"));
    w.rule("table=1", [out(2)]);
    assert_eq!(w.dp(TCP), "ct,recirc(0x1)");
    let mut back = key(TCP);
    back.recirc_id.set(1);
    let leaves = |w: &World| datapath::text::format_plain(&w.translate(&back).actions);
    assert_eq!(leaves(&w), "2");
    for state in [Blocking, Learning] {
        w.port(1, |p| p.tree_state = Some(state));
        assert_eq!(leaves(&w), "drop", "{state:?}");
    }
}

#[test]
fn packets_leave_by_ports_that_forward() {
    for state in [PortState::Disabled, Blocking, Listening, Discarding, Learning] {
        let mut w = with(state, 2);
        w.rule("priority=1", [out(2), out(3)]);
        assert_eq!(w.dp(TCP), "3", "{state:?}");
        assert_eq!(w.translate(&key(TCP)).mask.0.dl_dst, [0xff; 6], "BPDUs would leave");
        let bpdu = if state == Blocking { "3" } else { "2,3" };
        assert_eq!(w.dp(BPDU), bpdu, "{state:?}");
        w.clear_rules();
        w.rule("", normal());
        assert_eq!(w.dp(TCP), "3", "floods leave the port out");
        w.clear_rules();
        w.rule("", [to(PortNo::FLOOD)]);
        assert_eq!(w.dp(TCP), "3");
        w.clear_rules();
        w.rule("", [to(PortNo::ALL)]);
        assert_eq!(w.dp(TCP), "2,3", "ALL is past the tree");
    }
    let mut w = with(Forwarding, 2);
    w.rule("", [out(2), out(3)]);
    assert_eq!(w.dp(TCP), "2,3");
    assert_eq!(w.translate(&key(TCP)).mask.0.dl_dst, [0; 6]);
}

#[test]
fn packets_that_watch_the_path_leave_by_any_port() {
    let mut w = with(Blocking, 2);
    let received = Received::Virtual(Arc::default());
    let bfd = Monitor::new("p2", PortNo(2), received, &Default::default(), Millis(0));
    let bfd = Arc::new(bfd);
    w.port(2, |p| p.protocols = Arc::from([bfd as Arc<dyn Protocol>]));
    w.rule("", [out(2), out(3)]);
    let udp = |port: u16| format!("in_port=1,udp,nw_ttl=255,tp_dst={port}");
    assert_eq!(w.dp(&udp(3784)), "2,3", "a control packet of BFD");
    assert_eq!(w.dp(&udp(3785)), "3");
    assert_ne!(w.translate(&key(&udp(3785))).mask.0.tp_dst.get(), 0);
}

#[test]
fn no_receive_stp_means_bpdus_only() {
    let mut w = World::new(3);
    w.port(1, |p| p.config = PortConfig::NO_RECV_STP);
    w.rule("", [out(2)]);
    assert_eq!(w.dp(TCP), "2");
    assert_eq!(w.dp(BPDU), "drop");
    assert_eq!(w.dp("in_port=1,dl_dst=01:80:c2:00:00:00,dl_type=0x1234"), "2");
    w.port(1, |p| p.config = PortConfig::NO_RECV);
    assert_eq!(w.dp(TCP), "drop");
    assert_eq!(w.dp(BPDU), "2");
}

#[test]
fn patch_ports_are_ports_of_the_tree() {
    let mut w = World::new(2);
    let br1 = w.add_bridge(2);
    w.patch((BridgeIndex(0), 2), (br1, 1));
    w.rule("", [out(2)]);
    w.rule_on(br1, "", [to(PortNo::NORMAL)]);
    let peer = |w: &mut World, state| {
        let port = Arc::make_mut(&mut w.bridge(br1).ports).get_mut(&PortNo(1)).unwrap();
        port.tree_state = Some(state);
    };
    for (state, is_seen, leaves) in
        [(Listening, false, "drop"), (Learning, true, "drop"), (Forwarding, true, "102")]
    {
        peer(&mut w, state);
        assert_eq!(w.dp(TCP), leaves, "{state:?}");
        assert_eq!(learns(&w, TCP), is_seen, "{state:?}");
    }
}

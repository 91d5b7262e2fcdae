// SPDX-License-Identifier: Apache-2.0
//! NetFlow and sFlow.

use super::*;
use crate::export::{NetFlow, Sflow, SflowView};
use ::export::netflow::{Output, Settings};
use ::export::sflow;
use clock::Millis;
use datapath::FlowStats;
use std::net::Ipv4Addr;

fn netflow(w: &mut World) -> Arc<NetFlow> {
    let settings =
        Settings { engine_type: 0, engine_id: 0, add_id_to_interface: false, active_timeout: None };
    let netflow = Arc::new(NetFlow::new(settings, Millis(0)));
    w.br0().exports.netflow = Some(Arc::clone(&netflow));
    netflow
}

fn sflow(w: &mut World, probability: u32) {
    let settings = sflow::Settings {
        agent: Ipv4Addr::LOCALHOST.into(),
        sub_agent: 0,
        sampling: 1,
        header_bytes: 128,
        polling_seconds: 0,
    };
    let agent = Arc::new(Sflow::new(settings, Millis(0)));
    w.br0().exports.sflow = Some(SflowView { agent, probability });
}

/// Where NetFlow says that the packet goes; `None` when it is not accounted.
fn accounted(t: &Translation) -> Option<Output> {
    t.effects.iter().find_map(|effect| match effect {
        Effect::NetFlow { output, .. } => Some(*output),
        _ => None,
    })
}

#[test]
fn netflow_has_the_output_of_a_packet() {
    let mut w = World::new(4);
    netflow(&mut w);
    let mut of = |actions: Vec<Action>| {
        w.clear_rules();
        w.rule("", actions);
        accounted(&w.translate(&key(TCP)))
    };
    assert_eq!(of(vec![]), Some(Output::Drop));
    assert_eq!(of(vec![out(2)]), Some(Output::Port(2)));
    assert_eq!(of(vec![out(2), out(3)]), Some(Output::Multiple));
    assert_eq!(of(vec![to(PortNo::FLOOD)]), Some(Output::Flood));
    assert_eq!(of(vec![out(2), to(PortNo::ALL)]), Some(Output::Flood));
}

#[test]
fn netflow_makes_the_flow_exact_and_accounts_only_ipv4() {
    let mut w = World::new(2);
    w.rule("", [out(2)]);
    let open = w.translate(&key(TCP)).mask;
    assert_eq!(open.0.nw_src.get(), 0);
    netflow(&mut w);
    let t = w.translate(&key(TCP));
    assert_eq!(t.mask.0.nw_src.get(), u32::MAX);
    assert_eq!(t.mask.0.nw_dst.get(), u32::MAX);
    assert_eq!((t.mask.0.tp_src.get(), t.mask.0.tp_dst.get()), (u16::MAX, u16::MAX));
    assert_eq!((t.mask.0.nw_proto, t.mask.0.nw_tos), (u8::MAX, 0xfc));
    assert_eq!(accounted(&w.translate(&key("in_port=1,arp"))), None);
    assert_eq!(accounted(&w.translate(&key("in_port=1,tcp6"))), None);
}

#[test]
fn credited_packets_become_a_record() {
    let mut w = World::new(2);
    let netflow = netflow(&mut w);
    w.rule("", [out(2)]);
    let t = w.translate(&key(TCP));
    let seen = FlowStats { packets: 3, bytes: 180, used: Millis(5), tcp_flags: 0x12 };
    let events = crate::event::Sender::new(|_| true);
    crate::effect::apply(&t.effects, &seen, &events);
    // Another output ends the record.
    w.clear_rules();
    w.rule("", []);
    let t = w.translate(&key(TCP));
    crate::effect::apply(&t.effects, &FlowStats { packets: 1, ..seen }, &events);
    let sent = netflow.run(Millis(10), Default::default());
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].get(24 + 12..24 + 24), Some(&[0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0, 180][..]));
}

#[test]
fn an_sflow_sample_comes_first_and_has_the_way_of_the_packet() {
    let mut w = World::new(4);
    sflow(&mut w, 1 << 31);
    let sample = |w: &World, flow: &str| match w.translate(&key(flow)).actions.first() {
        Some(datapath::Action::Sample { probability, actions }) => {
            assert_eq!(*probability, 1 << 31);
            match actions.as_slice() {
                [datapath::Action::Userspace(Userdata::Sflow { vlan_tci, output })] => {
                    (*vlan_tci, *output)
                }
                other => panic!("{other:?}"),
            }
        }
        other => panic!("{other:?}"),
    };
    w.rule("", []);
    assert_eq!(sample(&w, TCP), (0, 0x4000_0100), "dropped");
    w.clear_rules();
    w.rule("", [out(2)]);
    assert_eq!(sample(&w, TCP), (0, 102), "the index of the interface");
    let vlan = "in_port=1,dl_vlan=5,dl_vlan_pcp=3";
    assert_eq!(sample(&w, vlan), (3 << 13 | 5, 102));
    assert_eq!(w.translate(&key(vlan)).mask.0.vlans[0].tci.get(), u16::MAX);
    w.clear_rules();
    w.rule("", [out(2), out(3)]);
    assert_eq!(sample(&w, TCP), (0, 0x8000_0002), "two");
    sflow(&mut w, u32::MAX);
    let t = w.translate(&key(TCP));
    assert!(matches!(t.actions.first(), Some(datapath::Action::Userspace(_))), "{:?}", t.actions);
}

#[test]
fn a_packet_is_sampled_once_where_it_comes_in() {
    let mut w = World::new(3);
    sflow(&mut w, 1 << 31);
    let br1 = w.add_bridge(3);
    w.bridge(br1).exports.sflow = w.br0().exports.sflow.clone();
    w.patch((BridgeIndex(0), 3), (br1, 3));
    w.rule_on(br1, "", [out(2)]);
    w.rule("", [out(3)]);
    let samples = |t: &Translation| {
        t.actions.iter().filter(|a| matches!(a, datapath::Action::Sample { .. })).count()
    };
    assert_eq!(samples(&w.translate(&key(TCP))), 1);
    w.br0().exports.sflow = None;
    assert_eq!(samples(&w.translate(&key(TCP))), 0);
}

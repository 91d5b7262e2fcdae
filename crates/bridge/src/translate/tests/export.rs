// SPDX-License-Identifier: Apache-2.0
//! NetFlow, sFlow and IPFIX.

use super::*;
use crate::export::{BridgeSampler, Ipfix, IpfixView, NetFlow, SetSampler, Sflow, SflowView};
use ::export::ipfix;
use ::export::netflow::{Output, Settings};
use ::export::sflow;
use clock::Millis;
use datapath::FlowStats;
use openflow::action::{ObservationId, SampleDirection};
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

/// Configures IPFIX of a bridge, and its collector set 1.
pub(super) fn ipfix(w: &mut World, probability: u32) -> Arc<Ipfix> {
    let settings = ipfix::Settings {
        active_timeout_seconds: 0,
        max_flows: 10,
        template_seconds: 600,
        statistics_seconds: 600,
        virtual_obs_id: None,
    };
    let exporter = Arc::new(Ipfix::new(settings, 1));
    let bridge = BridgeSampler {
        exporter: Arc::clone(&exporter),
        probability,
        obs_domain: 1,
        obs_point: 2,
        samples_input: true,
        samples_output: true,
        has_tunnels: true,
    };
    let set = SetSampler { exporter: Arc::clone(&exporter), has_tunnels: true };
    let view = IpfixView { bridge: Some(bridge), sets: [(1, set)].into() };
    w.br0().exports.ipfix = Some(Arc::new(view));
    exporter
}

fn sample(sampling_port: PortNo, direction: SampleDirection) -> Action {
    Action::Sample {
        probability: u16::MAX,
        collector_set: 1,
        obs_domain: ObservationId::Number(2),
        obs_point: ObservationId::Number(3),
        sampling_port,
        direction,
    }
}

/// Where the samples of a translation come from.
fn origins(actions: &[datapath::Action]) -> Vec<datapath::SampleOrigin> {
    let mut out = Vec::new();
    for action in actions {
        match action {
            datapath::Action::Userspace(
                Userdata::Ipfix { origin, .. } | Userdata::FlowSample { origin, .. },
            ) => out.push(*origin),
            datapath::Action::Sample { actions, .. } | datapath::Action::Clone(actions) => {
                out.extend(origins(actions));
            }
            _ => {}
        }
    }
    out
}

#[test]
fn ipfix_samples_where_packets_come_in_and_go_out() {
    let mut w = World::new(4);
    ipfix(&mut w, 1 << 31);
    w.rule("", [out(2), out(3)]);
    let sample =
        |port| format!("sample(sample=50.0%,actions(userspace(pid=0,ipfix(output_port={port}))))");
    let all = format!("{},{},2,{},3", sample(u32::MAX), sample(2), sample(3));
    assert_eq!(w.dp(TCP), all);
    w.clear_rules();
    w.rule("", []);
    assert_eq!(w.dp(TCP), sample(u32::MAX), "a dropped packet has come in");
    ipfix(&mut w, u32::MAX);
    assert_eq!(w.dp(TCP), "userspace(pid=0,ipfix(output_port=4294967295))");
    assert_eq!(w.dp("in_port=none,tcp"), "drop");
}

#[test]
fn a_sampled_drop_is_an_action_where_it_is_asked_for() {
    let mut w = World::new(4);
    ipfix(&mut w, u32::MAX);
    let sample = "userspace(pid=0,ipfix(output_port=4294967295))";
    w.rule("in_port=1", []);
    w.rule("in_port=2", [out(3)]);
    assert_eq!(w.dp(TCP), sample);
    w.snapshot.has_sampled_drops = true;
    assert_eq!(w.dp(TCP), format!("{sample},drop"));
    assert!(!w.dp("in_port=2,tcp").contains("drop"));
    w.br0().exports.ipfix = None;
    assert_eq!(w.dp(TCP), "drop", "an empty list");
    assert!(w.translate(&key(TCP)).actions.is_empty());
}

#[test]
fn samples_say_whether_their_packets_are_dropped_and_which_bridge_samples() {
    let mut w = World::new(3);
    ipfix(&mut w, u32::MAX);
    let br1 = w.add_bridge(3);
    w.bridge(br1).exports.ipfix = w.br0().exports.ipfix.clone();
    w.patch((BridgeIndex(0), 3), (br1, 3));
    w.rule("", [out(3)]);
    let is_dropped = |w: &World| {
        let origins = origins(&w.translate(&key(TCP)).actions);
        origins.iter().map(|o| (o.bridge, o.is_dropped)).collect::<Vec<_>>()
    };
    assert_eq!(is_dropped(&w), [(0, true)]);
    w.rule_on(br1, "", [out(2)]);
    assert_eq!(is_dropped(&w), [(0, false), (br1.0 as u16, false)]);
    w.clear_rules();
    let never = Action::Clone(vec![Action::Meter(1), out(2)]);
    w.rule("", [never]);
    assert_eq!(is_dropped(&w), [(0, false), (0, false)], "an output in a clone is one");
}

#[test]
fn sample_actions_name_their_port_and_direction() {
    let mut w = World::new(4);
    ipfix(&mut w, u32::MAX);
    Arc::make_mut(w.br0().exports.ipfix.as_mut().unwrap()).bridge = None;
    let mut of = |action| {
        w.clear_rules();
        w.rule("", [action, out(2)]);
        w.dp(TCP)
    };
    let text = |rest: &str| {
        format!(
            "userspace(pid=0,flow_sample(probability=65535,collector_set_id=1,obs_domain_id=2,\
             obs_point_id=3,output_port={rest})),2"
        )
    };
    assert_eq!(of(sample(PortNo::NONE, SampleDirection::Default)), text("4294967295"));
    assert_eq!(of(sample(PortNo(1), SampleDirection::Egress)), text("4294967295,egress"));
    assert_eq!(of(sample(PortNo(2), SampleDirection::Ingress)), text("2,ingress"));
    assert_eq!(of(sample(PortNo(77), SampleDirection::Default)), "2", "there is no such port");
}

#[test]
fn ids_of_sample_actions_are_those_in_fields() {
    let mut w = World::new(3);
    ipfix(&mut w, u32::MAX);
    Arc::make_mut(w.br0().exports.ipfix.as_mut().unwrap()).bridge = None;
    let field = |text: &str| ObservationId::Field(text.parse().expect("a subfield"));
    let action = Action::Sample {
        probability: u16::MAX,
        collector_set: 1,
        obs_domain: field("tcp_dst"),
        obs_point: field("ip_dst[8..15]"),
        sampling_port: PortNo::NONE,
        direction: SampleDirection::Default,
    };
    w.rule("", [action, out(2)]);
    let tcp = key("in_port=1,tcp,nw_dst=10.1.2.3,tp_dst=80");
    let made = w.translate(&tcp);
    let datapath::Action::Userspace(Userdata::FlowSample { obs_domain, obs_point, .. }) =
        made.actions[0]
    else {
        panic!("{:?}", made.actions)
    };
    assert_eq!((obs_domain, obs_point), (80, 2));
    assert_eq!((made.mask.0.tp_dst.get(), made.mask.0.nw_dst.get()), (u16::MAX, 0xff00));
    assert_eq!(w.dp("in_port=1,arp").matches("obs_domain_id=0,obs_point_id=0").count(), 1);
}

#[test]
fn sampled_packets_become_records() {
    let mut w = World::new(3);
    let exporter = ipfix(&mut w, u32::MAX);
    w.rule("", [out(2)]);
    let (snapshot, recirc) = (&w.snapshot, &w.recirc);
    let t = w.translate(&key(TCP));
    let place = crate::translate::locate(snapshot, &key(TCP), recirc).unwrap();
    let frame = packet::Packet::from_slice(&[0; 60]);
    for action in &t.actions {
        if let datapath::Action::Userspace(userdata) = action {
            crate::export::sample_ipfix(snapshot, &place, &frame, userdata, Millis(0), || None);
        }
    }
    assert_eq!(
        exporter.statistics().total_flows,
        2,
        "one where it comes in, one where it goes out"
    );
    let bfd = key("in_port=1,udp,tp_dst=3784");
    let place = crate::translate::locate(snapshot, &bfd, recirc).unwrap();
    let origin = datapath::SampleOrigin { bridge: 0, is_dropped: false };
    let userdata = Userdata::Ipfix { output_port: datapath::PortNo::NONE, origin };
    crate::export::sample_ipfix(snapshot, &place, &frame, &userdata, Millis(0), || None);
    assert_eq!(exporter.statistics().packets, 2, "BFD is left out");
}

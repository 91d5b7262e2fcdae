// SPDX-License-Identifier: Apache-2.0
//! A [`Pipeline`] as the switch has it, and its translations.

use crate::frames::station;
use crate::pipeline::{MirrorSpec, Pipeline, PortSpec, actions};
use bridge::effect::Effect;
use bridge::event::Sender;
use bridge::export::{BridgeSampler, Ipfix, IpfixView, NetFlow, SetSampler, Sflow, SflowView};
use bridge::mirror::{Mirror, MirrorOutput};
use bridge::port::Bundle;
use bridge::snapshot::{BridgeIndex, BundleView, PriorityTags, Snapshot, VlanMode};
use bridge::switch::{PortRequest, Switch};
use bridge::translate::{Request, Translation, locate, translate};
use clock::{Clock, Millis};
use datapath::{Datapath, Megaflow, PortKind};
use datapath_model::Model;
use export::ipfix;
use export::netflow::Settings;
use export::sflow;
use flow::text::parse_match;
use flow::{Field, Key};
use openflow::PortNo;
use openflow::message::{
    Bucket, FlowMod, GROUP_ANY, GroupCommand, GroupKind, GroupMod, GroupProperties, PortConfig,
    bucket,
};
use std::sync::Arc;

/// A switch of two bridges: the first has the datapath's ports 1 to 3 and patch port 4, the second
/// the datapath's port 4 as port 1, and patch port 2.
pub struct World {
    switch: Switch,
    snapshot: Arc<Snapshot>,
}

/// The result of a fresh translation.
pub struct Fresh {
    /// The megaflow that an upcall would install.
    pub megaflow: Megaflow,
    /// As the translation gave it.
    pub translation: Translation,
}

/// Group 3 by a hash of fields, 6 by the datapath's, the others by their kind.
const GROUPS: [(u32, GroupKind, &str, &[&str]); 6] = [
    (
        1,
        GroupKind::All,
        "",
        &["set_field:02:00:00:00:00:09->eth_src,output:2", "pop_mpls:0x0800,output:3"],
    ),
    (2, GroupKind::Select, "", &["mod_vlan_vid:5,output:2", "output:3", "resubmit(,3)"]),
    (3, GroupKind::Select, "hash", &["output:2", "dec_ttl,output:3", "output:4"]),
    (4, GroupKind::FastFailover, "", &["output:2", "dec_ttl,resubmit(,2)"]),
    (5, GroupKind::Indirect, "", &["push_vlan:0x8100,NORMAL"]),
    (6, GroupKind::Select, "dp_hash", &["output:2", "resubmit(,1)"]),
];

impl World {
    /// The switch.
    pub fn new(pipeline: &Pipeline) -> World {
        let clock = Clock::new();
        clock.stop();
        let model = Model::new("model@soundness", clock.clone(), 1, 1);
        let datapath: Arc<dyn Datapath> = model;
        let sender = Sender::new(|_| true);
        let mut switch =
            Switch::new(datapath, clock, sender, 1, false).expect("no thread is started");
        let first = switch.add_bridge("br0", 1);
        let second = switch.add_bridge("br1", 2);
        for n in 1..=3 {
            add_port(&mut switch, first, &format!("p{n}"), None);
        }
        add_port(&mut switch, second, "p4", None);
        add_port(&mut switch, first, "to1", Some("to0"));
        add_port(&mut switch, second, "to0", Some("to1"));
        for (spec, n) in pipeline.ports.iter().zip(1..) {
            configure(&mut switch, first, n, spec);
        }
        let br0 = switch.bridge_mut(first).expect("added");
        br0.config.frag_handling = pipeline.frag_handling;
        br0.config.forward_bpdu = pipeline.forward_bpdu;
        br0.config.miss_to_controller = pipeline.miss_to_controller;
        if pipeline.netflow {
            let settings = Settings {
                engine_type: 0,
                engine_id: 0,
                add_id_to_interface: false,
                active_timeout: None,
            };
            br0.exports.netflow = Some(Arc::new(NetFlow::new(settings, Millis(1))));
        }
        if pipeline.sflow {
            let settings = sflow::Settings {
                agent: std::net::Ipv4Addr::LOCALHOST.into(),
                sub_agent: 0,
                sampling: 2,
                header_bytes: 128,
                polling_seconds: 0,
            };
            let agent = Arc::new(Sflow::new(settings, Millis(1)));
            br0.exports.sflow = Some(SflowView { agent, probability: u32::MAX });
            br0.exports.ipfix = Some(Arc::new(ipfix_view()));
        }
        br0.mirrors = pipeline.mirrors.iter().map(mirror).collect();
        for (n, vlan, port) in &pipeline.learned {
            br0.macs.learn(*vlan, station(*n), PortNo(*port), false, Millis(1));
        }
        for group in GROUPS {
            br0.pipeline.group_mod(&group_mod(group), Millis(1)).expect("groups are right");
        }
        for line in &pipeline.lines {
            let index = if line.bridge == 0 { first } else { second };
            let add = FlowMod::add(line.priority, line.matching(), &line.actions());
            // The second bridge has no groups.
            let _ = switch.flow_mod(index, &FlowMod { table_id: line.table, ..add });
        }
        switch.publish();
        let snapshot = switch.slow_path().published.newest();
        World { switch, snapshot }
    }

    /// The result of an upcall for a packet with the datapath's key `key`. `None` if the key
    /// belongs to no port and no pipeline.
    pub fn translate(&self, key: &Key) -> Option<Fresh> {
        let slow = self.switch.slow_path();
        let place = locate(&self.snapshot, key, &slow.recirc).ok()?;
        let request =
            Request::new(&self.snapshot, place.bridge, place.key, &slow.recirc, Millis(1_000));
        let translation = translate(Request { frozen: place.frozen, ..request });
        Some(Fresh { megaflow: slow.megaflow(key, &translation), translation })
    }
}

fn add_port(switch: &mut Switch, bridge: BridgeIndex, name: &str, peer: Option<&str>) {
    let kind = if peer.is_some() { PortKind::Patch } else { PortKind::Dummy };
    let spec = datapath::PortSpec { name: name.to_owned(), kind, ..datapath::PortSpec::default() };
    let request = PortRequest { spec, ofport: None, peer: peer.map(str::to_owned), tunnel: None };
    switch.add_port(bridge, &request).expect("names differ");
    let settings = BundleView { name: name.to_owned(), qinq_tpid: 0x88a8, ..BundleView::default() };
    let bundle = Bundle { settings, interfaces: vec![name.to_owned()], ..Bundle::default() };
    switch.bridge_mut(bridge).expect("added").bundles.push(bundle);
}

fn configure(switch: &mut Switch, bridge: BridgeIndex, number: u32, spec: &PortSpec) {
    let bridge = switch.bridge_mut(bridge).expect("added");
    let port = bridge.ports.get_mut(&PortNo(number)).expect("added");
    port.config = PortConfig::from_bits_truncate(spec.config);
    let name = port.name.clone();
    let bundle = bridge.bundles.iter_mut().find(|b| b.interfaces == [name.as_str()]);
    let settings = &mut bundle.expect("each port has one").settings;
    settings.mode = [
        VlanMode::Trunk,
        VlanMode::Access,
        VlanMode::NativeTagged,
        VlanMode::NativeUntagged,
        VlanMode::Dot1qTunnel,
    ][spec.mode];
    settings.tag = if spec.tagged && spec.mode != 0 { 5 } else { 0 };
    if spec.trunks {
        settings.trunks = [5, 7].into();
        settings.cvlans = [0, 5].into();
    }
    settings.priority_tags =
        [PriorityTags::Never, PriorityTags::IfNonzero, PriorityTags::Always][spec.priority_tags];
    settings.protected = spec.protected;
}

fn mirror(spec: &MirrorSpec) -> Mirror {
    let names = ["p1", "p2", "p3", "to1"];
    let set = |bits: u8| {
        let wanted = names.iter().enumerate().filter(|(n, _)| bits >> n & 1 != 0);
        wanted.map(|(_, name)| (*name).to_owned()).collect()
    };
    let filter = Some(spec.filter).filter(|text| !text.is_empty());
    Mirror {
        name: "m".to_owned(),
        sources: set(spec.selected),
        destinations: set(spec.selected >> 4),
        vlans: spec.vlans.to_vec(),
        filter: filter.map(|text| parse_match(text, &|_| None).expect("texts are right")),
        output: match spec.to_port {
            true => MirrorOutput::Bundle("p3".to_owned()),
            false => MirrorOutput::Vlan(7),
        },
        snaplen: spec.short.then_some(64),
        stats: Arc::default(),
    }
}

fn group_mod((group_id, kind, method, buckets): (u32, GroupKind, &str, &[&str])) -> GroupMod {
    let fields = match method {
        "hash" => vec![
            (Field::Ipv4Src, 0xff),
            (Field::TcpDst, 0xffff),
            (Field::EthSrc, 0xff),
            (Field::VlanVid, 0xfff),
            (Field::NdTarget, 3),
        ],
        _ => Vec::new(),
    };
    let watched = kind == GroupKind::FastFailover;
    let buckets = buckets.iter().zip(0u32..).map(|(text, id)| Bucket {
        id,
        weight: if kind == GroupKind::Select { 1 + id as u16 } else { 0 },
        // The first is not there.
        watch_port: if watched { PortNo(9 - 7 * id) } else { PortNo::NONE },
        watch_group: GROUP_ANY,
        actions: actions(text).into(),
    });
    GroupMod {
        command: GroupCommand::Add,
        kind,
        group_id,
        command_bucket_id: bucket::ALL,
        buckets: buckets.collect(),
        properties: GroupProperties {
            selection_method: method.to_owned(),
            selection_param: 0,
            fields,
        },
    }
}

/// Other effects of a megaflow's packets, as far as they can be observed. A neighbour that a packet
/// shows is no effect of the others.
pub fn effects(t: &Translation) -> Vec<String> {
    effect_texts(&t.effects)
}

fn effect_texts(effects: &[Effect]) -> Vec<String> {
    let text = |e: &Effect| match e {
        Effect::Rule(rule) => format!("rule {}", rule.id),
        Effect::Table { stats, matched } => format!("table {:p} {matched}", Arc::as_ptr(stats)),
        Effect::Bucket { group, bucket } => format!("group {} {bucket:?}", group.id),
        Effect::AllBuckets(group) => format!("group {}", group.id),
        Effect::VirtualPort(stats, direction) => {
            format!("virtual port {:p} {direction:?}", Arc::as_ptr(stats))
        }
        Effect::NetFlow { flow, output, .. } => format!("netflow {flow:?} {output:?}"),
        Effect::Mirror(stats) => format!("mirror {:p}", Arc::as_ptr(stats)),
        Effect::Bond(buckets, bucket) => format!("bond {:p} {bucket}", Arc::as_ptr(buckets)),
        Effect::Learn { macs, vlan, mac, port, gratuitous_arp } => {
            format!("mac {:?} {vlan} {mac:?} {port} {gratuitous_arp}", macs.bridge())
        }
        Effect::LearnFlow { bridge, flow } => format!("learn {bridge:?} {flow:?}"),
        Effect::FinTimeout { rule, .. } => format!("fin {}", rule.id),
        Effect::Encapsulated { added, effects } => {
            format!("encapsulated {added} [{}]", effect_texts(effects).join(", "))
        }
        Effect::UseNeighbour { device, address, .. } => format!("uses {device} {address}"),
        Effect::LearnNeighbour { .. } | Effect::LearnGroups { .. } => String::new(),
        Effect::Solicit { bridge, port, packet, .. } => {
            format!("asks {bridge:?} {port} {packet:?}")
        }
        Effect::ResolveNeighbour { device, address } => format!("asks {device} {address}"),
    };
    effects.iter().map(text).filter(|text| !text.is_empty()).collect()
}

/// Returns IPFIX of all packets, and of the `sample` actions with collector set 1.
fn ipfix_view() -> IpfixView {
    let settings = ipfix::Settings {
        active_timeout_seconds: 0,
        max_flows: 0,
        template_seconds: 600,
        statistics_seconds: 600,
        virtual_obs_id: None,
    };
    let exporter = Arc::new(Ipfix::new(settings, 1));
    let set = SetSampler { exporter: Arc::clone(&exporter), has_tunnels: true };
    let bridge = BridgeSampler {
        exporter,
        probability: u32::MAX,
        obs_domain: 0,
        obs_point: 0,
        samples_input: true,
        samples_output: true,
        has_tunnels: true,
    };
    IpfixView { bridge: Some(bridge), sets: [(1, set)].into() }
}

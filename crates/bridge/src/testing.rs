// SPDX-License-Identifier: Apache-2.0
//! Snapshots for tests, built by hand.

use crate::group::{Bucket, Group, GroupKind, Selection};
use crate::mac_table::MacTable;
use crate::recirc::RecircTable;
use crate::rule::{Latest, Rule, RuleStats, Timeouts};
use crate::snapshot::{
    BridgeConfig, BridgeIndex, BridgeView, BundleView, PortView, Snapshot, TABLES, TableMiss,
    TableStats, TableView,
};
use crate::trace::Tracer;
use crate::translate::{EffectsMode, Request, Translation, locate, translate};
use crate::tunnel::{AddressedDevice, Config, Listener, Listening, Vport, VportMatch, Vports};
use classifier::{Classifier, MiniMatch};
use clock::{Clock, Millis};
use datapath::{PortNo as DpPort, TunnelKind};
use flow::text::{no_numbers, parse_match};
use flow::{Field, Key, Match, Subfield};
use hashbrown::HashMap;
use openflow::PortNo;
use openflow::action::{Action, SetSpelling};
use openflow::message::{FlowFlags, PortConfig};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use underlay::{Cidr, Underlay};

/// Datapath port that stands for all tunnels of a [`World`].
pub(crate) const BACKING: DpPort = DpPort(9000);

/// A switch under construction. Bridge N is called "brN"; its port P is "pP" (on bridge 0) and
/// datapath port 100 * N + P, each in a bundle of its own, in the order of their addition.
pub(crate) struct World {
    pub snapshot: Snapshot,
    pub recirc: RecircTable,
}

impl World {
    /// One bridge with ports 1 to `ports`.
    pub(crate) fn new(ports: u32) -> World {
        let mut w = World { snapshot: Snapshot::default(), recirc: RecircTable::new() };
        w.add_bridge(ports);
        w
    }

    /// One more bridge.
    pub(crate) fn add_bridge(&mut self, ports: u32) -> BridgeIndex {
        let index = BridgeIndex(self.snapshot.bridges.len());
        let table = || TableView {
            rules: Classifier::new(),
            stats: Arc::new(TableStats::default()),
            miss: TableMiss::Default,
        };
        self.snapshot.bridges.push(Some(Arc::new(BridgeView {
            name: format!("br{}", index.0),
            tables: (0..TABLES).map(|_| table()).collect(),
            ports: Arc::default(),
            bundles: Arc::default(),
            groups: Arc::default(),
            meters: Arc::new(HashMap::from_iter([(1, 0)])),
            macs: Arc::new(MacTable::new(index)),
            multicast: None,
            tlv_table: Arc::default(),
            mirrors: Arc::default(),
            exports: Default::default(),
            config: BridgeConfig::default(),
        })));
        for p in 1..=ports {
            self.add_port(index, p);
        }
        index
    }

    pub(crate) fn bridge(&mut self, index: BridgeIndex) -> &mut BridgeView {
        let slot = self.snapshot.bridges[index.0].as_mut().unwrap(); // tests name bridges that are there
        if Arc::get_mut(slot).is_none() {
            *slot = Arc::new(copy(slot));
        }
        Arc::get_mut(slot).unwrap() // made unique above
    }

    pub(crate) fn br0(&mut self) -> &mut BridgeView {
        self.bridge(BridgeIndex(0))
    }

    pub(crate) fn add_port(&mut self, bridge: BridgeIndex, number: u32) {
        let dp = DpPort(100 * bridge.0 as u32 + number);
        let port = PortNo(number);
        let b = self.bridge(bridge);
        let bundles = Arc::make_mut(&mut b.bundles);
        let view = PortView {
            number: port,
            name: format!("p{number}"),
            dp_port: Some(dp),
            peer: None,
            is_patch: false,
            tunnel: None,
            bundle: Some(bundles.len()),
            config: PortConfig::empty(),
            up: true,
            live: true,
            tree_state: None,
            protocols: Arc::from([]),
            mac: [2, 0, 0, 0, 0, number as u8],
            mtu: 1500,
            ifindex: number.wrapping_add(100),
            queue_dscp: Arc::default(),
            virtual_stats: Arc::default(),
        };
        bundles.push(BundleView {
            name: view.name.clone(),
            members: vec![port],
            floodable: true,
            qinq_tpid: 0x88a8,
            ..BundleView::default()
        });
        Arc::make_mut(&mut b.ports).insert(port, view);
        Arc::make_mut(&mut self.snapshot.ports).insert(dp, (bridge, port));
    }

    pub(crate) fn port(&mut self, number: u32, change: impl FnOnce(&mut PortView)) {
        change(Arc::make_mut(&mut self.br0().ports).get_mut(&PortNo(number)).unwrap()); // tests name ports that are there
    }

    /// The bundle of a port of bridge 0.
    pub(crate) fn bundle(&mut self, number: u32, change: impl FnOnce(&mut BundleView)) {
        self.bundle_on(BridgeIndex(0), number, change);
    }

    /// [`World::bundle`] of another bridge.
    pub(crate) fn bundle_on(
        &mut self,
        bridge: BridgeIndex,
        number: u32,
        change: impl FnOnce(&mut BundleView),
    ) {
        let b = self.bridge(bridge);
        let i = b.ports[&PortNo(number)].bundle.unwrap(); // every port here has one
        change(&mut Arc::make_mut(&mut b.bundles)[i]);
    }

    /// Joins two ports into a patch.
    pub(crate) fn patch(&mut self, a: (BridgeIndex, u32), b: (BridgeIndex, u32)) {
        for (me, peer) in [(a, b), (b, a)] {
            let dp = DpPort(100 * me.0.0 as u32 + me.1);
            Arc::make_mut(&mut self.snapshot.ports).remove(&dp);
            let view = self.bridge(me.0);
            let p = Arc::make_mut(&mut view.ports).get_mut(&PortNo(me.1)).unwrap(); // as above
            p.dp_port = None;
            p.is_patch = true;
            p.peer = Some((peer.0, PortNo(peer.1)));
        }
    }

    /// Makes a port a tunnel port, for which datapath port 9000 stands.
    pub(crate) fn tunnel(&mut self, bridge: BridgeIndex, number: u32, config: Config) {
        let dp = DpPort(100 * bridge.0 as u32 + number);
        Arc::make_mut(&mut self.snapshot.ports).remove(&dp);
        let view = self.bridge(bridge);
        let p = Arc::make_mut(&mut view.ports).get_mut(&PortNo(number)).unwrap(); // as above
        p.dp_port = Some(BACKING);
        p.tunnel = Some(Arc::new(config));
        let vports = self.snapshot.bridges.iter().flatten().zip(0..).flat_map(|(b, i)| {
            b.ports.values().filter_map(move |p| {
                let part = VportMatch::of(p.tunnel.as_ref()?, BACKING);
                Some((part, Vport { bridge: BridgeIndex(i), port: p.number }))
            })
        });
        let vports = Vports::new(vports);
        Arc::make_mut(&mut self.snapshot.tunnels).vports = vports;
    }

    /// Makes a port of `bridge` a device with the address 10.0.0.1/24, at which tunnels of the kind
    /// VXLAN are received.
    pub(crate) fn underlay(&mut self, bridge: BridgeIndex, number: u32) -> Arc<Underlay> {
        let port = self.bridge(bridge).ports[&PortNo(number)].clone();
        let underlay = Arc::new(Underlay::new(Clock::new()));
        let address: IpAddr = [10, 0, 0, 1].into();
        underlay.add_address(&port.name, Cidr::new(address, 24).unwrap()); // a valid prefix
        let tunnels = Arc::make_mut(&mut self.snapshot.tunnels);
        tunnels.underlay = Some(Arc::clone(&underlay));
        let listener = Listener {
            name: "vxlan_sys_4789".to_owned(),
            number: BACKING,
            kind: TunnelKind::Vxlan,
            port: 4789,
            vports: 1,
        };
        tunnels.devices.insert(port.name.clone(), (bridge, PortNo(number)));
        let device = AddressedDevice { name: port.name, mac: port.mac, addresses: vec![address] };
        tunnels.listening = Listening::new([listener], &[device]);
        underlay
    }

    /// Adds a rule to bridge 0: `rule` is a match that may begin with `table=N,` and
    /// `priority=N,`.
    pub(crate) fn rule(&mut self, rule: &str, actions: impl Into<Vec<Action>>) -> Arc<Rule> {
        self.rule_on(BridgeIndex(0), rule, actions)
    }

    pub(crate) fn rule_on(
        &mut self,
        bridge: BridgeIndex,
        text: &str,
        actions: impl Into<Vec<Action>>,
    ) -> Arc<Rule> {
        let (mut table, mut priority, mut cookie) = (0u8, 32768u16, 0u64);
        let mut matching = Vec::new();
        for item in text.split(',').filter(|i| !i.is_empty()) {
            match item.split_once('=') {
                Some(("table", n)) => table = n.parse().unwrap(), // texts in tests are right
                Some(("priority", n)) => priority = n.parse().unwrap(),
                Some(("cookie", n)) => cookie = n.parse().unwrap(),
                _ => matching.push(item),
            }
        }
        let matching = parse_match(&matching.join(","), &no_numbers).unwrap();
        let rule = Arc::new(make_rule(table, priority, cookie, &matching, actions.into()));
        self.bridge(bridge).tables[usize::from(table)].rules.insert(Arc::clone(&rule));
        rule
    }

    pub(crate) fn clear_rules(&mut self) {
        for id in 0..crate::snapshot::TABLES {
            let t = &mut self.br0().tables[id];
            t.rules = Classifier::new();
        }
    }

    /// Adds a group to bridge 0; buckets are (weight, watch port, actions).
    pub(crate) fn group(
        &mut self,
        id: u32,
        kind: GroupKind,
        selection: Selection,
        buckets: Vec<(u16, PortNo, Vec<Action>)>,
    ) {
        let buckets =
            buckets.into_iter().zip(0u32..).map(|((weight, watch_port, actions), id)| Bucket {
                id,
                weight,
                watch_port,
                watch_group: u32::MAX,
                actions: Arc::from(actions),
                stats: Arc::default(),
            });
        let group = Group::new(id, kind, selection, buckets.collect(), Millis(1));
        Arc::make_mut(&mut self.br0().groups).insert(id, Arc::new(group));
    }

    /// Has the first buckets of a group of bridge 0 watch these groups.
    pub(crate) fn watch_groups(&mut self, id: u32, watched: &[u32]) {
        let group = Arc::make_mut(&mut self.br0().groups).get_mut(&id).and_then(Arc::get_mut);
        let buckets = &mut group.unwrap().buckets; // tests name groups that are there
        for (bucket, watched) in buckets.iter_mut().zip(watched) {
            bucket.watch_group = *watched;
        }
    }

    /// Translates a key with an OpenFlow in_port of bridge 0.
    pub(crate) fn translate(&self, key: &Key) -> Translation {
        self.run(key, EffectsMode::Collect, None, None)
    }

    pub(crate) fn run(
        &self,
        key: &Key,
        effects: EffectsMode,
        tracer: Option<&mut Tracer>,
        actions: Option<&[Action]>,
    ) -> Translation {
        let frozen = self.recirc.state(key.recirc_id.get());
        translate(Request {
            snapshot: &self.snapshot,
            bridge: BridgeIndex(0),
            key: *key,
            packet: None,
            now: Millis(1_000),
            recirc: &self.recirc,
            frozen,
            invalid_options: false,
            effects,
            tracer,
            actions,
        })
    }

    /// Translates a key with a datapath port.
    pub(crate) fn translate_dp(&self, key: &Key) -> Option<Translation> {
        let found = locate(&self.snapshot, key, &self.recirc).ok()?;
        Some(translate(Request {
            snapshot: &self.snapshot,
            bridge: found.bridge,
            key: found.key,
            packet: None,
            now: Millis(1_000),
            recirc: &self.recirc,
            frozen: found.frozen,
            invalid_options: found.invalid_options,
            effects: EffectsMode::Collect,
            tracer: None,
            actions: None,
        }))
    }

    /// Datapath actions of a flow, as text.
    pub(crate) fn dp(&self, flow: &str) -> String {
        datapath::text::format_plain(&self.translate(&key(flow)).actions)
    }

    /// Megaflow of a flow, as text.
    pub(crate) fn mega(&self, flow: &str) -> String {
        let k = key(flow);
        let t = self.translate(&k);
        flow::text::format_megaflow(&Match::new(&k, &t.mask), &flow::text::no_names)
    }

    /// Returns the text that `ofproto/trace` prints after the `Flow:` line.
    pub(crate) fn trace(&self, flow: &str) -> String {
        self.trace_with(flow, EffectsMode::Suppress)
    }

    pub(crate) fn trace_with(&self, flow: &str, effects: EffectsMode) -> String {
        let k = key(flow);
        let mut tracer = Tracer::new();
        let t = self.run(&k, effects, Some(&mut tracer), None);
        tracer.render(&k, &t, &self.snapshot, BridgeIndex(0))
    }
}

fn copy(b: &BridgeView) -> BridgeView {
    BridgeView {
        name: b.name.clone(),
        tables: b.tables.clone(),
        ports: Arc::clone(&b.ports),
        bundles: Arc::clone(&b.bundles),
        groups: Arc::clone(&b.groups),
        meters: Arc::clone(&b.meters),
        macs: Arc::clone(&b.macs),
        multicast: None,
        tlv_table: Arc::clone(&b.tlv_table),
        mirrors: Arc::clone(&b.mirrors),
        exports: b.exports.clone(),
        config: b.config.clone(),
    }
}

/// A rule without timeouts.
pub(crate) fn make_rule(
    table: u8,
    priority: u16,
    cookie: u64,
    matching: &Match,
    actions: Vec<Action>,
) -> Rule {
    static ID: AtomicU64 = AtomicU64::new(1 << 32);
    Rule {
        id: ID.fetch_add(1, Ordering::Relaxed),
        table,
        priority: priority.into(),
        matching: MiniMatch::new(matching),
        cookie,
        timeouts: Timeouts::new(0, 0),
        importance: 0,
        flags: FlowFlags::empty(),
        hidden: false,
        created: Millis(1),
        modified: Latest::new(Millis(1)),
        is_conjunctive: crate::rule::is_conjunctive(&actions),
        actions: Arc::from(actions),
        stats: Arc::new(RuleStats::new(Millis(1))),
    }
}

/// The key of a flow in OpenFlow syntax.
pub(crate) fn key(flow: &str) -> Key {
    flow::text::parse_exact_flow(flow, &no_numbers).unwrap() // texts in tests are right
}

/// `output:N`.
pub(crate) fn out(port: u32) -> Action {
    Action::Output { port: PortNo(port), max_len: 0 }
}

/// `output` to a reserved port.
pub(crate) fn to(port: PortNo) -> Action {
    Action::Output { port, max_len: u16::MAX }
}

/// `set_field:VALUE->FIELD`.
pub(crate) fn set(field: Field, value: u128) -> Action {
    Action::SetField { field, value, mask: field.all_ones(), spelled: SetSpelling::SetField }
}

/// `resubmit(,TABLE)`.
pub(crate) fn resubmit(table: u8) -> Action {
    Action::Resubmit { port: None, table: Some(table), original_tuple: false }
}

/// A subfield by name.
pub(crate) fn sub(text: &str) -> Subfield {
    text.parse().unwrap() // texts in tests are right
}

impl std::ops::Index<usize> for crate::snapshot::TableArray {
    type Output = TableView;

    fn index(&self, id: usize) -> &TableView {
        self.get(id).expect("tests name tables that are there")
    }
}

impl std::ops::IndexMut<usize> for crate::snapshot::TableArray {
    fn index_mut(&mut self, id: usize) -> &mut TableView {
        self.get_mut(id).expect("tests name tables that are there")
    }
}

// SPDX-License-Identifier: Apache-2.0
//! One bridge: the control thread's mutable state.

use crate::aggregate::{self, Aggregate, AggregatePort};
use crate::bond::{Bond, LacpStatus, Link};
use crate::export::Exports;
use crate::mac_table::MacTable;
use crate::meter::MeterTable;
use crate::mirror::{Mirror, Mirrors};
use crate::multicast_table::MulticastTable;
use crate::pipeline::Pipeline;
use crate::port::{Bundle, Port};
use crate::protocol::Protocol;
use crate::snapshot::{BridgeConfig, BridgeIndex, BridgeView, BundleView, PortView, TableArray};
use crate::spanning_tree::{PortState, SpanningTree, TreeKind, TreePort, TreeSettings};
use clock::Millis;
use datapath::PortNo as DpPort;
use hashbrown::HashMap;
use openflow::PortNo;
use openflow::message::{PortConfig, PortDesc, SwitchDesc};
use protocols::lacp::MemberSettings;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Looks up a patch port by name in all bridges. Returns its bridge, its number, and its peer's
/// name.
pub(crate) type ResolvePatch<'a> =
    &'a dyn Fn(&str) -> Option<(BridgeIndex, PortNo, Option<String>)>;

/// One bridge. Owned by [`crate::switch::Switch`]. All changes that affect translation go through
/// `Switch::bridge_mut`, which marks the bridge for publication.
#[derive(Debug)]
pub struct Bridge {
    /// Index of the bridge in the switch.
    pub index: BridgeIndex,
    /// Name of the bridge, unique in the switch.
    pub name: String,
    /// OpenFlow datapath id.
    pub datapath_id: u64,
    /// Texts of the OFPMP_DESC reply.
    pub description: SwitchDesc,
    /// Tables and groups.
    pub pipeline: Pipeline,
    /// OpenFlow meters of the bridge.
    pub(crate) meters: MeterTable,
    /// Settings that translation reads.
    pub config: BridgeConfig,
    /// Learned MAC addresses.
    pub macs: Arc<MacTable>,
    /// Multicast groups; `None` without multicast snooping.
    pub multicast: Option<Arc<MulticastTable>>,
    /// Fields of the options of Geneve headers.
    pub tlv_table: Arc<flow::TlvTable>,
    /// Ports by OpenFlow number.
    pub ports: BTreeMap<PortNo, Port>,
    /// Rows of the Port table.
    pub bundles: Vec<Bundle>,
    /// Port mirrors, at most [`MAX_MIRRORS`](crate::mirror::MAX_MIRRORS).
    pub mirrors: Vec<Mirror>,
    /// State of each bond, by name.
    bonds: BTreeMap<String, Bond>,
    /// LACP of each bundle that has it, by name.
    aggregates: BTreeMap<String, Arc<Aggregate>>,
    /// The machines of single ports that run.
    machines: Vec<Arc<dyn Protocol>>,
    /// Settings of the spanning tree; `None` without one.
    pub tree_settings: Option<TreeSettings>,
    /// The spanning tree.
    tree: Option<Arc<SpanningTree>>,
    /// Export of traffic to collectors.
    pub exports: Exports,
    /// Start of the search for the next free port number, so that numbers are reused late.
    next_port: u32,
}

/// The result of [`Bridge::update_tree`].
#[derive(Debug, Default)]
pub(crate) struct TreeUpdate {
    /// There is another machine than before, or none any more.
    pub is_other: bool,
    /// The machine must run.
    pub must_run: bool,
    /// Learned addresses and groups are to be forgotten.
    pub flush: bool,
    /// Ports whose learned addresses are to be forgotten.
    pub flushed_ports: BTreeSet<PortNo>,
    /// A port has another state.
    pub has_states: bool,
    /// Earlier descriptions of the ports that OpenFlow describes differently now.
    pub before: Vec<PortDesc>,
}

/// The release of Open vSwitch whose behaviour this switch follows, as OFPMP_DESC reports it.
pub(crate) const OVS_VERSION: &str = "3.1.0";
/// The datapath description in OFPMP_DESC where `other_config:dp-desc` is absent.
pub const DATAPATH_DESCRIPTION: &str = concat!("Slipswitch ", env!("CARGO_PKG_VERSION"));

impl Bridge {
    pub(crate) fn new(index: BridgeIndex, name: &str, datapath_id: u64) -> Bridge {
        Bridge {
            index,
            name: name.to_owned(),
            datapath_id,
            description: SwitchDesc {
                // Scripts and controllers' drivers select by these texts.
                manufacturer: "Nicira, Inc.".to_owned(),
                hardware: "Open vSwitch".to_owned(),
                software: OVS_VERSION.to_owned(),
                serial_number: "None".to_owned(),
                datapath: DATAPATH_DESCRIPTION.to_owned(),
            },
            pipeline: Pipeline::default(),
            meters: MeterTable::default(),
            config: BridgeConfig::default(),
            macs: Arc::new(MacTable::new(index)),
            multicast: None,
            tlv_table: Arc::default(),
            ports: BTreeMap::new(),
            bundles: Vec::new(),
            mirrors: Vec::new(),
            bonds: BTreeMap::new(),
            aggregates: BTreeMap::new(),
            machines: Vec::new(),
            tree_settings: None,
            tree: None,
            exports: Exports::default(),
            next_port: 1,
        }
    }

    /// Returns the port called `name`.
    pub fn port_by_name(&self, name: &str) -> Option<&Port> {
        self.ports.values().find(|p| p.name == name)
    }

    /// Returns `wanted` when that number is free and valid for a port, else the next free number.
    pub(crate) fn allocate_port(&mut self, wanted: Option<u32>) -> Option<PortNo> {
        let free =
            |n: &u32| (1..PortNo::MAX.0).contains(n) && !self.ports.contains_key(&PortNo(*n));
        if let Some(n) = wanted.filter(free) {
            return Some(PortNo(n));
        }
        let n = (self.next_port..PortNo::MAX.0).chain(1..self.next_port).find(free)?;
        self.next_port = n + 1;
        Some(PortNo(n))
    }

    /// Returns the bundle called `name`.
    pub fn bundle(&self, name: &str) -> Option<&Bundle> {
        self.bundles.iter().find(|b| b.settings.name == name)
    }

    /// Returns the bonds with their names.
    pub fn bonds(&self) -> impl Iterator<Item = (&str, &Bond)> {
        self.bonds.iter().map(|(name, bond)| (name.as_str(), bond))
    }

    /// Returns the bond called `name`.
    pub fn bond(&self, name: &str) -> Option<&Bond> {
        self.bonds.get(name)
    }

    pub(crate) fn bond_mut(&mut self, name: &str) -> Option<&mut Bond> {
        self.bonds.get_mut(name)
    }

    /// Returns LACP of the bundles that have it, with their names.
    pub fn aggregates(&self) -> impl Iterator<Item = (&str, &Arc<Aggregate>)> {
        self.aggregates.iter().map(|(name, aggregate)| (name.as_str(), aggregate))
    }

    /// Returns true when some bundle is a bond or has LACP.
    pub(crate) fn has_bonds(&self) -> bool {
        let is_plain = |b: &Bundle| b.interfaces.len() < 2 && b.lacp.is_none();
        !(self.bonds.is_empty() && self.aggregates.is_empty() && self.bundles.iter().all(is_plain))
    }

    /// Returns LACP of the bundle that the interface belongs to.
    pub fn aggregate_of(&self, interface: &str) -> Option<&Arc<Aggregate>> {
        let mut bundles = self.bundles.iter();
        let has = |b: &&Bundle| b.lacp.is_some() && b.interfaces.iter().any(|n| n == interface);
        let bundle = bundles.find(has)?;
        self.aggregates.get(&bundle.settings.name)
    }

    /// Records the member with the address `mac` as the previously active member of the bond called
    /// `name`, from the database record of an earlier daemon process. Does nothing when this bridge
    /// already has an active member for the bond.
    pub fn recall_active_member(&mut self, name: &str, mac: [u8; 6]) {
        let is_bond = self.bundle(name).is_some_and(|b| b.interfaces.len() > 1);
        if is_bond {
            self.bonds.entry(name.to_owned()).or_insert_with(|| Bond::new(name)).recall(mac);
        }
    }

    /// Brings LACP to the present settings and ports. Returns the machines, when there are others
    /// than before, and whether one of them must run.
    pub(crate) fn update_aggregates(&mut self, now: Millis) -> (Option<Vec<Arc<Aggregate>>>, bool) {
        let mut all = BTreeMap::new();
        let (mut is_due, mut is_other) = (false, false);
        for bundle in &self.bundles {
            let Some(wanted) = &bundle.lacp else { continue };
            let name = &bundle.settings.name;
            let old = self.aggregates.get(name).cloned();
            is_other |= old.is_none();
            let aggregate = old.unwrap_or_default();
            let lowest = u16::MAX - u16::from(bundle.interfaces.len() > 1);
            let settings = aggregate::Settings {
                is_active: wanted.is_active,
                is_fast: wanted.is_fast,
                system_id: wanted.system_id.unwrap_or(self.config.mac),
                system_priority: wanted.system_priority.unwrap_or(lowest),
                falls_back: wanted.falls_back,
            };
            is_due |= aggregate.configure(&settings, self.aggregate_ports(bundle), now);
            all.insert(name.clone(), aggregate);
        }
        is_other |= self.aggregates.len() != all.len();
        self.aggregates = all;
        let others = is_other.then(|| self.aggregates.values().cloned().collect());
        (others, is_due)
    }

    fn aggregate_ports(&self, bundle: &Bundle) -> Vec<AggregatePort> {
        let port = |(at, name): (usize, &String)| {
            let port = self.port_by_name(name)?;
            let wanted = bundle.lacp_ports.get(at).copied().unwrap_or_default();
            // Numbers of ports have 16 bits, except those of reserved ones.
            let number = u16::try_from(port.number.0).unwrap_or(u16::MAX);
            let settings = MemberSettings {
                number: port.number.0,
                name: name.clone(),
                port_id: wanted.port_id.unwrap_or(number),
                port_priority: wanted.port_priority.unwrap_or(u16::MAX),
                key: wanted.key,
            };
            Some(AggregatePort {
                settings,
                mac: port.status.mac,
                has_carrier: port.is_up(),
                carrier_changes: port.status.link_resets,
            })
        };
        bundle.interfaces.iter().enumerate().filter_map(port).collect()
    }

    /// Returns true when a control protocol may change a port or a bond: also when the last machine of
    /// the ports was removed since the last [`Bridge::update_machines`].
    pub(crate) fn has_protocols(&self) -> bool {
        let has_machine = |port: &Port| port.machines().next().is_some();
        self.has_bonds() || !self.machines.is_empty() || self.ports.values().any(has_machine)
    }

    /// Brings the machines of single ports to the present ports. Returns all of them, when they are
    /// other ones than at the last call.
    pub(crate) fn update_machines(&mut self) -> Option<Vec<Arc<dyn Protocol>>> {
        self.ports.values().for_each(Port::update_machines);
        let all: Vec<_> = self.ports.values().flat_map(Port::machines).collect();
        let same = |(a, b): (&Arc<dyn Protocol>, &Arc<dyn Protocol>)| Arc::ptr_eq(a, b);
        if self.machines.len() == all.len() && self.machines.iter().zip(&all).all(same) {
            return None;
        }
        self.machines.clone_from(&all);
        Some(all)
    }

    /// Returns true when the results of BFD on some port have changed since the previous call.
    pub(crate) fn take_bfd_changed(&self) -> bool {
        let monitors = self.ports.values().filter_map(|port| port.bfd.as_ref());
        monitors.fold(false, |is_changed, bfd| is_changed | bfd.take_changed())
    }

    /// Returns the spanning tree; `None` without one.
    pub fn tree(&self) -> Option<&Arc<SpanningTree>> {
        self.tree.as_ref()
    }

    /// Returns true when the bridge has a spanning tree, or is to have one.
    pub(crate) fn has_tree(&self) -> bool {
        self.tree.is_some() || self.tree_settings.is_some()
    }

    /// Brings the spanning tree to the present settings and ports, and takes over the states of its
    /// ports.
    pub(crate) fn update_tree(&mut self, now: Millis) -> TreeUpdate {
        let mut update = TreeUpdate::default();
        let Some(settings) = &self.tree_settings else {
            update.is_other = self.tree.take().is_some();
            self.take_tree_states(&mut update);
            return update;
        };
        let kind = settings.bridge.kind();
        let old = self.tree.clone().filter(|tree| tree.kind() == kind);
        update.is_other = old.is_none();
        self.config.is_rapid = kind == TreeKind::Rstp;
        let tree =
            old.unwrap_or_else(|| Arc::new(SpanningTree::new(&self.name, &settings.bridge, now)));
        let ports = settings.ports.iter().filter_map(|(name, wanted)| {
            let port = self.port_by_name(name)?;
            Some(TreePort {
                port: port.number,
                name: name.clone(),
                settings: *wanted,
                speed_bps: port.status.speed_bps,
                mac: port.status.mac,
                has_link: match kind {
                    TreeKind::Stp => port.is_up(),
                    TreeKind::Rstp => port.may_enable(),
                },
            })
        });
        update.must_run = tree.configure(&settings.bridge, ports.collect(), now);
        let changes = tree.take_changes(now);
        (update.flush, update.flushed_ports) = (changes.flush, changes.flushed_ports);
        self.tree = Some(tree);
        self.take_tree_states(&mut update);
        update
    }

    fn take_tree_states(&mut self, update: &mut TreeUpdate) {
        for port in self.ports.values_mut() {
            let state = self.tree.as_ref().and_then(|tree| tree.state_of(port.number));
            if port.tree_state != state {
                let before = port.desc();
                let old = std::mem::replace(&mut port.tree_state, state);
                update.has_states = true;
                update.flush |= state.is_none() && old.is_some_and(PortState::learns);
                if port.desc() != before {
                    update.before.push(before);
                }
            }
        }
    }

    /// Sets for each port whether the protocols on it allow traffic at `now`. Returns the earlier
    /// descriptions of the ports that changed.
    pub(crate) fn update_allowed(&mut self, now: Millis) -> Vec<PortDesc> {
        let mut changed = Vec::new();
        let mut of: HashMap<&str, &Aggregate> = HashMap::new();
        for bundle in &self.bundles {
            if let Some(aggregate) = self.aggregates.get(&bundle.settings.name) {
                of.extend(bundle.interfaces.iter().map(|name| (name.as_str(), &**aggregate)));
            }
        }
        for port in self.ports.values_mut() {
            let is_allowed =
                port.has_path(now) && of.get(&*port.name).is_none_or(|a| a.may_enable(port.number));
            if port.is_allowed != is_allowed {
                changed.push(port.desc());
                port.is_allowed = is_allowed;
            }
        }
        changed
    }

    /// Brings the bonds to the present settings, ports and time. Returns true when translation must
    /// follow a change.
    pub(crate) fn update_bonds(&mut self, now: Millis) -> bool {
        let mut bonds = std::mem::take(&mut self.bonds);
        let count = bonds.len();
        let wanted = |name: &str| self.bundle(name).filter(|b| b.interfaces.len() > 1);
        bonds.retain(|name, _| wanted(name).is_some());
        let mut is_changed = bonds.len() != count;
        for bundle in self.bundles.iter().filter(|b| b.interfaces.len() > 1) {
            let name = &bundle.settings.name;
            let lacp = self.aggregates.get(name).map_or(LacpStatus::Off, |a| a.status());
            let links = bundle.interfaces.iter().filter_map(|name| self.port_by_name(name));
            let links: Vec<Link> = links
                .map(|p| Link {
                    number: p.number,
                    name: p.name.clone(),
                    mac: p.status.mac,
                    is_up: p.is_up(),
                    may_enable: p.may_enable(),
                })
                .collect();
            let bond = bonds.entry(name.clone()).or_insert_with(|| Bond::new(name));
            is_changed |= bond.update(&bundle.bond, lacp, &links, now);
        }
        self.bonds = bonds;
        is_changed
    }

    /// Returns the bonds with the OpenFlow and datapath numbers of their members, in the order of the
    /// database; without numbers for a bond whose members do not all send alike.
    pub(crate) fn bonds_with_ports(
        &mut self,
    ) -> impl Iterator<Item = (&mut Bond, Option<Vec<(PortNo, DpPort)>>)> {
        let is_alike = |port: &Port| {
            let is_marked = !port.queue_dscp.is_empty() || port.config.contains(PortConfig::NO_FWD);
            !port.is_virtual() && !is_marked && port.number != PortNo::LOCAL
        };
        let numbers = |name: &str| {
            let port = self.ports.values().find(|port| port.name == name)?;
            Some((port.number, port.dp_port.filter(|_| is_alike(port))?))
        };
        let ports: HashMap<String, Option<Vec<_>>> = self
            .bundles
            .iter()
            .map(|b| (b.settings.name.clone(), b.interfaces.iter().map(|n| numbers(n)).collect()))
            .collect();
        self.bonds.iter_mut().map(move |(name, bond)| {
            let ports = ports.get(name).cloned().flatten().filter(|ports| !ports.is_empty());
            (bond, ports)
        })
    }

    /// Returns the time at which a bond has something to do.
    pub(crate) fn bond_deadline(&self) -> Option<Millis> {
        self.bonds.values().filter_map(Bond::deadline).min()
    }

    /// Returns true when the load of a bond is to be balanced now.
    pub(crate) fn is_rebalance_due(&self, now: Millis) -> bool {
        self.bonds.values().any(|bond| bond.is_balanced() && now >= bond.next_rebalance())
    }

    /// Balances the loads of the bonds where that is due.
    pub(crate) fn rebalance_bonds(&mut self, now: Millis) {
        self.bonds.values_mut().for_each(|bond| bond.rebalance(now));
    }

    /// Returns the names of the bonds whose hosts must be announced to the other end.
    pub(crate) fn take_announcements(&mut self) -> Vec<String> {
        let due = self
            .bonds
            .iter_mut()
            .filter_map(|(name, bond)| bond.take_announcement().then(|| name.clone()));
        due.collect()
    }

    /// Returns the view for translation, with `tables` as the pipeline's part.
    pub(crate) fn view(&self, tables: TableArray, resolve: ResolvePatch<'_>) -> BridgeView {
        let mut bundle_of: HashMap<&str, usize> = HashMap::new();
        let mut bundles: Vec<BundleView> = Vec::with_capacity(self.bundles.len());
        for bundle in &self.bundles {
            let ports: Vec<&Port> =
                bundle.interfaces.iter().filter_map(|name| self.port_by_name(name)).collect();
            for port in &ports {
                bundle_of.insert(&port.name, bundles.len());
            }
            bundles.push(BundleView {
                members: ports.iter().map(|p| p.number).collect(),
                bond: self.bonds.get(&bundle.settings.name).map(|bond| Arc::new(bond.view())),
                floodable: ports.iter().all(|p| p.is_floodable()),
                ..bundle.settings.clone()
            });
        }
        let view = |port: &Port| {
            // A patch port is connected only when its peer names this port in turn.
            let peer = port.peer.as_deref().and_then(resolve).and_then(|(bridge, number, back)| {
                (back.as_deref() == Some(&port.name)).then_some((bridge, number))
            });
            let bundle = bundle_of.get(port.name.as_str()).copied();
            let aggregate = bundle.and_then(|at| self.bundles.get(at));
            let aggregate = aggregate.and_then(|b| self.aggregates.get(&b.settings.name));
            let lacp = aggregate.map(|a| Arc::clone(a) as Arc<dyn Protocol>);
            let tree = self.tree.as_ref().map(|tree| Arc::clone(tree) as Arc<dyn Protocol>);
            port.view(peer, bundle, port.machines().chain(lacp).chain(tree).collect())
        };
        let ports: HashMap<PortNo, PortView> =
            self.ports.values().map(|p| (p.number, view(p))).collect();
        BridgeView {
            name: self.name.clone(),
            tables,
            ports: Arc::new(ports),
            mirrors: Arc::new(Mirrors::new(&self.mirrors, &bundles)),
            bundles: Arc::new(bundles),
            groups: Arc::clone(self.pipeline.groups()),
            meters: self.meters.view(),
            macs: Arc::clone(&self.macs),
            multicast: self.multicast.clone(),
            tlv_table: Arc::clone(&self.tlv_table),
            exports: self.exports.clone(),
            config: self.config.clone(),
        }
    }
}

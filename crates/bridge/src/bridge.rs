// SPDX-License-Identifier: Apache-2.0
//! One bridge: the control thread's mutable state.

use crate::export::Exports;
use crate::mac_table::MacTable;
use crate::meter::MeterTable;
use crate::mirror::{Mirror, Mirrors};
use crate::pipeline::Pipeline;
use crate::port::{Bundle, Port};
use crate::snapshot::{BridgeConfig, BridgeIndex, BridgeView, BundleView, PortView, TableArray};
use hashbrown::HashMap;
use openflow::PortNo;
use openflow::message::{PortConfig, SwitchDesc};
use std::collections::BTreeMap;
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
    /// Fields of the options of Geneve headers.
    pub tlv_table: Arc<flow::TlvTable>,
    /// Ports by OpenFlow number.
    pub ports: BTreeMap<PortNo, Port>,
    /// Rows of the Port table.
    pub bundles: Vec<Bundle>,
    /// Port mirrors, at most [`MAX_MIRRORS`](crate::mirror::MAX_MIRRORS).
    pub mirrors: Vec<Mirror>,
    /// Export of traffic to collectors.
    pub exports: Exports,
    /// For each bond, by name: the member that carried the traffic in the last view.
    active_members: HashMap<String, PortNo>,
    /// Start of the search for the next free port number, so that numbers are reused late.
    next_port: u32,
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
            tlv_table: Arc::default(),
            ports: BTreeMap::new(),
            bundles: Vec::new(),
            mirrors: Vec::new(),
            exports: Exports::default(),
            active_members: HashMap::new(),
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

    /// Returns the bundles with more than one interface.
    pub fn bonds(&self) -> impl Iterator<Item = &Bundle> {
        self.bundles.iter().filter(|b| b.interfaces.len() > 1)
    }

    /// Returns the bond called `name`.
    pub fn bond(&self, name: &str) -> Option<&Bundle> {
        self.bonds().find(|b| b.settings.name == name)
    }

    /// Returns the member that carries a bond's traffic. As in OVS the primary member is preferred
    /// while it is up; then the previously active member while it is up; then the first member that
    /// is up. `None` when no member is up.
    pub fn active_member(&self, bond: &Bundle) -> Option<&Port> {
        let members = bond.interfaces.iter().filter_map(|name| self.port_by_name(name));
        let up: Vec<&Port> = members.filter(|p| p.is_up()).collect();
        let primary = up.iter().find(|p| bond.primary.as_ref() == Some(&p.name));
        let before = self.active_members.get(&bond.settings.name);
        let same = || up.iter().find(|p| before == Some(&p.number));
        primary.or_else(same).or(up.first()).copied()
    }

    /// Records the member with the address `mac` as the previously active member of the bond called
    /// `name`, from the database record of an earlier daemon process. Does nothing when this bridge
    /// already has an active member for the bond.
    pub fn recall_active_member(&mut self, name: &str, mac: [u8; 6]) {
        if self.active_members.contains_key(name) {
            return;
        }
        let members = self.bond(name).into_iter().flat_map(|bond| &bond.interfaces);
        let mut ports = members.filter_map(|member| self.port_by_name(member));
        let number = ports.find(|p| p.status.mac == mac).map(|p| p.number);
        if let Some(number) = number {
            self.active_members.insert(name.to_owned(), number);
        }
    }

    /// Determines the active members of bonds for the next view. Returns the names of the bonds
    /// with a changed active member.
    pub(crate) fn select_active_members(&mut self) -> Vec<String> {
        let selected =
            |bond: &Bundle| Some((bond.settings.name.clone(), self.active_member(bond)?.number));
        let now: Vec<(String, PortNo)> = self.bonds().filter_map(selected).collect();
        let is_other =
            |(name, number): &&(String, PortNo)| self.active_members.get(name) != Some(number);
        let moved = now.iter().filter(is_other).map(|(name, _)| name.clone()).collect();
        self.active_members = now.into_iter().collect();
        moved
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
                floodable: ports.iter().all(|p| !p.config.contains(PortConfig::NO_FLOOD)),
                ..bundle.settings.clone()
            });
        }
        let view = |port: &Port| {
            // A patch port is connected only when its peer names this port in turn.
            let peer = port.peer.as_deref().and_then(resolve).and_then(|(bridge, number, back)| {
                (back.as_deref() == Some(&port.name)).then_some((bridge, number))
            });
            let is_active = self.active_members.values().any(|n| *n == port.number);
            port.view(peer, bundle_of.get(port.name.as_str()).copied(), is_active)
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
            tlv_table: Arc::clone(&self.tlv_table),
            exports: self.exports.clone(),
            config: self.config.clone(),
        }
    }
}

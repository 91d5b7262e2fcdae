// SPDX-License-Identifier: Apache-2.0
//! The columns that the daemon writes into the database.
//!
//! A column is written only when its value differs from the replica's, or when an earlier write of
//! it is under way. All columns of a round are in one transaction, guarded by the lock. Statistics
//! are written every `stats-update-interval`, states as soon as they are noticed.

mod spanning_tree;

use super::cfm;
use super::context::Context;
use super::desired::DesiredBridge;
use super::device;
use super::host;
use super::interfaces::short;
use super::lldp::{TrunkChange, trunks};
use super::state::{BridgeState, ControllerState, InterfaceState, Service, SwitchState};
use crate::args::DummyLevel;
use crate::features;
use bridge::bridge::Bridge;
use bridge::port::Port;
use netdev::{DeviceStats, Duplex};
use openflow::message::Role;
use ovsdb::{Client, Datum, Replica, Transaction, Uuid};
use packet::Mac;
use std::collections::BTreeMap;
use underlay::Query;

/// Longest error text in the database, in bytes. The text may quote the contents of a row.
const MAX_ERROR: usize = 1024;

/// One round of writing.
pub(super) struct Writer<'a> {
    client: &'a Client,
    replica: &'a Replica,
    transaction: Transaction,
    extent: Extent,
}

/// The columns that a round compares. To compare all columns of all rows costs more than all other
/// work of an idle daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// Connections to controllers.
    Controllers,
    /// Connections and all other states.
    States,
    /// States and statistics.
    Statistics,
}

impl<'a> Writer<'a> {
    /// Returns a round with an empty transaction.
    pub fn new(client: &'a Client, replica: &'a Replica, extent: Extent) -> Writer<'a> {
        Writer { client, replica, transaction: Transaction::new().guarded(), extent }
    }

    fn has_statistics(&self) -> bool {
        self.extent == Extent::Statistics
    }

    /// Returns the transaction to send; `None` when nothing changed.
    pub fn finish(self) -> Option<Transaction> {
        (!self.transaction.is_empty()).then_some(self.transaction)
    }

    fn set(&mut self, table: &str, row: Uuid, column: &str, value: impl Into<Datum>) {
        self.client.set_if_changed(&mut self.transaction, table, row, column, value);
    }

    /// Writes the Open_vSwitch row. `configured` is true when the present `next_cfg` is in force.
    pub fn root(&mut self, context: &Context<'_>, state: &SwitchState, configured: bool) {
        if self.extent < Extent::States {
            return;
        }
        let Some((uuid, row)) = self.replica.first("Open_vSwitch") else { return };
        let mut types = vec!["netdev"];
        if !context.disable_system || device::is_dummy_datapath("system", context.dummy) {
            types.push("system");
        }
        if context.dummy != DummyLevel::Off {
            types.push("dummy");
        }
        self.set("Open_vSwitch", uuid, "datapath_types", Datum::set(types));
        self.set("Open_vSwitch", uuid, "iface_types", Datum::set(device::types(context.dummy)));
        self.set("Open_vSwitch", uuid, "dpdk_initialized", false);
        self.set("Open_vSwitch", uuid, "dpdk_version", "none");
        if !state.tracking.datapaths.is_empty() {
            let capabilities = features::capabilities(&**context.switch.datapath());
            for row in state.tracking.datapaths.values() {
                self.set("Datapath", *row, "capabilities", Datum::map(capabilities.clone()));
            }
        }
        if self.has_statistics() {
            let statistics =
                if state.tunables.host_statistics { host::statistics() } else { BTreeMap::new() };
            self.set("Open_vSwitch", uuid, "statistics", Datum::map(statistics));
        }
        if configured {
            self.set("Open_vSwitch", uuid, "cur_cfg", row.int("next_cfg"));
        }
    }

    /// Writes a bridge with its interfaces, bonds and controllers.
    pub fn bridge(&mut self, context: &Context<'_>, state: &mut BridgeState) {
        let Some(bridge) = context.switch.bridge(state.index) else { return };
        if self.extent >= Extent::States {
            let id = format!("{:016x}", bridge.datapath_id);
            self.set("Bridge", state.uuid, "datapath_id", id.as_str());
            self.set("Bridge", state.uuid, "datapath_version", "<built-in>");
            for interface in state.interfaces.values() {
                self.interface(context, bridge, interface);
            }
            for (name, row) in &state.bonds {
                self.bond(bridge, name, *row);
            }
            self.tree(context, bridge, state);
        }
        if self.has_statistics() {
            for (row, mirror) in &state.mirrors {
                let (packets, bytes) = mirror.stats.counts();
                let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
                let counts = [("tx_bytes", number(bytes)), ("tx_packets", number(packets))];
                self.set("Mirror", *row, "statistics", Datum::map(counts));
            }
        }
        self.trunks(&mut state.auto_attach.changes);
        for controller in state.controllers.values_mut() {
            self.controller(context, controller);
        }
    }

    /// Clears the columns of a bridge that could not be made.
    pub fn unmade(&mut self, wanted: &DesiredBridge) {
        self.set("Bridge", wanted.uuid, "datapath_id", Datum::empty());
        for row in wanted.interfaces().filter_map(|i| i.uuid) {
            self.set("Interface", row, "ofport", Datum::empty());
            self.set("Interface", row, "error", Datum::empty());
            self.clear_interface(row);
        }
    }

    fn clear_interface(&mut self, row: Uuid) {
        for column in [
            "admin_state",
            "link_state",
            "link_speed",
            "link_resets",
            "duplex",
            "mac_in_use",
            "mtu",
            "ifindex",
            "lacp_current",
        ]
        .into_iter()
        .chain(cfm::COLUMNS)
        {
            self.set("Interface", row, column, Datum::empty());
        }
        for column in ["status", "statistics", "bfd_status"] {
            self.set("Interface", row, column, no_pairs());
        }
    }

    fn interface(&mut self, context: &Context<'_>, bridge: &Bridge, state: &InterfaceState) {
        let Some(row) = state.uuid else { return };
        let error = state.error.as_deref().map(|text| vlog::abridged(text, MAX_ERROR));
        let error = error.map_or_else(Datum::empty, |text| Datum::from(&*text));
        self.set("Interface", row, "error", error);
        let port = state.number.and_then(|n| bridge.ports.get(&n));
        let Some(port) = port else {
            self.set("Interface", row, "ofport", -1);
            self.clear_interface(row);
            return;
        };
        self.set("Interface", row, "ofport", i64::from(short(port.number)));
        let s = &port.status;
        let (admin, link) = if port.is_virtual() { (true, true) } else { (s.admin_up, s.link_up) };
        self.set("Interface", row, "admin_state", up(admin));
        self.set("Interface", row, "link_state", up(link));
        let speed = s.speed_bps.filter(|bps| *bps > 0).and_then(|bps| i64::try_from(bps).ok());
        self.set("Interface", row, "link_speed", speed.map_or_else(Datum::empty, Datum::from));
        let duplex = s.duplex.map_or_else(Datum::empty, |d| Datum::from(duplex_name(d)));
        self.set("Interface", row, "duplex", duplex);
        let resets = s.link_resets.saturating_sub(state.resets_before);
        self.set("Interface", row, "link_resets", i64::try_from(resets).unwrap_or(i64::MAX));
        self.set("Interface", row, "mac_in_use", Mac(s.mac).to_string().as_str());
        let mtu = if port.is_virtual() { Datum::empty() } else { Datum::from(i64::from(s.mtu)) };
        self.set("Interface", row, "mtu", mtu);
        self.set("Interface", row, "ifindex", i64::from(s.ifindex.unwrap_or(0)));
        self.set("Interface", row, "status", Datum::map(status(context, port)));
        let lacp = bridge.aggregate_of(&port.name).map(|a| a.is_current(port.number));
        self.set("Interface", row, "lacp_current", lacp.map_or_else(Datum::empty, Datum::from));
        let status = port.cfm.as_ref().map(|cfm| cfm.status());
        for (column, value) in cfm::COLUMNS.into_iter().zip(cfm::columns(status.as_ref())) {
            self.set("Interface", row, column, value);
        }
        let bfd = port.bfd.as_ref().map(|bfd| bfd_status(&bfd.status(context.clock.now())));
        self.set("Interface", row, "bfd_status", bfd.map_or_else(no_pairs, Datum::map));
        let unwritten = self
            .replica
            .row("Interface", row)
            .is_none_or(|r| r.datum("statistics").is_none_or(Datum::is_empty));
        if self.has_statistics() || unwritten {
            let mut all = statistics(port);
            // Dummies have the counters of Open vSwitch's dummies and no others.
            let upcalls = port.dp_port.filter(|_| context.dummy == DummyLevel::Off);
            if let Some(upcalls) = upcalls.and_then(|n| context.switch.datapath().upcalls(n)) {
                all.insert("upcall_packets".to_owned(), i64::try_from(upcalls).unwrap_or(i64::MAX));
            }
            self.set("Interface", row, "statistics", Datum::map(all));
        }
    }

    /// Writes the address of a bond's active member: all zeros when the last one went down, as in
    /// OVS.
    fn bond(&mut self, bridge: &Bridge, name: &str, row: Uuid) {
        let Some(bond) = bridge.bond(name) else { return };
        let active = bond.active().map(|member| Mac(member.mac));
        let column = "bond_active_slave";
        let had_one = self.replica.row("Port", row).is_some_and(|r| r.opt_str(column).is_some());
        if active.is_some() || had_one {
            self.set("Port", row, column, active.unwrap_or_default().to_string().as_str());
        }
    }

    /// Writes the VLANs that auto-attach gives to ports and takes from them, until the database has them.
    fn trunks(&mut self, changes: &mut Vec<TrunkChange>) {
        let replica = self.replica;
        changes.retain(|change| {
            replica.row("Port", change.port).is_some_and(|row| {
                let has_it = row.ints("trunks").any(|vlan| vlan == i64::from(change.vlan));
                has_it != change.is_added
            })
        });
        let mut ports: BTreeMap<Uuid, Vec<TrunkChange>> = BTreeMap::new();
        changes.iter().for_each(|change| ports.entry(change.port).or_default().push(*change));
        for (port, changes) in ports {
            let present = replica.row("Port", port).into_iter().flat_map(|row| row.ints("trunks"));
            let (vlans, mode) = trunks(present, &changes);
            self.set("Port", port, "trunks", Datum::set(vlans));
            if let Some(mode) = mode {
                self.set("Port", port, "vlan_mode", mode);
            }
        }
    }

    fn controller(&mut self, context: &Context<'_>, state: &mut ControllerState) {
        let Service::Active(connector) = &state.service else {
            for row in &state.wanted.rows {
                self.set("Controller", *row, "is_connected", false);
                self.set("Controller", *row, "role", Datum::empty());
                self.set("Controller", *row, "status", no_pairs());
            }
            return;
        };
        let now = connector.status();
        let connection = now.id.and_then(|id| context.connections.status(id));
        let is_connected = connection.as_ref().is_some_and(|c| c.version.is_some());
        let role = connection.as_ref().filter(|_| is_connected).map(|c| match c.role {
            Role::Primary => "master",
            Role::Secondary => "slave",
            _ => "other",
        });
        let idle = connection.is_some_and(|c| c.idle);
        let mut facts = BTreeMap::new();
        facts.insert("state", if idle { "IDLE" } else { now.state }.to_owned());
        if let Some(error) = &now.last_error {
            facts.insert("last_error", error.clone());
        }
        let written = (is_connected, role, facts);
        if !self.has_statistics() && state.written.as_ref() == Some(&written) {
            return; // only seconds have passed
        }
        let mut facts = written.2.clone();
        state.written = Some(written);
        if let Some(at) = now.connected {
            facts.insert("sec_since_connect", at.elapsed().as_secs().to_string());
        }
        if let Some(at) = now.disconnected {
            facts.insert("sec_since_disconnect", at.elapsed().as_secs().to_string());
        }
        for row in &state.wanted.rows {
            self.set("Controller", *row, "is_connected", is_connected);
            self.set("Controller", *row, "role", role.map_or_else(Datum::empty, Datum::from));
            self.set(
                "Controller",
                *row,
                "status",
                Datum::map(facts.iter().map(|(k, v)| (*k, v.as_str()))),
            );
        }
    }
}

fn no_pairs() -> Datum {
    Datum::map(std::iter::empty::<(&str, &str)>())
}

fn up(up: bool) -> &'static str {
    if up { "up" } else { "down" }
}

fn duplex_name(duplex: Duplex) -> &'static str {
    match duplex {
        Duplex::Half => "half",
        Duplex::Full => "full",
    }
}

/// Returns `Interface:bfd_status`.
fn bfd_status(status: &bridge::bfd::Status) -> [(&'static str, String); 6] {
    [
        ("diagnostic", status.diagnostic.text().to_owned()),
        ("flap_count", status.flaps.to_string()),
        ("forwarding", status.is_forwarding.to_string()),
        ("remote_diagnostic", status.remote_diagnostic.text().to_owned()),
        ("remote_state", status.remote_state.name().to_owned()),
        ("state", status.state.name().to_owned()),
    ]
}

/// Returns `Interface:status`.
fn status(context: &Context<'_>, port: &Port) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let driver = &port.status.driver;
    if !driver.name.is_empty() {
        out.insert("driver_name".to_owned(), driver.name.clone());
        out.insert("driver_version".to_owned(), driver.version.clone());
        out.insert("firmware_version".to_owned(), driver.firmware.clone());
    }
    out.extend(port.status.extra.iter().cloned());
    if let Some((device, is_up)) = egress(context, port) {
        out.insert("tunnel_egress_iface".to_owned(), device);
        out.insert("tunnel_egress_iface_carrier".to_owned(), up(is_up).to_owned());
    }
    out
}

/// Returns the device by which packets of a tunnel port leave, and whether it has a link.
fn egress(context: &Context<'_>, port: &Port) -> Option<(String, bool)> {
    let remote = port.tunnel.as_ref()?.remote.fixed()?;
    let found = context.underlay.lookup(&Query::to(remote))?;
    let mut bridges = context.switch.bridges();
    let is_up = match bridges.find_map(|b| b.port_by_name(&found.device)) {
        Some(port) => port.status.link_up,
        None => context.underlay.routes().devices().get(&*found.device).is_some_and(|d| d.has_link),
    };
    Some((found.device.to_string(), is_up))
}

/// Returns `Interface:statistics`, by OVS's names. Counters that the device does not have are left
/// out.
fn statistics(port: &Port) -> BTreeMap<String, i64> {
    let stats = if port.is_virtual() {
        let [rx, tx] = &*port.virtual_stats;
        let ((rx_packets, rx_bytes), (tx_packets, tx_bytes)) = (rx.counts(), tx.counts());
        DeviceStats {
            rx_packets: Some(rx_packets),
            rx_bytes: Some(rx_bytes),
            tx_packets: Some(tx_packets),
            tx_bytes: Some(tx_bytes),
            ..DeviceStats::default()
        }
    } else {
        port.device.as_ref().and_then(|d| d.stats().ok()).unwrap_or_default()
    };
    let named = [
        ("collisions", stats.collisions),
        ("rx_bytes", stats.rx_bytes),
        ("rx_crc_err", stats.rx_crc_errors),
        ("rx_dropped", stats.rx_dropped),
        ("rx_errors", stats.rx_errors),
        ("rx_frame_err", stats.rx_frame_errors),
        ("rx_missed_errors", stats.rx_missed_errors),
        ("rx_multicast_packets", stats.multicast),
        ("rx_over_err", stats.rx_over_errors),
        ("rx_packets", stats.rx_packets),
        ("tx_bytes", stats.tx_bytes),
        ("tx_dropped", stats.tx_dropped),
        ("tx_errors", stats.tx_errors),
        ("tx_packets", stats.tx_packets),
    ];
    let named = named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let custom = match &port.device {
        Some(device) if !port.is_virtual() => device.custom_counters(),
        _ => Vec::new(),
    };
    let all = named.chain(custom);
    all.map(|(name, value)| (name, i64::try_from(value).unwrap_or(i64::MAX))).collect()
}

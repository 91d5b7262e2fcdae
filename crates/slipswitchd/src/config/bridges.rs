// SPDX-License-Identifier: Apache-2.0
//! Bridges, made equal to their rows.

use super::address;
use super::desired::{Desired, DesiredBridge};
use super::state::{BridgeState, Remarks, State};
use super::{controllers, device, fail, interfaces};
use crate::args::DummyLevel;
use crate::daemon::{Daemon, Shared};
use openflow::PortNo;
use openflow::message::Versions;
use packet::Mac;
use std::collections::BTreeMap;

/// True when a bridge of this type can be made.
fn is_known_type(datapath_type: &str, dummy: DummyLevel) -> bool {
    matches!(datapath_type, "" | "system" | "netdev")
        || datapath_type == "dummy" && dummy != DummyLevel::Off
}

/// Makes the switch what is wanted.
pub(super) fn sync(shared: &Shared, d: &mut Daemon, state: &mut State, wanted: &Desired) {
    let mut remarks = std::mem::take(&mut state.remarks);
    let makeable = |b: &DesiredBridge, remarks: &mut Remarks| {
        let known = is_known_type(&b.datapath_type, d.dummy);
        if !known {
            remarks.warn(format!(
                "could not create bridge {} of unknown datapath type {}; use netdev, system or leave it empty",
                b.name, b.datapath_type
            ));
        }
        known
    };
    let bridges: BTreeMap<&String, &DesiredBridge> =
        wanted.bridges.iter().filter(|(_, b)| makeable(b, &mut remarks)).collect();

    // Away with what is not wanted, over all bridges, before anything is added.
    let gone: Vec<String> =
        state.bridges.keys().filter(|name| !bridges.contains_key(name)).cloned().collect();
    for name in gone {
        if let Some(bridge) = state.bridges.remove(&name) {
            remove(d, &name, bridge);
        }
    }
    for (name, bridge) in &mut state.bridges {
        if let Some(row) = bridges.get(name) {
            if bridge.datapath_type != row.datapath_type {
                change_type(d, bridge, row);
            }
            interfaces::remove_stale(d, bridge, row);
        }
    }

    let files = controllers::files(state);
    let mut fresh = Vec::new();
    for (name, row) in &bridges {
        if !state.bridges.contains_key(*name) {
            state.bridges.insert((*name).clone(), create(d, row, &mut remarks));
            fresh.push((*name).clone());
        }
    }
    for (name, row) in &bridges {
        if let Some(bridge) = state.bridges.get_mut(*name) {
            bridge.uuid = row.uuid;
            interfaces::add_missing(d, bridge, row, &mut remarks);
        }
    }
    for (name, row) in &bridges {
        let Some(bridge) = state.bridges.get_mut(*name) else { continue };
        interfaces::configure(d, bridge, row, &mut remarks);
        interfaces::bundles(d, bridge.index, row);
        let bonds = row.ports.iter().filter(|(_, port)| port.is_bond());
        bridge.bonds = bonds.filter_map(|(name, port)| Some((name.clone(), port.uuid?))).collect();
        settings(d, bridge, row, &mut remarks);
        tables(d, bridge, row);
        controllers::sync(shared, d, bridge, row, files.as_ref(), !state.restored, &mut remarks);
        fail::sync(d, bridge, row, fresh.contains(name));
    }
    state.remarks = remarks;
}

fn create(d: &mut Daemon, row: &DesiredBridge, remarks: &mut Remarks) -> BridgeState {
    if row.datapath_type == "system" && !device::is_dummy_datapath("system", d.dummy) {
        remarks.info(format!(
            "bridge {}: datapath_type system asks for the kernel's openvswitch datapath, which this version \
             does not drive; Slipswitch's own datapath is used",
            row.name
        ));
    }
    let mac = row.hwaddr.unwrap_or_else(|| address::from_row(row.uuid));
    let id = row.datapath_id.unwrap_or_else(|| address::datapath_id(mac));
    if d.switch.bridges().next().is_none() {
        crate::features::announce(&**d.switch.datapath());
    }
    let index = d.switch.add_bridge(&row.name, id);
    BridgeState {
        uuid: row.uuid,
        index,
        datapath_type: row.datapath_type.clone(),
        mac: Mac::default(),
        versions: Versions::NONE,
        fail: fail_state(row),
        tables: BTreeMap::new(),
        mac_table: None,
        services: BTreeMap::new(),
        controllers: BTreeMap::new(),
        interfaces: BTreeMap::new(),
        bonds: BTreeMap::new(),
        min_mtu: None,
    }
}

fn fail_state(row: &DesiredBridge) -> super::state::Fail {
    super::state::Fail { mode: row.fail_mode, ..Default::default() }
}

/// The type of a bridge changed. All types are the one datapath; only the forms of ports may
/// differ (dummies), and [`interfaces::remove_stale`] sees to that.
fn change_type(d: &Daemon, bridge: &mut BridgeState, row: &DesiredBridge) {
    let name = d.switch.bridge(bridge.index).map_or("", |b| &b.name);
    tracing::info!(target: "bridge", "bridge {name}: datapath_type is now \"{}\"", row.datapath_type);
    bridge.datapath_type.clone_from(&row.datapath_type);
}

/// Removes a bridge with everything in it.
pub(super) fn remove(d: &mut Daemon, name: &str, mut bridge: BridgeState) {
    controllers::close(d, &mut bridge);
    let changes = d.switch.remove_bridge(bridge.index);
    d.changed(bridge.index, changes);
    d.connections.bridge_removed(bridge.index);
    tracing::info!(target: "bridge", "bridge {name}: deleted");
}

/// Settings of the bridge itself. The bridge is published anew only when one differs.
fn settings(d: &mut Daemon, bridge: &mut BridgeState, row: &DesiredBridge, remarks: &mut Remarks) {
    let mac =
        row.hwaddr.or_else(|| lowest_mac(d, bridge)).unwrap_or_else(|| address::from_row(row.uuid));
    interfaces::set_local_mac(d, bridge.index, mac, remarks);
    let id = row.datapath_id.unwrap_or_else(|| address::datapath_id(mac));
    bridge.mac = mac;
    let Some(b) = d.switch.bridge(bridge.index) else { return };
    let serial = row.serial.clone().unwrap_or_else(|| "None".to_owned());
    let description =
        row.description.as_deref().unwrap_or(bridge::bridge::DATAPATH_DESCRIPTION).to_owned();
    if b.datapath_id != id {
        d.connections.close_all(bridge.index, "datapath id changed");
    }
    let Some(b) = d.switch.bridge(bridge.index) else { return };
    let is_new = bridge.mac_table.is_none();
    let same = b.datapath_id == id
        && b.config.mac == mac.0
        && b.config.forward_bpdu == row.forward_bpdu
        && b.description.serial_number == serial
        && b.description.datapath == description;
    if is_new || b.datapath_id != id {
        tracing::info!(target: "bridge", "bridge {}: using datapath ID {id:016x}", b.name);
    }
    if !same && let Some(b) = d.switch.bridge_mut(bridge.index) {
        b.datapath_id = id;
        b.config.mac = mac.0;
        b.config.forward_bpdu = row.forward_bpdu;
        b.description.serial_number = serial;
        b.description.datapath = description;
    }
    let mac_table = (row.mac_table_size, row.mac_ageing, row.flood_vlans.clone());
    if bridge.mac_table.as_ref() != Some(&mac_table) {
        let macs = d.switch.bridge(bridge.index).map(|b| b.macs.clone());
        if macs.is_some_and(|m| m.configure(mac_table.0, mac_table.1, mac_table.2.clone())) {
            d.switch.mac_tables_changed();
        }
        bridge.mac_table = Some(mac_table);
    }
}

/// The lowest address that the bridge may take from its ports: one per row of the Port table,
/// of a bond the first interface's.
fn lowest_mac(d: &Daemon, bridge: &BridgeState) -> Option<Mac> {
    let b = d.switch.bridge(bridge.index)?;
    let of_bundle = |bundle: &bridge::port::Bundle| {
        let port = bundle.interfaces.iter().find_map(|name| b.port_by_name(name))?;
        (port.number != PortNo::LOCAL && !port.is_patch()).then_some(Mac(port.status.mac))
    };
    address::lowest(b.bundles.iter().filter_map(of_bundle))
}

/// Flow_Table rows.
fn tables(d: &mut Daemon, bridge: &mut BridgeState, row: &DesiredBridge) {
    if bridge.tables == row.tables {
        return;
    }
    let Some(b) = d.switch.bridge_mut(bridge.index) else { return };
    let mut evicted = Vec::new();
    for id in 0..=253u8 {
        let (old, new) = (bridge.tables.get(&id), row.tables.get(&id));
        if old == new {
            continue;
        }
        let new = new.cloned().unwrap_or_default();
        if let Some(table) = b.pipeline.table_mut(id) {
            let by_openflow = table.eviction.evict_by_openflow;
            table.name = new.name;
            table.eviction = new.eviction;
            table.eviction.evict_by_openflow = by_openflow;
            evicted.extend(b.pipeline.trim(id));
        }
    }
    d.changed(bridge.index, evicted);
    bridge.tables.clone_from(&row.tables);
}

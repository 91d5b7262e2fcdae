// SPDX-License-Identifier: Apache-2.0
//! Bridges, made equal to their rows.

use super::address;
use super::context::Context;
use super::desired::{Desired, DesiredBridge};
use super::export::ExportState;
use super::spanning_tree;
use super::state::{BridgeState, Remarks, SwitchState};
use super::{bfd, cfm, controllers, export, fail, in_band, interfaces, links, lldp, mirrors, qos};
use crate::args::DummyLevel;
use crate::openflow::SharedControl;
use bridge::mirror::MirrorOutput;
use bridge::multicast_table::MulticastTable;
use bridge::switch::Switch;
use openflow::PortNo;
use openflow::message::Versions;
use packet::Mac;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns true when a bridge of this type can be made.
fn is_known_type(datapath_type: &str, dummy: DummyLevel) -> bool {
    matches!(datapath_type, "" | "system" | "netdev")
        || datapath_type == "dummy" && dummy != DummyLevel::Off
}

/// Makes the bridges equal to `wanted`.
pub(super) fn sync(
    control: &SharedControl,
    context: &mut Context<'_>,
    state: &mut SwitchState,
    wanted: &Desired,
) {
    let files = controllers::files(state);
    let hold = !state.restored;
    let SwitchState { bridges: made, remarks, system_datapath: system, link_polls: polls, .. } =
        state;
    let mut makeable = |b: &DesiredBridge| {
        let known = is_known_type(&b.datapath_type, context.dummy);
        if !known {
            remarks.warn(format!(
                "could not create bridge {} of unknown datapath type {}; use netdev, system or leave it empty",
                b.name, b.datapath_type
            ));
        }
        known
    };
    let bridges: BTreeMap<&String, &DesiredBridge> =
        wanted.bridges.iter().filter(|(_, b)| makeable(b)).collect();

    // Removal comes before adding, over all bridges.
    let gone: Vec<String> =
        made.keys().filter(|name| !bridges.contains_key(name)).cloned().collect();
    for name in gone {
        if let Some(bridge) = made.remove(&name) {
            remove(context, &name, bridge);
        }
    }
    for (name, bridge) in &mut *made {
        if let Some(row) = bridges.get(name) {
            if bridge.datapath_type != row.datapath_type {
                change_type(context.switch, bridge, row);
            }
            interfaces::remove_stale(context, system, bridge, row);
        }
    }

    let mut fresh = Vec::new();
    for (name, row) in &bridges {
        if !made.contains_key(*name) {
            made.insert((*name).clone(), create(context, row));
            fresh.push((*name).clone());
        }
    }
    for (name, row) in &bridges {
        if let Some(bridge) = made.get_mut(*name) {
            bridge.uuid = row.uuid;
            interfaces::add_missing(context, system, bridge, row, remarks);
        }
    }
    polls.send_if_modified(|interval| links::set_interval(interval, bridges.values()));
    let mut sflow_bridges = 0;
    for (name, row) in &bridges {
        let Some(bridge) = made.get_mut(*name) else { continue };
        interfaces::configure(context, system, bridge, row, remarks);
        bfd::sync(context, bridge, row);
        qos::sync(context, bridge, row, remarks);
        cfm::sync(context, bridge, row, remarks);
        lldp::sync(context, bridge, row);
        interfaces::bundles(context.switch, bridge.index, row);
        links::sync(context.switch, bridge.index, row);
        mirrors::sync(context.switch, bridge, &row.mirrors, remarks);
        export::sync(context.switch, context.underlay, bridge, row, &mut sflow_bridges, remarks);
        let bonds = row.ports.iter().filter(|(_, port)| port.is_bond());
        bridge.bonds = bonds.filter_map(|(name, port)| Some((name.clone(), port.uuid?))).collect();
        let ports = row.ports.iter();
        bridge.ports = ports.filter_map(|(name, port)| Some((name.clone(), port.uuid?))).collect();
        settings(context, bridge, row, remarks);
        spanning_tree::sync(context.switch, bridge, row, remarks);
        tables(context, bridge, row);
        controllers::sync(control, context, bridge, row, files.as_ref(), hold, remarks);
        fail::sync(context, bridge, row, fresh.contains(name));
        in_band::sync(context, bridge, &row.in_band);
    }
}

fn create(context: &mut Context<'_>, row: &DesiredBridge) -> BridgeState {
    let mac = row.hwaddr.unwrap_or_else(|| address::from_row(row.uuid));
    let id = row.datapath_id.unwrap_or_else(|| address::datapath_id(mac));
    if context.switch.bridges().next().is_none() {
        crate::features::announce(&**context.switch.datapath());
    }
    let index = context.switch.add_bridge(&row.name, id);
    BridgeState {
        uuid: row.uuid,
        index,
        datapath_type: row.datapath_type.clone(),
        mac: Mac::default(),
        versions: Versions::NONE,
        fail: fail_state(row),
        in_band: in_band::InBand::default(),
        tables: BTreeMap::new(),
        mac_table: None,
        snooping: None,
        services: BTreeMap::new(),
        controllers: BTreeMap::new(),
        interfaces: BTreeMap::new(),
        bonds: BTreeMap::new(),
        ports: BTreeMap::new(),
        mirrors: BTreeMap::new(),
        export: ExportState::default(),
        auto_attach: lldp::AutoAttachState::default(),
        min_mtu: None,
    }
}

fn fail_state(row: &DesiredBridge) -> super::state::Fail {
    super::state::Fail { mode: row.fail_mode, ..Default::default() }
}

/// Records a new type of a bridge. All types use the one datapath; only the forms of ports may
/// differ (dummies), and [`interfaces::remove_stale`] closes the ports whose form has changed.
fn change_type(switch: &Switch, bridge: &mut BridgeState, row: &DesiredBridge) {
    let name = switch.bridge(bridge.index).map_or("", |b| &b.name);
    tracing::info!(target: "bridge", "bridge {name}: datapath_type is now \"{}\"", row.datapath_type);
    bridge.datapath_type.clone_from(&row.datapath_type);
}

/// Removes a bridge with everything in it.
pub(super) fn remove(context: &mut Context<'_>, name: &str, mut bridge: BridgeState) {
    controllers::close(context, &mut bridge);
    bridge.interfaces.keys().for_each(|name| context.underlay.forget_device(name));
    let changes = context.switch.remove_bridge(bridge.index);
    context.changed(bridge.index, changes);
    context.connections.bridge_removed(bridge.index);
    tracing::info!(target: "bridge", "bridge {name}: deleted");
}

/// Applies the settings of the bridge itself. The bridge is published again only when one differs.
fn settings(
    context: &mut Context<'_>,
    bridge: &mut BridgeState,
    row: &DesiredBridge,
    remarks: &mut Remarks,
) {
    let mac = row
        .hwaddr
        .or_else(|| lowest_mac(context.switch, bridge))
        .unwrap_or_else(|| address::from_row(row.uuid));
    interfaces::set_local_mac(context, bridge.index, mac, remarks);
    let id = row.datapath_id.unwrap_or_else(|| address::datapath_id(mac));
    bridge.mac = mac;
    let Some(b) = context.switch.bridge(bridge.index) else { return };
    let serial = row.serial.clone().unwrap_or_else(|| "None".to_owned());
    let description =
        row.description.as_deref().unwrap_or(bridge::bridge::DATAPATH_DESCRIPTION).to_owned();
    if b.datapath_id != id {
        context.connections.close_all(bridge.index, "datapath id changed");
    }
    let Some(b) = context.switch.bridge(bridge.index) else { return };
    let is_new = bridge.mac_table.is_none();
    let same = b.datapath_id == id
        && b.config.mac == mac.0
        && b.config.forward_bpdu == row.forward_bpdu
        && b.description.serial_number == serial
        && b.description.datapath == description;
    if is_new || b.datapath_id != id {
        tracing::info!(target: "bridge", "bridge {}: using datapath ID {id:016x}", b.name);
    }
    if !same && let Some(b) = context.switch.bridge_mut(bridge.index) {
        b.datapath_id = id;
        b.config.mac = mac.0;
        b.config.forward_bpdu = row.forward_bpdu;
        b.description.serial_number = serial;
        b.description.datapath = description;
    }
    snooping(context.switch, bridge, row);
    let mac_table = (row.mac_table_size, row.mac_ageing, row.flood_vlans.clone());
    if bridge.mac_table.as_ref() != Some(&mac_table) {
        let macs = context.switch.bridge(bridge.index).map(|b| b.macs.clone());
        if macs.is_some_and(|m| m.configure(mac_table.0, mac_table.1, mac_table.2.clone())) {
            context.switch.mac_tables_changed();
        }
        bridge.mac_table = Some(mac_table);
    }
}

/// Starts, stops and configures multicast snooping.
fn snooping(switch: &mut Switch, bridge: &mut BridgeState, row: &DesiredBridge) {
    if bridge.snooping == row.snooping {
        return;
    }
    let Some(b) = switch.bridge_mut(bridge.index) else { return };
    bridge.snooping.clone_from(&row.snooping);
    let Some(wanted) = &row.snooping else {
        b.multicast = None;
        b.config.unregistered_to_routers = false;
        return;
    };
    b.config.unregistered_to_routers = wanted.unregistered_to_routers;
    let index = b.index;
    let table = b.multicast.get_or_insert_with(|| Arc::new(MulticastTable::new(index)));
    table.configure(&wanted.settings);
}

/// Returns the lowest address that the bridge may take from its ports. Each row of the Port table
/// gives one address; a bond gives that of its first interface. Ports for mirrored packets give none.
fn lowest_mac(switch: &Switch, bridge: &BridgeState) -> Option<Mac> {
    let b = switch.bridge(bridge.index)?;
    let of_bundle = |bundle: &bridge::port::Bundle| {
        let port = bundle.interfaces.iter().find_map(|name| b.port_by_name(name))?;
        (port.number != PortNo::LOCAL && !port.is_virtual()).then_some(Mac(port.status.mac))
    };
    let is_reserved = |bundle: &bridge::port::Bundle| {
        let output = MirrorOutput::Bundle(bundle.settings.name.clone());
        b.mirrors.iter().any(|mirror| mirror.output == output)
    };
    let bundles = b.bundles.iter().filter(|bundle| !is_reserved(bundle));
    address::lowest(bundles.filter_map(of_bundle))
}

/// Applies the Flow_Table rows.
fn tables(context: &mut Context<'_>, bridge: &mut BridgeState, row: &DesiredBridge) {
    if bridge.tables == row.tables {
        return;
    }
    let Some(b) = context.switch.bridge_mut(bridge.index) else { return };
    let mut evicted = Vec::new();
    for id in 0..=253u8 {
        let (old, new) = (bridge.tables.get(&id), row.tables.get(&id));
        if old == new {
            continue;
        }
        let new = new.cloned().unwrap_or_default();
        if let Some(table) = b.pipeline.table_mut(id) {
            let by_openflow = table.eviction.evict_by_openflow;
            table.configure_name(new.name);
            table.eviction = new.eviction;
            table.eviction.evict_by_openflow = by_openflow;
            evicted.extend(b.pipeline.trim(id));
        }
    }
    context.changed(bridge.index, evicted);
    bridge.tables.clone_from(&row.tables);
}

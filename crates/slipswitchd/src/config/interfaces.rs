// SPDX-License-Identifier: Apache-2.0
//! Ports of one bridge, made equal to its Interface rows.
//!
//! A port is touched only when its own row asks for something else, when its device is gone, or
//! when its number must go to another. Removing comes before adding, over all bridges, so that
//! an interface can move from one bridge to another in one step.

use super::address::{from_row, of_name};
use super::bfd;
use super::bonds;
use super::context::Context;
use super::desired::{DesiredBridge, DesiredInterface};
use super::device::{self, Form};
use super::state::{BridgeState, InterfaceState, Remarks};
use super::system_datapath::SystemDatapath;
use super::vlan;
use crate::args::DummyLevel;
use bridge::connection::PortEvent;
use bridge::port::{Bundle, Port};
use bridge::snapshot::BridgeIndex;
use bridge::switch::{PortRequest, Switch};
use bridge::tunnel;
use datapath::{PortKind, PortSpec};
use datapath_kernel::NUMBERING;
use openflow::PortNo;
use packet::Mac;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Highest number of a port in OpenFlow 1.0, which every version can express.
const MAX_OFPORT: u32 = 0xfeff;
/// MTU of internal ports once a bridge has lost its last other port: Ethernet's, in bytes.
const DEFAULT_MTU: u32 = 1500;

/// Returns a port's number as in the database and in OpenFlow 1.0: 16 bits, LOCAL is 65534.
pub(super) fn short(number: PortNo) -> u32 {
    if number.0 > 0xffff_0000 { number.0 & 0xffff } else { number.0 }
}

/// Returns the number that a row asks for, when a port may have it.
fn requested(wanted: &DesiredInterface) -> Option<u32> {
    wanted.ofport_request.filter(|n| (1..=MAX_OFPORT).contains(n))
}

/// Closes ports that the database no longer names or wants in another form, and ports whose device
/// is gone.
pub(super) fn remove_stale(
    context: &mut Context<'_>,
    system: &SystemDatapath,
    bridge: &mut BridgeState,
    wanted: &DesiredBridge,
) {
    let rows: BTreeMap<&str, &DesiredInterface> =
        wanted.interfaces().map(|i| (i.name.as_str(), i)).collect();
    let mut close: Vec<String> = Vec::new();
    let mut change: Vec<(String, Arc<tunnel::Config>)> = Vec::new();
    for (name, state) in &bridge.interfaces {
        let Some(number) = state.number else { continue };
        let form = rows.get(name.as_str()).map(|row| system.form(row, wanted, context.dummy));
        let as_wanted = match (&form, &state.form) {
            // Other options of a tunnel leave the port in place.
            (
                Some(Ok(Form::Tunnel { config: new, .. })),
                Some(Form::Tunnel { config: old, .. }),
            ) if new.kind == old.kind => {
                if new != old {
                    change.push((name.clone(), Arc::clone(new)));
                }
                true
            }
            (Some(Ok(new)), Some(old)) => new == old,
            _ => false,
        };
        if !as_wanted || is_gone(context.switch, bridge.index, number) {
            close.push(name.clone());
        }
    }
    for name in close {
        close_port(context, bridge, &name);
    }
    change_tunnels(context, bridge, wanted, change);
    bridge.interfaces.retain(|name, _| rows.contains_key(name.as_str()));
    // A requested number is given when it is free by now, or when the port that holds it does not
    // ask for it. The holder gets another number, as in OVS.
    let asks = |name: &str| rows.get(name).and_then(|row| requested(row)).map(PortNo);
    let holders: BTreeMap<PortNo, &str> = bridge
        .interfaces
        .iter()
        .filter_map(|(name, state)| Some((state.number?, name.as_str())))
        .collect();
    let mut moving = BTreeSet::new();
    for (number, name) in &holders {
        let Some(asked) = asks(name).filter(|asked| asked != number) else { continue };
        let holder = holders.get(&asked);
        if *number != PortNo::LOCAL && holder.is_none_or(|holder| asks(holder) != Some(asked)) {
            moving.extend(std::iter::once(*name).chain(holder.copied()).map(str::to_owned));
        }
    }
    for name in moving {
        close_port(context, bridge, &name);
    }
}

/// Puts new options of tunnel ports into force. A port whose options collide with those of another
/// is closed: it may open again when all others have changed.
fn change_tunnels(
    context: &mut Context<'_>,
    bridge: &mut BridgeState,
    wanted: &DesiredBridge,
    changes: Vec<(String, Arc<tunnel::Config>)>,
) {
    let mut close = Vec::new();
    for (name, config) in changes {
        let Some(number) = bridge.interfaces.get(&name).and_then(|state| state.number) else {
            continue; // closed, because its device is gone
        };
        let backing = backing_number(&config, wanted, context.dummy);
        if context.switch.set_tunnel(bridge.index, number, config, backing).is_err() {
            close.push(name); // opening it again gives the reason
        }
    }
    for name in close {
        close_port(context, bridge, &name);
    }
}

/// Returns the number that the datapath port for a tunnel gets in dummy mode.
fn backing_number(
    config: &tunnel::Config,
    wanted: &DesiredBridge,
    dummy: DummyLevel,
) -> Option<datapath::PortNo> {
    let is_dummy = device::is_dummy_datapath(&wanted.datapath_type, dummy);
    is_dummy.then(|| dummy_number(&config.backing_name())).flatten()
}

/// Returns true when the port's device does not answer any more (it was deleted, or moved to another
/// namespace), or answers to another name.
pub(super) fn is_gone(switch: &Switch, index: BridgeIndex, number: PortNo) -> bool {
    let port = port(switch, index, number);
    port.is_none_or(|p| p.device.as_ref().is_some_and(|device| !answers(device.as_ref(), p)))
}

/// Returns true when the device still belongs to the port. Devices that the switch made belong to it
/// under any name: their user may move one into another namespace and rename it there.
fn answers(device: &dyn netdev::Device, port: &Port) -> bool {
    let is_own = matches!(port.kind, PortKind::Internal | PortKind::Tap);
    match device.status() {
        Ok(status) => is_own || status.current_name == port.name,
        Err(error) => !netdev::link::is_gone(&error),
    }
}

/// Closes a port; its row stays known, with its last number.
pub(super) fn close_port(context: &mut Context<'_>, bridge: &mut BridgeState, name: &str) {
    let Some(state) = bridge.interfaces.get_mut(name) else { return };
    let Some(number) = state.number.take() else { return };
    state.last = Some(number.0);
    context.underlay.forget_device(name);
    if let Some(port) = context.switch.remove_port(bridge.index, number) {
        tracing::info!(target: "bridge", "bridge {}: deleted interface {name} on port {}", bridge_name(context.switch, bridge.index), short(number));
        context.connections.port_status(bridge.index, PortEvent::Deleted(&port.desc()));
    }
}

fn bridge_name(switch: &Switch, index: BridgeIndex) -> String {
    switch.bridge(index).map_or_else(String::new, |b| b.name.clone())
}

/// Opens the wanted ports that are not open.
pub(super) fn add_missing(
    context: &mut Context<'_>,
    system: &SystemDatapath,
    bridge: &mut BridgeState,
    wanted: &DesiredBridge,
    remarks: &mut Remarks,
) {
    let mut rows: Vec<&DesiredInterface> = wanted.interfaces().collect();
    // The order: the bridge's own port, ports with a requested number, ports with a number from an
    // earlier run, all others. p2 comes before p10.
    rows.sort_by_cached_key(|row| {
        let last = bridge.interfaces.get(&row.name).and_then(|s| s.last).or(row.ofport);
        let rank = match () {
            () if row.name == wanted.name => 0,
            () if requested(row).is_some() => 1,
            () if last.is_some() => 2,
            () => 3,
        };
        let stem = row.name.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = row.name.get(stem.len()..).unwrap_or_default();
        (rank, stem.to_owned(), digits.parse::<u64>().unwrap_or(0), row.name.clone())
    });
    for row in rows {
        let state = bridge.interfaces.entry(row.name.clone()).or_default();
        state.uuid = row.uuid;
        if state.number.is_some() {
            continue;
        }
        let last = state.last.take().or(row.ofport);
        *state = InterfaceState { uuid: row.uuid, last, ..InterfaceState::default() };
        let form = match system.form(row, wanted, context.dummy) {
            Ok(form) => form,
            Err(error) => {
                remarks.warn(format!("bridge {}: {error}", wanted.name));
                state.error = Some(error);
                continue;
            }
        };
        let request = request(row, &form, wanted, last, context.dummy);
        match context.switch.add_port(bridge.index, &request) {
            Ok(number) => {
                tracing::info!(target: "bridge", "bridge {}: added interface {} on port {}", wanted.name, row.name, short(number));
                state.number = Some(number);
                state.last = Some(number.0);
                state.options = row.options.clone();
                state.mtu = row.mtu;
                state.placing = row.placing();
                state.resets_before = port(context.switch, bridge.index, number)
                    .map_or(0, |port| port.status.link_resets);
                bfd::opened(context, bridge.index, number, row);
                added(context, bridge.index, number, &form);
                state.form = Some(form);
            }
            Err(error) => {
                let error = error.to_string();
                remarks.warn(format!("bridge {}: {error}", wanted.name));
                state.error = Some(error);
            }
        }
    }
}

fn request(
    row: &DesiredInterface,
    form: &Form,
    wanted: &DesiredBridge,
    last: Option<u32>,
    dummy: DummyLevel,
) -> PortRequest {
    let is_local = row.name == wanted.name;
    let (kind, peer, tunnel) = match form {
        Form::Device { kind, .. } => (*kind, None, None),
        Form::Tunnel { config, .. } => (config.backing_kind(), None, Some(config.clone())),
        Form::Patch { peer } => (PortKind::Patch, Some(peer.clone()), None),
    };
    // An internal port starts with the row's address, otherwise with one that is the same each time.
    // A port that outlived an earlier daemon keeps its address until `configure` sets the row's.
    let mac = match kind {
        PortKind::Internal | PortKind::DummyInternal | PortKind::InternalVport if is_local => None,
        PortKind::Internal | PortKind::InternalVport => row.mac.or(row.uuid.map(from_row)),
        PortKind::DummyInternal => row.mac,
        _ => None,
    };
    let spec = PortSpec {
        name: row.name.clone(),
        kind,
        options: row.options.clone(),
        other_config: row.other_config.clone(),
        wanted: match &tunnel {
            Some(config) => backing_number(config, wanted, dummy),
            None => kind.is_dummy().then(|| dummy_number(&row.name)).flatten(),
        },
        mac: mac.map(|mac| mac.0),
        mtu: None, // set afterwards, so that a refused one does not keep the port closed
    };
    let ofport = if is_local {
        Some(PortNo::LOCAL)
    } else {
        requested(row).or(last.filter(|n| (1..=MAX_OFPORT).contains(n))).map(PortNo)
    };
    PortRequest { spec, ofport, peer, tunnel }
}

/// Returns the datapath number that follows from a name in dummy mode, as tests written for OVS
/// expect: `p3` is 3, `br1` is 101.
fn dummy_number(name: &str) -> Option<datapath::PortNo> {
    let start = if name.starts_with("br") { 100 } else { 0 };
    let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let number: u32 = digits.get(..end)?.parse().ok()?;
    let number = number.checked_add(start)?;
    (1..MAX_OFPORT).contains(&number).then_some(datapath::PortNo(number))
}

/// Finishes a port that was just added, and reports it to controllers.
fn added(context: &mut Context<'_>, index: BridgeIndex, number: PortNo, form: &Form) {
    let Some(bridge) = context.switch.bridge_mut(index) else { return };
    let name = bridge.name.clone();
    let Some(port) = bridge.ports.get_mut(&number) else { return };
    match form {
        Form::Device { shown, .. } => port.kind = *shown,
        Form::Tunnel { .. } | Form::Patch { .. } => {
            port.status.mac = of_name(&name, &port.name).0;
        }
    }
    // As with Open vSwitch a port is there first, and live then.
    if let Some(desc) = context.switch.hold_new_port(index, number) {
        context.connections.port_status(index, PortEvent::Added(&desc));
    }
}

/// Applies the settings of open ports: options of dummies, addresses, MTU, policing.
pub(super) fn configure(
    context: &mut Context<'_>,
    system: &SystemDatapath,
    bridge: &mut BridgeState,
    wanted: &DesiredBridge,
    remarks: &mut Remarks,
) {
    for row in wanted.interfaces() {
        let Some(state) = bridge.interfaces.get_mut(&row.name) else { continue };
        state.uuid = row.uuid;
        let Some(number) = state.number else { continue };
        state.error = None;
        if let Some(Form::Patch { peer }) = &state.form {
            if !is_connected(context.switch, &row.name, peer) {
                state.error = Some(format!(
                    "No usable peer '{peer}' exists in '{}' datapath.",
                    shown_type(wanted)
                ));
            }
            continue;
        }
        let form = system.form(row, wanted, context.dummy);
        if let Ok(form @ Form::Tunnel { .. }) = form {
            if let Form::Tunnel { complaints: Some(text), .. } = &form {
                remarks.warn(text.as_str());
            }
            state.form = Some(form);
            continue;
        }
        let Some(port) = port(context.switch, bridge.index, number) else { continue };
        let Some(device) = port.device.clone() else { continue };
        let status = port.status.clone();
        let dp_port = port.dp_port;
        let mut touched = false;
        if state.options != row.options {
            state.options = row.options.clone();
            if let Some(dummy) = netdev::dummy::lookup(&row.name)
                && let Err(error) = dummy.configure(&row.options)
            {
                remarks.warn(error.to_string());
            }
        }
        if row.name == wanted.name {
            if row.mac.is_some() {
                remarks.warn(format!(
                    "interface {}: ignoring mac in Interface record (use Bridge record to set local port's mac)",
                    row.name
                ));
            }
        } else if state.is_internal()
            && let Some(mac) = row.mac
            && state.mac != Some(mac)
        {
            let mut set = Ok(());
            if mac.0 != status.mac {
                touched = true;
                set = device.set_mac(mac.0);
            }
            match set {
                Ok(()) => state.mac = Some(mac),
                Err(error) => {
                    remarks.warn(format!("interface {}: setting MAC failed ({error})", row.name));
                }
            }
        }
        state.mtu = row.mtu;
        if let Some(mtu) = row.mtu.filter(|mtu| *mtu != status.mtu) {
            touched = true;
            if let Err(error) = device.set_mtu(mtu) {
                remarks.warn(mtu_failed(&row.name, mtu, &error, status.mtu_range));
            }
        }
        if state.policing != row.policing
            && let Some(dp_port) = dp_port
        {
            match context.switch.datapath().set_policing(dp_port, row.policing) {
                Ok(()) => state.policing = row.policing,
                Err(error) => remarks.warn(error.to_string()),
            }
        }
        if state.placing != row.placing()
            && let (Some(placed), Some(dp_port)) = (context.placed, dp_port)
            && NUMBERING.to_kernel(dp_port).is_none()
        {
            let spec = PortSpec {
                name: row.name.clone(),
                options: row.options.clone(),
                other_config: row.other_config.clone(),
                ..PortSpec::default()
            };
            match placed.retier(dp_port, &spec) {
                Ok(()) => state.placing = row.placing(),
                Err(error) => {
                    let error = error.to_string();
                    remarks.warn(format!("interface {error}")); // it begins with the name
                    state.error = Some(error);
                }
            }
        }
        if touched {
            refresh(context, bridge.index, number);
        }
    }
    internal_mtu(context, bridge, wanted, remarks);
}

/// Gives internal ports the lowest MTU of the bridge's other ports, unless their row asks for
/// another MTU. This happens when the lowest MTU changes, when an internal port is new, and when an
/// internal port's MTU is higher. A lower MTU that a person has set stays until then, as in OVS.
fn internal_mtu(
    context: &mut Context<'_>,
    bridge: &mut BridgeState,
    wanted: &DesiredBridge,
    remarks: &mut Remarks,
) {
    let Some(b) = context.switch.bridge(bridge.index) else { return };
    let mtu_of = |s: &InterfaceState| {
        let port = b.ports.get(&s.number?)?;
        (!port.is_virtual()).then_some(port.status.mtu).filter(|mtu| *mtu != 0)
    };
    let lowest = bridge.interfaces.values().filter(|s| !s.follows_mtu()).filter_map(mtu_of).min();
    let awaits_device = || {
        let is_closed = |name| bridge.interfaces.get(name).is_some_and(|s| s.number.is_none());
        wanted.interfaces().any(|row| is_closed(&row.name))
    };
    let mtu = match lowest {
        Some(mtu) => mtu,
        // The last port was removed. A port whose device is gone may come back with the device.
        None if bridge.min_mtu.is_some() && !awaits_device() => DEFAULT_MTU,
        None => return,
    };
    let has_changed = bridge.min_mtu.replace(mtu) != Some(mtu);
    let mut followers = Vec::new();
    for (name, state) in &bridge.interfaces {
        let (Some(number), Some(now)) = (state.number, mtu_of(state)) else { continue };
        let is_due = now > mtu || now < mtu && (has_changed || !state.has_bridge_mtu);
        if state.follows_mtu() && is_due {
            followers.push((name.clone(), number));
        }
    }
    for state in bridge.interfaces.values_mut().filter(|s| s.number.is_some()) {
        state.has_bridge_mtu = state.follows_mtu();
    }
    for (name, number) in followers {
        let Some(device) =
            port(context.switch, bridge.index, number).and_then(|p| p.device.clone())
        else {
            continue;
        };
        // A card may accept a larger MTU than a tap does.
        let range = device.status().ok().and_then(|status| status.mtu_range);
        let mtu = range.map_or(mtu, |(_, most)| if most == 0 { mtu } else { mtu.min(most) });
        if let Err(error) = device.set_mtu(mtu) {
            remarks.warn(mtu_failed(&name, mtu, &error, range));
        }
        refresh(context, bridge.index, number);
    }
}

/// Returns the remark about a device that refuses an MTU.
fn mtu_failed(name: &str, mtu: u32, error: &std::io::Error, range: Option<(u32, u32)>) -> String {
    let takes = match range {
        Some((least, 0)) => format!("; it takes {least} and more"),
        Some((least, most)) => format!("; it takes {least} to {most}"),
        None => String::new(),
    };
    format!("interface {name}: setting MTU {mtu} failed ({error}{takes})")
}

fn shown_type(wanted: &DesiredBridge) -> &str {
    if wanted.datapath_type.is_empty() { "system" } else { &wanted.datapath_type }
}

/// Returns true when the peer of the patch port called `name` has that port as its own peer.
fn is_connected(switch: &Switch, name: &str, peer: &str) -> bool {
    switch
        .bridges()
        .filter_map(|b| b.port_by_name(peer))
        .any(|p| p.is_patch() && p.peer.as_deref() == Some(name))
}

fn port(switch: &Switch, index: BridgeIndex, number: PortNo) -> Option<&Port> {
    switch.bridge(index)?.ports.get(&number)
}

/// Reads a port's status again after a change, and reports the change to controllers.
fn refresh(context: &mut Context<'_>, index: BridgeIndex, number: PortNo) {
    let Some(port) = context.switch.bridge_mut(index).and_then(|b| b.ports.get_mut(&number)) else {
        return;
    };
    if let Some(before) = port.refresh() {
        let after = port.desc();
        context
            .connections
            .port_status(index, PortEvent::Modified { before: &before, after: &after });
    }
}

/// Gives the bridge's own port its address.
pub(super) fn set_local_mac(
    context: &mut Context<'_>,
    index: BridgeIndex,
    mac: Mac,
    remarks: &mut Remarks,
) {
    let Some(port) = port(context.switch, index, PortNo::LOCAL) else { return };
    if port.status.mac == mac.0 {
        return;
    }
    let (name, device) = (port.name.clone(), port.device.clone());
    if let Some(device) = device
        && let Err(error) = device.set_mac(mac.0)
    {
        remarks.warn(format!("bridge {name}: setting the address of its port failed ({error})"));
    }
    refresh(context, index, PortNo::LOCAL);
}

/// Makes the bridge's bundles equal to its Port rows. Addresses that were learned on a port whose
/// VLANs changed are forgotten.
pub(super) fn bundles(switch: &mut Switch, index: BridgeIndex, wanted: &DesiredBridge) {
    let Some(bridge) = switch.bridge(index) else { return };
    let bundles: Vec<Bundle> = wanted
        .ports
        .values()
        .map(|port| Bundle {
            settings: port.settings.clone(),
            interfaces: port.interfaces.iter().map(|i| i.name.clone()).collect(),
            bond: port.bond.clone(),
            lacp: port.lacp.clone(),
            lacp_ports: port.interfaces.iter().map(|i| bonds::lacp_port(&i.other_config)).collect(),
        })
        .collect();
    let same = |a: &Bundle, b: &Bundle| {
        vlan::same(&a.settings, &b.settings) && a.interfaces == b.interfaces
    };
    let same_bond = |a: &Bundle, b: &Bundle| {
        (&a.bond, &a.lacp, &a.lacp_ports) == (&b.bond, &b.lacp, &b.lacp_ports)
    };
    if bridge.bundles.len() == bundles.len()
        && bridge.bundles.iter().zip(&bundles).all(|(a, b)| {
            same(a, b) && same_bond(a, b) && a.settings.snooping == b.settings.snooping
        })
    {
        return;
    }
    let mut changed = Vec::new();
    for bundle in &bundles {
        let old = bridge.bundles.iter().find(|b| b.settings.name == bundle.settings.name);
        if old.is_some_and(|old| !same(old, bundle)) {
            changed.extend(
                bundle.interfaces.iter().filter_map(|i| bridge.port_by_name(i)).map(|p| p.number),
            );
        }
    }
    let Some(bridge) = switch.bridge_mut(index) else { return };
    bridge.bundles = bundles;
    for port in changed {
        bridge.macs.flush_port(port);
        if let Some(multicast) = &bridge.multicast {
            multicast.flush_port(port);
        }
    }
    for bond in wanted.ports.values().filter(|port| port.is_bond()) {
        if let Some(mac) = bond.active {
            bridge.recall_active_member(&bond.settings.name, mac.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_in_16_bits() {
        assert_eq!(short(PortNo::LOCAL), 65534);
        assert_eq!(short(PortNo(7)), 7);
    }

    #[test]
    fn dummy_numbers_follow_names() {
        assert_eq!(dummy_number("p3"), Some(datapath::PortNo(3)));
        assert_eq!(dummy_number("br1"), Some(datapath::PortNo(101)));
        assert_eq!(dummy_number("br0"), Some(datapath::PortNo(100)));
        assert_eq!(dummy_number("p1-p2"), Some(datapath::PortNo(1)));
        assert_eq!(dummy_number("abc"), None);
        assert_eq!(dummy_number("p0"), None);
        assert_eq!(dummy_number("p99999999999"), None);
    }
}

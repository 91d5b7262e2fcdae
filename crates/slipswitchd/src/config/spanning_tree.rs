// SPDX-License-Identifier: Apache-2.0
//! Spanning trees as rows of Bridge and Port ask for them (ovs-vswitchd.conf.db(5), "Spanning Tree
//! Configuration").

use super::desired::{DesiredBridge, DesiredPort, Map};
use super::state::{BridgeState, Remarks};
use bridge::bridge::Bridge;
use bridge::mirror::MirrorOutput;
use bridge::spanning_tree::{Settings, TreeKind, TreePortSettings, TreeSettings, rstp, stp};
use bridge::switch::Switch;
use ovsdb::{Row, StringMap};
use packet::Mac;
use std::collections::{BTreeMap, BTreeSet};

/// Most ports of a tree.
const MAX_STP_PORTS: u16 = 255;
const MAX_RSTP_PORTS: u16 = 4095;
/// Priority of bridges and ports without a setting.
const PRIORITY: u16 = 0x8000;
const PORT_PRIORITY: u8 = 128;

/// The spanning tree protocols that a Bridge row asks for, and its settings of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DesiredTree {
    is_stp: bool,
    is_rstp: bool,
    config: Map,
}

/// Returns the settings of spanning trees in a Bridge row.
pub(super) fn read(row: &Row) -> DesiredTree {
    DesiredTree {
        is_stp: row.bool("stp_enable"),
        is_rstp: row.bool("rstp_enable"),
        config: keys(&row.map("other_config")),
    }
}

/// Returns the settings of spanning trees in the `other_config` of a Port row.
pub(super) fn read_port(row: &Row) -> Map {
    keys(&row.map("other_config"))
}

fn keys(config: &StringMap<'_>) -> Map {
    let is_tree = |key: &str| key.starts_with("stp-") || key.starts_with("rstp-");
    let pairs = config.iter().filter(|(key, _)| is_tree(key));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Applies the settings of the bridge's spanning tree. Ports, mirrors and the bridge's address must
/// be those of `row` already.
pub(super) fn sync(
    switch: &mut Switch,
    bridge: &BridgeState,
    row: &DesiredBridge,
    remarks: &mut Remarks,
) {
    let Some(b) = switch.bridge(bridge.index) else { return };
    let DesiredTree { is_stp, is_rstp, .. } = row.tree;
    if is_stp && is_rstp {
        remarks.warn(format!(
            "{}: RSTP and STP are mutually exclusive but both are configured; enabling RSTP",
            row.name
        ));
    }
    let wanted = match (is_rstp, is_stp) {
        (true, _) => Some(rstp_tree(b, bridge.mac, row, remarks)),
        (false, true) => stp_tree(b, bridge.mac, row, remarks),
        (false, false) => None,
    };
    if b.tree_settings != wanted
        && let Some(b) = switch.bridge_mut(bridge.index)
    {
        b.tree_settings = wanted;
    }
}

/// A reader of numbers, with remarks about those that are none.
struct Numbers<'a> {
    row: &'a str,
    config: &'a Map,
    remarks: &'a mut Remarks,
}

impl Numbers<'_> {
    /// Returns the number at `key`, or `default` with a remark when it is none from 0 to `most`.
    fn get(&mut self, key: &str, default: u64, most: u64) -> u64 {
        let Some(text) = self.config.get(key) else { return default };
        let text = text.trim();
        number(text).filter(|n| *n <= most).unwrap_or_else(|| {
            self.remarks.warn(format!(
                "{}: other_config:{key} \"{text}\" is not a number from 0 to {most}, ignored",
                self.row
            ));
            default
        })
    }

    /// Returns a time in milliseconds that is given in seconds.
    fn time(&mut self, key: &str, default: u32) -> u32 {
        let seconds = self.get(key, u64::from(default / 1000), 1_000_000);
        u32::try_from(seconds.saturating_mul(1000)).unwrap_or(u32::MAX)
    }
}

/// Parses a number. As in OVS "0x" begins a hexadecimal and "0" an octal one.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, radix) = match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (text, 10),
    };
    u64::from_str_radix(digits, radix).ok()
}

/// Parses the number of a port; 0, which is none, stands for one that is out of range.
fn port_number(text: &str) -> u16 {
    number(text).and_then(|number| u16::try_from(number).ok()).unwrap_or(0)
}

/// Returns the address at `key`, or the bridge's.
fn address(name: &str, key: &str, config: &Map, mac: Mac, remarks: &mut Remarks) -> [u8; 6] {
    match config.get(key).map(|text| text.parse::<Mac>()) {
        None => mac.0,
        Some(Ok(mac)) => mac.0,
        Some(Err(_)) => {
            remarks.warn(format!("bridge {name}: invalid {key}, defaulting to {mac}"));
            mac.0
        }
    }
}

fn stp_tree(
    b: &Bridge,
    mac: Mac,
    row: &DesiredBridge,
    remarks: &mut Remarks,
) -> Option<TreeSettings> {
    let (name, config) = (&row.name, &row.tree.config);
    let default = stp::Settings::new(address(name, "stp-system-id", config, mac, remarks));
    let label = format!("bridge {name}");
    let mut numbers = Numbers { row: &label, config, remarks };
    let priority = numbers.get("stp-priority", u64::from(PRIORITY), u64::from(u16::MAX));
    let settings = stp::Settings {
        priority: u16::try_from(priority).unwrap_or(PRIORITY),
        hello_time: numbers.time("stp-hello-time", default.hello_time),
        max_age: numbers.time("stp-max-age", default.max_age),
        forward_delay: numbers.time("stp-forward-delay", default.forward_delay),
        ..default
    };
    let mut taken = BTreeSet::new();
    let mut ports = BTreeMap::new();
    let mut free = 1..=MAX_STP_PORTS;
    let mut is_automatic = false;
    for (name, port) in &row.ports {
        let Some(interface) = participant(b, name, port, TreeKind::Stp, remarks) else { continue };
        let config = &port.tree_config;
        let number = match config.get("stp-port-num").map(|text| port_number(text)) {
            None => {
                is_automatic = true;
                let Some(number) = free.next() else {
                    remarks.warn(format!("port {name}: too many STP ports, disabling"));
                    continue;
                };
                number
            }
            Some(number @ 1..=MAX_STP_PORTS) => {
                if !taken.insert(number) {
                    remarks
                        .warn(format!("port {name}: duplicate stp-port-num {number}, disabling"));
                    continue;
                }
                number
            }
            Some(_) => {
                remarks.warn(format!("port {name}: invalid stp-port-num"));
                continue;
            }
        };
        let label = format!("port {name}");
        let mut numbers = Numbers { row: &label, config, remarks };
        let priority = numbers.get("stp-port-priority", u64::from(PORT_PRIORITY), 255);
        let cost = numbers.get("stp-path-cost", 0, u64::from(u16::MAX));
        let settings = port_settings(number, priority, cost);
        ports.insert(interface.to_owned(), settings);
    }
    if !taken.is_empty() && is_automatic {
        remarks.warn(format!(
            "bridge {name}: must manually configure all STP port IDs or none, disabling"
        ));
        return None;
    }
    Some(TreeSettings { bridge: Settings::Stp(settings), ports })
}

/// Returns settings of a port. Cost 0 stands for the one of the link's speed.
fn port_settings(number: u16, priority: u64, cost: u64) -> TreePortSettings {
    TreePortSettings {
        number,
        priority: u8::try_from(priority).unwrap_or(PORT_PRIORITY),
        cost: u32::try_from(cost).ok().filter(|cost| *cost > 0),
        is_admin_edge: false,
        is_auto_edge: true,
        is_point_to_point: true,
        is_admin_up: true,
        checks_migration: false,
    }
}

fn rstp_tree(b: &Bridge, mac: Mac, row: &DesiredBridge, remarks: &mut Remarks) -> TreeSettings {
    let (name, config) = (&row.name, &row.tree.config);
    let default = rstp::Settings::new(address(name, "rstp-address", config, mac, remarks));
    let label = format!("bridge {name}");
    let mut numbers = Numbers { row: &label, config, remarks };
    let priority = numbers.get("rstp-priority", u64::from(PRIORITY), u64::from(u16::MAX));
    let version = match numbers.get("rstp-force-protocol-version", 2, 2) {
        0 => rstp::Version::Stp,
        _ => rstp::Version::Rstp,
    };
    let mut seconds = |key: &str, default: u8, bounds: std::ops::RangeInclusive<u64>| {
        let number = numbers.get(key, default.into(), *bounds.end());
        u8::try_from(number).ok().filter(|n| bounds.contains(&u64::from(*n))).unwrap_or(default)
    };
    let max_age = seconds("rstp-max-age", default.max_age, 6..=40);
    let forward_delay = seconds("rstp-forward-delay", default.forward_delay, 4..=30);
    let hold_count = seconds("rstp-transmit-hold-count", default.hold_count, 1..=10);
    let mut settings = rstp::Settings {
        priority: u16::try_from(priority).unwrap_or(PRIORITY) & 0xf000,
        max_age,
        forward_delay,
        hold_count,
        version,
        ..default
    };
    // IEEE 802.1D-2004, 17.14.
    if 2 * (forward_delay - 1) < max_age {
        remarks.warn(format!(
            "bridge {name}: rstp-max-age {max_age} is too long for rstp-forward-delay \
             {forward_delay}, defaults are taken"
        ));
        (settings.max_age, settings.forward_delay) = (default.max_age, default.forward_delay);
    }
    TreeSettings { bridge: Settings::Rstp(settings), ports: rstp_ports(b, row, remarks) }
}

fn rstp_ports(
    b: &Bridge,
    row: &DesiredBridge,
    remarks: &mut Remarks,
) -> BTreeMap<String, TreePortSettings> {
    let wanted =
        |port: &DesiredPort| port.tree_config.get("rstp-port-num").map(|text| port_number(text));
    let mut taken = BTreeSet::new();
    let mut members = Vec::new();
    for (name, port) in &row.ports {
        let Some(interface) = participant(b, name, port, TreeKind::Rstp, remarks) else { continue };
        let number = match wanted(port) {
            Some(0 | 4096..) => {
                remarks.warn(format!("port {name}: invalid rstp-port-num"));
                continue;
            }
            // A number that another port has counts as none, as in OVS.
            Some(number) => taken.insert(number).then_some(number),
            None => None,
        };
        members.push((name, port, interface, number));
    }
    let mut ports = BTreeMap::new();
    for (name, port, interface, number) in members {
        let free = || (1..=MAX_RSTP_PORTS).find(|number| !taken.contains(number));
        let Some(number) = number.or_else(free) else {
            remarks.warn(format!("port {name}: too many RSTP ports, disabling"));
            continue;
        };
        taken.insert(number);
        let config = &port.tree_config;
        let label = format!("port {name}");
        let mut numbers = Numbers { row: &label, config, remarks };
        let priority = numbers.get("rstp-port-priority", u64::from(PORT_PRIORITY), 240) & 0xf0;
        // The manual and the program name the cost differently.
        let cost = numbers.get("rstp-path-cost", 0, 200_000_000);
        let cost = numbers.get("rstp-port-path-cost", cost, 200_000_000);
        let is_point_to_point = numbers.get("rstp-admin-p2p-mac", 1, 2) == 1;
        let flag = |key: &str, default: bool| match config.get(key).map(String::as_str) {
            Some("true") => true,
            Some(text) if !default || text == "false" => false,
            Some(_) | None => default,
        };
        let settings = TreePortSettings {
            is_admin_edge: flag("rstp-port-admin-edge", false),
            is_auto_edge: flag("rstp-port-auto-edge", true),
            is_point_to_point,
            is_admin_up: flag("rstp-admin-port-state", true),
            checks_migration: flag("rstp-port-mcheck", false),
            ..port_settings(number, priority, cost)
        };
        ports.insert(interface.to_owned(), settings);
    }
    ports
}

/// Returns the interface of a port that takes part in the spanning tree. Bonds, internal ports and
/// ports of mirrors take no part.
fn participant<'a>(
    b: &Bridge,
    name: &str,
    port: &'a DesiredPort,
    kind: TreeKind,
    remarks: &mut Remarks,
) -> Option<&'a str> {
    let key = match kind {
        TreeKind::Stp => "stp-enable",
        TreeKind::Rstp => "rstp-enable",
    };
    if port.tree_config.get(key).is_some_and(|text| text == "false") {
        return None;
    }
    let [interface] = &port.interfaces[..] else {
        let protocol = kind.name();
        remarks.warn(format!("port {name}: cannot enable {protocol} on bonds, disabling"));
        return None;
    };
    let output = MirrorOutput::Bundle(name.to_owned());
    let is_mirror = b.mirrors.iter().any(|mirror| mirror.output == output);
    (interface.kind != "internal" && !is_mirror).then_some(&interface.name)
}

// SPDX-License-Identifier: Apache-2.0
//! Ports by name and by number, and their texts.

use crate::daemon::Daemon;
use bridge::bridge::Bridge;
use datapath::{Datapath, PortInfo, PortKind};
use hashbrown::HashMap;
use openflow::PortNo;

/// Names of ports, both ways.
#[derive(Debug, Default)]
pub(super) struct PortNames {
    names: HashMap<u32, String>,
    numbers: HashMap<String, u32>,
}

impl PortNames {
    fn new(ports: impl Iterator<Item = (u32, String)>) -> PortNames {
        let names: HashMap<u32, String> = ports.collect();
        let numbers = names.iter().map(|(number, name)| (name.clone(), *number)).collect();
        PortNames { names, numbers }
    }

    /// The datapath's ports.
    pub fn of_datapath(daemon: &Daemon) -> PortNames {
        PortNames::new(daemon.switch.datapath().ports().into_iter().map(|p| (p.number.0, p.name)))
    }

    /// A bridge's OpenFlow ports.
    pub fn of_bridge(bridge: &Bridge) -> PortNames {
        PortNames::new(bridge.ports.values().map(|p| (p.number.0, p.name.clone())))
    }

    /// A port's name.
    pub fn name(&self, number: u32) -> Option<String> {
        self.names.get(&number).cloned()
    }

    /// A port's number.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }
}

/// The type of a port as OVS names it: its userspace datapath makes internal ports from TAP
/// devices.
pub(super) fn kind_text(daemon: &Daemon, kind: PortKind) -> &'static str {
    match kind {
        PortKind::Vport => PortKind::System.as_str(),
        PortKind::InternalVport => PortKind::Internal.as_str(),
        PortKind::Internal if datapath_type(daemon) == "netdev" => PortKind::Tap.as_str(),
        kind => kind.as_str(),
    }
}

/// The part of the datapath's name before the `@`.
pub(super) fn datapath_type(daemon: &Daemon) -> &str {
    let name = daemon.switch.datapath().name();
    name.split_once('@').map_or(name, |(kind, _)| kind)
}

/// Ports in order of their numbers.
pub(super) fn sorted(datapath: &dyn Datapath) -> Vec<PortInfo> {
    let mut ports = datapath.ports();
    ports.sort_by_key(|p| p.number);
    ports
}

/// Returns the short text of an OpenFlow port: `LOCAL` for the bridge's own.
pub(super) fn openflow_text(port: PortNo) -> String {
    port.reserved_name().map_or_else(|| port.0.to_string(), str::to_owned)
}

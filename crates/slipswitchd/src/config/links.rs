// SPDX-License-Identifier: Apache-2.0
//! Links of the interfaces of bonds whose registers decide (`other_config:bond-detect-mode=miimon`).
//!
//! Registers change without events, so that a task checks them: all of them after the shortest interval
//! of any bond.

use super::Configuration;
use super::desired::DesiredBridge;
use bridge::snapshot::BridgeIndex;
use bridge::switch::Switch;
use netdev::LinkSource;
use std::time::Duration;
use tokio::sync::watch;

/// Makes the sources of link states those of the Port rows of a bridge.
pub(super) fn sync(switch: &Switch, index: BridgeIndex, wanted: &DesiredBridge) {
    let Some(bridge) = switch.bridge(index) else { return };
    for port in wanted.ports.values() {
        let source = match port.miimon {
            Some(_) => LinkSource::Registers,
            None => LinkSource::Carrier,
        };
        for interface in &port.interfaces {
            let Some(port) = bridge.port_by_name(&interface.name) else { continue };
            let Some(device) = &port.device else { continue };
            device.set_link_source(source);
        }
    }
}

/// Sets the time between two checks. Returns true when it has changed.
pub(super) fn set_interval<'a>(
    interval: &mut Option<Duration>,
    bridges: impl Iterator<Item = &'a &'a DesiredBridge>,
) -> bool {
    let ports = bridges.flat_map(|bridge| bridge.ports.values());
    let shortest = ports.filter_map(|port| port.miimon).min();
    let wanted = shortest.map(|ms| Duration::from_millis(ms.into()));
    std::mem::replace(interval, wanted) != wanted
}

impl Configuration {
    /// Returns the time between two checks of links without events; `None` where there is none.
    pub(crate) fn link_polls(&self) -> watch::Receiver<Option<Duration>> {
        self.state.link_polls.subscribe()
    }

    /// Returns true when the link of a bond's interface has changed without an event.
    pub(crate) fn has_changed_link(&self, switch: &Switch) -> bool {
        let bridges = self.state.bridges.values().filter_map(|bridge| switch.bridge(bridge.index));
        let mut members = bridges.flat_map(|bridge| {
            let bonds = bridge.bundles.iter().filter(|bundle| bundle.interfaces.len() > 1);
            bonds.flat_map(|bond| &bond.interfaces).filter_map(|name| bridge.port_by_name(name))
        });
        members.any(|port| {
            let status = port.device.as_ref().and_then(|device| device.status().ok());
            status.is_some_and(|status| status.link_up != port.status.link_up)
        })
    }
}

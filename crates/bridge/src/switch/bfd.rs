// SPDX-License-Identifier: Apache-2.0
//! BFD of ports: what the control thread does for it.

use super::{Dirty, Switch, mark};
use crate::bfd::{Monitor, Received, Settings};
use crate::snapshot::BridgeIndex;
use openflow::PortNo;
use std::sync::Arc;

impl Switch {
    /// Turns BFD of a port on with `settings`, or off. A port that has it already keeps its session.
    /// The next publication takes the change over. Does nothing without the port.
    pub fn set_bfd(&mut self, index: BridgeIndex, number: PortNo, settings: Option<&Settings>) {
        let now = self.clock.now();
        let Some(bridge) = self.bridges.get_mut(index.0).and_then(Option::as_mut) else { return };
        let Some(port) = bridge.ports.get_mut(&number) else { return };
        match (&port.bfd, settings) {
            (None, None) => return,
            (Some(bfd), Some(settings)) => {
                if !bfd.configure(settings, now) {
                    return;
                }
                self.slow.protocols.wake();
            }
            (Some(_), None) => port.bfd = None,
            (None, Some(settings)) => {
                let received = match &port.device {
                    Some(device) => Received::Device(Arc::clone(device)),
                    None => Received::Virtual(Arc::clone(&port.virtual_stats)),
                };
                port.bfd =
                    Some(Arc::new(Monitor::new(&port.name, number, received, settings, now)));
            }
        }
        mark(&mut self.dirty, index, Dirty::All);
    }

    /// Overrides whether ports with BFD may carry traffic: that of the interface called `name`, or all
    /// (`bfd/set-forwarding`). Returns false when there is none with that name.
    pub fn force_bfd(&mut self, name: Option<&str>, forced: Option<bool>) -> bool {
        let ports = self.bridges.iter().flatten().flat_map(|bridge| bridge.ports.values());
        let named = ports.filter(|port| name.is_none_or(|name| port.name == name));
        let mut is_found = name.is_none();
        for bfd in named.filter_map(|port| port.bfd.as_ref()) {
            bfd.force_forwarding(forced);
            is_found = true;
        }
        self.slow.protocols.mark_changed();
        is_found
    }
}

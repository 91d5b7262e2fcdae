// SPDX-License-Identifier: Apache-2.0
//! Protocols of single ports that watch the path to the other end, or announce the port: what the
//! control thread does for them.
//!
//! Each setter marks the bridge, so that the next publication registers new machines, and translation
//! follows.

use super::Switch;
use crate::bfd::{self, Monitor};
use crate::bridge::Bridge;
use crate::cfm::{self, CfmPort, PortSettings, SettingsError};
use crate::lldp::{self, LldpPort};
use crate::port::Port;
use crate::snapshot::BridgeIndex;
use crate::tunnel::OrFlow;
use openflow::PortNo;
use std::sync::Arc;

impl Switch {
    /// Sets connectivity fault management of a port; `None` turns it off. Does nothing for a port that
    /// is not there.
    ///
    /// # Errors
    ///
    /// Fails when the settings make no sense. It is off then.
    pub fn set_cfm(
        &mut self,
        index: BridgeIndex,
        number: PortNo,
        wanted: Option<PortSettings>,
    ) -> Result<(), SettingsError> {
        let now = self.clock.now();
        let Some(port) = self.bridge(index).and_then(|b| b.ports.get(&number)) else {
            return Ok(());
        };
        // As in OVS: such a tunnel carries the packets of others under other keys.
        let checks_key = port.tunnel.as_ref().is_some_and(|t| t.in_key == Some(OrFlow::Flow));
        let is_same = match (&port.cfm, &wanted) {
            (None, None) => true,
            (Some(is), Some(wanted)) => is.has(wanted, checks_key),
            _ => false,
        };
        if is_same {
            return Ok(());
        }
        let made = match (wanted, port.cfm.clone()) {
            (None, _) => Ok(None),
            (Some(wanted), Some(is)) => is.configure(wanted, checks_key, now).map(|()| Some(is)),
            (Some(wanted), None) => {
                CfmPort::new(wanted, link(port), checks_key, now).map(|made| Some(Arc::new(made)))
            }
        };
        let (machine, result) = match made {
            Ok(machine) => (machine, Ok(())),
            Err(error) if port.cfm.is_none() => return Err(error),
            Err(error) => (None, Err(error)),
        };
        if let Some(port) = self.bridge_mut(index).and_then(|b| b.ports.get_mut(&number)) {
            port.cfm = machine;
        }
        self.slow.protocols.wake();
        result
    }

    /// Turns BFD of a port on with `settings`, or off. A port that has it already keeps its session.
    /// Does nothing without the port.
    pub fn set_bfd(
        &mut self,
        index: BridgeIndex,
        number: PortNo,
        settings: Option<&bfd::Settings>,
    ) {
        let now = self.clock.now();
        let Some(port) = self.bridge(index).and_then(|b| b.ports.get(&number)) else { return };
        let made = match (settings, port.bfd.clone()) {
            (None, None) => return,
            (None, Some(_)) => None,
            (Some(settings), Some(is)) => {
                if !is.configure(settings, now) {
                    return;
                }
                Some(is)
            }
            (Some(settings), None) => {
                let received = port.received();
                Some(Arc::new(Monitor::new(&port.name, number, received, settings, now)))
            }
        };
        if let Some(port) = self.bridge_mut(index).and_then(|b| b.ports.get_mut(&number)) {
            port.bfd = made;
        }
        self.slow.protocols.wake();
    }

    /// Sets LLDP of a port; `None` removes it. As in OVS, a port that never had it enabled does not get
    /// it by settings that are not. Returns true when the port has LLDP now.
    pub fn set_lldp(
        &mut self,
        index: BridgeIndex,
        number: PortNo,
        wanted: Option<lldp::Settings>,
    ) -> bool {
        let now = self.clock.now();
        let Some(port) = self.bridge(index).and_then(|b| b.ports.get(&number)) else {
            return false;
        };
        let made = match (wanted, port.lldp.clone()) {
            (None, None) => return false,
            (Some(wanted), None) if !wanted.is_enabled => return false,
            (Some(wanted), Some(is)) if is.has(&wanted) => return true,
            (None, Some(_)) => None,
            (Some(wanted), Some(is)) => {
                is.configure(wanted, now);
                Some(is)
            }
            (Some(wanted), None) => {
                let mac = port.status.mac;
                Some(Arc::new(LldpPort::new(wanted, number, &port.name, mac, now)))
            }
        };
        let has_lldp = made.is_some();
        if let Some(port) = self.bridge_mut(index).and_then(|b| b.ports.get_mut(&number)) {
            port.lldp = made;
        }
        self.slow.protocols.wake();
        has_lldp
    }

    /// Sets the faults of connectivity fault management on one interface, or on all: some, none, or the
    /// real ones (`None`). Returns false when the interface has none.
    pub fn force_cfm_fault(&mut self, interface: Option<&str>, is_faulty: Option<bool>) -> bool {
        self.force(interface, |port| port.cfm.as_ref().map(|cfm| cfm.force(is_faulty)))
    }

    /// Overrides whether ports with BFD may carry traffic: that of one interface, or all
    /// (`bfd/set-forwarding`). Returns false when the interface has none.
    pub fn force_bfd(&mut self, interface: Option<&str>, forced: Option<bool>) -> bool {
        self.force(interface, |port| port.bfd.as_ref().map(|bfd| bfd.force_forwarding(forced)))
    }

    /// Overrides the machine of one interface, or those of all. `force` returns `None` for a port
    /// without one. Returns false when the interface has none. The next publication takes the change
    /// over.
    fn force(&self, interface: Option<&str>, force: impl Fn(&Port) -> Option<()>) -> bool {
        let ports = self.bridges().flat_map(|bridge| bridge.ports.values());
        let named = ports.filter(|port| interface.is_none_or(|name| port.name == name));
        let forced = named.filter_map(force).count();
        self.slow.protocols.mark_changed();
        interface.is_none() || forced > 0
    }
}

impl Bridge {
    /// Returns connectivity fault management of the ports that have it, with their names.
    pub fn cfms(&self) -> impl Iterator<Item = (&str, &Arc<CfmPort>)> {
        self.ports.values().filter_map(|port| Some((port.name.as_str(), port.cfm.as_ref()?)))
    }

    /// Returns BFD of the ports that have it, with their names.
    pub fn bfds(&self) -> impl Iterator<Item = (&str, &Arc<Monitor>)> {
        self.ports.values().filter_map(|port| Some((port.name.as_str(), port.bfd.as_ref()?)))
    }

    /// Returns LLDP of the ports that have it, with their names.
    pub fn lldps(&self) -> impl Iterator<Item = (&str, &Arc<LldpPort>)> {
        self.ports.values().filter_map(|port| Some((port.name.as_str(), port.lldp.as_ref()?)))
    }
}

fn link(port: &Port) -> cfm::Link {
    cfm::Link {
        number: port.number,
        name: port.name.clone(),
        mac: port.status.mac,
        received: port.received(),
    }
}

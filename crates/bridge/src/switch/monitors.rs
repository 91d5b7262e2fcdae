// SPDX-License-Identifier: Apache-2.0
//! Protocols of single ports that watch the path to the other end, or announce the port.

use super::Switch;
use crate::bridge::Bridge;
use crate::cfm::{self, CfmPort, PortSettings, SettingsError};
use crate::lldp::{self, LldpPort};
use crate::port::Port;
use crate::protocol::Protocol;
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
        self.register_cfm(index);
        result
    }

    /// Has the machines of a bridge run that its ports have now.
    pub(super) fn register_cfm(&self, index: BridgeIndex) {
        let Some(bridge) = self.bridge(index) else { return };
        let machines = bridge.ports.values().filter_map(|port| port.cfm.clone());
        let machines = machines.map(|machine| machine as Arc<dyn Protocol>).collect();
        self.slow.protocols.register(index, cfm::REASON, machines);
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
        self.register_lldp(index);
        has_lldp
    }

    /// Has the agents of a bridge run that its ports have now.
    pub(super) fn register_lldp(&self, index: BridgeIndex) {
        let Some(bridge) = self.bridge(index) else { return };
        let machines = bridge.ports.values().filter_map(|port| port.lldp.clone());
        let machines = machines.map(|machine| machine as Arc<dyn Protocol>).collect();
        self.slow.protocols.register(index, lldp::REASON, machines);
    }

    /// Sets the faults of connectivity fault management on one interface, or on all: some, none, or the
    /// real ones (`None`). Returns false when the interface has none.
    pub fn force_cfm_fault(&mut self, interface: Option<&str>, is_faulty: Option<bool>) -> bool {
        let mut ports = self.bridges().flat_map(Bridge::cfms);
        let is_found = match interface {
            None => {
                ports.for_each(|(_, cfm)| cfm.force(is_faulty));
                true
            }
            Some(wanted) => match ports.find(|(name, _)| *name == wanted) {
                Some((_, cfm)) => {
                    cfm.force(is_faulty);
                    true
                }
                None => false,
            },
        };
        self.slow.protocols.mark_changed(); // the next publication takes the change over
        is_found
    }
}

impl Bridge {
    /// Returns connectivity fault management of the ports that have it, with their names.
    pub fn cfms(&self) -> impl Iterator<Item = (&str, &Arc<CfmPort>)> {
        self.ports.values().filter_map(|port| Some((port.name.as_str(), port.cfm.as_ref()?)))
    }

    /// Returns LLDP of the ports that have it, with their names.
    pub fn lldps(&self) -> impl Iterator<Item = (&str, &Arc<LldpPort>)> {
        self.ports.values().filter_map(|port| Some((port.name.as_str(), port.lldp.as_ref()?)))
    }

    /// Returns true when a port is watched by a protocol, or is down because of one that watched it, or
    /// announces its address.
    pub(crate) fn has_monitors(&self) -> bool {
        let has_one = |port: &Port| port.cfm.is_some() || port.lldp.is_some();
        self.ports.values().any(|port| !port.is_allowed || has_one(port))
    }

    /// Returns true when a control protocol may change a port or a bond.
    pub(crate) fn has_protocols(&self) -> bool {
        self.has_bonds() || self.has_bfd() || self.has_monitors()
    }
}

fn link(port: &Port) -> cfm::Link {
    cfm::Link {
        number: port.number,
        name: port.name.clone(),
        mac: port.status.mac,
        device: port.device.clone(),
        virtual_stats: Arc::clone(&port.virtual_stats),
    }
}

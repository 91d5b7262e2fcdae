// SPDX-License-Identifier: Apache-2.0
//! Devices of the host that are ports of no bridge, and over which tunnels go.
//!
//! Each has a hidden port in the datapath ([`PortKind::Underlay`]): no bridge has it, and only
//! packets of tunnels enter by it. [`HostPorts`] is the control thread's record of these ports,
//! [`Hosts`] is the immutable copy that translation reads.

use datapath::{Datapath, PortError, PortKind, PortNo, PortSpec};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use underlay::{Device, Devices};

/// A device of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDevice {
    /// Its name.
    pub name: Arc<str>,
    /// Its hidden port.
    pub number: PortNo,
    /// Its Ethernet address.
    pub mac: [u8; 6],
}

/// The devices of the host, by names and by hidden ports.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    by_name: HashMap<Arc<str>, Arc<HostDevice>>,
    by_port: HashMap<PortNo, Arc<HostDevice>>,
}

impl Hosts {
    /// Returns these devices.
    pub fn new(devices: impl IntoIterator<Item = HostDevice>) -> Hosts {
        let mut hosts = Hosts::default();
        for device in devices.into_iter().map(Arc::new) {
            hosts.by_name.insert(Arc::clone(&device.name), Arc::clone(&device));
            hosts.by_port.insert(device.number, device);
        }
        hosts
    }

    /// Returns true when there is no device.
    pub fn is_empty(&self) -> bool {
        self.by_port.is_empty()
    }

    /// Returns the device called `name`.
    pub fn named(&self, name: &str) -> Option<&HostDevice> {
        self.by_name.get(name).map(|device| &**device)
    }

    /// Returns the device with this hidden port.
    pub fn at(&self, port: PortNo) -> Option<&HostDevice> {
        self.by_port.get(&port).map(|device| &**device)
    }
}

/// The hidden ports, by the names of their devices.
#[derive(Debug, Default)]
pub(crate) struct HostPorts(BTreeMap<Arc<str>, HostPort>);

#[derive(Debug)]
struct HostPort {
    /// The kernel's index of the device.
    index: u32,
    /// `None`: the datapath has refused the device.
    number: Option<PortNo>,
}

impl HostPorts {
    /// Makes the hidden ports those of the devices in `wanted`: removes others, and those whose device
    /// is another one of that name by now, and adds missing ones. Returns true when a port was added
    /// or removed. A device that the datapath has refused is tried again when it has another index.
    pub(crate) fn follow(&mut self, datapath: &dyn Datapath, wanted: &Devices) -> bool {
        let is_same = |name: &str, port: &HostPort| {
            wanted.get(name).is_some_and(|device| device.index == port.index)
        };
        let gone: Vec<(Arc<str>, HostPort)> =
            self.0.extract_if(.., |name, port| !is_same(name, port)).collect();
        let mut is_changed = false;
        for (name, port) in gone {
            is_changed |= remove(datapath, &name, &port);
        }
        for (name, device) in wanted {
            if self.0.contains_key(name) {
                continue;
            }
            let number = match add(datapath, name) {
                // A port of a bridge that is about to be removed.
                Err(PortError::Exists(_)) => continue,
                Err(error) => {
                    tracing::warn!(
                        target: "tunnel",
                        "{name}: no tunnel can go over this device of the host ({error})"
                    );
                    None
                }
                Ok(number) => Some(number),
            };
            is_changed |= number.is_some();
            self.0.insert(Arc::clone(name), HostPort { index: device.index, number });
        }
        is_changed
    }

    /// Removes the hidden port of the device called `name`, which becomes a port of a bridge.
    pub(crate) fn release(&mut self, datapath: &dyn Datapath, name: &str) {
        if let Some(port) = self.0.remove(name) {
            remove(datapath, name, &port);
        }
    }

    /// Returns the numbers of the hidden ports.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = PortNo> {
        self.0.values().filter_map(|port| port.number)
    }

    /// Returns the devices with hidden ports, as translation reads them.
    pub(crate) fn hosts(&self, devices: &Devices) -> Hosts {
        let host = |(name, port): (&Arc<str>, &HostPort)| {
            let Device { mac, .. } = devices.get(name)?;
            Some(HostDevice { name: Arc::clone(name), number: port.number?, mac: mac.0 })
        };
        Hosts::new(self.0.iter().filter_map(host))
    }
}

fn add(datapath: &dyn Datapath, name: &str) -> Result<PortNo, PortError> {
    let spec = PortSpec { name: name.to_owned(), kind: PortKind::Underlay, ..PortSpec::default() };
    let number = datapath.add_port(&spec)?;
    tracing::info!(target: "tunnel", "{name}: a device of the host, over which tunnels go");
    Ok(number)
}

/// Returns true when there was a port.
fn remove(datapath: &dyn Datapath, name: &str, port: &HostPort) -> bool {
    let Some(number) = port.number else { return false };
    if let Err(error) = datapath.remove_port(number) {
        tracing::warn!(
            target: "tunnel",
            "could not remove the device {name} of the host from the datapath ({error})"
        );
    }
    true
}

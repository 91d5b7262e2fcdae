// SPDX-License-Identifier: Apache-2.0
//! Tunnel ports of the switch, and the datapath ports that stand for them.

use super::{Dirty, Switch, mark};
use crate::snapshot::BridgeIndex;
use crate::tunnel::{
    AddressedDevice, Config, Listening, Output, Tunnels, Vport, VportMatch, Vports,
};
use ::tunnel::SourcePorts;
use datapath::{PortError, PortNo as DpPort, TunnelKind};
use hashbrown::{HashMap, HashSet};
use openflow::PortNo;
use packet::Mac;
use std::sync::Arc;
use underlay::{Device, Devices, Query, Underlay, is_wide};

impl Switch {
    /// Changes the options of a tunnel port, which keeps its number. `wanted` is the wanted number
    /// of the datapath port, when another one must stand for the tunnel from now on.
    ///
    /// A datapath port cannot change its options. It is closed and opened again, if this tunnel port
    /// is its only one.
    ///
    /// # Errors
    ///
    /// There is no such tunnel port, or the options collide with those of another one: the port stays
    /// as it was. Or the datapath cannot open the port with the new options, after it has closed the
    /// earlier one: then no datapath port stands for the tunnel.
    pub fn set_tunnel(
        &mut self,
        index: BridgeIndex,
        number: PortNo,
        config: Arc<Config>,
        wanted: Option<DpPort>,
    ) -> Result<(), PortError> {
        let not_found = || PortError::NotFound(number.to_string());
        let port = self.bridge(index).and_then(|b| b.ports.get(&number)).ok_or_else(not_found)?;
        let before = port.tunnel.clone().ok_or_else(not_found)?;
        if before == config {
            return Ok(());
        }
        let (name, mut held) = (port.name.clone(), port.dp_port);
        self.check_tunnel(&name, &config, Some((index, number)))?;
        if self.backings.has_other_options(&config) {
            self.change_tunnel(index, number, Arc::clone(&before), None);
            if held.take().is_some() {
                self.release_backing(&before);
            }
        }
        let backing = self.backings.acquire(&*self.datapath, &config, wanted)?;
        self.change_tunnel(index, number, config, Some(backing));
        if held.is_some() {
            self.release_backing(&before);
        }
        Ok(())
    }

    /// Publishes a tunnel port with these options and this datapath port. Packet threads then do not
    /// translate to the earlier datapath port, which may be closed.
    fn change_tunnel(
        &mut self,
        index: BridgeIndex,
        number: PortNo,
        config: Arc<Config>,
        backing: Option<DpPort>,
    ) {
        let bridge = self.bridges.get_mut(index.0).and_then(Option::as_mut);
        if let Some(port) = bridge.and_then(|b| b.ports.get_mut(&number)) {
            port.kind = config.backing_kind();
            port.tunnel = Some(config);
            port.dp_port = backing;
        }
        self.counters.port_updates += 1;
        mark(&mut self.dirty, index, Dirty::All);
        self.publish();
    }

    /// Returns the datapath port that stands for a new tunnel with these options, from now on for one
    /// vport more.
    pub(super) fn back_tunnel(
        &mut self,
        name: &str,
        config: &Config,
        wanted: Option<DpPort>,
    ) -> Result<DpPort, PortError> {
        self.check_tunnel(name, config, None)?;
        self.backings.acquire(&*self.datapath, config, wanted)
    }

    /// Checks that a tunnel with these options collides with no other one. `own` is the vport itself,
    /// when it exists.
    fn check_tunnel(
        &self,
        name: &str,
        config: &Config,
        own: Option<(BridgeIndex, PortNo)>,
    ) -> Result<(), PortError> {
        let error = |problem| PortError::Option { name: name.to_owned(), problem };
        let conflict = |problem| {
            // Scripts look for Open vSwitch's words.
            tracing::warn!(target: "netdev", "{name}: could not set configuration (File exists)");
            error(problem)
        };
        let others: Vec<_> = self
            .bridges()
            .flat_map(|b| b.ports.values().map(move |port| (b.index, port)))
            .filter(|(index, port)| own != Some((*index, port.number)))
            .filter_map(|(_, port)| Some((port, port.tunnel.as_ref()?, port.dp_port?)))
            .collect();
        let is_vxlan = config.kind == TunnelKind::Vxlan;
        let differs = |other: &Config| {
            other.kind == TunnelKind::Vxlan
                && other.port == config.port
                && other.extensions.gbp != config.extensions.gbp
        };
        if is_vxlan && others.iter().any(|(_, other, _)| differs(other)) {
            return Err(conflict(
                "VXLAN-GBP, and non-VXLAN-GBP tunnels can't be configured on the same dst_port"
                    .to_owned(),
            ));
        }
        // Only vports of the same datapath port can be equal.
        if let Some(backing) = self.backings.number(config) {
            let user = others.iter().find(|(_, _, at)| *at == backing);
            if let Some((other, _, _)) = user.filter(|_| self.backings.has_other_options(config)) {
                return Err(conflict(format!(
                    "port '{}' uses the same dst_port with another exts or payload_type",
                    other.name
                )));
            }
            let wanted = VportMatch::of(config, backing);
            let equal = others.iter().find(|(_, other, at)| VportMatch::of(other, *at) == wanted);
            if let Some((other, _, _)) = equal {
                return Err(error(format!(
                    "attempting to add tunnel port with same config as port '{}' ({wanted})",
                    other.name
                )));
            }
        }
        Ok(())
    }

    /// Returns true when there is a tunnel port whose headers the switch makes.
    pub fn has_tunnels(&self) -> bool {
        self.backings.has_own()
    }

    /// Ends the use of a datapath port by one vport.
    pub(super) fn release_backing(&mut self, config: &Config) {
        if let Err(error) = self.backings.release(&*self.datapath, config) {
            let name = config.backing_name();
            tracing::warn!(target: "bridge", "could not remove port {name} from the datapath ({error})");
        }
        self.mark_all_dirty(); // packets to the host no longer come out of it
    }

    /// Sets the routes and neighbours over which tunnels go. Megaflows follow their changes from
    /// [`Switch::publish`] to [`Switch::publish`].
    pub fn set_underlay(&mut self, underlay: Arc<Underlay>) {
        self.underlay = Some(underlay);
        self.mark_all_dirty();
    }

    /// Returns the way in which packets go into tunnels.
    pub fn tunnel_output(&self) -> Output {
        self.tunnel_output
    }

    /// Sets the actions by which packets go into tunnels.
    pub fn set_tunnel_output(&mut self, output: Output) {
        self.tunnel_output = output;
        self.mark_all_dirty();
    }

    /// Sets the UDP source ports of outer headers.
    pub fn set_source_ports(&mut self, ports: SourcePorts) {
        self.source_ports = ports;
        self.mark_all_dirty();
    }

    /// Returns the UDP source ports of outer headers.
    pub fn source_ports(&self) -> SourcePorts {
        self.source_ports
    }

    /// Marks all bridges for publication when routes, neighbours or addresses have changed: the
    /// actions of megaflows that go into tunnels have them. Without tunnels there are none such, and
    /// the first tunnel port is published with the present state.
    pub(super) fn follow_underlay(&mut self) {
        let Some(underlay) = &self.underlay else { return };
        let sequence = underlay.sequence();
        if self.underlay_sequence == sequence {
            return;
        }
        self.underlay_sequence = sequence;
        if self.backings.has_own() {
            self.mark_all_dirty();
        }
    }

    fn ports_of_devices(&self) -> HashMap<String, (BridgeIndex, PortNo)> {
        let mut all = HashMap::new();
        for bridge in self.bridges() {
            for port in bridge.ports.values().filter(|port| !port.is_virtual()) {
                let at = (bridge.index, port.number);
                let entry = all.entry_ref(port.name.as_str()).or_insert(at);
                if port.name == bridge.name {
                    *entry = at;
                }
            }
        }
        all
    }

    /// Gives the devices of the host over which tunnels go their hidden ports, and removes those of
    /// others: in time before the publication of a change of ports, tunnels or the underlay.
    pub(super) fn follow_hosts(&mut self) {
        let wanted = self.wanted_hosts();
        if self.host_ports.follow(&*self.datapath, &wanted) {
            self.counters.port_updates += 1;
        }
    }

    /// Returns the devices of the host over which tunnels go: those with an address that other links
    /// reach, since packets of tunnels may come to each address, and those of the routes to the other
    /// ends of tunnels. Ports of bridges are not among them.
    fn wanted_hosts(&self) -> Devices {
        let underlay = self.underlay.as_ref();
        let is_pushing = self.tunnel_output == Output::Push && self.backings.has_own();
        let Some(underlay) = underlay.filter(|_| is_pushing) else { return Devices::new() };
        let routes = underlay.routes();
        let ports = || self.bridges().flat_map(|b| b.ports.values());
        let own: HashSet<&str> =
            ports().filter(|p| !p.is_virtual()).map(|p| p.name.as_str()).collect();
        let remotes = ports().filter_map(|port| port.tunnel.as_ref()?.remote.fixed());
        let led_to: HashSet<Arc<str>> =
            remotes.filter_map(|remote| Some(routes.lookup(&Query::to(remote))?.device)).collect();
        let is_wanted = |name: &Arc<str>, device: &Device| {
            let is_there = device.index != 0 && device.is_up && device.mac != Mac::default();
            let has_address = || device.addresses.iter().any(|a| is_wide(a.address()));
            is_there && !own.contains(&**name) && (has_address() || led_to.contains(name))
        };
        let devices = routes.devices().iter().filter(|(name, device)| is_wanted(name, device));
        devices.map(|(name, device)| (Arc::clone(name), device.clone())).collect()
    }

    /// Returns the hidden ports of devices of the host.
    pub fn host_ports(&self) -> impl Iterator<Item = DpPort> {
        self.host_ports.numbers()
    }

    /// Sets the addresses, in the datapath, at which devices of the host receive packets of tunnels.
    pub(super) fn announce_endpoints(&mut self, tunnels: &Tunnels) {
        let endpoints = match tunnels.hosts.is_empty() {
            true => Vec::new(),
            false => tunnels.listening.host_endpoints(),
        };
        if endpoints != self.endpoints {
            self.datapath.set_tunnel_endpoints(&endpoints);
            self.endpoints = endpoints;
        }
    }

    /// Returns all about tunnels that translation reads.
    pub(super) fn tunnels(&self) -> Tunnels {
        let ports = || self.bridges().flat_map(|b| b.ports.values().map(move |p| (b.index, p)));
        let vports = ports().filter_map(|(bridge, port)| {
            let (config, backing) = (port.tunnel.as_ref()?, port.dp_port?);
            Some((VportMatch::of(config, backing), Vport { bridge, port: port.number }))
        });
        let listeners = self.backings.listeners();
        let routes = self.underlay.as_ref().filter(|_| !listeners.is_empty()).map(|u| u.routes());
        let ports_of_devices = match &routes {
            Some(_) => self.ports_of_devices(),
            None => HashMap::new(),
        };
        let mut devices = Vec::new();
        if let Some(routes) = &routes {
            for (name, device) in routes.devices() {
                // The switch knows the addresses of its own devices, dummies among them.
                let own = ports_of_devices.get(&**name);
                let own = own.and_then(|(index, number)| self.bridge(*index)?.ports.get(number));
                devices.push(AddressedDevice {
                    name: name.to_string(),
                    mac: own.map_or(device.mac.0, |port| port.status.mac),
                    addresses: device.addresses.iter().map(|a| a.address()).collect(),
                });
            }
        }
        Tunnels {
            vports: Vports::new(vports),
            listening: Listening::new(listeners, &devices),
            devices: ports_of_devices,
            hosts: routes.as_ref().map(|r| self.host_ports.hosts(r.devices())).unwrap_or_default(),
            underlay: self.underlay.clone(),
            routes_by_mark: routes.is_some_and(|routes| routes.name_marks()),
            output: self.tunnel_output,
            source_ports: self.source_ports,
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Datapath ports that stand for tunnels.

use super::{Config, Listener};
use datapath::{Datapath, PortError, PortKind, PortNo, PortSpec, TunnelKind};
use std::collections::BTreeMap;

/// The datapath ports that stand for tunnels, by name, and the number of their vports.
#[derive(Debug, Default)]
pub(crate) struct Backings(BTreeMap<String, Backing>);

#[derive(Debug)]
struct Backing {
    number: PortNo,
    kind: TunnelKind,
    port: u16,
    /// The options with which it was opened.
    options: BTreeMap<String, String>,
    vports: usize,
}

impl Backings {
    /// Returns true when there is no tunnel port.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of the port that stands for `config`, when it is there.
    pub(crate) fn number(&self, config: &Config) -> Option<PortNo> {
        self.0.get(&config.backing_name()).map(|backing| backing.number)
    }

    /// Returns true when the port that stands for `config` was opened with other options than those
    /// of `config`.
    pub(crate) fn has_other_options(&self, config: &Config) -> bool {
        let backing = self.0.get(&config.backing_name());
        backing.is_some_and(|backing| backing.options != config.backing_options())
    }

    /// Returns the number of the port that stands for `config`, for one vport more. Adds the port
    /// to the datapath when it is the first one. A port that is there has the options of `config`.
    pub(crate) fn acquire(
        &mut self,
        datapath: &dyn Datapath,
        config: &Config,
        wanted: Option<PortNo>,
    ) -> Result<PortNo, PortError> {
        let name = config.backing_name();
        if let Some(backing) = self.0.get_mut(&name) {
            backing.vports += 1;
            return Ok(backing.number);
        }
        let options = config.backing_options();
        let number = datapath.add_port(&PortSpec {
            name: name.clone(),
            kind: PortKind::Tunnel(config.kind),
            options: options.clone(),
            wanted,
            ..PortSpec::default()
        })?;
        let Config { kind, port, .. } = *config;
        self.0.insert(name, Backing { number, kind, port, options, vports: 1 });
        Ok(number)
    }

    /// Returns the ports, in the order of their numbers.
    pub(crate) fn listeners(&self) -> Vec<Listener> {
        let mut all: Vec<Listener> = self
            .0
            .iter()
            .map(|(name, &Backing { number, kind, port, vports, .. })| Listener {
                name: name.clone(),
                number,
                kind,
                port,
                vports,
            })
            .collect();
        all.sort_by_key(|listener| listener.number);
        all
    }

    /// Ends the use of the port by one vport. Removes the port after the last one.
    pub(crate) fn release(
        &mut self,
        datapath: &dyn Datapath,
        config: &Config,
    ) -> Result<(), PortError> {
        let name = config.backing_name();
        let Some(backing) = self.0.get_mut(&name) else { return Ok(()) };
        backing.vports -= 1;
        if backing.vports > 0 {
            return Ok(());
        }
        let number = backing.number;
        self.0.remove(&name);
        datapath.remove_port(number)
    }
}

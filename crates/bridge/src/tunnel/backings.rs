// SPDX-License-Identifier: Apache-2.0
//! Datapath ports that stand for tunnels.

use super::{Config, Listener};
use datapath::{Datapath, PortError, PortNo, PortSpec, TunnelKind};
use std::collections::BTreeMap;

/// The datapath ports that stand for tunnels, by name, and the number of their vports. Those of the
/// kernel have the names of others.
#[derive(Debug, Default)]
pub(crate) struct Backings(BTreeMap<(bool, String), Backing>);

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
    /// Returns true when there is a tunnel port whose headers the switch makes.
    pub(crate) fn has_own(&self) -> bool {
        self.own().next().is_some()
    }

    fn own(&self) -> impl Iterator<Item = (&str, &Backing)> {
        self.0
            .iter()
            .filter(|((is_kernel, _), _)| !is_kernel)
            .map(|((_, name), backing)| (name.as_str(), backing))
    }

    /// Returns the number of the port that stands for `config`, when it is there.
    pub(crate) fn number(&self, config: &Config) -> Option<PortNo> {
        self.0.get(&key(config)).map(|backing| backing.number)
    }

    /// Returns true when the port that stands for `config` was opened with other options than those
    /// of `config`.
    pub(crate) fn has_other_options(&self, config: &Config) -> bool {
        let backing = self.0.get(&key(config));
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
        let key = key(config);
        if let Some(backing) = self.0.get_mut(&key) {
            backing.vports += 1;
            return Ok(backing.number);
        }
        let options = config.backing_options();
        let number = datapath.add_port(&PortSpec {
            name: config.backing_name(),
            kind: config.backing_kind(),
            options: options.clone(),
            wanted,
            ..PortSpec::default()
        })?;
        let Config { kind, port, .. } = *config;
        self.0.insert(key, Backing { number, kind, port, options, vports: 1 });
        Ok(number)
    }

    /// Returns the ports whose headers the switch takes off, in the order of their numbers.
    pub(crate) fn listeners(&self) -> Vec<Listener> {
        let mut all: Vec<Listener> = self
            .own()
            .map(|(name, &Backing { number, kind, port, vports, .. })| Listener {
                name: name.to_owned(),
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
        let key = key(config);
        let Some(backing) = self.0.get_mut(&key) else { return Ok(()) };
        backing.vports -= 1;
        if backing.vports > 0 {
            return Ok(());
        }
        let number = backing.number;
        self.0.remove(&key);
        datapath.remove_port(number)
    }
}

fn key(config: &Config) -> (bool, String) {
    (config.is_kernel, config.backing_name())
}

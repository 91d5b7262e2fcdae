// SPDX-License-Identifier: Apache-2.0
//! A system between two hosts, ready for traffic.

use crate::endpoints::{Endpoints, FIRST_TIMEOUT};
use crate::pin::Cpus;
use crate::rules::Rules;
use crate::system::{Between, Instance, System, Tier};
use crate::topology::{Remote, Topology, Wire};
use anyhow::{Context, Result, ensure};
use slipswitch_tests::harness::Switch;
use std::slice;

/// A running system, and the hosts at its ports.
pub struct HostTestbed {
    pub system: System,
    pub instance: Box<dyn Instance>,
    /// The client at the first port, the server at the second.
    pub endpoints: Endpoints,
    /// Describes the settings that had to be changed by hand, for the page.
    pub note: Option<String>,
    /// Its devices exist as long.
    _topology: Topology,
    third: Option<Wire>,
}

impl HostTestbed {
    /// Starts a system between two containers and waits until the hosts reach each other. Where
    /// packets are to meet XDP, the remote ends are network cards.
    pub fn new(system: System, cpus: Cpus, rules: Rules) -> Result<HostTestbed> {
        let mut instance = system.start(cpus, Between::Hosts).context("starting")?;
        let xdp = matches!(system, System::BareXdp | System::Slipswitch(Tier::Xdp));
        let remote = if xdp { Remote::Card } else { Remote::Container };
        let topology = Topology::around(instance.netns(), remote, remote)?;
        instance.add_ports(1, &topology.ports())?;
        instance.install(rules)?;
        let (one, two) = (&topology.sender.host, &topology.receiver.host);
        let endpoints = Endpoints {
            client: one.netns.clone(),
            server: two.netns.clone(),
            address: two.address().parse()?,
            cpus,
        };
        ensure!(one.reaches(two.address(), FIRST_TIMEOUT), "the hosts do not reach each other");
        let note = xdp.then(|| {
            "the remote ends are network cards, for XDP: NAPI at the ports, no offload at the hosts"
                .into()
        });
        Ok(HostTestbed { system, instance, endpoints, note, _topology: topology, third: None })
    }

    /// Lets TCP and UDP pass: switches the hosts' transmit checksum offload off if the system does
    /// not finish checksums, and notes that.
    pub fn with_tcp(mut self) -> Result<HostTestbed> {
        if let Some(note) = self.endpoints.let_tcp_pass()? {
            self.note = Some(note);
        }
        Ok(self)
    }

    /// With a container at a third port, whose packets are all dropped.
    pub fn with_third(mut self) -> Result<HostTestbed> {
        let wire = Wire::new(self.instance.netns(), "p3", "10.0.0.3/24", Remote::Container)?;
        self.instance.add_ports(3, slice::from_ref(&wire.port))?;
        self.third = Some(wire);
        Ok(self)
    }

    pub fn third(&self) -> Result<&Wire> {
        self.third.as_ref().context("there are two ports")
    }

    /// The daemon with its database.
    pub fn switch(&self) -> Result<&Switch> {
        self.instance.switch().context("this system has no daemon")
    }
}

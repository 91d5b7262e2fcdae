// SPDX-License-Identifier: Apache-2.0
//! A system that runs between two hosts, ready for traffic.

use crate::ends::Ends;
use crate::netns::run;
use crate::peer::{Between, Peer, Rules, System, Tier};
use crate::pin::Cpus;
use crate::topology::{End, Far, Topology};
use anyhow::{Context, Result, ensure};
use slipswitch_tests::harness::Switch;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// For the first packet: a switch may still be learning.
const PATIENCE: Duration = Duration::from_secs(10);
/// For a first connection on links that may not carry TCP at all.
const TRY: Duration = Duration::from_secs(2);

/// Systems through which TCP was seen to pass only without offload, so that each is waited for
/// once in a run.
static UNFINISHED: Mutex<Vec<System>> = Mutex::new(Vec::new());

/// A peer, what is at its ends, and the threads' places there.
pub struct Setting {
    /// Which system.
    pub system: System,
    /// The system.
    pub peer: Box<dyn Peer>,
    /// Client at the first port, server at the second.
    pub ends: Ends,
    /// What had to be done by hand, for the report.
    pub note: Option<String>,
    topology: Topology,
    third: Option<End>,
}

impl Setting {
    /// Starts a system between two containers and waits until the hosts reach each other. Where
    /// packets are to meet XDP, the ends are as behind network cards.
    ///
    /// # Errors
    /// When it does not start, or they do not.
    pub fn make(system: System, cpus: Cpus, rules: Rules) -> Result<Setting> {
        let mut peer = system.start(cpus, Between::Hosts).context("starting")?;
        let xdp = matches!(system, System::BareXdp | System::Slipswitch(Tier::Xdp));
        let far = if xdp { Far::Card } else { Far::Container };
        let topology = Topology::around(peer.netns(), far, far)?;
        peer.add_ports(&topology.ports())?;
        peer.install(rules)?;
        let ends = Ends {
            client: topology.sender.host.netns.clone(),
            server: topology.receiver.host.netns.clone(),
            address: topology.receiver.host.address().parse()?,
            cpus,
        };
        let note = xdp.then(|| {
            "the ends are as behind network cards, for XDP: NAPI at the ports, no offload at the \
             hosts"
                .into()
        });
        let setting = Setting { system, peer, ends, note, topology, third: None };
        let (one, two) = (&setting.topology.sender.host, &setting.topology.receiver.host);
        ensure!(one.reaches(two.address(), PATIENCE), "the hosts do not reach each other");
        Ok(setting)
    }

    /// Sees to it that TCP and UDP pass: switches transmit checksum offload of the hosts off where
    /// the system does not finish checksums, and notes that.
    ///
    /// # Errors
    /// When TCP does not pass even so.
    pub fn with_tcp(mut self) -> Result<Setting> {
        let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = unfinished.contains(&self.system);
        if !is_known && self.ends.reach_by_tcp(TRY).is_ok() {
            return Ok(self);
        }
        for host in [&self.topology.sender.host, &self.topology.receiver.host] {
            run(&host.netns, "ethtool -K eth0 tx off")?;
        }
        self.ends.reach_by_tcp(PATIENCE).context("TCP does not pass")?;
        if !is_known {
            unfinished.push(self.system);
        }
        self.note = Some(
            "TCP does not pass while the hosts leave checksums to their devices, so that was \
             switched off by hand (ethtool -K eth0 tx off), and large segments with it"
                .into(),
        );
        Ok(self)
    }

    /// With a container at a third port, from which nothing is let through.
    ///
    /// # Errors
    /// When the system does not take the port.
    pub fn with_third(mut self) -> Result<Setting> {
        let end = End::make(self.peer.netns(), "p3", "10.0.0.3/24", Far::Container)?;
        self.peer.add_third(&end.port)?;
        self.third = Some(end);
        Ok(self)
    }

    /// What is at the third port.
    ///
    /// # Errors
    /// When there is no such port.
    pub fn third(&self) -> Result<&End> {
        self.third.as_ref().context("there are two ports")
    }

    /// The daemon with its database.
    ///
    /// # Errors
    /// When the system has none.
    pub fn switch(&self) -> Result<&Switch> {
        self.peer.switch().context("this system has no daemon")
    }
}

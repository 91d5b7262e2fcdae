// SPDX-License-Identifier: Apache-2.0
//! The parts of the daemon that configuration works on.

use crate::args::DummyLevel;
use crate::openflow::Services;
use bridge::connection::Connections;
use bridge::pipeline::Change;
use bridge::snapshot::BridgeIndex;
use bridge::switch::Switch;
use clock::Clock;
use datapath_kernel::CoupledDatapath;
use datapath_userspace::UserspaceDatapath;
use placement::PlacedDatapath;
use process::Dirs;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;
use underlay::Underlay;

/// References to the parts of the daemon that configuration reads and changes. The daemon makes
/// one for each step.
pub struct Context<'a> {
    /// All bridges.
    pub switch: &'a mut Switch,
    /// OpenFlow connections.
    pub connections: &'a mut Connections,
    /// Tasks of OpenFlow connections.
    pub services: &'a Services,
    /// The userspace datapath, for the settings of its packet threads.
    pub userspace: &'a UserspaceDatapath,
    /// The placement of flows and ports in tiers; `None` in dummy mode.
    pub placed: Option<&'a Arc<PlacedDatapath>>,
    /// The switch's datapath and the kernel's as one; `None` in dummy mode.
    pub coupled: Option<&'a Arc<CoupledDatapath>>,
    /// Routes and neighbours of the network that carries tunnels.
    pub underlay: &'a Underlay,
    /// The switch's clock.
    pub clock: &'a Clock,
    /// Directories for sockets and pinned BPF objects.
    pub directories: &'a Dirs,
    /// Wakes the tasks that go by the clock.
    pub activity: &'a Rc<Notify>,
    /// Dummy mode.
    pub dummy: DummyLevel,
    /// `--disable-system`: the datapath type `system` is not offered.
    pub disable_system: bool,
    /// The database may name only Unix sockets of the run directory. False with
    /// `--no-self-confinement`.
    pub is_confined: bool,
}

impl Context<'_> {
    /// Reports changed rules to OpenFlow peers.
    pub(super) fn changed(&mut self, bridge: BridgeIndex, changes: Vec<Change>) {
        if !changes.is_empty() {
            self.connections.rules_changed(bridge, changes, self.switch, self.clock.now());
        }
    }
}

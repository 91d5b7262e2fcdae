// SPDX-License-Identifier: Apache-2.0
//! Bonds and control protocols: what the control thread does for them.

use super::{Dirty, Switch, mark};
use crate::bond::Bond;
use crate::protocol::{Family, Protocol};
use crate::snapshot::BridgeIndex;
use clock::Millis;
use hashbrown::HashSet;
use openflow::PortNo;
use openflow::message::PortDesc;
use std::sync::Arc;

impl Switch {
    /// Runs the control protocols, where they have no thread of their own (dummy mode).
    pub fn run_protocols(&mut self) {
        if self.protocols.is_none() {
            self.protocols_due = self.slow.run_protocols();
        }
    }

    /// Brings LACP and bonds to the present settings, links and time, when one of these may have
    /// changed, and marks the bridges that changed for publication.
    pub(super) fn follow_protocols(&mut self) {
        let now = self.clock.now();
        self.retire_bonds();
        let is_changed = self.slow.protocols.take_changed();
        let mut is_touched = self.dirty.values().any(|dirty| *dirty == Dirty::All)
            || self.bond_outputs.deadline(now).is_some_and(|at| now >= at);
        let indexes: Vec<BridgeIndex> =
            self.bridges().filter(|b| b.has_protocols()).map(|b| b.index).collect();
        for index in indexes {
            let is_dirty = self.dirty.get(&index) == Some(&Dirty::All);
            let Some(bridge) = self.bridges.get_mut(index.0).and_then(Option::as_mut) else {
                continue;
            };
            let is_due = bridge.bond_deadline().is_some_and(|at| now >= at);
            if !(is_changed || is_dirty || is_due) {
                continue;
            }
            is_touched = true;
            let (machines, must_run) = bridge.update_aggregates(now);
            let of_ports = bridge.update_machines();
            let before = bridge.update_allowed(now);
            self.is_status_changed |= bridge.take_bfd_changed() | is_changed;
            let is_moved = bridge.update_bonds(now);
            if let Some(machines) = machines {
                let machines = machines.into_iter().map(|m| m as Arc<dyn Protocol>).collect();
                self.slow.protocols.register(index, Family::Bundles, machines);
                mark(&mut self.dirty, index, Dirty::All);
            } else if must_run {
                self.slow.protocols.wake();
            }
            if let Some(machines) = of_ports {
                self.slow.protocols.register(index, Family::Ports, machines);
                mark(&mut self.dirty, index, Dirty::All);
            }
            if is_moved || !before.is_empty() {
                self.is_bond_changed |= is_moved;
                self.is_port_toggled |= !before.is_empty();
                mark(&mut self.dirty, index, Dirty::All);
            }
            self.port_changes.extend(before.into_iter().map(|desc| (index, desc)));
        }
        self.follow_trees(is_changed, now);
        if is_touched {
            self.follow_bond_outputs(now);
        }
    }

    /// Keeps a port that was just added from being described as live until
    /// [`Switch::take_port_changes`]: as with Open vSwitch the protocols on it decide first. Returns
    /// its description.
    pub fn hold_new_port(&mut self, index: BridgeIndex, number: PortNo) -> Option<PortDesc> {
        let port = self.bridge_mut(index)?.ports.get_mut(&number)?;
        port.is_new = true;
        let desc = port.desc();
        self.new_ports.push((index, number));
        Some(desc)
    }

    /// Returns the descriptions at the last call of ports that control protocols have changed, or
    /// that were added, since.
    pub fn take_port_changes(&mut self) -> Vec<(BridgeIndex, PortDesc)> {
        let mut changes = std::mem::take(&mut self.port_changes);
        // Of several changes of a port the first has the description that was reported last.
        let mut known = HashSet::new();
        changes.retain(|(index, desc)| known.insert((*index, desc.port_no)));
        for (index, number) in std::mem::take(&mut self.new_ports) {
            let bridge = self.bridges.get_mut(index.0).and_then(Option::as_mut);
            let Some(port) = bridge.and_then(|b| b.ports.get_mut(&number)) else { continue };
            let before = port.desc();
            port.is_new = false;
            if known.insert((index, number)) {
                changes.push((index, before));
            }
        }
        changes
    }

    /// Returns true when a control protocol has changed results that the database has, since the last
    /// call.
    pub fn take_status_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_status_changed)
    }

    /// Balances the loads of bonds where that is due, by the bytes that are counted up to now.
    pub(super) fn rebalance_bonds(&mut self, now: Millis) {
        if !self.bridges().any(|b| b.is_rebalance_due(now)) {
            return;
        }
        self.collect();
        self.credit_bond_outputs();
        self.bridges.iter_mut().flatten().for_each(|b| b.rebalance_bonds(now));
        // The next publication takes over the buckets that moved.
        self.slow.protocols.mark_changed();
    }

    /// Returns the bond called `name`, for a command that changes it. The next publication takes the
    /// change over.
    fn bond_mut(&mut self, name: &str) -> Option<&mut Bond> {
        self.slow.protocols.mark_changed();
        self.bridges.iter_mut().flatten().find_map(|b| b.bond_mut(name))
    }

    /// Makes a member of a bond the active one (`bond/set-active-member`). Returns false when it is
    /// already.
    ///
    /// # Errors
    ///
    /// Fails when there is no such bond or member, or the member is disabled, with Open vSwitch's
    /// text.
    pub fn set_active_member(&mut self, bond: &str, member: &str) -> Result<bool, &'static str> {
        self.bond_mut(bond).ok_or(NO_BOND)?.set_active(member)
    }

    /// Enables or disables a member of a bond until its link's state decides again.
    ///
    /// # Errors
    ///
    /// Fails when there is no such bond or member, with Open vSwitch's text.
    pub fn set_member_enabled(
        &mut self,
        bond: &str,
        member: &str,
        is_enabled: bool,
    ) -> Result<(), &'static str> {
        self.bond_mut(bond).ok_or(NO_BOND)?.set_enabled(member, is_enabled)
    }

    /// Moves a bucket of a bond's hash to a member (`bond/migrate`).
    ///
    /// # Errors
    ///
    /// Fails when there is no such bond or member, or the member is disabled, with Open vSwitch's
    /// text.
    pub fn migrate_bucket(
        &mut self,
        bond: &str,
        bucket: u8,
        member: &str,
    ) -> Result<(), &'static str> {
        self.bond_mut(bond).ok_or(NO_BOND)?.migrate(bucket, member)
    }
}

/// Open vSwitch's answer to a command for a bond that does not exist.
const NO_BOND: &str = "no such bond";

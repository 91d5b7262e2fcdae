// SPDX-License-Identifier: Apache-2.0
//! The datapath's bonds: the tables by which it chooses the member for a packet.
//!
//! A table is set before the snapshot whose megaflows name the bond is published. It is removed after
//! all megaflows follow a snapshot that does not name the bond.

use super::{Dirty, Switch, mark};
use crate::bond::{Bond, Output};
use clock::Millis;
use datapath::{BondTable, BucketBytes};
use std::collections::BTreeMap;

/// Milliseconds after the start until bonds of an earlier daemon that nothing has claimed are removed.
/// Megaflows that name them have followed long before.
const ORPHANS_STAY_MS: i64 = 30_000;

/// Milliseconds between two checks whether megaflows have followed.
const RETIRED_CHECK_MS: i64 = 100;

/// The datapath's bonds, as the control thread has set them.
#[derive(Debug, Default)]
pub(super) struct BondOutputs {
    /// Tables by id.
    tables: BTreeMap<u32, Set>,
    /// Bonds that are not wanted, with the version of the first snapshot that does not name them.
    /// `None`: that was not published yet.
    retired: BTreeMap<u32, Option<u64>>,
    /// Time at which bonds of an earlier daemon are removed; `None` before the first check and
    /// afterwards.
    orphans_until: Option<Millis>,
    /// A check for bonds of an earlier daemon is due or was done.
    has_begun: bool,
}

#[derive(Debug)]
struct Set {
    table: BondTable,
    /// Bytes that the buckets have been credited.
    credited: Option<BucketBytes>,
}

impl Set {
    /// Credits the buckets of a bond the bytes that were sent since the last call.
    fn credit(&mut self, bond: &Bond, sent: BucketBytes) {
        for bucket in 0..=u8::MAX {
            let at = |all: &BucketBytes| all.get(usize::from(bucket)).copied().unwrap_or(0);
            let before = self.credited.as_ref().map_or(0, at);
            bond.credit(bucket, at(&sent).saturating_sub(before));
        }
        self.credited = Some(sent);
    }
}

impl BondOutputs {
    /// Notes a publication.
    pub(super) fn published(&mut self, version: u64) {
        self.retired.values_mut().for_each(|at| *at = Some(at.unwrap_or(version)));
    }

    /// Returns the time at which [`Switch::retire_bonds`] has something to do.
    pub(super) fn deadline(&self, now: Millis) -> Option<Millis> {
        let check = (!self.retired.is_empty()).then_some(now + RETIRED_CHECK_MS);
        check.into_iter().chain(self.orphans_until).min()
    }
}

impl Switch {
    /// Brings the datapath's tables to the present bonds, and marks the bridges of bonds that megaflows
    /// name in another way from now on.
    pub(super) fn follow_bond_outputs(&mut self, now: Millis) {
        let datapath = self.datapath.clone();
        let Some(bonds) = datapath.bonds() else { return };
        let outputs = &mut self.bond_outputs;
        if !std::mem::replace(&mut outputs.has_begun, true) {
            outputs.orphans_until = Some(now + ORPHANS_STAY_MS);
        }
        let mut claimed = Vec::new();
        for bridge in self.bridges.iter_mut().flatten() {
            let mut is_changed = false;
            for (bond, ports) in bridge.bonds_with_ports() {
                let ports = ports.filter(|_| bond.wants_output());
                let id = ports.as_ref().and_then(|ports| ports.first()).map(|(_, port)| port.0);
                let (Some(ports), Some(id)) = (ports, id) else {
                    is_changed |= bond.set_output(Output::PerMember);
                    continue;
                };
                if outputs.retired.contains_key(&id) {
                    // Megaflows of another bond may still name it.
                    is_changed |= bond.set_output(Output::PerMember);
                    continue;
                }
                claimed.push(id);
                if !bond.has_output() {
                    continue; // a table of an earlier daemon stays until the partner is there again
                }
                let has_new_member = bond.take_new_member();
                let mut set = outputs.tables.get_mut(&id);
                match (&mut set, bonds.bytes(id)) {
                    (Some(set), Some(sent)) if has_new_member => {
                        set.credit(bond, sent);
                        bond.spread_idle();
                    }
                    (Some(_), _) => {}
                    (None, _) => {
                        let earlier = bonds.table(id);
                        earlier.iter().for_each(|table| bond.recall_buckets(table, &ports));
                    }
                }
                let table = bond.table(&ports);
                if set.as_ref().is_none_or(|set| set.table != table)
                    && let Err(refusal) = bonds.set(id, &table)
                {
                    outputs.tables.remove(&id);
                    is_changed |= bond.set_output(Output::Refused(refusal));
                    continue;
                }
                match set {
                    Some(set) => set.table = table,
                    None => {
                        let credited = bonds.bytes(id);
                        outputs.tables.insert(id, Set { table, credited });
                    }
                }
                is_changed |= bond.set_output(Output::Datapath(id));
            }
            if is_changed {
                self.is_bond_changed = true;
                mark(&mut self.dirty, bridge.index, Dirty::All);
            }
        }
        let gone: Vec<u32> =
            outputs.tables.keys().copied().filter(|id| !claimed.contains(id)).collect();
        for id in gone {
            outputs.tables.remove(&id);
            outputs.retired.insert(id, None);
        }
        if outputs.orphans_until.is_some_and(|until| now >= until) {
            outputs.orphans_until = None;
            let is_known = |id: &u32| claimed.contains(id) || outputs.retired.contains_key(id);
            bonds.ids().into_iter().filter(|id| !is_known(id)).for_each(|id| bonds.remove(id));
        }
    }

    /// Removes bonds that no megaflow names any more from the datapath.
    pub(super) fn retire_bonds(&mut self) {
        if self.bond_outputs.retired.is_empty() {
            return;
        }
        let followed = self.revalidated_version();
        let datapath = self.datapath.clone();
        let count = self.bond_outputs.retired.len();
        self.bond_outputs.retired.retain(|id, version| {
            let is_over = version.is_some_and(|version| followed >= version);
            if let (true, Some(bonds)) = (is_over, datapath.bonds()) {
                bonds.remove(*id);
            }
            !is_over
        });
        if self.bond_outputs.retired.len() < count {
            // A bond may have waited for the id.
            self.slow.protocols.mark_changed();
        }
    }

    /// Credits the buckets of bonds the bytes that the datapath has counted for them.
    pub(super) fn credit_bond_outputs(&mut self) {
        let datapath = self.datapath.clone();
        let Some(bonds) = datapath.bonds() else { return };
        for (_, bond) in self.bridges.iter().flatten().flat_map(|bridge| bridge.bonds()) {
            let Some(id) = bond.output().id() else { continue };
            let Some(set) = self.bond_outputs.tables.get_mut(&id) else { continue };
            let Some(sent) = bonds.bytes(id) else { continue };
            set.credit(bond, sent);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The contract's bonds: in the base, and mirrored in each provider.

use crate::eligibility::BondEligibility;
use crate::placed::PlacedDatapath;
use datapath::{BondTable, Bonds, BucketBytes, OffloadProvider, Refusal, TierSet};
use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

impl PlacedDatapath {
    /// Returns the tables of all bonds. The lock is taken before every other lock of this crate but
    /// that of the ports.
    fn bond_tables(&self) -> MutexGuard<'_, BTreeMap<u32, BondTable>> {
        self.bonds.lock().unwrap_or_else(PoisonError::into_inner) // an entry is whole
    }

    /// Takes over the bonds that an earlier daemon left in a new provider with these tiers, gives the
    /// provider the others, and keeps flows with a bond that it refuses away from it. `fill` puts the
    /// provider into its place. No bond is changed meanwhile.
    pub(crate) fn mirror_bonds(
        &self,
        tiers: TierSet,
        provider: &dyn OffloadProvider,
        fill: impl FnOnce(),
    ) {
        let mut tables = self.bond_tables();
        let Some(base) = self.base.bonds() else { return fill() };
        for (id, table) in provider.adopted_bonds() {
            if !tables.contains_key(&id) && base.set(id, &table).is_ok() {
                self.mark_bond(id, &table, TierSet::NONE);
                tables.insert(id, table);
            }
        }
        for (id, table) in &*tables {
            if provider.set_bond(*id, table).is_err() {
                let before = self.eligibility().bonds.get(id).map_or(TierSet::NONE, |b| b.lacking);
                self.mark_bond(*id, table, before.union(tiers));
            }
        }
        fill();
    }

    /// Sets the tiers for flows with a bond. Returns true when some tiers are no longer allowed.
    fn mark_bond(&self, id: u32, table: &BondTable, lacking: TierSet) -> bool {
        let after = BondEligibility { members: table.members.clone(), lacking };
        let before = self.eligibility().bonds.get(&id).cloned();
        if before.as_ref() == Some(&after) {
            return false;
        }
        let is_narrower = before.is_some_and(|before| {
            !before.lacking.covers(lacking)
                || after.members.iter().any(|member| !before.members.contains(member))
        });
        self.change_eligibility(|eligibility| {
            eligibility.bonds.insert(id, after);
        });
        is_narrower
    }

    /// Takes a bond from the base and all providers. The caller has made sure that no flow is
    /// offered to a provider for it.
    fn remove_everywhere(&self, base: &dyn Bonds, id: u32) {
        base.remove(id);
        self.slots.present().for_each(|(_, provider)| provider.remove_bond(id));
    }
}

impl Bonds for PlacedDatapath {
    /// Fails when some provider cannot send to the bond: its flows would only run in slower tiers,
    /// which those with one output do not.
    fn set(&self, id: u32, table: &BondTable) -> Result<(), Refusal> {
        let base = self.base.bonds().ok_or(Refusal::Bond)?;
        let mut tables = self.bond_tables();
        // Before a packet of theirs can leave by a new member, flows leave the tiers that cannot
        // send to it.
        if self.mark_bond(id, table, TierSet::NONE) {
            self.review();
        }
        let set = base.set(id, table).and_then(|()| {
            self.slots.present().try_for_each(|(_, provider)| provider.set_bond(id, table))
        });
        if let Err(refusal) = set {
            self.remove_everywhere(base, id);
            self.change_eligibility(|eligibility| {
                eligibility.bonds.remove(&id);
            });
            tables.remove(&id);
            return Err(refusal);
        }
        tables.insert(id, table.clone());
        Ok(())
    }

    fn remove(&self, id: u32) {
        let Some(base) = self.base.bonds() else { return };
        let mut tables = self.bond_tables();
        if tables.remove(&id).is_none() {
            return;
        }
        self.change_eligibility(|eligibility| {
            eligibility.bonds.remove(&id);
        });
        self.remove_everywhere(base, id);
    }

    fn table(&self, id: u32) -> Option<BondTable> {
        self.bond_tables().get(&id).cloned()
    }

    fn ids(&self) -> Vec<u32> {
        self.bond_tables().keys().copied().collect()
    }

    fn bytes(&self, id: u32) -> Option<BucketBytes> {
        let mut sum = self.base.bonds()?.bytes(id)?;
        for bytes in self.slots.present().filter_map(|(_, provider)| provider.bond_bytes(id)) {
            for (sum, bytes) in sum.iter_mut().zip(bytes.iter()) {
                *sum = sum.wrapping_add(*bytes);
            }
        }
        Some(sum)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Bonds, and the output to one of their members.

use crate::engine::{Engine, Work};
use crate::shared::Shared;
use datapath::{BOND_BUCKETS, BondTable, BucketBytes, DropReason, PortNo};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A bond. Packet threads read the buckets while the control thread changes them.
pub(crate) struct Bond {
    basis: AtomicU32,
    members: Mutex<Vec<PortNo>>,
    /// Port numbers; [`PortNo::NONE`] for no member.
    buckets: [AtomicU32; BOND_BUCKETS],
    bytes: [AtomicU64; BOND_BUCKETS],
}

impl Bond {
    pub(crate) fn new(table: &BondTable) -> Bond {
        let bond = Bond {
            basis: AtomicU32::new(0),
            members: Mutex::default(),
            buckets: [const { AtomicU32::new(PortNo::NONE.0) }; BOND_BUCKETS],
            bytes: [const { AtomicU64::new(0) }; BOND_BUCKETS],
        };
        bond.set(table);
        bond
    }

    /// Follows a table, bucket by bucket.
    pub(crate) fn set(&self, table: &BondTable) {
        self.basis.store(table.basis, Ordering::Relaxed);
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner); // a list
        members.clone_from(&table.members);
        for (to, member) in self.buckets.iter().zip(table.buckets.iter()) {
            to.store(member.unwrap_or(PortNo::NONE).0, Ordering::Relaxed);
        }
    }

    pub(crate) fn table(&self) -> BondTable {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner).clone();
        BondTable::new(self.basis.load(Ordering::Relaxed), members, |bucket| self.member(bucket))
    }

    pub(crate) fn bytes(&self) -> BucketBytes {
        let mut all = Box::new([0; BOND_BUCKETS]);
        for (to, bytes) in all.iter_mut().zip(&self.bytes) {
            *to = bytes.load(Ordering::Relaxed);
        }
        all
    }

    fn member(&self, bucket: u8) -> Option<PortNo> {
        let member = self.buckets.get(usize::from(bucket))?.load(Ordering::Relaxed);
        (member != PortNo::NONE.0).then_some(PortNo(member))
    }

    /// Returns the member for a packet, whose bytes are counted.
    fn choose(&self, work: &Work) -> Option<PortNo> {
        let bucket = BondTable::bucket(self.basis.load(Ordering::Relaxed), &work.key);
        let member = self.member(bucket)?;
        if let Some(bytes) = self.bytes.get(usize::from(bucket)) {
            bytes.fetch_add(work.packet.len() as u64, Ordering::Relaxed);
        }
        Some(member)
    }
}

impl Engine {
    /// Runs [`datapath::Action::LbOutput`]. Packets to one member keep their order.
    pub(crate) fn lb_output(
        &mut self,
        shared: &Shared,
        batch: &mut Vec<Work>,
        id: u32,
        last: bool,
    ) {
        batch.iter_mut().for_each(Work::refresh);
        let sent = self.own(batch, last);
        batch.iter_mut().for_each(|work| work.cut = None); // the copy has it
        let Some(bond) = shared.bond(id) else {
            shared.drops.add(DropReason::InvalidBond, sent.len() as u64);
            return self.give_back(sent);
        };
        let mut by_member: Vec<(Option<PortNo>, Vec<Work>)> = Vec::new();
        for work in sent {
            let member = bond.choose(&work);
            match by_member.iter_mut().find(|(known, _)| *known == member) {
                Some((_, works)) => works.push(work),
                None => by_member.push((member, vec![work])),
            }
        }
        for (member, mut works) in by_member {
            match member {
                Some(member) => self.output_batch(shared, &mut works, member, true),
                None => shared.drops.add(DropReason::InvalidBond, works.len() as u64),
            }
            self.give_back(works); // those that were not sent
        }
    }

    fn give_back(&mut self, works: Vec<Work>) {
        works.into_iter().for_each(|work| self.pool.give(work.packet));
    }
}

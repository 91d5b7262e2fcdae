// SPDX-License-Identifier: Apache-2.0
//! The buckets of a bond's hash: the member and the load of each.

use openflow::PortNo;
use packet::Mac;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of buckets: the lowest 8 bits of the hash choose one.
pub const BUCKETS: usize = 256;

/// A bucket without a member. No port has this number.
const NONE: u32 = u32::MAX;

/// Returns the hash of a source address and VLAN, as `bond/hash` of Open vSwitch shows it: MurmurHash3
/// (32 bits) of the address with the VLAN in its upper 16 bits, lower half first, finished with 8
/// (a length in bytes).
pub fn source_hash(mac: Mac, vlan: u16, basis: u32) -> u32 {
    let address = mac.0.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let value = u64::from(vlan) << 48 | address;
    let mixed = murmur_word(murmur_word(basis, value as u32), (value >> 32) as u32);
    murmur_finish(mixed ^ 8)
}

fn murmur_word(hash: u32, word: u32) -> u32 {
    let k = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    (hash ^ k).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

fn murmur_finish(mut hash: u32) -> u32 {
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x85eb_ca6b);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

/// The member and the load of each bucket. Any thread may use them.
#[derive(Debug)]
pub struct Buckets {
    members: [AtomicU32; BUCKETS],
    /// Bytes of late, which count less the older they are.
    bytes: [AtomicU64; BUCKETS],
    /// Enabled members; the first one gets the next bucket.
    turns: Mutex<VecDeque<PortNo>>,
}

impl Default for Buckets {
    fn default() -> Buckets {
        Buckets {
            members: [const { AtomicU32::new(NONE) }; BUCKETS],
            bytes: [const { AtomicU64::new(0) }; BUCKETS],
            turns: Mutex::default(),
        }
    }
}

impl Buckets {
    fn turns(&self) -> MutexGuard<'_, VecDeque<PortNo>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner) // a list, whole at any time
    }

    fn slot(&self, bucket: u8) -> Option<&AtomicU32> {
        self.members.get(usize::from(bucket))
    }

    /// Returns the member of a bucket. A bucket whose member is not one of `enabled` gets the next
    /// enabled member in turn. `None` when no member is enabled.
    pub(crate) fn member(&self, bucket: u8, enabled: &[PortNo]) -> Option<PortNo> {
        let slot = self.slot(bucket)?;
        let now = PortNo(slot.load(Ordering::Acquire));
        if enabled.contains(&now) {
            return Some(now);
        }
        let mut turns = self.turns();
        // Another thread may have been faster.
        let now = PortNo(slot.load(Ordering::Acquire));
        if enabled.contains(&now) {
            return Some(now);
        }
        let at = turns.iter().position(|member| enabled.contains(member))?;
        let next = turns.remove(at)?;
        turns.push_back(next);
        slot.store(next.0, Ordering::Release);
        Some(next)
    }

    /// Returns the member of a bucket; `None` before the bucket was needed.
    pub fn assigned(&self, bucket: u8) -> Option<PortNo> {
        let member = self.slot(bucket)?.load(Ordering::Acquire);
        (member != NONE).then_some(PortNo(member))
    }

    pub(crate) fn assign(&self, bucket: u8, member: PortNo) {
        if let Some(slot) = self.slot(bucket) {
            slot.store(member.0, Ordering::Release);
        }
    }

    pub(crate) fn enable(&self, member: PortNo) {
        let mut turns = self.turns();
        if !turns.contains(&member) {
            turns.push_back(member);
        }
    }

    pub(crate) fn disable(&self, member: PortNo) {
        self.turns().retain(|m| *m != member);
    }

    /// Takes the members and the loads from all buckets.
    pub(crate) fn clear(&self) {
        for (member, bytes) in self.members.iter().zip(&self.bytes) {
            member.store(NONE, Ordering::Release);
            bytes.store(0, Ordering::Relaxed);
        }
    }

    /// Takes the members from buckets without a load, so that they are given out again.
    pub(crate) fn release_idle(&self) {
        for (member, bytes) in self.members.iter().zip(&self.bytes) {
            if bytes.load(Ordering::Relaxed) == 0 {
                member.store(NONE, Ordering::Release);
            }
        }
    }

    /// Adds bytes that were sent by a bucket.
    pub(crate) fn credit(&self, bucket: u8, bytes: u64) {
        if let Some(load) = self.bytes.get(usize::from(bucket)) {
            load.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Returns the load of a bucket, in bytes of late.
    pub fn load(&self, bucket: u8) -> u64 {
        self.bytes.get(usize::from(bucket)).map_or(0, |bytes| bytes.load(Ordering::Relaxed))
    }

    /// Returns each bucket that has a member and a load.
    pub(crate) fn loads(&self) -> Vec<super::rebalance::Load> {
        let load = |bucket: u8| {
            let (member, bytes) = (self.assigned(bucket)?, self.load(bucket));
            (bytes > 0).then_some(super::rebalance::Load { bucket, member, bytes })
        };
        (0..=u8::MAX).filter_map(load).collect()
    }

    /// Halves all loads, so that old ones count less.
    pub(crate) fn halve(&self) {
        for bytes in &self.bytes {
            // Bytes that are credited meanwhile stay.
            let now = bytes.load(Ordering::Relaxed);
            bytes.fetch_sub(now - now / 2, Ordering::Relaxed);
        }
    }
}

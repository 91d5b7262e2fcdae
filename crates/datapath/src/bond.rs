// SPDX-License-Identifier: Apache-2.0
//! Bonds that [`Action::LbOutput`](crate::Action::LbOutput) sends to.

use crate::{PortNo, Refusal};
use std::array;

/// Number of buckets of a bond: the lowest 8 bits of a packet's hash choose one.
pub const BOND_BUCKETS: usize = 256;

/// Bytes that each bucket of a bond has sent.
pub type BucketBytes = Box<[u64; BOND_BUCKETS]>;

/// Which member of a bond sends a packet.
///
/// The hash is that of [`crate::hash::five_tuple`], the same for both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BondTable {
    /// Number that is mixed into the hash.
    pub basis: u32,
    /// All members of the bond, in ascending order: the ports that a bucket may have now or later.
    pub members: Vec<PortNo>,
    /// The member of each bucket. `None`: packets are dropped with
    /// [`DropReason::InvalidBond`](crate::DropReason::InvalidBond).
    pub buckets: Box<[Option<PortNo>; BOND_BUCKETS]>,
}

impl BondTable {
    /// Returns a table where `of` gives the member of each bucket.
    pub fn new(
        basis: u32,
        members: impl IntoIterator<Item = PortNo>,
        of: impl Fn(u8) -> Option<PortNo>,
    ) -> BondTable {
        let mut members: Vec<PortNo> = members.into_iter().collect();
        members.sort_unstable();
        members.dedup();
        let buckets = Box::new(array::from_fn(|bucket| of(bucket as u8))); // below BOND_BUCKETS
        BondTable { basis, members, buckets }
    }

    /// Returns the bucket for a packet with this key.
    pub fn bucket(basis: u32, key: &flow::Key) -> u8 {
        crate::hash::five_tuple(key, true, basis) as u8 // the lowest bits
    }

    /// Returns the member of a bucket.
    pub fn member(&self, bucket: u8) -> Option<PortNo> {
        self.buckets.get(usize::from(bucket)).copied().flatten()
    }
}

/// The bonds of a datapath. Called by the control thread.
///
/// A bond's id is the number of its first member. A port is in one bond, and keeps its number when
/// the daemon starts again, so megaflows of an earlier daemon name the right bond.
pub trait Bonds: Send + Sync {
    /// Sets or replaces the table of bond `id`. Each bucket changes by one store; megaflows stay as
    /// they are. The bytes of the buckets go on.
    ///
    /// # Errors
    ///
    /// The reason for which the datapath, or one of its tiers, cannot send to this bond. There is no
    /// such bond then.
    fn set(&self, id: u32, table: &BondTable) -> Result<(), Refusal>;

    /// Removes bond `id`. Packets of megaflows that name it are dropped with
    /// [`DropReason::InvalidBond`](crate::DropReason::InvalidBond).
    fn remove(&self, id: u32);

    /// Returns the table of bond `id`; `None`: there is no such bond.
    fn table(&self, id: u32) -> Option<BondTable>;

    /// Returns the ids of all bonds, in ascending order, those that an earlier daemon left among
    /// them.
    fn ids(&self) -> Vec<u32>;

    /// Returns the bytes of the packets that each bucket of bond `id` has sent since some time
    /// before it was set; `None`: there is no such bond.
    fn bytes(&self, id: u32) -> Option<BucketBytes>;
}

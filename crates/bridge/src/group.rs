// SPDX-License-Identifier: Apache-2.0
//! Groups (OpenFlow 1.1+ section 5.6).

mod shares;

use clock::Millis;
use openflow::PortNo;
use openflow::action::Actions;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use openflow::message::GroupKind;

/// Bucket selection of a select group.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Selection {
    /// The switch chooses: a hash of the 5-tuple (OVS: `dp_hash` or L2-L4 default).
    #[default]
    Default,
    /// `selection_method=hash` with these fields.
    Hash {
        /// Value that is mixed into the hash.
        basis: u32,
        /// Hashed fields with masks.
        fields: Vec<(flow::Field, flow::FieldValue)>,
    },
    /// `selection_method=dp_hash`.
    DpHash {
        /// Value that is mixed into the hash.
        basis: u32,
        /// Hash algorithm: 0 is the L4 hash, 1 the symmetric hash.
        algorithm: u8,
    },
}

/// Counter of packets and bytes.
#[derive(Debug, Default)]
pub struct Count {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    /// Adds packets and bytes to the counter.
    pub(crate) fn credit(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the packets and bytes counted so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.packets.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// One bucket.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// OpenFlow 1.5 bucket id.
    pub id: u32,
    /// Share in a select group.
    pub weight: u16,
    /// Port on which the bucket's liveness depends; `NONE` for always live.
    pub watch_port: PortNo,
    /// Group on which the bucket's liveness depends; 0xffffffff for always live.
    pub watch_group: u32,
    /// Action set of the bucket.
    pub actions: Actions,
    /// Packets and bytes of the bucket.
    pub stats: Arc<Count>,
}

/// One group; immutable except for counters.
#[derive(Debug)]
pub struct Group {
    /// OpenFlow number of the group.
    pub id: u32,
    /// Kind of the group: all, select, indirect or fast failover.
    pub kind: GroupKind,
    /// Bucket selection, for select groups.
    pub selection: Selection,
    /// Buckets in their order.
    pub buckets: Vec<Bucket>,
    /// The bucket (index into `buckets`) of each value of the datapath's hash, for select groups
    /// that use this hash. The length is a power of two. `None`: the bucket with the highest score
    /// is chosen.
    pub shares: Option<Vec<usize>>,
    /// Time at which the group was added.
    pub created: Millis,
    /// Packets and bytes of the group.
    pub stats: Arc<Count>,
}

impl Group {
    /// Makes a group whose counters are zero, and logs how a select group chooses its buckets.
    pub fn new(
        id: u32,
        kind: GroupKind,
        selection: Selection,
        buckets: Vec<Bucket>,
        created: Millis,
    ) -> Group {
        let shares = match kind {
            GroupKind::Select => shares::of_group(id, &selection, &buckets),
            _ => None,
        };
        Group { id, kind, selection, buckets, shares, created, stats: Arc::default() }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Groups (OpenFlow 1.1+ section 5.6).

use clock::Millis;
use openflow::PortNo;
use openflow::action::Actions;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use openflow::message::GroupKind;

/// Hash of a select group.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Selection {
    /// Ours to choose: a hash of the 5-tuple (OVS: `dp_hash` or L2-L4 default).
    #[default]
    Default,
    /// `selection_method=hash` with these fields.
    Hash {
        /// Mixed in.
        basis: u32,
        /// Fields with masks.
        fields: Vec<(flow::Field, flow::FieldValue)>,
    },
    /// `selection_method=dp_hash`.
    DpHash {
        /// Mixed in.
        basis: u32,
        /// 0 is L4 hash, 1 symmetric.
        algorithm: u8,
    },
}

/// Packets and bytes.
#[derive(Debug, Default)]
pub struct Count {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    /// Adds.
    pub fn credit(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Packets and bytes so far.
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
    /// Live only while this port is; `NONE` for always.
    pub watch_port: PortNo,
    /// Live only while this group is; 0xffffffff for always.
    pub watch_group: u32,
    /// Action set.
    pub actions: Actions,
    /// Its counters.
    pub stats: Arc<Count>,
}

/// One group; immutable but for counters.
#[derive(Debug)]
pub struct Group {
    /// Group id.
    pub id: u32,
    /// Kind.
    pub kind: GroupKind,
    /// For select groups.
    pub selection: Selection,
    /// Buckets in order.
    pub buckets: Vec<Bucket>,
    /// When it was added.
    pub created: Millis,
    /// Its counters.
    pub stats: Arc<Count>,
}

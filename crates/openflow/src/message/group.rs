// SPDX-License-Identifier: Apache-2.0
//! Messages about groups and their buckets.

use crate::PortNo;
use crate::action::Actions;
use flow::{Field, FieldValue};
use std::time::Duration;

/// How a group uses its buckets (OFPGT_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum GroupKind {
    /// Every bucket.
    All = 0,
    /// One bucket, chosen by weight and hash.
    Select = 1,
    /// Its only bucket.
    Indirect = 2,
    /// The first live bucket.
    FastFailover = 3,
}

/// Commands of OFPT_GROUP_MOD (OFPGC_*), and OVS's add-or-modify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupCommand {
    /// New group.
    Add,
    /// Other contents for a group.
    Modify,
    /// Remove a group, or all ([`super::GROUP_ALL`]).
    Delete,
    /// Add buckets at a place (1.5).
    InsertBucket,
    /// Remove buckets (1.5).
    RemoveBucket,
    /// Modify, or add when it is not there (OVS, 0x8000).
    AddOrModify,
}

/// Bucket number that stands for a place or a set (1.5).
pub mod bucket {
    /// Highest number of a bucket.
    pub const MAX: u32 = 0xffff_ff00;
    /// Before all buckets (insert), the first (remove).
    pub const FIRST: u32 = 0xffff_fffd;
    /// For an insertion: after all buckets. For a removal: the last bucket.
    pub const LAST: u32 = 0xffff_fffe;
    /// All buckets (remove).
    pub const ALL: u32 = 0xffff_ffff;
}

/// A bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// Its number (1.5); below it is its place in the list.
    pub id: u32,
    /// Share of select groups.
    pub weight: u16,
    /// Live while this port is; [`PortNo::NONE`] for none.
    pub watch_port: PortNo,
    /// Live while this group is; [`super::GROUP_ANY`] for none.
    pub watch_group: u32,
    /// The actions that the bucket runs.
    pub actions: Actions,
}

impl Bucket {
    /// One that has no weight and watches nothing.
    pub fn new(id: u32, actions: impl Into<Actions>) -> Bucket {
        Bucket {
            id,
            weight: 0,
            watch_port: PortNo::NONE,
            watch_group: super::GROUP_ANY,
            actions: actions.into(),
        }
    }
}

/// How a select group chooses (NTR selection method, 1.5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupProperties {
    /// "", "hash" or "dp_hash".
    pub selection_method: String,
    /// The method's parameter.
    pub selection_param: u64,
    /// Fields to hash, with the bits that count.
    pub fields: Vec<(Field, FieldValue)>,
}

/// OFPT_GROUP_MOD.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupMod {
    /// The change to make.
    pub command: GroupCommand,
    /// How the group uses its buckets.
    pub kind: GroupKind,
    /// The group.
    pub group_id: u32,
    /// For insert and remove: see [`bucket`]; [`bucket::ALL`] otherwise.
    pub command_bucket_id: u32,
    /// The buckets, in the order of the message.
    pub buckets: Vec<Bucket>,
    /// How to choose.
    pub properties: GroupProperties,
}

/// Description of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupDesc {
    /// The group.
    pub group_id: u32,
    /// How the group uses its buckets.
    pub kind: GroupKind,
    /// The buckets, in the order of the message.
    pub buckets: Vec<Bucket>,
    /// How it chooses.
    pub properties: GroupProperties,
}

/// Statistics of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStats {
    /// The group.
    pub group_id: u32,
    /// Flows and groups that refer to it.
    pub ref_count: u32,
    /// Packets, `u64::MAX` when unknown.
    pub packet_count: u64,
    /// Bytes, `u64::MAX` when unknown.
    pub byte_count: u64,
    /// How long it has been there (1.3+).
    pub duration: Duration,
    /// Packets and bytes of each bucket.
    pub buckets: Vec<(u64, u64)>,
}

/// Capabilities of groups (OFPMP_GROUP_FEATURES). Arrays are indexed by [`GroupKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupFeatures {
    /// Bit N: [`GroupKind`] N.
    pub kinds: u32,
    /// OFPGFC_*: 1 weights, 2 liveness, 4 chaining, 8 chaining checks.
    pub capabilities: u32,
    /// Highest number of groups of each kind.
    pub max_groups: [u32; 4],
    /// Actions in buckets of each kind: bit N is action number N (OFPAT_*).
    pub actions: [u32; 4],
}

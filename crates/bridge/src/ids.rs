// SPDX-License-Identifier: Apache-2.0
//! Numbers that name bridges and tables.

/// Index of a bridge in [`crate::snapshot::Snapshot::bridges`]. Stays the same while the bridge
/// exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BridgeIndex(pub usize);

/// Table of the switch's own rules, for packets that no rule matched. Controllers may read it and
/// resubmit to it, and may not change it.
pub const INTERNAL_TABLE: u8 = 254;

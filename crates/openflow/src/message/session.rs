// SPDX-License-Identifier: Apache-2.0
//! Messages about the connection itself: hello, errors, features, configuration, roles.

use super::{PortDesc, Version};
use crate::OfError;
use std::fmt;

/// A set of OpenFlow versions, as a bitmap: bit N is the version with wire number N.
/// The set may contain versions that this crate does not support.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Versions(pub u32);

impl Versions {
    /// No version.
    pub const NONE: Versions = Versions(0);
    /// Every version that the codec supports.
    pub const KNOWN: Versions = Versions(0b111_1110);

    /// With `version` added.
    #[must_use]
    pub fn with(self, version: Version) -> Versions {
        Versions(self.0 | 1 << version.wire())
    }

    /// Every version up to wire number `wire`, the meaning of a hello without a bitmap.
    pub fn up_to(wire: u8) -> Versions {
        Versions(if wire >= 31 { !1 } else { (2u32 << wire).wrapping_sub(2) })
    }

    /// True when `version` is in the set.
    pub fn contains(self, version: Version) -> bool {
        self.0 & (1 << version.wire()) != 0
    }

    /// Those in both.
    #[must_use]
    pub fn intersection(self, other: Versions) -> Versions {
        Versions(self.0 & other.0)
    }

    /// The newest version that the codec supports.
    pub fn newest(self) -> Option<Version> {
        Version::ALL.into_iter().rev().find(|v| self.contains(*v))
    }

    /// The highest wire number in the set, known or not; `None` when empty.
    fn highest_wire(self) -> Option<u8> {
        (self.0 != 0).then(|| 31 - self.0.leading_zeros() as u8)
    }
}

impl FromIterator<Version> for Versions {
    fn from_iter<I: IntoIterator<Item = Version>>(versions: I) -> Versions {
        versions.into_iter().fold(Versions::NONE, Versions::with)
    }
}

impl fmt::Display for Versions {
    /// Wire numbers as OVS names them in its messages: "version 0x01", "version 0x04 and
    /// earlier", "versions 0x01, 0x04".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(newest) = self.highest_wire() else {
            return f.write_str("no versions");
        };
        if self.0.is_power_of_two() {
            return write!(f, "version 0x{newest:02x}");
        }
        if *self == Versions::up_to(newest) {
            return write!(f, "version 0x{newest:02x} and earlier");
        }
        f.write_str("versions ")?;
        let mut separator = "";
        for bit in (0..32).filter(|bit| self.0 & (1 << bit) != 0) {
            write!(f, "{separator}0x{bit:02x}")?;
            separator = ", ";
        }
        Ok(())
    }
}

/// OFPT_HELLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The versions that the sender supports. A sender without a version bitmap supports every
    /// version up to that of its header.
    pub versions: Versions,
}

/// An error of OFPT_ERROR: one that this program knows by name, or the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// Known, with its name.
    Known(OfError),
    /// Unknown, as it came (`vendor` 0 for OpenFlow's own numbers).
    Unknown {
        /// Vendor (experimenter) id.
        vendor: u32,
        /// OFPET_*.
        kind: u16,
        /// The code within the type.
        code: u16,
    },
}

/// OFPT_ERROR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorMessage {
    /// The error: known by name, or as type and code.
    pub error: ErrorCode,
    /// The message that was wrong, or its beginning; for OFPET_HELLO_FAILED a text.
    pub data: Vec<u8>,
}

impl ErrorMessage {
    /// Most bytes of the offending message that an error message holds, given its own headers. The
    /// limit leaves room for the longer header of Nicira's errors (OFPET_VENDOR).
    pub(crate) const MAX_DATA: usize = u16::MAX as usize - 8 - 4 - 12;

    /// Returns the error about `request`, a whole message. The error holds the whole request, so
    /// that its reader sees the cause; only the end of a very long request is cut.
    pub fn about(error: OfError, request: &[u8]) -> ErrorMessage {
        ErrorMessage { error: ErrorCode::Known(error), data: Self::kept(request).to_vec() }
    }

    /// The part of `request` that an error message about it holds.
    pub fn kept(request: &[u8]) -> &[u8] {
        request.get(..Self::MAX_DATA).unwrap_or(request)
    }
}

bitflags::bitflags! {
    /// Capabilities of a switch (OFPC_*), one bit each whatever the version. A version's reply
    /// holds those that it knows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Capabilities: u32 {
        /// Flow statistics.
        const FLOW_STATS = 1 << 0;
        /// Table statistics.
        const TABLE_STATS = 1 << 1;
        /// Port statistics.
        const PORT_STATS = 1 << 2;
        /// 802.1D spanning tree (1.0) .
        const STP = 1 << 3;
        /// Can reassemble IP fragments.
        const IP_REASM = 1 << 4;
        /// Queue statistics.
        const QUEUE_STATS = 1 << 5;
        /// Match IP addresses in ARP packets (1.0, 1.1).
        const ARP_MATCH_IP = 1 << 6;
        /// Group statistics (1.1+).
        const GROUP_STATS = 1 << 7;
        /// Blocks looping ports (1.2+).
        const PORT_BLOCKED = 1 << 8;
        /// Bundles (1.4+).
        const BUNDLES = 1 << 9;
        /// Flow monitoring (1.4+).
        const FLOW_MONITORING = 1 << 10;
    }
}

/// OFPT_FEATURES_REPLY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchFeatures {
    /// Datapath id.
    pub datapath_id: u64,
    /// Packets that can be buffered.
    pub n_buffers: u32,
    /// Flow tables.
    pub n_tables: u8,
    /// 1.3+: which auxiliary connection this is.
    pub auxiliary_id: u8,
    /// Capabilities of the switch (OFPC_*).
    pub capabilities: Capabilities,
    /// 1.0: supported actions, bit N for the action with number N.
    pub actions: u32,
    /// Ports; in the message up to 1.2 (later: port description request).
    pub ports: Vec<PortDesc>,
}

impl SwitchFeatures {
    /// The actions of OpenFlow 1.0 (OFPAT10_OUTPUT to OFPAT10_ENQUEUE) as a bitmap.
    pub const ALL_OF10_ACTIONS: u32 = 0xfff;
}

/// Handling of IP fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FragmentHandling {
    /// No special handling ("normal").
    #[default]
    Normal,
    /// Drop them.
    Drop,
    /// Reassemble the fragments.
    Reassemble,
    /// Nicira: match them (`nx-match`).
    NxMatch,
}

/// OFPT_SET_CONFIG and OFPT_GET_CONFIG_REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Handling of IP fragments.
    pub fragments: FragmentHandling,
    /// Packets with invalid TTL go to the controller. `None`: the version has no such flag,
    /// so that it stays as it is.
    pub invalid_ttl_to_controller: Option<bool>,
    /// Bytes of a packet to send to the controller when there is no match (or no other figure).
    pub miss_send_len: u16,
}

/// A controller's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Leaves the role as it is (asks for it).
    NoChange,
    /// Full access, together with others (Nicira: "other").
    Equal,
    /// Full access, at most one (OpenFlow: "master").
    Primary,
    /// Read only (OpenFlow: "slave").
    Secondary,
}

/// OFPT_ROLE_REQUEST, OFPT_ROLE_REPLY and NXT_ROLE_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleRequest {
    /// The role.
    pub role: Role,
    /// Whether this is a later request than others; not in Nicira's form.
    pub generation_id: Option<u64>,
    /// Nicira's form.
    pub nicira: bool,
}

/// Why a role changed (OFPCRR_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RoleReason {
    /// Another controller asked to be primary.
    PrimaryRequest = 0,
    /// The switch's configuration.
    Config = 1,
    /// An experimenter's data changed.
    Experimenter = 2,
}

/// OFPT_ROLE_STATUS (1.4+).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleStatus {
    /// The new role.
    pub role: Role,
    /// The reason for the change of role.
    pub reason: RoleReason,
    /// The primary's generation id; `u64::MAX` when unknown.
    pub generation_id: u64,
}

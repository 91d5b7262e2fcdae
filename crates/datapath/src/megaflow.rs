// SPDX-License-Identifier: Apache-2.0
//! Megaflows, the flows that a datapath holds.

use crate::{Actions, Tier, TierRefusals};
use clock::Millis;
use flow::{Field, Key, Mask, Match};
use std::fmt;

/// Identity of a megaflow: a 128-bit hash of its match, printed as a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ufid(pub u128);

impl fmt::Display for Ufid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            v >> 96,
            (v >> 80) & 0xffff,
            (v >> 64) & 0xffff,
            (v >> 48) & 0xffff,
            v & 0xffff_ffff_ffff
        )
    }
}

/// A megaflow to install: the packets it matches (`in_port` is a datapath port; `in_port`,
/// `recirc_id` and `packet_type` are always exact) and the actions on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Megaflow {
    /// Unique id of the megaflow.
    pub ufid: Ufid,
    /// The packets.
    pub matching: Match,
    /// The actions to run; an empty list drops the packet.
    pub actions: Actions,
}

/// True when it matches all that a datapath parses of its packets. Such matches have a mask for each
/// sort of packet, some dozens in all.
pub fn is_exact(matching: &Match) -> bool {
    *matching.mask() == exact_mask(matching.key())
}

/// Every field that a datapath parses of a packet with this key, and where it came from.
pub fn exact_mask(key: &Key) -> Mask {
    let mut mask = Mask::WILDCARD;
    for field in Field::ALL {
        if !field.is_register()
            && !field.is_of_tunnel()
            && !matches!(field, Field::Metadata | Field::ConjId | Field::ActsetOutput)
            && field.prerequisite().holds(key)
        {
            mask.set_exact(field);
        }
    }
    for field in [Field::InPortOxm, Field::RecircId, Field::PacketType] {
        mask.set_exact(field);
    }
    // The port decides whether packets have a tunnel.
    if key.tunnel.is_some() {
        mask.0.tunnel = Mask::EXACT.0.tunnel;
    }
    mask
}

/// Statistics of a megaflow since it was installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FlowStats {
    /// Number of packets.
    pub packets: u64,
    /// Bytes of whole frames.
    pub bytes: u64,
    /// When the last packet came; `Millis(0)` is never.
    pub used: Millis,
    /// TCP flags seen, ORed (12 bits, host integer).
    pub tcp_flags: u16,
}

impl FlowStats {
    /// Returns the sum of a flow's counts in two places. Counts end at `u64::MAX`.
    #[must_use]
    pub fn plus(self, other: FlowStats) -> FlowStats {
        FlowStats {
            packets: self.packets.saturating_add(other.packets),
            bytes: self.bytes.saturating_add(other.bytes),
            used: self.used.max(other.used),
            tcp_flags: self.tcp_flags | other.tcp_flags,
        }
    }
}

/// How much of a megaflow's work a faster tier does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Offloaded {
    /// Nothing: it is in the base only. At [`Tier::Tc`]: no hardware runs it.
    #[default]
    No,
    /// It runs in a faster tier, but a tier of its ingress port that is faster still, or another
    /// tier of the same provider, does not take it.
    Partial,
    /// It runs in the fastest tier of its ingress port, and in all tiers of that provider that the
    /// port is on. Refusals by slower providers do not count.
    Yes,
}

impl Offloaded {
    /// Name in texts (`offloaded:NAME`).
    pub fn name(self) -> &'static str {
        match self {
            Offloaded::No => "no",
            Offloaded::Partial => "partial",
            Offloaded::Yes => "yes",
        }
    }
}

/// A megaflow with its statistics and its place, for one line of a dump.
#[derive(Clone, Debug)]
pub struct FlowDump {
    /// The megaflow.
    pub flow: Megaflow,
    /// Its statistics.
    pub stats: FlowStats,
    /// Where it runs.
    pub tier: Tier,
    /// Why it does not run in each of the faster tiers of its ingress port, and in the other tiers
    /// of its fastest tier's provider. For a megaflow in the base only: in each tier.
    pub refusals: TierRefusals,
    /// How much of it a faster tier than the base does.
    pub offloaded: Offloaded,
}

// SPDX-License-Identifier: Apache-2.0
//! The part of a bond that translation reads.

use super::{Buckets, LacpStatus, Mode};
use openflow::PortNo;
use packet::Mac;
use std::sync::Arc;

/// A bond, as translation sees it.
#[derive(Clone, Debug, Default)]
pub struct BondView {
    /// How members are chosen.
    pub mode: Mode,
    /// The state of LACP.
    pub lacp: LacpStatus,
    /// The bond is an active-backup bond while LACP has no partner.
    pub falls_back: bool,
    /// Number that is mixed into the hash.
    pub basis: u32,
    /// Members that are not active take multicast packets too.
    pub all_members_active: bool,
    /// The active member.
    pub active: Option<PortNo>,
    /// Members that carry traffic.
    pub enabled: Vec<PortNo>,
    /// Members that carry traffic, or will when their delay is over.
    pub usable: Vec<PortNo>,
    /// Id of the datapath's bond that chooses the member by the 5-tuple; `None`: translation chooses
    /// it.
    pub output: Option<u32>,
    /// The buckets of the hash.
    pub buckets: Arc<Buckets>,
}

/// Whether a bond takes a packet from a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accept,
    Drop,
    /// The packet is dropped when its source address is learned on another port: the other end has
    /// sent a packet of this end back.
    DropIfMoved,
}

/// How a bond chooses the member that sends a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This member, for every packet; `None` for no member.
    Fixed(Option<PortNo>),
    /// By the hash of the source address and VLAN.
    SourceHash,
    /// By the hash of the 5-tuple, the same for both directions.
    TupleHash,
    /// By the datapath's bond with this id.
    Datapath(u32),
}

impl BondView {
    /// Returns whether a packet to `destination` may come in by `member`.
    pub(crate) fn verdict(&self, member: PortNo, destination: Mac) -> Verdict {
        let accept_if = |is_good: bool| if is_good { Verdict::Accept } else { Verdict::Drop };
        let falls_back = self.falls_back;
        match (self.lacp, self.mode) {
            // The other end knows of the bond, and sends nothing back.
            (LacpStatus::Negotiated, _) => return accept_if(self.usable.contains(&member)),
            (LacpStatus::Configured, _) if !falls_back => return Verdict::Drop,
            (LacpStatus::Off, Mode::BalanceTcp) => return Verdict::Drop,
            _ => {}
        }
        let is_active = self.active == Some(member);
        let is_multicast = destination.0[0] & 1 != 0;
        if is_multicast && !is_active && !self.all_members_active {
            return Verdict::Drop;
        }
        match self.mode {
            Mode::BalanceSlb => Verdict::DropIfMoved,
            Mode::ActiveBackup | Mode::BalanceTcp => accept_if(is_active),
        }
    }

    /// Returns how the member that sends a packet is chosen.
    pub(crate) fn choice(&self) -> Choice {
        match (self.lacp, self.mode) {
            (LacpStatus::Configured, _) if self.falls_back => Choice::Fixed(self.active),
            (LacpStatus::Configured, _) | (LacpStatus::Off, Mode::BalanceTcp) => {
                Choice::Fixed(None)
            }
            (_, Mode::ActiveBackup) => Choice::Fixed(self.active),
            (_, Mode::BalanceSlb) => Choice::SourceHash,
            (LacpStatus::Negotiated, Mode::BalanceTcp) => {
                self.output.map_or(Choice::TupleHash, Choice::Datapath)
            }
        }
    }

    /// Returns the member for a bucket; see [`Buckets`].
    pub(crate) fn member(&self, bucket: u8) -> Option<PortNo> {
        self.buckets.member(bucket, &self.enabled)
    }
}

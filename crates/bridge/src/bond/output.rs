// SPDX-License-Identifier: Apache-2.0
//! A bond as one output of the datapath: the datapath hashes each packet, and a table of the control
//! thread has the member for each bucket.

use super::{Bond, LacpStatus, Mode};
use datapath::{BondTable, PortNo as DpPort, Refusal};
use openflow::PortNo;

/// How megaflows send to a bond that has a member for each 5-tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Each megaflow names a member.
    PerMember,
    /// The same, because the datapath refuses the bond for this reason.
    Refused(Refusal),
    /// Megaflows name this bond of the datapath, which chooses the member for each packet.
    Datapath(u32),
}

impl Output {
    /// Returns the id of the datapath's bond.
    pub fn id(self) -> Option<u32> {
        match self {
            Output::Datapath(id) => Some(id),
            Output::PerMember | Output::Refused(_) => None,
        }
    }
}

impl Bond {
    /// Returns how megaflows send to the bond.
    pub fn output(&self) -> Output {
        self.output
    }

    /// Returns the id of the datapath's bond by which packets leave now; `None`: megaflows name members.
    pub fn datapath_id(&self) -> Option<u32> {
        self.output.id().filter(|_| self.has_output())
    }

    /// Sets how megaflows send to the bond. Returns true when translation must follow.
    pub(crate) fn set_output(&mut self, output: Output) -> bool {
        let before = std::mem::replace(&mut self.output, output);
        if let Output::Refused(refusal) = output
            && before != output
        {
            tracing::info!(
                target: "bond",
                "bond {}: each megaflow names a member, because {}",
                self.name,
                refusal.meaning()
            );
        }
        before.id() != output.id()
    }

    /// Returns true when the datapath is to choose the members, once LACP has a partner.
    pub(crate) fn wants_output(&self) -> bool {
        self.settings.lb_output && self.settings.mode == Mode::BalanceTcp
    }

    /// Returns true when buckets choose the member now.
    pub(crate) fn has_output(&self) -> bool {
        self.wants_output() && self.lacp == LacpStatus::Negotiated
    }

    /// Takes over the members of buckets that have none yet from a table that an earlier daemon left.
    pub(crate) fn recall_buckets(&self, table: &BondTable, ports: &[(PortNo, DpPort)]) {
        for bucket in 0..=u8::MAX {
            let member = table.member(bucket);
            let known = ports.iter().find(|(_, dp_port)| Some(*dp_port) == member);
            if let (None, Some((number, _))) = (self.buckets.assigned(bucket), known) {
                self.buckets.assign(bucket, *number);
            }
        }
    }

    /// Returns true when a member was enabled since the last call.
    pub(crate) fn take_new_member(&mut self) -> bool {
        std::mem::take(&mut self.has_new_member)
    }

    /// Spreads the buckets without a load over all enabled members. A table gives every bucket to a
    /// member at once, and members are seldom enabled together.
    pub(crate) fn spread_idle(&self) {
        self.buckets.release_idle();
    }

    /// Returns the table for the datapath, where each bucket has an enabled member, if there is one.
    /// `ports`: all members with their numbers in the datapath.
    pub(crate) fn table(&self, ports: &[(PortNo, DpPort)]) -> BondTable {
        let enabled: Vec<PortNo> =
            self.members.iter().filter(|m| m.is_enabled).map(|m| m.number).collect();
        let dp_port =
            |number| ports.iter().find(|(n, _)| *n == number).map(|(_, dp_port)| *dp_port);
        let members = ports.iter().map(|(_, dp_port)| *dp_port);
        BondTable::new(self.settings.basis, members, |bucket| {
            self.buckets.member(bucket, &enabled).and_then(dp_port)
        })
    }

    /// Credits bytes that a bucket has sent in the datapath.
    pub(crate) fn credit(&self, bucket: u8, bytes: u64) {
        self.buckets.credit(bucket, bytes);
    }
}

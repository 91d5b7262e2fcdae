// SPDX-License-Identifier: Apache-2.0
//! The result of a translation.

use crate::effect::Effect;
use crate::protocol::Claim;
use crate::recirc::RecircRef;
use datapath::{Action, DropReason, Userdata};
use flow::Mask;

/// Reason for which a translation gave a drop. The limits are in [`crate::translate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum TranslationError {
    /// No bridge has the index of the request.
    #[error("Bridge not found")]
    BridgeNotFound,
    /// More than `MAX_DEPTH` nested levels.
    #[error("Recursion too deep")]
    RecursionTooDeep,
    /// More than `MAX_RESUBMITS` table lookups, or more than `MAX_BUCKETS` buckets of groups.
    #[error("Too many resubmits")]
    TooManyResubmits,
    /// More than `MAX_STACK_BYTES` on the stack of `push` and `pop`.
    #[error("Stack too deep")]
    StackTooDeep,
    /// More than `MAX_ACTIONS` datapath actions.
    #[error("Too many datapath actions")]
    TooManyActions,
    /// The `recirc_id` of the key belongs to no frozen pipeline.
    #[error("No recirculation context")]
    NoRecirculationContext,
    /// The options of a Geneve header are not valid by the bridge's table.
    #[error("Invalid tunnel metadata")]
    InvalidTunnelMetadata,
    /// More MPLS labels than a key holds.
    #[error("Too many MPLS labels")]
    TooManyMplsLabels,
    /// An `encap` or `decap` that packets of this type cannot have.
    #[error("Unsupported packet type")]
    UnsupportedPacketType,
}

/// Result of a translation.
#[derive(Clone, Debug, Default)]
pub struct Translation {
    /// Datapath actions; empty is a drop.
    pub actions: Vec<datapath::Action>,
    /// Bits of the datapath's key that the actions depend on. `in_port`, `recirc_id`, `packet_type`
    /// and `dl_type` are always exact; no register or metadata bit is set.
    pub mask: Mask,
    /// Other consequences of the megaflow's packets; empty with `EffectsMode::Suppress`.
    pub effects: Vec<Effect>,
    /// Reason why the packet is dropped, when the pipeline could not be followed to its end.
    pub error: Option<TranslationError>,
    /// Reason why each packet needs a translation of its own, as datapaths show it. The megaflow then
    /// sends its packets here.
    pub slow_path: Option<&'static str>,
    /// Control protocols that take the packet. Then each packet needs an upcall, whose answer
    /// `actions` are.
    pub claims: Vec<Claim>,
    /// Pipelines that `actions` recirculate to or report from; the megaflow owns them.
    pub(crate) recirc_ids: Vec<RecircRef>,
}

impl Translation {
    /// Returns the reason why each packet needs an upcall, as datapaths show it.
    pub fn slow_path_reason(&self) -> Option<&'static str> {
        self.claims.first().map(|claim| claim.protocol.reason()).or(self.slow_path)
    }

    /// Returns true when each packet needs an upcall.
    pub(crate) fn needs_slow_path(&self) -> bool {
        self.slow_path_reason().is_some()
    }

    /// Returns the actions for the megaflow, which a datapath runs.
    pub(crate) fn installed_actions(&self) -> Vec<Action> {
        if let Some(reason) = self.slow_path_reason() {
            return vec![Action::Userspace(Userdata::SlowPath { reason })];
        }
        match (self.actions.is_empty(), self.error.is_some()) {
            (false, _) => self.actions.clone(),
            (true, true) => vec![Action::Drop(DropReason::TranslationError)],
            (true, false) => vec![Action::Drop(DropReason::Flow)],
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The tier of cards: `other_config:hw-offload` turns it on and off, and `tc-policy` can keep flows
//! from it. Filters that an earlier daemon left in a card are removed at the start.

use super::context::Context;
use super::desired::{TcPolicy, Tunables};
use super::state::SwitchState;
use datapath::Refusal;
use datapath::offload::{OffloadProvider, Reason};
use datapath_tc::{CARD, CardProvider};
use std::sync::Arc;

/// Returns the reason for which the settings keep flows from cards.
fn blocked(new: &Tunables) -> Option<Reason> {
    if !new.hw_offload {
        return Some(datapath_tc::disabled());
    }
    match new.tc_policy {
        TcPolicy::None | TcPolicy::SkipSoftware => None,
        TcPolicy::SkipHardware => {
            Some(Reason::new(Refusal::TierDisabled, "other_config:tc-policy=skip_hw"))
        }
    }
}

/// Puts `hw-offload` and `tc-policy` into force; before the first port.
pub(super) fn sync(context: &Context<'_>, state: &mut SwitchState, new: &Tunables) {
    let Some(placed) = context.placed else { return };
    if !state.configured {
        discard();
    }
    let blocked = blocked(new);
    if blocked.is_none() && !placed.is_begun(CARD) {
        let provider = CardProvider::open(context.clock.clone());
        let provider = provider.map(|provider| Arc::new(provider) as Arc<dyn OffloadProvider>);
        let provider = provider.map_err(|error| {
            tracing::warn!(target: "dpif", "no flow goes to a card: no netlink socket ({error})");
            Reason::new(Refusal::TierUnavailable, format!("a netlink socket: {error}"))
        });
        placed.begin(CARD, provider);
        if let Err(error) = placed.serve(CARD, context.userspace) {
            tracing::warn!(target: "dpif", "no flow goes to a card ({error})");
        }
    }
    placed.set_blocked(CARD, blocked);
    if new.hw_offload && new.tc_policy == TcPolicy::SkipHardware {
        state.remarks.info(
            "other_config:tc-policy=skip_hw keeps flows from cards, and this version installs no \
             filters for the kernel alone: flows run in BPF or in userspace",
        );
    }
}

/// Removes the filters that an earlier daemon left in cards.
fn discard() {
    match datapath_tc::discard_all() {
        Ok(0) => {}
        Ok(filters) => tracing::info!(
            target: "dpif",
            "removed {filters} filters that an earlier daemon left for cards",
        ),
        Err(error) => tracing::warn!(
            target: "dpif",
            "filters that an earlier daemon left for cards may stay, and forward ({error})",
        ),
    }
}

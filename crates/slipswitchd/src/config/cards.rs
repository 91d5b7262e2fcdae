// SPDX-License-Identifier: Apache-2.0
//! The tier of traffic control: `other_config:hw-offload` turns it on and off, and `tc-policy` says which
//! of cards and kernel run its filters. Filters that an earlier daemon left in a card are removed at the start.

use super::context::Context;
use super::desired::{TcPolicy, Tunables};
use super::state::SwitchState;
use datapath::Refusal;
use datapath::offload::{OffloadProvider, Reason};
use datapath_tc::filter::Policy;
use datapath_tc::{CARD, CardProvider};
use std::sync::Arc;

/// Puts `hw-offload` and `tc-policy` into force; before the first port.
pub(super) fn sync(context: &Context<'_>, state: &mut SwitchState, new: &Tunables) {
    let Some(placed) = context.placed else { return };
    if !state.configured {
        discard();
    }
    if new.hw_offload && !placed.is_begun(CARD) {
        let provider = CardProvider::open(context.clock.clone()).map(Arc::new);
        state.cards = provider.as_ref().ok().cloned();
        let provider = provider.map(|provider| provider as Arc<dyn OffloadProvider>);
        let provider = provider.map_err(|error| {
            tracing::warn!(target: "dpif", "no flow goes to a card: no netlink socket ({error})");
            Reason::new(Refusal::TierUnavailable, format!("a netlink socket: {error}"))
        });
        if let Some(cards) = &state.cards {
            cards.set_policy(policy(new));
        }
        placed.begin(CARD, provider);
        if let Err(error) = placed.serve(CARD, context.userspace) {
            tracing::warn!(target: "dpif", "no flow goes to a card ({error})");
        }
    }
    let is_other = new.tc_policy != state.tunables.tc_policy && state.configured;
    if let Some(cards) = state.cards.as_ref().filter(|_| is_other) {
        // All ports are attached again, by the new policy.
        placed.set_blocked(CARD, Some(datapath_tc::disabled()));
        cards.set_policy(policy(new));
    }
    placed.set_blocked(CARD, (!new.hw_offload).then(datapath_tc::disabled));
    if new.hw_offload && new.tc_policy == TcPolicy::SkipHardware {
        state.remarks.info(
            "other_config:tc-policy=skip_hw keeps flows from cards: ports with other_config:tier=tc \
             have filters in the kernel, and other flows run in BPF or in userspace",
        );
    }
}

fn policy(new: &Tunables) -> Policy {
    match new.tc_policy {
        TcPolicy::None => Policy::Both,
        TcPolicy::SkipSoftware => Policy::SkipSoftware,
        TcPolicy::SkipHardware => Policy::SkipHardware,
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

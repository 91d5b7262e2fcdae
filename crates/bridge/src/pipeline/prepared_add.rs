// SPDX-License-Identifier: Apache-2.0
//! Flow mods that add a rule, prepared for a table before they are carried out.
//!
//! All messages of a bundle are carried out at once, and the peer waits for the end. The part of
//! the work that depends on no table is done earlier, while the peer sends the next message.

use super::{Change, NewRule, Pipeline};
use classifier::MiniMatch;
use clock::Millis;
use openflow::OfError;
use openflow::message::{FlowMod, FlowModCommand};
use std::sync::Arc;

/// A checked flow mod that adds a rule. It takes far less memory than the decoded message.
#[derive(Debug)]
pub(crate) struct PreparedAdd(NewRule);

impl PreparedAdd {
    /// Prepares `fm`, which has passed all checks that depend on no table. `None` for a flow mod
    /// that does other things than to add a rule. Equal masks and equal lists of actions are shared
    /// with `last`.
    pub(crate) fn new(fm: &FlowMod, last: Option<&PreparedAdd>) -> Option<PreparedAdd> {
        if fm.command != FlowModCommand::Add {
            return None;
        }
        let matching = last
            .and_then(|last| MiniMatch::with_mask_of(&last.0.matching, &fm.matching))
            .unwrap_or_else(|| MiniMatch::new(&fm.matching));
        let known = last.map(|last| &last.0.actions).filter(|known| **known == fm.actions);
        let actions = Arc::clone(known.unwrap_or(&fm.actions));
        Some(PreparedAdd(NewRule::of(fm, matching, actions)))
    }
}

impl Pipeline {
    /// Carries out `add`; see [`Pipeline::flow_mod`].
    ///
    /// # Errors
    ///
    /// Those of [`Pipeline::flow_mod`]. Nothing has changed then.
    pub(crate) fn add_prepared(
        &mut self,
        add: PreparedAdd,
        meter_exists: &dyn Fn(u32) -> bool,
        now: Millis,
    ) -> Result<Vec<Change>, OfError> {
        let PreparedAdd(new) = add;
        self.check_references(&new.actions, meter_exists)?;
        let table = self.table(new.table).ok_or(OfError::OFPFMFC_BAD_TABLE_ID)?;
        let matching = table.rules().share_mask(new.matching);
        let actions = self.pool.share(&new.actions);
        self.add_as_asked(NewRule { matching, actions, ..new }, now)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A flow that a `learn` action adds.

use crate::ids::INTERNAL_TABLE;
use crate::rule::{Rule, matches_frozen};
use crate::snapshot::BridgeView;
use classifier::MiniMatch;
use openflow::message::FlowFlags;
use std::sync::Arc;

/// A flow made by a `learn` action, ready to be added to the bridge that the action names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedFlow {
    /// Table that the flow is added to.
    pub table: u8,
    /// Priority of the flow in its table.
    pub priority: u16,
    /// The match of the flow.
    pub matching: flow::Match,
    /// The actions of the flow.
    pub actions: openflow::action::Actions,
    /// Cookie of the flow.
    pub cookie: u64,
    /// Idle timeout in seconds; 0 is none.
    pub idle_timeout: u16,
    /// Hard timeout in seconds; 0 is none.
    pub hard_timeout: u16,
    /// Whether the flow sends OFPT_FLOW_REMOVED (`send_flow_rem`).
    pub send_flow_removed: bool,
    /// Cookie and table of the rule that learned the flow, when that rule's deletion deletes the
    /// flow, too.
    pub delete_with: Option<(u64, u8)>,
    /// Most flows with this cookie in this table; 0 is no limit.
    pub limit: u32,
}

impl LearnedFlow {
    /// Returns true when only the switch itself may have such a flow. The flow is then not learned
    /// (OFPBRC_EPERM).
    pub(crate) fn is_reserved(&self) -> bool {
        self.table == INTERNAL_TABLE || matches_frozen(&self.matching)
    }

    /// Returns the flags of the resulting rule.
    pub(crate) fn flags(&self) -> FlowFlags {
        match self.send_flow_removed {
            true => FlowFlags::SEND_FLOW_REM,
            false => FlowFlags::empty(),
        }
    }

    /// Returns true when `bridge`, to which the flow belongs, has a rule equal to the flow.
    pub(crate) fn is_in(&self, bridge: &BridgeView) -> bool {
        self.rule_in(bridge).is_some()
    }

    /// Returns the rule of `bridge`, to which the flow belongs, that is equal to the flow.
    pub(crate) fn rule_in<'a>(&self, bridge: &'a BridgeView) -> Option<&'a Arc<Rule>> {
        let exact = MiniMatch::new(&self.matching);
        let table = bridge.tables.get(usize::from(self.table))?;
        table.rules.find(&exact, self.priority.into()).filter(|rule| self.is(rule))
    }

    /// Returns true when `rule`, which has the same match, also has the same actions and cookie.
    /// Learning modifies any other rule, where the limit allows it, and keeps the rule's timeouts
    /// and flags, as in OVS.
    pub(crate) fn is(&self, rule: &Rule) -> bool {
        rule.actions == self.actions && rule.cookie == self.cookie
    }
}

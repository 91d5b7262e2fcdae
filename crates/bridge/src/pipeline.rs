// SPDX-License-Identifier: Apache-2.0
//! The OpenFlow tables and groups of one bridge: the control thread's mutable copy.
//!
//! Tables are persistent structures, so the clone of a [`Pipeline`] is cheap. Bundles are atomic
//! because of that: they keep a clone, apply their messages, and restore the clone on an error.
//! Every change returns [`Change`]s. Connections make flow-removed messages and monitor updates
//! from them; nothing here sends messages to a controller.

mod action_pool;
mod eviction;
mod flow_mod;
mod group_mod;
mod prepared_add;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use flow_mod::permit;
pub(crate) use group_mod::properties;
pub(crate) use prepared_add::PreparedAdd;
pub(crate) use table::as_added;
pub use table::{EvictionConfig, Table};

use crate::group::Group;
use crate::learned_flow::LearnedFlow;
use crate::rule::{Latest, Rule, RuleStats, Timeouts, is_conjunctive};
use crate::snapshot::{INTERNAL_TABLE, TABLES, TableArray};
use action_pool::ActionPool;
use classifier::MiniMatch;
use clock::Millis;
use flow::Match;
use hashbrown::HashMap;
use openflow::OfError;
use openflow::PortNo;
use openflow::action::Actions;
use openflow::message::{FlowFlags, FlowRemovedReason, GROUP_ANY, TABLE_ALL};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A change of a rule.
#[derive(Clone, Debug)]
pub enum Change {
    /// A rule was added.
    Added(Arc<Rule>),
    /// A rule was replaced by one with the same match and priority.
    Modified {
        /// The rule before the change.
        old: Arc<Rule>,
        /// The rule after the change.
        new: Arc<Rule>,
        /// A command that adds rules made the change; monitors report an added rule.
        is_added: bool,
    },
    /// A rule was removed.
    Removed {
        /// The rule.
        rule: Arc<Rule>,
        /// Reason for the removal, as OFPT_FLOW_REMOVED reports it.
        reason: FlowRemovedReason,
    },
}

impl Change {
    /// Returns true when a rule was removed by its own timeout.
    pub(crate) fn is_expiry(&self) -> bool {
        use FlowRemovedReason::{HardTimeout, IdleTimeout};
        matches!(self, Change::Removed { reason: HardTimeout | IdleTimeout, .. })
    }
}

/// Selection of rules in a request.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Selects rules within this match.
    pub matching: Match,
    /// With a priority: selects only the rule with exactly this match and priority.
    pub strict_priority: Option<u16>,
    /// Number of the table; [`TABLE_ALL`] for all tables.
    pub table: u8,
    /// Selects rules whose cookie equals this one in the bits of `cookie_mask`.
    pub cookie: u64,
    /// Bits of the cookie that are compared; 0 selects any cookie.
    pub cookie_mask: u64,
    /// Selects rules that output to this port; `NONE` for no restriction.
    pub out_port: PortNo,
    /// Selects rules that use this group; [`GROUP_ANY`] for no restriction.
    pub out_group: u32,
}

impl Default for Filter {
    fn default() -> Self {
        Filter {
            matching: Match::ANY,
            strict_priority: None,
            table: TABLE_ALL,
            cookie: 0,
            cookie_mask: 0,
            out_port: PortNo::NONE,
            out_group: GROUP_ANY,
        }
    }
}

impl Filter {
    /// Returns true when the filter selects every rule of its tables except hidden ones.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.matching.mask().is_wildcard()
            && self.strict_priority.is_none()
            && self.cookie_mask == 0
            && self.out_port == PortNo::NONE
            && self.out_group == GROUP_ANY
    }

    fn admits(&self, rule: &Rule) -> bool {
        (rule.cookie ^ self.cookie) & self.cookie_mask == 0
            && (self.out_port == PortNo::NONE || rule.outputs_to(self.out_port))
            && (self.out_group == GROUP_ANY || rule.uses_group(self.out_group))
    }
}

/// Parts of a new rule.
#[derive(Clone, Debug)]
pub(crate) struct NewRule {
    pub table: u8,
    pub priority: u32,
    pub matching: MiniMatch,
    pub cookie: u64,
    pub idle_timeout: u16,
    pub hard_timeout: u16,
    pub importance: u16,
    pub flags: FlowFlags,
    pub hidden: bool,
    pub actions: Actions,
}

impl NewRule {
    /// Builds the rule.
    pub(crate) fn build(self, created: Millis, now: Millis, stats: Arc<RuleStats>) -> Arc<Rule> {
        Arc::new(Rule {
            id: Rule::next_id(),
            table: self.table,
            priority: self.priority,
            matching: self.matching,
            cookie: self.cookie,
            timeouts: Timeouts::new(self.idle_timeout, self.hard_timeout),
            importance: self.importance,
            flags: self.flags & FlowFlags::STATE,
            hidden: self.hidden,
            created,
            modified: Latest::new(now),
            is_conjunctive: is_conjunctive(&self.actions),
            actions: self.actions,
            stats,
        })
    }
}

/// Tables and groups of one bridge. A clone is cheap and independent (counters are shared).
#[derive(Clone, Debug)]
pub struct Pipeline {
    tables: Vec<Table>,
    /// The tables in the form for translation, without later changes to those of `touched`.
    view: TableArray,
    /// Tables that may have changed since `view` was made.
    touched: BTreeSet<u8>,
    groups: Arc<HashMap<u32, Arc<Group>>>,
    /// Equal lists of actions, which rules share.
    pool: ActionPool,
}

impl Default for Pipeline {
    fn default() -> Self {
        let tables: Vec<Table> = (0..TABLES).map(|_| Table::default()).collect();
        let view = tables.iter().map(Table::view).collect();
        Pipeline {
            tables,
            view,
            touched: BTreeSet::new(),
            groups: Arc::default(),
            pool: ActionPool::default(),
        }
    }
}

impl Pipeline {
    /// Returns table `id`; `None` for 255, which is no table.
    pub fn table(&self, id: u8) -> Option<&Table> {
        self.tables.get(usize::from(id))
    }

    /// Returns table `id` for changes to its configuration.
    pub fn table_mut(&mut self, id: u8) -> Option<&mut Table> {
        let table = self.tables.get_mut(usize::from(id))?;
        self.touched.insert(id);
        Some(table)
    }

    /// Returns all tables with their numbers.
    pub fn tables(&self) -> impl Iterator<Item = (u8, &Table)> {
        (0u8..=254).zip(&self.tables)
    }

    /// Returns all groups by number.
    pub fn groups(&self) -> &Arc<HashMap<u32, Arc<Group>>> {
        &self.groups
    }

    /// Returns the number of rules, hidden ones included.
    pub fn rule_count(&self) -> usize {
        self.tables.iter().map(|t| t.rules().len()).sum()
    }

    /// Returns the tables in the form for translation.
    pub fn view(&mut self) -> TableArray {
        for id in std::mem::take(&mut self.touched) {
            let id = usize::from(id);
            if let (Some(view), Some(table)) = (self.view.get_mut(id), self.tables.get(id)) {
                *view = table.view();
            }
        }
        self.view.clone()
    }

    /// Returns the rules that `filter` selects: by table, in the order in which they were added.
    /// Hidden rules are left out, except those of [`INTERNAL_TABLE`] when the filter names that
    /// table.
    pub fn select(&self, filter: &Filter) -> Vec<Arc<Rule>> {
        let shown = |rule: &Rule| !rule.hidden || filter.table == INTERNAL_TABLE;
        let mut out = Vec::new();
        let tables = if filter.table == TABLE_ALL { 0..=254 } else { filter.table..=filter.table };
        for table in tables {
            let Some(table) = self.table(table) else { continue };
            match filter.strict_priority {
                Some(priority) => {
                    let mini = MiniMatch::new(&filter.matching);
                    let found = table.rules().find(&mini, u32::from(priority));
                    out.extend(found.filter(|r| shown(r) && filter.admits(r)).map(Arc::clone));
                }
                None => {
                    let within = table.rules().iter_within(&filter.matching);
                    out.extend(as_added(within.filter(|r| shown(r) && filter.admits(r))));
                }
            }
        }
        out
    }

    /// Adds or refreshes a flow that a `learn` action made. `used` is the arrival time of its
    /// packet. An empty result means that packets see no difference.
    ///
    /// # Errors
    ///
    /// Fails when the table does not exist, is full, or belongs to the switch. Nothing has changed
    /// then.
    pub(crate) fn learn(
        &mut self,
        flow: &LearnedFlow,
        used: Millis,
        now: Millis,
    ) -> Result<Vec<Change>, OfError> {
        let Some(table) = self.table(flow.table) else { return Err(OfError::OFPFMFC_BAD_TABLE_ID) };
        if flow.is_reserved() {
            return Err(OfError::OFPBRC_EPERM);
        }
        let mini = table.rules().compress(&flow.matching);
        let old = table.rules().find(&mini, u32::from(flow.priority)).map(Arc::clone);
        if let Some(old) = &old
            && flow.is(old)
        {
            // Restarts the hard timeout. Only a packet that matches the rule restarts its idle
            // timeout. Packets see no difference.
            old.modified.record(used);
            return Ok(Vec::new());
        }
        if flow.limit != 0 {
            let cookie = flow.cookie;
            let present = table.rules().iter().filter(|r| r.cookie == cookie).count();
            if present >= flow.limit as usize {
                return Ok(Vec::new());
            }
        }
        let actions = self.pool.share(&flow.actions);
        let Some(old) = old else {
            return self.add(learned(flow, mini, actions), false, false, now);
        };
        // As in a modification by a controller, the rule keeps its counters, its flags and its
        // timeouts, which `fin_timeout` may have lowered.
        let new = flow_mod::modified(&old, flow.cookie, &actions, Arc::clone(&old.stats), now);
        self.replace(Arc::clone(&new));
        Ok(vec![Change::Modified { old, new, is_added: false }])
    }

    /// Removes rules whose timeouts have expired at `now`. The use of rules is known up to
    /// `credited`.
    pub(crate) fn expire(&mut self, now: Millis, credited: Millis) -> Vec<Change> {
        let expired: Vec<_> = self.tables.iter().flat_map(|t| t.expired(now, credited)).collect();
        let mut out = Vec::new();
        for (rule, reason) in expired {
            self.remove_rule(rule, reason, &mut out);
        }
        self.tables.iter_mut().for_each(Table::note_timeouts);
        out
    }

    /// Evicts the rules beyond the limit of a table that evicts.
    pub fn trim(&mut self, table: u8) -> Vec<Change> {
        let excess = self.table_mut(table).map(Table::excess).unwrap_or_default();
        let mut out = Vec::with_capacity(excess.len());
        for rule in excess {
            self.remove_rule(rule, FlowRemovedReason::Eviction, &mut out);
        }
        out
    }

    /// Returns true when [`Pipeline::expire`] may have rules to remove at some time.
    pub(crate) fn has_timeouts(&self) -> bool {
        self.tables.iter().any(Table::has_timeouts)
    }

    /// Removes every rule, hidden ones too, and every group.
    pub(crate) fn clear(&mut self) -> Vec<Change> {
        let out = self.clear_rules();
        self.groups = Arc::default();
        out
    }

    /// Removes every rule, hidden ones too, except those of [`INTERNAL_TABLE`].
    fn clear_rules(&mut self) -> Vec<Change> {
        let mut out = Vec::new();
        for (id, table) in (0u8..=254).zip(&mut self.tables) {
            if id != INTERNAL_TABLE && !table.rules().is_empty() {
                self.touched.insert(id);
                let gone = table.empty(true);
                out.extend(
                    gone.map(|rule| Change::Removed { rule, reason: FlowRemovedReason::Delete }),
                );
            }
        }
        out
    }

    /// Returns true when a table has the switch's own rule ([`Pipeline::add_hidden`]) with this match
    /// and priority.
    pub fn has_hidden(&self, table: u8, priority: u32, matching: &flow::Match) -> bool {
        self.hidden(table, priority, matching).is_some()
    }

    /// Removes the switch's own rule with this match and priority, if it is there.
    pub fn remove_hidden(&mut self, table: u8, priority: u32, matching: &flow::Match) {
        if let Some(rule) = self.hidden(table, priority, matching)
            && let Some(table) = self.table_mut(table)
        {
            table.remove(&rule);
        }
    }

    fn hidden(&self, table: u8, priority: u32, matching: &flow::Match) -> Option<Arc<Rule>> {
        let rules = self.table(table)?.rules();
        rules.find(&MiniMatch::new(matching), priority).filter(|rule| rule.hidden).map(Arc::clone)
    }

    fn replace(&mut self, rule: Arc<Rule>) -> Option<Arc<Rule>> {
        self.table_mut(rule.table)?.insert(rule)
    }
}

/// Returns the rule of a learned flow, whose match is `matching` in compressed form.
fn learned(flow: &LearnedFlow, matching: MiniMatch, actions: Actions) -> NewRule {
    NewRule {
        table: flow.table,
        priority: flow.priority.into(),
        matching,
        cookie: flow.cookie,
        idle_timeout: flow.idle_timeout,
        hard_timeout: flow.hard_timeout,
        importance: 0,
        flags: flow.flags(),
        hidden: false,
        actions,
    }
}

// SPDX-License-Identifier: Apache-2.0
//! One OpenFlow table.

use super::eviction::{Queue, TableFull, Timed};
use crate::rule::Rule;
use crate::snapshot::{TableMiss, TableStats, TableView};
use classifier::{Classifier, Entry};
use clock::Millis;
use flow::Subfield;
use openflow::message::{EvictionFlags, FlowRemovedReason, Vacancy};
use std::sync::Arc;

/// Behaviour of a table that is full.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EvictionConfig {
    /// Most rules (`Flow_Table:flow_limit`); `None` for no limit.
    pub limit: Option<u32>,
    /// Evict instead of refusing, as the database configures it (`overflow_policy=evict`).
    pub evict: bool,
    /// Evict instead of refusing, as a controller configures it (OpenFlow 1.4 table mod).
    pub evict_by_openflow: bool,
    /// Fields that group the rules; the largest group loses a rule (`Flow_Table:groups`).
    pub groups: Vec<Subfield>,
}

impl EvictionConfig {
    /// Returns true when the database or a controller has switched eviction on.
    pub fn is_on(&self) -> bool {
        self.evict || self.evict_by_openflow
    }
}

/// Returns `rules` in the order in which they were added. A classifier's order differs between
/// runs, and must not be visible from outside.
pub(crate) fn as_added<'a>(rules: impl Iterator<Item = &'a Arc<Rule>>) -> Vec<Arc<Rule>> {
    let mut rules: Vec<_> = rules.map(Arc::clone).collect();
    rules.sort_unstable_by_key(|rule| rule.id);
    rules
}

/// The name of a table. A controller may set it where the database does not.
#[derive(Clone, Debug, Default)]
struct TableName {
    /// Empty for none.
    text: String,
    /// It is that of `Flow_Table:name`.
    is_configured: bool,
}

/// One table: its rules and its settings.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rules: Classifier<Rule>,
    /// Number of rules that are hidden from controllers.
    hidden: usize,
    /// Rules that may expire; only they may be evicted.
    timed: Timed,
    /// The same rules in order of eviction, once the table has been full and evicts.
    queue: Option<Queue>,
    stats: Arc<TableStats>,
    /// Handling of a packet that no rule matches.
    pub miss: TableMiss,
    name: TableName,
    /// Limit of the number of rules, and behaviour of the full table.
    pub eviction: EvictionConfig,
    /// OpenFlow 1.4 eviction flags, as a controller set them.
    pub eviction_flags: EvictionFlags,
    /// OpenFlow 1.4 vacancy thresholds, when events are on.
    pub vacancy: Option<Vacancy>,
}

impl Table {
    /// Returns the table's name; empty for none.
    pub fn name(&self) -> &str {
        &self.name.text
    }

    /// Sets the name of the database (`Flow_Table:name`); empty for none. A name that a controller has
    /// set stays then.
    pub fn configure_name(&mut self, name: String) {
        if !name.is_empty() || self.name.is_configured {
            self.name = TableName { is_configured: !name.is_empty(), text: name };
        }
    }

    /// Sets the name for a controller. Returns false, and does nothing, when the database has set
    /// another one; a name that it begins with counts as the same, as in Open vSwitch.
    pub fn rename(&mut self, name: &str) -> bool {
        if !self.may_rename(name) {
            return false;
        }
        if !self.name.is_configured {
            name.clone_into(&mut self.name.text);
        }
        true
    }

    /// Returns true when [`Table::rename`] would.
    pub fn may_rename(&self, name: &str) -> bool {
        !self.name.is_configured || self.name.text.starts_with(name)
    }

    /// Returns the table's rules.
    pub fn rules(&self) -> &Classifier<Rule> {
        &self.rules
    }

    /// Returns the number of rules that controllers see. Only these count against the limit.
    pub fn visible_rules(&self) -> usize {
        self.rules.len().saturating_sub(self.hidden)
    }

    /// Returns the table's counters.
    pub fn stats(&self) -> &Arc<TableStats> {
        &self.stats
    }

    pub(super) fn view(&self) -> TableView {
        TableView { rules: self.rules.clone(), stats: Arc::clone(&self.stats), miss: self.miss }
    }

    pub(super) fn has_timeouts(&self) -> bool {
        !self.timed.is_empty()
    }

    /// Adds `rule`. Returns the rule with the same match and priority that it replaces.
    pub(super) fn insert(&mut self, rule: Arc<Rule>) -> Option<Arc<Rule>> {
        if rule.may_expire() {
            self.timed.insert(rule.id, Arc::clone(&rule));
            if !self.eviction.is_on() {
                self.queue = None; // no caller needs the order
            } else if let Some(queue) = &mut self.queue {
                queue.insert(&rule);
            }
        }
        self.hidden += usize::from(rule.hidden);
        let old = self.rules.insert(rule);
        if let Some(old) = &old {
            self.forget(old);
        }
        old
    }

    /// Forgets a removed rule, which neither counts nor expires nor is evicted any more.
    fn forget(&mut self, rule: &Rule) {
        self.hidden -= usize::from(rule.hidden);
        if !self.timed.is_empty()
            && self.timed.remove(&rule.id).is_some()
            && let Some(queue) = &mut self.queue
        {
            queue.remove(rule);
        }
    }

    /// Removes exactly `rule`. Returns false when it is not in the table (any more).
    pub(super) fn remove(&mut self, rule: &Rule) -> bool {
        match self.rules.remove(&rule.matching, rule.priority()) {
            Some(found) if found.id == rule.id => {
                self.forget(rule);
                true
            }
            Some(other) => {
                self.rules.insert(other); // its successor: back again
                false
            }
            None => false,
        }
    }

    /// Removes all rules, hidden ones only if `hidden_too`, and returns them. The cost is that of
    /// listing them, because an emptied table is a new one.
    pub(super) fn empty(&mut self, hidden_too: bool) -> impl Iterator<Item = Arc<Rule>> + use<> {
        let old = std::mem::take(&mut self.rules);
        self.timed = Timed::new();
        (self.hidden, self.queue) = (0, None);
        let stays = |rule: &Arc<Rule>| rule.hidden && !hidden_too;
        let (stay, gone): (Vec<_>, Vec<_>) = as_added(old.iter()).into_iter().partition(stays);
        for rule in stay {
            self.insert(rule);
        }
        gone.into_iter()
    }

    /// Returns the rule to evict so that a new one has room. `Ok(None)`: there is room. `Err`: the
    /// table is full and nothing may be evicted.
    pub(super) fn make_room(&mut self) -> Result<Option<Arc<Rule>>, TableFull> {
        let config = &self.eviction;
        match config.limit {
            Some(limit) if self.visible_rules() >= limit as usize => {}
            _ => return Ok(None),
        }
        if !config.is_on() {
            return Err(TableFull);
        }
        let (queue, rules) = self.queue();
        queue.first(rules).map(Some).ok_or(TableFull)
    }

    /// Returns the rules to evict after the limit was lowered, in order of eviction.
    pub(super) fn excess(&mut self) -> Vec<Arc<Rule>> {
        let config = &self.eviction;
        let limit = config.limit.filter(|_| config.is_on());
        let count = limit.map_or(0, |limit| self.visible_rules().saturating_sub(limit as usize));
        let mut excess = Vec::with_capacity(count);
        if count > 0 {
            let (queue, rules) = self.queue();
            let mut queue = queue.clone(); // they are not gone yet
            while excess.len() < count
                && let Some(rule) = queue.first(rules)
            {
                queue.remove(&rule);
                excess.push(rule);
            }
        }
        excess
    }

    /// Returns the rules that may be evicted, in that order and by number. Builds the order when
    /// there is none, or when it was built for other fields.
    fn queue(&mut self) -> (&mut Queue, &Timed) {
        let Table { eviction, timed, queue, .. } = self;
        let timed: &Timed = timed;
        let kept = queue.take().filter(|kept| kept.groups_by(&eviction.groups));
        (queue.insert(kept.unwrap_or_else(|| Queue::new(&eviction.groups, timed))), timed)
    }

    /// Moves rules with lowered timeouts to their present place in the order of eviction.
    pub(super) fn note_timeouts(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.advance(&self.timed);
        }
    }

    /// Returns the rules that have expired at `now`, in the order in which they were added. Their
    /// use is known up to `credited`.
    pub(super) fn expired(
        &self,
        now: Millis,
        credited: Millis,
    ) -> Vec<(Arc<Rule>, FlowRemovedReason)> {
        let expired = self.timed.values().filter_map(|rule| {
            let (idle, hard) = (rule.timeouts.idle(), rule.timeouts.hard());
            let over = |now: Millis, since: Millis, seconds: u16| {
                seconds != 0 && now.since(since) > u64::from(seconds) * 1000
            };
            if over(now, rule.modified.get(), hard) {
                Some((Arc::clone(rule), FlowRemovedReason::HardTimeout))
            } else if over(credited, rule.stats.used(), idle) {
                Some((Arc::clone(rule), FlowRemovedReason::IdleTimeout))
            } else {
                None
            }
        });
        let mut expired: Vec<_> = expired.collect();
        expired.sort_unstable_by_key(|(rule, _)| rule.id);
        expired
    }
}

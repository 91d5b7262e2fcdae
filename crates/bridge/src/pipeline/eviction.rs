//! What a full table does: refuse, or evict the rule that is missed least.
//!
//! As in OVS, only rules with a timeout are evicted. Rules are put into groups by the fields
//! of `Flow_Table:groups`; the largest group loses its least important rule, and among
//! equals the one that would expire first.

use super::table::Table;
use crate::rule::Rule;
use clock::Millis;
use hashbrown::HashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

impl Table {
    /// The rule to evict so that a new one has room. `Ok(None)`: there is room. `Err`: the
    /// table is full and nothing may be evicted.
    pub(super) fn make_room(&self) -> Result<Option<Arc<Rule>>, TableFull> {
        let config = &self.eviction;
        match config.limit {
            Some(limit) if self.rules().len() >= limit as usize => {}
            _ => return Ok(None),
        }
        if !config.is_on() {
            return Err(TableFull);
        }
        self.victims(1).pop().map(Some).ok_or(TableFull)
    }

    /// The rules to evict because the limit is lower than it was, in their order.
    pub(super) fn excess(&self) -> Vec<Arc<Rule>> {
        let config = &self.eviction;
        let limit = config.limit.filter(|_| config.is_on());
        let count = limit.map_or(0, |limit| self.rules().len().saturating_sub(limit as usize));
        self.victims(count)
    }

    /// The first `count` rules that are to go; less when there are no more that may.
    fn victims(&self, count: usize) -> Vec<Arc<Rule>> {
        if count == 0 {
            return Vec::new();
        }
        let fields = &self.eviction.groups;
        let mut groups: HashMap<Vec<flow::FieldValue>, BinaryHeap<_>> = HashMap::new();
        for rule in self.timed() {
            let key = if fields.is_empty() {
                Vec::new()
            } else {
                let expanded = rule.matching.expand();
                fields.iter().map(|f| f.load(expanded.key())).collect()
            };
            groups.entry(key).or_default().push(Reverse((self.worth(rule), rule.id)));
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        let mut largest: BinaryHeap<(usize, usize)> =
            groups.iter().enumerate().map(|(at, group)| (group.len(), at)).collect();
        let mut victims = Vec::with_capacity(count.min(self.rules().len()));
        while victims.len() < count
            && let Some((_, at)) = largest.pop()
        {
            let Some(group) = groups.get_mut(at) else { break };
            let first = group.pop().and_then(|Reverse((_, id))| self.timed_rule(id));
            victims.extend(first.map(Arc::clone));
            if !group.is_empty() {
                largest.push((group.len(), at));
            }
        }
        victims
    }

    /// Order of eviction: lowest first.
    fn worth(&self, rule: &Rule) -> (u16, i64) {
        let ends = |since: Millis, seconds: u16| {
            if seconds == 0 { i64::MAX } else { since.0.saturating_add(i64::from(seconds) * 1000) }
        };
        let expires = ends(rule.modified.get(), rule.timeouts.hard())
            .min(ends(rule.stats.used(), rule.timeouts.idle()));
        (rule.importance, expires)
    }
}

/// The table is full and nothing may be evicted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TableFull;

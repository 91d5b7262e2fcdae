//! What a full table does: refuse, or evict the rule that is missed least.
//!
//! As in OVS, only rules with a timeout are evicted. Rules are put into groups by the fields
//! of `Flow_Table:groups`; the largest group loses its least important rule, and among
//! equals the one that would expire first.

use super::table::Table;
use crate::rule::Rule;
use clock::Millis;
use hashbrown::HashMap;
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
        if !config.evict && !config.evict_by_openflow {
            return Err(TableFull);
        }
        let mut groups: HashMap<Vec<flow::FieldValue>, Vec<&Arc<Rule>>> = HashMap::new();
        for rule in self.timed() {
            let key = if config.groups.is_empty() {
                Vec::new()
            } else {
                let expanded = rule.matching.expand();
                config.groups.iter().map(|f| f.load(expanded.key())).collect()
            };
            groups.entry(key).or_default().push(rule);
        }
        groups
            .into_values()
            .max_by_key(Vec::len)
            .and_then(|group| group.into_iter().min_by_key(|r| self.worth(r)))
            .map(|rule| Some(Arc::clone(rule)))
            .ok_or(TableFull)
    }

    /// Order of eviction: lowest first.
    fn worth(&self, rule: &Rule) -> (u16, i64) {
        let ends = |since: Millis, seconds: u16| {
            if seconds == 0 { i64::MAX } else { since.0.saturating_add(i64::from(seconds) * 1000) }
        };
        let expires = ends(rule.modified, rule.timeouts.hard())
            .min(ends(rule.stats.used(), rule.timeouts.idle()));
        (rule.importance, expires)
    }
}

/// The table is full and nothing may be evicted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TableFull;

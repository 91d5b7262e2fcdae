// SPDX-License-Identifier: Apache-2.0
//! Behaviour of a full table: refusal of new rules, or eviction of the least valuable rule.
//!
//! As in OVS, only rules with a timeout are evicted. Rules are put into groups by the fields
//! of `Flow_Table:groups`; the largest group loses its least important rule, and among
//! equals the one that would expire first.
//!
//! A table that has been full keeps its rules in that order ([`Queue`]), so that an added rule does
//! not cost a scan of all others. The time at which a rule would expire changes outside the table.
//! Packets that use a rule only delay it: the rule at the head is checked again before its
//! eviction, and is put back if it was used. `fin_timeout` brings the time forward. As in OVS the
//! queue follows once in a while ([`Queue::advance`]).

use crate::rule::Rule;
use clock::Millis;
use flow::{FieldValue, Subfield};
use imbl::{OrdMap, OrdSet};
use std::sync::Arc;

/// Rules that may expire, by [`Rule::id`].
pub(super) type Timed = imbl::HashMap<u64, Arc<Rule>>;

/// Order of eviction in a group, lowest first: importance, then expiry time.
type Worth = (u16, i64);

/// Position of a rule in a [`Queue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    /// Number of the rule's group.
    group: u64,
    /// Worth of the rule at the time of its last placement.
    worth: Worth,
    /// The rule's [`Rule::id`].
    rule: u64,
}

/// The rules of a table that may be evicted, in order of eviction. The structure is persistent,
/// like all large parts of a table, because a bundle keeps a clone.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    /// Fields that distinguish groups.
    fields: Vec<Subfield>,
    /// Number and size of each group.
    groups: OrdMap<Vec<FieldValue>, (u64, usize)>,
    /// Size and number of each group.
    sizes: OrdSet<(usize, u64)>,
    order: OrdSet<Position>,
    /// Positions by [`Rule::id`].
    positions: imbl::HashMap<u64, Position>,
    /// Number of groups created so far.
    numbered: u64,
}

impl Queue {
    /// Returns a queue of `rules`, grouped by `fields`.
    pub(super) fn new(fields: &[Subfield], rules: &Timed) -> Queue {
        let mut queue = Queue {
            fields: fields.to_vec(),
            groups: OrdMap::new(),
            sizes: OrdSet::new(),
            order: OrdSet::new(),
            positions: imbl::HashMap::new(),
            numbered: 0,
        };
        rules.values().for_each(|rule| queue.insert(rule));
        queue
    }

    /// Returns true when the queue groups rules by `fields`.
    pub(super) fn groups_by(&self, fields: &[Subfield]) -> bool {
        self.fields == fields
    }

    fn key(&self, rule: &Rule) -> Vec<FieldValue> {
        if self.fields.is_empty() {
            return Vec::new();
        }
        let expanded = rule.matching.expand();
        self.fields.iter().map(|field| field.load(expanded.key())).collect()
    }

    /// Adds a rule that is not in the queue.
    pub(super) fn insert(&mut self, rule: &Rule) {
        let key = self.key(rule);
        let known = self.groups.get(&key).copied();
        let (group, size) = known.unwrap_or_else(|| {
            self.numbered += 1;
            (self.numbered, 0)
        });
        self.sizes.remove(&(size, group));
        self.sizes.insert((size + 1, group));
        self.groups.insert(key, (group, size + 1));
        self.put(rule, group);
    }

    /// Removes a rule, if it is in the queue.
    pub(super) fn remove(&mut self, rule: &Rule) {
        let Some(position) = self.positions.remove(&rule.id) else { return };
        self.order.remove(&position);
        let key = self.key(rule);
        let Some((group, size)) = self.groups.get(&key).copied() else { return };
        self.sizes.remove(&(size, group));
        if size > 1 {
            self.sizes.insert((size - 1, group));
            self.groups.insert(key, (group, size - 1));
        } else {
            self.groups.remove(&key);
        }
    }

    fn put(&mut self, rule: &Rule, group: u64) {
        let position = Position { group, worth: worth_of(rule), rule: rule.id };
        self.order.insert(position);
        self.positions.insert(rule.id, position);
    }

    /// Moves a rule to the position of its present worth.
    fn reposition(&mut self, rule: &Rule) {
        if let Some(position) = self.positions.get(&rule.id).copied() {
            self.order.remove(&position);
            self.put(rule, position.group);
        }
    }

    /// Returns the rule to evict first. `rules` are those of the table.
    pub(super) fn first(&mut self, rules: &Timed) -> Option<Arc<Rule>> {
        // Bounds the loop: each rule moves at most once, however fast packets use the rules.
        let mut may_be_moved = self.positions.len();
        loop {
            let (_, group) = *self.sizes.get_max()?;
            let lowest = Position { group, worth: (0, i64::MIN), rule: 0 };
            let position = *self.order.get_next(&lowest)?;
            let rule = rules.get(&position.rule)?;
            if may_be_moved == 0 || worth_of(rule) <= position.worth {
                return Some(Arc::clone(rule));
            }
            may_be_moved -= 1;
            self.reposition(rule);
        }
    }

    /// Moves rules that would expire earlier than at their last placement.
    pub(super) fn advance(&mut self, rules: &Timed) {
        let is_sooner = |rule: &&Arc<Rule>| {
            self.positions.get(&rule.id).is_some_and(|position| worth_of(rule) < position.worth)
        };
        let sooner: Vec<&Arc<Rule>> = rules.values().filter(is_sooner).collect();
        for rule in sooner {
            self.reposition(rule);
        }
    }
}

fn worth_of(rule: &Rule) -> Worth {
    let ends = |since: Millis, seconds: u16| {
        if seconds == 0 { i64::MAX } else { since.0.saturating_add(i64::from(seconds) * 1000) }
    };
    let expires = ends(rule.modified.get(), rule.timeouts.hard())
        .min(ends(rule.stats.used(), rule.timeouts.idle()));
    (rule.importance, expires)
}

/// Error: the table is full and nothing may be evicted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TableFull;

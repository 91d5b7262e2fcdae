// SPDX-License-Identifier: Apache-2.0
//! What a full table does: refuse, or evict the rule that is missed least.
//!
//! As in OVS, only rules with a timeout are evicted. Rules are put into groups by the fields
//! of `Flow_Table:groups`; the largest group loses its least important rule, and among
//! equals the one that would expire first.
//!
//! A table that has been full keeps its rules in that order ([`Queue`]), so that a rule which is
//! added to it costs no look at all others. When a rule would expire changes without the table's
//! doing. Packets that use it only put that off: the rule at the head is looked at again before it
//! goes, and put back where it was used. `fin_timeout` brings it forward: as in OVS that is seen
//! once in a while ([`Queue::advance`]).

use super::table::{Table, Timed};
use crate::rule::Rule;
use clock::Millis;
use flow::{FieldValue, Subfield};
use imbl::{OrdMap, OrdSet};
use std::sync::Arc;

/// Order of eviction in a group, lowest first: importance, and when the rule expires.
type Worth = (u16, i64);

/// Where a rule is in a [`Queue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Number of its group.
    group: u64,
    /// As of when it was put there.
    worth: Worth,
    /// Its [`Rule::id`].
    rule: u64,
}

/// The rules of a table that may be evicted, in that order. Persistent, as all of a table is that
/// is large: a bundle keeps a clone.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    /// What groups differ in.
    fields: Vec<Subfield>,
    /// Number and size of each group.
    groups: OrdMap<Vec<FieldValue>, (u64, usize)>,
    /// Size and number of each group.
    sizes: OrdSet<(usize, u64)>,
    order: OrdSet<Place>,
    /// By [`Rule::id`].
    places: imbl::HashMap<u64, Place>,
    /// How many groups there have been.
    numbered: u64,
}

impl Queue {
    fn new(fields: &[Subfield], rules: &Timed) -> Queue {
        let mut queue = Queue {
            fields: fields.to_vec(),
            groups: OrdMap::new(),
            sizes: OrdSet::new(),
            order: OrdSet::new(),
            places: imbl::HashMap::new(),
            numbered: 0,
        };
        rules.values().for_each(|rule| queue.insert(rule));
        queue
    }

    fn key(&self, rule: &Rule) -> Vec<FieldValue> {
        if self.fields.is_empty() {
            return Vec::new();
        }
        let expanded = rule.matching.expand();
        self.fields.iter().map(|field| field.load(expanded.key())).collect()
    }

    /// Adds a rule that is not there.
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

    /// Takes a rule out, if it is there.
    pub(super) fn remove(&mut self, rule: &Rule) {
        let Some(place) = self.places.remove(&rule.id) else { return };
        self.order.remove(&place);
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
        let place = Place { group, worth: worth_of(rule), rule: rule.id };
        self.order.insert(place);
        self.places.insert(rule.id, place);
    }

    /// Puts a rule where it belongs by now.
    fn move_to_its_place(&mut self, rule: &Rule) {
        if let Some(place) = self.places.get(&rule.id).copied() {
            self.order.remove(&place);
            self.put(rule, place.group);
        }
    }

    /// The rule that is to go first. `rules` are those of the table.
    fn first(&mut self, rules: &Timed) -> Option<Arc<Rule>> {
        // However fast packets use them, each is put back once at most.
        let mut may_be_moved = self.places.len();
        loop {
            let (_, group) = *self.sizes.get_max()?;
            let lowest = Place { group, worth: (0, i64::MIN), rule: 0 };
            let place = *self.order.get_next(&lowest)?;
            let rule = rules.get(&place.rule)?;
            if may_be_moved == 0 || worth_of(rule) <= place.worth {
                return Some(Arc::clone(rule));
            }
            may_be_moved -= 1;
            self.move_to_its_place(rule);
        }
    }

    /// Moves rules that would expire sooner than when they were put where they are.
    pub(super) fn advance(&mut self, rules: &Timed) {
        let is_sooner = |rule: &&Arc<Rule>| {
            self.places.get(&rule.id).is_some_and(|place| worth_of(rule) < place.worth)
        };
        let sooner: Vec<&Arc<Rule>> = rules.values().filter(is_sooner).collect();
        for rule in sooner {
            self.move_to_its_place(rule);
        }
    }
}

impl Table {
    /// The rule to evict so that a new one has room. `Ok(None)`: there is room. `Err`: the
    /// table is full and nothing may be evicted.
    pub(super) fn make_room(&mut self) -> Result<Option<Arc<Rule>>, TableFull> {
        let config = &self.eviction;
        match config.limit {
            Some(limit) if self.rules().len() >= limit as usize => {}
            _ => return Ok(None),
        }
        if !config.is_on() {
            return Err(TableFull);
        }
        let (queue, rules) = self.queue();
        queue.first(rules).map(Some).ok_or(TableFull)
    }

    /// The rules to evict because the limit is lower than it was, in their order.
    pub(super) fn excess(&mut self) -> Vec<Arc<Rule>> {
        let config = &self.eviction;
        let limit = config.limit.filter(|_| config.is_on());
        let count = limit.map_or(0, |limit| self.rules().len().saturating_sub(limit as usize));
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

    /// The rules that may be evicted, in that order, and by number. The order is made where there
    /// is none, or one by other fields.
    fn queue(&mut self) -> (&mut Queue, &Timed) {
        let Table { eviction, timed, queue, .. } = self;
        let timed: &Timed = timed;
        let kept = queue.take().filter(|kept| kept.fields == eviction.groups);
        (queue.insert(kept.unwrap_or_else(|| Queue::new(&eviction.groups, timed))), timed)
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

/// The table is full and nothing may be evicted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TableFull;

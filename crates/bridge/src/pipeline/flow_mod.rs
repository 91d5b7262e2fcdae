// SPDX-License-Identifier: Apache-2.0
//! Flow mods (OpenFlow 1.5 section 6.4; "Flow Table Modification Messages").

use super::{Change, Filter, NewRule, Pipeline, as_added};
use crate::rule::{Rule, RuleStats, matches_frozen};
use crate::snapshot::INTERNAL_TABLE;
use classifier::MiniMatch;
use clock::Millis;
use openflow::action::Actions;
use openflow::message::{
    FlowFlags, FlowMod, FlowModCommand, FlowRemovedReason, GROUP_ANY, TABLE_ALL,
};
use openflow::{OfError, PortNo};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Pipeline {
    /// Carries out `fm`. `meter_exists` returns whether a meter exists. The caller has checked
    /// actions against the match (see [`openflow::action`]'s consistency check).
    ///
    /// # Errors
    ///
    /// Fails when the flow mod names a group or meter that does not exist, overlaps another rule
    /// (with CHECK_OVERLAP), finds its table full, or changes the switch's own rules. Nothing has
    /// changed then.
    pub fn flow_mod(
        &mut self,
        fm: &FlowMod,
        meter_exists: &dyn Fn(u32) -> bool,
        now: Millis,
    ) -> Result<Vec<Change>, OfError> {
        permit(fm)?;
        if fm.table_id == INTERNAL_TABLE {
            return self.leave_internal(fm);
        }
        match fm.command {
            FlowModCommand::Add => {
                self.check_references(&fm.actions, meter_exists)?;
                self.add_flow(fm, now)
            }
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => {
                self.modify_flows(fm, meter_exists, now)
            }
            FlowModCommand::Delete | FlowModCommand::DeleteStrict => Ok(self.delete_flows(fm)),
        }
    }

    /// Handles a deletion from [`INTERNAL_TABLE`], which controllers may not change. A deletion
    /// that selects no rule is no error there either.
    fn leave_internal(&self, fm: &FlowMod) -> Result<Vec<Change>, OfError> {
        let nothing = self.select(&Filter::from(fm)).is_empty();
        if nothing { Ok(Vec::new()) } else { Err(OfError::OFPBRC_EPERM) }
    }

    pub(super) fn check_references(
        &self,
        actions: &[openflow::Action],
        meter_exists: &dyn Fn(u32) -> bool,
    ) -> Result<(), OfError> {
        use openflow::Action;
        for action in actions {
            match action {
                Action::Group(id) if !self.groups.contains_key(id) => {
                    return Err(OfError::OFPBAC_BAD_OUT_GROUP);
                }
                Action::Meter(id) if !meter_exists(*id) => {
                    return Err(OfError::OFPMMFC_INVALID_METER);
                }
                Action::WriteActions(inner) | Action::Clone(inner) => {
                    self.check_references(inner, meter_exists)?
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn add_flow(&mut self, fm: &FlowMod, now: Millis) -> Result<Vec<Change>, OfError> {
        let table = self.table(added_to(fm)).ok_or(OfError::OFPFMFC_BAD_TABLE_ID)?;
        let matching = table.rules().compress(&fm.matching);
        let actions = self.pool.share(&fm.actions);
        self.add_as_asked(NewRule::of(fm, matching, actions), now)
    }

    /// Adds `new`, whose flags are those of the flow mod.
    pub(super) fn add_as_asked(
        &mut self,
        new: NewRule,
        now: Millis,
    ) -> Result<Vec<Change>, OfError> {
        let check_overlap = new.flags.contains(FlowFlags::CHECK_OVERLAP);
        let keep_counts = !new.flags.contains(FlowFlags::RESET_COUNTS);
        self.add(new, check_overlap, keep_counts, now)
    }

    /// Adds a rule of the switch itself, hidden from controllers. A `priority` above 65535 is above
    /// every rule of a controller.
    ///
    /// # Errors
    ///
    /// Fails when the table does not exist or is full. Nothing has changed then.
    pub fn add_hidden(
        &mut self,
        table: u8,
        priority: u32,
        matching: flow::Match,
        actions: openflow::action::Actions,
        now: Millis,
    ) -> Result<Vec<Change>, OfError> {
        let new = NewRule {
            table,
            priority,
            matching: MiniMatch::new(&matching),
            cookie: 0,
            idle_timeout: 0,
            hard_timeout: 0,
            importance: 0,
            flags: FlowFlags::empty(),
            hidden: true,
            actions,
        };
        self.add(new, false, false, now)
    }

    /// Adds the rules of [`INTERNAL_TABLE`], which show the fate of packets without a matching
    /// rule. The value of reg0 selects: to the controllers, drop, or (a fragment) drop. A packet
    /// that arrives by an unrelated resubmission is dropped. Translation needs the rules only to
    /// count packets.
    ///
    /// # Errors
    ///
    /// Fails when the table is full, which a new one is not.
    pub(crate) fn add_internal(&mut self, now: Millis) -> Result<(), OfError> {
        let of = |field: flow::Field, value: u128| {
            let mut m = flow::Match::ANY;
            m.set(field, value);
            m
        };
        let to_controllers = [crate::translate::miss_action()];
        let rules: [(u32, flow::Match, &[openflow::Action]); 4] = [
            (2, of(flow::Field::RecircId, 0), &[]),
            (0, of(flow::Field::Reg0, 1), &to_controllers),
            (0, of(flow::Field::Reg0, 2), &[]),
            (0, of(flow::Field::Reg0, 3), &[]),
        ];
        for (priority, matching, actions) in rules {
            self.add_hidden(INTERNAL_TABLE, priority, matching, actions.into(), now)?;
        }
        Ok(())
    }

    /// Adds the initial rule of a bridge without controllers: every packet in table 0, at the
    /// lowest priority. It is an ordinary rule: visible, and deletable.
    ///
    /// # Errors
    ///
    /// Fails when the table is full. Nothing has changed then.
    pub fn add_default(
        &mut self,
        actions: openflow::action::Actions,
        now: Millis,
    ) -> Result<Vec<Change>, OfError> {
        let new = NewRule {
            table: 0,
            priority: 0,
            matching: MiniMatch::new(&flow::Match::ANY),
            cookie: 0,
            idle_timeout: 0,
            hard_timeout: 0,
            importance: 0,
            flags: FlowFlags::empty(),
            hidden: false,
            actions,
        };
        self.add(new, false, false, now)
    }

    pub(super) fn add(
        &mut self,
        new: NewRule,
        check_overlap: bool,
        keep_counts: bool,
        now: Millis,
    ) -> Result<Vec<Change>, OfError> {
        let table = self.table_mut(new.table).ok_or(OfError::OFPFMFC_BAD_TABLE_ID)?;
        let priority = new.priority;
        if let Some(old) = table.rules().find(&new.matching, priority) {
            let old = Arc::clone(old);
            // As in OVS its idle time goes on.
            let stats = match keep_counts {
                true => Arc::clone(&old.stats),
                false => Arc::new(RuleStats::new(old.stats.used())),
            };
            let rule = new.build(now, now, stats);
            table.insert(Arc::clone(&rule));
            let mut changes = vec![Change::Modified { old, new: rule, is_added: true }];
            self.forget_learned(&mut changes);
            return Ok(changes);
        }
        // As in OVS the check is only for new rules: a rule does not overlap the rule that it
        // replaces.
        if check_overlap && table.rules().overlaps(&new.matching.expand(), priority) {
            return Err(OfError::OFPFMFC_OVERLAP);
        }
        let mut changes = Vec::new();
        if let Some(victim) = table.make_room().map_err(|_| OfError::OFPFMFC_TABLE_FULL)? {
            table.remove(&victim);
            changes.push(Change::Removed { rule: victim, reason: FlowRemovedReason::Eviction });
        }
        let rule = new.build(now, now, Arc::new(RuleStats::new(now)));
        table.insert(Arc::clone(&rule));
        changes.push(Change::Added(rule));
        self.forget_learned(&mut changes);
        Ok(changes)
    }

    fn modify_flows(
        &mut self,
        fm: &FlowMod,
        meter_exists: &dyn Fn(u32) -> bool,
        now: Millis,
    ) -> Result<Vec<Change>, OfError> {
        let found = self.select(&Filter::from(fm));
        let adds = found.is_empty() && adds_when_nothing_matches(fm);
        // A modification that changes nothing may name groups and meters that do not exist.
        if adds || !found.is_empty() {
            self.check_references(&fm.actions, meter_exists)?;
        }
        if adds {
            return self.add_flow(fm, now);
        }
        let actions = self.pool.share(&fm.actions);
        let mut changes = Vec::with_capacity(found.len());
        for old in found {
            let cookie = if fm.modify_cookie { fm.new_cookie } else { old.cookie };
            let stats = match fm.flags.contains(FlowFlags::RESET_COUNTS) {
                // Packets that megaflows have counted and not yet reported belong to the old rule.
                true => Arc::new(RuleStats::new(old.stats.used())),
                false => Arc::clone(&old.stats),
            };
            let new = modified(&old, cookie, &actions, stats, now);
            self.replace(Arc::clone(&new));
            changes.push(Change::Modified { old, new, is_added: false });
        }
        self.forget_learned(&mut changes);
        Ok(changes)
    }

    fn delete_flows(&mut self, fm: &FlowMod) -> Vec<Change> {
        let filter = Filter::from(fm);
        let mut changes = Vec::new();
        if filter.is_unrestricted() {
            self.empty_tables(filter.table, &mut changes);
        } else {
            for rule in self.select(&filter) {
                self.remove_rule(rule, FlowRemovedReason::Delete, &mut changes);
            }
        }
        changes
    }

    /// Removes all rules of `table` except hidden ones ([`TABLE_ALL`]: of all tables), and the
    /// flows that they learned with `delete_learned`. Far cheaper than one by one.
    fn empty_tables(&mut self, table: u8, changes: &mut Vec<Change>) {
        let start = changes.len();
        for (id, t) in (0u8..=254).zip(&mut self.tables) {
            if (table == TABLE_ALL || table == id) && !t.rules().is_empty() {
                self.touched.insert(id);
                let gone = t.empty(false);
                changes.extend(
                    gone.map(|rule| Change::Removed { rule, reason: FlowRemovedReason::Delete }),
                );
            }
        }
        let mut removed = changes.split_off(start);
        self.forget_learned(&mut removed);
        changes.append(&mut removed);
    }

    /// Removes the flows that the old rules of `changes` learned with `delete_learned` and that no
    /// rule learns any more. Appends the removals to `changes`.
    fn forget_learned(&mut self, changes: &mut Vec<Change>) {
        let learned: BTreeSet<(u8, u64)> = changes
            .iter()
            .flat_map(|change| match change {
                Change::Removed { rule, .. } | Change::Modified { old: rule, .. } => {
                    rule.deletes_learned().collect()
                }
                Change::Added(_) => Vec::new(),
            })
            .collect();
        for (table, cookie) in learned {
            self.remove_learned(table, cookie, changes);
        }
    }

    /// Removes `rule` if it exists, and with it the flows that it learned with `delete_learned`.
    pub(super) fn remove_rule(
        &mut self,
        rule: Arc<Rule>,
        reason: FlowRemovedReason,
        changes: &mut Vec<Change>,
    ) {
        let Some(table) = self.table_mut(rule.table) else { return };
        if !table.remove(&rule) {
            return;
        }
        let learned: Vec<(u8, u64)> = rule.deletes_learned().collect();
        changes.push(Change::Removed { rule, reason });
        for (table, cookie) in learned {
            self.remove_learned(table, cookie, changes);
        }
    }

    /// Removes the rules with this cookie from this table, unless a remaining rule learns such
    /// flows. The switch's own rules are exempt, because no rule can learn them.
    fn remove_learned(&mut self, table: u8, cookie: u64, changes: &mut Vec<Change>) {
        if table == INTERNAL_TABLE || self.learns(table, cookie) {
            return;
        }
        let filter = Filter { table, cookie, cookie_mask: u64::MAX, ..Filter::default() };
        for rule in self.select(&filter) {
            self.remove_rule(rule, FlowRemovedReason::Delete, changes);
        }
    }

    /// Removes the rules that use one of these meters (OpenFlow 1.3 section 6.5).
    pub(crate) fn remove_users_of_meters(&mut self, meters: &[u32]) -> Vec<Change> {
        let mut changes = Vec::new();
        if meters.is_empty() {
            return changes;
        }
        let uses =
            |a: &openflow::Action| matches!(a, openflow::Action::Meter(id) if meters.contains(id));
        let users: Vec<Arc<Rule>> = self
            .tables
            .iter()
            .flat_map(|t| as_added(t.rules().iter().filter(|r| r.any_action(&uses))))
            .collect();
        for rule in users {
            self.remove_rule(rule, FlowRemovedReason::MeterDelete, &mut changes);
        }
        changes
    }

    /// Returns true when some rule has a `learn` action with `delete_learned` for this table and
    /// cookie.
    fn learns(&self, table: u8, cookie: u64) -> bool {
        self.tables
            .iter()
            .any(|t| t.rules().iter().any(|r| r.deletes_learned().any(|l| l == (table, cookie))))
    }
}

/// Refuses flow mods that no controller may send, whatever the tables hold.
///
/// # Errors
///
/// Fails for an emergency flow, and for a rule among the switch's own.
pub(crate) fn permit(fm: &FlowMod) -> Result<(), OfError> {
    // There is no emergency flow cache. OpenFlow has no better error, and OVS sends the same.
    if fm.flags.contains(FlowFlags::EMERGENCY) {
        return Err(OfError::OFPFMFC_TABLE_FULL);
    }
    let is_ours = fm.table_id == INTERNAL_TABLE || matches_frozen(&fm.matching);
    if is_ours && !deletes(fm) { Err(OfError::OFPBRC_EPERM) } else { Ok(()) }
}

fn deletes(fm: &FlowMod) -> bool {
    matches!(fm.command, FlowModCommand::Delete | FlowModCommand::DeleteStrict)
}

/// Returns true when a modification that matches no rule adds one: in OpenFlow 1.0 and 1.1, unless
/// a cookie restricts it.
fn adds_when_nothing_matches(fm: &FlowMod) -> bool {
    fm.cookie_mask == 0 && fm.new_cookie != u64::MAX
}

/// Returns `old` with another cookie, other actions and these counters. Timeouts, flags and age
/// stay.
pub(super) fn modified(
    old: &Rule,
    cookie: u64,
    actions: &Actions,
    stats: Arc<RuleStats>,
    now: Millis,
) -> Arc<Rule> {
    let new = NewRule {
        table: old.table,
        priority: old.priority,
        matching: old.matching.clone(),
        cookie,
        idle_timeout: old.timeouts.idle(),
        hard_timeout: old.timeouts.hard(),
        importance: old.importance,
        flags: old.flags,
        hidden: old.hidden,
        actions: Arc::clone(actions),
    };
    new.build(old.created, now, stats)
}

/// Returns the table to which a flow mod adds its rule.
fn added_to(fm: &FlowMod) -> u8 {
    if fm.table_id == TABLE_ALL { 0 } else { fm.table_id }
}

impl NewRule {
    /// Returns the rule that `fm` adds, with its match in compressed form and its actions. The
    /// flags are those of the flow mod.
    pub(super) fn of(fm: &FlowMod, matching: MiniMatch, actions: Actions) -> NewRule {
        NewRule {
            table: added_to(fm),
            priority: fm.priority.into(),
            matching,
            cookie: fm.new_cookie,
            idle_timeout: fm.idle_timeout,
            hard_timeout: fm.hard_timeout,
            importance: fm.importance,
            flags: fm.flags,
            hidden: false,
            actions,
        }
    }
}

impl From<&FlowMod> for Filter {
    fn from(fm: &FlowMod) -> Filter {
        let strict =
            matches!(fm.command, FlowModCommand::ModifyStrict | FlowModCommand::DeleteStrict);
        // `out_port` and `out_group` restrict deletions only.
        let (out_port, out_group) =
            if deletes(fm) { (fm.out_port, fm.out_group) } else { (PortNo::NONE, GROUP_ANY) };
        Filter {
            matching: fm.matching,
            strict_priority: strict.then_some(fm.priority),
            table: fm.table_id,
            cookie: fm.cookie,
            cookie_mask: fm.cookie_mask,
            out_port,
            out_group,
        }
    }
}

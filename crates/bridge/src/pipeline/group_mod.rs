// SPDX-License-Identifier: Apache-2.0
//! Group mods (OpenFlow 1.5 section 7.3.4.4).

use super::{Change, Filter, Pipeline};
use crate::group::{Bucket, Count, Group, GroupKind, Selection};
use clock::Millis;
use flow::Field;
use hashbrown::HashMap;
use openflow::message::{
    self as of, FlowRemovedReason, GROUP_ALL, GROUP_ANY, GROUP_MAX, GroupCommand, GroupMod,
    GroupProperties, bucket,
};
use openflow::{Action, OfError};
use std::sync::Arc;

/// Most groups of one bridge.
const MAX_GROUPS: usize = 65_536;

impl Pipeline {
    /// Carries out `gm`. Deleting a group deletes the rules that use it; these are returned.
    ///
    /// # Errors
    ///
    /// Fails when the group or a bucket exists already or does not exist, is not valid, or closes a
    /// loop of groups, and when there are 65,536 groups. Nothing has changed then.
    pub fn group_mod(&mut self, gm: &GroupMod, now: Millis) -> Result<Vec<Change>, OfError> {
        match gm.command {
            GroupCommand::Add => self.add_group(gm, now),
            GroupCommand::Modify => self.modify_group(gm),
            GroupCommand::AddOrModify if self.groups.contains_key(&gm.group_id) => {
                self.modify_group(gm)
            }
            GroupCommand::AddOrModify => self.add_group(gm, now),
            GroupCommand::Delete => Ok(self.delete_groups(gm.group_id)),
            GroupCommand::InsertBucket => self.insert_buckets(gm),
            GroupCommand::RemoveBucket => self.remove_buckets(gm),
        }
    }

    fn add_group(&mut self, gm: &GroupMod, now: Millis) -> Result<Vec<Change>, OfError> {
        if gm.group_id > GROUP_MAX {
            return Err(OfError::OFPGMFC_INVALID_GROUP);
        }
        if self.groups.contains_key(&gm.group_id) {
            return Err(OfError::OFPGMFC_GROUP_EXISTS);
        }
        if self.groups.len() >= MAX_GROUPS {
            return Err(OfError::OFPGMFC_OUT_OF_GROUPS);
        }
        let group = group(gm, now)?;
        self.check_chain(&group)?;
        Arc::make_mut(&mut self.groups).insert(group.id, Arc::new(group));
        Ok(Vec::new())
    }

    /// Replaces a group. The group's counters start again at zero, as in OVS.
    fn modify_group(&mut self, gm: &GroupMod) -> Result<Vec<Change>, OfError> {
        let old = self.groups.get(&gm.group_id).ok_or(OfError::OFPGMFC_UNKNOWN_GROUP)?;
        let group = group(gm, old.created)?;
        self.check_chain(&group)?;
        Arc::make_mut(&mut self.groups).insert(group.id, Arc::new(group));
        Ok(Vec::new())
    }

    fn delete_groups(&mut self, id: u32) -> Vec<Change> {
        let mut changes = Vec::new();
        let all = id == GROUP_ALL;
        if !all && !self.groups.contains_key(&id) {
            return changes;
        }
        // A single scan of all rules covers any number of deleted groups.
        let out_group = if all { GROUP_ANY } else { id };
        for rule in self.select(&Filter { out_group, ..Filter::default() }) {
            if !all || rule.any_action(&|a| matches!(a, Action::Group(_))) {
                self.remove_rule(rule, FlowRemovedReason::GroupDelete, &mut changes);
            }
        }
        let groups = Arc::make_mut(&mut self.groups);
        if all {
            groups.clear()
        } else {
            drop(groups.remove(&id))
        }
        changes
    }

    fn insert_buckets(&mut self, gm: &GroupMod) -> Result<Vec<Change>, OfError> {
        let old = self.groups.get(&gm.group_id).ok_or(OfError::OFPGMFC_UNKNOWN_GROUP)?;
        let at = match gm.command_bucket_id {
            bucket::FIRST => 0,
            bucket::LAST => old.buckets.len(),
            id if id <= bucket::MAX => {
                old.buckets
                    .iter()
                    .position(|b| b.id == id)
                    .ok_or(OfError::OFPGMFC_UNKNOWN_BUCKET)?
                    + 1
            }
            _ => return Err(OfError::OFPGMFC_UNKNOWN_BUCKET),
        };
        if gm.buckets.iter().any(|b| old.buckets.iter().any(|o| o.id == b.id)) {
            return Err(OfError::OFPGMFC_BUCKET_EXISTS);
        }
        let mut buckets = old.buckets.clone();
        buckets.splice(at..at, gm.buckets.iter().map(|b| new_bucket(b, old.kind)));
        self.set_buckets(gm.group_id, buckets)
    }

    fn remove_buckets(&mut self, gm: &GroupMod) -> Result<Vec<Change>, OfError> {
        let old = self.groups.get(&gm.group_id).ok_or(OfError::OFPGMFC_UNKNOWN_GROUP)?;
        let mut buckets = old.buckets.clone();
        match gm.command_bucket_id {
            bucket::ALL => buckets.clear(),
            bucket::FIRST if !buckets.is_empty() => {
                buckets.remove(0);
            }
            bucket::LAST => {
                buckets.pop();
            }
            bucket::FIRST => {}
            id => {
                let at = buckets
                    .iter()
                    .position(|b| b.id == id)
                    .ok_or(OfError::OFPGMFC_UNKNOWN_BUCKET)?;
                buckets.remove(at);
            }
        }
        self.set_buckets(gm.group_id, buckets)
    }

    /// Sets the buckets of a group of any kind. As in OVS, single buckets may be added and removed
    /// even where a group as a whole must have one. Remaining buckets keep their counters; those of
    /// the group start again at zero.
    fn set_buckets(&mut self, id: u32, buckets: Vec<Bucket>) -> Result<Vec<Change>, OfError> {
        let old = self.groups.get(&id).ok_or(OfError::OFPGMFC_UNKNOWN_GROUP)?;
        let group = Group::new(id, old.kind, old.selection.clone(), buckets, old.created);
        self.check_chain(&group)?;
        Arc::make_mut(&mut self.groups).insert(id, Arc::new(group));
        Ok(Vec::new())
    }

    /// Fails when a chain leads back to `group`. A group that does not exist (yet) leads nowhere.
    fn check_chain(&self, group: &Group) -> Result<(), OfError> {
        let mut todo: Vec<u32> = targets(&group.buckets).collect();
        let mut seen = hashbrown::HashSet::new();
        while let Some(id) = todo.pop() {
            if id == group.id {
                return Err(OfError::OFPGMFC_LOOP);
            }
            if seen.insert(id) {
                todo.extend(self.groups.get(&id).iter().flat_map(|next| targets(&next.buckets)));
            }
        }
        Ok(())
    }
}

fn targets(buckets: &[Bucket]) -> impl Iterator<Item = u32> + '_ {
    buckets
        .iter()
        .flat_map(|b| b.actions.iter())
        .filter_map(|a| if let Action::Group(id) = a { Some(*id) } else { None })
}

fn new_bucket(b: &of::Bucket, kind: GroupKind) -> Bucket {
    Bucket {
        id: b.id,
        weight: if kind == GroupKind::Select { b.weight } else { 0 },
        watch_port: b.watch_port,
        watch_group: b.watch_group,
        actions: Arc::clone(&b.actions),
        stats: Arc::new(Count::default()),
    }
}

fn group(gm: &GroupMod, created: Millis) -> Result<Group, OfError> {
    let kind = gm.kind;
    if kind == GroupKind::Indirect && gm.buckets.len() != 1 {
        return Err(OfError::OFPGMFC_INVALID_GROUP);
    }
    let ids: HashMap<u32, ()> = gm.buckets.iter().map(|b| (b.id, ())).collect();
    if ids.len() != gm.buckets.len() {
        return Err(OfError::OFPGMFC_BAD_BUCKET);
    }
    let buckets = gm.buckets.iter().map(|b| new_bucket(b, kind)).collect();
    Ok(Group::new(gm.group_id, kind, selection(&gm.properties)?, buckets, created))
}

fn selection(properties: &GroupProperties) -> Result<Selection, OfError> {
    let param = properties.selection_param;
    match properties.selection_method.as_str() {
        "" => Ok(Selection::Default),
        "hash" => Ok(Selection::Hash {
            basis: param as u32, // the low half, as in OVS
            fields: properties.fields.clone(),
        }),
        "dp_hash" => {
            Ok(Selection::DpHash { basis: param as u32, algorithm: u8::from(param >> 32 == 1) })
        }
        _ => Err(OfError::OFPGMFC_BAD_TYPE),
    }
}

/// Returns the group properties from which `selection` was made.
pub(crate) fn properties(selection: &Selection) -> GroupProperties {
    let (method, param, fields): (&str, u64, Vec<(Field, flow::FieldValue)>) = match selection {
        Selection::Default => ("", 0, Vec::new()),
        Selection::Hash { basis, fields } => ("hash", u64::from(*basis), fields.clone()),
        Selection::DpHash { basis, algorithm } => {
            ("dp_hash", u64::from(*basis) | u64::from(*algorithm) << 32, Vec::new())
        }
    };
    GroupProperties { selection_method: method.to_owned(), selection_param: param, fields }
}

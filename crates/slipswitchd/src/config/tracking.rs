// SPDX-License-Identifier: Apache-2.0
//! Connection tracking: timeout policies and limits of zones (tables Datapath, CT_Zone and
//! CT_Timeout_Policy).
//!
//! There is one datapath and one tracker, but the database has a row for each type of datapath. The
//! rows of all types that bridges have are in force together.

use super::context::Context;
use super::state::SwitchState;
use crate::zone_limits::{set_default_limit, set_zone_limit};
use conntrack::{DEFAULT_MAX_CONNS, Policies, Policy, Table, Timeout};
use ovsdb::{Replica, Row, Uuid};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Types of datapaths that bridges may have.
const TYPES: [&str; 3] = ["dummy", "netdev", "system"];
/// Number of policies. Number 0 is the default policy.
const POLICIES: u16 = conntrack::layout::POLICIES as u16;

/// The settings of the connection tracker, and the rows that describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DesiredTracking {
    /// Rows of the types that bridges have, by type.
    pub datapaths: BTreeMap<String, Uuid>,
    /// Timeout policies of zones.
    pub policies: BTreeMap<u16, Policy>,
    /// Limits of zones.
    pub limits: BTreeMap<u16, u32>,
    /// Limit of zones without one of their own.
    pub default_limit: Option<u32>,
    /// `other_config:ct-half-open-percent`.
    pub half_open_percent: Option<u8>,
}

impl DesiredTracking {
    /// Returns true when limits are those of the database, and commands may not change them.
    pub fn has_limits(&self) -> bool {
        self.default_limit.is_some() || !self.limits.is_empty()
    }
}

/// Reads the rows of the types `used`, which bridges have.
pub(super) fn read(
    replica: &Replica,
    root: &Row,
    used: &BTreeSet<&str>,
    remarks: &mut Vec<String>,
) -> DesiredTracking {
    let mut wanted = DesiredTracking::default();
    for (kind, uuid) in root.str_uuids("datapaths") {
        if !TYPES.contains(&kind) {
            remarks.push(format!("unknown datapath type {kind}"));
            continue;
        }
        let Some(row) = replica.row("Datapath", uuid).filter(|_| used.contains(kind)) else {
            continue;
        };
        wanted.datapaths.insert(kind.to_owned(), uuid);
        let default = row.opt_int("ct_zone_default_limit").and_then(|n| u32::try_from(n).ok());
        if wanted.default_limit.is_some() && default.is_some() && wanted.default_limit != default {
            remarks.push(format!(
                "datapath {kind}: ct_zone_default_limit differs from that of another type, ignored"
            ));
        }
        wanted.default_limit = wanted.default_limit.or(default);
        for (zone, uuid) in row.int_uuids("ct_zones") {
            let (Ok(number), Some(row)) = (u16::try_from(zone), replica.row("CT_Zone", uuid))
            else {
                continue;
            };
            if let Some(limit) = row.opt_int("limit").and_then(|n| u32::try_from(n).ok()) {
                wanted.limits.entry(number).or_insert(limit);
            }
            let policy = row
                .opt_uuid("timeout_policy")
                .and_then(|uuid| replica.row("CT_Timeout_Policy", uuid))
                .map(|row| policy(row, number, remarks));
            if let Some(policy) = policy {
                wanted.policies.entry(number).or_insert(policy);
            }
        }
    }
    wanted
}

fn policy(row: &Row, zone: u16, remarks: &mut Vec<String>) -> Policy {
    let mut policy = Policy::default();
    for (name, seconds) in row.str_ints("timeouts") {
        let Some(timeout) = Timeout::ALL.into_iter().find(|timeout| timeout.name() == name) else {
            remarks
                .push(format!("zone {zone}: timeout {name} has no meaning in userspace, ignored"));
            continue;
        };
        if let (Some(place), Ok(seconds)) =
            (policy.get_mut(timeout as usize), u64::try_from(seconds))
        {
            *place = Some(Duration::from_secs(seconds));
        }
    }
    policy
}

/// The numbers of the policies in force. Equal policies have one number.
#[derive(Debug, Default)]
pub(super) struct PolicyNumbers {
    numbers: BTreeMap<Policy, u16>,
    /// The number that was given last. A number that is free is reused as late as possible, because
    /// connections keep their policy's number.
    last: u16,
}

impl PolicyNumbers {
    /// Returns the numbers of the policies that an earlier daemon left in a table, so that its
    /// connections keep theirs.
    fn adopt(policies: Policies<'_>) -> PolicyNumbers {
        let mut numbers = BTreeMap::new();
        for number in 1..POLICIES {
            let policy = policies.get(number);
            if policy == Policy::default() {
                continue; // memory that was never written stays untouched
            }
            match numbers.entry(policy) {
                Entry::Vacant(place) => {
                    place.insert(number);
                }
                Entry::Occupied(_) => policies.delete(number),
            }
        }
        PolicyNumbers { last: numbers.values().max().copied().unwrap_or(0), numbers }
    }

    /// Makes `wanted` the policies of the table. Returns the number of each zone's policy, and the
    /// numbers that are free now. Zones for whose policy there is no number have the default policy.
    fn follow(
        &mut self,
        wanted: &BTreeMap<u16, Policy>,
        mut set: impl FnMut(u16, &Policy),
    ) -> (BTreeMap<u16, u16>, Vec<u16>) {
        let present: BTreeSet<&Policy> = wanted.values().collect();
        let before = std::mem::take(&mut self.numbers);
        let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            before.into_iter().partition(|(policy, _)| present.contains(policy));
        self.numbers = kept;
        let gone: Vec<u16> = gone.into_values().collect();
        let mut used: BTreeSet<u16> = self.numbers.values().chain(&gone).copied().collect();
        for policy in present {
            if self.numbers.contains_key(policy) {
                continue;
            }
            let free = (1..POLICIES)
                .map(|step| (self.last + step - 1) % (POLICIES - 1) + 1)
                .find(|number| !used.contains(number));
            let Some(number) = free else { break };
            used.insert(number);
            self.last = number;
            set(number, policy);
            self.numbers.insert(*policy, number);
        }
        let number = |policy| self.numbers.get(policy).copied();
        let zones =
            wanted.iter().filter_map(|(zone, policy)| Some((*zone, number(policy)?))).collect();
        (zones, gone)
    }
}

/// Puts the settings into force that differ.
pub(super) fn sync(context: &mut Context<'_>, state: &mut SwitchState, wanted: &DesiredTracking) {
    let is_first = !state.configured;
    if state.tracking == *wanted && !is_first {
        return;
    }
    let datapath = context.switch.datapath().clone();
    let Some(connections) = datapath.connections() else {
        if wanted.has_limits() || !wanted.policies.is_empty() {
            state.remarks.warn(
                "CT_Zone rows are ignored: this datapath does not track connections".to_owned(),
            );
        }
        state.tracking = wanted.clone();
        return;
    };
    let table = connections.tracker().table();
    let policies = table.policies();
    if is_first {
        forget_earlier(table, wanted);
        state.policy_numbers = PolicyNumbers::adopt(policies);
    }
    let set = |number, policy: &Policy| policies.set(number, policy);
    let (zones, gone) = state.policy_numbers.follow(&wanted.policies, set);
    if zones.len() < wanted.policies.len() {
        state.remarks.warn(format!(
            "there are more than {} timeout policies: some zones have the default one",
            POLICIES - 1
        ));
    }
    context.switch.set_timeout_policies(zones);
    gone.into_iter().for_each(|number| policies.delete(number));
    limits(table, &state.tracking, wanted);
    let percent = wanted.half_open_percent.unwrap_or(conntrack::DEFAULT_HALF_OPEN_PERCENT);
    table.counts().set_half_open_percent(percent);
    state.tracking = wanted.clone();
    if let Some(coupled) = context.coupled {
        coupled.follow_zone_limits();
    }
}

/// Removes the limits of an earlier daemon that the database does not have, and what commands set.
/// The others hold until they are replaced.
fn forget_earlier(table: &Table, wanted: &DesiredTracking) {
    let counts = table.counts();
    table.policies().delete(0);
    // Memory that was never written stays untouched.
    (0..=u16::MAX)
        .filter(|zone| counts.limit(*zone).is_some() && !wanted.limits.contains_key(zone))
        .for_each(|zone| counts.set_limit(zone, None));
    counts.set_default_limit(wanted.default_limit.unwrap_or(0));
    counts.set_max(DEFAULT_MAX_CONNS);
    table.set_sequence_check(true);
}

fn limits(table: &Table, before: &DesiredTracking, wanted: &DesiredTracking) {
    let counts = table.counts();
    for zone in before.limits.keys().filter(|zone| !wanted.limits.contains_key(zone)) {
        set_zone_limit(counts, *zone, None);
    }
    for (zone, limit) in &wanted.limits {
        if before.limits.get(zone) != Some(limit) {
            set_zone_limit(counts, *zone, Some(*limit));
        }
    }
    if before.default_limit != wanted.default_limit {
        set_default_limit(counts, wanted.default_limit.unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ovsdb::Datum;
    use std::sync::Arc;

    fn policy_of(seconds: u64) -> Policy {
        let mut policy = Policy::default();
        policy[Timeout::UdpSingle as usize] = Some(Duration::from_secs(seconds));
        policy
    }

    #[test]
    fn equal_policies_share_a_number_and_free_ones_are_reused_late() {
        let mut numbers = PolicyNumbers::default();
        let mut table: BTreeMap<u16, Policy> = BTreeMap::new();
        let mut follow = |zones: &[(u16, u64)]| {
            let wanted = zones.iter().map(|(zone, s)| (*zone, policy_of(*s))).collect();
            let set = |number, policy: &Policy| {
                table.insert(number, *policy);
            };
            let (zones, gone) = numbers.follow(&wanted, set);
            gone.iter().for_each(|number| {
                table.remove(number);
            });
            let policies = zones.values().map(|number| table[number]).collect::<Vec<_>>();
            assert!(policies.iter().eq(wanted.values()), "{policies:?}");
            (zones, gone)
        };
        let pairs = |pairs: &[(u16, u16)]| pairs.iter().copied().collect::<BTreeMap<_, _>>();
        assert_eq!(follow(&[(1, 7), (2, 7), (3, 9)]), (pairs(&[(1, 1), (2, 1), (3, 2)]), vec![]));
        assert_eq!(follow(&[(1, 7), (2, 8), (3, 9)]), (pairs(&[(1, 1), (2, 3), (3, 2)]), vec![]));
        assert_eq!(follow(&[(2, 8), (3, 9)]), (pairs(&[(2, 3), (3, 2)]), vec![1]));
        assert_eq!(follow(&[(2, 8), (3, 6)]), (pairs(&[(2, 3), (3, 4)]), vec![2]));
        assert_eq!(follow(&[]), (pairs(&[]), vec![4, 3]));
        // As many as there are, and one more, which gets none.
        let many: Vec<(u16, u64)> = (0..POLICIES).map(|zone| (zone, u64::from(zone) + 1)).collect();
        let wanted: BTreeMap<u16, Policy> = many.iter().map(|(z, s)| (*z, policy_of(*s))).collect();
        let (zones, _) = PolicyNumbers::default().follow(&wanted, |_, _| {});
        let given: BTreeSet<u16> = zones.values().copied().collect();
        assert_eq!(given.len(), usize::from(POLICIES) - 1);
        assert!(!given.contains(&0) && given.last() == Some(&(POLICIES - 1)));
    }

    #[test]
    fn policies_of_an_earlier_daemon_keep_their_numbers() {
        let table = Table::in_plain_memory([1, 3]);
        let policies = table.policies();
        for (number, seconds) in [(3, 7), (9, 8), (20, 7), (4095, 5)] {
            policies.set(number, &policy_of(seconds));
        }
        let mut numbers = PolicyNumbers::adopt(policies);
        let wanted = [(1, 8), (2, 7), (3, 6)].map(|(zone, s)| (zone, policy_of(s))).into();
        let (zones, gone) = numbers.follow(&wanted, |number, policy| policies.set(number, policy));
        gone.iter().for_each(|number| policies.delete(*number));
        assert_eq!((zones, gone), ([(1, 9), (2, 3), (3, 1)].into(), vec![4095]));
        let present: Vec<u16> =
            (0..POLICIES).filter(|n| policies.get(*n) != Policy::default()).collect();
        assert_eq!(present, [1, 3, 9]);
    }

    #[test]
    fn limits_of_an_earlier_daemon_hold_until_they_are_replaced() {
        let table = Table::in_plain_memory([1, 3]);
        let counts = table.counts();
        counts.set_limit(1, Some(10));
        counts.set_limit(2, Some(20));
        counts.set_default_limit(5);
        counts.set_max(77);
        table.set_sequence_check(false);
        let wanted = DesiredTracking { limits: [(2, 30)].into(), ..DesiredTracking::default() };
        forget_earlier(&table, &wanted);
        assert_eq!((counts.limit(1), counts.limit(2), counts.default_limit()), (None, Some(20), 0));
        assert_eq!(counts.max(), u64::from(DEFAULT_MAX_CONNS));
        assert!(table.sequence_check());
        limits(&table, &DesiredTracking::default(), &wanted);
        assert_eq!((counts.limit(1), counts.limit(2)), (None, Some(30)));
    }

    #[test]
    fn timeouts_of_a_row() {
        let timeouts = Datum::map([("icmp_first", 1i64), ("tcp_unack", 3), ("udp_single", 7)]);
        let row = Row::new([(Arc::from("timeouts"), timeouts)]);
        let mut remarks = Vec::new();
        let mut expected = policy_of(7);
        expected[Timeout::IcmpFirst as usize] = Some(Duration::from_secs(1));
        assert_eq!(policy(&row, 5, &mut remarks), expected);
        assert_eq!(remarks, ["zone 5: timeout tcp_unack has no meaning in userspace, ignored"]);
    }
}

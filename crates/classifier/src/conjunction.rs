// SPDX-License-Identifier: Apache-2.0
//! Conjunctive matches: ovs-fields(7), "CONJUNCTIVE MATCH FIELDS".

use crate::Entry;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Membership of a rule in one clause of a conjunctive match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conjunction {
    /// `conj_id` to look up when all clauses match.
    pub id: u32,
    /// Index of the clause, from 0.
    pub clause: u8,
    /// Number of clauses of the conjunction, 2 to 64.
    pub clauses: u8,
}

/// Priorities and ids of the conjunctions of which every clause is among `rules`, highest priority
/// first. Clauses count together only at one priority.
pub(crate) fn satisfied<R: Entry>(rules: &[&Arc<R>]) -> Vec<(u32, u32)> {
    let mut seen: BTreeMap<(std::cmp::Reverse<u32>, u32, u8), u64> = BTreeMap::new();
    for rule in rules {
        for c in rule.conjunctions() {
            let bit = 1u64.checked_shl(u32::from(c.clause)).unwrap_or(0);
            *seen.entry((std::cmp::Reverse(rule.priority()), c.id, c.clauses)).or_default() |= bit;
        }
    }
    let all = |n: u8| u64::MAX.checked_shr(64 - u32::from(n.clamp(1, 64))).unwrap_or(0);
    seen.into_iter()
        .filter(|((_, _, n), clauses)| *clauses == all(*n))
        .map(|((priority, id, _), _)| (priority.0, id))
        .collect()
}

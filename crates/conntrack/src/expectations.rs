// SPDX-License-Identifier: Apache-2.0
//! Connections that a helper expects. They live in the daemon's memory.

use crate::conn::ConnId;
use crate::nat::Manip;
use crate::table::Table;
use crate::ticks::Ticks;
use crate::tuple::{Ports, Tuple};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// Largest number of expectations.
pub const MAX_EXPECTATIONS: usize = 4_096;
/// Largest number of expectations of one connection.
pub const MAX_OF_PARENT: usize = 64;

/// The translation of an expected connection: like its parent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The address that changes.
    pub manip: Manip,
    /// The address that the reply tuple has in its place.
    pub address: IpAddr,
    /// The port that the reply tuple has with it; `None` keeps it.
    pub port: Option<u16>,
}

/// A connection that is expected: its tuple but for the source port. It may come more than once, as
/// long as its parent lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// The tuple of its original direction, with source port 0.
    pub tuple: Tuple,
    /// The connection that announced it.
    pub parent: ConnId,
    /// The tuple of the parent's original direction.
    pub parent_tuple: Tuple,
    /// The parent's mark at the announcement.
    pub mark: u32,
    /// The parent's label at the announcement.
    pub label: u128,
    /// The translation, when the parent has one.
    pub translation: Option<Translation>,
}

/// An expectation was not added: there are as many as may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// All expectations of a table. Any thread may use them; a lock is held for a lookup.
#[derive(Debug, Default)]
pub struct Expectations(Mutex<HashMap<Tuple, Expectation>>);

/// Returns the tuple by which packets with `tuple` are expected.
fn without_source_port(tuple: &Tuple) -> Option<Tuple> {
    let Ports::Pair { dst, .. } = tuple.ports else {
        return None;
    };
    Some(Tuple { ports: Ports::Pair { src: 0, dst }, ..*tuple })
}

impl Expectations {
    /// Adds an expectation, unless there is one with its tuple whose parent lives.
    ///
    /// # Errors
    ///
    /// The parent or the table has as many as may be.
    pub fn add(&self, table: &Table, new: Expectation, now: Ticks) -> Result<(), TooMany> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let old = all.get(&new.tuple);
        if old.is_some_and(|old| table.get(old.parent, now).is_some()) {
            return Ok(());
        }
        if old.is_none() {
            if all.len() >= MAX_EXPECTATIONS {
                retain(&mut all, table, |old| table.get(old.parent, now).is_some());
            }
            let siblings = all.values().filter(|old| old.parent == new.parent).count();
            if all.len() >= MAX_EXPECTATIONS || siblings >= MAX_OF_PARENT {
                return Err(TooMany);
            }
        }
        all.insert(new.tuple, new);
        count(&all, table, new.tuple.zone);
        Ok(())
    }

    /// Returns the expectation of a connection with `tuple`. Zones without any cost no lock.
    pub fn find(&self, table: &Table, tuple: &Tuple, now: Ticks) -> Option<Expectation> {
        if !table.counts().has_expectations(tuple.zone) {
            return None;
        }
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.get(&without_source_port(tuple)?)?;
        table.get(found.parent, now).map(|_| *found)
    }

    /// Removes the expectations whose parent has ended.
    pub fn expire(&self, table: &Table, now: Ticks) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        retain(&mut all, table, |old| table.get(old.parent, now).is_some());
    }

    /// Removes the expectations of a zone, or all.
    pub fn flush(&self, table: &Table, zone: Option<u16>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        retain(&mut all, table, |old| zone.is_some_and(|zone| old.tuple.zone != zone));
    }

    /// Returns the number of expectations, with those whose parent has ended.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns true when there are no expectations.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `each` with the expectations of a zone, or all, whose parent lives.
    pub fn each(
        &self,
        table: &Table,
        zone: Option<u16>,
        now: Ticks,
        mut each: impl FnMut(&Expectation),
    ) {
        let all: Vec<_> = {
            let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.values().copied().collect()
        };
        let is_wanted = |old: &&Expectation| {
            zone.is_none_or(|zone| old.tuple.zone == zone) && table.get(old.parent, now).is_some()
        };
        all.iter().filter(is_wanted).for_each(&mut each);
    }
}

fn retain(
    all: &mut HashMap<Tuple, Expectation>,
    table: &Table,
    keep: impl Fn(&Expectation) -> bool,
) {
    let mut zones = Vec::new();
    all.retain(|tuple, old| {
        let kept = keep(old);
        if !kept {
            zones.push(tuple.zone);
        }
        kept
    });
    for zone in zones {
        count(all, table, zone);
    }
}

/// Stores the number of a zone's expectations in the table.
fn count(all: &HashMap<Tuple, Expectation>, table: &Table, zone: u16) {
    let count = all.keys().filter(|tuple| tuple.zone == zone).count();
    table.counts().set_expectations(zone, count as u64);
}

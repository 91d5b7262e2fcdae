// SPDX-License-Identifier: Apache-2.0
//! The local copy of the database, and the record of what changed in it.
//!
//! Invariants:
//! - A [`Replica`] is a value. A holder of one sees one committed state of the database for as
//!   long as it keeps it; the session goes on in a copy that shares all unchanged tables and rows.
//! - A message from the server is read completely before any of it is applied. A message that
//!   cannot be read changes nothing.
//! - The [`ChangeLog`] remembers the value of each touched row at the time of the caller's last
//!   call. The report is the difference between that value and the present one, so any number of
//!   updates, reconnections and replacements in between add up to the right answer, and a row that
//!   came and went is not reported at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::datum::Datum;
use crate::monitor::Plan;
use crate::row::Row;
use crate::schema::Schema;
use crate::uuid::Uuid;

type Rows = BTreeMap<Uuid, Arc<Row>>;

/// One state of the monitored part of the database. Cloning is cheap: tables and rows are shared.
#[derive(Clone, Debug, Default)]
pub struct Replica {
    pub(crate) schema: Arc<Schema>,
    pub(crate) plan: Arc<Plan>,
    tables: IndexMap<Arc<str>, Arc<Rows>>,
}

/// The change of one row by an update.
#[derive(Clone, Debug)]
pub(crate) struct RowChange {
    pub(crate) table: Arc<str>,
    pub(crate) uuid: Uuid,
    /// The row from now on; `None` if it is gone.
    pub(crate) new: Option<Arc<Row>>,
}

impl Replica {
    /// A replica of nothing yet, for this schema and plan.
    pub(crate) fn empty(schema: Arc<Schema>, plan: Arc<Plan>) -> Self {
        Replica { schema, plan, tables: IndexMap::new() }
    }

    /// The server's schema. Without tables until the first connection.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// True if the server's schema has this column, monitored or not.
    pub fn has_column(&self, table: &str, column: &str) -> bool {
        self.schema.column(table, column).is_some()
    }

    /// True if the column is replicated here.
    pub fn monitors(&self, table: &str, column: &str) -> bool {
        self.plan.tables.get(table).is_some_and(|t| t.columns.contains_key(column))
    }

    /// The rows of a table, ascending by UUID; none if the table is unknown.
    pub fn rows(&self, table: &str) -> impl Iterator<Item = (Uuid, &Arc<Row>)> {
        self.tables.get(table).into_iter().flat_map(|rows| rows.iter().map(|(u, r)| (*u, r)))
    }

    /// The number of rows in a table.
    pub fn len(&self, table: &str) -> usize {
        self.tables.get(table).map_or(0, |rows| rows.len())
    }

    /// The row `uuid` of `table`, if it is in the replica.
    pub fn row(&self, table: &str, uuid: Uuid) -> Option<&Arc<Row>> {
        self.tables.get(table)?.get(&uuid)
    }

    /// The first row of a table, for tables that hold one row only (`Open_vSwitch`).
    pub fn first(&self, table: &str) -> Option<(Uuid, &Arc<Row>)> {
        self.rows(table).next()
    }

    /// The value of a column in a row.
    pub fn datum(&self, table: &str, uuid: Uuid, column: &str) -> Option<&Datum> {
        self.row(table, uuid)?.datum(column)
    }

    fn put(&mut self, change: &RowChange) {
        let rows = self.tables.entry(change.table.clone()).or_default();
        let rows = Arc::make_mut(rows);
        match &change.new {
            Some(row) => rows.insert(change.uuid, row.clone()),
            None => rows.remove(&change.uuid),
        };
    }

    /// Applies changes that were read against this replica. True if a watched column changed.
    pub(crate) fn apply(&mut self, changes: &[RowChange], log: &mut ChangeLog) -> bool {
        let mut woke = false;
        for change in changes {
            let old = self.row(&change.table, change.uuid).cloned();
            woke |= self.notable(&change.table, old.as_deref(), change.new.as_deref());
            log.record(&change.table, change.uuid, old);
            self.put(change);
        }
        woke
    }

    /// Becomes `next` at once, with the difference between the two noted row by row. True if a
    /// watched column changed.
    pub(crate) fn replace(&mut self, next: Replica, log: &mut ChangeLog) -> bool {
        let old = std::mem::replace(self, next);
        let mut woke = false;
        for (table, rows) in &old.tables {
            for (uuid, row) in rows.iter() {
                let new = self.row(table, *uuid);
                if new.is_none_or(|new| new != row) {
                    woke |= self.notable(table, Some(row), new.map(AsRef::as_ref));
                    log.record(table, *uuid, Some(row.clone()));
                }
            }
        }
        for (table, rows) in &self.tables {
            for uuid in rows.keys() {
                if old.row(table, *uuid).is_none() {
                    woke = true;
                    log.record(table, *uuid, None);
                }
            }
        }
        woke
    }

    fn notable(&self, table: &str, old: Option<&Row>, new: Option<&Row>) -> bool {
        match (old, new) {
            (None, None) => false,
            (Some(old), Some(new)) => {
                self.plan.tables.get(table).is_none_or(|plan| plan.differ(old, new))
            }
            _ => true,
        }
    }
}

/// The change of a row since the caller's last call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The row is new.
    Inserted,
    /// The row was there before, and these watched columns have other values now.
    Modified {
        /// The row as the caller last saw it.
        old: Arc<Row>,
        /// The columns that differ.
        columns: Vec<Arc<str>>,
    },
    /// The row is gone.
    Deleted {
        /// The row as the caller last saw it.
        old: Arc<Row>,
    },
}

/// The changes of all tables between two looks at the replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    tables: BTreeMap<Arc<str>, BTreeMap<Uuid, Change>>,
}

impl Changes {
    /// True if nothing changed.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The changed rows of a table, ascending by UUID.
    pub fn table(&self, table: &str) -> impl Iterator<Item = (Uuid, &Change)> {
        self.tables.get(table).into_iter().flat_map(|rows| rows.iter().map(|(u, c)| (*u, c)))
    }

    /// True if a row of the table changed.
    pub fn touches(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    /// The names of the tables that changed.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(AsRef::as_ref)
    }
}

/// For each row touched since the last look, what it was then.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeLog {
    before: BTreeMap<Arc<str>, BTreeMap<Uuid, Option<Arc<Row>>>>,
}

impl ChangeLog {
    fn record(&mut self, table: &Arc<str>, uuid: Uuid, old: Option<Arc<Row>>) {
        self.before.entry(table.clone()).or_default().entry(uuid).or_insert(old);
    }

    /// Returns the differences up to `now` and empties the log.
    pub(crate) fn take(&mut self, now: &Replica) -> Changes {
        let mut changes = Changes::default();
        for (table, rows) in std::mem::take(&mut self.before) {
            let mut changed = BTreeMap::new();
            for (uuid, old) in rows {
                let change = match (old, now.row(&table, uuid)) {
                    (None, None) => continue,
                    (None, Some(_)) => Change::Inserted,
                    (Some(old), None) => Change::Deleted { old },
                    (Some(old), Some(new)) => {
                        let columns = differing(now, &table, &old, new);
                        if columns.is_empty() {
                            continue;
                        }
                        Change::Modified { old, columns }
                    }
                };
                changed.insert(uuid, change);
            }
            if !changed.is_empty() {
                changes.tables.insert(table, changed);
            }
        }
        changes
    }
}

/// The watched columns in which two versions of a row differ.
fn differing(replica: &Replica, table: &str, old: &Row, new: &Row) -> Vec<Arc<str>> {
    let Some(plan) = replica.plan.tables.get(table) else {
        return Vec::new();
    };
    plan.columns
        .iter()
        .filter(|(name, column)| column.watched && old.datum(name) != new.datum(name))
        .map(|(name, _)| name.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::monitor::MonitorSpec;

    fn replica() -> Replica {
        let schema = Schema::from_json(&json!({"name": "D", "tables": {
            "T": {"columns": {"a": {"type": "string"}, "stats": {"type": "integer"}}}}}))
        .unwrap();
        let plan = MonitorSpec::new("D").table("T", ["a"]).written("T", ["stats"]).plan(&schema);
        Replica::empty(Arc::new(schema), Arc::new(plan))
    }

    fn change(n: u128, row: Option<(&str, i64)>) -> RowChange {
        RowChange {
            table: Arc::from("T"),
            uuid: Uuid::from_u128(n),
            new: row.map(|(a, s)| {
                Arc::new(Row::new([
                    (Arc::from("a"), Datum::from(a)),
                    (Arc::from("stats"), Datum::from(s)),
                ]))
            }),
        }
    }

    fn kinds(changes: &Changes) -> Vec<(u128, &'static str)> {
        changes
            .table("T")
            .map(|(u, c)| {
                (
                    u.as_u128(),
                    match c {
                        Change::Inserted => "inserted",
                        Change::Modified { .. } => "modified",
                        Change::Deleted { .. } => "deleted",
                    },
                )
            })
            .collect()
    }

    #[test]
    fn changes_add_up_between_looks() {
        let (mut replica, mut log) = (replica(), ChangeLog::default());
        assert!(replica.apply(&[change(1, Some(("x", 0))), change(2, Some(("y", 0)))], &mut log));
        assert!(replica.apply(&[change(1, Some(("z", 0)))], &mut log));
        assert_eq!(kinds(&log.take(&replica)), [(1, "inserted"), (2, "inserted")]);
        assert!(log.take(&replica).is_empty());

        // Away and back again is no change; come and gone is none either.
        replica.apply(&[change(1, None)], &mut log);
        replica.apply(&[change(1, Some(("z", 0))), change(3, Some(("n", 0)))], &mut log);
        replica.apply(&[change(3, None)], &mut log);
        assert!(log.take(&replica).is_empty());

        replica.apply(&[change(1, Some(("q", 0))), change(2, None)], &mut log);
        let changes = log.take(&replica);
        assert_eq!(kinds(&changes), [(1, "modified"), (2, "deleted")]);
        match changes.table("T").next().unwrap().1 {
            Change::Modified { old, columns } => {
                assert_eq!(old.str("a"), "z");
                assert_eq!(columns.len(), 1);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn own_columns_do_not_wake() {
        let (mut replica, mut log) = (replica(), ChangeLog::default());
        replica.apply(&[change(1, Some(("x", 0)))], &mut log);
        log.take(&replica);
        assert!(!replica.apply(&[change(1, Some(("x", 7)))], &mut log));
        assert!(log.take(&replica).is_empty());
        assert_eq!(replica.row("T", Uuid::from_u128(1)).unwrap().int("stats"), 7);
    }

    #[test]
    fn a_replacement_is_reported_row_by_row() {
        let (mut replica, mut log) = (replica(), ChangeLog::default());
        replica.apply(
            &[change(1, Some(("x", 0))), change(2, Some(("y", 0))), change(3, Some(("z", 0)))],
            &mut log,
        );
        log.take(&replica);
        let snapshot = replica.clone();
        let mut next = Replica::empty(replica.schema.clone(), replica.plan.clone());
        next.apply(
            &[change(2, Some(("y", 0))), change(3, Some(("w", 0))), change(4, Some(("n", 0)))],
            &mut ChangeLog::default(),
        );
        assert!(replica.replace(next.clone(), &mut log));
        assert_eq!(kinds(&log.take(&replica)), [(1, "deleted"), (3, "modified"), (4, "inserted")]);
        assert!(!replica.replace(next, &mut log), "the same again is no change");
        assert_eq!(snapshot.len("T"), 3, "a held snapshot stays as it was");
        assert!(snapshot.row("T", Uuid::from_u128(1)).is_some());
    }
}

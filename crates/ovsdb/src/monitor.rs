// SPDX-License-Identifier: Apache-2.0
//! The part of the database to replicate: the caller's wish ([`MonitorSpec`]), and the part of it
//! that the server's schema offers (`Plan`).

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::{Map, Value, json};

use crate::row::Row;
use crate::schema::{ColumnType, Schema};

/// The database, tables and columns that a client wants to hold a copy of.
///
/// Names that the server's schema does not have are dropped when the schema is known; reading
/// them from a [`Row`] gives defaults.
#[derive(Clone, Debug)]
pub struct MonitorSpec {
    pub(crate) database: String,
    tables: IndexMap<String, IndexMap<String, Wish>>,
}

/// How a column is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// Changes wake the caller and appear in the change log.
    Watched,
    /// Kept up to date only.
    Quiet,
}

impl MonitorSpec {
    /// Nothing of `database` yet.
    pub fn new(database: impl Into<String>) -> Self {
        MonitorSpec { database: database.into(), tables: IndexMap::new() }
    }

    /// Adds columns of a table. Changes to them wake the caller.
    #[must_use]
    pub fn table<'a>(self, table: &str, columns: impl IntoIterator<Item = &'a str>) -> Self {
        self.with(table, columns, Wish::Watched)
    }

    /// Adds columns of a table that the caller itself writes: the replica holds them, so that an
    /// unchanged value need not be written again, but a change to nothing else than these neither
    /// wakes the caller nor appears in the change log.
    #[must_use]
    pub fn written<'a>(self, table: &str, columns: impl IntoIterator<Item = &'a str>) -> Self {
        self.with(table, columns, Wish::Quiet)
    }

    fn with<'a>(
        mut self,
        table: &str,
        columns: impl IntoIterator<Item = &'a str>,
        wish: Wish,
    ) -> Self {
        let wanted = self.tables.entry(table.to_owned()).or_default();
        for column in columns {
            // A column named both ways is watched.
            let entry = wanted.entry(column.to_owned()).or_insert(wish);
            if wish == Wish::Watched {
                *entry = wish;
            }
        }
        self
    }

    /// The part of the wish that `schema` can fulfil.
    pub(crate) fn plan(&self, schema: &Schema) -> Plan {
        let mut plan = Plan::default();
        for (table, wanted) in &self.tables {
            let Some((name, has)) = schema.tables.get_key_value(table.as_str()) else {
                continue;
            };
            let columns = wanted
                .iter()
                .filter_map(|(column, wish)| {
                    let (name, kind) = has.columns.get_key_value(column.as_str())?;
                    Some((
                        name.clone(),
                        PlannedColumn { kind: kind.clone(), watched: *wish == Wish::Watched },
                    ))
                })
                .collect();
            plan.tables.insert(name.clone(), TablePlan { columns });
        }
        plan
    }
}

/// The tables and columns that are monitored, with their types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) tables: IndexMap<Arc<str>, TablePlan>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TablePlan {
    pub(crate) columns: IndexMap<Arc<str>, PlannedColumn>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedColumn {
    pub(crate) kind: ColumnType,
    pub(crate) watched: bool,
}

impl Plan {
    /// The `<monitor-requests>` object (RFC 7047 section 4.1.5). The array form is the one that
    /// both `monitor` and `monitor_cond` take.
    pub(crate) fn requests(&self) -> Value {
        let tables: Map<String, Value> = self
            .tables
            .iter()
            .map(|(name, table)| {
                let columns: Vec<&str> = table.columns.keys().map(AsRef::as_ref).collect();
                (name.to_string(), json!([{"columns": columns}]))
            })
            .collect();
        Value::Object(tables)
    }
}

impl TablePlan {
    /// A row in which every column has its default.
    pub(crate) fn default_row(&self) -> Row {
        Row::new(self.columns.iter().map(|(name, c)| (name.clone(), c.kind.default_datum())))
    }

    /// True if `a` and `b` differ in a watched column.
    pub(crate) fn differ(&self, a: &Row, b: &Row) -> bool {
        self.columns.iter().any(|(name, c)| c.watched && a.datum(name) != b.datum(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_keeps_what_the_schema_has() {
        let schema = Schema::from_json(&json!({"name": "D", "tables": {
            "T": {"columns": {"a": {"type": "string"}, "b": {"type": "integer"}}}}}))
        .unwrap();
        let plan = MonitorSpec::new("D")
            .table("T", ["a", "gone"])
            .written("T", ["a", "b"])
            .table("Gone", ["x"])
            .plan(&schema);
        assert_eq!(plan.requests(), json!({"T": [{"columns": ["a", "b"]}]}));
        let table = &plan.tables["T"];
        assert!(table.columns["a"].watched && !table.columns["b"].watched);
    }
}

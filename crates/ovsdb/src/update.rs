// SPDX-License-Identifier: Apache-2.0
//! Reading `<table-updates>` (RFC 7047 section 4.1.6) and `<table-updates2>` (ovsdb-server(7)
//! section 4.1.14) into row changes.
//!
//! Reading is strict: an update that names a table or column that was not asked for, modifies or
//! deletes a row that is not there, or inserts one that is, shows that server and client disagree
//! about the state. The error ends the connection, and the next one starts from a full copy. To
//! guess here would leave a wrong replica for good.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::datum::Datum;
use crate::error::DecodeError;
use crate::monitor::{Plan, TablePlan};
use crate::replica::{Replica, RowChange};
use crate::row::Row;
use crate::uuid::Uuid;

/// Which of the two forms an update has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Old and new values: `monitor`, `update`.
    Plain,
    /// Differences: `monitor_cond`, `monitor_cond_since`, `update2`, `update3`.
    Differences,
}

/// Reads an update against the state `base`, changing nothing.
pub(crate) fn decode(
    value: &Value,
    form: Form,
    base: &Replica,
) -> Result<Vec<RowChange>, DecodeError> {
    let plan: &Plan = &base.plan;
    let tables = object(value, "an object of table updates")?;
    let mut changes = Vec::new();
    for (table_name, rows) in tables {
        let place = || format!("table \"{table_name}\"");
        let (name, table) = plan.tables.get_key_value(table_name.as_str()).ok_or_else(|| {
            DecodeError::new("an update of a table not monitored").within(place())
        })?;
        let rows = object(rows, "an object of row updates").map_err(|e| e.within(place()))?;
        for (uuid, update) in rows {
            let change = uuid
                .parse::<Uuid>()
                .and_then(|uuid| {
                    let old = base.row(table_name, uuid);
                    let new = match form {
                        Form::Plain => plain(update, table, old),
                        Form::Differences => difference(update, table, old),
                    }
                    .map_err(|e| e.within(format!("row {uuid}")))?;
                    Ok(RowChange { table: name.clone(), uuid, new })
                })
                .map_err(|e| e.within(place()))?;
            changes.push(change);
        }
    }
    Ok(changes)
}

/// One `<row-update>`: `old` and `new` members.
fn plain(
    update: &Value,
    table: &TablePlan,
    existing: Option<&Arc<Row>>,
) -> Result<Option<Arc<Row>>, DecodeError> {
    let members = object(update, "a row update")?;
    let new = members.get("new").filter(|v| !v.is_null());
    let old = members.get("old").filter(|v| !v.is_null());
    match (old, new, existing) {
        (None, None, _) => Err(DecodeError::new("a row update with neither old nor new")),
        (Some(_), _, None) => Err(DecodeError::new("an update of a row that is not there")),
        (None, Some(_), Some(_)) => {
            Err(DecodeError::new("an insertion of a row that is already there"))
        }
        (Some(_), None, Some(_)) => Ok(None),
        (_, Some(new), existing) => {
            let mut row = existing.map_or_else(|| table.default_row(), |row| Row::clone(row));
            each_column(new, table, |column, datum, _| row.put(column.clone(), datum))?;
            Ok(Some(Arc::new(row)))
        }
    }
}

/// One `<row-update2>`: exactly one of `initial`, `insert`, `modify`, `delete`.
fn difference(
    update: &Value,
    table: &TablePlan,
    existing: Option<&Arc<Row>>,
) -> Result<Option<Arc<Row>>, DecodeError> {
    let members = object(update, "a row update")?;
    let mut members = members.iter();
    let (Some((what, value)), None) = (members.next(), members.next()) else {
        return Err(DecodeError::expected(
            "exactly one of initial, insert, modify, delete",
            update,
        ));
    };
    match (what.as_str(), existing) {
        ("initial" | "insert", None) => {
            let mut row = table.default_row();
            each_column(value, table, |column, datum, _| row.put(column.clone(), datum))?;
            Ok(Some(Arc::new(row)))
        }
        ("initial" | "insert", Some(_)) => {
            Err(DecodeError::new("an insertion of a row that is already there"))
        }
        ("modify", Some(old)) => {
            let mut row = Row::clone(old);
            each_column(value, table, |column, diff, planned| {
                let datum = match old.datum(column) {
                    Some(before) => before.with_difference(&diff, &planned.kind),
                    None => diff,
                };
                row.put(column.clone(), datum);
            })?;
            Ok(Some(Arc::new(row)))
        }
        ("delete", Some(_)) => Ok(None),
        ("modify" | "delete", None) => {
            Err(DecodeError::new(format!("a {what} of a row that is not there")))
        }
        _ => Err(DecodeError::expected("one of initial, insert, modify, delete", update)),
    }
}

fn each_column(
    row: &Value,
    table: &TablePlan,
    mut visit: impl FnMut(&Arc<str>, Datum, &crate::monitor::PlannedColumn),
) -> Result<(), DecodeError> {
    for (name, value) in object(row, "a row")? {
        let place = || format!("column \"{name}\"");
        let (column, planned) = table
            .columns
            .get_key_value(name.as_str())
            .ok_or_else(|| DecodeError::new("a column not monitored").within(place()))?;
        let datum = Datum::from_json(value, &planned.kind).map_err(|e| e.within(place()))?;
        visit(column, datum, planned);
    }
    Ok(())
}

fn object<'a>(value: &'a Value, what: &str) -> Result<&'a Map<String, Value>, DecodeError> {
    value.as_object().ok_or_else(|| DecodeError::expected(what, value))
}

// SPDX-License-Identifier: Apache-2.0
//! Transactions (RFC 7047 section 4.1.3 and 5.2): built here, sent by the session, answered with
//! an [`Outcome`].

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::{Map, Value, json};

use crate::atom::Atom;
use crate::datum::Datum;
use crate::jsonrpc::{error_tag, error_text};
use crate::replica::Replica;
use crate::uuid::Uuid;

/// A row that a transaction inserts; stands for its UUID in other operations of the same
/// transaction, and finds it in the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRow {
    name: Arc<str>,
    operation: usize,
}

impl From<&NewRow> for Atom {
    fn from(row: &NewRow) -> Self {
        Atom::NamedUuid(row.name.clone())
    }
}

/// How `mutate` changes a column (RFC 7047 section 5.1, `<mutator>`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutator {
    /// `+=`
    Add,
    /// `-=`
    Subtract,
    /// `*=`
    Multiply,
    /// `/=`
    Divide,
    /// `%=`
    Remainder,
    /// Adds elements or pairs to a set or map; pairs whose key is there already stay as they are.
    Insert,
    /// Removes elements, pairs, or (given a set for a map column) keys.
    Delete,
}

impl Mutator {
    const fn wire(self) -> &'static str {
        match self {
            Mutator::Add => "+=",
            Mutator::Subtract => "-=",
            Mutator::Multiply => "*=",
            Mutator::Divide => "/=",
            Mutator::Remainder => "%=",
            Mutator::Insert => "insert",
            Mutator::Delete => "delete",
        }
    }
}

/// The condition of a `wait` operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The columns equal the given values.
    Equal,
    /// They do not.
    Unequal,
}

#[derive(Clone, Debug)]
enum Operation {
    Insert { table: String, name: Arc<str>, row: IndexMap<String, Datum> },
    Update { table: String, uuid: Uuid, row: IndexMap<String, Datum> },
    Mutate { table: String, uuid: Uuid, column: String, mutator: Mutator, value: Datum },
    Delete { table: String, uuid: Uuid },
    Wait { table: String, uuid: Uuid, until: Until, timeout_ms: u64, row: IndexMap<String, Datum> },
}

/// A column of a row that a transaction writes.
pub(crate) type Cell = (String, Uuid, String);

/// A transaction under construction. All of its operations take effect, or none.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    operations: Vec<Operation>,
    comments: Vec<String>,
    guarded: bool,
    /// Where the present `update` of a row is, so that further columns join it.
    updates: HashMap<Uuid, usize>,
    /// The columns written in each row.
    written: HashMap<Uuid, BTreeSet<String>>,
}

impl Transaction {
    /// A transaction that does nothing yet.
    pub fn new() -> Self {
        Transaction::default()
    }

    /// Takes effect only while the client holds its lock: checked here and, by an `assert`
    /// operation, again by the server.
    #[must_use]
    pub fn guarded(mut self) -> Self {
        self.guarded = true;
        self
    }

    /// True if nothing would be written or waited for.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    pub(crate) fn is_guarded(&self) -> bool {
        self.guarded
    }

    /// Inserts a row. Columns not given get their defaults.
    pub fn insert<C: Into<String>>(
        &mut self,
        table: &str,
        columns: impl IntoIterator<Item = (C, Datum)>,
    ) -> NewRow {
        let operation = self.operations.len();
        let name: Arc<str> = Arc::from(format!("row{operation}"));
        self.operations.push(Operation::Insert {
            table: table.to_owned(),
            name: name.clone(),
            row: columns.into_iter().map(|(c, d)| (c.into(), d)).collect(),
        });
        NewRow { name, operation }
    }

    /// Writes a column of a row. Writes to one row are gathered into one operation, at the place
    /// of the first, unless a `mutate`, `wait` or `delete` came between.
    pub fn set(&mut self, table: &str, uuid: Uuid, column: &str, value: impl Into<Datum>) {
        self.written.entry(uuid).or_default().insert(column.to_owned());
        let at = self.updates.get(&uuid).copied();
        match at.and_then(|at| self.operations.get_mut(at)) {
            Some(Operation::Update { table: same, row, .. }) if same == table => {
                row.insert(column.to_owned(), value.into());
                return;
            }
            _ => {}
        }
        self.updates.insert(uuid, self.operations.len());
        self.operations.push(Operation::Update {
            table: table.to_owned(),
            uuid,
            row: IndexMap::from([(column.to_owned(), value.into())]),
        });
    }

    /// Like [`Transaction::set`], but writes only if the value differs from the replica's, and
    /// only if the row is there and the schema has the column. Returns whether it was added.
    ///
    /// Knows nothing of writes still in flight; `Client::set_if_changed` does.
    pub fn set_if_changed(
        &mut self,
        replica: &Replica,
        table: &str,
        uuid: Uuid,
        column: &str,
        value: impl Into<Datum>,
    ) -> bool {
        let value = value.into();
        if !replica.has_column(table, column) || replica.row(table, uuid).is_none() {
            return false;
        }
        if replica.datum(table, uuid, column) == Some(&value) && !self.writes(uuid, column) {
            return false;
        }
        self.set(table, uuid, column, value);
        true
    }

    /// True if this transaction already writes the column.
    fn writes(&self, uuid: Uuid, column: &str) -> bool {
        self.written.get(&uuid).is_some_and(|columns| columns.contains(column))
    }

    /// Changes a column relative to the value it has on the server.
    pub fn mutate(
        &mut self,
        table: &str,
        uuid: Uuid,
        column: &str,
        mutator: Mutator,
        value: impl Into<Datum>,
    ) {
        self.written.entry(uuid).or_default().insert(column.to_owned());
        self.push(Operation::Mutate {
            table: table.to_owned(),
            uuid,
            column: column.to_owned(),
            mutator,
            value: value.into(),
        });
    }

    /// Deletes a row.
    pub fn delete(&mut self, table: &str, uuid: Uuid) {
        self.push(Operation::Delete { table: table.to_owned(), uuid });
    }

    /// Lets the transaction fail with [`Outcome::TryAgain`] unless the columns of the row have
    /// (or do not have) the given values within `timeout_ms` milliseconds. With no columns,
    /// `Until::Equal` asks only that the row is there.
    pub fn wait<C: Into<String>>(
        &mut self,
        table: &str,
        uuid: Uuid,
        until: Until,
        timeout_ms: u64,
        columns: impl IntoIterator<Item = (C, Datum)>,
    ) {
        self.push(Operation::Wait {
            table: table.to_owned(),
            uuid,
            until,
            timeout_ms,
            row: columns.into_iter().map(|(c, d)| (c.into(), d)).collect(),
        });
    }

    /// Adds a comment, which the server keeps in its log if the transaction writes anything.
    pub fn comment(&mut self, text: impl Into<String>) {
        self.comments.push(text.into());
    }

    /// Adds an operation. Updates before it are closed: later changes start new ones.
    fn push(&mut self, operation: Operation) {
        self.updates.clear();
        self.operations.push(operation);
    }

    /// The columns that this transaction writes in rows that exist.
    pub(crate) fn cells(&self) -> BTreeSet<Cell> {
        let mut cells = BTreeSet::new();
        for operation in &self.operations {
            match operation {
                Operation::Update { table, uuid, row } => {
                    cells.extend(row.keys().map(|c| (table.clone(), *uuid, c.clone())));
                }
                Operation::Mutate { table, uuid, column, .. } => {
                    cells.insert((table.clone(), *uuid, column.clone()));
                }
                _ => {}
            }
        }
        cells
    }

    /// The `params` of the `transact` request.
    pub(crate) fn to_params(&self, database: &str, lock: Option<&str>) -> Value {
        let mut params = vec![json!(database)];
        if let (true, Some(lock)) = (self.guarded, lock) {
            params.push(json!({"op": "assert", "lock": lock}));
        }
        params.extend(self.operations.iter().map(Operation::to_json));
        params.extend(self.comments.iter().map(|c| json!({"op": "comment", "comment": c})));
        Value::Array(params)
    }

    /// Reads the server's answer to this transaction.
    pub(crate) fn outcome(&self, result: &Value) -> Outcome {
        let Value::Array(results) = result else {
            return Outcome::Failed("the server's answer is not an array of results".to_owned());
        };
        // A failed operation leaves null for those after it; an error at commit time comes as one
        // element more.
        for (at, result) in results.iter().enumerate() {
            let Some(error) = result.get("error") else {
                continue;
            };
            let text = error_text(result);
            return match error_tag(error) {
                "timed out" | "aborted" | "canceled" => Outcome::TryAgain(text),
                "not owner" => Outcome::NotLocked,
                _ => Outcome::Failed(match self.describe(at) {
                    Some(what) => format!("{what}: {text}"),
                    None => text,
                }),
            };
        }
        let first = usize::from(self.guarded);
        let expected = first + self.operations.len() + self.comments.len();
        if results.len() != expected {
            return Outcome::Failed(format!(
                "the server answered {} results to {expected} operations",
                results.len()
            ));
        }
        let results = results.iter().skip(first).take(self.operations.len()).map(|result| {
            if let Some(count) = result.get("count").and_then(Value::as_u64) {
                OperationResult::Count(count)
            } else {
                match result.get("uuid").and_then(|u| u.get(1)).and_then(Value::as_str) {
                    Some(uuid) => {
                        uuid.parse().map_or(OperationResult::Done, OperationResult::Inserted)
                    }
                    None => OperationResult::Done,
                }
            }
        });
        Outcome::Committed(Committed { results: results.collect() })
    }

    /// Describes the `at`th operation on the wire, for error texts.
    fn describe(&self, at: usize) -> Option<String> {
        let at = at.checked_sub(usize::from(self.guarded))?;
        Some(match self.operations.get(at)? {
            Operation::Insert { table, .. } => format!("insert into {table}"),
            Operation::Update { table, uuid, .. } => format!("update of {table} {uuid}"),
            Operation::Mutate { table, uuid, column, .. } => {
                format!("mutation of {column} of {table} {uuid}")
            }
            Operation::Delete { table, uuid } => format!("deletion of {table} {uuid}"),
            Operation::Wait { table, uuid, .. } => format!("wait for {table} {uuid}"),
        })
    }
}

impl Operation {
    fn to_json(&self) -> Value {
        let row = |columns: &IndexMap<String, Datum>| -> Value {
            Value::Object(
                columns.iter().map(|(c, d)| (c.clone(), d.to_json())).collect::<Map<_, _>>(),
            )
        };
        let this = |uuid: &Uuid| json!([["_uuid", "==", ["uuid", uuid.to_string()]]]);
        match self {
            Operation::Insert { table, name, row: columns } => json!({
                "op": "insert", "table": table, "uuid-name": name.as_ref(), "row": row(columns),
            }),
            Operation::Update { table, uuid, row: columns } => json!({
                "op": "update", "table": table, "where": this(uuid), "row": row(columns),
            }),
            Operation::Mutate { table, uuid, column, mutator, value } => json!({
                "op": "mutate", "table": table, "where": this(uuid),
                "mutations": [[column, mutator.wire(), value.to_json()]],
            }),
            Operation::Delete { table, uuid } => json!({
                "op": "delete", "table": table, "where": this(uuid),
            }),
            Operation::Wait { table, uuid, until, timeout_ms, row: columns } => json!({
                "op": "wait", "table": table, "where": this(uuid), "timeout": timeout_ms,
                "columns": columns.keys().collect::<Vec<_>>(),
                "until": match until { Until::Equal => "==", Until::Unequal => "!=" },
                "rows": [row(columns)],
            }),
        }
    }
}

/// The result of one operation of a committed transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationResult {
    /// An inserted row's UUID.
    Inserted(Uuid),
    /// The number of rows that an `update`, `mutate` or `delete` met. 0 means that the row was
    /// gone.
    Count(u64),
    /// The operation has no result to return (`wait`).
    Done,
}

/// The results of a committed transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// One per operation, in the order they were added; columns of one row that were written
    /// together count as one.
    pub results: Vec<OperationResult>,
}

impl Committed {
    /// The UUID of a row that this transaction inserted.
    pub fn inserted(&self, row: &NewRow) -> Option<Uuid> {
        match self.results.get(row.operation)? {
            OperationResult::Inserted(uuid) => Some(*uuid),
            _ => None,
        }
    }
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It took effect; the replica shows it already.
    Committed(Committed),
    /// It had no operations, so nothing was sent.
    Unchanged,
    /// It did not take effect, or (when the connection broke) it is not known whether it did:
    /// look at the replica when it is current again, and build a new one. The text says why.
    TryAgain(String),
    /// It was guarded by the lock, which another client holds.
    NotLocked,
    /// The server refused it, and would refuse it again. The text is the server's.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    #[test]
    fn operations_on_the_wire() {
        let mut txn = Transaction::new().guarded();
        let new = txn.insert("Port", [("name", Datum::from("p"))]);
        txn.set("Bridge", row(1), "a", 1);
        txn.set("Bridge", row(1), "b", "x");
        txn.mutate("Bridge", row(1), "ports", Mutator::Insert, &new);
        txn.set("Bridge", row(1), "a", 2);
        txn.comment("why");
        let id = json!([["_uuid", "==", ["uuid", row(1).to_string()]]]);
        assert_eq!(
            txn.to_params("D", Some("l")),
            json!(["D",
                {"op": "assert", "lock": "l"},
                {"op": "insert", "table": "Port", "uuid-name": "row0", "row": {"name": "p"}},
                {"op": "update", "table": "Bridge", "where": id, "row": {"a": 1, "b": "x"}},
                {"op": "mutate", "table": "Bridge", "where": id,
                    "mutations": [["ports", "insert", ["named-uuid", "row0"]]]},
                {"op": "update", "table": "Bridge", "where": id, "row": {"a": 2}},
                {"op": "comment", "comment": "why"},
            ])
        );
        let outcome = txn.outcome(&json!([
            {}, {"uuid": ["uuid", row(7).to_string()]}, {"count": 1}, {"count": 1}, {"count": 0}, {}
        ]));
        let Outcome::Committed(committed) = outcome else { panic!("{outcome:?}") };
        assert_eq!(committed.inserted(&new), Some(row(7)));
        assert_eq!(committed.results[3], OperationResult::Count(0));
        assert_eq!(txn.cells().len(), 3);
    }

    #[test]
    fn outcomes() {
        let mut txn = Transaction::new();
        txn.delete("T", row(1));
        let of = |v: Value| txn.outcome(&v);
        assert_eq!(
            of(json!([{"error": "timed out", "details": "d"}])),
            Outcome::TryAgain("timed out: d".into())
        );
        assert_eq!(of(json!([{"error": "not owner"}])), Outcome::NotLocked);
        let Outcome::Failed(text) = of(json!([{"error": "unknown table", "details": "T"}])) else {
            panic!()
        };
        assert!(
            text.starts_with("deletion of T 0000") && text.ends_with("unknown table: T"),
            "{text}"
        );
        // An error that shows only at commit follows the results.
        assert_eq!(
            of(json!([{"count": 1}, {"error": "referential integrity violation"}])),
            Outcome::Failed("referential integrity violation".into())
        );
        for odd in [json!(null), json!([]), json!([{}, {}]), json!("x")] {
            assert!(matches!(of(odd), Outcome::Failed(_)));
        }
    }
}

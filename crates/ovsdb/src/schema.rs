// SPDX-License-Identifier: Apache-2.0
//! Database schemas (RFC 7047 section 3.2), read with patience.
//!
//! Only what a client needs is kept: which tables and columns there are, and of which type. A
//! column whose type this program does not know (a schema newer than the program) is left out
//! and named in [`Schema::ignored`]; all else of the schema stays usable.

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::{Map, Value};

use crate::atom::{Atom, AtomicType};
use crate::datum::Datum;
use crate::error::DecodeError;

/// The type of a key or value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseType {
    /// The atomic type.
    pub atomic: AtomicType,
    /// For UUIDs that refer to rows: the table they are in.
    pub ref_table: Option<Arc<str>>,
}

impl BaseType {
    /// A type without a reference.
    pub const fn plain(atomic: AtomicType) -> Self {
        BaseType { atomic, ref_table: None }
    }

    fn from_json(value: &Value) -> Result<Self, DecodeError> {
        let (name, ref_table) = match value {
            Value::String(name) => (name.as_str(), None),
            Value::Object(members) => {
                let name = members.get("type").and_then(Value::as_str).ok_or_else(|| {
                    DecodeError::expected("a base type with a \"type\" member", value)
                })?;
                (name, members.get("refTable").and_then(Value::as_str))
            }
            _ => return Err(DecodeError::expected("a base type", value)),
        };
        let atomic = AtomicType::from_name(name)
            .ok_or_else(|| DecodeError::new(format!("no atomic type is called \"{name}\"")))?;
        Ok(BaseType { atomic, ref_table: ref_table.map(Arc::from) })
    }
}

/// The type of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnType {
    /// Type of the elements of a set, or of the keys of a map.
    pub key: BaseType,
    /// Type of the values of a map; `None` for scalars and sets.
    pub value: Option<BaseType>,
    /// Least number of elements: 0 or 1.
    pub min: u64,
    /// Greatest number of elements; `u64::MAX` for "unlimited".
    pub max: u64,
}

impl ColumnType {
    fn from_json(value: &Value) -> Result<Self, DecodeError> {
        let Value::Object(members) = value else {
            return Ok(ColumnType {
                key: BaseType::from_json(value)?,
                value: None,
                min: 1,
                max: 1,
            });
        };
        let key = members
            .get("key")
            .ok_or_else(|| DecodeError::expected("a type with a \"key\" member", value))?;
        let count = |name: &str| match members.get(name) {
            None => Ok(1),
            Some(Value::String(s)) if s == "unlimited" => Ok(u64::MAX),
            Some(v) => v.as_u64().ok_or_else(|| {
                DecodeError::expected("a number of elements", v).within(format!("\"{name}\""))
            }),
        };
        Ok(ColumnType {
            key: BaseType::from_json(key)?,
            value: members.get("value").map(BaseType::from_json).transpose()?,
            min: count("min")?,
            max: count("max")?,
        })
    }

    /// True if columns of this type are maps.
    pub const fn is_map(&self) -> bool {
        self.value.is_some()
    }

    /// The default value of a column of this type (RFC 7047 section 5.2.1).
    pub fn default_datum(&self) -> Datum {
        match &self.value {
            None if self.min == 0 => Datum::empty(),
            None => Datum::scalar(self.key.atomic.default_atom()),
            Some(_) if self.min == 0 => Datum::map(std::iter::empty::<(Atom, Atom)>()),
            Some(value) => {
                Datum::map([(self.key.atomic.default_atom(), value.atomic.default_atom())])
            }
        }
    }
}

/// One table of a schema: its columns by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableSchema {
    /// The columns, in the schema's order.
    pub columns: IndexMap<Arc<str>, ColumnType>,
    /// True if rows live without being referred to.
    pub is_root: bool,
}

/// A database schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// The database's name, such as `Open_vSwitch`.
    pub name: String,
    /// The schema's version, such as `8.3.1`; empty if the server gave none.
    pub version: String,
    /// The tables, in the schema's order.
    pub tables: IndexMap<Arc<str>, TableSchema>,
    /// The columns and tables that this program does not understand, each with the reason.
    pub ignored: Vec<String>,
}

impl Schema {
    /// Reads a `<database-schema>`.
    ///
    /// # Errors
    /// When the value is no schema at all. A single column that makes no sense is put on the
    /// [`Schema::ignored`] list instead.
    pub fn from_json(value: &Value) -> Result<Self, DecodeError> {
        let members = object(value, "a database schema")?;
        let mut schema = Schema {
            name: text(members, "name"),
            version: text(members, "version"),
            ..Schema::default()
        };
        let tables = members
            .get("tables")
            .ok_or_else(|| DecodeError::new("the schema has no \"tables\" member"))?;
        for (table_name, table) in object(tables, "an object of tables")? {
            let place = || format!("table \"{table_name}\"");
            let table = object(table, "a table schema").map_err(|e| e.within(place()))?;
            let mut kept = TableSchema {
                is_root: table.get("isRoot").and_then(Value::as_bool).unwrap_or(false),
                ..TableSchema::default()
            };
            let columns = table
                .get("columns")
                .ok_or_else(|| DecodeError::new("no \"columns\" member").within(place()))?;
            let columns = object(columns, "an object of columns").map_err(|e| e.within(place()))?;
            for (column_name, column) in columns {
                match column.get("type").map(ColumnType::from_json) {
                    Some(Ok(kind)) => {
                        kept.columns.insert(Arc::from(column_name.as_str()), kind);
                    }
                    Some(Err(error)) => schema
                        .ignored
                        .push(format!("column \"{column_name}\" of {}: {error}", place())),
                    None => schema
                        .ignored
                        .push(format!("column \"{column_name}\" of {}: it has no type", place())),
                }
            }
            schema.tables.insert(Arc::from(table_name.as_str()), kept);
        }
        Ok(schema)
    }

    /// The type of a column; `None` if the schema has no such table or column.
    pub fn column(&self, table: &str, column: &str) -> Option<&ColumnType> {
        self.tables.get(table)?.columns.get(column)
    }
}

fn object<'a>(value: &'a Value, what: &str) -> Result<&'a Map<String, Value>, DecodeError> {
    value.as_object().ok_or_else(|| DecodeError::expected(what, value))
}

fn text(members: &Map<String, Value>, name: &str) -> String {
    members.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_of_unknown_type_are_set_aside() {
        let schema = Schema::from_json(&json!({
            "name": "D", "version": "1.2.3", "future": {"x": 1},
            "tables": {"T": {"isRoot": true, "colour": "red", "columns": {
                "a": {"type": "string", "ephemeral": true},
                "b": {"type": {"key": "decimal"}},
                "c": {"type": {"key": {"type": "uuid", "refTable": "U"}, "min": 0, "max": "unlimited"}},
                "d": {"type": {"key": "string", "value": "integer", "min": 0, "max": 4}},
                "e": {},
                "f": {"type": {"key": "string", "max": -1}},
            }}}
        }))
        .unwrap();
        assert!(schema.column("T", "a").is_some());
        assert!(schema.column("T", "b").is_none());
        let c = schema.column("T", "c").unwrap();
        assert_eq!((c.min, c.max, c.key.ref_table.as_deref()), (0, u64::MAX, Some("U")));
        assert!(schema.column("T", "d").unwrap().is_map());
        assert_eq!(schema.ignored.len(), 3);
        assert!(schema.ignored[0].contains("decimal"), "{:?}", schema.ignored);
    }

    #[test]
    fn defaults_follow_the_type() {
        let of = |v: Value| ColumnType::from_json(&v).unwrap().default_datum();
        assert_eq!(of(json!("string")), Datum::from(""));
        assert_eq!(of(json!({"key": "integer", "min": 0})), Datum::empty());
        assert_eq!(of(json!({"key": "integer"})), Datum::from(0));
        assert_eq!(
            of(json!({"key": "string", "value": "string", "min": 0})).to_json(),
            json!(["map", []])
        );
    }

    #[test]
    fn what_is_no_schema_is_an_error() {
        for value in [
            json!(1),
            json!({}),
            json!({"tables": 1}),
            json!({"tables": {"T": {}}}),
            json!({"tables": {"T": {"columns": []}}}),
        ] {
            assert!(Schema::from_json(&value).is_err(), "{value}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The five atomic values of OVSDB (RFC 7047 section 3.2, `<atomic-type>`; section 5.1, `<atom>`).

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::error::DecodeError;
use crate::uuid::Uuid;

/// The type of an [`Atom`], as a schema names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicType {
    /// A signed 64-bit integer.
    Integer,
    /// A finite double.
    Real,
    /// `true` or `false`.
    Boolean,
    /// A Unicode string.
    String,
    /// A row identifier.
    Uuid,
}

impl AtomicType {
    /// The name used in schemas.
    pub const fn name(self) -> &'static str {
        match self {
            AtomicType::Integer => "integer",
            AtomicType::Real => "real",
            AtomicType::Boolean => "boolean",
            AtomicType::String => "string",
            AtomicType::Uuid => "uuid",
        }
    }

    /// The type that a schema calls `name`; `None` when OVSDB has no such type.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "integer" => AtomicType::Integer,
            "real" => AtomicType::Real,
            "boolean" => AtomicType::Boolean,
            "string" => AtomicType::String,
            "uuid" => AtomicType::Uuid,
            _ => return None,
        })
    }

    /// The value that a column of this type has when nothing was written (RFC 7047 section 5.2.1,
    /// `insert`).
    pub fn default_atom(self) -> Atom {
        match self {
            AtomicType::Integer => Atom::Integer(0),
            AtomicType::Real => Atom::Real(0.0),
            AtomicType::Boolean => Atom::Boolean(false),
            AtomicType::String => Atom::String(Arc::from("")),
            AtomicType::Uuid => Atom::Uuid(Uuid::NIL),
        }
    }
}

/// One atomic value.
#[derive(Clone)]
pub enum Atom {
    /// A signed 64-bit integer.
    Integer(i64),
    /// A double. A value that is not finite has no JSON form: it goes out as `null`, and the
    /// server then refuses the transaction with an error.
    Real(f64),
    /// `true` or `false`.
    Boolean(bool),
    /// A Unicode string.
    String(Arc<str>),
    /// A row identifier.
    Uuid(Uuid),
    /// A row that the same transaction inserts, by the name the insertion gave it. Goes to the
    /// server only; never comes back.
    NamedUuid(Arc<str>),
}

impl Atom {
    /// Reads an atom of type `kind`.
    ///
    /// # Errors
    /// When the JSON value has another type; integers may be written as reals without a fraction.
    pub fn from_json(value: &Value, kind: AtomicType) -> Result<Self, DecodeError> {
        let atom = match (kind, value) {
            (AtomicType::Integer, Value::Number(n)) => {
                n.as_i64().or_else(|| n.as_f64().and_then(integral)).map(Atom::Integer)
            }
            (AtomicType::Real, Value::Number(n)) => n.as_f64().map(Atom::Real),
            (AtomicType::Boolean, Value::Bool(b)) => Some(Atom::Boolean(*b)),
            (AtomicType::String, Value::String(s)) => Some(Atom::String(Arc::from(s.as_str()))),
            (AtomicType::Uuid, Value::Array(items)) => match items.as_slice() {
                [Value::String(tag), Value::String(text)] if tag == "uuid" => {
                    Some(Atom::Uuid(text.parse()?))
                }
                [Value::String(tag), Value::String(name)] if tag == "named-uuid" => {
                    Some(Atom::NamedUuid(Arc::from(name.as_str())))
                }
                _ => None,
            },
            _ => None,
        };
        atom.ok_or_else(|| DecodeError::expected(kind.name(), value))
    }

    /// The JSON form.
    pub fn to_json(&self) -> Value {
        match self {
            Atom::Integer(v) => json!(v),
            Atom::Real(v) => json!(v),
            Atom::Boolean(v) => json!(v),
            Atom::String(v) => Value::String(v.to_string()),
            Atom::Uuid(v) => json!(["uuid", v.to_string()]),
            Atom::NamedUuid(v) => json!(["named-uuid", v.to_string()]),
        }
    }

    /// The integer, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        if let Atom::Integer(v) = self { Some(*v) } else { None }
    }

    /// The real, if it is one.
    pub fn as_real(&self) -> Option<f64> {
        if let Atom::Real(v) = self { Some(*v) } else { None }
    }

    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        if let Atom::Boolean(v) = self { Some(*v) } else { None }
    }

    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        if let Atom::String(v) = self { Some(v) } else { None }
    }

    /// The row identifier, if it is one.
    pub fn as_uuid(&self) -> Option<Uuid> {
        if let Atom::Uuid(v) = self { Some(*v) } else { None }
    }

    /// Place among the kinds of atoms, for the order of unlike atoms.
    fn rank(&self) -> u8 {
        match self {
            Atom::Integer(_) => 0,
            Atom::Real(_) => 1,
            Atom::Boolean(_) => 2,
            Atom::String(_) => 3,
            Atom::Uuid(_) => 4,
            Atom::NamedUuid(_) => 5,
        }
    }
}

/// `v` as an integer when it is one that `i64` can hold.
fn integral(v: f64) -> Option<i64> {
    // 2^63 itself is a double but not an i64; -2^63 is both.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    (v.fract() == 0.0 && (-LIMIT..LIMIT).contains(&v)).then_some(v as i64)
}

impl Ord for Atom {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Atom::Integer(a), Atom::Integer(b)) => a.cmp(b),
            // OVSDB holds -0 and 0 to be equal.
            (Atom::Real(a), Atom::Real(b)) => (a + 0.0).total_cmp(&(b + 0.0)),
            (Atom::Boolean(a), Atom::Boolean(b)) => a.cmp(b),
            (Atom::String(a), Atom::String(b)) => a.cmp(b),
            (Atom::Uuid(a), Atom::Uuid(b)) => a.cmp(b),
            (Atom::NamedUuid(a), Atom::NamedUuid(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Atom {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Atom {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Atom {}

impl fmt::Debug for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Integer(v) => write!(f, "{v}"),
            Atom::Real(v) => write!(f, "{v:?}"),
            Atom::Boolean(v) => write!(f, "{v}"),
            Atom::String(v) => write!(f, "{v:?}"),
            Atom::Uuid(v) => write!(f, "{v}"),
            Atom::NamedUuid(v) => write!(f, "@{v}"),
        }
    }
}

impl From<i64> for Atom {
    fn from(v: i64) -> Self {
        Atom::Integer(v)
    }
}

impl From<i32> for Atom {
    fn from(v: i32) -> Self {
        Atom::Integer(i64::from(v))
    }
}

impl From<u32> for Atom {
    fn from(v: u32) -> Self {
        Atom::Integer(i64::from(v))
    }
}

impl From<u16> for Atom {
    fn from(v: u16) -> Self {
        Atom::Integer(i64::from(v))
    }
}

impl From<f64> for Atom {
    fn from(v: f64) -> Self {
        Atom::Real(v)
    }
}

impl From<bool> for Atom {
    fn from(v: bool) -> Self {
        Atom::Boolean(v)
    }
}

impl From<&str> for Atom {
    fn from(v: &str) -> Self {
        Atom::String(Arc::from(v))
    }
}

impl From<String> for Atom {
    fn from(v: String) -> Self {
        Atom::String(Arc::from(v))
    }
}

impl From<&String> for Atom {
    fn from(v: &String) -> Self {
        Atom::String(Arc::from(v.as_str()))
    }
}

impl From<Uuid> for Atom {
    fn from(v: Uuid) -> Self {
        Atom::Uuid(v)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_each_type_and_refuses_the_others() {
        let kinds = [
            AtomicType::Integer,
            AtomicType::Real,
            AtomicType::Boolean,
            AtomicType::String,
            AtomicType::Uuid,
        ];
        for kind in kinds {
            assert_eq!(AtomicType::from_name(kind.name()), Some(kind));
            let atom = kind.default_atom();
            for other in kinds {
                let read = Atom::from_json(&atom.to_json(), other);
                if other == kind {
                    assert_eq!(read.unwrap(), atom);
                } else if matches!(
                    (kind, other),
                    (AtomicType::Integer, AtomicType::Real)
                        | (AtomicType::Real, AtomicType::Integer)
                ) {
                    assert!(read.is_ok());
                } else {
                    assert!(read.is_err(), "{kind:?} read as {other:?}");
                }
            }
        }
    }

    #[test]
    fn integers_keep_to_64_bits() {
        let read = |text: &str| {
            Atom::from_json(&serde_json::from_str(text).unwrap(), AtomicType::Integer).ok()
        };
        assert_eq!(read("-9223372036854775808"), Some(Atom::Integer(i64::MIN)));
        assert_eq!(read("9223372036854775807"), Some(Atom::Integer(i64::MAX)));
        assert_eq!(read("9223372036854775808"), None);
        assert_eq!(read("1e3"), Some(Atom::Integer(1000)));
        assert_eq!(read("1.5"), None);
        assert_eq!(read("1e300"), None);
    }

    #[test]
    fn zeros_are_equal_whatever_their_sign() {
        assert_eq!(Atom::Real(-0.0), Atom::Real(0.0));
    }
}

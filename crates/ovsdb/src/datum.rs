// SPDX-License-Identifier: Apache-2.0
//! Column values: a set or a map of atoms (RFC 7047 section 5.1, `<value>`).
//!
//! A datum is kept in one form only: elements sorted, each once. A scalar is a set of one, as on
//! the wire, so that two datums are equal exactly when the server would call them equal. The one
//! difference that the form keeps is between a set and a map: the server wants an empty map to be
//! written as a map.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Value, json};

use crate::atom::Atom;
use crate::error::DecodeError;
use crate::schema::ColumnType;
use crate::uuid::Uuid;

/// The value of one column in one row.
#[derive(Clone, PartialEq, Eq)]
pub struct Datum(Repr);

#[derive(Clone, PartialEq, Eq)]
enum Repr {
    /// Ascending, no element twice.
    Set(Vec<Atom>),
    /// Ascending by key, no key twice.
    Map(Vec<(Atom, Atom)>),
}

impl Datum {
    /// The empty set: an optional value that is absent.
    pub const fn empty() -> Self {
        Datum(Repr::Set(Vec::new()))
    }

    /// A set; elements given more than once count once.
    pub fn set<A: Into<Atom>>(elements: impl IntoIterator<Item = A>) -> Self {
        let mut atoms: Vec<Atom> = elements.into_iter().map(Into::into).collect();
        atoms.sort();
        atoms.dedup();
        Datum(Repr::Set(atoms))
    }

    /// A map; of a key given more than once the last value counts.
    pub fn map<K: Into<Atom>, V: Into<Atom>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        let mut pairs: Vec<(Atom, Atom)> =
            pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        // The sort is stable, so among equal keys the last given stays last; keep that one.
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.reverse();
        pairs.dedup_by(|later, kept| later.0 == kept.0);
        pairs.reverse();
        Datum(Repr::Map(pairs))
    }

    /// A single value.
    pub fn scalar(atom: impl Into<Atom>) -> Self {
        Datum(Repr::Set(vec![atom.into()]))
    }

    /// Reads a value of a column of type `kind`. Limits on the number of elements and the ranges
    /// of a schema are the server's to enforce and are not checked.
    ///
    /// # Errors
    /// When the JSON value is of another type.
    pub fn from_json(value: &Value, kind: &ColumnType) -> Result<Self, DecodeError> {
        let tagged = match value {
            Value::Array(items) => match items.as_slice() {
                [Value::String(tag), Value::Array(elements)] => Some((tag.as_str(), elements)),
                _ => None,
            },
            _ => None,
        };
        match (&kind.value, tagged) {
            (Some(value_type), Some(("map", elements))) => {
                let mut pairs = Vec::with_capacity(elements.len());
                for element in elements {
                    let Value::Array(pair) = element else {
                        return Err(DecodeError::expected("a [key, value] pair", element));
                    };
                    let [key, value] = pair.as_slice() else {
                        return Err(DecodeError::expected("a [key, value] pair", element));
                    };
                    pairs.push((
                        Atom::from_json(key, kind.key.atomic)?,
                        Atom::from_json(value, value_type.atomic)?,
                    ));
                }
                Ok(Datum::map(pairs))
            }
            (Some(_), _) => Err(DecodeError::expected("a map", value)),
            (None, Some(("set", elements))) => {
                let atoms: Result<Vec<Atom>, DecodeError> =
                    elements.iter().map(|e| Atom::from_json(e, kind.key.atomic)).collect();
                Ok(Datum::set(atoms?))
            }
            (None, _) => Ok(Datum::scalar(Atom::from_json(value, kind.key.atomic)?)),
        }
    }

    /// The JSON form; a set of one is written as the bare atom.
    pub fn to_json(&self) -> Value {
        match &self.0 {
            Repr::Set(atoms) => match atoms.as_slice() {
                [atom] => atom.to_json(),
                atoms => json!(["set", atoms.iter().map(Atom::to_json).collect::<Vec<_>>()]),
            },
            Repr::Map(pairs) => {
                let pairs: Vec<Value> =
                    pairs.iter().map(|(k, v)| json!([k.to_json(), v.to_json()])).collect();
                json!(["map", pairs])
            }
        }
    }

    /// The elements of a set, ascending; nothing for a map.
    pub fn atoms(&self) -> &[Atom] {
        match &self.0 {
            Repr::Set(atoms) => atoms,
            Repr::Map(_) => &[],
        }
    }

    /// The pairs of a map, ascending by key; nothing for a set.
    pub fn pairs(&self) -> &[(Atom, Atom)] {
        match &self.0 {
            Repr::Set(_) => &[],
            Repr::Map(pairs) => pairs,
        }
    }

    /// The first element of a set: the value of a scalar or of an optional column.
    pub fn first(&self) -> Option<&Atom> {
        self.atoms().first()
    }

    /// Number of elements or pairs.
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Set(atoms) => atoms.len(),
            Repr::Map(pairs) => pairs.len(),
        }
    }

    /// True for an empty set or map.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of string key `key` in a map with string values.
    pub fn string_at(&self, key: &str) -> Option<&str> {
        let pairs = self.pairs();
        let at = pairs
            .binary_search_by(|(k, _)| match k {
                Atom::String(k) => k.as_ref().cmp(key),
                // A map's keys are all of one type; any answer will do for other types.
                _ => Ordering::Less,
            })
            .ok()?;
        pairs.get(at)?.1.as_str()
    }

    /// The row identifiers in a set.
    pub fn uuids(&self) -> impl Iterator<Item = Uuid> + '_ {
        self.atoms().iter().filter_map(Atom::as_uuid)
    }

    /// This value with a difference applied, in the sense of ovsdb-server(7) section 4.1.14: a
    /// column that holds at most one element is replaced; of a set, elements in the difference
    /// are added if absent and removed if present; of a map, a pair in the difference is removed
    /// if present with the same value, and else written.
    #[must_use]
    pub fn with_difference(&self, difference: &Datum, kind: &ColumnType) -> Datum {
        if kind.max <= 1 {
            return difference.clone();
        }
        match (&self.0, &difference.0) {
            (Repr::Set(old), Repr::Set(diff)) => {
                let mut merged = Vec::with_capacity(old.len() + diff.len());
                merge(old, diff, Atom::cmp, |a, b| match (a, b) {
                    (Some(a), None) | (None, Some(a)) => merged.push(a.clone()),
                    _ => {}
                });
                Datum(Repr::Set(merged))
            }
            (Repr::Map(old), Repr::Map(diff)) => {
                let mut merged = Vec::with_capacity(old.len() + diff.len());
                merge(
                    old,
                    diff,
                    |a, b| a.0.cmp(&b.0),
                    |a, b| match (a, b) {
                        (Some(a), Some(b)) if a.1 == b.1 => {}
                        (_, Some(b)) => merged.push(b.clone()),
                        (Some(a), None) => merged.push(a.clone()),
                        (None, None) => {}
                    },
                );
                Datum(Repr::Map(merged))
            }
            // Both were read with the column's type, so they are of one kind; if a caller mixes
            // kinds, the newer value is the better answer.
            _ => difference.clone(),
        }
    }
}

/// Walks two ascending slices together and hands on each element, paired with its equal in the
/// other slice if there is one.
fn merge<'a, T>(
    left: &'a [T],
    right: &'a [T],
    order: impl Fn(&T, &T) -> Ordering,
    mut visit: impl FnMut(Option<&'a T>, Option<&'a T>),
) {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    loop {
        let turn = match (left.peek(), right.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => order(a, b),
        };
        match turn {
            Ordering::Less => visit(left.next(), None),
            Ordering::Greater => visit(None, right.next()),
            Ordering::Equal => visit(left.next(), right.next()),
        }
    }
}

impl fmt::Debug for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Set(atoms) => match atoms.as_slice() {
                [atom] => atom.fmt(f),
                atoms => f.debug_list().entries(atoms).finish(),
            },
            Repr::Map(pairs) => f.debug_map().entries(pairs.iter().map(|(k, v)| (k, v))).finish(),
        }
    }
}

impl<A: Into<Atom>> From<A> for Datum {
    fn from(atom: A) -> Self {
        Datum::scalar(atom)
    }
}

impl<A: Into<Atom>> From<Option<A>> for Datum {
    fn from(atom: Option<A>) -> Self {
        atom.map_or_else(Datum::empty, Datum::scalar)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::atom::AtomicType;
    use crate::schema::BaseType;

    fn set_type(max: u64) -> ColumnType {
        ColumnType { key: BaseType::plain(AtomicType::Integer), value: None, min: 0, max }
    }

    fn map_type() -> ColumnType {
        ColumnType {
            key: BaseType::plain(AtomicType::String),
            value: Some(BaseType::plain(AtomicType::String)),
            min: 0,
            max: u64::MAX,
        }
    }

    #[test]
    fn one_form_for_equal_values() {
        assert_eq!(Datum::set([3, 1, 3, 2]), Datum::set([1, 2, 3]));
        assert_eq!(
            Datum::map([("a", "1"), ("b", "x"), ("a", "2")]),
            Datum::map([("b", "x"), ("a", "2")])
        );
        assert_eq!(Datum::set([7]), Datum::from(7));
        assert_eq!(Datum::from(None::<i64>), Datum::empty());
        assert_eq!(Datum::map([("k", "v")]).string_at("k"), Some("v"));
        assert_eq!(Datum::map([("k", "v")]).string_at("z"), None);
    }

    #[test]
    fn json_forms() {
        assert_eq!(Datum::from(7).to_json(), json!(7));
        assert_eq!(Datum::empty().to_json(), json!(["set", []]));
        assert_eq!(Datum::map::<&str, &str>([]).to_json(), json!(["map", []]));
        assert_eq!(Datum::set([2, 1]).to_json(), json!(["set", [1, 2]]));
        let wrong =
            [json!("x"), json!(["map", []]), json!(["set", 1]), json!(null), json!(["set", ["a"]])];
        for value in wrong {
            assert!(Datum::from_json(&value, &set_type(9)).is_err(), "{value}");
        }
        for value in
            [json!("x"), json!(["set", []]), json!(["map", [["a"]]]), json!(["map", ["a"]])]
        {
            assert!(Datum::from_json(&value, &map_type()).is_err(), "{value}");
        }
    }

    #[test]
    fn difference_of_a_scalar_is_its_new_value() {
        let old = Datum::from(4);
        assert_eq!(old.with_difference(&Datum::from(4), &set_type(1)), Datum::from(4));
        assert_eq!(old.with_difference(&Datum::empty(), &set_type(1)), Datum::empty());
    }

    proptest! {
        #[test]
        fn set_differences_apply(old: std::collections::BTreeSet<i8>, new: std::collections::BTreeSet<i8>) {
            let diff = Datum::set(old.symmetric_difference(&new).map(|v| i64::from(*v)));
            let (old, new) = (old.into_iter().map(i64::from), new.into_iter().map(i64::from));
            prop_assert_eq!(Datum::set(old).with_difference(&diff, &set_type(u64::MAX)), Datum::set(new));
        }

        #[test]
        fn map_differences_apply(
            old: std::collections::BTreeMap<u8, u8>, new: std::collections::BTreeMap<u8, u8>,
        ) {
            let text = |m: &std::collections::BTreeMap<u8, u8>| {
                Datum::map(m.iter().map(|(k, v)| ((k % 16).to_string(), (v % 4).to_string())))
            };
            let (old, new) = (text(&old), text(&new));
            let mut diff: Vec<(Atom, Atom)> =
                new.pairs().iter().filter(|p| !old.pairs().contains(p)).cloned().collect();
            diff.extend(old.pairs().iter().filter(|p| new.string_at(p.0.as_str().unwrap()).is_none()).cloned());
            prop_assert_eq!(old.with_difference(&Datum::map(diff), &map_type()), new);
        }

        #[test]
        fn json_round_trips(values: Vec<i64>, pairs: Vec<(String, String)>) {
            let set = Datum::set(values);
            prop_assert_eq!(Datum::from_json(&set.to_json(), &set_type(u64::MAX)).unwrap(), set);
            let map = Datum::map(pairs);
            prop_assert_eq!(Datum::from_json(&map.to_json(), &map_type()).unwrap(), map);
        }
    }
}

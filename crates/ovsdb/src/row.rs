// SPDX-License-Identifier: Apache-2.0
//! One row of the replica, with accessors that never fail.
//!
//! A column that the server's schema does not have, that was not asked for, or that has another
//! type than the accessor expects reads as the type's default. That is what lets one program run
//! against schemas 8.3 to 8.8.

use std::sync::Arc;

use indexmap::IndexMap;

use crate::atom::Atom;
use crate::datum::Datum;
use crate::uuid::Uuid;

/// The columns of one row. Every column that is monitored is there, also those with the default
/// value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    columns: IndexMap<Arc<str>, Datum>,
}

impl Row {
    /// A row with these columns.
    pub fn new(columns: impl IntoIterator<Item = (Arc<str>, Datum)>) -> Self {
        Row { columns: columns.into_iter().collect() }
    }

    /// The value of a column, if the row has it.
    pub fn datum(&self, column: &str) -> Option<&Datum> {
        self.columns.get(column)
    }

    /// All columns with their values, in the order of the schema.
    pub fn columns(&self) -> impl Iterator<Item = (&Arc<str>, &Datum)> {
        self.columns.iter()
    }

    pub(crate) fn put(&mut self, column: Arc<str>, datum: Datum) {
        self.columns.insert(column, datum);
    }

    fn first(&self, column: &str) -> Option<&Atom> {
        self.datum(column)?.first()
    }

    fn atoms(&self, column: &str) -> &[Atom] {
        self.datum(column).map_or(&[], Datum::atoms)
    }

    /// A string column; empty if absent.
    pub fn str(&self, column: &str) -> &str {
        self.opt_str(column).unwrap_or_default()
    }

    /// An optional string column.
    pub fn opt_str(&self, column: &str) -> Option<&str> {
        self.first(column)?.as_str()
    }

    /// An integer column; 0 if absent.
    pub fn int(&self, column: &str) -> i64 {
        self.opt_int(column).unwrap_or_default()
    }

    /// An optional integer column.
    pub fn opt_int(&self, column: &str) -> Option<i64> {
        self.first(column)?.as_int()
    }

    /// A boolean column; false if absent.
    pub fn bool(&self, column: &str) -> bool {
        self.opt_bool(column).unwrap_or_default()
    }

    /// An optional boolean column.
    pub fn opt_bool(&self, column: &str) -> Option<bool> {
        self.first(column)?.as_bool()
    }

    /// A real column; 0 if absent.
    pub fn real(&self, column: &str) -> f64 {
        self.opt_real(column).unwrap_or_default()
    }

    /// An optional real column.
    pub fn opt_real(&self, column: &str) -> Option<f64> {
        self.first(column)?.as_real()
    }

    /// An optional reference to a row (or a plain UUID column).
    pub fn opt_uuid(&self, column: &str) -> Option<Uuid> {
        self.first(column)?.as_uuid()
    }

    /// A set of references, ascending.
    pub fn uuids(&self, column: &str) -> impl Iterator<Item = Uuid> + '_ {
        self.atoms(column).iter().filter_map(Atom::as_uuid)
    }

    /// A set of strings, ascending.
    pub fn strs(&self, column: &str) -> impl Iterator<Item = &str> + '_ {
        self.atoms(column).iter().filter_map(Atom::as_str)
    }

    /// A set of integers, ascending.
    pub fn ints(&self, column: &str) -> impl Iterator<Item = i64> + '_ {
        self.atoms(column).iter().filter_map(Atom::as_int)
    }

    /// A map from strings to strings; empty if absent.
    pub fn map(&self, column: &str) -> StringMap<'_> {
        StringMap(self.datum(column))
    }

    /// A map from integers to references, such as `QoS.queues` or `Bridge.flow_tables`.
    pub fn int_uuids(&self, column: &str) -> impl Iterator<Item = (i64, Uuid)> + '_ {
        self.datum(column)
            .map_or(&[][..], Datum::pairs)
            .iter()
            .filter_map(|(k, v)| Some((k.as_int()?, v.as_uuid()?)))
    }

    /// A map from integers to integers, such as `AutoAttach.mappings`.
    pub fn int_ints(&self, column: &str) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.datum(column)
            .map_or(&[][..], Datum::pairs)
            .iter()
            .filter_map(|(k, v)| Some((k.as_int()?, v.as_int()?)))
    }

    /// A map from strings to references, such as `Open_vSwitch.datapaths`.
    pub fn str_uuids(&self, column: &str) -> impl Iterator<Item = (&str, Uuid)> + '_ {
        self.datum(column)
            .map_or(&[][..], Datum::pairs)
            .iter()
            .filter_map(|(k, v)| Some((k.as_str()?, v.as_uuid()?)))
    }

    /// A map from strings to integers, such as `CT_Timeout_Policy.timeouts`.
    pub fn str_ints(&self, column: &str) -> impl Iterator<Item = (&str, i64)> + '_ {
        self.datum(column)
            .map_or(&[][..], Datum::pairs)
            .iter()
            .filter_map(|(k, v)| Some((k.as_str()?, v.as_int()?)))
    }
}

/// A view of a string-to-string column, with the conversions that OVS's columns want: a value
/// that does not parse counts as absent.
#[derive(Clone, Copy, Debug)]
pub struct StringMap<'a>(Option<&'a Datum>);

impl<'a> StringMap<'a> {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.0?.string_at(key)
    }

    /// The value of a key, empty if absent.
    pub fn str(&self, key: &str) -> &'a str {
        self.get(key).unwrap_or_default()
    }

    /// A boolean: only the opposite of `default`, spelt out (`true` or `false`, in any case),
    /// changes it.
    pub fn bool(&self, key: &str, default: bool) -> bool {
        let opposite = if default { "false" } else { "true" };
        match self.get(key) {
            Some(value) if value.eq_ignore_ascii_case(opposite) => !default,
            _ => default,
        }
    }

    /// An integer in decimal, hexadecimal (`0x`) or octal (leading `0`) form.
    pub fn int(&self, key: &str) -> Option<i64> {
        integer(self.get(key)?)
    }

    /// Like [`StringMap::int`], for values that cannot be negative.
    pub fn uint(&self, key: &str) -> Option<u64> {
        let text = self.get(key)?;
        let (digits, radix) = split_radix(text);
        u64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'))
    }

    /// All pairs, ascending by key.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.0
            .map_or(&[][..], Datum::pairs)
            .iter()
            .filter_map(|(k, v)| Some((k.as_str()?, v.as_str()?)))
    }

    /// True if there is no pair of strings.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

fn split_radix(text: &str) -> (&str, u32) {
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        (hex, 16)
    } else if text.len() > 1 && text.starts_with('0') {
        (text.get(1..).unwrap_or_default(), 8)
    } else {
        (text, 10)
    }
}

fn integer(text: &str) -> Option<i64> {
    let (negative, magnitude) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (digits, radix) = split_radix(magnitude);
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let magnitude = i128::from(u64::from_str_radix(digits, radix).ok()?);
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row::new([
            (Arc::from("name"), Datum::from("br0")),
            (Arc::from("tag"), Datum::empty()),
            (Arc::from("trunks"), Datum::set([3, 1])),
            (Arc::from("queues"), Datum::map([(1, Uuid::from_u128(9))])),
            (
                Arc::from("other_config"),
                Datum::map([
                    ("a", "0x10"),
                    ("b", "TRUE"),
                    ("c", "junk"),
                    ("d", "-5"),
                    ("e", "010"),
                ]),
            ),
        ])
    }

    #[test]
    fn accessors_read_or_default() {
        let row = row();
        assert_eq!(row.str("name"), "br0");
        assert_eq!(row.opt_int("tag"), None);
        assert_eq!(row.ints("trunks").collect::<Vec<_>>(), [1, 3]);
        assert_eq!(row.int_uuids("queues").collect::<Vec<_>>(), [(1, Uuid::from_u128(9))]);
        // Absent column, and wrong type.
        assert_eq!(row.str("nope"), "");
        assert_eq!(row.int("name"), 0);
        assert!(row.map("name").is_empty());
        assert_eq!(row.uuids("other_config").count(), 0);
        assert_eq!(row.opt_real("name"), None);
        assert!(!row.bool("name"));
    }

    #[test]
    fn string_maps_convert() {
        let row = row();
        let map = row.map("other_config");
        assert_eq!(map.int("a"), Some(16));
        assert_eq!(map.uint("a"), Some(16));
        assert!(map.bool("b", false));
        assert!(map.bool("c", true));
        assert!(!map.bool("c", false));
        assert_eq!(map.int("c"), None);
        assert_eq!(map.int("d"), Some(-5));
        assert_eq!(map.uint("d"), None);
        assert_eq!(map.int("e"), Some(8));
        assert_eq!(map.iter().count(), 5);
    }
}

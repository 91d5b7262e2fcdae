// SPDX-License-Identifier: Apache-2.0
//! Why a piece of JSON is not what the protocol says it should be.

use std::fmt;

use serde_json::Value;
use vlog::abridged;

/// Bytes of a problem, and of each place: they may quote the message.
const MAX_QUOTE: usize = 256;

/// A JSON value that could not be read as the OVSDB notion it stands for.
///
/// Carries where in the message the trouble sits (outermost place first) and what was wrong, so
/// that the text can go to a log line as it is. Of each it keeps what may be shown: a message may
/// have names of any length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    places: Vec<String>,
    problem: String,
}

impl DecodeError {
    /// An error whose place is not yet known; callers add it with [`DecodeError::within`].
    pub fn new(problem: impl Into<String>) -> Self {
        DecodeError { places: Vec::new(), problem: quoted(problem) }
    }

    /// "expected X, got JSON".
    pub fn expected(what: &str, got: &Value) -> Self {
        DecodeError::new(format!("expected {what}, got {}", excerpt(got)))
    }

    /// Adds an enclosing place, such as `column "ports"`.
    #[must_use]
    pub fn within(mut self, place: impl Into<String>) -> Self {
        self.places.push(quoted(place));
        self
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in self.places.iter().rev() {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for DecodeError {}

fn quoted(text: impl Into<String>) -> String {
    let text = text.into();
    if text.len() <= MAX_QUOTE { text } else { abridged(&text, MAX_QUOTE).into_owned() }
}

/// About 80 bytes of `value` as JSON, for error texts. Looks at the value's own size first
/// so that a huge update is not printed only to be cut.
pub(crate) fn excerpt(value: &Value) -> String {
    match value {
        Value::Array(items) if items.len() > 8 => format!("an array of {} elements", items.len()),
        Value::Object(members) if members.len() > 8 => {
            format!("an object of {} members", members.len())
        }
        _ => abridged(&value.to_string(), 80).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_quotes_little_of_what_came() {
        let long = "\u{20ac}".repeat(20_000);
        let value = json!({ "a": long });
        let errors = [
            DecodeError::new(format!("no table is called \"{long}\"")),
            DecodeError::new("a row").within(format!("column \"{long}\"")),
            DecodeError::expected("a number", &value),
            long.parse::<crate::Uuid>().unwrap_err(),
        ];
        for error in errors.iter().map(ToString::to_string) {
            assert!(error.len() < 400 && error.contains(" bytes ...]"), "{error}");
        }
        assert_eq!(
            DecodeError::expected("a number", &json!("x")).within("row 1").to_string(),
            "row 1: expected a number, got \"x\""
        );
    }
}

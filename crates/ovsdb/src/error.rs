//! Why a piece of JSON is not what the protocol says it should be.

use std::fmt;

use serde_json::Value;

/// A JSON value that could not be read as the OVSDB notion it stands for.
///
/// Carries where in the message the trouble sits (outermost place first) and what was wrong, so
/// that the text can go to a log line as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    places: Vec<String>,
    problem: String,
}

impl DecodeError {
    /// An error whose place is not yet known; callers add it with [`DecodeError::within`].
    pub fn new(problem: impl Into<String>) -> Self {
        DecodeError { places: Vec::new(), problem: problem.into() }
    }

    /// "expected X, got JSON".
    pub fn expected(what: &str, got: &Value) -> Self {
        DecodeError::new(format!("expected {what}, got {}", excerpt(got)))
    }

    /// Adds an enclosing place, such as `column "ports"`.
    #[must_use]
    pub fn within(mut self, place: impl Into<String>) -> Self {
        self.places.push(place.into());
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

/// At most 80 characters of `value` as JSON, for error texts. Looks at the value's own size first
/// so that a huge update is not printed only to be cut.
pub(crate) fn excerpt(value: &Value) -> String {
    match value {
        Value::Array(items) if items.len() > 8 => format!("an array of {} elements", items.len()),
        Value::Object(members) if members.len() > 8 => {
            format!("an object of {} members", members.len())
        }
        _ => shorten(&value.to_string(), 80),
    }
}

/// The first `limit` characters of `text`, with an ellipsis when some were cut.
pub(crate) fn shorten(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

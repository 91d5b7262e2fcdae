// SPDX-License-Identifier: Apache-2.0
//! Errors of texts.

use flow::field::{SubfieldError, ValueError};

/// Why a text is no action or no flow, in ovs-ofctl's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TextError(pub String);

impl From<SubfieldError> for TextError {
    fn from(e: SubfieldError) -> TextError {
        TextError(e.to_string())
    }
}

impl From<ValueError> for TextError {
    fn from(e: ValueError) -> TextError {
        TextError(e.to_string())
    }
}

/// An error with this text.
pub(super) fn err<T>(text: impl Into<String>) -> Result<T, TextError> {
    Err(TextError(text.into()))
}

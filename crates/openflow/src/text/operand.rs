// SPDX-License-Identifier: Apache-2.0
//! Operands that several actions have in texts.

use super::error::{TextError, err};
use flow::Field;

/// A decimal or 0x number that fits `T`.
pub(super) fn number<T: TryFrom<u128>>(text: &str, name: &str) -> Result<T, TextError> {
    let v = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if !hex.starts_with('+') => u128::from_str_radix(hex, 16).ok(),
        None if !text.starts_with('+') => text.parse().ok(),
        _ => None,
    };
    v.and_then(|v| T::try_from(v).ok())
        .ok_or_else(|| TextError(format!("invalid {name} \"{text}\"")))
}

/// Refuses a field that actions cannot write. `text` names it in the error.
pub(super) fn read_only(field: Field, text: &str) -> Result<(), TextError> {
    if field.writable() { Ok(()) } else { err(format!("{text} is read-only")) }
}

/// `0x1f`, and `0` for zero.
pub(super) fn c_hex(v: u128) -> String {
    if v == 0 { "0".to_string() } else { format!("{v:#x}") }
}

// SPDX-License-Identifier: Apache-2.0
//! Row identifiers (RFC 4122 text form, as RFC 7047 section 5.1 uses it).

use std::fmt;
use std::str::FromStr;

use crate::error::DecodeError;

/// A 128-bit row identifier. Ordered as its text form is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Uuid(u128);

impl Uuid {
    /// The all-zero identifier, which names no row.
    pub const NIL: Uuid = Uuid(0);

    /// The identifier with these 128 bits, most significant first in the text form.
    pub const fn from_u128(bits: u128) -> Self {
        Uuid(bits)
    }

    /// The 128 bits, most significant first in the text form.
    pub const fn as_u128(self) -> u128 {
        self.0
    }

    /// True for the all-zero identifier.
    pub const fn is_nil(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            (v >> 96) as u32,
            (v >> 80) as u16,
            (v >> 64) as u16,
            (v >> 48) as u16,
            v & 0xffff_ffff_ffff
        )
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uuid {
    type Err = DecodeError;

    fn from_str(text: &str) -> Result<Self, DecodeError> {
        let bad = || {
            DecodeError::new(format!(
                "\"{}\" is not a UUID (8-4-4-4-12 hexadecimal digits)",
                vlog::abridged(text, 60)
            ))
        };
        if text.len() != 36 {
            return Err(bad());
        }
        let mut bits = 0u128;
        for (at, byte) in text.bytes().enumerate() {
            if matches!(at, 8 | 13 | 18 | 23) {
                if byte != b'-' {
                    return Err(bad());
                }
                continue;
            }
            let digit = (byte as char).to_digit(16).ok_or_else(bad)?;
            bits = bits << 4 | u128::from(digit);
        }
        Ok(Uuid(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        let text = "9519594c-85e5-46d5-afc9-8acfbba1532a";
        let uuid: Uuid = text.parse().unwrap();
        assert_eq!(uuid.to_string(), text);
        assert_eq!(Uuid::NIL.to_string(), "00000000-0000-0000-0000-000000000000");
        assert!("00000000-0000-0000-0000-000000000000".parse::<Uuid>().unwrap().is_nil());
    }

    #[test]
    fn wrong_shapes_are_refused() {
        for text in [
            "",
            "9519594c85e546d5afc98acfbba1532a",
            "9519594c-85e5-46d5-afc9-8acfbba1532",
            "9519594c-85e5-46d5-afc9-8acfbba1532g",
            "9519594c085e5-46d5-afc9-8acfbba1532a",
            "9519594c-85e5-46d5-afc9-8acfbba153é",
        ] {
            assert!(text.parse::<Uuid>().is_err(), "{text}");
        }
    }
}

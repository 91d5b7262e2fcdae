// SPDX-License-Identifier: Apache-2.0
//! Parts of fields: `NXM_NX_REG0[0..15]`.

use super::{Field, FieldValue, ones};
use crate::{Key, Mask};
use std::fmt;
use std::str::FromStr;

/// Part of a field: `FIELD[start..start+bits]`, bit 0 the least significant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subfield {
    /// The field.
    pub field: Field,
    /// First bit; 0 is the least significant.
    pub start: u16,
    /// Number of bits, at least 1 and none beyond the field but in actions that are not checked.
    pub bits: u16,
}

/// Why a text is no subfield.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubfieldError {
    /// The name is of no field.
    #[error("{text}: unknown field `{name}'")]
    UnknownField {
        /// All of the text.
        text: String,
        /// The name in it.
        name: String,
    },
    /// The brackets are wrong.
    #[error("{0}: syntax error expecting [] or [<bit>] or [<start>..<end>]")]
    Syntax(String),
    /// The end is before the start.
    #[error("{text}: starting bit {start} is after ending bit {end}")]
    Backwards {
        /// All of the text.
        text: String,
        /// First bit in the text.
        start: u32,
        /// Last bit in the text.
        end: u32,
    },
    /// The field has no such bit.
    #[error("{text}: {which} bit {bit} is not valid because field is only {width} bits wide")]
    OutOfRange {
        /// All of the text.
        text: String,
        /// `starting` or `ending`.
        which: &'static str,
        /// The bit in the text.
        bit: u32,
        /// Width of the field, in bits.
        width: u16,
    },
}

impl Subfield {
    /// All of `field`.
    pub fn whole(field: Field) -> Subfield {
        Subfield { field, start: 0, bits: field.width() }
    }

    /// `bits` bits of `field` from `start`; `None` when that is empty or beyond the field.
    pub fn new(field: Field, start: u16, bits: u16) -> Option<Subfield> {
        let inside = bits > 0 && u32::from(start) + u32::from(bits) <= u32::from(field.width());
        inside.then_some(Subfield { field, start, bits })
    }

    fn ones(self) -> FieldValue {
        ones(u8::try_from(self.bits).unwrap_or(u8::MAX))
    }

    /// The parts of at most 128 bits, from the least significant.
    pub fn parts(self) -> impl Iterator<Item = Subfield> {
        (0..self.bits).step_by(128).map(move |at| Subfield {
            field: self.field,
            start: self.start.saturating_add(at),
            bits: (self.bits - at).min(128), // `at` is below
        })
    }

    /// The value of these bits in `key`, right-aligned; the low 128 bits of more.
    pub fn load(self, key: &Key) -> FieldValue {
        if let Some(n) = self.field.option() {
            return key.tunnel.option(n).load(self.start.into(), self.bits.into());
        }
        self.field.load(key).checked_shr(self.start.into()).unwrap_or(0) & self.ones()
    }

    /// Stores the low bits of `value` in these bits of `key`, leaving the field's others. Of more
    /// than 128 bits the upper ones stay, too.
    pub fn store(self, key: &mut Key, value: FieldValue) {
        if self.field.option().is_some() {
            let mut wide = self.field.load_wide(key);
            wide.store(self.start.into(), self.bits.into(), value);
            return self.field.store_wide(key, &wide);
        }
        let mask = self.ones().checked_shl(self.start.into()).unwrap_or(0);
        let value = value.checked_shl(self.start.into()).unwrap_or(0);
        let old = self.field.load(key);
        self.field.store(key, old & !mask | value & mask);
    }

    /// Makes these bits exact in `mask`.
    pub fn set_exact(self, mask: &mut Mask) {
        self.parts().for_each(|part| part.store(&mut mask.0, FieldValue::MAX));
    }

    /// Reads a subfield off the front of `text` and returns it with the rest of the text: a
    /// name, then nothing, `[]`, `[BIT]` or `[START..END]`.
    ///
    /// # Errors
    /// A name that no field has, brackets that do not have that form, or bits that the field has
    /// not.
    pub fn parse_prefix(text: &str) -> Result<(Subfield, &str), SubfieldError> {
        let name_len = text
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-')
            .unwrap_or(text.len());
        let (name, rest) = text.split_at(name_len);
        let whole = text.to_string();
        let Some(field) = Field::from_name(name) else {
            return Err(SubfieldError::UnknownField { text: whole, name: name.to_string() });
        };
        let Some(inner) = rest.strip_prefix('[') else {
            return Ok((Subfield::whole(field), rest));
        };
        let Some((inner, rest)) = inner.split_once(']') else {
            return Err(SubfieldError::Syntax(whole));
        };
        let number = |t: &str| -> Option<u32> {
            if t.starts_with('+') { None } else { t.trim().parse().ok() }
        };
        let (start, end) = if inner.is_empty() {
            return Ok((Subfield::whole(field), rest));
        } else if let Some((a, b)) = inner.split_once("..") {
            (number(a), number(b))
        } else {
            (number(inner), number(inner))
        };
        let (Some(start), Some(end)) = (start, end) else {
            return Err(SubfieldError::Syntax(whole));
        };
        if start > end {
            return Err(SubfieldError::Backwards { text: whole, start, end });
        }
        let width = field.width();
        for (which, bit) in [("starting", start), ("ending", end)] {
            if bit >= u32::from(width) {
                return Err(SubfieldError::OutOfRange { text: whole, which, bit, width });
            }
        }
        // start <= end < width, which is a u16
        Ok((Subfield { field, start: start as u16, bits: (end - start + 1) as u16 }, rest))
    }
}

impl FromStr for Subfield {
    type Err = SubfieldError;

    fn from_str(text: &str) -> Result<Subfield, SubfieldError> {
        match Subfield::parse_prefix(text)? {
            (subfield, "") => Ok(subfield),
            _ => Err(SubfieldError::Syntax(text.to_string())),
        }
    }
}

/// As ovs-ofctl prints it: the NXM name where there is one, else the OXM name, else the
/// field's; then `[]`, `[BIT]` or `[START..END]`.
impl fmt::Display for Subfield {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.field.oxm(0).map_or(self.field.name(), |n| n.name);
        f.write_str(name)?;
        if self.start == 0 && self.bits == self.field.width() {
            f.write_str("[]")
        } else if self.bits == 1 {
            write!(f, "[{}]", self.start)
        } else {
            let end = u32::from(self.start) + u32::from(self.bits);
            write!(f, "[{}..{}]", self.start, end.saturating_sub(1))
        }
    }
}

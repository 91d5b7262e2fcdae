// SPDX-License-Identifier: Apache-2.0
//! Texts of fields that are sets of named flags, as ovs-ofctl writes and reads them.

use super::ValueError;
use super::value::integer;
use crate::ct_state;

/// The flags of one field.
#[derive(Clone, Copy)]
pub(crate) struct Flags {
    /// The field's name in errors.
    field: &'static str,
    /// Names of the flags from bit 0. Flags without a name are `[HEX]`.
    names: &'static [&'static str],
    /// All flags.
    all: u16,
}

impl Flags {
    /// TCP flags.
    pub(crate) const TCP: Flags = Flags {
        field: "TCP",
        names: &["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"],
        all: 0x0fff,
    };
    /// Flags of a tunnel.
    pub(crate) const TUNNEL: Flags = Flags {
        field: "tunnel",
        names: &["oam", "df", "csum", "key"],
        all: crate::Tunnel::ALL_FLAGS,
    };
    /// The flags of a tunnel that OpenFlow knows.
    pub(crate) const OPENFLOW_TUNNEL: Flags =
        Flags { all: crate::Tunnel::OPENFLOW_FLAGS, ..Flags::TUNNEL };
    /// The state of a connection.
    pub(crate) const CT_STATE: Flags =
        Flags { field: "ct_state", names: &ct_state::NAMES, all: 0xff };

    fn name(self, bit: usize) -> String {
        self.names.get(bit).map_or_else(|| format!("[{:x}]", 1u32 << bit), |n| (*n).to_string())
    }

    /// Names of the flags of `value`, joined by `|`; `0` for none.
    pub(crate) fn joined(self, value: u16) -> String {
        if value == 0 {
            return "0".to_string();
        }
        let names = (0..16).filter(|i| value & 1 << i != 0).map(|bit| self.name(bit));
        names.collect::<Vec<_>>().join("|")
    }

    /// Flags under a mask: `+syn-ack`; `syn|ack` where all flags count.
    pub(crate) fn text(self, value: u16, mask: u16) -> String {
        if mask & self.all == self.all {
            return self.joined(value & self.all);
        }
        self.signed(value, mask)
    }

    /// Flags under a mask with a sign each: `+syn-ack`.
    pub(crate) fn signed(self, value: u16, mask: u16) -> String {
        let mut out = String::new();
        for bit in (0..16).filter(|i| mask & 1 << i != 0) {
            out.push(if value & 1 << bit != 0 { '+' } else { '-' });
            out.push_str(&self.name(bit));
        }
        if out.is_empty() { "0/0".to_string() } else { out }
    }

    fn unknown(self, text: &str) -> ValueError {
        ValueError::Other(format!("{text}: unknown {} flag(s)", self.field))
    }

    /// The flag called `name`.
    fn bit(self, name: &str) -> Result<u16, ValueError> {
        let bracketed = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
        if let Some(hex) = bracketed
            && let Ok(value) = u16::from_str_radix(hex, 16)
            && value & self.all == value
        {
            return Ok(value);
        }
        let bit = self.names.iter().position(|flag| *flag == name).map(|b| 1 << b);
        bit.filter(|bit| bit & self.all != 0).ok_or_else(|| self.unknown(name))
    }

    /// Reads flags: number, number/mask, `syn|ack`, `+syn-ack`. Value and mask; as in OVS, an empty
    /// text says nothing of any flag.
    ///
    /// # Errors
    /// A flag that the field does not have, or one that is given twice with signs.
    pub(crate) fn parse(self, text: &str) -> Result<(u16, u16), ValueError> {
        if text.starts_with(['+', '-']) {
            let (mut value, mut mask) = (0, 0);
            let mut rest = text;
            while let Some(sign) = rest.chars().next() {
                let body = rest.get(1..).unwrap_or_default();
                let end = body.find(['+', '-']).unwrap_or(body.len());
                let (name, tail) = body.split_at(end);
                let bit = self.bit(name)?;
                if mask & bit != 0 {
                    return Err(ValueError::Other(format!(
                        "{name}: Each {} flag can be specified only once",
                        self.field
                    )));
                }
                mask |= bit;
                if sign == '+' {
                    value |= bit;
                }
                rest = tail;
            }
            return Ok((value, mask));
        }
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let number = |t: &str| {
                let value = integer(t).and_then(|v| u16::try_from(v).ok());
                value.filter(|v| v & self.all == *v).ok_or_else(|| self.unknown(text))
            };
            let (v, m) = text.split_once('/').map_or((text, None), |(v, m)| (v, Some(m)));
            let value = number(v)?;
            let mask = m.map_or(Ok(self.all), number)?;
            return Ok((value & mask, mask));
        }
        if text.is_empty() {
            return Ok((0, 0));
        }
        let mut value = 0;
        for name in text.split('|').filter(|name| !name.is_empty()) {
            value |= self.bit(name)?;
        }
        Ok((value, self.all))
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Texts of single values, as ovs-ofctl writes and reads them.

use super::flags::Flags;
use super::{Field, FieldValue, Format, ones, port_from_of10, port_to_of10};
use crate::tun_metadata::Wide;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Why a text is no value of a field. The texts are ovs-ofctl's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Not a number.
    #[error("{text}: bad syntax for {field} {part}")]
    Syntax {
        /// The text.
        text: String,
        /// Name of the field.
        field: &'static str,
        /// `value` or `mask`.
        part: &'static str,
    },
    /// More bytes than the field has.
    #[error("{text}: value too large for {bytes}-byte field {field}")]
    TooLarge {
        /// The text.
        text: String,
        /// Bytes of the field.
        bytes: u8,
        /// Name of the field.
        field: &'static str,
    },
    /// More bits than the field has.
    #[error("{text}: value too large for {bits}-bit field {field}")]
    TooWide {
        /// The text.
        text: String,
        /// Bits of the field.
        bits: u16,
        /// Name of the field.
        field: &'static str,
    },
    /// A mask on a field that must be matched exactly.
    #[error("{text}: invalid mask for field {field}")]
    Mask {
        /// The text.
        text: String,
        /// Name of the field.
        field: &'static str,
    },
    /// No such port.
    #[error("{text}: invalid or unknown port for {field}")]
    Port {
        /// The text.
        text: String,
        /// Name of the field.
        field: &'static str,
    },
    /// Something else, said in full.
    #[error("{0}")]
    Other(String),
}

/// Names of the reserved OpenFlow ports (OpenFlow 1.5.1, 7.2.1), as 32-bit numbers.
const RESERVED_PORTS: [(&str, u32); 10] = [
    ("UNSET", 0xffff_fff7),
    ("IN_PORT", 0xffff_fff8),
    ("TABLE", 0xffff_fff9),
    ("NORMAL", 0xffff_fffa),
    ("FLOOD", 0xffff_fffb),
    ("ALL", 0xffff_fffc),
    ("CONTROLLER", 0xffff_fffd),
    ("LOCAL", 0xffff_fffe),
    ("ANY", 0xffff_ffff),
    ("NONE", 0xffff_ffff),
];

/// The text of an OpenFlow port: reserved name, name by `ports`, or number.
pub(crate) fn port_text(port: u32, ports: &dyn Fn(u32) -> Option<String>) -> String {
    if let Some((name, _)) = RESERVED_PORTS.iter().find(|(_, n)| *n == port) {
        return (*name).to_string();
    }
    match ports(port) {
        // A name that would not be read back as one is quoted, as ovs-ofctl does.
        Some(name)
            if name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
                && name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_') =>
        {
            name
        }
        Some(name) => format!("{name:?}"),
        None => port_to_of10(port).map_or_else(|| port.to_string(), |p| p.to_string()),
    }
}

/// The port of a text: number (16-bit reserved ones too), reserved name, or name by `ports`.
pub(crate) fn port_number(text: &str, ports: &dyn Fn(&str) -> Option<u32>) -> Option<u32> {
    if let Some(n) = integer(text) {
        let n = u32::try_from(n).ok()?;
        return match u16::try_from(n) {
            Ok(n) => Some(port_from_of10(n)),
            Err(_) => port_to_of10(n).map(|_| n),
        };
    }
    let unquoted = text.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
    if let Some(name) = unquoted {
        return ports(name);
    }
    RESERVED_PORTS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text))
        .map(|(_, n)| *n)
        .or_else(|| ports(text))
}

/// An unsigned number in C syntax: decimal, 0x hexadecimal, or 0 octal.
pub(crate) fn integer(text: &str) -> Option<u128> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (text.get(1..)?, 8),
        None => (text, 10),
    };
    if digits.starts_with(['+', '-']) { None } else { u128::from_str_radix(digits, radix).ok() }
}

/// `xx:xx:xx:xx:xx:xx` with one or two digits each.
pub(crate) fn ethernet(text: &str) -> Option<[u8; 6]> {
    let mut out = [0; 6];
    let mut parts = text.split(':');
    for b in &mut out {
        let p = parts.next()?;
        if p.is_empty() || p.len() > 2 || !p.bytes().all(|c| c.is_ascii_hexdigit()) {
            return None;
        }
        *b = u8::from_str_radix(p, 16).ok()?;
    }
    parts.next().is_none().then_some(out)
}

/// An Ethernet address as OVS prints it.
pub(crate) fn ethernet_text(a: &[u8; 6]) -> String {
    let [a, b, c, d, e, f] = a;
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

pub(crate) fn ethernet_value(a: [u8; 6]) -> u128 {
    a.iter().fold(0, |v, b| v << 8 | u128::from(*b))
}

fn ethernet_of(value: u128) -> [u8; 6] {
    let [.., a, b, c, d, e, f] = value.to_be_bytes();
    [a, b, c, d, e, f]
}

/// `(NAMESPACE,TYPE)`; small numbers are decimal.
pub(crate) fn packet_type_text(value: u32) -> String {
    let number = |n: u32| if n < 10 { n.to_string() } else { format!("{n:#x}") };
    format!("({},{})", number(value >> 16), number(value & 0xffff))
}

/// `10.0.0.0/8`, `10.0.0.1`, `10.0.0.0/255.0.255.0`.
pub(crate) fn ipv4_text(value: u32, mask: u32) -> String {
    let ip = Ipv4Addr::from_bits(value);
    if mask == u32::MAX {
        ip.to_string()
    } else if mask.leading_ones() + mask.trailing_zeros() == 32 {
        format!("{ip}/{}", mask.leading_ones())
    } else {
        format!("{ip}/{}", Ipv4Addr::from_bits(mask))
    }
}

/// An IPv6 address as `inet_ntop(3)` writes it: RFC 5952, and addresses of which exactly the
/// first six groups are zero end as an IPv4 address (`::10.0.0.1`).
pub(crate) fn ipv6_address_text(value: u128) -> String {
    if value >> 32 == 0 && value >> 16 != 0 {
        return format!("::{}", Ipv4Addr::from_bits(value as u32));
    }
    Ipv6Addr::from_bits(value).to_string()
}

pub(crate) fn ipv6_text(value: u128, mask: u128) -> String {
    let ip = ipv6_address_text(value);
    if mask == u128::MAX {
        ip
    } else if mask.leading_ones() + mask.trailing_zeros() == 128 {
        format!("{ip}/{}", mask.leading_ones())
    } else {
        format!("{ip}/{}", ipv6_address_text(mask))
    }
}

/// The word for fragment bits under a mask of both or one of them.
pub(crate) fn frag_text(value: u8, mask: u8) -> &'static str {
    match (mask & 3, value & mask & 3) {
        (3, 0) => "no",
        (3, 1) => "first",
        (3, 3) => "later",
        (1, 0) => "no",
        (1, 1) => "yes",
        (2, 0) => "not_later",
        (2, 2) => "later",
        _ => "<error>",
    }
}

impl Field {
    /// The text of `value` under `mask` ([`Field::all_ones`] for an exact value): decimal
    /// numbers with hexadecimal masks, addresses with prefix lengths and so on. `ports` names
    /// ports; return `None` for numbers.
    pub fn format_value(
        self,
        value: FieldValue,
        mask: FieldValue,
        ports: &dyn Fn(u32) -> Option<String>,
    ) -> String {
        if self.option().is_some() {
            return self.format_wide(&Wide::from_u128(value), &Wide::from_u128(mask));
        }
        let exact = mask & self.all_ones() == self.all_ones();
        let mut out = match self.def().format {
            Format::Decimal => value.to_string(),
            Format::Hexadecimal => format!("{}", CHex(value)),
            Format::Ethernet => ethernet_text(&ethernet_of(value)),
            Format::Ipv4 => return ipv4_text(value as u32, mask as u32),
            Format::Ipv6 => return ipv6_text(value, mask),
            Format::Port10 if exact => return port_text(port_from_of10(value as u16), ports),
            // Numbers between the two ranges that there are name no port.
            Format::Port11 if exact && port_to_of10(value as u32).is_none() => return "ANY".into(),
            Format::Port11 if exact => return port_text(value as u32, ports),
            Format::Port10 | Format::Port11 => value.to_string(),
            Format::Frag => return frag_text(value as u8, mask as u8).to_string(),
            Format::TcpFlags => return Flags::TCP.text(value as u16, mask as u16),
            Format::CtState => return Flags::CT_STATE.text(value as u16, mask as u16),
            Format::TunFlags => return Flags::OPENFLOW_TUNNEL.text(value as u16, mask as u16),
            Format::PacketType => {
                return packet_type_text(value as u32);
            }
        };
        if !exact {
            let _ = match self.def().format {
                Format::Ethernet => write!(out, "/{}", ethernet_text(&ethernet_of(mask))),
                _ => write!(out, "/{}", CHex(mask)),
            }; // a String takes all writes
        }
        out
    }

    /// As [`Field::format_value`], in all the field's width; of a field of an option.
    pub fn format_wide(self, value: &Wide, mask: &Wide) -> String {
        let all = self.all_ones_wide();
        if mask.and(&all) == all {
            wide_text(value)
        } else {
            format!("{}/{}", wide_text(value), wide_text(mask))
        }
    }

    /// As [`Field::parse_value`], in all the field's width.
    ///
    /// # Errors
    /// As of [`Field::parse_value`].
    pub fn parse_wide(
        self,
        text: &str,
        ports: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<(Wide, Wide), ValueError> {
        if self.option().is_none() {
            let (value, mask) = self.parse_value(text, ports)?;
            return Ok((Wide::from_u128(value), Wide::from_u128(mask)));
        }
        if text == "*" {
            return Ok((Wide::ZERO, Wide::ZERO));
        }
        let field = self.name();
        let number = |t: &str, part| match wide_number(t) {
            Some(wide) if wide.len() <= self.value_bytes() => Ok(wide),
            Some(_) => Err(ValueError::TooLarge {
                text: text.to_string(),
                bytes: self.value_bytes() as u8, // at most 124
                field,
            }),
            None => Err(ValueError::Syntax { text: text.to_string(), field, part }),
        };
        match text.split_once('/') {
            Some((value, mask)) => {
                let mask = number(mask, "mask")?;
                Ok((number(value, "value")?.and(&mask), mask))
            }
            None => Ok((number(text, "value")?, self.all_ones_wide())),
        }
    }

    /// Reads a value and its mask (all ones when none is given, 0 for `*`). `ports` finds
    /// ports by name.
    ///
    /// # Errors
    /// The first error, in the words of ovs-ofctl: no value of the field's format, too wide for the
    /// field, or a mask that the field does not take.
    pub fn parse_value(
        self,
        text: &str,
        ports: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<(FieldValue, FieldValue), ValueError> {
        if text == "*" {
            return Ok((0, 0));
        }
        if self.option().is_some() {
            let (value, mask) = self.parse_wide(text, ports)?;
            let (low_value, low_mask) = (value.low(), mask.low());
            if value.len() > 16 || mask != self.all_ones_wide() && mask.len() > 16 {
                let (text, field) = (text.to_string(), self.name());
                return Err(ValueError::TooLarge { text, bytes: 16, field });
            }
            return Ok((low_value, low_mask));
        }
        let field = self.name();
        let (value_text, mask_text) =
            text.split_once('/').map_or((text, None), |(v, m)| (v, Some(m)));
        let other = |what: &str| ValueError::Other(format!("{text}: {what}"));
        let (value, mask) = match self.def().format {
            Format::Decimal | Format::Hexadecimal => {
                let number = |t: &str, part| {
                    let v = integer(t).ok_or_else(|| ValueError::Syntax {
                        text: text.to_string(),
                        field,
                        part,
                    })?;
                    let bytes = self.oxm_bytes();
                    if v & !ones(bytes.saturating_mul(8)) != 0 {
                        return Err(ValueError::TooLarge { text: text.to_string(), bytes, field });
                    }
                    Ok(v)
                };
                let value = number(value_text, "value")?;
                let mask = mask_text.map(|m| number(m, "mask")).transpose()?;
                let none = self == Field::DlVlan && value == u128::from(super::DL_VLAN_NONE);
                // The ECN bits of a ToS are cut off, as in OVS.
                let fits = ones(self.def().position.bits);
                let mask = mask.unwrap_or(ones(self.oxm_bytes().saturating_mul(8)));
                if value & mask & !fits != 0 && !none {
                    return Err(ValueError::TooWide {
                        text: text.to_string(),
                        bits: self.bits(),
                        field,
                    });
                }
                (value, mask)
            }
            Format::Ethernet => {
                let address = |t: &str| {
                    ethernet(t).map(ethernet_value).ok_or_else(|| other("invalid Ethernet address"))
                };
                let mask = mask_text.map(address).transpose()?;
                (address(value_text)?, mask.unwrap_or(self.all_ones()))
            }
            Format::Ipv4 => {
                let address = |t: &str| {
                    t.parse::<Ipv4Addr>()
                        .map(Ipv4Addr::to_bits)
                        .map_err(|_| other("invalid IP address"))
                };
                let value = address(value_text)?;
                let mask = match mask_text {
                    None => u32::MAX,
                    Some(m) if m.contains('.') => address(m)?,
                    Some(m) => {
                        let n: u32 = m.parse().map_err(|_| other("invalid IP address"))?;
                        if n > 32 {
                            return Err(other(
                                "IPv4 network prefix bits not between 0 and 32, inclusive",
                            ));
                        }
                        u32::MAX.checked_shl(32 - n).unwrap_or(0)
                    }
                };
                (value.into(), mask.into())
            }
            Format::Ipv6 => {
                let address = |t: &str| {
                    t.parse::<Ipv6Addr>()
                        .map(Ipv6Addr::to_bits)
                        .map_err(|_| other("invalid IPv6 address"))
                };
                let value = address(value_text)?;
                let mask = match mask_text {
                    None => u128::MAX,
                    Some(m) if m.contains(':') => address(m)?,
                    Some(m) => {
                        let n: u32 = m.parse().map_err(|_| other("invalid IPv6 address"))?;
                        if n > 128 {
                            return Err(other(
                                "IPv6 network prefix bits not between 0 and 128, inclusive",
                            ));
                        }
                        u128::MAX.checked_shl(128 - n).unwrap_or(0)
                    }
                };
                (value, mask)
            }
            Format::Port10 | Format::Port11 => {
                let bad = || ValueError::Port { text: text.to_string(), field };
                let port = port_number(text, ports).ok_or_else(bad)?;
                let value = match self.def().format {
                    Format::Port10 => port_to_of10(port).ok_or_else(bad)?.into(),
                    _ => u128::from(port),
                };
                (value, self.all_ones())
            }
            Format::Frag => match text {
                "no" => (0, 3),
                "yes" => (1, 1),
                "first" => (1, 3),
                "later" => (3, 3),
                "not_later" => (0, 2),
                _ => {
                    return Err(other(
                        "unknown fragment type (valid types are \"no\", \"yes\", \"first\", \"later\", \"not_later\")",
                    ));
                }
            },
            Format::TcpFlags | Format::CtState | Format::TunFlags => {
                let flags = match self {
                    Field::CtState => Flags::CT_STATE,
                    Field::TunFlags => Flags::OPENFLOW_TUNNEL,
                    _ => Flags::TCP,
                };
                let (v, m) = flags.parse(text)?;
                (v.into(), m.into())
            }
            Format::PacketType => {
                let inner = text.strip_prefix('(').and_then(|t| t.strip_suffix(')'));
                let number = |t: &str| integer(t.trim()).and_then(|v| u16::try_from(v).ok());
                let value = inner.and_then(|t| t.split_once(',')).and_then(|(ns, ty)| {
                    Some(u32::from(number(ns)?) << 16 | u32::from(number(ty)?))
                });
                let value = value.ok_or_else(|| other("packet type must be (NAMESPACE,TYPE)"))?;
                (value.into(), self.all_ones())
            }
        };
        let mask = mask & self.all_ones();
        if !self.maskable() && mask != self.all_ones() && mask != 0 {
            return Err(ValueError::Mask { text: text.to_string(), field });
        }
        if mask == self.all_ones() && self == Field::DlVlan {
            return Ok((value, mask)); // keeps OFP_VLAN_NONE apart from VLAN 4095
        }
        Ok((value & mask, mask))
    }
}

/// A number of up to 124 bytes: hexadecimal of any length, else as [`integer`].
fn wide_number(text: &str) -> Option<Wide> {
    let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) else {
        return integer(text).map(Wide::from_u128);
    };
    if digits.is_empty() || !digits.bytes().all(|d| d.is_ascii_hexdigit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0').as_bytes();
    let mut bytes = Vec::new();
    for pair in digits.rchunks(2) {
        bytes.push(u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?);
    }
    bytes.reverse();
    (bytes.len() <= crate::tun_metadata::MAX_BYTES).then(|| Wide::from_bytes(&bytes))
}

/// A wide number in hexadecimal without leading zeros.
pub(crate) fn wide_text(value: &Wide) -> String {
    hex_text(&value.0)
}

/// The big-endian number of some bytes in hexadecimal; `0` for zero.
pub(crate) fn hex_text(bytes: &[u8]) -> String {
    let mut digits = String::new();
    for byte in bytes {
        let _ = write!(digits, "{byte:02x}"); // a String takes all writes
    }
    match digits.trim_start_matches('0') {
        "" => "0".to_string(),
        digits => format!("0x{digits}"),
    }
}

/// C's `%#x`: `0x` and lower-case digits, but `0` for zero.
pub(crate) struct CHex<T>(pub T);

impl<T: std::fmt::LowerHex + PartialEq + Default> std::fmt::Display for CHex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == T::default() { f.write_str("0") } else { write!(f, "{:#x}", self.0) }
    }
}

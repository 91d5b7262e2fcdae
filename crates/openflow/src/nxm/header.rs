// SPDX-License-Identifier: Apache-2.0
//! One NXM or OXM TLV.

use crate::OfError;
use crate::wire::{Put, Reader};
use flow::field::OxmNumber;
use flow::tun_metadata::{MAX_BYTES, Wide};
use flow::{Field, FieldValue, Tunnel};

/// Class OFPXMC_EXPERIMENTER.
const CLASS_EXPERIMENTER: u16 = 0xffff;
/// NXM_NX_COOKIE without length and mask bit: class 1, number 30 of NXM_NX.
const COOKIE: (u16, u8) = (0x0001, 30);

/// The header of a TLV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawHeader {
    class: u16,
    number: u8,
    has_mask: bool,
    /// Bytes of value and mask, without the experimenter id.
    payload: usize,
    experimenter: Option<u32>,
}

impl RawHeader {
    pub(super) fn read(r: &mut Reader) -> Result<RawHeader, OfError> {
        let word = r.u32()?;
        let class = (word >> 16) as u16;
        let length = usize::from(word as u8);
        let (experimenter, payload) = if class == CLASS_EXPERIMENTER {
            let payload = length.checked_sub(4).ok_or(OfError::OFPBMC_BAD_LEN)?;
            (Some(r.u32()?), payload)
        } else {
            (None, length)
        };
        Ok(RawHeader {
            class,
            number: (word >> 9 & 0x7f) as u8,
            has_mask: word & 0x100 != 0,
            payload,
            experimenter,
        })
    }

    /// Bytes of the value alone.
    fn width(&self) -> usize {
        if self.has_mask { self.payload / 2 } else { self.payload }
    }

    fn is_cookie(&self) -> bool {
        (self.class, self.number) == COOKIE && self.width() == 8
    }

    /// The field, if it is known and the length is the field's.
    fn field(&self) -> Result<(Field, &'static OxmNumber), OfError> {
        let (field, number) = Field::from_oxm(self.class, self.number, self.experimenter)
            .ok_or(OfError::OFPBMC_BAD_FIELD)?;
        let is_width = match field.option() {
            // Leading zeros may be left out.
            Some(_) => self.width() <= MAX_BYTES,
            None => self.width() == usize::from(field.oxm_bytes()),
        };
        if !is_width || (self.has_mask && !self.payload.is_multiple_of(2)) {
            return Err(OfError::OFPBMC_BAD_LEN);
        }
        Ok((field, number))
    }
}

/// The content of a TLV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) field: Field,
    pub(crate) value: FieldValue,
    /// `None` without has-mask.
    pub(crate) mask: Option<FieldValue>,
}

/// The content of a TLV of a field `tun_metadataN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OptionEntry {
    pub(crate) field: Field,
    pub(crate) value: Wide,
    /// `None` without has-mask.
    pub(crate) mask: Option<Wide>,
}

/// A TLV as a match list may have it.
pub(super) enum Pulled {
    Entry(Entry),
    Option(Box<OptionEntry>),
    /// NXM_NX_COOKIE: value and mask.
    Cookie(u64, u64),
    /// A field that is not known, or not with this length; its bytes were skipped.
    Unknown,
}

/// Reads a TLV: BAD_LEN and BAD_WILDCARDS are found here.
pub(super) fn pull(r: &mut Reader, cookie: bool) -> Result<Pulled, OfError> {
    let header = RawHeader::read(r)?;
    let field = if cookie && header.is_cookie() { None } else { Some(header.field()) };
    let field = match field {
        Some(Err(_)) => {
            // A field of another length is another field.
            let payload = r.bytes(header.payload)?;
            if header.has_mask {
                let (value, mask) = payload.split_at(header.payload / 2);
                if value.iter().zip(mask).any(|(v, m)| v & !m != 0) {
                    return Err(OfError::OFPBMC_BAD_WILDCARDS);
                }
            }
            return Ok(Pulled::Unknown);
        }
        Some(Ok((field, _))) => Some(field),
        None => None,
    };
    if let Some(field) = field.filter(|field| field.option().is_some()) {
        let value = Wide::from_bytes(r.bytes(header.width())?);
        let mask = match header.has_mask {
            true => Some(Wide::from_bytes(r.bytes(header.width())?)),
            false => None,
        };
        if mask.is_some_and(|mask| !value.minus(&mask).is_empty()) {
            return Err(OfError::OFPBMC_BAD_WILDCARDS);
        }
        // The field is not mapped, or to a shorter option.
        let longest = mask.map_or(0, |mask| mask.len()).max(value.len());
        if longest > field.value_bytes() {
            return Err(OfError::NXFMFC_INVALID_TLV_FIELD);
        }
        return Ok(Pulled::Option(Box::new(OptionEntry { field, value, mask })));
    }
    let value = r.uint(header.width())?;
    let mask = if header.has_mask { Some(r.uint(header.width())?) } else { None };
    if mask.is_some_and(|m| value & !m != 0) {
        return Err(OfError::OFPBMC_BAD_WILDCARDS);
    }
    Ok(match field {
        Some(field) => Pulled::Entry(Entry { field, value, mask }),
        // 8 bytes wide, as is_cookie() checked
        None => Pulled::Cookie(value as u64, mask.map_or(u64::MAX, |m| m as u64)),
    })
}

/// A TLV of a known field.
pub(crate) enum Known {
    Entry(Entry),
    Option(Box<OptionEntry>),
}

/// Reads a TLV of a known field; OFPBMC_BAD_LEN also when the length in it is not the field's.
pub(crate) fn pull_entry(r: &mut Reader) -> Result<Known, OfError> {
    RawHeader::read(&mut r.clone())?.field()?;
    match pull(r, false)? {
        Pulled::Entry(entry) => Ok(Known::Entry(entry)),
        Pulled::Option(entry) => Ok(Known::Option(entry)),
        Pulled::Unknown | Pulled::Cookie(..) => Err(OfError::OFPBMC_BAD_FIELD),
    }
}

/// True when `value` is one that `field` can have: no bit above its width, and a port that
/// exists in OpenFlow 1.0 too where it is a port.
pub(crate) fn value_is_valid(field: Field, value: FieldValue) -> bool {
    let allowed = match field {
        Field::InPortOxm | Field::ActsetOutput => {
            return value < 0xff00 || (0xffff_ff00..=0xffff_ffff).contains(&value);
        }
        Field::VlanVid => 0x1fff,
        Field::IpDscp => 0xfc,
        Field::ArpOp => 0xff,
        Field::NshTtl => 0x3f,
        Field::NshMdtype => return (1..=2).contains(&value),
        Field::TunFlags => Tunnel::OPENFLOW_FLAGS.into(),
        _ => ones(field.bits()),
    };
    value & !allowed == 0
}

/// `bits` one bits at the low end.
pub(crate) fn ones(bits: u16) -> FieldValue {
    if bits >= 128 { FieldValue::MAX } else { (1 << bits) - 1 }
}

/// Appends a TLV with the number that `version` (OpenFlow wire version, 0 for NXM) has for
/// `field`. Writes nothing for a field without a number.
pub(crate) fn put_entry(
    field: Field,
    value: FieldValue,
    mask: Option<FieldValue>,
    version: u8,
    out: &mut Vec<u8>,
) {
    let width = usize::from(field.oxm_bytes());
    if !encode_header(field, mask.is_some(), version, out) {
        return;
    }
    out.put_uint(value, width);
    if let Some(mask) = mask {
        out.put_uint(mask, width);
    }
}

/// Appends a TLV of a field `tun_metadataN` with a value of `bytes` bytes.
pub(crate) fn put_option(
    field: Field,
    value: &Wide,
    mask: Option<&Wide>,
    bytes: usize,
    version: u8,
    out: &mut Vec<u8>,
) {
    let Some(number) = field.oxm(version) else {
        return;
    };
    out.put_u32(number.header(bytes as u8, mask.is_some())); // at most 124 bytes
    out.put_bytes(value.bytes(bytes));
    if let Some(mask) = mask {
        out.put_bytes(mask.bytes(bytes));
    }
}

pub(super) fn put_cookie(cookie: u64, mask: u64, out: &mut Vec<u8>) {
    let (class, number) = COOKIE;
    let head = u32::from(class) << 16 | u32::from(number) << 9;
    if mask == u64::MAX {
        out.put_u32(head | 8);
        out.put_u64(cookie);
    } else {
        out.put_u32(head | 0x100 | 16);
        out.put_u64(cookie);
        out.put_u64(mask);
    }
}

/// The header of a TLV, without value: as table features list fields, and actions name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldHeader {
    /// The field.
    pub field: Field,
    /// The has-mask bit.
    pub has_mask: bool,
}

/// Reads the header at the start of `bytes`: it, and how many bytes it takes (4 or 8).
///
/// # Errors
/// OFPBMC_BAD_LEN when there are too few bytes; OFPBMC_BAD_FIELD for a field that is not known,
/// or not with the length in it.
pub(crate) fn decode_header(bytes: &[u8]) -> Result<(FieldHeader, usize), OfError> {
    let mut r = Reader::new(bytes, OfError::OFPBMC_BAD_LEN);
    let header = RawHeader::read(&mut r)?;
    let (field, _) = header.field().map_err(|_| OfError::OFPBMC_BAD_FIELD)?;
    Ok((FieldHeader { field, has_mask: header.has_mask }, bytes.len() - r.len()))
}

pub(crate) fn pull_header(r: &mut Reader) -> Result<Field, OfError> {
    let (header, len) = decode_header(r.peek())?;
    r.skip(len)?;
    if header.has_mask { Err(OfError::OFPBMC_BAD_MASK) } else { Ok(header.field) }
}

/// Reads a list of headers to its end, as OFPTFPT_MATCH and its like have. Unknown fields are
/// left out when `loose`.
///
/// # Errors
/// OFPBMC_BAD_LEN when there are too few bytes; OFPBMC_BAD_FIELD for a field that is not known,
/// or not with the length in it, unless `loose`.
pub fn decode_header_list(bytes: &[u8], loose: bool) -> Result<Vec<FieldHeader>, OfError> {
    let mut r = Reader::new(bytes, OfError::OFPBMC_BAD_LEN);
    let mut out = Vec::new();
    while !r.is_empty() {
        let header = RawHeader::read(&mut r)?;
        match header.field() {
            Ok((field, _)) => out.push(FieldHeader { field, has_mask: header.has_mask }),
            Err(_) if loose => {}
            Err(_) => return Err(OfError::OFPBMC_BAD_FIELD),
        }
    }
    Ok(out)
}

/// Appends the header of a TLV in `version` (OpenFlow wire version, 0 for NXM). False, and
/// nothing written, for a field without a number.
pub(crate) fn encode_header(field: Field, has_mask: bool, version: u8, out: &mut Vec<u8>) -> bool {
    let Some(number) = field.oxm(version) else {
        return false;
    };
    out.put_u32(number.header(field.value_bytes() as u8, has_mask)); // at most 124 bytes
    if let Some(experimenter) = number.experimenter {
        out.put_u32(experimenter);
    }
    true
}

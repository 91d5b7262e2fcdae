// SPDX-License-Identifier: Apache-2.0
//! Properties: type, length, value, padded to 8 bytes (OpenFlow 1.4 section 7.2.2
//! and on; also used by Nicira's and NTR's extensions).

use crate::OfError;
use crate::wire::{Put, Reader, Result};

/// Type of experimenter properties.
pub(super) const EXPERIMENTER: u16 = 0xffff;

/// Type of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// OpenFlow's own number.
    Standard(u16),
    /// Experimenter and its type.
    Experimenter(u32, u32),
}

/// A property, with a reader of its value. The value starts after type and length (standard)
/// or after experimenter and experimenter's type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Property<'a> {
    pub(super) kind: Kind,
    pub(super) value: Reader<'a>,
}

/// Takes the next property, with its padding.
pub(super) fn next<'a>(r: &mut Reader<'a>) -> Result<Property<'a>> {
    let bad = |_| OfError::OFPBPC_BAD_LEN;
    let whole = r.peek();
    let ty = r.u16().map_err(bad)?;
    let len = usize::from(r.u16().map_err(bad)?);
    let mut value = Reader::message(whole.get(4..len).ok_or(OfError::OFPBPC_BAD_LEN)?);
    r.skip(len.next_multiple_of(8) - 4).map_err(bad)?;
    let kind = if ty == EXPERIMENTER {
        Kind::Experimenter(value.u32().map_err(bad)?, value.u32().map_err(bad)?)
    } else {
        Kind::Standard(ty)
    };
    Ok(Property { kind, value })
}

impl<'a> Property<'a> {
    /// The error for a property that is not known.
    pub(super) fn unknown(&self) -> OfError {
        match self.kind {
            Kind::Standard(_) => OfError::OFPBPC_BAD_TYPE,
            Kind::Experimenter(vendor, _) => match vendor {
                crate::error::NX_VENDOR
                | crate::error::ONF_VENDOR
                | NTR_VENDOR
                | NTR_OLD_VENDOR
                | INTEL_VENDOR => OfError::OFPBPC_BAD_EXP_TYPE,
                _ => OfError::OFPBPC_BAD_EXPERIMENTER,
            },
        }
    }

    /// The value, which must be `len` bytes.
    pub(super) fn exactly(&self, len: usize) -> Result<Reader<'a>> {
        if self.value.len() == len { Ok(self.value) } else { Err(OfError::OFPBPC_BAD_LEN) }
    }

    pub(super) fn u8(&self) -> Result<u8> {
        // The three bytes after the value are padding; OVS includes them in the length or leaves
        // them out.
        match self.value.len() {
            1..=4 => {
                let mut v = self.value;
                v.u8()
            }
            _ => Err(OfError::OFPBPC_BAD_LEN),
        }
    }

    pub(super) fn u16(&self) -> Result<u16> {
        match self.value.len() {
            2..=4 => {
                let mut v = self.value;
                v.u16()
            }
            _ => Err(OfError::OFPBPC_BAD_LEN),
        }
    }

    pub(super) fn u32(&self) -> Result<u32> {
        self.exactly(4)?.u32()
    }

    /// A 64-bit number after 4 bytes of padding.
    pub(super) fn u64(&self) -> Result<u64> {
        let mut v = self.exactly(12)?;
        v.skip(4)?;
        v.u64()
    }

    /// A 128-bit number, which 4 bytes of padding may precede.
    pub(super) fn u128(&self) -> Result<u128> {
        let mut v = self.value;
        match v.len() {
            16 => {}
            20 => v.skip(4)?,
            _ => return Err(OfError::OFPBPC_BAD_LEN),
        }
        Ok(u128::from_be_bytes(v.array()?))
    }

    /// The value after 4 bytes of padding.
    pub(super) fn aligned(&self) -> Result<Reader<'a>> {
        let mut v = self.value;
        v.skip(4).map_err(|_| OfError::OFPBPC_BAD_LEN)?;
        Ok(v)
    }
}

/// NTR's experimenter id (Netronome's selection method of groups).
pub(super) const NTR_VENDOR: u32 = 0x0000_154d;
/// The id that Open vSwitch 2.4 sent instead of it, which later versions read.
pub(super) const NTR_OLD_VENDOR: u32 = 0x0000_1540;
/// Intel's experimenter id (port statistics).
pub(super) const INTEL_VENDOR: u32 = 0x0000_aa01;

/// Writes the header of a property whose length [`end`] fills in; gives its place.
pub(super) fn start(out: &mut Vec<u8>, ty: u16) -> usize {
    let at = out.len();
    out.put_u16(ty);
    out.put_u16(0);
    at
}

/// As [`start`], for an experimenter's property.
pub(super) fn start_experimenter(out: &mut Vec<u8>, vendor: u32, ty: u32) -> usize {
    let at = start(out, EXPERIMENTER);
    out.put_u32(vendor);
    out.put_u32(ty);
    at
}

/// Fills in the length of the property at `at` and pads.
pub(super) fn end(out: &mut Vec<u8>, at: usize) {
    let len = out.len() - at;
    // Longer than 65,535 bytes: the message as a whole is too long then, which is found where
    // the message is finished.
    out.set_u16(at + 2, u16::try_from(len).unwrap_or(u16::MAX));
    out.pad8(at);
}

/// A property with bytes as value.
pub(super) fn put(out: &mut Vec<u8>, ty: u16, value: &[u8]) {
    let at = start(out, ty);
    out.put_bytes(value);
    end(out, at);
}

/// A property with a 64-bit number after 4 bytes of padding.
pub(super) fn put_u64(out: &mut Vec<u8>, ty: u16, value: u64) {
    let at = start(out, ty);
    out.put_zeros(4);
    out.put_u64(value);
    end(out, at);
}

/// A property with a small number in 4 bytes: `width` bytes of it, then zeros, which count.
pub(super) fn put_small(out: &mut Vec<u8>, ty: u16, value: &[u8]) {
    let at = start(out, ty);
    out.put_bytes(value);
    out.put_zeros(4 - value.len().min(4));
    end(out, at);
}

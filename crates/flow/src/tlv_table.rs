// SPDX-License-Identifier: Apache-2.0
//! A bridge's table of Geneve options: which option is which of the fields `tun_metadata0` to
//! `tun_metadata63`.

use crate::tun_metadata::{self, FIELDS, MAX_BYTES, Wide};
use crate::tunnel::OPTIONS_BYTES;
use crate::{Mask, Tunnel};

/// Bytes of the header of a Geneve option (RFC 8926 section 3.5).
const HEADER: usize = 4;
/// Bit of an option's type: a receiver that does not know the option must drop the packet.
const CRITICAL: u8 = 0x80;
/// Bits of the length in an option's header.
const LENGTH: u8 = 0x1f;

/// A Geneve option that a field stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TlvMapping {
    /// Class of the option.
    pub class: u16,
    /// Type of the option, with the critical bit.
    pub kind: u8,
    /// Bytes of the option's value: a multiple of 4, from 0 to 124.
    pub bytes: u8,
}

/// Why a mapping cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlvError {
    /// There is no room for the option.
    #[error("the options of all fields together have more than 256 bytes")]
    TableFull,
    /// The field is mapped already.
    #[error("tun_metadata{0} is mapped already")]
    AlreadyMapped(usize),
    /// Another field has the option.
    #[error("another field has the option of class {class:#x} and type {kind:#x}")]
    Duplicate {
        /// Class of the option.
        class: u16,
        /// Type of the option.
        kind: u8,
    },
    /// No such field, or no such length.
    #[error("no field, or no length of an option")]
    Invalid,
}

/// Why the options of a packet cannot be read: the packet is not valid, and is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// An option is cut off.
    #[error("an option is cut off")]
    CutOff,
    /// An option has another length than the table says.
    #[error("an option has another length than the table of the bridge says")]
    Length,
    /// A critical option that the table does not have.
    #[error("an unknown option is critical")]
    Critical,
}

/// The mappings of a bridge.
#[derive(Debug)]
pub struct TlvTable {
    entries: [Option<TlvMapping>; FIELDS],
}

impl Default for TlvTable {
    fn default() -> TlvTable {
        TlvTable { entries: [None; FIELDS] }
    }
}

/// A clone keeps the places of the fields.
impl Clone for TlvTable {
    fn clone(&self) -> TlvTable {
        let mut table = TlvTable::default();
        for (index, mapping) in self.iter() {
            // The field has this place already.
            let is_there = tun_metadata::reserve(index, mapping.bytes.into()).is_ok();
            if let Some(entry) = table.entries.get_mut(index) {
                *entry = is_there.then_some(mapping);
            }
        }
        table
    }
}

impl Drop for TlvTable {
    fn drop(&mut self) {
        self.clear();
    }
}

/// One option of a list of TLVs.
struct Tlv<'a> {
    class: u16,
    kind: u8,
    value: &'a [u8],
}

/// Splits a list of TLVs; the last item is an error when an option is cut off.
fn tlvs(mut bytes: &[u8]) -> impl Iterator<Item = Result<Tlv<'_>, OptionsError>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let whole = std::mem::take(&mut bytes);
        let Some((&[class0, class1, kind, length], rest)) = whole.split_first_chunk::<HEADER>()
        else {
            return Some(Err(OptionsError::CutOff));
        };
        let length = usize::from(length & LENGTH) * 4;
        let Some((value, rest)) = rest.split_at_checked(length) else {
            return Some(Err(OptionsError::CutOff));
        };
        bytes = rest;
        Some(Ok(Tlv { class: u16::from_be_bytes([class0, class1]), kind, value }))
    })
}

impl TlvTable {
    /// Maps field `index` to an option.
    ///
    /// # Errors
    /// The field or the option is mapped already, there is no room, or the numbers are not valid.
    pub fn add(&mut self, index: usize, mapping: TlvMapping) -> Result<(), TlvError> {
        let TlvMapping { class, kind, bytes } = mapping;
        if !bytes.is_multiple_of(4) || usize::from(bytes) > MAX_BYTES {
            return Err(TlvError::Invalid);
        }
        match self.entries.get(index) {
            None => return Err(TlvError::Invalid),
            Some(Some(_)) => return Err(TlvError::AlreadyMapped(index)),
            Some(None) => {}
        }
        if self.find(class, kind).is_some() {
            return Err(TlvError::Duplicate { class, kind });
        }
        let used: usize = self.iter().map(|(_, m)| usize::from(m.bytes)).sum();
        if used + usize::from(bytes) > OPTIONS_BYTES {
            return Err(TlvError::TableFull);
        }
        tun_metadata::reserve(index, bytes.into()).map_err(|_| TlvError::TableFull)?;
        if let Some(entry) = self.entries.get_mut(index) {
            *entry = Some(mapping);
        }
        Ok(())
    }

    /// Removes the mapping of field `index`, if there is one.
    pub fn remove(&mut self, index: usize) {
        if self.entries.get_mut(index).and_then(Option::take).is_some() {
            tun_metadata::release(index);
        }
    }

    /// Removes all mappings.
    pub fn clear(&mut self) {
        (0..FIELDS).for_each(|index| self.remove(index));
    }

    /// The mapping of field `index`.
    pub fn get(&self, index: usize) -> Option<TlvMapping> {
        self.entries.get(index).copied().flatten()
    }

    /// The mappings and their fields, by rising number of the field.
    pub fn iter(&self) -> impl Iterator<Item = (usize, TlvMapping)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| Some((index, (*entry)?)))
    }

    /// Bit N: field N is mapped.
    pub fn fields(&self) -> u64 {
        self.iter().fold(0, |bits, (index, _)| bits | 1 << index)
    }

    /// The field of an option.
    fn find(&self, class: u16, kind: u8) -> Option<(usize, TlvMapping)> {
        self.iter().find(|(_, m)| (m.class, m.kind) == (class, kind))
    }

    /// Returns the tunnel fields of a datapath's key in the form of a bridge's key.
    ///
    /// # Errors
    /// The options are not valid: such a packet is dropped.
    pub fn decode(&self, raw: &Tunnel) -> Result<Tunnel, OptionsError> {
        for tlv in tlvs(raw.raw_options()) {
            let Tlv { class, kind, value } = tlv?;
            match self.find(class, kind) {
                Some((_, mapping)) if usize::from(mapping.bytes) != value.len() => {
                    return Err(OptionsError::Length);
                }
                None if kind & CRITICAL != 0 => return Err(OptionsError::Critical),
                Some(_) | None => {}
            }
        }
        Ok(self.decode_known(raw))
    }

    /// Does the same as [`TlvTable::decode`] for a packet whose options another bridge has found to
    /// be valid: those that this table does not have, or has with another length, are left out.
    pub fn decode_known(&self, raw: &Tunnel) -> Tunnel {
        let mut out = *raw;
        (out.options, out.options_len) = (Tunnel::NONE.options, 0);
        for Tlv { class, kind, value } in tlvs(raw.raw_options()).map_while(Result::ok) {
            if let Some((index, mapping)) = self.find(class, kind)
                && usize::from(mapping.bytes) == value.len()
            {
                out.set_option(index, &Wide::from_bytes(value));
                out.set_present(index, true);
            }
        }
        out
    }

    /// Returns the TLVs of the options that a bridge's key has, and whether one is critical.
    pub fn encode(&self, decoded: &Tunnel) -> (Vec<u8>, bool) {
        let (mut out, mut critical) = (Vec::new(), false);
        for (index, mapping) in self.iter().filter(|(index, _)| decoded.has_option(*index)) {
            let bytes = usize::from(mapping.bytes);
            out.extend(mapping.class.to_be_bytes());
            out.extend([mapping.kind, mapping.bytes / 4]);
            out.extend(decoded.option(index).bytes(bytes));
            critical |= mapping.kind & CRITICAL != 0;
        }
        (out, critical)
    }

    /// Returns the mask of a datapath's key for the mask of a bridge's key. `raw` are the fields of
    /// the packet in the datapath's key: its options, their order and their lengths are exact, as
    /// all of them decide about the decoded fields. So is their absence: an option may be critical
    /// or cut off.
    pub fn encode_mask(&self, mask: &Tunnel, raw: &Tunnel) -> Tunnel {
        let mut out = *mask;
        out.options = Tunnel::NONE.options;
        out.present.set(0);
        out.options_len = Mask::EXACT.0.tunnel.options_len;
        let mut at = 0;
        for tlv in tlvs(raw.raw_options()).map_while(Result::ok) {
            let value = at + HEADER;
            if let Some(header) = out.options.get_mut(at..value) {
                // The upper three bits of the length's byte are reserved, and decide nothing.
                header.copy_from_slice(&[u8::MAX, u8::MAX, u8::MAX, LENGTH]);
            }
            at = value + tlv.value.len();
            if let Some((index, mapping)) = self.find(tlv.class, tlv.kind)
                && usize::from(mapping.bytes) == tlv.value.len()
                && let Some(place) = out.options.get_mut(value..at)
            {
                place.copy_from_slice(mask.option(index).bytes(tlv.value.len()));
            }
        }
        out
    }
}

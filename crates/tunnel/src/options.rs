// SPDX-License-Identifier: Apache-2.0
//! Options of a Geneve header (RFC 8926, 3.5).

use std::fmt;

/// Bytes of options that a Geneve header has at most: 63 words.
const MOST: usize = 252;
/// Bytes of class, type and length of one option.
const TLV_HEADER: usize = 4;

/// The options of a header: their bytes as they are, at most 252 and a multiple of 4.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Options {
    /// Zero after `len`.
    bytes: [u8; MOST],
    len: u8,
}

impl Options {
    /// No options.
    pub const EMPTY: Options = Options { bytes: [0; MOST], len: 0 };
    /// Bytes of options that a header has at most.
    pub const MOST: usize = MOST;

    /// Returns options of these bytes; `None` for more than [`Options::MOST`] bytes, or a length
    /// that is no multiple of 4. The options in them are not checked.
    pub fn new(bytes: &[u8]) -> Option<Options> {
        let mut options = Options::EMPTY;
        options.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        options.len = u8::try_from(bytes.len()).ok()?;
        bytes.len().is_multiple_of(4).then_some(options)
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Returns true when there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads the options one by one.
    pub fn tlvs(&self) -> Tlvs<'_> {
        Tlvs::new(self.as_bytes())
    }

    /// Returns true when a well-formed option is critical: a receiver that does not have it must
    /// drop the packet.
    pub fn has_critical(&self) -> bool {
        self.tlvs().map_while(Result::ok).any(|tlv| tlv.is_critical())
    }
}

impl Default for Options {
    fn default() -> Options {
        Options::EMPTY
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Options({:02x?})", self.as_bytes())
    }
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlv<'a> {
    /// Namespace of the type.
    pub class: u16,
    /// Type, with the critical bit.
    pub kind: u8,
    /// The reserved bits before the length, 3 bits.
    pub reserved: u8,
    /// Data, a multiple of 4 bytes, at most 124.
    pub data: &'a [u8],
}

impl Tlv<'_> {
    /// Returns true when a receiver that does not have the option must drop the packet.
    pub fn is_critical(&self) -> bool {
        self.kind & 0x80 != 0
    }

    /// Appends the option's bytes. Data is cut to 124 bytes and padded to a multiple of 4.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let data = self.data.get(..self.data.len().min(124)).unwrap_or_default();
        let words = data.len().div_ceil(4);
        out.extend_from_slice(&self.class.to_be_bytes());
        out.extend_from_slice(&[self.kind, self.reserved << 5 | words as u8]); // words <= 31
        let end = out.len() + words * 4;
        out.extend_from_slice(data);
        out.resize(end, 0);
    }
}

/// Options whose lengths are impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an option is longer than the options of its header")]
pub struct TlvError;

/// The options in some bytes, in their order. After an error there are no more.
#[derive(Clone, Debug)]
pub struct Tlvs<'a> {
    rest: &'a [u8],
}

impl<'a> Tlvs<'a> {
    /// Reads the options in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Tlvs<'a> {
        Tlvs { rest: bytes }
    }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<Tlv<'a>, TlvError>;

    fn next(&mut self) -> Option<Result<Tlv<'a>, TlvError>> {
        let bytes = std::mem::take(&mut self.rest);
        if bytes.is_empty() {
            return None;
        }
        let Some(([c0, c1, kind, length], rest)) = bytes.split_first_chunk::<TLV_HEADER>() else {
            return Some(Err(TlvError));
        };
        let Some((data, rest)) = rest.split_at_checked(usize::from(length & 0x1f) * 4) else {
            return Some(Err(TlvError));
        };
        self.rest = rest;
        let class = u16::from_be_bytes([*c0, *c1]);
        Some(Ok(Tlv { class, kind: *kind, reserved: length >> 5, data }))
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Reading and writing big-endian bytes, without panics.

use crate::{OfError, PortNo, Version};
use std::time::Duration;

/// Result of a decoder.
pub(crate) type Result<T> = std::result::Result<T, OfError>;

/// Takes integers and slices off the front of a byte slice; when there are too few bytes, it
/// gives the error it was made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    short: OfError,
}

impl<'a> Reader<'a> {
    /// Reads `bytes`; running out of them is the error `short`.
    pub(crate) fn new(bytes: &'a [u8], short: OfError) -> Reader<'a> {
        Reader { rest: bytes, short }
    }

    /// Reads a message or a part of one; running out is OFPBRC_BAD_LEN.
    pub(crate) fn message(bytes: &'a [u8]) -> Reader<'a> {
        Reader::new(bytes, OfError::OFPBRC_BAD_LEN)
    }

    /// Returns the remaining bytes without taking them.
    pub(crate) fn peek(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes all that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Bytes that were not read yet.
    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    /// True when everything was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `n` bytes.
    pub(crate) fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(n).ok_or(self.short)?;
        self.rest = tail;
        Ok(head)
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(self.short)?;
        self.rest = tail;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[b]| b)
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn mac(&mut self) -> Result<[u8; 6]> {
        self.array()
    }

    /// An unsigned integer of `n` bytes, at most 16.
    pub(crate) fn uint(&mut self, n: usize) -> Result<u128> {
        // The sizes of nearly all fields.
        match n {
            1 => return self.u8().map(u128::from),
            2 => return self.u16().map(u128::from),
            4 => return self.u32().map(u128::from),
            8 => return self.u64().map(u128::from),
            _ => {}
        }
        Ok(self.bytes(n)?.iter().fold(0, |v, b| v << 8 | u128::from(*b)))
    }

    /// The next `n` bytes as a reader of their own.
    pub(crate) fn sub(&mut self, n: usize) -> Result<Reader<'a>> {
        Ok(Reader { rest: self.bytes(n)?, short: self.short })
    }

    /// Takes a record of `len` bytes (the value of its own length field), of which `read` have been
    /// read; `min` is the least valid length.
    pub(crate) fn record(&mut self, len: u16, read: usize, min: usize) -> Result<Reader<'a>> {
        let len = usize::from(len);
        if len < min || len < read {
            return Err(self.short);
        }
        self.sub(len - read)
    }

    /// Requires that exactly `fixed` bytes are left, or (`unit` not 0) that many and a multiple
    /// of `unit`.
    pub(crate) fn expect(&self, fixed: usize, unit: usize) -> Result<()> {
        match self.len().checked_sub(fixed) {
            Some(0) => Ok(()),
            Some(more) if unit != 0 && more.is_multiple_of(unit) => Ok(()),
            _ => Err(self.short),
        }
    }

    /// A port of OpenFlow 1.0.
    pub(crate) fn port10(&mut self) -> Result<PortNo> {
        self.u16().map(PortNo::from_u16)
    }

    /// A port of OpenFlow 1.1 or later. Numbers that OVS cannot hold are refused as it does.
    pub(crate) fn port11(&mut self) -> Result<PortNo> {
        match self.u32()? {
            n if (PortNo::MAX.0..0xffff_ff00).contains(&n) => Err(OfError::OFPBAC_BAD_OUT_PORT),
            n => Ok(PortNo(n)),
        }
    }

    /// Text in a fixed space, ended by a zero byte or the space's end.
    pub(crate) fn text(&mut self, space: usize) -> Result<String> {
        let bytes = self.bytes(space)?;
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(bytes.get(..end).unwrap_or(bytes)).into_owned())
    }

    /// Seconds and nanoseconds.
    pub(crate) fn duration(&mut self) -> Result<Duration> {
        let (sec, nsec) = (self.u32()?, self.u32()?);
        Ok(Duration::from_secs(u64::from(sec)) + Duration::from_nanos(u64::from(nsec)))
    }

    /// As [`Reader::duration`]; all ones is "unknown".
    pub(crate) fn maybe_duration(&mut self) -> Result<Option<Duration>> {
        let mut ahead = *self;
        if ahead.u64()? == u64::MAX {
            *self = ahead;
            return Ok(None);
        }
        self.duration().map(Some)
    }

    /// Skips `n` bytes whatever they are.
    pub(crate) fn skip(&mut self, n: usize) -> Result<()> {
        self.bytes(n).map(|_| ())
    }

    /// Skips `n` bytes, which must be zero; else `error`.
    pub(crate) fn zeros(&mut self, n: usize, error: OfError) -> Result<()> {
        if self.bytes(n)?.iter().all(|b| *b == 0) { Ok(()) } else { Err(error) }
    }

    /// Skips everything left, which must be zero; else `error`.
    pub(crate) fn zero_rest(&mut self, error: OfError) -> Result<()> {
        self.zeros(self.len(), error)
    }
}

/// Appends big-endian integers.
pub(crate) trait Put {
    fn put_u8(&mut self, v: u8);
    fn put_u16(&mut self, v: u16);
    fn put_u32(&mut self, v: u32);
    fn put_u64(&mut self, v: u64);
    /// The low `n` bytes of `v`, at most 16.
    fn put_uint(&mut self, v: u128, n: usize);
    fn put_zeros(&mut self, n: usize);
    fn put_bytes(&mut self, v: &[u8]);
    /// Text, cut so that a zero byte follows it, in `space` bytes.
    fn put_text(&mut self, v: &str, space: usize);
    /// A port in 16 bits; a number without that form becomes OFPP_NONE.
    fn put_port10(&mut self, port: PortNo);
    /// A port where the form depends on the version: 16 bits in OpenFlow 1.0, 32 later.
    fn put_port(&mut self, port: PortNo, version: Version);
    /// Seconds and nanoseconds.
    fn put_duration(&mut self, d: Duration);
    /// As [`Put::put_duration`]; all ones is "unknown".
    fn put_maybe_duration(&mut self, d: Option<Duration>);
    /// Appends zeros until the length is `start` plus a multiple of 8.
    fn pad8(&mut self, start: usize);
    /// Overwrites the two bytes at `at`.
    fn set_u16(&mut self, at: usize, v: u16);
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, v: u8) {
        self.push(v);
    }
    fn put_u16(&mut self, v: u16) {
        self.extend_from_slice(&v.to_be_bytes());
    }
    fn put_u32(&mut self, v: u32) {
        self.extend_from_slice(&v.to_be_bytes());
    }
    fn put_u64(&mut self, v: u64) {
        self.extend_from_slice(&v.to_be_bytes());
    }
    fn put_uint(&mut self, v: u128, n: usize) {
        self.extend_from_slice(&v.to_be_bytes()[16 - n.min(16)..]);
    }
    fn put_zeros(&mut self, n: usize) {
        self.resize(self.len() + n, 0);
    }
    fn put_bytes(&mut self, v: &[u8]) {
        self.extend_from_slice(v);
    }
    fn put_text(&mut self, v: &str, space: usize) {
        let mut end = v.len().min(space.saturating_sub(1));
        while !v.is_char_boundary(end) {
            end -= 1;
        }
        self.put_bytes(v.as_bytes().get(..end).unwrap_or_default());
        self.put_zeros(space - end);
    }
    fn put_port10(&mut self, port: PortNo) {
        self.put_u16(port.to_u16().unwrap_or(0xffff));
    }
    fn put_port(&mut self, port: PortNo, version: Version) {
        if version == Version::V10 {
            self.put_port10(port);
        } else {
            self.put_u32(port.0);
        }
    }
    fn put_duration(&mut self, d: Duration) {
        self.put_u32(u32::try_from(d.as_secs()).unwrap_or(u32::MAX));
        self.put_u32(d.subsec_nanos());
    }
    fn put_maybe_duration(&mut self, d: Option<Duration>) {
        match d {
            Some(d) => self.put_duration(d),
            None => self.put_u64(u64::MAX),
        }
    }
    fn pad8(&mut self, start: usize) {
        let len = self.len() - start;
        self.put_zeros(len.next_multiple_of(8) - len);
    }
    fn set_u16(&mut self, at: usize, v: u16) {
        if let Some(place) = self.get_mut(at..at + 2) {
            place.copy_from_slice(&v.to_be_bytes());
        }
    }
}

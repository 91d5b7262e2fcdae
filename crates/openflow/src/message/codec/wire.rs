//! Reading and writing big-endian numbers.

use crate::{OfError, PortNo, Version};
use std::time::Duration;

/// What decoders give.
pub(super) type Result<T> = std::result::Result<T, OfError>;

/// A place in bytes that are being read. Every step checks; one that would read past the end
/// gives OFPBRC_BAD_LEN.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// Bytes left.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is left, without taking it.
    pub(super) fn peek(&self) -> &'a [u8] {
        self.0
    }

    /// All that is left.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(super) fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(OfError::OFPBRC_BAD_LEN)?;
        self.0 = tail;
        Ok(head)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, tail) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(OfError::OFPBRC_BAD_LEN)?;
        self.0 = tail;
        Ok(*head)
    }

    pub(super) fn skip(&mut self, n: usize) -> Result<()> {
        self.bytes(n).map(|_| ())
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// The next `n` bytes as a reader of their own.
    pub(super) fn sub(&mut self, n: usize) -> Result<Reader<'a>> {
        Ok(Reader(self.bytes(n)?))
    }

    /// A record of `len` bytes of which `read` have been read (its own length field told
    /// `len`); `min` is the least length that is valid.
    pub(super) fn record(&mut self, len: u16, read: usize, min: usize) -> Result<Reader<'a>> {
        let len = usize::from(len);
        if len < min || len < read {
            return Err(OfError::OFPBRC_BAD_LEN);
        }
        self.sub(len - read)
    }

    /// Requires that exactly `fixed` bytes are left, or (`unit` not 0) that many and a multiple
    /// of `unit`.
    pub(super) fn expect(&self, fixed: usize, unit: usize) -> Result<()> {
        let good = match self.len().checked_sub(fixed) {
            Some(0) => true,
            Some(more) => unit != 0 && more.is_multiple_of(unit),
            None => false,
        };
        if good {
            Ok(())
        } else {
            Err(OfError::OFPBRC_BAD_LEN)
        }
    }

    /// A port of OpenFlow 1.0.
    pub(super) fn port10(&mut self) -> Result<PortNo> {
        Ok(port_from_u16(self.u16()?))
    }

    /// A port of OpenFlow 1.1 or later. Numbers that OVS cannot hold are refused as it does.
    pub(super) fn port11(&mut self) -> Result<PortNo> {
        let n = self.u32()?;
        if !(PortNo::MAX.0..0xffff_ff00).contains(&n) {
            Ok(PortNo(n))
        } else {
            Err(OfError::OFPBAC_BAD_OUT_PORT)
        }
    }

    /// Text in a fixed space, ended by a zero byte or the space's end.
    pub(super) fn text(&mut self, space: usize) -> Result<String> {
        let bytes = self.bytes(space)?;
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(bytes.get(..end).unwrap_or(bytes)).into_owned())
    }

    /// Seconds and nanoseconds.
    pub(super) fn duration(&mut self) -> Result<Duration> {
        let (sec, nsec) = (self.u32()?, self.u32()?);
        Ok(Duration::from_secs(u64::from(sec)) + Duration::from_nanos(u64::from(nsec)))
    }

    /// As [`Reader::duration`]; all ones is "unknown".
    pub(super) fn maybe_duration(&mut self) -> Result<Option<Duration>> {
        let mut ahead = *self;
        if ahead.u64()? == u64::MAX {
            *self = ahead;
            return Ok(None);
        }
        self.duration().map(Some)
    }
}

/// The port of OpenFlow 1.0's 16 bits: all numbers from 0xff00 on are reserved ones.
pub(super) fn port_from_u16(n: u16) -> PortNo {
    PortNo(flow::field::port_from_of10(n))
}

/// Writing; all numbers big-endian.
pub(super) trait Put {
    fn u8(&mut self, v: u8);
    fn u16(&mut self, v: u16);
    fn u32(&mut self, v: u32);
    fn u64(&mut self, v: u64);
    fn raw(&mut self, v: &[u8]);
    fn zeros(&mut self, n: usize);
    /// Zeros until the length since `start` is a multiple of 8.
    fn pad8(&mut self, start: usize);
    /// Text, cut so that a zero byte follows it, in `space` bytes.
    fn text(&mut self, v: &str, space: usize);
    /// A port in 16 bits; a number without that form becomes OFPP_NONE.
    fn port10(&mut self, port: PortNo);
    fn duration(&mut self, d: Duration);
    fn maybe_duration(&mut self, d: Option<Duration>);
    /// Overwrites the 16-bit number at `at` (which was written before).
    fn set_u16(&mut self, at: usize, v: u16);
}

impl Put for Vec<u8> {
    fn u8(&mut self, v: u8) {
        self.push(v);
    }
    fn u16(&mut self, v: u16) {
        self.extend_from_slice(&v.to_be_bytes());
    }
    fn u32(&mut self, v: u32) {
        self.extend_from_slice(&v.to_be_bytes());
    }
    fn u64(&mut self, v: u64) {
        self.extend_from_slice(&v.to_be_bytes());
    }
    fn raw(&mut self, v: &[u8]) {
        self.extend_from_slice(v);
    }
    fn zeros(&mut self, n: usize) {
        self.resize(self.len() + n, 0);
    }
    fn pad8(&mut self, start: usize) {
        let len = self.len() - start;
        self.zeros(len.next_multiple_of(8) - len);
    }
    fn text(&mut self, v: &str, space: usize) {
        let mut end = v.len().min(space.saturating_sub(1));
        while !v.is_char_boundary(end) {
            end -= 1;
        }
        self.raw(v.as_bytes().get(..end).unwrap_or_default());
        self.zeros(space - end);
    }
    fn port10(&mut self, port: PortNo) {
        self.u16(flow::field::port_to_of10(port.0).unwrap_or(0xffff));
    }
    fn duration(&mut self, d: Duration) {
        self.u32(u32::try_from(d.as_secs()).unwrap_or(u32::MAX));
        self.u32(d.subsec_nanos());
    }
    fn maybe_duration(&mut self, d: Option<Duration>) {
        match d {
            Some(d) => self.duration(d),
            None => self.u64(u64::MAX),
        }
    }
    fn set_u16(&mut self, at: usize, v: u16) {
        if let Some(place) = self.get_mut(at..at + 2) {
            place.copy_from_slice(&v.to_be_bytes());
        }
    }
}

/// A port where the form depends on the version: 16 bits in OpenFlow 1.0, 32 later.
pub(super) fn put_port(out: &mut Vec<u8>, port: PortNo, version: Version) {
    if version == Version::V10 {
        out.port10(port)
    } else {
        out.u32(port.0)
    }
}

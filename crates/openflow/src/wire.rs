//! Reading and writing big-endian bytes, without panics.

use crate::OfError;

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

    /// What was not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
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
    pub(crate) fn bytes(&mut self, n: usize) -> Result<&'a [u8], OfError> {
        let (head, tail) = self.rest.split_at_checked(n).ok_or(self.short)?;
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], OfError> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(self.short)?;
        self.rest = tail;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, OfError> {
        self.array::<1>().map(|[b]| b)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, OfError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, OfError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, OfError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn mac(&mut self) -> Result<[u8; 6], OfError> {
        self.array()
    }

    /// An unsigned integer of `n` bytes, at most 16.
    pub(crate) fn uint(&mut self, n: usize) -> Result<u128, OfError> {
        Ok(self.bytes(n)?.iter().fold(0, |v, b| v << 8 | u128::from(*b)))
    }

    /// Skips `n` bytes whatever they are.
    pub(crate) fn skip(&mut self, n: usize) -> Result<(), OfError> {
        self.bytes(n).map(|_| ())
    }

    /// Skips `n` bytes, which must be zero; else `error`.
    pub(crate) fn zeros(&mut self, n: usize, error: OfError) -> Result<(), OfError> {
        if self.bytes(n)?.iter().all(|b| *b == 0) { Ok(()) } else { Err(error) }
    }

    /// Skips everything left, which must be zero; else `error`.
    pub(crate) fn zero_rest(&mut self, error: OfError) -> Result<(), OfError> {
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
    /// Zeros until the length is that of `start` plus a multiple of 8.
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

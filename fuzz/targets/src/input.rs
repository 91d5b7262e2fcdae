// SPDX-License-Identifier: Apache-2.0
//! Values from fuzzed bytes. Values past the end are zero, so that every input has a meaning and a
//! truncated one has nearly the same meaning.

use openflow::Version;

/// A reader of fuzzed bytes.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub fn short(&mut self) -> u16 {
        u16::from(self.byte()) << 8 | u16::from(self.byte())
    }

    pub fn word(&mut self) -> u32 {
        u32::from(self.short()) << 16 | u32::from(self.short())
    }

    pub fn long(&mut self) -> u64 {
        u64::from(self.word()) << 32 | u64::from(self.word())
    }

    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A number below `n`, which is 1 to 256.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n.max(1)
    }

    pub fn choose<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    pub fn version(&mut self) -> Version {
        self.choose(&Version::ALL)
    }

    /// At most `n` bytes, fewer at the end.
    pub fn take(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Returns the bytes after their length, which has two bytes.
    pub fn counted(&mut self) -> &'a [u8] {
        let n = usize::from(self.short());
        self.take(n)
    }

    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Puts the true length into an OpenFlow header: with a wrong one nothing behind is read.
pub fn with_true_length(message: &[u8]) -> Vec<u8> {
    let mut bytes = message.to_vec();
    bytes.resize(bytes.len().max(8), 0);
    bytes.truncate(usize::from(u16::MAX));
    let length = bytes.len() as u16; // cut to fit above
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

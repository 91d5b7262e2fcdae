// SPDX-License-Identifier: Apache-2.0
//! A shared array: the values of an array map, mapped into this process.
//!
//! Programs on other CPUs read and write the same memory, so every access is an atomic one of 64
//! bits. Nothing can tear below that size, and a structure is read and written word by word. To
//! publish a structure, a writer stores its last word with release order.

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An array of `T` shared with programs. Any thread may use it.
///
/// # Panics
///
/// An index beyond the array panics, as with a slice. Indexes come from this process's own tables
/// or were checked.
pub struct Shared<T> {
    base: NonNull<AtomicU64>,
    /// Words in the mapping.
    words: usize,
    /// Bytes as mapped, a whole number of pages.
    bytes: usize,
    /// False: the memory is private to this process.
    mapped: bool,
    len: usize,
    of: PhantomData<T>,
}

// SAFETY: the memory is reached by atomic operations only, and lives as long as the value.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T: FromBytes + IntoBytes + Immutable + KnownLayout> Shared<T> {
    /// 64-bit words of one element. Elements of array maps are a whole number of words apart.
    const STRIDE: usize = {
        assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() <= 8);
        size_of::<T>() / 8
    };

    /// Maps the first `len` elements of the array map `fd`. The caller has checked its sizes.
    ///
    /// # Errors
    ///
    /// Fails when the kernel does not map it.
    pub fn map(fd: BorrowedFd<'_>, len: usize) -> io::Result<Shared<T>> {
        let words = len * Self::STRIDE;
        let bytes = (words * 8).next_multiple_of(rustix::param::page_size());
        // SAFETY: a new shared mapping at an address that the kernel chooses; no other code in this
        // process has the address.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Shared { base, words, bytes, mapped: true, len, of: PhantomData })
    }

    /// Returns an array of `len` elements, all zero, in memory of this process alone.
    pub(crate) fn private(len: usize) -> Shared<T> {
        let words = len * Self::STRIDE;
        let memory = vec![0u64; words.max(1)].into_boxed_slice();
        let bytes = memory.len() * 8;
        // Box::into_raw never gives null; AtomicU64 has u64's layout.
        let base = NonNull::from(Box::leak(memory)).cast();
        Shared { base, words, bytes, mapped: false, len, of: PhantomData }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true when there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the words of all elements.
    pub fn all_words(&self) -> &[AtomicU64] {
        // SAFETY: `base` is the start of `words` words that live as long as `self`, aligned to
        // a page or by u64's allocation, and reached by atomic operations only.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }

    /// Returns the words of one element.
    pub(crate) fn words(&self, index: usize) -> &[AtomicU64] {
        &self.all_words()[index * Self::STRIDE..][..Self::STRIDE]
    }

    /// Returns the word at byte `offset`, a multiple of 8, of an element.
    pub fn word(&self, index: usize, offset: usize) -> &AtomicU64 {
        &self.words(index)[offset / 8]
    }

    /// Returns a copy of an element. A concurrent write by a program may be in it only in part.
    pub fn read(&self, index: usize) -> T {
        let mut value = T::new_zeroed();
        for (to, from) in value_words(&mut value).zip(self.words(index)) {
            to.copy_from_slice(&from.load(Ordering::Relaxed).to_ne_bytes());
        }
        value
    }

    /// Overwrites an element, word by word, the first one last and with release order.
    pub fn write(&self, index: usize, value: &T) {
        let words = self.words(index);
        let from = value.as_bytes().chunks_exact(8);
        for (to, bytes) in words.iter().zip(from).skip(1) {
            to.store(word_of(bytes), Ordering::Relaxed);
        }
        if let (Some(to), Some(bytes)) = (words.first(), value.as_bytes().first_chunk::<8>()) {
            to.store(u64::from_ne_bytes(*bytes), Ordering::Release);
        }
    }

    /// Sets an element to zero.
    pub fn zero(&self, index: usize) {
        self.words(index).iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Sets the 32-bit half at byte `offset` of an element, with release order. Threads may write
    /// the other half of its word meanwhile.
    pub fn store_half(&self, index: usize, offset: usize, value: u32) {
        self.update_half(index, offset, |_| value);
    }

    /// Sets the word at byte `offset` of an element, with release order.
    pub(crate) fn store(&self, index: usize, offset: usize, value: u64) {
        self.word(index, offset).store(value, Ordering::Release);
    }

    /// Replaces the 32-bit half at byte `offset` of an element by the result of `next`, and returns
    /// the result. Calls `next` again when another thread changed the word meanwhile. The order is
    /// that of [`Shared::store_half`].
    pub(crate) fn update_half(
        &self,
        index: usize,
        offset: usize,
        next: impl Fn(u32) -> u32,
    ) -> u32 {
        let word = self.word(index, offset & !7);
        let mut seen = word.load(Ordering::Relaxed);
        loop {
            let half = next(half_of(seen, offset));
            let mut bytes = seen.to_ne_bytes();
            bytes[offset & 4..][..4].copy_from_slice(&half.to_ne_bytes());
            let wanted = u64::from_ne_bytes(bytes);
            match word.compare_exchange_weak(seen, wanted, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return half,
                Err(now) => seen = now,
            }
        }
    }

    /// Returns the 32-bit half at byte `offset` of an element.
    pub fn load_half(&self, index: usize, offset: usize) -> u32 {
        half_of(self.word(index, offset & !7).load(Ordering::Relaxed), offset)
    }
}

/// Returns the half at byte `offset`, a multiple of 4, of an element with this `word` there.
fn half_of(word: u64, offset: usize) -> u32 {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    u32::from_ne_bytes(if offset & 4 == 0 { [a, b, c, d] } else { [e, f, g, h] })
}

fn value_words<T: IntoBytes + FromBytes + KnownLayout>(
    value: &mut T,
) -> impl Iterator<Item = &mut [u8]> {
    value.as_mut_bytes().chunks_exact_mut(8)
}

fn word_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk::<8>().map_or(0, |b| u64::from_ne_bytes(*b))
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: the mapping is `bytes` long and no other code has its address.
            let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
            return;
        }
        let memory = std::ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.bytes / 8);
        // SAFETY: `private` leaked a box of this many words; AtomicU64 has u64's layout.
        drop(unsafe { Box::from_raw(memory as *mut [u64]) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Iface, Port};

    #[test]
    fn elements_halves_and_words() {
        let ports: Shared<Port> = Shared::private(3);
        let port = Port { ifindex: 7, flags: 1, mtu: 1500, sent_up: 9, ..Port::default() };
        ports.write(1, &port);
        assert_eq!(ports.read(1), port);
        assert_eq!(ports.read(0), Port::default());
        assert_eq!(ports.read(2), Port::default());
        assert_eq!(ports.load_half(1, 0), 7);
        assert_eq!(ports.load_half(1, 8), 1500);
        ports.store_half(1, 4, 5);
        assert_eq!(ports.read(1), Port { flags: 5, ..port });
        assert_eq!(ports.word(1, 16).load(Ordering::Relaxed), 9);
        ports.zero(1);
        assert_eq!(ports.read(1), Port::default());
        let ifaces: Shared<Iface> = Shared::private(8192);
        assert_eq!(ifaces.len(), 8192);
        ifaces.write(8191, &Iface { ifindex: 3, port: 4 });
        assert_eq!(ifaces.read(8191), Iface { ifindex: 3, port: 4 });
    }

    #[test]
    fn threads_write_halves_of_one_word() {
        const TIMES: u32 = 100_000;
        let ifaces: Shared<Iface> = Shared::private(1);
        let ifaces = &ifaces;
        std::thread::scope(|scope| {
            for offset in [0, 4] {
                scope.spawn(move || {
                    for n in 1..=TIMES {
                        ifaces.store_half(0, offset, n);
                        assert_eq!(ifaces.load_half(0, offset), n, "at {offset}");
                    }
                });
            }
        });
        let count = || (0..TIMES).map(|_| ifaces.update_half(0, 0, |n| n + 1)).collect();
        let (mut all, other): (Vec<u32>, Vec<u32>) = std::thread::scope(|scope| {
            let other = scope.spawn(count);
            (count(), other.join().expect("no panic"))
        });
        all.extend(other);
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[1] == pair[0] + 1), "a number was given twice");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Rings shared with the kernel.
//!
//! A ring has one producer and one consumer, one of them the kernel. Positions are 32-bit
//! counters that wrap; the entry of a position is `position & (size - 1)`. The producer writes
//! entries, then stores its position with release order; the consumer loads it with acquire
//! order, reads entries, then stores its own position with release order.

use crate::mapping::Mapping;
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// `XDP_RING_NEED_WAKEUP` (include/uapi/linux/if_xdp.h).
const NEED_WAKEUP: u32 = 1;

/// The process's side of a ring with entries of type T, `u64` or `xdp_desc`. The caller uses it
/// either as producer or as consumer, never both.
pub(super) struct Ring<T> {
    memory: Mapping,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    size: u32,
    /// The next position of this side.
    ours: u32,
    /// The kernel's position at the last read.
    theirs: u32,
    entry: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// Maps a ring of `size` entries (a power of 2) at `page` of the socket.
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        place: &libc::xdp_ring_offset,
        page: i64,
        size: u32,
    ) -> io::Result<Ring<T>> {
        let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let entries = at(place.desc);
        let length = (size as usize)
            .checked_mul(size_of::<T>())
            .and_then(|n| n.checked_add(entries))
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        let (producer, consumer, flags) = (at(place.producer), at(place.consumer), at(place.flags));
        let fits = |offset: usize| offset.is_multiple_of(4) && offset.saturating_add(4) <= length;
        let aligned = entries.is_multiple_of(align_of::<T>());
        if !(size.is_power_of_two() && aligned && [producer, consumer, flags].into_iter().all(fits))
        {
            return Err(io::Error::from_raw_os_error(libc::EPROTO));
        }
        let memory = Mapping::of_descriptor(fd, length, page)?;
        Ok(Ring {
            memory,
            producer,
            consumer,
            flags,
            entries,
            size,
            ours: 0,
            theirs: 0,
            entry: PhantomData,
        })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: `map` checked that the 4 bytes at `offset` lie inside of the mapping (which
        // lives as long as self) and are aligned; both sides access them atomically only.
        unsafe { AtomicU32::from_ptr(self.memory.start().as_ptr().add(offset).cast()) }
    }

    fn slot(&self, position: u32) -> *mut T {
        let i = (position & (self.size - 1)) as usize;
        // SAFETY: i < size, and `map` made the mapping long enough for `size` entries.
        unsafe { self.memory.start().as_ptr().add(self.entries).cast::<T>().add(i) }
    }

    /// As producer: adds an entry, which the kernel sees after [`Ring::publish`]. Returns false
    /// when the ring is full.
    pub(super) fn push(&mut self, entry: T) -> bool {
        if self.ours.wrapping_sub(self.theirs) >= self.size {
            self.theirs = self.word(self.consumer).load(Ordering::Acquire);
            if self.ours.wrapping_sub(self.theirs) >= self.size {
                return false;
            }
        }
        // SAFETY: `slot` is inside of the mapping, aligned; the kernel does not read this entry
        // until its position is published.
        unsafe { self.slot(self.ours).write(entry) };
        self.ours = self.ours.wrapping_add(1);
        true
    }

    /// As producer: publishes the pushed entries to the kernel.
    pub(super) fn publish(&self) {
        self.word(self.producer).store(self.ours, Ordering::Release);
    }

    /// As producer: returns the number of entries that the kernel has not taken yet.
    pub(super) fn pending(&self) -> u32 {
        self.ours.wrapping_sub(self.word(self.consumer).load(Ordering::Acquire))
    }

    /// As consumer: takes the next entry. The kernel may reuse it after [`Ring::release`].
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.ours == self.theirs {
            self.theirs = self.word(self.producer).load(Ordering::Acquire);
            if self.ours == self.theirs {
                return None;
            }
        }
        // SAFETY: `slot` is inside of the mapping, aligned; the kernel published this entry and
        // does not write to it until it is released. Every bit pattern is a valid T.
        let entry = unsafe { self.slot(self.ours).read() };
        self.ours = self.ours.wrapping_add(1);
        Some(entry)
    }

    /// As consumer: releases the entries taken so far.
    pub(super) fn release(&self) {
        self.word(self.consumer).store(self.ours, Ordering::Release);
    }

    /// Returns true when the kernel needs a system call to continue with this ring.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }
}

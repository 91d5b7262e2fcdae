// SPDX-License-Identifier: Apache-2.0
//! Mapped memory.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

/// Mapped memory, readable and writable; unmapped when dropped.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: plain memory that belongs to no thread; the users of the mapping order their accesses.
unsafe impl Send for Mapping {}
// SAFETY: as above; the type itself gives out only the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` zero bytes.
    pub(crate) fn anonymous(length: usize) -> io::Result<Mapping> {
        Mapping::map(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// Maps `length` bytes of a socket's or BPF map's memory, at `offset` of the descriptor.
    pub(crate) fn of_descriptor(
        fd: BorrowedFd<'_>,
        length: usize,
        offset: i64,
    ) -> io::Result<Mapping> {
        Mapping::map(length, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    fn map(length: usize, flags: i32, fd: i32, offset: i64) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                fd,
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast())
            .ok_or_else(|| io::Error::other("the kernel mapped memory at address 0"))?;
        Ok(Mapping { start, length })
    }

    /// Returns the address of the first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped above with this length, and no reference to it remains: all users hold the
        // Mapping.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

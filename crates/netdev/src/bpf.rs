// SPDX-License-Identifier: Apache-2.0
//! The bpf(2) commands that small programs need (include/uapi/linux/bpf.h), and the encoding of
//! their instructions.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub(crate) const BPF_MAP_CREATE: libc::c_long = 0;
pub(crate) const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
pub(crate) const BPF_MAP_DELETE_ELEM: libc::c_long = 3;
pub(crate) const BPF_PROG_LOAD: libc::c_long = 5;
pub(crate) const BPF_LINK_CREATE: libc::c_long = 28;
pub(crate) const BPF_LINK_DETACH: libc::c_long = 34;

/// `union bpf_attr`: zeros, with members put at their offsets.
pub(crate) struct Attributes([u8; 128]);

impl Attributes {
    pub(crate) fn new() -> Attributes {
        Attributes([0; 128])
    }

    /// Sets a 32-bit member; `at` is a constant within the 128 bytes.
    pub(crate) fn u32(mut self, at: usize, value: u32) -> Attributes {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    pub(crate) fn fd(self, at: usize, fd: BorrowedFd<'_>) -> Attributes {
        self.u32(at, fd.as_raw_fd() as u32) // descriptors are not negative
    }

    /// Sets the address of `value`, which must live through the call.
    pub(crate) fn address<T: ?Sized>(mut self, at: usize, value: *const T) -> Attributes {
        let address = value.cast::<u8>().expose_provenance() as u64;
        self.0[at..at + 8].copy_from_slice(&address.to_ne_bytes());
        self
    }

    /// # Safety
    ///
    /// Each address set must point to memory that lives through the call and is as long as the
    /// command reads or writes.
    pub(crate) unsafe fn call(&self, command: libc::c_long) -> io::Result<libc::c_long> {
        // SAFETY: the kernel reads the stated 128 bytes; the caller guarantees the addresses.
        let r = unsafe {
            libc::syscall(libc::SYS_bpf, command, self.0.as_ptr(), self.0.len() as libc::c_uint)
        };
        if r < 0 { Err(io::Error::last_os_error()) } else { Ok(r) }
    }

    /// # Safety
    ///
    /// As for [`Attributes::call`]; the command must return a new descriptor.
    pub(crate) unsafe fn call_for_fd(&self, command: libc::c_long) -> io::Result<OwnedFd> {
        // SAFETY: the caller guarantees the addresses; a returned descriptor is new, owned by this
        // process, and fits an int.
        unsafe { Ok(OwnedFd::from_raw_fd(self.call(command)? as i32)) }
    }
}

/// Encodes one BPF instruction: code, registers, offset, immediate.
pub(crate) fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> u64 {
    let [o0, o1] = offset.to_ne_bytes();
    let [i0, i1, i2, i3] = immediate.to_ne_bytes();
    // The register nibbles are swapped on big-endian machines.
    let registers = if cfg!(target_endian = "big") { to << 4 | from } else { from << 4 | to };
    u64::from_ne_bytes([code, registers, o0, o1, i0, i1, i2, i3])
}

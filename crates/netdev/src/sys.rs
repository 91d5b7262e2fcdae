// SPDX-License-Identifier: Apache-2.0
//! Checked wrappers of the system calls that this crate makes.

use std::ffi::c_int;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Returns the error of the last system call if `result` is negative.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Does the same as [`check`] for calls that return a length.
pub(crate) fn check_len(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Creates a close-on-exec socket.
pub(crate) fn socket(family: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed; a non-negative result is a descriptor without another owner.
    unsafe {
        let fd = check(libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Receives one datagram, with flags of `recv`. Returns its length, or that of `buffer` if it is longer.
pub(crate) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8], flags: c_int) -> io::Result<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes into `buffer`, which lives through the
    // call.
    check_len(unsafe {
        libc::recv(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), flags)
    })
}

/// Plain C structures and integers for which every byte pattern is valid and without padding
/// that matters.
///
/// # Safety
///
/// The type must be `repr(C)` or an integer, hold no references or pointers that are followed,
/// and be valid for every byte pattern.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for c_int {}
// SAFETY: an array of integers.
unsafe impl Plain for [c_int; 8] {}
// SAFETY: C structures of integers and arrays of integers.
unsafe impl Plain for libc::packet_mreq {}
// SAFETY: as above.
unsafe impl Plain for libc::sockaddr_ll {}
// SAFETY: as above.
unsafe impl Plain for libc::sockaddr_nl {}
// SAFETY: as above.
unsafe impl Plain for libc::sockaddr_in6 {}
// SAFETY: as above.
unsafe impl Plain for libc::sockaddr_xdp {}
// SAFETY: as above.
unsafe impl Plain for libc::xdp_umem_reg {}
// SAFETY: as above.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: as above.
unsafe impl Plain for libc::xdp_statistics {}
// SAFETY: as above.
unsafe impl Plain for libc::xdp_options {}
// SAFETY: as above.
unsafe impl Plain for libc::tpacket_stats {}
// SAFETY: as above.
unsafe impl Plain for libc::tpacket_req {}

/// `setsockopt`.
pub(crate) fn set_option<T: Plain>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the kernel reads size_of::<T>() bytes from `value`, which lives through the call.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const *value).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// The filter that accepts no byte of a packet: `BPF_RET | BPF_K`
/// (include/uapi/linux/bpf_common.h).
pub(crate) const ACCEPT_NOTHING: libc::sock_filter =
    libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 };

/// Attaches a classic BPF program to a socket (`SO_ATTACH_FILTER`), which returns the number of
/// bytes of each packet that the socket gets (Documentation/networking/filter.rst).
pub(crate) fn attach_filter(
    fd: BorrowedFd<'_>,
    filter: &mut [libc::sock_filter],
) -> io::Result<()> {
    let too_long = |_| io::Error::from_raw_os_error(libc::EINVAL);
    let program = libc::sock_fprog {
        len: filter.len().try_into().map_err(too_long)?,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the kernel reads the structure, and `len` instructions at `filter`, which live
    // through the call.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            mem::size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// `getsockopt` for an option of fixed size. After a shorter answer, of an older kernel, the rest
/// is zero.
pub(crate) fn option<T: Plain>(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<T> {
    // SAFETY: T is Plain, so zeros are a valid value.
    let mut value: T = unsafe { mem::zeroed() };
    let mut len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`; any bytes are a valid T.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len)
    })?;
    Ok(value)
}

/// `bind` to a socket address structure of a family that T belongs to.
pub(crate) fn bind<T: Plain>(fd: BorrowedFd<'_>, address: &T) -> io::Result<()> {
    // SAFETY: the kernel reads size_of::<T>() bytes from `address`.
    check(unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const *address).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// `getsockname`: returns the address that a socket is bound to, as a structure of a family that T
/// belongs to. Bytes that the kernel does not write are zero.
pub(crate) fn bound_to<T: Plain>(fd: BorrowedFd<'_>) -> io::Result<T> {
    // SAFETY: T is Plain, so zeros are a valid value.
    let mut address: T = unsafe { mem::zeroed() };
    let mut len = mem::size_of::<T>() as libc::socklen_t;
    let to = (&raw mut address).cast();
    // SAFETY: the kernel writes at most `len` bytes to `address`; any bytes are a valid T.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), to, &raw mut len) })?;
    Ok(address)
}

/// Returns major and minor number of the running kernel's version.
///
/// # Errors
///
/// Fails when the version cannot be read.
pub fn kernel_version() -> io::Result<(u32, u32)> {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => Err(io::Error::other(format!("no kernel version: {text}"))),
    }
}

/// Requests `bytes` of socket buffer, above the system's limit if the process has the privilege.
pub(crate) fn grow_buffer(fd: BorrowedFd<'_>, forced: c_int, plain: c_int, bytes: c_int) {
    // A smaller buffer only loses more packets under load, so a failure is not an error.
    if set_option(fd, libc::SOL_SOCKET, forced, &bytes).is_err() {
        let _ = set_option(fd, libc::SOL_SOCKET, plain, &bytes);
    }
}

/// `struct ifreq` for requests with an interface name followed by 16 bits of flags or a pointer.
#[repr(C)]
pub(crate) struct IfRequest {
    name: [u8; libc::IFNAMSIZ],
    /// The union; 24 bytes on every Linux with 64-bit pointers, where it is largest.
    pub value: [u64; 3],
}

impl IfRequest {
    /// Creates a request for `name`, with an all-zero value.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a name that is too long.
    pub(crate) fn new(name: &str) -> io::Result<IfRequest> {
        let mut r = IfRequest { name: [0; libc::IFNAMSIZ], value: [0; 3] };
        if name.len() >= r.name.len() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        for (to, from) in r.name.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        Ok(r)
    }

    /// Returns the name, up to its NUL.
    pub(crate) fn name(&self) -> String {
        let end = self.name.iter().position(|b| *b == 0).unwrap_or(self.name.len());
        String::from_utf8_lossy(self.name.get(..end).unwrap_or_default()).into_owned()
    }

    /// Sets the flags member (`ifr_flags`).
    pub(crate) fn set_flags(&mut self, flags: u16) {
        let [a, b] = flags.to_ne_bytes();
        self.value[0] = u64::from_ne_bytes([a, b, 0, 0, 0, 0, 0, 0]);
    }
}

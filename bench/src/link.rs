// SPDX-License-Identifier: Apache-2.0
//! A link of a program to the tcx hook, which `libbpf-rs` has no call for.

use anyhow::{Context, Result};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Attaches `program` to the ingress of a device; detached when the descriptor is closed.
///
/// # Errors
/// When the kernel refuses; tcx came with Linux 6.6.
pub fn tcx_ingress(program: BorrowedFd<'_>, ifindex: u32) -> Result<OwnedFd> {
    let ifindex = i32::try_from(ifindex).context("an interface index")?;
    // SAFETY: a descriptor that the borrow keeps open, integers, and no options.
    let result = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            ifindex,
            libbpf_sys::BPF_TCX_INGRESS,
            std::ptr::null(),
        )
    };
    if result < 0 {
        let error = io::Error::from_raw_os_error(-result);
        return Err(error).context("attaching to tcx ingress (needs Linux 6.6)");
    }
    // SAFETY: the call just made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

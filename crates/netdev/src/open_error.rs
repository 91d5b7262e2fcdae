// SPDX-License-Identifier: Apache-2.0
//! Errors of opening a device.

use crate::link::is_not_there;
use std::io;

/// Why a device could not be opened. The text fits the Interface's `error` column.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such interface in this network namespace.
    #[error("{name}: could not open network device {name} (No such device)")]
    NoDevice {
        /// The name asked for.
        name: String,
    },
    /// The name can be no interface's name.
    #[error("\"{name}\" is not a valid interface name: {reason}")]
    BadName {
        /// The name asked for.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An option's value makes no sense.
    #[error("{name}: options:{option}: {reason}")]
    BadOption {
        /// The device.
        name: String,
        /// The option's key.
        option: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is an interface of that name that cannot be used as this kind.
    #[error("{name}: {reason}")]
    Unsuitable {
        /// The name asked for.
        name: String,
        /// What it is instead, and what to do.
        reason: String,
    },
    /// A dummy of that name, or a tap that another process holds, is open already.
    #[error("{name}: device is already open")]
    Busy {
        /// The name asked for.
        name: String,
    },
    /// A system call failed.
    #[error("{name}: {step} failed: {source}")]
    System {
        /// The device.
        name: String,
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    /// For `map_err`: wraps what the kernel said to `step`; `ENODEV` becomes
    /// [`OpenError::NoDevice`].
    pub(crate) fn system(name: &str, step: &'static str) -> impl FnOnce(io::Error) -> OpenError {
        let name = name.to_owned();
        move |source| {
            if is_not_there(&source) {
                OpenError::NoDevice { name }
            } else {
                OpenError::System { name, step, source }
            }
        }
    }

    /// The error number, where the kernel gave one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            OpenError::NoDevice { .. } => Some(libc::ENODEV),
            OpenError::BadName { .. }
            | OpenError::BadOption { .. }
            | OpenError::Unsuitable { .. } => Some(libc::EINVAL),
            OpenError::Busy { .. } => Some(libc::EBUSY),
            OpenError::System { source, .. } => source.raw_os_error(),
        }
    }
}

/// Follows `dev_valid_name` (net/core/dev.c).
pub(crate) fn check_name(name: &str) -> Result<(), OpenError> {
    let bad = |reason| Err(OpenError::BadName { name: name.to_owned(), reason });
    if name.is_empty() {
        return bad("it is empty");
    }
    if name.len() >= libc::IFNAMSIZ {
        return bad("it is longer than 15 bytes");
    }
    if name == "." || name == ".." {
        return bad("it is reserved");
    }
    if name.bytes().any(|b| b == b'/' || b == b':' || b == 0 || b.is_ascii_whitespace()) {
        return bad("it contains a slash, colon, space or NUL");
    }
    Ok(())
}

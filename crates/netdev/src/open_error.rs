// SPDX-License-Identifier: Apache-2.0
//! Errors of opening a device.

use crate::link::is_not_there;
use std::io;

/// The reason why a device could not be opened. The text fits the Interface's `error` column.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such interface in this network namespace.
    #[error("{name}: could not open network device {name} (No such device)")]
    NoDevice {
        /// The requested name.
        name: String,
    },
    /// The name is not a valid interface name.
    #[error("\"{name}\" is not a valid interface name: {reason}")]
    BadName {
        /// The requested name.
        name: String,
        /// The reason, for the user.
        reason: &'static str,
    },
    /// The value of an option is invalid.
    #[error("{name}: options:{option}: {reason}")]
    BadOption {
        /// The device.
        name: String,
        /// The option's key.
        option: String,
        /// The reason, for the user.
        reason: String,
    },
    /// An interface of that name exists and cannot be used as this kind.
    #[error("{name}: {reason}")]
    Unsuitable {
        /// The requested name.
        name: String,
        /// The actual kind of the interface, and what to do.
        reason: String,
    },
    /// A dummy of that name, or a tap of that name in another process, is open already.
    #[error("{name}: device is already open")]
    Busy {
        /// The requested name.
        name: String,
    },
    /// A system call failed.
    #[error("{name}: {step} failed: {source}")]
    System {
        /// The device.
        name: String,
        /// The operation that failed.
        step: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    /// Returns a function for `map_err` that wraps the kernel's error in `step`. `ENODEV` becomes
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

    /// Returns the error number that corresponds to the error, if there is one.
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

/// Checks an interface name by the rules of `dev_valid_name` (net/core/dev.c).
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

// SPDX-License-Identifier: Apache-2.0
//! Socket paths that are longer than an address can hold.
//!
//! A Unix socket's address holds 107 bytes of path. A longer path is reached through a descriptor
//! of its directory: `/proc/self/fd/N/NAME`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The longest path that fits an address, without the byte that ends it.
const MAX_PATH: usize = 107;

/// A path that fits an address, good as long as this lives.
#[derive(Debug)]
pub struct SocketName {
    name: PathBuf,
    /// Keeps the descriptor in `name` valid.
    _directory: Option<File>,
}

impl SocketName {
    /// A usable name for `path`.
    ///
    /// # Errors
    /// The path is long and its directory cannot be opened, or it names nothing in a directory.
    pub fn new(path: &Path) -> io::Result<SocketName> {
        use std::os::fd::AsRawFd;
        if path.as_os_str().len() <= MAX_PATH {
            return Ok(SocketName { name: path.to_owned(), _directory: None });
        }
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let directory = File::open(path.parent().ok_or_else(invalid)?)?;
        let base = path.file_name().ok_or_else(invalid)?;
        let name = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(base);
        Ok(SocketName { name, _directory: Some(directory) })
    }

    /// The name, for a socket's address.
    pub fn path(&self) -> &Path {
        &self.name
    }
}

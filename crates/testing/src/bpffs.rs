// SPDX-License-Identifier: Apache-2.0
//! BPF file systems without a name.

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// A BPF file system that is mounted nowhere: this value holds it by a descriptor, and what is
/// pinned in it goes with the value, or with the program. Takes CAP_SYS_ADMIN.
#[derive(Debug)]
pub struct BpfFs(OwnedFd);

impl BpfFs {
    /// Makes an empty one.
    ///
    /// # Errors
    /// Those of the kernel: without the privilege, for example.
    pub fn new() -> io::Result<BpfFs> {
        let context = fsopen("bpf", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        Ok(BpfFs(fsmount(&context, flags, MountAttrFlags::empty())?))
    }

    /// Its root directory, as all threads of this program see it.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }
}

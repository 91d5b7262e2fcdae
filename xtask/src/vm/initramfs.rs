// SPDX-License-Identifier: Apache-2.0
//! The guest's first file system: the programs and modules that mount the host's files.

use super::cpio::Archive;
use super::job::Job;
use super::kernel::Kernel;
use super::{host, modules};
use anyhow::Result;

/// Commands of busybox that `init.sh` uses.
const COMMANDS: [&str; 9] =
    ["sh", "cp", "cat", "insmod", "mkdir", "mount", "poweroff", "switch_root", "uname"];

/// Makes the archive for one run.
pub fn build(kernel: &Kernel, job: &Job) -> Result<Vec<u8>> {
    let mut archive = Archive::new();
    for directory in ["bin", "dev", "proc", "modules", "slipswitch", "lower", "upper", "root"] {
        archive.directory(directory);
    }
    archive.file("bin/busybox", &host::static_busybox()?);
    for command in COMMANDS {
        archive.link(&format!("bin/{command}"), "busybox");
    }
    for (number, module) in modules::load(kernel)?.iter().enumerate() {
        archive.file(&format!("modules/{number:02}.ko"), module);
    }
    archive.file("init", include_bytes!("../guest/init.sh"));
    archive.file("slipswitch/run.sh", include_bytes!("../guest/run.sh"));
    archive.file("slipswitch/job.sh", job.script().as_bytes());
    archive.file("slipswitch/kept", job.kept_directories().as_bytes());
    archive.file("slipswitch/kernel", kernel.dir.as_os_str().as_encoded_bytes());
    Ok(archive.finish())
}

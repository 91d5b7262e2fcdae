// SPDX-License-Identifier: Apache-2.0
//! Modules that the guest needs before it sees the host's files.

use super::host;
use super::kernel::Kernel;
use anyhow::{Result, bail};
use std::path::PathBuf;

/// The host's files come by 9p over virtio, the guest's own are in a layer over them, and the
/// results leave by a virtio console.
const NEEDED: [&str; 5] = ["virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console"];

/// The needed modules of a kernel in the order in which they are to be loaded, uncompressed.
pub fn load(kernel: &Kernel) -> Result<Vec<Vec<u8>>> {
    let mut files: Vec<PathBuf> = Vec::new();
    for module in NEEDED {
        let mut command = host::command("modprobe");
        command.arg("-d").arg(&kernel.dir).args([
            "-S",
            kernel.release.name(),
            "--show-depends",
            module,
        ]);
        for file in parse(&host::text(&mut command)?) {
            if !files.contains(&file) {
                files.push(file);
            }
        }
    }
    files.iter().map(read).collect()
}

/// Files to load, from modprobe's lines `insmod FILE` and `builtin MODULE`.
fn parse(text: &str) -> Vec<PathBuf> {
    text.lines()
        .filter_map(|line| line.strip_prefix("insmod "))
        .map(|file| PathBuf::from(file.trim_end()))
        .collect()
}

fn read(file: &PathBuf) -> Result<Vec<u8>> {
    match file.extension().and_then(|e| e.to_str()) {
        Some("ko") => Ok(std::fs::read(file)?),
        Some("xz") => host::output(host::command("xz").arg("-dc").arg(file)),
        _ => bail!("{} is compressed in a way that is not known here", file.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_modules_have_no_file() {
        let text = "builtin virtio\ninsmod /a b/x.ko \ninsmod /y.ko.xz \n";
        assert_eq!(parse(text), [PathBuf::from("/a b/x.ko"), PathBuf::from("/y.ko.xz")]);
    }
}

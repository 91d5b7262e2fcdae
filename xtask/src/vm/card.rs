// SPDX-License-Identifier: Apache-2.0
//! The module of the card in software (`tests/card`), built for each kernel.

use super::host;
use super::kernel::{Kernel, Store};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The test program that needs the module.
pub const SUITE: &str = "card";
/// The variable with [`directory`]. A module is in the subdirectory that `uname -r` names.
pub const VARIABLE: &str = "SLIPSWITCH_TEST_CARD";
/// The source of the module, and its makefile.
const SOURCES: [&str; 2] = ["swcard.c", "Makefile"];

/// Returns the directory of all modules.
pub fn directory(store: &Store) -> PathBuf {
    store.dir().join("cards")
}

/// Builds the module for a kernel from the source in `source`.
pub fn build(store: &Store, kernel: &Kernel, source: &Path) -> Result<()> {
    let name = kernel.release.name();
    let root = store.headers(&kernel.release)?;
    let headers = root.join(format!("usr/src/linux-headers-{name}"));
    relocate(&headers.join("Makefile"), &root)?;
    let dir = directory(store).join(name);
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for file in SOURCES {
        std::fs::copy(source.join(file), dir.join(file))
            .with_context(|| format!("cannot copy {file} from {}", source.display()))?;
    }
    let mut make = host::command("make");
    // Debian's packages of headers lack the kernel's own type information.
    make.args(["--silent", "CONFIG_DEBUG_INFO_BTF_MODULES="]);
    make.arg("-C").arg(&headers).arg(format!("M={}", dir.display())).arg("modules");
    host::output(&mut make)
        .map(drop)
        .with_context(|| format!("the card in software cannot be built for {name}"))
}

/// Makes a makefile of the headers name other files where they are unpacked.
fn relocate(makefile: &Path, root: &Path) -> Result<()> {
    let text = std::fs::read_to_string(makefile)
        .with_context(|| format!("cannot read {}", makefile.display()))?;
    let moved = relocated(&text, root);
    if moved != text {
        std::fs::write(makefile, moved)?;
    }
    Ok(())
}

fn relocated(text: &str, root: &Path) -> String {
    let line = |line: &str| match line.strip_prefix("include /usr/src/") {
        Some(file) => format!("include {}/usr/src/{file}\n", root.display()),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_makefile_is_relocated_once() {
        let text = "include /usr/src/linux-headers-6.1.0-9-common/Makefile\nx := 1\n";
        let moved = relocated(text, Path::new("/a"));
        assert_eq!(moved, "include /a/usr/src/linux-headers-6.1.0-9-common/Makefile\nx := 1\n");
        assert_eq!(relocated(&moved, Path::new("/a")), moved);
    }
}

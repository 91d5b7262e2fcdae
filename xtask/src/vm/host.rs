// SPDX-License-Identifier: Apache-2.0
//! Programs that the host needs.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A program, and the Debian package that has it.
const PROGRAMS: [(&str, &str); 9] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("apt-get", "apt"),
    ("apt-cache", "apt"),
    ("dpkg-deb", "dpkg"),
    ("depmod", "kmod"),
    ("modprobe", "kmod"),
    ("xz", "xz-utils"),
    ("setpriv", "util-linux"),
];

/// Reports all missing programs at once.
pub fn check() -> Result<()> {
    if !cfg!(target_arch = "x86_64") {
        bail!("the guest runs the host's programs on an x86-64 kernel: the host must be x86-64");
    }
    let missing: Vec<_> = PROGRAMS.iter().filter(|(program, _)| find(program).is_none()).collect();
    if !missing.is_empty() {
        let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
        packages.dedup();
        let programs: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
        bail!(
            "not installed: {}; run `make deps-vm`, or `apt-get install --no-install-recommends {}`",
            programs.join(", "),
            packages.join(" ")
        );
    }
    static_busybox().map(drop)
}

/// Returns the program's path: in `PATH`, or in the directories for programs of root.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// Busybox that needs no libraries: the guest's first program.
pub fn static_busybox() -> Result<Vec<u8>> {
    let path = find("busybox").context("busybox is not installed")?;
    let program =
        std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    if is_dynamic(&program) {
        bail!(
            "{} needs libraries, which the guest's first step does not have; \
             run `apt-get install busybox-static`",
            path.display()
        );
    }
    Ok(program)
}

/// True when a program names a loader: an ELF program header of the type `PT_INTERP`.
fn is_dynamic(program: &[u8]) -> bool {
    const PT_INTERP: u32 = 3;
    // 64-bit little endian ELF: e_phoff at 32, e_phentsize at 54, e_phnum at 56.
    let number = |at: usize, size: usize| {
        let bytes = program.get(at..at.checked_add(size)?)?;
        let value = bytes.iter().rev().fold(0_u64, |n, b| n << 8 | u64::from(*b));
        usize::try_from(value).ok()
    };
    let (Some(start), Some(size), Some(count)) = (number(32, 8), number(54, 2), number(56, 2))
    else {
        return false;
    };
    (0..count).any(|i| {
        let at = start.saturating_add(i * size);
        number(at, 4).is_some_and(|kind| kind == PT_INTERP as usize)
    })
}

/// Returns a command for a program that [`check`] has found.
pub fn command(program: &str) -> Command {
    let mut command = Command::new(find(program).unwrap_or_else(|| program.into()));
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// Runs a command that has to succeed. Returns its standard output.
pub fn output(command: &mut Command) -> Result<Vec<u8>> {
    let name = Path::new(command.get_program()).display().to_string();
    let Output { status, stdout, stderr } =
        command.output().with_context(|| format!("cannot run {name}"))?;
    if !status.success() {
        let args: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
        let words = String::from_utf8_lossy(&stderr);
        bail!("{name} {}: {status}: {}", args.join(" "), words.trim());
    }
    Ok(stdout)
}

/// Like [`output`], as text.
pub fn text(command: &mut Command) -> Result<String> {
    Ok(String::from_utf8_lossy(&output(command)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_a_loader_is_dynamic() {
        let shell = std::fs::read("/bin/sh").expect("there is a shell");
        assert!(is_dynamic(&shell));
    }

    #[test]
    fn what_is_no_program_is_not() {
        assert!(!is_dynamic(b""));
        assert!(!is_dynamic(&[0xff; 64]));
        assert!(!is_dynamic(&[0; 200]));
    }

    #[test]
    fn a_failing_command_is_reported_with_its_words() {
        let error = output(command("sh").args(["-c", "echo no luck >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("no luck") && text.contains("exit status: 3"), "{text}");
    }
}

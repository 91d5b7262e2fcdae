// SPDX-License-Identifier: Apache-2.0
//! Features of the host that tests need, and a loud message when a test is skipped without them.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// Says on standard error that the calling thread's test does not run, and why: a sentence that
/// names what is missing.
///
/// The test runner keeps what a test prints to itself when the test passes, and a test that does
/// not run passes. This message bypasses the runner's capture. `cargo xtask vm` counts these
/// messages.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test");
    // In one write, so that no other test's words are in it.
    let _ = std::io::stderr().write_all(format!("SKIPPED: {test}: {reason}\n").as_bytes());
}

/// True, after saying so, when network namespaces cannot be made here.
pub fn without_privilege() -> bool {
    let able = Command::new("unshare")
        .args(["--net", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success());
    if !able {
        skip("making network namespaces needs root");
    }
    !able
}

/// True, after saying so, when the test does not run as root: it uses BPF, file systems of its own
/// or other users.
pub fn without_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("it takes root");
    }
    !root
}

/// True, after saying so, when one of the programs in `tools` is not installed.
pub fn without_tool(tools: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing = tools.iter().find(|tool| {
        !std::env::split_paths(&path).any(|dir| {
            std::fs::metadata(dir.join(tool))
                .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        })
    });
    if let Some(tool) = missing {
        skip(&format!("{tool} is not installed"));
    }
    missing.is_some()
}

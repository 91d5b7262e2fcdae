//! Saying aloud that a test does not run here.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// Says on standard error that the test does not run, and why.
pub fn skip(reason: &str) {
    use std::io::Write;
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    // Not `eprintln!`: the test runner keeps that to itself when the test passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {reason}");
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

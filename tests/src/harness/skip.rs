//! What tests need of the host, and saying aloud that they do not run without it.

pub use testing::skip;

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

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

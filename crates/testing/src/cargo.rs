// SPDX-License-Identifier: Apache-2.0
//! Cargo, from programs that Cargo runs.

use std::process::Command;

/// The Cargo that runs this program, without the variables that it sets for this program: some build
/// scripts run again when those change.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let is_own = |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|o| name.starts_with(o));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_own)) {
        command.env_remove(name);
    }
    command
}

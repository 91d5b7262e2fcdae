// SPDX-License-Identifier: Apache-2.0
//! Where the programs under test are.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The daemon: `$SLIPSWITCHD`, or the one that Cargo built next to this test. Builds it
/// first if it is missing.
///
/// # Panics
/// When it cannot be built.
pub fn daemon_program() -> PathBuf {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROGRAM
        .get_or_init(|| from_env("SLIPSWITCHD").map_or_else(|| built("slipswitchd"), Ok))
        .clone()
        .unwrap_or_else(|e| panic!("{e}"))
}

/// The user's tool: `$SLIPSWITCH`, or the one next to this test, likewise.
///
/// # Panics
/// When it cannot be built.
pub fn tool_program() -> PathBuf {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROGRAM
        .get_or_init(|| from_env("SLIPSWITCH").map_or_else(|| built("slipswitch"), Ok))
        .clone()
        .unwrap_or_else(|e| panic!("{e}"))
}

fn from_env(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os(name)?);
    assert!(path.is_file(), "${name} is {}, which is not a file", path.display());
    Some(path)
}

/// Always asks Cargo, so that a test never runs against yesterday's program: when nothing has
/// changed this takes a fraction of a second.
fn built(name: &str) -> Result<PathBuf, String> {
    let test = std::env::current_exe().expect("Linux has a link to each running program");
    // target/PROFILE/deps/TEST, or target/PROFILE/PROGRAM
    let profile = test.ancestors().skip(1).find(|dir| !dir.ends_with("deps"));
    let profile = profile.expect("Cargo puts programs two levels deep");
    let program = profile.join(name);
    let mut cargo = testing::cargo();
    cargo
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .args(["build", "--quiet", "-p", name, "--bin", name]);
    if let Some(target) = profile.parent() {
        cargo.env("CARGO_TARGET_DIR", target);
    }
    if profile.file_name().is_some_and(|p| p == "release") {
        cargo.arg("--release");
    }
    let output = cargo.output().expect("tests are run by Cargo, so it is there");
    if !output.status.success() || !program.is_file() {
        return Err(format!("cannot build {name}:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(program)
}

// SPDX-License-Identifier: Apache-2.0
//! The libFuzzer binaries.

use crate::vm::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Compiler flags that make coverage visible to libFuzzer, as cargo-fuzz passes them.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0 -Ccodegen-units=1 --cfg fuzzing";

/// The built binaries, and the directory that runs leave their files in.
#[derive(Debug)]
pub struct Binaries {
    programs: PathBuf,
    /// Corpora, dictionaries, logs and failed inputs.
    pub dir: PathBuf,
}

impl Binaries {
    /// Builds all of them.
    pub fn build(workspace: &Workspace, address: bool) -> Result<Binaries> {
        let host = host()?;
        let dir = workspace.target.join("fuzz");
        let kind = if address { "address" } else { "plain" };
        let target = dir.join(kind);
        let flags =
            if address { format!("{COVERAGE} -Zsanitizer=address") } else { COVERAGE.to_owned() };
        let status = nightly("cargo")
            .args(["build", "--release", "--bins", "--target", &host, "--manifest-path"])
            .arg(workspace.root.join("fuzz/Cargo.toml"))
            .env("CARGO_TARGET_DIR", &target)
            .env("RUSTFLAGS", flags)
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .status()
            .context("cannot run rustup")?;
        if !status.success() {
            bail!("the fuzz targets do not build");
        }
        Ok(Binaries { programs: target.join(host).join("release"), dir })
    }

    /// The program of a target.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// Returns the directory for one kind of files that runs leave.
    pub fn corpora(&self) -> PathBuf {
        self.dir.join("corpus")
    }

    /// Converts corpora between the form in git and that of libFuzzer. Returns the output.
    pub fn corpus(&self, what: &str) -> Result<String> {
        let output = Command::new(self.program("corpus"))
            .arg(what)
            .arg(self.corpora())
            .stderr(Stdio::inherit())
            .output()
            .context("cannot run the corpus program")?;
        if !output.status.success() {
            bail!("corpus {what}: {}", output.status);
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A program of the nightly toolchain.
fn nightly(program: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", program]);
    // Cargo sets these for its children, to the compiler that it runs.
    for name in ["RUSTC", "RUSTDOC", "CARGO", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(name);
    }
    command.current_dir(Path::new("/"));
    command
}

/// The machine's name for compilers, from the nightly one.
fn host() -> Result<String> {
    let told = nightly("rustc").arg("-vV").stderr(Stdio::null()).output();
    let told = told.ok().filter(|o| o.status.success()).map(|o| o.stdout).context(
        "fuzzing needs a nightly compiler: run `rustup toolchain install nightly --profile minimal`",
    )?;
    let told = String::from_utf8_lossy(&told);
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("the nightly compiler does not name its host")
}

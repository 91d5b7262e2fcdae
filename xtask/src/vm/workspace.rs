// SPDX-License-Identifier: Apache-2.0
//! The workspace as Cargo describes it.

use anyhow::{Context, Result};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// A program that Cargo can make of a package's tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The unit tests of its library.
    Lib,
    /// The unit tests of a program.
    Bin(String),
    /// A file or directory of `tests/`.
    Test(String),
}

impl Target {
    /// Returns the name that patterns are compared with.
    pub fn name(&self) -> &str {
        match self {
            Target::Lib => "lib",
            Target::Bin(name) | Target::Test(name) => name,
        }
    }

    /// Chooses it for `cargo test`.
    pub fn cargo_args(&self) -> Vec<&str> {
        match self {
            Target::Lib => vec!["--lib"],
            Target::Bin(name) => vec!["--bin", name],
            Target::Test(name) => vec!["--test", name],
        }
    }

    /// From a target in Cargo's descriptions; none for examples and the like.
    pub fn parse(target: &Value) -> Option<Target> {
        let name = target["name"].as_str()?.to_owned();
        match target["kind"][0].as_str()? {
            "lib" | "rlib" | "proc-macro" => Some(Target::Lib),
            "bin" => Some(Target::Bin(name)),
            "test" => Some(Target::Test(name)),
            _ => None,
        }
    }
}

/// A package of the workspace.
#[derive(Clone, Debug)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its directory, in which Cargo runs its tests.
    pub dir: PathBuf,
    /// Its tests.
    pub targets: Vec<Target>,
}

/// The workspace.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// Its directory.
    pub root: PathBuf,
    /// Cargo's target directory.
    pub target: PathBuf,
    /// The packages of the workspace.
    pub packages: Vec<Package>,
}

impl Workspace {
    /// Reads the workspace from Cargo.
    pub fn load() -> Result<Workspace> {
        let mut command = cargo();
        command.args(["metadata", "--no-deps", "--format-version=1"]);
        let output =
            command.stderr(std::process::Stdio::inherit()).output().context("cannot run cargo")?;
        anyhow::ensure!(output.status.success(), "cargo metadata: {}", output.status);
        Workspace::parse(&serde_json::from_slice(&output.stdout)?)
            .context("cargo metadata has another form than is known here")
    }

    fn parse(metadata: &Value) -> Option<Workspace> {
        Some(Workspace {
            root: metadata["workspace_root"].as_str()?.into(),
            target: metadata["target_directory"].as_str()?.into(),
            packages: metadata["packages"]
                .as_array()?
                .iter()
                .map(package)
                .collect::<Option<_>>()?,
        })
    }

    /// A package by its name.
    pub fn package(&self, name: &str) -> Result<&Package> {
        let package = self.packages.iter().find(|p| p.name == name);
        package.with_context(|| format!("the workspace has no package {name}"))
    }
}

fn package(package: &Value) -> Option<Package> {
    let manifest = PathBuf::from(package["manifest_path"].as_str()?);
    let tested = |target: &&Value| target["test"].as_bool().unwrap_or(false);
    Some(Package {
        name: package["name"].as_str()?.to_owned(),
        dir: manifest.parent()?.to_owned(),
        targets: package["targets"]
            .as_array()?
            .iter()
            .filter(tested)
            .filter_map(Target::parse)
            .collect(),
    })
}

/// Cargo, in this workspace.
pub fn cargo() -> Command {
    let mut command = testing::cargo();
    // As Cargo sets it now: the workspace may have moved since this program was made.
    let dir = std::env::var_os("CARGO_MANIFEST_DIR");
    command.current_dir(dir.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()));
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn metadata_is_read() {
        let metadata = json!({
            "workspace_root": "/w", "target_directory": "/t",
            "packages": [{ "name": "p", "manifest_path": "/w/p/Cargo.toml", "targets": [
                { "name": "p", "kind": ["lib"], "test": true },
                { "name": "tool", "kind": ["bin"], "test": false },
                { "name": "t", "kind": ["test"], "test": true },
                { "name": "e", "kind": ["example"], "test": true },
            ]}],
        });
        let workspace = Workspace::parse(&metadata).expect("it is whole");
        let package = workspace.package("p").expect("it is there");
        assert_eq!(package.dir, PathBuf::from("/w/p"));
        assert_eq!(package.targets, [Target::Lib, Target::Test("t".into())]);
        assert!(workspace.package("q").is_err());
        assert!(Workspace::parse(&json!({ "packages": 5 })).is_none());
    }

    #[test]
    fn this_workspace_is_read() {
        let workspace = Workspace::load().expect("cargo runs this test");
        let package = workspace.package("xtask").expect("this is it");
        assert_eq!(package.targets, [Target::Bin("xtask".into())]);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Licences of dependencies, by the list in `deny.toml`, without a network.
//!
//! `cargo deny check` checks advisories, too, and is the better tool where it is installed. This
//! check needs nothing but Cargo.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::Path;

/// Returns the packages whose licence `deny.toml` does not allow.
///
/// # Errors
/// `cargo metadata` fails, or `deny.toml` cannot be read.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let path = root.join("deny.toml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let allowed = allowed(&text);
    let mut cargo = testing::cargo();
    let output = cargo
        .current_dir(root)
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform"])
        .arg("x86_64-unknown-linux-gnu")
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or("?");
        let licence = package["license"].as_str().unwrap_or("");
        if !is_allowed(licence, &allowed) {
            findings.push(format!("{name}: deny.toml does not allow its licence '{licence}'"));
        }
    }
    Ok(findings)
}

/// Returns the strings of `allow = […]` in `deny.toml`.
fn allowed(toml: &str) -> Vec<&str> {
    let list = toml.split_once("\nallow = [").and_then(|(_, rest)| rest.split_once(']'));
    list.map_or(Vec::new(), |(list, _)| list.split('"').skip(1).step_by(2).collect())
}

/// Whether an SPDX expression can be met with the allowed licences. `/` is an old form of `OR`.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let is_met = any_of(&words, &mut at, allowed);
    is_met && at == words.len()
}

fn any_of(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let mut is_met = all_of(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        is_met |= all_of(words, at, allowed);
    }
    is_met
}

fn all_of(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let mut is_met = licence(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        is_met &= licence(words, at, allowed);
    }
    is_met
}

fn licence(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let is_met = any_of(words, at, allowed);
        *at += 1; // the closing parenthesis
        return is_met;
    }
    // `+` stands for later versions, which may be used under this one's terms, too.
    let mut name = word.trim_end_matches('+').to_owned();
    if let [Some(&"WITH"), Some(exception)] = [words.get(*at), words.get(*at + 1)] {
        name = format!("{name} WITH {exception}");
        *at += 2;
    }
    allowed.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_by_what_is_allowed() {
        let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception", "ISC"];
        for expression in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "ISC+",
            "Apache-2.0 WITH LLVM-exception",
            "(GPL-3.0 OR MIT) AND ISC",
        ] {
            assert!(is_allowed(expression, &allowed), "{expression}");
        }
        for expression in ["", "GPL-3.0", "Apache-2.0", "MIT AND GPL-3.0", "MIT ISC"] {
            assert!(!is_allowed(expression, &allowed), "{expression}");
        }
    }

    #[test]
    fn the_list_is_read() {
        let toml = "[graph]\n[licenses]\nallow = [\n    \"MIT\",\n    \"ISC\",\n]\nx = [\"no\"]\n";
        assert_eq!(allowed(toml), ["MIT", "ISC"]);
    }

    #[test]
    fn dependencies_are_allowed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert_eq!(check(&root).unwrap(), [""; 0]);
    }
}

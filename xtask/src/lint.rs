// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask lint`: checks of the sources that neither rustfmt nor Clippy makes.
//!
//! `lint-words`, `lint-licences` and `lint-paths` run one of them. All read the files that git
//! tracks, so a new file is checked once it is added.

mod dependencies;
mod licences;
mod passages;
mod paths;
mod words;

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files that quote banned turns.
const QUOTING: &[&str] = &["docs/style.md", "xtask/src/lint/words.rs"];

/// The longest subject of a commit, in characters.
const MAX_SUBJECT: usize = 72;

/// Finds the turns of phrase that docs/style.md bans
#[derive(Debug, clap::Args)]
pub struct WordsArgs {
    /// Print the number of turns for each directory instead of the turns
    #[arg(long)]
    count: bool,
    /// Check the subjects of the commits in RANGE, as in main..HEAD, instead of files
    #[arg(long, value_name = "RANGE")]
    commits: Option<String>,
    /// Check only tracked files below these paths
    #[arg(value_name = "PATH", conflicts_with = "commits")]
    paths: Vec<String>,
}

/// A tracked file.
struct File {
    path: String,
    text: String,
}

/// Runs all checks. Returns the exit status: 1 when one of them found something.
pub fn run() -> Result<u8> {
    let files = tracked()?;
    let mut status = check_words(&files);
    status |= report("licence", licences::check(&files));
    status |= report("path", paths::check(&files));
    status |= report("dependency", dependencies::check(&root())?);
    Ok(status)
}

/// Runs `lint-words`. Returns the exit status.
pub fn run_words(args: &WordsArgs) -> Result<u8> {
    if let Some(range) = &args.commits {
        return check_commits(range);
    }
    let mut files = tracked()?;
    if args.count {
        count(&files);
        return Ok(0);
    }
    files
        .retain(|file| args.paths.is_empty() || args.paths.iter().any(|p| is_below(&file.path, p)));
    Ok(check_words(&files))
}

/// Runs `lint-licences`: SPDX lines of files, and licences of dependencies. Returns the exit status.
pub fn run_licences() -> Result<u8> {
    let files = report("licence", licences::check(&tracked()?));
    Ok(files | report("dependency", dependencies::check(&root())?))
}

/// Runs `lint-paths`: links and file names in Markdown. Returns the exit status.
pub fn run_paths() -> Result<u8> {
    Ok(report("path", paths::check(&tracked()?)))
}

fn report(check: &str, findings: Vec<String>) -> u8 {
    for finding in &findings {
        eprintln!("{check}: {finding}");
    }
    u8::from(!findings.is_empty())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask has a parent").to_owned()
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").current_dir(root()).args(arguments).output();
    let output = output.context("cannot run git")?;
    if !output.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the files that git tracks and that are there; binary ones with an empty text.
fn tracked() -> Result<Vec<File>> {
    let root = root();
    let mut files = Vec::new();
    for path in git(&["ls-files", "-z"])?.split('\0').filter(|path| !path.is_empty()) {
        let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
        let text = String::from_utf8(bytes).unwrap_or_default();
        files.push(File { path: path.to_owned(), text });
    }
    Ok(files)
}

/// Whether `path` is `prefix` or lies below it.
fn is_below(path: &str, prefix: &str) -> bool {
    let rest = path.strip_prefix(prefix.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn hits(file: &File) -> Vec<words::Hit> {
    if QUOTING.contains(&file.path.as_str()) {
        return Vec::new();
    }
    passages::passages(&file.path, &file.text).iter().flat_map(words::check).collect()
}

fn check_words(files: &[File]) -> u8 {
    let mut status = 0;
    for file in files {
        for hit in hits(file) {
            println!("{}:{}: {} → {}", file.path, hit.line, hit.words, hit.instead);
            status = 1;
        }
    }
    status
}

/// Prints the number of banned turns by directory.
fn count(files: &[File]) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for file in files {
        let parts: Vec<&str> = file.path.split('/').collect();
        let depth = if parts[0] == "crates" { 2 } else { 1 };
        let directory = parts[..depth.min(parts.len())].join("/");
        *counts.entry(directory).or_default() += hits(file).len();
    }
    for (directory, count) in counts.iter().filter(|(_, count)| **count > 0) {
        println!("{count:6} {directory}");
    }
    println!("{:6} in all", counts.values().sum::<usize>());
}

fn check_commits(range: &str) -> Result<u8> {
    let mut status = 0;
    for line in git(&["log", "--format=%h %s", range])?.lines() {
        let (commit, subject) = line.split_once(' ').unwrap_or((line, ""));
        let passage = passages::Passage {
            kind: passages::Kind::Comment,
            lines: vec![(1, subject.to_owned())],
        };
        for hit in words::check(&passage) {
            println!("{commit}: {} → {}", hit.words, hit.instead);
            status = 1;
        }
        let length = subject.chars().count();
        if length > MAX_SUBJECT {
            println!("{commit}: the subject has {length} characters, more than {MAX_SUBJECT}");
            status = 1;
        }
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn prefixes_end_at_a_slash() {
        assert!(is_below("crates/flow/src/lib.rs", "crates/flow"));
        assert!(is_below("crates/flow/src/lib.rs", "crates/flow/"));
        assert!(is_below("README.md", "README.md"));
        assert!(!is_below("crates/flowers/lib.rs", "crates/flow"));
    }

    #[test]
    fn a_turn_in_any_file_is_an_error() {
        assert_eq!(check_words(&[file("crates/a/lib.rs", "// made anew\n")]), 1);
        assert_eq!(check_words(&[file("crates/a/lib.rs", "// made again\n")]), 0);
    }

    #[test]
    fn files_that_quote_turns_are_left_out() {
        assert_eq!(hits(&file("docs/style.md", "| anew | again |")), []);
        assert_eq!(hits(&file("docs/other.md", "| anew | again |")).len(), 1);
    }
}

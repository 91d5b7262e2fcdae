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

/// Directories and files that still have banned turns.
const TODO: &str = "xtask/words-todo.txt";

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
    /// Check the directories listed in xtask/words-todo.txt, too
    #[arg(long)]
    all: bool,
    /// Check the subjects of the commits in RANGE, as in main..HEAD, instead of files
    #[arg(long, value_name = "RANGE")]
    commits: Option<String>,
    /// Check only tracked files below these paths, also those that are listed as not clean
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
    let mut status = check_words(&files, Scope::Clean);
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
    let scope = match (args.paths.is_empty(), args.all) {
        (true, false) => Scope::Clean,
        (true, true) => Scope::All,
        (false, _) => Scope::Chosen,
    };
    Ok(check_words(&files, scope))
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

/// Returns the entries of the list of what is not clean yet.
fn todo(files: &[File]) -> Vec<&str> {
    let list = files.iter().find(|file| file.path == TODO);
    let lines = list.map_or("", |file| &file.text).lines();
    lines.map(str::trim).filter(|line| !line.is_empty()).collect()
}

/// The files that are checked for banned turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// All but those that [`TODO`] lists.
    Clean,
    /// All tracked files.
    All,
    /// Those given on the command line.
    Chosen,
}

fn check_words(files: &[File], scope: Scope) -> u8 {
    let todo = todo(files);
    let mut open: BTreeMap<&str, usize> = todo.iter().map(|entry| (*entry, 0)).collect();
    let mut status = 0;
    for file in files {
        let hits = hits(file);
        let entry = todo.iter().find(|entry| is_below(&file.path, entry));
        if let Some(count) = entry.and_then(|entry| open.get_mut(entry)) {
            *count += hits.len();
            if scope == Scope::Clean {
                continue;
            }
        }
        for hit in hits {
            println!("{}:{}: {} → {}", file.path, hit.line, hit.words, hit.instead);
            status = 1;
        }
    }
    if scope == Scope::Chosen {
        return status;
    }
    for (entry, _) in open.iter().filter(|(_, count)| **count == 0) {
        println!("{TODO}: {entry} is clean: remove it from the list");
        status = 1;
    }
    status
}

/// Prints the number of banned turns by directory, the listed ones with a star.
fn count(files: &[File]) {
    let todo = todo(files);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for file in files {
        let parts: Vec<&str> = file.path.split('/').collect();
        let depth = if parts[0] == "crates" { 2 } else { 1 };
        let directory = parts[..depth.min(parts.len())].join("/");
        *counts.entry(directory).or_default() += hits(file).len();
    }
    for (directory, count) in counts.iter().filter(|(_, count)| **count > 0) {
        let is_listed = todo.iter().any(|entry| is_below(directory, entry));
        println!("{count:6} {directory}{}", if is_listed { " *" } else { "" });
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
    fn listed_directories_may_have_turns_until_they_have_none() {
        let bad = file("crates/a/lib.rs", "// made anew\n");
        let good = file("crates/a/lib.rs", "// made again\n");
        let list = file(TODO, "crates/a\n");
        assert_eq!(check_words(&[bad], Scope::Clean), 1);
        let bad = file("crates/a/lib.rs", "// made anew\n");
        assert_eq!(check_words(&[bad, list], Scope::Clean), 0);
        let list = file(TODO, "crates/a\n");
        assert_eq!(check_words(&[good, list], Scope::Clean), 1, "an entry that is clean has to go");
    }

    #[test]
    fn files_that_quote_turns_are_left_out() {
        assert_eq!(hits(&file("docs/style.md", "| anew | again |")), []);
        assert_eq!(hits(&file("docs/other.md", "| anew | again |")).len(), 1);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Links and file names in Markdown: what they name exists.
//!
//! A link is relative to its page, and its anchor is a heading there. A file name in backticks,
//! such as `bpf/layout.h`, is a tracked file's whole path or the end of one.

use super::File;
use super::passages::{Kind, passages};
use std::collections::BTreeSet;

/// Endings of what is taken for a file name.
const ENDINGS: &[&str] = &[".rs", ".c", ".h", ".md", ".toml", ".sh"];

/// Directories whose names begin a path.
const ROOTS: &[&str] =
    &["bench/", "crates/", "demo/", "docs/", "fuzz/", "packaging/", "tests/", "xtask/"];

/// Pages that a program writes.
const WRITTEN: &str = "docs/benchmarks";

/// Returns the links and file names that lead nowhere.
pub fn check(files: &[File]) -> Vec<String> {
    let tree = Tree::new(files);
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.path.ends_with(".md") && !f.path.starts_with(WRITTEN)) {
        for passage in passages(&file.path, &file.text) {
            for (line, text) in &passage.lines {
                for target in links(text) {
                    if let Some(problem) = tree.broken_link(&file.path, target, files) {
                        findings.push(format!("{}:{line}: {target}: {problem}", file.path));
                    }
                }
                for name in text.split('`').skip(1).step_by(2) {
                    if is_path(name) && !tree.has(name) {
                        findings.push(format!("{}:{line}: {name}: no such file", file.path));
                    }
                }
            }
        }
    }
    findings
}

/// Paths of tracked files and of the directories that they are in.
struct Tree<'a> {
    paths: BTreeSet<&'a str>,
}

impl<'a> Tree<'a> {
    fn new(files: &'a [File]) -> Tree<'a> {
        let mut paths = BTreeSet::new();
        for file in files {
            paths.insert(file.path.as_str());
            for (slash, _) in file.path.match_indices('/') {
                paths.insert(&file.path[..slash]);
            }
        }
        Tree { paths }
    }

    /// Whether some path is `name` or ends with it.
    fn has(&self, name: &str) -> bool {
        let name = name.trim_end_matches('/');
        let is_it = |path: &&str| {
            path.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        };
        self.paths.iter().any(is_it)
    }

    /// Says what is wrong with a link on the page `from`.
    fn broken_link(&self, from: &str, target: &str, files: &[File]) -> Option<String> {
        if target.contains("://") || target.starts_with("mailto:") {
            return None;
        }
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let path = if path.is_empty() { Some(from.to_owned()) } else { resolve(from, path) };
        let Some(path) = path.filter(|path| self.paths.contains(path.as_str())) else {
            return Some("no such file".to_owned());
        };
        let page = files.iter().find(|file| file.path == path);
        let text = page.map_or("", |file| &file.text);
        if !anchor.is_empty() && !anchors(&path, text).any(|a| a == anchor) {
            return Some(format!("{path} has no heading for #{anchor}"));
        }
        None
    }
}

/// Returns the targets of the links in a line.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// Returns `path` as seen from the root, when the page `from` names it.
fn resolve(from: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Returns the anchors that GitHub gives to the headings of a page.
fn anchors(path: &str, text: &str) -> impl Iterator<Item = String> {
    let headings = passages(path, text).into_iter().filter(|p| p.kind == Kind::Heading);
    headings.map(|heading| {
        let title = heading.lines[0].1.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// Whether the code in backticks is taken for the path of a file here. Placeholders (`NAME.rs`,
/// `X.rs`) and patterns (`crates/*/src`) are not.
fn is_path(name: &str) -> bool {
    let is_plain =
        name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-'));
    let is_placeholder = name.split(['/', '.', '-']).any(|part| {
        !part.is_empty()
            && part.chars().all(|c| c.is_ascii_uppercase() || c == '_')
            && !["README", "CHANGELOG", "CONTRIBUTING", "SECURITY", "ARCHITECTURE", "REUSE"]
                .contains(&part)
    });
    let is_here = ENDINGS.iter().any(|e| name.ends_with(e) && name.len() > e.len())
        || ROOTS.iter().any(|root| name.starts_with(root));
    is_plain && !is_placeholder && is_here && !name.starts_with(['/', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn links_and_names_lead_somewhere() {
        let page = "[a](../README.md#the-start), [b](gone.md), [c](../README.md#gone), [d](#here)\n\
                    ## Here\n`bpf/layout.h`, `layout.h`, `gone.h`, `crates/x`, `crates/gone`\n\
                    `X.rs`, `crates/*/lib.rs`, `a.b`, `/etc/x.toml`, [e](https://x.y/z.md)\n";
        let files = [
            file("README.md", "# The `start`\n"),
            file("crates/x/bpf/layout.h", ""),
            file("docs/page.md", page),
            file("docs/benchmarks.md", "`gone.rs`\n"),
        ];
        assert_eq!(
            check(&files),
            [
                "docs/page.md:1: gone.md: no such file",
                "docs/page.md:1: ../README.md#gone: README.md has no heading for #gone",
                "docs/page.md:3: gone.h: no such file",
                "docs/page.md:3: crates/gone: no such file",
            ]
        );
    }
}

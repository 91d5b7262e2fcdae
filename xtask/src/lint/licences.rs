// SPDX-License-Identifier: Apache-2.0
//! Licences of tracked files: an SPDX line at the head of the file, or an entry in `REUSE.toml`.

use super::File;

/// The SPDX line stands within the first lines: after `#!` and the like.
const HEAD_LINES: usize = 5;

const TAG: &str = "SPDX-License-Identifier:";

/// Returns the files without a licence, and the licences without a text.
pub fn check(files: &[File]) -> Vec<String> {
    let text_of = |path: &str| files.iter().find(|f| f.path == path).map_or("", |f| &f.text);
    let patterns = annotated(text_of("REUSE.toml"));
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !file.path.starts_with("LICENSES/")) {
        let line = file.text.lines().take(HEAD_LINES).find_map(|line| line.split_once(TAG));
        let Some((_, expression)) = line else {
            if !patterns.iter().any(|pattern| matches(pattern, &file.path)) {
                findings.push(format!("{}: no SPDX line, and not in REUSE.toml", file.path));
            }
            continue;
        };
        for licence in expression.split([' ', '(', ')']).filter(|word| is_licence(word)) {
            let path = format!("LICENSES/{licence}.txt");
            let is_main = licence == "Apache-2.0" && !text_of("LICENSE").is_empty();
            if !is_main && !files.iter().any(|file| file.path == path) {
                findings.push(format!("{}: {path} is missing", file.path));
            }
        }
    }
    findings
}

fn is_licence(word: &str) -> bool {
    word.contains('-') && word.starts_with(|c: char| c.is_ascii_uppercase())
}

/// Returns the path patterns of `REUSE.toml`.
fn annotated(toml: &str) -> Vec<&str> {
    let mut patterns = Vec::new();
    let mut is_path = false;
    for line in toml.lines() {
        is_path |= line.trim_start().starts_with("path = [");
        if is_path {
            patterns.extend(line.split('"').skip(1).step_by(2));
            is_path = !line.contains(']');
        }
    }
    patterns
}

/// Whether `path` matches a pattern of REUSE: `*` stands for anything without a slash, `**` for
/// anything.
fn matches(pattern: &str, path: &str) -> bool {
    if let Some(rest) = pattern.strip_prefix("**") {
        return (0..=path.len())
            .filter(|at| path.is_char_boundary(*at))
            .any(|at| matches(rest, &path[at..]));
    }
    if let Some(rest) = pattern.strip_prefix('*') {
        let end = path.find('/').unwrap_or(path.len());
        return (0..=end)
            .filter(|at| path.is_char_boundary(*at))
            .any(|at| matches(rest, &path[at..]));
    }
    let mut chars = pattern.chars();
    match (chars.next(), path.chars().next()) {
        (None, None) => true,
        (Some(p), Some(c)) if p == c => matches(chars.as_str(), &path[c.len_utf8()..]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn each_file_has_a_licence() {
        let tag = concat!("SPDX-License", "-Identifier:");
        let files = [
            file("LICENSE", "the text"),
            file("LICENSES/BSD-2-Clause.txt", "the text"),
            file(
                "REUSE.toml",
                &format!("# {tag} Apache-2.0\npath = [\n    \"**.md\",\n    \"LICENSE\",\n]\n"),
            ),
            file("docs/a.md", "no line"),
            file("a.sh", &format!("#!/bin/sh\n# {tag} Apache-2.0\n")),
            file("b.h", &format!("/* {tag} (GPL-2.0-only OR BSD-2-Clause) */\n")),
            file("c.rs", "fn main() {}\n"),
        ];
        assert_eq!(
            check(&files),
            [
                "b.h: LICENSES/GPL-2.0-only.txt is missing",
                "c.rs: no SPDX line, and not in REUSE.toml"
            ]
        );
    }

    #[test]
    fn patterns_match_as_reuse_says() {
        assert!(matches("**.md", "README.md"));
        assert!(matches("**.md", "docs/a/b.md"));
        assert!(matches("**/Cargo.lock", "fuzz/Cargo.lock"));
        assert!(!matches("**/Cargo.lock", "Cargo.lock"));
        assert!(matches("docs/*.svg", "docs/a.svg"));
        assert!(!matches("docs/*.svg", "docs/b/a.svg"));
        assert!(!matches("LICENSE", "LICENSES"));
    }
}

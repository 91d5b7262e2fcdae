// SPDX-License-Identifier: Apache-2.0
//! The prose of a source file: comments, string literals and Markdown, with line numbers.
//!
//! The readers are small lexers, not parsers. A file that does not lex gives fewer passages, never
//! an error.

/// Where a passage stands, which decides the checks that apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A comment that is no documentation.
    Comment,
    /// A comment between `/*` and `*/`.
    Block,
    /// A documentation comment of Rust.
    Doc,
    /// A string literal.
    Literal,
    /// A paragraph, list item or table row of Markdown.
    Markdown,
    /// A heading of Markdown.
    Heading,
}

/// Lines of prose that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Where it stands.
    pub kind: Kind,
    /// Line numbers, from 1, and texts without comment markers.
    pub lines: Vec<(usize, String)>,
}

/// The languages that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Rust,
    C,
    Hash,
    Markdown,
}

/// Returns the passages of the file at `path` with the content `text`; none in a language that is
/// not read.
pub fn passages(path: &str, text: &str) -> Vec<Passage> {
    match language(path, text) {
        Some(Language::Rust) => Lexer::new(text, true).run(),
        Some(Language::C) => Lexer::new(text, false).run(),
        Some(Language::Hash) => hash_comments(text),
        Some(Language::Markdown) => markdown(text),
        None => Vec::new(),
    }
}

fn language(path: &str, text: &str) -> Option<Language> {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("rs") => Some(Language::Rust),
        Some("c" | "h") => Some(Language::C),
        Some("md") => Some(Language::Markdown),
        Some("sh" | "toml") => Some(Language::Hash),
        _ if name == "Makefile" || (text.starts_with("#!") && is_shell(text)) => {
            Some(Language::Hash)
        }
        _ => None,
    }
}

fn is_shell(text: &str) -> bool {
    text.lines().next().is_some_and(|first| first.ends_with("sh"))
}

/// Appends a line of a comment: to the last passage when that is of the same kind and ends on the
/// line before, else as a new one.
fn append(passages: &mut Vec<Passage>, kind: Kind, line: usize, text: &str) {
    let text = text.to_owned();
    match passages.last_mut() {
        Some(last)
            if last.kind == kind && last.lines.last().is_some_and(|(l, _)| *l + 1 == line) =>
        {
            last.lines.push((line, text));
        }
        _ => passages.push(Passage { kind, lines: vec![(line, text)] }),
    }
}

/// Comments of shell, Make and TOML: from a `#` at the start of a line or after white space.
fn hash_comments(text: &str) -> Vec<Passage> {
    let mut passages = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let start = if line.trim_start().starts_with('#') {
            line.find('#')
        } else {
            line.find(" # ").map(|at| at + 1)
        };
        let Some(start) = start else { continue };
        let comment = line[start..].trim_start_matches('#');
        if !comment.starts_with('!') {
            append(&mut passages, Kind::Comment, index + 1, comment);
        }
    }
    passages
}

/// Markdown without code blocks: a passage for each paragraph, list item, table row and heading.
fn markdown(text: &str) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::new();
    let mut in_code = false;
    let mut is_open = false;
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.starts_with("```") {
            in_code = !in_code;
            is_open = false;
            continue;
        }
        if in_code || trimmed.is_empty() {
            is_open = false;
            continue;
        }
        let numbered = trimmed.split_once(". ").is_some_and(|(n, _)| n.parse::<u32>().is_ok());
        let starts = trimmed.starts_with(['|', '#'])
            || trimmed.starts_with("- ")
            || trimmed.starts_with("* ")
            || numbered;
        let kind = if trimmed.starts_with('#') { Kind::Heading } else { Kind::Markdown };
        if is_open && !starts {
            if let Some(last) = passages.last_mut() {
                last.lines.push((index + 1, line.to_owned()));
            }
        } else {
            passages.push(Passage { kind, lines: vec![(index + 1, line.to_owned())] });
        }
        is_open = kind == Kind::Markdown && !trimmed.starts_with('|');
    }
    passages
}

/// A lexer for the comments and string literals of Rust and C.
struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    is_rust: bool,
    passages: Vec<Passage>,
}

impl<'a> Lexer<'a> {
    fn new(text: &'a str, is_rust: bool) -> Lexer<'a> {
        Lexer { text, at: 0, line: 1, is_rust, passages: Vec::new() }
    }

    fn run(mut self) -> Vec<Passage> {
        while let Some(byte) = self.text.as_bytes().get(self.at).copied() {
            let rest = &self.text[self.at..];
            match byte {
                b'/' if rest.starts_with("//") => self.line_comment(),
                b'/' if rest.starts_with("/*") => self.block_comment(),
                b'"' => self.string(),
                b'r' if self.is_rust && self.raw_string() => {}
                b'\'' => self.quote(),
                _ => self.advance(rest.chars().next().map_or(1, char::len_utf8)),
            }
        }
        self.passages
    }

    /// Moves on by `n` bytes and counts the lines in them.
    fn advance(&mut self, n: usize) {
        let end = (self.at + n).min(self.text.len());
        self.line += self.text[self.at..end].matches('\n').count();
        self.at = end;
    }

    fn line_comment(&mut self) {
        let rest = &self.text[self.at..];
        let comment = rest.lines().next().unwrap_or_default();
        let is_doc = self.is_rust
            && (comment.starts_with("//!")
                || (comment.starts_with("///") && !comment.starts_with("////")));
        let kind = if is_doc { Kind::Doc } else { Kind::Comment };
        append(&mut self.passages, kind, self.line, comment.trim_start_matches(['/', '!']));
        self.advance(comment.len());
    }

    fn block_comment(&mut self) {
        let rest = &self.text[self.at + 2..];
        let comment = &rest[..rest.find("*/").unwrap_or(rest.len())];
        let first = self.line;
        let lines = comment.lines().enumerate().map(|(index, line)| {
            (first + index, line.trim_start().trim_start_matches(['*', '!']).to_owned())
        });
        self.passages.push(Passage { kind: Kind::Block, lines: lines.collect() });
        self.advance(comment.len() + 4);
    }

    fn string(&mut self) {
        let first = self.line;
        let mut content = String::new();
        let mut chars = self.text[self.at + 1..].char_indices();
        let mut length = self.text.len() - self.at;
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    length = at + 2;
                    break;
                }
                // The backslash at the end of a line joins it with the next one.
                '\\' => match chars.next() {
                    Some((_, '\n')) => content.push('\n'),
                    _ => content.push(' '),
                },
                c => content.push(c),
            }
        }
        self.literal(first, &content);
        self.advance(length);
    }

    /// Reads a raw string, if one begins here.
    fn raw_string(&mut self) -> bool {
        let before = self.text[..self.at].chars().next_back();
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if before.is_some_and(|c| is_word(c) && c != 'b' && c != 'c') {
            return false;
        }
        let rest = &self.text[self.at + 1..];
        let hashes = rest.bytes().take_while(|b| *b == b'#').count();
        if rest.as_bytes().get(hashes) != Some(&b'"') {
            return false;
        }
        let content = &rest[hashes + 1..];
        let end = format!("\"{}", "#".repeat(hashes));
        let length = content.find(&end).unwrap_or(content.len());
        self.literal(self.line, &content[..length]);
        self.advance(1 + hashes + 1 + length + end.len());
        true
    }

    fn literal(&mut self, first: usize, content: &str) {
        let lines = content.lines().enumerate().map(|(i, line)| (first + i, line.to_owned()));
        self.passages.push(Passage { kind: Kind::Literal, lines: lines.collect() });
    }

    /// Passes over a character literal or the quote of a lifetime.
    fn quote(&mut self) {
        let mut chars = self.text[self.at + 1..].chars();
        let length = match chars.next() {
            // The escaped character may be a quote itself.
            Some('\\') => {
                let after = self.text[self.at + 1..].char_indices().skip(2);
                after.into_iter().find(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 2)
            }
            Some(c) if chars.next() == Some('\'') => 2 + c.len_utf8(),
            _ => 1,
        };
        self.advance(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str, text: &str) -> Vec<(Kind, Vec<(usize, String)>)> {
        passages(path, text).into_iter().map(|p| (p.kind, p.lines)).collect()
    }

    fn lines(lines: &[(usize, &str)]) -> Vec<(usize, String)> {
        lines.iter().map(|(n, text)| (*n, (*text).to_owned())).collect()
    }

    #[test]
    fn comments_of_rust_are_joined_by_kind() {
        let text = "//! A.\n//! B.\n\n/// C.\nfn f<'a>(q: char) { // D\n    // E\n}\n";
        assert_eq!(
            read("a/b.rs", text),
            [
                (Kind::Doc, lines(&[(1, " A."), (2, " B.")])),
                (Kind::Doc, lines(&[(4, " C.")])),
                (Kind::Comment, lines(&[(5, " D"), (6, " E")])),
            ]
        );
    }

    #[test]
    fn literals_hide_comments_and_quotes_hide_literals() {
        let text = "let a = \"no // comment \\\" here\\\n  on\"; let q = '\"'; let e = '\\'';\n\
                    let r = r#\"raw \" text\"#; let b = b\"x\"; // end\n";
        assert_eq!(
            read("a.rs", text),
            [
                (Kind::Literal, lines(&[(1, "no // comment   here"), (2, "  on")])),
                (Kind::Literal, lines(&[(3, "raw \" text")])),
                (Kind::Literal, lines(&[(3, "x")])),
                (Kind::Comment, lines(&[(3, " end")])),
            ]
        );
    }

    #[test]
    fn c_has_block_comments() {
        let text = "/* One\n * two. */\nint x; // three\nchar c = '\\\\';\n";
        assert_eq!(
            read("bpf/a.h", text),
            [
                (Kind::Block, lines(&[(1, "One"), (2, " two. ")])),
                (Kind::Comment, lines(&[(3, " three")])),
            ]
        );
    }

    #[test]
    fn shell_and_make_have_hashes() {
        let text = "#!/bin/sh\n# One\n# two\necho ${a#b} # three\n";
        let expected = [(Kind::Comment, lines(&[(2, " One"), (3, " two"), (4, " three")]))];
        assert_eq!(read("run", text), expected);
        assert_eq!(read("Makefile", &text[10..])[0].1[0].1, " One");
        assert_eq!(read("run", "no script # at all"), []);
    }

    #[test]
    fn markdown_is_read_without_code() {
        let text = "# Head\nOne\ntwo.\n\n```sh\n# code\n```\n- item\n  goes on\n- next\n| a | b |\n| c | d |\n";
        let kinds: Vec<_> =
            read("a.md", text).into_iter().map(|(k, l)| (k, l[0].0, l.len())).collect();
        assert_eq!(
            kinds,
            [
                (Kind::Heading, 1, 1),
                (Kind::Markdown, 2, 2),
                (Kind::Markdown, 8, 2),
                (Kind::Markdown, 10, 1),
                (Kind::Markdown, 11, 1),
                (Kind::Markdown, 12, 1),
            ]
        );
    }
}

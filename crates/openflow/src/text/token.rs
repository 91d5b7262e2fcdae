// SPDX-License-Identifier: Apache-2.0
//! `KEY`, `KEY=VALUE`, `KEY:VALUE`, `KEY(VALUE)` and `KEY(VALUE)->TARGET`, with commas or white
//! space between them.

/// Characters that separate tokens.
const DELIMITERS: [char; 5] = [',', ' ', '\t', '\r', '\n'];

/// One token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) key: &'a str,
    /// Empty when there is none.
    pub(super) value: &'a str,
    /// The text after the parentheses and `->`.
    pub(super) target: Option<&'a str>,
}

/// The tokens of a text. A parenthesis that is not closed is closed by the end of the text.
pub(super) struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Tokens<'a> {
        Tokens { rest: text }
    }
}

/// Length of the value at the start of `text`: up to one of `stops` outside parentheses.
fn value_len(text: &str, stops: &[char]) -> usize {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            c if depth == 0 && stops.contains(&c) => return at,
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    text.len()
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let text = self.rest.trim_start_matches(DELIMITERS);
        if text.is_empty() {
            self.rest = text;
            return None;
        }
        let key_len = text
            .find(|c: char| matches!(c, ':' | '=' | '(') || DELIMITERS.contains(&c))
            .unwrap_or(text.len());
        let (key, rest) = text.split_at(key_len);
        let mut token = Token { key, value: "", target: None };
        self.rest = rest;
        if let Some(rest) = rest.strip_prefix('(') {
            let (value, rest) = rest.split_at(value_len(rest, &[')']));
            token.value = value;
            self.rest = rest.strip_prefix(')').unwrap_or(rest);
            if let Some(rest) = self.rest.strip_prefix("->") {
                let (target, rest) = rest.split_at(value_len(rest, &DELIMITERS));
                token.target = Some(target);
                self.rest = rest;
            }
        } else if let Some(rest) = rest.strip_prefix([':', '=']) {
            let (value, rest) = rest.split_at(value_len(rest, &DELIMITERS));
            token.value = value;
            self.rest = rest;
        }
        Some(token)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The turns of phrase that `docs/style.md` bans, and the search for them.

use super::passages::{Kind, Passage};

/// A banned turn.
struct Turn {
    /// Elements separated by spaces: a word, alternatives `a|b`, `*` for any word, `#` for a
    /// number. A leading `^` means: at the start of a sentence that is no question.
    pattern: &'static str,
    /// The turn is right directly after one of these words.
    unless_after: &'static str,
    /// The turn is right when one of these words follows within [`REACH`] words.
    unless_before: &'static str,
    /// Words to use instead.
    instead: &'static str,
}

/// How many words after a turn may make it right.
const REACH: usize = 4;

const fn turn(pattern: &'static str, instead: &'static str) -> Turn {
    Turn { pattern, unless_after: "", unless_before: "", instead }
}

/// Nouns for people, and pronouns for them: "a person who must act" is plain English.
const PEOPLE: &str = "person people persons user users operator operators administrator \
    administrators owner owners author authors reader readers reviewer reviewers maintainer \
    maintainers contributor contributors engineer engineers reporter reporters attacker attackers \
    newcomer those anyone anybody everyone everybody someone somebody";

/// Objects that hosts, values and code are properly "behind".
const BEHIND: &str = "nat firewall port ports proxy router bridge switch link bond balancer mutex \
    lock pointer flag feature trait arc option";

const TURNS: &[Turn] = &[
    Turn {
        pattern: "who|whom|whoever|whomever",
        unless_after: PEOPLE,
        unless_before: "",
        instead: "name the thread, caller, sender, reader, …",
    },
    turn("^what", "begin with the noun that is meant"),
    turn(
        "^that a|an|the|it|there|they|each|every|no|nobody|one",
        "begin with the noun that is meant",
    ),
    turn("tell|tells|told|telling", "reports, logs, notifies, sets, distinguishes"),
    turn("is|are|was|were|be|been|being said", "is set, reported, stated, documented"),
    Turn {
        pattern: "so many|much|long|often",
        unless_after: "",
        unless_before: "that as",
        instead: "this many, this long, `n`, the count, the duration",
    },
    turn("anew", "again, from scratch"),
    turn("in vain", "without result, to no effect"),
    turn("for good and all", "permanently"),
    Turn {
        pattern: "behind a|an|the|each|every|it|its|that|them|all|this|these|those|one|both|which|what|another|others|their|his|some|any|our|ours",
        unless_after: "fall falls fell lag lags lagged far",
        unless_before: BEHIND,
        instead: "after, past, following, underneath",
    },
    turn("beside", "alongside, next to, in addition to"),
    turn("besides that", "in addition"),
    turn("look|looks|looked|looking|see|sees whether", "check whether"),
    turn("a look", "a check, a lookup, a scan"),
    turn("is|are a matter of", "depends on"),
    turn("of then|before .", "earlier, previous"),
    turn("each # s|ms|µs|ns|seconds|milliseconds|minutes|hours|packets", "every"),
    turn("each few|half|second|minute seconds|second", "every few seconds, twice a second"),
];

/// A banned turn that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The line on which it begins.
    pub line: usize,
    /// Its words as they stand there.
    pub words: String,
    /// Words to use instead.
    pub instead: &'static str,
}

/// Returns the banned turns of a passage.
pub fn check(passage: &Passage) -> Vec<Hit> {
    let tokens = tokens(passage);
    let words = tokens.iter().filter(|token| token.is_word()).count();
    if passage.kind == Kind::Literal && words < LITERAL_WORDS {
        return Vec::new();
    }
    let mut hits = Vec::new();
    let is_one_word = words == 1 && tokens.iter().all(|t| t.is_prose() && !t.is_constant());
    if passage.kind == Kind::Doc && is_one_word {
        hits.push(Hit {
            line: passage.lines[0].0,
            words: passage.lines[0].1.trim().to_owned(),
            instead: "say what it is for, its unit and special values, or make the item private",
        });
    }
    for start in 0..tokens.len() {
        let found = TURNS.iter().find_map(|turn| Some((turn, turn.at(&tokens, start)?)));
        let Some((turn, length)) = found else { continue };
        if turn.pattern.starts_with('^') && passage.kind == Kind::Heading {
            continue;
        }
        let words: Vec<&str> =
            tokens[start..start + length].iter().map(|t| t.text.as_str()).collect();
        hits.push(Hit { line: tokens[start].line, words: words.join(" "), instead: turn.instead });
    }
    hits
}

/// String literals with fewer words are names, formats and keys.
const LITERAL_WORDS: usize = 4;

impl Turn {
    /// Returns how many tokens the turn takes up from `start` on, if it is there.
    fn at(&self, tokens: &[Token], start: usize) -> Option<usize> {
        let (pattern, is_first) = match self.pattern.strip_prefix('^') {
            Some(rest) => (rest, true),
            None => (self.pattern, false),
        };
        if is_first && !(tokens[start].starts && tokens[start].is_capital()) {
            return None;
        }
        if is_first && is_question(&tokens[start..]) {
            return None;
        }
        let mut length = 0;
        for element in pattern.split(' ') {
            let token = tokens.get(start + length)?;
            if length > 0 && token.starts {
                return None;
            }
            if !element.split('|').any(|word| token.is(word)) {
                return None;
            }
            length += 1;
        }
        let listed = |list: &str, token: &Token| {
            list.split_whitespace().any(|word| token.text.to_lowercase() == word)
        };
        if start > 0 && !tokens[start].starts && listed(self.unless_after, &tokens[start - 1]) {
            return None;
        }
        let after = tokens[start + length..].iter().take_while(|token| !token.starts);
        if self.pattern.starts_with("behind") && after.clone().next().is_some_and(Token::is_code) {
            return None; // "behind an `Arc`"
        }
        // The object of a turn may be its last word: "behind ports".
        let last = &tokens[start + length - 1];
        if after.take(REACH).chain([last]).any(|token| listed(self.unless_before, token)) {
            return None;
        }
        Some(length)
    }
}

fn is_question(tokens: &[Token]) -> bool {
    let sentence =
        tokens.iter().enumerate().take_while(|(i, t)| *i == 0 || !t.starts).map(|(_, t)| t);
    sentence.last().is_some_and(|last| last.text == "?")
}

/// A word, a number, a mark at the end of a sentence, or something that is no prose.
#[derive(Debug)]
struct Token {
    text: String,
    line: usize,
    /// It is the first of its sentence.
    starts: bool,
}

/// Stands for code and quotations.
const CODE: &str = "`";

impl Token {
    fn is(&self, word: &str) -> bool {
        match word {
            "*" => true,
            "#" => self.text.starts_with(|c: char| c.is_ascii_digit()),
            // WHO may be a variable.
            word => !self.is_constant() && self.text.to_lowercase() == word,
        }
    }

    fn is_word(&self) -> bool {
        self.text.starts_with(char::is_alphabetic)
    }

    fn is_code(&self) -> bool {
        self.text == CODE
    }

    fn is_prose(&self) -> bool {
        !self.is_code() && !self.is("#")
    }

    /// It is written in capitals, as constants of specifications are.
    fn is_constant(&self) -> bool {
        let is_long = self.text.chars().nth(1).is_some();
        is_long && self.is_word() && self.text.chars().all(|c| !c.is_lowercase())
    }

    fn is_capital(&self) -> bool {
        self.text.starts_with(char::is_uppercase)
    }
}

fn tokens(passage: &Passage) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut starts = true;
    // The mark that ends the code or quotation at hand.
    let mut closing: Option<char> = None;
    for (line, text) in &passage.lines {
        let trimmed = text.trim();
        if trimmed.is_empty() || trimmed.starts_with(['-', '*', '#', '|']) {
            starts = true;
        }
        if trimmed.is_empty() {
            closing = None;
        }
        let chars: Vec<char> = text.chars().collect();
        let mut at = 0;
        while at < chars.len() {
            let c = chars[at];
            if let Some(mark) = closing {
                if c == mark {
                    closing = None;
                }
                at += 1;
                continue;
            }
            let end = at + chars[at..].iter().take_while(|c| is_part(**c)).count();
            match c {
                '`' | '"' => {
                    closing = Some(c);
                    tokens.push(Token { text: CODE.to_owned(), line: *line, starts });
                    starts = false;
                }
                '{' if passage.kind == Kind::Literal => {
                    if let Some(length) = placeholder(&chars[at..]) {
                        tokens.push(Token { text: CODE.to_owned(), line: *line, starts });
                        starts = false;
                        at += length;
                        continue;
                    }
                }
                // A quotation in typographic marks.
                '“' => closing = Some('”'),
                '|' => starts = true,
                '.' | '!' | '?' | ';' | ':' | ',' => {
                    let is_end = chars.get(at + 1).is_none_or(|next| !is_part(*next));
                    if is_end {
                        tokens.push(Token { text: c.to_string(), line: *line, starts: false });
                        starts |= matches!(c, '.' | '!' | '?');
                    }
                }
                c if is_part(c) => {
                    let text: String = chars[at..end].iter().collect();
                    let text = text.trim_end_matches('\'').to_owned();
                    tokens.push(Token { text, line: *line, starts });
                    starts = false;
                    at = end;
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
    }
    tokens
}

/// Returns the length of the placeholder of a format string, as `{name:?}`, at the start of
/// `chars`.
fn placeholder(chars: &[char]) -> Option<usize> {
    let end = chars.iter().position(|c| *c == '}')?;
    let is_code = chars[1..end].iter().all(|c| !c.is_whitespace() && *c != '{');
    is_code.then_some(end + 1)
}

/// A character of a word or a number.
fn is_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '\'' | '’' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lint::passages::passages;

    fn hits(path: &str, text: &str) -> Vec<(usize, String)> {
        let passages = passages(path, text);
        passages.iter().flat_map(check).map(|hit| (hit.line, hit.words)).collect()
    }

    fn words(text: &str) -> Vec<String> {
        hits("a.md", text).into_iter().map(|(_, words)| words).collect()
    }

    #[test]
    fn banned_turns_are_found() {
        for (text, turn) in [
            ("Who sends next takes along what was left.", "Who"),
            ("It is who sends that makes a thread.", "who"),
            ("The thread whom it wakes.", "whom"),
            ("The flow is told of at the end.", "told"),
            ("The kernel tells nobody.", "tells"),
            ("It is said in the log.", "is said"),
            ("Waits so many milliseconds.", "so many"),
            ("The table is built anew.", "anew"),
            ("The thread waited for it in vain.", "in vain"),
            ("Behind each of them is a pass.", "Behind each"),
            ("A packet behind a barrier.", "behind a"),
            ("Beside the table there is an index.", "Beside"),
            ("The thread looks whether it is set.", "looks whether"),
            ("A look at the table.", "A look"),
            ("It is a matter of the kernel.", "is a matter of"),
            ("By rules of then.", "of then ."),
            ("The revalidator runs each 5 s.", "each 5 s"),
            ("What a flow counts is a word.", "What"),
            ("That a device is gone is reported.", "That a"),
        ] {
            assert_eq!(words(text), [turn], "{text}");
        }
    }

    #[test]
    fn plain_english_passes() {
        for text in [
            "A person who must act.",
            "Users who run it.",
            "Hosts behind a port.",
            "The switch is behind a NAT.",
            "The replica falls behind the server.",
            "The value is behind an `Arc`.",
            "There are so many flows that the table is full.",
            "Each of 5 ports has its own.",
            "That is why it waits.",
            "That thread sleeps.",
            "What is a megaflow?",
            "A thread whose mask is empty.",
            "Besides, it is short.",
            "A sentence ends before. Then the next one begins.",
            "The `who sends` of \"anew\" and “in vain” are quoted.",
            "Run it with WHO=real",
            "The story",
        ] {
            assert_eq!(words(text), [""; 0], "{text}");
        }
        assert_eq!(words("## What works today"), [""; 0]);
        assert_eq!(words("```\nbuilt anew\n```"), [""; 0]);
    }

    #[test]
    fn a_turn_may_cross_a_line_but_no_sentence() {
        assert_eq!(hits("a.rs", "// x. Waits in\n// vain.\n"), [(1, "in vain".to_owned())]);
        assert_eq!(words("The first of. Then more."), [""; 0]);
        assert_eq!(words("| in | vain |"), [""; 0]);
    }

    #[test]
    fn placeholders_are_names() {
        let texts = "const A: &str = \"{told:?} of {who} is not in {}\";\n\
                     const B: &str = \"{told:?} is in a table made anew\";\n\
                     const C: &str = \"{{ who sends to it }} waits\";\n";
        let expected = [(2, "anew".to_owned()), (3, "who".to_owned())];
        assert_eq!(hits("a.rs", texts), expected);
    }

    #[test]
    fn comments_and_texts_are_checked_names_are_not() {
        let text = "/// Seconds.\nstruct A; // told\nconst B: &str = \"who\";\n\
                    const C: &str = \"the table is made anew\";\n";
        let expected = [(1, "Seconds.".to_owned()), (2, "told".to_owned()), (4, "anew".to_owned())];
        assert_eq!(hits("a.rs", text), expected);
        assert_eq!(
            hits(
                "a.rs",
                "/// [`Seconds`].\nstruct A;\n/// OFPT_HELLO.\nstruct C;\n/// RFC 826.\nstruct B;\n"
            ),
            []
        );
    }
}

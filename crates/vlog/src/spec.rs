// SPDX-License-Identifier: Apache-2.0
//! Log specifications: the argument of `-v` and of `vlog/set`.

use crate::level::{Destination, Facility, Level};

/// One parsed specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spec<'a> {
    /// `PATTERN:DEST:PATTERN`; no destination means all of them.
    Pattern(Option<Destination>, &'a str),
    /// `FACILITY:NAME`.
    Facility(Facility),
    /// Words in any order; what is not named means "all", and the level DBG.
    Levels { module: Option<String>, destination: Option<Destination>, level: Level },
}

const SEPARATORS: [char; 3] = [' ', ',', ':'];

/// Splits the first word off `text`. The separator after it is removed, later ones stay.
fn word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start_matches(SEPARATORS);
    if text.is_empty() { None } else { Some(text.split_once(SEPARATORS).unwrap_or((text, ""))) }
}

/// Reads a specification. `known` says whether a word is a module's name.
///
/// # Errors
/// OVS's text about the word that does not fit.
pub(crate) fn parse<'a>(text: &'a str, known: impl Fn(&str) -> bool) -> Result<Spec<'a>, String> {
    if let Some((first, rest)) = word(text) {
        if first.eq_ignore_ascii_case("PATTERN") {
            let (name, pattern) = word(rest).ok_or("missing destination")?;
            if name.eq_ignore_ascii_case("ANY") {
                return Ok(Spec::Pattern(None, pattern));
            }
            let destination = Destination::from_name(name)
                .ok_or_else(|| format!("unknown destination \"{name}\""))?;
            return Ok(Spec::Pattern(Some(destination), pattern));
        }
        if first.eq_ignore_ascii_case("FACILITY") {
            let facility = word(rest).and_then(|(name, _)| Facility::from_name(name));
            return Ok(Spec::Facility(facility.ok_or("invalid facility")?));
        }
    }

    let (mut module, mut destination, mut level) = (None, None, None);
    for word in text.split(SEPARATORS).filter(|w| !w.is_empty()) {
        if word.eq_ignore_ascii_case("ANY") {
            // Accepted for old scripts; means nothing.
        } else if let Some(found) = Destination::from_name(word) {
            if destination.replace(found).is_some() {
                return Err("cannot specify multiple destinations".into());
            }
        } else if let Some(found) = Level::from_name(word) {
            if level.replace(found).is_some() {
                return Err("cannot specify multiple levels".into());
            }
        } else if known(word) {
            if module.replace(word.to_owned()).is_some() {
                return Err("cannot specify multiple modules".into());
            }
        } else {
            return Err(format!("no destination, level, or module \"{word}\""));
        }
    }
    Ok(Spec::Levels { module, destination, level: level.unwrap_or(Level::Dbg) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn known(word: &str) -> bool {
        ["bridge", "ofproto"].iter().any(|m| m.eq_ignore_ascii_case(word))
    }

    fn levels(module: &str, destination: Option<Destination>, level: Level) -> Spec<'static> {
        let module = Some(module).filter(|m| !m.is_empty()).map(str::to_owned);
        Spec::Levels { module, destination, level }
    }

    #[test]
    fn words_in_any_order() {
        use Destination::{Console, File};
        for (text, want) in [
            ("", levels("", None, Level::Dbg)),
            ("console:emer", levels("", Some(Console), Level::Emer)),
            ("bridge,file warn", levels("bridge", Some(File), Level::Warn)),
            ("dbg:bridge", levels("bridge", None, Level::Dbg)),
            (":file:dbg", levels("", Some(File), Level::Dbg)),
            ("BRIDGE:DBG", levels("BRIDGE", None, Level::Dbg)),
            ("ANY:any:info", levels("", None, Level::Info)),
            ("any:file", levels("", Some(File), Level::Dbg)),
            ("off", levels("", None, Level::Off)),
        ] {
            assert_eq!(parse(text, known), Ok(want), "{text}");
        }
    }

    #[test]
    fn errors_are_those_of_ovs() {
        for (text, want) in [
            ("foo", "no destination, level, or module \"foo\""),
            ("bridge:file:dbg:x", "no destination, level, or module \"x\""),
            ("bridge:ofproto:dbg", "cannot specify multiple modules"),
            ("file:console:dbg", "cannot specify multiple destinations"),
            ("dbg:info", "cannot specify multiple levels"),
            ("PATTERN", "missing destination"),
            ("PATTERN:foo:xx", "unknown destination \"foo\""),
            ("FACILITY", "invalid facility"),
            ("FACILITY:nosuch", "invalid facility"),
        ] {
            assert_eq!(parse(text, known), Err(want.to_owned()), "{text}");
        }
    }

    #[test]
    fn patterns_keep_their_separators() {
        assert_eq!(
            parse("PATTERN:any:hello:a b,c|%m", known),
            Ok(Spec::Pattern(None, "hello:a b,c|%m"))
        );
        assert_eq!(
            parse("pattern file :%A", known),
            Ok(Spec::Pattern(Some(Destination::File), ":%A"))
        );
        assert_eq!(
            parse("PATTERN:console", known),
            Ok(Spec::Pattern(Some(Destination::Console), ""))
        );
        assert_eq!(parse("FACILITY:daemon", known), Ok(Spec::Facility(Facility::DAEMON)));
    }

    proptest! {
        #[test]
        fn any_text_is_safe(text in ".*") {
            let _ = parse(&text, known);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Log patterns: how a record becomes a line. The escapes are those of `ovs-appctl(8)`,
//! "vlog/set PATTERN".

use std::fmt::Write;
use std::time::SystemTime;

use crate::calendar::Civil;
use crate::level::{Facility, Level};

/// All that a pattern can speak of.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// The program's name, `ovs-vswitchd`.
    pub program: &'a str,
    /// The host's name.
    pub host: &'a str,
    /// The module's name.
    pub module: &'a str,
    /// The message's level.
    pub level: Level,
    /// The text of the message, without prefix or line end.
    pub message: &'a str,
    /// The serial number in this run, from 1.
    pub serial: u64,
    /// The process's number.
    pub pid: u32,
    /// The thread's name; empty in the main thread of the main process.
    pub subprogram: &'a str,
    /// The wall-clock time at which the message was logged.
    pub time: SystemTime,
    /// Milliseconds since the program started.
    pub uptime_ms: u128,
    /// The facility that `%B` speaks of.
    pub facility: Facility,
    /// Seconds east of UTC, for `%d`.
    pub local_offset: i32,
}

const DEFAULT_DATE: &str = "%Y-%m-%d %H:%M:%S.###";

/// No expansion is padded to more than this many characters, whatever a pattern asks for.
const MAX_WIDTH: usize = 1024;

impl Record<'_> {
    /// Appends the line that `pattern` makes of the record, without a line end.
    ///
    /// Total: an escape that is not known stands for its own letter, as in OVS; a `%` at the end
    /// stands for itself.
    pub fn format(&self, pattern: &str, out: &mut String) {
        let mut rest = pattern;
        while let Some(percent) = rest.find('%') {
            let (literal, escape) = rest.split_at(percent);
            out.push_str(literal);
            rest = self.escape(escape.strip_prefix('%').unwrap_or(escape), out);
        }
        out.push_str(rest);
    }

    /// Expands the escape at the start of `text` (after its `%`) and returns what follows it.
    fn escape<'t>(&self, text: &'t str, out: &mut String) -> &'t str {
        let (left, text) = match text.strip_prefix('-') {
            Some(text) => (true, text),
            None => (false, text),
        };
        let (zero, text) = match text.strip_prefix('0') {
            Some(text) => (true, text),
            None => (false, text),
        };
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (width, text) = text.split_at(digits);
        let width = match width {
            "" => 0,
            digits => digits.parse::<usize>().unwrap_or(MAX_WIDTH).min(MAX_WIDTH),
        };
        let mut chars = text.chars();
        let Some(letter) = chars.next() else {
            out.push('%');
            return "";
        };
        let mut rest = chars.as_str();

        let start = out.len();
        // Writing to a String cannot fail.
        let _ = match letter {
            'A' => write!(out, "{}", self.program),
            'B' => {
                let pri =
                    u16::from(self.facility.number()) * 8 + u16::from(self.level.syslog_severity());
                write!(out, "{pri}")
            }
            'c' => write!(out, "{}", self.module),
            'd' | 'D' => {
                let (format, after) = braced(rest).unwrap_or((DEFAULT_DATE, rest));
                rest = after;
                let offset = if letter == 'd' { self.local_offset } else { 0 };
                Civil::new(self.time, offset).format(format, out);
                Ok(())
            }
            'E' => write!(out, "{}", self.host),
            'm' => {
                push_message(self.message, out);
                Ok(())
            }
            'N' => write!(out, "{}", self.serial),
            'n' => writeln!(out),
            'p' => write!(out, "{}", self.level.name()),
            'P' => write!(out, "{}", self.pid),
            'r' => write!(out, "{}", self.uptime_ms),
            't' if self.subprogram.is_empty() => write!(out, "main"),
            't' => write!(out, "{}", self.subprogram),
            'T' if self.subprogram.is_empty() => Ok(()),
            'T' => write!(out, "({})", self.subprogram),
            other => write!(out, "{other}"),
        };

        let used = out.get(start..).map_or(0, |s| s.chars().count());
        if used < width {
            let padding: String =
                std::iter::repeat_n(if zero { '0' } else { ' ' }, width - used).collect();
            if left {
                out.push_str(&padding);
            } else {
                // `start` was the length of the string, so it is on a character's border.
                out.insert_str(start, &padding);
            }
        }
        rest
    }
}

/// Splits `{inside}after`.
fn braced(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('{')?.split_once('}')
}

/// Copies a message. Control characters other than line ends and tabs are written as `\xNN`, so
/// that a name or a packet's content quoted in a message cannot drive the reader's terminal.
fn push_message(message: &str, out: &mut String) {
    for c in message.chars() {
        if c.is_control() && c != '\n' && c != '\t' {
            let _ = write!(out, "\\x{:02x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn record() -> Record<'static> {
        Record {
            program: "ovs-vswitchd",
            host: "vm",
            module: "jsonrpc",
            level: Level::Dbg,
            message: "text",
            serial: 227,
            pid: 5218,
            subprogram: "",
            time: UNIX_EPOCH + Duration::from_millis(1_795_294_117_217),
            uptime_ms: 46_090,
            facility: Facility::from_name("local3").unwrap(),
            local_offset: 3600,
        }
    }

    fn text(pattern: &str) -> String {
        let mut out = String::new();
        record().format(pattern, &mut out);
        out
    }

    #[test]
    fn every_escape_as_the_real_program_prints_it() {
        assert_eq!(
            text(
                "%A|%B|%c|%D|%D{%H:%M:%S.### x}|%E|%m|%N|%05N|%5N|%-8c|%8c|%08c|%n|%p|%-6p|%P|%r|%t|%T|%t{main}|%T{mainx}|%%|%z|%"
            ),
            "ovs-vswitchd|159|jsonrpc|2026-11-21 20:48:37.217|20:48:37.217 x|vm|text|227|00227|  227|jsonrpc | jsonrpc|0jsonrpc|\n|DBG|DBG   |5218|46090|main||main{main}|{mainx}|%|z|%"
        );
        assert_eq!(text("%d{%H}"), "21");
        assert_eq!(text("%D{"), "2026-11-21 20:48:37.217{");
    }

    #[test]
    fn threads_are_named() {
        let mut out = String::new();
        Record { subprogram: "revalidator1", ..record() }.format("%c%T|%t", &mut out);
        assert_eq!(out, "jsonrpc(revalidator1)|revalidator1");
    }

    #[test]
    fn default_lines() {
        use crate::level::Destination;
        assert_eq!(
            text(Destination::File.default_pattern()),
            "2026-11-21T20:48:37.217Z|00227|jsonrpc|DBG|text"
        );
        assert_eq!(
            text(Destination::Console.default_pattern()),
            "2026-11-21T20:48:37Z|00227|jsonrpc|DBG|text"
        );
        assert_eq!(text(Destination::Syslog.default_pattern()), "ovs|00227|jsonrpc|DBG|text");
    }

    #[test]
    fn control_characters_cannot_reach_a_terminal() {
        let mut out = String::new();
        Record { message: "a\x1b[2J\tb\n\u{9b}c", ..record() }.format("%m", &mut out);
        assert_eq!(out, "a\\x1b[2J\tb\n\\x9bc");
    }

    proptest! {
        #[test]
        fn any_pattern_is_safe(pattern in "(%|[-0-9A-Za-z{}]|\\PC)*") {
            text(&pattern);
        }

        #[test]
        fn width_is_bounded(width in any::<u128>()) {
            let pattern = format!("%{}c", width);
            prop_assert!(text(&pattern).len() <= 2 * MAX_WIDTH);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Severity levels, destinations and syslog facilities: the closed word lists that a log
//! specification is made of.

use std::fmt;

/// The severity of a message, or the threshold of a destination.
///
/// Ordered from silent to talkative: a message of level `m` reaches a destination whose
/// threshold is `t` when `m <= t`. [`Level::Off`] is a threshold only, never a message's level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// Nothing at all.
    Off = 0,
    /// The process is about to stop.
    Emer = 1,
    /// Something failed that a person should repair.
    Err = 2,
    /// Something that a person should look at.
    Warn = 3,
    /// Events of a normal run.
    Info = 4,
    /// Debugging messages: everything is logged.
    Dbg = 5,
}

impl Level {
    /// All levels, from silent to talkative.
    pub const ALL: [Level; 6] =
        [Level::Off, Level::Emer, Level::Err, Level::Warn, Level::Info, Level::Dbg];

    /// The name as it stands in a log line (`%p`) and in `vlog/list`.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Off => "OFF",
            Level::Emer => "EMER",
            Level::Err => "ERR",
            Level::Warn => "WARN",
            Level::Info => "INFO",
            Level::Dbg => "DBG",
        }
    }

    /// The level with this name, in any case.
    pub fn from_name(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|l| l.name().eq_ignore_ascii_case(name))
    }

    /// The syslog severity (RFC 5424 section 6.2.1) that OVS gives to the level: INFO is
    /// *notice*, EMER is *alert*.
    pub const fn syslog_severity(self) -> u8 {
        match self {
            Level::Off | Level::Emer => 1,
            Level::Err => 3,
            Level::Warn => 4,
            Level::Info => 5,
            Level::Dbg => 7,
        }
    }

    /// The level stored as `raw`; values that no level has mean [`Level::Dbg`].
    pub(crate) const fn from_raw(raw: u8) -> Level {
        match raw {
            0 => Level::Off,
            1 => Level::Emer,
            2 => Level::Err,
            3 => Level::Warn,
            4 => Level::Info,
            _ => Level::Dbg,
        }
    }

    /// The level of an event of `tracing`; `None` for TRACE, which lies below all that OVS has.
    pub fn from_tracing(level: &tracing::Level) -> Option<Level> {
        if *level == tracing::Level::ERROR {
            Some(Level::Err)
        } else if *level == tracing::Level::WARN {
            Some(Level::Warn)
        } else if *level == tracing::Level::INFO {
            Some(Level::Info)
        } else if *level == tracing::Level::DEBUG {
            Some(Level::Dbg)
        } else {
            None
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Where lines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Destination {
    /// The system log.
    Syslog = 0,
    /// The standard error output.
    Console = 1,
    /// The log file, when one is open.
    File = 2,
}

impl Destination {
    /// All destinations in the order of `vlog/list-pattern`.
    pub const ALL: [Destination; 3] =
        [Destination::Syslog, Destination::Console, Destination::File];

    /// The upper-case name that `vlog/list-pattern` prints.
    pub const fn name(self) -> &'static str {
        match self {
            Destination::Syslog => "SYSLOG",
            Destination::Console => "CONSOLE",
            Destination::File => "FILE",
        }
    }

    /// The destination with this name, in any case.
    pub fn from_name(name: &str) -> Option<Destination> {
        Destination::ALL.into_iter().find(|d| d.name().eq_ignore_ascii_case(name))
    }

    /// The pattern a process starts with.
    pub const fn default_pattern(self) -> &'static str {
        match self {
            Destination::Syslog => "ovs|%05N|%c%T|%p|%m",
            Destination::Console => "%D{%Y-%m-%dT%H:%M:%SZ}|%05N|%c%T|%p|%m",
            Destination::File => "%D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m",
        }
    }
}

/// Facilities by RFC 5424 section 6.2.1, each at the place of its number.
/// (number 10, authpriv, is not offered by OVS and stands empty).
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "clock", "", "ftp",
    "ntp", "audit", "alert", "clock2", "local0", "local1", "local2", "local3", "local4", "local5",
    "local6", "local7",
];

/// A syslog facility.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facility(u8);

impl Facility {
    /// System daemons: the facility of local messages when none is set.
    pub const DAEMON: Facility = Facility(3);
    /// The facility of messages to a `--syslog-target` when none is set.
    pub const LOCAL0: Facility = Facility(16);

    /// The facility with this name, in any case.
    pub fn from_name(name: &str) -> Option<Facility> {
        if name.is_empty() {
            return None;
        }
        let position = FACILITIES.iter().position(|f| f.eq_ignore_ascii_case(name))?;
        u8::try_from(position).ok().map(Facility)
    }

    /// The number that stands in a PRI, before it is multiplied by eight.
    pub const fn number(self) -> u8 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facility_numbers_follow_rfc_5424() {
        for (name, number) in [
            ("kern", 0),
            ("daemon", 3),
            ("uucp", 8),
            ("clock", 9),
            ("ftp", 11),
            ("ntp", 12),
            ("audit", 13),
            ("alert", 14),
            ("clock2", 15),
            ("local0", 16),
            ("LOCAL7", 23),
        ] {
            assert_eq!(Facility::from_name(name).map(Facility::number), Some(number), "{name}");
        }
        assert_eq!(Facility::from_name(""), None);
        assert_eq!(Facility::from_name("daemo"), None);
    }

    #[test]
    fn levels_are_ordered_and_named() {
        assert!(Level::Emer < Level::Dbg);
        assert_eq!(Level::from_name("wArN"), Some(Level::Warn));
        assert_eq!(Level::from_name("warning"), None);
        for level in Level::ALL {
            assert_eq!(Level::from_raw(level as u8), level);
        }
    }
}

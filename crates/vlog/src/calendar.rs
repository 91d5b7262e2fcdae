// SPDX-License-Identifier: Apache-2.0
//! Dates for log lines: the civil calendar and the conversions of `strftime(3)` in the C locale
//! that log patterns use, over an explicit time, so that nothing here reads a clock.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An instant broken into the fields of the proleptic Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// Year, as written.
    pub year: i64,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 59 (POSIX time has no leap seconds).
    pub second: u8,
    /// Milliseconds, 0 to 999.
    pub millisecond: u16,
    /// Day of the week, 0 is Sunday.
    pub weekday: u8,
    /// Day of the year, 0 is 1 January.
    pub yearday: u16,
    /// Seconds east of UTC that the fields above already contain.
    pub offset: i32,
    /// Seconds since 1970-01-01T00:00:00Z.
    pub unix: i64,
}

const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const fn is_leap(year: i64) -> bool {
    (year % 4 == 0 && year % 100 != 0) || year % 400 == 0
}

/// The days of each month of `year`.
const fn month_lengths(year: i64) -> [u8; 12] {
    [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
}

impl Civil {
    /// The fields of `time`, shifted by `offset` seconds east of UTC. Times before 1970 work;
    /// years stay within ±300,000 because [`SystemTime`] is clamped to that.
    pub fn new(time: SystemTime, offset: i32) -> Civil {
        let (mut unix, millisecond) = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => {
                (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_millis())
            }
            Err(before) => {
                let before: Duration = before.duration();
                let whole = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                match before.subsec_millis() {
                    0 => (-whole, 0),
                    ms => (-whole - 1, 1000 - ms),
                }
            }
        };
        const FAR: i64 = 9_000_000_000_000; // about the year 287,000
        unix = unix.clamp(-FAR, FAR);
        let local = unix + i64::from(offset);
        let days = local.div_euclid(86_400);
        let seconds = local.rem_euclid(86_400);

        // Whole 400-year cycles (146,097 days) first, then year by year: at most 400 steps.
        let mut year = 1970 + 400 * days.div_euclid(146_097);
        let mut rest = days.rem_euclid(146_097);
        loop {
            let length = if is_leap(year) { 366 } else { 365 };
            if rest < length {
                break;
            }
            rest -= length;
            year += 1;
        }
        let yearday = rest;
        let mut month = 1u8;
        for length in month_lengths(year) {
            if rest < i64::from(length) {
                break;
            }
            rest -= i64::from(length);
            month += 1;
        }
        // Every value below is bounded by the remainders above, so the narrowing is exact.
        Civil {
            year,
            month,
            day: rest as u8 + 1,
            hour: (seconds / 3_600) as u8,
            minute: (seconds / 60 % 60) as u8,
            second: (seconds % 60) as u8,
            millisecond: millisecond as u16,
            weekday: (days + 4).rem_euclid(7) as u8,
            yearday: yearday as u16,
            offset,
            unix,
        }
    }

    /// Appends the instant by `format`: the conversions of `strftime(3)` in the C locale, and
    /// each `#` outside a conversion as one more digit of the fraction of the second (zero after
    /// the third). A conversion that is not known is copied as it stands.
    pub fn format(&self, format: &str, out: &mut String) {
        let fraction = format!("{:03}", self.millisecond);
        let mut digits = fraction.bytes();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            match c {
                '#' => out.push(char::from(digits.next().unwrap_or(b'0'))),
                '%' => {
                    // `E` and `O` ask for a locale's alternative forms; the C locale has none.
                    let mut conversion = chars.next();
                    if matches!(conversion, Some('E' | 'O')) {
                        conversion = chars.next();
                    }
                    match conversion {
                        Some(conversion) => self.convert(conversion, out),
                        None => out.push('%'),
                    }
                }
                other => out.push(other),
            }
        }
    }

    fn convert(&self, conversion: char, out: &mut String) {
        let weekday = WEEKDAYS.get(usize::from(self.weekday)).copied().unwrap_or("?");
        let month = MONTHS.get(usize::from(self.month).wrapping_sub(1)).copied().unwrap_or("?");
        let short = |name: &str| name.chars().take(3).collect::<String>();
        let hour12 = match self.hour % 12 {
            0 => 12,
            hour => hour,
        };
        let monday = (self.weekday + 6) % 7;
        let (iso_year, iso_week) = self.iso_week();
        // Writing to a String cannot fail.
        let _ = match conversion {
            'a' => write!(out, "{}", short(weekday)),
            'A' => write!(out, "{weekday}"),
            'b' | 'h' => write!(out, "{}", short(month)),
            'B' => write!(out, "{month}"),
            'c' => return self.format("%a %b %e %H:%M:%S %Y", out),
            'C' => write!(out, "{:02}", self.year.div_euclid(100)),
            'd' => write!(out, "{:02}", self.day),
            'D' | 'x' => return self.format("%m/%d/%y", out),
            'e' => write!(out, "{:2}", self.day),
            'F' => return self.format("%Y-%m-%d", out),
            'g' => write!(out, "{:02}", iso_year.rem_euclid(100)),
            'G' => write!(out, "{iso_year:04}"),
            'H' => write!(out, "{:02}", self.hour),
            'I' => write!(out, "{hour12:02}"),
            'j' => write!(out, "{:03}", self.yearday + 1),
            'k' => write!(out, "{:2}", self.hour),
            'l' => write!(out, "{hour12:2}"),
            'm' => write!(out, "{:02}", self.month),
            'M' => write!(out, "{:02}", self.minute),
            'n' => writeln!(out),
            'p' => write!(out, "{}", if self.hour < 12 { "AM" } else { "PM" }),
            'P' => write!(out, "{}", if self.hour < 12 { "am" } else { "pm" }),
            'r' => return self.format("%I:%M:%S %p", out),
            'R' => return self.format("%H:%M", out),
            's' => write!(out, "{}", self.unix),
            'S' => write!(out, "{:02}", self.second),
            't' => write!(out, "\t"),
            'T' | 'X' => return self.format("%H:%M:%S", out),
            'u' => write!(out, "{}", monday + 1),
            'U' => write!(out, "{:02}", (self.yearday + 7 - u16::from(self.weekday)) / 7),
            'V' => write!(out, "{iso_week:02}"),
            'w' => write!(out, "{}", self.weekday),
            'W' => write!(out, "{:02}", (self.yearday + 7 - u16::from(monday)) / 7),
            'y' => write!(out, "{:02}", self.year.rem_euclid(100)),
            'Y' => write!(out, "{}", self.year),
            'z' => {
                let sign = if self.offset < 0 { '-' } else { '+' };
                let minutes = self.offset.unsigned_abs() / 60;
                write!(out, "{sign}{:02}{:02}", minutes / 60, minutes % 60)
            }
            'Z' if self.offset == 0 => write!(out, "UTC"),
            'Z' => return self.convert('z', out),
            '%' => write!(out, "%"),
            other => write!(out, "%{other}"),
        };
    }

    /// The year and number of the ISO 8601 week.
    fn iso_week(&self) -> (i64, i64) {
        let monday = i64::from((self.weekday + 6) % 7);
        // The week belongs to the year that its Thursday is in.
        let thursday = i64::from(self.yearday) - monday + 3;
        let length = if is_leap(self.year) { 366 } else { 365 };
        if thursday < 0 {
            let before = if is_leap(self.year - 1) { 366 } else { 365 };
            (self.year - 1, (thursday + before) / 7 + 1)
        } else if thursday >= length {
            (self.year + 1, (thursday - length) / 7 + 1)
        } else {
            (self.year, thursday / 7 + 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(unix: u64, ms: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(unix * 1000 + ms)
    }

    fn text(time: SystemTime, format: &str) -> String {
        let mut out = String::new();
        Civil::new(time, 0).format(format, &mut out);
        out
    }

    #[test]
    fn known_instants() {
        // Checked with date(1) -u.
        assert_eq!(
            text(at(1_763_757_971, 7), "%Y-%m-%dT%H:%M:%S.###Z"),
            "2025-11-21T20:46:11.007Z"
        );
        assert_eq!(
            text(at(951_782_400, 0), "%F %j %a %A %b %e %U %W %V %G"),
            "2000-02-29 060 Tue Tuesday Feb 29 09 09 09 2000"
        );
        assert_eq!(
            text(at(0, 999), "%c|%s|%p|%I|%y|%C|#####"),
            "Thu Jan  1 00:00:00 1970|0|AM|12|70|19|99900"
        );
        assert_eq!(
            text(at(1_609_459_199, 0), "%V %G %g %u %w %T %D %R %r"),
            "53 2020 20 4 4 23:59:59 12/31/20 23:59 11:59:59 PM"
        );
        assert_eq!(text(at(1_609_459_200, 0), "%V %G %Z %z %%|%Q|%"), "53 2020 UTC +0000 %|%Q|%");
    }

    #[test]
    fn before_1970_and_far_away() {
        assert_eq!(
            text(UNIX_EPOCH - Duration::from_millis(1), "%F %T.###"),
            "1969-12-31 23:59:59.999"
        );
        assert!(!text(UNIX_EPOCH + Duration::from_secs(u64::MAX / 4), "%F").is_empty());
    }

    #[test]
    fn offset_shifts_the_fields() {
        let mut out = String::new();
        Civil::new(at(0, 0), -5 * 3600 - 1800).format("%F %T %z", &mut out);
        assert_eq!(out, "1969-12-31 18:30:00 -0530");
    }

    proptest! {
        #[test]
        fn successive_days_are_successive(day in 0u64..200_000) {
            let a = Civil::new(at(day * 86_400, 0), 0);
            let b = Civil::new(at((day + 1) * 86_400, 0), 0);
            prop_assert_eq!((a.weekday + 1) % 7, b.weekday);
            let next = (b.year, b.month, b.day);
            prop_assert!(next == (a.year, a.month, a.day + 1)
                || next == (a.year, a.month + 1, 1)
                || next == (a.year + 1, 1, 1));
        }

        #[test]
        fn any_format_is_safe(format in ".*", unix in any::<u32>()) {
            text(at(u64::from(unix), 0), &format);
        }
    }
}

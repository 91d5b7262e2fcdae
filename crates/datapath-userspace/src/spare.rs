//! Whether the machine has CPU time that nobody wants.

use crate::budget::Nanos;
use std::io::Read as _;
use std::sync::{Mutex, PoisonError};

/// Between two looks. The kernel counts in ticks of some milliseconds.
const INTERVAL: Nanos = 100_000_000;
/// The part of the machine that must have been idle: less is no room for anybody.
const PART: u64 = 8;

/// Ticks of all CPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    all: u64,
}

impl Ticks {
    /// From the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq and
    /// steal, see proc(5). (What guests use is in user.)
    fn parse(stat: &str) -> Option<Ticks> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let mut fields = [0u64; 8];
        for (field, text) in fields.iter_mut().zip(line.split_ascii_whitespace()) {
            *field = text.parse().ok()?;
        }
        let [_, _, _, idle, waiting, ..] = fields;
        let all = fields.iter().fold(0u64, |sum, field| sum.wrapping_add(*field));
        Some(Ticks { idle: idle.wrapping_add(waiting), all })
    }

    fn read() -> Option<Ticks> {
        let mut start = [0; 256];
        let length = std::fs::File::open("/proc/stat").ok()?.read(&mut start).ok()?;
        Ticks::parse(&String::from_utf8_lossy(start.get(..length)?))
    }

    /// True when, since `before`, enough was idle.
    fn leaves_room(self, before: Ticks) -> bool {
        let (idle, all) =
            (self.idle.saturating_sub(before.idle), self.all.saturating_sub(before.all));
        all > 0 && idle.saturating_mul(PART) >= all
    }
}

#[derive(Default)]
struct Look {
    /// When, and what was found then; `None`: `/proc/stat` says nothing.
    at: Nanos,
    ticks: Option<Ticks>,
    idle: bool,
}

/// Looks at the machine now and then, only when it is asked. Without `/proc` it has none to spare.
#[derive(Default)]
pub(crate) struct Spare(Mutex<Look>);

impl Spare {
    /// True when a good part of the machine was idle lately. `now`: of [`crate::budget::now`].
    pub(crate) fn is_there(&self, now: Nanos) -> bool {
        let mut look = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let age = now.saturating_sub(look.at);
        if age >= INTERVAL {
            let ticks = Ticks::read();
            // What is long ago says nothing of now.
            let recent = look.ticks.filter(|_| age < 10 * INTERVAL);
            look.idle = match (recent, ticks) {
                (Some(before), Some(ticks)) => ticks.leaves_room(before),
                _ => false,
            };
            (look.at, look.ticks) = (now, ticks);
        }
        look.idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_read() {
        let stat = "cpu  10 20 30 400 50 6 7 8 9 1\ncpu0 1 2 3 4\n";
        assert_eq!(Ticks::parse(stat), Some(Ticks { idle: 450, all: 531 }));
        assert_eq!(Ticks::parse("cpu 1 2 3 4"), Some(Ticks { idle: 4, all: 10 }));
        for junk in ["", "cpu", "cpux 1", "intr 1 2", "cpu  1 x 3"] {
            assert_eq!(Ticks::parse(junk), None, "{junk}");
        }
        assert!(Ticks::read().is_some_and(|ticks| ticks.all > ticks.idle));
    }

    #[test]
    fn an_eighth_is_room() {
        let before = Ticks { idle: 100, all: 1000 };
        let after =
            |idle: u64, all: u64| Ticks { idle: 100 + idle, all: 1000 + all }.leaves_room(before);
        assert!(after(10, 80) && after(80, 80));
        assert!(!after(9, 80) && !after(0, 80) && !after(0, 0));
        // Counters of idle time have gone backwards on some kernels.
        assert!(!Ticks { idle: 0, all: 2000 }.leaves_room(before));
    }

    #[test]
    fn one_look_says_nothing() {
        let spare = Spare::default();
        assert!(!spare.is_there(5 * INTERVAL));
        let late = 100 * INTERVAL;
        assert!(!spare.is_there(late), "too long ago");
    }
}

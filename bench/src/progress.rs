// SPDX-License-Identifier: Apache-2.0
//! Progress of a run, on the standard error output.

use crate::point::Point;
use crate::report::scale::number;
use std::time::{Duration, Instant};

/// How far a run is, and how long it is expected to take.
pub struct Progress {
    begin: Instant,
    /// Expected seconds of all experiments, of those that are over, and of the present one.
    expected: (u64, u64, u64),
    /// Number of the present experiment and of all.
    number: (usize, usize),
    /// When the present experiment began.
    began: Duration,
}

impl Progress {
    /// For experiments that are expected to take this many seconds each.
    pub fn new(seconds: &[u64]) -> Progress {
        Progress {
            begin: Instant::now(),
            expected: (seconds.iter().sum(), 0, 0),
            number: (0, seconds.len()),
            began: Duration::ZERO,
        }
    }

    /// Reports that the next experiment begins.
    pub fn next(&mut self, title: &str, seconds: u64) {
        self.number.0 += 1;
        self.expected.1 += self.expected.2;
        self.expected.2 = seconds;
        self.began = self.begin.elapsed();
        let (elapsed, left) = (self.began, self.left(self.began));
        let (number, all) = self.number;
        eprintln!("[{number}/{all}] {title} ({} gone, about {} left)", clock(elapsed), clock(left));
    }

    /// Reports that something that takes a while begins.
    pub fn say(&self, words: &str) {
        let elapsed = self.begin.elapsed();
        eprintln!("  {} {words} (about {} left)", clock(elapsed), clock(self.left(elapsed)));
    }

    /// Reports a figure.
    pub fn point(&self, point: &Point) {
        let mut name = format!("{}, {}", point.system, point.metric);
        for (parameter, value) in &point.parameters {
            name.push_str(&format!(", {parameter} {value}"));
        }
        let mut figure = match (point.median, &point.note) {
            (Some(median), _) => format!("{} {}", number(median), point.unit),
            (None, why) => {
                let why = why.as_deref().and_then(|why| why.lines().next());
                format!("not measured: {}", why.unwrap_or_default())
            }
        };
        if let Some(ratio) = &point.ratio_to {
            figure.push_str(&format!(" ({} of {})", number(ratio.median), ratio.system));
        }
        let unsteady = if point.unsteady { " ~" } else { "" };
        eprintln!("  {} {name}: {figure}{unsteady}", clock(self.begin.elapsed()));
    }

    pub fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// The time that is expected to be left. An experiment that takes longer than expected is
    /// always about to end.
    fn left(&self, elapsed: Duration) -> Duration {
        let (all, over, present) = self.expected;
        let rest = |over: u64| Duration::from_secs(all.saturating_sub(over));
        rest(over).saturating_sub(elapsed.saturating_sub(self.began)).max(rest(over + present))
    }
}

/// Minutes and seconds.
pub fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_what_the_experiments_are_expected_to_take() {
        let mut progress = Progress::new(&[10, 30]);
        progress.next("a", 10);
        progress.began = Duration::ZERO;
        assert_eq!(progress.left(Duration::ZERO), Duration::from_secs(40));
        assert_eq!(progress.left(Duration::from_secs(4)).as_secs(), 36);
        assert_eq!(progress.left(Duration::from_secs(90)).as_secs(), 30);
        progress.next("b", 30);
        progress.began = Duration::from_secs(10);
        assert_eq!(progress.left(Duration::from_secs(10)), Duration::from_secs(30));
        assert_eq!(progress.left(Duration::from_secs(200)), Duration::ZERO);
        assert_eq!(clock(Duration::from_secs(125)), "2:05");
    }
}

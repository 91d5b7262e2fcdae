// SPDX-License-Identifier: Apache-2.0
//! Progress of a run, on the standard error output.

use crate::point::Point;
use crate::report::number::number;
use std::time::{Duration, Instant};

/// How far a run is, and how long it is expected to take.
pub struct Progress {
    begin: Instant,
    /// Expected seconds of the present experiment and of those that follow.
    left: u64,
    /// Expected seconds of the present experiment.
    present: u64,
    /// Number of the present experiment and of all.
    number: (usize, usize),
}

impl Progress {
    /// For experiments that are expected to take this many seconds each.
    pub fn new(seconds: &[u64]) -> Progress {
        let (left, number) = (seconds.iter().sum(), (0, seconds.len()));
        Progress { begin: Instant::now(), left, present: 0, number }
    }

    /// Reports that the next experiment begins.
    pub fn next(&mut self, title: &str, seconds: u64) {
        self.number.0 += 1;
        self.left = self.left.saturating_sub(self.present);
        self.present = seconds;
        let ((number, all), elapsed) = (self.number, clock(self.begin.elapsed()));
        let left = clock(Duration::from_secs(self.left));
        eprintln!("[{number}/{all}] {title} ({elapsed} gone, about {left} left)");
    }

    /// Reports that something that takes a while begins.
    pub fn say(&self, words: &str) {
        eprintln!("  {} {words}", clock(self.begin.elapsed()));
    }

    /// Reports a figure.
    pub fn point(&self, point: &Point) {
        let parameters = point.parameters.iter().map(|(name, value)| format!(", {name} {value}"));
        let name = format!("{}, {}", point.system, point.metric) + &parameters.collect::<String>();
        let mut figure = match (point.median, &point.note) {
            (Some(median), _) => format!("{} {}", number(median), point.unit),
            (None, why) => {
                let why = why.as_deref().and_then(|why| why.lines().next());
                format!("not measured: {}", why.unwrap_or_default())
            }
        };
        if let Some(ratio) = &point.ratio_to {
            figure += &format!(" ({} of {})", number(ratio.median), ratio.system);
        }
        let unsteady = if point.unsteady { " ~" } else { "" };
        self.say(&format!("{name}: {figure}{unsteady}"));
    }

    pub fn elapsed(&self) -> Duration {
        self.begin.elapsed()
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
        assert_eq!(progress.left, 40);
        progress.next("b", 30);
        assert_eq!(progress.left, 30);
        assert_eq!(clock(Duration::from_secs(125)), "2:05");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What a run tells who waits for it.

use crate::point::Point;
use crate::report::scale::number;
use std::time::{Duration, Instant};

/// Where a run is, and how long it will take by what it has taken.
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
    /// Of experiments that are expected to take so many seconds each.
    pub fn new(seconds: &[u64]) -> Progress {
        Progress {
            begin: Instant::now(),
            expected: (seconds.iter().sum(), 0, 0),
            number: (0, seconds.len()),
            began: Duration::ZERO,
        }
    }

    /// The next experiment begins.
    pub fn next(&mut self, title: &str, seconds: u64) {
        self.number.0 += 1;
        self.expected.1 += self.expected.2;
        self.expected.2 = seconds;
        self.began = self.begin.elapsed();
        let (elapsed, left) = (self.began, self.left(self.began));
        let (number, all) = self.number;
        eprintln!("[{number}/{all}] {title} ({} gone, about {} left)", clock(elapsed), clock(left));
    }

    /// Something that takes a while begins.
    pub fn say(&self, words: &str) {
        let elapsed = self.begin.elapsed();
        eprintln!("  {} {words} (about {} left)", clock(elapsed), clock(self.left(elapsed)));
    }

    /// A point is there.
    pub fn point(&self, point: &Point) {
        let parameters: Vec<String> =
            point.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let figure = match (point.median, &point.note) {
            (Some(median), _) => format!("{} {}", number(median), point.unit),
            (None, Some(why)) => {
                format!("not measured: {}", why.lines().next().unwrap_or_default())
            }
            (None, None) => "not measured".into(),
        };
        let ratio = point.ratio_to.as_ref();
        let ratio =
            ratio.map_or(String::new(), |r| format!(" ({} of {})", number(r.median), r.system));
        let unsteady = if point.unsteady { " ~" } else { "" };
        eprintln!(
            "  {} {}: {figure}{ratio}{unsteady}",
            clock(self.begin.elapsed()),
            [&[point.system.clone(), point.metric.clone()], &parameters[..]].concat().join(", ")
        );
    }

    /// Time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// What is expected to be left, when the rest goes as the experiments before did. Short ones
    /// say little, so it counts as if a minute before them had gone as expected. One that takes
    /// longer than expected is always about to end.
    fn left(&self, elapsed: Duration) -> Duration {
        const MINUTE: f64 = 60.0;
        let (all, over, present) = self.expected;
        let pace = (self.began.as_secs_f64() + MINUTE) / (over as f64 + MINUTE);
        let rest = |over: u64| Duration::from_secs(all.saturating_sub(over)).mul_f64(pace);
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
    fn the_rest_is_expected_to_go_as_the_beginning_did() {
        let mut progress = Progress::new(&[10, 30]);
        progress.next("a", 10);
        progress.began = Duration::ZERO;
        assert_eq!(progress.left(Duration::ZERO), Duration::from_secs(40));
        assert_eq!(progress.left(Duration::from_secs(4)).as_secs(), 36);
        assert_eq!(progress.left(Duration::from_secs(90)).as_secs(), 30);
        progress.next("b", 30);
        progress.began = Duration::from_secs(10);
        assert_eq!(progress.left(Duration::from_secs(10)), Duration::from_secs(30));
        progress.began = Duration::from_secs(80);
        assert_eq!(progress.left(Duration::from_secs(80)), Duration::from_secs(60));
        assert_eq!(progress.left(Duration::from_secs(100)), Duration::from_secs(40));
        assert_eq!(progress.left(Duration::from_secs(200)), Duration::ZERO);
        assert_eq!(clock(Duration::from_secs(125)), "2:05");
    }
}

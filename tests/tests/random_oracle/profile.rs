// SPDX-License-Identifier: Apache-2.0
//! Where a run's time goes.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// Time by what was done.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    parts: BTreeMap<&'static str, Part>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Part {
    count: u64,
    total: Duration,
    longest: Duration,
}

impl Profile {
    /// Adds the time since `start`.
    pub fn add(&mut self, what: &'static str, start: Instant) {
        let took = start.elapsed();
        let part = self.parts.entry(what).or_default();
        part.count += 1;
        part.total += took;
        part.longest = part.longest.max(took);
    }

    /// Adds all of another one.
    pub fn merge(&mut self, other: &Profile) {
        for (what, more) in &other.parts {
            let part = self.parts.entry(what).or_default();
            part.count += more.count;
            part.total += more.total;
            part.longest = part.longest.max(more.longest);
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |(what, part): (&&str, &Part)| {
            let Part { count, total, longest } = part;
            format!("{what} {total:.1?} ({count}, at most {longest:.1?})")
        };
        f.write_str(&self.parts.iter().map(one).collect::<Vec<_>>().join("; "))
    }
}

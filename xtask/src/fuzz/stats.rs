// SPDX-License-Identifier: Apache-2.0
//! Counts of a run, from the output of libFuzzer.

/// Counts of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Inputs that were run.
    pub executions: u64,
    /// Edges of the program's graph that were taken.
    pub edges: u64,
    /// Edges with their frequency, and compared values.
    pub features: u64,
    /// Inputs in the corpus.
    pub inputs: u64,
}

impl Stats {
    /// Reads a log: counts stand in lines such as `#1024 NEW cov: 12 ft: 34 corp: 5/60b ...`, the
    /// last of which counts, and the executions of a whole run at the end.
    pub fn parse(log: &str) -> Stats {
        let mut stats = Stats::default();
        for line in log.lines() {
            if let Some(n) = line.strip_prefix("stat::number_of_executed_units:") {
                stats.executions = n.trim().parse().unwrap_or(stats.executions);
            } else if let Some(rest) = line.strip_prefix('#') {
                let words: Vec<&str> = rest.split_whitespace().collect();
                stats.line(&words);
            }
        }
        stats
    }

    fn line(&mut self, words: &[&str]) {
        if let Some(n) = words.first().and_then(|w| w.trim_end_matches(':').parse().ok()) {
            self.executions = n;
        }
        for pair in words.windows(2) {
            let [name, value] = pair else { continue };
            let number = value.split('/').next().and_then(|v| v.parse().ok());
            let place = match *name {
                "cov:" => &mut self.edges,
                "ft:" => &mut self.features,
                "corp:" => &mut self.inputs,
                _ => continue,
            };
            *place = number.unwrap_or(*place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_counts_are_taken() {
        let log = "INFO: seed corpus: files: 3\n\
            #4\tINITED cov: 162 ft: 189 corp: 3/936b exec/s: 0 rss: 32Mb\n\
            #60706\tDONE   cov: 1201 ft: 2000 corp: 40/9Kb lim: 484 exec/s: 601 rss: 36Mb\n\
            Done 60706 runs in 101 second(s)\n\
            stat::number_of_executed_units: 60707\n";
        let stats = Stats { executions: 60707, edges: 1201, features: 2000, inputs: 40 };
        assert_eq!(Stats::parse(log), stats);
        assert_eq!(Stats::parse("no such thing"), Stats::default());
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What the generator does without a switch, in the same rounds as the systems: the ceiling that their
//! figures are compared with.

use super::cases::Case;
use crate::measure::Series;
use indexmap::IndexMap;

/// One metric of the generator alone.
#[derive(Clone, Debug)]
pub struct Alone {
    /// Its name.
    pub metric: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// A figure a round.
    pub samples: Series,
}

/// What matters to the generator alone: flows and size.
type Choice = (u32, u32);

/// All that it did beside all systems.
#[derive(Debug, Default)]
pub struct All(IndexMap<Choice, IndexMap<&'static str, Alone>>);

impl All {
    /// Adds what it did beside one system.
    pub fn add(&mut self, case: &Case, more: &[Alone]) {
        let of_choice = self.0.entry(case.choice()).or_default();
        for Alone { metric, unit, samples } in more {
            let none = || Alone { metric, unit, samples: Series::default() };
            of_choice.entry(metric).or_insert_with(none).samples.0.extend(&samples.0);
        }
    }

    /// Of one case.
    pub fn of(&self, case: &Case) -> impl Iterator<Item = &Alone> {
        self.0.get(&case.choice()).into_iter().flat_map(IndexMap::values)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases;
    use super::*;

    #[test]
    fn what_it_did_beside_all_systems_is_one_series_a_metric() {
        let layouts = cases::grid(true);
        let [case, other] = [0, 1].map(|n| &layouts[0].cases[n]);
        let alone =
            |metric, figure| Alone { metric, unit: "µs", samples: Series(vec![figure; 2]) };
        let mut all = All::default();
        all.add(case, &[alone("p50", 1.0), alone("p99", 3.0)]);
        all.add(other, &[alone("p50", 9.0)]);
        all.add(case, &[alone("p50", 2.0)]);
        let found: Vec<_> = all.of(case).map(|a| (a.metric, a.samples.0.as_slice())).collect();
        assert_eq!(found, [("p50", &[1.0, 1.0, 2.0, 2.0][..]), ("p99", &[3.0, 3.0][..])]);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What was measured already in this run: two experiments may have a case in common.

use super::alone::Alone;
use super::cases::Case;
use crate::peer::System;
use crate::point::Point;
use crate::topology::Far;

/// A case of one system that was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Which system.
    pub system: System,
    /// What was behind its second port.
    pub receiver: Far,
    /// The case.
    pub case: Case,
    /// What came of it.
    pub points: Vec<Point>,
    /// What the generator alone did beside it.
    pub alone: Vec<Alone>,
}

/// All that were.
#[derive(Debug, Default)]
pub struct Known(Vec<Measured>);

impl Known {
    /// Keeps one.
    pub fn keep(&mut self, measured: Measured) {
        self.0.push(measured);
    }

    /// What was measured of a system with the same traffic and rules; where latency is asked for,
    /// with it.
    pub fn find(&self, system: System, receiver: Far, case: &Case) -> Option<&Measured> {
        let between = |m: &&Measured| (m.system, m.receiver) == (system, receiver);
        self.0.iter().filter(between).find(|m| m.case.stands_for(case))
    }
}

impl Measured {
    /// Its points as those of another experiment.
    pub fn points_in(&self, experiment: &str, case: &Case) -> Vec<Point> {
        let moved = |point: &Point| Point {
            experiment: experiment.to_owned(),
            parameters: case.parameters.clone(),
            ..point.clone()
        };
        self.points.iter().map(moved).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases;
    use super::*;
    use crate::measure::Series;
    use crate::point::Subject;

    const SYSTEM: System = System::LinuxBridge;

    fn first(layouts: &[cases::Layout]) -> Case {
        layouts[0].cases[0].clone()
    }

    fn known(case: &Case) -> Known {
        let subject = Subject {
            experiment: "grid",
            system: SYSTEM.name().into(),
            parameters: case.parameters.clone(),
        };
        let points = vec![subject.point("rate", "Mpps", &Series(vec![1.0]))];
        let case = case.clone();
        let mut known = Known::default();
        let alone = Vec::new();
        known.keep(Measured { system: SYSTEM, receiver: Far::Card, case, points, alone });
        known
    }

    #[test]
    fn one_flow_of_the_grid_is_that_of_other_experiments() {
        let known = known(&first(&cases::grid(false)));
        for layouts in [cases::flows(false), cases::one_flow()] {
            let case = first(&layouts);
            let measured = known.find(SYSTEM, Far::Card, &case).unwrap();
            let points = measured.points_in("flows", &case);
            assert_eq!(points[0].median, Some(1.0));
            assert_eq!(
                (&points[0].experiment[..], &points[0].parameters),
                ("flows", &case.parameters)
            );
            assert!(known.find(SYSTEM, Far::Container, &case).is_none());
            assert!(known.find(System::BareTc, Far::Card, &case).is_none());
        }
    }

    #[test]
    fn what_has_no_latency_does_not_stand_for_what_has() {
        let case = first(&cases::flows(false));
        assert!(!case.delays);
        let known = known(&case);
        assert!(known.find(SYSTEM, Far::Card, &first(&cases::one_flow())).is_none());
        assert!(known.find(SYSTEM, Far::Card, &case).is_some());
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Goals, judged by the points of a run.

use super::number::number;
use super::results::Results;
use crate::measure::Series;
use crate::point::Point;

/// A bound for a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Bound::AtLeast(bound) => value >= bound,
            Bound::AtMost(bound) => value <= bound,
        }
    }

    fn text(self, unit: &str) -> String {
        match self {
            Bound::AtLeast(bound) => format!("≥ {bound}{unit}"),
            Bound::AtMost(bound) => format!("≤ {bound}{unit}"),
        }
    }
}

/// The figure that a goal judges, of the points that it selects.
#[derive(Clone, Copy, Debug)]
pub enum Figure {
    /// The median, in the point's unit.
    Median,
    /// The largest of the point's samples, in its unit.
    Worst,
    /// The point's ratio to another figure that took turns with it.
    Paired,
    /// The point divided by that of another system.
    Against(&'static str),
}

/// A goal.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    pub words: &'static str,
    pub experiment: &'static str,
    pub metric: &'static str,
    /// Parameters that a point must have, with their texts; others do not matter.
    pub parameters: &'static [(&'static str, &'static str)],
    pub system: &'static str,
    pub figure: Figure,
    pub bound: Bound,
    /// The system that does the least work for the same traffic. Its figure in place of
    /// Slipswitch's shows what is possible on this machine.
    pub limit: Option<&'static str>,
}

/// Whether a goal is met, with its figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Met(f64),
    Missed(f64),
    /// It could not be judged, and why.
    Unknown(String),
}

impl Goal {
    pub fn judge(&self, results: &Results) -> Verdict {
        match self.value(results) {
            Ok(value) if self.bound.holds(value) => Verdict::Met(value),
            Ok(value) => Verdict::Missed(value),
            Err(why) => Verdict::Unknown(why),
        }
    }

    fn value(&self, results: &Results) -> Result<f64, String> {
        let point = self.find(results, self.system)?;
        match self.figure {
            Figure::Median => median(point),
            Figure::Worst => median(point).map(|_| Series(point.samples.clone()).max()),
            Figure::Paired => {
                median(point)?;
                let ratio = point.ratio_to.as_ref().map(|ratio| ratio.median);
                ratio.ok_or_else(|| format!("{} took no turns with another", point.system))
            }
            Figure::Against(other) => ratio(point, self.find(results, other)?),
        }
    }

    /// The limit's ratio to the same system, if that is another system and both were measured.
    fn of_limit(&self, results: &Results) -> Option<f64> {
        let Figure::Against(other) = self.figure else { return None };
        let limit = self.limit.filter(|limit| *limit != other)?;
        ratio(self.find(results, limit).ok()?, self.find(results, other).ok()?).ok()
    }

    /// The only point of a system that the goal selects.
    fn find<'a>(&'a self, results: &'a Results, system: &str) -> Result<&'a Point, String> {
        let has = |point: &Point, name: &str, text: &str| {
            point.parameters.get(name).is_some_and(|value| value.to_string() == text)
        };
        let fits = |point: &&Point| {
            (point.system.as_str(), point.metric.as_str()) == (system, self.metric)
                && self.parameters.iter().all(|(name, text)| has(point, name, text))
        };
        let mut found = results.of(self.experiment).filter(fits);
        match (found.next(), found.next()) {
            (Some(point), None) => Ok(point),
            (None, _) => Err(format!("{} was not run with {system}", self.experiment)),
            (Some(_), Some(_)) => Err(format!("{} has several such figures", self.experiment)),
        }
    }

    /// A figure with enough digits for a reader to come to the same verdict.
    fn text(&self, value: f64) -> String {
        let short = number(value);
        let digits = (3..=6).map(|digits| format!("{value:.digits$}"));
        let agrees = |text: &String| {
            let shown = text.replace(',', "").parse();
            shown.is_ok_and(|shown: f64| self.bound.holds(shown) == self.bound.holds(value))
        };
        std::iter::once(short.clone()).chain(digits).find(agrees).unwrap_or(short)
    }

    /// A row of the table of goals.
    pub fn row(&self, results: &Results) -> String {
        let unit = match self.figure {
            Figure::Against(_) | Figure::Paired => String::new(),
            Figure::Median | Figure::Worst => self
                .find(results, self.system)
                .map(|point| format!(" {}", point.unit))
                .unwrap_or_default(),
        };
        let of_limit = self.of_limit(results);
        let (measured, verdict) = match self.judge(results) {
            Verdict::Met(value) => (format!("{}{unit}", self.text(value)), "met".to_owned()),
            Verdict::Missed(value) => {
                let beyond = of_limit.is_some_and(|limit| !self.bound.holds(limit));
                let verdict = if beyond { "**missed**, also by the limit" } else { "**missed**" };
                (format!("{}{unit}", self.text(value)), verdict.to_owned())
            }
            Verdict::Unknown(why) => ("–".to_owned(), format!("not measured: {why}")),
        };
        let limit = of_limit.map_or_else(|| "–".to_owned(), number);
        let bound = self.bound.text(&unit);
        format!("| {} | {bound} | {measured} | {limit} | {verdict} |", self.words)
    }
}

fn ratio(of: &Point, to: &Point) -> Result<f64, String> {
    let ratio = match in_turn(of, to) {
        Some(ratio) => ratio,
        None => median(of)? / median(to)?,
    };
    if ratio.is_finite() { Ok(ratio) } else { Err("division by 0".into()) }
}

/// The ratio by rounds that took turns, one with the other or both with a third system: a machine's
/// speed changes between minutes, so medians of different minutes are less comparable.
fn in_turn(of: &Point, to: &Point) -> Option<f64> {
    match (&of.ratio_to, &to.ratio_to) {
        (Some(ours), _) if ours.system == to.system => Some(ours.median),
        (_, Some(theirs)) if theirs.system == of.system => Some(1.0 / theirs.median),
        (Some(ours), Some(theirs)) if ours.system == theirs.system => {
            Some(ours.median / theirs.median)
        }
        _ => None,
    }
}

fn median(point: &Point) -> Result<f64, String> {
    point.median.ok_or_else(|| {
        let why = point.note.as_deref().unwrap_or("no samples");
        format!("{}: {}", point.system, why.lines().next().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::parameters;
    use crate::point::tests::rate_point;

    fn point(system: &str, flows: u64, rate: f64) -> Point {
        rate_point(system, parameters([("flows", flows.into())]), rate)
    }

    fn results(ours: f64, bare: f64) -> Results {
        let points = vec![
            point("bare XDP redirect", 1, 10.0),
            point("bare XDP redirect", 65_536, bare),
            point("Slipswitch xdp", 1, 2.0),
            point("Slipswitch xdp", 65_536, ours),
        ];
        Results { points, ..Results::default() }
    }

    /// The rate of 64K flows against bare XDP, which is the limit, too.
    const GOAL: Goal = Goal {
        words: "64K flows against bare XDP",
        experiment: "rates",
        metric: "rate",
        parameters: &[("flows", "65536")],
        system: "Slipswitch xdp",
        figure: Figure::Against("bare XDP redirect"),
        bound: Bound::AtLeast(0.8),
        limit: Some("bare XDP redirect"),
    };

    #[test]
    fn goals_are_judged_by_the_points_with_their_parameters() {
        assert_eq!(GOAL.judge(&results(8.0, 10.0)), Verdict::Met(0.8));
        assert_eq!(GOAL.judge(&results(7.0, 10.0)), Verdict::Missed(0.7));
        assert!(GOAL.row(&results(7.0, 10.0)).ends_with("| ≥ 0.8 | 0.70 | – | **missed** |"));
    }

    #[test]
    fn a_near_miss_does_not_look_met() {
        let row = |ours| GOAL.row(&results(ours, 10.0));
        assert!(row(7.996).ends_with("| ≥ 0.8 | 0.7996 | – | **missed** |"), "{}", row(7.996));
        assert!(row(8.004).ends_with("| ≥ 0.8 | 0.80 | – | met |"), "{}", row(8.004));
    }

    #[test]
    fn one_bad_sample_is_the_worst() {
        let mut results = results(0.0, 1.0);
        let goal = Goal { figure: Figure::Worst, bound: Bound::AtMost(0.0), ..GOAL };
        assert_eq!(goal.judge(&results), Verdict::Met(0.0));
        results.points.last_mut().unwrap().samples = vec![0.0, 0.0, 57.0];
        assert_eq!(goal.judge(&results), Verdict::Missed(57.0));
    }

    #[test]
    fn a_paired_figure_is_judged_by_its_rounds() {
        let mut results = results(8.0, 10.0);
        let goal = Goal { figure: Figure::Paired, ..GOAL };
        assert!(matches!(goal.judge(&results), Verdict::Unknown(_)));
        let ours = results.points.pop().unwrap();
        results.points.push(ours.against("Slipswitch xdp", &Series(vec![10.0, 16.0, 16.0])));
        assert_eq!(goal.judge(&results), Verdict::Missed(0.5));
    }

    #[test]
    fn a_goal_that_the_limit_misses_too_is_marked() {
        let mut results = results(8.0, 10.0);
        results.points.push(point("OVS-DPDK", 65_536, 1.0));
        let figure = Figure::Against("OVS-DPDK");
        let row = |bound| Goal { figure, bound: Bound::AtLeast(bound), ..GOAL }.row(&results);
        assert!(row(8.0).ends_with("| ≥ 8 | 8.00 | 10.0 | met |"));
        assert!(row(9.0).ends_with("| ≥ 9 | 8.00 | 10.0 | **missed** |"));
        assert!(row(20.0).ends_with("| ≥ 20 | 8.00 | 10.0 | **missed**, also by the limit |"));
    }

    #[test]
    fn a_goal_without_figures_is_neither_met_nor_missed() {
        let none = Results::default();
        assert!(matches!(GOAL.judge(&none), Verdict::Unknown(_)));
        let mut absent = results(8.0, 10.0);
        let last = absent.points.last_mut().unwrap();
        (last.median, last.note) = (None, Some("it does not start".into()));
        assert!(GOAL.row(&absent).contains("not measured: Slipswitch xdp: it does not start"));
        assert!(matches!(GOAL.judge(&results(1.0, 0.0)), Verdict::Unknown(_)));
    }

    #[test]
    fn rounds_that_took_turns_are_compared_round_by_round() {
        let mut results = results(8.0, 10.0);
        let bare = Series(vec![8.0, 16.0, 16.0]);
        let ours = results.points.pop().unwrap();
        results.points.push(ours.against("bare XDP redirect", &bare));
        assert_eq!(GOAL.judge(&results), Verdict::Missed(0.5));
    }

    #[test]
    fn systems_that_took_turns_with_a_third_are_compared_by_it() {
        // The clock was half as fast when the limit was measured.
        let mut results = results(8.0, 5.0);
        let ours = results.points.pop().unwrap();
        let bare = results.points.remove(1);
        results.points.push(bare.against("bare generator", &Series(vec![5.0; 3])));
        results.points.push(ours.against("bare generator", &Series(vec![10.0; 3])));
        assert_eq!(GOAL.judge(&results), Verdict::Met(0.8));
    }

    #[test]
    fn systems_with_references_of_their_own_are_compared_by_medians() {
        let mut results = results(8.0, 10.0);
        let ours = results.points.pop().unwrap();
        let bare = results.points.remove(1);
        let without = |name: &str| format!("{name} without rules");
        let series = Series(vec![10.0; 3]);
        let bare_name = bare.system.clone();
        let our_name = ours.system.clone();
        results.points.push(bare.against(&without(&bare_name), &series));
        results.points.push(ours.against(&without(&our_name), &Series(vec![80.0; 3])));
        assert_eq!(GOAL.judge(&results), Verdict::Met(0.8));
    }

    #[test]
    fn a_limit_is_compared_by_the_system_that_took_turns_with_it() {
        // The limit was measured again when the clock was half as fast.
        let mut results = results(8.0, 5.0);
        let peer = point("OVS-DPDK", 65_536, 1.0);
        results.points.push(peer.against("bare XDP redirect", &Series(vec![10.0; 3])));
        let figure = Figure::Against("OVS-DPDK");
        let against = Goal { figure, bound: Bound::AtLeast(9.0), ..GOAL };
        assert!(against.row(&results).ends_with("| 8.00 | 10.0 | **missed** |"));
    }

    #[test]
    fn values_are_judged_in_their_unit() {
        let goal = Goal { figure: Figure::Median, bound: Bound::AtMost(0.0), ..GOAL };
        assert_eq!(goal.judge(&results(0.0, 1.0)), Verdict::Met(0.0));
        assert!(goal.row(&results(3.0, 1.0)).contains("| ≤ 0 Mpps | 3.00 Mpps | – | **missed** |"));
    }
}

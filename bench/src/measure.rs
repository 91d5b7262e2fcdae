// SPDX-License-Identifier: Apache-2.0
//! Rounds of measurements that take turns.

use anyhow::Result;
use std::time::Duration;

/// Rounds, and how long each is.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds of a measurement.
    pub rounds: u32,
    /// The number of rounds was given on the command line: long measurements take no fewer.
    pub is_exact: bool,
    /// Shorter rounds.
    pub quick: bool,
    /// All points.
    pub full: bool,
}

impl Plan {
    /// For measurements that are many or long: at most `rounds`, unless the number was given.
    pub fn at_most(self, rounds: u32) -> Plan {
        let rounds = if self.is_exact { self.rounds } else { self.rounds.min(rounds) };
        Plan { rounds, ..self }
    }

    /// How long traffic is observed in a round.
    pub fn window(&self) -> Duration {
        Duration::from_millis(if self.quick { 300 } else { 1000 })
    }
}

/// How often a measurement that scatters too widely is repeated.
const REPEATS: u32 = 2;

/// Duration of a turn of candidates that start at once. A shared machine may be twice as fast, or
/// as slow, a second later; with short turns all candidates see the same machine.
pub const TURN: Duration = Duration::from_millis(50);

/// Turns of [`TURN`] that fill a round.
pub fn turns_in(round: Duration) -> u32 {
    round.div_duration_f64(TURN).ceil() as u32
}

/// Samples of one figure, one a round.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Series(pub Vec<f64>);

impl Series {
    /// The middle sample; the mean of the middle two when their number is even.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[n / 2],
            n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
        }
    }

    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// The median distance from the median (MAD).
    pub fn mad(&self) -> f64 {
        let median = self.median();
        Series(self.0.iter().map(|v| (v - median).abs()).collect()).median()
    }

    /// The MAD as a share of the median.
    pub fn scatter(&self) -> f64 {
        if self.median() == 0.0 { 0.0 } else { (self.mad() / self.median()).abs() }
    }

    /// Each round's ratio to the same round of another series.
    pub fn ratios(&self, other: &Series) -> Series {
        Series(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect())
    }
}

/// The figures of one turn: one for each metric of the measurement, NaN for a figure that the
/// candidate does not have.
pub type Sample = Vec<f64>;

/// One of those that take turns: measures once.
pub type Candidate<'a> = Box<dyn FnMut() -> Result<Sample> + 'a>;

/// Figures of a candidate, and those of the limit in the same rounds.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// A series for each metric.
    pub own: Vec<Series>,
    /// The limit's series; `None` without a limit, and for the limit itself.
    pub limit: Option<Vec<Series>>,
    /// How often all rounds were taken, 1 or more.
    pub taken: u32,
}

impl Outcome {
    /// The scatter of the first metric.
    pub fn scatter(&self) -> f64 {
        self.own.first().map_or(0.0, Series::scatter)
    }
}

/// Lets candidates that have each measured once already take turns, `plan.rounds` rounds of
/// `turns` each; a round's figure is the mean over its turns. A candidate whose first metric
/// scatters by more than `max_scatter` of its median then takes turns with the candidate number
/// `limit` alone, without delaying the others; the steadiest repetition counts.
pub fn take_turns(
    plan: Plan,
    turns: u32,
    max_scatter: f64,
    limit: Option<usize>,
    candidates: &mut [Candidate<'_>],
) -> Result<Vec<Outcome>> {
    let all: Vec<usize> = (0..candidates.len()).collect();
    let first = rounds(plan, turns, candidates, &all)?;
    let mut outcomes = Vec::new();
    for (number, own) in first.iter().enumerate() {
        let other = limit.filter(|limit| *limit != number);
        let limit = other.and_then(|other| first.get(other).cloned());
        let mut best = Outcome { own: own.clone(), limit, taken: 1 };
        for taken in 2..=1 + REPEATS {
            if best.scatter() <= max_scatter {
                break;
            }
            let pair: Vec<usize> = other.into_iter().chain([number]).collect();
            let mut again = rounds(plan, turns, candidates, &pair)?;
            let own = again.pop().unwrap_or_default();
            let again = Outcome { own, limit: again.pop(), taken };
            if again.scatter() < best.scatter() {
                best = again;
            }
            best.taken = taken;
        }
        outcomes.push(best);
    }
    Ok(outcomes)
}

/// The series of each of the candidates with these numbers, which measure in turn.
fn rounds(
    plan: Plan,
    turns: u32,
    candidates: &mut [Candidate<'_>],
    numbers: &[usize],
) -> Result<Vec<Vec<Series>>> {
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); numbers.len()];
    for _ in 0..plan.rounds * turns {
        for (samples, number) in samples.iter_mut().zip(numbers) {
            if let Some(candidate) = candidates.get_mut(*number) {
                samples.push(candidate()?);
            }
        }
    }
    Ok(samples.iter().map(|samples| by_round(samples, turns as usize)).collect())
}

/// A series for each figure of the samples: means over the turns of a round.
fn by_round(samples: &[Sample], turns: usize) -> Vec<Series> {
    let figures = samples.first().map_or(0, Vec::len);
    let mean = |round: &[Sample], figure| {
        let figures = round.iter().filter_map(|sample| sample.get(figure));
        figures.sum::<f64>() / round.len() as f64
    };
    let of = |figure| Series(samples.chunks(turns.max(1)).map(|r| mean(r, figure)).collect());
    (0..figures).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan { rounds: 3, is_exact: true, quick: true, full: false };

    #[test]
    fn medians_and_spread() {
        let s = Series(vec![5.0, 1.0, 100.0, 4.0, 6.0]);
        assert_eq!((s.median(), s.max(), s.mad()), (5.0, 100.0, 1.0));
        assert_eq!(Series(vec![1.0, 3.0]).median(), 2.0);
    }

    #[test]
    fn candidates_take_turns_and_one_that_scatters_does_so_with_the_limit_alone() {
        let order = std::cell::RefCell::new(String::new());
        let turn = |name, step| {
            let (order, mut last) = (&order, 1.0);
            Box::new(move || {
                order.borrow_mut().push(name);
                last *= step;
                Ok(vec![last])
            }) as Candidate<'_>
        };
        let mut candidates = [turn('l', 1.0), turn('a', 1.0), turn('w', 2.0)];
        let outcomes = take_turns(PLAN, 1, 0.1, Some(0), &mut candidates).unwrap();
        assert_eq!(order.borrow().as_str(), "lawlawlawlwlwlwlwlwlw");
        assert_eq!(outcomes.iter().map(|o| o.taken).collect::<Vec<_>>(), [1, 1, 3]);
        let limits: Vec<_> =
            outcomes.iter().map(|o| o.limit.as_ref().map(|l| l[0].0.len())).collect();
        assert_eq!(limits, [None, Some(3), Some(3)]);
    }

    #[test]
    fn short_turns_make_a_round_and_their_mean_its_number() {
        // Both are twice as fast from the third turn on, and a round has four.
        let turn = |speed: f64| {
            let mut turns = 0;
            Box::new(move || {
                turns += 1;
                Ok(vec![if turns % 4 == 1 || turns % 4 == 2 { speed } else { 2.0 * speed }])
            }) as Candidate<'_>
        };
        let mut candidates = [turn(10.0), turn(8.0)];
        let outcomes = take_turns(PLAN, 4, 0.01, Some(0), &mut candidates).unwrap();
        assert_eq!(outcomes[1].own, [Series(vec![12.0; 3])]);
        assert_eq!(outcomes[1].limit, Some(vec![Series(vec![15.0; 3])]));
        assert_eq!(outcomes[1].taken, 1, "turns of one round scatter, rounds do not");
    }

    #[test]
    fn a_measurement_that_scatters_is_repeated() {
        let mut n = 0.0;
        let wild: Candidate<'_> = Box::new(|| {
            n += 1.0;
            Ok(vec![n * n * n])
        });
        let outcomes = take_turns(PLAN, 1, 0.01, None, &mut [wild]).unwrap();
        assert_eq!(outcomes[0].taken, 3);
        assert!(outcomes[0].scatter() > 0.01);
    }
}

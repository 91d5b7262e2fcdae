// SPDX-License-Identifier: Apache-2.0
//! Rounds of measurements that take turns.

use crate::plan::Plan;
use anyhow::Result;
use std::time::Duration;

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

/// Measurement of a candidate in one turn.
pub trait Sample: Clone {
    /// The number by which scatter is judged.
    fn value(&self) -> f64;
}

impl Sample for f64 {
    fn value(&self) -> f64 {
        *self
    }
}

/// One of those that take turns: measures once.
pub type Candidate<'a, T = f64> = Box<dyn FnMut() -> Result<T> + 'a>;

/// Measurements of a candidate, and the limit in the same rounds.
#[derive(Clone, Debug)]
pub struct Outcome<T> {
    /// The candidate's samples, one a turn.
    pub own: Vec<T>,
    /// The limit's samples; `None` without a limit, and for the limit itself.
    pub limit: Option<Vec<T>>,
    /// Turns of a round, 1 or more.
    pub turns: usize,
    /// How often all rounds were taken, 1 or more.
    pub taken: u32,
}

impl<T: Sample> Outcome<T> {
    /// A number for each of the candidate's rounds: the mean over the turns of the round.
    pub fn series(&self, number: impl Fn(&T) -> f64) -> Series {
        by_round(&self.own, self.turns, number)
    }

    /// The same for the limit's rounds.
    pub fn limit(&self, number: impl Fn(&T) -> f64) -> Option<Series> {
        Some(by_round(self.limit.as_ref()?, self.turns, number))
    }

    pub fn scatter(&self) -> f64 {
        self.series(Sample::value).scatter()
    }
}

fn by_round<T>(samples: &[T], turns: usize, number: impl Fn(&T) -> f64) -> Series {
    let mean = |round: &[T]| round.iter().map(&number).sum::<f64>() / round.len() as f64;
    Series(samples.chunks(turns.max(1)).map(mean).collect())
}

/// Lets candidates that have each measured once already take turns, `plan.rounds` rounds of
/// `turns` each. A candidate whose rounds scatter by more than `max_scatter` of their median then
/// takes turns with the candidate number `limit` alone, without delaying the others; the steadiest
/// repetition counts.
pub fn take_turns<T: Sample>(
    plan: Plan,
    turns: u32,
    max_scatter: f64,
    limit: Option<usize>,
    candidates: &mut [Candidate<'_, T>],
) -> Result<Vec<Outcome<T>>> {
    let total = plan.rounds * turns;
    let turns = turns as usize;
    let all: Vec<usize> = (0..candidates.len()).collect();
    let first = sample(total, candidates, &all)?;
    let mut outcomes = Vec::new();
    for (number, own) in first.iter().enumerate() {
        let other = limit.filter(|limit| *limit != number);
        let limit = other.and_then(|other| first.get(other).cloned());
        let mut best = Outcome { own: own.clone(), limit, turns, taken: 1 };
        for taken in 2..=1 + REPEATS {
            if best.scatter() <= max_scatter {
                break;
            }
            let pair: Vec<usize> = other.into_iter().chain([number]).collect();
            let mut again = sample(total, candidates, &pair)?;
            let own = again.pop().unwrap_or_default();
            let again = Outcome { own, limit: again.pop(), turns, taken };
            if again.scatter() < best.scatter() {
                best = again;
            }
            best.taken = taken;
        }
        outcomes.push(best);
    }
    Ok(outcomes)
}

/// `total` samples of each of the candidates with these numbers, in turn.
fn sample<T>(
    total: u32,
    candidates: &mut [Candidate<'_, T>],
    numbers: &[usize],
) -> Result<Vec<Vec<T>>> {
    let mut samples: Vec<Vec<T>> = numbers.iter().map(|_| Vec::new()).collect();
    for _ in 0..total {
        for (samples, number) in samples.iter_mut().zip(numbers) {
            if let Some(candidate) = candidates.get_mut(*number) {
                samples.push(candidate()?);
            }
        }
    }
    Ok(samples)
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
                Ok(last)
            }) as Candidate<'_>
        };
        let mut candidates = [turn('l', 1.0), turn('a', 1.0), turn('w', 2.0)];
        let outcomes = take_turns(PLAN, 1, 0.1, Some(0), &mut candidates).unwrap();
        assert_eq!(order.borrow().as_str(), "lawlawlawlwlwlwlwlwlw");
        assert_eq!(outcomes.iter().map(|o| o.taken).collect::<Vec<_>>(), [1, 1, 3]);
        let limits: Vec<_> = outcomes.iter().map(|o| o.limit.as_ref().map(Vec::len)).collect();
        assert_eq!(limits, [None, Some(3), Some(3)]);
    }

    #[test]
    fn short_turns_make_a_round_and_their_mean_its_number() {
        // Both are twice as fast from the third turn on, and a round has four.
        let turn = |speed: f64| {
            let mut turns = 0;
            Box::new(move || {
                turns += 1;
                Ok(if turns % 4 == 1 || turns % 4 == 2 { speed } else { 2.0 * speed })
            }) as Candidate<'_>
        };
        let mut candidates = [turn(10.0), turn(8.0)];
        let outcomes = take_turns(PLAN, 4, 0.01, Some(0), &mut candidates).unwrap();
        assert_eq!(outcomes[1].own.len(), 12);
        assert_eq!(outcomes[1].series(|s| *s), Series(vec![12.0; 3]));
        assert_eq!(outcomes[1].limit(|s| *s), Some(Series(vec![15.0; 3])));
        assert_eq!(outcomes[1].taken, 1, "turns of one round scatter, rounds do not");
    }

    #[test]
    fn a_measurement_that_scatters_is_repeated() {
        let mut n = 0.0;
        let wild: Candidate<'_> = Box::new(|| {
            n += 1.0;
            Ok(n * n * n)
        });
        let outcomes = take_turns(PLAN, 1, 0.01, None, &mut [wild]).unwrap();
        assert_eq!(outcomes[0].taken, 3);
        assert!(outcomes[0].scatter() > 0.01);
    }
}

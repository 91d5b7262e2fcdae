// SPDX-License-Identifier: Apache-2.0
//! Rounds of measurements that take turns.

use crate::args::Plan;
use anyhow::Result;
use serde_json::{Value, json};
use std::time::Duration;

/// Times that measurements which scatter too widely are taken anew.
const ANEW: u32 = 2;

/// How long those take turns that need but a moment to begin: a machine may be twice as fast, or as
/// slow, a second later, and all are to see the same one.
pub const TURN: Duration = Duration::from_millis(50);

/// Turns of [`TURN`] that fill a round.
pub fn turns_in(round: Duration) -> u32 {
    round.div_duration_f64(TURN).ceil() as u32
}

/// Measurements of one thing, one a round.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Series(pub Vec<f64>);

impl Series {
    /// The middle one; the mean of the middle two when there is an even number.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[n / 2],
            n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
        }
    }

    /// The smallest.
    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The largest.
    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Median distance from the median.
    pub fn mad(&self) -> f64 {
        let median = self.median();
        Series(self.0.iter().map(|v| (v - median).abs()).collect()).median()
    }

    /// The distance as a share of the median.
    pub fn scatter(&self) -> f64 {
        if self.median() == 0.0 { 0.0 } else { (self.mad() / self.median()).abs() }
    }

    /// What `relate` says of each round of `self` and `other`.
    pub fn with(&self, other: &Series, relate: impl Fn(f64, f64) -> f64) -> Series {
        Series(self.0.iter().zip(&other.0).map(|(a, b)| relate(*a, *b)).collect())
    }

    /// For the file.
    pub fn json(&self) -> Value {
        json!({
            "median": self.median(), "mad": self.mad(), "min": self.min(), "max": self.max(),
            "samples": self.0,
        })
    }
}

/// What rounds gave.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    /// One series a contender, in their order.
    pub series: Vec<Series>,
    /// Times it was taken, 1 or more.
    pub taken: u32,
    /// No time was steady.
    pub unsteady: bool,
}

/// What a contender measures at once.
pub trait Sample {
    /// The number by which it is judged.
    fn value(&self) -> f64;
}

impl Sample for f64 {
    fn value(&self) -> f64 {
        *self
    }
}

/// One of those that take turns: measures once.
pub type Contender<'a, T = f64> = Box<dyn FnMut() -> Result<T> + 'a>;

/// What contenders measured that took turns.
#[derive(Clone, Debug)]
pub struct Turns<T> {
    /// The samples of each contender, in their order; one a turn.
    pub samples: Vec<Vec<T>>,
    /// Turns of a round, 1 or more.
    pub turns: usize,
    /// Times it was taken, 1 or more.
    pub taken: u32,
    /// No time was steady.
    pub unsteady: bool,
}

impl<T> Turns<T> {
    /// A number from each round of a contender.
    pub fn series(&self, contender: usize, number: impl Fn(&T) -> f64) -> Series {
        by_round(self.samples.get(contender).map_or(&[], Vec::as_slice), self.turns, number)
    }
}

impl<T: Sample> Turns<T> {
    /// The widest scatter of a contender.
    fn scatter(&self) -> f64 {
        let of = |contender| self.series(contender, Sample::value).scatter();
        (0..self.samples.len()).map(of).fold(0.0, f64::max)
    }
}

/// A number from each round of `turns` samples: the mean of that from each.
fn by_round<T>(samples: &[T], turns: usize, number: impl Fn(&T) -> f64) -> Series {
    let mean = |round: &[T]| round.iter().map(&number).sum::<f64>() / round.len() as f64;
    Series(samples.chunks(turns.max(1)).map(mean).collect())
}

/// Lets `contenders` take turns, `plan.repeat` rounds of `turns` each, after a turn of each that
/// does not count. Takes all rounds anew when a series scatters by more than `limit` of its median;
/// of several times the steadiest counts.
///
/// # Errors
/// When a contender fails.
pub fn turns<T: Sample>(
    plan: Plan,
    turns: u32,
    limit: f64,
    contenders: &mut [Contender<'_, T>],
) -> Result<Turns<T>> {
    for contender in contenders.iter_mut() {
        contender()?;
    }
    let mut best = take(plan.repeat, turns, contenders)?;
    for taken in 2..=1 + ANEW {
        if best.scatter() <= limit {
            break;
        }
        let again = take(plan.repeat, turns, contenders)?;
        if again.scatter() < best.scatter() {
            best = again;
        }
        best.taken = taken;
    }
    best.unsteady = best.scatter() > limit;
    Ok(best)
}

/// What one of several contenders measured, and the limit in the same rounds.
#[derive(Clone, Debug)]
pub struct Stand<T> {
    /// Its samples, one a turn.
    pub own: Vec<T>,
    /// Those of the limit, where there is one and it is another contender.
    pub limit: Option<Vec<T>>,
    /// Turns of a round, 1 or more.
    pub turns: usize,
    /// Times it was taken, 1 or more.
    pub taken: u32,
}

impl<T> Stand<T> {
    /// A number from each of its rounds: the mean of that from the samples of the round.
    pub fn series(&self, number: impl Fn(&T) -> f64) -> Series {
        by_round(&self.own, self.turns, number)
    }

    /// A number from each of the limit's.
    pub fn limit(&self, number: impl Fn(&T) -> f64) -> Option<Series> {
        Some(by_round(self.limit.as_ref()?, self.turns, number))
    }
}

impl<T: Sample> Stand<T> {
    fn scatter(&self) -> f64 {
        self.series(Sample::value).scatter()
    }
}

/// Lets contenders that have each measured already take turns, `plan.repeat` rounds of `turns`
/// each. Those whose rounds scatter by more than `wide` of their median then take turns with the
/// contender `limit` alone, which does not hold up the others; of several times the steadiest
/// counts.
///
/// # Errors
/// When a contender fails.
pub fn stands<T: Sample + Clone>(
    plan: Plan,
    turns: u32,
    wide: f64,
    limit: Option<usize>,
    contenders: &mut [Contender<'_, T>],
) -> Result<Vec<Stand<T>>> {
    let all: Vec<usize> = (0..contenders.len()).collect();
    let all_turns = plan.repeat * turns;
    let turns = turns as usize;
    let first = take_some(all_turns, contenders, &all)?;
    let mut stands = Vec::new();
    for (number, own) in first.iter().enumerate() {
        let other = limit.filter(|limit| *limit != number);
        let beside = other.and_then(|other| first.get(other).cloned());
        let mut best = Stand { own: own.clone(), limit: beside, turns, taken: 1 };
        for taken in 2..=1 + ANEW {
            if best.scatter() <= wide {
                break;
            }
            let mut again = take_some(
                all_turns,
                contenders,
                &other.into_iter().chain([number]).collect::<Vec<_>>(),
            )?;
            let own = again.pop().unwrap_or_default();
            let again = Stand { own, limit: again.pop(), turns, taken };
            if again.scatter() < best.scatter() {
                best = again;
            }
            best.taken = taken;
        }
        stands.push(best);
    }
    Ok(stands)
}

/// [`turns`] for contenders that measure one number, a turn a round.
///
/// # Errors
/// When a contender fails.
pub fn rounds(plan: Plan, limit: f64, contenders: &mut [Contender<'_>]) -> Result<Rounds> {
    turns(plan, 1, limit, contenders).map(Rounds::from)
}

impl From<Turns<f64>> for Rounds {
    fn from(turns: Turns<f64>) -> Rounds {
        let Turns { samples, taken, unsteady, .. } = turns;
        Rounds { series: samples.into_iter().map(Series).collect(), taken, unsteady }
    }
}

fn take<T>(repeat: u32, turns: u32, contenders: &mut [Contender<'_, T>]) -> Result<Turns<T>> {
    let all: Vec<usize> = (0..contenders.len()).collect();
    let samples = take_some(repeat * turns, contenders, &all)?;
    Ok(Turns { samples, turns: turns as usize, taken: 1, unsteady: false })
}

/// Samples of those contenders, in the order of their numbers here.
fn take_some<T>(
    repeat: u32,
    contenders: &mut [Contender<'_, T>],
    which: &[usize],
) -> Result<Vec<Vec<T>>> {
    let mut samples: Vec<Vec<T>> = which.iter().map(|_| Vec::new()).collect();
    for _ in 0..repeat {
        for (samples, number) in samples.iter_mut().zip(which) {
            if let Some(contender) = contenders.get_mut(*number) {
                samples.push(contender()?);
            }
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spread() {
        let s = Series(vec![5.0, 1.0, 100.0, 4.0, 6.0]);
        assert_eq!((s.median(), s.min(), s.max(), s.mad()), (5.0, 1.0, 100.0, 1.0));
        assert_eq!(Series(vec![1.0, 3.0]).median(), 2.0);
    }

    #[test]
    fn contenders_take_turns() {
        let order = std::cell::RefCell::new(String::new());
        let turn = |name| {
            let order = &order;
            Box::new(move || {
                order.borrow_mut().push(name);
                Ok(1.0)
            }) as Contender<'_>
        };
        let plan = Plan { repeat: 2, exactly: true, quick: true, full: false };
        let rounds = rounds(plan, 0.1, &mut [turn('a'), turn('b')]).unwrap();
        assert_eq!(order.borrow().as_str(), "ababab");
        assert_eq!((rounds.taken, rounds.unsteady), (1, false));
    }

    #[test]
    fn who_scatters_takes_turns_with_the_limit_alone() {
        let order = std::cell::RefCell::new(String::new());
        let turn = |name, step| {
            let (order, mut last) = (&order, 1.0);
            Box::new(move || {
                order.borrow_mut().push(name);
                last *= step;
                Ok(last)
            }) as Contender<'_>
        };
        let plan = Plan { repeat: 3, exactly: true, quick: true, full: false };
        let mut contenders = [turn('l', 1.0), turn('a', 1.0), turn('w', 2.0)];
        let stands = stands(plan, 1, 0.1, Some(0), &mut contenders).unwrap();
        assert_eq!(order.borrow().as_str(), "lawlawlawlwlwlwlwlwlw");
        assert_eq!(stands.iter().map(|s| s.taken).collect::<Vec<_>>(), [1, 1, 3]);
        let limits: Vec<_> = stands.iter().map(|s| s.limit.as_ref().map(Vec::len)).collect();
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
            }) as Contender<'_>
        };
        let plan = Plan { repeat: 3, exactly: true, quick: true, full: false };
        let mut contenders = [turn(10.0), turn(8.0)];
        let stands = stands(plan, 4, 0.01, Some(0), &mut contenders).unwrap();
        assert_eq!(stands[1].own.len(), 12);
        assert_eq!(stands[1].series(|s| *s), Series(vec![12.0; 3]));
        assert_eq!(stands[1].limit(|s| *s), Some(Series(vec![15.0; 3])));
        assert_eq!(stands[1].taken, 1, "turns of one round scatter, rounds do not");
        // The turn that does not count is one of the slow ones.
        let turns = turns(plan, 4, 0.01, &mut [turn(10.0), turn(8.0)]).unwrap();
        assert_eq!(turns.samples[0][..4], [10.0, 20.0, 20.0, 10.0]);
        assert_eq!([0, 1].map(|of| turns.series(of, |s| *s).0[2]), [15.0, 12.0]);
        assert_eq!((turns.taken, turns.unsteady), (1, false));
    }

    #[test]
    fn what_scatters_is_taken_again() {
        let mut n = 0.0;
        let wild: Contender<'_> = Box::new(|| {
            n += 1.0;
            Ok(n * n * n)
        });
        let rounds =
            rounds(Plan { repeat: 3, exactly: true, quick: true, full: false }, 0.01, &mut [wild])
                .unwrap();
        assert_eq!((rounds.taken, rounds.unsteady), (3, true));
    }
}

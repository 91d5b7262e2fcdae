// SPDX-License-Identifier: Apache-2.0
//! Axes: from values to positions, and the positions of ticks. Numbers as text.

/// How values are placed on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Equal differences are equally far apart; begins at 0.
    Linear,
    /// Equal ratios are equally far apart.
    Log,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Scale {
    spread: Spread,
    low: f64,
    high: f64,
}

impl Scale {
    /// An axis for all `values`. A logarithmic one ignores values that are not above 0.
    pub fn over(spread: Spread, values: impl Iterator<Item = f64>) -> Scale {
        let fits = |v: &f64| v.is_finite() && (spread == Spread::Linear || *v > 0.0);
        let (low, high) = values
            .filter(fits)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        if low > high {
            return Scale { spread, low: if spread == Spread::Log { 0.1 } else { 0.0 }, high: 1.0 };
        }
        match spread {
            Spread::Linear => {
                let (low, high) = (low.min(0.0), high.max(0.0));
                let high = if low == high { 1.0 } else { high };
                let step = step(high - low);
                Scale {
                    spread,
                    low: (low / step).floor() * step,
                    high: (high / step).ceil() * step,
                }
            }
            Spread::Log if low == high => Scale { spread, low: low / 2.0, high: high * 2.0 },
            Spread::Log => Scale { spread, low, high },
        }
    }

    /// The same axis with room to the next decade at both ends; a linear one as it is.
    pub fn widened(self) -> Scale {
        match self.spread {
            Spread::Linear => self,
            Spread::Log => Scale {
                low: 10f64.powf(self.low.log10().floor()),
                high: 10f64.powf(self.high.log10().ceil()),
                ..self
            },
        }
    }

    /// The position of a value, from 0 (lowest) to 1; values outside the axis are at its end.
    pub fn place(&self, value: f64) -> f64 {
        let share = match self.spread {
            Spread::Linear => (value - self.low) / (self.high - self.low),
            Spread::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }

    /// Values with a tick, ascending.
    pub fn ticks(&self) -> Vec<f64> {
        match self.spread {
            Spread::Linear => {
                let step = step(self.high - self.low);
                let count = ((self.high - self.low) / step).round() as u32;
                (0..=count).map(|n| self.low + f64::from(n) * step).collect()
            }
            Spread::Log => self.decades(),
        }
    }

    /// Powers of ten, and 2 and 5 times these if there are few.
    fn decades(&self) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let within = |v: &f64| *v >= self.low * 0.999 && *v <= self.high * 1.001;
        let factors: &[f64] = if last - first <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        (first..=last)
            .flat_map(|exponent| factors.iter().map(move |f| f * 10f64.powi(exponent)))
            .filter(within)
            .collect()
    }
}

/// A round distance of ticks, so that there are four to ten.
fn step(range: f64) -> f64 {
    let decade = 10f64.powf(range.log10().floor());
    let steps = [0.1, 0.2, 0.25, 0.5, 1.0].map(|s| s * decade);
    steps.into_iter().find(|s| range / s <= 8.0).unwrap_or(decade)
}

/// A number for a reader: few digits, thousands separated.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "?".into();
    }
    let digits = match value.abs() {
        0.0 => 0,
        v if v < 0.0995 => 3,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    let (sign, rest) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, fraction) = rest.split_once('.').map_or((rest, ""), |(w, f)| (w, f));
    let mut grouped = String::from(sign);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if !fraction.is_empty() {
        grouped.push('.');
        grouped.push_str(fraction);
    }
    grouped
}

/// A count for a reader, with K, M or G where it is a round number of 1,024s: `64K`, `1M`, `1000`.
pub fn count(value: f64) -> String {
    if value.fract() != 0.0 || value.abs() >= 2f64.powi(53) {
        return number(value);
    }
    let whole = value as i64;
    for (unit, letter) in [(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")] {
        if whole != 0 && whole % unit == 0 {
            return format!("{}{letter}", whole / unit);
        }
    }
    whole.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_begins_at_zero_and_has_round_ticks() {
        let scale = Scale::over(Spread::Linear, [3.0, 9.3].into_iter());
        assert_eq!(scale.ticks().first(), Some(&0.0));
        assert!(*scale.ticks().last().unwrap() >= 9.3);
        assert!((4..=10).contains(&scale.ticks().len()), "{:?}", scale.ticks());
        assert_eq!(scale.place(0.0), 0.0);
        assert!(scale.place(9.3) > 0.9);
    }

    #[test]
    fn a_logarithmic_axis_has_equal_ratios_equally_far_apart() {
        let scale = Scale::over(Spread::Log, [1.0, 100.0, 0.0, f64::NAN].into_iter());
        assert!((scale.place(10.0) - 0.5).abs() < 1e-9);
        assert_eq!(scale.ticks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        let wide = Scale::over(Spread::Log, [3.0, 40_000.0].into_iter()).widened();
        assert_eq!(wide.ticks(), [1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0]);
    }

    #[test]
    fn no_values_and_equal_values_have_an_axis_too() {
        for spread in [Spread::Linear, Spread::Log] {
            for values in [vec![], vec![5.0, 5.0], vec![0.0], vec![f64::NAN]] {
                let scale = Scale::over(spread, values.into_iter()).widened();
                assert!(!scale.ticks().is_empty() && scale.ticks().len() < 20);
                assert!((0.0..=1.0).contains(&scale.place(5.0)));
            }
        }
    }

    #[test]
    fn numbers_have_few_digits() {
        let cases = [(0.0, "0"), (0.034, "0.034"), (0.34, "0.34"), (9.31, "9.31"), (28.26, "28.3")];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!(number(-1_234_567.0), "-1,234,567");
        assert_eq!(number(f64::NAN), "?");
        assert_eq!([1000.0, 65_536.0, 1_048_576.0, 16.0].map(count), ["1000", "64K", "1M", "16"]);
    }
}

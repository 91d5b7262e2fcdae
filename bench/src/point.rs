// SPDX-License-Identifier: Apache-2.0
//! Figures of a comparison: one metric of one system under one choice of parameters.

use crate::measure::{Outcome, Series};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize, Serializer};

/// A parameter's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Bytes, or a number of flows, masks, rules, ...
    Count(u64),
    Text(String),
}

impl From<u64> for Value {
    fn from(count: u64) -> Value {
        Value::Count(count)
    }
}

impl From<u32> for Value {
    fn from(count: u32) -> Value {
        Value::Count(count.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Count(count) => write!(f, "{count}"),
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// Parameters by name, in the order in which they are shown.
pub type Parameters = IndexMap<String, Value>;

/// Makes parameters of names and values.
pub fn parameters<const N: usize>(parameters: [(&str, Value); N]) -> Parameters {
    parameters.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}

/// A figure that systems are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub unit: &'static str,
    /// The scatter (MAD over median) from which a figure is marked as unsteady.
    pub max_scatter: f64,
    /// It is compared with the limit, if one takes turns.
    pub is_compared: bool,
}

impl Metric {
    pub const fn new(name: &'static str, unit: &'static str, max_scatter: f64) -> Metric {
        Metric { name, unit, max_scatter, is_compared: true }
    }

    /// The same metric, which is not compared with the limit.
    pub const fn not_compared(self) -> Metric {
        Metric { is_compared: false, ..self }
    }
}

/// The ratio of samples to those of another system that took turns with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The other system.
    pub system: String,
    /// Median of the rounds' ratios.
    pub median: f64,
    /// MAD of the rounds' ratios.
    pub spread: f64,
}

/// One figure, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub experiment: String,
    pub system: String,
    pub parameters: Parameters,
    pub metric: String,
    pub unit: String,
    /// One sample a round; none when the figure could not be measured.
    #[serde(default, serialize_with = "rounded", skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median: Option<f64>,
    /// MAD of the samples, in the unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// To the samples of another system, where one took turns with this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_to: Option<Ratio>,
    /// How often all rounds were taken.
    pub taken: u32,
    /// The samples scatter too widely in every repetition.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsteady: bool,
    /// Why there are no samples, or what limits them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Writes samples with seven significant digits: no measurement here has more.
fn rounded<S: Serializer>(samples: &[f64], to: S) -> Result<S::Ok, S::Error> {
    let short = |sample: &f64| format!("{sample:.6e}").parse().unwrap_or(*sample);
    to.collect_seq(samples.iter().map(|sample| -> f64 { short(sample) }))
}

/// The experiment, the system and the parameters of points.
#[derive(Clone, Debug)]
pub struct Subject {
    pub experiment: &'static str,
    pub system: String,
    pub parameters: Parameters,
}

impl Subject {
    /// A figure of rounds that were taken once.
    pub fn point(&self, metric: &Metric, samples: &Series) -> Point {
        let is_measured = !samples.0.is_empty();
        Point {
            experiment: self.experiment.to_owned(),
            system: self.system.clone(),
            parameters: self.parameters.clone(),
            metric: metric.name.to_owned(),
            unit: metric.unit.to_owned(),
            median: is_measured.then(|| samples.median()),
            spread: is_measured.then(|| samples.mad()),
            samples: samples.0.clone(),
            ratio_to: None,
            taken: 1,
            unsteady: samples.scatter() > metric.max_scatter,
            note: None,
        }
    }

    /// The figures of a candidate, except those that it does not have; with their ratios to the
    /// limit of that name if there is one.
    pub fn points(&self, metrics: &[Metric], outcome: &Outcome, limit: Option<&str>) -> Vec<Point> {
        let mut points = Vec::new();
        for (at, (metric, series)) in metrics.iter().zip(&outcome.own).enumerate() {
            if series.0.iter().any(|figure| figure.is_nan()) {
                continue;
            }
            let point = Point { taken: outcome.taken, ..self.point(metric, series) };
            let of_limit = outcome.limit.as_ref().and_then(|all| all.get(at));
            points.push(match (limit, of_limit) {
                (Some(name), Some(series)) if metric.is_compared => point.against(name, series),
                _ => point,
            });
        }
        points
    }

    /// A figure that could not be measured, and why.
    pub fn absent(&self, metric: &Metric, why: &str) -> Point {
        let point = self.point(metric, &Series::default());
        Point { taken: 0, note: Some(why.to_owned()), ..point }
    }
}

impl Point {
    /// With the ratio of its samples to those of another system in the same rounds.
    pub fn against(mut self, system: &str, other: &Series) -> Point {
        let ratios = Series(self.samples.clone()).ratios(other);
        if !ratios.0.is_empty() {
            let (median, spread) = (ratios.median(), ratios.mad());
            self.ratio_to = Some(Ratio { system: system.to_owned(), median, spread });
        }
        self
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A point of `metric` "rate" for tests, whose rounds all gave `rate`.
    pub fn rate_point(system: &str, parameters: Parameters, rate: f64) -> Point {
        let metric = Metric::new("rate", "Mpps", f64::INFINITY);
        let subject = Subject { experiment: "rates", system: system.into(), parameters };
        subject.point(&metric, &Series(vec![rate; 3]))
    }

    #[test]
    fn points_survive_json_in_order() {
        let parameters = parameters([("size", 64u64.into()), ("rules", "1:1".into())]);
        let mut point = rate_point("Linux bridge", parameters, 2.0);
        point.samples = vec![1.0, 2.0, 3.123_456_78];
        let point = point.against("bare XDP", &Series(vec![2.0, 4.0, 6.0]));
        let text = serde_json::to_string(&point).unwrap();
        assert!(text.contains(r#""parameters":{"size":64,"rules":"1:1"}"#), "{text}");
        assert!(text.contains("3.123457]") && !text.contains("note"), "{text}");
        let read = serde_json::from_str::<Point>(&text).unwrap();
        assert_eq!(read, Point { samples: vec![1.0, 2.0, 3.123457], ..point });
        assert_eq!((read.median, read.spread), (Some(2.0), Some(0.0)));
        assert_eq!(read.ratio_to.map(|r| r.median), Some(0.5));
    }

    #[test]
    fn a_figure_that_was_not_measured_has_a_reason_and_no_samples() {
        let metric = Metric::new("rate", "Mpps", 0.1);
        let parameters = Parameters::new();
        let subject = Subject { experiment: "rates", system: "OVS".into(), parameters };
        let point = subject.absent(&metric, "it does not start");
        assert_eq!((point.median, point.samples.len(), point.taken), (None, 0, 0));
        assert_eq!(point.note.as_deref(), Some("it does not start"));
    }
}

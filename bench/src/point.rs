// SPDX-License-Identifier: Apache-2.0
//! What a comparison says: one metric of one system under one choice of parameters.

use crate::measure::Series;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// A parameter's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A size in bytes, or a number of flows, packets a second, ...
    Count(u64),
    /// A kind of rules, a path, ...
    Text(String),
}

impl From<u64> for Value {
    fn from(count: u64) -> Value {
        Value::Count(count)
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

/// Names of parameters and their values, in the order in which they are to be shown.
pub type Parameters = IndexMap<String, Value>;

/// How samples stand to those of another system, taken in turn with them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The other system.
    pub system: String,
    /// Median of the rounds' ratios.
    pub median: f64,
    /// Median distance from it.
    pub spread: f64,
}

/// One figure, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the system that was measured.
    pub system: String,
    /// Under which choice.
    pub parameters: Parameters,
    /// What was measured.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// One for each round; none when it could not be measured.
    pub samples: Vec<f64>,
    /// The middle sample.
    pub median: Option<f64>,
    /// Median distance of the samples from the median, in the unit.
    pub spread: Option<f64>,
    /// Against another system, where there is one to compare with.
    pub ratio_to: Option<Ratio>,
    /// How often the rounds were taken.
    pub taken: u32,
    /// The samples scatter too widely, also when taken again.
    pub unsteady: bool,
    /// What a reader has to know: why there are no samples, or what limits them.
    pub note: Option<String>,
}

/// What the points of one measurement have in common.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Name of the system.
    pub system: String,
    /// Under which choice.
    pub parameters: Parameters,
}

impl Subject {
    /// A metric that was measured, of rounds that were taken once and are steady.
    pub fn point(&self, metric: &str, unit: &str, samples: &Series) -> Point {
        let known = !samples.0.is_empty();
        Point {
            experiment: self.experiment.to_owned(),
            system: self.system.clone(),
            parameters: self.parameters.clone(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            median: known.then(|| samples.median()),
            spread: known.then(|| samples.mad()),
            samples: samples.0.clone(),
            ratio_to: None,
            taken: 1,
            unsteady: false,
            note: None,
        }
    }

    /// A metric that could not be measured, and why.
    pub fn absent(&self, metric: &str, unit: &str, why: &str) -> Point {
        let point = self.point(metric, unit, &Series::default());
        Point { taken: 0, note: Some(why.to_owned()), ..point }
    }
}

impl Point {
    /// With the ratio of these samples to those of another system in the same rounds.
    pub fn against(mut self, system: &str, other: &Series) -> Point {
        let ratios = Series(self.samples.clone()).with(other, |mine, its| mine / its);
        if !ratios.0.is_empty() {
            let (median, spread) = (ratios.median(), ratios.mad());
            self.ratio_to = Some(Ratio { system: system.to_owned(), median, spread });
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject {
        let parameters = [("size".to_owned(), 64.into()), ("rules".to_owned(), "1:1".into())];
        Subject {
            experiment: "grid",
            system: "Linux bridge".into(),
            parameters: parameters.into_iter().collect(),
        }
    }

    #[test]
    fn points_survive_json_in_order() {
        let point = subject()
            .point("rate", "Mpps", &Series(vec![1.0, 2.0, 3.0]))
            .against("bare XDP", &Series(vec![2.0, 4.0, 6.0]));
        let text = serde_json::to_string(&point).unwrap();
        assert!(text.contains(r#""parameters":{"size":64,"rules":"1:1"}"#), "{text}");
        assert_eq!(serde_json::from_str::<Point>(&text).unwrap(), point);
        assert_eq!((point.median, point.spread), (Some(2.0), Some(1.0)));
        assert_eq!(point.ratio_to.map(|r| r.median), Some(0.5));
    }

    #[test]
    fn what_was_not_measured_says_why_and_has_no_figures() {
        let point = subject().absent("rate", "Mpps", "it does not start");
        assert_eq!((point.median, point.samples.len(), point.taken), (None, 0, 0));
        assert_eq!(point.note.as_deref(), Some("it does not start"));
    }
}

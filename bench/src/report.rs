// SPDX-License-Identifier: Apache-2.0
//! What a run says: here the figures of groups, below the page of experiments.

pub mod goals;
pub mod machine;
pub mod markdown;
pub mod plot;
pub mod results;
pub mod scale;
pub mod table;

use crate::measure::Series;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// How a measurement stands to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Divided by it.
    Share,
    /// Less it, in the unit of both.
    Over,
}

/// What is to be reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// The relation (or, without a limit, the measurement) is at least this.
    AtLeast(f64),
    /// At most.
    AtMost(f64),
}

/// One line of the report.
#[derive(Clone, Debug)]
pub struct Figure {
    /// `cost`, `udp`, ...
    pub group: &'static str,
    /// What is measured.
    pub name: String,
    /// Of the measurements.
    pub unit: &'static str,
    /// The measurements.
    pub measured: Series,
    /// What bounds them: its name, its measurements in the same rounds, and the relation.
    pub limit: Option<(String, Series, Relation)>,
    /// For the relation, or for the measurements when there is no limit or `absolute` is set.
    pub goal: Option<Goal>,
    /// The goal is for the measurements although there is a limit.
    pub absolute: bool,
    /// Times that the rounds were taken.
    pub taken: u32,
    /// They scatter too widely.
    pub unsteady: bool,
}

impl Figure {
    /// The relation to the limit in each round.
    fn related(&self) -> Option<Series> {
        let (_, limit, relation) = self.limit.as_ref()?;
        Some(self.measured.with(limit, |m, l| match relation {
            Relation::Share => m / l,
            Relation::Over => m - l,
        }))
    }

    /// What the goal is about.
    fn judged(&self) -> Series {
        if self.absolute {
            return self.measured.clone();
        }
        self.related().unwrap_or_else(|| self.measured.clone())
    }

    /// Whether the goal is reached; `None` without a goal.
    pub fn met(&self) -> Option<bool> {
        let value = self.judged().median();
        self.goal.map(|goal| match goal {
            Goal::AtLeast(bound) => value >= bound,
            Goal::AtMost(bound) => value <= bound,
        })
    }

    fn cells(&self) -> [String; 6] {
        let related = match (self.related(), &self.limit) {
            (Some(r), Some((_, _, Relation::Share))) => {
                format!("{:.3} ±{:.3}", r.median(), r.mad())
            }
            (Some(r), _) => format!("{:+.1} ±{:.1} {}", r.median(), r.mad(), self.unit),
            (None, _) => "-".into(),
        };
        let limit = self.limit.as_ref().map_or("-".into(), |(name, series, _)| {
            format!("{name} {}", spread(series, self.unit))
        });
        let goal = self.goal.map_or("-".into(), |goal| {
            let (sign, bound) = match goal {
                Goal::AtLeast(bound) => (">=", bound),
                Goal::AtMost(bound) => ("<=", bound),
            };
            format!("{sign} {bound}")
        });
        let mut verdict = match self.met() {
            Some(true) => "met".to_owned(),
            Some(false) => "MISSED".to_owned(),
            None => "-".to_owned(),
        };
        if self.unsteady {
            verdict.push_str(" ~");
        }
        let name = format!("{} {}", self.group, self.name);
        [name, spread(&self.measured, self.unit), limit, related, goal, verdict]
    }

    fn json(&self) -> Value {
        json!({
            "group": self.group,
            "name": self.name,
            "unit": self.unit,
            "measured": self.measured.json(),
            "limit": self.limit.as_ref().map(|(name, series, relation)| json!({
                "name": name,
                "measured": series.json(),
                "relation": match relation { Relation::Share => "share", Relation::Over => "over" },
            })),
            "related": self.related().map(|s| s.json()),
            "goal": self.goal.map(|g| match g {
                Goal::AtLeast(bound) => json!({ "at_least": bound }),
                Goal::AtMost(bound) => json!({ "at_most": bound }),
            }),
            "met": self.met(),
            "taken": self.taken,
            "unsteady": self.unsteady,
        })
    }
}

/// Everything that was measured and what was not.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Facts about the run, each a name and a text.
    pub facts: Vec<(&'static str, String)>,
    /// In the order of measuring.
    pub figures: Vec<Figure>,
    /// What could not be measured, and why.
    pub absent: Vec<(String, String)>,
    /// What a reader has to know.
    pub notes: Vec<String>,
}

impl Report {
    /// Adds a figure.
    pub fn add(&mut self, figure: Figure) {
        eprintln!("  {}", figure.cells().join("  "));
        self.figures.push(figure);
    }

    /// Says why something is missing.
    pub fn miss(&mut self, name: impl Into<String>, why: impl Into<String>) {
        let (name, why) = (name.into(), why.into());
        eprintln!("  {name}: could not be measured: {why}");
        self.absent.push((name, why));
    }

    /// Adds what a reader has to know, once.
    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// True when some goal is missed.
    pub fn missed(&self) -> bool {
        self.figures.iter().any(|f| f.met() == Some(false))
    }

    /// The table.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, fact) in &self.facts {
            let _ = writeln!(text, "{name}: {fact}");
        }
        let heads =
            ["figure", "measured [min..max]", "limit", "against the limit", "goal", "verdict"];
        let mut rows = vec![heads.map(String::from)];
        rows.extend(self.figures.iter().map(Figure::cells));
        if !self.figures.is_empty() {
            text.push('\n');
            text.push_str(&columns(&rows));
        }
        if !self.absent.is_empty() {
            text.push_str("\nnot measured:\n");
        }
        for (name, why) in &self.absent {
            let _ = writeln!(text, "  {name}: {}", why.replace('\n', "\n    "));
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(text, "{note}");
        }
        if self.figures.iter().any(|f| f.unsteady) {
            text.push_str("~ scatters too widely, also when taken again\n");
        }
        text
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        let facts: serde_json::Map<String, Value> =
            self.facts.iter().map(|(n, f)| ((*n).to_owned(), json!(f))).collect();
        json!({
            "facts": facts,
            "figures": self.figures.iter().map(Figure::json).collect::<Vec<_>>(),
            "not_measured": self.absent.iter()
                .map(|(name, why)| json!({ "name": name, "why": why }))
                .collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

fn spread(series: &Series, unit: &str) -> String {
    let digits = match series.median().abs() {
        v if v < 1.0 => 3,
        v if v < 100.0 => 2,
        _ => 0,
    };
    format!(
        "{:.digits$} {unit} [{:.digits$}..{:.digits$}]",
        series.median(),
        series.min(),
        series.max()
    )
}

fn columns(rows: &[[String; 6]]) -> String {
    let mut widths = [0; 6];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let line: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "{}", line.join("  ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(measured: f64, limit: f64, relation: Relation, goal: Goal) -> Figure {
        Figure {
            group: "cost",
            name: "x".into(),
            unit: "ns",
            measured: Series(vec![measured; 3]),
            limit: Some(("bare".into(), Series(vec![limit; 3]), relation)),
            goal: Some(goal),
            absolute: false,
            taken: 1,
            unsteady: false,
        }
    }

    #[test]
    fn goals_are_about_the_relation() {
        assert_eq!(figure(30.0, 8.0, Relation::Over, Goal::AtMost(25.0)).met(), Some(true));
        assert_eq!(figure(34.0, 8.0, Relation::Over, Goal::AtMost(25.0)).met(), Some(false));
        assert_eq!(figure(8.0, 10.0, Relation::Share, Goal::AtLeast(0.8)).met(), Some(true));
        assert_eq!(figure(7.0, 10.0, Relation::Share, Goal::AtLeast(0.8)).met(), Some(false));
    }

    #[test]
    fn the_table_names_limit_and_verdict() {
        let mut report = Report::default();
        report.figures.push(figure(7.0, 10.0, Relation::Share, Goal::AtLeast(0.8)));
        report.absent.push(("tcp".into(), "no root".into()));
        let text = report.text();
        assert!(text.contains("bare 10.00 ns [10.00..10.00]  0.700 ±0.000"), "{text}");
        assert!(text.contains(">= 0.8  MISSED"), "{text}");
        assert!(text.contains("tcp: no root"), "{text}");
        assert!(report.missed());
        assert_eq!(report.json()["figures"][0]["met"], false);
    }
}

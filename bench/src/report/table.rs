// SPDX-License-Identifier: Apache-2.0
//! The tables of an experiment: a row for each system, a column for each value of a parameter.

use super::number::{count, number};
use super::results::{Role, more_is_better};
use crate::point::{Point, Value};

/// One metric of an experiment.
#[derive(Debug)]
pub struct Table<'a> {
    pub metric: &'a str,
    pub unit: &'a str,
    /// Parameters that all points of the table have in common: names and values.
    pub fixed: Vec<(&'a str, &'a Value)>,
    /// The parameter that varies, if any.
    pub across: Option<&'a str>,
    /// Its values, ascending where they are counts.
    pub columns: Vec<&'a Value>,
    pub systems: Vec<&'a str>,
    points: Vec<&'a Point>,
}

/// The only column of a table without a varying parameter.
static NOTHING: Value = Value::Count(0);

/// The tables of all `points`, in their order. `across` varies within a table; each choice of the
/// other parameters has a table of its own. Systems are in the order of `order`, unknown ones last.
pub fn tables<'a>(
    points: impl Iterator<Item = &'a Point>,
    across: Option<&'a str>,
    order: &[&str],
) -> Vec<Table<'a>> {
    let mut tables: Vec<Table<'a>> = Vec::new();
    for point in points {
        let fixed: Vec<(&str, &Value)> = point
            .parameters
            .iter()
            .map(|(name, value)| (name.as_str(), value))
            .filter(|(name, _)| Some(*name) != across)
            .collect();
        let fits =
            |t: &Table<'_>| t.metric == point.metric && t.unit == point.unit && t.fixed == fixed;
        let at = tables.iter().position(fits).unwrap_or_else(|| {
            let across = across.filter(|name| point.parameters.contains_key(*name));
            tables.push(Table {
                metric: &point.metric,
                unit: &point.unit,
                fixed,
                across,
                columns: Vec::new(),
                systems: Vec::new(),
                points: Vec::new(),
            });
            tables.len() - 1
        });
        if let Some(table) = tables.get_mut(at) {
            table.add(point);
        }
    }
    for table in &mut tables {
        table.columns.sort_by_key(|value| match value {
            Value::Count(count) => *count,
            Value::Text(_) => 0,
        });
        table
            .systems
            .sort_by_key(|name| order.iter().position(|n| n == name).unwrap_or(usize::MAX));
    }
    tables
}

impl<'a> Table<'a> {
    fn add(&mut self, point: &'a Point) {
        let column = self.value_of(point);
        if !self.columns.contains(&column) {
            self.columns.push(column);
        }
        if !self.systems.contains(&point.system.as_str()) {
            self.systems.push(&point.system);
        }
        self.points.push(point);
    }

    fn value_of(&self, point: &'a Point) -> &'a Value {
        self.across.and_then(|name| point.parameters.get(name)).unwrap_or(&NOTHING)
    }

    /// The point of a system in a column.
    pub fn point(&self, system: &str, column: &Value) -> Option<&'a Point> {
        self.points.iter().copied().find(|p| p.system == system && self.value_of(p) == column)
    }

    pub fn title(&self) -> String {
        let mut title = capital(self.metric);
        for (name, value) in &self.fixed {
            title.push_str(&format!(", {name} {}", shown(value)));
        }
        title
    }

    /// The table as markdown, followed by its notes.
    pub fn markdown(&self) -> String {
        let mut notes: Vec<&str> = Vec::new();
        let head = self.across.map_or(String::new(), |name| format!("{name} →"));
        let columns: Vec<String> = match self.across {
            Some(_) => self.columns.iter().map(|v| shown(v)).collect(),
            None => vec![format!("{} ({})", self.metric, self.unit)],
        };
        let mut text = format!(
            "| {head} | {} |\n|---|{}\n",
            columns.join(" | "),
            "---:|".repeat(columns.len())
        );
        for system in &self.systems {
            let cells: Vec<String> =
                self.columns.iter().map(|c| self.cell(system, c, &mut notes)).collect();
            text.push_str(&format!("| {system} | {} |\n", cells.join(" | ")));
        }
        if !notes.is_empty() {
            text.push('\n');
        }
        for (number, note) in (1..).zip(notes) {
            text.push_str(&format!("{number}. {}\n", one_line(note)));
        }
        text
    }

    fn cell(&self, system: &str, column: &Value, notes: &mut Vec<&'a str>) -> String {
        let Some(point) = self.point(system, column) else { return "–".into() };
        let mut cell = match (point.median, point.spread) {
            (Some(median), Some(spread)) => format!("{} ±{}", number(median), number(spread)),
            _ => "not measured".into(),
        };
        if point.unsteady {
            cell.push('~');
        }
        if Role::of(system) != Role::Limit
            && point.median.is_some()
            && point.median == self.best(column)
        {
            cell = format!("**{cell}**");
        }
        if let Some(ratio) = &point.ratio_to {
            cell.push_str(&format!(" ({})", number(ratio.median)));
        }
        if let Some(note) = point.note.as_deref() {
            let at = notes.iter().position(|n| *n == note).unwrap_or_else(|| {
                notes.push(note);
                notes.len() - 1
            });
            cell.push_str(&format!(" [{}]", at + 1));
        }
        cell
    }

    /// The median of the best switch in a column; limits are no switches.
    fn best(&self, column: &Value) -> Option<f64> {
        let switches = self.systems.iter().filter(|s| Role::of(s) != Role::Limit);
        let medians = switches.filter_map(|s| self.point(s, column)?.median);
        medians.reduce(if more_is_better(self.unit) { f64::max } else { f64::min })
    }
}

/// A parameter's value for a reader.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Count(number) => count(*number),
        Value::Text(text) => text.clone(),
    }
}

/// With a capital first letter.
pub fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Text without line breaks, and with escaped column separators.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::parameters;
    use crate::point::tests::rate_point;

    fn point(system: &str, rules: &str, flows: u64, rate: f64) -> Point {
        rate_point(system, parameters([("rules", rules.into()), ("flows", flows.into())]), rate)
    }

    #[test]
    fn systems_are_rows_and_one_parameter_is_the_columns() {
        let points = [
            point("Slipswitch xdp", "1:1", 65_536, 9.0),
            point("Slipswitch xdp", "1:1", 1, 9.5),
            point("bare XDP redirect", "1:1", 1, 10.0),
            point("Slipswitch xdp", "prefix", 1, 9.6),
        ];
        let tables = tables(points.iter(), Some("flows"), &["bare XDP redirect"]);
        assert_eq!(tables.len(), 2);
        assert_eq!(tables[0].title(), "Rate, rules 1:1");
        assert_eq!(tables[1].title(), "Rate, rules prefix");
        let text = tables[0].markdown();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "| flows → | 1 | 64K |");
        assert_eq!(lines[2], "| bare XDP redirect | 10.0 ±0 | – |");
        assert_eq!(lines[3], "| Slipswitch xdp | **9.50 ±0** | **9.00 ±0** |");
    }

    #[test]
    fn another_switch_that_is_ahead_is_in_bold() {
        let points = [
            point("OVS-DPDK", "1:1", 1, 9.9),
            point("OVS-DPDK", "1:1", 1024, 1.0),
            point("Slipswitch xdp", "1:1", 1, 9.5),
            point("Slipswitch tcx", "1:1", 1, 3.0),
            point("Slipswitch xdp", "1:1", 1024, 9.5),
        ];
        let text = tables(points.iter(), Some("flows"), &["bare XDP redirect"])[0].markdown();
        assert!(text.contains("| OVS-DPDK | **9.90 ±0** | 1.00 ±0 |"), "{text}");
    }

    #[test]
    fn less_is_better_where_the_unit_is_a_time() {
        let mut points = [point("OVS", "1:1", 1, 30.0), point("Slipswitch tcx", "1:1", 1, 20.0)];
        for point in &mut points {
            point.unit = "µs".into();
        }
        let tables = tables(points.iter(), Some("flows"), &["bare XDP redirect"]);
        assert!(tables[0].markdown().contains("| Slipswitch tcx | **20.0 ±0** |"));
    }

    #[test]
    fn missing_and_unsteady_figures_are_marked() {
        let mut points = [
            point("OVS-DPDK", "1:1", 1, 9.9),
            point("OVS AF_XDP", "1:1", 1, 1.0),
            point("OVS AF_PACKET", "1:1", 1, 1.0),
        ];
        for point in points.iter_mut().take(2) {
            (point.median, point.spread) = (None, None);
            point.note = Some("no\nsuch | program".into());
        }
        points[2].unsteady = true;
        let text = tables(points.iter(), Some("flows"), &["bare XDP redirect"])[0].markdown();
        assert!(text.contains("| OVS-DPDK | not measured [1] |"), "{text}");
        assert!(text.contains("| OVS AF_XDP | not measured [1] |"), "{text}");
        assert!(text.contains("1.00 ±0~"), "{text}");
        assert!(text.ends_with("\n1. no such \\| program\n"), "{text}");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The page: goals, machine, and a section for each experiment, with its plots.

use super::goals::{Goal, Verdict};
use super::plot::{Line, Plot, Value as Drawn};
use super::results::{Results, more_is_better};
use super::table::{Table, one_line, shown, tables};
use crate::experiment::Experiment;
use crate::point::{Point, Value};
use std::fmt::Write as _;

/// The page and its plots.
#[derive(Debug)]
pub struct Page {
    /// Text of the report in Markdown.
    pub text: String,
    /// File names and SVG.
    pub plots: Vec<(String, String)>,
}

/// The parts of the page.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    pub experiments: &'a [&'a Experiment],
    /// Names of systems in the order of the tables.
    pub systems: &'a [&'a str],
    pub goals: &'a [Goal],
    /// About how long a short run takes.
    pub minutes: u64,
}

/// Writes the page. Plots are linked in `folder`, a path relative to the page; an empty one, for a
/// page that goes to a terminal, has no links.
pub fn page(results: &Results, layout: &Layout<'_>, folder: &str) -> Page {
    let mut page = Page { text: head(results, layout.minutes, folder), plots: Vec::new() };
    page.text.push_str("\n## The machine and the run\n\n| | |\n|---|---|\n");
    for (name, fact) in results.machine.iter().chain(&results.run) {
        let _ = writeln!(page.text, "| {name} | {} |", one_line(fact));
    }
    goals(&mut page.text, results, layout);
    page.text.push_str(SYSTEMS);
    for (system, setting) in &results.systems {
        let _ = writeln!(page.text, "| {system} | {} |", one_line(setting));
    }
    let (run, not_run): (Vec<&Experiment>, Vec<&Experiment>) =
        layout.experiments.iter().copied().partition(|experiment| results.has(experiment.name));
    for experiment in run {
        section(&mut page, results, experiment, layout.systems, folder);
    }
    let not_run = not_run.iter().map(|e| format!("{}: `--only {}`", e.title, e.name));
    list(&mut page.text, "Not part of this run", not_run);
    list(&mut page.text, "Notes", results.notes.iter().map(|note| one_line(note)));
    page
}

fn head(results: &Results, minutes: u64, folder: &str) -> String {
    let rest = match results.is_full() {
        true => "This is the full run.",
        false => "A line of each experiment says what only the full run has.",
    };
    let samples = match folder {
        "" => String::new(),
        _ => format!(
            "\nSamples of every figure are in [{folder}/results.json]({folder}/results.json)."
        ),
    };
    format!(
        "\
# Benchmarks

Pages like this are written by `make bench` (about {minutes} minutes), `make bench-full` (all points, more
rounds) and `make bench-kernel` (with the kernel's Open vSwitch, in an emulated guest:
[benchmarks-kernel.md](benchmarks-kernel.md)); do not edit them. {rest}
All figures are of one run on the machine below, with the same generator and the same sink for
every system. A note gives the reason where a figure could not be measured. Figures that two
experiments have in common are measured once and are in both.{samples}

How to read the tables: the median over the rounds, ± the median distance from it. In brackets: the
median of the rounds' ratios to the limit of the experiment, or to the system that its text names, if
they took turns. Bold: the best switch of a column (limits are no switches). `~`: figures that
scatter widely, also when repeated. [1]: a note below the table. Plots show the smallest and the
largest sample as a thin line.
"
    )
}

/// Heading of the systems' table. The remarks explain most figures in which another switch is best.
const SYSTEMS: &str = "
## The compared systems

OVS AF_XDP and OVS-DPDK poll on a CPU of their own: no packet waits until a thread is awake, and
only the rate per core accounts for that CPU. The Linux bridge forwards by destination address,
without rules, flows and their statistics.

| system | settings |
|---|---|
";

const GOALS: &str = "
The limit is the figure of a system that does the least possible work in place of Slipswitch: a
redirect that finds and counts a packet's flow or, between hosts, reads no packet; an OpenFlow
server that keeps no rule.

| goal | bound | measured | limit | |
|---|---|---|---|---|
";

fn goals(text: &mut String, results: &Results, layout: &Layout<'_>) {
    let goals = layout.goals;
    let verdicts: Vec<Verdict> = goals.iter().map(|g| g.judge(results)).collect();
    let met = verdicts.iter().filter(|v| matches!(v, Verdict::Met(_))).count();
    let missed = verdicts.iter().filter(|v| matches!(v, Verdict::Missed(_))).count();
    let rest = goals.len() - met - missed;
    let _ = writeln!(text, "\n## Goals\n\n{met} met, {missed} missed, {rest} not measured.");
    let (run, not_run): (Vec<&Goal>, Vec<&Goal>) =
        goals.iter().partition(|goal| results.has(goal.experiment));
    if !not_run.is_empty() {
        text.push_str("\nGoals that are not in this table need experiments that were not run.\n");
    }
    if !run.is_empty() {
        text.push_str(GOALS);
    }
    for goal in run {
        let _ = writeln!(text, "{}", goal.row(results));
    }
    for Experiment { title, name, .. } in layout.experiments.iter().filter(|e| e.long) {
        if not_run.iter().any(|goal| goal.experiment == *name) {
            let judge = "takes long: `make bench-full` judges its goals";
            let _ = writeln!(text, "\n{title} ({name}) {judge}.");
        }
    }
}

fn section(
    page: &mut Page,
    results: &Results,
    experiment: &Experiment,
    systems: &[&str],
    folder: &str,
) {
    let Page { text, plots } = page;
    let Experiment { name, title, about, repeats, shown, more, .. } = experiment;
    let _ = writeln!(
        text,
        "\n## {title}\n\n{about}\n\nRepeats: {repeats}. Again, to the terminal: \
         `cargo run --release -p slipswitch-bench -- --only {name}`."
    );
    if !results.is_full() && !more.is_empty() {
        let _ = writeln!(text, "\nOnly `make bench-full` has {more}.");
    }
    let is_shown = |p: &&Point| shown.is_empty() || shown.contains(&p.metric.as_str());
    let points = results.of(name).filter(is_shown);
    for (number, table) in (1..).zip(&tables(points, experiment.across, systems)) {
        let (title, unit, rows) = (table.title(), table.unit, table.markdown());
        let better = if more_is_better(unit) { "more" } else { "less" };
        let _ = writeln!(text, "\n**{title}** ({unit}, {better} is better)\n\n{rows}");
        if let Some(svg) = draw(table, systems) {
            let file = format!("{name}-{number}.svg");
            if !folder.is_empty() {
                let _ = writeln!(text, "![{title}]({folder}/{file})");
            }
            plots.push((file, svg));
        }
    }
}

/// A section with a list, if it has any items.
fn list(text: &mut String, heading: &str, items: impl Iterator<Item = String>) {
    let items: String = items.map(|item| format!("- {item}\n")).collect();
    if !items.is_empty() {
        let _ = write!(text, "\n## {heading}\n\n{items}");
    }
}

/// Lines if a count varies, bars if nothing does; no plot of fewer than two systems.
fn draw(table: &Table<'_>, names: &[&str]) -> Option<String> {
    let is_count = |column: &&Value| matches!(column, Value::Count(_));
    if table.columns.len() > 1 && !table.columns.iter().all(is_count) {
        return None;
    }
    let line = |system: &&str| Line {
        name: (*system).to_owned(),
        style: names.iter().position(|name| name == system).unwrap_or(0),
        values: (0..)
            .zip(&table.columns)
            .filter_map(|(number, column)| Some((number, drawn(table, system, column)?)))
            .collect(),
    };
    let lines: Vec<Line> =
        table.systems.iter().map(line).filter(|l| !l.values.is_empty()).collect();
    let title = &table.title();
    let (x, columns) = match table.across {
        Some(name) => (name, table.columns.iter().map(|column| shown(column)).collect()),
        None => ("", vec![String::new()]),
    };
    (lines.len() > 1).then(|| Plot { title, x, columns, y: table.unit, lines }.svg())
}

fn drawn(table: &Table<'_>, system: &str, column: &Value) -> Option<Drawn> {
    let point = table.point(system, column)?;
    let samples = point.samples.iter().copied();
    Some(Drawn {
        median: point.median?,
        low: samples.clone().fold(f64::INFINITY, f64::min),
        high: samples.fold(f64::NEG_INFINITY, f64::max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::parameters;
    use crate::point::tests::rate_point;
    use crate::report::goals::{Bound, Figure};
    use crate::report::results::{ALL_POINTS, POINTS};

    const MADE_UP: Experiment = Experiment {
        name: "made-up",
        title: "Made up",
        about: "Figures for a test.",
        repeats: "nothing",
        across: Some("flows"),
        shown: &["rate"],
        more: "more flows",
        ..Experiment::BASE
    };
    const GOAL: Goal = Goal {
        words: "rate",
        experiment: "made-up",
        metric: "rate",
        parameters: &[("flows", "1024")],
        system: "Slipswitch xdp",
        figure: Figure::Median,
        bound: Bound::AtLeast(5.0),
        limit: None,
    };

    const LAYOUT: Layout<'_> = Layout {
        experiments: &[&MADE_UP],
        systems: &["bare XDP redirect", "OVS-DPDK", "Slipswitch xdp"],
        goals: &[GOAL],
        minutes: 3,
    };

    fn point(system: &str, flows: u64, rate: f64) -> Point {
        let parameters = parameters([("flows", flows.into())]);
        let samples = vec![rate, rate * 1.01, rate * 0.99];
        let spread = Some(rate * 0.01);
        let experiment = "made-up".into();
        Point { experiment, samples, spread, ..rate_point(system, parameters, rate) }
    }

    fn results() -> Results {
        let points = vec![
            point("bare XDP redirect", 1, 10.0),
            point("bare XDP redirect", 1024, 9.0),
            point("OVS-DPDK", 1, 9.5),
            point("OVS-DPDK", 1024, 1.0),
            point("Slipswitch xdp", 1, 9.0),
            point("Slipswitch xdp", 1024, 4.0),
        ];
        let mut results = Results { points, ..Results::default() };
        let mut hidden = results.points[0].clone();
        hidden.metric = "loss".into();
        results.points.push(hidden);
        results.machine.insert("kernel".into(), "6.1".into());
        results.systems.insert("OVS-DPDK".into(), "one PMD".into());
        results.add_note("A note | of two\nlines.");
        results
    }

    #[test]
    fn the_page_has_machine_goals_tables_plots_and_notes() {
        let page = page(&results(), &LAYOUT, "benchmarks");
        for words in [
            "| kernel | 6.1 |",
            "0 met, 1 missed, 0 not measured.",
            "| rate | ≥ 5 Mpps | 4.00 Mpps | – | **missed** |",
            "| OVS-DPDK | one PMD |",
            "## Made up\n\nFigures for a test.\n\nRepeats: nothing. Again, to the terminal: \
             `cargo run --release -p slipswitch-bench -- --only made-up`.\n\n\
             Only `make bench-full` has more flows.",
            "`make bench` (about 3 minutes)",
            "| flows → | 1 | 1K |",
            "![Rate](benchmarks/made-up-1.svg)",
            "[benchmarks/results.json](benchmarks/results.json)",
            "- A note \\| of two lines.",
        ] {
            assert!(page.text.contains(words), "{words}\nis not in\n{}", page.text);
        }
        assert!(!page.text.contains("Loss"), "{}", page.text);
        let [(file, svg)] = &page.plots[..] else { panic!("one plot was expected") };
        assert_eq!(file, "made-up-1.svg");
        assert_eq!(svg.matches("<polyline ").count(), 3);
    }

    #[test]
    fn the_page_of_a_full_run_says_that_it_is_one() {
        let mut results = results();
        results.run.insert(POINTS.into(), ALL_POINTS.into());
        let page = page(&results, &LAYOUT, "benchmarks");
        assert!(page.text.contains("This is the full run."), "{}", page.text);
        assert!(!page.text.contains("more flows"), "{}", page.text);
    }

    #[test]
    fn goals_of_long_experiments_name_the_run_that_judges_them() {
        let long = Experiment { long: true, ..MADE_UP };
        let layout = Layout { experiments: &[&long], ..LAYOUT };
        let words = "Made up (made-up) takes long: `make bench-full` judges its goals.";
        assert!(page(&Results::default(), &layout, "benchmarks").text.contains(words));
        assert!(!page(&results(), &layout, "benchmarks").text.contains(words));
    }

    #[test]
    fn experiments_that_were_not_run_are_only_named() {
        let none = Results::default();
        let page = page(&none, &LAYOUT, "benchmarks");
        for words in [
            "## Not part of this run\n\n- Made up: `--only made-up`\n",
            "0 met, 0 missed, 1 not measured.\n\nGoals that are not in this table",
        ] {
            assert!(page.text.contains(words), "{words}\nis not in\n{}", page.text);
        }
        for words in ["## Made up", "| goal |"] {
            assert!(!page.text.contains(words), "{words}\nis in\n{}", page.text);
        }
        assert!(page.plots.is_empty());
    }

    #[test]
    fn a_page_for_a_terminal_names_no_files() {
        let text = page(&results(), &LAYOUT, "").text;
        assert!(text.contains("**Rate**") && !text.contains("](/"), "{text}");
    }

    #[test]
    fn a_metric_without_parameters_is_drawn_as_bars() {
        let mut results = results();
        for point in &mut results.points {
            point.parameters.clear();
        }
        results.points.dedup_by(|a, b| a.system == b.system);
        let page = page(&results, &LAYOUT, "benchmarks");
        assert_eq!(page.plots.len(), 1);
        assert!(page.plots[0].1.contains("<rect "));
        assert!(page.text.contains("|  | rate (Mpps) |"), "{}", page.text);
    }
}

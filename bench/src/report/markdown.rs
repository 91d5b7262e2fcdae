// SPDX-License-Identifier: Apache-2.0
//! The page: goals, machine, and a section for each experiment, with its plots.

use super::goals::{Goal, Verdict};
use super::plot::{self, Frame, Line, Value as Drawn};
use super::results::{Results, more_is_better};
use super::scale::{Spread, number};
use super::table::{Ahead, Table, one_line, shown, tables};
use crate::experiment::Experiment;
use crate::point::{Point, Value};
use indexmap::IndexMap;
use std::fmt::Write as _;

/// A plot is logarithmic if its largest value exceeds this times its smallest.
const WIDE: f64 = 30.0;

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
    let mut text = head(results, layout.minutes, folder);
    facts(&mut text, results);
    goals_table(&mut text, results, layout);
    let mut plots = Vec::new();
    text.push_str("\n## The compared systems\n\n| system | settings |\n|---|---|\n");
    for (system, setting) in &results.systems {
        let _ = writeln!(text, "| {system} | {} |", one_line(setting));
    }
    let (run, not_run): (Vec<&Experiment>, Vec<&Experiment>) =
        layout.experiments.iter().copied().partition(|experiment| results.has(experiment.name));
    for experiment in run {
        section(&mut text, &mut plots, results, experiment, layout.systems, folder);
    }
    missing(&mut text, &not_run);
    if !results.notes.is_empty() {
        text.push_str("\n## Notes\n\n");
    }
    for note in &results.notes {
        let _ = writeln!(text, "- {}", one_line(note));
    }
    Page { text, plots }
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

fn facts(text: &mut String, results: &Results) {
    text.push_str("## The machine and the run\n\n| | |\n|---|---|\n");
    for (name, fact) in results.machine.iter().chain(&results.run) {
        let _ = writeln!(text, "| {name} | {} |", one_line(fact));
    }
}

fn goals_table(text: &mut String, results: &Results, layout: &Layout<'_>) {
    let goals = layout.goals;
    let verdicts: Vec<Verdict> = goals.iter().map(|g| g.judge(results)).collect();
    let met = verdicts.iter().filter(|v| matches!(v, Verdict::Met(_))).count();
    let missed = verdicts.iter().filter(|v| matches!(v, Verdict::Missed(_))).count();
    let _ = writeln!(
        text,
        "\n## Goals\n\n{met} met, {missed} missed, {} not measured.",
        goals.len() - met - missed
    );
    let (run, not_run): (Vec<&Goal>, Vec<&Goal>) = goals
        .iter()
        .partition(|goal| goal.figure.experiments().into_iter().all(|name| results.has(name)));
    if !not_run.is_empty() {
        text.push_str("\nGoals that are not in this table need experiments that were not run.\n");
    }
    if !run.is_empty() {
        text.push_str(
            "\nThe limit is the figure of a system that does the least possible work in place of \
             Slipswitch: a redirect that finds and counts a packet's flow or, between hosts, reads \
             no packet; an OpenFlow server that keeps no rule.\n\n\
             | goal | bound | measured | limit | |\n|---|---|---|---|---|\n",
        );
    }
    for goal in run {
        let _ = writeln!(text, "{}", goal.row(results));
    }
    for experiment in layout.experiments.iter().filter(|experiment| experiment.long) {
        let is_judged = |goal: &Goal| goal.figure.experiments().contains(&experiment.name);
        if goals.iter().any(is_judged) && !results.has(experiment.name) {
            let (title, name) = (experiment.title, experiment.name);
            let _ = writeln!(
                text,
                "\n{title} ({name}) takes long: `make bench-full` judges its goals."
            );
        }
    }
}

fn section(
    text: &mut String,
    plots: &mut Vec<(String, String)>,
    results: &Results,
    experiment: &Experiment,
    systems: &[&str],
    folder: &str,
) {
    let _ = writeln!(
        text,
        "\n## {}\n\n{}\n\nRepeats: {}. Again, to the terminal: \
         `cargo run --release -p slipswitch-bench -- --only {}`.",
        experiment.title, experiment.about, experiment.repeats, experiment.name
    );
    let is_shown =
        |p: &&Point| experiment.shown.is_empty() || experiment.shown.contains(&p.metric.as_str());
    let points = results.of(experiment.name).filter(is_shown);
    let tables = tables(points, experiment.across, systems);
    if !results.is_full() && !experiment.more.is_empty() {
        let _ = writeln!(text, "\nOnly `make bench-full` has {}.", experiment.more);
    }
    for (number, table) in (1..).zip(&tables) {
        let _ =
            writeln!(text, "\n**{}** ({})\n\n{}", table.title(), better(table), table.markdown());
        if let Some(svg) = draw(table, systems) {
            let file = format!("{}-{number}.svg", experiment.name);
            if !folder.is_empty() {
                let _ = writeln!(text, "![{}]({folder}/{file})", table.title());
            }
            plots.push((file, svg));
        }
        ahead(text, table, experiment);
    }
}

/// The experiments that were not run, and how to run them.
fn missing(text: &mut String, experiments: &[&Experiment]) {
    if !experiments.is_empty() {
        text.push_str("\n## Not part of this run\n\n");
    }
    for Experiment { title, name, .. } in experiments {
        let _ = writeln!(text, "- {title}: `--only {name}`");
    }
}

fn better(table: &Table<'_>) -> String {
    let which = if more_is_better(table.unit) { "more" } else { "less" };
    format!("{}, {which} is better", table.unit)
}

/// Reports where another switch is ahead of Slipswitch, and why.
fn ahead(text: &mut String, table: &Table<'_>, experiment: &Experiment) {
    let mut ahead: IndexMap<(&str, &str), Vec<String>> = IndexMap::new();
    let mut all = table.ahead();
    all.sort_by_key(|ahead| ahead.system);
    for Ahead { system, column, its, ours, clear } in all {
        let at =
            table.across.map_or(String::new(), |name| format!("at {name} {}: ", shown(column)));
        let why = match clear {
            true => experiment.reason(system, table.metric, column).unwrap_or(UNKNOWN),
            false => SCATTER,
        };
        let place = format!("{at}{} against {}", number(its), number(ours));
        ahead.entry((system, why)).or_default().push(place);
    }
    for ((system, why), places) in ahead {
        let _ = writeln!(
            text,
            "\n{system} is ahead of every tier of Slipswitch here ({}). {why}",
            places.join("; ")
        );
    }
}

const UNKNOWN: &str = "The reason is not known.";
const SCATTER: &str =
    "The difference is less than the scatter of the samples, or less than one in a hundred.";

/// Lines if a count varies, bars if nothing does; no plot of fewer than two systems.
fn draw(table: &Table<'_>, names: &[&str]) -> Option<String> {
    let measured: Vec<&str> =
        table.systems.iter().copied().filter(|s| !table.measured(s).is_empty()).collect();
    if measured.len() < 2 {
        return None;
    }
    let title = table.title();
    let medians: Vec<f64> =
        measured.iter().flat_map(|s| table.measured(s)).map(|(_, median)| median).collect();
    let frame = Frame {
        title: &title,
        x: table.across.unwrap_or_default(),
        y: table.unit,
        spread: spread(&medians),
    };
    let style = |system: &str| names.iter().position(|n| *n == system).unwrap_or(0);
    let counts: Option<Vec<f64>> = table.columns.iter().map(|c| as_count(c)).collect();
    match (counts, &table.columns[..]) {
        (_, [only]) => {
            let bars: Vec<(String, usize, Drawn)> = measured
                .iter()
                .filter_map(|s| Some(((*s).to_owned(), style(s), drawn(table, s, only)?)))
                .collect();
            Some(plot::bars(&frame, &bars))
        }
        (Some(_), _) => {
            let line = |system: &&str| Line {
                name: (*system).to_owned(),
                style: style(system),
                values: table
                    .columns
                    .iter()
                    .filter_map(|c| Some((as_count(c)?, drawn(table, system, c)?)))
                    .collect(),
            };
            let lines: Vec<Line> = measured.iter().map(line).collect();
            Some(plot::lines(&frame, &lines))
        }
        (None, _) => None,
    }
}

/// Logarithmic if values are far apart, and none of them is 0.
fn spread(medians: &[f64]) -> Spread {
    let low = medians.iter().copied().fold(f64::INFINITY, f64::min);
    let high = medians.iter().copied().fold(0.0, f64::max);
    if low > 0.0 && high / low > WIDE { Spread::Log } else { Spread::Linear }
}

fn as_count(value: &Value) -> Option<f64> {
    match value {
        Value::Count(count) => Some(*count as f64),
        Value::Text(_) => None,
    }
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
    use crate::experiment::{NO_FRAMES, Reason};
    use crate::point::parameters;
    use crate::point::tests::rate_point;
    use crate::report::goals::{Bound, Figure, Which};
    use crate::report::results::{ALL_POINTS, POINTS};

    const MADE_UP: Experiment = Experiment {
        name: "made-up",
        title: "Made up",
        about: "Figures for a test.",
        repeats: "nothing",
        long: false,
        across: Some("flows"),
        shown: &["rate"],
        more: "more flows",
        why: &[Reason { system: "OVS-DPDK", metrics: &["rate"], most: None, words: "It polls." }],
        seconds: [1, 1],
        frames: NO_FRAMES,
        run: |_| Ok(()),
    };
    const GOAL: Goal = Goal {
        words: "rate",
        figure: Figure::Value(Which {
            experiment: "made-up",
            system: "Slipswitch xdp",
            metric: "rate",
            parameters: &[("flows", "1024")],
        }),
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
        results.note("A note | of two\nlines.");
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
            "OVS-DPDK is ahead of every tier of Slipswitch here (at flows 1: 9.50 against 9.00). It polls.",
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
    fn a_lead_smaller_than_the_scatter_has_no_reason() {
        let mut results = results();
        results.points.iter_mut().for_each(|p| p.spread = Some(1.0));
        let text = page(&results, &LAYOUT, "benchmarks").text;
        assert!(text.contains("9.50 against 9.00). The difference is less than"), "{text}");
        assert!(!text.contains("It polls."), "{text}");
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

// SPDX-License-Identifier: Apache-2.0
//! Which tests to run.

use super::args::Args;
use super::workspace::{Package, Target, Workspace};
use anyhow::{Result, bail};

/// Test programs of a package, and which of their tests.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The package.
    pub package: Package,
    /// The programs.
    pub targets: Vec<Target>,
    /// Tests whose names contain one of these; all when empty.
    pub filter: Vec<String>,
    /// Each word of the filter has to stand in the name of a test.
    pub strict: bool,
}

/// A package, patterns of test programs, parts of names of tests.
type Row = (&'static str, &'static [&'static str], &'static [&'static str]);

/// Tests that depend on the kernel.
const DEFAULT: &[Row] = &[
    ("datapath-bpf", &["*"], &[]),
    ("datapath-kernel", &["*"], &[]),
    ("netdev", &["*"], &[]),
    ("placement", &["*"], &[]),
    ("slipswitch-tests", &["kernel_datapath"], &[]),
    ("slipswitch-tests", &["behaviour", "equivalence", "namespaces", "userspace"], &[]),
    ("slipswitch-tests", &["card", "flower"], &[]),
    ("slipswitch-tests", &["xdp_flow"], &[]),
    ("xdp-flow", &["*"], &[]),
    ("slipswitch-tests", &["faults"], &["bpf::", "crash::", "devices::"]),
];

/// Returns the suites that run by default, as text for the help.
pub fn suites() -> String {
    let line = |(package, programs, filter): &Row| {
        let programs = if *programs == ["*"] { "all".to_owned() } else { programs.join(", ") };
        let filter =
            if filter.is_empty() { String::new() } else { format!(": {}", filter.join(", ")) };
        format!("  {package:17} {programs}{filter}")
    };
    DEFAULT.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A few tests of each part that are likely to fail on another kernel: the programs are loaded and
/// run, attached in each way, and carry packets for the daemon.
const SMOKE: &[Row] = &[(
    "datapath-bpf",
    &["lib", "kernel", "prog_run", "actions", "verifier"],
    &[
        "loads_every_program",
        "where_there_is_no_tcx",
        "flows_are_run_counted_and_removed",
        "every_way_to_attach",
        "cases_at_",
        "lengths_are_checked_and_cut",
    ],
)];

/// Returns the programs that the command line selects.
pub fn choose(workspace: &Workspace, args: &Args) -> Result<Vec<Choice>> {
    let mut choices = if args.smoke {
        from_table(workspace, SMOKE)?
    } else if args.package.is_empty() {
        from_table(workspace, DEFAULT)?
    } else {
        named(workspace, &args.package)?
    };
    if !args.filter.is_empty() {
        for choice in &mut choices {
            choice.filter.clone_from(&args.filter);
            choice.strict = false; // a word is for one package of several
        }
    }
    narrow(&mut choices, &args.test)?;
    Ok(choices)
}

fn from_table(workspace: &Workspace, rows: &[Row]) -> Result<Vec<Choice>> {
    rows.iter().map(|row| of_row(workspace.package(row.0)?, row)).collect()
}

/// A pattern that names no program is an error: the table is out of date.
fn of_row(package: &Package, (_, patterns, filter): &Row) -> Result<Choice> {
    let named = |pattern: &str| package.targets.iter().any(|t| matches(pattern, t.name()));
    if let Some(pattern) = patterns.iter().find(|p| !named(p)) {
        bail!("{} has no test program {pattern}, which the table of tests names", package.name);
    }
    let chosen = |t: &&Target| patterns.iter().any(|p| matches(p, t.name()));
    Ok(Choice {
        package: package.clone(),
        targets: package.targets.iter().filter(chosen).cloned().collect(),
        filter: filter.iter().map(|f| (*f).to_owned()).collect(),
        strict: true,
    })
}

fn named(workspace: &Workspace, packages: &[String]) -> Result<Vec<Choice>> {
    let choice = |name: &String| {
        let package = workspace.package(name)?.clone();
        Ok(Choice { targets: package.targets.clone(), filter: Vec::new(), strict: false, package })
    };
    packages.iter().map(choice).collect()
}

/// Keeps the programs that a pattern names. A pattern that names none is an error.
fn narrow(choices: &mut Vec<Choice>, patterns: &[String]) -> Result<()> {
    for pattern in patterns {
        let named = |c: &Choice| c.targets.iter().any(|t| matches(pattern, t.name()));
        if !choices.iter().any(named) {
            let names: Vec<String> = choices.iter().flat_map(names).collect();
            bail!("no test program is named {pattern}; there are: {}", names.join(", "));
        }
    }
    for choice in choices.iter_mut().filter(|_| !patterns.is_empty()) {
        choice.targets.retain(|t| patterns.iter().any(|p| matches(p, t.name())));
    }
    choices.retain(|c| !c.targets.is_empty());
    Ok(())
}

fn names(choice: &Choice) -> Vec<String> {
    choice.targets.iter().map(|t| t.name().to_owned()).collect()
}

/// Whether the name matches the pattern, in which * stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            (0..=name.len()).any(|at| name.get(at..).is_some_and(|tail| matches(rest, tail)))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices() -> Vec<Choice> {
        let choice = |name: &str, targets: &[Target]| Choice {
            package: Package { name: name.into(), dir: "/".into(), targets: targets.to_vec() },
            targets: targets.to_vec(),
            filter: Vec::new(),
            strict: false,
        };
        let test = |name: &str| Target::Test(name.into());
        vec![
            choice("a", &[Target::Lib, test("one"), test("two")]),
            choice("b", &[Target::Lib, test("three")]),
        ]
    }

    #[test]
    fn patterns_are_as_in_a_shell() {
        for (pattern, name) in [("x", "x"), ("*", ""), ("a*", "a"), ("a*c*", "abcd"), ("*d", "dd")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("x", "xy"), ("a*c", "abcd"), ("", "x"), ("a*a", "a")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn patterns_choose_programs_of_every_package() {
        let mut narrowed = choices();
        narrow(&mut narrowed, &["t*".into(), "one".into()]).expect("both are there");
        assert_eq!(
            narrowed.iter().map(names).collect::<Vec<_>>(),
            [vec!["one", "two"], vec!["three"]]
        );
        let mut narrowed = choices();
        narrow(&mut narrowed, &["three".into()]).expect("it is there");
        assert_eq!(narrowed.len(), 1);
    }

    #[test]
    fn a_pattern_for_nothing_is_an_error() {
        let error = narrow(&mut choices(), &["four".into()]).unwrap_err();
        assert!(error.to_string().ends_with("lib, one, two, lib, three"), "{error}");
    }

    #[test]
    fn the_tables_name_programs_of_this_workspace() {
        let workspace = Workspace::load().expect("cargo runs this test");
        for rows in [DEFAULT, SMOKE] {
            let choices = from_table(&workspace, rows).expect("they are all there");
            assert!(choices.iter().all(|c| !c.targets.is_empty()));
        }
    }

    #[test]
    fn a_row_for_nothing_is_an_error() {
        let package = &choices()[0].package;
        let row = |pattern| of_row(package, &("a", pattern, &[]));
        assert_eq!(names(&row(&["t*"]).expect("it is there")), ["two"]);
        assert!(row(&["t*", "four"]).unwrap_err().to_string().contains("no test program four"));
    }
}

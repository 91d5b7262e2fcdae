// SPDX-License-Identifier: Apache-2.0
//! The command line.

use crate::experiment::{self, Entry};
use crate::peer::System;
use clap::builder::PossibleValuesParser;
use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

const AFTER: &str = "\
Without names of groups it compares Slipswitch with bare redirects and other switches, one
experiment after the other, and prints a page of tables with the goals and what became of them.
`--list` shows experiments and systems. Systems take turns, pinned to CPUs; those that poll are
measured alone. A figure is the median over the rounds; what scatters too widely is taken again, at
most twice, and marked with ~ if it still does. What cannot be measured says why. Each experiment
that is over goes to the page at once, if one is named: what is cut off later leaves those.

Groups, which look at parts of Slipswitch against the least that could be done:
  cost   nanoseconds of the switch's programs over a bare redirect, by BPF_PROG_RUN, at XDP and
         at tc: one flow, 65,536 flows in random order, 128 masks in steady state
  udp    60-byte UDP through two veth pairs at XDP, as a share of a bare devmap redirect:
         1, 1,024, 65,536 and 262,144 flows, a rule for each. Generator, switch and sink share
         one core, as NAPI runs where the generator does
  table  262,144 flows put into the BPF flow table, swept for statistics, and removed, against
         plain memory of the same size

It needs root, clang at build time, and Debian's openvswitch packages. All traffic is in network
namespaces of its own; nothing stays behind. It exits with 2 when an experiment or a figure of a
group could not be measured at all, and with 1 when a goal of a group is missed.

Examples:
  make bench                                                  the page, in about 18 minutes
  cargo run --release -p slipswitch-bench -- --only echo,tcp
  cargo run --release -p slipswitch-bench -- --only setup --systems slipswitch,ovs --quick
  cargo run --release -p slipswitch-bench -- cost udp --repeat 15 --json figures.json
  cargo run --release -p slipswitch-bench -- \\
      --render docs/benchmarks/results.json --page docs/benchmarks.md";

/// Measures Slipswitch against other switches and against the limits of the machine it runs on.
#[derive(Debug, Parser)]
#[command(name = "slipswitch-bench", version, after_help = AFTER)]
pub struct Args {
    /// Groups to measure, in place of experiments
    #[arg(value_enum)]
    pub groups: Vec<Group>,
    /// Only these experiments, separated by commas
    #[arg(long, value_name = "EXPERIMENT", value_delimiter = ',', value_parser = names())]
    pub only: Vec<String>,
    /// Only systems whose names contain one of these words, separated by commas; a name is
    /// written in small letters and with - for a space, as --list shows it
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = known)]
    pub systems: Vec<String>,
    /// All points: every size and number of flows
    #[arg(long, conflicts_with = "quick")]
    pub full: bool,
    /// Shorter rounds: a first look, not a result
    #[arg(long)]
    pub quick: bool,
    /// Rounds of each measurement [default: 3, 5 with --full, 2 or 3 of what takes long; 9 for
    /// groups]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Write the page to FILE, plots and results.json to a directory of its name beside it
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
    /// Also write the figures, with every sample, to FILE
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Let the page say this, too, about the run
    #[arg(long, value_name = "TEXT", conflicts_with = "groups")]
    pub note: Option<String>,
    /// Measure nothing; make the page anew from the results of a run
    #[arg(long, value_name = "FILE", conflicts_with_all = ["groups", "only", "systems", "json"])]
    pub render: Option<PathBuf>,
    /// Show experiments and systems
    #[arg(long)]
    pub list: bool,
}

/// Figures that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// Program cost over a bare redirect
    Cost,
    /// Small packets at XDP
    Udp,
    /// Flow table operations
    Table,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds.
    pub repeat: u32,
    /// So many were asked for: no measurement takes fewer because it is long.
    pub exactly: bool,
    /// Shorter rounds.
    pub quick: bool,
    /// All points.
    pub full: bool,
}

impl Args {
    /// How much to measure.
    pub fn plan(&self) -> Plan {
        let rounds = match self {
            Args { quick: true, .. } => 3,
            Args { full: true, .. } => 5,
            Args { groups, .. } if groups.is_empty() => 3,
            _ => 9,
        };
        Plan {
            repeat: self.repeat.unwrap_or(rounds),
            exactly: self.repeat.is_some(),
            quick: self.quick,
            full: self.full,
        }
    }

    /// The experiments that were asked for, in the order of the page.
    pub fn experiments(&self) -> Vec<Entry> {
        let asked = |e: &Entry| match self.only.as_slice() {
            [] => self.full || !e.0.long,
            names => names.iter().any(|n| n == e.0.name),
        };
        experiment::ALL.into_iter().filter(asked).collect()
    }

    /// The systems that were asked for.
    pub fn systems(&self) -> Vec<System> {
        let asked = |s: &System| {
            let name = short(*s);
            self.systems.is_empty() || self.systems.iter().any(|word| name.contains(word))
        };
        System::ALL.into_iter().filter(asked).collect()
    }
}

impl Plan {
    /// For measurements that are many or long: with no more rounds than these, unless more were
    /// asked for.
    pub fn at_most(self, rounds: u32) -> Plan {
        let repeat = if self.exactly { self.repeat } else { self.repeat.min(rounds) };
        Plan { repeat, ..self }
    }

    /// How long traffic is looked at in one round.
    pub fn window(&self) -> Duration {
        Duration::from_millis(if self.quick { 300 } else { 1000 })
    }
}

/// A system's name as `--systems` takes it.
pub fn short(system: System) -> String {
    system.name().to_lowercase().replace(' ', "-")
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(experiment::ALL.map(|(experiment, ..)| experiment.name))
}

/// A word that is part of a system's name.
fn known(word: &str) -> Result<String, String> {
    let word = word.to_lowercase().replace(' ', "-");
    if !word.is_empty() && System::ALL.iter().any(|s| short(*s).contains(&word)) {
        return Ok(word);
    }
    let all: Vec<String> = System::ALL.map(short).into_iter().collect();
    Err(format!("no system has this in its name; there are {}", all.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn without_names_all_is_compared_that_there_is_time_for() {
        let has = |line: &[&str], name| {
            Args::parse_from(line).experiments().iter().any(|e| e.0.name == name)
        };
        assert!(has(&["bench"], "grid") && !has(&["bench"], "flood"));
        assert!(has(&["bench", "--only", "flood"], "flood"));
        let args = Args::parse_from(["bench", "--full"]);
        assert_eq!(args.experiments().len(), experiment::ALL.len());
        assert_eq!(args.plan().repeat, 5);
        let args = Args::parse_from(["bench"]);
        assert_eq!(args.systems(), System::ALL);
        assert_eq!(args.plan().repeat, 3);
        assert_eq!(Args::parse_from(["bench", "cost"]).plan().repeat, 9);
    }

    #[test]
    fn experiments_and_systems_are_chosen_by_name() {
        let args = Args::parse_from(["bench", "--only", "echo,tcp", "--systems", "tcx,Bare tc"]);
        assert_eq!(args.experiments().len(), 2);
        let names: Vec<&str> = args.systems().into_iter().map(System::name).collect();
        assert_eq!(names, ["bare tc redirect", "Slipswitch tcx"]);
        for wrong in [["bench", "--only", "ecko"], ["bench", "--systems", "vpp"]] {
            assert!(Args::try_parse_from(wrong).is_err());
        }
    }
}

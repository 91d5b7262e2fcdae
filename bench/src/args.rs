// SPDX-License-Identifier: Apache-2.0
//! The command line.

use crate::experiment::{ALL, Experiment};
use crate::measure::Plan;
use crate::system::System;
use clap::Parser;
use clap::builder::PossibleValuesParser;
use std::net::SocketAddr;
use std::path::PathBuf;

const AFTER: &str = "\
Measures one experiment after the other and prints a page of tables and goals. Systems take turns,
pinned to CPUs; systems that poll are measured alone. With --page the page is written after each
experiment, so that a run that is cut off leaves its results.

It needs root, clang at build time, and Debian's openvswitch packages. All traffic is in network
namespaces that are removed at the end. The exit status is 2 when an experiment could not be run.

Examples:
  make bench                                                  the page, in about 30 minutes
  cargo run --release -p slipswitch-bench -- --only setup --systems slipswitch,ovs --quick";

/// Measures Slipswitch against other switches and against the limits of the machine it runs on.
#[derive(Debug, Parser)]
#[command(name = "slipswitch-bench", version, after_help = AFTER)]
pub struct Args {
    /// Only these experiments, separated by commas
    #[arg(long, value_name = "EXPERIMENT", value_delimiter = ',')]
    #[arg(value_parser = PossibleValuesParser::new(ALL.map(|experiment| experiment.name)))]
    pub only: Vec<String>,
    /// Only systems whose names contain one of these words, separated by commas; a name is
    /// written in small letters and with - for a space, as --list shows it
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = part_of_a_system)]
    pub systems: Vec<String>,
    /// All points: every size and number of flows
    #[arg(long, conflicts_with = "quick")]
    pub full: bool,
    /// Shorter rounds: a first impression, not a result
    #[arg(long)]
    pub quick: bool,
    /// Rounds of each measurement [default: 3, 5 with --full, 2 or 3 of long measurements]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Write the page to FILE, and plots and results.json to a directory of the same name
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
    /// Also write the figures, with every sample, to FILE
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Add a note about the run to the page
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    /// Measure nothing; make the page again from the results of a run
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "systems", "json"])]
    pub render: Option<PathBuf>,
    /// Be the server of an experiment, at this address
    #[arg(long, value_name = "ADDRESS", hide = true)]
    pub echo_server: Option<SocketAddr>,
    /// Show experiments and systems
    #[arg(long)]
    pub list: bool,
}

impl Args {
    pub fn plan(&self) -> Plan {
        let rounds = self.repeat.unwrap_or(if self.full { 5 } else { 3 });
        Plan { rounds, is_exact: self.repeat.is_some(), quick: self.quick, full: self.full }
    }

    /// The selected experiments, in the order of the page.
    pub fn experiments(&self) -> Vec<&'static Experiment> {
        let selected = |e: &&Experiment| match self.only.as_slice() {
            [] => self.full || !e.long,
            names => names.iter().any(|n| n == e.name),
        };
        ALL.into_iter().filter(selected).collect()
    }

    /// The selected systems.
    pub fn systems(&self) -> Vec<System> {
        let selected = |s: &System| {
            let name = short(*s);
            self.systems.is_empty() || self.systems.iter().any(|word| name.contains(word))
        };
        System::ALL.into_iter().filter(selected).collect()
    }
}

/// A system's name as `--systems` takes it.
pub fn short(system: System) -> String {
    system.name().to_lowercase().replace(' ', "-")
}

fn part_of_a_system(word: &str) -> Result<String, String> {
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
    fn without_names_all_but_the_long_experiments_are_run() {
        let has = |line: &[&str], name| {
            Args::parse_from(line).experiments().iter().any(|e| e.name == name)
        };
        assert!(has(&["bench"], "grid") && !has(&["bench"], "flood"));
        assert!(has(&["bench", "--only", "flood"], "flood"));
        let args = Args::parse_from(["bench", "--full"]);
        assert_eq!(args.experiments().len(), ALL.len());
        assert_eq!(args.plan().rounds, 5);
        let args = Args::parse_from(["bench"]);
        assert_eq!(args.systems(), System::ALL);
        assert_eq!(args.plan().rounds, 3);
    }

    #[test]
    fn experiments_and_systems_are_selected_by_name() {
        let args = Args::parse_from(["bench", "--only", "echo,tcp", "--systems", "tcx,Linux b"]);
        assert_eq!(args.experiments().len(), 2);
        let names: Vec<&str> = args.systems().into_iter().map(System::name).collect();
        assert_eq!(names, ["Linux bridge", "Slipswitch tcx"]);
        for wrong in [["bench", "--only", "ecko"], ["bench", "--systems", "vpp"]] {
            assert!(Args::try_parse_from(wrong).is_err());
        }
    }
}

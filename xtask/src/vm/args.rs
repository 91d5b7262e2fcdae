// SPDX-License-Identifier: Apache-2.0
//! The command line.

use super::plan;
use super::release::Series;

/// Kernel series that `all` stands for.
pub const SUPPORTED: [Series; 2] = [Series { major: 6, minor: 1 }, Series { major: 6, minor: 12 }];

/// Run the workspace's tests on other kernels, in an emulated machine
///
/// Fetches Debian's stock kernels, starts each in QEMU (software emulation, two CPUs, 4 GiB) and
/// runs test programs in it as root. The guest's file system is the host's own, read-only, under a
/// layer of memory: the guest has the host's tools, and its changes are lost at its end. Neither root
/// nor KVM is needed on the host. FILTER and the arguments after `--` go to the test programs as with
/// `cargo test`. The output of tests goes to standard output, the rest to standard error.
///
/// A kernel that is not cached yet is fetched once (70 MB for 6.1, 107 MB for 6.12) and kept,
/// unpacked, in the target directory under `vm/kernels` (400 MB and 114 MB).
#[derive(Clone, Debug, clap::Args)]
#[command(arg_required_else_help = true, after_long_help = more(), after_help = more())]
pub struct Args {
    /// Kernel series, as in 6.1, or all for every series that is supported; may be given more
    /// than once or as a list with commas [default: all; with --smoke: 6.1]
    #[arg(long, value_name = "SERIES", value_delimiter = ',')]
    pub kernel: Vec<KernelChoice>,

    /// List the kernels that can be fetched or are cached, and run nothing
    #[arg(long)]
    pub list: bool,

    /// Fetch a kernel's newest package even when an older one is cached
    #[arg(long)]
    pub update: bool,

    /// Packages whose tests to run [default: the suites below]
    #[arg(long, short, value_name = "PACKAGE")]
    pub package: Vec<String>,

    /// Only test programs with this name; * stands for anything, lib for a library's unit tests
    #[arg(long, value_name = "PATTERN")]
    pub test: Vec<String>,

    /// Only a handful of tests of each part, on one kernel: about two minutes when the tests are built
    #[arg(long, conflicts_with_all = ["package", "test", "filter", "run"])]
    pub smoke: bool,

    /// Make the guest's clock count instructions, a nanosecond each, on both CPUs together: times
    /// are then numbers of instructions, whatever the host does meanwhile. Much slower
    #[arg(long, requires = "run")]
    pub count_instructions: bool,

    /// Run this line of shell in the guest instead of tests
    #[arg(long, value_name = "LINE", conflicts_with_all = ["package", "test", "filter"])]
    pub run: Option<String>,

    /// End with the first test program that fails
    #[arg(long)]
    pub fail_fast: bool,

    /// Seconds after which a test program is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 2400,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,

    /// Threads of each test program
    #[arg(long, value_name = "THREADS", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub test_threads: u32,

    /// Only tests whose names contain one of these
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,

    /// Arguments for the test programs
    #[arg(last = true, value_name = "ARGS")]
    pub test_args: Vec<String>,
}

/// Returns the help text after the options.
fn more() -> String {
    MORE.replace("@SUITES@", &plan::suites())
}

const MORE: &str = "\
Kernels: 6.1 and 6.12 are supported; --list shows all that Debian has.

Suites (package, test programs):
@SUITES@

Examples:
  cargo xtask vm --kernel 6.12                  all suites on one kernel
  cargo xtask vm --kernel all                   on both
  cargo xtask vm --smoke                        a handful of tests on 6.1
  cargo xtask vm --kernel 6.1 -p slipswitch-tests --test behaviour tcx::
  cargo xtask vm --kernel 6.1 --run 'uname -a'

At the end it reports for each program and each kernel how many tests passed, failed, and were
skipped, with the reasons. A suite takes some minutes to half an hour, depending on the load of the
host; --smoke takes about two minutes when the tests are built.

A guest is slow: deadlines of tests are multiplied by SLIPSWITCH_TEST_PATIENCE, which is 5 unless
it is set.

Exit status:
  0    every test passed on every kernel
  124  a test program did not end in time
  1    a guest died, its kernel warned, or something is missing on the host
  2    the command line is wrong
  else the status of the first test program that failed (101 when tests failed)";

/// The value of `--kernel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelChoice {
    /// Every series that is supported.
    All,
    /// One series.
    One(Series),
}

impl std::str::FromStr for KernelChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<KernelChoice, String> {
        match text {
            "all" => Ok(KernelChoice::All),
            _ => text.parse().map(KernelChoice::One),
        }
    }
}

impl Args {
    /// The series to run, each once, in the order given.
    pub fn series(&self) -> Vec<Series> {
        if self.kernel.is_empty() {
            let count = if self.smoke { 1 } else { SUPPORTED.len() };
            return SUPPORTED[..count].to_vec();
        }
        let mut wanted = Vec::new();
        for choice in &self.kernel {
            let named = match choice {
                KernelChoice::All => SUPPORTED.to_vec(),
                KernelChoice::One(series) => vec![*series],
            };
            wanted.extend(named.into_iter().filter(|s| !wanted.contains(s)).collect::<Vec<_>>());
        }
        wanted
    }

    /// Returns the arguments of each test program.
    pub fn program_args(&self, filter: &[String]) -> Vec<String> {
        let threads = format!("--test-threads={}", self.test_threads);
        filter.iter().cloned().chain([threads]).chain(self.test_args.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Line::try_parse_from(std::iter::once("vm").chain(line.split_whitespace())).map(|l| l.args)
    }

    fn series(line: &str) -> Vec<String> {
        parse(line).expect("it is right").series().iter().map(Series::to_string).collect()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Line::command().debug_assert();
    }

    #[test]
    fn kernels_are_chosen_once_each() {
        assert_eq!(series("some"), ["6.1", "6.12"]);
        assert_eq!(series("--smoke"), ["6.1"]);
        assert_eq!(series("--kernel 6.12"), ["6.12"]);
        assert_eq!(series("--kernel 6.12,all --kernel 6.1"), ["6.12", "6.1"]);
        assert!(parse("--kernel six").is_err());
    }

    #[test]
    fn filters_and_arguments_reach_the_tests() {
        let args = parse("--test-threads 4 one two -- --exact").expect("it is right");
        assert_eq!(args.program_args(&args.filter), ["one", "two", "--test-threads=4", "--exact"]);
    }

    #[test]
    fn without_arguments_it_prints_the_choices() {
        let help = parse("").unwrap_err().to_string();
        for part in ["6.1 and 6.12", "namespaces", "SLIPSWITCH_TEST_PATIENCE", "skipped"] {
            assert!(help.contains(part), "no {part} in {help}");
        }
    }

    #[test]
    fn what_makes_no_sense_together_is_refused() {
        assert!(parse("--smoke traffic").is_err());
        assert!(parse("--run true --package x").is_err());
        assert!(parse("--timeout 0").is_err());
    }
}
